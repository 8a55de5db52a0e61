//! A database as one stream.

use std::io::Write;
use std::ops::Bound;

use crate::coordinator::backup::item::{self, EndItem, SettingsItem};
use crate::coordinator::backup::{BackupError, Counts, frame, read};
use crate::coordinator::database::Database;
use crate::document::id::DocId;
use crate::limits;
use crate::shard::ShardCopy;
use crate::storage::{Direction, ReadAs};

/// Writes `database` to `out`, which may block. Documents that are damaged are left out, counted, and named to
/// `skipped`.
///
/// # Errors
/// [`BackupError::Io`] of `out`; [`BackupError::Shard`] when the lists of documents cannot be read.
pub async fn dump(
    database: &Database,
    out: &mut (dyn Write + Send),
    skipped: &mut (dyn FnMut(&DocId) + Send),
) -> Result<Counts, BackupError> {
    let mut out = Hashed { out, hash: blake3::Hasher::new() };
    let mut counts = Counts::default();
    frame::write_head(&mut out)?;
    frame::write(&mut out, item::SETTINGS, &settings(database).encode())?;
    for index in database.ranges() {
        let copy = &database.own_shard(index).await?;
        let mut since = 0;
        loop {
            let page = read::page(copy, since).await?;
            for (_, document) in &page.documents {
                match write_contents(copy, document, &mut out, u64::MAX).await {
                    Ok(()) => frame::write(&mut out, item::DOCUMENT, &document.encode())?,
                    Err(BackupError::Damaged(_)) => {
                        skipped(&document.id);
                        counts.skipped += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                counts.documents += 1;
            }
            page.skipped.iter().for_each(&mut *skipped);
            counts.skipped += page.skipped.len() as u64;
            since = page.last_seq;
            if page.end {
                break;
            }
        }
        counts.locals += write_locals(copy, &mut out).await?;
        counts.purges += write_purges(copy, &mut out).await?;
    }
    let hash = out.hash.finalize().to_hex().to_string();
    let Counts { documents, locals, purges, .. } = counts;
    frame::write(&mut out, item::END, &EndItem { documents, locals, purges, hash }.encode())?;
    out.flush()?;
    Ok(counts)
}

/// What a database is made with.
pub(super) fn settings(database: &Database) -> SettingsItem {
    SettingsItem {
        name: database.name.clone(),
        q: database.map().q() as u32,
        partitioned: database.map().partitioned,
        revs_limit: database.revs_limit(),
        purged_infos_limit: database.purged_infos_limit(),
        security: database.security(),
    }
}

/// Writes the attachment contents of a document up to `max_bytes` each: all or, when one is damaged, an unfinished one
/// that readers leave out.
pub(super) async fn write_contents(
    copy: &ShardCopy,
    document: &item::DocumentItem,
    out: &mut (dyn Write + Send),
    max_bytes: u64,
) -> Result<(), BackupError> {
    for attachment in document.contents().into_iter().filter(|a| a.stored_length <= max_bytes) {
        let mut reader = copy.blob_reader(attachment, ReadAs::Stored, None);
        let head = item::encode_content(&document.id, &attachment.blob, attachment.stored_length);
        frame::write(out, item::CONTENT, &head)?;
        loop {
            match reader.next().await {
                Ok(Some(bytes)) => frame::write(out, item::BYTES, &bytes)?,
                Ok(None) => break,
                Err(crate::storage::StorageError::Corrupt(what)) => return Err(BackupError::Damaged(what)),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Writes all local documents of a range; answers how many.
pub(super) async fn write_locals(copy: &ShardCopy, out: &mut (dyn Write + Send)) -> Result<u64, BackupError> {
    let (mut start, mut count) = (Bound::Unbounded, 0);
    loop {
        let page = copy.local_list(start, Bound::Unbounded, Direction::Forward, limits::PAGE_DOCS).await?;
        for (id, local) in &page {
            frame::write(out, item::LOCAL, &item::encode_local(id, local.rev, &local.body))?;
        }
        count += page.len() as u64;
        match page.last() {
            Some((last, _)) if page.len() == limits::PAGE_DOCS => start = Bound::Excluded(last.clone()),
            _ => return Ok(count),
        }
    }
}

/// Writes the purge log of a range; answers how many entries.
pub(super) async fn write_purges(copy: &ShardCopy, out: &mut (dyn Write + Send)) -> Result<u64, BackupError> {
    let (mut since, mut count) = (0, 0);
    loop {
        let page = copy.purge_infos(since, limits::PAGE_DOCS).await?;
        for info in &page {
            frame::write(out, item::PURGE, &item::encode_purge(&info.id, &info.revs))?;
        }
        count += page.len() as u64;
        match page.last() {
            Some(last) if page.len() == limits::PAGE_DOCS => since = last.purge_seq,
            _ => return Ok(count),
        }
    }
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
