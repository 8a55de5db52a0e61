//! Ten thousand random queries over five thousand documents in several segments, a part of them deleted.

use std::collections::HashMap;
use std::rc::Rc;

use proptest::test_runner::TestRunner;

use super::*;

const DOCUMENTS: usize = 5_000;
/// Far fewer where nothing is optimised.
const QUERIES: usize = if cfg!(debug_assertions) { 500 } else { 10_000 };
const PAGE: usize = 20;
const MORE_WORDS: [&str; 24] = [
    "ab", "abc", "abcd", "abd", "bcd", "bd", "bde", "cd", "cde", "cdef", "ced", "dec", "def", "deg", "efg", "egf", "x",
    "xy", "xya", "xyz", "yxz", "yz", "zed", "zeds",
];
/// Matches of a part of a query below which they are listed.
const FEW: usize = 200;

/// A set of documents by their places.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn of(is_in: impl Fn(usize) -> bool) -> Set {
        let word = |at: usize| (0..64).filter(|bit| is_in(at * 64 + bit)).fold(0, |word, bit| word | (1 << bit));
        Set((0..DOCUMENTS.div_ceil(64)).map(word).collect())
    }

    fn has(&self, doc: usize) -> bool {
        (self.0[doc / 64] >> (doc % 64)) & 1 == 1
    }

    fn with(mut self, other: &Set, join: fn(u64, u64) -> u64) -> Set {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own = join(*own, *other));
        self
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// A part of a query without parts: its matches, its weight, and what each match scores.
struct Leaf {
    matches: Set,
    weight: f64,
    few: Vec<(usize, f64)>,
    scores: Vec<f64>,
}

impl Leaf {
    fn new(ask: &Ask, docs: &[Plain], idf: &HashMap<&'static str, f64>) -> Leaf {
        let matches = Set::of(|at| docs.get(at).is_some_and(|doc| ask.is_match(doc)));
        let count = matches.count();
        let weight = match ask {
            Ask::Word(_) | Ask::Tag(_) | Ask::Number(_) => Some(idf_of(docs.len(), count)),
            Ask::Phrase(words) => Some(words.iter().map(|word| idf[word]).sum()),
            _ => None,
        };
        let score = |doc: &Plain| match (ask, weight) {
            (_, None) => 1.0,
            (Ask::Word(wanted), Some(weight)) => {
                (doc.words.iter().filter(|word| *word == wanted).count() as f64).sqrt() * weight * weight
            }
            (Ask::Phrase(words), Some(weight)) => (occurrences(words, doc) as f64).sqrt() * weight * weight,
            (_, Some(weight)) => weight * weight,
        };
        let all = docs.iter().enumerate();
        let (few, scores) = match count < FEW {
            true => (all.filter(|(at, _)| matches.has(*at)).map(|(at, doc)| (at, score(doc))).collect(), Vec::new()),
            false => (Vec::new(), all.map(|(at, doc)| if matches.has(at) { score(doc) } else { 0.0 }).collect()),
        };
        Leaf { matches, weight: weight.unwrap_or(1.0), few, scores }
    }

    fn score(&self, doc: usize) -> f64 {
        match self.scores.get(doc) {
            Some(score) => *score,
            None => self.few.binary_search_by_key(&doc, |(at, _)| *at).map_or(0.0, |at| self.few[at].1),
        }
    }
}

fn idf_of(documents: usize, count: usize) -> f64 {
    1.0 + (documents as f64 / (count + 1) as f64).ln()
}

/// A part of a query with its matches.
struct Evaluated {
    matches: Set,
    kind: Kind,
}

enum Kind {
    Leaf(Rc<Leaf>),
    Boost(Box<Evaluated>, f64),
    Clauses(Vec<(char, Evaluated)>),
}

impl Evaluated {
    fn squares(&self) -> f64 {
        match &self.kind {
            Kind::Leaf(leaf) => leaf.weight.powi(2),
            Kind::Boost(part, boost) => part.squares() * boost.powi(2),
            Kind::Clauses(clauses) => {
                clauses.iter().filter(|(sign, _)| *sign != '-').map(|(_, part)| part.squares()).sum()
            }
        }
    }

