//! The memory of streamed answers: bounded for the node and per address.
//!
//! A streamed answer holds the page of rows that it is made of and what its client has not taken yet. Where all of them
//! hold more than `limits::HTTP_STREAMS_BYTES`, no further page is read, and the connection whose client has taken
//! nothing for longest is cut, if that is longer than `limits::HTTP_STREAM_STALL`: the clients that read get their
//! answers, once its memory is free, which on a busy machine is not at once. First pages are read before the answer is
//! counted: beyond `limits::HTTP_STREAMS_BEGUN_BYTES` an answer does not begin unless it is small, nor does one of an
//! address that holds three quarters of that; what was read of it is dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Notify;

use super::admission::{Pass, Turn};
use super::by_address::ByAddress;
use super::problem::{Problem, Result};
use crate::limits;
use crate::world::buggify::{takes, weigh};
use crate::world::sync::Mutex;
use crate::world::{Env, Instant, lock};

/// What counts it in reports.
const WHAT: &str = "memory of streamed answers";

/// The memory of all streamed answers of a node.
pub struct Streams {
    env: Env,
    table: Mutex<Table>,
    /// Told when some memory is free again.
    room: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// Bytes of all entries.
    held: usize,
    /// Bytes that are reserved for pages which are being read.
    reserved: usize,
    by_address: ByAddress,
    streams: BTreeMap<u64, Entry>,
}

struct Entry {
    address: IpAddr,
    bytes: usize,
    /// Bytes that are reserved for a page which is being read: the answer waits for the node then, not for its client.
    reserved: usize,
    /// Since when they are.
    reserved_since: Instant,
    /// When its client took something last.
    progressed: Instant,
    cut: Arc<Notify>,
    /// Whether that was told.
    is_cut: bool,
}

impl Table {
    /// Whether a page of so many bytes is within what one address may hold.
    fn is_within_own(&self, address: IpAddr, bytes: usize) -> bool {
        let own = self.by_address.held(address);
        own == 0 || own + bytes <= limits::HTTP_ADDRESS_STREAMS_BYTES
    }

    /// Whether there is room for a page of so many bytes beside what is held and being read. A page that takes long to
    /// be read, for its own reasons such as a filter function, does not keep others from theirs; but on a busy machine
    /// all do, so that these have a bound as well, of which one address has three quarters.
    fn has_room(&self, address: IpAddr, bytes: usize, now: Instant) -> bool {
        let fits = |reserved: usize, most: usize| {
            let all = self.held + reserved;
            all == 0 || all + bytes <= most
        };
        let is_bounded = || {
            let (most, own) =
                (limits::HTTP_STREAMS_BEGUN_BYTES, self.by_address.held(address) + self.reserved_of(address));
            fits(self.reserved, most) && (own == 0 || own + bytes <= most / 4 * 3)
        };
        let fits_lately = || fits(self.reserved_lately(now), limits::HTTP_STREAMS_BYTES);
        self.is_within_own(address, bytes)
            && (fits(self.reserved, limits::HTTP_STREAMS_BYTES) || is_bounded() && fits_lately())
    }

    fn reserved_of(&self, address: IpAddr) -> usize {
        self.streams.values().filter(|entry| entry.address == address).map(|entry| entry.reserved).sum()
    }

    fn reserved_lately(&self, now: Instant) -> usize {
        let is_late = |entry: &&Entry| now.since(entry.reserved_since) < limits::HTTP_STREAM_PATIENCE;
        self.streams.values().filter(is_late).map(|entry| entry.reserved).sum()
    }

