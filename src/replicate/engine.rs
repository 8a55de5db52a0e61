//! One running replication: it reads changes, copies what the target lacks (`copy`), and writes checkpoints.
//!
//! Several batches of changes are in progress at once; the position in the source advances only in their order, so a
//! checkpoint never covers a change that is not on the target. Memory is bounded by the number of batches.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::try_join;
use futures_util::stream::{self, Stream, TryStreamExt as _};
use tokio::sync::mpsc;

use super::checkpoint::{self, Ancestor, Counters, Session};
use super::copy::Pace;
use super::error::{ReplicateError, Result};
use super::peer::{ChangesAsk, Peer, Source, SourcePage, text_of};
use super::progress::Track;
use super::request::{Replication, ReplicationFilter};
use super::tuning::Tuning;
use crate::document::json::{Object, Value};
use crate::document::selector::erlang_text;
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
    /// What goes into the name of the checkpoints: nodes that share it share those.
    pub cluster_uuid: String,
    /// What others see of it.
    pub track: Arc<Track>,
    /// How much is fetched at once.
    pub pace: Pace,
}

/// Where a session is.
struct Course {
    session: Session,
    /// The name of the checkpoints.
    checkpoint_id: String,
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
    /// The position that the checkpoints hold; at first the one where the session began.
    recorded: Value,
    recorded_at: Instant,
    last_log: Option<Object>,
}

/// What the reader of changes does next.
enum Next {
    /// Goes on with this page, read from this sequence on.
    Page(Value, SourcePage),
    /// Reads a page from this sequence on, of at most so many changes that are left, where that is known.
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
        let source = self.source.peer.open(None).await.map_err(|error| self.without_filter(error))?;
        let target = self.target.open(self.asked.create_target.as_deref()).await?;
        let mut course = {
            let code = self.filter_code().await?;
            self.begin([source, target], code.as_deref()).await?
        };
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
        if course.any || self.is_due(&course) {
            self.checkpoint(&mut course).await?;
        }
        if !self.tuning.use_checkpoints {
            let mut out = checkpoint::answer(None, false);
            out.push("use_checkpoints", false);
            return Ok(out);
        }
        let known = !course.session.history.is_empty();
        Ok(checkpoint::answer(course.last_log.or(course.old_log.filter(|_| known)).as_ref(), !course.any))
    }

    /// Why the source cannot be used: one that is missing is told as the place of a filter function, where one is asked
    /// for.
    fn without_filter(&self, error: ReplicateError) -> ReplicateError {
        match (error, &self.asked.filter) {
            (ReplicateError::DatabaseMissing { url }, ReplicationFilter::Function { name, .. })
                if !name.starts_with('_') =>
            {
                let place = erlang_text(&url);
                ReplicateError::NoFilter(format!("Could not open source database `{url}`: {{db_not_found,{place}}}"))
            }
            (error, _) => error,
        }
    }

    /// The text of the filter that the source's design document has under the name asked for.
    async fn filter_code(&self) -> Result<Option<String>> {
        let ReplicationFilter::Function { name, .. } = &self.asked.filter else { return Ok(None) };
        // Those with a `_` in front are the source's own.
        let Some((design, name)) = name.split_once('/').filter(|_| !name.starts_with('_')) else { return Ok(None) };
        let source = self.source.peer.shown();
        let Some(body) = self.source.peer.document(&format!("_design/{design}")).await? else {
            let what = format!("Couldn't open document `_design/{design}` from source database `{source}`");
            return Err(ReplicateError::NoFilter(format!("{what}: missing")));
        };
        let code = body.get("filters").and_then(|filters| filters.as_object()?.get(name));
        let is_selector = || declared(&body).any(|(declared, _)| declared == name);
        if let Some(code) = code.filter(|code| code.as_str().is_some() || is_selector()) {
            return Ok(Some(text_of(code)));
        }
        let what = format!("Couldn't parse filter code from document {design} on `{source}`");
        let missing = erlang_text(&format!("missing json key: {name}"));
        Err(ReplicateError::NoFilter(format!("{what}  Error: {{not_found,{missing}}}")))
    }

    /// Reads the checkpoints and finds where to begin.
    async fn begin(&self, instances: [String; 2], code: Option<&str>) -> Result<Course> {
        let checkpoint_id = self.asked.checkpoint_id(&self.cluster_uuid, code);
        let mut logs = [None, None];
        if self.tuning.use_checkpoints {
            logs[0] = self.source.peer.local_get(&checkpoint_id).await?;
            logs[1] = self.target.local_get(&checkpoint_id).await?;
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
            with_summary: matches!(self.asked.filter, ReplicationFilter::DocIds(_)),
        };
        Ok(Course {
            session,
            checkpoint_id,
            old_log: logs[0].take(),
            revs,
            instances,
            position: start.clone(),
            any: false,
            recorded: start,
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
            time_limit: self.has_time_limits().then_some(self.tuning.checkpoint_interval),
        }
    }

    /// Whether it is written down how far a filter was applied that lets nothing pass.
    fn has_time_limits(&self) -> bool {
        self.tuning.use_checkpoints && self.asked.filter != ReplicationFilter::None
    }

    /// Whether there is something to write down: changes that are on the target, or that a filter left out.
    fn is_ahead(&self, course: &Course) -> bool {
        let counts = course.any || self.has_time_limits();
        counts && self.tuning.use_checkpoints && course.recorded != course.position
    }

    /// How long it is until what there is to write down is written down.
    fn due_in(&self, course: &Course) -> Duration {
        self.tuning.checkpoint_interval.saturating_sub(self.env.now().since(course.recorded_at))
    }

    fn is_due(&self, course: &Course) -> bool {
        self.is_ahead(course) && self.due_in(course).is_zero()
    }

    /// Waits for the next changes. What is not yet recorded is, once its time has come.
    async fn news(&self, course: &mut Course) -> Result<SourcePage> {
        loop {
            let ask = self.ask(course.position.clone(), true);
            let source = &self.source.peer;
            if !self.is_ahead(course) {
                return source.changes(&ask).await;
            }
            match self.env.timeout(self.due_in(course), source.changes(&ask)).await {
                Ok(page) => return page,
                Err(_) => self.checkpoint(course).await?,
            }
        }
    }

    /// Copies all changes that are there when it begins.
    async fn round(&self, course: &mut Course, first: Option<SourcePage>) -> Result<()> {
        let since = course.position.clone();
        let next = match first {
            Some(page) => Next::Page(since, page),
            None => Next::Read(since, None),
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
    async fn reached(&self, course: &mut Course, page: SourcePage) -> Result<()> {
        course.any |= !page.rows.is_empty();
        course.position = page.last_seq.clone();
        self.track.step(|progress| progress.through_seq = Some(page.last_seq));
        if self.is_due(course) {
            self.checkpoint(course).await?;
        }
        Ok(())
    }

    /// Pages in the order of the feed, each when its documents are on the target. Some are worked on at once.
    fn pages(&self, next: Next) -> Pin<Box<dyn Stream<Item = Result<SourcePage>> + Send + '_>> {
        let pages = stream::try_unfold(next, |next| self.read(next));
        Box::pin(pages.map_ok(|page| self.copied(page)).try_buffered(self.tuning.workers))
    }

    /// A page whose documents are on the target.
    fn copied(&self, page: SourcePage) -> BoxFuture<'_, Result<SourcePage>> {
        Box::pin(async move {
            self.copy_page(&page.rows).await?;
            Ok(page)
        })
    }

    /// One page, and what to read after it: what the source had when the round began, and no more than as much again,
    /// which may stand before it.
    fn read(&self, next: Next) -> BoxFuture<'_, Result<Option<(SourcePage, Next)>>> {
        Box::pin(self.read_page(next))
    }

    async fn read_page(&self, next: Next) -> Result<Option<(SourcePage, Next)>> {
        let (since, page, left) = match next {
            Next::End => return Ok(None),
            Next::Page(since, page) => (since, page, None),
            Next::Read(since, left) => {
                let page = self.source.peer.changes(&self.ask(since.clone(), false)).await?;
                (since, page, left)
            }
        };
        self.track.step(|progress| {
            progress.source_seq = Some(page.last_seq.clone());
            progress.pending = page.pending;
        });
        let rows = page.rows.len() as u64;
        let twice = || Some(page.pending?.saturating_add(page.read).saturating_mul(2));
        let left = left.or_else(twice).map(|left| left.saturating_sub(page.read));
        // Who tells what is left may give shorter pages than were asked for, of a filter also empty ones.
        let more = match (page.pending, left) {
            (Some(0), _) | (_, Some(0)) => false,
            (Some(_), _) => rows > 0 || (self.has_time_limits() && page.last_seq != since),
            (None, _) => rows >= self.tuning.batch_rows,
        };
        let next = if more { Next::Read(page.last_seq.clone(), left) } else { Next::End };
        Ok(Some((page, next)))
    }

    /// Writes down on both sides how far it came.
    async fn checkpoint(&self, course: &mut Course) -> Result<()> {
        course.recorded_at = self.env.now();
        if !self.tuning.use_checkpoints || course.recorded == course.position {
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
            *rev = Some(put_log(peer, &course.checkpoint_id, rev.as_deref(), &log).await?);
        }
        self.env.metrics().count(Counter::Checkpoints);
        course.recorded = course.position.clone();
        self.track.step(|progress| progress.checkpointed_seq = Some(course.position.clone()));
        course.last_log = Some(log);
        Ok(())
    }
}

