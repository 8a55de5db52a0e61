//! Brings back snapshots from a bucket: all that a restore of the chosen lists reads, then those lists.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;

use futures_util::stream::{self, StreamExt as _};

use crate::coordinator::backup::item::{self, DocumentItem};
use crate::coordinator::backup::list::{self, Manifest, NodeManifest};
use crate::coordinator::backup::objects::Objects;
use crate::coordinator::backup::s3::fetch::To;
use crate::coordinator::backup::s3::{Order, Remote, id, is_list};
use crate::coordinator::backup::{BackupError, damaged, frame};
use crate::observe::told::{Tell, Told};
use crate::wire::hex;
use crate::world::sync::Mutex;
use crate::world::{Env, Pool, lock};

/// Which snapshots are brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The newest one of a node.
    Node,
    /// The newest one of the database of this name.
    Database(String),
    /// All.
    All,
}

/// What was brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// Objects that came.
    pub objects: u64,
    /// Their bytes, as they are in the folder.
    pub bytes: u64,
    /// Objects that were in the folder.
    pub objects_there: u64,
    /// Lists that were written.
    pub lists: u64,
    /// What is missing or damaged in the bucket; each was told.
    pub failed: u64,
}

/// Brings the chosen snapshots from the bucket into `folder`, which is made when missing.
///
/// # Errors
/// When there is no backup with that key or no such snapshot, the store cannot be asked, or the folder not be written.
/// What is missing or damaged is told and counted; lists that need it are not written.
pub async fn pull(
    env: &Env,
    order: &Order,
    folder: &Path,
    choice: &Choice,
    tell: Tell<'_>,
) -> Result<Pulled, BackupError> {
    let remote = Remote::new(env, order)?;
    if !remote.check().await? {
        return Err(nothing(&remote));
    }
    let dir = match choice {
        Choice::Database(name) => Some(list::databases(name)),
        Choice::Node | Choice::All => None,
    };
    let there = remote.lists_there(dir.as_deref()).await?;
    let newest =
        |dir: &str| there.keys().rfind(|name| name.strip_prefix(dir).is_some_and(|r| r.starts_with('/'))).cloned();
    let lists: Vec<String> = match choice {
        Choice::All => there.keys().cloned().collect(),
        Choice::Database(_) => newest(dir.as_deref().unwrap_or_default()).into_iter().collect(),
        Choice::Node => newest(list::NODES).into_iter().collect(),
    };
    if lists.is_empty() {
        return Err(match choice {
            Choice::Database(name) => no_such(&remote, &format!("there is no snapshot of {name}")),
            _ => no_such(&remote, "there is no snapshot of a node: name a database (--db), or take all (--all-times)"),
        });
    }
    let mut walk = Walk::new(&remote, Some(folder), tell);
    remote.progress.told(env, tell, "fetched", walk.all(lists)).await?;
    Ok(walk.end())
}

/// What is in the bucket: each database, and the node as `None`, with the times of its snapshots in milliseconds since
/// 1970, newest first.
///
/// # Errors
/// As [`pull`].
pub async fn lists(env: &Env, order: &Order) -> Result<Vec<(Option<String>, Vec<u64>)>, BackupError> {
    let remote = Remote::new(env, order)?;
    if !remote.check().await? {
        return Err(nothing(&remote));
    }
    Ok(times(remote.lists_there(None).await?.keys()))
}

fn times<'n>(lists: impl Iterator<Item = &'n String>) -> Vec<(Option<String>, Vec<u64>)> {
    let mut out: BTreeMap<Option<String>, Vec<u64>> = BTreeMap::new();
    for name in lists {
        let Some((dir, file)) = name.rsplit_once('/') else { continue };
        let database = dir.strip_prefix("databases/").map(|name| name.replace("%2F", "/"));
        out.entry(database).or_default().extend(file.strip_suffix(".json").and_then(|time| time.parse::<u64>().ok()));
    }
    out.values_mut().for_each(|times| times.sort_unstable_by(|a, b| b.cmp(a)));
    out.into_iter().collect()
}

fn no_such(remote: &Remote, why: &str) -> BackupError {
    BackupError::Io(format!("{}: {why}", remote.bucket.place()))
}

fn nothing(remote: &Remote) -> BackupError {
    no_such(remote, "there is no backup")
}

