//! Migration: carries databases from one CouchDB-compatible server to another one, for `settee import` and
//! `settee export`, and reads what other programs wrote (`couchbackup`, `ini`).
//!
//! A migration is a client of both servers. It uses the replication protocol for documents, and ordinary requests for
//! what replication leaves behind: security objects, limits, local documents. Several databases are carried over at
//! once (`database`); each is compared leaf by leaf at its end (`verify`).
//!
//! Promises: revisions keep their ids, histories and attachments, conflicts and deleted leaves included; after a kill
//! at any point the next run goes on, loses nothing, and writes nothing twice; nothing is written to the source.

use futures_util::stream::{self, StreamExt as _};

use super::error::{ReplicateError, Result};
use crate::limits;
use crate::wire::client::Patience;
use crate::wire::tls::Trust;
use crate::world::Env;

pub mod couchbackup;
mod database;
pub mod ini;
mod progress;
mod server;
mod verify;

pub use crate::observe::told::{Tell, Told};
pub use database::Done;
pub use server::Address;
pub use verify::Compared;

use database::{Transfer, run_of};
use progress::Totals;
use server::{Info, Server};

/// Databases that each server has for itself. They are carried over only where a pattern names them in full.
const OF_THE_SERVER: [&str; 6] = ["_replicator", "_global_changes", "_dbs", "_nodes", "_metadata", "_shards"];

/// Which local documents are carried over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locals {
    /// None.
    #[default]
    None,
    /// Those of applications: no checkpoints of replications.
    Documents,
    /// Checkpoints of replications, too.
    All,
}

/// How thoroughly the target is compared at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Not at all.
    None,
    /// Every leaf is there.
    #[default]
    Leaves,
    /// Every leaf is there with its content, history and attachments.
    Full,
}

/// What is to be carried over, and how.
#[derive(Clone, Debug)]
pub struct Order {
    /// Where from.
    pub source: Address,
    /// Where to.
    pub target: Address,
    /// Names of databases, `*` standing for any characters; none: all.
    pub databases: Vec<String>,
    /// Names to be left out, likewise.
    pub excluded: Vec<String>,
    /// Databases at once.
    pub parallel: usize,
    /// Ranges of databases that are made.
    pub q: Option<u64>,
    /// Replicas of databases that are made.
    pub n: Option<u64>,
    /// Local documents.
    pub locals: Locals,
    /// The comparison at the end.
    pub verify: Verify,
    /// Whom to trust over https.
    pub trust: Trust,
}

/// What became of a migration.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Databases that are on the target.
    pub databases: u64,
    /// Databases that are not there in full, each with the reason.
    pub failed: Vec<(String, String)>,
    /// Revisions that were written by this run.
    pub written: u64,
    /// What the comparisons found, together.
    pub compared: Compared,
}

impl Report {
    /// Whether everything is on the target.
    pub fn is_whole(&self) -> bool {
        self.failed.is_empty()
    }

    fn add(&mut self, name: &str, outcome: Result<Done>, tell: Tell<'_>) {
        let say = |line: String| tell(Told::Line(format!("{name}: {line}")));
        let done = match outcome {
            Ok(done) => done,
            Err(error) => {
                say(format!("failed: {}", error.text()));
                return self.failed.push((name.to_owned(), error.text()));
            }
        };
        done.notes.iter().for_each(|note| say(note.clone()));
        let refused = done.refused.iter();
        refused.for_each(|refusal| say(format!("refused: {} {}: {}", refusal.id, refusal.error, refusal.reason)));
        self.written += done.written;
        let Some(compared) = done.compared else {
            say(format!("{} revisions written, not compared", done.written));
            if !done.refused.is_empty() {
                return self.failed.push((name.to_owned(), "documents were refused".to_owned()));
            }
            self.databases += 1;
            return;
        };
        compared.lacking.iter().for_each(|leaf| say(format!("lacking: {leaf}")));
        compared.different.iter().for_each(|leaf| say(format!("different: {leaf}")));
        say(line_of(&done.written, &compared));
        match compared.is_whole() {
            true => self.databases += 1,
            false => self.failed.push((name.to_owned(), format!("{} leaves are lacking", compared.lost))),
        }
        let sum = &mut self.compared;
        sum.documents += compared.documents;
        sum.leaves += compared.leaves;
        sum.same += compared.same;
        sum.newer += compared.newer;
        sum.extra += compared.extra;
        sum.copied += compared.copied;
        sum.lost += compared.lost;
    }
}

