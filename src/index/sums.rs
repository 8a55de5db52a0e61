//! Reductions of blocks of rows, kept in memory: a reduction over a range adds up blocks and reads rows at its edges.
//!
//! Blocks of several levels tile the keys of a view. The hash of a row's key alone decides where a block ends, so that
//! all queries share the blocks. The first query that reads the rows of a block makes its sum; a change of these rows
//! drops it, and only these rows are read again. A query of a view without sums in memory scans it once; later ones
//! read O(log n) rows. A sum that was asked for as a whole, such as a group, is kept beside the blocks: asked for
//! again, it costs one lookup. The blocks of one level are stored, too (`stored.rs`), and loaded after a start.
//!
//! Promises: blocks are of one state of the rows, that after the last write that has ended (`Sums::state`). A reduction
//! that reads rows of another state uses no block and adds none. While `Sums::knows_stored` holds, each stored block is
//! in memory, too.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::reduce::{Grouping, InvalidValue, Partial, Reduce};
use super::steps::{Steps, Stride};
use super::stored::{Found, key_of};
use crate::limits;
use crate::world::buggify::{Mutation, mutated, weigh};

/// Zero bits of a hash at the beginning of a block, by level: from 64 rows on average to 262,144, each level 8 times
/// the one below. Tests have few rows.
const BITS: [u32; LEVELS] = if FEW_ROWS { [1, 2, 3, 4, 6] } else { [6, 9, 12, 15, 18] };
const FEW_ROWS: bool = cfg!(any(test, feature = "sim"));
/// Levels of blocks.
pub(super) const LEVELS: usize = 5;
/// Rows from which on a whole is worth its place: as many are read at its edges without it.
const WHOLE_ROWS: u64 = if FEW_ROWS { 3 } else { 64 };
/// The level whose blocks are stored, of 512 rows on average: those above are made of them at once.
const STORED: usize = 1;
/// New blocks of that level that are worth a commit, where there are as many at all: fewer are soon read again.
const STORED_AT: usize = if FEW_ROWS { 1 } else { 8 };
/// One in so many must be new: what is stored then is a small part of what queries have read.
const STORED_SHARE: usize = 32;

/// The rows from a place up to another (`None`: to the last).
#[derive(Clone)]
pub(super) struct Block {
    pub end: Option<Vec<u8>>,
    pub sum: Partial,
    /// Whether it is stored, or too large for that.
    pub settled: bool,
}

impl Block {
    fn new(end: Option<Vec<u8>>, sum: Partial) -> Block {
        Block { end, sum, settled: false }
    }
}

/// What is known of the blocks that are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// They are still to be read.
    #[default]
    Unread,
    /// Each of them is here.
    All,
    /// One may be missing here, or cannot be read: the next write makes them void.
    Lost,
}

type Blocks = BTreeMap<Vec<u8>, Block>;

/// A state of the rows of a view: how many writes had ended.
pub(super) type State = u64;
/// Where an index stands: the sequence and the purge that its header names.
pub(super) type Stand = (u64, u64);

/// Which state of the rows a view of the store shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Known(State),
    /// This one where the index stands so in that view, or is not there yet; else the next one.
    Either(State, Stand),
    Unknown,
}

/// The blocks of one view, for each of the functions that reduce it.
#[derive(Default)]
pub(super) struct Sums {
    trees: Vec<Tree>,
    /// Rows within blocks, for counts.
    steps: Steps,
    /// Odd while rows are being written.
    writes: u64,
    /// Where the index stands before the last write that began, if that write moves it.
    from: Option<Stand>,
    known: Known,
    /// Blocks that were kept since some were stored.
    fresh: usize,
}

/// The blocks of one function.
struct Tree {
    reduce: Reduce,
    levels: [Blocks; LEVELS],
    /// What was asked for as a whole, for each way to group rows: of one way none share a row.
    wholes: Vec<(Grouping, Blocks)>,
}

/// How many levels have a block that begins at a place: the first place of a view begins one of each.
pub(super) fn levels_at(place: &[u8]) -> usize {
    if place.is_empty() {
        return LEVELS;
    }
    let zeros = crc32fast::hash(place).trailing_zeros();
    BITS.iter().take_while(|bits| zeros >= **bits).count()
}

impl Sums {
    /// Rows are about to change; `from`: where the index stands before that, if it stands elsewhere then.
    pub fn begin_write(&mut self, from: Option<Stand>) {
        if !self.writes.is_multiple_of(2) {
            // The write before never told its end: its task was ended with the node, or panicked.
            self.end_write(None);
        }
        self.writes += 1;
        self.from = from;
    }

