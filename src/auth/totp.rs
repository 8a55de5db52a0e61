//! The second factor of a login by form: a code of the time (RFC 6238), where the user document has a `totp`. Pure.
//!
//! `totp` is `{"key": base32, "algorithm": "sha" | "sha256" | "sha512", "length": 6..8}`. Such users cannot log in by
//! Basic, which has no place for a code (as CouchDB does it).

use super::keyed_hash::HashAlgorithm;
use super::password;
use crate::document::json::{Object, Value};

/// How long a code counts, in seconds; the one before and the one after are taken, too.
const STEP_S: u64 = 30;

/// Whether `token` is the code of this or a neighbouring moment.
pub(super) fn verify(totp: &Object, token: &str, now_s: u64) -> bool {
    let Some(key) = totp.get("key").and_then(Value::as_str).and_then(base32) else { return false };
    let algorithm = match totp.get("algorithm").and_then(Value::as_str).unwrap_or("sha") {
        "sha" | "sha1" => HashAlgorithm::Sha1,
        "sha256" => HashAlgorithm::Sha256,
        "sha512" => HashAlgorithm::Sha512,
        _ => return false,
    };
    let digits = totp.get("length").map_or(Some(6), Value::as_u64).filter(|n| (6..=8).contains(n));
    let Some(digits) = digits.and_then(|n| u32::try_from(n).ok()) else { return false };
    let step = now_s / STEP_S;
    let codes = [step.saturating_sub(1), step, step + 1].map(|step| code(algorithm, &key, step, digits));
    // All are compared, so that the time tells nothing.
    codes.iter().fold(false, |found, code| found | password::equal(code.as_bytes(), token.trim().as_bytes()))
}

fn code(algorithm: HashAlgorithm, key: &[u8], step: u64, digits: u32) -> String {
    let mac = algorithm.mac(key, &step.to_be_bytes());
    // Invariant: a mac of these functions has at least 20 bytes, and the offset is at most 15.
    let offset = usize::from(mac[mac.len() - 1] & 0xf);
    let word = u32::from_be_bytes([mac[offset] & 0x7f, mac[offset + 1], mac[offset + 2], mac[offset + 3]]);
    format!("{:0width$}", word % 10u32.pow(digits), width = digits as usize)
}

fn base32(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::new());
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter.to_ascii_uppercase() {
            upper @ b'A'..=b'Z' => upper - b'A',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        bits = (bits << 5 | u32::from(value)) & 0xfff;
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn codes_agree_with_rfc_6238() {
        let totp = |text: &str| match json::parse(text.as_bytes()) {
            Ok(Value::Object(object)) => object,
            other => panic!("{other:?}"),
        };
        let sha1 = totp(r#"{"key":"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ","length":8}"#);
        for (now_s, token) in [(59, "94287082"), (1_111_111_109, "07081804"), (20_000_000_000, "65353130")] {
            assert!(verify(&sha1, token, now_s) && verify(&sha1, token, now_s + 30), "{now_s}");
            assert!(!verify(&sha1, token, now_s + 90) && !verify(&sha1, "", now_s));
        }
        for broken in [r#"{}"#, r#"{"key":"1"}"#, r#"{"key":"GEZD","length":99}"#, r#"{"key":"GEZD","algorithm":"x"}"#]
        {
            assert!(!verify(&totp(broken), "000000", 59), "{broken}");
        }
    }
}
