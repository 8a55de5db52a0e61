//! Delivery of a feed of changes to a client, in its four forms: begin and end, waiting, heartbeats (CouchDB
//! documentation, 'Changes feed'). [`Print`] writes the rows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use tokio::sync::watch;

use crate::config::Config;
use crate::coordinator::{ChangeRow, Changes, Database, RowDoc};
use crate::document::json::write_string;
use crate::http::handle::document::shown::{Piece, write_pieces};
use crate::http::response::state_etag;
use crate::http::{ChunkSink, Reply, Result};
use crate::limits;
use crate::world::{Env, Instant};

/// How changes are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// One body with what there is.
    #[default]
    Normal,
    /// As normal, but waits for the first change.
    LongPoll,
    /// One line per change, without end.
    Continuous,
    /// Server-sent events, without end.
    EventSource,
}

impl Feed {
    fn is_one_body(self) -> bool {
        matches!(self, Feed::Normal | Feed::LongPoll)
    }
}

/// The ETag of a feed that ends at once; a feed that waits has none, because it has something to tell in any case.
///
/// # Errors
/// When the database cannot be read.
pub async fn etag(db: &Arc<Database>, feed: Feed) -> Result<Option<String>> {
    if feed != Feed::Normal {
        return Ok(None);
    }
    let seq = db.update_seq().await?.to_string();
    Ok(Some(state_etag(&[db.instance().as_bytes(), seq.as_bytes(), &db.read_state()])))
}

/// How long a feed waits for news, and what it does then.
#[derive(Debug, PartialEq)]
pub struct Waits {
    interval: Duration,
    heartbeat: bool,
}

impl Waits {
    /// `chttpd/changes_timeout` bounds both times, of milliseconds; with a heartbeat the feed does not time out.
    pub fn new(config: &Config, heartbeat_ms: Option<u64>, timeout_ms: Option<u64>) -> Waits {
        let bound = config.http_get("changes_timeout").and_then(|text| text.parse().ok());
        let bound = bound.unwrap_or(limits::CHANGES_TIMEOUT_MS);
        let ms = heartbeat_ms.or(timeout_ms).unwrap_or(bound).min(bound);
        // A sign of life at every moment would leave no moment for changes.
        let ms = if heartbeat_ms.is_some() { ms.max(1) } else { ms };
        Waits { interval: Duration::from_millis(ms), heartbeat: heartbeat_ms.is_some() }
    }
}

/// What differs between feeds.
pub trait Print: Send + Sync + 'static {
    /// What ends a line of the continuous form.
    fn line_end(&self) -> &'static str;

    /// What parts rows of one body behind their comma.
    const ROW_END: &'static str;

    /// A row as JSON; `None` leaves it out.
    ///
    /// # Errors
    /// When a stored document is damaged.
    fn row(&self, row: &ChangeRow) -> Result<Option<Vec<Piece>>>;

    /// Whether rows come with documents.
    fn shows_docs(&self) -> bool {
        false
    }

    /// Members that follow `last_seq` at the end, each with a comma before it. `pending`: changes that are left.
    fn tail(&self, pending: u64) -> String;
}

/// A feed to be sent.
pub struct Delivery<P> {
    /// Clock and timers.
    pub env: Env,
    /// The database whose changes they are.
    pub db: Arc<Database>,
    /// The form.
    pub feed: Feed,
    /// The times.
    pub waits: Waits,
    /// How long one body with what there is may be read for: it ends at the first page then, wherever that is.
    pub time_limit: Option<Duration>,
    /// Becomes true when the node stops: a feed that waits ends then, as it does when its time is over.
    pub stopping: watch::Receiver<bool>,
    /// The rows.
    pub print: P,
}

impl<P: Print> Delivery<P> {
    /// The answer; `first` is a page that was read ahead, `etag` that of [`etag()`].
    pub fn reply(self, changes: Changes, first: Vec<ChangeRow>, etag: Option<&str>) -> Reply {
        let feed = self.feed;
        let begun = self.env.now();
        let reply = Reply::generate(move |sink| {
            let writer = Writer { delivery: self, rows: 0, has_looked: false, begun, told: begun, sink };
            writer.run(changes, first)
        });
        match (feed, etag) {
            (Feed::EventSource, _) => as_events(reply),
            (_, Some(etag)) => reply.etag(etag),
            (_, None) => reply,
        }
    }
}

