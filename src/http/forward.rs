//! Requests of `/_node/{name}` for another node: sent to that node over the cluster's link, together with the caller as
//! this node authenticated them, and answered as if they had come to that node's own port.
//!
//! Assumes: the other node is honest, as every node that knows the cluster's secret. Credentials are not sent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::body::RequestBody;
use super::handle::{admit, handle};
use super::problem::{Problem, Result};
use super::query::Query;
use super::request::{Request, Verb};
use super::response::{Reply, ReplyBody, encode_segment};
use super::route::{Endpoint, route, segments};
use super::{Context, UserCtx};
use crate::cluster::{self, CallError, Class, Handler, Incoming, NodeName, Service};
use crate::document::json::{self, Value};
use crate::limits;
use crate::wire::codec::{Reader, put_bytes};
use crate::world::BoxFuture;

/// Headers that belong to the client's connection, or are the client's secrets.
const KEPT_BACK: [HeaderName; 6] =
    [AUTHORIZATION, COOKIE, CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH, CONTENT_ENCODING];

/// A request on its way, without its body.
#[derive(Serialize, Deserialize)]
struct Asked {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    name: Option<String>,
    roles: Vec<String>,
    peer: SocketAddr,
    secure: bool,
    id: String,
}

/// An answer on its way: the message before its body.
#[derive(Serialize, Deserialize)]
struct Answered {
    status: u16,
    headers: Vec<(String, String)>,
    /// Whether the next message is all of the body; else every further one is a piece.
    whole: bool,
}

fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let kept = headers.iter().filter(|(name, _)| !KEPT_BACK.contains(name));
    kept.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
}

fn header_map(pairs: Vec<(String, String)>) -> HeaderMap {
    let read =
        |(name, value): (String, String)| Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(&value).ok()?));
    pairs.into_iter().filter_map(read).collect()
}

/// Lets the node `to` answer `request`, whose path begins with `/_node/{name}`.
///
/// # Errors
/// 412 `nodedown` when it is not connected; 500 `timeout` when it did not answer; 413 for a large body.
pub async fn ask(ctx: &Context, to: &NodeName, request: Request) -> Result<Reply> {
    let patience = Duration::from_millis(limits::CLUSTER_HTTP_MS);
    let late = || CallError::Unknown("no answer in time".to_owned());
    let answer = ctx.env.timeout(patience, send_on(ctx, to, request)).await;
    answer.unwrap_or_else(|_| Err(Problem::of_call(to, late())))
}

/// A POST to `below` of the node `to`, as the caller of `asked`.
pub fn post(to: &NodeName, asked: &Request, below: &str, body: Vec<u8>) -> Request {
    Request {
        headers: asked.headers.clone(),
        secure: asked.secure,
        peer: asked.peer,
        ..own_request("POST", format!("/_node/{to}/{below}"), body, &asked.user, &asked.id)
    }
}

/// A GET of `below` of the node `to`, as the caller of `asked`.
pub fn get(to: &NodeName, asked: &Request, below: &str) -> Request {
    own_request("GET", format!("/_node/{to}/{below}"), Vec::new(), &asked.user, &asked.id)
}

/// As [`ask`], however long it takes until the node answers.
///
/// # Errors
/// 412 `nodedown` when it is not connected; 413 for a large body.
pub async fn send_on(ctx: &Context, to: &NodeName, mut request: Request) -> Result<Reply> {
    let body = request.body.bytes(limits::CLUSTER_HTTP_BODY_BYTES).await?;
    let below = segments(&request.raw_path).into_iter().skip(2);
    let asked = Asked {
        method: request.method.clone(),
        path: ["", "_node", "_local"].into_iter().chain(below).collect::<Vec<_>>().join("/"),
        query: request.query.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        headers: pairs(&request.headers),
        name: request.user.name.clone(),
        roles: request.user.roles.clone(),
        peer: request.peer,
        secure: request.secure,
        id: request.id.clone(),
    };
    let mut message = Vec::new();
    // Invariant: texts always serialize.
    put_bytes(&mut message, &serde_json::to_vec(&asked).expect("a request serializes"));
    message.extend_from_slice(&body);
    let answer = async {
        let mut incoming = ctx.cluster.open(to, Service::Http, Class::Foreground, message.into()).await?;
        let head = next(&mut incoming).await?;
        let head: Answered = serde_json::from_slice(&head).map_err(|e| CallError::Unknown(e.to_string()))?;
        let whole = if head.whole { Some(next(&mut incoming).await?) } else { None };
        Ok((head, whole, incoming))
    };
    let (head, whole, incoming) = answer.await.map_err(|error| Problem::of_call(to, error))?;
    let body = match whole {
        Some(bytes) => ReplyBody::Full(bytes.into()),
        None => ReplyBody::Stream(Box::pin(pieces(to.clone(), incoming))),
    };
    let status = StatusCode::from_u16(head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(Reply::new(status, header_map(head.headers), body))
}

async fn next(incoming: &mut Incoming) -> std::result::Result<Bytes, CallError> {
    incoming.next().await?.ok_or_else(|| CallError::Unknown("the answer is not whole".to_owned()))
}

fn pieces(to: NodeName, incoming: Incoming) -> impl futures_util::Stream<Item = Result<Bytes>> + Send {
    futures_util::stream::unfold(Some((to, incoming)), |state| async {
        let (to, mut incoming) = state?;
        match incoming.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some((to, incoming)))),
            Ok(None) => None,
            Err(error) => Some((Err(Problem::of_call(&to, error)), None)),
        }
    })
}

/// The other nodes that are up.
pub fn others(ctx: &Context) -> Vec<NodeName> {
    ctx.cluster.up().into_iter().filter(|name| name != ctx.cluster.name()).collect()
}

