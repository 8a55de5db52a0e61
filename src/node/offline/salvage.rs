//! `settee salvage`: copies what is readable of a damaged data directory into a new one.
//!
//! The damaged directory is opened as a node would open it, on a scratch disk, and without what is missing or damaged.
//! Each database is copied as a stream, as with `dump` and `load`: documents with their histories, conflicts and
//! attachments, local documents, purges, the security object. Losses are reported, with the documents that they concern
//! where their names can be read. Sequences begin anew, and views are built again.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use super::{OfflineError, coordinator, require_data};
use crate::coordinator::backup::{self, BackupError, Counts};
use crate::coordinator::{Coordinator, NamesQuery, lost_documents};
use crate::storage::{MissingFiles, Storage, StorageError, StorageOptions};
use crate::world::scratch::scratch;
use crate::world::{Disk, Env, File, OpenMode, Pool};

/// What was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Databases.
    pub databases: u64,
    /// Documents, deleted ones included.
    pub documents: u64,
    /// Losses that were told: damaged or missing parts, and documents that were left out.
    pub lost: u64,
}

/// Takes over what is whole of `dir` into `to`, which is made, or is empty. Lines about what is lost go to `say`.
/// Changes nothing in `dir`.
///
/// # Errors
/// [`OfflineError::Damaged`] when not even the list of databases can be read; those of the new directory.
pub async fn salvage(
    env: &Env,
    dir: &Path,
    to: &Path,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<Salvaged, OfflineError> {
    match require_data(env, dir).await {
        // What is missing is told below.
        Ok(()) | Err(OfflineError::Damaged(_)) => {}
        Err(error) => return Err(error),
    }
    require_empty(env, to).await?;
    let unchanged = scratch(env);
    let options = StorageOptions { missing_files: MissingFiles::TakeOver, ..StorageOptions::default() };
    let storage = Storage::open(unchanged.clone(), dir, options).await?;
    let mut done = Salvaged::default();
    for lost in storage.lost() {
        done.lost += 1;
        say(format!("lost: {}", lost.what));
        lost_documents(&storage, lost.keys)
            .await?
            .into_iter()
            .for_each(|name| say(format!("  may be missing: {name}")));
    }
    let from = coordinator(&unchanged, dir, storage).await?;
    copy_settings(env, dir, to).await?;
    let target = Storage::open(env.clone(), to, StorageOptions::default()).await?;
    let target = coordinator(env, to, target).await?;
    for name in from.database_names(&NamesQuery::default()) {
        match take_over(env, (&from, &target), &name, to, say).await {
            Ok(counts) => {
                done.databases += 1;
                done.documents += counts.documents;
                done.lost += counts.skipped;
            }
            Err(error) => {
                done.lost += 1;
                say(format!("lost: database {name:?}: {error}"));
            }
        }
    }
    Ok(done)
}

/// Brings one database over.
async fn take_over(
    env: &Env,
    (from, to): (&Arc<Coordinator>, &Arc<Coordinator>),
    name: &str,
    dir: &Path,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<Counts, OfflineError> {
    let stream = dir.join("salvage.tmp");
    let open = |mode| {
        let (disk, path) = (env.disk(), stream.clone());
        env.blocking(Pool::Background, move || disk.open(&path, mode).map(|file| Stream { file, at: 0 }))
    };
    let database = from.database(name).map_err(BackupError::from)?;
    let mut out = io::BufWriter::new(open(OpenMode::Create).await.map_err(StorageError::from)?);
    out.get_ref().file.set_len(0).map_err(StorageError::from)?;
    let mut left_out = |what: backup::LeftOut| say(format!("lost: {name}: {what}"));
    let dumped = backup::dump(&database, &mut out, &mut left_out).await?;
    drop(out);
    let mut input = io::BufReader::new(open(OpenMode::Read).await.map_err(StorageError::from)?);
    backup::load(to, Some(name), &mut input).await?;
    let disk = env.disk();
    env.blocking(Pool::Background, move || disk.remove(&stream)).await.map_err(StorageError::from)?;
    Ok(dumped)
}

/// A file that is read or written from its beginning.
struct Stream {
    file: Arc<dyn File>,
    at: u64,
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.file.len()?.saturating_sub(self.at);
        let count = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.file.read_at(self.at, &mut buffer[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

async fn require_empty(env: &Env, to: &Path) -> Result<(), OfflineError> {
    let (disk, at) = (env.disk(), to.to_path_buf());
    let is_empty = env.blocking(Pool::Foreground, move || {
        disk.create_dir_all(&at)?;
        disk.list(&at).map(|entries| entries.is_empty())
    });
    match is_empty.await.map_err(StorageError::from)? {
        true => Ok(()),
        false => Err(OfflineError::Unusable(format!("{} is not empty", to.display()))),
    }
}

/// The settings that requests change, with administrators and the node's name.
async fn copy_settings(env: &Env, dir: &Path, to: &Path) -> Result<(), OfflineError> {
    let (disk, from, to) = (env.disk(), dir.join("local.ini"), to.join("local.ini"));
    let copied = env.blocking(Pool::Foreground, move || copy(disk.as_ref(), &from, &to));
    Ok(copied.await.map_err(StorageError::from)?)
}

fn copy(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    if !disk.exists(from)? {
        return Ok(());
    }
    let source = disk.open(from, OpenMode::Read)?;
    let mut text = vec![0; source.len()? as usize];
    source.read_at(0, &mut text)?;
    let target = disk.open(to, OpenMode::CreateNew)?;
    target.write_at(0, &text)?;
    target.sync()
}
