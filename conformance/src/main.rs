//! `settee-conformance`: holds any CouchDB-compatible server against recorded answers, case by case.
//!
//! Cases are data (README.md). Those that work on databases of their own run beside each other; those that see or
//! change what all share run alone afterwards. Exit status 0: nothing failed; 1: something did; 2: could not run.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};

use settee_conformance::client::Target;
use settee_conformance::level::Levels;
use settee_conformance::profile::Profile;
use settee_conformance::rows;
use settee_conformance::run::{self, Run};
use settee_conformance::suite::Suite;
use settee_conformance::transcript::Case;
use settee_conformance::{diff, faults, html, player, record, report, summary};

/// Runs the conformance suite against a server and prints what differs.
#[derive(Parser, Clone, Debug)]
#[command(name = "settee-conformance", version, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// The server, with an administrator: http://name:password@host:port
    #[arg(long, required = true)]
    url: Option<String>,
    /// Folder of cases, one folder a chapter [default: those that were packed into the program]
    #[arg(long, global = true)]
    cases: Option<PathBuf>,
    /// A profile (expected failures): a file, or the name of one that comes with the suite
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
    /// Write one page that sums up here, to be shown to others
    #[arg(long)]
    summary: Option<PathBuf>,
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
    /// Leave out cases in which the specification decides against the reference
    #[arg(long)]
    as_reference: bool,
    /// An unexpected pass does not count as a failure
    #[arg(long)]
    lenient: bool,
    /// Seconds of silence after which a request has failed
    #[arg(long, default_value_t = 60.0, global = true)]
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
    /// Plays every case, or random conversations, against two servers and prints where the second answers otherwise
    Diff {
        /// Both servers: --url A --url B
        #[arg(long, num_args = 1, required = true)]
        url: Vec<String>,
        #[command(flatten)]
        random: RandomOptions,
    },
    /// Kills and pauses the nodes of a cluster by given commands while clients write, and checks what is there
    /// afterwards
    Faults {
        /// The cluster: a file of [[node]] tables with name, url, and the commands start, kill, pause, resume
        #[arg(long)]
        cluster: PathBuf,
        /// How many rounds
        #[arg(long, default_value_t = 5)]
        rounds: u64,
        /// The seed of the first round
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Seconds for which clients write in a round
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Writers beside each other
        #[arg(long, default_value_t = 4)]
        writers: usize,
        /// Seconds within which all nodes must hold the same after the last fault
        #[arg(long, default_value_t = 60)]
        settle: u64,
    },
    /// Prints which cases name which row of the specification
    Matrix,
}

/// Random conversations in place of cases.
#[derive(clap::Args, Clone, Debug)]
struct RandomOptions {
    /// Play random conversations of so many seeds, of every chapter of them or of --chapter
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// A list of known differences: a file, or the name of one that comes with the suite
    #[arg(long)]
    known: Option<String>,
    /// Of how many kinds of differences to look for the shortest conversation
    #[arg(long, default_value_t = 20)]
    shrink: usize,
    /// Write the shortest conversations into this folder, as drafts of cases
    #[arg(long)]
    write: Option<PathBuf>,
    /// Hashes of revisions must be equal
    #[arg(long = "same-revs")]
    own_revs: bool,
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
    let suite = options.cases.clone().map_or(Suite::Packed, Suite::Folder);
    let patience = Duration::try_from_secs_f64(options.timeout).map_err(|e| format!("--timeout: {e}"))?;
    match options.command.clone() {
        Some(Command::Record { url, files }) => {
            let target = Target::parse(&url)?;
            player::Player::new(&target, patience).ready().await?;
            for file in &files {
                record::record(&target, patience, file).await?;
                say(&format!("recorded {}\n", file.display()))?;
            }
            Ok(true)
        }
        Some(Command::Diff { url, random }) => {
            let [a, b] = url.as_slice() else { return Err("diff: --url A --url B".to_owned()) };
            let servers = (Target::parse(a)?, Target::parse(b)?);
            player::Player::new(&servers.0, patience).ready().await?;
            player::Player::new(&servers.1, patience).ready().await?;
            if let Some(seeds) = random.seeds {
                return compare_randomly(servers, seeds, random, (&options, &suite), patience).await;
            }
            let cases = chosen(&suite.cases()?, &options, &Levels::default())?;
            let report = diff::diff(servers, patience, cases, options.jobs).await?;
            say(&report.text)?;
            Ok(report.differing == 0)
        }
        Some(Command::Faults { cluster, rounds, seed, seconds, writers, settle }) => {
            let cluster = faults::Cluster::load(&cluster)?;
            let plan = faults::Plan { rounds, seed, seconds, writers, settle: Duration::from_secs(settle) };
            let outcome = faults::run(&cluster, &plan).await?;
            say(&outcome.text)?;
            Ok(outcome.failed == 0)
        }
        Some(Command::Matrix) => {
            say(&rows::matrix(&suite.rows()?, &suite.cases()?))?;
            Ok(true)
        }
        None => hold(options, &suite, patience).await,
    }
}

