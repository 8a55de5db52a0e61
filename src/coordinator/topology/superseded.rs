//! Records of superseded instances: databases that lost their name to another one of the same name.

use std::ops::ControlFlow;

use crate::coordinator::topology::record::{self, Record};
use crate::coordinator::topology::rows::Rows;
use crate::storage::{Direction, KeyRange, StorageError, View as _, WriteView};

pub(in crate::coordinator) fn drop_superseded(view: &mut WriteView<'_>, key: Vec<u8>, record: &Record) {
    view.delete(key);
    record.all_shards().for_each(|shard| view.put(record::drop_key(shard), Vec::new()));
}

pub(in crate::coordinator) fn rows_below(view: &WriteView<'_>, prefix: &[u8]) -> Result<Rows, StorageError> {
    let mut rows = Vec::new();
    view.scan(&KeyRange::prefix(prefix), Direction::Forward, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// Drops a superseded instance of an instance that is deleted; of an empty one all superseded instances for the
/// database of the name, which is deleted: another one of that name is not to get its documents.
pub(in crate::coordinator) fn drop_superseded_of(
    view: &mut WriteView<'_>,
    name: &str,
    instance: &str,
) -> Result<(), StorageError> {
    for (key, value) in rows_below(view, &record::superseded_key(name, instance))? {
        drop_superseded(view, key, &Record::decode(&value)?);
    }
    Ok(())
}

/// Marks as deleted what became part of a database that is deleted; answers these instances.
pub(in crate::coordinator) fn delete_united(view: &mut WriteView<'_>, name: &str) -> Result<Vec<String>, StorageError> {
    let prefix = record::tomb_key(name, "");
    let mut out = Vec::new();
    for (key, mark) in rows_below(view, &prefix)? {
        if mark == record::UNITED {
            out.push(String::from_utf8_lossy(&key[prefix.len()..]).into_owned());
            view.put(key, record::DELETED.to_vec());
        }
    }
    Ok(out)
}
