//! Filter scan over a database: documents that a selector matches, merged over the ranges in the order of their ids.
//!
//! Each range matches its own documents in place (`shard/filter_scan.rs`) and returns those that match, a bounded step
//! at a time; design documents are left out.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::read::Queries;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::span::{DocSource, Span};
use crate::document::collate::Collator;
use crate::document::id::DocId;
use crate::document::selector::Selector;
use crate::limits;
use crate::shard::{FilterScan, Matched};
use crate::world::cost;

/// What is looked for.
#[derive(Clone, Debug)]
pub struct FilterQuery {
    /// Only documents of this partition.
    pub partition: Option<String>,
    /// Least id.
    pub start: Bound<DocId>,
    /// Greatest id.
    pub end: Bound<DocId>,
    /// From `end` down instead of from `start` up.
    pub descending: bool,
    /// Matches documents.
    pub selector: Arc<Selector>,
    /// Compares values.
    pub collator: Collator,
    /// Whether the selector sees conflicts.
    pub conflicts: bool,
}

/// Rows to read from each of some ranges when `wanted` are wanted of all: a little above the even share, since a range
/// that runs empty costs another read.
pub(in crate::coordinator) fn share(wanted: usize, ranges: usize) -> usize {
    let wanted = wanted.clamp(1, limits::PAGE_ROWS * ranges.max(1));
    let even = wanted.div_ceil(ranges.max(1));
    (even + even / 2 + 4).min(wanted).min(limits::PAGE_ROWS)
}

/// Matches in order.
#[derive(Debug)]
pub struct MatchedPage {
    /// The matches.
    pub rows: Vec<Matched>,
    /// Documents matched for them.
    pub examined: u64,
}

/// One range.
struct RangeCursor {
    range: usize,
    rows: VecDeque<Matched>,
    /// Documents matched behind the last match.
    examined: u64,
    /// What is left to scan; `None`: nothing.
    rest: Option<(Bound<DocId>, Bound<DocId>)>,
}

/// A scan under way.
pub struct FilterRows {
    database: Arc<Database>,
    query: FilterQuery,
    range_cursors: Vec<RangeCursor>,
}

impl Queries<'_> {
    /// Begins a scan; reads nothing yet.
    pub fn filter_scan(self, query: FilterQuery) -> FilterRows {
        let ranges = match &query.partition {
            Some(name) => vec![self.map().index_of_partition(name)],
            None => self.ranges(),
        };
        // A range holds documents of other partitions, too.
        let asked = Span { low: query.start.clone(), high: query.end.clone() };
        let span = match &query.partition {
            Some(name) => asked.and(&Span::of(&DocSource::Partition(name.clone()))),
            None => asked,
        };
        let range_cursor = |range| {
            let rest = (!span.is_empty()).then(|| (span.low.clone(), span.high.clone()));
            RangeCursor { range, rows: VecDeque::new(), examined: 0, rest }
        };
        let range_cursors = ranges.into_iter().map(range_cursor).collect();
        FilterRows { database: Arc::clone(self.database), query, range_cursors }
    }
}

impl FilterRows {
    /// The next matches, at most `wanted`, and no more once they have `limits::FETCH_BYTES`; `None` at the end.
    ///
    /// # Errors
    /// When the node cannot read.
    pub async fn next(&mut self, wanted: usize) -> Result<Option<MatchedPage>, ReadError> {
        let mut page = MatchedPage { rows: Vec::new(), examined: 0 };
        let (share, mut bytes) = (share(wanted, self.range_cursors.len()), 0);
        while page.rows.len() < wanted {
            if bytes >= limits::FETCH_BYTES {
                return Ok(Some(page));
            }
            self.fill(share).await?;
            let heads = self
                .range_cursors
                .iter()
                .enumerate()
                .filter_map(|(at, range_cursor)| Some((at, &range_cursor.rows.front()?.id)));
            let next = match self.query.descending {
                false => heads.min_by(|a, b| a.1.cmp(b.1)),
                true => heads.max_by(|a, b| a.1.cmp(b.1)),
            };
            let Some(range_cursor) = next.map(|(at, _)| at) else { break };
            let Some(row) = self.range_cursors[range_cursor].rows.pop_front() else { break };
            page.examined += row.examined;
            bytes += row.stored.body.len();
            page.rows.push(row);
        }
        if page.rows.len() < wanted {
            // All ranges are read to their ends.
            page.examined += self
                .range_cursors
                .iter_mut()
                .map(|range_cursor| std::mem::take(&mut range_cursor.examined))
                .sum::<u64>();
        }
        Ok((!page.rows.is_empty() || page.examined > 0).then_some(page))
    }

    /// Scans on where a range has no match at hand.
    async fn fill(&mut self, limit: usize) -> Result<(), ReadError> {
        let (database, query) = (&self.database, &self.query);
        let empty = self
            .range_cursors
            .iter_mut()
            .filter(|range_cursor| range_cursor.rows.is_empty() && range_cursor.rest.is_some());
        try_join_all(empty.map(|range_cursor| range_cursor.fill(database, query, limit))).await?;
        Ok(())
    }
}

impl RangeCursor {
    async fn fill(&mut self, database: &Arc<Database>, query: &FilterQuery, limit: usize) -> Result<(), ReadError> {
        while self.rows.is_empty() {
            let Some((start, end)) = self.rest.take() else { break };
            let (descending, selector, collator) = (query.descending, Arc::clone(&query.selector), &query.collator);
            let (from, to) = (start.clone(), end.clone());
            let (collator, conflicts) = (collator.clone(), query.conflicts);
            let filter_scan = FilterScan { start: from, end: to, descending, selector, collator, conflicts, limit };
            let on_replica = |replica: RangeReplica| {
                let filter_scan = filter_scan.clone();
                async move { replica.filter_scan(filter_scan).await }
            };
            let page = database.replicas().on_one(self.range, on_replica).await?;
            let examined = page.examined + page.rows.iter().map(|row| row.examined).sum::<u64>();
            cost::read(1, usize::try_from(examined).unwrap_or(usize::MAX));
            self.rows = page.rows.into();
            if let Some(first) = self.rows.front_mut() {
                first.examined += std::mem::take(&mut self.examined);
            }
            self.examined += page.examined;
            self.rest = page.rest.map(|last| match descending {
                false => (Bound::Excluded(last), end),
                true => (start, Bound::Excluded(last)),
            });
        }
        Ok(())
    }
}
