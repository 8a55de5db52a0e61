//! Password checks that are slow once and fast afterwards.
//!
//! A correct pair of name and password is remembered under an HMAC of both with a key of this start, together with the
//! stored hash that it was checked against: once that changes, the memory is worth nothing. Requests that bring the
//! same new pair at the same time share one computation. Wrong pairs are not remembered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::{OnceCell, Semaphore};

use super::AuthError;
use super::password::StoredHash;
use crate::limits;
use crate::world::{Env, Pool};

type PairKey = [u8; 32];

/// Checks passwords. One per node.
pub(super) struct Verifier {
    env: Env,
    key: [u8; 32],
    known: Mutex<Known>,
    turns: Semaphore,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Known {
    checks: BTreeMap<PairKey, Check>,
    /// The pairs by the time of their first check: the oldest goes first.
    order: BTreeMap<u64, PairKey>,
    next: u64,
}

#[derive(Clone)]
struct Check {
    against: StoredHash,
    verdict: Arc<OnceCell<bool>>,
    order: u64,
}

impl Verifier {
    pub(super) fn new(env: &Env) -> Verifier {
        Verifier {
            env: env.clone(),
            key: env.random_bytes(),
            known: Mutex::default(),
            turns: Semaphore::new(limits::PASSWORD_CHECKS_AT_ONCE),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Whether `password` is the one that `stored` was made of.
    pub(super) async fn verify(&self, name: &str, password: &[u8], stored: &StoredHash) -> Result<bool, AuthError> {
        let key = self.pair_key(name, password);
        let check = self.lock().open(key, stored);
        let verdict = check.verdict.get_or_try_init(|| self.compute(password, stored)).await.copied();
        if verdict != Ok(true) {
            self.lock().forget(key, &check);
        }
        verdict
    }

    async fn compute(&self, password: &[u8], stored: &StoredHash) -> Result<bool, AuthError> {
        let _waiting = Waiting::enter(&self.waiting).ok_or(AuthError::Busy)?;
        let _turn = self.turns.acquire().await.map_err(|_| AuthError::Busy)?;
        let (password, stored) = (password.to_vec(), stored.clone());
        Ok(self.env.blocking(Pool::Foreground, move || stored.matches(&password)).await)
    }

    fn pair_key(&self, name: &str, password: &[u8]) -> PairKey {
        // Invariant: HMAC takes keys of any length.
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.key).expect("HMAC takes any key");
        mac.update(&(name.len() as u64).to_be_bytes());
        mac.update(name.as_bytes());
        mac.update(password);
        mac.finalize().into_bytes().into()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The check of this pair against this stored hash, new if there is none.
    fn open(&mut self, key: PairKey, stored: &StoredHash) -> Check {
        if let Some(check) = self.checks.get(&key).filter(|c| c.against == *stored) {
            return check.clone();
        }
        if let Some(outdated) = self.checks.remove(&key) {
            self.order.remove(&outdated.order);
        }
        while self.checks.len() >= limits::VERIFIED_CREDENTIALS_MAX {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.checks.remove(&oldest);
        }
        let check = Check { against: stored.clone(), verdict: Arc::default(), order: self.next };
        self.next += 1;
        self.order.insert(check.order, key);
        self.checks.insert(key, check.clone());
        assert_eq!(self.checks.len(), self.order.len(), "each remembered check has its place in the order");
        check
    }

    fn forget(&mut self, key: PairKey, check: &Check) {
        if self.checks.get(&key).is_some_and(|c| c.order == check.order) {
            self.checks.remove(&key);
            self.order.remove(&check.order);
        }
    }
}

/// A place in the queue, given back when dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Option<Waiting<'a>> {
        let room = limits::PASSWORD_CHECKS_AT_ONCE + limits::PASSWORD_CHECKS_WAITING_MAX;
        count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < room).then_some(n + 1))
            .ok()
            .map(|_| Waiting(count))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
