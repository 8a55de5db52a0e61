//! Requests, planner, bookmarks and groups: the fixed order of errors, the choice of an index, pages that continue each
//! other; and that every usable index gives the same result as a scan of all documents.

use proptest::prelude::*;

use super::bookmark::Bookmark;
use super::candidates::Indexes;
use super::catalogue::{FieldIndex, object};
use super::covered::CoveredRow;
use super::explain::{ExplainContext, explain};
use super::groups::{GroupBy, Groups};
use super::mapper::Fields;
use super::planner::{Partitioning, is_covering, is_usable, plan, warning};
use super::request::FindRequest;
use super::spans::spans;
use crate::document::collate::Collator;
use crate::document::json::{Value, parse};
use crate::document::selector::{FieldPath, RangeRules};
use crate::index::keys;

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
    plan(&request(text).unwrap(), indexes, partitioning, &Collator::new()).unwrap().index.map(|index| index.ddoc)
}

#[test]
fn errors_come_in_their_order() {
    let name = |text: &str| request(text).unwrap_err().name;
    assert_eq!(name(r#"{"zz":1}"#), "missing_required_key");
    assert_eq!(name(r#"{"zz":1,"limit":-1,"selector":5}"#), "invalid_selector_json");
    assert_eq!(name(r#"{"zz":1,"limit":-1,"selector":{}}"#), "invalid_non_neg_integer");
    assert_eq!(name(r#"{"zz":1,"selector":{}}"#), "invalid_key");
    assert_eq!(name(r#"{"bookmark":1,"limit":-1,"selector":{}}"#), "invalid_bookmark");
    assert_eq!(name(r#"{"bookmark":"nil","limit":-1,"selector":{}}"#), "invalid_non_neg_integer");
    let unreadable = request(r#"{"bookmark":"nil","selector":{}}"#).unwrap();
    assert_eq!(unreadable.after().unwrap_err().name, "invalid_bookmark");
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

#[test]
fn groups_are_told_in_order_with_their_figures() {
    let body = parse(
        br#"{"group_by":["c"],"aggregate":{"n":{"count":true},"v":{"count":"v"},"sum":{"sum":"v"},"min":{"min":"v"},
        "max":{"max":"v"},"avg":{"avg":"v"},"all":{"stats":"v"}}}"#,
    );
    let by = GroupBy::parse(body.unwrap().as_object().unwrap()).unwrap().unwrap();
    let mut groups = Groups::new(&by, &Collator::new());
    for document in [r#"{"c":"b","v":1}"#, r#"{"c":"b","v":"x"}"#, r#"{"v":2}"#, r#"{"c":"b","v":4}"#, r#"{"c":"a"}"#] {
        groups.add(&parse(document.as_bytes()).unwrap()).unwrap();
    }
    let texts: Vec<String> = groups.finish().map(|group| String::from_utf8(group.to_vec()).unwrap()).collect();
    let null = r#"{"key":[null],"value":{"n":1,"v":1,"sum":2,"min":2,"max":2,"avg":2.0,"#.to_owned()
        + r#""all":{"sum":2,"count":1,"min":2,"max":2,"sumsqr":4}}}"#;
    let none = r#"{"key":["a"],"value":{"n":1,"v":0,"sum":0,"min":null,"max":null,"avg":null,"all":null}}"#;
    let some = r#"{"key":["b"],"value":{"n":3,"v":3,"sum":5,"min":1,"max":"x","avg":2.5,"#.to_owned()
        + r#""all":{"sum":5,"count":2,"min":1,"max":4,"sumsqr":17}}}"#;
    assert_eq!(texts, [null.as_str(), none, some.as_str()]);
    let refused = |text: &str| GroupBy::parse(parse(text.as_bytes()).unwrap().as_object().unwrap()).unwrap_err().name;
    assert_eq!(refused(r#"{"group_by":5}"#), "invalid_group_by");
    assert_eq!(refused(r#"{"group_by":["a"],"aggregate":{"x":{"median":"v"}}}"#), "invalid_aggregate");
}

#[test]
fn a_hint_names_equal_fields_then_those_of_the_sort_then_a_bounded_one() {
    let hint = |text: &str| {
        let request = request(text).unwrap();
        let plan = plan(&request, &[], Partitioning { database: false, query: false }, &Collator::new()).unwrap();
        warning(&plan, &request, "db", 0, 0).unwrap().lines().nth(1).map(str::to_owned)
    };
    let wanted =
        |fields: &str| Some(format!("This index would help: POST /db/_index {{\"index\":{{\"fields\":{fields}}}}}"));
    assert_eq!(hint(r#"{"selector":{"b":{"$gt":1},"a":2},"index_hint":true}"#), wanted(r#"["a","b"]"#));
    assert_eq!(hint(r#"{"selector":{"r":{"$regex":"x"}},"index_hint":true}"#), wanted(r#"["r"]"#));
    assert_eq!(hint(r#"{"selector":{"a":2}}"#), None);
    assert_eq!(hint(r#"{"selector":{},"index_hint":true}"#), None);
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => Just(Value::Bool(true)),
        6 => (-2_i64..4).prop_map(Value::Int),
        2 => (-3_i32..4).prop_map(|n| Value::Float(f64::from(n) / 2.0)),
        3 => "[aAb\u{e9} ]{0,2}".prop_map(Value::String),
        1 => Just(Value::String("e\u{301}".to_owned())),
        1 => prop::collection::vec((-1_i64..3).prop_map(Value::Int), 0..3).prop_map(Value::Array),
        1 => ("[xy]", -1_i64..2).prop_map(|(name, n)| object([(name.as_str(), Value::Int(n))])),
    ]
}

fn any_document() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let field = |name: &'static str| prop::option::of(any_value().prop_map(move |value| (name, value)));
    (field("a"), field("b"), field("c")).prop_map(|(a, b, c)| [a, b, c].into_iter().flatten().collect())
}

fn any_condition() -> impl Strategy<Value = Value> {
    let member = |name: &str, value: Value| object([(name, value)]);
    let comparison = prop::sample::select(vec!["$lt", "$lte", "$eq", "$eq", "$ne", "$gte", "$gt"]);
    let list = || prop::collection::vec(any_value(), 0..5).prop_map(Value::Array);
    prop_oneof![
        8 => (comparison, any_value()).prop_map(move |(name, argument)| member(name, argument)),
        4 => list().prop_map(move |values| member("$in", values)),
        1 => list().prop_map(move |values| member("$nin", values)),
        1 => "[aAb]{0,1}".prop_map(move |prefix| member("$beginsWith", Value::String(prefix))),
        1 => any::<bool>().prop_map(move |wanted| member("$exists", Value::Bool(wanted))),
        1 => (0_i64..3).prop_map(move |size| member("$size", Value::Int(size))),
        1 => any_value().prop_map(move |value| member("$elemMatch", object([("$gte", value)]))),
        1 => list().prop_map(move |values| member("$all", values)),
    ]
}

fn any_selector() -> impl Strategy<Value = Value> {
    let field = prop::sample::select(vec!["a", "a", "b", "b", "c", "a.x"]);
    let ids = prop::collection::vec("d[0-9]", 0..4)
        .prop_map(|ids| Value::from(ids.into_iter().map(Value::from).collect::<Vec<_>>()));
    let leaf = prop_oneof![
        12 => (field, any_condition()).prop_map(|(field, condition)| object([(field, condition)])),
        1 => ids.prop_map(|ids| object([("_id", object([("$in", ids)]))])),
        1 => "d[0-9]".prop_map(|id| object([("_id", object([("$gte", Value::from(id))]))])),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let names = prop::sample::select(vec!["$and", "$and", "$or", "$or", "$nor"]);
        prop_oneof![
            4 => (names, prop::collection::vec(inner.clone(), 1..4))
                .prop_map(|(name, all)| object([(name, Value::Array(all))])),
            1 => inner.prop_map(|one| object([("$not", one)])),
        ]
    })
}

/// A row of an index: its place, its key as text, and which document.
type Place = (Vec<u8>, Vec<u8>, usize);

/// The rows of an index in order.
fn rows(index: &FieldIndex, documents: &[Value], collator: &Collator) -> Vec<Place> {
    let columns = index.columns.iter().map(|(name, direction)| (name.as_str(), direction.as_str().into()));
    let fields = Fields::of(&object([("fields", object(columns))]), collator.clone());
    let row = |(at, document): (usize, &Value)| {
        let (key, _) = fields.rows(std::str::from_utf8(&document.to_vec()).unwrap()).pop()?;
        let mut sort = Vec::new();
        collator.sort_key(&key, &mut sort);
        Some((keys::place(&sort, &format!("d{at}"), 0), key.to_vec(), at))
    };
    let mut rows: Vec<Place> = documents.iter().enumerate().filter_map(row).collect();
    rows.sort();
    rows
}

/// The documents found by an index, in pages of `page`, each begun behind the bookmark of the one before.
fn found(request: FindRequest, index: &FieldIndex, documents: &[Value], page: usize) -> Vec<usize> {
    let collator = Collator::new();
    let (rows, descending) = (rows(index, documents, &collator), request.sort.descending);
    let columns: Vec<FieldPath> = index.names().into_iter().map(|name| FieldPath::parse(name).unwrap()).collect();
    let (mut found, mut after, covering) = (Vec::new(), None::<Bookmark>, is_covering(&request, index));
    loop {
        let mut seen: Vec<&Place> = Vec::new();
        for span in spans(&request, after.as_ref(), index, RangeRules::new(&collator)) {
            let (places, _) = span.places(&collator, descending, b"");
            let mut inside: Vec<&Place> = rows
                .iter()
                .filter(|(place, ..)| *place >= places.low && places.high.as_ref().is_none_or(|high| place < high))
                .collect();
            if descending {
                inside.reverse();
            }
            seen.extend(inside);
        }
        let ordered = seen.windows(2).all(|two| if descending { two[0] > two[1] } else { two[0] < two[1] });
        assert!(ordered, "rows come in order, each once");
        if let Some(Bookmark { key: Some(key), id }) = &after {
            seen.retain(|(_, own, at)| *own != key.to_vec() || format!("d{at}") != *id);
        }
        let matches = |(_, key, at): &&&Place| {
            let id = format!("d{at}");
            match covering {
                true => {
                    let row = CoveredRow::read(&columns, key, &id).unwrap();
                    request.selector.matches_subject(&row, &collator).unwrap()
                }
                false => request.selector.matches(&documents[*at], &collator),
            }
        };
        let hits: Vec<&&Place> = seen.iter().filter(matches).take(page).collect();
        found.extend(hits.iter().map(|(_, _, at)| *at));
        match hits.last() {
            Some((_, key, at)) if hits.len() == page => {
                after = Some(Bookmark { key: Some(parse(key).unwrap()), id: format!("d{at}") });
            }
            _ => return found,
        }
    }
}

/// What `_explain` tells of a query on three indexes, each on a screen: candidates with their reasons, bounds, options.
#[test]
fn what_is_told_of_plans() {
    let indexes = [index("ab", &["a", "b"]), index("a", &["a"]), index("b", &["b"])];
    let queries = [
        r#"{"selector":{"a":1,"b":{"$gt":2}}}"#,
        r#"{"selector":{"a":{"$beginsWith":"x"}},"fields":["_id","a"],"limit":3,"skip":1}"#,
        r#"{"selector":{"b":{"$lt":5}},"sort":[{"b":"desc"}],"use_index":"b","execution_stats":true}"#,
        r#"{"selector":{"c":1},"r":2,"conflicts":true}"#,
        r#"{"selector":{"c":1},"sort":["c"]}"#,
        r#"{"selector":{"$or":[{"a":1},{"b":2}]},"update":false}"#,
        r#"{"selector":{"$or":[]}}"#,
    ];
    let collator = Collator::new();
    let about = ExplainContext { database: "db", partitioned: false, partition: None, with_range: true };
    let mut text = String::new();
    for query in queries {
        let request = request(query).expect("a request");
        let partitioning = Partitioning { database: false, query: false };
        let choice = plan(&request, &indexes, partitioning, &collator).map(|plan| plan.index).map_err(|_| ());
        let all = Indexes { fields: &indexes, texts: &[], chosen: None };
        let told = explain(&request, &choice, all, about, &collator).to_vec();
        let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
        text += &format!("{query}\n");
        for (member, value) in told.as_object().expect("an object") {
            match value.as_array().filter(|_| member == "index_candidates") {
                Some(all) => all.iter().for_each(|candidate| text += &format!("  candidate: {candidate}\n")),
                None => text += &format!("  {member}: {value}\n"),
            }
        }
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("explain", text);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn every_usable_index_gives_what_a_scan_gives(
        selector in any_selector(),
        documents in prop::collection::vec(any_document(), 0..8),
        columns in prop::sample::subsequence(vec!["a", "b", "c", "_id", "a.x"], 1..4).prop_shuffle(),
        descending: bool,
        cover: bool,
        page in 1_usize..9,
    ) {
        let collator = Collator::new();
        let with_id = |(at, members): (usize, Vec<(&'static str, Value)>)| {
            let id = Value::from(format!("d{at}"));
            object([("_id", id)].into_iter().chain(members))
        };
        let documents: Vec<Value> = documents.into_iter().enumerate().map(with_id).collect();
        let index = index("i", &columns);
        let query = |selector: Value| {
            let fields = Value::Array(if cover { vec!["_id".into()] } else { Vec::new() });
            let body = object([("selector", selector), ("fields", fields)]);
            FindRequest::parse(body.as_object().unwrap()).unwrap()
        };
        let mut request = query(selector.clone());
        if !is_usable(&request, &index) {
            // Whatever it asks for, of documents that have all columns.
            let exists = |name: &&str| object([(*name, object([("$exists", true.into())]))]);
            let all = [selector].into_iter().chain(columns.iter().map(exists)).collect();
            request = query(object([("$and", Value::Array(all))]));
        }
        prop_assert!(is_usable(&request, &index));
        request.sort.descending = descending;
        let all = 0..documents.len();
        let scanned: Vec<usize> = all.filter(|at| request.selector.matches(&documents[*at], &collator)).collect();
        let mut found = found(request, &index, &documents, page);
        found.sort_unstable();
        prop_assert_eq!(found, scanned);
    }
}
