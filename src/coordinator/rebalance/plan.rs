//! Plan of a rebalance: first the moves that are needed, then those that even out the load. Planning is pure; a plan is
//! carried out as a sequence of moves (`moves`), a few at a time.
//!
//! A range gets replicas that it lacks (on a node that is no member any more or is being emptied, or because the
//! database was made when there were fewer nodes), each in a zone that its placement rule asks for. Then replicas go
//! from the nodes that hold most to those that hold least. A node that is being emptied keeps the replicas for which
//! there is no other node; a node that is down gets none. A plan is never stored: each request plans again from the
//! present state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use crate::coordinator::rebalance::moves::MoveRequest;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::message::decode;
use crate::coordinator::replica::node_calls::CatalogueCall;
use crate::coordinator::replica::rebalancing::{Rebalance, RebalanceCall};
use crate::coordinator::topology::names;
use crate::coordinator::topology::peers::{Peer, Urgency};
use crate::coordinator::topology::record::Move;
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::world::Pool;

/// Databases that every node needs, which get as many replicas as `[cluster] n` says once there are nodes for them.
const EVERYWHERE: [&str; 3] = ["_global_changes", "_replicator", "_users"];

/// What is wanted of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebalanceRequest {
    /// Nodes that are to be emptied.
    pub drain: BTreeSet<String>,
    /// Only these databases; `None`: all.
    pub databases: Option<BTreeSet<String>>,
    /// Whether to give replicas to those that lack some only, without evening out the load.
    pub needed_only: bool,
}

/// A range as the planner sees it.
#[derive(Clone, Debug)]
struct Held {
    db: String,
    number: usize,
    range: String,
    nodes: Vec<String>,
    /// How many replicas it is to have where there are nodes for them.
    wanted: usize,
    /// With how many of them it may go without those on nodes that are to be emptied.
    enough: usize,
    /// Replicas for each zone, where the database has a rule.
    zones: Option<Vec<(String, u32)>>,
    /// Whether a replica of it is on its way.
    busy: bool,
}

/// The state of a plan while it is made.
struct Planner<'p> {
    members: &'p [Peer],
    /// Members that are not to be emptied.
    usable: BTreeSet<String>,
    /// Those of them that are up, so that they can be given replicas.
    there: BTreeSet<String>,
    load: BTreeMap<String, usize>,
    /// The ranges of each node, by their places, that may move still.
    by_node: BTreeMap<String, BTreeSet<usize>>,
    moves: Vec<MoveRequest>,
}

