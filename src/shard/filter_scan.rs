//! Filter scan: live documents that a selector matches, in id order. It matches the stored text in place and copies
//! only documents that match.
//!
//! Document records are read in id order, a group at a time; their bodies are read as one range where they were written
//! together, else one by one. Design documents are left out of what is found, but those that do not match count as
//! examined, as in CouchDB: its coordinator drops the row of one that does, and the count with it. Steps are bounded
//! like those of `list.rs`, with the same promise.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;

use super::body::{BodyRecord, is_pieced};
use super::keys::{self, Kind};
use super::record::DocHead;
use super::{ShardError, ShardId, ShardReplica, live_conflicts};
use crate::document::collate::Collator;
use crate::document::id::DocId;
use crate::document::render::{Attachment, StoredRevision};
use crate::document::revision::Revision;
use crate::document::selector::{Selector, StoredDocument};
use crate::limits;
use crate::storage::{Direction, KeyRange, StorageError, View};

/// Body numbers of a group may lie this many times as far apart as there are documents, to be read as one range.
const SPREAD: u64 = 4;
/// Documents of the smallest group, and the most of the first one.
const LEAST_GROUP: usize = 8;
const FIRST_GROUP: usize = 32;

/// What a scan looks for.
#[derive(Clone, Debug)]
pub struct FilterScan {
    /// Least id.
    pub start: Bound<DocId>,
    /// Greatest id.
    pub end: Bound<DocId>,
    /// From `end` down instead of from `start` up.
    pub descending: bool,
    /// Matches documents.
    pub selector: Arc<Selector>,
    /// Compares values.
    pub collator: Collator,
    /// Whether the selector sees conflicts.
    pub conflicts: bool,
    /// Matches at most.
    pub limit: usize,
}

/// A document that matches.
#[derive(Clone, Debug)]
pub struct Matched {
    /// Its id.
    pub id: DocId,
    /// All leaves, winner first; true = tombstone.
    pub leaves: Vec<(Revision, bool)>,
    /// The winner.
    pub stored: StoredRevision,
    /// Documents matched behind the match before, up to this one.
    pub examined: u64,
}

/// What one step found.
#[derive(Debug, Default)]
pub struct FilterPage {
    /// The matches in the order of reading.
    pub rows: Vec<Matched>,
    /// Documents matched behind the last of them.
    pub examined: u64,
    /// The id behind which the next step begins; `None` at the end.
    pub rest: Option<DocId>,
}

impl FilterPage {
    /// Takes notice of a document; `matched`: its winner, where the selector matches it. A design document that matches
    /// is no row, and does not count.
    pub fn take(&mut self, id: DocId, leaves: Vec<(Revision, bool)>, matched: Option<StoredRevision>) {
        if id.is_design() && matched.is_some() {
            return;
        }
        self.examined += 1;
        if let Some(stored) = matched {
            let examined = std::mem::take(&mut self.examined);
            self.rows.push(Matched { id, leaves, stored, examined });
        }
    }
}

impl ShardReplica {
    /// The next matches: as many as one step finds, perhaps none though the scan is not over.
    pub async fn filter_scan(&self, filter_scan: FilterScan) -> Result<FilterPage, ShardError> {
        self.read(move |view, shard| step(view, shard, &filter_scan)).await
    }
}

/// A document of a group.
struct Entry {
    id: DocId,
    head: DocHead,
    /// The winner, where the selector matches it.
    matched: Option<StoredRevision>,
}

fn step(view: &dyn View, shard: ShardId, filter_scan: &FilterScan) -> Result<FilterPage, StorageError> {
    let mut page = FilterPage::default();
    // With a long selector the documents of a step are fewer: others wait for its end.
    let docs_max = (limits::FILTER_SCAN_COST / filter_scan.selector.terms()).clamp(1, limits::FILTER_SCAN_DOCS);
    let (mut matched, mut bytes) = (0, 0);
    let mut range = Some(keys::ids(shard, Kind::Document, &filter_scan.start, &filter_scan.end));
    // A small page needs no large group; and how large bodies are shows only when they were read.
    let (least, most) = (LEAST_GROUP.min(docs_max), limits::FILTER_SCAN_GROUP.min(docs_max));
    let mut group = filter_scan.limit.clamp(least, FIRST_GROUP.min(most));
    while let Some(from) = range.take() {
        let (mut entries, rest) = heads(view, from, filter_scan.descending, group)?;
        let read = matcher(view, shard, filter_scan, &mut entries)?;
        (bytes, matched) = (bytes + read, matched + entries.len());
        let usual = read / entries.len().max(1);
        group = (limits::STEP_BYTES / usual.max(1)).clamp(least, most);
        let more = rest.is_some();
        for entry in entries {
            page.rest = Some(entry.id.clone());
            page.take(entry.id, entry.head.leaves, entry.matched);
            if page.rows.len() >= filter_scan.limit.max(1) {
                return Ok(page);
            }
        }
        if more && (matched >= docs_max || bytes >= limits::STEP_BYTES) {
            return Ok(page);
        }
        range = rest;
    }
    page.rest = None;
    Ok(page)
}

