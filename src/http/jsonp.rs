//! `?callback=NAME` with `[chttpd] allow_jsonp`: JSON answers are sent as a script that calls NAME with them, for pages
//! that load them by a `<script>` element (`conformance/cases/server`). Off by default.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};

use super::problem::{Problem, Result};
use super::query::Query;
use super::response::{Reply, ReplyBody};
use crate::config::Config;
use crate::wire::message::Message;

/// The function that an answer is to be handed to; `None` where JSON is wanted or scripts are not allowed. `placed`
/// fails, if it did not before, where the name could be more than a name.
pub fn asked(config: &Config, query: &Query, placed: Result<()>) -> (Option<String>, Result<()>) {
    match callback(config, query) {
        Ok(callback) => (callback, placed),
        Err(problem) => (None, placed.and(Err(problem))),
    }
}

fn callback(config: &Config, query: &Query) -> Result<Option<String>> {
    let Some(name) = query.get("callback").filter(|name| !name.is_empty()) else { return Ok(None) };
    if !config.bool("chttpd", "allow_jsonp", false) {
        return Ok(None);
    }
    match name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._[]".contains(&b)) {
        true => Ok(Some(name.to_owned())),
        false => Err(Problem::bad_request("invalid_callback")),
    }
}

/// Wraps an answer whose body is JSON.
pub fn wrap(reply: &mut Reply, callback: Option<&str>) {
    let Some(callback) = callback else { return };
    if !is_json(reply.status, &reply.headers) {
        return;
    }
    let before = Bytes::from(format!("/* CouchDB */{callback}("));
    let body = std::mem::replace(&mut reply.body, ReplyBody::Full(Message::default()));
    reply.body = match body {
        ReplyBody::Full(text) if text.is_empty() => return,
        ReplyBody::Full(text) => {
            let text = text.into_bytes();
            let text = text.strip_suffix(b"\n").unwrap_or(&text);
            ReplyBody::Full(Bytes::from([&before[..], text, b");\n"].concat()).into())
        }
        ReplyBody::Stream(chunks) => {
            let first = stream::iter([Ok(before)]);
            let last = stream::iter([Ok(Bytes::from_static(b");\n"))]);
            // The line end of the answer comes behind the call.
            let mut held = false;
            let chunks = chunks.map(move |chunk| {
                let bytes = chunk?;
                let mut out = Vec::with_capacity(bytes.len() + 1);
                out.extend(held.then_some(b'\n'));
                held = bytes.ends_with(b"\n");
                out.extend_from_slice(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
                Ok(Bytes::from(out))
            });
            ReplyBody::Stream(Box::pin(first.chain(chunks).chain(last)))
        }
    };
    reply.headers.remove(CONTENT_LENGTH);
    reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/javascript"));
}

/// Whether the body is JSON: its type is left to the negotiation, or says so.
fn is_json(status: StatusCode, headers: &HeaderMap) -> bool {
    let named = headers.get(CONTENT_TYPE);
    let json = named.is_none_or(|kind| kind.as_bytes().starts_with(b"application/json"));
    json && status != StatusCode::NOT_MODIFIED && status != StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::wrap;
    use crate::http::response::{Reply, ReplyBody};

    #[test]
    fn json_is_wrapped_and_nothing_else() {
        let text = |mut reply: Reply| {
            wrap(&mut reply, Some("f"));
            match reply.body {
                ReplyBody::Full(whole) => String::from_utf8(whole.into_bytes().to_vec()).expect("text"),
                ReplyBody::Stream(_) => panic!("a stream"),
            }
        };
        assert_eq!(text(Reply::json(StatusCode::OK, "{}")), "/* CouchDB */f({});\n");
        assert_eq!(text(Reply::typed(StatusCode::OK, "text/plain", "x")), "x");
        assert_eq!(text(Reply::empty(StatusCode::NOT_MODIFIED)), "");
    }
}
