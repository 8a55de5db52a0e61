//! How long requests take, by endpoint: histograms for `_prometheus`.
//!
//! An endpoint is a kind of request (`document`, `view`), not a path: the number of histograms does not grow with
//! the data. The time is that until the head of the answer, as in the request log; feeds that wait for changes have
//! an endpoint of their own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::query::Query;
use super::route::{Endpoint, InDatabase, ListKind};

/// The name of the histograms.
const NAME: &str = "settee_http_request_seconds";
/// Upper bounds of the classes, in milliseconds.
const BOUNDS_MS: [u64; 13] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];

/// Requests of one endpoint.
#[derive(Clone, Debug, Default)]
struct Buckets {
    /// Those within each of [`BOUNDS_MS`] and above the one before.
    counts: [u64; BOUNDS_MS.len()],
    n: u64,
    sum: Duration,
}

/// Histograms by endpoint.
#[derive(Debug, Default)]
pub(super) struct Latencies(Mutex<BTreeMap<&'static str, Buckets>>);

impl Latencies {
    /// Counts one answer.
    pub fn record(&self, endpoint: &'static str, took: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = all.entry(endpoint).or_default();
        if let Some(at) = BOUNDS_MS.iter().position(|bound| took <= Duration::from_millis(*bound)) {
            buckets.counts[at] += 1;
        }
        buckets.n += 1;
        buckets.sum += took;
    }

    /// The text of all histograms.
    pub fn prometheus(&self, out: &mut String) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Writing to a text does not fail.
        let _ = writeln!(out, "# TYPE {NAME} histogram");
        for (endpoint, Buckets { counts, n, sum }) in all {
            let mut within = 0;
            for (bound, count) in BOUNDS_MS.iter().zip(counts) {
                within += count;
                let bound = *bound as f64 / 1e3;
                let _ = writeln!(out, "{NAME}_bucket{{endpoint=\"{endpoint}\",le=\"{bound}\"}} {within}");
            }
            let _ = writeln!(out, "{NAME}_bucket{{endpoint=\"{endpoint}\",le=\"+Inf\"}} {n}");
            let _ = writeln!(out, "{NAME}_sum{{endpoint=\"{endpoint}\"}} {}", sum.as_secs_f64());
            let _ = writeln!(out, "{NAME}_count{{endpoint=\"{endpoint}\"}} {n}");
        }
    }
}

/// The name of an endpoint; `feed` for one that waits for changes.
pub(super) fn endpoint_name(endpoint: &Endpoint, query: &Query) -> &'static str {
    let waits = || query.get("feed").is_some_and(|feed| feed != "normal");
    match endpoint {
        Endpoint::Root | Endpoint::Up | Endpoint::Uuids | Endpoint::Favicon => "server",
        Endpoint::AllDbs | Endpoint::DbsInfo => "databases",
        Endpoint::DbUpdates if waits() => "feed",
        Endpoint::DbUpdates => "db_updates",
        Endpoint::Session => "session",
        Endpoint::Replicate | Endpoint::Scheduler(_) => "replication",
        Endpoint::SearchAnalyze | Endpoint::NouveauAnalyze => "search",
        Endpoint::Beyond(inner) => endpoint_name(inner, query),
        Endpoint::In(_, place) => match place {
            InDatabase::Changes if waits() => "feed",
            place => place_name(place),
        },
        _ => "admin",
    }
}

fn place_name(place: &InDatabase) -> &'static str {
    match place {
        InDatabase::Database => "database",
        InDatabase::List(ListKind::Local) => "local_docs",
        InDatabase::List(_) | InDatabase::Queries(_) => "all_docs",
        InDatabase::BulkDocs => "bulk_docs",
        InDatabase::BulkGet => "bulk_get",
        InDatabase::Changes => "changes",
        InDatabase::RevsDiff | InDatabase::MissingRevs => "revs_diff",
        InDatabase::SearchDryRun => "search",
        InDatabase::Mango(_) => "find",
        InDatabase::Partition(_) => "partition",
        InDatabase::DesignFunction(_, rest) => match rest.first().map(String::as_str) {
            Some("_view") => "view",
            Some("_search" | "_search_info" | "_nouveau") => "search",
            _ => "function",
        },
        InDatabase::Document(_) => "document",
        InDatabase::Attachment(..) => "attachment",
        InDatabase::Local(_) | InDatabase::LocalWithoutId | InDatabase::LocalAttachment => "local",
        InDatabase::NotText | InDatabase::AttachmentNotText | InDatabase::PartitionNotText => "refused",
        _ => "database_admin",
    }
}

#[cfg(test)]
mod tests {
    use super::super::route::route;
    use super::*;

    #[test]
    fn paths_have_the_names_of_their_kinds() {
        for (path, query, name) in [
            ("/", "", "server"),
            ("/db", "", "database"),
            ("/db/doc", "rev=1-a", "document"),
            ("/db/doc/file", "", "attachment"),
            ("/db/_changes", "feed=normal", "changes"),
            ("/db/_changes", "feed=continuous", "feed"),
            ("/db/_all_docs", "", "all_docs"),
            ("/db/_design/d/_view/v", "", "view"),
            ("/db/_design/d/_search/s", "", "search"),
            ("/db/_find", "", "find"),
            ("/db/_bulk_docs", "", "bulk_docs"),
            ("/_node/_local/_stats", "", "admin"),
        ] {
            assert_eq!(endpoint_name(&route(path), &Query::parse(query)), name, "{path}");
        }
    }

    #[test]
    fn classes_add_up_from_below() {
        let latencies = Latencies::default();
        for ms in [1, 3, 30, 20_000] {
            latencies.record("view", Duration::from_millis(ms));
        }
        let mut text = String::new();
        latencies.prometheus(&mut text);
        for (bound, count) in [("0.001", 1), ("0.005", 2), ("0.025", 2), ("0.05", 3), ("10", 3), ("+Inf", 4)] {
            let line = format!("settee_http_request_seconds_bucket{{endpoint=\"view\",le=\"{bound}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains("settee_http_request_seconds_sum{endpoint=\"view\"} 20.034\n"), "{text}");
    }
}
