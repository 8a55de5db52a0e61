//! Groups of rows of one view of one replica with their built-in reductions, in bounded steps; and the number of rows
//! of a range, which is a reduction, too.
//!
//! Promises: a page of groups is of one state of the rows, however many steps it takes (`single_state.rs`). Where a
//! page has to begin again, most of it is in memory as sums of blocks by then. Pages that name the state of the first
//! one are of that state (`states.rs`); they use sums of blocks as long as these are of it, and else read the rows.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::keys::{self, Places};
use super::pass::{Pass, RowRange, Tail};
use super::read::{self, RowPage};
use super::record::{Header, Row};
use super::reduce::{Grouping, InvalidValue, Partial, Reduce};
use super::single_state::SingleState;
use super::states::{Hold, Patience, StateOf};
use super::steps::Stride;
use super::sums::{Stand, Sums, Walk};
use super::{IndexError, Slot, ViewIndex};
use crate::document::collate::{Collator, HIGHEST};
use crate::document::json::Value;
use crate::limits;
use crate::shard::{ShardError, ShardId, ShardReplica};
use crate::storage::{Direction, LastingView, StorageError, View};
use crate::world::Pool;
use crate::world::buggify::{Mutation, capped, fewer, mutated};

/// How rows are grouped and reduced.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupBy {
    /// What makes a group.
    pub grouping: Grouping,
    /// A built-in function.
    pub reduce: Reduce,
    /// The order in which groups are read.
    pub direction: Direction,
    /// Bytes of the partition in places.
    pub prefix: usize,
}

/// The rows of a group on one replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupPart {
    /// Tells groups apart, in their order.
    pub mark: Vec<u8>,
    /// The key shown.
    pub key: Value,
    /// The place of the first row in the direction of reading; of what holds all rows, nothing.
    pub first: Vec<u8>,
    /// The reduction of its rows.
    pub sum: Partial,
}

/// Groups in the order asked for, and what is left to read.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct GroupPage {
    /// The groups; of each all rows.
    pub groups: Vec<GroupPart>,
    /// Nothing at the end.
    pub rest: VecDeque<Places>,
    /// The number under which the state of the page is held for those that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
}

/// What is read and what was read.
struct Reading {
    by: GroupBy,
    collator: Collator,
    empty: Partial,
    places: VecDeque<Places>,
    /// All that was to be read.
    all: VecDeque<Places>,
    open: Option<Box<(GroupPart, Walk)>>,
    groups: Vec<GroupPart>,
    limit: usize,
    /// Rows of one step.
    step_rows: usize,
    /// Bytes of memory of the groups, about.
    bytes: usize,
    /// The state of the rows that it is of.
    single: SingleState,
    failed: Option<InvalidValue>,
    /// Rows that the scan of a count may read along.
    tail: Option<Tail>,
    /// When its state is to be held once it is done.
    hold: Option<Hold>,
    /// The view that its last step has read, where it is.
    lasting: Option<LastingView>,
}

impl ViewIndex {
    /// Reads on until nothing is left to do, and holds the state where pages follow.
    async fn read_on(&self, mut reading: Box<Reading>) -> Result<GroupPage, IndexError> {
        let mut patience = Patience::default();
        loop {
            let mut alone = None;
            while !reading.is_done() {
                reading.single.before_step(&self.slot, &mut alone).await;
                reading = self.replica.read_records(Pool::Foreground, self.reading_step(reading)).await?;
            }
            drop(alone);
            let (Some(hold), Some(lasting)) = (reading.hold, reading.lasting.take()) else { return reading.page() };
            if self.hold(hold.number, (lasting, reading.single.state), &mut patience).await? {
                return Ok(GroupPage { held: Some(hold.number), ..reading.page()? });
            }
            reading.begin_anew();
        }
    }

