//! Summary of a set of documents: counts, sizes, and a digest by which replicas are compared.
//!
//! A [`Summary`] is an element of a group: the sum over a range can be taken from sums over its parts, in any order,
//! and a part can be subtracted again. All arithmetic wraps, so that a sum never depends on the order of additions.
//!
//! The digest of a document is a 128-bit hash of its id and of the set of its leaves: their revisions, whether they are
//! tombstones, and names and digests of their attachments. It does not cover ancestors, sequences and places of bytes.
//! So two replicas that hold the same documents have the same digest over any range of ids, whatever the order of their
//! writes.

use serde::{Deserialize, Serialize};

use super::record::{self, LeafName, RevData, put_rev};
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::rev_tree::RevTree;
use crate::wire::codec::{CodecError, Reader, put_bool, put_str, put_varint};

/// The version of what is hashed: part of every digest, since replicas compare only digests made alike.
const DIGEST_VERSION: u8 = 1;

/// Counts, sizes and digest of a set of documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Documents whose winner is no tombstone, design documents included.
    pub live: u64,
    /// Documents whose winner is a tombstone.
    pub deleted: u64,
    /// Live design documents.
    pub design: u64,
    /// Stored bytes of all leaves, bodies and attachments.
    pub active: u64,
    /// The same before compression.
    pub external: u64,
    /// The sum of the digests of the documents.
    pub digest: u128,
}

impl Summary {
    /// Bytes that its record takes, about: counts below two millions and sizes below 256 GB fit.
    pub(super) const BYTES: usize = 40;

    /// That of both sets together; they have no document in common.
    #[must_use]
    pub fn plus(self, other: Summary) -> Summary {
        Summary {
            live: self.live.wrapping_add(other.live),
            deleted: self.deleted.wrapping_add(other.deleted),
            design: self.design.wrapping_add(other.design),
            active: self.active.wrapping_add(other.active),
            external: self.external.wrapping_add(other.external),
            digest: self.digest.wrapping_add(other.digest),
        }
    }

    /// That of this set without `other`, which is part of it.
    #[must_use]
    pub fn minus(self, other: Summary) -> Summary {
        Summary {
            live: self.live.wrapping_sub(other.live),
            deleted: self.deleted.wrapping_sub(other.deleted),
            design: self.design.wrapping_sub(other.design),
            active: self.active.wrapping_sub(other.active),
            external: self.external.wrapping_sub(other.external),
            digest: self.digest.wrapping_sub(other.digest),
        }
    }

    /// How many documents there are, tombstones included.
    pub fn documents(&self) -> u64 {
        self.live.wrapping_add(self.deleted)
    }

    /// Whether the digest is the one that [`Summary::digest_text`] told once; true when that cannot be said, since
    /// another version of it was hashed.
    pub fn fits_digest(&self, told: &str) -> bool {
        let is_comparable = told.starts_with(&format!("{DIGEST_VERSION}-"));
        !is_comparable || told == self.digest_text()
    }

    /// The digest as a text, behind the version of what is hashed.
    pub fn digest_text(&self) -> String {
        format!("{DIGEST_VERSION}-{:032x}", self.digest)
    }

    /// That of one document; `deleted`: its winner is a tombstone.
    pub(super) fn of_document(is_design: bool, deleted: bool, active: u64, external: u64, digest: u128) -> Summary {
        let live = u64::from(!deleted);
        let design = if is_design { live } else { 0 };
        Summary { live, deleted: 1 - live, design, active, external, digest }
    }

    /// Appends it to a record.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.live, self.deleted, self.design, self.active, self.external] {
            put_varint(out, number);
        }
        out.extend_from_slice(&self.digest.to_le_bytes());
    }

    /// Reads what [`Summary::encode`] wrote.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Summary, CodecError> {
        Ok(Summary {
            live: reader.varint()?,
            deleted: reader.varint()?,
            design: reader.varint()?,
            active: reader.varint()?,
            external: reader.varint()?,
            digest: u128::from_le_bytes(reader.array()?),
        })
    }
}

/// Stored and plain bytes of all leaves, and the digest, of a document that has leaves (winner first).
pub(super) fn of_tree(id: &DocId, leaves: &[LeafName], tree: &RevTree<RevData>) -> Summary {
    let mut text = Vec::with_capacity(record::row_bytes(id, leaves) + 16 * leaves.len());
    text.push(DIGEST_VERSION);
    put_str(&mut text, id.as_str());
    put_varint(&mut text, leaves.len() as u64);
    let (mut active, mut external) = (0u64, 0u64);
    for (rev, deleted) in leaves {
        put_bool(&mut text, *deleted);
        put_rev(&mut text, rev);
        if let Some(data) = tree.get(rev).flatten() {
            active = active.wrapping_add(data.active);
            external = external.wrapping_add(data.external);
            text.extend_from_slice(&data.attachments.to_le_bytes());
        }
    }
    let deleted = leaves.first().is_some_and(|leaf| leaf.1);
    Summary::of_document(id.is_design(), deleted, active, external, hash(&text))
}

/// What the attachments of a revision add to its document's digest; 0 without any.
pub(super) fn attachments_digest(attachments: &[Attachment]) -> u128 {
    if attachments.is_empty() {
        return 0;
    }
    let mut named: Vec<(&str, &[u8; 16])> = attachments.iter().map(|a| (a.name.as_str(), &a.digest)).collect();
    named.sort_unstable();
    let mut text = vec![DIGEST_VERSION];
    for (name, digest) in named {
        put_str(&mut text, name);
        text.extend_from_slice(digest);
    }
    // 0 says that there are none.
    hash(&text).max(1)
}

fn hash(text: &[u8]) -> u128 {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::hash(text).as_bytes()[..16]);
    u128::from_le_bytes(out)
}
