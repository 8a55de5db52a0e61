//! Snapshot cache: one handle on the committed state of a file, which readers share until the state changes.
//!
//! The start of a read costs an engine more than most reads take: several locks, and pages on the way to the table. Its
//! locks are also shared with the running commit and with readers of low priority, which may lose the processor while
//! they hold one: a reader waited for up to 10 ms. The cached handle was opened once and serves all readers of that
//! state, those during a write included: until the write ends they may see either state. The handle is dropped when the
//! write ends, so that no reader that comes after the commit gets it.

use std::sync::Arc;

use crate::world::sync::{Mistake, Mutex, MutexGuard, mistaken};
use crate::world::{lock, waiting};

/// See the module head.
pub(super) struct SnapshotCache<T>(Mutex<State<T>>);

struct State<T> {
    handle: Option<Arc<T>>,
    /// Those who need the engine for themselves.
    alone: usize,
    /// Changes when a handle that was begun before must not be kept any more.
    moment: u64,
}

impl<T> Default for SnapshotCache<T> {
    fn default() -> SnapshotCache<T> {
        SnapshotCache(Mutex::new(State { handle: None, alone: 0, moment: 0 }))
    }
}

/// A write that runs: when this is dropped, the handle goes.
pub(super) struct Writing<'k, T>(&'k SnapshotCache<T>);

/// Somebody who needs the engine for himself: no handle is kept meanwhile.
pub(super) struct Alone<'k, T>(&'k SnapshotCache<T>);

impl<T> SnapshotCache<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.0)
    }

    /// The handle that is kept; else what `begin` makes, which is kept unless a write has ended meanwhile.
    pub fn get<E>(&self, begin: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let moment = {
            let state = self.state();
            if let Some(handle) = &state.handle {
                return Ok(Arc::clone(handle));
            }
            state.moment
        };
        // Without the lock: the engine may have it wait for a commit.
        let handle = Arc::new(waiting(begin)?);
        let mut state = self.state();
        if state.alone == 0 && (state.moment == moment || mistaken(Mistake::HandleOutlivesWrite)) {
            state.handle = Some(Arc::clone(&handle));
        }
        Ok(handle)
    }

    /// Lets the handle go.
    pub fn let_go(&self) {
        let gone = {
            let mut state = self.state();
            state.moment += 1;
            state.handle.take()
        };
        // Without the lock: to end a read takes those of the engine.
        drop(gone);
    }

    /// Lets the handle go when the answer is dropped.
    pub fn write(&self) -> Writing<'_, T> {
        Writing(self)
    }

    /// Lets the handle go; none is kept until the answer is dropped.
    pub fn alone(&self) -> Alone<'_, T> {
        self.state().alone += 1;
        self.let_go();
        Alone(self)
    }
}

impl<T> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl<T> Drop for Alone<'_, T> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

#[cfg(test)]
mod tests {
    use shuttle::thread;

    use super::*;
    use crate::world::model::{check, check_finds};

    fn get(kept: &SnapshotCache<u32>, begin: impl FnOnce() -> u32) -> Arc<u32> {
        kept.get(|| Ok::<_, ()>(begin())).unwrap()
    }

    #[test]
    fn a_handle_serves_until_a_write_ends() {
        let kept = SnapshotCache::default();
        assert_eq!((*get(&kept, || 1), *get(&kept, || 2)), (1, 1));
        let writing = kept.write();
        assert_eq!(*get(&kept, || 3), 1);
        let held = get(&kept, || 4);
        drop(writing);
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!((*get(&kept, || 5), *get(&kept, || 6)), (5, 5));
        let writing = kept.write();
        kept.let_go();
        assert_eq!(
            (*get(&kept, || 7), *get(&kept, || 8)),
            (7, 7),
            "begun beside a write it serves as long as that runs"
        );
        drop(writing);
        assert_eq!(*get(&kept, || 9), 9);
    }

    #[test]
    fn a_handle_begun_before_the_end_of_a_write_is_not_kept_behind_it() {
        let kept = SnapshotCache::default();
        let before = get(&kept, || {
            drop(kept.write());
            1
        });
        assert_eq!((*before, *get(&kept, || 2)), (1, 2));
        assert!(SnapshotCache::default().get(|| Err::<u32, _>("away")).is_err());
    }

    #[test]
    fn who_is_alone_waits_for_no_handle_that_is_only_kept() {
        let kept = SnapshotCache::default();
        let held = get(&kept, || 1);
        let (one, other) = (kept.alone(), kept.alone());
        assert_eq!(Arc::strong_count(&held), 1);
        drop(one);
        assert_eq!((*get(&kept, || 2), *get(&kept, || 3)), (2, 3), "the other one is still there");
        drop(other);
        assert_eq!((*get(&kept, || 4), *get(&kept, || 5)), (4, 4));
    }

    /// Two writes, three reads and somebody who needs the engine alone.
    fn reads_beside_writes() {
        let kept: Arc<SnapshotCache<u64>> = Arc::default();
        // What the engine has committed, and up to where who waited for a write was told of it.
        let (committed, answered) = (Arc::new(Mutex::new(0_u64)), Arc::new(Mutex::new(0_u64)));
        let writer = {
            let (kept, committed, answered) = (Arc::clone(&kept), Arc::clone(&committed), Arc::clone(&answered));
            move || {
                for _ in 0..2 {
                    let writing = kept.write();
                    *lock(&committed) += 1;
                    drop(writing);
                    *lock(&answered) += 1;
                }
            }
        };
        let reader = {
            let kept = Arc::clone(&kept);
            move || {
                for _ in 0..2 {
                    let before = *lock(&answered);
                    let shown = kept.get(|| Ok::<_, ()>(*lock(&committed))).unwrap();
                    assert!(*shown >= before, "a read shows {shown} and began after {before} was answered");
                }
            }
        };
        let alone = {
            let kept = Arc::clone(&kept);
            move || {
                let alone = kept.alone();
                for _ in 0..2 {
                    assert!(kept.state().handle.is_none(), "nothing is kept while somebody is alone");
                }
                drop(alone);
            }
        };
        let threads = [thread::spawn(writer), thread::spawn(reader.clone()), thread::spawn(alone)];
        reader();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_read_shows_what_was_answered_before_it_whatever_threads_do() {
        check(reads_beside_writes);
    }

    #[test]
    fn the_model_of_kept_handles_finds_one_that_outlives_a_write() {
        check_finds(Mistake::HandleOutlivesWrite, reads_beside_writes);
    }
}
