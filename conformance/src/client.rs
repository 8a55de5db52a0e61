//! An HTTP/1.1 client that sends exactly what a case says, well formed or not, and reads the answer as it comes.
//!
//! One connection for one request: no state of an earlier request can colour an answer. The length of an answer
//! follows RFC 9112 section 6.3: none after HEAD, 1xx, 204 and 304; chunked; `Content-Length`; until the server closes.
//! An answer that breaks off before its announced end is an error, unless the case reads an open feed.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ground::{Ground, Machine};

/// The longest head of an answer, bytes: beyond it the server is not speaking HTTP.
const HEAD_MAX: usize = 256 * 1024;
/// The longest body that is read, bytes: cases are small, and a runaway answer must not eat the runner's memory.
const BODY_MAX: usize = 256 * 1024 * 1024;

/// A server to talk to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name or address, as in the URL.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// An administrator's name.
    pub user: String,
    /// The administrator's password.
    pub password: String,
    /// Where the plays take place.
    pub ground: Arc<dyn Ground>,
}

impl Target {
    /// Reads `http://name:password@host:port` (port 5984 when absent; name and password percent-encoded).
    pub fn parse(url: &str) -> Result<Target, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| format!("{url}: only http:// is spoken"))?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("{url}: {port} is no port"))?)
            }
            _ => (place, 5984),
        };
        if host.is_empty() {
            return Err(format!("{url}: no host"));
        }
        let (user, password, ground) = (unescape(user), unescape(password), Machine::ground());
        Ok(Target { host: host.to_owned(), port, user, password, ground })
    }

    /// `host:port`, as in the `Host` header.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A request, sent byte for byte.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method, any token.
    pub method: String,
    /// The request target; never normalised or escaped.
    pub target: String,
    /// Headers in order. `Host` and `Content-Length` are added.
    pub headers: Vec<(String, String)>,
    /// The body, if any; POST and PUT without one say `Content-Length: 0`.
    pub body: Option<Vec<u8>>,
}

/// When to stop reading.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long the server may be silent; for an open feed, how long it is read in all.
    pub limit: Duration,
    /// Whether the body is a feed without an end.
    pub open: bool,
}

/// What the server answered.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Headers in order, names as sent, values as Latin-1.
    pub headers: Vec<(String, String)>,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
}

impl Answer {
    /// The values of a header, joined by `, `; `None` when it was not sent. Names in any case.
    pub fn header(&self, name: &str) -> Option<String> {
        let of_name = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let values: Vec<&str> = of_name.map(|(_, v)| v.as_str()).collect();
        if values.is_empty() { None } else { Some(values.join(", ")) }
    }
}

/// Why there is no answer, with a sentence for the report.
#[derive(Clone, Debug)]
pub enum NoAnswer {
    /// The server refused the connection or closed it without a word, as one that restarts does.
    Away(String),
    /// It was silent, or what it sent cannot be read.
    Failed(String),
}

impl From<String> for NoAnswer {
    fn from(text: String) -> NoAnswer {
        NoAnswer::Failed(text)
    }
}

impl From<NoAnswer> for String {
    fn from(cause: NoAnswer) -> String {
        let (NoAnswer::Away(text) | NoAnswer::Failed(text)) = cause;
        text
    }
}

/// Sends one request and reads the answer.
pub async fn send(target: &Target, request: &Request, patience: Patience) -> Result<Answer, NoAnswer> {
    let bytes = Written { parts: vec![encode(target, request)], pause: Duration::ZERO };
    let mut answers = send_written(target, &bytes, patience, 1, request.method == "HEAD").await?;
    answers.pop().ok_or_else(|| NoAnswer::Failed("no answer".to_owned()))
}

/// Bytes that go over one connection as they are, well formed or not.
#[derive(Clone, Debug)]
pub struct Written {
    /// What is written, one part after the other.
    pub parts: Vec<Vec<u8>>,
    /// The wait between two parts.
    pub pause: Duration,
}

