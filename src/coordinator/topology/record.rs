//! Stored record of a database: one JSON text per name under the node's reserved shard number.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::coordinator::topology::period::Period;
use crate::coordinator::topology::shard_map::ShardMap;
use crate::document::security::ADMINS_ONLY;
use crate::limits;
use crate::shard::Stamp;
use crate::storage::StorageError;
use crate::world::buggify::{Mutation, mutated};

/// The reserved shard number below which the catalogue lives; real shards start at `FIRST_FREE_SHARD`.
const CATALOGUE_SHARD: u64 = 1;

/// The key of the node's epochs.
pub(in crate::coordinator) const EPOCHS_KEY: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, CATALOGUE_SHARD as u8, b'e'];

/// The key of who votes about maps, see `voters`.
pub(in crate::coordinator) const VOTERS_KEY: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, CATALOGUE_SHARD as u8, b'v'];

/// The name and the instance that a key names behind a prefix.
pub(in crate::coordinator) fn instance_in(key: &[u8], prefix: &[u8]) -> Option<(String, String)> {
    let (name, instance) = std::str::from_utf8(key.strip_prefix(prefix)?).ok()?.split_once('\0')?;
    Some((name.to_owned(), instance.to_owned()))
}

/// Whether a range is one of those that were split.
pub(in crate::coordinator) fn is_split(splits: &[u32], range: usize) -> bool {
    splits.iter().any(|split| *split as usize == range)
}

/// The key prefix of all records.
pub(in crate::coordinator) fn prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'd');
    key
}

/// The key of a database's record; records sort by the bytes of their names.
pub(in crate::coordinator) fn key(name: &str) -> Vec<u8> {
    let mut key = prefix();
    key.extend(name.as_bytes());
    key
}

/// The key prefix of the shards that deleted databases left to be dropped.
pub(in crate::coordinator) fn drop_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'x');
    key
}

/// The key that says that a shard is to be dropped.
pub(in crate::coordinator) fn drop_key(shard: u64) -> Vec<u8> {
    let mut key = drop_prefix();
    key.extend(shard.to_be_bytes());
    key
}

/// The key prefix of the marks of databases that are no more.
pub(in crate::coordinator) fn tomb_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b't');
    key
}

/// The value of the mark of a database that was deleted: it does not come back from a node that missed it.
pub(in crate::coordinator) const DELETED: &[u8] = b"";

/// The value of the mark of a database that gave its name to another instance here. Nobody else is told: where it still
/// lives it may hold what nobody else does. It is deleted with the one that it became part of.
pub(in crate::coordinator) const UNITED: &[u8] = b"u";

/// The key of the mark of one of the databases of a name; of an empty instance the prefix of all of them.
pub(in crate::coordinator) fn tomb_key(name: &str, instance: &str) -> Vec<u8> {
    let mut key = tomb_prefix();
    key.extend(name.as_bytes());
    key.push(0);
    key.extend(instance.as_bytes());
    key
}

/// The key prefix of what this node promised about maps.
pub(in crate::coordinator) fn ballot_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'b');
    key
}

/// The key of what this node promised about the next map of a database, see `consensus`.
pub(in crate::coordinator) fn ballot_key(name: &str, instance: &str) -> Vec<u8> {
    let mut key = ballot_prefix();
    key.extend(name.as_bytes());
    key.push(0);
    key.extend(instance.as_bytes());
    key
}

/// The key prefix of the jobs that change maps, see `reshard`.
pub(in crate::coordinator) fn job_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'j');
    key
}

/// The key of a job.
pub(in crate::coordinator) fn job_key(id: &str) -> Vec<u8> {
    let mut key = job_prefix();
    key.extend(id.as_bytes());
    key
}

/// The key prefix of the marks of replicas that are being rebuilt, see `rebuild`.
pub(in crate::coordinator) fn rebuild_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'r');
    key
}

/// The key of the mark of such a replica, by its new shard.
pub(in crate::coordinator) fn rebuild_key(shard: u64) -> Vec<u8> {
    let mut key = rebuild_prefix();
    key.extend(shard.to_be_bytes());
    key
}

/// The key prefix of databases that lost their name to another instance.
pub(in crate::coordinator) fn superseded_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'o');
    key
}

