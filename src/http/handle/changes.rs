//! `_changes`: the feed of a database in its four forms (SPEC 'Changes feed').

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::changes_filter;
use super::changes_query::{self, ChangesArgs, Feed, Filter, Heartbeat};
use super::document::open;
use super::local::state_etag;
use super::shown::{Data, Piece, row_doc, write_pieces};
use crate::coordinator::{ChangeRow, Changes, ChangesFilter, ChangesQuery, Database, RowDoc, Since, Style};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value, write_string};
use crate::http::{ChunkSink, Context, Problem, Reply, Request, Result, Verb};
use crate::limits;
use crate::observe::metrics::Gauge;
use crate::world::Env;

/// GET and POST `/{db}/_changes`
///
/// # Errors
/// 400 for parameters that cannot be read, 404 for a filter function that is not there, 500 for one that fails.
pub async fn changes(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    let body = if request.verb == Verb::Post { Some(body(&mut request).await?) } else { None };
    let args = ChangesArgs::read(&request.query, request.header("last-event-id"), body.as_ref())?;
    let etag = state_etag(&[db.update_seq().await?.to_string().as_bytes()]);
    if args.feed == Feed::Normal && request.verb == Verb::Get && request.has_current(&etag) {
        return Ok(Reply::not_modified(&etag));
    }
    let filter = filter(ctx, &request, &db, &args.filter, body.as_ref()).await?;
    let judged = matches!(filter, ChangesFilter::Rows(_));
    let mut changes = db.changes(query(&args, filter)?).await?;
    // Read before the answer begins, so that a filter that fails is an error and not half an answer.
    let first = if judged { changes.next().await? } else { None };
    let writer = Writer { env: ctx.env.clone(), db, waits: Waits::new(ctx, &args), args: args.clone(), rows: 0 };
    let waits = args.feed != Feed::Normal;
    let counted = waits.then(|| ctx.env.metrics().enter(Gauge::ChangesClients));
    let reply = Reply::generate(move |mut sink| async move {
        let _counted = counted;
        writer.run(changes, first, &mut sink).await
    });
    Ok(match args.feed {
        Feed::Normal => reply.etag(&etag),
        Feed::EventSource => reply.header(CONTENT_TYPE, "text/event-stream").header(CACHE_CONTROL, "no-cache"),
        Feed::LongPoll | Feed::Continuous => reply,
    })
}

/// The body of a POST; an empty one is an empty object.
async fn body(request: &mut Request) -> Result<Object> {
    request.require_json()?;
    let bytes = request.json_bytes().await?;
    if bytes.is_empty() {
        return Ok(Object::new());
    }
    match json::parse(&bytes) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(Problem::bad_request("Request body must be a JSON object")),
        Err(_) => Err(Problem::invalid_json()),
    }
}

async fn filter(
    ctx: &Context,
    request: &Request,
    db: &Database,
    filter: &Filter,
    body: Option<&Object>,
) -> Result<ChangesFilter> {
    match filter {
        Filter::None => Ok(ChangesFilter::None),
        Filter::Design => Ok(ChangesFilter::Design),
        Filter::DocIds(ids) => Ok(ChangesFilter::DocIds(ids.iter().map(|id| DocId::new(id)).collect())),
        Filter::View(place) => changes_filter::view(db, place).await,
        Filter::Function(place) => changes_filter::function(ctx, request, db, place, body).await,
        Filter::Selector(args) => Ok(ChangesFilter::Rows(args.filter(&ctx.env, &ctx.collator))),
    }
}

fn query(args: &ChangesArgs, filter: ChangesFilter) -> Result<ChangesQuery> {
    let since = match &args.since {
        changes_query::Since::Start => Since::Beginning,
        changes_query::Since::Now => Since::Now,
        changes_query::Since::Token(token) => Since::parse(token)?,
    };
    Ok(ChangesQuery {
        since,
        limit: args.limit,
        descending: args.descending,
        style: if args.all_leaves { Style::AllDocs } else { Style::MainOnly },
        seq_interval: args.seq_interval,
        filter,
        include_docs: args.include_docs,
        conflicts: args.include_docs && args.conflicts,
    })
}

/// How long a feed waits, and what it does then.
struct Waits {
    interval: Duration,
    heartbeat: bool,
}

impl Waits {
    /// `chttpd/changes_timeout` bounds both; with a heartbeat the feed does not time out.
    fn new(ctx: &Context, args: &ChangesArgs) -> Waits {
        let bound = ctx.config.text("chttpd", "changes_timeout", "").parse().unwrap_or(limits::CHANGES_TIMEOUT_MS);
        let (ms, heartbeat) = match (args.heartbeat, args.timeout_ms) {
            (Heartbeat::None, timeout) => (timeout.unwrap_or(bound), false),
            (Heartbeat::Default, _) => (limits::CHANGES_HEARTBEAT_MS, true),
            (Heartbeat::EveryMs(ms), _) => (ms, true),
        };
        Waits { interval: Duration::from_millis(ms.min(bound)), heartbeat }
    }
}

