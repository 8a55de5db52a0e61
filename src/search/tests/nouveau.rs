//! Indexes with types: scores by BM25, orders, ties, pages, facets, refusals, and merges of their segments.

#[path = "nouveau/naive.rs"]
mod naive;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use settee_search::analysis::Analyzer;
use settee_search::document::{Document, Field, Indexed, Options, Value};
use settee_search::schema::Schema;
use settee_search::search::nouveau::{Range, Request, search, unite};
use settee_search::search::{Answer, Limits, SearchError, SortValue, Stored};
use settee_search::segment::{Deleted, Part, Segment, build, merge};

fn field(kind: &str, name: &str, value: Value) -> Field {
    let index = match kind {
        "string" => Indexed::NotAnalyzedNoNorms,
        "stored" => Indexed::Stored,
        _ => Indexed::Analyzed,
    };
    Field { name: name.to_owned(), value, options: Options { store: kind == "stored", index, ..Options::default() } }
}

fn text(kind: &str, name: &str, text: &str) -> Field {
    field(kind, name, Value::Text(text.to_owned()))
}

fn number(name: &str, number: f64) -> Field {
    field("double", name, Value::Number(number))
}

fn document(number: u64, id: &str, fields: Vec<Field>) -> Document {
    Document { number, id: id.to_owned(), fields }
}

fn documents() -> Vec<Document> {
    let long = format!("fox {}", "dog ".repeat(60));
    vec![
        document(1, "d", vec![text("text", "t", "the quick fox"), text("string", "s", "b"), number("n", 3.0)]),
        document(2, "c", vec![text("text", "t", "fox fox"), text("string", "s", "a"), number("n", 1.0)]),
        document(5, "b", vec![text("text", "t", &long), text("string", "s", "b"), number("n", 2.0)]),
        document(
            6,
            "a",
            vec![
                text("text", "t", "a cat"),
                text("string", "s", "c"),
                text("string", "s", "B"),
                text("string", "s", "c"),
                number("n", 9.0),
                number("n", -4.0),
                text("stored", "x", "shown"),
                field("stored", "x", Value::Number(7.0)),
            ],
        ),
        document(9, "e", vec![text("text", "t", "fox")]),
    ]
}

fn analyzer() -> Analyzer {
    Analyzer::lucene9("standard", &BTreeMap::new()).unwrap()
}

fn part(bytes: Bytes) -> Part {
    Part { segment: Segment::open(Arc::new(bytes)).unwrap(), deleted: Arc::default() }
}

fn whole() -> Vec<Part> {
    vec![part(build(&documents(), &analyzer()))]
}

fn ask(parts: &[Part], request: &Request) -> Result<Answer, SearchError> {
    let mut schema = Schema::default();
    documents().iter().for_each(|document| schema.note(&document.fields).unwrap());
    search(parts, (&analyzer(), &schema), request, &Limits::default(), &mut || true)
}

fn request(query: &str, sort: &[&str]) -> Request {
    let sort = sort.iter().map(|part| (*part).to_owned()).collect();
    Request { query: query.to_owned(), sort, limit: 10, top: 10, ..Request::default() }
}

fn ids(answer: &Answer) -> Vec<&str> {
    answer.rows.iter().map(|row| row.id.as_str()).collect()
}

fn found(query: &str, sort: &[&str]) -> String {
    match ask(&whole(), &request(query, sort)) {
        Ok(answer) => ids(&answer).concat(),
        Err(error) => error.to_string(),
    }
}

fn scores(parts: &[Part], query: &str) -> Vec<(String, f32)> {
    let answer = ask(parts, &request(query, &[])).unwrap();
    let score = |order: &[SortValue]| match order[0] {
        SortValue::Number(score) => score as f32,
        _ => panic!("a score"),
    };
    answer.rows.into_iter().map(|row| (row.id, score(&row.order))).collect()
}

/// The formula in double precision: `idf * f / (f + 1.2 * (0.25 + 0.75 * length / average))`.
fn bm25(all: f64, having: f64, frequency: f64, length: f64, average: f64) -> f64 {
    let idf = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
    idf * frequency / (frequency + 1.2 * (0.25 + 0.75 * length / average))
}

