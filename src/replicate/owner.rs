//! The owner of a replication in a cluster. All nodes that see the same nodes up choose the same owner without asking
//! each other.

use crate::cluster::{Cluster, NodeName};
use crate::world::buggify::{Mutation, mutated};

/// The node that `what` belongs to: of those that are up the one that scores highest for it, so that a node that goes
/// away or comes back moves nothing but its own (rendezvous hashing). `None` where no node is up.
pub fn owner(cluster: &Cluster, what: &str) -> Option<NodeName> {
    if mutated(Mutation::OwnerTwice) {
        return Some(cluster.name().clone());
    }
    owner_of(&cluster.up(), what).cloned()
}

/// Whether `what` belongs to this node.
pub fn is_mine(cluster: &Cluster, what: &str) -> bool {
    owner(cluster, what).is_none_or(|owner| owner == *cluster.name())
}

fn owner_of<'n>(nodes: &'n [NodeName], what: &str) -> Option<&'n NodeName> {
    let score = |node: &NodeName| crc32fast::hash(format!("{node}\0{what}").as_bytes());
    nodes.iter().max_by_key(|node| (score(node), node.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_one_node_and_stays_there_while_it_is_up() {
        let nodes: Vec<NodeName> = ["a@h", "b@h", "c@h"].map(NodeName::from).to_vec();
        let what = |n: usize| format!("_replicator\0r{n}");
        let mut of = [0; 3];
        for n in 0..300 {
            let owner = owner_of(&nodes, &what(n)).unwrap();
            of[nodes.iter().position(|node| node == owner).unwrap()] += 1;
            let others: Vec<NodeName> = nodes.iter().filter(|node| node.to_string() != "c@h").cloned().collect();
            if owner.to_string() != "c@h" {
                assert_eq!(owner_of(&others, &what(n)), Some(owner));
            }
        }
        assert!(of.iter().all(|count| *count > 50), "{of:?}");
        assert_eq!(owner_of(&[], &what(0)), None);
    }
}