/// The key of the record of such a database, until its documents are in the other one.
pub(in crate::coordinator) fn superseded_key(name: &str, instance: &str) -> Vec<u8> {
    let mut key = superseded_prefix();
    key.extend(name.as_bytes());
    key.push(0);
    key.extend(instance.as_bytes());
    key
}

/// What may change while a database lives, each part with the stamp of its last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Settings {
    /// The security object's JSON text; `None`: never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
    /// How long tombstones are kept, see [`Period`]; `None`: as the node's configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_purge: Option<String>,
    /// The member of documents that says when they end; `None`: they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(default)]
    pub stamps: Stamps,
}

/// When the parts of [`Settings`] were set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Stamps {
    #[serde(default)]
    pub security: Stamp,
    #[serde(default)]
    pub revs_limit: Stamp,
    #[serde(default)]
    pub purged_infos_limit: Stamp,
    /// Left out where it was never set: nodes compare what they know by the bytes of all stamps, and those of an older
    /// version have no such one.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub auto_purge: Stamp,
    /// Left out as the one before.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub expires_at: Stamp,
}

fn is_unset(stamp: &Stamp) -> bool {
    *stamp == Stamp::default()
}

impl Stamps {
    /// Whether any part was set later than in another record.
    pub fn any_above(&self, other: &Stamps) -> bool {
        self.security > other.security
            || self.revs_limit > other.revs_limit
            || self.purged_infos_limit > other.purged_infos_limit
            || self.auto_purge > other.auto_purge
            || self.expires_at > other.expires_at
    }
}

impl Default for Settings {
    fn default() -> Self {
        let (revs_limit, purged_infos_limit) = (limits::REVS_LIMIT, limits::PURGED_INFOS_LIMIT);
        let stamps = Stamps::default();
        Settings { security: None, revs_limit, purged_infos_limit, auto_purge: None, expires_at: None, stamps }
    }
}

impl Settings {
    /// Applies what another node has, part by part: the higher stamp counts.
    pub fn merge(&mut self, other: Settings) {
        if other.stamps.security > self.stamps.security {
            (self.security, self.stamps.security) = (other.security, other.stamps.security);
        }
        if other.stamps.revs_limit > self.stamps.revs_limit {
            (self.revs_limit, self.stamps.revs_limit) = (other.revs_limit, other.stamps.revs_limit);
        }
        if other.stamps.purged_infos_limit > self.stamps.purged_infos_limit {
            self.purged_infos_limit = other.purged_infos_limit;
            self.stamps.purged_infos_limit = other.stamps.purged_infos_limit;
        }
        if other.stamps.auto_purge > self.stamps.auto_purge {
            (self.auto_purge, self.stamps.auto_purge) = (other.auto_purge, other.stamps.auto_purge);
        }
        if other.stamps.expires_at > self.stamps.expires_at {
            (self.expires_at, self.stamps.expires_at) = (other.expires_at, other.stamps.expires_at);
        }
    }
}

/// A replica on its way to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Move {
    /// The number of the range.
    pub range: u32,
    /// The node whose replica goes; `None`: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The node that gets one; `None`: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether the new replica counts already, so that the old one only waits until others have applied all it has.
    #[serde(default)]
    pub leaving: bool,
}

/// Where the replicas of a database are. Changes by majority only, see `consensus`; each change has a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct MapRecord {
    /// How many changes there were.
    pub version: u64,
    /// The version of the last change of nodes: who knows an older one must not write.
    pub moved: u64,
    /// The replicas of the range that has fewest.
    pub n: u32,
    /// The replicas that each range is to have once there are nodes for them; 0: nobody said so.
    #[serde(default)]
    pub wanted: u32,
    /// The ranges that were split, one after the other, see `ShardMap`.
    pub splits: Vec<u32>,
    /// The nodes that hold each range, by its number; `None`: this node alone, whatever its name.
    pub by_range: Option<Vec<Vec<String>>>,
    /// Replicas on their way; at most one of each range.
    pub moves: Vec<Move>,
}

impl MapRecord {
    /// Says what is wrong with a map that no database which began with `q` ranges can have.
    pub fn check(&self, q: u32) -> Result<(), String> {
        check_places(q, &self.splits, self.by_range.as_deref(), &self.moves).map(|_| ())
    }
}