    fn add(&mut self, id: u64, bytes: usize, now: Instant) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if entry.bytes == 0 {
            // There was nothing that its client could have taken.
            entry.progressed = now;
        }
        entry.bytes += bytes;
        self.held += bytes;
        weigh(WHAT, self.held, limits::HTTP_STREAMS_BEGUN_BYTES);
        takes(WHAT, bytes as i64);
        self.by_address.add(entry.address, bytes);
    }

    fn remove(&mut self, id: u64, bytes: usize) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        let bytes = bytes.min(entry.bytes);
        entry.bytes -= bytes;
        self.held -= bytes;
        takes(WHAT, -(bytes as i64));
        self.by_address.remove(entry.address, bytes);
    }

    /// Cuts the stream whose client has taken nothing for longest, of one address or of all; `None` where all take
    /// something. It counts until it is dropped.
    fn stalled(&mut self, of: Option<IpAddr>, now: Instant) -> Option<(IpAddr, Arc<Notify>)> {
        let is_of = |entry: &Entry| of.is_none_or(|address| address == entry.address);
        let waits = |entry: &Entry| !entry.is_cut && entry.reserved == 0 && entry.bytes > 0 && is_of(entry);
        let stalled = |entry: &Entry| now.since(entry.progressed) >= limits::HTTP_STREAM_STALL;
        let oldest = self.streams.iter().filter(|(_, entry)| waits(entry) && stalled(entry));
        let id = *oldest.min_by_key(|(_, entry)| entry.progressed)?.0;
        let entry = self.streams.get_mut(&id)?;
        entry.is_cut = true;
        Some((entry.address, Arc::clone(&entry.cut)))
    }

    /// Bytes of connections that were cut, of one address or of all, and that are not free yet.
    fn leaving(&self, of: Option<IpAddr>) -> usize {
        let leaves = |entry: &&Entry| entry.is_cut && of.is_none_or(|address| address == entry.address);
        self.streams.values().filter(leaves).map(|entry| entry.bytes).sum()
    }

    /// Of whom connections are cut to make room for so many bytes of an answer to `address`, where not of all: where an
    /// address holds its own share, those of others would be cut for nothing.
    fn to_cut(&self, address: IpAddr, bytes: usize) -> Option<IpAddr> {
        (!self.is_within_own(address, bytes)).then_some(address)
    }

    /// Cuts a connection whose client takes nothing, to make room for so many bytes of an answer to `address`; false
    /// where there is none.
    fn cut_stalled(&mut self, address: IpAddr, bytes: usize, now: Instant) -> bool {
        let Some((address, cut)) = self.stalled(self.to_cut(address, bytes), now) else { return false };
        tracing::info!("a connection of {address} is cut: its answer is not read, and memory for answers is short");
        cut.notify_one();
        true
    }

    fn leave(&mut self, id: u64) {
        self.remove(id, usize::MAX);
        if let Some(entry) = self.streams.remove(&id) {
            self.reserved -= entry.reserved;
        }
    }

    fn reserve(&mut self, id: u64, bytes: usize, now: Instant) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.reserved_since = now;
        self.reserved = self.reserved - std::mem::replace(&mut entry.reserved, bytes) + bytes;
    }
}

impl Streams {
    /// None yet.
    pub fn new(env: Env) -> Arc<Streams> {
        Arc::new(Streams { env, table: Mutex::default(), room: Notify::new() })
    }

    /// Bytes that all streamed answers hold.
    pub fn held_bytes(&self) -> usize {
        lock(&self.table).held
    }

