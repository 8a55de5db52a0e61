//! The set of databases as all nodes of the cluster share it.
//!
//! Every node keeps the record of every database. A creation or deletion is sent to all nodes in reach; a node that was
//! away compares its records with those of the others when it meets them. Each database has an instance id. A deleted
//! instance leaves a mark, so that it does not come back, and a later database of the same name is not affected by that
//! mark. Where two instances of one name meet, the older one keeps the name, and the documents of the other are written
//! into it before its shards go (`superseded`). Otherwise only a client's deletion ends an instance; a creation that
//! finds an older instance does not end it, because it may have been written to meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::message::{decode, encode};
use crate::coordinator::replica::node_calls::{CatalogueCall, Created, DatabaseMap, EntryName};
use crate::coordinator::replica::single_flight::SingleFlight;
use crate::coordinator::topology::error::DatabaseError;
use crate::coordinator::topology::peers::{Answer, CallError, Urgency};
use crate::coordinator::topology::quorum::{Written, majority};
use crate::coordinator::topology::record::{self, Known, MapRecord, Record};
use crate::coordinator::write::WriteOperations;
use crate::limits;
use crate::shard::ShardError;
use crate::wire::message::Message;
use crate::world::BoxFuture;
use crate::world::buggify::{Mutation, mutated};

/// Answers calls about the set of databases.
pub(in crate::coordinator) struct CatalogueService(pub Weak<Coordinator>);

impl Answer for CatalogueService {
    fn answer(&self, from: String, body: Bytes, _: Duration) -> BoxFuture<'static, Result<Message, String>> {
        let coordinator = self.0.upgrade();
        Box::pin(async move {
            let coordinator = coordinator.ok_or("this node stops")?;
            let answered = coordinator.serve_catalogue(&from, decode(&body)?).await;
            answered.map(Message::from).map_err(|error| format!("{error:?}"))
        })
    }
}

/// Whether a database wins the name over another instance.
fn beats(record: &Record, other: &Known) -> bool {
    (record.created_s, &record.instance) < (other.created_s, &other.instance)
}

/// What the settings and places of a database are told apart by.
fn digest_of(record: &Record) -> [u8; 16] {
    let hash = blake3::hash(&encode(&(record.places(), &record.settings.stamps)));
    // Invariant: a hash has 32 bytes.
    hash.as_bytes()[..16].try_into().expect("sixteen bytes")
}

