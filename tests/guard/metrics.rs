//! Every number of `_stats` is moved by what it counts, and `_prometheus` shows the same ones.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::served::{ADMIN, Served, exchange, request};

/// Every metric by its path, with its value or, for a distribution, the number of its values.
fn numbers(served: &Served) -> BTreeMap<String, f64> {
    fn walk(at: &Value, path: &str, out: &mut BTreeMap<String, f64>) {
        let Some(object) = at.as_object() else { panic!("{path} is no metric: {at}") };
        if let Some(kind) = object.get("type").and_then(Value::as_str) {
            let value = &object["value"];
            let number = if kind == "histogram" { &value["n"] } else { value };
            assert!(object["desc"].is_string(), "{path}");
            out.insert(path.to_owned(), number.as_f64().unwrap_or_else(|| panic!("{path}: {value}")));
            return;
        }
        for (name, below) in object {
            walk(below, &format!("{path}/{name}"), out);
        }
    }
    let mut out = BTreeMap::new();
    walk(&served.must("GET", "/_node/_local/_stats", "").json(), "", &mut out);
    out
}

/// Documents, functions, queries, purges, and all methods.
fn use_databases(served: &Served) {
    served.must("PUT", "/d", "");
    let rev = served.must("PUT", "/d/a", r#"{"v":1}"#).json()["rev"].clone();
    served.must("PUT", "/d/_local/l", "{}");
    served.must("POST", "/d/_bulk_docs", r#"{"docs":[{"_id":"b"},{"_id":"c"}]}"#);
    let design = r#"{"views":{"v":{"map":"function (doc) { emit(doc._id); }"}},
        "validate_doc_update":"function (doc) { if (doc.bad) { throw {forbidden: 'bad'}; } }"}"#;
    served.must("PUT", "/d/_design/x", design);
    assert_eq!(served.ask(ADMIN, "PUT", "/d/bad", r#"{"bad":true}"#).status, 403);
    served.must("GET", "/d/_design/x/_view/v", "");
    served.must("POST", "/d/_find", r#"{"selector":{"v":1}}"#);
    served.must("GET", "/d/a", "");
    served.must("GET", "/d", "");
    let copy = served.send(ADMIN, "COPY", "/d/b", &["Destination: e"], "");
    assert_eq!(copy.status, 201);
    served.must("POST", "/d/_purge", &format!(r#"{{"a":[{rev}]}}"#));
    served.ask(ADMIN, "OPTIONS", "/d", "");
    assert_eq!(served.ask(ADMIN, "HEAD", "/d/b", "").status, 200);
    served.must("POST", "/d/_compact", "");
    use_indexes(served);
    served.must("PUT", "/ends", "");
    served.must("PUT", "/ends/a", r#"{"at":1}"#);
    served.must("PUT", "/ends/_auto_purge", r#"{"expires_at":"at"}"#);
    served.must("PUT", "/gone", "");
    served.must("DELETE", "/gone", "");
}

/// Searches of both kinds, and an index that nothing names any more.
fn use_indexes(served: &Served) {
    served.set("nouveau", "enable", "true");
    let design = r#"{"indexes":{"i":{"index":"function (doc) { index('t', doc._id); }"}},
        "nouveau":{"n":{"index":"function (doc) { index('string', 't', doc._id); }"}}}"#;
    let rev = served.must("PUT", "/d/_design/s", design).json()["rev"].clone();
    served.must("GET", "/d/_design/s/_search/i?q=t:b", "");
    served.must("GET", "/d/_design/s/_nouveau/n?q=t:b", "");
    served.must("DELETE", &format!("/d/_design/s?rev={}", rev.as_str().unwrap_or_default()), "");
    served.must("POST", "/d/_view_cleanup", "");
    served.must("PUT", "/d/_design/s", design);
    served.must("GET", "/d/_design/s/_search/i?q=t:b", "");
}

fn use_logins(served: &Served) {
    let user = r#"{"name":"ann","type":"user","roles":[],"password":"pw"}"#;
    served.must("PUT", "/_users/org.couchdb.user:ann", user);
    for _ in 0..3 {
        assert_eq!(served.ask("ann:pw", "GET", "/", "").status, 200);
    }
    for n in 0..7 {
        let status = served.ask("ann:no", "GET", "/", "").status;
        assert_eq!(status, if n < 5 { 401 } else { 403 });
    }
}

fn use_replications(served: &Served) {
    let at = served.node.address();
    let target = format!("http://adm:pass@{at}/copy");
    served.must("POST", "/_replicate", &format!(r#"{{"source":"d","target":"{target}","create_target":true}}"#));
    served.set("replicator", "retries_per_request", "0");
    let failed = served.ask(ADMIN, "POST", "/_replicate", r#"{"source":"d","target":"http://127.0.0.1:1/x"}"#);
    assert!(failed.status >= 500, "{failed:?}");
    served.must("POST", "/_replicate", &format!(r#"{{"source":"d","target":"{target}","continuous":true}}"#));
    // One that fails for good, and one that waits for a turn of those two.
    served.must("POST", "/_replicate", r#"{"source":"d","target":"http://127.0.0.1:1/x","continuous":true}"#);
    served.set("replicator", "max_jobs", "1");
    served.must("POST", "/_replicate", r#"{"source":"d","target":"e","create_target":true,"continuous":true}"#);
}

/// The levels of the log are counted where there is a log, damage and what is replaced for it where there is some,
/// calls where there are other nodes; statuses are too many to bring them all about. The lag of a replication is of
/// seconds, and only there while it has some. A store file is opened by the first flush. Replicas, flushes, slow
/// requests, admission and states that are held have tests of their own.
const ELSEWHERE: [&str; 16] = [
    "/couch_log/",
    "/httpd_status_codes/",
    "/settee/admission/",
    "/settee/damaged_",
    "/settee/replaced_",
    "/settee/cluster/",
    "/settee/replication/",
    "/settee/writes/",
    "/settee/reads/",
    "/fabric/read_repairs/",
    "/settee/convergence/",
    "/settee/store_files/",
    "/settee/flush/",
    "/settee/slow_requests",
    "/settee/compaction/running",
    "/settee/views/states_held",
];

#[test]
fn every_metric_is_moved_by_what_it_counts() {
    let served = Served::start(&[]);
    use_databases(&served);
    use_logins(&served);
    use_replications(&served);
    // A panic of this thread, as the program counts those of all threads.
    settee::observe::panics::count();
    assert!(std::panic::catch_unwind(|| panic!("a planned panic")).is_err());
    // Half a request, and one that waits.
    let address = served.node.address();
    drop(TcpStream::connect(address).and_then(|mut stream| stream.write_all(b"GET / HTTP/1.1\r\nHost")));
    let mut waiting = TcpStream::connect(address).expect("a connection");
    let feed = request(ADMIN, "GET", "/d/_changes?feed=continuous&since=now&heartbeat=10000", &[], "");
    waiting.write_all(&feed).expect("sent");
    // Passwords that take a while are waited for: of names that nobody has, each asked once, so that none is locked.
    served.set("chttpd_auth", "iterations", "100000");
    let seen = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&seen);
    let wrong = std::thread::spawn(move || {
        let login = |n: u32| exchange(address, &request(&format!("nobody{n}:no"), "GET", "/", &[], "")).status;
        (0..).take_while(|_| !over.load(Ordering::Relaxed)).map(login).collect::<Vec<u16>>()
    });
    let mut highest: BTreeMap<String, f64> = BTreeMap::new();
    let mut still = Vec::new();
    served.until("every metric moves", || {
        for (path, number) in numbers(&served) {
            let seen = highest.entry(path).or_default();
            *seen = seen.max(number);
        }
        let elsewhere = |path: &str| ELSEWHERE.iter().any(|other| path.contains(other));
        still = highest.iter().filter(|(path, n)| **n <= 0.0 && !elsewhere(path)).map(|(p, _)| p.clone()).collect();
        if !still.is_empty() {
            eprintln!("not yet: {still:?}");
        }
        still.is_empty()
    });
    seen.store(true, Ordering::Relaxed);
    let statuses = wrong.join().expect("answers");
    assert!(statuses.iter().all(|status| *status == 401), "{statuses:?}");
    println!("{} metrics are moved", highest.len());
    for code in [200, 201, 401, 403, 404, 405] {
        assert!(highest[&format!("/couchdb/httpd_status_codes/{code}")] > 0.0 || code == 404, "{code}");
    }
    drop(waiting);
    the_text_form_has_them_all(&served, &highest);
    served.runtime.block_on(served.node.stop());
}

/// Each line is a comment, or a name with labels and a number; each metric of the tree is there.
fn the_text_form_has_them_all(served: &Served, metrics: &BTreeMap<String, f64>) {
    let answer = served.send(ADMIN, "GET", "/_node/_local/_prometheus", &["Accept: */*"], "");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=2.0"));
    let mut names = Vec::new();
    for line in answer.body.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            names.push(kind.split(' ').next().unwrap_or_default().to_owned());
            continue;
        }
        let (name, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(number.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        assert!(name.starts_with("couchdb_") || name.starts_with("settee_"), "{line}");
    }
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "each family is announced once");
    for path in metrics.keys() {
        let flat = path[1..].replace('/', "_");
        let family = [
            "couchdb_httpd_request_methods",
            "couchdb_httpd_status_codes",
            "couch_log_level",
            "settee_replication_lag",
        ];
        let labelled = family.iter().any(|f| flat.starts_with(f));
        assert!(labelled || names.iter().any(|name| name.contains(&flat)), "{path}");
    }
}

/// Names, kinds and meanings: what dashboards and alert rules are written against.
#[test]
fn the_metrics_of_a_new_node() {
    fn walk(at: &Value, path: &str, out: &mut String) {
        if let (Some(kind), Some(meaning)) = (at["type"].as_str(), at["desc"].as_str()) {
            *out += &format!("{path} ({kind}): {meaning}\n");
            return;
        }
        for (name, below) in at.as_object().expect("an object") {
            walk(below, &format!("{path}/{name}"), out);
        }
    }
    let served = Served::start(&[]);
    let mut text = "_stats\n".to_owned();
    walk(&served.must("GET", "/_node/_local/_stats", "").json(), "", &mut text);
    text += "\n_prometheus\n";
    let page = served.send(ADMIN, "GET", "/_node/_local/_prometheus", &["Accept: */*"], "").body;
    page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).for_each(|line| text += &format!("{line}\n"));
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("metrics", text);
    });
    served.runtime.block_on(served.node.stop());
}

#[test]
fn paths_lead_into_the_tree_and_the_role_of_metrics_reads_it() {
    let served = Served::start(&[]);
    let one = served.must("GET", "/_node/_local/_stats/couchdb/httpd/requests", "").json();
    assert_eq!((one["type"].as_str(), one["desc"].as_str()), (Some("counter"), Some("number of HTTP requests")));
    let nothing = served.ask(ADMIN, "GET", "/_node/_local/_stats/couchdb/nothing", "");
    assert_eq!((nothing.status, nothing.body.trim()), (200, "null"));
    let user = r#"{"name":"eye","type":"user","roles":["_metrics"],"password":"pw"}"#;
    served.must("PUT", "/_users/org.couchdb.user:eye", user);
    for (path, status) in
        [("_stats", 200), ("_system", 200), ("_prometheus", 200), ("_versions", 401), ("_config", 401)]
    {
        assert_eq!(served.ask("eye:pw", "GET", &format!("/_node/_local/{path}"), "").status, status, "{path}");
    }
    let system = served.must("GET", "/_node/_local/_system", "").json();
    for name in ["process_count", "open_files", "context_switches", "io_input", "io_output", "memory_peak"] {
        assert!(system[name].as_u64().is_some_and(|n| n > 0), "{name}: {system}");
    }
    assert!(system["memory"]["other"].as_u64().is_some_and(|n| n > 1 << 20), "{system}");
    served.runtime.block_on(served.node.stop());
}
