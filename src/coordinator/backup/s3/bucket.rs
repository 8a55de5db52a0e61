//! A folder of a bucket, in a store that speaks S3: requests are made and signed by `rusty-s3`, and sent by the node's
//! own client (`docs/decisions/backup-store.md`).
//!
//! A signature is part of the address of a request, so addresses are never told or logged. What goes out has its MD5
//! beside it, which the store compares. What fails for a reason that may pass is repeated by the client.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use md5::{Digest as _, Md5};
use rusty_s3::actions::{CompleteMultipartUploadResponse, CreateMultipartUpload, ListObjectsV2, S3Action};
use rusty_s3::{Credentials, UrlStyle};

use crate::coordinator::backup::{BackupError, damaged};
use crate::limits;
use crate::wire::client::{Answer, Call, Client, ClientError, Patience};
use crate::wire::dial::Dialer;
use crate::wire::tls::{Connector, Trust};
use crate::wire::url::Url;
use crate::world::{Env, Pool};

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// The namespace of answers, as AWS has it.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// A folder of a bucket: `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The bucket.
    pub bucket: String,
    /// The folder, without slashes around it; empty: the bucket itself.
    pub prefix: String,
}

impl Place {
    /// Reads `s3://BUCKET[/PREFIX]`; `None` for what is none, or cannot be part of an address.
    pub fn parse(text: &str) -> Option<Place> {
        let (bucket, prefix) = text.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")))?;
        let prefix = prefix.trim_matches('/');
        let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
        let fits = is_part(bucket) && is_name(bucket) && (prefix.is_empty() || prefix.split('/').all(is_part));
        fits.then(|| Place { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// The key of a name in the folder.
    fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    /// The name of a key of the folder.
    fn name<'k>(&self, key: &'k str) -> Option<&'k str> {
        if self.prefix.is_empty() { Some(key) } else { key.strip_prefix(&self.prefix)?.strip_prefix('/') }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "s3://{}{slash}{}", self.bucket, self.prefix)
    }
}

/// Where a store is, and who asks it.
#[derive(Clone)]
pub struct Access {
    /// What is asked for.
    pub place: Place,
    /// The address of the store.
    pub endpoint: String,
    /// Its region, which signatures name.
    pub region: String,
    /// Whether the bucket stands in the host of addresses instead of their path.
    pub is_virtual_host: bool,
    /// The access key's id, its secret, and the token of a session.
    pub login: (String, String, Option<String>),
    /// Whom to trust over https.
    pub trust: Trust,
}

/// A folder of a bucket that can be asked.
pub(super) struct Bucket {
    env: Env,
    client: Client,
    bucket: rusty_s3::Bucket,
    credentials: Credentials,
    place: Place,
}

/// A part of a listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Names within the folder, and their bytes.
    pub entries: Vec<(String, u64)>,
    /// Asks for the next page.
    pub next: Option<String>,
}

impl Bucket {
    /// One that is asked at most so many things at once. Nothing is asked yet.
    pub(super) fn new(env: &Env, access: &Access, at_once: usize) -> Result<Bucket, BackupError> {
        let Access { place, endpoint, region, login, .. } = access;
        let unusable = |why: &dyn fmt::Display| BackupError::Io(format!("{place}: the address of the store: {why}"));
        let style = if access.is_virtual_host { UrlStyle::VirtualHost } else { UrlStyle::Path };
        let endpoint = endpoint.parse().map_err(|_| unusable(&"expected http(s)://HOST[:PORT]"))?;
        let bucket = rusty_s3::Bucket::new(endpoint, style, place.bucket.clone(), region.clone());
        let bucket = bucket.map_err(|error| unusable(&error))?;
        let credentials = match login.clone() {
            (id, secret, None) => Credentials::new(id, secret),
            (id, secret, Some(token)) => Credentials::new_with_token(id, secret, token),
        };
        let patience = Patience { silence: limits::BUCKET_SILENCE, retries: limits::BUCKET_RETRIES };
        let dialer = Dialer::new(env, Some(Connector::new(env, access.trust.clone(), None)));
        let client = Client::dialing(env, patience, dialer, at_once, None);
        Ok(Bucket { env: env.clone(), client, bucket, credentials, place: place.clone() })
    }

