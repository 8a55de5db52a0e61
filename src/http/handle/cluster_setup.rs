//! `_cluster_setup`: the set-up of a node (SPEC 'Cluster setup rules'), for a node that stands alone.
//!
//! States, actions and refusals as CouchDB 3.5 was measured. One thing differs: the system databases exist from the
//! first start, so that a cluster counts as finished unless `enable_cluster` was called and `finish_cluster` was not;
//! that is kept as `settee/cluster_setup`. Addresses and ports take effect with the next start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use super::super::request::Verb;
use super::super::{Context, Problem, Reply, Request, Result};
use super::not_yet;
use crate::auth::security::SecurityObject;
use crate::auth::{admins, users_design};
use crate::config::Config;
use crate::coordinator::{CreateOptions, DatabaseError};
use crate::document::json::{Object, Value};
use crate::limits;

/// The databases that a finished set-up has, unless the request names others.
const SYSTEM_DATABASES: [&str; 2] = ["_users", "_replicator"];
/// Where an unfinished set-up of a cluster is remembered, and with what.
const PROGRESS: (&str, &str) = ("settee", "cluster_setup");
const ENABLED: &str = "enabled";

/// How far the set-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SingleNodeDisabled,
    SingleNodeEnabled,
    ClusterDisabled,
    ClusterEnabled,
    ClusterFinished,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::SingleNodeDisabled => "single_node_disabled",
            State::SingleNodeEnabled => "single_node_enabled",
            State::ClusterDisabled => "cluster_disabled",
            State::ClusterEnabled => "cluster_enabled",
            State::ClusterFinished => "cluster_finished",
        }
    }

    /// What the configuration says; `databases`: whether those that must be there are there.
    fn of(config: &Config, databases: bool) -> State {
        if config.bool("couchdb", "single_node", false) {
            return State::SingleNodeEnabled;
        }
        if config.text("cluster", "n", "") == "1" {
            return if admins::any(config) && databases { State::SingleNodeEnabled } else { State::SingleNodeDisabled };
        }
        if !cluster_enabled(config) {
            return State::ClusterDisabled;
        }
        let under_way = config.text(PROGRESS.0, PROGRESS.1, "") == ENABLED;
        if databases && !under_way { State::ClusterFinished } else { State::ClusterEnabled }
    }
}

/// Whether other nodes could reach this one: it has an administrator and an address of its own.
fn cluster_enabled(config: &Config) -> bool {
    admins::any(config) && !is_local(&config.text("chttpd", "bind_address", limits::BIND_ADDRESS))
}

fn is_local(address: &str) -> bool {
    matches!(address, "127.0.0.1" | "::1")
}

/// `GET` and `POST /_cluster_setup`
///
/// # Errors
/// 400 `bad_request` for what the state does not allow, 500 for an incomplete `enable_cluster` (as measured), 501 for
/// what needs a second node.
pub async fn handle(ctx: &Context, mut request: Request) -> Result<Reply> {
    if request.verb == Verb::Get {
        let databases = database_names(request.query.json("ensure_dbs_exist")?.as_ref())?;
        let state = State::of(&ctx.config, missing(ctx, &databases).is_empty());
        return Ok(Reply::value(StatusCode::OK, &json!({"state": state.name()})));
    }
    request.require_json()?;
    let body = request.json_object().await?;
    match body.get("action").and_then(Value::as_str) {
        Some("enable_single_node") => enable_single_node(ctx, &body).await?,
        Some("enable_cluster") => enable_cluster(ctx, &body).await?,
        Some("add_node") => add_node(ctx, &body).await?,
        Some("finish_cluster") => finish_cluster(ctx, &body).await?,
        _ => return Err(Problem::bad_request("Invalid Action'")),
    }
    Ok(Reply::ok(StatusCode::CREATED))
}

async fn enable_single_node(ctx: &Context, body: &Object) -> Result<()> {
    let databases = database_names(body.get("ensure_dbs_exist"))?;
    let node = NodeSetup::read(body)?;
    let missing = missing(ctx, &databases);
    if State::of(&ctx.config, missing.is_empty()) == State::SingleNodeEnabled && missing.is_empty() {
        return Err(Problem::bad_request("Cluster is already finished"));
    }
    make_databases(ctx, &missing).await?;
    node.apply(ctx).await?;
    ctx.config.set(("cluster", "n"), "1", true).await?;
    Ok(())
}

