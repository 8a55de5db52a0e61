//! Random queries over random documents: segments against an evaluation straight over the documents.

#[path = "naive/large.rs"]
mod large;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use settee_search::analysis::{Analyzer, Spec};
use settee_search::document::{Document, Field, Indexed, Options, Value};
use settee_search::search::{Answer, Group, GroupRows, Limits, Request, Row, Sort, SortValue, search, unite};
use settee_search::segment::{Deleted, Part, Segment, build, merge};

/// Scores may differ so much.
const NEAR: f64 = 1e-5;
const WORDS: [&str; 8] = ["ab", "abc", "abd", "bcd", "cde", "cdef", "xyz", "yxz"];
const TAGS: [&str; 4] = ["Red", "red", "Blue", "New York"];

/// A document as the naive evaluation sees it.
#[derive(Clone, Debug)]
struct Plain {
    number: u64,
    words: Vec<&'static str>,
    tag: Option<&'static str>,
    n: Option<f64>,
}

/// A query as the naive evaluation sees it.
#[derive(Clone, Debug)]
enum Ask {
    All,
    Word(&'static str),
    Tag(&'static str),
    Number(i32),
    Between(i32, i32, bool, bool),
    Prefix(&'static str),
    Wildcard(&'static str),
    Fuzzy(&'static str),
    Phrase(Vec<&'static str>),
    Boost(Box<Ask>, u8),
    Clauses(Vec<(char, Ask)>),
}

fn analyzer() -> Analyzer {
    let named = |name: &str| Spec::Named { name: name.into(), stopwords: None };
    let fields = [("tag".to_owned(), named("keyword"))].into_iter().collect();
    Analyzer::new(Spec::PerField { default: Box::new(named("whitespace")), fields }).expect("known analyzers")
}

impl Plain {
    fn document(&self) -> Document {
        let options = Options { index: Indexed::AnalyzedNoNorms, store: true, ..Options::default() };
        let field = |name: &str, value, options| Field { name: name.into(), value, options };
        let mut fields = vec![field("default", Value::Text(self.words.join(" ")), options)];
        if let Some(tag) = self.tag {
            fields.push(field("tag", Value::Text(tag.into()), Options { facet: true, ..options }));
        }
        if let Some(n) = self.n {
            fields.push(field("n", Value::Number(n), Options { facet: true, ..options }));
        }
        Document { number: self.number, id: format!("d{:04}", self.number), fields }
    }
}

impl Ask {
    fn text(&self) -> String {
        match self {
            Ask::All => "*:*".into(),
            Ask::Word(word) => (*word).into(),
            Ask::Tag(tag) => format!("tag:\"{tag}\""),
            Ask::Number(n) => format!("n:{}", n.to_string().replace('-', "\\-")),
            Ask::Between(low, high, has_low, has_high) => {
                let (open, close) = (if *has_low { '[' } else { '{' }, if *has_high { ']' } else { '}' });
                format!("n:{open}{low} TO {high}{close}")
            }
            Ask::Prefix(word) => format!("{word}*"),
            Ask::Wildcard(pattern) => (*pattern).into(),
            Ask::Fuzzy(word) => format!("{word}~1"),
            Ask::Phrase(words) => format!("\"{}\"", words.join(" ")),
            Ask::Boost(ask, boost) => format!("({})^{boost}", ask.text()),
            Ask::Clauses(clauses) => {
                let clauses = clauses.iter().map(|(sign, ask)| format!("{sign}({})", ask.text()));
                clauses.collect::<Vec<String>>().join(" ").trim_start().to_owned()
            }
        }
    }

    fn is_match(&self, doc: &Plain) -> bool {
        let has = |f: &dyn Fn(&str) -> bool| doc.words.iter().any(|word| f(word));
        match self {
            Ask::All => true,
            Ask::Word(wanted) => has(&|word| word == *wanted),
            Ask::Tag(tag) => doc.tag == Some(tag),
            Ask::Number(n) => doc.n == Some(f64::from(*n)),
            Ask::Between(low, high, has_low, has_high) => doc.n.is_some_and(|n| {
                let (low, high) = (f64::from(*low), f64::from(*high));
                (n > low || (*has_low && n == low)) && (n < high || (*has_high && n == high))
            }),
            Ask::Prefix(prefix) => has(&|word| word.starts_with(prefix)),
            Ask::Wildcard(pattern) => has(&|word| wildcard(pattern.as_bytes(), word.as_bytes())),
            // An edit for each letter of a word makes any word of it: that is no match, as in Lucene.
            Ask::Fuzzy(wanted) => {
                has(&|word| word == *wanted || distance(wanted, word) == 1 && word.len().min(wanted.len()) > 1)
            }
            Ask::Phrase(words) => occurrences(words, doc) > 0,
            Ask::Boost(ask, _) => ask.is_match(doc),
            Ask::Clauses(clauses) => {
                let of = |sign: char| clauses.iter().filter(move |(own, _)| *own == sign).map(|(_, ask)| ask);
                let must = of('+').all(|ask| ask.is_match(doc));
                let should = of('+').next().is_some() || of(' ').any(|ask| ask.is_match(doc));
                must && should && !of('-').any(|ask| ask.is_match(doc))
            }
        }
    }

    /// What brackets alone hold: a boost behind them takes the place of one within.
    fn bare(self) -> Ask {
        match self {
            Ask::Boost(ask, _) => ask.bare(),
            Ask::Clauses(mut clauses) if clauses.len() == 1 && clauses[0].0 == ' ' => clauses.remove(0).1.bare(),
            ask => ask,
        }
    }

    fn has_fuzzy(&self) -> bool {
        match self {
            Ask::Fuzzy(_) => true,
            Ask::Boost(ask, _) => ask.has_fuzzy(),
            Ask::Clauses(clauses) => clauses.iter().any(|(_, ask)| ask.has_fuzzy()),
            _ => false,
        }
    }

    /// How often a document has what scores, and its weight; `None`: all matches score alike.
    fn weight(&self, docs: &[Plain]) -> Option<f64> {
        let idf = |is_match: &dyn Fn(&Plain) -> bool| {
            let count = docs.iter().filter(|doc| is_match(doc)).count();
            1.0 + (docs.len() as f64 / (count + 1) as f64).ln()
        };
        match self {
            Ask::Word(_) | Ask::Tag(_) | Ask::Number(_) => Some(idf(&|doc| self.is_match(doc))),
            Ask::Phrase(words) => Some(words.iter().map(|word| idf(&|doc| doc.words.contains(word))).sum()),
            _ => None,
        }
    }

    fn squares(&self, docs: &[Plain]) -> f64 {
        match self {
            Ask::Boost(ask, boost) => ask.squares(docs) * f64::from(*boost).powi(2),
            Ask::Clauses(clauses) => {
                clauses.iter().filter(|(sign, _)| *sign != '-').map(|(_, ask)| ask.squares(docs)).sum()
            }
            _ => self.weight(docs).unwrap_or(1.0).powi(2),
        }
    }

    fn score(&self, doc: &Plain, docs: &[Plain], norm: f64) -> f64 {
        match self {
            Ask::Boost(ask, boost) => ask.score(doc, docs, norm * f64::from(*boost)),
            Ask::Clauses(clauses) => {
                let scoring: Vec<&Ask> = clauses.iter().filter(|(sign, _)| *sign != '-').map(|(_, ask)| ask).collect();
                let matching: Vec<&&Ask> = scoring.iter().filter(|ask| ask.is_match(doc)).collect();
                let sum: f64 = matching.iter().map(|ask| ask.score(doc, docs, norm)).sum();
                if scoring.len() > 1 { sum * matching.len() as f64 / scoring.len() as f64 } else { sum }
            }
            _ => match self.weight(docs) {
                None => norm,
                Some(weight) => {
                    let times = match self {
                        Ask::Word(wanted) => doc.words.iter().filter(|word| word == &wanted).count(),
                        Ask::Phrase(words) => occurrences(words, doc),
                        _ => 1,
                    };
                    (times as f64).sqrt() * weight * weight * norm
                }
            },
        }
    }
}

fn occurrences(words: &[&str], doc: &Plain) -> usize {
    doc.words.windows(words.len()).filter(|window| *window == words).count()
}

fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|from| wildcard(rest, &text[from..])),
        Some((b'?', rest)) => !text.is_empty() && wildcard(rest, &text[1..]),
        Some((byte, rest)) => text.first() == Some(byte) && wildcard(rest, &text[1..]),
    }
}

/// Edits between two words, a transposition counting one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let mut best = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                best = best.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(table[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    table[a.len()][b.len()]
}

fn ask() -> impl Strategy<Value = Ask> {
    ask_of(&WORDS)
}

fn ask_of(words: &'static [&'static str]) -> impl Strategy<Value = Ask> {
    use proptest::collection::vec;
    use proptest::sample::select;
    let leaf = prop_oneof![
        1 => proptest::strategy::Just(Ask::All),
        6 => select(words).prop_map(Ask::Word),
        2 => select(&TAGS[..]).prop_map(Ask::Tag),
        1 => (-3..4i32).prop_map(Ask::Number),
        2 => (-4..4i32, -4..4i32, any::<bool>(), any::<bool>()).prop_map(|(a, b, c, d)| Ask::Between(a, b, c, d)),
        1 => select(vec!["a", "ab", "c", "zz"]).prop_map(Ask::Prefix),
        1 => select(vec!["a*d", "?b", "a?c", "c*e*", "x??"]).prop_filter("a letter first", |p| !p.starts_with('?'))
            .prop_map(Ask::Wildcard),
        1 => select(words).prop_map(Ask::Fuzzy),
        2 => vec(select(words), 2..4).prop_map(Ask::Phrase),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            4 => vec((select(vec!['+', '-', ' ', ' ']), inner.clone()), 1..5).prop_map(Ask::Clauses),
            1 => (inner, 1..5u8).prop_map(|(ask, boost)| Ask::Boost(Box::new(ask.bare()), boost)),
        ]
    })
}

