//! Arguments of lists: values, positions, precedence.

use super::{Config, Grouping, Query, ViewArgs};
use crate::config::Setting;
use crate::document::json::{self, Object, Value};
use crate::world::tokio_host;

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
        ("stable=TRUE", "query_parse_error", "Invalid value for `stable`."),
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
    assert_eq!((body.limit, body.descending, body.start_doc_id.as_deref()), (3, true, Some("5")));
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
    assert_eq!((one[0].start_key.as_ref().and_then(Value::as_str), &one[0].end_key), (Some("a"), &one[0].start_key));
    assert_eq!(one[1].keys.as_deref(), Some([].as_slice()));
}

#[test]
fn queries_must_be_a_list() {
    let none = object(r#"{"queries":[]}"#);
    assert_eq!(ViewArgs::from_queries(&none, &query("limit=1")).unwrap().len(), 0);
    assert!(ViewArgs::from_queries(&none, &query("limit=x")).is_err());
    assert!(ViewArgs::of_view_queries(&none, &query("update=x")).is_err());
    for (text, reason) in [
        ("{}", "POST body must include `queries` parameter."),
        (r#"{"queries":{}}"#, "`queries` member must be an array."),
        (r#"{"queries":[{"keys":"x"}]}"#, "`keys` must be an array of strings."),
    ] {
        assert_eq!(ViewArgs::from_queries(&object(text), &Query::default()).expect_err(text).reason, reason);
    }
}

#[test]
fn parameters_count_in_the_order_in_which_they_come() {
    let bounds = |text: &str| {
        let args = ViewArgs::of_view(&query(text)).unwrap();
        [args.start_key, args.end_key].map(|key| key.and_then(|key| key.as_i64()))
    };
    assert_eq!(bounds("key=1&startkey=0&endkey=2"), [Some(0), Some(2)]);
    assert_eq!(bounds("startkey=0&key=1&endkey=2"), [Some(1), Some(2)]);
    assert_eq!(bounds("keys=[1]"), [Some(1), Some(1)]);
    let args = ViewArgs::of_view_body(&object(r#"{"key":1}"#), &query("endkey=3")).unwrap();
    assert_eq!((args.start_key, args.end_key), (Some(Value::Int(1)), Some(Value::Int(3))));
    assert_eq!(ViewArgs::of_view(&query("keys=[]&key=1")).unwrap().keys, Some(Vec::new()));
}

#[test]
fn the_configuration_bounds_the_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let env = tokio_host::env(runtime.handle().clone());
    let setting = Setting::parse("query_server_config/query_limit=2").unwrap();
    let config = Config::in_memory(&env, vec![setting]);
    let bounded = |text: &str, partitioned| {
        let mut args = ViewArgs::of_view(&query(text)).unwrap();
        args.bound(&config, partitioned).map(|()| args.limit).map_err(|problem| problem.reason.into_owned())
    };
    assert_eq!((bounded("", false), bounded("limit=1", false)), (Ok(2), Ok(1)));
    assert_eq!(bounded("limit=3", false), Err("Limit is too large, must not exceed 2".to_owned()));
    assert_eq!(bounded("limit=3", true), Ok(3));
}

#[test]
fn a_level_of_zero_groups_nothing() {
    let zero = ViewArgs::of_view(&query("group=true&group_level=0")).unwrap();
    assert_eq!(zero.grouping().unwrap(), Grouping::All);
    zero.check_map(false).unwrap();
    let exact = ViewArgs::of_view(&query("group=true")).unwrap();
    assert_eq!(exact.grouping().unwrap(), Grouping::Exact);
    assert_eq!(exact.check_map(true).unwrap_err().reason, "Invalid use of grouping on a map view.");
}

#[test]
fn what_reduced_rows_refuse_and_in_which_order() {
    for (text, reason) in [
        ("keys=[1,2]&include_docs=true", "Multi-key fetches for reduce views must use `group=true`"),
        ("include_docs=true&conflicts=true", "`include_docs` is invalid for reduce"),
        ("conflicts=false", "`conflicts` is invalid for reduce views."),
    ] {
        assert_eq!(ViewArgs::of_view(&query(text)).unwrap().grouping().unwrap_err().reason, reason);
    }
}

#[test]
fn a_partition_that_can_be_none_is_refused_wherever_it_stands() {
    for (name, reason) in [
        ("_x", "Partition must not start with an underscore"),
        ("a:b", "Partition must not contain a colon"),
        ("", "Partition must not be empty"),
    ] {
        assert_eq!(refused(&format!("partition={name}")), ("illegal_partition".to_owned(), reason.to_owned()));
        let body = object(&format!(r#"{{"partition":"{name}"}}"#));
        assert_eq!(ViewArgs::of_view_body(&body, &Query::default()).unwrap_err().reason, reason);
    }
    let number = ViewArgs::from_body(&object(r#"{"partition":5}"#), &Query::default()).unwrap();
    assert_eq!(number.partition.as_deref(), Some("5"));
}

/// Queries before built the index on the replica that this node reads; the one that all nodes ask alike may have none.
#[test]
fn stale_reads_ask_the_replica_that_has_the_index() {
    let stable = |text: &str| ViewArgs::of_view(&query(text)).unwrap().stable;
    assert!(stable("stable=true") && !stable("stable=false") && !stable(""));
    assert!(!stable("stale=ok") && !stable("stale=update_after") && !stable("update=false"));
}
