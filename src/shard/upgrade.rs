//! Upgrade of a shard that an older settee wrote: builds its summaries before any other use.
//!
//! Version 1 of headers and documents had counters in the header only. The upgrade runs in bounded steps: documents are
//! rewritten with their digests, then each level above ids and sequences is built from the one below, and at last the
//! header records that the upgrade is done. After a crash before that it begins again; rewritten documents stay.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::body::BodyRecord;
use super::keys::{self, Kind};
use super::levels::{self, Builder, Levels};
use super::lifetime::write;
use super::list::bounded_scan;
use super::record::{DocRecord, Header, RevData, SUMMARIZED, SeqRecord, damaged, read_leaves};
use super::sequence;
use super::summary::Summary;
use super::sweep;
use super::{ShardError, ShardId};
use crate::document::id::DocId;
use crate::document::rev_tree::RevTree;
use crate::document::revision::Revision;
use crate::storage::{Direction, KeyRange, Storage, StorageError, View, WriteView};
use crate::wire::codec::{CodecError, Reader};
use crate::world::Pool;

/// The version of headers and documents without summaries.
const PLAIN: u8 = 1;
/// Kinds of counters of the sequence index that only version 1 had.
const OLD_COUNTERS: [u8; 2] = [b'c', b'C'];
/// Documents that are written anew in one job.
const DOCUMENTS_PER_JOB: usize = 100;

/// What a header of version 1 says that still counts; the rest is found out anew.
struct Old {
    update_seq: u64,
    purge_seq: u64,
    last_body: u64,
    stored: u64,
}

