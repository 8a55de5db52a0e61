//! Memory that request bodies share: taken as bytes arrive, with room kept for small bodies, bounded per address.
//!
//! A body that finds no room waits for room, or to become the leader: one body at a time may continue although the room
//! is taken, so that bodies that each hold a part of it cannot wait for each other for ever.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::by_address::ByAddress;
use super::problem::{Problem, Result};
use crate::limits;
use crate::world::buggify::{takes, weigh};
use crate::world::sync::Mutex;
use crate::world::{Env, lock};

/// What it is called in reports.
const WHAT: &str = "memory of bodies of requests";

/// The memory of all bodies, in units of `limits::HTTP_CHUNK_BYTES`.
pub struct Bodies {
    large: Arc<Semaphore>,
    small: Arc<Semaphore>,
    leader: Arc<Semaphore>,
    by_address: Mutex<ByAddress>,
    address_max: usize,
    /// Units of permits that are held, counted apart from what is left: a simulated run looks at both.
    held: AtomicUsize,
    max: usize,
}

impl Bodies {
    /// The memory that `limits` names.
    pub fn new() -> Arc<Bodies> {
        Bodies::of(units(limits::HTTP_BODIES_BYTES), units(limits::HTTP_SMALL_BODIES_BYTES))
    }

    /// So many units for all bodies, and so many kept for small ones.
    pub(super) fn of(large: usize, small: usize) -> Arc<Bodies> {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let address_max = units(limits::HTTP_ADDRESS_BODIES_BYTES).min(large);
        let (by_address, held, max) = (Mutex::default(), AtomicUsize::new(0), large + small);
        let (large, small, leader) = (semaphore(large), semaphore(small), semaphore(1));
        Arc::new(Bodies { large, small, leader, by_address, address_max, held, max })
    }

    /// Units that are free, those for small bodies included.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.large.available_permits() + self.small.available_permits()
    }

    /// Bytes that are held, but for those that a leader takes beyond.
    pub fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed) * limits::HTTP_CHUNK_BYTES
    }

    fn hold(&self, units: usize) {
        self.held.fetch_add(units, Ordering::Relaxed);
        weigh(WHAT, self.held_bytes(), self.max * limits::HTTP_CHUNK_BYTES);
        takes(WHAT, units as i64);
    }

    fn give_back(&self, units: usize) {
        self.held.fetch_sub(units, Ordering::Relaxed);
        takes(WHAT, -(units as i64));
    }

    fn has_room(&self, address: IpAddr, units: usize) -> bool {
        lock(&self.by_address).held(address) + units <= self.address_max
    }

    fn count(&self, address: IpAddr, units: usize) {
        lock(&self.by_address).add(address, units);
    }

    fn uncount(&self, address: IpAddr, units: usize) {
        lock(&self.by_address).remove(address, units);
    }
}

/// What one body holds of it. Dropped, it gives all back.
pub struct Share {
    bodies: Arc<Bodies>,
    address: IpAddr,
    small: Option<OwnedSemaphorePermit>,
    large: Option<OwnedSemaphorePermit>,
    leads: Option<OwnedSemaphorePermit>,
    /// Units that count: those of the permits and, for a leader, those that it took beyond.
    held: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.bodies.uncount(self.address, self.large_units());
        self.bodies.give_back(self.large_units() + self.small.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
    }
}

impl Share {
    /// Nothing yet, for a client at `address`.
    pub fn none(bodies: Arc<Bodies>, address: IpAddr) -> Share {
        Share { bodies, address, small: None, large: None, leads: None, held: 0 }
    }

    fn large_units(&self) -> usize {
        self.large.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Takes as much as is missing to `bytes`; waits for room or for the lead.
    ///
    /// # Errors
    /// 503 when neither comes within `limits::HTTP_BODY_WAIT_MS`.
    pub async fn grow(&mut self, env: Option<&Env>, bytes: u64) -> Result<()> {
        let wanted = units(bytes);
        if wanted <= self.held {
            return Ok(());
        }
        self.take_small(wanted);
        let missing = wanted.saturating_sub(self.held);
        if missing == 0 || self.leads.is_some() || self.take_large(missing) {
            self.held = wanted;
            return Ok(());
        }
        let count = u32::try_from(missing.min(units(limits::HTTP_BODIES_BYTES))).unwrap_or(u32::MAX);
        let lead = Box::pin(Arc::clone(&self.bodies.leader).acquire_owned());
        let busy = || Problem::unavailable("Too many large requests at once.").retry_later();
        let Some(env) = env else { return Err(busy()) };
        let limit = Duration::from_millis(limits::HTTP_BODY_WAIT_MS);
        if self.bodies.has_room(self.address, missing) {
            let room = Box::pin(Arc::clone(&self.bodies.large).acquire_many_owned(count));
            match env.timeout(limit, select(lead, room)).await.map_err(|_| busy())? {
                futures_util::future::Either::Left((lead, _)) => self.leads = lead.ok(),
                futures_util::future::Either::Right((room, _)) => self.add(room.map_err(|_| busy())?),
            }
        } else {
            self.leads = env.timeout(limit, lead).await.map_err(|_| busy())?.ok();
        }
        self.held = wanted;
        Ok(())
    }

    fn take_small(&mut self, wanted: usize) {
        let most = wanted.min(units(limits::HTTP_SMALL_BODY_BYTES)).saturating_sub(self.held);
        let taken = Arc::clone(&self.bodies.small).try_acquire_many_owned(u32::try_from(most).unwrap_or(u32::MAX));
        if let Ok(taken) = taken {
            self.bodies.hold(most);
            self.held += most;
            match &mut self.small {
                Some(small) => small.merge(taken),
                None => self.small = Some(taken),
            }
        }
    }

    fn take_large(&mut self, units: usize) -> bool {
        if !self.bodies.has_room(self.address, units) {
            return false;
        }
        let taken = Arc::clone(&self.bodies.large).try_acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX));
        taken.map(|taken| self.add(taken)).is_ok()
    }

    fn add(&mut self, taken: OwnedSemaphorePermit) {
        self.bodies.count(self.address, taken.num_permits());
        self.bodies.hold(taken.num_permits());
        match &mut self.large {
            Some(large) => large.merge(taken),
            None => self.large = Some(taken),
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Gives back what is beyond `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        let beyond = self.held.saturating_sub(units(bytes)).min(self.large_units());
        self.held -= beyond;
        self.bodies.uncount(self.address, beyond);
        self.bodies.give_back(beyond);
        drop(self.large.as_mut().and_then(|large| large.split(beyond)));
    }
}

fn units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(limits::HTTP_CHUNK_BYTES as u64)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::{Bodies, Share};
    use crate::limits::HTTP_CHUNK_BYTES;
    use crate::world::tokio_host;

    #[test]
    fn bodies_that_hold_a_part_each_do_not_wait_for_each_other_for_ever() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        runtime.block_on(async {
            let bodies = Bodies::of(4, 0);
            let at = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
            let mut shares: Vec<Share> = (1..=4).map(|n| Share::none(Arc::clone(&bodies), at(n))).collect();
            for share in &mut shares {
                share.grow(Some(&env), 1).await.unwrap();
            }
            let more = 3 * HTTP_CHUNK_BYTES as u64;
            shares[0].grow(Some(&env), more).await.unwrap();
            assert!(shares[1].grow(Some(&env), more).now_or_never().is_none(), "one leads at a time");
            shares.remove(0);
            shares[0].grow(Some(&env), more).await.unwrap();
            drop(shares);
            assert_eq!((bodies.free(), bodies.held_bytes()), (4, 0));
        });
    }
}
