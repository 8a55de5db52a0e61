//! Agreement on the next map of a database: each version is decided once, by a majority of the members.
//!
//! One decision is a register of its own (single-decree Paxos): a proposer gets promises for its ballot from a
//! majority, then has a majority accept a map. Should an earlier proposer have had a map accepted by anybody who
//! promised, that one is proposed on, so that two maps of one version cannot both be decided. What nodes promised and
//! accepted is in their stores before they answer. A decided map is told to all nodes; one that missed it learns it
//! when it meets another (`gossip`), and from whoever refuses its calls because they are of an older map.
//!
//! A ballot carries the members that it counts. A node that counts others does not vote, so that a majority is one of
//! members who agree on who they are; and members change while a majority of them is there only.

use std::sync::Arc;

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::database::Database;
use crate::coordinator::message::{Ballot, BallotCall, CatalogueCall, DatabaseMap, Vote, decode, encode};
use crate::coordinator::peers::Urgency;
use crate::coordinator::quorum::{Tally, majority};
use crate::coordinator::record::{self, MapRecord, Record};
use crate::limits;
use crate::shard::ShardError;
use crate::storage::{StorageError, View as _, WriteView};
use serde::{Deserialize, Serialize};

/// What a node promised about the version after the one that it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Promise {
    version: u64,
    promised: Ballot,
    accepted: Option<(Ballot, MapRecord)>,
}

impl Promise {
    /// Answers a proposer, and what is to be kept of it; pure.
    fn vote(self, known: &MapRecord, call: BallotCall) -> (Vote, Option<Promise>) {
        if call.version <= known.version {
            return (Vote::Decided(known.clone()), None);
        }
        let mut own = match self.version {
            version if version > call.version => return (Vote::No { promised: self.promised }, None),
            version if version == call.version => self,
            _ => Promise { version: call.version, ..Promise::default() },
        };
        if call.ballot < own.promised {
            return (Vote::No { promised: own.promised }, None);
        }
        let accepted = own.accepted.clone();
        own.promised = call.ballot;
        if let Some(places) = call.places {
            own.accepted = Some((call.ballot, places));
        }
        (Vote::Yes { accepted }, Some(own))
    }
}

/// Why a map was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The database was deleted.
    Gone,
    /// Fewer than a majority of the members answered.
    NoMajority {
        /// How many did.
        answered: usize,
        /// How many members there are.
        members: usize,
    },
    /// What was asked for is not possible, or not any more. Carries why.
    Refused(String),
    /// Others changed the map, before this change or again and again; or behind it, when they had it decided for us.
    Contended,
    /// This node could not go over to the map.
    Own(ShardError),
}

impl From<ShardError> for MapError {
    fn from(error: ShardError) -> MapError {
        match error {
            ShardError::Dropped => MapError::Gone,
            error => MapError::Own(error),
        }
    }
}

impl From<String> for MapError {
    fn from(why: String) -> MapError {
        MapError::Refused(why)
    }
}

/// What a round came to.
enum Round {
    Decided(MapRecord),
    /// Another ballot was higher.
    Outbid(Ballot),
    /// Somebody knows of other members, or not of all.
    Elsewhere(usize),
    TooFew(usize),
}

impl Coordinator {
    /// Changes the map of a database: `change` makes the next one of what is decided, or says why not. On return it is
    /// decided and this node follows it.
    pub(super) async fn change_map(
        &self,
        database: &Arc<Database>,
        change: impl Fn(&MapRecord) -> Result<MapRecord, MapError>,
    ) -> Result<MapRecord, MapError> {
        // Drawn: two proposals of one node are rivals like any others.
        let mut ballot = Ballot { counter: 1, by: self.env().random_u64() };
        let (mut proposed, mut failed) = (None, MapError::Contended);
        for _ in 0..limits::MAP_ATTEMPTS {
            let known = database.map_record();
            if proposed.as_ref() == Some(&known) {
                // Another proposer met it and went on with it.
                return Ok(known);
            }
            let next = change(&known)?;
            assert_eq!(next.version, known.version + 1, "a map follows the one before it");
            match self.propose(database, ballot, proposed.insert(next)).await? {
                Round::Decided(places) => {
                    let is_own = proposed.as_ref() == Some(&places);
                    self.tell_map(database, &places);
                    database.follow(places.clone()).await?;
                    if is_own {
                        return Ok(places);
                    }
                }
                Round::Outbid(higher) => {
                    ballot.counter = higher.counter + 1;
                    let pause = 1 + self.env().random_u64() % limits::BALLOT_PAUSE_MS;
                    self.env().sleep(std::time::Duration::from_millis(pause)).await;
                    failed = MapError::Contended;
                }
                Round::Elsewhere(answered) => {
                    // News of members are on their way.
                    self.env().sleep(limits::MEMBERS_PAUSE).await;
                    failed = MapError::NoMajority { answered, members: self.context().member_names().len() };
                }
                Round::TooFew(answered) => {
                    return Err(MapError::NoMajority { answered, members: self.context().member_names().len() });
                }
            }
        }
        Err(failed)
    }

