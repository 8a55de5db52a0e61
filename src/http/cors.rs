//! Cross-origin requests: `chttpd/enable_cors` and the section `cors`, as CouchDB 3.5 was measured.
//!
//! Off by default. A preflight that is not allowed falls through to the ordinary answer.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN,
};
use http::{HeaderMap, Method, StatusCode};

use super::response::Reply;
use crate::config::Config;

const METHODS: &str = "CONNECT, COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT, TRACE";
const HEADERS: &str = "accept, accept-language, authorization, content-length, content-range, content-type, destination, \
     expires, if-match, last-modified, origin, pragma, x-couch-full-commit, x-couch-id, x-couch-persist, \
     x-couchdb-www-authenticate, x-http-method-override, x-requested-with, x-couchdb-vhost-path";
const EXPOSED: &str = "content-type, cache-control, accept-ranges, etag, server, x-couch-request-id, \
     x-couch-update-newrev, x-couchdb-body-time";

/// The request's origin when it is allowed.
fn origin(config: &Config, headers: &HeaderMap) -> Option<HeaderValue> {
    if !config.bool("chttpd", "enable_cors", false) {
        return None;
    }
    let origin = headers.get(ORIGIN)?;
    let allowed = config.list("cors", "origins", "");
    let matches = |listed: &String| listed == "*" || listed.as_bytes() == origin.as_bytes();
    allowed.iter().any(matches).then(|| origin.clone())
}

/// The answer to an allowed preflight.
pub fn preflight(config: &Config, method: &Method, headers: &HeaderMap) -> Option<Reply> {
    if method != Method::OPTIONS {
        return None;
    }
    origin(config, headers)?;
    let wanted = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()?;
    let methods = config.list("cors", "methods", METHODS);
    if !methods.iter().any(|m| m == wanted) {
        return None;
    }
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).map_or(Some(""), |value| value.to_str().ok())?;
    let listed = config.list("cors", "headers", "");
    let known = |name: &str| {
        let simple = HEADERS.split(',').any(|h| h.trim().eq_ignore_ascii_case(name));
        simple || listed.iter().any(|h| h == "*" || h.eq_ignore_ascii_case(name))
    };
    if !asked.split(',').map(str::trim).filter(|name| !name.is_empty()).all(known) {
        return None;
    }
    let mut reply = Reply::empty(StatusCode::NO_CONTENT)
        .header(ACCESS_CONTROL_ALLOW_METHODS, &methods.join(", "))
        .header(ACCESS_CONTROL_MAX_AGE, &config.text("cors", "max_age", "600"));
    reply.headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_str(asked).ok()?);
    Some(reply)
}

/// Adds what an allowed origin may see. A preflight's answer has no exposed headers.
pub fn add(config: &Config, request: &HeaderMap, answer: &mut HeaderMap) {
    let Some(origin) = origin(config, request) else { return };
    let mut set = |name: HeaderName, value: HeaderValue| {
        answer.insert(name, value);
    };
    set(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if config.bool("cors", "credentials", false) {
        set(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
    if !answer.contains_key(ACCESS_CONTROL_ALLOW_METHODS) {
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    answer.append(http::header::VARY, HeaderValue::from_static("Origin"));
}
