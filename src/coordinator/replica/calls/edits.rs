//! Calls that bring edits to a replica.

use serde::{Deserialize, Serialize};

use crate::coordinator::replica::message::{DecideCall, EditText};

/// Edits for the primary of their range.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Decide(pub Box<DecideCall>);

/// Edits that were decided elsewhere; the answer tells for each whether it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Merge {
    pub edits: Vec<EditText>,
    /// The node that has the uploads which the replica lacks.
    pub source: String,
    /// Whether they are of another replica and not of a primary: then what was purged here stays away.
    #[serde(default)]
    pub repair: bool,
    /// Whether they are of no replica of the range: then they are stored where something was collected, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// Whether the answer tells the position of the replica afterwards; else it is the list `stored` alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tell: bool,
}
