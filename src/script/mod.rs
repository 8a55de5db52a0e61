//! Functions of design documents: validation, filters, maps. JavaScript runs here, other languages in programs of their
//! own (`external.rs`).
//!
//! [`Scripts`] runs them on a few workers. A call waits for a free worker, then runs to its end there: a function that
//! never returns costs its own request the time limit and a worker for as long. Each worker keeps the runtimes of the
//! design documents that it ran last, so that a function is compiled once. What functions see and how their answers are
//! read is written in `driver.js`; `design` checks design documents before they are stored.

mod declared;
pub mod design;
mod engine;
mod external;
mod program;
mod render;
mod sandbox;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Config;
use crate::document::collate::Collator;
use crate::document::json::{Object, Value};
use crate::limits;
use crate::world::{Env, Pool, Worker};

pub use design::DesignError;
use engine::Engine;
pub use program::Program;
pub use render::Rendering;
use sandbox::Sandbox;

/// A function could not answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ScriptError {
    /// Too many calls wait already.
    Busy,
    /// It does not compile, or is no function.
    Compilation {
        /// The error and the source.
        reason: String,
    },
    /// Memory or stack ran out, or the engine failed.
    Engine {
        /// What the engine says.
        reason: String,
    },
    /// The design document has no such member.
    MissingKey {
        /// Its name.
        name: String,
    },
    /// It threw what is no verdict.
    Thrown {
        /// The error's name; `unknown_error` where it has none.
        error: String,
        /// What it threw.
        reason: Value,
    },
    /// It ran longer than `couchdb/os_process_timeout`.
    Timeout,
    /// The design document's language is not one that runs here.
    UnknownLanguage {
        /// As the document names it.
        language: String,
    },
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptError::Busy => f.write_str("too many functions wait for their turn"),
            ScriptError::Compilation { reason } | ScriptError::Engine { reason } => f.write_str(reason),
            ScriptError::MissingKey { name } => write!(f, "missing json key: {name}"),
            ScriptError::Thrown { error, .. } => f.write_str(error),
            ScriptError::Timeout => f.write_str("a function did not return in time"),
            ScriptError::UnknownLanguage { language } => write!(f, "unknown language {language}"),
        }
    }
}

impl std::error::Error for ScriptError {}

/// What `validate_doc_update` says.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The edit may happen.
    Accepted,
    /// It threw `{forbidden: reason}`.
    Forbidden(Value),
    /// It threw `{unauthorized: reason}`.
    Unauthorized(Value),
}

/// Runs functions. Cheap to clone.
#[derive(Clone)]
pub struct Scripts(Arc<Inner>);

struct Inner {
    env: Env,
    config: Config,
    /// Compares values in selectors.
    collator: Collator,
    /// One permit per worker.
    free: Arc<Semaphore>,
    /// One permit per call that runs or waits.
    queue: Arc<Semaphore>,
    // A blocking lock: held for list operations only, never across an await.
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    idle: Vec<Seat>,
    made: usize,
}

/// A worker with the runtimes that it keeps.
struct Seat {
    worker: Arc<dyn Worker>,
    shelf: Shelf,
}

/// Runtimes, the last used at the end.
#[derive(Default)]
struct Shelf(Vec<(Key, Engine)>);

type Key = [u8; 32];