/// Writes bytes on a connection of their own and reads `count` answers from it.
pub async fn send_written(
    target: &Target,
    bytes: &Written,
    patience: Patience,
    count: usize,
    head_request: bool,
) -> Result<Vec<Answer>, NoAnswer> {
    let ground = &target.ground;
    let connection = ground.connect(target.host.trim_matches(['[', ']']), target.port);
    let stream = match ground.timeout(patience.limit, connection).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return Err(NoAnswer::Away(format!("cannot connect to {}: {e}", target.authority()))),
        Err(_) => return Err(format!("no connection to {} within {:?}", target.authority(), patience.limit).into()),
    };
    let (read, mut write) = tokio::io::split(stream);
    // A server may answer (413, say) and stop reading before the body is through: reading goes on regardless.
    let writer = async {
        for (n, part) in bytes.parts.iter().enumerate() {
            if n > 0 {
                ground.sleep(bytes.pause).await;
            }
            if write.write_all(part).await.is_err() || write.flush().await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let reader = async {
        let mut wire = Wire::new(read, patience, ground);
        let mut answers = Vec::new();
        for _ in 0..count {
            answers.push(wire.answer(head_request).await?);
        }
        Ok(answers)
    };
    tokio::select! {
        biased;
        answers = reader => answers,
        () = writer => Err("unreachable: the writer never ends".to_owned().into()),
    }
}

fn encode(target: &Target, request: &Request) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
    let named = |name: &str| request.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !named("host") {
        head.extend(format!("Host: {}\r\n", target.authority()).into_bytes());
    }
    for (name, value) in &request.headers {
        head.extend(format!("{name}: ").into_bytes());
        if value.chars().all(|c| u32::from(c) < 256) {
            head.extend(value.chars().map(|c| c as u8));
        } else {
            head.extend(value.as_bytes());
        }
        head.extend(b"\r\n");
    }
    let length = request.body.as_ref().map(Vec::len);
    let bare = matches!(request.method.as_str(), "POST" | "PUT").then_some(0);
    if let Some(length) = length.or(bare)
        && !named("content-length")
        && !named("transfer-encoding")
    {
        head.extend(format!("Content-Length: {length}\r\n").into_bytes());
    }
    head.extend(b"\r\n");
    head.extend(request.body.as_deref().unwrap_or_default());
    head
}

/// The reading side of a connection, with what has arrived and is not yet used.
struct Wire<R> {
    read: R,
    ahead: Vec<u8>,
    patience: Patience,
    ground: Arc<dyn Ground>,
    /// When an open feed is left, on the ground's clock.
    deadline: Duration,
}

/// Why reading stopped.
enum Stop {
    /// The server closed the connection.
    Closed,
    /// The patience is used up.
    Silent,
    /// The connection broke.
    Lost(std::io::Error),
    /// The bytes are not HTTP.
    Broken(String),
}

impl<R: AsyncReadExt + Unpin> Wire<R> {
    fn new(read: R, patience: Patience, ground: &Arc<dyn Ground>) -> Wire<R> {
        let deadline = ground.now() + patience.limit;
        Wire { read, ahead: Vec::new(), patience, ground: Arc::clone(ground), deadline }
    }

    async fn fill(&mut self) -> Result<(), Stop> {
        let left = self.deadline.saturating_sub(self.ground.now());
        let limit = if self.patience.open { left } else { self.patience.limit };
        match self.ground.timeout(limit, self.read.read_buf(&mut self.ahead)).await {
            Ok(Ok(0)) => Err(Stop::Closed),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(Stop::Lost(e)),
            Err(_) => Err(Stop::Silent),
        }
    }

    async fn line(&mut self) -> Result<String, Stop> {
        let mut from = 0;
        loop {
            if let Some(end) = self.ahead[from..].iter().position(|b| *b == b'\n') {
                let mut line: Vec<u8> = self.ahead.drain(..=from + end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line.iter().map(|b| char::from(*b)).collect());
            }
            from = self.ahead.len();
            if from > HEAD_MAX {
                return Err(Stop::Broken("an endless line".to_owned()));
            }
            self.fill().await?;
        }
    }

    async fn answer(&mut self, head_request: bool) -> Result<Answer, NoAnswer> {
        let mut answer = loop {
            let answer = self.head().await.map_err(|stop| {
                let away = matches!(stop, Stop::Closed | Stop::Lost(_)) && self.ahead.is_empty();
                let text = self.told(stop, "before the answer's head was complete");
                if away { NoAnswer::Away(text) } else { NoAnswer::Failed(text) }
            })?;
            if !(100..200).contains(&answer.status) {
                break answer;
            }
        };
        let mut body = Vec::new();
        let stopped = self.body(head_request, &answer, &mut body).await;
        answer.body = body;
        match stopped {
            Ok(()) => Ok(answer),
            Err(Stop::Closed | Stop::Silent) if self.patience.open => Ok(answer),
            Err(stop) => Err(self.told(stop, "before the answer's body was complete").into()),
        }
    }

    fn told(&self, stop: Stop, when: &str) -> String {
        match stop {
            Stop::Closed => format!("the server closed the connection {when}"),
            Stop::Silent => format!("the server was silent for {:?} {when}", self.patience.limit),
            Stop::Lost(e) => format!("connection broke: {e} {when}"),
            Stop::Broken(text) => format!("{text} {when}"),
        }
    }

