//! Makes a failing plan smaller: leaves out clients, faults and operations as long as the same invariant still breaks.
//!
//! Each try is one deterministic run. Halves are tried before single parts (ddmin), a limit bounds the number of tries.

use crate::plan::Plan;
use crate::run::{Bug, run_plan};

/// Tries at most; a try is a run of some milliseconds.
const TRIES_MAX: usize = 400;

/// The smallest failing plan found, or `None` when `plan` does not fail.
pub fn shrink(plan: &Plan, bug: Option<Bug>) -> Option<Plan> {
    let number = run_plan(plan.clone(), bug).failure?.invariant;
    let mut tries = 0;
    let mut fails = |candidate: &Plan| {
        tries += 1;
        tries <= TRIES_MAX && run_plan(candidate.clone(), bug).failure.is_some_and(|f| f.invariant == number)
    };
    let mut best = plan.clone();
    for client in (0..best.clients.len()).rev() {
        let mut candidate = best.clone();
        candidate.clients[client].clear();
        if fails(&candidate) {
            best = candidate;
        }
    }
    best.faults = smaller(best.faults.clone(), |faults| fails(&Plan { faults, ..best.clone() }));
    for client in 0..best.clients.len() {
        let ops = best.clients[client].clone();
        best.clients[client] = smaller(ops, |ops| {
            let mut candidate = best.clone();
            candidate.clients[client] = ops;
            fails(&candidate)
        });
    }
    Some(best)
}

/// Leaves out ever smaller runs of items while `fails` says that the rest still fails.
fn smaller<T: Clone>(mut items: Vec<T>, mut fails: impl FnMut(Vec<T>) -> bool) -> Vec<T> {
    let mut size = items.len();
    while size > 0 {
        let mut from = 0;
        while from < items.len() {
            let mut candidate = items.clone();
            candidate.drain(from..(from + size).min(items.len()));
            if fails(candidate.clone()) {
                items = candidate;
            } else {
                from += size;
            }
        }
        size /= 2;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parts_that_matter_are_left() {
        let left = smaller((0..40).collect(), |items: Vec<u32>| items.contains(&7) && items.contains(&31));
        assert_eq!(left, [7, 31]);
    }
}
