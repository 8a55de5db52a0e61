//! Full-text search: `_search`, `_search_info`, `_search_disk_size` and `_search_analyze`.

mod analyze;
mod answer;
mod args;
mod dry_run;

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use crate::auth::access::Class;
use crate::coordinator::{
    Database, DatabaseSearch, ReadOperations, SearchFailure, SearchQuery, SearchRefusal, SeveralPage, ask_several,
};
use crate::document::id::DocId;
use crate::http::handle::query::partition;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::search::NoIndex;
use crate::observe::metrics::{Counter, Histogram};
use crate::script::Program;
use answer::Form;
use args::SearchArgs;

pub use analyze::analyze;
pub use args::sorts;
pub use dry_run::dry_run;

/// What stands below a design document and is about its full-text indexes; `path` begins with `_search`,
/// `_search_info` or `_search_disk_size`.
///
/// # Errors
/// 400 for another path.
pub async fn handle(
    ctx: &Context,
    request: Request,
    db: &str,
    (ddoc, path): (&str, &[&str]),
    partition: Option<&str>,
) -> Result<Reply> {
    match path {
        ["_search", name] => match request.verb {
            Verb::Get | Verb::Post => search(ctx, request, db, (ddoc, name), partition).await,
            _ => {
                ctx.open(db, &request, Class::Member)?;
                Err(Problem::method_not_allowed("GET,POST"))
            }
        },
        ["_search"] if matches!(request.verb, Verb::Get | Verb::Post) => {
            search_several(ctx, request, db, ddoc, partition).await
        }
        ["_search_info", name] => info(ctx, &request, db, (ddoc, name)).await,
        ["_search_disk_size", name] => disk_size(ctx, &request, db, (ddoc, name)).await,
        _ => {
            ctx.open(db, &request, Class::Member)?;
            Err(Problem::bad_request("path not recognized"))
        }
    }
}

async fn search(
    ctx: &Context,
    mut request: Request,
    db: &str,
    (ddoc, name): (&str, &str),
    partition: Option<&str>,
) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::Member)?;
    let (mut args, program) = arguments(ctx, &mut request, &db, ddoc, partition).await?;
    let partitioned = check(&mut args, &db, &program)?;
    let index = known(db.queries().search_in(&program, name).await, name)?;
    let asked = args.request(partitioned)?;
    let is_grouped = asked.group.is_some();
    let query = SearchQuery { request: asked, bookmark: args.bookmark.take(), update: !args.is_stale };
    let begun = ctx.env.now();
    let page = index.ask(query).await?;
    ctx.env.metrics().record_ms(Histogram::SearchTime, ctx.env.now().since(begun));
    let docs = args.include_docs.then_some(index);
    let form = Form { docs, old_groups: args.old_groups, indexes: Vec::new() };
    Ok(Reply::generate(move |mut sink| async move {
        match is_grouped {
            true => form.write_groups(page.answer, &mut sink).await,
            false => form.write(page.answer, page.bookmark, &mut sink).await,
        }
    }))
}

/// The parameters of a search below a design document, and that.
async fn arguments(
    ctx: &Context,
    request: &mut Request,
    db: &Arc<Database>,
    ddoc: &str,
    partition: Option<&str>,
) -> Result<(SearchArgs, Program)> {
    ctx.env.metrics().count(Counter::ViewReads);
    if let Some(name) = partition {
        partition::check(db, name)?;
    }
    let program = db.design_docs().program(&DocId::new(ddoc)).await?;
    let mut args = match request.verb {
        Verb::Post => SearchArgs::of_body(&request.query_object().await?, &request.query)?,
        _ => SearchArgs::of_query(&request.query)?,
    };
    args.join_partition(partition)?;
    Ok((args, program))
}

/// Fits parameters to what the indexes of a design document are, or refuses them; answers whether the database is
/// partitioned.
fn check(args: &mut SearchArgs, db: &Database, program: &Program) -> Result<bool> {
    let options = program.body().get("options").and_then(|options| options.as_object());
    let own = options.and_then(|options| options.get("partitioned")).and_then(|own| own.as_bool());
    let partitioned = db.map().partitioned;
    args.check((partitioned, partitioned && own != Some(false)))?;
    Ok(partitioned)
}

