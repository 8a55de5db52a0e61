//! Values that calls between nodes carry, and their encoding. The calls of a replica are the table in
//! [`super::calls`], the calls about the set of databases are in [`super::node_calls`].
//!
//! Messages carry the names of their fields (MessagePack maps), so that a field can be added: a node that does not know
//! it goes on without, one that misses it takes its default. Pure.

use std::ops::Bound;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::WriteError;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::document::shared;
use crate::limits;
use crate::script::{DesignError, ScriptError};
use crate::shard::{Edit, EditAttachment, EditOp, ShardError};
use crate::storage::{CommitError, Direction, StorageError};
use crate::wire::message_pack;

/// Which changes of a replica to read.
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
    #[serde(deserialize_with = "shared::deserialize")]
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
            term: matches!(edit.op, EditOp::Interactive { .. }).then(|| edit.body.sent_term()).flatten(),
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

/// Where a replica stands.
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
    /// The epoch by which a position of the replica is named, 0 before the first change: a token stays the same while
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

/// What a replica says of itself before it is compared with another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct StatusReport {
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
    /// How far it has applied the replica of the node that asks.
    pub taken: Option<SyncPoint>,
    /// Whether all of it can be read; `None`: the node does not say so.
    #[serde(default)]
    pub soundness: Option<Soundness>,
    /// How often it has collected something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounds: u64,
    /// The purges that it has heard of; `None`: the node does not say so.
    #[serde(default)]
    pub heard: Option<Vec<HeardPurges>>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl StatusReport {
    /// Of a replica of which nothing can be read.
    pub fn unusable() -> StatusReport {
        StatusReport {
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

/// Purges of another replica that a replica has heard of: from that one, or from one that had. Also of replicas that
/// are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct HeardPurges {
    pub node: String,
    pub shard: u64,
    /// The last of them.
    pub purges: u64,
    /// The last one of which that replica had no record any more: who has not heard of it by then hears of it from no
    /// record.
    pub floor: u64,
}

/// How much of a replica can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) enum Soundness {
    /// All, as far as known.
    Whole,
    /// Not all: its store file is damaged.
    Damaged,
    /// Nothing: it is damaged, or being rebuilt and not filled yet.
    Unusable,
}

/// How far one replica was applied by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct SyncPoint {
    /// The replica that was read: its number, epoch and position.
    pub from_shard: u64,
    pub from_epoch: u64,
    pub from: u64,
    /// Its purges that were applied.
    pub purges: u64,
    /// The replica that read, then.
    pub to_shard: u64,
    pub to_epoch: u64,
    pub to: u64,
}

/// What a replica has applied of another one, and what it has heard of that one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct AppliedState {
    /// How far.
    pub point: Option<SyncPoint>,
    /// The epochs of the other one, as it told them when it was read, with those that it had told before, and the
    /// positions after which they began.
    pub epochs: Vec<(u64, u64)>,
    /// The purges of all replicas of that node that it has heard of.
    #[serde(default)]
    pub heard: Vec<HeardPurges>,
}

impl AppliedState {
    /// What there is about the replicas of a node in what was heard of all.
    pub fn of(heard: &[HeardPurges], node: &str) -> AppliedState {
        let heard = heard.iter().filter(|heard| heard.node == node).cloned().collect();
        AppliedState { heard, ..AppliedState::default() }
    }

    /// Whether the purges of a replica of that node are known up to `floor`.
    pub fn has_heard(&self, shard: u64, floor: u64) -> bool {
        let pulled = self.point.iter().filter(|point| point.from_shard == shard).map(|point| point.purges);
        let heard = self.heard.iter().filter(|heard| heard.shard == shard).map(|heard| heard.purges);
        pulled.chain(heard).chain([0]).any(|purges| purges >= floor)
    }
}

