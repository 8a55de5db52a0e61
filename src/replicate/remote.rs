//! A database on another server as a peer: the replication protocol as a client.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use super::error::{ReplicateError, Result};
use super::peer::{
    AttachmentStream, ChangedDoc, ChangesAsk, ChangesPage, Doc, Fetched, Lack, Peer, Piece, Refusal, Sent, Want,
    multipart,
};
use super::request::{Filter, RemoteEndpoint};
use crate::document::json::{self, Object, Value};
use crate::limits;
use crate::wire::client::{Answer, Body, Call, Client};
use crate::wire::hex;
use crate::wire::url::{Url, encode};
use crate::world::Env;

/// A database on another server.
pub struct RemotePeer {
    env: Env,
    client: Client,
    url: Url,
    headers: HeaderMap,
    user: Option<String>,
    /// Whether the server answered that it has no `_bulk_get`.
    no_bulk_get: AtomicBool,
    /// Its address as shown.
    pub shown: String,
}

impl RemotePeer {
    /// The peer of an endpoint.
    pub fn new(env: &Env, client: Client, endpoint: &RemoteEndpoint) -> RemotePeer {
        let mut headers = endpoint.headers.clone();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        RemotePeer {
            env: env.clone(),
            client,
            url: endpoint.url.clone(),
            headers,
            user: endpoint.user.clone(),
            no_bulk_get: AtomicBool::new(false),
            shown: format!("{}/", endpoint.url),
        }
    }

