//! The memtables of a node, one per store file, and the decisions about them: which is frozen, when writers wait.
//!
//! Pure: this module does not touch the disk. A table holds the shards of its file in key order, so a shard's memtable
//! is a range of it: a hundred thousand small shards cost their rows and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdSet;

use super::held::{Held, HeldFiles};
use super::journal::{Notes, Position};
use super::kv::{Batch, KeyRange, StorageError};
use super::layout::{FileId, Layout};
use super::memtable::{Entry, Memtable};
use super::planted::{Bug, Planted};
use super::reserved;
use crate::limits;
use crate::world::buggify::{fewer, sometimes};
use crate::world::sync::{Mistake, mistaken};

/// The sizes that rule flushes and back pressure, in bytes; all follow from the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// A memtable of this size is frozen and flushed.
    pub flush_at: usize,
    /// Writes wait while all memtables together are this large.
    pub memtables: usize,
    /// A journal segment of this size is closed.
    pub segment: u64,
    /// Writes wait while the journal's closed segments are this large.
    pub journal: u64,
}

impl Budget {
    pub(super) fn new(flush_at: usize) -> Budget {
        let journal = (flush_at * limits::JOURNAL_FLUSHES).min(limits::JOURNAL_BYTES);
        Budget {
            flush_at,
            memtables: flush_at * limits::MEMTABLES_FLUSHES,
            segment: (flush_at as u64).min(limits::JOURNAL_SEGMENT_BYTES),
            journal: journal as u64,
        }
    }

    /// The bytes of the journal while nothing can be flushed to some file: the replica in its place has to be written.
    pub(super) fn journal_beside_damage(&self) -> u64 {
        self.journal * 2
    }
}

/// Writes of a range of positions. A copy is a picture and costs nothing.
#[derive(Clone, Default)]
pub(super) struct Layer {
    pub rows: Memtable,
    /// Shards of which nothing below this layer counts.
    pub cleared: OrdSet<u64>,
    /// The first and last position in it.
    pub first: Position,
    pub last: Position,
    /// As many as there are copies.
    copies: Arc<()>,
}

impl Layer {
    /// These rows, written at these positions.
    pub(super) fn of(rows: Memtable, (first, last): (Position, Position)) -> Layer {
        Layer { rows, first, last, ..Layer::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.cleared.is_empty()
    }

    fn touch(&mut self, position: Position) {
        if self.is_empty() {
            self.first = position;
        }
        self.last = position;
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.rows.bytes() + self.cleared.len() * limits::MEMTABLE_ENTRY_BYTES
    }
}

/// What is committed to the shards of one file and not in the file.
#[derive(Default)]
pub(super) struct FileTable {
    pub active: Layer,
    pub frozen: Option<Layer>,
    /// A flush of the file runs.
    pub flushing: bool,
    /// Why nothing can be flushed to it any more: it is damaged, and marked as being flushed for good.
    pub stuck: Option<StorageError>,
    /// The file holds everything written to its shards up to this position, durably, as far as known.
    pub position: Position,
    /// Changes with each freeze, so that a reader can tell whether the file may have changed under it.
    pub stamp: u64,
    /// The file was looked through for shards that have moved out.
    pub swept: bool,
    /// For the planted bug `HalfBatch`: the active rows in the middle of the last group.
    half: Option<Memtable>,
}

/// A picture of the memtables of a file.
#[derive(Default)]
pub(super) struct Layers {
    pub active: Layer,
    pub frozen: Option<Layer>,
}

impl Layers {
    /// Whether nobody else has a copy of one of them: to drop it frees all its rows.
    pub(super) fn is_last(&self) -> bool {
        let is_last = |layer: &Layer| !layer.rows.is_empty() && Arc::strong_count(&layer.copies) == 1;
        is_last(&self.active) || self.frozen.as_ref().is_some_and(is_last)
    }

    /// Those with the rows of `range` alone.
    pub(super) fn cut(&self, range: &KeyRange) -> Layers {
        let cut = |layer: &Layer| Layer { rows: layer.rows.cut(range), copies: Arc::default(), ..layer.clone() };
        Layers { active: cut(&self.active), frozen: self.frozen.as_ref().map(cut) }
    }

