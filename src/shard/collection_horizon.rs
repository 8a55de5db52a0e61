//! Rules by which the replicas of a range agree on the tombstones to collect. Pure; `tests/collection_horizon.rs` is a
//! model of replicas that follow these rules.
//!
//! Tombstones are collected in rounds. The proposer of a round has every replica write down, durably, which tombstones
//! the round covers and that the replica knows them all ([`CollectionLog::propose`]). Then the proposer collects them
//! itself, which decides the round, and tells the others. A replica that sees a round done elsewhere and has written it
//! down does the round, too. A replica that has not written it down was restored from an old backup; the others must
//! not read it until it has discarded what they all lack. Rounds of different proposers do not depend on each other, so
//! that no order has to be agreed on.
//!
//! A restored replica may discard only what others have read of it. So a replica collects only after it has read each
//! other replica from beginning to end since all had written the round down ([`CollectionLog::note_read`]): whatever an
//! older state of that replica holds of the tombstones then lies behind such a point.
//!
//! The callers keep more rules, and the model shows that each is needed. A replica does not pull from another one while
//! it has neither done nor written down what that one has done. Read repair does not bring to a replica that collected
//! anything what it lacks. A replica keeps what it collected as a collection marker until it has applied every other
//! replica behind that round. A write of the document builds on the marker as on the tombstone before; otherwise the
//! same content at the root would be the deleted revision. What a restored replica applies before it has met all others
//! counts as being as old as the backup. And a replica writes down only tombstones that it has had for long enough
//! itself, because of the readers of its feed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A round of a proposer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Round {
    /// One more than that of the round before.
    pub number: u64,
    /// Drawn: a proposer that was restored from a backup may give a number again.
    pub id: u64,
}

/// The last round of each proposer that a replica has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Horizon {
    rounds: BTreeMap<String, Round>,
}

impl Horizon {
    /// The last round of a proposer.
    pub fn last(&self, by: &str) -> Round {
        self.rounds.get(by).copied().unwrap_or_default()
    }

    /// Whether nothing was ever collected.
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Whether all that `other` collected was collected here.
    pub fn covers(&self, other: &Horizon) -> bool {
        // Two rounds of one number are of a proposer that was restored from a backup: who has done one knows nothing of
        // the other.
        let has = |last: Round, round: Round| last.number > round.number || last == round;
        other.rounds.iter().all(|(by, round)| has(self.last(by), *round))
    }

    /// The same with one more round: what is known where that was decided.
    #[must_use]
    pub fn with(&self, by: &str, round: Round) -> Horizon {
        let mut out = self.clone();
        out.reach(by, round);
        out
    }

    fn reach(&mut self, by: &str, round: Round) {
        if self.last(by).number <= round.number {
            self.rounds.insert(by.to_owned(), round);
        }
    }
}

/// What a replica has written down of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal<T> {
    /// Which one.
    pub round: Round,
    /// The tombstones that go with it: all of them were here.
    pub tombstones: Vec<T>,
    /// The number of the replica's last body when it wrote this down. A tombstone that was stored later is another one,
    /// if it has the same name. Each replica notes its own.
    #[serde(default)]
    pub body: u64,
    /// Nodes whose replicas were read from beginning to end since all had written it down; `None`: as far as known here
    /// some have not.
    #[serde(default)]
    pub read: Option<BTreeSet<String>>,
    /// Whether the round is known to be done at another replica. Each replica notes its own: the replica that did it
    /// need not be asked once more when the last other one was read.
    #[serde(default)]
    pub is_decided: bool,
}

impl<T> Proposal<T> {
    /// A new one.
    pub fn new(round: Round, tombstones: Vec<T>) -> Proposal<T> {
        Proposal { round, tombstones, body: 0, read: None, is_decided: false }
    }
}

/// What a replica keeps about rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionLog<T> {
    /// What was done.
    pub horizon: Horizon,
    /// What was written down and not done, by proposer.
    proposals: BTreeMap<String, Proposal<T>>,
}

impl<T> Default for CollectionLog<T> {
    fn default() -> CollectionLog<T> {
        CollectionLog { horizon: Horizon::default(), proposals: BTreeMap::new() }
    }
}

