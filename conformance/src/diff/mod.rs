//! Compares two servers: every case, or random conversations ([`random`]), are played against both, and the second is
//! held against what the first answered.
//!
//! What the case marks as volatile, unordered or ignored does not count here either. Configuration is left alone.

pub mod known;
pub mod random;
mod shrink;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Target;
use crate::compare::compare_answer;
use crate::player::{Exchange, Player};
use crate::transcript::Case;
use known::Difference;

/// What came of a comparison.
pub struct Report {
    /// A line per difference and the totals as the last line.
    pub text: String,
    /// Cases in which the servers differ.
    pub differing: usize,
}

/// Plays `cases` against both servers, `jobs` at a time.
pub async fn diff(
    servers: (Target, Target),
    patience: Duration,
    cases: Vec<Case>,
    jobs: usize,
) -> Result<Report, String> {
    let (alone, beside): (Vec<Case>, Vec<Case>) =
        cases.into_iter().filter(|c| !c.changes_config && !c.requires.account).partition(|c| c.alone);
    let (gate, servers) = (Arc::new(Semaphore::new(jobs.max(1))), Arc::new(servers));
    let mut tasks = JoinSet::new();
    for case in beside {
        let (gate, servers) = (Arc::clone(&gate), Arc::clone(&servers));
        tasks.spawn(async move {
            let _turn = gate.acquire().await;
            let found = one(&servers, patience, &case).await;
            (case.id, found)
        });
    }
    let mut found = Vec::new();
    while let Some(row) = tasks.join_next().await {
        found.push(row.map_err(|e| format!("a case's task: {e}"))?);
    }
    for case in alone {
        let differences = one(&servers, patience, &case).await;
        found.push((case.id, differences));
    }
    found.sort();
    Ok(report(&found))
}

/// The differences of one case; `None` when either server lacks what it requires.
async fn one(servers: &(Target, Target), patience: Duration, case: &Case) -> Option<Vec<String>> {
    let mut played = Vec::new();
    for target in [&servers.0, &servers.1] {
        let player = Player::new(target, patience);
        match player.missing(&case.requires).await {
            Ok(None) => played.push(player.play(case).await),
            Ok(Some(_)) => return None,
            Err(told) => played.push(Err(told)),
        }
    }
    let second = played.pop()?;
    let first = played.pop()?;
    Some(match (first, second) {
        (Ok(first), Ok(second)) => between(case, &first, &second),
        (Err(a), Err(b)) if a == b => Vec::new(),
        (first, second) => {
            let told = |played: Result<Vec<Exchange>, String>| played.err().unwrap_or_else(|| "answers".to_owned());
            vec![format!("the first: {}; the second: {}", told(first), told(second))]
        }
    })
}

fn between(case: &Case, first: &[Exchange], second: &[Exchange]) -> Vec<String> {
    let told = |d: Difference| {
        let (method, target) = d.action.split_once(' ').unwrap_or_default();
        format!("step {} {method} {}: {}", d.step, target.split('?').next().unwrap_or_default(), d.text)
    };
    differences(case, first, second, false).into_iter().map(told).collect()
}

/// Where the answers of the second play are not those of the first.
fn differences(case: &Case, first: &[Exchange], second: &[Exchange], own_revs: bool) -> Vec<Difference> {
    let mut out = Vec::new();
    for (n, ((step, a), b)) in case.steps.iter().zip(first).zip(second).enumerate() {
        let mut expect = step.expect.clone();
        expect.setup = false;
        expect.status = a.outcome.status;
        // A header that only the second sends differs, too.
        expect.headers = a.outcome.headers.clone();
        let lacking = b.outcome.headers.iter().filter(|(name, _)| !a.outcome.headers.iter().any(|(n, _)| n == name));
        expect.headers.extend(lacking.map(|(name, _)| (name.clone(), None)));
        expect.kind = a.outcome.kind.to_owned();
        expect.body = Some(a.outcome.body.clone());
        let shown = |e: &Exchange| format!("{} {}", e.outcome.status, e.outcome.body.to_text(false));
        for text in compare_answer(&expect, &b.outcome, own_revs) {
            let action = format!("{} {}", step.method, step.target);
            out.push(Difference { step: n, action, text, first: shown(a), second: shown(b) });
        }
    }
    out
}

fn report(found: &[(String, Option<Vec<String>>)]) -> Report {
    let mut text = String::new();
    let (mut same, mut differing, mut skipped) = (0, 0, 0);
    for (id, differences) in found {
        match differences {
            None => skipped += 1,
            Some(lines) if lines.is_empty() => same += 1,
            Some(lines) => {
                differing += 1;
                // Writing to a String cannot fail.
                let _ = writeln!(text, "DIFF {id}");
                lines.iter().for_each(|line| _ = writeln!(text, "     {line}"));
            }
        }
    }
    let _ = writeln!(text, "{same} the same, {differing} differ, {skipped} not played");
    Report { text, differing }
}

#[cfg(test)]
mod tests {
    use super::{between, report};
    use crate::compare::Outcome;
    use crate::json::Value;
    use crate::player::Exchange;
    use crate::transcript::Case;

    fn played(status: u16, body: &str) -> Exchange {
        let body = Value::parse(body.as_bytes()).expect("JSON");
        Exchange { request: String::new(), outcome: Outcome { status, headers: vec![], kind: "json", body } }
    }

    #[test]
    fn the_second_server_is_held_against_the_first_and_not_the_record() {
        let text = r#"{"title":"t","steps":[{"do":"GET /x?y","volatile":["/v"],"response":{"status":404,"body":{}}}]}"#;
        let case = Case::read("c", "n", &Value::parse(text.as_bytes()).expect("JSON")).expect("a case");
        let first = [played(200, r#"{"v":1,"w":1}"#)];
        assert_eq!(between(&case, &first, &[played(200, r#"{"v":2,"w":1}"#)]), Vec::<String>::new());
        let found = between(&case, &first, &[played(200, r#"{"v":2,"w":2}"#)]);
        assert_eq!(found, ["step 0 GET /x: /w: 1 expected, got 2"]);
        assert_eq!(between(&case, &first, &[played(201, "{}")]).len(), 1);
    }

    #[test]
    fn the_last_line_counts() {
        let found =
            [("a".to_owned(), None), ("b".to_owned(), Some(vec![])), ("c".to_owned(), Some(vec!["x".to_owned()]))];
        let report = report(&found);
        assert_eq!(report.text, "DIFF c\n     x\n1 the same, 1 differ, 1 not played\n");
        assert_eq!(report.differing, 1);
    }
}
