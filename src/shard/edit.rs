//! Edits: decided and stored inside one committer job, so that each edit sees all edits before it, committed or not.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use super::body::BodyRecord;
use super::decide::{self, Conflict};
use super::purge::RecentPurges;
use super::record::RevData;
use super::tombstone_collection;
use super::transaction::{Loaded, Transaction};
use super::{AcceptedEdit, Basis, Edit, EditError, EditOp, RevPath, Revision, ShardError, ShardReplica};
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::rev_tree::{Merged, RevTree};
use crate::document::revision::AttachmentDigest;
use crate::storage::StorageError;
use crate::storage::planted::{Bug, Planted};
use crate::world::sync::Mutex;

/// Inside: the decision; outside: the disk.
type Decision<T> = Result<Result<T, EditError>, StorageError>;

/// Unwraps a [`Decision`] or returns it.
macro_rules! decided {
    ($accepted:expr) => {
        match $accepted {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        }
    };
}

impl ShardReplica {
    /// Decides and stores edits in order, each alone, in one commit; durable on return. Results stand in request order.
    ///
    /// # Panics
    /// When the path of a merge is empty.
    pub async fn edit(&self, edits: Vec<Edit>) -> Result<Vec<Result<Revision, EditError>>, ShardError> {
        self.edit_validated(edits.into_iter().map(|edit| (edit, Basis::Any)).collect()).await
    }

    /// As [`ShardReplica::edit`], for edits that were validated: [`EditError::BasisChanged`] when that no longer holds.
    ///
    /// # Panics
    /// When the path of a merge is empty.
    pub async fn edit_validated(
        &self,
        edits: Vec<(Edit, Basis)>,
    ) -> Result<Vec<Result<Revision, EditError>>, ShardError> {
        let results = self.decide(edits).await?;
        Ok(results.into_iter().map(|result| result.map(|accepted| accepted.path.head())).collect())
    }

    /// As [`ShardReplica::edit_validated`]; answers what other replicas need to hold the same.
    ///
    /// # Panics
    /// When the path of a merge is empty.
    pub async fn decide(&self, edits: Vec<(Edit, Basis)>) -> Result<Vec<Result<AcceptedEdit, EditError>>, ShardError> {
        self.decide_unpurged(edits, None).await
    }

    /// As [`ShardReplica::decide`]; with `upto` an edit is refused ([`EditError::Purged`]) whose revision is named by a
    /// purge that the replica remembers, unless the number of its last purge is `upto`.
    ///
    /// # Panics
    /// When the path of a merge is empty.
    pub async fn decide_unpurged(
        &self,
        mut edits: Vec<(Edit, Basis)>,
        upto: Option<u64>,
    ) -> Result<Vec<Result<AcceptedEdit, EditError>>, ShardError> {
        edits.iter_mut().for_each(|(edit, _)| bound_path(edit));
        let has_room = self.0.storage.has_room();
        let inner = Arc::clone(&self.0);
        self.change(move |transaction, planted| {
            let accepted = edits.into_iter().map(|(edit, basis)| match has_room || edit.deleted {
                true => {
                    let looked_at = upto.is_none_or(|upto| upto > 0 && upto == transaction.header.purge_seq);
                    let guard = Guard { planted, purged: &inner.purged, looked_at };
                    apply(transaction, edit, &basis, &guard)
                }
                false => Ok(Err(EditError::NoRoom)),
            });
            accepted.collect()
        })
        .await
    }
}

/// Cuts what a client's history claims from before the first generation. Checked here, in the caller's task: a panic in
/// the committer would stop the node's writes.
fn bound_path(edit: &mut Edit) {
    if let EditOp::Merge { path } = &mut edit.op {
        assert!(!path.ids.is_empty(), "a merge names its revision");
        let longest = usize::try_from(path.start.saturating_add(1)).unwrap_or(usize::MAX);
        path.ids.truncate(longest);
    }
}

/// What may stand against an edit beside its document.
struct Guard<'a> {
    planted: Planted,
    purged: &'a Mutex<RecentPurges>,
    /// Whether purges that name the revision do not matter.
    looked_at: bool,
}

