//! From one HTTP request to its answer: checks that hold for all endpoints, the handler, headers that all answers have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::header::{
    ACCEPT, ACCEPT_RANGES, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    DATE, ETAG, HeaderName, HeaderValue, SERVER, SET_COOKIE,
};
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::{Notify, oneshot};

use super::Context;
use super::admission::{AtWork, Pass};
use super::bodies::Share;
use super::body::{ChunkSource, Left, RequestBody};
use super::cors;
use super::forwarded;
use super::handle::accept::admits;
use super::handle::{self, handle};
use super::jsonp;
use super::latency;
use super::policy;
use super::problem::{Problem, Result};
use super::query::{Query, decode_text, escapes_hold, json_is_text};
use super::request::{Request, Verb};
use super::request_log::{self, RequestLine};
use super::response::{Reply, ReplyBody, encode_segment};
use super::route::{Endpoint, InDatabase, route};
use super::slow_log::Slow;
use super::streams::crowded;
use super::vhost;
use super::waiting::NoBytes;
use crate::auth::{Credentials, UserCtx, cookie, options};
use crate::config::Config;
use crate::limits;
use crate::world::cost::{self, Cost};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
const BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");

/// Headers that `Prefer: return=minimal` leaves (`chttpd/prefer_minimal`; the default list of CouchDB 3.5).
const MINIMAL: &str =
    "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary, Date";

/// Marks the answer to a client that logged in.
#[derive(Clone, Copy)]
pub struct NamedUser;

/// What the checks of a request found.
struct Told {
    /// The value of a new session cookie, if one is due.
    renewed: Option<String>,
    /// The name of the caller.
    user: Option<String>,
    /// Whether a server administrator asks for a change that is written to the audit log.
    is_audited: bool,
    /// The kind of the request.
    endpoint: &'static str,
    /// What the pages of its answer wait with for their turns.
    pass: Option<Pass>,
}

impl Default for Told {
    fn default() -> Told {
        Told { renewed: None, user: None, is_audited: false, endpoint: "refused", pass: None }
    }
}

/// Told when the connection of a request is to be cut.
#[derive(Clone, Default)]
pub struct Cut(pub Arc<Notify>);

/// Answers one request. Never fails: what goes wrong becomes an answer.
/// `secure`: it came by TLS.
pub async fn answer(
    context: Arc<Context>,
    peer: SocketAddr,
    secure: bool,
    request: axum::extract::Request,
) -> http::Response<Body> {
    let began = context.env.now();
    let (mut parts, body) = request.into_parts();
    let placed = vhost::apply(&context.config, &mut parts);
    forwarded::apply(&context.config, &mut parts.headers);
    let id = request_id(&context, &parts.headers);
    let (unread, mut rest) = oneshot::channel();
    let body = request_body(&context, &parts.headers, body, peer).return_to(unread);
    let has_body = body.length() != Some(0);
    let (verb, head, method) = method(&parts.method, &parts.headers);
    let (counted, path) = (method.clone(), parts.uri.path().to_owned());
    let request = Request {
        verb,
        head,
        method,
        raw_path: raw_path(&context.config, parts.uri.path()),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        headers: parts.headers.clone(),
        peer,
        id: id.clone(),
        user: UserCtx::anonymous(),
        secure,
        floor: None,
        body,
    };
    let location = request.base_url();
    let secure = location.starts_with("https:");
    let (mut told, cost) = (Told::default(), Arc::new(Cost::default()));
    let (callback, placed) = jsonp::asked(&context.config, &request.query, placed);
    let outcome = match (cors::preflight(&context.config, &parts.method, &parts.headers), placed) {
        (Some(reply), _) => Ok(reply),
        (None, Err(problem)) => Err(problem),
        (None, Ok(())) => cost::counted(Arc::clone(&cost), checked(&context, &parts, request, &mut told)).await,
    };
    let mut reply =
        outcome.unwrap_or_else(|problem| refusal(&context, &parts, &location, told_by_name(&context, &parts, problem)));
    let (source, held) = rest.try_recv().map_or((None, None), |left: Left| (left.source, left.held));
    if let (true, Some(source)) = (has_body && !parts.headers.contains_key(http::header::EXPECT), source) {
        skip_rest(&context, source).await;
    }
    let Told { renewed, user, is_audited, endpoint, pass } = told;
    reply = with_cookies(&context, (&parts.headers, secure), renewed, reply);
    jsonp::wrap(&mut reply, callback.as_deref());
    finish(&context, &parts, (&id, &location), &mut reply);
    let whole = with_room(&context, (peer, parts.extensions.remove(), pass), &mut reply);
    let (took, is_named) = (context.env.now().since(began), user.is_some());
    context.stats.count(context.env.metrics(), (&counted, endpoint), reply.status, took);
    let line = RequestLine { method: &counted, path: &path, status: reply.status.as_u16(), took, user, peer, id: &id };
    request_log::tell(&context, &line, is_audited);
    let slow = Slow::of(&context, &line, endpoint, (began, cost));
    let mut response = into_response(reply, whole, held, slow);
    if is_named {
        response.extensions_mut().insert(NamedUser);
    }
    response
}

