//! The secret with which cookies are made and credentials of replications are sealed, `[chttpd_auth] secret`, and
//! those that are accepted beside it, `accepted_secrets`: former ones, and one that is to come. Proxies sign with any.
//!
//! A secret is replaced in three steps, each on all nodes before the next one begins: the coming one is accepted
//! ([`SecretStore::accept`]); it becomes the secret, and the former one is accepted ([`SecretStore::put_to_use`]);
//! former ones are not accepted any more ([`SecretStore::drop_accepted`]). So no node refuses what another one makes.
//!
//! One that has leaked is replaced in one step ([`SecretStore::replace`]): a node never accepts the leaked one beside
//! the new one, so it cannot renew a forged cookie under the new one.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest as _, Sha256};

use super::options;
use crate::config::{Config, ConfigError, words};
use crate::limits;
use crate::wire::hex;
use crate::world::Env;

const SECTION: &str = "chttpd_auth";
const PRESENT: &str = "secret";
const ACCEPTED: &str = "accepted_secrets";

/// The secrets that count, of one moment: none is lacking while they are changed.
pub struct Secrets {
    present: String,
    others: Vec<String>,
}

impl Secrets {
    /// Those of the configuration; `None` without a present one.
    pub fn of(config: &Config) -> Option<Secrets> {
        let sections = config.sections();
        let present = options::get_in(&sections, PRESENT)?;
        let list = options::get_in(&sections, ACCEPTED).unwrap_or_default();
        let others = words(&list).filter(|one| *one != present);
        let others = others.take(limits::ACCEPTED_SECRETS_MAX).map(str::to_owned).collect();
        Some(Secrets { present, others })
    }

    /// The one with which everything is made.
    pub fn present(&self) -> &str {
        &self.present
    }

    /// All that are accepted, the present one first.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.present.as_str()).chain(self.others.iter().map(String::as_str))
    }
}

/// The secret of cookies, `chttpd_auth/secret`: made at the first start and kept in the configuration.
///
/// # Errors
/// When it could not be written.
pub async fn ensure_secret(env: &Env, config: &Config) -> Result<String, ConfigError> {
    if let Some(secret) = options::get(config, PRESENT) {
        return Ok(secret);
    }
    let secret = new_secret(env);
    config.set((SECTION, PRESENT), &secret, true).await?;
    Ok(secret)
}

/// A secret that nobody knows.
pub fn new_secret(env: &Env) -> String {
    hex::encode(&env.random_bytes::<16>())
}

/// What nodes call a secret among each other: it says which one is meant, and nothing else.
pub fn digest(secret: &str) -> String {
    let mut hash = Sha256::new_with_prefix(b"settee: which secret");
    hash.update(secret.as_bytes());
    hex::encode(hash.finalize().as_slice())
}

/// What a node tells of its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretsTold {
    /// The [`digest`] of the present one.
    pub present: String,
    /// Those of the others that it accepts.
    pub accepted: Vec<String>,
    /// Why the present one cannot be replaced, where that is so.
    pub obstacle: Option<String>,
}

impl SecretsTold {
    /// Whether the node accepts what is made with that secret.
    pub fn accepts(&self, digest: &str) -> bool {
        self.present == digest || self.accepted.iter().any(|one| one == digest)
    }

    /// Whether another secret can take the place of the present one: on the way the list has both.
    pub fn has_room(&self) -> bool {
        self.accepted.len() + 2 <= limits::ACCEPTED_SECRETS_MAX
    }
}

/// Why the secrets of a node were not changed.
#[derive(Debug)]
pub enum SecretError {
    /// No more can be accepted.
    Full,
    /// It cannot stand in the list, or is too long.
    Unfit,
    /// The one that is meant is not among those that the node accepts.
    Unknown,
    /// The node has another present one.
    Other,
    /// It could not be written.
    Config(ConfigError),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = limits::ACCEPTED_SECRETS_MAX;
        match self {
            SecretError::Full => {
                write!(f, "at most {limit} secrets are accepted, the present and the coming one among them on the way")
            }
            SecretError::Unfit => {
                write!(f, "a secret is a text of at most {} bytes without a comma", limits::SECRET_BYTES_MAX)
            }
            SecretError::Unknown => f.write_str("the secret that is meant is not accepted there"),
            SecretError::Other => f.write_str("the present secret is another one"),
            SecretError::Config(error) => error.fmt(f),
        }
    }
}

impl From<ConfigError> for SecretError {
    fn from(error: ConfigError) -> SecretError {
        SecretError::Config(error)
    }
}

/// The secrets of a node, as they are replaced.
pub struct SecretStore {
    env: Env,
    config: Config,
    /// Held from reading the secrets until they are changed.
    changing: tokio::sync::Mutex<()>,
}

