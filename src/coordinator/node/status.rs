//! What a node knows of its own state and of the replicas of all databases: for administrators who look at the cluster.
//!
//! Nothing is asked of other nodes here. Work over all databases runs on the pool of foreground reads, because a node
//! may know 100,000 of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::topology::quorum::majority;
use crate::coordinator::topology::record::Known;
use crate::limits;
use crate::world::Pool;

/// A replica of a range of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaName {
    /// The database.
    pub db: String,
    /// The range, `00000000-1fffffff`.
    pub range: String,
}

/// What a node knows of itself.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    /// Whether its replicas hold what those of the other nodes hold.
    pub in_sync: bool,
    /// Whether its replicas take no part.
    pub maintenance: bool,
    /// Whether a disk error has stopped its writes.
    pub writes_stopped: bool,
    /// Free bytes of the data directory's file system; `None` where that does not tell.
    pub free_bytes: Option<u64>,
    /// Databases that it knows.
    pub databases: u64,
    /// Databases of which a replica missed a write and is about to be compared.
    pub lagging: Vec<String>,
    /// Databases whose replicas here are being filled.
    pub unfilled: Vec<String>,
    /// Replicas that are rebuilt in the place of damaged ones.
    pub rebuilding: Vec<ReplicaName>,
}

/// What is left of a database whose ranges do not all have all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// The database.
    pub db: String,
    /// Ranges that it has.
    pub ranges: u64,
    /// Ranges without any replica in reach: nothing of them is read or written.
    pub none: u64,
    /// Ranges with fewer replicas in reach than a write is to have: it is answered 202.
    pub below_quorum: u64,
    /// Ranges with fewer replicas in reach than they have.
    pub lacking: u64,
    /// Nodes that hold such replicas and are not in reach.
    pub missing: BTreeSet<String>,
}

/// The replicas of all databases, as seen from this node.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Databases.
    pub databases: u64,
    /// Their ranges.
    pub ranges: u64,
    /// Replicas by node.
    pub replicas: BTreeMap<String, u64>,
    /// Ranges with fewer replicas than the database is to have, because there were or are too few nodes.
    pub short_of_n: u64,
    /// Databases that lack replicas in reach.
    pub lacking: u64,
    /// The first of them, worst first.
    pub named: Vec<Shortage>,
}

impl Coordinator {
    /// What this node knows of itself.
    pub async fn own_status(self: &Arc<Self>) -> NodeStatus {
        let coordinator = Arc::clone(self);
        let free_bytes = self.storage().free_bytes().await;
        let context = self.context();
        let state = context.own_state();
        let rebuilding = context.status.rebuilds.change(|filling| filling.keys().copied().collect::<BTreeSet<u64>>());
        let rebuilding = match rebuilding.is_empty() {
            true => Vec::new(),
            false => context.env.blocking(Pool::Foreground, move || coordinator.names_of(&rebuilding)).await,
        };
        NodeStatus {
            in_sync: state.in_sync,
            maintenance: context.is_in_maintenance(),
            writes_stopped: self.writes_stopped(),
            free_bytes,
            databases: self.count_databases() as u64,
            lagging: first(context.status.lagging_names()),
            unfilled: first(context.status.unfilled().into_keys().collect()),
            rebuilding,
        }
    }

    /// The replicas of this node in these shards.
    fn names_of(&self, shards: &BTreeSet<u64>) -> Vec<ReplicaName> {
        let mut out = Vec::new();
        for (db, known) in self.all_known() {
            let placed = known.placed();
            let held = placed.shards.iter().enumerate().filter(|(_, shard)| shards.contains(*shard));
            out.extend(
                held.map(|(range, _)| ReplicaName {
                    db: db.clone(),
                    range: known.map(&placed).range(range).to_string(),
                }),
            );
        }
        out.truncate(limits::STATUS_DATABASES);
        out
    }

    /// Which replicas of all databases are in reach of this node.
    pub async fn reach(self: &Arc<Self>) -> Reach {
        let coordinator = Arc::clone(self);
        self.env().blocking(Pool::Foreground, move || coordinator.look_at_all()).await
    }

    fn look_at_all(&self) -> Reach {
        let mut reach = Reach::default();
        let mut ranks = BTreeMap::new();
        let mut is_there = |node: &Arc<str>| {
            let rank = ranks.entry(Arc::clone(node)).or_insert_with(|| self.context().rank(node));
            rank.is_some()
        };
        for (db, known) in self.all_known() {
            let shortage = reach.add(db, &known, &self.context().node, &mut is_there);
            reach.named.extend(shortage);
        }
        reach.lacking = reach.named.len() as u64;
        let severity = |short: &Shortage| (short.none, short.below_quorum, short.lacking);
        reach.named.sort_by(|a, b| severity(b).cmp(&severity(a)).then_with(|| a.db.cmp(&b.db)));
        reach.named.truncate(limits::STATUS_DATABASES);
        reach
    }
}

impl Reach {
    /// Counts a database, and says what it lacks.
    fn add(
        &mut self,
        db: String,
        known: &Known,
        own: &Arc<str>,
        is_there: &mut impl FnMut(&Arc<str>) -> bool,
    ) -> Option<Shortage> {
        let placed = known.placed();
        let map = known.map(&placed);
        let mut short = Shortage { db, ranges: map.live().len() as u64, ..Shortage::default() };
        for range in map.live() {
            let nodes = placed.nodes(*range, own);
            for node in nodes.iter() {
                match self.replicas.get_mut(&**node) {
                    Some(count) => *count += 1,
                    None => drop(self.replicas.insert(node.to_string(), 1)),
                }
            }
            self.short_of_n += u64::from(nodes.len() < placed.wanted as usize);
            let away: Vec<&Arc<str>> = nodes.iter().filter(|node| !is_there(node)).collect();
            if away.is_empty() {
                continue;
            }
            let there = nodes.len() - away.len();
            short.missing.extend(away.into_iter().map(ToString::to_string));
            short.lacking += 1;
            short.none += u64::from(there == 0);
            short.below_quorum += u64::from((there as u32) < majority(nodes.len() as u32));
        }
        self.databases += 1;
        self.ranges += short.ranges;
        (short.lacking > 0).then_some(short)
    }
}

fn first(mut names: Vec<String>) -> Vec<String> {
    names.truncate(limits::STATUS_DATABASES);
    names
}
