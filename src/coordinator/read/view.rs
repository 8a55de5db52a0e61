//! Queries of views: an ordered merge of rows over the ranges, page by page.
//!
//! A query brings the view up to date if it asks for that, determines totals, and then returns rows as the client asks
//! for them: it holds one page of rows per range, whatever the view's size. Reductions add up the merged rows, see
//! `view_reduce`. Totals and offset are those at the query's begin; rows are read as `index/read.rs` promises.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::read::documents::RowDoc;
use crate::coordinator::read::filter_scan::share;
use crate::coordinator::read::view_groups::GroupLane;
use crate::coordinator::read::view_reads;
use crate::coordinator::read::view_state::SeatState;
use crate::coordinator::read::{Queries, ReadOperations};
use crate::coordinator::replica::database::{Database, entry};
use crate::coordinator::replica::design::DesignLookupError;
use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica, ReplicaView, is_away};
use crate::coordinator::replica::replicas::no_answer;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::seq::Seq;
use crate::document::collate::Collator;
use crate::document::id::DocId;
use crate::index::{
    Definition, Grouping, Header, IndexError, InvalidValue, KeySpan, Mapper, Places, Reduce, Row, ScriptMapper, Sees,
    SelectorMapper, ViewIndex, mango, partition_prefix,
};
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::script::{Program, ScriptError};
use crate::shard::ShardError;
use crate::storage::Direction;
use crate::world::buggify::{capped, fewer};

/// Whether a query waits for the view to apply what was written before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// It waits.
    #[default]
    Before,
    /// It takes what is there. A handle with a floor waits all the same, as with the next one.
    Never,
    /// It takes what is there and has the view updated afterwards.
    After,
}

/// Which rows a query reads.
#[derive(Clone, Debug, PartialEq)]
pub enum ViewKeys {
    /// Ranges of one key each, in this order.
    Keys(Vec<KeySpan>),
    /// A range of keys.
    Span(KeySpan),
    /// Ranges that share no key, in the direction of reading.
    Spans(Vec<KeySpan>),
}

/// A query of a view.
#[derive(Clone, Debug)]
pub struct ViewQuery {
    /// Which rows.
    pub keys: ViewKeys,
    /// From the last to the first.
    pub descending: bool,
    /// How many rows or groups to leave out at first.
    pub skip: u64,
    /// How many rows or groups at most.
    pub limit: u64,
    /// How many rows will probably be read, where that is less: as many are read at first.
    pub likely: usize,
    /// Reduce the rows of each group.
    pub grouping: Option<Grouping>,
    /// Give documents along.
    pub include_docs: bool,
    /// Give the conflicts of included documents along.
    pub conflicts: bool,
    /// Whether totals are wanted (`sorted`).
    pub totals: bool,
    /// Tell the sequence that the view has reached.
    pub update_seq: bool,
    /// Whether to update the view.
    pub update: Update,
    /// Read of each range the same replica whichever node is asked, as long as the same ones can be.
    pub stable: bool,
    /// Only rows of documents of this partition.
    pub partition: Option<String>,
}

/// Why a query failed.
#[derive(Debug)]
pub enum ViewError {
    /// The design document is missing, or the node cannot read it.
    Design(DesignLookupError),
    /// The keys are the wrong way round: no row can match.
    ImpossibleRange {
        /// Whether rows are read backwards.
        descending: bool,
    },
    /// A built-in reduce function does not take the values.
    InvalidValue(InvalidValue),
    /// The design document has no such view.
    NoView,
    /// The view's rows are kept by partition, and the query names none.
    PartitionNeeded,
    /// The query names a partition, and the view's rows are not kept so.
    PartitionUnknown,
    /// See [`ReadError`].
    Read(ReadError),
    /// A function failed.
    Script(ScriptError),
    /// The state of a range that the answer is of was lost when a part of the answer was given out, or again and again.
    StateGone,
    /// So many states are held for other answers that none could be held for this one.
    StatesFull,
    /// The node stops.
    Stopped,
}

