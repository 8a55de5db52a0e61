//! Views of design documents: queries by GET and POST, `/queries`, and `_info`.
//!
//! Rows are streamed while they are read; steps that can fail, including the first page, run before the status is sent.
//! The ETag covers the state of the view and the request (`docs/compatibility.md`: CouchDB 3.5 sends none).

use std::sync::Arc;

use http::StatusCode;

use super::partition;
use super::view_query::ViewArgs;
use crate::auth::access::Class;
use crate::coordinator::{
    Database, DatabaseView, GroupRow, KeyBound, KeySpan, ReadOperations, ViewKeys, ViewQuery, ViewRow, ViewRows,
};
use crate::document::id::DocId;
use crate::document::json::{Value, write_string};
use crate::http::handle::document::shown::{Data, row_doc, write_pieces};
use crate::http::handle::server::node::COLLATOR_VERSION;
use crate::http::response::state_etag;
use crate::http::{ChunkSink, Context, Problem, Reply, Request, Result, Verb};
use crate::limits;
use crate::observe::metrics::Counter;

/// GET and POST `/{db}/_design/{ddoc}/_view/{view}`; with a partition, below `/{db}/_partition/{partition}`.
///
/// # Errors
/// 404 for what is missing, 400 for arguments that make no sense, 500 when a function fails.
pub async fn query(
    ctx: &Context,
    mut request: Request,
    db: &str,
    (ddoc, name): (&str, &str),
    partition: Option<&str>,
) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::Member)?;
    ctx.env.metrics().count(Counter::ViewReads);
    if let Some(partition) = partition {
        partition::check(&db, partition)?;
    }
    let id = DocId::new(ddoc);
    let mut args = match arguments(&mut request).await {
        Ok(args) => args,
        Err(problem) => {
            // Without its design document a view is missing, however it is asked.
            db.queries().views_info(&id).await?;
            return Err(problem);
        }
    };
    take_partition(&db, &mut args, partition)?;
    let view = db.queries().view(&id, name).await?;
    args.bound(&ctx.config, view.definition.partitioned)?;
    let asked = read(&view, &args)?;
    let seq = if args.include_docs { db.update_seq().await?.to_string() } else { String::new() };
    let definition = Arc::clone(&view.definition);
    let rows = view.open(asked).await?;
    // The reduce function is no part of what names the rows.
    let state = format!("{} {:?} {:?} {args:?}", rows.state(), rows.wants_totals(), definition.reduce);
    let etag = state_etag(&[&definition.signature.0, request.raw_path.as_bytes(), state.as_bytes(), seq.as_bytes()]);
    let has_etag = !ctx.config.follows_couchdb();
    if has_etag && request.verb == Verb::Get && request.has_current(&etag) {
        return Ok(Reply::not_modified(&etag));
    }
    let mut listing = Listing::begin(rows, args).await?;
    let reply = Reply::generate(move |mut sink| async move {
        listing.write(&mut sink).await?;
        sink.write(b"\n").await?;
        sink.flush().await
    });
    Ok(if has_etag { reply.etag(&etag) } else { reply })
}

/// What is asked of a view.
async fn arguments(request: &mut Request) -> Result<ViewArgs> {
    match request.verb {
        Verb::Post => {
            request.require_json()?;
            let body = request.query_object().await?;
            Ok(ViewArgs::of_view_body(&body, &request.query)?)
        }
        _ => Ok(ViewArgs::of_view(&request.query)?),
    }
}

/// POST `/{db}/_design/{ddoc}/_view/{view}/queries`.
///
/// # Errors
/// As [`query`]; one bad query refuses all, and so does one whose function fails on its first page.
pub async fn queries(
    ctx: &Context,
    mut request: Request,
    db: &str,
    (ddoc, name): (&str, &str),
    partition: Option<&str>,
) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::Member)?;
    request.require_json()?;
    let body = request.query_object().await?;
    let id = DocId::new(ddoc);
    let mut all = ViewArgs::of_view_queries(&body, &request.query)?;
    db.queries().view(&id, name).await?;
    let mut listings = Vec::with_capacity(all.len());
    for mut args in all.drain(..) {
        take_partition(&db, &mut args, partition)?;
        let view = db.queries().view(&id, name).await?;
        args.bound(&ctx.config, view.definition.partitioned)?;
        let asked = read(&view, &args)?;
        let rows = view.open(asked).await.map_err(|error| Problem::from(error).without_reference())?;
        let mut listing = Listing::begin(rows, args).await.map_err(Problem::without_reference)?;
        // What waits for its turn holds no states of indexes: their number is bounded, and so is the time.
        if !listings.is_empty() && listing.rows.defer() {
            listing.first = None;
        }
        listings.push(listing);
    }
    Ok(Reply::generate(move |mut sink| async move {
        sink.write(b"{\"results\":[\r\n").await?;
        for (at, listing) in listings.iter_mut().enumerate() {
            if at > 0 {
                sink.write(b",\r\n").await?;
            }
            listing.write(&mut sink).await?;
        }
        sink.write(b"\r\n]}\n").await?;
        sink.flush().await
    }))
}

