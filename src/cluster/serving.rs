//! The answering side of a link: it collects bodies within a budget, runs handlers, and sends their answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::Handlers;
use super::api::{CallError, Class, Handler, NodeName, Service};
use super::counters::Counters;
use super::line::{Line, Side};
use super::packet::Packet;
use super::stream::{Reply, Sink, Window, message_bytes};
use crate::limits;
use crate::world::memory::{Memory, Share};
use crate::world::{BoxFuture, Instant};

/// The answering side. Cheap to clone.
#[derive(Clone)]
pub(super) struct Serving(Arc<Inner>);

struct Inner {
    line: Arc<Line>,
    peer: NodeName,
    handlers: Arc<Handlers>,
    counters: Arc<Counters>,
    // A blocking lock: held for map operations only, never across an await.
    streams: Mutex<BTreeMap<u32, State>>,
    /// Of large bodies.
    memory: Memory,
    /// Running handlers, including those whose caller is gone.
    running: AtomicUsize,
}

enum State {
    /// The body is not whole.
    Filling(Filling),
    /// The handler was started.
    Running(Window),
}

struct Filling {
    handler: Arc<dyn Handler>,
    class: Class,
    deadline: Option<Instant>,
    total: usize,
    /// Bytes that the caller may send so far.
    granted: usize,
    body: BytesMut,
    held: Option<Share>,
}

impl Serving {
    pub(super) fn new(
        line: &Arc<Line>,
        peer: &NodeName,
        handlers: &Arc<Handlers>,
        counters: &Arc<Counters>,
        memory: &Memory,
    ) -> Serving {
        Serving(Arc::new(Inner {
            line: Arc::clone(line),
            peer: peer.clone(),
            handlers: Arc::clone(handlers),
            counters: Arc::clone(counters),
            streams: Mutex::default(),
            memory: memory.clone(),
            running: AtomicUsize::new(0),
        }))
    }

    /// What large bodies of all links share.
    pub(super) fn memory() -> Memory {
        let (bytes, unit) = (limits::CLUSTER_BODIES_BYTES, limits::CLUSTER_CHUNK_BYTES);
        Memory::between_nodes("memory of bodies of calls", bytes, unit)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<u32, State>> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, stream: u32, class: Class, why: String) {
        self.0.line.queues.push_end(class, Packet::Refuse { stream, why });
    }

    fn opened(&self, stream: u32, call: (u8, u8, u64, u64), chunk: Bytes) -> Result<(), String> {
        let (service, class, deadline_ms, total) = call;
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        if total > message_bytes() || chunk.len() > total || self.streams().contains_key(&stream) {
            return Err("a call that cannot be".to_owned());
        }
        let Some(class) = Class::of(class) else {
            self.refuse(stream, Class::Foreground, format!("this node knows no class {class}"));
            return Ok(());
        };
        let Some(handler) = Service::of(service).and_then(|service| self.0.handlers.get(service)) else {
            self.refuse(stream, class, format!("this node has no service {service}"));
            return Ok(());
        };
        let streams = self.streams().len().max(self.0.running.load(Ordering::Relaxed));
        if streams >= limits::CLUSTER_HANDLERS_PER_LINK {
            self.refuse(stream, class, "too many calls at once".to_owned());
            return Ok(());
        }
        let now = self.0.line.env.now();
        let deadline = (deadline_ms > 0).then(|| Instant(now.0.saturating_add(Duration::from_millis(deadline_ms))));
        let granted = limits::CLUSTER_BODY_BYTES;
        let body = BytesMut::with_capacity(total.min(granted));
        let filling = Filling { handler, class, deadline, total, granted, body, held: None };
        if chunk.len() == total {
            self.run(stream, filling, chunk);
            return Ok(());
        }
        self.streams().insert(stream, State::Filling(filling));
        if total > granted {
            self.grant(stream, total);
        }
        self.filled(stream, chunk)
    }

    /// Lets the caller send the rest of a large body once there is memory for it.
    fn grant(&self, stream: u32, total: usize) {
        let this = self.clone();
        self.0.line.env.spawn(async move {
            let held = this.0.memory.take(total).await;
            let mut streams = this.streams();
            // The caller may be gone by now.
            let Some(State::Filling(filling)) = streams.get_mut(&stream) else { return };
            let bytes = (total - filling.granted) as u64;
            filling.granted = total;
            // At once: to grow step by step would take twice as much for a moment.
            filling.body.reserve(total - filling.body.len());
            filling.held = Some(held);
            this.0.line.queues.push_urgent(Packet::Credit { stream, bytes });
        });
    }

