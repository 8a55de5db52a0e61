//! Revision ids: parsing, order, and the deterministic hash that equals CouchDB's bit for bit.
//!
//! A revision is a generation and a hash. The hash of an edit is the MD5 of an Erlang external term (version 131, minor
//! version 1) of the list `[Deleted, OldPos, OldHash, Body, Attachments]`, as CouchDB 3.5 was measured: the same edit
//! made in two databases has the same revision and is no conflict when they replicate.

use std::cmp::Ordering;
use std::fmt;

use md5::{Digest, Md5};
use num_bigint::Sign;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::{Object, Value};

/// The hash part of a revision. Order is that of the raw bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum RevHash {
    /// 32 hexadecimal digits in text form.
    Md5([u8; 16]),
    /// Any other text that a client chose, as it stands.
    Text(Box<str>),
}

/// A text that is no revision; clients are told `Invalid rev format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRevision;

/// The highest generation that is believed: far above any real one, and safe to count on from.
pub const POS_MAX: u64 = 1 << 53;

/// One revision of a document: `pos` is the generation (1 for the first), `hash` tells siblings apart.
/// Order: generation, then hash bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Revision {
    /// The generation; 0 only for local documents.
    pub pos: u64,
    /// What tells revisions of one generation apart.
    pub hash: RevHash,
}

/// What of an attachment takes part in the hash.
#[derive(Clone, Copy, Debug)]
pub struct AttachmentDigest<'a> {
    /// The attachment's name.
    pub name: &'a str,
    /// Its content type as given.
    pub content_type: &'a str,
    /// MD5 of the stored bytes (of the gzip bytes when it is stored compressed).
    pub md5: &'a [u8; 16],
}

impl Serialize for RevHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            RevHash::Md5(bytes) => to.serialize_bytes(bytes),
            RevHash::Text(text) => to.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RevHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<RevHash, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = RevHash;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a revision's hash")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<RevHash, E> {
                bytes.try_into().map(RevHash::Md5).map_err(|_| E::invalid_length(bytes.len(), &self))
            }
            fn visit_str<E>(self, text: &str) -> Result<RevHash, E> {
                Ok(RevHash::Text(text.into()))
            }
        }
        from.deserialize_any(Either).map_err(D::Error::custom)
    }
}

impl RevHash {
    /// The raw bytes, by which hashes are ordered.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            RevHash::Md5(bytes) => bytes,
            RevHash::Text(text) => text.as_bytes(),
        }
    }

    /// Reads the hash part. A text of 32 bytes must be hexadecimal (either case); any other stands as it is.
    pub fn parse(text: &str) -> Result<RevHash, BadRevision> {
        if text.len() != 32 {
            return Ok(RevHash::Text(text.into()));
        }
        let digit = |at: usize| char::from(text.as_bytes()[at]).to_digit(16).ok_or(BadRevision);
        let mut bytes = [0; 16];
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = (digit(2 * n)? << 4 | digit(2 * n + 1)?) as u8;
        }
        Ok(RevHash::Md5(bytes))
    }
}

impl PartialOrd for RevHash {
    fn partial_cmp(&self, other: &RevHash) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RevHash {
    fn cmp(&self, other: &RevHash) -> Ordering {
        let is_text = |h: &RevHash| matches!(h, RevHash::Text(_));
        self.as_bytes().cmp(other.as_bytes()).then_with(|| is_text(self).cmp(&is_text(other)))
    }
}

impl fmt::Display for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RevHash::Text(text) => f.write_str(text),
            RevHash::Md5(bytes) => {
                let hex = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                let mut digits = [0; 32];
                for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
                    pair.copy_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
                }
                // Invariant: hexadecimal digits are ASCII.
                f.write_str(std::str::from_utf8(&digits).expect("ASCII"))
            }
        }
    }
}

impl fmt::Debug for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Revision {
    /// Puts a revision together.
    pub fn new(pos: u64, hash: RevHash) -> Revision {
        Revision { pos, hash }
    }

    /// Reads `N-hash`: decimal digits, a dash, and what [`RevHash::parse`] takes.
    pub fn parse(text: &str) -> Result<Revision, BadRevision> {
        let (pos, hash) = text.split_once('-').ok_or(BadRevision)?;
        if pos.is_empty() || !pos.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadRevision);
        }
        let pos: u64 = pos.parse().map_err(|_| BadRevision)?;
        if pos > POS_MAX {
            return Err(BadRevision);
        }
        Ok(Revision { pos, hash: RevHash::parse(hash)? })
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pos, self.hash)
    }
}

