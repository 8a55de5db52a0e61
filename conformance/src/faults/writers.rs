//! Clients of a round: writers that keep an account of what they were answered, and a reader that follows the feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cluster::Cluster;
use super::text;
use crate::json::Value;
use crate::random::dice::Dice;

/// Documents that all writers change; besides each has its own.
const SHARED: usize = 8;
/// Writes of one writer at most: a round stays small enough to be read back.
const WRITES_MAX: usize = 3_000;

/// What one write was, and what was answered.
#[derive(Clone, Debug)]
pub struct Written {
    /// The document.
    pub id: String,
    /// What it says in the document: the writer and its number.
    pub mark: String,
    /// The revision that it was built on; empty for a new document.
    pub parent: String,
    /// The revision that was answered; empty where none was.
    pub rev: String,
    /// The status; 0 without an answer.
    pub status: u16,
}

/// All that a writer did.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Its writes in order.
    pub writes: Vec<Written>,
    /// Answered 201.
    pub stored: usize,
    /// Answered 202.
    pub accepted: usize,
    /// Answered that nothing was written.
    pub refused: usize,
    /// Neither.
    pub unknown: usize,
}

/// Writes until `over`.
pub async fn write(cluster: Cluster, db: String, number: usize, seed: u64, over: Arc<AtomicBool>) -> Account {
    let mut dice = Dice::new(seed.wrapping_mul(31).wrapping_add(number as u64), "writer");
    let mut account = Account::default();
    let mut revs: BTreeMap<String, String> = BTreeMap::new();
    while !over.load(Ordering::Relaxed) && account.writes.len() < WRITES_MAX {
        let at = dice.below(cluster.nodes.len());
        let shared = dice.chance(30);
        let own = dice.below(account.writes.len() + 5).min(40);
        let id = if shared { format!("shared-{}", dice.below(SHARED)) } else { format!("own-{number}-{own}") };
        if shared || !revs.contains_key(&id) && own < account.writes.len() {
            // What others wrote, or an answer that did not come, is read before it is built upon.
            let (status, body) = cluster.ask(at, "GET", &format!("/{db}/{id}"), None).await;
            match status {
                200 => _ = revs.insert(id.clone(), text(&body, "/_rev")),
                404 => _ = revs.remove(&id),
                _ => continue,
            }
        }
        let mark = format!("{number}-{}", account.writes.len());
        let parent = revs.get(&id).cloned().unwrap_or_default();
        let mut members = vec![("mark".to_owned(), Value::from(mark.as_str()))];
        if !parent.is_empty() {
            members.push(("_rev".to_owned(), Value::from(parent.as_str())));
        }
        let (status, body) = cluster.ask(at, "PUT", &format!("/{db}/{id}"), Some(&Value::Object(members))).await;
        let rev = text(&body, "/rev");
        match status {
            201 => account.stored += 1,
            202 => account.accepted += 1,
            400..=499 => account.refused += 1,
            _ => account.unknown += 1,
        }
        if rev.is_empty() {
            revs.remove(&id)
        } else {
            revs.insert(id.clone(), rev.clone())
        };
        account.writes.push(Written { id, mark, parent, rev, status });
        tokio::time::sleep(Duration::from_millis(dice.below(12) as u64)).await;
    }
    account
}

/// Follows the feed by pages, each from the sequence of the one before and from any node, until `over` and then to its
/// end: the ids that it was told of.
pub async fn follow(cluster: Cluster, db: String, over: Arc<AtomicBool>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let (mut since, mut at, mut failures) = ("0".to_owned(), 0, 0);
    loop {
        let was_over = over.load(Ordering::Relaxed);
        let target = format!("/{db}/_changes?limit=100&since={}", crate::random::draft::escaped(&since));
        let (status, page) = cluster.ask(at, "GET", &target, None).await;
        at += 1;
        let rows = page.get("results").and_then(Value::as_array).unwrap_or_default();
        let last = text(&page, "/last_seq");
        if status != 200 || last.is_empty() {
            failures += 1;
            // Nodes that are back soon are waited for; those that never are make the round fail elsewhere.
            if was_over && failures > 300 {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        seen.extend(rows.iter().map(|row| text(row, "/id")));
        since = last;
        if rows.is_empty() {
            if was_over {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
