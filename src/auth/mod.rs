//! Who is asking, and may they.
//!
//! [`Authenticator`] turns the headers of a request into a [`UserCtx`] by asking its handlers in order: the first that
//! finds credentials of its kind decides; none means anonymous. [`access`] says what a caller may do, in one table.
//! Slow password hashes run on the blocking pool, few at once, and a correct password is hashed once, not per request.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;

use crate::config::Config;
use crate::world::Env;

pub mod access;
pub mod admins;
mod basic;
pub mod password;
pub mod security;
#[cfg(test)]
mod tests;
mod verified;

use verified::Verifier;

/// The role of server administrators; no user document may carry it.
pub const ADMIN_ROLE: &str = "_admin";
/// The role that may read statistics.
pub const METRICS_ROLE: &str = "_metrics";

/// The caller of a request, as `GET /_session` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserCtx {
    /// The name; `None` for an anonymous caller.
    pub name: Option<String>,
    /// The roles; `_admin` marks a server administrator.
    pub roles: Vec<String>,
    /// Which handler knew the caller; `None` for an anonymous one.
    pub handler: Option<Handler>,
}

impl UserCtx {
    /// A caller without credentials.
    pub fn anonymous() -> UserCtx {
        UserCtx::default()
    }

    /// A server administrator, as the `default` handler finds one.
    pub fn server_admin(name: &str) -> UserCtx {
        UserCtx { name: Some(name.to_owned()), roles: vec![ADMIN_ROLE.to_owned()], handler: Some(Handler::Default) }
    }

    /// Whether the caller carries `role`.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|r| r == role)
    }

    /// Whether the caller is a server administrator.
    pub fn is_server_admin(&self) -> bool {
        self.has_role(ADMIN_ROLE)
    }
}

/// A way to show who one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// `Authorization: Basic`.
    Default,
}

impl Handler {
    /// The name in `info.authenticated` and `info.authentication_handlers` of `GET /_session`.
    pub fn name(self) -> &'static str {
        match self {
            Handler::Default => "default",
        }
    }
}

/// Why a request's credentials were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// Basic credentials that are no base64: a bad request.
    InvalidBase64,
    /// A name that nobody has, or a wrong password: unauthorized.
    WrongCredentials,
    /// Too many passwords wait to be checked: the service is busy.
    Busy,
}

impl AuthError {
    /// The reason as CouchDB 3.5 words it.
    pub fn reason(self) -> &'static str {
        match self {
            AuthError::InvalidBase64 => "Authorization header has invalid base64 value",
            AuthError::WrongCredentials => "Name or password is incorrect.",
            AuthError::Busy => "Too many passwords are being checked, try again.",
        }
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for AuthError {}

/// What is known of a name that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The stored password hash, in one of the forms of [`password::StoredHash`].
    pub password: String,
    /// The roles that a login gives.
    pub roles: Vec<String>,
}

/// What a handler sees of a request.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The peer's address, where there is one.
    pub peer: Option<IpAddr>,
}

/// Finds out who is asking. One per node; cheap to clone.
#[derive(Clone)]
pub struct Authenticator(Arc<Inner>);

struct Inner {
    config: Config,
    handlers: Vec<Handler>,
    verifier: Verifier,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

impl Authenticator {
    /// An authenticator over the node's `[admins]`. Which handlers it has is settled here, not per request.
    pub fn new(env: &Env, config: &Config) -> Authenticator {
        let verifier = Verifier::new(env);
        Authenticator(Arc::new(Inner { config: config.clone(), handlers: vec![Handler::Default], verifier }))
    }

    /// The handlers in the order in which they are asked.
    pub fn handlers(&self) -> &[Handler] {
        &self.0.handlers
    }

    /// Who sent the request; anonymous when no handler found credentials of its kind.
    ///
    /// # Errors
    /// When credentials are there and are refused.
    pub async fn authenticate(&self, credentials: Credentials<'_>) -> Result<UserCtx, AuthError> {
        for handler in &self.0.handlers {
            let found = match handler {
                Handler::Default => match basic::credentials(credentials.headers)? {
                    Some((name, password)) => Some(self.login(&name, &password).await?),
                    None => None,
                },
            };
            if let Some(user) = found {
                return Ok(UserCtx { handler: Some(*handler), ..user });
            }
        }
        Ok(UserCtx::anonymous())
    }

    /// Checks a name and a password.
    ///
    /// # Errors
    /// [`AuthError::WrongCredentials`], [`AuthError::Busy`].
    pub async fn login(&self, name: &str, password: &[u8]) -> Result<UserCtx, AuthError> {
        let account = admins::account(&self.0.config, name).ok_or(AuthError::WrongCredentials)?;
        if !self.0.verifier.verify(name, password, &account.password).await? {
            return Err(AuthError::WrongCredentials);
        }
        Ok(UserCtx { name: Some(name.to_owned()), roles: account.roles, handler: Some(Handler::Default) })
    }
}

/// The names of all server administrators and what is stored for them.
pub fn admin_names(config: &Config) -> BTreeMap<String, String> {
    config.section(admins::SECTION)
}
