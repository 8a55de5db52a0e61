//! Credentials of replication documents at rest (`[replicator] seal_credentials`): kept encrypted, opened in memory
//! when the replication starts.
//!
//! What of an endpoint is secret (name and password in its URL, `auth`, `headers`) is put into one text, `sealed`:
//! version, nonce, and the JSON of it under ChaCha20-Poly1305. The key is made of `[chttpd_auth] secret`, which all
//! nodes of a cluster share; the address that the credentials are for, and the owner of the document, are bound to
//! them: a copy of the text in a document of another address or owner is not opened.
//!
//! What was sealed under another secret that is accepted still is opened, too, and is sealed under the present one when
//! its document is written the next time, also where credentials are not sealed any more.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest as _, Sha256};

use crate::auth::secrets::Secrets;
use crate::config::Config;
use crate::document::json::{self, Object, Value};
use crate::wire::url::split_credentials;

/// The member that stands for what is sealed.
pub const SEALED: &str = "sealed";
const VERSION: &str = "v1.";
/// The members of a document that name an endpoint.
const SIDES: [&str; 2] = ["source", "target"];
/// Members of an endpoint that are sealed, beside credentials in its address.
const OPEN_MEMBERS: [&str; 2] = ["auth", "headers"];
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

/// The body as it is written: sealed where that is on. Where it is not, what came sealed is sealed anew, so that it
/// does not depend on a former secret.
pub fn at_rest(body: Object, config: &Config, nonce: impl FnMut() -> [u8; NONCE_LEN]) -> Object {
    let keys = keys_of(config);
    if seals(config) { sealed(body, &keys, nonce) } else { sealed_anew(body, &keys, nonce) }
}

/// Whether credentials are sealed when their document is written.
fn seals(config: &Config) -> bool {
    config.bool("replicator", "seal_credentials", false)
}

/// The keys of all secrets that are accepted, that of the present one first; empty while there is no secret. Whether or
/// not credentials are sealed now: they may have been.
pub fn keys_of(config: &Config) -> Vec<SealKey> {
    Secrets::of(config).map(|secrets| secrets.all().map(SealKey::of).collect()).unwrap_or_default()
}

