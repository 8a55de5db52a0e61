//! The simulated network: links with latency, loss, bandwidth and cuts, and TCP as its users see it.
//!
//! Modelled: connection set-up with SYN retries, refusal, a 256 KiB window, half close, resets, silence of the dead,
//! time-outs after 120 s without acknowledgement. Not modelled: segment sizes, congestion control, keep-alive.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;

use super::core::{Core, lock};
use super::dice::Dice;

mod connection;
mod link;
mod segments;
mod socket;

pub use link::Link;
pub(crate) use socket::{connect, listen};

use connection::{Connection, Item};

/// Bytes that a writer may be ahead of its reader.
pub const WINDOW: usize = 256 * 1024;
/// Bytes of one segment at most.
const SEGMENT: usize = 64 * 1024;
/// Connections that wait for an accept, per listener; further SYNs are dropped.
const BACKLOG: usize = 128;
/// Retries of a SYN, after 1, 2, 4 .. seconds; 127 s in all, as Linux has it.
const SYN_RETRIES: u32 = 6;
/// After this long without an acknowledgement a connection fails.
const SILENCE_MAX: Duration = Duration::from_secs(120);
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Counts segments that show what is to be hidden.
pub const PLAIN: &str = "net.plain";

/// Names a connection within its world.
pub(crate) type ConnectionId = u64;
/// A direction between two machines.
type Route = (IpAddr, IpAddr);

/// Something on its way through the network or a timer of its protocol. `from` is the end (0 opened, 1 accepted) that
/// sends the data concerned.
#[derive(Debug)]
enum Event {
    Syn { id: ConnectionId },
    SynAgain { id: ConnectionId },
    SynAck { id: ConnectionId },
    Refused { id: ConnectionId },
    Segment { id: ConnectionId, from: usize, item: Item },
    Credit { id: ConnectionId, from: usize, bytes: usize },
    SendAgain { id: ConnectionId, from: usize },
    AcknowledgeAgain { id: ConnectionId, from: usize },
    Reset { id: ConnectionId, to: usize },
}

struct Machine {
    on: bool,
    /// The life of the process that owns its sockets.
    life: u64,
    next_port: u16,
}

struct Door {
    life: u64,
    serial: u64,
    queue: VecDeque<ConnectionId>,
    waker: Option<Waker>,
}

struct State {
    now: Duration,
    dice: Dice,
    usual: Link,
    rules: BTreeMap<Route, Link>,
    cut: BTreeSet<Route>,
    clogged_until: BTreeMap<Route, Duration>,
    busy_until: BTreeMap<Route, Duration>,
    machines: BTreeMap<IpAddr, Machine>,
    doors: BTreeMap<SocketAddr, Door>,
    connections: BTreeMap<ConnectionId, Connection>,
    next_connection: ConnectionId,
    next_door: u64,
    hidden: Option<Hidden>,
    wanted: Wanted,
}

/// What nobody may read who sees what passes.
#[derive(Clone, Copy, Debug)]
pub struct Hidden {
    /// Texts that are written in plain nowhere.
    pub texts: &'static [&'static str],
    /// But where somebody listens on this port.
    pub but_at: u16,
}

impl Hidden {
    /// Whether data that are sent to a listener at that port, or from it, have one of the texts.
    fn is_shown(&self, port: u16, data: &[u8]) -> bool {
        let has = |text: &&str| data.windows(text.len()).any(|window| window == text.as_bytes());
        port != self.but_at && self.texts.iter().any(has)
    }
}

/// What a change of the state wants done once the lock is free.
#[derive(Default)]
struct Wanted {
    wake: Vec<Waker>,
    later: Vec<(Duration, Event)>,
    notes: Vec<(IpAddr, &'static str, u64)>,
}

pub(crate) struct Net {
    core: Arc<Core>,
    me: Weak<Net>,
    state: Mutex<State>,
}

impl Net {
    pub(crate) fn new(core: Arc<Core>, usual: Link) -> Arc<Self> {
        let dice = Dice::new(core.seed, "network");
        Arc::new_cyclic(|me| Net {
            core,
            me: me.clone(),
            state: Mutex::new(State {
                now: Duration::ZERO,
                dice,
                usual,
                rules: BTreeMap::new(),
                cut: BTreeSet::new(),
                clogged_until: BTreeMap::new(),
                busy_until: BTreeMap::new(),
                machines: BTreeMap::new(),
                doors: BTreeMap::new(),
                connections: BTreeMap::new(),
                next_connection: 0,
                next_door: 0,
                hidden: None,
                wanted: Wanted::default(),
            }),
        })
    }

    /// Changes the state, then does outside the lock what the change asked for.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.state);
        state.now = self.core.now();
        let out = change(&mut state);
        let wanted = std::mem::take(&mut state.wanted);
        drop(state);
        self.settle(wanted);
        out
    }

    fn settle(&self, wanted: Wanted) {
        let now = self.core.now();
        let mut trace = self.core.trace();
        for (node, kind, payload) in wanted.notes {
            trace.note(now, node, kind, payload);
            trace.count(kind, 1);
        }
        drop(trace);
        for (delay, event) in wanted.later {
            let me = self.me.clone();
            self.core.after(delay, move || {
                if let Some(net) = me.upgrade() {
                    net.with(|state| state.handle(event));
                }
            });
        }
        for waker in wanted.wake {
            waker.wake();
        }
    }

    /// Ends all connections without a word: the world is over.
    pub(crate) fn clear(&self) {
        let mut state = lock(&self.state);
        let connections = std::mem::take(&mut state.connections);
        let doors = std::mem::take(&mut state.doors);
        drop(state);
        drop((connections, doors));
    }

