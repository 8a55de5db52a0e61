//! An HTTP/1.1 client over [`Env::connect`](crate::world::Host::connect): connections are kept and used again, every
//! wait has a limit, redirects are followed.
//!
//! Promises: nothing is sent twice unless the caller says that a request may be repeated ([`Client::call`]); memory per
//! answer is bounded by the caller. `https` needs a client with a connector ([`Client::with_tls`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::tls::Connector;
use super::url::Url;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::world::{BoxStream, Env};

/// The body of a request: bytes, or a stream.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is here already.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Why there is no answer, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The URL asks for TLS, and this client has none.
    NoTls,
    /// No connection could be made; the text is the system's.
    Connect(String),
    /// The other side was silent for too long.
    Timeout,
    /// The connection broke, or what came was no HTTP.
    Broken(String),
    /// The answer is larger than the caller takes.
    TooLarge,
    /// Redirects without end, or to what cannot be followed.
    BadRedirect,
}

impl ClientError {
    /// Whether the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        matches!(self, ClientError::Connect(_) | ClientError::Timeout | ClientError::Broken(_))
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NoTls => f.write_str("https is not available here"),
            ClientError::Connect(why) => write!(f, "cannot connect: {why}"),
            ClientError::Timeout => f.write_str("no answer in time"),
            ClientError::Broken(why) => write!(f, "the connection broke: {why}"),
            ClientError::TooLarge => f.write_str("the answer is too large"),
            ClientError::BadRedirect => f.write_str("a redirect that cannot be followed"),
        }
    }
}

impl std::error::Error for ClientError {}

/// A request that can be repeated.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Where to.
    pub url: Url,
    /// Headers beside `Host`, `Content-Length` and `User-Agent`.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// How patient a client is.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest silence: connecting, waiting for an answer, between two pieces of a body.
    pub silence: Duration,
    /// How often [`Client::call`] repeats what failed for a reason that may pass.
    pub retries: u32,
}

/// Sends requests and keeps connections. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    env: Env,
    patience: Patience,
    tls: Option<Connector>,
    /// Connections that wait for their next request, by origin. The lock is held for map operations only.
    idle: Mutex<BTreeMap<String, Vec<SendRequest<Body>>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

type Exchanged = (http::Response<Incoming>, SendRequest<Body>);

/// An answer whose body is still to be read.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    client: Client,
    origin: String,
    sender: Option<SendRequest<Body>>,
}

impl Client {
    /// A client without connections.
    pub fn new(env: &Env, patience: Patience) -> Client {
        Client(Arc::new(Inner { env: env.clone(), patience, tls: None, idle: Mutex::default() }))
    }

    /// A client that speaks TLS where the URL asks for it.
    pub fn with_tls(env: &Env, patience: Patience, tls: Connector) -> Client {
        Client(Arc::new(Inner { env: env.clone(), patience, tls: Some(tls), idle: Mutex::default() }))
    }

    /// Sends a request that may be repeated: after a broken connection, silence, 429, or a passing failure of the
    /// other server it is sent again, a few times, with growing pauses.
    ///
    /// # Errors
    /// The last failure; a status is never an error.
    pub async fn call(&self, call: &Call) -> Result<Answer, ClientError> {
        let mut pause = Duration::from_millis(limits::CLIENT_RETRY_MS);
        let mut left = self.0.patience.retries;
        loop {
            let result = self.follow(call).await;
            let again = match &result {
                Ok(answer) => matches!(answer.status.as_u16(), 429 | 500 | 502 | 503 | 504),
                Err(error) => error.is_transient(),
            };
            if !again || left == 0 {
                return result;
            }
            left -= 1;
            // A random share keeps many jobs from coming back together.
            let share = self.0.env.random_u64() % 500;
            self.0.env.sleep(pause * (750 + share as u32) / 1000).await;
            pause = (pause * 2).min(Duration::from_millis(limits::CLIENT_RETRY_MAX_MS));
        }
    }

