//! Quorum reads of documents, and read repair of replicas that lack something.
//!
//! One replica is asked for the documents, the others for their revision trees. If the leaves agree, the first answer
//! stands. If they do not, all replicas in reach are asked for their leaves; the answer is made of the union, and
//! replicas that lack a leaf get it after the answer. Leaves that a replica has purged do not come back that way. The
//! same holds for a revision that is named and not found, because a feed may have listed it from a replica that was not
//! asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use crate::coordinator::read::Documents;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::repair::{self, Origin};
use crate::coordinator::replica::replicas::no_answer;
use crate::coordinator::topology::error::{MayHaveMoved as _, ReadError};
use crate::coordinator::topology::quorum::replicas_to_ask;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::document::rev_tree::{RevPath, RevTree};
use crate::document::revision::Revision;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::shard::{self, Edit, EditAttachment, EditOp, Fetched, RevData, ShardError, Want};
use crate::world::{BoxFuture, cost};

type Wants = Vec<(DocId, Want)>;
type Found = Vec<Option<Fetched>>;

impl Documents<'_> {
    /// Reads documents of one range from `r` replicas; tells for each how many replicas have it just so, too.
    pub(in crate::coordinator) async fn fetch_counted(
        self,
        (layout, range): (&Layout, usize),
        wants: Wants,
        r: Option<u32>,
    ) -> Result<(Found, Vec<usize>), ReadError> {
        self.fetch_range((layout, range), wants, r, usize::MAX).await
    }

    /// As [`Documents::fetch_counted`], of the first documents as many as have about so many bytes; perhaps none.
    pub(in crate::coordinator) async fn fetch_range(
        self,
        (layout, range): (&Layout, usize),
        wants: Wants,
        r: Option<u32>,
        most: usize,
    ) -> Result<(Found, Vec<usize>), ReadError> {
        cost::read(1, wants.len());
        let replicas = self.replicas().all_readers(layout, range).await?;
        if layout.is_alone(range) {
            let replica = replicas.first().ok_or(ShardError::NoReplica { replicas: 1 })?;
            let found = replica.fetch_first(&wants, most).await?;
            let agreed = vec![1; found.len()];
            return Ok((found, agreed));
        }
        let ask = replicas_to_ask(r, layout.placed.replicas(range));
        let replies = self.ask_admitted((layout, range), &replicas, (&wants, most), ask).await?;
        self.check_quorum(replies.len(), ask)?;
        let mut others = replies.into_iter();
        // Invariant: without any reply the call above fails.
        let mut answers = others.next().expect("a reply");
        let others: Vec<Found> = others.collect();
        let mut agreed = vec![1 + others.len(); answers.len()];
        let differ = |at: &usize| {
            let told = leaves(&answers[*at]);
            others.iter().any(|other| leaves(&other[*at]) != told)
        };
        let lacks = |at: &usize| !others.is_empty() && lacks_named(&wants[*at].1, &answers[*at]);
        let unequal: Vec<usize> = (0..answers.len()).filter(|at| differ(at) || lacks(at)).collect();
        for step in unequal.chunks(limits::DOCS_PER_FETCH) {
            let asked = step.iter().map(|at| wants[*at].clone()).collect();
            let united = self.unite((layout, range), &replicas, asked, most).await?;
            let cut = step.get(united.len()).copied();
            for (at, fetched) in step.iter().zip(united) {
                let told = std::iter::once(&answers[*at]).chain(others.iter().map(|other| &other[*at]));
                agreed[*at] = told.filter(|told| leaves(told) == leaves(&fetched)).count();
                answers[*at] = fetched;
            }
            if let Some(cut) = cut {
                answers.truncate(cut);
                agreed.truncate(cut);
                break;
            }
        }
        Ok((answers, agreed))
    }

    /// As [`Documents::ask_several`]; the first of them are replicas that the handle's reads may be of, one at least.
    async fn ask_admitted(
        self,
        at: (&Layout, usize),
        replicas: &[RangeReplica],
        (wants, most): (&Wants, usize),
        ask: usize,
    ) -> Result<Vec<Found>, ReadError> {
        if self.floor.is_none() {
            return self.ask_several(at, replicas, (wants, most), ask).await;
        }
        let admitted = self.admitted(at.0, at.1, replicas.to_vec());
        let mut replies = self.ask_several(at, &admitted, (wants, most), ask.min(admitted.len()).max(1)).await?;
        let is_other = |replica: &&RangeReplica| admitted.iter().all(|admitted| admitted.node() != replica.node());
        let others: Vec<RangeReplica> = replicas.iter().filter(is_other).cloned().collect();
        let left = ask.saturating_sub(replies.len()).min(others.len());
        if left > 0 {
            let trees = wants.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
            match self.ask_several(at, &others, (&trees, usize::MAX), left).await {
                Ok(more) => replies.extend(more),
                Err(error) if error.is_moved() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(replies)
    }

    /// Replies of up to `ask` replicas, that with the documents first. A replica that keeps its caller waiting is
    /// overtaken by the next one.
    async fn ask_several(
        self,
        (layout, range): (&Layout, usize),
        replicas: &[RangeReplica],
        (wants, most): (&Wants, usize),
        ask: usize,
    ) -> Result<Vec<Found>, ReadError> {
        let trees: Wants = wants.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
        let mut failed = ShardError::NoReplica { replicas: layout.placed.replicas(range) };
        let mut running: FuturesUnordered<BoxFuture<'_, (usize, Result<Found, ShardError>)>> = FuturesUnordered::new();
        let start = |at: usize| -> BoxFuture<'_, (usize, Result<Found, ShardError>)> {
            let trees = trees.clone();
            Box::pin(async move {
                let timed = self.context.paces.time(&self.context.env, replicas[at].node());
                let found = match at {
                    0 => replicas[at].fetch_first(wants, most).await,
                    _ => replicas[at].fetch(trees).await,
                };
                timed.ended(found.is_ok());
                (at, found)
            })
        };
        let (mut replies, mut next): (BTreeMap<usize, Found>, usize) = (BTreeMap::new(), 0);
        while replies.len() < ask {
            while running.len() + replies.len() < ask && next < replicas.len() {
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
                () = self.context.env.sleep(limits::READ_OVERTAKE), if next < replicas.len() => {
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
            let (at, found) = self.full_reply(replicas, (wants, most), replies.keys().copied().collect()).await?;
            replies.remove(&at);
            return Ok(std::iter::once(found).chain(replies.into_values()).collect());
        }
        Ok(replies.into_values().collect())
    }

    /// The documents from one of the replicas that told their trees.
    async fn full_reply(
        self,
        replicas: &[RangeReplica],
        (wants, most): (&Wants, usize),
        told: Vec<usize>,
    ) -> Result<(usize, Found), ReadError> {
        let mut failed = ShardError::NoReplica { replicas: replicas.len() };
        for at in told {
            match replicas[at].fetch_first(wants, most).await {
                Ok(found) => return Ok((at, found)),
                Err(error) => failed = no_answer(failed, error),
            }
        }
        Err(failed.into())
    }

    /// Documents made of what all replicas have of them: the first ones, one at least, until they have so many bytes.
    async fn unite(
        self,
        (layout, range): (&Layout, usize),
        replicas: &[RangeReplica],
        wants: Wants,
        most: usize,
    ) -> Result<Found, ReadError> {
        let trees: Wants = wants.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
        let replies = join_all(replicas.iter().map(|replica| replica.fetch(trees.clone()))).await;
        let replies: Vec<(&RangeReplica, Found)> =
            replicas.iter().zip(replies).filter_map(|(replica, found)| Some((replica, found.ok()?))).collect();
        let replied = replies.iter().map(|(replica, _)| RangeReplica::clone(replica)).collect();
        if self.floor.is_some() && self.admitted(layout, range, replied).is_empty() {
            return Err(ShardError::NoReplica { replicas: replicas.len() }.into());
        }
        let (mut out, mut bytes): (Found, usize) = (Vec::with_capacity(wants.len()), 0);
        let mut lacks: BTreeMap<usize, Vec<Lack>> = BTreeMap::new();
        for (at, (id, want)) in wants.into_iter().enumerate() {
            if bytes > most {
                break;
            }
            let told: Vec<(&RangeReplica, Option<&Fetched>)> =
                replies.iter().map(|(replica, found)| (*replica, found[at].as_ref())).collect();
            let union = Union::of(&told, self.revs_limit());
            for (replica, lack) in union.lacks(&id, &told) {
                lacks.entry(replica).or_default().extend(lack);
            }
            let fetched = match union.tree.is_empty() {
                true => None,
                false => Some(pick(&told, &id, &want, union).await),
            };
            bytes += fetched.as_ref().map_or(0, Fetched::bytes);
            out.push(fetched);
        }
        for (at, lack) in lacks {
            self.repair(range, replies[at].0, lack);
        }
        Ok(out)
    }

    /// Sends leaves to a replica that lacks them, behind the answer, one after the other: each is read when it is its
    /// turn, within the bytes that all pulls share. Their uploads come from where they are read.
    fn repair(self, range: usize, to: &RangeReplica, lacks: Vec<Lack>) {
        let (context, name, target) = (Arc::clone(&self.context), self.name.clone(), Arc::clone(&self.target));
        let (to, revs_limit) = (to.clone(), self.revs_limit());
        self.context.env.spawn(async move {
            for Lack { id, path, data, from } in lacks {
                let (rev, node) = (path.head(), Arc::clone(from.node().unwrap_or(&context.node)));
                let bytes = usize::try_from(data.external).unwrap_or(usize::MAX);
                let _held = context.budgets.pulled.take(bytes.saturating_mul(limits::PULL_MEMORY_FACTOR)).await;
                let Some(stored) = body_of(&from, &id, &rev).await else { continue };
                let edits = merge_of_stored(&id, path, data.deleted, &stored, revs_limit).into_iter().collect();
                let source = RemoteReplica::new(&target, range, &node);
                let done = repair::merge_missing(&to, edits, &source, Origin::Anywhere).await;
                let counter = if done.is_ok() { Counter::RepairsMade } else { Counter::RepairsFailed };
                context.env.metrics().count(counter);
                if let Err(error) = done {
                    tracing::debug!(%error, "a replica was not repaired by a read");
                    context.lagging(&name);
                }
            }
        });
    }
}

/// Whether a revision that is wanted by its name was not found.
fn lacks_named(want: &Want, fetched: &Option<Fetched>) -> bool {
    let is_named = matches!(want, Want::Revision(_) | Want::Revisions { .. });
    is_named && fetched.as_ref().is_none_or(|fetched| fetched.found.iter().any(|(_, stored)| stored.is_none()))
}

/// A revision as a replica has it; `None` where it cannot be had.
async fn body_of(replica: &RangeReplica, id: &DocId, rev: &Revision) -> Option<StoredRevision> {
    let answer = replica.fetch(vec![(id.clone(), Want::Revision(rev.clone()))]).await;
    answer.ok()?.pop().flatten()?.take_one()
}

/// What a read wanted, from the union: each revision from a replica that has it.
async fn pick(told: &[(&RangeReplica, Option<&Fetched>)], id: &DocId, want: &Want, union: Union) -> Fetched {
    let mut found = Vec::new();
    for rev in shard::wanted(&union.tree, want) {
        let mut stored = None;
        // Those that tell of its text first: another one may have got it since.
        let (have, others): (Vec<_>, Vec<_>) = told.iter().partition(|(_, fetched)| has_text(*fetched, &rev));
        for (replica, _) in have.into_iter().chain(others) {
            stored = body_of(replica, id, &rev).await;
            if stored.is_some() {
                break;
            }
        }
        found.push((rev, stored));
    }
    Fetched { tree: union.tree, local_seq: union.local_seq, found }
}

fn has_text(fetched: Option<&Fetched>, rev: &Revision) -> bool {
    fetched.is_some_and(|fetched| fetched.tree.get(rev).flatten().is_some_and(RevData::is_available))
}

/// A leaf that a replica lacks.
struct Lack {
    id: DocId,
    path: RevPath,
    data: RevData,
    /// The replica that has it.
    from: RangeReplica,
}

/// The leaves of a document, best first; none for an unknown one.
fn leaves(fetched: &Option<Fetched>) -> Vec<Revision> {
    fetched.iter().flat_map(|fetched| fetched.tree.leaves()).map(|leaf| leaf.rev).collect()
}

/// The revisions that all replicas together have of a document.
struct Union {
    tree: RevTree<RevData>,
    local_seq: u64,
}

impl Union {
    fn of(told: &[(&RangeReplica, Option<&Fetched>)], revs_limit: u64) -> Union {
        let mut union = Union { tree: RevTree::new(), local_seq: 0 };
        for fetched in told.iter().filter_map(|(_, fetched)| *fetched) {
            if union.local_seq == 0 {
                union.local_seq = fetched.local_seq;
            }
            union.tree.unite(&fetched.tree);
        }
        // As each replica does when it applies what it lacks.
        union.tree.stem(revs_limit);
        union
    }

    /// For each replica that lacks leaves of the union: those that another one has.
    fn lacks(&self, id: &DocId, told: &[(&RangeReplica, Option<&Fetched>)]) -> Vec<(usize, Vec<Lack>)> {
        let leaves = self.tree.leaves();
        let mut out = Vec::new();
        for (at, (_, fetched)) in told.iter().enumerate() {
            let has = |rev: &Revision| fetched.is_some_and(|f| f.tree.get(rev).is_some_and(|data| data.is_some()));
            let lack = |rev: &Revision| {
                let (from, source) = told.iter().find(|(_, fetched)| has_text(*fetched, rev))?;
                let data = *(*source)?.tree.get(rev).flatten()?;
                Some(Lack { id: id.clone(), path: self.tree.path_to(rev)?, data, from: (*from).clone() })
            };
            let lacks: Vec<Lack> =
                leaves.iter().filter(|leaf| !has(&leaf.rev)).filter_map(|leaf| lack(&leaf.rev)).collect();
            if !lacks.is_empty() {
                out.push((at, lacks));
            }
        }
        out
    }
}

/// A stored revision as an edit that merges it into another replica; `None` when its body is damaged.
pub(in crate::coordinator) fn merge_of_stored(
    id: &DocId,
    path: RevPath,
    deleted: bool,
    stored: &StoredRevision,
    revs_limit: u64,
) -> Option<Edit> {
    Some(Edit {
        id: id.clone(),
        op: EditOp::Merge { path },
        deleted,
        body: Arc::new(PreparedBody::of_known_revision(stored.body.clone()).ok()?),
        attachments: stored.attachments.iter().cloned().map(EditAttachment::New).collect(),
        revs_limit,
    })
}
