//! Immutable segments: what was indexed of some documents, as bytes that the node stores.
//!
//! All integers are little-endian or LEB128. A segment names its format's version; every byte of it is under a
//! checksum.
//!
//! ```text
//!   builder   documents to a segment         merge     segments to a segment
//!   writer    the order of its parts         reader    what is in memory, and reads of the rest
//!   postings  documents of a word            column    one value for each document
//!   deleted   documents that count no more   codec     integers, numbers, checksums
//! ```

mod builder;
mod codec;
mod column;
mod deleted;
mod merge;
mod postings;
mod reader;
mod writer;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

pub use builder::build;
pub use deleted::Deleted;
pub use merge::merge;
pub use reader::Segment;

pub(crate) use builder::tokens;
pub(crate) use codec::{length_value, norm_value, sortable, unsortable};
pub(crate) use column::Column;
pub(crate) use postings::{Docs, Positions};
pub(crate) use reader::{Field, Found, Numbers, WINDOW, Window, bounds};
pub(crate) use writer::Kind;

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

/// A segment as one search sees it.
#[derive(Clone)]
pub struct Part {
    /// The segment.
    pub segment: Segment,
    /// Its documents that count no more.
    pub deleted: Arc<Deleted>,
}
