//! How much memory a JSON text takes once it is parsed, told while it comes in.
//!
//! A tiny value costs many times its text. The meter counts what separates values, outside of strings, and so tells
//! the cost of the tree without making it. Texts that are no JSON get some number: the parser refuses them.

use super::problem::{Problem, Result};
use crate::limits;

/// Reads a text piece by piece.
#[derive(Debug, Default)]
pub(super) struct JsonMeter {
    in_string: bool,
    escaped: bool,
    bytes: u64,
    tokens: u64,
}

impl JsonMeter {
    /// Takes the next piece; answers what text and tree take so far, in bytes.
    ///
    /// # Errors
    /// 413 for more than `limits::JSON_TOKENS_MAX` values.
    pub fn push(&mut self, piece: &[u8]) -> Result<u64> {
        self.bytes += piece.len() as u64;
        for byte in piece {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                b',' | b':' | b'[' | b'{' if !self.in_string => self.tokens += 1,
                _ => {}
            }
        }
        match self.tokens > limits::JSON_TOKENS_MAX {
            true => Err(Problem::body_too_large()),
            false => Ok(self.bytes + self.tokens * limits::JSON_TOKEN_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_and_strings_do_not_wherever_the_text_is_cut() {
        let text = br#"{"a,b\"[:":[1,2,{"c\\":"\\\"{"}],"d":null}"#;
        for size in [1, 2, 3, 5, text.len()] {
            let mut meter = JsonMeter::default();
            let cost = text.chunks(size).map(|piece| meter.push(piece).unwrap()).last();
            assert_eq!(cost, Some(text.len() as u64 + 9 * limits::JSON_TOKEN_BYTES), "pieces of {size}");
        }
    }

    #[test]
    fn too_many_values_are_refused_before_they_are_made() {
        let piece = b",".repeat(1 << 20);
        let mut meter = JsonMeter::default();
        let refused = (0..).find_map(|n| meter.push(&piece).err().map(|problem| (n << 20, problem.status)));
        assert_eq!(refused, Some((limits::JSON_TOKENS_MAX, http::StatusCode::PAYLOAD_TOO_LARGE)));
    }
}
