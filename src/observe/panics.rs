//! A count of the panics of this process. A panic ends only its task or job, so a node that has had one goes on; the
//! metric `settee/panics` shows that there was one.
//!
//! Panics that a storage engine raises over a damaged file, and that are caught there, count as well.

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static INSTALLED: Once = Once::new();
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on; they are reported on standard error as before. A second call changes nothing.
pub fn count() {
    INSTALLED.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            COUNTED.fetch_add(1, Ordering::Relaxed);
            report(panic);
        }));
    });
}

/// Panics of this process since [`count`] was called.
pub fn counted() -> u64 {
    COUNTED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_counts_also_when_it_is_caught() {
        count();
        count();
        let before = counted();
        assert!(panic::catch_unwind(|| panic!("a planned panic")).is_err());
        // Other tests of this process may panic at the same time.
        assert!(counted() > before);
    }
}
