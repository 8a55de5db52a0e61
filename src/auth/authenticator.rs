//! [`Authenticator`]: from the headers of a request, or from a name and a password, to a caller.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::accounts::{Account, Accounts};
use super::cookie::Worth;
use super::failed_logins::FailedLogins;
use super::jwks::Jwks;
use super::jwt::Tokens;
use super::lockout::{Lockout, Suspect};
use super::password::StoredHash;
use super::secrets::{SecretStore, Secrets, ensure_secret};
use super::verified::Verifier;
use super::{AuthError, Handler, UserCtx, admins, basic, cookie, keyed_hash, options, proxy, totp};
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::world::Env;

/// What a handler sees of a request.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The peer's address, where there is one.
    pub peer: Option<IpAddr>,
}

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identified {
    /// The caller.
    pub user: UserCtx,
    /// The value of a new session cookie, where the one that came is due to be renewed.
    pub renewed: Option<String>,
}

impl Identified {
    fn by(handler: Handler, user: UserCtx) -> Identified {
        Identified { user: UserCtx { handler: Some(handler), ..user }, renewed: None }
    }
}

/// A name and password that were right.
#[derive(Clone, Debug)]
pub struct Login {
    /// Who it is.
    pub user: UserCtx,
    salt: String,
    totp: Option<crate::document::json::Object>,
}

/// Finds out who is asking. One per node; cheap to clone.
#[derive(Clone)]
pub struct Authenticator(Arc<Inner>);

struct Inner {
    env: Env,
    config: Config,
    verifier: Verifier,
    accounts: Accounts,
    lockout: Lockout,
    failed_logins: FailedLogins,
    tokens: Tokens,
    jwks: Jwks,
    secrets: SecretStore,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

impl Authenticator {
    /// An authenticator over the node's `[admins]` and, with a coordinator, its users database.
    pub fn new(env: &Env, config: &Config, coordinator: Option<Arc<Coordinator>>) -> Authenticator {
        Authenticator(Arc::new(Inner {
            env: env.clone(),
            config: config.clone(),
            verifier: Verifier::new(env),
            accounts: Accounts::new(env, config, coordinator),
            lockout: Lockout::default(),
            failed_logins: FailedLogins::default(),
            tokens: Tokens::default(),
            jwks: Jwks::new(env, config),
            secrets: SecretStore::new(env, config),
        }))
    }

    /// The handlers in the order in which they are asked, as configured now.
    pub fn handlers(&self) -> Vec<Handler> {
        Handler::configured(&self.0.config)
    }

