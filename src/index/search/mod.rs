//! Full-text indexes: segments of `settee_search` beside the documents of a replica.
//!
//! A [`SearchIndex`] is one index of one replica. `build.rs` follows the shard's sequence as builds of views do. Each
//! batch of documents makes a segment; the segment, the numbers of its documents, the deletions in older segments and
//! the position are one commit (`write.rs`). A document's number is the sequence of its last change when it was
//! indexed. The build merges small segments (`merge.rs`). Segments are stored in pieces (`pieces.rs`), and the pieces
//! that searches need are cached in memory (`open.rs`).
//!
//! The keys of full-text indexes lie beside those of views, so that the same code removes both: `Indexes::clean_up`,
//! and the removal of the replica. Full-text indexes also share the writer's lock and the state of removals with views.

mod build;
mod definition;
mod mapper;
mod merge;
mod open;
mod pieces;
mod record;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use settee_search::analysis::Analyzer;
use settee_search::schema::Schema;
use settee_search::search::{Answer, Limits, Request, SearchError, nouveau};
use settee_search::segment::Part;

use super::{IndexError, Indexes, Slot};
use crate::limits;
use crate::observe::tasks::Subject;
use crate::shard::ShardReplica;
use crate::world::{Env, Pool};
use open::{Lost, Share};

pub use build::note_types;
pub use definition::{Function, NoIndex, SearchDefinition, analyzer_of, typed_analyzer};
pub use mapper::{Indexing, ScriptSearchMapper, SearchMapper, indexing, typed_indexing};
pub(super) use open::OpenIndexes;
pub use record::{SearchHeader, SegmentInfo};

/// One full-text index on one replica. Cheap to clone.
#[derive(Clone)]
pub struct SearchIndex {
    env: Env,
    replica: ShardReplica,
    definition: Arc<SearchDefinition>,
    analyzer: Analyzer,
    mapper: Arc<dyn SearchMapper>,
    slot: Arc<Slot>,
    open: Arc<OpenIndexes>,
    /// What its builds are in the list of tasks.
    subject: Arc<Subject>,
}

impl fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SearchIndex({:?}, {:?})", self.replica, self.definition.signature)
    }
}

impl Indexes {
    /// A full-text index on a replica, whose text `analyzer` cuts; `subject`: what its builds are in the list of tasks.
    /// Touches memory only.
    pub fn search(
        &self,
        replica: &ShardReplica,
        (definition, analyzer): (&Arc<SearchDefinition>, &Analyzer),
        mapper: &Arc<dyn SearchMapper>,
        subject: Subject,
    ) -> SearchIndex {
        SearchIndex {
            env: self.env.clone(),
            replica: replica.clone(),
            definition: Arc::clone(definition),
            analyzer: analyzer.clone(),
            mapper: Arc::clone(mapper),
            slot: self.slot(replica.id(), definition.signature),
            open: Arc::clone(&self.open),
            subject: Arc::new(subject),
        }
    }
}

/// Tells a search that nobody waits for it any more.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Asks the segments of an index within so many bytes of memory, as long as its last argument says that somebody waits.
type Ask = dyn Fn(&[Part], &Schema, usize, &mut dyn FnMut() -> bool) -> Result<Answer, SearchError> + Send + Sync;

/// Bounds of one search that may hold so many bytes.
fn limits_of_search(held: usize) -> Limits {
    Limits {
        terms: limits::SEARCH_TERMS_MAX,
        clauses: limits::SEARCH_CLAUSES_MAX,
        depth: limits::SEARCH_DEPTH_MAX,
        held,
    }
}

impl SearchIndex {
    /// What it answers as it is now. It ends when the caller stops waiting.
    ///
    /// # Errors
    /// [`SearchError`], within that what could not be read.
    pub async fn search(&self, request: Request) -> Result<Result<Answer, SearchError>, IndexError> {
        let analyzer = self.analyzer.clone();
        let ask = move |parts: &[Part], _: &Schema, held: usize, go_on: &mut dyn FnMut() -> bool| {
            settee_search::search::search(parts, &analyzer, &request, &limits_of_search(held), go_on)
        };
        self.ask(Arc::new(ask)).await
    }

    /// As [`SearchIndex::search`], of an index with types.
    pub async fn search_typed(&self, request: nouveau::Request) -> Result<Result<Answer, SearchError>, IndexError> {
        let analyzer = self.analyzer.clone();
        let ask = move |parts: &[Part], schema: &Schema, held: usize, go_on: &mut dyn FnMut() -> bool| {
            nouveau::search(parts, (&analyzer, schema), &request, &limits_of_search(held), go_on)
        };
        self.ask(Arc::new(ask)).await
    }

    /// Asks with a small share of the node's memory, and where that is too little, with a large one.
    async fn ask(&self, ask: Arc<Ask>) -> Result<Result<Answer, SearchError>, IndexError> {
        for share in [Share::Small, Share::Large] {
            let _turn = self.open.turn(share).await;
            match self.ask_with(share, &ask).await? {
                Err(SearchError::TooLarge) if share == Share::Small => {}
                done => return Ok(done),
            }
        }
        Err(IndexError::Stopped)
    }

    async fn ask_with(&self, share: Share, ask: &Arc<Ask>) -> Result<Result<Answer, SearchError>, IndexError> {
        let is_wanted = Arc::new(AtomicBool::new(true));
        let _waiting = Waiting(Arc::clone(&is_wanted));
        let held = self.open.bytes(share);
        for _ in 0..limits::SEARCH_RESTARTS {
            let (ask, wanted) = (Arc::clone(ask), Arc::clone(&is_wanted));
            let job = move |parts: &[Part], schema: &Schema| {
                let mut go_on = || wanted.load(Ordering::Relaxed);
                ask(parts, schema, held, &mut go_on)
            };
            match self.on_state(share, job).await {
                Err(Lost::Gone) => {}
                Err(Lost::Failed(error)) => return Err(error),
                Err(Lost::TooLarge) if share == Share::Small => return Ok(Err(SearchError::TooLarge)),
                Err(Lost::TooLarge) => {
                    let most = held >> 20;
                    let reason = format!("The search reads more than {most} MB of a shard's index.");
                    return Ok(Err(SearchError::TooCostly(reason)));
                }
                Ok(Err(SearchError::Segment(error))) => return Err(open::damaged(error).into()),
                Ok(done) => return Ok(done),
            }
        }
        Err(IndexError::Stopped)
    }

    async fn on_state<T, J>(&self, share: Share, job: J) -> Result<T, Lost>
    where
        T: Send + 'static,
        J: Fn(&[Part], &Schema) -> T + Send + Sync + 'static,
    {
        let opened = self.state(Pool::Foreground).await;
        let done = match opened {
            Ok(state) => {
                let schema = state.header.schema.clone();
                let job = move |parts: &[Part]| job(parts, &schema);
                self.on_segments(Pool::Foreground, share, &state.segments, job).await
            }
            Err(lost) => Err(lost),
        };
        match &done {
            // What is kept may be of before a merge.
            Err(Lost::Gone) => self.open.forget(self.cache_key()),
            Err(Lost::TooLarge) if share == Share::Large => self.open.forget(self.cache_key()),
            _ => self.weigh_open(),
        }
        done
    }

    /// Whether it is known to have applied all that is committed.
    pub fn is_current(&self) -> bool {
        self.slot.known().complete_at >= *self.replica.watch().borrow()
    }

    /// Whether it is being built.
    pub fn is_building(&self) -> bool {
        self.slot.builders.load(Ordering::Relaxed) > 0
    }
}
