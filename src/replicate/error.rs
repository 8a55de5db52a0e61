//! Why a replication was refused, failed, or passed over a document.

use crate::coordinator::{
    ChangesError, DatabaseError, DesignLookupError, FilterLookupError, ReadError, SettingError, WriteError,
};
use crate::script::ScriptError;
use crate::wire::client::ClientError;

/// A replication was refused or broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicateError {
    /// The request is wrong; what to tell the client.
    BadRequest(String),
    /// An endpoint is no name and no URL.
    InvalidEndpoint,
    /// There is no source or no target.
    MissingEndpoint,
    /// A filter's name is not `design/name`, and none of a filter that servers have.
    BadFilterName,
    /// The database at this address is not there.
    DatabaseMissing {
        /// The address without credentials.
        url: String,
    },
    /// The peer wants other credentials, or any.
    Unauthorized {
        /// The database's address without credentials.
        url: String,
    },
    /// The peer has authenticated the user, who lacks the right.
    Forbidden {
        /// The database's address without credentials.
        url: String,
    },
    /// The filter's design document or its function is not there; what to tell the client.
    NoFilter(String),
    /// The peer refused the credentials that it was given.
    WrongCredentials {
        /// The server's address.
        origin: String,
        /// The name.
        user: String,
    },
    /// Something named in the request is not there; what to tell the client.
    NotFound(String),
    /// Somebody else's replication, which runs already.
    NotYours,
    /// Somebody else's replication, which is not the caller's to cancel.
    NotYoursToCancel,
    /// The replication was cancelled while the caller waited for it.
    Cancelled,
    /// An option that this version does not have.
    NotAvailable(String),
    /// Too many replications run already.
    TooMany,
    /// Another run wrote the checkpoint, or the database was made anew.
    Conflict,
    /// A database was deleted and made anew while it was copied.
    Recreated {
        /// Its address without credentials.
        url: String,
    },
    /// The source told of a change that it has not: it was purged since, or stands on a replica that is out of reach.
    /// What is behind it is not recorded.
    Gone {
        /// Where.
        url: String,
        /// Which document, with its revision where one is named.
        what: String,
    },
    /// The source sends an attachment with more or fewer bytes than its document says.
    WrongLength {
        /// Its name.
        name: String,
    },
    /// A stub of a document names an attachment that the target lacks: it is to be sent in full.
    MissingStub,
    /// What was asked for, or the answer, is larger than what is taken here.
    TooLarge,
    /// The peer, or what stands before it, answered 413. What is asked for again in parts may pass; it says nothing
    /// about a document that is asked for alone.
    RequestTooLarge,
    /// Anything else that a peer answers or that happens on the way.
    Failed {
        /// The error's name.
        error: String,
        /// What happened.
        reason: String,
    },
}

/// What functions of this layer return.
pub type Result<T> = std::result::Result<T, ReplicateError>;

impl ReplicateError {
    /// A failure with its name and reason.
    pub fn failed(error: impl Into<String>, reason: impl Into<String>) -> ReplicateError {
        ReplicateError::Failed { error: error.into(), reason: reason.into() }
    }

    /// What is told beside the error's name.
    pub fn reason(&self) -> String {
        match self {
            ReplicateError::DatabaseMissing { url } => format!("could not open {url}"),
            ReplicateError::Unauthorized { url } => format!("unauthorized to access or create database {url}"),
            ReplicateError::Forbidden { url } => format!("forbidden to access or create database {url}"),
            ReplicateError::Failed { reason, .. } => reason.clone(),
            error => error.text(),
        }
    }

