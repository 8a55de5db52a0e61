//! The rebalance that this node carries out.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A request that is being carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebalance {
    /// The node that does so.
    pub node: String,
    /// See [`RebalanceRequest::drain`].
    pub drain: BTreeSet<String>,
    /// See [`RebalanceRequest::databases`].
    pub databases: Option<BTreeSet<String>>,
    /// When it was asked for, in seconds since the Unix epoch.
    pub began_s: u64,
    /// Its place among the requests of all nodes, with `node`: the last one counts. Milliseconds since the Unix epoch,
    /// or one more than that of a request that it found; 0 on nodes that do not say so.
    #[serde(default)]
    pub stamp: u64,
    /// Moves that were begun for it.
    pub begun: u64,
    /// Moves of the present plan that are still to be begun.
    pub planned: u64,
}

/// What nodes ask each other about what they carry out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum RebalanceCall {
    Show,
    End,
    /// Ends the request of the asked node unless that is after the one of this stamp and node; shows what stays.
    GiveWay {
        stamp: u64,
        node: String,
    },
}

impl Rebalance {
    /// Whether it comes after another one.
    pub(in crate::coordinator) fn is_after(&self, (stamp, node): (u64, &str)) -> bool {
        (self.stamp, self.node.as_str()) > (stamp, node)
    }
}

/// The request that this node carries out; the last one counts.
#[derive(Default)]
pub(in crate::coordinator) struct Rebalancing {
    // A blocking lock: held for a look, never across an await.
    running: Mutex<(u64, Option<Rebalance>)>,
}

impl Rebalancing {
    pub(in crate::coordinator) fn running(&self) -> std::sync::MutexGuard<'_, (u64, Option<Rebalance>)> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of the request before; answers the number of this one.
    pub(in crate::coordinator) fn begin(&self, rebalance: Rebalance) -> u64 {
        let mut running = self.running();
        *running = (running.0 + 1, Some(rebalance));
        running.0
    }

    /// The request of that number; `None` when another took its place, or somebody ended it.
    pub(in crate::coordinator) fn is_on(&self, round: u64) -> bool {
        let running = self.running();
        running.0 == round && running.1.is_some()
    }

    /// Notes how far the request of that number has come.
    pub(in crate::coordinator) fn note(&self, round: u64, begun: u64, planned: usize) {
        let mut running = self.running();
        if let (number, Some(rebalance)) = &mut *running
            && *number == round
        {
            (rebalance.begun, rebalance.planned) = (rebalance.begun + begun, planned as u64);
        }
    }

    /// The request of that number, if it is on.
    pub(in crate::coordinator) fn of(&self, round: u64) -> Option<Rebalance> {
        let running = self.running();
        running.1.clone().filter(|_| running.0 == round)
    }

    /// Puts the request of that number behind one with that stamp.
    pub(in crate::coordinator) fn put_behind(&self, round: u64, stamp: u64) {
        let mut running = self.running();
        if let (number, Some(rebalance)) = &mut *running
            && *number == round
        {
            rebalance.stamp = rebalance.stamp.max(stamp.saturating_add(1));
        }
    }

    /// Ends the present request if it comes before one of another node; answers the one that stays.
    pub(in crate::coordinator) fn give_way(&self, later: (u64, &str)) -> Option<Rebalance> {
        let mut running = self.running();
        running.1 = running.1.take().filter(|own| own.is_after(later));
        running.1.clone()
    }

    /// Ends the request of that number; the present one without a number.
    pub(in crate::coordinator) fn end(&self, round: Option<u64>) -> Option<Rebalance> {
        let mut running = self.running();
        if round.is_none_or(|round| round == running.0) { running.1.take() } else { None }
    }
}
