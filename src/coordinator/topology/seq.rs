//! Update sequences: how far each range of a database has been read, as one opaque text.
//!
//! The text is `N-` and the base64url of a vector, N being the sum of the positions, for human eyes only. A vector
//! names per range the replica, the replica's epoch and the position, so that a token stays good when replicas change
//! (`docs/consistency.md`). Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::coordinator::topology::shard_map::Range;
use crate::limits;
use crate::wire::codec::{CodecError, Reader, put_varint};

/// The version byte of the encoding.
const VERSION: u8 = 1;

/// How far one range was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeqEntry {
    /// The last hash of the range; the first follows the range before it.
    pub end: u32,
    /// The replica that was read.
    pub shard: u64,
    /// The replica's epoch: positions of different epochs cannot be compared.
    pub epoch: u64,
    /// The position of the last change read; 0 before the first.
    pub position: u64,
}

/// How far each range of a database was read, in ring order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seq(pub Vec<SeqEntry>);

/// A text that is no sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedSeq;

impl Seq {
    /// The sum of the positions.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|entry| entry.position).sum()
    }

    /// The entries that have all of a range between them: the one of a range that it lies in, as one that was split
    /// later, or those of its parts. Empty when there are no such ones.
    pub fn over(&self, range: Range) -> Vec<SeqEntry> {
        let mut parts = Vec::new();
        let mut begin = 0;
        for entry in &self.0 {
            if begin <= range.begin && range.end <= entry.end {
                return vec![*entry];
            }
            if range.begin <= begin && entry.end <= range.end {
                parts.push((begin, *entry));
            }
            begin = entry.end.saturating_add(1);
        }
        let is_whole = parts.first().is_some_and(|(begin, _)| *begin == range.begin)
            && parts.last().is_some_and(|(_, entry)| entry.end == range.end);
        if is_whole { parts.into_iter().map(|(_, entry)| entry).collect() } else { Vec::new() }
    }

    /// Reads a text made by `Display`.
    pub fn parse(text: &str) -> Result<Seq, MalformedSeq> {
        let (sum, payload) = text.split_once('-').ok_or(MalformedSeq)?;
        let sum: u64 = sum.parse().map_err(|_| MalformedSeq)?;
        if payload.len() > limits::SEQ_TEXT_MAX {
            return Err(MalformedSeq);
        }
        let bytes = URL_SAFE_NO_PAD.decode(payload).map_err(|_| MalformedSeq)?;
        let seq = Seq::decode(&bytes).ok_or(MalformedSeq)?;
        if seq.sum() == sum { Ok(seq) } else { Err(MalformedSeq) }
    }

    /// Version, entries (end big endian, then shard, epoch and position as varints), CRC-32 of all before.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(5 + self.0.len() * 12);
        out.push(VERSION);
        for entry in &self.0 {
            out.extend(entry.end.to_be_bytes());
            for number in [entry.shard, entry.epoch, entry.position] {
                put_varint(&mut out, number);
            }
        }
        out.extend(crc32fast::hash(&out).to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Seq> {
        let (body, check) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body).to_be_bytes() != *check {
            return None;
        }
        let entries = Seq::read_entries(Reader::new(body)).ok()?;
        let sum = entries.iter().try_fold(0_u64, |sum, e| sum.checked_add(e.position));
        sum.map(|_| Seq(entries))
    }

    fn read_entries(mut reader: Reader<'_>) -> Result<Vec<SeqEntry>, CodecError> {
        reader.version(VERSION)?;
        let mut entries = Vec::new();
        while !reader.is_empty() {
            let end = u32::from_be_bytes(reader.array()?);
            let (shard, epoch, position) = (reader.varint()?, reader.varint()?, reader.varint()?);
            entries.push(SeqEntry { end, shard, epoch, position });
        }
        Ok(entries)
    }
}

impl std::fmt::Display for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.sum(), URL_SAFE_NO_PAD.encode(self.encode()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn garbage_is_malformed() {
        for text in ["", "garbage", "1-garbage", "\"", "7", "1-", "-", "2025-g1AAAAChe", "0-AQAAAAA"] {
            assert_eq!(Seq::parse(text), Err(MalformedSeq), "{text}");
        }
    }

    #[test]
    fn a_range_goes_on_from_the_one_that_it_was_split_off_or_from_its_parts() {
        let at = |end, position| SeqEntry { end, shard: 1, epoch: 1, position };
        let seq = Seq(vec![at(9, 5), at(19, 6), at(u32::MAX, 7)]);
        let over = |begin, end| seq.over(Range { begin, end }).iter().map(|e| e.position).collect::<Vec<_>>();
        assert_eq!(over(10, 19), [6]);
        assert_eq!(over(15, 19), [6], "half of a range");
        assert_eq!(over(0, 19), [5, 6], "a range of which the reader read the halves");
        assert_eq!(over(5, 15), [0; 0], "neither");
    }

    #[test]
    fn the_number_in_front_is_for_human_eyes() {
        let seq = Seq(vec![SeqEntry { end: u32::MAX, shard: 7, epoch: 2, position: 9 }]);
        assert!(seq.to_string().starts_with("9-"));
    }

    prop_compose! {
        fn entry()(
            end: u32,
            shard in prop_oneof![0..300_u64, any::<u64>()],
            epoch in 0..9_u64,
            position in 0..1_u64 << 55,
        ) -> SeqEntry {
            SeqEntry { end, shard, epoch, position }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn text_round_trips(entries in prop::collection::vec(entry(), 0..12)) {
            let seq = Seq(entries);
            prop_assert_eq!(Seq::parse(&seq.to_string()), Ok(seq));
        }

        #[test]
        fn a_changed_text_is_malformed(
            entries in prop::collection::vec(entry(), 1..5), at: usize, to in "[A-Za-z0-9_-]",
        ) {
            let text = Seq(entries).to_string();
            let at = at % text.len();
            let mut changed = text.clone();
            changed.replace_range(at..=at, &to);
            prop_assume!(changed != text);
            prop_assert_eq!(Seq::parse(&changed), Err(MalformedSeq));
        }

        #[test]
        fn no_text_panics(text in "[0-9]{1,3}-[A-Za-z0-9_-]{0,60}") {
            let _ = Seq::parse(&text);
        }
    }
}
