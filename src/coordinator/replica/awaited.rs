//! Calls of this node that change something once and whose answers it still waits for.
//!
//! A node that stood still, or a connection that did, may work a call off long after the caller counted it as
//! indeterminate and went on to another replica. Where that matters the called node asks whether the answer is still
//! awaited ([`Awaited::is_awaited`]) before it does anything.

use std::collections::BTreeSet;

use crate::coordinator::replica::calls::Awaits;
use crate::coordinator::replica::message::is_unknown_call;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::world::lock;
use crate::world::sync::Mutex;

/// The numbers of these calls. A blocking lock: held for set operations only.
#[derive(Debug, Default)]
pub(in crate::coordinator) struct Awaited(Mutex<BTreeSet<u64>>);

impl Awaited {
    /// The call counts until the guard is dropped.
    pub fn until_dropped(&self, call: u64) -> Guard<'_> {
        lock(&self.0).insert(call);
        Guard { awaited: self, call }
    }

    /// Whether the answer to that call is still of use.
    pub fn is_awaited(&self, call: u64) -> bool {
        lock(&self.0).contains(&call)
    }
}

/// See [`Awaited::until_dropped`].
pub(in crate::coordinator) struct Guard<'a> {
    awaited: &'a Awaited,
    call: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        lock(&self.awaited.0).remove(&self.call);
    }
}

/// A call that this node works off: who sent it, and its number there.
pub(in crate::coordinator) struct RemoteCaller {
    pub node: RemoteReplica,
    pub call: u64,
}

impl RemoteCaller {
    /// Whether the caller still waits. One that cannot be asked does not, as far as this node knows; one of an older
    /// build does not know the question and counts as waiting.
    pub async fn waits(&self) -> bool {
        match self.node.ask(Awaits(self.call)).await {
            Ok(waits) => waits,
            Err(error) => is_unknown_call(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_awaited_until_its_guard_goes() {
        let awaited = Awaited::default();
        let guard = awaited.until_dropped(7);
        let other = awaited.until_dropped(8);
        assert!(awaited.is_awaited(7) && awaited.is_awaited(8) && !awaited.is_awaited(9));
        drop(guard);
        assert!(!awaited.is_awaited(7) && awaited.is_awaited(8));
        drop(other);
        assert!(!awaited.is_awaited(8));
    }
}
