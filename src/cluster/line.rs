//! One connection after its handshake: a writer, a reader, and a watch for signs of life.
//!
//! Both ends of a link run this code. A [`Side`] decides what packets mean: the calling side (`link.rs`) or the
//! answering side (`serving.rs`). Promises: the connection ends when the other node was silent for `suspect`, sends
//! what the protocol forbids, or closes it; every stream on the connection is told the reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::watch;

use super::counters::Counters;
use super::frame::{Opener, Sealer};
use super::handshake::Wire;
use super::packet::Packet;
use super::queue::{Outbox, Queues};
use crate::limits;
use crate::world::{BoxStream, Env};

/// What the packets of a line mean.
pub(super) trait Side: Send + Sync {
    /// Takes one packet; must not wait. An error ends the line.
    fn take(&self, packet: Packet) -> Result<(), String>;
    /// The line has ended.
    fn ended(&self, why: &str);
}

/// How patient a line is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Interval of signs of life.
    pub heartbeat: Duration,
    /// Silence after which the other side counts as dead.
    pub suspect: Duration,
}

/// The state of a line, for all who use it.
pub(super) struct Line {
    pub env: Env,
    pub queues: Queues,
    ended: watch::Sender<Option<Arc<str>>>,
    /// When the last packet came, in milliseconds of the monotonic clock.
    heard_ms: AtomicU64,
}

impl Line {
    pub(super) fn new(env: &Env, queues: Queues) -> Line {
        let ended = watch::Sender::new(None);
        Line { env: env.clone(), queues, ended, heard_ms: AtomicU64::new(now_ms(env)) }
    }

    /// Ends the line; the first reason counts.
    pub(super) fn end(&self, why: &str) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(why.into());
            }
            first
        });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits for the end and answers its reason.
    pub(super) async fn ended(&self) -> Arc<str> {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => Arc::default(),
        }
    }
}

fn now_ms(env: &Env) -> u64 {
    u64::try_from(env.now().0.as_millis()).unwrap_or(u64::MAX)
}

/// Runs a line to its end. `pings`: whether this side asks for signs of life.
pub(super) async fn drive(
    line: &Arc<Line>,
    wire: Wire,
    outbox: Outbox,
    side: &dyn Side,
    (timing, pings): (Timing, bool),
    counters: &Arc<Counters>,
) {
    let Wire { stream, buffer, sealer, opener } = wire;
    let (read, write) = split(stream);
    let writer = line.env.spawn({
        let (line, counters) = (Arc::clone(line), Arc::clone(counters));
        async move {
            let failed = writing(write, outbox, sealer, (&line.env, &counters)).await;
            line.end(&failed);
        }
    });
    let why = tokio::select! {
        biased;
        why = line.ended() => why.to_string(),
        why = watching(line, timing, pings) => {
            counters.suspected.fetch_add(1, Ordering::Relaxed);
            why
        }
        why = reading(read, buffer, opener, line, side, counters) => why,
    };
    line.end(&why);
    writer.abort();
    side.ended(&why);
}

async fn writing(
    mut write: WriteHalf<BoxStream>,
    mut outbox: Outbox,
    mut sealer: Sealer,
    (env, counters): (&Env, &Counters),
) -> String {
    let (mut out, mut head) = (Vec::new(), Vec::new());
    let mut is_behind = false;
    while let Some(first) = outbox.next().await {
        // The one that queued it woke this task before all others: those that are about to queue something go first, so
        // that one write takes all of it. Where more is queued than a write takes there is nothing to wait for.
        if !is_behind {
            env.others_first().await;
        }
        let mut next = Some(first);
        while let Some(packet) = next {
            head.clear();
            let piece = packet.encode(&mut head);
            sealer.seal(&head, &piece, &mut out);
            next = if out.len() < limits::CLUSTER_WRITE_BYTES { outbox.try_next() } else { None };
        }
        counters.bytes_out.fetch_add(out.len() as u64, Ordering::Relaxed);
        let written = async {
            write.write_all(&out).await?;
            write.flush().await
        };
        if let Err(error) = written.await {
            return format!("the connection broke: {error}");
        }
        is_behind = out.len() >= limits::CLUSTER_WRITE_BYTES;
        out.clear();
    }
    "closed here".to_owned()
}

