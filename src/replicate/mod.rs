//! Replication: copies what one database has and another lacks, here or on another server (SPEC `_replicate`).
//!
//! `request` reads what is asked, `documents` follows replicator databases, `jobs` keeps what runs, `engine` does the
//! work between two `peer`s: `local` databases through the coordinator, `remote` ones by HTTP. `checkpoint` decides
//! where a session begins.
//!
//! Promises: revisions keep their ids, histories and attachments' digests; a checkpoint never covers what is not on the
//! target's disk; one document that cannot be written does not stop the others.

pub mod checkpoint;
pub mod documents;
pub mod engine;
pub mod error;
pub mod jobs;
mod local;
mod peer;
mod remote;
pub mod request;
mod trust;

pub use engine::Progress;
pub use error::ReplicateError;
pub use jobs::{Event, Health, Job, Origin, Outcome, Replicator};
