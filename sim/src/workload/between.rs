//! Two clusters whose shared databases replicate both ways: by documents that ask for it in one of them, and by runs
//! that somebody asks for once. In the end all nodes of both hold the same, also of what is written then; each document
//! is worked for by one node of its cluster; and no checkpoint stands before what it should stand behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::documents::{id, leaf_set};
use super::keep::{CATCH_UP, LOOK_EVERY, Told};
use super::own::carry_out;
use super::pair::order_of;
use super::{DB, Worker};
use crate::client::Client;
use crate::model::{Leaf, Violation};
use crate::place::{source_url_of, url_of};
use crate::plan::{FeedFilter, Op, Plan, WAYS, Way};

/// How often a replication that was just asked for is looked at.
const LOOKS: usize = 30;
/// Between two looks: about what a page takes from one cluster to the other.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(50);
/// Documents that the oracle writes, one by each cluster: no client's.
const PROBES_FROM: u32 = 90;
/// Their values.
const VALUES_FROM: u64 = 1_000_000;

/// A replication that a document asks for: what makes it another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Joined {
    way: Way,
    filter: FeedFilter,
}

impl Joined {
    /// The name of its document and, of a part, of the database that the part comes into.
    fn name(self) -> String {
        format!("{:?}-{:?}", self.way, self.filter).to_lowercase()
    }

    /// The database at the other end.
    fn target(self) -> String {
        if self.filter == FeedFilter::All { DB.to_owned() } else { self.name() }
    }

    fn path(self) -> String {
        format!("/_replicator/{}", self.name())
    }
}

/// All that somebody asks for in a plan, or the oracle at its end.
fn joined(plan: &Plan) -> BTreeSet<Joined> {
    let of_op = |op: &Op| match op {
        Op::Join { way, filter, .. } => Some(Joined { way: *way, filter: *filter }),
        _ => None,
    };
    let asked = plan.clients.iter().flatten().filter_map(|timed| of_op(&timed.op));
    asked.chain(both_ways()).collect()
}

/// What the oracle asks for, should nobody else have: a run that begins anew would bring what others passed over.
fn both_ways() -> impl Iterator<Item = Joined> {
    WAYS.into_iter().take(2).map(|way| Joined { way, filter: FeedFilter::All })
}

/// Makes the databases of a cluster that only two of them have, in peace.
///
/// # Errors
/// The request that was refused.
pub(super) async fn set_up(client: &mut Client, plan: &Plan) -> Result<(), String> {
    let parts = joined(plan).into_iter().filter(|joined| joined.filter != FeedFilter::All).map(Joined::target);
    let databases = ["_replicator".to_owned()].into_iter().chain(parts);
    carry_out(client, databases.map(|name| ("PUT", format!("/{name}"), Value::Null)), &[412]).await
}

impl Worker {
    /// The nodes of the near cluster, or of the far one.
    fn side(&self, far: bool) -> Vec<u32> {
        self.locked(|s| s.clusters.get(usize::from(far)).cloned().unwrap_or_default())
    }

    /// The node of a cluster that a number chooses.
    fn chosen(&self, far: bool, number: u32) -> u32 {
        let nodes = self.side(far);
        nodes.get(number as usize % nodes.len().max(1)).copied().unwrap_or(0)
    }

    /// A connection to a node of the cluster that works for a replication, and one to a node of the one that gets what
    /// is copied.
    fn ends(&self, way: Way, at: u32) -> (Client, Client) {
        let to = |far| self.another_node(self.chosen(far, at));
        (to(way.far_works()), to(way.far_gets()))
    }

    /// What is asked for. `own`: how the cluster that is asked calls a database of its own.
    fn order_between(&self, Joined { way, filter }: Joined, by: u32, own: impl Fn(&str) -> String) -> Value {
        let (other, target) = (self.chosen(!way.far_works(), by), Joined { way, filter }.target());
        let mut order = match way.fetches() {
            true => order_of(&format!("{}/{DB}", source_url_of(other)), &own(&target), false),
            false => order_of(&own(DB), &format!("{}/{target}", url_of(other)), false),
        };
        filter.narrow(&mut order);
        order
    }

