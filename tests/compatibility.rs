//! Every deliberate difference from CouchDB stands in `docs/compatibility.md`, and every row there is true.
//!
//! The table's first column is compared with the checks below: a row without a check, or a check without a row, fails.
//! Requests go over a real socket to a node in this process.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine;
use settee::config::{Config, Setting};
use settee::node::Node;
use settee::world::tokio_host;

/// An answer: its head as text, in lower case, and its body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// A client that opens a connection for each request.
struct Client {
    to: SocketAddr,
    /// The header `Authorization`.
    credentials: String,
}

/// The header `Authorization` of a name and password.
fn basic(name_and_password: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(name_and_password))
}

impl Client {
    fn send(&self, method: &str, target: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.to).expect("the node listens");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: settee\r\nConnection: close\r\nAuthorization: {}\r\n",
            self.credentials
        );
        for header in headers {
            request += &format!("{header}\r\n");
        }
        request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).expect("the node reads");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the node answers");
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let head = head.to_lowercase();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        Answer { status, head, body: body.to_owned() }
    }

    fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &["Accept: application/json"], "")
    }

    fn put(&self, target: &str, body: &str) -> Answer {
        self.send("PUT", target, &["Accept: application/json"], body)
    }
}

fn content_type(c: &Client) -> bool {
    let kind = |headers: &[&str]| c.send("GET", "/d/a", headers, "").head;
    kind(&[]).contains("content-type: text/plain;charset=utf-8")
        && kind(&["Accept: image/png"]).contains("content-type: text/plain;charset=utf-8")
        && kind(&["Accept: */*"]).contains("content-type: application/json")
        && kind(&["Accept: application/*"]).contains("content-type: application/json")
}

fn list_etag(c: &Client) -> bool {
    let head = c.get("/d/_all_docs").head;
    let etag = head.lines().find_map(|l| l.strip_prefix("etag: ")).unwrap_or_default().to_uppercase();
    c.send("GET", "/d/_all_docs", &["Accept: */*", &format!("If-None-Match: {etag}")], "").status == 304
}

fn feed_lines(c: &Client) -> bool {
    let feed = c.get("/d/_changes?feed=continuous&timeout=50&heartbeat=false").status == 400;
    let lines = c.get("/d/_changes?feed=continuous&timeout=50").body;
    feed && lines.contains("}\r\n")
}

fn attachment_delete(c: &Client) -> bool {
    let kind = ["Accept: */*", "Content-Type: image/png"];
    let put = c.send("PUT", "/d/att/f", &kind, "abc").body;
    let rev = put.split("\"rev\":\"").nth(1).and_then(|r| r.split('"').next()).unwrap_or_default();
    c.send("DELETE", &format!("/d/att/f?rev={rev}"), &kind, "").head.contains("etag: \"2-")
}

fn bad_numbers(c: &Client) -> bool {
    ["limit=x", "timeout=x", "style=x"].iter().all(|p| c.get(&format!("/d/_changes?{p}")).status == 400)
        && c.put("/d/_revs_limit", "\"x\"").status == 400
}

fn bad_multipart(c: &Client) -> bool {
    let put = |parts: &str| {
        let kind = ["Accept: */*", "Content-Type: multipart/related;boundary=x"];
        c.send("PUT", "/d/mp", &kind, parts).status
    };
    let document = |more: &str| {
        format!(
            "--x\r\nContent-Type: application/json\r\n\r\n{{\"_attachments\":{{\"f\":{{\"follows\":true,{more}\
             \"length\":3,\"content_type\":\"image/png\"}}}}}}\r\n"
        )
    };
    let without = format!("{}--x--", document(""));
    let short = format!("{}--x\r\n\r\nab\r\n--x--", document(""));
    let wrong = format!("{}--x\r\n\r\nabc\r\n--x--", document("\"digest\":\"md5-AAAAAAAAAAAAAAAAAAAAAA==\","));
    put(&without) == 400 && put(&short) == 400 && put(&wrong) == 400
}

fn wrong_md5(c: &Client) -> bool {
    let headers = ["Accept: */*", "Content-Type: image/png", "Content-MD5: AAAAAAAAAAAAAAAAAAAAAA=="];
    c.send("PUT", "/d/md5/f", &headers, "abc").status == 400 && c.get("/d/md5").status == 404
}