/// The answer with the cookie of a session that goes on, unless it sets one itself, and with that of a read token.
fn with_cookies(
    context: &Context,
    (headers, secure): (&HeaderMap, bool),
    renewed: Option<String>,
    reply: Reply,
) -> Reply {
    let mut reply = match renewed.filter(|_| !reply.headers.contains_key(SET_COOKIE)) {
        Some(value) => {
            reply.header(SET_COOKIE, &cookie::set_cookie(&context.config, &value, secure, context.env.wall()))
        }
        None => reply,
    };
    handle::token::keep(context, headers, secure, &mut reply);
    reply
}

/// What is checked before the handler, in this order: the framing, the target, credentials, the outermost door, the
/// path, rights on the server, the method; then the request waits for its turn. `told`: what the answer and its lines
/// in the log need to know of it.
async fn checked(
    context: &Context,
    parts: &http::request::Parts,
    mut request: Request,
    told: &mut Told,
) -> Result<Reply> {
    check_framing(parts.version, &request.headers)?;
    let uri = &parts.uri;
    let target_bytes = uri.path_and_query().map_or(0, |target| target.as_str().len() as u64);
    if target_bytes > context.config.http_u64("max_uri_length", limits::HTTP_URI_BYTES) {
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "too_long", "the request uri is too long"));
    }
    if !uri.path_and_query().is_none_or(|target| escapes_hold(target.as_str())) {
        return Err(Problem::bad_request("invalid_url_encoding"));
    }
    if !uri.query().is_none_or(json_is_text) {
        return Err(Problem::invalid_json());
    }
    let endpoint = route(&request.raw_path);
    if request.method == "OPTIONS" && endpoint.takes_options_for_get() {
        request.verb = Verb::Get;
    }
    told.endpoint = latency::endpoint_name(&endpoint, &request.query);
    let credentials = Credentials { headers: &request.headers, peer: Some(request.peer.ip()) };
    let identified = context.authenticator.authenticate(credentials).await?;
    (request.user, told.renewed) = (identified.user, identified.renewed);
    told.user.clone_from(&request.user.name);
    let is_system = |database: &str| request_log::is_system(context, database);
    told.is_audited =
        request.user.is_server_admin() && request_log::is_administrative(&endpoint, request.verb, is_system);
    handle::admit(context, &endpoint, &request)?;
    // An attachment is stored as it comes, and has a limit of its own.
    if !matches!(endpoint, Endpoint::In(_, InDatabase::Attachment(..))) {
        request.undo_content_encoding();
        let size_max = context.config.http_u64("max_http_request_size", limits::HTTP_REQUEST_BYTES);
        request.body.limit(size_max);
        let document = context.config.u64("couchdb", "max_document_size", limits::DOCUMENT_BYTES);
        request.body.take_documents(document);
    }
    told.pass = Pass::of(&context.admission, &endpoint, &request);
    let Some(at_work) = told.pass.clone().map(AtWork::new) else { return handle(context, endpoint, request).await };
    if begins_with_body(&endpoint, &request) {
        request.body.begin_then(Arc::clone(&at_work));
    } else {
        at_work.begin().await?;
    }
    let reply = handle(context, endpoint, request).await;
    at_work.end();
    reply
}

/// Whether the handler reads the body before it does anything else that takes long. Attachments, also those of a
/// multipart body, are written as they come; the other methods have handlers that read no body.
fn begins_with_body(endpoint: &Endpoint, request: &Request) -> bool {
    let is_attachment = matches!(endpoint, Endpoint::In(_, InDatabase::Attachment(..)));
    let is_multipart = request.media_type().is_some_and(|media| media.starts_with("multipart/"));
    let has_body = matches!(request.verb, Verb::Post | Verb::Put) && request.body.length() != Some(0);
    has_body && !is_attachment && !is_multipart
}

