//! One replication at work: changes are read, what the target lacks is copied (`copy`), checkpoints are written.
//!
//! Some batches of changes are worked on at once; how far the source was read counts only in their order, so a
//! checkpoint never covers a change that is not on the target. Memory is bounded by the batches at work.

use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::try_join;
use futures_util::stream::{self, Stream, TryStreamExt as _};
use tokio::sync::mpsc;

use super::checkpoint::{self, Ancestor, Counters, Session};
use super::copy::Pace;
use super::error::{ReplicateError, Result};
use super::peer::{ChangesAsk, ChangesPage, Peer, Source};
use super::progress::Track;
use super::request::{Filter, Replication};
use super::tuning::Tuning;
use crate::document::json::{Object, Value};
use crate::index::declared;
use crate::observe::metrics::Counter;
use crate::wire::hex;
use crate::world::buggify::{Mutation, mutated, sometimes};
use crate::world::{BoxFuture, Env, Instant};

/// A replication between two peers.
pub struct Run {
    /// The world.
    pub env: Env,
    /// Where from.
    pub source: Source,
    /// Where to.
    pub target: Arc<Peer>,
    /// What was asked for.
    pub asked: Replication,
    /// How it works.
    pub tuning: Tuning,
    /// The name of the checkpoints.
    pub checkpoint_id: String,
    /// What others see of it.
    pub track: Arc<Track>,
    /// How much is fetched at once.
    pub pace: Pace,
}

/// Where a session is.
struct Course {
    session: Session,
    /// The source's checkpoint before the session.
    old_log: Option<Object>,
    /// The revisions of the checkpoints, source first.
    revs: [Option<String>; 2],
    /// The databases that it began with, source first.
    instances: [String; 2],
    /// How far the source was read and the target has everything.
    position: Value,
    /// Whether the session saw a change.
    any: bool,
    /// The position that the checkpoints hold.
    recorded: Option<Value>,
    recorded_at: Instant,
    last_log: Option<Object>,
}

/// What the reader of changes does next.
enum Next {
    Page(ChangesPage, Option<u64>),
    Read(Value, Option<u64>),
    End,
}

