//! Block files: what comes back, and that no flipped bit does.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

/// A file in memory.
#[derive(Debug, Default)]
pub(in crate::storage) struct Bytes(Mutex<Vec<u8>>);

impl Bytes {
    pub(in crate::storage) fn get(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }
}

impl File for Bytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.get().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.get();
        let found = bytes.get(offset as usize..offset as usize + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.get();
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.get().resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

pub(in crate::storage) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|n| (n * 7 + n / 251) as u8).collect()
}

fn written(kind: Kind, pieces: &[usize]) -> (Arc<Bytes>, Vec<u8>) {
    let raw = Arc::new(Bytes::default());
    let file = BlockFile::create(Arc::clone(&raw) as Arc<dyn File>, kind).unwrap();
    let mut all = Vec::new();
    for piece in pieces {
        let data = pattern(all.len(), *piece);
        file.write_at(all.len() as u64, &data).unwrap();
        all.extend(data);
    }
    (raw, all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_appended_comes_back_whole_and_by_range(
        pieces in prop::collection::vec(1usize..9000, 1..8), from in 0usize..20_000, len in 0usize..9000,
    ) {
        let (raw, all) = written(Kind::Blob, &pieces);
        let file = BlockFile::open(raw, Kind::Blob).unwrap();
        prop_assert_eq!(file.len().unwrap(), all.len() as u64);
        prop_assert!(file.has_whole_length().unwrap());
        let mut out = vec![0; len];
        let read = file.read_at(from as u64, &mut out);
        match all.get(from..from + len) {
            Some(expected) => prop_assert_eq!(&out[..], expected),
            None => prop_assert!(len == 0 || read.is_err()),
        }
    }

    #[test]
    fn no_flipped_bit_of_a_file_is_served(
        pieces in prop::collection::vec(1usize..5000, 1..4), at in any::<u32>(), bit in 0u8..8,
    ) {
        let (raw, all) = written(Kind::Blob, &pieces);
        let at = at as usize % raw.get().len();
        raw.get()[at] ^= 1 << bit;
        let read = BlockFile::open(raw, Kind::Blob).and_then(|file| {
            let mut out = vec![0; all.len()];
            file.read_at(0, &mut out).map(|()| out)
        });
        prop_assert!(read.is_err());
    }
}

#[test]
fn a_store_overwrites_blocks_and_its_root_in_one_sector() {
    let raw = Arc::new(Bytes::default());
    let file = BlockFile::create(Arc::clone(&raw) as Arc<dyn File>, Kind::Store).unwrap();
    file.set_len(4 * BLOCK_BYTES as u64).unwrap();
    assert_eq!(file.len().unwrap(), 4 * BLOCK_BYTES as u64);
    file.write_at(0, b"root one").unwrap();
    file.write_at(0, b"root").unwrap();
    file.write_at(BLOCK_BYTES as u64, &pattern(0, 2 * BLOCK_BYTES)).unwrap();
    let mut out = [0; 8];
    file.read_at(0, &mut out).unwrap();
    assert_eq!(&out, b"root one");
    let mut page = vec![0; 2 * BLOCK_BYTES];
    file.read_at(BLOCK_BYTES as u64, &mut page).unwrap();
    assert_eq!(page, pattern(0, 2 * BLOCK_BYTES));
    // Never written: no zeros are made up.
    assert_eq!(file.read_at(3 * BLOCK_BYTES as u64, &mut page[..10]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(file.write_at(500, &[1; 20]).is_err());
    let sectors = raw.get()[HEAD_BYTES..HEAD_BYTES + STORED_BYTES].to_vec();
    assert!(sectors[512..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_block_in_the_place_of_another_is_damage() {
    let (raw, _) = written(Kind::Blob, &[3 * BLOCK_BYTES]);
    let first = raw.get()[HEAD_BYTES..HEAD_BYTES + STORED_BYTES].to_vec();
    raw.get()[HEAD_BYTES + STORED_BYTES..HEAD_BYTES + 2 * STORED_BYTES].copy_from_slice(&first);
    let file = BlockFile::open(raw, Kind::Blob).unwrap();
    let error = file.read_at(BLOCK_BYTES as u64, &mut [0; 10]).unwrap_err();
    assert_eq!(error.to_string(), "block 1 does not fit its checksum");
    file.read_at(2 * BLOCK_BYTES as u64, &mut [0; 10]).unwrap();
}

#[test]
fn a_damaged_head_and_another_kind_are_refused() {
    let (raw, _) = written(Kind::Blob, &[10]);
    assert!(BlockFile::open(Arc::clone(&raw) as Arc<dyn File>, Kind::Store).is_err());
    raw.get()[17] ^= 4;
    assert!(BlockFile::open(raw, Kind::Blob).is_err());
}

#[test]
fn what_was_cut_off_a_store_never_comes_back() {
    let block = BLOCK_BYTES as u64;
    let (raw, all) = written(Kind::Store, &[508]);
    assert_eq!(all.len(), 508);
    let file = BlockFile::open(Arc::clone(&raw) as Arc<dyn File>, Kind::Store).unwrap();
    file.set_len(5 * block).unwrap();
    let data = pattern(3, 4 * BLOCK_BYTES);
    file.write_at(block, &data).unwrap();
    file.set_len(3 * block).unwrap();
    assert_eq!((file.len().unwrap(), file.has_whole_length().unwrap()), (3 * block, true));
    let again = BlockFile::open(raw, Kind::Store).unwrap();
    let (mut kept, mut cut) = (vec![0; 2 * BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    again.read_at(block, &mut kept).unwrap();
    assert_eq!(kept, data[..2 * BLOCK_BYTES]);
    assert_eq!(again.read_at(3 * block, &mut cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    again.set_len(5 * block).unwrap();
    assert_eq!(again.read_at(3 * block, &mut cut).unwrap_err().kind(), io::ErrorKind::InvalidData);
    again.write_at(3 * block, &data[..BLOCK_BYTES]).unwrap();
    again.read_at(3 * block, &mut cut).unwrap();
    assert_eq!(cut, data[..BLOCK_BYTES]);
}
