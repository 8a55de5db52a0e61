//! Reading documents from several copies of a range, and repairing those that lack something.
//!
//! One copy is asked for the documents, the others for their revision trees. Where the leaves agree the first answer
//! stands. Where they do not, all copies that can be reached are asked for their leaves; the answer is made of the
//! union, and copies that lack a leaf get it behind the answer. Leaves that a copy has purged do not come back by that.
//! So it is with a revision that is named and not found: a feed may have listed it from a copy that was not asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use crate::coordinator::copies::no_answer;
use crate::coordinator::database::Database;
use crate::coordinator::error::{MayHaveMoved as _, ReadError};
use crate::coordinator::layout::Layout;
use crate::coordinator::quorum::copies_to_ask;
use crate::coordinator::range_copy::RangeCopy;
use crate::coordinator::remote::RemoteCopy;
use crate::coordinator::repair::{self, Origin};
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::document::rev_tree::{RevTree, RevValue as _};
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{self, Edit, EditAttachment, EditOp, Fetched, RevData, ShardError, Want};
use crate::world::BoxFuture;

type Wants = Vec<(DocId, Want)>;
type Found = Vec<Option<Fetched>>;

impl Database {
    /// Reads documents of one range from `r` copies; tells for each how many copies have it just so, too.
    pub(super) async fn fetch_counted(
        &self,
        (layout, range): (&Layout, usize),
        wants: Wants,
        r: Option<u32>,
    ) -> Result<(Found, Vec<usize>), ReadError> {
        let copies = self.all_readers(layout, range).await?;
        if layout.is_alone(range) {
            let copy = copies.first().ok_or(ShardError::NoCopy { copies: 1 })?;
            let found = copy.fetch(wants).await?;
            let agreed = vec![1; found.len()];
            return Ok((found, agreed));
        }
        let ask = copies_to_ask(r, layout.placed.copies(range));
        let replies = self.ask_admitted((layout, range), &copies, &wants, ask).await?;
        self.check_quorum(replies.len(), ask)?;
        let mut others = replies.into_iter();
        // Invariant: without any reply the call above fails.
        let mut answers = others.next().expect("a reply");
        let others: Vec<Found> = others.collect();
        let mut agreed = vec![1 + others.len(); wants.len()];
        let differ = |at: &usize| {
            let told = leaves(&answers[*at]);
            others.iter().any(|other| leaves(&other[*at]) != told)
        };
        let lacks = |at: &usize| !others.is_empty() && lacks_named(&wants[*at].1, &answers[*at]);
        let unequal: Vec<usize> = (0..wants.len()).filter(|at| differ(at) || lacks(at)).collect();
        for step in unequal.chunks(limits::DOCS_PER_FETCH) {
            let asked = step.iter().map(|at| wants[*at].clone()).collect();
            let united = self.unite((layout, range), &copies, asked).await?;
            for (at, fetched) in step.iter().zip(united) {
                let told = std::iter::once(&answers[*at]).chain(others.iter().map(|other| &other[*at]));
                agreed[*at] = told.filter(|told| leaves(told) == leaves(&fetched)).count();
                answers[*at] = fetched;
            }
        }
        Ok((answers, agreed))
    }

