//! Epochs: which positions of a copy can be compared.
//!
//! A copy's positions are numbers of changes. Should a disk lose some of them (a restored backup, a drive that lied),
//! new changes would get numbers that readers believe to have seen. So a node opens a new epoch at every start that
//! does not follow an orderly stop; a token carries its epoch, and one of an earlier epoch resumes at that one's end at
//! the latest. The node keeps the list of its epochs; a copy keeps where in its own numbers each of them began.
//!
//! A backup of a node that had stopped in order cannot be told from the node itself: other nodes remember how far the
//! copies of the epoch had come, and one that shows less begins a new epoch by itself.

use std::ops::ControlFlow;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::coordinator::record::EPOCHS_KEY;
use crate::limits;
use crate::shard::{ShardCopy, ShardError};
use crate::storage::{Direction, KeyRange, Storage, StorageError, View, WriteView};
use crate::world::Env;
use crate::world::buggify::{Mutation, mutated};

/// The epoch of all positions that were given before there were epochs.
const FIRST: u64 = 1;
/// The value of the copy that keeps its epochs.
const NAME: &str = "epochs";

/// The epochs of a node, oldest first; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeEpochs {
    list: Vec<u64>,
    /// Whether the node stopped in order since the last one began.
    clean: bool,
}

impl NodeEpochs {
    /// Reads the list and begins a new epoch where one is due; durable on return.
    pub async fn open(env: &Env, storage: &Storage) -> Result<NodeEpochs, ShardError> {
        let fresh = fresh(env);
        let job = move |view: &mut WriteView<'_>| {
            let key = EPOCHS_KEY.to_vec();
            let stored = view.get(&key)?.map(|bytes| decode::<NodeEpochs>(&bytes)).transpose()?;
            let mut epochs = match stored {
                Some(epochs) => epochs,
                // Databases without a list of epochs come from before there was one.
                None if has_records(view)? => NodeEpochs { list: vec![FIRST], clean: false },
                None => NodeEpochs { list: Vec::new(), clean: false },
            };
            if !epochs.clean && !mutated(Mutation::EpochIgnored) || epochs.list.is_empty() {
                epochs.list.push(fresh);
                let old = epochs.list.len().saturating_sub(limits::EPOCHS_KEPT);
                epochs.list.drain(..old);
            }
            epochs.clean = false;
            view.put(key, crate::coordinator::message::encode(&epochs).to_vec());
            Ok(Ok::<NodeEpochs, ShardError>(epochs))
        };
        storage.committer().submit(job).await?
    }

    /// Notes an orderly stop.
    pub async fn close(&self, storage: &Storage) -> Result<(), ShardError> {
        let closed = NodeEpochs { clean: true, ..self.clone() };
        let job = move |view: &mut WriteView<'_>| {
            view.put(EPOCHS_KEY.to_vec(), crate::coordinator::message::encode(&closed).to_vec());
            Ok(Ok::<(), ShardError>(()))
        };
        storage.committer().submit(job).await?
    }

    fn current(&self) -> u64 {
        // Invariant: opening leaves at least one.
        *self.list.last().expect("an epoch")
    }
}

