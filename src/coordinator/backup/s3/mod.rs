//! Snapshots in a bucket of a store that speaks S3: `push` copies a snapshot folder there, `pull` brings back what is
//! asked for.
//!
//! ```text
//!   PREFIX/settee-backup.json     format, and the id of the key where the backup is sealed
//!   plain   objects/HH/HASH       databases/NAME/TIME.json  nodes/TIME.json: as in the folder
//!   sealed  objects/HH/KEYED      lists/ENCRYPTED: names made with the key (`seal.rs`)
//! ```
//!
//! Promises: a list is in the bucket, or in the folder, once all is there that a restore of it reads; both runs may be
//! killed at any point and started again; what is there already is not copied again; whatever is copied is compared
//! with its hash on the way. Memory: some 100 bytes for each object, and a part of an object for each of the requests
//! that run at once.

mod bucket;
mod fetch;
mod progress;
mod pull;
mod push;
mod seal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::try_join;
use serde::{Deserialize, Serialize};

use crate::coordinator::backup::{BackupError, damaged};
use crate::limits;
use crate::wire::hex;
use crate::world::Env;

pub use bucket::{Access, Place};
pub use pull::{Choice, Pulled, lists, pull};
pub use push::{Pushed, push};
pub use seal::Key;

use bucket::Bucket;
use progress::Progress;

/// The object that tells what lies beside it.
const MARKER: &str = "settee-backup.json";
/// Where objects lie, in the bucket as in the folder.
const OBJECTS: &str = "objects/";
/// Where sealed lists lie.
const LISTS: &str = "lists/";

/// What is asked of a store, and how.
#[derive(Clone)]
pub struct Order {
    /// Where.
    pub access: Access,
    /// The key of a sealed backup.
    pub key: Option<Key>,
    /// Objects at once.
    pub parallel: usize,
}

/// What [`MARKER`] says.
#[derive(Serialize, Deserialize)]
struct Marker {
    format: u32,
    /// Of a sealed backup: [`Key::id`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Marker {
    const FORMAT: u32 = 1;
}

/// A backup in a bucket.
struct Remote {
    env: Env,
    bucket: Bucket,
    key: Option<Key>,
    parallel: usize,
    progress: Progress,
}

/// The 32 bytes of the name of an object; `None` for what is no such name.
fn id(name: &str) -> Option<[u8; 32]> {
    hex::decode(name)?.try_into().ok().filter(|_| name.bytes().all(|b| !b.is_ascii_uppercase()))
}

/// Whether a name within a folder is that of a list: nothing that a store says leads out of the folder.
fn is_list(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let (is_database, file) = match parts[..] {
        ["nodes", file] => (true, file),
        ["databases", database, file] => (!database.is_empty() && !database.starts_with('.'), file),
        _ => (false, ""),
    };
    is_database && file.strip_suffix(".json").is_some_and(|time| time.len() >= 15 && time.parse::<u64>().is_ok())
}

impl Remote {
    fn new(env: &Env, order: &Order) -> Result<Remote, BackupError> {
        let parallel = order.parallel.clamp(1, limits::BUCKET_PARALLEL_MAX);
        let bucket = Bucket::new(env, &order.access, parallel)?;
        Ok(Remote { env: env.clone(), bucket, key: order.key.clone(), parallel, progress: Progress::default() })
    }

    /// The name of an object in the bucket.
    fn object(&self, name: &str) -> String {
        let shown = self.key.as_ref().map_or_else(|| name.to_owned(), |key| key.object_name(name));
        format!("{OBJECTS}{}/{shown}", shown.get(..2).unwrap_or("xx"))
    }

    /// The name of a list in the bucket.
    fn list(&self, name: &str) -> String {
        self.key.as_ref().map_or_else(|| name.to_owned(), |key| format!("{LISTS}{}", key.list_name(name)))
    }

    /// Bytes of an object of so many bytes in the bucket.
    fn stored_bytes(&self, plain: u64) -> u64 {
        if self.key.is_some() { seal::sealed_bytes(plain) } else { plain }
    }

