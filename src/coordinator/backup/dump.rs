//! Dump: a database as one stream. Damaged records are left out and named; the scan continues behind them.
//!
//! Documents are found by their rows of changes; documents whose rows cannot be read are found by their ids. Assumes
//! that nothing is written meanwhile.

use std::fmt;
use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::coordinator::backup::item::{self, DocumentItem, EndItem, SettingsItem};
use crate::coordinator::backup::read::{self, Found};
use crate::coordinator::backup::{BackupError, Counts, frame};
use crate::coordinator::replica::database::Database;
use crate::coordinator::topology::record;
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::limits;
use crate::shard::ShardReplica;
use crate::storage::{BlobReader, ReadAs};

/// Something that a dump had to leave out, because it is damaged if nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// A document.
    Document(DocId),
    /// Documents of a range of which not even the names can be read; how many, if its counters can.
    Unnamed(usize, Option<u64>),
    /// A part of the local documents of a range.
    Locals(usize),
    /// A part of the purge log of a range.
    Purges(usize),
    /// Superseded instances of the database until it is written into it (`superseded`): nothing of that is damaged.
    Superseded,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeftOut::Document(id) => write!(f, "{:?}", id.as_str()),
            LeftOut::Unnamed(range, Some(documents)) => {
                write!(f, "{documents} documents of range {range} of which not even the names can be read")
            }
            LeftOut::Unnamed(range, None) => {
                write!(f, "documents of range {range} of which not even the names can be read; how many is not known")
            }
            LeftOut::Locals(range) => write!(f, "a part of the local documents of range {range}"),
            LeftOut::Purges(range) => write!(f, "a part of the purge log of range {range}"),
            LeftOut::Superseded => f.write_str("documents that are not written into the database yet: start the node"),
        }
    }
}

/// Writes `database` to `out`, which may block. What is damaged is left out, counted, and named to `left_out`.
///
/// # Errors
/// [`BackupError::Io`] of `out`; [`BackupError::Shard`] of a disk that cannot be read.
pub async fn dump(
    database: &Arc<Database>,
    out: &mut (dyn Write + Send),
    left_out: &mut (dyn FnMut(LeftOut) + Send),
) -> Result<Counts, BackupError> {
    let out = Hashed { out, hash: blake3::Hasher::new() };
    let mut dump = Dump { out, counts: Counts::default(), left_out };
    frame::write_head(&mut dump.out)?;
    frame::write(&mut dump.out, item::SETTINGS, &settings(database).encode())?;
    if !database.context.rows(&record::superseded_key(&database.name, "")).await?.is_empty() {
        dump.leave_out(LeftOut::Superseded);
    }
    for range in database.ranges() {
        let replica = &database.replicas().own_shard_or_remains(range).await?;
        dump.documents(replica, range).await?;
        dump.locals(replica, range).await?;
        dump.purges(replica, range).await?;
    }
    let Dump { mut out, counts, .. } = dump;
    let hash = out.hash.finalize().to_hex().to_string();
    let Counts { documents, locals, purges, .. } = counts;
    frame::write(&mut out, item::END, &EndItem { documents, locals, purges, hash }.encode())?;
    out.flush()?;
    Ok(counts)
}

/// What a database is made with.
pub(super) fn settings(database: &Arc<Database>) -> SettingsItem {
    SettingsItem {
        name: database.name.clone(),
        q: database.map().q() as u32,
        partitioned: database.map().partitioned,
        revs_limit: database.revs_limit(),
        purged_infos_limit: database.purged_infos_limit(),
        auto_purge: database.known.auto_purge().map(|period| period.to_string()),
        expires_at: database.known.expires_at().map(|member| member.to_string()),
        security: database.security(),
    }
}

struct Dump<'o> {
    out: Hashed<'o>,
    counts: Counts,
    left_out: &'o mut (dyn FnMut(LeftOut) + Send),
}

