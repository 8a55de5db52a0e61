//! From which replica each range of a database was read last.
//!
//! Lists and feeds carry ETags made of the positions of the replicas that are read first. A replica that is read in
//! their stead, because those fail or fall behind, may lack what these positions stand for. So each change of the
//! replica that is read makes the ETags of before void: a client that holds one of them is sent the answer again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::database::Database;
use crate::world::lock;
use crate::world::sync::Mutex;

/// See the module head.
pub struct ReadFrom {
    /// The node of the replica of each range; a blocking lock, held for a look.
    last: Mutex<BTreeMap<usize, Arc<str>>>,
    /// Another number with each change, different from all others since the start of the node.
    state: AtomicU64,
}

impl ReadFrom {
    /// Of a handle that is opened.
    pub(in crate::coordinator) fn new(context: &Context) -> ReadFrom {
        ReadFrom { last: Mutex::default(), state: AtomicU64::new(next(context)) }
    }

    fn note(&self, context: &Context, range: usize, node: &Arc<str>) {
        let mut last = lock(&self.last);
        match last.get_mut(&range) {
            Some(before) if before == node => {}
            Some(before) => {
                *before = Arc::clone(node);
                self.state.store(next(context), Ordering::Relaxed);
            }
            None => drop(last.insert(range, Arc::clone(node))),
        }
    }
}

fn next(context: &Context) -> u64 {
    context.reader_changes.fetch_add(1, Ordering::Relaxed)
}

impl Database {
    /// Notes that a range with several replicas was read on a node; `None`: on this one.
    pub(in crate::coordinator) fn note_reader(&self, range: usize, node: Option<&Arc<str>>) {
        self.read_from.note(&self.context, range, node.unwrap_or(&self.context.node));
    }

    /// What ETags of lists and feeds are made of beside positions; the same until another replica is read. Where no
    /// range has several it is the same on each node, and after a start.
    pub fn read_state(&self) -> Vec<u8> {
        let layout = self.layout();
        if layout.map.live().iter().all(|range| layout.placed.replicas(*range) == 1) {
            return Vec::new();
        }
        [self.context.boot, self.read_from.state.load(Ordering::Relaxed)].map(u64::to_be_bytes).concat()
    }
}