    /// Whether the members may be changed from here: a majority of them is there.
    ///
    /// # Errors
    /// [`MapError::NoMajority`]
    pub fn may_change_members(&self) -> Result<(), MapError> {
        let members = self.context().peers.members().into_iter().map(|peer| peer.name).collect();
        let answered = self.context().up_of(&members);
        match answered as u32 >= majority(members.len() as u32) {
            true => Ok(()),
            false => Err(MapError::NoMajority { answered, members: members.len() }),
        }
    }

    /// One attempt to have a map decided.
    async fn propose(&self, database: &Database, ballot: Ballot, next: &MapRecord) -> Result<Round, MapError> {
        let version = next.version;
        let (name, instance) = (database.name.clone(), database.instance().to_owned());
        let members = self.context().member_names();
        let ask = BallotCall { name, instance, ballot, version, places: None, members };
        let earlier = match self.poll(ask.clone()).await? {
            Ok(accepted) => accepted,
            Err(round) => return Ok(round),
        };
        let places = earlier.map_or_else(|| next.clone(), |(_, places)| places);
        match self.poll(BallotCall { places: Some(places.clone()), ..ask }).await? {
            Ok(_) => Ok(Round::Decided(places)),
            Err(round) => Ok(round),
        }
    }

    /// Asks all members; answers what was accepted before, once a majority agreed.
    async fn poll(&self, call: BallotCall) -> Result<Result<Option<(Ballot, MapRecord)>, Round>, MapError> {
        let others: Vec<Arc<str>> = call.members.iter().map(|name| name.as_str().into()).collect();
        let others: Vec<Arc<str>> = others.into_iter().filter(|name| *name != self.context().node).collect();
        let members = others.len() as u32 + 1;
        let mut tally = Tally::new(members, majority(members));
        let own = self.vote(call.clone()).await?;
        let mut answers = self.context().tell_all(&others, &CatalogueCall::Ballot(Box::new(call)), Urgency::Foreground);
        let (mut highest, mut outbid, mut elsewhere) = (None, Ballot::default(), false);
        let mut vote = Some(own);
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
                Some(Vote::Decided(places)) => return Ok(Err(Round::Decided(places))),
                Some(Vote::Unknown) => tally.refused(),
                Some(Vote::Elsewhere) => {
                    tally.refused();
                    elsewhere = true;
                }
                None => tally.silent(),
            }
            if tally.is_met() {
                return Ok(Ok(highest));
            }
            let Some((node, answer)) = answers.recv().await else { break };
            match answer.map(|bytes| decode::<Vote>(&bytes)) {
                Ok(Ok(answer)) => vote = Some(answer),
                other => tracing::debug!(%node, ?other, "a node does not vote about a map"),
            }
        }
        let held = tally.held() as usize;
        Ok(Err(match outbid == Ballot::default() {
            false => Round::Outbid(outbid),
            true if elsewhere => Round::Elsewhere(held),
            true => Round::TooFew(held),
        }))
    }

    /// This node's vote; durable before it is told.
    pub(super) async fn vote(&self, call: BallotCall) -> Result<Vote, ShardError> {
        let context = Arc::clone(self.context());
        let job = move |view: &mut WriteView<'_>| {
            // A node of before does not say whom it counts.
            if !call.members.is_empty() && call.members != context.member_names() {
                return Ok(Ok(Vote::Elsewhere));
            }
            let Some(bytes) = view.get(&record::key(&call.name))? else { return Ok(Ok(Vote::Unknown)) };
            let mut record = Record::decode(&bytes)?;
            let fits = call.places.as_ref().is_none_or(|places| places.check(record.q).is_ok());
            if record.instance != call.instance || !fits {
                return Ok(Ok(Vote::Unknown));
            }
            let alone = || vec![vec![context.node.to_string()]; record.shards.len()];
            record.by_range = Some(record.by_range.take().unwrap_or_else(alone));
            let key = record::ballot_key(&call.name, &call.instance);
            let damaged = |why| StorageError::Corrupt(format!("a promise about a map: {why}"));
            let promise = view.get(&key)?.map(|bytes| decode::<Promise>(&bytes).map_err(damaged)).transpose()?;
            let (vote, keep) = promise.unwrap_or_default().vote(&record.places(), call);
            if let Some(promise) = keep {
                view.put(key, encode(&promise).to_vec());
            }
            Ok(Ok::<Vote, ShardError>(vote))
        };
        self.storage().committer().submit(job).await?
    }

    /// Tells all nodes of a map that is decided; those that are away learn it when they return.
    pub(super) fn tell_map(&self, database: &Database, places: &MapRecord) {
        let mut record = database.known.shared(&self.context().node);
        record.set_places(places.clone());
        record.shards = vec![0; record.by_range.as_ref().map_or(record.shards.len(), Vec::len)];
        let call = CatalogueCall::Set(Box::new(DatabaseMap { name: database.name.clone(), record }));
        drop(self.context().tell_all(&self.context().others(), &call, Urgency::Foreground));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn places(version: u64, n: u32) -> MapRecord {
        MapRecord { version, moved: 0, n, wanted: 0, splits: Vec::new(), by_range: None, moves: Vec::new() }
    }

    fn call(counter: u64, by: u64, value: Option<MapRecord>) -> BallotCall {
        let (ballot, members) = (Ballot { counter, by }, BTreeSet::new());
        BallotCall { name: "d".to_owned(), instance: "i".to_owned(), ballot, version: 1, places: value, members }
    }

    #[test]
    fn a_version_that_is_known_is_told() {
        let (vote, keep) = Promise::default().vote(&places(1, 1), call(1, 1, None));
        assert_eq!((vote, keep), (Vote::Decided(places(1, 1)), None));
    }

    /// A proposer: who promised it what, then what it has others accept.
    #[derive(Default)]
    struct Proposer {
        promises: BTreeMap<usize, Option<(Ballot, MapRecord)>>,
        value: Option<MapRecord>,
    }

    /// Proposers whose steps at three nodes happen in any order, some never; answers all that was decided.
    fn race(order: Vec<(usize, usize)>) -> Vec<MapRecord> {
        let mut nodes = vec![Promise::default(); 3];
        let mut proposers: Vec<Proposer> = (0..3).map(|_| Proposer::default()).collect();
        let mut decided = Vec::new();
        for (who, node) in order {
            let proposer = &mut proposers[who];
            let asked = call(1, who as u64, proposer.value.clone());
            let (Vote::Yes { accepted }, Some(promise)) = nodes[node].clone().vote(&places(0, 0), asked) else {
                continue;
            };
            nodes[node] = promise.clone();
            match &proposer.value {
                Some(value) => {
                    let held = nodes.iter().filter(|node| node.accepted == promise.accepted).count();
                    decided.extend((held >= 2).then(|| value.clone()));
                }
                None => drop(proposer.promises.insert(node, accepted)),
            }
            if proposer.value.is_none() && proposer.promises.len() >= 2 {
                let earlier = proposer.promises.values().flatten().max_by_key(|(ballot, _)| *ballot);
                proposer.value = Some(earlier.map_or_else(|| places(1, who as u32), |(_, places)| places.clone()));
            }
        }
        decided
    }

    proptest! {
        #[test]
        fn no_two_maps_of_a_version_are_decided(
            order in prop::collection::vec((0_usize..3, 0_usize..3), 0..40),
        ) {
            let decided = race(order);
            prop_assert!(decided.windows(2).all(|pair| pair[0] == pair[1]), "{decided:?}");
        }
    }
}
