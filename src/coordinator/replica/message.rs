//! What nodes say to each other about copies of ranges and about the set of databases.
//!
//! Messages carry the names of their fields (MessagePack maps), so that a field can be added: a node that does not know
//! it goes on without, one that misses it takes its default. Pure.

use std::ops::Bound;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinator::replica::collection_call::CollectionCall;
pub(in crate::coordinator) use crate::coordinator::replica::index_calls::{
    SearchCall, SearchOp, ViewCall, ViewFailure, ViewOp,
};
use crate::coordinator::replica::jobs::JobCall;
use crate::coordinator::replica::rebalancing::RebalanceCall;
use crate::coordinator::replica::seat::Voters;
use crate::coordinator::replica::token::Held;
use crate::coordinator::topology::ballot::{Ask, Promise};
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::WriteError;
use crate::coordinator::topology::record::{MapRecord, Record};
use crate::coordinator::topology::seq::SeqEntry;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::document::render::Attachment;
use crate::document::revision::Revision;
use crate::limits;
use crate::script::{DesignError, ScriptError};
use crate::shard::{Edit, EditAttachment, EditOp, Horizon, ListPage, LocalDocument, LocalRegister, ShardError, Want};
use crate::storage::{CommitError, Direction, StageMode, StorageError};

/// A call of a copy.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct CopyCall {
    /// The database's name.
    pub db: String,
    /// Which of the databases that had this name.
    pub instance: String,
    /// The version of the map that the caller knows.
    #[serde(default)]
    pub version: u64,
    /// Whether the caller counts the answers of copies by that map.
    #[serde(default)]
    pub counted: bool,
    /// The number of the range.
    pub range: u32,
    /// The same for a call that is sent twice, different for any two others of a node.
    pub id: u64,
    /// What the asked copy must have collected for its answer to be of use; `None`: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Horizon>,
    pub op: CopyOp,
}

/// What is asked of a copy. The type of the answer stands behind each.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum CopyOp {
    /// `Vec<Option<Fetched>>`: all, refused where they are too large. Nodes from version 6 on ask by `FetchSome`.
    Fetch(Vec<(DocId, Want)>),
    /// `(Vec<Option<Fetched>>, u64)`: as many of the first as have so many bytes; those of the next, where none has.
    FetchSome { wants: Vec<(DocId, Want)>, bytes: u64 },
    /// `Vec<ListRow>`
    List(ListPage),
    /// `Summary`
    Summary(Bound<DocId>, Bound<DocId>),
    /// `Option<DocId>`
    Select { start: Bound<DocId>, end: Bound<DocId>, direction: Direction, place: u64 },
    /// `ChangesPage`
    Changes(ChangesCall),
    /// `(ShardInfo, ReplicaPosition)`
    Info,
    /// `ReplicaPosition`, once the position is beyond the one given or after a while.
    Wait { beyond: u64 },
    /// `u64`: the position at which a reader of another copy goes on here.
    Resume(Vec<SeqEntry>),
    /// `u64`
    DesignVersion,
    /// `Vec<Result<AcceptedEdit, Refusal>>`
    #[serde(rename = "Judge")]
    Decide(Box<DecideCall>),
    /// `Vec<bool>`: whether each is stored.
    Merge {
        edits: Vec<EditText>,
        /// Where uploads that the copy lacks are.
        source: String,
        /// Whether they are of another copy and not of a primary: then what was purged here stays away.
        #[serde(default)]
        repair: bool,
        /// Whether they are of no copy of the range: then they are taken where something was collected, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anew: bool,
        /// Whether to tell where it stands then, as `told::Merged` does.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tell: bool,
    },
    /// `Option<LocalRegister>`
    Local(DocId),
    /// `Vec<(DocId, LocalDocument)>`; with `bytes` no more once they have so many, and none mean the end.
    LocalList {
        start: Bound<DocId>,
        end: Bound<DocId>,
        direction: Direction,
        limit: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// `Stamp`
    LocalSet { id: DocId, document: Option<LocalDocument>, by: u64 },
    /// `Vec<Stamp>`
    LocalMerge(Vec<(DocId, LocalRegister)>),
    /// `Vec<(DocId, LocalRegister)>`
    LocalRegisters { after: Bound<DocId>, limit: u64 },
    /// `Vec<Vec<Revision>>`
    Purge(Vec<(DocId, Vec<Revision>)>),
    /// `Vec<PurgeInfo>`
    PurgeInfos { since: u64, limit: u64 },
    /// `()`, when begun.
    Compact,
    /// `Bytes` of the stored form, from the offset on; none at the end.
    Blob { attachment: Attachment, at: u64 },
    /// `u64`: names the upload.
    Stage(StageMode),
    /// `()`
    StageWrite { upload: u64, data: Bytes },
    /// `Attachment` without name and type.
    StageFinish { upload: u64 },
    /// As [`ViewOp`] says, or `ViewFailure`.
    View(Box<ViewCall>),
    /// As [`SearchOp`] says, or `ViewFailure`.
    Search(Box<SearchCall>),
    /// `()`: rows of other views than these go.
    KeepViews(Vec<[u8; 16]>),
    /// `CopyStatus`, for the node that asks.
    Status,
    /// `Vec<Vec<Part>>`: each range of ids cut into parts, with their sums.
    Split(Vec<IdRange>),
    /// `Vec<DocumentDigest>`, at most so many.
    Digests(IdRange, u64),
    /// `()`: how far the copy of the asking node has applied this one.
    SetSyncPoint(SyncPoint),
    /// `Vec<(u64, u64)>`: its epochs and the positions after which they began.
    Epochs,
    /// `TakenIn`: how far it has applied the copy of a node.
    TakenIn(String),
    /// `u64`: the number up to which its purges are those of the copy that told these epochs.
    PurgesShared(Vec<(u64, u64)>),
    /// `bool`: whether it holds all these writes.
    Holds(Vec<Held>),
    /// As [`CollectionCall`] says.
    #[serde(rename = "Forget")]
    Collect(Box<CollectionCall>),
}

