//! `_db_updates`: events of the databases, in the four forms of a feed.
//!
//! The rows are the documents of `_global_changes` in the order of its changes; without that database the answer is
//! 404. Parameters, rows and errors are as CouchDB 3.5 was measured: numbers have one error text of their own, and the
//! body has no `pending`.

use super::feed::{self, Delivery, Feed, Print, Waits, seq_json};
use crate::coordinator::node::global_changes::{GLOBAL_CHANGES, read_note};
use crate::coordinator::{ChangeRow, ChangesQuery, FeedOperations, Since};
use crate::document::json::write_string;
use crate::http::handle::document::shown::Piece;
use crate::http::{Context, Problem, Query, Reply, Request, Result, query};
use crate::limits;

/// `GET /_db_updates`
///
/// # Errors
/// 400 for parameters that cannot be read, 404 without the database `_global_changes`.
pub async fn db_updates(ctx: &Context, request: &Request) -> Result<Reply> {
    let args = Args::read(&request.query, request.header("last-event-id"))?;
    let db = ctx.coordinator.database(GLOBAL_CHANGES)?;
    let etag = feed::etag(&db, args.feed).await?;
    if let Some(etag) = etag.as_deref().filter(|etag| request.has_current(etag)) {
        return Ok(Reply::not_modified(etag));
    }
    let query =
        ChangesQuery { since: args.since, limit: args.limit, descending: args.descending, ..ChangesQuery::default() };
    let changes = db.feeds().changes(query).await?;
    let waits = Waits::new(&ctx.config, args.heartbeat_ms, args.timeout_ms);
    let (env, feed, stopping) = (ctx.env.clone(), args.feed, ctx.stopping.subscribe());
    let delivery = Delivery { env, db, feed, waits, time_limit: None, stopping, print: Events };
    Ok(delivery.reply(changes, Vec::new(), etag.as_deref()))
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
        let mut args = Args {
            feed: Feed::Normal,
            since: Since::Beginning,
            limit: None,
            descending: false,
            timeout_ms: None,
            heartbeat_ms: None,
        };
        // As in CouchDB every value is read; of several the first counts, of several limits the least.
        for (name, value) in query.iter() {
            match (name, value) {
                ("limit", number) => {
                    let limit = integer(number)?;
                    args.limit = Some(args.limit.map_or(limit, |least| least.min(limit)));
                }
                ("timeout", number) => _ = args.timeout_ms.get_or_insert(integer(number)?),
                ("heartbeat", "true") => _ = args.heartbeat_ms.get_or_insert(limits::CHANGES_HEARTBEAT_MS),
                ("heartbeat", "false") => {}
                ("heartbeat", number) => _ = args.heartbeat_ms.get_or_insert(integer(number)?),
                ("descending", "true") => args.descending = true,
                _ => {}
            }
        }
        args.heartbeat_ms = args.heartbeat_ms.filter(|ms| *ms > 0);
        args.feed = feed(query.get("feed"))?;
        let last_event_id = last_event_id.filter(|_| args.feed == Feed::EventSource);
        let since = last_event_id.or(query.get("since")).or(query.get("last-event-id"));
        args.since = since.map_or(Ok(Since::Beginning), Since::parse)?;
        Ok(args)
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

/// Numbers beyond 64 bits are the largest.
fn integer(text: &str) -> Result<u64> {
    query::positive(text).map_err(|_| Problem::bad_request("invalid_integer"))
}

/// The JSON of a row; `None` for a change that tells of no database.
fn row_json(row: &ChangeRow) -> Option<Vec<u8>> {
    let (kind, name) = read_note(row.id.as_str()).filter(|_| !row.deleted)?;
    let mut out = b"{\"db_name\":".to_vec();
    write_string(name, &mut out);
    out.extend_from_slice(b",\"type\":");
    write_string(kind.name(), &mut out);
    out.extend_from_slice(b",\"seq\":");
    out.extend(seq_json(row.seq.as_deref()));
    out.push(b'}');
    Some(out)
}

/// What the rows look like.
struct Events;

impl Print for Events {
    const ROW_END: &'static str = "\n";

    fn line_end(&self) -> &'static str {
        "\n"
    }

    fn row(&self, row: &ChangeRow) -> Result<Option<Vec<Piece>>> {
        Ok(row_json(row).map(|json| vec![Piece::Text(json)]))
    }

    fn tail(&self, _: u64) -> String {
        String::new()
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
        let all = ["limit=abc", "timeout=-1", "heartbeat=x", "limit=", "limit=x&feed=telepathy", "limit=1&limit=1.5"];
        for query in all {
            assert_eq!(read(query), Err("invalid_integer".to_owned()), "{query}");
        }
        let feeds = "Supported `feed` types: normal, continuous, longpoll, eventsource";
        assert_eq!(read("feed=telepathy"), Err(feeds.to_owned()));
        assert_eq!(read("since=x"), Err("Malformed sequence supplied in 'since' parameter.".to_owned()));
    }

    #[test]
    fn a_heartbeat_of_zero_is_none_and_the_last_event_counts_for_events() {
        assert_eq!(read("heartbeat=100").unwrap().heartbeat_ms, Some(100));
        assert_eq!(read("heartbeat=0").unwrap().heartbeat_ms, None);
        assert_eq!(read("limit=0").unwrap().limit, Some(0), "no row, as in CouchDB");
        assert_eq!(read("limit=99999999999999999999").unwrap().limit, Some(i64::MAX as u64));
        assert_eq!(read("limit=3&limit=2&limit=5&timeout=7&timeout=8").unwrap().timeout_ms, Some(7));
        assert_eq!(read("limit=3&limit=2&limit=5").unwrap().limit, Some(2));
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
