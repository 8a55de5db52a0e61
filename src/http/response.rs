//! Answers: status, headers, and a body that is here or comes as a stream with back pressure.
//!
//! A handler returns a [`Reply`]; what is common to all answers (content negotiation, `Cache-Control`, `Date`,
//! `Server`, request id, `Prefer: return=minimal`) is added by `answer`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use http::header::{ETAG, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::mpsc;

use super::problem::{Problem, Result};
use super::request::Request;
use super::streams::Held;
use super::waiting::piece;
use crate::limits;
use crate::wire::message::Message;
use crate::world::buggify::weigh;
use crate::world::lock;
use crate::world::sync::Mutex;

/// What `Location` leaves as it is: unreserved characters and `:` (as CouchDB 3.5 was measured).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// Percent-encodes one path segment in full, slashes included.
pub fn encode_segment(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}

/// An ETag for what has no revision: a hash of `parts` in 25 digits of base 36, the form of CouchDB's, quoted.
pub fn state_etag(parts: &[&[u8]]) -> String {
    use md5::Digest;
    let mut hash = md5::Md5::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut number = u128::from_be_bytes(hash.finalize().into());
    let mut digits = [b'0'; 25];
    for digit in digits.iter_mut().rev() {
        // Invariant: a remainder of 36 is a digit of base 36.
        *digit = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[(number % 36) as usize];
        number /= 36;
    }
    format!("\"{}\"", String::from_utf8_lossy(&digits))
}

/// The body of an answer.
pub enum ReplyBody {
    /// All of it.
    Full(Message),
    /// Chunks, made as fast as the client reads them. An error cuts the connection: the status is already sent.
    Stream(ChunkStream),
}

impl std::fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplyBody::Full(whole) => write!(f, "Full({} bytes)", whole.len()),
            ReplyBody::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// The chunks of a streamed body.
pub type ChunkStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers of the handler. Without a `Content-Type` the body is JSON and its type is negotiated.
    pub headers: HeaderMap,
    /// The body.
    pub body: ReplyBody,
    /// What a streamed body holds, where that is known.
    pub held: Option<Arc<Held>>,
}

impl Reply {
    /// A body of which nothing is known to be held.
    pub(super) fn new(status: StatusCode, headers: HeaderMap, body: ReplyBody) -> Reply {
        Reply { status, headers, body, held: None }
    }

    fn full(status: StatusCode, body: impl Into<Message>) -> Reply {
        Reply::new(status, HeaderMap::new(), ReplyBody::Full(body.into()))
    }

    /// JSON text; a line end is added, as CouchDB does.
    pub fn json(status: StatusCode, text: impl Into<Vec<u8>>) -> Reply {
        let mut text = text.into();
        text.push(b'\n');
        Reply::full(status, Bytes::from(text))
    }

    /// JSON text in parts; a line end is added.
    pub fn json_parts(status: StatusCode, parts: impl IntoIterator<Item = Bytes>) -> Reply {
        Reply::full(status, parts.into_iter().chain([Bytes::from_static(b"\n")]).collect::<Message>())
    }

    /// JSON made by `serde_json`: for small answers of the server.
    pub fn value(status: StatusCode, value: &serde_json::Value) -> Reply {
        Reply::json(status, value.to_string())
    }

    /// `{"ok":true}`.
    pub fn ok(status: StatusCode) -> Reply {
        Reply::json(status, "{\"ok\":true}")
    }

    /// No body.
    pub fn empty(status: StatusCode) -> Reply {
        Reply::full(status, Bytes::new())
    }

    /// 304 for `etag` (with its quotes).
    pub fn not_modified(etag: &str) -> Reply {
        Reply::empty(StatusCode::NOT_MODIFIED).etag(etag)
    }

    /// A redirect to a path or URL.
    pub fn redirect(status: StatusCode, to: &str) -> Reply {
        Reply::empty(status).header(LOCATION, to)
    }

