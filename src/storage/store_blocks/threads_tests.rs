//! Store files read by threads beside commits: a model of their interleavings.

use shuttle::thread;

use super::tests::{commit, page, root};
use super::*;
use crate::world::lock;
use crate::world::model::{check, check_finds};
use crate::world::sync::Mistake;

/// Blocks that a commit writes, as many sectors of sums apart: more than are in memory.
const SECTORS: u64 = 3;
const COMMITS: u64 = 2;

/// A file in memory, each of whose operations is a turn of its thread.
#[derive(Debug, Default)]
struct Turns(Mutex<Vec<u8>>);

impl File for Turns {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = lock(&self.0);
        let found = bytes.get(offset as usize..offset as usize + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = lock(&self.0);
        let end = bytes.len().max(offset as usize + data.len());
        bytes.resize(end, 0);
        bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        lock(&self.0).resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A store file of which one sector of sums, or two, are in memory.
fn open_with_few_sums() -> Arc<StoreBlocks> {
    let raw = StoreBlocks::create(Arc::new(Turns::default())).unwrap();
    let file = StoreBlocks { sums: Sums::new(1), ..raw };
    file.set_len(SECTORS * SUMS_PER_SECTOR * PAGE).unwrap();
    Arc::new(file)
}

/// What commit `number` writes in a sector's blocks.
fn block_of(number: u64, sector: u64) -> u64 {
    sector * SUMS_PER_SECTOR + number
}

fn blocks_of(number: u64) -> Vec<u64> {
    (0..SECTORS).map(|sector| block_of(number, sector)).collect()
}

/// Reads what the root refers to, sector by sector, and of each once more by the root of then: sums that came from the
/// file are in memory by that time.
fn read_all(file: &StoreBlocks) {
    for sector in (0..2 * SECTORS).map(|nth| nth / 2) {
        for number in 1..=root(file) {
            let (block, mut found) = (block_of(number, sector), vec![0; BLOCK_BYTES]);
            file.read_at(block * PAGE, &mut found).unwrap_or_else(|error| panic!("block {block}: {error}"));
            assert!(found == page(block, number), "block {block} is not what commit {number} wrote");
        }
    }
}

fn reads_beside_commits() {
    let file = open_with_few_sums();
    commit(file.as_ref(), &blocks_of(1), 1);
    let writer = {
        let file = Arc::clone(&file);
        thread::spawn(move || (2..=COMMITS).for_each(|number| commit(file.as_ref(), &blocks_of(number), number)))
    };
    let reader = {
        let file = Arc::clone(&file);
        thread::spawn(move || read_all(&file))
    };
    read_all(&file);
    writer.join().unwrap();
    reader.join().unwrap();
    assert_eq!(root(file.as_ref()), COMMITS);
    read_all(&file);
}

#[test]
fn a_block_that_a_root_refers_to_fits_its_sum_whatever_threads_do() {
    check(reads_beside_commits);
}

#[test]
fn the_model_of_store_files_finds_sums_that_were_read_before_they_were_written() {
    check_finds(Mistake::SumsReadBeforeWrite, reads_beside_commits);
}
