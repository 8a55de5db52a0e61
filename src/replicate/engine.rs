//! One replication at work: changes, what the target lacks of them, the documents, the checkpoint.
//!
//! Some batches of changes are worked on at once; how far the source was read counts only in their order, so a
//! checkpoint never covers a change that is not on the target. Memory is bounded by the batches at work.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, Stream, TryStreamExt as _};

use super::checkpoint::{self, Ancestor, Counters, Session};
use super::error::{ReplicateError, Result};
use super::peer::{ChangedDoc, ChangesAsk, ChangesPage, Doc, Peer, Refusal, Sent, Want};
use super::request::{Filter, Replication};
use crate::document::json::{Object, Value};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::wire::hex;
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};
use crate::world::{BoxFuture, Env, Instant};

/// How far a replication is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What was done since it started.
    pub counters: Counters,
    /// How far the source was read.
    pub source_seq: Option<Value>,
    /// Up to where the target has everything.
    pub through_seq: Option<Value>,
    /// Up to where the checkpoints say so.
    pub checkpointed_seq: Option<Value>,
    /// Changes that the source said to be left.
    pub pending: Option<u64>,
    /// When that changed last, since the Unix epoch.
    pub updated: Duration,
}

/// A replication between two peers.
pub struct Run {
    /// The world.
    pub env: Env,
    /// Where from.
    pub source: Arc<Peer>,
    /// Where to.
    pub target: Arc<Peer>,
    /// What was asked for.
    pub asked: Replication,
    /// The name of the checkpoints.
    pub checkpoint_id: String,
    /// What others see of it.
    pub progress: Arc<Mutex<Progress>>,
}

