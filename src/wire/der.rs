//! DER and its PEM armour, as far as keys and certificates are written here (ITU-T X.690; RFC 7468).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The tag of a whole number.
pub const INTEGER: u8 = 0x02;
/// The tag of a string of bits.
pub const BITS: u8 = 0x03;
/// The tag of a string of bytes.
pub const BYTES: u8 = 0x04;
/// The tag of the name of an algorithm, an attribute, a curve.
pub const OBJECT: u8 = 0x06;
/// The tag of a text.
pub const UTF8: u8 = 0x0c;
/// The tag of a time with a year of two digits.
pub const UTC_TIME: u8 = 0x17;
/// The tag of a time with a year of four digits.
pub const GENERAL_TIME: u8 = 0x18;
/// The tag of a list.
pub const SEQUENCE: u8 = 0x30;
/// The tag of a set.
pub const SET: u8 = 0x31;

/// One value of at most 65,535 bytes: its tag, its length, its content in parts.
pub fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let head = match u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes() {
        [0, short @ 0..=0x7f] => vec![tag, short],
        [0, middle] => vec![tag, 0x81, middle],
        [high, low] => vec![tag, 0x82, high, low],
    };
    [head, content].concat()
}

/// The armour, with a line for every 64 characters as some readers demand.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    // Pieces of base64 are ASCII.
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
