//! Discard of stale revisions: revisions of a replica that was restored from an old backup which every witness lacks.
//!
//! A witness is another replica of the range that knows what was removed meanwhile. Two kinds of removal lead here:
//! purges of which no record is left (`restored`), and collected tombstones (`collection_horizon`). They differ in what
//! makes a replica a witness, in which revisions are old enough to be stale, and in how a revision is dropped.

use std::ops::Bound;
use std::sync::Arc;

use crate::coordinator::anti_entropy::pull::away;
use crate::coordinator::replica::calls::Status;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::message::Soundness;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{DocumentDigest, ShardError, Want};

/// Revisions of one document.
pub(in crate::coordinator) type Revisions = (DocId, Vec<Revision>);

/// One kind of removal: what may be stale, and how it is dropped.
pub(in crate::coordinator) trait Stale {
    /// The revisions of a page of documents that are old enough to be stale.
    fn candidates(&self, page: Vec<DocumentDigest>) -> impl Future<Output = Result<Vec<Revisions>, ShardError>> + Send;

    /// Drops revisions that every witness lacks.
    fn discard(&self, lacked: Vec<Revisions>) -> impl Future<Output = Result<(), ShardError>> + Send;
}

/// Drops what every witness lacks of the candidates among all documents of a replica.
pub(in crate::coordinator) async fn discard_stale(
    own: &OwnReplica,
    witnesses: &[RemoteReplica],
    stale: &impl Stale,
) -> Result<(), ShardError> {
    let mut start = Bound::Unbounded;
    loop {
        let page = own.shard.digests(start, Bound::Unbounded, limits::PAGE_ROWS).await?;
        let Some(last) = page.last() else { return Ok(()) };
        start = Bound::Excluded(last.id.clone());
        let mut lacked = stale.candidates(page).await?;
        for witness in witnesses {
            for some in lacked.chunks_mut(limits::DOCS_PER_FETCH) {
                let wants = some.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
                for ((_, revs), fetched) in some.iter_mut().zip(witness.fetch(wants).await?) {
                    let tree = fetched.map(|fetched| fetched.tree).unwrap_or_default();
                    revs.retain(|rev| tree.get(rev).is_none());
                }
            }
        }
        lacked.retain(|(_, revs)| !revs.is_empty());
        if !lacked.is_empty() {
            stale.discard(lacked).await?;
        }
    }
}

/// What a replica says of a removal.
pub(in crate::coordinator) enum Testimony {
    /// It knows what was removed.
    Knows(RemoteReplica),
    /// It missed the removal, too, so what it holds proves nothing.
    Missed,
}

/// The witnesses among the replicas of a range on `nodes`. A damaged one is a witness only if there is no other: it is
/// rebuilt once this replica is in sync.
///
/// # Errors
/// One that is out of reach may hold what the others never had (`waits`); there may be no witness (`none`).
pub(in crate::coordinator) async fn witnesses<F>(
    (database, range): (&Arc<Database>, usize),
    nodes: impl IntoIterator<Item = Arc<str>>,
    (waits, none): (&'static str, &'static str),
    ask: impl Fn(RemoteReplica) -> F,
) -> Result<Vec<RemoteReplica>, ShardError>
where
    F: Future<Output = Result<Testimony, ShardError>>,
{
    let (mut whole, mut damaged) = (Vec::new(), Vec::new());
    for node in nodes {
        if database.context.is_gone(&node) {
            continue;
        }
        if database.context.rank(&node).is_none() {
            return Err(away(waits));
        }
        let remote = RemoteReplica::new(&database.target, range, &node).in_background();
        let soundness = remote.ask(Status).await?.soundness;
        if soundness == Some(Soundness::Unusable) {
            continue;
        }
        match ask(remote).await? {
            Testimony::Knows(witness) if soundness == Some(Soundness::Damaged) => damaged.push(witness),
            Testimony::Knows(witness) => whole.push(witness),
            Testimony::Missed => {}
        }
    }
    if whole.is_empty() {
        whole = damaged;
    }
    if whole.is_empty() { Err(away(none)) } else { Ok(whole) }
}