    /// Bytes of memory that they take, about.
    pub(super) fn bytes(&self) -> usize {
        self.active.bytes() + self.frozen.as_ref().map_or(0, Layer::bytes)
    }
}

/// Writes of a group that are applied at once.
pub(super) struct Part {
    writes: Vec<Entry>,
    /// For the planted bug `HalfBatch`: the first of the second half of the group, where that is here.
    half: Option<usize>,
}

/// What a large part of a group makes of a memtable, put together beside the readers.
pub(super) struct Aside {
    file: FileId,
    moves: u64,
    layer: Layer,
    /// For the planted bug `HalfBatch`.
    half: Option<Memtable>,
}

impl Aside {
    /// Takes in the writes of a part, each of which the journal holds durably.
    pub(super) fn apply(&mut self, position: Position, part: &Part) {
        for (n, entry) in part.writes.iter().enumerate() {
            if part.half == Some(n) {
                self.half = Some(self.layer.rows.clone());
            }
            self.layer.touch(position);
            self.layer.rows.set(entry.clone());
        }
    }
}

/// The parts of a group: whole shards, with few writes several of them. Each is put together when it is asked for.
pub(super) fn parts(batch: &Batch) -> impl Iterator<Item = Part> + '_ {
    let half = cfg!(feature = "sim").then_some(batch.writes().len() / 2);
    let (mut rest, mut scratch, mut taken) = (batch.writes().iter().peekable(), Vec::new(), 0);
    std::iter::from_fn(move || {
        let (mut writes, mut last) = (Vec::new(), None);
        let fits = |count: usize, last: Option<u64>, key: &[u8]| {
            count < limits::MEMTABLE_PART_WRITES || last == Some(reserved::shard_of(key))
        };
        while let Some((key, value)) = rest.next_if(|(key, _)| fits(writes.len(), last, key)) {
            last = Some(reserved::shard_of(key));
            writes.push(Entry::of(key, value.as_ref(), &mut scratch));
        }
        let begins_at = taken;
        taken += writes.len();
        let half = half.and_then(|half| half.checked_sub(begins_at)).filter(|half| *half < writes.len());
        (!writes.is_empty()).then_some(Part { writes, half })
    })
}

/// All memtables of a node.
pub(super) struct Tables {
    layout: Layout,
    /// The shards that have a file of their own.
    own: BTreeSet<u64>,
    files: BTreeMap<FileId, FileTable>,
    /// What the files are known to hold, those included that were not flushed to since the start.
    held: HeldFiles,
    /// The last position of a group.
    pub last: Position,
    /// Bytes of the journal's closed segments, kept up to date by its user.
    pub journal_bytes: u64,
    /// Why flushing has ended for good.
    pub failed: Option<StorageError>,
    /// Changes when rows go from one memtable to another, or with one.
    moves: u64,
    /// A part of a group is here and the rest is to come.
    taking_in: bool,
    stamps: u64,
    views: u32,
    /// What the memtables' entries are put together in.
    scratch: Vec<u8>,
}

impl Tables {
    pub(super) fn new(layout: Layout, files: &[FileId], notes: &Notes) -> Tables {
        let own = files.iter().filter_map(|id| if let FileId::Own(shard) = id { Some(*shard) } else { None });
        let (own, files) = (own.collect(), BTreeMap::new());
        let (journal_bytes, moves, stamps, views, scratch) = (0, 0, 0, 0, Vec::new());
        let (failed, taking_in) = (None, false);
        let (last, held) = (notes.settled, notes.held.clone());
        Tables { layout, own, files, held, last, journal_bytes, failed, moves, taking_in, stamps, views, scratch }
    }

    /// The file that a shard lives in.
    pub(super) fn home(&self, shard: u64) -> FileId {
        if self.own.contains(&shard) { FileId::Own(shard) } else { self.layout.shared_home(shard) }
    }

    /// The first shard from `from` on that has a file of its own, or the last one up to it.
    pub(super) fn next_own(&self, from: u64, forward: bool) -> Option<u64> {
        if forward { self.own.range(from..).next().copied() } else { self.own.range(..=from).next_back().copied() }
    }

    /// The shards that have moved out of a file.
    pub(super) fn moved_out_of(&self, file: FileId) -> Vec<u64> {
        self.own.iter().copied().filter(|shard| self.layout.shared_home(*shard) == file).collect()
    }

    pub(super) fn file(&mut self, file: FileId) -> &mut FileTable {
        self.files.entry(file).or_default()
    }

