//! Request bodies: a stream of chunks under a limit, unzipped where the client says gzip.
//!
//! A body is read at the pace of the handler: nothing is taken from the socket before it is asked for, so an upload
//! that nobody reads costs one buffer. Every read has the slow-client timeout of the server.

use std::io::Write;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use tokio::sync::oneshot;

use super::admission::AtWork;
use super::bodies::{Bodies, Share};
use super::json_meter::JsonMeter;
use super::problem::{Problem, Result};
use crate::document::json::{self, Value};
use crate::limits;
use crate::world::{Env, Pool};

/// What a body is read from: chunks as they come from the connection.
pub type ChunkSource = Pin<Box<dyn Stream<Item = std::result::Result<Bytes, String>> + Send>>;

/// The body of a request. Read it once, by chunks or as a whole.
pub struct RequestBody {
    /// Never locked: the mutex lets handlers share a request between threads.
    source: Option<Mutex<ChunkSource>>,
    env: Option<Env>,
    /// `Content-Length` as sent, before unzipping.
    length: Option<u64>,
    /// Whether the request's headers speak of no body.
    absent: bool,
    inflater: Option<Inflater>,
    /// What is not unzipped yet of the last chunk: done in small steps, since a chunk may grow a thousandfold.
    zipped: Bytes,
    /// What is left of an unzipped step.
    left: BytesMut,
    read_bytes: u64,
    limit_bytes: u64,
    /// Bytes of a JSON text in it at most.
    json_bytes: u64,
    /// What who reads it is told.
    refused: Option<Problem>,
    /// What this one holds of the memory of all bodies; `None` for one that does not count.
    held: Option<Share>,
    /// Time that the client was waited for.
    waited: Duration,
    /// Who gets what is left of it.
    unread: Option<oneshot::Sender<Left>>,
    /// The request, where its turn begins once the body is there.
    at_work: Option<Arc<AtWork>>,
}

/// What is left of a body when its handler is done.
pub struct Left {
    /// What was not read.
    pub source: Option<ChunkSource>,
    /// The memory that what was made of it takes: the answer may need that to its end.
    pub held: Option<Share>,
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take() {
            let source = self.source.take().map(|source| source.into_inner().unwrap_or_else(PoisonError::into_inner));
            // Nobody waits for it when the request was cancelled.
            let _ = unread.send(Left { source, held: self.held.take() });
        }
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestBody({:?} bytes)", self.length)
    }
}

impl RequestBody {
    /// A body from the connection; without a limit until [`RequestBody::limit`] sets one.
    pub fn new(env: Env, source: ChunkSource, length: Option<u64>) -> RequestBody {
        RequestBody {
            source: Some(Mutex::new(source)),
            env: Some(env),
            length,
            absent: false,
            inflater: None,
            zipped: Bytes::new(),
            left: BytesMut::new(),
            read_bytes: 0,
            limit_bytes: u64::MAX,
            json_bytes: limits::HTTP_JSON_BODY_BYTES,
            refused: None,
            held: None,
            waited: Duration::ZERO,
            unread: None,
            at_work: None,
        }
    }

    /// A body that is already here.
    pub fn full(bytes: impl Into<Bytes>) -> RequestBody {
        let bytes = bytes.into();
        RequestBody {
            length: Some(bytes.len() as u64),
            absent: false,
            source: Some(Mutex::new(Box::pin(futures_util::stream::iter([Ok(bytes)])))),
            env: None,
            inflater: None,
            zipped: Bytes::new(),
            left: BytesMut::new(),
            read_bytes: 0,
            limit_bytes: u64::MAX,
            json_bytes: limits::HTTP_JSON_BODY_BYTES,
            refused: None,
            held: None,
            waited: Duration::ZERO,
            unread: None,
            at_work: None,
        }
    }

    /// A body that is already here and comes in chunks of this size.
    #[cfg(test)]
    pub fn in_chunks(data: &[u8], size: usize) -> RequestBody {
        let chunks: Vec<_> = data.chunks(size).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let source: ChunkSource = Box::pin(futures_util::stream::iter(chunks));
        let mut body = RequestBody::full("");
        body.source = Some(Mutex::new(source));
        body
    }

    /// `Content-Length` as sent; `None` for a chunked body.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Bytes that were read of it, as sent.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// A body that the request's headers do not speak of: with neither a length nor an encoding of transfer.
    #[must_use]
    pub fn absent(mut self, absent: bool) -> RequestBody {
        self.absent = absent;
        self
    }

