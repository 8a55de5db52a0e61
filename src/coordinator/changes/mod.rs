//! The changes feed: a merge over the ranges, page by page, that can wait for more.
//!
//! A feed reads in rounds. A round ends at the last change of each range that was there when it began; the rows of all
//! ranges come in the order of their sequences. Promises: a reader that resumes from a sequence misses nothing. A feed
//! that reads backwards has one round, which ends with what changed since it began, in ascending order. A filter lists
//! the same rows whether it reads all changes or an index names the candidates (`selected.rs`). Rows and the documents
//! that they are filtered by come from one replica (`documents.rs`).

mod documents;
mod follower;
mod query;
mod range_cursor;
pub(super) mod row_filters;
mod selected;
mod times;

use std::sync::Arc;

use futures_util::future::{join_all, select_all, try_join_all};
use tokio::sync::watch;

use crate::coordinator::replica::database::{Database, entry};
use crate::coordinator::replica::message::ChangesCall;
use crate::coordinator::replica::operations::database_operations;
use crate::coordinator::replica::range_replica::is_away;
use crate::coordinator::topology::error::ChangesError;
use crate::coordinator::topology::seq::Seq;
use crate::coordinator::topology::shard_map::ShardMap;
use crate::document::id::DocId;
use crate::index::SelectedPage;
use crate::limits;
use crate::shard::{ShardChangesPage, ShardError};
use crate::storage::Direction;
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};
use crate::world::{BoxFuture, cost};
use documents::{Listed, Row};
pub use follower::Follower;
pub use query::{Candidate, ChangeRow, ChangesFilter, ChangesQuery, RowFilter, Since, Style};
use range_cursor::{RangeCursor, next_range_cursor, page_of_ids};
pub use times::RangeTimes;

database_operations! {
    /// What this room does with a database.
    trait FeedOperations;
    /// Changes feeds and their filters.
    feeds: Feeds;
}

/// A feed being read.
///
/// `normal`: call `next` until `None`. `longpoll`, `continuous`, `eventsource`: at `None`, unless `is_over`, call
/// `wait` and go on with `next`.
pub struct Changes {
    database: Arc<Database>,
    query: ChangesQuery,
    /// The ranges of the range cursors, in the order of the ring.
    map: Arc<ShardMap>,
    range_cursors: Vec<RangeCursor>,
    /// Tells of a new map.
    moved: watch::Receiver<(u64, usize)>,
    gone: watch::Receiver<bool>,
    /// Whether a round is under way: from the first `next` to the `None` that ends it.
    in_round: bool,
    /// How often a feed that reads backwards has gone on with what changed since it began.
    catch_ups: usize,
    /// Rows given out.
    sent: u64,
    /// Changes read for them, with those that the filter left out.
    read: u64,
}

impl Changes {
    /// The next page (may be empty when a filter left out all of it); `None` when all that is there was read.
    pub async fn next(&mut self) -> Result<Option<Vec<ChangeRow>>, ChangesError> {
        if self.limit_reached() {
            return Ok(None);
        }
        if !self.in_round {
            self.follow_map().await?;
            self.leave_lost_replicas().await?;
            let descending = self.query.descending;
            self.range_cursors.iter_mut().for_each(|range_cursor| range_cursor.begin_round(descending));
            if let Some(second) = self.range_cursors.get_mut(1).filter(|_| mutated(Mutation::FeedSkipsRange)) {
                (second.done, second.cursor) = (true, second.until);
            }
            self.in_round = true;
        }
        // Not before the page in which they moved was given out: its rows stand before all of theirs.
        self.range_cursors.iter_mut().filter(|range_cursor| range_cursor.has_moved).for_each(RangeCursor::go_on);
        let batch = self.gather().await?;
        if batch.is_empty() && self.range_cursors.iter().any(|range_cursor| range_cursor.has_moved) {
            return Ok(Some(Vec::new()));
        }
        if batch.is_empty() && self.catch_up().await? {
            return Ok(Some(Vec::new()));
        }
        if batch.is_empty() {
            self.range_cursors.iter_mut().for_each(|range_cursor| range_cursor.settle(self.query.descending));
            self.in_round = false;
            return Ok(None);
        }
        let (listed, lost) = self.list(&batch).await?;
        let rows = self.emit(batch, listed);
        for at in lost {
            self.move_range_cursor(at).await?;
        }
        Ok(Some(rows))
    }

    /// Whether rows are read from the last one to the first.
    fn goes_back(&self) -> bool {
        self.query.descending && self.catch_ups == 0
    }