impl Coordinator {
    async fn serve_catalogue(&self, from: &str, call: CatalogueCall) -> Result<Bytes, DatabaseError> {
        let context = self.context();
        Ok(match call {
            CatalogueCall::Create(map) => encode(&self.adopt(&map.name, map.record).await?),
            CatalogueCall::Delete { name, instance } => encode(&!self.remove(&name, Some(&instance)).await?.is_empty()),
            CatalogueCall::Set(map) => encode(&(self.adopt(&map.name, map.record).await? == Created::Done)),
            CatalogueCall::State(state) => {
                context.set_state(from, Some(state));
                encode(&context.own_state())
            }
            CatalogueCall::Digest => encode(&self.digest().await?),
            CatalogueCall::Entries { after, limit } => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(limits::CATALOGUE_PAGE);
                let rest = self.entries().await?.into_iter().filter(|entry| {
                    after.as_ref().is_none_or(|after| (&entry.name, &entry.instance) > (&after.0, &after.1))
                });
                encode(&rest.take(limit).collect::<Vec<EntryName>>())
            }
            CatalogueCall::Learn => {
                self.learn_later(from);
                encode(&())
            }
            CatalogueCall::Maps(names) => encode(&self.maps(names)),
            CatalogueCall::RolledUp(after, limit) => encode(&self.replicas_rolled_up(from, after, limit).await),
            CatalogueCall::Replicas { after, last } => encode(&self.replicas_behind(from, after, last).await),
            CatalogueCall::Pull(name) => {
                context.pull_soon(&name);
                encode(&())
            }
            CatalogueCall::Ballot(call) => encode(&self.vote(*call).await?),
            CatalogueCall::Voters(call) => self.serve_voters(*call).await?,
            CatalogueCall::Jobs(call) => encode(&self.serve_jobs(call).await?),
            CatalogueCall::Rebalance(call) => encode(&self.serve_rebalance(call)),
        })
    }

    /// Those of the first names, as many as one answer takes, one at least.
    fn maps(&self, names: Vec<String>) -> Vec<DatabaseMap> {
        let own = &self.context().node;
        let map = |name: String| {
            let record = self.known(&name)?.shared(own);
            Some(DatabaseMap { name, record })
        };
        let mut bytes = 0;
        let fits = |map: &DatabaseMap| {
            let is_first = bytes == 0;
            bytes += encode(map).len();
            is_first || bytes <= limits::LISTED_BYTES
        };
        names.into_iter().filter_map(map).take_while(fits).collect()
    }

    /// Applies a database that another node knows.
    pub(in crate::coordinator) async fn adopt(&self, name: &str, record: Record) -> Result<Created, DatabaseError> {
        record.check().map_err(|why| ShardError::NotExecuted(format!("no record of {name}: {why}")))?;
        loop {
            let done = match self.known(name) {
                None => self.install(name, record.clone(), None).await?,
                Some(known) if known.instance == record.instance => {
                    if !self.settle_fork(name, &known, &record).await? {
                        self.follow_later(name, &known, record.places()).await?;
                    }
                    self.adopt_settings(name, record).await?;
                    return Ok(Created::Done);
                }
                Some(known) if beats(&record, &known) => {
                    tracing::warn!(database = name, "two databases of this name meet: the older one takes its place");
                    let done = self.install(name, record.clone(), Some(known.instance.clone())).await?;
                    if done == Created::Done {
                        // This node is the last to become the primary until its replicas are filled.
                        self.tell_state();
                        // The one that has the older one may be gone before the others have met it.
                        self.context().others().into_iter().for_each(|node| self.remind(node));
                    }
                    done
                }
                Some(_) => return Ok(Created::Exists),
            };
            // Another change of the name came in between: look again.
            if done != Created::Exists {
                return Ok(done);
            }
        }
    }

    /// Goes over to a map that another node told of, in the background: dividing replicas may take long. The map is
    /// kept on return.
    async fn follow_later(&self, name: &str, known: &Known, places: MapRecord) -> Result<(), ShardError> {
        let Ok(database) = self.database(name) else { return Ok(()) };
        if places.version <= known.placed().version || database.instance() != known.instance {
            return Ok(());
        }
        self.keep_decided(name, &known.instance, places.clone()).await?;
        self.env().spawn(async move {
            match database.follow(places).await {
                Ok(()) => database.context.pull_soon(&database.name),
                Err(ShardError::Dropped) => {}
                Err(error) => tracing::warn!(database = database.name, %error, "this node does not follow a map yet"),
            }
        });
        Ok(())
    }

    async fn adopt_settings(&self, name: &str, record: Record) -> Result<(), DatabaseError> {
        let Ok(database) = self.database(name) else { return Ok(()) };
        let stamps = record.settings.stamps;
        let own = database.known.settings().stamps;
        let is_news = stamps.any_above(&own);
        if database.instance() == record.instance && is_news && !mutated(Mutation::SettingsNotAdopted) {
            let changed = database.settings().change_record(move |settings| settings.merge(record.settings)).await;
            if let Err(crate::coordinator::topology::error::SettingError::Unavailable(error)) = changed {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Sends a new database to the other nodes that are there. Where one of them knows an older database of that name,
    /// this one becomes part of it: it may have been written to, here or there. It has replicas on those only that were
    /// known when it was drafted, maybe none.
    pub(in crate::coordinator) async fn create_elsewhere(
        &self,
        name: &str,
        instance: &str,
    ) -> Result<Written, DatabaseError> {
        let context = self.context();
        let others = context.others();
        let record = match self.known(name) {
            Some(known) if known.instance == instance && !others.is_empty() => known.shared(&context.node),
            // It is gone again, or nobody else is to know of it.
            _ => return Ok(Written::Quorum),
        };
        let by_range = record.by_range.clone().unwrap_or_default();
        let map = DatabaseMap { name: name.to_owned(), record };
        let mut answers = context.tell_all(&others, &CatalogueCall::Create(Box::new(map)), Urgency::Foreground);
        let (mut done, mut older) = (vec![Arc::clone(&context.node)], Vec::new());
        while let Some((node, answer)) = answers.recv().await {
            match answer.map(|bytes| decode::<Created>(&bytes)) {
                Ok(Ok(Created::Done)) => done.push(node),
                Ok(Ok(Created::Exists)) => older.push(node),
                other => {
                    tracing::info!(%node, ?other, "a node does not know of a new database yet");
                    self.remind(node);
                }
            }
        }
        for node in &older {
            if let Err(error) = self.learn_map(name, node).await {
                tracing::info!(%node, %error, "a node knows an older database of a name, and did not tell of it yet");
                self.learn_later(node);
            }
        }
        if !older.is_empty() && self.known(name).is_some_and(|known| known.instance != instance) {
            return Err(DatabaseError::Exists);
        }
        let held = |nodes: &Vec<String>| nodes.iter().filter(|node| done.iter().any(|done| **done == ***node)).count();
        let met = by_range.iter().all(|nodes| held(nodes) as u32 >= majority(nodes.len() as u32));
        Ok(if met { Written::Quorum } else { Written::Accepted })
    }

    /// Tells the other nodes of a deletion; those that are away hear of it when they return.
    pub(in crate::coordinator) async fn delete_elsewhere(&self, name: &str, instance: &str) -> Written {
        let others = self.context().others();
        let call = CatalogueCall::Delete { name: name.to_owned(), instance: instance.to_owned() };
        let mut answers = self.context().tell_all(&others, &call, Urgency::Foreground);
        let mut written = Written::Quorum;
        while let Some((node, answer)) = answers.recv().await {
            if answer.is_err() {
                written = Written::Accepted;
                self.remind(node);
            }
        }
        written
    }

    /// Has a node that may have missed a change of the set of databases look for it; asks again as long as it is there.
    /// One that is not there is asked when it is met.
    pub(in crate::coordinator) fn remind(&self, node: Arc<str>) {
        let ask = |coordinator: Coordinator, node: Arc<str>| async move {
            coordinator.ask_catalogue::<()>(&node, &CatalogueCall::Learn).await
        };
        self.until_done(|context| &context.reminding, node, ask);
    }

    /// Applies what another node knows of databases, in the background.
    fn learn_later(&self, node: &str) {
        let learn = |coordinator: Coordinator, node: Arc<str>| async move { coordinator.learn_from(&node).await };
        self.until_done(|context| &context.learning, node.into(), learn);
    }

    /// Does something with a node until it succeeds, as long as the node is there. Where it is being done already it is
    /// done once more afterwards, however often it was asked for.
    fn until_done<F>(
        &self,
        single_flight: fn(&Context) -> &SingleFlight,
        node: Arc<str>,
        step: impl Fn(Coordinator, Arc<str>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), LearnError>> + Send + 'static,
    {
        if !single_flight(self.context()).begin(&node) {
            return;
        }
        let coordinator = self.clone();
        self.env().spawn(async move {
            let context = coordinator.context();
            loop {
                let mut is_over = !context.peers.is_up(&node);
                if !is_over {
                    match step(coordinator.clone(), Arc::clone(&node)).await {
                        Ok(()) => is_over = true,
                        Err(error) => {
                            tracing::info!(%node, %error, "a node and this one may not know the same databases yet");
                            coordinator.env().sleep(limits::MEET_PAUSE).await;
                        }
                    }
                }
                if single_flight(context).end(&node, is_over) {
                    return;
                }
            }
        });
    }

    /// All databases and marks of deleted ones, in order.
    async fn entries(&self) -> Result<Vec<EntryName>, DatabaseError> {
        let own = &self.context().node;
        let live = |(name, known): (String, Arc<Known>)| EntryName {
            name,
            instance: known.instance.clone(),
            deleted: false,
            digest: digest_of(&known.shared(own)),
        };
        let mut out: Vec<EntryName> = self.all_known().into_iter().map(live).collect();
        out.extend(self.tombs().await?);
        out.sort_by(|a, b| (&a.name, &a.instance).cmp(&(&b.name, &b.instance)));
        Ok(out)
    }

    /// The marks of deleted databases. Of those that became part of another one here nobody is told: a node that has
    /// one still is to set it aside itself.
    async fn tombs(&self) -> Result<Vec<EntryName>, ShardError> {
        let rows = self.context().rows(&record::tomb_prefix()).await?;
        Ok(rows.iter().filter(|(_, mark)| mark == record::DELETED).filter_map(|(key, _)| tomb(key)).collect())
    }

    async fn digest(&self) -> Result<[u8; 32], DatabaseError> {
        let mut hash = blake3::Hasher::new();
        for entry in self.entries().await? {
            hash.update(&encode(&entry));
        }
        Ok(hash.finalize().into())
    }

    /// Applies what another node knows of databases.
    pub(in crate::coordinator) async fn learn_from(&self, node: &str) -> Result<(), LearnError> {
        let theirs: [u8; 32] = self.ask_catalogue(node, &CatalogueCall::Digest).await?;
        if theirs == self.digest().await? {
            return Ok(());
        }
        let own: BTreeMap<(String, String), EntryName> =
            self.entries().await?.into_iter().map(|e| ((e.name.clone(), e.instance.clone()), e)).collect();
        let mut after = None;
        loop {
            let limit = limits::CATALOGUE_PAGE as u64;
            let page: Vec<EntryName> = self.ask_catalogue(node, &CatalogueCall::Entries { after, limit }).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.name.clone(), last.instance.clone()));
            let mut wanted = Vec::new();
            for entry in page {
                let known = own.get(&(entry.name.clone(), entry.instance.clone()));
                match known {
                    Some(known) if *known == entry || known.deleted => {}
                    _ if entry.deleted => drop(self.remove(&entry.name, Some(&entry.instance)).await?),
                    _ => wanted.push(entry.name),
                }
            }
            self.learn_maps(node, &wanted).await?;
        }
    }

    /// Applies the maps of some databases; none of those that are not there any more.
    async fn learn_maps(&self, node: &str, mut names: &[String]) -> Result<(), LearnError> {
        while !names.is_empty() {
            let asked = &names[..names.len().min(limits::STEP_ROWS)];
            let maps: Vec<DatabaseMap> = self.ask_catalogue(node, &CatalogueCall::Maps(asked.to_vec())).await?;
            // Those behind the last one are gone, or did not fit into the answer.
            let told = maps.last().and_then(|last| asked.iter().position(|name| *name == last.name));
            for map in maps {
                self.adopt(&map.name, map.record).await?;
            }
            names = &names[told.map_or(asked.len(), |at| at + 1)..];
        }
        Ok(())
    }

    /// Applies the map of a database as another node knows it.
    pub(in crate::coordinator) async fn learn_map(&self, name: &str, node: &str) -> Result<(), LearnError> {
        let maps: Vec<DatabaseMap> = self.ask_catalogue(node, &CatalogueCall::Maps(vec![name.to_owned()])).await?;
        for map in maps {
            self.adopt(&map.name, map.record).await?;
        }
        Ok(())
    }

    /// Asks another node about the set of databases.
    pub(in crate::coordinator) async fn ask_catalogue<T: serde::de::DeserializeOwned>(
        &self,
        node: &str,
        call: &CatalogueCall,
    ) -> Result<T, LearnError> {
        let answer = self.context().call_catalogue(node, encode(call), Urgency::Background).await;
        decode(&answer.map_err(LearnError::Call)?).map_err(LearnError::Malformed)
    }
}

/// Why nothing more was learned from a node.
#[derive(Debug)]
pub(in crate::coordinator) enum LearnError {
    /// It did not answer.
    Call(CallError),
    /// Its answer cannot be read.
    Malformed(String),
    /// This node could not take it in.
    Own(DatabaseError),
    /// What it holds of a database could not be compared, or applied.
    Database(String, ShardError),
}

impl std::fmt::Display for LearnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LearnError::Call(CallError::NotExecuted(why) | CallError::Indeterminate(why))
            | LearnError::Malformed(why) => f.write_str(why),
            LearnError::Own(error) => write!(f, "{error:?}"),
            LearnError::Database(name, error) => write!(f, "{name}: {error}"),
        }
    }
}

impl From<DatabaseError> for LearnError {
    fn from(error: DatabaseError) -> Self {
        LearnError::Own(error)
    }
}

/// The mark that a key names.
fn tomb(key: &[u8]) -> Option<EntryName> {
    let (name, instance) = record::instance_in(key, &record::tomb_prefix())?;
    Some(EntryName { name, instance, deleted: true, digest: [0; 16] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_often_a_node_is_to_be_asked_one_task_does_it_and_once_more_afterwards() {
        let (single_flight, node): (SingleFlight, Arc<str>) = (SingleFlight::default(), "n@h".into());
        assert!(single_flight.begin(&node));
        (0..3).for_each(|_| assert!(!single_flight.begin(&node)));
        assert!(!single_flight.end(&node, true), "it was asked for meanwhile");
        assert!(!single_flight.end(&node, false), "it failed");
        assert!(single_flight.end(&node, true) && single_flight.begin(&node));
    }
}
