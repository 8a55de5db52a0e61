//! Selectors as they were measured: normal forms, refusals, matching, ranges.

use proptest::prelude::*;

use super::{FieldRange, Fields, IndexRange, Selector, SelectorErrorKind, document_value};
use crate::collate::{Collator, HIGHEST};
use crate::json::{Value, parse};
use crate::render::StoredRevision;
use crate::revision::Revision;

fn value(text: &str) -> Value {
    parse(text.as_bytes()).unwrap_or_else(|_| panic!("{text} is JSON"))
}

fn selector(text: &str) -> Selector {
    Selector::parse(&value(text)).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn text(value: &Value) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

#[test]
fn normal_forms() {
    for (given, normal) in [
        (r#"{}"#, r#"{}"#),
        (r#"{"a":1}"#, r#"{"a":{"$eq":1}}"#),
        (r#"{"a":1,"b":2}"#, r#"{"$and":[{"a":{"$eq":1}},{"b":{"$eq":2}}]}"#),
        (r#"{"_id":{"$gt":"a","$lt":"c"}}"#, r#"{"$and":[{"_id":{"$gt":"a"}},{"_id":{"$lt":"c"}}]}"#),
        (r#"{"t":{"$elemMatch":{"$eq":"x"}}}"#, r#"{"t":{"$elemMatch":{"":{"$eq":"x"}}}}"#),
        (r#"{"a":{"b":{"c.d":1}}}"#, r#"{"a.b.c.d":{"$eq":1}}"#),
        (r#"{"o":{}}"#, r#"{"o":{"$eq":{}}}"#),
        (r#"{"a":{"$or":[{"$gt":1},{"b":2}]}}"#, r#"{"$or":[{"a":{"$gt":1}},{"a.b":{"$eq":2}}]}"#),
        (r#"{"$not":{"a":1,"b":{"$in":[1]}}}"#, r#"{"$or":[{"a":{"$ne":1}},{"b":{"$nin":[1]}}]}"#),
        (
            r#"{"$nor":[{"a":{"$lt":1}},{"b":{"$exists":true}}]}"#,
            r#"{"$and":[{"a":{"$gte":1}},{"b":{"$exists":false}}]}"#,
        ),
        (r#"{"a":{"$not":{"$regex":"x"}}}"#, r#"{"a":{"$not":{"$regex":"x"}}}"#),
        (r#"{"$not":{"$not":{"a":{"$size":1}}}}"#, r#"{"a":{"$size":1}}"#),
        (r#"{"$and":[],"city":"x"}"#, r#"{"$and":[{"$and":[]},{"city":{"$eq":"x"}}]}"#),
        (r#"{"$text":"foo"}"#, r#"{"$default":{"$text":"foo"}}"#),
        (r#"{"r":{"$allMatch":{"$not":{"x":1}}}}"#, r#"{"r":{"$allMatch":{"$not":{"x":{"$eq":1}}}}}"#),
    ] {
        assert_eq!(text(&selector(given).to_value()), normal, "{given}");
        assert_eq!(selector(normal), selector(given), "the normal form of {given} is its own");
    }
}

#[test]
fn a_digest_knows_no_order() {
    let same = [
        r#"{"a":1,"$or":[{"b":2},{"c":{"$gt":3}}]}"#,
        r#"{"$and":[{"$or":[{"c":{"$gt":3}},{"b":{"$eq":2}},{"b":2}]},{"a":1}]}"#,
    ];
    let digests = same.map(|text| selector(text).digest());
    assert_eq!(digests[0], digests[1]);
    for other in [r#"{"a":1,"$and":[{"b":2},{"c":{"$gt":3}}]}"#, r#"{"a":{"$in":[2,1]}}"#, r#"{"a":{"$in":[1,2]}}"#] {
        assert_ne!(selector(other).digest(), digests[0], "{other}");
    }
}

#[test]
fn refusals() {
    for (given, name, reason) in [
        ("5", "invalid_selector_json", "Selector must be a JSON object, not: 5"),
        (r#""x""#, "invalid_selector_json", "Selector must be a JSON object, not: <<120>>"),
        (r#"{"":1}"#, "invalid_selector", "One or more conditions is missing a field name."),
        (r#"{"$not":{}}"#, "invalid_selector", "One or more conditions is missing a field name."),
        (r#"{"o":{"":1}}"#, "invalid_field_name", "Invalid field name: o."),
        (r#"{"a":{"$foo":1}}"#, "invalid_operator", "Invalid operator: $foo"),
        (r#"{"a":{"$":1}}"#, "invalid_operator", "Invalid operator: $"),
        (r#"{"a":{"$regex":5}}"#, "invalid_operator", "Invalid operator: $regex"),
        (r#"{"a":{"$beginsWith":["f"]}}"#, "invalid_operator", "Invalid operator: $beginsWith"),
        (r#"{"a":{"$elemMatch":{"$baz":1}}}"#, "invalid_operator", "Invalid operator: $baz"),
        (r#"{"$where":1}"#, "not_supported", "Unsupported operator: $where"),
        (r#"{"$and":5}"#, "bad_arg", "Bad argument for operator $and: 5"),
        (r#"{"$not":5}"#, "bad_arg", "Bad argument for operator $not: 5"),
        (r#"{"a":{"$regex":"("}}"#, "bad_arg", "Bad argument for operator $regex: <<40>>"),
        (r#"{"a":{"$size":1.0}}"#, "bad_arg", "Bad argument for operator $size: 1.0"),
        (r#"{"a":{"$keyMapMatch":5}}"#, "bad_arg", "Bad argument for operator $keyMapMatch: 5"),
        (r#"{"$text":{"a":1}}"#, "bad_arg", "Bad argument for operator $text: {[{<<97>>,1}]}"),
    ] {
        let error = Selector::parse(&value(given)).unwrap_err();
        assert_eq!(
            (error.name, error.reason.as_str(), error.kind),
            (name, reason, SelectorErrorKind::Refused),
            "{given}"
        );
    }
    let below = Selector::parse(&value(r#"{"s":{"$text":"foo"}}"#)).unwrap_err();
    let term = "{[{<<36,100,101,102,97,117,108,116>>,{[{<<36,116,101,120,116>>,<<102,111,111>>}]}}]}";
    assert_eq!((below.name, below.reason), ("bad_field", format!("Invalid field normalization on selector: {term}")));
    let not = Selector::parse(&value(r#"{"$not":{"$text":"a"}}"#)).unwrap_err();
    assert_eq!(not.reason, format!("Bad argument for operator $not: {}", term.replace("<<102,111,111>>", "<<97>>")));
}

#[test]
fn arguments_of_mod_are_a_class_of_their_own() {
    for argument in ["5", "[5]", "[5,0,1]", "[5.0,0]", "[\"5\",0]", "[0,0]"] {
        let error = Selector::parse(&value(&format!(r#"{{"n":{{"$mod":{argument}}}}}"#))).unwrap_err();
        assert_eq!((error.kind, error.name), (SelectorErrorKind::ModArgument, "bad_arg"), "{argument}");
    }
}

#[test]
fn a_long_name_above_many_conditions_is_refused() {
    let leaves = (0..2000).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(",");
    let given = format!(r#"{{"{}":{{{leaves}}}}}"#, "n".repeat(100_000));
    assert_eq!(Selector::parse(&value(&given)).unwrap_err().name, "invalid_selector");
}

/// Each line: a selector, the documents that match, those that do not.
#[test]
fn matching() {
    let collator = Collator::new();
    for (given, matching, others) in [
        (r#"{"v":1}"#, r#"[{"v":1},{"v":1.0}]"#, r#"[{"v":"1"},{"v":[1]},{}]"#),
        (r#"{"v":{"$ne":1}}"#, r#"[{"v":2},{"v":null}]"#, r#"[{},{"v":1}]"#),
        (r#"{"v":{"$lt":0}}"#, r#"[{"v":null},{"v":true},{"v":-1}]"#, r#"[{"v":0},{"v":""},{}]"#),
        (r#"{"v":{"$gt":"a"}}"#, r#"[{"v":"A"},{"v":"b"},{"v":[]},{"v":{}}]"#, r#"[{"v":"a"},{"v":9}]"#),
        (r#"{"_id":{"$gt":"A"}}"#, r#"[{"_id":"B"},{"_id":"a"},{"_id":"ä"}]"#, r#"[{"_id":"1"},{"_id":"A"}]"#),
        (r#"{"l.1":20}"#, r#"[{"l":[1,20]},{"l":{"1":20}}]"#, r#"[{"l":[20]},{"l":20}]"#),
        (r#"{"l.01":20}"#, r#"[{"l":[1,20]}]"#, r#"[{"l":{"1":20}}]"#),
        (r#"{"l.-1":20}"#, r#"[]"#, r#"[{"l":[20]}]"#),
        (r#"{"l.5":{"$exists":false}}"#, r#"[{"l":{}},{}]"#, r#"[{"l":[]},{"l":5}]"#),
        (r#"{"a\\.b":7}"#, r#"[{"a.b":7}]"#, r#"[{"a":{"b":7}}]"#),
        (r#"{"v":{"$in":[1,null]}}"#, r#"[{"v":1},{"v":null},{"v":[2,1]}]"#, r#"[{"v":[[1]]},{}]"#),
        (r#"{"v":{"$in":[[1]]}}"#, r#"[{"v":[[1]]}]"#, r#"[{"v":[1]}]"#),
        (r#"{"v":{"$nin":[1]}}"#, r#"[{"v":2},{"v":[]}]"#, r#"[{"v":[1,2]},{"v":1},{}]"#),
        (r#"{"v":{"$nin":[]}}"#, r#"[{"v":2}]"#, r#"[{}]"#),
        (r#"{"v":{"$in":[]}}"#, r#"[]"#, r#"[{"v":2}]"#),
        (r#"{"v":{"$all":[["x","y"]]}}"#, r#"[{"v":["x","y"]},{"v":[["x","y"]]}]"#, r#"[{"v":["y","x"]}]"#),
        (r#"{"v":{"$all":[2,3]}}"#, r#"[{"v":[3,1,2]}]"#, r#"[{"v":[2.0,3]},{"v":[2]},{"v":2}]"#),
        (r#"{"v":{"$all":[]}}"#, r#"[]"#, r#"[{"v":[]},{"v":[1]}]"#),
        (r#"{"v":{"$allMatch":{"$gt":1}}}"#, r#"[{"v":[2,3]}]"#, r#"[{"v":[]},{"v":[1,2]},{"v":2}]"#),
        (r#"{"v":{"$keyMapMatch":{"$eq":"k"}}}"#, r#"[{"v":{"k":1}}]"#, r#"[{"v":{}},{"v":["k"]},{"v":{"l":"k"}}]"#),
        (
            r#"{"v":{"$elemMatch":{"x":1,"y":4}}}"#,
            r#"[{"v":[{"x":1,"y":4}]}]"#,
            r#"[{"v":[{"x":1},{"y":4}]},{"v":{"x":1}}]"#,
        ),
        (r#"{"v":{"$mod":[5,-2]}}"#, r#"[{"v":-7},{"v":-100000000000000000002}]"#, r#"[{"v":3},{"v":-7.0}]"#),
        (r#"{"v":{"$mod":[-5,2]}}"#, r#"[{"v":7}]"#, r#"[{"v":-7}]"#),
        (r#"{"v":{"$size":0}}"#, r#"[{"v":[]}]"#, r#"[{"v":{}},{"v":""},{"v":[1]}]"#),
        (r#"{"v":{"$type":"number"}}"#, r#"[{"v":1},{"v":1.5}]"#, r#"[{"v":"1"},{}]"#),
        (r#"{"v":{"$type":"integer"}}"#, r#"[]"#, r#"[{"v":1}]"#),
        (r#"{"v":{"$not":{"$beginsWith":"f"}}}"#, r#"[{"v":"F"},{"v":5}]"#, r#"[{"v":"f"},{}]"#),
        (r#"{"v":{"$regex":"^h.llo$"}}"#, r#"[{"v":"hello"}]"#, r#"[{"v":"héllo"},{"v":["hello"]},{}]"#),
        (r#"{"v":{"$eq":{"x":1,"y":2}}}"#, r#"[{"v":{"x":1,"y":2.0}}]"#, r#"[{"v":{"y":2,"x":1}}]"#),
        (r#"{"v":{}}"#, r#"[{"v":{}}]"#, r#"[{"v":{"a":1}},{}]"#),
        (r#"{"$nor":[{"a":31}]}"#, r#"[{"a":1}]"#, r#"[{"a":31},{}]"#),
        (r#"{"$not":{"r":{"$elemMatch":{"$eq":7}}}}"#, r#"[{"r":[1]},{"r":7}]"#, r#"[{"r":[7]},{}]"#),
        (r#"{"$or":[],"v":1}"#, r#"[{"v":1}]"#, r#"[{"v":2}]"#),
        (r#"{"$text":"x"}"#, r#"[{}]"#, r#"[]"#),
        (r#"{"v":"é"}"#, r#"[{"v":"e\u0301"}]"#, r#"[{"v":"e"}]"#),
    ] {
        let selector = selector(given);
        for (documents, wanted) in [(matching, true), (others, false)] {
            for document in value(documents).as_array().unwrap() {
                assert_eq!(selector.matches(document, &collator), wanted, "{given} and {}", text(document));
            }
        }
    }
}

#[test]
fn fields_are_cut_out() {
    let document = value(r#"{"_id":"a","x":1,"y":{"z":2,"w":[1,2]},"n":null,"a.b":7}"#);
    for (fields, cut) in [
        (r#"[]"#, r#"{"_id":"a","x":1,"y":{"z":2,"w":[1,2]},"n":null,"a.b":7}"#),
        (r#"["x","x"]"#, r#"{"x":1}"#),
        (r#"["y.w.0","n"]"#, r#"{"y":{"w":{"0":1}},"n":null}"#),
        (r#"["y","y.z"]"#, r#"{"y":{"z":2,"w":[1,2]}}"#),
        (r#"["y.z","y.w"]"#, r#"{"y":{"z":2,"w":[1,2]}}"#),
        (r#"["nope","",".x"]"#, r#"{}"#),
        (r#"["a\\.b"]"#, r#"{"a.b":7}"#),
    ] {
        assert_eq!(text(&Fields::parse(&value(fields)).unwrap().cut(&document)), cut, "{fields}");
    }
    let wrong = Fields::parse(&value("[1]")).unwrap_err();
    assert_eq!((wrong.name, wrong.reason.as_str()), ("invalid_field", "Invalid JSON for field spec: 1"));
    let wrong = Fields::parse(&value("null")).unwrap_err();
    assert_eq!(wrong.reason, "Fields must be an array of strings, not: null");
}

#[test]
fn a_stored_revision_as_a_value() {
    let revision = StoredRevision {
        rev: Revision::parse("1-967a00dff5e02add41819138abb3284d").unwrap(),
        deleted: true,
        body: r#"{"v":1}"#.into(),
        attachments: Vec::new(),
    };
    let document = document_value("a", &revision).unwrap();
    let wanted = r#"{"_id":"a","_rev":"1-967a00dff5e02add41819138abb3284d","_deleted":true,"v":1}"#;
    assert_eq!(text(&document), wanted);
}

#[test]
fn what_the_planner_asks() {
    let given = selector(r#"{"a":1,"b":{"$gt":2},"$or":[{"c":1,"d":1},{"c":{"$ne":2}}],"e":{"$exists":false}}"#);
    assert_eq!(given.required_fields().into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(given.indexable_fields().into_iter().collect::<Vec<_>>(), ["a", "b", "e"]);
    assert_eq!(given.fields().into_iter().collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    assert!(given.is_constant("a") && !given.is_constant("b") && !given.is_constant("c"));
    assert!(selector(r#"{"$and":[]}"#).is_empty_combination() && !selector("{}").is_empty_combination());
    assert!(selector(r#"{"a":1,"$text":"x"}"#).has_text() && !given.has_text());
}

#[test]
fn ranges_of_indexes() {
    let collator = Collator::new();
    for (given, columns, start, end) in [
        (r#"{"a":1,"b":{"$gt":0}}"#, &["a", "b"][..], "[1,0]", "[1]"),
        (r#"{"a":1,"b":2,"c":3}"#, &["a", "b", "c"], "[1,2,3]", "[1,2,3]"),
        (r#"{"a":{"$gt":1,"$gte":0,"$lt":9,"$lte":5}}"#, &["a"], "[1]", "[5]"),
        (r#"{"a":{"$gte":1},"b":2}"#, &["a", "b"], "[1,2]", "[]"),
        (r#"{"$or":[{"n":1},{"n":2}]}"#, &["n"], "[]", "[]"),
        (r#"{"n":{"$in":[1]},"m":1}"#, &["n", "m"], "[]", "[]"),
        (r#"{"s":{"$beginsWith":"fo"}}"#, &["s"], r#"["fo"]"#, "[\"fo\u{10ffff}\"]"),
        (r#"{"a":1,"_id":{"$gt":"x"}}"#, &["a", "_id"], "[1]", "[1]"),
        (r#"{"a":1,"_id":"x"}"#, &["a", "_id"], r#"[1,"x"]"#, r#"[1,"x"]"#),
    ] {
        let IndexRange::Keys { start: low, end: high } = selector(given).index_range(columns, &collator) else {
            panic!("{given} is not empty")
        };
        assert_eq!((text(&Value::Array(low)).as_str(), text(&Value::Array(high)).as_str()), (start, end), "{given}");
    }
    for given in [r#"{"a":{"$gt":5,"$lt":3}}"#, r#"{"a":{"$gte":5,"$lt":5}}"#, r#"{"$and":[{"a":1},{"a":2}]}"#] {
        assert_eq!(selector(given).index_range(&["a"], &collator), IndexRange::Empty, "{given}");
    }
    let ids = selector(r#"{"_id":{"$gte":"Z","$lte":"b"}}"#).field_range("_id", &collator);
    assert!(matches!(ids, FieldRange::Between(Some(_), Some(_))), "ids are bounded by code points");
    assert_eq!(selector(r#"{"_id":"x"}"#).field_range("_id", &collator).point(), Some(&value("\"x\"")));
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-3_i64..4).prop_map(Value::Int),
        (-3_i32..4).prop_map(|n| Value::Float(f64::from(n) / 2.0)),
        "[aAbé ]{0,2}".prop_map(Value::String),
        prop::collection::vec((-1_i64..2).prop_map(Value::Int), 0..3).prop_map(Value::Array),
        ("[ab]", -1_i64..2).prop_map(|(name, n)| Value::Object([(name, Value::Int(n))].into_iter().collect())),
    ]
}

fn any_condition() -> impl Strategy<Value = Value> {
    let operator = prop::sample::select(vec!["$lt", "$lte", "$eq", "$ne", "$gte", "$gt"]);
    let member = |name: &str, value: Value| Value::Object([(name.to_owned(), value)].into_iter().collect());
    prop_oneof![
        8 => (operator, any_value()).prop_map(move |(name, argument)| member(name, argument)),
        1 => "[aAb]{0,1}".prop_map(move |prefix| member("$beginsWith", Value::String(prefix))),
        1 => prop::collection::vec(any_value(), 0..3).prop_map(move |values| member("$in", Value::Array(values))),
        1 => any::<bool>().prop_map(move |wanted| member("$exists", Value::Bool(wanted))),
    ]
}

fn any_selector() -> impl Strategy<Value = Value> {
    let object = |name: String, value: Value| Value::Object([(name, value)].into_iter().collect());
    let leaf = ("[ab]", any_condition()).prop_map(move |(field, condition)| object(field, condition));
    leaf.prop_recursive(2, 8, 3, move |inner| {
        let names = prop::sample::select(vec!["$and", "$and", "$or", "$nor"]);
        prop_oneof![
            3 => (names, prop::collection::vec(inner.clone(), 1..3))
                .prop_map(move |(name, all)| object(name.to_owned(), Value::Array(all))),
            1 => inner.prop_map(move |one| object("$not".to_owned(), one)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn ranges_leave_no_match_out(given in any_selector(), a in any_value(), b in any_value()) {
        let collator = Collator::new();
        let selector = Selector::parse(&given).unwrap();
        let document = Value::Object([("a".to_owned(), a.clone()), ("b".to_owned(), b.clone())].into_iter().collect());
        prop_assert_eq!(&Selector::parse(&selector.to_value()).unwrap(), &selector);
        prop_assert_eq!(Selector::parse(&selector.to_value()).unwrap().digest(), selector.digest());
        if selector.matches(&document, &collator) {
            let IndexRange::Keys { start, end } = selector.index_range(&["a", "b"], &collator) else {
                return Err(TestCaseError::fail("a document matches an empty range"));
            };
            let (mut low, mut key, mut high) = (Vec::new(), Vec::new(), Vec::new());
            collator.array_prefix(&start, &mut low);
            collator.sort_key(&Value::Array(vec![a, b]), &mut key);
            collator.array_prefix(&end, &mut high);
            high.extend_from_slice(HIGHEST);
            prop_assert!(low <= key && key <= high);
        }
    }

    #[test]
    fn stored_text_is_matched_as_its_value(
        given in any_selector(),
        (a, b, deep) in (any_value(), any_value(), any_value()),
    ) {
        let collator = Collator::new();
        let selector = Selector::parse(&given).unwrap();
        let inner = [("q\"\\\n".to_owned(), deep), ("".to_owned(), b.clone())];
        let inner: crate::json::Object = inner.into_iter().collect();
        let body: crate::json::Object =
            [("b".to_owned(), b), ("o".to_owned(), Value::Object(inner)), ("a".to_owned(), a)].into_iter().collect();
        let rev = Revision::parse("1-967a00dff5e02add41819138abb3284d").unwrap();
        let stored = StoredRevision { rev, deleted: false, body: body.to_vec().into(), attachments: Vec::new() };
        let document = document_value("id", &stored).unwrap();
        let text = super::StoredDocument::of("id", &stored);
        prop_assert_eq!(selector.matches_subject(&text, &collator), Ok(selector.matches(&document, &collator)));
        let escaped = "o.q\"\\\\\n";
        let escaped_below = format!("{escaped}.0");
        let plain = ["_id", "_rev", "a", "b.x", "a.0", "b.1", "o.x", "x", "a.a.b", "_attachments"];
        for name in plain.into_iter().chain([escaped, &escaped_below]) {
            let path = super::FieldPath::parse(name).unwrap();
            prop_assert_eq!(super::Subject::see(&text, &path), super::Subject::see(&document, &path), "{}", name);
        }
    }

    #[test]
    fn damaged_text_is_refused_or_read_lazily_without_harm(
        text in prop::collection::vec(prop::sample::select(br#"{}[]",:\ab1"#.to_vec()), 0..24),
    ) {
        let _ = crate::json::parse_lazily(&text, &["a".to_owned(), "1".to_owned()]);
    }

    #[test]
    fn what_is_required_is_there(given in any_selector(), a in any_value(), has_b in any::<bool>()) {
        let selector = Selector::parse(&given).unwrap();
        let mut document: crate::json::Object = [("a".to_owned(), a)].into_iter().collect();
        if has_b {
            document.push("b", 1_i64);
        }
        let matches = selector.matches(&Value::Object(document), &Collator::new());
        prop_assert!(!matches || has_b || !selector.required_fields().contains("b"));
    }
}
