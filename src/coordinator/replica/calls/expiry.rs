//! The call about documents that end (`anti_entropy/expiry.rs`).

use serde::{Deserialize, Serialize};

/// Asks for the node's clock, and what is to expire on its replica. Known since version 9.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct ExpiryOf {
    /// `None`: the clock alone.
    pub look: Option<Look>,
    /// The member that says when documents end, as the asker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// What is to be told of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Look {
    /// The time up to which documents count as ended, in seconds since 1970.
    pub upto: u64,
    /// Whether documents are counted, and the index is brought up to date before.
    pub counts: bool,
}

/// See [`ExpiryOf`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Expiring {
    /// The wall clock of the node in milliseconds since 1970.
    pub clock_ms: u64,
    /// Whether the node knows that another member than the asker's says when documents end, or none.
    #[serde(default)]
    pub differs: bool,
    /// Whether the node knows that documents end; if not, it tells nothing of them.
    #[serde(default)]
    pub is_on: bool,
    /// Whether the index of ends has all documents.
    #[serde(default)]
    pub is_ready: bool,
    /// When the first document ends, in seconds since 1970.
    #[serde(default)]
    pub next: Option<u64>,
    /// Documents that have ended and are still there.
    #[serde(default)]
    pub due: u64,
    /// Documents that say something which is no time.
    #[serde(default)]
    pub unreadable: u64,
}
