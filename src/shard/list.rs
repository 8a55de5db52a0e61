//! Lists of live documents in id order.
//!
//! Each step seeks again behind the last row, so that no view of the store lives longer than a step. A document that
//! does not change while a list is read appears exactly once; a changed one appears in its old or its new form.

use std::ops::ControlFlow;

use futures_util::future::join_all;

use super::body::BodyRecord;
use super::keys::{self, Kind};
use super::record::{self, DocHead};
use super::{ListPage, ListRow, ShardError, ShardId, ShardReplica};
use crate::limits;
use crate::storage::{Direction, KeyRange, StorageError, View};

impl ShardReplica {
    /// Live documents in id order. Fewer rows than `page.limit` mean that the range has no more; with bodies, of which
    /// one page has about `limits::STEP_BYTES`, only none mean that.
    pub async fn list(&self, page: ListPage) -> Result<Vec<ListRow>, ShardError> {
        self.finish_list(Listing::of(self.id(), page)).await
    }

    /// [`ShardReplica::list`] of several replicas of this node. Their first steps, most often all that there is to do,
    /// share one job.
    pub async fn lists(lists: Vec<(ShardReplica, ListPage)>) -> Vec<Result<Vec<ListRow>, ShardError>> {
        let replicas: Vec<ShardReplica> = lists.iter().map(|(replica, _)| replica.clone()).collect();
        let begin = |(replica, page): (ShardReplica, ListPage)| {
            let listing = Listing::of(replica.id(), page);
            (replica, move |view: &dyn View, shard: ShardId| listing.step(view, shard))
        };
        let rows = lists.iter().fold(0, |rows: usize, (_, page)| rows.saturating_add(page.limit));
        let inline = rows <= limits::INLINE_ROWS;
        let begun = ShardReplica::read_records_of(lists.into_iter().map(begin).collect(), inline).await;
        let mut finished = Vec::with_capacity(replicas.len());
        for (replica, begun) in replicas.iter().zip(begun) {
            finished.push(async move { replica.finish_list(begun?).await });
        }
        join_all(finished).await
    }

    async fn finish_list(&self, mut listing: Listing) -> Result<Vec<ListRow>, ShardError> {
        while !listing.is_done() {
            listing = self.read(move |view, shard| listing.step(view, shard)).await?;
        }
        Ok(listing.rows)
    }
}

/// A list of which some rows are read.
struct Listing {
    direction: Direction,
    limit: usize,
    bodies: bool,
    /// What is left to read.
    rest: Option<KeyRange>,
    rows: Vec<ListRow>,
    /// Bytes of bodies in them.
    bytes: usize,
}

impl Listing {
    fn of(shard: ShardId, page: ListPage) -> Listing {
        let rest = Some(keys::ids(shard, Kind::Document, &page.start, &page.end));
        let direction = if page.descending { Direction::Reverse } else { Direction::Forward };
        Listing { direction, limit: page.limit, bodies: page.bodies, rest, rows: Vec::new(), bytes: 0 }
    }

    fn is_done(&self) -> bool {
        self.rows.len() >= self.limit || self.rest.is_none()
    }

    fn step(mut self, view: &dyn View, shard: ShardId) -> Result<Listing, StorageError> {
        if !self.is_done()
            && let Some(range) = self.rest.take()
        {
            let limit = self.limit - self.rows.len();
            let (rows, rest) = list_step(view, shard, range, self.direction, limit, self.bodies)?;
            self.bytes += rows.iter().flat_map(|row| &row.winner).map(|winner| winner.body.len()).sum::<usize>();
            self.rows.extend(rows);
            self.rest = rest.filter(|_| self.bytes < limits::STEP_BYTES);
        }
        Ok(self)
    }
}

/// A scan that ends after a bounded number of rows or bytes and knows where to go on.
///
/// # Errors
/// Those of the store, and of `row`.
pub fn bounded_scan(
    view: &dyn View,
    mut range: KeyRange,
    direction: Direction,
    mut row: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StorageError>,
) -> Result<Option<KeyRange>, StorageError> {
    let (mut rows, mut bytes) = (0, 0);
    let mut stopped: Option<Result<Vec<u8>, StorageError>> = None;
    view.scan(&range, direction, &mut |key, value| {
        rows += 1;
        bytes += value.len();
        let flow = match row(key, value) {
            Ok(flow) => flow,
            Err(error) => {
                stopped = Some(Err(error));
                return ControlFlow::Break(());
            }
        };
        if flow.is_break() || rows == limits::STEP_ROWS || bytes >= limits::STEP_BYTES {
            stopped = Some(Ok(key.to_vec()));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let Some(last) = stopped.transpose()? else { return Ok(None) };
    match direction {
        Direction::Forward => {
            range.start = last;
            range.start.push(0);
        }
        Direction::Reverse => range.end = Some(last),
    }
    Ok(Some(range))
}

type ListStep = (Vec<ListRow>, Option<KeyRange>);

fn list_step(
    view: &dyn View,
    shard: ShardId,
    range: KeyRange,
    direction: Direction,
    limit: usize,
    bodies: bool,
) -> Result<ListStep, StorageError> {
    let (mut out, mut body_bytes) = (Vec::new(), 0);
    let rest = bounded_scan(view, range, direction, |key, value| {
        if record::summary_of(&key[keys::PREFIX..], value)?.live == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        let head = DocHead::decode(value)?;
        let (rev, deleted) = head.leaves[0].clone();
        let winner = if bodies && head.body != 0 {
            Some(BodyRecord::load(view, shard, head.body)?.stored(rev, deleted))
        } else {
            None
        };
        body_bytes += winner.as_ref().map_or(0, |winner| winner.body.len());
        out.push(ListRow { id: keys::id_of(key)?, leaves: head.leaves, local_seq: head.seq, winner });
        let full = out.len() == limit || body_bytes >= limits::STEP_BYTES;
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok((out, rest))
}