/// GET `/{db}/_design/{ddoc}/_info`.
///
/// # Errors
/// 404 for a missing design document.
pub async fn info(ctx: &Context, request: &Request, db: &str, ddoc: &str) -> Result<Reply> {
    let db = ctx.open(db, request, Class::Member)?;
    let info = db.queries().views_info(&DocId::new(ddoc)).await?;
    let name = ddoc.strip_prefix("_design/").unwrap_or(ddoc);
    let body = serde_json::json!({"name": name, "view_index": {
        "updates_pending": {"minimum": info.pending, "preferred": info.pending, "total": info.pending},
        "waiting_commit": false,
        "waiting_clients": 0,
        "updater_running": info.updating,
        "update_seq": info.update_seq,
        "sizes": {"file": info.active, "external": info.external, "active": info.active},
        "signature": info.signature,
        "purge_seq": info.purge_seq,
        "language": info.language,
        "compact_running": false,
        "collator_versions": collators(ctx),
    }});
    Ok(Reply::value(StatusCode::OK, &body))
}

/// The collations that CouchDB would name for an index.
fn collators(ctx: &Context) -> &'static [&'static str] {
    if ctx.config.follows_couchdb() { &[COLLATOR_VERSION] } else { &[] }
}

/// A partition of the path joins that of the arguments; both must be the same.
fn take_partition(db: &Arc<Database>, args: &mut ViewArgs, partition: Option<&str>) -> Result<()> {
    if let Some(name) = partition {
        partition::check(db, name)?;
        partition::check_given(args.partition.as_deref(), name)?;
        args.partition = Some(name.to_owned());
    }
    Ok(())
}

/// The arguments as a query of the view.
fn read(view: &DatabaseView, args: &ViewArgs) -> Result<ViewQuery> {
    let can_reduce = view.definition.reduce.is_some();
    let grouping = match can_reduce && args.reduce != Some(false) {
        true => Some(args.grouping()?),
        false => {
            args.check_map(can_reduce)?;
            None
        }
    };
    let span = |start: Option<&Value>, end: Option<&Value>| KeySpan {
        start: KeyBound { key: start.cloned(), id: args.start_doc_id.clone() },
        end: KeyBound { key: end.cloned(), id: args.end_doc_id.clone() },
        inclusive_end: args.inclusive_end,
    };
    let keys = match &args.keys {
        // What else is said of the ends holds for the range of each key.
        Some(keys) => ViewKeys::Keys(keys.iter().map(|key| span(Some(key), Some(key))).collect()),
        None => ViewKeys::Span(span(args.start_key.as_ref(), args.end_key.as_ref())),
    };
    Ok(ViewQuery {
        keys,
        descending: args.descending,
        skip: args.skip,
        limit: args.limit,
        likely: usize::MAX,
        grouping,
        include_docs: args.include_docs,
        conflicts: args.include_docs && args.conflicts == Some(true),
        totals: args.sorted,
        update_seq: args.update_seq,
        update: args.update,
        stable: args.stable,
        partition: args.partition.clone(),
    })
}

/// A page of an answer.
enum Page {
    Rows(Vec<ViewRow>),
    Groups(Vec<GroupRow>),
}

impl Page {
    /// Bytes of memory that it takes, about.
    fn weight(&self) -> usize {
        let row = |row: &ViewRow| {
            let doc = row.doc.iter().flatten().map(|doc| doc.weight()).sum::<usize>();
            limits::HTTP_STREAM_ROW_BYTES + row.row.key.len() + row.row.value.len() + doc
        };
        match self {
            Page::Rows(rows) => rows.iter().map(row).sum(),
            Page::Groups(groups) => groups.len() * limits::HTTP_STREAM_ROW_BYTES,
        }
    }
}

