//! What the log must not hold, at its most talkative; and what an answer must not tell of who exists.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::served::panics::Log;
use crate::served::{Answer, Served, exchange, request};

/// Every secret that the test hands to the node holds this word.
const WORD: &str = "Sesame";

const HANDLERS: &str = "chttpd/authentication_handlers=cookie_authentication_handler, proxy_authentication_handler, \
    jwt_authentication_handler, default_authentication_handler";

/// The program at the level `debug`.
struct Program {
    child: Child,
    address: std::net::SocketAddr,
    admin: String,
    log: Log,
    _data: tempfile::TempDir,
}

impl Program {
    fn start() -> Program {
        let data = tempfile::tempdir().expect("a directory");
        let (admin, log) = (format!("adm:{WORD}-admin"), Log::new());
        let mut child = Command::new(env!("CARGO_BIN_EXE_settee"))
            .args(["serve", "--port", "0", "--set", "log/level=debug", "--set", "chttpd_auth/iterations=10"])
            .args(["--set", HANDLERS])
            .args(["--set", &format!("chttpd_auth/secret={WORD}-key"), "--admin", &admin, "--data"])
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.stdio())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.trim().trim_end_matches('/').parse().ok());
        Program { child, address: address.unwrap_or_else(|| panic!("{line}")), admin, log, _data: data }
    }

    fn ask(&self, who: &str, method: &str, target: &str, headers: &[&str], body: &str) -> Answer {
        exchange(self.address, &request(who, method, target, headers, body))
    }

    /// Stops it and answers all that it logged.
    fn stop(mut self) -> String {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        self.child.wait().expect("the program ends");
        self.log.text()
    }
}

