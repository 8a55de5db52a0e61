//! A database on another server as a peer: the replication protocol as a client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::error::{ReplicateError, Result};
use super::large::{LargeAnswers, Turn};
use super::multipart;
use super::peer::{
    Body, ChangedDoc, ChangesAsk, Doc, Fetched, Lack, Refusal, Sent, Source, SourcePage, Stored, Want, text_of,
};
use super::request::{RemoteEndpoint, ReplicationFilter};
use crate::document::json::{self, Object, Value};
use crate::limits;
use crate::wire::client::{Answer, Call, Client, ClientError};
use crate::wire::hex;
use crate::wire::url::{Url, encode};
use crate::world::buggify::{Mutation, mutated};
use crate::world::{BoxFuture, Env};

/// Tells a database of settee from one that had its name before; `instance_start_time` is always 0 there.
pub const INSTANCE: HeaderName = HeaderName::from_static("x-settee-instance");

/// A database on another server.
pub struct RemotePeer {
    env: Env,
    /// For its changes, which may wait long.
    feed: Client,
    client: Client,
    url: Url,
    headers: HeaderMap,
    user: Option<String>,
    /// Whether `_bulk_get` is not to be used, or the server answered that it has none.
    no_bulk_get: AtomicBool,
    /// Whether it would not take a stub of an attachment that it has by another generation.
    by_generation: AtomicBool,
    large: LargeAnswers,
    /// Its address as shown.
    pub shown: String,
}