    /// The next groups of a state that is held.
    async fn held_groups(
        &self,
        number: u64,
        by: &GroupBy,
        places: VecDeque<Places>,
        limit: usize,
    ) -> Result<GroupPage, IndexError> {
        let held = self.held(number)?;
        let Some(empty) = Partial::empty(&by.reduce, &self.collator) else { return Ok(GroupPage::default()) };
        let mut reading = Reading::new(by.clone(), empty, self, places, limit);
        reading.single = SingleState::of_held(held.state);
        while !reading.is_done() {
            let (held, signature) = (Arc::clone(&held), self.definition.signature);
            let step = move |shard| {
                reading.step(held.view(), &held.slot, &|places| places.range(shard, signature), &|| Ok(None))?;
                Ok(reading)
            };
            reading = self.replica.read_held(step).await?;
        }
        reading.page()
    }

    /// The next bounded step of a reading.
    fn reading_step(
        &self,
        mut reading: Box<Reading>,
    ) -> impl FnOnce(&dyn View, ShardId) -> Result<Box<Reading>, StorageError> + use<> {
        let (slot, signature) = (Arc::clone(&self.slot), self.definition.signature);
        move |view, shard| {
            let stand = || Header::stand_in(view, (shard, signature));
            reading.step(view, &slot, &|places| places.range(shard, signature), &stand)?;
            Ok(reading)
        }
    }

    /// [`groups_of`] this index alone, of any state.
    ///
    /// # Errors
    /// As there, and [`IndexError::StateGone`].
    pub async fn groups(
        &self,
        by: &GroupBy,
        places: VecDeque<Places>,
        limit: usize,
        of: StateOf,
    ) -> Result<GroupPage, IndexError> {
        match of {
            StateOf::Held(number) if !mutated(Mutation::HeldStatePassedOver) => {
                self.held_groups(number, by, places, limit).await
            }
            // Invariant: one answer for each index.
            _ => groups_of(by, vec![(self, places)], limit, of.hold()).await.pop().expect("an answer"),
        }
    }

    /// How many rows there are in `places`.
    pub async fn count(&self, places: Places) -> Result<u64, ShardError> {
        // Invariant: one answer for each index.
        count_of(&[self], &places).await.pop().expect("an answer")
    }
}

/// The next groups of the indexes that one view has on this node, in their order: of each at most `limit` of its
/// places, and about `limits::REDUCED_BYTES`, of one state of the rows. The places stand in the order of reading. A
/// script's function has none here. `hold`: when the states are held for pages that follow.
///
/// # Errors
/// [`IndexError::Refused`] for a value that the function does not take, [`IndexError::StatesFull`], or that an index
/// could not be read.
pub async fn groups_of(
    by: &GroupBy,
    reads: Vec<(&ViewIndex, VecDeque<Places>)>,
    limit: usize,
    hold: Option<Hold>,
) -> Vec<Result<GroupPage, IndexError>> {
    let collator = reads.first().map(|(index, _)| &index.collator);
    let Some(empty) = collator.and_then(|collator| Partial::empty(&by.reduce, collator)) else {
        return reads.iter().map(|_| Ok(GroupPage::default())).collect();
    };
    let indexes: Vec<&ViewIndex> = reads.iter().map(|(index, _)| *index).collect();
    load_sums_of(&indexes).await;
    // The first row of each group is looked for.
    let inline = read::are_few(&reads) && (by.grouping == Grouping::All || limit <= limits::INLINE_GROUPS);
    let begin = |(index, places): (&ViewIndex, VecDeque<Places>)| {
        let mut reading = Reading::new(by.clone(), empty.clone(), index, places, limit);
        reading.hold = hold;
        (index.replica.clone(), index.reading_step(reading))
    };
    let begun = ShardReplica::read_records_of(reads.into_iter().map(begin).collect(), inline).await;
    let pages = finished(&indexes, begun).await;
    indexes.iter().for_each(|index| index.store_sums_later());
    pages
}

