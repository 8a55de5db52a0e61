//! The set of a segment's documents that count no more.

use std::collections::BTreeSet;

use super::SegmentError;
use super::codec::{checksum, get, put};

/// The version of the bytes.
const VERSION: u8 = 1;
/// Bytes of version and checksum.
const HEAD: usize = 9;

/// Which documents of a segment count no more, by their numbers. The node stores its bytes beside the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    numbers: BTreeSet<u64>,
}

impl Deleted {
    /// Reads what [`Deleted::to_bytes`] made.
    pub fn parse(bytes: &[u8]) -> Result<Deleted, SegmentError> {
        let damaged = SegmentError::Damaged("deleted documents");
        let (Some(head), Some(body)) = (bytes.get(..HEAD), bytes.get(HEAD..)) else { return Err(damaged) };
        if head[0] != VERSION || head[1..] != checksum(body).to_le_bytes() {
            return Err(damaged);
        }
        let mut numbers = BTreeSet::new();
        let (mut at, mut last) = (0, 0u64);
        while at < body.len() {
            last = last.checked_add(get(body, &mut at)?).ok_or(SegmentError::Damaged("deleted documents"))?;
            numbers.insert(last);
        }
        Ok(Deleted { numbers })
    }

    /// Its bytes; equal sets, equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut last = 0;
        for number in &self.numbers {
            put(&mut body, number - last);
            last = *number;
        }
        let mut output = vec![VERSION];
        output.extend_from_slice(&checksum(&body).to_le_bytes());
        output.extend_from_slice(&body);
        output
    }

    /// Notes that the document of this number counts no more.
    pub fn insert(&mut self, number: u64) {
        self.numbers.insert(number);
    }

    /// Whether the document of this number counts no more.
    pub fn contains(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// How many documents it names.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.numbers.iter().copied()
    }
}
