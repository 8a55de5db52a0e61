//! Admission of requests: one client's flood delays its own requests, and is told to come back.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::served::{ADMIN, Answer, Served, exchange, request};

/// A node where two queries work at once and eight wait, for at most three seconds.
fn node() -> Served {
    let bounds = ["queries=2", "queue=8", "wait_ms=3000"].map(|bound| format!("admission/{bound}"));
    let more = ["admins/eve=pass", "couchdb/os_process_timeout=8000"];
    let served = Served::start(&[&bounds.each_ref().map(String::as_str)[..], &more].concat());
    for db in ["/flooded", "/other"] {
        served.must("PUT", db, "");
    }
    served.must("PUT", "/flooded/_design/d", r#"{"shows":{"s":"function() { for (;;) {} }"}}"#);
    served.must("PUT", "/other/doc", "{}");
    served
}

/// A number of the class of queries.
fn told(served: &Served, name: &str) -> u64 {
    let answer = served.must("GET", &format!("/_node/_local/_stats/settee/admission/{name}"), "").json();
    answer["value"].as_u64().or_else(|| answer["value"]["n"].as_u64()).unwrap_or_else(|| panic!("{name}: {answer}"))
}

#[test]
fn a_flood_of_slow_queries_is_refused_in_part_and_others_are_answered() {
    const FLOOD: usize = 30;
    let served = node();
    let (left, answers) = (AtomicUsize::new(FLOOD), Mutex::<Vec<Answer>>::default());
    let address = served.node.address();
    let (mut reads, mut waiting) = (0, 0);
    std::thread::scope(|scope| {
        for _ in 0..FLOOD {
            scope.spawn(|| {
                let answer = exchange(address, &request("eve:pass", "GET", "/flooded/_design/d/_show/s", &[], ""));
                answers.lock().unwrap().push(answer);
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while left.load(Ordering::SeqCst) > 0 {
            for (method, target, body) in [
                ("GET", "/other/doc", ""),
                ("GET", "/other/_all_docs", ""),
                ("POST", "/other/_find", r#"{"selector":{}}"#),
                ("POST", "/flooded/_bulk_docs", r#"{"docs":[{}]}"#),
                ("GET", "/_up", ""),
            ] {
                served.must(method, target, body);
                reads += 1;
            }
            // The one that floods reads its documents, too.
            assert_eq!(served.ask("eve:pass", "GET", "/flooded/_design/d", "").status, 200);
            waiting = told(&served, "queries_waiting").max(waiting);
        }
    });
    let mut statuses: BTreeMap<u16, u64> = BTreeMap::new();
    for answer in answers.into_inner().unwrap() {
        *statuses.entry(answer.status).or_default() += 1;
        if matches!(answer.status, 429 | 503) {
            assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
        }
    }
    println!("{statuses:?} beside {reads} other requests");
    let count = |status| statuses.get(&status).copied().unwrap_or_default();
    // Six places of the queue are for one client, and of those that wait some have no turn in time.
    assert!(count(429) >= 10 && count(503) > 0 && count(500) > 0, "{statuses:?}");
    assert!(reads >= 20 && (1..=6).contains(&waiting), "{reads} {waiting}");
    assert_eq!(told(&served, "queries_refused"), count(429) + count(503));
    assert!(told(&served, "queries_waited") >= count(503) && told(&served, "wait_time") > 0);
    assert_eq!(told(&served, "queries_waiting"), 0);
    assert_eq!(served.ask(ADMIN, "GET", "/flooded/_all_docs", "").status, 200);
    served.runtime.block_on(served.node.stop());
}
