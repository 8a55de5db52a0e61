//! The lists of a snapshot folder: one line of JSON, its BLAKE3 in hex on the next. Written last, under their names at
//! once: what a list names is there.
//!
//! ```text
//!   FOLDER/databases/NAME/TIME.json    of what a snapshot of a database consists; NAME with '/' as %2F
//!   FOLDER/nodes/TIME.json             the lists of all databases of a node; TIME in ms, 15 digits
//! ```

use std::mem::take;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinator::backup::{BackupError, damaged};
use crate::world::Disk;

/// The directory of the lists of nodes, within the folder.
pub(super) const NODES: &str = "nodes";

/// The directory of the lists of databases.
const DATABASES: &str = "databases";

/// What a snapshot of a database consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: u32,
    /// The settings of the database, as the first frame of a dump holds them.
    pub settings: String,
    /// Milliseconds since 1970; more than the newest list before it has, whatever the clock did.
    pub taken_ms: u64,
    /// How far each range was read, as an update sequence; and its last purge, in ring order.
    #[serde(default)]
    pub seq: String,
    #[serde(default)]
    pub purged: Vec<u64>,
    pub live: u64,
    pub deleted: u64,
    pub locals: u64,
    pub purges: u64,
    /// Of all documents, see [`Summary::digest_text`](crate::shard::Summary::digest_text).
    #[serde(default)]
    pub digest: String,
    /// What was written together, the oldest first. The first one has each document once; of any other document the
    /// last word counts, in whatever layer it stands.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// Objects of local documents and purges.
    pub others: Vec<String>,
    /// What lists of format 1 had in place of layers: objects of a first and a second one, and what was gone by then.
    #[serde(default, skip_serializing)]
    base: Vec<String>,
    #[serde(default, skip_serializing)]
    tail: Vec<String>,
    #[serde(default, skip_serializing)]
    gone: Vec<String>,
}

/// A part of a snapshot: documents that changed since the part before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layer {
    pub objects: Vec<Object>,
    /// Documents of this layer and those before it of which nothing was left at its end.
    pub gone: Vec<String>,
}

/// Where documents stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Object {
    /// Its hash.
    pub name: String,
    pub bytes: u64,
}

impl Manifest {
    /// That of a database with these settings, of which nothing was read yet.
    pub(super) fn of(settings: String) -> Manifest {
        Manifest { format: Manifest::FORMAT, settings, ..Manifest::default() }
    }

    /// The names of the objects of documents.
    pub(super) fn objects(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().flat_map(|layer| &layer.objects).map(|object| object.name.as_str())
    }
}

impl Layer {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.gone.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        let gone: usize = self.gone.iter().map(|id| id.len() + 3).sum();
        gone as u64 + self.objects.iter().map(|object| object.bytes).sum::<u64>()
    }
}

/// The databases of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeManifest {
    pub format: u32,
    /// As of a database.
    pub taken_ms: u64,
    /// Their lists, within the folder.
    pub databases: Vec<String>,
}

/// A list that can be read back.
pub(super) trait List: Serialize + DeserializeOwned {
    /// The version that is written. All before it can be read.
    const FORMAT: u32;

    /// What was read of some version, as one of the last.
    fn taken_over(self) -> Self;
}

impl List for Manifest {
    const FORMAT: u32 = 2;

    fn taken_over(mut self) -> Manifest {
        if self.format == 1 {
            let named = |names: Vec<String>| names.into_iter().map(|name| Object { name, bytes: 0 }).collect();
            let (base, tail, gone) = (take(&mut self.base), take(&mut self.tail), take(&mut self.gone));
            self.layers = vec![Layer { objects: named(base), gone: Vec::new() }, Layer { objects: named(tail), gone }];
        }
        self
    }
}

impl List for NodeManifest {
    const FORMAT: u32 = 1;

    fn taken_over(self) -> NodeManifest {
        self
    }
}

/// What a list of any version says.
#[derive(Deserialize)]
struct Version {
    format: u32,
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
    let Version { format } = serde_json::from_str(text).map_err(|_| broken())?;
    if !(1..=L::FORMAT).contains(&format) {
        return Err(damaged(format_args!("format {format} of snapshots is not known to this settee")));
    }
    serde_json::from_str(text).map(L::taken_over).map_err(|_| broken())
}

