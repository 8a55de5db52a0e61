//! Statistics of a node: the tree of `_stats`, the text of `_prometheus`, the record of `_system`.
//!
//! All three show one list of readings: requests by method and status, counted here, and the node's
//! [`Metrics`](crate::observe::metrics::Metrics). Names are CouchDB's where it has them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::latency::Latencies;
use crate::cluster::Counted;
use crate::coordinator::ReplicaCounts;
use crate::observe::metrics::{Counter, Distribution, Gauge, Histogram, Metrics};
use crate::observe::panics;
use crate::observe::workers::WorkerState;
use crate::replicate::Standing;
use crate::world::{Env, Instant, Usage};

const METHODS: [&str; 7] = ["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];
const STATUSES: [u16; 22] =
    [200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 406, 409, 412, 413, 414, 415, 416, 500, 503];
/// The percentiles of a distribution: CouchDB's name of each, and its share.
const PERCENTILES: [(u32, f64); 6] = [(50, 0.5), (75, 0.75), (90, 0.9), (95, 0.95), (99, 0.99), (999, 0.999)];

/// The node's counters of requests.
pub struct Stats {
    started: Instant,
    counts: Mutex<Counts>,
    latencies: Latencies,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    methods: BTreeMap<&'static str, u64>,
    statuses: BTreeMap<u16, u64>,
}

/// What is known only where the node is put together.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// Databases with an open handle.
    pub open_databases: u64,
    /// How replications are.
    pub replications: Standing,
    /// Operations refused because of damaged data.
    pub damaged_reads: u64,
    /// Different places of damaged data found since the start.
    pub damaged_places: u64,
    /// Damaged store files of single shards that are still in use.
    pub damaged_files: u64,
    /// Those that were replaced since the start.
    pub replaced_files: u64,
    /// What could not be taken out of those.
    pub lost_parts: u64,
    /// What happened on the connections to other nodes.
    pub cluster: Vec<Counted>,
    /// What is known about the replicas of the node.
    pub replicas: ReplicaCounts,
    /// Databases that are being compacted.
    pub compacting: u64,
    /// Bytes that searches keep of full-text indexes.
    pub search_bytes: u64,
    /// Bytes that page caches of open store files may take, and how many files are open.
    pub store_files: (u64, u64),
    /// For how long there have been databases that wait to be compared with other nodes.
    pub lag: Duration,
    /// What the process takes of the machine.
    pub usage: Usage,
}

/// One number, or one distribution, at the moment of asking.
struct Reading {
    /// Segments divided by slashes.
    path: String,
    about: String,
    value: Measured,
}

enum Measured {
    Counter(u64),
    Gauge(u64),
    Histogram(Distribution),
}

impl Stats {
    /// Counters at zero.
    pub fn new(env: &Env) -> Stats {
        Stats { started: env.now(), counts: Mutex::default(), latencies: Latencies::default() }
    }

