//! How segments, acknowledgements and resets move: the rules of TCP, as far as its users can tell.

use std::io::ErrorKind;
use std::net::IpAddr;

use super::super::trace::{hash_bytes, mix};
use super::connection::{Connection, Item, Load, Phase};
use super::{BACKLOG, ConnectionId, Event, PLAIN, SILENCE_MAX, SYN_RETRIES, State, WINDOW, retry_delay};
use std::time::Duration;

impl State {
    /// Works on a connection outside its map, and forgets it when nobody can learn from it any more.
    pub(super) fn edit(&mut self, id: ConnectionId, change: impl FnOnce(&mut State, &mut Connection)) {
        if let Some(mut connection) = self.connections.remove(&id) {
            change(self, &mut connection);
            if !connection.is_over() {
                self.connections.insert(id, connection);
            }
        }
    }

    // Opening.

    pub(super) fn send_syn(&mut self, id: ConnectionId) {
        self.edit(id, |net, c| {
            let (from, to) = c.route(0);
            if !matches!(c.phase, Phase::Opening { .. }) || c.ends[0].gone {
                return;
            }
            net.note(from, "net.syn", id);
            if net.is_cut((from, to)) {
                net.syn_lost(id, c);
            } else {
                let delay = net.travel(from, to, 0);
                net.later(delay, Event::Syn { id });
            }
        });
    }

    fn syn_lost(&mut self, id: ConnectionId, c: &mut Connection) {
        let Phase::Opening { tries } = c.phase else { return };
        self.note(c.ends[0].at.ip(), "net.syn_lost", id);
        c.phase = Phase::Opening { tries: tries + 1 };
        // The wait after the last retry ends in the time-out.
        let wait = Duration::from_secs(1 << tries);
        self.later(wait, Event::SynAgain { id });
        if tries > SYN_RETRIES {
            c.fail(0, ErrorKind::TimedOut, &mut self.wanted.wake);
        }
    }

    pub(super) fn syn_arrives(&mut self, id: ConnectionId) {
        self.edit(id, |net, c| {
            let (from, to) = c.route(0);
            if !matches!(c.phase, Phase::Opening { .. }) {
                return;
            }
            if !net.is_on(to) || net.is_cut((to, from)) {
                return net.syn_lost(id, c);
            }
            let door = net.doors.get(&c.ends[1].at).map(|d| (d.serial, d.life, d.queue.len()));
            match door {
                Some((_, _, waiting)) if waiting >= BACKLOG => {
                    net.note(to, "net.backlog_full", id);
                    net.syn_lost(id, c);
                }
                Some((serial, life, _)) => {
                    c.door = serial;
                    c.ends[1].life = life;
                    let delay = net.travel(to, from, 0);
                    net.later(delay, Event::SynAck { id });
                }
                None => {
                    let delay = net.travel(to, from, 0);
                    net.later(delay, Event::Refused { id });
                }
            }
        });
    }

    pub(super) fn syn_ack_arrives(&mut self, id: ConnectionId) {
        self.edit(id, |net, c| {
            if !matches!(c.phase, Phase::Opening { .. }) || c.ends[0].gone {
                return;
            }
            net.note(c.ends[0].at.ip(), "net.connected", id);
            c.phase = Phase::Open;
            net.wanted.wake.extend(c.opener.take());
            net.queue(id, c, 0, Load::Open);
        });
    }

    pub(super) fn refusal_arrives(&mut self, id: ConnectionId) {
        self.edit(id, |net, c| {
            if matches!(c.phase, Phase::Opening { .. }) && !c.ends[0].gone {
                net.note(c.ends[0].at.ip(), "net.refused", id);
                c.fail(0, ErrorKind::ConnectionRefused, &mut net.wanted.wake);
            }
        });
    }

    // Sending.

    /// Appends to what an end sends and sends what can be sent.
    pub(super) fn queue(&mut self, id: ConnectionId, c: &mut Connection, from: usize, load: Load) {
        let flow = &mut c.flows[from];
        flow.queue.insert(flow.next_number, load);
        flow.next_number += 1;
        self.pump(id, c, from);
    }

