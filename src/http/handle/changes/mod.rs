//! `_changes`: the feed of a database in its four forms (CouchDB documentation, 'Changes feed').

pub mod db_updates;
pub mod feed;
pub mod query;
pub mod selector;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::coordinator::{ChangeRow, Changes, ChangesFilter, ChangesQuery, Database, FeedOperations, RowDoc, Style};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value, write_string};
use crate::http::handle::document::open;
use crate::http::handle::document::shown::{Data, Piece, row_doc};
use crate::http::handle::function::request::function_request;
use crate::http::json_meter::JsonMeter;
use crate::http::{Context, Problem, Query, Reply, Request, Result, Verb};
use crate::observe::metrics::{Entered, Gauge};
use feed::{Delivery, Feed, Print, Waits, seq_json};
use query::{ChangesArgs, FilterArgs};

/// GET and POST `/{db}/_changes`
///
/// # Errors
/// 400 for parameters that cannot be read, 404 for a filter function that is not there, 500 for one that fails.
pub async fn changes(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    let body = if request.verb == Verb::Post { Some(body(&mut request).await?) } else { None };
    // A filter that reads the body of a POST wants one.
    if body == Some(None) && reads_body(&request.query) {
        return Err(Problem::invalid_json());
    }
    let body = body.map(Option::unwrap_or_default);
    let asked = ChangesArgs::read(&request.query, request.header("last-event-id"), body.as_ref())?;
    let filter = filter(ctx, &request, &db, &asked.args.filter, body.as_ref()).await?;
    let args = asked.settle()?;
    let etag = feed::etag(&db, args.feed).await?;
    if let Some(etag) = etag.as_deref().filter(|etag| request.has_current(etag)) {
        return Ok(Reply::not_modified(etag));
    }
    let is_filtered = matches!(filter, ChangesFilter::Rows(_));
    let mut changes = db.feeds().changes(query(&args, filter)).await?;
    if args.limit == Some(0) && ctx.config.follows_couchdb() {
        return without_rows(&args, changes).await;
    }
    // Read before the answer begins, so that a filter that fails is an error and not half an answer.
    let first = if is_filtered { changes.next().await?.unwrap_or_default() } else { Vec::new() };
    let counted = (args.feed != Feed::Normal).then(|| ctx.env.metrics().enter(Gauge::ChangesClients));
    let waits = Waits::new(&ctx.config, args.heartbeat_ms, args.timeout_ms);
    let time_limit = args.time_limit_ms.map(Duration::from_millis);
    let (env, feed, print) =
        (ctx.env.clone(), args.feed, Rows { args, follows_couchdb: ctx.config.follows_couchdb(), _counted: counted });
    let stopping = ctx.stopping.subscribe();
    Ok(Delivery { env, db, feed, waits, time_limit, stopping, print }.reply(changes, first, etag.as_deref()))
}

/// `limit=0` as CouchDB 3.5 answers it: where the feed begins, and how much is left to read.
async fn without_rows(args: &ChangesArgs, mut changes: Changes) -> Result<Reply> {
    let seq = changes.last_seq();
    let unread = changes.next().await?.map_or(0, |rows| rows.len() as u64);
    let end = [
        b"\"last_seq\":",
        &seq_json(Some(&seq))[..],
        format!(",\"pending\":{}}}", unread + changes.pending().await).as_bytes(),
    ]
    .concat();
    let text = match args.feed {
        Feed::EventSource => Vec::new(),
        Feed::Continuous => [b"{", &end[..]].concat(),
        Feed::Normal | Feed::LongPoll => [b"{\"results\":[\n\n],\n", &end[..]].concat(),
    };
    let reply = Reply::json(StatusCode::OK, text);
    Ok(if args.feed == Feed::EventSource { feed::as_events(reply) } else { reply })
}

/// Whether the filter takes what it asks for from the body.
fn reads_body(query: &Query) -> bool {
    let filters = query.iter().filter(|(name, _)| name.eq_ignore_ascii_case("filter"));
    filters.last().is_some_and(|(_, filter)| matches!(filter, "_doc_ids" | "_selector"))
}

