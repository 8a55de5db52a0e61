//! Arguments of lists: values, places, precedence.

use super::{Query, ViewArgs};
use crate::document::json::{self, Object, Value};

fn query(text: &str) -> Query {
    Query::parse(&text.replace('+', "%2B"))
}

fn object(text: &str) -> Object {
    match json::parse(text.as_bytes()) {
        Ok(Value::Object(object)) => object,
        other => panic!("{other:?}"),
    }
}

fn refused(text: &str) -> (String, String) {
    let problem = ViewArgs::from_query(&query(text)).expect_err(text);
    (problem.error.into_owned(), problem.reason.into_owned())
}

#[test]
fn wrong_values_are_named_in_the_error() {
    for (text, error, reason) in [
        ("limit=abc", "query_parse_error", "Invalid value for integer: \"abc\""),
        ("limit", "query_parse_error", "Invalid value for integer: []"),
        ("skip=1.5", "query_parse_error", "Invalid value for integer: \"1.5\""),
        ("skip=-1", "query_parse_error", "Invalid value for positive integer: \"-1\""),
        ("limit=576460752303423488", "query_parse_error", "Limit is too large, must not exceed 576460752303423487"),
        ("descending=1", "query_parse_error", "Invalid boolean parameter: \"1\""),
        ("include_docs=", "query_parse_error", "Invalid boolean parameter: []"),
        ("sorted=x", "query_parse_error", "Invalid boolean parameter: \"x\""),
        ("stable=x", "query_parse_error", "Invalid value for `stable`."),
        ("stale=maybe", "query_parse_error", "Invalid value for `stale`."),
        ("update=x", "query_parse_error", "Invalid value for `update`."),
        ("reduce=true", "query_parse_error", "Reduce is invalid for map-only views."),
        ("group_level=1", "query_parse_error", "Invalid use of grouping on a map view."),
        ("key=abc", "bad_request", "invalid UTF-8 JSON"),
        ("keys={}", "bad_request", "`keys` parameter must be an array."),
        ("keys=[\"a\"]&key=\"a\"", "query_parse_error", "`keys` is incompatible with `key`, `start_key` and `end_key`"),
    ] {
        assert_eq!(refused(text), (error.to_owned(), reason.to_owned()), "{text}");
    }
}

#[test]
fn integers_and_booleans_are_read_generously() {
    let args =
        ViewArgs::from_query(&query("limit=+5&skip=007&descending=TRUE&limit=6&nonsense=1&group_level=0")).unwrap();
    assert_eq!((args.limit, args.skip, args.descending), (6, 7, true));
    let huge = ViewArgs::from_query(&query("skip=99999999999999999999999")).unwrap();
    assert_eq!(huge.skip, u64::MAX);
    let body = ViewArgs::from_body(&object(r#"{"descending":"true","limit":3,"startkey_docid":5}"#), &Query::default())
        .unwrap();
    assert_eq!((body.limit, body.descending, body.start_doc_id), (3, true, None));
    assert!(ViewArgs::from_body(&object(r#"{"limit":"1"}"#), &Query::default()).is_err());
}

#[test]
fn the_query_string_wins_over_a_body_but_not_over_queries() {
    let args =
        ViewArgs::from_body(&object(r#"{"limit":3,"keys":["x"]}"#), &query("limit=1&keys=[\"a\",\"b\"]")).unwrap();
    assert_eq!((args.limit, args.keys.unwrap().len()), (1, 2));
    let all = ViewArgs::from_queries(&object(r#"{"queries":[{"limit":3},{}]}"#), &query("limit=1")).unwrap();
    assert_eq!(all.iter().map(|a| a.limit).collect::<Vec<_>>(), [3, 1]);
    let one =
        ViewArgs::from_queries(&object(r#"{"queries":[{"keys":["a"]},{"keys":[]}]}"#), &Query::default()).unwrap();
    assert_eq!((one[0].key.as_ref().and_then(Value::as_str), one[0].keys.is_none()), (Some("a"), true));
    assert_eq!(one[1].keys.as_deref(), Some([].as_slice()));
}

#[test]
fn queries_must_be_a_list() {
    for (text, reason) in [
        ("{}", "POST body must include `queries` parameter."),
        (r#"{"queries":{}}"#, "`queries` member must be an array."),
        (r#"{"queries":[{"keys":"x"}]}"#, "`keys` must be an array of strings."),
    ] {
        assert_eq!(ViewArgs::from_queries(&object(text), &Query::default()).expect_err(text).reason, reason);
    }
}