/// What credentials are bound to: scheme, host and port of the address, and the owner.
fn bound(url: &str, body: &Object) -> String {
    let (scheme, _, rest) = split_credentials(url);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let owner = body.get("owner").and_then(Value::as_str).unwrap_or_default();
    format!("{}{}\n{owner}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase())
}

/// The body with its credentials sealed under the first of `keys`, and those that came sealed under another one sealed
/// anew; `nonce` answers other bytes each time. What none of the keys opens stays as it is; without a key all does.
fn sealed(body: Object, keys: &[SealKey], mut nonce: impl FnMut() -> [u8; NONCE_LEN]) -> Object {
    let Some(key) = keys.first() else { return body };
    let body = sealed_anew(body, keys, &mut nonce);
    SIDES.into_iter().fold(body, |body, side| sealed_side(&body, side, key, &mut nonce).unwrap_or(body))
}

/// The body with what came sealed under another one of `keys` than the first sealed under the first, and nothing else
/// changed.
fn sealed_anew(body: Object, keys: &[SealKey], mut nonce: impl FnMut() -> [u8; NONCE_LEN]) -> Object {
    let Some((key, others)) = keys.split_first() else { return body };
    SIDES.into_iter().fold(body, |body, side| {
        // New credentials take the place of the sealed ones.
        let is_sealed_only =
            body.get(side).and_then(Value::as_object).is_some_and(|endpoint| !names_credentials(endpoint));
        let opened = is_sealed_only.then(|| opened_side(&body, side, others)).flatten();
        opened.and_then(|opened| sealed_side(&opened, side, key, &mut nonce)).unwrap_or(body)
    })
}

/// The body with the credentials of one side sealed; `None` where it has none that are not.
fn sealed_side(
    body: &Object,
    side: &str,
    key: &SealKey,
    nonce: &mut impl FnMut() -> [u8; NONCE_LEN],
) -> Option<Object> {
    let mut members = match body.get(side)? {
        Value::String(url) if url.contains("://") => Object::from_iter([("url".to_owned(), Value::from(url.as_str()))]),
        Value::Object(members) => members.clone(),
        _ => return None,
    };
    let url = members.get("url").and_then(Value::as_str)?.to_owned();
    let mut secret = Object::new();
    let (before, credentials, behind) = split_credentials(&url);
    if let Some(credentials) = credentials {
        secret.push("url", credentials);
        members.insert("url", format!("{before}{behind}"));
    }
    for name in OPEN_MEMBERS {
        if let Some(value) = members.remove(name) {
            secret.push(name, value);
        }
    }
    if secret.is_empty() {
        return None;
    }
    members.insert(SEALED, key.seal(&secret, &bound(&url, body), nonce()));
    let mut body = body.clone();
    body.insert(side, Value::Object(members));
    Some(body)
}

/// Whether an endpoint has credentials that are not sealed.
fn names_credentials(endpoint: &Object) -> bool {
    let url = endpoint.get("url").and_then(Value::as_str).unwrap_or_default();
    OPEN_MEMBERS.iter().any(|name| endpoint.contains(name)) || split_credentials(url).1.is_some()
}

/// The body as it was before [`sealed`].
///
/// # Errors
/// Which side cannot be opened: its secret is not accepted any more, or the text was made for another address or owner.
pub fn opened(body: Object, keys: &[SealKey]) -> Result<Object, String> {
    SIDES.into_iter().try_fold(body, |body, side| {
        let sealed = body.get(side).and_then(Value::as_object).and_then(|endpoint| endpoint.get(SEALED)?.as_str());
        if sealed.is_none() {
            return Ok(body);
        }
        opened_side(&body, side, keys).ok_or_else(|| format!("The sealed credentials of the {side} cannot be opened."))
    })
}

/// The body with the credentials of one side as they were before they were sealed; `None` where nothing is sealed, or
/// none of the keys opens it.
fn opened_side(body: &Object, side: &str, keys: &[SealKey]) -> Option<Object> {
    let mut members = body.get(side)?.as_object()?.clone();
    let text = members.remove(SEALED)?;
    let url = members.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
    let bound = bound(&url, body);
    let secret = keys.iter().find_map(|key| key.open(text.as_str()?, &bound))?;
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
    let mut body = body.clone();
    body.insert(side, Value::Object(members));
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;

    fn body(text: &str) -> Object {
        json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    fn text(body: &Object) -> String {
        String::from_utf8(Value::Object(body.clone()).to_vec()).unwrap()
    }

    #[test]
    fn credentials_are_sealed_for_one_address_and_owner_and_come_back() {
        let keys = || ["secret"].map(SealKey::of);
        let plain = body(
            r#"{"source":"https://u:Sesame@h:1/a?x=y@z","target":{"url":"http://h/b","auth":{"basic":{"username":"u","password":"Sesame"}},
                "headers":{"X-Token":"Sesame"}},"owner":"jane","continuous":true}"#,
        );
        let mut count = 0;
        let kept = sealed(plain.clone(), &keys(), || {
            count += 1;
            [count; NONCE_LEN]
        });
        assert!(!text(&kept).contains("Sesame") && text(&kept).contains("https://h:1/a?x=y@z"), "{}", text(&kept));
        let back = opened(kept.clone(), &keys()).unwrap();
        assert_eq!(
            back.get("source").unwrap().as_object().unwrap().get("url"),
            Some(&"https://u:Sesame@h:1/a?x=y@z".into())
        );
        assert_eq!(
            back.get("target").unwrap().as_object().unwrap().get("auth"),
            plain.get("target").unwrap().as_object().unwrap().get("auth")
        );
        // What is sealed stays as it is.
        assert_eq!(text(&sealed(kept.clone(), &keys(), || [9; NONCE_LEN])), text(&kept));
        assert!(opened(kept.clone(), &[SealKey::of("another")]).is_err() && opened(kept.clone(), &[]).is_err());
        let mut stolen = kept.clone();
        stolen.insert("owner", "joe");
        assert!(opened(stolen, &keys()).is_err());
        let elsewhere = body(&text(&kept).replace("https://h:1/", "https://evil:1/"));
        assert_eq!(opened(elsewhere, &keys()).unwrap_err(), "The sealed credentials of the source cannot be opened.");
        for bare in [r#"{"source":"a","target":"http://h/b"}"#, r#"{"source":5}"#, "{}"] {
            assert_eq!(text(&sealed(body(bare), &keys(), || [1; NONCE_LEN])), text(&body(bare)));
        }
    }

    #[test]
    fn what_was_sealed_is_sealed_anew_also_where_sealing_is_off_and_nothing_else_is() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        let config = |settings: &[&str]| {
            Config::in_memory(&env, settings.iter().map(|text| Setting::parse(text).unwrap()).collect())
        };
        let plain = body(r#"{"source":"https://u:Sesame@h/a","target":"http://h/b","owner":"o"}"#);
        let on = config(&["chttpd_auth/secret=former", "replicator/seal_credentials=true"]);
        let mut kept = at_rest(plain.clone(), &on, || [1; NONCE_LEN]);
        assert!(!text(&kept).contains("Sesame"));
        kept.insert("target", "http://u:Open@h/b");
        let off = config(&["chttpd_auth/secret=new", "chttpd_auth/accepted_secrets=former"]);
        let anew = at_rest(kept.clone(), &off, || [2; NONCE_LEN]);
        assert!(text(&anew).contains("http://u:Open@h/b") && !text(&anew).contains("Sesame"), "{}", text(&anew));
        let only_new = config(&["chttpd_auth/secret=new"]);
        assert!(opened(kept, &keys_of(&only_new)).is_err());
        assert!(text(&opened(anew.clone(), &keys_of(&only_new)).unwrap()).contains("https://u:Sesame@h/a"));
        assert_eq!(text(&at_rest(anew.clone(), &off, || [3; NONCE_LEN])), text(&anew), "once");
        assert_eq!(text(&at_rest(plain.clone(), &off, || [3; NONCE_LEN])), text(&plain));
    }

    #[test]
    fn what_a_former_secret_sealed_is_opened_and_sealed_anew_when_it_is_written() {
        let plain =
            body(r#"{"source":"https://u:Sesame@h/a","target":{"url":"http://h/b","headers":{"X":"Y"}},"owner":"o"}"#);
        let former = sealed(plain, &[SealKey::of("former")], || [1; NONCE_LEN]);
        let keys = || ["new", "former"].map(SealKey::of);
        let source = |body: &Object| body.get("source").unwrap().as_object().unwrap().get("url").cloned();
        assert_eq!(source(&opened(former.clone(), &keys()).unwrap()), Some("https://u:Sesame@h/a".into()));
        let anew = sealed(former.clone(), &keys(), || [2; NONCE_LEN]);
        assert!(text(&anew) != text(&former) && !text(&anew).contains("Sesame"));
        let only_new = || [SealKey::of("new")];
        assert_eq!(text(&opened(anew.clone(), &only_new()).unwrap()), text(&opened(former.clone(), &keys()).unwrap()));
        assert_eq!(text(&sealed(anew.clone(), &keys(), || [3; NONCE_LEN])), text(&anew), "once");
        // What nobody can open stays; new credentials replace those that were sealed.
        assert_eq!(text(&sealed(former.clone(), &only_new(), || [4; NONCE_LEN])), text(&former));
        let mut changed = former.clone();
        let mut target = former.get("target").unwrap().as_object().unwrap().clone();
        target.insert("headers", body(r#"{"X":"Z"}"#));
        changed.insert("target", Value::Object(target));
        let changed = opened(sealed(changed, &keys(), || [5; NONCE_LEN]), &only_new()).unwrap();
        assert!(text(&changed).contains(r#"{"X":"Z"}"#) && !text(&changed).contains(r#""Y""#), "{}", text(&changed));
    }
}
