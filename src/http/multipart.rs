//! Reads `multipart/*` request bodies part by part, each as a stream of chunks (RFC 2046 section 5.1).
//!
//! Nothing is held but a piece of a part and a possible boundary at its end, so parts of any size cost no memory.

use bytes::{Bytes, BytesMut};

use super::body::RequestBody;
use super::json_meter::JsonMeter;
use super::problem::{Problem, Result};
use crate::limits;

/// The headers of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartHead(Vec<(String, String)>);

impl PartHead {
    /// The value of a header; `name` in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// A parameter of `Content-Disposition`, such as `name` or `filename`.
    pub fn disposition(&self, parameter: &str) -> Option<String> {
        header_parameter(self.get("content-disposition")?, parameter)
    }

    fn parse(text: &[u8]) -> PartHead {
        let text = String::from_utf8_lossy(text);
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        };
        PartHead(text.lines().filter_map(pair).collect())
    }
}

/// A parameter of a header value like `type; name="value"`; quotes and backslashes are undone.
pub fn header_parameter(value: &str, parameter: &str) -> Option<String> {
    let mut rest = value;
    loop {
        let at = unquoted_semicolon(rest)?;
        rest = rest[at + 1..].trim_start();
        let (name, text) = rest.split_once('=')?;
        if name.trim().eq_ignore_ascii_case(parameter) {
            return Some(unquote(text.trim_start()));
        }
    }
}

fn unquoted_semicolon(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().position(|byte| {
        let found = byte == b';' && !quoted;
        quoted ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && quoted && !escaped;
        found
    })
}

fn unquote(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"') else {
        return text.split(';').next().unwrap_or_default().trim_end().to_owned();
    };
    let mut out = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}

/// A multipart body being read.
pub struct Multipart<'a> {
    body: &'a mut RequestBody,
    /// Line end, two dashes and the boundary: what stands behind each part.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    in_part: bool,
    ended: bool,
}

impl<'a> Multipart<'a> {
    /// Begins to read a body of this `Content-Type`.
    ///
    /// # Errors
    /// 400 when it names no boundary.
    pub fn new(body: &'a mut RequestBody, content_type: &str) -> Result<Multipart<'a>> {
        let boundary = header_parameter(content_type, "boundary").filter(|b| !b.is_empty());
        let boundary = boundary.ok_or_else(|| Problem::bad_request("The multipart body has no boundary."))?;
        // The line end before the first boundary may be missing: it is put there.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Ok(Multipart { body, delimiter: format!("\r\n--{boundary}").into_bytes(), buffer, in_part: true, ended: false })
    }

    /// Skips what is left of the part before, and reads the headers of the next; `None` behind the last.
    ///
    /// # Errors
    /// 400 for a body that ends early or has headers without end, and those of reading.
    pub async fn next_part(&mut self) -> Result<Option<PartHead>> {
        while self.next_chunk().await?.is_some() {}
        if self.ended {
            return Ok(None);
        }
        self.fill(2).await?;
        if self.buffer.starts_with(b"--") {
            self.ended = true;
            return Ok(None);
        }
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            if self.buffer.len() > limits::HTTP_PART_HEAD_BYTES {
                return Err(Problem::bad_request("The headers of a part are too long."));
            }
            self.more().await?;
        };
        let head = PartHead::parse(&self.buffer.split_to(end));
        let _ = self.buffer.split_to(4);
        // An empty part may be followed by its boundary at once: the line end belongs to both.
        self.in_part = true;
        Ok(Some(head))
    }

