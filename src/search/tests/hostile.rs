//! Texts that are no queries, and queries that cost much: each ends soon, none panics.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::{Strategy, any, prop_assert, proptest};
use settee_search::analysis::{Analyzer, Spec};
use settee_search::document::{Document, Field, Options, Value};
use settee_search::query::{QueryError, parse};
use settee_search::schema::Schema;
use settee_search::search::{Limits, Request, SearchError, nouveau, search};
use settee_search::segment::{Deleted, Part, Segment, build};

/// Questions whether to go on that a search of so few documents may ask.
const QUESTIONS: u32 = 20_000;

fn analyzer() -> Analyzer {
    Analyzer::new(Spec::Named { name: "standard".into(), stopwords: None }).expect("a known analyzer")
}

fn documents() -> Vec<Document> {
    let document = |number: u64| {
        let value = Value::Text(format!("a{number} b{} aaaaaaaaaaaaaaaaaaaaaaaaaa{number} a a a b b", number % 50));
        let field = Field { name: "default".into(), value, options: Options::default() };
        Document { number, id: format!("d{number}"), fields: vec![field] }
    };
    (0..2_000).map(document).collect()
}

fn part(analyzer: &Analyzer) -> Part {
    let segment = Segment::open(Arc::new(build(&documents(), analyzer))).expect("a segment");
    Part { segment, deleted: Arc::new(Deleted::default()) }
}

fn parts() -> Vec<Part> {
    vec![part(&analyzer())]
}

fn limits() -> Limits {
    Limits { terms: 20_000, clauses: 1_000, depth: 50, ..Limits::default() }
}

/// Says so often that a search may go on.
fn patience() -> impl FnMut() -> bool {
    let mut left = QUESTIONS;
    move || {
        left = left.saturating_sub(1);
        left > 0
    }
}

/// The same documents in an index with types.
struct Typed {
    parts: Vec<Part>,
    analyzer: Analyzer,
    schema: Schema,
}

fn parts_with_types() -> Typed {
    let analyzer = Analyzer::lucene9("standard", &BTreeMap::new()).expect("a known analyzer");
    let mut schema = Schema::default();
    documents().iter().for_each(|document| schema.note(&document.fields).expect("fields of one type"));
    Typed { parts: vec![part(&analyzer)], analyzer, schema }
}

fn ask_typed(index: &Typed, query: &str) -> Result<u64, SearchError> {
    let request = nouveau::Request { query: query.into(), limit: 10, ..nouveau::Request::default() };
    let with = (&index.analyzer, &index.schema);
    nouveau::search(&index.parts, with, &request, &limits(), &mut patience()).map(|answer| answer.total)
}

fn ask(parts: &[Part], query: &str) -> Result<u64, SearchError> {
    let request = Request { query: query.into(), limit: 10, ..Request::default() };
    search(parts, &analyzer(), &request, &limits(), &mut patience()).map(|answer| answer.total)
}

/// Texts of the characters that mean something.
fn text() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "b",
        " ",
        "\t",
        "AND",
        "OR",
        "NOT",
        "&&",
        "||",
        "!",
        "+",
        "-",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        " TO ",
        "*",
        "?",
        "~",
        "^",
        "\"",
        "/",
        "\\",
        ":",
        "1",
        "2.5",
        ".",
        "|",
        "&",
        "#",
        "@",
        "<1-9>",
        "é",
        "\u{10ffff}",
        "\\u00",
        "f:",
        "\n",
        "0x1p3",
        "the",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_a_query_or_a_syntax_error(text in any::<String>()) {
        if let Err(QueryError::Syntax(reason)) = parse(&text, &analyzer()) {
            let head = format!("Cannot parse '{text}': ");
            prop_assert!(reason.starts_with(&head));
        }
    }

    #[test]
    fn pieces_of_syntax_are_a_query_or_a_syntax_error(text in text()) {
        match parse(&text, &analyzer()) {
            Ok(query) => prop_assert!(query.to_string().len() < 2_000),
            Err(QueryError::Syntax(reason)) => {
                let head = format!("Cannot parse '{text}': ");
                prop_assert!(reason.starts_with(&head));
            }
            Err(QueryError::Invalid(reason)) => prop_assert!(!reason.is_empty()),
        }
    }
}

#[test]
fn queries_of_syntax_pieces_are_searched() {
    let parts = parts();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..300 {
        let text = proptest::strategy::ValueTree::current(&text().new_tree(&mut runner).expect("a text"));
        let answer = ask(&parts, &text);
        let is_known =
            matches!(&answer, Ok(_) | Err(SearchError::Query(_) | SearchError::TooCostly(_) | SearchError::TooLarge));
        assert!(is_known, "{text:?}: {answer:?}");
    }
}

/// Texts of the pieces of interval functions.
fn functions() -> impl Strategy<Value = String> {
    let names = [
        "or",
        "phrase",
        "ordered",
        "unordered",
        "unorderedNoOverlaps",
        "maxgaps",
        "maxwidth",
        "extend",
        "within",
        "notWithin",
        "atLeast",
        "wildcard",
        "fuzzyTerm",
        "containing",
        "containedBy",
        "notContaining",
        "before",
    ];
    let mut pieces: Vec<String> = names.iter().map(|name| format!("fn:{name}(")).collect();
    let others = ["a ", "b ", "b7 ", "\"a b\" ", "a* ", "1 ", "2 ", ") ", ") ", ") ", "fn:", "AND ", "( ", "default:"];
    pieces.extend(others.map(str::to_owned));
    let closed = |pieces: Vec<String>| {
        let text = pieces.concat();
        let open = text.matches('(').count().saturating_sub(text.matches(')').count());
        text + &")".repeat(open)
    };
    proptest::collection::vec(proptest::sample::select(pieces), 1..20).prop_map(closed)
}

