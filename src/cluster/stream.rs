//! The two ends of one call: [`Reply`] sends messages, [`Incoming`] receives them, with credit in between.
//!
//! The same ends serve calls over a link and calls of a node to itself. A sender has at most
//! `limits::CLUSTER_STREAM_BYTES` under way that the receiver has not consumed; more waits. Promises: messages arrive
//! whole and in order; a stream that ends without `finish` or `fail` ends in [`CallError::Unknown`]; dropping
//! [`Incoming`] tells the sender.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc, watch};

use super::api::CallError;
use crate::limits;
use crate::wire::message::Message;
use crate::world::buggify::capped;
use crate::world::{Env, Instant, is_panicking};

/// Bytes of one message at most.
pub(super) fn message_bytes() -> usize {
    capped("cluster: bytes of a message", limits::CLUSTER_MESSAGE_BYTES)
}

/// What the taker's end is told.
#[derive(Debug)]
pub(super) enum Event {
    /// A piece of a message.
    Chunk { bytes: Bytes, last: bool },
    /// No more follows; `Ok` when the sender had said all.
    End(Result<(), CallError>),
}

/// The way of pieces from a sender to its taker: a link, or this node itself.
pub(super) trait Sink: Send + Sync {
    /// Hands over one piece, in order; false when the taker is gone.
    fn chunk(&self, bytes: Bytes, last: bool) -> crate::world::BoxFuture<'_, bool>;
    /// Ends the stream; must not wait.
    fn end(&self, end: Result<(), CallError>);
}

/// What the taker's end tells back.
pub(super) trait Back: Send + Sync {
    /// So many bytes were consumed.
    fn consumed(&self, bytes: usize);
    /// Nobody takes any more.
    fn cancel(&self);
}

/// Bytes that may be sent, and whether anybody wants them.
#[derive(Clone, Debug)]
pub(super) struct Window {
    credit: Arc<Semaphore>,
    gone: watch::Sender<bool>,
}

impl Window {
    pub(super) fn new() -> Window {
        Window { credit: Arc::new(Semaphore::new(limits::CLUSTER_STREAM_BYTES)), gone: watch::Sender::new(false) }
    }

    /// Gives credit back; false when that is more than was ever taken, which no honest peer does.
    pub(super) fn give(&self, bytes: usize) -> bool {
        let fits = self.credit.available_permits().saturating_add(bytes) <= limits::CLUSTER_STREAM_BYTES;
        if fits {
            self.credit.add_permits(bytes);
        }
        fits
    }

    pub(super) fn close(&self) {
        self.gone.send_replace(true);
    }

    pub(super) async fn closed(&self) {
        // An error means that the sender of the flag is gone; this window holds one.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Waits for credit; false when the taker went away.
    pub(super) async fn take(&self, bytes: usize) -> bool {
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        if *self.gone.borrow() {
            return false;
        }
        if let Ok(permit) = self.credit.try_acquire_many(wanted) {
            permit.forget();
            return true;
        }
        tokio::select! {
            biased;
            () = self.closed() => false,
            taken = self.credit.acquire_many(wanted) => match taken {
                Ok(permit) => {
                    permit.forget();
                    true
                }
                Err(_) => false,
            },
        }
    }
}

/// The caller went away: what is sent reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The answering end of a call. Dropping it unfinished leaves the caller with [`CallError::Unknown`].
pub struct Reply {
    env: Env,
    sink: Option<Box<dyn Sink>>,
    window: Window,
    deadline: Option<Instant>,
    /// A message was begun and not yet sent whole.
    midway: bool,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

impl Reply {
    pub(super) fn new(env: &Env, sink: Box<dyn Sink>, window: Window, deadline: Option<Instant>) -> Reply {
        Reply { env: env.clone(), sink: Some(sink), window, deadline, midway: false }
    }

