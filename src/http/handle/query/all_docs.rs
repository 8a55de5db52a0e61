//! `_all_docs`, `_design_docs`, `_local_docs` and their `/queries`, as streamed rows.

use std::sync::Arc;

use super::partition;
use super::view_query::ViewArgs;
use crate::coordinator::{AllDocs, AllDocsQuery, AllDocsRow, Database, DocSource, KeyBounds, ReadOperations, RowDoc};
use crate::document::json::{Value, write_string};
use crate::http::handle::document::shown::{Data, row_doc, write_pieces};
use crate::http::handle::document::{open, placed_id};
use crate::http::handle::rules::{self, Lister};
use crate::http::response::state_etag;
use crate::http::route::ListKind;
use crate::http::{ChunkSink, Context, Problem, Reply, Request, Result, Verb};
use crate::limits;

/// GET and POST of a list.
///
/// # Errors
/// 400 for arguments that make no sense.
pub async fn list(ctx: &Context, mut request: Request, db: &str, kind: ListKind) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    let args = arguments(&mut request).await?;
    let lister = rules::lister(ctx, &request.user, &db);
    reply(ctx, &request, (&db, source(kind)), (args, lister)).await
}

/// GET and POST `/{db}/_partition/{name}/_all_docs`.
///
/// # Errors
/// As [`list`], and 400 where the database or the name has no partition.
pub async fn partition(ctx: &Context, mut request: Request, db: &str, name: &str) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    partition::check(&db, name)?;
    let mut args = arguments(&mut request).await?;
    partition::check_given(args.partition.take().as_deref(), name)?;
    reply(ctx, &request, (&db, DocSource::Partition(name.to_owned())), (args, None)).await
}

/// POST `/{db}/_partition/{name}/_all_docs/queries`.
///
/// # Errors
/// As [`partition`]; one bad query refuses all.
pub async fn partition_queries(ctx: &Context, mut request: Request, db: &str, name: &str) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    partition::check(&db, name)?;
    let body = request.query_object().await?;
    let mut all = ViewArgs::from_queries(&body, &request.query)?;
    all.iter_mut().try_for_each(|args| partition::check_given(args.partition.take().as_deref(), name))?;
    answer_all(ctx, db, DocSource::Partition(name.to_owned()), all).await
}

async fn arguments(request: &mut Request) -> Result<ViewArgs> {
    if request.verb != Verb::Post {
        return ViewArgs::from_query(&request.query);
    }
    request.require_json()?;
    let body = request.query_object().await?;
    ViewArgs::from_body(&body, &request.query)
}

/// The rows of one list, with the ETag of the database's state where the list depends on nothing else.
///
/// # Errors
/// As [`list`].
async fn reply(
    ctx: &Context,
    request: &Request,
    (db, source): (&Arc<Database>, DocSource),
    (mut args, lister): (ViewArgs, Option<Lister>),
) -> Result<Reply> {
    check(ctx, db, &source, &mut args)?;
    let etag = match source {
        DocSource::Local => None,
        // What is seen depends on who sees it.
        _ if lister.is_some() || ctx.config.follows_couchdb() => None,
        _ => Some(list_etag(db, request, &args).await?),
    };
    if let Some(etag) = &etag
        && request.verb == Verb::Get
        && request.has_current(etag)
    {
        return Ok(Reply::not_modified(etag));
    }
    let rows = begin(db, source, &args).await?;
    let db = Arc::clone(db);
    let reply = Reply::generate(move |mut sink| async move {
        write_list(&db, rows, (&args, lister.as_ref()), &mut sink).await?;
        sink.write(b"\n").await?;
        sink.flush().await
    });
    let reply = match etag {
        Some(etag) => reply.etag(&etag),
        None => reply,
    };
    reply.begun().await
}

async fn list_etag(db: &Arc<Database>, request: &Request, args: &ViewArgs) -> Result<String> {
    let seq = db.update_seq().await?.to_string();
    Ok(state_etag(&[seq.as_bytes(), &db.read_state(), request.raw_path.as_bytes(), format!("{args:?}").as_bytes()]))
}

/// POST of several queries on a list.
///
/// # Errors
/// As [`list`]; one bad query refuses all.
pub async fn queries(ctx: &Context, mut request: Request, db: &str, kind: ListKind) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    let body = request.query_object().await?;
    let all = ViewArgs::from_queries(&body, &request.query)?;
    answer_all(ctx, db, source(kind), all).await
}

async fn answer_all(ctx: &Context, db: Arc<Database>, source: DocSource, mut all: Vec<ViewArgs>) -> Result<Reply> {
    all.iter_mut().try_for_each(|args| check(ctx, &db, &source, args))?;
    let reply = Reply::generate(move |mut sink| async move {
        sink.write(b"{\"results\":[\r\n").await?;
        for (at, args) in all.iter().enumerate() {
            if at > 0 {
                sink.write(b",\r\n").await?;
            }
            let rows = begin(&db, source.clone(), args).await?;
            write_list(&db, rows, (args, None), &mut sink).await?;
        }
        sink.write(b"\r\n]}\n").await?;
        sink.flush().await
    });
    reply.begun().await
}

fn source(kind: ListKind) -> DocSource {
    match kind {
        ListKind::All => DocSource::All,
        ListKind::Design => DocSource::Design,
        ListKind::Local => DocSource::Local,
    }
}

