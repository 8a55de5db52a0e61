//! The replicas of this node that are being rebuilt (`anti_entropy/rebuild.rs`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The replicas of this node that are being rebuilt.
#[derive(Default)]
pub(in crate::coordinator) struct Rebuilds {
    /// Whether there are any: most nodes have none, and each call of a replica asks.
    any: AtomicBool,
    /// The shards that are not filled yet, with the damaged ones. A blocking lock: held for map operations only.
    filling: Mutex<BTreeMap<u64, u64>>,
    /// The shards that were filled, or are about to be, and may lack what was written meanwhile, with their databases
    /// and ranges. A blocking lock, as above.
    late: Mutex<BTreeMap<u64, (String, usize)>>,
    /// Why damaged replicas are not rebuilt, as far as it was told. A blocking lock, as above.
    told: Mutex<BTreeMap<u64, String>>,
}

impl Rebuilds {
    /// Whether the replica with that shard is not filled yet.
    pub(in crate::coordinator) fn is_filling(&self, shard: u64) -> bool {
        self.any.load(Ordering::SeqCst) && self.change(|filling| filling.contains_key(&shard))
    }

    /// Whether replicas that count may lack what was written while they were filled.
    pub(in crate::coordinator) fn any_late(&self) -> bool {
        !self.late().is_empty()
    }

    pub(in crate::coordinator) fn late(&self) -> MutexGuard<'_, BTreeMap<u64, (String, usize)>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::coordinator) fn begin(&self, shard: u64, damaged: u64) {
        self.change(|filling| filling.insert(shard, damaged));
    }

    pub(in crate::coordinator) fn end(&self, shard: u64) {
        self.change(|filling| filling.remove(&shard));
    }

    pub(in crate::coordinator) fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, u64>) -> T) -> T {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let done = change(&mut filling);
        self.any.store(!filling.is_empty(), Ordering::SeqCst);
        done
    }

    /// Tells once why a damaged replica is not rebuilt.
    pub(in crate::coordinator) fn tell(&self, shard: u64, why: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(&shard).is_none_or(|before| before != why) {
            tracing::error!(shard, why, "a damaged replica is not rebuilt");
            told.insert(shard, why.to_owned());
        }
    }
}
