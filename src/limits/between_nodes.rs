//! Bytes on their way between nodes and in memory on both sides, and how long answers about moves are waited for.

use std::time::Duration;

/// Bytes of one message between nodes: a document of 256 MB, with the term that its revision is made of. It travels in
/// pieces of [`CLUSTER_CHUNK_BYTES`]; what can be divided is ([`FETCH_BYTES`], [`MERGE_BYTES`]).
pub const CLUSTER_MESSAGE_BYTES: usize = 1 << 30;
/// Bytes of the body of a call to a node whose version takes no larger one.
pub const CLUSTER_OLD_BODY_BYTES: usize = 64 << 20;
/// Bytes of larger bodies that all links of a node hold at once, until the calls are answered. A larger one takes all.
pub const CLUSTER_BODIES_BYTES: usize = 64 << 20;
/// Lists and maps within each other in a value that is read from a message or record.
pub const MESSAGE_DEPTH_MAX: usize = 1024;
/// How long a rebalance waits for the other nodes to say whether they were asked for one later.
pub const REBALANCE_ANSWERS: Duration = Duration::from_secs(2);
/// Purged revisions that a replica keeps in memory, the last ones, 8 bytes each: an edit that reaches it behind a purge
/// of its revision is recognized by them. Such an edit is late by as long as a call between nodes may take.
pub const PURGES_REMEMBERED: usize = 4096;
/// Documents that a replica asks another for at a time while it applies what it lacks, where they are small.
pub const DOCS_PER_PULL: usize = 256;
/// Bytes of documents that it asks for at a time; a larger document comes alone.
pub const PULL_BYTES: usize = 1 << 20;
/// Times the bytes of a pulled document that it takes in memory until it is stored: the message, the text, the term of
/// its revision, its place in the journal.
pub const PULL_MEMORY_FACTOR: usize = 4;
/// Bytes in memory of all documents that a node pulls at a time. A larger one waits until it is alone.
pub const PULLED_BYTES: usize = 64 << 20;
/// Bytes of documents that a read asks a replica on another node for at a time; a larger document comes alone.
pub const FETCH_BYTES: usize = 4 << 20;
/// Bytes of documents in one answer of a replica to another node for each document that was asked for, until it is
/// known to take more: most are smaller.
pub const FETCH_DOC_BYTES: usize = 256 << 10;
/// Bytes of documents, of single ones of at most [`FETCH_DOC_BYTES`], in all answers to other nodes at a time.
pub const ANSWERS_SMALL_BYTES: usize = 32 << 20;
/// Bytes of documents in all other answers to other nodes at a time. A larger answer waits until it is alone.
pub const ANSWERS_BYTES: usize = 32 << 20;
/// Bytes of edits that one message brings to a replica; a larger edit comes alone.
pub const MERGE_BYTES: usize = 4 << 20;
/// Bytes of what is listed in one answer between nodes: rows without documents, purges, maps.
pub const LISTED_BYTES: usize = 4 << 20;
/// Bytes of their texts above which a step takes no further edit.
pub const EDIT_BYTES_PER_STEP: usize = 4 << 20;
/// Bytes that a revision in a tree, or the name of an attachment, counts as in memory.
pub const TREE_NODE_BYTES: usize = 64;
/// Bytes of these answers: they name whole histories, of a thousand revisions each.
pub const ANSWERS_KEPT_BYTES: usize = 16 << 20;
/// Bytes of one piece of a message between nodes: large enough to be cheap, small enough not to delay a heartbeat.
pub const CLUSTER_CHUNK_BYTES: usize = 32 << 10;
/// Bytes of one frame's payload: a piece and what stands before it.
pub const CLUSTER_FRAME_BYTES: usize = CLUSTER_CHUNK_BYTES + 4096;
/// Bytes of one answer that are on the way and not yet taken: what a link of 1 Gb/s carries in 8 ms.
pub const CLUSTER_STREAM_BYTES: usize = 1 << 20;
/// Bytes of a call's body that are sent before the other side has room for all of it.
pub const CLUSTER_BODY_BYTES: usize = 64 << 10;
