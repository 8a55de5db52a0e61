//! An HTTP client over a simulated (or real) host: one kept-alive connection, a timeout on everything, no retries.
//!
//! What it cannot know it calls unknown: a request that was sent and not answered may have taken effect.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use settee::world::{Abort, Env};

/// How long a client waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An answer that came in full.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body bytes.
    pub body: Bytes,
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
    connection: Option<Connection>,
}

impl Client {
    /// A client on `env` that talks to the node at `to` as `user`.
    pub fn new(env: Env, to: SocketAddr, user: &str, password: &str) -> Client {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        Client { env, to, credentials: format!("Basic {pair}"), connection: None }
    }

    /// Sends a request with a JSON body and waits for the whole answer.
    pub async fn json(&mut self, method: &str, path: &str, body: &Value) -> Result<Answer, NoAnswer> {
        self.send(method, path, "application/json", Bytes::from(body.to_string())).await
    }

    /// Sends a request without a body.
    pub async fn get(&mut self, path: &str) -> Result<Answer, NoAnswer> {
        self.send("GET", path, "application/json", Bytes::new()).await
    }

    /// Sends a request and waits for the whole answer; the connection is given up after a failure.
    pub async fn send(&mut self, method: &str, path: &str, kind: &str, body: Bytes) -> Result<Answer, NoAnswer> {
        let env = self.env.clone();
        let answer = env.timeout(PATIENCE, self.exchange(method, path, kind, body)).await;
        match answer {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => {
                self.hang_up();
                Err(NoAnswer)
            }
        }
    }

    async fn exchange(&mut self, method: &str, path: &str, kind: &str, body: Bytes) -> Option<Answer> {
        if self.connection.as_ref().is_none_or(|(sender, _)| sender.is_closed()) {
            self.hang_up();
            let stream = self.env.host().connect(self.to).await.ok()?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
            let task = self.env.spawn(async move {
                let _ = connection.await;
            });
            self.connection = Some((sender, task));
        }
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Host", self.to.to_string())
            .header("Authorization", &self.credentials)
            .header("Accept", "application/json")
            .header("Content-Type", kind)
            .body(Full::new(body))
            .ok()?;
        let (sender, _) = self.connection.as_mut()?;
        sender.ready().await.ok()?;
        let answer = sender.send_request(request).await.ok()?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some(Answer { status, body })
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
