//! The checksums of a store's blocks: in sectors before them (`mod.rs` draws where) and, of blocks in use, in memory.
//!
//! A sum is changed in memory when its block is written, and its sector before the file is synced: the first copy with
//! that sync, the second with the next one, so that one write of the drive cannot take both. A copy that is found
//! behind or damaged is written in the same way, so that a sector does not stay with one.
//!
//! Assumes one writer, and that blocks which a reader could reach are not overwritten before nobody can reach them
//! (redb's way): the sums of those are the same in a sector's old and new state, so that power loss may leave either.
//! Promises that no reader waits for the disk on behalf of another one.

use std::collections::BTreeMap;
use std::io;
use std::sync::PoisonError;

use super::twin::{CONTENT_BYTES, Loaded, SECTOR_BYTES, Twin, Which};
use super::{SUMS_PER_SECTOR, sector_places};
use crate::world::File;
use crate::world::sync::{Mistake, Mutex, MutexGuard, mistaken};

/// See the module head.
#[derive(Debug)]
pub(super) struct Sums {
    /// A blocking lock: held for what is in memory, not while the disk is read or written.
    held: Mutex<Held>,
}

/// The sectors in memory.
#[derive(Debug)]
struct Held {
    /// Sectors with a copy that is still to be written.
    due: BTreeMap<u64, Due>,
    /// Others that were used lately; when there are too many they become `older`, and those are forgotten.
    recent: BTreeMap<u64, Twin>,
    older: BTreeMap<u64, Twin>,
    /// How many `recent` may be.
    most: usize,
    /// Counts what may make a sector old that was read from the file before.
    generation: u64,
}

/// A sector and the copy of it that the next sync brings; the second one's turn is after the first.
#[derive(Debug)]
struct Due {
    sector: Twin,
    copy: Which,
    /// Whether it was changed since that copy was made: then it is to be written again.
    is_changed: bool,
}

impl Sums {
    /// Of a file of which nothing was read; keeps at most `most` sectors in memory beside those to be written.
    pub(super) fn new(most: usize) -> Sums {
        let (due, recent, older) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Sums { held: Mutex::new(Held { due, recent, older, most: (most / 2).max(1), generation: 0 }) }
    }

    /// The sum of a block that the file is long enough for; zero if it was never written.
    pub(super) fn get(&self, file: &dyn File, block: u64) -> io::Result<u32> {
        let (number, at) = place_in_sector(block);
        self.holding(file, number, |held| {
            let bytes = &held.content(number)[at..at + 4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        })
    }

    /// Notes the sum of a block that was written.
    pub(super) fn set(&self, file: &dyn File, block: u64, sum: u32) -> io::Result<()> {
        let (number, at) = place_in_sector(block);
        self.holding(file, number, |held| {
            held.changing(number)[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        })
    }

    /// Writes what has to be written with the next sync. What a failure leaves unwritten stays due.
    pub(super) fn write(&self, file: &dyn File) -> io::Result<()> {
        let due: Vec<u64> = self.held().due.keys().copied().collect();
        for number in due {
            let Some((copy, bytes)) = self.held().encoded(number) else { continue };
            file.write_at(sector_places(number)[copy as usize], &bytes)?;
            // A thread that reads may have written a block of the sector meanwhile.
            self.held().written(number);
        }
        Ok(())
    }

    /// Forgets the sectors of which all blocks lie behind the first `blocks`. What is left of cut blocks in the last
    /// sector fits nothing that is written there later.
    pub(super) fn cut(&self, blocks: u64) {
        let gone = blocks.div_ceil(SUMS_PER_SECTOR);
        let mut held = self.held();
        held.due.split_off(&gone);
        held.recent.split_off(&gone);
        held.older.split_off(&gone);
        held.generation += 1;
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with a sector in memory; brings it there first where it is not.
    fn holding<T>(&self, file: &dyn File, number: u64, act: impl FnOnce(&mut Held) -> T) -> io::Result<T> {
        loop {
            let generation = {
                let mut held = self.held();
                if held.touch(number) {
                    return Ok(act(&mut held));
                }
                held.generation
            };
            let loaded = Twin::load(file, number, sector_places(number));
            let mut held = self.held();
            // Else it is in memory by now, or went to the file while it was read: what was read may be old, or torn.
            let is_old = held.generation != generation && !mistaken(Mistake::SumsReadBeforeWrite);
            if !is_old && !held.touch(number) {
                held.insert(number, loaded?);
            }
        }
    }

    /// How many sectors are in memory.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let held = self.held();
        held.due.len() + held.recent.len() + held.older.len()
    }
}

impl Held {
    /// Whether a sector is in memory; if so, it is now one that was used lately.
    fn touch(&mut self, number: u64) -> bool {
        if let Some(sector) = self.older.remove(&number) {
            self.keep(number, sector);
        }
        self.due.contains_key(&number) || self.recent.contains_key(&number)
    }

    fn insert(&mut self, number: u64, Loaded { sector, behind }: Loaded) {
        match behind {
            Some(copy) => drop(self.due.insert(number, Due { sector, copy, is_changed: false })),
            None => self.keep(number, sector),
        }
    }

    fn keep(&mut self, number: u64, sector: Twin) {
        if self.recent.len() >= self.most {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(number, sector);
    }

    /// The content of a sector that is in memory.
    fn content(&self, number: u64) -> &[u8; CONTENT_BYTES] {
        let due = self.due.get(&number).map(|due| &due.sector);
        // Invariant: asked for only of what `touch` has found, under one lock.
        &due.or_else(|| self.recent.get(&number)).expect("the sector is in memory").content
    }

    /// That content, to be changed: both copies are to be written.
    fn changing(&mut self, number: u64) -> &mut [u8; CONTENT_BYTES] {
        if let Some(sector) = self.recent.remove(&number) {
            self.due.insert(number, Due { sector, copy: Which::First, is_changed: true });
        }
        // Invariant: as in `content`.
        let due = self.due.get_mut(&number).expect("the sector is in memory");
        (due.copy, due.is_changed) = (Which::First, true);
        &mut due.sector.content
    }

    /// The copy of a sector that is to be written next, if there is one, and its bytes.
    fn encoded(&mut self, number: u64) -> Option<(Which, [u8; SECTOR_BYTES])> {
        let due = self.due.get_mut(&number)?;
        if due.copy == Which::First {
            due.sector.change();
        }
        due.is_changed = false;
        Some((due.copy, due.sector.encoded()))
    }

    /// Notes that this copy was written.
    fn written(&mut self, number: u64) {
        let Some(due) = self.due.get_mut(&number) else { return };
        match due.copy {
            _ if due.is_changed => {}
            Which::First => due.copy = Which::Second,
            Which::Second => {
                if let Some(Due { sector, .. }) = self.due.remove(&number) {
                    self.keep(number, sector);
                }
                self.generation += 1;
            }
        }
    }
}

/// The number of a block's sector, and where in it its sum is.
fn place_in_sector(block: u64) -> (u64, usize) {
    (block / SUMS_PER_SECTOR, (block % SUMS_PER_SECTOR) as usize * 4)
}
