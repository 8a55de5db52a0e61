//! A copy of a range, on this node or on another: the coordinator reads and writes through it without asking where.
//!
//! A copy on this node is called directly, without any message. Assumes: callers try another copy when one is away
//! ([`is_away`]). Promises: positions are of the epoch that [`RangeCopy::replica_position`] told.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use crate::coordinator::replica::blob_stream::RemoteBlob;
use crate::coordinator::replica::epoch::{Epochs, NodeEpochs};
use crate::coordinator::replica::message::{ChangesCall, ReplicaPosition, ViewCall, ViewOp};
use crate::coordinator::replica::remote::RemoteCopy;
use crate::coordinator::replica::sync_points;
use crate::coordinator::topology::seq::SeqEntry;
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::revision::Revision;
use crate::index::{GroupBy, GroupPage, Header, IndexError, Places, RowPage, SelectedPage, Signature, ViewIndex};
use crate::limits;
use crate::script::Program;
use crate::shard::{
    ChangesPage, Fetched, Filter, FilterPage, ListPage, ListRow, LocalDocument, LocalRegister, PurgeInfo, ShardCopy,
    ShardError, ShardInfo, Summary, Want,
};
use crate::storage::{BlobReader, BlobWriter, Direction, ReadAs, StageMode, StorageError};

/// A copy on this node.
#[derive(Clone, Debug)]
pub(in crate::coordinator) struct OwnCopy {
    pub shard: ShardCopy,
    pub epochs: Arc<Epochs>,
    /// The shard that its positions are counted from: its own, or the one that it was split off.
    pub origin: u64,
}

/// The value of a copy that names its origin.
pub(in crate::coordinator) const ORIGIN: &str = "origin";

/// A copy of a range. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::coordinator) enum RangeCopy {
    Own(OwnCopy),
    Remote(RemoteCopy),
}

/// Whether another copy of the range may answer where this one did not.
pub(in crate::coordinator) fn is_away(error: &ShardError) -> bool {
    !matches!(error, ShardError::Dropped)
}

impl OwnCopy {
    /// The copy of a shard that was just opened.
    pub async fn of(shard: ShardCopy, node: &NodeEpochs) -> Result<OwnCopy, ShardError> {
        let epochs = Arc::new(Epochs::open(&shard, node).await?);
        let damaged = || StorageError::Corrupt("the origin of a shard is not 8 bytes".to_owned());
        let origin = match shard.meta_get(ORIGIN).await? {
            Some(bytes) => u64::from_be_bytes(bytes.try_into().map_err(|_| damaged())?),
            None => shard.id().0,
        };
        Ok(OwnCopy { shard, epochs, origin })
    }

    /// Where it stands.
    pub fn replica_position(&self) -> ReplicaPosition {
        let position = *self.shard.watch().borrow();
        self.epochs.replica_position(self.origin, position)
    }

    /// The same copy for work that may wait.
    pub fn in_background(&self) -> OwnCopy {
        OwnCopy { shard: self.shard.in_background(), epochs: Arc::clone(&self.epochs), origin: self.origin }
    }

    /// The same copy where nobody else is to be asked, see [`ShardCopy::inline`].
    pub fn inline(&self) -> OwnCopy {
        OwnCopy { shard: self.shard.inline(), epochs: Arc::clone(&self.epochs), origin: self.origin }
    }

    /// The same copy for writes that are counted by the map of that version, see [`ShardCopy::by_map`].
    pub fn by_map(self, version: u64) -> OwnCopy {
        OwnCopy { shard: self.shard.by_map(version), ..self }
    }

    /// Refuses positions of another epoch.
    pub fn check_epoch(&self, epoch: u64) -> Result<(), ShardError> {
        match epoch == self.epochs.current() {
            true => Ok(()),
            false => Err(ShardError::NotExecuted("the copy is in another epoch".to_owned())),
        }
    }

    /// Changes, a page of them; refused in another epoch.
    pub async fn changes(&self, call: ChangesCall) -> Result<ChangesPage, ShardError> {
        self.check_epoch(call.epoch)?;
        self.shard.changes(call.since, call.direction, call.limit()).await
    }