impl From<DesignLookupError> for ViewError {
    fn from(error: DesignLookupError) -> Self {
        ViewError::Design(error)
    }
}

impl From<InvalidValue> for ViewError {
    fn from(error: InvalidValue) -> Self {
        ViewError::InvalidValue(error)
    }
}

impl From<ReadError> for ViewError {
    fn from(error: ReadError) -> Self {
        ViewError::Read(error)
    }
}

impl From<ScriptError> for ViewError {
    fn from(error: ScriptError) -> Self {
        ViewError::Script(error)
    }
}

impl From<ShardError> for ViewError {
    fn from(error: ShardError) -> Self {
        ViewError::Read(error.into())
    }
}

impl From<IndexError> for ViewError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Refused(error) => ViewError::InvalidValue(error),
            IndexError::Script(error) => ViewError::Script(error),
            IndexError::Shard(error) => error.into(),
            IndexError::Misfit(reason) => {
                ViewError::Script(ScriptError::Thrown { error: "misfit".to_owned(), reason: reason.into() })
            }
            IndexError::StateGone => ViewError::StateGone,
            IndexError::StatesFull => ViewError::StatesFull,
            IndexError::Stopped => ViewError::Stopped,
        }
    }
}

/// A view of a database that can be queried.
pub struct DatabaseView {
    pub(in crate::coordinator) database: Arc<Database>,
    pub(in crate::coordinator) program: Program,
    /// What the design document says about it.
    pub definition: Arc<Definition>,
    mapper: Arc<dyn Mapper>,
    pub(in crate::coordinator) collator: Collator,
}

/// A row with what a client sees of it.
#[derive(Clone, Debug)]
pub struct ViewRow {
    /// The document that emitted it, the key and the value.
    pub row: Row,
    /// `None`: not asked for; `Some(None)`: null.
    pub doc: Option<Option<Box<RowDoc>>>,
}

impl Queries<'_> {
    /// The view `name` of the design document `id`, as they are now.
    ///
    /// # Errors
    /// [`ViewError::Design`], [`ViewError::NoView`].
    pub async fn view(self, id: &DocId, name: &str) -> Result<DatabaseView, ViewError> {
        let program = self.design_docs().program(id).await?;
        self.view_in(&program, name).await
    }

    /// The view `name` of a design document that was read.
    ///
    /// # Errors
    /// [`ViewError::NoView`].
    pub(in crate::coordinator) async fn view_in(
        self,
        program: &Program,
        name: &str,
    ) -> Result<DatabaseView, ViewError> {
        let found = Definition::find(program.body(), name, self.map().partitioned);
        let view = self.view_of(program, Arc::new(found.ok_or(ViewError::NoView)?));
        if self.swaps_when_ready() && self.floor.is_none() { self.serving(view, name).await } else { Ok(view) }
    }

    pub(in crate::coordinator) fn view_of(self, program: &Program, definition: Arc<Definition>) -> DatabaseView {
        let indexes = &self.context.indexes;
        let mapper: Arc<dyn Mapper> = match (&definition.sees, definition.language.as_str()) {
            (Sees::Leaves(selector), _) => Arc::new(SelectorMapper::new(indexes, &definition, selector)),
            (Sees::Winner, mango::catalogue::LANGUAGE) => Arc::new(mango::FieldMapper::new(indexes, &definition)),
            (Sees::Winner, _) => Arc::new(ScriptMapper::new(self.scripts(), program)),
        };
        let collator = indexes.collator(definition.collation);
        DatabaseView { database: Arc::clone(self.database), program: program.clone(), definition, mapper, collator }
    }
}

impl DatabaseView {
    /// The ranges that a query of `partition` reads.
    fn ranges(&self, partition: Option<&str>) -> Vec<usize> {
        match partition {
            Some(name) => vec![self.database.map().index_of_partition(name)],
            None => self.database.ranges(),
        }
    }

