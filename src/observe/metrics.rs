//! Metrics of a node. Every part of the node reaches its node's [`Metrics`] through
//! [`Env::metrics`](crate::world::Env::metrics); `http::stats` shows them.
//!
//! Names and descriptions follow CouchDB's tree of statistics where it has them; those below `settee` are our own. A
//! metric that nothing moves has no place here: `tests/guard/metrics.rs` walks the list.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::tasks::Tasks;
use super::workers::Workers;

/// Defines an enum of metrics with the path and the description of each.
macro_rules! metrics {
    ($(#[$about:meta])* $kind:ident { $($name:ident = $path:literal, $what:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the description stands beside each")]
        pub enum $kind { $($name),* }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [$kind] = &[$($kind::$name),*];

            /// The path in the tree of `_stats`, segments divided by slashes.
            pub fn path(self) -> &'static str {
                match self { $($kind::$name => $path),* }
            }

            /// What it counts.
            pub fn about(self) -> &'static str {
                match self { $($kind::$name => $what),* }
            }
        }
    };
}

metrics! {
    /// Numbers that only grow.
    Counter {
        AuthCacheHits = "couchdb/auth_cache_hits", "number of authentication cache hits";
        AuthCacheMisses = "couchdb/auth_cache_misses", "number of authentication cache misses";
        PasswordsComputed = "couchdb/password_hashing_slow", "number of password hashes that were computed";
        PasswordsRemembered = "couchdb/password_hashing_fast", "number of passwords that were known to be right";
        LoginsFailed = "settee/auth/failed", "number of refused names and passwords";
        LoginsLockedOut = "settee/auth/locked_out", "number of logins refused by the lock-out";
        MapsForked = "settee/cluster/maps_forked", "number of times that two shard maps of one version met";
        DatabaseReads = "couchdb/database_reads", "number of times a document was read from a database";
        DatabaseWrites = "couchdb/database_writes", "number of times a database was changed";
        DocumentInserts = "couchdb/document_inserts", "number of documents inserted";
        DocumentWrites = "couchdb/document_writes", "number of document write operations";
        LocalDocumentWrites = "couchdb/local_document_writes", "number of _local document write operations";
        DocumentPurges = "couchdb/document_purges/total", "number of document purge operations";
        AbortedRequests = "couchdb/httpd/aborted_requests", "number of aborted requests";
        BulkRequests = "couchdb/httpd/bulk_requests", "number of bulk requests";
        PurgeRequests = "couchdb/httpd/purge_requests", "number of purge requests";
        ViewReads = "couchdb/httpd/view_reads", "number of view reads";
        DocumentsMapped = "couchdb/mrview/map_doc", "number of documents mapped in the view server";
        RowsEmitted = "couchdb/mrview/emits", "number of emits from map functions";
        ValidationRejects = "couchdb/query_server/vdu_rejects", "number of rejections by validate_doc_update function";
        ValidatorsCached = "ddoc_cache/hit", "number of times validation functions were in memory";
        ValidatorsRead = "ddoc_cache/miss", "number of times validation functions were read";
        Commits = "couchdb/commits", "number of commits performed";
        FindScans = "mango/unindexed_queries", "number of mango queries that could not use an index";
        FindDocuments = "mango/docs_examined", "number of documents examined by mango queries";
        FindResults = "mango/results_returned", "number of rows returned by mango queries";
        ReplicationsAdded = "couch_replicator/jobs/adds", "number of jobs added to the replicator";
        ReplicationsCrashed = "couch_replicator/jobs/crashes", "number of replication runs that failed";
        Checkpoints = "couch_replicator/checkpoints/success", "number of checkpoints successfully saved";
        ClientRequests = "couch_replicator/requests", "number of HTTP requests made to other servers";
        ClientAnswers = "couch_replicator/responses/success", "number of answers of other servers";
        ClientFailures = "couch_replicator/responses/failure", "number of requests to other servers without an answer";
        LogErrors = "couch_log/level/error", "number of logged error messages";
        LogWarnings = "couch_log/level/warning", "number of logged warning messages";
        LogInfos = "couch_log/level/info", "number of logged info messages";
        LogDebugs = "couch_log/level/debug", "number of logged debug messages";
        ConnectionsAccepted = "settee/connections/accepted", "number of connections of clients";
        JournalBytes = "settee/journal/bytes", "bytes written to the journal";
        WritesMet = "settee/writes/quorum", "edits of which as many replicas as asked for acknowledged";
        WritesAccepted = "settee/writes/accepted", "edits of which fewer replicas than asked for acknowledged";
        ReadRepairs = "settee/reads/repaired", "leaves sent to a replica that a read found lacking them";
        RepairsMade = "fabric/read_repairs/success", "number of successful read repair operations";
        RepairsFailed = "fabric/read_repairs/failure", "number of failed read repair operations";
        DatabaseSyncs = "settee/convergence/syncs", "comparisons of a database with other nodes that succeeded";
        DatabaseSyncsFailed = "settee/convergence/syncs_failed", "comparisons of a database with other nodes that failed";
        FlushesFailed = "settee/flush/failed", "flushes of a store file that failed";
        DocumentsExpired = "settee/documents_expired", "documents that were deleted because they had ended";
        ShardsCompacted = "settee/compaction/shards", "shards that were compacted";
        IndexesRemoved = "settee/index_cleanup/removed", "indexes removed because no design document names them";
        SlowRequests = "settee/slow_requests", "requests above log/slow_request_ms";
        DocumentsWaited = "settee/admission/documents_waited", "requests for documents that waited for their turn";
        QueriesWaited = "settee/admission/queries_waited", "queries that waited for their turn";
        FeedsWaited = "settee/admission/feeds_waited", "pages of feeds that waited for their turn";
        DocumentsRefused = "settee/admission/documents_refused", "requests for documents refused for want of a turn";
        QueriesRefused = "settee/admission/queries_refused", "queries refused for want of a turn";
        FeedsRefused = "settee/admission/feeds_refused", "feeds refused for want of a turn";
    }
}

