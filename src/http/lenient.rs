//! Percent-encoding, while requests are read, of bytes in request targets that clients of CouchDB send raw
//! (`?startkey="a"` above all) and that the HTTP library refuses.
//!
//! It follows the framing of bodies in order to find the next request. Where the framing is not plain (two lengths,
//! another coding than `chunked`, an unreadable number) it changes nothing more on that connection, and the HTTP
//! library alone decides. Bodies and headers pass unchanged.

/// Longest line that is looked at; the header and chunk lines that matter are shorter.
const LINE_MAX: usize = 256;

/// Where in the stream of requests the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before a request, where empty lines are allowed.
    Start,
    Method,
    Target,
    Header,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    Trailer,
    /// Not followed any more.
    Blind,
}

/// Follows one connection's requests.
#[derive(Debug)]
pub struct Lenient {
    place: Place,
    /// The current header, chunk or trailer line, as far as `LINE_MAX`.
    line: Vec<u8>,
    too_long: bool,
    length: Option<u64>,
    chunked: bool,
    ambiguous: bool,
}

impl Default for Lenient {
    fn default() -> Self {
        let line = Vec::new();
        Lenient { place: Place::Start, line, too_long: false, length: None, chunked: false, ambiguous: false }
    }
}

impl Lenient {
    /// Takes the next bytes of the connection. Answers what to put in their place, `None` for the same.
    pub fn pass(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out: Option<Vec<u8>> = None;
        let mut at = 0;
        while at < bytes.len() {
            let rest = (bytes.len() - at) as u64;
            match self.place {
                Place::Blind => {
                    push(&mut out, &bytes[at..]);
                    break;
                }
                Place::Body(left) | Place::Chunk(left) if left > 0 => {
                    // Invariant: not more than the bytes at hand.
                    let taken = left.min(rest) as usize;
                    push(&mut out, &bytes[at..at + taken]);
                    at += taken;
                    self.taken(left - taken as u64);
                    continue;
                }
                _ => {}
            }
            let byte = bytes[at];
            if self.place == Place::Target && is_refused(byte) {
                let out = out.get_or_insert_with(|| bytes[..at].to_vec());
                out.extend_from_slice(format!("%{byte:02X}").as_bytes());
            } else {
                push(&mut out, &[byte]);
                self.step(byte);
            }
            at += 1;
        }
        out
    }

    fn taken(&mut self, left: u64) {
        self.place = match (self.place, left) {
            (Place::Body(_), 0) => Place::Start,
            (Place::Body(_), left) => Place::Body(left),
            (_, 0) => Place::ChunkEnd,
            (_, left) => Place::Chunk(left),
        };
    }

    /// Moves on by one byte that is not in a body.
    fn step(&mut self, byte: u8) {
        match (self.place, byte) {
            (Place::Start, b'\r' | b'\n') => {}
            (Place::Start, _) => self.place = Place::Method,
            (Place::Method, b' ') => self.place = Place::Target,
            (Place::Method | Place::Target, b'\n') => {
                self.place = Place::Header;
                (self.length, self.chunked, self.ambiguous) = (None, false, false);
                self.new_line();
            }
            (Place::Method | Place::Target, _) => {}
            (_, b'\n') => self.end_of_line(),
            _ if self.line.len() < LINE_MAX => self.line.push(byte),
            _ => self.too_long = true,
        }
    }

    fn new_line(&mut self) {
        self.line.clear();
        self.too_long = false;
    }

    fn end_of_line(&mut self) {
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.place = match self.place {
            Place::Header if self.line.is_empty() => self.after_head(),
            Place::Header => {
                self.header();
                Place::Header
            }
            Place::ChunkSize => match self.chunk_size() {
                Some(0) => Place::Trailer,
                Some(size) => Place::Chunk(size),
                None => Place::Blind,
            },
            Place::ChunkEnd if self.line.is_empty() => Place::ChunkSize,
            Place::Trailer if self.line.is_empty() => Place::Start,
            Place::Trailer => Place::Trailer,
            _ => Place::Blind,
        };
        self.new_line();
    }

