//! Which faults and operations can meet at all: those that some plan has together.
//!
//! It is found out by drawing plans, so that no list beside the generator has to be kept.

use std::collections::{BTreeMap, BTreeSet};

use super::fault::{Fault, HOSTILE};
use super::op::Op;
use super::scene::Scene;
use super::scene::some_of_each;
use super::types::Plan;

/// Plans of each sort that are drawn: each operation and fault is in some of so many.
const DRAWN: u64 = 2_000;

/// For what a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    OneServer,
    TwoServers,
    Cluster,
    ClusterThatLosesADisk,
    /// One of the scenes by its name.
    Scene(&'static str),
}

impl Sort {
    fn of(plan: &Plan) -> Sort {
        if let Some(scene) = Scene::of(plan) {
            return Sort::Scene(scene);
        }
        match (plan.world.n, plan.world.nodes) {
            (0, 1) => Sort::OneServer,
            (0, _) => Sort::TwoServers,
            _ if plan.loses_disks() => Sort::ClusterThatLosesADisk,
            _ => Sort::Cluster,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::OneServer => "one server",
            Sort::TwoServers => "two servers",
            Sort::Cluster => "clusters",
            Sort::ClusterThatLosesADisk => "clusters that lose a disk",
            Sort::Scene(name) => name,
        }
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Meetings {
    faults: BTreeMap<&'static str, BTreeSet<Sort>>,
    ops: BTreeMap<&'static str, BTreeSet<Sort>>,
    /// Faults that are over at once.
    moments: BTreeSet<&'static str>,
}

impl Meetings {
    /// Of all plans that seeds give.
    pub fn of_all_plans() -> Meetings {
        let mut out = Meetings::default();
        (0..DRAWN)
            .flat_map(|seed| [Plan::from_seed(seed), Plan::cluster_from_seed(seed)])
            .chain(some_of_each())
            .for_each(|plan| out.add(&plan));
        out
    }

    fn add(&mut self, plan: &Plan) {
        let sort = Sort::of(plan);
        for timed in &plan.faults {
            self.faults.entry(timed.fault.name()).or_default().insert(sort);
            if timed.fault.is_moment() {
                self.moments.insert(timed.fault.name());
            }
        }
        for timed in plan.clients.iter().flatten() {
            self.ops.entry(timed.op.name()).or_default().insert(sort);
            if matches!(timed.op, Op::Hostile { .. }) {
                self.faults.entry(HOSTILE).or_default().insert(sort);
            }
        }
    }

    /// Why an operation never meets a fault, or none that is felt; `None`: it may.
    pub fn apart(&self, felt: bool, fault: &str, op: &str) -> Option<String> {
        let sorts = |of: &BTreeMap<&'static str, BTreeSet<Sort>>, name| of.get(name).cloned().unwrap_or_default();
        let (has_fault, has_op) = (sorts(&self.faults, fault), sorts(&self.ops, op));
        let listed = |sorts: &BTreeSet<Sort>| sorts.iter().map(|sort| sort.name()).collect::<Vec<_>>().join(", ");
        if has_op.is_empty() || has_fault.is_empty() {
            return Some("only saved plans have it".to_owned());
        }
        if has_fault.is_disjoint(&has_op) {
            return Some(format!("the fault is for {}, the operation for {}", listed(&has_fault), listed(&has_op)));
        }
        (felt && self.moments.contains(fault)).then(|| "the fault is over at once".to_owned())
    }
}

impl Fault {
    /// Whether it is over as soon as it has begun.
    fn is_moment(&self) -> bool {
        matches!(self, Fault::Reset | Fault::ClockJump { .. } | Fault::BitRot { .. } | Fault::BitRotOwn { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_plan_has_together_is_told_with_its_reason() {
        let meetings = Meetings::of_all_plans();
        assert_eq!(meetings.apart(true, "F9 crash", "put"), None);
        assert_eq!(meetings.apart(true, "F7 reset", "put").as_deref(), Some("the fault is over at once"));
        assert_eq!(meetings.apart(false, "F7 reset", "put"), None);
        let reason = meetings.apart(false, "F5 split", "own put").expect("never");
        assert!(reason.contains("the operation for one server, two servers"), "{reason}");
        assert!(meetings.apart(false, "F9 crash", "changes").is_some());
        assert_eq!(meetings.apart(false, "F9 crash", "add node"), None, "in a scene");
        let reason = meetings.apart(false, "F18 clock jump", "add node").expect("never");
        assert!(reason.ends_with("the operation for members"), "{reason}");
    }
}
