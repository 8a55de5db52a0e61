//! Sets of a segment's documents.

/// One bit for each document.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: u32,
}

impl Bits {
    pub(crate) fn new(count: u32) -> Bits {
        Bits { words: vec![0; count.div_ceil(64) as usize], count }
    }

    /// Every document.
    pub(crate) fn fill(&mut self) {
        for doc in 0..self.count {
            self.set(doc);
        }
    }

    /// Adds a document; one that the segment does not have is passed over.
    #[inline]
    pub(crate) fn set(&mut self, doc: u32) {
        if let Some(word) = self.words.get_mut((doc / 64) as usize) {
            *word |= 1 << (doc % 64);
        }
    }

    #[inline]
    pub(crate) fn has(&self, doc: u32) -> bool {
        self.words.get((doc / 64) as usize).is_some_and(|word| word >> (doc % 64) & 1 == 1)
    }

    /// Keeps what both have.
    pub(crate) fn intersect(&mut self, other: &Bits) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// The first document from this one on.
    #[inline]
    pub(crate) fn next(&self, doc: u32) -> Option<u32> {
        let mut at = (doc / 64) as usize;
        let mut word = self.words.get(at)? & (u64::MAX << (doc % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at as u32 * 64 + word.trailing_zeros())
    }
}
