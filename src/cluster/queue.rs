//! Queues of a link's writer: signs of life and credit first, then pieces of calls by class.
//!
//! Pieces of messages wait for room in the queue of their class, first come first served, so that many streams share a
//! queue fairly and a large message occupies a bounded amount of memory. At least every ninth turn goes to background
//! pieces.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::api::Class;
use super::packet::Packet;
use crate::limits;

/// How often a lower class is passed over before it has its turn.
const TURNS_BEFORE_BACKGROUND: u32 = 8;

struct Queued {
    packet: Packet,
    _room: Option<OwnedSemaphorePermit>,
}

struct ClassQueue {
    sender: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
}

/// Where packets are put. Shared by all streams of a link.
pub(super) struct Queues {
    urgent: mpsc::UnboundedSender<Packet>,
    by_class: [ClassQueue; 3],
}

/// Where the writer takes them from; dropping it lets every waiting sender go.
pub(super) struct Outbox {
    urgent: mpsc::UnboundedReceiver<Packet>,
    by_class: [mpsc::UnboundedReceiver<Queued>; 3],
    rooms: [Arc<Semaphore>; 3],
    passed_over: u32,
}

pub(super) fn queues() -> (Queues, Outbox) {
    let queue = || {
        let (sender, receiver) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(limits::CLUSTER_LANE_CHUNKS));
        (ClassQueue { sender, room: Arc::clone(&room) }, receiver, room)
    };
    let (urgent, urgent_out) = mpsc::unbounded_channel();
    let [(a, a_out, a_room), (b, b_out, b_room), (c, c_out, c_room)] = [queue(), queue(), queue()];
    let outbox =
        Outbox { urgent: urgent_out, by_class: [a_out, b_out, c_out], rooms: [a_room, b_room, c_room], passed_over: 0 };
    (Queues { urgent, by_class: [a, b, c] }, outbox)
}

impl Queues {
    /// Queues a piece; waits for room. False: the link is closed and the piece surely not sent.
    pub(super) async fn push(&self, class: Class, packet: Packet) -> bool {
        let queue = &self.by_class[class as usize];
        match Arc::clone(&queue.room).acquire_owned().await {
            Ok(room) => queue.sender.send(Queued { packet, _room: Some(room) }).is_ok(),
            Err(_) => false,
        }
    }

    /// Queues the end of a stream behind its pieces.
    pub(super) fn push_end(&self, class: Class, packet: Packet) {
        // Fails on a closed link, where nobody waits for it.
        let _ = self.by_class[class as usize].sender.send(Queued { packet, _room: None });
    }

    /// Queues what goes before all pieces.
    pub(super) fn push_urgent(&self, packet: Packet) {
        let _ = self.urgent.send(packet);
    }
}

impl Outbox {
    /// What is to be written next, if anything waits.
    pub(super) fn try_next(&mut self) -> Option<Packet> {
        if let Ok(packet) = self.urgent.try_recv() {
            return Some(packet);
        }
        let order = if self.passed_over >= TURNS_BEFORE_BACKGROUND { [2, 0, 1] } else { [0, 1, 2] };
        for class in order {
            if let Ok(queued) = self.by_class[class].try_recv() {
                self.passed_over = if class == 2 { 0 } else { self.passed_over + 1 };
                return Some(queued.packet);
            }
        }
        None
    }

    /// Waits for something to write; `None` when nobody can queue any more.
    pub(super) async fn next(&mut self) -> Option<Packet> {
        if let Some(packet) = self.try_next() {
            return Some(packet);
        }
        self.passed_over = 0;
        let [control, foreground, background] = &mut self.by_class;
        let packet = |queued: Option<Queued>| queued.map(|q| q.packet);
        tokio::select! {
            biased;
            urgent = self.urgent.recv() => urgent,
            queued = control.recv() => packet(queued),
            queued = foreground.recv() => packet(queued),
            queued = background.recv() => packet(queued),
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.rooms.iter().for_each(|room| room.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::FutureExt;

    fn piece(stream: u32) -> Packet {
        Packet::Body { stream, chunk: Bytes::new() }
    }

    #[tokio::test]
    async fn heartbeats_overtake_all_and_background_is_not_starved() {
        let (queues, mut outbox) = queues();
        for stream in 0..10 {
            assert!(queues.push(Class::Foreground, piece(stream)).await);
            assert!(queues.push(Class::Background, piece(100 + stream)).await);
        }
        queues.push_end(Class::Control, piece(50));
        queues.push_urgent(Packet::Ping);
        let mut order = Vec::new();
        while let Some(packet) = outbox.try_next() {
            order.push(match packet {
                Packet::Body { stream, .. } => stream,
                _ => 1000,
            });
        }
        assert_eq!(order[..12], [1000, 50, 0, 1, 2, 3, 4, 5, 6, 100, 7, 8]);
        assert_eq!(order.len(), 22);
        assert!(outbox.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn senders_wait_for_room_and_are_let_go_when_the_link_ends() {
        let (queues, mut outbox) = queues();
        for stream in 0..limits::CLUSTER_LANE_CHUNKS as u32 {
            assert!(queues.push(Class::Foreground, piece(stream)).await);
        }
        assert!(queues.push(Class::Foreground, piece(99)).now_or_never().is_none());
        assert_eq!(outbox.next().await, Some(piece(0)));
        assert!(queues.push(Class::Foreground, piece(99)).await);
        let waiting = queues.push(Class::Foreground, piece(100));
        drop(outbox);
        assert!(!waiting.await);
    }
}
