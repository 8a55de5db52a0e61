//! Sums of blocks of rows that are stored beside the rows: one record for about 512 rows. The first reduction after a
//! start reads these records instead of all rows.
//!
//! Queries that have read rows write the records afterwards; a build never does. The commit that changes rows removes
//! the records of their blocks, and the view's header says that records are kept. A version that does not know of
//! records writes headers without that mark, which makes all records void. So records never differ from the rows: what
//! one commit wrote of rows, header and records is there as a whole after a crash, or not at all.
//!
//! Assumes that the writer of an index's rows holds the index's writer lock.

use std::ops::ControlFlow;

use super::keys::{self, Part};
use super::record::{Header, damaged};
use super::reduce::{Partial, Reduce};
use super::sums::{Block, Sums};
use super::{ShardError, ViewIndex};
use crate::limits;
use crate::shard::{ShardId, bounded_scan};
use crate::storage::{Direction, KeyRange, StorageError, View};
use crate::wire::codec::{CodecError, Reader, put_bool, put_bytes};
use crate::wire::message_pack;
use crate::world::Pool;

/// The form of the records, which the header names; another form of [`Partial`] is another one.
pub(super) const FORM: u64 = 1;

/// A block with the function that it is of and the place where it begins.
pub(super) type Found = (Reduce, Vec<u8>, Block);

/// What stands in the key behind [`Part::Sum`].
pub(super) fn key_of(tag: [u8; 2], start: &[u8]) -> Vec<u8> {
    [&tag, start].concat()
}

/// The record of a block; `None` for one that is too large to be worth it.
fn record((reduce, start, block): &Found) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut value = Vec::new();
    put_bool(&mut value, block.end.is_some());
    put_bytes(&mut value, block.end.as_deref().unwrap_or_default());
    value.extend(message_pack::encode(&block.sum));
    let is_small = value.len() <= limits::SUM_STORED_BYTES;
    reduce.tag().filter(|_| is_small).map(|tag| (key_of(tag, start), value))
}

fn parse(key: &[u8], value: &[u8]) -> Result<Found, StorageError> {
    let read = || {
        let (tag, start) = key.split_first_chunk::<2>().ok_or(CodecError::Truncated)?;
        let reduce = Reduce::of_tag(*tag).ok_or(CodecError::Invalid("function"))?;
        let mut reader = Reader::new(value);
        let (has_end, end) = (reader.bool()?, reader.bytes()?.to_vec());
        let sum: Partial = message_pack::decode(reader.rest()).map_err(|_| CodecError::Invalid("sum"))?;
        Ok((reduce, start.to_vec(), Block { end: has_end.then_some(end), sum, settled: true }))
    };
    read().map_err(damaged("sum"))
}

impl ViewIndex {
    fn sum_records(&self) -> KeyRange {
        KeyRange::prefix(&keys::key(self.replica.id(), self.definition.signature, Part::Sum, b""))
    }

    /// Takes in what is stored, once after each start.
    pub(super) async fn load_sums(&self) -> Result<(), ShardError> {
        let unread = |sums: &mut Sums| sums.is_unread().then(|| sums.moment());
        let Some(moment) = self.slot.sums(unread) else { return Ok(()) };
        let found = match self.header().await?.sums {
            FORM => match self.read_sums().await {
                Err(ShardError::Storage(StorageError::Corrupt(why))) => {
                    tracing::warn!(why, index = ?self, "stored sums of a view are made anew");
                    None
                }
                read => Some(read?),
            },
            _ => Some(Vec::new()),
        };
        self.slot.sums(|sums| sums.load(found, moment));
        Ok(())
    }