impl Run {
    /// Copies everything; a continuous one goes on with what comes. Answers what `_replicate` shows.
    ///
    /// # Errors
    /// When a peer cannot be used. What was copied stays, and the next run goes on from the last checkpoint.
    pub fn run(&self) -> BoxFuture<'_, Result<Object>> {
        Box::pin(async {
            match self.session().await {
                // What was purged meanwhile does not stand in the feed any more when it is read again.
                Err(ReplicateError::Gone { .. }) => self.session().await,
                result => result,
            }
        })
    }

    async fn session(&self) -> Result<Object> {
        self.track.wait(false);
        let source = self.source.peer.open(None).await?;
        let target = self.target.open(self.asked.create_target.as_deref()).await?;
        self.check_filter().await?;
        let mut course = self.begin([source, target]).await?;
        self.round(&mut course, None).await?;
        if self.asked.continuous {
            // Ends by an error, or when its job is cancelled.
            loop {
                self.track.wait(true);
                let page = self.news(&mut course).await?;
                self.track.wait(false);
                self.round(&mut course, Some(page)).await?;
            }
        }
        if course.any {
            self.checkpoint(&mut course).await?;
        }
        if !self.tuning.use_checkpoints {
            let mut out = checkpoint::answer(None, false);
            out.push("use_checkpoints", false);
            return Ok(out);
        }
        let unchanged = course.last_log.is_none();
        let known = !course.session.history.is_empty();
        Ok(checkpoint::answer(course.last_log.or(course.old_log.filter(|_| known)).as_ref(), unchanged))
    }

    async fn check_filter(&self) -> Result<()> {
        let Filter::Function { name, .. } = &self.asked.filter else { return Ok(()) };
        // Those with a `_` in front are the source's own.
        let Some((design, name)) = name.split_once('/').filter(|_| !name.starts_with('_')) else { return Ok(()) };
        let source = self.source.peer.shown();
        let Some(body) = self.source.peer.document(&format!("_design/{design}")).await? else {
            let what = format!("Couldn't open document `_design/{design}` from source database `{source}`");
            return Err(ReplicateError::NoFilter(format!("{what}: missing")));
        };
        let function = body.get("filters").and_then(|filters| filters.as_object()?.get(name)?.as_str());
        if function.is_some() || declared(&body).any(|(declared, _)| declared == name) {
            return Ok(());
        }
        let what = format!("Couldn't parse filter code from document {design} on `{source}`");
        Err(ReplicateError::NoFilter(format!("{what}  Error: missing json key: {name}")))
    }

    /// Reads the checkpoints and finds where to begin.
    async fn begin(&self, instances: [String; 2]) -> Result<Course> {
        let mut logs = [None, None];
        if self.tuning.use_checkpoints {
            logs[0] = self.source.peer.local_get(&self.checkpoint_id).await?;
            logs[1] = self.target.local_get(&self.checkpoint_id).await?;
        }
        let Ancestor { seq, history } = checkpoint::common_ancestor(logs[0].as_ref(), logs[1].as_ref());
        if !history.is_empty() {
            sometimes("replicate: a session went on from a checkpoint");
        }
        let start = self.asked.since.clone().unwrap_or(seq);
        let rev = |log: &Option<Object>| log.as_ref()?.get("_rev")?.as_str().map(str::to_owned);
        let revs = [rev(&logs[0]), rev(&logs[1])];
        let before = history.first().map(Counters::of_entry).unwrap_or_default();
        self.track.step(|progress| {
            // The counters go on from those of earlier sessions, also of those in this job that wrote no checkpoint.
            progress.counters = progress.counters.most(before);
            progress.checkpointed_seq = Some(start.clone());
            progress.through_seq = Some(start.clone());
        });
        let session = Session {
            id: hex::encode(&self.env.random_bytes::<16>()),
            start_time: self.now(),
            start_seq: start.clone(),
            history,
            with_summary: matches!(self.asked.filter, Filter::DocIds(_)),
        };
        Ok(Course {
            session,
            old_log: logs[0].take(),
            revs,
            instances,
            position: start,
            any: false,
            recorded: None,
            recorded_at: self.env.now(),
            last_log: None,
        })
    }

    /// The wall clock as an HTTP date.
    fn now(&self) -> String {
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + self.env.wall())
    }

    fn ask(&self, since: Value, wait: bool) -> ChangesAsk {
        ChangesAsk {
            since,
            limit: self.tuning.batch_rows,
            filter: self.asked.filter.clone(),
            winners: self.asked.winning_revs_only,
            wait,
        }
    }

    /// Waits for the next changes. What is not yet recorded is, once its time has come.
    async fn news(&self, course: &mut Course) -> Result<ChangesPage> {
        loop {
            let ask = self.ask(course.position.clone(), true);
            let source = &self.source.peer;
            if !course.any || course.recorded.as_ref() == Some(&course.position) || !self.tuning.use_checkpoints {
                return source.changes(&ask).await;
            }
            let left = self.tuning.checkpoint_interval.saturating_sub(self.env.now().since(course.recorded_at));
            match self.env.timeout(left, source.changes(&ask)).await {
                Ok(page) => return page,
                Err(_) => self.checkpoint(course).await?,
            }
        }
    }

    /// Copies all changes that are there when it begins.
    async fn round(&self, course: &mut Course, first: Option<ChangesPage>) -> Result<()> {
        let next = match first {
            Some(page) => Next::Page(page, None),
            None => Next::Read(course.position.clone(), None),
        };
        // While a checkpoint is written the pages behind it go on, some of them.
        let (done, mut taken) = mpsc::channel(self.tuning.workers);
        let copy = async {
            let mut copied = self.pages(next);
            while let Some(page) = copied.try_next().await? {
                if done.send(page).await.is_err() {
                    break;
                }
            }
            drop(done);
            Ok(())
        };
        let record = async {
            while let Some(page) = taken.recv().await {
                self.reached(course, page).await?;
            }
            Ok(())
        };
        try_join(copy, record).await.map(|((), ())| ())
    }

    /// The target has everything up to the end of a page. Writes a checkpoint when it is time.
    async fn reached(&self, course: &mut Course, page: ChangesPage) -> Result<()> {
        course.any |= !page.rows.is_empty();
        course.position = page.last_seq.clone();
        self.track.step(|progress| progress.through_seq = Some(page.last_seq));
        if course.any && self.env.now().since(course.recorded_at) >= self.tuning.checkpoint_interval {
            self.checkpoint(course).await?;
        }
        Ok(())
    }

    /// Pages in the order of the feed, each when its documents are on the target. Some are worked on at once.
    fn pages(&self, next: Next) -> Pin<Box<dyn Stream<Item = Result<ChangesPage>> + Send + '_>> {
        let pages = stream::try_unfold(next, |next| self.read(next));
        Box::pin(pages.map_ok(|page| self.copied(page)).try_buffered(self.tuning.workers))
    }

    /// A page whose documents are on the target.
    fn copied(&self, page: ChangesPage) -> BoxFuture<'_, Result<ChangesPage>> {
        Box::pin(async move {
            self.copy_page(&page.rows).await?;
            Ok(page)
        })
    }

    /// One page, and what to read after it: no more than the source had when the round began.
    fn read(&self, next: Next) -> BoxFuture<'_, Result<Option<(ChangesPage, Next)>>> {
        Box::pin(self.read_page(next))
    }

    async fn read_page(&self, next: Next) -> Result<Option<(ChangesPage, Next)>> {
        let (page, left) = match next {
            Next::End => return Ok(None),
            Next::Page(page, left) => (page, left),
            Next::Read(since, left) => (self.source.peer.changes(&self.ask(since, false)).await?, left),
        };
        self.track.step(|progress| {
            progress.source_seq = Some(page.last_seq.clone());
            progress.pending = page.pending;
        });
        let rows = page.rows.len() as u64;
        let left = left.or_else(|| Some(page.pending?.saturating_add(rows))).map(|left| left.saturating_sub(rows));
        // Who tells what is left may give shorter pages than were asked for.
        let more = match (page.pending, left) {
            (Some(0), _) | (_, Some(0)) => false,
            (Some(_), _) => rows > 0,
            (None, _) => rows >= self.tuning.batch_rows,
        };
        let next = if more { Next::Read(page.last_seq.clone(), left) } else { Next::End };
        Ok(Some((page, next)))
    }

    /// Writes down on both sides how far it came.
    async fn checkpoint(&self, course: &mut Course) -> Result<()> {
        course.recorded_at = self.env.now();
        if !self.tuning.use_checkpoints || course.recorded.as_ref() == Some(&course.position) {
            return Ok(());
        }
        if mutated(Mutation::CheckpointEarly) {
            course.position = self.track.read().source_seq.unwrap_or(course.position.clone());
        }
        self.target.ensure_full_commit().await?;
        let peers = [&self.source.peer, &self.target];
        for (peer, began) in peers.into_iter().zip(&course.instances) {
            if peer.open(None).await? != *began {
                return Err(ReplicateError::Recreated { url: peer.shown().to_owned() });
            }
        }
        let log = course.session.log(&course.position, self.track.read().counters, &self.now());
        for (peer, rev) in peers.into_iter().zip(&mut course.revs) {
            *rev = Some(self.put_log(peer, rev.as_deref(), &log).await?);
        }
        self.env.metrics().count(Counter::Checkpoints);
        course.recorded = Some(course.position.clone());
        self.track.step(|progress| progress.checkpointed_seq = Some(course.position.clone()));
        course.last_log = Some(log);
        Ok(())
    }

    /// Writes a checkpoint over the revision `rev`. One that is not there any more says that its database was made
    /// anew, one of another session that another run is at work: this one ends, and the next finds out where it is.
    async fn put_log(&self, peer: &Peer, rev: Option<&str>, log: &Object) -> Result<String> {
        let id = &self.checkpoint_id;
        let conflict = match peer.local_put(id, rev, log).await {
            Err(ReplicateError::Conflict) => ReplicateError::Conflict,
            result => return result,
        };
        sometimes("replicate: a checkpoint was in conflict");
        let current = peer.local_get(id).await?;
        let Some(current) = current else { return Err(ReplicateError::Recreated { url: peer.shown().to_owned() }) };
        // The answer to a write of this session was lost.
        let ours = current.get("session_id") == log.get("session_id");
        match current.get("_rev").and_then(Value::as_str).filter(|_| ours) {
            Some(rev) => peer.local_put(id, Some(rev), log).await,
            None => Err(conflict),
        }
    }
}
