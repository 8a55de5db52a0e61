//! `_approx_count_distinct`: how many different keys there are. Exact for a few, HyperLogLog above.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Keys that are counted one by one.
const EXACT: usize = 256;
/// Bits that choose a register: 4,096 registers, a standard error of 1.6 %.
const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;

/// Keys seen, by their hashes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Distinct {
    /// The hashes themselves.
    Few(BTreeSet<u64>),
    /// For each register the longest run of zero bits seen, plus one.
    Many(Box<[u8]>),
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct::Few(BTreeSet::new())
    }
}

impl Distinct {
    /// Takes in a sort key: equal keys have equal ones.
    pub fn add(&mut self, sort: &[u8]) {
        let hash = blake3::hash(sort);
        let (word, _) = hash.as_bytes().split_at(8);
        // Invariant: a slice of 8 bytes.
        self.add_hash(u64::from_be_bytes(word.try_into().expect("8 bytes")));
    }

    fn add_hash(&mut self, hash: u64) {
        match self {
            Distinct::Few(hashes) => {
                hashes.insert(hash);
                if hashes.len() > EXACT {
                    let mut registers = vec![0; REGISTERS].into_boxed_slice();
                    hashes.iter().for_each(|hash| note(&mut registers, *hash));
                    *self = Distinct::Many(registers);
                }
            }
            Distinct::Many(registers) => note(registers, hash),
        }
    }

    /// Takes in other keys.
    pub fn merge(&mut self, more: &Distinct) {
        match more {
            Distinct::Few(hashes) => hashes.iter().for_each(|hash| self.add_hash(*hash)),
            Distinct::Many(runs) => {
                let mut all = runs.clone();
                match self {
                    Distinct::Few(hashes) => hashes.iter().for_each(|hash| note(&mut all, *hash)),
                    Distinct::Many(own) => {
                        all.iter_mut().zip(own.iter()).for_each(|(all, own)| *all = (*all).max(*own))
                    }
                }
                *self = Distinct::Many(all);
            }
        }
    }

    /// The number of keys, or its estimate.
    pub fn count(&self) -> u64 {
        let registers = match self {
            Distinct::Few(hashes) => return hashes.len() as u64,
            Distinct::Many(registers) => registers,
        };
        let m = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / m);
        let inverse: f64 = registers.iter().map(|run| 2f64.powi(-i32::from(*run))).sum();
        let estimate = alpha * m * m / inverse;
        let empty = registers.iter().filter(|run| **run == 0).count();
        // Few keys: the empty registers tell more than the runs.
        let estimate = if estimate <= 2.5 * m && empty > 0 { m * (m / empty as f64).ln() } else { estimate };
        estimate.round() as u64
    }
}

fn note(registers: &mut [u8], hash: u64) {
    let register = (hash >> (64 - BITS)) as usize;
    // A one bit behind the rest bounds the run.
    let run = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() + 1;
    // Invariant: a run is at most 64.
    registers[register] = registers[register].max(u8::try_from(run).expect("a short run"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_exact_and_many_are_close() {
        for (keys, tolerance) in [(0_u64, 0.0), (1, 0.0), (256, 0.0), (257, 0.05), (5_000, 0.05), (100_000, 0.05)] {
            let mut distinct = Distinct::default();
            for n in 0..keys {
                distinct.add(&n.to_be_bytes());
                distinct.add(&n.to_be_bytes());
            }
            let error = distinct.count().abs_diff(keys) as f64;
            assert!(error <= keys as f64 * tolerance, "{keys}: {}", distinct.count());
        }
    }
}
