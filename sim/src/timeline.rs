//! A run as one HTML page that needs nothing else: lanes of nodes and clients, faults as bands, operations as bars, the
//! log, the revisions of the document that the failure is about, its tree before and after, and how far in each range
//! the readers of the feed were told that they are.

use std::collections::BTreeSet;

use serde_json::json;

use crate::bisect::Decided;
use crate::run::Report;

/// The page's code and looks; the data is put in at the mark.
const PAGE: &str = include_str!("timeline.html");
const MARK: &str = "/*DATA*/null";

/// The page of a run. `decided`: between which milliseconds its failure was decided, if that was found out.
pub fn page(report: &Report, decided: Option<Decided>) -> String {
    let failure = report.failure.as_ref().map(ToString::to_string);
    let lanes = lanes(report.history.events.iter().map(|event| event.lane.as_str()));
    let data = json!({
        "name": report.plan.name(),
        "commit": crate::totals::commit(),
        "failure": failure,
        "decided": decided.map(|d| (d.after_ms, d.until_ms)),
        "hash": format!("{:016x}", report.trace_hash),
        "world": report.plan.world,
        "lanes": lanes,
        "events": report.history.events,
        "tree": report.tree,
        "shown": report.shown,
        "positions": report.told,
    });
    // No text of the data may end the script.
    PAGE.replace(MARK, &data.to_string().replace("</", "<\\/"))
}

/// Nodes first, then clients in the order of their numbers.
fn lanes<'a>(named: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let all: BTreeSet<&str> = named.collect();
    let mut lanes: Vec<&str> = all.into_iter().collect();
    lanes.sort_by_key(|lane| (!lane.starts_with("node"), lane.len(), *lane));
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::run::run_plan;

    #[test]
    fn lanes_stand_in_the_order_of_their_numbers() {
        let named = ["c10", "oracle", "node10", "c2", "node2", "c10", "c1"];
        assert_eq!(lanes(named.into_iter()), ["node2", "node10", "c1", "c2", "c10", "oracle"]);
    }

    #[test]
    fn a_page_holds_the_run_and_asks_for_nothing_else() {
        let page = page(&run_plan(Plan::from_seed(2), None), Some(Decided { after_ms: 7, until_ms: 9 }));
        assert!(
            page.contains("\"name\":\"2\"")
                && page.contains("\"kind\":\"op\"")
                && page.contains("\"decided\":[7,9]")
                && page.contains("\"shown\":{\"before\":null,\"after\":null}")
                && page.contains("\"positions\":[")
                && !page.contains(MARK)
        );
        for elsewhere in ["http://", "https://", "src=\"", "href=\""] {
            let outside = page.split("const data =").next().unwrap_or_default();
            assert!(!outside.contains(elsewhere), "{elsewhere}");
        }
    }
}
