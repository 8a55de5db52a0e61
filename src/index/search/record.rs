//! Records of a full-text index: the values of the keys of `keys.rs`.

use crate::index::Signature;
use crate::index::keys::{self, Part};
use crate::shard::ShardId;
use crate::storage::{KeyRange, StorageError};
use crate::wire::codec::{CodecError, Reader, put_varint};

const VERSION: u8 = 1;
/// Changes when analyzers, segments or what index functions see change: an index of another version is built anew.
const ENGINE: u64 = 1;

/// One segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Names it within the index; never used again.
    pub id: u64,
    /// The number of its first document.
    pub first: u64,
    /// That of its last one.
    pub last: u64,
    /// Documents, deleted ones too.
    pub documents: u64,
    /// Those that count no more.
    pub deleted: u64,
    /// Its size.
    pub bytes: u64,
}

impl SegmentInfo {
    /// How many pieces it has, each of `piece` bytes.
    pub fn pieces(&self, piece: usize) -> u32 {
        u32::try_from(self.bytes.div_ceil(piece as u64)).unwrap_or(u32::MAX)
    }
}

/// How far an index is built, and its segments in the order of the documents' numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchHeader {
    /// The shard's sequence up to which documents are indexed.
    pub position: u64,
    /// The shard's purge up to which documents were removed.
    pub purge_position: u64,
    /// The id of the next segment.
    pub next: u64,
    /// The segments.
    pub segments: Vec<SegmentInfo>,
}

impl SearchHeader {
    /// Documents that count.
    pub fn documents(&self) -> u64 {
        self.segments.iter().map(|segment| segment.documents.saturating_sub(segment.deleted)).sum()
    }

    /// Documents that count no more and are stored still.
    pub fn deleted(&self) -> u64 {
        self.segments.iter().map(|segment| segment.deleted).sum()
    }

    /// Bytes of segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The segment that has the document of a number.
    pub fn segment_of(&mut self, number: u64) -> Option<&mut SegmentInfo> {
        self.segments.iter_mut().find(|segment| (segment.first..=segment.last).contains(&number))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for number in [ENGINE, self.position, self.purge_position, self.next, self.segments.len() as u64] {
            put_varint(&mut out, number);
        }
        for SegmentInfo { id, first, last, documents, deleted, bytes } in &self.segments {
            [id, first, last, documents, deleted, bytes].into_iter().for_each(|number| put_varint(&mut out, *number));
        }
        out
    }

    /// `None`: of another version.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<SearchHeader>, StorageError> {
        let read = || {
            let mut reader = Reader::new(bytes);
            if reader.u8()? != VERSION || reader.varint()? != ENGINE {
                return Ok(None);
            }
            let (position, purge_position, next) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let mut segments = Vec::new();
            for _ in 0..reader.varint()? {
                let mut n = || reader.varint();
                let (id, first, last) = (n()?, n()?, n()?);
                segments.push(SegmentInfo { id, first, last, documents: n()?, deleted: n()?, bytes: n()? });
            }
            reader.finish()?;
            Ok(Some(SearchHeader { position, purge_position, next, segments }))
        };
        read().map_err(|error: CodecError| StorageError::Corrupt(format!("header of a search index: {error}")))
    }
}

/// The keys of one index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys(pub ShardId, pub Signature);

impl Keys {
    fn key(self, part: Part, rest: &[u8]) -> Vec<u8> {
        keys::key(self.0, self.1, part, rest)
    }

    pub fn header(self) -> Vec<u8> {
        self.key(Part::SearchHeader, b"")
    }

    pub fn document(self, id: &str) -> Vec<u8> {
        self.key(Part::SearchDocument, id.as_bytes())
    }

    pub fn piece(self, segment: u64, piece: u32) -> Vec<u8> {
        self.key(Part::SearchPiece, &[&segment.to_be_bytes()[..], &piece.to_be_bytes()].concat())
    }

    pub fn deleted(self, segment: u64) -> Vec<u8> {
        self.key(Part::SearchDeleted, &segment.to_be_bytes())
    }

    /// The pieces of segments from one on.
    pub fn pieces_from(self, segment: u64) -> KeyRange {
        KeyRange { start: self.piece(segment, 0), end: KeyRange::prefix(&self.key(Part::SearchPiece, b"")).end }
    }

    /// All of the index.
    pub fn whole(self) -> KeyRange {
        KeyRange::prefix(&keys::whole_view(self.0, self.1))
    }
}

pub(super) fn encode_number(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, number);
    out
}

pub(super) fn decode_number(bytes: &[u8]) -> Result<u64, StorageError> {
    let read = || {
        let mut reader = Reader::new(bytes);
        let number = reader.varint()?;
        reader.finish().map(|()| number)
    };
    read().map_err(|error| StorageError::Corrupt(format!("a document's number in a search index: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_damage_is_told() {
        let segment = SegmentInfo { id: 3, first: 5, last: 900, documents: 300, deleted: 2, bytes: 1 << 40 };
        let header = SearchHeader { position: 901, purge_position: 2, next: 4, segments: vec![segment; 2] };
        assert_eq!(SearchHeader::decode(&header.encode()), Ok(Some(header.clone())));
        assert_eq!((header.documents(), header.deleted()), (596, 4));
        let bytes = header.encode();
        assert!((1..bytes.len()).all(|end| SearchHeader::decode(&bytes[..end]).is_err()));
        assert_eq!(SearchHeader::decode(&[9, 9]), Ok(None));
    }
}
