//! One short read on a replica of each of several ranges. The reads of this node's own replicas share one job, because
//! a thread for each would cost more than the reads. Replicas of other nodes are asked one by one.

use futures_util::future::{join_all, try_join_all};

use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica};
use crate::coordinator::replica::replicas::Replicas;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::span::Span;
use crate::shard::{ListPage, ListRow, ShardError, ShardInfo, ShardReplica};

impl Replicas<'_> {
    /// The counters of one replica of each of some ranges, and where it stands.
    pub(in crate::coordinator) async fn infos(
        self,
        ranges: &[usize],
    ) -> Result<Vec<(ShardInfo, ReplicaPosition)>, ShardError> {
        let own = |replicas: Vec<(usize, OwnReplica)>| async move {
            let infos = ShardReplica::infos(replicas.iter().map(|(_, replica)| replica.shard.clone()).collect()).await;
            let mut told = Vec::with_capacity(infos.len());
            for ((_, replica), info) in replicas.iter().zip(infos) {
                told.push(
                    info.map(|info| {
                        (info, ReplicaPosition { position: info.update_seq, ..replica.replica_position() })
                    }),
                );
            }
            told
        };
        self.on_each(ranges, own, |_, replica| async move { replica.info().await }).await
    }

    /// How many live documents of a span each of some ranges has.
    pub(in crate::coordinator) async fn counts(self, ranges: &[usize], span: &Span) -> Result<Vec<u64>, ReadError> {
        let own = |replicas: Vec<(usize, OwnReplica)>| async move {
            let shards = replicas.into_iter().map(|(_, replica)| replica.shard).collect();
            ShardReplica::summaries(shards, &span.low, &span.high).await
        };
        let any =
            |_: usize, replica: RangeReplica| async move { replica.summary(span.low.clone(), span.high.clone()).await };
        let sums = self.on_each(ranges, own, any).await?;
        Ok(sums.into_iter().map(|sum| sum.live).collect())
    }

    /// A page of each of some ranges. Not for pages with bodies: those are no short reads.
    pub(in crate::coordinator) async fn lists(
        self,
        ranges: &[usize],
        pages: &[ListPage],
    ) -> Result<Vec<Vec<ListRow>>, ShardError> {
        assert_eq!(ranges.len(), pages.len(), "a page of each range");
        let own = |replicas: Vec<(usize, OwnReplica)>| {
            ShardReplica::lists(replicas.into_iter().map(|(at, replica)| (replica.shard, pages[at].clone())).collect())
        };
        let any = |at: usize, replica: RangeReplica| {
            let page = pages[at].clone();
            async move { replica.list(page).await }
        };
        self.on_each(ranges, own, any).await
    }

    /// What one replica of each range tells, in their order: `own` asks replicas of this node together, `any` asks one
    /// replica, wherever it is. Both are told which of the ranges it is, from 0 on.
    async fn on_each<T, R, F>(
        self,
        ranges: &[usize],
        own: impl FnOnce(Vec<(usize, OwnReplica)>) -> R,
        any: impl Fn(usize, RangeReplica) -> F,
    ) -> Result<Vec<T>, ShardError>
    where
        R: Future<Output = Vec<Result<T, ShardError>>>,
        F: Future<Output = Result<T, ShardError>>,
    {
        let layout = self.layout();
        let here: Vec<Option<OwnReplica>> = match self.replicas_at_hand(&layout, ranges) {
            Some(replicas) => replicas.into_iter().map(Some).collect(),
            None => join_all(ranges.iter().map(|range| self.first_here(&layout, *range))).await,
        };
        let here: Vec<(usize, OwnReplica)> =
            here.into_iter().enumerate().filter_map(|(at, replica)| Some((at, replica?))).collect();
        let places: Vec<usize> = here.iter().map(|(at, _)| *at).collect();
        let mut told: Vec<Option<T>> = ranges.iter().map(|_| None).collect();
        for (at, read) in places.into_iter().zip(own(here).await) {
            // What fails here is asked again as of a single range, where it is known what to do then.
            told[at] = read.ok();
            if told[at].is_some() && !layout.is_alone(ranges[at]) {
                self.note_reader(ranges[at], None);
            }
        }
        let any = &any;
        let mut rest = Vec::new();
        for (at, range) in ranges.iter().enumerate().filter(|(at, _)| told[*at].is_none()) {
            rest.push(self.on_one(*range, move |replica| any(at, replica)));
        }
        let mut late = try_join_all(rest).await?.into_iter();
        // Invariant: each range that told nothing before has one answer here.
        Ok(told.into_iter().map(|told| told.or_else(|| late.next()).expect("an answer of each range")).collect())
    }

    /// This node's replica of a range, where that is the first to read from.
    async fn first_here(self, layout: &Layout, range: usize) -> Option<OwnReplica> {
        match self.readers(layout, range).await.ok()?.into_iter().next()? {
            RangeReplica::Own(replica) => Some(replica),
            RangeReplica::Remote(_) => None,
        }
    }
}
