//! Who may do what: every endpoint, asked by every kind of caller, in one table that is walked against a running node.
//!
//! A cell is one request. It counts the callers' rank and their way to show who they are: Basic, cookie, token, proxy.

mod served;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use served::{ADMIN, Answer, Served};
use sha2::Sha256;

/// Whom an endpoint lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// Anyone.
    Open,
    /// Anyone with a name.
    Named,
    /// Server administrators.
    Server,
    /// Server administrators; what they would bring about is not tried here.
    ServerUntried,
    /// Server administrators and the role `_metrics`.
    Metrics,
    /// Members of the database.
    Member,
    /// Administrators of the database.
    Database,
    /// Administrators of the database; members are told as CouchDB tells that a design document was not saved.
    Index,
    /// Administrators of the database, others are told 401 whoever they are.
    Maintenance,
}

use Right::{Database, Index, Maintenance, Member, Metrics, Named, Open, Server, ServerUntried};

/// What a caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Anonymous,
    User,
    Watcher,
    Member,
    DatabaseAdmin,
    ServerAdmin,
}

const NO_SERVER: (u16, &str) = (401, "You are not a server admin.");
const NO_METRICS: (u16, &str) = (401, "You are not a server admin or read-only metrics user");
const NO_MAINTAINER: (u16, &str) = (401, "You are not a server or db admin.");
const STRANGER: (u16, &str) = (401, "You are not authorized to access this db.");
const OUTSIDER: (u16, &str) = (403, "You are not allowed to access this db.");
const NO_DATABASE: (u16, &str) = (403, "You are not a db or server admin.");
const NOT_SAVED: (u16, &str) = (500, "Unknown error while saving the design document: forbidden");
const NO_NAME: (u16, &str) = (401, "You are not an authenticated user");

/// The refusal that a caller is told; `None`: may do it.
fn refusal(right: Right, rank: Rank) -> Option<(u16, &'static str)> {
    let stranger = if rank == Rank::Anonymous { STRANGER } else { OUTSIDER };
    match right {
        _ if rank == Rank::ServerAdmin => None,
        Open => None,
        Named => (rank == Rank::Anonymous).then_some(NO_NAME),
        Server | ServerUntried => Some(NO_SERVER),
        Metrics => (rank != Rank::Watcher).then_some(NO_METRICS),
        Member => (rank < Rank::Member).then_some(stranger),
        Database if rank == Rank::Member => Some(NO_DATABASE),
        Index if rank == Rank::Member => Some(NOT_SAVED),
        Database | Index => (rank < Rank::Member).then_some(stranger),
        Maintenance if rank == Rank::Member => Some(NO_MAINTAINER),
        Maintenance => (rank < Rank::Member).then_some(stranger),
    }
}