/// The next live documents, at most `group`, design documents among them, and what is left of the range.
fn heads(
    view: &dyn View,
    range: KeyRange,
    descending: bool,
    group: usize,
) -> Result<(Vec<Entry>, Option<KeyRange>), StorageError> {
    let direction = if descending { Direction::Reverse } else { Direction::Forward };
    let mut entries = Vec::with_capacity(group);
    let mut rest = Some(range);
    // A step without any live document would say nothing of where it ended.
    while entries.is_empty() {
        let Some(range) = rest.take() else { break };
        rest = super::list::bounded_scan(view, range, direction, |key, value| {
            let head = DocHead::decode(value)?;
            if head.leaves[0].1 {
                return Ok(ControlFlow::Continue(()));
            }
            entries.push(Entry { id: keys::id_of(key)?, head, matched: None });
            Ok(if entries.len() == group { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    Ok((entries, rest))
}

/// Marks the entries that match; answers the bytes of the bodies read.
fn matcher(
    view: &dyn View,
    shard: ShardId,
    filter_scan: &FilterScan,
    entries: &mut [Entry],
) -> Result<usize, StorageError> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by_key(|at| entries[*at].head.body);
    let (Some(first), Some(last)) = (order.first(), order.last()) else { return Ok(0) };
    let (low, high) = (entries[*first].head.body, entries[*last].head.body);
    let mut bytes = 0;
    let mut next = 0;
    if high - low < SPREAD * order.len() as u64 {
        let mut failed = None;
        let bodies = keys::numbers(shard, Kind::Body, low, high);
        view.scan(&bodies, Direction::Forward, &mut |key, value| {
            let Some(at) = order.get(next) else { return ControlFlow::Break(()) };
            if is_pieced(value) {
                // It and those behind it are read one by one.
                return ControlFlow::Break(());
            }
            match take(filter_scan, &mut entries[*at], key, value) {
                Ok(true) => (next, bytes) = (next + 1, bytes + value.len()),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    // What was not met on the way, if anything, is read by its number.
    for at in &order[next..] {
        let entry = &mut entries[*at];
        let BodyRecord { attachments, text } = BodyRecord::load(view, shard, entry.head.body)?;
        bytes += text.len();
        if matches(filter_scan, entry, &attachments, &text)? {
            entry.matched = Some(stored(entry, attachments, text));
        }
    }
    Ok(bytes)
}

/// Matches an entry by its body record; false when the record is another's.
fn take(filter_scan: &FilterScan, entry: &mut Entry, key: &[u8], value: &[u8]) -> Result<bool, StorageError> {
    if keys::number_of(key)? != entry.head.body {
        return Ok(false);
    }
    let (attachments, body) = BodyRecord::read(value)?;
    if matches(filter_scan, entry, &attachments, &body)? {
        entry.matched = Some(stored(entry, attachments, body.into_owned().into()));
    }
    Ok(true)
}

/// What an entry stands for.
fn stored(entry: &Entry, attachments: Vec<Attachment>, body: Bytes) -> StoredRevision {
    let (rev, deleted) = entry.head.leaves[0].clone();
    StoredRevision { rev, deleted, body, attachments }
}

/// Whether the selector matches the text of an entry's body.
fn matches(
    filter_scan: &FilterScan,
    entry: &Entry,
    attachments: &[Attachment],
    text: &[u8],
) -> Result<bool, StorageError> {
    let (rev, deleted) = &entry.head.leaves[0];
    let (id, deleted) = (entry.id.as_str(), *deleted);
    let conflicts = live_conflicts(&entry.head.leaves, filter_scan.conflicts);
    let document = StoredDocument { id, rev, deleted, body: text, attachments, conflicts: &conflicts };
    let damaged = |_| StorageError::Corrupt(format!("the text of document {}", entry.id));
    filter_scan.selector.matches_subject(&document, &filter_scan.collator).map_err(damaged)
}
