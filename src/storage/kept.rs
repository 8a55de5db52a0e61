//! A handle on what is committed that readers share until the next write.
//!
//! To begin a read costs an engine more than most reads take: several locks, and pages on the way to the table. What is
//! kept here was begun once and serves all readers of that state. It goes before a write begins, and none is kept while
//! one runs: so it holds back no page that a commit frees, and no reader gets it who came after the commit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module head.
pub(super) struct Kept<T>(Mutex<State<T>>);

struct State<T> {
    handle: Option<Arc<T>>,
    /// Writes that run.
    writers: usize,
    /// Changes when a write begins, and when it ends.
    moment: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Mutex::new(State { handle: None, writers: 0, moment: 0 }))
    }
}

/// A write that runs: no handle is kept meanwhile.
pub(super) struct Writing<'k, T>(&'k Kept<T>);

impl<T> Kept<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle that is kept; else what `begin` makes, which is kept unless a write has begun or ended meanwhile.
    pub fn get<E>(&self, begin: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let moment = {
            let state = self.state();
            if let Some(handle) = &state.handle {
                return Ok(Arc::clone(handle));
            }
            state.moment
        };
        // Without the lock: the engine may have it wait for a commit.
        let handle = Arc::new(begin()?);
        let mut state = self.state();
        if state.writers == 0 && state.moment == moment {
            state.handle = Some(Arc::clone(&handle));
        }
        Ok(handle)
    }

    /// Lets the handle go; none is kept until the answer is dropped.
    pub fn write(&self) -> Writing<'_, T> {
        let gone = {
            let mut state = self.state();
            state.writers += 1;
            state.moment += 1;
            state.handle.take()
        };
        drop(gone);
        Writing(self)
    }
}

impl<T> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.writers -= 1;
        state.moment += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(kept: &Kept<u32>, begin: impl FnOnce() -> u32) -> Arc<u32> {
        kept.get(|| Ok::<_, ()>(begin())).unwrap()
    }

    #[test]
    fn a_handle_serves_until_a_write_begins_and_one_begun_beside_a_write_serves_once() {
        let kept = Kept::default();
        assert_eq!((*get(&kept, || 1), *get(&kept, || 2)), (1, 1));
        let held = get(&kept, || 3);
        let writing = kept.write();
        assert_eq!(Arc::strong_count(&held), 1, "the write waits for no handle that is only kept");
        assert_eq!((*get(&kept, || 4), *get(&kept, || 5)), (4, 5));
        drop(writing);
        assert_eq!((*get(&kept, || 6), *get(&kept, || 7)), (6, 6));
    }

    #[test]
    fn a_handle_begun_before_a_write_is_not_kept_behind_it() {
        let kept = Kept::default();
        let before = get(&kept, || {
            drop(kept.write());
            1
        });
        assert_eq!((*before, *get(&kept, || 2)), (1, 2));
        let (first, second) = (Kept::default(), Kept::default());
        let (one, other) = (first.write(), first.write());
        drop(one);
        assert_eq!((*get(&first, || 1), *get(&first, || 2)), (1, 2), "the other one still runs");
        drop(other);
        assert!(second.get(|| Err::<u32, _>("away")).is_err());
        assert_eq!(*get(&second, || 3), 3);
    }
}
