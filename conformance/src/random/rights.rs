//! What an account may do in a database: who is told what, and in which order mistakes are told.

use super::documents::strings;
use super::draft::Draft;
use super::sample::database;
use crate::json::Value;

const SECURITY: &[&str] = &[
    "{}",
    "{\"members\":{\"names\":[\"${user}\"],\"roles\":[]},\"admins\":{\"names\":[],\"roles\":[]}}",
    "{\"members\":{\"names\":[],\"roles\":[\"r\"]},\"admins\":{\"names\":[],\"roles\":[]}}",
    "{\"members\":{\"names\":[],\"roles\":[\"none\"]},\"admins\":{\"names\":[\"${user}\"],\"roles\":[]}}",
    "{\"members\":{\"names\":[\"other\"],\"roles\":[]},\"admins\":{\"names\":[],\"roles\":[\"r\"]}}",
    "{\"members\":{\"names\":[],\"roles\":[]},\"admins\":{\"names\":[],\"roles\":[]}}",
    "{\"members\":{\"names\":[],\"roles\":[\"_admin\"]},\"admins\":{\"names\":[],\"roles\":[\"_admin\"]}}",
    "{\"members\":{\"roles\":[\"none\"]}}",
    "{\"admins\":{\"names\":[\"${user}\"]}}",
];
const GETS: &[&str] = &[
    "",
    "/a",
    "/a/f",
    "/none",
    "/_all_docs",
    "/_changes",
    "/_design/d",
    "/_design/d/_view/v",
    "/_design/d/_info",
    "/_design/d/_show/s",
    "/_design/d/_list/l/v",
    "/_design/d/_rewrite/x",
    "/_design/none/_view/v",
    "/_local/l",
    "/_local_docs",
    "/_design_docs",
    "/_security",
    "/_revs_limit",
    "/_purged_infos_limit",
    "/_purged_infos",
    "/_shards",
    "/_shards/a",
    "/_index",
    "/_partition/p",
    "/_unknown",
    "/_design/d/_unknown",
];
/// Method, path and body; what writes comes often with a mistake.
const WRITES: &[(&str, &str, &str)] = &[
    ("PUT", "/n", "{\"n\":1}"),
    ("PUT", "/n", "{"),
    ("PUT", "/_x", "{}"),
    ("PUT", "/_design/e", "{\"views\":{}}"),
    ("PUT", "/_design/e", "{\"views\":1}"),
    ("PUT", "/_local/m", "{\"n\":1}"),
    ("PUT", "/a/g", "x"),
    ("DELETE", "/a", ""),
    ("DELETE", "/a?rev=1-x", ""),
    ("DELETE", "/_design/d?rev=1-x", ""),
    ("DELETE", "/_local/l", ""),
    ("COPY", "/a", ""),
    ("POST", "", "{\"n\":1}"),
    ("POST", "", "["),
    ("POST", "/_bulk_docs", "{\"docs\":[{\"_id\":\"k\"},{\"_id\":\"_design/k\"},{\"_id\":\"_local/k\"}]}"),
    ("POST", "/_bulk_docs", "{\"docs\":1}"),
    ("POST", "/_bulk_docs", "{\"new_edits\":false,\"docs\":[{\"_id\":\"_design/k\",\"_rev\":\"1-a\"}]}"),
    ("POST", "/_bulk_get", "{\"docs\":[{\"id\":\"a\"}]}"),
    ("POST", "/_find", "{\"selector\":{}}"),
    ("POST", "/_find", "{}"),
    ("POST", "/_explain", "{\"selector\":{}}"),
    ("POST", "/_index", "{\"index\":{\"fields\":[\"n\"]},\"ddoc\":\"i\"}"),
    ("POST", "/_index", "{}"),
    ("DELETE", "/_index/i/json/x", ""),
    ("POST", "/_index/_bulk_delete", "{\"docids\":[\"i\"]}"),
    ("POST", "/_revs_diff", "{\"a\":[\"1-a\"]}"),
    ("POST", "/_missing_revs", "{\"a\":[\"1-a\"]}"),
    ("POST", "/_purge", "{\"a\":[\"1-a\"]}"),
    ("POST", "/_purge", "["),
    ("POST", "/_compact", "{}"),
    ("POST", "/_compact", ""),
    ("POST", "/_compact/d", "{}"),
    ("POST", "/_compact/none", "{}"),
    ("POST", "/_view_cleanup", "{}"),
    ("POST", "/_ensure_full_commit", "{}"),
    ("POST", "/_sync_shards", "{}"),
    ("PUT", "/_security", "{}"),
    ("PUT", "/_security", "1"),
    ("PUT", "/_revs_limit", "7"),
    ("PUT", "/_revs_limit", "x"),
    ("PUT", "/_purged_infos_limit", "7"),
    ("PUT", "/_purged_infos_limit", "x"),
    ("POST", "/_changes", "{}"),
    ("POST", "/_changes?filter=_doc_ids", "{\"doc_ids\":1}"),
    ("POST", "/_all_docs", "{\"keys\":[\"a\"]}"),
    ("POST", "/_all_docs", "{\"keys\":1}"),
    ("POST", "/_design/d/_update/u", "{}"),
    ("PUT", "/_design/d/_update/u/a", "{}"),
    ("POST", "/_temp_view", "{}"),
    ("PUT", "", ""),
    ("DELETE", "?rev=1-a", ""),
    ("PATCH", "/a", ""),
    ("PUT", "/_all_docs", "{}"),
    ("DELETE", "/_changes", ""),
    ("POST", "/_local_docs/queries", "{\"queries\":[]}"),
];
const SERVER: &[(&str, &str)] = &[
    ("GET", "/"),
    ("GET", "/_up"),
    ("GET", "/_all_dbs"),
    ("GET", "/_active_tasks"),
    ("GET", "/_membership"),
    ("GET", "/_session"),
    ("GET", "/_uuids?count=x"),
    ("GET", "/_node/_local/_config"),
    ("GET", "/_node/_local/_stats/x"),
    ("GET", "/_node/_local/_versions"),
    ("GET", "/_node/nobody@127.0.0.1/_system"),
    ("GET", "/_scheduler/jobs"),
    ("GET", "/_scheduler/docs"),
    ("GET", "/_scheduler/docs/${db}"),
    ("GET", "/_reshard"),
    ("GET", "/_cluster_setup"),
    ("GET", "/_users"),
    ("GET", "/_users/org.couchdb.user:none"),
    ("GET", "/_users/_all_docs"),
    ("GET", "/_users/_design/_auth"),
    ("GET", "/_users/_changes?limit=0"),
    ("GET", "/_users/_security"),
    ("GET", "/_replicator"),
    ("GET", "/_unknown"),
    ("POST", "/_replicate"),
    ("POST", "/_dbs_info"),
    ("POST", "/_search_analyze"),
    ("PUT", "/_node/_local/_config/x/y"),
    ("DELETE", "/_node/_local/_config/x/y"),
    ("PUT", "/${db3}"),
    ("DELETE", "/${db3}"),
    ("PUT", "/A"),
    ("PUT", "/_users/x"),
];