fn plain() -> impl Strategy<Value = Vec<Plain>> {
    use proptest::collection::vec;
    use proptest::sample::select;
    let words = vec(select(&WORDS[..]), 0..9);
    let tag = proptest::option::of(select(&TAGS[..]));
    let n = proptest::option::of((-3..4i32).prop_map(f64::from));
    vec((1..5u64, words, tag, n), 1..40).prop_map(|all| {
        let mut number = 0;
        let plain = |(gap, words, tag, n)| {
            number += gap;
            Plain { number, words, tag, n }
        };
        all.into_iter().map(plain).collect()
    })
}

fn part(bytes: bytes::Bytes, deleted: &Deleted) -> Part {
    let segment = Segment::open(Arc::new(bytes)).expect("a segment");
    Part { segment, deleted: Arc::new(deleted.clone()) }
}

fn request(ask: &Ask) -> Request {
    Request { query: ask.text(), limit: 100, counts: Some(vec!["tag".into()]), ..Request::default() }
}

fn run(parts: &[Part], request: &Request) -> Answer {
    let answer = search(parts, &analyzer(), request, &Limits::default(), &mut || true);
    match answer {
        Ok(answer) => answer,
        Err(error) => panic!("{}: {error}", request.query),
    }
}

fn score(row: &Row) -> f64 {
    match row.order[0] {
        SortValue::Number(score) => score,
        _ => f64::NAN,
    }
}