/// Prints a feed.
struct Writer {
    env: Env,
    db: Arc<Database>,
    args: ChangesArgs,
    waits: Waits,
    rows: u64,
}

impl Writer {
    /// Sends the feed; `first` is a page that was read ahead.
    async fn run(mut self, mut changes: Changes, first: Option<Vec<ChangeRow>>, sink: &mut ChunkSink) -> Result<()> {
        if self.in_one_body() {
            sink.write(b"{\"results\":[\n").await?;
        }
        for row in first.into_iter().flatten() {
            self.row(&row, sink).await?;
        }
        loop {
            while let Some(page) = changes.next().await? {
                for row in page {
                    self.row(&row, sink).await?;
                }
            }
            let done = match self.args.feed {
                Feed::Normal => true,
                Feed::LongPoll => self.rows > 0,
                Feed::Continuous | Feed::EventSource => false,
            };
            if done || changes.limit_reached() || changes.is_gone() || self.args.descending {
                break;
            }
            sink.flush().await?;
            if !self.wait(&mut changes, sink).await? {
                break;
            }
        }
        self.end(&changes, sink).await?;
        sink.flush().await
    }

    fn in_one_body(&self) -> bool {
        matches!(self.args.feed, Feed::Normal | Feed::LongPoll)
    }

    /// Waits for news, sending signs of life; false when the time is over.
    async fn wait(&self, changes: &mut Changes, sink: &mut ChunkSink) -> Result<bool> {
        loop {
            if self.env.timeout(self.waits.interval, changes.wait()).await.is_ok() {
                return Ok(true);
            }
            if !self.waits.heartbeat {
                return Ok(false);
            }
            let sign: &[u8] = match self.args.feed {
                Feed::EventSource => b"event: heartbeat\ndata: \n\n",
                _ => b"\n",
            };
            sink.write(sign).await?;
            sink.flush().await?;
        }
    }

    async fn row(&mut self, row: &ChangeRow, sink: &mut ChunkSink) -> Result<()> {
        let pieces = self.row_pieces(row)?;
        match self.args.feed {
            Feed::Normal | Feed::LongPoll => {
                if self.rows > 0 {
                    sink.write(b",\r\n").await?;
                }
                write_pieces(&self.db, &row.id, pieces, sink).await?;
            }
            Feed::Continuous => {
                write_pieces(&self.db, &row.id, pieces, sink).await?;
                sink.write(b"\r\n").await?;
            }
            Feed::EventSource => {
                sink.write(b"data: ").await?;
                write_pieces(&self.db, &row.id, pieces, sink).await?;
                sink.write(b"\nid: ").await?;
                sink.write(&seq_json(row.seq.as_deref())).await?;
                sink.write(b"\n\n").await?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn row_pieces(&self, row: &ChangeRow) -> Result<Vec<Piece>> {
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
            return Ok(vec![Piece::Text(out)]);
        };
        out.extend_from_slice(b",\"doc\":");
        let data = if self.args.attachments { Data::All } else { Data::None };
        let mut pieces = vec![Piece::Text(out)];
        match self.cut(doc)? {
            Some(text) => pieces.push(Piece::Text(text)),
            None => pieces.extend(row_doc(doc, data, self.args.att_encoding_info)),
        }
        pieces.push(Piece::Text(b"}".to_vec()));
        Ok(pieces)
    }

    /// What the `fields` of a selector leave of a document; `None` without such a list.
    fn cut(&self, doc: &RowDoc) -> Result<Option<Vec<u8>>> {
        match &self.args.filter {
            Filter::Selector(args) => args.cut(doc),
            _ => Ok(None),
        }
    }

    async fn end(&self, changes: &Changes, sink: &mut ChunkSink) -> Result<()> {
        let last = [&b"\"last_seq\":"[..], &seq_json(Some(&changes.last_seq()))].concat();
        let pending = format!(",\"pending\":{}}}", changes.pending());
        match self.args.feed {
            Feed::EventSource => Ok(()),
            Feed::Continuous => sink.write(&[b"{", &last[..], pending.as_bytes(), b"\r\n"].concat()).await,
            Feed::Normal | Feed::LongPoll => {
                sink.write(&[b"\n],\n", &last[..], pending.as_bytes(), b"\n"].concat()).await
            }
        }
    }
}

fn seq_json(seq: Option<&str>) -> Vec<u8> {
    let Some(seq) = seq else { return b"null".to_vec() };
    let mut out = Vec::with_capacity(seq.len() + 2);
    write_string(seq, &mut out);
    out
}