    /// Has a feed that read backwards to the beginning go on with what changed since it began: a document that did
    /// before its row was read stands behind the row that the feed began with. True where there is such a change. What
    /// changes meanwhile comes with the next time; where writers are faster, it ends after several.
    async fn catch_up(&mut self) -> Result<bool, ChangesError> {
        if !self.query.descending || self.catch_ups == limits::CHANGES_CATCH_UPS {
            return Ok(false);
        }
        let ends =
            try_join_all(self.range_cursors.iter().map(|range_cursor| range_cursor.replica.replica_position())).await?;
        let mut any = false;
        for (range_cursor, end) in self.range_cursors.iter_mut().zip(ends) {
            any |= range_cursor.catch_up(end.position);
        }
        self.catch_ups += usize::from(any);
        Ok(any)
    }

    /// Fills the range cursors that ran empty and merges up to a page of rows, which stay unsent until `emit`.
    async fn gather(&mut self) -> Result<Vec<Row>, ChangesError> {
        let page = if self.reads_documents() { limits::PAGE_DOCS } else { limits::PAGE_ROWS };
        // Not more than is wanted: a range is asked for no more rows than that at once.
        let page = fewer("changes: a page of one row", page.min(self.page_rows()));
        let mut batch = Vec::new();
        while batch.len() < page {
            let lost = self.fill().await?;
            // Their sequences are those of the replicas before.
            batch.retain(|(at, _)| !lost.contains(at));
            let heads = self.range_cursors.iter().map(|range_cursor| range_cursor.rows.front().map(|row| row.seq));
            let Some(range_cursor) = next_range_cursor(heads, self.goes_back()) else { break };
            // Invariant: the range cursor was chosen for its first row.
            batch.push((range_cursor, self.range_cursors[range_cursor].rows.pop_front().expect("a first row")));
        }
        Ok(batch)
    }

    /// Reads a page into each range cursor that ran empty; answers those that had to move to another replica.
    async fn fill(&mut self) -> Result<Vec<usize>, ChangesError> {
        let empty = |(_, range_cursor): &(usize, &RangeCursor)| range_cursor.rows.is_empty() && !range_cursor.done;
        let empty: Vec<(usize, u64)> = self
            .range_cursors
            .iter()
            .enumerate()
            .filter(empty)
            .map(|(at, range_cursor)| (at, range_cursor.cursor))
            .collect();
        if empty.is_empty() {
            return Ok(Vec::new());
        }
        let asked = fewer("changes: a range read row by row", self.page_rows());
        let read = |(at, cursor): (usize, u64)| {
            let page = self.page(at, cursor, asked);
            async move { (at, page.await) }
        };
        let (mut lost, goes_back) = (Vec::new(), self.goes_back());
        for (at, page) in join_all(empty.into_iter().map(read)).await {
            match page {
                Ok((page, ended)) => self.range_cursors[at].take_page(page, ended, goes_back),
                Err(error) if self.can_go_on(at, &error) && !self.query.descending => lost.push(at),
                Err(error) => return Err(error.into()),
            }
        }
        for at in &lost {
            self.move_range_cursor(*at).await?;
        }
        Ok(lost)
    }

    /// Whether a range cursor that could not be read can be from somewhere else.
    fn can_go_on(&self, at: usize, error: &ShardError) -> bool {
        let range = self.range_cursors[at].range;
        let has_other = self.database.replicas().replicas_of(range) > 1 || !self.database.map().is_live(range);
        *error == ShardError::Moved || is_away(error) && has_other
    }

    /// The documents of a range cursor, where it costs less to look them up than to read the changes from `cursor` on.
    fn looked_up(&self, range_cursor: &RangeCursor, cursor: u64) -> Option<Vec<&DocId>> {
        let ChangesFilter::DocIds(ids) = &self.query.filter else { return None };
        let range = self.map.range(range_cursor.range);
        let changes = if self.goes_back() { cursor } else { range_cursor.until.saturating_sub(cursor) };
        let few = limits::CHANGES_DOC_IDS_LOOKED_UP.max((changes / limits::CHANGES_PER_LOOKUP) as usize);
        let here = ids.iter().filter(|id| range.contains(self.map.hash(id)));
        // Asked for every page: no more of a long list are looked at than tell that it is one.
        let ids: Vec<&DocId> = here.take(few.saturating_add(1)).collect();
        (ids.len() <= few).then_some(ids)
    }