    /// The view on a replica.
    pub(in crate::coordinator) fn on(&self, range: usize, replica: RangeReplica) -> ReplicaView {
        match replica {
            RangeReplica::Own(replica) => {
                let range = self.database.map().range(range);
                let subject = Subject::new(TaskKind::Indexer, &self.database.name).range(range);
                ReplicaView::Own(self.database.context.indexes.view(
                    &replica.shard,
                    &self.definition,
                    &self.mapper,
                    subject.design(self.program.id().as_str()),
                ))
            }
            RangeReplica::Remote(replica) => {
                let (program, signature) = (self.program.clone(), self.definition.signature);
                ReplicaView::Remote { replica, program, signature }
            }
        }
    }

    /// The view on the replicas that this node holds, but those that are damaged or not filled yet: of their ranges
    /// others are read.
    pub(in crate::coordinator) async fn own_indexes(&self) -> Result<Vec<ViewIndex>, ShardError> {
        let mut out = Vec::new();
        for range in self.database.ranges() {
            let replica = match self.database.replicas().own_replica(range).await {
                Err(error) if error.is_damage_here() || matches!(error, ShardError::NotExecuted(_)) => None,
                replica => replica?,
            };
            if let Some(replica) = replica
                && let ReplicaView::Own(index) = self.on(range, RangeReplica::Own(replica))
            {
                out.push(index);
            }
        }
        Ok(out)
    }

    /// The view on one replica of a range, as up to date as `update` wants it. `stable`: see [`ViewQuery::stable`].
    pub(in crate::coordinator) async fn seat(
        &self,
        range: usize,
        update: Update,
        stable: bool,
    ) -> Result<Seat, IndexError> {
        let mut failed =
            IndexError::Shard(ShardError::NoReplica { replicas: self.database.replicas().replicas_of(range) });
        let layout = self.database.layout();
        let replicas = match stable {
            // All nodes have them in one order.
            true => self.database.admitted(&layout, range, self.database.replicas().primaries(&layout, range).await?),
            false => self.database.replicas().readers(&layout, range).await?,
        };
        for replica in replicas {
            match self.seat_on(range, replica, update).await {
                Err(IndexError::Shard(error)) if is_away(&error) && !self.database.replicas().is_alone(range) => {
                    if let IndexError::Shard(before) = failed {
                        failed = IndexError::Shard(no_answer(before, error));
                    }
                }
                done => return done,
            }
        }
        Err(failed)
    }

    /// The view on one replica of each of the ranges.
    pub(in crate::coordinator) async fn seats(
        &self,
        ranges: &[usize],
        query: &ViewQuery,
    ) -> Result<Vec<Seat>, IndexError> {
        match self.seats_at_hand(ranges, query) {
            Some(seats) => Ok(seats),
            None => try_join_all(ranges.iter().map(|range| self.seat(*range, query.update, query.stable))).await,
        }
    }

    /// What [`DatabaseView::seat`] of each range comes to where there is nothing to wait for: the replicas are at hand,
    /// and what the query asks of the view is known. Else nothing.
    pub(in crate::coordinator) fn seats_at_hand(&self, ranges: &[usize], query: &ViewQuery) -> Option<Vec<Seat>> {
        if query.stable || query.update == Update::After {
            return None;
        }
        let seat = |(range, replica): (&usize, OwnReplica)| {
            let view = self.on(*range, RangeReplica::Own(replica.clone()));
            let ReplicaView::Own(index) = &view else { return None };
            if query.update == Update::Before && !self.needs_no_update(index) {
                return None;
            }
            let (header, is_building) = (index.known_header()?, index.is_building());
            Some(Seat {
                header,
                is_building,
                replica_position: replica.replica_position(),
                view,
                replica: RangeReplica::Own(replica),
                state: None,
            })
        };
        let replicas = self.database.replicas().replicas_at_hand(&self.database.layout(), ranges)?;
        ranges.iter().zip(replicas).map(seat).collect()
    }