    /// Rows at some places have changed, and whether blocks are still stored; `None`: nobody knows which.
    pub fn end_write(&mut self, done: Option<(bool, &[Vec<u8>])>) {
        assert!(!self.writes.is_multiple_of(2), "a write ends that has begun");
        self.writes += 1;
        let Some((stored, places)) = done else {
            self.trees.clear();
            self.steps.clear();
            return self.lose_stored();
        };
        if !stored {
            self.nothing_stored();
        }
        places.iter().for_each(|place| self.steps.touch(place));
        for blocks in self.trees.iter_mut().flat_map(Tree::blocks_mut) {
            for place in places {
                let gone: Vec<Vec<u8>> = touched(blocks, place).cloned().collect();
                gone.iter().for_each(|start| drop(blocks.remove(start)));
            }
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.writes += 2;
        self.trees.clear();
        self.steps.clear();
        (self.known, self.fresh) = (Known::Unread, 0);
    }

    /// Whether what is stored was not read yet.
    pub fn is_unread(&self) -> bool {
        self.known == Known::Unread
    }

    /// Whether each block that is stored is here.
    pub fn knows_stored(&self) -> bool {
        self.known == Known::All
    }

    /// Takes in what was read at `moment`, unless rows changed since; `None`: it cannot be read.
    pub fn load(&mut self, found: Option<Vec<Found>>, moment: u64) {
        if !self.is_unread() || self.writes != moment || moment % 2 == 1 {
            return;
        }
        self.known = if found.is_some() { Known::All } else { Known::Lost };
        for (reduce, start, block) in found.into_iter().flatten() {
            if put(&mut self.tree_of(&reduce).levels[STORED], &start, block) {
                self.lose_stored();
            }
        }
    }

    /// Nothing is stored any more.
    pub fn nothing_stored(&mut self) {
        self.known = Known::All;
        self.trees.iter_mut().flat_map(|tree| tree.levels[STORED].values_mut()).for_each(|block| block.settled = false);
    }

    /// What is stored is not known any more.
    pub fn lose_stored(&mut self) {
        self.known = Known::Lost;
    }

    /// The keys under which blocks may be stored that changes at `places` touch; `None`: what is stored is not known.
    pub fn stored_at(&self, places: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let tagged = || self.trees.iter().filter_map(|tree| Some((tree.reduce.tag()?, &tree.levels[STORED])));
        let keys = places.iter().flat_map(|place| {
            tagged().flat_map(move |(tag, blocks)| touched(blocks, place).map(move |start| key_of(tag, start)))
        });
        self.knows_stored().then(|| keys.collect())
    }

    /// Whether enough blocks are new to store them; counts from here on.
    pub fn begin_storing(&mut self) -> bool {
        let all: usize = self.trees.iter().map(|tree| tree.levels[STORED].len()).sum();
        let is_due = self.fresh.min(all) >= STORED_AT && self.fresh * STORED_SHARE >= all;
        if is_due {
            self.fresh = 0;
        }
        is_due
    }

    /// Blocks that are to be stored, at most so many.
    pub fn unsettled(&self, most: usize) -> Vec<Found> {
        let blocks = self.trees.iter().flat_map(|tree| tree.levels[STORED].iter().map(|block| (&tree.reduce, block)));
        let new = blocks.filter(|(_, (_, block))| !block.settled);
        new.take(most).map(|(reduce, (start, block))| (reduce.clone(), start.clone(), block.clone())).collect()
    }

    /// These are stored.
    pub fn settle(&mut self, stored: &[Found]) {
        for (reduce, start, block) in stored {
            let own = self.trees.iter_mut().find(|tree| tree.reduce == *reduce);
            let own = own.and_then(|tree| tree.levels[STORED].get_mut(start)).filter(|own| own.end == block.end);
            match own {
                Some(own) => own.settled = true,
                None => self.lose_stored(),
            }
        }
    }

    /// What a reader notes before it reads, to give back with what it found.
    pub fn moment(&self) -> u64 {
        self.writes
    }

    /// The state of the rows that all blocks are of.
    pub fn state(&self) -> State {
        self.writes / 2
    }

    /// Which state a view shows that was opened after `moment`.
    pub fn shown(&self, moment: u64) -> Shown {
        match self.from {
            _ if self.state() != moment / 2 => Shown::Unknown,
            _ if self.writes.is_multiple_of(2) => Shown::Known(self.state()),
            Some(from) => Shown::Either(self.state(), from),
            None => Shown::Unknown,
        }
    }

    /// The largest block that begins at `start` and ends at or before `high`, and its level.
    pub fn largest(&self, reduce: &Reduce, start: &[u8], high: Option<&[u8]>) -> Option<(usize, &Block)> {
        let levels = &self.tree(reduce)?.levels;
        let fits = |block: &&Block| match (&block.end, high) {
            (_, None) => true,
            (Some(end), Some(high)) => end.as_slice() <= high,
            (None, Some(_)) => false,
        };
        (0..levels_at(start)).rev().find_map(|level| Some((level, levels[level].get(start).filter(fits)?)))
    }

    /// Whether a block of a level that begins at `start` is here, however far it reaches.
    fn has(&self, reduce: &Reduce, level: usize, start: &[u8]) -> bool {
        self.tree(reduce).is_some_and(|tree| tree.levels[level].contains_key(start))
    }

    /// What was asked for before as just this whole.
    pub fn whole(
        &self,
        (reduce, grouping): (&Reduce, Grouping),
        start: &[u8],
        high: Option<&[u8]>,
    ) -> Option<&Partial> {
        let (_, blocks) = self.tree(reduce)?.wholes.iter().find(|(own, _)| *own == grouping)?;
        blocks.get(start).filter(|block| block.end.as_deref() == high).map(|block| &block.sum)
    }

    /// Keeps a whole as [`Sums::keep`] does a block, if it is worth that.
    fn keep_whole(
        &mut self,
        (reduce, grouping): (&Reduce, Grouping),
        start: &[u8],
        block: Block,
        state: Option<State>,
    ) {
        if block.sum.rows < WHOLE_ROWS {
            return;
        }
        let Some(tree) = self.tree_to_fill(reduce, state) else { return };
        let at = tree.wholes.iter().position(|(own, _)| *own == grouping).unwrap_or_else(|| {
            tree.wholes.push((grouping, Blocks::new()));
            tree.wholes.len() - 1
        });
        put(&mut tree.wholes[at].1, start, block);
    }

    /// Keeps a block of that state, unless blocks are of another one or there are too many. A write that is under way
    /// takes it away again when it ends, if it changes a row of it.
    fn keep(&mut self, reduce: &Reduce, (level, start): (usize, &[u8]), block: Block, state: Option<State>) {
        let Some(tree) = self.tree_to_fill(reduce, state) else { return };
        // Blocks of other levels are not stored.
        if put(&mut tree.levels[level], start, block) {
            self.lose_stored();
        }
        self.fresh += usize::from(level == STORED);
    }

    /// Keeps what a count has read in that state of the rows of a block, unless blocks are of another one.
    fn note(&mut self, stride: Stride, state: Option<State>) {
        if stride.is_news() && state == Some(self.state()) {
            self.steps.note(stride, self.state());
        }
    }

    fn tree(&self, reduce: &Reduce) -> Option<&Tree> {
        self.trees.iter().find(|tree| tree.reduce == *reduce)
    }

    /// Where what was read in that state may be kept.
    fn tree_to_fill(&mut self, reduce: &Reduce, state: Option<State>) -> Option<&mut Tree> {
        let most = match reduce {
            // These are a few kilobytes each.
            Reduce::Distinct | Reduce::Top(_) | Reduce::Bottom(_) => limits::REDUCTIONS_PER_INDEX / 16,
            _ => limits::REDUCTIONS_PER_INDEX,
        };
        let kept = self.len();
        weigh("reductions kept of an index", kept, limits::REDUCTIONS_PER_INDEX);
        if state != Some(self.state()) || kept >= most {
            return None;
        }
        Some(self.tree_of(reduce))
    }

    fn tree_of(&mut self, reduce: &Reduce) -> &mut Tree {
        let at = self.trees.iter().position(|tree| tree.reduce == *reduce).unwrap_or_else(|| {
            self.trees.push(Tree { reduce: reduce.clone(), levels: Default::default(), wholes: Vec::new() });
            self.trees.len() - 1
        });
        &mut self.trees[at]
    }

    fn len(&self) -> usize {
        self.trees.iter().flat_map(Tree::blocks).map(Blocks::len).sum()
    }
}

impl Tree {
    fn blocks(&self) -> impl Iterator<Item = &Blocks> {
        self.levels.iter().chain(self.wholes.iter().map(|(_, blocks)| blocks))
    }

    fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Blocks> {
        self.levels.iter_mut().chain(self.wholes.iter_mut().map(|(_, blocks)| blocks))
    }
}

/// Puts a block in place of those that it shares rows with; whether one of these is stored and is another one.
fn put(blocks: &mut Blocks, start: &[u8], mut block: Block) -> bool {
    let before = blocks.range::<[u8], _>(up_to(start)).next_back();
    let reaches = before.filter(|(_, own)| own.end.as_ref().is_none_or(|end| end.as_slice() > start));
    let behind = blocks.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
    let inside = behind.take_while(|(at, _)| block.end.as_ref().is_none_or(|end| *at < end));
    let shared: Vec<Vec<u8>> = reaches.into_iter().chain(inside).map(|(at, _)| at.clone()).collect();
    let mut lost = false;
    for (at, old) in shared.into_iter().filter_map(|at| blocks.remove_entry(&at)) {
        match at == start && old.end == block.end {
            true => block.settled |= old.settled,
            false => lost |= old.settled,
        }
    }
    blocks.insert(start.to_vec(), block);
    lost
}

/// Where those begin that a row at `place` belongs to, or that end there: a row that is gone ends nothing any more.
fn touched<'b>(blocks: &'b Blocks, place: &[u8]) -> impl Iterator<Item = &'b Vec<u8>> + use<'b> {
    let before = blocks.range::<[u8], _>(up_to(place)).next_back();
    let reaches = before.filter(|(_, block)| block.end.as_ref().is_none_or(|end| end.as_slice() >= place));
    let here = blocks.get_key_value(place);
    reaches.into_iter().chain(here).map(|(start, _)| start)
}

