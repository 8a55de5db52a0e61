//! The one table from errors to HTTP: status, `error` and `reason`.
//!
//! Handlers return a [`Problem`] and `?` converts the errors of the layers below. Wordings are those that CouchDB 3.5
//! was measured to send, since clients compare them. No other module knows status codes of failures.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::auth::AuthError;
use crate::auth::access::Refusal;
use crate::auth::secrets::SecretError;
use crate::auth::users::UserError;
use crate::cluster::{CallError, MemberError, NodeName, StartError};
use crate::config::ConfigError;
use crate::coordinator::MapError;
use crate::coordinator::{
    ChangesError, CommitError, DatabaseError, DesignLookupError, FilterLookupError, ReadError, SettingError,
    ShardError, StorageError, TokenError, ViewError, WriteError,
};
use crate::document::draft::DraftError;
use crate::document::json::{self, JsonError, Value};
use crate::document::revision::BadRevision;
use crate::document::selector::{SelectorError, SelectorErrorKind};
use crate::limits;
use crate::replicate::ReplicateError;
use crate::script::{DesignError, ScriptError};

/// A failed request: becomes an answer `{"error":..,"reason":..}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// The identifier that programs look at.
    pub error: Cow<'static, str>,
    /// The text for people.
    pub reason: Cow<'static, str>,
    /// The reason as JSON text where it is no text: what a function threw.
    pub reason_json: Option<String>,
    /// A number beside error and reason, by which operators find what failed within the engine.
    pub reference: Option<u32>,
    /// Further headers of the answer, for instance `Allow`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Any problem.
    pub fn new(
        status: StatusCode,
        error: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Problem {
        let (error, reason) = (error.into(), reason.into());
        Problem { status, error, reason, reason_json: None, reference: None, headers: Vec::new() }
    }

    /// 400 `bad_request`.
    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    /// 400 `query_parse_error`.
    pub fn query_parse(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "query_parse_error", reason)
    }

    /// 400 `bad_request`, `invalid UTF-8 JSON`: for bodies and for JSON in query parameters.
    pub fn invalid_json() -> Problem {
        Problem::bad_request("invalid UTF-8 JSON")
    }

    /// 400 for a body that cannot be read as JSON: [`Problem::invalid_json`], unless it is only nested too deeply or
    /// has an integer that is too large.
    pub fn unread_json(text: &[u8]) -> Problem {
        if json::is_too_deep(text) {
            return Problem::bad_request(format!("JSON is nested deeper than {} levels", limits::JSON_DEPTH_MAX));
        }
        match json::has_integer_out_of_range(text) {
            true => Problem::bad_request("JSON has an integer beyond the range of a double"),
            false => Problem::invalid_json(),
        }
    }

    /// 400 with an identifier of its own, such as `illegal_docid` or `doc_validation`.
    pub fn invalid(error: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, error, reason)
    }

    /// 401 `unauthorized`.
    pub fn unauthorized(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", reason)
    }

    /// 403 `forbidden`.
    pub fn forbidden(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", reason)
    }

    /// 404 `not_found`.
    pub fn not_found(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    /// 404 `missing`: no such document, attachment or handler.
    pub fn missing() -> Problem {
        Problem::not_found("missing")
    }

    /// 404 `Database does not exist.`
    pub fn no_database() -> Problem {
        Problem::not_found("Database does not exist.")
    }

    /// 405 with the fixed list of the endpoint, in the order in which CouchDB names them.
    pub fn method_not_allowed(allow: &'static str) -> Problem {
        let problem =
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("Only {allow} allowed"));
        problem.with_header(http::header::ALLOW, HeaderValue::from_static(allow))
    }

    /// 409 `conflict`.
    pub fn conflict() -> Problem {
        Problem::new(StatusCode::CONFLICT, "conflict", "Document update conflict.")
    }

    /// 413 with the identifier and reason of the limit that was passed.
    pub fn too_large(error: &'static str, reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error, reason)
    }

    /// 413 `too_large`: the body passes `chttpd/max_http_request_size`.
    pub fn body_too_large() -> Problem {
        Problem::too_large("too_large", "the request entity is too large")
    }

    /// 415 `bad_content_type`.
    pub fn bad_content_type(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_content_type", reason)
    }

    /// 429 `too_many_requests`: a client asks for more at once than its share.
    pub fn too_many_requests() -> Problem {
        let reason = "Too many requests of this user or address at once.";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", reason)
    }

    /// 501 `not_implemented`.
    pub fn not_implemented(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)
    }

    /// 500: the node failed, not the client. `reason` goes to the client, so it names no paths or secrets.
    pub fn internal(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", reason)
    }

    /// 500: stored data are damaged here; named as CouchDB names it.
    pub fn damaged() -> Problem {
        let reason = "Stored data that this needs are damaged on this node.";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "file_corruption", reason)
    }

    /// 412 `nodedown`: a node that is known and not connected.
    pub fn node_down(node: &NodeName) -> Problem {
        Problem::new(StatusCode::PRECONDITION_FAILED, "nodedown", format!("{node} is down"))
    }

    /// A request that was forwarded to `node` and has no answer.
    pub fn of_call(node: &NodeName, error: CallError) -> Problem {
        match error {
            CallError::Down => Problem::node_down(node),
            CallError::Refused(why) => Problem::internal(format!("{node} refused: {why}")),
            CallError::Unknown(why) => {
                let reason = format!("{node} did not answer: {why}");
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "timeout", reason)
            }
        }
    }

    /// 503: too few replicas or a node that is stopping; the client may try again.
    pub fn unavailable(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
    }

    /// Tells the client to come back in a second.
    #[must_use]
    pub fn retry_later(self) -> Problem {
        self.with_header(http::header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// 503 of strict reads.
    fn too_few_replicas(answered: usize, wanted: usize) -> Problem {
        Problem::unavailable(format!("{answered} of {wanted} copies answered."))
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.push((name, value));
        self
    }

    /// The body of the answer, with the line end that CouchDB sends.
    pub fn body(&self) -> Bytes {
        let reference = self.reference.map_or_else(String::new, |number| format!(",\"ref\":{number}"));
        format!("{{\"error\":{},\"reason\":{}{reference}}}\n", quoted(&self.error), self.reason_text()).into()
    }

    /// The same for a body that is under way: with the status that the answer would have.
    pub fn body_with_code(&self) -> Bytes {
        let (code, error, reason) = (self.status.as_u16(), quoted(&self.error), self.reason_text());
        format!("{{\"code\":{code},\"error\":{error},\"reason\":{reason}}}\n").into()
    }

    /// The same without the number: a request of several queries has none.
    #[must_use]
    pub fn without_reference(mut self) -> Problem {
        self.reference = None;
        self
    }

    /// The same with a number by which operators find it: equal failures have equal ones.
    #[must_use]
    fn with_reference(mut self) -> Problem {
        let text = format!("{} {}", self.error, self.reason_text());
        self.reference = Some(crc32fast::hash(text.as_bytes()));
        self
    }

    /// The reason as JSON text.
    pub fn reason_text(&self) -> String {
        self.reason_json.clone().unwrap_or_else(|| quoted(&self.reason))
    }

    /// The same with a reason of any JSON type.
    #[must_use]
    pub fn with_reason(mut self, reason: &Value) -> Problem {
        match reason.as_str() {
            Some(text) => self.reason = text.to_owned().into(),
            None => self.reason_json = Some(String::from_utf8_lossy(&reason.to_vec()).into_owned()),
        }
        self
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What handlers return.
pub type Result<T> = std::result::Result<T, Problem>;

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.status.as_u16(), self.error, self.reason)
    }
}

