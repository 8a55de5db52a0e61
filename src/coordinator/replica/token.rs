//! Write tokens: the answer to a write carries one, and a later read with it, on any node, shows at least that write.
//!
//! A token names, for each range that was written to, replicas that hold the write, as the changes feed names them:
//! shard, epoch and position. A read with a token uses a replica that has what one of these has up to there (see
//! `floor`). The text is the base64url of a version, the entries and a CRC-32; nothing in it is secret. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::topology::shard_map::Range;
use crate::limits;
use crate::wire::codec::{CodecError, Reader, put_varint};

/// The version byte of the encoding.
const VERSION: u8 = 1;

/// A replica, and a position at which it held a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::coordinator) struct Mark {
    pub shard: u64,
    pub epoch: u64,
    pub position: u64,
}

impl Mark {
    /// Of a replica that stands so.
    pub fn of(replica_position: ReplicaPosition) -> Mark {
        let ReplicaPosition { shard, position, .. } = replica_position;
        Mark { shard, epoch: replica_position.epoch_of(position), position }
    }
}

/// Writes to one range, and the replicas that hold them all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::coordinator) struct HeldWrites {
    /// Whether only these replicas themselves count: what was done to them is no change that others read there.
    pub only: bool,
    pub marks: Vec<Mark>,
}

/// Writes to a range of hashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::coordinator) struct RangeWrites {
    pub range: Range,
    pub held: HeldWrites,
}

/// Writes to one database.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DatabaseWrites {
    /// Hashes of its name and its instance.
    name: u32,
    instance: u32,
    writes: Vec<RangeWrites>,
}

/// What was written, see the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteToken(Vec<DatabaseWrites>);

/// A text that is no token, or too many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedToken;

/// A name as tokens have it.
pub(in crate::coordinator) fn hash(text: &str) -> u32 {
    let hash = blake3::hash(text.as_bytes());
    // Invariant: a hash has 32 bytes.
    u32::from_be_bytes(hash.as_bytes()[..4].try_into().expect("four bytes"))
}

