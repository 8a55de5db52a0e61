//! Where copies are to go: what is needed first, then an even load. Planning is pure; carrying a plan out is a row of
//! moves (`moves`), a few at a time.
//!
//! A range gets back copies that it lacks (a node that is no member any more, one that is being emptied, a database
//! made when there were fewer nodes), each in a zone that its placement rule asks for. Then copies go from the nodes
//! that hold most to those that hold least. A plan is never stored: who is asked again plans anew from what there is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::moves::MoveRequest;
use crate::coordinator::names;
use crate::coordinator::peers::Peer;
use crate::coordinator::record::Move;
use crate::limits;
use crate::world::Pool;

/// Databases that every node needs, which get as many copies as `[cluster] n` says once there are nodes for them.
const SYSTEM: [&str; 3] = ["_global_changes", "_replicator", "_users"];

/// What is wanted of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebalanceRequest {
    /// Nodes that are to be emptied.
    pub drain: BTreeSet<String>,
    /// Only these databases; `None`: all.
    pub databases: Option<BTreeSet<String>>,
    /// Whether to give copies to those that lack some only, without evening out the load.
    pub needed_only: bool,
}

/// A range as the planner sees it.
#[derive(Clone, Debug)]
struct Held {
    db: String,
    number: usize,
    range: String,
    nodes: Vec<String>,
    /// How many copies it is to have.
    wanted: usize,
    /// Copies for each zone, where the database has a rule.
    zones: Option<Vec<(String, u32)>>,
    /// Whether a copy of it is on its way.
    busy: bool,
}

/// The state of a plan while it is made.
struct Planner<'p> {
    members: &'p [Peer],
    usable: BTreeSet<String>,
    load: BTreeMap<String, usize>,
    /// The ranges of each node, by their places, that may move still.
    by_node: BTreeMap<String, BTreeSet<usize>>,
    moves: Vec<MoveRequest>,
}