impl Planner<'_> {
    fn zone(&self, node: &str) -> Option<&str> {
        self.members.iter().find(|peer| *peer.name == *node).and_then(|peer| peer.zone.as_deref())
    }

    /// Whether a node may have a replica beside those of `kept`.
    fn fits(&self, held: &Held, kept: &[String], node: &str) -> bool {
        let room = |(zone, replicas): &(String, u32)| {
            let there = kept.iter().filter(|kept| self.zone(kept) == Some(zone)).count();
            self.zone(node) == Some(zone) && there < *replicas as usize
        };
        !kept.iter().any(|kept| kept == node) && held.zones.as_ref().is_none_or(|zones| zones.iter().any(room))
    }

    /// The node with the least load that may have a replica.
    fn pick(&self, held: &Held, kept: &[String]) -> Option<String> {
        let fitting = self.there.iter().filter(|node| self.fits(held, kept, node));
        fitting.min_by_key(|node| self.load.get(*node).copied().unwrap_or(0)).cloned()
    }

    fn push(&mut self, held: &mut Held, from: Option<String>, to: Option<String>) {
        if let Some(from) = &from {
            held.nodes.retain(|node| node != from);
            self.load.entry(from.clone()).and_modify(|load| *load = load.saturating_sub(1));
        }
        if let Some(to) = &to {
            held.nodes.push(to.clone());
            *self.load.entry(to.clone()).or_default() += 1;
        }
        held.busy = true;
        let (db, number, range) = (held.db.clone(), held.number, held.range.clone());
        self.moves.push(MoveRequest { db, number, range, from, to });
    }

    /// One move for a range that lacks a replica or has one where none may be.
    fn mend(&mut self, held: &mut Held) {
        let kept: Vec<String> = held.nodes.iter().filter(|node| self.usable.contains(*node)).cloned().collect();
        let lost = held.nodes.iter().find(|node| !self.usable.contains(*node)).cloned();
        let is_member = |node: &str| self.members.iter().any(|peer| *peer.name == *node);
        // One that is emptied keeps its replica until others hold enough; of one that is no member nothing is left to
        // keep.
        let enough = lost.as_ref().map_or(0, |lost| if is_member(lost) { held.enough } else { held.wanted });
        match (lost, self.pick(held, &kept)) {
            (Some(from), Some(to)) if kept.len() < held.wanted => self.push(held, Some(from), Some(to)),
            (Some(from), _) if kept.len() >= enough => self.push(held, Some(from), None),
            (None, Some(to)) if kept.len() < held.wanted => self.push(held, None, Some(to)),
            _ => {}
        }
    }

    /// One move from the node with most replicas to the one with least; false when the load is even.
    fn even_out(&mut self, ranges: &mut [Held]) -> bool {
        let load = |node: &String| self.load.get(node).copied().unwrap_or(0);
        let mut by_load: Vec<String> = self.usable.iter().cloned().collect();
        by_load.sort_by_key(|node| (load(node), node.clone()));
        for from in by_load.iter().rev() {
            let emptier = by_load.iter().take_while(|to| load(to) + 1 < load(from));
            for to in emptier.filter(|to| self.there.contains(*to)) {
                let kept = |held: &Held| held.nodes.iter().filter(|node| *node != from).cloned().collect::<Vec<_>>();
                let may = |at: &&usize| self.fits(&ranges[**at], &kept(&ranges[**at]), to);
                if let Some(at) = self.by_node.get(from).and_then(|held| held.iter().find(may)).copied() {
                    for held in self.by_node.values_mut() {
                        held.remove(&at);
                    }
                    self.push(&mut ranges[at], Some(from.clone()), Some(to.clone()));
                    return true;
                }
            }
        }
        false
    }

    /// Notes who holds the ranges that are not on their way.
    fn index(&mut self, ranges: &[Held]) {
        for (at, held) in ranges.iter().enumerate().filter(|(_, held)| !held.busy) {
            for node in &held.nodes {
                self.by_node.entry(node.clone()).or_default().insert(at);
            }
        }
    }
}

/// The nodes of a range once the replica that is on its way is there: else a plan would even out anew what is about to
/// be.
fn in_the_end(mut nodes: Vec<String>, moved: Option<&Move>) -> Vec<String> {
    if let Some(Move { from, to, .. }) = moved {
        nodes.retain(|node| Some(node) != from.as_ref() && Some(node) != to.as_ref());
        nodes.extend(to.clone());
    }
    nodes
}

/// The moves that bring ranges to where they are to be; at most one for each.
fn plan(
    members: &[Peer],
    is_up: impl Fn(&str) -> bool,
    mut ranges: Vec<Held>,
    request: &RebalanceRequest,
) -> Vec<MoveRequest> {
    let names = members.iter().map(|peer| peer.name.to_string());
    let usable: BTreeSet<String> = names.filter(|name| !request.drain.contains(name)).collect();
    let there = usable.iter().filter(|node| is_up(node)).cloned().collect();
    let mut load: BTreeMap<String, usize> = BTreeMap::new();
    for node in ranges.iter().flat_map(|held| &held.nodes) {
        *load.entry(node.clone()).or_default() += 1;
    }
    let mut planner = Planner { members, usable, there, load, by_node: BTreeMap::new(), moves: Vec::new() };
    for held in ranges.iter_mut().filter(|held| !held.busy) {
        if planner.moves.len() == limits::REBALANCE_MOVES {
            break;
        }
        held.wanted = held.wanted.min(planner.usable.len());
        planner.mend(held);
    }
    planner.index(&ranges);
    while !request.needed_only && planner.moves.len() < limits::REBALANCE_MOVES && planner.even_out(&mut ranges) {}
    planner.moves
}

