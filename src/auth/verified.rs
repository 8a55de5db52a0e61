//! Cache of verified passwords: a password check is slow once and fast afterwards.
//!
//! A correct pair of name and password is remembered under an HMAC of both with a key of this start, together with the
//! stored hash that it was checked against: if that hash changes, the entry is void. Requests that bring the same new
//! pair at the same time share one computation. Wrong pairs are not remembered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::{OnceCell, Semaphore};

use super::AuthError;
use super::password::{Cost, StoredHash};
use crate::limits;
use crate::observe::metrics::{Counter, Gauge};
use crate::world::{Env, Pool};

type PairKey = [u8; 32];

/// Checks passwords. One per node.
pub(super) struct Verifier {
    env: Env,
    key: [u8; 32],
    known: Mutex<Known>,
    permits: Semaphore,
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
    /// The stored hash.
    against: Arc<StoredHash>,
    outcome: Arc<OnceCell<bool>>,
    order: u64,
}

impl Verifier {
    pub(super) fn new(env: &Env) -> Verifier {
        Verifier {
            env: env.clone(),
            key: env.random_bytes(),
            known: Mutex::default(),
            permits: Semaphore::new((env.host().cores() / 2).clamp(1, limits::PASSWORD_CHECKS_AT_ONCE)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Whether `password` is the one that `stored` was made of.
    pub(super) async fn verify(&self, name: &str, password: &[u8], stored: &StoredHash) -> Result<bool, AuthError> {
        let key = self.pair_key(name, password);
        let asked = Asked { verifier: self, key, check: self.lock().open(key, stored) };
        if asked.check.outcome.get() == Some(&true) {
            self.env.metrics().count(Counter::PasswordsRemembered);
        }
        let compute = || {
            let (stored, password) = (stored.clone(), password.to_vec());
            self.run(move || stored.matches(&password))
        };
        asked.check.outcome.get_or_try_init(compute).await.copied()
    }

    /// Whether this pair was right before and is still known, so that [`Verifier::verify`] computes nothing.
    pub(super) fn remembers(&self, name: &str, password: &[u8], stored: &StoredHash) -> bool {
        let known = self.lock();
        let check = known.checks.get(&self.pair_key(name, password));
        check.is_some_and(|check| *check.against == *stored && check.outcome.get() == Some(&true))
    }

    /// Takes as long as checking a password would, so that the time does not tell which names there are.
    pub(super) async fn verify_nothing(&self, password: &[u8], cost: Cost) -> Result<(), AuthError> {
        self.hash(password, cost).await.map(drop)
    }

    /// Hashes a new password.
    pub(super) async fn hash(&self, password: &[u8], cost: Cost) -> Result<StoredHash, AuthError> {
        let (salt, password) = (self.env.random_bytes::<16>(), password.to_vec());
        self.run(move || StoredHash::create(&password, salt, cost)).await
    }

    /// Runs slow work when it is its turn.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, AuthError> {
        let _counted = self.env.metrics().enter(Gauge::PasswordsWaiting);
        let _waiting = Waiting::enter(&self.waiting).ok_or(AuthError::Busy)?;
        let _permit = self.permits.acquire().await.map_err(|_| AuthError::Busy)?;
        self.env.metrics().count(Counter::PasswordsComputed);
        Ok(self.env.blocking(Pool::Foreground, work).await)
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
        if let Some(check) = self.checks.get(&key).filter(|c| *c.against == *stored) {
            return check.clone();
        }
        if let Some(outdated) = self.checks.remove(&key) {
            self.order.remove(&outdated.order);
        }
        while self.checks.len() >= limits::VERIFIED_CREDENTIALS_MAX {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.checks.remove(&oldest);
        }
        let check = Check { against: Arc::new(stored.clone()), outcome: Arc::default(), order: self.next };
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

/// A check that a request waits for. Dropped, also with the request's connection, it leaves only what was right in the
/// memory: pairs that were never verified must not push out those that were.
struct Asked<'a> {
    verifier: &'a Verifier,
    key: PairKey,
    check: Check,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut known = self.verifier.lock();
        // Given up under the lock, so that exactly one of several finds itself the last: the memory's own and this one.
        let outcome = std::mem::take(&mut self.check.outcome);
        if outcome.get() != Some(&true) && Arc::strong_count(&outcome) <= 2 {
            known.forget(self.key, &self.check);
        }
        drop(outcome);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::world::{Abort, BoxFuture, BoxStream, Budget, Disk, Host, Instant, Job, Listener, Worker, tokio_host};

    /// The production host, counting blocking jobs.
    struct Counting(Env, AtomicU64);

    impl Host for Counting {
        fn connect(&self, to: std::net::SocketAddr) -> BoxFuture<'static, std::io::Result<BoxStream>> {
            self.0.host().connect(to)
        }
        fn listen(&self, at: std::net::SocketAddr) -> BoxFuture<'static, std::io::Result<Box<dyn Listener>>> {
            self.0.host().listen(at)
        }
        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            self.0.host().sleep(duration)
        }
        fn monotonic(&self) -> Instant {
            self.0.host().monotonic()
        }
        fn wall(&self) -> Duration {
            self.0.host().wall()
        }
        fn spawn(&self, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
            self.0.host().spawn(task)
        }
        fn run_blocking(&self, pool: Pool, job: Job) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.host().run_blocking(pool, job);
        }
        fn worker(&self, pool: Pool, name: &str, stack_bytes: usize) -> Arc<dyn Worker> {
            self.0.worker(pool, name, stack_bytes)
        }
        fn budget(&self, limit: Duration) -> Budget {
            self.0.budget(limit)
        }
        fn random(&self, buffer: &mut [u8]) {
            self.0.host().random(buffer);
        }
        fn disk(&self) -> Arc<dyn Disk> {
            self.0.disk()
        }
    }

    #[test]
    fn a_right_password_is_hashed_once_and_a_wrong_one_each_time() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let host = Arc::new(Counting(tokio_host::env(runtime.handle().clone()), AtomicU64::new(0)));
        let verifier = Verifier::new(&Env::new(host.clone()));
        let [stored, changed] = [[1; 16], [2; 16]].map(|salt| StoredHash::create(b"p", salt, 50));
        let hashes = || host.1.load(Ordering::Relaxed);
        runtime.block_on(async {
            let all = (0..20).map(|_| verifier.verify("n", b"p", &stored));
            assert!(futures_util::future::join_all(all).await.iter().all(|v| *v == Ok(true)));
            assert_eq!(hashes(), 1, "requests at the same time share one computation");
            let remembered = |name: &str, password: &[u8], hash: &StoredHash| verifier.remembers(name, password, hash);
            assert!(
                remembered("n", b"p", &stored) && !remembered("n", b"p", &changed) && !remembered("n", b"x", &stored)
            );
            assert_eq!(verifier.verify("n", b"p", &stored).await, Ok(true));
            assert_eq!(hashes(), 1);
            assert_eq!(verifier.verify("n", b"x", &stored).await, Ok(false));
            assert_eq!(verifier.verify("n", b"x", &stored).await, Ok(false));
            assert_eq!(verifier.verify("np", b"", &stored).await, Ok(false));
            assert_eq!(hashes(), 4);
            assert_eq!(verifier.verify("n", b"p", &changed).await, Ok(true));
            assert_eq!(hashes(), 5, "a changed hash is checked anew");
            assert_eq!(verifier.lock().checks.len(), 1, "only right pairs are remembered");
        });
    }

    #[test]
    fn a_dropped_connection_leaves_no_unverified_pair_and_takes_none_from_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let verifier = Verifier::new(&tokio_host::env(runtime.handle().clone()));
        // Slow enough that no check is over before all have begun.
        let stored = StoredHash::create(b"p", [1; 16], 400_000);
        runtime.block_on(async {
            let [mut first, mut second, mut alone] =
                [b"p", b"p", b"x"].map(|p| Box::pin(verifier.verify("n", p, &stored)));
            for waiting in [&mut first, &mut second, &mut alone] {
                assert!(waiting.as_mut().now_or_never().is_none());
            }
            drop(alone);
            assert_eq!(verifier.lock().checks.len(), 1);
            drop(first);
            assert_eq!(second.await, Ok(true));
            assert_eq!(verifier.lock().checks.len(), 1, "the other request's pair is remembered");
        });
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes() {
        let mut known = Known::default();
        let stored = StoredHash::parse("-hashed-00,salt").unwrap();
        let key = |n: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_be_bytes());
            key
        };
        for n in 0..=limits::VERIFIED_CREDENTIALS_MAX {
            known.open(key(n), &stored);
        }
        assert_eq!(known.checks.len(), limits::VERIFIED_CREDENTIALS_MAX);
        assert!(!known.checks.contains_key(&key(0)) && known.checks.contains_key(&key(1)));
    }

    #[test]
    fn too_many_waiting_are_turned_away() {
        let count = AtomicUsize::new(limits::PASSWORD_CHECKS_AT_ONCE + limits::PASSWORD_CHECKS_WAITING_MAX - 1);
        let last = Waiting::enter(&count);
        assert!(last.is_some() && Waiting::enter(&count).is_none());
        drop(last);
        assert!(Waiting::enter(&count).is_some());
    }
}
