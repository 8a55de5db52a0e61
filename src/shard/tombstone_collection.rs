//! Tombstone collection on one replica: the state that it keeps, by the rules of `collection_horizon.rs`.
//!
//! The collection log is one small value of the shard. A tombstone is removed with its history in the commit that marks
//! its round as done; the purge log gets an entry without revisions, so that indexes and child shards read the document
//! again. A collected tombstone leaves a collection marker with its path, until all other replicas have collected it,
//! too: a write of the document builds on that path. The header counts how often anything was collected, so that a
//! shard that never collected anything reads nothing more than before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::collection_horizon::{CollectionLog, Horizon, Proposal, Round};
use super::edit::purge_document;
use super::keys::{self, Kind};
use super::purge::put_on_record;
use super::record::Header;
use super::record::PurgeRecord;
use super::transaction::Transaction;
use super::{RevPath, Revision, ShardError, ShardId, ShardReplica, Want};
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue as _;
use crate::limits;
use crate::storage::{Direction, StorageError, View, WriteView};
use crate::wire::message_pack::{self, encode};

/// A tombstone that is the only leaf of its document.
pub type Tombstone = (DocId, Revision);

/// What a replica tells of its collection log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionLogState {
    /// The rounds that it has done.
    pub done: Horizon,
    /// Those, and the rounds that it has written down.
    pub promised: Horizon,
}

/// How far a replica has collected, of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The rounds that it has done.
    pub horizon: Horizon,
    /// How often anything was collected.
    pub rounds: u64,
}

/// What became of a proposal at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProposalOutcome {
    /// It is written down.
    Done,
    /// Some tombstone is not old enough here: who reads this replica may not have seen it yet.
    NotOldEnough,
    /// This replica takes no part, or it is not the next round, or a tombstone is not known here.
    Refused,
}

/// The value of the shard that holds it.
const NAME: &[u8] = b"horizon";
/// The value that holds what is told of it: asked for with every call between replicas that collected something.
const TOLD: &[u8] = b"horizon told";
/// The value that tells what was applied from other replicas before all of them were met.
const APPLIED_EARLY: &[u8] = b"taken in early";

/// What is stored of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stored {
    #[serde(rename = "ledger")]
    collection_log: CollectionLog<Tombstone>,
    /// What was collected here and may not be everywhere.
    batches: Vec<Batch>,
}

/// Collection markers of one commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Batch {
    /// Names it: `Header::rounds` with it.
    number: u64,
    /// The collection horizon with these.
    horizon: Horizon,
    /// The nodes whose replicas were applied since they collected these.
    taken: BTreeSet<String>,
    ids: Vec<DocId>,
}

/// A document that was collected.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Marker {
    batch: u64,
    path: RevPath,
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StorageError> {
    message_pack::decode(bytes).map_err(|why| StorageError::Corrupt(format!("what was forgotten: {why}")))
}

fn marker_key(shard: ShardId, id: &DocId) -> Vec<u8> {
    keys::key(shard, Kind::Marker, id.as_str().as_bytes())
}

/// Reads one, to see whether that can be done.
pub(super) fn decode_marker(bytes: &[u8]) -> Result<(), StorageError> {
    decode::<Marker>(bytes).map(drop)
}

impl Stored {
    fn read(view: &dyn View, shard: ShardId) -> Result<Stored, StorageError> {
        let stored = view.get(&keys::key(shard, Kind::Meta, NAME))?;
        Ok(stored.map(|bytes| decode(&bytes)).transpose()?.unwrap_or_default())
    }

    fn write(&self, view: &mut WriteView<'_>, shard: ShardId) {
        view.put(keys::key(shard, Kind::Meta, NAME), encode(self));
        view.put(keys::key(shard, Kind::Meta, TOLD), encode(&self.told()));
    }

    fn told(&self) -> CollectionLogState {
        CollectionLogState { done: self.collection_log.horizon.clone(), promised: self.collection_log.promised() }
    }
}

