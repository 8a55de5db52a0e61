//! What is to expire next in a database, and what holds it back. Nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};

use crate::coordinator::anti_entropy::DocumentExpiry;
use crate::coordinator::anti_entropy::expiry::passed_by;
use crate::coordinator::anti_entropy::retention::{Hindrance, of_failed};
use crate::coordinator::replica::calls::{Expiring, ExpiryOf, Look};
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_copy::RangeCopy;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::quorum::majority;
use crate::limits;
use crate::shard::ShardError;

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiryOutlook {
    /// The member of documents that says when they end.
    pub member: Arc<str>,
    /// When the first document ends, in seconds since 1970; `None`: none does, as far as is known.
    pub next: Option<u64>,
    /// What holds the deletion back of documents that have ended, and in which ranges.
    pub held_back_by: BTreeMap<Hindrance, Vec<String>>,
    /// Of a dry run: how many have ended and are still there, and how many say what is no time.
    pub counted: Option<(u64, u64)>,
}

/// Of one range.
#[derive(Default)]
struct Outlook {
    held_back_by: Vec<Hindrance>,
    told: Expiring,
}

impl DocumentExpiry<'_> {
    /// See the module head; `None`: documents do not end here. A dry run has the node that deletes bring its index up
    /// to date, and count.
    ///
    /// # Errors
    /// [`ReadError`]
    pub async fn outlook(self, dry_run: bool) -> Result<Option<ExpiryOutlook>, ReadError> {
        let Some(member) = self.known.expires_at() else { return Ok(None) };
        let layout = self.layout();
        let look = |range: usize| {
            let layout = &layout;
            async move { (range, self.outlook_of(layout, range, dry_run).await) }
        };
        let ranges = layout.map.live().to_vec();
        let looks: Vec<_> = stream::iter(ranges.into_iter().map(look)).buffered(limits::FORGET_AT_ONCE).collect().await;
        let mut out = ExpiryOutlook { member, ..ExpiryOutlook::default() };
        let (mut due, mut unreadable) = (0, 0);
        for (range, outlook) in looks {
            let Outlook { held_back_by, told } = outlook?;
            out.next = out.next.into_iter().chain(told.next).min();
            (due, unreadable) = (due + told.due, unreadable + told.unreadable);
            for hindrance in held_back_by {
                out.held_back_by.entry(hindrance).or_default().push(layout.map.range(range).to_string());
            }
        }
        out.counted = dry_run.then_some((due, unreadable));
        Ok(Some(out))
    }

    /// By the rules of `expiry.rs`: a majority of the nodes is there and says by its clocks that the time has come, and
    /// one of them is in sync.
    async fn outlook_of(self, layout: &Layout, range: usize, counts: bool) -> Result<Outlook, ShardError> {
        let nodes = layout.primaries(range, &self.context.node);
        let clocks = join_all(nodes.iter().map(|node| self.told_by(layout, range, node, None))).await;
        let (mut held, mut passed, mut here) = (Vec::new(), Vec::new(), 0);
        for (node, told) in nodes.iter().zip(clocks) {
            match told {
                Ok(told) => passed.push(told.clock_ms),
                Err(_) if self.context.rank(node).is_none() => held.push(("node_away", Some(node.to_string()))),
                Err(error) => held.push((of_failed(error)?, Some(node.to_string()))),
            }
        }
        let wanted = majority(nodes.len() as u32) as usize;
        // A minority is not waited for.
        if passed.len() >= wanted {
            held.clear();
        }
        let upto = passed_by(&mut passed, wanted) / 1000;
        let mut out = Outlook::default();
        match self.acting(layout, range) {
            None => held.push(("no_node_in_sync", None)),
            Some(node) => match self.told_by(layout, range, &node, Some(Look { upto, counts })).await {
                Ok(told) if !told.is_on => held.push(("node_has_no_member", Some(node.to_string()))),
                Ok(told) => {
                    here = told.clock_ms / 1000;
                    if !told.is_ready {
                        held.push(("index_is_built", Some(node.to_string())));
                    }
                    out.told = told;
                }
                Err(error) => held.push((of_failed(error)?, Some(node.to_string()))),
            },
        }
        if held.is_empty() && out.told.next.is_some_and(|next| next <= here && next > upto) {
            held.push(("clocks_differ", None));
        }
        Ok(Outlook { held_back_by: held, ..out })
    }

    async fn told_by(
        self,
        layout: &Layout,
        range: usize,
        node: &Arc<str>,
        look: Option<Look>,
    ) -> Result<Expiring, ShardError> {
        match self.replicas().copy_on(layout, range, node).await? {
            RangeCopy::Own(own) => self.tell(range, &own, ExpiryOf { look, member: None }).await,
            RangeCopy::Remote(remote) => remote.ask(ExpiryOf { look, member: None }).await,
        }
    }
}