impl std::error::Error for Problem {}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Problem {
        match error {
            AuthError::InvalidBase64 | AuthError::MalformedCookie | AuthError::BadToken(_) => {
                Problem::bad_request(error.reason())
            }
            AuthError::WrongCredentials | AuthError::UserConflict | AuthError::UnfitToken(_) => {
                Problem::unauthorized(error.reason())
            }
            AuthError::LockedOut | AuthError::TooFewIterations | AuthError::TooManyIterations => {
                Problem::forbidden(error.reason())
            }
            AuthError::TokenWithout(_) | AuthError::TokenOfOtherShape => Problem::not_found(error.reason()),
            AuthError::Misconfigured => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "misconfigured_server", error.reason())
            }
            AuthError::Busy | AuthError::Unavailable => Problem::unavailable(error.reason()),
        }
    }
}

impl From<UserError> for Problem {
    fn from(error: UserError) -> Problem {
        match error {
            UserError::Forbidden(reason) => Problem::forbidden(reason),
            UserError::BadPassword(reason) => Problem::bad_request(reason),
            UserError::NotFound => Problem::missing(),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Unauthorized(reason) => Problem::unauthorized(reason),
            Refusal::Forbidden(reason) => Problem::forbidden(reason),
        }
    }
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Problem {
        match error {
            SecretError::Config(error) => error.into(),
            SecretError::Unfit => Problem::bad_request(error.to_string()),
            SecretError::Full | SecretError::Unknown | SecretError::Other => {
                Problem::new(StatusCode::CONFLICT, "conflict", error.to_string())
            }
        }
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Problem {
        match error {
            ConfigError::Io { .. } | ConfigError::NotText(_) => {
                tracing::error!("{error}");
                Problem::internal("The configuration file could not be used.")
            }
            invalid => Problem::bad_request(invalid.to_string()),
        }
    }
}

impl From<SelectorError> for Problem {
    fn from(error: SelectorError) -> Problem {
        match error.kind {
            SelectorErrorKind::Refused => Problem::invalid(error.name, error.reason),
            // As CouchDB's documentation of selectors says.
            SelectorErrorKind::ModArgument => Problem::new(StatusCode::NOT_FOUND, error.name, error.reason),
        }
    }
}

impl From<crate::index::mango::MangoError> for Problem {
    fn from(error: crate::index::mango::MangoError) -> Self {
        Problem::from(SelectorError { kind: error.kind, name: error.name, reason: error.reason })
    }
}

impl From<DraftError> for Problem {
    fn from(error: DraftError) -> Problem {
        Problem::invalid(error.name(), error.reason)
    }
}

impl From<JsonError> for Problem {
    fn from(_: JsonError) -> Problem {
        Problem::invalid_json()
    }
}

impl From<BadRevision> for Problem {
    fn from(_: BadRevision) -> Problem {
        Problem::bad_request("Invalid rev format")
    }
}

impl From<ShardError> for Problem {
    fn from(error: ShardError) -> Problem {
        if let ShardError::Storage(StorageError::Corrupt(_))
        | ShardError::Commit(CommitError::Storage(StorageError::Corrupt(_))) = &error
        {
            return Problem::damaged();
        }
        if let ShardError::Storage(StorageError::NoFiles(what))
        | ShardError::Commit(CommitError::Storage(StorageError::NoFiles(what))) = &error
        {
            tracing::warn!("a request was refused: no more files can be open: {what}");
            return Problem::unavailable("The node cannot open more files for now, try again.");
        }
        if error.is_no_room() {
            let reason = "The disk of the node is nearly full: only deletions are accepted.";
            return Problem::new(StatusCode::INSUFFICIENT_STORAGE, "insufficient_storage", reason);
        }
        match error {
            ShardError::NoReplica { .. } | ShardError::NotExecuted(_) => {
                tracing::warn!("{error}");
                Problem::internal("No DB shards could be opened.")
            }
            error => {
                tracing::error!("a request failed below the coordinator: {error:?}");
                Problem::unavailable("The node could not reach its data, try again.")
            }
        }
    }
}

impl From<MapError> for Problem {
    fn from(error: MapError) -> Problem {
        match error {
            MapError::Gone => Problem::no_database(),
            MapError::Refused(why) => Problem::bad_request(why),
            MapError::NoMajority { answered, members } => {
                Problem::unavailable(format!("{answered} of {members} members answered: no majority"))
            }
            MapError::Contended => Problem::conflict(),
            MapError::Own(error) => error.into(),
        }
    }
}

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Problem {
        match error {
            DatabaseError::Exists => Problem::new(
                StatusCode::PRECONDITION_FAILED,
                "file_exists",
                "The database could not be created, the file already exists.",
            ),
            DatabaseError::IllegalName { name } => {
                let rule = "Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, \
                            and / are allowed. Must begin with a letter.";
                Problem::invalid("illegal_database_name", format!("Name: '{name}'. {rule}"))
            }
            DatabaseError::IllegalEngine => Problem::bad_request("invalid_engine_extension"),
            DatabaseError::IllegalPlacement => {
                Problem::bad_request("The `placement` value should be in a format `zone:n`.")
            }
            DatabaseError::IllegalNumber { parameter } => {
                Problem::bad_request(format!("The `{parameter}` value should be a positive integer."))
            }
            DatabaseError::NameTooLong { name } => {
                let reason = format!("At least one path segment of `{name}` is too long.");
                Problem::invalid("database_name_too_long", reason)
            }
            DatabaseError::NoNodesInZone => Problem::internal("no_nodes_in_zone"),
            DatabaseError::NotFound => Problem::no_database(),
            DatabaseError::Seeding => Problem::unavailable("The node has yet to meet its cluster, try again."),
            DatabaseError::Unavailable(error) => error.into(),
        }
    }
}

