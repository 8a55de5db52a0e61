//! What is stored of a database: one JSON record per name under the node's reserved shard number.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::document::security::ADMINS_ONLY;
use crate::limits;
use crate::shard::Stamp;
use crate::storage::StorageError;

/// The reserved shard number below which the catalogue lives; real shards start at `FIRST_FREE_SHARD`.
const CATALOGUE_SHARD: u64 = 1;

/// The key of the node's epochs.
pub(super) const EPOCHS_KEY: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, CATALOGUE_SHARD as u8, b'e'];

/// The key prefix of all records.
pub(super) fn prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'd');
    key
}

/// The key of a database's record; records sort by the bytes of their names.
pub(super) fn key(name: &str) -> Vec<u8> {
    let mut key = prefix();
    key.extend(name.as_bytes());
    key
}

/// The key prefix of the shards that deleted databases left to be dropped.
pub(super) fn drop_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'x');
    key
}

/// The key that says that a shard is to be dropped.
pub(super) fn drop_key(shard: u64) -> Vec<u8> {
    let mut key = drop_prefix();
    key.extend(shard.to_be_bytes());
    key
}

/// The key prefix of the marks of deleted databases.
pub(super) fn tomb_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b't');
    key
}

/// The key that says that one of the databases of a name was deleted: it does not come back from a node that missed it.
pub(super) fn tomb_key(name: &str, instance: &str) -> Vec<u8> {
    let mut key = tomb_prefix();
    key.extend(name.as_bytes());
    key.push(0);
    key.extend(instance.as_bytes());
    key
}

/// The key prefix of databases that lost their name to another instance.
pub(super) fn aside_prefix() -> Vec<u8> {
    let mut key = CATALOGUE_SHARD.to_be_bytes().to_vec();
    key.push(b'o');
    key
}

/// The key of the record of such a database, until its documents are in the other one.
pub(super) fn aside_key(name: &str, instance: &str) -> Vec<u8> {
    let mut key = aside_prefix();
    key.extend(name.as_bytes());
    key.push(0);
    key.extend(instance.as_bytes());
    key
}

/// What may change while a database lives, each part with the stamp of its last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// The security object's JSON text; `None`: never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
    #[serde(default)]
    pub stamps: Stamps,
}

/// When the parts of [`Settings`] were set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamps {
    #[serde(default)]
    pub security: Stamp,
    #[serde(default)]
    pub revs_limit: Stamp,
    #[serde(default)]
    pub purged_infos_limit: Stamp,
}

impl Default for Settings {
    fn default() -> Self {
        let (revs_limit, purged_infos_limit) = (limits::REVS_LIMIT, limits::PURGED_INFOS_LIMIT);
        Settings { security: None, revs_limit, purged_infos_limit, stamps: Stamps::default() }
    }
}

impl Settings {
    /// Takes in what another node has, part by part: the higher stamp counts.
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
    }
}

/// The stored record. Unknown fields of a newer version are refused by the format number of the data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// 32 hexadecimal digits: tells this database from others of the same name, before and after it.
    pub instance: String,
    pub q: u32,
    pub n: u32,
    #[serde(default)]
    pub partitioned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The shard of each range in ring order; 0 where this node holds no copy.
    pub shards: Vec<u64>,
    /// The nodes that hold each range, in ring order; `None`: this node alone, whatever its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_range: Option<Vec<Vec<String>>>,
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
        if record.q == 0 || record.shards.len() != record.q as usize {
            return Err(damaged(format!("{} shards for q={}", record.shards.len(), record.q)));
        }
        if let Some(by_range) = &record.by_range
            && (by_range.len() != record.q as usize || by_range.iter().any(Vec::is_empty))
        {
            return Err(damaged("a range without nodes".to_owned()));
        }
        Ok(record)
    }
}

/// A record in memory: shared by the list of names and the database's handle.
#[derive(Debug)]
pub(super) struct Known {
    pub instance: String,
    pub q: u32,
    pub n: u32,
    pub partitioned: bool,
    pub created_s: u64,
    pub placement: Option<String>,
    pub engine: Option<String>,
    pub shards: Box<[u64]>,
    by_range: Option<Box<[Nodes]>>,
    // A blocking lock: held for a copy only, never across an await.
    settings: RwLock<LiveSettings>,
}

/// The nodes of a range.
type Nodes = Arc<[Arc<str>]>;

/// [`Settings`] in the form in which they are handed out.
#[derive(Clone, Debug)]
pub(super) struct LiveSettings {
    pub security: Option<Bytes>,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
    pub stamps: Stamps,
}

impl From<LiveSettings> for Settings {
    fn from(live: LiveSettings) -> Self {
        let LiveSettings { security, revs_limit, purged_infos_limit, stamps } = live;
        let security = security.map(|text| String::from_utf8_lossy(&text).into_owned());
        Settings { security, revs_limit, purged_infos_limit, stamps }
    }
}

impl From<Settings> for LiveSettings {
    fn from(settings: Settings) -> Self {
        let Settings { security, revs_limit, purged_infos_limit, stamps } = settings;
        // Most databases keep the default: one copy of its text serves a hundred thousand of them.
        let text = |text: String| match text == ADMINS_ONLY {
            true => Bytes::from_static(ADMINS_ONLY.as_bytes()),
            false => Bytes::from(text),
        };
        LiveSettings { security: security.map(text), revs_limit, purged_infos_limit, stamps }
    }
}

impl Known {
    pub fn settings(&self) -> LiveSettings {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings.into();
    }
}

impl Known {
    /// The nodes of a range as the map lists them; `own` is this node.
    pub fn nodes(&self, range: usize, own: &Arc<str>) -> Nodes {
        match &self.by_range {
            Some(by_range) => Arc::clone(&by_range[range]),
            None => Arc::new([Arc::clone(own)]),
        }
    }

    /// The shard of a range on this node; `None` when it holds no copy.
    pub fn shard(&self, range: usize) -> Option<u64> {
        self.shards.get(range).copied().filter(|shard| *shard != 0)
    }

    /// The record as other nodes are told it.
    pub fn shared(&self, own: &Arc<str>) -> Record {
        let nodes = |range| self.nodes(range, own).iter().map(|node| node.to_string()).collect();
        Record {
            instance: self.instance.clone(),
            q: self.q,
            n: self.n,
            partitioned: self.partitioned,
            placement: self.placement.clone(),
            engine: self.engine.clone(),
            shards: vec![0; self.shards.len()],
            by_range: Some((0..self.shards.len()).map(nodes).collect()),
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
    fn from(record: Record) -> Self {
        Known {
            instance: record.instance,
            q: record.q,
            n: record.n,
            partitioned: record.partitioned,
            created_s: record.created_s,
            placement: record.placement,
            engine: record.engine,
            shards: record.shards.into_boxed_slice(),
            by_range: record.by_range.map(shared_nodes),
            settings: RwLock::new(record.settings.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            instance: "0123456789abcdef0123456789abcdef".to_owned(),
            q: 2,
            n: 1,
            partitioned: true,
            placement: Some("east:1".to_owned()),
            engine: None,
            shards: vec![16, 17],
            by_range: Some(vec![vec!["a@h".to_owned()], vec!["b@h".to_owned(), "a@h".to_owned()]]),
            created_s: 1_700_000_000,
            settings: Settings {
                security: Some("{}".to_owned()),
                revs_limit: 7,
                purged_infos_limit: 8,
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
    }

    #[test]
    fn keys_sort_as_names() {
        assert!(key("a") < key("a/b") && key("a/b") < key("b") && key("_users") < key("a"));
        assert!(key("a").starts_with(&prefix()));
    }
}
