//! Workers: threads that run functions, and the runtimes that they keep.
//!
//! A job has a worker to itself. Each worker keeps the runtimes of the design documents that it ran last, so that a
//! function is compiled once. A worker that does not return from one operation, which nothing can interrupt, is
//! abandoned with its thread, and another takes its place: it costs the job that it ran, no other. While such a thread
//! runs on, its program is refused, and above a number of such threads every program is. `fair_queue.rs` chooses the
//! next job.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine::{Engine, Place};
use super::fair_queue::{FairQueue, FunctionCaller, Turn};
use super::{Program, ScriptError};
use crate::limits;
use crate::world::{Env, Pool, Worker};

/// See the module head.
pub(super) struct Workers {
    env: Env,
    /// Whose priority the threads have, and what their names begin with.
    class: (Pool, &'static str),
    queue: Arc<FairQueue>,
    // A blocking lock: held for list operations only, never across an await.
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    idle: Vec<Seat>,
    made: usize,
    /// The programs of abandoned threads that have not ended.
    stuck: Vec<Key>,
}

/// A worker with the runtimes that it keeps.
struct Seat {
    worker: Arc<dyn Worker>,
    store_files: StoreFiles,
}

/// Runtimes, the last used at the end.
#[derive(Default)]
pub(super) struct StoreFiles(Vec<(Key, Engine)>);

/// Names a program: [`Program::key`].
type Key = [u8; 32];

impl StoreFiles {
    /// Runs `work` in the runtime of a program, made if there is none.
    pub fn with<T>(
        &mut self,
        env: &Env,
        program: &Program,
        place: &Place,
        work: impl FnOnce(&mut Engine) -> Result<T, ScriptError>,
    ) -> Result<T, ScriptError> {
        let key = program.key();
        let mut engine = match self.0.iter().position(|(kept, _)| *kept == key) {
            Some(at) => self.0.remove(at).1,
            None => Engine::new(env, program, place)?,
        };
        let done = work(&mut engine);
        if !engine.is_broken() {
            self.0.push((key, engine));
        }
        if self.0.len() > limits::SCRIPT_RUNTIMES_KEPT {
            self.0.remove(0);
        }
        done
    }
}

/// How a job shows that it goes on: it says so when it begins with a function.
#[derive(Default)]
pub(super) struct Pulse {
    beats: AtomicBool,
    /// Whether the job is over, or was abandoned: the one that sets it first decides.
    settled: AtomicBool,
    /// Whether a function was stopped for time.
    stopped: AtomicBool,
    /// The job's place in the queue, until it is over or abandoned.
    turn: Mutex<Option<Turn>>,
}

impl Pulse {
    pub fn beat(&self) {
        self.beats.store(true, Ordering::Relaxed);
    }

    /// A function was stopped because its time was over.
    pub fn note_stopped(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn take_turn(&self) -> Option<Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A seat taken for one job; given back when the job is over, whatever became of it.
struct Lease {
    workers: Arc<Workers>,
    key: Key,
    seat: Option<Seat>,
    pulse: Arc<Pulse>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut seats = self.workers.seats();
        if self.pulse.settled.swap(true, Ordering::Relaxed) {
            // It was abandoned: another worker has its place by now.
            if let Some(at) = seats.stuck.iter().position(|key| *key == self.key) {
                seats.stuck.swap_remove(at);
            }
            return;
        }
        seats.idle.extend(self.seat.take());
        drop(seats);
        if let Some(mut turn) = self.pulse.take_turn() {
            turn.was_stopped = self.pulse.stopped.load(Ordering::Relaxed);
        }
    }
}

/// Ends the wait for a job, also when its caller went away: a stuck worker is abandoned then, too.
struct Guard {
    workers: Arc<Workers>,
    key: Key,
    pulse: Arc<Pulse>,
    period: Duration,
}

impl Guard {
    /// Makes place for another worker, unless the job ended after all.
    fn cancel(workers: &Workers, key: Key, pulse: &Pulse) {
        let mut seats = workers.seats();
        if !pulse.settled.swap(true, Ordering::Relaxed) {
            tracing::error!("a function did not stop: its thread is given up");
            seats.stuck.push(key);
            drop(seats);
            pulse.take_turn().into_iter().for_each(Turn::cancel);
        }
    }

