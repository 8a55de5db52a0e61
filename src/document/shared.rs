//! Large texts of messages, shared with the message that they came in, in place of a copy.
//!
//! serde hands out bytes as slices alone. So the one that reads a message says which it is ([`reading`]), and a field
//! with `deserialize_with = "shared::deserialize"` becomes a part of that. It holds for the thread and for the call, in
//! which nothing waits.

use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

thread_local! {
    /// The message that is being read, and the bytes of a large text.
    static MESSAGE: RefCell<Option<(usize, Bytes)>> = const { RefCell::new(None) };
}

/// Runs `read`, which reads values of `message`: texts of `from` bytes and more are large.
pub fn reading<T>(message: &Bytes, from: usize, read: impl FnOnce() -> T) -> T {
    if message.len() < from {
        return read();
    }
    let _before = Before(MESSAGE.replace(Some((from, message.clone()))));
    read()
}

/// Puts back what was there, however the work ends.
struct Before(Option<(usize, Bytes)>);

impl Drop for Before {
    fn drop(&mut self) {
        MESSAGE.set(self.0.take());
    }
}

/// Reads a text. A large one that is most of the message becomes a part of that; another would keep what it does not
/// need.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    from.deserialize_byte_buf(Text)
}

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(part_of_message(bytes).unwrap_or_else(|| Bytes::copy_from_slice(bytes)))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
        Ok(bytes.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        self.visit_bytes(text.as_bytes())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Bytes, A::Error> {
        let mut out = Vec::new();
        while let Some(byte) = seq.next_element()? {
            out.push(byte);
        }
        Ok(out.into())
    }
}

fn part_of_message(bytes: &[u8]) -> Option<Bytes> {
    MESSAGE.with_borrow(|message| {
        let is_most = |(from, message): &&(usize, Bytes)| bytes.len() >= *from && bytes.len() >= message.len() / 8 * 7;
        let (_, message) = message.as_ref().filter(is_most)?;
        let (within, own) = (message.as_ptr_range(), bytes.as_ptr_range());
        let is_part = within.contains(&own.start) && own.end <= within.end;
        is_part.then(|| message.slice_ref(bytes))
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::{BytesDeserializer, Error as ValueError};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Field(#[serde(deserialize_with = "super::deserialize")] Bytes);

    /// The bytes of a value, as a format that has slices hands them out.
    fn read(bytes: &[u8]) -> Bytes {
        let from: BytesDeserializer<'_, ValueError> = bytes.into_deserializer();
        deserialize(from).unwrap()
    }

    #[test]
    fn a_text_that_is_most_of_its_message_is_a_part_of_it() {
        let message = Bytes::from(vec![b'x'; 4000]);
        let is_part = |from: usize, range: std::ops::Range<usize>| {
            let text = reading(&message, from, || read(&message[range.clone()]));
            assert_eq!(text, message[range.clone()]);
            text.as_ptr() == message[range].as_ptr()
        };
        assert!(is_part(1000, 10..4000) && is_part(1000, 0..3500));
        assert!(!is_part(1000, 10..3500), "it would keep more than an eighth that nobody needs");
        assert!(!is_part(3000, 0..2500) && !is_part(5000, 0..4000), "it is not large");
        let other = vec![b'x'; 4000];
        assert_ne!(reading(&message, 1000, || read(&other)).as_ptr(), other.as_ptr());
        assert_ne!(read(&message).as_ptr(), message.as_ptr(), "nobody reads that message");
    }

    #[test]
    fn texts_of_other_formats_are_read_as_bytes_are() {
        assert_eq!(serde_json::from_str::<Field>("[123,125]").unwrap().0, "{}");
        assert_eq!(serde_json::from_str::<Field>("\"{}\"").unwrap().0, "{}");
        assert!(serde_json::from_str::<Field>("1").is_err());
    }
}
