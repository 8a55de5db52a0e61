//! Sizes from which on the text of a document is compressed, and its copies in memory are counted.

/// Bytes of a value from which on it goes into a memtable without a copy in the buffer for small ones.
pub const MEMTABLE_SCRATCH_BYTES: usize = 1 << 20;
/// Bytes from which the text of a document is compressed: below, a block saves next to nothing (`shard/body.rs`).
pub const BODY_COMPRESSED_FROM: usize = 512;
/// Bytes of a text from which on samples of it tell whether it is worth being compressed as a whole.
pub const BODY_SAMPLED_FROM: usize = 1 << 20;
/// Bytes of each of three samples.
pub const BODY_SAMPLE_BYTES: usize = 64 << 10;
/// Bytes of a document's text from which on it is shared with the message between nodes that it is in: below, a copy
/// costs less than it holds.
pub const MESSAGE_SHARED_FROM: usize = if cfg!(any(test, feature = "sim")) { 1 << 10 } else { 256 << 10 };
/// Bytes of a document's text from which on the answer with it alone is not put together but sent in parts.
pub const ANSWER_SHARED_FROM: usize = if cfg!(any(test, feature = "sim")) { 1 << 10 } else { 1 << 20 };
/// Bytes of a request's body up to which room for it is made at once where its length is told; memory is taken as it
/// comes.
pub const HTTP_BODY_ROOM_BYTES: u64 = 256 << 20;
/// Bytes of a value from which it is written into the journal by itself, and not copied into the frame before.
pub const JOURNAL_LARGE_VALUE_BYTES: usize = if cfg!(any(test, feature = "sim")) { 1 << 10 } else { 256 << 10 };
/// Stored bytes of a revision's text from which they are kept in pieces.
pub const BODY_PIECED_FROM: usize = if cfg!(any(test, feature = "sim")) { 16 << 10 } else { 2 << 20 };
/// Bytes of such a piece: with its key and the head of a page it fits a page of 1 MB.
pub const BODY_PIECE_BYTES: usize = if cfg!(any(test, feature = "sim")) { 5 << 10 } else { (1 << 20) - (4 << 10) };
