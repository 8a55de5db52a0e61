//! JSON as documents need it: ordered members, exact integers of any size, floats that stay floats, one canonical text.
//!
//! [`parse`] accepts exactly what CouchDB 3.5 was measured to accept. The canonical text is compact: non-ASCII raw,
//! only `"`, `\\` and controls escaped, floats in the shortest form that reads back the same, always with a `.` or an
//! exponent. It is written once when a document comes in, stored, and copied from then on.

mod lazy;
mod parse;
pub mod pieces;
#[cfg(test)]
mod tests;

use num_bigint::BigInt;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use lazy::{Lazy, parse_lazily};
pub use parse::{check, has_integer_out_of_range, is_too_deep, parse, tree_bytes};

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// An integer that does not.
    Big(BigInt),
    /// A number written with a fraction or an exponent. Always finite.
    Float(f64),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Value>),
    /// Named members in order.
    Object(Object),
}

impl Serialize for Value {
    /// As its text: between nodes a value must keep what no other form keeps (order, sizes of numbers).
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&String::from_utf8_lossy(&self.to_vec()))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        parse(String::deserialize(from)?.as_bytes()).map_err(|_| D::Error::custom("no JSON text"))
    }
}

/// The members of a JSON object: ordered, names unique.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Object(Vec<(String, Value)>);

/// Text that is not acceptable JSON; clients are told `invalid UTF-8 JSON`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonError;

/// Appends a text as a JSON string: non-ASCII raw, controls escaped.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if !NEEDS_CARE[usize::from(*byte)] {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                let hex = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

/// The bytes that cannot stand for themselves within a JSON string: quote, backslash, controls.
const NEEDS_CARE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

/// ECMAScript's shortest form, with `.0` where it would read as an integer. Zero loses its sign, as in CouchDB.
fn write_float(value: f64, out: &mut Vec<u8>) {
    let mut buffer = ryu_js::Buffer::new();
    let text = buffer.format_finite(value).as_bytes();
    out.extend_from_slice(text);
    if !text.iter().any(|b| matches!(b, b'.' | b'e')) {
        out.extend_from_slice(b".0");
    }
}

fn write_int(value: i64, out: &mut Vec<u8>) {
    // 19 digits and the sign.
    let mut buffer = [0; 20];
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    out.extend_from_slice(&buffer[at..]);
}

impl Value {
    /// Appends the canonical, compact text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(value) => write_int(*value, out),
            Value::Big(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Value::Float(value) => write_float(*value, out),
            Value::String(text) => write_string(text, out),
            Value::Array(array) => {
                out.push(b'[');
                for (n, element) in array.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
            Value::Object(object) => object.write(out),
        }
    }

    /// The canonical, compact text.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// About the bytes of its text: no fewer, but for what is escaped and for long numbers.
    fn text_bytes(&self) -> usize {
        match self {
            Value::Null | Value::Bool(_) => 5,
            Value::Int(value) => value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 2,
            Value::Big(_) => 24,
            Value::Float(_) => 8,
            Value::String(text) => text.len() + 2,
            Value::Array(elements) => elements.iter().map(|value| value.text_bytes() + 1).sum::<usize>() + 2,
            Value::Object(object) => object.text_bytes(),
        }
    }

    /// Whether some number in it was written with a fraction or an exponent.
    pub fn has_float(&self) -> bool {
        match self {
            Value::Float(_) => true,
            Value::Array(elements) => elements.iter().any(Value::has_float),
            Value::Object(object) => object.has_float(),
            _ => false,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&Object> {
        if let Value::Object(object) = self { Some(object) } else { None }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        if let Value::Array(array) = self { Some(array) } else { None }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// An integer of 64 bits (not a float without fraction).
    pub fn as_i64(&self) -> Option<i64> {
        if let Value::Int(value) = self { Some(*value) } else { None }
    }

    /// An integer that is not negative and fits 64 bits.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Int(value) => u64::try_from(*value).ok(),
            Value::Big(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// True for `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl Object {
    /// An object without members.
    pub fn new() -> Object {
        Object::default()
    }

    /// As [`Value::text_bytes`].
    fn text_bytes(&self) -> usize {
        // Quotes, colon and comma.
        self.0.iter().map(|(name, value)| name.len() + value.text_bytes() + 4).sum::<usize>() + 2
    }

    /// As [`Value::has_float`].
    pub fn has_float(&self) -> bool {
        self.0.iter().any(|(_, value)| value.has_float())
    }

    /// An object without members, with room for some.
    pub fn with_capacity(members: usize) -> Object {
        Object(Vec::with_capacity(members))
    }

    /// The member of that name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// The member of that name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// True when there is a member of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Replaces the member of that name in its place, or appends it. Answers what was there.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(&name) {
            Some(place) => Some(std::mem::replace(place, value)),
            None => {
                self.0.push((name, value));
                None
            }
        }
    }

    /// Appends a member whose name the caller knows to be new: this is not checked.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// Takes the member of that name out; the order of the others stays.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(n, _)| n == name)?;
        Some(self.0.remove(at).1)
    }

    /// The members in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> + DoubleEndedIterator {
        self.0.iter().map(|(n, v)| (n.as_str(), v))
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the canonical, compact text.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (n, (name, value)) in self.0.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write_string(name, out);
            out.push(b':');
            value.write(out);
        }
        out.push(b'}');
    }

    /// The canonical, compact text.
    pub fn to_vec(&self) -> Vec<u8> {
        // Most documents fit: a vector that grows from nothing is copied again and again, and one that grows is in
        // memory twice.
        let mut out = Vec::with_capacity(self.text_bytes().max(512));
        self.write(&mut out);
        out
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Of members with one name the last stays, at its own place.
impl FromIterator<(String, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Object {
        Object::from_members(members.into_iter().collect())
    }
}

impl Object {
    /// Of members with one name the last stays, at its own place.
    fn from_members(mut members: Vec<(String, Value)>) -> Object {
        let twice = if members.len() <= FEW_MEMBERS {
            members.iter().enumerate().any(|(at, (name, _))| members[at + 1..].iter().any(|(other, _)| other == name))
        } else {
            let mut marks: Vec<u64> = members.iter().map(|(name, _)| mark(name)).collect();
            marks.sort_unstable();
            marks.windows(2).any(|w| w[0] == w[1])
        };
        if twice {
            keep_last_of_each_name(&mut members);
        }
        Object(members)
    }
}

/// A cheap hash of a name. Equal marks are only a reason to compare the names.
fn mark(name: &str) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    name.as_bytes().chunks(8).fold(name.len() as u64, |mark, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (mark.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(ODD)
    })
}

/// Members up to which names are compared one with another; above, their marks are sorted.
const FEW_MEMBERS: usize = 12;

/// Drops every member that has a later one of the same name.
fn keep_last_of_each_name(members: &mut Vec<(String, Value)>) {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| members[*a].0.cmp(&members[*b].0).then(a.cmp(b)));
    let same = order.windows(2).filter(|w| members[w[0]].0 == members[w[1]].0);
    let mut dropped: Vec<usize> = same.map(|w| w[0]).collect();
    dropped.sort_unstable();
    let (mut at, mut next) = (0, dropped.into_iter().peekable());
    members.retain(|_| {
        let drop = next.next_if_eq(&at).is_some();
        at += 1;
        !drop
    });
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        i64::try_from(value).map_or_else(|_| Value::Big(BigInt::from(value)), Value::Int)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text)
    }
}

impl From<Vec<Value>> for Value {
    fn from(array: Vec<Value>) -> Value {
        Value::Array(array)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Value {
        Value::Object(object)
    }
}
