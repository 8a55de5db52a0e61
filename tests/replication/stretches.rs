//! Long stretches of a feed without a row that is wanted: who waits hears signs of life, and the watchdog tells them
//! from a peer that stopped.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::scripted::{Asked, Fault, Peer};
use crate::served::{ADMIN, Served, exchange_raw, request};

/// Peers may be silent for two seconds, jobs stand still for four.
fn node(more: &[&str]) -> Served {
    let hasty = ["replicator/connection_timeout=2000", "replicator/stall_timeout=4000", "replicator/interval=50"];
    Served::start(&[&hasty[..], more].concat())
}

/// A database `here` of so many documents with a filter that takes its time for each, and lets only `last` pass.
fn fill_with_a_slow_filter(served: &Served, count: usize) {
    served.must("PUT", "/here", "");
    let docs: Vec<Value> = (0..count).map(|n| json!({"_id": format!("h{n}")})).collect();
    served.must("POST", "/here/_bulk_docs", &json!({ "docs": docs }).to_string());
    let slow = "function (doc) { var end = Date.now() + 2; while (Date.now() < end) {} return doc._id == 'last'; }";
    served.must("PUT", "/here/_design/f", &json!({"filters": {"slow": slow}}).to_string());
}

fn end(served: Served) {
    served.runtime.block_on(served.node.stop());
}

/// The feed was silent for as long as its filter let nothing pass, whatever heartbeat was asked for.
#[test]
fn a_feed_whose_filter_lets_nothing_pass_gives_signs_of_life() {
    let served = node(&[]);
    fill_with_a_slow_filter(&served, 300);
    served.must("PUT", "/here/last", "{}");
    for (feed, sign) in
        [("normal", "\n"), ("longpoll", "\n"), ("continuous", "\n"), ("eventsource", "event: heartbeat\ndata: \n\n")]
    {
        // Each sign goes out by itself, as a chunk.
        let chunk = format!("{:x}\r\n{sign}\r\n", sign.len());
        for (waits, most) in [("heartbeat=100", usize::MAX), ("timeout=100", 0)] {
            let target = format!("/here/_changes?filter=f/slow&feed={feed}&limit=1&{waits}");
            let answer = exchange_raw(served.node.address(), &request(ADMIN, "GET", &target, &[], ""));
            let signs = answer.matches(&chunk).count();
            assert!(answer.contains("\"id\":\"last\""), "{target}: {answer:?}");
            // How many there are depends on the machine.
            assert!((most.min(1)..=most).contains(&signs), "{target}: {signs} signs in {answer:?}");
        }
    }
    end(served);
}

/// A filter that lets nothing pass for longer than a job may stand still, or a peer be silent.
#[test]
fn a_replication_by_a_filter_that_lets_nothing_pass_for_long_comes_to_its_end() {
    let served = node(&["replicator/retries_per_request=20"]);
    fill_with_a_slow_filter(&served, 2250);
    let url = format!("http://{ADMIN}@{}/here", served.node.address());
    for source in ["here", &url] {
        let order = json!({"source": source, "target": "copy", "create_target": true, "filter": "f/slow"});
        let answer = served.ask(ADMIN, "POST", "/_replicate", &order.to_string());
        assert_eq!(answer.status, 200, "{source}: {answer:?}");
    }
    assert_eq!(served.must("GET", "/copy", "").json()["doc_count"], 0);
    end(served);
}

#[test]
fn a_source_that_only_gives_signs_of_life_is_waited_for() {
    let (served, peer) = (node(&[]), Peer::with_docs(5));
    peer.fail("GET _changes", Fault::Beats(45));
    let order = json!({"source": peer.url, "target": "copy", "create_target": true});
    let answer = served.ask(ADMIN, "POST", "/_replicate", &order.to_string());
    assert_eq!((answer.status, &answer.json()["history"][0]["docs_written"]), (200, &json!(5)), "{answer:?}");
    assert_eq!((peer.unused(), peer.asked("GET _changes")), (0, 1));
    let asked = peer.state().log.iter().find(|asked| asked.target.contains("/_changes")).cloned();
    assert!(asked.is_some_and(|asked| asked.target.contains("heartbeat=666") && !asked.target.contains("feed=")));
    end(served);
}

