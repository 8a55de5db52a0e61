//! Where browsers are sent, what the login page is, and when sessions are renewed.

use crate::served::{ADMIN, Served};

const HTML: &str = "Accept: text/html";

#[test]
fn a_browser_is_sent_to_a_page_where_it_can_log_in() {
    let served = Served::start(&[]);
    let sent = served.send("", "GET", "/_all_dbs?x=1", &[HTML], "");
    let port = "http://here/_utils/session.html?return=%2f_all_dbs&reason=you%20are%20not%20a%20server%20admin.";
    assert_eq!((sent.status, sent.header("location")), (302, Some(port)));
    assert!(sent.body.contains("\"unauthorized\""));
    // Who takes JSON is told by JSON; who is challenged is asked by the browser.
    assert_eq!(served.send("", "GET", "/_all_dbs", &["Accept: text/html, application/json"], "").status, 401);
    let asked = served.send("", "GET", "/_all_dbs", &[HTML, "X-CouchDB-WWW-Authenticate: Cookie"], "");
    assert_eq!((asked.status, asked.header("www-authenticate")), (401, Some("cookie")));
    served.set("chttpd_auth", "authentication_redirect", "/login");
    let elsewhere = served.send("", "GET", "/_all_dbs", &[HTML], "");
    assert!(elsewhere.header("location").is_some_and(|to| to.starts_with("http://here/login?return=")));
    served.set("chttpd", "WWW-Authenticate", "Basic realm=\"x\"");
    let asked = served.send("", "GET", "/_all_dbs", &[HTML], "");
    assert_eq!((asked.status, asked.header("www-authenticate")), (401, Some("basic realm=\"x\"")));
    served.runtime.block_on(served.node.stop());
}

#[test]
fn the_login_page_is_plain_and_its_form_works() {
    let served = Served::start(&[]);
    let page = served.send("", "GET", "/_utils/session.html?return=/d&reason=%3Cb%3E", &[HTML], "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'")));
    assert!(!page.body.contains("<script") && !page.body.contains("<b>") && page.body.contains("&lt;b&gt;"));
    let action = page.body.split("action=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a form");
    let form = ["Content-Type: application/x-www-form-urlencoded", HTML];
    let right = served.send("", "POST", &action.replace("&amp;", "&"), &form, "name=adm&password=pass");
    assert_eq!((right.status, right.header("location")), (302, Some("http://here/d")));
    let wrong = served.send("", "POST", &action.replace("&amp;", "&"), &form, "name=adm&password=no");
    let back = wrong.header("location").expect("a way back");
    assert!(
        wrong.status == 302 && back.starts_with("http://here/_utils/session.html?return=%2fd&reason=name"),
        "{back}"
    );
    served.runtime.block_on(served.node.stop());
}

#[test]
fn pages_and_attachments_tell_browsers_what_they_may_do() {
    let served = Served::start(&["chttpd/enable_xframe_options=true"]);
    served.must("PUT", "/d", "");
    served.must("PUT", "/d/a", r#"{"_attachments":{"f":{"data":"YQ==","content_type":"text/html"}}}"#);
    let policy = |path: &str| {
        let answer = served.send(ADMIN, "GET", path, &["Accept: */*"], "");
        assert_eq!(answer.header("x-frame-options"), Some("deny"), "{path}");
        answer.header("content-security-policy").map(str::to_owned)
    };
    assert_eq!(policy("/d/a/f").as_deref(), Some("sandbox"));
    assert_eq!(policy("/d/a"), None);
    assert!(policy("/_utils/").is_some_and(|policy| policy.starts_with("default-src 'self'")));
    served.set("csp", "attachments_enable", "false");
    served.set("csp", "utils_header_value", "default-src *");
    assert_eq!((policy("/d/a/f"), policy("/_utils/").as_deref()), (None, Some("default-src *")));
    served.runtime.block_on(served.node.stop());
}

#[test]
fn handlers_come_and_go_while_the_node_runs() {
    let served = Served::start(&[]);
    let named = ["X-Auth-CouchDB-UserName: jane", "X-Auth-CouchDB-Roles: a, b"];
    let who = || served.send("", "GET", "/_session", &named, "").json()["userCtx"]["name"].clone();
    assert!(who().is_null());
    served.set("chttpd", "authentication_handlers", "{chttpd_auth, proxy_authentication_handler}");
    assert_eq!(who(), "jane");
    assert_eq!(served.ask(ADMIN, "GET", "/_all_dbs", "").status, 401, "Basic is off");
    served.set("chttpd", "authentication_handlers", "");
    assert!(who().is_null());
    assert_eq!(served.ask(ADMIN, "GET", "/_all_dbs", "").status, 200);
    served.runtime.block_on(served.node.stop());
}

#[test]
fn the_users_database_has_its_design_document() {
    let served = Served::start(&[]);
    let design = served.must("GET", "/_users/_design/_auth", "").json();
    assert!(design["validate_doc_update"].as_str().is_some_and(|text| text.contains("doc.type must be user")));
    assert_eq!(design["language"], "javascript");
    let robot = r#"{"name":"r","type":"robot","roles":[]}"#;
    let refused = served.ask(ADMIN, "PUT", "/_users/org.couchdb.user:r", robot);
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (403, Some("doc.type must be user")));
    served.must("DELETE", "/_users", "");
    served.must("PUT", "/_users", "");
    assert_eq!(served.must("GET", "/_users/_design/_auth", "").json()["_rev"], design["_rev"]);
    served.runtime.block_on(served.node.stop());
}