impl Planner<'_> {
    fn zone(&self, node: &str) -> Option<&str> {
        self.members.iter().find(|peer| *peer.name == *node).and_then(|peer| peer.zone.as_deref())
    }

    /// Whether a node may have a copy beside those of `kept`.
    fn fits(&self, held: &Held, kept: &[String], node: &str) -> bool {
        let room = |(zone, copies): &(String, u32)| {
            let there = kept.iter().filter(|kept| self.zone(kept) == Some(zone)).count();
            self.zone(node) == Some(zone) && there < *copies as usize
        };
        !kept.iter().any(|kept| kept == node) && held.zones.as_ref().is_none_or(|zones| zones.iter().any(room))
    }

    /// The node with the least load that may have a copy.
    fn pick(&self, held: &Held, kept: &[String]) -> Option<String> {
        let fitting = self.usable.iter().filter(|node| self.fits(held, kept, node));
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

    /// One move for a range that lacks a copy or has one where none may be.
    fn mend(&mut self, held: &mut Held) {
        let kept: Vec<String> = held.nodes.iter().filter(|node| self.usable.contains(*node)).cloned().collect();
        let lost = held.nodes.iter().find(|node| !self.usable.contains(*node)).cloned();
        match (lost, self.pick(held, &kept)) {
            (Some(from), Some(to)) if kept.len() < held.wanted => self.push(held, Some(from), Some(to)),
            // Others hold enough, or nobody else can: only then it goes without another in its place.
            (Some(from), _) if kept.len() >= held.wanted => self.push(held, Some(from), None),
            (None, Some(to)) if kept.len() < held.wanted => self.push(held, None, Some(to)),
            _ => {}
        }
    }

    /// One move from the node with most copies to the one with least; false when the load is even.
    fn even_out(&mut self, ranges: &mut [Held]) -> bool {
        let load = |node: &String| self.load.get(node).copied().unwrap_or(0);
        let mut by_load: Vec<String> = self.usable.iter().cloned().collect();
        by_load.sort_by_key(|node| (load(node), node.clone()));
        for from in by_load.iter().rev() {
            for to in by_load.iter().take_while(|to| load(to) + 1 < load(from)) {
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

/// The moves that bring ranges to where they are to be; at most one for each.
fn plan(members: &[Peer], mut ranges: Vec<Held>, request: &RebalanceRequest) -> Vec<MoveRequest> {
    let names = members.iter().map(|peer| peer.name.to_string());
    let usable: BTreeSet<String> = names.filter(|name| !request.drain.contains(name)).collect();
    let mut load: BTreeMap<String, usize> = BTreeMap::new();
    for node in ranges.iter().flat_map(|held| &held.nodes) {
        *load.entry(node.clone()).or_default() += 1;
    }
    let mut planner = Planner { members, usable, load, by_node: BTreeMap::new(), moves: Vec::new() };
    for held in ranges.iter_mut().filter(|held| !held.busy) {
        held.wanted = held.wanted.min(planner.usable.len());
        planner.mend(held);
    }
    planner.index(&ranges);
    while !request.needed_only && planner.moves.len() < limits::REBALANCE_MOVES && planner.even_out(&mut ranges) {}
    planner.moves
}

impl Coordinator {
    /// The moves that bring copies to where they are to be. Each range appears once: those that need more are planned
    /// again when that is done.
    pub async fn plan_rebalance(&self, request: &RebalanceRequest) -> Vec<MoveRequest> {
        let (coordinator, request) = (self.clone(), request.clone());
        // With a hundred thousand databases that takes long.
        let plan = move || plan(&coordinator.context().peers.members(), coordinator.held(&request), &request);
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
            for number in map.live().iter().copied() {
                let nodes: Vec<String> =
                    placed.nodes(number, &self.context().node).iter().map(|node| node.to_string()).collect();
                let wanted = if SYSTEM.contains(&name.as_str()) { nodes.len().max(n) } else { nodes.len() };
                let (range, busy) = (map.range(number).to_string(), placed.move_of(number).is_some());
                out.push(Held { db: name.clone(), number, range, nodes, wanted, zones: zones.clone(), busy });
            }
        }
        out
    }

    /// Moves under way, of all databases.
    pub fn moves_under_way(&self) -> Vec<MoveRequest> {
        let moving = self.all_known().into_iter().filter(|(_, known)| !known.placed().moves.is_empty());
        moving.filter_map(|(db, _)| self.database(&db).ok()).flat_map(|database| database.moves()).collect()
    }

    /// Carries out what is planned, and plans again until nothing is left to do; in the background. Another request
    /// takes the place of this one.
    pub fn rebalance(self: &Arc<Self>, request: RebalanceRequest) {
        let (weak, round) = (Arc::downgrade(self), self.context().next_rebalance());
        self.env().spawn(carry_out(weak, request, round));
    }

    /// Begins a move that was planned; false when that cannot be now.
    async fn begin_planned(&self, wanted: &MoveRequest) -> bool {
        // One that was deleted meanwhile needs no move.
        let Ok(database) = self.database(&wanted.db) else { return false };
        let MoveRequest { number, from, to, .. } = wanted.clone();
        match self.begin_move(&database, &Move { range: number as u32, from, to, leaving: false }).await {
            Ok(()) => true,
            Err(error) => {
                tracing::info!(database = wanted.db, range = wanted.range, ?error, "a copy is not moved now");
                false
            }
        }
    }

    /// Has the databases that every node needs get their copies, when this node holds their first one.
    pub(super) async fn spread_system_databases(&self) {
        let request = RebalanceRequest {
            databases: Some(SYSTEM.map(str::to_owned).into()),
            needed_only: true,
            ..RebalanceRequest::default()
        };
        for wanted in self.plan_rebalance(&request).await {
            let is_first = self
                .database(&wanted.db)
                .is_ok_and(|db| db.nodes_of(wanted.number).first() == Some(&self.context().node));
            if is_first && wanted.from.is_none() {
                self.begin_planned(&wanted).await;
            }
        }
    }
}

/// Keeps a few moves under way until there is nothing to plan. A plan is kept until one of the moves under way has
/// ended; where none of it could be begun the next one is made later and later.
async fn carry_out(weak: Weak<Coordinator>, request: RebalanceRequest, round: u64) {
    let (mut planned, mut before): (VecDeque<MoveRequest>, Vec<MoveRequest>) = (VecDeque::new(), Vec::new());
    let mut pause = limits::MOVE_PAUSE;
    loop {
        let Some(coordinator) = weak.upgrade() else { return };
        if !coordinator.context().is_rebalance(round) {
            return;
        }
        let (env, under_way) = (coordinator.env().clone(), coordinator.moves_under_way());
        if under_way.is_empty() || before.iter().any(|moved| !under_way.contains(moved)) {
            planned = coordinator.plan_rebalance(&request).await.into();
        }
        if planned.is_empty() && under_way.is_empty() {
            return;
        }
        let mut busy = under_way.len();
        while busy < limits::MOVES_AT_ONCE
            && let Some(wanted) = planned.pop_front()
        {
            busy += usize::from(coordinator.begin_planned(&wanted).await);
        }
        before = under_way;
        drop(coordinator);
        pause = if busy > 0 { limits::MOVE_PAUSE } else { (pause * 2).min(limits::REBALANCE_PAUSE_MAX) };
        env.sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(list: &[(&str, Option<&str>)]) -> Vec<Peer> {
        list.iter().map(|(name, zone)| Peer { name: (*name).into(), zone: zone.map(str::to_owned) }).collect()
    }

    fn held(number: usize, nodes: &str, wanted: usize) -> Held {
        let nodes = nodes.chars().map(|name| name.to_string()).collect();
        Held { db: "d".into(), number, range: String::new(), nodes, wanted, zones: None, busy: false }
    }

    fn shown(moves: &[MoveRequest]) -> Vec<String> {
        let name = |node: &Option<String>| node.clone().unwrap_or_else(|| "-".to_owned());
        moves.iter().map(|m| format!("{}:{}>{}", m.number, name(&m.from), name(&m.to))).collect()
    }

    #[test]
    fn what_is_needed_comes_first() {
        let members = peers(&[("a", None), ("b", None), ("c", None)]);
        let ranges = vec![held(0, "axb", 3), held(1, "a", 3), held(2, "abcx", 3), held(3, "abc", 3)];
        let moves = plan(&members, ranges, &RebalanceRequest::default());
        assert_eq!(shown(&moves), ["0:x>c", "1:->b", "2:x>-"]);
        let drain = RebalanceRequest { drain: ["c".to_owned()].into(), ..RebalanceRequest::default() };
        assert_eq!(shown(&plan(&members, vec![held(0, "ac", 2), held(1, "abc", 3)], &drain)), ["0:c>b", "1:c>-"]);
        let alone = plan(&peers(&[("a", None)]), vec![held(0, "a", 3)], &RebalanceRequest::default());
        assert!(alone.is_empty());
    }

    #[test]
    fn load_is_evened_out_within_zones() {
        let members = peers(&[("a", Some("x")), ("b", Some("x")), ("c", Some("y"))]);
        let ranges: Vec<Held> = (0..4).map(|n| held(n, "a", 1)).collect();
        let moves = plan(&members, ranges.clone(), &RebalanceRequest::default());
        assert_eq!(shown(&moves), ["0:a>b", "1:a>c"]);
        let zoned = |held: Held| Held { zones: Some(vec![("x".to_owned(), 1)]), ..held };
        let moves = plan(&members, ranges.into_iter().map(zoned).collect(), &RebalanceRequest::default());
        assert_eq!(shown(&moves), ["0:a>b", "1:a>b"], "c is in another zone");
        let even = plan(&members, vec![held(0, "a", 1), held(1, "b", 1)], &RebalanceRequest::default());
        assert!(even.is_empty());
    }

    #[test]
    fn ten_thousand_ranges_are_planned_at_once() {
        let members = peers(&[("a", None), ("b", None), ("c", None), ("d", None)]);
        let ranges: Vec<Held> = (0..10_000).map(|n| held(n, "abc", 3)).collect();
        let moves = plan(&members, ranges, &RebalanceRequest::default());
        assert_eq!(moves.len(), limits::REBALANCE_MOVES);
        let from = |name: &str| moves.iter().filter(|m| m.from.as_deref() == Some(name)).count();
        assert!(moves.iter().all(|m| m.to.as_deref() == Some("d")) && from("a").abs_diff(from("c")) <= 1);
    }
}
