//! An engine that keeps everything in memory and loses it when dropped: for tests and as the suite's second opinion.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use super::kv::{Batch, Direction, KeyRange, StorageError, Store, View, Visit};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// See the module head.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: Mutex<Arc<Map>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::default()
    }
}

impl Store for MemoryStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(MemoryView(Arc::clone(&map))))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StorageError> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        // Copies the map only while a view is open.
        let map = Arc::make_mut(&mut map);
        for (key, value) in batch.writes() {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
        Ok(())
    }

    fn file_bytes(&self) -> u64 {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum()
    }
}

struct MemoryView(Arc<Map>);

impl View for MemoryView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = self.0.range::<[u8], _>((Bound::Included(range.start.as_slice()), end));
        loop {
            let row = match direction {
                Direction::Forward => rows.next(),
                Direction::Reverse => rows.next_back(),
            };
            let Some((key, value)) = row else { return Ok(()) };
            if visit(key, value).is_break() {
                return Ok(());
            }
        }
    }
}
