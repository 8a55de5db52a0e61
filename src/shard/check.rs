//! Consistency check of a shard's records: every document, body, row, counter and attachment is read and compared.
//!
//! `settee check` uses it and has the data directory for itself, so the check reads one view from end to end. It never
//! fails: an unreadable record is a finding like any other, and scans continue behind the damage. Documents that are
//! lost there are named by their rows of changes.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::body::BodyRecord;
use super::keys::{self, Kind};
use super::levels::{self, Builder, Levels};
use super::purge;
use super::record::{self, DocRecord, Header, SeqRecord};
use super::summary::{self, Summary};
use super::tombstone_collection;
use super::{ShardId, sequence};
use crate::document::render::BlobId;
use crate::limits;
use crate::storage::{BlobStore, KeyRange, StorageError, View, blob_content, blob_count, scan_around};

/// What was read, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Documents, deleted ones included.
    pub documents: u64,
    /// Revisions with content.
    pub revisions: u64,
    /// Different attachment contents.
    pub attachments: u64,
    /// What is wrong, at most `limits::CHECK_FINDINGS`; empty: nothing.
    pub findings: Vec<String>,
    /// Findings beyond those.
    pub more: u64,
}

struct Check<'v> {
    view: &'v dyn View,
    blobs: &'v BlobStore,
    shard: ShardId,
    out: Checked,
    /// What the documents add up to.
    sum: Header,
    bodies: Vec<u64>,
    /// How many revisions name an attachment, and its stored length.
    named: BTreeMap<BlobId, (u64, u64)>,
}

/// Reads all of a shard.
pub fn check(view: &dyn View, blobs: &BlobStore, shard: ShardId) -> Checked {
    let (out, sum, bodies, named) = (Checked::default(), Header::default(), Vec::new(), BTreeMap::new());
    let mut check = Check { view, blobs, shard, out, sum, bodies, named };
    check.documents();
    check.rows();
    check.bodies();
    check.attachments();
    check.header();
    check.others();
    check.out
}

