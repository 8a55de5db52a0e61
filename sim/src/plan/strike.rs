//! Faults that are aimed: one kind of fault of a run, and operations of it that are struck while they are under way.
//!
//! A fault at any time seldom meets an operation of a few milliseconds. So most runs with faults have some that wait
//! for an operation of some kind and happen within its round trip. Which fault it is and which operations goes round
//! with the seeds, so that any some hundred of them in a row try about everything.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::draw::{Draw, pick};
use super::fault::{Aim, Fault, TimedFault};
use super::types::Plan;

/// Draws of their own, which all other draws go without.
const AIMED: u64 = 0xa1u64 << 56;
/// Strikes of a run at most.
const STRIKES_MAX: usize = 8;
/// One run in so many goes without.
const WITHOUT_ONE_IN: u32 = 4;

impl Plan {
    /// Adds the aimed faults. `kinds`: of which there may be any, drawn by `fault` with the node that it happens to.
    pub(super) fn aim(&mut self, kinds: &[u32], fault: impl Fn(&mut Draw<'_>, u32) -> (u32, Fault)) {
        let rng = ChaCha8Rng::seed_from_u64(self.seed ^ AIMED);
        let mut draw = Draw { rng, world: &self.world, next_v: 0 };
        if self.faults.is_empty() || kinds.is_empty() || draw.chance(WITHOUT_ONE_IN) {
            return;
        }
        let (turn, kind) = (self.seed as usize / kinds.len(), kinds[self.seed as usize % kinds.len()]);
        let begins = self.begins();
        let names: Vec<&str> = begins.keys().copied().collect();
        let count = STRIKES_MAX.min(names.len());
        let mut aimed = Vec::new();
        for name in (0..count).map(|nth| names[(turn * STRIKES_MAX + nth) % names.len()]) {
            let at_ms = pick(&mut draw.rng, &begins[name]).saturating_sub(1);
            let after_us = draw.rng.random_range(0..=2 * self.world.latency_us);
            let (node, fault) = fault(&mut draw, kind);
            aimed.push(TimedFault { at_ms, node, fault, aim: Some(Aim { op: name.to_owned(), after_us }) });
        }
        self.faults.extend(aimed);
        self.faults.sort_by_key(|timed| timed.at_ms);
    }

    /// When operations of each name begin at the earliest, in milliseconds.
    fn begins(&self) -> BTreeMap<&'static str, Vec<u64>> {
        let mut out: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for client in &self.clients {
            let mut at_ms = 0;
            for timed in client {
                at_ms += timed.after_ms;
                out.entry(timed.op.name()).or_default().push(at_ms);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn some_hundred_seeds_in_a_row_aim_most_faults_at_most_operations_of_one_server() {
        let met: BTreeSet<(&str, String)> = (1..=400)
            .map(Plan::from_seed)
            .flat_map(|plan| plan.faults)
            .filter_map(|timed| Some((timed.fault.name(), timed.aim?.op)))
            .collect();
        let (faults, ops): (BTreeSet<_>, BTreeSet<_>) = met.iter().cloned().unzip();
        assert!(2 * met.len() > faults.len() * ops.len(), "{} of {}", met.len(), faults.len() * ops.len());
    }
}