    async fn seat_on(&self, range: usize, replica: RangeReplica, update: Update) -> Result<Seat, IndexError> {
        let view = self.on(range, replica.clone());
        match update {
            Update::Before => self.update(&view, range, &replica).await?,
            Update::After => view.update_later().await?,
            Update::Never => {}
        }
        let ((header, is_building), replica_position) = (view.header().await?, replica.replica_position().await?);
        Ok(Seat { view, header, is_building, replica_position, replica, state: None })
    }

    /// Brings the view up to date as the query wants it, and tells what it has then.
    ///
    /// # Errors
    /// What refuses a query before any row is read.
    pub async fn begin(self, query: ViewQuery) -> Result<ViewRows, ViewError> {
        let mut rows = self.open(query).await?;
        rows.tell_totals().await?;
        Ok(rows)
    }

    /// As [`DatabaseView::begin`], but the totals are told with the first rows, for the price of one read.
    ///
    /// # Errors
    /// As there.
    pub async fn open(self, mut query: ViewQuery) -> Result<ViewRows, ViewError> {
        if self.database.floor.is_some() {
            query.update = Update::Before;
        }
        match (&query.partition, self.definition.partitioned) {
            (None, true) => return Err(ViewError::PartitionNeeded),
            (Some(_), false) => return Err(ViewError::PartitionUnknown),
            _ => {}
        }
        let descending = query.descending;
        if let ViewKeys::Span(span) = &query.keys
            && span.is_impossible(&self.collator, descending)
        {
            return Err(ViewError::ImpossibleRange { descending });
        }
        let ranges = self.ranges(query.partition.as_deref());
        let seats = self.seats(&ranges, &query).await?;
        let prefix = partition_prefix(query.partition.as_deref());
        let spans = self.spans(&query, &prefix);
        let is_untold = query.totals && query.grouping.is_none();
        let mut rows = ViewRows {
            total_rows: 0,
            offset: 0,
            untold: is_untold.then_some(spans.before),
            seats,
            ranges,
            prefix: prefix.len(),
            spans: spans.places,
            together: VecDeque::new(),
            batch: query.likely,
            range_cursors: Vec::new(),
            group_range_cursors: Vec::new(),
            left: query.limit,
            skip: query.skip,
            view: self,
            query,
            pending: VecDeque::new(),
            is_given: false,
            anew: 0,
        };
        rows.next_span();
        Ok(rows)
    }

    fn spans(&self, query: &ViewQuery, prefix: &[u8]) -> Spans {
        let places = |span: &KeySpan| span.places(&self.collator, query.descending, prefix);
        match &query.keys {
            ViewKeys::Span(span) => {
                let (inside, before) = places(span);
                Spans { places: VecDeque::from([VecDeque::from([inside])]), before }
            }
            ViewKeys::Spans(spans) => {
                let together = spans.iter().map(|span| places(span).0).collect();
                Spans { places: VecDeque::from([together]), before: Places::none() }
            }
            ViewKeys::Keys(spans) => {
                let each = spans.iter().map(|span| VecDeque::from([places(span).0]));
                // As CouchDB 3.5 was measured: reading backwards turns the list of keys around, but not for groups.
                let places = match query.descending && query.grouping.is_none() {
                    true => each.rev().collect(),
                    false => each.collect(),
                };
                Spans { places, before: Places::none() }
            }
        }
    }
}

struct Spans {
    /// Each to be merged by itself.
    places: VecDeque<VecDeque<Places>>,
    before: Places,
}

/// The view on the replica of a range that is read.
pub(in crate::coordinator) struct Seat {
    pub view: ReplicaView,
    /// The replica that it is on.
    pub replica: RangeReplica,
    pub header: Header,
    pub is_building: bool,
    pub replica_position: ReplicaPosition,
    /// The state of the view that it holds for this answer.
    pub state: Option<SeatState>,
}

/// The rows of one range.
struct RangeCursor {
    rows: VecDeque<Row>,
    rest: VecDeque<Places>,
}