impl Coordinator {
    /// The moves that bring replicas to where they are to be. Each range appears once: those that need more are planned
    /// again when that is done.
    pub async fn plan_rebalance(&self, request: &RebalanceRequest) -> Vec<MoveRequest> {
        let (coordinator, request) = (self.clone(), request.clone());
        // With a hundred thousand databases that takes long.
        let plan = move || {
            let peers = &coordinator.context().peers;
            plan(&peers.members(), |node| peers.is_up(node), coordinator.held(&request), &request)
        };
        self.env().blocking(Pool::Background, plan).await
    }

    fn held(&self, request: &RebalanceRequest) -> Vec<Held> {
        let n = self.config().u64("cluster", "n", limits::N_DEFAULT.into()) as usize;
        let mut out = Vec::new();
        for (name, known) in self.all_known() {
            if request.databases.as_ref().is_some_and(|wanted| !wanted.contains(&name)) {
                continue;
            }
            let placed = known.placed();
            let map = known.map(&placed);
            let zones = known.placement.as_deref().and_then(|rule| names::parse_placement(rule).ok());
            let asked = if EVERYWHERE.contains(&name.as_str()) { n } else { placed.wanted as usize };
            for number in map.live().iter().copied() {
                let nodes = placed.nodes(number, &self.context().node);
                let nodes = in_the_end(nodes.iter().map(|node| node.to_string()).collect(), placed.move_of(number));
                let (wanted, enough) = (nodes.len().max(asked), if asked > 0 { asked } else { nodes.len() });
                let (range, busy) = (map.range(number).to_string(), placed.move_of(number).is_some());
                let (db, zones) = (name.clone(), zones.clone());
                out.push(Held { db, number, range, nodes, wanted, enough, zones, busy });
            }
        }
        out
    }

