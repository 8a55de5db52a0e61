//! Members of the cluster: the documents of `_nodes`, which every node stores and nodes send to each other.
//!
//! A record is a document with a linear history. Of two versions the one with the higher revision counts, so that all
//! nodes that heard of the same versions agree, whatever their order. A removed member stays as a tombstone, so that a
//! node that had not heard of the removal cannot bring it back. Beside the document a record carries what nodes find
//! out by themselves: whether the member ever answered a handshake, the address that it told last, and its uuid.
//! Promises: a change that was answered is durable.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

use super::api::{Member, NodeName};
use super::uuid::Origin;
use crate::document::draft::PreparedBody;
use crate::document::json::{self, Object, Value};
use crate::document::revision::Revision;
use crate::limits;
use crate::storage::{CommitError, Direction, KeyRange, Storage, StorageError, View, WriteView};
use crate::world::Env;

/// The reserved shard number below which members live.
const SHARD: u64 = 2;

/// The key prefix of a kind of record.
pub(super) fn prefix(kind: u8) -> Vec<u8> {
    [&SHARD.to_be_bytes()[..], &[kind]].concat()
}

fn key(name: &str) -> Vec<u8> {
    [&prefix(b'm')[..], name.as_bytes()].concat()
}

/// A member as it is stored and spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The document's revision.
    pub rev: String,
    /// Whether the member was removed.
    #[serde(default)]
    pub deleted: bool,
    /// The document's JSON text without `_id` and `_rev`.
    pub body: String,
    /// Whether a handshake with the member ever succeeded.
    #[serde(default)]
    pub joined: bool,
    /// Where the member says that it is reached, and how often it said so: the last word counts.
    #[serde(default)]
    pub contact: Contact,
    /// The member's own uuid, as it told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// An address that a node told of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// `host:port`; empty: unknown.
    pub address: String,
    /// Counts the changes; made by the node itself.
    pub count: u64,
}

/// Why a document was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberError {
    /// The revision given is not the current one.
    Conflict,
    /// There is no such document; whether it was removed.
    NotFound {
        /// It was there once.
        deleted: bool,
    },
    /// No more members fit, or the name is too long.
    TooMany,
    /// The store failed.
    Storage(String),
}

