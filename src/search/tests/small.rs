//! Small indexes whose answers were recorded from Lucene 4.10.

use std::sync::Arc;

use settee_search::analysis::{Analyzer, Spec};
use settee_search::document::{Document, Field, Indexed, Options, Value};
use settee_search::search::{Answer, Limits, Request, Row, SearchError, Sort, SortValue, Stored, search};
use settee_search::segment::{Deleted, Part, Segment, build};

fn analyzer(name: &str) -> Analyzer {
    Analyzer::new(Spec::Named { name: name.into(), stopwords: None }).expect("a known analyzer")
}

fn text(name: &str, value: &str, options: Options) -> Field {
    Field { name: name.into(), value: Value::Text(value.into()), options }
}

fn number(name: &str, value: f64) -> Field {
    Field { name: name.into(), value: Value::Number(value), options: Options { store: true, ..Options::default() } }
}

fn index(analyzer: &Analyzer, documents: Vec<(&str, Vec<Field>)>) -> Vec<Part> {
    let documents: Vec<Document> = documents
        .into_iter()
        .zip(0..)
        .map(|((id, fields), number)| Document { number, id: id.into(), fields })
        .collect();
    let segment = Segment::open(Arc::new(build(&documents, analyzer))).expect("a segment");
    vec![Part { segment, deleted: Arc::new(Deleted::default()) }]
}

fn ask(parts: &[Part], analyzer: &Analyzer, request: &Request) -> Result<Answer, SearchError> {
    search(parts, analyzer, request, &Limits::default(), &mut || true)
}

/// The rows of a query as ids and first values of their orders.
fn rows(parts: &[Part], analyzer: &Analyzer, query: &str, sort: Vec<Sort>) -> Vec<(String, f64)> {
    let request = Request { query: query.into(), limit: 25, sort, ..Request::default() };
    let answer = ask(parts, analyzer, &request).expect("an answer");
    let value = |row: Row| match row.order[0] {
        SortValue::Number(value) => (row.id, value),
        _ => (row.id, f64::NAN),
    };
    answer.rows.into_iter().map(value).collect()
}

fn assert_rows(found: &[(String, f64)], wanted: &[(&str, f64)]) {
    let is_same = found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() <= 1e-5 * b.1.abs().max(1.0));
    assert!(is_same, "{found:?}, not {wanted:?}");
}

#[test]
fn values_of_a_repeated_field_stand_one_behind_the_other() {
    let analyzer = analyzer("standard");
    let list = |values: &[&str]| values.iter().map(|value| text("l", value, Options::default())).collect();
    let parts = index(
        &analyzer,
        vec![("a", list(&["red green", "blue"])), ("b", list(&["green", "red blue"])), ("c", list(&["the", "red"]))],
    );
    let cases: [(&str, &[(&str, f64)]); 6] = [
        ("l:\"green blue\"", &[("a", 1.0)]),
        ("l:\"red green blue\"", &[("a", 1.356159)]),
        ("l:\"green red\"", &[("b", 0.856159)]),
        ("l:\"blue red\"", &[]),
        ("l:(red AND blue)", &[("a", 0.6138804), ("b", 0.6138804)]),
        ("l:\"red blue\"~1", &[("b", 0.856159), ("a", 0.6053958)]),
    ];
    for (query, wanted) in cases {
        assert_rows(&rows(&parts, &analyzer, query, Vec::new()), wanted);
    }
}

#[test]
fn words_left_out_at_the_end_of_a_value_leave_a_hole_before_the_next() {
    let analyzer = analyzer("standard");
    let list = |values: &[&str]| values.iter().map(|value| text("l", value, Options::default())).collect();
    let parts = index(&analyzer, vec![("a", list(&["red the", "blue"])), ("b", list(&["red", "the", "blue"]))]);
    assert!(rows(&parts, &analyzer, "l:\"red blue\"", Vec::new()).is_empty());
    assert_eq!(rows(&parts, &analyzer, "l:\"red the blue\"", Vec::new()).len(), 2);
}

#[test]
fn boosts_of_fields_count() {
    let analyzer = analyzer("standard");
    let boosted = |value: &str, boost| {
        vec![
            text("on", value, Options::default()),
            text("boosted", value, Options { boost, ..Options::default() }),
            text("raw", value, Options { index: Indexed::NotAnalyzed, ..Options::default() }),
        ]
    };
    let documents = vec![("a", boosted("Red Apple", 1.0)), ("b", boosted("red", 5.0)), ("c", boosted("Red", 2.0))];
    let parts = index(&analyzer, documents);
    let ask = |query| rows(&parts, &analyzer, query, Vec::new());
    assert_rows(&ask("on:red"), &[("b", 0.7123179), ("c", 0.7123179), ("a", 0.4451987)]);
    assert_rows(&ask("boosted:red"), &[("b", 3.5615897), ("c", 1.4246359), ("a", 0.4451987)]);
    assert_rows(&ask("raw:Red"), &[("b", 1.4054651)]);
}

