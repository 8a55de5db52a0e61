//! Progress of a replication: its run reports it to lists, to the stall detection and to metrics.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::checkpoint::Counters;
use super::peer::Refusal;
use crate::document::json::Value;
use crate::limits;
use crate::world::{Env, Instant};

/// How far a replication is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What was done, sessions before it included.
    pub counters: Counters,
    /// How far the source was read.
    pub source_seq: Option<Value>,
    /// Up to where the target has everything.
    pub through_seq: Option<Value>,
    /// Up to where the checkpoints say so.
    pub checkpointed_seq: Option<Value>,
    /// Changes that the source said to be left.
    pub pending: Option<u64>,
    /// When that changed last, since the Unix epoch.
    pub updated: Duration,
    /// The documents that the target refused last, newest last.
    pub refused: VecDeque<Refusal>,
    /// Whether the target has everything and the run waits for news.
    pub waiting: bool,
    /// When anything moved last.
    moved: Option<Instant>,
    /// When the target had everything last.
    level: Option<Instant>,
}

/// The progress of a job, shared by its run and its readers.
pub struct Track {
    env: Env,
    begun: Instant,
    progress: Mutex<Progress>,
}

impl Track {
    /// Nothing was done yet.
    pub fn new(env: &Env) -> Track {
        Track { env: env.clone(), begun: env.now(), progress: Mutex::default() }
    }

    /// How far it is.
    pub fn read(&self) -> Progress {
        self.lock().clone()
    }

    /// Notes a step.
    pub fn step<T>(&self, note: impl FnOnce(&mut Progress) -> T) -> T {
        let mut progress = self.lock();
        progress.updated = self.env.wall();
        progress.moved = Some(self.env.now());
        note(&mut progress)
    }

    /// Something moved that is not counted: bytes of a peer, changes that a filter left out.
    pub fn moved(&self) {
        self.lock().moved = Some(self.env.now());
    }

    /// The run begins, or begins to wait for news, or has some.
    pub fn wait(&self, waiting: bool) {
        let now = self.env.now();
        let mut progress = self.lock();
        if waiting || progress.waiting {
            progress.level = Some(now);
        }
        (progress.waiting, progress.moved) = (waiting, Some(now));
    }

    /// Notes what the target refused.
    pub fn refused(&self, refused: Vec<Refusal>) {
        self.step(|progress| {
            progress.counters.doc_write_failures += refused.len() as u64;
            progress.refused.extend(refused);
            let over = progress.refused.len().saturating_sub(limits::REPLICATION_REFUSALS);
            progress.refused.drain(..over);
        });
    }

    /// How long the target has lacked something, at most.
    pub fn lag(&self) -> Duration {
        let progress = self.lock();
        match progress.waiting {
            true => Duration::ZERO,
            false => self.env.now().since(progress.level.unwrap_or(self.begun)),
        }
    }

    /// How long nothing has moved; zero while it waits for news.
    pub fn still(&self) -> Duration {
        let progress = self.lock();
        match progress.waiting {
            true => Duration::ZERO,
            false => self.env.now().since(progress.moved.unwrap_or(self.begun)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
