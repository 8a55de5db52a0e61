//! Store files: what comes back, and that whatever single write the disk loses, misplaces or changes, nothing old does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::storage::blocks::tests::{Bytes, pattern};

/// Blocks of the files below: two groups, and a sector of sums that is not full.
const BLOCKS: u64 = GROUP_BLOCKS + 30;

pub(super) fn page(block: u64, version: u64) -> Vec<u8> {
    pattern((block * 31 + version * 7919) as usize, BLOCK_BYTES)
}

fn opened(raw: &Arc<Bytes>) -> io::Result<Arc<dyn File>> {
    Ok(match open(Arc::clone(raw) as Arc<dyn File>, Planted::none())? {
        Opened::Now(blocks) => blocks,
        Opened::Old(file) => file,
    })
}

/// A commit as redb makes it: blocks, a sync, the root that refers to them, a sync.
pub(super) fn commit(file: &dyn File, blocks: &[u64], version: u64) {
    blocks.iter().for_each(|block| file.write_at(block * PAGE, &page(*block, version)).unwrap());
    file.sync().unwrap();
    file.write_at(0, &version.to_le_bytes()).unwrap();
    file.sync().unwrap();
}

pub(super) fn root(file: &dyn File) -> u64 {
    let mut root = [0; 8];
    file.read_at(0, &mut root).unwrap();
    u64::from_le_bytes(root)
}

/// Blocks in both groups, in three sectors of sums.
const USED: [u64; 6] = [1, 2, 130, 999, 1000, 1029];
/// Those of them that the second commit writes.
const AGAIN: [u64; 3] = [2, 999, 1000];

/// What a file of two commits held after each of them.
fn two_commits() -> (Vec<u8>, Vec<u8>) {
    let raw = Arc::new(Bytes::default());
    let file = StoreBlocks::create(Arc::clone(&raw) as Arc<dyn File>).unwrap();
    file.set_len(BLOCKS * PAGE).unwrap();
    commit(&file, &USED, 1);
    let first = raw.get().clone();
    commit(&file, &AGAIN, 2);
    let second = raw.get().clone();
    (first, second)
}

fn holding(bytes: &[u8]) -> Arc<Bytes> {
    let raw = Arc::new(Bytes::default());
    raw.write_at(0, bytes).unwrap();
    raw
}

/// The blocks of [`USED`] that are refused; panics on one that is served and wrong. `None`: the file does not open.
fn refused(bytes: &[u8]) -> Option<Vec<u64>> {
    let file = opened(&holding(bytes)).ok()?;
    assert_eq!(root(file.as_ref()), 2, "an old root is served");
    let mut out = Vec::new();
    for block in USED {
        let mut found = vec![0; BLOCK_BYTES];
        match file.read_at(block * PAGE, &mut found) {
            Ok(()) => assert!(found == page(block, 1 + u64::from(AGAIN.contains(&block))), "block {block} is wrong"),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                out.push(block);
            }
        }
    }
    Some(out)
}

/// The second commit, but for one write: its bytes are those of before.
fn without(writes: &[(u64, usize)]) -> Vec<u8> {
    let (first, mut second) = two_commits();
    for (at, len) in writes {
        let range = *at as usize..*at as usize + len;
        assert!(second[range.clone()] != first[range.clone()], "nothing was written there");
        second[range.clone()].copy_from_slice(&first[range]);
    }
    second
}

#[test]
fn a_lost_write_of_a_block_is_found_and_no_other_block_suffers() {
    assert_eq!(refused(&two_commits().1), Some(vec![]));
    for block in AGAIN {
        assert_eq!(refused(&without(&[(place(block), BLOCK_BYTES)])), Some(vec![block]));
    }
}

#[test]
fn a_lost_write_of_a_sector_of_sums_takes_nothing_and_of_both_copies_only_what_is_new() {
    for (block, lost) in [(2, vec![2]), (999, vec![999]), (1000, vec![1000])] {
        let [a, b] = sector_places(block / SUMS_PER_SECTOR);
        assert_eq!(refused(&without(&[(a, SECTOR_BYTES)])), Some(vec![]));
        assert_eq!(refused(&without(&[(b, SECTOR_BYTES)])), Some(vec![]));
        assert_eq!(refused(&without(&[(a, SECTOR_BYTES), (b, SECTOR_BYTES)])), Some(lost.clone()));
        assert_eq!(refused(&without(&[(a, SECTOR_BYTES), (place(block), BLOCK_BYTES)])), Some(lost));
    }
}

#[test]
fn a_lost_write_of_a_root_leaves_the_other_copy_which_is_newer() {
    for at in root_places() {
        assert_eq!(refused(&without(&[(at, SECTOR_BYTES)])), Some(vec![]));
    }
}

