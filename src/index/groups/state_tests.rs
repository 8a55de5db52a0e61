//! Reductions of several steps while rows change: each answer is of one state of the rows.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{Counted, key, place, rows};
use super::*;
use crate::index::sums::State;
use crate::storage::KeyRange;

/// What is committed of a view, and how its rows came to be.
struct Index {
    slot: Slot,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    stand: Stand,
    /// Rows that a write under way brings or takes, and whether it is committed.
    writing: Option<(Vec<u32>, bool)>,
}

impl Index {
    fn of(numbers: impl IntoIterator<Item = u32>) -> Index {
        let rows = Counted::of(numbers).rows;
        Index { slot: Slot::default(), rows, stand: (1, 0), writing: None }
    }

    fn begin(&mut self, numbers: Vec<u32>) {
        if self.writing.is_none() {
            self.slot.sums(|sums| sums.begin_write(Some(self.stand)));
            self.writing = Some((numbers, false));
        }
    }

    fn commit(&mut self) {
        let Some((numbers, false)) = self.writing.clone() else { return };
        for n in &numbers {
            if self.rows.remove(&key(&place(*n))).is_none() {
                self.rows.insert(key(&place(*n)), Row::encode(1, b"1", b"2"));
            }
        }
        self.stand.0 += 1;
        self.writing = Some((numbers, true));
    }

    fn end(&mut self) {
        self.commit();
        let Some((numbers, _)) = self.writing.take() else { return };
        let places: Vec<Vec<u8>> = numbers.into_iter().map(place).collect();
        self.slot.sums(|sums| sums.end_write(Some((false, &places))));
    }

    fn write(&mut self, numbers: Vec<u32>) {
        self.begin(numbers);
        self.end();
    }

    fn count(&self, (low, high): (u32, u32)) -> u64 {
        self.rows.range(key(&place(low))..key(&place(high))).count() as u64
    }

    fn view(&self) -> (Counted, Stand) {
        (Counted { rows: self.rows.clone(), ..Counted::default() }, self.stand)
    }
}

/// A count of the rows from one place to another; what it may answer.
struct Reader {
    reading: Reading,
    range: (u32, u32),
    seen: Vec<u64>,
}

impl Reader {
    fn new(index: &Index, range: (u32, u32)) -> Reader {
        let collator = Collator::new();
        let by = GroupBy { grouping: Grouping::All, reduce: Reduce::Count, direction: Direction::Forward, prefix: 0 };
        let empty = Partial::empty(&by.reduce, &collator).unwrap();
        let places = VecDeque::from([Places { low: place(range.0), high: Some(place(range.1)) }]);
        let moment = index.slot.sums(|sums| sums.moment());
        Reader { reading: Reading::with(by, collator, empty, places, (1, moment)), range, seen: Vec::new() }
    }

    fn step(&mut self, slot: &Slot, (view, stand): &(Counted, Stand)) {
        let (low, high) = (key(&place(self.range.0)), key(&place(self.range.1)));
        self.seen.push(view.rows.range(low..high).count() as u64);
        let range = |places: &Places| KeyRange { start: key(&places.low), end: places.high.as_deref().map(key) };
        self.reading.step(view, slot, &range, &|| Ok(Some(*stand))).unwrap();
        self.reading.single.moment = slot.sums(|sums| sums.moment());
    }

    fn finish(&mut self, index: &Index) -> u64 {
        while !self.reading.is_done() {
            self.reading.single.moment = index.slot.sums(|sums| sums.moment());
            self.step(&index.slot, &index.view());
        }
        rows(&self.reading)
    }
}

const ALL: (u32, u32) = (0, 5000);

#[test]
fn a_reduction_of_several_steps_is_of_one_state_though_a_row_moves_behind_it_meanwhile() {
    let mut index = Index::of(0..4000);
    let mut reader = Reader::new(&index, ALL);
    reader.step(&index.slot, &index.view());
    assert!(!reader.reading.is_done());
    // From where it has read to where it has not.
    index.write(vec![1, 4500]);
    assert_eq!((reader.finish(&index), reader.reading.single.restarts), (4000, 1));
    // What it read before it began anew was kept: the scan of all rows is done once.
    let mut again = Reader::new(&index, ALL);
    let view = index.view();
    again.step(&index.slot, &view);
    assert!(again.reading.is_done() && view.0.read.get() < 200, "{} rows read", view.0.read.get());
}

#[test]
fn a_reduction_of_an_old_view_takes_no_blocks_that_were_kept_since() {
    let mut index = Index::of(0..900);
    let (mut old, view) = (Reader::new(&index, (0, 800)), index.view());
    index.write(vec![401, 402, 403]);
    assert_eq!(Reader::new(&index, (0, 850)).finish(&index), 847);
    old.step(&index.slot, &view);
    assert_eq!((rows(&old.reading), index.count((0, 800))), (800, 797));
}

