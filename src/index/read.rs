//! Reads of rows of a view in bounded steps, each of what is committed at its time, or all of one state.

use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::keys::{self, Places};
use super::record::{Header, Row};
use super::single_state::SingleState;
use super::states::{Hold, Patience, StateOf};
use super::{IndexError, Signature, Slot, ViewIndex};
use crate::limits;
use crate::shard::{ShardError, ShardId, ShardReplica, bounded_scan};
use crate::storage::{Direction, LastingView, StorageError, View};
use crate::world::Pool;
use crate::world::buggify::{Mutation, mutated};

/// Rows in the order asked for, and whether there are more behind them.
#[derive(Debug, Serialize, Deserialize)]
pub struct RowPage {
    /// The rows.
    pub rows: Vec<Row>,
    /// What is left to read; nothing at the end.
    pub rest: VecDeque<Places>,
    /// The number under which the state of the page is held for those that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
}

impl ViewIndex {
    /// The next rows of `places`, which stand in the order of reading and share no row: at most `limit` of them and
    /// about `limits::STEP_BYTES`. Fewer, even none, do not mean the end. A limit above `limits::STEP_ROWS` asks for
    /// rows of one state over several steps, about `limits::REDUCED_BYTES` of them.
    ///
    /// # Errors
    /// [`IndexError::StateGone`], [`IndexError::StatesFull`], or that the index could not be read.
    pub async fn rows(
        &self,
        places: VecDeque<Places>,
        direction: Direction,
        limit: usize,
        of: StateOf,
    ) -> Result<RowPage, IndexError> {
        match of {
            StateOf::Held(number) if !mutated(Mutation::HeldStatePassedOver) => {
                self.held_rows(number, places, direction, limit).await
            }
            StateOf::Held(_) | StateOf::First(_) => self.many_rows(places, direction, limit, of.hold()).await,
            StateOf::Now if limit > limits::STEP_ROWS => self.many_rows(places, direction, limit, None).await,
            // Invariant: one answer for each index.
            StateOf::Now => Ok(rows_of(vec![(self, places)], direction, limit).await.pop().expect("an answer")?),
        }
    }
}

/// As [`ViewIndex::rows`] in one step, of several indexes of this node at once, in their order; `limit`: of each.
pub async fn rows_of(
    reads: Vec<(&ViewIndex, VecDeque<Places>)>,
    direction: Direction,
    limit: usize,
) -> Vec<Result<RowPage, ShardError>> {
    let inline = are_few(&reads);
    let read = |(index, places): (&ViewIndex, VecDeque<Places>)| {
        let signature = index.definition.signature;
        let read = move |view: &dyn View, shard| step(view, (shard, signature), places, direction, limit);
        (index.replica.clone(), read)
    };
    ShardReplica::read_records_of(reads.into_iter().map(read).collect(), inline).await
}

/// A reading of rows over several steps.
struct Reading {
    /// All that was to be read.
    all: VecDeque<Places>,
    page: RowPage,
    bytes: usize,
    /// The state that the rows are of.
    single: SingleState,
    /// When that is to be held once it is done.
    hold: Option<Hold>,
    /// The view that its last step has read, where it is.
    lasting: Option<LastingView>,
}

impl Reading {
    fn new(places: VecDeque<Places>, single: SingleState, hold: Option<Hold>) -> Reading {
        let page = RowPage { rows: Vec::new(), rest: places.clone(), held: None };
        Reading { all: places, page, bytes: 0, single, hold, lasting: None }
    }

    /// Forgets what was read.
    fn begin_anew(&mut self) {
        self.page = RowPage { rows: Vec::new(), rest: self.all.clone(), held: None };
        self.bytes = 0;
    }

    fn is_done(&self, limit: usize) -> bool {
        self.page.rest.is_empty() || self.page.rows.len() >= limit || self.bytes >= limits::REDUCED_BYTES
    }