    fn score(&self, doc: usize, norm: f64) -> f64 {
        match &self.kind {
            Kind::Leaf(leaf) => leaf.score(doc) * norm,
            Kind::Boost(part, boost) => part.score(doc, norm * boost),
            Kind::Clauses(clauses) => {
                let scoring = || clauses.iter().filter(|(sign, _)| *sign != '-').map(|(_, part)| part);
                let matching = || scoring().filter(|part| part.matches.has(doc));
                let sum: f64 = matching().map(|part| part.score(doc, norm)).sum();
                let all = scoring().count();
                if all > 1 { sum * matching().count() as f64 / all as f64 } else { sum }
            }
        }
    }
}

/// The documents, and what was found out about parts of queries.
struct Naive {
    docs: Vec<Plain>,
    live: Set,
    idf: HashMap<&'static str, f64>,
    leaves: HashMap<String, Rc<Leaf>>,
    /// Places of the documents in the order by tag and number.
    by_tag: Vec<usize>,
    tags: Vec<(&'static str, Set)>,
}

impl Naive {
    fn new(docs: Vec<Plain>, deleted: &Deleted) -> Naive {
        let idf = |word: &'static str| {
            let count = docs.iter().filter(|doc| doc.words.contains(&word)).count();
            (word, idf_of(docs.len(), count))
        };
        let n = |at: usize| docs[at].n.unwrap_or(0.0);
        let mut by_tag: Vec<usize> = (0..docs.len()).collect();
        by_tag.sort_by(|a, b| docs[*b].tag.cmp(&docs[*a].tag).then(n(*a).total_cmp(&n(*b))).then(a.cmp(b)));
        let of_tag = |tag: &'static str| (tag, Set::of(|at| docs.get(at).is_some_and(|doc| doc.tag == Some(tag))));
        Naive {
            live: Set::of(|at| docs.get(at).is_some_and(|doc| !deleted.contains(doc.number))),
            idf: MORE_WORDS.into_iter().map(idf).collect(),
            leaves: HashMap::new(),
            by_tag,
            tags: TAGS.into_iter().map(of_tag).collect(),
            docs,
        }
    }

    fn part(&mut self, ask: &Ask) -> Evaluated {
        match ask {
            Ask::Boost(ask, boost) => {
                let part = self.part(ask);
                Evaluated { matches: part.matches.clone(), kind: Kind::Boost(Box::new(part), f64::from(*boost)) }
            }
            Ask::Clauses(clauses) => {
                let clauses: Vec<(char, Evaluated)> =
                    clauses.iter().map(|(sign, ask)| (*sign, self.part(ask))).collect();
                let of = |sign: char| clauses.iter().filter(move |(own, _)| *own == sign).map(|(_, part)| part);
                let none = || Set::of(|_| false);
                let any = |sign: char| of(sign).fold(none(), |sum, part| sum.with(&part.matches, |a, b| a | b));
                let matches = match of('+').next() {
                    Some(first) => {
                        of('+').fold(first.matches.clone(), |all, part| all.with(&part.matches, |a, b| a & b))
                    }
                    None => any(' '),
                };
                Evaluated { matches: matches.with(&any('-'), |a, b| a & !b), kind: Kind::Clauses(clauses) }
            }
            leaf => {
                let (docs, idf) = (&self.docs, &self.idf);
                let leaf = self.leaves.entry(leaf.text()).or_insert_with(|| Rc::new(Leaf::new(leaf, docs, idf)));
                Evaluated { matches: leaf.matches.clone(), kind: Kind::Leaf(Rc::clone(leaf)) }
            }
        }
    }
}

/// A shard, asked both ways.
struct Both {
    naive: Naive,
    parts: Vec<Part>,
    analyzer: Analyzer,
}

impl Both {
    fn run(&self, request: &Request) -> Answer {
        search(&self.parts, &self.analyzer, request, &Limits::default(), &mut || true)
            .unwrap_or_else(|error| panic!("{}: {error}", request.query))
    }

    fn compare(&mut self, ask: &Ask) {
        let part = self.naive.part(ask);
        let wanted = part.matches.clone().with(&self.naive.live, |a, b| a & b);
        self.compare_scores(ask, &part, &wanted);
        self.compare_pages(ask, &wanted);
    }

