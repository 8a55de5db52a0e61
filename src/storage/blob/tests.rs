//! Uploads, reads and the collector over a real directory.

use std::io::Read;

use super::*;
use crate::storage::{BlobGone, CommitError, Storage, StorageOptions, add_reference, drop_reference};
use crate::world::tokio_host;

const SHARD: u64 = 77;
const COMPRESS: StageMode = StageMode::Compress(limits::ATTACHMENT_COMPRESSION_LEVEL);

async fn open(dir: &tempfile::TempDir) -> Storage {
    let env = tokio_host::env(tokio::runtime::Handle::current());
    Storage::open(env, dir.path(), StorageOptions::default()).await.unwrap()
}

async fn stage(storage: &Storage, mode: StageMode, content: &[u8], piece: usize) -> Staged {
    let mut writer = storage.blobs().writer(SHARD, mode);
    for part in content.chunks(piece) {
        writer.write(Bytes::copy_from_slice(part)).await.unwrap();
    }
    writer.finish().await.unwrap()
}

async fn read(storage: &Storage, staged: &Staged, read: ReadAs, range: Option<(u64, u64)>) -> Vec<u8> {
    let attachment = staged.attachment("f", "x/y", 1);
    let mut reader = storage.blobs().reader(SHARD, &attachment, read, range);
    let mut out = Vec::new();
    while let Some(bytes) = reader.next().await.unwrap() {
        assert!(!bytes.is_empty() && bytes.len() <= limits::BLOB_STEP_BYTES);
        out.extend_from_slice(&bytes);
    }
    out
}

async fn reference(storage: &Storage, blob: BlobId, add: bool) -> Result<Result<bool, BlobGone>, CommitError> {
    let (blobs, key) = (storage.blobs().clone(), (SHARD, blob));
    let job = move |view: &mut crate::storage::WriteView<'_>| {
        if add { add_reference(view, &blobs, key) } else { drop_reference(view, &blobs, key).map(Ok) }
    };
    storage.committer().submit(job).await
}

/// Text that compresses, but not to nothing.
fn text(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"abcdefgh"[(state >> 29) as usize]
    };
    (0..len).map(|_| next()).collect()
}

#[tokio::test]
async fn what_was_uploaded_is_read_back_whatever_its_size_and_form() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    for len in [0, 1, 4096, 4097, limits::BLOB_STEP_BYTES, limits::BLOB_STEP_BYTES + 1, 1_500_000] {
        let content = text(len);
        for mode in [StageMode::Plain, COMPRESS] {
            let staged = stage(&storage, mode, &content, 100_001).await;
            assert_eq!(staged.length, len as u64);
            reference(&storage, staged.blob, true).await.unwrap().unwrap();
            assert!(read(&storage, &staged, ReadAs::Plain, None).await == content, "{len} {mode:?}");
            let stored = read(&storage, &staged, ReadAs::Stored, None).await;
            assert_eq!(stored.len() as u64, staged.stored_length);
            assert_eq!(md5_of(&stored), staged.digest);
        }
    }
    let staged = stage(&storage, StageMode::Plain, &text(600_000), 600_000).await;
    assert!(read(&storage, &staged, ReadAs::Plain, Some((10, 300_000))).await == text(600_000)[10..300_000]);
    assert!(read(&storage, &staged, ReadAs::Stored, Some((599_999, u64::MAX))).await == text(600_000)[599_999..]);
}

fn md5_of(bytes: &[u8]) -> [u8; 16] {
    use md5::Digest;
    md5::Md5::digest(bytes).into()
}

#[tokio::test]
async fn compressed_bytes_are_those_of_c_zlib_at_level_8_however_they_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    let content = text(700_000);
    let whole = super::super::blob_write::compress(&content).unwrap();
    assert_eq!(whole[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
    // What zlib 1.2.13 in C makes of it, called with level 8 and memory level 8; the second is CouchDB's own digest.
    assert_eq!(format!("{:032x}", u128::from_be_bytes(md5_of(&whole))), "573887ff748c39ed4dea2dcb6d033224");
    let short = super::super::blob_write::compress("text ".repeat(10).as_bytes()).unwrap();
    assert_eq!(format!("{:032x}", u128::from_be_bytes(md5_of(&short))), "314c941351b4b441fc83622612b488cb");
    for piece in [7_001, 100_000, 700_000] {
        let staged = stage(&storage, COMPRESS, &content, piece).await;
        assert_eq!(staged.digest, md5_of(&whole), "pieces of {piece}");
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(whole.as_slice()).read_to_end(&mut plain).unwrap();
    assert!(plain == content);
}

#[tokio::test]
async fn gzip_that_came_as_gzip_counts_by_its_stored_size() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    let gzip = super::super::blob_write::compress(b"hello hello hello").unwrap();
    let staged = stage(&storage, StageMode::AlreadyGzip, &gzip, 5).await;
    assert_eq!((staged.length, staged.stored_length), (gzip.len() as u64, gzip.len() as u64));
    assert_eq!(read(&storage, &staged, ReadAs::Plain, None).await, b"hello hello hello");
}

#[tokio::test]
async fn equal_content_is_stored_once_and_goes_with_its_last_reference() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    for len in [100, 10_000] {
        let first = stage(&storage, StageMode::Plain, &text(len), len).await;
        let second = stage(&storage, StageMode::Plain, &text(len), len).await;
        assert_eq!(first.blob, second.blob);
        let file = storage.blobs().0.file(&(SHARD, first.blob));
        assert_eq!(file.exists(), len > limits::BLOB_INLINE_BYTES);
        for add in [true, true, false] {
            reference(&storage, first.blob, add).await.unwrap().unwrap();
        }
        assert!(read(&storage, &first, ReadAs::Stored, None).await == text(len));
        reference(&storage, first.blob, false).await.unwrap().unwrap();
        drop((first.hold, second.hold));
        while storage.blobs().0.collect_step(storage.env().now()).unwrap() {}
        assert!(!file.exists());
        assert_eq!(reference(&storage, first.blob, true).await, Ok(Err(BlobGone)));
    }
}

