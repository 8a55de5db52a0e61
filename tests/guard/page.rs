//! The administration page and what it asks a node: what is served, with which headers, and to whom.

use std::fs;

use crate::served::{ADMIN, Answer, Served};

const GZIP: &str = "Accept-Encoding: gzip, br";

fn get(served: &Served, path: &str, headers: &[&str]) -> Answer {
    served.send("", "GET", path, headers, "")
}

#[test]
fn the_page_is_served_strictly_and_only_once() {
    let served = Served::start(&[]);
    let page = get(&served, "/_utils/", &["Accept: text/html"]);
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    for part in ["default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "object-src 'none'"] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    assert!(page.header("cache-control").is_some_and(|told| told.contains("must-revalidate")));
    // A script, compressed; asked for again with what was told.
    let plain = get(&served, "/_utils/app.js", &[]);
    assert_eq!(plain.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
    let small = get(&served, "/_utils/app.js", &[GZIP, "Accept: */*"]);
    assert_eq!(small.header("content-encoding"), Some("gzip"));
    assert_ne!(plain.header("etag"), small.header("etag"));
    let etag = plain.header("etag").expect("an ETag").to_uppercase();
    let again = get(&served, "/_utils/app.js", &[&format!("If-None-Match: {etag}")]);
    assert_eq!((again.status, again.header("content-type")), (304, None));
    let head = served.send("", "HEAD", "/_utils/app.js", &[], "");
    assert_eq!((head.status, head.body.is_empty()), (200, true));
    // The worker in which functions are tried: text becomes code there, and only there.
    let worker = get(&served, "/_utils/js/trial_worker.js", &[]);
    let policy = "default-src 'none'; script-src 'unsafe-eval'; frame-ancestors 'none'";
    assert_eq!((worker.status, worker.header("content-security-policy")), (200, Some(policy)));
    served.runtime.block_on(served.node.stop());
}

#[test]
fn no_path_leads_out_of_the_page() {
    let served = Served::start(&[]);
    for path in
        ["/_utils/../Cargo.toml", "/_utils/%2e%2e/%2e%2e/etc/passwd", "/_utils/..%2F..%2Fetc%2Fpasswd", "/_utils/x"]
    {
        let answer = get(&served, path, &[]);
        assert_eq!((answer.status, answer.body.as_str()), (404, "Not found."), "{path}");
    }
    served.runtime.block_on(served.node.stop());
}

#[test]
fn a_folder_is_served_in_place_of_the_page_and_nothing_beside_it() {
    let root = tempfile::tempdir().expect("a directory");
    let folder = root.path().join("other");
    fs::create_dir_all(folder.join("js")).expect("a directory");
    fs::write(folder.join("index.html"), "<title>other</title>").expect("a file");
    fs::write(folder.join("js/app.js"), "1").expect("a file");
    fs::write(folder.join(".hidden"), "secret").expect("a file");
    fs::write(root.path().join("secret"), "secret").expect("a file");
    std::os::unix::fs::symlink(root.path().join("secret"), folder.join("link")).expect("a link");
    std::os::unix::fs::symlink(folder.join("js/app.js"), folder.join("inside.js")).expect("a link");
    let served = Served::start(&[&format!("settee/utils_dir={}", folder.display())]);
    let page = get(&served, "/_utils/", &[]);
    assert_eq!((page.status, page.body.as_str()), (200, "<title>other</title>"));
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.contains("frame-ancestors 'self'")));
    assert_eq!(get(&served, "/_utils/js/app.js", &[]).body, "1");
    assert_eq!(get(&served, "/_utils/inside.js", &[]).body, "1");
    let out =
        ["link", "..%2Fsecret", "js%2F..%2F..%2Fsecret", ".hidden", "js", "js/", "%2Fetc%2Fpasswd", "a%00b", "nothing"];
    for path in out {
        let answer = get(&served, &format!("/_utils/{path}"), &[]);
        assert!(answer.status == 404 && !answer.body.contains("secret"), "{path}: {answer:?}");
    }
    // The page to log in with stays the node's own.
    assert_eq!(get(&served, "/_utils/session.html", &[]).status, 200);
    served.runtime.block_on(served.node.stop());
}

