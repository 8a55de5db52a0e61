//! Reading documents by id, in bounded steps.

use std::collections::VecDeque;

use super::body::BodyRecord;
use super::record::{DocRecord, RevData};
use super::{Fetched, RevTree, Revision, ShardCopy, ShardError, ShardId, Want};
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::limits;
use crate::storage::{StorageError, View};

impl ShardCopy {
    /// Reads documents; results stand in request order, `None` for unknown documents. Each is read in one view; several
    /// may come from different moments.
    pub async fn fetch(&self, wants: Vec<(DocId, Want)>) -> Result<Vec<Option<Fetched>>, ShardError> {
        let mut out = Vec::with_capacity(wants.len());
        let mut wants = VecDeque::from(wants);
        while !wants.is_empty() {
            let found;
            (found, wants) = self.fetch_some(wants).await?;
            out.extend(found);
        }
        Ok(out)
    }

    /// As [`ShardCopy::fetch`], of the first wants as many as one step reads, at least one: `limits::STEP_BYTES` of
    /// bodies. Answers the others, too.
    pub async fn fetch_some(&self, wants: Wants) -> Result<(Vec<Option<Fetched>>, Wants), ShardError> {
        self.fetch_as(wants, |_, fetched| fetched).await
    }

    /// As [`ShardCopy::fetch_some`], with what `make` makes of each on the thread that reads.
    pub async fn fetch_as<T: Send + 'static>(
        &self,
        wants: Wants,
        make: impl Fn(&DocId, Option<Fetched>) -> T + Send + 'static,
    ) -> Result<(Vec<T>, Wants), ShardError> {
        let is_brief = |want: &Want| matches!(want, Want::Winner | Want::Revision(_) | Want::Tree);
        let brief = wants.len() <= limits::BRIEF_DOCS && wants.iter().all(|(_, want)| is_brief(want));
        let read = move |view: &dyn View, shard: ShardId| step(view, shard, wants, make);
        if brief { self.read_brief(read).await } else { self.read(read).await }
    }
}

/// Documents and what is wanted of them.
pub type Wants = VecDeque<(DocId, Want)>;

fn step<T>(
    view: &dyn View,
    shard: ShardId,
    mut wants: Wants,
    make: impl Fn(&DocId, Option<Fetched>) -> T,
) -> Result<(Vec<T>, Wants), StorageError> {
    let (mut out, mut bytes) = (Vec::new(), 0);
    while out.len() < limits::STEP_ROWS && bytes < limits::STEP_BYTES {
        let Some((id, want)) = wants.pop_front() else { break };
        let fetched = document(view, shard, &id, &want)?;
        let revisions = fetched.iter().flat_map(|f| &f.found).filter_map(|(_, stored)| stored.as_ref());
        bytes += revisions.map(|stored| stored.body.len()).sum::<usize>();
        out.push(make(&id, fetched));
    }
    Ok((out, wants))
}

pub(super) fn document(
    view: &dyn View,
    shard: ShardId,
    id: &DocId,
    want: &Want,
) -> Result<Option<Fetched>, StorageError> {
    let Some((record, ..)) = DocRecord::load(view, shard, id)? else { return Ok(None) };
    let mut found = Vec::new();
    for rev in wanted(&record.tree, want) {
        let stored = match record.tree.get(&rev).flatten() {
            Some(data) => read_revision(view, shard, &rev, data)?,
            None => None,
        };
        found.push((rev, stored));
    }
    Ok(Some(Fetched { tree: record.tree, local_seq: record.seq, found }))
}

/// The names of the revisions that a read of a document with this tree is to find.
pub fn wanted(tree: &RevTree<RevData>, want: &Want) -> Vec<Revision> {
    match want {
        Want::Tree => Vec::new(),
        Want::Winner => tree.winner().map(|leaf| leaf.rev).into_iter().collect(),
        Want::Leaves => tree.leaves().into_iter().map(|leaf| leaf.rev).collect(),
        Want::Revision(rev) => vec![rev.clone()],
        Want::Revisions { revs, latest: false } => revs.clone(),
        Want::Revisions { revs, latest: true } => {
            let mut out: Vec<Revision> = Vec::new();
            for rev in revs {
                let below = tree.leaves_below(rev);
                let names =
                    if below.is_empty() { vec![rev.clone()] } else { below.into_iter().map(|l| l.rev).collect() };
                // Two ancestors may lead to the same leaf.
                names.into_iter().for_each(|name| {
                    if !out.contains(&name) {
                        out.push(name);
                    }
                });
            }
            out
        }
    }
}

/// A revision's content; `None` when compaction has removed it.
pub(super) fn read_revision(
    view: &dyn View,
    shard: ShardId,
    rev: &Revision,
    data: &RevData,
) -> Result<Option<StoredRevision>, StorageError> {
    if !data.is_available() {
        return Ok(None);
    }
    let body = BodyRecord::load(view, shard, data.body)?;
    Ok(Some(body.stored(rev.clone(), data.deleted)))
}
