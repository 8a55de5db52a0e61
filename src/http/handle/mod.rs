//! Handlers: one per endpoint, chosen by one flat match. A handler reads the request, calls the layer below and prints
//! the answer. Each folder holds the endpoints of one kind of resource.

use super::policy::{self, Content};
use super::request::Verb;
use super::route::{Endpoint, InDatabase, behind_encoded_design, methods, route};
use super::{Context, Problem, Reply, Request, Result};
use crate::auth::access::{self, Class, Door};
use crate::limits;
use changes::db_updates;
use cluster::{reshard, setup, snapshot};
use database::{purge, retention, security};
use document::{attachment, bulk, local};
use function::{list, rewrite, rewrite::Rewritten};
use query::{all_docs, find, mango_index, partition, view};
use replication::{replicate, scheduler};
pub(super) use rules::Rules;
use server::{node, not_yet, session, utils};

pub(super) mod accept;
mod changes;
pub mod cluster;
mod database;
mod document;
mod function;
mod nouveau;
mod query;
mod replication;
mod rules;
mod search;
mod server;
pub(super) mod token;

/// Checks that come before any handler: the outermost door, rights on the server, the method.
pub(in crate::http) fn admit(ctx: &Context, endpoint: &Endpoint, request: &Request) -> Result<()> {
    let door = match endpoint {
        Endpoint::Up => Door::Up,
        Endpoint::Session if request.verb == Verb::Post => Door::Login,
        _ => Door::Other,
    };
    access::enter(&ctx.config, door, &request.user)?;
    access::check(server_class(ctx, endpoint, request.verb), &request.user, None)?;
    if matches!(endpoint, Endpoint::In(_, InDatabase::Mango(path)) if !mango_index::is_path(path)) {
        return Err(Problem::missing());
    }
    let (accepted, allow) = methods(endpoint);
    if accepted.contains(&request.verb) {
        return Ok(());
    }
    match endpoint {
        Endpoint::Node(rest) => node::check_before_method(ctx, rest)?,
        // A stranger does not learn from methods what there is.
        Endpoint::In(db, at) => {
            let database = ctx.open(db, request, Class::Member)?;
            if let InDatabase::Partition(path) = at {
                partition::check_path(&database, request, path)?;
            }
        }
        _ => {}
    }
    Err(Problem::method_not_allowed(allow))
}

/// Which rights on the server an endpoint asks for, before any database is looked at; rights in a database are asked
/// for where it is opened.
fn server_class(ctx: &Context, endpoint: &Endpoint, verb: Verb) -> Class {
    match endpoint {
        Endpoint::Root
        | Endpoint::Up
        | Endpoint::Uuids
        | Endpoint::Session
        | Endpoint::Favicon
        | Endpoint::Replicate => Class::Open,
        Endpoint::Utils(_) if verb == Verb::Get => Class::Open,
        Endpoint::AllDbs | Endpoint::DbsInfo => access::database_lists(&ctx.config),
        Endpoint::Node(rest)
            if matches!(rest.get(1).map(String::as_str), Some("_stats" | "_system" | "_prometheus")) =>
        {
            Class::Metrics
        }
        // Where one node asks another for what `_replicate` asks it.
        Endpoint::Node(rest) if rest.get(1).is_some_and(|below| below == "_replicate") => Class::Open,
        Endpoint::DbUpdates
        | Endpoint::ActiveTasks
        | Endpoint::Membership
        | Endpoint::ClusterSetup
        | Endpoint::Cluster(_)
        | Endpoint::Scheduler(_)
        | Endpoint::Reshard(_)
        | Endpoint::Node(_)
        | Endpoint::Utils(_)
        | Endpoint::ReloadQueryServers
        | Endpoint::SearchAnalyze
        | Endpoint::NouveauAnalyze
        | Endpoint::Beyond(_)
        | Endpoint::Unknown(_) => Class::ServerAdmin,
        // Of the databases whose names begin so only these two are open to others, as their security objects say.
        Endpoint::In(db, _) if db.starts_with('_') && !matches!(db.as_str(), "_users" | "_replicator") => {
            Class::ServerAdmin
        }
        Endpoint::In(_, InDatabase::Database) if matches!(verb, Verb::Put | Verb::Delete) => Class::ServerAdmin,
        Endpoint::In(_, InDatabase::Purge | InDatabase::SyncShards | InDatabase::PurgedInfosLimit) => {
            Class::ServerAdmin
        }
        Endpoint::In(db, at) if rules::is_closed_list(ctx, db, at) => Class::ServerAdmin,
        Endpoint::In(..) => Class::Open,
    }
}

