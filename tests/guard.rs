//! What guards a node and what it tells of itself, over real sockets: TLS, keys, user databases, numbers, secrets.

mod served;

#[path = "guard/bombs.rs"]
mod bombs;
#[path = "guard/disk.rs"]
mod disk;
#[path = "guard/fair.rs"]
mod fair;
#[path = "guard/jwks.rs"]
mod jwks;
#[path = "guard/memory.rs"]
mod memory;
#[path = "guard/metrics.rs"]
mod metrics;
#[path = "guard/monitoring.rs"]
mod monitoring;
#[path = "guard/node.rs"]
mod node;
#[path = "guard/overload.rs"]
mod overload;
#[path = "guard/page.rs"]
mod page;
#[path = "guard/peruser.rs"]
mod peruser;
#[path = "guard/secrets.rs"]
mod secrets;
#[path = "guard/sessions.rs"]
mod sessions;
#[path = "guard/strange.rs"]
mod strange;
#[path = "guard/tls.rs"]
mod tls;
#[path = "guard/told.rs"]
mod told;
#[path = "guard/whole.rs"]
mod whole;
