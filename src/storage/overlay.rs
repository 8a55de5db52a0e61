//! Views with uncommitted writes on top: conflict checks read them while earlier writes wait for their commit.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, Deref};

use bytes::Bytes;

use super::kv::{Batch, Direction, KeyRange, Row, Rows, StorageError, View, Visit, keep_first};

/// A committed view, the writes of the jobs before in the same group, and those of this job. Reads see all three.
pub struct WriteView<'a> {
    base: &'a dyn View,
    group: &'a Batch,
    own: Batch,
    hooks: Vec<Hook>,
}

/// Runs after the commit of the group that it was added in is durable; dropped without a call when the commit failed.
pub type Hook = Box<dyn FnOnce() + Send>;

impl<'a> WriteView<'a> {
    /// A view for one job over `base` with the writes of `group` on top.
    pub fn new(base: &'a dyn View, group: &'a Batch) -> Self {
        WriteView { base, group, own: Batch::new(), hooks: Vec::new() }
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.own.put(key, value);
    }

    /// As [`WriteView::put`], of a value that stays where it is.
    pub fn put_shared(&mut self, key: Vec<u8>, value: Bytes) {
        self.own.put_shared(key, value);
    }

    /// Removes `key`; fine when it is missing.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.own.delete(key);
    }

    /// Makes all that was written to a shard up to and with this group void. Its number must never be used again.
    pub fn clear_shard(&mut self, shard: u64) {
        self.own.clear_shard(shard);
    }

    /// Calls `hook` on the committer's thread once the writes are durable, before any job of the group is answered.
    pub fn after_commit(&mut self, hook: impl FnOnce() + Send + 'static) {
        self.hooks.push(Box::new(hook));
    }

    /// The job's writes and hooks.
    pub fn into_parts(self) -> (Batch, Vec<Hook>) {
        (self.own, self.hooks)
    }
}

impl View for WriteView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        if let Some(value) = self.own.writes().get(key) {
            return Ok(value.as_deref().map(<[u8]>::to_vec));
        }
        if let Some(value) = self.group.writes().get(key) {
            return Ok(value.as_deref().map(<[u8]>::to_vec));
        }
        self.base.get(key)
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let below = Overlay { base: self.base, top: self.group.writes() };
        Overlay { base: &below, top: self.own.writes() }.scan(range, direction, visit)
    }

    fn first(&self, range: &KeyRange, direction: Direction) -> Result<Option<Row>, StorageError> {
        let below = Overlay { base: self.base, top: self.group.writes() };
        Overlay { base: &below, top: self.own.writes() }.first(range, direction)
    }
}

/// Writes in key order that lie on top of a view; `None` is a removal.
pub(super) trait Writes {
    /// The write to `key`, if there is one.
    fn find(&self, key: &[u8]) -> Option<Option<&[u8]>>;
    /// The writes of a range that is not empty, in the order of a scan.
    fn rows<'t>(&'t self, range: &KeyRange, direction: Direction) -> Rows<'t>;
    /// The first of them.
    fn first(&self, range: &KeyRange, direction: Direction) -> Option<Write<'_>>;
}

/// A key and what was written to it; `None` is a removal.
pub(super) type Write<'w> = (&'w [u8], Option<&'w [u8]>);

pub(super) fn bounds(range: &KeyRange) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(range.start.as_slice()), range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
}

impl<V: Deref<Target = [u8]>> Writes for BTreeMap<Vec<u8>, Option<V>> {
    fn find(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.get(key).map(Option::as_deref)
    }

    fn rows<'t>(&'t self, range: &KeyRange, direction: Direction) -> Rows<'t> {
        let rows = self.range::<[u8], _>(bounds(range)).map(|(k, v)| (k.as_slice(), v.as_deref()));
        match direction {
            Direction::Forward => Box::new(rows),
            Direction::Reverse => Box::new(rows.rev()),
        }
    }

    fn first(&self, range: &KeyRange, direction: Direction) -> Option<Write<'_>> {
        let mut rows = self.range::<[u8], _>(bounds(range));
        let (key, value) = match direction {
            Direction::Forward => rows.next(),
            Direction::Reverse => rows.next_back(),
        }?;
        Some((key, value.as_deref()))
    }
}

/// `top` over `base`.
pub(super) struct Overlay<'a, T> {
    pub base: &'a dyn View,
    pub top: &'a T,
}

impl<T: Writes> View for Overlay<'_, T> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.top.find(key) {
            Some(value) => Ok(value.map(<[u8]>::to_vec)),
            None => self.base.get(key),
        }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        merge(self.base, range, direction, self.top.rows(range, direction), visit)
    }

    fn first(&self, range: &KeyRange, direction: Direction) -> Result<Option<Row>, StorageError> {
        if range.is_empty() {
            return Ok(None);
        }
        let Some((key, write)) = self.top.first(range, direction) else { return self.base.first(range, direction) };
        match (self.base.first(range, direction)?, write) {
            (Some(row), _) if direction.meets_first(&row.0, key) => Ok(Some(row)),
            (_, Some(value)) => Ok(Some((key.to_vec(), value.to_vec()))),
            (_, None) => {
                // Behind a removal there may be many others.
                let mut found = None;
                self.scan(range, direction, &mut |key, value| keep_first(&mut found, key, value))?;
                Ok(found)
            }
        }
    }
}

/// Visits the union of `base` and `writes`, both in scan order.
fn merge(
    base: &dyn View,
    range: &KeyRange,
    direction: Direction,
    writes: Rows<'_>,
    visit: &mut Visit<'_>,
) -> Result<(), StorageError> {
    let mut writes = writes.peekable();
    let mut stopped = false;
    base.scan(range, direction, &mut |key, value| {
        let mut flow = ControlFlow::Continue(());
        while let Some((write_key, write)) = writes.next_if(|(k, _)| direction.meets_first(k, key)) {
            if let Some(value) = write {
                flow = visit(write_key, value);
                if flow.is_break() {
                    stopped = true;
                    return flow;
                }
            }
        }
        match writes.next_if(|(k, _)| *k == key) {
            Some((_, Some(value))) => flow = visit(key, value),
            Some((_, None)) => {}
            None => flow = visit(key, value),
        }
        stopped = flow.is_break();
        flow
    })?;
    while let (false, Some((key, write))) = (stopped, writes.next()) {
        if let Some(value) = write {
            stopped = visit(key, value).is_break();
        }
    }
    Ok(())
}
