//! Calls between nodes about one replica of a shard: the table of operations, each with the type of its answer.
//!
//! An operation is a struct in the file of its group and one line of the table below. A node sends it with
//! [`RemoteReplica::ask`](super::remote::RemoteReplica::ask), which knows the type of the answer by it; the node that
//! holds the replica answers in `node/serve.rs`, where the compiler holds the answer against the same type. An
//! operation that a replica answers by itself is a [`PlainCall`], and is carried out the same way on this node and for
//! another one.
//!
//! Names of operations and of their fields are the wire format (see the test below): a renamed one keeps its old name
//! in a `serde` attribute. A node that does not know an operation refuses it
//! ([`is_unknown_call`](super::message::is_unknown_call)).

mod attachments;
mod call;
mod changes;
mod collection;
mod convergence;
mod documents;
mod edits;
mod expiry;
mod indexes;
mod locals;
mod purges;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::coordinator::replica::message::{AppliedState, EditRefusal, ReplicaPosition, StatusReport};
use crate::coordinator::replica::told::{AcceptedAt, Merged};
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{
    DocumentDigest, Fetched, Horizon, IdRangeSummary, ListRow, LocalDocument, LocalRegister, PurgeInfo,
    ShardChangesPage, ShardInfo, Stamp, Summary, Times,
};

pub(in crate::coordinator) use attachments::{Blob, Stage, StageFinish, StageWrite};
pub(in crate::coordinator) use call::{PlainCall, ReplicaCall};
pub(in crate::coordinator) use changes::{Changes, ClearTimes, DesignVersion, Info, Resume, TimesOf, Wait};
pub(in crate::coordinator) use collection::{
    Collect, Collectable, CollectableOf, CollectionCall, CollectionQuestion, Confirm, Expects, Markers, Open, Propose,
    Tell,
};
pub(in crate::coordinator) use convergence::{
    AppliedOf, Awaits, Compact, Digests, Epochs, Holds, PurgesShared, SetSyncPoint, Split, Status,
};
pub(in crate::coordinator) use documents::{Fetch, FetchSome, List, Select, SummaryOf};
pub(in crate::coordinator) use edits::{Decide, Merge};
pub(in crate::coordinator) use expiry::{Expiring, ExpiryOf, Look};
pub(in crate::coordinator) use indexes::{
    CountOf, GroupsOf, HeaderOf, KeepViews, ReleaseState, RowsOf, Search, SearchCall, SearchFor, SearchOp,
    SearchQuestion, SelectedOf, SizeOf, TypedAnswer, TypedFor, UpdateView, View, ViewCall, ViewFailure, ViewOp,
    ViewQuestion,
};
pub use indexes::{IndexSize, SearchRefusal};
pub(in crate::coordinator) use locals::{Local, LocalList, LocalMerge, LocalRegisters, LocalSet};
pub(in crate::coordinator) use purges::{Purge, PurgeInfos};

