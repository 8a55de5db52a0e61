//! Writer of the files of a snapshot folder: a file appears complete under its name, or not at all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::coordinator::backup::BackupError;
use crate::coordinator::backup::list::{self, Object};
use crate::limits;
use crate::storage::sync_names_above;
use crate::world::{Disk, Env, File, OpenMode, Pool};

/// Where the object of that hash lies.
pub(super) fn object_path(folder: &Path, name: &str) -> PathBuf {
    folder.join("objects").join(name.get(..2).unwrap_or("xx")).join(name)
}

/// The files of a snapshot folder.
pub(super) struct Objects {
    pub env: Env,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Bytes of objects that were written, and of those that were there.
    pub written: u64,
    pub kept: u64,
    /// Where objects lie that were there already.
    kept_in: BTreeSet<PathBuf>,
    /// Whether those are kept only where they are as they were written.
    checks: bool,
}

/// An object whose hash is not known yet.
pub(super) struct Unnamed {
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
}

impl Unnamed {
    pub(super) async fn write(&mut self, env: &Env, bytes: Vec<u8>) -> Result<(), BackupError> {
        let (file, at) = (Arc::clone(&self.file), self.bytes);
        self.bytes += bytes.len() as u64;
        Ok(env.blocking(Pool::Background, move || file.write_at(at, &bytes)).await?)
    }
}

impl Objects {
    /// Those of `folder`, which is made with the first one.
    pub(super) fn new(env: &Env, folder: &Path) -> Objects {
        let (env, disk, folder) = (env.clone(), env.disk(), folder.to_path_buf());
        Objects { env, disk, folder, written: 0, kept: 0, kept_in: BTreeSet::new(), checks: false }
    }

    /// As [`Objects::new`]; objects that are there already are read, and written again where they are damaged.
    pub(super) fn checked(env: &Env, folder: &Path) -> Objects {
        Objects { checks: true, ..Objects::new(env, folder) }
    }

    /// Stores an object.
    pub(super) async fn put(&mut self, bytes: Vec<u8>) -> Result<Object, BackupError> {
        let object = Object { name: blake3::hash(&bytes).to_hex().to_string(), bytes: bytes.len() as u64 };
        if !self.has(&object.name, object.bytes).await? {
            let mut fresh = self.begin().await?;
            fresh.write(&self.env.clone(), bytes).await?;
            self.name(fresh, &object.name).await?;
        }
        Ok(object)
    }

    /// Whether the object is there already, and counts it then.
    pub(super) async fn has(&mut self, name: &str, bytes: u64) -> Result<bool, BackupError> {
        let (disk, path) = (Arc::clone(&self.disk), object_path(&self.folder, name));
        let dir = path.parent().map(Path::to_path_buf);
        let find = move || {
            if !disk.exists(&path)? {
                return Ok(None);
            }
            let file = disk.open(&path, OpenMode::Read)?;
            std::io::Result::Ok((file.len()? == bytes).then_some(file))
        };
        let there = match self.env.blocking(Pool::Background, find).await? {
            Some(file) if self.checks => self.fits(file, (name, bytes)).await,
            found => found.is_some(),
        };
        if there {
            self.kept += bytes;
            self.kept_in.extend(dir);
        }
        Ok(there)
    }

    /// The bytes of an object that is there already and is what its name says, and counts it then.
    pub(super) async fn whole(&mut self, name: &str) -> Option<Vec<u8>> {
        let (disk, path, hash) = (Arc::clone(&self.disk), object_path(&self.folder, name), name.to_owned());
        let dir = path.parent().map(Path::to_path_buf);
        let read = move || {
            let file = disk.open(&path, OpenMode::Read).ok()?;
            let mut bytes = vec![0; file.len().ok()? as usize];
            file.read_at(0, &mut bytes).ok()?;
            (blake3::hash(&bytes).to_hex().as_str() == hash).then_some(bytes)
        };
        let found = self.env.blocking(Pool::Background, read).await;
        if let Some(bytes) = &found {
            self.kept += bytes.len() as u64;
            self.kept_in.extend(dir);
        }
        found
    }

    /// Takes over what other objects of the same folder were counted and found.
    pub(super) fn absorb(&mut self, other: Objects) {
        self.written += other.written;
        self.kept += other.kept;
        self.kept_in.extend(other.kept_in);
    }