    /// Whether the request's headers speak of no body; an empty one that they speak of is one.
    pub fn is_absent(&self) -> bool {
        self.absent
    }

    /// Sets the largest body as sent, in bytes. What is larger is refused when it is read, not before: a body that
    /// nobody reads does no harm.
    pub fn limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        if self.length.is_some_and(|length| length > limit_bytes) {
            self.refuse(Problem::body_too_large());
        }
    }

    /// Lets a JSON text in it be as large as a document may be.
    pub fn take_documents(&mut self, document_bytes: u64) {
        let with_members = document_bytes.saturating_add(limits::HTTP_DOCUMENT_MEMBERS_BYTES);
        self.json_bytes = with_members.clamp(limits::HTTP_JSON_BODY_BYTES, limits::HTTP_JSON_BODY_BYTES_MAX);
    }

    /// Bytes of a JSON text in it at most.
    pub fn json_limit(&self) -> u64 {
        self.json_bytes
    }

    /// Who reads the body is told this instead; of several the first.
    pub fn refuse(&mut self, problem: Problem) {
        self.refused.get_or_insert(problem);
    }

    /// Hands what is left to `unread` when the body is dropped.
    #[must_use]
    pub fn return_to(mut self, unread: oneshot::Sender<Left>) -> RequestBody {
        self.unread = Some(unread);
        self
    }

    /// Bodies read as a whole share `budget` with those of other requests.
    #[must_use]
    pub fn within(mut self, bodies: Arc<Bodies>, address: IpAddr) -> RequestBody {
        self.held = Some(Share::none(bodies, address));
        self
    }

    /// The turn of the request begins once the body is there.
    pub fn begin_then(&mut self, at_work: Arc<AtWork>) {
        self.at_work = Some(at_work);
    }

    /// From now on, chunks are unzipped.
    pub fn inflate(&mut self) {
        self.inflater = Some(Inflater::new());
    }

    /// The next chunk, of at most a few 64 KB; `None` at the end.
    ///
    /// # Errors
    /// What [`RequestBody::refuse`] was told; 413 beyond the limit, 400 for a cut body or one that is not gzip, 408
    /// when the client sends nothing for long, 503 and 429 where the request has no turn in time.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        self.check()?;
        loop {
            if !self.left.is_empty() {
                let size = self.left.len().min(limits::HTTP_CHUNK_BYTES);
                return Ok(Some(self.left.split_to(size).freeze()));
            }
            if let (Some(inflater), false) = (&mut self.inflater, self.zipped.is_empty()) {
                let step = self.zipped.split_to(self.zipped.len().min(limits::HTTP_INFLATE_STEP_BYTES));
                self.left = inflater.push(&step)?;
                continue;
            }
            let Some(chunk) = self.read_source().await? else {
                return match self.inflater.take() {
                    Some(inflater) => {
                        self.left = inflater.finish()?;
                        if self.left.is_empty() { Ok(None) } else { continue }
                    }
                    None => Ok(None),
                };
            };
            if self.inflater.is_none() {
                return Ok(Some(chunk));
            }
            self.zipped = chunk;
        }
    }

    fn check(&self) -> Result<()> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// What was read, with what is made of it, takes `size` now.
    ///
    /// # Errors
    /// 503 when too much memory is taken by other bodies for long.
    pub async fn reserve(&mut self, size: u64) -> Result<()> {
        match &mut self.held {
            Some(held) => held.grow(self.env.as_ref(), size).await,
            None => Ok(()),
        }
    }

    /// All was read and takes `size`: the rest goes back.
    pub(super) fn settle(&mut self, size: u64) {
        if let Some(held) = &mut self.held {
            held.shrink(size);
        }
    }

    /// How long the client may take for the next bytes: a body that takes memory has to come at some rate.
    fn patience(&self) -> Duration {
        let idle = Duration::from_millis(limits::HTTP_BODY_IDLE_MS);
        if self.held.as_ref().is_none_or(Share::is_empty) {
            return idle;
        }
        let earned = Duration::from_millis(self.read_bytes.saturating_mul(1000) / limits::HTTP_BODY_RATE_MIN);
        idle.min((limits::HTTP_BODY_GRACE + earned).saturating_sub(self.waited))
    }

    async fn read_source(&mut self) -> Result<Option<Bytes>> {
        let patience = self.patience();
        let Some(source) = &mut self.source else { return Ok(None) };
        let source = source.get_mut().unwrap_or_else(PoisonError::into_inner);
        let read = match &self.env {
            Some(env) => {
                let began = env.now();
                let read = env.timeout(patience, source.next()).await.map_err(|_| too_slow())?;
                self.waited += env.now().since(began);
                read
            }
            None => source.next().await,
        };
        match read {
            Some(Ok(chunk)) => {
                self.read_bytes += chunk.len() as u64;
                if self.read_bytes > self.limit_bytes {
                    return Err(Problem::body_too_large());
                }
                Ok(Some(chunk))
            }
            Some(Err(_)) => Err(Problem::bad_request("The request body ended too early.")),
            None => {
                self.source = None;
                if let Some(at_work) = self.at_work.take() {
                    at_work.begin().await?;
                }
                Ok(None)
            }
        }
    }

    /// The whole body, of at most `limit_bytes` after unzipping: 413 `too_large` beyond it, 503 when too much memory is
    /// taken by other bodies for long.
    pub async fn bytes(&mut self, limit_bytes: u64) -> Result<Bytes> {
        let mut size = 0;
        let weigh = |chunk: &[u8]| -> Result<u64> {
            size += chunk.len() as u64;
            Ok(size)
        };
        self.read_whole(limit_bytes, weigh).await
    }

    /// As [`RequestBody::bytes`], for a JSON text that is going to be parsed: the values count as `meter` says.
    ///
    /// # Errors
    /// As those of [`RequestBody::bytes`]; 413 also for values that take more than `limits::JSON_VALUES_BYTES_MAX`.
    pub async fn json_bytes(&mut self, limit_bytes: u64, mut meter: JsonMeter) -> Result<Bytes> {
        self.read_whole(limit_bytes, |chunk| meter.push(chunk)).await
    }

    /// Parses what was read of it; a long text on a thread for work that lasts.
    ///
    /// # Errors
    /// 400 for what is no JSON.
    pub async fn parse(&self, text: Bytes) -> Result<Value> {
        let text_len = text.len();
        let parse = move || json::parse(&text).map_err(|_| Problem::unread_json(&text));
        self.lasting(text_len, parse).await
    }

    /// Does what takes some milliseconds for each MB of a text on a thread for that, where the text is long.
    pub async fn lasting<T: Send + 'static>(&self, bytes: usize, job: impl FnOnce() -> T + Send + 'static) -> T {
        match &self.env {
            Some(env) if bytes > limits::JSON_HERE_BYTES => env.blocking(Pool::Foreground, job).await,
            _ => job(),
        }
    }

    /// Bytes to make room for at once: a buffer that grows is in memory twice each time.
    fn room(&self, limit_bytes: u64) -> usize {
        let told = self.length.filter(|_| self.inflater.is_none()).unwrap_or_default();
        usize::try_from(told.min(limit_bytes).min(limits::HTTP_BODY_ROOM_BYTES)).unwrap_or_default()
    }

    /// `weigh` gets each chunk and tells what all so far takes in memory.
    async fn read_whole(&mut self, limit_bytes: u64, mut weigh: impl FnMut(&[u8]) -> Result<u64>) -> Result<Bytes> {
        self.check()?;
        // One chunk, however small it may be: who sends nothing more has to come at some rate.
        self.reserve(1).await?;
        let mut taken = 0;
        let mut whole = BytesMut::new();
        let mut first: Option<Bytes> = None;
        while let Some(chunk) = self.next_chunk().await? {
            let size = first.as_ref().map_or(whole.len(), Bytes::len) as u64 + chunk.len() as u64;
            if size > limit_bytes {
                return Err(Problem::body_too_large());
            }
            taken = weigh(&chunk)?;
            self.reserve(taken).await?;
            match first.take() {
                None if whole.is_empty() => first = Some(chunk),
                None => whole.extend_from_slice(&chunk),
                Some(head) => {
                    whole.reserve(self.room(limit_bytes));
                    whole.extend_from_slice(&head);
                    whole.extend_from_slice(&chunk);
                }
            }
        }
        self.settle(taken);
        Ok(first.unwrap_or_else(|| whole.freeze()))
    }
}

