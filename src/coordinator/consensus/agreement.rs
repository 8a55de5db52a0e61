//! Agreement on the next map of a database: each version is decided once, by a majority of the members.
//!
//! Each version is a register of its own (`ballots`); the voters are the members that were agreed on last (`voters`). A
//! decided map is sent to all nodes. A node that missed it learns it when it meets another node (`gossip`), or from a
//! node that refuses its calls because they name an older map. A node that is told of a map stores it before it goes
//! over to it, which may take long: from then on it votes for no other map of that version.

use std::sync::Arc;

use crate::coordinator::consensus::ballots::{Register, Round};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::message::{decode, encode};
use crate::coordinator::replica::node_calls::{BallotCall, CatalogueCall, DatabaseMap};
use crate::coordinator::replica::seat::Seat;
use crate::coordinator::topology::ballot::{Ask, Ballot, Promise, Vote};
use crate::coordinator::topology::peers::Urgency;
use crate::coordinator::topology::quorum::majority;
use crate::coordinator::topology::record::{self, MapRecord, Record};
use crate::limits;
use crate::shard::ShardError;
use crate::storage::{StorageError, View as _, WriteView};

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

/// The maps of a database.
struct Maps<'d>(&'d Arc<Database>);

impl Register for Maps<'_> {
    type Value = MapRecord;

    fn call(&self, ask: Ask<MapRecord>) -> CatalogueCall {
        CatalogueCall::Ballot(Box::new(self.ballot_call(ask)))
    }

    async fn vote(&self, coordinator: &Coordinator, ask: Ask<MapRecord>) -> Result<Vote<MapRecord>, ShardError> {
        coordinator.vote(self.ballot_call(ask)).await
    }
}

impl Maps<'_> {
    fn ballot_call(&self, ask: Ask<MapRecord>) -> BallotCall {
        BallotCall { name: self.0.name.clone(), instance: self.0.instance().to_owned(), ask }
    }
}

impl Coordinator {
    /// Changes the map of a database: `change` makes the next one of what is decided, or says why not. On return it is
    /// decided and this node follows it.
    pub(in crate::coordinator) async fn change_map(
        &self,
        database: &Arc<Database>,
        change: impl Fn(&MapRecord) -> Result<MapRecord, MapError>,
    ) -> Result<MapRecord, MapError> {
        // Drawn: two proposals of one node are rivals like any others.
        let mut ballot = Ballot { counter: 0, by: self.env().random_u64() };
        let (mut proposed, mut failed) = (None, MapError::Contended);
        for _ in 0..limits::MAP_ATTEMPTS {
            let known = database.map_record();
            if proposed.as_ref() == Some(&known) {
                // Another proposer met it and went on with it.
                return Ok(known);
            }
            let next = change(&known)?;
            // A ballot stands for one map: where an attempt came to nothing somebody may have accepted it all the same.
            ballot.counter += 1;
            assert_eq!(next.version, known.version + 1, "a map follows the one before it");
            let electorate = self.electorate();
            let members = electorate.names.len();
            let value = (next.version, Some(known), &*proposed.insert(next));
            match self.propose(&Maps(database), electorate, ballot, value).await? {
                Round::Decided(places) => {
                    let is_own = proposed.as_ref() == Some(&places);
                    self.tell_map(database, &places);
                    database.follow(places.clone()).await?;
                    if is_own {
                        return Ok(places);
                    }
                }
                Round::Outbid(higher) => {
                    ballot.counter = higher.counter;
                    let pause = 1 + self.env().random_u64() % limits::BALLOT_PAUSE_MS;
                    self.env().sleep(std::time::Duration::from_millis(pause)).await;
                    failed = MapError::Contended;
                }
                Round::Elsewhere(answered) => {
                    // News of members are on their way.
                    self.exchange_voters().await;
                    self.env().sleep(limits::MEMBERS_PAUSE).await;
                    failed = MapError::NoMajority { answered, members };
                }
                Round::TooFew(answered) => return Err(MapError::NoMajority { answered, members }),
            }
        }
        Err(failed)
    }