/// How many numbers of ranges there are; or why there is no such map.
fn check_places(q: u32, splits: &[u32], by_range: Option<&[Vec<String>]>, moves: &[Move]) -> Result<usize, String> {
    let map = Some(q).filter(|q| *q <= limits::Q_MAX).and_then(|q| ShardMap::new(q, splits, 1, false));
    let numbers = map.map(|map| map.numbers()).ok_or_else(|| format!("q={q} with splits {splits:?}"))?;
    if by_range.is_some_and(|by_range| by_range.len() != numbers || by_range.iter().any(Vec::is_empty)) {
        return Err("a range without nodes".to_owned());
    }
    match moves.iter().find(|moved| moved.range as usize >= numbers) {
        Some(moved) => Err(format!("a move of range {} of {numbers}", moved.range)),
        None => Ok(numbers),
    }
}

/// Two shards that are to take the documents of a range over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Children {
    pub range: u32,
    pub shards: [u64; 2],
}

/// The stored record. Unknown fields of a newer version are refused by the format number of the data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Record {
    /// 32 hexadecimal digits: tells this database from others of the same name, before and after it.
    pub instance: String,
    pub q: u32,
    /// See [`MapRecord::n`].
    pub n: u32,
    /// See [`MapRecord::wanted`].
    #[serde(default)]
    pub wanted: u32,
    #[serde(default)]
    pub partitioned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The shard of each range by its number; 0 where this node holds no replica.
    pub shards: Vec<u64>,
    /// See [`MapRecord::by_range`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_range: Option<Vec<Vec<String>>>,
    /// See [`MapRecord::version`].
    #[serde(default)]
    pub version: u64,
    /// See [`MapRecord::moved`].
    #[serde(default)]
    pub moved: u64,
    /// See [`MapRecord::splits`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<u32>,
    /// See [`MapRecord::moves`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
    /// Splits under way on this node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "heirs")]
    pub children: Vec<Children>,
    /// When it was made, in seconds since the Unix epoch.
    pub created_s: u64,
    pub settings: Settings,
}

impl Record {
    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        // Invariant: the record holds numbers and texts only, which always serialize.
        serde_json::to_vec(self).expect("a record serializes")
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Record, StorageError> {
        let damaged = |why: String| StorageError::Corrupt(format!("database record: {why}"));
        let record: Record = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
        record.check().map_err(damaged)?;
        Ok(record)
    }

    /// Says what is wrong with a record that no database can have, wherever it comes from.
    pub fn check(&self) -> Result<(), String> {
        let numbers = check_places(self.q, &self.splits, self.by_range.as_deref(), &self.moves)?;
        match self.shards.len() == numbers {
            true => Ok(()),
            false => Err(format!("{} shards for {numbers} ranges", self.shards.len())),
        }
    }

    /// Where the replicas are.
    pub fn places(&self) -> MapRecord {
        MapRecord {
            version: self.version,
            moved: self.moved,
            n: self.n,
            wanted: self.wanted,
            splits: self.splits.clone(),
            by_range: self.by_range.clone(),
            moves: self.moves.clone(),
        }
    }

    /// Takes other places in; the shards of this node are the caller's.
    pub fn set_places(&mut self, places: MapRecord) {
        let MapRecord { version, moved, n, wanted, splits, by_range, moves } = places;
        (self.version, self.moved, self.n, self.wanted) = (version, moved, n, wanted);
        (self.splits, self.by_range, self.moves) = (splits, by_range, moves);
    }

    /// Whether a node is to hold a replica of a range: one that counts, one that is being filled, or one that leaves.
    /// Ranges that were split are not held any more.
    pub fn holds(&self, range: usize, node: &str) -> bool {
        let named = |name: &Option<String>| name.as_deref() == Some(node);
        let moves = || self.moves.iter().any(|m| m.range as usize == range && (named(&m.from) || named(&m.to)));
        match &self.by_range {
            _ if self.is_split(range) => false,
            Some(by_range) => by_range[range].iter().any(|own| own == node) || moves(),
            None => true,
        }
    }

    /// Whether a range was split: what is left of it is in its halves.
    pub fn is_split(&self, range: usize) -> bool {
        is_split(&self.splits, range)
    }