/// One answer being written.
struct Listing {
    rows: ViewRows,
    args: ViewArgs,
    /// The first page, where it was read before; `Some(None)`: there is none.
    first: Option<Option<Page>>,
}

impl Listing {
    /// Reads the first page, so that what fails there still has a status of its own.
    async fn begin(rows: ViewRows, args: ViewArgs) -> Result<Listing> {
        let mut listing = Listing { rows, args, first: None };
        listing.first = Some(listing.page().await?);
        Ok(listing)
    }

    async fn page(&mut self) -> Result<Option<Page>> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        Ok(match self.rows.is_reduced() {
            true => self.rows.next_groups().await?.map(Page::Groups),
            false => self.rows.next().await?.map(Page::Rows),
        })
    }

    /// `{"total_rows":..,"offset":..,"rows":[..]}` without a line end.
    async fn write(&mut self, sink: &mut ChunkSink) -> Result<()> {
        sink.write(&head(&self.rows)).await?;
        let db = Arc::clone(self.rows.database());
        let data = if self.args.attachments { Data::All } else { Data::None };
        let (mut first, mut text) = (true, Vec::new());
        loop {
            sink.room(self.args.include_docs).await?;
            let Some(page) = self.page().await? else { break };
            sink.page(page.weight());
            let (rows, groups) = match page {
                Page::Rows(rows) => (rows, Vec::new()),
                Page::Groups(groups) => (Vec::new(), groups),
            };
            for group in groups {
                sink.write(if std::mem::take(&mut first) { b"" } else { b",\r\n" }).await?;
                sink.write(&group_text(&group)).await?;
            }
            text.clear();
            for row in rows {
                text.extend_from_slice(if std::mem::take(&mut first) { b"" } else { b",\r\n" });
                write_row(&row, &mut text);
                if let Some(Some(doc)) = &row.doc {
                    sink.write(&text).await?;
                    text.clear();
                    // Another document that the value names is shown plainly, as CouchDB opens it.
                    let (data, encodings) = match doc.id == row.row.id {
                        true => (data, self.args.att_encoding_info),
                        false => (Data::None, false),
                    };
                    write_pieces(&db, &doc.id, row_doc(doc, data, encodings), sink).await?;
                }
                text.push(b'}');
                if text.len() >= limits::HTTP_CHUNK_BYTES {
                    sink.write(&text).await?;
                    text.clear();
                }
            }
            sink.write(&text).await?;
        }
        sink.page(0);
        sink.write(b"\r\n]}").await
    }
}

fn head(rows: &ViewRows) -> Vec<u8> {
    let mut out = b"{".to_vec();
    if rows.wants_totals() && !rows.is_reduced() {
        out.extend(format!("\"total_rows\":{},\"offset\":{},", rows.total_rows, rows.offset).into_bytes());
    }
    if rows.wants_update_seq() {
        out.extend_from_slice(b"\"update_seq\":");
        write_string(&rows.update_seq(), &mut out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"rows\":[\r\n");
    out
}

/// A row without its last brace; a document is still to be written.
fn write_row(row: &ViewRow, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    write_string(row.row.id.as_str(), out);
    out.extend_from_slice(b",\"key\":");
    out.extend_from_slice(&row.row.key);
    out.extend_from_slice(b",\"value\":");
    out.extend_from_slice(&row.row.value);
    match &row.doc {
        None => {}
        Some(None) => out.extend_from_slice(b",\"doc\":null"),
        Some(Some(_)) => out.extend_from_slice(b",\"doc\":"),
    }
}

fn group_text(group: &GroupRow) -> Vec<u8> {
    let mut out = b"{\"key\":".to_vec();
    group.key.write(&mut out);
    match &group.value {
        Ok(value) => {
            out.extend_from_slice(b",\"value\":");
            value.write(&mut out);
        }
        Err(overflow) => {
            out.extend_from_slice(b",\"error\":\"reduce_overflow_error\",\"reason\":");
            write_string(&overflow.reason, &mut out);
        }
    }
    out.push(b'}');
    out
}
