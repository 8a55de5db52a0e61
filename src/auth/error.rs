//! Reasons for which credentials are refused.

use std::borrow::Cow;
use std::fmt;

/// Why a request's credentials were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// Basic credentials that are no base64: a bad request.
    InvalidBase64,
    /// A session cookie that cannot be read: a bad request.
    MalformedCookie,
    /// A name that nobody has, or a wrong password: unauthorized.
    WrongCredentials,
    /// A user document with conflicts: it is not known which password counts. Unauthorized.
    UserConflict,
    /// Too many failures of late: forbidden.
    LockedOut,
    /// The stored hash has fewer rounds than `min_iterations`: forbidden.
    TooFewIterations,
    /// The stored hash has more rounds than `max_iterations`: forbidden.
    TooManyIterations,
    /// A token that cannot be taken: a bad request.
    BadToken(Cow<'static, str>),
    /// A token that does not count now, or names nobody: unauthorized.
    UnfitToken(&'static str),
    /// A token without what the configured path to its roles names: not found.
    TokenWithout(String),
    /// A token in which the configured path to its roles leads through what is no object: not found.
    TokenOfOtherShape,
    /// What `jwt_auth` asks of tokens cannot be understood: the server's fault.
    Misconfigured,
    /// Too many passwords wait to be checked: the service is busy.
    Busy,
    /// The users database could not be read.
    Unavailable,
}

impl AuthError {
    /// The reason as CouchDB 3.5 words it.
    pub fn reason(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            AuthError::InvalidBase64 => "Authorization header has invalid base64 value",
            AuthError::MalformedCookie => "Malformed AuthSession cookie. Please clear your cookies.",
            AuthError::WrongCredentials => "Name or password is incorrect.",
            AuthError::UserConflict => {
                "User document conflict must be resolved before the document is used for authentication purposes."
            }
            AuthError::LockedOut => "Account is temporarily locked due to multiple authentication failures",
            AuthError::TooFewIterations => "Iteration count is too low for this server",
            AuthError::TooManyIterations => "Iteration count is too high for this server",
            AuthError::BadToken(reason) => return reason.clone(),
            AuthError::UnfitToken(reason) => reason,
            AuthError::TokenWithout(key) => return Cow::Owned(format!("missing json key: {key}")),
            AuthError::TokenOfOtherShape => "json_mismatch",
            AuthError::Misconfigured => "JWT is not configured correctly",
            AuthError::Busy => "Too many passwords are being checked, try again.",
            AuthError::Unavailable => "The users database could not be read, try again.",
        })
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())
    }
}

impl std::error::Error for AuthError {}