#[test]
fn scores_are_those_of_bm25() {
    // Lengths 3, 2, 61, 2 and 1; the byte of a length of 61 stands for 60.
    let average = 69.0 / 5.0;
    let expected = [
        ("c", bm25(5.0, 4.0, 2.0, 2.0, average)),
        ("e", bm25(5.0, 4.0, 1.0, 1.0, average)),
        ("d", bm25(5.0, 4.0, 1.0, 3.0, average)),
        ("b", bm25(5.0, 4.0, 1.0, 60.0, average)),
    ];
    let found = scores(&whole(), "t:fox");
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((id, score), (expected_id, expected)) in found.iter().zip(expected) {
        assert_eq!(id, expected_id);
        assert!((f64::from(*score) - expected).abs() < 1e-6, "{id}: {score} {expected}");
    }
    // A text as it is has no length, and counts once however often it stands there.
    let strings = scores(&whole(), "s:c");
    let expected = bm25(4.0, 1.0, 1.0, 1.0, 5.0 / 4.0);
    assert!(strings.len() == 1 && (f64::from(strings[0].1) - expected).abs() < 1e-6, "{strings:?} {expected}");
    // Weights multiply, numbers and all that stands for many words score alike, clauses add up.
    assert!((scores(&whole(), "t:cat^3")[0].1 / scores(&whole(), "t:cat")[0].1 - 3.0).abs() < 1e-6);
    for query in ["n:3", "n:[3 TO 3]", "t:qu*", "*:* AND t:quick^0", "t:/qu.*k/"] {
        assert_eq!(scores(&whole(), query)[0], ("d".to_owned(), 1.0), "{query}");
    }
    let both = scores(&whole(), "t:quick t:fox")[0].1;
    assert!((both - scores(&whole(), "t:quick")[0].1 - scores(&whole(), "t:fox AND t:quick")[0].1).abs() < both);
}

#[test]
fn intervals_score_by_how_many_and_how_short_they_are() {
    let one = |query: &str| -> Vec<(String, f32)> { scores(&whole(), query) };
    assert_eq!(one("t:fn:ordered(quick fox)"), [("d".to_owned(), 0.5)]);
    assert_eq!(one("t:fn:unordered(fox the)"), [("d".to_owned(), 1.0 - 1.0 / 1.5)]);
    assert_eq!(one("(t:fn:ordered(quick fox))^3"), [("d".to_owned(), 1.5)]);
    for (query, expected) in [
        ("t:fn:ordered(fox the)", ""),
        ("t:fn:phrase(fox fox)", "c"),
        ("t:fn:unordered(fox fox)", "c"),
        ("t:fn:maxgaps(0 fn:unordered(the fox))", ""),
        ("t:fn:maxgaps(1 fn:unordered(the fox))", "d"),
        ("t:fn:or(cat \"quick fox\")", "ad"),
        ("t:fn:ordered(fn:wildcard(q*) fn:fuzzyTerm(foy 1))", "d"),
        ("t:fn:before(fox dog)", "b"),
        ("t:fn:atLeast(2 the fox dog)", "bd"),
        ("t:fox NOT t:fn:unordered(fox dog)", "cde"),
        // One word may be both.
        ("t:fox NOT t:fn:unordered(fox fn:or(dog fox))", ""),
        ("t:fn:ordered(none fox)", ""),
        ("none:fn:ordered(quick fox)", ""),
        ("n:fn:ordered(1 2)", ""),
        ("t:fn:ordered(fn:wildcard(* 2) fox)", "Automaton [t:*] expanded to too many terms (limit 2)"),
        ("s:fn:ordered(a b)", "Cannot create an IntervalIterator over field s because it has no indexed positions"),
    ] {
        let mut told = found(query, &[]);
        if told.len() < 5 {
            let mut ids: Vec<char> = told.chars().collect();
            ids.sort_unstable();
            told = ids.into_iter().collect();
        }
        assert_eq!(told, expected, "{query}");
    }
}

#[test]
fn words_of_a_fuzzy_word_are_as_rare_as_the_most_frequent_of_them() {
    let docs = vec![
        document(1, "a", vec![text("text", "t", "planet")]),
        document(2, "b", vec![text("text", "t", "planed")]),
        document(3, "c", vec![text("text", "t", "planed")]),
    ];
    let parts = [part(build(&docs, &analyzer()))];
    let found = scores(&parts, "t:planet~1");
    let same = bm25(3.0, 2.0, 1.0, 1.0, 1.0);
    assert!((f64::from(found[0].1) - same).abs() < 1e-6, "{found:?}");
    assert!((f64::from(found[1].1) - same * (1.0 - 1.0 / 6.0)).abs() < 1e-6, "{found:?}");
}

#[test]
fn rows_stand_in_the_order_asked_for_and_then_by_id() {
    for (query, sort, expected) in [
        ("*:*", &[][..], "abcde"),
        ("*:*", &["-_id"], "edcba"),
        ("*:*", &["n"], "aecbd"),
        ("*:*", &["-n"], "dbcea"),
        ("*:*", &["s"], "eacbd"),
        ("*:*", &["-s", "-n"], "dbcae"),
        ("*:*", &["unknown", "-_id"], "edcba"),
        ("t:fox", &["relevance"], "cedb"),
        ("*:*", &["n x"], "n x is not a valid sort parameter"),
        ("*:*", &["t"], "can't sort on field t"),
        ("(t:fox t:quick s:a)@2", &[], "dc"),
        ("s:B", &[], "bd"),
        ("n:[* TO 0]", &[], "a"),
        ("n>2", &[], "ad"),
        ("s:[b TO *]", &[], "abd"),
        ("x:shown", &[], ""),
        ("x:7", &[], ""),
        ("t:\"the quick\"", &[], "d"),
    ] {
        assert_eq!(found(query, sort), expected, "{query} {sort:?}");
    }
}