    /// The next bytes of the part; `None` at its end.
    ///
    /// # Errors
    /// As [`Multipart::next_part`].
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        if !self.in_part {
            return Ok(None);
        }
        loop {
            if let Some(at) = find(&self.buffer, &self.delimiter) {
                if at > 0 {
                    return Ok(Some(self.buffer.split_to(at).freeze()));
                }
                let _ = self.buffer.split_to(self.delimiter.len());
                self.in_part = false;
                return Ok(None);
            }
            let certain = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            if certain > 0 {
                return Ok(Some(self.buffer.split_to(certain).freeze()));
            }
            self.more().await?;
        }
    }

    /// The rest of a part with a JSON text, as a whole. It takes its share of the memory of all bodies, with the values
    /// that are made of it, until the body is dropped.
    ///
    /// # Errors
    /// As [`RequestBody::json_bytes`].
    pub async fn json_bytes(&mut self, limit_bytes: u64) -> Result<Bytes> {
        self.body.reserve(1).await?;
        let (mut out, mut meter, mut taken) = (BytesMut::new(), JsonMeter::default(), 0);
        while let Some(chunk) = self.next_chunk().await? {
            if out.len() as u64 + chunk.len() as u64 > limit_bytes {
                return Err(Problem::body_too_large());
            }
            taken = meter.push(&chunk)?;
            self.body.reserve(taken).await?;
            out.extend_from_slice(&chunk);
        }
        self.body.settle(taken);
        Ok(out.freeze())
    }

    /// The rest of a part with a short text, of at most `limits::HTTP_PART_HEAD_BYTES`.
    ///
    /// # Errors
    /// 413 above that, and those of [`Multipart::next_chunk`].
    pub async fn short_bytes(&mut self) -> Result<Bytes> {
        let mut out = BytesMut::new();
        while let Some(chunk) = self.next_chunk().await? {
            if out.len() + chunk.len() > limits::HTTP_PART_HEAD_BYTES {
                return Err(Problem::body_too_large());
            }
            out.extend_from_slice(&chunk);
        }
        Ok(out.freeze())
    }

    async fn fill(&mut self, size: usize) -> Result<()> {
        while self.buffer.len() < size {
            self.more().await?;
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<()> {
        let chunk = self.body.next_chunk().await?;
        let chunk = chunk.ok_or_else(|| Problem::bad_request("The multipart body ended too early."))?;
        self.buffer.extend_from_slice(&chunk);
        Ok(())
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|b| *b == wanted[0]) {
        let at = from + at;
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{FutureExt, StreamExt};

    use super::{Multipart, header_parameter};
    use crate::http::body::RequestBody;
    use crate::limits;

    fn parts(text: &[u8], chunk: usize) -> super::Result<Vec<(Option<String>, Bytes)>> {
        let mut body = RequestBody::in_chunks(text, chunk);
        let read = async {
            let mut parts = Multipart::new(&mut body, "multipart/related; boundary=\"b\"")?;
            let mut out = Vec::new();
            while let Some(head) = parts.next_part().await? {
                out.push((head.disposition("filename"), parts.json_bytes(1000).await?));
            }
            Ok(out)
        };
        read.now_or_never().expect("a body in memory is never pending")
    }

    #[test]
    fn parts_are_found_at_any_chunk_size() {
        let text = b"preamble\r\n--b\r\nContent-Type: x/y\r\n\r\n{\"a\":1}\r\n--b\r\n\
            Content-Disposition: attachment; filename=\"f;1\"\r\n\r\nline\r\n-- not the end --\r\n\r\n--b\r\nA: b\r\n\r\n\r\n--b--epilogue";
        for chunk in [1, 2, 3, 7, 1000] {
            let found = parts(text, chunk).unwrap();
            let shown: Vec<_> = found.iter().map(|(name, data)| (name.as_deref(), &data[..])).collect();
            assert_eq!(
                shown,
                [(None, &b"{\"a\":1}"[..]), (Some("f;1"), b"line\r\n-- not the end --\r\n"), (None, b"")],
                "{chunk}"
            );
        }
    }

    #[test]
    fn the_first_boundary_needs_no_line_end_and_a_cut_body_is_refused() {
        assert_eq!(parts(b"--b\r\nA: b\r\n\r\nx\r\n--b--", 4).unwrap().len(), 1);
        for cut in [&b""[..], b"--b", b"--b\r\nA: b", b"--b\r\nA: b\r\n\r\nx\r\n--"] {
            assert_eq!(parts(cut, 4).unwrap_err().status, 400);
        }
    }

    #[test]
    fn a_slow_multipart_document_takes_its_share_of_the_memory_of_bodies() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        runtime.block_on(async {
            let (budget, text) = (crate::http::bodies::Bodies::new(), format!("[{}1]", "1,".repeat(500_000)));
            let all = budget.free();
            let head = format!("--b\r\nA: b\r\n\r\n{text}\r\n--b\r\nA: b\r\n\r\n");
            let chunks = futures_util::stream::iter([Ok(Bytes::from(head))]).chain(futures_util::stream::pending());
            let source: crate::http::body::ChunkSource = Box::pin(chunks);
            let mut body = RequestBody::new(env, source, Some(1 << 30))
                .within(budget.clone(), std::net::Ipv4Addr::LOCALHOST.into());
            let mut parts = Multipart::new(&mut body, "multipart/related; boundary=b").unwrap();
            parts.next_part().await.unwrap();
            assert_eq!(parts.json_bytes(2 << 20).await.unwrap(), text);
            let taken = ((all - budget.free()) * limits::HTTP_CHUNK_BYTES) as u64;
            let needed = 500_000 * limits::JSON_TOKEN_BYTES;
            assert!((needed..2 * needed).contains(&taken), "{taken} bytes, the attachments behind do not count");
            drop(body);
            assert_eq!(budget.free(), all);
        });
    }

    #[test]
    fn parameters_may_be_quoted_or_bare() {
        let value = "form-data; name=\"_attachments\"; filename=\"a \\\"b\\\"; c.txt\"; x=y ; z=1";
        for (name, text) in [("name", "_attachments"), ("filename", "a \"b\"; c.txt"), ("X", "y"), ("z", "1")] {
            assert_eq!(header_parameter(value, name).as_deref(), Some(text));
        }
        assert_eq!(header_parameter(value, "form-data"), None);
    }
}
