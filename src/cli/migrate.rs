//! The commands `import` and `export`: their flags, and what they do. Both are clients of two servers
//! (`docs/migrating.md`).

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::limits;
use crate::replicate::ReplicateError;
use crate::replicate::migrate::couchbackup::{self, Backup};
use crate::replicate::migrate::{self, Address, Locals, Order, Report, Verify, ini};
use crate::wire::tls::Trust;
use crate::world::Env;
use clap::{Args, ValueEnum};

use super::show;
use crate::program::{Failure, at, failure};

/// The address of a node on this machine.
const HERE: &str = "http://127.0.0.1:5984";
/// Credentials for the source, `NAME:PASSWORD`: other users of a machine see the arguments of a program.
const SOURCE_LOGIN: &str = "SETTEE_SOURCE_LOGIN";
/// Credentials for the target.
const TARGET_LOGIN: &str = "SETTEE_TARGET_LOGIN";

/// Flags of `settee import`.
#[derive(Args, Debug)]
#[command(after_help = "Credentials that an address does not hold are read from SETTEE_SOURCE_LOGIN and \
    SETTEE_TARGET_LOGIN, as NAME:PASSWORD. Exit status: 0 everything is on the target, 1 something is not.")]
pub struct Import {
    /// The server to import from: CouchDB, Cloudant, PouchDB Server, settee
    #[arg(long, value_name = "URL", required_unless_present_any = ["couchbackup", "ini"])]
    pub url: Option<String>,
    /// A file that couchbackup wrote, to be loaded into the database --db; `-` is standard input, without comparison
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    pub couchbackup: Option<PathBuf>,
    /// A configuration file of CouchDB; may be repeated, later ones win. Writes a file for `settee serve --config`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "couchbackup"], requires = "config")]
    pub ini: Vec<PathBuf>,
    /// The file that --ini writes; must not exist
    #[arg(long, value_name = "FILE", requires = "ini")]
    pub config: Option<PathBuf>,
    /// The server to import into: one node of a settee cluster
    #[arg(long, value_name = "URL", default_value = HERE)]
    pub to: String,
    /// What to carry over, and how
    #[command(flatten)]
    pub choices: Choices,
}

/// Flags of `settee export`.
#[derive(Args, Debug)]
#[command(after_help = "Credentials that an address does not hold are read from SETTEE_SOURCE_LOGIN and \
    SETTEE_TARGET_LOGIN, as NAME:PASSWORD. Exit status: 0 everything is on the target, 1 something is not.")]
pub struct Export {
    /// The server to export to: any that speaks CouchDB's replication protocol
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// The node to export from
    #[arg(long, value_name = "URL", default_value = HERE)]
    pub url: String,
    /// What to carry over, and how
    #[command(flatten)]
    pub choices: Choices,
}

/// Flags of both.
#[derive(Args, Debug)]
pub struct Choices {
    /// A database, or a pattern with `*`; may be repeated [default: all but _replicator and _global_changes]
    #[arg(long = "db", value_name = "PATTERN")]
    pub databases: Vec<String>,
    /// A database to be left out, or a pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Databases at once
    #[arg(long, value_name = "N", default_value_t = limits::MIGRATION_PARALLEL)]
    pub parallel: usize,
    /// Ranges of databases that are made [default: the target's]
    #[arg(long, value_name = "N")]
    pub q: Option<u64>,
    /// Replicas of databases that are made [default: the target's]
    #[arg(long, value_name = "N")]
    pub n: Option<u64>,
    /// Local documents: none, those of applications, or checkpoints of replications too
    #[arg(long, value_name = "WHICH", default_value = "none")]
    pub local: Local,
    /// The comparison at the end: none, every leaf is there, or every leaf with content, history and attachments
    #[arg(long, value_name = "HOW", default_value = "leaves")]
    pub verify: Compare,
    /// Authorities to trust over https, PEM [default: those of the operating system]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long, conflicts_with = "ca_file")]
    pub insecure: bool,
}

/// See [`Locals`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Local {
    /// No local documents.
    None,
    /// Those of applications.
    Documents,
    /// Checkpoints of replications too.
    All,
}

/// See [`Verify`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Compare {
    /// No comparison.
    None,
    /// Every leaf is there.
    Leaves,
    /// Content, history and attachments too.
    Full,
}

