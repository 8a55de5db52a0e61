//! Random Authorization and Cookie headers: nothing panics, and nobody gets in but with what was handed out.
//!
//! Many headers are right ones with a small change, since pure noise never comes far. How many are tried:
//! `SETTEE_FUZZ`, else 20,000 in a debug build and 1,000,000 in a release build. The seed is `SETTEE_SEED`, else fixed.

use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use http::header::{AUTHORIZATION, COOKIE};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::auth::keyed_hash::HashAlgorithm;
use crate::world::fuzz::Fuzz;

const SECRET: &str = "fuzz-secret";
const KEY: &[u8] = b"fuzz-key";

/// What opens the door: the pair, the session, the token.
struct HandedOut {
    pair: &'static str,
    session: Vec<u8>,
    cookie: String,
    token: String,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn noise(rng: &mut ChaCha8Rng, longest: usize) -> Vec<u8> {
    let length = rng.random_range(0..=longest);
    (0..length).map(|_| rng.random::<u8>()).collect()
}

/// A few bytes changed, lost, doubled or added.
fn spoilt(rng: &mut ChaCha8Rng, good: &[u8]) -> Vec<u8> {
    let mut out = good.to_vec();
    for _ in 0..rng.random_range(1..=3) {
        let at = if out.is_empty() { 0 } else { rng.random_range(0..out.len()) };
        match rng.random_range(0..5) {
            0 if !out.is_empty() => out[at] ^= 1 << rng.random_range(0..8),
            1 if !out.is_empty() => drop(out.remove(at)),
            2 => out.insert(at, rng.random::<u8>()),
            3 => out.truncate(at),
            _ => out.extend_from_within(at..),
        }
    }
    out
}

impl HandedOut {
    fn new(salt: &str, now_s: u64) -> HandedOut {
        let key = cookie::key(SECRET, salt);
        let cookie = cookie::mint(&key, HashAlgorithm::Sha256, "adm", now_s);
        let session = URL_SAFE_NO_PAD.decode(&cookie).unwrap();
        let token = signed(r#"{"alg":"HS256","typ":"JWT"}"#, r#"{"sub":"jane","exp":4102444800}"#, KEY);
        HandedOut { pair: "adm:pass", session, cookie, token }
    }

    /// A header and its value, and whether it must open the door.
    fn header(&self, rng: &mut ChaCha8Rng) -> (http::HeaderName, Vec<u8>, bool) {
        match rng.random_range(0..14) {
            0 => (AUTHORIZATION, noise(rng, 60), false),
            1 => (COOKIE, noise(rng, 60), false),
            2 => (AUTHORIZATION, [b"Basic ".to_vec(), noise(rng, 40)].concat(), false),
            3 => (AUTHORIZATION, format!("Basic {}", STANDARD.encode(noise(rng, 30))).into(), false),
            4 => (AUTHORIZATION, spoilt(rng, format!("Basic {}", STANDARD.encode(self.pair)).as_bytes()), false),
            5 => {
                let pair = spoilt(rng, self.pair.as_bytes());
                (AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)).into(), false)
            }
            6 => (AUTHORIZATION, format!("Basic {}", STANDARD.encode(self.pair)).into(), true),
            7 => (COOKIE, format!("AuthSession={}", self.cookie).into(), true),
            8 => (COOKIE, spoilt(rng, format!("AuthSession={}", self.cookie).as_bytes()), false),
            9 => {
                let session = spoilt(rng, &self.session);
                (COOKIE, format!("x=1; AuthSession={}; y", URL_SAFE_NO_PAD.encode(session)).into(), false)
            }
            10 => (AUTHORIZATION, format!("Bearer {}", self.token).into(), true),
            11 => (AUTHORIZATION, spoilt(rng, format!("Bearer {}", self.token).as_bytes()), false),
            12 => {
                let parts = self.token.split('.').map(|part| match rng.random_range(0..3) {
                    0 => URL_SAFE_NO_PAD.encode(spoilt(rng, &URL_SAFE_NO_PAD.decode(part).unwrap())),
                    _ => part.to_owned(),
                });
                let parts: Vec<String> = parts.collect();
                (AUTHORIZATION, format!("Bearer {}", parts.join(".")).into(), false)
            }
            _ => {
                let header = ["none", "HS256", "HS512", "RS256", "ES256", "EdDSA", "hs256", ""][rng.random_range(0..8)];
                let claims = r#"{"sub":"adm","exp":4102444800,"_couchdb.roles":["_admin"]}"#;
                let key = noise(rng, 8);
                (
                    AUTHORIZATION,
                    format!("Bearer {}", signed(&format!(r#"{{"alg":"{header}"}}"#), claims, &key)).into(),
                    false,
                )
            }
        }
    }

    /// Whether the value says, in whatever form, just what was handed out.
    fn says(&self, name: &http::HeaderName, value: &[u8]) -> bool {
        if name == COOKIE {
            return value.split(|b| *b == b';').any(|pair| {
                let Some(at) = pair.iter().position(|b| *b == b'=') else { return false };
                let plain = String::from_utf8_lossy(pair[at + 1..].trim_ascii()).replace('-', "+").replace('_', "/");
                STANDARD_NO_PAD.decode(plain.trim_matches(['"', '='])).is_ok_and(|session| session == self.session)
            });
        }
        let text = String::from_utf8_lossy(value.trim_ascii()).into_owned();
        let Some((scheme, rest)) = text.split_once(' ') else { return false };
        match scheme.to_ascii_lowercase().as_str() {
            "basic" => STANDARD.decode(rest.trim()).is_ok_and(|pair| {
                // HMAC fills a short key with zeros: a password with some behind it is the same one (RFC 2104, 2).
                let end = pair.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                pair[..end] == *self.pair.as_bytes()
            }),
            "bearer" => rest.trim() == self.token,
            _ => false,
        }
    }
}

fn signed(header: &str, claims: &str, key: &[u8]) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(HashAlgorithm::Sha256.mac(key, text.as_bytes())))
}

/// Settings under which each way in is open; a lock-out would hide what comes after its first five.
fn all_ways_in(env: &Env) -> Config {
    let handlers = "chttpd/authentication_handlers={chttpd_auth, cookie_authentication_handler}, \
        {chttpd_auth, jwt_authentication_handler}, {chttpd_auth, default_authentication_handler}";
    let secret = format!("chttpd_auth/secret={SECRET}");
    let key = format!("jwt_keys/hmac:_default={}", STANDARD.encode(KEY));
    in_memory(env, &[handlers, &secret, &key, "chttpd_auth/iterations=1", "chttpd_auth_lockout/mode=off"])
}

/// Makes the administrator, and what opens the door.
async fn hand_out(env: &Env, config: &Config) -> HandedOut {
    admins::put(env, config, "adm", "pass", true).await.unwrap();
    let stored = config.get(admins::SECTION, "adm").unwrap();
    HandedOut::new(stored.split(',').nth(1).unwrap(), env.wall().as_secs())
}

/// Changed headers, and changed text within a right frame: pairs, heads and claims of tokens.
#[test]
fn fuzz_credentials_open_nothing() {
    let (runtime, env) = world();
    let config = all_ways_in(&env);
    let given = runtime.block_on(hand_out(&env, &config));
    let authenticator = Authenticator::new(&env, &config, None);
    let ask = |name: &http::HeaderName, value: &[u8]| {
        let header = HeaderValue::from_bytes(value).ok()?;
        let headers = HeaderMap::from_iter([(name.clone(), header)]);
        runtime.block_on(ask(&authenticator, &headers)).ok().filter(|user| user.name.is_some())
    };
    let right = [
        (AUTHORIZATION, format!("Basic {}", STANDARD.encode(given.pair))),
        (AUTHORIZATION, format!("Bearer {}", given.token)),
        (COOKIE, format!("a=b; AuthSession={}", given.cookie)),
    ];
    for (name, value) in &right {
        assert!(ask(name, value.as_bytes()).is_some(), "{value}");
    }
    let (head, claims) = (r#"{"alg":"HS256","typ":"JWT","kid":"a"}"#, r#"{"sub":"jane","exp":4102444800,"nbf":1}"#);
    let inputs = right.iter().map(|(_, value)| value.as_str()).chain([head, claims, given.pair, "adm:pass\0\0"]);
    let words = [
        "Basic ",
        "Bearer ",
        "AuthSession=",
        ".",
        "none",
        "RS256",
        "crit",
        "_couchdb.roles",
        "[\"_admin\"]",
        "1e300",
        "\"",
    ];
    Fuzz::new("credentials", inputs).words(&words).run(|bytes| {
        let pair = format!("Basic {}", STANDARD.encode(bytes)).into_bytes();
        for (name, value) in [(&AUTHORIZATION, bytes), (&COOKIE, bytes), (&AUTHORIZATION, &pair)] {
            let opened = ask(name, value);
            assert!(opened.is_none() || given.says(name, value), "{opened:?}");
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        for key in [KEY, b"another key"] {
            for token in [signed(text, claims, key), signed(head, text, key)] {
                let opened = ask(&AUTHORIZATION, format!("Bearer {token}").as_bytes());
                assert!(opened.is_none() || key == KEY, "{opened:?}");
            }
        }
    });
}

#[test]
fn random_headers_open_nothing() {
    let (runtime, env) = world();
    let config = all_ways_in(&env);
    let tries = number("SETTEE_FUZZ", if cfg!(debug_assertions) { 20_000 } else { 1_000_000 });
    let seed = number("SETTEE_SEED", 8);
    runtime.block_on(async {
        let given = hand_out(&env, &config).await;
        let authenticator = Authenticator::new(&env, &config, None);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut sent, mut known) = (0, 0);
        while sent < tries {
            let n = sent;
            let (name, value, must) = given.header(&mut rng);
            let Ok(header) = HeaderValue::from_bytes(&value) else { continue };
            sent += 1;
            let mut headers = HeaderMap::new();
            headers.insert(name.clone(), header);
            let found = ask(&authenticator, &headers).await;
            let opened = found.as_ref().is_ok_and(|user| user.name.is_some());
            known += u64::from(opened);
            let shown = String::from_utf8_lossy(&value).into_owned();
            assert!(opened || !must, "seed {seed}, try {n}: what was handed out is refused: {name}: {shown}");
            assert!(!opened || given.says(&name, &value), "seed {seed}, try {n}: {found:?} by {name}: {shown}");
        }
        println!("{sent} headers, {known} of them with what was handed out");
        assert!(known > tries / 10);
    });
}
