//! Load of a database from a stream, and the application of single items, which `restore.rs` uses too.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;

use crate::coordinator::backup::item::{self, DocumentItem, EndItem, SettingsItem};
use crate::coordinator::backup::{BackupError, Counts, damaged, frame};
use crate::coordinator::replica::catalogue::{Coordinator, CreateOptions};
use crate::coordinator::replica::database::Database;
use crate::coordinator::topology::error::{DatabaseError, SettingError};
use crate::coordinator::write::WriteOperations;
use crate::coordinator::write::settings::AutoPurge;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::render::BlobId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Edit, EditAttachment, EditOp, LocalDocument};
use crate::storage::{BlobWriter, Hold, StageMode};

/// Reads a stream that `dump` wrote from `input`, which may block, into a new database: `name`, or the one in the
/// stream. Answers its name. When it fails, no database stays.
///
/// # Errors
/// [`BackupError::Damaged`] when a byte of the stream is not as it was written, or its end is missing.
pub async fn load(
    coordinator: &Arc<Coordinator>,
    name: Option<&str>,
    input: &mut (dyn Read + Send),
) -> Result<(String, Counts), BackupError> {
    let mut input = Hashed { input, hash: blake3::Hasher::new() };
    let mut at = 12;
    frame::read_head(&mut input)?;
    let first = frame::read(&mut input, &mut at)?.ok_or_else(|| damaged("it ends too early"))?;
    if first.kind != item::SETTINGS {
        return Err(damaged("it does not begin with a database's settings"));
    }
    let settings = SettingsItem::decode(&first.payload)?;
    let name = name.unwrap_or(&settings.name).to_owned();
    let database = create(coordinator, &name, &settings).await?;
    match fill(&database, &mut input, at).await {
        Ok(counts) => Ok((name, counts)),
        Err(error) => {
            drop(database);
            discard(coordinator, &name).await;
            Err(error)
        }
    }
}

/// Makes an empty database with these settings.
pub(super) async fn create(
    coordinator: &Arc<Coordinator>,
    name: &str,
    settings: &SettingsItem,
) -> Result<Arc<Database>, BackupError> {
    let options = CreateOptions {
        q: Some(settings.q),
        partitioned: settings.partitioned,
        security: Some(settings.security.clone()),
        ..CreateOptions::default()
    };
    coordinator.create_database(name, options).await?;
    let database = coordinator.database(name)?;
    let set = async {
        database.settings().set_revs_limit(settings.revs_limit).await?;
        database.settings().set_purged_infos_limit(settings.purged_infos_limit).await?;
        let wanted = AutoPurge { period: settings.auto_purge.clone(), expires_at: settings.expires_at.clone() };
        match wanted == AutoPurge::default() {
            true => Ok(()),
            false => database.settings().set_retention(wanted).await,
        }
    };
    if let Err(error) = set.await {
        discard(coordinator, name).await;
        return Err(match error {
            SettingError::Unavailable(error) => BackupError::Shard(error),
            SettingError::NoMajority { .. } | SettingError::Undecided { .. } => {
                BackupError::NoMajority(name.to_owned())
            }
            other => damaged(format_args!("its settings are refused: {other:?}")),
        });
    }
    Ok(database)
}

/// Removes a database that was not completed.
pub(super) async fn discard(coordinator: &Arc<Coordinator>, name: &str) {
    match coordinator.delete_database(name).await {
        Ok(_) | Err(DatabaseError::NotFound) => {}
        Err(error) => tracing::warn!(?error, name, "an incomplete database stays: delete it"),
    }
}

async fn fill(database: &Arc<Database>, input: &mut Hashed<'_>, mut at: u64) -> Result<Counts, BackupError> {
    let mut loader = Loader::new(database);
    loop {
        let hash = input.hash.finalize().to_hex().to_string();
        let next = frame::read(input, &mut at)?.ok_or_else(|| damaged("it ends too early"))?;
        if next.kind == item::END {
            let counts = loader.finish().await?;
            let end = EndItem { documents: counts.documents, locals: counts.locals, purges: counts.purges, hash };
            return match EndItem::decode(&next.payload)? == end {
                true => Ok(counts),
                false => Err(damaged("its end does not fit what came before")),
            };
        }
        loader.take(next).await?;
    }
}

/// A document whose edits wait to be committed with others.
struct Waiting {
    edits: Vec<Edit>,
    bytes: usize,
}

/// Puts items into a database; each is durable once [`Loader::finish`] returned.
pub(super) struct Loader {
    database: Arc<Database>,
    counts: Counts,
    /// The content that is coming in: its document, hash, bytes missing.
    content: Option<(DocId, BlobId, u64, BlobWriter)>,
    /// Contents that no edit has named yet.
    holds: BTreeMap<(usize, BlobId), Hold>,
    waiting: BTreeMap<usize, Waiting>,
}

impl Loader {
    pub(super) fn new(database: &Arc<Database>) -> Loader {
        let (holds, waiting) = (BTreeMap::new(), BTreeMap::new());
        Loader { database: Arc::clone(database), counts: Counts::default(), content: None, holds, waiting }
    }