impl SecretStore {
    /// Over the node's configuration.
    pub fn new(env: &Env, config: &Config) -> SecretStore {
        SecretStore { env: env.clone(), config: config.clone(), changing: tokio::sync::Mutex::default() }
    }

    /// What the node has.
    ///
    /// # Errors
    /// When there was no secret and none could be written.
    pub async fn look(&self) -> Result<SecretsTold, SecretError> {
        let _changing = self.changing.lock().await;
        let secrets = self.secrets().await?;
        let accepted = secrets.others.iter().map(|secret| digest(secret)).collect();
        Ok(SecretsTold { present: digest(&secrets.present), accepted, obstacle: self.obstacle(&secrets) })
    }

    /// Accepts one that is to come.
    ///
    /// # Errors
    /// [`SecretError`]
    pub async fn accept(&self, secret: &str) -> Result<(), SecretError> {
        let _changing = self.changing.lock().await;
        let secrets = self.secrets().await?;
        if !is_fit(secret) {
            return Err(SecretError::Unfit);
        }
        if secrets.all().any(|one| one == secret) {
            return Ok(());
        }
        self.list(std::iter::once(secret).chain(secrets.all().skip(1))).await
    }

    /// Makes one that is accepted the present one, which is accepted from then on. Done already: nothing happens.
    ///
    /// # Errors
    /// [`SecretError`]
    pub async fn put_to_use(&self, wanted: &str) -> Result<(), SecretError> {
        let _changing = self.changing.lock().await;
        let secrets = self.secrets().await?;
        if digest(&secrets.present) == wanted {
            return Ok(());
        }
        let new = secrets.others.iter().find(|secret| digest(secret) == wanted).ok_or(SecretError::Unknown)?.clone();
        if !is_fit(&secrets.present) {
            return Err(SecretError::Unfit);
        }
        // At each moment, and after each end of the process, both are accepted.
        self.list(secrets.all()).await?;
        let section = options::section(&self.config, PRESENT);
        self.config.set((section, PRESENT), &new, true).await?;
        self.list(secrets.all().filter(|secret| *secret != new)).await
    }

    /// Accepts those of the digests `former` no more, while the present one is the one that is meant. One that came
    /// since `former` was made stays.
    ///
    /// # Errors
    /// [`SecretError`]
    pub async fn drop_accepted(&self, present: &str, former: &BTreeSet<&str>) -> Result<(), SecretError> {
        let _changing = self.changing.lock().await;
        let secrets = self.secrets().await?;
        if digest(&secrets.present) != present {
            return Err(SecretError::Other);
        }
        let others = secrets.others.iter().map(String::as_str);
        self.list(others.filter(|secret| !former.contains(digest(secret).as_str()))).await
    }

    /// Makes `secret` the present one, and accepts no other one. None that was accepted before counts beside it at any
    /// moment.
    ///
    /// # Errors
    /// [`SecretError`]
    pub async fn replace(&self, secret: &str) -> Result<(), SecretError> {
        let _changing = self.changing.lock().await;
        if !is_fit(secret) {
            return Err(SecretError::Unfit);
        }
        self.list(std::iter::empty()).await?;
        let section = options::section(&self.config, PRESENT);
        self.config.set((section, PRESENT), secret, true).await?;
        Ok(())
    }

    async fn secrets(&self) -> Result<Secrets, SecretError> {
        let present = ensure_secret(&self.env, &self.config).await?;
        Ok(Secrets::of(&self.config).unwrap_or(Secrets { present, others: Vec::new() }))
    }

    async fn list<'s>(&self, secrets: impl Iterator<Item = &'s str>) -> Result<(), SecretError> {
        let secrets: Vec<&str> = secrets.collect();
        if secrets.len() > limits::ACCEPTED_SECRETS_MAX {
            return Err(SecretError::Full);
        }
        let at = (options::section(&self.config, ACCEPTED), ACCEPTED);
        match secrets.is_empty() {
            true => self.config.delete(at, true).await?,
            false => self.config.set(at, &secrets.join(", "), true).await?,
        };
        Ok(())
    }

    /// Why the present secret cannot be replaced for good.
    fn obstacle(&self, secrets: &Secrets) -> Option<String> {
        if !is_fit(&secrets.present) {
            return Some(format!("its present secret cannot be kept as a former one: {}", SecretError::Unfit));
        }
        let is_above = |key: &str| {
            let section = options::section(&self.config, key);
            let set = |value: Option<String>| value.filter(|value| !value.is_empty());
            set(self.config.written(section, key)) != set(self.config.get(section, key))
        };
        let above = [PRESENT, ACCEPTED].into_iter().find(|key| is_above(key))?;
        // Without a file nothing outlives the process anyway.
        self.config.written_file()?;
        Some(format!("[{SECTION}] {above} is not what its files say: it is set on the command line, or was not kept"))
    }
}

