//! Checksummed frames of a stream: pure, over any reader and writer.
//!
//! ```text
//!   head   "settee-d" | version u32 = 1                                  12 bytes
//!   frame  kind u8 | length u32 | crc u32 | payload                       9 bytes + length
//! ```
//!
//! Numbers are little endian. The crc covers kind, length and payload. The last frame of a stream is of kind `e`.

use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"settee-d";
const VERSION: u32 = 1;

/// A frame as it stands in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// What it holds: see `item.rs`.
    pub kind: u8,
    pub payload: Vec<u8>,
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

fn checksum(kind: u8, length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

pub(super) fn write_head(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())
}

pub(super) fn read_head(input: &mut dyn Read) -> io::Result<()> {
    let mut head = [0; 12];
    input.read_exact(&mut head)?;
    match head.split_last_chunk::<4>() {
        Some((magic, version)) if magic == MAGIC => match u32::from_le_bytes(*version) {
            VERSION => Ok(()),
            other => Err(invalid(format!("version {other} of the stream is not known to this settee"))),
        },
        _ => Err(invalid("this is no dump of settee")),
    }
}

pub(super) fn write(out: &mut dyn Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(|_| invalid("a document of more than 4 GB"))?;
    out.write_all(&[kind])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&checksum(kind, length, payload).to_le_bytes())?;
    out.write_all(payload)
}

/// The next frame; `None` at a clean end. `at` counts the bytes read, for messages.
pub(super) fn read(input: &mut dyn Read, at: &mut u64) -> io::Result<Option<Frame>> {
    let mut kind = [0];
    if input.read(&mut kind)? == 0 {
        return Ok(None);
    }
    let mut head = [0; 8];
    input.read_exact(&mut head)?;
    let number = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
    let (length, crc) = (number(0), number(4));
    let mut payload = Vec::new();
    input.take(u64::from(length)).read_to_end(&mut payload)?;
    if payload.len() < length as usize {
        return Err(invalid(format!("it ends within the frame at byte {at}")));
    }
    if crc != checksum(kind[0], length, &payload) {
        return Err(invalid(format!("the frame at byte {at} does not fit its checksum")));
    }
    *at += 9 + u64::from(length);
    Ok(Some(Frame { kind: kind[0], payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_no_flipped_bit_or_cut_does() {
        let mut stream = Vec::new();
        write_head(&mut stream).unwrap();
        write(&mut stream, b'x', b"first").unwrap();
        write(&mut stream, b'y', b"").unwrap();
        let all = |mut input: &[u8]| -> io::Result<Vec<Frame>> {
            read_head(&mut input)?;
            let mut at = 12;
            std::iter::from_fn(|| read(&mut input, &mut at).transpose()).collect()
        };
        let whole = all(&stream).unwrap();
        assert_eq!(whole.iter().map(|f| (f.kind, f.payload.len())).collect::<Vec<_>>(), [(b'x', 5), (b'y', 0)]);
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(all(&flipped).is_err(), "bit {bit}");
        }
        let ends = [12, 12 + 9 + 5, stream.len()];
        assert!((0..stream.len()).filter(|len| !ends.contains(len)).all(|len| all(&stream[..len]).is_err()));
    }
}