/// What the other nodes that are up answer to a GET of `below` of each, asked as the caller of `asked`. Those that do
/// not answer, or not with JSON, are left out.
pub async fn ask_others(ctx: &Context, asked: &Request, below: &str) -> Vec<Value> {
    let requests = others(ctx).into_iter().map(|name| {
        let request = get(&name, asked, below);
        (name, request)
    });
    let answers = requests.map(|(name, request)| async move {
        let reply = ask(ctx, &name, request).await.ok().filter(|reply| reply.status.is_success())?;
        match reply.body {
            ReplyBody::Full(whole) => json::parse(&whole.into_bytes()).ok(),
            ReplyBody::Stream(_) => None,
        }
    });
    join_all(answers).await.into_iter().flatten().collect()
}

/// A request that no client sent.
fn own_request(method: &str, raw_path: String, body: Vec<u8>, user: &UserCtx, id: &str) -> Request {
    Request {
        verb: Verb::of(method),
        head: false,
        method: method.to_owned(),
        raw_path,
        query: Query::default(),
        headers: HeaderMap::new(),
        peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        secure: false,
        id: id.to_owned(),
        user: user.clone(),
        floor: None,
        body: RequestBody::full(body),
    }
}

/// Sets one setting of another node, as an administrator would.
///
/// # Errors
/// As [`ask`], and whatever the other node answers but 200.
pub async fn put_setting(ctx: &Context, to: &NodeName, at: (&str, &str), value: &str, user: &UserCtx) -> Result<()> {
    let body = serde_json::Value::from(value).to_string();
    change_setting(ctx, to, at, ("PUT", body.into_bytes()), user, &[StatusCode::OK]).await
}

/// Removes one setting of another node; fine when it is not set.
///
/// # Errors
/// As [`put_setting`].
pub async fn delete_setting(ctx: &Context, to: &NodeName, at: (&str, &str), user: &UserCtx) -> Result<()> {
    let fine = [StatusCode::OK, StatusCode::NOT_FOUND];
    change_setting(ctx, to, at, ("DELETE", Vec::new()), user, &fine).await
}

async fn change_setting(
    ctx: &Context,
    to: &NodeName,
    (section, key): (&str, &str),
    (method, body): (&str, Vec<u8>),
    user: &UserCtx,
    fine: &[StatusCode],
) -> Result<()> {
    let raw_path = format!("/_node/{to}/_config/{}/{}", encode_segment(section), encode_segment(key));
    let request = own_request(method, raw_path, body, user, "setup");
    let reply = ask(ctx, to, request).await?;
    if fine.contains(&reply.status) {
        return Ok(());
    }
    Err(Problem::internal(format!("{to} answered {} to a change of {section}/{key}", reply.status)))
}

/// Answers what other nodes forward.
pub struct Forwarded(Weak<Context>);

impl Forwarded {
    /// For the node of `context`, which it does not keep alive.
    pub fn new(context: &Arc<Context>) -> Forwarded {
        Forwarded(Arc::downgrade(context))
    }
}

impl Handler for Forwarded {
    fn handle(&self, _from: NodeName, message: Bytes, reply: cluster::Reply) -> BoxFuture<'static, ()> {
        let context = self.0.upgrade();
        Box::pin(async move {
            let Some(context) = context else { return reply.fail("the node is stopping") };
            let Some(request) = read(&message) else { return reply.fail("that is no request") };
            let answer = answer(&context, request).await.unwrap_or_else(Reply::from);
            send(answer, reply).await;
        })
    }
}

fn read(message: &Bytes) -> Option<Request> {
    let mut reader = Reader::new(message);
    let asked: Asked = serde_json::from_slice(reader.bytes().ok()?).ok()?;
    let body = message.slice(message.len() - reader.rest().len()..);
    let query = Query::from_pairs(asked.query);
    Some(Request {
        verb: Verb::of(&asked.method),
        head: asked.method == "HEAD",
        method: asked.method,
        raw_path: asked.path,
        query,
        headers: header_map(asked.headers),
        peer: asked.peer,
        secure: asked.secure,
        id: asked.id,
        user: UserCtx { name: asked.name, roles: asked.roles, handler: None },
        floor: None,
        body: RequestBody::full(body),
    })
}

/// Only this node's own resources are served to others: everything else has ways of its own.
async fn answer(context: &Context, request: Request) -> Result<Reply> {
    let endpoint = route(&request.raw_path);
    if !matches!(&endpoint, Endpoint::Node(rest) if rest.first().is_some_and(|name| name == "_local")) {
        return Err(Problem::missing());
    }
    admit(context, &endpoint, &request)?;
    handle(context, endpoint, request).await
}

async fn send(answer: Reply, mut reply: cluster::Reply) {
    let whole = !matches!(answer.body, ReplyBody::Stream(_));
    let head = Answered { status: answer.status.as_u16(), headers: pairs(&answer.headers), whole };
    // Invariant: texts always serialize.
    let head = serde_json::to_vec(&head).expect("an answer serializes");
    if reply.send(Bytes::from(head)).await.is_err() {
        return;
    }
    match answer.body {
        ReplyBody::Full(whole) if whole.len() > limits::CLUSTER_MESSAGE_BYTES => reply.fail("the answer is too large"),
        ReplyBody::Full(whole) => reply.answer(whole).await,
        ReplyBody::Stream(mut chunks) => {
            while let Some(chunk) = chunks.next().await {
                let sent = match chunk {
                    Ok(chunk) => reply.send(chunk).await,
                    Err(problem) => return reply.fail(problem.reason_text()),
                };
                if sent.is_err() {
                    return;
                }
            }
            reply.finish();
        }
    }
}