    /// Takes in the next part of a group that the journal holds durably. What belongs together is in one part: others
    /// may read between two. Nothing is frozen before [`Tables::end_group`]: a file would hold a part of the group and
    /// be known to hold all of it.
    pub(super) fn apply(&mut self, position: Position, part: Part) {
        assert!(position > self.last, "groups are applied in order, each once");
        self.taking_in = true;
        for (n, entry) in part.writes.into_iter().enumerate() {
            if part.half == Some(n) {
                self.note_half();
            }
            self.put(position, entry);
        }
    }

    fn note_half(&mut self) {
        self.files.values_mut().for_each(|table| table.half = Some(table.active.rows.clone()));
    }

    /// A picture of the memtable that a large part goes into, to be put together without holding readers up: nothing is
    /// frozen until it is back ([`Tables::replace`]). `None` for a part that is not large, or not of one shard only:
    /// that is to be applied.
    pub(super) fn aside(&mut self, part: &Part) -> Option<Aside> {
        let shard = reserved::shard_of(part.writes.first()?.key());
        let is_large =
            part.writes.len() >= fewer("memtable: a part of one write is large", limits::MEMTABLE_PART_WRITES);
        let is_of_one = || part.writes.iter().all(|entry| reserved::shard_of(entry.key()) == shard);
        if !is_large || shard == reserved::SHARD || !is_of_one() {
            return None;
        }
        self.taking_in = true;
        let file = self.home(shard);
        Some(Aside { file, moves: self.moves, layer: self.file(file).active.clone(), half: None })
    }

    /// Puts a memtable back into which the next part of a group has been taken; answers the one before, which is better
    /// dropped without the lock. The part is applied where rows have moved meanwhile.
    pub(super) fn replace(&mut self, position: Position, aside: Aside, part: Part) -> Option<Layer> {
        assert!(position > self.last, "groups are applied in order, each once");
        if self.moves != aside.moves && !mistaken(Mistake::MovesNotSeen) {
            sometimes("memtable: rows moved while a part was taken in");
            self.apply(position, part);
            return None;
        }
        if let Some(half) = aside.half {
            self.note_half();
            self.file(aside.file).half = Some(half);
        }
        Some(std::mem::replace(&mut self.file(aside.file).active, aside.layer))
    }

    /// A group has been applied.
    pub(super) fn end_group(&mut self, position: Position, journal_bytes: u64) {
        (self.last, self.taking_in, self.journal_bytes) = (position, false, journal_bytes);
    }

    /// Takes in one write of a group; of several of one key the last counts.
    pub(super) fn write(&mut self, position: Position, key: &[u8], value: Option<&[u8]>) {
        let entry = Entry::new(key, value, &mut self.scratch);
        self.put(position, entry);
    }

    fn put(&mut self, position: Position, entry: Entry) {
        let shard = reserved::shard_of(entry.key());
        if shard == reserved::SHARD {
            if let Some(shard) = reserved::cleared_shard(entry.key()) {
                self.clear(position, shard);
            }
            return;
        }
        let active = &mut self.files.entry(self.home(shard)).or_default().active;
        active.touch(position);
        active.rows.set(entry);
    }

    /// Takes in a write of a group that the journal still had at a start, unless its file is known to hold it. What it
    /// holds without being known to does no harm: the last write of each key is among those replayed.
    pub(super) fn replay(&mut self, position: Position, key: &[u8], value: Option<&[u8]>, notes: &Notes) {
        self.last = position;
        let shard = reserved::cleared_shard(key).unwrap_or_else(|| reserved::shard_of(key));
        if position > notes.position(self.home(shard)) {
            self.write(position, key, value);
        }
    }

    /// Makes everything written to a shard so far void, in its own file and in the one that it may have come from.
    fn clear(&mut self, position: Position, shard: u64) {
        for file in BTreeSet::from([self.home(shard), self.layout.shared_home(shard)]) {
            let table = self.file(file);
            if file == FileId::Own(shard) && table.stuck.is_some() {
                table.give_way();
            }
            let active = &mut table.active;
            active.touch(position);
            active.rows.take_range(&reserved::range_of(shard));
            active.cleared.insert(shard);
        }
    }

