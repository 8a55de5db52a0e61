//! The users database and sessions over real sockets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::http::tests::{Served, header, status};

const USER: &str = "/_users/org.couchdb.user:";

/// A request with these credentials; an empty pair is nobody.
fn send(served: &Served, pair: &str, method: &str, target: &str, body: &str) -> String {
    let credentials = match pair {
        "" => String::new(),
        pair => format!("Authorization: Basic {}\r\n", STANDARD.encode(pair)),
    };
    with_headers(served, &credentials, method, target, body)
}

fn with_headers(served: &Served, headers: &str, method: &str, target: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    served.exchange(request.as_bytes())
}

fn user(name: &str, rest: &str) -> String {
    format!(r#"{{"name":"{name}","type":"user","roles":[]{rest}}}"#)
}

/// A node whose users database is open to all.
fn open(settings: &[&str]) -> Served {
    let settings: Vec<&str> = settings.iter().copied().chain(["couchdb/users_db_security_editable=true"]).collect();
    let served = Served::start(&settings);
    assert_eq!(status(&served.ask("PUT", "/_users/_security", "", "{}")), 200);
    served
}

fn rev(answer: &str) -> String {
    header(answer, "etag").expect("an ETag").trim_matches('"').to_owned()
}

#[test]
fn anyone_signs_up_and_sees_the_own_document_and_public_fields_of_others() {
    let served = open(&["chttpd_auth/public_fields=nick"]);
    let ann = user("ann", r#","password":"pw","nick":"A""#);
    assert_eq!(status(&send(&served, "", "PUT", &format!("{USER}ann"), &ann)), 201);
    assert_eq!(status(&send(&served, "", "PUT", &format!("{USER}ann"), &ann)), 409);
    assert_eq!(status(&send(&served, "", "PUT", &format!("{USER}bob"), &user("bob", r#","password":"pw""#))), 201);
    let own = send(&served, "ann:pw", "GET", &format!("{USER}ann"), "");
    assert!(own.contains("derived_key") && !own.contains("\"password\""), "{own}");
    let public = send(&served, "bob:pw", "GET", &format!("{USER}ann"), "");
    assert!(public.contains("\"nick\":\"A\"") && !public.contains("salt"), "{public}");
    for (who, method, target) in [
        ("ann:pw", "GET", "bob"),
        ("ann:pw", "DELETE", "bob"),
        ("ann:pw", "PUT", "bob"),
        ("", "GET", "bob"),
        ("ann:pw", "GET", "ann2"),
        ("", "DELETE", "bob"),
    ] {
        let answer = send(&served, who, method, &format!("{USER}{target}"), &user(target, ""));
        assert!(status(&answer) == 404 && answer.contains("missing"), "{who} {method} {target}: {answer}");
    }
    let hidden = send(&served, "bob:pw", "POST", "/_users/_bulk_get", r#"{"docs":[{"id":"org.couchdb.user:ann"}]}"#);
    assert!(hidden.contains("not_found") && !hidden.contains("salt"), "{hidden}");
    for list in ["_all_docs", "_changes", "_design_docs", "_local_docs"] {
        assert_eq!(status(&send(&served, "ann:pw", "GET", &format!("/_users/{list}"), "")), 401, "{list}");
    }
    let shown = send(&served, "", "DELETE", &format!("{USER}ann"), "");
    assert!(
        status(&shown) == 403 && shown.contains("Only admins may delete"),
        "a nickname shows who is there: {shown}"
    );
    let design = |name: &str| status(&send(&served, "ann:pw", "GET", &format!("/_users/_design/{name}"), ""));
    assert_eq!((design("_auth"), design("none")), (403, 404));
}

#[test]
fn a_new_password_ends_sessions_and_deletion_ends_the_user() {
    let served = open(&[]);
    let put = |rev: &str, password: &str| {
        let doc = user("ann", &format!(r#","password":"{password}""#));
        send(&served, "adm:pass", "PUT", &format!("{USER}ann{rev}"), &doc)
    };
    let first = put("", "one");
    assert_eq!(status(&first), 201);
    let login = send(&served, "", "POST", "/_session", r#"{"name":"ann","password":"one"}"#);
    let cookie = header(&login, "set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
    let session = || with_headers(&served, &format!("Cookie: {cookie}\r\n"), "GET", "/_session", "");
    assert!(session().contains(r#""name":"ann""#) && session().contains(r#""authenticated":"cookie""#));
    let second = put(&format!("?rev={}", rev(&first)), "two");
    assert_eq!(status(&second), 201);
    assert!(session().contains(r#""name":null"#));
    assert_eq!(status(&send(&served, "ann:one", "GET", "/", "")), 401);
    assert_eq!(status(&send(&served, "ann:two", "GET", "/", "")), 200);
    assert_eq!(status(&send(&served, "ann:two", "DELETE", &format!("{USER}ann?rev={}", rev(&second)), "")), 200);
    assert_eq!(status(&send(&served, "ann:two", "GET", "/", "")), 401);
}

#[test]
fn an_outdated_hash_is_replaced_by_a_login_and_its_session_holds() {
    let served = open(&[]);
    let old = user("eve", r#","salt":"old","password_sha":"3f6cd15f0379c2d2f2057a5406c146fed2db4210""#);
    assert_eq!(status(&send(&served, "adm:pass", "PUT", &format!("{USER}eve"), &old)), 201);
    let login = send(&served, "", "POST", "/_session", r#"{"name":"eve","password":"plain"}"#);
    assert_eq!(status(&login), 200);
    let now = served.ask("GET", &format!("{USER}eve"), "", "");
    assert!(now.contains("\"pbkdf2_prf\":\"sha256\"") && !now.contains("password_sha"), "{now}");
    let cookie = header(&login, "set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
    assert!(with_headers(&served, &format!("Cookie: {cookie}\r\n"), "GET", "/_session", "").contains("\"eve\""));
    assert_eq!(status(&send(&served, "eve:plain", "GET", "/", "")), 200);
}

#[test]
fn passwords_that_are_weak_or_hashed_too_weakly_are_refused() {
    let served = open(&[r#"chttpd_auth/password_regexp=[{".{4,}", "Four letters."}]"#, "chttpd_auth/min_iterations=1"]);
    let docs = format!(
        r#"{{"docs":[{{"_id":"org.couchdb.user:a",{}}},{{"_id":"org.couchdb.user:b",{}}}]}}"#,
        r#""name":"a","type":"user","roles":[],"password":"abc""#,
        r#""name":"b","type":"user","roles":[],"password":"abcd""#
    );
    let bulk = send(&served, "adm:pass", "POST", "/_users/_bulk_docs", &docs);
    assert!(
        status(&bulk) == 400 && bulk.contains("Password does not conform to requirements. Four letters."),
        "{bulk}"
    );
    assert_eq!(status(&send(&served, "adm:pass", "GET", &format!("{USER}b"), "")), 404, "none of them is stored");
    for name in ["b", "c"] {
        let doc = format!(r#"{{"name":"{name}","type":"user","roles":[],"password":"abcd"}}"#);
        assert_eq!(status(&send(&served, "adm:pass", "PUT", &format!("{USER}{name}"), &doc)), 201);
    }
    assert_eq!(status(&send(&served, "c:abcd", "GET", "/", "")), 200);
    assert_eq!(status(&served.ask("PUT", "/_node/_local/_config/chttpd_auth/min_iterations", "", "\"50\"")), 200);
    let low = send(&served, "b:abcd", "GET", "/", "");
    assert!(status(&low) == 403 && low.contains("Iteration count is too low for this server"), "{low}");
    assert_eq!(status(&send(&served, "c:abcd", "GET", "/", "")), 200, "verified before");
}

#[test]
fn a_document_with_conflicts_opens_nothing() {
    let served = open(&[]);
    assert_eq!(status(&send(&served, "", "PUT", &format!("{USER}c"), &user("c", r#","password":"pw""#))), 201);
    let other = user("c", r#","_rev":"1-abc""#);
    let target = format!("{USER}c?new_edits=false");
    assert_eq!(status(&send(&served, "", "PUT", &target, &other)), 403, "nobody closes another's account");
    assert_eq!(status(&send(&served, "adm:pass", "PUT", &target, &other)), 201);
    let login = send(&served, "c:pw", "GET", "/", "");
    assert!(status(&login) == 401 && login.contains("conflict must be resolved"), "{login}");
}

#[test]
fn a_public_users_database_is_listed_with_public_fields_only() {
    let served = open(&["chttpd_auth/public_fields=nick"]);
    for (name, more) in [("ann", r#","nick":"A""#), ("bob", "")] {
        let doc = user(name, &format!(r#","password":"pw"{more}"#));
        assert_eq!(status(&send(&served, "", "PUT", &format!("{USER}{name}"), &doc)), 201);
    }
    let list = |who: &str| send(&served, who, "GET", "/_users/_all_docs?include_docs=true", "");
    assert_eq!(status(&list("bob:pw")), 401);
    let at = "/_node/_local/_config/chttpd_auth/users_db_public";
    assert_eq!(status(&served.ask("PUT", at, "", "\"true\"")), 200);
    let seen = list("bob:pw");
    assert_eq!(status(&seen), 200, "{seen}");
    assert!(seen.contains("\"nick\":\"A\"") && seen.matches("derived_key").count() == 1, "{seen}");
    let of = |id: &str| seen.lines().find(|line| line.contains(id)).unwrap_or_default().to_owned();
    assert!(of("user:bob").contains("derived_key") && of("_design/_auth").contains("\"doc\":null"), "{seen}");
    let nobody = list("");
    assert!(status(&nobody) == 200 && !nobody.contains("salt") && header(&nobody, "etag").is_none(), "{nobody}");
    assert_eq!(status(&send(&served, "bob:pw", "GET", "/_users/_changes?include_docs=true", "")), 401);
}

#[test]
fn nobody_is_told_of_others_by_revisions_and_nobody_chooses_what_a_login_costs() {
    let served = open(&["chttpd_auth/iterations=10"]);
    let ann = user("ann", r#","password":"pw""#);
    let made = send(&served, "", "PUT", &format!("{USER}ann"), &ann);
    let asked = format!(r#"{{"org.couchdb.user:ann":["{}","9-a"]}}"#, rev(&made));
    let own = send(&served, "ann:pw", "POST", "/_users/_revs_diff", &asked);
    assert!(own.contains(r#"{"missing":["9-a"],"possible_ancestors":"#), "{own}");
    let bob = user("bob", r#","password":"pw""#);
    assert_eq!(status(&send(&served, "", "PUT", &format!("{USER}bob"), &bob)), 201);
    let other = send(&served, "bob:pw", "POST", "/_users/_revs_diff", &asked);
    assert!(other.contains(&format!(r#"{{"missing":["{}","9-a"]}}"#, rev(&made))), "{other}");
    let hash = |rounds: u32| {
        let derived = "00".repeat(32);
        let hashed =
            format!(r#","password_scheme":"pbkdf2","pbkdf2_prf":"sha256","salt":"s","derived_key":"{derived}""#);
        user("eve", &format!(r#"{hashed},"iterations":{rounds}"#))
    };
    let costly = send(&served, "", "PUT", &format!("{USER}eve"), &hash(9_000_000));
    assert!(status(&costly) == 403 && costly.contains("iterations must not be more than 10."), "{costly}");
    assert_eq!(status(&send(&served, "", "PUT", &format!("{USER}eve"), &hash(10))), 201);
}