impl ShardReplica {
    /// What the replica has done and written down.
    pub async fn told(&self) -> Result<CollectionLogState, ShardError> {
        let stored = |view: &dyn View, shard| view.get(&keys::key(shard, Kind::Meta, TOLD));
        let stored = self.read(stored).await?;
        Ok(stored.map(|bytes| decode(&bytes)).transpose()?.unwrap_or_default())
    }

    /// How many purges there were, and how often anything was collected.
    pub async fn purged_and_collected(&self) -> Result<(u64, u64), ShardError> {
        let header = self.read(Header::read).await?;
        Ok((header.purge_seq, header.rounds))
    }

    /// What would become of a proposal of these tombstones, as far as what is known of them here tells.
    pub async fn expects(&self, tombstones: &[Tombstone], aged: u64) -> Result<ProposalOutcome, ShardError> {
        for page in tombstones.chunks(limits::STEP_ROWS) {
            let wants = page.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
            for ((_, rev), fetched) in page.iter().zip(self.fetch(wants).await?) {
                match fetched {
                    Some(fetched) if fetched.tree.get(rev).is_some() && fetched.local_seq <= aged => {}
                    Some(fetched) if fetched.tree.get(rev).is_some() => return Ok(ProposalOutcome::NotOldEnough),
                    _ => return Ok(ProposalOutcome::Refused),
                }
            }
        }
        Ok(ProposalOutcome::Done)
    }

    /// Writes a proposal down; durable on return. Tombstones behind the sequence `aged` are not old enough.
    pub async fn propose(
        &self,
        by: &str,
        proposal: Proposal<Tombstone>,
        aged: u64,
    ) -> Result<ProposalOutcome, ShardError> {
        // Before it is written down: what is known here stays so, unless it is collected or purged.
        let expected = self.expects(&proposal.tombstones, aged).await?;
        if expected != ProposalOutcome::Done {
            return Ok(expected);
        }
        self.0.storage.refuse_older().await?;
        let by = by.to_owned();
        self.change(move |transaction, _| {
            let mut kept = Stored::read(transaction.view, transaction.shard)?;
            let proposal =
                Proposal { body: transaction.header.last_body, ..Proposal::new(proposal.round, proposal.tombstones) };
            if !kept.collection_log.propose(&by, proposal) {
                return Ok(ProposalOutcome::Refused);
            }
            kept.write(transaction.view, transaction.shard);
            // From here on replicas tell each other what they have collected before they read each other.
            transaction.header.rounds = transaction.header.rounds.max(1);
            Ok(ProposalOutcome::Done)
        })
        .await
    }

    /// Notes that all replicas have written a round down; durable on return. False where it does not stand here.
    pub async fn confirm_round(&self, by: &str, round: Round) -> Result<bool, ShardError> {
        let by = by.to_owned();
        self.change_collection_log(move |collection_log| collection_log.confirm(&by, round)).await
    }

    /// The rounds that all replicas have written down, as far as known here, with those of `done`; and whether it was
    /// not known before of some of these that all have, or that they are done.
    pub async fn confirmed(&self, done: &Horizon) -> Result<(BTreeSet<Round>, bool), ShardError> {
        let mut collection_log = self.read(Stored::read).await?.collection_log;
        let is_news = collection_log.confirm_done(done);
        let confirmed = collection_log.confirmed();
        if is_news {
            let done = done.clone();
            self.change_collection_log(move |collection_log| collection_log.confirm_done(&done)).await?;
        }
        Ok((confirmed, is_news))
    }

    /// Notes that the replica of a node was read from beginning to end since all had written down these rounds.
    pub async fn note_read(&self, node: &str, rounds: BTreeSet<Round>) -> Result<(), ShardError> {
        let mut collection_log = self.read(Stored::read).await?.collection_log;
        let before = collection_log.clone();
        collection_log.note_read(node, &rounds);
        if collection_log == before {
            return Ok(());
        }
        let node = node.to_owned();
        self.change_collection_log(move |collection_log| collection_log.note_read(&node, &rounds)).await
    }

