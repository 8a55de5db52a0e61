//! Damage of stored data found since the node started: counted, and logged once for each place.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use super::kv::StorageError;
use crate::limits;
use crate::world::sync::Mutex;

/// The node's list of damage. A cheap handle.
#[derive(Clone, Default)]
pub struct Damage(Arc<Found>);

#[derive(Default)]
struct Found {
    /// What was told, at most `limits::DAMAGE_PLACES`.
    places: Mutex<BTreeSet<String>>,
    refused: AtomicU64,
    replaced: AtomicU64,
    lost: AtomicU64,
}

impl fmt::Debug for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Damage({})", self.refused())
    }
}

impl Damage {
    /// Counts an operation that failed because of damage; other errors are not counted. Hands the outcome on.
    pub fn noted<T>(&self, outcome: Result<T, StorageError>) -> Result<T, StorageError> {
        if let Err(StorageError::Corrupt(what)) = &outcome {
            self.note(what);
        }
        outcome
    }

    /// Counts an operation that was refused because of `what`.
    pub fn note(&self, what: &str) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() < limits::DAMAGE_PLACES && places.insert(what.to_owned()) {
            tracing::error!("damaged data was found and is not served: {what}; `settee check` finds all of it");
        }
    }

    /// Counts a store file that was put away after its shard had been rebuilt, and what in it could not be read.
    pub fn note_replaced(&self, lost: u64) {
        self.0.replaced.fetch_add(1, Ordering::Relaxed);
        self.0.lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// Store files that were put away.
    pub fn replaced(&self) -> u64 {
        self.0.replaced.load(Ordering::Relaxed)
    }

    /// Parts of such files that could not be read: some of them other replicas may not have had.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Operations that were refused because of damage.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Different kinds of damage that were found, in the words in which they were told.
    pub fn places(&self) -> Vec<String> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_each_time_and_told_once() {
        let damage = Damage::default();
        for _ in 0..3 {
            let failed: Result<(), _> = damage.noted(Err(StorageError::Corrupt("here".into())));
            assert!(failed.is_err());
        }
        let _ = damage.noted::<()>(Err(StorageError::Io("elsewhere".into())));
        assert_eq!((damage.refused(), damage.places()), (3, vec!["here".to_owned()]));
    }
}
