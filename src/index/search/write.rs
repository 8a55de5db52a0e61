//! Commit of a batch of a build: a segment, the numbers of its documents, the deletions in older segments, and the
//! position, in one transaction.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;

use bytes::Bytes;
use settee_search::schema::Schema;
use settee_search::segment::Deleted;

use super::SearchIndex;
use super::open::corrupt;
use super::record::{self, Keys, SearchHeader, SegmentInfo};
use crate::index::IndexError;
use crate::limits;
use crate::storage::{StorageError, View, WriteView};
use crate::world::buggify::{Mutation, mutated};

/// What a batch changes.
pub(super) struct Batch {
    /// What must be stored, if anything is.
    pub from: SearchHeader,
    /// Where it stands then.
    pub position: u64,
    pub purge_position: u64,
    /// The types of fields from now on.
    pub schema: Schema,
    /// Documents with the numbers that they have from now on; `None`: they are not in the index.
    pub documents: Vec<(String, Option<u64>)>,
    /// The segment of those with a number, where there are some.
    pub segment: Option<Bytes>,
}

impl SearchIndex {
    /// Commits a batch; the header that is stored then, or `None` where another one is stored than it began from. It
    /// goes on when the caller stops waiting.
    pub(super) async fn commit(&self, mut batch: Batch) -> Result<Option<SearchHeader>, IndexError> {
        let index = self.clone();
        let keys = Keys(self.replica.id(), self.definition.signature);
        if mutated(Mutation::SearchPositionFirst) {
            let (position, purge_position) = (batch.position, batch.purge_position);
            batch.from = SearchHeader { position, purge_position, ..batch.from };
            let (key, early) = (keys.header(), batch.from.encode());
            let work = move |view: &mut WriteView<'_>| {
                view.put(key, early);
                Ok(Ok::<_, Infallible>(()))
            };
            self.replica.write_records(work).await.map(|Ok(())| ())?;
        }
        let committed = self.env.spawn_with(async move {
            let work = move |view: &mut WriteView<'_>| Ok(Ok::<_, Infallible>(batch.apply(view, keys)?));
            let written = index.replica.write_records(work).await;
            index.open.note_change(index.cache_key());
            written.map(|Ok(header)| header)
        });
        Ok(committed.await.ok_or(IndexError::Stopped)??)
    }
}

/// The header that is stored, but for one of another version.
pub(super) fn stored(view: &WriteView<'_>, keys: Keys) -> Result<Option<SearchHeader>, StorageError> {
    Ok(view.get(&keys.header())?.map(|bytes| SearchHeader::decode(&bytes)).transpose()?.flatten())
}

/// Adds the pieces of a segment.
pub(super) fn put_pieces(view: &mut WriteView<'_>, keys: Keys, segment: u64, first: u32, bytes: &Bytes) {
    for (piece, start) in (first..).zip((0..bytes.len()).step_by(limits::SEARCH_PIECE_BYTES)) {
        let end = bytes.len().min(start + limits::SEARCH_PIECE_BYTES);
        view.put(keys.piece(segment, piece), bytes[start..end].to_vec());
    }
}

/// Removes a segment.
pub(super) fn remove_segment(view: &mut WriteView<'_>, keys: Keys, segment: &SegmentInfo) {
    (0..segment.pieces(limits::SEARCH_PIECE_BYTES)).for_each(|piece| view.delete(keys.piece(segment.id, piece)));
    view.delete(keys.deleted(segment.id));
}

impl Batch {
    fn apply(self, view: &mut WriteView<'_>, keys: Keys) -> Result<Option<SearchHeader>, StorageError> {
        let Batch { from, position, purge_position, schema, documents, segment } = self;
        if stored(view, keys)?.unwrap_or_default() != from {
            return Ok(None);
        }
        let mut header = SearchHeader { position, purge_position, schema, ..from };
        let mut deleted: BTreeMap<u64, Deleted> = BTreeMap::new();
        for (id, number) in &documents {
            let key = keys.document(id);
            if number.is_none() && mutated(Mutation::SearchHitStays) {
                continue;
            }
            if let Some(before) = view.get(&key)? {
                mark(view, keys, (&mut header, &mut deleted), record::decode_number(&before)?)?;
            }
            match number {
                Some(number) => view.put(key, record::encode_number(*number)),
                None => view.delete(key),
            }
        }
        for (id, deleted) in &deleted {
            view.put(keys.deleted(*id), deleted.to_bytes());
        }
        let gone: Vec<SegmentInfo> =
            header.segments.iter().filter(|segment| segment.deleted >= segment.documents).copied().collect();
        gone.iter().for_each(|segment| remove_segment(view, keys, segment));
        header.segments.retain(|segment| !gone.contains(segment));
        if let Some(bytes) = segment {
            let numbers: Vec<u64> = documents.iter().filter_map(|(_, number)| *number).collect();
            let (first, last) = (numbers.first().copied(), numbers.last().copied());
            put_pieces(view, keys, header.next, 0, &bytes);
            header.segments.push(SegmentInfo {
                id: header.next,
                first: first.unwrap_or_default(),
                last: last.unwrap_or_default(),
                documents: numbers.len() as u64,
                deleted: 0,
                bytes: bytes.len() as u64,
            });
            header.next += 1;
        }
        view.put(keys.header(), header.encode());
        Ok(Some(header))
    }
}

/// Notes that the document of this number counts no more.
fn mark(
    view: &WriteView<'_>,
    keys: Keys,
    (header, deleted): (&mut SearchHeader, &mut BTreeMap<u64, Deleted>),
    number: u64,
) -> Result<(), StorageError> {
    let Some(segment) = header.segment_of(number) else { return Ok(()) };
    let deleted = match deleted.entry(segment.id) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(unknown) => {
            let stored = view.get(&keys.deleted(segment.id))?;
            let known = stored.map(|bytes| Deleted::parse(&bytes)).transpose().map_err(corrupt)?;
            unknown.insert(known.unwrap_or_default())
        }
    };
    deleted.insert(number);
    segment.deleted = deleted.count() as u64;
    Ok(())
}