/// A peer that hangs, its connections open: no request to it fails soon, as they are repeated so often.
#[test]
fn a_peer_that_stops_in_mid_feed_is_begun_anew_by_the_watchdog() {
    let served = node(&["replicator/retries_per_request=100", "replicator/min_backoff_penalty_sec=1"]);
    let peer = Peer::with_docs(5);
    peer.fail("GET _changes", Fault::Stop);
    let order = json!({"source": peer.url, "target": "copy", "create_target": true, "continuous": true});
    served.must("POST", "/_replicate", &order.to_string());
    let crashed = || {
        let jobs = served.must("GET", "/_scheduler/jobs", "").json();
        let history = jobs["jobs"][0]["history"].as_array().cloned().unwrap_or_default();
        let why = |event: &Value| event["reason"].as_str().unwrap_or_default().contains("Nothing moved for 4 seconds.");
        history.iter().any(|event| event["type"] == "crashed" && why(event))
    };
    served.until("the watchdog ends the run", crashed);
    peer.go_on();
    served.until("all is copied", || served.must("GET", "/copy", "").json()["doc_count"] == 5);
    end(served);
}

/// The checkpoint of a replication to `target`.
fn checkpoint(served: &Served, target: &str) -> Value {
    let locals = served.ask(ADMIN, "GET", &format!("/{target}/_local_docs?include_docs=true"), "");
    locals.json()["rows"][0]["doc"].clone()
}

/// Where a replication had come to was written down with the next document that passed only: cut off in a long stretch
/// without one, it read all of it again.
#[test]
fn a_stretch_of_which_nothing_passes_goes_on_from_where_it_was_broken_off() {
    let served = node(&["replicator/checkpoint_interval=200"]);
    // Many more than are read: the replications are ended long before the last one, on a slow machine, too.
    fill_with_a_slow_filter(&served, 9000);
    let url = format!("http://{ADMIN}@{}/here", served.node.address());
    for (source, target) in [("here", "one"), (&*url, "two")] {
        let order = json!({"source": source, "target": target, "create_target": true, "filter": "f/slow",
            "continuous": true});
        let start = || served.must("POST", "/_replicate", &order.to_string()).json()["_local_id"].clone();
        let cancel = |id: &Value| {
            served.must("POST", "/_replicate", &json!({"cancel": true, "replication_id": id}).to_string());
        };
        let id = start();
        served.until("a checkpoint", || checkpoint(&served, target)["history"].is_array());
        cancel(&id);
        let behind = checkpoint(&served, target)["source_last_seq"].as_str().unwrap_or_default().to_owned();
        let left = served.must("GET", &format!("/here/_changes?limit=1&since={behind}"), "").json();
        assert!(left["pending"].as_u64().is_some_and(|left| (1..9000).contains(&left)), "{left}");
        start();
        served.until("the next session's", || checkpoint(&served, target)["history"][1].is_object());
        cancel(&id);
        let [new, old] = [0, 1].map(|at| checkpoint(&served, target)["history"][at].clone());
        assert_eq!(new["start_last_seq"], old["recorded_seq"], "{source}: {new} {old}");
        assert_eq!((&new["missing_checked"], &old["start_last_seq"]), (&json!(0), &json!(0)));
    }
    end(served);
}

