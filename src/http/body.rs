//! Request bodies: a stream of chunks under a limit, unzipped where the client says gzip.
//!
//! A body is read at the pace of the handler: nothing is taken from the socket before it is asked for, so an upload
//! that nobody reads costs one buffer. Every read has the slow-client timeout of the server.

use std::io::Write;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use tokio::sync::oneshot;

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
    inflater: Option<Inflater>,
    /// What is not unzipped yet of the last chunk: done in small steps, since a chunk may grow a thousandfold.
    zipped: Bytes,
    /// What is left of an unzipped step.
    left: BytesMut,
    read_bytes: u64,
    limit_bytes: u64,
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
    /// A body from the connection. `limit_bytes` is that of `chttpd/max_http_request_size`, counted as sent.
    pub fn new(env: Env, source: ChunkSource, length: Option<u64>, limit_bytes: u64) -> RequestBody {
        RequestBody {
            source: Some(Mutex::new(source)),
            env: Some(env),
            length,
            inflater: None,
            zipped: Bytes::new(),
            left: BytesMut::new(),
            read_bytes: 0,
            limit_bytes,
            unread: None,
        }
    }

    /// A body that is already here.
    pub fn full(bytes: impl Into<Bytes>) -> RequestBody {
        let bytes = bytes.into();
        RequestBody {
            length: Some(bytes.len() as u64),
            source: Some(Mutex::new(Box::pin(futures_util::stream::iter([Ok(bytes)])))),
            env: None,
            inflater: None,
            zipped: Bytes::new(),
            left: BytesMut::new(),
            read_bytes: 0,
            limit_bytes: u64::MAX,
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

    /// Largest body as sent, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Hands what is left unread to `unread` when the body is dropped.
    #[must_use]
    pub fn return_to(mut self, unread: oneshot::Sender<ChunkSource>) -> RequestBody {
        self.unread = Some(unread);
        self
    }

    /// From now on, chunks are unzipped.
    pub fn inflate(&mut self) {
        self.inflater = Some(Inflater::new());
    }

    /// The next chunk, of at most a few 64 KB; `None` at the end.
    ///
    /// # Errors
    /// 413 beyond the limit, 400 for a cut body or one that is not gzip, 408 when the client sends nothing for long.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
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

    /// The whole body, of at most `limit_bytes` after unzipping: 413 `too_large` beyond it.
    pub async fn bytes(&mut self, limit_bytes: u64) -> Result<Bytes> {
        let mut whole = BytesMut::new();
        let mut first: Option<Bytes> = None;
        while let Some(chunk) = self.next_chunk().await? {
            let size = first.as_ref().map_or(whole.len(), Bytes::len) as u64 + chunk.len() as u64;
            if size > limit_bytes {
                return Err(Problem::body_too_large());
            }
            match first.take() {
                None if whole.is_empty() => first = Some(chunk),
                None => whole.extend_from_slice(&chunk),
                Some(head) => {
                    whole.extend_from_slice(&head);
                    whole.extend_from_slice(&chunk);
                }
            }
        }
        Ok(first.unwrap_or_else(|| whole.freeze()))
    }
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
    fn limits_hold_for_sent_and_for_unzipped_bytes() {
        assert_eq!(whole(&mut in_pieces(b"123456", 2), 5).unwrap_err().error, "too_large");
        assert_eq!(whole(&mut in_pieces(b"123456", 2), 6).unwrap(), "123456");
        let mut body = in_pieces(b"123456", 2);
        body.limit_bytes = 3;
        assert_eq!(whole(&mut body, 100).unwrap_err().status, 413);
    }
}