/// Writes a checkpoint over the revision `rev`. One that is not there any more says that its database was made anew,
/// one of another session that another run is at work: this one ends, and the next finds out where it is.
async fn put_log(peer: &Peer, id: &str, rev: Option<&str>, log: &Object) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use super::super::remote::RemotePeer;
    use super::super::request::Endpoint;
    use super::*;
    use crate::config::Config;
    use crate::document::json;
    use crate::wire::client::Client;
    use crate::world::tokio_host;

    /// Each job took 35 KB: its future had room for all that it might ever ask a peer, several times over.
    #[test]
    fn a_replication_that_waits_takes_little_memory() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let body = json::parse(br#"{"source":"http://h/a","target":"http://h/b","continuous":true}"#).unwrap();
        let asked = Replication::parse(body.as_object().unwrap()).unwrap();
        let tuning = asked.wishes.settled(&Config::in_memory(&env, Vec::new()));
        let peer = |endpoint: &Endpoint| {
            let Endpoint::Remote(remote) = endpoint else { panic!("a URL") };
            let clients = [1, 2].map(|_| Client::new(&env, tuning.patience));
            Arc::new(Peer::Remote(RemotePeer::new(&env, clients, remote, true)))
        };
        let (source, target) = (peer(&asked.source), peer(&asked.target));
        let track = Arc::new(Track::new(&env));
        let run = Run {
            source: Source { peer: source, track: Arc::clone(&track) },
            target,
            cluster_uuid: String::new(),
            pace: Pace::default(),
            env,
            asked,
            tuning,
            track,
        };
        let (session, ask) = (size_of_val(&run.session()), run.ask(Value::Int(0), true));
        let waiting = size_of_val(&run.source.peer.changes(&ask));
        assert!(session < 4096 && waiting < 512, "{session} bytes of a session, {waiting} of its waiting");
    }
}