/// The documents of one shard as the naive evaluation sees them: all, and those that count.
struct Shard<'a> {
    all: &'a [Plain],
    live: Vec<Plain>,
}

fn compare(parts: &[Part], ask: &Ask, shard: &Shard<'_>) {
    let answer = run(parts, &Request { counts: None, ..request(ask) });
    let wanted: Vec<&Plain> = shard.live.iter().filter(|doc| ask.is_match(doc)).collect();
    assert_eq!(answer.total, wanted.len() as u64, "{}", ask.text());
    let norm = 1.0 / ask.squares(shard.all).sqrt();
    let norm = if norm.is_finite() { norm } else { 1.0 };
    let mut last = f64::INFINITY;
    for row in &answer.rows {
        assert!(score(row) <= last, "{}", ask.text());
        last = score(row);
        let doc = wanted.iter().find(|doc| SortValue::Document(doc.number) == row.order[1]);
        let doc = doc.unwrap_or_else(|| panic!("{} matches {:?}", ask.text(), row));
        let wanted = ask.score(doc, shard.all, norm);
        let is_near = ask.has_fuzzy() || (wanted - score(row)).abs() <= NEAR * wanted.abs().max(1.0);
        assert!(is_near, "{}: {} scores {}, not {wanted}", ask.text(), row.id, score(row));
    }
    compare_order(parts, ask, &wanted);
    compare_counts(parts, ask, &wanted);
}