async fn enable_cluster(ctx: &Context, body: &Object) -> Result<()> {
    if body.get("remote_node").is_some_and(|value| !value.is_null()) {
        return Err(not_yet::endpoint("enable_cluster for a remote node"));
    }
    if cluster_enabled(&ctx.config) {
        return Err(Problem::bad_request("Cluster is already enabled"));
    }
    let node = NodeSetup::read(body)?;
    let address = node.bind_address.clone();
    let address = address.unwrap_or_else(|| ctx.config.text("chttpd", "bind_address", limits::BIND_ADDRESS));
    if is_local(&address) {
        return Err(incomplete("Cluster setup requires a remote bind_address (not 127.0.0.1 nor ::1)"));
    }
    let count = node_count(body.get("node_count"))
        .ok_or_else(|| incomplete("Cluster setup requires node_count to be configured"))?;
    // First, so that a set-up that breaks off counts as under way.
    ctx.config.set(PROGRESS, ENABLED, true).await?;
    node.apply(ctx).await?;
    ctx.config.set(("cluster", "n"), &count.to_string(), true).await?;
    Ok(())
}

/// The number of copies that a cluster of so many nodes keeps: at most 3, and 3 for a text (as measured).
fn node_count(value: Option<&Value>) -> Option<i64> {
    match value {
        None | Some(Value::Null) => None,
        Some(Value::Int(count)) => Some((*count).clamp(1, 3)),
        Some(_) => Some(3),
    }
}

fn incomplete(reason: &'static str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "error", reason)
}

async fn finish_cluster(ctx: &Context, body: &Object) -> Result<()> {
    let databases = database_names(body.get("ensure_dbs_exist"))?;
    let missing = missing(ctx, &databases);
    if missing.is_empty() && ctx.config.get(PROGRESS.0, PROGRESS.1).as_deref() != Some(ENABLED) {
        return Err(Problem::bad_request("Cluster is already finished"));
    }
    make_databases(ctx, &missing).await?;
    ctx.config.delete(PROGRESS, true).await?;
    Ok(())
}

/// A host that does not answer is refused; joining one that does is for a later version.
async fn add_node(ctx: &Context, body: &Object) -> Result<()> {
    if !cluster_enabled(&ctx.config) {
        return Err(Problem::bad_request("Cluster is not enabled."));
    }
    let unreachable = || Problem::bad_request("Add node failed. Invalid Host and/or Port.");
    let at = node_address(body).ok_or_else(unreachable)?;
    let wait = Duration::from_millis(limits::CLUSTER_SETUP_CONNECT_MS);
    match ctx.env.timeout(wait, ctx.env.host().connect(at)).await {
        Ok(Ok(_)) => Err(not_yet::endpoint("add_node")),
        _ => Err(unreachable()),
    }
}

/// `host` and `port` (5984 without one). Names other than `localhost` are not looked up.
fn node_address(body: &Object) -> Option<SocketAddr> {
    let host = match body.get("host").and_then(Value::as_str)? {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        text => text.trim_matches(['[', ']']).parse().ok()?,
    };
    let port = match body.get("port") {
        None | Some(Value::Null) => limits::PORT.parse().ok()?,
        Some(value) => port(value)?,
    };
    Some(SocketAddr::new(host, port))
}

/// A port as a number or as text.
fn port(value: &Value) -> Option<u16> {
    match value {
        Value::Int(port) => u16::try_from(*port).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// The settings of a node that a set-up action may carry; what is absent stays as it is.
#[derive(Debug, PartialEq)]
struct NodeSetup {
    admin: Option<(String, String)>,
    bind_address: Option<String>,
    port: Option<u16>,
}

impl NodeSetup {
    fn read(body: &Object) -> Result<NodeSetup> {
        let text = |name: &str| match body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.trim().to_owned())),
            Some(_) => Err(Problem::bad_request(format!("`{name}` must be a string that is not empty."))),
        };
        let admin = match (text("username")?, text("password")?) {
            (Some(name), Some(password)) => Some((name, password)),
            (None, None) => None,
            _ => return Err(Problem::bad_request("`username` and `password` belong together.")),
        };
        let bind_address = text("bind_address")?;
        if let Some(address) = bind_address.as_deref().filter(|address| *address != "any") {
            // A node could not start with it.
            let parsed: std::result::Result<IpAddr, _> = address.trim_matches(['[', ']']).parse();
            parsed.map_err(|_| Problem::bad_request("`bind_address` must be an IP address or `any`."))?;
        }
        let port = match body.get("port") {
            None | Some(Value::Null) => None,
            Some(value) => Some(port(value).ok_or_else(|| Problem::bad_request("`port` must be a port number."))?),
        };
        Ok(NodeSetup { admin, bind_address, port })
    }

    async fn apply(&self, ctx: &Context) -> Result<()> {
        if let Some((name, password)) = &self.admin {
            admins::put(&ctx.env, &ctx.config, name, password, true).await?;
        }
        if let Some(address) = &self.bind_address {
            ctx.config.set(("chttpd", "bind_address"), address, true).await?;
        }
        if let Some(port) = self.port {
            ctx.config.set(("chttpd", "port"), &port.to_string(), true).await?;
        }
        Ok(())
    }
}