    /// What is asked for.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// A page of the names that begin with `prefix`; `from`: what the page before said.
    pub(super) async fn page(&self, prefix: &str, from: Option<&str>) -> Result<Page, BackupError> {
        let mut list = self.bucket.list_objects_v2(Some(&self.credentials));
        list.with_prefix(self.place.key(prefix));
        if let Some(from) = from {
            list.with_continuation_token(from);
        }
        let (_, answer) = self.ask(Method::GET, self.signed(&list)?, "the listing", Bytes::new()).await?;
        page_of(&self.place, &text(&answer)).map_err(|why| self.failed("the listing", &why))
    }

    /// The object of a name, if there is one: an answer whose body is still to be read.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Answer>, BackupError> {
        let key = self.place.key(name);
        let url = self.signed(&self.bucket.get_object(Some(&self.credentials), &key))?;
        let call = Call { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() };
        let answer = self.client.call(&call).await.map_err(|error| self.unanswered(name, &error))?;
        let status = answer.status;
        if status == StatusCode::OK {
            return Ok(Some(answer));
        }
        let told = answer.bytes(limits::BUCKET_ANSWER_BYTES).await.unwrap_or_default();
        if is_missing(status, &told) { Ok(None) } else { Err(self.failed(name, &refusal(status, &told))) }
    }

    /// The bytes of a small object, if there is one.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Bytes>, BackupError> {
        let key = self.place.key(name);
        let url = self.signed(&self.bucket.get_object(Some(&self.credentials), &key))?;
        let (status, _, bytes) = self.answer(Method::GET, url, name, Bytes::new()).await?;
        match status {
            StatusCode::OK => Ok(Some(bytes)),
            status if is_missing(status, &bytes) => Ok(None),
            status => Err(self.failed(name, &refusal(status, &bytes))),
        }
    }

    /// Stores an object.
    pub(super) async fn put(&self, name: &str, body: Bytes) -> Result<(), BackupError> {
        let key = self.place.key(name);
        let url = self.signed(&self.bucket.put_object(Some(&self.credentials), &key))?;
        self.ask(Method::PUT, url, name, body).await.map(drop)
    }

    /// Begins an object that comes in parts; answers the id of the upload.
    pub(super) async fn begin(&self, name: &str) -> Result<String, BackupError> {
        let key = self.place.key(name);
        let url = self.signed(&self.bucket.create_multipart_upload(Some(&self.credentials), &key))?;
        let (_, answer) = self.ask(Method::POST, url, name, Bytes::new()).await?;
        let begun = CreateMultipartUpload::parse_response(&in_namespace(&text(&answer)));
        begun.map(|begun| begun.upload_id().to_owned()).map_err(|error| self.failed(name, &error))
    }

    /// Sends a part, counted from 1; answers what [`Bucket::complete`] wants to know of it.
    pub(super) async fn part(
        &self,
        (name, upload): (&str, &str),
        number: u16,
        body: Bytes,
    ) -> Result<String, BackupError> {
        let key = self.place.key(name);
        let url = self.signed(&self.bucket.upload_part(Some(&self.credentials), &key, number, upload))?;
        let (headers, _) = self.ask(Method::PUT, url, name, body).await?;
        let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        tag.map(str::to_owned).ok_or_else(|| self.failed(name, &"the store did not name a part"))
    }

    /// Makes an object of its parts: it is there from now on.
    pub(super) async fn complete(&self, (name, upload): (&str, &str), parts: &[String]) -> Result<(), BackupError> {
        let (key, parts) = (self.place.key(name), parts.iter().map(String::as_str));
        let action = self.bucket.complete_multipart_upload(Some(&self.credentials), &key, upload, parts);
        let url = self.signed(&action)?;
        let (_, answer) = self.ask(Method::POST, url, name, Bytes::from(action.body())).await?;
        // A failure may come behind a status that says otherwise.
        let told = text(&answer);
        match CompleteMultipartUploadResponse::parse(&in_namespace(&told)) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.failed(name, &refusal(StatusCode::OK, &answer))),
        }
    }

    /// Gives up an object that comes in parts.
    pub(super) async fn abort(&self, (name, upload): (&str, &str)) -> Result<(), BackupError> {
        let key = self.place.key(name);
        let url = self.signed(&self.bucket.abort_multipart_upload(Some(&self.credentials), &key, upload))?;
        self.ask(Method::DELETE, url, name, Bytes::new()).await.map(drop)
    }

    /// The address of a request, with its signature.
    fn signed<'a>(&'a self, action: &impl S3Action<'a>) -> Result<Url, BackupError> {
        let now = i64::try_from(self.env.wall().as_secs()).ok().and_then(|now| Timestamp::from_second(now).ok());
        let now = now.ok_or_else(|| BackupError::Io("the clock is not set".to_owned()))?;
        let url = action.sign_with_time(limits::BUCKET_SIGNATURE, &now);
        let url = Url::parse(url.as_str()).map_err(|_| self.failed("the store", &"its address is not taken"))?;
        Ok(url.0)
    }

    /// Sends a request until it is answered; an answer with the status of a failure is an error.
    async fn ask(&self, method: Method, url: Url, what: &str, body: Bytes) -> Result<(HeaderMap, Bytes), BackupError> {
        let (status, headers, bytes) = self.answer(method, url, what, body).await?;
        if status.is_success() { Ok((headers, bytes)) } else { Err(self.failed(what, &refusal(status, &bytes))) }
    }

    async fn answer(
        &self,
        method: Method,
        url: Url,
        what: &str,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, Bytes), BackupError> {
        let mut headers = HeaderMap::new();
        if !body.is_empty() {
            let bytes = body.clone();
            let sum = self.env.blocking(Pool::Background, move || STANDARD.encode(Md5::digest(&bytes))).await;
            headers.extend(HeaderValue::from_str(&sum).ok().map(|sum| (CONTENT_MD5, sum)));
        } else if method != Method::GET {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        let call = Call { method, url, headers, body };
        let take = |status: StatusCode, headers: HeaderMap, bytes: Bytes| Ok((status, headers, bytes));
        let answered = self.client.read(&call, limits::BUCKET_PAGE_BYTES, take).await;
        answered.map_err(|error| self.unanswered(what, &error))
    }

    fn failed(&self, what: &str, why: &dyn fmt::Display) -> BackupError {
        BackupError::Io(format!("{}: {what}: {why}", self.place))
    }

    fn unanswered(&self, what: &str, error: &ClientError) -> BackupError {
        match error {
            ClientError::BadRedirect => self.failed(what, &"the bucket is in another region, or at another address"),
            error => self.failed(what, error),
        }
    }

    /// Why the body of an answer did not come to its end, and whether it may do so a little later.
    pub(super) fn cut(&self, what: &str, error: &ClientError) -> (BackupError, bool) {
        (self.unanswered(what, error), error.is_transient())
    }

    /// What a name without an object means.
    pub(super) fn missing(&self, what: &str) -> BackupError {
        damaged(format_args!("{what} is missing in {}", self.place))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An answer in the namespace that is expected: other stores than AWS have others, or none.
fn in_namespace(answer: &str) -> String {
    let root =
        answer.match_indices('<').find(|(at, _)| answer[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic()));
    let Some(((at, _), end)) = root.and_then(|root| Some((root, answer[root.0..].find('>')? + root.0))) else {
        return answer.to_owned();
    };
    let tag = &answer[at..end];
    let name = tag.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or(tag);
    let close = if tag.ends_with('/') { "/" } else { "" };
    format!("{}{name} xmlns=\"{NAMESPACE}\"{close}{}", &answer[..at], &answer[end..])
}

/// What a listing says of the names of a folder.
fn page_of(place: &Place, answer: &str) -> Result<Page, String> {
    let page = ListObjectsV2::parse_response(&in_namespace(answer)).map_err(|error| error.to_string())?;
    let entry = |key: &str, size: Option<u64>| Some((place.name(key)?.to_owned(), size?));
    let entries = page.contents.iter().filter_map(|found| entry(&found.key, found.size)).collect();
    Ok(Page { entries, next: page.next_continuation_token })
}

/// The text of the first element of that name.
fn element<'x>(xml: &'x str, name: &str) -> Option<&'x str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(text, _)| text)
}

