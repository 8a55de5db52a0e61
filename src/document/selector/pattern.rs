//! Regular expressions of `$regex`: Perl's dialect over bytes, found anywhere in a text, with a bound on the work.
//!
//! The engine knows characters and a dialect of its own, so patterns are translated ([`dialect`]) and every byte of
//! pattern and text becomes the character of that number: `.` is one byte, as CouchDB 3.5 was measured to match.

mod dialect;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use fancy_regex::{Regex, RegexBuilder};

use crate::limits::{REGEX_PATTERN_BYTES, REGEX_PROGRAM_BYTES, REGEX_STEPS};

/// A compiled pattern. Cheap to clone; equal to patterns of the same text.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    program: Arc<Regex>,
}

impl Pattern {
    /// Compiles a pattern; `None` when it is wrong or beyond the limits.
    pub fn new(text: &str) -> Option<Pattern> {
        if text.len() > REGEX_PATTERN_BYTES {
            return None;
        }
        let mut builder = RegexBuilder::new(&dialect::translate(&as_characters(text))?);
        builder.backtrack_limit(REGEX_STEPS).delegate_size_limit(REGEX_PROGRAM_BYTES);
        builder.delegate_dfa_size_limit(REGEX_PROGRAM_BYTES);
        let program = Arc::new(builder.build().ok()?);
        Some(Pattern { text: text.to_owned(), program })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether some part of the text matches; `None` when the search was abandoned after [`REGEX_STEPS`].
    pub fn search(&self, text: &str) -> Option<bool> {
        self.program.is_match(as_characters(text).as_ref()).ok()
    }
}

/// Each byte as the character of that number.
fn as_characters(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.bytes().map(char::from).collect()) }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}
