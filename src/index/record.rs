//! Records of a view: the values of the keys of `keys.rs`. Each begins with a version byte.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::document::id::DocId;
use crate::index::Signature;
use crate::index::keys::{self, Part};
use crate::index::sums::Stand;
use crate::shard::ShardId;
use crate::storage::{StorageError, View};
use crate::wire::codec::{CodecError, Reader, put_bytes, put_varint};

const VERSION: u8 = 1;
/// Changes when the collation library, the sort keys or what mappers see of a document changes: an index of another
/// version is built anew. Since 2 map functions see `_deleted_conflicts`.
pub(super) const COLLATION_VERSION: u64 = 2;

/// How far a view is built, and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The shard's sequence up to which documents are indexed.
    pub position: u64,
    /// The shard's purge up to which rows were removed.
    pub purge_position: u64,
    /// The version of sort keys and of what rows are made of.
    pub collation: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of keys and values of all rows as JSON, with their documents' ids.
    pub external: u64,
    /// Stored bytes of rows and places.
    pub active: u64,
    /// Rows whose value is no number. `None`: not known, the index was begun by a version that did not count them.
    #[serde(default)]
    pub others: Option<u64>,
    /// The form in which sums of blocks of rows are stored (`stored.rs`); 0: none are. Of no use to other nodes.
    #[serde(skip)]
    pub sums: u64,
}

impl Default for Header {
    fn default() -> Header {
        let (position, purge_position, rows, external, active) = (0, 0, 0, 0, 0);
        Header {
            position,
            purge_position,
            collation: COLLATION_VERSION,
            rows,
            external,
            active,
            others: Some(0),
            sums: 0,
        }
    }
}

pub(super) fn damaged(what: &'static str) -> impl Fn(CodecError) -> StorageError {
    move |error| StorageError::Corrupt(format!("{what} of a view: {error}"))
}

fn body<'a>(bytes: &'a [u8]) -> Result<Reader<'a>, CodecError> {
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        VERSION => Ok(reader),
        other => Err(CodecError::Version(other)),
    }
}

impl Header {
    /// Where the index stands.
    pub(super) fn stand(&self) -> Stand {
        (self.position, self.purge_position)
    }

    /// Where an index stands in a view of the store; `None`: it is not there yet.
    pub(super) fn stand_in(
        view: &dyn View,
        (shard, signature): (ShardId, Signature),
    ) -> Result<Option<Stand>, StorageError> {
        let header = view.get(&keys::key(shard, signature, Part::Header, b""))?;
        Ok(header.map(|bytes| Header::decode(&bytes)).transpose()?.map(|header| header.stand()))
    }

    /// Whether it can say that sums are stored: not while the index is that of an older version.
    pub(super) fn can_keep_sums(&self) -> bool {
        self.collation == COLLATION_VERSION && self.others.is_some()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for number in [self.position, self.purge_position, self.collation, self.rows, self.external, self.active] {
            put_varint(&mut out, number);
        }
        self.others.iter().for_each(|others| put_varint(&mut out, *others));
        if self.sums > 0 && self.can_keep_sums() {
            put_varint(&mut out, self.sums);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Header, StorageError> {
        let read = || {
            let mut reader = body(bytes)?;
            let mut next = || reader.varint();
            let header = Header {
                position: next()?,
                purge_position: next()?,
                collation: next()?,
                rows: next()?,
                external: next()?,
                active: next()?,
                others: None,
                sums: 0,
            };
            let others = (!reader.is_empty()).then(|| reader.varint()).transpose()?;
            let sums = if reader.is_empty() { 0 } else { reader.varint()? };
            Ok(Header { others, sums, ..header })
        };
        read().map_err(damaged("header"))
    }
}

/// Whether JSON text is that of a number.
pub(super) fn is_number(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'-' | b'0'..=b'9'))
}

/// Where the rows of one document are, so that they can be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DocRows {
    /// The sort keys of its rows, with their partition, in the order emitted.
    pub sorts: Vec<Vec<u8>>,
    /// What its rows add to [`Header::external`].
    pub external: u64,
    /// What its rows add to [`Header::active`].
    pub active: u64,
    /// What its rows add to [`Header::others`].
    pub others: u64,
}