    /// Counts an answer to a client at `address` from now on. `cut` is told when its connection is to be cut, `pass` is
    /// what its further pages wait with for their turns.
    ///
    /// # Errors
    /// 503 where there is no memory for what was read of it.
    pub fn enter(self: &Arc<Self>, address: IpAddr, cut: Arc<Notify>, pass: Option<Pass>, held: &Held) -> Result<()> {
        *lock(&held.pass) = pass;
        let own = held.own();
        let (bytes, now) = (own.page + own.unread, self.env.now());
        let mut table = lock(&self.table);
        let is_short = |table: &Table| {
            let most = limits::HTTP_STREAMS_BYTES;
            table.held + bytes > most && table.held - table.leaving(None) + bytes > most
        };
        while bytes > 0 && is_short(&table) && table.cut_stalled(address, bytes, now) {}
        let own = table.by_address.held(address);
        let is_too_much = |held: usize, most: usize| held > 0 && held + bytes > most;
        let most = limits::HTTP_STREAMS_BEGUN_BYTES;
        // Small answers begin in any case: one address must not keep all others from theirs.
        if bytes > limits::HTTP_ANSWER_SMALL_BYTES && (is_too_much(table.held, most) || is_too_much(own, most / 4 * 3))
        {
            return Err(crowded());
        }
        let id = table.next;
        table.next += 1;
        let entry = Entry { address, bytes: 0, reserved: 0, reserved_since: now, progressed: now, cut, is_cut: false };
        table.streams.insert(id, entry);
        table.add(id, bytes, now);
        let before = lock(&held.place).replace((Arc::clone(self), id));
        assert!(before.is_none(), "an answer is on its way once");
        Ok(())
    }

    /// Waits until there is room for a page of answer `id` that takes so many bytes, as far as that is known.
    async fn room(&self, id: u64, bytes: usize) -> Result<()> {
        let began = self.env.now();
        loop {
            let free = self.room.notified();
            let waited = self.env.now().since(began);
            {
                let mut table = lock(&self.table);
                let own = table.streams.get(&id).filter(|entry| !entry.is_cut);
                let Some(address) = own.map(|entry| entry.address) else { return Err(crowded()) };
                let now = self.env.now();
                if table.has_room(address, bytes, now) {
                    table.reserve(id, bytes, now);
                    return Ok(());
                }
                let leaving = table.leaving(table.to_cut(address, bytes));
                if leaving < bytes && table.cut_stalled(address, bytes, now) {
                    continue;
                }
            }
            if waited >= limits::HTTP_STREAM_WAIT {
                return Err(crowded());
            }
            // Whether the time is over or room was made: it is looked at again.
            let _ = self.env.timeout(limits::HTTP_STREAM_LOOK, free).await;
        }
    }
}

/// There is no memory for an answer.
pub(super) fn crowded() -> Problem {
    Problem::unavailable("Too many answers wait to be read.").retry_later()
}

/// What one streamed answer holds. Dropped, it gives all back.
#[derive(Default)]
pub struct Held {
    own: Mutex<Own>,
    /// Where it is counted, once it is on its way.
    place: Mutex<Option<(Arc<Streams>, u64)>>,
    /// What pages wait with for their turns, once it is on its way: the first ones are read within that of the request.
    pass: Mutex<Option<Pass>>,
    /// The turn of the page that is being read.
    turn: Mutex<Option<Turn>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Own {
    /// Bytes of the page that is being written.
    page: usize,
    /// Bytes that were written and not taken.
    unread: usize,
    /// Bytes of the largest page so far.
    largest: usize,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.own().fmt(f)
    }
}

impl Held {
    fn own(&self) -> Own {
        *lock(&self.own)
    }

    fn place(&self) -> Option<(Arc<Streams>, u64)> {
        lock(&self.place).clone()
    }

    /// The page that was written is done with; waits for room for the next one, then for the turn to read it.
    /// `shows_docs`: its rows come with documents.
    ///
    /// # Errors
    /// 503 where there is no room for long.
    pub async fn room(&self, shows_docs: bool) -> Result<()> {
        self.page(0);
        let expected = match self.own().largest {
            0 if shows_docs => limits::HTTP_STREAM_PAGE_BYTES,
            largest => largest.clamp(limits::HTTP_CHUNK_BYTES, limits::HTTP_STREAM_PAGE_BYTES),
        };
        let Some((streams, id)) = self.place() else { return Ok(()) };
        streams.room(id, expected).await?;
        let pass = lock(&self.pass).clone();
        if let Some(pass) = pass {
            let turn = pass.go_on().await;
            *lock(&self.turn) = turn;
        }
        Ok(())
    }

