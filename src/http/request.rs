//! A request as handlers see it: method, decoded path, query, headers, user, body.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::body::RequestBody;
use super::json_meter::JsonMeter;
use super::problem::{Problem, Result};
use super::query::Query;
use super::response::Reply;
use crate::auth::UserCtx;
use crate::coordinator::Floor;
use crate::document::json::{self, Object, Value};

/// The method of a request, after `X-HTTP-Method-Override`. HEAD reaches handlers as [`Verb::Get`] with
/// [`Request::head`] set: the server drops the body and keeps the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET, and HEAD.
    Get,
    /// PUT
    Put,
    /// POST
    Post,
    /// DELETE
    Delete,
    /// COPY
    Copy,
    /// Any other: handlers answer 405.
    Other,
}

impl Verb {
    /// The verb of a method's name.
    pub fn of(method: &str) -> Verb {
        match method {
            "GET" | "HEAD" => Verb::Get,
            "PUT" => Verb::Put,
            "POST" => Verb::Post,
            "DELETE" => Verb::Delete,
            "COPY" => Verb::Copy,
            _ => Verb::Other,
        }
    }
}

/// One request.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub verb: Verb,
    /// Whether it is a HEAD request.
    pub head: bool,
    /// The method's name as it counts (after the override), for functions that see the request.
    pub method: String,
    /// The path as sent, undecoded, without the query.
    pub raw_path: String,
    /// Query parameters, decoded.
    pub query: Query,
    /// Headers as sent.
    pub headers: HeaderMap,
    /// The client's address.
    pub peer: SocketAddr,
    /// The request id, own or the client's.
    pub id: String,
    /// Who asks.
    pub user: UserCtx,
    /// Whether it came by TLS.
    pub secure: bool,
    /// What its reads are to show at least: what the tokens that it brings name.
    pub floor: Option<Arc<Floor>>,
    /// The body, not yet read.
    pub body: RequestBody,
}

impl Request {
    /// Path and query as sent.
    pub fn target(&self) -> String {
        format!("{}{}", self.raw_path, self.query_part())
    }

    /// The query as sent with its question mark; empty without a query.
    pub fn query_part(&self) -> String {
        match self.query.text() {
            "" => String::new(),
            query => format!("?{query}"),
        }
    }

    /// A header's text; `None` when absent or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The media type of the body in lower case, without parameters.
    pub fn media_type(&self) -> Option<String> {
        self.header("content-type").map(media_type)
    }

    /// Demands `application/json`: 415 for another type and for none, also with an empty body.
    pub fn require_json(&self) -> Result<()> {
        match self.media_type().as_deref() {
            Some("application/json") => Ok(()),
            _ => Err(Problem::bad_content_type("Content-Type must be application/json")),
        }
    }

    /// The whole body, unzipped where the client says so, of at most as many bytes as a JSON text may have.
    pub async fn bytes(&mut self) -> Result<Bytes> {
        self.body.bytes(self.body.json_limit()).await
    }

    /// As [`Request::bytes`], for a JSON text: the values made of it count with the memory of all bodies. 400 `Missing
    /// request body` where the headers do not even speak of an empty one.
    pub async fn json_bytes(&mut self) -> Result<Bytes> {
        self.json_bytes_as(JsonMeter::default()).await
    }

    /// As [`Request::json_bytes`]; `meter` says what the values take.
    pub async fn json_bytes_as(&mut self, meter: JsonMeter) -> Result<Bytes> {
        self.refuse_absent()?;
        self.body.json_bytes(self.body.json_limit(), meter).await
    }

    /// As [`Request::json_object`], for a query: the keys or terms that are made of it count, too.
    pub async fn query_object(&mut self) -> Result<Object> {
        let bytes = self.json_bytes_as(JsonMeter::of_query()).await?;
        object(self.body.parse(bytes).await?)
    }

    fn refuse_absent(&self) -> Result<()> {
        if self.body.is_absent() { Err(Problem::bad_request("Missing request body")) } else { Ok(()) }
    }

    /// The whole body as JSON: 400 `invalid UTF-8 JSON` when it is not, or is empty.
    pub async fn json_body(&mut self) -> Result<Value> {
        let bytes = self.json_bytes().await?;
        self.body.parse(bytes).await
    }

    /// The whole body as a JSON object: 400 `Request body must be a JSON object` when it is JSON of another type.
    pub async fn json_object(&mut self) -> Result<Object> {
        object(self.json_body().await?)
    }

    /// As [`Request::json_object`], of at most so many bytes, which is all that is held while they come: 413 for more.
    pub async fn json_object_within(&mut self, limit_bytes: u64) -> Result<Object> {
        self.refuse_absent()?;
        self.body.limit(limit_bytes);
        let bytes = self.body.bytes(limit_bytes).await?;
        object(json::parse(&bytes).map_err(|_| Problem::unread_json(&bytes))?)
    }

    /// Undoes `Content-Encoding` of the body: gzip, or identity; who reads a body with another gets 415. The server
    /// does it for every request but uploads of attachments, which are stored as they come.
    pub fn undo_content_encoding(&mut self) {
        match self.header("content-encoding").map(str::trim) {
            None | Some("" | "identity") => {}
            Some("gzip") => self.body.inflate(),
            Some(other) => {
                let reason = format!("{other} is not a supported content encoding.");
                self.body.refuse(Problem::bad_content_type(reason));
            }
        }
    }

    /// The base of absolute URLs, without a final slash: scheme and host as the client (or its proxy) named them.
    pub fn base_url(&self) -> String {
        let forwarded =
            || self.header("x-forwarded-proto") == Some("https") || self.header("x-forwarded-ssl") == Some("on");
        let https = self.secure || forwarded();
        format!("{}://{}", if https { "https" } else { "http" }, host(&self.headers))
    }

    /// The absolute URL of `segments`, each percent-encoded in full.
    pub fn location(&self, segments: &[&str]) -> String {
        let mut out = self.base_url();
        for segment in segments {
            out.push('/');
            out.push_str(&super::response::encode_segment(segment));
        }
        out
    }

    /// Whether an `If-None-Match` header names `etag` (with its quotes); weak marks are ignored, `*` is no ETag.
    pub fn has_current(&self, etag: &str) -> bool {
        let listed = |tag: &str| {
            let tag = tag.trim();
            tag.strip_prefix("W/").unwrap_or(tag) == etag
        };
        self.header("if-none-match").is_some_and(|list| list.split(',').any(listed))
    }

    /// 304 for a client that has `etag` already, else the reply with it.
    pub fn unless_current(&self, etag: &str, reply: impl FnOnce() -> Reply) -> Reply {
        if self.has_current(etag) { Reply::not_modified(etag) } else { reply().etag(etag) }
    }
}

/// The media type that a Content-Type names, in lower case, without parameters.
pub fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn object(value: Value) -> Result<Object> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(not_an_object()),
    }
}

/// 400 for JSON of another type.
pub fn not_an_object() -> Problem {
    Problem::bad_request("Request body must be a JSON object")
}

/// The host, and its port where one is named, as the client (or its proxy) named it.
pub fn host(headers: &HeaderMap) -> &str {
    named_host(headers).unwrap_or("127.0.0.1")
}

/// The same; `None` when no host was named.
pub fn named_host(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    text("x-forwarded-host").or_else(|| text("host"))
}
