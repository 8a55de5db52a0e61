//! A count of the panics of this process. A panic ends only its task or job, so a node that has had one goes on; the metric
//! `settee/panics` shows that there was one.
//!
//! Panics that a storage engine raises over a damaged file, and that are caught there, count as well.

use std::cell::Cell;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static INSTALLED: Once = Once::new();
static COUNTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OF_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Counts panics from now on; they are reported on standard error as before. A second call changes nothing.
pub fn count() {
    INSTALLED.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            COUNTED.fetch_add(1, Ordering::Relaxed);
            // Fails only on a thread that is ending.
            let _ = OF_THIS_THREAD.try_with(|counted| counted.set(counted.get() + 1));
            report(panic);
        }));
    });
}

/// Panics of this process since [`count`] was called.
pub fn counted() -> u64 {
    COUNTED.load(Ordering::Relaxed)
}

/// Those of the calling thread: the simulator runs a seed on a thread of its own.
pub fn of_this_thread() -> u64 {
    OF_THIS_THREAD.with(Cell::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_counts_also_when_it_is_caught() {
        count();
        count();
        let (before, here) = (counted(), of_this_thread());
        assert!(panic::catch_unwind(|| panic!("a planned panic")).is_err());
        // Other tests of this process may panic at the same time.
        assert!(counted() > before);
        assert_eq!(of_this_thread(), here + 1);
        let elsewhere = std::thread::spawn(|| panic::catch_unwind(|| panic!("another planned panic")).is_err());
        assert!(elsewhere.join().unwrap());
        assert_eq!(of_this_thread(), here + 1);
    }
}