    /// Whether the members may be changed from here: a majority of the voters is in reach.
    ///
    /// # Errors
    /// [`MapError::NoMajority`]
    pub fn may_change_members(&self) -> Result<(), MapError> {
        let voters = self.electorate().names;
        let answered = self.context().up_of(&voters.iter().map(|name| name.as_str().into()).collect());
        match answered as u32 >= majority(voters.len() as u32) {
            true => Ok(()),
            false => Err(MapError::NoMajority { answered, members: voters.len() }),
        }
    }

    /// This node's vote; durable before it is told.
    pub(in crate::coordinator) async fn vote(&self, call: BallotCall) -> Result<Vote<MapRecord>, ShardError> {
        let context = Arc::clone(self.context());
        let job = move |view: &mut WriteView<'_>| {
            let BallotCall { name, instance, ask } = call;
            if !Seat::read(view)?.counts(&ask, || context.member_names()) {
                return Ok(Ok(Vote::Elsewhere));
            }
            let Some(bytes) = view.get(&record::key(&name))? else { return Ok(Ok(Vote::Unknown)) };
            let mut record = Record::decode(&bytes)?;
            let follows = ask.before.as_ref().is_none_or(|before| before.version + 1 == ask.version);
            let fits = follows && ask.value.iter().chain(&ask.before).all(|places| places.check(record.q).is_ok());
            if record.instance != instance || !fits {
                return Ok(Ok(Vote::Unknown));
            }
            let alone = || vec![vec![context.node.to_string()]; record.shards.len()];
            record.by_range = Some(record.by_range.take().unwrap_or_else(alone));
            if ask.version <= record.version {
                return Ok(Ok(Vote::Decided(record.places())));
            }
            let key = record::ballot_key(&name, &instance);
            let (vote, keep) = stored_promise(view, &key)?.vote(ask, record.version);
            if let Some(promise) = keep {
                view.put(key, encode(&promise).to_vec());
            }
            Ok(Ok::<_, ShardError>(vote))
        };
        self.storage().committer().submit(job).await?
    }

    /// Keeps a map that is decided, until this node has gone over to it; durable on return.
    pub(in crate::coordinator) async fn keep_decided(
        &self,
        name: &str,
        instance: &str,
        places: MapRecord,
    ) -> Result<(), ShardError> {
        let promise = Promise::decided(places.version, places);
        self.take_promises(vec![(name.to_owned(), instance.to_owned(), promise)]).await
    }

    /// Applies what other nodes promised and accepted, of databases that were not deleted; durable on return.
    pub(in crate::coordinator) async fn take_promises(
        &self,
        promises: Vec<(String, String, Promise<MapRecord>)>,
    ) -> Result<(), ShardError> {
        let job = move |view: &mut WriteView<'_>| {
            for (name, instance, theirs) in promises {
                let key = record::ballot_key(&name, &instance);
                let own = stored_promise(view, &key)?;
                let both = own.clone().with(theirs);
                if both != own && view.get(&record::tomb_key(&name, &instance))?.is_none() {
                    view.put(key, encode(&both).to_vec());
                }
            }
            Ok(Ok::<(), ShardError>(()))
        };
        self.storage().committer().submit(job).await?
    }

    /// Tells all nodes of a map that is decided; those that are away learn it when they return.
    pub(in crate::coordinator) fn tell_map(&self, database: &Arc<Database>, places: &MapRecord) {
        let mut record = database.known.shared(&self.context().node);
        record.set_places(places.clone());
        record.shards = vec![0; record.by_range.as_ref().map_or(record.shards.len(), Vec::len)];
        let call = CatalogueCall::Set(Box::new(DatabaseMap { name: database.name.clone(), record }));
        drop(self.context().tell_all(&self.context().others(), &call, Urgency::Foreground));
    }
}

/// What this node promised about the next map of a database.
fn stored_promise(view: &WriteView<'_>, key: &[u8]) -> Result<Promise<MapRecord>, StorageError> {
    view.get(key)?.map_or(Ok(Promise::default()), |bytes| read_promise(&bytes))
}

/// Reads a promise as it is stored.
pub(in crate::coordinator) fn read_promise(bytes: &[u8]) -> Result<Promise<MapRecord>, StorageError> {
    decode(bytes).map_err(|why| StorageError::Corrupt(format!("a promise about a map: {why}")))
}