    fn request(&self, method: Method, below: &str, body: Option<&Value>) -> Call {
        let mut call = Call {
            method,
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: body.map(|body| Bytes::from(body.to_vec())).unwrap_or_default(),
        };
        let (path, query) = below.split_once('?').map_or((below, None), |(path, query)| (path, Some(query)));
        call.url.path.push_str(path);
        call.url.query = match (call.url.query.take(), query) {
            (Some(own), Some(query)) => Some(format!("{own}&{query}")),
            (own, query) => own.or(query.map(str::to_owned)),
        };
        if body.is_some() || call.method == Method::POST {
            call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        call
    }

    /// Sends a request and reads the answer as JSON; what is none is null.
    async fn json(&self, method: Method, below: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let answer = self.client.call(&self.request(method, below, body)).await?;
        read_json(answer).await
    }

    /// As [`RemotePeer::json`], for requests of which only success is an answer.
    async fn ok(&self, method: Method, below: &str, body: Option<&Value>) -> Result<Value> {
        let (status, value) = self.json(method, below, body).await?;
        if status.is_success() { Ok(value) } else { Err(self.failure(status, &value)) }
    }

    /// What an answer other than success means.
    fn failure(&self, status: StatusCode, answer: &Value) -> ReplicateError {
        match (status.as_u16(), &self.user) {
            (401, Some(user)) => ReplicateError::WrongCredentials { origin: self.url.origin(), user: user.clone() },
            (401 | 403, _) => ReplicateError::Unauthorized { url: self.shown.clone() },
            (404, _) => ReplicateError::DatabaseMissing { url: self.shown.clone() },
            (413, _) => ReplicateError::TooLarge,
            (status, _) => {
                let (error, reason) = error_of(answer);
                ReplicateError::failed(error, format!("{} answered {status}: {reason}", self.shown))
            }
        }
    }

    /// See [`Peer::open`].
    pub async fn open(&self, create: Option<&[(String, String)]>) -> Result<()> {
        if let Some(parameters) = create {
            let query: Vec<String> = parameters.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
            let below = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
            let (status, answer) = self.json(Method::PUT, &below, None).await?;
            // 412: it is there already. Who may not make databases may still use one that is there.
            if !status.is_success() && !matches!(status.as_u16(), 401 | 403 | 412) {
                return Err(self.failure(status, &answer));
            }
        }
        self.ok(Method::GET, "", None).await.map(drop)
    }

    /// See [`Peer::changes`].
    pub async fn changes(&self, ask: &ChangesAsk) -> Result<ChangesPage> {
        let since = match &ask.since {
            Value::String(text) => encode(text),
            other => encode(&String::from_utf8_lossy(&other.to_vec())),
        };
        let style = if ask.winners { "main_only" } else { "all_docs" };
        let mut below = format!("/_changes?style={style}&since={since}&limit={}", ask.limit);
        if ask.wait {
            below.push_str(&format!("&feed=longpoll&heartbeat={}", limits::REPLICATION_HEARTBEAT_MS));
        }
        let mut body = None;
        match &ask.filter {
            Filter::None => {}
            Filter::DocIds(ids) => {
                below.push_str("&filter=_doc_ids");
                body = Some(("doc_ids", Value::Array(ids.iter().map(|id| Value::from(id.as_str())).collect())));
            }
            Filter::Selector(selector) => {
                below.push_str("&filter=_selector");
                body = Some(("selector", selector.clone()));
            }
            Filter::Function { name, query } => {
                below.push_str(&format!("&filter={}", encode(name)));
                for (name, value) in query.iter() {
                    let text = value.as_str().map(str::to_owned);
                    let text = text.unwrap_or_else(|| String::from_utf8_lossy(&value.to_vec()).into_owned());
                    below.push_str(&format!("&{}={}", encode(name), encode(&text)));
                }
            }
        }
        let body = body.map(|(name, value)| Value::Object(std::iter::once((name.to_owned(), value)).collect()));
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let answer = self.ok(method, &below, body.as_ref()).await?;
        page(&answer).ok_or_else(|| self.nonsense("_changes"))
    }

    fn nonsense(&self, what: &str) -> ReplicateError {
        ReplicateError::failed("bad_answer", format!("{} answered {what} with something else.", self.shown))
    }

    /// See [`Peer::revs_diff`].
    pub async fn revs_diff(&self, asked: &[ChangedDoc]) -> Result<BTreeMap<String, Lack>> {
        let mut body = Object::new();
        for doc in asked {
            body.insert(doc.id.as_str(), Value::Array(doc.revs.iter().map(|rev| Value::from(rev.as_str())).collect()));
        }
        let answer = self.ok(Method::POST, "/_revs_diff", Some(&Value::Object(body))).await?;
        let answer = answer.as_object().ok_or_else(|| self.nonsense("_revs_diff"))?;
        let lack = |(id, found): (&str, &Value)| {
            let found = found.as_object();
            let list = |name: &str| found.and_then(|f| f.get(name)?.as_array()).map(texts).unwrap_or_default();
            (id.to_owned(), Lack { missing: list("missing"), ancestors: list("possible_ancestors") })
        };
        Ok(answer.iter().map(lack).filter(|(_, lack)| !lack.missing.is_empty()).collect())
    }

    /// See [`Peer::fetch`].
    pub async fn fetch(&self, wants: &[Want]) -> Result<Fetched> {
        if !self.no_bulk_get.load(Ordering::Relaxed) {
            match self.bulk_get(wants).await? {
                Some(docs) => return Ok(Fetched { docs, in_bulk: true }),
                None => self.no_bulk_get.store(true, Ordering::Relaxed),
            }
        }
        let mut docs = Vec::new();
        for same_doc in wants.chunk_by(|a, b| a.id == b.id) {
            docs.extend(self.open_revs(same_doc).await?);
        }
        Ok(Fetched { docs, in_bulk: false })
    }

    /// `None`: the server has no `_bulk_get`.
    async fn bulk_get(&self, wants: &[Want]) -> Result<Option<Vec<Doc>>> {
        let item = |want: &Want| {
            let members = [("id", &want.id), ("rev", &want.rev)];
            Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), Value::from(v.as_str()))).collect())
        };
        let mut body = Object::new();
        body.push("docs", Value::Array(wants.iter().map(item).collect()));
        let below = "/_bulk_get?revs=true&latest=true&att_encoding_info=true";
        let (status, answer) = self.json(Method::POST, below, Some(&Value::Object(body))).await?;
        if matches!(status.as_u16(), 400 | 404 | 405 | 415 | 501) {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(self.failure(status, &answer));
        }
        let Value::Object(mut answer) = answer else { return Err(self.nonsense("_bulk_get")) };
        let Some(Value::Array(results)) = answer.remove("results") else { return Err(self.nonsense("_bulk_get")) };
        let mut docs = Vec::new();
        for result in results {
            let Value::Object(mut result) = result else { continue };
            if let Some(Value::Array(found)) = result.remove("docs") {
                docs.extend(found.into_iter().filter_map(found_doc));
            }
        }
        Ok(Some(distinct(docs)))
    }

    async fn open_revs(&self, wants: &[Want]) -> Result<Vec<Doc>> {
        let Some(first) = wants.first() else { return Ok(Vec::new()) };
        let revs = Value::Array(wants.iter().map(|want| Value::from(want.rev.as_str())).collect());
        let revs = encode(&String::from_utf8_lossy(&revs.to_vec()));
        let below = format!("/{}?revs=true&latest=true&att_encoding_info=true&open_revs={revs}", path_of(&first.id));
        let (status, answer) = self.json(Method::GET, &below, None).await?;
        match answer {
            _ if status == StatusCode::NOT_FOUND => Ok(Vec::new()),
            Value::Array(found) if status.is_success() => {
                Ok(distinct(found.into_iter().filter_map(found_doc).collect()))
            }
            answer => Err(self.failure(status, &answer)),
        }
    }

    /// See [`Peer::attachment`].
    pub async fn attachment(&self, id: &str, rev: &str, sent: &Sent) -> Result<AttachmentStream> {
        let below = format!("/{}/{}?rev={}", path_of(id), encode(&sent.name), encode(rev));
        let mut call = self.request(Method::GET, &below, None);
        call.headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let encoding = if sent.gzip { "gzip" } else { "identity" };
        call.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
        let answer = self.client.call(&call).await?;
        if !answer.status.is_success() {
            let (status, answer) = read_json(answer).await?;
            return Err(self.failure(status, &answer));
        }
        let gzip = answer.headers.get(CONTENT_ENCODING).is_some_and(|value| value == "gzip");
        if gzip != sent.gzip {
            let reason = format!("{} sent attachment {} in another encoding than it said.", self.shown, sent.name);
            return Err(ReplicateError::failed("bad_answer", reason));
        }
        Ok(AttachmentStream::Remote(Box::new(answer)))
    }

    /// See [`Peer::write`].
    pub async fn write(&self, docs: &[Doc]) -> Result<Vec<Refusal>> {
        if docs.is_empty() {
            return Ok(Vec::new());
        }
        let mut body = Object::new();
        body.push("new_edits", false);
        body.push("docs", Value::Array(docs.iter().map(|doc| Value::Object(doc.body.clone())).collect()));
        let (status, answer) = self.json(Method::POST, "/_bulk_docs", Some(&Value::Object(body))).await?;
        match (status.as_u16(), docs) {
            (413, [doc]) => {
                let (error, reason) = error_of(&answer);
                Ok(vec![Refusal::new(&doc.id, error, reason)])
            }
            (400 | 413, docs) if docs.len() > 1 => {
                let (left, right) = docs.split_at(docs.len() / 2);
                let mut refused = Box::pin(self.write(left)).await?;
                refused.extend(Box::pin(self.write(right)).await?);
                Ok(refused)
            }
            (400, [doc]) => {
                let (error, reason) = error_of(&answer);
                Ok(vec![Refusal::new(&doc.id, error, reason)])
            }
            (412, _) => Err(ReplicateError::MissingStub),
            _ if !status.is_success() => Err(self.failure(status, &answer)),
            _ => Ok(refusals(&answer)),
        }
    }

    /// See [`Peer::write_with`].
    pub async fn write_with(&self, doc: &Doc, sent: &[Sent], source: &Arc<Peer>) -> Result<Option<Refusal>> {
        let mut left = self.client_retries();
        loop {
            match self.put_multipart(doc, sent, source).await {
                Err(error @ ReplicateError::Failed { .. }) if left > 0 => {
                    tracing::debug!(id = doc.id, ?error, "a document with attachments is sent again");
                    left -= 1;
                    self.env.sleep(std::time::Duration::from_millis(limits::CLIENT_RETRY_MS)).await;
                }
                result => return result,
            }
        }
    }

    fn client_retries(&self) -> u64 {
        limits::REPLICATION_RETRIES
    }

    async fn put_multipart(&self, doc: &Doc, sent: &[Sent], source: &Arc<Peer>) -> Result<Option<Refusal>> {
        let boundary = hex::encode(&self.env.random_bytes::<16>());
        let (pieces, length) = multipart(doc, sent, &boundary);
        let mut call = self.request(Method::PUT, &format!("/{}?new_edits=false", path_of(&doc.id)), None);
        let kind = format!("multipart/related; boundary=\"{boundary}\"");
        if let Ok(kind) = HeaderValue::from_str(&kind) {
            call.headers.insert(CONTENT_TYPE, kind);
        }
        let body = streamed(pieces, Arc::clone(source), doc.id.clone(), doc.rev.clone());
        let answer = self.client.send(&call.method, &call.url, &call.headers, body, Some(length)).await?;
        let (status, answer) = read_json(answer).await?;
        match status.as_u16() {
            200..=299 => Ok(None),
            412 => Err(ReplicateError::MissingStub),
            400 | 401 | 403 | 409 | 413 => {
                let (error, reason) = error_of(&answer);
                Ok(Some(Refusal::new(&doc.id, error, reason)))
            }
            _ => Err(self.failure(status, &answer)),
        }
    }

    /// See [`Peer::local_get`].
    pub async fn local_get(&self, id: &str) -> Result<Option<Object>> {
        let (status, answer) = self.json(Method::GET, &format!("/_local/{}", encode(id)), None).await?;
        match answer {
            _ if status == StatusCode::NOT_FOUND => Ok(None),
            Value::Object(body) if status.is_success() => Ok(Some(body)),
            answer => Err(self.failure(status, &answer)),
        }
    }

    /// See [`Peer::local_put`].
    pub async fn local_put(&self, id: &str, rev: Option<&str>, body: &Object) -> Result<String> {
        let mut body = body.clone();
        body.insert("_id", format!("_local/{id}"));
        if let Some(rev) = rev {
            body.insert("_rev", rev);
        }
        let below = format!("/_local/{}", encode(id));
        let answer = self.ok(Method::PUT, &below, Some(&Value::Object(body))).await?;
        let rev = answer.as_object().and_then(|answer| answer.get("rev")?.as_str());
        rev.map(str::to_owned).ok_or_else(|| self.nonsense("a checkpoint"))
    }

    /// See [`Peer::ensure_full_commit`].
    pub async fn ensure_full_commit(&self) -> Result<()> {
        let (status, answer) = self.json(Method::POST, "/_ensure_full_commit", None).await?;
        // Servers that are always durable need not have it.
        if status.is_success() || matches!(status.as_u16(), 404 | 405 | 501) {
            return Ok(());
        }
        Err(self.failure(status, &answer))
    }

    /// See [`Peer::has_document`].
    pub async fn has_document(&self, id: &str) -> Result<bool> {
        let (status, answer) = self.json(Method::GET, &format!("/{}", path_of(id)), None).await?;
        match status.as_u16() {
            404 => Ok(false),
            200..=299 => Ok(true),
            _ => Err(self.failure(status, &answer)),
        }
    }
}

