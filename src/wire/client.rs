//! An HTTP/1.1 client over [`Env::connect`](crate::world::Host::connect): connections are kept and used again, every
//! wait has a limit, redirects are followed.
//!
//! Promises: nothing is sent twice unless the caller says that a request may be repeated ([`Client::call`],
//! [`Client::read`]); memory per answer is bounded by the caller, also where the answer is gzipped. How connections are
//! made is the [`Dialer`]'s.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, IF_NONE_MATCH, LOCATION,
    PROXY_AUTHORIZATION, RANGE, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::dial::Dialer;
use super::outgoing::noted;
use super::tls::Connector;
use super::url::Url;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::world::sync::{Mutex, MutexGuard};
use crate::world::{Env, Instant, lock};

/// Headers that a redirect to another server keeps.
const PLAIN_HEADERS: [HeaderName; 7] =
    [ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, IF_NONE_MATCH, RANGE, USER_AGENT];

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
    /// A whole answer that is not what it should be: cut on the way, or not from the server that was asked.
    Garbled,
}

impl ClientError {
    /// Whether the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        matches!(self, ClientError::Connect(_) | ClientError::Timeout | ClientError::Broken(_) | ClientError::Garbled)
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
            ClientError::Garbled => f.write_str("the answer cannot be read"),
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

/// Called for each piece of a body that a client sends or receives.
pub type Moved = Arc<dyn Fn() + Send + Sync>;

/// How patient a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest silence: connecting, between two pieces of a body either way, waiting for an answer.
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
    dialer: Dialer,
    connections: usize,
    moved: Option<Moved>,
    /// One for each connection that may be at work.
    slots: Arc<Semaphore>,
    /// Connections that wait for their next request, by origin. The lock is held for map operations only.
    idle: Mutex<BTreeMap<String, Vec<SendRequest<Body>>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// A connection at work.
struct Line {
    sender: SendRequest<Body>,
    _slot: OwnedSemaphorePermit,
}

/// An answer whose body is still to be read.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    client: Client,
    origin: String,
    line: Option<Line>,
}

/// The repeats that are left of something that may be repeated, with growing pauses before them.
pub struct Repeats {
    env: Env,
    left: u32,
    pause: Duration,
}

impl Repeats {
    /// So many.
    pub fn new(env: &Env, count: u32) -> Repeats {
        Repeats { env: env.clone(), left: count, pause: Duration::from_millis(limits::CLIENT_RETRY_MS) }
    }

    /// Waits for the next one; `asked`: what the other server wants to be waited for. False when none is left.
    pub async fn next(&mut self, asked: Option<Duration>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        // A random share keeps many jobs from coming back together.
        let share = self.env.random_u64() % 500;
        let pause = self.pause * (750 + share as u32) / 1000;
        let asked = asked.unwrap_or_default().min(Duration::from_millis(limits::CLIENT_RETRY_AFTER_MAX_MS));
        self.env.sleep(pause.max(asked)).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(limits::CLIENT_RETRY_MAX_MS));
        true
    }
}

/// Statuses of failures that pass.
fn passes(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504)
}

impl Client {
    /// A client without connections that speaks no TLS.
    pub fn new(env: &Env, patience: Patience) -> Client {
        Client::dialing(env, patience, Dialer::new(env, None), limits::CLIENT_CONNECTIONS, None)
    }

    /// A client that speaks TLS where the URL asks for it.
    pub fn with_tls(env: &Env, patience: Patience, tls: Connector) -> Client {
        Client::dialing(env, patience, Dialer::new(env, Some(tls)), limits::CLIENT_CONNECTIONS, None)
    }

    /// A client with at most so many connections at work, each opened by `dialer`; `moved` hears of all that moves.
    pub fn dialing(env: &Env, patience: Patience, dialer: Dialer, connections: usize, moved: Option<Moved>) -> Client {
        let (env, slots) = (env.clone(), Arc::new(Semaphore::new(connections)));
        Client(Arc::new(Inner { env, patience, dialer, connections, moved, slots, idle: Mutex::default() }))
    }

    /// How patient it is.
    pub fn patience(&self) -> Patience {
        self.0.patience
    }

    fn repeats(&self) -> Repeats {
        Repeats::new(&self.0.env, self.0.patience.retries)
    }

    /// Sends a request that may be repeated: after a broken connection, silence, 429, or a passing failure of the
    /// other server it is sent again, a few times, with growing pauses.
    ///
    /// # Errors
    /// The last failure; a status is never an error.
    pub async fn call(&self, call: &Call) -> Result<Answer, ClientError> {
        let mut repeats = self.repeats();
        loop {
            let result = self.follow(call).await;
            let (again, asked) = match &result {
                Ok(answer) => (passes(answer.status), answer.retry_after()),
                Err(error) => (error.is_transient(), None),
            };
            if !again || !repeats.next(asked).await {
                return result;
            }
        }
    }

