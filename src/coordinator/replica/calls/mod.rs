//! Calls between nodes about one replica of a shard: the table of operations, each with the type of its answer.
//!
//! An operation is a struct in the file of its group and one line of the table below. A node sends it with
//! [`RemoteCopy::ask`](super::remote::RemoteCopy::ask), which knows the type of the answer by it; the node that holds
//! the replica answers in `node/serve.rs`, where the compiler holds the answer against the same type. An operation that
//! a replica answers by itself is a [`PlainCall`], and is carried out the same way on this node and for another one.
//!
//! Names of operations and of their fields are the wire format (`tests/formats.rs`): a renamed one keeps its old name
//! in a `serde` attribute. A node that does not know an operation refuses it
//! ([`is_of_later_build`](super::message::is_of_later_build)).

mod attachments;
mod changes;
mod collection;
mod convergence;
mod documents;
mod edits;
mod indexes;
mod locals;
mod purges;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinator::replica::message::{CopyStatus, Refusal, ReplicaPosition, TakenIn};
use crate::coordinator::replica::own_copy::OwnCopy;
use crate::coordinator::replica::told::{AcceptedAt, Merged};
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::revision::Revision;
use crate::shard::{
    ChangesPage, DocumentDigest, Fetched, Horizon, ListRow, LocalDocument, LocalRegister, Part, PurgeInfo, ShardError,
    ShardInfo, Stamp, Summary,
};

pub(in crate::coordinator) use attachments::{Blob, Stage, StageFinish, StageWrite};
pub(in crate::coordinator) use changes::{Changes, DesignVersion, Info, Resume, Wait};
pub(in crate::coordinator) use collection::{
    Collect, CollectionCall, CollectionQuestion, Confirm, Markers, Open, Propose, Tell,
};
pub(in crate::coordinator) use convergence::{
    Compact, Digests, Epochs, Holds, PurgesShared, SetSyncPoint, Split, Status, TakenInOf,
};
pub(in crate::coordinator) use documents::{Fetch, FetchSome, List, Select, SummaryOf};
pub(in crate::coordinator) use edits::{Decide, Merge};
pub(in crate::coordinator) use indexes::{
    CountOf, GroupsOf, HeaderOf, KeepViews, RowsOf, Search, SearchCall, SearchFor, SearchOp, SearchQuestion,
    SelectedOf, SizeOf, UpdateView, View, ViewCall, ViewFailure, ViewOp, ViewQuestion,
};
pub use indexes::{IndexSize, SearchRefusal};
pub(in crate::coordinator) use locals::{Local, LocalList, LocalMerge, LocalRegisters, LocalSet};
pub(in crate::coordinator) use purges::{Purge, PurgeInfos};

/// An operation on one replica, with the type of its answer.
pub(in crate::coordinator) trait ReplicaCall: Into<CopyOp> + Send {
    type Answer: Serialize + DeserializeOwned + Send;
}

/// An operation that a replica answers by itself, the same to its own node and to another one.
pub(in crate::coordinator) trait PlainCall: ReplicaCall {
    /// Carries it out on a replica of this node.
    fn on(self, copy: &OwnCopy) -> impl Future<Output = Result<Self::Answer, ShardError>> + Send;
}

