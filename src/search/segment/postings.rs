//! Postings of one word: its documents, how often it stands in each, and where.
//!
//! A record is: documents, bytes of documents, bytes of positions; then of each document the distance from the one
//! before, doubled, odd where the word stands there once, else followed by how often; then distances of positions.

use bytes::Bytes;

use super::SegmentError;
use super::codec::{get, get32, put};

/// Postings that are being written.
#[derive(Default)]
pub(crate) struct Postings {
    docs: Vec<u32>,
    doc_bytes: Vec<u8>,
    position_bytes: Vec<u8>,
    total: u64,
}

impl Postings {
    pub(crate) fn clear(&mut self) {
        self.total = 0;
        self.docs.clear();
        self.doc_bytes.clear();
        self.position_bytes.clear();
    }

    /// Adds a document behind those before; of facets there are no positions.
    pub(crate) fn push(&mut self, doc: u32, positions: &[u32]) {
        let distance = u64::from(doc) - u64::from(self.docs.last().copied().unwrap_or(0));
        let frequency = positions.len().max(1) as u64;
        self.total += frequency;
        put(&mut self.doc_bytes, distance << 1 | u64::from(frequency == 1));
        if frequency != 1 {
            put(&mut self.doc_bytes, frequency);
        }
        let mut last = 0;
        for position in positions {
            put(&mut self.position_bytes, u64::from(position - last));
            last = *position;
        }
        self.docs.push(doc);
    }

    pub(crate) fn documents(&self) -> usize {
        self.docs.len()
    }

    /// How often the word stands in all documents.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn docs(&self) -> &[u32] {
        &self.docs
    }

    pub(crate) fn encode(&self, output: &mut Vec<u8>) {
        put(output, self.docs.len() as u64);
        put(output, self.doc_bytes.len() as u64);
        put(output, self.position_bytes.len() as u64);
        output.extend_from_slice(&self.doc_bytes);
        output.extend_from_slice(&self.position_bytes);
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) documents: u32,
    /// Bytes of the head itself.
    pub(crate) length: usize,
    pub(crate) doc_bytes: u64,
    pub(crate) position_bytes: u64,
}

impl Head {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Head, SegmentError> {
        let mut at = 0;
        let documents = get32(bytes, &mut at)?;
        let doc_bytes = get(bytes, &mut at)?;
        let position_bytes = get(bytes, &mut at)?;
        Ok(Head { documents, length: at, doc_bytes, position_bytes })
    }
}

/// Reads documents of a word in their order.
#[derive(Clone)]
pub(crate) struct Docs {
    bytes: Bytes,
    at: usize,
    left: u32,
    last: u32,
    limit: u32,
}

impl Docs {
    /// `limit`: documents of the segment; one at or beyond it is damage.
    pub(crate) fn new(bytes: Bytes, documents: u32, limit: u32) -> Docs {
        Docs { bytes, at: 0, left: documents, last: 0, limit }
    }

    /// The next document and how often the word stands there.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, u32)>, SegmentError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let head = get(&self.bytes, &mut self.at)?;
        let doc = u64::from(self.last).saturating_add(head >> 1);
        if doc >= u64::from(self.limit) {
            return Err(SegmentError::Damaged("a document's place"));
        }
        self.last = doc as u32;
        let frequency = if head & 1 == 1 { 1 } else { get32(&self.bytes, &mut self.at)? };
        Ok(Some((self.last, frequency)))
    }
}

/// Reads positions of a word, document by document.
#[derive(Clone)]
pub(crate) struct Positions {
    bytes: Bytes,
    at: usize,
}

impl Positions {
    pub(crate) fn new(bytes: Bytes) -> Positions {
        Positions { bytes, at: 0 }
    }

    /// Passes over so many positions.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), SegmentError> {
        for _ in 0..count {
            get(&self.bytes, &mut self.at)?;
        }
        Ok(())
    }

    /// Reads the positions of one document into `output`.
    pub(crate) fn read(&mut self, count: u32, output: &mut Vec<u32>) -> Result<(), SegmentError> {
        output.clear();
        let mut last = 0u32;
        for _ in 0..count {
            let distance = get32(&self.bytes, &mut self.at)?;
            last = last.checked_add(distance).ok_or(SegmentError::Damaged("a position"))?;
            output.push(last);
        }
        Ok(())
    }
}
