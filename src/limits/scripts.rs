//! Shares of the workers that run functions of design documents.

use std::time::Duration;

/// Calls that wait for a worker, of all databases; more are told to come back.
pub const QUEUE: usize = 1024;
/// Calls of one database that wait: the functions of one that never return leave room for those of others.
pub const QUEUE_OF_DATABASE: usize = 256;
/// Workers above [`super::SCRIPT_WORKERS`] that are kept for databases that have nothing running, for validation and
/// for those that have used little: one is enough, because the one that has it is no such database while it runs.
pub const WORKERS_KEPT: usize = 1;
/// After this time, time used on workers counts half: twice the time limit of a function.
pub const USE_HALVES: Duration = Duration::from_secs(10);
/// Time used on workers lately up to which a database has used little.
pub const USE_LITTLE: Duration = Duration::from_secs(1);
/// Time used below which nothing is remembered of a database.
pub const USE_NOTHING: Duration = Duration::from_millis(1);
/// How long a design document one of whose functions was stopped for time stands behind others.
pub const SLOW_FOR: Duration = Duration::from_secs(60);
/// Such design documents that are remembered: all that can be made in that time, and more.
pub const SLOW_PROGRAMS: usize = 1000;