#[test]
fn what_a_filter_leaves_out_while_a_replication_waits_is_recorded_too() {
    let served = node(&["replicator/checkpoint_interval=200"]);
    served.must("PUT", "/here", "");
    served.must("PUT", "/here/a", r#"{"wanted":true}"#);
    let url = format!("http://{ADMIN}@{}/here", served.node.address());
    let targets = [("here", "one"), (&*url, "two")];
    for (source, target) in targets {
        let order = json!({"source": source, "target": target, "create_target": true, "continuous": true,
            "selector": {"wanted": true}});
        served.must("POST", "/_replicate", &order.to_string());
    }
    let recorded = |target: &str| {
        let behind = checkpoint(&served, target)["source_last_seq"].as_str().unwrap_or("0").to_owned();
        let left = served.must("GET", &format!("/here/_changes?since={behind}"), "").json();
        left["results"].as_array().is_some_and(Vec::is_empty)
    };
    targets.iter().for_each(|(_, target)| served.until("what is wanted", || recorded(target)));
    (0..3).for_each(|n| drop(served.must("PUT", &format!("/here/b{n}"), "{}")));
    for (_, target) in targets {
        served.until("what is not", || recorded(target));
        assert_eq!(served.must("GET", &format!("/{target}"), "").json()["doc_count"], 1);
    }
    end(served);
}

#[test]
fn a_run_of_which_nothing_passes_and_that_is_over_soon_writes_nothing() {
    let served = node(&[]);
    served.must("PUT", "/here", "");
    served.must("PUT", "/here/a", "{}");
    served.must("PUT", "/copy", "");
    let order = json!({"source": "here", "target": "copy", "selector": {"wanted": true}});
    let answer = served.must("POST", "/_replicate", &order.to_string());
    assert_eq!(answer.json(), json!({"ok": true, "no_changes": true}));
    assert!(checkpoint(&served, "copy").is_null());
    end(served);
}

/// The checkpoint stayed, and what the text before had left out was not looked at again.
#[test]
fn a_filter_that_was_changed_is_asked_of_everything_again() {
    let served = node(&[]);
    served.must("PUT", "/here", "");
    (1..4).for_each(|n| drop(served.must("PUT", &format!("/here/d{n}"), &json!({"n": n}).to_string())));
    let texts = [1, 2].map(|n| json!({"filters": {"f": format!("function (doc) {{ return doc.n == {n}; }}")}}));
    let selector = json!({"language": "query", "filters": {"f": {"n": 3}}});
    let mut rev = String::new();
    for (copied, design) in texts.into_iter().chain([selector]).enumerate() {
        let put = served.must("PUT", &format!("/here/_design/f{rev}"), &design.to_string()).json();
        rev = format!("?rev={}", put["rev"].as_str().unwrap_or_default());
        let order = json!({"source": "here", "target": "copy", "create_target": true, "filter": "f/f"});
        let answer = served.must("POST", "/_replicate", &order.to_string()).json();
        assert_eq!(answer["history"][0]["docs_written"], 1, "{answer}");
        assert_eq!(served.must("GET", "/copy", "").json()["doc_count"], copied + 1);
    }
    end(served);
}

/// It was asked as fast as it answered.
#[test]
fn a_source_that_does_not_wait_for_news_is_asked_now_and_then() {
    let (served, peer) = (node(&[]), Peer::with_docs(1));
    let order = json!({"source": peer.url, "target": "copy", "create_target": true, "continuous": true});
    served.must("POST", "/_replicate", &order.to_string());
    let waits = || -> Vec<Instant> {
        let is_wait = |asked: &&Asked| asked.target.contains("feed=longpoll");
        peer.state().log.iter().filter(is_wait).map(|asked| asked.at).collect()
    };
    served.until("it is asked, and again, and again", || waits().len() >= 3);
    let waits = waits();
    assert!(waits[2] - waits[0] >= Duration::from_millis(900));
    end(served);
}

#[test]
fn how_far_a_replication_is_behind_is_told_in_seconds_and_entries() {
    // Nobody gives it up meanwhile.
    let (served, peer) = (Served::start(&["replicator/interval=50"]), Peer::with_docs(5));
    peer.fail("GET _changes", Fault::Slow(Duration::ZERO));
    peer.fail("GET _changes", Fault::Stop);
    let order = json!({"source": peer.url, "target": "copy", "create_target": true, "continuous": true,
        "worker_batch_size": 1});
    let id = served.must("POST", "/_replicate", &order.to_string()).json()["_local_id"].clone();
    let told = |what: &str| {
        let metrics = served.send(ADMIN, "GET", "/_node/_local/_prometheus", &["Accept: */*"], "").body;
        let name = format!("settee_replication_lag_{what}{{job={id}}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
    };
    served.until("seconds, and what the first page left", || {
        told("seconds").is_some_and(|seconds| seconds > 0) && told("entries") == Some(4)
    });
    peer.go_on();
    served.until("all is copied", || served.must("GET", "/copy", "").json()["doc_count"] == 5);
    served.until("none", || told("seconds").is_none());
    end(served);
}
