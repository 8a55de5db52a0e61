//! Full-text searches: one replica of each range is asked, and the answers are merged.
//!
//! All nodes ask the replicas of a range in one order, because the number of a document, by which rows of equal score
//! are sorted, is that of a replica. Groups take two rounds: the first finds the groups, the second their rows.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use settee_search::search::{Answer, GroupRows, Request, Row, unite};

use super::search_page::{Hashes, Places};
use crate::coordinator::read::view::ViewError;
use crate::coordinator::read::{Queries, ReadOperations};
use crate::coordinator::replica::calls::{IndexSize, SearchFor, SearchRefusal, SizeOf};
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica, is_away};
use crate::coordinator::replica::replicas::no_answer;
use crate::document::id::DocId;
use crate::index::IndexError;
use crate::index::mango::text::TextMapper;
use crate::index::search::{
    Analyzer, Function, NoIndex, ScriptSearchMapper, SearchDefinition, SearchIndex, SearchMapper,
};
use crate::observe::tasks::{Subject, TaskKind};
use crate::script::Program;
use crate::shard::{Fetched, ShardError, Want};

/// Why a search failed.
#[derive(Debug)]
pub enum SearchFailure {
    /// As views fail.
    View(ViewError),
    /// The design document has no such index.
    NoIndex(NoIndex),
    /// Nobody knows the index's analyzer.
    NoAnalyzer,
    /// Nobody knows an analyzer of this name, of an index with types.
    UnknownAnalyzer(String),
    /// The index is kept by partition, and the query names none.
    PartitionNeeded,
    /// The query names a partition, and the index is not kept so.
    PartitionUnknown,
    /// The bookmark is none.
    Bookmark,
    /// The bookmark is of another order.
    BookmarkOrder,
    /// See there.
    Refused(SearchRefusal),
}

impl<E: Into<ViewError>> From<E> for SearchFailure {
    fn from(error: E) -> SearchFailure {
        SearchFailure::View(error.into())
    }
}

/// A search.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// What is asked of each range.
    pub request: Request,
    /// Where the page before ended, as the client said it.
    pub bookmark: Option<String>,
    /// Whether the index is to apply first what was written before.
    pub update: bool,
}

/// The answer of all ranges.
#[derive(Clone, Debug)]
pub struct SearchPage {
    /// Rows, counts and groups.
    pub answer: Answer,
    /// Where the next page begins.
    pub bookmark: String,
}

/// A full-text index of a database that can be asked.
pub struct DatabaseSearch {
    pub(super) database: Arc<Database>,
    pub(super) program: Program,
    /// What the design document says about it.
    pub definition: Arc<SearchDefinition>,
    analyzer: Analyzer,
    mapper: Arc<dyn SearchMapper>,
}

impl Queries<'_> {
    /// The full-text index `name` of the design document `id`, as they are now.
    ///
    /// # Errors
    /// [`SearchFailure::View`], [`SearchFailure::NoIndex`], [`SearchFailure::NoAnalyzer`].
    pub async fn search(self, id: &DocId, name: &str) -> Result<DatabaseSearch, SearchFailure> {
        let program = self.design_docs().program(id).await?;
        self.search_in(&program, name).await
    }

    /// The full-text index `name` of a design document that was read.
    ///
    /// # Errors
    /// As [`Queries::search`].
    pub async fn search_in(self, program: &Program, name: &str) -> Result<DatabaseSearch, SearchFailure> {
        let definition = SearchDefinition::find(program.body(), name, self.map().partitioned);
        let definition = definition.map_err(SearchFailure::NoIndex)?;
        let search = self.search_of(program, Arc::new(definition)).ok_or(SearchFailure::NoAnalyzer)?;
        self.serving_search(search, name).await
    }

    /// The index with types `name` of the design document `id`, as they are now.
    ///
    /// # Errors
    /// [`SearchFailure::View`], [`SearchFailure::NoIndex`]; [`SearchFailure::UnknownAnalyzer`].
    pub async fn typed_search(self, id: &DocId, name: &str) -> Result<DatabaseSearch, SearchFailure> {
        let program = self.design_docs().program(id).await?;
        self.typed_search_in(&program, name).await
    }

    /// The index with types `name` of a design document that was read.
    ///
    /// # Errors
    /// As [`Queries::typed_search`].
    pub async fn typed_search_in(self, program: &Program, name: &str) -> Result<DatabaseSearch, SearchFailure> {
        let definition = SearchDefinition::find_typed(program.body(), name, self.map().partitioned);
        let definition = definition.map_err(SearchFailure::NoIndex)?;
        let unknown = definition.analyzer.as_ref().err().map(|error| error.0.clone());
        let search = self.search_of(program, Arc::new(definition));
        let search = search.ok_or_else(|| SearchFailure::UnknownAnalyzer(unknown.unwrap_or_default()))?;
        self.serving_search(search, name).await
    }

    /// `None`: nobody knows its analyzer.
    pub(in crate::coordinator) fn search_of(
        self,
        program: &Program,
        definition: Arc<SearchDefinition>,
    ) -> Option<DatabaseSearch> {
        let analyzer = definition.analyzer.clone().ok()?;
        let mapper: Arc<dyn SearchMapper> = match &definition.function {
            Function::Fields(fields) | Function::TypedFields(fields) => {
                Arc::new(TextMapper::new(&self.context.indexes, fields))
            }
            Function::Typed(source) => Arc::new(ScriptSearchMapper::typed(self.scripts(), program, source)),
            Function::Script(source) => Arc::new(ScriptSearchMapper::new(self.scripts(), program, source)),
        };
        let (database, program) = (Arc::clone(self.database), program.clone());
        Some(DatabaseSearch { database, program, definition, analyzer, mapper })
    }
}

