//! The calling side of a link: it opens streams, sends bodies within their credit, and delivers pieces of answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::api::{CallError, Class, Service};
use super::line::{Line, Side};
use super::packet::Packet;
use super::stream::{Back, Event, Incoming};
use crate::limits;
use crate::wire::message::Message;
use crate::world::Instant;

/// The calling side. Cheap to clone.
#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    line: Arc<Line>,
    // A blocking lock: held for map operations only, never across an await.
    streams: Mutex<Streams>,
    /// One permit for each call.
    places: Arc<Semaphore>,
    /// Bytes of the largest body that the other side takes.
    largest: usize,
}

#[derive(Default)]
struct Streams {
    last: u32,
    open: BTreeMap<u32, Outgoing>,
}

/// A call that waits for its answer.
struct Outgoing {
    events: mpsc::UnboundedSender<Event>,
    /// Bytes of the body that may be sent.
    upload: Arc<Semaphore>,
    /// Bytes received and not consumed; never more than the credit given.
    unread: usize,
    /// Bytes consumed whose credit was not given back yet.
    owed: usize,
}

impl Link {
    pub(super) fn new(line: &Arc<Line>, largest: usize) -> Link {
        let places = Arc::new(Semaphore::new(limits::CLUSTER_CALLS_PER_LINK));
        Link(Arc::new(Inner { line: Arc::clone(line), streams: Mutex::default(), places, largest }))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.line.has_ended()
    }

    /// Opens a stream and sends the whole body. Dropped or failed midway, the other side never sees the call.
    pub(super) async fn open(
        &self,
        service: Service,
        class: Class,
        mut body: Message,
        deadline: Option<Instant>,
    ) -> Result<Incoming, CallError> {
        let line = &self.0.line;
        if body.len() > self.0.largest {
            return Err(CallError::Refused(format!("a body of {} bytes is beyond the largest message", body.len())));
        }
        let place = match Arc::clone(&self.0.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => tokio::select! {
                biased;
                _ = line.ended() => return Err(CallError::Down),
                place = Arc::clone(&self.0.places).acquire_owned() => place.map_err(|_| CallError::Down)?,
            },
        };
        let (sender, events) = mpsc::unbounded_channel();
        let upload = Arc::new(Semaphore::new(limits::CLUSTER_BODY_BYTES));
        let stream = self.register(sender, &upload).ok_or(CallError::Down)?;
        let ticket = Ticket { link: self.clone(), stream, class, _place: place };
        let total = body.len() as u64;
        let deadline_ms = deadline.map_or(0, |at| at.since(line.env.now()).as_millis().max(1) as u64);
        let chunk = body.split_to(limits::CLUSTER_CHUNK_BYTES);
        take(&upload, chunk.len()).await;
        let open = Packet::Open { stream, service: service as u8, class: class as u8, deadline_ms, total, chunk };
        if !line.queues.push(class, open).await {
            return Err(CallError::Down);
        }
        while !body.is_empty() {
            let chunk = body.split_to(limits::CLUSTER_CHUNK_BYTES);
            if !take(&upload, chunk.len()).await {
                // Refused before it was whole: the answer says why.
                break;
            }
            if !line.queues.push(class, Packet::Body { stream, chunk }).await {
                return Err(CallError::Down);
            }
        }
        Ok(Incoming::new(events, Box::new(ticket)))
    }

    fn register(&self, events: mpsc::UnboundedSender<Event>, upload: &Arc<Semaphore>) -> Option<u32> {
        let mut streams = self.streams();
        if self.0.line.has_ended() {
            return None;
        }
        while streams.open.contains_key(&streams.last) {
            streams.last = streams.last.wrapping_add(1);
        }
        let stream = streams.last;
        streams.last = stream.wrapping_add(1);
        streams.open.insert(stream, Outgoing { events, upload: Arc::clone(upload), unread: 0, owed: 0 });
        Some(stream)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_stream(&self, stream: u32, end: Result<(), CallError>) {
        if let Some(outgoing) = self.streams().open.remove(&stream) {
            outgoing.upload.close();
            // Fails when nobody waits any more.
            let _ = outgoing.events.send(Event::End(end));
        }
    }
}

/// Takes credit for a piece of a body; false when the call has ended already.
async fn take(upload: &Semaphore, bytes: usize) -> bool {
    match upload.acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)).await {
        Ok(permit) => {
            permit.forget();
            true
        }
        Err(_) => false,
    }
}

impl Side for Link {
    fn take(&self, packet: Packet) -> Result<(), String> {
        match packet {
            Packet::Chunk { stream, last, chunk } => {
                let mut streams = self.streams();
                // A stream that is not there was abandoned here while the piece was on its way.
                let Some(outgoing) = streams.open.get_mut(&stream) else { return Ok(()) };
                outgoing.unread += chunk.len();
                if outgoing.unread > limits::CLUSTER_STREAM_BYTES {
                    return Err("an answer beyond its credit".to_owned());
                }
                let _ = outgoing.events.send(Event::Chunk { bytes: chunk, last });
            }
            Packet::Credit { stream, bytes } => {
                if let Some(outgoing) = self.streams().open.get(&stream) {
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                    if bytes > limits::CLUSTER_MESSAGE_BYTES {
                        return Err("credit beyond the largest message".to_owned());
                    }
                    outgoing.upload.add_permits(bytes);
                }
            }
            Packet::Finish { stream } => self.end_stream(stream, Ok(())),
            Packet::Refuse { stream, why } => self.end_stream(stream, Err(CallError::Refused(why))),
            Packet::Lost { stream, why } => self.end_stream(stream, Err(CallError::Unknown(why))),
            other => return Err(format!("{other:?} to the calling side").chars().take(80).collect()),
        }
        Ok(())
    }

    fn ended(&self, why: &str) {
        let open = std::mem::take(&mut self.streams().open);
        for outgoing in open.into_values() {
            outgoing.upload.close();
            let _ = outgoing.events.send(Event::End(Err(CallError::Unknown(why.to_owned()))));
        }
    }
}

/// The place of one call; gives it up when dropped.
struct Ticket {
    link: Link,
    stream: u32,
    class: Class,
    _place: OwnedSemaphorePermit,
}

impl Back for Ticket {
    fn consumed(&self, bytes: usize) {
        let mut streams = self.link.streams();
        let Some(outgoing) = streams.open.get_mut(&self.stream) else { return };
        outgoing.unread -= bytes;
        outgoing.owed += bytes;
        // In lots, so that credit does not cost a packet for each piece.
        if outgoing.owed >= limits::CLUSTER_STREAM_BYTES / 4 {
            let bytes = std::mem::take(&mut outgoing.owed) as u64;
            self.link.0.line.queues.push_urgent(Packet::Credit { stream: self.stream, bytes });
        }
    }

    fn cancel(&self) {
        if self.link.streams().open.remove(&self.stream).is_some() {
            self.link.0.line.queues.push_end(self.class, Packet::Cancel { stream: self.stream });
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel();
    }
}
