//! Full-text search over indexes with types, in the form of CouchDB with Nouveau: `_nouveau`, `_nouveau_info`,
//! `_nouveau_analyze`, `_nouveau_cleanup`. Off unless `[nouveau] enable` is true: then all but the
//! last are 404.

mod answer;
mod args;

use http::StatusCode;

use crate::auth::access::Class;
use crate::config::Config;
use crate::coordinator::{ReadOperations, TypedQuery};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::http::handle::query::partition;
use crate::http::handle::search::known;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::search::Analyzer;
use crate::observe::metrics::{Counter, Histogram};
use crate::world::Pool;
use args::NouveauArgs;

/// Whether indexes with types are asked and built: `[nouveau] enable`.
pub fn is_enabled(config: &Config) -> bool {
    config.bool("nouveau", "enable", false)
}

fn check_enabled(ctx: &Context) -> Result<()> {
    if is_enabled(&ctx.config) { Ok(()) } else { Err(Problem::missing()) }
}

/// What stands below a design document and is about its indexes with types; `path` begins with `_nouveau` or
/// `_nouveau_info`.
///
/// # Errors
/// 400 for another path, 404 where these indexes are off.
pub async fn handle(
    ctx: &Context,
    request: Request,
    db: &str,
    (ddoc, path): (&str, &[&str]),
    partition: Option<&str>,
) -> Result<Reply> {
    let database = ctx.open(db, &request, Class::Member)?;
    database.design_docs().program(&DocId::new(ddoc)).await?;
    check_enabled(ctx)?;
    match path {
        ["_nouveau", name] => match request.verb {
            Verb::Get | Verb::Post => search(ctx, request, db, (ddoc, name), partition).await,
            _ => Err(Problem::method_not_allowed("GET, POST")),
        },
        ["_nouveau", ..] => Err(Problem::method_not_allowed("GET, POST")),
        ["_nouveau_info", name] if request.verb == Verb::Get => info(ctx, &request, db, (ddoc, name)).await,
        ["_nouveau_info", _] => Err(Problem::method_not_allowed("GET")),
        _ => Err(Problem::bad_request("path not recognized")),
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
    ctx.env.metrics().count(Counter::ViewReads);
    if let Some(name) = partition {
        partition::check(&db, name)?;
    }
    let given = match request.verb {
        Verb::Post => {
            request.require_json()?;
            NouveauArgs::of_body(&request.query_object().await?, &request.query)?
        }
        _ => NouveauArgs::of_query(&request.query)?,
    };
    let args = given.within(partition)?;
    let index = known(db.queries().typed_search(&DocId::new(ddoc), name).await, name)?;
    let (include_docs, sort) = (args.include_docs, args.request.sort.clone());
    let asks = (args.request.counts.is_some(), args.request.ranges.is_some());
    let query = TypedQuery { request: args.request, bookmark: args.bookmark, update: args.update };
    let begun = ctx.env.now();
    let page = index.ask_typed(query).await?;
    ctx.env.metrics().record_ms(Histogram::TypedSearchTime, ctx.env.now().since(begun));
    let form = answer::Form { docs: include_docs.then_some(index), sort, asks };
    Ok(Reply::generate(move |mut sink| async move { form.write(page, &mut sink).await }))
}

async fn info(ctx: &Context, request: &Request, db: &str, (ddoc, name): (&str, &str)) -> Result<Reply> {
    let db = ctx.open(db, request, Class::Member)?;
    let index = known(db.queries().typed_search(&DocId::new(ddoc), name).await, name)?;
    let size = index.size().await?;
    let signature: String = index.definition.signature.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut search_index = Object::new();
    search_index.push("signature", signature);
    search_index.push("disk_size", size.bytes);
    search_index.push("num_docs", size.documents);
    search_index.push("purge_seq", size.purges);
    search_index.push("update_seq", size.position);
    let mut answer = Object::new();
    answer.push("name", format!("{ddoc}/{name}"));
    answer.push("search_index", search_index);
    Ok(Reply::json(StatusCode::OK, answer.to_vec()))
}

/// POST `/_nouveau_analyze`: the tokens that an analyzer makes of a text. Open to all, as in CouchDB.
///
/// # Errors
/// 400 for what is missing and for an analyzer that nobody knows; 404 where indexes with types are off.
pub async fn analyze(ctx: &Context, mut request: Request) -> Result<Reply> {
    check_enabled(ctx)?;
    request.require_json()?;
    let given = request.query_object().await?;
    let text = |name: &str| given.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(text), Some(name)) = (text("text"), text("analyzer")) else {
        return Err(Problem::bad_request("'text' and 'analyzer' fields must be non-empty strings"));
    };
    let analyzer = Analyzer::lucene9(name, &Default::default()).map_err(|error| unknown(&error.0))?;
    let text = text.to_owned();
    let cut = move || analyzer.tokens("default", &text).into_iter().map(|token| token.text.into()).collect();
    let tokens: Vec<Value> = ctx.env.blocking(Pool::Foreground, cut).await;
    let answer: Object = [("tokens".to_owned(), Value::Array(tokens))].into_iter().collect();
    Ok(Reply::json(StatusCode::OK, answer.to_vec()))
}

/// POST `/{db}/_nouveau_cleanup`: what no design document names any more goes, of views and other indexes as well;
/// also where indexes with types are off, because those that were made before stay until then.
///
/// # Errors
/// When the node cannot read or write.
pub async fn cleanup(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    let db = ctx.open(db, request, Class::Member)?;
    request.require_json()?;
    db.queries().clean_up_views().await?;
    Ok(Reply::ok(StatusCode::ACCEPTED))
}

/// 400 for an analyzer that nobody knows.
pub(super) fn unknown(name: &str) -> Problem {
    Problem::bad_request(format!("{name} is not a valid analyzer name"))
}
