//! Transfer of the documents of a page of changes to the target: it asks what the target lacks, fetches that in pieces
//! of bounded size, and writes it. Documents that the target refuses are counted and listed, and stop nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::Semaphore;

use super::engine::Run;
use super::error::{ReplicateError, Result};
use super::peer::{ChangedDoc, Doc, Fetched, Refusal, Sent, Want};
use crate::limits;
use crate::wire::client::Repeats;
use crate::world::BoxFuture;
use crate::world::buggify::{Mutation, fewer, mutated};

/// How much is fetched at once: so many documents as are about [`limits::REPLICATION_FETCH_BYTES`], going by those
/// before.
pub struct Pace {
    /// Bytes of a document of late; 0: none was seen.
    document_bytes: AtomicUsize,
    /// Held by who fetches a document that is larger than what is otherwise fetched at once.
    large: Semaphore,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { document_bytes: AtomicUsize::new(0), large: Semaphore::new(1) }
    }
}

impl Pace {
    fn documents(&self) -> usize {
        match self.document_bytes.load(Ordering::Relaxed) {
            0 => limits::REPLICATION_FETCH_FIRST,
            bytes => (limits::REPLICATION_FETCH_BYTES / bytes).clamp(1, limits::REPLICATION_FETCH_DOCS),
        }
    }

    /// Takes note of what was fetched: large ones count at once, small ones little by little.
    fn saw(&self, fetched: &Fetched) {
        let Some(bytes) = fetched.bytes.checked_div(fetched.docs.len()) else { return };
        let before = self.document_bytes.load(Ordering::Relaxed);
        let bytes = if before == 0 { bytes } else { bytes.max((3 * before + bytes) / 4) };
        self.document_bytes.store(bytes.max(1), Ordering::Relaxed);
    }
}

impl Run {
    /// Brings everything that a page names to the target.
    pub(super) async fn copy_page(&self, rows: &[ChangedDoc]) -> Result<()> {
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
        self.track.step(|progress| {
            progress.counters.missing_checked += checked as u64;
            progress.counters.missing_found += wants.len() as u64;
        });
        let together = fewer("replicate: one revision at a time", self.pace.documents());
        let copies: Vec<BoxFuture<'_, Result<()>>> = wants.chunks(together).map(|wants| self.copy(wants)).collect();
        let copies = stream::iter(copies).buffer_unordered(limits::REPLICATION_FETCHES);
        copies.try_for_each(|()| std::future::ready(Ok(()))).await
    }