/// The names of `ensure_dbs_exist`, or the system databases.
fn database_names(value: Option<&Value>) -> Result<Vec<String>> {
    let wrong = || Problem::bad_request("`ensure_dbs_exist` must be an array of database names.");
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(SYSTEM_DATABASES.map(str::to_owned).to_vec());
    };
    let items = value.as_array().filter(|items| items.len() <= limits::ENSURE_DATABASES_MAX).ok_or_else(wrong)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn missing(ctx: &Context, names: &[String]) -> Vec<String> {
    names.iter().filter(|name| !ctx.coordinator.has_database(name)).cloned().collect()
}

/// Makes databases; those of the system are open to server administrators only.
async fn make_databases(ctx: &Context, names: &[String]) -> Result<()> {
    for name in names {
        let security = name.starts_with('_').then(|| SecurityObject::admin_only().text().clone());
        match ctx.coordinator.create_database(name, CreateOptions { security, ..CreateOptions::default() }).await {
            Ok(_) | Err(DatabaseError::Exists) => {}
            Err(error) => return Err(error.into()),
        }
    }
    users_design::ensure(&ctx.config, &ctx.coordinator).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use crate::document::json;
    use crate::world::tokio_host;

    fn object(text: &str) -> Object {
        match json::parse(text.as_bytes()).unwrap() {
            Value::Object(object) => object,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_state_comes_from_the_configuration_and_the_databases() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let state = |settings: &[&str], databases| {
            let overrides = settings.iter().map(|s| Setting::parse(s).unwrap()).collect();
            State::of(&Config::in_memory(&env, overrides), databases).name()
        };
        let (admin, bound, n1) = ("admins/a=x", "chttpd/bind_address=0.0.0.0", "cluster/n=1");
        assert_eq!(state(&[admin], true), "cluster_disabled");
        assert_eq!(state(&[bound], true), "cluster_disabled");
        assert_eq!(state(&[admin, bound], true), "cluster_finished");
        assert_eq!(state(&[admin, bound], false), "cluster_enabled");
        assert_eq!(state(&[admin, bound, "settee/cluster_setup=enabled"], true), "cluster_enabled");
        assert_eq!(state(&[admin, n1], true), "single_node_enabled");
        assert_eq!(state(&[admin, n1], false), "single_node_disabled");
        assert_eq!(state(&[n1], true), "single_node_disabled");
        assert_eq!(state(&["couchdb/single_node=true"], false), "single_node_enabled");
    }

    #[test]
    fn copies_follow_the_number_of_nodes() {
        let count = |text: &str| node_count(object(text).get("node_count"));
        assert_eq!(count("{}"), None);
        assert_eq!(count(r#"{"node_count":2}"#), Some(2));
        assert_eq!(count(r#"{"node_count":7}"#), Some(3));
        assert_eq!(count(r#"{"node_count":"1"}"#), Some(3));
    }

    #[test]
    fn settings_of_a_node_are_checked() {
        let read = |text: &str| NodeSetup::read(&object(text)).map_err(|problem| problem.reason.into_owned());
        let full = r#"{"username":"a","password":"b","bind_address":"0.0.0.0","port":"5984"}"#;
        let expected = NodeSetup {
            admin: Some(("a".to_owned(), "b".to_owned())),
            bind_address: Some("0.0.0.0".to_owned()),
            port: Some(5984),
        };
        assert_eq!(read(full), Ok(expected));
        assert_eq!(read("{}"), Ok(NodeSetup { admin: None, bind_address: None, port: None }));
        for wrong in [r#"{"username":"a"}"#, r#"{"bind_address":"here"}"#, r#"{"port":70000}"#, r#"{"password":5}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nodes_are_reached_by_address() {
        let at = |text: &str| node_address(&object(text)).map(|at| at.to_string());
        assert_eq!(at(r#"{"host":"127.0.0.1","port":1}"#), Some("127.0.0.1:1".to_owned()));
        assert_eq!(at(r#"{"host":"localhost"}"#), Some("127.0.0.1:5984".to_owned()));
        assert_eq!(at(r#"{"host":"[::1]","port":"7"}"#), Some("[::1]:7".to_owned()));
        assert_eq!(at(r#"{"port":1}"#), None);
        assert_eq!(at(r#"{"host":"no.such","port":1}"#), None);
    }

    #[test]
    fn names_of_databases_are_a_list() {
        let names = |text: &str| database_names(object(text).get("dbs"));
        assert_eq!(names("{}").unwrap(), SYSTEM_DATABASES);
        assert_eq!(names(r#"{"dbs":["a"]}"#).unwrap(), ["a"]);
        assert!(names(r#"{"dbs":"a"}"#).is_err() && names(r#"{"dbs":[1]}"#).is_err());
    }
}