impl Shelf {
    /// Runs `work` in the runtime of a program, made if there is none.
    fn with<T>(
        &mut self,
        env: &Env,
        program: &Program,
        command: Option<&[String]>,
        work: impl FnOnce(&mut Engine) -> Result<T, ScriptError>,
    ) -> Result<T, ScriptError> {
        let key = program.key();
        let mut engine = match self.0.iter().position(|(kept, _)| *kept == key) {
            Some(at) => self.0.remove(at).1,
            None => Engine::new(env, program, command)?,
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

/// A seat taken for one job; given back when the job is over, whatever became of it.
struct Lease {
    scripts: Arc<Inner>,
    seat: Option<Seat>,
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut seats = self.scripts.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.idle.extend(self.seat.take());
    }
}

impl Scripts {
    /// Without any worker yet: they start when they are needed.
    pub fn new(env: &Env, config: &Config) -> Scripts {
        Scripts(Arc::new(Inner {
            env: env.clone(),
            config: config.clone(),
            collator: Collator::new(),
            free: Arc::new(Semaphore::new(limits::SCRIPT_WORKERS)),
            queue: Arc::new(Semaphore::new(limits::SCRIPT_QUEUE)),
            seats: Mutex::default(),
        }))
    }

    /// How long one function may take for one document: `couchdb/os_process_timeout`.
    fn time_limit(&self) -> Duration {
        Duration::from_millis(self.0.config.u64("couchdb", "os_process_timeout", limits::SCRIPT_TIMEOUT_MS))
    }

    async fn lease(&self, key: Key) -> Result<Lease, ScriptError> {
        let queued = Arc::clone(&self.0.queue).try_acquire_owned().map_err(|_| ScriptError::Busy)?;
        // Fails only when it is closed, and nobody does that.
        let free = Arc::clone(&self.0.free).acquire_owned().await.map_err(|_| ScriptError::Busy)?;
        let mut seats = self.0.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let has_it = |seat: &Seat| seat.shelf.0.iter().any(|(kept, _)| *kept == key);
        let seat = match seats.idle.iter().position(has_it) {
            Some(at) => seats.idle.remove(at),
            None => seats.idle.pop().unwrap_or_else(|| {
                let name = format!("script-{}", seats.made);
                seats.made += 1;
                Seat { worker: self.0.env.worker(&name, limits::SCRIPT_STACK_BYTES), shelf: Shelf::default() }
            }),
        };
        Ok(Lease { scripts: Arc::clone(&self.0), seat: Some(seat), _permits: (free, queued) })
    }

    /// Runs `work` on a free worker, preferably one that keeps the program's runtime.
    async fn run<T: Send + 'static>(
        &self,
        key: Key,
        work: impl FnOnce(&Env, &mut Shelf, Duration) -> T + Send + 'static,
    ) -> Result<T, ScriptError> {
        let mut lease = self.lease(key).await?;
        let (env, limit) = (self.0.env.clone(), self.time_limit());
        // Invariant: a lease has its seat until it is dropped.
        let Seat { worker, mut shelf } = lease.seat.take().expect("a seat");
        let of_job = Arc::clone(&worker);
        let job = move || {
            // Should the work panic, its runtimes are gone with it and the worker goes on with none.
            lease.seat = Some(Seat { worker: of_job, shelf: Shelf::default() });
            let done = work(&env, &mut shelf, limit);
            if let Some(seat) = &mut lease.seat {
                seat.shelf = shelf;
            }
            done
        };
        let failed = || ScriptError::Engine { reason: "the engine failed".to_owned() };
        self.0.env.run_on(&*worker, job).await.ok_or_else(failed)
    }

    /// Calls `work` for each document in the program's runtime, `limits::SCRIPT_DOCS_PER_JOB` in one job. After a call
    /// that was cut off the rest of its job shares its error.
    async fn each<D, T>(
        &self,
        program: &Program,
        docs: Vec<D>,
        work: impl Fn(&mut Engine, D, Duration) -> Result<T, ScriptError> + Clone + Send + 'static,
    ) -> Result<Vec<Result<T, ScriptError>>, ScriptError>
    where
        D: Send + 'static,
        T: Send + 'static,
    {
        let command = self.command(program)?;
        let mut docs = docs.into_iter().peekable();
        let mut chunks: Vec<Vec<D>> = Vec::new();
        while docs.peek().is_some() {
            chunks.push(docs.by_ref().take(limits::SCRIPT_DOCS_PER_JOB).collect());
        }
        let jobs = chunks.into_iter().map(|chunk| {
            let (of_job, work, command) = (program.clone(), work.clone(), command.clone());
            let job = move |env: &Env, shelf: &mut Shelf, limit: Duration| {
                let mut cut_off = None;
                let one = |doc| {
                    let result = match &cut_off {
                        Some(error) => Err(ScriptError::clone(error)),
                        None => shelf.with(env, &of_job, command.as_deref(), |engine| work(engine, doc, limit)),
                    };
                    if let Err(error @ (ScriptError::Timeout | ScriptError::Engine { .. })) = &result {
                        cut_off = Some(error.clone());
                    }
                    result
                };
                chunk.into_iter().map(one).collect::<Vec<_>>()
            };
            self.run(program.key(), job)
        });
        let done: Vec<Vec<_>> = stream::iter(jobs).buffered(limits::SCRIPT_JOBS_PER_CALL).try_collect().await?;
        Ok(done.into_iter().flatten().collect())
    }

    /// How to start the program for a language that does not run here: `[query_servers]`.
    fn command(&self, program: &Program) -> Result<Option<Arc<[String]>>, ScriptError> {
        let Some(language) = program.language() else { return Ok(None) };
        let command = self.0.config.text("query_servers", language, "");
        match external::words(&command) {
            words if words.is_empty() => Err(ScriptError::UnknownLanguage { language: language.to_owned() }),
            words => Ok(Some(words.into())),
        }
    }

    /// Asks `validate_doc_update` of a design document about edits; one answer for each. A design document without
    /// that function accepts everything.
    pub async fn validate(
        &self,
        program: &Program,
        edits: Vec<Arc<Arguments>>,
    ) -> Result<Vec<Result<Verdict, ScriptError>>, ScriptError> {
        let Some(source) = program.validator().map(str::to_owned) else {
            return Ok(edits.iter().map(|_| Ok(Verdict::Accepted)).collect());
        };
        if program.is_declarative() {
            let collator = self.0.collator.clone();
            let judge = move || edits.iter().map(|edit| declared::judge(&source, &edit.0, &collator)).collect();
            return Ok(self.0.env.blocking(Pool::Foreground, judge).await);
        }
        let ask = move |engine: &mut Engine, edit: Arc<Arguments>, limit| {
            let answer = engine.call("validate", [&source, &edit.0, ""], limit)?;
            let member = |name| answer.as_object().and_then(|answer| answer.get(name)).cloned();
            Ok(match (member("forbidden"), member("unauthorized")) {
                (Some(reason), _) => Verdict::Forbidden(reason),
                (None, Some(reason)) => Verdict::Unauthorized(reason),
                (None, None) => Verdict::Accepted,
            })
        };
        self.each(program, edits, ask).await
    }

    /// Whether documents (JSON texts) pass the function `filters.{name}`; `req` is the JSON text of its request object.
    /// The first failure ends it.
    pub async fn filter(
        &self,
        program: &Program,
        name: &str,
        req: &Arc<str>,
        docs: Vec<String>,
    ) -> Result<Vec<bool>, ScriptError> {
        let (source, req) = (program.filter(name)?.to_owned(), Arc::clone(req));
        let ask = move |engine: &mut Engine, doc: String, limit| {
            let answer = engine.call("filter", [&source, &doc, &req], limit)?;
            Ok(answer.as_object().and_then(|answer| answer.get("pass")).and_then(Value::as_bool) == Some(true))
        };
        self.each(program, docs, ask).await?.into_iter().collect()
    }

    /// The rows `[key, value]` that map functions of one design document emit: for each document (JSON text), for each
    /// function, in order. A function that throws emits nothing for that document. A fatal failure ends it.
    pub async fn map(
        &self,
        program: &Program,
        sources: &[&str],
        docs: Vec<String>,
    ) -> Result<Vec<Vec<Vec<Value>>>, ScriptError> {
        let sources = Value::Array(sources.iter().map(|source| Value::from(*source)).collect()).to_vec();
        let sources = String::from_utf8_lossy(&sources).into_owned();
        let ask = move |engine: &mut Engine, doc: String, limit| {
            let answer = engine.call("map", [&sources, &doc, ""], limit)?;
            let rows = |of_one: &Value| of_one.as_array().map(<[Value]>::to_vec).unwrap_or_default();
            let lists = answer.as_object().and_then(|answer| answer.get("rows")).and_then(Value::as_array);
            Ok(lists.unwrap_or_default().iter().map(rows).collect())
        };
        self.each(program, docs, ask).await?.into_iter().collect()
    }

    /// What a reduce function makes of rows: for each input, the JSON text of an array of `[[key, id], value]`, or of
    /// earlier results when `again`. One that throws gives null. A fatal failure ends it.
    pub async fn reduce(
        &self,
        program: &Program,
        source: &str,
        inputs: Vec<String>,
        again: bool,
    ) -> Result<Vec<Value>, ScriptError> {
        let source = source.to_owned();
        let ask = move |engine: &mut Engine, input: String, limit| {
            let answer = engine.call("reduce", [&source, &input, if again { "again" } else { "" }], limit)?;
            Ok(answer.as_object().and_then(|answer| answer.get("value")).cloned().unwrap_or(Value::Null))
        };
        self.each(program, inputs, ask).await?.into_iter().collect()
    }

    /// Whether a body may be stored as a design document: its members and their types, and whether maps and reduces
    /// compile. `partitioned`: whether the database is.
    pub async fn check_design(&self, body: &Object, partitioned: bool) -> Result<(), DesignError> {
        let sources = design::check(body, partitioned)?;
        if sources.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&body.to_vec()).into_owned();
        let job = move |env: &Env, _: &mut Shelf, limit: Duration| {
            let mut sandbox = Sandbox::new(env, &text)?;
            for source in &sources {
                let compiled = sandbox.call("compile", [&source.text, "", ""], limit);
                compiled.map_err(|error| source.explain(error))?;
            }
            Ok(())
        };
        // No program has this key: the runtime is used once.
        self.run([0; 32], job).await?
    }
}

/// A line that a function wrote, cut to what a log takes.
fn log_line(text: &str) -> &str {
    let end = text.char_indices().nth(limits::SCRIPT_LOG_CHARS).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// What `validate_doc_update` is called with, as the text of a JSON array: shared by all that are asked.
#[derive(Clone, Debug)]
pub struct Arguments(String);

impl Arguments {
    /// From JSON texts: the new document, the old one or `null`, the user and the security object.
    pub fn new(new: &[u8], old: &[u8], user: &[u8], security: &[u8]) -> Arguments {
        let list = [new, old, user, security].map(String::from_utf8_lossy);
        Arguments(format!("[{}]", list.join(",")))
    }
}
