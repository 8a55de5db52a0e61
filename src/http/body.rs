//! Request bodies: a stream of chunks under a limit, unzipped where the client says gzip.
//!
//! A body is read at the pace of the handler: nothing is taken from the socket before it is asked for, so an upload
//! that nobody reads costs one buffer. Every read has the slow-client timeout of the server.

use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::json_meter::JsonMeter;
use super::problem::{Problem, Result};
use crate::limits;
use crate::world::Env;

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
    /// What bodies held in memory share, in units of `limits::HTTP_CHUNK_BYTES`; and what this one has of it.
    budget: Option<Arc<Semaphore>>,
    held: Option<OwnedSemaphorePermit>,
    /// Who gets what was not read.
    unread: Option<oneshot::Sender<ChunkSource>>,
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(source), Some(unread)) = (self.source.take(), self.unread.take()) {
            // Nobody waits for it when the request was cancelled.
            let _ = unread.send(source.into_inner().unwrap_or_else(PoisonError::into_inner));
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
            budget: None,
            held: None,
            unread: None,
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
            budget: None,
            held: None,
            unread: None,
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

    /// Hands what is left unread to `unread` when the body is dropped.
    #[must_use]
    pub fn return_to(mut self, unread: oneshot::Sender<ChunkSource>) -> RequestBody {
        self.unread = Some(unread);
        self
    }

    /// Bodies read as a whole share `budget` with those of other requests.
    #[must_use]
    pub fn within(mut self, budget: Arc<Semaphore>) -> RequestBody {
        self.budget = Some(budget);
        self
    }

    /// From now on, chunks are unzipped.
    pub fn inflate(&mut self) {
        self.inflater = Some(Inflater::new());
    }

    /// The next chunk, of at most a few 64 KB; `None` at the end.
    ///
    /// # Errors
    /// What [`RequestBody::refuse`] was told; 413 beyond the limit, 400 for a cut body or one that is not gzip, 408
    /// when the client sends nothing for long.
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

    /// What the whole body will probably take with the values that are made of it; of unknown size: something.
    fn expected_bytes(&self, limit_bytes: u64, times: u64) -> u64 {
        match self.length {
            Some(length) if self.inflater.is_none() => length.min(limit_bytes).saturating_mul(times),
            _ => limits::HTTP_UNSIZED_BODY_BYTES.min(limit_bytes.saturating_mul(times)),
        }
    }

    /// Takes `size` before any of it is read: who waits here holds nothing that others wait for.
    async fn reserve(&mut self, size: u64) -> Result<()> {
        self.check()?;
        let (Some(budget), Some(env), None) = (&self.budget, &self.env, &self.held) else { return Ok(()) };
        let units = units(size);
        let wait = Duration::from_millis(limits::HTTP_BODY_WAIT_MS);
        match env.timeout(wait, Arc::clone(budget).acquire_many_owned(units)).await {
            Ok(Ok(held)) => {
                self.held = Some(held);
                Ok(())
            }
            _ => Err(Problem::unavailable("Too many large requests at once.")),
        }
    }

    /// Takes something for a part of the body of unknown size.
    ///
    /// # Errors
    /// 503 when too much memory is taken by other bodies for long.
    pub(super) async fn reserve_part(&mut self) -> Result<()> {
        self.reserve(limits::HTTP_UNSIZED_BODY_BYTES).await
    }

    /// What was read takes `size` now; it must not wait, since it holds what others may wait for.
    ///
    /// # Errors
    /// 503 when that much is not left.
    pub(super) fn reserve_more(&mut self, size: u64) -> Result<()> {
        let (Some(budget), Some(held)) = (&self.budget, &mut self.held) else { return Ok(()) };
        let missing = units(size).saturating_sub(u32::try_from(held.num_permits()).unwrap_or(u32::MAX));
        if missing > 0 {
            let more = Arc::clone(budget).try_acquire_many_owned(missing);
            held.merge(more.map_err(|_| Problem::unavailable("Too many large requests at once."))?);
        }
        Ok(())
    }

    /// All was read and takes `size`: the rest goes back.
    pub(super) fn settle(&mut self, size: u64) {
        let Some(held) = &mut self.held else { return };
        drop(held.split(held.num_permits().saturating_sub(units(size) as usize)));
    }

    async fn read_source(&mut self) -> Result<Option<Bytes>> {
        let Some(source) = &mut self.source else { return Ok(None) };
        let source = source.get_mut().unwrap_or_else(PoisonError::into_inner);
        let read = match &self.env {
            Some(env) => env
                .timeout(Duration::from_millis(limits::HTTP_BODY_IDLE_MS), source.next())
                .await
                .map_err(|_| Problem::new(http::StatusCode::REQUEST_TIMEOUT, "timeout", "The request body stopped."))?,
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
                Ok(None)
            }
        }
    }

    /// The whole body, of at most `limit_bytes` after unzipping: 413 `too_large` beyond it, 503 when too much memory is
    /// taken by other bodies for long.
    pub async fn bytes(&mut self, limit_bytes: u64) -> Result<Bytes> {
        self.reserve(self.expected_bytes(limit_bytes, 1)).await?;
        let mut size = 0;
        let weigh = |chunk: &[u8]| -> Result<u64> {
            size += chunk.len() as u64;
            Ok(size)
        };
        self.read_whole(limit_bytes, weigh).await
    }

    /// As [`RequestBody::bytes`], for a JSON text that is going to be parsed: the values count as well.
    ///
    /// # Errors
    /// As those of [`RequestBody::bytes`]; 413 also for more than `limits::JSON_TOKENS_MAX` values.
    pub async fn json_bytes(&mut self, limit_bytes: u64) -> Result<Bytes> {
        self.reserve(self.expected_bytes(limit_bytes, limits::JSON_MEMORY_FACTOR)).await?;
        let mut meter = JsonMeter::default();
        self.read_whole(limit_bytes, |chunk| meter.push(chunk)).await
    }

    /// `weigh` gets each chunk and tells what all so far takes in memory.
    async fn read_whole(&mut self, limit_bytes: u64, mut weigh: impl FnMut(&[u8]) -> Result<u64>) -> Result<Bytes> {
        let mut taken = 0;
        let mut whole = BytesMut::new();
        let mut first: Option<Bytes> = None;
        while let Some(chunk) = self.next_chunk().await? {
            let size = first.as_ref().map_or(whole.len(), Bytes::len) as u64 + chunk.len() as u64;
            if size > limit_bytes {
                return Err(Problem::body_too_large());
            }
            taken = weigh(&chunk)?;
            self.reserve_more(taken)?;
            match first.take() {
                None if whole.is_empty() => first = Some(chunk),
                None => whole.extend_from_slice(&chunk),
                Some(head) => {
                    whole.extend_from_slice(&head);
                    whole.extend_from_slice(&chunk);
                }
            }
        }
        self.settle(taken);
        Ok(first.unwrap_or_else(|| whole.freeze()))
    }
}

