//! Makes a failing plan smaller: leaves out clients, faults and operations, then nodes, documents and time, as long as
//! the same invariant still breaks.
//!
//! Each try is one deterministic run in a process of its own. Halves are tried before single parts (ddmin), a limit
//! bounds the number of tries.

use crate::apart::{self, Summary};
use crate::plan::{Plan, TimedOp};

/// Tries at most; a try is a run of some milliseconds.
const TRIES_MAX: usize = 300;

/// The smallest failing plan found, or `None` when `plan` does not fail. `bug`: the name of one that is planted.
pub fn shrink(plan: &Plan, bug: Option<&str>) -> Option<Plan> {
    let failure = |candidate: &Plan| apart::run(candidate, bug).ok().and_then(|Summary { failure, .. }| failure);
    let (number, _) = failure(plan)?;
    let mut tries = 0;
    Some(shrink_by(plan, |candidate| {
        tries += 1;
        tries <= TRIES_MAX && failure(candidate).is_some_and(|(found, _)| found == number)
    }))
}

/// [`shrink`] with any question of whether a plan still fails.
fn shrink_by(plan: &Plan, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut attempt = |best: &mut Plan, candidate: Plan| {
        if candidate != *best && fails(&candidate) {
            *best = candidate;
        }
    };
    for client in (0..best.clients.len()).rev() {
        let mut candidate = best.clone();
        candidate.clients[client].clear();
        attempt(&mut best, candidate);
    }
    let base = best.clone();
    let faults = smaller(best.faults.clone(), |faults| {
        let candidate = Plan { faults, ..base.clone() };
        let mut kept = best.clone();
        attempt(&mut kept, candidate.clone());
        kept == candidate
    });
    best.faults = faults;
    // All clients' operations as one list, so that halves go across them.
    let all: Vec<(usize, TimedOp)> = parts(&best);
    let base = best.clone();
    let ops = smaller(all, |ops| {
        let candidate = with_parts(&base, &ops);
        let mut kept = base.clone();
        attempt(&mut kept, candidate.clone());
        kept == candidate
    });
    best = with_parts(&base, &ops);
    simplify(&mut best, &mut attempt);
    best
}

/// The world made plainer, and time shorter.
fn simplify(best: &mut Plan, attempt: &mut impl FnMut(&mut Plan, Plan)) {
    let plainer: [fn(&mut Plan); 9] = [
        |p| p.world.turns = false,
        |p| p.world.first_start_cut = None,
        |p| p.world.nodes = if p.world.n > 0 { p.world.nodes.min(3) } else { 1 },
        |p| p.world.q = 1,
        |p| p.world.loss_per_10k = 0,
        |p| p.world.disk_slow = 1,
        |p| p.world.latency_us = 100,
        |p| p.clients.iter_mut().flatten().for_each(|op| op.after_ms /= 4),
        |p| {
            p.clients.iter_mut().flatten().for_each(|op| op.after_ms /= 4);
            p.faults.iter_mut().for_each(|fault| fault.at_ms /= 4);
        },
    ];
    for change in plainer {
        let mut candidate = best.clone();
        change(&mut candidate);
        attempt(best, candidate);
    }
    for documents in [1, 2, 4] {
        let mut candidate = best.clone();
        candidate.world.documents = candidate.world.documents.min(documents);
        candidate.fold_documents();
        attempt(best, candidate);
    }
    let mut candidate = best.clone();
    while candidate.clients.last().is_some_and(Vec::is_empty) {
        candidate.clients.pop();
    }
    attempt(best, candidate);
}

fn parts(plan: &Plan) -> Vec<(usize, TimedOp)> {
    let of = |(client, ops): (usize, &Vec<TimedOp>)| ops.iter().map(|op| (client, op.clone())).collect::<Vec<_>>();
    plan.clients.iter().enumerate().flat_map(of).collect()
}

/// The plan with these operations only. The pauses of what is left out stay, so that the rest keeps its time.
fn with_parts(plan: &Plan, ops: &[(usize, TimedOp)]) -> Plan {
    let mut out = plan.clone();
    for (client, list) in out.clients.iter_mut().enumerate() {
        let mut kept = ops.iter().filter(|(c, _)| *c == client).map(|(_, op)| op).peekable();
        let (mut left, mut pause) = (Vec::new(), 0);
        for op in list.iter() {
            pause += op.after_ms;
            if kept.peek().is_some_and(|next| next.op == op.op) {
                kept.next();
                left.push(TimedOp { after_ms: pause, op: op.op.clone() });
                pause = 0;
            }
        }
        *list = left;
    }
    out
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

    #[test]
    fn a_plan_shrinks_to_what_its_failure_needs_and_keeps_its_times() {
        let plan = (0..).map(Plan::from_seed).find(|p| p.faults.len() > 3 && p.clients.len() > 2).expect("some seed");
        let (fault, op) = (plan.faults[2].clone(), plan.clients[1][3].op.clone());
        let at = |p: &Plan| {
            p.clients[1]
                .iter()
                .scan(0, |t, op| {
                    *t += op.after_ms;
                    Some((*t, op.op.clone()))
                })
                .collect::<Vec<_>>()
        };
        let when = at(&plan)[3].0;
        let needed = |p: &Plan| {
            p.faults.contains(&fault)
                && p.clients.len() > 1
                && at(p).contains(&(when, op.clone()))
                && p.world.q == plan.world.q
        };
        let least = shrink_by(&plan, needed);
        assert_eq!((least.size(), &least.faults), (2, &vec![fault.clone()]));
        assert!(!least.world.turns && least.world.first_start_cut.is_none());
    }
}
