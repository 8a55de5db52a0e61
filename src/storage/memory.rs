//! An engine that keeps everything in memory and loses it when dropped: for tests, and as a reference for the suite.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use super::kv::{Direction, KeyRange, LastingView, Rows, StorageError, StoreFile, View, Visit};
use super::overlay::bounds;
use crate::world::sync::Mutex;

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

impl StoreFile for MemoryStore {
    fn snapshot(&self) -> Result<Box<dyn View>, StorageError> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(MemoryView(Arc::clone(&map))))
    }

    fn apply(&self, cleared: &[KeyRange], rows: Rows<'_>) -> Result<(), StorageError> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        // Copies the map only while a view is open.
        let map = Arc::make_mut(&mut map);
        for range in cleared {
            let keys: Vec<Vec<u8>> = map.range::<[u8], _>(bounds(range)).map(|(key, _)| key.clone()).collect();
            keys.iter().for_each(|key| drop(map.remove(key)));
        }
        for (key, value) in rows {
            match value {
                Some(value) => map.insert(key.to_vec(), value.to_vec()),
                None => map.remove(key),
            };
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum()
    }
}

struct MemoryView(Arc<Map>);

impl View for MemoryView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.0.get(key).cloned())
    }

    fn lasting(&self, _range: &KeyRange) -> Result<Option<LastingView>, StorageError> {
        Ok(Some(LastingView { view: Box::new(MemoryView(Arc::clone(&self.0))), bytes: 0 }))
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        let mut rows = self.0.range::<[u8], _>(bounds(range));
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