    /// Asks for a replication by a document, and looks at it while it runs: in peace no two nodes ever work for it, and
    /// where each range has one copy nothing is missing before its checkpoints. Of several copies nobody promises as
    /// much before they have become equal.
    pub(super) async fn join(&mut self, way: Way, filter: FeedFilter, (at, by): (u32, u32)) -> Result<(), Violation> {
        let joined = Joined { way, filter };
        let mut body = self.order_between(joined, by, str::to_owned);
        body["continuous"] = json!(true);
        let (mut works, mut gets) = self.ends(way, at);
        let _ = self.call_by(&mut works, "PUT", &joined.path(), &body).await;
        let (in_peace, of_one_replica) = self.locked(|s| (s.together.places.in_peace, s.asked.is_of_one_replica()));
        let is_sure = of_one_replica && filter == FeedFilter::All;
        let looks = if in_peace || is_sure { LOOKS } else { 0 };
        let mut source = self.reader_of(!way.far_gets());
        for _ in 0..looks {
            if is_sure {
                source.look_at_checkpoint(joined, &mut works, &mut gets).await?;
            }
            if in_peace && let Ok(told) = Told::of(&mut works, &joined.name()).await {
                told.is_one()?;
            }
            self.client.env().clone().sleep(LOOKED_AT_EVERY).await;
        }
        Ok(())
    }

    /// Another worker, who reads from the first node of a cluster.
    fn reader_of(&self, far: bool) -> Worker {
        Worker::new(&self.name, self.another_node(self.chosen(far, 0)), Arc::clone(&self.shared))
    }

    /// Of a replication of everything: what is before its checkpoint is there. Asked of the source's cluster.
    async fn look_at_checkpoint(
        &mut self,
        joined: Joined,
        works: &mut Client,
        gets: &mut Client,
    ) -> Result<(), Violation> {
        // No answer: faults are not over.
        let Ok(told) = Told::of(works, &joined.name()).await else { return Ok(()) };
        let Some(checkpoint) = told.checkpoint() else { return Ok(()) };
        self.check_checkpoint_named(gets, DB, checkpoint).await
    }

    /// Takes the document back.
    pub(super) async fn part(&mut self, way: Way, filter: FeedFilter, at: u32) -> Result<(), Violation> {
        let path = Joined { way, filter }.path();
        let (mut works, _) = self.ends(way, at);
        self.take_back(&mut works, &path).await;
        Ok(())
    }

    /// Has everything copied once, by the addresses of both ends. What comes of it is checked at the end.
    pub(super) async fn ferry(&mut self, way: Way, (at, by): (u32, u32)) -> Result<(), Violation> {
        let own = |name: &str| format!("{}/{name}", url_of(self.chosen(way.far_works(), at)));
        let order = self.order_between(Joined { way, filter: FeedFilter::All }, by, own);
        let (mut works, _) = self.ends(way, at);
        let _ = self.call_by(&mut works, "POST", "/_replicate", &order).await;
        Ok(())
    }
}