/// The places before one.
fn up_to(place: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Excluded(place))
}

/// A reduction over a range under way.
pub(super) struct Walk {
    /// Where it began.
    low: Vec<u8>,
    /// What is left.
    pub at: Vec<u8>,
    pub high: Option<Vec<u8>>,
    /// Of all that lies behind.
    pub sum: Partial,
    /// Blocks that began on the way and have not ended, by level.
    open: [Option<(Vec<u8>, Partial)>; LEVELS],
    /// Whether blocks begin where it stands.
    begins: bool,
    /// The state of the rows that it reads; `None`: not known.
    state: Option<State>,
}

impl Walk {
    /// From `at` up to `high`, over rows of one state.
    pub fn new(at: Vec<u8>, high: Option<Vec<u8>>, empty: &Partial, state: Option<State>) -> Walk {
        let (low, begins) = (at.clone(), at.is_empty());
        let mut walk = Walk { low, at, high, sum: empty.clone(), open: Default::default(), begins, state };
        // An edge of keys is no row, and only rows begin blocks.
        if walk.at.is_empty() {
            walk.open = std::array::from_fn(|_| Some((Vec::new(), empty.clone())));
        }
        walk
    }

    /// Whether blocks are of the rows that it reads.
    fn fits(&self, sums: &Sums) -> bool {
        self.state == Some(sums.state()) || mutated(Mutation::ReductionOfTwoMoments)
    }

    /// Takes it as a whole, if it was kept as such. Else it begins; blocks that are known need not be added up again.
    pub fn take_whole(&mut self, sums: &mut Sums, by: (&Reduce, Grouping), empty: &Partial) -> bool {
        if !self.fits(sums) {
            return false;
        }
        if let Some(sum) = sums.whole(by, &self.low, self.high.as_deref()) {
            self.sum = sum.clone();
            return true;
        }
        let high = self.high.as_deref().filter(|_| self.counts_from_the_first(by.0));
        let nearest = high.and_then(|high| sums.steps.nearest(high, sums.state()));
        if let Some((start, rows)) = nearest.map(|(start, rows)| (start.to_vec(), rows)) {
            // The count that noted it has kept the blocks that end before it.
            (self.sum, self.open) = (Partial::of_rows(rows), Default::default());
            self.arrive(start, sums, by.0, empty);
            return false;
        }
        for (level, open) in self.open.iter_mut().enumerate() {
            if open.as_ref().is_some_and(|(start, _)| sums.has(by.0, level, start)) {
                *open = None;
            }
        }
        false
    }

    fn counts_from_the_first(&self, reduce: &Reduce) -> bool {
        *reduce == Reduce::Count && self.low.is_empty()
    }

