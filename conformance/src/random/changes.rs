//! The feed of changes: every parameter, filters, the forms of the feed that end by themselves.

use super::documents::strings;
use super::draft::{Draft, Table};
use super::sample::documents;
use crate::json::Value;

const QUERY: Table = &[
    ("since", &["0", "now", "${seq}", "1"]),
    ("limit", &["0", "1", "2", "3", "100"]),
    ("descending", &["true", "false"]),
    ("include_docs", &["true", "false"]),
    ("conflicts", &["true", "false"]),
    ("attachments", &["true"]),
    ("att_encoding_info", &["true"]),
    ("style", &["main_only", "all_docs", "x"]),
    (
        "filter",
        &["_doc_ids", "_selector", "_design", "_view", "d/t", "d/none", "none/x", "d/throws", "x", "d/t/u", "_x"],
    ),
    ("view", &["d/v", "d/none", "v"]),
    ("doc_ids", &["[\"a\",\"b\"]", "[]", "\"a\"", "[1]"]),
    ("doc_id", &["a"]),
    ("t", &["x", "y"]),
    ("seq_interval", &["1", "2", "3"]),
    ("last-event-id", &["0", "${seq}"]),
    ("timeout", &["100"]),
    ("heartbeat", &["100000"]),
    ("feed", &["normal", "x"]),
    ("include_deleted", &["false"]),
    ("unknown", &["1"]),
];

const BODIES: &[&str] = &[
    "{\"doc_ids\":[\"a\",\"c\"]}",
    "{\"selector\":{\"t\":\"x\"}}",
    "{}",
    "{\"doc_ids\":1}",
    "{\"selector\":1}",
    "{\"selector\":{\"$x\":1}}",
    "{\"selector\":{\"t\":\"x\"},\"fields\":[\"n\"]}",
    "{\"since\":\"now\"}",
    "[]",
    "1",
    "{",
    "",
    "{\"doc_ids\":[\"a\"],\"limit\":1}",
    "{\"selector\":{\"_id\":{\"$gt\":\"b\"}}}",
    "{\"selector\":{\"_deleted\":true}}",
];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    let functions = "{\"filters\":{\"t\":\"function(doc, req) { return doc.t == req.query.t; }\",\"throws\":\"function(doc) { throw({forbidden: 'no'}); }\"},\"views\":{\"v\":{\"map\":\"function(doc) { if (doc.n > 2) emit(doc._id); }\"}}}";
    draft.ask("PUT /${db}/_design/d").json(functions);
    let limit = draft.dice.below(6);
    draft.ask(&format!("GET /${{db}}/_changes?limit={limit}")).bind("seq", "/last_seq");
}

pub fn ask(draft: &mut Draft) {
    let query = draft.query(QUERY, 5);
    match draft.dice.below(10) {
        0..=4 => _ = draft.ask(&format!("GET /${{db}}/_changes{query}")),
        5 | 6 => {
            let body = draft.dice.pick(BODIES);
            let filter = draft.dice.pick(&["", "", "filter=_doc_ids", "filter=_selector"]);
            let joined = match (query.is_empty(), filter.is_empty()) {
                (_, true) => query,
                (true, false) => format!("?{filter}"),
                (false, false) => format!("{query}&{filter}"),
            };
            draft.ask(&format!("POST /${{db}}/_changes{joined}")).text("application/json", body);
        }
        7 => {
            let feed = draft.dice.pick(&["continuous", "longpoll", "eventsource"]);
            let mark = if query.is_empty() { '?' } else { '&' };
            draft.ask(&format!("GET /${{db}}/_changes{query}{mark}feed={feed}&timeout=50"));
            match feed {
                "continuous" => _ = draft.with("lines", Value::Bool(true)),
                "eventsource" => _ = draft.with("events", Value::Bool(true)).with("no_body", Value::Bool(true)),
                _ => {}
            }
            // A feed that beats for ever is cut off by the client.
            draft.with("open", Value::Bool(true)).with("timeout_s", Value::Number("2".to_owned()));
        }
        8 => {
            let id = draft.dice.pick(&["a", "b", "c", "n1"]);
            draft.ask(&format!("GET /${{db}}/{id}")).bind("was", "/_rev");
            draft.ask(&format!("PUT /${{db}}/{id}?rev=${{was}}")).json("{\"t\":\"x\",\"n\":9}");
            draft.with("volatile", strings(&[]));
        }
        _ => {
            let method = draft.dice.pick(&["PUT", "DELETE", "HEAD", "POST"]);
            draft.ask(&format!("{method} /${{db}}/_changes"));
            if draft.dice.chance(30) {
                draft.ask("GET /${db}/_changes?filter=_view&view=d/v").header("Last-Event-ID", "0");
            }
        }
    }
}
