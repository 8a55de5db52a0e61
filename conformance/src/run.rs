//! Plays many cases: those that mind their own databases beside each other, the others one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Target;
use crate::compare;
use crate::curl;
use crate::html::Shown;
use crate::level::Levels;
use crate::player::{Exchange, Player};
use crate::profile::Profile;
use crate::report::{CaseOutcome, Row};
use crate::transcript::Case;

/// What every case needs to be compared.
pub struct Run {
    /// The server.
    pub target: Target,
    /// How long it may be silent.
    pub patience: Duration,
    /// What is known about it.
    pub profile: Profile,
    /// Which case counts for which level.
    pub levels: Levels,
    /// Whether rows keep what was sent and received.
    pub keep: bool,
    /// Whether revision hashes must be the reference's own.
    pub own_revs: bool,
    /// Whether cases may change the server's configuration.
    pub allow_config: bool,
    /// How many cases run beside each other.
    pub jobs: usize,
}

/// First the cases that mind their own databases, `jobs` at a time, then the others one by one; rows in file order.
pub async fn play_all(run: &Arc<Run>, cases: Vec<Case>) -> Result<Vec<Row>, String> {
    let (alone, beside): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|c| c.alone);
    let gate = Arc::new(Semaphore::new(run.jobs.max(1)));
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
    let (outcome, exchanges) = compare_answer(run, case).await;
    let steps = if run.keep { shown(run, case, exchanges) } else { Vec::new() };
    let commands = match &outcome {
        CaseOutcome::Failed(found) => commands(run, case, found),
        _ => Vec::new(),
    };
    Row {
        id: case.id.clone(),
        chapter: case.chapter.clone(),
        title: case.title.clone(),
        spec: case.spec.clone(),
        level: run.levels.of(case),
        outcome,
        took: from.elapsed(),
        steps,
        commands,
    }
}

/// The commands that lead to the first difference: all steps up to it.
fn commands(run: &Run, case: &Case, found: &[String]) -> Vec<String> {
    let first = found.first().and_then(|line| line.strip_prefix("step ")?.split(' ').next()?.parse::<usize>().ok());
    let last = first.unwrap_or(usize::MAX).min(case.steps.len().saturating_sub(1));
    curl::commands(&run.target.authority(), &case.steps[..=last])
}

fn shown(run: &Run, case: &Case, exchanges: Vec<Exchange>) -> Vec<Shown> {
    let steps = case.steps.iter().zip(exchanges);
    let show = |(step, played): (&crate::transcript::Step, Exchange)| Shown {
        differences: compare::compare_answer(&step.expect, &played.outcome, run.own_revs),
        request: played.request,
        expect: step.expect.clone(),
        status: played.outcome.status,
        headers: played.outcome.headers,
        body: played.outcome.body,
    };
    steps.map(show).collect()
}

async fn compare_answer(run: &Run, case: &Case) -> (CaseOutcome, Vec<Exchange>) {
    if case.changes_config && !run.allow_config && !case.requires.account {
        let reason = "changes the server's configuration (--allow-config plays it)".to_owned();
        return (CaseOutcome::Skipped(reason), Vec::new());
    }
    let player = Player::new(&run.target, run.patience);
    let (differences, exchanges) = match player.missing(&case.requires).await {
        Ok(Some(reason)) => return (CaseOutcome::Skipped(reason), Vec::new()),
        Ok(None) => match player.play(case).await {
            Ok(played) => (compare::compare(case, played.iter().map(|e| &e.outcome), run.own_revs), played),
            Err(told) => (vec![told], Vec::new()),
        },
        Err(told) => (vec![told], Vec::new()),
    };
    let outcome = match (run.profile.expected.get(&case.id), differences.is_empty()) {
        (None, true) => CaseOutcome::Passed,
        (None, false) => CaseOutcome::Failed(differences),
        (Some(reason), true) => CaseOutcome::Unexpected(reason.clone()),
        (Some(reason), false) => CaseOutcome::Expected(reason.clone(), differences),
    };
    (outcome, exchanges)
}