/// Which changes of a copy to read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct ChangesCall {
    /// Those behind it, in the direction of reading.
    pub since: u64,
    pub direction: Direction,
    pub limit: u64,
    /// That of `since`; refused in any other.
    pub epoch: u64,
}

impl ChangesCall {
    /// Rows of a page at most.
    pub fn limit(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX).min(limits::PAGE_ROWS)
    }
}

impl CopyOp {
    /// Whether a call that comes again is answered as before, for done twice it would be answered otherwise: an edit is
    /// in conflict with itself, a purge finds nothing any more. The caller counts or shows the answer for all of the
    /// range that it names, which must be one of the map as it is here.
    pub fn is_done_once(&self) -> bool {
        matches!(self, CopyOp::Decide(_) | CopyOp::LocalSet { .. } | CopyOp::Purge(_))
    }

    /// Whether it brings what a client changed.
    pub fn is_edit(&self) -> bool {
        self.is_done_once() || matches!(self, CopyOp::Merge { repair: false, .. } | CopyOp::LocalMerge(_))
    }

    /// Whether its answers may be counted: the one that does must know where copies are.
    pub fn is_counted(&self) -> bool {
        self.is_edit() || matches!(self, CopyOp::Fetch(_) | CopyOp::FetchSome { .. } | CopyOp::Local(_))
    }

    /// Whether it is about bytes on their way, which stay where they were sent to.
    pub fn is_of_upload(&self) -> bool {
        matches!(self, CopyOp::Blob { .. } | CopyOp::StageWrite { .. } | CopyOp::StageFinish { .. })
    }

    /// The document that it is about: the copy that it goes to is the one that has that.
    pub fn document(&self) -> Option<&DocId> {
        match self {
            CopyOp::Local(id) | CopyOp::LocalSet { id, .. } => Some(id),
            CopyOp::LocalMerge(registers) if registers.len() == 1 => Some(&registers[0].0),
            CopyOp::Purge(items) if items.len() == 1 => Some(&items[0].0),
            _ => None,
        }
    }
}

/// Edits for the primary of their range.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct DecideCall {
    pub edits: Vec<EditText>,
    pub caller: Caller,
    /// Where uploads that the edits name are.
    pub source: String,
    /// Whether another primary was asked before and did not answer.
    #[serde(rename = "doubtful")]
    pub in_doubt: bool,
}

/// An edit on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct EditText {
    pub id: DocId,
    pub op: EditOp,
    pub deleted: bool,
    pub body: Bytes,
    /// The body as the term that a primary computes the revision from, where it does. Of nodes that do not send it the
    /// text is read instead.
    #[serde(default)]
    pub term: Option<Bytes>,
    pub attachments: Vec<EditAttachment>,
    pub revs_limit: u64,
}

