//! Single documents: reads and writes with every parameter, conflicts, copies.

use super::draft::{Draft, Table};
use super::sample::{IDS, VALUES, database};

const READ: Table = &[
    ("rev", &["${rev}", "1-0000000000000000000000000000000a", "2-b", "1-967a00dff5e02add41819138abb3284d", "1-x"]),
    ("revs", &["true", "false"]),
    ("revs_info", &["true", "false"]),
    ("conflicts", &["true", "false"]),
    ("deleted_conflicts", &["true", "false"]),
    ("meta", &["true", "false"]),
    ("local_seq", &["true", "false"]),
    ("attachments", &["true", "false"]),
    ("att_encoding_info", &["true", "false"]),
    ("atts_since", &["[\"${rev}\"]", "[]", "[\"1-a\"]", "[1]"]),
    ("open_revs", &["all", "[]", "[\"${rev}\"]", "[\"1-0000000000000000000000000000000a\",\"3-c\"]", "[\"x\"]", "[1]"]),
    ("latest", &["true", "false"]),
    ("new_edits", &["true", "false"]),
    ("r", &["1", "2"]),
    ("unknown", &["1"]),
];
const WRITE: Table = &[
    ("rev", &["${rev}", "1-a", "2-0000000000000000000000000000000b", "x"]),
    ("new_edits", &["true", "false"]),
    ("batch", &["ok", "no"]),
    ("w", &["1", "2"]),
];
const BODY: Table = &[
    ("_id", &["\"a\"", "\"b\"", "\"_x\"", "\"_design/d\"", "\"_local/l\"", "\"\"", "1"]),
    ("_rev", &["\"${rev}\"", "\"1-0000000000000000000000000000000a\"", "\"1-x\"", "\"x\"", "1"]),
    ("_deleted", &["true", "false"]),
    (
        "_attachments",
        &[
            "{}",
            "{\"t\":{\"data\":\"aGk=\"}}",
            "{\"t\":{\"stub\":true}}",
            "{\"t\":{\"data\":\"!\"}}",
            "{\"_t\":{\"data\":\"aGk=\"}}",
            "{\"t\":1}",
            "{\"t\":{\"data\":\"aGk=\",\"content_type\":\"text/plain\",\"revpos\":9}}",
        ],
    ),
    (
        "_revisions",
        &[
            "{\"start\":2,\"ids\":[\"b\",\"a\"]}",
            "{\"start\":1,\"ids\":[\"0000000000000000000000000000000a\"]}",
            "{\"start\":\"1\",\"ids\":[]}",
            "{\"start\":1}",
            "{\"ids\":[\"a\"]}",
            "{\"start\":1,\"ids\":[\"a\",\"b\"]}",
        ],
    ),
    ("_conflicts", &["[]", "[\"1-a\"]"]),
    ("_revs_info", &["[]"]),
    ("_local_seq", &["1"]),
    ("_deleted_conflicts", &["[]"]),
    ("_unknown", &["1"]),
    ("n", &["1", "2"]),
    ("v", VALUES),
];
const METHODS: &[&str] = &["PUT", "POST", "DELETE", "PATCH", "HEAD", "COPY", "OPTIONS"];

const ACCEPTS: &[&str] = &[
    "*/*",
    "multipart/mixed",
    "multipart/related",
    "application/json, multipart/mixed",
    "text/plain",
    "application/json;q=0.5, multipart/*",
];
const DESTINATIONS: &[&str] = &[
    "z",
    "a",
    "a?rev=${rev}",
    "_design/z",
    "_local/z",
    "b?rev=1-a",
    "",
    "%zz",
    "z y",
    "b?x=1",
    "http://host/z",
    "/z",
    "_x",
];
const BODIES: &[&str] = &[
    "",
    "{",
    "[]",
    "1",
    "null",
    "{}",
    "{\"a\":1,}",
    "{\"a\":1}{",
    "{\"a\":\"\\ud800\"}",
    "{\"a\":1e400}",
    "{\"a\":1,\"a\":2}",
    "\"x\"",
    "{\"\":1}",
];
const KINDS: &[&str] =
    &["application/json", "text/plain", "application/json;charset=utf-8", "application/x-www-form-urlencoded"];

