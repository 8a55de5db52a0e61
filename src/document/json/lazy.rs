//! Finding a value in canonical text without reading the rest of it: for scans that read one member of many documents.
//!
//! Assumes canonical text ([`Value::write`](super::Value::write)): no white space, names unique, only quotes,
//! backslashes and controls escaped. Of other text the answer may be wrong, but nothing outside of it is touched.

use std::borrow::Cow;

use super::{JsonError, NEEDS_CARE, write_string};

/// What is at the end of a path, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lazy<'a> {
    /// A value.
    Text(&'a [u8]),
    /// An object without that key.
    Absent,
    /// A step into a scalar, beyond the end of an array, or into an array by something else than a number.
    NoPath,
}

/// Follows `steps` within the value whose text this is.
///
/// # Errors
/// The text ends in the middle of a value: it is damaged.
pub fn parse_lazily<'a>(mut text: &'a [u8], steps: &[String]) -> Result<Lazy<'a>, JsonError> {
    for step in steps {
        let found = match text.first() {
            Some(b'{') => match member(text, step)? {
                Some(found) => found,
                None => return Ok(Lazy::Absent),
            },
            Some(b'[') => match step.parse().ok().map(|at: usize| element(text, at)).transpose()?.flatten() {
                Some(found) => found,
                None => return Ok(Lazy::NoPath),
            },
            Some(_) => return Ok(Lazy::NoPath),
            None => return Err(JsonError),
        };
        text = found;
    }
    Ok(Lazy::Text(text))
}

/// The value of an object's member.
fn member<'a>(object: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, JsonError> {
    let wanted = written(name);
    let mut at = 1;
    if object.get(at) == Some(&b'}') {
        return Ok(None);
    }
    loop {
        let colon = string_end(object, at)?;
        let (own, value) = (&object[at + 1..colon - 1], colon + 1);
        let end = value_end(object, value)?;
        if own == wanted.as_ref() {
            return Ok(Some(&object[value..end]));
        }
        match object.get(end) {
            Some(b',') => at = end + 1,
            Some(b'}') => return Ok(None),
            _ => return Err(JsonError),
        }
    }
}

/// A name as it stands between quotes.
fn written(name: &str) -> Cow<'_, [u8]> {
    if !name.bytes().any(|byte| NEEDS_CARE[usize::from(byte)]) {
        return Cow::Borrowed(name.as_bytes());
    }
    let mut out = Vec::with_capacity(name.len() + 8);
    write_string(name, &mut out);
    Cow::Owned(out[1..out.len() - 1].to_vec())
}

/// The n-th element of an array.
fn element(array: &[u8], wanted: usize) -> Result<Option<&[u8]>, JsonError> {
    let mut at = 1;
    if array.get(at) == Some(&b']') {
        return Ok(None);
    }
    let mut left = wanted;
    loop {
        let end = value_end(array, at)?;
        if left == 0 {
            return Ok(Some(&array[at..end]));
        }
        left -= 1;
        match array.get(end) {
            Some(b',') => at = end + 1,
            Some(b']') => return Ok(None),
            _ => return Err(JsonError),
        }
    }
}

/// Behind the string that begins at `at`.
fn string_end(text: &[u8], at: usize) -> Result<usize, JsonError> {
    if text.get(at) != Some(&b'"') {
        return Err(JsonError);
    }
    let mut at = at + 1;
    loop {
        let rest = text.get(at..).ok_or(JsonError)?;
        let run = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).ok_or(JsonError)?;
        if rest[run] == b'"' {
            return Ok(at + run + 1);
        }
        at += run + 2;
    }
}

/// Behind the value that begins at `at`.
fn value_end(text: &[u8], at: usize) -> Result<usize, JsonError> {
    match text.get(at) {
        Some(b'"') => string_end(text, at),
        Some(b'{' | b'[') => nested_end(text, at),
        Some(_) => {
            let rest = &text[at..];
            Ok(at + rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']')).unwrap_or(rest.len()))
        }
        None => Err(JsonError),
    }
}

fn nested_end(text: &[u8], mut at: usize) -> Result<usize, JsonError> {
    let mut depth = 0_usize;
    loop {
        match text.get(at).ok_or(JsonError)? {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}