    /// Whether there is a backup, which has that key.
    ///
    /// # Errors
    /// When it has another key, or none, or there is none to be known although something lies there.
    async fn check(&self) -> Result<bool, BackupError> {
        let place = self.bucket.place();
        let refused = |why: &str| Err(BackupError::Io(format!("{place}: {why}")));
        let Some(bytes) = self.bucket.read(MARKER).await? else {
            let page = self.bucket.page("", None).await?;
            if page.entries.is_empty() {
                return Ok(false);
            }
            return refused("something lies there that is no backup of settee: choose an empty folder of the bucket");
        };
        let marker: Option<Marker> = serde_json::from_slice(&bytes).ok();
        match (marker, &self.key) {
            (None, _) => Err(damaged(format_args!("{place}: {MARKER} is not as it was written"))),
            (Some(Marker { format, .. }), _) if format != Marker::FORMAT => {
                refused(&format!("format {format} of backups is not known to this settee"))
            }
            (Some(Marker { key: None, .. }), None) => Ok(true),
            (Some(Marker { key: None, .. }), Some(_)) => refused("that backup is not encrypted, and takes no key"),
            (Some(Marker { key: Some(_), .. }), None) => refused("that backup is encrypted: give its key (--key-file)"),
            (Some(Marker { key: Some(id), .. }), Some(key)) if id == key.id() => Ok(true),
            (Some(Marker { key: Some(id), .. }), Some(key)) => {
                refused(&format!("wrong key: that backup has the key {id}, and this one is {}", key.id()))
            }
        }
    }

    /// Says what lies there from now on.
    async fn mark(&self) -> Result<(), BackupError> {
        let marker = Marker { format: Marker::FORMAT, key: self.key.as_ref().map(|key| key.id().to_owned()) };
        // Invariant: numbers and texts always serialize.
        let text = serde_json::to_string(&marker).expect("a marker serializes");
        self.bucket.put(MARKER, Bytes::from(text + "\n")).await
    }

    /// All names in the bucket that begin with `prefix`, and their bytes.
    async fn names(&self, prefix: &str, mut take: impl FnMut(&str, u64)) -> Result<(), BackupError> {
        let mut from: Option<String> = None;
        loop {
            let page = self.bucket.page(prefix, from.as_deref()).await?;
            page.entries.iter().for_each(|(name, bytes)| take(name, *bytes));
            match page.next {
                None => return Ok(()),
                next if next == from => return Err(BackupError::Io("the store tells a listing twice".to_owned())),
                next => from = next,
            }
        }
    }

    /// All objects in the bucket: the names that they have there, and their bytes there.
    async fn objects_there(&self) -> Result<BTreeMap<[u8; 32], u64>, BackupError> {
        let mut out = BTreeMap::new();
        let take = |name: &str, bytes| {
            out.extend(name.rsplit('/').next().and_then(id).map(|id| (id, bytes)));
        };
        self.names(OBJECTS, take).await?;
        Ok(out)
    }

    /// All lists in the bucket: the names that they have in a folder, and their bytes in the bucket. `database`: the
    /// directory of the lists that are wanted, where that is one of a database.
    async fn lists_there(&self, database: Option<&str>) -> Result<BTreeMap<String, u64>, BackupError> {
        let mut found = Vec::new();
        match (&self.key, database) {
            (Some(_), _) => self.names(LISTS, |name, bytes| found.push((name.to_owned(), bytes))).await?,
            (None, Some(dir)) => {
                self.names(&format!("{dir}/"), |name, bytes| found.push((name.to_owned(), bytes))).await?;
            }
            (None, None) => {
                let mut nodes = Vec::new();
                let databases = self.names("databases/", |name, bytes| found.push((name.to_owned(), bytes)));
                try_join(databases, self.names("nodes/", |name, bytes| nodes.push((name.to_owned(), bytes)))).await?;
                found.extend(nodes);
            }
        }
        let plain = |name: String| match &self.key {
            Some(key) => key.opened_list_name(name.strip_prefix(LISTS)?),
            None => Some(name),
        };
        let lists = found.into_iter().filter_map(|(name, bytes)| Some((plain(name)?, bytes)));
        Ok(lists.filter(|(name, _)| is_list(name)).collect())
    }
}