impl Old {
    fn read(view: &dyn View, shard: ShardId) -> Result<Option<Old>, StorageError> {
        match view.get(&keys::key(shard, Kind::Header, b""))? {
            Some(bytes) if bytes.first() == Some(&PLAIN) => {
                Old::decode(&bytes).map(Some).map_err(damaged("shard header"))
            }
            _ => Ok(None),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Old, CodecError> {
        let mut reader = Reader::new(bytes);
        reader.version(PLAIN)?;
        let mut numbers = [0; 10];
        for number in &mut numbers {
            *number = reader.varint()?;
        }
        reader.finish()?;
        let [update_seq, purge_seq, last_body, _, _, _, _, _, stored, _] = numbers;
        Ok(Old { update_seq, purge_seq, last_body, stored })
    }
}

/// Upgrades the shard if its header is of version 1. Nobody else may use the shard meanwhile.
pub(super) async fn if_needed(storage: &Storage, shard: ShardId) -> Result<(), ShardError> {
    let Some(old) = storage.read(move |view| Old::read(view, shard)).await? else { return Ok(()) };
    tracing::info!(shard = shard.0, "making the summaries of a shard of an older version");
    let counters = OLD_COUNTERS.map(|kind| [&shard.0.to_be_bytes()[..], &[kind]].concat());
    let above = [Kind::Level, Kind::SequenceLevel].map(|kind| keys::all(shard, kind));
    for range in counters.iter().map(|prefix| KeyRange::prefix(prefix)).chain(above) {
        sweep::round(storage, range).await?;
    }
    let (total, records) = documents(storage, shard).await?;
    let (height, salt) = (Levels::height_for(total.documents()), storage.env().random_u64());
    let Old { update_seq, purge_seq, last_body, stored } = old;
    let header = Header { update_seq, purge_seq, last_body, total, stored, records, height, salt, ..Header::default() };
    for level in 1..=height {
        by_id(storage, Levels::of(shard, &header), level).await?;
    }
    for level in 1..=sequence::levels(&header) {
        by_sequence(storage, shard, level).await?;
    }
    write(storage, move |view| {
        header.write(view, shard);
        Ok(())
    })
    .await
}

/// Writes all documents anew; answers their summary and the bytes of their records and rows.
async fn documents(storage: &Storage, shard: ShardId) -> Result<(Summary, u64), ShardError> {
    let mut rest = Some(keys::all(shard, Kind::Document));
    let (mut total, mut records) = (Summary::default(), 0);
    while let Some(range) = rest.take() {
        let found = storage.read_on(Pool::Background, move |view| {
            let mut found = Vec::new();
            let rest = bounded_scan(view, range, Direction::Forward, |key, _| {
                found.push(keys::id_of(key)?);
                let full = found.len() == DOCUMENTS_PER_JOB;
                Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            Ok((found, rest))
        });
        let (found, next) = found.await?;
        rest = next;
        let done = write(storage, move |view| {
            let mut done = (Summary::default(), 0);
            for id in found {
                let (summary, bytes) = document(view, shard, &id)?;
                done = (done.0.plus(summary), done.1 + bytes);
            }
            Ok(done)
        });
        let (summary, bytes) = done.await?;
        (total, records) = (total.plus(summary), records + bytes);
    }
    Ok((total, records))
}

fn document(view: &mut WriteView<'_>, shard: ShardId, id: &DocId) -> Result<(Summary, u64), StorageError> {
    let key = keys::key(shard, Kind::Document, id.as_str().as_bytes());
    let Some(bytes) = view.get(&key)? else { return Ok((Summary::default(), 0)) };
    let mut record = match bytes.first() {
        Some(&SUMMARIZED) => DocRecord::decode(&bytes)?,
        _ => old_document(&bytes).map_err(damaged("document record"))?,
    };
    let leaves = record.leaf_names();
    let revs: Vec<Revision> = record.tree.revisions().map(|(rev, _)| rev.clone()).collect();
    for rev in revs {
        if let Some(data) = record.tree.value_mut(&rev)
            && data.is_available()
        {
            let (attachments, bytes) = BodyRecord::measure(view, shard, data.body)?;
            *data = data.with(&attachments, bytes);
        }
    }
    let (bytes, summary) = record.encode(id, &leaves);
    let size = bytes.len() + SeqRecord::encode(id, &leaves).len();
    view.put(key, bytes);
    Ok((summary, size as u64))
}

fn old_document(bytes: &[u8]) -> Result<DocRecord, CodecError> {
    let mut reader = Reader::new(bytes);
    reader.version(PLAIN)?;
    let seq = reader.varint()?;
    reader.varint()?;
    read_leaves(&mut reader)?;
    let tree = RevTree::decode(&mut reader, |reader| {
        let (deleted, body) = (reader.bool()?, reader.varint()?);
        Ok(RevData { deleted, body, active: reader.varint()?, external: reader.varint()?, attachments: 0 })
    })?;
    reader.finish()?;
    Ok(DocRecord { seq, tree })
}

/// Makes a level over the ids.
async fn by_id(storage: &Storage, levels: Levels, level: u8) -> Result<(), ShardError> {
    let mut builder = Builder::new(levels, level);
    let mut rest = Some(levels.range(level - 1, b"", None));
    while let Some(range) = rest.take() {
        let found = storage.read_on(Pool::Background, move |view| {
            let mut found = Vec::new();
            let rest = bounded_scan(view, range, Direction::Forward, |key, value| {
                let (id, summary) = levels::entry(level - 1, key, value)?;
                found.push((id.to_vec(), summary));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok((found, rest))
        });
        let (found, next) = found.await?;
        rest = next;
        found.iter().for_each(|(id, summary)| builder.push(id, *summary));
        put_all(storage, builder.take()).await?;
    }
    put_all(storage, builder.finish()).await
}

/// Makes a level over the sequences.
async fn by_sequence(storage: &Storage, shard: ShardId, level: u8) -> Result<(), ShardError> {
    let mut rest = Some(sequence::all(shard, level - 1));
    let mut open: BTreeMap<u64, Summary> = BTreeMap::new();
    while let Some(range) = rest.take() {
        let found = storage.read_on(Pool::Background, move |view| {
            let mut found = Vec::new();
            let rest = bounded_scan(view, range, Direction::Forward, |key, value| {
                found.push(sequence::entry(view, shard, level - 1, key, value)?);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok((found, rest))
        });
        let (found, next) = found.await?;
        rest = next;
        for (number, summary) in found {
            let block = open.entry(sequence::parent(number)).or_default();
            *block = block.plus(summary);
        }
        // The last block may go on in the next step.
        let last = if rest.is_some() { open.pop_last() } else { None };
        let nodes = std::mem::take(&mut open).into_iter().map(|(block, sum)| sequence::node(shard, level, block, &sum));
        put_all(storage, nodes.collect()).await?;
        open.extend(last);
    }
    Ok(())
}

async fn put_all(storage: &Storage, records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), ShardError> {
    if records.is_empty() {
        return Ok(());
    }
    write(storage, move |view| {
        records.into_iter().for_each(|(key, value)| view.put(key, value));
        Ok(())
    })
    .await
}