/// Why a call of a replica was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) enum WireError {
    /// The node would not do it: it does not hold the replica, or is in another epoch.
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
pub(in crate::coordinator) enum EditRefusal {
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

impl From<WriteError> for EditRefusal {
    fn from(error: WriteError) -> EditRefusal {
        match error {
            WriteError::Conflict => EditRefusal::Conflict,
            WriteError::Design(error) => EditRefusal::Design(error),
            WriteError::Forbidden { reason } => EditRefusal::Forbidden(reason),
            WriteError::MissingStub { id, name } => EditRefusal::MissingStub { id, name },
            WriteError::PartitionOverflow { id } => EditRefusal::PartitionOverflow { id },
            WriteError::Script(error) => EditRefusal::Script(error),
            WriteError::Unauthorized { reason } => EditRefusal::Unauthorized(reason),
            WriteError::UploadGone { name } => EditRefusal::UploadGone { name },
            WriteError::Unavailable(error) => EditRefusal::Unavailable(error.into()),
            _ => EditRefusal::Unknown,
        }
    }
}

impl From<EditRefusal> for WriteError {
    fn from(refusal: EditRefusal) -> WriteError {
        match refusal {
            EditRefusal::Conflict => WriteError::Conflict,
            EditRefusal::Design(error) => WriteError::Design(error),
            EditRefusal::Forbidden(reason) => WriteError::Forbidden { reason },
            EditRefusal::MissingStub { id, name } => WriteError::MissingStub { id, name },
            EditRefusal::PartitionOverflow { id } => WriteError::PartitionOverflow { id },
            EditRefusal::Script(error) => WriteError::Script(error),
            EditRefusal::Unauthorized(reason) => WriteError::Unauthorized { reason },
            EditRefusal::Unavailable(error) => ShardError::from(error).into(),
            EditRefusal::Unknown => WriteError::Unknown,
            EditRefusal::UploadGone { name } => WriteError::UploadGone { name },
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
            ShardError::Dropped | ShardError::NotExecuted(_) | ShardError::NoReplica { .. } => {
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

/// What serde says of an operation that a build does not know.
const UNKNOWN: &str = "unknown variant";

/// Whether a node refused a call for its build does not know what is asked.
pub(in crate::coordinator) fn is_unknown_call(error: &ShardError) -> bool {
    matches!(error, ShardError::NotExecuted(why) if why.contains(UNKNOWN))
}

/// Writes a message.
pub(in crate::coordinator) fn encode(message: &impl Serialize) -> Bytes {
    Bytes::from(message_pack::encode(message))
}

/// Reads a message.
pub(in crate::coordinator) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    message_pack::decode(bytes).map_err(unreadable)
}

/// Those texts that are sent from where they are, see [`crate::wire::message::Message::of`].
pub(in crate::coordinator) fn large_texts<'t>(texts: impl Iterator<Item = &'t Bytes>) -> Vec<Bytes> {
    texts.filter(|text| text.len() >= limits::MESSAGE_SHARED_FROM).cloned().collect()
}

/// As [`decode`]; a large text in it stays in the message, see [`shared`].
pub(in crate::coordinator) fn decode_shared<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, String> {
    shared::reading(bytes, limits::MESSAGE_SHARED_FROM, || message_pack::decode(bytes)).map_err(unreadable)
}

fn unreadable(error: message_pack::DecodeError) -> String {
    format!("a message cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::document::rev_tree::RevPath;
    use crate::document::revision::Revision;
    use crate::shard::AcceptedEdit;

    #[test]
    fn messages_round_trip() {
        let rev = |text| Revision::parse(text).unwrap();
        let path = RevPath { start: 2, ids: vec![rev("2-0123456789abcdef0123456789abcdef").hash, rev("1-odd").hash] };
        let accepted: Vec<Result<AcceptedEdit, EditRefusal>> = vec![
            Ok(AcceptedEdit { path, attachments: Vec::new() }),
            Err(EditRefusal::Forbidden(
                crate::document::json::parse(br#"{"b":1.0,"a":12345678901234567890123}"#).unwrap(),
            )),
        ];
        let read: Vec<Result<AcceptedEdit, EditRefusal>> = decode(&encode(&accepted)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{accepted:?}"));
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
    fn a_replica_that_says_nothing_of_what_it_heard_is_of_an_older_build() {
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
        let replica_position = StatusReport::unusable().replica_position;
        let older =
            Older { replica_position, documents: 1, digest: 2, locals: 3, purge_seq: 4, purge_floor: 0, taken: None };
        let read: StatusReport = decode(&encode(&older)).unwrap();
        assert_eq!((read.documents, read.purge_seq, read.heard, read.soundness), (1, 4, None, None));
    }
}