    fn header(&mut self) {
        let Some(colon) = self.line.iter().position(|b| *b == b':') else { return };
        let name = self.line[..colon].trim_ascii();
        let value = self.line[colon + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let number = number(value, 10).filter(|_| !self.too_long && self.length.is_none());
            self.ambiguous |= number.is_none();
            self.length = number;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.ambiguous |= self.too_long || self.chunked || !value.eq_ignore_ascii_case(b"chunked");
            self.chunked = true;
        }
    }

    fn after_head(&self) -> Place {
        match (self.ambiguous, self.chunked, self.length) {
            (true, ..) | (_, true, Some(_)) => Place::Blind,
            (_, true, None) => Place::ChunkSize,
            (_, _, None | Some(0)) => Place::Start,
            (_, _, Some(length)) => Place::Body(length),
        }
    }

    fn chunk_size(&self) -> Option<u64> {
        let digits = self.line.split(|b| *b == b';').next().unwrap_or_default();
        number(digits.trim_ascii(), 16).filter(|_| !self.too_long)
    }
}

/// Digits only: no sign, no blank within.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    plain.then(|| u64::from_str_radix(text, radix).ok())?
}

/// What the HTTP library refuses in a target and CouchDB accepts.
fn is_refused(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`') || byte >= 0x80
}

fn push(out: &mut Option<Vec<u8>>, bytes: &[u8]) {
    if let Some(out) = out {
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop, proptest};

    use super::{Lenient, Place};

    /// What comes out when `bytes` arrive cut at every `size` bytes.
    fn passed(bytes: &[u8], size: usize) -> (Vec<u8>, Place) {
        let mut lenient = Lenient::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(size.max(1)) {
            match lenient.pass(piece) {
                Some(changed) => out.extend_from_slice(&changed),
                None => out.extend_from_slice(piece),
            }
        }
        (out, lenient.place)
    }

    const QUOTED: &str = "GET /db/_all_docs?key=\"a<b>\" HTTP/1.1\r\nX: \"as it is\"\r\n\r\n";
    const ENCODED: &str = "GET /db/_all_docs?key=%22a%3Cb%3E%22 HTTP/1.1\r\nX: \"as it is\"\r\n\r\n";

    #[test]
    fn targets_are_encoded_and_nothing_else() {
        let body = "GET /\"\r\n\r\n";
        let put = format!("PUT /db/x HTTP/1.1\r\ncontent-LENGTH: {}\r\n\r\n{body}", body.len());
        let chunked = format!("POST /db HTTP/1.1\nTransfer-Encoding: Chunked\n\na;x=1\r\n{body}\r\n0\r\nT: \"\r\n\r\n");
        let before = format!("{QUOTED}{put}{QUOTED}\r\n{chunked}{QUOTED}");
        let after = format!("{ENCODED}{put}{ENCODED}\r\n{chunked}{ENCODED}");
        for size in [1, 2, 3, 7, 10_000] {
            assert_eq!(passed(before.as_bytes(), size), (after.clone().into_bytes(), Place::Start));
        }
        assert_eq!(passed("GET /é HTTP/1.1\r\n\r\n".as_bytes(), 4).0, b"GET /%C3%A9 HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn doubtful_framing_is_left_alone() {
        for doubtful in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        ] {
            let before = format!("PUT / HTTP/1.1\r\n{doubtful}\r\n{QUOTED}");
            assert_eq!(passed(before.as_bytes(), 5), (before.into_bytes(), Place::Blind), "{doubtful}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn bodies_survive_any_cut(
            body in prop::collection::vec(any::<u8>(), 0..200),
            cut in 1usize..64,
            size in 1usize..50,
        ) {
            let mut before = format!("PUT / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
            before.extend_from_slice(&body);
            before.extend_from_slice(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(size) {
                before.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                before.extend_from_slice(chunk);
                before.extend_from_slice(b"\r\n");
            }
            before.extend_from_slice(b"0\r\n\r\n");
            let mut after = before.clone();
            before.extend_from_slice(QUOTED.as_bytes());
            after.extend_from_slice(ENCODED.as_bytes());
            assert_eq!(passed(&before, cut), (after, Place::Start));
        }
    }
}
