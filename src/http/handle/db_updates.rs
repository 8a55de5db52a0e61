//! `_db_updates`: what happened to the databases, in the four forms of a feed.
//!
//! The rows are the documents of `_global_changes` in the order of its changes; without that database the answer is
//! 404. Parameters, rows and errors as CouchDB 3.5 was measured: numbers have one error text of their own, and the body
//! has no `pending`.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::changes_query::Feed;
use super::local::state_etag;
use crate::coordinator::global_changes::{GLOBAL_CHANGES, read_note};
use crate::coordinator::{ChangeRow, Changes, ChangesQuery, Since};
use crate::document::json::write_string;
use crate::http::{ChunkSink, Context, Problem, Query, Reply, Request, Result};
use crate::limits;
use crate::world::Env;

/// `GET /_db_updates`
///
/// # Errors
/// 400 for parameters that cannot be read, 404 without the database `_global_changes`.
pub async fn db_updates(ctx: &Context, request: &Request) -> Result<Reply> {
    let args = Args::read(&request.query, request.header("last-event-id"))?;
    let db = ctx.coordinator.database(GLOBAL_CHANGES)?;
    let etag = state_etag(&[db.instance().as_bytes(), db.update_seq().await?.to_string().as_bytes()]);
    if args.feed == Feed::Normal && request.has_current(&etag) {
        return Ok(Reply::not_modified(&etag));
    }
    let query = ChangesQuery {
        since: args.since.clone(),
        limit: args.limit,
        descending: args.descending,
        ..ChangesQuery::default()
    };
    let changes = db.changes(query).await?;
    let bound = ctx.config.text("chttpd", "changes_timeout", "").parse().unwrap_or(limits::CHANGES_TIMEOUT_MS);
    let feed = args.feed;
    let writer = Writer { env: ctx.env.clone(), interval: args.interval(bound), args, rows: 0 };
    let reply = Reply::generate(move |mut sink| async move { writer.run(changes, &mut sink).await });
    Ok(match feed {
        Feed::Normal => reply.etag(&etag),
        Feed::EventSource => reply.header(CONTENT_TYPE, "text/event-stream").header(CACHE_CONTROL, "no-cache"),
        Feed::LongPoll | Feed::Continuous => reply,
    })
}

/// The parameters.
#[derive(Debug, PartialEq)]
struct Args {
    feed: Feed,
    since: Since,
    limit: Option<u64>,
    descending: bool,
    timeout_ms: Option<u64>,
    heartbeat_ms: Option<u64>,
}

impl Args {
    fn read(query: &Query, last_event_id: Option<&str>) -> Result<Args> {
        let number = |name: &str| query.get(name).map(integer).transpose();
        let feed = feed(query.get("feed"));
        let heartbeat_ms = match query.get("heartbeat") {
            Some("true") => Some(limits::CHANGES_HEARTBEAT_MS),
            Some("false") => None,
            _ => number("heartbeat")?.filter(|ms| *ms > 0),
        };
        let limit = number("limit")?.map(|limit| limit.max(1));
        let timeout_ms = number("timeout")?;
        let feed = feed?;
        let named = query.get("since").or(query.get("last-event-id"));
        let since = if feed == Feed::EventSource { last_event_id.or(named) } else { named };
        Ok(Args {
            feed,
            since: since.map_or(Ok(Since::Beginning), Since::parse)?,
            limit,
            descending: query.flag("descending"),
            timeout_ms,
            heartbeat_ms,
        })
    }

    /// How long to wait before a sign of life, or without heartbeat before the end. `bound_ms` bounds both.
    fn interval(&self, bound_ms: u64) -> Duration {
        Duration::from_millis(self.heartbeat_ms.or(self.timeout_ms).unwrap_or(bound_ms).min(bound_ms))
    }
}

fn feed(name: Option<&str>) -> Result<Feed> {
    match name {
        None | Some("normal") => Ok(Feed::Normal),
        Some("longpoll") => Ok(Feed::LongPoll),
        Some("continuous") => Ok(Feed::Continuous),
        Some("eventsource") => Ok(Feed::EventSource),
        Some(_) => Err(Problem::bad_request("Supported `feed` types: normal, continuous, longpoll, eventsource")),
    }
}

fn integer(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Problem::bad_request("invalid_integer"))
}

