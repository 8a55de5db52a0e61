//! Memory that tasks share within a budget of bytes: bodies of requests and of calls between nodes, documents that are
//! answered to other nodes or pulled from them.
//!
//! A task takes its share before it reads the data, and holds it as long as the data is in memory. It waits in turn
//! until its share is free, and holds nothing of the same budget meanwhile. A task that needs more than the budget
//! takes all of it.
//!
//! Held bytes are counted apart from free ones: a simulated run fails if more is held than the budget has, or if a task
//! keeps a share for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::buggify::{self, Mutation, capped, mutated, weigh};

/// A budget. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    what: &'static str,
    /// A semaphore counts to four billion in one request: it counts units.
    unit_bytes: usize,
    units: usize,
    left: Arc<Semaphore>,
    held: AtomicUsize,
}

/// A share of it; dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    memory: Memory,
    units: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Memory {
    /// A budget of so many bytes, in units of so many. `what` names it in reports.
    pub fn new(what: &'static str, bytes: usize, unit_bytes: usize) -> Memory {
        let units = bytes.div_ceil(unit_bytes);
        let (left, held) = (Arc::new(Semaphore::new(units)), AtomicUsize::new(0));
        Memory(Arc::new(Inner { what, unit_bytes, units, left, held }))
    }

    /// One of those that nodes of a cluster need to serve each other: a simulated run may draw it small.
    pub fn between_nodes(what: &'static str, bytes: usize, unit_bytes: usize) -> Memory {
        Memory::new(what, capped("cluster: bytes of a budget", bytes), unit_bytes)
    }

    /// Waits until so many bytes are left, or all of them for more than there are.
    pub async fn take(&self, bytes: usize) -> Share {
        let units = self.units(bytes);
        let permit = match mutated(Mutation::MemoryIgnored) {
            true => None,
            // A budget is never closed.
            false => Arc::clone(&self.0.left).acquire_many_owned(number(units)).await.ok(),
        };
        self.hold(units);
        Share { memory: self.clone(), units, permit }
    }

    /// How many bytes are held.
    pub fn held_bytes(&self) -> usize {
        self.0.held.load(Ordering::Relaxed) * self.0.unit_bytes
    }

    fn units(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.0.unit_bytes).min(self.0.units)
    }

    fn hold(&self, units: usize) {
        let Inner { what, unit_bytes, units: all, held, .. } = &*self.0;
        let held = held.fetch_add(units, Ordering::Relaxed) + units;
        weigh(what, held * unit_bytes, all * unit_bytes);
        buggify::takes(what, units as i64);
    }

    fn give_back(&self, units: usize) {
        self.0.held.fetch_sub(units, Ordering::Relaxed);
        buggify::takes(self.0.what, -(units as i64));
    }
}

fn number(units: usize) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

impl Share {
    /// Makes it so many bytes at least, without waiting: who holds a share may keep others from giving theirs back.
    /// False: so many are not left.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let missing = self.memory.units(bytes).saturating_sub(self.units);
        if missing > 0 {
            let more = Arc::clone(&self.memory.0.left).try_acquire_many_owned(number(missing));
            match (more, &mut self.permit) {
                (Ok(more), Some(permit)) => permit.merge(more),
                (Ok(more), None) => self.permit = Some(more),
                (Err(_), _) => return false,
            }
            self.memory.hold(missing);
            self.units += missing;
        }
        true
    }

    /// Gives back what is above so many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let spare = self.units.saturating_sub(self.memory.units(bytes));
        if let Some(permit) = &mut self.permit {
            drop(permit.split(spare));
        }
        self.units -= spare;
        self.memory.give_back(spare);
    }

    /// The same bytes, held as long as anybody has them.
    pub fn with(self, bytes: Bytes) -> Bytes {
        if mutated(Mutation::MemoryLeaks) {
            std::mem::forget(self);
            return bytes;
        }
        Bytes::from_owner(Holding { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.give_back(self.units);
    }
}

struct Holding {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Holding {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const UNIT: usize = 1 << 10;

    #[tokio::test]
    async fn who_needs_more_than_there_is_waits_until_nobody_else_has_any() {
        let memory = Memory::new("a test", 8 * UNIT, UNIT);
        let some = memory.take(5 * UNIT).await;
        assert!(memory.take(4 * UNIT).now_or_never().is_none());
        let text = memory.take(3 * UNIT).await.with(Bytes::from_static(b"text"));
        let mut large = Box::pin(memory.take(100 * UNIT));
        drop(some);
        let part = text.slice(1..);
        drop(text);
        assert!(large.as_mut().now_or_never().is_none(), "a part of the text is held");
        assert_eq!((&part[..], memory.held_bytes()), (&b"ext"[..], 3 * UNIT));
        drop(part);
        assert!(large.now_or_never().is_some());
        assert_eq!(memory.held_bytes(), 0);
    }

    #[tokio::test]
    async fn a_share_grows_and_shrinks_and_is_counted() {
        let memory = Memory::new("a test", 4 * UNIT, UNIT);
        let (mut one, two) = (memory.take(1).await, memory.take(UNIT + 1).await);
        assert_eq!(memory.held_bytes(), 3 * UNIT);
        assert!(!one.grow(3 * UNIT) && one.grow(2 * UNIT) && one.grow(UNIT));
        assert_eq!(memory.held_bytes(), 4 * UNIT);
        drop(two);
        one.shrink(1);
        assert_eq!(memory.held_bytes(), UNIT);
        assert!(one.grow(100 * UNIT), "all of it");
        drop(one);
        assert_eq!((memory.held_bytes(), memory.take(4 * UNIT).now_or_never().is_some()), (0, true));
    }
}
