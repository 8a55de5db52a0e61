//! JSON Web Tokens: `Authorization: Bearer` (CouchDB documentation, 'JWT authentication'). Pure but for a cache of
//! verified signatures.
//!
//! `[jwt_keys]` holds the trusted keys, `family:kid`; `[jwt_auth]` names the required claims and the place of the
//! roles. Only the claims of `required_claims` are checked: without `exp` in it an expired token is accepted, as
//! CouchDB 3.5 was measured. A signature is verified once and its digest is cached, because the check of claims is
//! cheap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::jwks::Jwks;
use super::token_key::{Algorithm, Family};
use super::{AuthError, UserCtx};
use crate::config::{Config, words};
use crate::document::json::{self, Object, Value};
use crate::limits;
use crate::world::buggify::{Mutation, mutated};

const KEYS: &str = "jwt_keys";
const OPTIONS: &str = "jwt_auth";
/// Where roles are while neither option is set: CouchDB's name, then the specification's.
const ROLES_CLAIMS: [&str; 2] = ["_couchdb.roles", "_svc.roles"];

/// Verifies tokens. One per node.
#[derive(Default)]
pub(super) struct Tokens(Mutex<Known>);

/// Digests of tokens and the keys that verified them; the oldest goes.
#[derive(Default)]
struct Known {
    digests: BTreeSet<[u8; 32]>,
    order: BTreeMap<u64, [u8; 32]>,
    next: u64,
}

/// A token taken apart.
struct Token<'a> {
    signed: &'a [u8],
    header: Object,
    claims: Object,
    /// In base64url.
    signature: &'a str,
}

fn bad(reason: impl Into<std::borrow::Cow<'static, str>>) -> AuthError {
    AuthError::BadToken(reason.into())
}

impl Tokens {
    /// The caller whom the request's token names; `None` without a token.
    pub(super) async fn user(
        &self,
        config: &Config,
        jwks: &Jwks,
        headers: &HeaderMap,
        now_s: u64,
    ) -> Result<Option<UserCtx>, AuthError> {
        let Some(token) = bearer(headers) else { return Ok(None) };
        let required = required_claims(&config.text(OPTIONS, "required_claims", "exp"))?;
        let parsed = parse(token)?;
        let (of_header, required): (Vec<Required>, Vec<Required>) =
            required.into_iter().partition(|(name, _)| HEADER_PARAMETERS.contains(&name.as_str()));
        let algorithm = check_header(&parsed.header, &of_header)?;
        // Claims come before keys and signature, as in CouchDB: a client with an old token is told that it is old.
        check_claims(&parsed.claims, required, now_s)?;
        self.verify(config, jwks, (token, &parsed), algorithm).await?;
        let roles = roles(config, &parsed.claims)?;
        match parsed.claims.get("sub").and_then(Value::as_str) {
            Some(name) => Ok(Some(UserCtx { name: Some(name.to_owned()), roles, handler: None })),
            None => Err(AuthError::UnfitToken("Token missing sub claim.")),
        }
    }