/// Whether an answer says that there is no such object; that there is no such bucket is another matter.
fn is_missing(status: StatusCode, answer: &[u8]) -> bool {
    status == StatusCode::NOT_FOUND && element(&text(answer), "Code") != Some("NoSuchBucket")
}

/// Why a store refused, in its own words.
fn refusal(status: StatusCode, answer: &[u8]) -> String {
    let answer = text(answer);
    let told = [element(&answer, "Code"), element(&answer, "Message")].into_iter().flatten();
    let told: Vec<&str> = told.collect();
    let hint = match told.first() {
        Some(&"RequestTimeTooSkewed") => " (the clock of this machine is wrong)",
        Some(&"PermanentRedirect" | &"AuthorizationHeaderMalformed") => " (another --region or --endpoint?)",
        _ => "",
    };
    format!("the store answered {}: {}{hint}", status.as_u16(), told.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tokio_host;

    fn place(text: &str) -> Place {
        Place::parse(text).unwrap()
    }

    #[test]
    fn places_are_read_and_shown() {
        let read = |text: &str| Place::parse(text).map(|place| (place.bucket.clone(), place.to_string()));
        assert_eq!(read("s3://b"), Some(("b".to_owned(), "s3://b".to_owned())));
        assert_eq!(read("s3://my.b-1/a/b/"), Some(("my.b-1".to_owned(), "s3://my.b-1/a/b".to_owned())));
        for bad in ["b", "s3://", "s3:///a", "http://b/a", "s3://b/a//c", "s3://b/../c", "s3://b?x", "s3://u:p@b"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(place("s3://b/p").key("objects/x"), "p/objects/x");
        assert_eq!(place("s3://b/p").name("p/objects/x"), Some("objects/x"));
        assert_eq!(place("s3://b/p").name("pq/objects/x"), None);
        assert_eq!(place("s3://b").name("objects/x"), Some("objects/x"));
    }

    fn listing(root: &str, end: &str) -> String {
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult{root}><Name>b</Name><Prefix>p%2Fdatabases</Prefix><KeyCount>2</KeyCount>
            <MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType>
            <Contents><Key>p%2Fdatabases%2Fa%252Fb%2F000000000000007.json</Key><LastModified>2026-11-29T00:00:00.000Z
            </LastModified><ETag>"e"</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass></Contents>
            <Contents><Key>other</Key><Size>3</Size></Contents>{end}</ListBucketResult>"#
        )
    }

    #[test]
    fn a_listing_is_read_page_by_page() {
        let truncated = "<IsTruncated>true</IsTruncated><NextContinuationToken>t+/=</NextContinuationToken>";
        let namespaces = [NAMESPACE, "http://doc.s3.amazonaws.com/2006-03-01"].map(|name| format!(" xmlns=\"{name}\""));
        for root in namespaces.into_iter().chain([String::new()]) {
            let page = page_of(&place("s3://b/p"), &listing(&root, truncated)).unwrap();
            let entries = vec![("databases/a%2Fb/000000000000007.json".to_owned(), 12)];
            assert_eq!(page, Page { entries, next: Some("t+/=".to_owned()) });
        }
        let last = page_of(&place("s3://b"), &listing("", "<IsTruncated>false</IsTruncated>")).unwrap();
        assert_eq!((last.entries.len(), last.next), (2, None));
        for bad in ["", "<html></html>", &listing("", "<IsTruncated>true</IsTruncated>")] {
            assert!(page_of(&place("s3://b"), bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_store() {
        let answer = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>No.</Message></Error>";
        assert_eq!(refusal(StatusCode::FORBIDDEN, answer), "the store answered 403: AccessDenied: No.");
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, b"oops"), "the store answered 502: ");
    }

    #[test]
    fn addresses_hold_the_key_as_it_is_and_never_the_secret() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let mut access = Access {
            place: place("s3://buck/p"),
            endpoint: "http://127.0.0.1:9000".to_owned(),
            region: "r".to_owned(),
            is_virtual_host: false,
            login: ("id".to_owned(), "very-secret".to_owned(), Some("tok/en".to_owned())),
            trust: Trust::System,
        };
        let bucket = Bucket::new(&env, &access, 1).unwrap();
        let key = access.place.key("databases/a%2Fb/1.json");
        let url = bucket.signed(&bucket.bucket.get_object(Some(&bucket.credentials), &key)).unwrap();
        assert_eq!(url.path, "/buck/p/databases/a%252Fb/1.json");
        let query = url.query.clone().unwrap();
        assert!(query.contains("X-Amz-Security-Token=tok%2Fen") && !query.contains("very-secret"), "{query}");
        access.is_virtual_host = true;
        access.endpoint = "https://store.example".to_owned();
        let bucket = Bucket::new(&env, &access, 1).unwrap();
        assert_eq!(bucket.bucket.base_url().as_str(), "https://buck.store.example/");
        access.endpoint = "store.example".to_owned();
        assert!(matches!(Bucket::new(&env, &access, 1), Err(BackupError::Io(why)) if !why.contains("secret")));
    }
}