/// Where a session is.
struct Course {
    session: Session,
    /// The source's checkpoint before the session.
    old_log: Option<Object>,
    /// The revisions of the checkpoints, source first.
    revs: [Option<String>; 2],
    /// How far the source was read and the target has everything.
    position: Value,
    /// Whether the session saw a change.
    any: bool,
    /// What it did; the progress counts all sessions of a job.
    before: Counters,
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
        Box::pin(self.session())
    }

    async fn session(&self) -> Result<Object> {
        self.source.open(None).await?;
        self.target.open(self.asked.create_target.as_deref()).await?;
        self.check_filter().await?;
        let mut course = self.begin().await?;
        self.round(&mut course, None).await?;
        if self.asked.continuous {
            // Ends by an error, or when its job is cancelled.
            loop {
                let page = self.news(&mut course).await?;
                self.round(&mut course, Some(page)).await?;
            }
        }
        if course.any {
            self.checkpoint(&mut course).await?;
        }
        if !self.asked.use_checkpoints {
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
        let design = format!("_design/{}", name.split('/').next().unwrap_or_default());
        if self.source.has_document(&design).await? {
            return Ok(());
        }
        let reason =
            format!("Couldn't open document `{design}` from source database `{}`: missing", self.source.shown());
        Err(ReplicateError::NotFound(reason))
    }

    /// Reads the checkpoints and finds where to begin.
    async fn begin(&self) -> Result<Course> {
        let mut logs = [None, None];
        if self.asked.use_checkpoints {
            logs[0] = self.source.local_get(&self.checkpoint_id).await?;
            logs[1] = self.target.local_get(&self.checkpoint_id).await?;
        }
        let Ancestor { seq, history } = checkpoint::common_ancestor(logs[0].as_ref(), logs[1].as_ref());
        if !history.is_empty() {
            sometimes("replicate: a session went on from a checkpoint");
        }
        let start = self.asked.since.clone().unwrap_or(seq);
        let rev = |log: &Option<Object>| log.as_ref()?.get("_rev")?.as_str().map(str::to_owned);
        let revs = [rev(&logs[0]), rev(&logs[1])];
        let session = Session {
            id: hex::encode(&self.env.random_bytes::<16>()),
            start_time: self.now(),
            start_seq: start.clone(),
            history,
            with_summary: matches!(self.asked.filter, Filter::DocIds(_)),
        };
        let mut progress = self.progress();
        progress.checkpointed_seq = Some(start.clone());
        progress.through_seq = Some(start.clone());
        Ok(Course {
            session,
            old_log: logs[0].take(),
            revs,
            position: start,
            any: false,
            before: progress.counters,
            recorded: None,
            recorded_at: self.env.now(),
            last_log: None,
        })
    }

    /// The wall clock as an HTTP date.
    fn now(&self) -> String {
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + self.env.wall())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, add: impl FnOnce(&mut Counters)) {
        let mut progress = self.progress();
        add(&mut progress.counters);
        progress.updated = self.env.wall();
    }

    fn ask(&self, since: Value, wait: bool) -> ChangesAsk {
        ChangesAsk {
            since,
            limit: self.asked.batch_rows,
            filter: self.asked.filter.clone(),
            winners: self.asked.winning_revs_only,
            wait,
        }
    }

    /// Waits for the next changes. What is not yet recorded is, once its time has come.
    async fn news(&self, course: &mut Course) -> Result<ChangesPage> {
        let interval = Duration::from_millis(self.asked.checkpoint_interval_ms);
        loop {
            let ask = self.ask(course.position.clone(), true);
            if !course.any || course.recorded.as_ref() == Some(&course.position) || !self.asked.use_checkpoints {
                return self.source.changes(&ask).await;
            }
            let left = interval.saturating_sub(self.env.now().since(course.recorded_at));
            match self.env.timeout(left, self.source.changes(&ask)).await {
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
        let mut copied = self.pages(next);
        let interval = Duration::from_millis(self.asked.checkpoint_interval_ms);
        while let Some(page) = copied.try_next().await? {
            course.any |= !page.rows.is_empty();
            course.position = page.last_seq.clone();
            self.progress().through_seq = Some(page.last_seq);
            if course.any && self.env.now().since(course.recorded_at) >= interval {
                self.checkpoint(course).await?;
            }
        }
        Ok(())
    }

    /// Pages in the order of the feed, each when its documents are on the target. Some are worked on at once.
    fn pages(&self, next: Next) -> Pin<Box<dyn Stream<Item = Result<ChangesPage>> + Send + '_>> {
        let pages = stream::try_unfold(next, |next| self.read(next));
        Box::pin(pages.map_ok(|page| self.copied(page)).try_buffered(limits::REPLICATION_PIPELINE))
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
            Next::Read(since, left) => (self.source.changes(&self.ask(since, false)).await?, left),
        };
        {
            let mut progress = self.progress();
            progress.source_seq = Some(page.last_seq.clone());
            progress.pending = page.pending;
        }
        let rows = page.rows.len() as u64;
        let left = left.or_else(|| Some(page.pending? + rows)).map(|left| left.saturating_sub(rows));
        let more = rows >= self.asked.batch_rows && left != Some(0);
        let next = if more { Next::Read(page.last_seq.clone(), left) } else { Next::End };
        Ok(Some((page, next)))
    }

    /// Brings everything that a page names to the target.
    async fn copy_page(&self, rows: &[ChangedDoc]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let asked = merged(rows);
        let checked: usize = asked.iter().map(|doc| doc.revs.len()).sum();
        let mut lacks = self.target.revs_diff(&asked).await?;
        let mut wants = Vec::new();
        for doc in asked {
            let Some(lack) = lacks.remove(&doc.id) else { continue };
            let ancestors: Arc<[String]> = lack.ancestors.into();
            let want = |rev| Want { id: doc.id.clone(), rev, ancestors: Arc::clone(&ancestors) };
            if mutated(Mutation::DiffByDocument) && !ancestors.is_empty() {
                continue;
            }
            let most = if mutated(Mutation::ReplicateOneLeaf) { 1 } else { usize::MAX };
            wants.extend(lack.missing.into_iter().take(most).map(want));
        }
        self.count(|counters| {
            counters.missing_checked += checked as u64;
            counters.missing_found += wants.len() as u64;
        });
        let together = fewer("replicate: one revision at a time", limits::REPLICATION_FETCH_DOCS);
        for wants in wants.chunks(together) {
            self.copy(wants).await?;
        }
        Ok(())
    }

    /// Fetches and writes some revisions; in halves where they are too large together.
    fn copy<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let fetched = match self.source.fetch(wants).await {
                Err(ReplicateError::TooLarge) if wants.len() > 1 => {
                    let (left, right) = wants.split_at(wants.len() / 2);
                    self.copy(left).await?;
                    return self.copy(right).await;
                }
                fetched => fetched?,
            };
            self.count(|counters| {
                counters.docs_read += fetched.docs.len() as u64;
                if fetched.in_bulk {
                    counters.bulk_get_attempts += wants.len() as u64;
                    counters.bulk_get_docs += fetched.docs.len() as u64;
                }
            });
            let (plain, attached): (Vec<Doc>, Vec<Doc>) =
                fetched.docs.into_iter().partition(|doc| doc.attachments().next().is_none());
            if !plain.is_empty() {
                let refused = self.target.write(&plain).await?;
                self.written(plain.len(), &refused);
            }
            for doc in attached {
                let ancestors = wants.iter().find(|want| want.id == doc.id).map(|want| Arc::clone(&want.ancestors));
                let known = doc.known_generation(&ancestors.unwrap_or_default());
                let refused = self.write_attached(&doc, known).await?;
                self.written(1, &Vec::from_iter(refused));
            }
            Ok(())
        })
    }

    /// Sends the attachments that are newer than what the target has; all, should it lack one of the others.
    async fn write_attached(&self, doc: &Doc, known: u64) -> Result<Option<Refusal>> {
        let sent = Sent::of(doc, known);
        let result = match sent.as_slice() {
            [] => self.target.write(std::slice::from_ref(doc)).await.map(|refused| refused.into_iter().next()),
            sent => self.target.write_with(doc, sent, &self.source).await,
        };
        match result {
            Err(ReplicateError::MissingStub) if known > 0 => {
                let all = Sent::of(doc, 0);
                self.target.write_with(doc, &all, &self.source).await
            }
            result => result,
        }
    }

    fn written(&self, docs: usize, refused: &[Refusal]) {
        for Refusal { id, error, reason } in refused {
            tracing::warn!(id, error, reason, target = self.target.shown(), "a replicated document was refused");
        }
        self.count(|counters| {
            counters.docs_written += docs.saturating_sub(refused.len()) as u64;
            counters.doc_write_failures += refused.len() as u64;
        });
    }

    /// Writes down on both sides how far it came.
    async fn checkpoint(&self, course: &mut Course) -> Result<()> {
        course.recorded_at = self.env.now();
        if !self.asked.use_checkpoints || course.recorded.as_ref() == Some(&course.position) {
            return Ok(());
        }
        if mutated(Mutation::CheckpointEarly) {
            course.position = self.progress().source_seq.clone().unwrap_or(course.position.clone());
        }
        self.target.ensure_full_commit().await?;
        let counters = since(&self.progress().counters, &course.before);
        let log = course.session.log(&course.position, &counters, &self.now());
        for (peer, rev) in [&self.source, &self.target].into_iter().zip(&mut course.revs) {
            *rev = Some(self.put_log(peer, rev.as_deref(), &log).await?);
        }
        self.env.metrics().count(Counter::Checkpoints);
        course.recorded = Some(course.position.clone());
        self.progress().checkpointed_seq = Some(course.position.clone());
        course.last_log = Some(log);
        Ok(())
    }

    async fn put_log(&self, peer: &Peer, rev: Option<&str>, log: &Object) -> Result<String> {
        let id = &self.checkpoint_id;
        match peer.local_put(id, rev, log).await {
            // Another run wrote one meanwhile, or the answer to ours was lost.
            Err(ReplicateError::Failed { error, .. }) if error == "conflict" => {
                sometimes("replicate: a checkpoint was in conflict");
                let current = peer.local_get(id).await?;
                let rev = current.as_ref().and_then(|log| log.get("_rev")?.as_str());
                peer.local_put(id, rev, log).await
            }
            result => result,
        }
    }
}