impl RemotePeer {
    /// The peer of an endpoint. `clients`: that of its changes, and that of all else.
    pub fn new(env: &Env, [feed, client]: [Client; 2], endpoint: &RemoteEndpoint, bulk_get: bool) -> RemotePeer {
        let mut headers = endpoint.headers.clone();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("gzip"));
        RemotePeer {
            env: env.clone(),
            feed,
            client,
            url: endpoint.url.clone(),
            headers,
            user: endpoint.user.clone(),
            no_bulk_get: AtomicBool::new(!bulk_get),
            by_generation: AtomicBool::new(false),
            large: LargeAnswers::default(),
            shown: format!("{}/", endpoint.url),
        }
    }

    /// Shares the turns for large answers with the other peers of a node.
    #[must_use]
    pub fn sharing(mut self, large: &LargeAnswers) -> RemotePeer {
        self.large = large.clone();
        self
    }

    /// Reads an answer that may be as large as a document.
    async fn whole(&self, client: &Client, call: &Call) -> Result<Whole> {
        Whole::read(client, call, limits::REPLICATION_DOCUMENT_BYTES, &self.large).await
    }

    /// Reads an answer of so many bytes at most.
    async fn read(&self, call: &Call, limit_bytes: usize) -> Result<Whole> {
        Whole::read(&self.client, call, limit_bytes, &self.large).await
    }

    fn request(&self, method: Method, below: &str, body: Option<Bytes>) -> Call {
        let with_body = body.is_some();
        let mut call =
            Call { method, url: self.url.clone(), headers: self.headers.clone(), body: body.unwrap_or_default() };
        let (path, query) = below.split_once('?').map_or((below, None), |(path, query)| (path, Some(query)));
        call.url.path.push_str(path);
        call.url.query = match (call.url.query.take(), query) {
            (Some(own), Some(query)) => Some(format!("{own}&{query}")),
            (own, query) => own.or(query.map(str::to_owned)),
        };
        if with_body || call.method == Method::POST {
            call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        call
    }

    /// Sends a request and reads the answer as JSON; what is none is null.
    async fn json(&self, method: Method, below: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let call = self.request(method, below, body.map(|body| body.to_vec().into()));
        self.whole(&self.client, &call).await.map(|whole| (whole.status, whole.value))
    }

    /// As [`RemotePeer::json`], for requests of which only success is an answer.
    async fn ok(&self, method: Method, below: &str, body: Option<&Value>) -> Result<Value> {
        let (status, value) = self.json(method.clone(), below, body).await?;
        self.success((&method, below), status, value)
    }

    fn success(&self, asked: (&Method, &str), status: StatusCode, value: Value) -> Result<Value> {
        if status.is_success() { Ok(value) } else { Err(self.failure(asked, status, &value)) }
    }

    /// What an answer other than success means. `asked`: the request, for the message.
    fn failure(&self, (method, below): (&Method, &str), status: StatusCode, answer: &Value) -> ReplicateError {
        match (status.as_u16(), &self.user) {
            (401, Some(user)) => ReplicateError::WrongCredentials { origin: self.url.origin(), user: user.clone() },
            (401, None) => ReplicateError::Unauthorized { url: self.shown.clone() },
            (403, _) => ReplicateError::Forbidden { url: self.shown.clone() },
            (404, _) => ReplicateError::DatabaseMissing { url: self.shown.clone() },
            (413, _) => ReplicateError::RequestTooLarge,
            (status, _) => {
                let (error, reason) = error_of(answer);
                let (origin, database) = (self.url.origin(), &self.url.path);
                let path = below.split('?').next().unwrap_or_default();
                let reason = format!("{method} {origin}{database}{path} answered {status}: {reason}");
                ReplicateError::failed(error, reason)
            }
        }
    }

    /// See [`Peer::open`].
    pub async fn open(&self, create: Option<&[(String, String)]>) -> Result<String> {
        if let Some(parameters) = create {
            let query: Vec<String> = parameters.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
            let below = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
            let (status, answer) = self.json(Method::PUT, &below, None).await?;
            // 401: who may not make databases is told so even if it is there, as by CouchDB. 412: it is there already.
            if status == StatusCode::UNAUTHORIZED {
                return Err(self.may_not_create().await);
            }
            if !status.is_success() && !matches!(status.as_u16(), 403 | 412) {
                return Err(self.failure((&Method::PUT, ""), status, &answer));
            }
        }
        let call = self.request(Method::GET, "", None);
        let whole = self.whole(&self.client, &call).await?;
        let told = whole.headers.get(INSTANCE).map(|told| String::from_utf8_lossy(told.as_bytes()).into_owned());
        let info = self.success((&Method::GET, ""), whole.status, whole.value)?;
        let member = |name: &str| info.as_object().and_then(|info| info.get(name)).map(text_of).unwrap_or_default();
        Ok([member("instance_start_time"), member("uuid"), told.unwrap_or_default()].join(" "))
    }

    /// Why a database could not be made: the credentials are wrong, else it is their rights.
    async fn may_not_create(&self) -> ReplicateError {
        match self.ok(Method::GET, "", None).await {
            Err(wrong @ ReplicateError::WrongCredentials { .. }) => wrong,
            _ => ReplicateError::Unauthorized { url: self.shown.clone() },
        }
    }

    /// See [`Peer::changes`].
    pub async fn changes(&self, ask: &ChangesAsk) -> Result<SourcePage> {
        loop {
            let begun = self.env.now();
            let page = match ask.time_limit.filter(|_| ask.wait) {
                None => self.page(ask).await?,
                Some(time_limit) => match self.env.timeout(time_limit, self.page(ask)).await {
                    Ok(page) => page?,
                    // Who waits hears of nothing that the filter left out: how far that goes is asked for.
                    Err(_) => self.page(&ChangesAsk { wait: false, ..ask.clone() }).await?,
                },
            };
            if !ask.wait || !page.rows.is_empty() || page.last_seq != ask.since {
                return Ok(page);
            }
            // Some servers do not wait, whatever they are asked.
            self.env.sleep(limits::REPLICATION_IDLE_PAUSE.saturating_sub(self.env.now().since(begun))).await;
        }
    }

    /// One answer of the feed. Boxed: it is asked for in several ways, each of which would hold its own.
    fn page<'a>(&'a self, ask: &'a ChangesAsk) -> BoxFuture<'a, Result<SourcePage>> {
        Box::pin(self.read_page(ask))
    }

    async fn read_page(&self, ask: &ChangesAsk) -> Result<SourcePage> {
        let since = match &ask.since {
            Value::String(text) => encode(text),
            other => encode(&String::from_utf8_lossy(&other.to_vec())),
        };
        let style = if ask.winners { "main_only" } else { "all_docs" };
        // Also where it waits for nothing: a filter may leave out all rows for long.
        let heartbeat = (self.feed.patience().silence / limits::REPLICATION_HEARTBEATS).as_millis().max(1);
        let mut below = format!("/_changes?style={style}&since={since}&limit={}&heartbeat={heartbeat}", ask.limit);
        match ask.time_limit {
            _ if ask.wait => below.push_str("&feed=longpoll"),
            // Known to settee; others read on as long as their filter lets nothing pass.
            Some(time_limit) => below.push_str(&format!("&stretch={}", time_limit.as_millis())),
            None => {}
        }
        let mut body = None;
        match &ask.filter {
            ReplicationFilter::None => {}
            ReplicationFilter::Selector(_) if mutated(Mutation::SelectorForgotten) => {}
            ReplicationFilter::DocIds(ids) => {
                below.push_str("&filter=_doc_ids");
                body = Some(("doc_ids", Value::Array(ids.iter().map(|id| Value::from(id.as_str())).collect())));
            }
            ReplicationFilter::Selector(selector) => {
                below.push_str("&filter=_selector");
                body = Some(("selector", selector.clone()));
            }
            ReplicationFilter::Function { name, query } => {
                below.push_str(&format!("&filter={}", encode(name)));
                for (name, value) in query.iter() {
                    below.push_str(&format!("&{}={}", encode(name), encode(&text_of(value))));
                }
            }
        }
        let body = body.map(|(name, value)| std::iter::once((name.to_owned(), value)).collect::<Object>());
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let call = self.request(method.clone(), &below, body.map(|body| body.to_vec().into()));
        let Whole { status, value: answer, turn, .. } = self.whole(&self.feed, &call).await?;
        if status == StatusCode::NOT_FOUND && matches!(ask.filter, ReplicationFilter::Function { .. }) {
            // No server is waited for in a turn.
            drop(turn);
            // It is the filter that is not there, unless the database went away.
            self.ok(Method::GET, "", None).await?;
            return Err(ReplicateError::NoFilter(error_of(&answer).1));
        }
        page(&self.success((&method, &below), status, answer)?).ok_or_else(|| self.nonsense("_changes"))
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
    pub async fn fetch(&self, wants: &[Want], limit_bytes: usize) -> Result<Fetched> {
        let mut out = Fetched::default();
        let mut left: Vec<&Want> = wants.iter().collect();
        if !self.no_bulk_get.load(Ordering::Relaxed) {
            left = self.bulk_get(left, limit_bytes, &mut out).await?;
            out.in_bulk = out.docs.len();
        }
        for same_doc in left.chunk_by(|a, b| a.id == b.id) {
            for revs in same_doc.chunks(limits::REPLICATION_OPEN_REVS) {
                self.open_revs(revs, limit_bytes, &mut out).await?;
            }
        }
        for doc in &mut out.docs {
            out.bytes += self.take_nameless(doc, limit_bytes.saturating_sub(out.bytes)).await?;
        }
        Ok(out)
    }

    /// Puts the bytes of an attachment without a name into its document; answers how many bytes were read for that.
    async fn take_nameless(&self, doc: &mut Doc, limit_bytes: usize) -> Result<usize> {
        let below = format!("/{}?rev={}&attachments=true", path_of(&doc.id), encode(&doc.rev));
        let Some(entry) = doc.nameless() else { return Ok(0) };
        let call = self.request(Method::GET, &below, None);
        let Whole { status, value: answer, bytes, turn: _turn, .. } = self.read(&call, limit_bytes).await?;
        let asked = (&Method::GET, &*below);
        let Value::Object(body) = self.success(asked, status, answer)? else { return Err(self.nonsense("a document")) };
        let mut whole = Doc { id: String::new(), rev: String::new(), body: Body::Members(body) };
        let Some(Value::Object(found)) = whole.nameless() else { return Err(self.nonsense("a document")) };
        // Told of the bytes as they are stored there, which are not the ones that came.
        for stored in ["digest", "length", "encoding", "encoded_length"] {
            found.remove(stored);
        }
        *entry = Value::Object(std::mem::take(found));
        Ok(bytes)
    }

    /// Answers what is to be asked for one by one: all, where the server has no `_bulk_get`.
    async fn bulk_get<'w>(&self, wants: Vec<&'w Want>, limit_bytes: usize, out: &mut Fetched) -> Result<Vec<&'w Want>> {
        let item = |want: &&Want| {
            let members = [("id", &want.id), ("rev", &want.rev)];
            Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), Value::from(v.as_str()))).collect())
        };
        let mut body = Object::new();
        body.push("docs", Value::Array(wants.iter().map(item).collect()));
        let below = "/_bulk_get?revs=true&latest=true&att_encoding_info=true";
        let call = self.request(Method::POST, below, Some(body.to_vec().into()));
        let Whole { status, value: answer, bytes, turn: _turn, .. } = self.read(&call, limit_bytes).await?;
        if matches!(status.as_u16(), 400 | 404 | 405 | 415 | 501) {
            self.no_bulk_get.store(true, Ordering::Relaxed);
            return Ok(wants);
        }
        let answer = self.success((&Method::POST, below), status, answer)?;
        let Value::Object(mut answer) = answer else { return Err(self.nonsense("_bulk_get")) };
        let Some(Value::Array(results)) = answer.remove("results") else { return Err(self.nonsense("_bulk_get")) };
        // What is not there by this way, or left out, is asked for once more by the other.
        let mut answered: BTreeMap<String, usize> = BTreeMap::new();
        let mut whole = Vec::new();
        for result in results {
            let Value::Object(mut result) = result else { continue };
            let Some(Value::Array(found)) = result.remove("docs") else { continue };
            let Some(id) = result.get("id").and_then(Value::as_str) else { continue };
            if !found.is_empty() && found.iter().all(is_found) {
                *answered.entry(id.to_owned()).or_default() += 1;
                whole.push((id.to_owned(), found));
            }
        }
        let mut lacking: BTreeMap<&str, usize> = BTreeMap::new();
        wants.iter().for_each(|want| *lacking.entry(&want.id).or_default() += 1);
        lacking.retain(|id, count| answered.get(*id).is_none_or(|answered| answered < count));
        let complete = whole.into_iter().filter(|(id, _)| !lacking.contains_key(id.as_str()));
        complete.for_each(|(_, found)| add(&mut out.docs, found));
        out.bytes += bytes;
        let left: BTreeSet<String> = lacking.into_keys().map(str::to_owned).collect();
        Ok(wants.into_iter().filter(|want| left.contains(&want.id)).collect())
    }

    async fn open_revs(&self, wants: &[&Want], limit_bytes: usize, out: &mut Fetched) -> Result<()> {
        let Some(first) = wants.first() else { return Ok(()) };
        let revs = Value::Array(wants.iter().map(|want| Value::from(want.rev.as_str())).collect());
        let revs = encode(&String::from_utf8_lossy(&revs.to_vec()));
        let below = format!("/{}?revs=true&latest=true&att_encoding_info=true&open_revs={revs}", path_of(&first.id));
        let call = self.request(Method::GET, &below, None);
        let Whole { status, value: answer, bytes, turn: _turn, .. } = self.read(&call, limit_bytes).await?;
        out.bytes += bytes;
        if out.bytes > limit_bytes {
            return Err(ReplicateError::TooLarge);
        }
        match (status.as_u16(), answer) {
            (404, _) => {
                out.missing = Some(format!("{} {}", first.id, first.rev));
                Ok(())
            }
            (200, Value::Array(found)) => {
                let lacking = found.iter().find(|item| !is_found(item));
                if found.is_empty() || lacking.is_some() {
                    let rev = lacking.and_then(|item| item.as_object()?.get("missing")?.as_str()).unwrap_or(&first.rev);
                    out.missing = Some(format!("{} {rev}", first.id));
                }
                add(&mut out.docs, found);
                Ok(())
            }
            (401 | 403, answer) => {
                out.refused.push(self.refusal(&first.id, &answer).await?);
                Ok(())
            }
            (_, answer) => Err(self.failure((&Method::GET, &below), status, &answer)),
        }
    }

    /// What one document was refused for, once it is clear that the database itself may be used.
    async fn refusal(&self, id: &str, answer: &Value) -> Result<Refusal> {
        self.ok(Method::GET, "", None).await?;
        Ok(refused(id, answer))
    }

    /// See [`Peer::attachment`].
    pub async fn attachment(&self, id: &str, rev: &str, sent: &Sent) -> Result<Stored> {
        let below = format!("/{}/{}?rev={}", path_of(id), encode(&sent.name), encode(rev));
        let mut call = self.request(Method::GET, &below, None);
        call.headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let encoding = if sent.gzip { "gzip" } else { "identity" };
        call.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
        let answer = self.client.call(&call).await.map_err(|error| unanswered(&call, error))?;
        if !answer.status.is_success() {
            let (status, answer) = read_json(answer).await?;
            return Err(match status.as_u16() {
                // The revision may be gone by now: the next run asks for what is there then.
                404 => ReplicateError::failed("not_found", format!("Attachment {} of {id} is gone.", sent.name)),
                _ => self.failure((&Method::GET, &below), status, &answer),
            });
        }
        let gzip = answer.headers.get(CONTENT_ENCODING).is_some_and(|value| value == "gzip");
        if gzip != sent.gzip {
            let reason = format!("{} sent attachment {} in another encoding than it said.", self.shown, sent.name);
            return Err(ReplicateError::failed("bad_answer", reason));
        }
        Ok(Stored::Remote(Box::new(answer)))
    }

    /// See [`Peer::held`].
    pub async fn held(&self, id: &str, rev: &str) -> Result<Vec<Sent>> {
        let below = format!("/{}?rev={}&att_encoding_info=true", path_of(id), encode(rev));
        let (status, answer) = self.json(Method::GET, &below, None).await?;
        let doc = match answer {
            Value::Object(body) if status.is_success() => Doc::from_body(body),
            _ => None,
        };
        Ok(doc.map(|doc| Sent::of(&doc, 0)).unwrap_or_default())
    }

    /// See [`Peer::knows_bytes`].
    pub fn knows_bytes(&self) -> bool {
        !self.by_generation.load(Ordering::Relaxed)
    }

    /// See [`Peer::knows_no_bytes`].
    pub fn knows_no_bytes(&self) {
        self.by_generation.store(true, Ordering::Relaxed);
    }

    /// See [`Peer::write`].
    pub async fn write(&self, docs: &[Doc]) -> Result<Vec<Refusal>> {
        if docs.is_empty() {
            return Ok(Vec::new());
        }
        let mut body = br#"{"new_edits":false,"docs":["#.to_vec();
        for (at, doc) in docs.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            doc.write(&mut body);
        }
        body.extend_from_slice(b"]}");
        let call = self.request(Method::POST, "/_bulk_docs", Some(body.into()));
        let Whole { status, value: answer, turn, .. } = self.whole(&self.client, &call).await?;
        match (status.as_u16(), docs) {
            (400 | 413, [doc]) => Ok(vec![refused(&doc.id, &answer)]),
            (400 | 413, docs) => {
                // No server is waited for in a turn.
                drop((answer, turn));
                let (left, right) = docs.split_at(docs.len() / 2);
                let mut refused = Box::pin(self.write(left)).await?;
                refused.extend(Box::pin(self.write(right)).await?);
                Ok(refused)
            }
            (412, _) => Err(ReplicateError::MissingStub),
            _ if !status.is_success() => Err(self.failure((&Method::POST, "/_bulk_docs"), status, &answer)),
            _ => refusals(&answer).map_err(|Refusal { id, error, reason }| {
                ReplicateError::failed(error, format!("{} could not write {id}: {reason}", self.shown))
            }),
        }
    }

    /// See [`Peer::write_with`].
    pub async fn write_with(&self, doc: &Doc, sent: &[Sent], source: &Source) -> Result<Option<Refusal>> {
        let boundary = hex::encode(&self.env.random_bytes::<16>());
        let (pieces, length) = multipart::pieces(doc, sent, &boundary)?;
        let below = format!("/{}?new_edits=false", path_of(&doc.id));
        let mut call = self.request(Method::PUT, &below, None);
        let kind = format!("multipart/related; boundary=\"{boundary}\"");
        if let Ok(kind) = HeaderValue::from_str(&kind) {
            call.headers.insert(CONTENT_TYPE, kind);
        }
        let (body, broken) = multipart::streamed(pieces, source.clone(), doc.id.clone(), doc.rev.clone());
        let answer = self.client.send(&call.method, &call.url, &call.headers, body, Some(length)).await;
        let answer = answer.map_err(|error| {
            let broken = broken.lock().unwrap_or_else(PoisonError::into_inner).take();
            broken.unwrap_or_else(|| unanswered(&call, error))
        });
        let (status, answer) = read_json(answer?).await?;
        match status.as_u16() {
            200..=299 => Ok(None),
            412 => Err(ReplicateError::MissingStub),
            400 | 409 | 413 => Ok(Some(refused(&doc.id, &answer))),
            401 | 403 => self.refusal(&doc.id, &answer).await.map(Some),
            _ => Err(self.failure((&Method::PUT, &below), status, &answer)),
        }
    }

    /// See [`Peer::local_get`].
    pub async fn local_get(&self, id: &str) -> Result<Option<Object>> {
        self.body(&format!("_local/{}", encode(id))).await
    }

    /// The document at a path, if it is there.
    async fn body(&self, path: &str) -> Result<Option<Object>> {
        let below = format!("/{path}");
        let (status, answer) = self.json(Method::GET, &below, None).await?;
        match answer {
            _ if status == StatusCode::NOT_FOUND => Ok(None),
            Value::Object(body) if status.is_success() => Ok(Some(body)),
            answer => Err(self.failure((&Method::GET, &below), status, &answer)),
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
        let (status, answer) = self.json(Method::PUT, &below, Some(&Value::Object(body))).await?;
        if status == StatusCode::CONFLICT {
            return Err(ReplicateError::Conflict);
        }
        let answer = self.success((&Method::PUT, &below), status, answer)?;
        let rev = answer.as_object().and_then(|answer| answer.get("rev")?.as_str());
        rev.map(str::to_owned).ok_or_else(|| self.nonsense("a checkpoint"))
    }

    /// See [`Peer::ensure_full_commit`].
    pub async fn ensure_full_commit(&self) -> Result<()> {
        let below = "/_ensure_full_commit";
        let (status, answer) = self.json(Method::POST, below, None).await?;
        // Servers that are always durable need not have it.
        if status.is_success() || matches!(status.as_u16(), 404 | 405 | 501) {
            return Ok(());
        }
        Err(self.failure((&Method::POST, below), status, &answer))
    }

    /// See [`Peer::document`].
    pub async fn document(&self, id: &str) -> Result<Option<Object>> {
        self.body(&path_of(id)).await
    }
}