pub fn begin(draft: &mut Draft) {
    let account = "{\"name\":\"${user}\",\"password\":\"pw\",\"roles\":[\"r\"],\"type\":\"user\"}";
    draft.ask("PUT /_users/org.couchdb.user:${user}").json(account);
    // Passwords are salted.
    draft.with("volatile", strings(&["/rev"])).with("volatile_etag", Value::Bool(true));
    database(draft);
    draft
        .ask("PUT /${db}/a")
        .json("{\"n\":1,\"_attachments\":{\"f\":{\"content_type\":\"text/plain\",\"data\":\"aGk=\"}}}");
    draft.ask("PUT /${db}/_local/l").json("{\"n\":1}");
    draft.ask("PUT /${db}/_design/d").json(
        "{\"views\":{\"v\":{\"map\":\"function(doc) { emit(doc.n); }\"}},\"shows\":{\"s\":\"function(doc, req) { return toJSON([req.userCtx.name, req.userCtx.roles, req.secObj].slice(1)); }\"},\"lists\":{\"l\":\"function() { return 'l'; }\"},\"updates\":{\"u\":\"function(doc, req) { return [{_id: 'made'}, 'u']; }\"},\"rewrites\":[{\"from\":\"x\",\"to\":\"../../a\"}],\"validate_doc_update\":\"function(doc, old, user, sec) { if (doc.n == 9 && user.roles.indexOf('_admin') < 0) throw({forbidden: toJSON(user.roles)}); }\"}",
    );
    secure(draft);
}

/// Another security object, set by the server's administrator.
fn secure(draft: &mut Draft) {
    let security = draft.dice.pick(SECURITY);
    draft.ask("PUT /${db}/_security").json(security);
}

pub fn ask(draft: &mut Draft) {
    let who = draft.dice.pick(&["${user}:pw", "${user}:pw", "${user}:pw", "none"]);
    match draft.dice.below(10) {
        0..=2 => {
            let (method, path) = (draft.dice.pick(&["GET", "GET", "HEAD"]), draft.dice.pick(GETS));
            draft.ask(&format!("{method} /${{db}}{path}")).with("as", who.into());
            draft.with("ignore", strings(&["/sizes", "/instance_start_time", "/cluster", "/nodes"]));
            draft.with("no_body", Value::Bool(path == "/_purged_infos" || path == "/_shards"));
        }
        3..=6 => {
            let (method, path, body) = draft.dice.pick(WRITES);
            draft.ask(&format!("{method} /${{db}}{path}")).with("as", who.into());
            if !body.is_empty() {
                draft.text("application/json", body);
            }
            if method == "COPY" {
                draft.header("Destination", "copied");
            }
            draft.with("volatile", strings(&["/id"]));
            draft.with("volatile_headers", strings(&["location"]));
        }
        7 => {
            let n = draft.dice.pick(&["1", "9"]);
            let id = draft.dice.pick(&["v1", "v2", "_local/v"]);
            draft.ask(&format!("PUT /${{db}}/{id}")).json(&format!("{{\"n\":{n}}}")).with("as", who.into());
        }
        8 => secure(draft),
        _ => {
            let (method, path) = draft.dice.pick(SERVER);
            draft.ask(&format!("{method} {path}")).with("as", who.into());
            if ["POST", "PUT"].contains(&method) {
                draft.text("application/json", "{}");
            }
            draft.with("no_body", Value::Bool(method == "GET" && !path.contains("unknown")));
            draft.with("ignore_headers", strings(&["etag"]));
        }
    }
}
