//! Recovery reads of a damaged shard, for tools that copy what is readable to another place.
//!
//! Records of one kind are read in bounded steps, in the order of their keys, and a scan continues behind what cannot
//! be read. The shard's header is not needed.

use std::ops::ControlFlow;

use super::keys::{self, Kind};
use super::list::bounded_scan;
use super::record::{self, DocHead, SeqRecord, decode_register};
use super::{LocalRegister, Revision, ShardError, ShardReplica};
use crate::document::id::DocId;
use crate::storage::{Direction, KeyRange, StorageError, View, behind_gap};

/// Reads the records of one kind.
pub struct Salvage<'c, T> {
    replica: &'c ShardReplica,
    rest: Option<KeyRange>,
    read: Read<T>,
}

/// What a record tells, of its key and value.
type Read<T> = fn(&[u8], &[u8]) -> Result<T, StorageError>;

impl ShardReplica {
    /// The rows of changes: sequences and ids.
    pub fn recover_changes(&self) -> Salvage<'_, (u64, DocId)> {
        self.recover(Kind::Sequence, |key, value| Ok((keys::number_of(key)?, SeqRecord::decode(value)?.id)))
    }

    /// The documents in id order: the sequences of their last changes, and their ids.
    pub fn recover_documents(&self) -> Salvage<'_, (u64, DocId)> {
        self.recover(Kind::Document, |key, value| Ok((DocHead::decode(value)?.seq, keys::id_of(key)?)))
    }

    /// Local documents, with those that were deleted.
    pub fn recover_locals(&self) -> Salvage<'_, (DocId, LocalRegister)> {
        self.recover(Kind::Local, |key, value| Ok((keys::id_of(key)?, decode_register(value.to_vec())?)))
    }

    /// The purge log: documents and purged leaves.
    pub fn recover_purges(&self) -> Salvage<'_, (DocId, Vec<Revision>)> {
        self.recover(Kind::Purge, |_, value| record::PurgeRecord::decode(value).map(|purge| (purge.id, purge.revs)))
    }

    fn recover<T>(&self, kind: Kind, read: Read<T>) -> Salvage<'_, T> {
        Salvage { replica: self, rest: Some(keys::all(self.id(), kind)), read }
    }
}

impl<T: Send + 'static> Salvage<'_, T> {
    /// The next records, with `None` in the place of each part that cannot be read; `None` at the end.
    ///
    /// # Errors
    /// None for damage; those of a disk that cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<Option<T>>>, ShardError> {
        let Some(range) = self.rest.take() else { return Ok(None) };
        let read = self.read;
        let (rows, rest) = self.replica.read(move |view, _| step(view, range, read)).await?;
        self.rest = rest;
        Ok(Some(rows))
    }
}

type Step<T> = (Vec<Option<T>>, Option<KeyRange>);

fn step<T>(view: &dyn View, range: KeyRange, read: Read<T>) -> Result<Step<T>, StorageError> {
    let (mut rows, mut next) = (Vec::new(), range.start.clone());
    let scanned = bounded_scan(view, range.clone(), Direction::Forward, |key, value| {
        rows.push(read(key, value).ok());
        next.clear();
        next.extend_from_slice(key);
        next.push(0);
        Ok(ControlFlow::Continue(()))
    });
    match scanned {
        Ok(rest) => Ok((rows, rest)),
        Err(StorageError::Corrupt(_)) => {
            rows.push(None);
            let damaged = KeyRange { start: next, end: range.end };
            let behind = behind_gap(view, &damaged)?;
            Ok((rows, behind.map(|start| KeyRange { start, end: damaged.end })))
        }
        Err(error) => Err(error),
    }
}