    /// The next rows of a range cursor, and whether there are no more.
    async fn page(&self, at: usize, cursor: u64, asked: usize) -> Result<(ShardChangesPage, bool), ShardError> {
        let range_cursor = &self.range_cursors[at];
        if let Some(ids) = self.looked_up(range_cursor, cursor) {
            return Ok((page_of_ids(&range_cursor.replica, ids, cursor, self.goes_back()).await?, true));
        }
        let direction = if self.goes_back() { Direction::Reverse } else { Direction::Forward };
        let (limit, epoch) = (asked as u64, range_cursor.replica_position.epoch);
        let mut call = ChangesCall { since: cursor, direction, limit, epoch };
        if let Some(SelectedPage { rows, reached }) = self.selected(range_cursor, call).await {
            let ended = reached >= range_cursor.until;
            if ended || !rows.is_empty() {
                return Ok((ShardChangesPage { rows, pending_after: 0, last_seq: reached }, ended));
            }
            call.since = reached;
        }
        let page = range_cursor.replica.changes(call).await?;
        cost::read(1, page.rows.len());
        let ended = page.rows.len() < asked;
        Ok((page, ended))
    }

    /// Goes on with another replica of a range; what was read up to then may be read again, nothing is left out. The
    /// round of the range pauses until the page under way was given out, and after many moves until the next round.
    async fn move_range_cursor(&mut self, at: usize) -> Result<(), ShardError> {
        let RangeCursor { range, moves, .. } = self.range_cursors[at];
        // A range that was split goes on as its halves, with the next round.
        if self.database.map().is_live(range) {
            let mut range_cursor = RangeCursor::open(&self.database, range, &Since::Seq(self.seq())).await?;
            (range_cursor.moves, range_cursor.has_moved) = (moves + 1, moves < limits::REPLICAS_TRIED);
            self.range_cursors[at] = range_cursor;
        }
        self.range_cursors[at].cut_round();
        Ok(())
    }

    /// How far each range was given out.
    fn seq(&self) -> Seq {
        Seq(self
            .range_cursors
            .iter()
            .map(|range_cursor| entry(self.map.range(range_cursor.range), range_cursor.entry()))
            .collect())
    }

    /// Goes over to the ranges that there are now: one that was split goes on as its halves, from where it was.
    async fn follow_map(&mut self) -> Result<(), ShardError> {
        self.moved.borrow_and_update();
        let map = self.database.map();
        if map.live() == self.map.live() {
            return Ok(());
        }
        sometimes("changes: a feed went on in the halves of a range");
        let since = Since::Seq(self.seq());
        let kept = |range: usize| self.range_cursors.iter().any(|range_cursor| range_cursor.range == range);
        let new = map.live().iter().filter(|range| !kept(**range));
        self.range_cursors
            .extend(try_join_all(new.map(|range| RangeCursor::open(&self.database, *range, &since))).await?);
        self.range_cursors.retain(|range_cursor| map.is_live(range_cursor.range));
        self.range_cursors.sort_by_key(|range_cursor| map.range(range_cursor.range));
        self.map = map;
        Ok(())
    }

    /// Moves the range cursors whose replicas cannot be read any more, or do not count any more: those get no news.
    async fn leave_lost_replicas(&mut self) -> Result<(), ShardError> {
        let (layout, own) = (self.database.layout(), Arc::clone(&self.database.context.node));
        for at in 0..self.range_cursors.len() {
            let RangeCursor { range, replica, news, .. } = &self.range_cursors[at];
            let counts = layout.placed.nodes(*range, &own).contains(replica.node().unwrap_or(&own));
            if !counts || news.has_changed().is_err() {
                self.move_range_cursor(at).await?;
            }
        }
        Ok(())
    }

    /// Rows to ask of a range at once: no more than can be sent.
    fn page_rows(&self) -> usize {
        match (&self.query.filter, self.query.limit) {
            (ChangesFilter::None, Some(limit)) => {
                let left = usize::try_from(limit - self.sent).unwrap_or(usize::MAX);
                left.clamp(1, limits::PAGE_ROWS)
            }
            _ => limits::PAGE_ROWS,
        }
    }

