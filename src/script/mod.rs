//! Functions of design documents: validation, filters, maps. JavaScript runs here, or in processes of this program
//! (`isolated.rs`), other languages in programs of their own (`external.rs`).
//!
//! [`Scripts`] runs them on a few workers (`workers.rs`); maps, which build views, on other workers of lower priority.
//! A call waits for a free worker and runs to its end there: a function that never returns costs its own request the
//! time limit, and a worker for as long. `driver.js` defines what functions see and how their answers are read;
//! `design` checks design documents before they are stored.

mod declared;
pub mod design;
mod engine;
mod external;
mod fair_queue;
#[cfg(test)]
mod fuzz_tests;
mod isolated;
mod plain;
mod program;
mod reader;
mod render;
mod sandbox;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::document::collate::Collator;
use crate::document::json::{Object, Value};
use crate::limits;
use crate::world::{Env, Pool};

pub use design::DesignError;
use engine::{Engine, Place};
use fair_queue::FunctionCaller;
pub use isolated::{COMMAND, serve_calls};
pub use program::Program;
pub use render::Rendering;
use workers::{Pulse, StoreFiles, Workers};

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
    /// It threw what is no outcome.
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
pub enum Validation {
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
    /// Where JavaScript runs.
    own: Place,
    /// Compares values in selectors.
    collator: Collator,
    workers: Arc<Workers>,
    /// Run the maps of views.
    mappers: Arc<Workers>,
}

impl Scripts {
    /// Without any worker yet: they start when they are needed.
    pub fn new(env: &Env, config: &Config) -> Scripts {
        let isolated = config.text("settee", "script_isolation", "thread") == "process";
        Scripts(Arc::new(Inner {
            env: env.clone(),
            config: config.clone(),
            own: if isolated { Place::Process } else { Place::Worker },
            collator: Collator::new(),
            workers: Workers::new(env, (Pool::Foreground, "script"), limits::scripts::WORKERS_KEPT),
            mappers: Workers::new(env, (Pool::Build, "map"), 0),
        }))
    }

    /// How long one function may take for one document: `couchdb/os_process_timeout`.
    fn time_limit(&self) -> Duration {
        Duration::from_millis(self.0.config.u64("couchdb", "os_process_timeout", limits::SCRIPT_TIMEOUT_MS))
    }

    /// Calls `work` for each document in the program's runtime, on some of `workers`, `limits::SCRIPT_DOCS_PER_JOB` in
    /// one job. After a call that was cut off the rest of its job shares its error.
    async fn each<D, T>(
        &self,
        workers: &Arc<Workers>,
        (program, caller): (&Program, FunctionCaller),
        docs: Vec<D>,
        work: impl Fn(&mut Engine, D, Duration) -> Result<T, ScriptError> + Clone + Send + 'static,
    ) -> Result<Vec<Result<T, ScriptError>>, ScriptError>
    where
        D: Send + 'static,
        T: Send + 'static,
    {
        let (place, limit) = (self.place(program)?, self.time_limit());
        let patience = place.patience(limit);
        let mut docs = docs.into_iter().peekable();
        let mut chunks: Vec<Vec<D>> = Vec::new();
        while docs.peek().is_some() {
            chunks.push(docs.by_ref().take(limits::SCRIPT_DOCS_PER_JOB).collect());
        }
        let jobs = chunks.into_iter().map(|chunk| {
            let (of_job, work, place) = (program.clone(), work.clone(), place.clone());
            let job = move |env: &Env, store_files: &mut StoreFiles, pulse: &Pulse| {
                let mut cut_off = None;
                let one = |doc| {
                    pulse.beat();
                    let result = match &cut_off {
                        Some(error) => Err(ScriptError::clone(error)),
                        None => store_files.with(env, &of_job, &place, |engine| work(engine, doc, limit)),
                    };
                    if let Err(error @ (ScriptError::Timeout | ScriptError::Engine { .. })) = &result {
                        cut_off = Some(error.clone());
                        if *error == ScriptError::Timeout {
                            pulse.note_stopped();
                        }
                    }
                    result
                };
                chunk.into_iter().map(one).collect::<Vec<_>>()
            };
            workers.run(caller, patience, job)
        });
        let done: Vec<Vec<_>> = stream::iter(jobs).buffered(limits::SCRIPT_JOBS_PER_CALL).try_collect().await?;
        Ok(done.into_iter().flatten().collect())
    }

    /// Where the functions of a program run; languages but JavaScript need a setting in `[query_servers]`.
    fn place(&self, program: &Program) -> Result<Place, ScriptError> {
        let Some(language) = program.language() else { return Ok(self.0.own.clone()) };
        let command = self.0.config.text("query_servers", language, "");
        match external::words(&command) {
            words if words.is_empty() => Err(ScriptError::UnknownLanguage { language: language.to_owned() }),
            words => Ok(Place::Program(words.into())),
        }
    }

