//! Columns: one integer for each document that has one. Dense columns have a place for every document, sparse ones
//! pairs of document and value in ascending order. Zero stands for no value.

use bytes::Bytes;

use super::codec::{fixed, get, put, width};
use super::{Segment, SegmentError};

/// Bytes of a document's place in a sparse column.
const PLACE: usize = 4;

/// Where a column stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnMeta {
    is_sparse: bool,
    width: usize,
    offset: u64,
    count: u64,
}

impl ColumnMeta {
    /// Appends the values that are not zero, and tells where.
    pub(crate) fn write(output: &mut Vec<u8>, documents: u32, values: &[u64]) -> ColumnMeta {
        let offset = output.len() as u64;
        let used = values.iter().filter(|value| **value != 0).count();
        let width = width(values.iter().copied().max().unwrap_or(0));
        let is_sparse = used * (PLACE + width) < documents as usize * width;
        if is_sparse {
            for (doc, value) in values.iter().enumerate().filter(|(_, value)| **value != 0) {
                output.extend_from_slice(&(doc as u32).to_le_bytes());
                output.extend_from_slice(&value.to_le_bytes()[..width]);
            }
        } else {
            for value in values {
                output.extend_from_slice(&value.to_le_bytes()[..width]);
            }
        }
        let count = if is_sparse { used as u64 } else { values.len() as u64 };
        ColumnMeta { is_sparse, width, offset, count }
    }

    pub(crate) fn encode(&self, output: &mut Vec<u8>) {
        put(output, (self.width as u64) << 1 | u64::from(self.is_sparse));
        put(output, self.offset);
        put(output, self.count);
    }

    pub(crate) fn decode(bytes: &[u8], at: &mut usize, documents: u32) -> Result<ColumnMeta, SegmentError> {
        let head = get(bytes, at)?;
        let meta = ColumnMeta {
            is_sparse: head & 1 == 1,
            width: (head >> 1) as usize,
            offset: get(bytes, at)?,
            count: get(bytes, at)?,
        };
        let is_right = (1..=8).contains(&meta.width)
            && (if meta.is_sparse { meta.count <= u64::from(documents) } else { meta.count == u64::from(documents) });
        if is_right { Ok(meta) } else { Err(SegmentError::Damaged("a column")) }
    }

    fn entry(&self) -> usize {
        self.width + if self.is_sparse { PLACE } else { 0 }
    }

    pub(crate) fn read(&self, segment: &Segment) -> Result<Column, SegmentError> {
        let length = self.count * self.entry() as u64;
        Ok(Column { meta: *self, bytes: segment.read(self.offset, length)? })
    }
}

/// A column in memory, as long as one search reads it.
#[derive(Clone)]
pub(crate) struct Column {
    meta: ColumnMeta,
    bytes: Bytes,
}

impl Column {
    fn value(&self, entry: usize) -> u64 {
        let end = (entry + 1) * self.meta.entry();
        fixed(&self.bytes[end - self.meta.width..end])
    }

    fn place(&self, entry: usize) -> u32 {
        let start = entry * self.meta.entry();
        fixed(&self.bytes[start..start + PLACE]) as u32
    }

    /// The value of a document, 0 where it has none.
    #[inline]
    pub(crate) fn get(&self, doc: u32) -> u64 {
        if !self.meta.is_sparse {
            return if u64::from(doc) < self.meta.count { self.value(doc as usize) } else { 0 };
        }
        let (mut low, mut high) = (0, self.meta.count as usize);
        while low < high {
            let middle = (low + high) / 2;
            match self.place(middle).cmp(&doc) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.value(middle),
            }
        }
        0
    }

    /// Each document with a value, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..self.meta.count as usize).filter_map(|entry| {
            let doc = if self.meta.is_sparse { self.place(entry) } else { entry as u32 };
            Some((doc, self.value(entry))).filter(|(_, value)| *value != 0)
        })
    }
}
