//! What is read back once all faults have ended, and held against the model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::documents::leaves;
use super::{DB, Worker, broken};
use crate::client::Answer;
use crate::model::{self, Leaf, Violation};

/// How long a compaction may take on a healthy disk.
const COMPACTION: Duration = Duration::from_secs(60);
/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The leaves of each document.
pub type Trees = BTreeMap<String, Vec<Leaf>>;

impl Worker {
    /// After all faults: reads everything, and holds it against the model. What it read.
    pub async fn check_final_state(&mut self, others: &mut [Worker]) -> Result<Trees, Violation> {
        // Across a split both sides may write: then there is no one order.
        self.locked(|s| match s.several && !s.model.in_peace {
            true => Ok(()),
            false => s.model.check_order(s.asked.read_from()),
        })?;
        let mut trees = Trees::new();
        for doc in self.locked(|s| s.model.documents()) {
            let leaves = self.check_document(&doc).await?;
            trees.insert(doc, leaves);
        }
        let winner = |(doc, leaves): (&String, &Vec<Leaf>)| {
            model::winner(leaves).map(|best| (doc.clone(), (best.path[0].clone(), best.deleted)))
        };
        let winners: BTreeMap<String, (String, bool)> = trees.iter().filter_map(winner).collect();
        let live: BTreeMap<String, String> =
            winners.iter().filter(|(_, w)| !w.1).map(|(d, w)| (d.clone(), w.0.clone())).collect();
        match self.list().await? {
            Some(rows) if rows == live => {}
            Some(rows) => return broken("I4", format!("_all_docs {rows:?}, trees {live:?}")),
            None => return broken("I28", "_all_docs does not answer after all faults".into()),
        }
        let info = self.must("GET", &format!("/{DB}")).await?.json();
        let designs = self.locked(|s| s.designs);
        let mut counts =
            (info["doc_count"].as_u64().map(|n| n.saturating_sub(designs)), info["doc_del_count"].as_u64());
        let deleted = (winners.len() - live.len()) as u64;
        if self.locked(|s| s.model.foreign) {
            // Not all servers count tombstones.
            counts.1 = counts.1.or(Some(deleted));
        }
        if counts != (Some(live.len() as u64), Some(deleted)) {
            return Err(Violation { invariant: "I4", what: format!("counts {counts:?}, trees {winners:?}") });
        }
        let views = self.locked(|s| s.views);
        if views {
            self.check_seen(&trees).await?;
        }
        for worker in others {
            worker.check_local().await?;
            worker.check_feed(&trees, &winners).await?;
            if views {
                worker.check_chosen(&trees).await?;
            }
            worker.check_filtered(&winners).await?;
            worker.check_kept().await?;
            worker.check_own().await?;
            worker.check_admin().await?;
        }
        Ok(trees)
    }

    /// One document: its tree against the model, its winner, its attachments. Its leaves.
    async fn check_document(&mut self, doc: &str) -> Result<Vec<Leaf>, Violation> {
        let before: BTreeSet<String> = self.locked(|s| s.model.lasting(doc));
        let answer = self.call("GET", &format!("/{DB}/{doc}?open_revs=all&revs=true"), &Value::Null).await;
        let leaves = match answer {
            Ok(a) if a.status == 200 => leaves(&a.json()),
            Ok(a) if a.status == 404 => vec![],
            // The node answers, and what must last cannot be read any more.
            Ok(a) if !before.is_empty() && !self.locked(|s| s.damaged) => {
                return broken("I1", format!("{doc}: {before:?} cannot be read: {} {}", a.status, a.json()));
            }
            other => return Err(Violation { invariant: "I28", what: format!("{doc}: {other:?} after all faults") }),
        };
        self.locked(|s| {
            s.shows_tree(doc, &self.name, &leaves);
            s.model.saw_tree(doc, &leaves, &before)
        })?;
        let Some(best) = model::winner(&leaves).cloned() else { return Ok(leaves) };
        if !best.deleted {
            let shown = self.must("GET", &format!("/{DB}/{doc}")).await?.json();
            if shown["_rev"] != json!(best.path[0]) {
                return Err(Violation { invariant: "I5", what: format!("{doc}: {shown} shown, {best:?} wins") });
            }
        }
        for leaf in leaves.iter().filter(|l| !l.deleted) {
            for blob in self.locked(|s| s.model.blobs_of(doc, &leaf.path[0])) {
                let path = format!("/{DB}/{doc}/{}?rev={}", blob.name, leaf.path[0]);
                let content = self.must("GET", &path).await?.body;
                if !blob.is(&content) {
                    return Err(Violation { invariant: "I11", what: format!("{path}: {} bytes", content.len()) });
                }
            }
        }
        Ok(leaves)
    }

    /// A last compaction, in peace: it removes all bodies that are no leaf's, and changes nothing else. `trees`: what
    /// was there before.
    pub async fn check_compaction(&mut self, trees: &Trees) -> Result<(), Violation> {
        let env = self.client.env().clone();
        let (started, mut inner) = (env.now(), BTreeMap::new());
        inner.extend(trees.iter().map(|(doc, leaves)| (doc, inner_revisions(leaves))));
        loop {
            let asked = self.call("POST", &format!("/{DB}/_compact"), &Value::Null).await;
            if !asked.as_ref().is_ok_and(|a| a.status == 202) {
                return broken("I28", format!("_compact: {asked:?} after all faults"));
            }
            env.sleep(LOOK_EVERY).await;
            let mut left = None;
            for (doc, inner) in &inner {
                left = left.or(self.still_readable(doc, inner).await?);
            }
            match left {
                None => break,
                Some(rev) if env.now().since(started) > COMPACTION => {
                    return broken("I26", format!("{rev} is no leaf and can be read, long after a compaction"));
                }
                Some(_) => {}
            }
        }
        for (doc, before) in trees {
            let after = self.check_document(doc).await?;
            if after != *before {
                return broken("I26", format!("{doc}: a compaction made {after:?} of {before:?}"));
            }
        }
        Ok(())
    }

    /// One of these revisions that can be read.
    async fn still_readable(&mut self, doc: &str, revs: &BTreeSet<String>) -> Result<Option<String>, Violation> {
        if revs.is_empty() {
            return Ok(None);
        }
        let list: Vec<String> = revs.iter().map(|rev| format!("%22{rev}%22")).collect();
        let answer = self.must("GET", &format!("/{DB}/{doc}?open_revs=[{}]", list.join(","))).await?.json();
        let items = answer.as_array().cloned().unwrap_or_default();
        let readable = items.iter().find_map(|item| item["ok"]["_rev"].as_str());
        Ok(readable.map(|rev| format!("{doc}: {rev}")))
    }

    pub(super) async fn must(&mut self, method: &str, path: &str) -> Result<Answer, Violation> {
        let answer = self.call(method, path, &Value::Null).await;
        match answer {
            Ok(a) if a.status == 200 => Ok(a),
            other => Err(Violation { invariant: "I28", what: format!("{path}: {other:?} after all faults") }),
        }
    }
}

/// The revisions of a tree that are no leaves.
fn inner_revisions(leaves: &[Leaf]) -> BTreeSet<String> {
    let tops: BTreeSet<&String> = leaves.iter().map(|leaf| &leaf.path[0]).collect();
    let below = leaves.iter().flat_map(|leaf| leaf.path.iter().skip(1));
    below.filter(|rev| !tops.contains(rev)).cloned().collect()
}