    /// Sends a request once and follows redirects.
    async fn follow(&self, call: &Call) -> Result<Answer, ClientError> {
        let mut call = call.clone();
        for _ in 0..=limits::CLIENT_REDIRECTS_MAX {
            let answer = self.send(&call.method, &call.url, &call.headers, full(call.body.clone()), None).await?;
            let repeats = matches!(call.method, Method::GET | Method::HEAD);
            let moved = match answer.status.as_u16() {
                301..=303 => repeats,
                307 | 308 => true,
                _ => false,
            };
            if !moved {
                return Ok(answer);
            }
            let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok()).ok_or(ClientError::BadRedirect)?;
            let to = call.url.join(to).map_err(|_| ClientError::BadRedirect)?;
            if to.origin() != call.url.origin() {
                call.headers.remove(AUTHORIZATION);
                call.headers.remove(COOKIE);
            }
            call.url = to;
        }
        Err(ClientError::BadRedirect)
    }

    /// Sends a request once. `length`: bytes of a streamed body, where they are known.
    ///
    /// # Errors
    /// [`ClientError`]; whether the other side acted on the request is not known then.
    pub async fn send(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: Body,
        length: Option<u64>,
    ) -> Result<Answer, ClientError> {
        if url.https && self.0.tls.is_none() {
            return Err(ClientError::NoTls);
        }
        let mut request = http::Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = url.target().parse().map_err(|_| ClientError::BadRedirect)?;
        *request.headers_mut() = headers.clone();
        let host = HeaderValue::from_str(&url.authority()).map_err(|_| ClientError::BadRedirect)?;
        request.headers_mut().insert(HOST, host);
        request
            .headers_mut()
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!("settee/", env!("CARGO_PKG_VERSION"))));
        if let Some(length) = length {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let metrics = self.0.env.metrics();
        metrics.count(Counter::ClientRequests);
        let answered = self.exchange(url, request).await;
        metrics.count(if answered.is_ok() { Counter::ClientAnswers } else { Counter::ClientFailures });
        let (response, sender) = answered?;
        let (head, body) = response.into_parts();
        let (client, origin) = (self.clone(), url.origin());
        Ok(Answer { status: head.status, headers: head.headers, body, client, origin, sender: Some(sender) })
    }

    /// Sends a request over a connection and waits for the head of its answer.
    async fn exchange(&self, url: &Url, request: http::Request<Body>) -> Result<Exchanged, ClientError> {
        let mut sender = self.connection(url).await?;
        let response = self.within(sender.send_request(request)).await?.map_err(broken)?;
        Ok((response, sender))
    }

    async fn within<T>(&self, future: impl Future<Output = T>) -> Result<T, ClientError> {
        self.0.env.timeout(self.0.patience.silence, future).await.map_err(|_| ClientError::Timeout)
    }

    /// A connection that was kept and still stands, or a new one.
    async fn connection(&self, url: &Url) -> Result<SendRequest<Body>, ClientError> {
        loop {
            let kept = self.idle().get_mut(&url.origin()).and_then(Vec::pop);
            let Some(mut kept) = kept else { break };
            if !kept.is_closed() && matches!(self.within(kept.ready()).await, Ok(Ok(()))) {
                return Ok(kept);
            }
        }
        let host = url.host.trim_matches(['[', ']']).to_owned();
        let connect = async {
            let addresses = self.0.env.host().resolve(&host, url.port()).await?;
            let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            for address in addresses {
                match self.0.env.host().connect(address).await {
                    Ok(stream) => return self.secured(url, stream).await,
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        };
        let stream = self.within(connect).await?.map_err(|e| ClientError::Connect(e.to_string()))?;
        let handshake = http1::Builder::new().max_headers(limits::HTTP_HEADERS_MAX).handshake(TokioIo::new(stream));
        let (mut sender, connection) = self.within(handshake).await?.map_err(broken)?;
        self.0.env.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection to another server ended: {error}");
            }
        });
        self.within(sender.ready()).await?.map_err(broken)?;
        Ok(sender)
    }

    /// The stream, within TLS where the URL asks for it.
    async fn secured(&self, url: &Url, stream: BoxStream) -> io::Result<BoxStream> {
        match &self.0.tls {
            Some(tls) if url.https => tls.connect(&url.host, stream).await,
            _ => Ok(stream),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<SendRequest<Body>>>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, origin: String, sender: SendRequest<Body>) {
        let mut idle = self.idle();
        let kept = idle.entry(origin).or_default();
        if kept.len() < limits::CLIENT_IDLE_CONNECTIONS && !sender.is_closed() {
            kept.push(sender);
        }
    }
}

fn broken(error: hyper::Error) -> ClientError {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    ClientError::Broken(format!("{error}{cause}"))
}

impl Answer {
    /// The next piece of the body; `None` at its end, when the connection becomes free.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] after too long a silence, [`ClientError::Broken`] for a body that was cut.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.client.within(self.body.frame()).await? {
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                return Ok(Some(data));
            }
        }
        if let Some(sender) = self.sender.take() {
            self.client.keep(std::mem::take(&mut self.origin), sender);
        }
        Ok(None)
    }

    /// The whole body, of at most `limit_bytes`.
    ///
    /// # Errors
    /// As [`Answer::next`], and [`ClientError::TooLarge`].
    pub async fn bytes(mut self, limit_bytes: usize) -> Result<Bytes, ClientError> {
        let mut out = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if out.len() + piece.len() > limit_bytes {
                return Err(ClientError::TooLarge);
            }
            out.extend_from_slice(&piece);
        }
        Ok(out.freeze())
    }
}
