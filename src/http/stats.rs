//! Counts of what the HTTP layer has done since the node started, in CouchDB's tree of statistics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::coordinator::Damage;
use crate::world::{Env, Instant};

const METHODS: [&str; 7] = ["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];
const STATUSES: [u16; 19] =
    [200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 500];

/// The node's counters.
pub struct Stats {
    started: Instant,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    methods: BTreeMap<&'static str, u64>,
    statuses: BTreeMap<u16, u64>,
    time_sum: Duration,
    time_min: Option<Duration>,
    time_max: Duration,
}

impl Stats {
    /// Counters at zero.
    pub fn new(env: &Env) -> Stats {
        Stats { started: env.now(), counts: Mutex::default() }
    }

    /// Counts one answer.
    pub fn count(&self, method: &str, status: StatusCode, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.requests += 1;
        if let Some(method) = METHODS.iter().find(|m| **m == method) {
            *counts.methods.entry(method).or_default() += 1;
        }
        *counts.statuses.entry(status.as_u16()).or_default() += 1;
        counts.time_sum += took;
        counts.time_max = counts.time_max.max(took);
        counts.time_min = Some(counts.time_min.map_or(took, |min| min.min(took)));
    }

    /// The tree of `_stats`.
    pub fn tree(&self, open_databases: u64) -> Value {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let methods: Map<String, Value> = METHODS
            .iter()
            .map(|m| {
                let n = counts.methods.get(m).copied().unwrap_or(0);
                ((*m).to_owned(), counter(n, &format!("number of HTTP {m} requests")))
            })
            .collect();
        let mut known: Vec<u16> = STATUSES.iter().chain(counts.statuses.keys()).copied().collect();
        known.sort_unstable();
        known.dedup();
        let statuses: Map<String, Value> = known
            .iter()
            .map(|code| {
                let n = counts.statuses.get(code).copied().unwrap_or(0);
                let name = StatusCode::from_u16(*code).ok().and_then(|s| s.canonical_reason()).unwrap_or_default();
                (code.to_string(), counter(n, &format!("number of HTTP {code} {name} responses")))
            })
            .collect();
        json!({"couchdb": {
            "httpd": {"requests": counter(counts.requests, "number of HTTP requests")},
            "httpd_request_methods": methods,
            "httpd_status_codes": statuses,
            "open_databases": counter(open_databases, "number of open databases"),
            "request_time": {
                "value": counts.times(),
                "type": "histogram",
                "desc": "length of a request inside the node, in milliseconds",
            },
        }})
    }

    /// What the tree tells beyond CouchDB's: damage that was found in the node's data.
    pub fn of_settee(damage: &Damage) -> Value {
        json!({
            "damaged_reads": counter(damage.refused(), "number of operations refused because of damaged data"),
            "damaged_places": {
                "value": damage.places().len(),
                "type": "gauge",
                "desc": "number of different places of damaged data found since the start",
            },
        })
    }

    /// The record of `_system`.
    pub fn system(&self, env: &Env) -> Value {
        json!({"uptime": env.now().since(self.started).as_secs()})
    }

    /// The text of `_prometheus`.
    pub fn prometheus(&self, env: &Env, damage: &Damage) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::from("# TYPE couchdb_httpd_requests_total counter\n");
        out.push_str(&format!("couchdb_httpd_requests_total {}\n", counts.requests));
        out.push_str("# TYPE couchdb_httpd_request_methods counter\n");
        for (method, n) in &counts.methods {
            out.push_str(&format!("couchdb_httpd_request_methods{{method=\"{method}\"}} {n}\n"));
        }
        out.push_str("# TYPE couchdb_httpd_status_codes counter\n");
        for (code, n) in &counts.statuses {
            out.push_str(&format!("couchdb_httpd_status_codes{{code=\"{code}\"}} {n}\n"));
        }
        let uptime = env.now().since(self.started).as_secs();
        out.push_str(&format!("# TYPE couchdb_uptime_seconds counter\ncouchdb_uptime_seconds {uptime}\n"));
        let (reads, places) = (damage.refused(), damage.places().len());
        out.push_str(&format!("# TYPE settee_damaged_reads_total counter\nsettee_damaged_reads_total {reads}\n"));
        out.push_str(&format!("# TYPE settee_damaged_places gauge\nsettee_damaged_places {places}\n"));
        out
    }
}

impl Counts {
    fn times(&self) -> Value {
        let ms = |d: Duration| d.as_secs_f64() * 1000.0;
        let mean = if self.requests == 0 { 0.0 } else { ms(self.time_sum) / self.requests as f64 };
        json!({
            "min": ms(self.time_min.unwrap_or_default()),
            "max": ms(self.time_max),
            "arithmetic_mean": mean,
            "n": self.requests,
        })
    }
}

fn counter(value: u64, what: &str) -> Value {
    json!({"value": value, "type": "counter", "desc": what})
}