impl Dump<'_> {
    fn leave_out(&mut self, what: LeftOut) {
        self.counts.skipped += if let LeftOut::Unnamed(_, Some(documents)) = what { documents } else { 1 };
        (self.left_out)(what);
    }

    async fn documents(&mut self, replica: &ShardReplica, range: usize) -> Result<(), BackupError> {
        let before = self.counts.documents + self.counts.skipped;
        let (mut gaps, mut changes) = (Gaps::default(), replica.recover_changes());
        while let Some(rows) = changes.next().await? {
            let rows: Vec<(u64, DocId)> = rows.into_iter().filter_map(|row| gaps.note(row)).collect();
            self.documents_of(replica, &rows).await?;
        }
        gaps.close(u64::MAX);
        if gaps.closed.is_empty() {
            return Ok(());
        }
        let mut documents = replica.recover_documents();
        while let Some(rows) = documents.next().await? {
            let rows: Vec<(u64, DocId)> = rows.into_iter().flatten().filter(|(seq, _)| gaps.hold(*seq)).collect();
            self.documents_of(replica, &rows).await?;
        }
        let named = self.counts.documents + self.counts.skipped - before;
        match replica.info().await.ok().map(|info| info.doc_count + info.doc_del_count) {
            Some(documents) if documents <= named => {}
            documents => self.leave_out(LeftOut::Unnamed(range, documents.map(|documents| documents - named))),
        }
        Ok(())
    }

    /// Writes the documents of rows of changes.
    async fn documents_of(&mut self, replica: &ShardReplica, rows: &[(u64, DocId)]) -> Result<(), BackupError> {
        for rows in rows.chunks(limits::PAGE_DOCS) {
            let found = read::documents(replica, rows).await?;
            for ((_, id), found) in rows.iter().zip(found) {
                let whole = match found {
                    Found::Whole(document) => self.document(replica, &document).await?,
                    // Nobody changes it: its record or its row is not what it was.
                    Found::Changed | Found::Damaged => false,
                };
                if !whole {
                    self.leave_out(LeftOut::Document(id.clone()));
                }
            }
        }
        Ok(())
    }

    /// Writes a document; false where an attachment of it is damaged.
    async fn document(&mut self, replica: &ShardReplica, document: &DocumentItem) -> Result<bool, BackupError> {
        // With one that is damaged they are unfinished: readers leave those out.
        for attachment in document.contents() {
            let reader = replica.blob_reader(attachment, ReadAs::Stored, None);
            match write_content(reader, &document.id, attachment, &mut self.out).await {
                Ok(()) => {}
                Err(BackupError::Shard(error)) if error.is_damage() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        frame::write(&mut self.out, item::DOCUMENT, &document.encode())?;
        self.counts.documents += 1;
        Ok(true)
    }

    async fn locals(&mut self, replica: &ShardReplica, range: usize) -> Result<(), BackupError> {
        let mut locals = replica.recover_locals();
        while let Some(rows) = locals.next().await? {
            for row in rows {
                match row.map(|(id, register)| (id, register.document)) {
                    Some((id, Some(local))) => {
                        frame::write(&mut self.out, item::LOCAL, &item::encode_local(&id, local.rev, &local.body))?;
                        self.counts.locals += 1;
                    }
                    // The mark of a deletion.
                    Some((_, None)) => {}
                    None => self.leave_out(LeftOut::Locals(range)),
                }
            }
        }
        Ok(())
    }

    async fn purges(&mut self, replica: &ShardReplica, range: usize) -> Result<(), BackupError> {
        let mut purges = replica.recover_purges();
        while let Some(rows) = purges.next().await? {
            for row in rows {
                match row {
                    // Of what was collected, for indexes only.
                    Some((_, revs)) if revs.is_empty() => {}
                    Some((id, revs)) => {
                        frame::write(&mut self.out, item::PURGE, &item::encode_purge(&id, &revs))?;
                        self.counts.purges += 1;
                    }
                    None => self.leave_out(LeftOut::Purges(range)),
                }
            }
        }
        Ok(())
    }
}

/// Sequences whose rows cannot be read.
#[derive(Default)]
struct Gaps {
    closed: Vec<RangeInclusive<u64>>,
    /// Where a gap began whose end is not known yet.
    open: Option<u64>,
    /// Behind the last row that was read.
    next: u64,
}

impl Gaps {
    /// Applies the next row, or a part that cannot be read; hands the row on.
    fn note(&mut self, row: Option<(u64, DocId)>) -> Option<(u64, DocId)> {
        match &row {
            Some((seq, _)) => {
                self.close(seq.saturating_sub(1));
                self.next = seq + 1;
            }
            None => self.open = self.open.or(Some(self.next)),
        }
        row
    }

    fn close(&mut self, last: u64) {
        self.closed.extend(self.open.take().map(|first| first..=last));
    }

    fn hold(&self, seq: u64) -> bool {
        self.closed.iter().any(|gap| gap.contains(&seq))
    }
}

/// Writes an attachment content of a document: an unfinished one, where it cannot be read.
pub(super) async fn write_content(
    mut reader: BlobReader,
    id: &DocId,
    attachment: &Attachment,
    out: &mut (dyn Write + Send),
) -> Result<(), BackupError> {
    let head = item::encode_content(id, &attachment.blob, attachment.stored_length);
    frame::write(out, item::CONTENT, &head)?;
    while let Some(bytes) = reader.next().await? {
        frame::write(out, item::BYTES, &bytes)?;
    }
    Ok(())
}

/// A writer that hashes what goes through it.
struct Hashed<'o> {
    out: &'o mut (dyn Write + Send),
    hash: blake3::Hasher,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
