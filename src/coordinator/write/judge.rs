//! Judging edits where they live: on this node's copy of their range.
//!
//! One copy of a range judges at a time (see `spread` for which): it alone runs the conflict check and validation, so
//! that a healthy cluster makes no conflicts of its own. What it stored is then merged into the other copies.

use std::collections::BTreeMap;

use crate::coordinator::replica::database::Database;
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::WriteError;
use crate::document::revision::{self, AttachmentDigest};
use crate::limits;
use crate::shard::{Basis, Edit, EditAttachment, EditError, EditOp, Judged, ShardCopy, ShardError, Want};
use crate::storage::StorageError;
use crate::world::buggify::{Mutation, mutated, sometimes};

/// What became of an edit.
pub(in crate::coordinator) type Verdict = Result<Judged, WriteError>;

impl Database {
    /// Validates and judges edits of the copy's range, each alone, in order; one verdict for each.
    pub(in crate::coordinator) async fn judge_own(
        &self,
        copy: &ShardCopy,
        edits: &[Edit],
        caller: &Caller,
    ) -> Vec<Verdict> {
        let count = edits.len();
        let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
        let mut step: Vec<(usize, Edit)> = edits.iter().cloned().enumerate().collect();
        for attempt in 1..=limits::VALIDATION_ATTEMPTS {
            if attempt > 1 {
                sometimes("write: validated again because the document changed");
            }
            let places: Vec<usize> = step.iter().map(|(at, _)| *at).collect();
            let again = attempt < limits::VALIDATION_ATTEMPTS;
            step = match self.judge_step(copy, step, caller, again, &mut verdicts).await {
                Ok(step) => step,
                Err(error) => {
                    verdicts.extend(places.into_iter().map(|at| (at, Err(error.clone().into()))));
                    Vec::new()
                }
            };
            if step.is_empty() {
                break;
            }
        }
        assert_eq!(verdicts.len(), count, "one verdict per edit");
        verdicts.into_values().collect()
    }

    /// Validates and judges; answers those to be validated anew, if there is another time (`again`).
    async fn judge_step(
        &self,
        copy: &ShardCopy,
        step: Vec<(usize, Edit)>,
        caller: &Caller,
        again: bool,
        verdicts: &mut BTreeMap<usize, Verdict>,
    ) -> Result<Vec<(usize, Edit)>, ShardError> {
        let refs: Vec<&Edit> = step.iter().map(|(_, edit)| edit).collect();
        let checked = self.validate(copy, &refs, caller).await?;
        let mut accepted: Vec<(usize, (Edit, Basis))> = Vec::with_capacity(step.len());
        for ((at, edit), checked) in step.into_iter().zip(checked) {
            match checked {
                Ok(basis) => accepted.push((at, (edit, basis))),
                Err(error) => drop(verdicts.insert(at, Err(error))),
            }
        }
        if accepted.is_empty() {
            return Ok(Vec::new());
        }
        // Only edits with a basis of their own can come back; the copies share their bodies.
        let with_basis = accepted.iter().filter(|(_, (_, basis))| *basis != Basis::Any);
        let mut kept: BTreeMap<usize, Edit> = with_basis.map(|(at, (edit, _))| (*at, edit.clone())).collect();
        let (places, edits): (Vec<usize>, Vec<(Edit, Basis)>) = accepted.into_iter().unzip();
        let results = match copy.judge(edits).await {
            Ok(results) => results,
            Err(error) => {
                verdicts.extend(places.into_iter().map(|at| (at, Err(error.clone().into()))));
                return Ok(Vec::new());
            }
        };
        assert_eq!(results.len(), places.len(), "one result per edit");
        let mut changed = Vec::new();
        for (at, result) in places.into_iter().zip(results) {
            match (result, kept.remove(&at)) {
                (Err(EditError::BasisChanged), Some(edit)) if again => changed.push((at, edit)),
                (result, _) => drop(verdicts.insert(at, result.map_err(WriteError::from))),
            }
        }
        Ok(changed)
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
        }
    }
}

/// Whether a judge says of each edit that what is stored of its document is damaged. It stored nothing, and will not
/// judge others of that document either.
pub(in crate::coordinator) fn is_unable(verdicts: &[Verdict]) -> bool {
    let unable = |verdict: &Verdict| matches!(verdict, Err(WriteError::Unavailable(error)) if error.is_damage());
    !verdicts.is_empty() && verdicts.iter().all(unable)
}

/// The verdict on an edit that another judge was sent before and did not answer. What is refused now may have been
/// stored by that one: a conflict is told only as what it is when the very revision of this edit is there, and what
/// this judge could not do may be done.
pub(in crate::coordinator) async fn resolve_in_doubt(copy: &ShardCopy, edit: &Edit, verdict: Verdict) -> Verdict {
    match verdict {
        Err(WriteError::Conflict | WriteError::MissingStub { .. }) => {}
        Err(WriteError::Unavailable(_) | WriteError::DatabaseGone) => return Err(WriteError::Unknown),
        verdict => return verdict,
    }
    if mutated(Mutation::LateJudge) {
        return verdict;
    }
    let Some(rev) = own_revision(edit) else { return Err(WriteError::Unknown) };
    let wants = vec![(edit.id.clone(), Want::Revision(rev.clone()))];
    let found = copy.fetch(wants).await.ok().and_then(|found| found.into_iter().next().flatten());
    let stored = found.and_then(|mut found| {
        let path = found.tree.path_to(&rev)?;
        Some(Judged { path, attachments: found.take_one()?.attachments })
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
    Some(revision::compute(edit.deleted, parent.as_ref(), &edit.body.term, &digests))
}
