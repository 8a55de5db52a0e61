//! Requests, planner and bookmarks: the fixed order of errors, the choice of an index, pages that go on.

use super::bookmark::Bookmark;
use super::catalogue::FieldIndex;
use super::planner::{Partitioning, plan};
use super::request::FindRequest;
use crate::document::json::{Value, parse};

fn request(text: &str) -> Result<FindRequest, super::MangoError> {
    let value = parse(text.as_bytes()).unwrap();
    FindRequest::parse(value.as_object().unwrap())
}

fn index(ddoc: &str, names: &[&str]) -> FieldIndex {
    let columns = names.iter().map(|name| ((*name).to_owned(), "asc".to_owned())).collect();
    let filter = parse(b"{}").unwrap();
    FieldIndex { ddoc: format!("_design/{ddoc}"), name: "x".into(), partitioned: false, columns, filter }
}

fn chosen(text: &str, indexes: &[FieldIndex]) -> Option<String> {
    let partitioning = Partitioning { database: false, query: false };
    plan(&request(text).unwrap(), indexes, partitioning).unwrap().index.map(|index| index.ddoc)
}

#[test]
fn errors_come_in_their_order() {
    let name = |text: &str| request(text).unwrap_err().name;
    assert_eq!(name(r#"{"zz":1}"#), "missing_required_key");
    assert_eq!(name(r#"{"zz":1,"limit":-1,"selector":5}"#), "invalid_selector_json");
    assert_eq!(name(r#"{"zz":1,"limit":-1,"selector":{}}"#), "invalid_non_neg_integer");
    assert_eq!(name(r#"{"zz":1,"selector":{}}"#), "invalid_key");
    assert_eq!(name(r#"{"bookmark":"nil","selector":{}}"#), "invalid_bookmark");
    assert_eq!(name(r#"{"sort":["a",{"b":"desc"}],"selector":{}}"#), "unsupported_mixed_sort");
}

#[test]
fn the_longest_narrowed_prefix_wins_then_the_fewest_columns_then_the_name() {
    let all = [index("i3", &["a", "b", "c"]), index("i2", &["a", "b"]), index("i1", &["a"])];
    assert_eq!(chosen(r#"{"selector":{"a":1,"b":2,"c":3}}"#, &all).as_deref(), Some("_design/i3"));
    assert_eq!(chosen(r#"{"selector":{"a":1,"b":2}}"#, &all).as_deref(), Some("_design/i2"));
    assert_eq!(chosen(r#"{"selector":{"a":1,"c":{"$gt":1}}}"#, &all).as_deref(), Some("_design/i1"));
    assert_eq!(chosen(r#"{"selector":{"b":1}}"#, &all), None);
    let pair = [index("y", &["a"]), index("x", &["b"])];
    assert_eq!(chosen(r#"{"selector":{"a":1,"b":2}}"#, &pair).as_deref(), Some("_design/x"));
    assert_eq!(chosen(r#"{"selector":{},"sort":["a","b"]}"#, &all).as_deref(), Some("_design/i2"));
}

#[test]
fn bookmarks_come_back() {
    let bookmark = Bookmark { key: Some(Value::Array(vec![Value::Null])), id: "ä".into() };
    assert_eq!(Bookmark::decode(&bookmark.encode()), Ok(bookmark));
    assert_eq!(Bookmark::decode("garbage").unwrap_err().reason, "Invalid bookmark value: \"garbage\"");
}