    /// Bytes of a type that is not negotiated.
    pub fn typed(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Reply {
        Reply::full(status, body.into()).header(http::header::CONTENT_TYPE, content_type)
    }

    /// A stream of chunks, 200 unless changed.
    pub fn stream(chunks: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Reply {
        Reply::new(StatusCode::OK, HeaderMap::new(), ReplyBody::Stream(Box::pin(chunks)))
    }

    /// A body written by `make` into a [`ChunkSink`] while the client reads: `make` waits when the client is slow and
    /// is dropped when the client is gone. It runs inside the connection's own task.
    pub fn generate<F, Fut>(make: F) -> Reply
    where
        F: FnOnce(ChunkSink) -> Fut,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(limits::HTTP_REPLY_CHUNKS);
        let gathered = Arc::new(Mutex::new(Vec::new()));
        let held = Arc::<Held>::default();
        let future = make(ChunkSink { sender, gathered: gathered.clone(), held: Arc::clone(&held) });
        let (front, given) = (Bytes::new(), 0);
        let future = Some(Box::pin(future) as _);
        let made = Generated { future, receiver, gathered, failure: None, held: Arc::clone(&held), front, given };
        Reply { held: Some(held), ..Reply::stream(made) }
    }

    /// Waits until a streamed body has its first bytes, or its end: what fails before is answered as any failure, not
    /// as a body that breaks off.
    ///
    /// # Errors
    /// That failure.
    pub async fn begun(self) -> Result<Reply> {
        let ReplyBody::Stream(mut chunks) = self.body else { return Ok(self) };
        let first = chunks.try_next().await?;
        let chunks = futures_util::stream::iter(first.map(Ok)).chain(chunks);
        Ok(Reply { body: ReplyBody::Stream(Box::pin(chunks)), ..self })
    }

    /// Sets a header; a value that no header can hold is left out.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: &str) -> Reply {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets `ETag`; `etag` has its quotes.
    #[must_use]
    pub fn etag(self, etag: &str) -> Reply {
        self.header(ETAG, etag)
    }

    /// Sets `Location` to the absolute URL of `segments`.
    #[must_use]
    pub fn location(self, request: &Request, segments: &[&str]) -> Reply {
        let url = request.location(segments);
        self.header(LOCATION, &url)
    }

    /// Changes the status.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Reply {
        self.status = status;
        self
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Reply {
        let body = ReplyBody::Full(problem.body().into());
        Reply::new(problem.status, problem.headers.into_iter().collect(), body)
    }
}

/// Where a generated body is written to. Small writes are gathered into chunks; what is gathered when the making ends
/// is sent as the last chunk.
#[derive(Debug)]
pub struct ChunkSink {
    sender: mpsc::Sender<Bytes>,
    gathered: Arc<Mutex<Vec<u8>>>,
    held: Arc<Held>,
}

impl ChunkSink {
    /// The page of rows that was written is done with: waits until there is memory for the next one. `shows_docs`: its
    /// rows come with documents.
    pub async fn room(&self, shows_docs: bool) -> Result<()> {
        self.held.room(shows_docs).await
    }

    /// What the body holds: for a wait beside which something is written.
    pub fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held)
    }

    /// A page was read that takes so many bytes until it is written.
    pub fn page(&self, bytes: usize) {
        self.held.page(bytes);
    }

    async fn hand_on(&self, chunk: Bytes) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.held.written(chunk.len());
        self.sender.send(chunk).await.map_err(|_| gone())
    }

    /// Adds bytes; waits when the client has not taken what was written before.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let full = {
            let mut gathered = lock(&self.gathered);
            gathered.extend_from_slice(bytes);
            weigh("memory of what an answer gathers", gathered.len(), limits::HTTP_CHUNK_BYTES + bytes.len());
            gathered.len() >= limits::HTTP_CHUNK_BYTES
        };
        if full { self.flush().await } else { Ok(()) }
    }

    /// Sends what is gathered at once: for feeds whose rows must not wait.
    pub async fn flush(&mut self) -> Result<()> {
        let chunk = std::mem::take(&mut *lock(&self.gathered));
        self.hand_on(chunk.into()).await
    }

    /// Sends a chunk as it is, after what was gathered.
    pub async fn send(&mut self, chunk: Bytes) -> Result<()> {
        self.flush().await?;
        self.hand_on(chunk).await
    }
}

fn gone() -> Problem {
    Problem::unavailable("The client is gone.")
}

/// Drives a generating future and yields what it writes.
struct Generated {
    future: Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>>,
    receiver: mpsc::Receiver<Bytes>,
    gathered: Arc<Mutex<Vec<u8>>>,
    /// Why the making failed: told after all that was written before.
    failure: Option<Problem>,
    held: Arc<Held>,
    /// What is left of a chunk: handed on in small pieces, so that the connection buffers no more than one of them.
    front: Bytes,
    /// Bytes of the piece that was handed on last: the client has taken it when the next one is asked for.
    given: usize,
}

