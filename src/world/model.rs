//! Models of thread interleavings: unit tests that run production types under a scheduler of their own.
//!
//! [`check`] runs a scene again and again, each time with another order in which its threads take turns. A turn ends
//! where a thread locks or unlocks a [`Mutex`] of this module, waits for an asynchronous lock, or ends. Outside of a
//! scene the mutex is that of `std`, so that one build of the tests has both.
//!
//! What a scene asserts has to hold in every order; a scene in which no thread can go on is a deadlock and fails.
//! Orders follow from a fixed seed. `SETTEE_MODEL_SCHEDULES` asks for another number of them.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

use super::sync::Mistake;

/// Orders that a scene is run in, half of them drawn evenly, half with few changes of thread at drawn places.
const SCHEDULES: usize = 600;
/// Where the orders begin.
const SEED: u64 = 0x5e77_ee23;
/// Changes of thread in the second half.
const CHANGES: usize = 3;
/// Stack of a thread of a scene: builds of tests need more than the checker's default.
const STACK_BYTES: usize = 1 << 20;

thread_local! {
    // A scene and all its threads run on one thread of the system.
    static IN_SCENE: Cell<bool> = const { Cell::new(false) };
    static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Whether the scene that runs has planted that mistake.
pub fn mistaken(mistake: Mistake) -> bool {
    MISTAKE.get() == Some(mistake)
}

/// Ends the scene also when it panics.
struct Scene;

impl Scene {
    fn begin(mistake: Option<Mistake>) -> Scene {
        IN_SCENE.set(true);
        MISTAKE.set(mistake);
        Scene
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        IN_SCENE.set(false);
        MISTAKE.set(None);
    }
}

fn run(mistake: Option<Mistake>, scene: impl Fn() + Send + Sync + Clone + 'static) {
    let asked = std::env::var("SETTEE_MODEL_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules: usize = asked.unwrap_or(SCHEDULES);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    let _scene = Scene::begin(mistake);
    let drawn = RandomScheduler::new_from_seed(SEED, schedules.div_ceil(2));
    Runner::new(drawn, config.clone()).run(scene.clone());
    let few_changes = PctScheduler::new_from_seed(SEED, CHANGES, schedules / 2);
    Runner::new(few_changes, config).run(scene);
}

/// Runs a scene in many orders; panics where one of them fails.
pub fn check(scene: impl Fn() + Send + Sync + Clone + 'static) {
    run(None, scene);
}

/// Runs a scene in as many orders with a mistake planted: some order has to fail.
pub fn check_finds(mistake: Mistake, scene: impl Fn() + Send + Sync + Clone + 'static) {
    let found = catch_unwind(AssertUnwindSafe(|| run(Some(mistake), scene))).is_err();
    assert!(found, "no order of the scene shows the mistake {mistake:?}");
}

/// A mutex of `std` whose turns a scene schedules.
#[derive(Default)]
pub struct Mutex<T> {
    /// Of one that was made within a scene: held as long as `inner` is, so that this one never waits.
    turn: Turn,
    inner: std::sync::Mutex<T>,
}

struct Turn(Option<shuttle::sync::Mutex<()>>);

impl Default for Turn {
    fn default() -> Turn {
        Turn(IN_SCENE.get().then(|| shuttle::sync::Mutex::new(())))
    }
}

/// See [`Mutex`]. Its fields are dropped in this order.
pub struct MutexGuard<'a, T> {
    inner: std::sync::MutexGuard<'a, T>,
    _turn: Option<shuttle::sync::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    /// One that nobody holds.
    pub fn new(value: T) -> Mutex<T> {
        Mutex { turn: Turn::default(), inner: std::sync::Mutex::new(value) }
    }

    /// As that of `std`.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let _turn = self.turn.0.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        match self.inner.lock() {
            Ok(inner) => Ok(MutexGuard { inner, _turn }),
            Err(left) => Err(PoisonError::new(MutexGuard { inner: left.into_inner(), _turn })),
        }
    }

    /// As that of `std`.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let _turn = match self.turn.0.as_ref().map(shuttle::sync::Mutex::try_lock) {
            None => None,
            Some(Ok(turn)) => Some(turn),
            Some(Err(TryLockError::Poisoned(left))) => Some(left.into_inner()),
            Some(Err(TryLockError::WouldBlock)) => return Err(TryLockError::WouldBlock),
        };
        match self.inner.try_lock() {
            Ok(inner) => Ok(MutexGuard { inner, _turn }),
            Err(TryLockError::Poisoned(left)) => {
                Err(TryLockError::Poisoned(PoisonError::new(MutexGuard { inner: left.into_inner(), _turn })))
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Two threads that take two locks.
    fn two_locks(same_order: bool) {
        let locks = Arc::new((Mutex::new(0), Mutex::new(0)));
        let other = Arc::clone(&locks);
        let thread = shuttle::thread::spawn(move || {
            let (one, two) = if same_order { (&other.0, &other.1) } else { (&other.1, &other.0) };
            let (mut one, mut two) = (one.lock().unwrap(), two.lock().unwrap());
            (*one, *two) = (*one + 1, *two + 1);
        });
        {
            let (mut one, mut two) = (locks.0.lock().unwrap(), locks.1.lock().unwrap());
            (*one, *two) = (*one + 1, *two + 1);
        }
        thread.join().unwrap();
        assert_eq!((*locks.0.lock().unwrap(), *locks.1.lock().unwrap()), (2, 2));
    }

    #[test]
    fn a_deadlock_of_a_scene_is_found_and_a_scene_leaves_nothing_behind() {
        check(|| two_locks(true));
        assert!(catch_unwind(|| check(|| two_locks(false))).is_err());
        assert!(!IN_SCENE.get() && Mutex::new(0).turn.0.is_none());
    }
}