/// Answers `request`, which names `endpoint` and was admitted. A request that it is rewritten to goes the whole way
/// again: routing, rights, method.
pub async fn handle(ctx: &Context, mut endpoint: Endpoint, mut request: Request) -> Result<Reply> {
    let mut left = ctx.config.http_u64("rewrite_limit", limits::REWRITES_MAX);
    request.floor = token::floor(ctx, &endpoint, &request).await?;
    while let Endpoint::In(db, at @ InDatabase::DesignFunction(ddoc, path)) = &endpoint {
        let Some(("_rewrite", path)) = path.split_first().map(|(first, rest)| (first.as_str(), rest)) else { break };
        left = left.checked_sub(1).ok_or_else(|| Problem::bad_request("Exceeded rewrite recursion limit"))?;
        rules::check_lists(ctx, &request, db, at)?;
        let floor = request.floor.clone();
        request = match rewrite::rewrite(ctx, request, db, ddoc, path).await? {
            Rewritten::Answer(reply) => return Ok(reply),
            Rewritten::Request(request) => *request,
        };
        endpoint = route(&request.raw_path);
        admit(ctx, &endpoint, &request)?;
        // A rule may have left out the parameter.
        request.floor = token::floor(ctx, &endpoint, &request).await?.or(floor);
    }
    answer(ctx, endpoint, request).await
}

async fn answer(ctx: &Context, endpoint: Endpoint, request: Request) -> Result<Reply> {
    match endpoint {
        Endpoint::Root => Ok(server::welcome(ctx)),
        Endpoint::Up => Ok(server::up(ctx)),
        Endpoint::Uuids => server::uuids(ctx, &request),
        Endpoint::AllDbs => server::all_dbs(ctx, &request),
        Endpoint::DbsInfo => server::dbs_info(ctx, request).await,
        Endpoint::ActiveTasks => Ok(replicate::active_tasks(ctx, &request).await),
        Endpoint::Membership => Ok(server::membership(ctx)),
        Endpoint::Session => session::handle(ctx, request).await,
        Endpoint::Favicon => Ok(server::favicon(ctx)),
        Endpoint::Utils(below) => utils::utils(ctx, &request, below.as_deref()).await,
        Endpoint::Node(rest) => node::handle(ctx, request, &rest).await,
        Endpoint::ReloadQueryServers => server::reload_query_servers(&request),
        Endpoint::Beyond(endpoint) => Box::pin(answer(ctx, *endpoint, request)).await,
        Endpoint::Unknown(name) => database::unknown(ctx, &request, name.as_deref()).await,
        Endpoint::SearchAnalyze => search::analyze(ctx, request).await,
        Endpoint::NouveauAnalyze => nouveau::analyze(ctx, request).await,
        Endpoint::DbUpdates => db_updates::db_updates(ctx, &request).await,
        Endpoint::ClusterSetup => setup::handle(ctx, request).await,
        Endpoint::Cluster(rest) => cluster::handle(ctx, request, &rest).await,
        Endpoint::Replicate => replicate::replicate(ctx, request).await,
        Endpoint::Scheduler(rest) => scheduler::scheduler(ctx, &request, &rest).await,
        Endpoint::Reshard(rest) => reshard::handle(ctx, request, &rest).await,
        Endpoint::In(db, at) => in_database(ctx, &db, at, request).await,
    }
}

