//! Which range of the 32-bit ring a document belongs to.
//!
//! Pure. The ring is cut into `q` ranges exactly as the reference cuts it, so that `_shards` and the placement of
//! documents look the same; a document belongs to the CRC-32 of its id, of its partition in a partitioned database. A
//! range can be split in two later.

use crate::document::id::DocId;

/// A range of the ring, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first hash.
    pub begin: u32,
    /// The last hash.
    pub end: u32,
}

impl Range {
    /// Whether `hash` lies in the range.
    pub fn contains(self, hash: u32) -> bool {
        (self.begin..=self.end).contains(&hash)
    }

    /// The two halves of the range; `None` when it is a single hash.
    pub fn halves(self) -> Option<[Range; 2]> {
        let middle = self.begin + (self.end - self.begin) / 2;
        let halves = [Range { begin: self.begin, end: middle }, Range { begin: middle.checked_add(1)?, end: self.end }];
        (self.begin < self.end).then_some(halves)
    }

    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Range> {
        let (begin, end) = text.split_once('-')?;
        let number = |hex: &str| (hex.len() == 8).then(|| u32::from_str_radix(hex, 16).ok()).flatten();
        let range = Range { begin: number(begin)?, end: number(end)? };
        (range.begin <= range.end).then_some(range)
    }
}

impl std::fmt::Display for Range {
    /// `00000000-7fffffff`, as `_shards` shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}-{:08x}", self.begin, self.end)
    }
}

/// How a database is cut into ranges.
///
/// Each range has a number for good: those of the database's beginning in ring order, then two for each split. A range
/// that was split keeps its number and is no longer live; the live ones tile the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMap {
    /// Number of replicas of each range.
    pub n: u32,
    /// Whether the part of an id before its first colon decides the range.
    pub partitioned: bool,
    /// By number.
    ranges: Box<[Range]>,
    /// The numbers of the live ranges in ring order.
    live: Box<[usize]>,
}

/// The `index`th of `q` even ranges; the last takes what the division leaves, so that q=3 ends in `aaaaaaaa-ffffffff`.
fn even(index: u32, q: u32) -> Range {
    let step = (1_u64 << 32) / u64::from(q);
    let begin = u64::from(index) * step;
    let end = if index + 1 == q { (1 << 32) - 1 } else { begin + step - 1 };
    // Invariant: index < q, so both ends are below 2^32.
    Range { begin: u32::try_from(begin).expect("within the ring"), end: u32::try_from(end).expect("within the ring") }
}

impl ShardMap {
    /// The ring cut into `q` even ranges, of which those numbered in `splits` were split one after the other. `None`
    /// when one of them cannot be.
    pub fn new(q: u32, splits: &[u32], n: u32, partitioned: bool) -> Option<ShardMap> {
        let mut ranges: Vec<Range> = (0..q).map(|index| even(index, q)).collect();
        let mut live: Vec<usize> = (0..ranges.len()).collect();
        for split in splits {
            let split = usize::try_from(*split).ok()?;
            let at = live.iter().position(|range| *range == split)?;
            let halves = ranges[split].halves()?;
            live.splice(at..=at, [ranges.len(), ranges.len() + 1]);
            ranges.extend(halves);
        }
        (q > 0).then(|| ShardMap { n, partitioned, ranges: ranges.into(), live: live.into() })
    }

    /// How many ranges tile the ring.
    pub fn q(&self) -> usize {
        self.live.len()
    }

    /// The numbers of the live ranges, in ring order.
    pub fn live(&self) -> &[usize] {
        &self.live
    }

    /// How many numbers were given to ranges.
    pub fn numbers(&self) -> usize {
        self.ranges.len()
    }

    /// The range of a number that was given.
    pub fn range(&self, index: usize) -> Range {
        self.ranges[index]
    }

    /// Whether a range was not split.
    pub fn is_live(&self, index: usize) -> bool {
        self.live.contains(&index)
    }

    /// The live ranges that a range of this or of an earlier map consists of now, in ring order.
    pub fn within(&self, whole: Range) -> Vec<usize> {
        let inside = |index: &usize| whole.contains(self.range(*index).begin) && whole.contains(self.range(*index).end);
        self.live.iter().copied().filter(inside).collect()
    }

    /// The number of the live range that holds `hash`.
    pub fn index_of_hash(&self, hash: u32) -> usize {
        let at = self.live.partition_point(|index| self.ranges[*index].end < hash);
        // Invariant: the live ranges tile the ring.
        self.live[at]
    }

