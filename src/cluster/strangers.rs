//! Connections to the cluster port whose other side has not yet proven that it knows the secret.
//!
//! Any machine can open such connections and stay silent, so their number is bounded for each address and in all; a new
//! connection replaces the oldest one. Members greet within a few round trips, so the replaced connection is rarely
//! that of a member. Connections of an address from which a member has proven itself before are replaced last.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::limits;

/// See the module head. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Strangers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    /// In the order in which they came.
    greeting: Vec<Greeting>,
    /// Addresses from which members have come.
    proven: BTreeSet<IpAddr>,
}

struct Greeting {
    number: u64,
    from: IpAddr,
    /// Ends the connection when it is dropped.
    _keep: oneshot::Sender<()>,
}

/// A place among them, until it is dropped.
pub(super) struct Place {
    strangers: Strangers,
    number: u64,
    from: IpAddr,
}

impl Place {
    /// The other side has proven who it is.
    pub fn note_proven(self) {
        let mut state = self.strangers.state();
        if state.proven.len() < limits::CLUSTER_PROVEN_ADDRESSES {
            state.proven.insert(self.from);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.state().greeting.retain(|one| one.number != self.number);
    }
}

impl Strangers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection. The receiver ends when another one takes it.
    pub fn enter(&self, from: IpAddr) -> (Place, oneshot::Receiver<()>) {
        let (keep, ended) = oneshot::channel();
        let mut state = self.state();
        if let Some(at) = state.superfluous(from) {
            state.greeting.remove(at);
        }
        let number = state.next;
        state.next += 1;
        state.greeting.push(Greeting { number, from, _keep: keep });
        (Place { strangers: self.clone(), number, from }, ended)
    }
}

impl State {
    /// Which one makes way for a new one.
    fn superfluous(&self, from: IpAddr) -> Option<usize> {
        let of_address = self.greeting.iter().filter(|one| one.from == from).count();
        if of_address >= limits::CLUSTER_GREETINGS_PER_ADDRESS {
            return self.greeting.iter().position(|one| one.from == from);
        }
        if self.greeting.len() < limits::CLUSTER_GREETINGS_MAX {
            return None;
        }
        let stranger = self.greeting.iter().position(|one| !self.proven.contains(&one.from));
        stranger.or(Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    fn has_ended(ended: &mut oneshot::Receiver<()>) -> bool {
        matches!(ended.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn an_address_pushes_out_its_own_connections_first() {
        let strangers = Strangers::default();
        let mut other = strangers.enter(address(2));
        let mut own: Vec<_> =
            (0..=limits::CLUSTER_GREETINGS_PER_ADDRESS).map(|_| strangers.enter(address(1))).collect();
        let ended: Vec<bool> = own.iter_mut().map(|(_, ended)| has_ended(ended)).collect();
        assert!(ended[0] && !ended[1..].contains(&true) && !has_ended(&mut other.1));
    }

    #[test]
    fn the_oldest_goes_but_that_of_a_member_last() {
        let strangers = Strangers::default();
        strangers.enter(address(0)).0.note_proven();
        let mut all: Vec<_> = (0..limits::CLUSTER_GREETINGS_MAX).map(|n| strangers.enter(address(n as u8))).collect();
        let new = strangers.enter(address(255));
        assert!(!has_ended(&mut all[0].1) && has_ended(&mut all[1].1) && !has_ended(&mut all[2].1));
        drop(new);
        // A place that is free again is taken by nobody's cost.
        let _next = strangers.enter(address(254));
        assert!(!has_ended(&mut all[2].1));
    }
}