    /// Carries out what is planned, and plans again until nothing is left to do; in the background. A later request, on
    /// whatever node, takes the place of this one: of two that went on beside each other one might undo what the other
    /// one does.
    pub fn rebalance(self: &Arc<Self>, request: RebalanceRequest) {
        let RebalanceRequest { drain, databases, .. } = request.clone();
        let (node, wall) = (self.node().to_owned(), self.env().wall());
        let (began_s, stamp) = (wall.as_secs(), u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        let running = Rebalance { node, drain, databases, began_s, stamp, begun: 0, planned: 0 };
        let round = self.context().rebalancing.begin(running);
        self.env().spawn(carry_out(Arc::downgrade(self), request, round));
    }

    /// The requests that nodes carry out, of all nodes that are there.
    pub async fn rebalances(&self) -> Vec<Rebalance> {
        self.about_rebalances(RebalanceCall::Show).await
    }

    /// Ends the requests that nodes carry out, and answers what they were. Moves that began go on.
    pub async fn end_rebalances(&self) -> Vec<Rebalance> {
        self.about_rebalances(RebalanceCall::End).await
    }

    async fn about_rebalances(&self, call: RebalanceCall) -> Vec<Rebalance> {
        let mut out: Vec<Rebalance> = self.serve_rebalance(call.clone()).into_iter().collect();
        self.ask_about_rebalances(call, &mut out).await;
        out.sort_by(|a, b| a.node.cmp(&b.node));
        out
    }

    /// Asks the other nodes; adds what they answer as it comes.
    async fn ask_about_rebalances(&self, call: RebalanceCall, out: &mut Vec<Rebalance>) {
        let context = self.context();
        let mut answers = context.tell_all(&context.others(), &CatalogueCall::Rebalance(call), Urgency::Foreground);
        while let Some((node, answer)) = answers.recv().await {
            match answer.map(|bytes| decode::<Option<Rebalance>>(&bytes)) {
                Ok(Ok(theirs)) => out.extend(theirs),
                other => tracing::debug!(%node, ?other, "a node does not say what it carries out"),
            }
        }
    }

    /// Has the requests of other nodes end that were made before one of this node. Answers whether that is the last
    /// one: a new one is, whatever the clocks say. A node that does not answer soon is asked before the next plan.
    async fn is_last_request(&self, round: u64, is_new: bool) -> bool {
        let (env, rebalancing) = (self.env(), &self.context().rebalancing);
        loop {
            let Some(own) = rebalancing.of(round) else { return false };
            let (call, mut stay) = (RebalanceCall::GiveWay { stamp: own.stamp, node: own.node.clone() }, Vec::new());
            let _ = env.timeout(limits::REBALANCE_ANSWERS, self.ask_about_rebalances(call, &mut stay)).await;
            stay.retain(|other| other.is_after((own.stamp, &own.node)));
            match stay.into_iter().max_by_key(|other| other.stamp) {
                None => return true,
                Some(later) if is_new => rebalancing.put_behind(round, later.stamp),
                Some(later) => {
                    tracing::info!(node = later.node, "a rebalance ends: another node was asked for one later");
                    return false;
                }
            }
        }
    }

    /// Answers about the request that this node carries out.
    pub(in crate::coordinator) fn serve_rebalance(&self, call: RebalanceCall) -> Option<Rebalance> {
        let rebalancing = &self.context().rebalancing;
        match call {
            RebalanceCall::Show => rebalancing.running().1.clone(),
            RebalanceCall::End => rebalancing.end(None),
            RebalanceCall::GiveWay { stamp, node } => rebalancing.give_way((stamp, &node)),
        }
    }

    /// Begins a move that was planned; false when that cannot be now.
    async fn begin_planned(&self, wanted: &MoveRequest) -> bool {
        // One that was deleted meanwhile needs no move.
        let Ok(database) = self.database(&wanted.db) else { return false };
        let MoveRequest { number, from, to, .. } = wanted.clone();
        match self.begin_move(&database, &Move { range: number as u32, from, to, leaving: false }).await {
            Ok(()) => true,
            Err(error) => {
                tracing::info!(database = wanted.db, range = wanted.range, ?error, "a replica is not moved now");
                false
            }
        }
    }

    /// Begins up to `count` moves of a plan; answers how many. Where a few cannot be, as without a majority, the plan
    /// is given up.
    async fn begin_some(&self, planned: &mut VecDeque<MoveRequest>, count: usize) -> usize {
        let (mut begun, mut failed) = (0, 0);
        while begun < count
            && let Some(wanted) = planned.pop_front()
        {
            match self.begin_planned(&wanted).await {
                true => begun += 1,
                false => failed += 1,
            }
            if failed == limits::MOVES_AT_ONCE {
                planned.clear();
            }
        }
        begun
    }

    /// Has the databases that every node needs get their replicas, when this node holds their first one. Answers
    /// whether all moves that this takes could be begun.
    pub(in crate::coordinator) async fn spread_system_databases(&self) -> bool {
        let mut all_begun = true;
        let request = RebalanceRequest {
            databases: Some(EVERYWHERE.map(str::to_owned).into()),
            needed_only: true,
            ..RebalanceRequest::default()
        };
        for wanted in self.plan_rebalance(&request).await {
            let is_first = self
                .database(&wanted.db)
                .is_ok_and(|db| db.replicas().nodes_of(wanted.number).first() == Some(&self.context().node));
            if is_first && wanted.from.is_none() {
                all_begun &= self.begin_planned(&wanted).await;
            }
        }
        all_begun
    }
}

/// Keeps a few moves under way until there is nothing to plan and nothing moves. A plan is kept until all of it was
/// begun, or until other nodes are there; where nothing of it can be begun the next one is made later and later.
async fn carry_out(weak: Weak<Coordinator>, request: RebalanceRequest, round: u64) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    let (mut moving, mut members) = (context.moving.subscribe(), context.peers.watch());
    let mut planned: VecDeque<MoveRequest> = VecDeque::new();
    let (mut pause, mut is_new, mut all_begun) = (limits::MOVE_PAUSE, true, 0);
    let task = context.env.begin_task(Subject::new(TaskKind::Rebalance, ""), None);
    while context.rebalancing.is_on(round) {
        let Some(coordinator) = weak.upgrade() else { return };
        moving.borrow_and_update();
        if planned.is_empty() || members.has_changed().unwrap_or(false) {
            members.borrow_and_update();
            // Before the others are asked, which takes time: moves wait for a node that goes meanwhile, but a plan
            // without it may be empty, which ends the request.
            planned = coordinator.plan_rebalance(&request).await.into();
            if !coordinator.is_last_request(round, std::mem::take(&mut is_new)).await {
                break;
            }
        }
        let under_way = coordinator.moves_under_way();
        if planned.is_empty() && under_way.is_empty() {
            break;
        }
        // One that waits for a node that is down keeps no other waiting.
        let goes_on = |moved: &&MoveRequest| moved.to.as_deref().is_none_or(|to| context.peers.is_up(to));
        let busy = under_way.iter().filter(goes_on).count();
        let begun = coordinator.begin_some(&mut planned, limits::MOVES_AT_ONCE.saturating_sub(busy)).await;
        drop(coordinator);
        context.rebalancing.note(round, begun as u64, planned.len());
        all_begun += begun;
        let (ended, left) = (all_begun.saturating_sub(busy + begun), planned.len());
        task.done_of(ended as u64, (all_begun.max(busy + begun) + left) as u64);
        pause = if busy + begun > 0 { limits::MOVE_PAUSE } else { (pause * 2).min(limits::REBALANCE_PAUSE_MAX) };
        context.env.sleep(limits::MOVES_LOOK).await;
        let _ = context.env.timeout(pause, moving.changed()).await;
    }
    context.rebalancing.end(Some(round));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(list: &[(&str, Option<&str>)]) -> Vec<Peer> {
        list.iter().map(|(name, zone)| Peer { name: (*name).into(), zone: zone.map(str::to_owned) }).collect()
    }

