//! One short read of a copy of each of several ranges. Those that this node reads of its own share one job: to hand
//! each to a thread of its own would cost more than it has to do. All others are asked as single ranges are.

use futures_util::future::{join_all, try_join_all};

use crate::coordinator::database::Database;
use crate::coordinator::error::ReadError;
use crate::coordinator::layout::Layout;
use crate::coordinator::message::Standing;
use crate::coordinator::range_copy::{OwnCopy, RangeCopy};
use crate::coordinator::span::Span;
use crate::shard::{ShardCopy, ShardError, ShardInfo};

impl Database {
    /// The counters of one copy of each of some ranges, and where it stands.
    pub(super) async fn infos(&self, ranges: &[usize]) -> Result<Vec<(ShardInfo, Standing)>, ShardError> {
        let own = |copies: Vec<OwnCopy>| async move {
            let infos = ShardCopy::infos(copies.iter().map(|copy| copy.shard.clone()).collect()).await;
            let standing = |copy: &OwnCopy, info: ShardInfo| Standing { position: info.update_seq, ..copy.standing() };
            let both = |(copy, info): (&OwnCopy, Result<_, _>)| info.map(|info| (info, standing(copy, info)));
            copies.iter().zip(infos).map(both).collect::<Vec<_>>()
        };
        self.on_each(ranges, own, |copy| async move { copy.info().await }).await
    }

    /// How many live documents of a span each of some ranges has.
    pub(super) async fn counts(&self, ranges: &[usize], span: &Span) -> Result<Vec<u64>, ReadError> {
        let own = |copies: Vec<OwnCopy>| async move {
            let shards = copies.into_iter().map(|copy| copy.shard).collect();
            ShardCopy::summaries(shards, &span.low, &span.high).await
        };
        let any = |copy: RangeCopy| async move { copy.summary(span.low.clone(), span.high.clone()).await };
        let sums = self.on_each(ranges, own, any).await?;
        Ok(sums.into_iter().map(|sum| sum.live).collect())
    }

    /// What one copy of each range tells, in their order: `own` asks copies of this node together, `any` asks one copy,
    /// wherever it is.
    async fn on_each<T, R, F>(
        &self,
        ranges: &[usize],
        own: impl FnOnce(Vec<OwnCopy>) -> R,
        any: impl Fn(RangeCopy) -> F,
    ) -> Result<Vec<T>, ShardError>
    where
        R: Future<Output = Vec<Result<T, ShardError>>>,
        F: Future<Output = Result<T, ShardError>>,
    {
        let layout = self.layout();
        let here: Vec<Option<OwnCopy>> = match self.copies_at_hand(&layout, ranges) {
            Some(copies) => copies.into_iter().map(Some).collect(),
            None => join_all(ranges.iter().map(|range| self.first_here(&layout, *range))).await,
        };
        let here = here.into_iter().enumerate().filter_map(|(at, copy)| Some((at, copy?)));
        let (places, copies): (Vec<usize>, Vec<OwnCopy>) = here.unzip();
        let mut told: Vec<Option<T>> = ranges.iter().map(|_| None).collect();
        for (at, read) in places.into_iter().zip(own(copies).await) {
            // What fails here is asked again as of a single range, where it is known what to do then.
            told[at] = read.ok();
        }
        let rest = ranges.iter().zip(&told).filter(|(_, told)| told.is_none());
        let rest: Vec<_> = rest.map(|(range, _)| self.on_one(*range, &any)).collect();
        let mut late = try_join_all(rest).await?.into_iter();
        // Invariant: each range that told nothing before has one answer here.
        Ok(told.into_iter().map(|told| told.or_else(|| late.next()).expect("an answer of each range")).collect())
    }

    /// This node's copy of a range, where that is the first to read from.
    async fn first_here(&self, layout: &Layout, range: usize) -> Option<OwnCopy> {
        match self.readers(layout, range).await.ok()?.into_iter().next()? {
            RangeCopy::Own(copy) => Some(copy),
            RangeCopy::Remote(_) => None,
        }
    }
}