    /// As [`Client::call`], with an answer of at most `limit_bytes` that `take` reads; one that breaks off, or that
    /// `take` finds broken, is asked for again, too.
    ///
    /// # Errors
    /// The last failure, [`ClientError::TooLarge`].
    pub async fn read<T>(
        &self,
        call: &Call,
        limit_bytes: usize,
        take: impl Fn(StatusCode, HeaderMap, Bytes) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut repeats = self.repeats();
        loop {
            let mut again = (false, None);
            let result = match self.follow(call).await {
                Ok(answer) => {
                    let status = answer.status;
                    again = (passes(status), answer.retry_after());
                    answer.whole(limit_bytes).await.and_then(|(headers, bytes)| take(status, headers, bytes))
                }
                Err(error) => Err(error),
            };
            again.0 |= result.as_ref().is_err_and(ClientError::is_transient);
            if !again.0 || !repeats.next(again.1).await {
                return result;
            }
        }
    }

    /// Sends a request once and follows redirects.
    async fn follow(&self, call: &Call) -> Result<Answer, ClientError> {
        let mut call = call.clone();
        for _ in 0..=limits::CLIENT_REDIRECTS_MAX {
            let answer = self.send(&call.method, &call.url, &call.headers, full(call.body.clone()), None).await?;
            match answer.status.as_u16() {
                // What was asked for is to be read elsewhere, whatever the question was.
                303 if call.method != Method::HEAD => (call.method, call.body) = (Method::GET, Bytes::new()),
                // Old browsers made a GET of a POST here; CouchDB's replicator asks the same again.
                301..=303 | 307 | 308 => {}
                _ => return Ok(answer),
            }
            let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok()).ok_or(ClientError::BadRedirect)?;
            let to = call.url.join(to).map_err(|_| ClientError::BadRedirect)?;
            if to.origin() != call.url.origin() {
                // Whatever else was given for one server, a token in a header of its own, say, is not for another.
                let kept = |name: &HeaderName| Some((name.clone(), call.headers.get(name)?.clone()));
                call.headers = PLAIN_HEADERS.iter().filter_map(kept).collect();
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
        if !self.0.dialer.speaks(url) {
            return Err(ClientError::NoTls);
        }
        let taken = Arc::new(Mutex::new(self.0.env.now()));
        let mut request = http::Request::new(self.watched(body, &taken));
        *request.method_mut() = method.clone();
        *request.headers_mut() = headers.clone();
        let mut target = url.target();
        if let Some(login) = self.0.dialer.told_to_proxy(url) {
            target = url.to_string();
            if let Some(login) = login.and_then(|login| HeaderValue::from_str(&login).ok()) {
                request.headers_mut().insert(PROXY_AUTHORIZATION, login);
            }
        }
        *request.uri_mut() = target.parse().map_err(|_| ClientError::BadRedirect)?;
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
        let answered = self.exchange(url, request, &taken).await;
        metrics.count(if answered.is_ok() { Counter::ClientAnswers } else { Counter::ClientFailures });
        let (response, line) = answered?;
        let (head, body) = response.into_parts();
        let (client, origin) = (self.clone(), url.origin());
        Ok(Answer { status: head.status, headers: head.headers, body, client, origin, line: Some(line) })
    }

    /// The body, with the time noted at which a piece of it was taken last.
    fn watched(&self, body: Body, taken: &Arc<Mutex<Instant>>) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let (client, taken) = (self.clone(), Arc::clone(taken));
        let note = move || {
            *lock(&taken) = client.0.env.now();
            client.moved();
        };
        noted(body, Arc::new(note))
    }

    fn moved(&self) {
        if let Some(moved) = &self.0.moved {
            moved();
        }
    }

