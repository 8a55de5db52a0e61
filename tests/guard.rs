//! What guards a node and what it tells of itself, over real sockets: TLS, keys, user databases, numbers, secrets.

mod served;

#[path = "guard/jwks.rs"]
mod jwks;
#[path = "guard/metrics.rs"]
mod metrics;
#[path = "guard/peruser.rs"]
mod peruser;
#[path = "guard/secrets.rs"]
mod secrets;
#[path = "guard/sessions.rs"]
mod sessions;
#[path = "guard/tls.rs"]
mod tls;
