//! Frames: how bytes between two nodes are cut into payloads and sealed. Pure.
//!
//! ```text
//!   version u8 | length of the payload u32, big endian | tag 16 bytes | payload
//! ```
//!
//! The tag is a keyed BLAKE3 over the frame's number in its direction, its length and its payload. After the handshake
//! the key is the session's, so that a frame that was changed, repeated, left out or sent by a stranger does not open;
//! before it the key is public and the tag is a checksum. Promises: any bytes are read without panic, and no more than
//! the largest frame is ever held.

use bytes::{Bytes, BytesMut};

/// The version of the frame's own form.
const VERSION: u8 = 1;
/// Bytes before the payload.
const HEAD: usize = 1 + 4 + TAG;
const TAG: usize = 16;
/// With what TLS begins, in place of a frame's version: an alert, a handshake.
const TLS: std::ops::RangeInclusive<u8> = 21..=22;

/// Whether the first byte of a connection is that of TLS.
pub(super) fn begins_tls(first: u8) -> bool {
    TLS.contains(&first)
}

/// Why bytes are no frame; the connection is closed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    /// Another version, or no settee at all.
    Version(u8),
    /// Larger than agreed; carries the bytes announced.
    TooLarge(u32),
    /// The tag is not that of the payload.
    Forged,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::Version(found) if begins_tls(*found) => {
                f.write_str("it speaks TLS and this node does not: `[cluster] tls` is to be the same on all nodes")
            }
            FrameError::Version(found) => write!(f, "a frame of version {found}"),
            FrameError::TooLarge(bytes) => write!(f, "a frame of {bytes} bytes"),
            FrameError::Forged => f.write_str("a frame whose tag is wrong"),
        }
    }
}

/// A key and the number of the next frame: one for each direction.
#[derive(Clone)]
struct Direction {
    key: [u8; 32],
    next: u64,
}

impl Direction {
    fn tag(&mut self, head: &[u8], body: &[u8]) -> [u8; TAG] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.next.to_be_bytes());
        hasher.update(&((head.len() + body.len()) as u64).to_be_bytes());
        hasher.update(head).update(body);
        self.next += 1;
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG]);
        tag
    }
}

/// Makes frames.
pub(super) struct Sealer(Direction);

/// Takes frames apart.
pub(super) struct Opener {
    direction: Direction,
    largest: usize,
}

/// The key of frames before there is a session.
pub(super) fn public_key() -> [u8; 32] {
    *blake3::hash(b"settee cluster handshake").as_bytes()
}

impl Sealer {
    pub(super) fn new(key: [u8; 32]) -> Sealer {
        Sealer(Direction { key, next: 0 })
    }

    /// Appends the frame whose payload is `head` and then `body`.
    pub(super) fn seal(&mut self, head: &[u8], body: &[u8], out: &mut Vec<u8>) {
        let length = u32::try_from(head.len() + body.len()).unwrap_or(u32::MAX);
        let tag = self.0.tag(head, body);
        out.push(VERSION);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&tag);
        out.extend_from_slice(head);
        out.extend_from_slice(body);
    }
}

impl Opener {
    /// Opens frames with payloads of at most `largest` bytes.
    pub(super) fn new(key: [u8; 32], largest: usize) -> Opener {
        Opener { direction: Direction { key, next: 0 }, largest }
    }

    /// From now on payloads of up to `largest` bytes are opened.
    pub(super) fn allow(&mut self, largest: usize) {
        self.largest = largest;
    }

    /// Takes the next payload off the front of `buffer`; `None` while it is not all there.
    pub(super) fn open(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        match buffer.first() {
            None => return Ok(None),
            Some(&VERSION) => {}
            Some(&other) => return Err(FrameError::Version(other)),
        }
        let Some(length) = buffer.get(1..5) else { return Ok(None) };
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        if length as usize > self.largest {
            return Err(FrameError::TooLarge(length));
        }
        let whole = HEAD + length as usize;
        if buffer.len() < whole {
            buffer.reserve(whole - buffer.len());
            return Ok(None);
        }
        let mut frame = buffer.split_to(whole).freeze();
        let payload = frame.split_off(HEAD);
        let expected = self.direction.tag(&[], &payload);
        // Takes the same time wherever they differ.
        let differs = expected.iter().zip(&frame[HEAD - TAG..]).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs == 0 { Ok(Some(payload)) } else { Err(FrameError::Forged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: [u8; 32] = [7; 32];

    fn sealed(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut sealer, mut out) = (Sealer::new(KEY), Vec::new());
        payloads.iter().for_each(|p| sealer.seal(&p[..p.len() / 2], &p[p.len() / 2..], &mut out));
        out
    }

    fn open_all(bytes: &[u8], largest: usize) -> Result<Vec<Bytes>, FrameError> {
        let (mut opener, mut buffer, mut out) = (Opener::new(KEY, largest), BytesMut::from(bytes), Vec::new());
        while let Some(payload) = opener.open(&mut buffer)? {
            out.push(payload);
        }
        Ok(out)
    }

    #[test]
    fn payloads_come_back_in_order_however_they_are_cut() {
        let bytes = sealed(&[b"one", b"", b"three"]);
        let (mut opener, mut buffer, mut out) = (Opener::new(KEY, 100), BytesMut::new(), Vec::new());
        for byte in bytes {
            buffer.extend_from_slice(&[byte]);
            out.extend(opener.open(&mut buffer).unwrap());
        }
        assert_eq!(out, ["one", "", "three"]);
    }

    #[test]
    fn what_was_changed_repeated_left_out_or_sealed_by_another_does_not_open() {
        let bytes = sealed(&[b"one", b"two"]);
        let (first, second) = bytes.split_at(HEAD + 3);
        assert_eq!(open_all(&[first, first].concat(), 100), Err(FrameError::Forged));
        assert_eq!(open_all(second, 100), Err(FrameError::Forged));
        for at in 5..first.len() {
            let mut bad = first.to_vec();
            bad[at] ^= 1;
            assert_eq!(open_all(&bad, 100), Err(FrameError::Forged), "byte {at}");
        }
        let mut other = Vec::new();
        Sealer::new([8; 32]).seal(b"one", b"", &mut other);
        assert_eq!(open_all(&other, 100), Err(FrameError::Forged));
    }

    #[test]
    fn large_frames_and_other_versions_are_refused_before_they_are_read() {
        assert_eq!(open_all(&[VERSION, 0, 0, 0, 101], 100), Err(FrameError::TooLarge(101)));
        assert_eq!(open_all(&[VERSION, 0xff, 0xff, 0xff, 0xff], 100), Err(FrameError::TooLarge(u32::MAX)));
        assert_eq!(open_all(b"GET / HTTP/1.1\r\n", 100), Err(FrameError::Version(b'G')));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, version: bool) {
            let mut bytes = bytes;
            if let (true, Some(first)) = (version, bytes.first_mut()) {
                *first = VERSION;
            }
            let opened = open_all(&bytes, 64);
            prop_assert!(opened.is_err() || opened == Ok(Vec::new()));
        }

        #[test]
        fn any_payload_comes_back(payload: Vec<u8>) {
            prop_assert_eq!(open_all(&sealed(&[&payload]), payload.len()).unwrap(), [Bytes::from(payload)]);
        }
    }
}