/// An answer that was read.
struct Whole {
    status: StatusCode,
    headers: HeaderMap,
    /// Null: it is no JSON.
    value: Value,
    /// How many bytes the JSON was.
    bytes: usize,
    /// Held for the values of a large one.
    turn: Option<Turn>,
}

impl Whole {
    /// Reads one; what is no JSON is asked for again where success was told.
    async fn read(client: &Client, call: &Call, limit_bytes: usize, large: &LargeAnswers) -> Result<Whole> {
        let take = |status: StatusCode, headers: HeaderMap, text: Bytes| {
            let values = json::tree_bytes(&text) as u64;
            if values > limits::JSON_VALUES_BYTES_MAX {
                return Err(ClientError::TooLarge);
            }
            // The values of a large one are made later, in turn.
            let (value, is_json) = match values > limits::REPLICATION_VALUES_BYTES {
                true => (None, json::check(&text).is_ok()),
                false => json::parse(&text).map_or((None, false), |value| (Some(value), true)),
            };
            match status.is_success() && !is_json {
                true => Err(ClientError::Garbled),
                false => Ok((status, headers, value, if is_json { text } else { Bytes::new() })),
            }
        };
        let taken = client.read(call, limit_bytes, take).await.map_err(|error| unanswered(call, error))?;
        let (status, headers, value, text) = taken;
        let bytes = text.len();
        let (value, turn) = match value {
            None if bytes > 0 => {
                let turn = large.turn().await;
                (json::parse(&text).unwrap_or(Value::Null), Some(turn))
            }
            value => (value.unwrap_or(Value::Null), None),
        };
        Ok(Whole { status, headers, value, bytes, turn })
    }
}