impl From<ReplicateError> for Problem {
    fn from(error: ReplicateError) -> Problem {
        let failed = |name: String, reason: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, name, reason);
        let text = error.reason();
        match error {
            ReplicateError::BadRequest(reason) => Problem::bad_request(reason),
            ReplicateError::InvalidEndpoint => Problem::invalid("invalid_replication", text),
            // The statuses of these are odd, and recorded so.
            ReplicateError::MissingEndpoint | ReplicateError::BadFilterName => failed("error".to_owned(), text),
            ReplicateError::DatabaseMissing { .. } => failed("db_not_found".to_owned(), text),
            ReplicateError::WrongCredentials { .. } => failed("replication_auth_error".to_owned(), text),
            ReplicateError::Unauthorized { .. } | ReplicateError::NotYours | ReplicateError::NotYoursToCancel => {
                Problem::unauthorized(text)
            }
            ReplicateError::Forbidden { .. } => Problem::forbidden(text),
            ReplicateError::NotFound(reason) | ReplicateError::NoFilter(reason) => Problem::not_found(reason),
            ReplicateError::NotAvailable(reason) => Problem::not_implemented(reason),
            ReplicateError::TooMany => Problem::unavailable(text),
            ReplicateError::Cancelled
            | ReplicateError::Conflict
            | ReplicateError::Gone { .. }
            | ReplicateError::WrongLength { .. }
            | ReplicateError::MissingStub
            | ReplicateError::Recreated { .. }
            | ReplicateError::TooLarge
            | ReplicateError::RequestTooLarge => failed("replication_failed".to_owned(), text),
            ReplicateError::Failed { error, reason } => failed(error, reason),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::DatabaseGone => Problem::no_database(),
            ReadError::DamagedAttachment { name } => {
                Problem::internal(format!("Attachment {name} is damaged on this node."))
            }
            ReadError::TooFewReplicas { answered, wanted } => Problem::too_few_replicas(answered, wanted),
            ReadError::Unavailable(error) => error.into(),
        }
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Problem {
        let reason = match error {
            TokenError::Behind => "No copy that holds what the token names could be read in time.",
            TokenError::OtherDatabase => "The token is of a database of this name that this node does not know.",
        };
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "token_not_met", reason)
    }
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Problem {
        match error {
            WriteError::AttachmentTooLarge { name } => Problem::too_large("attachment_too_large", name),
            WriteError::Conflict => Problem::conflict(),
            WriteError::DatabaseGone => Problem::no_database(),
            WriteError::Design(error) => error.into(),
            WriteError::DigestMismatch { name } => {
                Problem::invalid("md5_mismatch", format!("Attachment {name} does not match its digest."))
            }
            WriteError::DocumentTooLarge { id } => Problem::too_large("document_too_large", id),
            WriteError::Draft(error) => error.into(),
            WriteError::Forbidden { reason } => Problem::forbidden("").with_reason(&reason),
            WriteError::MissingAttachment => Problem::not_found("Document is missing attachment"),
            WriteError::MissingRev => Problem::new(StatusCode::CONFLICT, "not_found", "missing_rev"),
            WriteError::MissingStub { id, name } => Problem::new(
                StatusCode::PRECONDITION_FAILED,
                "missing_stub",
                format!("Invalid attachment stub in {} for {name}", id.as_str()),
            ),
            WriteError::NotFound { deleted } => Problem::not_found(if deleted { "deleted" } else { "missing" }),
            WriteError::PartitionOverflow { id } => {
                let reason = format!("Partition limit exceeded due to update on '{}'", id.as_str());
                Problem::new(StatusCode::FORBIDDEN, "partition_overflow", reason)
            }
            WriteError::RevisionRequired => {
                Problem::bad_request("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
            }
            WriteError::Script(error) => error.into(),
            WriteError::Unauthorized { reason } => Problem::unauthorized("").with_reason(&reason),
            WriteError::TooFewReplicas { answered, wanted } => Problem::too_few_replicas(answered, wanted),
            WriteError::UploadGone { name } => {
                Problem::unavailable(format!("The upload of attachment {name} took too long, send it again."))
            }
            WriteError::Unknown => Problem::unavailable("The outcome of the write is not known."),
            WriteError::Unavailable(error) => error.into(),
        }
    }
}

