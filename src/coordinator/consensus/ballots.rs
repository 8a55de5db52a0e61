//! Registers that are decided once for each version: the questions of proposers, and the answers of voters.
//!
//! One decision is a single-decree Paxos: a proposer gets promises for its ballot from a majority of the voters, then
//! has a majority accept a value. If one of the nodes that promised had accepted the value of an earlier proposer, that
//! value is proposed again, so that two values of one version cannot both be decided. A node stores what it promised
//! and accepted before it answers.
//!
//! A proposer knows that the version before the one it asks about is decided, and sends that version: a voter keeps it
//! beside its vote until it has gone over to it. So a node can tell what is decided before the version that it voted
//! for, and any majority of the voters can continue from there, whichever other nodes are lost. A node that is told of
//! a later version without the one before it does not vote.
//!
//! A proposer names the set of voters that it counts; a node that counts another set does not vote. When the voters
//! change, the new ones first apply what the old ones promised and accepted (`voters`): [`Promise::with`].

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::message::decode;
use crate::coordinator::replica::node_calls::CatalogueCall;
use crate::coordinator::topology::ballot::{Ask, Ballot, Electorate, Vote};
use crate::coordinator::topology::peers::Urgency;
use crate::coordinator::topology::quorum::Tally;
use crate::shard::ShardError;

/// What one attempt to have a value decided came to.
#[derive(Debug)]
pub(in crate::coordinator) enum Round<V> {
    Decided(V),
    /// Another ballot was higher.
    Outbid(Ballot),
    /// Somebody counts other votes. Carries how many voted.
    Elsewhere(usize),
    /// Carries how many voted.
    TooFew(usize),
}

/// Something of which each version is decided once.
pub(in crate::coordinator) trait Register: Sync {
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
    pub(in crate::coordinator) async fn propose<R: Register>(
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
