//! Makes a failing plan smaller: leaves out time, clients, kinds of operations and faults, single ones, then nodes and
//! documents, as long as the same invariant still breaks.
//!
//! Each try is one deterministic run in a process of its own. What makes runs quicker or much of the plan go comes
//! first, halves come before single parts (ddmin), a limit bounds the number of tries.

use std::collections::BTreeSet;

use crate::apart::{self, Summary};
use crate::plan::{Plan, TimedOp, WORK_MS};

/// Tries at most; a try is a run of a second or some.
const TRIES_MAX: usize = 300;
/// How much later than the smallest plan so far another one may fail.
const LATER_MS: u64 = 2_000;
/// The end of a plan is found to this many milliseconds.
const END_MS: u64 = 500;

/// The smallest failing plan found, or `None` when `plan` does not fail. `bug`: the name of one that is planted.
///
/// A try ends soon after the moment at which the smallest plan so far failed: most tries do not fail, and what comes
/// behind that moment is most of their time.
pub fn shrink(plan: &Plan, bug: Option<&str>) -> Option<Plan> {
    let run = |candidate: &Plan| apart::run(candidate, bug).unwrap_or_default();
    let Summary { failure, simulated_ms, .. } = run(plan);
    let (number, _) = failure?;
    let (mut tries, mut failed_ms) = (0, simulated_ms);
    Some(shrink_by(plan, |candidate| {
        tries += 1;
        if tries > TRIES_MAX {
            return false;
        }
        // A run that panicked does not tell its time.
        let until_ms = (failed_ms > 0).then_some(failed_ms + LATER_MS);
        let Summary { failure, simulated_ms, .. } = run(&Plan { until_ms, ..candidate.clone() });
        let fails = failure.is_some_and(|(found, _)| found == number);
        failed_ms = if fails { simulated_ms } else { failed_ms };
        fails
    }))
}

/// [`shrink`] with any question of whether a plan still fails.
fn shrink_by(plan: &Plan, fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut search = Search { best: plan.clone(), fails };
    search.plain_world();
    search.shorten();
    search.clients();
    search.kinds();
    search.faults();
    search.operations();
    search.times();
    search.documents();
    search.best
}

/// The smallest plan so far, and the question.
struct Search<F> {
    best: Plan,
    fails: F,
}

/// As few nodes as a plan of its sort needs; one in which nodes come needs all of them.
fn fewer_nodes(plan: &mut Plan) {
    plan.world.nodes = match (plan.world.n, plan.world.outside) {
        (0, _) => 1,
        (_, 0) => plan.world.nodes.min(3),
        _ => plan.world.nodes,
    };
}

impl<F: FnMut(&Plan) -> bool> Search<F> {
    /// Takes a plan if it still fails.
    fn attempt(&mut self, candidate: Plan) -> bool {
        if candidate != self.best && !(self.fails)(&candidate) {
            return false;
        }
        self.best = candidate;
        true
    }

    fn change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        self.attempt(candidate)
    }

    /// The world made plainer: what comes after costs less.
    fn plain_world(&mut self) {
        let plainer: [fn(&mut Plan); 10] = [
            fewer_nodes,
            |p| p.world.q = 1,
            |p| p.world.disk_slow = 1,
            |p| p.world.latency_us = 100,
            |p| p.world.loss_per_10k = 0,
            |p| p.world.first_start_cut = None,
            |p| p.world.turns = false,
            |p| p.world.message_bytes = 0,
            |p| p.world.outcast = None,
            |p| (p.world.w, p.world.r, p.world.purges_kept) = (None, None, None),
        ];
        for change in plainer {
            self.change(change);
        }
    }

    /// Leaves out what begins after some moment, the earliest at which it still fails.
    fn shorten(&mut self) {
        let (mut fails_at, mut holds_at) = (WORK_MS, 0);
        while fails_at - holds_at > END_MS {
            let middle = holds_at.midpoint(fails_at);
            let candidate = until(&self.best, middle);
            if self.attempt(candidate) { fails_at = middle } else { holds_at = middle }
        }
    }

    fn clients(&mut self) {
        for client in (0..self.best.clients.len()).rev() {
            self.change(|plan| plan.clients[client].clear());
        }
        self.change(|plan| {
            while plan.clients.last().is_some_and(Vec::is_empty) {
                plan.clients.pop();
            }
        });
    }

    /// Leaves out all operations of a name, all faults of a name.
    fn kinds(&mut self) {
        let base = self.best.clone();
        let names: BTreeSet<&str> = base.clients.iter().flatten().map(|timed| timed.op.name()).collect();
        smaller(names.into_iter().collect(), |names: Vec<&str>| {
            let kept = parts(&base).into_iter().filter(|(_, timed)| names.contains(&timed.op.name()));
            self.attempt(with_parts(&base, &kept.collect::<Vec<_>>()))
        });
        let base = self.best.clone();
        let names: BTreeSet<&str> = base.faults.iter().map(|timed| timed.fault.name()).collect();
        smaller(names.into_iter().collect(), |names: Vec<&str>| {
            let mut candidate = base.clone();
            candidate.faults.retain(|timed| names.contains(&timed.fault.name()));
            self.attempt(candidate)
        });
    }

    fn faults(&mut self) {
        let base = self.best.clone();
        smaller(base.faults.clone(), |faults| self.attempt(Plan { faults, ..base.clone() }));
    }

    /// All clients' operations as one list, so that halves go across them.
    fn operations(&mut self) {
        let base = self.best.clone();
        smaller(parts(&base), |ops| self.attempt(with_parts(&base, &ops)));
    }

    fn times(&mut self) {
        self.change(|plan| {
            plan.clients.iter_mut().flatten().for_each(|op| op.after_ms /= 4);
            plan.faults.iter_mut().for_each(|fault| fault.at_ms /= 4);
        });
        self.change(|plan| plan.clients.iter_mut().flatten().for_each(|op| op.after_ms /= 4));
    }

    fn documents(&mut self) {
        for documents in [1, 2, 4] {
            self.change(|plan| {
                plan.world.documents = plan.world.documents.min(documents);
                plan.fold_documents();
            });
        }
    }
}

/// The plan without what begins after a moment.
fn until(plan: &Plan, end_ms: u64) -> Plan {
    let mut out = plan.clone();
    out.faults.retain(|timed| timed.at_ms <= end_ms);
    for ops in &mut out.clients {
        let mut at_ms = 0;
        ops.retain(|timed| {
            at_ms += timed.after_ms;
            at_ms <= end_ms
        });
    }
    out
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