async fn reading(
    mut read: ReadHalf<BoxStream>,
    mut buffer: BytesMut,
    mut opener: Opener,
    line: &Line,
    side: &dyn Side,
    counters: &Counters,
) -> String {
    loop {
        loop {
            let payload = match opener.open(&mut buffer) {
                Ok(Some(payload)) => payload,
                Ok(None) => break,
                Err(error) => return counters.bad_frame(&error),
            };
            line.heard_ms.store(now_ms(&line.env), Ordering::Relaxed);
            let taken = match Packet::decode(&payload) {
                Ok(Packet::Ping) => {
                    line.queues.push_urgent(Packet::Pong);
                    Ok(())
                }
                Ok(Packet::Pong) => Ok(()),
                Ok(packet) => side.take(packet),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = taken {
                counters.bad_packets.fetch_add(1, Ordering::Relaxed);
                return format!("it sent what makes no sense: {why}");
            }
        }
        // Small frames share a buffer.
        if buffer.capacity() - buffer.len() < limits::CLUSTER_READ_BYTES {
            buffer.reserve(limits::CLUSTER_CHUNK_BYTES);
        }
        match read.read_buf(&mut buffer).await {
            Ok(0) => return "the other side closed the connection".to_owned(),
            Ok(n) => counters.bytes_in.fetch_add(n as u64, Ordering::Relaxed),
            Err(error) => return format!("the connection broke: {error}"),
        };
    }
}

/// Ends when the other side was silent for too long.
async fn watching(line: &Line, timing: Timing, pings: bool) -> String {
    let mut last_ms = now_ms(&line.env);
    let beat_ms = timing.heartbeat.as_millis() as u64;
    loop {
        if pings {
            line.queues.push_urgent(Packet::Ping);
        }
        line.env.sleep(timing.heartbeat).await;
        let now_ms = now_ms(&line.env);
        // This node itself was stopped or starved: what the other side sent meanwhile is not read yet.
        let overslept = now_ms.saturating_sub(last_ms) > 2 * beat_ms;
        last_ms = now_ms;
        let silence_ms = now_ms.saturating_sub(line.heard_ms.load(Ordering::Relaxed));
        if !overslept && u128::from(silence_ms) >= timing.suspect.as_millis() {
            return format!("no sign of life for {silence_ms} ms");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_util::future::join;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;
    use crate::cluster::api::Class;
    use crate::cluster::queue::queues;

    /// Counts the writes to it; nothing comes from it.
    struct Sink(Arc<AtomicU64>);

    impl AsyncRead for Sink {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Sink {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_tasks_queue_one_after_the_other_goes_out_in_one_write() {
        let env = crate::world::tokio_host::env(tokio::runtime::Handle::current());
        let (written, counters) = (Arc::new(AtomicU64::new(0)), Counters::default());
        let (_, write) = split(Box::new(Sink(Arc::clone(&written))) as BoxStream);
        let (queues, outbox) = queues();
        let queueing = async {
            assert!(queues.push(Class::Foreground, Packet::Finish { stream: 1 }).await);
            // The writer has its turn.
            tokio::task::yield_now().await;
            assert!(queues.push(Class::Foreground, Packet::Finish { stream: 2 }).await);
            drop(queues);
        };
        let (why, ()) = join(writing(write, outbox, Sealer::new([7; 32]), (&env, &counters)), queueing).await;
        assert_eq!((why.as_str(), written.load(Ordering::SeqCst)), ("closed here", 1));
    }
}