/// The status of an answer, its JSON, and how many bytes that was: see [`Whole`].
pub(super) async fn read(client: &Client, call: &Call, limit_bytes: usize) -> Result<(StatusCode, Value, usize)> {
    let whole = Whole::read(client, call, limit_bytes, &LargeAnswers::default()).await?;
    Ok((whole.status, whole.value, whole.bytes))
}

/// A request without an answer, named for the message.
fn unanswered(call: &Call, error: ClientError) -> ReplicateError {
    match ReplicateError::from(error) {
        ReplicateError::Failed { error, reason } => {
            let Call { method, url, .. } = call;
            ReplicateError::failed(error, format!("{method} {}{}: {reason}", url.origin(), url.path))
        }
        other => other,
    }
}

/// The answer to a request that was sent once.
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

/// Name and reason of an error as servers tell it.
pub(super) fn error_of(answer: &Value) -> (String, String) {
    let text = |name: &str| answer.as_object().and_then(|a| a.get(name)?.as_str()).map(str::to_owned);
    (text("error").unwrap_or_else(|| "bad_answer".to_owned()), text("reason").unwrap_or_default())
}

fn refused(id: &str, answer: &Value) -> Refusal {
    let (error, reason) = error_of(answer);
    Refusal::new(id, error, reason)
}