/// The pages of readings that have done their first step. Most are done with it; the others go on side by side, those
/// whose states are to be held among them.
async fn finished(
    indexes: &[&ViewIndex],
    begun: Vec<Result<Box<Reading>, ShardError>>,
) -> Vec<Result<GroupPage, IndexError>> {
    let (mut pages, mut rest) = (Vec::with_capacity(begun.len()), Vec::new());
    for (index, begun) in indexes.iter().zip(begun) {
        match begun {
            Ok(reading) if !reading.is_done() || reading.lasting.is_some() => {
                pages.push(None);
                rest.push(index.read_on(reading));
            }
            begun => pages.push(Some(begun.map_err(IndexError::from).and_then(|reading| reading.page()))),
        }
    }
    let mut late = join_all(rest).await.into_iter();
    // Invariant: each reading that went on has one page here.
    pages.into_iter().map(|page| page.or_else(|| late.next()).expect("a page for each reading")).collect()
}

/// How many rows of each of several indexes of this node lie in `places`.
pub async fn count_of(indexes: &[&ViewIndex], places: &Places) -> Vec<Result<u64, ShardError>> {
    let by = GroupBy { grouping: Grouping::All, reduce: Reduce::Count, direction: Direction::Forward, prefix: 0 };
    let reads = indexes.iter().map(|index| (*index, VecDeque::from([places.clone()]))).collect();
    groups_of(&by, reads, 1, None).await.into_iter().map(counted).collect()
}