impl WriteToken {
    /// Of writes to one database.
    pub(in crate::coordinator) fn of(
        name: &str,
        instance: &str,
        writes: impl IntoIterator<Item = RangeWrites>,
    ) -> WriteToken {
        let mut part = DatabaseWrites { name: hash(name), instance: hash(instance), writes: Vec::new() };
        writes.into_iter().for_each(|written| part.add(written));
        WriteToken(vec![part])
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|part| part.writes.is_empty())
    }

    /// Whether it is of writes to a database of that name.
    pub(in crate::coordinator) fn names(&self, name: &str) -> bool {
        let name = hash(name);
        self.0.iter().any(|part| part.name == name)
    }

    /// The writes to one of the databases that had a name; `None`: it is of none to that one.
    pub(in crate::coordinator) fn writes(&self, name: &str, instance: &str) -> Option<&[RangeWrites]> {
        let (name, instance) = (hash(name), hash(instance));
        self.0.iter().find(|part| (part.name, part.instance) == (name, instance)).map(|part| part.writes.as_slice())
    }

    /// The instances of a database's name that it is of, as hashes.
    pub(in crate::coordinator) fn instances(&self, name: &str) -> impl Iterator<Item = u32> {
        let name = hash(name);
        self.0.iter().filter(move |part| part.name == name).map(|part| part.instance)
    }

    /// Applies another one: then it is of the writes of both.
    pub fn add(&mut self, other: WriteToken) {
        for part in other.0 {
            match self.0.iter_mut().find(|own| (own.name, own.instance) == (part.name, part.instance)) {
                Some(own) => part.writes.into_iter().for_each(|written| own.add(written)),
                None => self.0.push(part),
            }
        }
    }

    /// Reads texts made by [`WriteToken::text`], separated by commas.
    ///
    /// # Errors
    /// Any of them is none, or they are too long.
    pub fn parse(text: &str) -> Result<WriteToken, MalformedToken> {
        if text.len() > limits::TOKENS_TEXT_MAX {
            return Err(MalformedToken);
        }
        let mut token = WriteToken::default();
        for one in text.split(',').map(str::trim) {
            let bytes = URL_SAFE_NO_PAD.decode(one).map_err(|_| MalformedToken)?;
            token.add(WriteToken::decode(&bytes).ok_or(MalformedToken)?);
        }
        Ok(token)
    }

    /// The token as text. Of writes to very many ranges it names one replica of each; `None`: it is too long even so,
    /// or of no write.
    pub fn text(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let fits = |text: &String| text.len() <= limits::TOKEN_TEXT_MAX;
        let text = |marks: usize| URL_SAFE_NO_PAD.encode(self.encode(marks));
        Some(text(usize::MAX)).filter(fits).or_else(|| Some(text(1)).filter(fits))
    }

    /// With at most that many replicas of each write.
    fn encode(&self, marks: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(VERSION);
        for DatabaseWrites { name, instance, writes } in &self.0 {
            out.extend(name.to_be_bytes());
            out.extend(instance.to_be_bytes());
            put_varint(&mut out, writes.len() as u64);
            for RangeWrites { range, held } in writes {
                out.extend(range.begin.to_be_bytes());
                out.extend(range.end.to_be_bytes());
                let count = held.marks.len().min(marks);
                put_varint(&mut out, (count as u64) << 1 | u64::from(held.only));
                for mark in &held.marks[..count] {
                    [mark.shard, mark.epoch, mark.position].into_iter().for_each(|number| put_varint(&mut out, number));
                }
            }
        }
        out.extend(crc32fast::hash(&out).to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<WriteToken> {
        let (body, check) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body).to_be_bytes() != *check {
            return None;
        }
        WriteToken::read(Reader::new(body)).ok().filter(|token| !token.is_empty())
    }

    fn read(mut reader: Reader<'_>) -> Result<WriteToken, CodecError> {
        reader.version(VERSION)?;
        let mut token = WriteToken::default();
        while !reader.is_empty() {
            let (name, instance) = (u32::from_be_bytes(reader.array()?), u32::from_be_bytes(reader.array()?));
            let mut part = DatabaseWrites { name, instance, writes: Vec::new() };
            for _ in 0..reader.varint()? {
                let range =
                    Range { begin: u32::from_be_bytes(reader.array()?), end: u32::from_be_bytes(reader.array()?) };
                let head = reader.varint()?;
                let mut held = HeldWrites { only: head & 1 == 1, marks: Vec::new() };
                for _ in 0..head >> 1 {
                    let (shard, epoch, position) = (reader.varint()?, reader.varint()?, reader.varint()?);
                    held.marks.push(Mark { shard, epoch, position });
                }
                part.writes.push(RangeWrites { range, held });
            }
            token.0.push(part);
        }
        Ok(token)
    }
}

impl DatabaseWrites {
    /// Applies a write. One that a replica holds which held an earlier one, too, stands for both with the replicas that
    /// the two have in common: a replica loses nothing as its position grows.
    fn add(&mut self, written: RangeWrites) {
        for own in self.writes.iter_mut().filter(|own| own.range == written.range && own.held.only == written.held.only)
        {
            let both = common(&own.held.marks, &written.held.marks);
            if !both.is_empty() {
                own.held.marks = both;
                return;
            }
        }
        self.writes.push(written);
    }
}