    /// Returns when one function took a whole period, or the job is over.
    async fn stuck(env: &Env, pulse: &Pulse, period: Duration) {
        loop {
            env.sleep(period).await;
            if !pulse.beats.swap(false, Ordering::Relaxed) || pulse.settled.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.pulse.settled.load(Ordering::Relaxed) {
            return;
        }
        let (workers, key) = (Arc::clone(&self.workers), self.key);
        let (pulse, period) = (Arc::clone(&self.pulse), self.period);
        self.workers.env.spawn(async move {
            Guard::stuck(&workers.env, &pulse, period).await;
            Guard::cancel(&workers, key, &pulse);
        });
    }
}

impl Workers {
    /// Without any worker yet: they start when they are needed.
    /// Of `limits::SCRIPT_WORKERS` and so many more, which are kept.
    pub fn new(env: &Env, class: (Pool, &'static str), kept: usize) -> Arc<Workers> {
        let queue = FairQueue::new(env, limits::SCRIPT_WORKERS + kept, kept);
        Arc::new(Workers { env: env.clone(), class, queue, seats: Mutex::default() })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_stuck(&self, key: Key) -> Result<(), ScriptError> {
        let stuck = &self.seats().stuck;
        match stuck.contains(&key) {
            true => Err(ScriptError::Timeout),
            false if stuck.len() >= limits::SCRIPT_THREADS_STUCK => Err(ScriptError::Busy),
            false => Ok(()),
        }
    }

    async fn lease(self: &Arc<Self>, caller: FunctionCaller) -> Result<Lease, ScriptError> {
        let key = caller.program;
        let turn = self.queue.turn(caller).await?;
        self.check_stuck(key)?;
        let mut seats = self.seats();
        let has_it = |seat: &Seat| seat.store_files.0.iter().any(|(kept, _)| *kept == key);
        let seat = match seats.idle.iter().position(has_it) {
            Some(at) => seats.idle.remove(at),
            None => seats.idle.pop().unwrap_or_else(|| {
                let (pool, name) = self.class;
                let name = format!("{name}-{}", seats.made);
                seats.made += 1;
                Seat {
                    worker: self.env.worker(pool, &name, limits::SCRIPT_STACK_BYTES),
                    store_files: StoreFiles::default(),
                }
            }),
        };
        let (workers, pulse) = (Arc::clone(self), Arc::new(Pulse { turn: Mutex::new(Some(turn)), ..Pulse::default() }));
        Ok(Lease { workers, key, seat: Some(seat), pulse })
    }

    /// Runs `work` on a free worker, preferably one that keeps the program's runtime. It is abandoned when it begins
    /// with no function for a whole `period`.
    ///
    /// # Errors
    /// [`ScriptError::Timeout`] then, and at once while an earlier thread of the program still runs;
    /// [`ScriptError::Busy`] when too many calls wait, or too many threads were abandoned.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        caller: FunctionCaller,
        period: Duration,
        work: impl FnOnce(&Env, &mut StoreFiles, &Pulse) -> T + Send + 'static,
    ) -> Result<T, ScriptError> {
        let key = caller.program;
        let mut lease = self.lease(caller).await?;
        let (env, pulse) = (self.env.clone(), Arc::clone(&lease.pulse));
        let _guard = Guard { workers: Arc::clone(self), key, pulse: Arc::clone(&pulse), period };
        // Invariant: a lease has its seat until it is dropped.
        let Seat { worker, mut store_files } = lease.seat.take().expect("a seat");
        let of_job = Arc::clone(&worker);
        let job = move || {
            // Should the work panic, its runtimes are gone with it and the worker goes on with none.
            lease.seat = Some(Seat { worker: of_job, store_files: StoreFiles::default() });
            let done = work(&env, &mut store_files, &lease.pulse);
            if let Some(seat) = &mut lease.seat {
                seat.store_files = store_files;
            }
            done
        };
        tokio::select! {
            biased;
            done = self.env.run_on(&*worker, job) => {
                done.ok_or_else(|| ScriptError::Engine { reason: "the engine failed".to_owned() })
            }
            () = Guard::stuck(&self.env, &pulse, period) => {
                Guard::cancel(self, key, &pulse);
                Err(ScriptError::Timeout)
            }
        }
    }
}
