//! Reads of documents and attachments.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;

use crate::coordinator::read::Documents;
use crate::coordinator::replica::blob_stream::Mender;
use crate::coordinator::replica::database::entry;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::{RangeReplica, ReplicaBlobReader};
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::seq::SeqEntry;
use crate::document::id::DocId;
use crate::document::render::{Attachment, RevStatus, StoredRevision};
use crate::document::rev_tree::{RevTree, RevValue};
use crate::document::revision::{RevHash, Revision};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::shard::{Fetched, LocalDocument, RevData, ShardError, Want};
use crate::storage::{ReadAs, StorageError};
use crate::world::Env;
use crate::world::buggify::fewer;

/// A document that goes with a row of a list.
#[derive(Clone, Debug)]
pub struct RowDoc {
    /// Its id.
    pub id: DocId,
    /// The revision shown.
    pub stored: StoredRevision,
    /// Its live conflicts, best first; filled when asked for.
    pub conflicts: Vec<Revision>,
}

impl RowDoc {
    /// Bytes of memory that it takes, about.
    pub fn weight(&self) -> usize {
        self.stored.body.len() + self.conflicts.len() * size_of::<Revision>()
    }
}

/// The stored bytes of an attachment, in pieces.
pub struct AttachmentReader {
    name: String,
    inner: ReplicaBlobReader,
    /// Readers of the same bytes on other replicas, for when the first has none to give.
    others: VecDeque<ReplicaBlobReader>,
    is_begun: bool,
    /// For an own replica whose bytes are damaged.
    mender: Option<(Mender, Env)>,
}

impl AttachmentReader {
    /// The next piece (at most `limits::BLOB_STEP_BYTES`); `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        loop {
            let error = match self.inner.next().await {
                Ok(piece) => {
                    self.is_begun = true;
                    return Ok(piece);
                }
                Err(error) => error,
            };
            if let (ShardError::Storage(StorageError::Corrupt(_)), ReplicaBlobReader::Own(_)) = (&error, &self.inner)
                && let Some((mender, env)) = self.mender.take()
            {
                mender.start(&env);
            }
            match self.others.pop_front().filter(|_| !self.is_begun) {
                Some(other) => self.inner = other,
                None => return Err(self.failed(error)),
            }
        }
    }

    fn failed(&self, error: ShardError) -> ReadError {
        match error {
            ShardError::Storage(StorageError::Corrupt(_)) => ReadError::DamagedAttachment { name: self.name.clone() },
            error => ReadError::Unavailable(error),
        }
    }
}

