//! Addresses of other servers: `http://user:password@host:port/path`, taken apart and put together. Pure.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What stays as it is in a path segment or query value (RFC 3986 'unreserved').
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a text for use as one path segment or query value.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Undoes percent-encoding; bytes that are no UTF-8 are replaced.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The text is no `http` or `https` URL with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadUrl;

/// An absolute URL without its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether the connection is to be encrypted.
    pub https: bool,
    /// Host as given, brackets of IPv6 addresses included, in lower case.
    pub host: String,
    /// The port when it is not the scheme's own.
    pub port: Option<u16>,
    /// Path with its first slash, still encoded.
    pub path: String,
    /// What follows `?`, still encoded.
    pub query: Option<String>,
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.name)
    }
}

impl Url {
    /// Reads a URL and the credentials in it. A fragment is dropped.
    ///
    /// # Errors
    /// [`BadUrl`] for another scheme, no host, or a bad port.
    pub fn parse(text: &str) -> Result<(Url, Option<Login>), BadUrl> {
        let text = text.trim().split('#').next().unwrap_or_default();
        let (scheme, rest) = text.split_once("://").ok_or(BadUrl)?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(BadUrl),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, authority),
        };
        let (host, port) = split_port(address)?;
        let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'[' | b']');
        if host.is_empty() || !host.bytes().all(valid) {
            return Err(BadUrl);
        }
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        if path.bytes().chain(query.iter().flat_map(|q| q.bytes())).any(|b| b <= b' ' || b == 0x7f) {
            return Err(BadUrl);
        }
        let port = port.filter(|port| *port != if https { 443 } else { 80 });
        let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        let url = Url { https, host: host.to_ascii_lowercase(), port, path, query };
        let login = login.map(|login| {
            let (name, password) = login.split_once(':').unwrap_or((login, ""));
            Login { name: decode(name), password: decode(password) }
        });
        Ok((url, login))
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.https { 443 } else { 80 })
    }

    /// Host and, where it is not the scheme's own, port: the `Host` header.
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// Scheme and authority.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.https { "https" } else { "http" }, self.authority())
    }

    /// Path and query: the target of a request line.
    pub fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Where a `Location` header points to, seen from here.
    ///
    /// # Errors
    /// [`BadUrl`] for one that cannot be followed.
    pub fn join(&self, location: &str) -> Result<Url, BadUrl> {
        if location.contains("://") {
            return Url::parse(location).map(|(url, _)| url);
        }
        let path = match location.strip_prefix('/') {
            Some(_) => location.to_owned(),
            None => format!("{}/{location}", self.path.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Url::parse(&format!("{}{path}", self.origin())).map(|(url, _)| url)
    }
}

/// Host and port of an authority without credentials.
fn split_port(address: &str) -> Result<(&str, Option<u16>), BadUrl> {
    let after_host = address.rfind(']').map_or(0, |at| at + 1);
    match address[after_host..].rfind(':') {
        None => Ok((address, None)),
        Some(at) => {
            let (host, port) = address.split_at(after_host + at);
            Ok((host, Some(port[1..].parse().map_err(|_| BadUrl)?)))
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.target())
    }
}

/// Splits a URL into what stands before its credentials, those, and what stands behind them.
pub fn split_credentials(url: &str) -> (&str, Option<&str>, &str) {
    let Some(at) = url.find("://").map(|at| at + 3) else { return (url, None, "") };
    let end = url[at..].find(['/', '?', '#']).map_or(url.len(), |end| at + end);
    match url[at..end].rfind('@') {
        Some(sign) => (&url[..at], Some(&url[at..at + sign]), &url[at + sign + 1..]),
        None => (&url[..at], None, &url[at..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap().0
    }

    #[test]
    fn urls_are_taken_apart() {
        let (found, login) = Url::parse("HTTP://a%40b:p%3Aw@Host.example:5984/db%2Fx/?y=1#z").unwrap();
        assert_eq!(login, Some(Login { name: "a@b".to_owned(), password: "p:w".to_owned() }));
        assert_eq!((found.host.as_str(), found.port()), ("host.example", 5984));
        assert_eq!(found.to_string(), "http://host.example:5984/db%2Fx/?y=1");
        assert_eq!(url("https://[::1]:443").to_string(), "https://[::1]/");
        assert_eq!(url("http://[::1]:81/a").port(), 81);
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for bad in ["db", "ftp://a/b", "http://", "http:///db", "http://h:x/", "http://h:70000/", "http://h/a b"] {
            assert_eq!(Url::parse(bad), Err(BadUrl), "{bad}");
        }
    }

    #[test]
    fn redirects_are_followed_from_here() {
        let here = url("http://h:1/a/b?x=1");
        assert_eq!(here.join("/c/").unwrap().to_string(), "http://h:1/c/");
        assert_eq!(here.join("c?y=2").unwrap().to_string(), "http://h:1/a/c?y=2");
        assert_eq!(here.join("https://o/d").unwrap().to_string(), "https://o/d");
    }

    #[test]
    fn texts_are_encoded_in_full() {
        assert_eq!(encode("ü/a b+c~"), "%C3%BC%2Fa%20b%2Bc~");
        assert_eq!(decode("%C3%BC%2Fa%20b%2Bc~"), "ü/a b+c~");
    }
}