    /// Who sent the request; anonymous when no handler found credentials of its kind.
    ///
    /// # Errors
    /// When credentials are there and are refused.
    pub async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Identified, AuthError> {
        let Inner { env, config, tokens, jwks, .. } = &*self.0;
        for handler in self.handlers() {
            let found = match handler {
                Handler::Cookie => self.session(credentials.headers).await?,
                Handler::Proxy => {
                    proxy::user(config, credentials.headers).map(|user| Identified::by(Handler::Proxy, user))
                }
                Handler::Jwt => {
                    let user = tokens.user(config, jwks, credentials.headers, env.wall().as_secs()).await?;
                    user.map(|user| Identified::by(Handler::Jwt, user))
                }
                Handler::Default => match basic::credentials(credentials.headers)? {
                    Some((name, password)) => Some(self.basic(&name, &password, credentials.peer).await?),
                    None => None,
                },
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Ok(Identified::default())
    }

    async fn basic(&self, name: &str, password: &[u8], peer: Option<IpAddr>) -> Result<Identified, AuthError> {
        let login = self.login((name, password), peer).await?;
        // Basic has no place for a second factor.
        if login.totp.is_some() {
            return Err(AuthError::WrongCredentials);
        }
        Ok(Identified::by(Handler::Default, login.user))
    }

    /// The caller whom the session cookie names, if it holds.
    async fn session(&self, headers: &HeaderMap) -> Result<Option<Identified>, AuthError> {
        let Some(cookie) = cookie::of_request(headers)? else { return Ok(None) };
        let Inner { env, config, accounts, .. } = &*self.0;
        let Some(secrets) = Secrets::of(config) else { return Ok(None) };
        let Some(account) = accounts.find(&cookie.name).await? else { return Ok(None) };
        let (algorithms, timeout_s, now_s) =
            (keyed_hash::algorithms(config), cookie::timeout_s(config), env.wall().as_secs());
        let key = |secret: &str| cookie::key(secret, &account.salt);
        let worth = |secret: &str| cookie.worth(&key(secret), &algorithms, now_s, timeout_s);
        let found = secrets.all().map(|secret| (secret, worth(secret))).find(|(_, worth)| *worth != Worth::Nothing);
        let Some((secret, worth)) = found else { return Ok(None) };
        // That of another secret is renewed at once, so that the session outlives that secret.
        let is_due = worth == Worth::HoldsAndAges || secret != secrets.present();
        let renewed = is_due.then(|| cookie::mint(&key(secrets.present()), algorithms[0], &cookie.name, now_s));
        let user = UserCtx { name: Some(cookie.name), roles: account.roles.clone(), handler: Some(Handler::Cookie) };
        Ok(Some(Identified { user, renewed }))
    }

    /// Checks a name and a password that came from `peer`. An outdated hash of a user is replaced by a new one.
    ///
    /// # Errors
    /// [`AuthError::WrongCredentials`], [`AuthError::LockedOut`], the bounds of iterations, [`AuthError::Busy`].
    pub async fn login(&self, (name, password): (&str, &[u8]), peer: Option<IpAddr>) -> Result<Login, AuthError> {
        let Inner { env, config, accounts, lockout, failed_logins, .. } = &*self.0;
        let account = accounts.find(name).await?;
        let salt = account.as_ref().map(|account| account.salt.clone()).unwrap_or_default();
        let suspect = Suspect { peer, name: name.to_owned(), salt };
        let now_ms = || u64::try_from(env.wall().as_millis()).unwrap_or(u64::MAX);
        if lockout.is_locked(config, &suspect, now_ms()) {
            env.metrics().count(Counter::LoginsLockedOut);
            env.sleep(Duration::from_millis(limits::LOCKOUT_PAUSE_MS)).await;
            return Err(AuthError::LockedOut);
        }
        let Some(account) = self.checked(name, password, account).await? else {
            failed_logins.tell(env.now(), name, peer);
            lockout.failed(config, suspect, now_ms());
            env.metrics().count(Counter::LoginsFailed);
            return Err(AuthError::WrongCredentials);
        };
        lockout.succeeded(&suspect);
        let salt = self.upgraded(name, password, &account).await.unwrap_or_else(|| account.salt.clone());
        let user = UserCtx { name: Some(name.to_owned()), roles: account.roles.clone(), handler: None };
        Ok(Login { user, salt, totp: account.totp.clone() })
    }

    /// The account, if the password is its own. Takes as long where there is no such account.
    async fn checked(
        &self,
        name: &str,
        password: &[u8],
        account: Option<Arc<Account>>,
    ) -> Result<Option<Arc<Account>>, AuthError> {
        let Inner { config, verifier, .. } = &*self.0;
        let Some((account, hash)) = account.and_then(|account| Some((Arc::clone(&account), account.hash.clone()?)))
        else {
            verifier.verify_nothing(password, admins::cost(config)).await?;
            return Ok(None);
        };
        // A login that was verified before needs no rounds any more: bounds that were set wrong lock out nobody who
        // works.
        if let Some(iterations) = hash.iterations()
            && let Err(refused) = check_iterations(config, iterations)
            && !verifier.remembers(name, password, &hash)
        {
            return Err(refused);
        }
        Ok(verifier.verify(name, password, &hash).await?.then_some(account))
    }

    /// Replaces an outdated hash of a user (`upgrade_hash_on_auth`) and answers the new salt. That it could not be
    /// replaced is no reason to refuse the login.
    async fn upgraded(&self, name: &str, password: &[u8], account: &Account) -> Option<String> {
        let Inner { config, accounts, verifier, .. } = &*self.0;
        let cost = admins::cost(config);
        let outdated = account.document.is_some() && account.hash.as_ref().is_some_and(|h| h.is_outdated(cost));
        if !outdated || !options::bool(config, "upgrade_hash_on_auth", true) {
            return None;
        }
        let hash = verifier.hash(password, cost).await.ok()?;
        accounts.upgrade(name, account, &hash).await.then(|| hash.salt().to_owned())
    }

    /// Opens a session: the value of its cookie. `token` is the code of the second factor, for users who have one.
    ///
    /// # Errors
    /// [`AuthError::WrongCredentials`] for a wrong code; [`AuthError::Unavailable`] when there is no secret and none
    /// could be made.
    pub async fn open_session(&self, login: &Login, token: &str) -> Result<String, AuthError> {
        let Inner { env, config, .. } = &*self.0;
        let now_s = env.wall().as_secs();
        if login.totp.as_ref().is_some_and(|totp| !totp::verify(totp, token, now_s)) {
            return Err(AuthError::WrongCredentials);
        }
        let secret = ensure_secret(env, config).await.map_err(|error| {
            tracing::error!("no secret for cookies: {error}");
            AuthError::Unavailable
        })?;
        let key = cookie::key(&secret, &login.salt);
        let name = login.user.name.as_deref().unwrap_or_default();
        Ok(cookie::mint(&key, keyed_hash::algorithms(config)[0], name, now_s))
    }

    /// The secrets of this node, to be replaced.
    pub fn secrets(&self) -> &SecretStore {
        &self.0.secrets
    }

    /// Hashes the password of a user document that is to be written.
    ///
    /// # Errors
    /// [`AuthError::Busy`]
    pub async fn hash_password(&self, password: &str) -> Result<StoredHash, AuthError> {
        self.0.verifier.hash(password.as_bytes(), admins::cost(&self.0.config)).await
    }
}

fn check_iterations(config: &Config, iterations: u32) -> Result<(), AuthError> {
    let (min, max) = (options::u64(config, "min_iterations", 1), options::u64(config, "max_iterations", u64::MAX));
    match u64::from(iterations) {
        few if few < min => Err(AuthError::TooFewIterations),
        many if many > max.min(u64::from(limits::PASSWORD_ITERATIONS_MAX)) => Err(AuthError::TooManyIterations),
        _ => Ok(()),
    }
}
