//! What a node knows of its own state and of the replicas of all databases: for administrators who look at the cluster.
//!
//! Nothing is asked of other nodes here. Work over all databases runs on the pool of foreground reads, because a node
//! may know 100,000 of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::coordinator::anti_entropy::compare::names_between;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::in_sync::Pending;
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

/// A node that this one has yet to compare its databases with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCompared {
    /// The node's name.
    pub node: String,
    /// Whether it is in reach.
    pub is_up: bool,
    /// The first databases with replicas on both nodes that were not compared yet: at most
    /// `limits::NOT_COMPARED_DATABASES`.
    pub databases: Vec<String>,
    /// Why the last try failed.
    pub last_error: Option<String>,
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
    /// Nodes that it has yet to be compared with: those in reach, and where it is not in sync also the others.
    pub not_compared: Vec<NotCompared>,
    /// Databases of which a replica missed a write, until they were compared.
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
            not_compared: self.not_compared().await,
            lagging: first(context.status.lagging_names()),
            unfilled: first(context.status.unfilled().into_keys().collect()),
            rebuilding,
        }
    }

    async fn not_compared(self: &Arc<Self>) -> Vec<NotCompared> {
        let (context, coordinator) = (self.context(), Arc::clone(self));
        let is_in_sync = context.status.in_sync.is(context.env.now());
        let mut nodes = context.others();
        nodes.retain(|node| !is_in_sync || context.peers.is_up(node));
        let pending = context.status.in_sync.pending(nodes);
        if pending.is_empty() {
            return Vec::new();
        }
        let tell = move |(node, Pending { after, differing, last_error, .. }): (Arc<str>, Pending)| {
            let databases = coordinator.first_behind(&node, after, differing.into_iter().collect());
            let is_up = coordinator.context().peers.is_up(&node);
            NotCompared { node: node.to_string(), is_up, databases, last_error }
        };
        context.env.blocking(Pool::Foreground, move || pending.into_iter().map(tell).collect()).await
    }

    /// Adds to `found` the first databases behind a name that have replicas of one range here and on a node.
    fn first_behind(&self, node: &Arc<str>, mut after: Option<String>, mut found: Vec<String>) -> Vec<String> {
        let own = &self.context().node;
        let is_shared = |name: &String| {
            let Some(known) = self.known(name) else { return false };
            let placed = known.placed();
            let has_both = |range: &usize| {
                let nodes = placed.nodes(*range, own);
                nodes.contains(node) && nodes.contains(own)
            };
            known.map(&placed).live().iter().any(has_both)
        };
        while found.len() < limits::NOT_COMPARED_DATABASES {
            let names = self.database_names(&names_between(&after, None, Some(limits::COMPARE_PAGE)));
            let Some(last) = names.last().cloned() else { break };
            after = Some(last);
            for name in names {
                if found.len() < limits::NOT_COMPARED_DATABASES && !found.contains(&name) && is_shared(&name) {
                    found.push(name);
                }
            }
        }
        found
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
