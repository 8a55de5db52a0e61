//! [`RangeReplica`]: a replica of a range, on this node or on another. The coordinator reads and writes through it
//! without a distinction between the two.
//!
//! A replica on this node is called directly, without a message. Assumes: callers try another replica when one is away
//! ([`is_away`]). Promises: positions are of the epoch that [`RangeReplica::replica_position`] told.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use crate::coordinator::replica::blob_stream::RemoteBlob;
use crate::coordinator::replica::calls::{
    Changes, ClearTimes, CountOf, DesignVersion, GroupsOf, HeaderOf, Info, List, Local, LocalMerge, PlainCall,
    PurgeInfos, ReleaseState, ReplicaOp, Resume, RowsOf, Select, SelectedOf, Stage, StageFinish, StageWrite, Status,
    SummaryOf, TimesOf, UpdateView, ViewQuestion,
};
use crate::coordinator::replica::message::{ChangesCall, ReplicaPosition, is_unknown_call};
pub(in crate::coordinator) use crate::coordinator::replica::own_replica::{ORIGIN, OwnReplica};
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::topology::seq::SeqEntry;
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::revision::Revision;
use crate::index::{
    GroupBy, GroupPage, Header, IndexError, Places, RowPage, SelectedPage, Signature, StateOf, ViewIndex,
};
use crate::limits;
use crate::script::Program;
use crate::shard::{
    Fetched, FilterPage, FilterScan, ListPage, ListRow, LocalDocument, LocalRegister, PurgeInfo, ShardChangesPage,
    ShardError, ShardInfo, Stamp, Summary, Times, Want,
};
use crate::storage::{BlobReader, BlobWriter, Direction, ReadAs, StageMode};

/// A replica of a range. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::coordinator) enum RangeReplica {
    Own(OwnReplica),
    Remote(RemoteReplica),
}

/// Whether another replica of the range may answer where this one did not.
pub(in crate::coordinator) fn is_away(error: &ShardError) -> bool {
    !matches!(error, ShardError::Dropped)
}

impl RangeReplica {
    /// The node that it is on; `None`: this one.
    pub fn node(&self) -> Option<&Arc<str>> {
        match self {
            RangeReplica::Own(_) => None,
            RangeReplica::Remote(replica) => Some(replica.node()),
        }
    }

    /// Carries out what a replica answers by itself.
    async fn ask<C: PlainCall + Into<ReplicaOp>>(&self, call: C) -> Result<C::Answer, ShardError> {
        match self {
            RangeReplica::Own(replica) => call.on(replica).await,
            RangeReplica::Remote(replica) => replica.ask(call).await,
        }
    }

    pub async fn fetch(&self, wants: Vec<(DocId, Want)>) -> Result<Vec<Option<Fetched>>, ShardError> {
        match self {
            RangeReplica::Own(replica) => replica.shard.fetch(wants).await,
            RangeReplica::Remote(replica) => replica.fetch(wants).await,
        }
    }

    /// Of the first documents as many as have so many bytes; none where the first one has more.
    pub async fn fetch_first(&self, wants: &[(DocId, Want)], bytes: usize) -> Result<Vec<Option<Fetched>>, ShardError> {
        match self {
            _ if bytes == usize::MAX => self.fetch(wants.to_vec()).await,
            RangeReplica::Own(replica) => {
                Ok(replica.shard.fetch_within(wants.iter().cloned().collect(), bytes).await?.found)
            }
            RangeReplica::Remote(replica) => Ok(replica.fetch_some(wants, bytes).await?.found),
        }
    }

    pub async fn list(&self, page: ListPage) -> Result<Vec<ListRow>, ShardError> {
        match self {
            RangeReplica::Own(replica) => replica.shard.list(page).await,
            RangeReplica::Remote(replica) => replica.ask(List(page)).await,
        }
    }

    pub async fn summary(&self, start: Bound<DocId>, end: Bound<DocId>) -> Result<Summary, ShardError> {
        self.ask(SummaryOf(start, end)).await
    }

