//! Sparse offsets inside a block of view rows: the position of every eighth row. Counting the rows before a key then
//! reads at most eight rows instead of the block.
//!
//! Blocks of sums (`sums.rs`) have 64 rows on average. A count that ends within a block had to read its rows up to
//! there, for the offset of each query and in each range. This module remembers the rows that a count reads, and the
//! number of rows before the block; the next count begins at the last remembered row.
//!
//! Promises: the offsets of a block agree with its rows as long as its own rows do not change ([`Steps::touch`]); the
//! number of rows before the block holds until any row changes (the moment beside it).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use crate::limits;

/// Rows from one noted place to the next.
const EVERY: u64 = if cfg!(any(test, feature = "sim")) { 2 } else { 8 };

/// What is noted of one view.
#[derive(Default)]
pub(super) struct Steps {
    /// By the place where a block of the lowest level begins: that of a row, or of the beginning of the view.
    blocks: BTreeMap<Vec<u8>, Noted>,
    /// Bytes of memory that all of it takes, about: keys may be large.
    bytes: usize,
}

/// Bytes that it takes to hold a place.
fn cost(place: &[u8]) -> usize {
    place.len() + limits::COUNT_STEP_COST_BYTES
}

/// What is noted of a block.
#[derive(Default)]
struct Noted {
    /// Rows of the view before it, and at which moment.
    before: Option<(u64, u64)>,
    /// Places of rows in order: the first has [`EVERY`] rows of the block before it, the second twice as many.
    places: Vec<Vec<u8>>,
    /// Bytes that these take.
    bytes: usize,
}

/// A count on its way through a block.
pub(super) struct Stride {
    /// Where the block begins.
    start: Vec<u8>,
    /// Rows of the view before it, where that is known.
    before: Option<u64>,
    /// Places that were noted when it began.
    known: usize,
    /// Rows of the block that were passed.
    rank: u64,
    /// Further places to note, and the bytes that they take.
    places: Vec<Vec<u8>>,
    bytes: usize,
}

impl Steps {
    /// The last block that begins before `high` of which it was known at `moment` how many rows lie before it.
    pub fn nearest(&self, high: &[u8], moment: u64) -> Option<(&[u8], u64)> {
        let up_to = (Bound::Unbounded, Bound::Included(high));
        let (start, noted) = self.blocks.range::<[u8], _>(up_to).next_back()?;
        let (rows, of) = noted.before?;
        (of == moment).then_some((start, rows))
    }

    /// Whether rows of the block that begins at `start` are noted.
    pub fn has(&self, start: &[u8]) -> bool {
        self.blocks.get(start).is_some_and(|noted| !noted.places.is_empty())
    }

    /// Begins at a block that reaches beyond `high`; and where to go on, with how many rows of the block before that.
    pub fn stride(&self, start: &[u8], high: Option<&[u8]>, before: Option<u64>) -> (Stride, Option<(Vec<u8>, u64)>) {
        let noted = self.blocks.get(start);
        let places = noted.map_or(&[][..], |noted| &noted.places);
        let passed = places.partition_point(|place| high.is_none_or(|high| place.as_slice() <= high));
        let rank = passed as u64 * EVERY;
        let further = places[..passed].last().map(|place| (place.clone(), rank));
        (Stride { start: start.to_vec(), before, known: places.len(), rank, places: Vec::new(), bytes: 0 }, further)
    }

    /// Takes in what a count has seen at `moment`, since when no row has changed.
    pub fn note(&mut self, stride: Stride, moment: u64) {
        let start = cost(&stride.start);
        if start + stride.bytes > limits::COUNT_STEPS_BYTES_PER_INDEX {
            return;
        }
        if self.bytes + start + stride.bytes > limits::COUNT_STEPS_BYTES_PER_INDEX {
            self.clear();
        }
        let noted = match self.blocks.entry(stride.start) {
            Entry::Occupied(noted) => noted.into_mut(),
            Entry::Vacant(new) => {
                self.bytes += start;
                new.insert(Noted::default())
            }
        };
        noted.before = stride.before.map(|rows| (rows, moment)).or(noted.before);
        // Another count may have been faster.
        if noted.places.len() == stride.known {
            self.bytes += stride.bytes;
            noted.bytes += stride.bytes;
            noted.places.extend(stride.places);
        }
    }