impl Counter {
    /// Those that this one is the sum of; such a counter is not counted itself.
    fn parts(self) -> &'static [Counter] {
        match self {
            Counter::ReadRepairs => &[Counter::RepairsMade, Counter::RepairsFailed],
            _ => &[],
        }
    }
}

metrics! {
    /// Numbers that go up and down.
    Gauge {
        ChangesClients = "couchdb/httpd/clients_requesting_changes", "number of clients for continuous _changes";
        Connections = "settee/connections/open", "connections of clients now";
        PasswordsWaiting = "settee/auth/passwords_waiting", "passwords being checked or waiting for it";
        DocumentsWaiting = "settee/admission/documents_waiting", "requests for documents that wait for their turn";
        QueriesWaiting = "settee/admission/queries_waiting", "queries that wait for their turn";
        FeedsWaiting = "settee/admission/feeds_waiting", "pages of feeds that wait for their turn";
        StatesHeld = "settee/views/states_held", "states of indexes that are held for answers of several pages";
    }
}

metrics! {
    /// Distributions of values.
    Histogram {
        RequestTime = "couchdb/request_time", "length of a request inside CouchDB without MochiWeb";
        BulkDocs = "couchdb/httpd/bulk_docs", "distribution of the number of docs in _bulk_docs requests";
        DatabaseInfo = "couchdb/dbinfo", "distribution of latencies for calls to retrieve DB info";
        ValidationTime = "couchdb/query_server/vdu_process_time", "duration of validate_doc_update function calls";
        FindTime = "mango/query_time", "length of time processing a mango query";
        SearchTime = "dreyfus/httpd/search", "distribution of overall search request latency";
        TypedSearchTime = "nouveau/search_latency", "distribution of overall search latency of indexes with types";
        SyncTime = "fsync/time", "microseconds to call fsync";
        FlushTime = "settee/flush/time", "length of a flush of a store file";
        AdmissionWait = "settee/admission/wait_time", "wait of requests that waited for their turn and had it";
    }
}