    /// Reads on until a bound of one step.
    fn step(
        mut self,
        view: &dyn View,
        (slot, owner): (&Slot, (ShardId, Signature)),
        direction: Direction,
        limit: usize,
    ) -> Result<Reading, StorageError> {
        if !self.single.enter(slot, &|| Header::stand_in(view, owner))? {
            self.begin_anew();
        }
        let more = step(view, owner, mem::take(&mut self.page.rest), direction, limit - self.page.rows.len())?;
        self.bytes += more.rows.iter().map(|row| row.place.len() + row.key.len() + row.value.len()).sum::<usize>();
        self.page.rows.extend(more.rows);
        self.page.rest = more.rest;
        let (is_full, is_last) = (self.page.rows.len() >= limit, self.page.rest.is_empty());
        if self.is_done(limit) && self.hold.is_some_and(|hold| hold.is_due(is_full, is_last)) {
            self.lasting = view.lasting(&Places::all(b"").range(owner.0, owner.1))?;
        }
        Ok(self)
    }
}

impl ViewIndex {
    /// Rows of one state, in as many steps as they take. It is held where pages follow.
    async fn many_rows(
        &self,
        places: VecDeque<Places>,
        direction: Direction,
        limit: usize,
        hold: Option<Hold>,
    ) -> Result<RowPage, IndexError> {
        let (mut reading, mut patience) = (Reading::new(places, SingleState::new(0), hold), Patience::default());
        loop {
            let mut alone = None;
            // A first step even of nothing: it sees the state that is to be held.
            loop {
                reading.single.before_step(&self.slot, &mut alone).await;
                let (slot, signature) = (Arc::clone(&self.slot), self.definition.signature);
                let step =
                    move |view: &dyn View, shard| reading.step(view, (&slot, (shard, signature)), direction, limit);
                reading = self.replica.read_records(Pool::Foreground, step).await?;
                if reading.is_done(limit) {
                    break;
                }
            }
            drop(alone);
            let (Some(hold), Some(lasting)) = (hold, reading.lasting.take()) else { return Ok(reading.page) };
            if self.hold(hold.number, (lasting, reading.single.state), &mut patience).await? {
                return Ok(RowPage { held: Some(hold.number), ..reading.page });
            }
            reading.begin_anew();
        }
    }

    /// The next rows of a state that is held.
    async fn held_rows(
        &self,
        number: u64,
        places: VecDeque<Places>,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, IndexError> {
        let held = self.held(number)?;
        let mut reading = Reading::new(places, SingleState::of_held(held.state), None);
        while !reading.is_done(limit) {
            let (held, signature) = (Arc::clone(&held), self.definition.signature);
            let step = move |shard| reading.step(held.view(), (&held.slot, (shard, signature)), direction, limit);
            reading = self.replica.read_held(step).await?;
        }
        Ok(reading.page)
    }
}

/// Whether inline reads may be tried for that many places: each costs a look for its first row.
pub(super) fn are_few(reads: &[(&ViewIndex, VecDeque<Places>)]) -> bool {
    reads.iter().all(|(_, places)| places.len() <= limits::INLINE_PLACES)
}

/// One bounded step of [`rows_of`].
pub(super) fn step(
    view: &dyn View,
    (shard, signature): (ShardId, Signature),
    mut places: VecDeque<Places>,
    direction: Direction,
    limit: usize,
) -> Result<RowPage, StorageError> {
    let limit = limit.clamp(1, limits::STEP_ROWS);
    places.retain(|places| !places.is_empty());
    let (mut rows, mut bytes, mut seeks) = (Vec::new(), 0, 0);
    while let Some(first) = places.pop_front() {
        let range = first.range(shard, signature);
        let more = bounded_scan(view, range, direction, |key, value| {
            bytes += value.len();
            rows.push(Row::decode(&key[keys::PREFIX..], value)?);
            let full = rows.len() == limit || bytes >= limits::STEP_BYTES;
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        seeks += 1;
        if let (Some(_), Some(last)) = (more, rows.last()) {
            places.push_front(first.behind(&last.place, direction));
        }
        if rows.len() == limit || bytes >= limits::STEP_BYTES || seeks == limits::FIND_RANGES_MAX {
            break;
        }
    }
    Ok(RowPage { rows, rest: places, held: None })
}
