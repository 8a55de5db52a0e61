//! Meter of JSON texts: the memory that a text takes once it is parsed, known while it arrives.
//!
//! A tiny value costs many times its text. The meter counts separators of values outside of strings, and so tells the
//! cost of the tree without building it. A text that is no JSON gets some number; the parser refuses it.

use super::problem::{Problem, Result};
use crate::limits;

/// Reads a text piece by piece.
#[derive(Debug)]
pub struct JsonMeter {
    in_string: bool,
    escaped: bool,
    bytes: u64,
    /// Bytes of memory of the values so far.
    values: u64,
    token_bytes: u64,
    /// Above this the values do not count: they are not made all at once.
    counted_max: u64,
}

impl Default for JsonMeter {
    /// For a text that becomes a document or a setting.
    fn default() -> JsonMeter {
        let (token_bytes, counted_max) = (limits::JSON_TOKEN_BYTES, u64::MAX);
        JsonMeter { in_string: false, escaped: false, bytes: 0, values: 0, token_bytes, counted_max }
    }
}

impl JsonMeter {
    /// For a text that becomes a query, whose values become keys or terms.
    pub fn of_query() -> JsonMeter {
        JsonMeter { token_bytes: limits::JSON_QUERY_TOKEN_BYTES, ..JsonMeter::default() }
    }

    /// For a text that is worked through in pieces.
    pub fn in_pieces() -> JsonMeter {
        JsonMeter { counted_max: limits::BULK_PIECE_MEMORY, ..JsonMeter::default() }
    }

    /// Takes the next piece; answers what text and tree take so far, in bytes.
    ///
    /// # Errors
    /// 413 for values of more than `limits::JSON_VALUES_BYTES_MAX`.
    pub fn push(&mut self, piece: &[u8]) -> Result<u64> {
        self.bytes += piece.len() as u64;
        for byte in piece {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                b',' | b':' if !self.in_string => self.values += self.token_bytes,
                b'[' | b'{' if !self.in_string => self.values += self.token_bytes + limits::JSON_CONTAINER_BYTES,
                _ => {}
            }
        }
        let counted = self.values.min(self.counted_max);
        match counted > limits::JSON_VALUES_BYTES_MAX {
            true => Err(Problem::body_too_large()),
            false => Ok(self.bytes + counted),
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
            let values = 9 * limits::JSON_TOKEN_BYTES + 3 * limits::JSON_CONTAINER_BYTES;
            assert_eq!(cost, Some(text.len() as u64 + values), "pieces of {size}");
        }
    }

    #[test]
    fn too_many_values_are_refused_before_they_are_made() {
        let piece = b",".repeat(1 << 20);
        let refused_at =
            |mut meter: JsonMeter| (0..100).find_map(|n| meter.push(&piece).err().map(|problem| (n, problem.status)));
        let too_large = http::StatusCode::PAYLOAD_TOO_LARGE;
        let pieces = |token_bytes: u64| limits::JSON_VALUES_BYTES_MAX / (token_bytes << 20);
        assert_eq!(refused_at(JsonMeter::default()), Some((pieces(limits::JSON_TOKEN_BYTES), too_large)));
        assert_eq!(refused_at(JsonMeter::of_query()), Some((pieces(limits::JSON_QUERY_TOKEN_BYTES), too_large)));
        assert_eq!(refused_at(JsonMeter::in_pieces()), None);
    }
}