    /// The position at which a reader goes on that read the entries, which have all of this copy's range between them:
    /// by its own numbers, or those of a copy that this one was in sync with at some position, else at the beginning.
    pub async fn resume(&self, entries: &[SeqEntry]) -> Result<u64, ShardError> {
        let replica_position = self.replica_position();
        let mut least: Option<u64> = None;
        for entry in entries {
            let own = self.epochs.resume(entry.epoch, entry.position).filter(|_| entry.shard == replica_position.shard);
            let position = match own {
                Some(position) => position,
                None => sync_points::resume(&self.shard, entry).await?,
            };
            least = Some(least.map_or(position, |least| least.min(position)));
        }
        Ok(least.unwrap_or(0).min(replica_position.position))
    }
}

impl RangeCopy {
    /// The node that it is on; `None`: this one.
    pub fn node(&self) -> Option<&Arc<str>> {
        match self {
            RangeCopy::Own(_) => None,
            RangeCopy::Remote(copy) => Some(copy.node()),
        }
    }

    pub async fn fetch(&self, wants: Vec<(DocId, Want)>) -> Result<Vec<Option<Fetched>>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.fetch(wants).await,
            RangeCopy::Remote(copy) => copy.fetch(wants).await,
        }
    }

    /// Of the first documents as many as have so many bytes; none where the first one has more.
    pub async fn fetch_first(&self, wants: &[(DocId, Want)], bytes: usize) -> Result<Vec<Option<Fetched>>, ShardError> {
        match self {
            _ if bytes == usize::MAX => self.fetch(wants.to_vec()).await,
            RangeCopy::Own(copy) => Ok(copy.shard.fetch_within(wants.iter().cloned().collect(), bytes).await?.found),
            RangeCopy::Remote(copy) => Ok(copy.fetch_some(wants, bytes).await?.found),
        }
    }

    pub async fn list(&self, page: ListPage) -> Result<Vec<ListRow>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.list(page).await,
            RangeCopy::Remote(copy) => copy.list(page).await,
        }
    }

    pub async fn summary(&self, start: Bound<DocId>, end: Bound<DocId>) -> Result<Summary, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.summary(start, end).await,
            RangeCopy::Remote(copy) => copy.summary(start, end).await,
        }
    }

    /// See [`ShardCopy::select`].
    pub async fn select(
        &self,
        (start, end): (Bound<DocId>, Bound<DocId>),
        direction: Direction,
        place: u64,
    ) -> Result<Option<DocId>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.select(start, end, direction, place).await,
            RangeCopy::Remote(copy) => copy.select((start, end), direction, place).await,
        }
    }

    /// See [`ShardCopy::changes`].
    pub async fn changes(&self, call: ChangesCall) -> Result<ChangesPage, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.changes(call).await,
            RangeCopy::Remote(copy) => copy.changes(call).await,
        }
    }

    /// The next documents that a selector takes, see [`ShardCopy::filter_scan`]; those of another node are decided
    /// here.
    pub async fn filter_scan(&self, filter_scan: Filter) -> Result<FilterPage, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.filter_scan(filter_scan).await,
            RangeCopy::Remote(copy) => copy.filter_scan(filter_scan).await,
        }
    }

    pub async fn info(&self) -> Result<(ShardInfo, ReplicaPosition), ShardError> {
        match self {
            RangeCopy::Own(copy) => {
                let info = copy.shard.info().await?;
                Ok((info, ReplicaPosition { position: info.update_seq, ..copy.replica_position() }))
            }
            RangeCopy::Remote(copy) => copy.info().await,
        }
    }

    pub async fn replica_position(&self) -> Result<ReplicaPosition, ShardError> {
        match self {
            RangeCopy::Own(copy) => Ok(copy.replica_position()),
            RangeCopy::Remote(copy) => Ok(copy.info().await?.1),
        }
    }

    /// Where it stands, and a receiver of its last sequence. The sender goes when the copy does, or cannot be asked.
    pub async fn watch(&self) -> Result<(ReplicaPosition, watch::Receiver<u64>), ShardError> {
        match self {
            RangeCopy::Own(copy) => {
                let news = copy.shard.watch();
                let position = *news.borrow();
                Ok((ReplicaPosition { position, ..copy.replica_position() }, news))
            }
            RangeCopy::Remote(copy) => {
                let replica_position = copy.info().await?.1;
                Ok((replica_position, copy.follow(replica_position)))
            }
        }
    }

    pub async fn resume(&self, entries: &[SeqEntry]) -> Result<u64, ShardError> {
        match self {
            _ if entries.is_empty() => Ok(0),
            RangeCopy::Own(copy) => copy.resume(entries).await,
            RangeCopy::Remote(copy) => copy.resume(entries.to_vec()).await,
        }
    }

    /// See [`ShardCopy::design_version`].
    pub async fn design_version(&self) -> Result<u64, ShardError> {
        match self {
            RangeCopy::Own(copy) => Ok(copy.shard.design_version()),
            RangeCopy::Remote(copy) => copy.design_version().await,
        }
    }

    pub async fn local(&self, id: &DocId) -> Result<Option<LocalRegister>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.local_register(id).await,
            RangeCopy::Remote(copy) => copy.local(id).await,
        }
    }

    /// Local documents in id order, a page of them: only none mean that there are no more.
    pub async fn local_list(
        &self,
        start: Bound<DocId>,
        end: Bound<DocId>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<(DocId, LocalDocument)>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.local_page((start, end), direction, (limit, limits::STEP_BYTES)).await,
            RangeCopy::Remote(copy) => copy.local_list((start, end), direction, limit).await,
        }
    }

    pub async fn purge(&self, items: Vec<(DocId, Vec<Revision>)>) -> Result<Vec<Vec<Revision>>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.purge(items).await,
            RangeCopy::Remote(copy) => copy.purge(items).await,
        }
    }

    /// Whether anything was ever collected there.
    pub async fn has_collected(&self) -> Result<bool, ShardError> {
        match self {
            RangeCopy::Own(copy) => Ok(copy.shard.state().await?.rounds > 0),
            RangeCopy::Remote(copy) => Ok(copy.status().await?.rounds > 0),
        }
    }

    pub async fn purge_infos(&self, since: u64, limit: usize) -> Result<Vec<PurgeInfo>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.purge_infos(since, limit).await,
            RangeCopy::Remote(copy) => copy.purge_infos(since, limit).await,
        }
    }

    /// Reads the stored bytes of an attachment or a range of them.
    pub fn blob_reader(&self, attachment: &Attachment, read: ReadAs, range: Option<(u64, u64)>) -> CopyBlobReader {
        match self {
            RangeCopy::Own(copy) => CopyBlobReader::Own(copy.shard.blob_reader(attachment, read, range)),
            RangeCopy::Remote(copy) => CopyBlobReader::Remote(Box::new(RemoteBlob::new(copy, attachment, read, range))),
        }
    }

    /// Starts the upload of an attachment.
    pub async fn stage(&self, mode: StageMode) -> Result<CopyWriter, ShardError> {
        match self {
            RangeCopy::Own(copy) => Ok(CopyWriter::Own(Box::new(copy.shard.stage(mode)))),
            RangeCopy::Remote(copy) => Ok(CopyWriter::Remote { upload: copy.stage(mode).await?, copy: copy.clone() }),
        }
    }
}

