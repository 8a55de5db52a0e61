//! A message that is sent in parts, so that a large text in it is sent from where it is.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use serde::Serialize;

use super::message_pack;

/// Bytes in parts that are one behind the other. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Empty for an empty message alone.
    first: Bytes,
    /// None of them is empty.
    rest: VecDeque<Bytes>,
}

impl Message {
    /// A value as MessagePack, as [`message_pack::encode`] writes it. `texts` are bytes in it that are to be parts of
    /// the message as they are.
    pub fn of(value: &impl Serialize, texts: &[Bytes]) -> Message {
        let mut parts = Parts { message: Message::default(), made: Vec::with_capacity(128), texts };
        message_pack::encode_to(value, &mut parts);
        parts.end_part();
        parts.message
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Takes the first bytes off: as many as lie together, `most` at most; none of an empty message.
    pub fn split_to(&mut self, most: usize) -> Bytes {
        let taken = self.first.split_to(self.first.len().min(most));
        if self.first.is_empty() {
            self.first = self.rest.pop_front().unwrap_or_default();
        }
        taken
    }

    /// All bytes together: a copy of what is in several parts.
    pub fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut all = Vec::with_capacity(self.len());
        [self.first].iter().chain(&self.rest).for_each(|part| all.extend_from_slice(part));
        all.into()
    }

    /// The same message, with something done to its last part: that is here as long as the message is.
    #[must_use]
    pub fn with_last(mut self, change: impl FnOnce(Bytes) -> Bytes) -> Message {
        let last = self.rest.back_mut().unwrap_or(&mut self.first);
        *last = change(std::mem::take(last));
        self
    }

    fn push(&mut self, part: Bytes) {
        match self.first.is_empty() {
            _ if part.is_empty() => {}
            true => self.first = part,
            false => self.rest.push_back(part),
        }
    }
}

impl FromIterator<Bytes> for Message {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Message {
        let mut message = Message::default();
        parts.into_iter().for_each(|part| message.push(part));
        message
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        Message { first: bytes, rest: VecDeque::new() }
    }
}

/// What is written of a message.
struct Parts<'t> {
    message: Message,
    /// The part that is being made.
    made: Vec<u8>,
    texts: &'t [Bytes],
}

impl Parts<'_> {
    fn end_part(&mut self) {
        self.message.push(std::mem::take(&mut self.made).into());
    }
}

impl io::Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.texts.iter().find(|text| std::ptr::eq(text.as_ref(), bytes)) {
            Some(text) => {
                self.end_part();
                self.message.push(text.clone());
            }
            None => self.made.extend_from_slice(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Texts {
        before: String,
        text: Bytes,
        other: Bytes,
        after: u64,
    }

    fn texts() -> Texts {
        let text = |size: usize| Bytes::from((0..size).map(|at| at as u8).collect::<Vec<u8>>());
        Texts { before: "before".to_owned(), text: text(10_000), other: text(5000), after: 7 }
    }

    #[test]
    fn a_large_text_is_sent_from_where_it_is_and_nothing_else_is_another_message() {
        let texts = texts();
        let message = Message::of(&texts, std::slice::from_ref(&texts.text));
        assert_eq!((message.rest.len(), message.rest[0].as_ptr()), (2, texts.text.as_ptr()));
        let (length, whole) = (message.len(), message.into_bytes());
        assert_eq!((&*whole, whole.len()), (message_pack::encode(&texts).as_slice(), length));
        assert_eq!(Message::of(&texts, &[]).into_bytes(), whole);
    }

    #[test]
    fn pieces_of_a_message_are_its_bytes_in_their_order() {
        let texts = texts();
        let whole = Message::of(&texts, &[]).into_bytes();
        for most in [1000, 1 << 15, usize::MAX] {
            let mut message = Message::of(&texts, &[texts.other.clone(), texts.text.clone()]);
            let mut pieces = Vec::new();
            while !message.is_empty() {
                let piece = message.split_to(most);
                assert!((1..=most).contains(&piece.len()));
                pieces.extend_from_slice(&piece);
            }
            assert_eq!(pieces, whole);
            assert_eq!((message.len(), message.split_to(most).len()), (0, 0));
        }
    }

    #[test]
    fn what_is_done_to_the_last_part_is_done_to_any_message() {
        let parts = || [Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"b")];
        for message in [Message::default(), Bytes::from_static(b"a").into(), Message::from_iter(parts())] {
            let (bytes, mut done) = (message.len(), false);
            let same = message.with_last(|last| {
                done = true;
                last
            });
            assert!(done && same.len() == bytes);
        }
    }
}