    /// Counts one answer of an endpoint ([`latency`](super::latency)).
    pub fn count(
        &self,
        metrics: &Metrics,
        (method, endpoint): (&str, &'static str),
        status: StatusCode,
        took: Duration,
    ) {
        metrics.record_ms(Histogram::RequestTime, took);
        self.latencies.record(endpoint, took);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.requests += 1;
        if let Some(method) = METHODS.iter().find(|m| **m == method) {
            *counts.methods.entry(method).or_default() += 1;
        }
        *counts.statuses.entry(status.as_u16()).or_default() += 1;
    }

    fn readings(&self, metrics: &Metrics, levels: &Levels) -> Vec<Reading> {
        let mut out = self.of_requests();
        let mut add = |path: &str, about: &str, value: Measured| {
            out.push(Reading { path: path.to_owned(), about: about.to_owned(), value });
        };
        for counter in Counter::ALL {
            add(counter.path(), counter.about(), Measured::Counter(metrics.counted(*counter)));
        }
        for gauge in Gauge::ALL {
            add(gauge.path(), gauge.about(), Measured::Gauge(metrics.level(*gauge)));
        }
        for histogram in Histogram::ALL {
            add(histogram.path(), histogram.about(), Measured::Histogram(metrics.distribution(*histogram)));
        }
        let syncs = metrics.distribution(Histogram::SyncTime).n();
        add("fsync/count", "number of fsync calls", Measured::Counter(syncs));
        add("couchdb/open_databases", "number of open databases", Measured::Gauge(levels.open_databases));
        let files = levels.usage.open_files;
        add("couchdb/open_os_files", "number of file descriptors CouchDB has open", Measured::Gauge(files));
        let jobs = &levels.replications;
        for (state, count) in [("running", jobs.running), ("pending", jobs.pending), ("crashed", jobs.crashing)] {
            let about = format!("replicator scheduler {state} jobs");
            add(&format!("couch_replicator/jobs/{state}"), &about, Measured::Gauge(count));
        }
        for (id, lag, _) in &jobs.behind {
            let about = "seconds since the target of a replication had everything";
            add(&format!("settee/replication/lag_seconds/{id}"), about, Measured::Gauge(lag.as_secs()));
        }
        for (id, _, entries) in &jobs.behind {
            let about = "changes that a replication has still to read";
            add(&format!("settee/replication/lag_entries/{id}"), about, Measured::Gauge(*entries));
        }
        let reads = Measured::Counter(levels.damaged_reads);
        add("settee/damaged_reads", "number of operations refused because of damaged data", reads);
        let places = Measured::Gauge(levels.damaged_places);
        add("settee/damaged_places", "number of different places of damaged data found since the start", places);
        let files = Measured::Gauge(levels.damaged_files);
        add("settee/damaged_files", "number of damaged store files of one shard that are in use", files);
        let replaced = Measured::Counter(levels.replaced_files);
        add("settee/replaced_files", "number of damaged store files that were put away after a refill", replaced);
        let lost = Measured::Counter(levels.lost_parts);
        add("settee/replaced_files_lost", "number of parts of such files that could not be taken out of them", lost);
        let panics = Measured::Counter(panics::counted());
        add("settee/panics", "number of panics in this process: faults of the node itself", panics);
        for counted in &levels.cluster {
            add(&format!("settee/cluster/{}", counted.name), counted.what, Measured::Counter(counted.value));
        }
        let memory = Measured::Gauge(levels.usage.memory_bytes);
        add("settee/memory/resident_bytes", "bytes of memory that the node takes", memory);
        let compacting = Measured::Gauge(levels.compacting);
        add("settee/compaction/running", "number of databases that are being compacted", compacting);
        let lagging = Measured::Gauge(levels.replicas.lagging);
        add("settee/convergence/lagging_databases", "databases that wait to be compared with other nodes", lagging);
        let about = "seconds for which databases have waited to be compared with other nodes";
        add("settee/convergence/lag_seconds", about, Measured::Gauge(levels.lag.as_secs()));
        let in_sync = Measured::Gauge(u64::from(levels.replicas.in_sync));
        add("settee/convergence/in_sync", "1: the node's replicas hold what those of other nodes held", in_sync);
        out.extend(of_memory(levels));
        out
    }

    fn of_requests(&self) -> Vec<Reading> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = |path: String, about: String, n: u64| Reading { path, about, value: Measured::Counter(n) };
        let mut out = vec![counter("couchdb/httpd/requests".into(), "number of HTTP requests".into(), counts.requests)];
        for method in METHODS {
            let n = counts.methods.get(method).copied().unwrap_or(0);
            let path = format!("couchdb/httpd_request_methods/{method}");
            out.push(counter(path, format!("number of HTTP {method} requests"), n));
        }
        let mut known: Vec<u16> = STATUSES.iter().chain(counts.statuses.keys()).copied().collect();
        known.sort_unstable();
        known.dedup();
        for code in known {
            let n = counts.statuses.get(&code).copied().unwrap_or(0);
            let name = StatusCode::from_u16(code).ok().and_then(|s| s.canonical_reason()).unwrap_or_default();
            let path = format!("couchdb/httpd_status_codes/{code}");
            out.push(counter(path, format!("number of HTTP {code} {name} responses"), n));
        }
        out
    }

