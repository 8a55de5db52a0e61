//! Parts of a journal or of the store files that recovery could not read, for tools that copy the rest.

use super::frame::{self, FRAME_HEAD_BYTES};

/// Something that cannot be read any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// What it is and where, in words.
    pub what: String,
    /// The keys of writes that are lost with it, as far as they can be read.
    pub keys: Vec<Vec<u8>>,
}

impl Lost {
    pub(in crate::storage) fn new(what: impl std::fmt::Display) -> Lost {
        Lost { what: what.to_string(), keys: Vec::new() }
    }

    /// What stands in `damaged`, the bytes from the end of a good frame to the beginning of the next one.
    pub(super) fn frames(what: impl std::fmt::Display, damaged: &[u8]) -> Lost {
        let mut lost = Lost::new(what);
        let mut at = 0;
        // The lengths of frames lead from one to the next, as far as they make sense.
        while let Some(length) = damaged.get(at..).and_then(frame::payload_length) {
            let begin = at + FRAME_HEAD_BYTES;
            let Some(payload) = damaged.get(begin..begin.saturating_add(length).min(damaged.len())) else { break };
            // Where it fails, what was read before it counts.
            let _ = frame::visit(payload, &mut |key, _| lost.keys.push(key.to_vec()));
            at = begin.saturating_add(length).next_multiple_of(8);
        }
        lost
    }
}