/// Method, path, body, whom it lets in. `{d}` is a database, `{p}` a partitioned one, both with the same security.
type Row = (&'static str, &'static str, &'static str, Right);

const SERVER_ROWS: &[Row] = &[
    ("GET", "/", "", Open),
    ("GET", "/_up", "", Open),
    ("GET", "/_uuids", "", Open),
    ("GET", "/favicon.ico", "", Open),
    ("GET", "/_utils", "", Open),
    ("GET", "/_utils/", "", Open),
    ("GET", "/_utils/session.html", "", Open),
    ("GET", "/_session", "", Open),
    ("POST", "/_session", r#"{"name":"joe","password":"pw"}"#, Open),
    ("DELETE", "/_session", "", Open),
    ("POST", "/_replicate", r#"{"replication_id":"none","cancel":true}"#, Named),
    ("GET", "/_replicate", "", Open),
    ("DELETE", "/_replicate", "", Open),
    ("GET", "/_search_analyze?analyzer=standard&text=a", "", Server),
    ("POST", "/_search_analyze", r#"{"analyzer":"standard","text":"a"}"#, Server),
    ("POST", "/_nouveau_analyze", r#"{"analyzer":"standard","text":"a"}"#, Server),
    ("GET", "/_all_dbs", "", Server),
    ("GET", "/_dbs_info", "", Server),
    ("POST", "/_dbs_info", r#"{"keys":["{d}"]}"#, Server),
    ("GET", "/_db_updates", "", Server),
    ("GET", "/_active_tasks", "", Server),
    ("GET", "/_membership", "", Server),
    ("GET", "/_cluster_setup", "", Server),
    ("POST", "/_cluster_setup", r#"{"action":"none"}"#, Server),
    ("GET", "/_scheduler/jobs", "", Server),
    ("GET", "/_scheduler/jobs/x", "", Server),
    ("GET", "/_scheduler/docs", "", Server),
    ("GET", "/_scheduler/docs/_replicator", "", Server),
    ("GET", "/_scheduler/docs/_replicator/x", "", Server),
    ("GET", "/_cluster/voters", "", Server),
    ("GET", "/_cluster/status", "", Server),
    ("GET", "/_cluster/replicas/{d}", "", Server),
    ("POST", "/_cluster/join_token", "{}", Server),
    ("POST", "/_cluster/rotate_secret", "", ServerUntried),
    ("DELETE", "/_cluster/rotate_secret", "", ServerUntried),
    ("GET", "/_cluster/rebalance", "", Server),
    ("POST", "/_cluster/rebalance", "{}", Server),
    ("DELETE", "/_cluster/rebalance", "", Server),
    ("GET", "/_reshard", "", Server),
    ("GET", "/_reshard/state", "", Server),
    ("PUT", "/_reshard/state", r#"{"state":"running"}"#, ServerUntried),
    ("GET", "/_reshard/jobs", "", Server),
    ("POST", "/_reshard/jobs", r#"{"type":"split","db":"{d}"}"#, ServerUntried),
    ("GET", "/_reshard/jobs/x", "", Server),
    ("DELETE", "/_reshard/jobs/x", "", ServerUntried),
    ("GET", "/_reshard/jobs/x/state", "", Server),
    ("PUT", "/_reshard/jobs/x/state", r#"{"state":"stopped"}"#, ServerUntried),
    ("GET", "/_node/_local", "", Server),
    ("GET", "/_node/_local/_versions", "", Server),
    ("GET", "/_node/_local/_config", "", Server),
    ("GET", "/_node/_local/_config/admins", "", Server),
    ("GET", "/_node/_local/_config/cluster/q", "", Server),
    ("PUT", "/_node/_local/_config/table/key", r#""v""#, Server),
    ("DELETE", "/_node/_local/_config/table/key", "", Server),
    ("PUT", "/_node/_local/_config/admins/eve", r#""word""#, Server),
    ("DELETE", "/_node/_local/_config/admins/eve", "", Server),
    ("POST", "/_node/_local/_config/_reload", "", Server),
    ("POST", "/_node/_local/_restart", "", ServerUntried),
    ("PUT", "/_node/_local/_nodes/a@b", "{}", ServerUntried),
    ("DELETE", "/_node/_local/_nodes/a@b", "", ServerUntried),
    ("GET", "/_node/_local/_state", "", Server),
    ("GET", "/_node/_local/_log", "", Server),
    ("GET", "/_node/_local/_slow_requests", "", Server),
    ("GET", "/_node/_local/_config_defaults", "", Server),
    ("GET", "/_node/_local/_snapshot", "", ServerUntried),
    ("POST", "/_node/_local/_snapshot", "{}", ServerUntried),
    ("POST", "/_node/_local/_rotate_secret", r#"{"step":"look"}"#, Server),
    ("GET", "/_node/_local/_smoosh/status", "", Server),
    ("GET", "/_node/_local/_active_tasks", "", Server),
    ("GET", "/_node/_local/_scheduler/jobs", "", Server),
    ("POST", "/_reload_query_servers", "", Server),
    ("GET", "/_utils/app.js", "", Open),
    ("GET", "/_node/_local/_stats", "", Metrics),
    ("GET", "/_node/_local/_stats/couchdb", "", Metrics),
    ("GET", "/_node/_local/_stats/couchdb/httpd", "", Metrics),
    ("GET", "/_node/_local/_system", "", Metrics),
    ("GET", "/_node/_local/_prometheus", "", Metrics),
    ("GET", "/_unknown", "", Server),
    ("PUT", "/another", "", Server),
    ("DELETE", "/another", "", Server),
    ("GET", "/_users", "", ServerUntried),
];

const DATABASE_ROWS: &[Row] = &[
    ("GET", "/{d}", "", Member),
    ("POST", "/{d}", "{}", Member),
    ("POST", "/{d}?batch=ok", "{}", Member),
    ("GET", "/{d}/_all_docs", "", Member),
    ("POST", "/{d}/_all_docs", r#"{"keys":["a"]}"#, Member),
    ("POST", "/{d}/_all_docs/queries", r#"{"queries":[{}]}"#, Member),
    ("GET", "/{d}/_design_docs", "", Member),
    ("POST", "/{d}/_design_docs", "{}", Member),
    ("POST", "/{d}/_design_docs/queries", r#"{"queries":[{}]}"#, Member),
    ("GET", "/{d}/_local_docs", "", Member),
    ("POST", "/{d}/_local_docs", "{}", Member),
    ("POST", "/{d}/_local_docs/queries", r#"{"queries":[{}]}"#, Member),
    ("POST", "/{d}/_bulk_docs", r#"{"docs":[{}]}"#, Member),
    ("POST", "/{d}/_bulk_get", r#"{"docs":[{"id":"a"}]}"#, Member),
    ("GET", "/{d}/_changes", "", Member),
    ("POST", "/{d}/_changes?filter=_doc_ids", r#"{"doc_ids":["a"]}"#, Member),
    ("POST", "/{d}/_find", r#"{"selector":{"x":1}}"#, Member),
    ("POST", "/{d}/_explain", r#"{"selector":{"x":1}}"#, Member),
    ("GET", "/{d}/_index", "", Member),
    ("POST", "/{d}/_index", r#"{"index":{"fields":["x"]},"ddoc":"i","name":"n"}"#, Index),
    ("POST", "/{d}/_index/_bulk_delete", r#"{"docids":["_design/none"]}"#, Database),
    ("DELETE", "/{d}/_index/i/json/n", "", Database),
    ("GET", "/{d}/_security", "", Member),
    ("GET", "/{d}/_revs_limit", "", Member),
    ("PUT", "/{d}/_revs_limit", "1000", Database),
    ("GET", "/{d}/_purged_infos_limit", "", Server),
    ("PUT", "/{d}/_purged_infos_limit", "1000", Server),
    ("GET", "/{d}/_auto_purge", "", Member),
    ("PUT", "/{d}/_auto_purge", r#"{"deleted_document_ttl":"3_mon"}"#, Database),
    ("GET", "/{d}/_time_seq", "", Member),
    ("DELETE", "/{d}/_time_seq", "", Database),
    ("GET", "/{d}/_purged_infos", "", Member),
    ("POST", "/{d}/_purge", "{}", Server),
    ("POST", "/{d}/_missing_revs", "{}", Member),
    ("POST", "/{d}/_revs_diff", "{}", Member),
    ("GET", "/{d}/_shards", "", Member),
    ("GET", "/{d}/_shards/a", "", Member),
    ("POST", "/{d}/_sync_shards", "", Server),
    ("POST", "/{d}/_compact", "", Maintenance),
    ("POST", "/{d}/_compact/x", "", Maintenance),
    ("POST", "/{d}/_view_cleanup", "", Maintenance),
    ("POST", "/{d}/_search_cleanup", "", Member),
    ("POST", "/{d}/_nouveau_cleanup", "", Member),
    ("POST", "/{d}/_snapshot", "{}", ServerUntried),
    ("POST", "/{d}/_restore", "{}", ServerUntried),
    ("GET", "/{d}/_temp_view", "", Member),
    ("POST", "/{d}/_ensure_full_commit", "", Member),
    ("GET", "/{d}/a", "", Member),
    ("PUT", "/{d}/b", "{}", Member),
    ("COPY", "/{d}/a", "", Member),
    ("DELETE", "/{d}/none", "", Member),
    ("GET", "/{d}/a/f", "", Member),
    ("PUT", "/{d}/c/f", "text", Member),
    ("DELETE", "/{d}/a/none?rev=1-00", "", Member),
    ("GET", "/{d}/_local/l", "", Member),
    ("PUT", "/{d}/_local/l", "{}", Member),
    ("COPY", "/{d}/_local/l", "", Member),
    ("DELETE", "/{d}/_local/none", "", Member),
    ("GET", "/{d}/_design/x", "", Member),
    ("PUT", "/{d}/_design/y", "{}", Database),
    ("DELETE", "/{d}/_design/none", "", Database),
    ("COPY", "/{d}/_design/x", "", Member),
    ("POST", "/{d}/_design/x", "{}", Member),
    ("GET", "/{d}/_design/x/none", "", Member),
    ("PUT", "/{d}/_design/z/f", "text", Database),
    ("DELETE", "/{d}/_design/x/none?rev=1-00", "", Database),
    ("GET", "/{d}/_design/x/_info", "", Member),
    ("GET", "/{d}/_design/x/_view/v", "", Member),
    ("POST", "/{d}/_design/x/_view/v", "{}", Member),
    ("POST", "/{d}/_design/x/_view/v/queries", r#"{"queries":[{}]}"#, Member),
    ("GET", "/{d}/_design/x/_show/s", "", Member),
    ("GET", "/{d}/_design/x/_show/s/a", "", Member),
    ("POST", "/{d}/_design/x/_show/s/a", "{}", Member),
    ("GET", "/{d}/_design/x/_list/l/v", "", Member),
    ("POST", "/{d}/_design/x/_list/l/v", "{}", Member),
    ("GET", "/{d}/_design/x/_list/l/x/v", "", Member),
    ("POST", "/{d}/_design/x/_list/l/x/v", "{}", Member),
    ("POST", "/{d}/_design/x/_update/u", "", Member),
    ("PUT", "/{d}/_design/x/_update/u/a", "{}", Member),
    ("GET", "/{d}/_design/x/_rewrite/any", "", Member),
    ("GET", "/{d}/_design/x/_search/i?q=a", "", Member),
    ("POST", "/{d}/_design/x/_search/i", r#"{"q":"a"}"#, Member),
    ("GET", "/{d}/_design/x/_search?indexes=%5B%22i%22%5D&q=a", "", Member),
    ("POST", "/{d}/_design/x/_search", r#"{"indexes":["i"],"q":"a"}"#, Member),
    ("GET", "/{d}/_design/x/_search_info/i", "", Member),
    ("GET", "/{d}/_design/x/_search_disk_size/i", "", Member),
    ("GET", "/{d}/_design/x/_nouveau/i?q=a", "", Member),
    ("POST", "/{d}/_design/x/_nouveau/i", r#"{"q":"a"}"#, Member),
    ("GET", "/{d}/_design/x/_nouveau_info/i", "", Member),
    ("GET", "/{p}/_partition/a", "", Member),
    ("GET", "/{p}/_partition/a/_all_docs", "", Member),
    ("POST", "/{p}/_partition/a/_all_docs", "{}", Member),
    ("POST", "/{p}/_partition/a/_all_docs/queries", r#"{"queries":[{}]}"#, Member),
    ("POST", "/{p}/_partition/a/_find", r#"{"selector":{"x":1}}"#, Member),
    ("POST", "/{p}/_partition/a/_explain", r#"{"selector":{"x":1}}"#, Member),
    ("GET", "/{p}/_partition/a/_design/x/_view/v", "", Member),
    ("POST", "/{p}/_partition/a/_design/x/_view/v", "{}", Member),
    ("POST", "/{d}/_search_dry_run", r#"{"index":"function (doc) {}","docs":[]}"#, Database),
    ("PUT", "/{d}/_security", SECURITY, Database),
    ("DELETE", "/{d}", "", Server),
];

const SECURITY: &str = r#"{"admins":{"names":["dba"]},"members":{"names":["mem"],"roles":["team"]}}"#;

const DESIGN: &str = r#"{"views":{"v":{"map":"function (doc) { emit(doc._id, null); }"}},
    "shows":{"s":"function () { return 'shown'; }"},
    "lists":{"l":"function () { while (getRow()) {} return 'listed'; }"},
    "updates":{"u":"function () { return [null, 'updated']; }"},
    "rewrites":[{"from":"any","to":"_show/s"}]}"#;

/// A caller: what it is, a name for messages, and how it shows who it is.
struct Caller {
    rank: Rank,
    shown: &'static str,
    basic: &'static str,
    header: Option<String>,
}

fn callers(served: &Served) -> Vec<Caller> {
    let basic = |rank, shown, basic| Caller { rank, shown, basic, header: None };
    let by = |rank, shown, header: String| Caller { rank, shown, basic: "", header: Some(header) };
    let cookie = |name: &str| {
        let body = format!(r#"{{"name":"{name}","password":"pw"}}"#);
        let raw = served::exchange_raw(served.node.address(), &served::request("", "POST", "/_session", &[], &body));
        let value = raw.split("AuthSession=").nth(1).and_then(|v| v.split(';').next()).expect("a value");
        format!("Cookie: AuthSession={value}")
    };
    vec![
        basic(Rank::Anonymous, "nobody", ""),
        basic(Rank::User, "a user", "joe:pw"),
        basic(Rank::Watcher, "a user with _metrics", "eye:pw"),
        basic(Rank::Member, "a member by name", "mem:pw"),
        basic(Rank::Member, "a member by role", "rol:pw"),
        by(Rank::Member, "a member by cookie", cookie("mem")),
        by(Rank::Member, "a member by proxy", "X-Auth-CouchDB-UserName: mem".to_owned()),
        by(Rank::User, "a user by proxy", "X-Auth-CouchDB-UserName: joe".to_owned()),
        basic(Rank::DatabaseAdmin, "a database's administrator", "dba:pw"),
        by(Rank::DatabaseAdmin, "such a one by token", format!("Authorization: Bearer {}", token("dba"))),
        by(Rank::ServerAdmin, "a server administrator by token", format!("Authorization: Bearer {}", admin_token())),
        basic(Rank::ServerAdmin, "a server administrator", ADMIN),
    ]
}

fn token(name: &str) -> String {
    signed(&format!(r#"{{"sub":"{name}","exp":4102444800}}"#))
}

fn admin_token() -> String {
    signed(r#"{"sub":"root","exp":4102444800,"_couchdb.roles":["_admin"]}"#)
}

fn signed(claims: &str) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#), URL_SAFE_NO_PAD.encode(claims));
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(b"key").expect("any key");
    mac.update(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

const HANDLERS: &str = "chttpd/authentication_handlers={chttpd_auth, cookie_authentication_handler}, \
    {chttpd_auth, proxy_authentication_handler}, {chttpd_auth, jwt_authentication_handler}, \
    {chttpd_auth, default_authentication_handler}";

fn start() -> Served {
    let with = ["jwt_keys/hmac:_default=a2V5", "chttpd_auth/secret=kept-by-a-reload", "nouveau/enable=true"];
    // Cookies outlive the walk.
    let served = Served::start(&[&[HANDLERS, "chttpd_auth/timeout=36000"], &with[..]].concat());
    for (name, roles) in [("joe", ""), ("eye", r#""_metrics""#), ("mem", ""), ("rol", r#""team""#), ("dba", "")] {
        let user = format!(r#"{{"name":"{name}","type":"user","roles":[{roles}],"password":"pw"}}"#);
        served.must("PUT", &format!("/_users/org.couchdb.user:{name}"), &user);
    }
    served.must("PUT", "/_global_changes", "");
    served
}

/// The databases of one walk.
fn prepare(served: &Served) {
    for (db, how) in [("d", ""), ("p", "?partitioned=true")] {
        served.must("PUT", &format!("/{db}{how}"), "");
        served.must("PUT", &format!("/{db}/_design/x"), DESIGN);
        served.must("PUT", &format!("/{db}/_security"), SECURITY);
    }
    served.must("PUT", "/d/a", r#"{"_attachments":{"f":{"data":"YQ==","content_type":"text/plain"}}}"#);
    served.must("PUT", "/d/_local/l", "{}");
}

fn send(served: &Served, caller: &Caller, (method, path, body, _): &Row) -> Answer {
    let (path, body) = (fill(path), fill(body));
    let mut headers: Vec<&str> = caller.header.iter().map(String::as_str).collect();
    if *method == "COPY" {
        headers.push("Destination: target");
    }
    served.send(caller.basic, method, &path, &headers, &body)
}

fn fill(text: &str) -> String {
    text.replace("{d}", "d").replace("{p}", "p")
}

/// What is wrong with an answer; `None`: nothing.
fn check(answer: &Answer, expected: Option<(u16, &str)>) -> Option<String> {
    let refused = matches!(answer.status, 401 | 403);
    let fits = match expected {
        None => !refused && answer.status != 500,
        Some((status, reason)) => answer.status == status && answer.body.contains(reason),
    };
    (!fits).then(|| format!("{} {} instead of {expected:?}", answer.status, answer.body.trim()))
}

#[test]
fn the_table_holds_for_every_endpoint_and_caller() {
    let served = start();
    prepare(&served);
    let (mut cells, mut wrong) = (0, Vec::new());
    let callers = callers(&served);
    for row in SERVER_ROWS.iter().chain(DATABASE_ROWS) {
        for caller in &callers {
            if row.3 == ServerUntried && caller.rank == Rank::ServerAdmin {
                continue;
            }
            cells += 1;
            // The users database is as closed as any other.
            let right = if row.1 == "/_users" { Member } else { row.3 };
            let rank = if row.1 == "/_users" && caller.rank > Rank::User { Rank::User } else { caller.rank };
            if let Some(what) = check(&send(&served, caller, row), refusal(right, rank)) {
                wrong.push(format!("{} {} by {}: {what}", row.0, row.1, caller.shown));
            }
        }
    }
    println!("{cells} cells, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cells > 1_800, "{cells}");
    served.runtime.block_on(served.node.stop());
}

/// `docs/openapi.yaml` is held against the routes by another test.
#[test]
fn each_operation_of_the_description_has_a_row() {
    let (mut path, mut operations, mut missing) = ("", 0, Vec::new());
    for line in include_str!("../docs/openapi.yaml").lines() {
        let Some((name, "")) = line.trim_start().split_once(':') else { continue };
        match line.len() - line.trim_start().len() {
            2 if name.starts_with('/') => path = name,
            4 if ["get", "put", "post", "delete", "copy"].contains(&name) && !path.is_empty() => {
                let method = name.to_uppercase();
                let is_it = |row: &Row| row.0 == method && is_path_of(row.1, path);
                operations += 1;
                if !SERVER_ROWS.iter().chain(DATABASE_ROWS).any(is_it) {
                    missing.push(format!("{method} {path}"));
                }
            }
            _ => {}
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(operations > 150, "{operations}");
}

/// Whether a path of the table is one of a template such as `/{db}/_design/{ddoc}`.
fn is_path_of(path: &str, template: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (path, template): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), template.split('/').collect());
    let fits = |(part, place): (&&str, &&str)| place.starts_with('{') || part == place;
    path.len() == template.len() && path.iter().zip(&template).all(fits)
}

#[test]
fn nobody_without_a_name_passes_a_closed_door() {
    let served = start();
    prepare(&served);
    let nobody = Caller { rank: Rank::Anonymous, shown: "nobody", basic: "", header: None };
    let (mut cells, mut wrong) = (0, Vec::new());
    for (key, up_is_open) in [("require_valid_user_except_for_up", true), ("require_valid_user", false)] {
        served.set("chttpd", key, "true");
        for row in SERVER_ROWS.iter().chain(DATABASE_ROWS) {
            cells += 1;
            let open = (row.0, row.1) == ("POST", "/_session") || (row.1 == "/_up" && up_is_open);
            let expected = (!open).then_some((401, "Authentication required."));
            if let Some(what) = check(&send(&served, &nobody, row), expected) {
                wrong.push(format!("{key}: {} {}: {what}", row.0, row.1));
            }
        }
    }
    println!("{cells} cells, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    served.runtime.block_on(served.node.stop());
}

#[test]
fn options_open_lists_and_new_databases() {
    let served = start();
    served.set("chttpd", "admin_only_all_dbs", "false");
    for path in ["/_all_dbs", "/_dbs_info"] {
        assert_eq!(served.ask("", "GET", path, "").status, 200, "{path}");
    }
    served.set("chttpd", "admin_only_all_dbs", "true");
    assert_eq!(served.ask("", "GET", "/_all_dbs", "").status, 401);
    served.set("couchdb", "default_security", "everyone");
    served.must("PUT", "/open", "");
    assert_eq!(served.ask("", "PUT", "/open/a", "{}").status, 201);
    assert_eq!(served.ask("", "PUT", "/open/_design/a", "{}").status, 401);
    // Each shape of a security object, and whom it lets in to read: nobody in particular, a user, a member by role.
    for (security, nobody, joe, rol) in [
        ("{}", 200, 200, 200),
        (r#"{"members":{}}"#, 200, 200, 200),
        (r#"{"admins":{"names":["x"]}}"#, 200, 200, 200),
        (r#"{"members":{"roles":["team"]}}"#, 401, 403, 200),
        (r#"{"members":{"names":["joe"],"roles":[]}}"#, 401, 200, 403),
        (r#"{"readers":{"names":["joe"]}}"#, 401, 200, 403),
        (r#"{"admins":{"roles":["team"]},"members":{"names":["joe"]}}"#, 401, 200, 200),
        (r#"{"members":{"names":[],"roles":["_admin"]}}"#, 401, 403, 403),
    ] {
        served.must("PUT", "/open/_security", security);
        let status = |who: &str| served.ask(who, "GET", "/open/a", "").status;
        assert_eq!((status(""), status("joe:pw"), status("rol:pw")), (nobody, joe, rol), "{security}");
    }
    served.runtime.block_on(served.node.stop());
}