impl<T> CollectionLog<T> {
    /// Writes a proposal down, in place of one that its proposer gave up; answers whether it did: only the next round
    /// of a proposer is. The caller has seen that the replica knows all the tombstones.
    pub fn propose(&mut self, by: &str, proposal: Proposal<T>) -> bool {
        let is_next = self.horizon.last(by).number.checked_add(1) == Some(proposal.round.number);
        if is_next {
            self.proposals.insert(by.to_owned(), proposal);
        }
        is_next
    }

    /// What is done, and what was written down beside it: a replica that this does not cover another one's collection
    /// horizon by is an old one.
    pub fn promised(&self) -> Horizon {
        let mut out = self.horizon.clone();
        self.proposals.iter().for_each(|(by, proposal)| out.reach(by, proposal.round));
        out
    }

    /// Notes that all replicas have written a round down; false where it does not stand here.
    pub fn confirm(&mut self, by: &str, round: Round) -> bool {
        let Some(proposal) = self.proposals.get_mut(by).filter(|proposal| proposal.round == round) else {
            return false;
        };
        proposal.read.get_or_insert_default();
        true
    }

    /// Notes of rounds that were done somewhere that all replicas have written them down, and that they are decided;
    /// answers whether either is news.
    pub fn confirm_done(&mut self, done: &Horizon) -> bool {
        let is_done = |(by, proposal): &(&String, &mut Proposal<T>)| done.last(by) == proposal.round;
        let mut is_news = false;
        for (_, proposal) in self.proposals.iter_mut().filter(is_done) {
            is_news |= proposal.read.is_none() || !proposal.is_decided;
            proposal.read.get_or_insert_default();
            proposal.is_decided = true;
        }
        is_news
    }

    /// The proposals that all replicas have written down, as far as known here.
    pub fn confirmed(&self) -> BTreeSet<Round> {
        self.proposals.values().filter(|proposal| proposal.read.is_some()).map(|proposal| proposal.round).collect()
    }

    /// Notes that the replica of a node was read from beginning to end since all had written down these rounds; or that
    /// it is an old one, of which nothing can be read before it has met those who collected.
    pub fn note_read(&mut self, node: &str, rounds: &BTreeSet<Round>) {
        for proposal in self.proposals.values_mut().filter(|proposal| rounds.contains(&proposal.round)) {
            proposal.read.get_or_insert_default().insert(node.to_owned());
        }
    }

    /// A proposal that is a round of `done`, or known to be decided, if all of `others` were read since it was written
    /// down by all: the caller collects its tombstones, and calls [`CollectionLog::finish`] with the last of them.
    pub fn ready(&mut self, done: &Horizon, others: &[String]) -> Option<(String, &mut Proposal<T>)> {
        let is_read = |proposal: &Proposal<T>| match &proposal.read {
            Some(read) => others.iter().all(|other| read.contains(other)),
            None => others.is_empty(),
        };
        let is_done = |by: &str, proposal: &Proposal<T>| proposal.is_decided || done.last(by) == proposal.round;
        let mut open = self.proposals.iter_mut();
        let found = open.find(|(by, proposal)| is_done(by, proposal) && is_read(proposal));
        found.map(|(by, proposal)| (by.clone(), proposal))
    }

    /// Counts a proposal as done.
    pub fn finish(&mut self, by: &str) {
        if let Some(proposal) = self.proposals.remove(by) {
            self.horizon.reach(by, proposal.round);
        }
    }

    /// The proposals by their proposers.
    pub fn open(&self) -> &BTreeMap<String, Proposal<T>> {
        &self.proposals
    }

    /// Writes down what another replica has written down, unless something later of that proposer is here. The caller
    /// has applied that replica, and seen that this one knows all the tombstones.
    pub fn take_over(&mut self, by: &str, proposal: Proposal<T>) {
        let is_later = |own: &Proposal<T>| own.round.number >= proposal.round.number;
        if !self.proposals.get(by).is_some_and(is_later) {
            self.propose(by, proposal);
        }
    }

    /// Counts rounds as done of which nothing is here any more. Proposals that cannot be done any more go.
    pub fn adopt(&mut self, done: &Horizon) {
        done.rounds.iter().for_each(|(by, round)| self.horizon.reach(by, *round));
        let horizon = &self.horizon;
        self.proposals.retain(|by, proposal| horizon.last(by).number < proposal.round.number);
    }
}
