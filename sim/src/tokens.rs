//! The oracle of what a node's clock decides: whether a token or the cookie of a session counts. It shares no code with
//! the node: it signs tokens itself, and reads the time out of a cookie.

use std::ops::RangeInclusive;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// How long a session lives without a request, in seconds (`chttpd_auth/timeout`): so short that some end in a run.
pub const SESSION_S: i64 = 5;
/// The key of tokens that the nodes trust.
pub(crate) const TOKEN_KEY: &str = "open sesame";
/// The salt of the administrator's password (`place`).
const SALT: &str = "00";
/// The bytes that SHA-256 works on at a time.
const BLOCK: usize = 64;

/// What an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken.
    In,
    /// Refused.
    Out,
    /// It depends on the second in which it was looked at.
    Either,
}

/// When something counts, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From this second on.
    pub from_s: i64,
    /// Until before this one.
    pub until_s: i64,
}

impl Span {
    /// The life of a session that is as old as a cookie says; `None` for what is no cookie.
    pub fn of_cookie(cookie: &str) -> Option<Span> {
        let text = text_of(cookie)?;
        let mut parts = text.splitn(3, |byte| *byte == b':');
        let made = parts.nth(1).and_then(|hex| std::str::from_utf8(hex).ok())?;
        let made_s = i64::from_str_radix(made, 16).ok()?;
        // A clock that went back makes a cookie of the future, which counts.
        Some(Span { from_s: 0, until_s: made_s + SESSION_S })
    }

    /// What becomes of it on a node whose clock showed `seconds` while it was asked; `None`: the clock jumped then.
    pub fn validity(&self, seconds: Option<RangeInclusive<i64>>) -> Outcome {
        let Some(seconds) = seconds else { return Outcome::Either };
        let (first, last) = (*seconds.start(), *seconds.end());
        match () {
            () if self.from_s <= first && last < self.until_s => Outcome::In,
            () if last < self.from_s || self.until_s <= first => Outcome::Out,
            () => Outcome::Either,
        }
    }
}

/// The key as the node's configuration has it.
pub fn configured(key: &str) -> String {
    STANDARD.encode(key)
}

/// A token for `name`, signed with `key`.
pub fn token(key: &str, name: &str, span: Span) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({ "sub": name, "nbf": span.from_s, "exp": span.until_s });
    let signed = format!("{}.{}", part(json!({ "alg": "HS256", "typ": "JWT" })), part(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac(key.as_bytes(), signed.as_bytes())))
}

/// The cookie of a session that `name` opened in that second, on a node with this secret.
pub fn session(secret: &str, name: &str, made_s: i64) -> String {
    let said = format!("{name}:{made_s:X}");
    let mac = hmac(key_of(secret).as_bytes(), said.as_bytes());
    let text = [said.as_bytes(), b":", &mac].concat();
    format!("AuthSession={}", URL_SAFE_NO_PAD.encode(text))
}

/// Whether a cookie is signed with this secret.
pub fn signs(secret: &str, cookie: &str) -> bool {
    let Some(text) = text_of(cookie) else { return false };
    let at = text.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at).nth(1);
    at.is_some_and(|at| text[at + 1..] == hmac(key_of(secret).as_bytes(), &text[..at]))
}

/// Whether a cookie is that of a user.
pub fn names(cookie: &str, name: &str) -> bool {
    text_of(cookie).is_some_and(|text| text.starts_with(format!("{name}:").as_bytes()))
}

fn key_of(secret: &str) -> String {
    format!("{secret}{SALT}")
}

fn text_of(cookie: &str) -> Option<Vec<u8>> {
    let value = cookie.split_once('=')?.1;
    URL_SAFE_NO_PAD.decode(value.trim_end_matches('=')).ok()
}

/// HMAC with SHA-256 (RFC 2104), for keys of at most a block.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let pad = |with: u8| -> Vec<u8> { (0..BLOCK).map(|at| key.get(at).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_of_the_standard() {
        // RFC 4231, test case 2.
        let hex: String = hmac(b"Jefe", b"what do ya want for nothing?").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn what_counts_is_decided_by_the_seconds_that_the_clock_may_have_shown() {
        let span = Span { from_s: 10, until_s: 20 };
        let oracle = |first, last| span.validity(Some(first..=last));
        assert_eq!([oracle(10, 19), oracle(20, 20), oracle(8, 9)], [Outcome::In, Outcome::Out, Outcome::Out]);
        assert_eq!([oracle(19, 20), oracle(9, 10), span.validity(None)], [Outcome::Either; 3]);
    }

    #[test]
    fn a_cookie_tells_when_it_was_made() {
        let cookie = format!("AuthSession={}", URL_SAFE_NO_PAD.encode("adm:6553F100:signature"));
        assert_eq!(Span::of_cookie(&cookie), Some(Span { from_s: 0, until_s: 1_700_000_005 }));
        assert_eq!(Span::of_cookie("AuthSession=%%%"), None);
    }

    #[test]
    fn a_cookie_is_signed_with_one_secret() {
        let cookie = session("s1", "adm", 1_700_000_000);
        assert_eq!(Span::of_cookie(&cookie).map(|span| span.until_s), Some(1_700_000_005));
        assert!(signs("s1", &cookie) && !signs("s2", &cookie) && !signs("s1", "AuthSession=YQ"));
        assert!(names(&cookie, "adm") && !names(&cookie, "ad"));
    }
}
