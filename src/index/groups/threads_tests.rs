//! Reductions by threads beside the commits of rows: a model of their interleavings.

use std::collections::BTreeMap;

use shuttle::future::block_on;
use shuttle::thread;

use super::tests::{Counted, key};
use super::*;
use crate::index::write;
use crate::world::lock;
use crate::world::model::{check, check_finds};
use crate::world::sync::{Mistake, Mutex};

/// Groups of rows, and rows of each: enough to be kept as a whole.
const GROUPS: u64 = 3;
const ROWS: u32 = 3;

/// What is committed: the rows and where the index stands.
type Stored = (BTreeMap<Vec<u8>, Vec<u8>>, Stand);

#[derive(Clone)]
struct Index {
    slot: Arc<Slot>,
    stored: Arc<Mutex<Stored>>,
}

fn sort(group: u64) -> Vec<u8> {
    let mut sort = Vec::new();
    Collator::new().sort_key(&Value::from(group), &mut sort);
    sort
}

fn place(group: u64, row: u32) -> Vec<u8> {
    keys::place(&sort(group), "doc", row)
}

fn row(group: u64, value: i64) -> Vec<u8> {
    Row::encode(sort(group).len(), group.to_string().as_bytes(), value.to_string().as_bytes())
}

impl Index {
    fn new() -> Index {
        let rows = (0..GROUPS).flat_map(|group| (0..ROWS).map(move |n| (key(&place(group, n)), row(group, 10))));
        Index { slot: Arc::default(), stored: Arc::new(Mutex::new((rows.collect(), (1, 0)))) }
    }

    /// Moves a part of a row's value to a row of another group, as a build does.
    fn write(&self, from: u64, to: u64, by: i64) {
        let slots = [Arc::clone(&self.slot)];
        let alone = block_on(self.slot.commits.write());
        let stand = lock(&self.stored).1;
        write::begin(&slots, vec![Some(stand)]);
        {
            let mut stored = lock(&self.stored);
            stored.0.insert(key(&place(from, 0)), row(from, 10 - by));
            stored.0.insert(key(&place(to, 0)), row(to, 10 + by));
            stored.1.0 += 1;
        }
        let places = vec![place(from, 0), place(to, 0)];
        write::end(&slots, Some(&[Some((Header::default(), places))]));
        drop(alone);
    }

    /// The sums of all groups, read in steps of one group.
    fn read(&self) -> Vec<f64> {
        let collator = Collator::new();
        let by = GroupBy { grouping: Grouping::Exact, reduce: Reduce::Sum, direction: Direction::Forward, prefix: 0 };
        let empty = Partial::empty(&by.reduce, &collator).unwrap();
        let moment = self.slot.sums(|sums| sums.moment());
        let mut reading = Reading::with(by, collator, empty, [Places::all(b"")].into(), (10, moment));
        reading.step_rows = 2;
        let mut alone = None;
        while !reading.is_done() {
            block_on(reading.single.before_step(&self.slot, &mut alone));
            let (rows, stand) = lock(&self.stored).clone();
            let view = Counted { rows, ..Counted::default() };
            let range = |places: &Places| crate::storage::KeyRange {
                start: key(&places.low),
                end: Some(places.high.as_deref().map_or_else(|| key(&[0xff; 9]), key)),
            };
            reading.step(&view, &self.slot, &range, &|| Ok(Some(stand))).unwrap();
        }
        let page = reading.page().unwrap();
        page.groups
            .into_iter()
            .map(|group| String::from_utf8_lossy(&group.sum.finish().to_vec()).parse().unwrap())
            .collect()
    }
}

fn reductions_beside_writes() {
    let index = Index::new();
    let all = f64::from(10 * ROWS) * GROUPS as f64;
    let (writer, reader) = (index.clone(), index.clone());
    let read = move |index: &Index| {
        let sums = index.read();
        assert_eq!(sums.iter().sum::<f64>(), all, "{sums:?} are of two moments");
    };
    let threads = [
        thread::spawn(move || {
            writer.write(0, 2, 1);
            writer.write(2, 0, 2);
        }),
        thread::spawn(move || (0..2).for_each(|_| read(&reader))),
    ];
    read(&index);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(index.read(), [32.0, 30.0, 28.0], "what is kept is of the rows that there are");
}

#[test]
fn a_reduction_is_of_one_moment_whatever_threads_do() {
    check(reductions_beside_writes);
}

#[test]
fn the_model_of_reductions_finds_one_of_two_moments() {
    check_finds(Mistake::StateNotSeen, reductions_beside_writes);
}

#[test]
fn the_model_of_reductions_finds_a_moment_that_is_noted_late() {
    check_finds(Mistake::MomentNotedLate, reductions_beside_writes);
}
