//! The rules by which the copies of a range agree on what to forget. Pure; `tests/horizon.rs` is a model of copies that
//! go by them.
//!
//! Tombstones are forgotten in rounds. Whoever proposes one has every copy write down, durably, which tombstones it is
//! about and that it knows them all ([`Ledger::propose`]); then forgets them itself, which decides the round, and tells
//! the others. A copy that sees a round done elsewhere which it has written down does it, too; one that has not written
//! it down is an old one put back, and must not be read by the others until it gave up what they all lack. Rounds of
//! different proposers do not depend on each other, so that there is no order to agree on.
//!
//! Three more rules are the caller's, and the model shows that each is needed. A copy whose horizon does not cover that
//! of another is not pulled from by that one. Reads do not bring to a copy that forgot anything what it lacks. And what
//! a copy forgot it keeps as a shadow until it has taken in every other copy behind that round: who writes the document
//! again builds upon the tombstone as before, for where it is still built upon, the same words at the root would be
//! what was deleted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A round of a proposer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Round {
    /// One more than that of the round before.
    pub number: u64,
    /// Drawn: a proposer that was put back may give a number again.
    pub id: u64,
}

/// The last round of each proposer that a copy has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Horizon {
    rounds: BTreeMap<String, Round>,
}

impl Horizon {
    /// The last round of a proposer.
    pub fn last(&self, by: &str) -> Round {
        self.rounds.get(by).copied().unwrap_or_default()
    }

    /// Whether nothing was ever forgotten.
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Whether all that `other` forgot was forgotten here.
    pub fn covers(&self, other: &Horizon) -> bool {
        other.rounds.iter().all(|(by, round)| self.last(by) >= *round)
    }

    /// The same with one more round: what is known where that was decided.
    #[must_use]
    pub fn with(&self, by: &str, round: Round) -> Horizon {
        let mut out = self.clone();
        out.reach(by, round);
        out
    }

    fn reach(&mut self, by: &str, round: Round) {
        if self.last(by) < round {
            self.rounds.insert(by.to_owned(), round);
        }
    }
}

/// What a copy has written down of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal<T> {
    /// Which one.
    pub round: Round,
    /// The tombstones that go with it: all of them were here.
    pub tombstones: Vec<T>,
}

/// What a copy keeps about rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger<T> {
    /// What was done.
    pub horizon: Horizon,
    /// What was written down and not done, by proposer.
    proposals: BTreeMap<String, Proposal<T>>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Ledger<T> {
        Ledger { horizon: Horizon::default(), proposals: BTreeMap::new() }
    }
}

impl<T> Ledger<T> {
    /// Writes a proposal down, in place of one that its proposer gave up; answers whether it did: only the next round
    /// of a proposer is. The caller has seen that the copy knows all the tombstones.
    pub fn propose(&mut self, by: &str, proposal: Proposal<T>) -> bool {
        let is_next = self.horizon.last(by).number.checked_add(1) == Some(proposal.round.number);
        if is_next {
            self.proposals.insert(by.to_owned(), proposal);
        }
        is_next
    }

    /// What is done, and what was written down beside it: a copy that this does not cover another one's horizon by is
    /// an old one.
    pub fn promised(&self) -> Horizon {
        let mut out = self.horizon.clone();
        self.proposals.iter().for_each(|(by, proposal)| out.reach(by, proposal.round));
        out
    }

    /// Takes the proposals that are rounds of `done`: the caller forgets their tombstones in the same commit.
    pub fn take_done(&mut self, done: &Horizon) -> Vec<Proposal<T>> {
        let is_done = |(by, proposal): &(&String, &Proposal<T>)| done.last(by) == proposal.round;
        let names: Vec<String> = self.proposals.iter().filter(is_done).map(|(by, _)| by.clone()).collect();
        let mut out = Vec::with_capacity(names.len());
        for by in names {
            if let Some(proposal) = self.proposals.remove(&by) {
                self.horizon.reach(&by, proposal.round);
                out.push(proposal);
            }
        }
        out
    }

    /// Counts rounds as done of which nothing is here any more. Proposals that cannot be done any more go.
    pub fn adopt(&mut self, done: &Horizon) {
        done.rounds.iter().for_each(|(by, round)| self.horizon.reach(by, *round));
        let horizon = &self.horizon;
        self.proposals.retain(|by, proposal| horizon.last(by).number < proposal.round.number);
    }
}
