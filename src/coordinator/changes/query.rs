//! Request and rows of a feed: see [`super`].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::coordinator::read::documents::RowDoc;
use crate::coordinator::read::view::DatabaseView;
use crate::coordinator::topology::error::ChangesError;
use crate::coordinator::topology::seq::{MalformedSeq, Seq};
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::document::revision::Revision;
use crate::wire::iso_time::{is_iso_form, parse_iso_time};
use crate::world::BoxFuture;

/// Where a feed begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// Before the first change.
    #[default]
    Beginning,
    /// After the last one.
    Now,
    /// After these.
    Seq(Seq),
    /// Where each range stood at that time, in seconds since the Unix epoch, or before it.
    Time(u64),
}

impl Since {
    /// Reads the parameter: `0`, `now`, a time as `2026-11-20T23:32:45Z`, or a sequence; that also as a JSON string.
    pub fn parse(text: &str) -> Result<Since, ChangesError> {
        let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
        match text {
            "0" => Ok(Since::Beginning),
            "now" => Ok(Since::Now),
            time if is_iso_form(time) => {
                let seconds = parse_iso_time(time).ok_or(ChangesError::MalformedTime)?;
                // Before 1970 there was nothing.
                Ok(Since::Time(u64::try_from(seconds).unwrap_or_default()))
            }
            _ => Seq::parse(inner).map(Since::Seq).map_err(|MalformedSeq| ChangesError::MalformedSince),
        }
    }
}

/// Which revisions a row lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// All leaves, winner first.
    AllDocs,
    /// The winner.
    MainOnly,
}

/// A document that a filter filters: the winner (style main_only), or all leaves.
#[derive(Clone)]
pub struct Candidate {
    /// Its id.
    pub id: DocId,
    /// The leaves to be filtered, best first, with their bodies.
    pub leaves: Vec<StoredRevision>,
    /// The other live leaves of the winner, where the query has `conflicts` and the style `main_only`.
    pub conflicts: Vec<Revision>,
}

/// A filter of changes above this layer: a selector, a view, a function.
pub trait RowFilter: Send + Sync {
    /// Filters a page: for each candidate and each of its leaves, whether it passes.
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, Result<Vec<Vec<bool>>, ChangesError>>;

    /// An index that leaves out no change that passes.
    fn index(&self) -> Option<&DatabaseView> {
        None
    }
}

/// Which changes are listed.
#[derive(Clone)]
pub enum ChangesFilter {
    /// All.
    None,
    /// Those of design documents.
    Design,
    /// Those of these documents.
    DocIds(BTreeSet<DocId>),
    /// Those that pass.
    Rows(Arc<dyn RowFilter>),
}

/// A request for changes.
#[derive(Clone)]
pub struct ChangesQuery {
    /// Where to begin; with `descending` not looked at.
    pub since: Since,
    /// How many rows at most; the caller turns 0 into 1.
    pub limit: Option<u64>,
    /// Newest first.
    pub descending: bool,
    /// Which revisions to list.
    pub style: Style,
    /// Tell the sequence only in the first row and every Nth after it.
    pub seq_interval: Option<u64>,
    /// Which changes.
    pub filter: ChangesFilter,
    /// Give the winner along.
    pub include_docs: bool,
    /// Filters and included documents show the conflicts of winners.
    pub conflicts: bool,
}

impl Default for ChangesQuery {
    fn default() -> Self {
        ChangesQuery {
            since: Since::Beginning,
            limit: None,
            descending: false,
            style: Style::MainOnly,
            seq_interval: None,
            filter: ChangesFilter::None,
            include_docs: false,
            conflicts: false,
        }
    }
}

/// A row of a feed.
#[derive(Clone, Debug)]
pub struct ChangeRow {
    /// The sequence after it; `None` where `seq_interval` leaves it out (null).
    pub seq: Option<String>,
    /// The document.
    pub id: DocId,
    /// The revisions listed.
    pub revs: Vec<Revision>,
    /// Whether the winner is a tombstone.
    pub deleted: bool,
    /// The document when asked for.
    pub doc: Option<Box<RowDoc>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_zero_now_or_a_sequence() {
        assert_eq!(Since::parse("0").unwrap(), Since::Beginning);
        assert_eq!(Since::parse("now").unwrap(), Since::Now);
        let seq = Seq::default();
        assert_eq!(Since::parse(&seq.to_string()).unwrap(), Since::Seq(seq.clone()));
        assert_eq!(Since::parse(&format!("\"{seq}\"")).unwrap(), Since::Seq(seq));
        assert_eq!(Since::parse("2026-11-20T23:32:45Z").unwrap(), Since::Time(1_795_217_565));
        assert_eq!(Since::parse("1000-01-01T01:01:01Z").unwrap(), Since::Time(0));
        assert!(matches!(Since::parse("2025-01-01Txx:yy:00Z"), Err(ChangesError::MalformedTime)));
        for bad in ["", "1", "garbage", "2025-01-01", "\"2026-11-20T23:32:45Z\"", "1-garbage", "\"", "\"0\"", "\"now\""]
        {
            assert!(matches!(Since::parse(bad), Err(ChangesError::MalformedSince)), "{bad}");
        }
    }
}
