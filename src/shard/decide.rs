//! The decision about an edit: conflict check, and the fate of its attachments. Pure.

use super::record::RevData;
use super::{EditAttachment, KnownBytes, RevPath, RevTree, Revision};
use crate::document::render::Attachment;
use crate::world::buggify::{Mutation, mutated};

/// The edit is outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// The revision that a client's edit builds on; `None` for the first of a document.
///
/// As CouchDB 3.5 was measured (`conformance/cases/documents`):
/// - an unknown document takes no parent;
/// - a deleted document is written again without naming a parent, builds on the winning tombstone, and cannot be
///   deleted again;
/// - else the parent must be a leaf; edits of losing leaves are allowed.
pub fn parent_of(
    tree: &RevTree<RevData>,
    named: Option<&Revision>,
    deletes: bool,
) -> Result<Option<Revision>, Conflict> {
    let Some(winner) = tree.winner() else {
        return if named.is_none() { Ok(None) } else { Err(Conflict) };
    };
    match named {
        None if winner.value.deleted && !deletes => Ok(Some(winner.rev)),
        None => Err(Conflict),
        Some(_) if winner.value.deleted => Err(Conflict),
        Some(parent) if tree.is_leaf(parent) => Ok(Some(parent.clone())),
        Some(parent) if mutated(Mutation::ForkOnConflict) && tree.get(parent).is_some() => Ok(Some(parent.clone())),
        Some(_) => Err(Conflict),
    }
}

/// The nearest ancestor of a merged revision whose body is there: its stubs mean that one's attachments, and validation
/// compares the revision with it.
pub fn ancestor_of(tree: &RevTree<RevData>, path: &RevPath) -> Option<Revision> {
    let ancestors = path.ids.iter().enumerate().skip(1);
    let mut available = ancestors.filter_map(|(back, hash)| {
        let rev = Revision::new(path.start.checked_sub(back as u64)?, hash.clone());
        tree.get(&rev).flatten().is_some_and(|data| data.is_available()).then_some(rev)
    });
    available.next()
}

/// The attachment among those of a revision that a stub means: that of its name and, where given, its revpos; else that
/// of its name with these bytes, which gets the revpos of the stub.
pub fn attachment_of_stub(
    known: &[Attachment],
    name: &str,
    revpos: Option<u64>,
    bytes: Option<&KnownBytes>,
) -> Option<Attachment> {
    let found = known.iter().find(|a| a.name == name)?;
    let Some(revpos) = revpos.filter(|revpos| *revpos != found.revpos) else { return Some(found.clone()) };
    let same = bytes.is_some_and(|b| b.digest == found.digest && b.content_type == found.content_type);
    same.then(|| Attachment { revpos, ..found.clone() })
}

/// The attachments of the new revision: stubs taken from `base`, new ones with `revpos` where one is set. Fails with
/// the name of a stub that means none of `base`.
pub(super) fn attachments(
    wanted: &[EditAttachment],
    base: &[Attachment],
    revpos: Option<u64>,
) -> Result<Vec<Attachment>, String> {
    let resolve = |wanted: &EditAttachment| match wanted {
        EditAttachment::New(new) => Ok(Attachment { revpos: revpos.unwrap_or(new.revpos), ..new.clone() }),
        EditAttachment::Stub { name, revpos, bytes } => {
            attachment_of_stub(base, name, *revpos, bytes.as_ref()).ok_or_else(|| name.clone())
        }
    };
    wanted.iter().map(resolve).collect()
}