/// Defines [`ReplicaOp`] of a table: operations without content, then those with content.
macro_rules! table {
    (
        bare { $($(#[$unit_note:meta])* $unit:ident => $unit_answer:ty,)* }
        with { $($(#[$note:meta])* $name:ident ($call:ident) => $answer:ty,)* }
    ) => {
        /// What is asked of a replica.
        #[derive(Debug, Serialize, Deserialize)]
        pub(in crate::coordinator) enum ReplicaOp {
            $($(#[$unit_note])* $unit,)*
            $($(#[$note])* $name($call),)*
        }

        $(
            impl From<$unit> for ReplicaOp {
                fn from(_: $unit) -> ReplicaOp {
                    ReplicaOp::$unit
                }
            }

            impl ReplicaCall for $unit {
                type Answer = $unit_answer;
            }
        )*
        $(
            impl From<$call> for ReplicaOp {
                fn from(call: $call) -> ReplicaOp {
                    ReplicaOp::$name(call)
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
        ClearTimes => (),
        Compact => (),
        DesignVersion => u64,
        Epochs => Vec<(u64, u64)>,
        Info => (ShardInfo, ReplicaPosition),
        Status => StatusReport,
        TimesOf => Times,
    }
    with {
        // Documents.
        Fetch(Fetch) => Vec<Option<Fetched>>,
        FetchSome(FetchSome) => (Vec<Option<Fetched>>, u64),
        List(List) => Vec<ListRow>,
        Summary(SummaryOf) => Summary,
        Select(Select) => Option<DocId>,
        // Changes.
        Changes(Changes) => ShardChangesPage,
        Wait(Wait) => ReplicaPosition,
        Resume(Resume) => u64,
        // Edits.
        #[serde(rename = "Judge")]
        Decide(Decide) => Vec<Result<AcceptedAt, EditRefusal>>,
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
        Split(Split) => Vec<Vec<IdRangeSummary>>,
        Digests(Digests) => Vec<DocumentDigest>,
        SetSyncPoint(SetSyncPoint) => (),
        #[serde(rename = "TakenIn")]
        AppliedOf(AppliedOf) => AppliedState,
        PurgesShared(PurgesShared) => Option<u64>,
        Awaits(Awaits) => bool,
        Holds(Holds) => bool,
        // Tombstone collection: the answer is that of the question inside.
        #[serde(rename = "Forget")]
        Collect(Collect) => (),
        // Documents that end.
        Expiry(ExpiryOf) => Expiring,
    }
}

impl ReplicaOp {
    /// Whether a call that comes again is answered as before, for done twice it would be answered otherwise: an edit is
    /// in conflict with itself, a purge finds nothing any more. The caller counts or shows the answer for all of the
    /// range that it names, which must be one of the map as it is here.
    pub fn is_done_once(&self) -> bool {
        matches!(self, ReplicaOp::Decide(_) | ReplicaOp::LocalSet(_) | ReplicaOp::Purge(_))
    }

    /// Bytes that the answer is expected to have, where that is known; else 0. So much is asked for of a document that
    /// is known to be as large.
    pub fn expected_bytes(&self) -> usize {
        match self {
            ReplicaOp::FetchSome(FetchSome { bytes, .. }) if *bytes > limits::FETCH_BYTES as u64 => {
                usize::try_from(*bytes).unwrap_or(usize::MAX)
            }
            _ => 0,
        }
    }

    /// Whether it brings what a client changed.
    pub fn is_edit(&self) -> bool {
        self.is_done_once() || matches!(self, ReplicaOp::Merge(Merge { repair: false, .. }) | ReplicaOp::LocalMerge(_))
    }

    /// Whether its answers may be counted: the one that does must know where replicas are.
    pub fn is_counted(&self) -> bool {
        self.is_edit() || matches!(self, ReplicaOp::Fetch(_) | ReplicaOp::FetchSome(_) | ReplicaOp::Local(_))
    }

    /// Whether it is about bytes on their way, which stay where they were sent to.
    pub fn is_of_upload(&self) -> bool {
        matches!(self, ReplicaOp::Blob(_) | ReplicaOp::StageWrite(_) | ReplicaOp::StageFinish(_))
    }

    /// The document that it is about: the replica that it goes to is the one that has that.
    pub fn document(&self) -> Option<&DocId> {
        match self {
            ReplicaOp::Local(Local(id)) | ReplicaOp::LocalSet(LocalSet { id, .. }) => Some(id),
            ReplicaOp::LocalMerge(LocalMerge(registers)) if registers.len() == 1 => Some(&registers[0].0),
            ReplicaOp::Purge(Purge(items)) if items.len() == 1 => Some(&items[0].0),
            _ => None,
        }
    }
}

/// A call of a replica as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct ReplicaRequest {
    /// The database's name.
    pub db: String,
    /// Which of the databases that had this name.
    pub instance: String,
    /// The version of the map that the caller knows.
    #[serde(default)]
    pub version: u64,
    /// Whether the caller counts the answers of replicas by that map.
    #[serde(default)]
    pub counted: bool,
    /// The number of the range.
    pub range: u32,
    /// The same for a call that is sent twice, different for any two others of a node.
    pub id: u64,
    /// What the asked replica must have collected for its answer to be of use; `None`: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Horizon>,
    pub op: ReplicaOp,
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;
    use crate::coordinator::replica::message::{
        ChangesCall, DecideCall, EditText, IdRange, SyncPoint, decode, encode, is_unknown_call,
    };
    use crate::coordinator::replica::token::HeldWrites;
    use crate::coordinator::topology::seq::SeqEntry;
    use crate::index::{Places, StateOf};
    use crate::shard::{ListPage, ShardError, Want};
    use crate::storage::{Direction, StageMode};

    #[test]
    fn a_call_round_trips() {
        let rev = Revision::parse("3-x").unwrap();
        let op = Fetch(vec![(DocId::new("a"), Want::Revision(rev)), (DocId::new("b"), Want::Tree)]).into();
        let (db, instance) = ("d".to_owned(), "i".to_owned());
        let call = ReplicaRequest { db, instance, version: 1, counted: true, range: 3, id: 9, horizon: None, op };
        let read: ReplicaRequest = decode(&encode(&call)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{call:?}"));
        assert!(decode::<ReplicaRequest>(b"\x93junk").is_err());
    }

    /// The operations as they are written on the wire since version 6, some of them since a later one, without the
    /// types of this module.
    #[derive(Serialize)]
    enum Written {
        Fetch(Vec<(DocId, Want)>),
        FetchSome {
            wants: Vec<(DocId, Want)>,
            bytes: u64,
        },
        List(ListPage),
        Summary(Bound<DocId>, Bound<DocId>),
        Select {
            start: Bound<DocId>,
            end: Bound<DocId>,
            direction: Direction,
            place: u64,
        },
        Changes(ChangesCall),
        Info,
        Wait {
            beyond: u64,
        },
        Resume(Vec<SeqEntry>),
        DesignVersion,
        #[serde(rename = "Judge")]
        Decide(Box<DecideCall>),
        Merge {
            edits: Vec<EditText>,
            source: String,
            repair: bool,
        },
        Local(DocId),
        LocalList {
            start: Bound<DocId>,
            end: Bound<DocId>,
            direction: Direction,
            limit: u64,
            bytes: u64,
        },
        LocalSet {
            id: DocId,
            document: Option<LocalDocument>,
            by: u64,
        },
        LocalMerge(Vec<(DocId, LocalRegister)>),
        LocalRegisters {
            after: Bound<DocId>,
            limit: u64,
        },
        Purge(Vec<(DocId, Vec<Revision>)>),
        PurgeInfos {
            since: u64,
            limit: u64,
        },
        Compact,
        Stage(StageMode),
        StageWrite {
            upload: u64,
            data: Bytes,
        },
        StageFinish {
            upload: u64,
        },
        View(WrittenView),
        KeepViews(Vec<[u8; 16]>),
        Status,
        Split(Vec<IdRange>),
        Digests(IdRange, u64),
        SetSyncPoint(SyncPoint),
        Epochs,
        TakenIn(String),
        PurgesShared(Vec<(u64, u64)>),
        Awaits(u64),
        Holds(Vec<HeldWrites>),
        Forget(WrittenCollection),
        ClearTimes,
        TimesOf,
        Expiry {
            look: Option<WrittenLook>,
        },
    }

    #[derive(Serialize)]
    struct WrittenLook {
        upto: u64,
        counts: bool,
    }

    #[derive(Serialize)]
    struct WrittenView {
        design: (DocId, Bytes),
        signature: [u8; 16],
        op: WrittenViewOp,
    }

    #[derive(Serialize)]
    enum WrittenViewOp {
        Update { wait: bool },
        Header,
        Selected(ChangesCall),
        Rows { places: Vec<Places>, direction: Direction, limit: u64 },
        Release(u64),
    }

    #[derive(Serialize)]
    enum WrittenCollection {
        Tell,
        Open,
        Shadows(Option<DocId>),
        Collectable(bool),
        Expects(Vec<(DocId, Revision)>),
    }

    #[test]
    fn the_bytes_of_every_operation_are_those_of_version_6() {
        let (low, high) = (Bound::Unbounded, Bound::Excluded(DocId::new("m")));
        let (start, end, direction) = (low.clone(), high.clone(), Direction::Forward);
        let wants =
            || vec![(DocId::new("a"), Want::Revision(Revision::parse("3-x").unwrap())), (DocId::new("b"), Want::Tree)];
        let page =
            || ListPage { start: Bound::Unbounded, end: Bound::Unbounded, descending: true, limit: 3, bodies: false };
        let changes = ChangesCall { since: 5, direction, limit: 7, epoch: 9 };
        let (caller, source) = (crate::coordinator::topology::caller::Caller::node(), || "n1@h".to_owned());
        let decide =
            || Box::new(DecideCall { edits: Vec::new(), caller: caller.clone(), source: source(), in_doubt: true });
        let (id, range) = (|| DocId::new("a"), || (Bound::Included(DocId::new("a")), Bound::Unbounded));
        let purges = || vec![(DocId::new("a"), vec![Revision::parse("1-x").unwrap()])];
        let design = || (DocId::new("_design/d"), Bytes::from_static(b"{}"));
        let written_view = |op| Written::View(WrittenView { design: design(), signature: [7; 16], op });
        let view = |op| ReplicaOp::from(View(Box::new(ViewCall { design: design(), signature: [7; 16], op })));
        let collect = |call: CollectionCall| ReplicaOp::from(Collect(Box::new(call)));
        let (mode, data) = (|| StageMode::Compress(8), || Bytes::from_static(b"bytes"));
        let (repair, limit, bytes, by) = (true, 10, 99, 4);
        let pairs: Vec<(Written, ReplicaOp)> = vec![
            (Written::Fetch(wants()), Fetch(wants()).into()),
            (Written::FetchSome { wants: wants(), bytes }, FetchSome { wants: wants(), bytes }.into()),
            (Written::List(page()), List(page()).into()),
            (Written::Summary(low.clone(), high.clone()), SummaryOf(low.clone(), high.clone()).into()),
            (
                Written::Select { start: start.clone(), end: end.clone(), direction, place: 2 },
                Select { start: start.clone(), end: end.clone(), direction, place: 2 }.into(),
            ),
            (Written::Changes(changes), Changes(changes).into()),
            (Written::Info, Info.into()),
            (Written::Wait { beyond: 7 }, Wait { beyond: 7 }.into()),
            (Written::Resume(Vec::new()), Resume(Vec::new()).into()),
            (Written::DesignVersion, DesignVersion.into()),
            (Written::Decide(decide()), Decide(decide()).into()),
            (
                Written::Merge { edits: Vec::new(), source: source(), repair },
                Merge { edits: Vec::new(), source: source(), repair, anew: false, tell: false }.into(),
            ),
            (Written::Local(id()), Local(id()).into()),
            (
                Written::LocalList { start: start.clone(), end: end.clone(), direction, limit, bytes },
                LocalList { start, end, direction, limit, bytes: Some(bytes) }.into(),
            ),
            (Written::LocalSet { id: id(), document: None, by }, LocalSet { id: id(), document: None, by }.into()),
            (Written::LocalMerge(Vec::new()), LocalMerge(Vec::new()).into()),
            (
                Written::LocalRegisters { after: low.clone(), limit },
                LocalRegisters { after: low.clone(), limit }.into(),
            ),
            (Written::Purge(purges()), Purge(purges()).into()),
            (Written::PurgeInfos { since: 1, limit }, PurgeInfos { since: 1, limit }.into()),
            (Written::Compact, Compact.into()),
            (Written::Stage(mode()), Stage(mode()).into()),
            (Written::StageWrite { upload: 3, data: data() }, StageWrite { upload: 3, data: data() }.into()),
            (Written::StageFinish { upload: 3 }, StageFinish { upload: 3 }.into()),
            (written_view(WrittenViewOp::Update { wait: true }), view(UpdateView { wait: true }.into())),
            (written_view(WrittenViewOp::Header), view(HeaderOf.into())),
            (written_view(WrittenViewOp::Selected(changes)), view(SelectedOf(changes).into())),
            (
                written_view(WrittenViewOp::Rows { places: vec![Places::none()], direction, limit }),
                view(RowsOf { places: [Places::none()].into(), direction, limit, of: StateOf::Now }.into()),
            ),
            (written_view(WrittenViewOp::Release(9)), view(ReleaseState(9).into())),
            (Written::KeepViews(vec![[1; 16]]), KeepViews(vec![[1; 16]]).into()),
            (Written::Status, Status.into()),
            (Written::ClearTimes, ClearTimes.into()),
            (Written::TimesOf, TimesOf.into()),
            (Written::Split(vec![range()]), Split(vec![range()]).into()),
            (Written::Digests(range(), limit), Digests(range(), limit).into()),
            (Written::SetSyncPoint(SyncPoint::default()), SetSyncPoint(SyncPoint::default()).into()),
            (Written::Epochs, Epochs.into()),
            (Written::TakenIn(source()), AppliedOf(source()).into()),
            (Written::PurgesShared(vec![(1, 2)]), PurgesShared(vec![(1, 2)]).into()),
            (Written::Awaits(8), Awaits(8).into()),
            (Written::Holds(Vec::new()), Holds(Vec::new()).into()),
            (Written::Expiry { look: None }, ExpiryOf { look: None, member: None }.into()),
            (
                Written::Expiry { look: Some(WrittenLook { upto: 7, counts: true }) },
                ExpiryOf { look: Some(Look { upto: 7, counts: true }), member: None }.into(),
            ),
            (Written::Forget(WrittenCollection::Tell), collect(Tell.into())),
            (Written::Forget(WrittenCollection::Open), collect(Open.into())),
            (Written::Forget(WrittenCollection::Shadows(Some(id()))), collect(Markers(Some(id())).into())),
            (Written::Forget(WrittenCollection::Collectable(true)), collect(CollectableOf(true).into())),
            (Written::Forget(WrittenCollection::Expects(Vec::new())), collect(Expects(Vec::new()).into())),
        ];
        for (written, op) in pairs {
            assert_eq!(encode(&written), encode(&op), "{op:?}");
            assert_eq!(format!("{:?}", decode::<ReplicaOp>(&encode(&written))), format!("{:?}", Ok::<_, String>(op)));
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
            let why = decode::<ReplicaOp>(&encode(&op)).unwrap_err();
            assert!(is_unknown_call(&ShardError::NotExecuted(format!("n1@h: {why}"))), "{why}");
        }
        assert!(matches!(decode(&encode(&Newer::Status)), Ok(ReplicaOp::Status)));
        assert!(!is_unknown_call(&ShardError::NotExecuted("n1@h is down".to_owned())));
    }
}