    fn held(number: usize, nodes: &str, wanted: usize) -> Held {
        let nodes = nodes.chars().map(|name| name.to_string()).collect();
        Held { db: "d".into(), number, range: String::new(), nodes, wanted, enough: wanted, zones: None, busy: false }
    }

    fn all(_: &str) -> bool {
        true
    }

    fn shown(moves: &[MoveRequest]) -> Vec<String> {
        let name = |node: &Option<String>| node.clone().unwrap_or_else(|| "-".to_owned());
        moves.iter().map(|m| format!("{}:{}>{}", m.number, name(&m.from), name(&m.to))).collect()
    }

    #[test]
    fn what_is_needed_comes_first() {
        let members = peers(&[("a", None), ("b", None), ("c", None)]);
        let ranges = vec![held(0, "axb", 3), held(1, "a", 3), held(2, "abcx", 3), held(3, "abc", 3)];
        let moves = plan(&members, all, ranges, &RebalanceRequest::default());
        assert_eq!(shown(&moves), ["0:x>c", "1:->b", "2:x>-"]);
        let drain = RebalanceRequest { drain: ["c".to_owned()].into(), ..RebalanceRequest::default() };
        assert_eq!(shown(&plan(&members, all, vec![held(0, "ac", 2), held(1, "abc", 2)], &drain)), ["0:c>b", "1:c>-"]);
        let alone = plan(&peers(&[("a", None)]), all, vec![held(0, "a", 3)], &RebalanceRequest::default());
        assert!(alone.is_empty());
    }