fn line_of(written: &u64, compared: &Compared) -> String {
    let Compared { documents, leaves, same, newer, extra, lost, .. } = compared;
    let mut line =
        format!("{written} revisions written; {documents} documents with {leaves} leaves compared, {same} equal");
    for (count, what) in [(newer, "newer on the target"), (extra, "only on the target"), (lost, "leaves lacking")] {
        if *count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}

/// How patient a migration is with both servers.
fn patience() -> Patience {
    Patience { silence: limits::MIGRATION_SILENCE, retries: limits::MIGRATION_RETRIES }
}

/// Carries everything over that `order` names.
///
/// # Errors
/// When a server cannot be asked for its databases. What befalls single databases is in the report.
pub async fn migrate(env: &Env, order: &Order, tell: Tell<'_>) -> Result<Report> {
    let source = Server::new(env, &order.source, patience(), order.trust.clone());
    let target = Server::new(env, &order.target, patience(), order.trust.clone());
    target.databases().await?;
    let names = wanted(source.databases().await?, &order.databases, &order.excluded);
    if names.is_empty() {
        return Err(ReplicateError::NotFound("no database of the source has such a name".to_owned()));
    }
    let totals = Totals::default();
    let mut todo: Vec<(String, Info)> = Vec::new();
    for names in names.chunks(limits::MIGRATION_INFOS) {
        // One that was deleted meanwhile is no failure.
        let found = names.iter().zip(source.infos(names).await?);
        todo.extend(found.filter_map(|(name, info)| Some((name.clone(), info?))));
    }
    todo.iter().for_each(|(name, info)| totals.add(name, info.documents));
    let (source, target, totals) = (&source, &target, &totals);
    let transfers = todo.iter().map(|(name, info)| async move {
        let transfer = async {
            let run = run_of(env, order, name)?;
            Transfer { env, order, source, target, name, info: info.clone(), totals, run }.run().await
        };
        (name, transfer.await)
    });
    let mut transfers =
        stream::iter(transfers).buffer_unordered(order.parallel.clamp(1, limits::MIGRATION_PARALLEL_MAX));
    let mut report = Report::default();
    loop {
        tokio::select! {
            biased;
            next = transfers.next() => match next {
                None => return Ok(report),
                Some((name, outcome)) => {
                    totals.finish(name);
                    report.add(name, outcome, tell);
                }
            },
            () = env.sleep(limits::MIGRATION_PROGRESS) => tell(Told::Progress(totals.line(env.now()))),
        }
    }
}

/// The databases that are to be carried over, those of users first: who may log in does not wait for the data.
fn wanted(names: Vec<String>, patterns: &[String], excluded: &[String]) -> Vec<String> {
    let is_wanted = |name: &String| {
        let named = match patterns {
            [] => !OF_THE_SERVER.contains(&name.as_str()),
            patterns if OF_THE_SERVER.contains(&name.as_str()) => patterns.contains(name),
            patterns => patterns.iter().any(|pattern| matches(pattern, name)),
        };
        named && !excluded.iter().any(|pattern| matches(pattern, name))
    };
    let mut out: Vec<String> = names.into_iter().filter(is_wanted).collect();
    out.sort_by_key(|name| name != "_users");
    out
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => match name.strip_prefix(head) {
            None => false,
            Some(left) => (0..=left.len()).filter(|at| left.is_char_boundary(*at)).any(|at| matches(rest, &left[at..])),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_names_with_stars() {
        for (pattern, name) in [("a", "a"), ("a*", "abc"), ("*", ""), ("*b*d", "abcd"), ("user-*/x", "user-ü/x")] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("a*c", "ab"), ("", "a")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn databases_of_the_server_are_carried_over_only_by_name() {
        let names = ["a", "_replicator", "_users", "b"].map(str::to_owned).to_vec();
        let asked = |patterns: &[&str], excluded: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            wanted(names.clone(), &texts(patterns), &texts(excluded)).join(" ")
        };
        assert_eq!(asked(&[], &[]), "_users a b");
        assert_eq!(asked(&["*"], &["b"]), "_users a");
        assert_eq!(asked(&["a", "_replicator"], &[]), "a _replicator");
    }
}
