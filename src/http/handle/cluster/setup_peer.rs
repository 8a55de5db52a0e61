//! The other node of a `_cluster_setup`: called over its HTTP port, with the credentials of the request.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::cluster::NodeName;
use crate::document::json::{self, Object, Value};
use crate::http::{Context, Problem, Result};
use crate::limits;
use crate::wire::client::{Client, ClientError, Patience, full};
use crate::wire::url::Url;

/// A node that is ready to be a member.
pub struct Invited {
    /// Its name.
    pub name: String,
    /// `host:port` of its cluster port.
    pub address: String,
    /// Whether it waits to be told what the nodes of a cluster share.
    pub is_new: bool,
}

/// A port as a number or as text.
pub fn port(value: &Value) -> Option<u16> {
    match value {
        Value::Int(port) => u16::try_from(*port).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn text<'a>(body: &'a Object, name: &str) -> Option<&'a str> {
    body.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
}

/// The node's `_cluster_setup`: `host` and `port` (5984 without one) of `body`; by https where nodes speak TLS.
fn setup_url(body: &Object, host: &str, https: bool) -> Option<Url> {
    let host = text(body, host)?;
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let port = match body.get("port") {
        None | Some(Value::Null) => limits::PORT.parse().ok()?,
        Some(value) => port(value)?,
    };
    let scheme = if https { "https" } else { "http" };
    Url::parse(&format!("{scheme}://{host}:{port}/_cluster_setup")).ok().map(|(url, _)| url)
}

/// Sends one action to another node. The status and the answer's object.
async fn act(
    ctx: &Context,
    url: &Url,
    login: (&str, &str),
    action: &Object,
) -> std::result::Result<(StatusCode, Object), ClientError> {
    use base64::Engine;
    let patience = Patience { silence: Duration::from_millis(limits::CLUSTER_SETUP_ANSWER_MS), retries: 0 };
    let client = match ctx.cluster.connector() {
        Some(connector) => Client::with_tls(&ctx.env, patience, connector),
        None => Client::new(&ctx.env, patience),
    };
    let credentials = base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", login.0, login.1));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Ok(value) = HeaderValue::from_str(&format!("Basic {credentials}")) {
        headers.insert(AUTHORIZATION, value);
    }
    let body = full(Bytes::from(action.to_vec()));
    let answer = client.send(&Method::POST, url, &headers, body, None).await?;
    let status = answer.status;
    let bytes = answer.bytes(limits::CLUSTER_SETUP_ANSWER_BYTES).await?;
    Ok(match json::parse(&bytes) {
        Ok(Value::Object(object)) => (status, object),
        _ => (status, Object::new()),
    })
}

/// The refusal for a node that cannot be called. Where no authority signs the certificates of nodes, https demands a
/// certificate that this system trusts, because the request holds the cluster's secret and a password.
fn unreachable(ctx: &Context, what: &str) -> Problem {
    if ctx.cluster.lacks_authority() {
        return Problem::bad_request(format!(
            "{what} failed. With [cluster] tls and no tls_ca_file the other node is called by https only, with a \
             certificate that this system trusts. Without one, have it join: its action join_cluster with the address \
             and a token of POST /_cluster/join_token."
        ));
    }
    Problem::bad_request(format!("{what} failed. Invalid Host and/or Port."))
}

/// Why the other node did not do what it was asked.
fn refused(what: &str, status: StatusCode, answer: &Object) -> Problem {
    if status == StatusCode::UNAUTHORIZED {
        return Problem::bad_request(format!("{what} failed. The other node refuses the username or the password."));
    }
    let reason = text(answer, "reason").map_or_else(|| status.to_string(), str::to_owned);
    Problem::bad_request(format!("{what} failed. The other node answers: {reason}"))
}

/// Hands the cluster's secret to the node that `add_node` names and learns who it is.
///
/// # Errors
/// 400 when it cannot be reached, refuses, or is not what the request calls it.
pub async fn invite(ctx: &Context, body: &Object) -> Result<Invited> {
    let unreachable = || unreachable(ctx, "Add node");
    let url = setup_url(body, "host", ctx.cluster.connector().is_some()).ok_or_else(unreachable)?;
    let login = (text(body, "username").unwrap_or_default(), text(body, "password").unwrap_or_default());
    let mut action = Object::new();
    action.push("action", "receive_cookie");
    action.push("cookie", ctx.cluster.secret().unwrap_or_default());
    action.push("by", ctx.cluster.name().as_str());
    if let Some(called) = text(body, "name") {
        action.push("called", called);
    }
    let (status, answer) = act(ctx, &url, login, &action).await.map_err(|error| {
        tracing::warn!("add_node: {url}: {error}");
        unreachable()
    })?;
    let (StatusCode::CREATED, Some(name), Some(port)) =
        (status, text(&answer, "name"), answer.get("cluster_port").and_then(port))
    else {
        return Err(refused("Add node", status, &answer));
    };
    let is_new = answer.get("new").and_then(Value::as_bool) == Some(true);
    Ok(Invited { name: name.to_owned(), address: format!("{}:{port}", url.host), is_new })
}

/// Whether the node `name` is the one that another wants to add: to be asked there, before anything is taken over.
///
/// # Errors
/// 400 when it is called otherwise, or as the other one.
pub fn check_called(name: &NodeName, asked: &Object) -> Result<()> {
    let own = name.as_str();
    if text(asked, "called").is_some_and(|called| called != own && own.split('@').next() != Some(called)) {
        return Err(Problem::bad_request(format!("It is called {own}.")));
    }
    if text(asked, "by") == Some(own) {
        return Err(Problem::bad_request(format!("It is called {own}, as the one that asks: start it with --node.")));
    }
    Ok(())
}

/// `enable_cluster` for the node `remote_node`.
///
/// # Errors
/// 400 when it cannot be reached or refuses.
pub async fn enable(ctx: &Context, body: &Object) -> Result<()> {
    let unreachable = || unreachable(ctx, "Enable cluster");
    let url = setup_url(body, "remote_node", ctx.cluster.connector().is_some()).ok_or_else(unreachable)?;
    let login = text(body, "remote_current_user").unwrap_or_default();
    let password = text(body, "remote_current_password").unwrap_or_default();
    let mut action = Object::new();
    action.push("action", "enable_cluster");
    for field in ["username", "password", "bind_address", "port", "node_count"] {
        if let Some(value) = body.get(field) {
            action.push(field, value.clone());
        }
    }
    let (status, answer) = act(ctx, &url, (login, password), &action).await.map_err(|error| {
        tracing::warn!("enable_cluster: {url}: {error}");
        unreachable()
    })?;
    if status == StatusCode::CREATED { Ok(()) } else { Err(refused("Enable cluster", status, &answer)) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An object of its JSON text.
    pub(in crate::http::handle) fn object(text: &str) -> Object {
        match json::parse(text.as_bytes()).unwrap() {
            Value::Object(object) => object,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nodes_are_reached_by_host_and_port() {
        let at = |text: &str| setup_url(&object(text), "host", false).map(|url| url.authority());
        assert_eq!(at(r#"{"host":"127.0.0.1","port":1}"#).as_deref(), Some("127.0.0.1:1"));
        assert_eq!(at(r#"{"host":"some.host"}"#).as_deref(), Some("some.host:5984"));
        assert_eq!(at(r#"{"host":"::1","port":"7"}"#).as_deref(), Some("[::1]:7"));
        for bad in [r#"{"port":1}"#, r#"{"host":"a b"}"#, r#"{"host":"h","port":70000}"#, r#"{"host":5}"#] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }
}
