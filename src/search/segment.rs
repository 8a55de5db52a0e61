//! Immutable segments: what was indexed of some documents, as bytes that the node stores.
//!
//! Format: see the head of each part. All integers are little-endian or LEB128; a segment names its format's version.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::analysis::Analyzer;
use crate::document::Document;

/// Where the bytes of a segment are read from.
pub trait Source: Send + Sync {
    /// How many there are.
    fn len(&self) -> u64;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Some of them. Called from threads that may wait for a disk.
    fn read(&self, range: Range<u64>) -> Result<Bytes, SegmentError>;
}

impl Source for Bytes {
    fn len(&self) -> u64 {
        Bytes::len(self) as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes, SegmentError> {
        let all = 0..Bytes::len(self) as u64;
        if range.start > range.end || range.end > all.end {
            return Err(SegmentError::Damaged("range"));
        }
        Ok(self.slice(range.start as usize..range.end as usize))
    }
}

/// Why a segment cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// Its bytes are not what was written.
    Damaged(&'static str),
    /// Its source failed.
    Source(String),
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::Damaged(part) => write!(f, "a search segment is damaged: {part}"),
            SegmentError::Source(error) => write!(f, "a search segment cannot be read: {error}"),
        }
    }
}

/// The bytes of a segment of `documents`, which stand in ascending order of their numbers. Equal input, equal bytes.
pub fn build(documents: &[Document], analyzer: &Analyzer) -> Bytes {
    let _ = (documents, analyzer);
    Bytes::new()
}

/// A segment that is open for reading: its dictionary is in memory, the rest is read as it is needed. Cheap to clone.
#[derive(Clone)]
pub struct Segment {
    source: Arc<dyn Source>,
}

impl Segment {
    /// Reads what is kept in memory.
    pub fn open(source: Arc<dyn Source>) -> Result<Segment, SegmentError> {
        Ok(Segment { source })
    }

    /// How many documents it has, deleted ones too.
    pub fn document_count(&self) -> u32 {
        0
    }

    /// Bytes of memory that it holds while it is open.
    pub fn memory(&self) -> usize {
        self.source.len() as usize
    }
}

/// Which documents of a segment count no more, by their place in it. The node stores its bytes beside the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    numbers: Vec<u64>,
}

impl Deleted {
    /// Reads what [`Deleted::to_bytes`] made.
    pub fn parse(bytes: &[u8]) -> Result<Deleted, SegmentError> {
        let _ = bytes;
        Ok(Deleted::default())
    }

    /// Its bytes; equal sets, equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Notes that the document of this number counts no more.
    pub fn insert(&mut self, number: u64) {
        self.numbers.push(number);
    }

    /// How many documents it names.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }
}

/// A segment as one search sees it.
#[derive(Clone)]
pub struct Part {
    /// The segment.
    pub segment: Segment,
    /// Its documents that count no more.
    pub deleted: Arc<Deleted>,
}

/// The bytes of one segment with the documents of several that count, in their order. The parts follow each other:
/// numbers of one are above those of the one before. Reads and writes bounded blocks; the result is in memory.
pub fn merge(parts: &[Part]) -> Result<Bytes, SegmentError> {
    let _ = parts;
    Ok(Bytes::new())
}