pub fn begin(draft: &mut Draft) {
    database(draft);
    draft.ask("PUT /${db}/a").json("{\"n\":1}").bind("rev", "/rev");
    if draft.dice.chance(50) {
        draft.ask("PUT /${db}/a").json("{\"n\":2,\"_rev\":\"${rev}\",\"_attachments\":{\"t\":{\"content_type\":\"text/plain\",\"data\":\"aGVsbG8gaGVsbG8gaGVsbG8=\"}}}").bind("rev", "/rev");
    }
    if draft.dice.chance(60) {
        draft
            .ask("PUT /${db}/a?new_edits=false")
            .json("{\"_rev\":\"3-c\",\"_revisions\":{\"start\":3,\"ids\":[\"c\",\"b\",\"a\"]},\"n\":3}");
    }
    if draft.dice.chance(40) {
        draft
            .ask("PUT /${db}/a?new_edits=false")
            .json("{\"_rev\":\"1-0000000000000000000000000000000a\",\"_deleted\":true}");
    }
}

pub fn ask(draft: &mut Draft) {
    let id = if draft.dice.chance(60) {
        "a".to_owned()
    } else {
        draft.dice.text(&["b", "c", "_x", "_design/d", "_design%2Fd", "_local/l", "%C3%A4", "a%2Fb", "a/b", "A", ""])
    };
    match draft.dice.below(10) {
        0..=3 => {
            let query = draft.query(READ, 4);
            draft.ask(&format!("GET /${{db}}/{id}{query}"));
            if draft.dice.chance(25) {
                let accept = draft.dice.pick(ACCEPTS);
                draft.header("Accept", accept);
            }
            if draft.dice.chance(10) {
                draft.header("If-None-Match", "\"${rev}\"");
            }
        }
        4 | 5 => {
            let query = draft.query(WRITE, 2);
            let body = draft.members(BODY, 4);
            draft.ask(&format!("PUT /${{db}}/{id}{query}")).json(&body);
            if draft.dice.chance(15) {
                draft.header("If-Match", "${rev}");
            }
            if draft.dice.chance(50) && id == "a" {
                draft.ask("GET /${db}/a").bind("rev", "/_rev");
            }
        }
        6 => {
            let query = draft.query(WRITE, 2);
            let body = draft.members(BODY, 4);
            // The id is drawn by the server unless the body has one.
            draft.ask(&format!("POST /${{db}}{query}")).json(&body).with("volatile", strings(&["/id"]));
            draft.with("volatile_headers", strings(&["location"]));
        }
        7 => {
            let query = draft.query(WRITE, 2);
            draft.ask(&format!("DELETE /${{db}}/{id}{query}"));
            if draft.dice.chance(30) {
                draft.header("If-Match", "${rev}");
            }
            draft.ask("GET /${db}/a").bind("rev", "/_rev");
        }
        8 => {
            let query = draft.query(READ, 1);
            let to = draft.dice.pick(DESTINATIONS);
            draft.ask(&format!("COPY /${{db}}/{id}{query}"));
            if draft.dice.chance(92) {
                draft.header("Destination", to);
            }
        }
        _ => other(draft),
    }
}

/// Methods and bodies that make no sense, and paths below.
fn other(draft: &mut Draft) {
    let method = draft.dice.pick(METHODS);
    let id = draft.dice.pick(IDS).replace(' ', "%20");
    let query = draft.query(READ, 2);
    draft.ask(&format!("{method} /${{db}}/{}{query}", super::draft::escaped(&id).replace("%2520", "%20")));
    if ["PUT", "POST"].contains(&method) {
        let body = draft.dice.pick(BODIES);
        let kind = draft.dice.pick(KINDS);
        draft.text(kind, body).with("volatile", strings(&["/id"]));
    }
}

/// A JSON list of strings.
pub fn strings(items: &[&str]) -> crate::json::Value {
    crate::json::Value::Array(items.iter().map(|i| (*i).into()).collect())
}
