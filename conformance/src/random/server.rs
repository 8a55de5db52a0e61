//! What belongs to no database: identity, sessions, ids, tasks, unknown paths, headers of any kind.

use super::documents::strings;
use super::draft::Draft;
use super::sample::database;

const PATHS: &[&str] = &[
    "/",
    "/_up",
    "/_uuids",
    "/_session",
    "/_membership",
    "/_utils",
    "/favicon.ico",
    "/_all_dbs",
    "/_dbs_info",
    "/_active_tasks",
    "/_db_updates",
    "/_replicate",
    "/_scheduler/jobs",
    "/_scheduler/docs",
    "/_node/_local",
    "/_node/_local/_stats",
    "/_node/_local/_system",
    "/_node/_local/_config/none",
    "/_node/_local/_config/none/none",
    "/_node/nobody@127.0.0.1/_stats",
    "/_reshard",
    "/_reshard/jobs",
    "/_reshard/state",
    "/_cluster_setup",
    "/_unknown",
    "/_log",
    "/_stats",
    "/_config",
    "/_restart",
    "/_node/_local/_versions",
    "/_search_analyze",
    "/_nouveau_analyze",
    "/_oauth",
    "/_replicator",
    "/_users",
    "/_node",
    "/_node/_local/_unknown",
    "/_scheduler",
    "/_scheduler/unknown",
    "/_reshard/unknown",
    "/_uuids/x",
    "/_up/x",
    "/_session/x",
    "/_node/_local/_config/chttpd/port",
    "/_node/_local/_config/chttpd",
    "/_node/_local/_config",
    "/_global_changes",
    "/_all_dbs/x",
    "/_active_tasks/x",
    "/%20",
    "/..",
    "/_utils/",
    "/_reshard/jobs/x",
    "/_node/_local/_stats/couchdb",
    "/_node/_local/_stats/x/y",
    "/_prometheus",
    "/_node/_local/_prometheus",
];

const QUERIES: &[&str] = &[
    "",
    "?count=3",
    "?count=0",
    "?count=-1",
    "?count=x",
    "?count=1001",
    "?count=",
    "?count=1.5",
    "?unknown=1",
    "?count=2&count=3",
];
const BODIES: &[&str] = &[
    "{\"keys\":[\"${db}\",\"none\"]}",
    "{\"keys\":[]}",
    "{\"keys\":1}",
    "{}",
    "{",
    "[]",
    "{\"keys\":[1]}",
    "{\"keys\":[\"_x\"]}",
];
const PATHS_2: &[&str] = &[
    "/${db}",
    "/${db}/_all_docs",
    "/${db}/_security",
    "/_all_dbs",
    "/_node/_local/_config",
    "/${db}/_find",
    "/_users/_all_docs",
    "/${db}/_design/d",
    "/_active_tasks",
    "/_session",
];
const BODIES_2: &[(&str, &str)] =
    &[("application/json", "{}"), ("application/json", "{"), ("text/plain", "x"), ("application/json", "[]")];
const BODIES_3: &[(&str, &str)] = &[
    ("application/json", "{\"name\":\"${admin}\",\"password\":\"${password}\"}"),
    ("application/x-www-form-urlencoded", "name=${admin}&password=${password}"),
    ("application/json", "{\"name\":\"x\",\"password\":\"y\"}"),
    ("application/json", "{}"),
    ("application/json", "{"),
    ("application/json", "{\"name\":1}"),
    ("text/plain", "x"),
    ("application/json", "[]"),
    ("application/x-www-form-urlencoded", "name="),
];
const SOME_VALUES: &[(&str, &str)] = &[
    ("Accept", "text/html"),
    ("Accept", "x"),
    ("Accept", ""),
    ("Authorization", "Basic x"),
    ("Authorization", "Basic eDp5"),
    ("Authorization", "Bearer x"),
    ("Authorization", "x"),
    ("Cookie", "AuthSession=x"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Couch-Full-Commit", "true"),
    ("Origin", "http://x"),
    ("X-Auth-CouchDB-UserName", "x"),
];

pub fn begin(draft: &mut Draft) {
    database(draft);
}

pub fn ask(draft: &mut Draft) {
    match draft.dice.below(10) {
        0..=4 => {
            let (method, path) = (
                draft.dice.pick(&["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "COPY", "OPTIONS"]),
                draft.dice.pick(PATHS),
            );
            // Nothing that changes the server, and only what is refused is compared: the rest tells of each server's
            // own state.
            let touches = method != "GET"
                && method != "HEAD"
                && (path.contains("_restart")
                    || path.contains("_config")
                    || path == "/_users"
                    || path == "/_replicator"
                    || path == "/_global_changes"
                    || path.contains("_cluster_setup")
                    || path.contains("_reshard")
                    || path.contains("/_node"));
            let method = if touches { "GET" } else { method };
            draft.ask(&format!("{method} {path}"));
            if method == "POST" || method == "PUT" {
                let (kind, body) = draft.dice.pick(BODIES_2);
                draft.text(kind, body);
            }
            draft
                .with("no_body", crate::json::Value::Bool(path != "/_unknown" && method == "GET"))
                .with("ignore_headers", strings(&["etag", "content-md5", "www-authenticate"]));
        }
        5 => {
            let query = draft.dice.pick(QUERIES);
            draft
                .ask(&format!("GET /_uuids{query}"))
                .with("volatile", strings(&["/uuids/0", "/uuids/1", "/uuids/2"]))
                .with("volatile_etag", crate::json::Value::Bool(true));
        }
        6 => {
            let (kind, body) = draft.dice.pick(BODIES_3);
            let query = draft.dice.pick(&["", "", "?next=/x", "?next=http://x/", "?basic=true"]);
            draft.ask(&format!("POST /_session{query}")).text(kind, body).with("as", "none".into());
        }
        7 => {
            let body = draft.dice.pick(BODIES);
            draft
                .ask("POST /_dbs_info")
                .text("application/json", body)
                .with("ignore", strings(&["/0/info/sizes", "/0/info/cluster", "/0/info/instance_start_time"]));
        }
        8 => {
            let path = draft.dice.pick(&["/${db}", "/${db}/_all_docs", "/_all_dbs", "/${db}/a"]);
            let query = draft.dice.pick(&["", "?limit=1", "?limit=0", "?skip=x", "?startkey=x"]);
            draft.ask(&format!("GET {path}{query}"));
            let (header, value) = draft.dice.pick(SOME_VALUES);
            draft
                .header(header, value)
                .with("no_body", crate::json::Value::Bool(path == "/_all_dbs" || path == "/${db}"));
        }
        _ => other(draft),
    }
}

/// Methods and bodies that make no sense, and paths below.
fn other(draft: &mut Draft) {
    let path = draft.dice.pick(PATHS_2);
    let method = draft.dice.pick(&["GET", "PUT", "POST", "DELETE"]);
    let who = draft.dice.pick(&["none", "x:y", "none"]);
    draft.ask(&format!("{method} {path}")).with("as", who.into());
    if method != "GET" {
        draft.json("{\"selector\":{}}");
    }
}
