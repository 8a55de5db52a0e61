//! The dashboard and the alert rules of `docs/monitoring` name metrics that a node has, and so does their page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::served::{ADMIN, Served};

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The metrics that a text names: words that begin as those of a node do.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words =
        text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("settee_") || word.starts_with("couchdb_"));
    words.map(str::to_owned).collect()
}

/// Metrics that are there only while there is something to tell, and names of other things.
const ELSEWHERE: [&str; 3] = ["settee_replication_lag_seconds", "settee_replication_lag_entries", "settee_cluster_"];

#[test]
fn every_metric_that_the_pages_name_is_there() {
    let served = Served::start(&[]);
    served.must("PUT", "/d", "");
    served.must("PUT", "/d/a", "{}");
    let told = served.send(ADMIN, "GET", "/_node/_local/_prometheus", &["Accept: */*"], "").body;
    let known: BTreeSet<&str> = told.lines().map(|line| line.split(['{', ' ']).next().unwrap_or_default()).collect();
    let dashboard: Value = serde_json::from_str(&text("monitoring/settee-dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let shown: Vec<String> = targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect();
    assert!(panels.len() > 20 && shown.len() >= panels.len());
    let rules = text("monitoring/settee-alerts.yaml");
    let page = text("monitoring.md");
    let table = page.lines().filter(|line| line.starts_with("| `")).collect::<Vec<_>>().join("\n");
    for (what, text) in [("dashboard", shown.join("\n")), ("alerts", rules), ("page", table)] {
        let names = named(&text);
        assert!(names.len() > 10, "{what}: {names:?}");
        let lacking: Vec<&String> = names
            .iter()
            .filter(|name| !known.contains(name.as_str()) && !ELSEWHERE.contains(&name.as_str()))
            // A family is named without the endings of its lines.
            .filter(|name| !known.contains(format!("{name}_count").as_str()))
            .collect();
        assert!(lacking.is_empty(), "named by the {what} and not told by a node: {lacking:?}");
    }
    // Every request so far is in a histogram.
    let line =
        |start: &str| told.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {told}"));
    assert_eq!(line("settee_http_request_seconds_count{endpoint=\"document\"}").rsplit(' ').next(), Some("1"));
    assert_eq!(
        line("settee_http_request_seconds_bucket{endpoint=\"database\",le=\"+Inf\"}").rsplit(' ').next(),
        Some("1")
    );
    assert_eq!(line("settee_convergence_in_sync").rsplit(' ').next(), Some("1"));
    served.runtime.block_on(served.node.stop());
}
