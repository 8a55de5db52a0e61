//! Edits on the primary replica of a shard: conflict check and validation, before the edit is replicated.
//!
//! One replica of a range decides at a time (`spread` says which one). It alone runs the conflict check and validation,
//! so that a healthy cluster makes no conflicts of its own. What it stored is then merged into the other replicas.

use std::collections::BTreeMap;

use crate::coordinator::replica::awaited;
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::WriteError;
use crate::coordinator::write::Primary;
use crate::document::revision::AttachmentDigest;
use crate::limits;
use crate::shard::{AcceptedEdit, Basis, Edit, EditAttachment, EditError, EditOp, ShardError, ShardReplica, Want};
use crate::storage::StorageError;
use crate::world::buggify::{Mutation, mutated, sometimes};

/// What became of an edit.
pub(in crate::coordinator) type Decision = Result<AcceptedEdit, WriteError>;

impl Primary<'_> {
    /// Validates and decides edits of the replica's range, each alone, in order; one decision for each.
    ///
    /// Edits of a call may be late: another primary stored them in the meantime, and their revisions were purged. Where
    /// a purge that the replica remembers names a revision, `sent_by` is asked whether it still waits for the call; if
    /// it does not, nothing is stored. A purge that comes after the question makes it be asked again.
    pub(in crate::coordinator) async fn decide_own(
        self,
        replica: &ShardReplica,
        edits: &[Edit],
        caller: &Caller,
        sent_by: Option<&awaited::RemoteCaller>,
    ) -> Vec<Decision> {
        let count = edits.len();
        let mut asked = sent_by.filter(|_| !mutated(Mutation::LateEditStored)).map(|by| Asked { by, upto: 0 });
        let mut decisions: BTreeMap<usize, Decision> = BTreeMap::new();
        let mut step: Vec<(usize, Edit)> = edits.iter().cloned().enumerate().collect();
        for attempt in 1..=limits::VALIDATION_ATTEMPTS {
            if attempt > 1 {
                sometimes("write: validated again because the document changed");
            }
            let places: Vec<usize> = step.iter().map(|(at, _)| *at).collect();
            let again = attempt < limits::VALIDATION_ATTEMPTS;
            step = match self.decide_step(replica, step, (caller, &mut asked), again, &mut decisions).await {
                Ok(step) => step,
                Err(error) => {
                    decisions.extend(places.into_iter().map(|at| (at, Err(error.clone().into()))));
                    Vec::new()
                }
            };
            if step.is_empty() {
                break;
            }
        }
        assert_eq!(decisions.len(), count, "one decision per edit");
        decisions.into_values().collect()
    }

    /// Validates and decides; answers those to be validated anew, if there is another time (`again`).
    async fn decide_step(
        self,
        replica: &ShardReplica,
        step: Vec<(usize, Edit)>,
        (caller, asked): (&Caller, &mut Option<Asked<'_>>),
        again: bool,
        decisions: &mut BTreeMap<usize, Decision>,
    ) -> Result<Vec<(usize, Edit)>, ShardError> {
        let refs: Vec<&Edit> = step.iter().map(|(_, edit)| edit).collect();
        let checked = self.validate(replica, &refs, caller).await?;
        let mut accepted: Vec<(usize, (Edit, Basis))> = Vec::with_capacity(step.len());
        for ((at, edit), checked) in step.into_iter().zip(checked) {
            match checked {
                Ok(basis) => accepted.push((at, (edit, basis))),
                Err(error) => drop(decisions.insert(at, Err(error))),
            }
        }
        if accepted.is_empty() {
            return Ok(Vec::new());
        }
        // Only edits with a basis of their own and those that may be late can come back; the replicas share their
        // bodies.
        let with_basis = accepted.iter().filter(|(_, (_, basis))| *basis != Basis::Any || asked.is_some());
        let mut kept: BTreeMap<usize, Edit> = with_basis.map(|(at, (edit, _))| (*at, edit.clone())).collect();
        let (places, edits): (Vec<usize>, Vec<(Edit, Basis)>) = accepted.into_iter().unzip();
        let results = match replica.decide_unpurged(edits, asked.as_ref().map(|asked| asked.upto)).await {
            Ok(results) => results,
            Err(error) => {
                decisions.extend(places.into_iter().map(|at| (at, Err(error.clone().into()))));
                return Ok(Vec::new());
            }
        };
        assert_eq!(results.len(), places.len(), "one result per edit");
        let (mut changed, mut purged) = (Vec::new(), Vec::new());
        for (at, result) in places.into_iter().zip(results) {
            match (result, kept.remove(&at)) {
                (Err(EditError::BasisChanged), Some(edit)) if again => changed.push((at, edit)),
                (Err(EditError::Purged), Some(edit)) if again => purged.push((at, edit)),
                (result, _) => drop(decisions.insert(at, result.map_err(WriteError::from))),
            }
        }
        if let (Some(asked), false) = (asked, purged.is_empty()) {
            match asked.still_waits(replica).await? {
                true => changed.append(&mut purged),
                false => decisions.extend(purged.into_iter().map(|(at, _)| (at, Err(EditError::Purged.into())))),
            }
            changed.sort_by_key(|(at, _)| *at);
        }
        Ok(changed)
    }
}