impl From<SettingError> for Problem {
    fn from(error: SettingError) -> Problem {
        match error {
            SettingError::IllegalLimit => Problem::bad_request("The limit must be a positive integer"),
            SettingError::IllegalMember => {
                Problem::bad_request("expires_at must be the name of a member that does not begin with an underscore")
            }
            SettingError::IllegalPeriod => Problem::bad_request("deleted_document_ttl must be a valid string"),
            SettingError::IllegalSecurity { reason } => Problem::bad_request(reason),
            SettingError::NoMajority { .. } => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "error", "no_majority"),
            SettingError::Undecided { answered, replicas } => Problem::unavailable(format!(
                "The outcome of the change is not known: {answered} of {replicas} nodes have it. It may take effect later."
            )),
            SettingError::TooManyDocuments => Problem::bad_request("Exceeded maximum number of documents."),
            SettingError::TooManyRevisions => Problem::bad_request("Exceeded maximum number of revisions."),
            SettingError::DatabaseGone => Problem::no_database(),
            SettingError::Unavailable(error) => error.into(),
        }
    }
}

impl From<ChangesError> for Problem {
    fn from(error: ChangesError) -> Problem {
        match error {
            ChangesError::MalformedSince => Problem::bad_request("Malformed sequence supplied in 'since' parameter."),
            ChangesError::MalformedTime => Problem::bad_request("invalid_time_format"),
            ChangesError::Filter { error, reason } => Problem::invalid(error, reason),
            ChangesError::Script(error) => of_reader(error),
            ChangesError::Read(error) => error.into(),
        }
    }
}

