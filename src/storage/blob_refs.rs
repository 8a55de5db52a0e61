//! Reference counts of blobs, and the bytes of small blobs, in the ordered store.
//!
//! ```text
//!   shard 'r' hash -> u64    stored revisions that name the blob; no key = none
//!   shard 'i' hash -> bytes  content of a blob that is no file
//! ```
//! Both change in the batch of the edit, so that a crash cannot separate them from the edit.

use super::blob::BlobStore;
use super::kv::{StorageError, View};
use super::lease::BlobKey;
use super::overlay::WriteView;

/// Kind byte of reference counts, after the shard number.
pub const KIND_COUNT: u8 = b'r';
/// Kind byte of small blobs' content.
pub const KIND_INLINE: u8 = b'i';

/// An edit names a blob that is neither uploaded nor named by another revision: its lease ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobGone;

fn key(kind: u8, blob: &BlobKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(41);
    out.extend_from_slice(&blob.0.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&blob.1);
    out
}

/// How many stored revisions name `blob`.
pub fn count(view: &dyn View, blob: &BlobKey) -> Result<u64, StorageError> {
    match view.get(&key(KIND_COUNT, blob))? {
        None => Ok(0),
        Some(bytes) => match bytes.try_into() {
            Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
            Err(_) => Err(StorageError::Corrupt("a blob's reference count is not 8 bytes".into())),
        },
    }
}

/// The content of a small blob; `None` when it is a file.
pub fn inline(view: &dyn View, blob: &BlobKey) -> Result<Option<Vec<u8>>, StorageError> {
    view.get(&key(KIND_INLINE, blob))
}

/// Counts one more stored revision that names `blob`, and stores the bytes of a small upload. Answers whether it is the
/// first.
pub fn add_reference(
    view: &mut WriteView<'_>,
    blobs: &BlobStore,
    blob: BlobKey,
) -> Result<Result<bool, BlobGone>, StorageError> {
    let before = count(view, &blob)?;
    match blobs.pin(&blob) {
        Some(pin) => {
            if let (0, Some(bytes)) = (before, pin.inline()) {
                view.put(key(KIND_INLINE, &blob), bytes.to_vec());
            }
            view.after_commit(move || pin.committed());
        }
        None if before == 0 => return Ok(Err(BlobGone)),
        None => {}
    }
    view.put(key(KIND_COUNT, &blob), (before + 1).to_be_bytes().to_vec());
    Ok(Ok(before == 0))
}

/// Counts one stored revision less; the blob goes when it was the last. Answers whether it was.
pub fn drop_reference(view: &mut WriteView<'_>, blobs: &BlobStore, blob: BlobKey) -> Result<bool, StorageError> {
    let before = count(view, &blob)?;
    if before == 0 {
        return Err(StorageError::Corrupt("a blob's reference count fell below zero".into()));
    }
    if before > 1 {
        view.put(key(KIND_COUNT, &blob), (before - 1).to_be_bytes().to_vec());
        return Ok(false);
    }
    view.delete(key(KIND_COUNT, &blob));
    view.delete(key(KIND_INLINE, &blob));
    let blobs = blobs.clone();
    view.after_commit(move || blobs.released(blob));
    Ok(true)
}
