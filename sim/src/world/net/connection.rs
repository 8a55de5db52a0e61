//! The state of a connection: two ends and, for each, the bytes that it sends.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

/// What a segment carries.
#[derive(Clone, Debug)]
pub(super) enum Load {
    /// The last message of the opening: the far end may accept.
    Open,
    Data(Bytes),
    /// No more data will follow.
    Finish,
}

/// A segment with its place in the order.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) load: Load,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Opening { tries: u32 },
    Open,
    Failed(io::ErrorKind),
}

/// One end: a socket, and what has arrived for it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) at: SocketAddr,
    pub(super) life: u64,
    /// Held by a process (or waiting to be accepted).
    pub(super) held: bool,
    /// Its machine lost power or the kernel forgot it: whatever arrives is answered by a reset.
    pub(super) gone: bool,
    pub(super) error: Option<io::ErrorKind>,
    pub(super) received: VecDeque<Bytes>,
    pub(super) finished: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// The bytes that one end sends.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) next_number: u64,
    /// Not yet sent, or sent and lost.
    pub(super) queue: BTreeMap<u64, Load>,
    /// When the last segment will be there: order is kept.
    pub(super) last_arrival: Duration,
    pub(super) expected: u64,
    /// Written and not yet credited by the reader.
    pub(super) outstanding: usize,
    /// Read and not yet credited.
    pub(super) uncredited: usize,
    pub(super) finish_sent: bool,
    /// Since when nothing gets through, and how often that was tried.
    pub(super) stalled: Option<(Duration, u32)>,
    pub(super) retry_set: bool,
    /// The same for acknowledgements on the way back.
    pub(super) unacknowledged: Option<(Duration, u32)>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) phase: Phase,
    pub(super) door: u64,
    pub(super) opener: Option<Waker>,
    pub(super) ends: [End; 2],
    pub(super) flows: [Flow; 2],
}

impl End {
    pub(super) fn new(at: SocketAddr, life: u64) -> Self {
        End {
            at,
            life,
            held: true,
            gone: false,
            error: None,
            received: VecDeque::new(),
            finished: false,
            reader: None,
            writer: None,
        }
    }

    pub(super) fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        wake.extend(self.reader.take());
        wake.extend(self.writer.take());
    }
}

impl Connection {
    /// The machines that the data of end `from` travels between.
    pub(super) fn route(&self, from: usize) -> (IpAddr, IpAddr) {
        (self.ends[from].at.ip(), self.ends[1 - from].at.ip())
    }

    pub(super) fn joins(&self, a: IpAddr, b: IpAddr) -> bool {
        self.phase == Phase::Open && [(a, b), (b, a)].contains(&self.route(0))
    }

    pub(super) fn forget_machine(&mut self, ip: IpAddr) {
        for end in 0..2 {
            if self.ends[end].at.ip() == ip {
                self.forget(end);
            }
        }
    }

    /// The kernel of this end knows the connection no more.
    pub(super) fn forget(&mut self, end: usize) {
        let this = &mut self.ends[end];
        (this.held, this.gone) = (false, true);
        this.received.clear();
        this.reader = None;
        this.writer = None;
        self.flows[end].queue.clear();
    }

    /// Fails one end: its process gets `error` from every call, its kernel forgets the rest.
    pub(super) fn fail(&mut self, end: usize, error: io::ErrorKind, wake: &mut Vec<Waker>) {
        let this = &mut self.ends[end];
        this.error.get_or_insert(error);
        this.gone = true;
        this.wake_all(wake);
        self.flows[end].queue.clear();
        if matches!(self.phase, Phase::Opening { .. }) && end == 0 {
            self.phase = Phase::Failed(error);
            wake.extend(self.opener.take());
        }
    }

    /// Whether nobody can learn anything from it any more. Segments still on their way are then dropped; the far end
    /// of a connection with a forgotten end stays until its own process lets go.
    pub(super) fn is_over(&self) -> bool {
        let done = |end: usize| {
            let this = &self.ends[end];
            let sent = self.flows[end].queue.is_empty() && self.flows[end].next_number == self.flows[end].expected;
            !this.held && (this.gone || sent)
        };
        done(0) && done(1)
    }
}