impl Generated {
    fn piece(&mut self, chunk: Bytes) -> Poll<Option<Result<Bytes>>> {
        self.front = chunk;
        self.next_piece()
    }

    fn next_piece(&mut self) -> Poll<Option<Result<Bytes>>> {
        let piece = piece(&mut self.front);
        self.given = piece.len();
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Stream for Generated {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let given = std::mem::take(&mut self.given);
        if given > 0 {
            self.held.taken(given);
        }
        if !self.front.is_empty() {
            return self.next_piece();
        }
        if self.receiver.is_empty()
            && let Some(future) = &mut self.future
            && let Poll::Ready(done) = future.as_mut().poll(cx)
        {
            self.future = None;
            if let Err(problem) = done {
                lock(&self.gathered).clear();
                self.failure = Some(problem);
            }
        }
        // It writes while it is polled, nowhere else: a task that waited at the receiver, too, would be woken by that
        // for nothing, and another thread with it.
        match self.receiver.try_recv() {
            Ok(chunk) => self.piece(chunk),
            Err(_) if self.future.is_some() => Poll::Pending,
            Err(_) if self.failure.is_some() => Poll::Ready(self.failure.take().map(Err)),
            Err(_) => {
                let last = std::mem::take(&mut *lock(&self.gathered));
                if last.is_empty() {
                    return Poll::Ready(None);
                }
                self.held.written(last.len());
                self.piece(last.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use bytes::Bytes;
    use futures_util::{FutureExt, StreamExt};

    use super::{Problem, Reply, ReplyBody, encode_segment};

    fn chunks(reply: Reply) -> Vec<super::Result<Bytes>> {
        let ReplyBody::Stream(stream) = reply.body else { panic!("a stream") };
        stream.collect::<Vec<_>>().now_or_never().expect("nothing to wait for")
    }

    #[test]
    fn a_generated_body_arrives_whole_and_in_order() {
        let reply = Reply::generate(|mut out| async move {
            for n in 0..50_000 {
                out.write(format!("{n},").as_bytes()).await?;
            }
            out.send(Bytes::from_static(b"end,")).await?;
            out.write(b"tail").await
        });
        let all: Vec<u8> = chunks(reply).into_iter().flat_map(|c| c.unwrap().to_vec()).collect();
        let expected: String = (0..50_000).map(|n| format!("{n},")).collect::<String>() + "end,tail";
        assert_eq!(all, expected.as_bytes());
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_sends_a_body_that_is_there_is_not_woken_for_its_chunks() {
        let reply = Reply::generate(|mut out| async move {
            out.write(b"first").await?;
            out.flush().await?;
            out.write(b"second").await
        });
        let ReplyBody::Stream(mut stream) = reply.body else { panic!("a stream") };
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut next = || stream.poll_next_unpin(&mut Context::from_waker(&waker));
        assert_eq!(next(), Poll::Ready(Some(Ok(Bytes::from_static(b"first")))));
        assert_eq!(next(), Poll::Ready(Some(Ok(Bytes::from_static(b"second")))));
        assert_eq!(next(), Poll::Ready(None));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_failure_ahead_of_the_first_bytes_is_an_answer_of_its_own() {
        let begun = |text: &'static str| {
            let reply = Reply::generate(move |mut out| async move {
                out.write(text.as_bytes()).await?;
                out.flush().await?;
                Err(Problem::internal("broken"))
            });
            reply.begun().now_or_never().expect("nothing to wait for")
        };
        assert_eq!(begun("").unwrap_err().reason, "broken");
        let all = chunks(begun("some").unwrap());
        assert_eq!((all.len(), &all[0]), (2, &Ok(Bytes::from_static(b"some"))));
    }

    #[test]
    fn a_failure_cuts_the_body() {
        let reply = Reply::generate(|mut out| async move {
            out.write(b"some").await?;
            out.flush().await?;
            out.write(b"lost").await?;
            Err(Problem::internal("broken"))
        });
        let all = chunks(reply);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], Ok(Bytes::from_static(b"some")));
        assert!(all[1].is_err());
    }

    #[test]
    fn locations_are_encoded_in_full() {
        assert_eq!(encode_segment("_design/d x+_$():"), "_design%2Fd%20x%2B_%24%28%29:");
    }
}