/// Plays random conversations; whether none differed.
async fn compare_randomly(
    servers: (Target, Target),
    seeds: u64,
    random: RandomOptions,
    (options, suite): (&Options, &Suite),
    patience: Duration,
) -> Result<bool, String> {
    let every = || settee_conformance::random::chapters().into_iter().map(str::to_owned).collect();
    let plan = diff::random::Plan {
        from: random.from,
        seeds,
        chapters: options.chapter.clone().map_or_else(every, |one| vec![one]),
        known: random.known.map_or(Ok(diff::known::Known::default()), |name| suite.known(&name))?,
        jobs: options.jobs,
        patience,
        own_revs: random.own_revs,
        shrink: random.shrink,
        write: random.write,
    };
    let report = diff::random::compare(servers, plan).await?;
    say(&report.text)?;
    Ok(report.differing == 0)
}

/// Prints. A reader that went away (`| head`) is no failure: the exit status tells the outcome all the same.
fn say(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.to_string()),
        _ => Ok(()),
    }
}

/// The cases that the options ask for; none is an error, so that a misspelt option does not look like a success.
fn chosen(all: &[Case], options: &Options, levels: &Levels) -> Result<Vec<Case>, String> {
    let named = |c: &Case| options.filter.as_ref().is_none_or(|f| c.id.contains(f) || c.title.contains(f));
    let level = |c: &Case| options.level.as_ref().is_none_or(|level| levels.of(c) == *level);
    let chapter = |c: &Case| options.chapter.as_ref().is_none_or(|chapter| c.chapter == *chapter);
    let decided = |c: &Case| options.as_reference && c.by_spec;
    let cases: Vec<Case> = all.iter().filter(|c| named(c) && level(c) && chapter(c) && !decided(c)).cloned().collect();
    if cases.is_empty() { Err("no case is as --filter, --chapter and --level say".to_owned()) } else { Ok(cases) }
}

/// What the page that sums up says of the server and of the run.
async fn about(options: &Options, run: &Run, server: String) -> summary::About {
    let profile = options.profile.clone().unwrap_or_default();
    let mut command = format!("settee-conformance --url http://ADMIN:PASSWORD@{server}");
    for (option, value) in
        [("--profile", &options.profile), ("--chapter", &options.chapter), ("--level", &options.level)]
    {
        if let Some(value) = value {
            command.push_str(&format!(" {option} {value}"));
        }
    }
    if options.allow_config {
        command.push_str(" --allow-config");
    }
    let product = player::Player::new(&run.target, run.patience).product().await;
    summary::About { server, product, profile, suite: env!("CARGO_PKG_VERSION").to_owned(), command }
}

/// Plays, prints and writes everything; whether nothing failed.
async fn hold(options: Options, suite: &Suite, patience: Duration) -> Result<bool, String> {
    let all = suite.cases()?;
    let levels = suite.levels()?;
    let profile = options.profile.as_ref().map_or(Ok(Profile::default()), |name| suite.profile(name))?;
    let ids: Vec<&str> = all.iter().map(|c| c.id.as_str()).collect();
    if let Some(stranger) = profile.strangers(&ids).first() {
        return Err(format!("the profile of {} names {stranger}, which is no case", profile.product));
    }
    let mut cases = chosen(&all, &options, &levels)?;
    cases.iter_mut().for_each(|case| profile.relax(case));
    for (header, reason) in &profile.ignored_headers {
        say(&format!("EVERYWHERE header {header} does not count: {reason}\n"))?;
    }
    let target = Target::parse(options.url.as_deref().unwrap_or_default())?;
    player::Player::new(&target, patience).ready().await?;
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
    if let Some(path) = &options.summary {
        let about = about(&options, &run, server).await;
        write(path, summary::page(&rows, &run.levels, &about, lenient))?;
    }
    say(&report::terminal(&rows, &run.levels, lenient))?;
    Ok(report::totals(&rows, lenient).failed == 0)
}