/// Uses every way by which a secret comes to a node, right and wrong.
fn hand_over_secrets(node: &Program) {
    let admin = node.admin.as_str();
    let must = |answer: Answer| assert!(answer.status < 300, "{answer:?}");
    let user = format!(r#"{{"name":"ann","type":"user","roles":[],"password":"{WORD}-ann"}}"#);
    must(node.ask(admin, "PUT", "/_users/org.couchdb.user:ann", &[], &user));
    must(node.ask(&format!("ann:{WORD}-ann"), "GET", "/", &[], ""));
    for _ in 0..7 {
        node.ask(&format!("ann:{WORD}-wrong"), "GET", "/", &[], "");
        node.ask("", "POST", "/_session", &[], &format!(r#"{{"name":"x","password":"{WORD}-login"}}"#));
    }
    let login = format!(r#"{{"name":"adm","password":"{WORD}-admin"}}"#);
    must(node.ask("", "POST", "/_session", &[], &login));
    for header in [
        format!("Cookie: AuthSession={WORD}"),
        format!("Cookie: AuthSession={}", STANDARD.encode(format!("adm:{WORD}:{WORD}"))),
        format!("Authorization: Bearer {WORD}.{WORD}.{WORD}"),
        format!("Authorization: Basic {WORD}"),
        format!("Authorization: {WORD}"),
        format!("X-Auth-CouchDB-UserName: a\r\nX-Auth-CouchDB-Token: {WORD}"),
    ] {
        node.ask("", "GET", "/_session", &[&header], "");
    }
    for (path, value) in [
        ("admins/eve", format!("\"{WORD}-eve\"")),
        ("chttpd_auth/secret", format!("\"{WORD}-new\"")),
        ("chttpd_auth/accepted_secrets", format!("\"{WORD}-old, {WORD}-older\"")),
        ("chttpd_auth/accepted_secrets", format!("\"{}\"", [WORD; 5].join(","))),
        ("jwt_keys/hmac:_default", format!("\"{WORD}\"")),
        ("admins/bad = name", format!("\"{WORD}-bad\"")),
        ("chttpd_auth/password_regexp", "\"[{\\\"x\\\"\"".to_owned()),
    ] {
        let path = format!("/_node/_local/_config/{}", path.replace(' ', "%20"));
        node.ask(admin, "PUT", &path, &[], &value);
    }
    for step in [format!(r#"{{"step":"accept","secret":"{WORD}-next"}}"#), format!(r#"{{"step":"{WORD}"}}"#)] {
        node.ask(admin, "POST", "/_node/_local/_rotate_secret", &[], &step);
    }
    node.ask(admin, "POST", "/_cluster/rotate_secret", &[], "");
    node.ask(admin, "PUT", "/_users/org.couchdb.user:bob", &[], &user.replace("ann", "bob"));
    for url in [format!("http://u:{WORD}@127.0.0.1:1/x"), format!("http://u:{WORD}@{}/none", node.address)] {
        let continuous = format!(r#"{{"source":"{url}","target":"_users","continuous":true}}"#);
        node.ask(admin, "POST", "/_replicate", &[], &continuous);
    }
    // Something for each level: a listener that cannot be opened, and half a request.
    must(node.ask(admin, "PUT", "/_node/_local/_config/ssl/enable", &[], "\"true\""));
    drop(std::net::TcpStream::connect(node.address).map(|mut s| std::io::Write::write_all(&mut s, b"GET / HT")));
}

#[test]
fn no_secret_reaches_the_log() {
    let node = Program::start();
    hand_over_secrets(&node);
    let logged = |level: &str| {
        let path = format!("/_node/_local/_stats/couch_log/level/{level}");
        node.ask(&node.admin, "GET", &path, &[], "").json()["value"].as_u64().unwrap_or(0)
    };
    let begun = Instant::now();
    while ["error", "warning", "debug"].iter().any(|level| logged(level) == 0) {
        assert!(begun.elapsed() < Duration::from_secs(180), "the levels of the log are not counted");
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = node.stop();
    assert!(log.contains("DEBUG") && log.contains("ERROR") && log.contains("locked out"), "{log}");
    let encoded = STANDARD.encode(WORD);
    for line in log.lines() {
        let lower = line.to_ascii_lowercase();
        let tells = line.contains(WORD) || line.contains(&encoded[..6]) || lower.contains("pbkdf2");
        assert!(!tells, "a secret in the log: {line}");
    }
}

#[test]
fn an_answer_does_not_tell_who_exists() {
    let served = Served::start(&["chttpd_auth_lockout/mode=off", "couchdb/users_db_security_editable=true"]);
    let user = r#"{"name":"ann","type":"user","roles":[],"password":"pw"}"#;
    served.must("PUT", "/_users/org.couchdb.user:ann", user);
    served.must("PUT", "/_users/org.couchdb.user:bob", &user.replace("ann", "bob"));
    served.must("PUT", "/_users/_security", "{}");
    // The same words for a wrong password and a wrong name, on every way in.
    let login = |name: &str| served.ask("", "POST", "/_session", &format!(r#"{{"name":"{name}","password":"no"}}"#));
    let basic = |name: &str| served.ask(&format!("{name}:no"), "GET", "/", "");
    for (one, other) in [(login("ann"), login("nobody")), (basic("ann"), basic("nobody")), (basic("adm"), basic("x"))] {
        assert_eq!((one.status, &one.body), (401, &other.body));
        assert_eq!(other.status, 401);
    }
    // Another's document and one that is not there look the same.
    for method in ["GET", "PUT", "DELETE"] {
        let of = |name: &str| {
            let body = if method == "PUT" { user.replace("ann", name) } else { String::new() };
            served.ask("bob:pw", method, &format!("/_users/org.couchdb.user:{name}"), &body)
        };
        let (there, missing) = (of("ann"), of("zoe"));
        assert_eq!((there.status, &there.body), (missing.status, &missing.body), "{method}");
        assert_eq!(there.status, 404, "{method}");
    }
    served.runtime.block_on(served.node.stop());
}

/// Was: passwords of replications in the clear in the data directory and in backups.
#[test]
fn credentials_of_replications_are_sealed_where_that_is_on_and_work() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = crate::node::Node::start(dir.path(), &["--set", "replicator/seal_credentials=true"]);
    node.must("PUT", "/from", "");
    node.must("PUT", "/from/doc", r#"{"n":1}"#);
    let source = format!("http://{}@{}/from", crate::node::ADMIN, node.address);
    let target =
        format!(r#"{{"url":"http://{}/to","auth":{{"basic":{{"username":"adm","password":"pass"}}}}}}"#, node.address);
    let doc = format!(r#"{{"source":"{source}","target":{target},"create_target":true}}"#);
    node.must("PUT", "/_replicator/rep", &doc);
    let completed = || {
        let began = std::time::Instant::now();
        loop {
            let kept = node.must("GET", "/_replicator/rep", "");
            if kept.json()["_replication_state"] == "completed" {
                break kept;
            }
            assert!(began.elapsed().as_secs() < 180, "{kept:?}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    let kept = completed();
    assert_eq!(node.must("GET", "/to/doc", "").json()["n"], 1);
    assert!(!kept.body.contains("adm:pass@") && !kept.body.contains("\"pass\""), "{}", kept.body);
    // A new secret: written as it was read, the document is sealed under that one.
    node.must("POST", "/_cluster/rotate_secret", "");
    let mut read = kept.json();
    let members = read.as_object_mut().expect("a document");
    members.retain(|name, _| !name.starts_with("_replication"));
    node.must("PUT", "/_replicator/rep", &read.to_string());
    let anew = completed();
    assert!(["source", "target"].iter().all(|side| anew.json()[side]["sealed"] != kept.json()[side]["sealed"]));
    node.must("DELETE", "/_cluster/rotate_secret", "");
    node.must("DELETE", "/to", "");
    let mut read = anew.json();
    let members = read.as_object_mut().expect("a document");
    members.retain(|name, _| !name.starts_with("_replication"));
    node.must("PUT", "/_replicator/rep", &read.to_string());
    assert_eq!(completed().json()["source"]["sealed"], anew.json()["source"]["sealed"]);
    assert_eq!(node.must("GET", "/to/doc", "").json()["n"], 1);
    node.end("-TERM");
    for folder in ["journal", "store"] {
        for path in crate::node::files(dir.path(), folder, "") {
            let bytes = std::fs::read(&path).expect("read");
            assert!(!bytes.windows(9).any(|window| window == b"adm:pass@"), "{}", path.display());
        }
    }
}