/// An answer of events that the server sends.
pub fn as_events(reply: Reply) -> Reply {
    reply.header(CONTENT_TYPE, "text/event-stream").header(CACHE_CONTROL, "no-cache")
}

struct Writer<P> {
    delivery: Delivery<P>,
    /// Rows sent.
    rows: u64,
    /// Whether it has looked for rows.
    has_looked: bool,
    begun: Instant,
    /// When the client heard something last.
    told: Instant,
    sink: ChunkSink,
}

impl<P: Print> Writer<P> {
    async fn run(mut self, mut changes: Changes, first: Vec<ChangeRow>) -> Result<()> {
        if self.delivery.feed.is_one_body() {
            self.sink.write(b"{\"results\":[\n").await?;
        }
        self.sink.page(weight(&first));
        self.rows(first).await?;
        loop {
            // A filter can leave out all rows of many pages.
            while !self.is_out_of_time()
                && !self.is_stopping()
                && let Some(page) = self.page(&mut changes).await?
            {
                self.rows(page).await?;
            }
            self.sink.page(0);
            let done = match self.delivery.feed {
                Feed::Normal => true,
                Feed::LongPoll => self.rows > 0,
                Feed::Continuous | Feed::EventSource => false,
            };
            if done || changes.is_over() || self.is_stopping() {
                break;
            }
            self.flush().await?;
            // A database that was deleted has nothing more to tell.
            if !self.wait(&mut changes).await? || changes.is_gone() {
                break;
            }
        }
        self.end(&changes).await?;
        self.sink.flush().await
    }

    /// The next page, once there is memory for it and it has its turn.
    async fn page(&mut self, changes: &mut Changes) -> Result<Option<Vec<ChangeRow>>> {
        let (held, shows_docs) = (self.sink.held(), self.delivery.print.shows_docs());
        self.with_signs(async move { held.room(shows_docs).await }).await??;
        let page = self.with_signs(changes.next()).await??;
        self.has_looked = true;
        self.sink.page(page.as_deref().map_or(0, weight));
        Ok(page)
    }

    /// Whether it was read for as long as was asked for.
    fn is_out_of_time(&self) -> bool {
        let Delivery { env, feed, time_limit, .. } = &self.delivery;
        *feed == Feed::Normal && time_limit.is_some_and(|time_limit| env.now().since(self.begun) >= time_limit)
    }

    /// Whether the node stops and the feed would go on for long: one body with what there is comes to its end. One that
    /// ends with the first rows looks for them before, because without rows it says that there are none.
    fn is_stopping(&self) -> bool {
        let may_end = match self.delivery.feed {
            Feed::Normal => false,
            Feed::LongPoll => self.has_looked,
            Feed::Continuous | Feed::EventSource => true,
        };
        may_end && *self.delivery.stopping.borrow()
    }