/// A query being answered.
pub struct ViewRows {
    /// Rows that the view has in all.
    pub total_rows: u64,
    /// Rows before the first one in the direction of reading.
    pub offset: u64,
    /// What is to be counted for the two; `None`: they are told, or not asked for.
    untold: Option<Places>,
    pub(in crate::coordinator) view: DatabaseView,
    pub(in crate::coordinator) query: ViewQuery,
    /// The replicas read, one for each of the ranges.
    pub(in crate::coordinator) seats: Vec<Seat>,
    pub(in crate::coordinator) ranges: Vec<usize>,
    /// Bytes of the partition in places.
    pub(in crate::coordinator) prefix: usize,
    pub(in crate::coordinator) spans: VecDeque<VecDeque<Places>>,
    /// The span being read, and those behind it whose groups are read along.
    pub(in crate::coordinator) together: VecDeque<VecDeque<Places>>,
    /// Rows to read next, of all ranges together.
    batch: usize,
    /// One per range, for the span being read.
    range_cursors: Vec<RangeCursor>,
    pub(in crate::coordinator) group_range_cursors: Vec<GroupLane>,
    pub(in crate::coordinator) skip: u64,
    pub(in crate::coordinator) left: u64,
    /// Rows that were read too far.
    pub(in crate::coordinator) pending: VecDeque<Row>,
    /// Whether groups were given out.
    pub(in crate::coordinator) is_given: bool,
    /// How often it began anew.
    pub(in crate::coordinator) anew: usize,
}

impl ViewRows {
    /// Names what the rows are made of: the replicas read, how far their indexes had come, and with documents also how
    /// far the replicas had. Equal texts mean equal answers; positions alone do not, as each replica counts its own.
    pub fn state(&self) -> String {
        let map = self.view.database.map();
        let state = |(range, seat): (&usize, &Seat)| {
            let reached = ReplicaPosition { position: seat.header.position, ..seat.replica_position };
            let documents = self.query.include_docs.then(|| entry(map.range(*range), seat.replica_position));
            format!("{:?} {documents:?}", entry(map.range(*range), reached))
        };
        self.ranges.iter().zip(&self.seats).map(state).collect::<Vec<_>>().join(" ")
    }

    /// The sequence that the view had reached, as the changes feed names it; only where all ranges are read.
    pub fn update_seq(&self) -> String {
        let map = self.view.database.map();
        let reached = |seat: &Seat| ReplicaPosition { position: seat.header.position, ..seat.replica_position };
        let entries = self.ranges.iter().zip(&self.seats).map(|(range, seat)| entry(map.range(*range), reached(seat)));
        Seq(entries.collect()).to_string()
    }

    /// Whether the query asks for [`ViewRows::update_seq`].
    pub fn wants_update_seq(&self) -> bool {
        self.query.update_seq
    }

    /// Whether the query asks for totals.
    pub fn wants_totals(&self) -> bool {
        self.query.totals
    }

    /// Whether rows are reduced.
    pub fn is_reduced(&self) -> bool {
        self.query.grouping.is_some()
    }

    /// The database queried.
    pub fn database(&self) -> &Arc<Database> {
        &self.view.database
    }

    /// Tells totals where they are asked for and not told yet, and reads the first rows with that.
    async fn tell_totals(&mut self) -> Result<(), ViewError> {
        let Some(before) = self.untold.take() else { return Ok(()) };
        let counted = match before.is_empty() {
            true => 0,
            false if self.left > 0 => self.count_and_fill(before).await?,
            false => self.count(before).await?,
        };
        self.total_rows = match self.prefix {
            0 => self.seats.iter().map(|seat| seat.header.rows).sum(),
            _ => self.count(Places::all(&partition_prefix(self.query.partition.as_deref()))).await?,
        };
        self.offset = counted.saturating_add(self.query.skip).min(self.total_rows);
        Ok(())
    }

    /// How many rows of all ranges lie in `places`.
    async fn count(&self, places: Places) -> Result<u64, ViewError> {
        Ok(view_reads::count(self.seats.iter().map(|seat| &seat.view).collect(), places).await?)
    }

