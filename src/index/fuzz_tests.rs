//! Fuzz targets of queries and of what design documents define. See `world::fuzz`.

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