fn is_fit(secret: &str) -> bool {
    let is_whole = !secret.is_empty() && secret.trim() == secret && !secret.contains([',', '\n', '\r']);
    is_whole && secret.len() <= limits::SECRET_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{in_memory, world};

    fn all(config: &Config) -> Vec<String> {
        Secrets::of(config).map(|secrets| secrets.all().map(str::to_owned).collect()).unwrap_or_default()
    }

    #[test]
    fn the_present_secret_is_first_and_few_others_count() {
        let (_runtime, env) = world();
        assert!(Secrets::of(&in_memory(&env, &["chttpd_auth/accepted_secrets=a"])).is_none());
        let config = in_memory(&env, &["chttpd_auth/secret=p", "chttpd_auth/accepted_secrets=a,, p , b c"]);
        assert_eq!(all(&config), ["p", "a", "b c"]);
        let old = in_memory(&env, &["couch_httpd_auth/secret=p", "chttpd_auth/accepted_secrets=a,b,c,d,e"]);
        assert_eq!(all(&old), ["p", "a", "b", "c", "d"]);
    }

    #[test]
    fn a_secret_is_accepted_used_and_the_former_one_dropped() {
        let (runtime, env) = world();
        let config = in_memory(&env, &["couch_httpd_auth/secret=old"]);
        let store = SecretStore::new(&env, &config);
        runtime.block_on(async {
            assert!(matches!(store.put_to_use(&digest("new")).await, Err(SecretError::Unknown)));
            for unfit in ["", "a,b", " a", "a\nb", &"x".repeat(2000)] {
                assert!(matches!(store.accept(unfit).await, Err(SecretError::Unfit)), "{unfit:?}");
            }
            store.accept("new").await.unwrap();
            store.accept("new").await.unwrap();
            assert_eq!(all(&config), ["old", "new"]);
            for _ in 0..2 {
                store.put_to_use(&digest("new")).await.unwrap();
                assert_eq!(all(&config), ["new", "old"]);
            }
            let told = store.look().await.unwrap();
            assert!(told.accepts(&digest("old")) && told.accepts(&digest("new")) && !told.accepts(&digest("x")));
            let (old, coming) = (digest("old"), digest("coming"));
            let former = BTreeSet::from([old.as_str()]);
            assert!(matches!(store.drop_accepted(&digest("old"), &former).await, Err(SecretError::Other)));
            // One that came after the former ones were looked up.
            store.accept("coming").await.unwrap();
            store.drop_accepted(&digest("new"), &former).await.unwrap();
            assert_eq!(all(&config), ["new", "coming"]);
            store.drop_accepted(&digest("new"), &BTreeSet::from([coming.as_str()])).await.unwrap();
            assert_eq!((all(&config), store.look().await.unwrap().accepted), (vec!["new".to_owned()], vec![]));
        });
    }

    #[test]
    fn a_leaked_secret_is_replaced_and_nothing_but_the_new_one_is_accepted() {
        let (runtime, env) = world();
        let config = in_memory(&env, &["couch_httpd_auth/secret=leaked", "chttpd_auth/accepted_secrets=a,b,c,d"]);
        let store = SecretStore::new(&env, &config);
        runtime.block_on(async {
            assert!(matches!(store.replace("a,b").await, Err(SecretError::Unfit)));
            assert_eq!(all(&config), ["leaked", "a", "b", "c", "d"]);
            for _ in 0..2 {
                store.replace("new").await.unwrap();
                assert_eq!(all(&config), ["new"]);
            }
        });
    }

    #[test]
    fn a_full_list_is_told_before_anything_is_changed() {
        let (runtime, env) = world();
        let config = in_memory(&env, &["chttpd_auth/secret=p", "chttpd_auth/accepted_secrets=a,b"]);
        let store = SecretStore::new(&env, &config);
        runtime.block_on(async {
            assert!(store.look().await.unwrap().has_room());
            for secret in ["c", "d"] {
                store.accept(secret).await.unwrap();
            }
            assert!(!store.look().await.unwrap().has_room());
            assert!(matches!(store.accept("e").await, Err(SecretError::Full)));
            assert!(matches!(store.put_to_use(&digest("c")).await, Err(SecretError::Full)));
            assert_eq!(all(&config), ["p", "d", "c", "a", "b"]);
        });
    }

    #[test]
    fn a_secret_with_a_comma_cannot_become_a_former_one() {
        let (runtime, env) = world();
        let store = SecretStore::new(&env, &in_memory(&env, &["chttpd_auth/secret=a,b"]));
        let told = runtime.block_on(store.look()).unwrap();
        assert!(told.obstacle.unwrap().contains("without a comma"));
    }
}
