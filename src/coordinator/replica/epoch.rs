//! Epochs: which positions of a replica can be compared with each other.
//!
//! A position is a count of changes. Should a disk lose some of them (a restored backup, a drive that did not sync),
//! new changes would get positions that readers have seen already. A backup cannot be told from the disk that it was
//! made of, not even by a mark of an orderly stop. So a node opens a new epoch at every start. A sequence carries the
//! epoch in which its position was given; one of an earlier epoch resumes at the end of that epoch at the latest. An
//! epoch that this disk does not know is later than the backup: such a sequence resumes where other replicas tell, or
//! from the beginning. The node keeps the list of its epochs; a replica keeps the position at which each of them began.
//!
//! A machine that is restored while its node runs continues in its epoch. Other nodes remember how far its replicas had
//! come, and a replica that shows less begins a new epoch by itself.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::topology::record::EPOCHS_KEY;
use crate::limits;
use crate::shard::{ShardError, ShardReplica};
use crate::storage::{Direction, KeyRange, Storage, StorageError, View, WriteView};
use crate::world::Env;
use crate::world::buggify::{Mutation, mutated};

/// The epoch of all positions that were given before there were epochs.
const FIRST: u64 = 1;
/// The value of the replica that keeps its epochs.
const NAME: &str = "epochs";
/// The value that keeps the purges after which they began.
const PURGES: &str = "purges of epochs";

/// The epochs of a node, oldest first; never empty.
#[derive(Clone, Debug)]
pub(in crate::coordinator) struct NodeEpochs(Arc<[u64]>);

/// They as they are stored.
#[derive(Default, Serialize, Deserialize)]
struct Stored {
    list: Vec<u64>,
}

impl NodeEpochs {
    /// Reads the list and begins a new epoch; durable on return.
    pub async fn open(env: &Env, storage: &Storage) -> Result<NodeEpochs, ShardError> {
        let fresh = fresh(env);
        let job = move |view: &mut WriteView<'_>| {
            let key = EPOCHS_KEY.to_vec();
            let mut epochs = match view.get(&key)? {
                Some(bytes) => decode::<Stored>(&bytes)?,
                // Databases without a list of epochs come from before there was one.
                None if has_records(view)? => Stored { list: vec![FIRST] },
                None => Stored::default(),
            };
            let goes_on = mutated(Mutation::EpochIgnored) || mutated(Mutation::PositionReused);
            if !goes_on || epochs.list.is_empty() {
                epochs.list.push(fresh);
                let old = epochs.list.len().saturating_sub(limits::NODE_EPOCHS_KEPT);
                epochs.list.drain(..old);
            }
            view.put(key, crate::coordinator::replica::message::encode(&epochs).to_vec());
            Ok(Ok::<_, ShardError>(NodeEpochs(epochs.list.into())))
        };
        storage.committer().submit(job).await?
    }

    fn current(&self) -> u64 {
        // Invariant: opening leaves at least one.
        *self.0.last().expect("an epoch")
    }

    /// The one before the current one, which is the current one itself where there is no other.
    fn before(&self) -> u64 {
        self.0.iter().nth_back(1).copied().unwrap_or(self.current())
    }

    /// Whether `epoch` is one of this node's and came before `other`.
    fn is_before(&self, epoch: u64, other: u64) -> bool {
        let at = |wanted: u64| self.0.iter().position(|known| *known == wanted);
        at(epoch).is_some_and(|epoch| at(other).is_some_and(|other| epoch < other))
    }
}

