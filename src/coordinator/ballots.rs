//! Registers that are decided once for each version: what proposers ask, and what voters answer.
//!
//! One decision is a single-decree Paxos: a proposer gets promises for its ballot from enough of those who vote, then
//! has as many accept a value. Should an earlier proposer have had a value accepted by anybody who promised, that one
//! is proposed on, so that two values of one version cannot both be decided. What a node promised and accepted is in
//! its store before it answers.
//!
//! A proposer knows that the version before the one it asks about is decided, and says what it is: a node that votes
//! keeps that beside its vote until it has gone over to it. So whatever a node voted for, it can tell what is decided
//! before that, and any majority of those who vote can go on from there whoever else is lost. A node that is told of a
//! later version without the one before it does not vote.
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
pub(super) enum Vote<V> {
    /// Promised, or accepted. Carries what was accepted before with the highest ballot.
    Yes { accepted: Option<(Ballot, V)> },
    /// A higher ballot was promised to somebody else.
    No { promised: Ballot },
    /// The version is decided: this is the value of it, or of a later one.
    Decided(V),
    /// There is no such register here, or it is not known what the version before the one asked about is.
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

    /// This with what another node promised and accepted: whoever asks from now on is told of both.
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
    /// One attempt to have a value decided, `next` for a version of which `before` is the one before it.
    pub(super) async fn propose<R: Register>(
        &self,
        register: &R,
        electorate: Electorate,
        ballot: Ballot,
        (version, before, next): (u64, Option<R::Value>, &R::Value),
    ) -> Result<Round<R::Value>, ShardError> {
        let Electorate { voters, names, needed } = electorate;
        let ask = Ask { ballot, version, value: None, before, voters, names };
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