/// GET or POST `_search` without a name: one search of all indexes that `indexes` names.
async fn search_several(
    ctx: &Context,
    mut request: Request,
    db: &str,
    ddoc: &str,
    partition: Option<&str>,
) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::Member)?;
    // As in CouchDB, where nothing says that several are meant.
    if request.verb == Verb::Get && request.query.get("indexes").is_none() {
        return Err(Problem::bad_request("path not recognized"));
    }
    let (mut args, program) = arguments(ctx, &mut request, &db, ddoc, partition).await?;
    let names = args.several()?;
    let partitioned = check(&mut args, &db, &program)?;
    let mut indexes = Vec::with_capacity(names.len());
    for name in &names {
        indexes.push(known(db.queries().search_in(&program, name).await, name)?);
    }
    let request = args.request(partitioned)?;
    let query = SearchQuery { request, bookmark: args.bookmark.take(), update: !args.is_stale };
    let begun = ctx.env.now();
    let SeveralPage { page, from } = ask_several(&indexes, query).await?;
    ctx.env.metrics().record_ms(Histogram::SearchTime, ctx.env.now().since(begun));
    let docs = if args.include_docs { indexes.pop() } else { None };
    let form = Form { docs, old_groups: false, indexes: from.into_iter().map(|at| names[at].clone()).collect() };
    Ok(Reply::generate(move |mut sink| async move { form.write(page.answer, page.bookmark, &mut sink).await }))
}

/// A full-text index that was looked for by name; 404 where there is none.
pub fn known(index: std::result::Result<DatabaseSearch, SearchFailure>, name: &str) -> Result<DatabaseSearch> {
    match index {
        Err(SearchFailure::NoIndex(why)) => Err(no_index(why, name)),
        index => Ok(index?),
    }
}

async fn info(ctx: &Context, request: &Request, db: &str, (ddoc, name): (&str, &str)) -> Result<Reply> {
    let db = ctx.open(db, request, Class::Member)?;
    let index = known(db.queries().search(&DocId::new(ddoc), name).await, name)?;
    let size = index.size().await?;
    let signature: String = index.definition.signature.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let body = json!({"name": format!("{ddoc}/{name}"), "search_index": {
        "signature": signature,
        "pending_seq": size.position,
        "doc_del_count": size.deleted,
        "doc_count": size.documents,
        "disk_size": size.bytes,
        "committed_seq": size.position,
    }});
    Ok(Reply::value(StatusCode::OK, &body))
}

async fn disk_size(ctx: &Context, request: &Request, db: &str, (ddoc, name): (&str, &str)) -> Result<Reply> {
    let db = ctx.open(db, request, Class::Member)?;
    let index = known(db.queries().search(&DocId::new(ddoc), name).await, name)?;
    let size = index.size().await?;
    let body = json!({"name": format!("{ddoc}/{name}"), "search_index": {"disk_size": size.bytes}});
    Ok(Reply::value(StatusCode::OK, &body))
}

/// POST `/{db}/_search_cleanup`: what no design document names any more goes, of views as well.
///
/// # Errors
/// When the node cannot read or write.
pub async fn cleanup(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    // As in CouchDB; what anybody asks for is not touched.
    let db = ctx.open(db, request, Class::Member)?;
    db.queries().clean_up_views().await?;
    Ok(Reply::ok(StatusCode::ACCEPTED))
}

/// Why a design document has no index of this name.
fn no_index(why: NoIndex, name: &str) -> Problem {
    match why {
        NoIndex::Missing => Problem::not_found(format!("{name} not found.")),
        NoIndex::Invalid => {
            let reason = format!("index `{name}` must have parameter `index`");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "invalid_design_doc", reason)
        }
    }
}

fn no_analyzer() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "unknown_error", "no_such_analyzer")
}

impl From<SearchFailure> for Problem {
    fn from(failure: SearchFailure) -> Problem {
        match failure {
            SearchFailure::View(error) => error.into(),
            SearchFailure::NoIndex(_) => Problem::missing(),
            SearchFailure::NoAnalyzer => no_analyzer(),
            SearchFailure::UnknownAnalyzer(name) => super::nouveau::unknown(&name),
            SearchFailure::PartitionNeeded => {
                Problem::bad_request("`partition` parameter is mandatory for queries to this index.")
            }
            SearchFailure::PartitionUnknown => Problem::bad_request("`partition` not supported on this index"),
            SearchFailure::Bookmark => Problem::bad_request("Invalid bookmark parameter supplied"),
            SearchFailure::BookmarkOrder => Problem::bad_request("sort order not compatible with given bookmark"),
            SearchFailure::Refused(SearchRefusal::Refused(reason) | SearchRefusal::TooCostly(reason)) => {
                Problem::bad_request(reason)
            }
            SearchFailure::Refused(SearchRefusal::Invalid(reason)) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "unknown_error", reason)
            }
        }
    }
}

#[cfg(test)]
mod tests;
