//! Authentication and authorization.
//!
//! [`Authenticator`] turns the headers of a request into a [`UserCtx`] by asking its handlers in order: the first that
//! finds credentials of its kind decides; none means anonymous. [`access`] says what a caller may do, in one table.
//! Slow password hashes run on the blocking pool, few at once, and a correct password is hashed once, not per request.

use std::collections::BTreeMap;

use crate::config::Config;

pub mod access;
mod accounts;
pub mod admins;
mod authenticator;
mod basic;
pub mod cookie;
mod error;
mod failed_logins;
mod jwk;
mod jwks;
mod jwt;
mod keyed_hash;
mod lockout;
pub mod options;
pub mod password;
pub mod password_rules;
pub mod peruser;
mod proxy;
pub mod secrets;
pub mod security;
#[cfg(test)]
mod tests;
mod token_key;
mod totp;
pub mod users;
pub mod users_design;
mod verified;

pub use authenticator::{Authenticator, Credentials, Identified, Login};
pub use error::AuthError;
pub use secrets::ensure_secret;

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
    /// The session cookie.
    Cookie,
    /// Headers of a trusted proxy.
    Proxy,
    /// A JSON Web Token: `Authorization: Bearer`.
    Jwt,
    /// `Authorization: Basic`.
    Default,
}

/// The handlers while `chttpd/authentication_handlers` is unset.
const DEFAULT_HANDLERS: [Handler; 2] = [Handler::Cookie, Handler::Default];

impl Handler {
    /// The name in `info.authenticated` and `info.authentication_handlers` of `GET /_session`.
    pub fn name(self) -> &'static str {
        match self {
            Handler::Cookie => "cookie",
            Handler::Proxy => "proxy",
            Handler::Jwt => "jwt",
            Handler::Default => "default",
        }
    }

    /// Reads `chttpd/authentication_handlers`, a list in Erlang's syntax such as
    /// `{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}`. What is not known
    /// is left out; an unset option, or one that names nothing known, means cookies and Basic.
    pub fn configured(config: &Config) -> Vec<Handler> {
        let text = config.text("chttpd", "authentication_handlers", "");
        let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let known = |word: &str| {
            Some(match word.strip_suffix("_authentication_handler")? {
                "cookie" => Handler::Cookie,
                "proxy" => Handler::Proxy,
                "jwt" => Handler::Jwt,
                "default" => Handler::Default,
                _ => return None,
            })
        };
        let mut handlers = Vec::new();
        for handler in names.filter_map(known) {
            if !handlers.contains(&handler) {
                handlers.push(handler);
            }
        }
        if handlers.is_empty() { DEFAULT_HANDLERS.to_vec() } else { handlers }
    }
}

/// The names of all server administrators and what is stored for them.
pub fn admin_names(config: &Config) -> BTreeMap<String, String> {
    config.section(admins::SECTION)
}