    /// Fetches and writes some revisions; in halves where they are too large together.
    fn copy<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match (self.source.peer.fetch(wants, limits::REPLICATION_ANSWER_BYTES).await, wants) {
                (Err(ReplicateError::TooLarge), [want]) => self.copy_large(want).await,
                (Err(ReplicateError::TooLarge | ReplicateError::RequestTooLarge), wants) if wants.len() > 1 => {
                    let (left, right) = wants.split_at(wants.len() / 2);
                    self.copy(left).await?;
                    self.copy(right).await
                }
                (fetched, wants) => self.deliver(wants, fetched?).await,
            }
        })
    }

    /// One document at a time that is larger than what is otherwise fetched at once.
    async fn copy_large(&self, want: &Want) -> Result<()> {
        // Invariant: the semaphore is never closed.
        let _alone = self.pace.large.acquire().await.expect("an open semaphore");
        match self.source.peer.fetch(std::slice::from_ref(want), limits::REPLICATION_DOCUMENT_BYTES).await {
            Err(ReplicateError::TooLarge) => {
                let reason = format!("{} of the source is too large to be fetched.", want.rev);
                self.refused(vec![Refusal::new(&want.id, "document_too_large", reason)]);
                Ok(())
            }
            fetched => self.deliver(std::slice::from_ref(want), fetched?).await,
        }
    }

    /// Writes what was fetched to the target.
    async fn deliver(&self, wants: &[Want], fetched: Fetched) -> Result<()> {
        self.pace.saw(&fetched);
        self.track.step(|progress| {
            let counters = &mut progress.counters;
            counters.docs_read += fetched.docs.len() as u64;
            if fetched.in_bulk > 0 {
                counters.bulk_get_attempts += wants.len() as u64;
                counters.bulk_get_docs += fetched.in_bulk as u64;
            }
        });
        self.refused(fetched.refused);
        let missing = fetched.missing;
        let (plain, attached): (Vec<Doc>, Vec<Doc>) =
            fetched.docs.into_iter().partition(|doc| doc.attachments().next().is_none());
        if !plain.is_empty() {
            let refused = self.target.write(&plain).await?;
            self.written(plain.len(), refused);
        }
        let writes: Vec<BoxFuture<'_, Result<()>>> =
            attached.iter().map(|doc| self.deliver_attached(doc, wants)).collect();
        let writes = stream::iter(writes).buffer_unordered(limits::REPLICATION_FETCHES);
        writes.try_for_each(|()| std::future::ready(Ok(()))).await?;
        match missing {
            None => Ok(()),
            Some(what) => Err(ReplicateError::Gone { url: self.source.peer.shown().to_owned(), what }),
        }
    }

    /// Writes one with attachments.
    fn deliver_attached<'a>(&'a self, doc: &'a Doc, wants: &'a [Want]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ancestors = wants.iter().find(|want| want.id == doc.id).map(|want| Arc::clone(&want.ancestors));
            let refused = self.write_attached(doc, &ancestors.unwrap_or_default()).await?;
            self.written(1, Vec::from_iter(refused));
            Ok(())
        })
    }

    /// Sends the attachments that the target lacks; all, should it lack one of the others. `ancestors`: leaves that the
    /// target has.
    async fn write_attached(&self, doc: &Doc, ancestors: &[String]) -> Result<Option<Refusal>> {
        let known = doc.known_ancestor(ancestors);
        let newer = Sent::of(doc, known.map_or(0, |(generation, _)| generation));
        let lacking = match known {
            Some((_, rev)) => self.lacking(doc, rev, &newer).await?,
            None => newer.clone(),
        };
        match self.send(doc, &lacking).await {
            Err(ReplicateError::MissingStub) if known.is_some() => {
                if lacking != newer {
                    self.target.knows_no_bytes();
                }
                self.send(doc, &Sent::of(doc, 0)).await
            }
            result => result,
        }
    }

    /// Those of `newer` attachments that are not with the target's revision `rev` either: who writes an attachment
    /// again as it was gives it a new generation. Asked only where the bytes weigh more than the question.
    async fn lacking(&self, doc: &Doc, rev: &str, newer: &[Sent]) -> Result<Vec<Sent>> {
        let bytes: u64 = newer.iter().map(|sent| sent.length).sum();
        if bytes < limits::REPLICATION_HELD_BYTES || !self.target.knows_bytes() {
            return Ok(newer.to_vec());
        }
        let held = self.target.held(&doc.id, rev).await?;
        let lacks = |sent: &&Sent| !held.iter().any(|held| sent.is(held));
        Ok(newer.iter().filter(lacks).cloned().collect())
    }

    /// Writes a document with the bytes of `sent`.
    async fn send(&self, doc: &Doc, sent: &[Sent]) -> Result<Option<Refusal>> {
        match sent {
            [] => self.target.write(std::slice::from_ref(doc)).await.map(|refused| refused.into_iter().next()),
            sent => self.stream(doc, sent).await,
        }
    }

    /// A document with attachments on their way through this node. They may break off on both sides: then all is sent
    /// again, a few times. Where the source has them in another length all the same that is the document's fault.
    async fn stream(&self, doc: &Doc, sent: &[Sent]) -> Result<Option<Refusal>> {
        let mut repeats = Repeats::new(&self.env, self.tuning.patience.retries);
        loop {
            let error = match self.target.write_with(doc, sent, &self.source).await {
                Err(error @ (ReplicateError::Failed { .. } | ReplicateError::WrongLength { .. })) => error,
                result => return result,
            };
            tracing::debug!(id = doc.id, ?error, "a document with attachments is sent again");
            if !repeats.next(None).await {
                return match error {
                    ReplicateError::WrongLength { .. } => {
                        Ok(Some(Refusal::new(&doc.id, "attachment_length", error.text())))
                    }
                    error => Err(error),
                };
            }
        }
    }

    fn written(&self, docs: usize, refused: Vec<Refusal>) {
        let written = docs.saturating_sub(refused.len()) as u64;
        self.track.step(|progress| progress.counters.docs_written += written);
        self.refused(refused);
    }

    fn refused(&self, refused: Vec<Refusal>) {
        for Refusal { id, error, reason } in &refused {
            tracing::warn!(id, error, reason, target = self.target.shown(), "a replicated document was refused");
        }
        if !refused.is_empty() {
            self.track.refused(refused);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json::Object;
    use crate::replicate::peer::Body;

    #[test]
    fn rows_of_one_document_are_put_together() {
        let row = |id: &str, revs: &[&str]| ChangedDoc {
            id: id.to_owned(),
            revs: revs.iter().map(|rev| (*rev).to_owned()).collect(),
        };
        let rows = [row("b", &["1-x"]), row("a", &["1-y"]), row("b", &["1-x", "2-z"])];
        assert_eq!(merged(&rows), [row("b", &["1-x", "2-z"]), row("a", &["1-y"])]);
    }

    #[test]
    fn large_documents_are_fetched_in_smaller_numbers() {
        let pace = Pace::default();
        assert_eq!(pace.documents(), limits::REPLICATION_FETCH_FIRST);
        let doc = |bytes: usize| {
            let id = "d".to_owned();
            let doc = Doc { id, rev: "1-a".to_owned(), body: Body::Members(Object::new()) };
            Fetched { docs: vec![doc], bytes, ..Fetched::default() }
        };
        pace.saw(&doc(100));
        assert_eq!(pace.documents(), limits::REPLICATION_FETCH_DOCS);
        pace.saw(&doc(limits::REPLICATION_FETCH_BYTES * 3));
        assert_eq!(pace.documents(), 1);
        (0..100).for_each(|_| pace.saw(&doc(100)));
        assert_eq!(pace.documents(), limits::REPLICATION_FETCH_DOCS);
    }
}