/// [`count_of`] and [`rows_of`] at once: how many rows lie in `before`, and the first rows to read, of one moment each.
/// Where the rows follow those before them one scan finds both.
///
/// # Errors
/// That an index could not be read.
pub async fn counted_rows_of(
    before: &Places,
    reads: Vec<(&ViewIndex, VecDeque<Places>)>,
    direction: Direction,
    limit: usize,
) -> Vec<Result<(u64, RowPage), ShardError>> {
    let by = GroupBy { grouping: Grouping::All, reduce: Reduce::Count, direction: Direction::Forward, prefix: 0 };
    let indexes: Vec<&ViewIndex> = reads.iter().map(|(index, _)| *index).collect();
    load_sums_of(&indexes).await;
    let inline = read::are_few(&reads);
    let begin = |(index, places): (&ViewIndex, VecDeque<Places>)| {
        let mut reading = Reading::new(by.clone(), Partial::of_rows(0), index, VecDeque::from([before.clone()]), 1);
        reading.tail = Tail::of(before, &places, direction, limit);
        let (count, signature) = (index.reading_step(reading), index.definition.signature);
        let both = move |view: &dyn View, shard: ShardId| {
            let mut count = count(view, shard)?;
            let page = match count.tail.take().and_then(Tail::into_page) {
                Some(page) => page,
                None => read::step(view, (shard, signature), places, direction, limit)?,
            };
            Ok((count, page))
        };
        (index.replica.clone(), both)
    };
    let both = ShardReplica::read_records_of(reads.into_iter().map(begin).collect(), inline).await;
    let part = |both: Result<(Box<Reading>, RowPage), ShardError>| match both {
        Ok((count, page)) => (Ok(count), Ok(page)),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    let (begun, pages): (Vec<_>, Vec<_>) = both.into_iter().map(part).unzip();
    let counts = finished(&indexes, begun).await;
    indexes.iter().for_each(|index| index.store_sums_later());
    counts.into_iter().zip(pages).map(|(count, page)| Ok((counted(count)?, page?))).collect()
}

/// There is something to wait for only once after a start. An index that cannot be read says so when it is read.
async fn load_sums_of(indexes: &[&ViewIndex]) {
    let unread = indexes.iter().filter(|index| index.slot.sums(|sums| sums.is_unread()));
    let loads: Vec<_> = unread.map(|index| index.load_sums()).collect();
    drop(join_all(loads).await);
}

/// What a count found.
fn counted(page: Result<GroupPage, IndexError>) -> Result<u64, ShardError> {
    match page {
        Ok(page) => Ok(page.groups.first().map_or(0, |group| group.sum.rows)),
        Err(IndexError::Shard(error)) => Err(error),
        // Rows are counted whatever they hold.
        Err(_) => Ok(0),
    }
}

impl Reading {
    fn new(by: GroupBy, empty: Partial, index: &ViewIndex, places: VecDeque<Places>, limit: usize) -> Box<Reading> {
        let (collator, moment) = (index.collator.clone(), index.slot.sums(|sums| sums.moment()));
        Box::new(Reading::with(by, collator, empty, places, (limit, moment)))
    }

    fn with(
        by: GroupBy,
        collator: Collator,
        empty: Partial,
        places: VecDeque<Places>,
        (limit, moment): (usize, u64),
    ) -> Reading {
        Reading {
            by,
            collator,
            empty,
            all: places.clone(),
            places,
            open: None,
            groups: Vec::new(),
            limit,
            step_rows: limits::STEP_ROWS,
            bytes: 0,
            single: SingleState::new(moment),
            failed: None,
            tail: None,
            hold: None,
            lasting: None,
        }
    }

    /// Forgets what was read.
    fn begin_anew(&mut self) {
        (self.places, self.open, self.bytes) = (self.all.clone(), None, 0);
        self.groups.clear();
    }

    /// Whether its state is to be held: it is done, and pages may follow.
    fn holds(&self) -> bool {
        let (is_full, is_last) = (self.groups.len() >= self.limit, self.places.is_empty());
        self.failed.is_none() && self.is_done() && self.hold.is_some_and(|hold| hold.is_due(is_full, is_last))
    }

    /// What was read, once it is done.
    fn page(self) -> Result<GroupPage, IndexError> {
        match self.failed {
            Some(error) => Err(IndexError::Refused(error)),
            None => Ok(GroupPage { groups: self.groups, rest: self.places, held: None }),
        }
    }

    fn is_done(&self) -> bool {
        let has_room = self.groups.len() < self.limit && self.bytes < limits::REDUCED_BYTES;
        let full = self.places.is_empty() || !has_room;
        self.failed.is_some() || self.open.is_none() && full
    }

    /// Reads on until a bound of one step.
    fn step(
        &mut self,
        view: &dyn View,
        slot: &Slot,
        range: RowRange<'_>,
        stand: &dyn Fn() -> Result<Option<Stand>, StorageError>,
    ) -> Result<(), StorageError> {
        if !self.single.enter(slot, stand)? {
            self.begin_anew();
        }
        let most = capped("index: rows of a step of a reduction", self.step_rows);
        let mut left = fewer("index: a reduction in many steps", most);
        while left > 0 && !self.is_done() {
            left -= 1;
            match self.open.take() {
                None => {
                    let Some((group, mut walk)) = self.begin_group(view, range)? else { continue };
                    let by = (&self.by.reduce, self.by.grouping);
                    match slot.sums(|sums| walk.take_whole(sums, by, &self.empty)) {
                        true => self.add(GroupPart { sum: walk.sum, ..group }),
                        false => self.open = Some(Box::new((group, walk))),
                    }
                }
                Some(mut open) => {
                    let mut tail = self.tail.take();
                    let walked = self.walk_on(view, slot, range, (&mut open.1, tail.as_mut()), &mut left)?;
                    self.tail = tail;
                    match walked {
                        Ok(true) => {
                            let (group, walk) = *open;
                            // With rows behind, a scan is needed whatever is kept of those before.
                            if self.tail.is_none() {
                                slot.sums(|sums| walk.keep_whole(sums, (&self.by.reduce, self.by.grouping)));
                            }
                            if walk.sum.rows > 0 {
                                self.add(GroupPart { sum: walk.sum, ..group });
                            }
                        }
                        Ok(false) => self.open = Some(open),
                        Err(error) => self.failed = Some(error),
                    }
                }
            }
        }
        if self.holds() {
            self.lasting = view.lasting(&range(&Places::all(b"")))?;
        }
        Ok(())
    }

    fn add(&mut self, group: GroupPart) {
        let sum = match self.by.reduce {
            Reduce::Distinct | Reduce::Top(_) | Reduce::Bottom(_) => limits::LARGE_SUM_BYTES,
            _ => group.sum.bytes() + size_of::<Partial>(),
        };
        self.bytes += sum + group.mark.len() + group.first.len();
        self.groups.push(group);
    }

    /// Finds the first row of the next group and where the group ends. What holds all rows begins and ends where it is
    /// looked for, and may have none.
    fn begin_group(&mut self, view: &dyn View, range: RowRange<'_>) -> Result<Option<(GroupPart, Walk)>, StorageError> {
        let Some(places) = self.places.pop_front() else { return Ok(None) };
        if self.by.grouping == Grouping::All {
            let group = GroupPart { mark: Vec::new(), key: Value::Null, first: Vec::new(), sum: self.empty.clone() };
            return Ok(Some((group, Walk::new(places.low, places.high, &self.empty, self.single.state))));
        }
        let mut first = None;
        if !places.is_empty() {
            view.scan(&range(&places), self.by.direction, &mut |key, value| {
                first = Some(Row::decode(&key[keys::PREFIX..], value));
                ControlFlow::Break(())
            })?;
        }
        let Some(first) = first.transpose()? else { return Ok(None) };
        let (mark, key) = self.by.grouping.group_of(&first, &self.collator, self.by.prefix);
        let whole = bounds(&self.by, &first, &key, &self.collator);
        let low = whole.low.max(places.low.clone());
        let high = match (whole.high, &places.high) {
            (Some(a), Some(b)) => Some(a.min(b.clone())),
            (a, b) => a.or(b.clone()),
        };
        let rest = match self.by.direction {
            Direction::Forward => high.clone().map(|low| Places { low, high: places.high }),
            Direction::Reverse => Some(Places { low: places.low, high: Some(low.clone()) }),
        };
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            self.places.push_front(rest);
        }
        let group = GroupPart { mark, key, first: first.place, sum: self.empty.clone() };
        Ok(Some((group, Walk::new(low, high, &self.empty, self.single.state))))
    }

    /// Goes on from where the walk stands, first by what is known and then by one scan; true at the end.
    fn walk_on(
        &self,
        view: &dyn View,
        slot: &Slot,
        range: RowRange<'_>,
        (walk, tail): (&mut Walk, Option<&mut Tail>),
        left: &mut usize,
    ) -> Result<Result<bool, InvalidValue>, StorageError> {
        let (reduce, empty) = (&self.by.reduce, &self.empty);
        let begin = |sums: &mut Sums| -> Result<Option<Option<Stride>>, InvalidValue> {
            let more = walk.jump(sums, reduce, empty)?;
            more.map(|()| walk.stride(sums, reduce)).transpose()
        };
        let stride = match slot.sums(begin) {
            Ok(Some(stride)) => stride,
            Ok(None) => return Ok(Ok(true)),
            Err(error) => return Ok(Err(error)),
        };
        if walk.high.as_ref().is_some_and(|high| *high <= walk.at) {
            return Ok(Ok(true));
        }
        let mut pass = Pass { slot, reduce, empty, walk, stride, tail, run: empty.clone(), count: 0 };
        let done = pass.scan(view, range)?;
        *left = left.saturating_sub(pass.count);
        Ok(done)
    }
}

