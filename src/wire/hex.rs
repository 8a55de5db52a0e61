//! Bytes as hexadecimal digits.

/// Lower-case digits, two for each byte.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of a text of digits in either case; `None` for any other text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_back_as_bytes_and_nothing_else_does() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).as_ref(), Some(&all));
        assert_eq!(encode(&[0, 0x0f, 0xa0]), "000fa0");
        assert_eq!(decode("0A"), Some(vec![10]));
        for bad in ["0", "0g", "+1", "\u{e9}"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