    /// Where rows are counted and the block in which it stands was counted before: goes on to the last row of it that
    /// was noted.
    pub fn stride(&mut self, sums: &Sums, reduce: &Reduce) -> Result<Option<Stride>, InvalidValue> {
        if *reduce != Reduce::Count || !self.begins || !self.fits(sums) {
            return Ok(None);
        }
        let before = self.counts_from_the_first(reduce).then_some(self.sum.rows);
        let (stride, further) = sums.steps.stride(&self.at, self.high.as_deref(), before);
        if let Some((place, rows)) = further {
            self.add(&Partial::of_rows(rows))?;
            self.stand_at(place);
        }
        Ok(Some(stride))
    }

    /// Keeps what was seen of the rows of a block.
    pub fn note(&self, sums: &mut Sums, stride: Stride) {
        sums.note(stride, self.state);
    }

    /// Whether something is known of what begins where it stands, so that it can go on there without reading rows.
    pub fn knows_next(&self, sums: &Sums, reduce: &Reduce) -> bool {
        let is_noted = *reduce == Reduce::Count && sums.steps.has(&self.at);
        self.fits(sums) && (is_noted || sums.largest(reduce, &self.at, self.high.as_deref()).is_some())
    }

    /// Stands at a place where no block begins that it could keep.
    pub fn stand_at(&mut self, place: Vec<u8>) {
        (self.at, self.begins) = (place, false);
    }

    /// Nothing is left: keeps it as a whole.
    pub fn keep_whole(&self, sums: &mut Sums, by: (&Reduce, Grouping)) {
        let block = Block::new(self.high.clone(), self.sum.clone());
        sums.keep_whole(by, &self.low, block, self.state);
    }

    /// Takes in blocks as long as there are some; `None` in the end: nothing is left.
    pub fn jump(&mut self, sums: &mut Sums, reduce: &Reduce, empty: &Partial) -> Result<Option<()>, InvalidValue> {
        while self.high.as_ref().is_none_or(|high| self.at < *high) {
            let block = if self.fits(sums) { sums.largest(reduce, &self.at, self.high.as_deref()) } else { None };
            let Some((level, block)) = block else { return Ok(Some(())) };
            self.sum.merge(&block.sum)?;
            // What began here and is no larger is known already.
            self.open[..=level].iter_mut().for_each(|open| *open = None);
            for (_, open) in self.open.iter_mut().flatten() {
                open.merge(&block.sum)?;
            }
            match block.end.clone() {
                Some(end) => self.arrive(end, sums, reduce, empty),
                None => {
                    self.finish(sums, reduce);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Takes in rows that were read from where it stands up to `end`, where a block begins.
    pub fn pass(
        &mut self,
        run: &Partial,
        end: Vec<u8>,
        (sums, reduce, empty): (&mut Sums, &Reduce, &Partial),
    ) -> Result<(), InvalidValue> {
        self.add(run)?;
        self.arrive(end, sums, reduce, empty);
        Ok(())
    }

    /// Takes in rows; where it stands then is the caller's to say.
    pub fn add(&mut self, run: &Partial) -> Result<(), InvalidValue> {
        self.sum.merge(run)?;
        self.open.iter_mut().flatten().try_for_each(|(_, open)| open.merge(run))
    }

    /// Stands at the beginning of blocks: keeps those that end here.
    fn arrive(&mut self, place: Vec<u8>, sums: &mut Sums, reduce: &Reduce, empty: &Partial) {
        for level in 0..levels_at(&place) {
            if let Some((start, sum)) = self.open[level].take() {
                sums.keep(reduce, (level, &start), Block::new(Some(place.clone()), sum), self.state);
            }
        }
        // What is known, and reaches too far to be taken, need not be added up again.
        for level in 0..levels_at(&place) {
            let is_known = self.fits(sums) && sums.has(reduce, level, &place);
            self.open[level] = (!is_known).then(|| (place.clone(), empty.clone()));
        }
        (self.at, self.begins) = (place, true);
    }

    /// There are no rows behind: keeps the blocks that reach to the end of the view.
    pub fn finish(&mut self, sums: &mut Sums, reduce: &Reduce) {
        if self.high.is_none() {
            for (level, open) in self.open.iter_mut().enumerate() {
                if let Some((start, sum)) = open.take() {
                    sums.keep(reduce, (level, &start), Block::new(None, sum), self.state);
                }
            }
        }
    }
}
