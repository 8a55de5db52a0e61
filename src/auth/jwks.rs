//! JWKS: keys of tokens that an identity provider publishes at a URL, `jwt_auth/jwks_url` (an extension).
//!
//! A set is fetched when a token names an unknown key, and when the set in memory is older than `jwks_max_age`. However
//! many tokens name unknown keys, the provider is asked at most once in `limits::JWKS_PAUSE`. While the provider cannot
//! be reached, the set in memory stays valid for `limits::JWKS_STALE`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::sync::Mutex;

use super::jwk;
use crate::config::Config;
use crate::limits;
use crate::wire::client::{Call, Client, Patience};
use crate::wire::tls::{Connector, Trust};
use crate::wire::url::Url;
use crate::world::{Env, Instant};

const SECTION: &str = "jwt_auth";

/// The published keys. One per node.
pub(super) struct Jwks {
    env: Env,
    config: Config,
    known: RwLock<Arc<Known>>,
    /// Held while the provider is asked; what was tried last.
    fetching: Mutex<Option<(String, Instant)>>,
}

/// A set, and where and when it was had.
#[derive(Default)]
struct Known {
    url: String,
    keys: BTreeMap<String, String>,
    fetched: Option<Instant>,
}

impl Jwks {
    pub(super) fn new(env: &Env, config: &Config) -> Jwks {
        Jwks { env: env.clone(), config: config.clone(), known: RwLock::default(), fetching: Mutex::default() }
    }

    /// The key of this name (`family:kid`) as PEM; `None` when the provider has none of it, or there is no provider.
    pub(super) async fn key(&self, name: &str) -> Option<String> {
        let url = self.config.get(SECTION, "jwks_url").filter(|url| !url.is_empty())?;
        let max_age = Duration::from_secs(self.config.u64(SECTION, "jwks_max_age", limits::JWKS_MAX_AGE_S));
        if let Some(key) = self.known().key(&url, name, self.env.now(), max_age) {
            return Some(key);
        }
        self.refresh(&url, name, max_age).await;
        self.known().key(&url, name, self.env.now(), limits::JWKS_STALE)
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the provider, unless that was done a moment ago.
    async fn refresh(&self, url: &str, name: &str, max_age: Duration) {
        let mut last = self.fetching.lock().await;
        let now = self.env.now();
        let lately = |(tried, at): &(String, Instant)| tried == url && now.since(*at) < limits::JWKS_PAUSE;
        // Another request may have brought the key while this one waited.
        if last.as_ref().is_some_and(lately) || self.known().key(url, name, now, max_age).is_some() {
            return;
        }
        *last = Some((url.to_owned(), now));
        match self.fetch(url).await {
            Ok(keys) => {
                let known = Known { url: url.to_owned(), keys, fetched: Some(self.env.now()) };
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
            }
            Err(why) => tracing::warn!("keys of tokens could not be had from jwt_auth/jwks_url: {why}"),
        }
    }

    async fn fetch(&self, url: &str) -> Result<BTreeMap<String, String>, String> {
        let (url, _) = Url::parse(url).map_err(|_| "not an http or https URL".to_owned())?;
        let trust = match self.config.get(SECTION, "jwks_trusted_certificates_file").filter(|path| !path.is_empty()) {
            Some(path) => Trust::File(PathBuf::from(path)),
            None => Trust::System,
        };
        let patience = Patience { silence: limits::JWKS_SILENCE, retries: 0 };
        let client = Client::with_tls(&self.env, patience, Connector::new(&self.env, trust, None));
        let call = Call { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() };
        let answer = client.call(&call).await.map_err(|e| e.to_string())?;
        if !answer.status.is_success() {
            return Err(format!("status {}", answer.status.as_u16()));
        }
        let text = answer.bytes(limits::JWKS_BYTES_MAX).await.map_err(|e| e.to_string())?;
        jwk::read_set(&text).ok_or_else(|| "the answer is no key set".to_owned())
    }
}

impl Known {
    /// A key of a set of this URL that is not older than `max_age`.
    fn key(&self, url: &str, name: &str, now: Instant, max_age: Duration) -> Option<String> {
        let fresh = self.url == url && self.fetched.is_some_and(|at| now.since(at) <= max_age);
        if fresh { self.keys.get(name).cloned() } else { None }
    }
}