/// At the end: within some time both clusters are level, as the documents that are there ask for, and stay so for what
/// is written then. `oracles`: one for each node, in order.
///
/// # Errors
/// What is still wrong then, and any answer that breaks a promise.
pub(crate) async fn check_between(oracles: &mut [Worker], plan: &Plan) -> Result<(), Violation> {
    let Some(first) = oracles.first() else { return Ok(()) };
    let env = first.client.env().clone();
    let (began, joined) = (env.now(), joined(plan));
    while let Some(wrong) = look(oracles, plan, &joined).await? {
        if env.now().since(began) > CATCH_UP {
            return Err(passed_over(oracles, &joined).await.unwrap_or(wrong));
        }
        env.sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// What is not yet as it must be.
async fn look(oracles: &mut [Worker], plan: &Plan, joined: &BTreeSet<Joined>) -> Result<Option<Violation>, Violation> {
    for (nth, nodes) in (0..).zip(plan.world.clusters()) {
        if let Some(wrong) = oracles[nodes.start as usize].probe(nth).await? {
            return Ok(Some(wrong));
        }
    }
    if let Some(wrong) = oracles[0].check_all_joined(joined).await? {
        return Ok(Some(wrong));
    }
    for doc in oracles[0].locked(|s| s.model.documents()) {
        match level(oracles, plan, &doc).await {
            Ok(None) => {}
            Ok(wrong) => return Ok(wrong),
            // A node that does not answer yet.
            Err(wrong) => return Ok(Some(wrong)),
        }
    }
    Ok(None)
}

impl Worker {
    /// Writes a document by this node's cluster, once: it is to come over like everything.
    async fn probe(&mut self, nth: u32) -> Result<Option<Violation>, Violation> {
        let doc = PROBES_FROM + nth;
        if self.newest(doc).is_none() {
            self.put(doc, None, VALUES_FROM + u64::from(nth)).await?;
        }
        let wrong =
            || Violation { invariant: "I28", what: format!("{}: it cannot be written after all faults", id(doc)) };
        Ok(self.newest(doc).is_none().then(wrong))
    }

    /// What is wrong with the replications of documents; everything is to be asked for both ways.
    async fn check_all_joined(&mut self, all: &BTreeSet<Joined>) -> Result<Option<Violation>, Violation> {
        let mut asked = BTreeSet::new();
        for joined in all {
            let (mut works, mut gets) = self.ends(joined.way, 0);
            let told = match Told::of(&mut works, &joined.name()).await {
                Ok(told) => told,
                Err(wrong) => return Ok(Some(wrong)),
            };
            if let Some(wrong) = self.check_joined(*joined, &told, &mut gets).await {
                return Ok(Some(wrong));
            }
            asked.extend((told.is_asked && joined.filter == FeedFilter::All).then(|| joined.way.far_gets()));
        }
        let Some(Joined { way, filter }) = both_ways().find(|joined| !asked.contains(&joined.way.far_gets())) else {
            return Ok(None);
        };
        self.join(way, filter, (0, 0)).await?;
        let what = format!("{way:?}: nobody asks for that way after all faults");
        Ok(Some(Violation { invariant: "I28", what }))
    }

    /// What is wrong with the replication of a document, and with the part that it copies, if it copies one.
    async fn check_joined(&self, joined: Joined, told: &Told, gets: &mut Client) -> Option<Violation> {
        let Joined { way, filter } = joined;
        if filter != FeedFilter::All && told.is_asked {
            let mut source = self.reader_of(!way.far_gets());
            // Also where a node does not answer yet.
            let found = source.difference(gets, &joined.target(), |doc| filter.takes(doc)).await;
            if let Some(Violation { invariant, what }) = found.unwrap_or_else(Some) {
                return Some(Violation { invariant, what: format!("{what}; told {}", told.state) });
            }
        }
        told.flaw()
    }
}

/// How a document differs from one node to another; what must be there is somewhere.
///
/// # Errors
/// A node that does not answer.
async fn level(oracles: &mut [Worker], plan: &Plan, doc: &str) -> Result<Option<Violation>, Violation> {
    let wrong = |invariant, what| Ok(Some(Violation { invariant, what }));
    let mut held: Vec<Vec<Leaf>> = Vec::new();
    for oracle in oracles.iter_mut() {
        held.push(oracle.leaves_here(doc).await?);
    }
    let shown: BTreeSet<&String> = held.iter().flatten().flat_map(|leaf| &leaf.path).collect();
    let lasting = oracles[0].locked(|s| s.model.lasting(doc));
    if let Some(lost) = lasting.iter().find(|rev| !shown.contains(rev)) {
        return wrong("I1", format!("{doc}: {lost} is gone from both clusters; they hold {shown:?}"));
    }
    let here = leaf_set(&held[0]);
    for nodes in plan.world.clusters() {
        let first = leaf_set(&held[nodes.start as usize]);
        let mut others = nodes.clone().zip(&held[nodes.start as usize..]);
        if let Some((node, leaves)) = others.find(|(_, leaves)| leaf_set(leaves) != first) {
            let there = leaf_set(leaves);
            return wrong("I4", format!("{doc}: node {node} holds {there:?}, the first of its cluster {first:?}"));
        }
        if first != here {
            return wrong("I22", format!("{doc}: one cluster holds {here:?}, the other one {first:?}"));
        }
    }
    Ok(None)
}

/// A document that does not come over as a checkpoint stands before it.
async fn passed_over(oracles: &[Worker], joined: &BTreeSet<Joined>) -> Option<Violation> {
    let first = oracles.first()?;
    for joined in joined.iter().filter(|joined| joined.filter == FeedFilter::All) {
        let (mut works, mut gets) = first.ends(joined.way, 0);
        let mut source = first.reader_of(!joined.way.far_gets());
        if let Err(found) = source.look_at_checkpoint(*joined, &mut works, &mut gets).await {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Scene;

    #[test]
    fn the_oracle_may_ask_for_both_ways_and_parts_have_databases_of_their_own() {
        let plan = Plan::of_scene(Scene::TwoClusters, 3);
        let all = joined(&plan);
        assert!(both_ways().all(|wanted| all.contains(&wanted)));
        let gets: BTreeSet<bool> = both_ways().map(|joined| joined.way.far_gets()).collect();
        assert_eq!(gets.len(), 2);
        let part = Joined { way: Way::NearSends, filter: FeedFilter::Ids };
        assert_eq!((part.name(), part.target()), ("nearsends-ids".to_owned(), "nearsends-ids".to_owned()));
        assert_eq!(Joined { filter: FeedFilter::All, ..part }.target(), DB);
    }
}
