//! Registers that are decided once for each version: what proposers ask, and what voters answer.
//!
//! One decision is a single-decree Paxos: a proposer gets promises for its ballot from enough of those who vote, then
//! has as many accept a value. Should an earlier proposer have had a value accepted by anybody who promised, that one
//! is proposed on, so that two values of one version cannot both be decided. What a node promised and accepted is in
//! its store before it answers.
//!
//! A proposer says whose votes it counts; a node that counts others does not vote. When those who vote change, the new
//! ones first take in what the old ones promised and accepted (`voters`): [`Promise::with`].

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::message::{CatalogueCall, decode};
use crate::coordinator::peers::Urgency;
use crate::coordinator::quorum::Tally;
use crate::shard::ShardError;

/// The number of a proposal: of two the higher one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ballot {
    pub counter: u64,
    /// Tells proposers apart.
    pub by: u64,
}

impl Ballot {
    /// That of a value which is known to be decided.
    const LAST: Ballot = Ballot { counter: u64::MAX, by: u64::MAX };
}

/// Whose votes are counted, and how many of them are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Electorate {
    /// The version of the voters, see `voters`.
    pub voters: u64,
    pub names: BTreeSet<String>,
    pub needed: u32,
}

/// A proposer's question about a version of a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ask<V> {
    pub ballot: Ballot,
    /// The version that is to be decided.
    pub version: u64,
    /// The value to accept; `None`: only a promise is asked for.
    pub value: Option<V>,
    /// The version of the voters whose votes are counted.
    pub voters: u64,
    /// They.
    pub names: BTreeSet<String>,
}

/// What a node answers to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Vote<V> {
    /// Promised, or accepted. Carries what was accepted before with the highest ballot.
    Yes { accepted: Option<(Ballot, V)> },
    /// A higher ballot was promised to somebody else.
    No { promised: Ballot },
    /// The version is decided: this is the value of it, or of a later one.
    Decided(V),
    /// There is no such register here.
    Unknown,
    /// The node counts other votes, or has yet to take in what those before it accepted.
    Elsewhere,
}

/// What one attempt to have a value decided came to.
#[derive(Debug)]
pub(super) enum Round<V> {
    Decided(V),
    /// Another ballot was higher.
    Outbid(Ballot),
    /// Somebody counts other votes. Carries how many voted.
    Elsewhere(usize),
    /// Carries how many voted.
    TooFew(usize),
}

/// What a node promised about a version of a register, and accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Promise<V> {
    pub version: u64,
    promised: Ballot,
    accepted: Option<(Ballot, V)>,
}

impl<V> Default for Promise<V> {
    fn default() -> Promise<V> {
        Promise { version: 0, promised: Ballot::default(), accepted: None }
    }
}

impl<V: Clone> Promise<V> {
    /// Of a value that is known to be decided: nothing else of its version is voted for any more.
    pub fn decided(version: u64, value: V) -> Promise<V> {
        Promise { version, promised: Ballot::LAST, accepted: Some((Ballot::LAST, value)) }
    }

    /// Answers a proposer, and what is to be kept of it; pure.
    pub fn vote(self, ask: Ask<V>) -> (Vote<V>, Option<Promise<V>>) {
        let decided = self.accepted.as_ref().filter(|(ballot, _)| *ballot == Ballot::LAST);
        if let Some((_, value)) = decided.filter(|_| ask.version <= self.version) {
            return (Vote::Decided(value.clone()), None);
        }
        let mut own = match self.version {
            version if version > ask.version => return (Vote::No { promised: self.promised }, None),
            version if version == ask.version => self,
            _ => Promise { version: ask.version, ..Promise::default() },
        };
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

    /// This with what another node promised and accepted: whoever asks from now on is told of both.
    pub fn with(self, other: Promise<V>) -> Promise<V> {
        if self.version != other.version {
            // Who was asked about a version knew that the one before it is decided.
            return if self.version > other.version { self } else { other };
        }
        let accepted = [self.accepted, other.accepted].into_iter().flatten().max_by_key(|(ballot, _)| *ballot);
        Promise { version: self.version, promised: self.promised.max(other.promised), accepted }
    }
}

/// Something of which each version is decided once.
pub(super) trait Register: Sync {
    type Value: Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync;

    /// The call that asks another node.
    fn call(&self, ask: Ask<Self::Value>) -> CatalogueCall;

