//! Forgetting tombstones: what a copy keeps about that, by the rules of `horizon.rs`.
//!
//! The ledger is one small value of the shard. A tombstone goes with its history in the commit that counts its round as
//! done; the purge log gets an entry without revisions, so that indexes and heirs look at the document again. What was
//! forgotten leaves a shadow, its path, until all other copies have forgotten it, too: who writes the document again
//! builds upon that. The header counts how often anything was forgotten, so that where nothing ever was nothing more is
//! read than before.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::edit::purge_document;
use super::horizon::{Horizon, Ledger, Proposal};
use super::keys::{self, Kind};
use super::purge::put_on_record;
use super::record::Header;
use super::transaction::Transaction;
use super::{RevPath, Revision, ShardCopy, ShardError, ShardId, Want};
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue as _;
use crate::limits;
use crate::storage::{Direction, StorageError, View, WriteView};

/// A tombstone that is the only leaf of its document.
pub type Tombstone = (DocId, Revision);

/// What a copy tells of its ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The rounds that it has done.
    pub done: Horizon,
    /// Those, and the rounds that it has written down.
    pub promised: Horizon,
}

/// How far a copy has forgotten, of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The rounds that it has done.
    pub horizon: Horizon,
    /// How often anything was forgotten.
    pub rounds: u64,
}

/// The value of the shard that holds it.
const NAME: &[u8] = b"horizon";

/// What is stored of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    ledger: Ledger<Tombstone>,
    /// What was forgotten here and may not be everywhere.
    batches: Vec<Batch>,
}

/// Shadows of one commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Batch {
    /// Names it: `Header::rounds` with it.
    number: u64,
    /// The horizon with these.
    horizon: Horizon,
    /// The nodes whose copies were taken in since they forgot these.
    taken: BTreeSet<String>,
    ids: Vec<DocId>,
}

/// A document that was forgotten.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Shadow {
    batch: u64,
    path: RevPath,
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // Invariant: it is made of numbers, texts and lists, which always serialize.
    rmp_serde::to_vec_named(value).expect("a ledger serializes")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StorageError> {
    rmp_serde::from_slice(bytes).map_err(|why| StorageError::Corrupt(format!("what was forgotten: {why}")))
}

fn shadow_key(shard: ShardId, id: &DocId) -> Vec<u8> {
    keys::key(shard, Kind::Shadow, id.as_str().as_bytes())
}

impl Kept {
    fn read(view: &dyn View, shard: ShardId) -> Result<Kept, StorageError> {
        let stored = view.get(&keys::key(shard, Kind::Meta, NAME))?;
        Ok(stored.map(|bytes| decode(&bytes)).transpose()?.unwrap_or_default())
    }

    fn write(&self, view: &mut WriteView<'_>, shard: ShardId) {
        view.put(keys::key(shard, Kind::Meta, NAME), encode(self));
    }
}

impl ShardCopy {
    /// What the copy has done and written down.
    pub async fn told(&self) -> Result<Told, ShardError> {
        let ledger = self.read(Kept::read).await?.ledger;
        Ok(Told { promised: ledger.promised(), done: ledger.horizon })
    }

    /// How many purges there were, and how often anything was forgotten.
    pub async fn purged_and_forgotten(&self) -> Result<(u64, u64), ShardError> {
        let header = self.read(Header::read).await?;
        Ok((header.purge_seq, header.rounds))
    }

    /// Writes a proposal down; durable on return. False where that is not the next round of its proposer, or a
    /// tombstone is not known here.
    pub async fn propose(&self, by: &str, proposal: Proposal<Tombstone>) -> Result<bool, ShardError> {
        // Before it is written down: what is known here stays so, unless it is forgotten or purged.
        for page in proposal.tombstones.chunks(limits::STEP_ROWS) {
            let wants = page.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
            for ((_, rev), fetched) in page.iter().zip(self.fetch(wants).await?) {
                if fetched.is_none_or(|fetched| fetched.tree.get(rev).is_none()) {
                    return Ok(false);
                }
            }
        }
        let (shard, by) = (self.id(), by.to_owned());
        self.write(move |view| {
            let mut kept = Kept::read(view, shard)?;
            let is_next = kept.ledger.propose(&by, proposal);
            if is_next {
                kept.write(view, shard);
            }
            Ok(is_next)
        })
        .await
    }

    /// Forgets what was written down here of the rounds of `done`; durable on return. Answers how far the copy has
    /// forgotten then.
    pub async fn forget(&self, done: &Horizon) -> Result<Forgotten, ShardError> {
        let stands = move |view: &dyn View, shard| Ok((Kept::read(view, shard)?, Header::read(view, shard)?.rounds));
        let (mut kept, rounds) = self.read(stands).await?;
        if kept.ledger.take_done(done).is_empty() {
            return Ok(Forgotten { horizon: kept.ledger.horizon, rounds });
        }
        let done = done.clone();
        self.change_kept(move |transaction, kept| {
            let proposals = kept.ledger.take_done(&done);
            let number = transaction.header.rounds + 1;
            let mut ids = Vec::new();
            for (id, rev) in proposals.into_iter().flat_map(|proposal| proposal.tombstones) {
                if let Some(path) = drop_leaf(transaction, &id, &rev, true)? {
                    let is_new = transaction.view.get(&shadow_key(transaction.shard, &id))?.is_none();
                    transaction.header.shadows += u64::from(is_new);
                    let shadow = encode(&Shadow { batch: number, path });
                    transaction.view.put(shadow_key(transaction.shard, &id), shadow);
                    ids.push(id);
                }
            }
            if !ids.is_empty() {
                let horizon = kept.ledger.horizon.clone();
                kept.batches.push(Batch { number, horizon, taken: BTreeSet::new(), ids });
            }
            Ok(())
        })
        .await
    }