    fn pump(&mut self, id: ConnectionId, c: &mut Connection, from: usize) {
        let (source, target) = c.route(from);
        while !c.flows[from].retry_set && !c.flows[from].queue.is_empty() {
            if self.is_cut((source, target)) {
                self.stall(id, c, from);
                return;
            }
            let Some((number, load)) = c.flows[from].queue.pop_first() else { return };
            let bytes = if let Load::Data(data) = &load { data.len() } else { 0 };
            if let (Load::Data(data), Some(hidden)) = (&load, self.hidden)
                && hidden.is_shown(c.ends[1].at.port(), data)
            {
                self.note(source, PLAIN, id);
            }
            let reset_chance = self.link(source, target).reset_chance;
            if bytes > 0 && self.dice.chance(reset_chance) {
                self.inject_reset(id, c);
                return;
            }
            let there = (self.now + self.travel(source, target, bytes)).max(c.flows[from].last_arrival);
            c.flows[from].last_arrival = there;
            self.later(there - self.now, Event::Segment { id, from, item: Item { number, load } });
        }
    }

    /// Nothing gets through: try again later, or give up.
    fn stall(&mut self, id: ConnectionId, c: &mut Connection, from: usize) {
        let (since, tries) = c.flows[from].stalled.unwrap_or((self.now, 0));
        if self.now - since >= SILENCE_MAX {
            self.note(c.ends[from].at.ip(), "net.timed_out", id);
            c.fail(from, ErrorKind::TimedOut, &mut self.wanted.wake);
            return;
        }
        if !c.flows[from].retry_set {
            c.flows[from].stalled = Some((since, tries + 1));
            c.flows[from].retry_set = true;
            self.later(retry_delay(tries), Event::SendAgain { id, from });
        }
    }

    pub(super) fn send_again(&mut self, id: ConnectionId, from: usize) {
        self.edit(id, |net, c| {
            c.flows[from].retry_set = false;
            if !c.ends[from].gone {
                net.note(c.ends[from].at.ip(), "net.retransmission", id);
                net.pump(id, c, from);
            }
        });
    }

    // Arriving.

    pub(super) fn segment_arrives(&mut self, id: ConnectionId, from: usize, item: Item) {
        self.edit(id, |net, c| {
            let (source, target) = c.route(from);
            let to = 1 - from;
            let silent = !net.is_on(target) || (c.ends[to].gone && net.is_cut((target, source)));
            if silent {
                if !c.ends[from].gone {
                    c.flows[from].queue.insert(item.number, item.load);
                    net.stall(id, c, from);
                }
                return;
            }
            let unwanted = matches!(item.load, Load::Data(_)) && !c.ends[to].held;
            if c.ends[to].gone || unwanted {
                c.forget(to);
                net.send_reset(id, c, from);
                return;
            }
            net.deliver(id, c, from, item);
        });
    }

    fn deliver(&mut self, id: ConnectionId, c: &mut Connection, from: usize, item: Item) {
        let to = 1 - from;
        let node = c.ends[to].at.ip();
        assert_eq!(item.number, c.flows[from].expected, "segments of connection {id} arrive in order");
        c.flows[from].expected += 1;
        c.flows[from].stalled = None;
        match item.load {
            Load::Open => self.knock(id, c),
            Load::Data(data) => {
                self.note(node, "net.data", hash_bytes(mix(id, from as u64), &data));
                c.ends[to].received.push_back(data);
                self.wanted.wake.extend(c.ends[to].reader.take());
            }
            Load::Finish => {
                self.note(node, "net.finish", mix(id, from as u64));
                c.ends[to].finished = true;
                self.wanted.wake.extend(c.ends[to].reader.take());
            }
        }
        if !c.ends[from].gone {
            self.acknowledge(id, c, from);
        }
    }

    /// A connection is open on both sides: hand it to the listener.
    fn knock(&mut self, id: ConnectionId, c: &mut Connection) {
        let node = c.ends[1].at.ip();
        let life = c.ends[1].life;
        let open = self.lives(node, life);
        match self.doors.get_mut(&c.ends[1].at).filter(|door| open && door.serial == c.door) {
            Some(door) => {
                c.ends[1].held = true;
                door.queue.push_back(id);
                let waker = door.waker.take();
                self.wanted.wake.extend(waker);
                self.note(node, "net.knock", id);
            }
            None => {
                c.forget(1);
                self.send_reset(id, c, 0);
            }
        }
    }

    // Acknowledging: costs no event while the way back is open.