impl DatabaseSearch {
    /// The index on a replica of this node.
    pub(super) fn on(&self, range: usize, replica: &OwnReplica) -> SearchIndex {
        let range = self.database.map().range(range);
        let subject = Subject::new(TaskKind::SearchIndexer, &self.database.name).range(range);
        let subject = subject.design(self.program.id().as_str());
        let what = (&self.definition, &self.analyzer);
        self.database.context.indexes.search(&replica.shard, what, &self.mapper, subject)
    }

    /// What the index on a replica of this node answers.
    pub(in crate::coordinator) async fn search_own(
        &self,
        range: usize,
        replica: &OwnReplica,
        request: Request,
        update: bool,
    ) -> Result<Result<Answer, SearchRefusal>, IndexError> {
        let index = self.on(range, replica);
        if update {
            index.update().await?;
        }
        match index.search(request).await? {
            Ok(answer) => Ok(Ok(answer)),
            Err(error) => Ok(Err(SearchRefusal::try_from(error)?)),
        }
    }

    /// What there is of it on a replica of this node.
    pub(in crate::coordinator) async fn size_of_own(
        &self,
        range: usize,
        replica: &OwnReplica,
    ) -> Result<IndexSize, IndexError> {
        let header = self.on(range, replica).header().await?.unwrap_or_default();
        Ok(IndexSize {
            documents: header.documents(),
            deleted: header.deleted(),
            bytes: header.bytes(),
            position: header.position,
            purges: header.purge_position,
            last: replica.replica_position().position,
        })
    }

    /// Brings the index on the replicas that this node holds up to date, without haste. One that is damaged or not
    /// filled yet is nothing to the others.
    pub(in crate::coordinator) async fn update_own_gently(&self) {
        let update = |range: usize| async move {
            match self.database.replicas().own_replica(range).await? {
                Some(replica) => self.on(range, &replica).update_gently().await,
                None => Ok(()),
            }
        };
        for done in join_all(self.database.ranges().into_iter().map(update)).await {
            if let Err(error) = done {
                tracing::debug!(database = self.database.name, %error, "a search index was not brought up to date");
            }
        }
    }

    /// The design document as calls name it.
    pub(super) fn design(&self) -> (DocId, Bytes) {
        (self.program.id().clone(), self.program.body().to_vec().into())
    }

    async fn search_on(
        &self,
        range: usize,
        replica: &RangeReplica,
        request: Request,
        update: bool,
    ) -> Result<Result<Answer, SearchRefusal>, IndexError> {
        match replica {
            RangeReplica::Own(replica) => self.search_own(range, replica, request, update).await,
            RangeReplica::Remote(replica) => {
                let question = SearchFor { request: Box::new(request), update };
                replica.search(self.design(), self.definition.signature.0, question).await
            }
        }
    }

    /// What one replica of a range answers.
    async fn search_range(&self, range: usize, request: Request, update: bool) -> Result<Answer, SearchFailure> {
        let mut failed =
            IndexError::Shard(ShardError::NoReplica { replicas: self.database.replicas().replicas_of(range) });
        for replica in self.replicas(range).await? {
            match self.search_on(range, &replica, request.clone(), update).await {
                Err(IndexError::Shard(error)) if is_away(&error) && !self.database.replicas().is_alone(range) => {
                    if let IndexError::Shard(before) = failed {
                        failed = IndexError::Shard(no_answer(before, error));
                    }
                }
                Err(error) => return Err(error.into()),
                Ok(answer) => return answer.map_err(SearchFailure::Refused),
            }
        }
        Err(failed.into())
    }

    /// The replicas of a range in the order in which all nodes ask them.
    pub(super) async fn replicas(&self, range: usize) -> Result<Vec<RangeReplica>, ShardError> {
        let layout = self.database.layout();
        Ok(self.database.admitted(&layout, range, self.database.replicas().primaries(&layout, range).await?))
    }