    /// See [`crate::shard::ShardReplica::select`].
    pub async fn select(
        &self,
        (start, end): (Bound<DocId>, Bound<DocId>),
        direction: Direction,
        place: u64,
    ) -> Result<Option<DocId>, ShardError> {
        self.ask(Select { start, end, direction, place }).await
    }

    /// See [`crate::shard::ShardReplica::changes`].
    pub async fn changes(&self, call: ChangesCall) -> Result<ShardChangesPage, ShardError> {
        self.ask(Changes(call)).await
    }

    /// The next documents that a selector matches, see [`crate::shard::ShardReplica::filter_scan`]. This node matches
    /// the documents of another node.
    pub async fn filter_scan(&self, filter_scan: FilterScan) -> Result<FilterPage, ShardError> {
        match self {
            RangeReplica::Own(replica) => replica.shard.filter_scan(filter_scan).await,
            RangeReplica::Remote(replica) => replica.filter_scan(filter_scan).await,
        }
    }

    pub async fn info(&self) -> Result<(ShardInfo, ReplicaPosition), ShardError> {
        self.ask(Info).await
    }

    pub async fn replica_position(&self) -> Result<ReplicaPosition, ShardError> {
        match self {
            RangeReplica::Own(replica) => Ok(replica.replica_position()),
            RangeReplica::Remote(replica) => Ok(replica.ask(Info).await?.1),
        }
    }

    /// Where it stands, and a receiver of its last sequence. The sender goes when the replica does, or cannot be asked.
    pub async fn watch(&self) -> Result<(ReplicaPosition, watch::Receiver<u64>), ShardError> {
        match self {
            RangeReplica::Own(replica) => {
                let news = replica.shard.watch();
                let position = *news.borrow();
                Ok((ReplicaPosition { position, ..replica.replica_position() }, news))
            }
            RangeReplica::Remote(replica) => {
                let replica_position = replica.ask(Info).await?.1;
                Ok((replica_position, replica.follow(replica_position)))
            }
        }
    }

    pub async fn resume(&self, entries: &[SeqEntry]) -> Result<u64, ShardError> {
        match self {
            _ if entries.is_empty() => Ok(0),
            RangeReplica::Own(replica) => replica.resume(entries).await,
            RangeReplica::Remote(replica) => replica.ask(Resume(entries.to_vec())).await,
        }
    }