    /// All shards of this node, those of splits under way too.
    pub fn all_shards(&self) -> impl Iterator<Item = u64> + '_ {
        let children = self.children.iter().flat_map(|children| children.shards);
        self.shards.iter().copied().chain(children).filter(|shard| *shard != 0)
    }
}

/// A record in memory: shared by the list of names and the database's handle.
#[derive(Debug)]
pub(in crate::coordinator) struct Known {
    pub instance: String,
    /// Ranges that it began with.
    q: u32,
    pub partitioned: bool,
    pub created_s: u64,
    pub placement: Option<String>,
    pub engine: Option<String>,
    // A blocking lock: held for a copy only, never across an await.
    placed: RwLock<Arc<Placed>>,
    // A blocking lock: held for a copy only, never across an await.
    settings: RwLock<LiveSettings>,
}

/// Where the replicas of a database are at one moment, and the shards of those on this node.
#[derive(Debug)]
pub(in crate::coordinator) struct Placed {
    pub version: u64,
    pub moved: u64,
    pub n: u32,
    pub wanted: u32,
    pub splits: Box<[u32]>,
    pub shards: Box<[u64]>,
    pub moves: Box<[Move]>,
    by_range: Option<Box<[Nodes]>>,
}

/// The nodes of a range.
type Nodes = Arc<[Arc<str>]>;

impl Placed {
    /// The nodes of a range as the map lists them; `own` is this node.
    pub fn nodes(&self, range: usize, own: &Arc<str>) -> Nodes {
        match &self.by_range {
            Some(by_range) => Arc::clone(&by_range[range]),
            None => Arc::new([Arc::clone(own)]),
        }
    }

    /// How many replicas of a range count.
    pub fn replicas(&self, range: usize) -> usize {
        self.by_range.as_ref().map_or(1, |by_range| by_range[range].len())
    }

    /// The shard of a range on this node; `None` when it holds no replica.
    pub fn shard(&self, range: usize) -> Option<u64> {
        self.shards.get(range).copied().filter(|shard| *shard != 0)
    }

    /// Whether this node's replica with that shard takes a write whose replicas were counted by a map of that version:
    /// not by one from before replicas moved, and not where the replica leaves or has left.
    pub fn admits(&self, shard: u64, version: u64, own: &str) -> bool {
        let Some(range) = self.shards.iter().position(|held| *held == shard) else { return false };
        if self.leaves(range, own) {
            return mutated(Mutation::OldOwnerWrites);
        }
        version >= self.moved || mutated(Mutation::StaleMapAccepted)
    }

    /// Whether a node's replica of a range waits only until others have all that it has.
    pub fn leaves(&self, range: usize, own: &str) -> bool {
        self.move_of(range).is_some_and(|moved| moved.leaving && moved.from.as_deref() == Some(own))
    }

    /// The replica of a range that is on its way.
    pub fn move_of(&self, range: usize) -> Option<&Move> {
        self.moves.iter().find(|moved| moved.range as usize == range)
    }

    fn of(record: &mut Record) -> Placed {
        Placed {
            version: record.version,
            moved: record.moved,
            n: record.n,
            wanted: record.wanted,
            splits: std::mem::take(&mut record.splits).into(),
            shards: std::mem::take(&mut record.shards).into(),
            moves: std::mem::take(&mut record.moves).into(),
            by_range: record.by_range.take().map(shared_nodes),
        }
    }
}

/// [`Settings`] in the form in which they are handed out.
#[derive(Clone, Debug)]
pub(in crate::coordinator) struct LiveSettings {
    pub security: Option<Bytes>,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
    pub auto_purge: Option<Arc<str>>,
    pub expires_at: Option<Arc<str>>,
    pub stamps: Stamps,
}

impl From<LiveSettings> for Settings {
    fn from(live: LiveSettings) -> Self {
        let LiveSettings { security, revs_limit, purged_infos_limit, auto_purge, expires_at, stamps } = live;
        let security = security.map(|text| String::from_utf8_lossy(&text).into_owned());
        let text = |text: Option<Arc<str>>| text.map(|text| text.to_string());
        let (auto_purge, expires_at) = (text(auto_purge), text(expires_at));
        Settings { security, revs_limit, purged_infos_limit, auto_purge, expires_at, stamps }
    }
}

