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
use crate::http::{Context, Problem, Query, Reply, Request, Result};
use crate::limits;

/// `GET /_db_updates`
///
/// # Errors
/// 400 for parameters that cannot be read, 404 without the database `_global_changes`.
pub async fn db_updates(ctx: &Context, request: &Request) -> Result<Reply> {
    let args = Args::read(&request.query, request.header("last-event-id"))?;
    let db = ctx.coordinator.database(GLOBAL_CHANGES)?;
    let etag = feed::etag(&db).await?;
    if feed::is_current(request, args.feed, &etag) {
        return Ok(Reply::not_modified(&etag));
    }
    let query =
        ChangesQuery { since: args.since, limit: args.limit, descending: args.descending, ..ChangesQuery::default() };
    let changes = db.feeds().changes(query).await?;
    let waits = Waits::new(&ctx.config, args.heartbeat_ms, args.timeout_ms);
    let (env, feed, stopping) = (ctx.env.clone(), args.feed, ctx.stopping.subscribe());
    Ok(Delivery { env, db, feed, waits, time_limit: None, stopping, print: Events }.reply(changes, Vec::new(), &etag))
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
        let limit = number("limit")?;
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
        for query in ["limit=abc", "timeout=-1", "heartbeat=x", "limit=", "limit=x&feed=telepathy"] {
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
