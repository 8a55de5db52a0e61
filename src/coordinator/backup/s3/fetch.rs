//! Objects and lists of a bucket as they were before they were sent: opened where they are sealed, with their hash.

use std::path::Path;

use crate::coordinator::backup::list::{self, List};
use crate::coordinator::backup::objects::{Objects, Unnamed};
use crate::coordinator::backup::s3::Remote;
use crate::coordinator::backup::s3::seal::{Key, Opener};
use crate::coordinator::backup::{BackupError, damaged};
use crate::limits;
use crate::wire::client::Repeats;
use crate::world::Pool;

/// Where the bytes of an object go.
#[derive(Clone, Copy)]
pub(super) enum To<'o> {
    /// Nowhere: only their hash is wanted.
    Nowhere,
    /// Into memory.
    Memory,
    /// Into a file that has no name yet.
    File(&'o Objects),
}

/// What came.
pub(super) struct Fetched {
    hash: blake3::Hash,
    /// Its bytes, if memory was asked for.
    pub bytes: Vec<u8>,
    /// The file, if one was asked for.
    pub file: Option<Unnamed>,
}

/// Why an object did not come.
enum Broken {
    /// It broke off, and may come when it is asked for again.
    Passing(BackupError),
    Final(BackupError),
}

impl From<BackupError> for Broken {
    fn from(error: BackupError) -> Self {
        Broken::Final(error)
    }
}

/// Makes of the bytes that come what was sent, step by step.
struct Intake {
    opener: Option<Opener>,
    hash: blake3::Hasher,
}

impl Intake {
    fn new(key: Option<&Key>, name: &str) -> Intake {
        Intake { opener: key.map(|key| Opener::new(key, name)), hash: blake3::Hasher::new() }
    }

    /// The bytes that `raw`, the last ones if `is_end`, make known; `None`: it is not as it was sealed.
    fn add(&mut self, raw: Vec<u8>, is_end: bool) -> Option<Vec<u8>> {
        let plain = match &mut self.opener {
            None => raw,
            Some(opener) => {
                let mut plain = Vec::new();
                opener.add(&raw, &mut plain).ok()?;
                if is_end {
                    self.opener.take()?.end(&mut plain).ok()?;
                }
                plain
            }
        };
        self.hash.update(&plain);
        Some(plain)
    }
}

impl Remote {
    /// An object, which is what its name says.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] when it is missing or is something else.
    pub(super) async fn fetch(&self, name: &str, to: To<'_>) -> Result<Fetched, BackupError> {
        let fetched = self.fetch_any(&self.object(name), name, to).await?;
        if fetched.hash.to_hex().as_str() == name {
            return Ok(fetched);
        }
        if let (To::File(objects), Some(file)) = (to, fetched.file) {
            objects.abandon(file).await?;
        }
        Err(damaged(format_args!("object {name} in {} does not fit its hash", self.bucket.place())))
    }

    /// A list of that name within a folder, as it is in a folder, and what it says.
    ///
    /// # Errors
    /// As [`Remote::fetch`].
    pub(super) async fn fetch_list<L: List>(&self, name: &str) -> Result<(Vec<u8>, L), BackupError> {
        let bytes = self.fetch_any(&self.list(name), name, To::Memory).await?.bytes;
        let list = list::unsealed(bytes.clone(), Path::new(name))?;
        Ok((bytes, list))
    }

    /// What lies under `key` and was sent as `name`.
    async fn fetch_any(&self, key: &str, name: &str, to: To<'_>) -> Result<Fetched, BackupError> {
        let mut repeats = Repeats::new(&self.env, limits::BUCKET_RETRIES);
        loop {
            match self.attempt(key, name, to).await {
                Ok(fetched) => return Ok(fetched),
                Err(Broken::Final(error)) => return Err(error),
                Err(Broken::Passing(error)) if !repeats.next(None).await => return Err(error),
                Err(Broken::Passing(_)) => {}
            }
        }
    }

    async fn attempt(&self, key: &str, name: &str, to: To<'_>) -> Result<Fetched, Broken> {
        let To::File(objects) = to else {
            let (hash, bytes) = self.receive(key, name, None, matches!(to, To::Memory)).await?;
            return Ok(Fetched { hash, bytes, file: None });
        };
        let mut file = objects.begin().await?;
        match self.receive(key, name, Some(&mut file), false).await {
            Ok((hash, bytes)) => Ok(Fetched { hash, bytes, file: Some(file) }),
            Err(error) => {
                objects.abandon(file).await?;
                Err(error)
            }
        }
    }

    /// Reads an object to its end. Answers its hash, and its bytes if they are to be kept.
    async fn receive(
        &self,
        key: &str,
        name: &str,
        mut file: Option<&mut Unnamed>,
        keep: bool,
    ) -> Result<(blake3::Hash, Vec<u8>), Broken> {
        let mut answer = self.bucket.get(key).await?.ok_or_else(|| self.bucket.missing(&format!("object {name}")))?;
        let (mut intake, mut kept) = (Intake::new(self.key.as_ref(), name), Vec::new());
        loop {
            let (mut raw, mut is_end) = (Vec::new(), false);
            while raw.len() < limits::BLOB_STEP_BYTES && !is_end {
                let cut = |error| match self.bucket.cut(name, &error) {
                    (error, true) => Broken::Passing(error),
                    (error, false) => Broken::Final(error),
                };
                match answer.next().await.map_err(cut)? {
                    Some(piece) => raw.extend_from_slice(&piece),
                    None => is_end = true,
                }
            }
            self.progress.moved(raw.len() as u64);
            let step = move || {
                let plain = intake.add(raw, is_end);
                (intake, plain)
            };
            let (taken, plain) = self.env.blocking(Pool::Background, step).await;
            intake = taken;
            let unlike = || damaged(format_args!("{name} in {} is not as it was encrypted", self.bucket.place()));
            let plain = plain.ok_or_else(unlike)?;
            match &mut file {
                Some(file) => file.write(&self.env, plain).await?,
                None if keep => kept.extend(plain),
                None => {}
            }
            if is_end {
                return Ok((intake.hash.finalize(), kept));
            }
        }
    }
}
