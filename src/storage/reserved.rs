//! The shard number that is the store's own, what is kept below it, and how keys belong to shards.
//!
//! ```text
//!   ff*8 'h'              journal only: what each file holds durably at least, see held.rs
//!   ff*8 'p' file name    journal only: the file holds its shards' groups durably up to this position, u64
//!   ff*8 'r'              journal only: every file does, up to this position, u64
//!   ff*8 'x' shard u64    journal only: all that was written to the shard before this group is void
//!   ff*8 's' shard u64    in a common file: about how large the shard is, in sixteenths of what earns it a file, u64
//!   ff*8 ff               in a store file: the last position that it holds, u64
//! ```

use super::kv::{KeyRange, StorageError};

/// The last shard number: no shard of a database ever has it.
pub(super) const SHARD: u64 = u64::MAX;
/// Where a store file keeps the position up to which it holds everything: above all other keys.
pub(super) const POSITION_KEY: &[u8] = &[0xff; 9];

const HELD: u8 = b'h';
const FILE: u8 = b'p';
const RELEASED: u8 = b'r';
const CLEARED: u8 = b'x';
const SIZE: u8 = b's';

/// The shard that a key belongs to: its first eight bytes, as a number; shorter keys count as filled up with zeros.
pub(super) fn shard_of(key: &[u8]) -> u64 {
    let mut number = [0; 8];
    let len = key.len().min(8);
    number[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(number)
}

/// The least key that can belong to a shard.
pub(super) fn lowest(shard: u64) -> Vec<u8> {
    let bytes = shard.to_be_bytes();
    let len = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    bytes[..len].to_vec()
}

/// All keys of a shard.
pub(super) fn range_of(shard: u64) -> KeyRange {
    KeyRange { start: lowest(shard), end: shard.checked_add(1).map(lowest) }
}

fn key(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[0xff; 8], [kind].as_slice(), rest].concat()
}

/// Marks everything written to a shard so far as void.
pub(super) fn cleared_key(shard: u64) -> Vec<u8> {
    key(CLEARED, &shard.to_be_bytes())
}

/// The shard of a [`cleared_key`].
pub(super) fn cleared_shard(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(rest_of(key, CLEARED)?.try_into().ok()?))
}

/// Where a common file counts the size of a shard.
pub(super) fn size_key(shard: u64) -> Vec<u8> {
    key(SIZE, &shard.to_be_bytes())
}

/// Where the journal notes what each file holds at least.
pub(super) fn held_key() -> Vec<u8> {
    key(HELD, b"")
}

/// Where the journal notes the position of a file.
pub(super) fn file_key(name: &str) -> Vec<u8> {
    key(FILE, name.as_bytes())
}

/// The file name of a [`file_key`].
pub(super) fn file_name(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(rest_of(key, FILE)?).ok()
}

/// Where the journal notes the position up to which it is not needed.
pub(super) fn released_key() -> Vec<u8> {
    key(RELEASED, b"")
}

fn rest_of(key: &[u8], kind: u8) -> Option<&[u8]> {
    key.strip_prefix(&[0xff; 8])?.strip_prefix(&[kind])
}

/// A number as it is stored.
pub(super) fn number(bytes: &[u8]) -> Result<u64, StorageError> {
    let bytes = bytes.try_into();
    bytes.map(u64::from_be_bytes).map_err(|_| StorageError::Corrupt("a number of the store's own".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_lies_in_the_range_of_its_shard_only() {
        let keys: [&[u8]; 6] = [b"", &[1], &[0, 0, 0, 0, 0, 0, 0, 16, 1], &[0, 0, 0, 0, 0, 0, 1], &[0xfe; 9], &[0, 1]];
        for key in keys {
            let shard = shard_of(key);
            let inside = |range: KeyRange| range.start.as_slice() <= key && range.end.is_none_or(|end| key < &end[..]);
            assert!(inside(range_of(shard)), "{key:?}");
            assert!(!inside(range_of(shard + 1)) && (shard == 0 || !inside(range_of(shard - 1))), "{key:?}");
        }
    }

    #[test]
    fn keys_of_the_store_itself_are_read_as_they_were_made() {
        assert_eq!(cleared_shard(&cleared_key(7)), Some(7));
        assert_eq!(file_name(&file_key("0.redb")), Some("0.redb"));
        assert_eq!(cleared_shard(&size_key(7)), None);
        assert_eq!(shard_of(&released_key()), SHARD);
        assert!(size_key(u64::MAX).as_slice() < POSITION_KEY);
    }
}