    async fn read_sums(&self) -> Result<Vec<Found>, ShardError> {
        let (mut found, mut rest) = (Vec::new(), Some(self.sum_records()));
        while let Some(range) = rest {
            let read = move |view: &dyn View, _: ShardId| {
                let mut some = Vec::new();
                let rest = bounded_scan(view, range, Direction::Forward, |key, value| {
                    some.push(parse(&key[keys::PREFIX..], value)?);
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok((some, rest))
            };
            let (some, next) = self.replica.read_records(Pool::Foreground, read).await?;
            found.extend(some);
            rest = next;
        }
        Ok(found)
    }

    /// Stores what queries have kept, if it is worth a commit, and does not wait for it.
    pub(super) fn store_sums_later(&self) {
        if self.slot.sums(Sums::begin_storing) {
            let index = self.clone();
            self.env.spawn(async move {
                if let Err(error) = index.store_sums().await {
                    tracing::debug!(%error, ?index, "sums of a view were not stored");
                }
            });
        }
    }

    /// Stores what queries have kept.
    pub(super) async fn store_sums(&self) -> Result<(), ShardError> {
        // No row changes meanwhile: what is kept is of the rows that there are.
        let _alone = self.slot.writer.lock().await;
        let Some(mut header) = self.stored_header().await?.filter(Header::can_keep_sums) else { return Ok(()) };
        self.load_sums().await?;
        if header.sums != FORM || !self.slot.sums(|sums| sums.knows_stored()) {
            // A header that names none needs no commit to say so.
            if header.sums != 0 {
                let Some(void) = self.write_sums(header, 0, Vec::new()).await? else { return Ok(()) };
                header = void;
            }
            self.replica.remove_records(self.sum_records()).await?;
            self.slot.sums(Sums::nothing_stored);
        }
        while self.slot.sums(|sums| sums.knows_stored()) {
            let some = self.slot.sums(|sums| sums.unsettled(limits::SUMS_PER_COMMIT));
            if some.is_empty() {
                break;
            }
            let records = some.iter().filter_map(record).collect();
            let Some(next) = self.write_sums(header, FORM, records).await? else { break };
            header = next;
            self.slot.sums(|sums| sums.settle(&some));
        }
        Ok(())
    }

    /// Writes records and a header that says that those of form `sums` are kept; answers that header, or nothing where
    /// another one is stored than `header`. Where it fails, what is stored is not known any more.
    async fn write_sums(
        &self,
        header: Header,
        sums: u64,
        records: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Option<Header>, ShardError> {
        let (shard, signature) = (self.replica.id(), self.definition.signature);
        let to = Header { sums, ..header };
        let written = self.replica.write_records(move |view| {
            let key = keys::key(shard, signature, Part::Header, b"");
            if view.get(&key)?.map(|bytes| Header::decode(&bytes)).transpose()? != Some(header) {
                return Ok(Err(()));
            }
            for (rest, value) in records {
                view.put(keys::key(shard, signature, Part::Sum, &rest), value);
            }
            view.put(key, to.encode());
            Ok(Ok(()))
        });
        match written.await {
            Ok(Ok(())) => {
                self.slot.change(|known| known.header = Some(to));
                Ok(Some(to))
            }
            failed => {
                self.slot.sums(Sums::lose_stored);
                failed.map(|_| None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::collate::Collator;
    use crate::index::record::{Row, RowRef};

    #[test]
    fn sums_of_all_functions_come_back() {
        let collator = Collator::new();
        let names = ["_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last", "_top_3", "_bottom_100"];
        let place = keys::place(b"sort", "id", 0);
        let stored = Row::encode(4, b"\"k\"", b"1.5");
        for name in names {
            let reduce = Reduce::parse(name);
            let mut sum = Partial::empty(&reduce, &collator).unwrap();
            sum.add(RowRef::decode(&place, &stored).unwrap()).unwrap();
            sum.settle();
            for end in [None, Some(b"end".to_vec())] {
                let block = Block { end, sum: sum.clone(), settled: true };
                let (key, value) = record(&(reduce.clone(), b"start".to_vec(), block.clone())).unwrap();
                let (of, start, back) = parse(&key, &value).unwrap();
                assert_eq!((of, start, back.end, back.sum.rows), (reduce.clone(), b"start".to_vec(), block.end, 1));
                assert_eq!(back.sum.finish().to_vec(), sum.clone().finish().to_vec(), "{name}");
            }
        }
        assert!(parse(b"\x01", b"").is_err() && parse(b"\xff\x00", b"\x00\x00").is_err());
        assert_eq!(Reduce::parse("function () {}").tag(), None);
    }
}