// Tags of the external term format.
const VERSION: u8 = 131;
const SMALL_INTEGER: u8 = 97;
const INTEGER: u8 = 98;
const ATOM: u8 = 100;
const SMALL_TUPLE: u8 = 104;
const NIL: u8 = 106;
const STRING: u8 = 107;
const LIST: u8 = 108;
const BINARY: u8 = 109;
const SMALL_BIG: u8 = 110;
const LARGE_BIG: u8 = 111;
const NEW_FLOAT: u8 = 70;

/// What takes the bytes of a term.
trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for Md5 {
    fn put(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

/// A document's body (without reserved members) as an external term, without the leading version byte.
pub fn encode_body(body: &Object) -> Vec<u8> {
    // A little more than the text takes.
    let mut out = Vec::with_capacity(512);
    put_object(body, &mut out);
    out
}

/// Bytes of a value as an external term: the size that CouchDB's limits of reductions count.
pub fn term_bytes(value: &Value) -> usize {
    let mut out = vec![VERSION];
    put_value(value, &mut out);
    out.len()
}

/// The revision of an edit. `parent` is the revision it replaces, `body_term` comes from [`encode_body`],
/// `attachments` are in the document's order (reversed inside, as CouchDB does).
pub fn compute(
    deleted: bool,
    parent: Option<&Revision>,
    body_term: &[u8],
    attachments: &[AttachmentDigest<'_>],
) -> Revision {
    compute_with(deleted, parent, BodyTerm::Written(body_term), attachments)
}

/// The body as it is hashed.
#[derive(Clone, Copy, Debug)]
pub enum BodyTerm<'a> {
    /// Its term, of [`encode_body`].
    Written(&'a [u8]),
    /// One whose term would take much memory: it is hashed as it is made.
    Of(&'a Object),
}

/// As [`compute`], of any form of the body.
pub fn compute_with(
    deleted: bool,
    parent: Option<&Revision>,
    body: BodyTerm<'_>,
    attachments: &[AttachmentDigest<'_>],
) -> Revision {
    let parent_pos = parent.map_or(0, |p| p.pos);
    let mut hash = Md5::new();
    hash.put(&[VERSION, LIST, 0, 0, 0, 5]);
    put_atom(if deleted { "true" } else { "false" }, &mut hash);
    put_big(Sign::NoSign, &parent_pos.to_le_bytes(), &mut hash);
    match parent {
        Some(parent) => put_binary(parent.hash.as_bytes(), &mut hash),
        None => hash.put(&[SMALL_INTEGER, 0]),
    }
    match body {
        BodyTerm::Written(term) => hash.put(term),
        BodyTerm::Of(body) => put_object(body, &mut hash),
    }
    if !attachments.is_empty() {
        put_tag_and_length(LIST, attachments.len(), &mut hash);
        for attachment in attachments.iter().rev() {
            hash.put(&[SMALL_TUPLE, 3]);
            put_binary(attachment.name.as_bytes(), &mut hash);
            put_binary(attachment.content_type.as_bytes(), &mut hash);
            put_binary(attachment.md5, &mut hash);
        }
    }
    // The end of the attachment list and of the whole list.
    hash.put(&[NIL, NIL]);
    Revision { pos: parent_pos.saturating_add(1), hash: RevHash::Md5(hash.finalize().into()) }
}

/// A member of a list of options as CouchDB keeps them in memory.
#[derive(Clone, Copy, Debug)]
pub enum TermOption<'a> {
    /// A word of the program.
    Atom(&'a str),
    /// A value of a request.
    Value(&'a Value),
}

/// `{Value, [{Name, Option}, ..]}` as an external term: what CouchDB hashes for the name of an index that was given
/// none.
pub fn term_with_options(value: &Value, options: &[(&str, TermOption<'_>)]) -> Vec<u8> {
    let mut out = vec![VERSION, SMALL_TUPLE, 2];
    put_value(value, &mut out);
    put_tag_and_length(LIST, options.len(), &mut out);
    for (name, option) in options {
        out.extend_from_slice(&[SMALL_TUPLE, 2]);
        put_atom(name, &mut out);
        match option {
            TermOption::Atom(word) => put_atom(word, &mut out),
            TermOption::Value(value) => put_value(value, &mut out),
        }
    }
    out.push(NIL);
    out
}

/// A tag with a 32-bit length. Requests are far smaller than 4 GiB.
fn put_tag_and_length(tag: u8, length: usize, out: &mut impl Sink) {
    out.put(&[tag]);
    // Invariant: no request body, and so nothing in a document, reaches 4 GiB (limits).
    out.put(&u32::try_from(length).expect("below 4 GiB").to_be_bytes());
}

fn put_binary(bytes: &[u8], out: &mut impl Sink) {
    put_tag_and_length(BINARY, bytes.len(), out);
    out.put(bytes);
}

fn put_atom(name: &str, out: &mut impl Sink) {
    out.put(&[ATOM, 0, name.len() as u8]);
    out.put(name.as_bytes());
}

/// An integer from its sign and little-endian magnitude, in the shortest of the four forms.
fn put_big(sign: Sign, magnitude: &[u8], out: &mut impl Sink) {
    let used = magnitude.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let magnitude = &magnitude[..used];
    if used <= 8 {
        let mut bytes = [0; 8];
        bytes[..used].copy_from_slice(magnitude);
        let value = i128::from(u64::from_le_bytes(bytes)) * if sign == Sign::Minus { -1 } else { 1 };
        if let Ok(small) = u8::try_from(value) {
            out.put(&[SMALL_INTEGER, small]);
            return;
        }
        if let Ok(int) = i32::try_from(value) {
            out.put(&[INTEGER]);
            out.put(&int.to_be_bytes());
            return;
        }
    }
    match u8::try_from(used) {
        Ok(count) => out.put(&[SMALL_BIG, count]),
        Err(_) => put_tag_and_length(LARGE_BIG, used, out),
    }
    out.put(&[u8::from(sign == Sign::Minus)]);
    out.put(magnitude);
}

fn put_int(value: i64, out: &mut impl Sink) {
    let sign = if value < 0 { Sign::Minus } else { Sign::Plus };
    put_big(sign, &value.unsigned_abs().to_le_bytes(), out);
}

fn put_value(value: &Value, out: &mut impl Sink) {
    match value {
        Value::Null => put_atom("null", out),
        Value::Bool(true) => put_atom("true", out),
        Value::Bool(false) => put_atom("false", out),
        Value::Int(value) => put_int(*value, out),
        Value::Big(value) => {
            let (sign, magnitude) = value.to_bytes_le();
            put_big(sign, &magnitude, out);
        }
        Value::Float(value) => {
            out.put(&[NEW_FLOAT]);
            out.put(&value.to_be_bytes());
        }
        Value::String(text) => put_binary(text.as_bytes(), out),
        Value::Array(elements) => put_array(elements, out),
        Value::Object(object) => put_object(object, out),
    }
}

/// A list, in the form that Erlang gives to lists that could be text: small integers only, fewer than 65536.
fn put_array(elements: &[Value], out: &mut impl Sink) {
    let byte = |value: &Value| value.as_i64().and_then(|v| u8::try_from(v).ok());
    if elements.is_empty() {
        out.put(&[NIL]);
        return;
    }
    if let Ok(count) = u16::try_from(elements.len())
        && elements.iter().all(|v| byte(v).is_some())
    {
        out.put(&[STRING]);
        out.put(&count.to_be_bytes());
        let bytes: Vec<u8> = elements.iter().filter_map(byte).collect();
        out.put(&bytes);
        return;
    }
    put_tag_and_length(LIST, elements.len(), out);
    for element in elements {
        put_value(element, out);
    }
    out.put(&[NIL]);
}

fn put_object(object: &Object, out: &mut impl Sink) {
    out.put(&[SMALL_TUPLE, 1]);
    if !object.is_empty() {
        put_tag_and_length(LIST, object.len(), out);
        for (name, value) in object.iter() {
            out.put(&[SMALL_TUPLE, 2]);
            put_binary(name.as_bytes(), out);
            put_value(value, out);
        }
    }
    out.put(&[NIL]);
}

#[cfg(test)]
mod tests;
