//! Local documents, which are not replicated and have no history, and the small values of upper layers.

use std::ops::{Bound, ControlFlow};

use super::keys::{self, Kind};
use super::list::bounded_scan;
use super::record::{decode_register, encode_register};
use super::split;
use super::{LocalDocument, LocalRegister, ShardCopy, ShardError, Stamp};
use crate::document::id::DocId;
use crate::storage::{Direction, StorageError, View};

impl ShardCopy {
    /// A local document; `id` begins with `_local/`.
    pub async fn local_get(&self, id: &DocId) -> Result<Option<LocalDocument>, ShardError> {
        Ok(self.local_register(id).await?.and_then(|register| register.document))
    }

    /// What is kept of a local document, the mark of a deletion included.
    pub async fn local_register(&self, id: &DocId) -> Result<Option<LocalRegister>, ShardError> {
        let key = keys::key(self.0.shard, Kind::Local, id.as_str().as_bytes());
        self.read_brief(move |view, _| view.get(&key)?.map(decode_register).transpose()).await
    }

    /// Stores a local document whatever was there, or removes it; answers the stamp that this has. The caller chooses
    /// the revision number (golden facts 'Local documents': one more than the given one, 1 without). `by` names the
    /// coordinator; with `mark` a deletion leaves its stamp, which the other copies need.
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

    /// Takes in registers of another copy: of each the one with the higher stamp stays. Answers those that stayed.
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

    /// Registers in id order behind `after`, at most `limit`; fewer mean that there are no more.
    pub async fn local_registers(
        &self,
        after: Bound<DocId>,
        limit: usize,
    ) -> Result<Vec<(DocId, LocalRegister)>, ShardError> {
        self.local_scan((after, Bound::Unbounded), Direction::Forward, limit, |id, register| Some((id, register))).await
    }

    /// Local documents in id order, at most `limit`; fewer mean that the range has no more.
    pub async fn local_list(
        &self,
        start: Bound<DocId>,
        end: Bound<DocId>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<(DocId, LocalDocument)>, ShardError> {
        let live = |id, register: LocalRegister| Some((id, register.document?));
        self.local_scan((start, end), direction, limit, live).await
    }

    /// At most `limit` of what `pick` takes of the registers in a range.
    async fn local_scan<T: Send + 'static>(
        &self,
        (start, end): (Bound<DocId>, Bound<DocId>),
        direction: Direction,
        limit: usize,
        pick: impl Fn(DocId, LocalRegister) -> Option<T> + Copy + Send + 'static,
    ) -> Result<Vec<T>, ShardError> {
        let mut rest = Some(keys::ids(self.0.shard, Kind::Local, &start, &end));
        let mut out: Vec<T> = Vec::new();
        while let (true, Some(range)) = (out.len() < limit, rest.take()) {
            let left = limit - out.len();
            let step = self.read(move |view, _| {
                let mut rows = Vec::new();
                let rest = bounded_scan(view, range, direction, |key, value| {
                    rows.extend(pick(keys::id_of(key)?, decode_register(value.to_vec())?));
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
        self.read_brief(move |view, _| view.get(&key)).await
    }

    /// Stores such a value, durable on return; `None` removes it.
    pub async fn meta_put(&self, name: &str, value: Option<Vec<u8>>) -> Result<(), ShardError> {
        self.meta_put_all(vec![(name.to_owned(), value)]).await
    }

    /// As [`ShardCopy::meta_put`], several of them in one commit.
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
