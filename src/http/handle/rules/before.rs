//! The document that a write replaces: rules of special databases compare the new one with it.

use std::sync::Arc;

use crate::coordinator::{Database, ReadOperations, Want};
use crate::document::draft::Draft;
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::StoredRevision;
use crate::document::rev_tree::RevPath;
use crate::document::revision::Revision;
use crate::http::{Problem, Result};

/// The document that a write extends; `None` for the first revision, also of one that was deleted.
///
/// A document that is about to be refused as a conflict is refused here: its rules cannot be checked.
///
/// # Errors
/// 409 for such a conflict, else those of reading.
pub async fn predecessor(db: &Arc<Database>, id: &DocId, draft: &Draft, new_edits: bool) -> Result<Option<Object>> {
    if !new_edits {
        let revs = draft.revisions.as_ref().map(ancestors).unwrap_or_default();
        let Some(fetched) = db.documents().fetch(id, Want::Revisions { revs, latest: false }).await? else {
            return Ok(None);
        };
        let newest = fetched.found.iter().find_map(|(_, stored)| stored.as_ref());
        // A branch without a known ancestor is checked against the winner: else anyone could put a conflict beside
        // another's document and so close the account.
        return match newest {
            Some(ancestor) => body_of(ancestor).map(Some),
            None => live(db, id, None).await,
        };
    }
    let parent = draft.revisions.as_ref().map(|path| path.head()).or_else(|| draft.rev.clone());
    let want = parent.clone().map_or(Want::Winner, Want::Revision);
    match (parent, db.documents().fetch_one(id, want).await?) {
        (None, None) => Ok(None),
        (None, Some(stored)) if stored.deleted => Ok(None),
        (Some(_), Some(stored)) => body_of(&stored).map(Some),
        (None, Some(_)) | (Some(_), None) => Err(Problem::conflict()),
    }
}

/// All revisions of a path but its newest.
fn ancestors(path: &RevPath) -> Vec<Revision> {
    let older = (0..path.start).rev().zip(&path.ids[1..]);
    older.map(|(pos, hash)| Revision::new(pos, hash.clone())).collect()
}

/// The body of the named revision, else of the winner, if it is live.
///
/// # Errors
/// Those of reading.
pub async fn live(db: &Arc<Database>, id: &DocId, rev: Option<&Revision>) -> Result<Option<Object>> {
    let want = rev.cloned().map_or(Want::Winner, Want::Revision);
    let live = db.documents().fetch_one(id, want).await?.filter(|stored| !stored.deleted);
    live.as_ref().map(body_of).transpose()
}

/// What a copy puts in the target's place, and what it replaces there; `None` where there is nothing to copy.
///
/// # Errors
/// Those of reading.
pub async fn copied(
    db: &Arc<Database>,
    (source, source_rev): (&DocId, Option<&Revision>),
    (target, target_rev): (&DocId, Option<&Revision>),
) -> Result<Option<(Object, Option<Object>)>> {
    let Some(new) = live(db, source, source_rev).await? else { return Ok(None) };
    let old = match target_rev {
        Some(rev) => live(db, target, Some(rev)).await?,
        None => None,
    };
    Ok(Some((new, old)))
}

/// The body of a stored revision, read.
///
/// # Errors
/// 500 for what is no JSON object.
pub fn body_of(stored: &StoredRevision) -> Result<Object> {
    match json::parse(&stored.body) {
        Ok(Value::Object(body)) => Ok(body),
        _ => Err(Problem::internal("The stored document cannot be read.")),
    }
}