    /// Asks `validate_doc_update` of a design document about edits; one answer for each. A design document without
    /// that function accepts everything.
    pub async fn validate(
        &self,
        program: &Program,
        edits: Vec<Arc<Arguments>>,
    ) -> Result<Vec<Result<Validation, ScriptError>>, ScriptError> {
        let Some(source) = program.validator().map(str::to_owned) else {
            return Ok(edits.iter().map(|_| Ok(Validation::Accepted)).collect());
        };
        if program.is_declarative() {
            let collator = self.0.collator.clone();
            let validate = move || edits.iter().map(|edit| declared::validate(&source, &edit.0, &collator)).collect();
            return Ok(self.0.env.blocking(Pool::Foreground, validate).await);
        }
        let ask = move |engine: &mut Engine, edit: Arc<Arguments>, limit| {
            let answer = match engine.call("validate", [&source, &edit.0, ""], limit) {
                // `['error', 'forbidden', reason]` says the same as `{forbidden: reason}`.
                Err(ScriptError::Thrown { error, reason }) if error == "forbidden" => {
                    return Ok(Validation::Forbidden(reason));
                }
                Err(ScriptError::Thrown { error, reason }) if error == "unauthorized" => {
                    return Ok(Validation::Unauthorized(reason));
                }
                answer => answer?,
            };
            let member = |name| answer.as_object().and_then(|answer| answer.get(name)).cloned();
            Ok(match (member("forbidden"), member("unauthorized")) {
                (Some(reason), _) => Validation::Forbidden(reason),
                (None, Some(reason)) => Validation::Unauthorized(reason),
                (None, None) => Validation::Accepted,
            })
        };
        self.each(&self.0.workers, (program, program.caller(true)), edits, ask).await
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
            engine.call("filter", [&source, &doc, &req], limit).map(passes)
        };
        self.each(&self.0.workers, (program, program.caller(false)), docs, ask).await?.into_iter().collect()
    }

    /// Whether the map function `source` emits anything for documents (JSON texts). The first failure ends it.
    pub async fn emits(&self, program: &Program, source: &str, docs: Vec<String>) -> Result<Vec<bool>, ScriptError> {
        let source = source.to_owned();
        let ask =
            move |engine: &mut Engine, doc: String, limit| engine.call("emits", [&source, &doc, ""], limit).map(passes);
        self.each(&self.0.workers, (program, program.caller(false)), docs, ask).await?.into_iter().collect()
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
            let member = if let Value::Object(mut answer) = answer { answer.remove("rows") } else { None };
            let list = |value| if let Value::Array(list) = value { list } else { Vec::new() };
            Ok(member.map(list).unwrap_or_default().into_iter().map(list).collect())
        };
        self.each(&self.0.mappers, (program, program.caller(false)), docs, ask).await?.into_iter().collect()
    }

    /// The calls `[name, value, options]` that an index function makes for documents (JSON texts). One that throws
    /// makes none for that document. A fatal failure ends it.
    pub async fn index(
        &self,
        program: &Program,
        source: &str,
        docs: Vec<String>,
    ) -> Result<Vec<Vec<Value>>, ScriptError> {
        self.calls("index", program, source, docs).await
    }

    /// The calls `[type, name, value, options]` that an index function with types makes for documents, as
    /// [`Scripts::index`].
    pub async fn index_typed(
        &self,
        program: &Program,
        source: &str,
        docs: Vec<String>,
    ) -> Result<Vec<Vec<Value>>, ScriptError> {
        self.calls("typed", program, source, docs).await
    }

    /// As [`Scripts::index`], or with types as [`Scripts::index_typed`], and what the function throws for a document is
    /// told.
    pub async fn index_or_error(
        &self,
        program: &Program,
        source: &str,
        is_typed: bool,
        docs: Vec<String>,
    ) -> Result<Vec<Result<Vec<Value>, ScriptError>>, ScriptError> {
        let what = if is_typed { "indexedWithTypes" } else { "indexed" };
        self.calls_or_errors(what, program, source, docs).await
    }

    async fn calls(
        &self,
        what: &'static str,
        program: &Program,
        source: &str,
        docs: Vec<String>,
    ) -> Result<Vec<Vec<Value>>, ScriptError> {
        self.calls_or_errors(what, program, source, docs).await?.into_iter().collect()
    }

    async fn calls_or_errors(
        &self,
        what: &'static str,
        program: &Program,
        source: &str,
        docs: Vec<String>,
    ) -> Result<Vec<Result<Vec<Value>, ScriptError>>, ScriptError> {
        let source = source.to_owned();
        let ask = move |engine: &mut Engine, doc: String, limit| {
            let answer = engine.call(what, [&source, &doc, ""], limit)?;
            let calls = if let Value::Object(mut answer) = answer { answer.remove("calls") } else { None };
            Ok(if let Some(Value::Array(calls)) = calls { calls } else { Vec::new() })
        };
        self.each(&self.0.mappers, (program, program.caller(false)), docs, ask).await
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
        self.each(&self.0.workers, (program, program.caller(false)), inputs, ask).await?.into_iter().collect()
    }

    /// Whether a body may be stored as a design document: its members and their types, and whether maps and reduces
    /// compile. `partitioned`: whether the database is; `owner`: its name for shares of the workers.
    pub async fn check_design(&self, owner: &str, body: &Object, partitioned: bool) -> Result<(), DesignError> {
        let sources = design::check(body, partitioned)?;
        if sources.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&body.to_vec()).into_owned();
        let (place, limit) = (self.0.own.clone(), self.time_limit());
        let patience = place.patience(limit);
        let job = move |env: &Env, _: &mut StoreFiles, pulse: &Pulse| {
            let mut engine = Engine::javascript(env, &text, &place)?;
            for source in &sources {
                pulse.beat();
                let compiled = engine.call("compile", [&source.text, "", ""], limit);
                if compiled == Err(ScriptError::Timeout) {
                    pulse.note_stopped();
                }
                compiled.map_err(|error| source.explain(error))?;
            }
            Ok(())
        };
        // No program has this key: the runtime is used once.
        let program = *blake3::hash(owner.as_bytes()).as_bytes();
        let caller = FunctionCaller { database: program::short_hash(owner), user: 0, program, is_validation: true };
        self.0.workers.run(caller, patience, job).await?
    }
}

/// Whether the answer of a filter says that a document passes.
fn passes(answer: Value) -> bool {
    answer.as_object().and_then(|answer| answer.get("pass")).and_then(Value::as_bool) == Some(true)
}

/// Tells what a function logged.
fn log(text: &str) {
    tracing::info!(target: "script", "{}", log_line(text));
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
