//! A small binary codec for stored records and messages: varints, length-prefixed bytes, a leading version byte.
//!
//! Writing appends to a byte vector and cannot fail. Reading goes through [`Reader`], which takes bytes that may be cut
//! or corrupt and answers with a [`CodecError`]; it never panics and never allocates more than its input is long.

use std::fmt;

/// Why stored bytes could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecError {
    /// The bytes end within a value.
    Truncated,
    /// A varint has more than 64 bits, or a number does not fit its type.
    Overflow,
    /// A text is not UTF-8.
    Utf8,
    /// The record was written by an unknown version of its format.
    Version(u8),
    /// Bytes are left over behind the record.
    Trailing,
    /// A value is out of its allowed range; the text names it.
    Invalid(&'static str),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::Truncated => f.write_str("record is cut short"),
            CodecError::Overflow => f.write_str("number too large in record"),
            CodecError::Utf8 => f.write_str("text in record is not UTF-8"),
            CodecError::Version(found) => write!(f, "unknown record version {found}"),
            CodecError::Trailing => f.write_str("bytes left over behind record"),
            CodecError::Invalid(what) => write!(f, "invalid {what} in record"),
        }
    }
}

impl std::error::Error for CodecError {}

/// Appends an unsigned number as a varint: seven bits a byte, lowest first (1 to 10 bytes).
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends bytes with their length (a varint) before them.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a text as its UTF-8 bytes with their length before them.
pub fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Appends a truth value as one byte, 0 or 1.
pub fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

/// Takes values off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True when everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Exactly `count` raw bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, CodecError> {
        let (first, rest) = self.rest.split_first().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    /// A varint as [`put_varint`] wrote it. More than 64 bits are [`CodecError::Overflow`].
    pub fn varint(&mut self) -> Result<u64, CodecError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(CodecError::Overflow);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(CodecError::Overflow)
    }

    /// A varint that counts something in memory.
    pub fn varint_usize(&mut self) -> Result<usize, CodecError> {
        usize::try_from(self.varint()?).map_err(|_| CodecError::Overflow)
    }

    /// Length-prefixed bytes, borrowed from the input.
    pub fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let count = self.varint_usize()?;
        self.take(count)
    }

    /// A length-prefixed text, borrowed from the input.
    pub fn str(&mut self) -> Result<&'a str, CodecError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| CodecError::Utf8)
    }

    /// A fixed number of bytes, such as a digest.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// A truth value; a byte other than 0 and 1 is invalid.
    pub fn bool(&mut self) -> Result<bool, CodecError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::Invalid("truth value")),
        }
    }

    /// The leading version byte, which must be the one that the caller understands.
    pub fn version(&mut self, known: u8) -> Result<(), CodecError> {
        match self.u8()? {
            found if found == known => Ok(()),
            found => Err(CodecError::Version(found)),
        }
    }

    /// Ends the reading of a record: nothing may be left over.
    pub fn finish(self) -> Result<(), CodecError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_come_back_as_written() {
        let mut out = vec![1];
        put_varint(&mut out, 300);
        put_str(&mut out, "größe");
        put_bool(&mut out, true);
        out.extend_from_slice(&[7; 16]);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.version(1), Ok(()));
        assert_eq!(reader.varint(), Ok(300));
        assert_eq!(reader.str(), Ok("größe"));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.array::<16>(), Ok([7; 16]));
        assert!(reader.is_empty());
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn damage_is_an_error() {
        assert_eq!(Reader::new(&[0x80]).varint(), Err(CodecError::Truncated));
        assert_eq!(Reader::new(&[0xff; 10]).varint(), Err(CodecError::Overflow));
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(), Err(CodecError::Truncated));
        assert_eq!(Reader::new(&[2, 0xff, 0xfe]).str(), Err(CodecError::Utf8));
        assert_eq!(Reader::new(&[2]).bool(), Err(CodecError::Invalid("truth value")));
        assert_eq!(Reader::new(&[9]).version(1), Err(CodecError::Version(9)));
        assert_eq!(Reader::new(&[9]).finish(), Err(CodecError::Trailing));
        assert_eq!(Reader::new(&[0xff; 16]).array::<17>(), Err(CodecError::Truncated));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn varints_round_trip(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert!(out.len() <= 10);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.bytes().is_ok() && !reader.is_empty() {}
            prop_assert!(reader.rest().len() <= bytes.len());
        }
    }
}
