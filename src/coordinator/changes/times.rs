//! `_time_seq`: at which sequence the replicas of a database stood at which time (`shard/time_seq.rs`).

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};

use crate::coordinator::changes::Feeds;
use crate::coordinator::replica::message::is_of_later_build;
use crate::coordinator::topology::error::ReadError;
use crate::shard::ShardError;

/// What the replicas of a range tell: the range, and by node how many changes there were from each time on.
pub type RangeTimes = (String, Vec<(String, Vec<(u64, u64)>)>);

impl Feeds<'_> {
    /// How many changes there were in each bin, by range and node, in seconds since the Unix epoch. Nodes that are away
    /// are left out.
    ///
    /// # Errors
    /// When none of a range can be asked.
    pub async fn time_seq(self) -> Result<Vec<RangeTimes>, ReadError> {
        let layout = self.layout();
        let range = |range: usize| {
            let layout = &layout;
            async move {
                let nodes = layout.placed.nodes(range, &self.context.node);
                let ask = |node: Arc<str>| async move {
                    let times = self.replicas().copy_on(layout, range, &node).await?.times().await?;
                    Ok((node.to_string(), times.histogram()))
                };
                let asked = join_all(nodes.iter().cloned().map(ask)).await;
                let copies = nodes.len();
                let (mut told, mut gone) = (Vec::new(), None);
                for answer in asked {
                    match answer {
                        Ok(times) => told.push(times),
                        Err(error @ (ShardError::Dropped | ShardError::Moved)) => gone = Some(error),
                        Err(_) => {}
                    }
                }
                match told.is_empty() {
                    true => Err(gone.unwrap_or(ShardError::NoCopy { copies })),
                    false => Ok((layout.map.range(range).to_string(), told)),
                }
            }
        };
        Ok(try_join_all(layout.map.live().iter().map(|index| range(*index))).await?)
    }

    /// Has all replicas forget it; a feed since a time begins at the beginning then.
    ///
    /// # Errors
    /// When some replica could not be asked. The others may have done it.
    pub async fn clear_time_seq(self) -> Result<(), ReadError> {
        let layout = self.layout();
        for range in layout.map.live() {
            for node in layout.placed.nodes(*range, &self.context.node).iter() {
                match self.replicas().copy_on(&layout, *range, node).await?.clear_times().await {
                    // A node of an older version notes nothing.
                    Err(error) if !is_of_later_build(&error) => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
