//! settee: a clustered document database that speaks CouchDB's HTTP interface.
//!
//! The modules stand in the order in which a request travels; none uses one that stands above it.
//!
//! ```text
//!   client ──► http         bytes to typed requests, answers to bytes; no decisions
//!              replicate    copies from one database to another, here or on another server
//!              auth         who is asking, and may they
//!              coordinator  one logical operation over all ranges of a database
//!              cluster      the other nodes: members, connections, calls
//!              index        rows that functions make of documents, in the order of their keys
//!              shard        one replica of one range: the place where documents live
//!              storage      bytes that survive: ordered store, group commit, blobs
//!              script       functions of design documents, run within limits
//!              document     JSON, revisions, revision trees: pure (a crate of its own)
//!              config       files, defaults, changes at run time
//!              wire         framing and codecs shared by disk and network
//!              world        all that is not ours: clock, randomness, network, disk, tasks
//! ```
//!
//! `limits`, `error` and `observe` may be used by every module. [`node`] puts the layers together for [`program`]
//! and for the simulator. `tests/tidy.rs` enforces the order.

pub mod program;

mod cli;

pub mod node;

pub mod http;

pub mod replicate;

pub mod auth;

pub mod coordinator;

pub mod cluster;

pub mod index;

pub mod shard;

pub mod storage;

pub mod script;

pub use settee_document as document;

pub mod config;

pub mod wire;

pub mod world;

pub mod limits;

pub mod observe;
