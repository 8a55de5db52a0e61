//! An HTTP client over a simulated (or real) host: one kept-alive connection, a timeout on everything, no retries.
//!
//! What it cannot know it calls unknown: a request that was sent and not answered may have taken effect.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use settee::wire::tls::{Connector, Trust};
use settee::world::{Abort, Env};

use crate::place::TLS_PORT;
use crate::world::AUTHORITY;

/// How long a client waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An answer that came in full.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body bytes.
    pub body: Bytes,
    /// The session cookie that came with it.
    pub cookie: Option<String>,
    /// The token of a write.
    pub token: Option<String>,
    /// How many replicas it says it stands for; nothing is said of a single one.
    pub replicas: u32,
}

/// As whom a request is sent.
#[derive(Clone, Copy, Debug)]
pub enum Who<'a> {
    /// By name and password.
    Owner,
    /// By a session cookie.
    Cookie(&'a str),
    /// As the user of this name, whom the node believes a proxy.
    Proxied(&'a str),
    /// By a token.
    Bearer(&'a str),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// By whom.
    pub who: Who<'a>,
    /// Method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// The body's type.
    pub kind: &'a str,
    /// The body.
    pub body: Bytes,
}

impl<'a> Ask<'a> {
    /// With a JSON body (null: none), by the owner.
    pub fn json(method: &'a str, path: &'a str, body: &Value) -> Ask<'a> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        Ask { who: Who::Owner, method, path, kind: "application/json", body }
    }

    /// A `GET` by the owner.
    pub fn get(path: &'a str) -> Ask<'a> {
        Ask::json("GET", path, &Value::Null)
    }

    /// The same by somebody else.
    #[must_use]
    pub fn of(self, who: Who<'a>) -> Ask<'a> {
        Ask { who, ..self }
    }
}

/// The part of an answer that came in some time.
#[derive(Clone, Debug)]
pub struct Part {
    /// Status code.
    pub status: u16,
    /// Body bytes.
    pub body: Vec<u8>,
    /// Whether that was all.
    pub whole: bool,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// No complete answer: reset, timeout, refused or cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// The sending side of a connection, and the task that moves its bytes.
type Connection = (SendRequest<Full<Bytes>>, Box<dyn Abort>);

/// One client with its own address and connection.
pub struct Client {
    env: Env,
    to: SocketAddr,
    credentials: String,
    /// What it speaks TLS with, if it does.
    secure: Option<Connector>,
    connection: Option<Connection>,
}

impl Client {
    /// A client on `env` that talks to the node at `to` as `user`.
    pub fn new(env: Env, to: SocketAddr, user: &str, password: &str) -> Client {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        // Outside of the simulated world any port may be that of a proxy.
        let is_secure = to.port() == TLS_PORT && env.host().is_seeded();
        let secure = is_secure.then(|| Connector::new(&env, Trust::File(AUTHORITY.into()), None));
        Client { env, to, credentials: format!("Basic {pair}"), secure, connection: None }
    }

    /// Sends a request with a JSON body (null: none) and waits for the whole answer.
    pub async fn json(&mut self, method: &str, path: &str, body: &Value) -> Result<Answer, NoAnswer> {
        self.ask(Ask::json(method, path, body)).await
    }

    /// Sends a request without a body.
    pub async fn get(&mut self, path: &str) -> Result<Answer, NoAnswer> {
        self.ask(Ask::get(path)).await
    }

    /// Where it sends its requests.
    pub fn to(&self) -> SocketAddr {
        self.to
    }

    /// The world as this client sees it.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Another connection from the same machine to the same node.
    pub fn another(&self) -> Client {
        let (env, credentials, secure) = (self.env.clone(), self.credentials.clone(), self.secure.clone());
        Client { env, to: self.to, credentials, secure, connection: None }
    }

    /// Sends a request and waits for the whole answer; the connection is given up after a failure.
    pub async fn ask(&mut self, ask: Ask<'_>) -> Result<Answer, NoAnswer> {
        let env = self.env.clone();
        let answer = env.timeout(PATIENCE, self.exchange(ask)).await;
        match answer {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => {
                self.hang_up();
                Err(NoAnswer)
            }
        }
    }

    async fn exchange(&mut self, ask: Ask<'_>) -> Option<Answer> {
        let answer = self.begin(ask).await?;
        let status = answer.status().as_u16();
        let cookie = answer.headers().get("Set-Cookie").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let replicas = answer.headers().get("X-Settee-Copies").and_then(|value| value.to_str().ok()?.parse().ok());
        let token = answer.headers().get("X-Settee-Token").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some(Answer { status, body, cookie, token, replicas: replicas.unwrap_or(1) })
    }

    /// Sends a request; its answer has begun.
    async fn begin(&mut self, ask: Ask<'_>) -> Option<http::Response<Incoming>> {
        if self.connection.as_ref().is_none_or(|(sender, _)| sender.is_closed()) {
            self.hang_up();
            let stream = self.env.host().connect(self.to).await.ok()?;
            let stream = match &self.secure {
                Some(connector) => connector.connect(&self.to.ip().to_string(), stream).await.ok()?,
                None => stream,
            };
            let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
            let task = self.env.spawn(async move {
                let _ = connection.await;
            });
            self.connection = Some((sender, task));
        }
        let request = http::Request::builder().method(ask.method).uri(ask.path).header("Host", self.to.to_string());
        let request = match ask.who {
            Who::Owner => request.header("Authorization", &self.credentials),
            Who::Cookie(value) => request.header("Cookie", value),
            Who::Proxied(name) => request.header("X-Auth-CouchDB-UserName", name),
            Who::Bearer(token) => request.header("Authorization", format!("Bearer {token}")),
        };
        let request = request.header("Accept", "application/json").header("Content-Type", ask.kind);
        let request = request.body(Full::new(ask.body)).ok()?;
        let (sender, _) = self.connection.as_mut()?;
        sender.ready().await.ok()?;
        sender.send_request(request).await.ok()
    }

    /// Reads an answer that does not end by itself for a time; the connection is given up after it.
    pub async fn listen(&mut self, path: &str, time: Duration) -> Result<Part, NoAnswer> {
        self.listen_to(Ask::get(path), time).await
    }

    /// The same of the answer to any request.
    pub async fn listen_to(&mut self, ask: Ask<'_>, time: Duration) -> Result<Part, NoAnswer> {
        let (env, mut part) = (self.env.clone(), Part { status: 0, body: Vec::new(), whole: false });
        let read = async {
            let Some(answer) = self.begin(ask).await else { return };
            part.status = answer.status().as_u16();
            let mut body = answer.into_body();
            loop {
                match body.frame().await {
                    Some(Ok(frame)) => part.body.extend(frame.into_data().unwrap_or_default()),
                    Some(Err(_)) => return,
                    None => break,
                }
            }
            part.whole = true;
        };
        // Time over: what has come counts.
        let _ = env.timeout(time, read).await;
        self.hang_up();
        if part.status == 0 { Err(NoAnswer) } else { Ok(part) }
    }

    /// Gives the connection up; the next request opens another.
    pub fn hang_up(&mut self) {
        if let Some((_, task)) = self.connection.take() {
            task.abort();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.hang_up();
    }
}