    pub(super) fn ranges(&self, partition: Option<&str>) -> Vec<usize> {
        match partition {
            Some(name) => vec![self.database.map().index_of_partition(name)],
            None => self.database.ranges(),
        }
    }

    /// What all ranges answer.
    ///
    /// # Errors
    /// [`SearchFailure`]; where one range refuses a search, all do.
    pub async fn ask(&self, query: SearchQuery) -> Result<SearchPage, SearchFailure> {
        let SearchQuery { mut request, bookmark, update } = query;
        let mut places = bookmark.map_or(Ok(Places::default()), |text| Places::parse(&text))?;
        let (mut answer, from) = self.first_rows(&request, &places, update).await?;
        if let Some(group) = &mut request.group {
            let found: Vec<GroupRows> = answer.groups.take().unwrap_or_default();
            if found.is_empty() {
                answer.groups = Some(Vec::new());
            } else {
                group.only = Some(found.into_iter().map(|group| group.by).collect());
                answer = self.first_rows(&request, &places, update).await?.0;
            }
            return Ok(SearchPage { answer, bookmark: String::new() });
        }
        for (row, hashes) in answer.rows.iter().zip(from) {
            places.note(hashes, row.order.clone());
        }
        Ok(SearchPage { answer, bookmark: places.encode() })
    }

    /// The first rows of all ranges behind `places`, and the hashes of each row's range.
    pub(super) async fn first_rows(
        &self,
        request: &Request,
        places: &Places,
        update: bool,
    ) -> Result<(Answer, Vec<Hashes>), SearchFailure> {
        // A request with a token sees what the token stands for.
        let update = update || self.database.floor.is_some();
        match (&request.partition, self.definition.partitioned) {
            (None, true) => return Err(SearchFailure::PartitionNeeded),
            (Some(_), false) => return Err(SearchFailure::PartitionUnknown),
            _ => {}
        }
        places.check(request.sort.len().max(1))?;
        let ranges = self.ranges(request.partition.as_deref());
        let answers = self.round(&ranges, request, places, update).await?;
        let map = self.database.map();
        let hashes = |at: usize| {
            let range = map.range(ranges[at]);
            (range.begin, range.end)
        };
        let (answer, from) = unite(request, answers);
        Ok((answer, from.into_iter().map(hashes).collect()))
    }

    async fn round(
        &self,
        ranges: &[usize],
        request: &Request,
        places: &Places,
        update: bool,
    ) -> Result<Vec<Answer>, SearchFailure> {
        let map = self.database.map();
        let one = |range: &usize| {
            let hashes = map.range(*range);
            let request = Request { after: places.of((hashes.begin, hashes.end)), ..request.clone() };
            self.search_range(*range, request, update)
        };
        try_join_all(ranges.iter().map(one)).await
    }

    /// What there is of it in all ranges.
    ///
    /// # Errors
    /// As of views.
    pub async fn size(&self) -> Result<IndexSize, SearchFailure> {
        let one = |range: usize| async move {
            let mut failed = ShardError::NoReplica { replicas: self.database.replicas().replicas_of(range) };
            for replica in self.replicas(range).await? {
                let size = match &replica {
                    RangeReplica::Own(replica) => self.size_of_own(range, replica).await,
                    RangeReplica::Remote(replica) => {
                        replica.search(self.design(), self.definition.signature.0, SizeOf).await
                    }
                };
                match size {
                    Err(IndexError::Shard(error)) if is_away(&error) => failed = no_answer(failed, error),
                    size => return size.map_err(SearchFailure::from),
                }
            }
            Err(failed.into())
        };
        let sizes: Vec<IndexSize> = try_join_all(self.database.ranges().into_iter().map(one)).await?;
        Ok(sizes.into_iter().fold(IndexSize::default(), |sum, one| IndexSize {
            documents: sum.documents + one.documents,
            deleted: sum.deleted + one.deleted,
            bytes: sum.bytes + one.bytes,
            position: sum.position + one.position,
            purges: sum.purges + one.purges,
            last: sum.last + one.last,
        }))
    }

    /// The documents of the first rows as they are now, as many as may be in memory together, one at least; `None` for
    /// one that is gone.
    ///
    /// # Errors
    /// When the node cannot read.
    pub async fn documents(&self, rows: &[Row]) -> Result<Vec<Option<Fetched>>, SearchFailure> {
        let most = rows.len().min(crate::limits::DOCS_PER_FETCH);
        let wants: Vec<(DocId, Want)> = rows[..most].iter().map(|row| (DocId::new(&row.id), Want::Winner)).collect();
        Ok(self
            .database
            .documents()
            .fetch_first(&wants, Some(1), crate::limits::FETCH_BYTES)
            .await
            .map_err(ViewError::from)?)
    }
}
