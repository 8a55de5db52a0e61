//! Replication with a server that fails in every way that servers fail (`scripted`).

use std::time::Duration;

use serde_json::{Value, json};

use super::scripted::{Asked, Fault, Peer};
use crate::served::{Answer, Served};

/// Peers may be silent for as long as they may by default: on a busy machine a shorter wait would ask them twice.
fn node() -> Served {
    Served::start(&[])
}

fn pull(served: &Served, peer: &Peer, more: &str) -> Answer {
    let order = format!(r#"{{"source":"{}","target":"copy","create_target":true{more}}}"#, peer.url);
    served.ask("adm:pass", "POST", "/_replicate", &order)
}

fn push(served: &Served, peer: &Peer, more: &str) -> Answer {
    let order = format!(r#"{{"source":"here","target":"{}"{more}}}"#, peer.url);
    served.ask("adm:pass", "POST", "/_replicate", &order)
}

/// A database `here` with so many documents.
fn fill(served: &Served, count: usize) {
    served.must("PUT", "/here", "");
    let docs: Vec<Value> = (0..count).map(|n| json!({"_id": format!("h{n}"), "n": n})).collect();
    served.must("POST", "/here/_bulk_docs", &json!({ "docs": docs }).to_string());
}

fn session(answer: &Answer) -> Value {
    answer.json()["history"][0].clone()
}

fn end(served: Served) {
    served.runtime.block_on(served.node.stop());
}

#[test]
fn failures_that_pass_are_sat_out() {
    let hasty = ["replicator/connection_timeout=1000", "replicator/retries_per_request=20"];
    let (served, peer) = (Served::start(&hasty), Peer::with_docs(20));
    peer.fail("GET ", Fault::Close);
    peer.fail("GET _local/", Fault::Status(503, "service_unavailable"));
    peer.fail("GET _changes", Fault::Cut);
    peer.fail("GET _changes", Fault::Slow(Duration::from_secs(2)));
    peer.fail("POST _bulk_get", Fault::With(429, "Retry-After", "1".to_owned()));
    peer.fail("POST _bulk_get", Fault::Garbled);
    peer.fail("POST _bulk_get", Fault::Status(500, "internal_server_error"));
    peer.fail("PUT _local/", Fault::Close);
    let answer = pull(&served, &peer, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    let session = session(&answer);
    assert_eq!([&session["docs_written"], &session["doc_write_failures"]], [20, 0]);
    assert_eq!(peer.unused(), 0);
    assert_eq!(pull(&served, &peer, "").json()["no_changes"], true);
    end(served);
}

#[test]
fn a_failure_that_stays_ends_a_one_shot_replication_with_its_reason() {
    let (served, peer) = (node(), Peer::with_docs(1));
    let more = r#","retries_per_request":1"#;
    for (fault, status, error) in [
        (Fault::Status(401, "unauthorized"), 401, "unauthorized"),
        (Fault::Status(403, "forbidden"), 403, "forbidden"),
        (Fault::Status(404, "not_found"), 500, "db_not_found"),
    ] {
        peer.fail("GET ", fault);
        let answer = pull(&served, &peer, more);
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(error)), "{answer:?}");
    }
    let with_name = peer.url.replace("http://", "http://ann:secret@");
    peer.fail("GET ", Fault::Status(401, "unauthorized"));
    let order = format!(r#"{{"source":"{with_name}","target":"copy"{more}}}"#);
    let answer = served.ask("adm:pass", "POST", "/_replicate", &order);
    assert_eq!(answer.json()["error"], "replication_auth_error");
    assert!(!answer.body.contains("secret"), "{answer:?}");
    // One more than it is repeated.
    peer.fail("GET _changes", Fault::Status(500, "badmatch"));
    peer.fail("GET _changes", Fault::Status(500, "badmatch"));
    let answer = pull(&served, &peer, more);
    assert_eq!((answer.status, answer.json()["error"].as_str()), (500, Some("badmatch")), "{answer:?}");
    assert_eq!(session(&pull(&served, &peer, more))["docs_written"], 1);
    end(served);
}

#[test]
fn servers_without_bulk_get_are_asked_document_by_document() {
    for status in [404, 405, 501] {
        let (served, peer) = (node(), Peer::with_docs(5));
        peer.fail("POST _bulk_get", Fault::Status(status, "not_there"));
        let session = session(&pull(&served, &peer, ""));
        assert_eq!([&session["docs_written"], &session["bulk_get_docs"]], [5, 0], "{status}");
        assert_eq!(peer.asked("POST _bulk_get"), 1);
        end(served);
    }
    let (served, peer) = (node(), Peer::with_docs(5));
    assert_eq!(session(&pull(&served, &peer, r#","use_bulk_get":false"#))["docs_written"], 5);
    assert_eq!(peer.asked("POST _bulk_get"), 0);
    end(served);
}

/// A server that answers one document of many with an error of its own must not lose it for us.
#[test]
fn a_document_that_failed_within_bulk_get_is_asked_for_again() {
    let (served, peer) = (node(), Peer::with_docs(2));
    let failed = json!({"error": {"id": "d0", "rev": "1-a", "error": "internal_error", "reason": "timeout"}});
    let found = json!({"ok": {"_id": "d1", "_rev": "1-a", "_revisions": {"start": 1, "ids": ["a"]}}});
    let body = json!({"results": [{"id": "d0", "docs": [failed]}, {"id": "d1", "docs": [found]}]});
    peer.fail("POST _bulk_get", Fault::Body(body));
    assert_eq!(session(&pull(&served, &peer, ""))["docs_written"], 2);
    assert_eq!(peer.asked("GET d0"), 1);
    // One that the source keeps back is counted, and the others come.
    peer.state().docs.push(json!({"_id": "d2", "_rev": "1-a"}));
    peer.fail("POST _bulk_get", Fault::Status(404, "not_found"));
    peer.fail("GET d2", Fault::Status(403, "forbidden"));
    let later = session(&pull(&served, &peer, ""));
    assert_eq!([&later["docs_written"], &later["doc_write_failures"]], [2, 1]);
    end(served);
}

#[test]
fn what_the_target_will_not_take_is_counted_and_holds_up_nothing() {
    let (served, peer) = (node(), Peer::start());
    fill(&served, 8);
    // Too much at once, then still, then one document that is too large by itself, and one that is refused.
    (0..4).for_each(|_| peer.fail("POST _bulk_docs", Fault::Status(413, "too_large")));
    let answer = push(&served, &peer, "");
    let one = session(&answer);
    assert_eq!([&one["docs_written"], &one["doc_write_failures"]], [7, 1], "{answer:?}");
    served.must("PUT", "/here/more", "{}");
    let refused = json!([{"id": "more", "error": "forbidden", "reason": "not this one"}]);
    peer.fail("POST _bulk_docs", Fault::Body(refused));
    assert_eq!(session(&push(&served, &peer, ""))["doc_write_failures"], 2);
    end(served);
}

#[test]
fn redirects_are_followed_and_credentials_stay_with_their_server() {
    let (served, peer, moved) = (node(), Peer::start(), Peer::with_docs(3));
    let to = |below: &str| format!("{}{below}", moved.url);
    let with_name = peer.url.replace("http://", "http://ann:secret@");
    peer.state().docs = moved.state().docs.clone();
    peer.fail("GET _changes", Fault::With(307, "Location", to("/_changes?since=0&limit=500")));
    peer.fail("POST _bulk_get", Fault::With(301, "Location", to("/_bulk_get?revs=true")));
    let source = format!(r#"{{"url":"{with_name}","headers":{{"X-Token":"secret"}}}}"#);
    let order = format!(r#"{{"source":{source},"target":"copy","create_target":true}}"#);
    let answer = served.ask("adm:pass", "POST", "/_replicate", &order);
    assert_eq!(session(&answer)["docs_written"], 3, "{answer:?}");
    assert!(peer.state().log.iter().all(|asked| asked.headers.contains_key("x-token")));
    assert!(moved.state().log.iter().all(|asked| !asked.headers.contains_key("x-token")), "a header of the own choice");
    assert!(peer.state().log.iter().all(|asked| asked.headers.contains_key("authorization")));
    assert_eq!(moved.asked("POST _bulk_get"), 1);
    assert!(moved.state().log.iter().all(|asked| !asked.headers.contains_key("authorization")));
    // Round and round.
    (0..12).for_each(|_| peer.fail("GET ", Fault::With(302, "Location", "/db".to_owned())));
    let answer = served.ask("adm:pass", "POST", "/_replicate", &order);
    assert!(answer.status == 500 && answer.body.contains("redirect"), "{answer:?}");
    end(served);
}

#[test]
fn attachments_that_break_off_are_sent_again_and_wrong_ones_refused() {
    let (served, peer) = (node(), Peer::start());
    let stub =
        |digest: &str| json!({"content_type": "text/plain", "revpos": 1, "digest": digest, "length": 5, "stub": true});
    {
        let mut state = peer.state();
        let good = stub("md5-XUFAKrxLKna5cZ2REBfFkg==");
        let bad = stub("md5-AAAAAAAAAAAAAAAAAAAAAA==");
        state.docs = vec![
            json!({"_id": "good", "_rev": "1-a", "_attachments": {"t": good}}),
            json!({"_id": "bad", "_rev": "1-a", "_attachments": {"t": bad}}),
        ];
        state.attachments = [("good/t", "hello"), ("bad/t", "hello")].map(|(p, t)| (p.to_owned(), t.into())).into();
    }
    peer.fail("GET good/t", Fault::Cut);
    let first = pull(&served, &peer, "");
    assert_eq!(peer.unused(), 0);
    let session = session(&first);
    assert_eq!([&session["docs_written"], &session["doc_write_failures"]], [1, 1], "{first:?}");
    assert_eq!(served.must("GET", "/copy/good/t", "").body, "hello");
    // On the way out: the request breaks off and is sent again.
    served.must("PUT", "/here", "");
    let inline = r#"{"_attachments":{"t":{"content_type":"application/x-none","data":"aGVsbG8="}}}"#;
    served.must("PUT", "/here/out", inline);
    peer.fail("PUT out", Fault::Close);
    let answer = push(&served, &peer, "");
    assert_eq!(answer.json()["history"][0]["docs_written"], 1, "{answer:?}");
    let sent = String::from_utf8_lossy(&peer.state().attachments["out"]).into_owned();
    assert!(sent.contains("\r\n\r\nhello\r\n--"), "{sent}");
    end(served);
}

/// What was written to the database before it was deleted is not with the one that has its name now.
#[test]
fn a_target_that_is_made_anew_is_filled_again() {
    let (served, peer) = (node(), Peer::start());
    fill(&served, 3);
    let more = r#","continuous":true,"checkpoint_interval":1"#;
    assert_eq!(push(&served, &peer, more).status, 202);
    served.until("the first documents and a checkpoint", || {
        peer.asked("PUT _local/") > 0 && peer.state().docs.len() == 3
    });
    peer.make_anew();
    served.must("PUT", "/here/late", "{}");
    served.until("all documents, in the new database", || peer.state().docs.len() == 4);
    let jobs = served.must("GET", "/_scheduler/jobs", "").json();
    let crashed = jobs["jobs"][0]["history"].as_array().unwrap().iter().find(|event| event["type"] == "crashed");
    let reason = crashed.expect("a crash")["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("made anew"), "{reason}");
    end(served);
}

/// Nothing told it from the one that had its name before until there was a checkpoint, and none was written before all
/// seemed copied.
#[test]
fn a_settee_whose_database_is_made_anew_before_the_first_checkpoint_is_filled_again() {
    let served = Served::start(&["replicator/min_backoff_penalty_sec=1"]);
    fill(&served, 3);
    let target = format!("http://adm:pass@{}/copy", served.node.address());
    let order = json!({"source": "here", "target": target, "create_target": true, "continuous": true,
        "checkpoint_interval": 3000});
    served.must("POST", "/_replicate", &order.to_string());
    let count = || served.ask("adm:pass", "GET", "/copy", "").json()["doc_count"].clone();
    served.until("all is copied", || count() == 3);
    served.must("DELETE", "/copy", "");
    // The replication makes it anew, too, where it was quicker.
    assert!([201, 412].contains(&served.ask("adm:pass", "PUT", "/copy", "").status));
    served.until("all is copied again", || count() == 3);
    end(served);
}

#[test]
fn documents_tell_of_their_replications_where_that_is_wanted() {
    let (served, peer) = (node(), Peer::with_docs(1));
    served.set("replicator", "update_docs", "true");
    // Runs fail at once until the document says so; the next one is well.
    (0..1000).for_each(|_| peer.fail("GET ", Fault::Status(403, "forbidden")));
    let doc = json!({"source": peer.url, "target": "copy", "create_target": true, "retries_per_request": 0});
    served.must("PUT", "/_replicator/r", &doc.to_string());
    let state = || served.must("GET", "/_replicator/r", "").json()["_replication_state"].clone();
    served.until("the document says that it failed", || state() == "error");
    peer.fail_no_more();
    served.until("the document says that it is done", || state() == "completed");
    end(served);
}

fn not_found(id: &str) -> Value {
    let error = json!({"id": id, "rev": "1-a", "error": "not_found", "reason": "missing"});
    json!({"id": id, "docs": [{ "error": error }]})
}

fn found(id: &str) -> Value {
    json!({"id": id, "docs": [{"ok": {"_id": id, "_rev": "1-a", "_revisions": {"start": 1, "ids": ["a"]}}}]})
}

/// A copy that lacks what another one told of, or a proxy while the server starts: the document must come later.
#[test]
fn a_document_that_the_source_has_not_for_a_while_is_not_passed_over() {
    for bulk in [json!([not_found("d0"), found("d1")]), json!([found("d1")]), json!([{"id": "d0", "docs": []}])] {
        let (served, peer) = (node(), Peer::with_docs(2));
        let all = json!({ "results": bulk });
        // Read anew once, then the run fails; what it came to is not recorded as complete.
        (0..2).for_each(|_| peer.fail("POST _bulk_get", Fault::Body(all.clone())));
        (0..2).for_each(|_| peer.fail("GET d0", Fault::Status(404, "not_found")));
        let answer = pull(&served, &peer, "");
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.body.contains("told of d0 1-a"), "{answer:?}");
        assert_eq!(peer.unused(), 0, "{all}");
        pull(&served, &peer, "");
        for id in ["d0", "d1"] {
            served.must("GET", &format!("/copy/{id}"), "");
        }
        end(served);
    }
    // While it is away all is not found, `_bulk_get` too.
    let (served, peer) = (node(), Peer::with_docs(2));
    for on in ["POST _bulk_get", "GET d0", "GET d1"] {
        peer.fail(on, Fault::Status(404, "not_found"));
    }
    let answer = pull(&served, &peer, "");
    assert_eq!(session(&answer)["docs_written"], 2, "{answer:?}");
    end(served);
}

/// What stands before the source may refuse anything for a while.
#[test]
fn a_document_that_the_source_answered_413_for_is_not_passed_over() {
    let (served, peer) = (node(), Peer::with_docs(2));
    (0..3).for_each(|_| peer.fail("POST _bulk_get", Fault::Status(413, "too_large")));
    // Asked for in halves, then alone; what a run did not bring the next one does.
    (0..2).for_each(|_| drop(pull(&served, &peer, "")));
    assert_eq!(peer.unused(), 0);
    for id in ["d0", "d1"] {
        served.must("GET", &format!("/copy/{id}"), "");
    }
    end(served);
}

#[test]
fn what_was_purged_at_the_source_meanwhile_ends_nothing() {
    let (served, peer) = (node(), Peer::with_docs(2));
    let gone = json!({"results": [{"seq": 1, "id": "gone", "changes": [{"rev": "1-a"}]}], "last_seq": 1, "pending": 0});
    peer.fail("GET _changes", Fault::Body(gone));
    let answer = pull(&served, &peer, "");
    assert_eq!(session(&answer)["docs_written"], 2, "{answer:?}");
    end(served);
}

#[test]
fn a_source_that_gives_short_pages_is_read_to_its_end() {
    let (served, peer) = (node(), Peer::with_docs(4));
    let row = |n: usize| json!({"seq": n + 1, "id": format!("d{n}"), "changes": [{"rev": "1-a"}]});
    let first = json!({"results": [row(0)], "last_seq": 1, "pending": 3});
    let second = json!({"results": [row(1), row(2)], "last_seq": 3, "pending": 1});
    peer.fail("GET _changes", Fault::Body(first));
    peer.fail("GET _changes", Fault::Body(second));
    let answer = pull(&served, &peer, "");
    assert_eq!(session(&answer)["docs_written"], 4, "{answer:?}");
    // Whatever it tells is left, nothing is counted beyond numbers.
    peer.state().docs.push(json!({"_id": "late", "_rev": "1-a"}));
    peer.fail(
        "GET _changes",
        Fault::Body(json!({"results": [{"seq": 5, "id": "late", "changes": [{"rev": "1-a"}]}],
        "last_seq": 5, "pending": u64::MAX})),
    );
    assert_eq!(session(&pull(&served, &peer, ""))["docs_written"], 5);
    end(served);
}

#[test]
fn an_attachment_that_was_written_again_as_it_was_is_not_sent_again() {
    let (served, peer) = (node(), Peer::start());
    served.must("PUT", "/here", "");
    let body = |more: &str| {
        let data = "AAAA".repeat(40_000);
        format!(r#"{{{more}"_attachments":{{"t":{{"content_type":"application/x-none","data":"{data}"}}}}}}"#)
    };
    let first = served.must("PUT", "/here/out", &body("")).json()["rev"].as_str().unwrap_or_default().to_owned();
    assert_eq!(session(&push(&served, &peer, ""))["docs_written"], 1);
    let sent = |peer: &Peer| peer.state().attachments["out"].len();
    assert!(sent(&peer) > 120_000);
    // The target has the revision before; so it says what attachments that one has.
    let tell = |revision: &str| {
        let known = served.must("GET", &format!("/here/out?rev={revision}&att_encoding_info=true"), "").json();
        let rev = served.must("PUT", "/here/out", &body(&format!(r#""_rev":"{revision}","#))).json()["rev"].clone();
        let lack = json!({"out": {"missing": [rev], "possible_ancestors": [revision]}});
        peer.fail("POST _revs_diff", Fault::Body(lack));
        peer.fail("GET out", Fault::Body(known));
        rev.as_str().unwrap_or_default().to_owned()
    };
    let second = tell(&first);
    assert_eq!(session(&push(&served, &peer, ""))["docs_written"], 2);
    assert_eq!((peer.unused(), peer.asked("PUT out"), peer.asked("POST _bulk_docs")), (0, 1, 1));
    let doc = peer.state().docs[0].clone();
    let attachment = &doc["_attachments"]["t"];
    assert_eq!((&doc["_rev"], &attachment["revpos"], &attachment["stub"]), (&json!(second), &json!(2), &json!(true)));
    // One that goes by generations refuses such a stub: it is sent all.
    tell(&second);
    peer.fail("POST _bulk_docs", Fault::Status(412, "missing_stub"));
    assert_eq!(session(&push(&served, &peer, ""))["docs_written"], 3);
    assert_eq!((peer.unused(), peer.asked("PUT out")), (0, 2));
    assert!(sent(&peer) > 120_000);
    end(served);
}

/// What was written since a round began was counted as if it had been there: as many of what had stayed behind.
#[test]
fn what_was_there_from_the_start_is_copied_whatever_is_written_before_it_meanwhile() {
    let (served, peer) = (node(), Peer::with_docs(3));
    let row = |n: usize| json!({"seq": n + 1, "id": format!("d{n}"), "changes": [{"rev": "1-a"}]});
    // Of the two that there were the second comes behind one that is new.
    for (n, pending) in [(0, 1), (1, 1), (2, 0)] {
        let page = json!({"results": [row(n)], "last_seq": n + 1, "pending": pending});
        peer.fail("GET _changes", Fault::Body(page));
    }
    assert_eq!(session(&pull(&served, &peer, ""))["docs_written"], 3);
    assert_eq!(peer.unused(), 0);
    end(served);
}

#[test]
fn answers_may_be_gzipped() {
    let (served, peer) = (node(), Peer::with_docs(3));
    for on in ["GET ", "GET _changes", "POST _bulk_get", "PUT _local/"] {
        peer.fail(on, Fault::Gzip);
    }
    assert_eq!(session(&pull(&served, &peer, ""))["docs_written"], 3);
    assert_eq!(peer.unused(), 0);
    let asked = |asked: &Asked| asked.headers.get("accept-encoding").is_some_and(|e| e == "gzip");
    assert!(peer.state().log.iter().all(asked));
    end(served);
}

#[test]
fn a_checkpoint_that_another_run_wrote_ends_this_one_and_nothing_is_lost() {
    let (served, peer) = (node(), Peer::with_docs(1));
    assert_eq!(session(&pull(&served, &peer, ""))["docs_written"], 1);
    peer.state().docs.push(json!({"_id": "d1", "_rev": "1-a"}));
    peer.fail("PUT _local/", Fault::Status(409, "conflict"));
    let answer = pull(&served, &peer, "");
    assert!(answer.status == 500 && answer.body.contains("written by another run"), "{answer:?}");
    assert_eq!(session(&pull(&served, &peer, ""))["missing_checked"], 2);
    served.must("GET", "/copy/d1", "");
    end(served);
}

/// One such document, copied from one server to another, stopped all others for good.
#[test]
fn an_attachment_of_another_length_than_its_document_says_holds_up_nothing() {
    let (served, from, to) = (node(), Peer::start(), Peer::start());
    let stub = json!({"content_type": "text/plain", "revpos": 1, "digest": "md5-x", "length": 5, "stub": true});
    {
        let mut state = from.state();
        let ids = ["short", "long", "good"];
        state.docs = ids.map(|id| json!({"_id": id, "_rev": "1-a", "_attachments": {"t": stub}})).to_vec();
        let bytes = [("short/t", "hi"), ("long/t", "hello again"), ("good/t", "hello")];
        state.attachments = bytes.map(|(path, text)| (path.to_owned(), text.into())).into();
    }
    let order = json!({"source": from.url, "target": to.url, "retries_per_request": 1});
    let answer = served.ask("adm:pass", "POST", "/_replicate", &order.to_string());
    let session = session(&answer);
    assert_eq!([&session["docs_written"], &session["doc_write_failures"]], [1, 2], "{answer:?}");
    let written: Vec<String> = to.state().docs.iter().map(|doc| doc["_id"].to_string()).collect();
    assert_eq!(written, ["\"good\""]);
    end(served);
}

#[test]
fn documents_larger_than_what_is_taken_at_once_come_one_by_one_and_what_is_too_large_is_listed() {
    let (served, peer) = (Served::start(&[]), Peer::with_docs(2));
    served.set("couchdb", "max_document_size", "9500000");
    for (id, bytes) in [("large", 9_000_000), ("larger", 9_400_000), ("too-large", 10_000_000)] {
        peer.state().docs.push(json!({"_id": id, "_rev": "1-a", "text": "x".repeat(bytes)}));
    }
    let doc = json!({"source": peer.url, "target": "copy", "create_target": true});
    served.must("PUT", "/_replicator/r", &doc.to_string());
    let told = || served.must("GET", "/_scheduler/docs/_replicator/r", "").json();
    served.until("it is done", || told()["state"] == "completed");
    let info = told()["info"].clone();
    assert_eq!([&info["docs_written"], &info["doc_write_failures"]], [4, 1], "{info}");
    let refused = &info["refused_docs"];
    assert_eq!((&refused[0]["id"], &refused[0]["error"]), (&json!("too-large"), &json!("document_too_large")));
    served.must("GET", "/copy/larger", "");
    end(served);
}

#[test]
fn a_failure_tells_which_request_it_was_of() {
    let (served, peer) = (node(), Peer::with_docs(1));
    let more = r#","retries_per_request":0"#;
    peer.fail("POST _bulk_get", Fault::Status(500, "badmatch"));
    let answered = pull(&served, &peer, more).body;
    assert!(answered.contains(&format!("POST {}/_bulk_get answered 500", peer.url)), "{answered}");
    peer.fail("GET _changes", Fault::Close);
    let broken = pull(&served, &peer, more).body;
    assert!(broken.contains(&format!("GET {}/_changes: ", peer.url)), "{broken}");
    end(served);
}