fn page(answer: &Value) -> Option<SourcePage> {
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
    let read = rows.len() as u64;
    Some(SourcePage { rows, read, last_seq: answer.get("last_seq")?.clone(), pending })
}

/// The document of an entry `{"ok": ..}`.
fn found_doc(entry: Value) -> Option<Doc> {
    let Value::Object(mut entry) = entry else { return None };
    match entry.remove("ok") {
        Some(Value::Object(body)) => Doc::from_body(body),
        _ => None,
    }
}

/// Adds what was found. Two of those asked for may have grown into the same leaf: each is taken once.
fn add(docs: &mut Vec<Doc>, found: Vec<Value>) {
    for doc in found.into_iter().filter_map(found_doc) {
        // Those of one document stand together.
        let mut same = docs.iter().rev().take_while(|known| known.id == doc.id);
        if same.all(|known| known.rev != doc.rev) {
            docs.push(doc);
        }
    }
}

/// Whether an item of `_bulk_get` or `open_revs` is a document, as against not being there or not being read.
fn is_found(item: &Value) -> bool {
    item.as_object().is_some_and(|item| item.contains("ok"))
}

/// Errors that tell of the server and not of the document that they are told of.
const OF_THE_SERVER: [&str; 5] =
    ["internal_server_error", "service_unavailable", "timeout", "insufficient_storage", "nodedown"];