/// What bodies in memory share, for [`RequestBody::within`].
pub fn budget() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(units(limits::HTTP_BODIES_BYTES) as usize))
}

/// Units of the budget for this many bytes: at most all there are, so that the largest body waits for the others and
/// then goes alone.
fn units(bytes: u64) -> u32 {
    let units = bytes.min(limits::HTTP_BODIES_BYTES).div_ceil(limits::HTTP_CHUNK_BYTES as u64);
    u32::try_from(units).unwrap_or(u32::MAX)
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
    use futures_util::FutureExt;

    use super::RequestBody;

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

    #[test]
    fn bodies_share_their_memory_and_give_it_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        runtime.block_on(async {
            let budget = std::sync::Arc::new(tokio::sync::Semaphore::new(3));
            let body = |size: usize, sized: bool| {
                let data = vec![b'x'; size];
                let chunks: Vec<_> = data.chunks(50_000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
                let source = Box::pin(futures_util::stream::iter(chunks));
                let length = sized.then_some(size as u64);
                RequestBody::new(env.clone(), source, length).within(budget.clone())
            };
            let mut first = body(100_000, true);
            assert_eq!(first.bytes(1 << 20).await.unwrap().len(), 100_000);
            assert_eq!(budget.available_permits(), 1);
            assert!(body(100_000, true).bytes(1 << 20).now_or_never().is_none(), "it waits for its share");
            assert!(body(60_000, true).bytes(1 << 20).await.is_ok());
            drop(first);
            assert_eq!(budget.available_permits(), 3);
            // One of unknown size takes what it may come to, and is refused what there is no room for.
            assert!(body(100_000, false).bytes(150_000).await.is_ok());
            assert_eq!(body(250_000, false).bytes(190_000).await.unwrap_err().status, 413);
            assert_eq!(budget.available_permits(), 3);
        });
    }

    #[test]
    fn json_of_many_tiny_values_takes_what_its_values_take() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        runtime.block_on(async {
            let budget = super::budget();
            let all = budget.available_permits();
            let body = |text: &str| {
                let source = Box::pin(futures_util::stream::iter([Ok(Bytes::from(text.to_owned()))]));
                RequestBody::new(env.clone(), source, Some(text.len() as u64)).within(budget.clone())
            };
            let mut long = body(&format!("[\"{}\"]", "x,".repeat(500_000)));
            long.json_bytes(2 << 20).await.unwrap();
            assert_eq!(all - budget.available_permits(), 16, "a string counts by its length");
            drop(long);
            let mut tiny = body(&format!("[{}1]", "1,".repeat(500_000)));
            tiny.json_bytes(2 << 20).await.unwrap();
            let taken = (all - budget.available_permits()) * crate::limits::HTTP_CHUNK_BYTES;
            assert!(taken >= 500_000 * crate::limits::JSON_TOKEN_BYTES as usize, "{taken} bytes");
            drop(tiny);
            assert_eq!(budget.available_permits(), all);
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
