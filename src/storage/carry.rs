//! What cannot be flushed is carried forward in the journal, so that it does not hold back all that came after it.
//!
//! A damaged file of a single shard cannot be flushed to. What was committed to it stays in memory and in the journal
//! until the shard is rebuilt, and for that its data are written once more, through the same journal: more than the
//! journal has room for, where the shard is large. So when the journal is full, the writes that wait for the damaged
//! file are appended to it again, behind everything else, and the segments before them are released. A crash between
//! the two replays them twice, which changes nothing.

use super::journal::{Journal, Position};
use super::kv::{Batch, StorageError};
use super::layered::LayeredStore;
use super::layout::FileId;
use super::memtable::Memtable;
use super::tables::{Budget, Layer, Tables};
use crate::limits;

impl LayeredStore {
    /// Carries forward what holds the journal back. Blocks, and commits wait meanwhile. Answers whether it is to be
    /// called again, after a pause: for want of descriptors. Any other failure ends the writes of the node.
    pub(super) fn carry_forward(&self) -> bool {
        match self.carry() {
            Ok(()) => {}
            Err(StorageError::NoFiles(_)) => return true,
            Err(error) => {
                tracing::error!(%error, "the journal could not be written: this node takes no more writes until a restart");
                self.tables().failed = Some(error);
            }
        }
        self.room.send_modify(|n| *n += 1);
        // Another file may hold the journal back now.
        self.freeze_due();
        false
    }

    fn carry(&self) -> Result<(), StorageError> {
        let mut journal = self.journal();
        let (settled, file, layers) = {
            let mut tables = self.tables();
            let Some(file) = tables.holds_back(&self.budget) else { return Ok(()) };
            (tables.settled(journal.end(), self.planted), file, tables.picture(file, None).0)
        };
        // Else it was appended before, and there was no descriptor for the next segment.
        if !journal.can_release(settled) {
            let mut rows = layers.frozen.map_or_else(Memtable::default, |layer| layer.rows);
            rows.add(&layers.active.rows);
            let positions = append(&mut journal, &rows)?;
            tracing::info!(
                file = file.name(),
                bytes = rows.bytes(),
                "what a damaged file lacks is in the journal again"
            );
            let mut tables = self.tables();
            tables.end_group(positions.1, journal.closed_bytes());
            tables.carried(file, Layer::of(rows, positions));
        }
        self.checkpoint(&mut journal)
    }
}

/// Writes rows in groups of bounded size; answers the first and the last position.
fn append(journal: &mut Journal, rows: &Memtable) -> Result<(Position, Position), StorageError> {
    let (mut first, mut batch) = (None, Batch::new());
    for (key, value) in rows.all() {
        match value {
            Some(value) => batch.put(key.to_vec(), value.to_vec()),
            None => batch.delete(key.to_vec()),
        }
        if batch.bytes() >= limits::JOURNAL_CARRY_BYTES {
            let position = journal.append(&std::mem::take(&mut batch))?;
            first.get_or_insert(position);
        }
    }
    let last = journal.append(&batch)?;
    Ok((first.unwrap_or(last), last))
}

impl Tables {
    /// The damaged file whose writes keep a full journal from being released. None where all that waits for such files
    /// would fill the journal by itself.
    pub(super) fn holds_back(&self, budget: &Budget) -> Option<FileId> {
        let most = budget.journal_beside_damage();
        if self.journal_bytes < most {
            return None;
        }
        let held = self.held_back()? as u64;
        self.oldest_stuck().filter(|_| held + budget.segment <= most).map(|(file, _)| file)
    }

    /// What waits for a file is in the journal as `layer` now; nothing where the file was put away meanwhile.
    fn carried(&mut self, file: FileId, layer: Layer) {
        let Some(table) = self.stuck_table(file) else { return };
        (table.frozen, table.active) = (Some(layer), Layer::default());
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::Notes;
    use super::super::layout::Layout;
    use super::*;

    /// Tables of the size of a node, the journal full, with so many megabytes for each of some damaged files.
    fn full(megabytes: &[usize]) -> (Tables, Budget) {
        let (budget, shards) = (Budget::new(limits::MEMTABLE_FLUSH_BYTES), 1..=megabytes.len() as u64);
        let own: Vec<FileId> = shards.clone().map(FileId::Own).collect();
        let mut tables = Tables::new(Layout { common: 1, old: 0 }, &own, &Notes::default());
        for (shard, megabytes) in shards.zip(megabytes) {
            let key = [&shard.to_be_bytes()[..], b"k"].concat();
            tables.write(shard, &key, Some(&vec![0; megabytes << 20]));
            assert!(tables.set_stuck(shard, StorageError::Corrupt("damaged".into())));
        }
        tables.journal_bytes = budget.journal_beside_damage();
        (tables, budget)
    }

    #[test]
    fn what_a_full_shard_waits_with_is_carried_at_the_size_of_a_node() {
        let most = (limits::MEMTABLE_FLUSH_BYTES * (1 + limits::MEMTABLE_STALL_FACTOR)) >> 20;
        let (mut tables, budget) = full(&[most]);
        assert!(tables.refuses(1, &budget).is_some(), "it takes no more");
        assert_eq!(tables.holds_back(&budget), Some(FileId::Own(1)));
        assert!(!tables.gives_up(&budget));
        tables.journal_bytes -= 1;
        assert!(tables.holds_back(&budget).is_none(), "there is room");
    }

    #[test]
    fn files_that_would_fill_the_journal_together_are_not_written_again_and_again() {
        let (mut tables, budget) = full(&[30, 30, 30]);
        assert!(tables.holds_back(&budget).is_none());
        assert!(tables.gives_up(&budget));
    }
}
