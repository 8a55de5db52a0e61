//! The session cookie: its content, its validation, its header. Pure.
//!
//! Its value is that of CouchDB, so that nodes of both kinds that share a secret accept each other's cookies: base64url
//! of `name:time:mac`, the time in seconds as upper-case hex, the mac over `name:time` with a key made of the secret
//! and the user's salt. So a new password, which has a new salt, ends all sessions.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::HeaderMap;
use http::header::COOKIE;

use super::keyed_hash::{self, HashAlgorithm};
use super::{AuthError, options};
use crate::config::Config;
use crate::limits;
use crate::world::buggify::{Mutation, mutated};

/// What the cookie is called.
pub const NAME: &str = "AuthSession";

/// A cookie that could be read; it is not known yet whether it holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cookie {
    /// The user whom it names.
    pub(super) name: String,
    time: String,
    mac: Vec<u8>,
}

/// What a cookie is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Forged, expired, or of an older password.
    Nothing,
    /// It holds.
    Holds,
    /// It holds, and more than a tenth of its life is over: it is time for a new one.
    HoldsAndAges,
}

/// The session cookie of a request; an empty one counts as none.
///
/// # Errors
/// [`AuthError::MalformedCookie`]
pub(super) fn of_request(headers: &HeaderMap) -> Result<Option<Cookie>, AuthError> {
    match value_of(headers) {
        Some(value) => parse(value).map(Some),
        None => Ok(None),
    }
}

fn value_of(headers: &HeaderMap) -> Option<&[u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|header| header.as_bytes().split(|b| *b == b';'));
    let value = pairs.filter_map(|pair| {
        let at = pair.iter().position(|b| *b == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let unquoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
        (name == NAME.as_bytes()).then_some(unquoted)
    });
    value.into_iter().next().filter(|value| !value.is_empty())
}

fn parse(value: &[u8]) -> Result<Cookie, AuthError> {
    let malformed = AuthError::MalformedCookie;
    if value.len() > limits::COOKIE_BYTES_MAX {
        return Err(malformed);
    }
    let plain: Vec<u8> = value
        .iter()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    let unpadded = &plain[..plain.iter().rposition(|b| *b != b'=').map_or(0, |at| at + 1)];
    let Ok(decoded) = STANDARD_NO_PAD.decode(unpadded) else { return Err(malformed) };
    let mut parts = decoded.splitn(3, |b| *b == b':');
    let (Some(name), Some(time), Some(mac)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(malformed);
    };
    // A name that is no UTF-8 belongs to nobody.
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Cookie { name: text(name), time: text(time), mac: mac.to_vec() })
}

impl Cookie {
    /// What the cookie is worth at `now_s`, for a key made by [`key`].
    pub(super) fn worth(&self, key: &[u8], algorithms: &[HashAlgorithm], now_s: u64, timeout_s: u64) -> Worth {
        let Ok(made_s) = u64::from_str_radix(&self.time, 16) else { return Worth::Nothing };
        let end_s = made_s.saturating_add(timeout_s);
        let message = format!("{}:{}", self.name, self.time);
        let signed = keyed_hash::verify(algorithms, key, message.as_bytes(), &self.mac);
        let ended = now_s >= end_s && !mutated(Mutation::CookieNeverEnds);
        if ended || !(signed || mutated(Mutation::CookieUnsigned)) {
            return Worth::Nothing;
        }
        let left_s = end_s.saturating_sub(now_s);
        if left_s < timeout_s - timeout_s / 10 { Worth::HoldsAndAges } else { Worth::Holds }
    }
}

/// The key of a user's cookies.
pub(super) fn key(secret: &str, salt: &str) -> Vec<u8> {
    [secret.as_bytes(), salt.as_bytes()].concat()
}

/// The value of a new cookie.
pub(super) fn mint(key: &[u8], algorithm: HashAlgorithm, name: &str, now_s: u64) -> String {
    let mut session = format!("{name}:{now_s:X}").into_bytes();
    let mac = algorithm.mac(key, &session);
    session.push(b':');
    session.extend_from_slice(&mac);
    URL_SAFE_NO_PAD.encode(session)
}

/// How long a session lives without a request, in seconds: `chttpd_auth/timeout`.
pub fn timeout_s(config: &Config) -> u64 {
    options::u64(config, "timeout", limits::SESSION_TIMEOUT_S).min(limits::SESSION_TIMEOUT_MAX_S)
}

/// The `Set-Cookie` header that sends `value` (empty: a logout) at the time `wall` since 1970. `secure`: it came
/// by https. Attributes and their order as CouchDB 3.5 was measured.
pub fn set_cookie(config: &Config, value: &str, secure: bool, wall: Duration) -> String {
    set_named(config, NAME, value, secure, wall)
}