impl From<&Edit> for EditText {
    fn from(edit: &Edit) -> EditText {
        EditText {
            id: edit.id.clone(),
            op: edit.op.clone(),
            deleted: edit.deleted,
            body: edit.body.text.clone(),
            term: matches!(edit.op, EditOp::Interactive { .. }).then(|| edit.body.term.clone()),
            attachments: edit.attachments.clone(),
            revs_limit: edit.revs_limit,
        }
    }
}

impl EditText {
    /// The edit; an error when its body is no JSON object.
    pub fn read(self) -> Result<Edit, WireError> {
        let EditText { id, op, deleted, body, term, attachments, revs_limit } = self;
        if matches!(&op, EditOp::Merge { path } if path.ids.is_empty()) {
            return Err(WireError::NotExecuted("a merge without a revision".to_owned()));
        }
        let malformed = |_| WireError::NotExecuted("an edit's body is no JSON object".to_owned());
        let term = if matches!(op, EditOp::Merge { .. }) { Some(Bytes::new()) } else { term };
        let body = PreparedBody::from_text_and_term(body, term).map_err(malformed)?.into();
        Ok(Edit { id, op, deleted, body, attachments, revs_limit })
    }
}

/// Where a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct ReplicaPosition {
    /// The number of the shard on its node.
    pub shard: u64,
    /// The epoch that new positions belong to.
    pub epoch: u64,
    /// The last sequence.
    pub position: u64,
    /// The position after which that epoch began; the ones up to it are named by the epoch before.
    #[serde(default)]
    pub began: u64,
    #[serde(default)]
    pub before: u64,
}

impl ReplicaPosition {
    /// The epoch by which a position of the copy is named, 0 before the first change: a token stays the same while
    /// nothing changes.
    pub fn epoch_of(&self, position: u64) -> u64 {
        match position {
            0 => 0,
            _ if position <= self.began => self.before,
            _ => self.epoch,
        }
    }
}

/// A range of ids: the least and the greatest one.
pub(in crate::coordinator) type IdRange = (Bound<DocId>, Bound<DocId>);

/// What a copy says of itself before it is compared with another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct CopyStatus {
    #[serde(rename = "standing")]
    pub replica_position: ReplicaPosition,
    /// Documents, tombstones included.
    pub documents: u64,
    /// Their digest.
    pub digest: u128,
    /// The digest of the local documents.
    pub locals: u128,
    /// The number of the last purge, and of the last one that is no longer on record.
    pub purge_seq: u64,
    pub purge_floor: u64,
    /// How far it has applied the copy of the node that asks.
    pub taken: Option<SyncPoint>,
    /// Whether all of it can be read; `None`: the node does not say so.
    #[serde(default)]
    pub soundness: Option<Soundness>,
    /// How often it has collected something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounds: u64,
    /// The purges that it has heard of; `None`: the node does not say so.
    #[serde(default)]
    pub heard: Option<Vec<Heard>>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl CopyStatus {
    /// Of a copy of which nothing can be read.
    pub fn unusable() -> CopyStatus {
        CopyStatus {
            replica_position: ReplicaPosition { shard: 0, epoch: 0, position: 0, began: 0, before: 0 },
            documents: 0,
            digest: 0,
            locals: 0,
            purge_seq: 0,
            purge_floor: 0,
            taken: None,
            soundness: Some(Soundness::Unusable),
            rounds: 0,
            heard: None,
        }
    }
}

/// Purges of another copy that a copy has heard of: from that one, or from one that had. Also of copies that are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Heard {
    pub node: String,
    pub shard: u64,
    /// The last of them.
    pub purges: u64,
    /// The last one of which that copy had no record any more: who has not heard of it by then hears of it from no
    /// record.
    pub floor: u64,
}

/// How much of a copy can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) enum Soundness {
    /// All, as far as known.
    Whole,
    /// Not all: its store file is damaged.
    Damaged,
    /// Nothing: it is damaged, or made anew and not filled yet.
    Unusable,
}

/// How far one copy was applied by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct SyncPoint {
    /// The copy that was read: its number, epoch and position.
    pub from_shard: u64,
    pub from_epoch: u64,
    pub from: u64,
    /// Its purges that were applied.
    pub purges: u64,
    /// The copy that read, then.
    pub to_shard: u64,
    pub to_epoch: u64,
    pub to: u64,
}