impl Check<'_> {
    fn found(&mut self, what: impl Display) {
        if self.out.findings.len() < limits::CHECK_FINDINGS {
            self.out.findings.push(what.to_string());
        } else {
            self.out.more += 1;
        }
    }

    /// Calls `each` with all keys and values of a range that can be read; every part that cannot is a finding.
    fn scan(&mut self, what: &str, range: KeyRange, mut each: impl FnMut(&mut Self, &[u8], &[u8])) {
        scan_around(self.view, range, &mut |row| match row {
            Ok((key, value)) => each(self, key, value),
            Err(error) => self.found(format_args!("a part of the {what} cannot be read: {error}")),
        });
    }

    /// Hands on a value; an error becomes a finding.
    fn good<T>(&mut self, what: impl Display, outcome: Result<T, StorageError>) -> Option<T> {
        outcome.map_err(|error| self.found(format_args!("{what}: {error}"))).ok()
    }

    fn documents(&mut self) {
        self.scan("documents", keys::all(self.shard, Kind::Document), |check, key, value| {
            check.out.documents += 1;
            let Some(id) = check.good("a document's key", keys::id_of(key)) else { return };
            let name = format!("document {:?}", id.as_str());
            let Some(record) = check.good(&name, DocRecord::decode(value)) else { return };
            let leaves = record.leaf_names();
            let row = SeqRecord::encode(&id, &leaves);
            let key = keys::number_key(check.shard, Kind::Sequence, record.seq);
            let view = check.view;
            match check.good(&name, view.get(&key)) {
                Some(Some(found)) if found != row => check.found(format_args!("{name}: its row of changes differs")),
                Some(None) => check.found(format_args!("{name}: its row of changes is missing")),
                _ => {}
            }
            check.sum.update_seq = check.sum.update_seq.max(record.seq);
            let told = check.good(&name, record::summary_of(id.as_str().as_bytes(), value)).unwrap_or_default();
            if told != summary::of_tree(&id, &leaves, &record.tree) {
                check.found(format_args!("{name}: its summary is not that of its leaves"));
            }
            check.sum.total = check.sum.total.plus(told);
            let contents: Vec<u64> = record.tree.values().filter(|d| d.is_available()).map(|d| d.body).collect();
            contents.into_iter().for_each(|body| check.revision(&name, body));
        });
    }

    fn revision(&mut self, name: &str, body: u64) {
        self.out.revisions += 1;
        self.bodies.push(body);
        let Some(record) = self.good(name, BodyRecord::load(self.view, self.shard, body)) else { return };
        for attachment in &record.attachments {
            let named = self.named.entry(attachment.blob).or_insert((0, attachment.stored_length));
            named.0 += 1;
            if named.1 != attachment.stored_length {
                self.found(format_args!("{name}: attachment {:?} has another length elsewhere", attachment.name));
            }
        }
    }

    /// The rows of the sequence index are as many as documents.
    fn rows(&mut self) {
        let mut count = 0;
        self.scan("changes", keys::all(self.shard, Kind::Sequence), |check, key, value| {
            count += 1;
            let Some(seq) = check.good("a change's key", keys::number_of(key)) else { return };
            check.good(format_args!("change {seq}"), SeqRecord::decode(value));
        });
        if count != self.out.documents {
            let documents = self.out.documents;
            self.found(format_args!("{count} changes for {documents} documents"));
            self.lost_documents();
        }
    }

    /// Names the documents that have rows of changes and cannot be read.
    fn lost_documents(&mut self) {
        self.scan("changes", keys::all(self.shard, Kind::Sequence), |check, _, value| {
            let Ok(SeqRecord { id, .. }) = SeqRecord::decode(value) else { return };
            let (view, key) = (check.view, keys::key(check.shard, Kind::Document, id.as_str().as_bytes()));
            let name = format!("document {:?}", id.as_str());
            if let Some(None) = check.good(&name, view.get(&key)) {
                check.found(format_args!("{name}: it is missing"));
            }
        });
    }

    /// The summaries over ids and over sequences are those of what is below them, level by level.
    fn levels(&mut self, header: &Header) {
        let levels = Levels::of(self.shard, header);
        for level in 1..=header.height {
            let mut right = Builder::new(levels, level);
            self.scan("summaries by id", levels.range(level - 1, b"", None), |check, key, value| {
                if let Some((id, summary)) = check.good("a summary", levels::entry(level - 1, key, value)) {
                    right.push(id, summary);
                }
            });
            let place = format!("summaries by id, level {level}");
            self.compare(&place, levels.range(level, b"", None), right.finish());
        }
        for level in 1..=sequence::levels(header) {
            let (view, shard) = (self.view, self.shard);
            let mut blocks: BTreeMap<u64, Summary> = BTreeMap::new();
            self.scan("summaries by sequence", sequence::all(shard, level - 1), |check, key, value| {
                let entry = sequence::entry(view, shard, level - 1, key, value);
                if let Some((number, summary)) = check.good("a summary", entry) {
                    let block = blocks.entry(sequence::parent(number)).or_default();
                    *block = block.plus(summary);
                }
            });
            let right = blocks.into_iter().map(|(block, sum)| sequence::node(shard, level, block, &sum));
            let place = format!("summaries by sequence, level {level}");
            self.compare(&place, sequence::all(shard, level), right.collect());
        }
    }

    /// A range must hold exactly `right`.
    fn compare(&mut self, place: &str, range: KeyRange, right: Vec<(Vec<u8>, Vec<u8>)>) {
        let mut right: BTreeMap<Vec<u8>, Vec<u8>> = right.into_iter().collect();
        let mut wrong = 0;
        self.scan(place, range, |_, key, value| {
            wrong += u64::from(right.remove(key).is_none_or(|expected| expected != value));
        });
        wrong += right.len() as u64;
        if wrong > 0 {
            self.found(format_args!("{place}: {wrong} of them are missing or wrong"));
        }
    }

    /// Every stored body belongs to one revision.
    fn bodies(&mut self) {
        let mut expected = std::mem::take(&mut self.bodies);
        expected.sort_unstable();
        self.sum.last_body = expected.last().copied().unwrap_or(0);
        if let Some(twice) = expected.windows(2).find(|pair| pair[0] == pair[1]) {
            self.found(format_args!("body {} belongs to two revisions", twice[0]));
        }
        self.scan("bodies", keys::all(self.shard, Kind::Body), |check, key, _| {
            let Some(number) = check.good("a body's key", keys::number_of(key)) else { return };
            if expected.binary_search(&number).is_err() {
                check.found(format_args!("body {number} belongs to no revision"));
            }
        });
        self.scan("pieces of bodies", keys::all(self.shard, Kind::BodyPiece), |check, key, _| {
            let Some(number) = check.good("the key of a piece", keys::body_of_piece(key)) else { return };
            if expected.binary_search(&number).is_err() {
                check.found(format_args!("a piece of body {number} belongs to no revision"));
            }
        });
    }

    fn attachments(&mut self) {
        for (blob, (count, length)) in std::mem::take(&mut self.named) {
            self.out.attachments += 1;
            let key = (self.shard.0, blob);
            let name = format!("attachment content {}", crate::wire::hex::encode(&blob));
            match self.good(&name, blob_count(self.view, &key)) {
                Some(found) if found != count => {
                    self.found(format_args!("{name}: named by {count} revisions, counted {found}"));
                }
                _ => {}
            }
            let content = self.blobs.verify(&key, length, blob_content(self.view, &key));
            self.good(&name, content);
        }
    }

    fn header(&mut self) {
        let Some(header) = self.good("header", Header::read(self.view, self.shard)) else { return };
        let pairs = [
            ("documents", header.total.live, self.sum.total.live),
            ("deleted documents", header.total.deleted, self.sum.total.deleted),
            ("design documents", header.total.design, self.sum.total.design),
            ("active bytes", header.total.active, self.sum.total.active),
            ("external bytes", header.total.external, self.sum.total.external),
        ];
        for (what, told, counted) in pairs.into_iter().filter(|(_, told, counted)| told != counted) {
            self.found(format_args!("header: {told} {what}, counted {counted}"));
        }
        if header.update_seq < self.sum.update_seq || header.last_body < self.sum.last_body {
            self.found("header: a number was given out that it does not know of");
        }
        if header.total.digest != self.sum.total.digest {
            self.found("header: the digest is not that of the documents");
        }
        self.levels(&header);
        self.purges(header.purge_seq);
        let mut markers = 0;
        self.scan("what was forgotten", keys::all(self.shard, Kind::Marker), |check, _, value| {
            check.good("a document whose tombstone was collected", tombstone_collection::decode_marker(value));
            markers += 1;
        });
        if markers != header.markers {
            self.found(format_args!("header: {} documents that were forgotten, counted {markers}", header.markers));
        }
    }

    /// The purge log up to its `last` entry.
    fn purges(&mut self, last: u64) {
        let floor = self.good("the purge log", purge::floor(self.view, self.shard, last)).unwrap_or_default();
        self.scan("purges", keys::all(self.shard, Kind::Purge), |check, key, value| {
            check.good("an entry of the purge log", record::PurgeRecord::decode(value));
            let number = check.good("the key of a purge", keys::number_of(key));
            if number.is_some_and(|number| number <= floor || number > last) {
                check.found("the purge log has an entry beyond its ends");
            }
        });
    }

    /// Local documents, and what upper layers keep: readable at least.
    fn others(&mut self) {
        self.scan("local documents", keys::all(self.shard, Kind::Local), |check, _, value| {
            check.good("a local document", record::decode_register(value.to_vec()));
        });
        self.scan("records of the shard", keys::whole_shard(self.shard), |_, _, _| {});
    }
}
