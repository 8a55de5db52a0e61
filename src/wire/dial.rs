//! Connections to other servers for the HTTP client: straight or by way of a proxy, within TLS for `https`.
//!
//! The caller brings the timeout.

use std::fmt;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::tls::Connector;
use super::url::{BadUrl, Login, Url};
use crate::limits;
use crate::world::{BoxStream, Env};

/// How one talks to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    /// Requests name the whole URL; what is to be encrypted goes through a tunnel (`CONNECT`).
    Http,
    /// SOCKS version 5: a tunnel for everything.
    Socks5,
}

/// A server that passes connections on.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    url: Url,
    login: Option<Login>,
    speech: Speech,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({})", self.shown())
    }
}

impl Proxy {
    /// Reads `http://..`, `https://..` or `socks5://user:password@host:port`.
    ///
    /// # Errors
    /// [`BadUrl`] for anything else.
    pub fn parse(text: &str) -> Result<Proxy, BadUrl> {
        let (speech, text) = match text.trim().split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("socks5") => (Speech::Socks5, format!("http://{rest}")),
            _ => (Speech::Http, text.to_owned()),
        };
        let (url, login) = Url::parse(&text)?;
        Ok(Proxy { url, login, speech })
    }

    /// `http`, `https` or `socks5`.
    pub fn scheme(&self) -> &'static str {
        match (self.speech, self.url.https) {
            (Speech::Socks5, _) => "socks5",
            (Speech::Http, true) => "https",
            (Speech::Http, false) => "http",
        }
    }

    /// Its address without credentials.
    pub fn shown(&self) -> String {
        format!("{}://{}", self.scheme(), self.url.authority())
    }

    fn port(&self) -> u16 {
        match self.speech {
            Speech::Socks5 => self.url.port.unwrap_or(1080),
            Speech::Http => self.url.port(),
        }
    }

    fn authorization(&self) -> Option<String> {
        let login = self.login.as_ref()?;
        Some(format!("Basic {}", STANDARD.encode(format!("{}:{}", login.name, login.password))))
    }
}

/// Opens connections.
#[derive(Clone)]
pub struct Dialer {
    env: Env,
    tls: Option<Connector>,
    proxy: Option<Proxy>,
}

impl Dialer {
    /// Opens them straight; `tls`: for `https`.
    pub fn new(env: &Env, tls: Option<Connector>) -> Dialer {
        Dialer { env: env.clone(), tls, proxy: None }
    }

    /// Opens them by way of `proxy`.
    pub fn through(self, proxy: Option<Proxy>) -> Dialer {
        Dialer { proxy, ..self }
    }

    /// Whether it can open what the URL asks for.
    pub fn speaks(&self, url: &Url) -> bool {
        !url.https || self.tls.is_some()
    }

    /// What a request to `url` must say to the proxy itself: it names the whole URL, and carries this credential.
    /// `None` where no proxy reads the request.
    pub fn told_to_proxy(&self, url: &Url) -> Option<Option<String>> {
        let proxy = self.proxy.as_ref().filter(|proxy| proxy.speech == Speech::Http && !url.https)?;
        Some(proxy.authorization())
    }

    /// A connection over which requests to `url` may be sent.
    ///
    /// # Errors
    /// What the system, the proxy or TLS says.
    pub async fn open(&self, url: &Url) -> io::Result<BoxStream> {
        let stream = match &self.proxy {
            None => self.reach(&url.host, url.port()).await?,
            Some(proxy) => {
                let stream = self.reach(&proxy.url.host, proxy.port()).await?;
                let mut stream = if proxy.url.https { self.encrypted(&proxy.url.host, stream).await? } else { stream };
                match proxy.speech {
                    Speech::Socks5 => socks5(&mut stream, proxy, url).await?,
                    Speech::Http if url.https => tunnel(&mut stream, proxy, url).await?,
                    Speech::Http => {}
                }
                stream
            }
        };
        if url.https { self.encrypted(&url.host, stream).await } else { Ok(stream) }
    }

    async fn reach(&self, host: &str, port: u16) -> io::Result<BoxStream> {
        let host = host.trim_matches(['[', ']']);
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in self.env.host().resolve(host, port).await? {
            match self.env.host().connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn encrypted(&self, host: &str, stream: BoxStream) -> io::Result<BoxStream> {
        match &self.tls {
            Some(tls) => tls.connect(host, stream).await,
            None => Err(io::Error::new(io::ErrorKind::Unsupported, "https is not available here")),
        }
    }
}

fn refused(why: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, format!("the proxy refused: {why}"))
}

/// Asks an HTTP proxy for a tunnel (RFC 9110, 'CONNECT').
async fn tunnel(stream: &mut BoxStream, proxy: &Proxy, url: &Url) -> io::Result<()> {
    let to = format!("{}:{}", url.host, url.port());
    let login = proxy.authorization().map(|login| format!("Proxy-Authorization: {login}\r\n")).unwrap_or_default();
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{login}\r\n").as_bytes()).await?;
    stream.flush().await?;
    // Byte by byte: what comes after the head belongs to the server behind the proxy.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= limits::PROXY_HEAD_BYTES {
            return Err(refused("its answer has no end"));
        }
        head.push(stream.read_u8().await?);
    }
    let status = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    match status.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(()),
        _ => Err(refused(status)),
    }
}

/// Asks a SOCKS proxy for a tunnel (RFC 1928, RFC 1929). The proxy resolves the name.
async fn socks5(stream: &mut BoxStream, proxy: &Proxy, url: &Url) -> io::Result<()> {
    let text = |text: &str| -> io::Result<Vec<u8>> {
        let length = u8::try_from(text.len()).map_err(|_| refused("a name or password is too long for it"))?;
        Ok([&[length], text.as_bytes()].concat())
    };
    let (none, password) = (0, 2);
    let method = if proxy.login.is_some() { password } else { none };
    stream.write_all(&[5, 1, method]).await?;
    stream.flush().await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    if chosen != [5, method] {
        return Err(refused("it wants other credentials, or is no SOCKS 5 proxy"));
    }
    if let Some(login) = &proxy.login {
        stream.write_all(&[vec![1], text(&login.name)?, text(&login.password)?].concat()).await?;
        stream.flush().await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await?;
        if answer[1] != 0 {
            return Err(refused("wrong name or password"));
        }
    }
    let host = text(url.host.trim_matches(['[', ']']))?;
    stream.write_all(&[vec![5, 1, 0, 3], host, url.port().to_be_bytes().to_vec()].concat()).await?;
    stream.flush().await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    if answer[1] != 0 {
        return Err(refused(format!("code {}", answer[1])));
    }
    let address = match answer[3] {
        1 => 4,
        4 => 16,
        _ => usize::from(stream.read_u8().await?),
    };
    let mut bound = vec![0; address + 2];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_and_shown_without_credentials() {
        let shown = |text: &str| Proxy::parse(text).map(|proxy| (proxy.shown(), proxy.port()));
        assert_eq!(shown("http://u:p@P:3128/"), Ok(("http://p:3128".to_owned(), 3128)));
        assert_eq!(shown("https://p"), Ok(("https://p".to_owned(), 443)));
        assert_eq!(shown("socks5://u:p@p"), Ok(("socks5://p".to_owned(), 1080)));
        assert!(Proxy::parse("p:3128").is_err() && Proxy::parse("ftp://p").is_err());
    }
}