    fn compare_scores(&self, ask: &Ask, part: &Evaluated, wanted: &Set) {
        let text = ask.text();
        let request = Request { query: text.clone(), limit: PAGE, ..Request::default() };
        let answer = self.run(&request);
        assert_eq!(answer.total, wanted.count() as u64, "{text}");
        assert_eq!(answer.rows.len(), wanted.count().min(PAGE), "{text}");
        let norm = Some(1.0 / part.squares().sqrt()).filter(|norm| norm.is_finite()).unwrap_or(1.0);
        let docs = &self.naive.docs;
        let of = |row: &Row| match row.order[1] {
            SortValue::Document(number) => docs.binary_search_by_key(&number, |doc| doc.number).expect("a document"),
            _ => panic!("{text}: no number in {row:?}"),
        };
        assert!(answer.rows.iter().all(|row| wanted.has(of(row))), "{text}");
        assert!(answer.rows.is_sorted_by(|a, b| score(a) >= score(b)), "{text}");
        if ask.has_fuzzy() {
            return;
        }
        let matches = (0..DOCUMENTS).filter(|doc| wanted.has(*doc));
        let mut best: Vec<f64> = matches.map(|doc| part.score(doc, norm)).collect();
        best.sort_by(|a, b| b.total_cmp(a));
        for (row, best) in answer.rows.iter().zip(best) {
            let (found, own) = (score(row), part.score(of(row), norm));
            let is_near = |wanted: f64| (wanted - found).abs() <= NEAR * wanted.abs().max(1.0);
            assert!(is_near(own), "{text}: {} scores {found}, not {own}", row.id);
            assert!(is_near(best), "{text}: {} scores {found} in the place of {best}", row.id);
        }
    }

    /// Two pages by tag and number, and the counts of tags.
    fn compare_pages(&self, ask: &Ask, wanted: &Set) {
        let text = ask.text();
        let by = |name: &str, is_text, reverse| Sort::Field { name: name.into(), is_text, reverse };
        let sort = vec![by("tag", true, true), by("n", false, false)];
        let counts = Some(vec!["tag".to_owned()]);
        let request = Request { query: text.clone(), limit: PAGE, sort, counts, ..Request::default() };
        let first = self.run(&request);
        let after = first.rows.last().map(|row| row.order.clone());
        let second = match after {
            Some(_) => self.run(&Request { after, counts: None, ..request }).rows,
            None => Vec::new(),
        };
        let found: Vec<SortValue> = first.rows.iter().chain(&second).map(|row| row.order[2].clone()).collect();
        let places = self.naive.by_tag.iter().filter(|doc| wanted.has(**doc)).take(2 * PAGE);
        let expected: Vec<SortValue> = places.map(|doc| SortValue::Document(self.naive.docs[*doc].number)).collect();
        assert_eq!(found, expected, "{text}");
        let of_tag = |(tag, set): &(&str, Set)| {
            let count = set.clone().with(wanted, |a, b| a & b).count() as u64;
            (count > 0).then(|| ((*tag).to_owned(), count))
        };
        let expected: BTreeMap<String, u64> = self.naive.tags.iter().filter_map(of_tag).collect();
        assert_eq!(first.counts.expect("facets")["tag"], expected, "{text}");
    }
}

fn documents(runner: &mut TestRunner) -> Vec<Plain> {
    use proptest::collection::vec;
    use proptest::sample::select;
    use proptest::strategy::ValueTree;
    let tag = proptest::option::of(select(&TAGS[..]));
    let n = proptest::option::of((-3..4i32).prop_map(f64::from));
    let one = (1..5u64, vec(select(&MORE_WORDS[..]), 0..12), tag, n);
    let all = vec(one, DOCUMENTS).new_tree(runner).expect("documents").current();
    let mut number = 0;
    let plain = |(gap, words, tag, n)| {
        number += gap;
        Plain { number, words, tag, n }
    };
    all.into_iter().map(plain).collect()
}

#[test]
fn many_queries_over_many_documents() {
    use proptest::strategy::ValueTree;
    let mut runner = TestRunner::deterministic();
    let docs = documents(&mut runner);
    let mut deleted = Deleted::default();
    docs.iter().enumerate().filter(|(at, _)| at % 9 == 4 || (700..760).contains(at)).for_each(|(_, doc)| {
        deleted.insert(doc.number);
    });
    let documents: Vec<Document> = docs.iter().map(Plain::document).collect();
    let ends = [0, 2_000, 3_100, 4_000, 4_600, 4_900, 4_999, DOCUMENTS];
    let segment = |pair: &[usize]| part(build(&documents[pair[0]..pair[1]], &analyzer()), &deleted);
    let parts: Vec<Part> = ends.windows(2).map(segment).collect();
    let mut both = Both { naive: Naive::new(docs, &deleted), parts, analyzer: analyzer() };
    let asks = ask_of(&MORE_WORDS);
    for _ in 0..QUERIES {
        both.compare(&asks.new_tree(&mut runner).expect("a query").current());
    }
}
