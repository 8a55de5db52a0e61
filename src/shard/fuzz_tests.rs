//! Fuzz targets of documents: JSON, revisions, drafts, selectors. Here, since `world::fuzz` is above their crate.

use crate::document::collate::Collator;
use crate::document::draft;
use crate::document::id::DocId;
use crate::document::json::{self, Value};
use crate::document::revision::Revision;
use crate::document::security;
use crate::document::selector::Selector;
use crate::world::fuzz::Fuzz;

const TEXTS: [&str; 12] = [
    r#"{"_id":"a","_rev":"1-967a00dff5e02add41819138abb3284d","n":[1,-2.5e3,true,null,"x"]}"#,
    r#"["\u0041\/\ud83d\ude00\u0000\"\\\b\f\n\r\t"]"#,
    "[0,-0,0.0,1e5,1E-5,123456789012345678901234567890,5e-324,1.7976931348623157e308,0.1]",
    r#"{"a":{"b":{"c":[[[[{}]]]]}},"a":1,"":{}}"#,
    " \t\r\n[ ]",
    "\"\u{7f}é日\u{ffff}\"",
    r#"{"_attachments":{"a.txt":{"data":"YQ==","content_type":"text/plain","revpos":1}},"_deleted":false}"#,
    r#"{"_id":"x","_revisions":{"start":2,"ids":["b","a"]},"_local_seq":3,"_conflicts":[]}"#,
    r#"{"_attachments":{"a":{"follows":true,"length":5,"digest":"md5-rL0Y20zC+Fzt72VPzMSk2A=="}}}"#,
    "1e400",
    "[1,2",
    "12345678901234567890123456789012345678901234567890e-20",
];
const WORDS: [&str; 18] = [
    "\\ud800",
    "\\udc00",
    "\\u",
    "[[[[[[[[[[[[",
    "{\"a\":",
    "]",
    "}",
    ",",
    ":",
    "e+9999",
    "E-400",
    ".",
    "-",
    "99999999999999999999",
    "null",
    "\"",
    "\u{feff}",
    "0",
];

/// Whether two numbers are the same but for the last digit: long numbers are computed as CouchDB does.
fn near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= a.abs().max(b.abs()) * 1e-12 || (a.abs() < 1e-300 && b.abs() < 1e-300)
}

fn same(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (a, b) {
        (Number(a), Number(b)) => near(a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default()),
        (Array(a), Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Object(a), Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Whether a text has a number so long that the two readers may differ about its range.
fn has_long_number(text: &[u8]) -> bool {
    text.split(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')).any(|token| token.len() >= 32)
}

#[test]
fn fuzz_json_is_read_as_by_serde_json() {
    Fuzz::new("json", TEXTS).words(&WORDS).run(|text| {
        let (ours, theirs) = (json::parse(text), serde_json::from_slice::<serde_json::Value>(text));
        json::is_too_deep(text);
        json::has_integer_out_of_range(text);
        json::tree_bytes(text);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                let written = ours.to_vec();
                let read = serde_json::from_slice(&written).expect("what is written is JSON");
                assert!(same(&read, &theirs), "{read} and {theirs}");
                assert_eq!(json::parse(&written).map(|value| value.to_vec()), Ok(written));
            }
            (Ok(_), Err(error)) => {
                let depth = error.to_string().contains("recursion limit");
                assert!(depth || has_long_number(text), "only serde_json refuses it: {error}");
            }
            (Err(_), Ok(_)) => assert!(has_long_number(text), "only serde_json takes it"),
            (Err(_), Err(_)) => {}
        }
    });
}

#[test]
fn fuzz_lazy_parsing_finds_what_parsing_finds() {
    let steps: Vec<String> = ["a", "b"].map(str::to_owned).into();
    Fuzz::new("lazy json", TEXTS).words(&WORDS).run(|text| {
        let lazy = json::parse_lazily(text, &steps);
        if json::parse(text).is_ok() {
            assert!(lazy.is_ok(), "what parses is read lazily, too");
        }
    });
}

#[test]
fn fuzz_revisions_and_ids() {
    let revisions = [
        "1-967a00dff5e02add41819138abb3284d",
        "12-abc",
        "0-x",
        "18446744073709551615-a",
        "1-",
        "_local/x",
        "_design/d",
    ];
    Fuzz::new("revisions", revisions).words(&["-", "--", "00", "_design/", "%2F"]).run(|text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        if let Ok(rev) = Revision::parse(text) {
            assert_eq!(Revision::parse(&rev.to_string()), Ok(rev));
        }
        if DocId::check(text, Some(300)).is_ok() {
            assert!(!text.is_empty());
        }
        // Either answer is right.
        let _ = draft::parse_rev(text);
        let _ = draft::check_attachment_name(text);
    });
}

#[test]
fn fuzz_drafts_and_security_objects() {
    let security = r#"{"admins":{"names":["a"],"roles":[]},"members":{"names":[],"roles":["b"]},"x":1}"#;
    let inputs = TEXTS.into_iter().chain([security]);
    let words = [
        "_id",
        "_rev",
        "_revisions",
        "_attachments",
        "\"stub\":true",
        "\"encoding\":\"gzip\"",
        "\"data\":\"!\"",
        "names",
    ];
    Fuzz::new("drafts", inputs).words(&words).run(|text| {
        // Either answer is right.
        let _ = security::parse(text);
        let Ok(value) = json::parse(text) else { return };
        if let Ok(draft) = draft::parse(value) {
            assert!(draft.body.iter().all(|(name, _)| !name.starts_with('_') || name.starts_with("_replication_")));
        }
    });
}

#[test]
fn fuzz_selectors() {
    let selectors = [
        r#"{"a":{"$gt":1,"$lt":{"b":2}},"$or":[{"b.c":{"$in":[1,"x",null]}},{"$not":{"d":{"$exists":false}}}]}"#,
        r#"{"tags":{"$elemMatch":{"$eq":"x"},"$allMatch":{"$regex":"^a+$"},"$size":2},"n":{"$mod":[3,1]}}"#,
        r#"{"o":{"$keyMapMatch":{"$eq":"k"}},"t":{"$type":"number"},"b":{"$beginsWith":"x"},"$nor":[{"a":1}]}"#,
        r#"{"a":{"$all":[[1]],"$nin":[2],"$ne":3,"$gte":null,"$lte":[]},"a\\.b":{"$not":{"$and":[{"$eq":1}]}}}"#,
    ];
    let words = [
        "$and",
        "$or",
        "$not",
        "$mod",
        "[0,0]",
        "[-9223372036854775808,-1]",
        "$regex",
        "(",
        "(a+)+$",
        "$size",
        "-1",
        ".",
    ];
    let docs: Vec<Value> = TEXTS
        .iter()
        .filter_map(|text| json::parse(text.as_bytes()).ok())
        .filter(|doc| doc.as_object().is_some())
        .collect();
    let collator = Collator::new();
    Fuzz::new("selectors", selectors).words(&words).run(|text| {
        let Ok(Ok(selector)) = json::parse(text).map(|value| Selector::parse(&value)) else { return };
        for doc in &docs {
            selector.matches(doc, &collator);
        }
    });
}