    /// What is written down here and not done, by proposer.
    pub async fn open_proposals(&self) -> Result<Vec<(String, Proposal<Tombstone>)>, ShardError> {
        let open = self.read(Stored::read).await?.collection_log.open().clone();
        Ok(open.into_iter().collect())
    }

    /// Writes down what another replica has written down, which was applied, as far as the tombstones are known here.
    pub async fn take_over(&self, proposals: Vec<(String, Proposal<Tombstone>)>) -> Result<(), ShardError> {
        self.0.storage.refuse_older().await?;
        self.change(move |transaction, _| {
            let mut kept = Stored::read(transaction.view, transaction.shard)?;
            for (by, proposal) in proposals {
                let mut knows_all = true;
                for (id, rev) in &proposal.tombstones {
                    knows_all &= transaction.load(id)?.tree.get(rev).is_some();
                }
                if knows_all {
                    let body = transaction.header.last_body;
                    let own = Proposal { body, ..Proposal::new(proposal.round, proposal.tombstones) };
                    kept.collection_log.take_over(&by, own);
                }
            }
            kept.write(transaction.view, transaction.shard);
            transaction.header.rounds = transaction.header.rounds.max(1);
            Ok(())
        })
        .await
    }

    async fn change_collection_log<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut CollectionLog<Tombstone>) -> T + Send + 'static,
    ) -> Result<T, ShardError> {
        let shard = self.id();
        self.write(move |view| {
            let mut kept = Stored::read(view, shard)?;
            let out = work(&mut kept.collection_log);
            kept.write(view, shard);
            Ok(out)
        })
        .await
    }

    /// Collects what was written down here of the rounds of `done`, and of those that are known to be done elsewhere,
    /// as far as the replicas of all `others` were read since all wrote that down; durable on return. Answers how far
    /// the replica has collected then.
    pub async fn collect(&self, done: &Horizon, others: &[String]) -> Result<Collected, ShardError> {
        loop {
            let stands =
                move |view: &dyn View, shard| Ok((Stored::read(view, shard)?, Header::read(view, shard)?.rounds));
            let (mut kept, rounds) = self.read(stands).await?;
            if kept.collection_log.ready(done, others).is_none() {
                return Ok(Collected { horizon: kept.collection_log.horizon, rounds });
            }
            let (done, others) = (done.clone(), others.to_vec());
            self.change_kept(move |transaction, kept| collect_some(transaction, kept, &done, &others)).await?;
        }
    }

    /// Drops leaves that no other replica has any more.
    pub async fn drop_leaves(&self, leaves: Vec<Tombstone>) -> Result<(), ShardError> {
        let drop_all = move |transaction: &mut Transaction<'_, '_>, _: &mut Stored| {
            leaves.iter().try_for_each(|(id, rev)| drop_leaf(transaction, id, rev, None).map(drop))
        };
        self.change_kept(drop_all).await.map(drop)
    }

    /// Counts rounds as done of which nothing is here any more.
    pub async fn adopt(&self, done: &Horizon) -> Result<Collected, ShardError> {
        let done = done.clone();
        self.change_kept(move |_, kept| {
            kept.collection_log.adopt(&done);
            Ok(())
        })
        .await
    }

    async fn change_kept(
        &self,
        work: impl FnOnce(&mut Transaction<'_, '_>, &mut Stored) -> Result<(), StorageError> + Send + 'static,
    ) -> Result<Collected, ShardError> {
        self.0.storage.refuse_older().await?;
        self.change(move |transaction, _| {
            let mut kept = Stored::read(transaction.view, transaction.shard)?;
            work(transaction, &mut kept)?;
            transaction.header.rounds += 1;
            kept.write(transaction.view, transaction.shard);
            Ok(Collected { horizon: kept.collection_log.horizon, rounds: transaction.header.rounds })
        })
        .await
    }

    /// Documents behind one of which a collection marker is kept, with the paths of their tombstones.
    pub async fn markers(&self, after: Option<DocId>, limit: usize) -> Result<Vec<(DocId, RevPath)>, ShardError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.read(move |view, shard| {
            let mut out: Vec<(DocId, RevPath)> = Vec::new();
            let mut failed = Ok(());
            view.scan(
                &keys::ids(shard, Kind::Marker, &from, &Bound::Unbounded),
                Direction::Forward,
                &mut |key, value| {
                    match (keys::id_of(key), decode::<Marker>(value)) {
                        (Ok(id), Ok(marker)) => out.push((id, marker.path)),
                        (Err(error), _) | (_, Err(error)) => failed = Err(error),
                    }
                    if out.len() < limit && failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                },
            )?;
            failed.map(|()| out)
        })
        .await
    }

    /// Keeps collection markers of another replica, of documents that are not here: all that `horizon` covers may not
    /// be collected everywhere.
    pub async fn keep_markers(&self, horizon: &Horizon, markers: Vec<(DocId, RevPath)>) -> Result<(), ShardError> {
        let horizon = horizon.clone();
        self.change_kept(move |transaction, kept| {
            let number = transaction.header.rounds + 1;
            let mut ids = Vec::new();
            for (id, path) in markers {
                let key = marker_key(transaction.shard, &id);
                if transaction.load(&id)?.tree.is_empty() && transaction.view.get(&key)?.is_none() {
                    transaction.header.markers += 1;
                    transaction.view.put(key, encode(&Marker { batch: number, path }));
                    ids.push(id);
                }
            }
            if !ids.is_empty() {
                kept.batches.push(Batch { number, horizon, taken: BTreeSet::new(), ids });
            }
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Notes that all of the replica of `node` was applied, which had collected `theirs` by then. Collection markers go
    /// that all of `others` were applied behind.
    pub async fn note_taken(&self, node: &str, theirs: &Horizon, others: Vec<String>) -> Result<(), ShardError> {
        let is_open = |batch: &Batch, others: &[String]| others.iter().any(|other| !batch.taken.contains(other));
        let kept = self.read(Stored::read).await?;
        let is_news = |batch: &Batch| theirs.covers(&batch.horizon) && !batch.taken.contains(node);
        if !kept.batches.iter().any(|batch| is_news(batch) || !is_open(batch, &others)) {
            return Ok(());
        }
        let (node, theirs) = (node.to_owned(), theirs.clone());
        self.change(move |transaction, _| {
            let mut kept = Stored::read(transaction.view, transaction.shard)?;
            for batch in kept.batches.iter_mut().filter(|batch| theirs.covers(&batch.horizon)) {
                batch.taken.insert(node.clone());
            }
            let is_open = |batch: &Batch| is_open(batch, &others);
            let (open, over): (Vec<Batch>, Vec<Batch>) = kept.batches.into_iter().partition(is_open);
            kept.batches = open;
            for batch in over {
                batch.ids.iter().try_for_each(|id| drop_marker(transaction, id, batch.number))?;
            }
            kept.write(transaction.view, transaction.shard);
            Ok(())
        })
        .await
    }
}

/// Collects some tombstones of one round; it is done with the last of them.
fn collect_some(
    transaction: &mut Transaction<'_, '_>,
    kept: &mut Stored,
    done: &Horizon,
    others: &[String],
) -> Result<(), StorageError> {
    let Some((by, proposal)) = kept.collection_log.ready(done, others) else { return Ok(()) };
    let (round, body) = (proposal.round, proposal.body);
    let left = proposal.tombstones.len().saturating_sub(limits::COLLECTION_STEP);
    let tombstones = proposal.tombstones.split_off(left);
    let number = transaction.header.rounds + 1;
    let mut ids = Vec::new();
    for (id, rev) in tombstones {
        if let Some(path) = drop_leaf(transaction, &id, &rev, Some(body))? {
            let is_new = transaction.view.get(&marker_key(transaction.shard, &id))?.is_none();
            transaction.header.markers += u64::from(is_new);
            let marker = encode(&Marker { batch: number, path });
            transaction.view.put(marker_key(transaction.shard, &id), marker);
            ids.push(id);
        }
    }
    if !ids.is_empty() {
        let horizon = kept.collection_log.horizon.with(&by, round);
        kept.batches.push(Batch { number, horizon, taken: BTreeSet::new(), ids });
    }
    if left == 0 {
        kept.collection_log.finish(&by);
    }
    Ok(())
}

/// Takes a leaf out of a document with the history that only it has; answers its path. Nothing where it is none, or no
/// tombstone that was stored up to a body, if it is to be one.
fn drop_leaf(
    transaction: &mut Transaction<'_, '_>,
    id: &DocId,
    rev: &Revision,
    buried_by: Option<u64>,
) -> Result<Option<RevPath>, StorageError> {
    let tree = transaction.load(id)?.tree;
    let is_meant =
        buried_by.is_none_or(|body| tree.get(rev).flatten().is_some_and(|data| data.is_deleted() && data.body <= body));
    if !tree.is_leaf(rev) || !is_meant {
        return Ok(None);
    }
    let path = tree.path_to(rev);
    purge_document(transaction, id, std::slice::from_ref(rev))?;
    put_on_record(transaction, PurgeRecord { id: id.clone(), revs: Vec::new(), history: Vec::new() });
    Ok(path)
}

fn drop_marker(transaction: &mut Transaction<'_, '_>, id: &DocId, batch: u64) -> Result<(), StorageError> {
    let key = marker_key(transaction.shard, id);
    let Some(bytes) = transaction.view.get(&key)? else { return Ok(()) };
    // It may have been collected once more.
    if decode::<Marker>(&bytes)?.batch == batch {
        transaction.view.delete(key);
        transaction.header.markers = transaction.header.markers.saturating_sub(1);
    }
    Ok(())
}

/// The path of the tombstone of a document that is not here because it was collected.
pub(super) fn marker_of(transaction: &Transaction<'_, '_>, id: &DocId) -> Result<Option<RevPath>, StorageError> {
    if transaction.header.markers == 0 {
        return Ok(None);
    }
    let stored = transaction.view.get(&marker_key(transaction.shard, id))?;
    Ok(stored.map(|bytes| decode::<Marker>(&bytes)).transpose()?.map(|marker| marker.path))
}

/// What a replica applied from others before it had met all of them: it is as old as what they had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedEarly {
    /// First and last numbers of bodies.
    bodies: Vec<(u64, u64)>,
    /// First and last sequences of the same.
    seqs: Vec<(u64, u64)>,
    /// Sequences of the replica that this one was split off: its bodies had other numbers.
    inherited: Vec<(u64, u64)>,
}

impl AppliedEarly {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty() && self.inherited.is_empty()
    }

    /// Whether a leaf was applied, by the number of its body and the last sequence of its document.
    pub fn has(&self, body: u64, seq: u64) -> bool {
        let within = |list: &[(u64, u64)], number| list.iter().any(|(first, last)| (*first..=*last).contains(&number));
        within(&self.bodies, body) || within(&self.inherited, seq)
    }

    fn read(view: &dyn View, shard: ShardId) -> Result<AppliedEarly, StorageError> {
        let stored = view.get(&keys::key(shard, Kind::Meta, APPLIED_EARLY))?;
        Ok(stored.map(|bytes| decode(&bytes)).transpose()?.unwrap_or_default())
    }

    fn write(&self, view: &mut WriteView<'_>, shard: ShardId) {
        view.put(keys::key(shard, Kind::Meta, APPLIED_EARLY), encode(self));
    }
}