    fn acknowledge(&mut self, id: ConnectionId, c: &mut Connection, from: usize) {
        let (back_from, back_to) = c.route(1 - from);
        if !self.is_cut((back_from, back_to)) {
            c.flows[from].unacknowledged = None;
        } else if c.flows[from].unacknowledged.is_none() {
            c.flows[from].unacknowledged = Some((self.now, 0));
            self.later(retry_delay(0), Event::AcknowledgeAgain { id, from });
        }
    }

    pub(super) fn acknowledge_again(&mut self, id: ConnectionId, from: usize) {
        self.edit(id, |net, c| {
            let Some((since, tries)) = c.flows[from].unacknowledged else { return };
            let (back_from, back_to) = c.route(1 - from);
            if c.ends[from].gone {
                return;
            }
            if net.is_on(back_from) && !net.is_cut((back_from, back_to)) {
                c.flows[from].unacknowledged = None;
                match c.ends[1 - from].gone {
                    true => net.send_reset(id, c, from),
                    false => net.credit(id, c, from, 0),
                }
            } else if net.now - since >= SILENCE_MAX {
                net.note(c.ends[from].at.ip(), "net.timed_out", id);
                c.fail(from, ErrorKind::TimedOut, &mut net.wanted.wake);
            } else {
                c.flows[from].unacknowledged = Some((since, tries + 1));
                net.later(retry_delay(tries + 1), Event::AcknowledgeAgain { id, from });
            }
        });
    }

    /// The reader took `bytes`: open the window again, in steps.
    pub(super) fn credit(&mut self, id: ConnectionId, c: &mut Connection, from: usize, bytes: usize) {
        let (reader, writer) = c.route(1 - from);
        c.flows[from].uncredited += bytes;
        if c.flows[from].uncredited < WINDOW / 4 || c.ends[from].gone {
            return;
        }
        if self.is_cut((reader, writer)) {
            return self.acknowledge(id, c, from);
        }
        let bytes = std::mem::take(&mut c.flows[from].uncredited);
        let delay = self.travel(reader, writer, 0);
        self.later(delay, Event::Credit { id, from, bytes });
    }

    pub(super) fn credit_arrives(&mut self, id: ConnectionId, from: usize, bytes: usize) {
        self.edit(id, |net, c| {
            c.flows[from].outstanding -= bytes;
            net.wanted.wake.extend(c.ends[from].writer.take());
        });
    }

    // Ending.

    /// The process lets go of its end, or died: what it wrote is still sent, unless it left data unread.
    pub(super) fn close(&mut self, id: ConnectionId, end: usize) {
        self.edit(id, |net, c| {
            if !c.ends[end].held {
                return;
            }
            c.ends[end].held = false;
            if c.ends[end].gone {
                return;
            }
            if c.phase != Phase::Open {
                c.forget(end);
            } else if !c.ends[end].received.is_empty() {
                net.note(c.ends[end].at.ip(), "net.closed_unread", id);
                c.forget(end);
                net.send_reset(id, c, 1 - end);
            } else if !c.flows[end].finish_sent {
                c.flows[end].finish_sent = true;
                net.queue(id, c, end, Load::Finish);
            }
        });
    }

    /// Tells end `to` that the other end knows nothing of this connection; may be lost.
    fn send_reset(&mut self, id: ConnectionId, c: &Connection, to: usize) {
        let (from, target) = c.route(1 - to);
        if self.is_cut((from, target)) {
            self.note(from, "net.reset_lost", id);
        } else {
            let delay = self.travel(from, target, 0);
            self.later(delay, Event::Reset { id, to });
        }
    }

    pub(super) fn reset_arrives(&mut self, id: ConnectionId, to: usize) {
        self.edit(id, |net, c| {
            let node: IpAddr = c.ends[to].at.ip();
            if net.is_on(node) && !c.ends[to].gone {
                net.note(node, "net.reset", id);
                c.fail(to, ErrorKind::ConnectionReset, &mut net.wanted.wake);
            }
        });
    }

    /// Resets both ends from the middle; what was not sent is lost.
    fn inject_reset(&mut self, id: ConnectionId, c: &mut Connection) {
        self.note(c.ends[0].at.ip(), "net.reset_injected", id);
        for end in 0..2 {
            c.flows[end].retry_set = true;
            let (from, to) = c.route(1 - end);
            let delay = self.travel(from, to, 0);
            self.later(delay, Event::Reset { id, to: end });
        }
    }

    pub(super) fn reset_both(&mut self, id: ConnectionId) {
        self.edit(id, |net, c| net.inject_reset(id, c));
    }
}