impl From<ScriptError> for Problem {
    fn from(error: ScriptError) -> Problem {
        let failed = |error: String, reason: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error, reason);
        match error {
            ScriptError::Busy => Problem::unavailable("Too many functions wait for their turn, try again."),
            ScriptError::Compilation { reason } => failed("compilation_error".to_owned(), reason),
            ScriptError::Engine { reason } => failed("os_process_error".to_owned(), reason),
            ScriptError::MissingKey { name } => Problem::not_found(format!("missing json key: {name}")),
            ScriptError::Thrown { error, reason } => thrown(error, &reason),
            ScriptError::Timeout => failed("os_process_error".to_owned(), "OS process timed out.".to_owned()),
            ScriptError::UnknownLanguage { language } => failed("unknown_query_language".to_owned(), language),
        }
    }
}

/// What a function threw that answers a request or validates a write: `['error', name, reason]` of a name that
/// CouchDB's own errors have is answered as such an error.
fn thrown(error: String, reason: &Value) -> Problem {
    let status = match error.as_str() {
        // Its reason is fixed.
        "conflict" => return Problem::conflict(),
        "bad_request" | "doc_validation" | "illegal_docid" | "query_parse_error" => StatusCode::BAD_REQUEST,
        "unauthorized" => StatusCode::UNAUTHORIZED,
        "forbidden" => StatusCode::FORBIDDEN,
        "not_found" => StatusCode::NOT_FOUND,
        "method_not_allowed" => StatusCode::METHOD_NOT_ALLOWED,
        "not_acceptable" => StatusCode::NOT_ACCEPTABLE,
        "missing_stub" => StatusCode::PRECONDITION_FAILED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::new(status, error, "").with_reason(reason)
}

/// The same of a function that reads documents for a view or a feed: 500 whatever it threw.
fn of_reader(error: ScriptError) -> Problem {
    match error {
        ScriptError::Thrown { error, reason } => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error, "").with_reason(&reason)
        }
        error => error.into(),
    }
}