/// The JSON of a row; `None` for a change that tells of no database.
fn row_json(row: &ChangeRow) -> Option<Vec<u8>> {
    let (kind, name) = read_note(row.id.as_str()).filter(|_| !row.deleted)?;
    let mut out = b"{\"db_name\":".to_vec();
    write_string(name, &mut out);
    out.extend_from_slice(b",\"type\":");
    write_string(kind.name(), &mut out);
    out.extend_from_slice(b",\"seq\":");
    write_string(row.seq.as_deref().unwrap_or_default(), &mut out);
    out.push(b'}');
    Some(out)
}

/// Prints a feed.
struct Writer {
    env: Env,
    args: Args,
    interval: Duration,
    rows: u64,
}

impl Writer {
    async fn run(mut self, mut changes: Changes, sink: &mut ChunkSink) -> Result<()> {
        let one_body = matches!(self.args.feed, Feed::Normal | Feed::LongPoll);
        if one_body {
            sink.write(b"{\"results\":[\n").await?;
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
        let mut last = Vec::new();
        write_string(&changes.last_seq(), &mut last);
        match self.args.feed {
            Feed::EventSource => {}
            Feed::Continuous => sink.write(&[b"{\"last_seq\":", &last[..], b"}\n"].concat()).await?,
            Feed::Normal | Feed::LongPoll => sink.write(&[b"\n],\n\"last_seq\":", &last[..], b"}\n"].concat()).await?,
        }
        sink.flush().await
    }

    /// Waits for news, sending signs of life; false when the time is over.
    async fn wait(&self, changes: &mut Changes, sink: &mut ChunkSink) -> Result<bool> {
        loop {
            if self.env.timeout(self.interval, changes.wait()).await.is_ok() {
                return Ok(true);
            }
            if self.args.heartbeat_ms.is_none() {
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
        let Some(json) = row_json(row) else { return Ok(()) };
        match self.args.feed {
            Feed::Normal | Feed::LongPoll => {
                let between: &[u8] = if self.rows > 0 { b",\n" } else { b"" };
                sink.write(&[between, &json[..]].concat()).await?;
            }
            Feed::Continuous => sink.write(&[&json[..], b"\n"].concat()).await?,
            Feed::EventSource => {
                let mut id = Vec::new();
                write_string(row.seq.as_deref().unwrap_or_default(), &mut id);
                sink.write(&[b"data: ", &json[..], b"\nid: ", &id[..], b"\n\n"].concat()).await?;
            }
        }
        self.rows += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::id::DocId;

    fn read(query: &str) -> std::result::Result<Args, String> {
        Args::read(&Query::parse(query), Some("now")).map_err(|problem| problem.reason.into_owned())
    }

    #[test]
    fn wrong_values_are_refused_as_recorded() {
        for query in ["limit=abc", "timeout=-1", "heartbeat=x", "limit=", "limit=x&feed=telepathy"] {
            assert_eq!(read(query), Err("invalid_integer".to_owned()), "{query}");
        }
        let feeds = "Supported `feed` types: normal, continuous, longpoll, eventsource";
        assert_eq!(read("feed=telepathy"), Err(feeds.to_owned()));
        assert_eq!(read("since=x"), Err("Malformed sequence supplied in 'since' parameter.".to_owned()));
    }

    #[test]
    fn waits_are_bounded_and_the_last_event_counts_for_events() {
        let args = read("heartbeat=100&timeout=5").unwrap();
        assert_eq!(args.interval(60_000), Duration::from_millis(100));
        assert_eq!(read("heartbeat=0&timeout=5").unwrap().interval(60_000), Duration::from_millis(5));
        assert_eq!(read("timeout=900000").unwrap().interval(60_000), Duration::from_millis(60_000));
        assert_eq!(read("").unwrap().since, Since::Beginning);
        assert_eq!(read("feed=eventsource&since=0").unwrap().since, Since::Now);
    }

    #[test]
    fn rows_tell_database_kind_and_sequence() {
        let row = |id: &str, deleted| ChangeRow {
            seq: Some("5-x".to_owned()),
            id: DocId::new(id),
            revs: Vec::new(),
            deleted,
            doc: None,
        };
        let shown = row_json(&row("updated:a/b", false)).unwrap();
        assert_eq!(shown, br#"{"db_name":"a/b","type":"updated","seq":"5-x"}"#);
        assert_eq!(row_json(&row("updated:a/b", true)), None);
        assert_eq!(row_json(&row("_design/x", false)), None);
    }
}
