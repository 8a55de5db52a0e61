//! What is stored of a database: one JSON record per name under the node's reserved shard number.

use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::document::security::ADMINS_ONLY;
use crate::limits;
use crate::storage::StorageError;

/// The reserved shard number below which the catalogue lives; real shards start at `FIRST_FREE_SHARD`.
const CATALOGUE_SHARD: u64 = 1;

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

/// What may change while a database lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// The security object's JSON text; `None`: never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { security: None, revs_limit: limits::REVS_LIMIT, purged_infos_limit: limits::PURGED_INFOS_LIMIT }
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
    /// The shard of each range in ring order.
    pub shards: Vec<u64>,
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
    pub shards: Box<[u64]>,
    // A blocking lock: held for a copy only, never across an await.
    settings: RwLock<LiveSettings>,
}

/// [`Settings`] in the form in which they are handed out.
#[derive(Clone, Debug)]
pub(super) struct LiveSettings {
    pub security: Option<Bytes>,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
}

impl From<Settings> for LiveSettings {
    fn from(settings: Settings) -> Self {
        let Settings { security, revs_limit, purged_infos_limit } = settings;
        // Most databases keep the default: one copy of its text serves a hundred thousand of them.
        let text = |text: String| match text == ADMINS_ONLY {
            true => Bytes::from_static(ADMINS_ONLY.as_bytes()),
            false => Bytes::from(text),
        };
        LiveSettings { security: security.map(text), revs_limit, purged_infos_limit }
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

impl From<Record> for Known {
    fn from(record: Record) -> Self {
        Known {
            instance: record.instance,
            q: record.q,
            n: record.n,
            partitioned: record.partitioned,
            shards: record.shards.into_boxed_slice(),
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
            created_s: 1_700_000_000,
            settings: Settings { security: Some("{}".to_owned()), revs_limit: 7, purged_infos_limit: 8 },
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
    fn keys_sort_as_names() {
        assert!(key("a") < key("a/b") && key("a/b") < key("b") && key("_users") < key("a"));
        assert!(key("a").starts_with(&prefix()));
    }
}
