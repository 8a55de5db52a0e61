//! `_cluster_setup`: from single nodes to a cluster (CouchDB documentation, 'Cluster setup rules').
//!
//! States, actions and refusals are as CouchDB 3.5 was measured. `add_node` hands the cluster's secret to the new node
//! and learns its name and cluster port; `finish_cluster` makes all nodes share administrators, `couchdb/uuid` and the
//! secrets of cookies, then creates the system databases. A node alone creates these at its first start: enabling a
//! cluster drops them while they are empty, so that they are created on all nodes later. A node that is added to a
//! finished cluster receives at once what all nodes share. `join_cluster` is an action of settee's own: the node itself
//! joins by a token and receives the cluster's secret over the cluster port. The request to the node that joins holds
//! the token. A set-up under way is remembered as `settee/cluster_setup`. The address and port of HTTP take effect with
//! the next start.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use super::setup_peer;
use crate::auth::{admin_names, admins, users_design};
use crate::cluster::{MemberError, NodeName};
use crate::config::Config;
use crate::coordinator::{CreateOptions, DatabaseError, ReadOperations, Want};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::security::ADMINS_ONLY;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result, UserCtx, forward};
use crate::limits;
use crate::wire::address;

/// The databases that a finished set-up has, unless the request names others.
const SYSTEM_DATABASES: [&str; 2] = ["_users", "_replicator"];
/// Where an unfinished set-up of a cluster is remembered, and with what.
const PROGRESS: (&str, &str) = ("settee", "cluster_setup");
const ENABLED: &str = "enabled";

/// Whether a set-up was begun and not finished.
pub fn is_under_way(config: &Config) -> bool {
    config.text(PROGRESS.0, PROGRESS.1, "") == ENABLED
}

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

    /// What the configuration says; `members`: how many nodes belong together; `databases`: whether those that must be
    /// there are there.
    fn of(config: &Config, members: usize, databases: bool) -> State {
        if config.bool("couchdb", "single_node", false) {
            return State::SingleNodeEnabled;
        }
        if config.text("cluster", "n", "") == "1" {
            return if admins::any(config) && databases { State::SingleNodeEnabled } else { State::SingleNodeDisabled };
        }
        if !cluster_enabled(config, members) {
            return State::ClusterDisabled;
        }
        if databases && !is_under_way(config) { State::ClusterFinished } else { State::ClusterEnabled }
    }
}

/// Whether this node may have others: it has an administrator, and an address of its own or others already.
fn cluster_enabled(config: &Config, members: usize) -> bool {
    let local = matches!(config.text("chttpd", "bind_address", limits::BIND_ADDRESS).as_str(), "127.0.0.1" | "::1");
    admins::any(config) && (!local || members > 1 || is_under_way(config))
}

fn is_enabled(ctx: &Context) -> bool {
    cluster_enabled(&ctx.config, ctx.cluster.members().len())
}

/// `GET` and `POST /_cluster_setup`
///
/// # Errors
/// 400 `bad_request` for what the state does not allow, 500 for an incomplete `enable_cluster` and for a
/// `finish_cluster` that does not reach all nodes (as measured).
pub async fn handle(ctx: &Context, mut request: Request) -> Result<Reply> {
    if request.verb == Verb::Get {
        let databases = database_names(request.query.json("ensure_dbs_exist")?.as_ref())?;
        let state = State::of(&ctx.config, ctx.cluster.members().len(), missing(ctx, &databases).is_empty());
        return Ok(Reply::value(StatusCode::OK, &json!({"state": state.name()})));
    }
    request.require_json()?;
    let told = |problem: Problem| match problem.status {
        StatusCode::BAD_REQUEST => Problem::bad_request("Missing JSON body'"),
        _ => problem,
    };
    let body = request.json_object().await.map_err(told)?;
    match body.get("action").and_then(Value::as_str) {
        Some("enable_single_node") => enable_single_node(ctx, &body).await?,
        Some("enable_cluster") => enable_cluster(ctx, &body).await?,
        Some("add_node") => add_node(ctx, &body, &request.user).await?,
        Some("receive_cookie") => return receive_cookie(ctx, &body).await,
        Some("join_cluster") => join_cluster(ctx, &body).await?,
        Some("finish_cluster") => finish_cluster(ctx, &body, &request.user).await?,
        _ => return Err(Problem::bad_request("Invalid Action'")),
    }
    Ok(Reply::ok(StatusCode::CREATED))
}

async fn enable_single_node(ctx: &Context, body: &Object) -> Result<()> {
    let databases = database_names(body.get("ensure_dbs_exist"))?;
    let node = NodeSetup::read(body)?;
    make_databases(ctx, &missing(ctx, &databases)).await?;
    node.apply(ctx).await?;
    ctx.config.set(("cluster", "n"), "1", true).await?;
    Ok(())
}