    /// Sends a request over a connection and waits for the head of its answer; `taken`: see [`Client::watched`].
    async fn exchange(
        &self,
        url: &Url,
        request: http::Request<Body>,
        taken: &Mutex<Instant>,
    ) -> Result<(http::Response<Incoming>, Line), ClientError> {
        // Invariant: the semaphore is never closed. The one that holds a slot gets on without another one of this
        // client.
        let slot = Arc::clone(&self.0.slots).acquire_owned().await.expect("an open semaphore");
        let mut sender = self.connection(url).await?;
        *lock(taken) = self.0.env.now();
        let response = {
            let mut response = pin!(sender.send_request(request));
            loop {
                let left = self.0.patience.silence.saturating_sub(self.0.env.now().since(*lock(taken)));
                if left.is_zero() {
                    return Err(ClientError::Timeout);
                }
                // A body that takes long is no silence.
                if let Ok(response) = self.0.env.timeout(left, response.as_mut()).await {
                    break response.map_err(broken)?;
                }
            }
        };
        Ok((response, Line { sender, _slot: slot }))
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
        // Boxed: a handshake of TLS is large, and a request would hold that memory as long as it waits.
        let dialed = self.within(Box::pin(self.0.dialer.open(url))).await?;
        let stream = dialed.map_err(|e| ClientError::Connect(e.to_string()))?;
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

    fn idle(&self) -> MutexGuard<'_, BTreeMap<String, Vec<SendRequest<Body>>>> {
        lock(&self.0.idle)
    }

    fn keep(&self, origin: String, sender: SendRequest<Body>) {
        let mut idle = self.idle();
        let kept = idle.entry(origin).or_default();
        if kept.len() < self.0.connections && !sender.is_closed() {
            kept.push(sender);
        }
    }
}

fn broken(error: hyper::Error) -> ClientError {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    ClientError::Broken(format!("{error}{cause}"))
}

impl Answer {
    /// What the server wants to be waited for before the next request.
    fn retry_after(&self) -> Option<Duration> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
    }

    /// The next piece of the body; `None` at its end, when the connection becomes free.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] after too long a silence, [`ClientError::Broken`] for a body that was cut.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.client.within(self.body.frame()).await? {
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                self.client.moved();
                return Ok(Some(data));
            }
        }
        if let Some(line) = self.line.take() {
            self.client.keep(std::mem::take(&mut self.origin), line.sender);
        }
        Ok(None)
    }

    /// The whole body, of at most `limit_bytes`, out of its gzip where it is in one.
    ///
    /// # Errors
    /// As [`Answer::next`], [`ClientError::TooLarge`], and [`ClientError::Garbled`] for gzip that is none.
    pub async fn bytes(self, limit_bytes: usize) -> Result<Bytes, ClientError> {
        self.whole(limit_bytes).await.map(|(_, bytes)| bytes)
    }

    /// As [`Answer::bytes`], with the headers.
    async fn whole(mut self, limit_bytes: usize) -> Result<(HeaderMap, Bytes), ClientError> {
        let mut out = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if out.len() + piece.len() > limit_bytes {
                return Err(ClientError::TooLarge);
            }
            out.extend_from_slice(&piece);
        }
        let bytes = match self.headers.get(CONTENT_ENCODING) {
            Some(encoding) if encoding == "gzip" => unzipped(&out, limit_bytes)?,
            _ => out.freeze(),
        };
        Ok((self.headers, bytes))
    }
}

fn unzipped(gzip: &[u8], limit_bytes: usize) -> Result<Bytes, ClientError> {
    let mut out = Vec::new();
    let read = GzDecoder::new(gzip).take(limit_bytes as u64 + 1).read_to_end(&mut out);
    match read {
        Ok(bytes) if bytes > limit_bytes => Err(ClientError::TooLarge),
        Ok(_) => Ok(out.into()),
        Err(_) => Err(ClientError::Garbled),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::world::tokio_host;

    /// What was sent took longer than a peer may be silent, and was abandoned although the peer read all the time.
    #[test]
    fn a_large_body_on_a_slow_way_is_no_silence() {
        const BYTES: usize = 32 << 20;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (url, _) = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let reader = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut piece, mut left) = (vec![0; 1 << 20], BYTES);
            while left > 0 {
                std::thread::sleep(Duration::from_millis(200));
                left = left.saturating_sub(stream.read(&mut piece).unwrap());
            }
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let client = Client::new(&env, Patience { silence: Duration::from_secs(4), retries: 0 });
        let (headers, body) = (HeaderMap::new(), full(Bytes::from(vec![b'x'; BYTES])));
        let sent = runtime.block_on(client.send(&Method::PUT, &url, &headers, body, None));
        assert_eq!(sent.map(|answer| answer.status), Ok(StatusCode::CREATED));
        reader.join().unwrap();
    }

    #[test]
    fn gzip_does_not_grow_beyond_the_limit() {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(&[b' '; 10_000]).unwrap();
        let zip = zip.finish().unwrap();
        assert!(zip.len() < 1000);
        assert_eq!(unzipped(&zip, 10_000).map(|bytes| bytes.len()), Ok(10_000));
        assert_eq!(unzipped(&zip, 9_999), Err(ClientError::TooLarge));
        assert_eq!(unzipped(&zip[..zip.len() / 2], 10_000), Err(ClientError::Garbled));
    }
}
