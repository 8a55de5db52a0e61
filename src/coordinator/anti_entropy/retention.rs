//! What keeps the tombstones of a database, and what the next round of collection would take. Nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use crate::coordinator::anti_entropy::TombstoneCollection;
use crate::coordinator::replica::calls::{Collectable, CollectableOf, Expects};
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::is_unknown_call;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::error::ReadError;
use crate::limits;
use crate::shard::{ProposalOutcome, ShardError, Tombstone};

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// How old tombstones are when they may be collected; `None`: they never may.
    pub age: Option<Duration>,
    /// What the database says itself; `None`: the node's configuration counts.
    pub setting: Option<Arc<str>>,
    /// Tombstones that there are.
    pub tombstones: u64,
    /// What holds the collection back, and in which ranges.
    pub held_back_by: BTreeMap<Hindrance, Vec<String>>,
    /// Of a dry run: how many tombstones the next round would collect, and whether there are no more behind them.
    pub collectable: Option<(u64, bool)>,
}

/// What holds back the collection of a range: a word for it, and the node that it is about.
pub type Hindrance = (&'static str, Option<String>);

/// The word for tombstones that some replica has not had for long enough.
const NOT_OLD_ENOUGH: &str = "not_old_enough";

/// Of one range.
#[derive(Default)]
struct Outlook {
    held_back_by: Vec<Hindrance>,
    collectable: u64,
    is_all: bool,
}

impl TombstoneCollection<'_> {
    /// See the module head. A dry run has one replica of each range look for the tombstones of the next round.
    pub async fn retention(self, dry_run: bool) -> Result<Retention, ReadError> {
        let (age, setting) = (self.tombstone_age(), self.known.auto_purge());
        let tombstones = self.info().await?.doc_del_count;
        let mut out = Retention { age, setting, tombstones, ..Retention::default() };
        let layout = self.layout();
        let Some(_) = age else {
            out.held_back_by.insert(("no_period", None), Vec::new());
            out.collectable = dry_run.then_some((0, true));
            return Ok(out);
        };
        let look = |range: usize| {
            let layout = &layout;
            async move { (range, self.outlook(layout, range, dry_run).await) }
        };
        let ranges = layout.map.live().to_vec();
        let looks: Vec<_> = stream::iter(ranges.into_iter().map(look)).buffered(limits::RANGES_AT_ONCE).collect().await;
        let (mut sum, mut is_all) = (0, true);
        for (range, outlook) in looks {
            let outlook = outlook?;
            (sum, is_all) = (sum + outlook.collectable, is_all && outlook.is_all);
            for hindrance in outlook.held_back_by {
                out.held_back_by.entry(hindrance).or_default().push(layout.map.range(range).to_string());
            }
        }
        if tombstones == 0 {
            out.held_back_by.retain(|(reason, _), _| *reason != NOT_OLD_ENOUGH);
        }
        out.collectable = dry_run.then_some((sum, is_all));
        Ok(out)
    }

    /// By the rules of `tombstone_collection.rs`: all replicas are in reach and in sync, none moves, and all have had
    /// the tombstones for long enough.
    async fn outlook(self, layout: &Layout, range: usize, list: bool) -> Result<Outlook, ShardError> {
        let nodes = layout.primaries(range, &self.context.node);
        let mut held = self.hindrances(layout, range);
        if self.children(range).await?.is_some() {
            held.push(("range_is_split", None));
        }
        // A node that is away is not waited for.
        if !held.is_empty() {
            return Ok(Outlook { held_back_by: held, collectable: 0, is_all: true });
        }
        let mut tombstones = Vec::new();
        let mut out = Outlook { is_all: true, ..Outlook::default() };
        for (at, node) in nodes.iter().enumerate() {
            match self.collectable_on(layout, range, node, list && at == 0).await {
                Ok(told) if told.keeps_all => held.push(("node_has_no_period", Some(node.to_string()))),
                Ok(told) if at == 0 => {
                    out.is_all = told.is_all;
                    tombstones = told.tombstones;
                    if told.unread == 0 {
                        held.push((NOT_OLD_ENOUGH, None));
                    }
                }
                Ok(_) => {}
                Err(error) => held.push((of_failed(error)?, Some(node.to_string()))),
            }
        }
        for node in nodes.iter().skip(1).filter(|_| !tombstones.is_empty() && held.is_empty()) {
            match self.expected_on(layout, range, node, &tombstones).await {
                Ok(ProposalOutcome::Done) => continue,
                Ok(ProposalOutcome::NotOldEnough) => held.push((NOT_OLD_ENOUGH, Some(node.to_string()))),
                Ok(ProposalOutcome::Refused) => held.push(("node_lacks_tombstones", Some(node.to_string()))),
                Err(error) => held.push((of_failed(error)?, Some(node.to_string()))),
            }
            break;
        }
        if held.is_empty() {
            out.collectable = tombstones.len() as u64;
        }
        Ok(Outlook { held_back_by: held, ..out })
    }

    async fn collectable_on(
        self,
        layout: &Layout,
        range: usize,
        node: &Arc<str>,
        list: bool,
    ) -> Result<Collectable, ShardError> {
        match self.replicas().replica_on(layout, range, node).await? {
            RangeReplica::Own(own) => self.collectable(&own, list).await,
            RangeReplica::Remote(remote) => remote.ask_collection(CollectableOf(list)).await,
        }
    }

    async fn expected_on(
        self,
        layout: &Layout,
        range: usize,
        node: &Arc<str>,
        tombstones: &[Tombstone],
    ) -> Result<ProposalOutcome, ShardError> {
        match self.replicas().replica_on(layout, range, node).await? {
            RangeReplica::Own(own) => self.expects((range, layout.placed.version), &own, tombstones).await,
            RangeReplica::Remote(remote) => remote.ask_collection(Expects(tombstones.to_vec())).await,
        }
    }
}

/// The word for a node that did not tell.
pub(super) fn of_failed(error: ShardError) -> Result<&'static str, ShardError> {
    match error {
        ShardError::Dropped => Err(error),
        error if is_unknown_call(&error) => Ok("node_of_older_version"),
        _ => Ok("node_did_not_answer"),
    }
}