async fn enable_cluster(ctx: &Context, body: &Object) -> Result<()> {
    if body.get("remote_node").is_some_and(|value| !value.is_null()) {
        return setup_peer::enable(ctx, body).await;
    }
    if is_enabled(ctx) {
        return Err(Problem::bad_request("Cluster is already enabled"));
    }
    let node = NodeSetup::read(body)?;
    let bind = node.bind_address.clone();
    let bind = bind.unwrap_or_else(|| ctx.config.text("chttpd", "bind_address", limits::BIND_ADDRESS));
    if matches!(bind.as_str(), "127.0.0.1" | "::1") {
        return Err(incomplete("Cluster setup requires a remote bind_address (not 127.0.0.1 nor ::1)"));
    }
    let count = node_count(body.get("node_count"))
        .ok_or_else(|| incomplete("Cluster setup requires node_count to be configured"))?;
    begin(ctx).await?;
    node.apply(ctx).await?;
    ctx.config.set(("cluster", "n"), &count.to_string(), true).await?;
    Ok(ctx.cluster.enable().await?)
}

/// Marks the set-up as under way and makes room for the system databases of the cluster.
async fn begin(ctx: &Context) -> Result<()> {
    // First, so that a set-up that breaks off counts as under way.
    ctx.config.set(PROGRESS, ENABLED, true).await?;
    if ctx.cluster.members().len() > 1 {
        return Ok(());
    }
    for name in SYSTEM_DATABASES {
        let Ok(database) = ctx.coordinator.database(name) else { continue };
        let info = database.info().await?;
        // The node's own design document is made again with the database.
        let own = database.documents().fetch(&DocId::new(users_design::ID), Want::Winner).await?.is_some();
        if info.doc_count == u64::from(own) && info.doc_del_count == 0 {
            ctx.coordinator.delete_database(name).await?;
        }
    }
    Ok(())
}

/// The number of replicas that a cluster of so many nodes keeps: at most 3, and 3 for a text (as measured).
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

async fn finish_cluster(ctx: &Context, body: &Object, user: &UserCtx) -> Result<()> {
    let databases = database_names(body.get("ensure_dbs_exist"))?;
    let missing = missing(ctx, &databases);
    if missing.is_empty() && !is_under_way(&ctx.config) {
        return Err(Problem::bad_request("Cluster is already finished"));
    }
    let members = ctx.cluster.members().into_iter().map(|member| member.name);
    let others: Vec<NodeName> = members.filter(|name| name != ctx.cluster.name()).collect();
    wait_for(ctx, &others).await;
    for name in &others {
        share_settings(ctx, name, user).await.map_err(unable)?;
    }
    make_databases(ctx, &missing).await?;
    for name in &others {
        forward::delete_setting(ctx, name, PROGRESS, user).await.map_err(unable)?;
    }
    ctx.config.delete(PROGRESS, true).await?;
    Ok(())
}

/// What is told of another node that could not be given what all nodes share.
fn unable(problem: Problem) -> Problem {
    tracing::warn!("cluster set-up: {problem}");
    let reason = "Cluster setup unable to sync admin passwords";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "setup_error", reason)
}

/// Waits until these nodes are connected, within limits: those added a moment ago are being dialled.
async fn wait_for(ctx: &Context, nodes: &[NodeName]) {
    let mut changes = ctx.cluster.watch();
    let all_up = async {
        while !nodes.iter().all(|name| ctx.cluster.is_up(name)) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    // Who is not there after that is reported by what comes next.
    let _ = ctx.env.timeout(Duration::from_millis(limits::CLUSTER_SETUP_CONNECT_MS), all_up).await;
}

/// Makes another node know the same administrators, cookies and identity.
async fn share_settings(ctx: &Context, to: &NodeName, user: &UserCtx) -> Result<()> {
    ctx.cluster.claim_uuid().await?;
    for (name, hash) in admin_names(&ctx.config) {
        forward::put_setting(ctx, to, (admins::SECTION, &name), &hash, user).await?;
    }
    // What is accepted first: a cookie that is made a moment later holds there.
    let accepted = ("chttpd_auth", "accepted_secrets");
    for at in [("couchdb", "uuid"), accepted, ("chttpd_auth", "secret")] {
        if let Some(value) = ctx.config.get(at.0, at.1) {
            forward::put_setting(ctx, to, at, &value, user).await?;
        } else if at == accepted {
            // Cookies that the other node made alone end here, because no other node accepts them.
            forward::delete_setting(ctx, to, at, user).await?;
        }
    }
    Ok(())
}

async fn add_node(ctx: &Context, body: &Object, user: &UserCtx) -> Result<()> {
    if !is_enabled(ctx) {
        return Err(Problem::bad_request("Cluster is not enabled."));
    }
    if !is_under_way(&ctx.config) {
        ctx.coordinator.may_change_members()?;
    }
    // The port must be open before the other node knocks.
    ctx.cluster.enable().await?;
    let found = setup_peer::invite(ctx, body).await?;
    let added = ctx.cluster.add_member(&found.name, &found.address).await;
    if is_under_way(&ctx.config) {
        return Ok(added?);
    }
    let name = NodeName::from(found.name.as_str());
    match added {
        // A member that lost its disk: it knows nothing of the cluster but what it was told just now. While the member
        // of that name is there this is another node.
        Err(MemberError::Conflict) if found.is_new && !ctx.cluster.is_up(&name) => {
            ctx.cluster.move_member(&name, &found.address).await?;
        }
        added => added?,
    }
    wait_for(ctx, std::slice::from_ref(&name)).await;
    share_settings(ctx, &name, user).await.map_err(unable)?;
    forward::delete_setting(ctx, &name, PROGRESS, user).await.map_err(unable)
}

fn address_and_token(body: &Object) -> Result<(&str, &str)> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let wrong = || Problem::bad_request("`address` and `token` must be strings that are not empty.");
    text("address").zip(text("token")).ok_or_else(wrong)
}