/// The same for another cookie of the session.
pub fn set_named(config: &Config, name: &str, value: &str, secure: bool, wall: Duration) -> String {
    let mut out = format!("{name}={value}; Version=1");
    if options::bool(config, "allow_persistent_cookies", true) {
        let timeout_s = timeout_s(config);
        let expires = SystemTime::UNIX_EPOCH + wall + Duration::from_secs(timeout_s);
        out.push_str(&format!("; Expires={}; Max-Age={timeout_s}", httpdate::fmt_http_date(expires)));
    }
    if secure {
        out.push_str("; Secure");
    }
    if let Some(domain) = options::get(config, "cookie_domain") {
        out.push_str(&format!("; Domain={domain}"));
    }
    out.push_str("; Path=/; HttpOnly");
    match options::text(config, "same_site", "").to_ascii_lowercase().as_str() {
        "none" => out.push_str("; SameSite=None"),
        "lax" => out.push_str("; SameSite=Lax"),
        "strict" => out.push_str("; SameSite=Strict"),
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{in_memory, world};

    const NOW_S: u64 = 1_700_000_000;

    fn read(header: &str) -> Result<Option<Cookie>, AuthError> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, header.parse().unwrap());
        of_request(&headers)
    }

    #[test]
    fn a_cookie_is_found_among_others_and_holds_until_its_time() {
        let key = key("secret", "salt");
        let value = mint(&key, HashAlgorithm::Sha1, "jänn", NOW_S);
        let both = [HashAlgorithm::Sha256, HashAlgorithm::Sha1];
        let cookie = read(&format!("a=1; AuthSession={value}; x=y")).unwrap().unwrap();
        assert_eq!((cookie.name.as_str(), cookie.time.as_str()), ("jänn", "6553F100"));
        let worth = |at: u64| cookie.worth(&key, &both, NOW_S + at, 600);
        assert_eq!([0, 60, 61, 599, 600].map(worth), {
            use Worth::{Holds, HoldsAndAges, Nothing};
            [Holds, Holds, HoldsAndAges, HoldsAndAges, Nothing]
        });
        assert_eq!(cookie.worth(&key, &both[..1], NOW_S, 600), Worth::Nothing);
        assert_eq!(cookie.worth(&super::key("secret", "new"), &both, NOW_S, 600), Worth::Nothing);
        assert_eq!(read(&format!("AuthSession=\"{value}==\"")).unwrap(), Some(cookie));
    }

    #[test]
    fn what_cannot_be_read_is_malformed_and_nothing_is_no_cookie() {
        for value in ["AuthSession=abc", "AuthSession=%%%", "AuthSession=YTpi", "x=1; AuthSession=ä"] {
            assert_eq!(read(value), Err(AuthError::MalformedCookie), "{value}");
        }
        for value in ["AuthSession=", "AuthSession=\"\"", "authsession=abc", "other=1", "", ";;"] {
            assert_eq!(read(value), Ok(None), "{value}");
        }
        assert_eq!(read(&format!("AuthSession={}", "YWFh".repeat(9000))), Err(AuthError::MalformedCookie));
        let forged = read("AuthSession=YTpiOmM").unwrap().unwrap();
        assert_eq!(forged.worth(b"", &[HashAlgorithm::Sha1], NOW_S, 600), Worth::Nothing);
    }

    #[test]
    fn attributes_follow_the_configuration() {
        let (_runtime, env) = world();
        let wall = Duration::from_secs(NOW_S);
        let plain = set_cookie(&in_memory(&env, &[]), "v", false, wall);
        let expires = "Expires=Tue, 14 Nov 2023 22:23:20 GMT";
        assert_eq!(plain, format!("AuthSession=v; Version=1; {expires}; Max-Age=600; Path=/; HttpOnly"));
        let config = in_memory(
            &env,
            &[
                "chttpd_auth/allow_persistent_cookies=false",
                "couch_httpd_auth/cookie_domain=example.org",
                "chttpd_auth/same_site=LAX",
            ],
        );
        let set = set_cookie(&config, "", true, wall);
        assert_eq!(set, "AuthSession=; Version=1; Secure; Domain=example.org; Path=/; HttpOnly; SameSite=Lax");
        let endless = in_memory(&env, &["chttpd_auth/timeout=infinity", "chttpd_auth/same_site=odd"]);
        assert!(set_cookie(&endless, "v", false, wall).ends_with("Path=/; HttpOnly"));
    }
}