/// What a copy knows of another one that it has read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct TakenIn {
    /// How far.
    pub point: Option<SyncPoint>,
    /// The epochs of the other one, as it told them when it was read, with those that it had told before, and the
    /// positions after which they began.
    pub epochs: Vec<(u64, u64)>,
    /// The purges of all copies of that node that it has heard of.
    #[serde(default)]
    pub heard: Vec<Heard>,
}

impl TakenIn {
    /// What there is about the copies of a node in what was heard of all.
    pub fn of(heard: &[Heard], node: &str) -> TakenIn {
        let heard = heard.iter().filter(|heard| heard.node == node).cloned().collect();
        TakenIn { heard, ..TakenIn::default() }
    }

    /// Whether the purges of a copy of that node are known up to `floor`.
    pub fn has_heard(&self, shard: u64, floor: u64) -> bool {
        let pulled = self.point.iter().filter(|point| point.from_shard == shard).map(|point| point.purges);
        let heard = self.heard.iter().filter(|heard| heard.shard == shard).map(|heard| heard.purges);
        pulled.chain(heard).chain([0]).any(|purges| purges >= floor)
    }
}

/// Why a call of a copy was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) enum WireError {
    /// The node would not do it: it does not hold the copy, or is in another epoch.
    #[serde(rename = "Away")]
    NotExecuted(String),
    /// The documents are elsewhere now.
    Moved,
    /// The disk is nearly full.
    NoRoom,
    /// The disk failed, and nothing was done.
    Storage(String),
    /// It may have been done.
    Unknown,
}

/// Why a primary refused an edit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum Refusal {
    Conflict,
    Design(DesignError),
    Forbidden(Value),
    MissingStub { id: DocId, name: String },
    PartitionOverflow { id: DocId },
    Script(ScriptError),
    Unauthorized(Value),
    Unavailable(WireError),
    Unknown,
    UploadGone { name: String },
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Refusal {
        match error {
            WriteError::Conflict => Refusal::Conflict,
            WriteError::Design(error) => Refusal::Design(error),
            WriteError::Forbidden { reason } => Refusal::Forbidden(reason),
            WriteError::MissingStub { id, name } => Refusal::MissingStub { id, name },
            WriteError::PartitionOverflow { id } => Refusal::PartitionOverflow { id },
            WriteError::Script(error) => Refusal::Script(error),
            WriteError::Unauthorized { reason } => Refusal::Unauthorized(reason),
            WriteError::UploadGone { name } => Refusal::UploadGone { name },
            WriteError::Unavailable(error) => Refusal::Unavailable(error.into()),
            _ => Refusal::Unknown,
        }
    }
}

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> WriteError {
        match refusal {
            Refusal::Conflict => WriteError::Conflict,
            Refusal::Design(error) => WriteError::Design(error),
            Refusal::Forbidden(reason) => WriteError::Forbidden { reason },
            Refusal::MissingStub { id, name } => WriteError::MissingStub { id, name },
            Refusal::PartitionOverflow { id } => WriteError::PartitionOverflow { id },
            Refusal::Script(error) => WriteError::Script(error),
            Refusal::Unauthorized(reason) => WriteError::Unauthorized { reason },
            Refusal::Unavailable(error) => ShardError::from(error).into(),
            Refusal::Unknown => WriteError::Unknown,
            Refusal::UploadGone { name } => WriteError::UploadGone { name },
        }
    }
}

impl From<ShardError> for WireError {
    fn from(error: ShardError) -> WireError {
        match error {
            _ if error.is_no_room() => WireError::NoRoom,
            ShardError::Storage(error) | ShardError::Commit(CommitError::Storage(error)) => {
                WireError::Storage(error.to_string())
            }
            ShardError::Commit(CommitError::Unknown) | ShardError::Indeterminate(_) => WireError::Unknown,
            ShardError::Commit(CommitError::Stopped) => WireError::Storage(CommitError::Stopped.to_string()),
            ShardError::Moved => WireError::Moved,
            ShardError::Dropped | ShardError::NotExecuted(_) | ShardError::NoCopy { .. } => {
                WireError::NotExecuted(error.to_string())
            }
        }
    }
}