/// Whether the node knows any database.
fn has_records(view: &WriteView<'_>) -> Result<bool, StorageError> {
    let mut found = false;
    view.scan(&KeyRange::prefix(&crate::coordinator::topology::record::prefix()), Direction::Forward, &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    Ok(found)
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, StorageError> {
    crate::coordinator::replica::message::decode(bytes).map_err(|why| StorageError::Corrupt(format!("epochs: {why}")))
}

/// The epochs of a replica with the position after which each began, oldest first; never empty. One that begins at 0
/// before others is of the time before the replica kept a list, and stands for all that the node had until then.
#[derive(Debug)]
pub(in crate::coordinator) struct Epochs {
    node: NodeEpochs,
    // A blocking lock: held for a look, never across an await.
    list: RwLock<Vec<(u64, u64)>>,
    /// Epochs with the number of the purge after which each began; 0 for those that are not here. A blocking lock, as
    /// above.
    purges: RwLock<Vec<(u64, u64)>>,
    /// Where the replica stood when it was opened, and the number of its last purge then.
    opened_at: u64,
    purged_at: u64,
    /// Held while a new epoch is being stored.
    renewing: Mutex<()>,
}

impl Epochs {
    /// Those of a replica that was just opened; a new one is durable on return.
    pub async fn open(replica: &ShardReplica, node: &NodeEpochs) -> Result<Epochs, ShardError> {
        let position = *replica.watch().borrow();
        if position == 0 {
            return Ok(Epochs::of(node, vec![(node.current(), 0)], position));
        }
        let list = stored(replica, NAME).await?;
        let purges = stored(replica, PURGES).await?;
        let purged_at = replica.info().await?.purge_seq;
        let of = |list, purges| {
            let purges = RwLock::new(purges);
            Epochs { purges, purged_at, ..Epochs::of(node, list, position) }
        };
        // It may have begun others of its own in that one.
        if list.iter().any(|(epoch, _)| *epoch == node.current()) {
            return Ok(of(list, purges));
        }
        let is_only = list.is_empty() && node.before() == node.current();
        let list = grown(list, node, position);
        // A node's only epoch need not be told.
        if is_only {
            return Ok(of(list, purges));
        }
        let purges = grown_purges(purges, &list, (node.current(), purged_at));
        store(replica, &list, &purges).await?;
        Ok(of(list, purges))
    }

    fn of(node: &NodeEpochs, list: Vec<(u64, u64)>, opened_at: u64) -> Epochs {
        let (list, purges) = (RwLock::new(list), RwLock::default());
        Epochs { node: node.clone(), list, purges, opened_at, purged_at: 0, renewing: Mutex::default() }
    }

    /// Each with the position after which it began, oldest first.
    pub fn list(&self) -> Vec<(u64, u64)> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn purges(&self) -> Vec<(u64, u64)> {
        self.purges.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The one that new positions belong to.
    pub fn current(&self) -> u64 {
        // Invariant: opening leaves at least one.
        self.list.read().unwrap_or_else(PoisonError::into_inner).last().expect("an epoch").0
    }

    /// What the replica says of itself, at a position.
    pub fn replica_position(&self, shard: u64, position: u64) -> ReplicaPosition {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        // Invariant: opening leaves at least one.
        let &(epoch, began) = list.last().expect("an epoch");
        ReplicaPosition { shard, epoch, position, began, before: given_in(&list, began) }
    }

    /// The position after which this node gave out all numbers of the current epoch itself, since it was opened.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Begins a new epoch in place of `outdated`, if that is the current one still: another node has seen higher
    /// positions of it than this replica ever reached, so that the replica is restored from an old backup. The new one
    /// begins where the replica was opened, for numbers given out since may have been given out before. Durable on
    /// return.
    pub async fn renew(&self, replica: &ShardReplica, env: &Env, outdated: u64) -> Result<(), ShardError> {
        let _alone = self.renewing.lock().await;
        let mut list = self.list();
        if list.last().is_none_or(|(current, _)| *current != outdated) {
            return Ok(());
        }
        if self.opened_at == 0 {
            list.clear();
        }
        let fresh = fresh(env);
        list.push((fresh, self.opened_at));
        let purges = grown_purges(self.purges(), &list, (fresh, self.purged_at));
        store(replica, &list, &purges).await?;
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
        *self.purges.write().unwrap_or_else(PoisonError::into_inner) = purges;
        Ok(())
    }

    /// Where a reader goes on that has read up to `position` in `epoch`; `None` for an epoch of another replica.
    pub fn resume(&self, epoch: u64, position: u64) -> Option<u64> {
        resume(&self.list(), &self.node, epoch, position)
    }

    /// The position of this replica up to which another one has read it, that has come to `position` in `epoch` and was
    /// told these epochs then. Some of them may be later than this replica, if it is restored from an old backup: then
    /// what both have in common counts.
    pub fn read_up_to(&self, told: &[(u64, u64)], epoch: u64, position: u64) -> u64 {
        read_up_to(&self.list(), &self.node, told, (epoch, position))
    }

    /// The number up to which purges of this replica are those of the one that told these epochs: where the two are of
    /// different times they may have numbers in common that name different purges. `None`: it was not kept, as of
    /// epochs that began before replicas kept it.
    pub fn purges_shared(&self, told: &[(u64, u64)]) -> Option<u64> {
        purges_shared(&self.list(), &self.purges(), &self.node, told)
    }
}

async fn stored(replica: &ShardReplica, name: &str) -> Result<Vec<(u64, u64)>, ShardError> {
    Ok(replica.meta_get(name).await?.map(|bytes| decode(&bytes)).transpose()?.unwrap_or_default())
}

async fn store(replica: &ShardReplica, list: &[(u64, u64)], purges: &[(u64, u64)]) -> Result<(), ShardError> {
    let value = |list: &[(u64, u64)]| Some(crate::coordinator::replica::message::encode(&list).to_vec());
    replica.meta_put_all(vec![(NAME.to_owned(), value(list)), (PURGES.to_owned(), value(purges))]).await
}

/// A number that no epoch of any node had. 48 bits: with the number of a shard it names a replica and its epoch.
fn fresh(env: &Env) -> u64 {
    (env.random_u64() >> 16).max(FIRST + 1)
}

/// The epoch in which a position was given, of a list that has one at least.
fn given_in(list: &[(u64, u64)], position: u64) -> u64 {
    let given = list.iter().rev().find(|(_, first)| *first < position).or(list.first());
    given.map_or(FIRST, |(epoch, _)| *epoch)
}

fn resume(list: &[(u64, u64)], node: &NodeEpochs, epoch: u64, position: u64) -> Option<u64> {
    let is_older = |list: &[(u64, u64)]| matches!(list, [(oldest, 0), _, ..] if node.is_before(epoch, *oldest));
    let at = list.iter().position(|(known, _)| *known == epoch).or(is_older(list).then_some(0))?;
    // Those that begin at 0 are of the time before the replica kept a list: none of them ended before the first one
    // known.
    let end = list[at + 1..].iter().map(|(_, first)| *first).find(|first| *first > 0);
    Some(end.map_or(position, |end| position.min(end)))
}

fn read_up_to(list: &[(u64, u64)], node: &NodeEpochs, told: &[(u64, u64)], (epoch, position): (u64, u64)) -> u64 {
    let Some(last) = told.iter().position(|(known, _)| *known == epoch) else {
        return resume(list, node, epoch, position).unwrap_or(0);
    };
    let lasting = lasting(&told[..=last]);
    let told: Vec<(u64, u64)> = told[..=last].iter().filter(|(epoch, _)| lasting.contains(epoch)).copied().collect();
    // Each of the earlier ones was read up to where the next one began.
    let ends = told.iter().skip(1).map(|(_, first)| *first).chain([position]);
    let read = told.iter().zip(ends).filter_map(|((epoch, _), end)| resume(list, node, *epoch, end));
    read.max().unwrap_or(0)
}

/// The epochs of those told that lead to the last one. A restored replica begins its next epoch before those that it
/// lost ended.
fn lasting(told: &[(u64, u64)]) -> BTreeSet<u64> {
    let (mut out, mut least) = (BTreeSet::new(), u64::MAX);
    for (epoch, began) in told.iter().rev() {
        if *began <= least {
            least = *began;
            out.insert(*epoch);
        }
    }
    out
}

fn purges_shared(list: &[(u64, u64)], purges: &[(u64, u64)], node: &NodeEpochs, told: &[(u64, u64)]) -> Option<u64> {
    let told = lasting(told);
    let stands_for_older = matches!(list, [(_, 0), _, ..]);
    let is_told = |at: usize| {
        let epoch = list[at].0;
        told.contains(&epoch) || at == 0 && stands_for_older && told.iter().any(|told| node.is_before(*told, epoch))
    };
    // What this replica did up to its last epoch that was told, that one did, too.
    let Some(last) = (0..list.len()).rev().find(|at| is_told(*at)) else { return Some(0) };
    let Some((next, _)) = list.get(last + 1) else { return Some(u64::MAX) };
    purges.iter().find(|(epoch, _)| epoch == next).map(|(_, purged)| *purged)
}

/// The purges after which the epochs of a list began, with those of one that was added.
fn grown_purges(mut purges: Vec<(u64, u64)>, list: &[(u64, u64)], added: (u64, u64)) -> Vec<(u64, u64)> {
    purges.push(added);
    purges.retain(|(epoch, _)| list.iter().any(|(known, _)| known == epoch));
    purges
}

/// What is known of the epochs of another replica, with the list that it tells now. Those that it has no more stay: up
/// to where it was read in them, it had them. Oldest first, as they were heard of.
pub(in crate::coordinator) fn with_told(known: &[(u64, u64)], list: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let is_new = |(epoch, _): &&(u64, u64)| known.iter().all(|(known, _)| known != epoch);
    let mut out: Vec<(u64, u64)> = known.iter().chain(list.iter().filter(is_new)).copied().collect();
    let is_lost = |(epoch, _): &(u64, u64)| list.iter().all(|(told, _)| told != epoch);
    while out.len() > limits::TOLD_EPOCHS_KEPT {
        // Points are in those that it has.
        let lost = out.iter().position(is_lost);
        out.remove(lost.unwrap_or(0));
    }
    out
}

/// The list of a replica that stands at `position` when the node's newest epoch begins.
fn grown(mut list: Vec<(u64, u64)>, node: &NodeEpochs, position: u64) -> Vec<(u64, u64)> {
    if list.is_empty() {
        // It was made in one of the earlier epochs, or in this one if there is no earlier.
        list.push((node.before(), 0));
    }
    if list.last().is_none_or(|(epoch, _)| *epoch != node.current()) {
        list.push((node.current(), position));
    }
    while list.len() > limits::EPOCHS_KEPT {
        // One in which no position was given is named by no token.
        let idle = list.windows(2).position(|pair| pair[0].1 > 0 && pair[0].1 == pair[1].1);
        list.remove(idle.unwrap_or(0));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(epochs: &[u64]) -> NodeEpochs {
        NodeEpochs(epochs.into())
    }

    #[test]
    fn a_token_of_an_earlier_epoch_resumes_at_its_end() {
        let list = [(7, 0), (8, 40), (9, 60)];
        let resume = |list: &[(u64, u64)], epoch, position| resume(list, &node(&[5, 7, 8, 9]), epoch, position);
        assert_eq!(resume(&list, 7, 30), Some(30));
        assert_eq!(resume(&list, 7, 45), Some(40), "what came after the cut has other numbers");
        assert_eq!(resume(&list, 8, 99), Some(60));
        assert_eq!(resume(&list, 9, 70), Some(70));
        assert_eq!(resume(&list, 6, 10), None);
        assert_eq!(resume(&list, 5, 45), Some(40), "of the time before the replica kept a list");
        assert_eq!(resume(&list[1..], 7, 30), None, "its end is forgotten");
        assert_eq!(resume(&[(7, 0), (8, 40), (9, 40)], 8, 43), Some(40), "all that the epoch gave out was lost");
        assert_eq!(Epochs::of(&node(&[7, 8, 9]), list.to_vec(), 60).current(), 9);
    }

    #[test]
    fn a_replica_that_was_not_opened_for_a_while_belongs_to_all_epochs_before() {
        let list = grown(Vec::new(), &node(&[7, 8, 9]), 50);
        assert_eq!(list, [(8, 0), (9, 50)]);
        assert_eq!(resume(&list, &node(&[7, 8, 9]), 7, 30), Some(30));
        assert_eq!(grown(Vec::new(), &node(&[7]), 50), [(7, 0)]);
        assert_eq!(grown(vec![(7, 0)], &node(&[7, 8]), 50), [(7, 0), (8, 50)]);
    }

    #[test]
    fn a_position_is_named_by_the_epoch_that_gave_it() {
        let epochs = Epochs::of(&node(&[7, 8, 9]), vec![(7, 0), (8, 40), (9, 60)], 60);
        let named = |position| epochs.replica_position(1, position).epoch_of(position);
        assert_eq!((named(60), named(61)), (8, 9), "an epoch begins with its first change");
        let idle = Epochs::of(&node(&[7, 8, 9]), vec![(7, 0), (8, 40), (9, 40)], 40);
        assert_eq!(
            idle.replica_position(1, 40).epoch_of(40),
            7,
            "a start changes no token of a replica that does not change"
        );
        let first = Epochs::of(&node(&[7]), vec![(7, 0)], 0).replica_position(1, 0);
        assert_eq!((first.epoch_of(0), first.epoch_of(1)), (0, 7));
    }

    #[test]
    fn a_restored_replica_was_read_as_far_as_it_has_in_common_with_the_one_before() {
        let restored = [(7, 0), (9, 40), (10, 45)];
        let read = |told: &[(u64, u64)], point| read_up_to(&restored, &node(&[7, 9, 10]), told, point);
        assert_eq!(read(&[(7, 0), (8, 60)], (8, 70)), 40, "it was restored to 40");
        assert_eq!(read(&[(7, 0), (8, 30)], (8, 70)), 30, "that one was put back, too, to 30");
        assert_eq!(read(&[(7, 0), (8, 60)], (7, 20)), 20, "the later epoch was not read");
        assert_eq!(read(&[(7, 0), (9, 40)], (9, 43)), 43, "it was read again since");
        assert_eq!(read(&[(7, 0), (9, 40), (10, 45)], (10, 50)), 50);
        assert_eq!(read(&[(5, 0), (6, 60)], (6, 70)), 0, "another replica");
        assert_eq!(read(&[], (7, 50)), 40, "its epochs were not told");
        assert_eq!(read(&[], (8, 50)), 0);
        assert_eq!(read(&[(7, 0), (8, 60), (9, 40), (10, 45)], (9, 43)), 43, "what was told later does not count");
        let again = [(7, 0), (8, 60), (11, 80)];
        let read = |point| read_up_to(&again, &node(&[7, 8, 11]), &[(7, 0), (8, 60), (9, 40)], point);
        assert_eq!(read((9, 70)), 40, "it was not read to 60 when it lost that");
        assert_eq!(read((8, 70)), 70, "the replica that was read last was not told of this one");
    }

    #[test]
    fn a_restored_replica_has_the_purges_in_common_up_to_where_it_began_anew() {
        let node = node(&[6, 7, 9, 10]);
        let shared =
            |told: &[(u64, u64)]| purges_shared(&[(7, 0), (9, 40), (10, 45)], &[(9, 300), (10, 320)], &node, told);
        assert_eq!(shared(&[(7, 0), (8, 60)]), Some(300), "it was restored to 40");
        assert_eq!(shared(&[(7, 0), (9, 40)]), Some(320), "it started anew since");
        assert_eq!(shared(&[(7, 0), (9, 40), (10, 45)]), Some(u64::MAX));
        assert_eq!(shared(&[(6, 0)]), Some(300), "of the time before the replica kept a list");
        assert_eq!(shared(&[(5, 0)]), Some(0), "another replica");
        assert_eq!(shared(&[(7, 0), (9, 40), (8, 30)]), Some(300), "the one that told this lost what began at 40");
        assert_eq!(purges_shared(&[(7, 0), (9, 40)], &[], &node, &[(7, 0)]), None, "it was not kept");
    }

    #[test]
    fn epochs_that_a_replica_has_no_more_are_remembered() {
        let told = with_told(&[(7, 0), (8, 60)], &[(7, 0), (9, 40)]);
        assert_eq!(told, [(7, 0), (8, 60), (9, 40)]);
        assert_eq!(with_told(&told, &[(7, 0), (9, 40)]), told);
        assert_eq!(grown_purges(vec![(7, 1), (8, 2)], &[(8, 9), (9, 9)], (9, 3)), [(8, 2), (9, 3)]);
        let many: Vec<(u64, u64)> = (1..1000).map(|epoch| (epoch, epoch)).collect();
        assert_eq!(with_told(&many, &[(1000, 1000)]).last(), Some(&(1000, 1000)));
        assert_eq!(with_told(&many, &[(1000, 1000)]).len(), limits::TOLD_EPOCHS_KEPT);
        assert_eq!(
            with_told(&many, &[(1, 1), (1000, 1000)])[0],
            (1, 1),
            "a replica that started often and never changed"
        );
    }

    #[test]
    fn starts_without_a_change_push_no_epoch_out() {
        let mut list = vec![(1, 0), (2, 40)];
        for epoch in 3..1000 {
            list = grown(list, &node(&[1, 2, epoch]), 50);
        }
        assert_eq!((list.len(), &list[..2]), (limits::EPOCHS_KEPT, &[(1, 0), (2, 40)][..]));
        assert_eq!(list.last(), Some(&(999, 50)));
    }
}
