//! Memtable: committed writes that a store file does not have yet, in key order. A clone costs nothing.
//!
//! An entry is one reference-counted allocation that holds key and value together, so that the tree's nodes hold one
//! pointer for each: half of the memory that separate allocations would take. A value that is a part of something
//! larger stays there.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdSet;

use super::kv::{Direction, KeyRange, Rows, Written};
use super::overlay::{Write, Writes, bounds};
use crate::limits;

/// A write.
#[derive(Clone)]
pub(super) enum Entry {
    /// Length of the key with the mark of a removal, key, value.
    Together(Arc<[u8]>),
    /// A key, and a value that stays where it is.
    Apart(Arc<(Vec<u8>, Bytes)>),
}

const HEAD: usize = 4;
const REMOVAL: u32 = 1 << 31;

impl Entry {
    /// Of a write of a batch; see [`Entry::new`].
    pub(super) fn of(key: &[u8], value: Option<&Written>, scratch: &mut Vec<u8>) -> Entry {
        match value {
            Some(Written::Shared(value)) => Entry::Apart(Arc::new((key.to_vec(), value.clone()))),
            value => Entry::new(key, value.map(|value| &**value), scratch),
        }
    }

    /// `scratch`: a buffer that the caller keeps, so that an entry costs one allocation. A large value is not copied
    /// into it first.
    pub(super) fn new(key: &[u8], value: Option<&[u8]>, scratch: &mut Vec<u8>) -> Entry {
        // Invariant: a key is at most a document id or a view's key, far below 2 GB.
        let length = u32::try_from(key.len()).ok().filter(|l| l & REMOVAL == 0).expect("a key fits an entry");
        let head = if value.is_none() { length | REMOVAL } else { length };
        if value.is_some_and(|value| value.len() >= limits::MEMTABLE_SCRATCH_BYTES) {
            let (head, value) = (head.to_le_bytes(), value.unwrap_or_default());
            return Entry::Together(head.iter().chain(key).chain(value).copied().collect());
        }
        scratch.clear();
        scratch.extend_from_slice(&head.to_le_bytes());
        scratch.extend_from_slice(key);
        scratch.extend_from_slice(value.unwrap_or_default());
        Entry::Together(scratch.as_slice().into())
    }

    pub(super) fn key(&self) -> &[u8] {
        match self {
            Entry::Together(bytes) => {
                let length = (head_of(bytes) & !REMOVAL) as usize;
                &bytes[HEAD..HEAD + length]
            }
            Entry::Apart(row) => &row.0,
        }
    }

    fn row(&self) -> (&[u8], Option<&[u8]>) {
        match self {
            Entry::Together(bytes) => {
                let head = head_of(bytes);
                let (key, value) = bytes[HEAD..].split_at((head & !REMOVAL) as usize);
                (key, (head & REMOVAL == 0).then_some(value))
            }
            Entry::Apart(row) => (&row.0, Some(&row.1)),
        }
    }

    /// Bytes of memory that it takes, with its share of a tree node.
    fn cost(&self) -> usize {
        let bytes = match self {
            Entry::Together(bytes) => bytes.len(),
            Entry::Apart(row) => row.0.len() + row.1.len(),
        };
        bytes + limits::MEMTABLE_ENTRY_BYTES
    }
}

fn head_of(entry: &[u8]) -> u32 {
    let mut head = [0; HEAD];
    head.copy_from_slice(&entry[..HEAD]);
    u32::from_le_bytes(head)
}

impl Borrow<[u8]> for Entry {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

/// See the module head.
#[derive(Clone, Default)]
pub(super) struct Memtable {
    rows: OrdSet<Entry>,
    bytes: usize,
}

impl Memtable {
    /// Sets or removes a key.
    pub(super) fn set(&mut self, entry: Entry) {
        self.bytes += entry.cost();
        if let Some(old) = self.rows.insert(entry) {
            self.bytes -= old.cost();
        }
    }

    /// Sets and removes what `later` does.
    pub(super) fn add(&mut self, later: &Memtable) {
        later.rows.iter().cloned().for_each(|entry| self.set(entry));
    }

    /// Takes all rows of a range out.
    pub(super) fn take_range(&mut self, range: &KeyRange) -> Memtable {
        let mut taken = Memtable::default();
        let inside: Vec<Entry> = self.rows.range::<_, [u8]>(bounds(range)).cloned().collect();
        for entry in inside {
            self.rows.remove(entry.key());
            self.bytes -= entry.cost();
            taken.bytes += entry.cost();
            taken.rows.insert(entry);
        }
        taken
    }

