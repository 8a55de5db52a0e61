//! Values as MessagePack: what calls between nodes carry, and some records on disk. Structs are maps with the names of
//! their fields, so that a field can be added.
//!
//! `rmp-serde` writes. Reading is our own, with the same outcome (a test compares both): the decoder of `rmp-serde` is
//! compiled again, at some 15 kB, for each type that is read, and was an eighth of all code that a build made. Here all
//! that does not depend on the type is one function ([`Decoder::item`]).

use std::fmt;

use serde::Serialize;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

use crate::limits::MESSAGE_DEPTH_MAX;

/// Writes a value.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    // Invariant: messages are made of numbers, texts, lists, maps with names and bytes, which always serialize.
    rmp_serde::to_vec_named(value).expect("a message serializes")
}

/// Writes a value, piece by piece; `to` takes all that it is given.
pub fn encode_to(value: &impl Serialize, to: &mut impl std::io::Write) {
    // Invariant: as that of `encode`.
    rmp_serde::encode::write_named(to, value).expect("a message serializes");
}

/// Reads a value; bytes behind it are left alone. Takes anything, never panics, and goes as deep as
/// [`MESSAGE_DEPTH_MAX`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    T::deserialize(&mut Decoder { rest: bytes, depth: 0 })
}

/// Why bytes are not the value that was asked for, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError(String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(what: T) -> Self {
        DecodeError(what.to_string())
    }
}

/// One value without what it contains.
enum Item<'a> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// As many values follow.
    List(u32),
    /// As many pairs follow.
    Map(u32),
}

