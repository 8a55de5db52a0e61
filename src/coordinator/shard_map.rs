//! Which range of the 32-bit ring a document belongs to.
//!
//! Pure. The ring is cut into `q` ranges exactly as the reference cuts it, so that `_shards` and the placement of
//! documents look the same; a document belongs to the CRC-32 of its id, of its partition in a partitioned database.

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
}

impl std::fmt::Display for Range {
    /// `00000000-7fffffff`, as `_shards` shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}-{:08x}", self.begin, self.end)
    }
}

/// How a database is cut into ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMap {
    /// Number of ranges, at least 1.
    pub q: u32,
    /// Number of copies of each range.
    pub n: u32,
    /// Whether the part of an id before its first colon decides the range.
    pub partitioned: bool,
}

impl ShardMap {
    /// The width of all ranges but the last.
    fn step(&self) -> u64 {
        (1_u64 << 32) / u64::from(self.q)
    }

    /// The ranges in ring order; they tile the whole ring.
    pub fn ranges(&self) -> Vec<Range> {
        (0..self.q).map(|index| self.range(index)).collect()
    }

    /// The range at `index` (0-based, below `q`).
    ///
    /// The last range takes what the division leaves, so that q=3 ends in `aaaaaaaa-ffffffff`.
    pub fn range(&self, index: u32) -> Range {
        assert!(index < self.q, "range {index} of {}", self.q);
        let begin = u64::from(index) * self.step();
        let end = if index + 1 == self.q { (1 << 32) - 1 } else { begin + self.step() - 1 };
        // Invariant: index < q, so both ends are below 2^32.
        Range {
            begin: u32::try_from(begin).expect("within the ring"),
            end: u32::try_from(end).expect("within the ring"),
        }
    }

    /// The index of the range that holds `hash`.
    pub fn index_of_hash(&self, hash: u32) -> usize {
        // Invariant: q >= 1, and the quotient is at most q.
        let index = u64::from(hash) / self.step();
        index.min(u64::from(self.q) - 1) as usize
    }

    /// The index of the range that holds a document.
    pub fn index_of(&self, id: &DocId) -> usize {
        self.index_of_hash(self.hash(id))
    }

    /// The index of the range that holds a partition.
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
        ShardMap { q, n: 1, partitioned: false }
    }

    fn shown(q: u32) -> Vec<String> {
        map(q).ranges().iter().map(Range::to_string).collect()
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
        let of = |id: &str| map(4).range(map(4).index_of(&DocId::new(id)) as u32).to_string();
        assert_eq!(of("a"), "c0000000-ffffffff");
        assert_eq!(of("zz"), "00000000-3fffffff");
        assert_eq!(of("ü/1"), "c0000000-ffffffff");
    }

    #[test]
    fn a_partition_stays_together() {
        let map = ShardMap { q: 8, n: 1, partitioned: true };
        let home = map.index_of_partition("p");
        for id in ["p:1", "p:2", "p:x:y"] {
            assert_eq!(map.index_of(&DocId::new(id)), home);
        }
        assert_eq!(map.hash(&DocId::new("_design/p:1")), crc32fast::hash(b"_design/p:1"));
        assert_eq!(map.hash(&DocId::new("_local/p:1")), crc32fast::hash(b"_local/p:1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn ranges_tile_the_ring(q in 1_u32..400, hash: u32) {
            let map = map(q);
            let ranges = map.ranges();
            prop_assert_eq!(ranges[0].begin, 0);
            prop_assert_eq!(ranges[ranges.len() - 1].end, u32::MAX);
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].end + 1, pair[1].begin);
            }
            prop_assert!(ranges[map.index_of_hash(hash)].contains(hash));
        }
    }
}