    /// Counts the rows as read and gives out those that passed, up to the limit. The rows behind that, and those of
    /// which nothing is known, go back to their range cursors.
    fn emit(&mut self, batch: Vec<Row>, listed: Vec<Listed>) -> Vec<ChangeRow> {
        let mut rows = Vec::new();
        let mut unread = Vec::new();
        let mut listed = listed.into_iter();
        for (at, row) in batch {
            let next = if self.limit_reached() { None } else { listed.next() };
            let Some(Listed { revs, deleted, doc }) = next else {
                unread.push((at, row));
                continue;
            };
            self.range_cursors[at].position = row.seq;
            self.read += 1;
            if revs.is_empty() {
                continue;
            }
            if self.is_filtered() {
                self.pass_by(at, row.seq);
            }
            let left = self.query.limit.unwrap_or(limits::CHANGES_WITHOUT_LIMIT).saturating_sub(self.sent);
            let shows_seq = self.query.seq_interval.is_none_or(|n| left.is_multiple_of(n.max(1)));
            let seq = shows_seq.then(|| self.last_seq());
            self.sent += 1;
            rows.push(ChangeRow { seq, id: row.id, revs, deleted, doc });
        }
        for (at, row) in unread.into_iter().rev() {
            sometimes("changes: rows went back to their range");
            self.range_cursors[at].rows.push_front(row);
        }
        if !self.is_filtered() {
            self.range_cursors.iter_mut().for_each(|range_cursor| range_cursor.settle(self.query.descending));
        }
        rows
    }

    /// Whether rows are filtered, in ascending order.
    fn is_filtered(&self) -> bool {
        matches!(self.query.filter, ChangesFilter::Rows(_)) && !self.query.descending
    }

    /// Counts as read what comes before a row in the order of all ranges: the row's sequence then tells neither how
    /// many rows before it were left out nor in which pages they were read.
    fn pass_by(&mut self, at: usize, seq: u64) {
        for (other, range_cursor) in self.range_cursors.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            range_cursor.pass(if other < at { seq } else { seq.saturating_sub(1) });
        }
    }

    /// Waits until there is something after what was read; also returns when the database is deleted.
    pub async fn wait(&mut self) {
        if mutated(Mutation::FeedMissesNews) {
            return drop(self.gone.changed().await);
        }
        if self.range_cursors.iter().any(|range_cursor| range_cursor.moves > limits::REPLICAS_TRIED) {
            // No replica gives what it tells of, for now.
            self.database.context.env.sleep(limits::READ_OVERTAKE).await;
        }
        let has_moved = self.moved.has_changed().unwrap_or(true);
        if has_moved
            || self.is_gone()
            || self.range_cursors.iter().any(|range_cursor| *range_cursor.news.borrow() > range_cursor.cursor)
        {
            return;
        }
        sometimes("changes: a feed waited");
        let mut signals: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(self.range_cursors.len() + 2);
        // A dropped sender counts as a signal, too: `next` then tells what is wrong.
        let gone = &mut self.gone;
        signals.push(Box::pin(async move { drop(gone.changed().await) }));
        let moved = &mut self.moved;
        signals.push(Box::pin(async move { drop(moved.changed().await) }));
        for range_cursor in &mut self.range_cursors {
            let cursor = range_cursor.cursor;
            let news = &mut range_cursor.news;
            signals.push(Box::pin(async move { drop(news.wait_for(|seq| *seq > cursor).await) }));
        }
        select_all(signals).await;
    }

    /// Whether the limit ended the feed.
    pub fn limit_reached(&self) -> bool {
        self.query.limit.is_some_and(|limit| self.sent >= limit)
    }

    /// How many changes were read, with those that the filter left out.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// How far it was read.
    pub fn last_seq(&self) -> String {
        let mut seq = self.seq();
        if mutated(Mutation::FeedSeqAhead) {
            let ahead = seq.0.iter_mut().zip(&self.range_cursors);
            ahead.for_each(|(entry, range_cursor)| entry.position = entry.position.max(range_cursor.until));
        }
        seq.to_string()
    }

    /// Whether nothing more can come, however long one waits.
    pub fn is_over(&self) -> bool {
        self.limit_reached() || self.is_gone() || self.query.descending
    }

    /// Whether the database was deleted: the feed ends.
    pub fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }
}

impl Feeds<'_> {
    /// Begins a feed.
    pub async fn changes(self, query: ChangesQuery) -> Result<Changes, ChangesError> {
        // Before the map, so that no news of it is missed.
        let (moved, gone) = (self.moved.subscribe(), self.watch_gone());
        let map = self.map();
        let range_cursors =
            try_join_all(map.live().iter().map(|range| RangeCursor::open(self.database, *range, &query.since))).await?;
        let (in_round, catch_ups, sent, read) = (false, 0, 0, 0);
        Ok(Changes {
            database: Arc::clone(self.database),
            query,
            map,
            range_cursors,
            moved,
            gone,
            in_round,
            catch_ups,
            sent,
            read,
        })
    }
}
