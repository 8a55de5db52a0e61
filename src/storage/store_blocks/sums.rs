//! The checksums of a store's blocks: in sectors before them (`mod.rs` draws where) and, of blocks in use, in memory.
//!
//! A sum is changed in memory when its block is written, and its sector before the file is synced: the first copy with
//! that sync, the second with the next one, so that one write of the drive cannot take both.
//!
//! Assumes that blocks which a reader could reach are not overwritten before nobody can reach them (redb's way): the
//! sums of those are the same in a sector's old and new state, so that power loss may leave either.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::twin::Twin;
use super::{SUMS_PER_SECTOR, sector_places};
use crate::world::File;

/// See the module head.
#[derive(Debug)]
pub(super) struct Sums {
    held: BTreeMap<u64, Twin>,
    /// How many sectors may be held that are as they were read.
    most: usize,
    /// Sectors that were changed since their first copy was written.
    changed: BTreeSet<u64>,
    /// Those whose second copy is older than the first.
    second_due: BTreeSet<u64>,
}

impl Sums {
    /// Of a file of which nothing was read; keeps about `most` sectors in memory.
    pub(super) fn new(most: usize) -> Sums {
        Sums { held: BTreeMap::new(), most, changed: BTreeSet::new(), second_due: BTreeSet::new() }
    }

    /// The sum of a block that the file is long enough for; zero if it was never written.
    pub(super) fn get(&mut self, file: &dyn File, block: u64) -> io::Result<u32> {
        let (number, at) = place_in_sector(block);
        let bytes = &self.sector(file, number)?.content[at..at + 4];
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Notes the sum of a block that was written.
    pub(super) fn set(&mut self, file: &dyn File, block: u64, sum: u32) -> io::Result<()> {
        let (number, at) = place_in_sector(block);
        self.sector(file, number)?.content[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        self.changed.insert(number);
        Ok(())
    }

    /// Writes what has to be written with the next sync.
    pub(super) fn write(&mut self, file: &dyn File) -> io::Result<()> {
        for number in self.second_due.difference(&self.changed) {
            if let Some(sector) = self.held.get(number) {
                sector.write(file, sector_places(*number)[1])?;
            }
        }
        for number in &self.changed {
            if let Some(sector) = self.held.get_mut(number) {
                sector.change();
                sector.write(file, sector_places(*number)[0])?;
            }
        }
        self.second_due = std::mem::take(&mut self.changed);
        Ok(())
    }

    /// Forgets the sectors of which all blocks lie behind the first `blocks`. What is left of cut blocks in the last
    /// sector fits nothing that is written there later.
    pub(super) fn cut(&mut self, blocks: u64) {
        let gone = blocks.div_ceil(SUMS_PER_SECTOR);
        self.held.split_off(&gone);
        self.changed.split_off(&gone);
        self.second_due.split_off(&gone);
    }

    fn sector(&mut self, file: &dyn File, number: u64) -> io::Result<&mut Twin> {
        if self.held.len() >= self.most && !self.held.contains_key(&number) {
            let (changed, second_due) = (&self.changed, &self.second_due);
            self.held.retain(|number, _| changed.contains(number) || second_due.contains(number));
        }
        match self.held.entry(number) {
            Entry::Occupied(held) => Ok(held.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Twin::load(file, number, sector_places(number))?)),
        }
    }

    /// How many sectors are in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

/// The number of a block's sector, and where in it its sum is.
fn place_in_sector(block: u64) -> (u64, usize) {
    (block / SUMS_PER_SECTOR, (block % SUMS_PER_SECTOR) as usize * 4)
}
