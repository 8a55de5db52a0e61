//! The map of a database after a range was split in two.

use crate::coordinator::topology::record::{self, MapRecord};

impl MapRecord {
    /// These with a range split in two: each half is held by the same nodes, in the same order of primaries. Says why
    /// not while a replica of it is on its way: what that lacks is applied by the range.
    pub fn with_split(&self, range: usize) -> Result<MapRecord, String> {
        if record::is_split(&self.splits, range) {
            return Err("the range was split".to_owned());
        }
        if self.moves_replica_of(range as u32) {
            return Err("a replica of the range is on its way".to_owned());
        }
        let mut next = self.clone();
        next.version += 1;
        if let Some(by_range) = &mut next.by_range {
            for _ in 0..2 {
                let mut nodes = by_range[range].clone();
                // Primaries alternate by the number of the range (`Replicas::nodes_of`): the halves keep those they
                // had.
                let (turn, count) = (by_range.len(), nodes.len());
                nodes.rotate_left(range % count);
                nodes.rotate_right(turn % count);
                by_range.push(nodes);
            }
        }
        next.splits.push(range as u32);
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_a_range_have_its_primaries_in_its_order() {
        let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let by_range = Some(vec![nodes(&["a", "b", "c"]), nodes(&["b", "c", "a"])]);
        let places =
            MapRecord { version: 4, moved: 0, n: 3, wanted: 3, splits: Vec::new(), by_range, moves: Vec::new() };
        let primaries = |places: &MapRecord, range: usize| {
            let mut nodes = places.by_range.as_ref().unwrap()[range].clone();
            let count = nodes.len();
            nodes.rotate_left(range % count);
            nodes
        };
        let split = places.with_split(1).unwrap();
        assert_eq!((split.version, &split.splits[..]), (5, &[1][..]));
        assert_eq!(primaries(&split, 2), primaries(&places, 1));
        assert_eq!(primaries(&split, 3), primaries(&places, 1));
        let again = split.with_split(3).unwrap();
        assert_eq!(primaries(&again, 5), primaries(&places, 1));
        assert!(again.with_split(3).is_err(), "once only");
    }
}