    async fn head(&mut self) -> Result<Answer, Stop> {
        let line = self.line().await?;
        let mut words = line.split_whitespace();
        let version = words.next().unwrap_or_default();
        let status = words.next().and_then(|w| w.parse().ok()).filter(|s| (100..1000).contains(s));
        let (true, Some(status)) = (version.starts_with("HTTP/1."), status) else {
            return Err(Stop::Broken(format!("not a status line: {line:?}")));
        };
        let mut answer = Answer { status, ..Answer::default() };
        let mut bytes = line.len();
        loop {
            let line = self.line().await?;
            bytes += line.len();
            if line.is_empty() {
                return Ok(answer);
            }
            let Some((name, value)) = line.split_once(':').filter(|_| bytes <= HEAD_MAX) else {
                return Err(Stop::Broken(format!("not a header: {line:?}")));
            };
            answer.headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
    }

    async fn body(&mut self, head_request: bool, answer: &Answer, body: &mut Vec<u8>) -> Result<(), Stop> {
        if head_request || matches!(answer.status, 204 | 304) {
            return Ok(());
        }
        let coding = answer.header("Transfer-Encoding").unwrap_or_default().to_ascii_lowercase();
        if coding.split(',').any(|c| c.trim() == "chunked") {
            return self.chunks(body).await;
        }
        match answer.header("Content-Length") {
            Some(text) => match text.parse() {
                Ok(length) => self.take(length, body).await,
                Err(_) => Err(Stop::Broken(format!("Content-Length {text:?} is no number"))),
            },
            None => self.rest(body).await,
        }
    }

    async fn rest(&mut self, body: &mut Vec<u8>) -> Result<(), Stop> {
        loop {
            body.append(&mut self.ahead);
            match self.fill().await {
                Ok(()) if body.len() > BODY_MAX => return Err(Stop::Broken("too long a body".to_owned())),
                Ok(()) => {}
                Err(Stop::Closed) => return Ok(()),
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Moves `length` bytes to `body`; what arrived before a stop is there too.
    async fn take(&mut self, mut length: usize, body: &mut Vec<u8>) -> Result<(), Stop> {
        if body.len().saturating_add(length) > BODY_MAX {
            return Err(Stop::Broken("too long a body".to_owned()));
        }
        loop {
            let some = length.min(self.ahead.len());
            body.extend(self.ahead.drain(..some));
            length -= some;
            if length == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> Result<(), Stop> {
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let Ok(size) = usize::from_str_radix(size, 16) else {
                return Err(Stop::Broken(format!("not a chunk size: {line:?}")));
            };
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(());
            }
            self.take(size, body).await?;
            if !self.line().await?.is_empty() {
                return Err(Stop::Broken("a chunk longer than its size".to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Machine, NoAnswer, Patience, Request, Target, Wire, encode};
    use std::time::Duration;

    async fn read(text: &str, head_request: bool, open: bool) -> Result<Answer, String> {
        let patience = Patience { limit: Duration::from_millis(200), open };
        Wire::new(text.as_bytes(), patience, &Machine::ground()).answer(head_request).await.map_err(String::from)
    }

    #[tokio::test]
    async fn lengths_follow_the_framing() {
        let sized = read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", false, false).await;
        assert_eq!(sized.expect("an answer").body, b"abc");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(read(chunked, false, false).await.expect("an answer").body, b"abcde");
        let closed = read("HTTP/1.0 404 No\r\nA: 1\r\na: 2\r\n\r\nrest", false, false).await.expect("an answer");
        assert_eq!((closed.status, closed.header("A"), closed.body), (404, Some("1, 2".into()), b"rest".to_vec()));
        let head = read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, false).await;
        assert_eq!(head.expect("an answer").body, b"");
        let after_100 = read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", false, false).await;
        assert_eq!(after_100.expect("an answer").status, 204);
    }

    #[tokio::test]
    async fn broken_answers_are_errors_but_open_feeds_may_stop() {
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc";
        assert!(read(short, false, false).await.is_err());
        assert_eq!(read(short, false, true).await.expect("a feed").body, b"abc");
        for text in ["", "garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            assert!(read(text, false, false).await.is_err(), "{text}");
        }
        let bad_chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n";
        assert!(read(bad_chunk, false, false).await.is_err());
    }

    /// Only a server that is away is asked again.
    #[tokio::test]
    async fn silence_and_nonsense_are_not_absence() {
        let patience = Patience { limit: Duration::from_secs(5), open: false };
        let asked = async |text: &str| Wire::new(text.as_bytes(), patience, &Machine::ground()).answer(false).await;
        assert!(matches!(asked("").await, Err(NoAnswer::Away(_))));
        for text in ["garbage\r\n\r\n", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"] {
            assert!(matches!(asked(text).await, Err(NoAnswer::Failed(_))), "{text}");
        }
    }

    #[test]
    fn requests_go_out_as_written() {
        let target = Target::parse("http://a%40b:p:w@[::1]:99/x").expect("a URL");
        assert_eq!((target.user.as_str(), target.password.as_str(), target.port), ("a@b", "p:w", 99));
        let request = Request {
            method: "PUT".into(),
            target: "/%zz?a b".into(),
            headers: vec![("X".into(), "\u{e9}".into())],
            body: None,
        };
        let want = b"PUT /%zz?a b HTTP/1.1\r\nHost: [::1]:99\r\nX: \xe9\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(encode(&target, &request), want);
        assert!(Target::parse("https://x").is_err() && Target::parse("http://x:port").is_err());
        assert_eq!(Target::parse("http://x").expect("a URL").authority(), "x:5984");
    }
}
