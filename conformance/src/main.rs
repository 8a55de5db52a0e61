//! `settee-conformance`: holds any CouchDB-compatible server against recorded answers, case by case.
//!
//! Cases are data (README.md). Those that work on databases of their own run beside each other; those that see or
//! change what all share run alone afterwards. Exit status 0: nothing failed; 1: something did; 2: could not run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

mod client;
mod compare;
mod json;
mod multipart;
mod player;
mod profile;
mod report;
mod transcript;

use client::Target;
use player::Player;
use profile::Profile;
use report::{Row, Verdict};
use transcript::Case;

/// Runs the conformance suite against a server and prints what differs.
#[derive(Parser, Clone, Debug)]
#[command(name = "settee-conformance", version)]
struct Options {
    /// The server, with an administrator: http://name:password@host:port
    #[arg(long)]
    url: String,
    /// Folder of cases, one folder a chapter [default: the suite's own]
    #[arg(long)]
    cases: Option<PathBuf>,
    /// Name of a profile (expected failures) in the folder `profiles` beside the cases
    #[arg(long)]
    profile: Option<String>,
    /// Write JUnit XML here
    #[arg(long)]
    junit: Option<PathBuf>,
    /// Write all verdicts as JSON here
    #[arg(long)]
    json: Option<PathBuf>,
    /// Revision hashes must be the reference's own, not only well formed
    #[arg(long)]
    revs: bool,
    /// Only cases whose chapter/name or title has this text
    #[arg(long)]
    filter: Option<String>,
    /// How many cases run beside each other
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Also play cases that change the server's configuration (and change it back)
    #[arg(long)]
    allow_config: bool,
    /// An unexpected pass does not count as a failure
    #[arg(long)]
    lenient: bool,
    /// Seconds of silence after which a request has failed
    #[arg(long, default_value_t = 20.0)]
    timeout: f64,
}

/// What every case needs to be judged.
struct Run {
    options: Options,
    target: Target,
    patience: Duration,
    profile: Profile,
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
    match runtime.block_on(run(options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("settee-conformance: {e}");
            ExitCode::from(2)
        }
    }
}

/// Plays, prints and writes everything; whether nothing failed.
async fn run(options: Options) -> Result<bool, String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let dir = options.cases.clone().unwrap_or_else(|| root.join("cases"));
    let all = transcript::load(&dir)?;
    let profile = match &options.profile {
        Some(name) => Profile::load(&dir.join("..").join("profiles"), name)?,
        None => Profile::default(),
    };
    let ids: Vec<&str> = all.iter().map(|c| c.id.as_str()).collect();
    if let Some(stranger) = profile.strangers(&ids).first() {
        return Err(format!("the profile of {} names {stranger}, which is no case", profile.product));
    }
    let wanted = |c: &Case| options.filter.as_ref().is_none_or(|f| c.id.contains(f) || c.title.contains(f));
    let cases: Vec<Case> = all.iter().filter(|c| wanted(c)).cloned().collect();
    let target = Target::parse(&options.url)?;
    let patience = Duration::try_from_secs_f64(options.timeout).map_err(|e| format!("--timeout: {e}"))?;
    let run = Arc::new(Run { target, patience, profile, options });
    let rows = play_all(&run, cases).await?;
    let lenient = run.options.lenient;
    let write =
        |path: &PathBuf, text: String| std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()));
    if let Some(path) = &run.options.junit {
        write(path, report::junit(&rows, lenient))?;
    }
    if let Some(path) = &run.options.json {
        write(path, report::json(&rows, lenient))?;
    }
    print!("{}", report::terminal(&rows, lenient));
    Ok(report::totals(&rows, lenient).failed == 0)
}

/// First the cases that mind their own databases, `jobs` at a time, then the others one by one; rows in file order.
async fn play_all(run: &Arc<Run>, cases: Vec<Case>) -> Result<Vec<Row>, String> {
    let (alone, beside): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|c| c.alone);
    let gate = Arc::new(Semaphore::new(run.options.jobs.max(1)));
    let mut tasks = JoinSet::new();
    for case in beside {
        let (run, gate) = (Arc::clone(run), Arc::clone(&gate));
        tasks.spawn(async move {
            let _turn = gate.acquire().await;
            play_one(&run, &case).await
        });
    }
    let mut rows = Vec::new();
    while let Some(row) = tasks.join_next().await {
        rows.push(row.map_err(|e| format!("a case's task: {e}"))?);
    }
    for case in &alone {
        rows.push(play_one(run, case).await);
    }
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(rows)
}

async fn play_one(run: &Run, case: &Case) -> Row {
    let from = Instant::now();
    let verdict = judge(run, case).await;
    Row { id: case.id.clone(), chapter: case.chapter.clone(), title: case.title.clone(), verdict, took: from.elapsed() }
}

async fn judge(run: &Run, case: &Case) -> Verdict {
    let player = Player::new(&run.target, run.patience);
    if case.changes_config && !run.options.allow_config && !case.requires.account {
        return Verdict::Skipped("changes the server's configuration (--allow-config plays it)".to_owned());
    }
    let differences = match player.missing(&case.requires).await {
        Ok(Some(reason)) => return Verdict::Skipped(reason),
        Ok(None) => match player.play(case).await {
            Ok(outcomes) => compare::compare(case, &outcomes, run.options.revs),
            Err(told) => vec![told],
        },
        Err(told) => vec![told],
    };
    match (run.profile.expected.get(&case.id), differences.is_empty()) {
        (None, true) => Verdict::Passed,
        (None, false) => Verdict::Failed(differences),
        (Some(reason), true) => Verdict::Unexpected(reason.clone()),
        (Some(reason), false) => Verdict::Expected(reason.clone(), differences),
    }
}
