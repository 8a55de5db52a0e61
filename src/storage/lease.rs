//! Leases of uploaded blobs that no committed edit names yet.
//!
//! The table is in memory only: after a restart every upload without a committed edit is removed. These rules together
//! make it impossible to remove a blob that an edit names:
//! - an upload takes its lease before its file gets its final name; the request holds it until its edit is decided, and
//!   only from then on its time runs;
//! - an edit may name a blob that is leased, or one whose reference count is above zero in its own view; it pins the
//!   lease until its commit is durable or it is dropped;
//! - a file is removed only under this table's lock, without a lease, and when the committed count is zero.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use crate::document::render::BlobId;
use crate::limits;
use crate::world::Instant;
use crate::world::sync::{Mistake, Mutex, MutexGuard, mistaken};

/// A blob of a shard: the shard's number and the hash of the stored bytes.
pub type BlobKey = (u64, BlobId);

#[derive(Debug)]
struct Lease {
    /// Uploads of these bytes whose edits have not committed.
    uploads: u32,
    /// Requests that go on with it ([`Hold`]) and edits in the committer that name it ([`Pin`]).
    pins: u32,
    /// When the last upload ended.
    since: Instant,
    /// The bytes themselves when they go into the ordered store with the edit.
    inline: Option<Bytes>,
}

/// The table; see the module head.
#[derive(Debug, Default)]
pub(super) struct Leases {
    table: BTreeMap<BlobKey, Lease>,
    inline_bytes: usize,
}

/// A shared [`Leases`].
#[derive(Clone, Debug, Default)]
pub(super) struct SharedLeases(Arc<Mutex<Leases>>);

impl SharedLeases {
    /// Locks the table. Only blocking steps may hold it while they touch the disk.
    pub(super) fn lock(&self) -> MutexGuard<'_, Leases> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an upload and holds its lease; `None` when `inline` bytes have no room left, nothing is added then.
    pub(super) fn hold(&self, key: BlobKey, inline: Option<Bytes>, now: Instant) -> Option<Hold> {
        let mut leases = self.lock();
        if !leases.add(key, inline, now) {
            return None;
        }
        // Under one lock: edits of uploads before it may commit at any time, and would take the lease along.
        let leases = if mistaken(Mistake::UploadCountedThenPinned) {
            drop(leases);
            self.lock()
        } else {
            leases
        };
        self.pinned(leases, &key).map(|pin| Hold { _pin: Arc::new(pin) })
    }

    /// Pins a leased blob for an edit; `None` when there is no lease.
    pub(super) fn pin(&self, key: &BlobKey) -> Option<Pin> {
        self.pinned(self.lock(), key)
    }

    fn pinned(&self, mut leases: MutexGuard<'_, Leases>, key: &BlobKey) -> Option<Pin> {
        let lease = leases.table.get_mut(key)?;
        lease.pins += 1;
        Some(Pin { leases: self.clone(), key: *key, inline: lease.inline.clone(), committed: false })
    }

    /// Removes a blob by `remove` where nothing holds it and no committed edit names it: the only place that does.
    /// Blocks.
    pub(super) fn remove_unless_needed<E>(
        &self,
        key: &BlobKey,
        references: impl FnOnce() -> Result<u64, E>,
        remove: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let leases = self.lock();
        if leases.holds(key) {
            return Ok(());
        }
        let _leases = (!mistaken(Mistake::LeasesNotLocked)).then_some(leases);
        if references()? > 0 { Ok(()) } else { remove() }
    }
}

impl Leases {
    /// Adds an upload; false when `inline` bytes have no room left, nothing is added then.
    pub(super) fn add(&mut self, key: BlobKey, inline: Option<Bytes>, now: Instant) -> bool {
        let size = inline.as_ref().map_or(0, Bytes::len);
        if self.inline_bytes + size > limits::BLOB_INLINE_STAGED_BYTES {
            return false;
        }
        let lease = self.table.entry(key).or_insert(Lease { uploads: 0, pins: 0, since: now, inline: None });
        lease.uploads += 1;
        lease.since = now;
        if lease.inline.is_none() && inline.is_some() {
            lease.inline = inline;
            self.inline_bytes += size;
        }
        true
    }

    /// Whether something holds the blob.
    pub(super) fn holds(&self, key: &BlobKey) -> bool {
        self.table.contains_key(key)
    }

    /// The bytes of a leased inline blob.
    pub(super) fn inline(&self, key: &BlobKey) -> Option<Bytes> {
        self.table.get(key)?.inline.clone()
    }

    /// Takes out and returns what is not pinned and either older than the lease time or waited for by no upload, at
    /// most `limit` entries.
    pub(super) fn expire(&mut self, now: Instant, limit: usize) -> Vec<BlobKey> {
        let old = |l: &Lease| l.pins == 0 && (l.uploads == 0 || now.since(l.since) >= limits::BLOB_LEASE);
        let keys: Vec<BlobKey> = self.table.iter().filter(|(_, l)| old(l)).map(|(k, _)| *k).take(limit).collect();
        keys.iter().for_each(|key| self.remove(key));
        keys
    }