/// Adds a number to a list of ranges, which stays short: of many those become one that have the least between them,
/// for that counts, too.
fn extend(list: &mut Vec<(u64, u64)>, number: u64) {
    match list.last_mut() {
        Some((_, last)) if *last + 1 >= number => *last = number.max(*last),
        _ => list.push((number, number)),
    }
    if list.len() > limits::APPLIED_EARLY_RANGES {
        let gap = |at: &usize| list[at + 1].0 - list[*at].1;
        // Invariant: it has more than one range.
        let at = (0..list.len() - 1).min_by_key(gap).expect("two ranges");
        list[at].1 = list.remove(at + 1).1;
    }
}

/// Notes that what was stored last was applied from another replica.
pub(super) fn note_applied_early(transaction: &mut Transaction<'_, '_>) -> Result<(), StorageError> {
    let mut taken = AppliedEarly::read(transaction.view, transaction.shard)?;
    extend(&mut taken.bodies, transaction.header.last_body);
    extend(&mut taken.seqs, transaction.header.update_seq);
    taken.write(transaction.view, transaction.shard);
    Ok(())
}

impl ShardReplica {
    /// What was applied before all other replicas were met.
    pub async fn applied_early(&self) -> Result<AppliedEarly, ShardError> {
        self.read(AppliedEarly::read).await
    }