    /// Pictures of a file's memtables and the stamp that they were taken at. A planted bug shows half of the last group
    /// to every eighth reader.
    pub(super) fn picture(&mut self, file: FileId, planted: Option<Planted>) -> (Layers, u64) {
        self.views = self.views.wrapping_add(1);
        let halved = planted.is_some_and(|p| p.has(Bug::HalfBatch)) && self.views.is_multiple_of(8);
        let Some(table) = self.files.get(&file) else {
            return (Layers { active: Layer::default(), frozen: None }, 0);
        };
        let mut active = table.active.clone();
        if let Some(half) = table.half.clone().filter(|_| halved) {
            active.rows = half;
        }
        (Layers { active, frozen: table.frozen.clone() }, table.stamp)
    }

    /// Changes when the file of a reader's picture may have changed since.
    pub(super) fn stamp(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, |table| table.stamp)
    }

    /// Freezes what is due; answers whether anything was.
    pub(super) fn freeze(&mut self, budget: &Budget) -> bool {
        let mut any = false;
        // The one that takes a group in asks again behind it.
        while let Some(file) = self.due(budget).filter(|_| !self.taking_in) {
            self.freeze_file(file);
            any = true;
        }
        any
    }

    fn freeze_file(&mut self, file: FileId) {
        self.stamps += 1;
        let stamp = self.stamps;
        let table = self.file(file);
        table.frozen = Some(std::mem::take(&mut table.active));
        (table.half, table.stamp) = (None, stamp);
    }

    /// Marks a file as being flushed if it holds all up to `position` and nobody works on it; else freezes what it
    /// waits for.
    pub(super) fn begin_shrink(&mut self, file: FileId, position: Position) -> bool {
        let table = self.file(file);
        if table.flushing {
            return false;
        }
        if table.first_unsettled().is_none_or(|first| first > position) {
            table.flushing = true;
            return true;
        }
        if table.frozen.is_none() && !self.taking_in {
            self.freeze_file(file);
        }
        false
    }

    /// The next file whose memtable is to be frozen: a full one; the largest, when all together near their limit; the
    /// one that holds the journal back, when that is half full.
    fn due(&self, budget: &Budget) -> Option<FileId> {
        let ready = || self.files.iter().filter(|(_, t)| t.frozen.is_none() && !t.flushing && !t.active.is_empty());
        let (largest, table) = ready().max_by_key(|(_, t)| t.active.bytes())?;
        let unfrozen: usize = self.files.values().filter(|t| t.stuck.is_none()).map(|t| t.active.bytes()).sum();
        if table.active.bytes() >= budget.flush_at || unfrozen >= budget.memtables / 4 * 3 {
            return Some(*largest);
        }
        if self.journal_bytes < budget.journal / 2 {
            return None;
        }
        let oldest = self.files.values().filter_map(FileTable::first_unsettled).min()?;
        ready().find(|(_, t)| t.active.first == oldest).map(|(id, _)| *id)
    }

    /// A file with a frozen memtable that no flush works on, marked as being flushed; `None` also while enough run.
    pub(super) fn next_flush(&mut self) -> Option<FileId> {
        if self.files.values().filter(|t| t.flushing && t.stuck.is_none()).count() >= limits::FLUSHES_AT_ONCE {
            return None;
        }
        let (id, table) = self.files.iter_mut().find(|(_, t)| t.frozen.is_some() && !t.flushing)?;
        table.flushing = true;
        Some(*id)
    }

    /// Makes a file ready for its next flush.
    pub(super) fn flush_ended(&mut self, file: FileId) {
        if let Some(table) = self.files.get_mut(&file) {
            table.flushing = false;
        }
    }

    /// Notes that nothing can be flushed to the file of a shard any more; it stays marked as being flushed. False where
    /// the shard was cleared meanwhile: the file goes with the flush of that.
    pub(super) fn set_stuck(&mut self, shard: u64, why: StorageError) -> bool {
        let table = self.file(FileId::Own(shard));
        if table.active.cleared.contains(&shard) {
            table.give_way();
            return false;
        }
        table.stuck = Some(why);
        true
    }

    /// Whether a flush of a file, or other work on it, runs.
    pub(super) fn is_working_on(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|table| table.flushing && table.stuck.is_none())
    }

    /// Bytes of memory that cannot be flushed; `None` where all can.
    pub(super) fn held_back(&self) -> Option<usize> {
        self.files.values().filter(|table| table.stuck.is_some()).map(FileTable::bytes).reduce(|sum, bytes| sum + bytes)
    }

    /// Bytes of memory and of the journal within which writes go on. What cannot be flushed has as much room again
    /// beside the others: the copy that takes its place has to be written.
    pub(super) fn limits(&self, budget: &Budget) -> (usize, u64) {
        match self.held_back() {
            Some(held) => (budget.memtables + held.min(budget.memtables), budget.journal_beside_damage()),
            None => (budget.memtables, budget.journal),
        }
    }

    /// The file with the oldest writes that no file holds, where nothing can be flushed to it.
    pub(super) fn oldest_stuck(&self) -> Option<(FileId, &FileTable)> {
        let waiting = self.files.iter().filter_map(|(file, table)| Some((table.first_unsettled()?, *file, table)));
        let (_, file, table) = waiting.min_by_key(|(first, ..)| *first)?;
        table.stuck.is_some().then_some((file, table))
    }

    /// What waits for a file to which nothing can be flushed.
    pub(super) fn stuck_table(&mut self, file: FileId) -> Option<&mut FileTable> {
        self.files.get_mut(&file).filter(|table| table.stuck.is_some())
    }

    /// Gives up for good when nobody has room because of what cannot be flushed; every waiting writer is told of it
    /// then.
    pub(super) fn gives_up(&mut self, budget: &Budget) -> bool {
        let (held, (memtables, journal)) = (self.held_back().unwrap_or_default(), self.limits(budget));
        let memory_gone = held >= budget.memtables && self.bytes() >= memtables;
        let journal_gone = self.journal_bytes >= journal && self.holds_back(budget).is_none();
        let stuck = match (memory_gone, journal_gone) {
            (true, _) => self.files.values().find_map(|table| table.stuck.clone()),
            (_, true) => self.oldest_stuck().and_then(|(_, table)| table.stuck.clone()),
            _ => None,
        };
        let Some(why) = stuck else { return false };
        tracing::error!(error = %why, "a damaged file leaves no room: this node takes no more writes until a restart");
        self.failed = Some(why);
        true
    }

    /// Whether writes to a shard (`None`: to any) may go on. After a failure they may, to be told of it.
    pub(super) fn has_room(&self, shard: Option<u64>, budget: &Budget) -> bool {
        if self.failed.is_some() {
            return true;
        }
        let file = shard.and_then(|shard| self.files.get(&self.home(shard)));
        let (memtables, journal) = self.limits(budget);
        !file.is_some_and(|table| table.is_full(budget)) && self.bytes() < memtables && self.journal_bytes < journal
    }

    /// Why writes to a shard are refused: nothing can be flushed to its file, and there is no room to keep more for it.
    pub(super) fn refuses(&self, shard: u64, budget: &Budget) -> Option<StorageError> {
        let table = self.files.get(&self.home(shard))?;
        table.stuck.clone().filter(|_| table.is_full(budget))
    }

    /// Bytes of memory of all memtables, about.
    pub(super) fn bytes(&self) -> usize {
        self.files.values().map(FileTable::bytes).sum()
    }

    /// The position up to which every file holds everything: the journal is needed behind it only. `end`: the journal's
    /// last position, which is the answer when nothing waits.
    pub(super) fn settled(&self, end: Position, planted: Planted) -> Position {
        let first = |table: &FileTable| match planted.has(Bug::DropSegmentEarly) {
            true => table.active.first_position(),
            false => table.first_unsettled(),
        };
        self.files.values().filter_map(first).min().map_or(end, |first| first - 1)
    }

    /// What a new segment of the journal notes about the files.
    pub(super) fn notes(&self, settled: Position) -> Notes {
        let ahead = self.files.iter().filter(|(_, t)| t.position > settled);
        Notes::new(settled, ahead.map(|(id, t)| (*id, t.position))).with_held(self.held.clone())
    }

    /// A file holds what was frozen, durably.
    pub(super) fn flushed(&mut self, file: FileId, held: Held) {
        let table = self.file(file);
        (table.frozen, table.position, table.swept) = (None, held.position, true);
        self.held.insert(file, held);
    }

    /// Gives a shard a file of its own, which holds it up to the position of the file that it leaves.
    pub(super) fn move_out(&mut self, shard: u64, from: FileId) {
        self.moves += 1;
        self.stamps += 1;
        let stamp = self.stamps;
        let left = self.file(from);
        let rows = left.active.rows.take_range(&reserved::range_of(shard));
        let cleared = left.active.cleared.contains(&shard).then_some(shard).into_iter().collect();
        let (first, last) = (left.active.first, left.active.last);
        let active = Layer { rows, cleared, first, last, ..Layer::default() };
        let position = left.position;
        let own = self.file(FileId::Own(shard));
        (own.active, own.position, own.stamp) = (active, position, stamp);
        self.own.insert(shard);
        // How often its root was written is known after the first flush to it.
        self.held.insert(FileId::Own(shard), Held { position, root_writes: 0 });
    }

    /// Forgets the file of a shard that is gone.
    pub(super) fn forget_own(&mut self, shard: u64) {
        self.moves += 1;
        self.own.remove(&shard);
        self.files.remove(&FileId::Own(shard));
        self.held.remove(&FileId::Own(shard));
    }
}