impl Guard<'_> {
    /// Whether a purge names a revision that is not here.
    fn is_late(
        &self,
        transaction: &Transaction<'_, '_>,
        id: &DocId,
        rev: &Revision,
        loaded: &Loaded,
    ) -> Result<bool, StorageError> {
        let is_here = || loaded.tree.get(rev).flatten().is_some();
        Ok(!self.looked_at && !is_here() && names(self.purged, transaction, id, rev)?)
    }
}

fn apply(
    transaction: &mut Transaction<'_, '_>,
    edit: Edit,
    basis: &Basis,
    guard: &Guard<'_>,
) -> Decision<AcceptedEdit> {
    let Guard { planted, purged, .. } = *guard;
    let loaded = transaction.load(&edit.id)?;
    match &edit.op {
        EditOp::Interactive { parent } => interactive(transaction, &edit, parent.as_ref(), loaded, guard),
        EditOp::Merge { path } => {
            let path = path.clone();
            let holds = match basis {
                Basis::Any => true,
                Basis::NotPurged => {
                    let rev = path.head();
                    loaded.tree.get(&rev).flatten().is_some() || !names(purged, transaction, &edit.id, &rev)?
                }
                Basis::Ancestor(seen) => decide::ancestor_of(&loaded.tree, &path) == *seen,
                Basis::Purges { seen, rounds, .. } => {
                    (transaction.header.purge_seq, transaction.header.rounds) == (*seen, *rounds)
                }
            };
            if !holds {
                return Ok(Err(EditError::BasisChanged));
            }
            if guard.is_late(transaction, &edit.id, &path.head(), &loaded)? {
                return Ok(Err(EditError::Purged));
            }
            let before = transaction.header.last_body;
            let merged = merge(transaction, &edit, path, loaded, planted)?;
            if matches!(basis, Basis::Purges { is_early: true, .. }) && transaction.header.last_body > before {
                tombstone_collection::note_applied_early(transaction)?;
            }
            Ok(merged)
        }
    }
}

/// Whether a purge that a replica remembers names a revision.
fn names(
    purged: &Mutex<RecentPurges>,
    transaction: &Transaction<'_, '_>,
    id: &DocId,
    rev: &Revision,
) -> Result<bool, StorageError> {
    purged.lock().unwrap_or_else(PoisonError::into_inner).names(transaction, id, rev)
}

fn interactive(
    transaction: &mut Transaction<'_, '_>,
    edit: &Edit,
    named: Option<&Revision>,
    loaded: Loaded,
    guard: &Guard<'_>,
) -> Decision<AcceptedEdit> {
    let marker = if loaded.tree.is_empty() { tombstone_collection::marker_of(transaction, &edit.id)? } else { None };
    let parent = match &marker {
        // As if the tombstone were there.
        Some(path) if named.is_none() && !edit.deleted => Ok(Some(path.head())),
        Some(_) => Err(Conflict),
        None => decide::parent_of(&loaded.tree, named, edit.deleted),
    };
    let parent = decided!(parent.map_err(|Conflict| EditError::Conflict));
    // Stubs mean the attachments of the revision that the client named: a recreated document begins without any.
    let base = named.and_then(|rev| loaded.tree.get(rev).flatten()).map(|data| data.body);
    let generation = parent.as_ref().map_or(0, |parent| parent.pos) + 1;
    // A document that is made again upon its tombstone has its attachments from the first revision, as in CouchDB.
    let is_again = parent.is_some() && named.is_none() && !edit.deleted;
    let revpos = if is_again { 1 } else { generation };
    let attachments = decided!(resolve(transaction, edit, base, Some(revpos))?);
    let digests: Vec<AttachmentDigest<'_>> = attachments.iter().map(digest).collect();
    let rev = edit.body.revision(edit.deleted, parent.as_ref(), &digests);
    assert_eq!(rev.pos, generation, "the hash and the tree disagree about the generation");
    if guard.is_late(transaction, &edit.id, &rev, &loaded)? {
        return Ok(Err(EditError::Purged));
    }
    let mut path = RevPath::single(rev);
    let known = |parent| loaded.tree.path_to(&parent);
    if let Some(ancestors) = marker.or_else(|| parent.and_then(known)) {
        path.ids.extend(ancestors.ids);
    }
    store(transaction, edit, path, attachments, loaded, Planted::none())
}

fn digest(attachment: &Attachment) -> AttachmentDigest<'_> {
    AttachmentDigest { name: &attachment.name, content_type: &attachment.content_type, md5: &attachment.digest }
}

