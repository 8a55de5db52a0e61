//! Operations on a data directory while no node runs on it. Lines for the operator go to `say`.

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Config, Sources};
use crate::coordinator::backup::{self, BackupError, Counts, Restored};
use crate::coordinator::{self, CheckReport, Coordinator, Options};
use crate::http::Problem;
use crate::storage::{OpenError, Storage, StorageError, StorageOptions};
use crate::world::scratch::scratch;
use crate::world::{Env, Pool};

mod salvage;

pub use salvage::{Salvaged, salvage};

/// Why a directory could not be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfflineError {
    /// What is there cannot be read as it was written: one line that says what and where.
    Damaged(String),
    /// It is no data directory, it is in use, or the disk fails.
    Unusable(String),
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OfflineError::Damaged(what) | OfflineError::Unusable(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for OfflineError {}

impl From<OpenError> for OfflineError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Storage(error) => error.into(),
            other => OfflineError::Unusable(other.to_string()),
        }
    }
}

impl From<StorageError> for OfflineError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Corrupt(_) | StorageError::CorruptThere(_) => OfflineError::Damaged(error.to_string()),
            StorageError::Io(_) | StorageError::NoFiles(_) | StorageError::NoRoom => {
                OfflineError::Unusable(error.to_string())
            }
        }
    }
}

/// Reads everything in `dir` and compares it; changes nothing. The directory is locked meanwhile.
///
/// # Errors
/// [`OfflineError::Damaged`] when the data cannot even be opened; what is found in data that can is in the report.
pub async fn check(env: &Env, dir: &Path) -> Result<CheckReport, OfflineError> {
    let storage = open_unchanged(env, &scratch(env), dir).await?;
    Ok(coordinator::check(&storage).await?)
}

impl From<BackupError> for OfflineError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Damaged(_) => OfflineError::Damaged(error.to_string()),
            BackupError::Shard(crate::coordinator::ShardError::Storage(error)) => error.into(),
            other => OfflineError::Unusable(other.to_string()),
        }
    }
}

/// Writes the database `name` of `dir` to `out` as one stream, and lines about what is damaged and left out to `say`.
/// Changes nothing in `dir`.
///
/// # Errors
/// [`OfflineError`]; what was written is then no whole stream and will not be loaded.
pub async fn dump(
    env: &Env,
    (dir, name): (&Path, &str),
    out: &mut (dyn Write + Send),
    say: &mut (dyn FnMut(String) + Send),
) -> Result<Counts, OfflineError> {
    let unchanged = scratch(env);
    let coordinator = coordinator(&unchanged, dir, open_unchanged(env, &unchanged, dir).await?).await?;
    let database = coordinator.database(name).map_err(BackupError::from)?;
    let mut left_out = |what: backup::LeftOut| match what {
        backup::LeftOut::Superseded => say(format!("left out: {what}")),
        what => say(format!("left out, damaged: {what}")),
    };
    Ok(backup::dump(&database, out, &mut left_out).await?)
}

/// Reads a stream of [`dump`] from `input` into a new database of `dir`, which is made when missing. Answers its name.
///
/// # Errors
/// [`OfflineError`]; no database stays then.
pub async fn load(
    env: &Env,
    dir: &Path,
    name: Option<&str>,
    input: &mut (dyn Read + Send),
) -> Result<(String, Counts), OfflineError> {
    let storage = Storage::open(env.clone(), dir, StorageOptions::default()).await?;
    let coordinator = coordinator(env, dir, storage).await?;
    Ok(backup::load(&coordinator, name, input).await?)
}