/// The body of a POST, if there is one.
async fn body(request: &mut Request) -> Result<Option<Object>> {
    request.require_json()?;
    let bytes = request.json_bytes_as(JsonMeter::of_query()).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    match json::parse(&bytes) {
        Ok(Value::Object(body)) => Ok(Some(body)),
        Ok(_) => Err(Problem::bad_request("Request body must be a JSON object")),
        Err(_) => Err(Problem::unread_json(&bytes)),
    }
}

async fn filter(
    ctx: &Context,
    request: &Request,
    db: &Arc<Database>,
    filter: &FilterArgs,
    body: Option<&Object>,
) -> Result<ChangesFilter> {
    match filter {
        FilterArgs::None => Ok(ChangesFilter::None),
        FilterArgs::Design => Ok(ChangesFilter::Design),
        FilterArgs::DocIds(ids) => Ok(ChangesFilter::DocIds(ids.iter().map(|id| DocId::new(id)).collect())),
        FilterArgs::View(place) => Ok(db.feeds().view_filter(place).await?),
        FilterArgs::Function(place) => {
            let req = function_request(ctx, request, db, None, body.cloned().map(Value::Object)).await?;
            Ok(db.feeds().function_filter(place, req).await?)
        }
        FilterArgs::Selector(args) => Ok(db.feeds().selector_filter(args.selector()).await),
    }
}

fn query(args: &ChangesArgs, filter: ChangesFilter) -> ChangesQuery {
    ChangesQuery {
        since: args.since.clone(),
        limit: args.limit.map(|limit| limit.max(1)),
        descending: args.descending,
        style: if args.all_leaves { Style::AllDocs } else { Style::MainOnly },
        seq_interval: args.seq_interval,
        filter,
        include_docs: args.include_docs,
        conflicts: args.conflicts,
    }
}

/// What the rows look like.
struct Rows {
    args: ChangesArgs,
    /// See [`Config::follows_couchdb`](crate::config::Config::follows_couchdb).
    follows_couchdb: bool,
    /// Feeds that wait are counted while they last.
    _counted: Option<Entered>,
}

impl Print for Rows {
    const ROW_END: &'static str = "\r\n";

    fn line_end(&self) -> &'static str {
        if self.follows_couchdb { "\n" } else { "\r\n" }
    }

    fn row(&self, row: &ChangeRow) -> Result<Option<Vec<Piece>>> {
        let mut out = b"{\"seq\":".to_vec();
        out.extend(seq_json(row.seq.as_deref()));
        out.extend_from_slice(b",\"id\":");
        write_string(row.id.as_str(), &mut out);
        out.extend_from_slice(b",\"changes\":[");
        for (at, rev) in row.revs.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b",{\"rev\":" } else { b"{\"rev\":" });
            write_string(&rev.to_string(), &mut out);
            out.push(b'}');
        }
        out.push(b']');
        if row.deleted {
            out.extend_from_slice(b",\"deleted\":true");
        }
        let Some(doc) = &row.doc else {
            out.push(b'}');
            return Ok(Some(vec![Piece::Text(out)]));
        };
        out.extend_from_slice(b",\"doc\":");
        let data = if self.args.attachments { Data::All } else { Data::None };
        let mut pieces = vec![Piece::Text(out)];
        match self.cut(doc)? {
            Some(text) => pieces.push(Piece::Text(text)),
            None => pieces.extend(row_doc(doc, data, self.args.att_encoding_info)),
        }
        pieces.push(Piece::Text(b"}".to_vec()));
        Ok(Some(pieces))
    }

    fn shows_docs(&self) -> bool {
        self.args.include_docs
    }

    fn tail(&self, pending: u64) -> String {
        format!(",\"pending\":{pending}")
    }
}

impl Rows {
    /// What the `fields` of a selector leave of a document; `None` without such a list.
    fn cut(&self, doc: &RowDoc) -> Result<Option<Vec<u8>>> {
        match &self.args.filter {
            FilterArgs::Selector(args) => args.cut(doc),
            _ => Ok(None),
        }
    }
}