fn is_known(answer: &Result<u64, SearchError>) -> bool {
    matches!(answer, Ok(_) | Err(SearchError::Query(_) | SearchError::TooCostly(_) | SearchError::TooLarge))
}

#[test]
fn interval_functions_end() {
    let index = parts_with_types();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..1_000 {
        let text = proptest::strategy::ValueTree::current(&functions().new_tree(&mut runner).expect("a text"));
        let answer = ask_typed(&index, &text);
        assert!(is_known(&answer), "{text:?}: {answer:?}");
    }
    let alternatives = "fn:or(a \"a a\" \"b a\" \"a b\") ";
    for text in [
        format!("fn:atLeast(2 {})", "a ".repeat(900)),
        format!("fn:ordered({})", "a b ".repeat(400)),
        format!("fn:phrase({})", alternatives.repeat(5)),
        format!("fn:maxgaps(3 fn:unordered({}))", alternatives.repeat(5)),
        format!("fn:unordered({}", "fn:wildcard(*a* 100000) ".repeat(40) + ")"),
        (0..30).fold("a".to_owned(), |inner, _| format!("fn:extend(fn:containedBy({inner} fn:or(a b)) 9 2000000000)")),
    ] {
        let answer = ask_typed(&index, &text);
        assert!(is_known(&answer), "{text:.80}: {answer:?}");
    }
}

/// Texts with more brackets or clauses than a query may have.
fn too_large() -> Vec<String> {
    let mut many = String::new();
    for number in 0..5_000 {
        write!(many, "a{number} ").expect("a text");
    }
    let nested = format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000));
    let signs = format!("{}a", "+(-(".repeat(100_000));
    vec![many, nested, signs, "(".repeat(1_000_000), "a:".repeat(100_000)]
}

/// Queries that cost much to read, to plan or to search for.
fn costly() -> Vec<String> {
    let long = "a".repeat(100_000);
    vec![
        "a".repeat(200_000),
        format!("{long}~2"),
        format!("{long}*"),
        format!("a{}", "*a?".repeat(20_000)),
        format!("a{}", "*".repeat(100_000)),
        format!("/{}/", "(a|b)*".repeat(150)),
        format!("/({}){{900}}/", "a{900}".repeat(20)),
        format!("/{}/", ".*a&".repeat(200) + "b"),
        format!("/~({})/", ".*a.{20}".repeat(20)),
        "/((((((a*)*)*)*)*)*)*b/".to_owned(),
        format!("\"{}\"~1000000", "a b ".repeat(400)),
        format!("\"{}\"", "a ".repeat(5_000)),
        "a* ".repeat(400),
        "a~ ".repeat(400),
        format!("a{}", "\\".repeat(100_001)),
        format!("\"{}", "\\\"".repeat(100_000)),
        format!("/{}", "\\/".repeat(100_000)),
    ]
}

/// A form of query: its name and what asks.
type Form<'p> = (&'static str, Box<dyn Fn(&str) -> Result<u64, SearchError> + 'p>);

#[test]
fn costly_queries_end() {
    let (parts, typed) = (parts(), parts_with_types());
    let forms: [Form<'_>; 2] =
        [("classic", Box::new(|query| ask(&parts, query))), ("typed", Box::new(|query| ask_typed(&typed, query)))];
    for (form, ask) in forms {
        for query in too_large() {
            let answer = ask(&query);
            let is_refused = matches!(answer, Err(SearchError::Query(QueryError::Syntax(_))));
            assert!(is_refused, "{form}: {}: {answer:?}", &query[..20]);
        }
        for query in costly() {
            let start = std::time::Instant::now();
            let answer = ask(&query);
            let head: String = query.chars().take(20).collect();
            let is_known = matches!(
                &answer,
                Ok(_) | Err(SearchError::Query(_) | SearchError::TooCostly(_) | SearchError::TooLarge)
            );
            assert!(is_known, "{form}: {head}: {answer:?}");
            assert!(start.elapsed().as_secs() < 120, "{form}: {head} took {:?}", start.elapsed());
        }
    }
}

#[test]
fn a_search_that_is_wanted_no_more_ends() {
    let request = Request { query: "a* OR b*".into(), limit: 10, ..Request::default() };
    let answer = search(&parts(), &analyzer(), &request, &Limits::default(), &mut || false);
    assert_eq!(answer, Err(SearchError::Stopped));
}

#[test]
fn a_pattern_of_more_words_than_allowed_is_refused() {
    let limits = Limits { terms: 100, ..Limits::default() };
    let request = Request { query: "a*".into(), limit: 10, ..Request::default() };
    let answer = search(&parts(), &analyzer(), &request, &limits, &mut || true);
    assert!(matches!(answer, Err(SearchError::TooCostly(_))), "{answer:?}");
}

/// A selector with a list of a thousand values is such a query.
#[test]
fn brackets_around_one_word_are_no_clause_of_their_own() {
    let of = |count: usize| {
        let each: Vec<String> = (0..count).map(|n| format!("((a:{n}) OR (b:{n}))")).collect();
        parse(&each.join(" OR "), &analyzer())
    };
    assert!(of(1_000).is_ok());
    assert!(of(1_025).is_err(), "too many side by side");
}