/// What two servers in a row could understand differently is refused: no host (RFC 9112, 3.2), two hosts, and codings
/// of the transfer but `chunked`, which are not undone here.
fn check_framing(version: http::Version, headers: &HeaderMap) -> Result<()> {
    match headers.get_all(http::header::HOST).iter().count() {
        0 if version == http::Version::HTTP_11 => {
            return Err(closing(Problem::bad_request("a request of HTTP/1.1 has a Host header")));
        }
        0 | 1 => {}
        _ => return Err(closing(Problem::bad_request("more than one Host header"))),
    }
    let codings = headers.get_all(http::header::TRANSFER_ENCODING);
    match codings.iter().all(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        true => Ok(()),
        false => {
            let reason = "Only the transfer coding `chunked` is understood.";
            Err(closing(Problem::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)))
        }
    }
}

/// A refusal after which no further request of the connection is read: where a server in front understood the request
/// differently, what follows may be another client's.
fn closing(mut problem: Problem) -> Problem {
    problem.headers.push((CONNECTION, HeaderValue::from_static("close")));
    problem
}

/// The method that counts. An override is heeded on POST only, and only for these exact names.
fn method(method: &Method, headers: &HeaderMap) -> (Verb, bool, String) {
    let named = headers.get("x-http-method-override").and_then(|value| value.to_str().ok());
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "COPY"];
    let name = match named.filter(|name| method == Method::POST && known.contains(name)) {
        Some(name) => name,
        None => method.as_str(),
    };
    (Verb::of(name), name == "HEAD", name.to_owned())
}

fn request_body(context: &Context, headers: &HeaderMap, body: Body, peer: SocketAddr) -> RequestBody {
    let sized = headers.get(http::header::CONTENT_LENGTH);
    let sent = sized.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let chunked = headers.contains_key(http::header::TRANSFER_ENCODING);
    let length = if chunked { None } else { Some(sent.unwrap_or(0)) };
    let absent = sized.is_none() && !chunked;
    let chunks = body.into_data_stream().map_err(|error| error.to_string());
    let body = RequestBody::new(context.env.clone(), Box::pin(chunks), length).absent(absent);
    body.within(Arc::clone(&context.bodies), peer.ip())
}

/// Takes what the handler left unread, within limits: a client that is still sending would lose the answer when the
/// connection is closed under it.
async fn skip_rest(context: &Context, mut source: ChunkSource) {
    let skip = async {
        let mut skipped = 0;
        while let Some(Ok(chunk)) = source.next().await {
            skipped += chunk.len() as u64;
            if skipped > limits::HTTP_SKIP_BYTES {
                return;
            }
        }
    };
    // Over the time or over the limit the connection is closed after the answer.
    let _ = context.env.timeout(Duration::from_millis(limits::HTTP_SKIP_MS), skip).await;
}

