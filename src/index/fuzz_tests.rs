//! Fuzz targets of queries and of what design documents define. See `world::fuzz`.

use std::collections::BTreeMap;
use std::sync::Arc;

use settee_search::analysis::{Analyzer, Spec};
use settee_search::document::{Document, Field, Indexed, Options, Value};
use settee_search::query::QueryError;
use settee_search::schema::Schema;
use settee_search::search::{Answer, Limits, Request, SearchError, nouveau, search};
use settee_search::segment::{Deleted, Part, Segment, build};

use super::mango::bookmark::Bookmark;
use super::mango::request::FindRequest;
use super::search::SearchDefinition;
use super::{Definition, Reduce, declared, design_signature};
use crate::document::json;
use crate::world::fuzz::Fuzz;

#[test]
fn fuzz_find_requests() {
    let requests = [
        r#"{"selector":{"n":{"$gt":1}},"fields":["a","b.c"],"sort":[{"n":"desc"}],"limit":10,"skip":1,"r":2}"#,
        r#"{"selector":{},"use_index":["_design/d","i"],"bookmark":"nil","update":false,"stable":true,"execution_stats":true}"#,
        r#"{"selector":{"$text":"a b"},"sort":["n:number"],"conflicts":true,"group_by":["n"],"count":true}"#,
    ];
    let words = [
        "limit",
        "sort",
        "\"asc\"",
        "-1",
        "1e3",
        "[]",
        "null",
        "group_by",
        "$text",
        "bookmark",
        "18446744073709551615",
    ];
    Fuzz::new("find requests", requests).words(&words).run(|text| {
        let Ok(json::Value::Object(body)) = json::parse(text) else { return };
        if let Ok(request) = FindRequest::parse(&body) {
            // Either answer is right.
            let _ = request.after();
        }
    });
}

#[test]
fn fuzz_bookmarks() {
    let good = Bookmark { key: Some(json::parse(b"[1,\"a\"]").unwrap()), id: "doc".to_owned() };
    let inputs = [good.encode(), "nil".to_owned(), "eyJpZCI6ImEifQ".to_owned(), String::new()];
    Fuzz::new("bookmarks", inputs).words(&["=", "-", "_", "eyJ"]).run(|text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        if let Ok(bookmark) = Bookmark::decode(text) {
            let again = Bookmark::decode(&bookmark.encode()).expect("what is encoded is read");
            assert_eq!((again.id, again.key), (bookmark.id, bookmark.key));
        }
    });
}

#[test]
fn fuzz_design_documents() {
    let designs = [
        r#"{"language":"javascript","views":{"v":{"map":"function (doc) { emit(doc._id, 1); }","reduce":"_sum"},"lib":{"a":"b"}},
            "options":{"partitioned":false,"collation":"raw","local_seq":true},"filters":{"f":"function () {}"}}"#,
        r#"{"language":"query","views":{"i":{"map":{"fields":{"a":"asc"},"partial_filter_selector":{}},"reduce":"_count",
            "options":{"def":{"fields":["a"]}}}},"filters":{"s":{"type":"x"}}}"#,
        r#"{"indexes":{"w":{"index":"function (doc) { index('a', doc.a); }","analyzer":{"name":"perfield","default":"english",
            "fields":{"a":"keyword"}}},"t":{"analyzer":"none","index":{"default_field":{},"fields":[{"name":"a","type":"string"}]}}}}"#,
    ];
    let words = [
        "views",
        "map",
        "reduce",
        "_stats",
        "_approx_count_distinct",
        "\"\"",
        "null",
        "{}",
        "[]",
        "indexes",
        "analyzer",
        "options",
    ];
    Fuzz::new("design documents", designs).words(&words).run(|text| {
        let Ok(json::Value::Object(design)) = json::parse(text) else { return };
        for partitioned in [false, true] {
            Definition::all(&design, partitioned).for_each(drop);
            Definition::fallible(&design, partitioned);
            for name in ["v", "i", "w", "t", ""] {
                // Either answer is right.
                let _ = SearchDefinition::find(&design, name, partitioned);
                Definition::find(&design, name, partitioned);
            }
        }
        for view in design.get("views").and_then(json::Value::as_object).into_iter().flat_map(|views| views.iter()) {
            Reduce::parse(&String::from_utf8_lossy(&view.1.to_vec()));
        }
        declared(&design).for_each(drop);
        design_signature(&design);
    });
}

/// Documents with words, whole strings and numbers.
fn documents() -> Vec<Document> {
    let field = |name: &str, value, index| {
        let options = Options { index, ..Options::default() };
        Field { name: name.to_owned(), value, options }
    };
    let document = |number: u64| {
        let words = format!("apple a{number} b{} straße \u{1f34f} a.b@c the quick-fox", number % 3);
        let fields = vec![
            field("default", Value::Text(words.clone()), Indexed::Analyzed),
            field("t", Value::Text(words), Indexed::Analyzed),
            field("s", Value::Text(format!("s{}", number % 4)), Indexed::NotAnalyzedNoNorms),
            field("n", Value::Number(number as f64 / 2.0), Indexed::NotAnalyzedNoNorms),
        ];
        Document { number, id: format!("d{number}"), fields }
    };
    (1..=24).map(document).collect()
}

