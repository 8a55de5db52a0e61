//! `_all_docs`, `_design_docs`, `_local_docs`: every parameter by GET and POST, several queries in one.

use super::draft::{Draft, Table};
use super::sample::documents;

const KEYS: &[&str] = &[
    "\"a\"",
    "\"b\"",
    "\"c\"",
    "\"d\"",
    "\"x y\"",
    "\"_design/d\"",
    "\"_local/l\"",
    "\"zz\"",
    "1",
    "null",
    "[\"a\"]",
    "{}",
    "\"Ä\"",
    "\"10\"",
    "\"\"",
];
const QUERY: Table = &[
    ("key", KEYS),
    ("keys", &["[\"a\",\"b\"]", "[]", "[\"zz\",\"a\",\"a\"]", "[1,null]", "[\"_design/d\",\"_local/l\"]"]),
    ("startkey", KEYS),
    ("start_key", KEYS),
    ("endkey", KEYS),
    ("end_key", KEYS),
    ("startkey_docid", &["a", "b"]),
    ("endkey_docid", &["a", "b"]),
    ("start_key_doc_id", &["a"]),
    ("inclusive_end", &["true", "false"]),
    ("descending", &["true", "false"]),
    ("include_docs", &["true", "false"]),
    ("conflicts", &["true", "false"]),
    ("attachments", &["true", "false"]),
    ("att_encoding_info", &["true", "false"]),
    ("limit", &["0", "1", "2", "3", "5"]),
    ("skip", &["0", "1", "2", "20"]),
    ("update_seq", &["true", "false"]),
    ("deleted", &["true", "false", "ok"]),
    ("r", &["1"]),
    ("reduce", &["true", "false"]),
    ("group", &["true", "false"]),
    ("group_level", &["1", "0"]),
    ("stale", &["ok", "update_after"]),
    ("update", &["true", "false", "lazy"]),
    ("stable", &["true", "false"]),
    ("sorted", &["true", "false"]),
    ("partition", &["a"]),
    ("direction", &["fwd", "rev"]),
    ("callback", &["f"]),
    ("unknown", &["1"]),
];

const BODY: Table = &[
    ("key", KEYS),
    ("keys", &["[\"a\",\"b\"]", "[]", "[\"zz\",\"a\",\"a\"]", "[1,null]", "\"a\"", "[\"_design/d\"]"]),
    ("start_key", KEYS),
    ("startkey", KEYS),
    ("end_key", KEYS),
    ("inclusive_end", &["true", "false", "\"true\""]),
    ("descending", &["true", "false", "\"true\""]),
    ("include_docs", &["true", "false"]),
    ("conflicts", &["true"]),
    ("limit", &["0", "1", "2", "\"2\"", "2.0"]),
    ("skip", &["0", "1", "\"1\"", "2.5"]),
    ("update_seq", &["true"]),
    ("reduce", &["true", "false"]),
    ("group_level", &["1"]),
    ("sorted", &["false"]),
    ("stable", &["true"]),
    ("update", &["\"lazy\"", "\"false\"", "true"]),
    ("stale", &["\"ok\""]),
    ("unknown", &["1"]),
];

const BODIES: &[&str] = &[
    "",
    "{",
    "[]",
    "1",
    "null",
    "{\"queries\":1}",
    "{\"queries\":[]}",
    "{\"queries\":[1]}",
    "{\"queries\":{}}",
    "{\"keys\":{}}",
];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    draft.ask("PUT /${db}/_design/d").json("{\"language\":\"javascript\"}");
    draft.ask("PUT /${db}/_local/l").json("{\"x\":1}");
}

pub fn ask(draft: &mut Draft) {
    let list = if draft.dice.chance(65) { "_all_docs" } else { draft.dice.pick(&["_design_docs", "_local_docs"]) };
    match draft.dice.below(10) {
        0..=5 => {
            let query = draft.query(QUERY, 5);
            draft.ask(&format!("GET /${{db}}/{list}{query}"));
        }
        6 | 7 => {
            let query = draft.query(QUERY, 2);
            let body = draft.members(BODY, 4);
            draft.ask(&format!("POST /${{db}}/{list}{query}")).json(&body);
        }
        8 => {
            let queries: Vec<String> = (0..draft.dice.below(4)).map(|_| draft.members(BODY, 3)).collect();
            let query = draft.query(QUERY, 1);
            draft
                .ask(&format!("POST /${{db}}/{list}/queries{query}"))
                .json(&format!("{{\"queries\":[{}]}}", queries.join(",")));
        }
        _ => {
            let body = draft.dice.pick(BODIES);
            let method = draft.dice.pick(&["POST", "PUT", "DELETE", "HEAD", "PATCH"]);
            let tail = draft.dice.pick(&["", "", "/queries", "/x"]);
            draft.ask(&format!("{method} /${{db}}/{list}{tail}"));
            if method == "POST" || method == "PUT" {
                let kind = draft.dice.pick(&["application/json", "application/json", "text/plain"]);
                draft.text(kind, body);
            }
        }
    }
}

/// The parameters of a view query, as a query.
pub fn view_query(draft: &mut Draft, most: usize) -> String {
    draft.query(QUERY, most)
}