#[test]
fn pages_go_on_where_the_one_before_ended() {
    for sort in [&[][..], &["n"], &["-s"], &["-n", "-_id"], &["nobody"]] {
        let all = ask(&whole(), &request("*:*", sort)).unwrap();
        let (mut after, mut seen) = (None, Vec::new());
        while let Some(row) =
            ask(&whole(), &Request { after, limit: 1, ..request("*:*", sort) }).unwrap().rows.into_iter().next()
        {
            seen.push(row.id.clone());
            after = Some(row.order);
        }
        assert_eq!(seen, ids(&all), "{sort:?}");
    }
}

#[test]
fn facets_count_all_values_of_matches() {
    let range = |label: &str, min, has_min, max| Range { label: label.to_owned(), min, has_min, max, has_max: true };
    let ranges = vec![
        range("low", None, true, Some(1.0)),
        range("high", Some(1.0), false, None),
        range("none", Some(50.0), true, None),
    ];
    let asked = Request {
        counts: Some(vec!["s".to_owned(), "nobody".to_owned()]),
        ranges: Some([("n".to_owned(), ranges)].into()),
        ..request("*:*", &[])
    };
    let answer = ask(&whole(), &asked).unwrap();
    let of = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let counts = answer.counts.unwrap();
    assert_eq!(counts["s"], of(&[("B", 1), ("a", 1), ("b", 2), ("c", 1)]));
    assert!(counts["nobody"].is_empty());
    assert_eq!(answer.ranges.unwrap()["n"], of(&[("low", 2), ("high", 3)]));
    let first = ask(&whole(), &Request { top: 2, ..asked }).unwrap();
    assert_eq!(first.counts.unwrap()["s"], of(&[("B", 1), ("b", 2)]));
    let refused = ask(&whole(), &Request { counts: Some(vec!["n".to_owned()]), ..request("*:*", &[]) }).unwrap_err();
    assert!(refused.to_string().starts_with("unexpected docvalues type SORTED_NUMERIC for field 'n'"), "{refused}");
}

#[test]
fn stored_values_come_as_they_were_indexed() {
    let answer = ask(&whole(), &request("_id:a", &[])).unwrap();
    let expected = vec![Stored::Text("shown".to_owned()), Stored::Number(7.0)];
    assert_eq!(answer.rows[0].fields, [("x".to_owned(), expected)].into());
}

#[test]
fn merged_segments_answer_as_one_that_was_built_whole() {
    let (documents, analyzer) = (documents(), analyzer());
    let parts: Vec<Part> =
        [0..2, 2..3, 3..5].map(|range| part(build(&documents[range], &analyzer))).into_iter().collect();
    let merged = vec![part(merge(&parts).unwrap())];
    let asked = [("t:fox t:cat", &[][..]), ("*:*", &["-s"]), ("*:*", &["n"]), ("t:foz~", &[]), ("n>=1", &["-n"])];
    for (query, sort) in asked {
        let request = request(query, sort);
        let whole = ask(&whole(), &request).unwrap();
        assert_eq!(ask(&parts, &request).unwrap(), whole, "in parts: {query}");
        assert_eq!(ask(&merged, &request).unwrap(), whole, "merged: {query}");
    }
    // What is deleted is not found, and counts until a merge leaves it out.
    let mut deleted = Deleted::default();
    deleted.insert(6);
    let left = Part { deleted: Arc::new(deleted), ..parts[2].clone() };
    let parts = [parts[0].clone(), parts[1].clone(), left];
    assert_eq!(ids(&ask(&parts, &request("*:*", &["s"])).unwrap()).concat(), "ecbd");
    let merged = [part(merge(&parts).unwrap())];
    assert_eq!(ids(&ask(&merged, &request("*:*", &["-s"])).unwrap()).concat(), "bdce");
    assert!(scores(&parts, "t:quick")[0].1 > scores(&merged, "t:quick")[0].1);
}

#[test]
fn answers_of_shards_are_united_by_their_order() {
    let documents = documents();
    let analyzer = analyzer();
    let shards: Vec<[Part; 1]> =
        [0..2, 2..5].map(|range| [part(build(&documents[range], &analyzer))]).into_iter().collect();
    for sort in [&["n"][..], &["-n"], &["s", "-_id"], &["-_id"]] {
        let request = request("*:*", sort);
        let answers = shards.iter().map(|parts| ask(parts, &request).unwrap()).collect();
        let (united, from) = unite(&request, answers).unwrap();
        assert_eq!(ids(&united), ids(&ask(&whole(), &request).unwrap()), "{sort:?}");
        assert_eq!((united.total, from.len()), (5, 5));
    }
    let best = unite(&request("*:*", &[]), vec![]).unwrap().0;
    assert_eq!(best, Answer::default());
}
