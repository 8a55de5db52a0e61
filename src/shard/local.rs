//! Local documents, which are not replicated and have no history, and the small values of upper layers.

use std::ops::{Bound, ControlFlow};

use super::keys::{self, Kind};
use super::list::bounded_scan;
use super::record::{decode_register, encode_register};
use super::split;
use super::{LocalDocument, LocalRegister, ShardError, ShardReplica, Stamp};
use crate::document::id::DocId;
use crate::limits;
use crate::storage::{Direction, StorageError, View};

impl ShardReplica {
    /// A local document; `id` begins with `_local/`.
    pub async fn local_get(&self, id: &DocId) -> Result<Option<LocalDocument>, ShardError> {
        Ok(self.local_register(id).await?.and_then(|register| register.document))
    }

    /// What is kept of a local document, the mark of a deletion included.
    pub async fn local_register(&self, id: &DocId) -> Result<Option<LocalRegister>, ShardError> {
        let key = keys::key(self.0.shard, Kind::Local, id.as_str().as_bytes());
        self.read_inline(move |view, _| view.get(&key)?.map(decode_register).transpose()).await
    }

    /// Stores a local document whatever was there, or removes it; answers the stamp that this has. The caller chooses
    /// the revision number (`conformance/cases/documents`: one more than the given one, 1 without). `by` names the
    /// coordinator; with `mark` a deletion leaves its stamp, which the other replicas need.
    pub async fn local_set(
        &self,
        id: &DocId,
        document: Option<LocalDocument>,
        by: u64,
        mark: bool,
    ) -> Result<Stamp, ShardError> {
        if document.is_some() {
            self.check_room()?;
        }
        let (inner, id) = (std::sync::Arc::clone(&self.0), id.clone());
        self.write(move |view| {
            let key = keys::key(inner.shard, Kind::Local, id.as_str().as_bytes());
            let before = view.get(&key)?.map(decode_register).transpose()?.map_or(0, |register| register.stamp.counter);
            let stamp = Stamp { counter: before + 1, by };
            match document.is_some() || mark {
                true => view.put(key, encode_register(&LocalRegister { stamp, document })),
                false => view.delete(key),
            }
            split::mirror_local(&inner, view, &id)?;
            Ok(stamp)
        })
        .await
    }

    /// Applies registers of another replica: of each the one with the higher stamp stays. Answers those that stayed.
    pub async fn local_merge(&self, registers: Vec<(DocId, LocalRegister)>) -> Result<Vec<Stamp>, ShardError> {
        let inner = std::sync::Arc::clone(&self.0);
        self.write(move |view| {
            let mut out = Vec::with_capacity(registers.len());
            for (id, register) in registers {
                let key = keys::key(inner.shard, Kind::Local, id.as_str().as_bytes());
                let own = view.get(&key)?.map(decode_register).transpose()?.map(|register| register.stamp);
                out.push(own.unwrap_or_default().max(register.stamp));
                if own.is_none_or(|own| own < register.stamp) {
                    view.put(key, encode_register(&register));
                    split::mirror_local(&inner, view, &id)?;
                }
            }
            Ok(out)
        })
        .await
    }

    /// Registers in id order behind `after`, at most `limit`, and `limits::STEP_BYTES` or one that is larger; none mean
    /// that there are no more.
    pub async fn local_registers(
        &self,
        after: Bound<DocId>,
        limit: usize,
    ) -> Result<Vec<(DocId, LocalRegister)>, ShardError> {
        let range = (after, Bound::Unbounded);
        self.local_scan(range, Direction::Forward, (limit, limits::STEP_BYTES), |id, register| Some((id, register)))
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
        self.local_page((start, end), direction, (limit, usize::MAX)).await
    }

    /// As [`ShardReplica::local_list`], ended by a number of bytes, too: only none mean that the range has no more.
    pub async fn local_page(
        &self,
        range: (Bound<DocId>, Bound<DocId>),
        direction: Direction,
        most: (usize, usize),
    ) -> Result<Vec<(DocId, LocalDocument)>, ShardError> {
        self.local_scan(range, direction, most, |id, register| Some((id, register.document?))).await
    }

    /// At most `limit` of what `pick` takes of the registers in a range; no more once they have so many bytes.
    async fn local_scan<T: Send + 'static>(
        &self,
        (start, end): (Bound<DocId>, Bound<DocId>),
        direction: Direction,
        (limit, bytes): (usize, usize),
        pick: impl Fn(DocId, LocalRegister) -> Option<T> + Copy + Send + 'static,
    ) -> Result<Vec<T>, ShardError> {
        let mut rest = Some(keys::ids(self.0.shard, Kind::Local, &start, &end));
        let (mut out, mut taken): (Vec<T>, usize) = (Vec::new(), 0);
        while let (true, Some(range)) = (out.len() < limit && taken < bytes, rest.take()) {
            let left = limit - out.len();
            let step = self.read(move |view, _| {
                let (mut rows, mut taken) = (Vec::new(), taken);
                let rest = bounded_scan(view, range, direction, |key, value| {
                    if let Some(row) = pick(keys::id_of(key)?, decode_register(value.to_vec())?) {
                        rows.push(row);
                        taken = taken.saturating_add(value.len());
                    }
                    let full = rows.len() == left || taken >= bytes;
                    Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
                Ok((rows, taken, rest))
            });
            let (rows, so_far, next) = step.await?;
            (taken, rest) = (so_far, next);
            out.extend(rows);
        }
        Ok(out)
    }

    /// A small value of the shard that is no document, such as its epochs or the database's `_security`.
    pub async fn meta_get(&self, name: &str) -> Result<Option<Vec<u8>>, ShardError> {
        let key = keys::key(self.0.shard, Kind::Meta, name.as_bytes());
        self.read_inline(move |view, _| view.get(&key)).await
    }

    /// Stores such a value, durable on return; `None` removes it.
    pub async fn meta_put(&self, name: &str, value: Option<Vec<u8>>) -> Result<(), ShardError> {
        self.meta_put_all(vec![(name.to_owned(), value)]).await
    }

    /// As [`ShardReplica::meta_put`], several of them in one commit.
    pub async fn meta_put_all(&self, values: Vec<(String, Option<Vec<u8>>)>) -> Result<(), ShardError> {
        let shard = self.0.shard;
        self.write(move |view| {
            for (name, value) in values {
                let key = keys::key(shard, Kind::Meta, name.as_bytes());
                match value {
                    Some(value) => view.put(key, value),
                    None => view.delete(key),
                }
            }
            Ok(())
        })
        .await
    }

    /// Stores what `change` makes of such a value, durable on return; nobody else changes it in between.
    pub async fn meta_change(
        &self,
        name: &str,
        change: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>, StorageError> + Send + 'static,
    ) -> Result<(), ShardError> {
        let key = keys::key(self.0.shard, Kind::Meta, name.as_bytes());
        self.write(move |view| {
            let before = view.get(&key)?;
            let after = change(before.as_deref())?;
            if before.as_ref() != Some(&after) {
                view.put(key, after);
            }
            Ok(())
        })
        .await
    }
}
