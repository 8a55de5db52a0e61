//! One replica of one range of a database: the place where documents are stored.
//!
//! A [`ShardReplica`] decides edits inside the node's committer, so that all edits of all callers share commits and
//! each edit sees those before it; it reads from what is committed, in bounded steps. Sequence numbers rise by one with
//! each change of a document and are never reused. Records are described in `keys.rs` and `record.rs`.
//!
//! Costs: an edit reads the document's record, the shard's header and one summary per level of the two orders; a level
//! has about a 32nd of the entries of the level below. Sums over ranges, ranks and `pending` read some 20 records per
//! level. No count is ever made by a scan.

mod body;
mod changes;
mod check;
mod collection_horizon;
mod cut;
mod decide;
mod edit;
mod fetch;
mod filter_scan;
#[cfg(test)]
mod fuzz_tests;
mod keys;
mod levels;
mod lifetime;
mod list;
mod local;
mod pace;
mod purge;
mod record;
mod recovery;
mod replica;
mod sequence;
mod split;
mod summary;
mod sums;
mod sweep;
mod sync;
#[cfg(test)]
mod tests;
mod time_seq;
mod tombstone_collection;
mod transaction;
mod upgrade;

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::render::{Attachment, StoredRevision, object_text};
use crate::document::rev_tree::{RevPath, RevTree, RevValue};
use crate::document::revision::Revision;
use crate::storage::{CommitError, StorageError};

pub use changes::change_at;
pub use check::{Checked, check};
pub use collection_horizon::{CollectionLog, Horizon, Proposal, Round};
pub use cut::{Cut, cut};
pub use decide::{Conflict, ancestor_of, attachment_of_stub, parent_of};
pub use fetch::{FetchedPart, Wants, wanted};
pub use filter_scan::{FilterPage, FilterScan, Matched};
pub use keys::document_of;
pub use lifetime::{FIRST_FREE_SHARD, allocate, allocate_in, drop_shard, is_going, resume_drops};
pub use list::bounded_scan;
pub use pace::Pace;
pub use record::RevData;
pub use recovery::Salvage;
pub use replica::{Admits, OnChange, Owner, ShardReplica, VIEW_KIND};
pub use split::{Legacy, Sorter};
pub use summary::Summary;
pub use sums::{DocumentDigest, IdRangeSummary};
pub use sync::SyncState;
pub use time_seq::{TimeSeq, Times};
pub use tombstone_collection::{AppliedEarly, Collected, CollectionLogState, ProposalOutcome, Tombstone};

/// The number of a replica on its node; the first 8 bytes of all its keys. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u64);

/// One edit of one document.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The document.
    pub id: DocId,
    /// How it is decided.
    pub op: EditOp,
    /// Whether the new revision is a tombstone.
    pub deleted: bool,
    /// The new body.
    pub body: Arc<PreparedBody>,
    /// The new attachments in document order.
    pub attachments: Vec<EditAttachment>,
    /// Generations to keep (`_revs_limit` of the database).
    pub revs_limit: u64,
}

/// How an edit is decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EditOp {
    /// A client's edit of `parent`; the revision is computed here.
    Interactive {
        /// The revision that the client saw.
        parent: Option<Revision>,
    },
    /// A revision made elsewhere (`new_edits=false`, or decided by another replica): never a conflict.
    Merge {
        /// The new revision first, then its ancestors.
        path: RevPath,
    },
}

/// An attachment of an edit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EditAttachment {
    /// As in the parent revision.
    Stub {
        /// The attachment's name.
        name: String,
        /// The generation that the client believes wrote it; checked when given.
        revpos: Option<u64>,
        /// What the bytes are, for a revision made elsewhere: there the attachment of this name with these bytes is
        /// meant, whichever generation wrote it here.
        #[serde(default)]
        bytes: Option<KnownBytes>,
    },
    /// Uploaded to this shard before. Its `revpos` counts for merges only; an interactive edit sets the new generation.
    New(Attachment),
}

/// What a client tells of the bytes of an attachment that it does not send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownBytes {
    /// The attachment's type.
    pub content_type: String,
    /// MD5 of the stored bytes.
    pub digest: [u8; 16],
}

/// What was known of a document when an edit of it was validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Nothing that could change the outcome.
    Any,
    /// That no purge on record names the revision, as far as the replica remembers: the edit was stored by another
    /// replica, which may not have heard of that purge then. A revision that is here was written again since.
    NotPurged,
    /// The nearest ancestor with a body of a revision made elsewhere.
    Ancestor(Option<Revision>),
    /// How far the replica was purged when none of its purges stood against a revision of another replica, and how
    /// often it had collected something when that one was read.
    Purges {
        /// The number of its last purge.
        seen: u64,
        /// How often it had collected something.
        rounds: u64,
        /// Whether it is noted that this was applied from another replica: not all of them were met yet.
        is_early: bool,
    },
}