#[test]
fn a_misdirected_write_is_found_where_it_is_missing_and_where_it_is() {
    let writes: Vec<_> = AGAIN.into_iter().map(|block| (place(block), BLOCK_BYTES)).collect();
    let places = USED.into_iter().map(|block| (place(block), Some(block)));
    let [a, b] = sector_places(0);
    let others = [0, PAGE, a, b, place(0), root_places()[1]].map(|at| (at, None));
    for (at, hit) in places.chain(others) {
        for (write, block) in writes.iter().zip(AGAIN) {
            let mut bytes = without(&[*write]);
            bytes[at as usize..][..BLOCK_BYTES].copy_from_slice(&page(block, 2));
            let mut expected: Vec<_> = [Some(block), hit].into_iter().flatten().collect();
            expected.sort_unstable();
            expected.dedup();
            match refused(&bytes) {
                // In its own place after all.
                Some(found) if hit == Some(block) => assert!(found.is_empty(), "{found:?}"),
                Some(found) => assert_eq!(found, expected, "{block} at {at}"),
                None => assert!(at < PAGE, "{block} at {at}"),
            }
        }
    }
}

/// Flips a bit in the page of a block in use, or in one of sums or roots.
fn flip_and_read(at: u32, which: usize, bit: u8) {
    let mut bytes = two_commits().1;
    let sums = sector_places(which as u64);
    let place_of = USED.get(which).map_or([sums[0], sums[1], place(0), 0][which % 4], |block| place(*block));
    // A sector lies somewhere in its page.
    let page = place_of / PAGE * PAGE;
    bytes[page as usize + at as usize % BLOCK_BYTES] ^= 1 << bit;
    if let Some(refused) = refused(&bytes) {
        assert!(refused.iter().all(|block| place(*block) == page), "{refused:?}");
    }
}

