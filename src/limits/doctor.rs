//! What `settee doctor` takes for good.

use std::time::Duration;

/// Times before this one come of a clock that was never set: 2025-01-01.
pub const DOCTOR_EARLIEST: Duration = Duration::from_secs(1_735_689_600);
/// Open files that a node needs beside its connections: store files, journal, other nodes.
pub const DOCTOR_FILES_LEAST: u64 = 512;
/// MB above the reserve that the disk should have.
pub const DOCTOR_ROOM_MB: u64 = 1024;
/// Syncs that are measured.
pub const DOCTOR_SYNCS: usize = 100;
/// A sync within this time did not reach a drive: the quickest flash takes some 20 µs.
pub const DOCTOR_SYNC_TOO_FAST: Duration = Duration::from_micros(15);
/// A sync that takes longer is that of a slow drive.
pub const DOCTOR_SYNC_SLOW: Duration = Duration::from_millis(20);
/// How long `--up` waits for an answer.
pub const DOCTOR_SILENCE: Duration = Duration::from_secs(4);