    /// The same, and reads the first page into each range cursor: a store file is opened once for both.
    async fn count_and_fill(&mut self, before: Places) -> Result<u64, ViewError> {
        let (direction, limit) = (self.direction(), self.page_rows());
        let range_cursors = self.range_cursors.iter().zip(&self.seats).enumerate();
        let reads =
            range_cursors.map(|(at, (range_cursor, seat))| (at, &seat.view, range_cursor.rest.clone())).collect();
        let (mut counted, mut failed) = (0, false);
        for (at, done) in view_reads::counted_rows(&before, reads, direction, limit).await {
            match done {
                Ok((rows, page)) => {
                    counted += rows;
                    self.range_cursors[at] = RangeCursor { rows: page.rows.into(), rest: page.rest };
                }
                Err(error) => {
                    failed = true;
                    self.go_elsewhere(at, error).await?;
                }
            }
        }
        if failed { self.count(before).await } else { Ok(counted) }
    }

    /// The next page of rows, of at least one; `None` at the end.
    ///
    /// # Errors
    /// When the node cannot read.
    pub async fn next(&mut self) -> Result<Option<Vec<ViewRow>>, ViewError> {
        let page = if self.query.include_docs { limits::DOCS_PER_FETCH } else { limits::PAGE_ROWS };
        let page = fewer("view: a page of one row", page);
        let out = self.take(page).await?;
        if out.is_empty() {
            return Ok(None);
        }
        if !self.query.include_docs {
            return Ok(Some(out.into_iter().map(|row| ViewRow { row, doc: None }).collect()));
        }
        let (rows, rest) = self.with_docs(out).await?;
        self.left += rest.len() as u64;
        rest.into_iter().rev().for_each(|row| self.pending.push_front(row));
        Ok(Some(rows))
    }

