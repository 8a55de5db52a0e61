//! What can be done with a data directory while no node runs on it. Lines for people go to `say`.

use std::fmt;
use std::path::Path;

use crate::coordinator::{self, CheckReport};
use crate::storage::{OpenError, Storage, StorageError, StorageOptions};
use crate::world::scratch::scratch;
use crate::world::{Env, Pool};

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
            StorageError::Corrupt(_) => OfflineError::Damaged(error.to_string()),
            StorageError::Io(_) | StorageError::NoRoom => OfflineError::Unusable(error.to_string()),
        }
    }
}

/// Reads everything in `dir` and compares it; changes nothing. The directory is locked meanwhile.
///
/// # Errors
/// [`OfflineError::Damaged`] when the data cannot even be opened; what is found in data that can is in the report.
pub async fn check(env: &Env, dir: &Path) -> Result<CheckReport, OfflineError> {
    let storage = open_unchanged(env, dir).await?;
    Ok(coordinator::check(&storage).await?)
}

/// Opens `dir` as a node would, recovery included, and leaves it as it is.
async fn open_unchanged(env: &Env, dir: &Path) -> Result<Storage, OfflineError> {
    require_data(env, dir).await?;
    Ok(Storage::open(scratch(env), dir, StorageOptions::default()).await?)
}

/// A mistyped name must not look like an empty directory without faults.
async fn require_data(env: &Env, dir: &Path) -> Result<(), OfflineError> {
    let (disk, format) = (env.disk(), dir.join("format"));
    let there = env.blocking(Pool::Foreground, move || disk.exists(&format)).await.map_err(StorageError::from)?;
    if there { Ok(()) } else { Err(OfflineError::Unusable(format!("{} is no data directory", dir.display()))) }
}