    /// The position at which a reader of what changed since a time begins. A node of an older version noted none.
    pub async fn position_at(&self, time: u64) -> Result<u64, ShardError> {
        match self.ask(TimesOf).await {
            Ok(times) => Ok(times.since(time)),
            Err(error) if is_unknown_call(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// See [`crate::shard::ShardReplica::times`].
    pub async fn times(&self) -> Result<Times, ShardError> {
        self.ask(TimesOf).await
    }

    /// See [`crate::shard::ShardReplica::clear_times`].
    pub async fn clear_times(&self) -> Result<(), ShardError> {
        self.ask(ClearTimes).await
    }

    /// See [`crate::shard::ShardReplica::design_version`].
    pub async fn design_version(&self) -> Result<u64, ShardError> {
        match self {
            RangeReplica::Own(replica) => Ok(replica.shard.design_version()),
            RangeReplica::Remote(replica) => replica.ask(DesignVersion).await,
        }
    }

    pub async fn local(&self, id: &DocId) -> Result<Option<LocalRegister>, ShardError> {
        self.ask(Local(id.clone())).await
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
            RangeReplica::Own(replica) => {
                replica.shard.local_page((start, end), direction, (limit, limits::STEP_BYTES)).await
            }
            RangeReplica::Remote(replica) => replica.local_list((start, end), direction, limit).await,
        }
    }

    pub async fn purge(&self, items: Vec<(DocId, Vec<Revision>)>) -> Result<Vec<Vec<Revision>>, ShardError> {
        match self {
            RangeReplica::Own(replica) => replica.shard.purge(items).await,
            RangeReplica::Remote(replica) => replica.purge(items).await,
        }
    }

    /// Whether anything was ever collected there.
    pub async fn has_collected(&self) -> Result<bool, ShardError> {
        match self {
            RangeReplica::Own(replica) => Ok(replica.shard.state().await?.rounds > 0),
            RangeReplica::Remote(replica) => Ok(replica.ask(Status).await?.rounds > 0),
        }
    }

    pub async fn purge_infos(&self, since: u64, limit: usize) -> Result<Vec<PurgeInfo>, ShardError> {
        match self {
            RangeReplica::Own(replica) => replica.shard.purge_infos(since, limit).await,
            RangeReplica::Remote(replica) => replica.ask(PurgeInfos { since, limit: limit as u64 }).await,
        }
    }

    /// Reads the stored bytes of an attachment or a range of them.
    pub fn blob_reader(&self, attachment: &Attachment, read: ReadAs, range: Option<(u64, u64)>) -> ReplicaBlobReader {
        match self {
            RangeReplica::Own(replica) => ReplicaBlobReader::Own(replica.shard.blob_reader(attachment, read, range)),
            RangeReplica::Remote(replica) => {
                ReplicaBlobReader::Remote(Box::new(RemoteBlob::new(replica, attachment, read, range)))
            }
        }
    }

    /// Starts the upload of an attachment.
    pub async fn stage(&self, mode: StageMode) -> Result<ReplicaWriter, ShardError> {
        match self {
            RangeReplica::Own(replica) => Ok(ReplicaWriter::Own(Box::new(replica.shard.stage(mode)))),
            RangeReplica::Remote(replica) => {
                Ok(ReplicaWriter::Remote { upload: replica.ask(Stage(mode)).await?, replica: replica.clone() })
            }
        }
    }

    /// Sets or removes a local document; answers its stamp. `mark`: other replicas are to have it.
    pub async fn local_set(
        &self,
        id: &DocId,
        document: Option<LocalDocument>,
        by: u64,
        mark: bool,
    ) -> Result<Stamp, ShardError> {
        match self {
            RangeReplica::Own(replica) => replica.shard.local_set(id, document, by, mark).await,
            RangeReplica::Remote(replica) => replica.local_set(id, document, by).await,
        }
    }

    /// Applies local documents with their stamps; answers the stamps that count now.
    pub async fn local_merge(&self, registers: Vec<(DocId, LocalRegister)>) -> Result<Vec<Stamp>, ShardError> {
        match self {
            RangeReplica::Own(replica) => replica.shard.local_merge(registers).await,
            RangeReplica::Remote(replica) => replica.ask(LocalMerge(registers)).await,
        }
    }
}

/// Reads an attachment from a replica.
#[derive(Debug)]
pub(in crate::coordinator) enum ReplicaBlobReader {
    Own(BlobReader),
    Remote(Box<RemoteBlob>),
}

impl ReplicaBlobReader {
    pub async fn next(&mut self) -> Result<Option<Bytes>, ShardError> {
        match self {
            ReplicaBlobReader::Own(reader) => Ok(reader.next().await?),
            ReplicaBlobReader::Remote(reader) => reader.next().await,
        }
    }
}

/// An upload to a replica.
#[derive(Debug)]
pub(in crate::coordinator) enum ReplicaWriter {
    Own(Box<BlobWriter>),
    Remote { replica: RemoteReplica, upload: u64 },
}

/// An upload that waits for its edit: the attachment without name and type, and what keeps its bytes.
pub(in crate::coordinator) type StagedBytes = (Attachment, Option<crate::storage::Hold>);

impl ReplicaWriter {
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), ShardError> {
        match self {
            ReplicaWriter::Own(writer) => Ok(writer.write(data).await?),
            ReplicaWriter::Remote { replica, upload } => {
                while !data.is_empty() {
                    let piece = data.split_to(data.len().min(limits::MERGE_BYTES));
                    replica.ask(StageWrite { upload: *upload, data: piece }).await?;
                }
                Ok(())
            }
        }
    }

    pub async fn finish(self) -> Result<StagedBytes, ShardError> {
        match self {
            ReplicaWriter::Own(writer) => {
                let staged = writer.finish().await?;
                Ok((staged.attachment("", "", 0), Some(staged.hold)))
            }
            ReplicaWriter::Remote { replica, upload } => Ok((replica.ask(StageFinish { upload }).await?, None)),
        }
    }
}

/// A view on a replica.
#[derive(Clone, Debug)]
pub(in crate::coordinator) enum ReplicaView {
    Own(ViewIndex),
    Remote { replica: RemoteReplica, program: Program, signature: Signature },
}

impl ReplicaView {
    async fn ask<Q: ViewQuestion>(
        (replica, program, signature): (&RemoteReplica, &Program, &Signature),
        question: Q,
    ) -> Result<Q::Answer, IndexError> {
        let design = (program.id().clone(), Bytes::from(program.body().to_vec()));
        replica.view(design, signature.0, question).await
    }