    /// A row at `place` has come or gone.
    pub fn touch(&mut self, place: &[u8]) {
        let up_to = (Bound::Unbounded, Bound::Included(place));
        let start = self.blocks.range::<[u8], _>(up_to).next_back().map(|(start, _)| start.clone());
        if let Some((start, noted)) = start.and_then(|start| self.blocks.remove_entry(&start)) {
            self.bytes -= cost(&start) + noted.bytes;
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Steps::default();
    }
}

impl Stride {
    /// Passes the next row of the block.
    pub fn pass(&mut self, place: &[u8]) {
        let noted = (self.known + self.places.len()) as u64;
        // Of one block no more than of all.
        if self.rank == (noted + 1) * EVERY && self.bytes < limits::COUNT_STEPS_BYTES_PER_INDEX {
            self.bytes += cost(place);
            self.places.push(place.to_vec());
        }
        self.rank += 1;
    }

    /// Whether it has seen what is not noted.
    pub fn is_news(&self) -> bool {
        self.before.is_some() || !self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one block at 10, 20, ..
    fn walk(steps: &mut Steps, high: u8) -> (u64, u64) {
        let (mut stride, further) = steps.stride(b"", Some(&[high]), Some(0));
        let (from, rank) = further.map_or((0, 0), |(place, rank)| (place[0], rank));
        let rows = (10..high).step_by(10).filter(|place| *place >= from);
        let read = rows.map(|place| stride.pass(&[place])).count() as u64;
        steps.note(stride, 4);
        (rank + read, read)
    }

    #[test]
    fn a_count_goes_on_from_the_last_noted_row() {
        let mut steps = Steps::default();
        assert_eq!(walk(&mut steps, 95), (9, 9));
        assert_eq!(walk(&mut steps, 95), (9, 1), "with the ninth");
        assert_eq!(walk(&mut steps, 30), (2, 0), "the row at 30 is the first that was noted");
        assert_eq!(walk(&mut steps, 35), (3, 1));
        assert_eq!(walk(&mut steps, 145), (14, 6));
        assert_eq!(walk(&mut steps, 145), (14, 2));
    }

    #[test]
    fn what_is_before_a_block_holds_for_its_moment_and_its_places_until_its_rows_change() {
        let mut steps = Steps::default();
        walk(&mut steps, 95);
        let (stride, _) = steps.stride(&[100], Some(&[150]), Some(9));
        steps.note(stride, 4);
        assert_eq!(steps.nearest(&[150], 4), Some((&[100][..], 9)));
        assert_eq!(steps.nearest(&[99], 4), Some((&[][..], 0)));
        assert_eq!(steps.nearest(&[99], 6), None);
        steps.touch(&[110]);
        assert_eq!(steps.nearest(&[150], 4), Some((&[][..], 0)));
        assert_eq!(steps.bytes, cost(b"") + 4 * cost(b"x"));
        steps.touch(&[95]);
        assert_eq!((steps.bytes, steps.blocks.len()), (0, 0));
    }

    #[test]
    fn notes_of_large_keys_take_no_more_memory_than_those_of_small_ones() {
        let mut steps = Steps::default();
        let key = |n: usize| [&n.to_be_bytes()[..], &vec![7; 100_000]].concat();
        let held = |steps: &Steps| -> usize {
            let of =
                |(start, noted): (&Vec<u8>, &Noted)| start.len() + noted.places.iter().map(Vec::len).sum::<usize>();
            steps.blocks.iter().map(of).sum()
        };
        let mut noted = 0;
        for block in 0..40 {
            let (mut stride, _) = steps.stride(&key(block * 1000), None, Some(0));
            // The last one alone is too much.
            (1..if block < 39 { 6 } else { 200 }).for_each(|n| stride.pass(&key(block * 1000 + n)));
            assert!(stride.bytes <= limits::COUNT_STEPS_BYTES_PER_INDEX + 200_000);
            steps.note(stride, 4);
            assert!(held(&steps) <= steps.bytes && steps.bytes <= limits::COUNT_STEPS_BYTES_PER_INDEX);
            noted += usize::from(steps.blocks.contains_key(&key(block * 1000)));
        }
        assert_eq!(noted, 39, "the first are forgotten for the last");
    }
}
