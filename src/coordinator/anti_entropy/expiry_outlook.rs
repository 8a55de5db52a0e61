//! What is to expire next in a database, and what holds it back. Nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};

use crate::coordinator::anti_entropy::DocumentExpiry;
use crate::coordinator::anti_entropy::expiry::passed_by;
use crate::coordinator::anti_entropy::retention::{Hindrance, of_failed};
use crate::coordinator::replica::calls::{Expiring, ExpiryOf, Look};
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::RangeReplica;
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
    held_back_by: BTreeSet<Hindrance>,
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
            let (layout, member) = (&layout, &member);
            async move { (range, self.outlook_of(layout, range, member, dry_run).await) }
        };
        let ranges = layout.map.live().to_vec();
        let looks: Vec<_> = stream::iter(ranges.into_iter().map(look)).buffered(limits::RANGES_AT_ONCE).collect().await;
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
    async fn outlook_of(
        self,
        layout: &Layout,
        range: usize,
        member: &Arc<str>,
        counts: bool,
    ) -> Result<Outlook, ShardError> {
        let nodes = layout.primaries(range, &self.context.node);
        let call = |look| ExpiryOf { look, member: Some(member.to_string()) };
        let clocks = join_all(nodes.iter().map(|node| self.told_by(layout, range, node, call(None)))).await;
        let (mut held, mut passed, mut here) = (BTreeSet::new(), Vec::new(), 0);
        for (node, told) in nodes.iter().zip(clocks) {
            let why = match told {
                Ok(told) if !told.differs => {
                    passed.push(told.clock_ms);
                    continue;
                }
                Ok(_) => "node_has_no_member",
                Err(_) if self.context.rank(node).is_none() => "node_away",
                Err(error) => of_failed(error)?,
            };
            held.insert((why, Some(node.to_string())));
        }
        let wanted = majority(nodes.len() as u32) as usize;
        // A minority is not waited for.
        if passed.len() >= wanted {
            held.clear();
        }
        let upto = passed_by(&mut passed, wanted) / 1000;
        let mut out = Outlook::default();
        match self.acting(layout, range) {
            None => {
                held.insert(("no_node_in_sync", None));
            }
            Some(node) => {
                let why = match self.told_by(layout, range, &node, call(Some(Look { upto, counts }))).await {
                    Ok(told) if told.differs || !told.is_on => Some("node_has_no_member"),
                    Ok(told) => {
                        here = told.clock_ms / 1000;
                        let why = (!told.is_ready).then_some("index_is_built");
                        out.told = told;
                        why
                    }
                    Err(error) => Some(of_failed(error)?),
                };
                held.extend(why.map(|why| (why, Some(node.to_string()))));
            }
        }
        if held.is_empty() && out.told.next.is_some_and(|next| next <= here && next > upto) {
            held.insert(("clocks_differ", None));
        }
        Ok(Outlook { held_back_by: held, ..out })
    }

    async fn told_by(
        self,
        layout: &Layout,
        range: usize,
        node: &Arc<str>,
        call: ExpiryOf,
    ) -> Result<Expiring, ShardError> {
        match self.replicas().replica_on(layout, range, node).await? {
            RangeReplica::Own(own) => self.tell(range, &own, call).await,
            RangeReplica::Remote(remote) => remote.ask(call).await,
        }
    }
}
