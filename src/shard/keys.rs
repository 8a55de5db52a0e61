//! The keys of the ordered store, all of them. Numbers are big endian, so that byte order is their order.
//!
//! ```text
//!   shard u64, kind, rest                value                                            where
//!   --------------------------------------------------------------------------------------------------
//!   shard 'h'                            counters and next numbers of the shard           record::Header
//!   shard 'd' document id                last sequence, leaves, revision tree             record::DocRecord
//!   shard 'b' body number u64            attachments and JSON text of one revision        record::BodyRecord
//!   shard 'c' body number u64, piece u32 a piece of the stored text of a large revision   body.rs
//!   shard 's' sequence u64               the document that changed last there, leaves     record::SeqRecord
//!   shard 'k' level u8, document id      summary of the documents from there on           levels.rs
//!   shard 'q' level u8, block u64        summary of the documents that changed last there sequence.rs
//!   shard 'l' local document id          revision number and JSON text                    local.rs
//!   shard 'm' name                       values of upper layers (epochs, security)        local.rs
//!   shard 'p' purge sequence u64         document id and purged revisions                 purge.rs
//!   shard 'f'                            purges up to this number are not on record       purge.rs
//!   shard 'g' document id                what was collected of it lately                  tombstone_collection.rs
//!   shard 'r' blob hash                  revisions that name the blob, u64                storage/blob_refs.rs
//!   shard 'i' blob hash                  content of a small blob                          storage/blob_refs.rs
//!   shard 'v' ..                         views                                            index/keys.rs
//!
//!   0 'n'                                the next shard number, u64                       lifetime.rs
//!   0 'x' shard u64                      empty: the shard's data is being removed         lifetime.rs
//! ```

use std::ops::Bound;

use super::ShardId;
use crate::document::id::DocId;
use crate::storage::{KeyRange, StorageError};

/// The shard number of what belongs to the node.
pub(super) const NODE: ShardId = ShardId(0);

/// What a key leads to; the value is the kind byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Header = b'h',
    Document = b'd',
    Body = b'b',
    BodyPiece = b'c',
    Sequence = b's',
    Level = b'k',
    SequenceLevel = b'q',
    Local = b'l',
    Meta = b'm',
    Purge = b'p',
    PurgeFloor = b'f',
    Marker = b'g',
    NextShard = b'n',
    Going = b'x',
}

/// The length of what stands before the rest of a key.
pub(super) const PREFIX: usize = 9;

/// The key of `kind` with `rest`.
pub(super) fn key(shard: ShardId, kind: Kind, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX + rest.len());
    out.extend_from_slice(&shard.0.to_be_bytes());
    out.push(kind as u8);
    out.extend_from_slice(rest);
    out
}

/// The key of `kind` that ends in a number.
pub(super) fn number_key(shard: ShardId, kind: Kind, number: u64) -> Vec<u8> {
    key(shard, kind, &number.to_be_bytes())
}

/// The key of a piece of a body.
pub(super) fn piece_key(shard: ShardId, number: u64, piece: u32) -> Vec<u8> {
    let mut out = number_key(shard, Kind::BodyPiece, number);
    out.extend_from_slice(&piece.to_be_bytes());
    out
}

/// The keys of all pieces of a body.
pub(super) fn pieces(shard: ShardId, number: u64) -> KeyRange {
    KeyRange::prefix(&number_key(shard, Kind::BodyPiece, number))
}

/// The body that the key of a piece belongs to.
pub(super) fn body_of_piece(key: &[u8]) -> Result<u64, StorageError> {
    number_of(key.get(..key.len().saturating_sub(4)).unwrap_or_default())
}

/// All keys of `kind`.
pub(super) fn all(shard: ShardId, kind: Kind) -> KeyRange {
    KeyRange::prefix(&key(shard, kind, b""))
}

/// All keys of a shard.
pub(super) fn whole_shard(shard: ShardId) -> KeyRange {
    KeyRange::prefix(&shard.0.to_be_bytes())
}

/// Keys of `kind` with numbers from `first` to `last`, both included.
pub(super) fn numbers(shard: ShardId, kind: Kind, first: u64, last: u64) -> KeyRange {
    let end = match last.checked_add(1) {
        Some(end) => Some(number_key(shard, kind, end)),
        None => all(shard, kind).end,
    };
    KeyRange { start: number_key(shard, kind, first), end }
}

/// Keys of `kind` whose ids lie within the bounds.
pub(super) fn ids(shard: ShardId, kind: Kind, start: &Bound<DocId>, end: &Bound<DocId>) -> KeyRange {
    let after = |id: &DocId| {
        let mut out = key(shard, kind, id.as_str().as_bytes());
        out.push(0);
        out
    };
    let at = |id: &DocId| key(shard, kind, id.as_str().as_bytes());
    let whole = all(shard, kind);
    KeyRange {
        start: match start {
            Bound::Included(id) => at(id),
            Bound::Excluded(id) => after(id),
            Bound::Unbounded => whole.start,
        },
        end: match end {
            Bound::Included(id) => Some(after(id)),
            Bound::Excluded(id) => Some(at(id)),
            Bound::Unbounded => whole.end,
        },
    }
}

/// The number at the end of a key.
pub(super) fn number_of(key: &[u8]) -> Result<u64, StorageError> {
    let rest = key.get(PREFIX..).and_then(|rest| rest.try_into().ok());
    rest.map(u64::from_be_bytes).ok_or_else(|| StorageError::Corrupt("a key does not end in a number".into()))
}

/// The shard and id of the document that a key is the record of.
pub fn document_of(key: &[u8]) -> Option<(u64, DocId)> {
    let shard = u64::from_be_bytes(*key.first_chunk()?);
    (key.get(PREFIX - 1) == Some(&(Kind::Document as u8))).then(|| id_of(key).ok()).flatten().map(|id| (shard, id))
}

/// The id at the end of a key.
pub(super) fn id_of(key: &[u8]) -> Result<DocId, StorageError> {
    let text = key.get(PREFIX..).and_then(|rest| std::str::from_utf8(rest).ok());
    text.map(DocId::new).ok_or_else(|| StorageError::Corrupt("a key does not end in an id".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_take_in_what_they_say() {
        let shard = ShardId(3);
        let inside = |start: Bound<&str>, end: Bound<&str>, id: &str| {
            let range = ids(shard, Kind::Document, &start.map(DocId::new), &end.map(DocId::new));
            let key = key(shard, Kind::Document, id.as_bytes());
            key >= range.start && range.end.is_none_or(|end| key < end)
        };
        use Bound::{Excluded, Included, Unbounded};
        assert!(inside(Included("a"), Included("b"), "a") && inside(Included("a"), Included("b"), "b"));
        assert!(!inside(Excluded("a"), Excluded("b"), "a") && !inside(Excluded("a"), Excluded("b"), "b"));
        assert!(inside(Excluded("a"), Excluded("b"), "a\0"));
        assert!(inside(Unbounded, Unbounded, "\u{10ffff}"));
        let last = number_key(shard, Kind::Sequence, u64::MAX);
        assert!(numbers(shard, Kind::Sequence, 5, u64::MAX).end.is_some_and(|end| last < end));
        assert_eq!(number_of(&last), Ok(u64::MAX));
        assert!(number_of(b"short").is_err());
    }
}