/// All numbers of a node. Shared; counting takes no lock, distributions a short one.
#[derive(Debug)]
pub struct Metrics {
    counters: Vec<AtomicU64>,
    gauges: Vec<AtomicU64>,
    histograms: Vec<Mutex<Distribution>>,
    workers: Workers,
    tasks: Tasks,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            counters: Counter::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            gauges: Gauge::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            histograms: Histogram::ALL.iter().map(|_| Mutex::default()).collect(),
            workers: Workers::default(),
            tasks: Tasks::default(),
        }
    }
}

impl Metrics {
    /// The background workers of the node.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The long tasks of the node.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Counts one.
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts several. A counter that is the sum of others is not counted itself.
    pub fn add(&self, counter: Counter, n: u64) {
        debug_assert!(counter.parts().is_empty(), "{counter:?} is a sum");
        self.counters[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// How many were counted.
    pub fn counted(&self, counter: Counter) -> u64 {
        match counter.parts() {
            [] => self.counters[counter as usize].load(Ordering::Relaxed),
            parts => parts.iter().map(|part| self.counted(*part)).sum(),
        }
    }

    /// Takes part in a gauge until the guard is dropped.
    pub fn enter(self: &std::sync::Arc<Self>, gauge: Gauge) -> Entered {
        self.gauges[gauge as usize].fetch_add(1, Ordering::Relaxed);
        Entered(std::sync::Arc::clone(self), gauge)
    }

    /// What a gauge shows.
    pub fn level(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize].load(Ordering::Relaxed)
    }

    /// Adds a value to a distribution.
    pub fn record(&self, histogram: Histogram, value: f64) {
        self.lock(histogram).add(value);
    }

    /// Adds a duration in milliseconds to a distribution.
    pub fn record_ms(&self, histogram: Histogram, took: Duration) {
        self.record(histogram, took.as_secs_f64() * 1e3);
    }

    /// A distribution as it is now.
    pub fn distribution(&self, histogram: Histogram) -> Distribution {
        self.lock(histogram).clone()
    }

    fn lock(&self, histogram: Histogram) -> std::sync::MutexGuard<'_, Distribution> {
        self.histograms[histogram as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A share in a gauge.
#[derive(Debug)]
pub struct Entered(std::sync::Arc<Metrics>, Gauge);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.gauges[self.1 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Classes of values in a factor of two: a percentile is off by at most a twelfth.
const CLASSES_PER_OCTAVE: f64 = 8.0;

/// Values since the node started: moments exactly, order by classes whose width grows with the value.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    n: u64,
    sum: f64,
    min: f64,
    max: f64,
    mean: f64,
    /// Sums of the second, third and fourth powers of the distance from the mean.
    powers: [f64; 3],
    sum_of_logarithms: f64,
    sum_of_inverses: f64,
    classes: BTreeMap<i32, u64>,
}

impl Distribution {
    fn add(&mut self, value: f64) {
        self.min = if self.n == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        let before = self.n as f64;
        self.n += 1;
        let n = self.n as f64;
        self.sum += value;
        // One-pass moments (Terriberry's extension of Welford's method).
        let delta = value - self.mean;
        let step = delta / n;
        let step2 = step * step;
        let term = delta * step * before;
        let [m2, m3, _] = self.powers;
        self.mean += step;
        self.powers[2] += term * step2 * (n * n - 3.0 * n + 3.0) + 6.0 * step2 * m2 - 4.0 * step * m3;
        self.powers[1] += term * step * (n - 2.0) - 3.0 * step * m2;
        self.powers[0] += term;
        let positive = value.max(1e-6);
        self.sum_of_logarithms += positive.ln();
        self.sum_of_inverses += 1.0 / positive;
        *self.classes.entry((positive.log2() * CLASSES_PER_OCTAVE).floor() as i32).or_default() += 1;
    }

    /// How many values.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The least.
    pub fn min(&self) -> f64 {
        self.min
    }

    /// The greatest.
    pub fn max(&self) -> f64 {
        self.max
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The geometric mean.
    pub fn geometric_mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { (self.sum_of_logarithms / self.n as f64).exp() }
    }

    /// The harmonic mean.
    pub fn harmonic_mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.n as f64 / self.sum_of_inverses }
    }

    /// The variance of a sample.
    pub fn variance(&self) -> f64 {
        if self.n < 2 { 0.0 } else { self.powers[0] / (self.n - 1) as f64 }
    }

    /// The skewness.
    pub fn skewness(&self) -> f64 {
        let m2 = self.powers[0];
        if m2 <= 0.0 { 0.0 } else { (self.n as f64).sqrt() * self.powers[1] / m2.powf(1.5) }
    }

    /// The excess kurtosis.
    pub fn kurtosis(&self) -> f64 {
        let m2 = self.powers[0];
        if m2 <= 0.0 { 0.0 } else { self.n as f64 * self.powers[2] / (m2 * m2) - 3.0 }
    }

    /// The value below which `share` (0 to 1) of the values lie, within the width of its class.
    pub fn percentile(&self, share: f64) -> f64 {
        let wanted = ((self.n as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (class, count) in &self.classes {
            seen += count;
            if seen >= wanted {
                return self.middle(*class).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// The upper bound of each class that has values, and their number.
    pub fn classes(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.classes
            .iter()
            .map(|(class, count)| (f64::from(class + 1) / CLASSES_PER_OCTAVE, *count))
            .map(|(power, count)| (power.exp2(), count))
    }

    fn middle(&self, class: i32) -> f64 {
        ((f64::from(class) + 0.5) / CLASSES_PER_OCTAVE).exp2()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn paths_are_unique_and_none_lies_within_another() {
        let all = Counter::ALL.iter().map(|c| c.path()).chain(Gauge::ALL.iter().map(|g| g.path()));
        let all: Vec<&str> = all.chain(Histogram::ALL.iter().map(|h| h.path())).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for path in &all {
            assert!(!all.iter().any(|other| other.starts_with(&format!("{path}/"))), "{path}");
        }
    }

    #[test]
    fn repairs_are_those_that_were_made_and_those_that_failed() {
        let metrics = Metrics::default();
        metrics.add(Counter::RepairsMade, 3);
        metrics.count(Counter::RepairsFailed);
        let counted =
            [Counter::ReadRepairs, Counter::RepairsMade, Counter::RepairsFailed].map(|of| metrics.counted(of));
        assert_eq!(counted, [4, 3, 1]);
    }

    #[test]
    fn moments_and_order_are_those_of_the_values() {
        let mut values = Distribution::default();
        assert_eq!((values.mean(), values.percentile(0.5), values.variance(), values.kurtosis()), (0.0, 0.0, 0.0, 0.0));
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            values.add(value);
        }
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(values.mean(), 5.0) && near(values.sum(), 40.0) && near(values.variance(), 32.0 / 7.0));
        assert!(near(values.skewness(), 0.65625) && near(values.kurtosis(), -0.218_75), "{values:?}");
        assert_eq!((values.min(), values.max(), values.n()), (2.0, 9.0, 8));
        assert!(values.harmonic_mean() < values.geometric_mean() && values.geometric_mean() < values.mean());
        let median = values.percentile(0.5);
        assert!((3.6..=4.4).contains(&median), "{median}");
        assert_eq!(values.percentile(1.0), 9.0);
        assert_eq!(values.classes().map(|(_, count)| count).sum::<u64>(), 8);
    }

    #[test]
    fn a_gauge_goes_down_with_its_guards() {
        let metrics = Arc::new(Metrics::default());
        let guards = (metrics.enter(Gauge::Connections), metrics.enter(Gauge::Connections));
        assert_eq!(metrics.level(Gauge::Connections), 2);
        drop(guards);
        assert_eq!(metrics.level(Gauge::Connections), 0);
    }
}
