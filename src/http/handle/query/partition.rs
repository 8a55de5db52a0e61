//! `/{db}/_partition/{name}`: counts and sizes of a partition, and the lists, queries and views that read only it.

use http::StatusCode;
use serde_json::json;

use super::all_docs;
use super::find;
use super::mango_index;
use crate::auth::access::Class;
use crate::coordinator::Database;
use crate::document::id::check_partition;
use crate::http::handle::design_function;
use crate::http::route::{Endpoint, InDatabase, is_design_function, methods};
use crate::http::{Context, Problem, Reply, Request, Result};

/// `path` is what stands behind `_partition`.
///
/// # Errors
/// 400 without a name, for a name that cannot be one, and for a database without partitions; 404 for other paths.
pub async fn handle(ctx: &Context, mut request: Request, db: &str, path: &[String]) -> Result<Reply> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    if let (Err(other), [name, ..]) = (check_given_first(&request, path), path) {
        check(&*ctx.open(db, &request, Class::Member)?, name)?;
        return Err(other);
    }
    match parts.as_slice() {
        [name, "_all_docs", below @ ..] if matches!(below, [] | ["queries"]) => {
            request.query = request.query.by_name();
            match below {
                [] => all_docs::partition(ctx, request, db, name).await,
                _ => all_docs::partition_queries(ctx, request, db, name).await,
            }
        }
        [name, "_find", ..] => find::find(ctx, request, db, Some(name)).await,
        [name, "_explain", ..] => find::explain(ctx, request, db, Some(name)).await,
        // The indexes of the whole database: CouchDB hands the request on as it does queries.
        [name, "_index", ..] if mango_index::is_path(&path[1..]) => {
            check(&*ctx.open(db, &request, Class::Member)?, name)?;
            let (verbs, allow) = methods(&Endpoint::In(db.to_owned(), InDatabase::Mango(path[1..].to_vec())));
            match verbs.contains(&request.verb) {
                true => mango_index::handle(ctx, request, db, &path[1..]).await,
                false => Err(Problem::method_not_allowed(allow)),
            }
        }
        [name, "_design", ddoc, function, ..] if is_design_function(function) => {
            check(&*ctx.open(db, &request, Class::Member)?, name)?;
            // Other functions see the parameters as they came.
            if *function == "_view" {
                request.query = request.query.by_name();
            }
            design_function(ctx, db, (&format!("_design/{ddoc}"), &path[3..]), Some(name), request).await
        }
        _ => info(ctx, &request, db, &parts).await,
    }
}

/// What is wrong with a path below a partition before anything else is: that `db` has none, that none is named so, or
/// that the query names another. Nothing is said of the partition itself.
///
/// # Errors
/// As [`check`] and [`check_given`].
pub fn check_path(db: &Database, request: &Request, path: &[String]) -> Result<()> {
    let [name, _, ..] = path else { return Ok(()) };
    check(db, name)?;
    check_given_first(request, path)
}

fn check_given_first(request: &Request, path: &[String]) -> Result<()> {
    let [name, _, ..] = path else { return Ok(()) };
    check_given(request.query.get("partition"), name)
}

/// Whether a path may name a partition of `db` so.
///
/// # Errors
/// 400 `bad_request`: the database has no partitions; 400 `illegal_partition`: no partition is named so.
pub fn check(db: &Database, name: &str) -> Result<()> {
    if !db.map().partitioned {
        return Err(Problem::bad_request("database is not partitioned"));
    }
    Ok(check_partition(name)?)
}

/// Whether arguments that name a partition themselves (`given`) may do so below the path of the partition `name`.
///
/// # Errors
/// 400 for another partition.
pub fn check_given(given: Option<&str>, name: &str) -> Result<()> {
    if given.is_some_and(|given| given != name) { Err(other_partition()) } else { Ok(()) }
}

fn other_partition() -> Problem {
    Problem::bad_request("Conflicting value for `partition` in query string")
}

async fn info(ctx: &Context, request: &Request, db: &str, path: &[&str]) -> Result<Reply> {
    let database = ctx.open(db, request, Class::Member)?;
    let [name, below @ ..] = path else { return Err(Problem::bad_request("invalid_partition_req")) };
    if below.is_empty() {
        check_partition(name)?;
    }
    check(&database, name)?;
    if !below.is_empty() {
        return Err(Problem::missing());
    }
    let info = database.partition_info(name).await?;
    let body = json!({
        "db_name": database.name,
        "sizes": {"active": info.active, "external": info.external},
        "partition": name,
        "doc_count": info.doc_count,
        "doc_del_count": info.doc_del_count,
    });
    Ok(Reply::value(StatusCode::OK, &body))
}
