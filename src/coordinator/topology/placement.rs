//! Placement of the replicas of a new database on nodes. Pure.

use crate::coordinator::topology::error::DatabaseError;
use crate::coordinator::topology::peers::Peer;

/// The nodes of each range: `n` of them for each, or as many as `zones` asks of each zone.
///
/// Nodes take turns, beginning at the one that `start` picks, so that ranges and databases spread evenly.
///
/// # Errors
/// [`DatabaseError::NoNodesInZone`] when a zone has no node.
pub(in crate::coordinator) fn place(
    nodes: &[Peer],
    q: u32,
    n: u32,
    zones: Option<&[(String, u32)]>,
    start: usize,
) -> Result<Vec<Vec<String>>, DatabaseError> {
    let mut groups: Vec<(Vec<String>, usize)> = Vec::new();
    match zones {
        None => groups.push((nodes.iter().map(|node| node.name.to_string()).collect(), n as usize)),
        Some(zones) => {
            for (zone, replicas) in zones {
                let inside = nodes.iter().filter(|node| node.zone.as_deref() == Some(zone.as_str()));
                groups.push((inside.map(|node| node.name.to_string()).collect(), *replicas as usize));
            }
        }
    }
    if groups.iter().any(|(nodes, _)| nodes.is_empty()) {
        return Err(DatabaseError::NoNodesInZone);
    }
    let range = |range: usize| {
        let of = |(nodes, replicas): &(Vec<String>, usize)| -> Vec<String> {
            let replicas = (*replicas).min(nodes.len());
            (0..replicas).map(|at| nodes[(start + range * replicas + at) % nodes.len()].clone()).collect()
        };
        groups.iter().flat_map(of).collect()
    };
    Ok((0..q as usize).map(range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(list: &[(&str, Option<&str>)]) -> Vec<Peer> {
        list.iter().map(|(name, zone)| Peer { name: (*name).into(), zone: zone.map(str::to_owned) }).collect()
    }

    #[test]
    fn replicas_are_on_different_nodes_and_nodes_take_turns() {
        let five = nodes(&[("a", None), ("b", None), ("c", None), ("d", None), ("e", None)]);
        let placed = place(&five, 5, 3, None, 4).unwrap();
        assert_eq!(placed[0], ["e", "a", "b"]);
        let held = |name: &str| placed.iter().flatten().filter(|node| *node == name).count();
        assert!(["a", "b", "c", "d", "e"].into_iter().all(|name| held(name) == 3), "{placed:?}");
        let two = place(&five[..2], 1, 9, None, 0).unwrap();
        assert_eq!(two, [["a", "b"]]);
    }

    #[test]
    fn zones_get_what_the_rule_says() {
        let four = nodes(&[("a", Some("x")), ("b", Some("y")), ("c", Some("x")), ("d", None)]);
        let rule = [("x".to_owned(), 2), ("y".to_owned(), 1)];
        let placed = place(&four, 2, 3, Some(&rule), 0).unwrap();
        assert!(placed.iter().all(|range| range.len() == 3 && range[2] == "b"), "{placed:?}");
        let nowhere = [("z".to_owned(), 1)];
        assert!(matches!(place(&four, 1, 1, Some(&nowhere), 0), Err(DatabaseError::NoNodesInZone)));
    }
}
