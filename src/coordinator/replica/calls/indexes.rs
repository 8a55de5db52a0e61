//! Calls about indexes of a replica: views and full-text indexes.
//!
//! A call names the index by its design document and signature, and carries one question. The type of the answer is
//! that of the question.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use settee_search::query::QueryError;
use settee_search::search::{Answer, Request, SearchError, nouveau};

use crate::coordinator::replica::message::{ChangesCall, WireError};
use crate::document::id::DocId;
use crate::document::render::is_object_text;
use crate::index::{GroupBy, GroupPage, Header, IndexError, InvalidValue, Places, RowPage, SelectedPage, StateOf};
use crate::script::ScriptError;
use crate::shard::ShardError;
use crate::storage::Direction;

/// See [`ViewCall`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct View(pub Box<ViewCall>);

/// See [`SearchCall`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Search(pub Box<SearchCall>);

/// Deletes the rows of other views than these.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct KeepViews(pub Vec<[u8; 16]>);

/// A call about a view of a replica.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct ViewCall {
    /// The design document: its id and its text.
    #[serde(deserialize_with = "design_text")]
    pub design: (DocId, Bytes),
    /// Names the view.
    pub signature: [u8; 16],
    pub op: ViewOp,
}

/// Reads a design document that another node sent.
fn design_text<'de, D: Deserializer<'de>>(from: D) -> Result<(DocId, Bytes), D::Error> {
    let (id, text) = <(DocId, Bytes)>::deserialize(from)?;
    if is_object_text(&text) { Ok((id, text)) } else { Err(D::Error::custom("a design document is no object's text")) }
}

/// A question about a view, with the type of its answer.
pub(in crate::coordinator) trait ViewQuestion: Into<ViewOp> {
    type Answer: Serialize + DeserializeOwned;
}

/// A question about a full-text index, with the type of its answer.
pub(in crate::coordinator) trait SearchQuestion: Into<SearchOp> {
    type Answer: Serialize + DeserializeOwned;
}

/// Defines the operations of an index of a table: `name in wire format (question) => answer`.
macro_rules! questions {
    (
        $op:ident: $question:ident, $(#[$op_note:meta])*
        bare { $($unit:ident ($unit_name:ident) => $unit_answer:ty,)* }
        with { $($name:ident ($call:ident) => $answer:ty,)* }
    ) => {
        $(#[$op_note])*
        #[derive(Debug, Serialize, Deserialize)]
        pub(in crate::coordinator) enum $op {
            $($unit,)*
            $($name($call),)*
        }

        $(
            impl From<$unit_name> for $op {
                fn from(_: $unit_name) -> $op {
                    $op::$unit
                }
            }

            impl $question for $unit_name {
                type Answer = $unit_answer;
            }
        )*
        $(
            impl From<$call> for $op {
                fn from(call: $call) -> $op {
                    $op::$name(call)
                }
            }

            impl $question for $call {
                type Answer = $answer;
            }
        )*
    };
}

questions! {
    ViewOp: ViewQuestion,
    /// What is asked of a view.
    bare {
        Header(HeaderOf) => (Header, bool),
    }
    with {
        Update(UpdateView) => (),
        Rows(RowsOf) => RowPage,
        Count(CountOf) => u64,
        Selected(SelectedOf) => Option<SelectedPage>,
        Groups(GroupsOf) => GroupPage,
        Release(ReleaseState) => (),
    }
}

questions! {
    SearchOp: SearchQuestion,
    /// What is asked of a full-text index.
    bare {
        Size(SizeOf) => IndexSize,
    }
    with {
        Search(SearchFor) => Result<Answer, SearchRefusal>,
        Typed(TypedFor) => Result<TypedAnswer, SearchRefusal>,
    }
}

/// Brings the view up to date; with `wait` the answer comes afterwards.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct UpdateView {
    pub wait: bool,
}

/// The position of the view, and whether it is being built.
#[derive(Debug)]
pub(in crate::coordinator) struct HeaderOf;

/// A page of rows.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct RowsOf {
    pub places: VecDeque<Places>,
    pub direction: Direction,
    pub limit: u64,
    /// An older node passes over it, and answers of what there is.
    #[serde(default, skip_serializing_if = "StateOf::is_now")]
    pub of: StateOf,
}

/// The number of rows.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct CountOf(pub Places);

/// A page of changes that the index of a declared selector knows.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct SelectedOf(pub ChangesCall);

