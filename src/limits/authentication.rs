//! Limits of accounts, sessions and logins.

use std::time::Duration;

/// Pause before the users database, which could not be read or written, is looked at again for its design document; on
/// a node that follows CouchDB also the pause before a new one gets it.
pub const USERS_DESIGN_PAUSE: Duration = Duration::from_secs(5);
/// PBKDF2 rounds of new password hashes (`chttpd_auth/iterations`); the number CouchDB 3.5 uses.
pub const PASSWORD_ITERATIONS: u32 = 600_000;
/// PBKDF2 rounds above which a stored hash is not believed: checking it would hold a thread for seconds.
pub const PASSWORD_ITERATIONS_MAX: u32 = 10_000_000;
/// Verified credentials that are remembered, in entries of about 200 bytes; the oldest goes.
pub const VERIFIED_CREDENTIALS_MAX: usize = 4096;
/// Password hashes computed at once, on at most half of the cores, so that wrong passwords take neither the threads nor
/// the processors from readers.
pub const PASSWORD_CHECKS_AT_ONCE: usize = 4;
/// Password checks that may wait for their turn (about 10 s of work); more are told to come back.
pub const PASSWORD_CHECKS_WAITING_MAX: usize = 64;
/// PBKDF2 rounds of a user document that does not name them, as CouchDB reads it.
pub const PASSWORD_ITERATIONS_UNNAMED: u32 = 10_000;
/// Seconds that a session lives without a request (`chttpd_auth/timeout`), as in CouchDB.
pub const SESSION_TIMEOUT_S: u64 = 600;
/// Longest life of a session in seconds, ten years: its end must be a date that headers can hold.
pub const SESSION_TIMEOUT_MAX_S: u64 = 10 * 365 * 86_400;
/// Secrets that are accepted beside the one with which cookies are made (`chttpd_auth/accepted_secrets`): a forged
/// cookie is held against each of them.
pub const ACCEPTED_SECRETS_MAX: usize = 4;
/// Bytes of a secret that one node tells another at most.
pub const SECRET_BYTES_MAX: usize = 1024;
/// Bytes of a step of a rotation of secrets, as JSON.
pub const SECRET_STEP_BYTES: u64 = 16 << 10;
/// Bytes of a session cookie; longer ones are taken for unreadable.
pub const COOKIE_BYTES_MAX: usize = 8192;
/// Failed logins after which a name is locked for an address (`chttpd_auth_lockout/threshold`), as in CouchDB.
pub const LOCKOUT_THRESHOLD: u64 = 5;
/// How long the refusal of one who is locked out is held back, in milliseconds: a client in a loop then costs nothing.
pub const LOCKOUT_PAUSE_MS: u64 = 200;
/// How long failures count, in milliseconds (`chttpd_auth_lockout/max_lifetime`), as in CouchDB.
pub const LOCKOUT_MS: u64 = 300_000;
/// Names and addresses whose failures are counted (`chttpd_auth_lockout/max_objects`), as in CouchDB.
pub const LOCKOUT_ENTRIES_MAX: usize = 10_000;
/// User records that are cached (`chttpd_auth/auth_cache_size`), as in CouchDB.
pub const AUTH_CACHE_ENTRIES: u64 = 50;
/// Most user records that may be cached, each of about 500 bytes.
pub const AUTH_CACHE_ENTRIES_MAX: usize = 100_000;
/// Bytes of a JSON Web Token; longer ones are taken for unreadable.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Verified tokens that are remembered, each of about 100 bytes; the oldest goes.
pub const VERIFIED_TOKENS_MAX: usize = 4096;
/// Keys of a published set (`jwt_auth/jwks_url`) that are read: providers have a handful.
pub const JWKS_KEYS_MAX: usize = 256;
/// Bytes of a published key set.
pub const JWKS_BYTES_MAX: usize = 1 << 20;
/// Age of a key set after which it is fetched again (`jwt_auth/jwks_max_age`), in seconds: a withdrawn key counts no
/// longer than that.
pub const JWKS_MAX_AGE_S: u64 = 3_600;
/// A provider is asked at most this often, however many tokens name keys that it does not have.
pub const JWKS_PAUSE: Duration = Duration::from_secs(10);
/// How long a key set serves while its provider cannot be reached.
pub const JWKS_STALE: Duration = Duration::from_secs(86_400);
/// Longest silence of a provider: requests with tokens wait for it.
pub const JWKS_SILENCE: Duration = Duration::from_secs(5);
/// Bytes of a login by form or JSON.
pub const LOGIN_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a base64 Basic credential; longer ones are taken for unreadable.
pub const BASIC_CREDENTIAL_BYTES_MAX: usize = 8192;

/// Pause of a task that follows a database's changes, after it failed or found no database.
pub const FOLLOWER_PAUSE: Duration = Duration::from_secs(1);