#[test]
fn words_and_numbers_of_one_field_are_kept_apart() {
    let analyzer = analyzer("standard");
    let documents = vec![
        ("a", vec![number("v", 10.0), text("t", "room 10", Options::default())]),
        ("b", vec![number("v", 9.5), text("t", "room 9.5", Options::default())]),
        ("c", vec![text("v", "10", Options::default()), text("t", "10", Options::default())]),
        ("d", vec![number("v", -3.0), text("t", "minus -3", Options::default())]),
        ("e", vec![Field { name: "v".into(), value: Value::Bool(true), options: Options::default() }]),
        ("f", vec![number("v", 1000.0), text("t", "1000 1e3", Options::default())]),
    ];
    let parts = index(&analyzer, documents);
    let ask = |query| rows(&parts, &analyzer, query, Vec::new());
    for (query, id) in [("v:10", "a"), ("v:\"10\"", "c"), ("v:\\-3", "d"), ("v:true", "e"), ("v:1e3", "f")] {
        assert_rows(&ask(query), &[(id, 2.098612)]);
    }
    assert_rows(&ask("t:10"), &[]);
    assert_rows(&ask("t:\"10\""), &[("c", 1.693147), ("a", 1.058217)]);
    assert_rows(&ask("v:[* TO *]"), &[("a", 1.0), ("b", 1.0), ("d", 1.0), ("f", 1.0)]);
    assert_rows(&ask("v:10*"), &[("c", 1.0)]);
    assert_rows(&ask("t:10*"), &[("a", 1.0), ("c", 1.0), ("f", 1.0)]);
}

#[test]
fn documents_are_ordered_by_distance() {
    let analyzer = analyzer("standard");
    let place = |latitude, longitude| vec![number("la", latitude), number("lo", longitude)];
    let parts = index(
        &analyzer,
        vec![
            ("here", place(50.0, 0.0)),
            ("london", place(51.5, -0.12)),
            ("oslo", place(59.91, 10.75)),
            ("paris", place(48.86, 2.35)),
            ("nowhere", vec![number("la", 1.0)]),
        ],
    );
    let by = |is_miles, reverse| {
        let (longitude, latitude) = ("lo".into(), "la".into());
        vec![Sort::Distance { longitude, latitude, from: (0.0, 50.0), is_miles, reverse }]
    };
    let half = std::f64::consts::PI * 6378.137;
    let kilometres = [
        ("here", 0.0),
        ("london", 167.1929345622451),
        ("paris", 212.2375255772062),
        ("oslo", 1296.106570579199),
        ("nowhere", half),
    ];
    let found = rows(&parts, &analyzer, "*:*", by(false, false));
    assert_rows(&found, &kilometres);
    let mut farthest = kilometres;
    farthest.reverse();
    assert_rows(&rows(&parts, &analyzer, "*:*", by(false, true)), &farthest);
    assert_rows(&rows(&parts, &analyzer, "*:*", by(true, false))[1..2], &[("london", 103.88887308409359)]);
}

#[test]
fn stored_values_come_last_indexed_first() {
    let analyzer = analyzer("standard");
    let store = Options { store: true, ..Options::default() };
    let fields =
        vec![text("l", "x", store), number("l", 2.0), text("l", "z", store), text("no", "x", Options::default())];
    let parts = index(&analyzer, vec![("a", fields)]);
    let request = Request { query: "*:*".into(), limit: 1, ..Request::default() };
    let row = ask(&parts, &analyzer, &request).expect("an answer").rows.remove(0);
    let wanted = [Stored::Text("z".into()), Stored::Number(2.0), Stored::Text("x".into())];
    assert_eq!(row.fields.into_iter().collect::<Vec<_>>(), [("l".to_owned(), wanted.to_vec())]);
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let analyzer = analyzer("standard");
    let facet = Options { facet: true, ..Options::default() };
    let parts = index(&analyzer, vec![("a", vec![text("colour", "red", facet), number("price", 5.0)])]);
    let plain = Request { query: "*:*".into(), limit: 5, ..Request::default() };
    let sort = Sort::Field { name: "colour".into(), is_text: false, reverse: false };
    let ranges = |text: &str| {
        let labels = [("x".to_owned(), text.to_owned())].into_iter().collect();
        Some([("price".to_owned(), labels)].into_iter().collect())
    };
    let drilldown = vec![vec!["colour".to_owned(), "red".into()], vec!["colour".into(), "blue".into()]];
    let cases = [
        (Request { counts: Some(vec!["price".into()]), ..plain.clone() }, "dim \"price\" does not exist"),
        (Request { sort: vec![sort], ..plain.clone() }, "cannot sort string field as numeric field"),
        (Request { ranges: ranges("7 TO 12"), ..plain.clone() }, "7 TO 12 was not a well-formed range specification"),
        (Request { ranges: ranges("[a TO b]"), ..plain.clone() }, "[a TO b] was not a well-formed range specification"),
        (Request { drilldown, ..plain.clone() }, "dimension 'colour' was already added"),
        (
            Request { after: Some(vec![SortValue::Document(1)]), ..plain.clone() },
            "sort order not compatible with given bookmark",
        ),
    ];
    for (request, reason) in cases {
        assert_eq!(ask(&parts, &analyzer, &request), Err(SearchError::Refused(reason.into())));
    }
    let broken = ask(&parts, &analyzer, &Request { ranges: ranges("[7 TO"), ..plain });
    assert!(matches!(broken, Err(SearchError::Query(_))), "{broken:?}");
}
