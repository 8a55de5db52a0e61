//! The proof that a seed decides everything: the same run a second time, compared event by event.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::apart::{self, Leave, Summary};
use crate::plan::Plan;

/// Runs a plan again in another process; an error names the first event that differs.
///
/// # Errors
/// What differs, or why it could not be found out.
pub fn same_again(plan: &Plan, first: &Summary) -> Result<(), String> {
    let again = apart::run(plan, None)?;
    if again.trace_hash == first.trace_hash {
        return Ok(());
    }
    let dir = PathBuf::from("target/sim");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let logs = ["a", "b"].map(|name| dir.join(format!("trace-{}-{name}.log", plan.seed)));
    for log in &logs {
        apart::run_with(&program, plan, None, Leave { trace: Some(log), timeline: None })?;
    }
    let text = first_difference(&logs[0], &logs[1])?;
    Err(format!("{} and {}; {text}", first.trace_hash, again.trace_hash))
}

/// The first line in which two logs differ.
fn first_difference(one: &Path, other: &Path) -> Result<String, String> {
    let lines = |path: &Path| File::open(path).map(|file| BufReader::new(file).lines()).map_err(|e| e.to_string());
    let (mut one, mut other) = (lines(one)?, lines(other)?);
    for number in 1.. {
        let (a, b) = (one.next().transpose(), other.next().transpose());
        let (a, b) = (a.map_err(|e| e.to_string())?, b.map_err(|e| e.to_string())?);
        match (a, b) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let show = |line: Option<String>| line.unwrap_or_else(|| "the end".into());
                return Ok(format!("event {number}: `{}` or `{}`", show(a), show(b)));
            }
        }
    }
    Ok("two more runs were the same".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_that_differs_is_named() {
        let dir = std::env::temp_dir().join(format!("settee-sim-twice-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let [one, other] = ["one", "other"].map(|name| dir.join(name));
        std::fs::write(&one, "1 a\n2 b\n3 c\n").expect("written");
        std::fs::write(&other, "1 a\n2 x\n3 c\n").expect("written");
        assert_eq!(first_difference(&one, &other), Ok("event 2: `2 b` or `2 x`".into()));
        assert_eq!(first_difference(&one, &one), Ok("two more runs were the same".into()));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