/// The replicas of both, each with the higher position.
fn common(own: &[Mark], other: &[Mark]) -> Vec<Mark> {
    let later = |mark: &Mark| {
        let same = other.iter().find(|other| (other.shard, other.epoch) == (mark.shard, mark.epoch))?;
        Some(Mark { position: mark.position.max(same.position), ..*mark })
    };
    own.iter().filter_map(later).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mark(shard: u64, position: u64) -> Mark {
        Mark { shard, epoch: 1 << 47, position }
    }

    fn written(begin: u32, marks: &[Mark]) -> RangeWrites {
        RangeWrites { range: Range { begin, end: begin + 9 }, held: HeldWrites { only: false, marks: marks.to_vec() } }
    }

    fn marks(token: &WriteToken) -> Vec<(u32, Vec<(u64, u64)>)> {
        let writes = token.writes("db", "i").unwrap_or_default().iter();
        let pairs = |held: &HeldWrites| held.marks.iter().map(|mark| (mark.shard, mark.position)).collect();
        writes.map(|written| (written.range.begin, pairs(&written.held))).collect()
    }

    #[test]
    fn later_writes_to_a_range_stand_for_earlier_ones_where_a_replica_holds_both() {
        let of = |writes: Vec<RangeWrites>| WriteToken::of("db", "i", writes);
        let mut token = of(vec![written(0, &[mark(1, 5), mark(2, 7)])]);
        token.add(of(vec![written(0, &[mark(1, 6), mark(2, 6)])]));
        assert_eq!(marks(&token), [(0, vec![(1, 6), (2, 7)])]);
        token.add(of(vec![written(0, &[mark(3, 1), mark(1, 2)]), written(10, &[mark(4, 4)])]));
        assert_eq!(marks(&token), [(0, vec![(1, 6)]), (10, vec![(4, 4)])]);
        token.add(of(vec![written(0, &[mark(9, 9)])]));
        assert_eq!(marks(&token), [(0, vec![(1, 6)]), (10, vec![(4, 4)]), (0, vec![(9, 9)])], "nobody holds both");
    }

    #[test]
    fn a_token_is_of_a_database_and_of_one_instance_of_its_name() {
        let mut token = WriteToken::of("db", "i", [written(0, &[mark(1, 5)])]);
        token.add(WriteToken::of("other", "j", [written(0, &[mark(2, 5)])]));
        assert!(token.names("db") && token.names("other") && !token.names("third"));
        assert!(token.writes("db", "i").is_some() && token.writes("db", "j").is_none());
        let text = token.text().unwrap();
        assert_eq!(WriteToken::parse(&text), Ok(token.clone()));
        assert_eq!(WriteToken::parse(&format!("{text}, {text}")), Ok(token));
    }

    #[test]
    fn garbage_is_malformed() {
        for text in ["", "garbage", ",", "AQ", "AQAAAAA", "\"", "0-AQAAAAA"] {
            assert_eq!(WriteToken::parse(text), Err(MalformedToken), "{text}");
        }
        assert_eq!(WriteToken::parse(&"A".repeat(limits::TOKENS_TEXT_MAX + 1)), Err(MalformedToken));
    }

    #[test]
    fn a_token_of_one_write_is_short_and_one_of_very_many_ranges_names_fewer_replicas() {
        let token = |ranges: u32| {
            let two = [mark(300, 100_000), mark(400, 100_000)];
            WriteToken::of("db", "i", (0..ranges).map(|at| written(at * 10, &two)).collect::<Vec<_>>())
        };
        assert!(token(1).text().unwrap().len() < 80);
        let most = limits::Q_DEFAULT;
        assert_eq!(WriteToken::parse(&token(most).text().unwrap()), Ok(token(most)));
        let short = WriteToken::parse(&token(200).text().unwrap()).unwrap();
        assert!(marks(&short).iter().all(|(_, marks)| marks.len() == 1) && marks(&short).len() == 200);
        assert_eq!(token(1000).text(), None);
        assert_eq!(WriteToken::default().text(), None);
    }

    prop_compose! {
        fn a_write()(
            begin in 0..5_u32, only: bool, marks in prop::collection::vec((0..300_u64, 0..9_u64, any::<u64>()), 1..4),
        ) -> RangeWrites {
            let mark = |(shard, epoch, position)| Mark { shard, epoch, position };
            let held = HeldWrites { only, marks: marks.into_iter().map(mark).collect() };
            RangeWrites { range: Range { begin: begin * 10, end: begin * 10 + 9 }, held }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn text_round_trips(writes in prop::collection::vec(a_write(), 1..6)) {
            let token = WriteToken::of("db", "i", writes);
            prop_assert_eq!(WriteToken::parse(&token.text().unwrap()), Ok(token));
        }

        #[test]
        fn a_changed_text_is_malformed(
            writes in prop::collection::vec(a_write(), 1..5), at: usize, to in "[A-Za-z0-9_-]",
        ) {
            let text = WriteToken::of("db", "i", writes).text().unwrap();
            let at = at % text.len();
            let mut changed = text.clone();
            changed.replace_range(at..=at, &to);
            prop_assume!(changed != text);
            prop_assert_eq!(WriteToken::parse(&changed), Err(MalformedToken));
        }

        #[test]
        fn no_text_panics(text in "[A-Za-z0-9_,-]{0,60}") {
            let _ = WriteToken::parse(&text);
        }
    }
}
