//! Checkpoints of copies on the second server, looked at while replications run: what stands before the sequence that
//! one tells is on the copy's disk (I21).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{DB, Worker, broken};
use crate::client::Client;
use crate::model::Violation;
use crate::plan::FeedFilter;

/// How often a replication that was just asked for is looked at.
const LOOKS: usize = 10;
/// Between two looks: about what a page takes.
const LOOK_EVERY: Duration = Duration::from_millis(7);

impl Worker {
    /// Looks at a copy's checkpoints some times, from now on; not in a cluster, where they are not checked.
    pub(super) async fn watch_checkpoints(&mut self, copy: &str, filter: FeedFilter) -> Result<(), Violation> {
        if self.locked(|s| s.several) {
            return Ok(());
        }
        let mut second = self.second_server();
        for _ in 0..LOOKS {
            self.check_checkpoints(&mut second, copy, filter).await?;
            self.client.env().clone().sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// What the copy lacks stands behind the sequences of its checkpoints. The order of the questions makes that
    /// certain while others write: a leaf that was there first, that the copy lacks after the checkpoint was read, and
    /// that did not change behind it was passed over. Of several copies of a range nobody promises as much.
    pub(super) async fn check_checkpoints(
        &mut self,
        second: &mut Client,
        copy: &str,
        filter: FeedFilter,
    ) -> Result<(), Violation> {
        if self.locked(|s| s.several) {
            return Ok(());
        }
        let Some(mut leaves) = self.leaves_since("0").await else { return Ok(()) };
        leaves.retain(|doc, _| filter.takes(doc));
        let locals = second.get(&format!("/{copy}/_local_docs?include_docs=true")).await;
        let Some(locals) = locals.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(()) };
        let Some(lacks) = lacking(second, copy, &leaves).await else { return Ok(()) };
        for checkpoint in locals["rows"].as_array().into_iter().flatten() {
            self.check_checkpoint(copy, &lacks, &checkpoint["doc"]["source_last_seq"]).await?;
        }
        Ok(())
    }

    /// The same of the one checkpoint of that name, whatever there is: for who knows that each range has one copy, or
    /// that all copies have become equal.
    pub(super) async fn check_checkpoint_named(
        &mut self,
        target: &mut Client,
        copy: &str,
        id: &str,
    ) -> Result<(), Violation> {
        let Some(leaves) = self.leaves_since("0").await else { return Ok(()) };
        let Ok(checkpoint) = target.get(&format!("/{copy}/_local/{id}")).await else { return Ok(()) };
        let Some(lacks) = lacking(target, copy, &leaves).await else { return Ok(()) };
        self.check_checkpoint(copy, &lacks, &checkpoint.json()["source_last_seq"]).await
    }

    /// What a copy lacks stands behind the sequence of its checkpoint.
    async fn check_checkpoint(&mut self, copy: &str, lacks: &[String], seq: &Value) -> Result<(), Violation> {
        let Some(seq) = seq.as_str().filter(|_| !lacks.is_empty()) else { return Ok(()) };
        let Some(behind) = self.leaves_since(seq).await else { return Ok(()) };
        match lacks.iter().find(|doc| !behind.contains_key(*doc)) {
            Some(doc) => broken("I21", format!("{doc}: {copy} lacks it, its checkpoint says {seq}")),
            None => Ok(()),
        }
    }

    /// The shared documents that changed after a sequence, with their leaves. One that is written while an answer is
    /// made stands behind that answer's end, so it is read on until nothing new comes: a feed that repeats itself is
    /// for others to check.
    async fn leaves_since(&mut self, seq: &str) -> Option<BTreeMap<String, Vec<Value>>> {
        let (mut since, mut found) = (seq.to_owned(), BTreeMap::new());
        let leaves = |row: &Value| -> Option<(String, Vec<Value>)> {
            let revs: Vec<Value> = row["changes"].as_array()?.iter().map(|change| change["rev"].clone()).collect();
            Some((row["id"].as_str()?.to_owned(), revs))
        };
        loop {
            let path = format!("/{DB}/_changes?style=all_docs&since={since}");
            let answer = self.call("GET", &path, &Value::Null).await.ok().filter(|a| a.status == 200)?.json();
            let rows: BTreeMap<_, _> = answer["results"].as_array()?.iter().filter_map(leaves).collect();
            if rows.iter().all(|(doc, leaves)| found.get(doc) == Some(leaves)) {
                return Some(found);
            }
            found.extend(rows);
            answer["last_seq"].as_str()?.clone_into(&mut since);
        }
    }
}

/// The documents of which a copy lacks one of these leaves.
async fn lacking(target: &mut Client, copy: &str, leaves: &BTreeMap<String, Vec<Value>>) -> Option<Vec<String>> {
    let lacks = target.json("POST", &format!("/{copy}/_revs_diff"), &json!(leaves)).await;
    let lacks = lacks.ok().filter(|a| a.status == 200)?.json();
    Some(lacks.as_object().into_iter().flat_map(serde_json::Map::keys).cloned().collect())
}
