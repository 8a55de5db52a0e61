//! The changes feed: a merge over the ranges, page by page, that can wait for more.
//!
//! A feed reads in rounds. A round ends at the last change of each range that was there when it began; the rows of all
//! ranges come in the order of their sequences. It promises that a reader who goes on from a sequence misses nothing.

mod follower;
mod lane;
mod query;

use std::sync::Arc;

use futures_util::future::{join_all, select_all, try_join_all};
use tokio::sync::watch;

use crate::coordinator::database::{Database, entry};
use crate::coordinator::error::{ChangesError, ReadError};
use crate::coordinator::message::Standing;
use crate::coordinator::range_copy::is_away;
use crate::coordinator::seq::Seq;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{self, ChangesPage, Fetched, ShardError, Want};
use crate::storage::Direction;
use crate::world::BoxFuture;
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};
pub use follower::Follower;
use lane::{Lane, next_lane, page_of_ids};
pub use query::{Candidate, ChangeRow, ChangesFilter, ChangesQuery, RowFilter, Since, Style};

/// A feed being read.
///
/// `normal`: call `next` until `None`. `longpoll`, `continuous`, `eventsource`: at `None`, unless `is_over`, call
/// `wait` and go on with `next`.
pub struct Changes {
    database: Arc<Database>,
    query: ChangesQuery,
    lanes: Vec<Lane>,
    gone: watch::Receiver<bool>,
    /// Whether a round is under way: from the first `next` to the `None` that ends it.
    in_round: bool,
    /// Rows given out.
    sent: u64,
}

impl Changes {
    /// The next page (may be empty when a filter left out all of it); `None` when all that is there was read.
    pub async fn next(&mut self) -> Result<Option<Vec<ChangeRow>>, ChangesError> {
        if self.limit_reached() {
            return Ok(None);
        }
        if !self.in_round {
            self.leave_lost_copies().await?;
            let descending = self.query.descending;
            self.lanes.iter_mut().for_each(|lane| lane.begin_round(descending));
            if let Some(second) = self.lanes.get_mut(1).filter(|_| mutated(Mutation::FeedSkipsRange)) {
                (second.done, second.cursor) = (true, second.until);
            }
            self.in_round = true;
        }
        let batch = self.gather().await?;
        if batch.is_empty() {
            self.lanes.iter_mut().for_each(|lane| lane.settle(self.query.descending));
            self.in_round = false;
            return Ok(None);
        }
        let passed = self.judge(&batch).await?;
        let mut rows = self.emit(batch, passed);
        if self.query.include_docs {
            self.add_docs(&mut rows).await?;
        }
        Ok(Some(rows.into_iter().map(|(row, _)| row).collect()))
    }

    /// Fills the lanes that ran empty and merges up to a page of rows, which stay unsent until `emit`.
    async fn gather(&mut self) -> Result<Vec<(usize, shard::ChangeRow)>, ChangesError> {
        let page = if self.query.include_docs || matches!(self.query.filter, ChangesFilter::Rows(_)) {
            limits::PAGE_DOCS
        } else {
            limits::PAGE_ROWS
        };
        // Not more than is wanted: a range is asked for no more rows than that at once.
        let page = fewer("changes: a page of one row", page.min(self.page_rows()));
        let mut batch = Vec::new();
        while batch.len() < page {
            self.fill().await?;
            let heads = self.lanes.iter().map(|lane| lane.rows.front().map(|row| row.seq));
            let Some(lane) = next_lane(heads, self.query.descending) else { break };
            // Invariant: the lane was chosen for its first row.
            batch.push((lane, self.lanes[lane].rows.pop_front().expect("a first row")));
        }
        Ok(batch)
    }

    async fn fill(&mut self) -> Result<(), ChangesError> {
        let empty = |(_, lane): &(usize, &Lane)| lane.rows.is_empty() && !lane.done;
        let empty: Vec<(usize, u64)> =
            self.lanes.iter().enumerate().filter(empty).map(|(at, lane)| (at, lane.cursor)).collect();
        if empty.is_empty() {
            return Ok(());
        }
        let asked = fewer("changes: a range read row by row", self.page_rows());
        let read = |(at, cursor): (usize, u64)| {
            let page = self.page(at, cursor, asked);
            async move { (at, page.await) }
        };
        let mut lost = Vec::new();
        for (at, page) in join_all(empty.into_iter().map(read)).await {
            match page {
                Ok(page) => {
                    let asked = if self.looks_up() { usize::MAX } else { asked };
                    self.lanes[at].take_page(page, asked, self.query.descending);
                }
                Err(error) if is_away(&error) && self.database.copies_of(at) > 1 && !self.query.descending => {
                    lost.push(at);
                }
                Err(error) => return Err(error.into()),
            }
        }
        for at in lost {
            self.move_lane(at).await?;
        }
        Ok(())
    }