/// A revision that a replica decided and stored, as the other replicas take it in: they merge it, which is never a
/// conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedEdit {
    /// The revision first, then its ancestors.
    pub path: RevPath,
    /// Its attachments, without stubs.
    pub attachments: Vec<Attachment>,
}

/// Why an edit was refused; nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// The document is no longer as it was when the edit was validated: validate again.
    BasisChanged,
    /// The parent is missing, unknown or outdated.
    Conflict,
    /// A stub names an attachment that the parent has not, or of another revpos.
    MissingStub {
        /// The document.
        id: DocId,
        /// The attachment.
        name: String,
    },
    /// An uploaded attachment is gone: its lease ran out before the edit. Upload it again.
    UploadGone {
        /// The attachment.
        name: String,
    },
    /// The disk is nearly full: only tombstones are taken.
    NoRoom,
    /// A purge that the replica remembers names the revision, and the edit may be older than that purge.
    Purged,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditError::BasisChanged => f.write_str("the document was changed meanwhile"),
            EditError::Conflict => f.write_str("conflict"),
            EditError::MissingStub { id, name } => write!(f, "{id:?} has no attachment {name:?}"),
            EditError::UploadGone { name } => write!(f, "the upload of attachment {name:?} is gone"),
            EditError::NoRoom => f.write_str("the disk is nearly full"),
            EditError::Purged => f.write_str("it was purged"),
        }
    }
}

/// What a read wants of a document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Want {
    /// The winning revision with its body, tombstone or not.
    Winner,
    /// One revision with its body.
    Revision(Revision),
    /// All leaves with their bodies, best first.
    Leaves,
    /// Revisions by name.
    Revisions {
        /// The names.
        revs: Vec<Revision>,
        /// Answer the leaves below each instead.
        latest: bool,
    },
    /// The revision tree only.
    Tree,
}

/// What a read found of a known document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fetched {
    /// The whole revision tree.
    pub tree: RevTree<RevData>,
    /// Sequence of the document's last change within this shard.
    pub local_seq: u64,
    /// The wanted revisions in the wanted order; `None` where the body is not there (unknown, or known by name only).
    pub found: Vec<(Revision, Option<StoredRevision>)>,
}

impl Fetched {
    /// Takes the one revision that was wanted; `None` where its body is not there.
    pub fn take_one(&mut self) -> Option<StoredRevision> {
        self.found.pop()?.1
    }

    /// The live leaves beside the first that was found, best first.
    pub fn live_conflicts(&self) -> Vec<Revision> {
        self.found.first().map(|(shown, _)| self.conflicts(shown).0).unwrap_or_default()
    }

    /// Other live leaves and other deleted leaves beside `shown`, best first each.
    pub fn conflicts(&self, shown: &Revision) -> (Vec<Revision>, Vec<Revision>) {
        beside(shown, self.tree.leaves().into_iter().map(|leaf| (leaf.rev, leaf.value.is_deleted())))
    }
}

/// The conflicts among the leaves of a document of which the first is shown, if they are wanted.
pub fn live_conflicts(leaves: &[(Revision, bool)], wanted: bool) -> Vec<Revision> {
    match leaves.first() {
        Some((shown, _)) if wanted => beside(shown, leaves.iter().cloned()).0,
        _ => Vec::new(),
    }
}

/// The live and the deleted ones (true) of leaves other than `shown`, in their order.
fn beside(shown: &Revision, leaves: impl Iterator<Item = (Revision, bool)>) -> (Vec<Revision>, Vec<Revision>) {
    let (mut live, mut deleted) = (Vec::new(), Vec::new());
    for (rev, is_deleted) in leaves.filter(|(rev, _)| rev != shown) {
        if is_deleted { deleted.push(rev) } else { live.push(rev) }
    }
    (live, deleted)
}

/// Which live documents to list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListPage {
    /// Least id.
    pub start: Bound<DocId>,
    /// Greatest id.
    pub end: Bound<DocId>,
    /// From `end` down instead of from `start` up.
    pub descending: bool,
    /// Rows at most. Fewer rows mean that the range has no more, unless bodies are read.
    pub limit: usize,
    /// Whether to read the winners' bodies, too: a page ends with a bounded number of their bytes.
    pub bodies: bool,
}

/// A live document in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListRow {
    /// The document.
    pub id: DocId,
    /// All leaves, winner first; true = tombstone.
    pub leaves: Vec<(Revision, bool)>,
    /// Sequence of its last change within this shard.
    pub local_seq: u64,
    /// The winner with its body, where wanted.
    pub winner: Option<StoredRevision>,
}

impl ListRow {
    /// The winning revision.
    pub fn rev(&self) -> &Revision {
        // Invariant: a stored document has at least one leaf; records without are refused when read.
        &self.leaves[0].0
    }
}

