//! Calls about tombstone collection (`anti_entropy/tombstone_collection.rs`): one [`Collect`] with a question inside,
//! which has the type of the answer.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::id::DocId;
use crate::document::rev_tree::RevPath;
use crate::shard::{CollectionLogState, Proposal, ProposalOutcome, Round, Tombstone};

/// See [`CollectionCall`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Collect(pub Box<CollectionCall>);

/// What replicas ask each other about what to collect.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum CollectionCall {
    Tell,
    Propose(Propose),
    Confirm(Confirm),
    Open,
    #[serde(rename = "Shadows")]
    Markers(Markers),
    #[serde(rename = "Collectable")]
    CollectableOf(CollectableOf),
    Expects(Expects),
}

/// A question about tombstone collection, with the type of its answer.
pub(in crate::coordinator) trait CollectionQuestion: Into<CollectionCall> {
    type Answer: Serialize + DeserializeOwned;
}

/// What the replica has collected, and is to collect.
#[derive(Debug)]
pub(in crate::coordinator) struct Tell;

/// Has the replica write down a proposal of the asking node; the answer tells what became of it.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Propose(pub Proposal<Tombstone>);

/// Tells the replica that all others have written down a round of the asking node; the answer tells whether that round
/// stands here, by the map that the asking node knows.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Confirm(pub Round);

/// The proposals that are written down and not done, by proposer.
#[derive(Debug)]
pub(in crate::coordinator) struct Open;

/// A page of documents behind one that were collected here and may not be collected everywhere.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Markers(pub Option<DocId>);

/// What the replica could collect now, if nothing held it back; with the tombstones of the next round, if it is to list
/// them. Known since version 7.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct CollectableOf(pub bool);

/// What would become of a proposal of these tombstones. Known since version 7.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Expects(pub Vec<Tombstone>);

/// See [`CollectableOf`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Collectable {
    /// Whether tombstones are kept for ever there.
    pub keeps_all: bool,
    /// How many sequences it has had for long enough and not looked through yet.
    pub unread: u64,
    /// Tombstones of the next round.
    pub tombstones: Vec<Tombstone>,
    /// Whether those are all that it has had for long enough.
    pub is_all: bool,
}

impl Default for Collectable {
    fn default() -> Collectable {
        Collectable { keeps_all: true, unread: 0, tombstones: Vec::new(), is_all: true }
    }
}

macro_rules! questions {
    ($($name:ident $(($field:ident))? => $answer:ty;)*) => {
        $(
            impl From<$name> for CollectionCall {
                fn from(_call: $name) -> CollectionCall {
                    questions!(@call $name _call $($field)?)
                }
            }

            impl CollectionQuestion for $name {
                type Answer = $answer;
            }
        )*
    };
    (@call $name:ident $call:ident) => { CollectionCall::$name };
    (@call $name:ident $call:ident $field:ident) => { CollectionCall::$name($call) };
}

questions! {
    Tell => CollectionLogState;
    Propose(proposal) => ProposalOutcome;
    Confirm(round) => bool;
    Open => Vec<(String, Proposal<Tombstone>)>;
    Markers(after) => Vec<(DocId, RevPath)>;
    CollectableOf(list) => Collectable;
    Expects(tombstones) => ProposalOutcome;
}
