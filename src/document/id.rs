//! Document ids and their rules.
//!
//! An id is any UTF-8 text but the empty one; those that begin with an underscore are reserved: `_design/..` and
//! `_local/..` exist, all others are refused. A partitioned database asks for `partition:id` on top. The order of ids
//! is that of their bytes. Reasons are worded as CouchDB 3.5 was measured to word them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::draft::{DraftError, DraftErrorKind};

/// The id of a document within its database. Cheap to clone; ordered by bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocId(Arc<str>);

impl DocId {
    /// Takes an id as it is, without checks: for ids read from disk or checked before.
    pub fn new(text: &str) -> DocId {
        DocId(Arc::from(text))
    }

    /// Takes an id that a client named. `max_len` is the longest allowed length in bytes, `None` for no limit.
    /// Errors are of kind [`DraftErrorKind::IllegalDocId`].
    pub fn check(text: &str, max_len: Option<usize>) -> Result<DocId, DraftError> {
        check_text(text, max_len)?;
        Ok(DocId::new(text))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for `_design/..`.
    pub fn is_design(&self) -> bool {
        self.0.starts_with("_design/")
    }

    /// True for `_local/..`.
    pub fn is_local(&self) -> bool {
        self.0.starts_with("_local/")
    }
}

impl fmt::Display for DocId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for DocId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DocId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DocId, D::Error> {
        String::deserialize(from).map(|text| DocId::new(&text))
    }
}

impl Borrow<str> for DocId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn illegal(reason: &str) -> DraftError {
    DraftError::new(DraftErrorKind::IllegalDocId, reason)
}

/// The rules of [`DocId::check`] without making an id.
pub fn check_text(text: &str, max_len: Option<usize>) -> Result<(), DraftError> {
    match text {
        "" => return Err(illegal("Document id must not be empty")),
        "_design/" => return Err(illegal("Illegal document id `_design/`")),
        "_local/" => return Err(illegal("Illegal document id `_local/`")),
        _ => {}
    }
    if max_len.is_some_and(|max| text.len() > max) {
        return Err(illegal("Document id is too long"));
    }
    if text.starts_with('_') && !text.starts_with("_design/") && !text.starts_with("_local/") {
        return Err(illegal("Only reserved document ids may start with underscore."));
    }
    Ok(())
}

/// Checks the name of a partition: not empty, no leading underscore, no colon.
/// Errors are of kind [`DraftErrorKind::IllegalPartition`].
pub fn check_partition(name: &str) -> Result<(), DraftError> {
    let reason = match name {
        "" => "Partition must not be empty",
        _ if name.starts_with('_') => "Partition must not start with an underscore",
        _ if name.contains(':') => "Partition must not contain a colon",
        _ => return Ok(()),
    };
    Err(DraftError::new(DraftErrorKind::IllegalPartition, reason))
}

/// The partition of an id in a partitioned database: what stands before the first colon. `None` for design and local
/// documents, which need none. The id must have passed [`DocId::check`].
pub fn partition_of(id: &str) -> Result<Option<&str>, DraftError> {
    if id.starts_with("_design/") || id.starts_with("_local/") {
        return Ok(None);
    }
    let (partition, inner) = sides(id)?;
    check_partition(partition)?;
    check_text(inner, None)?;
    Ok(Some(partition))
}

/// What stands before the first colon of an id in a partitioned database, and behind it, whatever that is.
///
/// # Errors
/// `illegal_docid` without a colon.
pub fn sides(id: &str) -> Result<(&str, &str), DraftError> {
    id.split_once(':').ok_or_else(|| illegal("Doc id must be of form partition:id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason<T>(result: Result<T, DraftError>) -> Option<(DraftErrorKind, String)> {
        result.err().map(|e| (e.kind, e.reason))
    }

    #[test]
    fn reserved_empty_and_long_ids_are_refused() {
        let illegal = |text: &str| Some((DraftErrorKind::IllegalDocId, text.to_owned()));
        assert_eq!(reason(DocId::check("", None)), illegal("Document id must not be empty"));
        assert_eq!(reason(DocId::check("_design/", None)), illegal("Illegal document id `_design/`"));
        let reserved = illegal("Only reserved document ids may start with underscore.");
        for id in ["_", "_foo", "_design", "_local", "_all_docs", "_designs/x"] {
            assert_eq!(reason(DocId::check(id, None)), reserved, "{id}");
        }
        assert_eq!(reason(DocId::check("abcd", Some(3))), illegal("Document id is too long"));
        assert_eq!(reason(DocId::check("é", Some(1))), illegal("Document id is too long"));
    }

    #[test]
    fn all_other_texts_are_ids() {
        for id in ["a", "a/b", " ", "é", "\u{0}", "a:b", "_design/x", "_local/x", "-_"] {
            assert_eq!(DocId::check(id, Some(100)).map(|i| i.as_str().to_owned()), Ok(id.to_owned()));
        }
        assert!(DocId::new("_design/x").is_design() && !DocId::new("_design/x").is_local());
        assert!(DocId::new("_local/x").is_local() && !DocId::new("x").is_design());
    }

    #[test]
    fn ids_sort_by_bytes() {
        let mut ids = ["é", "a", "_design/x", "B", "A"].map(DocId::new);
        ids.sort();
        assert_eq!(ids.map(|i| i.to_string()), ["A", "B", "_design/x", "a", "é"]);
    }

    #[test]
    fn partitioned_ids() {
        let illegal = |text: &str| Some((DraftErrorKind::IllegalDocId, text.to_owned()));
        let partition = |text: &str| Some((DraftErrorKind::IllegalPartition, text.to_owned()));
        assert_eq!(partition_of("a:b:c"), Ok(Some("a")));
        assert_eq!(partition_of("_design/x"), Ok(None));
        assert_eq!(partition_of("_local/x"), Ok(None));
        assert_eq!(reason(partition_of("x")), illegal("Doc id must be of form partition:id"));
        assert_eq!(reason(partition_of(":x")), partition("Partition must not be empty"));
        assert_eq!(reason(partition_of("a:")), illegal("Document id must not be empty"));
        assert_eq!(reason(check_partition("_x")), partition("Partition must not start with an underscore"));
        assert_eq!(reason(check_partition("a:b")), partition("Partition must not contain a colon"));
        assert_eq!(reason(partition_of("a:_b")), illegal("Only reserved document ids may start with underscore."));
    }
}
