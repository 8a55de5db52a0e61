//! Replication: copies what one database has and another lacks, here or on another server (CouchDB documentation,
//! `_replicate`).
//!
//! `request` and `tuning` read what is asked, `documents` follows replicator databases, `jobs` keeps what runs, `job`
//! drives one, when it has its slot (`scheduler`). `owner` says on which node of a cluster. `engine` and `copy` do the
//! work between two `peer`s: `local` databases through the coordinator, `remote` ones by HTTP. `checkpoint` decides
//! where a session begins. `migrate` carries whole servers over for `settee import` and `settee export`.
//!
//! Promises: revisions keep their ids, histories and attachments' digests; a checkpoint never covers what is not on the
//! target's disk; one document that cannot be written does not stop the others.

pub mod checkpoint;
mod copy;
pub mod documents;
pub mod engine;
pub mod error;
pub mod job;
pub mod jobs;
mod large;
mod local;
pub mod migrate;
mod multipart;
mod notes;
pub mod owner;
mod peer;
mod progress;
mod remote;
pub mod request;
mod scheduler;
pub mod sealed;
mod trust;
mod tuning;

pub use error::ReplicateError;
pub use job::{Event, Health, Job, Origin, State};
pub use jobs::{Outcome, Replicator, Standing};
pub use progress::Progress;
pub use remote::INSTANCE;
