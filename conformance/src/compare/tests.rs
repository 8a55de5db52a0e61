//! Tests of the comparer: above all that it notices what is wrong.

use super::{Outcome, compare_answer, is_covered};
use crate::json::Value;
use crate::transcript::{Case, Expect};

const REV_A: &str = "1-967a00dff5e02add41819138abb3284d";
const REV_B: &str = "1-7a7e4b29f3af401e69b6f86e4c26b727";
const REV_C: &str = "2-7a7e4b29f3af401e69b6f86e4c26b727";

fn json(text: &str) -> Value {
    Value::parse(text.as_bytes()).expect(text)
}

/// An expectation: status 200, the given headers and JSON body, and further keys of the step.
fn expect(headers: &str, body: &str, keys: &str) -> Expect {
    let comma = if keys.is_empty() { "" } else { "," };
    let text = format!(
        r#"{{"title":"t","steps":[{{"do":"GET /x"{comma}{keys},
        "response":{{"status":200,"headers":{headers},"kind":"json","body":{body}}}}}]}}"#
    );
    Case::read("c", "n", &json(&text)).expect("a case").steps.remove(0).expect
}

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Outcome {
    let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), Some((*v).to_owned()))).collect();
    Outcome { status, headers, kind: "json", body: json(body) }
}

fn found(keys: &str, want: &str, got: &str) -> Vec<String> {
    compare_answer(&expect("{}", want, keys), &answer(200, &[], got), false)
}

#[track_caller]
fn passes(keys: &str, want: &str, got: &str) {
    assert_eq!(found(keys, want, got), Vec::<String>::new());
}

#[track_caller]
fn fails(keys: &str, want: &str, got: &str, with: &str) {
    let found = found(keys, want, got);
    assert!(found.len() == 1 && found[0].contains(with), "{found:?}");
}