impl Documents<'_> {
    /// Reads one document from the default number of replicas; `None` when its id was never seen.
    ///
    /// A local document is found as one live revision `0-N` with an empty tree, whatever is wanted.
    pub async fn fetch(self, id: &DocId, want: Want) -> Result<Option<Fetched>, ReadError> {
        self.fetch_from(id, want, None).await
    }

    /// Reads one revision of a document; `None` when its body is not there.
    pub async fn fetch_one(self, id: &DocId, want: Want) -> Result<Option<StoredRevision>, ReadError> {
        Ok(self.fetch(id, want).await?.and_then(|mut fetched| fetched.take_one()))
    }

    /// As [`Documents::fetch`] from `r` replicas.
    pub async fn fetch_from(self, id: &DocId, want: Want, r: Option<u32>) -> Result<Option<Fetched>, ReadError> {
        let mut found = self.fetch_many(vec![(id.clone(), want)], r).await?;
        // Invariant: `fetch_many` answers once per want.
        Ok(found.pop().expect("one answer"))
    }

    /// As [`Documents::fetch_from`]; tells how many replicas have the document just so, too. For local documents: 1.
    pub async fn fetch_agreed(
        self,
        id: &DocId,
        want: Want,
        r: Option<u32>,
    ) -> Result<(Option<Fetched>, usize), ReadError> {
        if id.is_local() {
            let fetched =
                self.replicas().by_layout(|layout| async move { self.fetch_local(&layout, id, r).await }).await?;
            return Ok((fetched, 1));
        }
        let wants = vec![(id.clone(), want)];
        let fetch = |layout: Arc<Layout>| {
            let wants = wants.clone();
            async move { self.fetch_counted((&layout, layout.map.index_of(id)), wants, r).await }
        };
        let (mut found, agreed) = self.replicas().by_layout(fetch).await?;
        Ok((found.pop().flatten(), agreed.first().copied().unwrap_or(0)))
    }

    /// As [`Documents::fetch`], of a document that a feed listed with the revision `rev`: asks all replicas where the
    /// default number of them does not know that.
    ///
    /// # Errors Also when the replicas that know it may be out of reach. Where all replicas answer and none knows it,
    /// it was purged.
    pub async fn fetch_listed(self, id: &DocId, want: Want, rev: &Revision) -> Result<Option<Fetched>, ReadError> {
        let knows = |fetched: &Option<Fetched>| fetched.as_ref().is_some_and(|f| f.tree.get(rev).is_some());
        let fetched = self.fetch(id, want.clone()).await?;
        if knows(&fetched) {
            return Ok(fetched);
        }
        let (fetched, answered) = self.fetch_agreed(id, want, Some(u32::MAX)).await?;
        let wanted = self.replicas().replicas_of(self.range_of(id));
        match knows(&fetched) || answered >= wanted {
            true => Ok(fetched),
            false => Err(ReadError::TooFewReplicas { answered, wanted }),
        }
    }

    /// The position of a replica of the range of `id`, which changes before that replica reports any write: what was
    /// read of the range while it stood still is no older than that. It names the replica, as each counts for itself.
    pub async fn last_change(self, id: &DocId) -> Result<SeqEntry, ReadError> {
        let map = self.map();
        let range = map.index_of(id);
        Ok(entry(
            map.range(range),
            self.replicas().on_one(range, |replica| async move { replica.replica_position().await }).await?,
        ))
    }

    /// Reads documents, answers in the order of the wants; ranges are read concurrently, each from `r` replicas
    /// (`None`: the default number).
    pub async fn fetch_many(
        self,
        wants: Vec<(DocId, Want)>,
        r: Option<u32>,
    ) -> Result<Vec<Option<Fetched>>, ReadError> {
        self.context.env.metrics().add(Counter::DatabaseReads, wants.len() as u64);
        let wants = &wants;
        self.replicas().by_layout(|layout| async move { self.fetch_by(&layout, wants, r).await }).await
    }

    /// As [`Documents::fetch_many`], of the first documents as many as have about so many bytes; one at least.
    pub async fn fetch_first(
        self,
        wants: &[(DocId, Want)],
        r: Option<u32>,
        bytes: usize,
    ) -> Result<Vec<Option<Fetched>>, ReadError> {
        let bytes = fewer("read: room for one byte", bytes);
        let found = self
            .replicas()
            .by_layout(|layout| async move { self.fetch_first_by(&layout, wants, r, bytes).await })
            .await?;
        self.context.env.metrics().add(Counter::DatabaseReads, found.len() as u64);
        match found.is_empty() && !wants.is_empty() {
            // It is larger than that.
            true => self.fetch_many(wants[..1].to_vec(), r).await,
            false => Ok(found),
        }
    }

    async fn fetch_first_by(
        self,
        layout: &Layout,
        wants: &[(DocId, Want)],
        r: Option<u32>,
        bytes: usize,
    ) -> Result<Vec<Option<Fetched>>, ReadError> {
        let mut by_range: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut answers: BTreeMap<usize, Option<Fetched>> = BTreeMap::new();
        let mut local_bytes = 0;
        for (at, (id, _)) in wants.iter().enumerate() {
            if !id.is_local() {
                by_range.entry(layout.map.index_of(id)).or_default().push(at);
            } else if local_bytes < bytes {
                let local = self.fetch_local(layout, id, r).await?;
                local_bytes += local.as_ref().map_or(0, Fetched::bytes);
                answers.insert(at, local);
            }
        }
        let share = bytes / by_range.len().max(1);
        let reads = by_range.into_iter().map(|(range, places)| async move {
            let wants = places.iter().map(|at| wants[*at].clone()).collect();
            let found = self.fetch_range((layout, range), wants, r, share).await?.0;
            Ok::<Vec<(usize, Option<Fetched>)>, ReadError>(places.into_iter().zip(found).collect())
        });
        answers.extend(try_join_all(reads).await?.into_iter().flatten());
        // Those behind the first that there was no room for are read again.
        Ok(answers.into_iter().enumerate().take_while(|(n, (at, _))| n == at).map(|(_, (_, found))| found).collect())
    }

    async fn fetch_by(
        self,
        layout: &Layout,
        wants: &[(DocId, Want)],
        r: Option<u32>,
    ) -> Result<Vec<Option<Fetched>>, ReadError> {
        let mut answers: Vec<Option<Fetched>> = wants.iter().map(|_| None).collect();
        let mut by_range: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, (id, _)) in wants.iter().enumerate() {
            if id.is_local() {
                answers[at] = self.fetch_local(layout, id, r).await?;
            } else {
                by_range.entry(layout.map.index_of(id)).or_default().push(at);
            }
        }
        let reads = by_range.into_iter().map(|(range, places)| async move {
            let wants = places.iter().map(|at| wants[*at].clone()).collect();
            let found = self.fetch_counted((layout, range), wants, r).await?.0;
            Ok::<Vec<(usize, Option<Fetched>)>, ReadError>(places.into_iter().zip(found).collect())
        });
        for (at, found) in try_join_all(reads).await?.into_iter().flatten() {
            answers[at] = found;
        }
        Ok(answers)
    }

    /// Fails when fewer replicas answered than were to be asked, where the configuration wants that.
    pub(in crate::coordinator) fn check_quorum(self, answered: usize, wanted: usize) -> Result<(), ReadError> {
        match answered >= wanted || !self.context.config.bool("cluster", "strict_reads", false) {
            true => Ok(()),
            false => Err(ReadError::TooFewReplicas { answered, wanted }),
        }
    }

    async fn fetch_local(self, layout: &Layout, id: &DocId, r: Option<u32>) -> Result<Option<Fetched>, ReadError> {
        let document = self.get_local_by(layout, id, r).await?;
        Ok(document.map(|document| {
            let stored = local_revision(document);
            Fetched { tree: RevTree::new(), local_seq: 0, found: vec![(stored.rev.clone(), Some(stored))] }
        }))
    }

    /// Opens an attachment of a document for reading its stored bytes (gzipped ones stay so); `range` is of them.
    pub async fn read_attachment(
        self,
        id: &DocId,
        attachment: &Attachment,
        range: Option<Range<u64>>,
    ) -> Result<AttachmentReader, ReadError> {
        self.reader(id, attachment, ReadAs::Stored, range).await
    }

    /// Opens an attachment for reading the bytes as a client sees them: gzip of the server's own is undone.
    pub async fn read_attachment_plain(
        self,
        id: &DocId,
        attachment: &Attachment,
    ) -> Result<AttachmentReader, ReadError> {
        self.reader(id, attachment, ReadAs::Plain, None).await
    }

    async fn reader(
        self,
        id: &DocId,
        attachment: &Attachment,
        read: ReadAs,
        range: Option<Range<u64>>,
    ) -> Result<AttachmentReader, ReadError> {
        let bytes = range.map(|r| (r.start, r.end));
        let open = |layout: Arc<Layout>| async move {
            let range = layout.map.index_of(id);
            // Its digest tells what is read: any replica will do.
            let replicas = self.replicas().all_readers(&layout, range).await?;
            let mut readers: VecDeque<_> =
                replicas.iter().map(|replica| replica.blob_reader(attachment, read, bytes)).collect();
            let inner = readers.pop_front().ok_or(ShardError::NoReplica { replicas: layout.placed.replicas(range) })?;
            Ok::<_, ReadError>((inner, readers, mender(&replicas, attachment)))
        };
        let (inner, others, mender) = self.replicas().by_layout(open).await?;
        let mender = mender.map(|mender| (mender, self.context.env.clone()));
        Ok(AttachmentReader { name: attachment.name.clone(), inner, others, is_begun: false, mender })
    }

    /// The whole content of an attachment in memory, as a client would see it (gzip undone when `plain`).
    pub async fn attachment_bytes(
        self,
        id: &DocId,
        attachment: &Attachment,
        plain: bool,
    ) -> Result<Vec<u8>, ReadError> {
        let read = if plain { ReadAs::Plain } else { ReadAs::Stored };
        let mut reader = self.reader(id, attachment, read, None).await?;
        let mut out = Vec::new();
        while let Some(piece) = reader.next().await? {
            out.extend_from_slice(&piece);
        }
        Ok(out)
    }
}