    /// One line for lists of jobs and for the log.
    pub fn text(&self) -> String {
        match self {
            ReplicateError::BadRequest(reason)
            | ReplicateError::NotFound(reason)
            | ReplicateError::NoFilter(reason)
            | ReplicateError::NotAvailable(reason) => reason.clone(),
            ReplicateError::InvalidEndpoint => "endpoint has an invalid url".to_owned(),
            ReplicateError::MissingEndpoint => "Missing replicator database".to_owned(),
            ReplicateError::BadFilterName => "Invalid filter. Must match `ddocname/filtername`.".to_owned(),
            ReplicateError::DatabaseMissing { .. } => format!("db_not_found: {}", self.reason()),
            ReplicateError::Unauthorized { .. } => format!("unauthorized: {}", self.reason()),
            ReplicateError::Forbidden { .. } => format!("forbidden: {}", self.reason()),
            // The words that CouchDB 3.5 was measured to send.
            ReplicateError::WrongCredentials { origin, user } => {
                format!("{{session_request_unauthorized,\"{origin}/_session\",\"{user}\"}}")
            }
            ReplicateError::NotYours => "This replication was started by another user.".to_owned(),
            ReplicateError::NotYoursToCancel => "You are not a server admin.".to_owned(),
            ReplicateError::Cancelled => "cancelled".to_owned(),
            ReplicateError::TooMany => "Too many replications run on this node.".to_owned(),
            ReplicateError::Conflict => "The checkpoint was written by another run.".to_owned(),
            ReplicateError::Recreated { url } => format!("{url} was deleted and made anew meanwhile."),
            ReplicateError::Gone { url, what } => format!("{url} told of {what} and has it not"),
            ReplicateError::WrongLength { name } => {
                format!("The source sends attachment {name} with another length than its document says.")
            }
            ReplicateError::MissingStub => "A stub names an attachment that the target does not have.".to_owned(),
            ReplicateError::TooLarge => "An answer or a document is too large.".to_owned(),
            ReplicateError::RequestTooLarge => "A server answered 413 to a request of ordinary size.".to_owned(),
            ReplicateError::Failed { error, .. } => format!("{error}: {}", self.reason()),
        }
    }
}

impl From<ClientError> for ReplicateError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::TooLarge => ReplicateError::TooLarge,
            ClientError::NoTls => ReplicateError::NotAvailable(error.to_string()),
            ClientError::Timeout => ReplicateError::failed("timeout", error.to_string()),
            error => ReplicateError::failed("replication_failed", error.to_string()),
        }
    }
}

fn unavailable(what: &dyn std::fmt::Debug) -> ReplicateError {
    tracing::warn!("a replication could not use a local database: {what:?}");
    ReplicateError::failed("replication_failed", "A local database could not be used, try again.")
}

impl From<ReadError> for ReplicateError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::DamagedAttachment { name } => {
                ReplicateError::failed("replication_failed", format!("Attachment {name} is damaged on this node."))
            }
            error => unavailable(&error),
        }
    }
}

impl From<ChangesError> for ReplicateError {
    fn from(error: ChangesError) -> Self {
        match error {
            ChangesError::MalformedSince => {
                ReplicateError::BadRequest("Malformed sequence supplied in 'since' parameter.".to_owned())
            }
            ChangesError::MalformedTime => ReplicateError::BadRequest("invalid_time_format".to_owned()),
            ChangesError::Filter { error, reason } => ReplicateError::failed(error, reason),
            ChangesError::Script(error) => ReplicateError::failed("filter_failed", format!("{error:?}")),
            ChangesError::Read(error) => error.into(),
        }
    }
}

impl From<FilterLookupError> for ReplicateError {
    fn from(error: FilterLookupError) -> Self {
        match error {
            FilterLookupError::Design(DesignLookupError::Read(error)) => error.into(),
            FilterLookupError::Design(DesignLookupError::NotFound { .. }) => {
                ReplicateError::NoFilter("missing".to_owned())
            }
            FilterLookupError::Function(ScriptError::MissingKey { name }) => {
                ReplicateError::NoFilter(format!("missing json key: {name}"))
            }
            FilterLookupError::Function(error) => ReplicateError::failed("filter_failed", format!("{error:?}")),
        }
    }
}

impl From<DatabaseError> for ReplicateError {
    fn from(error: DatabaseError) -> Self {
        unavailable(&error)
    }
}

impl From<SettingError> for ReplicateError {
    fn from(error: SettingError) -> Self {
        unavailable(&error)
    }
}

impl From<WriteError> for ReplicateError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::MissingStub { .. } => ReplicateError::MissingStub,
            WriteError::Conflict => ReplicateError::Conflict,
            WriteError::DocumentTooLarge { .. } | WriteError::AttachmentTooLarge { .. } => ReplicateError::TooLarge,
            error => unavailable(&error),
        }
    }
}