#[test]
fn a_wrong_status_is_noticed() {
    let found = compare_answer(&expect("{}", "{}", ""), &answer(404, &[], r#"{"error":"not_found"}"#), false);
    assert_eq!(found, [r#"status 200 expected, got 404 {"error": "not_found"}"#]);
}

#[test]
fn members_too_few_too_many_or_different_are_noticed() {
    passes("", r#"{"a":1,"b":[1,2.0]}"#, r#"{"b":[1.0,2],"a":1}"#);
    fails("", r#"{"a":1,"b":2}"#, r#"{"a":1}"#, "/b: missing");
    fails("", r#"{"a":1}"#, r#"{"a":1,"b":2}"#, "/b: not expected (2)");
    fails("", r#"{"a":1}"#, r#"{"a":2}"#, "/a: 1 expected, got 2");
    fails("", r#"{"a":1}"#, r#"{"a":"1"}"#, "/a: 1 expected");
    fails("", r#"{"a":true}"#, r#"{"a":1}"#, "/a: true expected");
    fails("", "[1,2]", "[1]", "2 items expected, got 1");
    assert_eq!(found("", "[1,2]", "[2,1]").len(), 2);
}

#[test]
fn exceptions_reach_as_far_as_they_say() {
    passes(r#""optional":["/b"]"#, r#"{"a":1,"b":2}"#, r#"{"a":1}"#);
    fails(r#""optional":["/b"]"#, r#"{"b":2}"#, r#"{"b":3}"#, "/b");
    passes(r#""extra_ok":true"#, r#"{"a":{}}"#, r#"{"a":{"x":1},"b":2}"#);
    passes(r#""ignore":["/b","/rows/*/v"]"#, r#"{"rows":[{"v":1}]}"#, r#"{"rows":[{"v":"x"}],"b":1}"#);
    fails(r#""ignore":["/rows/*/v"]"#, r#"{"rows":[{"v":1}]}"#, r#"{"rows":[{"w":1,"v":1}]}"#, "/rows/0/w");
    passes(r#""volatile":["/a"]"#, r#"{"a":"x"}"#, r#"{"a":"y"}"#);
    fails(r#""volatile":["/a"]"#, r#"{"a":"x"}"#, r#"{"a":5}"#, "/a: string expected");
    passes("", r#"{"last_seq":"1-x"}"#, r#"{"last_seq":"9-y"}"#);
    fails("", r#"{"last_seq":"1-x"}"#, r#"{"last_seq":9}"#, "/last_seq: string expected");
    assert!(is_covered("/a/b-c/d", &["/a/b*/d".into()]) && !is_covered("/a/b/c/d", &["/a/*/d".into()]));
}

#[test]
fn order_counts_unless_said_otherwise() {
    let (want, got) = (r#"{"r":[{"id":"a","v":1},{"id":"b","v":2}]}"#, r#"{"r":[{"id":"b","v":2},{"id":"a","v":1}]}"#);
    passes(r#""unordered":["/r"]"#, want, got);
    assert!(!found("", want, got).is_empty());
    fails(r#""unordered":["/r"]"#, want, r#"{"r":[{"id":"b","v":2},{"id":"a","v":9}]}"#, "/r/0/v");
}

#[test]
fn revisions_count_by_number_or_whole() {
    let body = |rev: &str| format!(r#"{{"rev":"{rev}"}}"#);
    passes("", &body(REV_A), &body(REV_B));
    fails("", &body(REV_A), &body(REV_C), "/rev");
    fails("", &body(REV_A), &body("1-x"), "/rev");
    let whole = compare_answer(&expect("{}", &body(REV_A), ""), &answer(200, &[], &body(REV_B)), true);
    assert_eq!(whole.len(), 1, "{whole:?}");
}

#[test]
fn headers_wrong_or_missing_are_noticed() {
    let count = |want: &str, keys: &str, got: &[(&str, &str)], revs| {
        compare_answer(&expect(want, "{}", keys), &answer(200, got, "{}"), revs).len()
    };
    let json_type = r#"{"content-type":"application/json"}"#;
    assert_eq!(count(json_type, "", &[("content-type", "application/json")], false), 0);
    assert_eq!(count(json_type, "", &[("content-type", "text/plain")], false), 1);
    assert_eq!(count(json_type, "", &[], false), 1);
    assert_eq!(count(json_type, r#""ignore_headers":["content-type"]"#, &[], false), 0);
    let parts = r#"{"content-type":"multipart/mixed; boundary=\"a\""}"#;
    assert_eq!(count(parts, "", &[("content-type", "multipart/mixed;boundary=\"b\"")], false), 0);
    let allow = r#"{"allow":"GET,HEAD"}"#;
    assert_eq!(count(allow, "", &[("allow", "HEAD, GET")], false), 0);
    assert_eq!(count(allow, "", &[("allow", "HEAD")], false), 1);
    let absent = r#"{"x-a":null}"#;
    assert_eq!(count(absent, "", &[], false), 0);
    assert_eq!(count(absent, "", &[("x-a", "1")], false), 1);
    let volatile = r#""volatile_headers":["x-a"]"#;
    assert_eq!(count(r#"{"x-a":"1"}"#, volatile, &[("x-a", "2")], false), 0);
    assert_eq!(count(r#"{"x-a":"1"}"#, volatile, &[], false), 1);
}

#[test]
fn etags_count_as_far_as_they_mean_something() {
    let count = |want: &str, keys: &str, got: &str, revs| {
        let want = format!(r#"{{"etag":"\"{want}\""}}"#);
        compare_answer(&expect(&want, "{}", keys), &answer(200, &[("etag", &format!("\"{got}\""))], "{}"), revs).len()
    };
    assert_eq!(count(REV_A, "", REV_B, false), 0);
    assert_eq!(count(REV_A, "", REV_B, true), 1);
    assert_eq!(count(REV_A, "", "abc", false), 1);
    assert_eq!(count("4CZ5A1CRB0F2U1R7GZ4Q8JVUJ", "", "anything", true), 0);
    assert_eq!(count("abc", r#""volatile_etag":true"#, "xyz", true), 0);
    let want = expect(r#"{"etag":"\"4CZ5A1CRB0F2U1R7GZ4Q8JVUJ\""}"#, "{}", "");
    assert_eq!(compare_answer(&want, &answer(200, &[], "{}"), false).len(), 1, "a state's ETag must be there");
}

#[test]
fn patterns_and_parts_are_checked() {
    let hex = r#""match":{"/id":"[0-9a-f]{4}"}"#;
    passes(hex, r#"{"id":"0000"}"#, r#"{"id":"beef"}"#);
    fails(hex, r#"{"id":"0000"}"#, r#"{"id":"beefs"}"#, "does not match");
    let contains = r#""contains":{"/r":[{"id":"a"}]},"no_body":true"#;
    passes(contains, "{}", r#"{"r":[{"id":"b"},{"id":"a","v":1}]}"#);
    fails(contains, "{}", r#"{"r":[{"id":"b"}]}"#, "/r lacks");
}

#[test]
fn any_error_will_do_where_the_case_says_so() {
    let refused = expect("{}", "{}", r#""refused":true"#);
    assert!(compare_answer(&refused, &answer(400, &[], r#"{"error":"e","reason":null}"#), false).is_empty());
    assert_eq!(compare_answer(&refused, &answer(200, &[], r#"{"error":"e","reason":"r"}"#), false).len(), 1);
    assert_eq!(compare_answer(&refused, &answer(500, &[], r#"{"error":1,"reason":"r"}"#), false).len(), 1);
    assert!(compare_answer(&expect("{}", "{}", r#""setup":true"#), &answer(500, &[], "1"), false).is_empty());
}

#[test]
fn another_kind_of_body_is_noticed() {
    let text = Outcome { kind: "text", ..answer(200, &[], "\"x\"") };
    let found = compare_answer(&expect("{}", "{}", ""), &text, false);
    assert!(found.len() == 1 && found[0].contains("a json body expected, got text"), "{found:?}");
    assert!(compare_answer(&expect("{}", "{}", r#""no_body":true"#), &text, false).is_empty());
}