fn merge(
    transaction: &mut Transaction<'_, '_>,
    edit: &Edit,
    path: RevPath,
    loaded: Loaded,
    planted: Planted,
) -> Decision<AcceptedEdit> {
    let attachments = match loaded.tree.get(&path.head()).flatten() {
        Some(known) if known.is_available() => {
            BodyRecord::attachments(transaction.view, transaction.shard, known.body)?
        }
        Some(_) => Vec::new(),
        None => {
            let ancestor = decide::ancestor_of(&loaded.tree, &path);
            let base = ancestor.and_then(|rev| loaded.tree.get(&rev).flatten()).map(|data| data.body);
            decided!(resolve(transaction, edit, base, None)?)
        }
    };
    store(transaction, edit, path, attachments, loaded, planted)
}

/// The attachments of the new revision; `base` is the body record whose attachments stubs mean.
fn resolve(
    transaction: &Transaction<'_, '_>,
    edit: &Edit,
    base: Option<u64>,
    revpos: Option<u64>,
) -> Decision<Vec<Attachment>> {
    let stubs = edit.attachments.iter().any(|a| matches!(a, super::EditAttachment::Stub { .. }));
    let base = match base.filter(|body| stubs && *body != 0) {
        Some(body) => BodyRecord::attachments(transaction.view, transaction.shard, body)?,
        None => Vec::new(),
    };
    let missing = |name| EditError::MissingStub { id: edit.id.clone(), name };
    Ok(decide::attachments(&edit.attachments, &base, revpos).map_err(missing))
}

/// Merges the revision into the tree and stores what that changed.
fn store(
    transaction: &mut Transaction<'_, '_>,
    edit: &Edit,
    path: RevPath,
    attachments: Vec<Attachment>,
    mut loaded: Loaded,
    planted: Planted,
) -> Decision<AcceptedEdit> {
    let rev = path.head();
    // Known before: only its ancestors can be news, its first content stays.
    let known = loaded.tree.get(&rev).flatten().copied();
    let data = match known {
        Some(data) => data,
        None => {
            let put = transaction.put_body(edit.deleted, &attachments, &edit.body.text)?;
            decided!(put.map_err(|name| EditError::UploadGone { name }))
        }
    };
    let merged = loaded.tree.merge(&path, data);
    let accepted = AcceptedEdit { path, attachments };
    if merged == Merged::Known {
        return Ok(Ok(accepted));
    }
    if merged == Merged::NewBranch && planted.has(Bug::LoseSibling) {
        lose_sibling(transaction, &mut loaded.tree)?;
    }
    for dropped in loaded.tree.stem(edit.revs_limit) {
        transaction.drop_body(&dropped)?;
    }
    transaction.store(&edit.id, loaded)?;
    Ok(Ok(accepted))
}

/// The planted bug: the worst leaf disappears.
fn lose_sibling(transaction: &mut Transaction<'_, '_>, tree: &mut RevTree<RevData>) -> Result<(), StorageError> {
    let worst: Vec<Revision> = tree.leaves().into_iter().skip(1).map(|leaf| leaf.rev).next_back().into_iter().collect();
    for dropped in tree.purge(&worst).1 {
        transaction.drop_body(&dropped)?;
    }
    Ok(())
}

/// What a purge of one document removed.
pub(super) struct Purged {
    /// The leaves.
    pub leaves: Vec<Revision>,
    /// Ancestors that no other leaf had.
    pub history: Vec<Revision>,
}

/// Removes those of the revisions that are leaves.
pub(super) fn purge_document(
    transaction: &mut Transaction<'_, '_>,
    id: &DocId,
    revs: &[Revision],
) -> Result<Purged, StorageError> {
    let mut loaded = transaction.load(id)?;
    let before: Vec<Revision> = loaded.tree.revisions().map(|(rev, _)| rev.clone()).collect();
    let (leaves, dropped) = loaded.tree.purge(revs);
    if leaves.is_empty() {
        return Ok(Purged { leaves, history: Vec::new() });
    }
    let stays: BTreeSet<&Revision> = loaded.tree.revisions().map(|(rev, _)| rev).chain(&leaves).collect();
    let history = before.into_iter().filter(|rev| !stays.contains(rev)).collect();
    for data in dropped {
        transaction.drop_body(&data)?;
    }
    transaction.store(id, loaded)?;
    Ok(Purged { leaves, history })
}
