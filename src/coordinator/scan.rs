//! `_all_docs`, `_design_docs` and `_local_docs`: an ordered merge over the ranges, page by page.

use crate::coordinator::database::Database;
use crate::coordinator::error::ReadError;
use crate::coordinator::read::RowDoc;
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::document::revision::Revision;

/// Which documents are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocSource {
    /// `_all_docs`: all but local ones.
    All,
    /// `_design_docs`.
    Design,
    /// `_local_docs`.
    Local,
    /// `_partition/{p}/_all_docs`.
    Partition(String),
}

/// Which keys are listed. Keys are the JSON values given: only texts match ids, and a bound that is no text acts as the
/// empty text (as CouchDB 3.5 was measured).
#[derive(Clone, Debug)]
pub enum KeyBounds {
    /// Just these, in this order, repeated where they repeat.
    Keys(Vec<Value>),
    /// From `start` to `end` in the direction of reading.
    Range {
        /// The first key.
        start: Option<Value>,
        /// The last key.
        end: Option<Value>,
        /// Whether `end` itself belongs to it.
        inclusive_end: bool,
    },
    /// Just this one, as a range of one key: no row when it is missing.
    Key(Value),
}

/// A request for a list.
#[derive(Clone, Debug)]
pub struct AllDocsQuery {
    /// Which documents.
    pub source: DocSource,
    /// Which keys.
    pub keys: KeyBounds,
    /// From the last to the first.
    pub descending: bool,
    /// How many rows to leave out at first.
    pub skip: u64,
    /// How many rows at most.
    pub limit: Option<u64>,
    /// Give the documents along.
    pub include_docs: bool,
    /// Give the conflicts of included documents along.
    pub conflicts: bool,
    /// Tell the update sequence.
    pub update_seq: bool,
}

/// A row of a list.
#[derive(Clone, Debug)]
pub enum AllDocsRow {
    /// A document; `deleted` only in answers to keys.
    Found {
        /// Its id, which is also the key.
        id: DocId,
        /// Its winning revision.
        rev: Revision,
        /// Whether that is a tombstone.
        deleted: bool,
        /// `None`: not asked for; `Some(None)`: null, as for tombstones.
        doc: Option<Option<Box<RowDoc>>>,
    },
    /// A key without a document: `{"key":..,"error":"not_found"}`.
    Missing {
        /// The key as given.
        key: Value,
    },
}

/// A list being read.
pub struct AllDocs {
    /// Documents that the source has in all; `None` is null.
    pub total_rows: Option<u64>,
    /// Rows before the first one in the direction of reading; `None` is null.
    pub offset: Option<u64>,
    /// `None`: not asked for; `Some(None)`: null.
    pub update_seq: Option<Option<String>>,
}

impl AllDocs {
    /// The next page, of at least one row; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<AllDocsRow>>, ReadError> {
        todo!()
    }
}

impl Database {
    /// Begins a list. Totals and offset are of this moment; the rows are read as they are asked for.
    pub async fn all_docs(self: &std::sync::Arc<Self>, query: AllDocsQuery) -> Result<AllDocs, ReadError> {
        let _ = query;
        todo!()
    }
}