fn handlers_at_run_time(c: &Client) -> bool {
    let at = "/_node/_local/_config/chttpd/authentication_handlers";
    let all = "\"{chttpd_auth, jwt_authentication_handler}, {chttpd_auth, default_authentication_handler}\"";
    let listed = || c.get("/_session").body.contains("[\"jwt\",\"default\"]");
    let before = listed();
    let set = c.put(at, all).status == 200;
    !before && set && listed()
}

fn secrets_of_requests(c: &Client) -> bool {
    let design = r#"{"shows":{"h":"function (doc, req) { return JSON.stringify([req.headers, req.cookie]); }"}}"#;
    let put = c.put("/d/_design/secrets", design).status == 201;
    let headers = ["Accept: */*", "X-Auth-CouchDB-Token: 77", "X-Mine: 88", "Cookie: a=99; AuthSession="];
    let seen = c.send("GET", "/d/_design/secrets/_show/h", &headers, "").body;
    put && seen.contains("88")
        && seen.contains("99")
        && !["77", "Basic", "AuthSession"].iter().any(|s| seen.contains(s))
}

/// The setting takes effect at once, but not before its answer.
fn full_disk(c: &Client) -> bool {
    let set = |mb: &str| c.put("/_node/_local/_config/settee/disk_reserve_mb", &format!("\"{mb}\"")).status == 200;
    let until = |id: &str, wanted: u16| (0..20_000).any(|n| c.put(&format!("/d/{id}{n}"), "{}").status == wanted);
    let refused = set("999999999999") && until("full", 507);
    let is_told = |at: &str| {
        let answer = c.put(at, "{}");
        answer.status == 507 && answer.body.contains("\"insufficient_storage\"")
    };
    let told = is_told("/d/fuller") && is_told("/d/_local/fuller");
    refused && told && set("64") && until("room", 201)
}