/// The places of all rows of the group that `first` belongs to.
fn bounds(by: &GroupBy, first: &Row, key: &Value, collator: &Collator) -> Places {
    let behind = |low: Vec<u8>, after: &[u8]| Places { high: Some([&low, after].concat()), low };
    match (by.grouping, key) {
        (Grouping::Level(level), Value::Array(elements)) if elements.len() == level => {
            let mut low = first.place[..by.prefix.min(first.place.len())].to_vec();
            collator.array_prefix(elements, &mut low);
            behind(low, HIGHEST)
        }
        // A zero byte follows the sort key in the place of every row with this key.
        _ => behind(first.sort().to_vec(), &[1]),
    }
}

#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod threads_tests;
#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::index::sums::levels_at;
    use crate::storage::KeyRange;

    /// Rows by their keys; counts those that were read, and the scans.
    #[derive(Default)]
    pub(super) struct Counted {
        pub(super) rows: BTreeMap<Vec<u8>, Vec<u8>>,
        pub(super) read: Cell<u64>,
        pub(super) scans: Cell<u64>,
    }

    impl View for Counted {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
            Ok(self.rows.get(key).cloned())
        }

        fn scan(
            &self,
            range: &KeyRange,
            direction: Direction,
            visit: &mut (dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + '_),
        ) -> Result<(), StorageError> {
            assert_eq!(direction, Direction::Forward);
            self.scans.set(self.scans.get() + 1);
            for (key, value) in self.rows.iter().filter(|(key, _)| range.contains(key)) {
                self.read.set(self.read.get() + 1);
                if visit(key, value).is_break() {
                    break;
                }
            }
            Ok(())
        }
    }

    impl Counted {
        pub(super) fn of(numbers: impl IntoIterator<Item = u32>) -> Counted {
            let rows = numbers.into_iter().map(|n| (key(&place(n)), Row::encode(1, b"1", b"2"))).collect();
            Counted { rows, ..Counted::default() }
        }

        /// A row comes or goes.
        fn turn(&mut self, slot: &Slot, n: u32) {
            slot.sums(|sums| sums.begin_write(None));
            if self.rows.remove(&key(&place(n))).is_none() {
                self.rows.insert(key(&place(n)), Row::encode(1, b"1", b"2"));
            }
            slot.sums(|sums| sums.end_write(Some((false, &[place(n)]))));
        }
    }

    pub(super) fn place(n: u32) -> Vec<u8> {
        [b"place ".as_slice(), &n.to_be_bytes()].concat()
    }

    pub(super) fn key(place: &[u8]) -> Vec<u8> {
        [&[b'r'; keys::PREFIX], place].concat()
    }

    /// Counts the rows before a place, and may read a tail along.
    fn read(view: &Counted, slot: &Slot, high: Vec<u8>, tail: Option<(Option<Vec<u8>>, usize)>) -> Reading {
        let (collator, moment) = (Collator::new(), slot.sums(|sums| sums.moment()));
        let by = GroupBy { grouping: Grouping::All, reduce: Reduce::Count, direction: Direction::Forward, prefix: 0 };
        let empty = Partial::empty(&by.reduce, &collator).unwrap();
        let counted = Places { low: Vec::new(), high: Some(high.clone()) };
        let tail = tail.and_then(|(end, limit)| {
            let places = VecDeque::from([Places { low: high, high: end }]);
            Tail::of(&counted, &places, Direction::Forward, limit)
        });
        let mut reading = Reading::with(by, collator, empty, VecDeque::from([counted]), (1, moment));
        reading.tail = tail;
        view.read.set(0);
        view.scans.set(0);
        let range = |places: &Places| KeyRange { start: key(&places.low), end: places.high.as_deref().map(key) };
        while !reading.is_done() {
            reading.step(view, slot, &range, &|| Ok(None)).unwrap();
        }
        reading
    }

    pub(super) fn rows(reading: &Reading) -> u64 {
        reading.groups.first().map_or(0, |group| group.sum.rows)
    }

    /// How many rows lie before a place, and how many were read for that.
    fn before(view: &Counted, slot: &Slot, high: Vec<u8>) -> (u64, u64) {
        (rows(&read(view, slot, high, None)), view.read.get())
    }

    #[test]
    fn counts_within_a_block_read_few_of_its_rows() {
        let slot = Slot::default();
        // No block begins within these.
        let numbers: Vec<u32> = (0..3000).filter(|n| levels_at(&place(*n)) == 0).collect();
        let mut view = Counted::of(numbers.iter().copied());
        let last = numbers[numbers.len() - 2];
        let all = numbers.len() as u64 - 2;
        assert_eq!(before(&view, &slot, place(last)), (all, all));
        for at in [7, 100, 101, 500, 901] {
            let (rows, read) = before(&view, &slot, place(numbers[at]));
            assert_eq!(rows, at as u64);
            assert!(read <= 2, "{read} rows read to count {at}");
        }
        view.turn(&slot, numbers[3]);
        assert_eq!(before(&view, &slot, place(numbers[500])).0, 499);
    }

    #[test]
    fn rows_of_which_nothing_is_known_are_read_in_one_scan_however_many_blocks_they_are() {
        let (view, slot) = (Counted::of(0..900), Slot::default());
        assert_eq!(before(&view, &slot, place(900)), (900, 900));
        assert_eq!(view.scans.get(), 1);
        let (rows, read) = before(&view, &slot, place(700));
        assert!(rows == 700 && read < 20, "{read} rows read");
    }

    #[test]
    fn the_first_rows_come_with_the_count_of_those_before_them() {
        let (view, slot) = (Counted::of(0..900), Slot::default());
        for (at, end, limit, last, rest) in
            [(300, Some(310), 50, 310, false), (301, None, 5, 306, true), (899, None, 5, 900, false)]
        {
            let high: Option<Vec<u8>> = end.map(place);
            let mut reading = read(&view, &slot, place(at), Some((high.clone(), limit)));
            assert_eq!(rows(&reading), u64::from(at));
            let page = reading.tail.take().and_then(Tail::into_page);
            // Where a count needs no row, the rows are read by themselves.
            let Some(page) = page else { continue };
            let places: Vec<Vec<u8>> = page.rows.into_iter().map(|row| row.place).collect();
            assert_eq!(places, (at..last).map(place).collect::<Vec<_>>());
            let left = Places { low: Vec::new(), high }.behind(&place(last - 1), Direction::Forward);
            assert_eq!(page.rest, if rest { vec![left] } else { Vec::new() });
        }
        let reading = read(&view, &slot, place(503), Some((None, 2)));
        assert!(rows(&reading) == 503 && view.scans.get() <= 2 && view.read.get() < 10, "{} rows", view.read.get());
        assert!(Tail::of(&Places::all(b""), &[Places::all(b"")].into(), Direction::Forward, 1).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn counts_and_rows_read_along_are_those_of_the_view(
            numbers in prop::collection::btree_set(0_u32..300, 0..200),
            steps in prop::collection::vec((0_u32..310, prop::option::of(0_u32..40), 1_usize..30, 0_u32..600), 1..40),
        ) {
            let (mut view, slot) = (Counted::of(numbers.iter().copied()), Slot::default());
            let mut numbers: BTreeSet<u32> = numbers;
            for (at, length, limit, turned) in steps {
                // Half of the steps write, too.
                if turned < 300 {
                    view.turn(&slot, turned);
                    let _ = numbers.remove(&turned) || numbers.insert(turned);
                }
                let end = length.map(|length| place(at + length));
                let mut reading = read(&view, &slot, place(at), Some((end, limit)));
                prop_assert_eq!(rows(&reading), numbers.range(..at).count() as u64);
                let inside = numbers.range(at..).filter(|n| length.is_none_or(|length| **n < at + length));
                let inside: Vec<Vec<u8>> = inside.map(|n| place(*n)).collect();
                if let Some(page) = reading.tail.take().and_then(Tail::into_page) {
                    let read: Vec<Vec<u8>> = page.rows.into_iter().map(|row| row.place).collect();
                    let whole = read.len() == inside.len();
                    prop_assert!(inside.starts_with(&read) && (whole || read.len() == limit));
                    prop_assert!(whole || page.rest.iter().any(|rest| rest.low > read[limit - 1]));
                }
            }
        }
    }
}