fn too_slow() -> Problem {
    Problem::new(http::StatusCode::REQUEST_TIMEOUT, "timeout", "The request body stopped.")
}

/// Unzips gzip incrementally.
struct Inflater(flate2::write::MultiGzDecoder<Vec<u8>>);

impl Inflater {
    fn new() -> Inflater {
        Inflater(flate2::write::MultiGzDecoder::new(Vec::new()))
    }

    fn not_gzip() -> Problem {
        Problem::bad_request("Request body is not properly gzipped.")
    }

    fn push(&mut self, step: &[u8]) -> Result<BytesMut> {
        self.0.write_all(step).map_err(|_| Inflater::not_gzip())?;
        let out = BytesMut::from(self.0.get_ref().as_slice());
        self.0.get_mut().clear();
        Ok(out)
    }

    fn finish(mut self) -> Result<BytesMut> {
        self.0.try_finish().map_err(|_| Inflater::not_gzip())?;
        Ok(BytesMut::from(self.0.get_ref().as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use bytes::Bytes;
    use flate2::{Compression, write::GzEncoder};
    use futures_util::{FutureExt, StreamExt};

    use super::{Bodies, JsonMeter, RequestBody};

    fn in_pieces(data: &[u8], size: usize) -> RequestBody {
        let chunks: Vec<_> = data.chunks(size).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let mut body = RequestBody::full("");
        body.source = Some(Mutex::new(Box::pin(futures_util::stream::iter(chunks))));
        body
    }

    fn whole(body: &mut RequestBody, limit: u64) -> super::Result<Bytes> {
        body.bytes(limit).now_or_never().expect("a body in memory is never pending")
    }

    #[test]
    fn gzip_is_undone_at_any_chunk_size() {
        let text = "a document ".repeat(20_000);
        let mut zip = GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(text.as_bytes()).unwrap();
        let zipped = zip.finish().unwrap();
        for size in [1, 7, 64, 100_000] {
            let mut body = in_pieces(&zipped, size);
            body.inflate();
            assert_eq!(whole(&mut body, 1 << 20).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn a_body_that_is_not_gzip_or_is_cut_is_refused() {
        let mut zip = GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(b"{\"a\":1}").unwrap();
        let zipped = zip.finish().unwrap();
        for bad in [&b"{\"a\":1}"[..], &zipped[..zipped.len() - 3], b""] {
            let mut body = in_pieces(bad, 64);
            body.inflate();
            let problem = whole(&mut body, 1 << 20).unwrap_err();
            assert_eq!(problem.reason, "Request body is not properly gzipped.");
        }
    }

    const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn json_of_many_tiny_values_takes_what_its_values_take() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        runtime.block_on(async {
            let bodies = Bodies::new();
            let all = bodies.free();
            let body = |text: &str| {
                let source = Box::pin(futures_util::stream::iter([Ok(Bytes::from(text.to_owned()))]));
                RequestBody::new(env.clone(), source, Some(text.len() as u64)).within(bodies.clone(), HERE)
            };
            let mut long = body(&format!("[\"{}\"]", "x,".repeat(500_000)));
            long.json_bytes(2 << 20, JsonMeter::default()).await.unwrap();
            assert_eq!(all - bodies.free(), 16, "a string counts by its length");
            drop(long);
            let mut tiny = body(&format!("[{}1]", "1,".repeat(500_000)));
            tiny.json_bytes(2 << 20, JsonMeter::default()).await.unwrap();
            let taken = (all - bodies.free()) * crate::limits::HTTP_CHUNK_BYTES;
            assert!(taken >= 500_000 * crate::limits::JSON_TOKEN_BYTES as usize, "{taken} bytes");
            drop(tiny);
            assert_eq!(bodies.free(), all);
        });
    }

    #[test]
    fn a_body_that_was_announced_and_does_not_come_takes_no_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        runtime.block_on(async {
            let bodies = Bodies::new();
            let all = bodies.free();
            let chunks = futures_util::stream::iter([Ok(Bytes::from_static(b"{"))]);
            let source = Box::pin(chunks.chain(futures_util::stream::pending()));
            let mut body = RequestBody::new(env, source, Some(60_000_000)).within(bodies.clone(), HERE);
            assert!(body.json_bytes(64 << 20, JsonMeter::default()).now_or_never().is_none());
            assert_eq!(all - bodies.free(), 1);
            assert!(body.patience() <= crate::limits::HTTP_BODY_GRACE + std::time::Duration::from_secs(1));
        });
    }

    #[test]
    fn limits_hold_for_sent_and_for_unzipped_bytes() {
        assert_eq!(whole(&mut in_pieces(b"123456", 2), 5).unwrap_err().error, "too_large");
        assert_eq!(whole(&mut in_pieces(b"123456", 2), 6).unwrap(), "123456");
        let mut body = in_pieces(b"123456", 2);
        body.limit_bytes = 3;
        assert_eq!(whole(&mut body, 100).unwrap_err().status, 413);
    }
}