/// Reads an attachment from a copy.
#[derive(Debug)]
pub(in crate::coordinator) enum CopyBlobReader {
    Own(BlobReader),
    Remote(Box<RemoteBlob>),
}

impl CopyBlobReader {
    pub async fn next(&mut self) -> Result<Option<Bytes>, ShardError> {
        match self {
            CopyBlobReader::Own(reader) => Ok(reader.next().await?),
            CopyBlobReader::Remote(reader) => reader.next().await,
        }
    }
}

/// An upload to a copy.
#[derive(Debug)]
pub(in crate::coordinator) enum CopyWriter {
    Own(Box<BlobWriter>),
    Remote { copy: RemoteCopy, upload: u64 },
}

/// An upload that waits for its edit: the attachment without name and type, and what keeps its bytes.
pub(in crate::coordinator) type StagedBytes = (Attachment, Option<crate::storage::Hold>);

impl CopyWriter {
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), ShardError> {
        match self {
            CopyWriter::Own(writer) => Ok(writer.write(data).await?),
            CopyWriter::Remote { copy, upload } => {
                while !data.is_empty() {
                    let piece = data.split_to(data.len().min(limits::MERGE_BYTES));
                    copy.stage_write(*upload, piece).await?;
                }
                Ok(())
            }
        }
    }

    pub async fn finish(self) -> Result<StagedBytes, ShardError> {
        match self {
            CopyWriter::Own(writer) => {
                let staged = writer.finish().await?;
                Ok((staged.attachment("", "", 0), Some(staged.hold)))
            }
            CopyWriter::Remote { copy, upload } => Ok((copy.stage_finish(upload).await?, None)),
        }
    }
}