/// By tag and number, page by page.
fn compare_order(parts: &[Part], ask: &Ask, wanted: &[&Plain]) {
    let mut wanted: Vec<&&Plain> = wanted.iter().collect();
    let n = |doc: &Plain| doc.n.unwrap_or(0.0);
    wanted.sort_by(|a, b| b.tag.cmp(&a.tag).then(n(a).total_cmp(&n(b))).then(a.number.cmp(&b.number)));
    let by = |name: &str, is_text, reverse| Sort::Field { name: name.into(), is_text, reverse };
    let sort = vec![by("tag", true, true), by("n", false, false)];
    let mut found: Vec<Row> = Vec::new();
    loop {
        let after = found.last().map(|row| row.order.clone());
        let request = Request { sort: sort.clone(), limit: 3, after, ..request(ask) };
        let page = run(parts, &request).rows;
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    let numbers = |row: &Row| row.order[2].clone();
    let wanted: Vec<SortValue> = wanted.iter().map(|doc| SortValue::Document(doc.number)).collect();
    assert_eq!(found.iter().map(numbers).collect::<Vec<_>>(), wanted, "{}", ask.text());
}

fn compare_counts(parts: &[Part], ask: &Ask, wanted: &[&Plain]) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for tag in wanted.iter().filter_map(|doc| doc.tag) {
        *counts.entry(tag.to_owned()).or_default() += 1;
    }
    if let Some(found) = run(parts, &request(ask)).counts {
        assert_eq!(found["tag"], counts, "{}", ask.text());
    }
    let drilldown = vec![vec!["tag".to_owned(), "Red".into(), "New York".into()]];
    let narrowed = run(parts, &Request { drilldown, ..request(ask) }).total;
    assert_eq!(narrowed, ["Red", "New York"].iter().filter_map(|tag| counts.get(*tag)).sum::<u64>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn segments_answer_as_their_documents_do(
        docs in plain(),
        asks in proptest::collection::vec(ask(), 1..5),
        cuts in proptest::collection::btree_set(0..40usize, 0..5),
        gone in proptest::collection::btree_set(0..40usize, 0..12),
    ) {
        let documents: Vec<Document> = docs.iter().map(Plain::document).collect();
        let mut deleted = Deleted::default();
        for doc in gone.iter().filter_map(|place| docs.get(*place)) {
            deleted.insert(doc.number);
        }
        let mut ends: BTreeSet<usize> = cuts.into_iter().filter(|cut| *cut < docs.len()).collect();
        ends.extend([0, docs.len()]);
        let ends: Vec<usize> = ends.into_iter().collect();
        let parts: Vec<Part> =
            ends.windows(2).map(|pair| part(build(&documents[pair[0]..pair[1]], &analyzer()), &deleted)).collect();
        let live: Vec<Plain> = docs.iter().filter(|doc| !deleted.contains(doc.number)).cloned().collect();
        let shard = Shard { all: &docs, live: live.clone() };
        for ask in &asks {
            compare(&parts, ask, &shard);
        }
        let kept: Vec<Document> = live.iter().map(Plain::document).collect();
        let merged = merge(&parts).expect("a merge");
        prop_assert_eq!(&merged, &build(&kept, &analyzer()));
        let parts = [part(merged, &deleted)];
        let shard = Shard { all: &live, live: live.clone() };
        for ask in &asks {
            compare(&parts, ask, &shard);
        }
    }

    #[test]
    fn shards_together_answer_as_one(docs in plain(), ask in ask()) {
        let documents: Vec<Document> = docs.iter().map(Plain::document).collect();
        let none = Deleted::default();
        let by = |name: &str, is_text| Sort::Field { name: name.into(), is_text, reverse: true };
        let sort = vec![by("n", false), by("tag", true)];
        let request = Request { sort, limit: 7, ..request(&ask) };
        let whole = run(&[part(build(&documents, &analyzer()), &none)], &request);
        let shard = |rest: u64| {
            let own: Vec<Document> = documents.iter().filter(|doc| doc.number % 2 == rest).cloned().collect();
            run(&[part(build(&own, &analyzer()), &none)], &request)
        };
        let answers = [shard(0), Answer::default(), shard(1)];
        let counted = answers.iter().any(|answer| answer.counts.is_some());
        let (united, shards) = unite(&request, answers.to_vec());
        prop_assert_eq!(united.total, whole.total);
        prop_assert!(!counted || united.counts == whole.counts);
        let values = |row: &Row| row.order[..2].to_vec();
        prop_assert_eq!(
            united.rows.iter().map(values).collect::<Vec<_>>(),
            whole.rows.iter().map(values).collect::<Vec<_>>()
        );
        for (row, shard) in united.rows.iter().zip(shards) {
            prop_assert!(answers[shard].rows.contains(row));
        }
    }

    #[test]
    fn groups_of_shards_together_are_those_of_one(docs in plain(), ask in ask(), descending in any::<bool>()) {
        let documents: Vec<Document> = docs.iter().map(Plain::document).collect();
        let by_n = Sort::Field { name: "n".into(), is_text: false, reverse: descending };
        let group = Group { field: "tag".into(), limit: 5, sort: vec![by_n.clone()], only: None };
        let first = Request { sort: vec![by_n], limit: 3, group: Some(group.clone()), ..request(&ask) };
        let shard = |is_own: &dyn Fn(&Document) -> bool| {
            let own: Vec<Document> = documents.iter().filter(|doc| is_own(doc)).cloned().collect();
            let middle = own.len() / 2;
            [&own[..middle], &own[middle..]].map(|docs| part(build(docs, &analyzer()), &Deleted::default())).to_vec()
        };
        let whole = [shard(&|_| true)];
        let shards = [shard(&|doc| doc.number % 3 == 0), shard(&|doc| doc.number % 3 != 0)];
        let both_rounds = |shards: &[Vec<Part>]| {
            let round = |request: &Request| {
                unite(request, shards.iter().map(|parts| run_without_counts(parts, request)).collect()).0
            };
            let names = round(&first).groups.expect("groups").into_iter().map(|group| group.by).collect();
            let second = Request { group: Some(Group { only: Some(names), ..group.clone() }), ..first.clone() };
            let answer = round(&second);
            (answer.total, answer.groups.expect("groups"))
        };
        let shape = |(total, groups): (u64, Vec<GroupRows>)| {
            let rows = |group: &GroupRows| group.rows.iter().map(|row| row.order[0].clone()).collect::<Vec<_>>();
            (total, groups.iter().map(|group| (group.by.clone(), group.total, rows(group))).collect::<Vec<_>>())
        };
        let (total, groups) = shape(both_rounds(&whole));
        prop_assert_eq!(&shape(both_rounds(&shards)), &(total, groups.clone()));
        // There are five groups at most, so that none is cut off.
        for (by, total, rows) in groups {
            let own = docs.iter().filter(|doc| doc.tag == by.as_deref() && ask.is_match(doc)).count();
            prop_assert_eq!(total, own as u64);
            prop_assert_eq!(rows.len(), own.min(3));
        }
    }
}

fn run_without_counts(parts: &[Part], request: &Request) -> Answer {
    run(parts, &Request { counts: None, ..request.clone() })
}