/// The rows with those of one document put together, in the order of their first.
fn merged(rows: &[ChangedDoc]) -> Vec<ChangedDoc> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out: Vec<ChangedDoc> = Vec::with_capacity(rows.len());
    for row in rows {
        let at = *places.entry(&row.id).or_insert(out.len());
        match out.get_mut(at) {
            None => out.push(row.clone()),
            Some(known) => {
                let new = row.revs.iter().filter(|rev| !known.revs.contains(rev)).cloned().collect::<Vec<_>>();
                known.revs.extend(new);
            }
        }
    }
    out
}

/// What was counted after `before`.
fn since(now: &Counters, before: &Counters) -> Counters {
    Counters {
        missing_checked: now.missing_checked - before.missing_checked,
        missing_found: now.missing_found - before.missing_found,
        docs_read: now.docs_read - before.docs_read,
        docs_written: now.docs_written - before.docs_written,
        doc_write_failures: now.doc_write_failures - before.doc_write_failures,
        bulk_get_docs: now.bulk_get_docs - before.bulk_get_docs,
        bulk_get_attempts: now.bulk_get_attempts - before.bulk_get_attempts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_document_are_put_together() {
        let row = |id: &str, revs: &[&str]| ChangedDoc {
            id: id.to_owned(),
            revs: revs.iter().map(|rev| (*rev).to_owned()).collect(),
        };
        let rows = [row("b", &["1-x"]), row("a", &["1-y"]), row("b", &["1-x", "2-z"])];
        assert_eq!(merged(&rows), [row("b", &["1-x", "2-z"]), row("a", &["1-y"])]);
    }
}
