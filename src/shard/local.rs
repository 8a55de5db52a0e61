//! Local documents, which are not replicated and have no history, and the small values of upper layers.

use std::ops::{Bound, ControlFlow};

use super::keys::{self, Kind};
use super::list::bounded_scan;
use super::record::{decode_numbered, encode_numbered};
use super::{LocalDocument, ShardCopy, ShardError};
use crate::document::id::DocId;
use crate::storage::{Direction, View};

impl ShardCopy {
    /// A local document; `id` begins with `_local/`.
    pub async fn local_get(&self, id: &DocId) -> Result<Option<LocalDocument>, ShardError> {
        let key = keys::key(self.0.shard, Kind::Local, id.as_str().as_bytes());
        self.read(move |view, _| {
            let Some(bytes) = view.get(&key)? else { return Ok(None) };
            let (rev, body) = decode_numbered(bytes)?;
            Ok(Some(LocalDocument { rev, body }))
        })
        .await
    }

    /// Stores a local document whatever was there. The caller chooses the revision number (golden facts 'Local
    /// documents': one more than the given one, 1 without).
    pub async fn local_put(&self, id: &DocId, document: LocalDocument) -> Result<(), ShardError> {
        self.check_room()?;
        let key = keys::key(self.0.shard, Kind::Local, id.as_str().as_bytes());
        self.write(move |view| {
            view.put(key, encode_numbered(document.rev, &document.body));
            Ok(())
        })
        .await
    }

    /// Removes a local document; false when there was none.
    pub async fn local_delete(&self, id: &DocId) -> Result<bool, ShardError> {
        let key = keys::key(self.0.shard, Kind::Local, id.as_str().as_bytes());
        self.write(move |view| {
            let there = view.get(&key)?.is_some();
            if there {
                view.delete(key);
            }
            Ok(there)
        })
        .await
    }

    /// Local documents in id order, at most `limit`; fewer mean that the range has no more.
    pub async fn local_list(
        &self,
        start: Bound<DocId>,
        end: Bound<DocId>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<(DocId, LocalDocument)>, ShardError> {
        let mut rest = Some(keys::ids(self.0.shard, Kind::Local, &start, &end));
        let mut out: Vec<(DocId, LocalDocument)> = Vec::new();
        while let (true, Some(range)) = (out.len() < limit, rest.take()) {
            let left = limit - out.len();
            let step = self.read(move |view, _| {
                let mut rows = Vec::new();
                let rest = bounded_scan(view, range, direction, |key, value| {
                    let (rev, body) = decode_numbered(value.to_vec())?;
                    rows.push((keys::id_of(key)?, LocalDocument { rev, body }));
                    Ok(if rows.len() == left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
                Ok((rows, rest))
            });
            let (rows, next) = step.await?;
            out.extend(rows);
            rest = next;
        }
        Ok(out)
    }

    /// A small value of the shard that is no document, such as its epochs or the database's `_security`.
    pub async fn meta_get(&self, name: &str) -> Result<Option<Vec<u8>>, ShardError> {
        let key = keys::key(self.0.shard, Kind::Meta, name.as_bytes());
        self.read(move |view, _| view.get(&key)).await
    }

    /// Stores such a value, durable on return; `None` removes it.
    pub async fn meta_put(&self, name: &str, value: Option<Vec<u8>>) -> Result<(), ShardError> {
        let key = keys::key(self.0.shard, Kind::Meta, name.as_bytes());
        self.write(move |view| {
            match value {
                Some(value) => view.put(key, value),
                None => view.delete(key),
            }
            Ok(())
        })
        .await
    }
}