/// A view on a copy.
#[derive(Clone, Debug)]
pub(in crate::coordinator) enum CopyView {
    Own(ViewIndex),
    Remote { copy: RemoteCopy, program: Program, signature: Signature },
}

impl CopyView {
    fn call(program: &Program, signature: Signature, op: ViewOp) -> ViewCall {
        let design = (program.id().clone(), Bytes::from(program.body().to_vec()));
        ViewCall { design, signature: signature.0, op }
    }

    /// See [`ViewIndex::update`].
    pub async fn update(&self) -> Result<(), IndexError> {
        match self {
            CopyView::Own(index) => index.update().await,
            CopyView::Remote { copy, program, signature } => {
                copy.view(CopyView::call(program, *signature, ViewOp::Update { wait: true })).await
            }
        }
    }

    /// Has it updated and does not wait for that.
    pub async fn update_later(&self) -> Result<(), IndexError> {
        match self {
            CopyView::Own(index) => {
                index.update_later();
                Ok(())
            }
            CopyView::Remote { copy, program, signature } => {
                copy.view(CopyView::call(program, *signature, ViewOp::Update { wait: false })).await
            }
        }
    }

    /// How far it is built, and whether it is being built.
    pub async fn header(&self) -> Result<(Header, bool), IndexError> {
        match self {
            CopyView::Own(index) => Ok((index.header().await?, index.is_building())),
            CopyView::Remote { copy, program, signature } => {
                copy.view(CopyView::call(program, *signature, ViewOp::Header)).await
            }
        }
    }

    pub async fn rows(
        &self,
        places: VecDeque<Places>,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, IndexError> {
        match self {
            CopyView::Own(index) => Ok(index.rows(places, direction, limit).await?),
            CopyView::Remote { copy, program, signature } => {
                let op = ViewOp::Rows { places, direction, limit: limit as u64 };
                copy.view(CopyView::call(program, *signature, op)).await
            }
        }
    }

    /// Reduced groups, see [`ViewIndex::groups`].
    pub async fn groups(&self, by: &GroupBy, places: VecDeque<Places>, limit: usize) -> Result<GroupPage, IndexError> {
        match self {
            CopyView::Own(index) => index.groups(by, places, limit).await,
            CopyView::Remote { copy, program, signature } => {
                let op = ViewOp::Groups { by: by.clone(), places, limit: limit as u64 };
                copy.view(CopyView::call(program, *signature, op)).await
            }
        }
    }

    /// Ascending changes that the index of a declared selector knows, see [`ViewIndex::selected`]. For a copy on this
    /// node the caller has checked the epoch.
    pub async fn selected(&self, call: ChangesCall) -> Result<Option<SelectedPage>, IndexError> {
        match self {
            CopyView::Own(index) => Ok(index.selected(call.since, call.limit()).await?),
            CopyView::Remote { copy, program, signature } => {
                copy.view(CopyView::call(program, *signature, ViewOp::Selected(call))).await
            }
        }
    }

    pub async fn count(&self, places: Places) -> Result<u64, IndexError> {
        match self {
            CopyView::Own(index) => Ok(index.count(places).await?),
            CopyView::Remote { copy, program, signature } => {
                copy.view(CopyView::call(program, *signature, ViewOp::Count(places))).await
            }
        }
    }
}