impl std::fmt::Display for MemberError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemberError::Conflict => f.write_str("the revision given is not the current one"),
            MemberError::NotFound { .. } => f.write_str("there is no such member"),
            MemberError::TooMany => f.write_str("a cluster has a largest size, and a name a largest length"),
            MemberError::Storage(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for MemberError {}

impl From<CommitError> for MemberError {
    fn from(error: CommitError) -> Self {
        MemberError::Storage(error.to_string())
    }
}

/// All records by name.
pub type Records = BTreeMap<String, Record>;

impl Record {
    /// A first or following revision of a document.
    fn next(before: Option<&Record>, body: &Object, deleted: bool) -> Record {
        let parent = before.and_then(|record| Revision::parse(&record.rev).ok());
        let rev = PreparedBody::new(body).revision(deleted, parent.as_ref(), &[]);
        let same = before.filter(|record| !record.deleted && !deleted);
        Record {
            rev: rev.to_string(),
            deleted,
            body: String::from_utf8_lossy(&body.to_vec()).into_owned(),
            joined: same.is_some_and(|record| record.joined),
            contact: before.map(|record| record.contact.clone()).unwrap_or_default(),
            origin: before.and_then(|record| record.origin.clone()),
        }
    }

    /// The first revision of an empty document.
    pub(super) fn fresh() -> Record {
        Record::next(None, &Object::new(), false)
    }

    /// The document's fields.
    pub fn body(&self) -> Object {
        match json::parse(self.body.as_bytes()) {
            Ok(Value::Object(object)) => object,
            _ => Object::new(),
        }
    }

    fn member(&self, name: &str) -> Member {
        let body = self.body();
        let text = |field: &str| body.get(field).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
        let told = Some(self.contact.address.clone()).filter(|address| !address.is_empty());
        Member { name: name.into(), zone: text("zone"), address: text("address").or(told), joined: self.joined }
    }
}

/// What two nodes know of one member, put together. Commutative, associative, idempotent.
fn merged(mine: &Record, theirs: &Record) -> Record {
    let stamp = |record: &Record| (Revision::parse(&record.rev).ok(), record.deleted, record.body.clone());
    let (ours, other) = (stamp(mine), stamp(theirs));
    let mut out = if other > ours { theirs.clone() } else { mine.clone() };
    if ours == other {
        out.joined = mine.joined || theirs.joined;
    }
    let contact = |record: &Record| (record.contact.count, record.contact.address.clone());
    out.origin = [mine, theirs].into_iter().filter_map(|record| record.origin.clone()).min();
    out.contact = if contact(theirs) > contact(mine) { theirs.contact.clone() } else { mine.contact.clone() };
    out
}

/// What changes in `mine` when `theirs` are heard of; nonsense is left out.
fn news(mine: &Records, theirs: &Records) -> Records {
    let mut out = Records::new();
    for (name, record) in theirs {
        let fits = Revision::parse(&record.rev).is_ok() && check_name(name) && record.body.len() <= BODY_BYTES;
        if !fits || (!mine.contains_key(name) && mine.len() + out.len() >= limits::CLUSTER_MEMBERS_MAX) {
            continue;
        }
        let merged = mine.get(name).map_or_else(|| record.clone(), |known| merged(known, record));
        if mine.get(name) != Some(&merged) {
            out.insert(name.clone(), merged);
        }
    }
    out
}

const BODY_BYTES: usize = 4096;

fn check_name(name: &str) -> bool {
    (1..=limits::CLUSTER_NAME_BYTES).contains(&name.len())
}

/// The members of one node. Cheap to clone.
#[derive(Clone)]
pub(super) struct Table(Arc<Inner>);

struct Inner {
    env: Env,
    /// `None`: in memory only.
    storage: Option<Storage>,
    records: RwLock<Arc<Records>>,
    version: watch::Sender<u64>,
    /// Held while a change is decided and stored.
    writing: Mutex<()>,
}

impl Table {
    /// A table that lives in memory.
    pub(super) fn in_memory(env: &Env, records: Records) -> Table {
        Table::over(env, None, records)
    }

    fn over(env: &Env, storage: Option<Storage>, records: Records) -> Table {
        Table(Arc::new(Inner {
            env: env.clone(),
            storage,
            records: RwLock::new(Arc::new(records)),
            version: watch::Sender::new(0),
            writing: Mutex::default(),
        }))
    }

    /// Reads what is stored.
    pub(super) async fn load(env: &Env, storage: &Storage) -> Result<Table, StorageError> {
        let records = storage.read(read_all).await?;
        Ok(Table::over(env, Some(storage.clone()), records))
    }

    pub(super) fn storage(&self) -> Option<&Storage> {
        self.0.storage.as_ref()
    }

    /// All records, tombstones included.
    pub(super) fn records(&self) -> Arc<Records> {
        Arc::clone(&self.0.records.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes with every change of a record.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// The members, sorted by name.
    pub(super) fn members(&self) -> Vec<Member> {
        let records = self.records();
        records.iter().filter(|(_, record)| !record.deleted).map(|(name, record)| record.member(name)).collect()
    }

    /// A member or one that was.
    pub(super) fn find(&self, name: &NodeName) -> Option<(Member, bool)> {
        let records = self.records();
        records.get(name.as_str()).map(|record| (record.member(name.as_str()), record.deleted))
    }

    /// Adds or changes a document. `rev`: the one that it replaces; none for a new one or a removed one.
    pub(super) async fn put(&self, name: &str, body: Object, rev: Option<String>) -> Result<Record, MemberError> {
        let name = name.to_owned();
        if !check_name(&name) || body.to_vec().len() > BODY_BYTES {
            return Err(MemberError::TooMany);
        }
        self.change(move |records| {
            let before = records.get(&name);
            let current = before.filter(|record| !record.deleted).map(|record| record.rev.clone());
            if current != rev {
                return Err(MemberError::Conflict);
            }
            if before.is_none() && records.len() >= limits::CLUSTER_MEMBERS_MAX {
                return Err(MemberError::TooMany);
            }
            let record = Record::next(before, &body, false);
            Ok((Records::from([(name, record.clone())]), record))
        })
        .await
    }

    /// Removes a member. A `rev` that is given must be the current one.
    pub(super) async fn delete(&self, name: &str, rev: Option<String>) -> Result<Record, MemberError> {
        let name = name.to_owned();
        self.change(move |records| {
            let before = records.get(&name).ok_or(MemberError::NotFound { deleted: false })?;
            if before.deleted {
                return Err(MemberError::NotFound { deleted: true });
            }
            if rev.is_some_and(|rev| rev != before.rev) {
                return Err(MemberError::Conflict);
            }
            let record = Record::next(Some(before), &Object::new(), true);
            Ok((Records::from([(name, record.clone())]), record))
        })
        .await
    }

    /// Takes in what another node knows.
    pub(super) async fn merge(&self, theirs: Records) -> Result<(), MemberError> {
        if news(&self.records(), &theirs).is_empty() {
            return Ok(());
        }
        self.change(move |records| Ok((news(records, &theirs), ()))).await
    }

    /// Adjusts what is beside the document of a record; nothing for one that is not there.
    pub(super) async fn adjust(
        &self,
        name: &NodeName,
        adjust: impl FnOnce(&mut Record) + Send + 'static,
    ) -> Result<(), MemberError> {
        let name = name.as_str().to_owned();
        self.change(move |records| {
            let Some(before) = records.get(&name) else { return Ok((Records::new(), ())) };
            let mut record = before.clone();
            adjust(&mut record);
            let changed = if record == *before { Records::new() } else { Records::from([(name, record)]) };
            Ok((changed, ()))
        })
        .await
    }

    /// Decides a change against all records and stores it; runs to its end also when the caller goes away.
    async fn change<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&Records) -> Result<(Records, T), MemberError> + Send + 'static,
    ) -> Result<T, MemberError> {
        let table = self.clone();
        let task = async move {
            let _writing = table.0.writing.lock().await;
            let (changed, value) = decide(&table.records())?;
            if changed.is_empty() {
                return Ok(value);
            }
            table.store(changed.clone()).await?;
            let mut next = Records::clone(&table.records());
            next.extend(changed);
            *table.0.records.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
            table.0.version.send_modify(|version| *version += 1);
            Ok(value)
        };
        match self.0.env.spawn_with(task).await {
            Some(done) => done,
            None => Err(MemberError::Storage("the node stopped".to_owned())),
        }
    }

    async fn store(&self, changed: Records) -> Result<(), MemberError> {
        let Some(storage) = &self.0.storage else { return Ok(()) };
        let job = move |view: &mut WriteView<'_>| {
            for (name, record) in &changed {
                // Invariant: a record holds texts and numbers only, which always serialize.
                view.put(key(name), serde_json::to_vec(record).expect("a record serializes"));
            }
            Ok(Ok::<(), std::convert::Infallible>(()))
        };
        let Ok(()) = storage.committer().submit(job).await?;
        Ok(())
    }
}

fn read_all(view: &dyn View) -> Result<Records, StorageError> {
    let (mut out, mut damaged) = (Records::new(), None);
    let prefix = prefix(b'm');
    view.scan(&KeyRange::prefix(&prefix), Direction::Forward, &mut |key, value| match (
        std::str::from_utf8(&key[prefix.len()..]),
        serde_json::from_slice(value),
    ) {
        (Ok(name), Ok(record)) => {
            out.insert(name.to_owned(), record);
            ControlFlow::Continue(())
        }
        _ => {
            damaged = Some(StorageError::Corrupt("a record of a member".to_owned()));
            ControlFlow::Break(())
        }
    })?;
    damaged.map_or(Ok(out), Err)
}

#[cfg(test)]
mod tests;
