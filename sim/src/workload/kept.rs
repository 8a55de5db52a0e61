//! Snapshots of the shared database, in folders of each client's own. What one brings back is a state in which the
//! database was while it was taken: with all that was there for certain before it was asked for, and nothing that
//! nobody wrote. In a cluster a node's snapshot is one of its own replicas: certain is what all replicas were said to
//! hold.
//!
//! Assumes that the node's clock does not go back: the newest snapshot is the one of the latest time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::documents::leaves;
use super::{DB, Worker, broken};
use crate::client::{Answer, NoAnswer};
use crate::model::{Leaf, Violation};

/// The revisions of each document that were there for certain.
type There = BTreeMap<String, BTreeSet<String>>;

/// What a client knows of its snapshots.
#[derive(Default)]
pub(super) struct Kept {
    /// Whether any was asked for.
    begun: bool,
    /// Folders that were used before the one now.
    folders: u32,
    /// Databases that were to be made of them.
    restored: u32,
    /// What was there when the first one without an answer was asked for: it may be written at any later time, and be
    /// the newest then.
    open: Option<There>,
    /// What the newest one of the folder must have, whichever it is; `None`: there may be no snapshot.
    newest: Option<There>,
}

impl Kept {
    fn folder(&self, name: &str) -> String {
        format!("{name}-{}", self.folders)
    }

    /// The folder is not used again.
    fn begin_anew(&mut self) {
        *self = Kept { begun: self.begun, folders: self.folders + 1, restored: self.restored, ..Kept::default() };
    }

    /// Takes in what came of a snapshot, before which all of `there` was; whether it was taken.
    fn took(&mut self, there: There, answer: &Result<Answer, NoAnswer>) -> bool {
        match answer.as_ref().map(|answer| answer.status) {
            Ok(201) => {
                self.newest = Some(self.open.clone().unwrap_or(there));
                true
            }
            // It ended. Should its list be there it is that of a whole snapshot, later than those before.
            Ok(_) => false,
            Err(NoAnswer) => {
                self.open.get_or_insert(there);
                false
            }
        }
    }
}

impl Worker {
    /// Takes a snapshot, in a new folder if asked; whether that was acknowledged.
    pub(super) async fn snapshot(&mut self, fresh: bool) -> Result<bool, Violation> {
        if fresh {
            self.kept.begin_anew();
        }
        self.kept.begun = true;
        let there = self.locked(|s| {
            let all = s.asked.all_replicas();
            let certain = |doc: &str| all.map_or_else(|| s.model.lasting(doc), |all| s.model.promised(doc, all));
            let of = |doc: String| (doc.clone(), certain(&doc));
            s.model.documents().into_iter().map(of).collect()
        });
        let sent = json!({ "path": self.kept.folder(&self.name) });
        let answer = self.call("POST", &format!("/{DB}/_snapshot"), &sent).await;
        Ok(self.kept.took(there, &answer))
    }

    /// Makes a database of the newest snapshot, holds it against what must be there, and deletes it; whether all of
    /// that was answered, or there is no snapshot.
    pub(super) async fn restore(&mut self) -> Result<bool, Violation> {
        let Some(there) = self.kept.newest.clone() else { return Ok(true) };
        self.kept.restored += 1;
        let (name, folder) = (&self.name, self.kept.folder(&self.name));
        let database = format!("back-{name}-{}", self.kept.restored);
        let sent = json!({ "path": folder, "db": DB });
        let answer = self.call("POST", &format!("/{database}/_restore"), &sent).await;
        match answer {
            Ok(a) if a.status == 201 => {}
            Ok(a) if a.status == 404 || a.json()["error"] == "snapshot_damaged" => {
                return broken(
                    "I1",
                    format!("an acknowledged snapshot in {folder} is not there as it was: {}", a.json()),
                );
            }
            _ => return Ok(false),
        }
        for doc in self.locked(|s| s.model.documents()) {
            let must = there.get(&doc).cloned().unwrap_or_default();
            if !self.brought_back(&database, &doc, &must).await? {
                return Ok(false);
            }
        }
        let _ = self.call("DELETE", &format!("/{database}"), &Value::Null).await;
        Ok(true)
    }

    /// One document of a database that was brought back: its tree against the model, its attachments; whether all of
    /// that was answered.
    async fn brought_back(&mut self, database: &str, doc: &str, must: &BTreeSet<String>) -> Result<bool, Violation> {
        // Only the replicas of the node that brings it back have it at first.
        let all = self.locked(|s| s.asked.all_replicas()).map(|all| format!("&r={all}")).unwrap_or_default();
        let path = format!("/{database}/{doc}?open_revs=all&revs=true{all}");
        let leaves = match self.call("GET", &path, &Value::Null).await {
            Ok(a) if a.status == 200 => leaves(&a.json()),
            Ok(a) if a.status == 404 => Vec::new(),
            _ => return Ok(false),
        };
        let seen = self.locked(|s| {
            let seen = s.model.saw_tree(doc, &leaves, must);
            if seen.is_err() {
                s.shows_tree(doc, &format!("{} in {database}", self.name), &leaves);
            }
            seen
        });
        seen.map_err(|wrong| Violation { what: format!("{}, in {database}", wrong.what), ..wrong })?;
        for Leaf { path, .. } in leaves.iter().filter(|leaf| !leaf.deleted) {
            for blob in self.locked(|s| s.model.blobs_of(doc, &path[0])) {
                let path = format!("/{database}/{doc}/{}?rev={}", blob.name, path[0]);
                match self.call("GET", &path, &Value::Null).await {
                    Ok(a) if a.status == 200 && blob.is(&a.body) => {}
                    Ok(a) if a.status == 200 || a.status == 404 => {
                        return broken("I11", format!("{doc}: {path}: {}, {} bytes", a.status, a.body.len()));
                    }
                    _ => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// At the end: what was taken while things went wrong can be brought back, and so can what is taken now.
    pub(super) async fn check_kept(&mut self) -> Result<(), Violation> {
        if !self.kept.begun {
            return Ok(());
        }
        let before = self.restore().await?;
        if before && self.snapshot(false).await? && self.restore().await? {
            return Ok(());
        }
        broken("I28", "snapshots are not taken, or not brought back, after all faults".into())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn there(rev: &str) -> There {
        BTreeMap::from([("d".to_owned(), BTreeSet::from([rev.to_owned()]))])
    }

    fn answer(status: u16) -> Result<Answer, NoAnswer> {
        Ok(Answer { status, body: Bytes::new(), cookie: None, token: None, replicas: 1 })
    }

    #[test]
    fn the_newest_snapshot_has_what_was_there_before_the_first_that_may_be_it() {
        let mut kept = Kept::default();
        assert!(!kept.took(there("1-a"), &answer(500)) && kept.newest.is_none());
        assert!(kept.took(there("2-a"), &answer(201)));
        assert_eq!(kept.newest, Some(there("2-a")));
        assert!(!kept.took(there("3-a"), &Err(NoAnswer)));
        assert_eq!(kept.newest, Some(there("2-a")), "it, or the one before");
        assert!(kept.took(there("4-a"), &answer(201)));
        assert_eq!(kept.newest, Some(there("3-a")), "it, or the one without an answer");
        kept.begin_anew();
        assert_eq!((kept.folder("c1").as_str(), kept.newest), ("c1-1", None));
    }
}
