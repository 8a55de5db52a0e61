//! Voters that change while maps are being decided: a model of many orders, and single steps.

use proptest::prelude::*;

use super::*;
use crate::coordinator::topology::ballot::Ballot;
use crate::coordinator::topology::quorum::majority;

const NODES: usize = 6;

fn name(node: usize) -> String {
    format!("n{node}")
}

fn names(nodes: &[usize]) -> BTreeSet<String> {
    nodes.iter().map(|node| name(*node)).collect()
}

fn of_bits(bits: usize) -> Vec<usize> {
    (0..NODES).filter(|node| bits >> node & 1 == 1).collect()
}

/// A node: how it takes part, and what it promised about the one map.
#[derive(Clone, Default)]
struct Node {
    seat: Seat,
    map: Promise<u64>,
}

/// A proposer of a map, which counts the votes of some voters.
#[derive(Clone)]
struct Proposer {
    ballot: Ballot,
    voters: Voters,
    promised: BTreeMap<usize, Option<(Ballot, u64)>>,
    value: Option<u64>,
    accepted: BTreeSet<usize>,
}

struct Model {
    nodes: Vec<Node>,
    /// All voters that were agreed on, from version 1 on.
    agreed: Vec<Voters>,
    proposers: Vec<Proposer>,
    decided: Vec<u64>,
}

impl Model {
    /// The first three nodes vote.
    fn new() -> Model {
        let first = Voters { version: 1, names: names(&[0, 1, 2]), before: names(&[0, 1, 2]) };
        let mut nodes = vec![Node::default(); NODES];
        for node in &mut nodes[..3] {
            node.seat = Seat { voters: first.clone(), complete: 1, ..Seat::default() };
        }
        let mut model = Model { nodes, agreed: vec![first], proposers: Vec::new(), decided: Vec::new() };
        (0..4).for_each(|by| model.begin(by, 0));
        model
    }

    fn latest(&self) -> &Voters {
        &self.agreed[self.agreed.len() - 1]
    }

    /// A proposer begins, or begins anew with a higher ballot.
    fn begin(&mut self, by: usize, counter: u64) {
        let ballot = Ballot { counter, by: by as u64 };
        let voters = self.latest().clone();
        let (promised, accepted) = (BTreeMap::new(), BTreeSet::new());
        let proposer = Proposer { ballot, voters, promised, value: None, accepted };
        match self.proposers.get_mut(by) {
            Some(place) => *place = proposer,
            None => self.proposers.push(proposer),
        }
    }

    /// The members become others, where a majority of the voters can agree on that.
    fn change(&mut self, nodes: &[usize]) {
        let now = self.latest().clone();
        let votes = self.nodes.iter().enumerate().filter(|(at, node)| {
            now.names.contains(&name(*at)) && node.seat.voters == now && node.seat.complete == now.version
        });
        if !nodes.is_empty() && votes.count() as u32 >= majority(now.names.len() as u32) {
            self.agreed.push(Voters { version: now.version + 1, names: names(nodes), before: now.names });
        }
    }

    /// A node goes over to voters.
    fn follow(&mut self, node: usize, at: usize) {
        let voters = self.agreed[at % self.agreed.len()].clone();
        self.nodes[node].seat.follow(&voters);
    }

    /// A node applies what those of `there` hand over.
    fn take_over(&mut self, node: usize, there: &[usize]) {
        let sources = self.nodes[node].seat.sources(&name(node));
        let (voters, mut taken) = (self.nodes[node].seat.voters.clone(), BTreeMap::new());
        for from in there.iter().filter(|from| sources.contains(&name(**from))) {
            let source = &mut self.nodes[*from];
            source.seat.follow(&voters);
            if source.seat.voters == voters {
                let map = source.map.clone();
                taken.insert(name(*from), source.seat.complete);
                let own = &mut self.nodes[node].map;
                *own = own.clone().with(map);
            }
        }
        let seat = &mut self.nodes[node].seat;
        if !sources.is_empty() && seat.is_enough(&name(node), &taken) {
            (seat.complete, seat.fresh) = (seat.voters.version, false);
        }
    }

    /// A proposer asks a node for what it needs next.
    fn ask(&mut self, by: usize, at: usize) {
        let proposer = &mut self.proposers[by];
        let (ballot, Voters { version, names, .. }) = (proposer.ballot, &proposer.voters);
        let ask =
            Ask { ballot, version: 1, value: proposer.value, before: None, voters: *version, names: names.clone() };
        let node = &mut self.nodes[at];
        if !names.contains(&name(at)) || !node.seat.counts(&ask, BTreeSet::new) {
            return;
        }
        let (Vote::Yes { accepted }, Some(keep)) = node.map.clone().vote(ask, 0) else { return };
        node.map = keep;
        let needed = majority(names.len() as u32) as usize;
        match proposer.value {
            Some(value) => {
                proposer.accepted.insert(at);
                self.decided.extend((proposer.accepted.len() >= needed).then_some(value));
            }
            None => {
                proposer.promised.insert(at, accepted);
                let earlier = proposer.promised.values().flatten().max_by_key(|(ballot, _)| *ballot);
                let value = earlier.map_or(by as u64, |(_, value)| *value);
                proposer.value = (proposer.promised.len() >= needed).then_some(value);
            }
        }
    }

    /// All those who are to vote take over from all, as often as it takes.
    fn settle(&mut self) {
        for node in 0..NODES {
            self.follow(node, self.agreed.len() - 1);
        }
        let all: Vec<usize> = (0..NODES).collect();
        for node in (0..NODES).chain(0..NODES) {
            self.take_over(node, &all);
        }
    }
}