/// Whether the node knows any database.
fn has_records(view: &WriteView<'_>) -> Result<bool, StorageError> {
    let mut found = false;
    view.scan(&KeyRange::prefix(&super::record::prefix()), Direction::Forward, &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    Ok(found)
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, StorageError> {
    crate::coordinator::message::decode(bytes).map_err(|why| StorageError::Corrupt(format!("epochs: {why}")))
}

/// The epochs of a copy with the position after which each began, oldest first; never empty.
#[derive(Debug)]
pub(super) struct Epochs {
    // A blocking lock: held for a look, never across an await.
    list: RwLock<Vec<(u64, u64)>>,
    /// Where the copy stood when it was opened.
    opened_at: u64,
    /// Held while a new epoch is being stored.
    renewing: Mutex<()>,
}

impl Epochs {
    /// Those of a copy that was just opened; a new one is durable on return.
    pub async fn open(copy: &ShardCopy, node: &NodeEpochs) -> Result<Epochs, ShardError> {
        let position = *copy.watch().borrow();
        if position == 0 {
            return Ok(Epochs::of(vec![(node.current(), 0)], position));
        }
        let stored = copy.meta_get(NAME).await?.map(|bytes| decode::<Vec<(u64, u64)>>(&bytes)).transpose()?;
        let list = stored.unwrap_or_default();
        // It may have begun others of its own in that one.
        if list.iter().any(|(epoch, _)| *epoch == node.current()) {
            return Ok(Epochs::of(list, position));
        }
        let was_empty = list.is_empty();
        let list = grown(list, &node.list, position);
        // Without a second epoch the list is what the node's says anyway.
        if !(was_empty && node.list.len() == 1) {
            store(copy, &list).await?;
        }
        Ok(Epochs::of(list, position))
    }

    fn of(list: Vec<(u64, u64)>, opened_at: u64) -> Epochs {
        Epochs { list: RwLock::new(list), opened_at, renewing: Mutex::default() }
    }

    fn list(&self) -> Vec<(u64, u64)> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The one that new positions belong to.
    pub fn current(&self) -> u64 {
        // Invariant: opening leaves at least one.
        self.list.read().unwrap_or_else(PoisonError::into_inner).last().expect("an epoch").0
    }

    /// The position after which this node gave out all numbers of the current epoch itself, since it was opened.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Begins a new epoch in place of `outdated`, if that is the current one still: another node has seen higher
    /// positions of it than this copy ever reached, so that the copy is an old one put back. The new one begins where
    /// the copy was opened, for numbers given out since may have been given out before. Durable on return.
    pub async fn renew(&self, copy: &ShardCopy, env: &Env, outdated: u64) -> Result<(), ShardError> {
        let _alone = self.renewing.lock().await;
        let mut list = self.list();
        if list.last().is_none_or(|(current, _)| *current != outdated) {
            return Ok(());
        }
        if self.opened_at == 0 {
            list.clear();
        }
        list.push((fresh(env), self.opened_at));
        store(copy, &list).await?;
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
        Ok(())
    }

    /// Where a reader goes on that has read up to `position` in `epoch`; `None` for an epoch of another copy.
    pub fn resume(&self, epoch: u64, position: u64) -> Option<u64> {
        resume(&self.list(), epoch, position)
    }
}

async fn store(copy: &ShardCopy, list: &[(u64, u64)]) -> Result<(), ShardError> {
    copy.meta_put(NAME, Some(crate::coordinator::message::encode(&list).to_vec())).await
}

/// A number that no epoch of any node had. 48 bits: with the number of a shard it names a copy and its epoch.
fn fresh(env: &Env) -> u64 {
    (env.random_u64() >> 16).max(FIRST + 1)
}

fn resume(list: &[(u64, u64)], epoch: u64, position: u64) -> Option<u64> {
    let at = list.iter().position(|(known, _)| *known == epoch)?;
    // Those that begin at 0 are of the time before the copy kept a list: none of them ended before the first one known.
    let end = list[at + 1..].iter().map(|(_, first)| *first).find(|first| *first > 0);
    Some(end.map_or(position, |end| position.min(end)))
}

/// The list of a copy that stands at `position` when the node's newest epoch begins.
fn grown(mut list: Vec<(u64, u64)>, node: &[u64], position: u64) -> Vec<(u64, u64)> {
    let (Some(current), earlier) = (node.last(), &node[..node.len().saturating_sub(1)]) else { return list };
    if list.is_empty() {
        // It was made in one of the earlier epochs, or in this one if there is no earlier.
        list.extend(earlier.iter().map(|epoch| (*epoch, 0)));
    }
    let first = if list.is_empty() { 0 } else { position };
    list.push((*current, first));
    let old = list.len().saturating_sub(limits::EPOCHS_KEPT);
    list.drain(..old);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_an_earlier_epoch_resumes_at_its_end() {
        let list = [(7, 0), (8, 40), (9, 60)];
        assert_eq!(resume(&list, 7, 30), Some(30));
        assert_eq!(resume(&list, 7, 45), Some(40), "what came after the cut has other numbers");
        assert_eq!(resume(&list, 8, 99), Some(60));
        assert_eq!(resume(&list, 9, 70), Some(70));
        assert_eq!(resume(&list, 6, 10), None);
        assert_eq!(resume(&[(7, 0), (8, 40), (9, 40)], 8, 43), Some(40), "all that the epoch gave out was lost");
        assert_eq!(Epochs::of(list.to_vec(), 60).current(), 9);
    }

    #[test]
    fn a_copy_that_was_not_opened_for_a_while_belongs_to_all_epochs_before() {
        let list = grown(Vec::new(), &[7, 8, 9], 50);
        assert_eq!(list, [(7, 0), (8, 0), (9, 50)]);
        assert_eq!(resume(&list, 7, 30), Some(30));
        assert_eq!(grown(Vec::new(), &[7], 50), [(7, 0)]);
        assert_eq!(grown(vec![(7, 0)], &[7, 8], 50), [(7, 0), (8, 50)]);
    }
}