    fn filled(&self, stream: u32, chunk: Bytes) -> Result<(), String> {
        let mut streams = self.streams();
        let filling = match streams.get_mut(&stream) {
            Some(State::Filling(filling)) => filling,
            // Refused, or abandoned by its caller.
            None => return Ok(()),
            Some(State::Running(_)) => return Err("a body that goes on behind its end".to_owned()),
        };
        if filling.body.len() + chunk.len() > filling.total.min(filling.granted) {
            return Err("a body beyond its credit".to_owned());
        }
        filling.body.extend_from_slice(&chunk);
        if filling.body.len() < filling.total {
            return Ok(());
        }
        let Some(State::Filling(mut filling)) = streams.remove(&stream) else { return Ok(()) };
        drop(streams);
        let body = filling.body.split().freeze();
        self.run(stream, filling, body);
        Ok(())
    }

    fn run(&self, stream: u32, filling: Filling, body: Bytes) {
        let Filling { handler, class, deadline, held, .. } = filling;
        let env = &self.0.line.env;
        if deadline.is_some_and(|at| at <= env.now()) {
            return self.refuse(stream, class, "the time was over before it began".to_owned());
        }
        self.0.counters.served.fetch_add(1, Ordering::Relaxed);
        let window = Window::new();
        self.streams().insert(stream, State::Running(window.clone()));
        let sink = Answer { serving: self.clone(), stream, class };
        let reply = Reply::new(env, Box::new(sink), window, deadline);
        self.0.running.fetch_add(1, Ordering::Relaxed);
        let place = Running(self.clone());
        let work = handler.handle(self.0.peer.clone(), body, reply);
        env.spawn(async move {
            work.await;
            drop((place, held));
        });
    }
}

/// Counts a handler at work.
struct Running(Serving);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Side for Serving {
    fn take(&self, packet: Packet) -> Result<(), String> {
        match packet {
            Packet::Open { stream, service, class, deadline_ms, total, chunk } => {
                self.opened(stream, (service, class, deadline_ms, total), chunk)
            }
            Packet::Body { stream, chunk } => self.filled(stream, chunk),
            Packet::Credit { stream, bytes } => {
                let streams = self.streams();
                let Some(State::Running(window)) = streams.get(&stream) else { return Ok(()) };
                let fits = window.give(usize::try_from(bytes).unwrap_or(usize::MAX));
                if fits { Ok(()) } else { Err("credit that was never taken".to_owned()) }
            }
            Packet::Cancel { stream } => {
                if let Some(State::Running(window)) = self.streams().remove(&stream) {
                    window.close();
                }
                Ok(())
            }
            other => Err(format!("{other:?} to the answering side").chars().take(80).collect()),
        }
    }

    fn ended(&self, _why: &str) {
        for state in std::mem::take(&mut *self.streams()).into_values() {
            if let State::Running(window) = state {
                window.close();
            }
        }
    }
}

/// The way of an answer back over the link.
struct Answer {
    serving: Serving,
    stream: u32,
    class: Class,
}

impl Sink for Answer {
    fn chunk(&self, chunk: Bytes, last: bool) -> BoxFuture<'_, bool> {
        let packet = Packet::Chunk { stream: self.stream, last, chunk };
        Box::pin(self.serving.0.line.queues.push(self.class, packet))
    }

    fn end(&self, end: Result<(), CallError>) {
        if self.serving.streams().remove(&self.stream).is_none() {
            return;
        }
        let stream = self.stream;
        let packet = match end {
            Ok(()) => Packet::Finish { stream },
            Err(CallError::Refused(why)) => Packet::Refuse { stream, why: short(why) },
            Err(CallError::Unknown(why)) => Packet::Lost { stream, why: short(why) },
            Err(CallError::Down) => Packet::Lost { stream, why: String::new() },
        };
        self.serving.0.line.queues.push_end(self.class, packet);
    }
}

/// A reason that fits into a packet.
fn short(why: String) -> String {
    if why.len() <= limits::CLUSTER_REASON_CHARS {
        why
    } else {
        why.chars().take(limits::CLUSTER_REASON_CHARS).collect()
    }
}