/// Who brings this node's replica an attachment anew; nobody where it has no file, or there is no other replica.
fn mender(replicas: &[RangeReplica], attachment: &Attachment) -> Option<Mender> {
    let replica = replicas
        .iter()
        .find_map(|replica| if let RangeReplica::Own(own) = replica { Some(&own.shard) } else { None })?;
    let source = replicas
        .iter()
        .find_map(|replica| if let RangeReplica::Remote(other) = replica { Some(other) } else { None })?;
    let has_file = attachment.stored_length > limits::BLOB_INLINE_BYTES as u64;
    has_file.then(|| Mender { replica: replica.clone(), attachment: attachment.clone(), source: source.clone() })
}

/// A local document as a revision `0-N`.
pub(in crate::coordinator) fn local_revision(document: LocalDocument) -> StoredRevision {
    let rev = local_rev(document.rev);
    StoredRevision { rev, deleted: false, body: document.body, attachments: Vec::new() }
}

/// The revision `0-N` of a local document.
pub(in crate::coordinator) fn local_rev(number: u64) -> Revision {
    Revision::new(0, RevHash::Text(number.to_string().into()))
}

/// `_revs_info`: every revision from `shown` back to its root. What compaction removed is `Missing`.
pub fn revs_info(fetched: &Fetched, shown: &Revision) -> Vec<(Revision, RevStatus)> {
    let status = |data: Option<&RevData>| match data {
        Some(data) if !data.is_available() => RevStatus::Missing,
        Some(data) if data.is_deleted() => RevStatus::Deleted,
        Some(_) => RevStatus::Available,
        None => RevStatus::Missing,
    };
    fetched.tree.revs_info(shown).into_iter().map(|(rev, data)| (rev, status(data))).collect()
}

/// The generation up to which a reader who has `since` knows the attachments of `shown`: those with a higher `revpos`
/// are news to it. 0 when none of `since` is `shown` or an ancestor of it (CouchDB documentation, 'atts_since').
pub fn known_generation(fetched: &Fetched, shown: &Revision, since: &[Revision]) -> u64 {
    let history = fetched.tree.revs_info(shown);
    history.iter().find(|(rev, _)| since.contains(rev)).map_or(0, |(rev, _)| rev.pos)
}
