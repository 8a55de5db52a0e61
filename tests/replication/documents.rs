//! Replications that documents ask for: what becomes of them when their databases and documents come, go and change.

use serde_json::{Value, json};

use crate::served::Served;

const EACH: &str = "adm:pass";

fn node() -> Served {
    let served = Served::start(&[]);
    served.must("PUT", "/here", "");
    served
}

fn asked(target: &str) -> String {
    json!({"source": "here", "target": target, "create_target": true, "continuous": true}).to_string()
}

/// The documents of jobs that run.
fn running(served: &Served) -> Vec<Value> {
    let jobs = served.must("GET", "/_scheduler/jobs?limit=1000", "").json();
    jobs["jobs"].as_array().into_iter().flatten().map(|job| job["doc_id"].clone()).collect()
}

fn end(served: Served) {
    served.runtime.block_on(served.node.stop());
}

#[test]
fn replications_of_a_database_that_was_made_again_at_once_do_not_go_on() {
    let served = node();
    served.must("PUT", "/a%2F_replicator", "");
    served.must("PUT", "/a%2F_replicator/r", &asked("copy"));
    served.until("it runs", || running(&served) == [json!("r")]);
    served.must("DELETE", "/a%2F_replicator", "");
    served.must("PUT", "/a%2F_replicator", "");
    served.until("it runs no more", || running(&served).is_empty());
    // Nor is a document of the same content taken for the one that is gone.
    served.must("PUT", "/a%2F_replicator/r", &asked("copy"));
    served.until("the new one runs", || running(&served) == [json!("r")]);
    served.must("DELETE", "/a%2F_replicator", "");
    served.must("PUT", "/a%2F_replicator", "");
    served.must("PUT", "/a%2F_replicator/r", &asked("copy"));
    let told = || served.ask(EACH, "GET", "/_scheduler/docs/a%2F_replicator/r", "").json();
    served.until("and the next", || told()["state"] == "running" && running(&served) == [json!("r")]);
    end(served);
}

#[test]
fn a_replication_cancelled_by_its_id_is_not_said_to_run() {
    let served = node();
    served.must("PUT", "/_replicator/r", &asked("copy"));
    let told = || served.must("GET", "/_scheduler/docs/_replicator/r", "").json();
    served.until("it runs", || told()["state"] == "running");
    let id = told()["id"].clone();
    served.must("POST", "/_replicate", &json!({"cancel": true, "replication_id": id}).to_string());
    served
        .until("nothing runs, and nothing is said to", || told()["state"] != "running" && running(&served).is_empty());
    // Written anew it asks anew.
    let rev = served.must("GET", "/_replicator/r", "").json()["_rev"].clone();
    served.must("PUT", &format!("/_replicator/r?rev={}", rev.as_str().unwrap_or_default()), &asked("copy"));
    served.until("it runs again", || told()["state"] == "running");
    end(served);
}

/// A member could start a replication of somebody else once more, with that one's rights, by copying its document.
#[test]
fn a_replication_of_another_user_cannot_be_copied_or_attached_to() {
    let served = node();
    served.must("PUT", "/a%2F_replicator", "");
    served.must("PUT", "/a%2F_replicator/_security", r#"{"members":{"roles":[]},"admins":{"roles":["_admin"]}}"#);
    for name in ["ann", "bob"] {
        let user = format!(r#"{{"name":"{name}","type":"user","roles":[],"password":"pw"}}"#);
        served.must("PUT", &format!("/_users/org.couchdb.user:{name}"), &user);
    }
    let ann = served.ask("ann:pw", "PUT", "/a%2F_replicator/r", r#"{"source":"http://127.0.0.1:1/s","target":"t"}"#);
    assert_eq!(ann.status, 201, "{ann:?}");
    let rev = ann.json()["rev"].as_str().unwrap_or_default().to_owned();
    let copy = |who: &str, to: &str| {
        served.send(who, "COPY", "/a%2F_replicator/r", &[&format!("Destination: {to}")], "").status
    };
    let attach = |who: &str| {
        let target = format!("/a%2F_replicator/r/f?rev={rev}");
        served.send(who, "PUT", &target, &["Content-Type: text/plain"], "x").status
    };
    assert_eq!((copy("bob:pw", "b"), attach("bob:pw")), (403, 403));
    // The attachment first: once there is a copy, whichever document is looked at second is marked as a duplicate.
    assert_eq!((attach("ann:pw"), copy("ann:pw", "c")), (201, 201));
    end(served);
}