impl From<DesignError> for Problem {
    fn from(error: DesignError) -> Problem {
        match error {
            DesignError::Compilation { reason } => Problem::invalid("compilation_error", reason),
            DesignError::Invalid { reason } => Problem::invalid("invalid_design_doc", reason),
            DesignError::MissingFunction => Problem::not_found("missing function"),
            DesignError::Script(error) => error.into(),
        }
    }
}

impl From<ViewError> for Problem {
    fn from(error: ViewError) -> Problem {
        match error {
            ViewError::Design(error) => error.into(),
            ViewError::ImpossibleRange { descending } => Problem::query_parse(format!(
                "No rows can match your key range, reverse your start_key and end_key or set descending={}",
                !descending
            )),
            ViewError::InvalidValue(error) => {
                let failed = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "invalid_value", error.reason);
                failed.with_reference()
            }
            ViewError::NoView => Problem::not_found("missing_named_view"),
            ViewError::PartitionNeeded => {
                Problem::query_parse("`partition` parameter is mandatory for queries to this view.")
            }
            ViewError::PartitionUnknown => {
                Problem::query_parse("`partition` parameter is not supported in this design doc")
            }
            ViewError::Read(error) => error.into(),
            ViewError::Script(error) => of_reader(error).with_reference(),
            ViewError::StateGone => Problem::unavailable("The state of the view that was read is not there any more."),
            ViewError::StatesFull => Problem::unavailable("Too many reductions are being read."),
            ViewError::Stopped => Problem::unavailable("The node is stopping."),
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Problem {
        match error {
            StartError::Join(_) | StartError::Setting(_) => Problem::bad_request(error.to_string()),
            StartError::Listen(..) | StartError::Renamed(..) | StartError::Storage(_) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "setup_error", error.to_string())
            }
        }
    }
}

impl From<MemberError> for Problem {
    fn from(error: MemberError) -> Problem {
        match error {
            MemberError::Conflict => Problem::conflict(),
            MemberError::NotFound { deleted } => Problem::not_found(if deleted { "deleted" } else { "missing" }),
            MemberError::TooMany => Problem::bad_request(error.to_string()),
            MemberError::Storage(_) => Problem::unavailable(error.to_string()),
        }
    }
}

impl From<FilterLookupError> for Problem {
    fn from(error: FilterLookupError) -> Problem {
        match error {
            FilterLookupError::Design(error) => error.into(),
            FilterLookupError::Function(error) => error.into(),
        }
    }
}

impl From<DesignLookupError> for Problem {
    fn from(error: DesignLookupError) -> Problem {
        match error {
            DesignLookupError::NotFound { deleted } => Problem::not_found(if deleted { "deleted" } else { "missing" }),
            DesignLookupError::Read(error) => error.into(),
        }
    }
}