#[test]
fn administrators_are_told_how_the_node_and_its_cluster_are() {
    let served = Served::start(&["log/slow_ms=0", "couchdb/maintenance_mode=nolb"]);
    served.must("PUT", "/d?q=4", "");
    let state = served.must("GET", "/_node/_local/_state", "").json();
    assert_eq!(
        (&state["status"], &state["in_sync"], &state["maintenance"]),
        (&"nolb".into(), &true.into(), &false.into())
    );
    assert!(state["free_bytes"].as_u64() > Some(0) && state["memory_bytes"].as_u64() > Some(0), "{state}");
    let status = served.must("GET", "/_cluster/status", "").json();
    let reach = &status["reach"];
    // `_users` and `_replicator` of one range each, and the four of `d`.
    assert_eq!((&reach["databases"], &reach["ranges"], &reach["lacking"]), (&3.into(), &6.into(), &0.into()));
    let own = &status["members"][0];
    assert_eq!((&own["up"], &own["replicas"], &own["state"]["status"]), (&true.into(), &6.into(), &"nolb".into()));
    let slow = served.must("GET", "/_node/_local/_slow_requests", "").json();
    assert_eq!(slow["threshold_ms"], 0);
    let newest = &slow["requests"][0];
    assert_eq!((&newest["path"], &newest["user"]), (&"/_cluster/status".into(), &"adm".into()));
    let told = served.ask(ADMIN, "POST", "/_cluster/status", "{}");
    assert_eq!((told.status, told.header("allow")), (405, Some("get,head")));
    served.runtime.block_on(served.node.stop());
}

#[test]
fn the_log_is_told_by_level_and_number_and_bad_questions_are_refused() {
    let served = Served::start(&[]);
    let log = served.must("GET", "/_node/_local/_log?level=warn&since=0&limit=5", "").json();
    assert!(log["lines"].is_array() && log["last"].is_u64(), "{log}");
    for query in ["level=loud", "since=-1", "limit=many"] {
        let answer = served.ask(ADMIN, "GET", &format!("/_node/_local/_log?{query}"), "");
        assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("bad_request")), "{query}");
    }
    served.runtime.block_on(served.node.stop());
}

#[test]
fn defaults_are_told_and_name_no_secret() {
    let served = Served::start(&["cluster/secret=hush", "cluster/port=0"]);
    let defaults = served.must("GET", "/_node/_local/_config_defaults", "");
    assert!(!defaults.body.contains("hush"));
    let defaults = defaults.json();
    assert_eq!(defaults["chttpd"]["port"]["default"], "5984");
    assert_eq!(defaults["chttpd"]["require_valid_user"]["takes"], "true or false");
    assert!(defaults["settee"]["utils_dir"]["default"].is_null());
    served.runtime.block_on(served.node.stop());
}

#[test]
fn snapshots_are_listed_by_folder_and_database() {
    let root = tempfile::tempdir().expect("a directory");
    let served = Served::start(&[]);
    assert_eq!(served.ask(ADMIN, "GET", "/_node/_local/_snapshot", "").status, 403);
    served.set("settee", "snapshot_dir", &root.path().to_string_lossy());
    served.must("PUT", "/a%2Fb", "");
    let list = |target: &str| served.must("GET", target, "").json();
    assert_eq!(list("/_node/_local/_snapshot")["folders"].as_array().map(Vec::len), Some(0));
    assert_eq!(list("/_node/_local/_snapshot?path=daily")["databases"].as_array().map(Vec::len), Some(0));
    for _ in 0..2 {
        served.must("POST", "/a%2Fb/_snapshot", r#"{"path":"daily"}"#);
    }
    assert_eq!(list("/_node/_local/_snapshot")["folders"][0], "daily");
    let found = list("/_node/_local/_snapshot?path=daily");
    let times: Vec<u64> =
        found["databases"][0]["taken_ms"].as_array().expect("times").iter().filter_map(|t| t.as_u64()).collect();
    assert!(found["databases"][0]["db"] == "a/b" && times.len() == 2 && times[0] > times[1], "{found}");
    for path in ["..", "/etc", "a/../..", ""] {
        assert_eq!(
            served.ask(ADMIN, "GET", &format!("/_node/_local/_snapshot?path={path}"), "").status,
            400,
            "{path:?}"
        );
    }
    served.runtime.block_on(served.node.stop());
}
