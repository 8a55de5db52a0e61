//! Idle connections: when the number of connections reaches its limit, the one that has been idle for longest is
//! closed, those of clients that never logged in first.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;

use crate::limits;
use crate::world::lock;
use crate::world::sync::{Mutex, MutexGuard};

/// The idle connections of a server.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Whether one was to close and none was idle: the next that would be closes.
    wanted: bool,
    /// By whether the client logged in, then by the time since which it is idle.
    idle: BTreeMap<(bool, u64), Arc<Notify>>,
}

impl Idle {
    /// Tells the connection that has been idle for longest to close. False: none is idle, and the first that is done
    /// with its request closes.
    pub fn close_one(&self) -> bool {
        let mut table = lock(&self.0);
        let oldest = table.idle.pop_first();
        table.wanted |= oldest.is_none();
        oldest.inspect(|(_, close)| close.notify_one()).is_some()
    }
}

/// One connection, idle from the start.
#[derive(Debug)]
pub(super) struct Connection {
    idle: Arc<Idle>,
    close: Arc<Notify>,
    logged_in: AtomicBool,
    had_request: AtomicBool,
    is_working: AtomicBool,
    /// Its place in the table; `None` while there is a request.
    at: Mutex<Option<(bool, u64)>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Connection {
    pub fn new(idle: &Arc<Idle>) -> Arc<Connection> {
        let (idle, close) = (Arc::clone(idle), Arc::default());
        let [logged_in, had_request, is_working] = [(); 3].map(|()| AtomicBool::default());
        let connection = Connection { idle, close, logged_in, had_request, is_working, at: Mutex::default() };
        connection.enter(lock(&connection.idle.0));
        Arc::new(connection)
    }

    /// Waits until it is to be closed.
    pub async fn told_to_close(&self) {
        self.close.notified().await;
    }

    /// Whether there was no request on it yet.
    pub fn is_fresh(&self) -> bool {
        !self.had_request.load(Ordering::Relaxed)
    }

    /// How long it may take to close: none where there never was a request, long where one began meanwhile.
    pub fn patience(&self) -> Duration {
        match (self.had_request.load(Ordering::Relaxed), self.is_working.load(Ordering::Relaxed)) {
            (false, _) => Duration::ZERO,
            (true, false) => Duration::from_millis(limits::HTTP_SKIP_MS),
            (true, true) => limits::HTTP_LAST_REQUEST,
        }
    }

    /// Its client named itself.
    pub fn log_in(&self) {
        self.logged_in.store(true, Ordering::Relaxed);
    }

    /// A request begins; what is answered lasts until the guard is dropped.
    pub fn work(self: &Arc<Self>) -> Working {
        self.had_request.store(true, Ordering::Relaxed);
        self.is_working.store(true, Ordering::Relaxed);
        self.leave();
        Working(Arc::clone(self))
    }

    fn leave(&self) {
        let Some(at) = lock(&self.at).take() else { return };
        let mut table = lock(&self.idle.0);
        if table.idle.remove(&at).is_none() && self.is_working.load(Ordering::Relaxed) {
            // It was told to close and answers first: another one may be done earlier.
            table.wanted = true;
        }
    }

    fn rest(&self) {
        self.is_working.store(false, Ordering::Relaxed);
        let mut table = lock(&self.idle.0);
        match std::mem::take(&mut table.wanted) {
            true => self.close.notify_one(),
            false => self.enter(table),
        }
    }

    fn enter(&self, mut table: MutexGuard<'_, Table>) {
        let at = (self.logged_in.load(Ordering::Relaxed), table.next);
        table.next += 1;
        table.idle.insert(at, Arc::clone(&self.close));
        drop(table);
        *lock(&self.at) = Some(at);
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Working(Arc<Connection>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.rest();
    }
}

impl Working {
    /// The body of the answer, at whose end the connection is idle again.
    pub fn until_sent(self, body: Body) -> Body {
        Body::new(Sent { body, _working: self })
    }
}

struct Sent {
    body: Body,
    _working: Working,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::{Connection, Idle};

    #[test]
    fn the_longest_idle_stranger_goes_first_and_requests_are_left_alone() {
        let idle = Arc::new(Idle::default());
        let [old, user, busy, young] = [(); 4].map(|()| Connection::new(&idle));
        user.log_in();
        drop(user.work());
        let working = busy.work();
        let told = |connection: &Connection| connection.told_to_close().now_or_never().is_some();
        assert!(idle.close_one() && told(&old));
        assert!(idle.close_one() && told(&young));
        assert!(idle.close_one() && told(&user));
        assert!(!idle.close_one() && !told(&busy));
        drop(working);
        assert!(told(&busy), "a place was wanted");
        let next = Connection::new(&idle);
        assert!(!told(&next) && idle.close_one() && told(&next));
        drop((old, user, busy, next));
        assert!(!idle.close_one());
    }
}