/// Reads values off the front of bytes.
struct Decoder<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl<'a> Decoder<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| DecodeError("cut short".to_owned()))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    /// A length of one, two or four bytes.
    fn length(&mut self, width: usize) -> Result<u32, DecodeError> {
        Ok(self.bytes(width)?.iter().fold(0, |length, byte| length << 8 | u32::from(*byte)))
    }

    /// What is not UTF-8 counts as bytes: as the name of a field it is one that nobody knows, as a text it is refused.
    fn text(&mut self, length: u32) -> Result<Item<'a>, DecodeError> {
        let bytes = self.bytes(length as usize)?;
        Ok(std::str::from_utf8(bytes).map_or(Item::Bytes(bytes), Item::Text))
    }

    fn raw(&mut self, length: u32) -> Result<Item<'a>, DecodeError> {
        self.bytes(length as usize).map(Item::Bytes)
    }

    /// The next value. The numbers are those of the MessagePack specification, "Overview" of formats.
    fn item(&mut self) -> Result<Item<'a>, DecodeError> {
        let [marker] = self.array()?;
        Ok(match marker {
            0x00..=0x7f => Item::Unsigned(marker.into()),
            0x80..=0x8f => Item::Map((marker & 0x0f).into()),
            0x90..=0x9f => Item::List((marker & 0x0f).into()),
            0xa0..=0xbf => self.text((marker & 0x1f).into())?,
            0xc0 => Item::Nil,
            0xc2 | 0xc3 => Item::Bool(marker == 0xc3),
            0xc4..=0xc6 => {
                let length = self.length(1 << (marker - 0xc4))?;
                self.raw(length)?
            }
            0xca => Item::Float(f32::from_be_bytes(self.array()?).into()),
            0xcb => Item::Float(f64::from_be_bytes(self.array()?)),
            0xcc => Item::Unsigned(self.length(1)?.into()),
            0xcd => Item::Unsigned(self.length(2)?.into()),
            0xce => Item::Unsigned(self.length(4)?.into()),
            0xcf => Item::Unsigned(u64::from_be_bytes(self.array()?)),
            0xd0 => Item::Signed(i8::from_be_bytes(self.array()?).into()),
            0xd1 => Item::Signed(i16::from_be_bytes(self.array()?).into()),
            0xd2 => Item::Signed(i32::from_be_bytes(self.array()?).into()),
            0xd3 => Item::Signed(i64::from_be_bytes(self.array()?)),
            0xd9..=0xdb => {
                let length = self.length(1 << (marker - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => Item::List(self.length(2 << (marker - 0xdc))?),
            0xde | 0xdf => Item::Map(self.length(2 << (marker - 0xde))?),
            0xe0..=0xff => Item::Signed((marker as i8).into()),
            _ => return Err(DecodeError(format!("a value that begins with {marker:#04x}"))),
        })
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > MESSAGE_DEPTH_MAX { Err(DecodeError("nested too deep".to_owned())) } else { Ok(()) }
    }

    /// Of a list or map of which `left` values were not taken.
    fn leave(&mut self, left: u32) -> Result<(), DecodeError> {
        self.depth -= 1;
        if left > 0 { Err(DecodeError(format!("{left} values too many"))) } else { Ok(()) }
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn sixteen(&mut self) -> Result<[u8; 16], DecodeError> {
        match self.item()? {
            Item::Bytes(bytes) => bytes.try_into().map_err(|_| DecodeError("a number of 128 bits".to_owned())),
            _ => Err(DecodeError("a number of 128 bits".to_owned())),
        }
    }

    /// Whether what follows is an enum's variant with data: a map of one.
    fn variant_with_data(&mut self) -> Result<bool, DecodeError> {
        if !matches!(self.peek(), Some(0x80..=0x8f | 0xde..=0xdf)) {
            return Ok(false);
        }
        match self.item()? {
            Item::Map(1) => Ok(true),
            _ => Err(DecodeError("a variant that is no map of one".to_owned())),
        }
    }
}

impl<'de> de::Deserializer<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.item()? {
            Item::Nil => visitor.visit_unit(),
            Item::Bool(value) => visitor.visit_bool(value),
            Item::Unsigned(value) => visitor.visit_u64(value),
            Item::Signed(value) => visitor.visit_i64(value),
            Item::Float(value) => visitor.visit_f64(value),
            Item::Text(text) => visitor.visit_borrowed_str(text),
            Item::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Item::List(left) => {
                self.enter()?;
                let mut parts = Parts { decoder: self, left };
                let value = visitor.visit_seq(&mut parts)?;
                parts.decoder.leave(parts.left).map(|()| value)
            }
            Item::Map(left) => {
                self.enter()?;
                let mut parts = Parts { decoder: self, left };
                let value = visitor.visit_map(&mut parts)?;
                parts.decoder.leave(parts.left).map(|()| value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.peek() != Some(0xc0) {
            return visitor.visit_some(self);
        }
        self.item()?;
        visitor.visit_none()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        match self.item()? {
            Item::Nil | Item::List(0) => visitor.visit_unit(),
            _ => Err(DecodeError("not the empty value".to_owned())),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if self.variant_with_data()? {
            self.enter()?;
            let value = visitor.visit_enum(Variant { decoder: self })?;
            return self.leave(0).map(|()| value);
        }
        match self.item()? {
            Item::Text(name) => visitor.visit_enum(name.into_deserializer()),
            _ => Err(DecodeError("a variant without a name".to_owned())),
        }
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_i128(i128::from_be_bytes(self.sixteen()?))
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_u128(u128::from_be_bytes(self.sixteen()?))
    }

    /// As `rmp-serde` has it: addresses are written as numbers, not as texts.
    fn is_human_readable(&self) -> bool {
        false
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// The rest of a list, or of a map.
struct Parts<'d, 'de> {
    decoder: &'d mut Decoder<'de>,
    left: u32,
}

impl Parts<'_, '_> {
    /// Whether one more is there, which then counts as taken.
    fn takes(&mut self) -> bool {
        let more = self.left > 0;
        self.left -= u32::from(more);
        more
    }
}

impl<'de> de::SeqAccess<'de> for &mut Parts<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        if self.takes() { seed.deserialize(&mut *self.decoder).map(Some) } else { Ok(None) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize)
    }
}

impl<'de> de::MapAccess<'de> for &mut Parts<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        if self.takes() { seed.deserialize(&mut *self.decoder).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        seed.deserialize(&mut *self.decoder)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize)
    }
}

/// An enum's variant with data: its name, then the data.
struct Variant<'d, 'de> {
    decoder: &'d mut Decoder<'de>,
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        let name = seed.deserialize(&mut *self.decoder)?;
        Ok((name, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.decoder.item()? {
            Item::Nil => Ok(()),
            _ => Err(DecodeError("data of a variant that has none".to_owned())),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(self.decoder)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        de::Deserializer::deserialize_any(self.decoder, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, DecodeError> {
        de::Deserializer::deserialize_any(self.decoder, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, SocketAddr};

    use bytes::Bytes;
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
    struct Empty;

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Wrapped(i64);

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    enum Choice {
        Plain,
        One(Wrapped),
        Two(u8, String),
        Named { at: Option<u64>, deep: Option<Box<Choice>> },
    }

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Everything {
        unit: (),
        empty: Empty,
        yes: bool,
        wrapped: Wrapped,
        ratio: f64,
        small: f32,
        letter: char,
        text: String,
        raw: Bytes,
        numbers: Vec<i32>,
        table: BTreeMap<String, u64>,
        choices: Vec<Choice>,
        maybe: Option<Option<bool>>,
        wide: u128,
        from: SocketAddr,
        #[serde(default)]
        later: u16,
    }

    fn choice() -> impl Strategy<Value = Choice> {
        let leaf = prop_oneof![
            Just(Choice::Plain),
            any::<i64>().prop_map(|n| Choice::One(Wrapped(n))),
            (any::<u8>(), ".{0,40}").prop_map(|(n, text)| Choice::Two(n, text)),
        ];
        leaf.prop_recursive(4, 8, 1, |inner| {
            (any::<Option<u64>>(), proptest::option::of(inner))
                .prop_map(|(at, deep)| Choice::Named { at, deep: deep.map(Box::new) })
        })
    }

    fn everything() -> impl Strategy<Value = Everything> {
        let plain = (any::<bool>(), any::<i64>(), -1e300f64..1e300, any::<f32>(), any::<char>(), ".{0,300}");
        let rest = (
            proptest::collection::vec(any::<u8>(), 0..300),
            proptest::collection::vec(any::<i32>(), 0..70),
            proptest::collection::btree_map("[a-z]{0,3}", any::<u64>(), 0..20),
            proptest::collection::vec(choice(), 0..4),
            any::<Option<bool>>(),
            any::<u128>(),
            any::<(IpAddr, u16)>(),
        );
        (plain, rest).prop_map(|((yes, n, ratio, small, letter, text), rest)| {
            let (raw, numbers, table, choices, maybe, wide, from) = rest;
            Everything {
                unit: (),
                empty: Empty,
                yes,
                wrapped: Wrapped(n),
                ratio,
                small: if small.is_nan() { 0.0 } else { small },
                letter,
                text,
                raw: raw.into(),
                numbers,
                table,
                choices,
                maybe: maybe.map(Some),
                wide,
                from: from.into(),
                later: 7,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in everything()) {
            let bytes = encode(&value);
            prop_assert_eq!(&decode::<Everything>(&bytes), &Ok(value));
        }

        /// Bytes of another making, too, but for extension types, which no message has: the library passes over one
        /// that stands where the name of a field is.
        #[test]
        fn reads_what_the_library_reads(value in everything(), at in any::<prop::sample::Index>(), new in any::<u8>()) {
            let mut bytes = encode(&value);
            let at = at.index(bytes.len());
            bytes[at] = new;
            let (ours, theirs) = (decode::<Everything>(&bytes), rmp_serde::from_slice::<Everything>(&bytes));
            prop_assume!(!matches!(&ours, Err(why) if why.0.starts_with("a value that begins with")));
            prop_assert_eq!(ours.as_ref().ok().map(encode), theirs.as_ref().ok().map(encode), "{:?} {:?}", ours, theirs);
        }

        #[test]
        fn takes_anything(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Everything>(&bytes);
            let _ = decode::<Choice>(&bytes);
        }
    }

    #[test]
    fn a_field_that_is_not_there_takes_its_default_and_one_too_many_is_passed_over() {
        #[derive(Serialize)]
        struct Newer {
            at: u8,
            added: Vec<(u8, Option<String>)>,
        }
        #[derive(PartialEq, Debug, Deserialize)]
        struct Older {
            at: u8,
            #[serde(default)]
            gone: bool,
        }
        let bytes = encode(&Newer { at: 3, added: vec![(1, None), (2, Some("x".to_owned()))] });
        assert_eq!(decode::<Older>(&bytes), Ok(Older { at: 3, gone: false }));
    }

    #[test]
    fn an_unknown_variant_is_named_in_the_words_of_serde() {
        let why = decode::<Choice>(&encode(&BTreeMap::from([("Later", 1)]))).expect_err("it is not there");
        assert!(why.to_string().starts_with("unknown variant `Later`"), "{why}");
    }

    #[test]
    fn a_variant_with_data_is_a_map_of_one_and_no_list() {
        let mut bytes = encode(&Choice::Named { at: None, deep: None });
        assert!(decode::<Choice>(&bytes).is_ok());
        bytes[0] = 0x91;
        assert!(decode::<Choice>(&bytes).is_err() && rmp_serde::from_slice::<Choice>(&bytes).is_err());
    }

    #[test]
    fn nests_no_deeper_than_its_limit() {
        let deep = |levels: usize| [vec![0x91; levels], vec![0xc0]].concat();
        assert!(decode::<de::IgnoredAny>(&deep(MESSAGE_DEPTH_MAX)).is_ok());
        assert!(decode::<de::IgnoredAny>(&deep(MESSAGE_DEPTH_MAX + 1)).is_err());
        assert!(decode::<de::IgnoredAny>(&deep(10_000_000)).is_err());
    }
}
