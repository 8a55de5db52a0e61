//! Calls between replicas about tombstone collection (`anti_entropy/tombstone_collection.rs`).

use serde::{Deserialize, Serialize};

use crate::document::id::DocId;
use crate::shard::{Proposal, Round, Tombstone};

/// What copies say to each other about what to collect.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum CollectionCall {
    /// `Told`
    Tell,
    /// `WrittenDown`: what became of a proposal of the asking node.
    Propose(Proposal<Tombstone>),
    /// `bool`: whether a round of the asking node, which all copies have written down, stands here, by the map that it
    /// knows.
    Confirm(Round),
    /// `Vec<(String, Proposal<Tombstone>)>`: what is written down and not done, by proposer.
    Open,
    /// `Vec<(DocId, RevPath)>`: documents behind one that were collected and may not be everywhere, a page of them.
    #[serde(rename = "Shadows")]
    Markers(Option<DocId>),
}
