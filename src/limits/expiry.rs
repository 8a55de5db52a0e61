//! Limits of the expiry of documents.

use std::time::Duration;

/// The latest time at which a document can end: the last second of the year 9999. A later number is no time in seconds;
/// most likely it is one in milliseconds.
pub const EXPIRY_LATEST_S: u64 = 253_402_300_799;
/// Bytes of the name of the member that says when a document ends.
pub const EXPIRY_MEMBER_BYTES: usize = 256;
/// Pause between two looks for documents that have ended.
pub const EXPIRY_PAUSE: Duration = Duration::from_secs(10);
/// Ranges at a time in which a node deletes documents that have ended.
pub const EXPIRY_AT_ONCE: usize = 4;
/// Documents that are deleted together; then there is a pause as long as that took.
pub const EXPIRY_STEP_DOCS: usize = 500;
/// Such steps of one range, before other ranges have their turn.
pub const EXPIRY_STEPS: usize = 20;
/// Time for which who asks what is to expire waits for the index of it.
pub const EXPIRY_INDEX_WAIT: Duration = Duration::from_secs(20);
