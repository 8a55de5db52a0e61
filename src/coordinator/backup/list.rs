//! The lists of a snapshot folder: one line of JSON, its BLAKE3 in hex on the next. Written last, under their names at
//! once: what a list names is there.
//!
//! ```text
//!   FOLDER/databases/NAME/TIME.json    of what a snapshot of a database consists; NAME with '/' as %2F
//!   FOLDER/nodes/TIME.json             the lists of all databases of a node; TIME in ms, 15 digits
//! ```

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinator::backup::{BackupError, damaged};
use crate::world::Disk;

/// The version of both kinds of lists.
pub(super) const FORMAT: u32 = 1;

const NODES: &str = "nodes";

/// What a snapshot of a database consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: u32,
    /// The settings of the database, as the first frame of a dump holds them.
    pub settings: String,
    /// Milliseconds since 1970.
    pub taken_ms: u64,
    pub live: u64,
    pub deleted: u64,
    pub locals: u64,
    pub purges: u64,
    /// Objects of documents that were read once.
    pub base: Vec<String>,
    /// Objects of documents of which the last one counts, also before those of `base`.
    pub tail: Vec<String>,
    /// Objects of local documents and purges.
    pub others: Vec<String>,
    /// Documents of `base` and `tail` that were purged before the end.
    pub gone: Vec<String>,
}

/// The databases of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeManifest {
    pub format: u32,
    /// Milliseconds since 1970.
    pub taken_ms: u64,
    /// Their lists, within the folder.
    pub databases: Vec<String>,
}

/// A list that can be read back.
pub(super) trait List: Serialize + DeserializeOwned {
    fn format(&self) -> u32;
}

impl List for Manifest {
    fn format(&self) -> u32 {
        self.format
    }
}

impl List for NodeManifest {
    fn format(&self) -> u32 {
        self.format
    }
}

/// A list as it is written.
pub(super) fn sealed(list: &impl List) -> Vec<u8> {
    // Invariant: numbers and texts always serialize.
    let text = serde_json::to_string(list).expect("a list serializes");
    format!("{text}\n{}\n", blake3::hash(text.as_bytes()).to_hex()).into_bytes()
}

/// The list of the file `shown`.
pub(super) fn unsealed<L: List>(bytes: Vec<u8>, shown: &Path) -> Result<L, BackupError> {
    let broken = || damaged(format_args!("{} is not as it was written", shown.display()));
    let text = String::from_utf8(bytes).map_err(|_| broken())?;
    let (text, hash) = text.split_once('\n').ok_or_else(broken)?;
    if hash.strip_suffix('\n') != Some(blake3::hash(text.as_bytes()).to_hex().as_str()) {
        return Err(broken());
    }
    let list: L = serde_json::from_str(text).map_err(|_| broken())?;
    match list.format() {
        FORMAT => Ok(list),
        other => Err(damaged(format_args!("format {other} of snapshots is not known to this settee"))),
    }
}

/// The name of the list of a database's snapshot, within the folder.
pub(super) fn of_database(name: &str, taken_ms: u64) -> String {
    format!("{}/{taken_ms:015}.json", databases(name))
}

/// The name of the list of a node's snapshot, within the folder.
pub(super) fn of_node(taken_ms: u64) -> String {
    format!("{NODES}/{taken_ms:015}.json")
}

fn databases(name: &str) -> String {
    format!("databases/{}", name.replace('/', "%2F"))
}

/// The newest snapshot of a database in `folder`; `None` when there is none. Blocks.
pub fn latest(disk: &dyn Disk, folder: &Path, database: &str) -> Result<Option<PathBuf>, BackupError> {
    newest_in(disk, &folder.join(databases(database)))
}

/// The newest snapshot of a node in `folder`; `None` when there is none. Blocks.
pub fn latest_of_node(disk: &dyn Disk, folder: &Path) -> Result<Option<PathBuf>, BackupError> {
    newest_in(disk, &folder.join(NODES))
}

fn newest_in(disk: &dyn Disk, dir: &Path) -> Result<Option<PathBuf>, BackupError> {
    if !disk.exists(dir)? {
        return Ok(None);
    }
    let names = disk.list(dir)?.into_iter().map(|entry| entry.name);
    Ok(names.filter(|name| name.ends_with(".json")).max().map(|name| dir.join(name)))
}
