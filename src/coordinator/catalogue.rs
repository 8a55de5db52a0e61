//! The databases of the node: durable records, the cache of names, and the handles of those in use.

use std::sync::Arc;

use bytes::Bytes;

use crate::config::Config;
use crate::coordinator::database::Database;
use crate::coordinator::error::DatabaseError;
use crate::coordinator::pending::Storage;
use crate::coordinator::quorum::Written;
use crate::world::Env;

/// What a node's coordinator is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name `name@host`, as `_shards` shows it.
    pub node: String,
    /// Make `_users` and `_replicator` when they are missing.
    pub system_databases: bool,
}

/// How a database is to be made. The default takes everything from the configuration.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Number of ranges.
    pub q: Option<u32>,
    /// Number of copies; more than there are nodes are cut to that, as the reference does.
    pub n: Option<u32>,
    /// Whether ids carry a partition.
    pub partitioned: bool,
    /// The placement rule `zone:n,...` as given.
    pub placement: Option<String>,
    /// The storage engine asked for; `None`: the node's default.
    pub engine: Option<String>,
    /// The first security object as JSON text; `None`: none set, `{}` (the caller applies `default_security`).
    pub security: Option<Bytes>,
}

/// Which names to list, in byte order.
#[derive(Clone, Debug, Default)]
pub struct NamesQuery {
    /// The first name in the direction of reading.
    pub start: Option<String>,
    /// The last name in the direction of reading.
    pub end: Option<String>,
    /// Whether `end` itself is left out.
    pub end_exclusive: bool,
    /// From the last to the first.
    pub descending: bool,
    /// How many to leave out at first.
    pub skip: u64,
    /// How many at most.
    pub limit: Option<u64>,
}

/// A change of the set of databases, for `_db_updates`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseEvent {
    /// Position in the node's list of events, from 1.
    pub seq: u64,
    /// The database's name.
    pub name: String,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was made.
    Created,
    /// It was removed.
    Deleted,
    /// A document in it changed.
    Updated,
}

/// All databases of a node. Shared behind an `Arc`.
pub struct Coordinator {
    env: Env,
    config: Config,
    storage: Storage,
}

impl Coordinator {
    /// Reads the catalogue, takes up interrupted removals, and makes the system databases.
    ///
    /// Limits and defaults are looked up in `config` when they are needed: `[cluster] q n`, `[couchdb]
    /// max_document_size max_attachment_size`.
    pub async fn open(
        env: Env,
        config: Config,
        storage: Storage,
        options: Options,
    ) -> Result<Arc<Coordinator>, DatabaseError> {
        let _ = options;
        let _ = Coordinator { env, config, storage };
        todo!()
    }

    /// Makes a database. Checks in this order: `q`, `n`, `placement`, the name, whether it is there.
    pub async fn create_database(&self, name: &str, options: CreateOptions) -> Result<Written, DatabaseError> {
        let _ = (name, options, &self.env, &self.storage, &self.config);
        todo!()
    }

    /// Removes a database: durably at once, its bytes in the background.
    pub async fn delete_database(&self, name: &str) -> Result<Written, DatabaseError> {
        let _ = name;
        todo!()
    }

    /// The handle of a database. Touches memory only. An illegal name is `NotFound`.
    pub fn database(&self, name: &str) -> Result<Arc<Database>, DatabaseError> {
        let _ = name;
        todo!()
    }

    /// Whether there is such a database.
    pub fn has_database(&self, name: &str) -> bool {
        let _ = name;
        todo!()
    }

    /// Names in byte order.
    pub fn database_names(&self, query: &NamesQuery) -> Vec<String> {
        let _ = query;
        todo!()
    }

    /// The latest events after `since`, oldest first, with the position reached. Kept in memory, a bounded number.
    pub fn events(&self, since: u64) -> (Vec<DatabaseEvent>, u64) {
        let _ = since;
        todo!()
    }

    /// Tells the position of the last event whenever there is a new one.
    pub fn watch_events(&self) -> tokio::sync::watch::Receiver<u64> {
        todo!()
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        todo!()
    }
}