    /// Waits for news, sending signs of life; false when the time is over or the node stops.
    async fn wait(&mut self, changes: &mut Changes) -> Result<bool> {
        let mut stopping = self.delivery.stopping.clone();
        let news = async {
            let Delivery { env, waits, .. } = &self.delivery;
            if !waits.heartbeat {
                return Ok(env.timeout(waits.interval, changes.wait()).await.is_ok());
            }
            self.with_signs(changes.wait()).await.map(|()| true)
        };
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => Ok(false),
            news = news => news,
        }
    }

    /// What `coming` comes to. Where a heartbeat was asked for the client hears something at each interval meanwhile.
    async fn with_signs<T>(&mut self, coming: impl Future<Output = T>) -> Result<T> {
        if !self.delivery.waits.heartbeat {
            return Ok(coming.await);
        }
        let mut coming = pin!(coming);
        loop {
            let Delivery { env, waits, .. } = &self.delivery;
            // What comes at once, again and again, uses up the interval, too.
            let left = waits.interval.saturating_sub(env.now().since(self.told));
            if !left.is_zero()
                && let Ok(come) = env.timeout(left, coming.as_mut()).await
            {
                return Ok(come);
            }
            self.sign_of_life().await?;
        }
    }

    async fn sign_of_life(&mut self) -> Result<()> {
        let sign: &[u8] = match self.delivery.feed {
            Feed::EventSource => b"event: heartbeat\ndata: \n\n",
            // White space in one body, an empty line between lines.
            Feed::Normal | Feed::LongPoll | Feed::Continuous => b"\n",
        };
        self.sink.write(sign).await?;
        self.flush().await
    }

    async fn flush(&mut self) -> Result<()> {
        self.sink.flush().await?;
        self.told = self.delivery.env.now();
        Ok(())
    }

    async fn rows(&mut self, page: Vec<ChangeRow>) -> Result<()> {
        let Delivery { print, db, feed, .. } = &self.delivery;
        for row in page {
            let Some(pieces) = print.row(&row)? else { continue };
            match feed {
                Feed::Normal | Feed::LongPoll if self.rows > 0 => {
                    self.sink.write(b",").await?;
                    self.sink.write(P::ROW_END.as_bytes()).await?;
                }
                Feed::EventSource => self.sink.write(b"data: ").await?,
                _ => {}
            }
            write_pieces(db, &row.id, pieces, &mut self.sink).await?;
            match feed {
                Feed::Normal | Feed::LongPoll => {}
                Feed::Continuous => self.sink.write(print.line_end().as_bytes()).await?,
                Feed::EventSource => {
                    let id = seq_json(row.seq.as_deref());
                    self.sink.write(&[b"\nid: ", &id[..], b"\n\n"].concat()).await?;
                }
            }
            self.rows += 1;
        }
        Ok(())
    }

    async fn end(&mut self, changes: &Changes) -> Result<()> {
        let tail = self.delivery.print.tail(changes.pending().await);
        let seq = seq_json(Some(&changes.last_seq()));
        let last = [b"\"last_seq\":", &seq[..], tail.as_bytes(), b"}"].concat();
        match self.delivery.feed {
            Feed::EventSource => Ok(()),
            Feed::Continuous => {
                let end = self.delivery.print.line_end().as_bytes();
                self.sink.write(&[b"{", &last[..], end].concat()).await
            }
            Feed::Normal | Feed::LongPoll => self.sink.write(&[b"\n],\n", &last[..], b"\n"].concat()).await,
        }
    }
}

/// Bytes of memory that rows take, about.
fn weight(rows: &[ChangeRow]) -> usize {
    rows.iter().map(|row| limits::HTTP_STREAM_ROW_BYTES + row.doc.as_deref().map_or(0, RowDoc::weight)).sum()
}

/// A row's sequence as JSON: null where `seq_interval` leaves it out.
pub fn seq_json(seq: Option<&str>) -> Vec<u8> {
    let Some(seq) = seq else { return b"null".to_vec() };
    let mut out = Vec::with_capacity(seq.len() + 2);
    write_string(seq, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use crate::world::tokio_host;

    #[test]
    fn waits_are_bounded_and_a_heartbeat_counts_before_a_timeout() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let waits = |setting: &str, heartbeat_ms, timeout_ms| {
            let settings = vec![Setting::parse(setting).unwrap()];
            Waits::new(&Config::in_memory(&env, settings), heartbeat_ms, timeout_ms)
        };
        let of = |ms, heartbeat| Waits { interval: Duration::from_millis(ms), heartbeat };
        assert_eq!(waits("a/b=c", Some(100), Some(5)), of(100, true));
        assert_eq!(waits("a/b=c", None, Some(5)), of(5, false));
        assert_eq!(waits("a/b=c", None, None), of(60_000, false));
        assert_eq!(waits("a/b=c", None, Some(900_000)), of(60_000, false));
        assert_eq!(waits("chttpd/changes_timeout=200", Some(900_000), None), of(200, true));
        assert_eq!(waits("chttpd/changes_timeout=infinity", None, None), of(60_000, false));
    }
}
