//! Ballots of one register, pure: the questions of a proposer, and what a voter promises, accepts and answers
//! (`ballots`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The number of a proposal: of two the higher one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::coordinator) struct Ballot {
    pub counter: u64,
    /// Tells proposers apart.
    pub by: u64,
}

impl Ballot {
    /// That of a value which is known to be decided.
    pub(in crate::coordinator) const LAST: Ballot = Ballot { counter: u64::MAX, by: u64::MAX };
}

/// Whose votes are counted, and how many of them are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::coordinator) struct Electorate {
    /// The version of the voters, see `voters`.
    pub voters: u64,
    pub names: BTreeSet<String>,
    pub needed: u32,
}

/// A proposer's question about a version of a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Ask<V> {
    pub ballot: Ballot,
    /// The version that is to be decided.
    pub version: u64,
    /// The value to accept; `None`: only a promise is asked for.
    pub value: Option<V>,
    /// The decided value of the version before; `None`: of an older build, or where all who vote know it.
    #[serde(default = "Option::default")]
    pub before: Option<V>,
    /// The version of the voters whose votes are counted.
    pub voters: u64,
    /// They.
    pub names: BTreeSet<String>,
}

/// What a node answers to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) enum Vote<V> {
    /// Promised, or accepted. Carries what was accepted before with the highest ballot.
    Yes { accepted: Option<(Ballot, V)> },
    /// A higher ballot was promised to somebody else.
    No { promised: Ballot },
    /// The version is decided: this is the value of it, or of a later one.
    Decided(V),
    /// There is no such register here, or it is not known what the version before the one asked about is.
    Unknown,
    /// The node counts other votes, or has yet to apply what those before it accepted.
    Elsewhere,
}

/// What a node promised about a version of a register, and accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Promise<V> {
    pub version: u64,
    promised: Ballot,
    accepted: Option<(Ballot, V)>,
    /// The latest version below that is known to be decided and that this node has not gone over to, with its value.
    #[serde(default = "Option::default")]
    before: Option<(u64, V)>,
}

impl<V> Default for Promise<V> {
    fn default() -> Promise<V> {
        Promise { version: 0, promised: Ballot::default(), accepted: None, before: None }
    }
}

impl<V: Clone> Promise<V> {
    /// Of a value that is known to be decided: nothing else of its version is voted for any more.
    pub fn decided(version: u64, value: V) -> Promise<V> {
        Promise { version, promised: Ballot::LAST, accepted: Some((Ballot::LAST, value)), before: None }
    }

    /// The latest version that is known to be decided, of those that this node may not have gone over to.
    fn latest_decided(&self) -> Option<(u64, V)> {
        let own = self.accepted.as_ref().filter(|(ballot, _)| *ballot == Ballot::LAST);
        own.map(|(_, value)| (self.version, value.clone())).or_else(|| self.before.clone())
    }

    /// Answers a proposer, and what is to be kept of it; pure. `known`: the version that this node has gone over to,
    /// below the one asked about.
    pub fn vote(self, ask: Ask<V>, known: u64) -> (Vote<V>, Option<Promise<V>>) {
        let told = ask.before.map(|value| (ask.version.saturating_sub(1), value));
        let before = self.latest_decided().into_iter().chain(told).max_by_key(|(version, _)| *version);
        if let Some((_, value)) = before.as_ref().filter(|(version, _)| ask.version <= *version) {
            return (Vote::Decided(value.clone()), None);
        }
        let latest = before.as_ref().map_or(known, |(version, _)| known.max(*version));
        let mut own = match self.version {
            version if version == ask.version => self,
            // What this node voted for would be lost, or what is decided before that which it votes for now.
            version if version > ask.version || latest + 1 < ask.version => return (Vote::Unknown, None),
            _ => Promise { version: ask.version, ..Promise::default() },
        };
        own.before = before.filter(|(version, _)| *version > known);
        if ask.ballot < own.promised {
            return (Vote::No { promised: own.promised }, None);
        }
        let accepted = own.accepted.clone();
        own.promised = ask.ballot;
        if let Some(value) = ask.value {
            own.accepted = Some((ask.ballot, value));
        }
        (Vote::Yes { accepted }, Some(own))
    }

    /// This with what another node promised and accepted: every later proposer is told of both.
    pub fn with(self, other: Promise<V>) -> Promise<V> {
        let (high, low) = if self.version >= other.version { (self, other) } else { (other, self) };
        let (version, decided) = (high.version, [high.latest_decided(), low.latest_decided()]);
        let Promise { promised, accepted, .. } = match high.version == low.version {
            true => {
                let accepted = [high.accepted, low.accepted].into_iter().flatten().max_by_key(|(ballot, _)| *ballot);
                Promise { version, promised: high.promised.max(low.promised), accepted, before: None }
            }
            // Who was asked about a version knew that the one before it is decided.
            false => high,
        };
        let is_decided = promised == Ballot::LAST;
        let before = decided.into_iter().flatten().filter(|(below, _)| *below < version && !is_decided);
        Promise { version, promised, accepted, before: before.max_by_key(|(below, _)| *below) }
    }
}

