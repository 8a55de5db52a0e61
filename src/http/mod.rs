//! Bytes to typed requests, answers to bytes. No decisions are taken here.
//!
//! `server` accepts connections, `answer` checks what holds for all, `route` names the endpoint, `request` and `query`
//! read, a handler in `handle` calls one layer down, `response` and `problem` print. Only `problem` knows which error
//! has which status.

mod answer;
pub mod bodies;
pub mod body;
pub mod context;
mod cors;
pub mod forward;
mod forwarded;
pub mod handle;
mod idle;
pub mod json_meter;
mod jsonp;
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
pub mod stats;
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
mod tests;
