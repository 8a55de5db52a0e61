//! What a link between two machines does to what is sent over it.

use std::net::IpAddr;
use std::time::Duration;

use super::State;

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Shortest and longest usual latency.
    pub latency: (Duration, Duration),
    /// Probability of a latency from the tail instead, per segment.
    pub tail_chance: f64,
    /// Longest latency of the tail.
    pub tail_latency: Duration,
    /// Probability that a segment is lost at first; it then comes a retransmission later.
    pub loss: f64,
    /// Bytes per second; segments wait for each other.
    pub bandwidth: u64,
    /// Probability per segment that its connection is reset instead.
    pub reset_chance: f64,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            latency: (Duration::from_micros(100), Duration::from_millis(2)),
            tail_chance: 0.01,
            tail_latency: Duration::from_millis(50),
            loss: 0.001,
            bandwidth: 125_000_000,
            reset_chance: 0.0,
        }
    }
}

impl Link {
    /// A link without loss and tail.
    pub fn calm() -> Self {
        Link { tail_chance: 0.0, loss: 0.0, ..Link::default() }
    }

    /// This link with all times `factor` times as long.
    pub fn slowed(self, factor: u32) -> Self {
        Link {
            latency: (self.latency.0 * factor, self.latency.1 * factor),
            tail_latency: self.tail_latency * factor,
            bandwidth: (self.bandwidth / u64::from(factor.max(1))).max(1),
            ..self
        }
    }
}

/// Within a machine nothing is lost and little time passes.
const LOOPBACK: Link = Link {
    latency: (Duration::from_micros(10), Duration::from_micros(60)),
    tail_chance: 0.0,
    tail_latency: Duration::ZERO,
    loss: 0.0,
    bandwidth: 2_000_000_000,
    reset_chance: 0.0,
};

/// A segment waits this long for its retransmission when it was lost.
const RETRANSMISSION: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));

impl State {
    pub(super) fn link(&self, from: IpAddr, to: IpAddr) -> Link {
        if from == to { LOOPBACK } else { self.rules.get(&(from, to)).copied().unwrap_or(self.usual) }
    }

    /// Time until something of `bytes` sent now is there, were it not for a cut.
    pub(super) fn travel(&mut self, from: IpAddr, to: IpAddr, bytes: usize) -> Duration {
        let link = self.link(from, to);
        let mut latency = self.dice.between(link.latency.0, link.latency.1);
        if self.dice.chance(link.tail_chance) {
            latency = self.dice.between(link.latency.1, link.tail_latency.max(link.latency.1));
            self.note(from, "net.tail", 0);
        }
        if self.dice.chance(link.loss) {
            latency += self.dice.between(RETRANSMISSION.0, RETRANSMISSION.1);
            self.note(from, "net.loss", 0);
        }
        let size = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / link.bandwidth.max(1));
        let busy = self.busy_until.get(&(from, to)).copied().unwrap_or_default();
        let sent = busy.max(self.now) + size;
        self.busy_until.insert((from, to), sent);
        let open = self.clogged_until.get(&(from, to)).copied().unwrap_or_default();
        sent.max(open) + latency - self.now
    }
}