/// Makes a database of `dir` from a snapshot: the newest of `name` in the folder `from`, or the one that the file
/// `from` lists. It gets the name `new_name`, or the one that it had.
///
/// # Errors
/// [`OfflineError`]; no database stays then.
pub async fn restore(
    env: &Env,
    from: &Path,
    dir: &Path,
    (name, new_name): (&str, Option<&str>),
) -> Result<Restored, OfflineError> {
    let (folder, list) = find_list(env, from, Some(name)).await?;
    let storage = Storage::open(env.clone(), dir, StorageOptions::default()).await?;
    let coordinator = coordinator(env, dir, storage).await?;
    let new_name = new_name.or(Some(name));
    Ok(backup::restore(env, &coordinator, (&folder, &list), new_name).await?)
}

/// Makes all databases of a node's snapshot in `dir`: the newest one in the folder `from`, or the one that the file
/// `from` lists.
///
/// # Errors
/// [`OfflineError`]; none of the databases stays then.
pub async fn restore_node(env: &Env, from: &Path, dir: &Path) -> Result<Vec<Restored>, OfflineError> {
    let (folder, list) = find_list(env, from, None).await?;
    let storage = Storage::open(env.clone(), dir, StorageOptions::default()).await?;
    let coordinator = coordinator(env, dir, storage).await?;
    Ok(backup::restore_node(env, &coordinator, (&folder, &list)).await?)
}

/// The folder of a snapshot of a database, or of a node, and the file that lists it.
async fn find_list(env: &Env, from: &Path, name: Option<&str>) -> Result<(PathBuf, PathBuf), OfflineError> {
    let unusable = |what: &str| OfflineError::Unusable(format!("{}: {what}", from.display()));
    if from.extension().is_some_and(|e| e == "json") {
        let above = if name.is_some() { 3 } else { 2 };
        let folder = from.ancestors().nth(above).ok_or_else(|| unusable("it lies in no snapshot folder"))?;
        return Ok((folder.to_path_buf(), from.to_path_buf()));
    }
    let (disk, folder, of) = (env.disk(), from.to_path_buf(), name.map(str::to_owned));
    let latest = move || match of {
        Some(of) => backup::latest(disk.as_ref(), &folder, &of),
        None => backup::latest_of_node(disk.as_ref(), &folder),
    };
    let none = if name.is_some() { "no snapshot of that database" } else { "no snapshot of a whole node" };
    let latest = env.blocking(Pool::Background, latest).await?;
    Ok((from.to_path_buf(), latest.ok_or_else(|| unusable(none))?))
}

/// The databases of an open directory.
async fn coordinator(env: &Env, dir: &Path, storage: Storage) -> Result<Arc<Coordinator>, OfflineError> {
    let sources = Sources { fallback: Some(dir.join("local.ini")), ..Sources::default() };
    let config = Config::load(env, sources).await.map_err(|e| OfflineError::Unusable(e.to_string()))?;
    let options = Options { node: super::name(&config), peers: None, system_databases: false };
    let opened = Coordinator::open(env.clone(), config, storage, options).await;
    opened.map_err(|error| OfflineError::Unusable(Problem::from(error).to_string()))
}

/// Opens `dir` as a node would, recovery included, and leaves it as it is.
async fn open_unchanged(env: &Env, unchanged: &Env, dir: &Path) -> Result<Storage, OfflineError> {
    require_data(env, dir).await?;
    Ok(Storage::open(unchanged.clone(), dir, StorageOptions::default()).await?)
}

/// A mistyped name must not look like an empty directory without faults.
async fn require_data(env: &Env, dir: &Path) -> Result<(), OfflineError> {
    let (disk, format) = (env.disk(), dir.join("format"));
    let there = env.blocking(Pool::Foreground, move || disk.exists(&format)).await.map_err(StorageError::from)?;
    let (disk, store) = (env.disk(), dir.join("store"));
    let has_store = env.blocking(Pool::Foreground, move || disk.exists(&store)).await.map_err(StorageError::from)?;
    match (there, has_store) {
        (true, _) => Ok(()),
        (false, true) => {
            Err(OfflineError::Damaged(format!("{}: the file format is missing, of a data directory", dir.display())))
        }
        (false, false) => Err(OfflineError::Unusable(format!("{} is no data directory", dir.display()))),
    }
}