    /// The tree of `_stats`.
    pub fn tree(&self, metrics: &Metrics, levels: &Levels) -> Value {
        let mut tree = Map::new();
        for Reading { path, about, value } in self.readings(metrics, levels) {
            let (kind, value) = match value {
                Measured::Counter(n) => ("counter", n.into()),
                // CouchDB's tree calls a number that goes up and down a counter, too, where it has a history as one.
                Measured::Gauge(n) => (if path.starts_with("couchdb/") { "counter" } else { "gauge" }, n.into()),
                Measured::Histogram(values) => ("histogram", distribution(&values)),
            };
            let mut segments: Vec<&str> = path.split('/').collect();
            let last = segments.pop().unwrap_or_default().to_owned();
            let mut at = &mut tree;
            for segment in segments {
                let below = at.entry(segment).or_insert_with(|| Value::Object(Map::new()));
                // Invariant: no path of a metric lies within another's.
                at = below.as_object_mut().expect("a branch of the tree");
            }
            at.insert(last, json!({"value": value, "type": kind, "desc": about}));
        }
        Value::Object(tree)
    }

    /// Seconds since the node was started.
    pub fn uptime_s(&self, env: &Env) -> u64 {
        env.now().since(self.started).as_secs()
    }

    /// The record of `_system`.
    pub fn system(&self, env: &Env, levels: &Levels) -> Value {
        let usage = &levels.usage;
        json!({
            "uptime": self.uptime_s(env),
            "memory": {"other": usage.memory_bytes},
            "memory_peak": usage.memory_peak_bytes,
            "process_count": usage.threads,
            "open_files": usage.open_files,
            "context_switches": usage.context_switches,
            "io_input": usage.read_bytes,
            "io_output": usage.written_bytes,
            "connections": env.metrics().level(Gauge::Connections),
            "message_queues": {"passwords": env.metrics().level(Gauge::PasswordsWaiting)},
            "replicas": replicas(&levels.replicas),
            "workers": workers(env),
        })
    }

    /// The text of `_prometheus`.
    pub fn prometheus(&self, env: &Env, levels: &Levels) -> String {
        let mut out = String::new();
        let mut family = String::new();
        for reading in self.readings(env.metrics(), levels) {
            let (name, labels) = prometheus_name(&reading);
            let kind = match reading.value {
                Measured::Counter(_) => "counter",
                Measured::Gauge(_) => "gauge",
                Measured::Histogram(_) => "summary",
            };
            if name != family {
                out.push_str(&format!("# TYPE {name} {kind}\n"));
                family.clone_from(&name);
            }
            match &reading.value {
                Measured::Counter(n) | Measured::Gauge(n) => out.push_str(&format!("{name}{labels} {n}\n")),
                Measured::Histogram(values) => summary(&mut out, &name, &reading.path, values),
            }
        }
        self.latencies.prometheus(&mut out);
        worker_metrics(&mut out, env);
        let uptime = self.uptime_s(env);
        out.push_str(&format!("# TYPE couchdb_uptime_seconds counter\ncouchdb_uptime_seconds {uptime}\n"));
        out
    }
}

/// What is kept in memory of indexes and store files.
fn of_memory(levels: &Levels) -> [Reading; 3] {
    let gauge = |path: &str, about: &str, n: u64| {
        let (path, about) = (path.to_owned(), about.to_owned());
        Reading { path, about, value: Measured::Gauge(n) }
    };
    let (caches, files) = levels.store_files;
    [
        gauge("settee/search/open_bytes", "bytes of full-text indexes that are kept in memory", levels.search_bytes),
        gauge("settee/store_files/page_cache_bytes", "bytes that page caches of open store files may take", caches),
        gauge("settee/store_files/open", "number of store files that are open", files),
    ]
}

/// The counts of replicas for `_system`.
fn replicas(counts: &ReplicaCounts) -> Value {
    json!({
        "in_sync": counts.in_sync,
        "lagging": counts.lagging,
        "unfilled": counts.unfilled,
        "outdated_maps": counts.outdated_maps,
        "rebuilding": counts.rebuilding,
    })
}