    /// A page was read that takes so many bytes until it is written.
    pub fn page(&self, bytes: usize) {
        let turn = lock(&self.turn).take();
        drop(turn);
        let before = {
            let mut own = lock(&self.own);
            own.largest = own.largest.max(bytes);
            std::mem::replace(&mut own.page, bytes)
        };
        let Some((streams, id)) = self.place() else { return };
        let now = streams.env.now();
        let mut table = lock(&streams.table);
        table.reserve(id, 0, now);
        table.remove(id, before);
        table.add(id, bytes, now);
        drop(table);
        streams.room.notify_waiters();
    }

    /// So many bytes wait for the client.
    pub fn written(&self, bytes: usize) {
        lock(&self.own).unread += bytes;
        if let Some((streams, id)) = self.place() {
            let now = streams.env.now();
            lock(&streams.table).add(id, bytes, now);
        }
    }

    /// The client took so many.
    pub fn taken(&self, bytes: usize) {
        lock(&self.own).unread -= bytes;
        let Some((streams, id)) = self.place() else { return };
        let now = streams.env.now();
        let mut table = lock(&streams.table);
        table.remove(id, bytes);
        if let Some(entry) = table.streams.get_mut(&id) {
            entry.progressed = now;
        }
        drop(table);
        streams.room.notify_waiters();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((streams, id)) = self.place() {
            lock(&streams.table).leave(id);
            streams.room.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::{Held, Streams};
    use crate::limits;
    use crate::world::{Instant, lock, tokio_host};

    fn at(n: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
    }

    fn stream(streams: &Arc<Streams>, n: u8) -> (Held, Arc<Notify>) {
        let (held, cut) = (Held::default(), Arc::<Notify>::default());
        streams.enter(at(n), Arc::clone(&cut), None, &held).unwrap();
        (held, cut)
    }

    #[test]
    fn answers_that_begin_are_bounded_although_nobody_waited_for_their_first_pages() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let streams = Streams::new(tokio_host::env(runtime.handle().clone()));
        let page = 8 << 20;
        let mut begun = Vec::new();
        for n in 0..200 {
            let held = Held::default();
            held.page(page);
            match streams.enter(at(n), Arc::default(), None, &held) {
                Ok(()) => begun.push(held),
                Err(problem) => assert_eq!(problem.status.as_u16(), 503),
            }
        }
        assert_eq!(begun.len(), limits::HTTP_STREAMS_BEGUN_BYTES / page);
        assert!(streams.enter(at(1), Arc::default(), None, &Held::default()).is_ok(), "a feed that waits");
        // Those that take nothing for long make way for the next one.
        lock(&streams.table).streams.values_mut().for_each(|entry| entry.progressed = Instant(Duration::ZERO));
        runtime.block_on(streams.env.sleep(limits::HTTP_STREAM_STALL));
        let held = Held::default();
        held.page(page);
        // What is cut counts until it is gone.
        assert!(streams.enter(at(2), Arc::default(), None, &held).is_err());
        assert_eq!(streams.held_bytes(), begun.len() * page);
        let cut = lock(&streams.table).streams.values().filter(|entry| entry.is_cut).count();
        assert_eq!(cut, (limits::HTTP_STREAMS_BEGUN_BYTES - limits::HTTP_STREAMS_BYTES) / page + 1);
        begun.drain(..cut);
        assert!(streams.enter(at(2), Arc::default(), None, &held).is_ok());
        assert!(streams.held_bytes() <= limits::HTTP_STREAMS_BYTES);
    }

    #[test]
    fn clients_that_take_nothing_are_cut_and_those_that_read_go_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let streams = Streams::new(tokio_host::env(runtime.handle().clone()));
        let page = 8 << 20;
        let count = limits::HTTP_ADDRESS_STREAMS_BYTES / page;
        let mut hostile: Vec<(Held, Arc<Notify>)> = (0..count).map(|_| stream(&streams, 1)).collect();
        runtime.block_on(async {
            for (held, _) in &hostile {
                held.room(true).await.unwrap();
                held.page(page);
            }
            // Another address has room at once, and another stream of this one when somebody was cut.
            let (other, _) = stream(&streams, 2);
            assert!(other.room(true).now_or_never().is_some());
            other.page(0);
            let (next, _) = stream(&streams, 1);
            let (first, cut) = hostile.remove(0);
            let mut waits = Box::pin(next.room(true));
            tokio::select! {
                biased;
                done = &mut waits => panic!("{done:?}: what is cut counts until it is gone"),
                () = cut.notified() => {}
            }
            drop(first);
            waits.await.unwrap();
            assert!(hostile.iter().all(|(_, cut)| cut.notified().now_or_never().is_none()), "the first one was cut");
        });
        assert_eq!(streams.held_bytes(), (count - 1) * page);
        drop(hostile);
        assert_eq!(streams.held_bytes(), 0);
    }