impl DocRows {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.external);
        put_varint(&mut out, self.active);
        put_varint(&mut out, self.sorts.len() as u64);
        self.sorts.iter().for_each(|sort| put_bytes(&mut out, sort));
        if self.others > 0 {
            put_varint(&mut out, self.others);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<DocRows, StorageError> {
        let read = || {
            let mut reader = body(bytes)?;
            let (external, active, count) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let mut sorts = Vec::new();
            for _ in 0..count {
                sorts.push(reader.bytes()?.to_vec());
            }
            let others = if reader.is_empty() { 0 } else { reader.varint()? };
            Ok(DocRows { sorts, external, active, others })
        };
        read().map_err(damaged("document"))
    }
}

/// A row of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its place: see `keys.rs`.
    pub place: Vec<u8>,
    /// Where the sort key ends in it; rows with equal keys are equal up to there.
    pub sort_end: usize,
    /// The document that emitted it.
    pub id: DocId,
    /// The key as JSON text.
    pub key: Bytes,
    /// The value as JSON text.
    pub value: Bytes,
}

/// A row as it is stored, or as a [`Row`] holds it.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'r> {
    /// See [`Row::place`].
    pub place: &'r [u8],
    sort_end: usize,
    key: &'r [u8],
    /// See [`Row::value`].
    pub value: &'r [u8],
}

impl<'r> RowRef<'r> {
    pub(super) fn decode(place: &'r [u8], bytes: &'r [u8]) -> Result<RowRef<'r>, StorageError> {
        let read = || {
            let mut reader = body(bytes)?;
            let sort_end = reader.varint_usize()?;
            if sort_end > place.len() {
                return Err(CodecError::Invalid("place"));
            }
            Ok(RowRef { place, sort_end, key: reader.bytes()?, value: reader.rest() })
        };
        read().map_err(damaged("row"))
    }

    /// See [`Row::sort`].
    pub fn sort(&self) -> &'r [u8] {
        &self.place[..self.sort_end]
    }
}

impl Row {
    /// What rows with the same key have in common.
    pub fn sort(&self) -> &[u8] {
        &self.place[..self.sort_end]
    }

    /// The row without owning it.
    pub fn borrowed(&self) -> RowRef<'_> {
        RowRef { place: &self.place, sort_end: self.sort_end, key: &self.key, value: &self.value }
    }

    pub(super) fn encode(sort_end: usize, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(key.len() + value.len() + 8);
        out.push(VERSION);
        put_varint(&mut out, sort_end as u64);
        put_bytes(&mut out, key);
        out.extend_from_slice(value);
        out
    }

    pub(super) fn decode(place: &[u8], bytes: &[u8]) -> Result<Row, StorageError> {
        let RowRef { sort_end, key, value, .. } = RowRef::decode(place, bytes)?;
        let no_id = || damaged("row")(CodecError::Invalid("place"));
        let id = DocId::new(keys::id_in(place, sort_end).ok_or_else(no_id)?);
        Ok(Row { place: place.to_vec(), sort_end, id, key: text(key), value: text(value) })
    }
}

/// JSON text of its own; the values of many views are all null.
fn text(json: &[u8]) -> Bytes {
    match json {
        b"null" => Bytes::from_static(b"null"),
        json => Bytes::copy_from_slice(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let header = Header { position: 9, rows: 3, external: 70, others: Some(2), ..Header::default() };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        let rows = DocRows { sorts: vec![b"ab".to_vec(), Vec::new()], external: 5, active: 9, others: 1 };
        assert_eq!(DocRows::decode(&rows.encode()), Ok(rows));
        let summed = Header { sums: 1, ..header };
        assert_eq!(Header::decode(&summed.encode()), Ok(summed));
        let before = Header { others: None, ..header };
        assert_eq!(Header::decode(&before.encode()), Ok(before), "of a version that did not count them");
        let place = keys::place(b"sort", "id", 3);
        let row = Row::decode(&place, &Row::encode(4, b"\"k\"", b"null")).unwrap();
        assert_eq!(
            (row.id.as_str(), row.sort(), &row.key[..], &row.value[..]),
            ("id", &b"sort"[..], &b"\"k\""[..], &b"null"[..])
        );
        assert!(Header::decode(b"\x02").is_err() && Row::decode(&place, b"\x01\x7f\x00").is_err());
    }
}
