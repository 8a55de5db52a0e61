//! Range cursor: the part of a feed that comes from one range, read from one of its replicas.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

use crate::coordinator::changes::query::Since;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::seq::SeqEntry;
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue;
use crate::limits;
use crate::shard::{Fetched, ShardChange, ShardChangesPage, ShardError, Want};
use crate::world::buggify::{Mutation, mutated};

/// See the module head.
pub(super) struct RangeCursor {
    /// The number of the range.
    pub range: usize,
    pub replica: RangeReplica,
    /// The replica's number and the epoch that positions are of.
    pub replica_position: ReplicaPosition,
    /// How far it was given out: what the sequence shows.
    pub position: u64,
    /// Where the next page begins.
    pub cursor: u64,
    /// Of a feed that reads backwards: all changes up to here were read, but for those of documents that changed since.
    caught_up: u64,
    /// The round ends here, so that a busy writer cannot keep it going for ever.
    pub until: u64,
    /// Read, not yet given out.
    pub rows: VecDeque<ShardChange>,
    /// Changes behind those.
    pub after: u64,
    /// Whether the round has nothing more to read here.
    pub done: bool,
    /// How often the end of the round was moved.
    moved_ends: usize,
    /// How often the range went over to another replica in this round.
    pub moves: usize,
    /// Whether it did since the last page was given out: then the round of the range is still to go on.
    pub has_moved: bool,
    /// Its sender goes when the replica cannot be read any more: the range cursor then moves to another one.
    pub news: watch::Receiver<u64>,
}

impl RangeCursor {
    /// Chooses a replica of a range to read changes from, and the position to begin at: for a sequence the replica that
    /// it is of, if the usual one would go back and that one is in reach and in sync.
    ///
    /// # Errors
    /// When no replica can be read.
    pub async fn open(database: &Arc<Database>, range: usize, since: &Since) -> Result<RangeCursor, ShardError> {
        let entries: Vec<SeqEntry> = match since {
            Since::Seq(seq) => seq.over(database.map().range(range)),
            Since::Beginning | Since::Now | Since::Time(_) => Vec::new(),
        };
        let entries = &entries;
        let begin = |replica: RangeReplica| async move {
            let (replica_position, news) = replica.watch().await?;
            let position = match since {
                Since::Now => replica_position.position,
                Since::Time(time) => replica.position_at(*time).await?.min(replica_position.position),
                _ if mutated(Mutation::FeedRewinds) && range + 1 == database.map().q() => 0,
                // A position past the end, of a replica that was restored, resumes at the end.
                Since::Beginning | Since::Seq(_) => replica.resume(entries).await?.min(replica_position.position),
            };
            let (cursor, caught_up, until, rows) = (position, position, position, VecDeque::new());
            let (after, done, moved_ends, moves, has_moved) = (0, false, 0, 0, false);
            let range_cursor = RangeCursor {
                range,
                replica,
                replica_position,
                position,
                cursor,
                caught_up,
                until,
                rows,
                after,
                done,
                moved_ends,
                moves,
                has_moved,
                news,
            };
            Ok(range_cursor)
        };
        let cursor = database.replicas().on_one(range, begin).await?;
        let [entry] = entries.as_slice() else { return Ok(cursor) };
        // What there is nothing behind cannot come again.
        if cursor.is_of(entry) || cursor.position == cursor.replica_position.position {
            return Ok(cursor);
        }
        // Else a client that asks for a page of another node each time could get the same rows for ever.
        let read = |replica: RangeReplica| async move {
            let another = || ShardError::NotExecuted("another replica was read".to_owned());
            let node = replica.node().unwrap_or(&database.context.node);
            if database.context.rank(node) != Some(0) {
                return Err(another());
            }
            let cursor = begin(replica).await?;
            if cursor.is_of(entry) { Ok(cursor) } else { Err(another()) }
        };
        Ok(database.replicas().on_one(range, read).await.unwrap_or(cursor))
    }

    /// Whether it is the replica's positions that an entry is of.
    fn is_of(&self, entry: &SeqEntry) -> bool {
        (self.replica_position.shard, self.replica_position.epoch) == (entry.shard, entry.epoch)
    }

    /// What the sequence says of the range.
    pub fn entry(&self) -> ReplicaPosition {
        ReplicaPosition { position: self.position, ..self.replica_position }
    }

    pub fn begin_round(&mut self, descending: bool) {
        self.moves = 0;
        self.go_on();
        if descending {
            let behind = u64::from(!mutated(Mutation::DescendingLeavesOut));
            self.cursor = self.until.saturating_add(behind);
            (self.position, self.caught_up) = (self.until, self.until);
        }
    }

    /// The round goes on to what is the last change now.
    pub fn go_on(&mut self) {
        self.until = *self.news.borrow_and_update();
        (self.done, self.moved_ends, self.has_moved) = (false, 0, false);
    }

    /// A feed that read backwards to the beginning goes on with the changes behind those that it began with, up to
    /// `end`; whether there are any.
    pub fn catch_up(&mut self, end: u64) -> bool {
        if end <= self.caught_up {
            return false;
        }
        (self.cursor, self.until) = (self.caught_up, end);
        (self.done, self.moved_ends) = (false, 0);
        true
    }