/// The background workers for `_system`, in the order in which they were started.
fn workers(env: &Env) -> Vec<Value> {
    let one = |worker: WorkerState| {
        json!({
            "name": worker.name,
            "waits_for": worker.waits_for,
            "running": worker.is_running,
            "runs": worker.runs,
            "failures": worker.failures,
            "last_error": worker.last_error,
        })
    };
    env.metrics().workers().states().into_iter().map(one).collect()
}

/// The background workers for `_prometheus`. Workers of one name, of which several run, are one reading.
fn worker_metrics(out: &mut String, env: &Env) {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for worker in env.metrics().workers().states() {
        let (runs, failures) = sums.entry(worker.name).or_default();
        *runs += worker.runs;
        *failures += worker.failures;
    }
    out.push_str("# TYPE settee_worker_runs_total counter\n");
    for (name, (runs, _)) in &sums {
        out.push_str(&format!("settee_worker_runs_total{{worker=\"{name}\"}} {runs}\n"));
    }
    out.push_str("# TYPE settee_worker_failures_total counter\n");
    for (name, (_, failures)) in &sums {
        out.push_str(&format!("settee_worker_failures_total{{worker=\"{name}\"}} {failures}\n"));
    }
}

/// CouchDB's names: the path with underscores behind `couchdb`, some last segments as labels, times in seconds.
fn prometheus_name(reading: &Reading) -> (String, String) {
    let labelled = [
        ("couchdb/httpd_request_methods/", "couchdb_httpd_request_methods", "method"),
        ("couchdb/httpd_status_codes/", "couchdb_httpd_status_codes", "code"),
        ("couch_log/level/", "couchdb_couch_log_requests_total", "level"),
        ("settee/replication/lag_seconds/", "settee_replication_lag_seconds", "job"),
        ("settee/replication/lag_entries/", "settee_replication_lag_entries", "job"),
    ];
    for (prefix, name, label) in labelled {
        if let Some(value) = reading.path.strip_prefix(prefix) {
            return (name.to_owned(), format!("{{{label}=\"{value}\"}}"));
        }
    }
    let path = reading.path.replace('/', "_");
    let prefix = if path.starts_with("couchdb_") || path.starts_with("settee_") { "" } else { "couchdb_" };
    let suffix = match (&reading.value, unit_s(&reading.path)) {
        (Measured::Counter(_), _) => "_total",
        (Measured::Histogram(_), Some(_)) => "_seconds",
        _ => "",
    };
    (format!("{prefix}{path}{suffix}"), String::new())
}

/// The seconds of one unit of a distribution; `None` for one that is not of times.
fn unit_s(path: &str) -> Option<f64> {
    match path {
        "couchdb/httpd/bulk_docs" => None,
        "fsync/time" => Some(1e-6),
        _ => Some(1e-3),
    }
}

fn summary(out: &mut String, name: &str, path: &str, values: &Distribution) {
    let unit = unit_s(path).unwrap_or(1.0);
    for (_, share) in PERCENTILES {
        out.push_str(&format!("{name}{{quantile=\"{share}\"}} {}\n", values.percentile(share) * unit));
    }
    out.push_str(&format!("{name}_sum {}\n{name}_count {}\n", values.sum() * unit, values.n()));
}

/// A distribution as CouchDB prints one.
fn distribution(values: &Distribution) -> Value {
    let percentiles: Vec<Value> =
        PERCENTILES.iter().map(|(name, share)| json!([name, values.percentile(*share)])).collect();
    let classes: Vec<Value> = values.classes().map(|(upper, count)| json!([upper, count])).collect();
    json!({
        "min": values.min(),
        "max": values.max(),
        "arithmetic_mean": values.mean(),
        "geometric_mean": values.geometric_mean(),
        "harmonic_mean": values.harmonic_mean(),
        "median": values.percentile(0.5),
        "variance": values.variance(),
        "standard_deviation": values.variance().sqrt(),
        "skewness": values.skewness(),
        "kurtosis": values.kurtosis(),
        "percentile": percentiles,
        "histogram": classes,
        "n": values.n(),
    })
}