/// A page of reduced groups.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct GroupsOf {
    pub by: GroupBy,
    pub places: VecDeque<Places>,
    pub limit: u64,
    /// As in [`RowsOf`].
    #[serde(default, skip_serializing_if = "StateOf::is_now")]
    pub of: StateOf,
}

/// Gives the state back that is held under this number.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct ReleaseState(pub u64);

/// A search; `update`: of the index once it has applied what is committed.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct SearchFor {
    pub request: Box<Request>,
    pub update: bool,
}

/// A search of an index with types.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct TypedFor {
    pub request: Box<nouveau::Request>,
    pub update: bool,
}

/// What an index with types answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::coordinator) struct TypedAnswer {
    pub answer: Answer,
    /// Milliseconds that bringing it up to date took.
    pub latency: u64,
}

/// The size of the index of one range.
#[derive(Debug)]
pub(in crate::coordinator) struct SizeOf;

/// A call about a full-text index of a replica.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct SearchCall {
    /// The design document: its id and its text.
    #[serde(deserialize_with = "design_text")]
    pub design: (DocId, Bytes),
    /// Names the index.
    pub signature: [u8; 16],
    pub op: SearchOp,
}

/// What there is of a full-text index, of one range or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSize {
    /// Documents that index something.
    pub documents: u64,
    /// Documents that count no more and are stored still.
    pub deleted: u64,
    /// Bytes of segments.
    pub bytes: u64,
    /// Changes that it has applied.
    pub position: u64,
    /// Changes that there are.
    pub last: u64,
    /// Purges that it has applied.
    #[serde(default)]
    pub purges: u64,
}

/// Why a search is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchRefusal {
    /// The query was not understood, or asks for what is not there: 400 with this reason.
    Refused(String),
    /// The query makes the reference fail.
    Invalid(String),
    /// It costs more than a search may.
    TooCostly(String),
}

/// `Err`: the search was given up.
impl TryFrom<SearchError> for SearchRefusal {
    type Error = IndexError;

    fn try_from(error: SearchError) -> Result<SearchRefusal, IndexError> {
        match error {
            SearchError::Query(QueryError::Syntax(reason)) | SearchError::Refused(reason) => {
                Ok(SearchRefusal::Refused(reason))
            }
            SearchError::Query(QueryError::Invalid(reason)) => Ok(SearchRefusal::Invalid(reason)),
            SearchError::TooCostly(reason) => Ok(SearchRefusal::TooCostly(reason)),
            SearchError::TooLarge => Ok(SearchRefusal::TooCostly(SearchError::TooLarge.to_string())),
            SearchError::Stopped | SearchError::Segment(_) => Err(IndexError::Stopped),
        }
    }
}

/// Why a view could not be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum ViewFailure {
    #[serde(rename = "Copy")]
    Replica(WireError),
    Script(ScriptError),
    Stopped,
    // To nodes that know of states that are held.
    StateGone,
    StatesFull,
}

impl From<IndexError> for ViewFailure {
    fn from(error: IndexError) -> ViewFailure {
        match error {
            // Told as what every version knows.
            IndexError::Refused(InvalidValue { reason }) => {
                ViewFailure::Script(ScriptError::Thrown { error: "invalid_value".to_owned(), reason: reason.into() })
            }
            IndexError::Misfit(reason) => {
                ViewFailure::Script(ScriptError::Thrown { error: "misfit".to_owned(), reason: reason.into() })
            }
            IndexError::Script(error) => ViewFailure::Script(error),
            IndexError::Shard(error) => ViewFailure::Replica(error.into()),
            IndexError::StateGone => ViewFailure::StateGone,
            IndexError::StatesFull => ViewFailure::StatesFull,
            IndexError::Stopped => ViewFailure::Stopped,
        }
    }
}

impl From<ShardError> for ViewFailure {
    fn from(error: ShardError) -> ViewFailure {
        ViewFailure::Replica(error.into())
    }
}

impl From<ViewFailure> for IndexError {
    fn from(failure: ViewFailure) -> IndexError {
        match failure {
            ViewFailure::Replica(error) => IndexError::Shard(error.into()),
            ViewFailure::Script(error) => IndexError::Script(error),
            ViewFailure::StateGone => IndexError::StateGone,
            ViewFailure::StatesFull => IndexError::StatesFull,
            ViewFailure::Stopped => IndexError::Stopped,
        }
    }
}