    /// Drops leaves that no other copy has any more.
    pub async fn give_up(&self, leaves: Vec<Tombstone>) -> Result<(), ShardError> {
        let drop_all = move |transaction: &mut Transaction<'_, '_>, _: &mut Kept| {
            leaves.iter().try_for_each(|(id, rev)| drop_leaf(transaction, id, rev, false).map(drop))
        };
        self.change_kept(drop_all).await.map(drop)
    }

    /// Counts rounds as done of which nothing is here any more.
    pub async fn adopt(&self, done: &Horizon) -> Result<Forgotten, ShardError> {
        let done = done.clone();
        self.change_kept(move |_, kept| {
            kept.ledger.adopt(&done);
            Ok(())
        })
        .await
    }

    async fn change_kept(
        &self,
        work: impl FnOnce(&mut Transaction<'_, '_>, &mut Kept) -> Result<(), StorageError> + Send + 'static,
    ) -> Result<Forgotten, ShardError> {
        self.change(move |transaction, _| {
            let mut kept = Kept::read(transaction.view, transaction.shard)?;
            work(transaction, &mut kept)?;
            transaction.header.rounds += 1;
            kept.write(transaction.view, transaction.shard);
            Ok(Forgotten { horizon: kept.ledger.horizon, rounds: transaction.header.rounds })
        })
        .await
    }

    /// Notes that all of the copy of `node` was taken in, which had forgotten `theirs` by then. Shadows go that all of
    /// `others` were taken in behind.
    pub async fn note_taken(&self, node: &str, theirs: &Horizon, others: Vec<String>) -> Result<(), ShardError> {
        let (node, theirs) = (node.to_owned(), theirs.clone());
        self.change(move |transaction, _| {
            let mut kept = Kept::read(transaction.view, transaction.shard)?;
            for batch in kept.batches.iter_mut().filter(|batch| theirs.covers(&batch.horizon)) {
                batch.taken.insert(node.clone());
            }
            let is_open = |batch: &Batch| others.iter().any(|other| !batch.taken.contains(other));
            let (open, over): (Vec<Batch>, Vec<Batch>) = kept.batches.into_iter().partition(is_open);
            kept.batches = open;
            for batch in over {
                batch.ids.iter().try_for_each(|id| drop_shadow(transaction, id, batch.number))?;
            }
            kept.write(transaction.view, transaction.shard);
            Ok(())
        })
        .await
    }
}

/// Takes a leaf out of a document with the history that only it has; answers its path. Nothing where it is none, or, if
/// it is to be one, no tombstone.
fn drop_leaf(
    transaction: &mut Transaction<'_, '_>,
    id: &DocId,
    rev: &Revision,
    is_tombstone: bool,
) -> Result<Option<RevPath>, StorageError> {
    let tree = transaction.load(id)?.tree;
    let is_dead = tree.get(rev).flatten().is_some_and(|data| data.is_deleted());
    if !tree.is_leaf(rev) || is_tombstone && !is_dead {
        return Ok(None);
    }
    let path = tree.path_to(rev);
    purge_document(transaction, id, std::slice::from_ref(rev))?;
    put_on_record(transaction, id, &[]);
    Ok(path)
}

fn drop_shadow(transaction: &mut Transaction<'_, '_>, id: &DocId, batch: u64) -> Result<(), StorageError> {
    let key = shadow_key(transaction.shard, id);
    let Some(bytes) = transaction.view.get(&key)? else { return Ok(()) };
    // It may have been forgotten once more.
    if decode::<Shadow>(&bytes)?.batch == batch {
        transaction.view.delete(key);
        transaction.header.shadows = transaction.header.shadows.saturating_sub(1);
    }
    Ok(())
}

/// The path of the tombstone of a document that is not here because it was forgotten.
pub(super) fn shadow_of(transaction: &Transaction<'_, '_>, id: &DocId) -> Result<Option<RevPath>, StorageError> {
    if transaction.header.shadows == 0 {
        return Ok(None);
    }
    let stored = transaction.view.get(&shadow_key(transaction.shard, id))?;
    Ok(stored.map(|bytes| decode::<Shadow>(&bytes)).transpose()?.map(|shadow| shadow.path))
}

/// Gives an heir what was forgotten of its documents; the ledger goes with the small values.
pub(super) fn leave(
    view: &mut WriteView<'_>,
    from: ShardId,
    to: ShardId,
    is_its: impl Fn(&DocId) -> bool,
) -> Result<(), StorageError> {
    let rounds = Header::read(view, from)?.rounds;
    if rounds == 0 {
        return Ok(());
    }
    let mut shadows: Vec<(DocId, Vec<u8>)> = Vec::new();
    view.scan(&keys::all(from, Kind::Shadow), Direction::Forward, &mut |key, value| {
        shadows.extend(keys::id_of(key).map(|id| (id, value.to_vec())));
        ControlFlow::Continue(())
    })?;
    let mut header = Header::read(view, to)?;
    header.rounds = rounds;
    header.shadows = 0;
    for (id, shadow) in shadows.into_iter().filter(|(id, _)| is_its(id)) {
        view.put(shadow_key(to, &id), shadow);
        header.shadows += 1;
    }
    header.write(view, to);
    Ok(())
}