/// What was refused of a `_bulk_docs`. The error: a document that the server could not write, and may another time.
fn refusals(answer: &Value) -> std::result::Result<Vec<Refusal>, Refusal> {
    let one = |item: &Value| {
        let members = item.as_object()?;
        members.get("error")?;
        let (error, reason) = error_of(item);
        Some(Refusal::new(members.get("id").and_then(Value::as_str).unwrap_or_default(), error, reason))
    };
    let refused = answer.as_array().unwrap_or_default().iter().filter_map(one);
    refused.map(|refused| if OF_THE_SERVER.contains(&&*refused.error) { Err(refused) } else { Ok(refused) }).collect()
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
        assert_eq!(refusals(&answer), Ok(vec![Refusal::new("b", "forbidden", "no")]));
        assert_eq!(refusals(&value("[]")), Ok(vec![]));
    }

    /// It was counted as refused, and the checkpoint went past it.
    #[test]
    fn a_document_that_the_server_could_not_write_is_not_taken_for_refused() {
        let answer = value(r#"[{"id":"a","error":"forbidden"},{"id":"b","error":"service_unavailable","reason":"x"}]"#);
        assert_eq!(refusals(&answer), Err(Refusal::new("b", "service_unavailable", "x")));
    }

    #[test]
    fn paths_of_documents_are_encoded() {
        assert_eq!(path_of("_design/a/b"), "_design/a%2Fb");
        assert_eq!(path_of("ü/1"), "%C3%BC%2F1");
    }
}