async fn read_json(answer: Answer) -> Result<(StatusCode, Value)> {
    let status = answer.status;
    let bytes = answer.bytes(limits::REPLICATION_ANSWER_BYTES).await?;
    Ok((status, json::parse(&bytes).unwrap_or(Value::Null)))
}

/// The path of a document: the slash of a design document stays.
fn path_of(id: &str) -> String {
    match id.strip_prefix("_design/") {
        Some(name) => format!("_design/{}", encode(name)),
        None => encode(id),
    }
}

fn texts(list: &[Value]) -> Vec<String> {
    list.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn error_of(answer: &Value) -> (String, String) {
    let text = |name: &str| answer.as_object().and_then(|a| a.get(name)?.as_str()).map(str::to_owned);
    (text("error").unwrap_or_else(|| "bad_answer".to_owned()), text("reason").unwrap_or_default())
}

fn page(answer: &Value) -> Option<ChangesPage> {
    let answer = answer.as_object()?;
    let row = |row: &Value| {
        let row = row.as_object()?;
        let revs = row.get("changes")?.as_array()?;
        let rev = |change: &Value| change.as_object()?.get("rev")?.as_str().map(str::to_owned);
        let revs = revs.iter().map(rev).collect::<Option<Vec<String>>>()?;
        Some(ChangedDoc { id: row.get("id")?.as_str()?.to_owned(), revs })
    };
    let rows = answer.get("results")?.as_array()?.iter().map(row).collect::<Option<Vec<ChangedDoc>>>()?;
    let pending = answer.get("pending").and_then(Value::as_u64);
    Some(ChangesPage { rows, last_seq: answer.get("last_seq")?.clone(), pending })
}

/// The document of an entry `{"ok": ..}`.
fn found_doc(entry: Value) -> Option<Doc> {
    let Value::Object(mut entry) = entry else { return None };
    match entry.remove("ok") {
        Some(Value::Object(body)) => Doc::from_body(body),
        _ => None,
    }
}

/// Each revision once: two of those asked for may have grown into the same leaf.
fn distinct(docs: Vec<Doc>) -> Vec<Doc> {
    let mut seen = std::collections::BTreeSet::new();
    docs.into_iter().filter(|doc| seen.insert((doc.id.clone(), doc.rev.clone()))).collect()
}

fn refusals(answer: &Value) -> Vec<Refusal> {
    let one = |item: &Value| {
        let members = item.as_object()?;
        members.get("error")?;
        let (error, reason) = error_of(item);
        Some(Refusal::new(members.get("id").and_then(Value::as_str).unwrap_or_default(), error, reason))
    };
    answer.as_array().unwrap_or_default().iter().filter_map(one).collect()
}

/// What a streamed body still has to send.
struct Sending {
    pieces: VecDeque<Piece>,
    open: Option<AttachmentStream>,
    source: Arc<Peer>,
    id: String,
    rev: String,
}

impl Sending {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(bytes) = open.next().await? {
                    return Ok(Some(bytes));
                }
                self.open = None;
            }
            match self.pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Text(text)) => return Ok(Some(text)),
                Some(Piece::Attachment(sent)) => {
                    // Boxed: opening an attachment of a remote source is such a future, too.
                    let open = Box::pin(self.source.attachment(&self.id, &self.rev, &sent));
                    self.open = Some(open.await?);
                }
            }
        }
    }
}