impl From<WireError> for ShardError {
    fn from(error: WireError) -> ShardError {
        match error {
            WireError::NotExecuted(why) => ShardError::NotExecuted(why),
            WireError::Moved => ShardError::Moved,
            WireError::NoRoom => ShardError::Storage(StorageError::NoRoom),
            WireError::Storage(why) => ShardError::Storage(StorageError::told(why)),
            WireError::Unknown => ShardError::Indeterminate("its outcome is unknown".to_owned()),
        }
    }
}

/// What nodes tell each other about the set of databases.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum CatalogueCall {
    /// `Created`
    Create(Box<DatabaseMap>),
    /// `bool`: whether it was there.
    Delete { name: String, instance: String },
    /// `bool`: whether the database is known here.
    Set(Box<DatabaseMap>),
    /// `NodeState`; tells that of the caller.
    State(NodeState),
    /// `[u8; 32]`: of all that [`CatalogueCall::Entries`] would list.
    Digest,
    /// `Vec<EntryName>` in order, behind the given one.
    Entries { after: Option<(String, String)>, limit: u64 },
    /// `()`, when begun: the asked node applies what the asking one knows, for it may have missed something.
    Learn,
    /// `Vec<DatabaseMap>`: those of the names that live here.
    Maps(Vec<String>),
    /// `()`: a copy here may have missed something of the database.
    Pull(String),
    /// `([u8; 16], Option<String>)`: of the copies of ranges that both nodes hold, as the asking one sees them when it
    /// is in sync, for as many databases behind a name; and the last of these, if there are others behind it.
    RolledUp(Option<String>, u64),
    /// `Vec<(String, [u8; 16])>`: the same for each database behind a name, up to the last one, in order.
    Copies { after: Option<String>, last: Option<String> },
    /// `Vote`: about the map of a database, see `consensus`.
    Ballot(Box<BallotCall>),
    /// About who votes.
    Voters(Box<VotersCall>),
    /// `JobAnswer`: about jobs on this node, see `reshard`.
    Jobs(JobCall),
    /// `Option<Rebalance>`: the request that the asked node carries out.
    Rebalance(RebalanceCall),
}

/// A proposer's question about the next map of a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct BallotCall {
    pub name: String,
    pub instance: String,
    pub ask: Ask<MapRecord>,
}

/// What nodes ask each other about who votes, see `voters`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum VotersCall {
    /// `Voters`: those that the asked node knows, when it has heard of these.
    Exchange(Voters),
    /// `Vote`: about the next ones.
    Ballot(Ask<Voters>),
    /// `Option<HandedOver>`: what the asked node promised and accepted, behind a key, once it votes by these voters and
    /// by none before them; `None` while it goes by others.
    HandOver { voters: Voters, after: Option<Vec<u8>> },
}

/// What a node promised and accepted about maps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct HandedOver {
    /// The version of the voters up to which it has applied what was accepted.
    pub complete: u64,
    /// About the next voters.
    pub voters: Promise<Voters>,
    /// About maps of databases: name, instance, and promise; in order.
    pub maps: Vec<(String, String, Promise<MapRecord>)>,
    /// The last key, if there are others behind it.
    pub last: Option<Vec<u8>>,
}

/// A database as all nodes know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct DatabaseMap {
    pub name: String,
    /// Without numbers of shards; `by_range` is there.
    pub record: Record,
}

/// What became of a creation on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) enum Created {
    Done,
    /// Another database of the name is there.
    Exists,
    /// It was deleted already.
    Gone,
}

/// How a node takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct NodeState {
    /// Its copies hold what the others held when it last met them.
    pub in_sync: bool,
    /// Its copies take no part.
    pub maintenance: bool,
}

/// An entry of the list of databases, and the state that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct EntryName {
    pub name: String,
    pub instance: String,
    /// Whether that database is deleted.
    pub deleted: bool,
    /// Of its settings and where it lives.
    pub digest: [u8; 16],
}

/// What serde says of an operation that a build does not know.
const UNKNOWN: &str = "unknown variant";

/// Whether a node refused a call for its build does not know what is asked.
pub(in crate::coordinator) fn is_of_later_build(error: &ShardError) -> bool {
    matches!(error, ShardError::NotExecuted(why) if why.contains(UNKNOWN))
}

