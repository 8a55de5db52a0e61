//! Calls between nodes about the set of databases, about members and about shard maps.

use serde::{Deserialize, Serialize};

use crate::coordinator::replica::jobs::JobCall;
use crate::coordinator::replica::rebalancing::RebalanceCall;
use crate::coordinator::replica::seat::Voters;
use crate::coordinator::topology::ballot::{Ask, Promise};
use crate::coordinator::topology::record::{MapRecord, Record};

/// What nodes tell each other about the set of databases.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum CatalogueCall {
    /// `Created`
    Create(Box<DatabaseMap>),
    /// `bool`: whether it was there.
    Delete { name: String, instance: String },
    /// `bool`: whether the database is known here.
    Set(Box<DatabaseMap>),
    /// `NodeState`; tells that of the caller.
    State(NodeState),
    /// `[u8; 32]`: of all that [`CatalogueCall::Entries`] would list.
    Digest,
    /// `Vec<EntryName>` in order, behind the given one.
    Entries { after: Option<(String, String)>, limit: u64 },
    /// `()`, when begun: the asked node applies what the asking one knows, for it may have missed something.
    Learn,
    /// `Vec<DatabaseMap>`: those of the names that live here.
    Maps(Vec<String>),
    /// `()`: a replica here may have missed something of the database.
    Pull(String),
    /// `([u8; 16], Option<String>)`: of the replicas of ranges that both nodes hold, as the asking one sees them when
    /// it is in sync, for as many databases behind a name; and the last of these, if there are others behind it.
    RolledUp(Option<String>, u64),
    /// `Vec<(String, [u8; 16])>`: the same for each database behind a name, up to the last one, in order.
    #[serde(rename = "Copies")]
    Replicas { after: Option<String>, last: Option<String> },
    /// `Vote`: about the map of a database, see `consensus`.
    Ballot(Box<BallotCall>),
    /// About who votes.
    Voters(Box<VotersCall>),
    /// `JobAnswer`: about jobs on this node, see `reshard`.
    Jobs(JobCall),
    /// `Option<Rebalance>`: the request that the asked node carries out.
    Rebalance(RebalanceCall),
}

/// A proposer's question about the next map of a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct BallotCall {
    pub name: String,
    pub instance: String,
    pub ask: Ask<MapRecord>,
}

/// What nodes ask each other about who votes, see `voters`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum VotersCall {
    /// `Voters`: those that the asked node knows, when it has heard of these.
    Exchange(Voters),
    /// `Vote`: about the next ones.
    Ballot(Ask<Voters>),
    /// `Option<HandedOver>`: what the asked node promised and accepted, behind a key, once it votes by these voters and
    /// by none before them; `None` while it goes by others.
    HandOver { voters: Voters, after: Option<Vec<u8>> },
}

/// What a node promised and accepted about maps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct HandedOver {
    /// The version of the voters up to which it has applied what was accepted.
    pub complete: u64,
    /// About the next voters.
    pub voters: Promise<Voters>,
    /// About maps of databases: name, instance, and promise; in order.
    pub maps: Vec<(String, String, Promise<MapRecord>)>,
    /// The last key, if there are others behind it.
    pub last: Option<Vec<u8>>,
}

/// A database as all nodes know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct DatabaseMap {
    pub name: String,
    /// Without numbers of shards; `by_range` is there.
    pub record: Record,
}

/// What became of a creation on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) enum Created {
    Done,
    /// Another database of the name is there.
    Exists,
    /// It was deleted already.
    Gone,
}

/// How a node takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct NodeState {
    /// Its replicas hold what the others held when it last met them.
    pub in_sync: bool,
    /// Its replicas take no part.
    pub maintenance: bool,
}

/// An entry of the list of databases, and the state that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct EntryName {
    pub name: String,
    pub instance: String,
    /// Whether that database is deleted.
    pub deleted: bool,
    /// Of its settings and where it lives.
    pub digest: [u8; 16],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::replica::message::{decode, encode};

    #[test]
    fn a_field_that_is_not_known_is_passed_over() {
        #[derive(Serialize)]
        struct Newer {
            in_sync: bool,
            mood: &'static str,
            maintenance: bool,
        }
        let bytes = encode(&Newer { in_sync: true, mood: "fine", maintenance: false });
        assert_eq!(decode::<NodeState>(&bytes), Ok(NodeState { in_sync: true, maintenance: false }));
    }
}
