//! The conformance suite as a library: cases as data, their play against a server, and the outcome.
//!
//! It knows HTTP and nothing of any product; the ground on which a play takes place is the caller's (`ground`).

use std::path::PathBuf;

pub mod client;
pub mod compare;
pub mod curl;
pub mod diff;
pub mod faults;
pub mod ground;
pub mod html;
pub mod json;
pub mod level;
pub mod multipart;
pub mod player;
pub mod profile;
pub mod random;
pub mod record;
pub mod report;
pub mod rows;
pub mod run;
pub mod suite;
pub mod summary;
pub mod transcript;

/// The suite's own folder: `cases`, `profiles` and what belongs to them.
pub fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
