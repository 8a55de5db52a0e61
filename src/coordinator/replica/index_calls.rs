//! What nodes say to each other about indexes on copies of ranges: of views, and full-text indexes. Pure.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use settee_search::query::QueryError;
use settee_search::search::{Answer, Request, SearchError, nouveau};

use crate::coordinator::replica::message::{ChangesCall, WireError};
use crate::document::id::DocId;
use crate::index::{GroupBy, IndexError, InvalidValue, Places};
use crate::script::ScriptError;
use crate::shard::ShardError;
use crate::storage::Direction;

/// A call about a view on a copy.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct ViewCall {
    /// The design document: its id and its text.
    pub design: (DocId, Bytes),
    /// Names the view.
    pub signature: [u8; 16],
    pub op: ViewOp,
}

/// What is asked of a view.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum ViewOp {
    /// `()`
    Update { wait: bool },
    /// `(Header, bool)`: whether it is being built, too.
    Header,
    /// `RowPage`
    Rows { places: VecDeque<Places>, direction: Direction, limit: u64 },
    /// `u64`
    Count(Places),
    /// `Option<SelectedPage>`
    Selected(ChangesCall),
    /// `GroupPage`
    Groups { by: GroupBy, places: VecDeque<Places>, limit: u64 },
}

/// A call about a full-text index on a copy.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct SearchCall {
    /// The design document: its id and its text.
    pub design: (DocId, Bytes),
    /// Names the index.
    pub signature: [u8; 16],
    pub op: SearchOp,
}

/// What is asked of a full-text index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum SearchOp {
    /// `Result<Answer, SearchRefusal>`; `update`: of the index once it has applied what is committed.
    Search { request: Box<Request>, update: bool },
    /// `IndexSize`
    Size,
    /// `Result<TypedAnswer, SearchRefusal>`, of an index with types.
    Typed { request: Box<nouveau::Request>, update: bool },
}

/// What an index with types answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::coordinator) struct TypedAnswer {
    pub answer: Answer,
    /// Milliseconds that bringing it up to date took.
    pub latency: u64,
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
    Copy(WireError),
    Script(ScriptError),
    Stopped,
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
            IndexError::Shard(error) => ViewFailure::Copy(error.into()),
            IndexError::Stopped => ViewFailure::Stopped,
        }
    }
}

impl From<ShardError> for ViewFailure {
    fn from(error: ShardError) -> ViewFailure {
        ViewFailure::Copy(error.into())
    }
}

impl From<ViewFailure> for IndexError {
    fn from(failure: ViewFailure) -> IndexError {
        match failure {
            ViewFailure::Copy(error) => IndexError::Shard(error.into()),
            ViewFailure::Script(error) => IndexError::Script(error),
            ViewFailure::Stopped => IndexError::Stopped,
        }
    }
}
