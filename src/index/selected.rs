//! Index of a declared selector: the changes of a shard that the selector matches, so that a feed need not match all.
//!
//! A design document of the language `query` declares a selector as one of its `filters`. The index has a row under the
//! sequence of each document of which some leaf matches, tombstones included, by itself or together with its conflicts.
//! Promises, for the changes up to the index's position: a change that a feed would show is among the rows, in each
//! style. There may be rows too many: the reader matches the document of each row again, and skips a row whose document
//! has changed since. So an index that is behind makes no answer wrong: the reader matches all changes behind its
//! position.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::keys::{self, KeyBound, KeySpan, Part};
use super::record::{COLLATION_VERSION, Header, Row};
use super::{Definition, IndexError, Indexes, Mapped, Mapper, Signature, ViewIndex};
use crate::document::collate::Collator;
use crate::document::id::DocId;
use crate::document::json::{self, JsonError, Value};
use crate::document::render::{RenderOptions, StoredRevision, render};
use crate::document::revision::Revision;
use crate::document::selector::Selector;
use crate::limits;
use crate::shard::{Fetched, ShardChange, ShardError, ShardId, bounded_scan, change_at};
use crate::storage::{Direction, StorageError, View};
use crate::world::{BoxFuture, Env, Pool};

/// What the mapper is shown of a document, as JSON: the sequence of its last change, then its leaves, the winner once
/// more with its conflicts where it has some.
pub(super) fn text_of(id: &DocId, fetched: &Fetched) -> String {
    let mut out = format!("[{}", fetched.local_seq).into_bytes();
    let mut show = |stored: &StoredRevision, conflicts: &[Revision]| {
        out.push(b',');
        out.extend(render(id.as_str(), stored, &RenderOptions { conflicts, ..RenderOptions::default() }));
    };
    fetched.found.iter().filter_map(|(_, stored)| stored.as_ref()).for_each(|stored| show(stored, &[]));
    let conflicts = fetched.live_conflicts();
    if let Some((_, Some(winner))) = fetched.found.first().filter(|_| !conflicts.is_empty()) {
        show(winner, &conflicts);
    }
    out.push(b']');
    String::from_utf8_lossy(&out).into_owned()
}

/// Makes the rows: the key is the document's sequence, the value null.
pub struct SelectorMapper {
    env: Env,
    matcher: LeafMatcher,
}

#[derive(Clone)]
struct LeafMatcher {
    selector: Arc<Selector>,
    collator: Collator,
}

impl SelectorMapper {
    /// The mapper of [`Definition::selected`].
    pub fn new(indexes: &Indexes, definition: &Definition, selector: &Arc<Selector>) -> SelectorMapper {
        let matcher = LeafMatcher { selector: Arc::clone(selector), collator: indexes.collator(definition.collation) };
        SelectorMapper { env: indexes.env.clone(), matcher }
    }
}

impl Mapper for SelectorMapper {
    fn map<'a>(&'a self, _: Vec<&'a str>, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Vec<Mapped>>, IndexError>> {
        let matcher = self.matcher.clone();
        Box::pin(async move {
            let one = move |text: &String| Ok(vec![matcher.rows(text)?]);
            let rows = move || docs.iter().map(one).collect::<Result<Vec<Vec<Mapped>>, JsonError>>();
            let rows = self.env.blocking(Pool::Build, rows).await;
            let damaged = |JsonError| StorageError::Corrupt("a stored document is no JSON".to_owned());
            rows.map_err(|error| IndexError::Shard(damaged(error).into()))
        })
    }
}

impl LeafMatcher {
    fn rows(&self, text: &str) -> Result<Mapped, JsonError> {
        let Value::Array(shown) = json::parse(text.as_bytes())? else { return Err(JsonError) };
        let (seq, leaves) = shown.split_first().ok_or(JsonError)?;
        let matches = leaves.iter().any(|leaf| self.selector.matches(leaf, &self.collator));
        Ok(if matches { vec![(seq.clone(), Value::Null)] } else { Mapped::new() })
    }
}

/// Changes that may match, in the order of their sequences.
#[derive(Debug, Serialize, Deserialize)]
pub struct SelectedPage {
    /// The changes.
    pub rows: Vec<ShardChange>,
    /// The sequence up to which there are no others.
    pub reached: u64,
}

impl ViewIndex {
    /// The next changes behind `since`, at most `limit`: some, or all up to where the index is built. `None`: it is not
    /// built beyond `since`.
    pub async fn selected(&self, since: u64, limit: usize) -> Result<Option<SelectedPage>, ShardError> {
        let mut found: Option<SelectedPage> = None;
        // Mostly known without reading.
        while self.header().await?.position > found.as_ref().map_or(since, |page| page.reached) {
            let reading = Reading {
                signature: self.definition.signature,
                collator: self.collator.clone(),
                since: found.as_ref().map_or(since, |page| page.reached),
                limit: limit.clamp(1, limits::STEP_ROWS),
            };
            let read = move |view: &dyn View, shard| reading.step(view, shard);
            match self.replica.read_records(Pool::Foreground, read).await? {
                Some(page) if page.rows.is_empty() => found = Some(page),
                Some(page) => return Ok(Some(page)),
                None => break,
            }
        }
        Ok(found)
    }

    /// Starts an update where none runs and the index is far behind, and does not wait for it.
    pub async fn catch_up(&self) -> Result<(), ShardError> {
        let position = self.header().await?.position;
        if self.replica.watch().borrow().saturating_sub(position) > limits::PAGE_ROWS as u64 && !self.is_building() {
            self.update_later();
        }
        Ok(())
    }
}

/// One step of a reader.
struct Reading {
    signature: Signature,
    collator: Collator,
    since: u64,
    limit: usize,
}

impl Reading {
    fn step(&self, view: &dyn View, shard: ShardId) -> Result<Option<SelectedPage>, StorageError> {
        let header = view.get(&keys::key(shard, self.signature, Part::Header, b""))?;
        let header = header.map(|bytes| Header::decode(&bytes)).transpose()?;
        let is_ahead = |header: &Header| header.collation == COLLATION_VERSION && header.position > self.since;
        let Some(Header { position, .. }) = header.filter(is_ahead) else { return Ok(None) };
        let bound = |seq: u64| KeyBound { key: Some(Value::from(seq)), id: None };
        let span = KeySpan { start: bound(self.since + 1), end: bound(position), inclusive_end: true };
        let (places, _) = span.places(&self.collator, false, b"");
        let mut page = SelectedPage { rows: Vec::new(), reached: self.since };
        let rest = bounded_scan(view, places.range(shard, self.signature), Direction::Forward, |key, value| {
            let row = Row::decode(&key[keys::PREFIX..], value)?;
            let seq = std::str::from_utf8(&row.key).ok().and_then(|key| key.parse().ok());
            page.reached = seq.ok_or_else(|| StorageError::Corrupt("a row of a selector has no sequence".into()))?;
            page.rows.extend(change_at(view, shard, page.reached)?);
            Ok(if page.rows.len() == self.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if rest.is_none() {
            page.reached = position;
        }
        Ok(Some(page))
    }
}