/// Whom edits come from that may be late, and up to which of the replica's purges that node was asked about them.
struct Asked<'a> {
    by: &'a awaited::RemoteCaller,
    upto: u64,
}

impl Asked<'_> {
    async fn still_waits(&mut self, replica: &ShardReplica) -> Result<bool, ShardError> {
        // Before the question: what is purged after it is not covered by the answer.
        (self.upto, _) = replica.purged_and_collected().await?;
        let waits = self.by.waits().await;
        if !waits {
            sometimes("write: an edit whose revision was purged came after its caller had given it up");
        }
        Ok(waits)
    }
}

impl From<EditError> for WriteError {
    fn from(error: EditError) -> Self {
        match error {
            // A basis that changes again and again is one that others write to.
            EditError::Conflict | EditError::BasisChanged => WriteError::Conflict,
            EditError::MissingStub { id, name } => WriteError::MissingStub { id, name },
            EditError::UploadGone { name } => WriteError::UploadGone { name },
            EditError::NoRoom => StorageError::NoRoom.into(),
            EditError::Purged => ShardError::NotExecuted("nobody waits for the edit any more".to_owned()).into(),
        }
    }
}

/// Whether a primary says of each edit that what is stored of its document is damaged. It stored nothing, and will not
/// decide others of that document either.
pub(in crate::coordinator) fn is_unable(decisions: &[Decision]) -> bool {
    let unable = |decision: &Decision| matches!(decision, Err(WriteError::Unavailable(error)) if error.is_damage());
    !decisions.is_empty() && decisions.iter().all(unable)
}

/// The decision on an edit that another primary was sent before and did not answer. What is refused now may have been
/// stored by that one: a conflict is told only as what it is when the very revision of this edit is there, and what
/// this decide could not do may be done.
pub(in crate::coordinator) async fn resolve_in_doubt(
    replica: &ShardReplica,
    edit: &Edit,
    decision: Decision,
) -> Decision {
    match decision {
        Err(WriteError::Conflict | WriteError::MissingStub { .. }) => {}
        Err(WriteError::Unavailable(_) | WriteError::DatabaseGone) => return Err(WriteError::Unknown),
        decision => return decision,
    }
    if mutated(Mutation::LatePrimary) {
        return decision;
    }
    let Some(rev) = own_revision(edit) else { return Err(WriteError::Unknown) };
    let wants = vec![(edit.id.clone(), Want::Revision(rev.clone()))];
    let found = replica.fetch(wants).await.ok().and_then(|found| found.into_iter().next().flatten());
    let stored = found.and_then(|mut found| {
        let path = found.tree.path_to(&rev)?;
        Some(AcceptedEdit { path, attachments: found.take_one()?.attachments })
    });
    stored.ok_or(WriteError::Unknown)
}

/// The revision that an interactive edit gets; `None` where it depends on more than the edit says.
fn own_revision(edit: &Edit) -> Option<crate::document::revision::Revision> {
    let EditOp::Interactive { parent } = &edit.op else { return None };
    let digest = |attachment: &EditAttachment| match attachment {
        EditAttachment::New(new) => Some((new.name.clone(), new.content_type.clone(), new.digest)),
        EditAttachment::Stub { .. } => None,
    };
    let attachments = edit.attachments.iter().map(digest).collect::<Option<Vec<_>>>()?;
    let digests: Vec<AttachmentDigest<'_>> =
        attachments.iter().map(|(name, content_type, md5)| AttachmentDigest { name, content_type, md5 }).collect();
    Some(edit.body.revision(edit.deleted, parent.as_ref(), &digests))
}
