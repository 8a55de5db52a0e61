//! Views with writes on top of them: what conflict checks read while earlier writes wait for their commit.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use super::kv::{Batch, Direction, KeyRange, StorageError, View};

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

    /// Removes `key`; fine when it is missing.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.own.delete(key);
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
            return Ok(value.clone());
        }
        if let Some(value) = self.group.writes().get(key) {
            return Ok(value.clone());
        }
        self.base.get(key)
    }

    fn scan(
        &self,
        range: &KeyRange,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let below = Overlay { base: self.base, top: self.group.writes() };
        Overlay { base: &below, top: self.own.writes() }.scan(range, direction, visit)
    }
}

/// `top` over `base`.
struct Overlay<'a> {
    base: &'a dyn View,
    top: &'a BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

impl View for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.top.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.base.get(key),
        }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let writes = self.top.range::<[u8], _>((Bound::Included(range.start.as_slice()), end));
        match direction {
            Direction::Forward => merge(self.base, range, direction, writes, |w, b| w < b, visit),
            Direction::Reverse => merge(self.base, range, direction, writes.rev(), |w, b| w > b, visit),
        }
    }
}

/// Visits the union of `base` and `writes`, both in scan order; `first(write, base)` = the write's key comes first.
fn merge<'t>(
    base: &dyn View,
    range: &KeyRange,
    direction: Direction,
    writes: impl Iterator<Item = (&'t Vec<u8>, &'t Option<Vec<u8>>)>,
    first: impl Fn(&[u8], &[u8]) -> bool,
    visit: &mut Visit<'_>,
) -> Result<(), StorageError> {
    let mut writes = writes.peekable();
    let mut stopped = false;
    base.scan(range, direction, &mut |key, value| {
        let mut flow = ControlFlow::Continue(());
        while let Some((write_key, write)) = writes.next_if(|(k, _)| first(k, key)) {
            if let Some(value) = write {
                flow = visit(write_key, value);
                if flow.is_break() {
                    stopped = true;
                    return flow;
                }
            }
        }
        match writes.next_if(|(k, _)| k.as_slice() == key) {
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
