//! What answers showed, for the timeline: trees of documents, and positions of the changes feed. It checks nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;
use settee::coordinator::Seq;

use crate::model::Leaf;

/// How many different trees of a document are kept, the last ones.
const KEPT: usize = 32;

/// A document's tree as an answer showed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sight {
    /// To whom it was shown last, before another one was.
    pub lane: String,
    /// Simulated milliseconds from the start of the world.
    pub at_ms: u64,
    /// The tree.
    pub leaves: Vec<Leaf>,
}

impl Sight {
    fn revisions(&self) -> BTreeSet<&String> {
        self.leaves.iter().flat_map(|leaf| &leaf.path).collect()
    }
}

/// How far a reader was told that it has read one range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RangePosition {
    /// The last hash of the range.
    pub end: u32,
    /// The replica that was read, by the end of its name, and its epoch.
    #[serde(rename = "copy")]
    pub replica: String,
    /// See there.
    pub epoch: u64,
    /// The position in that replica.
    pub position: u64,
}

/// How far a reader of the feed was told that it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Who reads.
    pub lane: String,
    /// When.
    pub at_ms: u64,
    /// In ring order.
    pub ranges: Vec<RangePosition>,
}

/// A document's tree before and after something went wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BeforeAndAfter {
    /// The last tree that has a revision which the one after lacks; where there is none, the last other one.
    pub before: Option<Sight>,
    /// The last tree that was shown.
    pub after: Option<Sight>,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Sights {
    trees: BTreeMap<String, VecDeque<Sight>>,
    /// In order of time.
    pub told: Vec<Told>,
}

impl Sights {
    /// An answer showed the whole tree of a document.
    pub fn tree(&mut self, doc: &str, lane: &str, at_ms: u64, leaves: &[Leaf]) {
        let mut leaves = leaves.to_vec();
        leaves.sort_by(|a, b| a.path.cmp(&b.path));
        let known = self.trees.entry(doc.to_owned()).or_default();
        // Of several that are the same the last one counts.
        if known.back().is_some_and(|last| last.leaves == leaves) {
            known.pop_back();
        } else if known.len() == KEPT {
            known.pop_front();
        }
        known.push_back(Sight { lane: lane.to_owned(), at_ms, leaves });
    }

    /// An answer of the feed ended with this sequence; another server's says nothing.
    pub fn position(&mut self, lane: &str, at_ms: u64, since: &str) {
        let Ok(Seq(entries)) = Seq::parse(since) else { return };
        let ranges = entries.iter().map(|entry| RangePosition {
            end: entry.end,
            replica: format!("{:04x}", entry.shard & 0xffff),
            epoch: entry.epoch,
            position: entry.position,
        });
        self.told.push(Told { lane: lane.to_owned(), at_ms, ranges: ranges.collect() });
    }

    /// The two trees of a document that a reader of its failure wants to see.
    pub fn before_and_after(&self, doc: &str) -> BeforeAndAfter {
        let mut known = self.trees.get(doc).into_iter().flatten().rev();
        let after = known.next();
        let Some(last) = after else { return BeforeAndAfter::default() };
        let there = last.revisions();
        let earlier: Vec<&Sight> = known.collect();
        let lost = earlier.iter().find(|sight| !sight.revisions().is_subset(&there));
        let before = lost.or(earlier.first()).copied().cloned();
        BeforeAndAfter { before, after: after.cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(path: &[&str]) -> Leaf {
        Leaf { path: path.iter().map(|rev| (*rev).to_owned()).collect(), deleted: false, v: None }
    }

    #[test]
    fn the_tree_before_is_the_last_one_with_what_is_gone() {
        let mut sights = Sights::default();
        assert_eq!(sights.before_and_after("d"), BeforeAndAfter::default());
        let (one, two) = (leaf(&["1-a"]), leaf(&["2-b", "1-a"]));
        sights.tree("d", "c1", 5, std::slice::from_ref(&one));
        assert_eq!(sights.before_and_after("d").before, None);
        sights.tree("d", "c1", 6, &[two.clone(), leaf(&["1-z"])]);
        sights.tree("d", "c2", 7, &[leaf(&["1-z"]), two.clone()]);
        sights.tree("d", "c1", 8, std::slice::from_ref(&two));
        sights.tree("d", "oracle", 9, &[leaf(&["3-c", "2-b", "1-a"])]);
        let shown = sights.before_and_after("d");
        assert_eq!(shown.before.map(|sight| sight.at_ms), Some(7), "the same in another order is no other tree");
        assert_eq!(shown.after.map(|sight| (sight.at_ms, sight.lane)), Some((9, "oracle".to_owned())));
        sights.tree("e", "c1", 1, &[one]);
        sights.tree("e", "c1", 2, &[two]);
        assert_eq!(sights.before_and_after("e").before.map(|sight| sight.at_ms), Some(1), "nothing is gone");
        for at_ms in 0..100 {
            sights.tree("f", "c1", at_ms, &[leaf(&[&format!("1-{at_ms}")])]);
        }
        assert_eq!(sights.trees["f"].len(), KEPT);
    }

    #[test]
    fn a_sequence_tells_the_position_in_each_range() {
        let entry =
            |end, position| settee::coordinator::topology::seq::SeqEntry { end, shard: 0x1_2345, epoch: 2, position };
        let mut sights = Sights::default();
        sights.position("c1", 5, &Seq(vec![entry(9, 3), entry(u32::MAX, 4)]).to_string());
        sights.position("c1", 6, "25-anothers");
        sights.position("c1", 7, "0");
        let told: Vec<(u32, &str, u64)> =
            sights.told.iter().flat_map(|t| &t.ranges).map(|r| (r.end, r.replica.as_str(), r.position)).collect();
        assert_eq!(told, [(9, "2345", 3), (u32::MAX, "2345", 4)]);
    }
}
