//! BM25 as Lucene 9 computes it, in its order of operations on floats of 32 bits: `k1` 1.2, `b` 0.75, without the
//! factor
//! `k1 + 1`. Numbers of documents and words are those of all segments of a shard, deleted documents too until a merge
//! leaves them out.

use std::sync::Arc;

use crate::segment::{Kind, Part, length_value};

const K1: f32 = 1.2;
const B: f32 = 0.75;
/// The length of a text without norms.
const NO_NORM: u8 = 1;

/// What the length of a text does to a score, by the byte that holds the length.
#[derive(Clone, Debug)]
pub(crate) struct Lengths(Arc<[f32; 256]>);

impl Lengths {
    fn new(average: f32) -> Lengths {
        let mut all = [0.0; 256];
        for (byte, factor) in all.iter_mut().enumerate() {
            let length = length_value(byte as u8) as f32;
            *factor = 1.0 / (K1 * ((1.0 - B) + B * length / average));
        }
        Lengths(Arc::new(all))
    }

    /// The score of a frequency in a text of this length under a weight; `None`: the field has no lengths.
    pub(crate) fn score(&self, frequency: f32, length: Option<u8>, weight: f32) -> f32 {
        let factor = self.0[usize::from(length.unwrap_or(NO_NORM))];
        weight - weight / (1.0 + frequency * factor)
    }
}

/// What is known of a field in a shard.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    documents: u64,
    pub(crate) lengths: Lengths,
}

impl Field {
    pub(crate) fn of(parts: &[Part], name: &str) -> Field {
        let (mut documents, mut words) = (0, 0);
        for part in parts {
            let totals = part.segment.field(Kind::Words, name).and_then(|field| field.meta.totals);
            let totals = totals.unwrap_or_default();
            documents += totals.documents;
            words += totals.words;
        }
        let average = if documents == 0 { 1.0 } else { (words as f64 / documents as f64) as f32 };
        Field { documents, lengths: Lengths::new(average) }
    }

    /// How rare a word of so many documents is.
    pub(crate) fn idf(&self, documents: u64) -> f32 {
        let (all, having) = (self.documents as f64, documents as f64);
        (1.0 + (all - having + 0.5) / (having + 0.5)).ln() as f32
    }
}