    pub(crate) fn is_on(&self, ip: IpAddr) -> bool {
        lock(&self.state).is_on(ip)
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.state).connections.len()
    }
}

/// Faults and switches.
impl Net {
    /// Counts from now on what shows something that is to be hidden.
    pub(crate) fn hide(&self, hidden: Hidden) {
        self.with(|state| state.hidden = Some(hidden));
    }

    /// Cuts the way from one machine to another, one way only.
    pub(crate) fn cut(&self, from: IpAddr, to: IpAddr) {
        self.with(|state| {
            if from != to && state.cut.insert((from, to)) {
                state.note(from, "net.cut", 0);
            }
        });
    }

    pub(crate) fn heal(&self, from: IpAddr, to: IpAddr) {
        self.with(|state| {
            if state.cut.remove(&(from, to)) {
                state.note(from, "net.heal", 0);
            }
        });
    }

    pub(crate) fn heal_all(&self) {
        self.with(|state| {
            state.cut.clear();
            state.rules.clear();
            state.clogged_until.clear();
            state.note(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), "net.heal_all", 0);
        });
    }

    pub(crate) fn clog(&self, from: IpAddr, to: IpAddr, time: Duration) {
        self.with(|state| {
            let until = state.now + time;
            state.clogged_until.insert((from, to), until);
            state.note(from, "net.clog", time.as_nanos() as u64);
        });
    }

    pub(crate) fn set_usual(&self, link: Link) {
        self.with(|state| state.usual = link);
    }

    pub(crate) fn set_link(&self, from: IpAddr, to: IpAddr, link: Option<Link>) {
        self.with(|state| match link {
            Some(link) => drop(state.rules.insert((from, to), link)),
            None => drop(state.rules.remove(&(from, to))),
        });
    }

    /// Resets every established connection between two machines, as a box in the middle would; yields how many.
    pub(crate) fn reset_between(&self, a: IpAddr, b: IpAddr) -> usize {
        self.with(|state| {
            let hit: Vec<_> = state.connections.iter().filter(|(_, c)| c.joins(a, b)).map(|(id, _)| *id).collect();
            for id in &hit {
                state.reset_both(*id);
            }
            hit.len()
        })
    }

    /// Power comes back (or on for the first time): the machine answers, sockets belong to `life` from now on.
    pub(crate) fn power_on(&self, ip: IpAddr, life: u64) {
        self.with(|state| {
            let machine = state.machines.entry(ip).or_insert(Machine { on: true, life, next_port: 40_000 });
            (machine.on, machine.life) = (true, life);
            state.note(ip, "net.power_on", life);
        });
    }

    /// Power is gone: sockets vanish and nobody is told.
    pub(crate) fn power_off(&self, ip: IpAddr) {
        self.with(|state| {
            if let Some(machine) = state.machines.get_mut(&ip) {
                machine.on = false;
            }
            state.note(ip, "net.power_off", 0);
            state.doors.retain(|at, _| at.ip() != ip);
            for connection in state.connections.values_mut() {
                connection.forget_machine(ip);
            }
            state.connections.retain(|_, c| !c.is_over());
        });
    }

    /// The process died on a living machine: its kernel closes the sockets.
    pub(crate) fn close_process(&self, ip: IpAddr) {
        self.with(|state| {
            state.note(ip, "net.process_died", 0);
            state.doors.retain(|at, _| at.ip() != ip);
            let ids: Vec<_> = state.connections.keys().copied().collect();
            for id in ids {
                for end in 0..2 {
                    if state.connections.get(&id).is_some_and(|c| c.ends[end].at.ip() == ip) {
                        state.close(id, end);
                    }
                }
            }
        });
    }
}

impl State {
    fn note(&mut self, node: IpAddr, kind: &'static str, payload: u64) {
        self.wanted.notes.push((node, kind, payload));
    }

    fn is_cut(&self, route: Route) -> bool {
        self.cut.contains(&route)
    }

    fn is_on(&self, ip: IpAddr) -> bool {
        self.machines.get(&ip).is_some_and(|machine| machine.on)
    }

    /// Whether a socket of this life on this machine is still held by a process.
    fn lives(&self, ip: IpAddr, life: u64) -> bool {
        self.machines.get(&ip).is_some_and(|machine| machine.on && machine.life == life)
    }

    fn later(&mut self, delay: Duration, event: Event) {
        self.wanted.later.push((delay, event));
    }

    fn free_port(&mut self, ip: IpAddr) -> io::Result<u16> {
        let machine = self.machines.get_mut(&ip).ok_or(io::ErrorKind::AddrNotAvailable)?;
        for _ in 0..u16::MAX {
            machine.next_port = machine.next_port.checked_add(1).unwrap_or(32_768);
            if !self.doors.contains_key(&SocketAddr::new(ip, machine.next_port)) {
                return Ok(machine.next_port);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Syn { id } => self.syn_arrives(id),
            Event::SynAgain { id } => self.send_syn(id),
            Event::SynAck { id } => self.syn_ack_arrives(id),
            Event::Refused { id } => self.refusal_arrives(id),
            Event::Segment { id, from, item } => self.segment_arrives(id, from, item),
            Event::Credit { id, from, bytes } => self.credit_arrives(id, from, bytes),
            Event::SendAgain { id, from } => self.send_again(id, from),
            Event::AcknowledgeAgain { id, from } => self.acknowledge_again(id, from),
            Event::Reset { id, to } => self.reset_arrives(id, to),
        }
    }
}

/// Waiting time before retry number `tries` (from 0) of a segment.
fn retry_delay(tries: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << tries.min(16)).min(LAST_RETRY)
}