/// Writes a message.
pub(in crate::coordinator) fn encode(message: &impl Serialize) -> Bytes {
    // Invariant: messages are made of numbers, texts, lists and bytes, which always serialize.
    Bytes::from(rmp_serde::to_vec_named(message).expect("a message serializes"))
}

/// Reads a message.
pub(in crate::coordinator) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    rmp_serde::from_slice(bytes).map_err(|error| format!("a message cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::document::rev_tree::RevPath;
    use crate::shard::AcceptedEdit;

    #[test]
    fn messages_round_trip() {
        let rev = |text| Revision::parse(text).unwrap();
        let path = RevPath { start: 2, ids: vec![rev("2-0123456789abcdef0123456789abcdef").hash, rev("1-odd").hash] };
        let accepted: Vec<Result<AcceptedEdit, Refusal>> = vec![
            Ok(AcceptedEdit { path, attachments: Vec::new() }),
            Err(Refusal::Forbidden(crate::document::json::parse(br#"{"b":1.0,"a":12345678901234567890123}"#).unwrap())),
        ];
        let read: Vec<Result<AcceptedEdit, Refusal>> = decode(&encode(&accepted)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{accepted:?}"));
        let op = CopyOp::Fetch(vec![(DocId::new("a"), Want::Revision(rev("3-x"))), (DocId::new("b"), Want::Tree)]);
        let call = CopyCall {
            db: "d".into(),
            instance: "i".into(),
            version: 1,
            counted: true,
            range: 3,
            id: 9,
            horizon: None,
            op,
        };
        let read: CopyCall = decode(&encode(&call)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{call:?}"));
        assert!(decode::<CopyCall>(b"\x93junk").is_err());
    }

    #[test]
    fn a_primary_elsewhere_hashes_the_body_that_the_client_sent() {
        let sent = crate::document::json::parse(br#"{"a":-0.0,"b":5e-324}"#).unwrap();
        let body = Arc::new(PreparedBody::new(sent.as_object().unwrap()));
        let edit = |op| Edit { id: DocId::new("a"), op, deleted: false, body, attachments: Vec::new(), revs_limit: 1 };
        let edit = edit(EditOp::Interactive { parent: None });
        let read = decode::<EditText>(&encode(&EditText::from(&edit))).unwrap().read().unwrap();
        assert_eq!((&read.body.term, &read.body.text), (&edit.body.term, &edit.body.text));
        assert_ne!(
            PreparedBody::from_text(read.body.text.clone()).unwrap().term,
            edit.body.term,
            "the text tells less"
        );
    }

    #[test]
    fn an_operation_that_is_not_known_is_refused_as_such() {
        #[derive(Serialize)]
        enum Newer {
            Status,
            Mood(Vec<(u64, u64)>),
        }
        for op in [Newer::Mood(vec![(1, 2)]), Newer::Mood(Vec::new())] {
            let why = decode::<CopyOp>(&encode(&op)).unwrap_err();
            assert!(is_of_later_build(&ShardError::NotExecuted(format!("n1@h: {why}"))), "{why}");
        }
        assert!(matches!(decode(&encode(&Newer::Status)), Ok(CopyOp::Status)));
        assert!(!is_of_later_build(&ShardError::NotExecuted("n1@h is down".to_owned())));
    }

    #[test]
    fn a_copy_that_says_nothing_of_what_it_heard_is_of_an_older_build() {
        #[derive(Serialize)]
        struct Older {
            #[serde(rename = "standing")]
            replica_position: ReplicaPosition,
            documents: u64,
            digest: u128,
            locals: u128,
            purge_seq: u64,
            purge_floor: u64,
            taken: Option<SyncPoint>,
        }
        let replica_position = CopyStatus::unusable().replica_position;
        let older =
            Older { replica_position, documents: 1, digest: 2, locals: 3, purge_seq: 4, purge_floor: 0, taken: None };
        let read: CopyStatus = decode(&encode(&older)).unwrap();
        assert_eq!((read.documents, read.purge_seq, read.heard, read.soundness), (1, 4, None, None));
    }

    #[test]
    fn a_field_that_is_not_known_is_passed_over() {
        #[derive(Serialize)]
        struct Newer {
            in_sync: bool,
            mood: &'static str,
            maintenance: bool,
        }
        let bytes = encode(&Newer { in_sync: true, mood: "fine", maintenance: false });
        assert_eq!(decode::<NodeState>(&bytes), Ok(NodeState { in_sync: true, maintenance: false }));
    }
}
