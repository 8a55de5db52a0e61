//! A model of three nodes that decide one version after the other while they restart and messages are lost: no version
//! is decided twice, and any two of the nodes can go on without the third.

use proptest::prelude::*;

use super::*;

const NODES: usize = 3;

/// A value: its version, and a number of its own.
type Value = (u64, u64);

/// What is durable on a node.
#[derive(Clone, Debug)]
struct Node {
    /// What it has gone over to.
    record: Value,
    promise: Promise<Value>,
}

/// What a node that proposes has in memory.
#[derive(Clone, Debug)]
struct Attempt {
    ask: Ask<Value>,
    own: Value,
    earlier: Option<(Ballot, Value)>,
    agreed: BTreeSet<usize>,
    decided: Option<Value>,
}

#[derive(Clone, Debug)]
struct Model {
    nodes: Vec<Node>,
    attempts: Vec<Option<Attempt>>,
    /// Ballots and values that were given out.
    given: u64,
    decided: Vec<Value>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize),
    Ask(usize, usize),
    /// Has a node keep what is decided, as far as the one that had it decided is still there.
    Tell(usize, usize),
    Follow(usize),
    Restart(usize),
}

impl Node {
    /// As `Coordinator::vote`.
    fn vote(&mut self, ask: Ask<Value>) -> Vote<Value> {
        if ask.version <= self.record.0 {
            return Vote::Decided(self.record);
        }
        let (vote, keep) = self.promise.clone().vote(ask, self.record.0);
        self.promise = keep.unwrap_or_else(|| self.promise.clone());
        vote
    }

    fn follow(&mut self, value: Value) {
        self.record = self.record.max(value);
    }
}

impl Model {
    fn new() -> Model {
        let node = Node { record: (1, 0), promise: Promise::default() };
        Model { nodes: vec![node; NODES], attempts: vec![None; NODES], given: 0, decided: vec![(1, 0)] }
    }

    fn begin(&mut self, by: usize) {
        self.given += 1;
        let (ballot, known) = (Ballot { counter: self.given, by: by as u64 }, self.nodes[by].record);
        let (version, own) = (known.0 + 1, (known.0 + 1, self.given));
        let ask = Ask { ballot, version, value: None, before: Some(known), voters: 0, names: BTreeSet::new() };
        self.attempts[by] = Some(Attempt { ask, own, earlier: None, agreed: BTreeSet::new(), decided: None });
    }

    fn ask(&mut self, by: usize, at: usize) {
        let Some(attempt) = self.attempts[by].as_mut().filter(|attempt| attempt.decided.is_none()) else { return };
        match self.nodes[at].vote(attempt.ask.clone()) {
            Vote::Yes { accepted } => {
                attempt.agreed.insert(at);
                if attempt.ask.value.is_none() {
                    attempt.earlier = attempt.earlier.into_iter().chain(accepted).max_by_key(|(ballot, _)| *ballot);
                }
            }
            Vote::Decided(value) => return self.nodes[by].follow(value),
            _ => return,
        }
        if attempt.agreed.len() > NODES / 2 {
            match attempt.ask.value {
                None => {
                    attempt.ask.value = Some(attempt.earlier.map_or(attempt.own, |(_, value)| value));
                    attempt.agreed.clear();
                }
                value => {
                    attempt.decided = value;
                    self.decided.extend(value);
                }
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin(by) => self.begin(by),
            Step::Ask(by, at) => self.ask(by, at),
            Step::Tell(by, at) => {
                let decided = self.attempts[by].as_ref().and_then(|attempt| attempt.decided);
                let node = &mut self.nodes[at];
                if let Some(value) = decided.filter(|value| *value > node.record) {
                    node.promise = node.promise.clone().with(Promise::decided(value.0, value));
                }
            }
            Step::Follow(at) => {
                let decided = self.nodes[at].promise.latest_decided();
                self.nodes[at].record =
                    decided.map_or(self.nodes[at].record, |(_, value)| self.nodes[at].record.max(value));
            }
            Step::Restart(at) => self.attempts[at] = None,
        }
    }

    /// Whether a node has a value of its own decided with another one, as `Coordinator::change_map` does.
    fn changes(&mut self, by: usize, with: usize) -> bool {
        for _ in 0..2 * NODES {
            self.begin(by);
            let own = self.attempts[by].as_ref().map(|attempt| attempt.own);
            [by, with, by, with].into_iter().for_each(|at| self.ask(by, at));
            if let Some(value) = self.attempts[by].as_ref().and_then(|attempt| attempt.decided) {
                self.nodes[by].follow(value);
                if Some(value) == own {
                    return true;
                }
            }
        }
        false
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let once = |value: &Value| self.decided.iter().all(|other| other.0 != value.0 || other == value);
        prop_assert!(self.decided.iter().all(once), "two values of one version: {:?}", self.decided);
        let followed = self.nodes.iter().all(|node| self.decided.contains(&node.record));
        prop_assert!(followed, "a node follows what was never decided: {self:?}");
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        2 => node().prop_map(Step::Begin),
        8 => (node(), node()).prop_map(|(by, at)| Step::Ask(by, at)),
        2 => (node(), node()).prop_map(|(by, at)| Step::Tell(by, at)),
        2 => node().prop_map(Step::Follow),
        1 => node().prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn after_any_restarts_any_two_nodes_can_decide_the_next_version_and_none_twice(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
            model.check()?;
        }
        (0..NODES).for_each(|node| model.step(Step::Restart(node)));
        for lost in 0..NODES {
            let mut left = model.clone();
            let (one, other) = ((lost + 1) % NODES, (lost + 2) % NODES);
            for (by, with) in [(one, other), (other, one)] {
                prop_assert!(left.changes(by, with), "without {lost} nothing can be changed: {left:?}");
                left.check()?;
            }
        }
    }
}

#[test]
fn nodes_that_were_told_of_a_map_and_voted_for_the_next_one_can_go_on_without_the_one_that_had_it_decided() {
    let mut model = Model::new();
    model.begin(0);
    [0, 1, 0, 1].into_iter().for_each(|at| model.ask(0, at));
    [0, 1, 2].into_iter().for_each(|at| model.step(Step::Tell(0, at)));
    model.step(Step::Follow(0));
    // The others are told, and asked about the next version, before they have gone over; then the first one is lost.
    model.begin(0);
    [1, 2].into_iter().for_each(|at| model.ask(0, at));
    assert!(model.nodes[1..].iter().all(|node| node.record == (1, 0)));
    assert!(model.changes(1, 2) && model.changes(2, 1));
}