    /// As [`Database::ask_several`]; the first of them are copies that the handle's reads may be of, one at least.
    async fn ask_admitted(
        &self,
        at: (&Layout, usize),
        copies: &[RangeCopy],
        wants: &Wants,
        ask: usize,
    ) -> Result<Vec<Found>, ReadError> {
        if self.floor.is_none() {
            return self.ask_several(at, copies, wants, ask).await;
        }
        let admitted = self.admitted(at.0, at.1, copies.to_vec());
        let mut replies = self.ask_several(at, &admitted, wants, ask.min(admitted.len()).max(1)).await?;
        let is_other = |copy: &&RangeCopy| admitted.iter().all(|admitted| admitted.node() != copy.node());
        let others: Vec<RangeCopy> = copies.iter().filter(is_other).cloned().collect();
        let left = ask.saturating_sub(replies.len()).min(others.len());
        if left > 0 {
            let trees = wants.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
            match self.ask_several(at, &others, &trees, left).await {
                Ok(more) => replies.extend(more),
                Err(error) if error.is_moved() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(replies)
    }

    /// Replies of up to `ask` copies, that with the documents first. A copy that keeps its caller waiting is overtaken
    /// by the next one.
    async fn ask_several(
        &self,
        (layout, range): (&Layout, usize),
        copies: &[RangeCopy],
        wants: &Wants,
        ask: usize,
    ) -> Result<Vec<Found>, ReadError> {
        let trees: Wants = wants.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
        let mut failed = ShardError::NoCopy { copies: layout.placed.copies(range) };
        let mut running: FuturesUnordered<BoxFuture<'_, (usize, Result<Found, ShardError>)>> = FuturesUnordered::new();
        let start = |at: usize| -> BoxFuture<'_, (usize, Result<Found, ShardError>)> {
            let asked = if at == 0 { wants.clone() } else { trees.clone() };
            Box::pin(async move { (at, copies[at].fetch(asked).await) })
        };
        let (mut replies, mut next): (BTreeMap<usize, Found>, usize) = (BTreeMap::new(), 0);
        while replies.len() < ask {
            while running.len() + replies.len() < ask && next < copies.len() {
                running.push(start(next));
                next += 1;
            }
            tokio::select! {
                biased;
                reply = running.next() => match reply {
                    Some((at, Ok(found))) => drop(replies.insert(at, found)),
                    // What others tell by this map does not count.
                    Some((_, Err(error @ (ShardError::Dropped | ShardError::Moved)))) => return Err(error.into()),
                    Some((_, Err(error))) => failed = no_answer(failed, error),
                    None => break,
                },
                () = self.context.env.sleep(limits::READ_OVERTAKE), if next < copies.len() => {
                    running.push(start(next));
                    next += 1;
                }
            }
        }
        drop(running);
        if replies.is_empty() {
            return Err(failed.into());
        }
        if !replies.contains_key(&0) {
            let (at, found) = self.full_reply(copies, wants, replies.keys().copied().collect()).await?;
            replies.remove(&at);
            return Ok(std::iter::once(found).chain(replies.into_values()).collect());
        }
        Ok(replies.into_values().collect())
    }

    /// The documents from one of the copies that told their trees.
    async fn full_reply(
        &self,
        copies: &[RangeCopy],
        wants: &Wants,
        told: Vec<usize>,
    ) -> Result<(usize, Found), ReadError> {
        let mut failed = ShardError::NoCopy { copies: copies.len() };
        for at in told {
            match copies[at].fetch(wants.clone()).await {
                Ok(found) => return Ok((at, found)),
                Err(error) => failed = no_answer(failed, error),
            }
        }
        Err(failed.into())
    }

    /// Documents made of what all copies have of them.
    async fn unite(
        &self,
        (layout, range): (&Layout, usize),
        copies: &[RangeCopy],
        wants: Wants,
    ) -> Result<Found, ReadError> {
        let leaves: Wants = wants.iter().map(|(id, _)| (id.clone(), Want::Leaves)).collect();
        let replies = join_all(copies.iter().map(|copy| copy.fetch(leaves.clone()))).await;
        let replies: Vec<(&RangeCopy, Found)> =
            copies.iter().zip(replies).filter_map(|(copy, found)| Some((copy, found.ok()?))).collect();
        let replied = replies.iter().map(|(copy, _)| RangeCopy::clone(copy)).collect();
        if self.floor.is_some() && self.admitted(layout, range, replied).is_empty() {
            return Err(ShardError::NoCopy { copies: copies.len() }.into());
        }
        let mut out = Vec::with_capacity(wants.len());
        let mut repairs: BTreeMap<usize, Vec<Edit>> = BTreeMap::new();
        for (at, (id, want)) in wants.into_iter().enumerate() {
            let found: Vec<Option<&Fetched>> = replies.iter().map(|(_, found)| found[at].as_ref()).collect();
            let union = Union::of(&found, self.revs_limit());
            for (copy, edits) in union.repairs(&id, &found, self.revs_limit()) {
                repairs.entry(copy).or_default().extend(edits);
            }
            out.push(match union.tree.is_empty() {
                true => None,
                false => Some(self.pick(&replies, &id, &want, union).await),
            });
        }
        for (at, edits) in repairs {
            self.repair(range, replies[at].0, edits, replies.iter().map(|(copy, _)| *copy));
        }
        Ok(out)
    }

    /// What a read wanted, from the union; bodies that no leaf has are looked for on each copy.
    async fn pick(&self, replies: &[(&RangeCopy, Found)], id: &DocId, want: &Want, union: Union) -> Fetched {
        let mut found = Vec::new();
        for rev in shard::wanted(&union.tree, want) {
            let mut stored = union.bodies.get(&rev).cloned();
            for (copy, _) in replies {
                if stored.is_some() {
                    break;
                }
                let wants = vec![(id.clone(), Want::Revision(rev.clone()))];
                let answer = copy.fetch(wants).await.ok().and_then(|mut found| found.pop().flatten());
                stored = answer.and_then(|mut fetched| fetched.take_one());
            }
            found.push((rev, stored));
        }
        Fetched { tree: union.tree, local_seq: union.local_seq, found }
    }

    /// Sends leaves to a copy that lacks them, behind the answer. Their uploads come from the first other copy.
    fn repair<'a>(&self, range: usize, to: &RangeCopy, edits: Vec<Edit>, copies: impl Iterator<Item = &'a RangeCopy>) {
        let own = &self.context.node;
        let node = |copy: &RangeCopy| Arc::clone(copy.node().unwrap_or(own));
        let target = node(to);
        let Some(source) = copies.map(node).find(|node| *node != target) else { return };
        let (to, source) = (to.clone(), RemoteCopy::new(&self.target, range, &source));
        let (context, name) = (Arc::clone(&self.context), self.name.clone());
        self.context.env.spawn(async move {
            if let Err(error) = repair::merge_missing(&to, edits, &source, Origin::Anywhere).await {
                tracing::debug!(%error, "a copy was not repaired by a read");
                context.missed(&name);
            }
        });
    }
}

