//! Feeds with filters of every kind, from sequences of earlier answers, over documents that change meanwhile.

use super::draft::{Draft, Table};
use super::sample::documents;
use crate::json::Value;

const FILTERS: &[&str] = &[
    "filter=d/t&t=x",
    "filter=d/t",
    "filter=d/all&x=%22",
    "filter=d/gone",
    "filter=d/conflicts&conflicts=true",
    "filter=d/throws",
    "filter=d/late",
    "filter=_view&view=d/v",
    "filter=_view&view=d/r",
    "filter=_design",
    "filter=_doc_ids&doc_ids=[%22a%22,%22c%22,%22_design/d%22]",
    "filter=_doc_ids&doc_ids=[]",
    "filter=e/t",
    "filter=d/",
    "filter=d%2Ft&t=y",
    "",
    "",
];
const BODIES: &[(&str, &str)] = &[
    ("filter=_selector", "{\"selector\":{\"t\":\"x\"}}"),
    ("filter=_selector", "{\"selector\":{\"n\":{\"$gt\":2}}}"),
    ("filter=_selector", "{\"selector\":{\"_deleted\":{\"$exists\":false}}}"),
    ("filter=_selector", "{\"selector\":{\"$or\":[{\"t\":\"x\"},{\"n\":{\"$lt\":3}}]}}"),
    ("filter=_selector", "{\"selector\":{\"t\":\"x\"},\"fields\":[\"_id\",\"t\"]}"),
    ("filter=_selector", "{\"selector\":{\"t\":\"x\"},\"fields\":[]}"),
    ("filter=_selector", "{\"selector\":{\"t\":\"x\"},\"fields\":\"t\"}"),
    ("filter=_selector", "{\"selector\":{\"_id\":{\"$regex\":\"^[a-c]$\"}}}"),
    ("filter=_selector", "{\"selector\":{}}"),
    ("filter=_selector", "{}"),
    ("filter=_doc_ids", "{\"doc_ids\":[\"a\",\"b\",\"none\"]}"),
    ("filter=_doc_ids", "{\"doc_ids\":[\"_local/l\",\"_design/d\"]}"),
    ("filter=_doc_ids&doc_ids=[%22a%22]", "{\"doc_ids\":[\"b\"]}"),
    ("filter=_doc_ids", "{\"doc_ids\":[\"a\",\"a\"]}"),
    ("filter=d/t&t=x", "{}"),
    ("filter=d/body", "{\"k\":\"x\"}"),
    ("filter=_view&view=d/v", "{\"view\":\"d/r\"}"),
    ("", "{\"selector\":{\"t\":\"x\"}}"),
    ("", "{\"filter\":\"_doc_ids\",\"doc_ids\":[\"a\"]}"),
];
const QUERY: Table = &[
    ("since", &["${seq}", "${last}", "now", "0"]),
    ("limit", &["1", "2", "3", "0"]),
    ("descending", &["true", "false"]),
    ("include_docs", &["true", "false"]),
    ("style", &["all_docs", "main_only"]),
    ("conflicts", &["true"]),
    ("attachments", &["true"]),
    ("seq_interval", &["2", "3"]),
    ("timeout", &["50", "99999999999999999999", "0"]),
    ("feed", &["normal", "longpoll"]),
    ("heartbeat", &["true", "60000"]),
    ("att_encoding_info", &["true"]),
    ("doc_ids", &["[\"b\"]"]),
    ("last-event-id", &["${seq}"]),
];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    draft.ask("PUT /${db}/_design/d").json(
        "{\"filters\":{\"t\":\"function(doc, req) { return doc.t == req.query.t; }\",\"all\":\"function() { return true; }\",\"gone\":\"function(doc) { return doc._deleted; }\",\"conflicts\":\"function(doc) { return !!doc._conflicts; }\",\"throws\":\"function(doc) { throw({forbidden: 'no'}); }\",\"late\":\"function(doc) { if (doc._id > 'b') nothing(); return 1; }\",\"body\":\"function(doc, req) { return doc.t == JSON.parse(req.body).k; }\"},\"views\":{\"v\":{\"map\":\"function(doc) { if (doc.n > 2) emit(doc._id); }\"},\"r\":{\"map\":\"function(doc) { if (doc.t == 'x') emit(1, 1); }\",\"reduce\":\"_count\"}}}",
    );
    place(draft);
}

/// Remembers a sequence in the middle and the last one.
fn place(draft: &mut Draft) {
    let at = draft.dice.below(6);
    draft.ask("GET /${db}/_changes").bind("seq", &format!("/results/{at}/seq"));
    draft.ask("GET /${db}/_changes").bind("last", "/last_seq");
}

pub fn ask(draft: &mut Draft) {
    match draft.dice.below(12) {
        0..=4 => {
            let filter = draft.dice.pick(FILTERS);
            let query = draft.query(QUERY, 4);
            draft.ask(&format!("GET /${{db}}/_changes{}", joined(&query, filter)));
            waits(draft);
        }
        5 | 6 => {
            let (filter, body) = draft.dice.pick(BODIES);
            let query = draft.query(QUERY, 3);
            draft.ask(&format!("POST /${{db}}/_changes{}", joined(&query, filter))).json(body);
            waits(draft);
        }
        7 | 8 => stream(draft),
        9 => place(draft),
        _ => {
            let id = draft.dice.pick(&["a", "b", "n1"]);
            draft.ask(&format!("GET /${{db}}/{id}")).bind("was", "/_rev");
            match draft.dice.below(3) {
                0 => _ = draft.ask(&format!("DELETE /${{db}}/{id}?rev=${{was}}")),
                1 => _ = draft.ask(&format!("PUT /${{db}}/{id}?rev=${{was}}")).json("{\"t\":\"x\",\"n\":9}"),
                _ => _ = draft.ask(&format!("PUT /${{db}}/{id}/f?rev=${{was}}")).text("text/plain", "hello"),
            }
        }
    }
}

/// A feed that ends by its timeout, or by its limit.
fn stream(draft: &mut Draft) {
    let feed = draft.dice.pick(&["continuous", "eventsource", "longpoll"]);
    let (filter, query) = (draft.dice.pick(FILTERS), draft.query(QUERY, 2));
    let query = joined(&query, filter);
    let mark = if query.is_empty() { '?' } else { '&' };
    draft.ask(&format!("GET /${{db}}/_changes{query}{mark}feed={feed}&timeout=50"));
    match feed {
        "continuous" => _ = draft.with("lines", Value::Bool(true)),
        "eventsource" => {
            draft.with("events", Value::Bool(true)).with("no_body", Value::Bool(true));
            if draft.dice.chance(30) {
                draft.header("Last-Event-ID", "${seq}");
            }
        }
        _ => {}
    }
    waits(draft);
}

/// A feed that beats or waits for long is cut off by the client.
fn waits(draft: &mut Draft) {
    draft.with("open", Value::Bool(true)).with("timeout_s", Value::Number("2".to_owned()));
}

fn joined(query: &str, filter: &str) -> String {
    match (query.is_empty(), filter.is_empty()) {
        (_, true) => query.to_owned(),
        (true, false) => format!("?{filter}"),
        (false, false) => format!("{query}&{filter}"),
    }
}
