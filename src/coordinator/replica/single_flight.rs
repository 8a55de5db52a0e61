//! Single-flight: work with another node that runs once at a time, and once more if it was requested meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What is being done with nodes. A blocking lock: held for map operations only.
#[derive(Default)]
pub(in crate::coordinator) struct SingleFlight(Mutex<BTreeMap<Arc<str>, bool>>);

impl SingleFlight {
    /// Whether it is to be begun; where it is being done it is noted that it is to be done again.
    pub(in crate::coordinator) fn begin(&self, node: &Arc<str>) -> bool {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match nodes.get_mut(node) {
            Some(again) => {
                *again = true;
                false
            }
            None => nodes.insert(Arc::clone(node), false).is_none(),
        }
    }

    /// Whether that was all.
    pub(in crate::coordinator) fn end(&self, node: &Arc<str>, is_over: bool) -> bool {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let again = nodes.insert(Arc::clone(node), false).unwrap_or(false);
        if is_over && !again {
            nodes.remove(node);
        }
        is_over && !again
    }
}