fn streamed(pieces: VecDeque<Piece>, source: Arc<Peer>, id: String, rev: String) -> Body {
    let sending = Sending { pieces, open: None, source, id, rev };
    let frames = stream::try_unfold(sending, |mut sending| async move {
        match sending.next().await {
            Ok(Some(bytes)) => Ok(Some((Frame::data(bytes), sending))),
            Ok(None) => Ok(None),
            Err(error) => Err(io::Error::other(error.text())),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn pages_are_read_whatever_the_sequences_are() {
        let text = r#"{"results":[{"seq":7,"id":"a","changes":[{"rev":"1-x"},{"rev":"1-y"}]}],"last_seq":[7,"z"]}"#;
        let page = page(&value(text)).unwrap();
        assert_eq!(page.rows, [ChangedDoc { id: "a".to_owned(), revs: vec!["1-x".to_owned(), "1-y".to_owned()] }]);
        assert_eq!((page.last_seq, page.pending), (value(r#"[7,"z"]"#), None));
        assert!(super::page(&value(r#"{"error":"x"}"#)).is_none());
    }

    #[test]
    fn only_failures_are_listed() {
        let answer = value(r#"[{"ok":true,"id":"a"},{"id":"b","error":"forbidden","reason":"no"}]"#);
        assert_eq!(refusals(&answer), [Refusal::new("b", "forbidden", "no")]);
        assert_eq!(refusals(&value("[]")), []);
    }

    #[test]
    fn paths_of_documents_are_encoded() {
        assert_eq!(path_of("_design/a/b"), "_design/a%2Fb");
        assert_eq!(path_of("ü/1"), "%C3%BC%2F1");
    }
}