#[tokio::test]
async fn an_upload_stays_for_its_lease_and_no_longer_unless_an_edit_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    let named = stage(&storage, StageMode::Plain, &text(9_000), 9_000).await;
    let unnamed = stage(&storage, StageMode::Plain, &text(9_001), 9_001).await;
    drop((named.hold, unnamed.hold));
    let blobs = &storage.blobs().0;
    let now = storage.env().now();
    blobs.collect_step(now).unwrap();
    assert!(blobs.file(&(SHARD, unnamed.blob)).exists());
    // An edit that names it is in the committer: even an expired lease holds.
    let pin = blobs.leases.pin(&(SHARD, named.blob)).unwrap();
    let later = crate::world::Instant(now.0 + limits::BLOB_LEASE + Duration::from_secs(5));
    blobs.collect_step(later).unwrap();
    assert!(!blobs.file(&(SHARD, unnamed.blob)).exists());
    assert!(blobs.file(&(SHARD, named.blob)).exists());
    assert_eq!(reference(&storage, unnamed.blob, true).await, Ok(Err(BlobGone)));
    drop(pin);
    reference(&storage, named.blob, true).await.unwrap().unwrap();
    blobs.collect_step(later).unwrap();
    assert!(blobs.file(&(SHARD, named.blob)).exists());
}

#[tokio::test]
async fn an_upload_outlasts_its_lease_while_its_slow_request_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    for len in [100, 9_000] {
        let staged = stage(&storage, StageMode::Plain, &text(len), len).await;
        let other_handle = staged.hold.clone();
        let blobs = &storage.blobs().0;
        let later = crate::world::Instant(storage.env().now().0 + 3 * limits::BLOB_LEASE);
        blobs.collect_step(later).unwrap();
        reference(&storage, staged.blob, true).await.unwrap().unwrap();
        reference(&storage, staged.blob, false).await.unwrap().unwrap();
        // The edit was decided; the request lets go.
        drop((staged.hold, other_handle));
        while blobs.collect_step(later).unwrap() {}
        assert_eq!(reference(&storage, staged.blob, true).await, Ok(Err(BlobGone)), "{len} bytes");
    }
}

#[tokio::test]
async fn a_restart_finds_what_a_crash_left_and_keeps_what_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    let named = stage(&storage, StageMode::Plain, &text(9_000), 9_000).await;
    reference(&storage, named.blob, true).await.unwrap().unwrap();
    let unnamed = stage(&storage, StageMode::Plain, &text(9_001), 9_001).await;
    let mut open_upload = storage.blobs().writer(SHARD, StageMode::Plain);
    open_upload.write(Bytes::from(text(limits::BLOB_STEP_BYTES))).await.unwrap();
    let files = [named.blob, unnamed.blob].map(|blob| storage.blobs().0.file(&(SHARD, blob)));
    std::mem::forget(open_upload);
    drop((named.hold, unnamed.hold));
    let blobs = storage.blobs().clone();
    drop(storage);
    // As the sweep of a start sees it: the leases of the process before are gone.
    blobs.0.leases.lock().expire(crate::world::Instant(Duration::MAX), 100);
    blobs.sweep().await;
    while blobs.0.collect_step(blobs.0.env.now()).unwrap() {}
    assert_eq!(files.map(|f| f.exists()), [true, false]);
}

#[tokio::test]
async fn damaged_bytes_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir).await;
    let staged = stage(&storage, StageMode::Plain, &text(9_000), 9_000).await;
    let file = storage.blobs().0.file(&(SHARD, staged.blob));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let attachment = staged.attachment("f", "x/y", 1);
    let mut reader = storage.blobs().reader(SHARD, &attachment, ReadAs::Plain, None);
    assert!(matches!(reader.next().await, Err(StorageError::Corrupt(_))));
    std::fs::remove_file(&file).unwrap();
    let mut reader = storage.blobs().reader(SHARD, &attachment, ReadAs::Plain, None);
    assert!(reader.next().await.is_err());
}
