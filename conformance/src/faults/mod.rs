//! A level for clusters of third parties: nodes are killed and paused by commands that the user gives while clients
//! write, and what was answered is held against what is there afterwards.
//!
//! The promises ([`check`], [`reads`]): a write that was answered 201 is kept on every node, one that was refused left
//! nothing, all nodes come to hold the same, a feed that is resumed misses nothing, writers on one revision do not both
//! win; then lists, views, queries and attachments of every node show what is there, a write is read at once
//! everywhere, and databases are those that were made and not deleted.
//! Nothing here knows a product: nodes are reached over HTTP, faults are commands of a shell.

mod check;
mod cluster;
mod reads;
mod writers;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use cluster::{Cluster, Fault, NodePlan};

use crate::json::Value;
use crate::random::dice::Dice;
use check::Finding;
use writers::Account;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many rounds, each with a database of its own and one fault at a time.
    pub rounds: u64,
    /// The seed of the first round; a round's seed draws node, fault and times.
    pub seed: u64,
    /// How long clients write in a round.
    pub seconds: u64,
    /// Writers beside each other.
    pub writers: usize,
    /// How long the nodes may take to hold the same after the last fault.
    pub settle: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// For people; the last line is `N passed, M failed, K skipped`, a check each.
    pub text: String,
    /// Checks that failed.
    pub failed: usize,
}

/// Plays all rounds.
///
/// # Errors
/// When a node is not there before a round, or a command of the plan fails.
pub async fn run(cluster: &Cluster, plan: &Plan) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let (mut passed, mut skipped) = (0, 0);
    for round in 0..plan.rounds {
        let seed = plan.seed.wrapping_add(round);
        let (told, findings) = one(cluster, plan, seed).await?;
        // Writing to a String cannot fail.
        eprintln!("round {seed}: {told}");
        let _ = writeln!(outcome.text, "round {seed}: {told}");
        for finding in findings {
            match finding {
                Finding::Kept(promise) => {
                    passed += 1;
                    let _ = writeln!(outcome.text, "  ok      {promise}");
                }
                Finding::Broken(promise, examples) => {
                    outcome.failed += 1;
                    let _ = writeln!(outcome.text, "  BROKEN  {promise}");
                    examples.iter().take(5).for_each(|e| _ = writeln!(outcome.text, "            {e}"));
                    if examples.len() > 5 {
                        let _ = writeln!(outcome.text, "            and {} more", examples.len() - 5);
                    }
                }
                Finding::Unknown(promise, why) => {
                    skipped += 1;
                    let _ = writeln!(outcome.text, "  skipped {promise}: {why}");
                }
            }
        }
    }
    let _ = writeln!(outcome.text, "{passed} passed, {} failed, {skipped} skipped", outcome.failed);
    Ok(outcome)
}

/// One round: what happened in it, in words, and what was found.
async fn one(cluster: &Cluster, plan: &Plan, seed: u64) -> Result<(String, Vec<Finding>), String> {
    let mut dice = Dice::new(seed, "faults");
    cluster.wait_up(Duration::from_secs(60)).await?;
    let db = format!("faults-{:08x}", dice.bits() as u32);
    cluster.make_database(&db).await?;
    reads::prepare(cluster, &db).await;
    let over = Arc::new(AtomicBool::new(false));
    let accounts: Vec<_> = (0..plan.writers)
        .map(|n| tokio::spawn(writers::write(cluster.clone(), db.clone(), n, seed, Arc::clone(&over))))
        .collect();
    let reader = tokio::spawn(writers::follow(cluster.clone(), db.clone(), Arc::clone(&over)));
    let maker = tokio::spawn(writers::make(cluster.clone(), db.clone(), Arc::clone(&over)));
    let told = disturb(cluster, plan, &mut dice).await;
    over.store(true, Ordering::Relaxed);
    let mut all: Vec<Account> = Vec::new();
    for account in accounts {
        all.push(account.await.map_err(|e| format!("a writer: {e}"))?);
    }
    let seen = reader.await.map_err(|e| format!("the reader of the feed: {e}"))?;
    let known = maker.await.map_err(|e| format!("who makes databases: {e}"))?;
    let told = told?;
    cluster.wait_up(Duration::from_secs(60)).await?;
    let begun = Instant::now();
    let states = check::settled(cluster, &db, plan.settle).await;
    let settled = begun.elapsed();
    let mut findings = check::check(cluster, &db, &all, states, &seen).await;
    findings.push(reads::databases(cluster, &known, plan.settle).await);
    let counts =
        all.iter().fold((0, 0, 0, 0), |t, a| (t.0 + a.stored, t.1 + a.accepted, t.2 + a.refused, t.3 + a.unknown));
    for number in 0..writers::DATABASES_MAX {
        cluster.drop_database(&writers::made_name(&db, number)).await;
    }
    cluster.drop_database(&db).await;
    let (stored, accepted, refused, unknown) = counts;
    let writes = format!("{stored} writes stored, {accepted} accepted, {refused} refused, {unknown} unknown");
    Ok((format!("{told}; {writes}; the same everywhere after {:.1} s", settled.as_secs_f64()), findings))
}

/// Brings faults about, one after the other, as long as clients write; every node is as before at the end.
async fn disturb(cluster: &Cluster, plan: &Plan, dice: &mut Dice) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(plan.seconds);
    let mut told = Vec::new();
    tokio::time::sleep(Duration::from_millis(500)).await;
    while Instant::now() < end {
        let at = dice.below(cluster.nodes.len());
        let node = &cluster.nodes[at];
        let fault = dice.pick(&node.faults());
        let (down_ms, rest_ms) = (300 + dice.below(2_500) as u64, 300 + dice.below(1_500) as u64);
        node.begin(fault).await?;
        tokio::time::sleep(Duration::from_millis(down_ms)).await;
        node.end(fault).await?;
        told.push(format!("{fault} {} for {down_ms} ms", node.name));
        tokio::time::sleep(Duration::from_millis(rest_ms)).await;
    }
    Ok(told.join(", "))
}

/// A member of an answer as text; empty where there is none.
fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