/// Has this node join the cluster of the member whose cluster port is at `address`, by one of its join tokens: the same
/// as a start with `--join` and `--token`, of a node that runs already.
async fn join_cluster(ctx: &Context, body: &Object) -> Result<()> {
    let (address, token) = address_and_token(body)?;
    ctx.cluster.check_joins()?;
    if ctx.config.bool("couchdb", "single_node", false) || ctx.config.text("cluster", "n", "") == "1" {
        // New databases would go on to have one replica.
        return Err(Problem::bad_request(
            "This node is set up as a single one: delete couchdb/single_node, cluster/n.",
        ));
    }
    // Until the member admits this node nothing changes here.
    let admission = ctx.cluster.ask_to_join(address, token).await?;
    begin(ctx).await?;
    ctx.cluster.complete_join(admission).await?;
    ctx.config.delete(PROGRESS, true).await?;
    Ok(())
}

/// What `add_node` of another node asks here: takes over the cluster's secret and tells name and cluster port.
async fn receive_cookie(ctx: &Context, body: &Object) -> Result<Reply> {
    let cookie = body.get("cookie").and_then(Value::as_str);
    let cookie = cookie.ok_or_else(|| Problem::bad_request("`cookie` must be a string."))?;
    setup_peer::check_called(ctx.cluster.name(), body)?;
    ctx.cluster.check_adopts(cookie)?;
    if ctx.cluster.secret().as_deref() != Some(cookie) {
        begin(ctx).await?;
    }
    ctx.cluster.adopt(cookie).await?;
    let port = ctx.cluster.address().map_or(limits::CLUSTER_PORT, |at| at.port());
    let is_new = is_under_way(&ctx.config);
    let told = json!({"ok": true, "name": ctx.cluster.name().as_str(), "cluster_port": port, "new": is_new});
    Ok(Reply::value(StatusCode::CREATED, &told))
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
        if bind_address.as_deref().is_some_and(|text| address::bind_ip(text).is_none()) {
            // A node could not start with it.
            return Err(Problem::bad_request("`bind_address` must be an IP address or `any`."));
        }
        let port = match body.get("port") {
            None | Some(Value::Null) => None,
            Some(value) => {
                Some(setup_peer::port(value).ok_or_else(|| Problem::bad_request("`port` must be a port number."))?)
            }
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
        let security = name.starts_with('_').then(|| ADMINS_ONLY.into());
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
    use super::setup_peer::tests::object;
    use super::*;
    use crate::config::Setting;
    use crate::world::tokio_host;

    #[test]
    fn the_state_comes_from_the_configuration_and_the_databases() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let state = |settings: &[&str], databases| {
            let overrides = settings.iter().map(|s| Setting::parse(s).unwrap()).collect();
            State::of(&Config::in_memory(&env, overrides), 1, databases).name()
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
        assert_eq!(state(&[admin, "settee/cluster_setup=enabled"], true), "cluster_enabled");
        let joined = [Setting::parse(admin).unwrap()].to_vec();
        assert_eq!(State::of(&Config::in_memory(&env, joined), 3, true), State::ClusterFinished);
    }

    #[test]
    fn replicas_follow_the_number_of_nodes() {
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
    fn a_join_takes_an_address_and_a_token() {
        let read = |text: &str| address_and_token(&object(text)).map(|(a, t)| format!("{a} {t}")).map_err(|e| e.status);
        assert_eq!(read(r#"{"address":" h:1 ","token":"t"}"#), Ok("h:1 t".to_owned()));
        for wrong in ["{}", r#"{"address":"h:1"}"#, r#"{"token":"t"}"#, r#"{"address":" ","token":"t"}"#] {
            assert_eq!(read(wrong), Err(StatusCode::BAD_REQUEST), "{wrong}");
        }
        assert_eq!(read(r#"{"address":5,"token":"t"}"#), Err(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn names_of_databases_are_a_list() {
        let names = |text: &str| database_names(object(text).get("dbs"));
        assert_eq!(names("{}").unwrap(), SYSTEM_DATABASES);
        assert_eq!(names(r#"{"dbs":["a"]}"#).unwrap(), ["a"]);
        assert!(names(r#"{"dbs":"a"}"#).is_err() && names(r#"{"dbs":[1]}"#).is_err());
    }
}
