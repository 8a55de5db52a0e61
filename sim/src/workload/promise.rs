//! What an answer promises of the replicas of a cluster's range: how many hold what was written, and what a read of so
//! many others must therefore show. Who writes with `w` and reads with `r` is shown the write when `w + r > n`.

use std::collections::BTreeSet;

use super::{Worker, broken};
use crate::client::Answer;
use crate::model::Violation;
use crate::plan::Plan;

/// Replicas that hold what stays, whichever node loses its disk: one does at most.
const LASTS_FROM: u32 = 2;

/// What the clients of a run ask of replicas, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Replicas of each range; 0: the nodes are no cluster.
    replicas: u32,
    /// How many make a majority.
    majority: u32,
    w: Option<u32>,
    r: Option<u32>,
    /// Whether somebody moves replicas: what counts is then the replicas that were and those that come to be.
    moves: bool,
    /// Whether a replica may be lost, or go back in time.
    pub(super) loses: bool,
    /// Whether a read that too few replicas answer fails.
    strict: bool,
    /// Whether another cluster takes edits, too: what is on replicas there comes over later.
    apart: bool,
}

impl Asked {
    /// Of a plan.
    pub(crate) fn of(plan: &Plan) -> Asked {
        let world = &plan.world;
        if world.n == 0 {
            return Asked::default();
        }
        Asked {
            replicas: world.replicas(),
            majority: world.majority(),
            w: world.w,
            r: world.r,
            moves: plan.moves_replicas(),
            loses: plan.loses_disks(),
            strict: world.strict_reads,
            apart: world.far.is_some(),
        }
    }

    /// How many replicas hold what a write with that `w` was answered of; wrong is an answer that says another number
    /// than its status.
    fn held(&self, w: Option<u32>, status: u16, told: u32) -> Result<u32, String> {
        let wanted = w.unwrap_or(self.majority);
        match status {
            // One server says nothing of replicas.
            _ if self.replicas == 0 => Ok(0),
            200 | 201 if told < wanted => Err(format!("{status} for {told} replicas, asked for were {wanted}")),
            202 if told >= wanted && !self.moves => Err(format!("202 for {told} replicas, asked for were {wanted}")),
            // While a replica moves one more must hold it: so many of those that were, and of those that come to be.
            200 | 201 if self.moves => Ok(wanted),
            202 if self.moves => Ok(told.saturating_sub(1)),
            200..=202 => Ok(told),
            _ => Ok(0),
        }
    }

    /// How many replicas of each range there are; `None` without a cluster.
    pub(super) fn all_replicas(&self) -> Option<u32> {
        (self.replicas > 0).then_some(self.replicas)
    }

    /// Whether each range has one replica: what it tells is all there is, or an error.
    pub(super) fn is_of_one_replica(&self) -> bool {
        self.replicas == 1
    }

    /// How many replicas must hold a revision for a read that so many answered to show it; `None`: nothing is sure.
    fn shown_from(&self, answered: u32) -> Option<u32> {
        if self.replicas == 0 || self.loses || self.apart {
            return None;
        }
        let least = (self.replicas + 1).saturating_sub(answered).max(1);
        Some(if self.moves { least.max(self.majority) } else { least })
    }

    /// The same of a read that is answered by as many as clients ask.
    pub(super) fn read_from(&self) -> Option<u32> {
        self.shown_from(self.r.unwrap_or(self.majority))
    }

    /// The same where it is known before the answer, for too few make a read fail.
    pub(crate) fn sure_from(&self) -> Option<u32> {
        if self.strict { self.read_from() } else { None }
    }
}

/// A path with a parameter more.
fn with(path: String, name: &str, replicas: Option<u32>) -> String {
    match replicas {
        Some(replicas) => format!("{path}{}{name}={replicas}", if path.contains('?') { '&' } else { '?' }),
        None => path,
    }
}

impl Worker {
    fn asked(&self) -> Asked {
        self.locked(|s| s.asked)
    }

    /// The path of a write, with the number of replicas that are to hold it.
    pub(super) fn written_at(&self, path: String) -> String {
        with(path, "w", self.asked().w)
    }

    /// The path of a read, with the number of replicas that are to answer.
    pub(super) fn read_at(&self, path: String) -> String {
        with(path, "r", self.asked().r)
    }

    /// How many replicas hold what was written with the run's `w`, as its answer says.
    pub(super) fn held(&self, what: &str, answer: &Answer) -> Result<u32, Violation> {
        let asked = self.asked();
        asked.held(asked.w, answer.status, answer.replicas).or_else(|wrong| broken("I12", format!("{what}: {wrong}")))
    }

    /// How many hold an item of a bulk request: `accepted` says that they are fewer than asked for.
    pub(super) fn held_of_item(&self, accepted: bool) -> u32 {
        let asked = self.asked();
        let wanted = asked.w.unwrap_or(asked.majority);
        if accepted { u32::from(!asked.moves) } else { wanted }
    }

    /// Whether a write that was left to the node stays, as the plan's faults go.
    pub(super) fn stays(&self, what: &str, answer: &Answer) -> Result<bool, Violation> {
        let asked = self.asked();
        let held = asked.held(None, answer.status, answer.replicas);
        let held = held.or_else(|wrong| broken("I12", format!("{what}: {wrong}")))?;
        Ok(matches!(answer.status, 200..=202) && (!asked.loses || held >= LASTS_FROM))
    }

    /// Holds a read that shows one path without siblings against what was promised before it was sent: revisions with
    /// the number of replicas that held them. `told`: how many replicas it says have the document just so.
    pub(super) fn shows_all(
        &self,
        doc: &str,
        promised: &[(String, u32)],
        path: &[String],
        told: u32,
    ) -> Result<(), Violation> {
        let Some(least) = self.asked().shown_from(told) else { return Ok(()) };
        let shown: BTreeSet<&String> = path.iter().collect();
        match promised.iter().find(|(rev, held)| *held >= least && !shown.contains(rev)) {
            Some((rev, held)) => {
                broken("I10", format!("{doc}: {rev} is on {held} replicas, and {told} replicas agree on {path:?}"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_reads_of_enough_replicas_meet() {
        let asked = Asked { replicas: 3, majority: 2, ..Asked::default() };
        assert_eq!(asked.held(None, 201, 2), Ok(2));
        assert_eq!(asked.held(Some(1), 201, 1), Ok(1));
        assert!(asked.held(Some(3), 201, 2).is_err() && asked.held(Some(2), 202, 2).is_err());
        assert_eq!([1, 2, 3].map(|answered| asked.shown_from(answered)), [Some(3), Some(2), Some(1)]);
        let moving = Asked { moves: true, ..asked };
        assert_eq!((moving.held(Some(3), 202, 2), moving.shown_from(3)), (Ok(1), Some(2)));
        assert_eq!(Asked { loses: true, ..asked }.shown_from(3), None);
        assert_eq!(Asked { apart: true, ..asked }.shown_from(3), None);
        assert_eq!(with("/a?b=1".into(), "w", Some(2)), "/a?b=1&w=2");
    }
}