/// The client's own id when it is harmless, else a new one of ten digits.
fn request_id(context: &Context, headers: &HeaderMap) -> String {
    let own = headers.get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let harmless = |id: &&str| {
        (1..=36).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    match own.filter(harmless) {
        Some(id) => id.to_owned(),
        None => crate::wire::hex::encode(&context.env.random_bytes::<5>()),
    }
}

/// That there is no such database is told only where it is certain. One that went while it was asked something may have
/// left its name to another one; and a node without its disk knows of none before it has met its cluster.
fn told_by_name(context: &Context, parts: &http::request::Parts, problem: Problem) -> Problem {
    match route(parts.uri.path()) {
        Endpoint::In(name, _) if problem == Problem::no_database() && context.coordinator.has_database(&name) => {
            Problem::unavailable("Another database took the name meanwhile, try again.")
        }
        Endpoint::In(..) if problem == Problem::no_database() && context.coordinator.is_unlearned() => {
            Problem::unavailable("This node has yet to learn which databases its cluster has, try again.")
        }
        _ => problem,
    }
}

/// An error's answer. 401 may carry a challenge, and sends a browser to the login page.
fn refusal(context: &Context, parts: &http::request::Parts, base: &str, mut problem: Problem) -> Reply {
    // Only `$mod` is answered so (`docs/compatibility.md`).
    if problem.error == "bad_arg" && problem.status == StatusCode::NOT_FOUND && context.config.follows_couchdb() {
        problem.status = StatusCode::BAD_REQUEST;
    }
    let status = problem.status;
    let reason = problem.reason.clone();
    let mut reply = Reply::from(problem);
    if status != StatusCode::UNAUTHORIZED {
        return reply;
    }
    // Who asks for a challenge, or is sent one, is asked by the browser itself.
    if let Some(challenge) = challenge(context, &parts.headers) {
        reply.headers.insert(http::header::WWW_AUTHENTICATE, challenge);
        return reply;
    }
    if prefers_html(&parts.headers) {
        let asked = parts.headers.get(vhost::ASKED_PATH).and_then(|path| path.to_str().ok());
        let path = asked.map_or_else(|| decode_text(parts.uri.path()), str::to_owned);
        let (back, why) = (encode_segment(&path), encode_segment(&reason));
        let page = options::text(&context.config, "authentication_redirect", "/_utils/session.html");
        let to = format!("{base}{page}?return={back}&reason={why}");
        let reply = reply.status(StatusCode::FOUND).header(http::header::LOCATION, &to);
        return reply.header(CACHE_CONTROL, "must-revalidate");
    }
    reply
}

fn prefers_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    admits(accept, "text/html") && !admits(accept, "application/json")
}

fn challenge(context: &Context, headers: &HeaderMap) -> Option<HeaderValue> {
    if let Some(wanted) = headers.get("x-couchdb-www-authenticate") {
        return Some(wanted.clone());
    }
    let configured = context.config.http_get("WWW-Authenticate");
    let strict = context.config.shuts("chttpd", "require_valid_user");
    let text = configured.or_else(|| strict.then(|| "Basic realm=\"server\"".to_owned()))?;
    HeaderValue::from_str(&text).ok()
}

