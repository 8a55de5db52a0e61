//! Random queries of the flexible syntax over five thousand documents in several segments, a part of them deleted,
//! against an evaluation straight over the documents.

use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::{select, subsequence};
use proptest::strategy::{Just, ValueTree};
use proptest::test_runner::TestRunner;

use super::*;

const DOCUMENTS: usize = 5_000;
/// Far fewer where nothing is optimised.
const QUERIES: usize = if cfg!(debug_assertions) { 200 } else { 4_000 };
const PAGE: usize = 20;
/// Scores may differ so much.
const NEAR: f64 = 1e-5;
const WORDS: [&str; 16] =
    ["ab", "abc", "abd", "bcd", "bd", "bde", "cd", "cde", "cdef", "dec", "def", "egf", "xy", "xyz", "yxz", "zeds"];
/// In lower case, as the analyzer writes words of queries.
const TAGS: [&str; 5] = ["blue", "green", "grey", "pink", "red"];

/// A document as the naive evaluation sees it.
#[derive(Clone, Debug)]
struct Plain {
    number: u64,
    id: String,
    words: Vec<&'static str>,
    tags: Vec<&'static str>,
    n: Option<f64>,
}

/// A query as the naive evaluation sees it.
#[derive(Clone, Debug)]
enum Ask {
    All,
    Word(&'static str),
    Tag(&'static str),
    Number(i32),
    /// Numbers between two ends, either of which may be open or excluded.
    Between(Option<i32>, Option<i32>, bool, bool),
    /// Numbers on one side of one that is not negative.
    Compared(&'static str, u8),
    /// Words or tags between two ends.
    Texts(bool, Option<&'static str>, Option<&'static str>, bool, bool),
    Prefix(&'static str),
    Fuzzy(&'static str),
    Phrase(Vec<&'static str>),
    /// Different words, in this order or any, with so many others between them.
    Near(Vec<&'static str>, bool, usize),
    Boost(Box<Ask>, u8),
    Clauses(Vec<(char, Ask)>),
    AtLeast(usize, Vec<Ask>),
}

impl Plain {
    fn document(&self) -> Document {
        let mut fields = vec![text("text", "t", &self.words.join(" "))];
        fields.extend(self.tags.iter().map(|tag| text("string", "s", tag)));
        fields.extend(self.n.map(|n| number("n", n)));
        document(self.number, &self.id, fields)
    }
}

fn between<T: PartialOrd>(value: &T, ends: (Option<T>, Option<T>), has_low: bool, has_high: bool) -> bool {
    let is_above = ends.0.is_none_or(|low| *value > low || (has_low && *value == low));
    is_above && ends.1.is_none_or(|high| *value < high || (has_high && *value == high))
}

fn range(field: &str, low: Option<String>, high: Option<String>, has_low: bool, has_high: bool) -> String {
    let (open, close) = (if has_low { '[' } else { '{' }, if has_high { ']' } else { '}' });
    let end = |end: Option<String>| end.unwrap_or_else(|| "*".to_owned());
    format!("{field}:{open}{} TO {}{close}", end(low), end(high))
}

impl Ask {
    fn text(&self) -> String {
        let several = |asks: &[Ask]| asks.iter().map(|ask| format!("({})", ask.text())).collect::<Vec<_>>().join(" ");
        match self {
            Ask::All => "*:*".into(),
            Ask::Word(word) => format!("t:{word}"),
            Ask::Tag(tag) => format!("s={tag}"),
            Ask::Number(n) => format!("n:{}", n.to_string().replace('-', "\\-")),
            Ask::Between(low, high, has_low, has_high) => {
                range("n", low.map(|n| n.to_string()), high.map(|n| n.to_string()), *has_low, *has_high)
            }
            Ask::Compared(sign, n) => format!("n{sign}{n}"),
            Ask::Texts(of_tags, low, high, has_low, has_high) => {
                let field = if *of_tags { "s" } else { "t" };
                range(field, low.map(str::to_owned), high.map(str::to_owned), *has_low, *has_high)
            }
            Ask::Prefix(word) => format!("t:{word}*"),
            Ask::Fuzzy(word) => format!("t:{word}~1"),
            Ask::Phrase(words) => format!("t:\"{}\"", words.join(" ")),
            Ask::Near(words, in_order, gaps) => {
                let name = if *in_order { "ordered" } else { "unordered" };
                format!("t:fn:maxgaps({gaps} fn:{name}({}))", words.join(" "))
            }
            Ask::Boost(ask, boost) => format!("({})^{boost}", ask.text()),
            Ask::Clauses(clauses) => {
                let clauses = clauses.iter().map(|(sign, ask)| format!("{sign}({})", ask.text()));
                clauses.collect::<Vec<String>>().join(" ").trim_start().to_owned()
            }
            Ask::AtLeast(least, asks) => format!("({})@{least}", several(asks)),
        }
    }

    fn is_match(&self, doc: &Plain) -> bool {
        let has = |f: &dyn Fn(&str) -> bool| doc.words.iter().any(|word| f(word));
        match self {
            Ask::All => true,
            Ask::Word(wanted) => has(&|word| word == *wanted),
            Ask::Tag(tag) => doc.tags.contains(tag),
            Ask::Number(n) => doc.n == Some(f64::from(*n)),
            Ask::Between(low, high, has_low, has_high) => {
                doc.n.is_some_and(|n| between(&n, (low.map(f64::from), high.map(f64::from)), *has_low, *has_high))
            }
            Ask::Compared(sign, wanted) => doc.n.is_some_and(|n| match (*sign, f64::from(*wanted)) {
                ("<", wanted) => n < wanted,
                ("<=", wanted) => n <= wanted,
                (">", wanted) => n > wanted,
                (_, wanted) => n >= wanted,
            }),
            Ask::Texts(of_tags, low, high, has_low, has_high) => {
                let values = if *of_tags { &doc.tags } else { &doc.words };
                values.iter().any(|value| between(value, (*low, *high), *has_low, *has_high))
            }
            Ask::Prefix(prefix) => has(&|word| word.starts_with(prefix)),
            Ask::Fuzzy(wanted) => has(&|word| is_near(wanted, word)),
            Ask::Phrase(words) => occurrences(words, doc) > 0,
            Ask::Near(words, in_order, gaps) => !intervals(words, *in_order, *gaps, doc).is_empty(),
            Ask::Boost(ask, _) => ask.is_match(doc),
            Ask::Clauses(clauses) => {
                let of = |sign: char| clauses.iter().filter(move |(own, _)| *own == sign).map(|(_, ask)| ask);
                let must = of('+').all(|ask| ask.is_match(doc));
                let should = of('+').next().is_some() || of(' ').any(|ask| ask.is_match(doc));
                must && should && !of('-').any(|ask| ask.is_match(doc))
            }
            Ask::AtLeast(least, asks) => asks.iter().filter(|ask| ask.is_match(doc)).count() >= *least,
        }
    }

    fn has_fuzzy(&self) -> bool {
        match self {
            Ask::Fuzzy(_) => true,
            Ask::Boost(ask, _) => ask.has_fuzzy(),
            Ask::Clauses(clauses) => clauses.iter().any(|(_, ask)| ask.has_fuzzy()),
            Ask::AtLeast(_, asks) => asks.iter().any(Ask::has_fuzzy),
            _ => false,
        }
    }
}

fn occurrences(words: &[&str], doc: &Plain) -> usize {
    doc.words.windows(words.len()).filter(|window| *window == words).count()
}

/// The lengths of the shortest stretches that have these words and no more others than `gaps`.
fn intervals(words: &[&str], in_order: bool, gaps: usize, doc: &Plain) -> Vec<usize> {
    let has = |stretch: &[&str]| match in_order {
        true => {
            let mut rest = stretch.iter();
            words.iter().all(|wanted| rest.any(|word| word == wanted))
        }
        false => words.iter().all(|wanted| stretch.contains(wanted)),
    };
    let stretches = (0..doc.words.len()).flat_map(|start| (start + 1..=doc.words.len()).map(move |end| (start, end)));
    let is_shortest = |(start, end): &(usize, usize)| {
        let stretch = &doc.words[*start..*end];
        has(stretch) && !has(&stretch[1..]) && !has(&stretch[..stretch.len() - 1])
    };
    let lengths = stretches.filter(is_shortest).map(|(start, end)| end - start);
    lengths.filter(|length| length - words.len() <= gaps).collect()
}

/// Whether one edit, or a transposition, makes one word of the other.
fn is_near(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let head = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    let (short, long) = (&short[head..], &long[head..]);
    match long.len() - short.len() {
        0 => {
            let swapped = short.len() >= 2 && short[0] == long[1] && short[1] == long[0] && short[2..] == long[2..];
            short.is_empty() || short[1..] == long[1..] || swapped
        }
        1 => *short == long[1..],
        _ => false,
    }
}

/// What scores depend on.
struct Naive {
    docs: Vec<Plain>,
    live: Vec<bool>,
    having: BTreeMap<&'static str, f64>,
    /// Documents with words, and how many they have on average; of tags the same.
    worded: f64,
    average: f64,
    tagged: (f64, f64),
    by_tag: Vec<usize>,
}

impl Naive {
    fn new(docs: Vec<Plain>, deleted: &Deleted) -> Naive {
        let count = |is_counted: &dyn Fn(&Plain) -> bool| docs.iter().filter(|doc| is_counted(doc)).count() as f64;
        let words = WORDS.into_iter().map(|word| (word, count(&|doc| doc.words.contains(&word))));
        let tags = TAGS.into_iter().map(|tag| (tag, count(&|doc| doc.tags.contains(&tag))));
        let worded = count(&|doc| !doc.words.is_empty());
        let tagged = count(&|doc| !doc.tags.is_empty());
        let key = |at: usize| (docs[at].tags.iter().min(), docs[at].n.unwrap_or(0.0), &docs[at].id);
        let mut by_tag: Vec<usize> = (0..docs.len()).collect();
        by_tag.sort_by(|a, b| {
            let (a, b) = (key(*a), key(*b));
            b.0.cmp(&a.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(b.2))
        });
        Naive {
            live: docs.iter().map(|doc| !deleted.contains(doc.number)).collect(),
            having: words.chain(tags).collect(),
            worded,
            average: docs.iter().map(|doc| doc.words.len() as f64).sum::<f64>() / worded,
            tagged: (tagged, docs.iter().map(|doc| doc.tags.len() as f64).sum::<f64>() / tagged),
            by_tag,
            docs,
        }
    }

    /// What a document that matches scores.
    fn score(&self, ask: &Ask, doc: &Plain) -> f64 {
        let sum = |asks: &mut dyn Iterator<Item = &Ask>| -> f64 {
            asks.filter(|ask| ask.is_match(doc)).map(|ask| self.score(ask, doc)).sum()
        };
        let of_words = |words: &[&str], times: f64| -> f64 {
            let one = |word: &&str| bm25(self.worded, self.having[word], times, doc.words.len() as f64, self.average);
            words.iter().map(one).sum()
        };
        match ask {
            Ask::Word(wanted) => of_words(&[wanted], doc.words.iter().filter(|word| *word == wanted).count() as f64),
            Ask::Phrase(words) => of_words(words, occurrences(words, doc) as f64),
            Ask::Near(words, in_order, gaps) => {
                let worth = |length: usize| 1.0 / (length - words.len() + 1) as f64;
                let sum: f64 = intervals(words, *in_order, *gaps, doc).into_iter().map(worth).sum();
                sum / (1.0 + sum)
            }
            Ask::Tag(tag) => bm25(self.tagged.0, self.having[tag], 1.0, 1.0, self.tagged.1),
            Ask::Boost(ask, boost) => self.score(ask, doc) * f64::from(*boost),
            Ask::Clauses(clauses) => sum(&mut clauses.iter().filter(|(sign, _)| *sign != '-').map(|(_, ask)| ask)),
            Ask::AtLeast(_, asks) => sum(&mut asks.iter()),
            _ => 1.0,
        }
    }
}

/// A shard, asked both ways.
struct Both {
    naive: Naive,
    parts: Vec<Part>,
    analyzer: Analyzer,
    schema: Schema,
}

impl Both {
    fn run(&self, request: &Request) -> Answer {
        let how = (&self.analyzer, &self.schema);
        search(&self.parts, how, request, &Limits::default(), &mut || true)
            .unwrap_or_else(|error| panic!("{}: {error}", request.query))
    }

    fn compare(&self, ask: &Ask) {
        let text = ask.text();
        let docs = self.naive.docs.iter().zip(&self.naive.live);
        let wanted: Vec<bool> = docs.map(|(doc, is_live)| *is_live && ask.is_match(doc)).collect();
        self.compare_scores(ask, &wanted);
        // Two pages by tag and number, and the counts of tags.
        let request = Request { counts: Some(vec!["s".to_owned()]), ..page(&text, &["-s", "n"]) };
        let first = self.run(&request);
        let after = first.rows.last().map(|row| row.order.clone());
        let second = match after {
            Some(_) => self.run(&Request { after, counts: None, ..request }).rows,
            None => Vec::new(),
        };
        let found: Vec<&str> = first.rows.iter().chain(&second).map(|row| row.id.as_str()).collect();
        let places = self.naive.by_tag.iter().filter(|doc| wanted[**doc]).take(2 * PAGE);
        assert_eq!(found, places.map(|doc| self.naive.docs[*doc].id.as_str()).collect::<Vec<_>>(), "{text}");
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (doc, _) in self.naive.docs.iter().zip(&wanted).filter(|(_, is_wanted)| **is_wanted) {
            doc.tags.iter().for_each(|tag| *counts.entry((*tag).to_owned()).or_default() += 1);
        }
        assert_eq!(first.counts.expect("counts")["s"], counts, "{text}");
    }

    fn compare_scores(&self, ask: &Ask, wanted: &[bool]) {
        let text = ask.text();
        let answer = self.run(&page(&text, &[]));
        let count = wanted.iter().filter(|is_wanted| **is_wanted).count();
        assert_eq!((answer.total, answer.rows.len()), (count as u64, count.min(PAGE)), "{text}");
        let score = |order: &[SortValue]| match order[0] {
            SortValue::Number(score) => score,
            _ => panic!("{text}: no score"),
        };
        let rows = || answer.rows.iter().map(|row| (score(&row.order), row.id.as_str()));
        assert!(rows().is_sorted_by(|a, b| a.0 > b.0 || a.0 == b.0 && a.1 < b.1), "{text}: best first, then by id");
        if ask.has_fuzzy() {
            return;
        }
        let matches = self.naive.docs.iter().zip(wanted).filter(|(_, is_wanted)| **is_wanted);
        let mut best: Vec<f64> = matches.map(|(doc, _)| self.naive.score(ask, doc)).collect();
        best.sort_by(|a, b| b.total_cmp(a));
        for ((found, id), best) in rows().zip(best) {
            assert!((best - found).abs() <= NEAR * best.max(1.0), "{text}: {id} scores {found} in the place of {best}");
        }
    }
}

fn page(query: &str, sort: &[&str]) -> Request {
    Request { limit: PAGE, ..request(query, sort) }
}

fn ask() -> impl Strategy<Value = Ask> {
    use proptest::collection::vec;
    use proptest::option::of;
    let flags = || (any::<bool>(), any::<bool>());
    let leaf = prop_oneof![
        1 => Just(Ask::All),
        6 => select(&WORDS[..]).prop_map(Ask::Word),
        2 => select(&TAGS[..]).prop_map(Ask::Tag),
        1 => (-3..4i32).prop_map(Ask::Number),
        3 => (of(-4..4i32), of(-4..4i32), flags()).prop_map(|(low, high, has)| Ask::Between(low, high, has.0, has.1)),
        1 => (select(&["<", "<=", ">", ">="][..]), 0..4u8).prop_map(|(sign, n)| Ask::Compared(sign, n)),
        1 => (of(select(&WORDS[..])), of(select(&WORDS[..])), flags())
            .prop_map(|(low, high, has)| Ask::Texts(false, low, high, has.0, has.1)),
        1 => (of(select(&TAGS[..])), of(select(&TAGS[..])), flags())
            .prop_map(|(low, high, has)| Ask::Texts(true, low, high, has.0, has.1)),
        1 => select(&["a", "ab", "c", "zz"][..]).prop_map(Ask::Prefix),
        1 => select(&WORDS[..]).prop_map(Ask::Fuzzy),
        2 => vec(select(&WORDS[..]), 2..4).prop_map(Ask::Phrase),
        2 => (subsequence(WORDS.to_vec(), 2..4).prop_shuffle(), any::<bool>(), 0..4usize)
            .prop_map(|(words, in_order, gaps)| Ask::Near(words, in_order, gaps)),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            4 => vec((select(&['+', '-', ' ', ' '][..]), inner.clone()), 1..5).prop_map(Ask::Clauses),
            1 => (inner.clone(), 1..5u8).prop_map(|(ask, boost)| Ask::Boost(Box::new(ask), boost)),
            1 => (1..4usize, vec(inner, 2..5)).prop_map(|(least, asks)| Ask::AtLeast(least.min(asks.len()), asks)),
        ]
    })
}

fn plain(runner: &mut TestRunner) -> Vec<Plain> {
    use proptest::collection::{btree_set, vec};
    let n = proptest::option::of((-3..4i32).prop_map(f64::from));
    let one = (1..5u64, vec(select(&WORDS[..]), 0..12), btree_set(select(&TAGS[..]), 0..3), n);
    let all = vec(one, DOCUMENTS).new_tree(runner).expect("documents").current();
    let mut number = 0;
    let plain = |(gap, words, tags, n): (u64, _, std::collections::BTreeSet<&'static str>, _)| {
        number += gap;
        // Ids stand in another order than numbers.
        Plain { number, id: format!("d{:05}", number * 7_919 % 99_991), words, tags: tags.into_iter().collect(), n }
    };
    all.into_iter().map(plain).collect()
}

#[test]
fn many_queries_over_many_documents() {
    let mut runner = TestRunner::deterministic();
    let docs = plain(&mut runner);
    let mut deleted = Deleted::default();
    docs.iter().enumerate().filter(|(at, _)| at % 9 == 4 || (700..760).contains(at)).for_each(|(_, doc)| {
        deleted.insert(doc.number);
    });
    let documents: Vec<Document> = docs.iter().map(Plain::document).collect();
    let mut schema = Schema::default();
    documents.iter().for_each(|document| schema.note(&document.fields).unwrap());
    let ends = [0, 2_000, 3_100, 4_000, 4_600, 4_900, 4_999, DOCUMENTS];
    let segment = |pair: &[usize]| Part {
        deleted: Arc::new(deleted.clone()),
        ..part(build(&documents[pair[0]..pair[1]], &analyzer()))
    };
    let parts: Vec<Part> = ends.windows(2).map(segment).collect();
    let both = Both { naive: Naive::new(docs, &deleted), parts, analyzer: analyzer(), schema };
    let asks = ask();
    for _ in 0..QUERIES {
        both.compare(&asks.new_tree(&mut runner).expect("a query").current());
    }
}
