//! Query parameters of a document's GET, HEAD and `_bulk_get` as typed options.
//!
//! Pure. Flags count only as the exact text `true`; other values and unknown names are ignored, as CouchDB 3.5 was
//! measured to do. Revisions must parse.

use crate::document::json::{self, Value};
use crate::document::revision::Revision;
use crate::http::problem::Problem;
use crate::http::query::{Query, positive};

/// What `open_revs` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenRevs {
    /// Every leaf.
    All,
    /// These revisions, in this order; never empty.
    These(Vec<Revision>),
}

/// How a document is to be read (CouchDB documentation, 'Documents', table of GET parameters).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The revision asked for; the winner without it.
    pub rev: Option<Revision>,
    /// `open_revs`; an empty list is as if it were not given.
    pub open_revs: Option<OpenRevs>,
    /// The leaves below a revision rather than the revision itself.
    pub latest: bool,
    /// Add `_revisions`.
    pub revs: bool,
    /// The most revisions that `_revisions` names, where its database has a limit: a history is cut only when it is
    /// written.
    pub revs_max: Option<u64>,
    /// Add `_revs_info`.
    pub revs_info: bool,
    /// Add `_conflicts`.
    pub conflicts: bool,
    /// Add `_deleted_conflicts`.
    pub deleted_conflicts: bool,
    /// Add `_local_seq`.
    pub local_seq: bool,
    /// Attachments with their data.
    pub attachments: bool,
    /// Data of the attachments newer than these revisions; an empty list means all.
    pub atts_since: Option<Vec<Revision>>,
    /// Add `encoding` and `encoded_length` to attachment entries.
    pub att_encoding_info: bool,
    /// A tombstone as winner is an answer, not a 404.
    pub deleted: bool,
    /// How many replicas to ask; the default number without it.
    pub r: Option<u32>,
}

impl ReadOptions {
    /// Reads a query string.
    ///
    /// # Errors
    /// 400 for malformed revisions and lists of them.
    pub fn from_query(query: &Query) -> Result<ReadOptions, Problem> {
        let mut options = ReadOptions::default();
        for (name, value) in query.iter() {
            options.take(name, value)?;
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        match (name, value) {
            ("rev", text) => self.rev = Some(revision(text)?),
            ("open_revs", "all") => self.open_revs = Some(OpenRevs::All),
            ("open_revs", text) => {
                let revs = revision_list(text)?;
                self.open_revs = if revs.is_empty() { None } else { Some(OpenRevs::These(revs)) };
            }
            ("atts_since", text) => self.atts_since = Some(revision_list(text)?),
            ("latest", "true") => self.latest = true,
            ("revs", "true") => self.revs = true,
            ("revs_info", "true") => self.revs_info = true,
            ("conflicts", "true") => self.conflicts = true,
            ("deleted_conflicts", "true") => self.deleted_conflicts = true,
            ("local_seq", "true") => self.local_seq = true,
            ("attachments", "true") => self.attachments = true,
            ("att_encoding_info", "true") => self.att_encoding_info = true,
            ("deleted", "true") => self.deleted = true,
            ("r", text) => self.r = Some(replicas(text)?),
            ("meta", "true") => {
                self.revs_info = true;
                self.conflicts = true;
                self.deleted_conflicts = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// How many replicas `r` or `w` asks for.
///
/// # Errors
/// 400 for what is no number.
pub fn replicas(text: &str) -> Result<u32, Problem> {
    Ok(u32::try_from(positive(text)?).unwrap_or(u32::MAX))
}

/// A revision as text.
///
/// # Errors
/// 400 `Invalid rev format`.
pub fn revision(text: &str) -> Result<Revision, Problem> {
    Revision::parse(text).map_err(|_| Problem::bad_request("Invalid rev format"))
}

/// A JSON list of revisions in text form.
///
/// # Errors
/// 400, by what is wrong: not JSON, not a list, not a revision.
pub fn revision_list(text: &str) -> Result<Vec<Revision>, Problem> {
    let value = json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json())?;
    revisions(&value)
}

/// A JSON list of revisions.
///
/// # Errors
/// 400, by what is wrong: not a list, not a revision.
pub fn revisions(value: &Value) -> Result<Vec<Revision>, Problem> {
    let Some(items) = value.as_array() else { return Err(Problem::bad_request("Invalid list of revisions")) };
    items.iter().map(|item| revision(item.as_str().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::{OpenRevs, Query, ReadOptions};

    fn options(pairs: &[(&str, &str)]) -> Result<ReadOptions, String> {
        let pairs = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        ReadOptions::from_query(&Query::from_pairs(pairs)).map_err(|p| p.reason.into_owned())
    }

    #[test]
    fn flags_count_only_as_the_exact_text_true() {
        let all = options(&[("revs", "TRUE"), ("attachments", "1"), ("conflicts", ""), ("x", "true")]).unwrap();
        assert_eq!(all, ReadOptions::default());
        let meta = options(&[("meta", "true")]).unwrap();
        assert!(meta.revs_info && meta.conflicts && meta.deleted_conflicts && !meta.revs);
    }

    #[test]
    fn open_revs_is_all_or_a_list() {
        assert_eq!(options(&[("open_revs", "all")]).unwrap().open_revs, Some(OpenRevs::All));
        assert_eq!(options(&[("open_revs", "[]")]).unwrap().open_revs, None);
        let Some(OpenRevs::These(revs)) = options(&[("open_revs", r#"["1-a","2-b"]"#)]).unwrap().open_revs else {
            panic!("a list")
        };
        assert_eq!(revs.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1-a", "2-b"]);
        for (text, reason) in [
            ("junk", "invalid UTF-8 JSON"),
            ("{}", "Invalid list of revisions"),
            ("\"all\"", "Invalid list of revisions"),
            ("[1]", "Invalid rev format"),
        ] {
            assert_eq!(options(&[("open_revs", text)]), Err(reason.to_owned()));
        }
    }

    #[test]
    fn an_empty_atts_since_is_still_given() {
        let given = options(&[("atts_since", "[]")]).unwrap();
        assert_eq!(given.atts_since.as_deref(), Some([].as_slice()));
        assert_eq!(options(&[("rev", "")]), Err("Invalid rev format".to_owned()));
    }
}
