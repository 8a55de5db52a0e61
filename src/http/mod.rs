//! HTTP: bytes to typed requests, answers to bytes. No decisions are taken here.
//!
//! `server` accepts connections, `answer` makes the checks that hold for all endpoints, `route` names the endpoint,
//! `admission` has the request wait for its turn,
//! `request` and `query` read, a handler in `handle` calls the layer below, `response` and `problem` print. Only
//! `problem` maps errors to statuses.

pub mod admission;
mod answer;
pub mod assets;
pub mod bodies;
pub mod body;
mod by_address;
pub mod context;
mod cors;
pub mod forward;
mod forwarded;
pub mod handle;
mod idle;
pub mod json_meter;
mod jsonp;
mod latency;
mod lenient;
pub mod multipart;
pub mod policy;
pub mod problem;
pub mod query;
pub mod request;
mod request_log;
pub mod response;
pub mod route;
pub mod secure;
pub mod server;
pub mod slow;
mod slow_log;
pub mod stats;
pub mod streams;
pub mod uuid;
mod vhost;
pub mod waiting;

pub use crate::auth::UserCtx;
pub use context::Context;
pub use problem::{Problem, Result};
pub use query::Query;
pub use request::{Request, Verb};
pub use response::{ChunkSink, Reply, ReplyBody};

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod openapi_tests;
#[cfg(test)]
mod problem_tests;
#[cfg(test)]
mod tests;
