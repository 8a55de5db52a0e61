//! What belongs to a database as a whole: local documents, security, limits, maintenance, names.

use super::documents::strings;
use super::draft::{Draft, Table};
use super::sample::database;

const LOCAL: Table = &[
    ("_id", &["\"_local/l\"", "\"l\"", "\"x\""]),
    ("_rev", &["\"0-1\"", "\"0-2\"", "\"1-a\"", "\"x\"", "1"]),
    ("_deleted", &["true", "false"]),
    ("_attachments", &["{\"t\":{\"data\":\"aGk=\"}}"]),
    ("_unknown", &["1"]),
    ("n", &["1", "{\"a\":[]}"]),
];
const SECURITY: &[&str] = &[
    "{}",
    "[]",
    "1",
    "",
    "{",
    "{\"admins\":{\"names\":[\"x\"],\"roles\":[]}}",
    "{\"admins\":[]}",
    "{\"admins\":{\"names\":1}}",
    "{\"members\":{\"roles\":[\"r\"]}}",
    "{\"members\":{\"roles\":[1]}}",
    "{\"admins\":{\"names\":[\"x\"],\"roles\":[\"_admin\"]},\"members\":{\"names\":[],\"roles\":[\"_admin\"]},\"more\":1}",
    "{\"cloudant\":{\"nobody\":[\"_reader\"]}}",
    "null",
    "{\"admins\":{\"names\":[null]}}",
];
const PATHS: &[&str] = &[
    "",
    "_security",
    "_revs_limit",
    "_purged_infos_limit",
    "_compact",
    "_compact/d",
    "_view_cleanup",
    "_ensure_full_commit",
    "_shards",
    "_shards/a",
    "_sync_shards",
    "_local/l",
    "_local_docs",
    "_local",
    "_local/",
    "_auto_purge",
    "_unknown",
    "_design",
    "_design/",
    "_design/d/",
    "_design/d/_unknown",
    "_time_seq",
    "_temp_view",
    "_index_cleanup",
    "_search_cleanup",
    "_nouveau_cleanup",
    "_purged_infos",
    "_partition/a",
];

const QUERIES: &[&str] = &[
    "",
    "?rev=0-1",
    "?rev=x",
    "?rev=0-2",
    "?attachments=true",
    "?revs=true",
    "?conflicts=true",
    "?open_revs=all",
    "?local_seq=true",
    "?revs_info=true",
    "?meta=true",
];
const QUERIES_2: &[&str] = &[
    "",
    "?limit=1",
    "?include_docs=true",
    "?key=\"_local/l\"",
    "?keys=[\"_local/l\",\"x\"]",
    "?descending=true",
    "?skip=1",
    "?startkey=\"_local/m\"",
    "?update_seq=true",
];
const BODIES: &[&str] =
    &["1", "2", "1000", "0", "-1", "1.5", "\"5\"", "null", "", "x", "[]", "99999999999999999999", "10 "];
const NAMES: &[&str] = &[
    "/A",
    "/1a",
    "/_x",
    "/a%2Fb",
    "/a+b",
    "/${db2}",
    "/${db2}",
    "/${db2}/",
    "/a.b",
    "/a%20b",
    "/ä",
    "/${db2}?q=0",
    "/${db2}?q=x",
    "/${db2}?n=x",
    "/${db2}?n=0",
    "/${db2}?partitioned=x",
    "/${db2}?q=-1",
    "/${db2}?placement=x",
    "/${db2}?engine=x",
    "/${db2}?unknown=1",
    "/${db2}?partitioned=true&q=2",
    "/${db2}?q=1.5",
];

pub fn begin(draft: &mut Draft) {
    database(draft);
    draft.ask("PUT /${db}/a").json("{\"n\":1}").bind("rev", "/rev");
    draft.ask("PUT /${db}/_local/l").json("{\"n\":1}");
}

pub fn ask(draft: &mut Draft) {
    match draft.dice.below(12) {
        0..=2 => {
            let body = draft.members(LOCAL, 4);
            let query = draft.dice.pick(&["", "", "?rev=0-1", "?new_edits=false", "?batch=ok", "?rev=x", "?rev=0-2"]);
            draft.ask(&format!("PUT /${{db}}/_local/l{query}")).json(&body);
        }
        3 => {
            let query = draft.dice.pick(QUERIES);
            let method = draft.dice.pick(&["GET", "GET", "HEAD", "DELETE", "COPY"]);
            let id = draft.dice.pick(&["l", "l", "none", "l/x", "l%2Fx", "_x"]);
            draft.ask(&format!("{method} /${{db}}/_local/{id}{query}"));
            if method == "COPY" {
                let to = draft.dice.pick(&["_local/m", "b", "_design/e"]);
                draft.header("Destination", to);
            }
        }
        4 => {
            let query = draft.dice.pick(QUERIES_2);
            draft.ask(&format!("GET /${{db}}/_local_docs{}", query.replace('"', "%22")));
        }
        5 | 6 => {
            let body = draft.dice.pick(SECURITY);
            draft.ask("PUT /${db}/_security").text("application/json", body);
            draft.ask("GET /${db}/_security");
        }
        7 => {
            let path = draft.dice.pick(&["_revs_limit", "_purged_infos_limit"]);
            let body = draft.dice.pick(BODIES);
            draft.ask(&format!("PUT /${{db}}/{path}")).text("application/json", body);
            draft.ask(&format!("GET /${{db}}/{path}"));
        }
        8 => {
            let name = draft.dice.pick(NAMES);
            draft.ask(&format!("PUT {name}"));
            let method = draft.dice.pick(&["GET", "HEAD", "DELETE"]);
            draft.ask(&format!("{method} {}", name.split('?').next().unwrap_or_default()));
            sizes(draft);
            draft.ask("DELETE /${db2}");
        }
        9 => {
            draft.ask("GET /${db}");
            sizes(draft);
        }
        _ => other(draft),
    }
}

/// Methods and bodies that make no sense, and paths below.
fn other(draft: &mut Draft) {
    let (method, path) =
        (draft.dice.pick(&["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "COPY"]), draft.dice.pick(PATHS));
    // The database itself stays.
    let method = if method == "DELETE" && path.is_empty() { "GET" } else { method };
    draft.ask(&format!("{method} /${{db}}{}{path}", if path.is_empty() { "" } else { "/" }));
    if method == "POST" || method == "PUT" {
        let kind = draft.dice.pick(&["application/json", "application/json", "text/plain"]);
        let body = draft.dice.pick(&["{}", "", "{", "1", "[]", "{\"x\":1}"]);
        draft.text(kind, body).with("volatile", strings(&["/id"])).with("volatile_headers", strings(&["location"]));
    }
    if path.starts_with("_shards") {
        draft.with("ignore", strings(&["/shards", "/nodes", "/range"]));
    }
    if path.is_empty() {
        sizes(draft);
    }
}

/// Marks what an answer about a database tells of its files.
fn sizes(draft: &mut Draft) {
    draft.with("ignore", strings(&["/sizes", "/instance_start_time", "/cluster", "/props/partitioned"]));
}