    async fn verify(
        &self,
        config: &Config,
        jwks: &Jwks,
        (token, parsed): (&[u8], &Token<'_>),
        algorithm: Algorithm,
    ) -> Result<(), AuthError> {
        let kid = match parsed.header.get("kid") {
            None => "_default",
            Some(kid) => kid.as_str().ok_or_else(|| bad("Unknown kid"))?,
        };
        let name = format!("{}:{kid}", algorithm.family().name());
        let key = match config.get(KEYS, &name) {
            Some(key) => key,
            // Shared keys are never published.
            None if algorithm.family() == Family::Hmac => return Err(bad("Unknown kid")),
            None => jwks.key(&name).await.ok_or_else(|| bad("Unknown kid"))?,
        };
        let digest: [u8; 32] = Sha256::new().chain_update(token).chain_update([0]).chain_update(&key).finalize().into();
        if self.known().digests.contains(&digest) {
            return Ok(());
        }
        match algorithm.verify(&key, parsed.signed, parsed.signature) {
            None => Err(bad("Not a valid key")),
            Some(false) if algorithm.family() == Family::Hmac => Err(bad("Bad HMAC")),
            Some(false) => Err(bad("Bad signature")),
            Some(true) => {
                self.known().add(digest);
                Ok(())
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn add(&mut self, digest: [u8; 32]) {
        if !self.digests.insert(digest) {
            return;
        }
        self.order.insert(self.next, digest);
        self.next += 1;
        while self.digests.len() > limits::VERIFIED_TOKENS_MAX {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.digests.remove(&oldest);
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ")?;
    Some(value.trim_ascii())
}

fn parse(token: &[u8]) -> Result<Token<'_>, AuthError> {
    let malformed = || bad("Malformed token");
    if token.len() > limits::TOKEN_BYTES_MAX {
        return Err(malformed());
    }
    let dots: Vec<usize> = (0..token.len()).filter(|at| token[*at] == b'.').collect();
    let [first, second] = dots.as_slice() else { return Err(malformed()) };
    let decode = |part: &[u8]| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
    let object = |part: &[u8]| match json::parse(&decode(part)?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad("Not an object")),
        Err(_) => Err(malformed()),
    };
    let header = object(&token[..*first])?;
    let claims = object(&token[first + 1..*second])?;
    let signature = &token[second + 1..];
    decode(signature)?;
    let signature = std::str::from_utf8(signature).map_err(|_| malformed())?;
    Ok(Token { signed: &token[..*second], header, claims, signature })
}

/// The name of a claim with the value that it must have, if one is asked for.
type Required = (String, Option<String>);

/// Names in `required_claims` that stand for parameters of the header.
const HEADER_PARAMETERS: [&str; 3] = ["typ", "alg", "kid"];

/// Reads `exp, {iss, "value"}`. A setting that cannot be understood lets nobody in: who made a mistake in it did not
/// want tokens without any claim.
fn required_claims(text: &str) -> Result<Vec<Required>, AuthError> {
    let mut claims = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c != '{' && !is_claim(c));
        if let Some(pair) = rest.strip_prefix('{') {
            let (pair, after) = pair.split_once('}').ok_or(AuthError::Misconfigured)?;
            let (name, value) = pair.split_once(',').ok_or(AuthError::Misconfigured)?;
            claims.push((name.trim().to_owned(), Some(value.trim().trim_matches('"').to_owned())));
            rest = after;
        } else {
            let end = rest.find(|c| !is_claim(c)).unwrap_or(rest.len());
            if end == 0 {
                let nothing = claims.is_empty() && !text.is_empty();
                return if nothing { Err(AuthError::Misconfigured) } else { Ok(claims) };
            }
            claims.push((rest[..end].to_owned(), None));
            rest = &rest[end..];
        }
    }
}

fn is_claim(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn check_header(header: &Object, required: &[Required]) -> Result<Algorithm, AuthError> {
    // It names extensions that must be understood (RFC 7515, 4.1.11), and none is.
    if header.contains("crit") {
        return Err(bad("Invalid crit header parameter"));
    }
    for (name, wanted) in required {
        let value = header.get(name).ok_or_else(|| match name.as_str() {
            "kid" => bad("Missing kid claim"),
            name => bad(format!("Missing {name} header parameter")),
        })?;
        let is_other = wanted.as_ref().is_some_and(|wanted| value.as_str() != Some(wanted));
        if is_other || (name == "typ" && value.as_str() != Some("JWT")) {
            return Err(bad(format!("Invalid {name} header parameter")));
        }
    }
    let algorithm = header.get("alg").ok_or_else(|| bad("Missing alg header parameter"))?;
    algorithm.as_str().and_then(Algorithm::from_name).ok_or_else(|| bad("Invalid alg header parameter"))
}

/// The claims that mean something to CouchDB, in the order in which it looks at them; others come behind them.
const CLAIMS: [&str; 4] = ["iss", "iat", "nbf", "exp"];

fn check_claims(claims: &Object, mut required: Vec<Required>, now_s: u64) -> Result<(), AuthError> {
    let place = |name: &str| CLAIMS.iter().position(|claim| *claim == name).unwrap_or(CLAIMS.len());
    required.sort_by_key(|(name, _)| place(name));
    for (name, wanted) in &required {
        let value = claims.get(name).ok_or_else(|| bad(format!("Missing {name} claim")))?;
        let invalid = || bad(format!("Invalid {name} claim"));
        if wanted.as_ref().is_some_and(|wanted| value.as_str() != Some(wanted)) {
            return Err(invalid());
        }
        match name.as_str() {
            // When a token was issued is not compared with this clock, which may be behind.
            "iat" if !matches!(value, Value::Int(_) | Value::Big(_)) => return Err(invalid()),
            "nbf" if mutated(Mutation::TokenTooEarly) => {}
            "nbf" if seconds(value).is_none_or(|at| at > now_s as f64) => {
                return Err(AuthError::UnfitToken("nbf not in past"));
            }
            "exp" if mutated(Mutation::TokenNeverEnds) => {}
            "exp" if seconds(value).ok_or_else(invalid)? <= now_s as f64 => {
                return Err(AuthError::UnfitToken("exp not in future"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn seconds(value: &Value) -> Option<f64> {
    match value {
        Value::Float(seconds) => Some(*seconds),
        Value::Int(seconds) => Some(*seconds as f64),
        // Farther than any clock goes.
        Value::Big(_) => Some(f64::MAX),
        _ => None,
    }
}

/// The roles: at `roles_claim_path`, else in the claim `roles_claim_name`; a list of texts, or a text with commas.
fn roles(config: &Config, claims: &Object) -> Result<Vec<String>, AuthError> {
    let found = match config.get(OPTIONS, "roles_claim_path").filter(|path| !path.is_empty()) {
        Some(path) => Some(at_path(claims, &path)?),
        None => match config.get(OPTIONS, "roles_claim_name").filter(|name| !name.is_empty()) {
            Some(name) => claims.get(&name),
            None => ROLES_CLAIMS.iter().find_map(|name| claims.get(name)),
        },
    };
    match found {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(words(text).map(str::to_owned).collect()),
        Some(Value::Array(list)) => {
            let texts = list.iter().map(|role| role.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
            texts.ok_or_else(|| bad("Malformed token"))
        }
        Some(_) => Err(bad("Malformed token")),
    }
}

/// What a path of names divided by dots leads to; `\.` is a dot within a name.
fn at_path<'a>(claims: &'a Object, path: &str) -> Result<&'a Value, AuthError> {
    let mut names = vec![String::new()];
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '\\' if letters.peek() == Some(&'.') => letters.next(),
            '.' => {
                names.push(String::new());
                None
            }
            other => Some(other),
        };
        if let Some(name) = names.last_mut() {
            name.extend(letter);
        }
    }
    let mut at: Option<&Value> = None;
    for name in &names {
        let inner = match at {
            None => claims,
            Some(value) => value.as_object().ok_or(AuthError::TokenOfOtherShape)?,
        };
        at = Some(inner.get(name).ok_or_else(|| AuthError::TokenWithout(name.clone()))?);
    }
    at.ok_or_else(|| AuthError::TokenWithout(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::keyed_hash::HashAlgorithm;
    use crate::auth::tests::{in_memory, world};

    const NOW_S: u64 = 1_800_000_000;
    /// `key` in base64.
    const KEY: &str = "jwt_keys/hmac:_default=a2V5";

    fn token(header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mac = HashAlgorithm::Sha256.mac(b"key", signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    fn ask(settings: &[&str], token: &str) -> Result<Option<UserCtx>, AuthError> {
        let (runtime, env) = world();
        let config = in_memory(&env, settings);
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        runtime.block_on(Tokens::default().user(&config, &Jwks::new(&env, &config), &headers, NOW_S))
    }

    fn of_claims(settings: &[&str], claims: &str) -> Result<Vec<String>, String> {
        let settings: Vec<&str> = settings.iter().copied().chain([KEY]).collect();
        match ask(&settings, &token(r#"{"typ":"JWT","alg":"HS256"}"#, claims)) {
            Ok(Some(user)) => Ok(user.name.into_iter().chain(user.roles).collect()),
            Ok(None) => panic!("there is a token"),
            Err(error) => Err(error.reason().into_owned()),
        }
    }

    fn names(list: &[&str]) -> Result<Vec<String>, String> {
        Ok(list.iter().map(|name| (*name).to_owned()).collect())
    }

    fn refused(reason: &str) -> Result<Vec<String>, String> {
        Err(reason.to_owned())
    }

    #[test]
    fn claims_are_asked_for_as_configured() {
        let far = r#"{"sub":"jane","exp":4102444800}"#;
        assert_eq!(of_claims(&[], far), names(&["jane"]));
        assert_eq!(of_claims(&[], r#"{"sub":"jane","exp":1000000000}"#), refused("exp not in future"));
        assert_eq!(of_claims(&[], r#"{"sub":"jane"}"#), refused("Missing exp claim"));
        assert_eq!(of_claims(&[], r#"{"exp":4102444800}"#), refused("Token missing sub claim."));
        let none = ["jwt_auth/required_claims="];
        assert_eq!(of_claims(&none, r#"{"sub":"i","exp":1}"#), names(&["i"]));
        let all = [r#"jwt_auth/required_claims=exp,nbf,{iss, "https://issuer.example"}"#];
        let with =
            |nbf: u64, iss: &str| of_claims(&all, &format!(r#"{{"sub":"i","exp":4e9,"nbf":{nbf},"iss":"{iss}"}}"#));
        assert_eq!(with(1, "https://issuer.example"), names(&["i"]));
        assert_eq!(with(1, "other"), refused("Invalid iss claim"));
        assert_eq!(with(4_000_000_000, "https://issuer.example"), refused("nbf not in past"));
        assert_eq!(of_claims(&all, r#"{"sub":"i","exp":4e9,"nbf":1}"#), refused("Missing iss claim"));
        let nbf = ["jwt_auth/required_claims=nbf"];
        assert_eq!(of_claims(&nbf, r#"{"sub":"i","nbf":"x"}"#), refused("nbf not in past"));
        let iat = ["jwt_auth/required_claims=iat"];
        assert_eq!(of_claims(&iat, r#"{"sub":"i","iat":4000000000}"#), names(&["i"]), "issued by a clock ahead");
        assert_eq!(of_claims(&iat, r#"{"sub":"i","iat":"x"}"#), refused("Invalid iat claim"));
        assert_eq!(of_claims(&[], r#"{"sub":"i","exp":"x"}"#), refused("Invalid exp claim"));
        let missing = |required: &str| of_claims(&[&format!("jwt_auth/required_claims={required}")], r#"{"sub":"i"}"#);
        assert_eq!(missing("exp,iss"), refused("Missing iss claim"));
        assert_eq!(missing("exp, team,iat"), refused("Missing iat claim"));
    }

    #[test]
    fn claims_are_looked_at_before_keys_and_signature() {
        let of = |claims: &str| {
            let forged = token(r#"{"alg":"HS256"}"#, claims);
            ask(&["jwt_keys/hmac:_default=b3RoZXI="], &forged).unwrap_err().reason().into_owned()
        };
        assert_eq!(of(r#"{"sub":"jane","exp":1000000000}"#), "exp not in future");
        assert_eq!(of(r#"{"sub":"jane"}"#), "Missing exp claim");
        assert_eq!(of(r#"{"sub":"jane","exp":4102444800}"#), "Bad HMAC");
    }

    #[test]
    fn roles_are_found_by_name_and_by_path() {
        let claims = |roles: &str| format!(r#"{{"sub":"u","exp":4102444800,{roles}}}"#);
        assert_eq!(of_claims(&[], &claims(r#""_couchdb.roles":["a","b"]"#)), names(&["u", "a", "b"]));
        assert_eq!(of_claims(&[], &claims(r#""_svc.roles":"a, b""#)), names(&["u", "a", "b"]));
        assert_eq!(of_claims(&[], &claims(r#""_couchdb.roles":[1]"#)), refused("Malformed token"));
        let named = ["jwt_auth/roles_claim_name=r"];
        assert_eq!(of_claims(&named, &claims(r#""r":["x"],"_couchdb.roles":["a"]"#)), names(&["u", "x"]));
        let path = [r"jwt_auth/roles_claim_path=app\.x.roles", "jwt_auth/roles_claim_name=r"];
        assert_eq!(of_claims(&path, &claims(r#""app.x":{"roles":["y"]},"r":["x"]"#)), names(&["u", "y"]));
        assert_eq!(of_claims(&path, &claims(r#""r":["x"]"#)), refused("missing json key: app.x"));
        assert_eq!(of_claims(&path, &claims(r#""app.x":{"r":["x"]}"#)), refused("missing json key: roles"));
        assert_eq!(of_claims(&path, &claims(r#""app.x":["x"]"#)), refused("json_mismatch"));
    }

    #[test]
    fn tokens_that_cannot_be_verified_are_refused() {
        let claims = r#"{"sub":"jane","exp":4102444800}"#;
        let reason = |settings: &[&str], token: &str| ask(settings, token).unwrap_err().reason().into_owned();
        let good = token(r#"{"alg":"HS256"}"#, claims);
        assert_eq!(reason(&[], &good), "Unknown kid");
        assert_eq!(reason(&["jwt_keys/hmac:_default=***"], &good), "Not a valid key");
        assert_eq!(reason(&["jwt_keys/hmac:_default=b3RoZXI="], &good), "Bad HMAC");
        assert_eq!(reason(&[KEY], &token(r#"{"alg":"none"}"#, claims)), "Invalid alg header parameter");
        assert_eq!(reason(&[KEY], &token("{}", claims)), "Missing alg header parameter");
        let critical = token(r#"{"alg":"HS256","crit":["exp"]}"#, claims);
        assert_eq!(reason(&[KEY], &critical), "Invalid crit header parameter");
        assert_eq!(reason(&[KEY], &token("[]", claims)), "Not an object");
        assert_eq!(reason(&[KEY], &token(r#"{"alg":"HS256","kid":"x"}"#, claims)), "Unknown kid");
        assert_eq!(reason(&["jwt_keys/hmac:x=a2V5"], &token(r#"{"alg":"RS256","kid":"x"}"#, claims)), "Unknown kid");
        for token in ["nodots", "not.a.jwt", "a.b", "a.b.c.d", "", "YQ.YQ.YQ"] {
            assert_eq!(reason(&[KEY], token), "Malformed token", "{token}");
        }
        assert!(ask(&["jwt_keys/hmac:x=a2V5"], &token(r#"{"alg":"HS256","kid":"x"}"#, claims)).is_ok());
    }

    #[test]
    fn parameters_of_the_header_can_be_required() {
        let claims = r#"{"sub":"jane"}"#;
        let of = |header: &str| {
            let required = "jwt_auth/required_claims=typ, kid, alg";
            ask(&[KEY, "jwt_keys/hmac:k=a2V5", required], &token(header, claims)).map_err(|e| e.reason().into_owned())
        };
        assert!(of(r#"{"typ":"JWT","alg":"HS256","kid":"k"}"#).is_ok());
        let reason = |header: &str| of(header).unwrap_err();
        assert_eq!(reason(r#"{"alg":"HS256","kid":"k"}"#), "Missing typ header parameter");
        assert_eq!(reason(r#"{"typ":"x","alg":"HS256","kid":"k"}"#), "Invalid typ header parameter");
        assert_eq!(reason(r#"{"typ":"JWT","alg":"HS256"}"#), "Missing kid claim");
        assert_eq!(reason(r#"{"typ":"JWT","kid":"k"}"#), "Missing alg header parameter");
    }

    #[test]
    fn required_claims_that_cannot_be_understood_let_no_token_in() {
        let good = token(r#"{"alg":"HS256"}"#, r#"{"sub":"jane","exp":4102444800}"#);
        for setting in ["***", "{iss}", "exp,{iss, \"x\""] {
            let required = format!("jwt_auth/required_claims={setting}");
            assert_eq!(ask(&[KEY, &required], &good), Err(AuthError::Misconfigured), "{setting}");
        }
    }

    #[test]
    fn a_changed_key_counts_at_once_and_memory_is_bounded() {
        let (runtime, env) = world();
        let mut headers = HeaderMap::new();
        let token = token(r#"{"alg":"HS256"}"#, r#"{"sub":"a","exp":4102444800}"#);
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        let tokens = Tokens::default();
        let user = |config: Config| runtime.block_on(tokens.user(&config, &Jwks::new(&env, &config), &headers, NOW_S));
        for _ in 0..2 {
            assert!(user(in_memory(&env, &[KEY])).is_ok());
        }
        assert!(user(in_memory(&env, &["jwt_keys/hmac:_default=b3RoZXI="])).is_err());
        let mut known = Known::default();
        for n in 0..=limits::VERIFIED_TOKENS_MAX as u64 {
            known.add(Sha256::digest(n.to_be_bytes()).into());
        }
        assert_eq!(
            (known.digests.len(), known.order.len()),
            (limits::VERIFIED_TOKENS_MAX, limits::VERIFIED_TOKENS_MAX)
        );
    }
}