async fn in_database(ctx: &Context, db: &str, at: InDatabase, request: Request) -> Result<Reply> {
    rules::check_lists(ctx, &request, db, &at)?;
    if request.verb == Verb::Get
        && let Some(rest) = behind_encoded_design(&request.raw_path)
    {
        return database::to_design(ctx, &request, db, rest);
    }
    match at {
        InDatabase::Database if request.verb == Verb::Post => document::post(ctx, request, db).await,
        InDatabase::Database => database::handle(ctx, &request, db).await,
        InDatabase::List(kind) => all_docs::list(ctx, request, db, kind).await,
        InDatabase::Queries(kind) => all_docs::queries(ctx, request, db, kind).await,
        InDatabase::BulkDocs => bulk::bulk_docs(ctx, request, db).await,
        InDatabase::BulkGet => bulk::bulk_get(ctx, request, db).await,
        InDatabase::Changes => changes::changes(ctx, request, db).await,
        InDatabase::Compact(ddoc) => database::compact(ctx, &request, db, ddoc.as_deref()).await,
        InDatabase::ViewCleanup => database::view_cleanup(ctx, &request, db).await,
        InDatabase::SearchCleanup => search::cleanup(ctx, &request, db).await,
        InDatabase::SearchDryRun => search::dry_run(ctx, request, db).await,
        InDatabase::NouveauCleanup => nouveau::cleanup(ctx, &request, db).await,
        InDatabase::EnsureFullCommit => database::ensure_full_commit(ctx, &request, db).await,
        InDatabase::Security => security::handle(ctx, request, db).await,
        InDatabase::RevsLimit => database::revs_limit(ctx, request, db).await,
        InDatabase::PurgedInfosLimit => database::purged_infos_limit(ctx, request, db).await,
        InDatabase::AutoPurge => retention::auto_purge(ctx, request, db).await,
        InDatabase::TimeSeq => retention::time_seq(ctx, &request, db).await,
        InDatabase::Purge => purge::purge(ctx, request, db).await,
        InDatabase::PurgedInfos => purge::purged_infos(ctx, request, db).await,
        InDatabase::RevsDiff => replication::revs_diff(ctx, request, db).await,
        InDatabase::MissingRevs => replication::missing_revs(ctx, request, db).await,
        InDatabase::Shards => database::shards(ctx, &request, db),
        InDatabase::ShardsOf(id) => database::shards_of(ctx, &request, db, &id),
        InDatabase::SyncShards => database::sync_shards(ctx, &request, db).await,
        InDatabase::TempView => not_yet::temp_view(ctx, &request, db),
        InDatabase::Mango(path) => match path.first().map(String::as_str) {
            Some("_find") => find::find(ctx, request, db, None).await,
            Some("_explain") => find::explain(ctx, request, db, None).await,
            _ => mango_index::handle(ctx, request, db, &path).await,
        },
        InDatabase::Partition(path) => partition::handle(ctx, request, db, &path).await,
        InDatabase::DesignFunction(id, path) => design_function(ctx, db, (&id, &path), None, request).await,
        InDatabase::Snapshot if request.verb == Verb::Post => snapshot::take(ctx, request, db).await,
        InDatabase::Snapshot => document::handle(ctx, request, db, "_snapshot").await,
        InDatabase::Restore if request.verb == Verb::Post => snapshot::restore(ctx, request, db).await,
        InDatabase::Restore => document::handle(ctx, request, db, "_restore").await,
        InDatabase::Document(id) => document::handle(ctx, request, db, &id).await,
        InDatabase::Attachment(id, name) => attachment::handle(ctx, request, db, &id, &name).await,
        InDatabase::Local(id) => local::handle(ctx, request, db, &id).await,
        InDatabase::LocalWithoutId
        | InDatabase::LocalAttachment
        | InDatabase::NotText
        | InDatabase::AttachmentNotText
        | InDatabase::PartitionNotText => database::no_such_path(ctx, &request, db, &at),
    }
}

/// What the path below a design document names: views and their state, functions; the rest is not there yet.
async fn design_function(
    ctx: &Context,
    db: &str,
    (id, path): (&str, &[String]),
    partition: Option<&str>,
    request: Request,
) -> Result<Reply> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["_view", name] => view::query(ctx, request, db, (id, name), partition).await,
        ["_view", name, "queries"] => view::queries(ctx, request, db, (id, name), partition).await,
        ["_info"] => view::info(ctx, &request, db, id).await,
        ["_show", path @ ..] => {
            Ok(policy::guard(&ctx.config, Content::ShowList, function::show(ctx, request, db, id, path).await?))
        }
        ["_list", path @ ..] => {
            let reply = list::list(ctx, request, (db, id, path), partition).await?;
            Ok(policy::guard(&ctx.config, Content::ShowList, reply))
        }
        ["_update", path @ ..] => {
            Ok(policy::guard(&ctx.config, Content::ShowList, function::update(ctx, request, db, id, path).await?))
        }
        ["_search" | "_search_info" | "_search_disk_size", ..] => {
            search::handle(ctx, request, db, (id, parts.as_slice()), partition).await
        }
        ["_nouveau" | "_nouveau_info", ..] => {
            nouveau::handle(ctx, request, db, (id, parts.as_slice()), partition).await
        }
        _ => not_yet::design_function(ctx, &request, db, id, path).await,
    }
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub use fuzz_tests::{fuzz_parameters, fuzz_range};