fn address(text: &str, login: &str) -> Result<Address, Failure> {
    let login = std::env::var(login).ok();
    Address::parse(text, login.as_deref()).map_err(|error| failure(error.text()))
}

impl Choices {
    fn order(&self, source: Address, target: Address) -> Order {
        let trust = match (&self.ca_file, self.insecure) {
            (Some(path), _) => Trust::File(path.clone()),
            (None, true) => Trust::Anyone,
            (None, false) => Trust::System,
        };
        Order {
            source,
            target,
            databases: self.databases.clone(),
            excluded: self.exclude.clone(),
            parallel: self.parallel,
            q: self.q,
            n: self.n,
            locals: match self.local {
                Local::None => Locals::None,
                Local::Documents => Locals::Documents,
                Local::All => Locals::All,
            },
            verify: match self.verify {
                Compare::None => Verify::None,
                Compare::Leaves => Verify::Leaves,
                Compare::Full => Verify::Full,
            },
            trust,
        }
    }
}

/// Runs `settee import`.
pub async fn import(env: &Env, flags: &Import) -> Result<ExitCode, Failure> {
    if let (false, Some(out)) = (flags.ini.is_empty(), &flags.config) {
        return translate(&flags.ini, out);
    }
    let target = address(&flags.to, TARGET_LOGIN)?;
    if let Some(file) = &flags.couchbackup {
        let order = flags.choices.order(target.clone(), target);
        return backup(env, order, file).await;
    }
    let source = address(flags.url.as_deref().unwrap_or_default(), SOURCE_LOGIN)?;
    let outcome = migrate::migrate(env, &flags.choices.order(source, target), &show).await;
    ended(outcome)
}

/// Runs `settee export`.
pub async fn export(env: &Env, flags: &Export) -> Result<ExitCode, Failure> {
    let order = flags.choices.order(address(&flags.url, SOURCE_LOGIN)?, address(&flags.to, TARGET_LOGIN)?);
    ended(migrate::migrate(env, &order, &show).await)
}

/// Tells the outcome.
fn ended(outcome: Result<Report, ReplicateError>) -> Result<ExitCode, Failure> {
    let report = outcome.map_err(|error| failure(error.text()))?;
    let Report { databases, written, compared, failed } = &report;
    println!(
        "{databases} databases on the target; {written} revisions written; {} leaves of {} documents compared, {} lacking",
        compared.leaves, compared.documents, compared.lost
    );
    failed.iter().for_each(|(name, why)| println!("failed: {name}: {why}"));
    Ok(ExitCode::from(u8::from(!report.is_whole())))
}

async fn backup(env: &Env, mut order: Order, file: &Path) -> Result<ExitCode, Failure> {
    let [name] = order.databases.as_slice() else {
        return Err(failure("--couchbackup needs one --db NAME: the file does not tell the name of its database"));
    };
    let name = name.clone();
    let is_pipe = file == Path::new("-");
    if is_pipe {
        order.verify = Verify::None;
    }
    let identity = if is_pipe { "-".to_owned() } else { identity(file)? };
    let path = file.to_path_buf();
    let open = move || -> io::Result<Backup> {
        if path == Path::new("-") {
            return Ok(Box::new(BufReader::new(io::stdin())));
        }
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Ok(Box::new(BufReader::with_capacity(1 << 20, File::open(&path).map_err(named)?)))
    };
    ended(couchbackup::load(env, &order, (&name, &identity), &open, &show).await)
}

/// What tells a file from others: where it lies and how long it is.
fn identity(file: &Path) -> Result<String, Failure> {
    let found = at(file, std::fs::canonicalize(file))?;
    let bytes = at(file, std::fs::metadata(&found))?.len();
    Ok(format!("{} {bytes}", found.display()))
}

/// Translates configuration files.
fn translate(files: &[PathBuf], out: &Path) -> Result<ExitCode, Failure> {
    let texts = files.iter().map(|path| at(path, std::fs::read_to_string(path))).collect::<Result<Vec<_>, _>>()?;
    let done = ini::translate(&texts);
    done.left_out.iter().for_each(|(option, why)| println!("left out: {option}: {why}"));
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = at(out, options.write(true).create_new(true).open(out))?;
    at(out, file.write_all(done.text.as_bytes()).and_then(|()| file.sync_all()))?;
    println!("{} options written to {}, {} left out", done.kept, out.display(), done.left_out.len());
    Ok(ExitCode::SUCCESS)
}