    /// From now on notes what it applies from others, until it has met all of them.
    pub fn note_early(&self) {
        self.0.is_early.store(true, Ordering::SeqCst);
    }

    /// Whether what is applied from others may be as old as they are.
    pub fn is_early(&self) -> bool {
        self.0.is_early.load(Ordering::SeqCst)
    }

    /// Notes that a replica was met: what either had collected is collected by both. Once all of `others` were, since
    /// this replica was opened, nothing is told apart any more that is applied.
    pub async fn meet(&self, node: &str, others: &[String]) -> Result<(), ShardError> {
        let has_met_all = {
            let mut compared = self.0.compared.lock().unwrap_or_else(PoisonError::into_inner);
            compared.insert(node.to_owned());
            others.iter().all(|other| compared.contains(other))
        };
        if !has_met_all || !self.0.is_early.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        if self.applied_early().await? == AppliedEarly::default() {
            return Ok(());
        }
        let key = keys::key(self.id(), Kind::Meta, APPLIED_EARLY);
        self.write(move |view| {
            view.delete(key);
            Ok(())
        })
        .await
    }

    /// The tombstones of documents that were collected here and may not be everywhere.
    pub async fn markers_of(&self, ids: Vec<DocId>) -> Result<BTreeMap<DocId, Revision>, ShardError> {
        self.read(move |view, shard| {
            let mut out = BTreeMap::new();
            for id in ids {
                if let Some(bytes) = view.get(&marker_key(shard, &id))? {
                    out.insert(id, decode::<Marker>(&bytes)?.path.head());
                }
            }
            Ok(out)
        })
        .await
    }
}

