//! Consistency check of a node's data: the records of its databases, and every shard of each (`shard/check.rs`).

use std::collections::BTreeSet;

use crate::coordinator::topology::record::{self, Record};
use crate::shard::{self, FIRST_FREE_SHARD, ShardError, ShardId, ShardReplica};
use crate::storage::{Direction, KeyRange, Storage, StorageError, View, behind_gap, scan_around};
use crate::world::Pool;

/// What a check has read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Databases.
    pub databases: u64,
    /// Shards, those of no database included.
    pub shards: u64,
    /// Documents, deleted ones included.
    pub documents: u64,
    /// Revisions with content.
    pub revisions: u64,
    /// Different attachment contents in a shard.
    pub attachments: u64,
    /// What is wrong and where, one line each.
    pub findings: Vec<String>,
    /// Findings that were only counted.
    pub more: u64,
}

impl CheckReport {
    /// How much is wrong.
    pub fn problems(&self) -> u64 {
        self.findings.len() as u64 + self.more
    }
}

/// Reads everything in `storage`, which nobody else may be using, in one long step.
///
/// # Errors
/// None for damage, which is what it looks for; those of a disk that cannot be read.
pub async fn check(storage: &Storage) -> Result<CheckReport, StorageError> {
    let blobs = storage.blobs().clone();
    upgrade(storage).await?;
    storage
        .read_on(Pool::Background, move |view| {
            let mut report = CheckReport::default();
            let mut owned = BTreeSet::new();
            for (name, record) in databases(view, &mut report) {
                for shard in record.all_shards() {
                    if !owned.insert(shard) {
                        report.findings.push(format!("{name}: shard {shard} belongs to another one, too"));
                        continue;
                    }
                    let checked = shard::check(view, &blobs, ShardId(shard));
                    let range = record.shards.iter().position(|own| *own == shard);
                    let range = range.map_or_else(|| "half of a range".to_owned(), |range| format!("range {range}"));
                    add(&mut report, &format!("{name}, {range}, shard {shard}"), checked);
                }
            }
            owned.extend(being_rebuilt(view));
            strangers(view, &owned, &mut report);
            Ok(report)
        })
        .await
}

/// Shards of an older version are brought to the present one, as a node does when it first needs them.
async fn upgrade(storage: &Storage) -> Result<(), StorageError> {
    let records = storage.read_on(Pool::Background, |view| Ok(databases(view, &mut CheckReport::default()))).await?;
    for shard in records.iter().flat_map(|(_, record)| record.all_shards()) {
        // What is damaged is found and told later.
        let opened = ShardReplica::open(storage, ShardId(shard)).await;
        if let Err(ShardError::Storage(error @ (StorageError::Io(_) | StorageError::NoFiles(_)))) = opened {
            return Err(error);
        }
    }
    Ok(())
}

fn add(report: &mut CheckReport, place: &str, checked: shard::Checked) {
    report.shards += 1;
    report.documents += checked.documents;
    report.revisions += checked.revisions;
    report.attachments += checked.attachments;
    report.more += checked.more;
    report.findings.extend(checked.findings.into_iter().map(|what| format!("{place}: {what}")));
}

/// The databases, and superseded instances of them (`superseded`), each as people are told of it.
pub(super) fn databases(view: &dyn View, report: &mut CheckReport) -> Vec<(String, Record)> {
    let mut found = records(view, &record::prefix(), "database", report);
    report.databases += found.len() as u64;
    found.extend(records(view, &record::superseded_prefix(), "superseded instance of database", report));
    found
}

fn records(view: &dyn View, prefix: &[u8], what: &str, report: &mut CheckReport) -> Vec<(String, Record)> {
    let mut found = Vec::new();
    scan_around(view, KeyRange::prefix(prefix), &mut |row| match row {
        Ok((key, value)) => {
            let whole = || String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
            let name = record::instance_in(key, prefix).map_or_else(whole, |(name, _)| name);
            let name = format!("{what} {name:?}");
            match Record::decode(value) {
                Ok(record) => found.push((name, record)),
                Err(error) => report.findings.push(format!("{name}: {error}")),
            }
        }
        Err(error) => report.findings.push(format!("a part of the list of databases cannot be read: {error}")),
    });
    found
}

/// Damaged shards whose replicas are rebuilt (`rebuild`): their faults are known.
fn being_rebuilt(view: &dyn View) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    scan_around(view, KeyRange::prefix(&record::rebuild_prefix()), &mut |row| {
        let mark = row.ok().and_then(|(_, value)| serde_json::from_slice::<serde_json::Value>(value).ok());
        found.extend(mark.and_then(|mark| mark.get("damaged")?.as_u64()));
    });
    found
}

/// Shards with records that belong to no database and are not being removed either.
fn strangers(view: &dyn View, owned: &BTreeSet<u64>, report: &mut CheckReport) {
    let mut at = FIRST_FREE_SHARD.0;
    loop {
        let range = KeyRange { start: at.to_be_bytes().to_vec(), end: None };
        let key = match view.first(&range, Direction::Forward) {
            Ok(row) => row.map(|(key, _)| key),
            Err(error) => {
                report.findings.push(format!("records from shard {at} on cannot be read: {error}"));
                behind_gap(view, &range).ok().flatten()
            }
        };
        let next = key.and_then(|key| key.first_chunk().map(|number| u64::from_be_bytes(*number)));
        let Some(shard) = next else { return };
        let going = shard::is_going(view, ShardId(shard)) || matches!(view.get(&record::drop_key(shard)), Ok(Some(_)));
        if !owned.contains(&shard) && !going {
            report.shards += 1;
            report.findings.push(format!("shard {shard} has records and belongs to no database"));
        }
        let Some(after) = shard.checked_add(1) else { return };
        at = after;
    }
}
