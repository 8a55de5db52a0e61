//! Panics of a run that are caught within it. One that is not caught ends the run; one that the node catches, as around
//! its storage engine, would go unseen.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

static INSTALLED: Once = Once::new();

thread_local! {
    /// A run has a thread of its own.
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// Counts panics from now on, on every thread for itself; they are reported as before.
pub(super) fn count() {
    INSTALLED.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // Fails only on a thread that is ending.
            let _ = COUNTED.try_with(|counted| counted.set(counted.get() + 1));
            report(panic);
        }));
    });
}

/// Panics of this thread.
pub(super) fn counted() -> u64 {
    COUNTED.with(Cell::get)
}