/// The name of the list of a database's snapshot, within the folder.
pub(super) fn of_database(name: &str, taken_ms: u64) -> String {
    format!("{}/{taken_ms:015}.json", databases(name))
}

/// The name of the list of a node's snapshot, within the folder.
pub(super) fn of_node(taken_ms: u64) -> String {
    format!("{NODES}/{taken_ms:015}.json")
}

/// The directory of the lists of a database, within the folder.
pub(super) fn databases(name: &str) -> String {
    format!("{DATABASES}/{}", name.replace('/', "%2F"))
}

/// The newest snapshot of a database in `folder`; `None` when there is none. Blocks.
pub fn latest(disk: &dyn Disk, folder: &Path, database: &str) -> Result<Option<PathBuf>, BackupError> {
    Ok(newest_in(disk, &folder.join(databases(database)))?.map(|(_, path)| path))
}

/// The newest snapshot of a node in `folder`; `None` when there is none. Blocks.
pub fn latest_of_node(disk: &dyn Disk, folder: &Path) -> Result<Option<PathBuf>, BackupError> {
    Ok(newest_in(disk, &folder.join(NODES))?.map(|(_, path)| path))
}

/// What lies in a snapshot folder: each database with the times of its snapshots in milliseconds since 1970, newest
/// first, at most `most` of each and at most so many databases. Blocks.
pub fn listed(disk: &dyn Disk, folder: &Path, most: usize) -> Result<Vec<(String, Vec<u64>)>, BackupError> {
    let dir = folder.join(DATABASES);
    if !disk.exists(&dir)? {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for entry in disk.list(&dir)?.into_iter().filter(|entry| entry.is_dir).take(most) {
        let mut times = times_in(disk, &dir.join(&entry.name))?;
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.truncate(most);
        out.push((entry.name.replace("%2F", "/"), times));
    }
    Ok(out)
}

/// The times of the lists in a directory, which is there.
fn times_in(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, BackupError> {
    let time = |name: String| name.strip_suffix(".json")?.parse().ok();
    Ok(disk.list(dir)?.into_iter().filter_map(|entry| time(entry.name)).collect())
}

/// The list of the latest time in a directory, and that time. Blocks.
pub(super) fn newest_in(disk: &dyn Disk, dir: &Path) -> Result<Option<(u64, PathBuf)>, BackupError> {
    if !disk.exists(dir)? {
        return Ok(None);
    }
    let time = |name: &str| name.strip_suffix(".json")?.parse().ok();
    let lists = disk.list(dir)?.into_iter().filter_map(|entry| Some((time(&entry.name)?, entry.name)));
    Ok(lists.max().map(|(time, name)| (time, dir.join(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_format_1_can_be_read_and_those_to_come_cannot() {
        let old = concat!(
            r#"{"format":1,"settings":"{}","taken_ms":7,"live":3,"deleted":0,"locals":0,"purges":1,"#,
            r#""base":["aa"],"tail":["bb","cc"],"others":["dd"],"gone":["x"]}"#
        );
        let sealed_text = |text: &str| format!("{text}\n{}\n", blake3::hash(text.as_bytes()).to_hex()).into_bytes();
        let read = |bytes: Vec<u8>| unsealed::<Manifest>(bytes, Path::new("list"));
        let list = read(sealed_text(old)).unwrap();
        let names = |layer: &Layer| layer.objects.iter().map(|object| object.name.clone()).collect::<Vec<_>>();
        assert_eq!(list.layers.iter().map(names).collect::<Vec<_>>(), [vec!["aa"], vec!["bb", "cc"]]);
        assert_eq!((&list.layers[1].gone[..], &list.seq[..], list.live), (&["x".to_owned()][..], "", 3));
        let new = Manifest { format: Manifest::FORMAT, layers: list.layers.clone(), ..Manifest::default() };
        assert_eq!(read(sealed(&new)).unwrap(), new);
        let later = Manifest { format: Manifest::FORMAT + 1, ..Manifest::default() };
        assert!(matches!(read(sealed(&later)), Err(BackupError::Damaged(why)) if why.contains("format 3")));
    }
}