    /// The number of the range that holds a document.
    pub fn index_of(&self, id: &DocId) -> usize {
        self.index_of_hash(self.hash(id))
    }

    /// The number of the range that holds a partition.
    pub fn index_of_partition(&self, partition: &str) -> usize {
        self.index_of_hash(crc32fast::hash(partition.as_bytes()))
    }

    /// The place of a document on the ring. Design and local documents always go by their whole id.
    pub fn hash(&self, id: &DocId) -> u32 {
        let text = id.as_str();
        let key = match partition_of(text) {
            Some(partition) if self.partitioned && !id.is_design() && !id.is_local() => partition,
            _ => text,
        };
        crc32fast::hash(key.as_bytes())
    }
}

/// The partition of an id: what stands before its first colon.
pub fn partition_of(id: &str) -> Option<&str> {
    id.split_once(':').map(|(partition, _)| partition)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(q: u32) -> ShardMap {
        ShardMap::new(q, &[], 1, false).unwrap()
    }

    fn shown(q: u32) -> Vec<String> {
        let map = map(q);
        map.live().iter().map(|index| map.range(*index).to_string()).collect()
    }

    #[test]
    fn ranges_as_the_reference_cuts_them() {
        assert_eq!(shown(1), ["00000000-ffffffff"]);
        assert_eq!(shown(2), ["00000000-7fffffff", "80000000-ffffffff"]);
        assert_eq!(shown(3), ["00000000-55555554", "55555555-aaaaaaa9", "aaaaaaaa-ffffffff"]);
    }

    /// As recorded from the reference with q=4: ids `a` and `ü/1` in the last range, `zz` in the first.
    #[test]
    fn documents_belong_to_the_crc_of_their_id() {
        let of = |id: &str| map(4).range(map(4).index_of(&DocId::new(id))).to_string();
        assert_eq!(of("a"), "c0000000-ffffffff");
        assert_eq!(of("zz"), "00000000-3fffffff");
        assert_eq!(of("ü/1"), "c0000000-ffffffff");
    }

    #[test]
    fn a_partition_stays_together() {
        let map = ShardMap::new(8, &[], 1, true).unwrap();
        let home = map.index_of_partition("p");
        for id in ["p:1", "p:2", "p:x:y"] {
            assert_eq!(map.index_of(&DocId::new(id)), home);
        }
        assert_eq!(map.hash(&DocId::new("_design/p:1")), crc32fast::hash(b"_design/p:1"));
        assert_eq!(map.hash(&DocId::new("_local/p:1")), crc32fast::hash(b"_local/p:1"));
    }

    #[test]
    fn a_range_is_split_once_and_both_halves_keep_their_numbers() {
        let map = ShardMap::new(2, &[1], 1, false).unwrap();
        let shown: Vec<String> = map.live().iter().map(|index| map.range(*index).to_string()).collect();
        assert_eq!(shown, ["00000000-7fffffff", "80000000-bfffffff", "c0000000-ffffffff"]);
        assert_eq!((map.live(), map.is_live(1)), (&[0, 2, 3][..], false));
        assert_eq!(map.within(map.range(1)), [2, 3]);
        assert_eq!(ShardMap::new(2, &[1, 1], 1, false), None);
        assert_eq!(ShardMap::new(2, &[4], 1, false), None);
        assert_eq!(Range::parse("80000000-bfffffff"), Some(map.range(2)));
        assert!(
            ["", "8-9", "80000000", "80000000-7fffffff", "8000000g-ffffffff"].iter().all(|t| Range::parse(t).is_none())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn ranges_tile_the_ring(q in 1_u32..400, hash: u32, picks in prop::collection::vec(any::<usize>(), 0..9)) {
            let mut splits = Vec::new();
            for pick in picks {
                let map = ShardMap::new(q, &splits, 1, false).unwrap();
                splits.push(map.live()[pick % map.q()] as u32);
            }
            let map = ShardMap::new(q, &splits, 1, false).unwrap();
            let ranges: Vec<Range> = map.live().iter().map(|index| map.range(*index)).collect();
            prop_assert_eq!(ranges.len(), q as usize + splits.len());
            prop_assert_eq!(ranges[0].begin, 0);
            prop_assert_eq!(ranges[ranges.len() - 1].end, u32::MAX);
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].end + 1, pair[1].begin);
            }
            prop_assert!(map.range(map.index_of_hash(hash)).contains(hash));
        }
    }
}
