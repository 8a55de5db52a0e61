//! One operation on one replica of a shard, on this node or on another, and what all operations share.
//!
//! [`context`] is the node's state, [`database`] the handle of one database, [`layout`] its shards at one moment,
//! [`range_replica`] a replica on either side. [`calls`] is the table of the
//! calls between nodes, [`message`] has the values that they carry, and [`remote`] sends them.

pub(super) mod answered;
pub(in crate::coordinator) mod awaited;
pub(super) mod blob_stream;
pub(super) mod call_text;
pub mod calls;
pub mod catalogue;
pub(super) mod context;
pub mod database;
pub mod design;
pub(super) mod each;
pub(super) mod epoch;
pub(super) mod floor;
pub(super) mod halves;
pub(super) mod in_doubt;
pub(super) mod in_sync;
pub mod jobs;
pub(super) mod layout;
pub(super) mod message;
pub(super) mod node_calls;
pub(super) mod operations;
pub(super) mod own_replica;
pub(super) mod paces;
pub(super) mod range_replica;
pub mod read_from;
pub mod rebalancing;
pub(super) mod rebuilds;
pub(super) mod record_change;
pub(super) mod remote;
pub(super) mod repair;
pub mod replica_status;
pub mod replicas;
pub(super) mod seat;
pub(super) mod single_flight;
pub(super) mod sync_points;
pub mod token;
pub(super) mod told;
pub(super) mod uploads;