/// Whether JSON may be called `application/json` (`docs/compatibility.md`, the first row of the table).
pub fn admits_json(accept: Option<&str>) -> bool {
    let json = |range: &str| {
        let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
        let media = parts.next().unwrap_or_default();
        let refused = parts.any(|p| matches!(p.as_str(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        let admits =
            matches!(media.as_str(), "application/json" | "*/*" | "application/*") || media.starts_with("multipart/");
        admits && !refused
    };
    accept.is_some_and(|accept| accept.split(',').any(json))
}

/// Adds what all answers have.
fn finish(context: &Context, parts: &http::request::Parts, (id, base): (&str, &str), reply: &mut Reply) {
    let config = &context.config;
    let bodiless = matches!(&reply.body, ReplyBody::Full(whole) if whole.is_empty());
    let headers = &mut reply.headers;
    if !bodiless && !headers.contains_key(CONTENT_TYPE) {
        let accept = parts.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let is_json = config.follows_couchdb() || admits_json(accept);
        let name = if is_json { "application/json" } else { "text/plain;charset=utf-8" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(name));
    }
    let unchanged = reply.status == StatusCode::NOT_MODIFIED;
    if unchanged && config.follows_couchdb() {
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let redirect = reply.status.is_redirection() && !unchanged;
    if !redirect && reply.status != StatusCode::NO_CONTENT && !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    }
    // An empty one stands for none at all: what functions of design documents answer.
    if headers.get(CACHE_CONTROL).is_some_and(HeaderValue::is_empty) {
        headers.remove(CACHE_CONTROL);
    }
    let server = match (config.follows_couchdb(), config.bool("chttpd", "server_header_versions", true)) {
        (true, true) => "CouchDB/3.5.0 (Erlang OTP/25)",
        (true, false) => "CouchDB",
        (false, true) => concat!("settee/", env!("CARGO_PKG_VERSION")),
        (false, false) => "settee",
    };
    headers.insert(SERVER, HeaderValue::from_static(server));
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + context.env.wall());
    if let Ok(date) = HeaderValue::from_str(&date) {
        headers.insert(DATE, date);
    }
    headers.insert(BODY_TIME, HeaderValue::from_static("0"));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    policy::harden(config, base, headers);
    if parts.headers.get("prefer").is_some_and(|value| value == "return=minimal") {
        let kept = config.list("chttpd", "prefer_minimal", MINIMAL);
        let kept =
            |name: &HeaderName| *name == CONNECTION || kept.iter().any(|k| k.eq_ignore_ascii_case(name.as_str()));
        let dropped: Vec<HeaderName> = headers.keys().filter(|name| !kept(name)).cloned().collect();
        for name in dropped {
            headers.remove(name);
        }
    }
    cors::add(config, &parts.headers, headers);
}

/// Takes the room that an answer needs while it is sent; where there is none it becomes a refusal. Answers the body of
/// a whole one. `cut` ends the connection of a streamed answer.
fn with_room(
    context: &Context,
    (peer, cut, pass): (SocketAddr, Option<Cut>, Option<Pass>),
    reply: &mut Reply,
) -> Option<Body> {
    if let Some(streamed) = &reply.held
        && let Err(problem) = context.streams.enter(peer.ip(), cut.unwrap_or_default().0, pass, streamed)
    {
        reply.body = ReplyBody::Full(refuse((&mut reply.status, &mut reply.headers), &problem).into());
    }
    let ReplyBody::Full(whole) = &mut reply.body else { return None };
    if reply.status == StatusCode::NOT_MODIFIED && reply.headers.contains_key(http::header::CONTENT_LENGTH) {
        return Some(Body::new(NoBytes));
    }
    let whole = std::mem::replace(whole, Bytes::new().into());
    let refused = || Body::from(refuse((&mut reply.status, &mut reply.headers), &crowded()));
    Some(context.answers.body(peer.ip(), whole).unwrap_or_else(refused))
}

/// `whole`: the body, where it is not streamed. `held`: the memory of what was made of the request's body, which a
/// streamed answer may be made from.
fn into_response(reply: Reply, whole: Option<Body>, held: Option<Share>, slow: Slow) -> http::Response<Body> {
    let body = match reply.body {
        ReplyBody::Full(_) => whole.unwrap_or_default(),
        ReplyBody::Stream(chunks) => Body::from_stream(slow.watch(chunks).inspect_err(move |problem| {
            let _for_as_long = &held;
            tracing::warn!("an answer was cut: {problem}");
        })),
    };
    let mut response = http::Response::new(body);
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

/// Headers that say something of the body that was made.
const OF_WHAT_WAS_MADE: [HeaderName; 5] = [ETAG, CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, ACCEPT_RANGES];

/// Makes status and headers those of a problem, and answers its body.
fn refuse((status, headers): (&mut StatusCode, &mut HeaderMap), problem: &Problem) -> Bytes {
    *status = problem.status;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.extend(problem.headers.iter().cloned());
    for name in OF_WHAT_WAS_MADE {
        headers.remove(name);
    }
    problem.body()
}

/// The path as it is routed: with `chttpd/decode_plus_to_space = false` a `+` in it means itself and no blank.
fn raw_path(config: &Config, path: &str) -> String {
    match path.contains('+') && !config.bool("chttpd", "decode_plus_to_space", true) {
        true => path.replace('+', "%2B"),
        false => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};

    use super::{Verb, admits_json, method};

    #[test]
    fn json_is_named_where_the_client_admits_it() {
        for yes in [
            "application/json",
            "*/*",
            "text/html, application/*;q=0.3",
            "application/json;q=0.1",
            "multipart/mixed",
            "Multipart/Related,text/plain",
        ] {
            assert!(admits_json(Some(yes)), "{yes}");
        }
        for no in ["", "text/plain", "text/html", "image/png", "application/json;q=0", "text/*"] {
            assert!(!admits_json(Some(no)), "{no}");
        }
        assert!(!admits_json(None));
    }

    #[test]
    fn the_method_is_overridden_on_post_only() {
        let overriding = |m: Method, name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-http-method-override", HeaderValue::from_static(name));
            method(&m, &headers)
        };
        assert_eq!(overriding(Method::POST, "PUT"), (Verb::Put, false, "PUT".to_owned()));
        assert_eq!(overriding(Method::POST, "HEAD"), (Verb::Get, true, "HEAD".to_owned()));
        assert_eq!(overriding(Method::POST, "put"), (Verb::Post, false, "POST".to_owned()));
        assert_eq!(overriding(Method::POST, "PATCH"), (Verb::Post, false, "POST".to_owned()));
        assert_eq!(overriding(Method::GET, "DELETE"), (Verb::Get, false, "GET".to_owned()));
        assert_eq!(method(&Method::PATCH, &HeaderMap::new()).0, Verb::Other);
    }
}