/// Whether a revision that is wanted by its name was not found.
fn lacks_named(want: &Want, fetched: &Option<Fetched>) -> bool {
    let is_named = matches!(want, Want::Revision(_) | Want::Revisions { .. });
    is_named && fetched.as_ref().is_none_or(|fetched| fetched.found.iter().any(|(_, stored)| stored.is_none()))
}

/// The leaves of a document, best first; none for an unknown one.
fn leaves(fetched: &Option<Fetched>) -> Vec<Revision> {
    fetched.iter().flat_map(|fetched| fetched.tree.leaves()).map(|leaf| leaf.rev).collect()
}

/// What all copies together have of a document.
struct Union {
    tree: RevTree<RevData>,
    bodies: BTreeMap<Revision, StoredRevision>,
    local_seq: u64,
}

impl Union {
    fn of(found: &[Option<&Fetched>], revs_limit: u64) -> Union {
        let mut union = Union { tree: RevTree::new(), bodies: BTreeMap::new(), local_seq: 0 };
        for fetched in found.iter().flatten() {
            if union.local_seq == 0 {
                union.local_seq = fetched.local_seq;
            }
            union.tree.unite(&fetched.tree);
            let bodies = fetched.found.iter().filter_map(|(rev, stored)| Some((rev.clone(), stored.clone()?)));
            union.bodies.extend(bodies);
        }
        // As each copy does when it takes in what it lacks.
        union.tree.stem(revs_limit);
        union
    }

    /// For each copy that lacks leaves of the union: what it must merge.
    fn repairs(&self, id: &DocId, found: &[Option<&Fetched>], revs_limit: u64) -> Vec<(usize, Vec<Edit>)> {
        let wanted: Vec<Revision> = self.tree.leaves().into_iter().map(|leaf| leaf.rev).collect();
        let mut out = Vec::new();
        for (at, fetched) in found.iter().enumerate() {
            let has = |rev: &Revision| fetched.is_some_and(|f| f.tree.get(rev).is_some_and(|data| data.is_some()));
            let edits: Vec<Edit> =
                wanted.iter().filter(|rev| !has(rev)).filter_map(|rev| self.edit(id, rev, revs_limit)).collect();
            if !edits.is_empty() {
                out.push((at, edits));
            }
        }
        out
    }

    /// A leaf as an edit that merges it; `None` when its body is not to be had or damaged.
    fn edit(&self, id: &DocId, rev: &Revision, revs_limit: u64) -> Option<Edit> {
        let (stored, path) = (self.bodies.get(rev)?, self.tree.path_to(rev)?);
        let deleted = self.tree.get(rev).flatten()?.is_deleted();
        merge_of_stored(id, path, deleted, stored, revs_limit)
    }
}

/// A stored revision as an edit that merges it into another copy; `None` when its body is damaged.
pub(super) fn merge_of_stored(
    id: &DocId,
    path: crate::document::rev_tree::RevPath,
    deleted: bool,
    stored: &StoredRevision,
    revs_limit: u64,
) -> Option<Edit> {
    Some(Edit {
        id: id.clone(),
        op: EditOp::Merge { path },
        deleted,
        body: Arc::new(PreparedBody::from_text(stored.body.clone()).ok()?),
        attachments: stored.attachments.iter().cloned().map(EditAttachment::New).collect(),
        revs_limit,
    })
}