    /// Whether an object is what its name says. One that cannot be read is not.
    async fn fits(&self, file: Arc<dyn File>, (name, bytes): (&str, u64)) -> bool {
        let (mut hash, mut at) = (blake3::Hasher::new(), 0);
        while at < bytes {
            let size = (bytes - at).min(limits::BLOB_STEP_BYTES as u64);
            let file = Arc::clone(&file);
            let read = move || {
                let mut piece = vec![0; size as usize];
                file.read_at(at, &mut piece).map(|()| piece)
            };
            match self.env.blocking(Pool::Background, read).await {
                Ok(piece) => drop(hash.update(&piece)),
                Err(error) => {
                    tracing::warn!(%error, object = name, "an object of a snapshot is written again");
                    return false;
                }
            }
            at += size;
        }
        let fits = hash.finalize().to_hex().as_str() == name;
        if !fits {
            tracing::warn!(object = name, "a damaged object of a snapshot is written again");
        }
        fits
    }

    /// The time of a new list in that directory of the folder: now, or behind that of the newest there. So it is the
    /// newest whatever the clock did.
    pub(super) async fn time_in(&self, dir: &str) -> Result<u64, BackupError> {
        let (disk, dir) = (Arc::clone(&self.disk), self.folder.join(dir));
        let newest = self.env.blocking(Pool::Background, move || list::newest_in(disk.as_ref(), &dir)).await?;
        let now_ms = u64::try_from(self.env.wall().as_millis()).unwrap_or(u64::MAX);
        Ok(newest.map_or(now_ms, |(time_ms, _)| now_ms.max(time_ms.saturating_add(1))))
    }

    /// An object that is to be written.
    pub(super) async fn begin(&self) -> Result<Unnamed, BackupError> {
        let (disk, folder) = (Arc::clone(&self.disk), self.folder.clone());
        let path = folder.join(format!("new-{:016x}", self.env.random_u64()));
        let open = move || {
            disk.create_dir_all(&folder)?;
            let file = disk.open(&path, OpenMode::CreateNew)?;
            std::io::Result::Ok(Unnamed { path, file, bytes: 0 })
        };
        Ok(self.env.blocking(Pool::Background, open).await?)
    }

    /// Removes an object that gets no name.
    pub(super) async fn abandon(&self, object: Unnamed) -> Result<(), BackupError> {
        let (disk, Unnamed { path, file, .. }) = (Arc::clone(&self.disk), object);
        drop(file);
        Ok(self.env.blocking(Pool::Background, move || disk.remove(&path)).await?)
    }

    /// Makes an object durable under its name.
    pub(super) async fn name(&mut self, object: Unnamed, name: &str) -> Result<(), BackupError> {
        self.written += object.bytes;
        let path = object_path(&self.folder, name);
        self.settle(object, path).await
    }

    /// Writes a list: what it lists is durable before.
    pub(super) async fn write_list(&self, file: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        self.sync_names().await?;
        let mut object = self.begin().await?;
        object.write(&self.env, bytes).await?;
        self.settle(object, self.folder.join(file)).await
    }

    /// Makes the names durable of objects that were there already, and the way to the folder.
    async fn sync_names(&self) -> Result<(), BackupError> {
        let (disk, folder, kept_in) = (Arc::clone(&self.disk), self.folder.clone(), self.kept_in.clone());
        let sync = move || {
            disk.create_dir_all(&folder)?;
            let above = kept_in.iter().flat_map(|dir| dir.ancestors().take_while(|above| above.starts_with(&folder)));
            above.collect::<BTreeSet<_>>().into_iter().try_for_each(|dir| disk.sync_dir(dir))?;
            sync_names_above(disk.as_ref(), &folder)
        };
        Ok(self.env.blocking(Pool::Background, sync).await?)
    }

    async fn settle(&self, object: Unnamed, path: PathBuf) -> Result<(), BackupError> {
        let (disk, folder) = (Arc::clone(&self.disk), self.folder.clone());
        let settle = move || {
            object.file.sync()?;
            let dir = path.parent().unwrap_or(&folder);
            disk.create_dir_all(dir)?;
            disk.rename(&object.path, &path)?;
            for above in dir.ancestors().take_while(|above| above.starts_with(&folder)) {
                disk.sync_dir(above)?;
            }
            std::io::Result::Ok(())
        };
        Ok(self.env.blocking(Pool::Background, settle).await?)
    }
}