impl From<Settings> for LiveSettings {
    fn from(settings: Settings) -> Self {
        let Settings { security, revs_limit, purged_infos_limit, auto_purge, expires_at, stamps } = settings;
        // Most databases keep the default: one copy of its text serves a hundred thousand of them.
        let text = |text: String| match text == ADMINS_ONLY {
            true => Bytes::from_static(ADMINS_ONLY.as_bytes()),
            false => Bytes::from(text),
        };
        let (auto_purge, expires_at) = (auto_purge.map(Arc::from), expires_at.map(Arc::from));
        LiveSettings { security: security.map(text), revs_limit, purged_infos_limit, auto_purge, expires_at, stamps }
    }
}

impl Known {
    pub fn settings(&self) -> LiveSettings {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long tombstones are kept here; `None`: as the node's configuration says.
    pub fn auto_purge(&self) -> Option<Arc<str>> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).auto_purge.clone()
    }

    /// The member of documents that says when they end; `None`: they do not.
    pub fn expires_at(&self) -> Option<Arc<str>> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).expires_at.clone()
    }

    /// How old tombstones are when they may be collected; `None`: they never may. `usual` is what the node's
    /// configuration says.
    pub fn tombstone_age(&self, usual: Option<Duration>) -> Option<Duration> {
        match self.auto_purge() {
            // A text that this version cannot read: nothing is lost by waiting.
            Some(text) => Period::parse(&text).and_then(Period::age),
            None => usual,
        }
    }

    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings.into();
    }

    /// Where its replicas are.
    pub fn placed(&self) -> Arc<Placed> {
        Arc::clone(&self.placed.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies where the replicas are according to a record that was just stored.
    pub fn place(&self, mut record: Record) {
        *self.placed.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Placed::of(&mut record));
    }

    /// Says what is wrong with a map that is to follow: it keeps the ranges that there are.
    pub fn check(&self, places: &MapRecord) -> Result<(), String> {
        places.check(self.q)?;
        let placed = self.placed();
        match places.splits.starts_with(&placed.splits) {
            true => Ok(()),
            false => Err(format!("splits {:?} behind {:?}", places.splits, placed.splits)),
        }
    }

    /// Whether the record names no nodes: this one was alone when the database was made.
    pub fn is_unnamed(&self) -> bool {
        self.placed().by_range.is_none()
    }

    /// How it is cut into ranges.
    pub fn map(&self, placed: &Placed) -> ShardMap {
        let map = ShardMap::new(self.q, &placed.splits, placed.n, self.partitioned);
        // Invariant: what a record says was checked when it was read or made.
        map.expect("the map of a known database")
    }

    /// The record as other nodes are told it.
    pub fn shared(&self, own: &Arc<str>) -> Record {
        let placed = self.placed();
        let nodes = |range| placed.nodes(range, own).iter().map(|node| node.to_string()).collect();
        Record {
            instance: self.instance.clone(),
            q: self.q,
            n: placed.n,
            wanted: placed.wanted,
            partitioned: self.partitioned,
            placement: self.placement.clone(),
            engine: self.engine.clone(),
            shards: vec![0; placed.shards.len()],
            by_range: Some((0..placed.shards.len()).map(nodes).collect()),
            version: placed.version,
            moved: placed.moved,
            splits: placed.splits.to_vec(),
            moves: placed.moves.to_vec(),
            children: Vec::new(),
            created_s: self.created_s,
            settings: self.settings().into(),
        }
    }
}

/// The nodes of each range; ranges with the same ones share the list.
fn shared_nodes(by_range: Vec<Vec<String>>) -> Box<[Nodes]> {
    let mut names: std::collections::BTreeMap<String, Arc<str>> = Default::default();
    let mut lists: std::collections::BTreeMap<Vec<String>, Nodes> = Default::default();
    let mut out = Vec::with_capacity(by_range.len());
    for nodes in by_range {
        let list = lists.entry(nodes).or_insert_with_key(|nodes| {
            nodes
                .iter()
                .map(|name| Arc::clone(names.entry(name.clone()).or_insert_with(|| name.as_str().into())))
                .collect()
        });
        out.push(Arc::clone(list));
    }
    out.into()
}

