//! `_top_N` and `_bottom_N`: the N highest or lowest values in collation order, best first, each once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::collate::{Collation, Collator};
use crate::document::json::Value;

/// The best values so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranking {
    keep: usize,
    highest: bool,
    /// The same on all nodes.
    #[serde(skip)]
    collator: Collator,
    best: BTreeMap<Vec<u8>, Value>,
}

impl Ranking {
    /// The `keep` highest.
    pub fn highest(keep: usize, collator: &Collator) -> Ranking {
        Ranking { keep, highest: true, collator: collator.with(Collation::Unicode), best: BTreeMap::new() }
    }

    /// The `keep` lowest.
    pub fn lowest(keep: usize, collator: &Collator) -> Ranking {
        Ranking { highest: false, ..Ranking::highest(keep, collator) }
    }

    /// Takes in a value.
    pub fn add(&mut self, value: Value) {
        let mut sort = Vec::new();
        self.collator.sort_key(&value, &mut sort);
        self.best.entry(sort).or_insert(value);
        if self.best.len() > self.keep {
            if self.highest {
                self.best.pop_first()
            } else {
                self.best.pop_last()
            };
        }
    }

    /// Takes in the best of other values.
    pub fn merge(&mut self, more: &Ranking) {
        more.best.values().for_each(|value| self.add(value.clone()));
    }

    /// The values, best first.
    pub fn finish(self) -> Vec<Value> {
        if self.highest { self.best.into_values().rev().collect() } else { self.best.into_values().collect() }
    }
}
