//! Names of the documents that lost writes concern, for operators who recover a data directory.

use std::collections::{BTreeMap, BTreeSet};

use crate::coordinator::node::check::{CheckReport, databases};
use crate::limits;
use crate::shard;
use crate::storage::{Storage, StorageError};
use crate::world::Pool;

/// Names what was written under `keys`: documents of databases, as far as that can be told.
///
/// # Errors
/// Those of a disk that cannot be read.
pub async fn lost_documents(storage: &Storage, keys: Vec<Vec<u8>>) -> Result<Vec<String>, StorageError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    storage
        .read_on(Pool::Background, move |view| {
            let mut owners: BTreeMap<u64, String> = BTreeMap::new();
            for (name, record) in databases(view, &mut CheckReport::default()) {
                owners.extend(record.all_shards().map(|shard| (shard, name.clone())));
            }
            let mut named = BTreeSet::new();
            let mut others = 0;
            for key in &keys {
                match shard::document_of(key) {
                    Some((shard, id)) if named.len() < limits::SALVAGE_NAMED => {
                        let unknown = || format!("shard {shard}");
                        let owner = owners.get(&shard).cloned().unwrap_or_else(unknown);
                        named.insert(format!("{owner}, document {:?}", id.as_str()));
                    }
                    Some(_) => others += 1,
                    None => {}
                }
            }
            let mut told: Vec<String> = named.into_iter().collect();
            if others > 0 {
                told.push(format!("{others} more documents"));
            }
            Ok(told)
        })
        .await
}
