//! Searches over real sockets: what settee has beyond the reference, and the task of a build.

use std::io::{ErrorKind, Write};

use crate::document::json::Value;
use crate::http::handle::tests::{JSON, object, with_database};
use crate::http::tests::{Served, status};

const DESIGN: &str = r#"{"autoupdate":false,"indexes":{
    "t":{"analyzer":"english","index":"function (doc) { index('default', doc.t, {store: true}); index('c', doc.c, {facet: true}); }"},
    "u":{"index":"function (doc) { index('default', doc.u); index('c', doc.c, {facet: true}); }"}}}"#;

fn filled() -> Served {
    let served = with_database();
    assert_eq!(status(&served.ask("PUT", "/db/_design/d", JSON, DESIGN)), 201);
    let docs = r#"{"docs":[
        {"_id":"a","t":"running planes","u":"a desert plant","c":"x"},
        {"_id":"b","t":"a desert planet","u":"nothing","c":"y"},
        {"_id":"c","t":"the planets of a runner","u":"plants","c":"x"}]}"#;
    assert_eq!(status(&served.ask("POST", "/db/_bulk_docs", JSON, docs)), 201);
    served
}

fn asked(served: &Served, path: &str) -> Value {
    object(&served.ask("GET", &format!("/db/_design/d/{path}"), JSON, ""))
}

fn member<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.as_object().and_then(|object| object.get(name)).unwrap_or_else(|| panic!("no {name} in {value:?}"))
}

fn text(value: &Value, name: &str) -> String {
    member(value, name).as_str().unwrap_or_else(|| panic!("{name} is no text in {value:?}")).to_owned()
}

fn rows(answer: &Value) -> &[Value] {
    member(answer, "rows").as_array().unwrap()
}

fn ids(answer: &Value) -> Vec<String> {
    let mut ids: Vec<String> = rows(answer).iter().map(|row| text(row, "id")).collect();
    ids.sort();
    ids
}

fn json(value: &Value) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