/// A row's topic and whether the node behaves as the row says.
type Check = (&'static str, fn(&Client) -> bool);

fn socket_options(c: &Client) -> bool {
    let order = r#"{"source":"d","target":"copied","create_target":true,"socket_options":"[{nodelay, true}]"}"#;
    c.send("POST", "/_replicate", &["Content-Type: application/json"], order).status == 200
}

fn members(c: &Client) -> bool {
    let at = "/_node/_local/_nodes/ghost@127.0.0.1";
    let wrong = || c.send("DELETE", &format!("{at}?rev=1-x"), &["Accept: */*"], "").status;
    c.put(at, "{}").status == 201 && wrong() == 409 && c.send("DELETE", at, &["Accept: */*"], "").status == 200
}

/// A rewrite function's way to a path of the server.
fn rewritten(c: &Client) -> Answer {
    let design = r#"{"rewrites":"function(req){ return '../../../_all_dbs'; }"}"#;
    c.put("/d/_design/outside", design);
    c.get("/d/_design/outside/_rewrite/x")
}

fn rewrite_outside(c: &Client) -> bool {
    let secure = |is: &str| c.put("/_node/_local/_config/chttpd/secure_rewrites", is).status == 200;
    let refused = rewritten(c);
    let is_refused = refused.status == 500 && refused.body.contains("\"insecure_rewrite_rule\"");
    let open = secure("\"false\"") && rewritten(c).body.contains("\"d\"");
    is_refused && open && secure("\"true\"") && rewritten(c).status == 500
}

/// The head of an answer that says that the client has it.
fn unchanged(c: &Client) -> String {
    let head = c.get("/d/a").head;
    let etag = head.lines().find_map(|l| l.strip_prefix("etag: ")).unwrap_or_default().to_owned();
    c.send("GET", "/d/a", &["Accept: */*", &format!("If-None-Match: {etag}")], "").head
}

fn versions(c: &Client) -> String {
    c.put("/d/_design/versions", r#"{"views":{"v":{"map":"function(d){}"}}}"#);
    c.get("/_node/_local/_versions").body + &c.get("/d/_design/versions/_info").body
}

/// The status of the deletion of an attachment of which more replicas are to hold the deletion than there are.
fn quorum_of_attachment_delete(c: &Client, id: &str) -> u16 {
    let kind = ["Accept: */*", "Content-Type: image/png"];
    let put = c.send("PUT", &format!("/d/{id}/f"), &kind, "abc").body;
    let rev = put.split("\"rev\":\"").nth(1).and_then(|r| r.split('"').next()).unwrap_or_default();
    c.send("DELETE", &format!("/d/{id}/f?w=3&rev={rev}"), &kind, "").status
}

fn users_database_at_run_time(c: &Client) -> bool {
    let at = "/_node/_local/_config/chttpd_auth/authentication_db";
    let set = c.put("/people", "").status == 201 && c.put(at, "\"people\"").status == 200;
    let design = || c.get("/people/_design/_auth").status == 200;
    let made = (0..1800).any(|_| {
        design() || {
            std::thread::sleep(Duration::from_millis(100));
            false
        }
    });
    let checked = c.put("/people/org.couchdb.user:x", r#"{"name":"x","roles":[]}"#).status == 403;
    set && made && checked && c.send("DELETE", at, &["Accept: */*"], "").status == 200
}

/// A key of P-256 for a token that says ES384.
fn other_curve(c: &Client) -> bool {
    let key = "-----BEGIN PUBLIC KEY-----\\\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEHoK/v4d5vLCoeUkWlahy7loXiNio\\\\n\
               M9m1VUpLz6J28Q/mWKb2j9fDU8gmwrs973pexF5igKb+dx+vkepmpy/rAQ==\\\\n-----END PUBLIC KEY-----";
    let set =
        |at: &str, value: &str| c.put(&format!("/_node/_local/_config/{at}"), &format!("\"{value}\"")).status == 200;
    let handlers = "{chttpd_auth, jwt_authentication_handler}, {chttpd_auth, default_authentication_handler}";
    let is_set = set("chttpd/authentication_handlers", handlers)
        && set("jwt_auth/allowed_algorithms", "ES256, ES384, ES512")
        && set("jwt_keys/ec:_default", key);
    let answer = |name: &str| {
        let text = |json: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json);
        let header = text(&format!("{{\"alg\":\"{name}\",\"typ\":\"JWT\"}}"));
        let token = format!("{header}.{}.{}", text("{\"sub\":\"x\",\"exp\":4102444800}"), "A".repeat(86));
        Client { to: c.to, credentials: format!("Bearer {token}") }.get("/_session").body
    };
    let says = |name: &str, reason: &str| answer(name).contains(reason);
    is_set && says("ES256", "Bad signature") && says("ES384", "Not a valid key") && says("ES512", "Not a valid key")
}

fn sum_backwards(c: &Client) -> bool {
    let map = "function(d){ if (d._id === 'a') { emit(1, 'first'); emit(2, 'last'); } }";
    let design = format!(r#"{{"views":{{"v":{{"map":"{map}","reduce":"_sum"}}}}}}"#);
    let sum = |query: &str| c.get(&format!("/d/_design/sum/_view/v{query}")).body;
    c.put("/d/_design/sum", &design).status == 201
        && ["", "?descending=true"].iter().all(|query| sum(query).contains(r#""caused_by":"last""#))
}

fn runaway_map(c: &Client) -> bool {
    let design =
        r#"{"autoupdate":false,"views":{"runs":{"map":"function(d){ for (;;); }"},"ends":{"map":"function(d){}"}}}"#;
    let timeout = |ms: &str| c.put("/_node/_local/_config/couchdb/os_process_timeout", ms).status == 200;
    let view = |name: &str| c.get(&format!("/d/_design/runaway/_view/{name}")).status;
    // No limit for the one that ends: a busy machine may take longer over it.
    c.put("/d/_design/runaway", design).status == 201
        && timeout("\"200\"")
        && view("runs") == 500
        && timeout("\"60000\"")
        && view("ends") == 200
}

fn long_list(c: &Client) -> bool {
    // Few, long rows: the functions are done within their time on a busy machine, too.
    let map = "function(d){ if (d._id !== 'a') return; var long = 'x'; \
               while (long.length < 60000) long += long; for (var i = 0; i < 100; i++) emit(i, long); }";
    let list = "function(head, req){ var n = 0; while (getRow()) n++; return String(n); }";
    let design = format!(r#"{{"views":{{"v":{{"map":"{map}"}}}},"lists":{{"l":"{list}"}}}}"#);
    let answer = |query: &str| c.get(&format!("/d/_design/long/_list/l/v{query}"));
    let made = c.put("/d/_design/long", &design).status == 201;
    made && answer("").status == 413 && answer("?limit=10").body.contains("10")
}

fn local_replications(c: &Client) -> bool {
    let made = c.put("/x%2F_replicator", "").status == 201;
    made && c.put("/x%2F_replicator/r", r#"{"source":"d","target":"none"}"#).status == 201
}

fn unknown_names(c: &Client) -> bool {
    let credentials = basic("nobody:x");
    let nobody = Client { to: c.to, credentials };
    // Cheap to refuse.
    let set = c.put("/_node/_local/_config/chttpd_auth/iterations", "\"10\"").status == 200;
    let statuses: Vec<u16> = (0..6).map(|_| nobody.get("/_session").status).collect();
    set && statuses == [401, 401, 401, 401, 401, 403]
}

fn deep_json(c: &Client) -> bool {
    let put = |depth: usize| c.put("/d/deep", &format!("{{\"v\":{}{}}}", "[".repeat(depth), "]".repeat(depth)));
    let refused = put(1_000);
    refused.status == 400 && refused.body.contains("nested deeper than 1000 levels") && put(999).status == 201
}

fn bad_update(c: &Client) -> bool {
    let design = r#"{"updates":{"u":"function(){ return [{_id: 'unwritten'}, {foo: 1}]; }"}}"#;
    let answer = || c.send("POST", "/d/_design/update/_update/u", &["Accept: */*"], "");
    c.put("/d/_design/update", design).status == 201
        && answer().body.contains("\"external_response_error\"")
        && c.get("/d/unwritten").status == 404
}

fn bad_mod(c: &Client) -> u16 {
    let query = r#"{"selector":{"v":{"$mod":[0,1]}}}"#;
    c.send("POST", "/d/_find", &["Accept: */*", "Content-Type: application/json"], query).status
}

fn unsorted(c: &Client) -> bool {
    let design = r#"{"views":{"v":{"map":"function (doc) { emit(1); emit(2); }"}}}"#;
    let put = c.put("/d/_design/unsorted", design).status == 201;
    let rows = |query: &str| c.get(&format!("/d/_design/unsorted/_view/v?sorted=false{query}")).body;
    let count = |query: &str| rows(query).matches("\"id\":").count();
    put && count("") > 1 && count("&skip=1") == count("") - 1 && !rows("").contains("total_rows")
}

const CHECKS: &[Check] = &[
    ("Content-Type of JSON", content_type),
    ("`Server`", |c| c.get("/").head.contains("server: settee/")),
    ("`sorted=false` of a view", unsorted),
    ("ETag of `_all_docs`", list_etag),
    ("`instance_start_time`", |c| c.get("/d").body.contains("\"instance_start_time\":\"0\"")),
    ("`_changes?limit=0`", |c| c.get("/d/_changes?limit=0").body.matches("\"id\":").count() == 1),
    ("`$mod` with bad arguments", |c| bad_mod(c) == 404),
    ("default `q`", |c| c.get("/d").body.contains("\"q\":8")),
    ("`info.authentication_db` of `_session`", |c| {
        c.get("/_session").body.contains("\"authentication_db\":\"_users\"")
    }),
    ("attachment DELETE", attachment_delete),
    ("rows of a feed, heartbeats", feed_lines),
    ("`_rev` on a document that never existed", |c| c.put("/d/never", "{\"_rev\":\"1-abc\"}").status == 409),
    ("`limit=x`, `timeout=x`, `style=x` of `_changes`; bad `_revs_limit`", bad_numbers),
    ("a multipart PUT without parts, a part that is too short, a wrong digest of a part", bad_multipart),
    ("Content-MD5 that does not fit", wrong_md5),
    ("`chttpd/authentication_handlers`", handlers_at_run_time),
    ("request headers that design functions see", secrets_of_requests),
    ("a disk that is nearly full", full_disk),
    ("options of a replication: `socket_options`", socket_options),
    ("DELETE of `_nodes/{name}`", members),
    ("a rewrite function that leads out of its database", rewrite_outside),
    ("304", |c| unchanged(c).starts_with("http/1.1 304") && !unchanged(c).contains("content-length")),
    ("`_versions`, `collator_versions` of a view", |c| {
        let told = versions(c);
        told.contains("\"name\":\"icu4x\"") && told.contains("\"collator_versions\":[]")
    }),
    ("DELETE of an attachment with more `w` than there are replicas", |c| {
        quorum_of_attachment_delete(c, "quorum") == 202
    }),
    ("a users database that `authentication_db` names at run time", users_database_at_run_time),
    ("ES384 and ES512 with a key of another curve", other_curve),
    ("sequences", |c| {
        let body = c.get("/d").body;
        let seq = body.split("\"update_seq\":\"").nth(1).and_then(|s| s.split('"').next()).unwrap_or_default();
        let vector = seq.split_once('-').map(|(_, vector)| vector).unwrap_or_default();
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(vector);
        // 131 begins an Erlang term.
        bytes.is_ok_and(|bytes| bytes.first().is_some_and(|first| *first != 131))
    }),
    ("a map function that runs out of time or memory", runaway_map),
    ("a list function over more than 4 MB of rows", long_list),
    ("`caused_by` of `_sum` with `descending=true`", sum_backwards),
    ("names of local databases in replication documents", local_replications),
    ("Basic logins with names that nobody has", unknown_names),
    ("JSON nested deeper than 1,000 levels", deep_json),
    ("an update function that answers with a document and with what is no response", bad_update),
    ("PUT of `_config` with a value that the option does not take", |c| {
        let at = "/_node/_local/_config/chttpd/max_uri_length";
        c.put(at, "\"many\"").status == 400 && c.get(at).status == 404
    }),
    ("an integer beyond the range of a double", |c| {
        let answer = c.put("/d/large", &format!("{{\"n\":{}}}", "9".repeat(309)));
        answer.status == 400 && answer.body.contains("beyond the range of a double")
    }),
    ("a request of HTTP/1.1 without `Host`, or with two", |c| {
        let two = c.send("GET", "/", &["Host: other"], "");
        let mut stream = TcpStream::connect(c.to).expect("the node listens");
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("the node reads");
        let mut none = String::new();
        // It ends, because the connection is closed.
        stream.read_to_string(&mut none).expect("the node answers");
        two.status == 400 && none.starts_with("HTTP/1.1 400")
    }),
    ("`r=x`, `w=x`", |c| {
        c.put("/d/w?w=x", "{}").status == 400 && c.get("/d/w").status == 404 && c.get("/d/a?r=x").status == 400
    }),
];

/// The rows of the table: topic, and which answer a node gives that follows CouchDB.
fn rows() -> Vec<(String, String)> {
    let page = include_str!("../docs/compatibility.md");
    let table =
        page.split("## Deliberate differences").nth(1).and_then(|t| t.split("\n## ").next()).unwrap_or_default();
    let rows = table.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| topic"));
    let cell = |row: &str, at: usize| row.split('|').nth(at).unwrap_or_default().trim().to_owned();
    rows.map(|row| (cell(row, 1), cell(row, 4))).collect()
}

/// The rows of the table in which `[settee] follow = couchdb-3.5` answers as CouchDB does, each with a check of that.
const FOLLOWED: &[Check] = &[
    ("Content-Type of JSON", |c| c.send("GET", "/d/a", &[], "").head.contains("content-type: application/json")),
    ("ETag of `_all_docs`", |c| !c.get("/d/_all_docs").head.contains("etag:")),
    ("`instance_start_time`", |c| !c.get("/d").body.contains("\"instance_start_time\":\"0\"")),
    ("`_changes?limit=0`", |c| {
        let body = c.get("/d/_changes?limit=0").body;
        body.starts_with("{\"results\":[\n\n],\n\"last_seq\":\"") && body.ends_with("\"pending\":1}\n")
    }),
    ("`$mod` with bad arguments", |c| bad_mod(c) == 400),
    ("default `q`", |c| c.get("/d").body.contains("\"cluster\":{\"q\":2,")),
    ("`info.authentication_db` of `_session`", |c| !c.get("/_session").body.contains("authentication_db")),
    ("attachment DELETE", |c| !attachment_delete(c) && c.get("/d/att").status == 200),
    ("rows of a feed, heartbeats", |c| {
        let lines = c.get("/d/_changes?feed=continuous&timeout=50").body;
        lines.contains("}\n") && !lines.contains("}\r\n")
    }),
    ("a rewrite function that leads out of its database", |c| rewritten(c).body.contains("\"d\"")),
    ("304", |c| unchanged(c).starts_with("http/1.1 304") && unchanged(c).contains("content-length: 0")),
    ("`_versions`, `collator_versions` of a view", |c| {
        let told = versions(c);
        told.contains("\"name\":\"libicu\"") && told.contains("\"collator_versions\":[\"153.120\"]")
    }),
    ("DELETE of an attachment with more `w` than there are replicas", |c| {
        quorum_of_attachment_delete(c, "quorum") == 200
    }),
    ("`Server`", |c| c.get("/").head.contains("server: couchdb/3.5.0 (erlang otp/25)")),
    ("DELETE of `_nodes/{name}`", |c| {
        let members = c.get("/_node/_local/_dbs/_all_docs").status < 500;
        members && c.send("DELETE", "/_node/_local/_nodes/a@b", &["Accept: */*"], "").status == 409
    }),
];

/// A node with these settings, an administrator `adm`, and one database.
fn with_node(more: &[&str], check: impl FnOnce(&Client) -> Vec<&'static str>) -> Vec<&'static str> {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let env = tokio_host::env(runtime.handle().clone());
    // SHA-1 of `pass` and the salt `00`: cheap to check.
    let settings =
        ["admins/adm=-hashed-58dfc08c75be240db5082eddfbe23a6d5202e77f,00", "chttpd/port=0", "couchdb/uuid=00"];
    let settings = settings.iter().chain(more).filter_map(|text| Setting::parse(text));
    let config = Config::in_memory(&env, settings.collect());
    let node = runtime.block_on(Node::start(&env, &config, dir.path())).expect("the node starts");
    let credentials = basic("adm:pass");
    let client = Client { to: node.address(), credentials };
    assert_eq!(client.put("/d", "").status, 201);
    assert_eq!(client.put("/d/a", "{\"v\":1}").status, 201);
    let broken = check(&client);
    runtime.block_on(node.stop());
    broken
}

/// Those of the checks that do not hold.
fn broken_of(checks: &[Check], client: &Client) -> Vec<&'static str> {
    checks.iter().filter(|(_, holds)| !holds(client)).map(|(topic, _)| *topic).collect()
}

#[test]
fn a_node_that_follows_couchdb_answers_the_marked_rows_as_couchdb_does() {
    let rows = rows();
    assert!(rows.iter().all(|(_, follow)| matches!(follow.as_str(), "CouchDB's" | "settee's")), "the last column");
    let marked = rows.iter().filter(|(_, follow)| follow == "CouchDB's");
    let marked: BTreeSet<&str> = marked.map(|(topic, _)| topic.as_str()).collect();
    let checked: BTreeSet<&str> = FOLLOWED.iter().map(|(topic, _)| *topic).collect();
    assert_eq!(marked, checked, "the table in docs/compatibility.md and the checks of this test");
    let broken = with_node(&["settee/follow=couchdb-3.5"], |client| broken_of(FOLLOWED, client));
    assert!(broken.is_empty(), "docs/compatibility.md says otherwise: {broken:?}");
}

#[test]
fn the_table_of_differences_is_complete_and_true() {
    let checked: BTreeSet<String> = CHECKS.iter().map(|(topic, _)| (*topic).to_owned()).collect();
    let rows: BTreeSet<String> = rows().into_iter().map(|(topic, _)| topic).collect();
    assert_eq!(rows, checked, "rows of docs/compatibility.md and checks of this test");

    let broken = with_node(&[], |client| broken_of(CHECKS, client));
    assert!(broken.is_empty(), "docs/compatibility.md says otherwise: {broken:?}");
}