    #[test]
    fn an_address_that_holds_its_share_cuts_no_other_and_a_stream_that_held_nothing_is_not_late() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let streams = Streams::new(tokio_host::env(runtime.handle().clone()));
        let (other, _) = stream(&streams, 2);
        let (greedy, _) = stream(&streams, 1);
        greedy.page(limits::HTTP_ADDRESS_STREAMS_BYTES);
        let later = |seconds| Instant(streams.env.now().0 + Duration::from_secs(seconds));
        let mut table = lock(&streams.table);
        let (first, second) = (0, 1);
        // The other one was idle for an hour before it had anything to read.
        table.add(first, 10, later(3_600));
        assert!(table.stalled(Some(at(2)), later(3_600)).is_none());
        table.streams.get_mut(&second).unwrap().progressed = later(3_600);
        // By then the other one has stalled for long, and it is not of the address whose share is used up.
        let now = later(3_600 + 1);
        table.streams.get_mut(&first).unwrap().progressed = streams.env.now();
        assert!(!table.is_within_own(at(1), 1) && table.stalled(Some(at(1)), now).is_none());
        assert_eq!(table.stalled(None, now).map(|(address, _)| address), Some(at(2)));
        drop(table);
        drop((other, greedy));
    }

    /// Was: on a busy machine, where each page took longer than the patience, as many were read as there were clients.
    #[test]
    fn pages_that_take_long_to_be_read_are_bounded_too() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let streams = Streams::new(tokio_host::env(runtime.handle().clone()));
        let reads = |n: u8| {
            let (held, _) = stream(&streams, n);
            let has_room = held.room(true).now_or_never().is_some();
            // It was reserved at the beginning of time, which is longer ago than the patience.
            lock(&streams.table).streams.values_mut().for_each(|entry| entry.reserved_since = Instant(Duration::ZERO));
            has_room.then_some(held)
        };
        runtime.block_on(async {
            streams.env.sleep(limits::HTTP_STREAM_PATIENCE).await;
            let all = limits::HTTP_STREAMS_BEGUN_BYTES / limits::HTTP_STREAM_PAGE_BYTES;
            let of_one: Vec<Held> = (0..200).filter_map(|_| reads(1)).collect();
            assert_eq!(of_one.len(), all / 4 * 3);
            let of_others: Vec<Held> = (2..200).filter_map(reads).collect();
            assert_eq!(of_others.len(), all / 4);
            drop(of_one);
            assert!(reads(1).is_some());
        });
    }

    #[test]
    fn what_is_written_and_taken_counts() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let streams = Streams::new(tokio_host::env(runtime.handle().clone()));
        let held = Held::default();
        held.page(10);
        held.written(5);
        streams.enter(at(1), Arc::default(), None, &held).unwrap();
        assert_eq!(streams.held_bytes(), 15);
        held.taken(3);
        held.page(1);
        assert_eq!(streams.held_bytes(), 3);
    }
}