#[test]
fn the_last_word_of_a_query_may_go_on_and_is_marked() {
    let served = filled();
    assert_eq!(ids(&asked(&served, "_search/t?q=plan")), [""; 0]);
    let found = asked(&served, "_search/t?q=plan&prefix=true&highlight_fields=%5B%22default%22%5D");
    assert_eq!(ids(&found), ["a", "b", "c"]);
    let b = rows(&found).iter().find(|row| text(row, "id") == "b").unwrap();
    assert_eq!(json(member(b, "highlights")), r#"{"default":["a desert <em>planet</em>"]}"#);
    // A whole word counts as the analyzer makes it.
    assert_eq!(ids(&asked(&served, "_search/t?q=running&prefix=true")), ["a"]);
    assert_eq!(ids(&asked(&served, "_search/t?q=desert%20AND%20pla&prefix=true")), ["b"]);
    assert_eq!(ids(&asked(&served, "_search/t?q=pla%20&prefix=true")), [""; 0], "a blank ends the word");
    let body = r#"{"q":"pla","prefix":true}"#;
    assert_eq!(ids(&object(&served.ask("POST", "/db/_design/d/_search/t", JSON, body))), ["a", "b", "c"]);
    assert_eq!(status(&served.ask("GET", "/db/_design/d/_search/t?q=a&prefix=2", JSON, "")), 400);
}

#[test]
fn several_indexes_are_asked_as_one() {
    let served = filled();
    let both = "_search?indexes=%5B%22t%22,%22u%22%5D&q=desert%20OR%20plant&sort=%22-c%3Cstring%3E%22";
    let whole = asked(&served, &format!("{both}&counts=%5B%22c%22%5D&include_docs=true"));
    let seen = |answer: &Value| -> Vec<(String, String)> {
        rows(answer).iter().map(|row| (text(row, "index"), text(row, "id"))).collect()
    };
    assert_eq!(seen(&whole), [("t".to_owned(), "b".to_owned()), ("u".to_owned(), "a".to_owned())]);
    assert_eq!(json(member(&whole, "total_rows")), "2");
    assert_eq!(json(member(&whole, "counts")), r#"{"c":{"x":1.0,"y":1.0}}"#);
    assert_eq!(text(member(&rows(&whole)[1], "doc"), "u"), "a desert plant");
    // Page by page.
    let first = asked(&served, &format!("{both}&limit=1"));
    assert_eq!(seen(&first), seen(&whole)[..1]);
    let bookmark = text(&first, "bookmark");
    let second = asked(&served, &format!("{both}&limit=1&bookmark={bookmark}"));
    assert_eq!(seen(&second), seen(&whole)[1..]);
    let third = asked(&served, &format!("{both}&bookmark={}", text(&second, "bookmark")));
    assert_eq!(seen(&third), []);
    let body = r#"{"indexes":["u"],"q":"plants"}"#;
    let one = object(&served.ask("POST", "/db/_design/d/_search", JSON, body));
    assert_eq!(seen(&one), [("u".to_owned(), "c".to_owned())]);
    // What cannot be asked.
    for (parameters, code, reason) in [
        ("q=a", 400, "path not recognized"),
        ("q=a&indexes=%5B%5D", 400, "`indexes` must name 1 to 8 indexes"),
        ("q=a&indexes=%5B%22t%22,%22t%22%5D", 400, "`indexes` names t twice"),
        ("q=a&indexes=%22t%22", 400, "t is not a valid indexes query"),
        ("q=a&indexes=%5B%22t%22,%22no%22%5D", 404, "no not found."),
        ("q=a&indexes=%5B%22t%22%5D&group_field=c", 400, "`indexes` and `group_field` are incompatible"),
    ] {
        let answer = served.ask("GET", &format!("/db/_design/d/_search?{parameters}"), JSON, "");
        assert_eq!((status(&answer), text(&object(&answer), "reason")), (code, reason.to_owned()), "{parameters}");
    }
    let answer =
        served.ask("GET", &format!("/db/_design/d/_search?indexes=%5B%22t%22%5D&q=a&bookmark={bookmark}"), JSON, "");
    assert_eq!(status(&answer), 400, "a bookmark of other indexes");
}

#[test]
fn a_dry_run_tells_what_would_be_indexed_and_stores_nothing() {
    let served = filled();
    let ask = |body: &str| served.ask("POST", "/db/_search_dry_run", JSON, body);
    let function = "function (doc) { if (doc.bad) throw new Error('bad'); index('t', doc.t, {store: true}); index('n', 7, {facet: true}); }";
    let docs = r#"[{"_id":"x","t":"The Runners"},{"bad":true},{"_id":"y","t":5,"u":1}]"#;
    let answer = ask(&format!(r#"{{"index":"{function}","analyzer":"english","docs":{docs}}}"#));
    assert_eq!(
        json(&object(&answer)),
        r#"{"results":[{"id":"x","fields":[{"name":"t","value":"The Runners","store":true,"facet":false,"tokens":["runner"]},{"name":"n","value":7.0,"store":false,"facet":true}]},{"id":null,"error":"Error: bad"},{"id":"y","fields":[{"name":"t","value":5.0,"store":true,"facet":false},{"name":"n","value":7.0,"store":false,"facet":true}]}]}"#
    );
    let answer =
        ask(r#"{"index":"function (doc) { index('k', doc.t, {index: 'not_analyzed'}); }","ids":["b","none"]}"#);
    assert_eq!(
        json(&object(&answer)),
        r#"{"results":[{"id":"b","fields":[{"name":"k","value":"a desert planet","store":false,"facet":false,"tokens":["a desert planet"]}]},{"id":"none","error":"missing"}]}"#
    );
    let broken = json(&object(&ask(r#"{"index":"function (doc) {","docs":[{}]}"#)));
    assert!(broken.starts_with(r#"{"results":[{"id":null,"error":""#), "{broken}");
    for body in [
        r#"{"docs":[]}"#,
        r#"{"index":"function (doc) {}"}"#,
        r#"{"index":"function (doc) {}","docs":[],"ids":[]}"#,
        r#"{"index":"function (doc) {}","docs":[1]}"#,
        r#"{"index":"function (doc) {}","ids":[1]}"#,
        r#"{"index":"function (doc) {}","docs":[],"analyzer":"none"}"#,
    ] {
        assert_eq!(status(&ask(body)), 400, "{body}");
    }
    assert_eq!(status(&served.ask("GET", "/db/_design/_dry_run", JSON, "")), 404);
}

#[test]
fn a_dry_run_of_an_index_with_types_tells_types_and_what_does_not_fit() {
    let served = filled();
    let ask = |body: &str| served.ask("POST", "/db/_search_dry_run", JSON, body);
    let function = "function (doc) { index('text', 't', doc.t, {store: true}); index('string', 'k', doc.t); index(doc.as || 'double', 'n', 7); index('stored', 'x', 'shown'); }";
    let docs = r#"[{"_id":"x","t":"The Runners"},{"_id":"y","t":5},{"_id":"z","t":"a","as":"stored"}]"#;
    let given = format!(r#""kind":"nouveau","index":"{function}","default_analyzer":"english","docs":{docs}"#);
    assert_eq!(
        json(&object(&ask(&format!("{{{given}}}")))),
        r#"{"results":[{"id":"x","fields":[{"type":"text","name":"t","value":"The Runners","store":true,"tokens":["runner"]},{"type":"string","name":"k","value":"The Runners","store":false,"tokens":["The Runners"]},{"type":"double","name":"n","value":7.0,"store":false},{"type":"stored","name":"x","value":"shown","store":true,"tokens":[]}]},{"id":"y","error":"TypeError: type of value must be a string not number"},{"id":"z","error":"field n is of type STORED not DOUBLE"}]}"#
    );
    let answer = ask(&format!(r#"{{{given},"field_analyzers":{{"t":"keyword"}}}}"#));
    assert!(json(&object(&answer)).contains(r#""tokens":["The Runners"]}"#), "{answer:?}");
    for body in [r#"{"kind":"views","index":"f","docs":[]}"#, r#"{"kind":1,"index":"f","docs":[]}"#] {
        assert_eq!(status(&ask(body)), 400, "{body}");
    }
    let body = r#"{"kind":"nouveau","index":"f","docs":[],"default_analyzer":"greek"}"#;
    assert_eq!(text(&object(&ask(body)), "reason"), "no such analyzer: greek");
}

/// A build that ends before its task was seen is tried again with a slower function.
#[test]
fn a_build_is_an_active_task_with_the_time_that_is_left() {
    let served = with_database();
    let docs: Vec<String> = (0..600).map(|n| format!(r#"{{"_id":"d{n:03}"}}"#)).collect();
    let body = format!(r#"{{"docs":[{}]}}"#, docs.join(","));
    assert_eq!(status(&served.ask("POST", "/db/_bulk_docs", JSON, &body)), 201);
    let seen = (0..8).any(|attempt| {
        let spins = 20_000_u64 << attempt;
        let function =
            format!("function (doc) {{ for (var i = 0; i < {spins}; i++) {{}} index('default', doc._id); }}");
        let design = format!(r#"{{"autoupdate":false,"indexes":{{"i":{{"index":"{function}"}}}}}}"#);
        assert_eq!(status(&served.ask("PUT", &format!("/db/_design/d{attempt}"), JSON, &design)), 201);
        let mut search = served.connect();
        let head = "HTTP/1.1\r\nHost: here\r\nAuthorization: Basic YWRtOnBhc3M=\r\n\r\n";
        search.write_all(format!("GET /db/_design/d{attempt}/_search/i?q=a {head}").as_bytes()).unwrap();
        search.set_nonblocking(true).unwrap();
        loop {
            let tasks = object(&served.ask("GET", "/_active_tasks", JSON, ""));
            let is_it = |task: &Value| {
                text(task, "type") == "search_indexer"
                    && text(task, "design_document") == format!("_design/d{attempt}")
                    && member(task, "seconds_left").as_i64().is_some()
            };
            if tasks.as_array().unwrap().iter().any(is_it) {
                return true;
            }
            match search.peek(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return false,
            }
        }
    });
    assert!(seen);
}