fn part(documents: &[Document], analyzer: &Analyzer) -> Part {
    let segment = Segment::open(Arc::new(build(documents, analyzer))).expect("a segment");
    Part { segment, deleted: Arc::new(Deleted::default()) }
}

/// All documents in one segment, and in two.
fn cut_and_whole(analyzer: &Analyzer) -> [Vec<Part>; 2] {
    let all = documents();
    let (first, second) = all.split_at(9);
    [vec![part(&all, analyzer)], vec![part(first, analyzer), part(second, analyzer)]]
}

const QUERY_WORDS: [&str; 30] = [
    " AND ", " OR ", " NOT ", "&&", "||", "!", "+", "-", "(", ")", "[", "]", "{", "}", " TO ", "*", "?", "~", "^",
    "\"", "/", "\\", ":", "0.5", "1", "default:", "t:", "n:", "\\u0041", "<1-9>",
];

/// The query is read or refused with a reason, its search ends within bounds, and finds as much in two segments as in
/// one.
fn check(query: &str, ask: impl Fn(usize) -> Result<Answer, SearchError>) {
    let answers = [ask(0), ask(1)];
    for answer in &answers {
        match answer {
            Ok(_) | Err(SearchError::TooCostly(_) | SearchError::TooLarge) => {}
            Err(SearchError::Refused(reason)) => assert!(!reason.is_empty()),
            Err(SearchError::Query(QueryError::Syntax(reason) | QueryError::Invalid(reason))) => {
                assert!(!reason.is_empty(), "{query:?}");
            }
            Err(other) => panic!("{query:?}: {other:?}"),
        }
    }
    if let [Ok(whole), Ok(cut)] = &answers {
        assert_eq!(whole.total, cut.total, "{query:?}");
        assert_eq!(whole.rows.len(), cut.rows.len(), "{query:?}");
    }
}

/// Whether to go on, asked more often than a search of so few documents may: then it stands for one that never ends.
fn patience() -> impl FnMut() -> bool {
    let mut left = 20_000_u32;
    move || {
        left = left.saturating_sub(1);
        left > 0
    }
}

fn limits() -> Limits {
    Limits { terms: 2_000, clauses: 200, depth: 30, ..Limits::default() }
}

#[test]
fn fuzz_search_queries() {
    let queries = [
        "apple AND (t:a1 OR -t:b2)^2 NOT s:s1",
        "n:[1 TO 5} +\"quick fox\"~3 ap*le? aple~1 /a[0-9]+.*/",
        "t:{a TO *} *:* _exists_:s a\\:b",
        "((a) (b)) && !c || +d",
    ];
    let analyzer = Analyzer::new(Spec::Named { name: "standard".into(), stopwords: None }).expect("a known analyzer");
    let parts = cut_and_whole(&analyzer);
    Fuzz::new("search queries", queries).words(&QUERY_WORDS).run(|text| {
        let Ok(query) = std::str::from_utf8(text) else { return };
        let request = Request { query: query.to_owned(), limit: 10, ..Request::default() };
        check(query, |at| search(&parts[at], &analyzer, &request, &limits(), &mut patience()));
    });
}

#[test]
fn fuzz_typed_queries() {
    let queries = [
        "apple AND (t:a1 OR -t:b2)^2 NOT s:s1",
        "n:[1.5 TO 5} +\"quick fox\"~3 ap*le? aple~1 /a[0-9]+.*/",
        "n:<=3 s:>s1 n:>=2.5 (a b)@2 fn:ordered(a b)",
        "t:{a TO *} *:* s:[s1 TO s3] a\\:b",
    ];
    let analyzer = Analyzer::lucene9("standard", &BTreeMap::new()).expect("a known analyzer");
    let (parts, mut schema) = (cut_and_whole(&analyzer), Schema::default());
    documents().iter().for_each(|document| schema.note(&document.fields).expect("fields of one type"));
    let words = [&QUERY_WORDS[..], &["<=", ">=", "=", "@", "fn:", "s:", "1,5", "-Infinity"]].concat();
    Fuzz::new("typed queries", queries).words(&words).run(|text| {
        let Ok(query) = std::str::from_utf8(text) else { return };
        for locale in [None, Some("de".to_owned())] {
            let query_text = query.to_owned();
            let request = nouveau::Request { query: query_text, locale, limit: 10, top: 10, ..Default::default() };
            let ask =
                |at: usize| nouveau::search(&parts[at], (&analyzer, &schema), &request, &limits(), &mut patience());
            check(query, ask);
        }
    });
}