    /// Sends one message of the answer; waits while the caller has enough to take. A send that is dropped midway spoils
    /// the answer: it can only end as unknown.
    ///
    /// # Errors
    /// [`Gone`] when the caller went away, or the answer is spoilt: also by a message above
    /// `limits::CLUSTER_MESSAGE_BYTES`, of which the caller is told at once.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Gone> {
        let message = message.into();
        if message.len() > message_bytes() {
            let why = format!("an answer of {} bytes is beyond the largest message", message.len());
            tracing::error!("{why}");
            self.end(Err(CallError::Unknown(why)));
            return Err(Gone);
        }
        let Some(sink) = self.sink.as_ref().filter(|_| !self.midway) else { return Err(Gone) };
        self.midway = true;
        let mut rest = message;
        loop {
            let piece = rest.split_to(limits::CLUSTER_CHUNK_BYTES);
            let last = rest.is_empty();
            if !self.window.take(piece.len()).await || !sink.chunk(piece, last).await {
                return Err(Gone);
            }
            if last {
                self.midway = false;
                return Ok(());
            }
        }
    }

    /// Ends the answer: all was said.
    pub fn finish(mut self) {
        self.end(Ok(()));
    }

    /// Ends the answer with a refusal: the caller sees [`CallError::Refused`].
    pub fn fail(mut self, why: impl Into<String>) {
        self.end(Err(CallError::Refused(why.into())));
    }

    /// Sends one message and ends the answer.
    pub async fn answer(mut self, message: impl Into<Message>) {
        if self.send(message).await.is_ok() {
            self.finish();
        }
    }

    /// The time that the caller still waits; [`Duration::MAX`] when it set no deadline.
    pub fn deadline(&self) -> Duration {
        self.deadline.map_or(Duration::MAX, |at| at.since(self.env.now()))
    }

    /// Completes once nobody waits for the answer any more.
    pub async fn gone(&self) {
        self.window.closed().await;
    }

    fn end(&mut self, end: Result<(), CallError>) {
        if let Some(sink) = self.sink.take() {
            let spoilt = || Err(CallError::Unknown("the answer broke off within a message".to_owned()));
            sink.end(if self.midway { spoilt() } else { end });
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let why = if is_panicking() { "the handler panicked" } else { "the handler ended without an answer" };
        self.end(Err(CallError::Unknown(why.to_owned())));
    }
}

/// The messages of an answer.
pub struct Incoming {
    events: mpsc::UnboundedReceiver<Event>,
    back: Box<dyn Back>,
    partial: BytesMut,
    /// Bytes of the next message, as far as known.
    expected_bytes: usize,
    ended: bool,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Incoming")
    }
}

impl Incoming {
    pub(super) fn new(events: mpsc::UnboundedReceiver<Event>, back: Box<dyn Back>) -> Incoming {
        Incoming { events, back, partial: BytesMut::new(), expected_bytes: 0, ended: false }
    }

    /// The next message is expected to have so many bytes. Room for them is made once its first piece is there, and
    /// taken as they come: a buffer that grows is in memory twice each time.
    pub fn make_room_for(&mut self, bytes: usize) {
        self.expected_bytes = bytes.min(message_bytes());
    }

    /// The next message; `None` when all was said. May be dropped and called again without loss.
    ///
    /// # Errors
    /// [`CallError`]; nothing more comes then.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        if self.ended {
            return Ok(None);
        }
        loop {
            match self.events.recv().await {
                Some(Event::Chunk { bytes, last }) => {
                    self.back.consumed(bytes.len());
                    if self.partial.len() + bytes.len() > message_bytes() {
                        return self.end(Err(CallError::Unknown("an answer beyond the largest message".to_owned())));
                    }
                    if last && self.partial.is_empty() {
                        return Ok(Some(bytes));
                    }
                    if self.expected_bytes > 0 {
                        // With what stands around the content.
                        let around = limits::CLUSTER_CHUNK_BYTES;
                        self.partial.reserve(std::mem::take(&mut self.expected_bytes) + around);
                    }
                    self.partial.extend_from_slice(&bytes);
                    if last {
                        return Ok(Some(self.partial.split().freeze()));
                    }
                }
                Some(Event::End(end)) => {
                    self.ended = true;
                    return end.map(|()| None);
                }
                None => return self.end(Err(CallError::Unknown("the connection was lost".to_owned()))),
            }
        }
    }

    fn end(&mut self, end: Result<Option<Bytes>, CallError>) -> Result<Option<Bytes>, CallError> {
        self.ended = true;
        self.back.cancel();
        end
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.ended {
            self.back.cancel();
        }
    }
}