#[test]
fn a_reduction_beside_a_commit_knows_by_the_header_whether_it_sees_it() {
    let mut index = Index::of(0..900);
    assert_eq!(Reader::new(&index, ALL).finish(&index), 900);
    index.begin(vec![1, 2, 3]);
    let mut before = Reader::new(&index, ALL);
    let view = index.view();
    before.step(&index.slot, &view);
    assert!(rows(&before.reading) == 900 && view.0.read.get() < 100, "what was kept is still used");
    index.commit();
    assert_eq!(Reader::new(&index, ALL).finish(&index), 897);
    index.end();
    assert_eq!(Reader::new(&index, ALL).finish(&index), 897);
}

/// Counts the rows of a range in a view that is held, in as many steps as it takes.
fn held_count(index: &Index, (view, stand): &(Counted, Stand), state: Option<State>, range: (u32, u32)) -> u64 {
    let mut reader = Reader::new(index, range);
    reader.reading.single = SingleState::of_held(state);
    while !reader.reading.is_done() {
        let range = |places: &Places| KeyRange { start: key(&places.low), end: places.high.as_deref().map(key) };
        reader.reading.step(view, &index.slot, &range, &|| Ok(Some(*stand))).unwrap();
    }
    rows(&reader.reading)
}

#[test]
fn pages_of_a_held_state_use_what_is_kept_as_long_as_it_is_of_that_state() {
    let mut index = Index::of(0..4000);
    let mut first = Reader::new(&index, ALL);
    assert_eq!(first.finish(&index), 4000);
    let (view, state) = (index.view(), first.reading.single.state);
    assert_eq!(held_count(&index, &view, state, (0, 3900)), 3900);
    assert!(view.0.read.get() < 500, "{} rows read", view.0.read.get());
    index.write(vec![1, 2, 3]);
    assert_eq!(Reader::new(&index, ALL).finish(&index), 3997);
    assert_eq!(held_count(&index, &view, state, (0, 3900)), 3900);
    assert_eq!(Reader::new(&index, ALL).finish(&index), 3997, "nothing was kept of it");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn pages_of_a_held_state_are_of_that_state_whatever_is_written_and_kept_meanwhile(
        steps in prop::collection::vec((0_u32..7, 0_u32..3000, 0_u32..3000), 1..80),
    ) {
        let mut index = Index::of((0..3000).filter(|n| n % 7 != 0));
        let mut held: Option<((Counted, Stand), Option<State>)> = None;
        for (what, a, b) in steps {
            let range = (a.min(b), a.max(b) + 500);
            match (what, &held) {
                (0, _) => index.begin(vec![a, b]),
                (1, _) => index.commit(),
                (2, _) => index.end(),
                (3, _) => drop(Reader::new(&index, range).finish(&index)),
                (4, _) | (_, None) => {
                    let mut first = Reader::new(&index, range);
                    let view = index.view();
                    while !first.reading.is_done() {
                        first.step(&index.slot, &view);
                    }
                    held = Some((view, first.reading.single.state));
                }
                (_, Some((view, state))) => {
                    let there = view.0.rows.range(key(&place(range.0))..key(&place(range.1))).count() as u64;
                    prop_assert_eq!(held_count(&index, view, *state, range), there);
                }
            }
        }
        index.end();
        prop_assert_eq!(Reader::new(&index, ALL).finish(&index), index.count(ALL));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn each_answer_is_of_one_state_whatever_is_written_between_the_steps(
        steps in prop::collection::vec((0_u32..8, 0_usize..3, 0_u32..3000, 0_u32..3000), 1..80),
    ) {
        let mut index = Index::of((0..3000).filter(|n| n % 7 != 0));
        let mut readers: Vec<Option<(Reader, (Counted, Stand))>> = (0..3).map(|_| None).collect();
        for (what, at, a, b) in steps {
            match (what, readers[at].take()) {
                (0, reader) => {
                    index.begin(vec![a, b]);
                    readers[at] = reader;
                }
                (1, reader) => {
                    index.commit();
                    readers[at] = reader;
                }
                (2, reader) => {
                    index.end();
                    readers[at] = reader;
                }
                // A view of before what comes next.
                (_, None) => readers[at] = Some((Reader::new(&index, (a.min(b), a.max(b) + 1500)), index.view())),
                (_, Some((mut reader, view))) => {
                    reader.step(&index.slot, &view);
                    if reader.reading.is_done() {
                        prop_assert!(reader.seen.contains(&rows(&reader.reading)), "{:?}", reader.seen);
                    } else {
                        readers[at] = Some((reader, index.view()));
                    }
                }
            }
        }
        index.end();
        for (mut reader, _) in readers.into_iter().flatten() {
            let found = reader.finish(&index);
            prop_assert!(reader.seen.contains(&found), "{found} of {:?}", reader.seen);
        }
        prop_assert_eq!(Reader::new(&index, ALL).finish(&index), index.count(ALL));
    }
}