/// Defines [`CopyOp`] of a table: operations without content, then those with content.
macro_rules! table {
    (
        bare { $($(#[$unit_note:meta])* $unit:ident => $unit_answer:ty,)* }
        with { $($(#[$note:meta])* $name:ident ($call:ident) => $answer:ty,)* }
    ) => {
        /// What is asked of a replica.
        #[derive(Debug, Serialize, Deserialize)]
        pub(in crate::coordinator) enum CopyOp {
            $($(#[$unit_note])* $unit,)*
            $($(#[$note])* $name($call),)*
        }

        $(
            impl From<$unit> for CopyOp {
                fn from(_: $unit) -> CopyOp {
                    CopyOp::$unit
                }
            }

            impl ReplicaCall for $unit {
                type Answer = $unit_answer;
            }
        )*
        $(
            impl From<$call> for CopyOp {
                fn from(call: $call) -> CopyOp {
                    CopyOp::$name(call)
                }
            }

            impl ReplicaCall for $call {
                type Answer = $answer;
            }
        )*
    };
}

table! {
    bare {
        Compact => (),
        DesignVersion => u64,
        Epochs => Vec<(u64, u64)>,
        Info => (ShardInfo, ReplicaPosition),
        Status => CopyStatus,
    }
    with {
        // Documents.
        Fetch(Fetch) => Vec<Option<Fetched>>,
        FetchSome(FetchSome) => (Vec<Option<Fetched>>, u64),
        List(List) => Vec<ListRow>,
        Summary(SummaryOf) => Summary,
        Select(Select) => Option<DocId>,
        // Changes.
        Changes(Changes) => ChangesPage,
        Wait(Wait) => ReplicaPosition,
        Resume(Resume) => u64,
        // Edits.
        #[serde(rename = "Judge")]
        Decide(Decide) => Vec<Result<AcceptedAt, Refusal>>,
        Merge(Merge) => Merged,
        // Local documents.
        Local(Local) => Option<LocalRegister>,
        LocalList(LocalList) => Vec<(DocId, LocalDocument)>,
        LocalSet(LocalSet) => Stamp,
        LocalMerge(LocalMerge) => Vec<Stamp>,
        LocalRegisters(LocalRegisters) => Vec<(DocId, LocalRegister)>,
        // Purges.
        Purge(Purge) => Vec<Vec<Revision>>,
        PurgeInfos(PurgeInfos) => Vec<PurgeInfo>,
        // Attachments.
        Blob(Blob) => Bytes,
        Stage(Stage) => u64,
        StageWrite(StageWrite) => (),
        StageFinish(StageFinish) => Attachment,
        // Indexes: the answer is that of the question inside, or a `ViewFailure`.
        View(View) => (),
        Search(Search) => (),
        KeepViews(KeepViews) => (),
        // Convergence of replicas.
        Split(Split) => Vec<Vec<Part>>,
        Digests(Digests) => Vec<DocumentDigest>,
        SetSyncPoint(SetSyncPoint) => (),
        TakenIn(TakenInOf) => TakenIn,
        PurgesShared(PurgesShared) => Option<u64>,
        Holds(Holds) => bool,
        // Tombstone collection: the answer is that of the question inside.
        #[serde(rename = "Forget")]
        Collect(Collect) => (),
    }
}

impl CopyOp {
    /// Whether a call that comes again is answered as before, for done twice it would be answered otherwise: an edit is
    /// in conflict with itself, a purge finds nothing any more. The caller counts or shows the answer for all of the
    /// range that it names, which must be one of the map as it is here.
    pub fn is_done_once(&self) -> bool {
        matches!(self, CopyOp::Decide(_) | CopyOp::LocalSet(_) | CopyOp::Purge(_))
    }

    /// Whether it brings what a client changed.
    pub fn is_edit(&self) -> bool {
        self.is_done_once() || matches!(self, CopyOp::Merge(Merge { repair: false, .. }) | CopyOp::LocalMerge(_))
    }

    /// Whether its answers may be counted: the one that does must know where copies are.
    pub fn is_counted(&self) -> bool {
        self.is_edit() || matches!(self, CopyOp::Fetch(_) | CopyOp::FetchSome(_) | CopyOp::Local(_))
    }

    /// Whether it is about bytes on their way, which stay where they were sent to.
    pub fn is_of_upload(&self) -> bool {
        matches!(self, CopyOp::Blob(_) | CopyOp::StageWrite(_) | CopyOp::StageFinish(_))
    }

    /// The document that it is about: the copy that it goes to is the one that has that.
    pub fn document(&self) -> Option<&DocId> {
        match self {
            CopyOp::Local(Local(id)) | CopyOp::LocalSet(LocalSet { id, .. }) => Some(id),
            CopyOp::LocalMerge(LocalMerge(registers)) if registers.len() == 1 => Some(&registers[0].0),
            CopyOp::Purge(Purge(items)) if items.len() == 1 => Some(&items[0].0),
            _ => None,
        }
    }
}

/// A call of a replica as it travels.
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

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;
    use crate::coordinator::replica::message::{decode, encode, is_of_later_build};
    use crate::document::revision::Revision;
    use crate::shard::Want;

    #[test]
    fn a_call_round_trips() {
        let rev = Revision::parse("3-x").unwrap();
        let op = Fetch(vec![(DocId::new("a"), Want::Revision(rev)), (DocId::new("b"), Want::Tree)]).into();
        let (db, instance) = ("d".to_owned(), "i".to_owned());
        let call = CopyCall { db, instance, version: 1, counted: true, range: 3, id: 9, horizon: None, op };
        let read: CopyCall = decode(&encode(&call)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{call:?}"));
        assert!(decode::<CopyCall>(b"\x93junk").is_err());
    }

    #[test]
    fn an_operation_is_its_name_with_its_fields_and_bare_ones_are_their_name() {
        #[derive(Serialize)]
        enum Written {
            Info,
            Summary(Bound<DocId>, Bound<DocId>),
            Wait { beyond: u64 },
            Local(DocId),
            Digests((Bound<DocId>, Bound<DocId>), u64),
        }
        let (low, high) = (Bound::Unbounded, Bound::Excluded(DocId::new("m")));
        let pairs: [(Written, CopyOp); 5] = [
            (Written::Info, Info.into()),
            (Written::Summary(low.clone(), high.clone()), SummaryOf(low.clone(), high.clone()).into()),
            (Written::Wait { beyond: 7 }, Wait { beyond: 7 }.into()),
            (Written::Local(DocId::new("a")), Local(DocId::new("a")).into()),
            (Written::Digests((low.clone(), high.clone()), 7), Digests((low, high), 7).into()),
        ];
        for (written, op) in pairs {
            assert_eq!(encode(&written), encode(&op), "{op:?}");
            assert_eq!(format!("{:?}", decode::<CopyOp>(&encode(&written))), format!("{:?}", Ok::<_, String>(op)));
        }
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
}