/// A page of the changes of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardChangesPage {
    /// The rows in sequence order (descending: reversed). Fewer than asked for: there were no more.
    pub rows: Vec<ShardChange>,
    /// How many changes lie behind the last row in reading direction.
    pub pending_after: u64,
    /// Where to go on: the sequence of the last row; with all rows read and ascending order, the shard's last sequence.
    pub last_seq: u64,
}

/// The last change of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardChange {
    /// Sequence within the shard.
    pub seq: u64,
    /// The document.
    pub id: DocId,
    /// All leaves, winner first; true = tombstone.
    pub leaves: Vec<(Revision, bool)>,
}

/// Counters of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInfo {
    /// Live documents, design documents included.
    pub doc_count: u64,
    /// Documents whose winner is a tombstone.
    pub doc_del_count: u64,
    /// Live design documents.
    pub design_count: u64,
    /// The last sequence.
    pub update_seq: u64,
    /// The number of the last purge.
    pub purge_seq: u64,
    /// Bytes.
    pub sizes: Sizes,
}

/// Sizes of a replica in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Bytes of what is live: documents and their rows, bodies and attachments of all leaves as they are stored.
    pub active: u64,
    /// Bytes of the texts and attachments of all leaves before compression.
    pub external: u64,
    /// `active` and the bytes of old bodies and attachments, which compaction removes.
    pub file: u64,
}

/// An entry of the purge log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeInfo {
    /// Its number.
    pub purge_seq: u64,
    /// The document.
    pub id: DocId,
    /// The purged leaves.
    pub revs: Vec<Revision>,
    /// Ancestors that went with them: a replica that has one of these as a leaf lacked the purged one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Revision>,
}

impl PurgeInfo {
    /// All revisions that it says are gone.
    pub fn gone(&self) -> impl Iterator<Item = &Revision> {
        self.revs.iter().chain(&self.history)
    }
}

/// When a value was set that has no history, such as a local document: of two the higher one counts everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// One more than that of the value it replaced.
    pub counter: u64,
    /// Tells apart coordinators that replaced the same value.
    pub by: u64,
}

/// What a replica keeps of a local document: its text or the mark of its deletion, and when that was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalRegister {
    /// When it was set.
    pub stamp: Stamp,
    /// `None`: deleted.
    pub document: Option<LocalDocument>,
}

/// A local document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalDocument {
    /// The number N of its revision `0-N`.
    pub rev: u64,
    /// Canonical JSON text of the body without underscore fields.
    #[serde(deserialize_with = "object_text")]
    pub body: Bytes,
}

/// Why a call on a replica failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardError {
    /// It could not be read.
    Storage(StorageError),
    /// It could not be written; see the kinds for what is known.
    Commit(CommitError),
    /// The replica was dropped.
    Dropped,
    /// The documents are elsewhere now: nothing was done, look at the map again.
    Moved,
    /// The replica is on a node that could not be asked, or would not: it did nothing. Carries why.
    NotExecuted(String),
    /// The replica's node did not answer: it may have done it. Carries why.
    Indeterminate(String),
    /// None of the range's replicas could be asked.
    NoReplica {
        /// How many there are.
        replicas: usize,
    },
}

impl ShardError {
    /// Whether it was refused because the disk is nearly full; it had no effect.
    pub fn is_no_room(&self) -> bool {
        let commit = CommitError::Storage(StorageError::NoRoom);
        *self == ShardError::Storage(StorageError::NoRoom) || *self == ShardError::Commit(commit)
    }

    /// Whether stored bytes are not what was written, on this node or on another one that said so: it fails the same
    /// way every time.
    pub fn is_damage(&self) -> bool {
        self.of_storage().is_some_and(StorageError::is_damage)
    }

    /// Whether it is damage of this node's own data.
    pub fn is_damage_here(&self) -> bool {
        matches!(self.of_storage(), Some(StorageError::Corrupt(_)))
    }

    fn of_storage(&self) -> Option<&StorageError> {
        match self {
            ShardError::Storage(error) | ShardError::Commit(CommitError::Storage(error)) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardError::Storage(error) => error.fmt(f),
            ShardError::Commit(error) => error.fmt(f),
            ShardError::Dropped => f.write_str("the replica was dropped"),
            ShardError::Moved => f.write_str("the documents of the range moved"),
            ShardError::NotExecuted(why) => write!(f, "a replica could not be asked: {why}"),
            ShardError::Indeterminate(why) => write!(f, "a replica did not answer: {why}"),
            ShardError::NoReplica { replicas } => write!(f, "none of {replicas} replicas answered"),
        }
    }
}

impl std::error::Error for ShardError {}

impl From<StorageError> for ShardError {
    fn from(error: StorageError) -> Self {
        ShardError::Storage(error)
    }
}

impl From<CommitError> for ShardError {
    fn from(error: CommitError) -> Self {
        ShardError::Commit(error)
    }
}