    /// Applies a frame of a stream.
    pub(super) async fn take(&mut self, next: frame::Frame) -> Result<(), BackupError> {
        match next.kind {
            item::CONTENT => {
                let (id, hash, length) = item::decode_content(&next.payload)?;
                self.begin_content(id, hash, length).await
            }
            item::BYTES => self.add_content(Bytes::from(next.payload)).await,
            item::DOCUMENT => self.document(DocumentItem::decode(&next.payload)?).await,
            item::LOCAL => {
                let (id, rev, body) = item::decode_local(&next.payload)?;
                self.local(&id, LocalDocument { rev, body }).await
            }
            item::PURGE => {
                let (id, revs) = item::decode_purge(&next.payload)?;
                self.purge(id, revs).await
            }
            other => Err(damaged(format_args!("a frame of the unknown kind {:?}", char::from(other)))),
        }
    }

    /// Begins an attachment content for a document that comes later. One that stayed incomplete is forgotten: its
    /// document was left out.
    pub(super) async fn begin_content(&mut self, id: DocId, hash: BlobId, length: u64) -> Result<(), BackupError> {
        let range = self.database.map().index_of(&id);
        let writer = self.database.replicas().own_shard(range).await?.stage(StageMode::Plain);
        self.content = Some((id, hash, length, writer));
        if length == 0 { self.end_content().await } else { Ok(()) }
    }

    pub(super) async fn add_content(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        let Some((_, _, left, writer)) = &mut self.content else {
            return Err(damaged("bytes of no attachment"));
        };
        let size = bytes.len() as u64;
        *left = left.checked_sub(size).ok_or_else(|| damaged("an attachment is longer than it was"))?;
        let complete = *left == 0;
        writer.write(bytes).await?;
        if complete { self.end_content().await } else { Ok(()) }
    }

    async fn end_content(&mut self) -> Result<(), BackupError> {
        let Some((id, hash, _, writer)) = self.content.take() else { return Ok(()) };
        let staged = writer.finish().await?;
        if staged.blob != hash {
            return Err(damaged(format_args!("an attachment of {:?} does not fit its hash", id.as_str())));
        }
        self.holds.insert((self.database.map().index_of(&id), hash), staged.hold);
        Ok(())
    }

    /// How many documents came so far.
    pub(super) fn documents(&self) -> u64 {
        self.counts.documents
    }

    /// Whether the content came for a document's range.
    pub(super) fn has_content(&self, id: &DocId, hash: &BlobId) -> bool {
        self.holds.contains_key(&(self.database.map().index_of(id), *hash))
    }

    /// A document; its contents came before.
    pub(super) async fn document(&mut self, document: DocumentItem) -> Result<(), BackupError> {
        let range = self.database.map().index_of(&document.id);
        if let Some(lost) = document.contents().into_iter().find(|a| !self.has_content(&document.id, &a.blob)) {
            let (name, id) = (&lost.name, document.id.as_str());
            return Err(damaged(format_args!("attachment {name:?} of {id:?} did not come with it")));
        }
        let waiting = self.waiting.entry(range).or_insert(Waiting { edits: Vec::new(), bytes: 0 });
        for leaf in document.leaves {
            waiting.bytes += leaf.body.len();
            let longest = leaf.path.ids.len() as u64;
            let no_json = |_| damaged(format_args!("the body of {:?} is no JSON object", document.id.as_str()));
            waiting.edits.push(Edit {
                id: document.id.clone(),
                op: EditOp::Merge { path: leaf.path },
                deleted: leaf.deleted,
                body: Arc::new(PreparedBody::from_text(leaf.body).map_err(no_json)?),
                attachments: leaf.attachments.into_iter().map(EditAttachment::New).collect(),
                revs_limit: self.database.revs_limit().max(longest),
            });
        }
        self.counts.documents += 1;
        if waiting.edits.len() >= limits::PAGE_DOCS || waiting.bytes >= limits::STEP_BYTES {
            self.commit(range).await?;
        }
        Ok(())
    }

    async fn commit(&mut self, range: usize) -> Result<(), BackupError> {
        let Some(waiting) = self.waiting.remove(&range) else { return Ok(()) };
        let done = self.database.replicas().own_shard(range).await?.edit(waiting.edits).await?;
        for outcome in done {
            outcome.map_err(|error| damaged(format_args!("a revision is refused: {error:?}")))?;
        }
        self.holds.retain(|(of, _), _| *of != range);
        Ok(())
    }

    async fn local(&mut self, id: &DocId, document: LocalDocument) -> Result<(), BackupError> {
        self.counts.locals += 1;
        let range = self.database.map().index_of(id);
        self.database.replicas().own_shard(range).await?.local_set(id, Some(document), 0, false).await?;
        Ok(())
    }

    async fn purge(&mut self, id: DocId, revs: Vec<Revision>) -> Result<(), BackupError> {
        self.counts.purges += 1;
        let range = self.database.map().index_of(&id);
        Ok(self.database.replicas().own_shard(range).await?.note_purges(vec![(id, revs)]).await?)
    }

    /// Commits what is waiting.
    pub(super) async fn finish(mut self) -> Result<Counts, BackupError> {
        let ranges: Vec<usize> = self.waiting.keys().copied().collect();
        for range in ranges {
            self.commit(range).await?;
        }
        Ok(self.counts)
    }
}

/// A reader that hashes what goes through it.
struct Hashed<'i> {
    input: &'i mut (dyn Read + Send),
    hash: blake3::Hasher,
}

impl Read for Hashed<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let size = self.input.read(out)?;
        self.hash.update(&out[..size]);
        Ok(size)
    }
}
