//! The one table from errors to HTTP: status, `error` and `reason`.
//!
//! Handlers return a [`Problem`] and `?` converts the errors of the layers below. Wordings are those that CouchDB 3.5
//! was measured to send, since clients compare them. No other module knows status codes of failures.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// A failed request: becomes an answer `{"error":..,"reason":..}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// The identifier that programs look at.
    pub error: Cow<'static, str>,
    /// The text for people.
    pub reason: Cow<'static, str>,
    /// Further headers of the answer, for instance `Allow`.
    pub headers: HeaderMap,
}

impl Problem {
    /// Any problem.
    pub fn new(
        status: StatusCode,
        error: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Problem {
        Problem { status, error: error.into(), reason: reason.into(), headers: HeaderMap::new() }
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

    /// 501 `not_implemented`.
    pub fn not_implemented(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)
    }

    /// 500: the node failed, not the client. `reason` goes to the client, so it names no paths or secrets.
    pub fn internal(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", reason)
    }

    /// 503: too few copies or a node that is stopping; the client may try again.
    pub fn unavailable(reason: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.insert(name, value);
        self
    }

    /// The body of the answer, with the line end that CouchDB sends.
    pub fn body(&self) -> Bytes {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        format!("{{\"error\":{},\"reason\":{}}}\n", quoted(&self.error), quoted(&self.reason)).into()
    }
}

/// What handlers return.
pub type Result<T> = std::result::Result<T, Problem>;