impl FileTable {
    /// Whether writers of its shards must not write more before a flush.
    fn is_full(&self, budget: &Budget) -> bool {
        let most = budget.flush_at * limits::MEMTABLE_STALL_FACTOR;
        match self.stuck {
            // What is carried forward is frozen as a whole.
            Some(_) => self.bytes() >= most + budget.flush_at,
            None => self.frozen.is_some() && self.active.bytes() >= most,
        }
    }

    fn bytes(&self) -> usize {
        self.active.bytes() + self.frozen.as_ref().map_or(0, Layer::bytes)
    }

    /// The file goes, with what was to be flushed to it.
    fn give_way(&mut self) {
        (self.stuck, self.frozen, self.flushing) = (None, None, false);
    }

    fn first_unsettled(&self) -> Option<Position> {
        self.frozen.as_ref().and_then(Layer::first_position).or_else(|| self.active.first_position())
    }
}

impl Layer {
    fn first_position(&self) -> Option<Position> {
        (!self.is_empty()).then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::overlay::Writes;

    const SHARD: u64 = 7;

    fn key(n: u8) -> Vec<u8> {
        [&SHARD.to_be_bytes()[..], &[n]].concat()
    }

    fn part(keys: std::ops::Range<u8>) -> Part {
        let entry = |n| Entry::new(&key(n), Some(b"x"), &mut Vec::new());
        let writes: Vec<Entry> = keys.cycle().take(limits::MEMTABLE_PART_WRITES).map(entry).collect();
        Part { writes, half: None }
    }

    fn has(tables: &Tables, file: FileId, n: u8) -> bool {
        tables.files[&file].active.rows.find(&key(n)).is_some()
    }

    #[test]
    fn a_large_part_is_taken_in_beside_readers_and_nothing_is_frozen_meanwhile() {
        let mut tables = Tables::new(Layout { common: 1, old: 0 }, &[], &Notes::default());
        let home = tables.home(SHARD);
        tables.write(1, &key(1), Some(b"x"));
        tables.end_group(1, 0);
        let large = part(2..4);
        let mut aside = tables.aside(&large).expect("a large part");
        assert!(!tables.freeze(&Budget::new(1)));
        aside.apply(2, &large);
        assert!(!has(&tables, home, 2));
        let before = tables.replace(2, aside, large).expect("the one before");
        assert!(before.rows.find(&key(1)).is_some() && before.rows.find(&key(2)).is_none());
        tables.end_group(2, 0);
        assert!((1..4).all(|n| has(&tables, home, n)));
        assert_eq!((tables.files[&home].active.first, tables.files[&home].active.last), (1, 2));
        assert!(tables.freeze(&Budget::new(1)));
        assert!(tables.aside(&Part { writes: Vec::new(), half: None }).is_none());
    }

    #[test]
    fn a_large_part_follows_a_shard_that_moves_meanwhile() {
        let mut tables = Tables::new(Layout { common: 1, old: 0 }, &[], &Notes::default());
        let home = tables.home(SHARD);
        tables.write(1, &key(1), Some(b"x"));
        tables.end_group(1, 0);
        let large = part(2..4);
        let mut aside = tables.aside(&large).expect("a large part");
        aside.apply(2, &large);
        tables.move_out(SHARD, home);
        assert!(tables.replace(2, aside, large).is_none());
        tables.end_group(2, 0);
        assert!((1..4).all(|n| has(&tables, FileId::Own(SHARD), n) && !has(&tables, home, n)));
    }
}