    /// Whether the documents are looked up one by one.
    fn looks_up(&self) -> bool {
        matches!(&self.query.filter, ChangesFilter::DocIds(ids) if ids.len() <= limits::CHANGES_DOC_IDS_LOOKED_UP)
    }

    /// The next rows of a lane.
    async fn page(&self, at: usize, cursor: u64, asked: usize) -> Result<ChangesPage, ShardError> {
        let (lane, query) = (&self.lanes[at], &self.query);
        match &query.filter {
            ChangesFilter::DocIds(ids) if self.looks_up() => {
                page_of_ids(&self.database, (at, &lane.copy), ids, cursor, query.descending).await
            }
            _ => {
                let direction = if query.descending { Direction::Reverse } else { Direction::Forward };
                lane.copy.changes(cursor, direction, asked, lane.standing.epoch).await
            }
        }
    }

    /// Goes on with another copy of a range; what was read up to then may be read again, nothing is left out. The round
    /// of the range ends: it goes on with the next one.
    async fn move_lane(&mut self, at: usize) -> Result<(), ShardError> {
        let entries = vec![entry(self.database.map.range(at as u32), self.lanes[at].entry())];
        let lane = Lane::open(&self.database, at, &Since::Seq(Seq(entries))).await?;
        self.lanes[at] = Lane { done: true, ..lane };
        Ok(())
    }

