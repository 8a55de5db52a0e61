//! Credentials of replication documents at rest (`[replicator] seal_credentials`): kept encrypted, opened in memory
//! when the replication starts.
//!
//! What of an endpoint is secret (name and password in its URL, `auth`, `headers`) is put into one text, `sealed`:
//! version, nonce, and the JSON of it under ChaCha20-Poly1305. The key is made of `[chttpd_auth] secret`, which all
//! nodes of a cluster share; the address that the credentials are for, and the owner of the document, are bound to
//! them: who copies the text into a document of another address or owner gets nothing opened.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::document::json::{self, Object, Value};
use crate::wire::url::split_credentials;

/// The member that stands for what is sealed.
pub const SEALED: &str = "sealed";
const VERSION: &str = "v1.";
const LABEL: &[u8] = b"settee: credentials of replications";

/// The key of a cluster.
pub struct SealKey(LessSafeKey);

impl SealKey {
    /// The key that belongs to the secret which the nodes share.
    pub fn of(secret: &str) -> SealKey {
        let mut hash = Sha256::new_with_prefix(LABEL);
        hash.update(secret.as_bytes());
        // Invariant: a SHA-256 has as many bytes as the cipher's key.
        let key = UnboundKey::new(&CHACHA20_POLY1305, hash.finalize().as_slice()).expect("a key of 32 bytes");
        SealKey(LessSafeKey::new(key))
    }

    fn seal(&self, secret: &Object, bound: &str, nonce: [u8; NONCE_LEN]) -> String {
        let mut bytes = Value::Object(secret.clone()).to_vec();
        let aad = Aad::from(bound.as_bytes());
        // Invariant: only texts of 256 GB are too long to be sealed.
        let sealing = self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes);
        sealing.expect("a short text");
        format!("{VERSION}{}", URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    fn open(&self, text: &str, bound: &str) -> Option<Object> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(VERSION)?).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(bound.as_bytes());
        let opened = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed).ok()?;
        match json::parse(opened).ok()? {
            Value::Object(secret) => Some(secret),
            _ => None,
        }
    }
}

/// The key, where credentials are sealed and the nodes share a secret.
pub fn seal_key(config: &Config) -> Option<SealKey> {
    config.bool("replicator", "seal_credentials", false).then(|| key_of(config)).flatten()
}

/// The key, whether or not credentials are sealed now: they may have been.
pub fn key_of(config: &Config) -> Option<SealKey> {
    config.get("chttpd_auth", "secret").filter(|secret| !secret.is_empty()).map(|secret| SealKey::of(&secret))
}

/// What credentials are bound to: scheme, host and port of the address, and the owner.
fn bound(url: &str, body: &Object) -> String {
    let (scheme, _, rest) = split_credentials(url);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let owner = body.get("owner").and_then(Value::as_str).unwrap_or_default();
    format!("{}{}\n{owner}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase())
}

/// The body with its credentials sealed; `nonce` answers other bytes each time.
pub fn sealed(mut body: Object, key: &SealKey, mut nonce: impl FnMut() -> [u8; NONCE_LEN]) -> Object {
    for side in ["source", "target"] {
        let Some(endpoint) = body.get(side) else { continue };
        let mut members = match endpoint {
            Value::String(url) if url.contains("://") => {
                Object::from_iter([("url".to_owned(), Value::from(url.as_str()))])
            }
            Value::Object(members) => members.clone(),
            _ => continue,
        };
        let Some(url) = members.get("url").and_then(Value::as_str).map(str::to_owned) else { continue };
        let mut secret = Object::new();
        let (before, credentials, behind) = split_credentials(&url);
        if let Some(credentials) = credentials {
            secret.push("url", credentials);
            members.insert("url", format!("{before}{behind}"));
        }
        for name in ["auth", "headers"] {
            if let Some(value) = members.remove(name) {
                secret.push(name, value);
            }
        }
        if !secret.is_empty() {
            members.insert(SEALED, key.seal(&secret, &bound(&url, &body), nonce()));
            body.insert(side, Value::Object(members));
        }
    }
    body
}

/// The body as it was before [`sealed`].
///
/// # Errors
/// Which side cannot be opened: the secret is another one since, or the text was made for another address or owner.
pub fn opened(mut body: Object, key: Option<&SealKey>) -> Result<Object, String> {
    for side in ["source", "target"] {
        let Some(Value::Object(members)) = body.get(side) else { continue };
        let mut members = members.clone();
        let Some(Value::String(text)) = members.remove(SEALED) else { continue };
        let url = members.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
        let secret = key.and_then(|key| key.open(&text, &bound(&url, &body)));
        let secret = secret.ok_or_else(|| format!("The sealed credentials of the {side} cannot be opened."))?;
        for (name, value) in secret {
            let value = match (name == "url", value) {
                (true, Value::String(credentials)) => {
                    let (before, _, behind) = split_credentials(&url);
                    Value::from(format!("{before}{credentials}@{behind}"))
                }
                (_, value) => value,
            };
            members.insert(name, value);
        }
        body.insert(side, Value::Object(members));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Object {
        json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    fn text(body: &Object) -> String {
        String::from_utf8(Value::Object(body.clone()).to_vec()).unwrap()
    }

    #[test]
    fn credentials_are_sealed_for_one_address_and_owner_and_come_back() {
        let key = SealKey::of("secret");
        let plain = body(
            r#"{"source":"https://u:Sesame@h:1/a?x=y@z","target":{"url":"http://h/b","auth":{"basic":{"username":"u","password":"Sesame"}},
                "headers":{"X-Token":"Sesame"}},"owner":"jane","continuous":true}"#,
        );
        let mut count = 0;
        let kept = sealed(plain.clone(), &key, || {
            count += 1;
            [count; NONCE_LEN]
        });
        assert!(!text(&kept).contains("Sesame") && text(&kept).contains("https://h:1/a?x=y@z"), "{}", text(&kept));
        let back = opened(kept.clone(), Some(&key)).unwrap();
        assert_eq!(
            back.get("source").unwrap().as_object().unwrap().get("url"),
            Some(&"https://u:Sesame@h:1/a?x=y@z".into())
        );
        assert_eq!(
            back.get("target").unwrap().as_object().unwrap().get("auth"),
            plain.get("target").unwrap().as_object().unwrap().get("auth")
        );
        // What is sealed stays as it is.
        assert_eq!(text(&sealed(kept.clone(), &key, || [9; NONCE_LEN])), text(&kept));
        assert!(opened(kept.clone(), Some(&SealKey::of("another"))).is_err());
        let mut stolen = kept.clone();
        stolen.insert("owner", "joe");
        assert!(opened(stolen, Some(&key)).is_err());
        let elsewhere = body(&text(&kept).replace("https://h:1/", "https://evil:1/"));
        assert_eq!(
            opened(elsewhere, Some(&key)).unwrap_err(),
            "The sealed credentials of the source cannot be opened."
        );
        for bare in [r#"{"source":"a","target":"http://h/b"}"#, r#"{"source":5}"#, "{}"] {
            assert_eq!(text(&sealed(body(bare), &key, || [1; NONCE_LEN])), text(&body(bare)));
        }
    }
}
