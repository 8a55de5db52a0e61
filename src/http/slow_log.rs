//! The log of slow requests: one line for each request that took longer than `log/slow_request_ms` until its last byte
//! was made, with what it cost.
//!
//! A line is written when the answer ends, or its client goes away. Feeds that wait for changes are not slow, and
//! have no line.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use futures_util::Stream;

use super::Context;
use super::request_log::RequestLine;
use crate::config::Config;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::world::cost::{self, Cost, Spent};
use crate::world::{Env, Instant};

/// What a line tells of a request, and what it has cost so far. The line is written when this is dropped.
pub(super) struct Slow(Option<Watched>);

struct Watched {
    env: Env,
    config: Config,
    cost: Arc<Cost>,
    began: Instant,
    endpoint: &'static str,
    method: String,
    path: String,
    status: u16,
    user: Option<String>,
    id: String,
}

impl Slow {
    /// The watch over a request. A feed is not watched.
    pub fn of(
        context: &Context,
        line: &RequestLine<'_>,
        endpoint: &'static str,
        (began, cost): (Instant, Arc<Cost>),
    ) -> Slow {
        if endpoint == "feed" {
            return Slow(None);
        }
        Slow(Some(Watched {
            env: context.env.clone(),
            config: context.config.clone(),
            cost,
            began,
            endpoint,
            method: line.method.to_owned(),
            path: line.path.to_owned(),
            status: line.status,
            user: line.user.clone(),
            id: line.id.to_owned(),
        }))
    }

    /// Watches over the pieces of an answer.
    pub fn watch<S>(self, chunks: S) -> Pieces<S> {
        Pieces { chunks, slow: self }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let Some(watched) = &self.0 else { return };
        let limit_ms = watched.config.u64("log", "slow_request_ms", limits::SLOW_LOG_MS);
        let took = watched.env.now().since(watched.began);
        if limit_ms == 0 || took.as_millis() < u128::from(limit_ms) {
            return;
        }
        watched.env.metrics().count(Counter::SlowRequests);
        let Spent { ranges, rows, steps, in_steps, calls, in_calls, bytes } = watched.cost.spent();
        let Watched { endpoint, method, path, status, user, id, .. } = watched;
        let ms = took.as_secs_f64() * 1e3;
        let (steps_ms, calls_ms) = (in_steps.as_secs_f64() * 1e3, in_calls.as_secs_f64() * 1e3);
        let user = user.as_deref().unwrap_or("-");
        tracing::warn!(
            target: "slow_request", method, path, status, endpoint, ms, ranges, rows, steps, steps_ms, calls, calls_ms,
            bytes, user, id, "slow request"
        );
    }
}

/// See [`Slow::watch`].
pub(super) struct Pieces<S> {
    chunks: S,
    slow: Slow,
}

impl<S, E> Stream for Pieces<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    type Item = Result<Bytes, E>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let Some(cost) = self.slow.0.as_ref().map(|watched| Arc::clone(&watched.cost)) else {
            return Pin::new(&mut self.chunks).poll_next(task);
        };
        let next = cost::counted_step(&cost, || Pin::new(&mut self.chunks).poll_next(task));
        if let Poll::Ready(Some(Ok(bytes))) = &next {
            cost.answered(bytes.len());
        }
        next
    }
}