#[test]
fn what_a_majority_of_the_old_voters_accepted_is_what_the_new_ones_decide() {
    let mut model = Model::new();
    for _ in 0..2 {
        [0, 1].into_iter().for_each(|node| model.ask(0, node));
    }
    assert_eq!(model.decided, [0]);
    // None of a majority of the new ones has heard of it.
    model.change(&[0, 2, 3, 4, 5]);
    model.begin(1, 1);
    model.follow(2, 1);
    model.ask(1, 2);
    assert_eq!(model.proposers[1].promised.len(), 0, "it has not taken over yet");
    model.settle();
    for node in [3, 4, 5].into_iter().chain([3, 4, 5]) {
        model.ask(1, node);
    }
    assert_eq!(model.decided, [0, 0]);
}

#[test]
fn who_went_over_answers_no_ballot_of_those_before() {
    let mut model = Model::new();
    model.ask(0, 0);
    model.change(&[0, 1, 3]);
    (0..2).for_each(|node| model.follow(node, 1));
    [1, 2].into_iter().for_each(|node| model.ask(0, node));
    assert_eq!(model.proposers[0].promised.keys().copied().collect::<Vec<_>>(), [0, 2]);
    model.ask(0, 0);
    assert!(model.decided.is_empty() && model.proposers[0].accepted.is_empty());
}

#[test]
fn the_voters_do_not_change_again_before_a_majority_has_taken_over() {
    let mut model = Model::new();
    model.change(&[0, 1, 3]);
    (0..4).for_each(|node| model.follow(node, 1));
    model.change(&[3, 4, 5]);
    assert_eq!(model.agreed.len(), 2);
    model.settle();
    model.change(&[3, 4, 5]);
    assert_eq!(model.agreed.len(), 3);
}

#[test]
fn a_node_that_lost_its_disk_takes_in_what_it_may_have_accepted() {
    let mut model = Model::new();
    [0, 1].into_iter().for_each(|node| model.ask(0, node));
    [0, 1].into_iter().for_each(|node| model.ask(0, node));
    model.nodes[1] = Node::default();
    model.follow(1, 0);
    model.take_over(1, &[2]);
    assert_eq!(model.nodes[1].seat.complete, 0, "the one that accepted it with it is another");
    model.take_over(1, &[0, 2]);
    assert_eq!(model.nodes[1].seat.complete, 1);
    let later =
        Ask { ballot: ballot(9, 0), version: 1, value: None, before: None, voters: 1, names: names(&[0, 1, 2]) };
    assert_eq!(model.nodes[1].map.clone().vote(later, 0).0, Vote::Yes { accepted: Some((ballot(0, 0), 0)) });
}

fn ballot(counter: u64, by: u64) -> Ballot {
    Ballot { counter, by }
}

#[test]
fn of_two_sets_of_one_version_the_same_one_stays_everywhere() {
    let voters = |nodes: &[usize]| Voters { version: 3, names: names(nodes), before: names(&[0]) };
    let (few, many) = (voters(&[4, 5]), voters(&[0, 1, 2]));
    for (first, second) in [(&few, &many), (&many, &few)] {
        let mut seat = Seat::default();
        seat.follow(first);
        seat.complete = 3;
        seat.follow(second);
        assert_eq!(seat.voters, many);
        assert_eq!(seat.complete, if *first == many { 3 } else { 2 }, "others are to be heard");
    }
}

#[test]
fn a_vote_about_voters_that_were_decided_tells_them() {
    let mut model = Model::new();
    let ask = |version| {
        let names = names(&[0, 1, 2]);
        Ask { ballot: ballot(1, 1), version, value: None, before: None, voters: 1, names }
    };
    let seat = &mut model.nodes[0].seat;
    assert_eq!(seat.vote(ask(1), BTreeSet::new), Vote::Decided(seat.voters.clone()));
    assert_eq!(seat.vote(ask(2), BTreeSet::new), Vote::Yes { accepted: None });
    assert_eq!(Seat::default().vote(ask(1), || names(&[0, 1])), Vote::Elsewhere, "it knows of others");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn no_two_maps_are_decided_no_matter_who_comes_and_goes(
        steps in prop::collection::vec((0_usize..12, 0_usize..NODES, 0_usize..64), 0..250),
    ) {
        let mut model = Model::new();
        for (nth, (kind, node, bits)) in steps.into_iter().enumerate() {
            match kind {
                0 => model.change(&of_bits(bits)),
                1 => model.follow(node, bits),
                2 | 3 => model.take_over(node, &of_bits(bits)),
                4 => model.begin(bits % 4, nth as u64),
                5 => model.settle(),
                _ => model.ask(bits % 4, node),
            }
        }
        let decided = &model.decided;
        prop_assert!(decided.windows(2).all(|pair| pair[0] == pair[1]), "{decided:?}");
    }
}

/// They were of one version with those that the lost ones had decided, of whom the larger set stays.
#[test]
fn voters_that_are_named_come_after_those_that_the_lost_ones_may_have_decided() {
    let now = Voters { version: 5, names: names(&[0, 1, 2]), before: names(&[0, 1, 2]) };
    let decided = Voters { version: 6, names: names(&[0, 1, 2, 3, 4]), before: now.names.clone() };
    let promise = Promise::decided(6, decided.clone());
    let mut seat = Seat { voters: now, complete: 5, promise, ..Seat::default() };
    seat.decree(names(&[0]), name(0));
    assert!(seat.voters.succeed(&decided) && seat.complete == seat.voters.version);
}
