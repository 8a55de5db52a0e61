//! Long stretches of a feed without a row that is wanted: who waits hears signs of life, and the watchdog tells them
//! from a peer that stopped.

use serde_json::{Value, json};

use super::scripted::{Fault, Peer};
use crate::served::{ADMIN, Served, exchange_raw, request};

/// Peers may be silent for a second, jobs stand still for two.
fn node(more: &[&str]) -> Served {
    let hasty = ["replicator/connection_timeout=1000", "replicator/stall_timeout=2000", "replicator/interval=50"];
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
            assert!((most.min(3)..=most).contains(&signs), "{target}: {signs} signs in {answer:?}");
        }
    }
    end(served);
}

/// A filter that lets nothing pass for longer than a job may stand still, or a peer be silent.
#[test]
fn a_replication_by_a_filter_that_lets_nothing_pass_for_long_comes_to_its_end() {
    let served = node(&[]);
    fill_with_a_slow_filter(&served, 1500);
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
    peer.fail("GET _changes", Fault::Beats(25));
    let order = json!({"source": peer.url, "target": "copy", "create_target": true});
    let answer = served.ask(ADMIN, "POST", "/_replicate", &order.to_string());
    assert_eq!((answer.status, &answer.json()["history"][0]["docs_written"]), (200, &json!(5)), "{answer:?}");
    assert_eq!((peer.unused(), peer.asked("GET _changes")), (0, 1));
    let asked = peer.state().log.iter().find(|asked| asked.target.contains("/_changes")).cloned();
    assert!(asked.is_some_and(|asked| asked.target.contains("heartbeat=333") && !asked.target.contains("feed=")));
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
        let why = |event: &Value| event["reason"].as_str().unwrap_or_default().contains("Nothing moved for 2 seconds.");
        history.iter().any(|event| event["type"] == "crashed" && why(event))
    };
    served.until("the watchdog ends the run", crashed);
    peer.go_on();
    served.until("all is copied", || served.must("GET", "/copy", "").json()["doc_count"] == 5);
    end(served);
}