impl From<Record> for Known {
    fn from(mut record: Record) -> Self {
        let placed = RwLock::new(Arc::new(Placed::of(&mut record)));
        Known {
            instance: record.instance,
            q: record.q,
            partitioned: record.partitioned,
            created_s: record.created_s,
            placement: record.placement,
            engine: record.engine,
            placed,
            settings: RwLock::new(record.settings.into()),
        }
    }
}

/// A setting with a stamp of its own.
#[derive(Clone, Copy, Debug)]
pub(in crate::coordinator) enum StampedSetting {
    Security,
    RevsLimit,
    PurgedInfosLimit,
    AutoPurge,
    ExpiresAt,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            instance: "0123456789abcdef0123456789abcdef".to_owned(),
            q: 2,
            n: 1,
            wanted: 3,
            partitioned: true,
            placement: Some("east:1".to_owned()),
            engine: None,
            shards: vec![16, 17],
            by_range: Some(vec![vec!["a@h".to_owned()], vec!["b@h".to_owned(), "a@h".to_owned()]]),
            version: 3,
            moved: 2,
            splits: Vec::new(),
            moves: vec![Move { range: 1, from: None, to: Some("c@h".to_owned()), leaving: false }],
            children: vec![Children { range: 0, shards: [18, 19] }],
            created_s: 1_700_000_000,
            settings: Settings {
                security: Some("{}".to_owned()),
                revs_limit: 7,
                purged_infos_limit: 8,
                auto_purge: Some("3_hour".to_owned()),
                expires_at: Some("ends".to_owned()),
                stamps: Stamps { security: Stamp { counter: 3, by: 4 }, ..Stamps::default() },
            },
        }
    }

    #[test]
    fn records_round_trip() {
        assert_eq!(Record::decode(&record().encode()), Ok(record()));
    }

    #[test]
    fn a_record_with_the_wrong_number_of_shards_is_damaged() {
        let mut bad = record();
        bad.shards.pop();
        assert!(matches!(Record::decode(&bad.encode()), Err(StorageError::Corrupt(_))));
        assert!(matches!(Record::decode(b"{}"), Err(StorageError::Corrupt(_))));
        let bad = Record { splits: vec![7], ..record() };
        assert!(matches!(Record::decode(&bad.encode()), Err(StorageError::Corrupt(_))));
    }

    #[test]
    fn of_two_settings_the_later_ones_count_part_by_part() {
        let at = |counter| Stamp { counter, by: 1 };
        let mut own = Settings { revs_limit: 5, ..Settings::default() };
        own.stamps = Stamps { revs_limit: at(2), security: at(1), ..Stamps::default() };
        let mut other = Settings { revs_limit: 9, security: Some("{}".to_owned()), ..Settings::default() };
        other.stamps = Stamps { revs_limit: at(1), security: at(2), ..Stamps::default() };
        own.merge(other);
        assert_eq!((own.revs_limit, own.security.as_deref()), (5, Some("{}")));
        let other = Settings { auto_purge: Some("1_d".to_owned()), ..Settings::default() };
        own.merge(Settings { stamps: Stamps { auto_purge: at(1), ..Stamps::default() }, ..other });
        assert_eq!(own.auto_purge.as_deref(), Some("1_d"));
        let other = Settings { expires_at: Some("ends".to_owned()), ..Settings::default() };
        own.merge(Settings { stamps: Stamps { expires_at: at(1), ..Stamps::default() }, ..other });
        assert_eq!((own.auto_purge.as_deref(), own.expires_at.as_deref()), (Some("1_d"), Some("ends")));
        assert!(own.stamps.any_above(&Stamps::default()) && !own.stamps.any_above(&own.stamps));
    }

    /// Nodes of an older version compare the bytes of settings that they know.
    #[test]
    fn what_was_never_set_takes_no_bytes() {
        let text = serde_json::to_string(&Settings::default()).unwrap();
        assert!(!text.contains("auto_purge") && !text.contains("expires_at"), "{text}");
    }

    #[test]
    fn keys_sort_as_names() {
        assert!(key("a") < key("a/b") && key("a/b") < key("b") && key("_users") < key("a"));
        assert!(key("a").starts_with(&prefix()));
    }
}