#[test]
fn a_bit_flipped_behind_a_sector_in_the_middle_of_its_page_takes_no_block() {
    flip_and_read(922_332_672, 9, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_flipped_bit_of_a_store_is_served(at in any::<u32>(), which in 0usize..USED.len() + 4, bit in 0u8..8) {
        flip_and_read(at, which, bit);
    }

    #[test]
    fn what_was_written_comes_back_before_and_after_it_is_opened_again(
        writes in prop::collection::vec((1u64..BLOCKS, 1u64..5, any::<u64>(), any::<bool>()), 1..20),
    ) {
        let raw = Arc::new(Bytes::default());
        let file = StoreBlocks::create(Arc::clone(&raw) as Arc<dyn File>).unwrap();
        file.set_len((BLOCKS + 4) * PAGE).unwrap();
        let mut model = BTreeMap::new();
        for (first, count, version, synced) in writes {
            let data: Vec<u8> = (first..first + count).flat_map(|block| page(block, version % 99)).collect();
            file.write_at(first * PAGE, &data).unwrap();
            model.extend((first..first + count).map(|block| (block, version % 99)));
            if synced {
                file.sync().unwrap();
            }
        }
        commit(&file, &[], 5);
        for file in [&file as &dyn File, opened(&raw).unwrap().as_ref()] {
            prop_assert_eq!((file.len().unwrap(), root(file)), ((BLOCKS + 4) * PAGE, 5));
            for (block, version) in &model {
                let mut found = vec![0; BLOCK_BYTES];
                file.read_at(block * PAGE, &mut found).unwrap();
                prop_assert!(found == page(*block, *version), "block {}", block);
            }
        }
    }
}

#[test]
fn a_kill_before_the_sync_leaves_what_the_old_root_reaches() {
    let (first, _) = two_commits();
    let raw = holding(&first);
    let file = opened(&raw).unwrap();
    file.write_at(3 * PAGE, &page(3, 2)).unwrap();
    let again = opened(&raw).unwrap();
    let mut found = vec![0; BLOCK_BYTES];
    for block in USED {
        again.read_at(block * PAGE, &mut found).unwrap();
        assert!(found == page(block, 1));
    }
    assert_eq!(again.read_at(3 * PAGE, &mut found).unwrap_err().kind(), io::ErrorKind::InvalidData);
    again.write_at(3 * PAGE, &page(3, 3)).unwrap();
    again.read_at(3 * PAGE, &mut found).unwrap();
    assert!(found == page(3, 3));
}

#[test]
fn what_was_cut_off_a_store_never_comes_back() {
    let raw = holding(&two_commits().1);
    let file = opened(&raw).unwrap();
    let mut found = vec![0; BLOCK_BYTES];
    for blocks in [1010, GROUP_BLOCKS, 131] {
        file.set_len(blocks * PAGE).unwrap();
        assert_eq!(file.len().unwrap(), blocks * PAGE);
        file.set_len(BLOCKS * PAGE).unwrap();
        file.write_at((BLOCKS - 2) * PAGE, &page(BLOCKS - 2, 3)).unwrap();
        file.sync().unwrap();
        for file in [Arc::clone(&file), opened(&raw).unwrap()] {
            for block in USED {
                match file.read_at(block * PAGE, &mut found) {
                    Ok(()) => assert!(block < blocks, "{block} of {blocks}"),
                    Err(error) => assert!(block >= blocks && error.kind() == io::ErrorKind::InvalidData, "{error}"),
                }
            }
            file.read_at((BLOCKS - 2) * PAGE, &mut found).unwrap();
        }
    }
}

#[test]
fn lengths_places_and_uses_that_cannot_be_are_refused() {
    for blocks in [1, 2, 124, 125, 126, 999, 1000, 1001, 2000, 2001, 5000] {
        assert_eq!(blocks_in(end_of(blocks)), blocks);
    }
    let (_, whole) = two_commits();
    let cut = |pages: u64| opened(&holding(&whole[..(pages * PAGE) as usize])).is_ok();
    // Between the blocks; within the second group's sums; a part of a page.
    assert!(cut(400) && !cut(GROUP_PAGES + 2) && !cut(GROUP_PAGES + 3) && cut(GROUP_PAGES + 4));
    assert!(opened(&holding(&whole[..whole.len() - 7])).is_err());
    let file = opened(&holding(&whole)).unwrap();
    let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
    assert_eq!(kind(file.write_at(0, &[1; CONTENT_BYTES + 1])), io::ErrorKind::InvalidInput);
    assert_eq!(kind(file.write_at(PAGE + 1, &[1; BLOCK_BYTES])), io::ErrorKind::InvalidInput);
    assert_eq!(kind(file.read_at(PAGE, &mut [0; 9])), io::ErrorKind::InvalidInput);
    assert_eq!(kind(file.read_at(BLOCKS * PAGE, &mut [0; BLOCK_BYTES])), io::ErrorKind::UnexpectedEof);
    assert_eq!(root(file.as_ref()), 2);
}

#[test]
fn sums_beyond_what_memory_may_take_are_read_again() {
    let raw = holding(&two_commits().1);
    let sums = Sums::new(2);
    let found: Vec<u32> = USED.iter().map(|block| sums.get(raw.as_ref(), *block).unwrap()).collect();
    assert!(sums.len() <= 2);
    let expected = |block: &u64| checksum(*block, &page(*block, 1 + u64::from(AGAIN.contains(block))));
    assert_eq!(found, USED.iter().map(expected).collect::<Vec<_>>());
    // What is not in the file yet stays, until it is there twice.
    for block in [1, 130, 500, 1000] {
        sums.set(raw.as_ref(), block, 7).unwrap();
    }
    sums.write(raw.as_ref()).unwrap();
    assert_eq!((sums.len(), sums.get(raw.as_ref(), 1).unwrap()), (4, 7));
    sums.write(raw.as_ref()).unwrap();
    assert!(sums.len() <= 2, "{} sectors", sums.len());
    assert_eq!((sums.get(raw.as_ref(), 900).unwrap(), sums.get(raw.as_ref(), 130).unwrap()), (0, 7));
    assert!(sums.len() <= 2, "{} sectors", sums.len());
}

/// A file that counts its reads; while `gate` is held, reads of the first group's sums wait.
#[derive(Debug, Default)]
struct Watched {
    raw: Arc<Bytes>,
    reads: AtomicU64,
    gate: Mutex<()>,
}

impl File for Watched {
    fn len(&self) -> io::Result<u64> {
        self.raw.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if (sector_places(0)[0]..place(0)).contains(&offset) {
            drop(self.gate.lock().unwrap());
        }
        self.raw.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.raw.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.raw.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.raw.sync()
    }
}

/// A file to which a thread that reads writes a block, just as the sums of that are written.
#[derive(Debug, Default)]
struct Meanwhile {
    raw: Arc<Bytes>,
    above: Mutex<Option<Arc<StoreBlocks>>>,
}

impl File for Meanwhile {
    fn len(&self) -> io::Result<u64> {
        self.raw.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.raw.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.raw.write_at(offset, data)?;
        let above = if sector_places(0).contains(&offset) { crate::world::lock(&self.above).take() } else { None };
        above.map_or(Ok(()), |above| above.write_at(3 * PAGE, &page(3, 2)))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.raw.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_block_that_is_written_while_its_sums_are_is_served_after_a_restart() {
    for syncs in 1..3 {
        let below = Arc::new(Meanwhile::default());
        let file = Arc::new(StoreBlocks::create(Arc::clone(&below) as Arc<dyn File>).unwrap());
        file.set_len(BLOCKS * PAGE).unwrap();
        file.write_at(PAGE, &page(1, 1)).unwrap();
        // The first copy goes to the file with the first sync, the second one with the next.
        (1..syncs).for_each(|_| file.sync().unwrap());
        *crate::world::lock(&below.above) = Some(Arc::clone(&file));
        commit(file.as_ref(), &[2], 1);
        let again = opened(&below.raw).unwrap();
        for (block, version) in [(1, 1), (2, 1), (3, 2)] {
            let mut found = vec![0; BLOCK_BYTES];
            again.read_at(block * PAGE, &mut found).unwrap();
            assert!(found == page(block, version), "block {block}");
        }
    }
}

#[test]
fn sums_that_are_still_to_be_written_do_not_drive_out_the_others() {
    let file = Watched::default();
    file.set_len(end_of(20 * SUMS_PER_SECTOR)).unwrap();
    let sums = Sums::new(8);
    (0..10).for_each(|sector| sums.set(&file, sector * SUMS_PER_SECTOR, 7).unwrap());
    for round in 0..3 {
        let before = file.reads.load(Ordering::SeqCst);
        (16..20).for_each(|sector| assert_eq!(sums.get(&file, sector * SUMS_PER_SECTOR).unwrap(), 0));
        let read = file.reads.load(Ordering::SeqCst) - before;
        assert!(round == 0 || read == 0, "read again: {read}");
    }
}

#[test]
fn a_reader_does_not_wait_while_the_disk_brings_the_sums_of_another_one() {
    let file = Arc::new(Watched { raw: holding(&two_commits().1), ..Watched::default() });
    let Ok(Opened::Now(blocks)) = open(Arc::clone(&file) as Arc<dyn File>, Planted::none()) else { panic!("as made") };
    let read = |block: u64| blocks.read_at(block * PAGE, &mut [0; BLOCK_BYTES]);
    read(1000).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let held = file.gate.lock().unwrap();
        let before = file.reads.load(Ordering::SeqCst);
        scope.spawn(|| read(1).unwrap());
        // Its block, and the first copy of the block's sum.
        while file.reads.load(Ordering::SeqCst) < before + 2 {
            std::thread::yield_now();
        }
        scope.spawn(|| told.send(read(1000)));
        let other = heard.recv_timeout(std::time::Duration::from_secs(120));
        drop(held);
        other.expect("it waits for the disk of another reader").unwrap();
    });
}

/// Reads all blocks and syncs, as the next commit does.
fn read_and_synced(bytes: &[u8]) -> Vec<u8> {
    let raw = holding(bytes);
    let file = opened(&raw).unwrap();
    USED.iter().for_each(|block| file.read_at(block * PAGE, &mut [0; BLOCK_BYTES]).unwrap());
    file.sync().unwrap();
    file.sync().unwrap();
    raw.get().clone()
}

#[test]
fn a_copy_of_sums_that_power_loss_left_behind_or_a_bit_damaged_is_made_good_by_the_next_sync() {
    let whole = two_commits().1;
    for at in sector_places(0) {
        let behind = without(&[(at, SECTOR_BYTES)]);
        let mut damaged = whole.clone();
        damaged[at as usize + 9] ^= 4;
        for bytes in [behind, damaged] {
            let mended = read_and_synced(&bytes);
            for lost in sector_places(0) {
                let mut bytes = mended.clone();
                bytes[lost as usize + 77] ^= 1;
                assert_eq!(refused(&bytes), Some(vec![]), "mended at {at}, then damaged at {lost}");
            }
        }
    }
    assert!(read_and_synced(&whole) == whole, "where nothing is wrong nothing is written");
}

#[test]
fn a_root_that_power_loss_left_behind_or_a_bit_damaged_is_made_good_when_the_file_is_opened() {
    for at in root_places() {
        let behind = without(&[(at, SECTOR_BYTES)]);
        let mut damaged = two_commits().1;
        damaged[at as usize + 9] ^= 4;
        for bytes in [behind, damaged] {
            let raw = holding(&bytes);
            opened(&raw).unwrap();
            let mended = raw.get().clone();
            for lost in root_places() {
                let mut bytes = mended.clone();
                bytes[lost as usize + 3] ^= 1;
                assert_eq!(refused(&bytes), Some(vec![]), "mended at {at}, then damaged at {lost}");
            }
        }
    }
}