    /// See [`ViewIndex::update`].
    pub async fn update(&self) -> Result<(), IndexError> {
        match self {
            ReplicaView::Own(index) => index.update().await,
            ReplicaView::Remote { replica, program, signature } => {
                ReplicaView::ask((replica, program, signature), UpdateView { wait: true }).await
            }
        }
    }

    /// Has it updated and does not wait for that.
    pub async fn update_later(&self) -> Result<(), IndexError> {
        match self {
            ReplicaView::Own(index) => {
                index.update_later();
                Ok(())
            }
            ReplicaView::Remote { replica, program, signature } => {
                ReplicaView::ask((replica, program, signature), UpdateView { wait: false }).await
            }
        }
    }

    /// How far it is built, and whether it is being built.
    pub async fn header(&self) -> Result<(Header, bool), IndexError> {
        match self {
            ReplicaView::Own(index) => Ok((index.header().await?, index.is_building())),
            ReplicaView::Remote { replica, program, signature } => {
                ReplicaView::ask((replica, program, signature), HeaderOf).await
            }
        }
    }

    pub async fn rows(
        &self,
        places: VecDeque<Places>,
        direction: Direction,
        limit: usize,
        of: StateOf,
    ) -> Result<RowPage, IndexError> {
        match self {
            ReplicaView::Own(index) => index.rows(places, direction, limit, of).await,
            ReplicaView::Remote { replica, program, signature } => {
                let question = RowsOf { places, direction, limit: limit as u64, of };
                ReplicaView::ask((replica, program, signature), question).await
            }
        }
    }

    /// Reduced groups, see [`ViewIndex::groups`].
    pub async fn groups(
        &self,
        by: &GroupBy,
        places: VecDeque<Places>,
        limit: usize,
        of: StateOf,
    ) -> Result<GroupPage, IndexError> {
        match self {
            ReplicaView::Own(index) => index.groups(by, places, limit, of).await,
            ReplicaView::Remote { replica, program, signature } => {
                let question = GroupsOf { by: by.clone(), places, limit: limit as u64, of };
                ReplicaView::ask((replica, program, signature), question).await
            }
        }
    }

    /// Gives a state back, see [`ViewIndex::release`].
    pub async fn release(&self, number: u64) -> Result<(), IndexError> {
        match self {
            ReplicaView::Own(index) => {
                index.release(number);
                Ok(())
            }
            ReplicaView::Remote { replica, program, signature } => {
                ReplicaView::ask((replica, program, signature), ReleaseState(number)).await
            }
        }
    }

    /// Ascending changes that the index of a declared selector knows, see [`ViewIndex::selected`]. For a replica on
    /// this node the caller has checked the epoch.
    pub async fn selected(&self, call: ChangesCall) -> Result<Option<SelectedPage>, IndexError> {
        match self {
            ReplicaView::Own(index) => Ok(index.selected(call.since, call.limit()).await?),
            ReplicaView::Remote { replica, program, signature } => {
                ReplicaView::ask((replica, program, signature), SelectedOf(call)).await
            }
        }
    }

    pub async fn count(&self, places: Places) -> Result<u64, IndexError> {
        match self {
            ReplicaView::Own(index) => Ok(index.count(places).await?),
            ReplicaView::Remote { replica, program, signature } => {
                ReplicaView::ask((replica, program, signature), CountOf(places)).await
            }
        }
    }
}
