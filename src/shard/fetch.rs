//! Reads of documents by id, in bounded steps.

use std::collections::VecDeque;

use super::body::BodyRecord;
use super::record::{DocRecord, RevData};
use super::{Fetched, RevTree, Revision, ShardError, ShardId, ShardReplica, Want};
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::limits;
use crate::storage::{StorageError, View};

impl ShardReplica {
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

    /// As [`ShardReplica::fetch`], of the first wants as many as one step reads, at least one: `limits::STEP_BYTES` of
    /// bodies. Answers the others, too.
    pub async fn fetch_some(&self, wants: Wants) -> Result<(Vec<Option<Fetched>>, Wants), ShardError> {
        self.fetch_as(wants, |_, fetched| fetched).await
    }

    /// As [`ShardReplica::fetch_some`], with what `make` makes of each on the thread that reads.
    pub async fn fetch_as<T: Send + 'static>(
        &self,
        wants: Wants,
        make: impl Fn(&DocId, Option<Fetched>) -> T + Send + 'static,
    ) -> Result<(Vec<T>, Wants), ShardError> {
        let inline = are_inline(&wants);
        let read = move |view: &dyn View, shard: ShardId| step(view, shard, wants, make);
        if inline { self.read_inline(read).await } else { self.read(read).await }
    }
}

impl ShardReplica {
    /// As [`ShardReplica::fetch_some`], in one step too, of no more than `bytes` in memory: none where the first
    /// document alone takes more. That is known before its text is read, but for one with attachments.
    pub async fn fetch_within(&self, wants: Wants, bytes: usize) -> Result<FetchedPart, ShardError> {
        let inline = are_inline(&wants);
        let read = move |view: &dyn View, shard: ShardId| step_within(view, shard, wants, bytes);
        if inline { self.read_inline(read).await } else { self.read(read).await }
    }
}

/// The first documents of several that were wanted.
#[derive(Debug)]
pub struct FetchedPart {
    /// As many as there was room for.
    pub found: Vec<Option<Fetched>>,
    /// The others.
    pub rest: Wants,
    /// Bytes that the first of the others takes, where there was room for none; else 0.
    pub needs: usize,
}

/// Documents and what is wanted of them.
pub type Wants = VecDeque<(DocId, Want)>;

/// Whether reading that is no long work.
fn are_inline(wants: &Wants) -> bool {
    let is_inline = |want: &Want| matches!(want, Want::Winner | Want::Revision(_) | Want::Tree);
    wants.len() <= limits::INLINE_DOCS && wants.iter().all(|(_, want)| is_inline(want))
}

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

fn step_within(view: &dyn View, shard: ShardId, mut wants: Wants, most: usize) -> Result<FetchedPart, StorageError> {
    let (mut found, mut left) = (Vec::new(), most);
    while let (true, Some((id, want))) = (found.len() < limits::STEP_ROWS, wants.front()) {
        if most - left >= limits::STEP_BYTES {
            break;
        }
        let record = DocRecord::load(view, shard, id)?.map(|(record, ..)| record);
        let told = record.as_ref().map_or(0, |record| told_bytes(&record.tree, want));
        let fetched = match record {
            Some(record) if told <= left => Some(read_document(view, shard, record, want)?),
            _ => None,
        };
        let bytes = fetched.as_ref().map_or(told, Fetched::bytes);
        if bytes > left {
            let needs = if found.is_empty() { bytes } else { 0 };
            return Ok(FetchedPart { found, rest: wants, needs });
        }
        left -= bytes;
        found.push(fetched);
        wants.pop_front();
    }
    Ok(FetchedPart { found, rest: wants, needs: 0 })
}

/// The bytes in memory of what is wanted of a document, as far as its tree tells: it does not tell the text of a
/// revision with attachments from these.
fn told_bytes(tree: &RevTree<RevData>, want: &Want) -> usize {
    let revs = wanted(tree, want);
    let data = revs.iter().filter_map(|rev| tree.get(rev).flatten()).filter(|data| data.attachments == 0);
    let texts: u64 = data.map(|data| data.external).sum();
    tree_bytes(tree).saturating_add(usize::try_from(texts).unwrap_or(usize::MAX))
}

fn tree_bytes(tree: &RevTree<RevData>) -> usize {
    tree.revisions().count() * limits::TREE_NODE_BYTES
}

impl Fetched {
    /// The bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let stored = self.found.iter().filter_map(|(_, stored)| stored.as_ref());
        let texts = stored.map(|stored| stored.body.len() + stored.attachments.len() * limits::TREE_NODE_BYTES);
        texts.sum::<usize>() + tree_bytes(&self.tree)
    }
}

pub(super) fn document(
    view: &dyn View,
    shard: ShardId,
    id: &DocId,
    want: &Want,
) -> Result<Option<Fetched>, StorageError> {
    let Some((record, ..)) = DocRecord::load(view, shard, id)? else { return Ok(None) };
    read_document(view, shard, record, want).map(Some)
}

fn read_document(view: &dyn View, shard: ShardId, record: DocRecord, want: &Want) -> Result<Fetched, StorageError> {
    let mut found = Vec::new();
    for rev in wanted(&record.tree, want) {
        let stored = match record.tree.get(&rev).flatten() {
            Some(data) => read_revision(view, shard, &rev, data)?,
            None => None,
        };
        found.push((rev, stored));
    }
    Ok(Fetched { tree: record.tree, local_seq: record.seq, found })
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
