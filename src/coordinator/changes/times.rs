//! `_time_seq`: at which sequence the replicas of a database stood at which time (`shard/time_seq.rs`).

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};

use crate::coordinator::changes::Feeds;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::is_unknown_call;
use crate::coordinator::topology::error::ReadError;
use crate::shard::ShardError;

/// What the replicas of a range tell: the range, and by node how many changes there were from each time on.
pub type RangeTimes = (String, Vec<(String, Vec<(u64, u64)>)>);

impl Feeds<'_> {
    /// How many changes there were in each bin, by range and node, in seconds since the Unix epoch. Nodes that are away
    /// or of an older version are left out.
    ///
    /// # Errors
    /// When none of a range can be asked.
    pub async fn time_seq(self) -> Result<Vec<RangeTimes>, ReadError> {
        let all = |layout: Arc<Layout>| async move {
            let ranges = layout.map.live().iter().map(|range| self.times_of(&layout, *range));
            Ok(try_join_all(ranges).await?)
        };
        self.replicas().by_layout(all).await
    }

    async fn times_of(self, layout: &Layout, range: usize) -> Result<RangeTimes, ShardError> {
        let nodes = layout.placed.nodes(range, &self.context.node);
        let ask = |node: Arc<str>| async move {
            let times = self.replicas().replica_on(layout, range, &node).await?.times().await?;
            Ok((node.to_string(), times.histogram()))
        };
        let (mut told, mut failed) = (Vec::new(), ShardError::NoReplica { replicas: nodes.len() });
        let mut is_older = false;
        for answer in join_all(nodes.iter().cloned().map(ask)).await {
            match answer {
                Ok(times) => told.push(times),
                Err(error @ (ShardError::Dropped | ShardError::Moved)) => failed = error,
                Err(error) => is_older |= is_unknown_call(&error),
            }
        }
        if told.is_empty() && !is_older { Err(failed) } else { Ok((layout.map.range(range).to_string(), told)) }
    }

    /// Has all replicas forget it; a feed since a time begins at the beginning then.
    ///
    /// # Errors
    /// When some replica could not be asked. The others may have done it.
    pub async fn clear_time_seq(self) -> Result<(), ReadError> {
        let all = |layout: Arc<Layout>| async move {
            for range in layout.map.live() {
                for node in layout.placed.nodes(*range, &self.context.node).iter() {
                    match self.replicas().replica_on(&layout, *range, node).await?.clear_times().await {
                        // A node of an older version notes nothing.
                        Err(error) if !is_unknown_call(&error) => return Err(error.into()),
                        _ => {}
                    }
                }
            }
            Ok(())
        };
        self.replicas().by_layout(all).await
    }
}
