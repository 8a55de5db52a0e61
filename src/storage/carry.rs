//! What cannot be flushed is carried forward in the journal, so that it does not hold back all that came after it.
//!
//! A damaged file of a single shard cannot be flushed to. What was committed to it stays in memory and in the journal
//! until the shard is rebuilt, and for that its data are written once more, through the same journal: more than the
//! journal has room for, where the shard is large. So when the journal is full, the writes that wait for the damaged
//! file are appended to it again, behind everything else, and the segments before them are released. A crash between
//! the two replays them twice, which changes nothing.

use super::journal::Position;
use super::kv::{Batch, StorageError};
use super::layered::LayeredStore;
use super::layout::FileId;
use super::memtable::{Entry, Memtable};
use super::tables::{Budget, FileTable, Layer, Tables};
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
        let Some((file, rows)) = self.tables().to_carry(&self.budget) else { return Ok(()) };
        let (mut first, mut batch) = (None, Batch::new());
        let mut append = |batch: Batch| {
            let position = journal.append(&batch)?;
            first.get_or_insert(position);
            Ok::<_, StorageError>(position)
        };
        for (key, value) in rows.all() {
            match value {
                Some(value) => batch.put(key.to_vec(), value.to_vec()),
                None => batch.delete(key.to_vec()),
            }
            if batch.bytes() >= limits::JOURNAL_CARRY_BYTES {
                append(std::mem::take(&mut batch))?;
            }
        }
        let last = append(batch)?;
        let bytes = rows.bytes();
        {
            let mut tables = self.tables();
            tables.end_group(last, journal.closed_bytes());
            tables.carried(file, rows, (first.unwrap_or(last), last));
        }
        tracing::info!(file = file.name(), bytes, "what a damaged file lacks was written to the journal again");
        self.checkpoint(&mut journal)
    }
}

impl Tables {
    /// The damaged file whose writes keep a full journal from being released, and are few enough to be written again.
    pub(super) fn holds_back(&self, budget: &Budget) -> Option<(FileId, &FileTable)> {
        let (_, journal) = self.limits(budget);
        let is_full = self.journal_bytes >= journal;
        self.oldest_stuck().filter(|(_, table)| is_full && table.bytes() as u64 <= budget.journal)
    }

    /// That file, with all that waits for it.
    fn to_carry(&self, budget: &Budget) -> Option<(FileId, Memtable)> {
        let (file, table) = self.holds_back(budget)?;
        let mut scratch = Vec::new();
        let mut rows = table.frozen.as_ref().map_or_else(Memtable::default, |layer| layer.rows.clone());
        for (key, value) in table.active.rows.all() {
            rows.set(Entry::new(key, value, &mut scratch));
        }
        Some((file, rows))
    }

    /// What waits for a file is in the journal at these positions now; nothing where the file was put away meanwhile.
    fn carried(&mut self, file: FileId, rows: Memtable, (first, last): (Position, Position)) {
        let Some(table) = self.stuck_table(file) else { return };
        table.frozen = Some(Layer::of(rows, (first, last)));
        table.active = Layer::default();
    }
}