/// Both ends of a call of a node to itself.
pub(super) fn local(env: &Env, deadline: Option<Instant>) -> (Reply, Incoming) {
    let (sender, events) = mpsc::unbounded_channel();
    let window = Window::new();
    let reply = Reply::new(env, Box::new(Local(sender)), window.clone(), deadline);
    (reply, Incoming::new(events, Box::new(window)))
}

struct Local(mpsc::UnboundedSender<Event>);

impl Sink for Local {
    fn chunk(&self, bytes: Bytes, last: bool) -> crate::world::BoxFuture<'_, bool> {
        Box::pin(async move { self.0.send(Event::Chunk { bytes, last }).is_ok() })
    }

    fn end(&self, end: Result<(), CallError>) {
        // Fails when nobody listens any more.
        let _ = self.0.send(Event::End(end));
    }
}

impl Back for Window {
    fn consumed(&self, bytes: usize) {
        assert!(self.give(bytes), "no more is consumed than was sent");
    }

    fn cancel(&self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn env() -> Env {
        crate::world::tokio_host::env(tokio::runtime::Handle::current())
    }

    #[tokio::test]
    async fn messages_of_any_size_arrive_whole_and_in_order() {
        let (mut reply, mut incoming) = local(&env(), None);
        let sizes = [0, 1, limits::CLUSTER_CHUNK_BYTES, limits::CLUSTER_STREAM_BYTES + 3];
        let sent = async {
            for size in sizes {
                reply.send(Bytes::from(vec![7; size])).await.unwrap();
            }
            reply.finish();
        };
        let taken = async {
            for size in sizes {
                assert_eq!(incoming.next().await.unwrap().unwrap().len(), size);
            }
            assert_eq!(incoming.next().await, Ok(None));
            assert_eq!(incoming.next().await, Ok(None));
        };
        tokio::join!(sent, taken);
    }

    #[tokio::test]
    async fn a_message_that_is_larger_or_smaller_than_expected_arrives_whole() {
        for expected in [0, 10, limits::CLUSTER_STREAM_BYTES, usize::MAX] {
            let (mut reply, mut incoming) = local(&env(), None);
            incoming.make_room_for(expected);
            let parts = [Bytes::from_static(b"head"), Bytes::from(vec![7; 3 * limits::CLUSTER_CHUNK_BYTES])];
            let whole = parts.concat();
            reply.send(Message::from_iter(parts)).await.unwrap();
            reply.send(Bytes::from_static(b"next")).await.unwrap();
            assert_eq!(incoming.next().await.unwrap().unwrap(), whole);
            assert_eq!(incoming.next().await.unwrap().unwrap(), "next");
        }
    }

    #[tokio::test]
    async fn a_sender_waits_for_its_taker_and_hears_when_it_is_gone() {
        let (mut reply, incoming) = local(&env(), None);
        let large = Bytes::from(vec![0; limits::CLUSTER_STREAM_BYTES + 1]);
        assert!(reply.send(large.clone()).now_or_never().is_none(), "nothing is taken");
        assert!(reply.gone().now_or_never().is_none());
        drop(incoming);
        reply.gone().await;
        assert_eq!(reply.send(large).await, Err(Gone));
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_unknown_and_a_refusal_is_one() {
        let (reply, mut incoming) = local(&env(), None);
        drop(reply);
        assert!(matches!(incoming.next().await, Err(CallError::Unknown(_))));
        let (reply, mut incoming) = local(&env(), None);
        assert_eq!(reply.deadline(), Duration::MAX);
        reply.fail("no");
        assert_eq!(incoming.next().await, Err(CallError::Refused("no".to_owned())));
    }
}
