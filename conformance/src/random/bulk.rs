//! Many documents in one request: `_bulk_docs`, `_bulk_get`, `_revs_diff`, `_missing_revs`, purges.

use super::documents::strings;
use super::draft::{Draft, Table};
use super::sample::{IDS, VALUES, documents};

const DOC: Table = &[
    ("_id", &["\"a\"", "\"b\"", "\"n1\"", "\"_design/x\"", "\"_local/l\"", "\"_x\"", "\"\"", "1", "\"c\""]),
    ("_rev", &["\"${rev}\"", "\"1-0000000000000000000000000000000a\"", "\"2-b\"", "\"x\"", "\"1-x\"", "null"]),
    ("_deleted", &["true", "false"]),
    (
        "_revisions",
        &[
            "{\"start\":2,\"ids\":[\"b\",\"a\"]}",
            "{\"start\":3,\"ids\":[\"c\",\"b\",\"a\"]}",
            "{\"start\":0,\"ids\":[]}",
        ],
    ),
    ("_attachments", &["{\"t\":{\"data\":\"aGk=\"}}", "{\"t\":{\"stub\":true}}", "{}"]),
    ("n", &["1", "2"]),
    ("v", VALUES),
    ("_unknown", &["1"]),
];
const REVS: &[&str] = &[
    "\"${rev}\"",
    "\"1-0000000000000000000000000000000a\"",
    "\"2-b\"",
    "\"3-c\"",
    "\"1-a\"",
    "\"x\"",
    "1",
    "\"\"",
    "\"9-0000000000000000000000000000000f\"",
];
const BODIES: &[&str] = &[
    "",
    "{",
    "[]",
    "1",
    "null",
    "{}",
    "{\"docs\":1}",
    "{\"docs\":{}}",
    "{\"docs\":[1]}",
    "{\"docs\":[{}]}",
    "{\"docs\":[]}",
    "{\"docs\":[null]}",
    "\"x\"",
    "{\"a\":1}",
    "{\"a\":[]}",
    "{\"a\":[[]]}",
    "{\"a\":{}}",
];

const MEMBERS: &[&str] = &[
    "",
    "",
    ",\"new_edits\":false",
    ",\"new_edits\":false",
    ",\"new_edits\":true",
    ",\"all_or_nothing\":true",
    ",\"new_edits\":\"false\"",
    ",\"w\":1",
];
const SOME_IDS: &[&str] = &["\"a\"", "\"b\"", "\"c\"", "\"none\"", "\"_design/x\"", "1", "\"\"", "\"_local/l\""];
const QUERIES: &[&str] = &[
    "",
    "?revs=true",
    "?attachments=true",
    "?latest=true",
    "?revs=true&latest=true",
    "?att_encoding_info=true",
    "?revs=x",
    "?conflicts=true",
    "?local_seq=true",
];
const PATHS: &[&str] =
    &["_bulk_docs", "_bulk_get", "_revs_diff", "_missing_revs", "_purge", "_bulk_docs/x", "_bulk_get/x"];
const KINDS: &[&str] = &["application/json", "application/json", "application/json", "text/plain", "multipart/mixed"];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    draft.ask("GET /${db}/a").bind("rev", "/_rev");
}

pub fn ask(draft: &mut Draft) {
    match draft.dice.below(14) {
        0..=3 => {
            let docs: Vec<String> = (0..draft.dice.below(4)).map(|_| draft.members(DOC, 4)).collect();
            let more = draft.dice.pick(MEMBERS);
            let query = draft.dice.pick(&["", "", "", "?w=1", "?new_edits=false", "?batch=ok", "?unknown=1"]);
            draft
                .ask(&format!("POST /${{db}}/_bulk_docs{query}"))
                .json(&format!("{{\"docs\":[{}]{more}}}", docs.join(",")));
            // Ids are drawn by the server unless the documents have one.
            draft.with("volatile", strings(&["/0/id", "/1/id", "/2/id"]));
            draft.ask("GET /${db}/a?conflicts=true").bind("rev", "/_rev");
        }
        4..=6 => {
            let mut docs = Vec::new();
            for _ in 0..draft.dice.below(4) {
                let id = draft.dice.pick(SOME_IDS);
                let rev =
                    if draft.dice.chance(50) { format!(",\"rev\":{}", draft.dice.pick(REVS)) } else { String::new() };
                let since =
                    draft.dice.pick(&["", "", ",\"atts_since\":[\"1-a\"]", ",\"atts_since\":[]", ",\"atts_since\":1"]);
                docs.push(format!("{{\"id\":{id}{rev}{since}}}"));
            }
            let query = draft.dice.pick(QUERIES);
            draft.ask(&format!("POST /${{db}}/_bulk_get{query}")).json(&format!("{{\"docs\":[{}]}}", docs.join(",")));
            if draft.dice.chance(20) {
                let accept = draft.dice.pick(&["multipart/mixed", "multipart/related", "*/*"]);
                draft.header("Accept", accept);
            }
        }
        7 | 8 => {
            let path = draft.dice.pick(&["_revs_diff", "_missing_revs"]);
            let body = asked(draft);
            draft.ask(&format!("POST /${{db}}/{path}")).json(&body);
        }
        9 | 10 => {
            let body = asked(draft);
            draft.ask("POST /${db}/_purge").json(&body);
            draft.ask("GET /${db}/a?conflicts=true").bind("rev", "/_rev");
        }
        11 => {
            let path = draft.dice.pick(&["_all_docs", "_changes", "_purged_infos", "_design_docs"]);
            draft.ask(&format!("GET /${{db}}/{path}"));
            if path == "_purged_infos" {
                draft.with("ignore", strings(&["/purged_infos/*"]));
            }
        }
        _ => {
            let path = draft.dice.pick(PATHS);
            let method = draft.dice.pick(&["POST", "POST", "POST", "PUT", "GET", "DELETE"]);
            draft.ask(&format!("{method} /${{db}}/{path}"));
            if method == "POST" || method == "PUT" {
                let kind = draft.dice.pick(KINDS);
                let body = draft.dice.pick(BODIES);
                draft.text(kind, body).with("volatile", strings(&["/0/id"]));
            }
        }
    }
}

/// Ids with revisions, as several requests take them.
fn asked(draft: &mut Draft) -> String {
    let mut members: Vec<(&str, String)> = Vec::new();
    for _ in 0..draft.dice.below(4) {
        let id = if draft.dice.chance(85) {
            draft.dice.pick(IDS)
        } else {
            draft.dice.pick(&["_design/x", "_local/l", "", "_x"])
        };
        let revs: Vec<&str> = (0..draft.dice.below(4)).map(|_| draft.dice.pick(REVS)).collect();
        let list = if draft.dice.chance(93) {
            format!("[{}]", revs.join(","))
        } else {
            draft.dice.text(&["1", "\"x\"", "{}", "null"])
        };
        if !members.iter().any(|(known, _)| *known == id) {
            members.push((id, list));
        }
    }
    let members: Vec<String> = members.iter().map(|(id, list)| format!("\"{id}\":{list}")).collect();
    format!("{{{}}}", members.join(","))
}