    /// The rows of a range.
    pub(super) fn cut(&self, range: &KeyRange) -> Memtable {
        let rows: OrdSet<Entry> = self.rows.range::<_, [u8]>(bounds(range)).cloned().collect();
        let bytes = rows.iter().map(Entry::cost).sum();
        Memtable { rows, bytes }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All rows in key order.
    pub(super) fn all(&self) -> Rows<'_> {
        Box::new(self.rows.iter().map(Entry::row))
    }
}

impl Writes for Memtable {
    fn find(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.rows.get(key).map(|entry| entry.row().1)
    }

    fn rows<'t>(&'t self, range: &KeyRange, direction: Direction) -> Rows<'t> {
        // Many ranges have no row here: to look for one costs half of what an iterator does, which looks for both ends.
        let has_row = || self.rows.get_next(range.start.as_slice()).is_some_and(|row| range.contains(row.key()));
        if direction == Direction::Forward && !has_row() {
            return Box::new(std::iter::empty());
        }
        match direction {
            // The far end is met on the way.
            Direction::Forward => {
                let rows = self.rows.range::<_, [u8]>((Bound::Included(range.start.as_slice()), Bound::Unbounded));
                let end = range.end.clone();
                let is_inside = move |key: &[u8]| end.as_deref().is_none_or(|end| key < end);
                Box::new(rows.map(Entry::row).take_while(move |(key, _)| is_inside(key)))
            }
            Direction::Reverse => Box::new(self.rows.range::<_, [u8]>(bounds(range)).map(Entry::row).rev()),
        }
    }

    fn first(&self, range: &KeyRange, direction: Direction) -> Option<Write<'_>> {
        let row = match (direction, range.end.as_deref()) {
            (Direction::Forward, _) => self.rows.get_next(range.start.as_slice()),
            (Direction::Reverse, None) => self.rows.get_max(),
            (Direction::Reverse, Some(end)) => match self.rows.get_prev(end) {
                // The end itself is outside.
                Some(row) if row.key() == end => return self.rows(range, direction).next(),
                row => row,
            },
        };
        row.map(Entry::row).filter(|(key, _)| range.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_last_value_and_counts_once() {
        let (mut table, mut scratch) = (Memtable::default(), Vec::new());
        let mut set = |table: &mut Memtable, value: Option<&[u8]>| table.set(Entry::new(b"k", value, &mut scratch));
        set(&mut table, Some(b"first value"));
        set(&mut table, Some(b"second"));
        let once = table.bytes();
        set(&mut table, Some(b"second"));
        assert_eq!(table.bytes(), once);
        assert_eq!(table.find(b"k"), Some(Some(b"second".as_slice())));
        set(&mut table, None);
        assert_eq!(table.find(b"k"), Some(None));
        assert_eq!(table.find(b"j"), None);
        assert_eq!(table.all().count(), 1);
    }

    #[test]
    fn a_shared_value_stays_where_it_is_and_an_entry_takes_no_more_room_for_it() {
        assert_eq!(size_of::<Entry>(), size_of::<Arc<[u8]>>());
        let (mut table, mut scratch) = (Memtable::default(), Vec::new());
        let whole = Bytes::from(b"a value".repeat(3));
        let (shared, own) = (Written::Shared(whole.slice(7..14)), Written::Own(b"a value".to_vec()));
        assert_eq!(shared, own);
        table.set(Entry::of(b"k", Some(&own), &mut scratch));
        let bytes = table.bytes();
        table.set(Entry::of(b"k", Some(&shared), &mut scratch));
        assert!(table.bytes().abs_diff(bytes) <= HEAD);
        let found = table.find(b"k").unwrap().unwrap();
        assert_eq!((found, found.as_ptr()), (b"a value".as_slice(), whole[7..].as_ptr()));
        let taken = table.take_range(&KeyRange::new(b"k".to_vec(), b"l".to_vec()));
        assert_eq!((table.bytes(), taken.all().count()), (0, 1));
        table.set(Entry::of(b"k", None, &mut scratch));
        assert_eq!(table.find(b"k"), Some(None));
    }

    #[test]
    fn a_copy_keeps_its_picture_and_a_range_moves_as_a_whole() {
        let (mut table, mut scratch) = (Memtable::default(), Vec::new());
        for key in 0u8..100 {
            table.set(Entry::new(&[key], Some(&[key]), &mut scratch));
        }
        let (copy, all) = (table.clone(), table.bytes());
        let taken = table.take_range(&KeyRange::new(vec![10], vec![20]));
        assert_eq!((taken.all().count(), table.all().count(), copy.all().count()), (10, 90, 100));
        assert_eq!(taken.bytes() + table.bytes(), all);
        assert_eq!(table.find(&[10]), None);
    }
}