    /// The next rows without documents, `wanted` of them; fewer at the end.
    ///
    /// # Errors
    /// When the node cannot read.
    pub async fn take(&mut self, wanted: usize) -> Result<Vec<Row>, ViewError> {
        self.tell_totals().await?;
        let mut out = Vec::new();
        while out.len() < wanted && self.left > 0 {
            let Some(row) = self.next_row().await? else {
                if !self.next_span() {
                    break;
                }
                continue;
            };
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.left -= 1;
                out.push(row);
            }
        }
        Ok(out)
    }

    /// Goes back to the first row.
    pub(in crate::coordinator) fn rewind(&mut self) {
        let prefix = partition_prefix(self.query.partition.as_deref());
        self.spans = self.view.spans(&self.query, &prefix).places;
        (self.left, self.skip) = (self.query.limit, self.query.skip);
        self.together.clear();
        self.pending.clear();
        self.next_span();
    }

    /// Goes on to the next of several keys; false when there is none.
    pub(in crate::coordinator) fn next_span(&mut self) -> bool {
        self.together.pop_front();
        if !self.together.is_empty() {
            return true;
        }
        let Some(places) = self.spans.pop_front() else { return false };
        if self.reads_groups() {
            self.together.push_back(places);
            let most = capped("view: groups of a range read at once", limits::GROUPS_AT_ONCE);
            let more = self.spans.len().min(most - 1);
            self.together.extend(self.spans.drain(..more));
            let all: VecDeque<Places> = self.together.iter().flatten().cloned().collect();
            self.group_range_cursors = self.seats.iter().map(|_| GroupLane::new(all.clone())).collect();
            return true;
        }
        let range_cursor = |_: &Seat| RangeCursor { rows: VecDeque::new(), rest: places.clone() };
        self.range_cursors = self.seats.iter().map(range_cursor).collect();
        true
    }

    /// Whether each range reduces its own rows.
    fn reads_groups(&self) -> bool {
        let reduce = &self.view.definition.reduce;
        self.query.grouping.is_some() && !matches!(reduce, None | Some(Reduce::Script(_)))
    }

    /// The next row of the span in the order of places over all ranges.
    pub(in crate::coordinator) async fn next_row(&mut self) -> Result<Option<Row>, ViewError> {
        if let Some(row) = self.pending.pop_front() {
            return Ok(Some(row));
        }
        while self
            .range_cursors
            .iter()
            .any(|range_cursor| range_cursor.rows.is_empty() && !range_cursor.rest.is_empty())
        {
            self.fill().await?;
        }
        let heads = self
            .range_cursors
            .iter()
            .enumerate()
            .filter_map(|(at, range_cursor)| Some((at, &range_cursor.rows.front()?.place)));
        let next = match self.query.descending {
            false => heads.min_by(|a, b| a.1.cmp(b.1)),
            true => heads.max_by(|a, b| a.1.cmp(b.1)),
        };
        let at = next.map(|(at, _)| at);
        Ok(at.and_then(|at| self.range_cursors[at].rows.pop_front()))
    }

    /// Reads a page into each range cursor that ran empty.
    async fn fill(&mut self) -> Result<(), ViewError> {
        for _ in 0..limits::REPLICAS_TRIED {
            self.fill_once().await?;
            if self
                .range_cursors
                .iter()
                .all(|range_cursor| !range_cursor.rows.is_empty() || range_cursor.rest.is_empty())
            {
                break;
            }
        }
        Ok(())
    }

    fn direction(&self) -> Direction {
        if self.query.descending { Direction::Reverse } else { Direction::Forward }
    }

    /// Rows to read next of each range.
    fn page_rows(&mut self) -> usize {
        let wanted = usize::try_from(self.skip.saturating_add(self.left)).unwrap_or(usize::MAX);
        let batch = share(wanted.min(self.batch), self.range_cursors.len());
        // Who reads on will read more.
        self.batch = self.batch.saturating_mul(2);
        batch
    }

    async fn fill_once(&mut self) -> Result<(), ViewError> {
        let direction = self.direction();
        let limit = match self.is_reduced() {
            true => reduced_rows(self.skip.saturating_add(self.left)),
            false => self.page_rows(),
        };
        let cursors = self.range_cursors.iter().enumerate();
        let empty = cursors.filter(|(_, cursor)| cursor.rows.is_empty() && !cursor.rest.is_empty());
        let empty: Vec<usize> = empty.map(|(at, _)| at).collect();
        let pages = match self.is_reduced() {
            true => {
                let (_, states) = self.states_of(&empty, false);
                let read = |(at, of): (usize, _)| (at, &self.seats[at].view, self.range_cursors[at].rest.clone(), of);
                let reads = empty.into_iter().zip(states).map(read).collect();
                view_reads::rows_of_state(reads, direction, limit).await
            }
            false => {
                let read = |at: usize| (at, &self.seats[at].view, self.range_cursors[at].rest.clone());
                view_reads::rows(empty.into_iter().map(read).collect(), direction, limit).await
            }
        };
        self.take_pages(pages, |rows, at, page| {
            rows.took(at, page.held.is_some(), page.rest.is_empty());
            rows.range_cursors[at] = RangeCursor { rows: page.rows.into(), rest: page.rest };
        })
        .await
    }

    /// Has another replica go on where the one that was read failed so: places are the same on every replica.
    pub(in crate::coordinator) async fn go_elsewhere(&mut self, at: usize, error: IndexError) -> Result<(), ViewError> {
        let error = match error {
            IndexError::Shard(error) if is_away(&error) => error,
            error => return Err(error.into()),
        };
        if error != ShardError::Moved && self.view.database.replicas().replicas_of(self.ranges[at]) == 1 {
            return Err(error.into());
        }
        self.seats[at] = self.view.seat(self.ranges[at], self.query.update, self.query.stable).await?;
        Ok(())
    }
}

/// Rows to read at once of each range for a function of the design document that is to make so many groups: how many
/// rows these have is not known.
fn reduced_rows(groups: u64) -> usize {
    let groups = usize::try_from(groups).unwrap_or(usize::MAX);
    let rows = groups.saturating_mul(limits::STEP_ROWS).clamp(limits::STEP_ROWS, limits::REDUCED_ROWS_AT_ONCE);
    capped("view: rows of a range read at once", rows).min(rows)
}