    #[test]
    fn a_drain_takes_no_replica_away_that_is_needed_and_a_later_node_is_given_what_lacks() {
        let drain = RebalanceRequest { drain: ["c".to_owned()].into(), ..RebalanceRequest::default() };
        let of = |members: &[&str], nodes: &str| {
            let members: Vec<(&str, Option<&str>)> = members.iter().map(|name| (*name, None)).collect();
            shown(&plan(&peers(&members), all, vec![held(0, nodes, 3)], &drain))
        };
        assert!(of(&["a", "b", "c"], "abc").is_empty(), "nobody else can hold it");
        assert_eq!(of(&["a", "b", "c", "d"], "abc"), ["0:c>d"]);
        assert_eq!(of(&["a", "b", "c", "d"], "abcd"), ["0:c>-"]);
        assert_eq!(of(&["a", "b", "d"], "ab"), ["0:->d"], "a database made when there were fewer nodes");
    }

    #[test]
    fn a_member_that_is_down_keeps_its_replicas_and_is_given_none() {
        let members = peers(&[("a", None), ("b", None), ("c", None)]);
        let ranges = vec![held(0, "xa", 2), held(1, "a", 1), held(2, "a", 1), held(3, "b", 1)];
        let moves = plan(&members, |node| node != "c", ranges, &RebalanceRequest::default());
        assert_eq!(shown(&moves), ["0:x>b"]);
        let held_by_c = plan(&members, |node| node != "c", vec![held(0, "bc", 2)], &RebalanceRequest::default());
        assert!(held_by_c.is_empty());
    }

    #[test]
    fn load_is_evened_out_within_zones() {
        let members = peers(&[("a", Some("x")), ("b", Some("x")), ("c", Some("y"))]);
        let ranges: Vec<Held> = (0..4).map(|n| held(n, "a", 1)).collect();
        let moves = plan(&members, all, ranges.clone(), &RebalanceRequest::default());
        assert_eq!(shown(&moves), ["0:a>b", "1:a>c"]);
        let zoned = |held: Held| Held { zones: Some(vec![("x".to_owned(), 1)]), ..held };
        let moves = plan(&members, all, ranges.into_iter().map(zoned).collect(), &RebalanceRequest::default());
        assert_eq!(shown(&moves), ["0:a>b", "1:a>b"], "c is in another zone");
        let even = plan(&members, all, vec![held(0, "a", 1), held(1, "b", 1)], &RebalanceRequest::default());
        assert!(even.is_empty());
    }

    #[test]
    fn what_is_on_its_way_counts_where_it_goes() {
        let of = |names: &str| names.chars().map(|name| name.to_string()).collect::<Vec<_>>();
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let then = |nodes: &str, from: &str, to: &str, leaving| {
            in_the_end(of(nodes), Some(&Move { range: 0, from: name(from), to: name(to), leaving })).concat()
        };
        assert_eq!((then("ab", "a", "c", false), then("cb", "a", "c", true)), ("bc".to_owned(), "bc".to_owned()));
        assert_eq!((then("ab", "a", "", false), then("ab", "", "c", false)), ("b".to_owned(), "abc".to_owned()));
        assert_eq!(in_the_end(of("ab"), None), of("ab"));
    }

    #[test]
    fn ten_thousand_ranges_are_planned_at_once() {
        let members = peers(&[("a", None), ("b", None), ("c", None), ("d", None)]);
        let ranges: Vec<Held> = (0..10_000).map(|n| held(n, "abc", 3)).collect();
        let moves = plan(&members, all, ranges, &RebalanceRequest::default());
        assert_eq!(moves.len(), limits::REBALANCE_MOVES);
        let from = |name: &str| moves.iter().filter(|m| m.from.as_deref() == Some(name)).count();
        assert!(moves.iter().all(|m| m.to.as_deref() == Some("d")) && from("a").abs_diff(from("c")) <= 1);
    }
}