    /// Moves the lanes whose copies cannot be read any more.
    async fn leave_lost_copies(&mut self) -> Result<(), ShardError> {
        for at in 0..self.lanes.len() {
            if self.lanes[at].news.has_changed().is_err() && self.lanes[at].copy.node().is_some() {
                self.move_lane(at).await?;
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

    /// For each row the leaves to list; none when the filter leaves it out.
    async fn judge(&self, batch: &[(usize, shard::ChangeRow)]) -> Result<Vec<Vec<Revision>>, ChangesError> {
        let style = self.query.style;
        let listed = |row: &shard::ChangeRow| -> Vec<Revision> {
            let count = if style == Style::AllDocs { row.leaves.len() } else { 1 };
            row.leaves.iter().take(count).map(|(rev, _)| rev.clone()).collect()
        };
        let by_id = |passes: &dyn Fn(&DocId) -> bool| {
            batch.iter().map(|(_, row)| if passes(&row.id) { listed(row) } else { Vec::new() }).collect()
        };
        match &self.query.filter {
            ChangesFilter::None => Ok(by_id(&|_| true)),
            ChangesFilter::Design => Ok(by_id(&DocId::is_design)),
            ChangesFilter::DocIds(ids) => Ok(by_id(&|id| ids.contains(id))),
            ChangesFilter::Rows(filter) => {
                let mut out = Vec::with_capacity(batch.len());
                for chunk in batch.chunks(limits::DOCS_PER_FETCH) {
                    let candidates = self.candidates(chunk).await?;
                    let passed = filter.pass(&candidates).await?;
                    assert_eq!(passed.len(), candidates.len(), "a filter judges each candidate");
                    for (candidate, passed) in candidates.into_iter().zip(passed) {
                        let leaves = candidate.leaves.into_iter().zip(passed);
                        out.push(leaves.filter(|(_, pass)| *pass).map(|(leaf, _)| leaf.rev).collect());
                    }
                }
                Ok(out)
            }
        }
    }

    async fn candidates(&self, rows: &[(usize, shard::ChangeRow)]) -> Result<Vec<Candidate>, ChangesError> {
        let want = if self.query.style == Style::AllDocs { Want::Leaves } else { Want::Winner };
        let wants = rows.iter().map(|(_, row)| (row.id.clone(), want.clone())).collect();
        let found = self.database.fetch_many(wants, Some(1)).await?;
        let candidate = |((_, row), fetched): (&(usize, shard::ChangeRow), Option<Fetched>)| {
            let found = fetched.into_iter().flat_map(|fetched| fetched.found);
            Candidate { id: row.id.clone(), leaves: found.filter_map(|(_, stored)| stored).collect() }
        };
        Ok(rows.iter().zip(found).map(candidate).collect())
    }

    /// Counts the rows as read and gives out those that passed, up to the limit; what is left goes back to its lane.
    fn emit(
        &mut self,
        batch: Vec<(usize, shard::ChangeRow)>,
        passed: Vec<Vec<Revision>>,
    ) -> Vec<(ChangeRow, Revision)> {
        let mut rows = Vec::new();
        let mut unread = Vec::new();
        for ((at, row), revs) in batch.into_iter().zip(passed) {
            if self.limit_reached() {
                unread.push((at, row));
                continue;
            }
            self.lanes[at].position = row.seq;
            if revs.is_empty() {
                continue;
            }
            let shows_seq = self.query.seq_interval.is_none_or(|n| self.sent.is_multiple_of(n.max(1)));
            let seq = shows_seq.then(|| self.last_seq());
            self.sent += 1;
            // Invariant: a changed document has a leaf.
            let (winner, deleted) = row.leaves.into_iter().next().expect("a leaf");
            rows.push((ChangeRow { seq, id: row.id, revs, deleted, doc: None }, winner));
        }
        for (at, row) in unread.into_iter().rev() {
            sometimes("changes: rows went back to their range");
            self.lanes[at].rows.push_front(row);
        }
        self.lanes.iter_mut().for_each(|lane| lane.settle(self.query.descending));
        rows
    }

    async fn add_docs(&self, rows: &mut [(ChangeRow, Revision)]) -> Result<(), ChangesError> {
        for chunk in rows.chunks_mut(limits::DOCS_PER_FETCH) {
            let wants = chunk.iter().map(|(row, winner)| (row.id.clone(), winner.clone())).collect();
            let docs = self.database.row_docs(wants, self.query.conflicts).await?;
            chunk.iter_mut().zip(docs).for_each(|((row, _), doc)| row.doc = doc.map(Box::new));
        }
        Ok(())
    }

    /// Waits until there is something after what was read; also returns when the database is deleted.
    pub async fn wait(&mut self) {
        if mutated(Mutation::FeedMissesNews) {
            return drop(self.gone.changed().await);
        }
        if self.is_gone() || self.lanes.iter().any(|lane| *lane.news.borrow() > lane.cursor) {
            return;
        }
        sometimes("changes: a feed waited");
        let mut signals: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(self.lanes.len() + 1);
        // A dropped sender counts as a signal, too: `next` then tells what is wrong.
        let gone = &mut self.gone;
        signals.push(Box::pin(async move { drop(gone.changed().await) }));
        for lane in &mut self.lanes {
            let cursor = lane.cursor;
            let news = &mut lane.news;
            signals.push(Box::pin(async move { drop(news.wait_for(|seq| *seq > cursor).await) }));
        }
        select_all(signals).await;
    }

    /// Whether the limit ended the feed.
    pub fn limit_reached(&self) -> bool {
        self.query.limit.is_some_and(|limit| self.sent >= limit)
    }

    /// How far it was read.
    pub fn last_seq(&self) -> String {
        let ahead = mutated(Mutation::FeedSeqAhead);
        let reached = |lane: &Lane| match ahead {
            true => Standing { position: lane.position.max(lane.until), ..lane.standing },
            false => lane.entry(),
        };
        self.database.seq_at(self.lanes.iter().map(reached)).to_string()
    }

    /// How many changes are left behind what was read.
    pub fn pending(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.rows.len() as u64 + lane.after).sum()
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

impl Database {
    /// Begins a feed.
    pub async fn changes(self: &Arc<Self>, query: ChangesQuery) -> Result<Changes, ChangesError> {
        let open = |at| Lane::open(self, at, &query.since);
        let lanes = try_join_all((0..self.map.q as usize).map(open)).await?;
        let gone = self.watch_gone();
        Ok(Changes { database: Arc::clone(self), query, lanes, gone, in_round: false, sent: 0 })
    }

    /// The sequence of this moment.
    pub async fn update_seq(&self) -> Result<Seq, ReadError> {
        let standing = |range| self.on_one(range, |copy| async move { copy.standing().await });
        Ok(self.seq_at(try_join_all((0..self.map.q as usize).map(standing)).await?))
    }
}