    fn remove(&mut self, key: &BlobKey) {
        if let Some(lease) = self.table.remove(key) {
            self.inline_bytes -= lease.inline.map_or(0, |b| b.len());
        }
    }

    fn unpin(&mut self, key: &BlobKey, committed: bool) {
        let Some(lease) = self.table.get_mut(key) else { return };
        assert!(lease.pins > 0, "a blob was unpinned more often than pinned");
        lease.pins -= 1;
        if committed {
            lease.uploads = lease.uploads.saturating_sub(1);
        }
        // Inline bytes take memory and go at once. A file's entry is left for the collector, which looks at the file
        // again: its last reference may have gone while the lease was held.
        if lease.uploads == 0 && lease.pins == 0 && lease.inline.is_some() {
            self.remove(key);
        }
    }
}

/// Keeps the lease of an upload as long as the request goes on that will name it, however slow the rest of it comes.
/// Clones hold the same lease.
#[derive(Clone, Debug)]
pub struct Hold {
    _pin: Arc<Pin>,
}

/// Keeps a leased blob until the edit that names it is durable. Dropped unused, it gives the lease back as it was.
#[derive(Debug)]
pub struct Pin {
    leases: SharedLeases,
    key: BlobKey,
    inline: Option<Bytes>,
    committed: bool,
}

impl Pin {
    /// The bytes that go into the ordered store with the edit; `None` when the blob is a file.
    pub fn inline(&self) -> Option<&Bytes> {
        self.inline.as_ref()
    }

    /// The edit is durable: one upload is no longer waiting for its edit.
    pub fn committed(mut self) {
        self.committed = true;
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.leases.lock().unpin(&self.key, self.committed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use shuttle::thread;

    use super::*;
    use crate::world::lock;
    use crate::world::model::{check, check_finds};

    const BLOB: BlobKey = (1, [7; 32]);
    const NOW: Instant = Instant(Duration::ZERO);

    /// A node's blob files and committed references, as far as one blob is concerned.
    #[derive(Clone, Default)]
    struct Node {
        leases: SharedLeases,
        files: Arc<Mutex<BTreeSet<BlobKey>>>,
        references: Arc<Mutex<u64>>,
    }

    impl Node {
        /// Uploads the bytes as a file.
        fn upload(&self) -> Hold {
            let hold = self.leases.hold(BLOB, None, NOW).expect("a lease without bytes");
            lock(&self.files).insert(BLOB);
            hold
        }

        /// Begins an edit that names the blob; `None`: it is gone.
        fn begin_edit(&self) -> Option<Option<Pin>> {
            let pin = self.leases.pin(&BLOB);
            (pin.is_some() || *lock(&self.references) > 0).then_some(pin)
        }

        fn commit(&self, pin: Option<Pin>) {
            *lock(&self.references) += 1;
            pin.into_iter().for_each(Pin::committed);
            self.check();
        }

        fn collect(&self) {
            let expired = self.leases.lock().expire(NOW, 10);
            for key in expired.into_iter().chain([BLOB]) {
                let references = || Ok::<_, ()>(*lock(&self.references));
                let remove = || {
                    lock(&self.files).remove(&key);
                    Ok(())
                };
                self.leases.remove_unless_needed(&key, references, remove).unwrap();
            }
        }

        fn check(&self) {
            let references = lock(&self.references);
            assert!(*references == 0 || lock(&self.files).contains(&BLOB), "an edit names a blob that is gone");
        }
    }

    /// Two requests upload the same bytes while the collector runs. Of the two edits of the first one is committed.
    fn uploads_beside_the_collector() {
        let node = Node::default();
        let (first, second, collector) = (node.clone(), node.clone(), node.clone());
        let hold = first.upload();
        let [committed, begun] = [first.begin_edit(), first.begin_edit()].map(|pin| pin.expect("it is held"));
        drop(hold);
        first.commit(committed);
        let threads = [
            thread::spawn(move || {
                first.commit(begun);
                // Both documents are purged.
                *lock(&first.references) -= 2;
            }),
            thread::spawn(move || {
                let hold = second.upload();
                let pin = second.begin_edit().expect("it is held");
                drop(hold);
                second.commit(pin);
            }),
            thread::spawn(move || (0..3).for_each(|_| collector.collect())),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        node.check();
        node.collect();
        node.check();
        assert!(!node.leases.lock().holds(&BLOB), "no lease outlives its edits");
    }

    #[test]
    fn a_blob_that_an_edit_names_stays_whatever_threads_do() {
        check(uploads_beside_the_collector);
    }

    #[test]
    fn the_model_of_leases_finds_an_upload_that_is_counted_first_and_pinned_later() {
        check_finds(Mistake::UploadCountedThenPinned, uploads_beside_the_collector);
    }

    #[test]
    fn the_model_of_leases_finds_a_look_at_them_without_their_lock() {
        check_finds(Mistake::LeasesNotLocked, uploads_beside_the_collector);
    }
}
