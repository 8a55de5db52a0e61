//! `settee-conformance`: holds any CouchDB-compatible server against recorded answers, case by case.
//!
//! Cases are data (README.md). Those that work on databases of their own run beside each other; those that see or
//! change what all share run alone afterwards. Exit status 0: nothing failed; 1: something did; 2: could not run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};

use settee_conformance::client::Target;
use settee_conformance::level::Levels;
use settee_conformance::profile::Profile;
use settee_conformance::rows::{self, Rows};
use settee_conformance::run::{self, Run};
use settee_conformance::transcript::{self, Case};
use settee_conformance::{diff, home, html, record, report};

/// Runs the conformance suite against a server and prints what differs.
#[derive(Parser, Clone, Debug)]
#[command(name = "settee-conformance", version, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// The server, with an administrator: http://name:password@host:port
    #[arg(long, required = true)]
    url: Option<String>,
    /// Folder of cases, one folder a chapter [default: the suite's own]
    #[arg(long, global = true)]
    cases: Option<PathBuf>,
    /// Name of a profile (expected failures) in the folder `profiles` beside the cases
    #[arg(long)]
    profile: Option<String>,
    /// Write JUnit XML here
    #[arg(long)]
    junit: Option<PathBuf>,
    /// Write all outcomes as JSON here
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write one page with every request and answer here
    #[arg(long)]
    html: Option<PathBuf>,
    /// Revision hashes must be the reference's own, not only well formed
    #[arg(long)]
    revs: bool,
    /// Only cases whose chapter/name or title has this text
    #[arg(long, global = true)]
    filter: Option<String>,
    /// Only cases of this chapter
    #[arg(long, global = true)]
    chapter: Option<String>,
    /// Only cases of this level
    #[arg(long)]
    level: Option<String>,
    /// How many cases run beside each other
    #[arg(long, default_value_t = 4, global = true)]
    jobs: usize,
    /// Also play cases that change the server's configuration (and change it back)
    #[arg(long)]
    allow_config: bool,
    /// An unexpected pass does not count as a failure
    #[arg(long)]
    lenient: bool,
    /// Seconds of silence after which a request has failed
    #[arg(long, default_value_t = 20.0, global = true)]
    timeout: f64,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Plays drafts twice against a reference and writes its answers into them, marking what varies
    Record {
        /// The reference, with an administrator
        #[arg(long)]
        url: String,
        /// Case files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Plays every case against two servers and prints where the second answers otherwise
    Diff {
        /// Both servers: --url A --url B
        #[arg(long, num_args = 1, required = true)]
        url: Vec<String>,
    },
    /// Prints which cases name which row of the specification
    Matrix,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("settee-conformance: {e}");
            return ExitCode::from(2);
        }
    };
    match runtime.block_on(start(options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("settee-conformance: {e}");
            ExitCode::from(2)
        }
    }
}

/// Does what was asked for; whether nothing failed.
async fn start(options: Options) -> Result<bool, String> {
    let dir = options.cases.clone().unwrap_or_else(|| home().join("cases"));
    let patience = Duration::try_from_secs_f64(options.timeout).map_err(|e| format!("--timeout: {e}"))?;
    match options.command.clone() {
        Some(Command::Record { url, files }) => {
            let target = Target::parse(&url)?;
            for file in &files {
                record::record(&target, patience, file).await?;
                println!("recorded {}", file.display());
            }
            Ok(true)
        }
        Some(Command::Diff { url }) => {
            let [a, b] = url.as_slice() else { return Err("diff: --url A --url B".to_owned()) };
            let cases = chosen(&transcript::load(&dir)?, &options, &Levels::default());
            let servers = (Target::parse(a)?, Target::parse(b)?);
            let report = diff::diff(servers, patience, cases, options.jobs).await?;
            print!("{}", report.text);
            Ok(report.differing == 0)
        }
        Some(Command::Matrix) => {
            let rows = Rows::load(&dir.join("../rows.toml"))?;
            print!("{}", rows::matrix(&rows, &transcript::load(&dir)?));
            Ok(true)
        }
        None => hold(options, &dir, patience).await,
    }
}

/// The cases that the options ask for.
fn chosen(all: &[Case], options: &Options, levels: &Levels) -> Vec<Case> {
    let named = |c: &Case| options.filter.as_ref().is_none_or(|f| c.id.contains(f) || c.title.contains(f));
    let level = |c: &Case| options.level.as_ref().is_none_or(|level| levels.of(c) == *level);
    let chapter = |c: &Case| options.chapter.as_ref().is_none_or(|chapter| c.chapter == *chapter);
    all.iter().filter(|c| named(c) && level(c) && chapter(c)).cloned().collect()
}

/// Plays, prints and writes everything; whether nothing failed.
async fn hold(options: Options, dir: &Path, patience: Duration) -> Result<bool, String> {
    let all = transcript::load(dir)?;
    let levels = Levels::load(&dir.join("../levels.toml"))?;
    let profile = match &options.profile {
        Some(name) => Profile::load(&dir.join("../profiles"), name)?,
        None => Profile::default(),
    };
    let ids: Vec<&str> = all.iter().map(|c| c.id.as_str()).collect();
    if let Some(stranger) = profile.strangers(&ids).first() {
        return Err(format!("the profile of {} names {stranger}, which is no case", profile.product));
    }
    let mut cases = chosen(&all, &options, &levels);
    cases.iter_mut().for_each(|case| profile.relax(case));
    for (header, reason) in &profile.ignored_headers {
        println!("EVERYWHERE header {header} does not count: {reason}");
    }
    let target = Target::parse(options.url.as_deref().unwrap_or_default())?;
    let server = target.authority();
    let keep = options.html.is_some();
    let run = Run {
        target,
        patience,
        profile,
        levels,
        keep,
        own_revs: options.revs,
        allow_config: options.allow_config,
        jobs: options.jobs,
    };
    let run = Arc::new(run);
    let rows = run::play_all(&run, cases).await?;
    let lenient = options.lenient;
    let write =
        |path: &PathBuf, text: String| std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()));
    if let Some(path) = &options.junit {
        write(path, report::junit(&rows, lenient))?;
    }
    if let Some(path) = &options.json {
        write(path, report::json(&rows, lenient))?;
    }
    if let Some(path) = &options.html {
        write(path, html::page(&rows, &run.levels, &server, lenient))?;
    }
    print!("{}", report::terminal(&rows, &run.levels, lenient));
    Ok(report::totals(&rows, lenient).failed == 0)
}