    /// This node's own vote; durable on return.
    fn vote(
        &self,
        coordinator: &Coordinator,
        ask: Ask<Self::Value>,
    ) -> impl Future<Output = Result<Vote<Self::Value>, ShardError>> + Send;
}

impl Coordinator {
    /// One attempt to have a value decided.
    pub(super) async fn propose<R: Register>(
        &self,
        register: &R,
        electorate: Electorate,
        ballot: Ballot,
        (version, next): (u64, &R::Value),
    ) -> Result<Round<R::Value>, ShardError> {
        let Electorate { voters, names, needed } = electorate;
        let ask = Ask { ballot, version, value: None, voters, names };
        let earlier = match self.poll(register, ask.clone(), needed).await? {
            Ok(accepted) => accepted,
            Err(round) => return Ok(round),
        };
        let value = earlier.map_or_else(|| next.clone(), |(_, value)| value);
        match self.poll(register, Ask { value: Some(value.clone()), ..ask }, needed).await? {
            Ok(_) => Ok(Round::Decided(value)),
            Err(round) => Ok(round),
        }
    }

    /// Asks all who vote; answers what was accepted before, once enough of them agreed.
    async fn poll<R: Register>(
        &self,
        register: &R,
        ask: Ask<R::Value>,
        needed: u32,
    ) -> Result<Result<Option<(Ballot, R::Value)>, Round<R::Value>>, ShardError> {
        let own = &self.context().node;
        let others: Vec<Arc<str>> =
            ask.names.iter().filter(|name| ***name != **own).map(|name| name.as_str().into()).collect();
        let mut tally = Tally::new(ask.names.len() as u32, needed);
        let mut vote = match ask.names.contains(&**own) {
            true => Some(register.vote(self, ask.clone()).await?),
            false => None,
        };
        let mut answers = self.context().tell_all(&others, &register.call(ask), Urgency::Foreground);
        let (mut highest, mut outbid, mut elsewhere) = (None, Ballot::default(), false);
        loop {
            match vote.take() {
                Some(Vote::Yes { accepted }) => {
                    tally.done();
                    highest = [highest, accepted].into_iter().flatten().max_by_key(|(ballot, _)| *ballot);
                }
                Some(Vote::No { promised }) => {
                    tally.refused();
                    outbid = outbid.max(promised);
                }
                Some(Vote::Decided(value)) => return Ok(Err(Round::Decided(value))),
                Some(Vote::Unknown) => tally.refused(),
                Some(Vote::Elsewhere) => {
                    tally.refused();
                    elsewhere = true;
                }
                None => {}
            }
            if tally.is_met() {
                return Ok(Ok(highest));
            }
            let Some((node, answer)) = answers.recv().await else { break };
            match answer.map(|bytes| decode::<Vote<R::Value>>(&bytes)) {
                Ok(Ok(answer)) => vote = Some(answer),
                other => {
                    tally.silent();
                    tracing::debug!(%node, ?other, "a node does not vote");
                }
            }
        }
        let held = tally.held() as usize;
        Ok(Err(match outbid == Ballot::default() {
            false => Round::Outbid(outbid),
            true if elsewhere => Round::Elsewhere(held),
            true => Round::TooFew(held),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ask(counter: u64, by: u64, value: Option<u64>) -> Ask<u64> {
        Ask { ballot: Ballot { counter, by }, version: 1, value, voters: 0, names: BTreeSet::new() }
    }

    #[test]
    fn what_is_known_to_be_decided_is_told_and_nothing_else_is_voted_for() {
        let known = Promise::decided(1, 7);
        assert_eq!(known.clone().vote(ask(9, 9, Some(8))), (Vote::Decided(7), None));
        let (vote, keep) = known.vote(Ask { version: 2, ..ask(1, 1, None) });
        assert_eq!((vote, keep.map(|promise| promise.version)), (Vote::Yes { accepted: None }, Some(2)));
    }

    #[test]
    fn what_is_taken_in_from_others_is_what_both_promised_and_the_highest_that_was_accepted() {
        let voted = |asks: &[Ask<u64>]| {
            let step = |promise: Promise<u64>, ask: &Ask<u64>| promise.clone().vote(ask.clone()).1.unwrap_or(promise);
            asks.iter().fold(Promise::default(), step)
        };
        let (one, other) = (voted(&[ask(1, 1, Some(7)), ask(5, 1, None)]), voted(&[ask(2, 1, Some(8))]));
        let both = one.clone().with(other.clone());
        assert_eq!(both, other.clone().with(one.clone()));
        assert_eq!(both.clone().vote(ask(4, 9, None)).0, Vote::No { promised: Ballot { counter: 5, by: 1 } });
        assert_eq!(both.vote(ask(6, 0, None)).0, Vote::Yes { accepted: Some((Ballot { counter: 2, by: 1 }, 8)) });
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
            let (Vote::Yes { accepted }, Some(promise)) = nodes[node].clone().vote(asked) else { continue };
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