/// Goes through all that lists name, and brings it into a folder, or only looks whether it is as it was sent.
pub(super) struct Walk<'w> {
    remote: &'w Remote,
    folder: Option<&'w Path>,
    tell: Tell<'w>,
    /// Objects that were looked at, and whether each is whole with all that it needs.
    known: Mutex<BTreeMap<[u8; 32], bool>>,
    /// Lists of databases that are whole.
    lists: BTreeMap<String, bool>,
    /// What was found in the folder, and written there.
    there: Mutex<Option<Objects>>,
    pulled: Mutex<Pulled>,
}

impl<'w> Walk<'w> {
    /// Without a `folder` it only looks.
    pub(super) fn new(remote: &'w Remote, folder: Option<&'w Path>, tell: Tell<'w>) -> Walk<'w> {
        let there = Mutex::new(folder.map(|folder| Objects::new(&remote.env, folder)));
        let (known, pulled) = (Mutex::default(), Mutex::default());
        Walk { remote, folder, tell, known, lists: BTreeMap::new(), there, pulled }
    }

    /// What became of it.
    pub(super) fn end(&self) -> Pulled {
        *lock(&self.pulled)
    }

    /// Goes through these lists of databases and of nodes; for one of a node, through those of its databases.
    pub(super) async fn all(&mut self, lists: impl IntoIterator<Item = String>) -> Result<(), BackupError> {
        let (nodes, databases): (Vec<_>, Vec<_>) = lists.into_iter().partition(|name| name.starts_with("nodes/"));
        for name in databases {
            self.database(name).await?;
        }
        for name in nodes {
            let (bytes, node) = match self.remote.fetch_list::<NodeManifest>(&name).await {
                Ok(list) => list,
                Err(error) => {
                    self.failed(error)?;
                    continue;
                }
            };
            let mut is_whole = true;
            for database in node.databases {
                is_whole &= is_list(&database) && self.database(database).await?;
            }
            self.write(&name, bytes, is_whole).await?;
        }
        Ok(())
    }

    /// Goes through the list of a database; whether all that it needs is whole.
    async fn database(&mut self, name: String) -> Result<bool, BackupError> {
        if let Some(is_whole) = self.lists.get(&name) {
            return Ok(*is_whole);
        }
        let is_whole = match self.remote.fetch_list::<Manifest>(&name).await {
            Ok((bytes, manifest)) => {
                let is_whole = self.objects(&manifest).await?;
                self.write(&name, bytes, is_whole).await?;
                is_whole
            }
            Err(error) => {
                self.failed(error)?;
                false
            }
        };
        self.lists.insert(name, is_whole);
        Ok(is_whole)
    }

    /// Goes through all objects that a list names, several at once.
    async fn objects(&self, manifest: &Manifest) -> Result<bool, BackupError> {
        let documents = manifest.objects().map(|name| (name, true));
        let named = documents.chain(manifest.others.iter().map(|name| (name.as_str(), false)));
        let looks = named.map(|(name, has_documents)| self.once(name, self.held(name, has_documents)));
        all_of(stream::iter(looks).buffer_unordered(self.remote.parallel)).await
    }

    /// Does the work for an object that was not looked at yet.
    async fn once(
        &self,
        name: &str,
        work: impl Future<Output = Result<bool, BackupError>>,
    ) -> Result<bool, BackupError> {
        let Some(id) = id(name) else {
            return self.failed(damaged(format_args!("{name:?} is no name of an object"))).map(|()| false);
        };
        let known = lock(&self.known).get(&id).copied();
        if let Some(is_whole) = known {
            return Ok(is_whole);
        }
        let is_whole = match work.await {
            Ok(is_whole) => is_whole,
            Err(error) => self.failed(error).map(|()| false)?,
        };
        lock(&self.known).insert(id, is_whole);
        Ok(is_whole)
    }

    /// An object that is held in memory, and the contents of attachments that its documents need.
    async fn held(&self, name: &str, has_documents: bool) -> Result<bool, BackupError> {
        let mut objects = self.folder.map(|folder| Objects::checked(&self.remote.env, folder));
        let found = match &mut objects {
            Some(objects) => objects.whole(name).await,
            None => None,
        };
        let is_there = found.is_some();
        let bytes = match found {
            Some(bytes) => bytes,
            None => self.remote.fetch(name, To::Memory).await?.bytes,
        };
        let size = bytes.len() as u64;
        let contents = move || (if has_documents { contents_of(&bytes) } else { Ok(Vec::new()) }, bytes);
        let (contents, bytes) = self.remote.env.blocking(Pool::Background, contents).await;
        if let (Some(objects), false) = (&mut objects, is_there) {
            objects.put(bytes).await?;
        }
        self.count(objects, is_there, size);
        let contents = contents?;
        let looks = contents.iter().map(|(name, bytes)| self.once(name, self.content(name, *bytes)));
        all_of(stream::iter(looks).buffer_unordered(self.remote.parallel)).await
    }

    /// The content of an attachment.
    async fn content(&self, name: &str, bytes: u64) -> Result<bool, BackupError> {
        let Some(folder) = self.folder else {
            self.remote.fetch(name, To::Nowhere).await?;
            self.count(None, false, bytes);
            return Ok(true);
        };
        let mut objects = Objects::checked(&self.remote.env, folder);
        let is_there = objects.has(name, bytes).await?;
        if !is_there {
            let fetched = self.remote.fetch(name, To::File(&objects)).await?;
            if let Some(file) = fetched.file {
                objects.name(file, name).await?;
            }
        }
        self.count(Some(objects), is_there, bytes);
        Ok(true)
    }

    fn count(&self, objects: Option<Objects>, is_there: bool, bytes: u64) {
        if let (Some(there), Some(objects)) = (&mut *lock(&self.there), objects) {
            there.absorb(objects);
        }
        let mut pulled = lock(&self.pulled);
        match is_there {
            true => pulled.objects_there += 1,
            false => (pulled.objects, pulled.bytes) = (pulled.objects + 1, pulled.bytes + bytes),
        }
        self.remote.progress.done();
    }

    /// Writes a list where it is wanted and can be used.
    async fn write(&mut self, name: &str, bytes: Vec<u8>, is_whole: bool) -> Result<(), BackupError> {
        if !is_whole {
            let what = if self.folder.is_some() { "is not written" } else { "cannot be restored" };
            return self.failed(damaged(format_args!("{name} {what}: not all that it needs is whole")));
        }
        // Taken out, so that no lock is held meanwhile.
        let Some(objects) = lock(&self.there).take() else { return Ok(()) };
        objects.write_list(name, bytes).await?;
        *lock(&self.there) = Some(objects);
        lock(&self.pulled).lists += 1;
        Ok(())
    }

    /// Tells and counts what is missing or damaged.
    ///
    /// # Errors
    /// Any other error.
    fn failed(&self, error: BackupError) -> Result<(), BackupError> {
        let BackupError::Damaged(_) = &error else { return Err(error) };
        lock(&self.pulled).failed += 1;
        (self.tell)(Told::Line(format!("failed: {error}")));
        Ok(())
    }
}

/// Whether all are whole.
async fn all_of(mut looks: impl stream::Stream<Item = Result<bool, BackupError>> + Unpin) -> Result<bool, BackupError> {
    let mut is_whole = true;
    while let Some(look) = looks.next().await {
        is_whole &= look?;
    }
    Ok(is_whole)
}

/// The contents of attachments that documents of an object need and that do not stand in it: names of objects, and
/// bytes.
pub(super) fn contents_of(mut object: &[u8]) -> Result<Vec<(String, u64)>, BackupError> {
    let (mut out, mut inline, mut at) = (BTreeMap::new(), BTreeSet::new(), 0);
    while let Some(next) = frame::read(&mut object, &mut at)? {
        match next.kind {
            item::CONTENT => {
                let (document, content, _) = item::decode_content(&next.payload)?;
                inline.insert((document, content));
            }
            item::DOCUMENT => {
                let document = DocumentItem::decode(&next.payload)?;
                let contents = document.contents().into_iter();
                let others = contents.filter(|content| !inline.contains(&(document.id.clone(), content.blob)));
                out.extend(others.map(|content| (hex::encode(&content.blob), content.stored_length)));
            }
            _ => {}
        }
    }
    Ok(out.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_each_database_are_told_newest_first() {
        let names = [
            "databases/a%2Fb/000000000000007.json",
            "databases/a%2Fb/000000000000009.json",
            "nodes/000000000000008.json",
        ];
        let told = times(names.map(str::to_owned).iter());
        assert_eq!(told, [(None, vec![8]), (Some("a/b".to_owned()), vec![9, 7])]);
    }
}