    /// Takes a page in; `ended`: there is nothing more to read. A row behind the end of the round moves the end: its
    /// document may have stood before it when the round began, and changed since, and so may others behind it. Each
    /// time there is less to read, unless writers are faster; after a few times the round ends with what it has. A
    /// document that changes while the round is read may thus come twice.
    pub fn take_page(&mut self, page: ShardChangesPage, ended: bool, descending: bool) {
        let ShardChangesPage { rows, pending_after, last_seq } = page;
        let past = rows.last().map(|row| row.seq).filter(|seq| !descending && *seq > self.until);
        (self.after, self.done) = (pending_after, ended);
        if let Some(past) = past {
            let goes_on = !ended && self.moved_ends < limits::CHANGES_ENDS_MOVED;
            self.until = if goes_on { past.max(*self.news.borrow()) } else { past };
            self.moved_ends += 1;
            self.done = !goes_on;
        }
        if past.is_some() && self.done {
            // What was written since the round began is not pending: it comes with the next one.
            self.after = 0;
        }
        self.cursor = if descending { last_seq } else { last_seq.max(self.cursor) };
        if !descending {
            self.caught_up = self.cursor;
        }
        self.rows = rows.into();
    }

    /// All that has a sequence up to `seq` was given out, or left out by a filter.
    pub fn pass(&mut self, seq: u64) {
        self.position = self.position.max(seq.min(self.until));
    }

    /// The round ends here, for now: nothing behind it counts as read.
    pub fn cut_round(&mut self) {
        // As many at most: who reads page by page must not take the feed for read to its end.
        self.after = self.news.borrow().saturating_sub(self.position);
        (self.done, self.until) = (true, self.position);
        self.rows.clear();
    }

    /// When everything was given out the position is that of the end, which may lie behind the last row. Not while rows
    /// of the range cursor are gathered and unsent: a limit may send them back.
    pub fn settle(&mut self, descending: bool) {
        if self.rows.is_empty() && self.done && !descending {
            self.position = self.position.max(self.cursor);
        }
    }
}

/// Which range cursor is next: the one with the lowest sequence (descending: the highest), the first of equal ones.
pub(super) fn next_range_cursor(heads: impl Iterator<Item = Option<u64>>, descending: bool) -> Option<usize> {
    let heads = heads.enumerate().filter_map(|(range_cursor, seq)| Some((seq?, range_cursor)));
    match descending {
        false => heads.min(),
        true => heads.min_by_key(|(seq, range_cursor)| (Reverse(*seq), *range_cursor)),
    }
    .map(|(_, range_cursor)| range_cursor)
}

/// The changes of documents of one range, looked up instead of searched for. They are looked up again while they
/// change; one that changes all the time is told at the end, and comes again with the next reading.
pub(super) async fn page_of_ids(
    replica: &RangeReplica,
    ids: Vec<&DocId>,
    cursor: u64,
    descending: bool,
) -> Result<ShardChangesPage, ShardError> {
    let ids: Vec<&DocId> = ids.into_iter().filter(|id| !id.is_local()).collect();
    let (mut rows, mut last_seq) = (Vec::new(), 0);
    for _ in 0..limits::CHANGES_LOOK_UPS {
        last_seq = replica.replica_position().await?.position;
        rows = look_up(replica, &ids).await?;
        if descending || rows.iter().all(|row: &ShardChange| row.seq <= last_seq) {
            break;
        }
    }
    if !descending {
        // Behind the end others may have changed since they were looked up.
        rows.iter_mut().for_each(|row| row.seq = row.seq.min(last_seq));
        rows.retain(|row| row.seq > cursor);
    }
    rows.sort_by_key(|row| row.seq);
    if descending {
        rows.reverse();
    }
    Ok(ShardChangesPage { rows, pending_after: 0, last_seq })
}

/// The last change of each document that there is.
async fn look_up(replica: &RangeReplica, ids: &[&DocId]) -> Result<Vec<ShardChange>, ShardError> {
    let mut rows = Vec::new();
    for some in ids.chunks(limits::CHANGES_DOC_IDS_LOOKED_UP) {
        let wants = some.iter().map(|id| (DocId::clone(id), Want::Tree)).collect();
        for (id, fetched) in some.iter().zip(replica.fetch(wants).await?) {
            let Some(Fetched { tree, local_seq: seq, .. }) = fetched else { continue };
            let leaves = tree.leaves().into_iter().map(|leaf| (leaf.rev, leaf.value.is_deleted())).collect();
            rows.push(ShardChange { seq, id: DocId::clone(id), leaves });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merge(mut range_cursors: Vec<VecDeque<u64>>, descending: bool) -> Vec<(usize, u64)> {
        let mut out = Vec::new();
        while let Some(range_cursor) = next_range_cursor(range_cursors.iter().map(|l| l.front().copied()), descending) {
            out.push((range_cursor, range_cursors[range_cursor].pop_front().unwrap()));
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn the_merge_keeps_each_range_cursor_and_orders_all(
            lists in prop::collection::vec(prop::collection::btree_set(0_u64..50, 0..8), 1..5), descending: bool,
        ) {
            let lists: Vec<VecDeque<u64>> = lists
                .into_iter()
                .map(|list| if descending { list.into_iter().rev().collect() } else { list.into_iter().collect() })
                .collect();
            let merged = merge(lists.clone(), descending);
            let in_order = |pair: &[(usize, u64)]| {
                let (a, b) = (pair[0], pair[1]);
                a.1 == b.1 && a.0 < b.0 || if descending { a.1 > b.1 } else { a.1 < b.1 }
            };
            prop_assert!(merged.windows(2).all(in_order));
            for (at, list) in lists.iter().enumerate() {
                let own: Vec<u64> = merged.iter().filter(|(l, _)| *l == at).map(|(_, seq)| *seq).collect();
                prop_assert_eq!(own, list.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
