//! The `settee` program: command line, production host, one node, signals.
//!
//! It is part of the library, because what a program of its own polls is compiled again for that program: the whole
//! node, twice.
//!
//! What keeps a node from starting is told in one line on standard error, with exit status 1; 3 where its data are not
//! whole, so that the one that restarts it can tell that it will not start by itself.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::auth::admins;
use crate::auth::password::StoredHash;
use crate::cli::{self, Admin, Cli, Command, Dump, Load, Restore, Salvage, Serve, Token};
use crate::cluster;
use crate::config::{Config, Sources};
use crate::coordinator::CheckReport;
use crate::coordinator::backup::Restored;
use crate::limits;
use crate::node::offline::{self, OfflineError};
use crate::node::{Node, StartError};
use crate::observe::{self, LogOptions};
use crate::script;
use crate::world::{Env, Pool, tokio_host};

/// The exit status where data are damaged or missing.
const NOT_WHOLE: u8 = 3;

/// One line that says why the program ends, and its exit status.
pub(crate) struct Failure(String, u8);

pub(crate) fn failure(what: impl Display) -> Failure {
    Failure(what.to_string(), 1)
}

/// Runs the command of the process's arguments to its end; the process ends with that status.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    observe::panics::count();
    tokio_host::use_small_pages();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return told(&failure(format_args!("cannot start threads: {error}"))),
    };
    let env = tokio_host::env(runtime.handle().clone());
    let outcome = runtime.block_on(async {
        match command {
            Command::Serve(flags) => serve(&env, &flags).await.map(|again| (ExitCode::SUCCESS, again)),
            Command::Token(flags) => token(&env, &flags).await.map(|()| (ExitCode::SUCCESS, false)),
            Command::Check(flags) => Ok((check(&env, &flags.data).await, false)),
            Command::Dump(flags) => dump(&env, &flags).await.map(|code| (code, false)),
            Command::Load(flags) => load(&env, &flags).await.map(|code| (code, false)),
            Command::Restore(flags) => restore(&env, &flags).await.map(|code| (code, false)),
            Command::Push(flags) => cli::bucket::push(&env, &flags).await.map(|code| (code, false)),
            Command::Pull(flags) => cli::bucket::pull(&env, &flags).await.map(|code| (code, false)),
            Command::Import(flags) => cli::migrate::import(&env, &flags).await.map(|code| (code, false)),
            Command::Export(flags) => cli::migrate::export(&env, &flags).await.map(|code| (code, false)),
            Command::Doctor(flags) => cli::doctor::run(&env, &flags).await.map(|code| (code, false)),
            Command::Completions(flags) => cli::pages::completions(&flags).map(|()| (ExitCode::SUCCESS, false)),
            Command::Man(flags) => cli::pages::man(&flags).map(|()| (ExitCode::SUCCESS, false)),
            Command::Salvage(flags) => salvage(&env, &flags).await.map(|code| (code, false)),
            Command::ScriptHost => script_host(&env).await.map(|()| (ExitCode::SUCCESS, false)),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    match outcome {
        Ok((_, true)) => told(&start_anew()),
        Ok((status, false)) => status,
        Err(error) => told(&error),
    }
}

/// Puts a fresh run of the program, with the same arguments, in the place of this process: locks and sockets go with
/// it, the one that watches the process sees it go on. Returns only when that could not be done.
fn start_anew() -> Failure {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let error = std::process::Command::new(program).args(arguments).exec();
    failure(format_args!("cannot start again: {error}"))
}

/// Runs functions for a node (`[settee] script_isolation`) until the node goes away.
async fn script_host(env: &Env) -> Result<(), Failure> {
    let memory = Some(limits::SCRIPT_HOST_MEMORY_BYTES);
    setrlimit(Resource::As, Rlimit { current: memory, maximum: memory }).map_err(failure)?;
    let worker = env.worker(Pool::Foreground, "functions", limits::SCRIPT_STACK_BYTES);
    let of_calls = env.clone();
    let calls = move || script::serve_calls(&of_calls, std::io::stdin().lock(), std::io::stdout());
    let done = env.run_on(&*worker, calls).await;
    done.unwrap_or_else(|| Err(std::io::ErrorKind::Other.into())).map_err(failure)
}

fn told(error: &Failure) -> ExitCode {
    eprintln!("settee: {}", error.0);
    ExitCode::from(error.1)
}

/// Checks a data directory; see `cli::Check` for the exit status.
async fn check(env: &Env, dir: &Path) -> ExitCode {
    let report = match offline::check(env, dir).await {
        Ok(report) => report,
        Err(OfflineError::Damaged(what)) => {
            println!("{what}\n1 problem; the data cannot be opened");
            return ExitCode::from(1);
        }
        Err(error) => {
            eprintln!("settee: {error}");
            return ExitCode::from(2);
        }
    };
    report.findings.iter().for_each(|line| println!("{line}"));
    let CheckReport { databases, shards, documents, revisions, attachments, .. } = &report;
    println!(
        "{databases} databases, {shards} shards, {documents} documents, {revisions} revisions, {attachments} attachments \
         read; {} problems",
        report.problems()
    );
    ExitCode::from(u8::from(report.problems() > 0))
}

/// Exit status 1 when documents had to be left out.
async fn dump(env: &Env, flags: &Dump) -> Result<ExitCode, Failure> {
    let mut out: Box<dyn Write + Send> = match &flags.out {
        Some(path) => Box::new(BufWriter::new(at(path, File::create_new(path))?)),
        None => Box::new(BufWriter::new(std::io::stdout())),
    };
    let mut say = |line: String| eprintln!("settee: {line}");
    let counts = offline::dump(env, (&flags.data, &flags.db), &mut out, &mut say).await.map_err(failure)?;
    if let Some(path) = &flags.out {
        // The stream is a backup: it is on the disk when we say so.
        drop(out);
        at(path, File::open(path).and_then(|file| file.sync_all()))?;
    }
    eprintln!("{} documents, {} local documents, {} purges", counts.documents, counts.locals, counts.purges);
    Ok(ExitCode::from(u8::from(counts.skipped > 0)))
}

async fn load(env: &Env, flags: &Load) -> Result<ExitCode, Failure> {
    let mut input: Box<dyn Read + Send> = match &flags.input {
        Some(path) => Box::new(BufReader::new(at(path, File::open(path))?)),
        None => Box::new(BufReader::new(std::io::stdin())),
    };
    let (name, counts) = offline::load(env, &flags.data, flags.db.as_deref(), &mut input).await.map_err(failure)?;
    println!("{name}: {} documents, {} local documents, {} purges", counts.documents, counts.locals, counts.purges);
    Ok(ExitCode::SUCCESS)
}

async fn restore(env: &Env, flags: &Restore) -> Result<ExitCode, Failure> {
    let done = match &flags.db {
        Some(name) => {
            let names = (name.as_str(), flags.new_name.as_deref());
            vec![offline::restore(env, &flags.from, &flags.data, names).await.map_err(failure)?]
        }
        None => offline::restore_node(env, &flags.from, &flags.data).await.map_err(failure)?,
    };
    for Restored { name, counts, taken_ms } in done {
        println!("{name}: {} documents, as of {taken_ms} ms since 1970", counts.documents);
    }
    Ok(ExitCode::SUCCESS)
}

/// Exit status 1 when something could not be taken over.
async fn salvage(env: &Env, flags: &Salvage) -> Result<ExitCode, Failure> {
    let mut say = |line: String| println!("{line}");
    let done = offline::salvage(env, &flags.data, &flags.to, &mut say).await.map_err(failure)?;
    let (databases, documents, lost) = (done.databases, done.documents, done.lost);
    println!("{databases} databases, {documents} documents taken over; {lost} losses told above");
    Ok(ExitCode::from(u8::from(lost > 0)))
}

pub(crate) fn at<T>(path: &Path, result: std::io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| failure(format_args!("{}: {error}", path.display())))
}

/// Runs a node from its start to its end; true: it is to start anew.
async fn serve(env: &Env, flags: &Serve) -> Result<bool, Failure> {
    let mut signals = Signals::new()?;
    make_data_dir(env, flags).await?;
    let config = load_config(env, flags).await?;
    let clock = env.clone();
    let log = observe::start_log(&log_options(&config), env.metrics(), Arc::new(move || clock.wall()));
    config.check().map_err(failure)?;
    follow_log_level(env, &config, log);
    settle_admins(env, &config, flags).await?;

    let node = Node::start(env, &config, &flags.data).await.map_err(|error| match error {
        StartError::Damaged(..) => Failure(error.to_string(), NOT_WHOLE),
        other => failure(other),
    })?;
    let (address, secure_address) = (node.address(), node.secure_address());
    let banner = cli::banner::text(&config, &cli::banner::Started { address, secure_address, data: &flags.data });
    // The reader may be gone; the node serves all the same.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(banner.as_bytes()).and_then(|()| out.flush());
    drop(out);

    let again = tokio::select! {
        biased;
        () = signals.next() => false,
        () = node.restart_wanted() => true,
    };
    tracing::info!("stopping: requests in progress are finished first");
    tokio::select! {
        biased;
        finished = node.stop() => {
            if !finished {
                tracing::warn!("some requests were not finished in time and were cut off");
            }
            Ok(again)
        }
        () = signals.next() => Err(failure("stopped by a second signal before all requests were finished")),
    }
}

/// Prints a join token of the node with that data directory, which may be running.
async fn token(env: &Env, flags: &Token) -> Result<(), Failure> {
    let fallback = Some(flags.data.join("local.ini"));
    let sources = Sources { files: flags.config.clone(), fallback, overrides: Vec::new() };
    let config = Config::load(env, sources).await.map_err(failure)?;
    match (config.get("cluster", "secret"), config.get("settee", "node")) {
        (Some(secret), Some(node)) => {
            println!("{}", cluster::make_token(env, &secret, &node));
            Ok(())
        }
        _ => Err(failure("that node is not ready for others: start it with --cluster-port, or set up a cluster")),
    }
}

async fn make_data_dir(env: &Env, flags: &Serve) -> Result<(), Failure> {
    let (disk, dir) = (env.disk(), flags.data.clone());
    let made = env.blocking(Pool::Foreground, move || disk.create_dir_all(&dir)).await;
    made.map_err(|e| failure(format_args!("data directory: {e}")))
}

async fn load_config(env: &Env, flags: &Serve) -> Result<Config, Failure> {
    let fallback = Some(flags.data.join("local.ini"));
    let sources = Sources { files: flags.config.clone(), fallback, overrides: flags.overrides() };
    Config::load(env, sources).await.map_err(failure)
}

/// Stores the administrator of the command line, hashes plain passwords, and insists on one administrator.
async fn settle_admins(env: &Env, config: &Config, flags: &Serve) -> Result<(), Failure> {
    if let Some(Admin { name, password }) = &flags.admin {
        let stored = config.get(admins::SECTION, name).and_then(|text| StoredHash::parse(&text));
        let given = password.clone();
        let check = move || stored.is_some_and(|s| s.matches(given.as_bytes()));
        // A restart with the same flag leaves the file alone.
        if !env.blocking(Pool::Foreground, check).await {
            admins::put(env, config, name, password, true).await.map_err(failure)?;
        }
    }
    for error in admins::hash_plain_passwords(env, config).await {
        tracing::warn!("a plain password of [admins] could not be replaced by its hash: {error}");
    }
    // A node that joins is given the administrators of its cluster.
    if admins::any(config) || flags.join.is_some() {
        return Ok(());
    }
    let file = config.written_file().unwrap_or_default();
    Err(failure(format_args!(
        "no server administrator: start with --admin NAME:PASSWORD, or put a line NAME = PASSWORD under [admins] in {}",
        file.display()
    )))
}

/// The log as it is configured now.
fn log_options(config: &Config) -> LogOptions {
    LogOptions {
        level: config.text("log", "level", "info"),
        levels: config.text("log", "levels", ""),
        is_json: config.text("log", "format", "text") == "json",
    }
}

/// Follows `log/level` for as long as the node runs.
fn follow_log_level(env: &Env, config: &Config, log: observe::LogLevel) {
    let (config, mut changes) = (config.clone(), config.watch());
    env.spawn(async move {
        while changes.changed().await.is_ok() {
            log.follow(&log_options(&config));
        }
    });
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|e| failure(format_args!("cannot listen for signals: {e}")));
        Ok(Signals { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