#[cfg(test)]
mod restarts;
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ask(counter: u64, by: u64, value: Option<u64>) -> Ask<u64> {
        Ask { ballot: Ballot { counter, by }, version: 1, value, before: None, voters: 0, names: BTreeSet::new() }
    }

    #[test]
    fn what_is_known_to_be_decided_is_told_and_nothing_else_is_voted_for() {
        let known = Promise::decided(1, 7);
        assert_eq!(known.clone().vote(ask(9, 9, Some(8)), 0), (Vote::Decided(7), None));
        let (vote, keep) = known.vote(Ask { version: 2, ..ask(1, 1, None) }, 0);
        assert_eq!((vote, keep.as_ref().map(|promise| promise.version)), (Vote::Yes { accepted: None }, Some(2)));
        // It can still tell, and gets that from others who can.
        let kept = keep.unwrap();
        assert_eq!(kept.clone().vote(ask(9, 9, Some(8)), 0), (Vote::Decided(7), None));
        let later = Promise { before: None, ..kept.clone() };
        assert_eq!(later.with(Promise::decided(1, 7)), kept);
    }

    #[test]
    fn who_does_not_know_the_version_before_does_not_vote_unless_it_is_told() {
        let asked = |before| Ask { version: 3, before, ..ask(1, 1, None) };
        assert_eq!(Promise::default().vote(asked(None), 1), (Vote::Unknown, None));
        assert_eq!(Promise::default().vote(asked(None), 2).0, Vote::Yes { accepted: None });
        let (vote, kept) = Promise::default().vote(asked(Some(6)), 1);
        assert_eq!(vote, Vote::Yes { accepted: None });
        assert_eq!(kept.unwrap().vote(Ask { version: 2, ..ask(9, 9, None) }, 1), (Vote::Decided(6), None));
    }

    #[test]
    fn what_is_taken_in_from_others_is_what_both_promised_and_the_highest_that_was_accepted() {
        let voted = |asks: &[Ask<u64>]| {
            let step =
                |promise: Promise<u64>, ask: &Ask<u64>| promise.clone().vote(ask.clone(), 0).1.unwrap_or(promise);
            asks.iter().fold(Promise::default(), step)
        };
        let (one, other) = (voted(&[ask(1, 1, Some(7)), ask(5, 1, None)]), voted(&[ask(2, 1, Some(8))]));
        let both = one.clone().with(other.clone());
        assert_eq!(both, other.clone().with(one.clone()));
        assert_eq!(both.clone().vote(ask(4, 9, None), 0).0, Vote::No { promised: Ballot { counter: 5, by: 1 } });
        assert_eq!(both.vote(ask(6, 0, None), 0).0, Vote::Yes { accepted: Some((Ballot { counter: 2, by: 1 }, 8)) });
        let later = Promise { version: 2, ..Promise::default() };
        assert_eq!(one.with(later.clone()), later);
    }

    /// A proposer: who promised it what, then what it has others accept.
    #[derive(Default)]
    struct Proposer {
        promises: BTreeMap<usize, Option<(Ballot, u64)>>,
        value: Option<u64>,
    }

    /// Proposers whose steps at three nodes happen in any order, some never; answers all that was decided.
    fn race(order: Vec<(usize, usize)>) -> Vec<u64> {
        let mut nodes = vec![Promise::default(); 3];
        let mut proposers: Vec<Proposer> = (0..3).map(|_| Proposer::default()).collect();
        let mut decided = Vec::new();
        for (who, node) in order {
            let proposer = &mut proposers[who];
            let asked = ask(1, who as u64, proposer.value);
            let (Vote::Yes { accepted }, Some(promise)) = nodes[node].clone().vote(asked, 0) else { continue };
            nodes[node] = promise.clone();
            match &proposer.value {
                Some(value) => {
                    let held = nodes.iter().filter(|node| node.accepted == promise.accepted).count();
                    decided.extend((held >= 2).then_some(*value));
                }
                None => {
                    proposer.promises.insert(node, accepted);
                }
            }
            if proposer.value.is_none() && proposer.promises.len() >= 2 {
                let earlier = proposer.promises.values().flatten().max_by_key(|(ballot, _)| *ballot);
                proposer.value = Some(earlier.map_or(who as u64, |(_, value)| *value));
            }
        }
        decided
    }

    proptest! {
        #[test]
        fn no_two_values_of_a_version_are_decided(
            order in prop::collection::vec((0_usize..3, 0_usize..3), 0..40),
        ) {
            let decided = race(order);
            prop_assert!(decided.windows(2).all(|pair| pair[0] == pair[1]), "{decided:?}");
        }
    }
}