fn check(ctx: &Context, db: &Arc<Database>, source: &DocSource, args: &mut ViewArgs) -> Result<()> {
    let is_below_partition = matches!(source, DocSource::Partition(_));
    if args.partition.is_some() && !db.map().partitioned && !is_below_partition {
        return Err(Problem::query_parse("`partition` parameter is not supported on this db"));
    }
    args.bound(&ctx.config, args.partition.is_some() || is_below_partition)?;
    match (source, &args.keys) {
        (DocSource::All | DocSource::Partition(_), Some(keys)) if db.map().partitioned => check_placed(db, keys, args),
        _ => Ok(()),
    }
}

/// Whether, in a partitioned database, the keys that are to be shown can be ids there: no shard could be asked for
/// others.
fn check_placed(db: &Arc<Database>, keys: &[Value], args: &ViewArgs) -> Result<()> {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (skip, limit) = (number(args.skip), number(args.limit));
    let check = |key: &Value| key.as_str().map_or(Ok(()), |id| placed_id(db, id).map(drop));
    match args.descending {
        false => keys.iter().skip(skip).take(limit).try_for_each(check),
        true => keys.iter().rev().skip(skip).take(limit).try_for_each(check),
    }
}

async fn begin(db: &Arc<Database>, source: DocSource, args: &ViewArgs) -> Result<AllDocs> {
    Ok(db.lists().all_docs(query(source, args)).await?)
}

fn query(source: DocSource, args: &ViewArgs) -> AllDocsQuery {
    let source = match (&args.partition, source) {
        (Some(partition), DocSource::All) => DocSource::Partition(partition.clone()),
        (_, source) => source,
    };
    let keys = match &args.keys {
        Some(keys) => KeyBounds::Keys(keys.clone()),
        None => KeyBounds::Range {
            start: args.start_key.clone().or_else(|| args.start_doc_id.clone().map(Value::String)),
            end: args.end_key.clone().or_else(|| args.end_doc_id.clone().map(Value::String)),
            inclusive_end: args.inclusive_end,
        },
    };
    AllDocsQuery {
        source,
        keys,
        descending: args.descending,
        skip: args.skip,
        limit: Some(args.limit),
        include_docs: args.include_docs,
        conflicts: args.include_docs && args.conflicts == Some(true),
        update_seq: args.update_seq,
    }
}

/// `{"total_rows":..,"offset":..,"rows":[..]}` without a line end.
async fn write_list(
    db: &Arc<Database>,
    mut list: AllDocs,
    (args, lister): (&ViewArgs, Option<&Lister>),
    sink: &mut ChunkSink,
) -> Result<()> {
    sink.write(&head(&list)).await?;
    let data = if args.attachments { Data::All } else { Data::None };
    let mut first = true;
    loop {
        sink.room(args.include_docs).await?;
        let Some(page) = list.next().await? else { break };
        sink.page(page.iter().map(weight).sum());
        for mut row in page {
            if let Some(lister) = lister {
                lister.limit(&mut row);
            }
            if !first {
                sink.write(b",\r\n").await?;
            }
            first = false;
            let (text, doc) = row_text(&row);
            sink.write(&text).await?;
            if let Some(doc) = doc {
                write_pieces(db, &doc.id, row_doc(doc, data, args.att_encoding_info), sink).await?;
            }
            sink.write(b"}").await?;
        }
    }
    sink.page(0);
    sink.write(b"\r\n]}").await
}

/// Bytes of memory that a row takes, about.
fn weight(row: &AllDocsRow) -> usize {
    let doc = match row {
        AllDocsRow::Found { doc: Some(Some(doc)), .. } => doc.weight(),
        _ => 0,
    };
    limits::HTTP_STREAM_ROW_BYTES + doc
}

fn head(list: &AllDocs) -> Vec<u8> {
    let number = |n: Option<u64>| n.map_or_else(|| "null".to_owned(), |n| n.to_string());
    let mut out =
        format!("{{\"total_rows\":{},\"offset\":{}", number(list.total_rows), number(list.offset)).into_bytes();
    match &list.update_seq {
        None => {}
        Some(None) => out.extend_from_slice(b",\"update_seq\":null"),
        Some(Some(seq)) => {
            out.extend_from_slice(b",\"update_seq\":");
            write_string(seq, &mut out);
        }
    }
    out.extend_from_slice(b",\"rows\":[\r\n");
    out
}

/// A row without its last brace, and the document that stands before that.
fn row_text(row: &AllDocsRow) -> (Vec<u8>, Option<&RowDoc>) {
    let (id, rev, deleted, doc) = match row {
        AllDocsRow::Found { id, rev, deleted, doc } => (id, rev, *deleted, doc),
        AllDocsRow::Missing { key } => {
            let mut out = b"{\"key\":".to_vec();
            key.write(&mut out);
            out.extend_from_slice(b",\"error\":\"not_found\"");
            return (out, None);
        }
    };
    let mut out = b"{\"id\":".to_vec();
    write_string(id.as_str(), &mut out);
    out.extend_from_slice(b",\"key\":");
    write_string(id.as_str(), &mut out);
    out.extend_from_slice(b",\"value\":{\"rev\":");
    write_string(&rev.to_string(), &mut out);
    out.extend_from_slice(if deleted { b",\"deleted\":true}" } else { b"}" });
    match doc {
        None => (out, None),
        Some(None) => {
            out.extend_from_slice(b",\"doc\":null");
            (out, None)
        }
        Some(Some(doc)) => {
            out.extend_from_slice(b",\"doc\":");
            (out, Some(doc))
        }
    }
}