/// Gives a child shard what was collected of its documents; the collection log goes with the small values.
pub(super) fn leave(
    view: &mut WriteView<'_>,
    from: ShardId,
    to: ShardId,
    is_its: impl Fn(&DocId) -> bool,
) -> Result<(), StorageError> {
    let AppliedEarly { seqs, inherited, .. } = AppliedEarly::read(view, from)?;
    if !seqs.is_empty() {
        let inherited = inherited.into_iter().chain(seqs).collect();
        AppliedEarly { inherited, ..AppliedEarly::default() }.write(view, to);
    }
    let rounds = Header::read(view, from)?.rounds;
    if rounds == 0 {
        return Ok(());
    }
    let mut markers: Vec<(DocId, Vec<u8>)> = Vec::new();
    view.scan(&keys::all(from, Kind::Marker), Direction::Forward, &mut |key, value| {
        markers.extend(keys::id_of(key).map(|id| (id, value.to_vec())));
        ControlFlow::Continue(())
    })?;
    let mut header = Header::read(view, to)?;
    header.rounds = rounds;
    header.markers = 0;
    for (id, marker) in markers.into_iter().filter(|(id, _)| is_its(id)) {
        view.put(marker_key(to, &id), marker);
        header.markers += 1;
    }
    header.write(view, to);
    Ok(())
}
