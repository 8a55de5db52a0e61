//! Nodes that are taken out of work and in again (`[couchdb] maintenance_mode`). A node that works again shows what
//! was acknowledged while it did not, in its lists, too: until it has all of that they are read from other replicas.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Worker, broken};
use crate::client::Answer;
use crate::model::Violation;
use crate::place::address_of;

/// The setting of a node.
pub(crate) const SETTING: &str = "/_node/_local/_config/couchdb/maintenance_mode";
/// Replicas that must hold what is checked: all but that of the node in maintenance.
const REPLICAS: u32 = 2;
/// A replica that was there all the time may be so much behind, in milliseconds.
const BEHIND_MS: u64 = 1_500;

/// What was written while nodes were in maintenance.
#[derive(Default)]
pub(crate) struct Maintained {
    /// The nodes that are, by their numbers.
    now: BTreeMap<u32, u64>,
    /// What each of them is to show: documents and when they were acknowledged.
    due: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Worker {
    /// Takes a node out of work, or in again.
    pub(super) async fn maintain(&mut self, node: u32, on: bool) -> Result<(), Violation> {
        let mut other = self.another_node(node);
        if !on {
            self.locked(|s| s.together.maintained.now.remove(&node));
        }
        let answer = self.call_by(&mut other, "PUT", SETTING, &json!(on.to_string())).await;
        let done = matches!(answer, Ok(Answer { status: 200, .. }));
        self.locked(|s| {
            let now = s.now_ms();
            if on && done {
                s.together.maintained.now.insert(node, now);
            }
            s.history.counts(if on { "maintenance: entered" } else { "maintenance: left" });
        });
        Ok(())
    }

    /// Notes a document that was sent at some time and acknowledged now.
    pub(super) fn written_beside_maintenance(&self, doc: &str, sent_ms: u64, answer: &Answer) {
        if answer.status != 201 || answer.replicas < REPLICAS {
            return;
        }
        self.locked(|s| {
            let now = s.now_ms();
            let away = s.together.maintained.now.iter().filter(|(_, since)| **since <= sent_ms).map(|(node, _)| *node);
            let away: Vec<u32> = away.filter(|node| address_of(*node) != self.client.to()).collect();
            for node in away {
                s.together.maintained.due.entry(node).or_default().insert(doc.to_owned(), now);
            }
        });
    }

    /// What a list that is sent now through this worker's node has to show.
    pub(super) fn due_after_maintenance(&self) -> Vec<String> {
        self.locked(|s| {
            let now = s.now_ms();
            let mine = s.together.maintained.due.iter().filter(|(node, _)| address_of(**node) == self.client.to());
            let due = mine.flat_map(|(_, docs)| docs).filter(|(_, at)| **at + BEHIND_MS < now);
            if s.maintains { due.map(|(doc, _)| doc.clone()).collect() } else { Vec::new() }
        })
    }

    /// Holds a list's rows against that.
    pub(super) fn shows_due(&self, due: &[String], rows: &[Value]) -> Result<(), Violation> {
        if !due.is_empty() {
            self.locked(|s| s.history.counts("maintenance: lists held against what was written meanwhile"));
        }
        let lacks = |doc: &&String| !rows.iter().any(|row| row["id"] == json!(doc));
        match due.iter().find(lacks) {
            Some(doc) => broken(
                "I33",
                format!("{doc}: written while the node of {} was in maintenance, and not listed", self.name),
            ),
            None => Ok(()),
        }
    }
}
