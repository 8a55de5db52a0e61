//! The matches of a query in the segments of one shard, and the union of the answers of several shards.

mod bits;
mod budget;
mod facets;
mod groups;
mod intervals;
mod matcher;
pub mod nouveau;
mod order;
mod phrase;
mod plan;
pub(crate) mod regexp;
mod run;
mod similarity;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis::Analyzer;
use crate::query::{Query, QueryError};
use crate::segment::{Part, SegmentError};

/// What is asked of one index. Goes between nodes as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The query's text.
    pub query: String,
    /// Rows of the answer, of each group when there are groups.
    pub limit: usize,
    /// The order; empty: best first.
    pub sort: Vec<Sort>,
    /// Only what stands behind this in the order: `order` of the last row of this shard that was given out.
    pub after: Option<Vec<SortValue>>,
    /// Only documents whose id begins with this and a colon.
    pub partition: Option<String>,
    /// Facets to count, by field; `None`: not asked for.
    pub counts: Option<Vec<String>>,
    /// Ranges to count, by field and label, each like `[0 TO 10}`.
    pub ranges: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// Field and values: documents that have one of the values, for each field.
    pub drilldown: Vec<Vec<String>>,
    /// Rows in groups.
    pub group: Option<Group>,
    /// Stored fields to show; `None`: all.
    pub include_fields: Option<Vec<String>>,
    /// Marked fragments to show.
    pub highlight: Option<Highlight>,
}

/// One part of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sort {
    /// By relevance, best first; `reverse`: worst first.
    Score {
        /// Worst first.
        reverse: bool,
    },
    /// By the order of indexing.
    Number {
        /// Last first.
        reverse: bool,
    },
    /// By the value of a field.
    Field {
        /// Its name.
        name: String,
        /// As text, not as a number.
        is_text: bool,
        /// Largest first.
        reverse: bool,
    },
    /// By distance to a place on the globe.
    Distance {
        /// Field of the longitude.
        longitude: String,
        /// Field of the latitude.
        latitude: String,
        /// The place: longitude, latitude, in degrees.
        from: (f64, f64),
        /// In miles, not kilometres.
        is_miles: bool,
        /// Farthest first.
        reverse: bool,
    },
}

/// One value of a row's order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SortValue {
    /// Of a text sort; `None`: the document lacks the field.
    Text(Option<String>),
    /// Of a number sort, a score, a distance.
    Number(f64),
    /// The document's number, last in each order.
    Document(u64),
}

/// How rows are grouped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The text field that names groups.
    pub field: String,
    /// Groups of the answer.
    pub limit: usize,
    /// The order of groups: that of each one's first row in this order; empty: best first.
    pub sort: Vec<Sort>,
    /// Only these, found by a first round over all shards; `None`: this is the first round, answers have no rows.
    pub only: Option<Vec<Option<String>>>,
}

/// How fragments are marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Highlight {
    /// Stored text fields.
    pub fields: Vec<String>,
    /// Before a word.
    pub pre_tag: String,
    /// Behind it.
    pub post_tag: String,
    /// Fragments of each stored value.
    pub number: usize,
    /// Characters of a fragment.
    pub size: usize,
}

/// One match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The document's id.
    pub id: String,
    /// By what it stands where it stands; the last item is the document's number.
    pub order: Vec<SortValue>,
    /// Stored values, by name; of a repeated field several.
    pub fields: BTreeMap<String, Vec<Stored>>,
    /// Marked fragments by field, where they were asked for.
    pub highlights: Option<BTreeMap<String, Vec<String>>>,
}

/// A stored value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stored {
    /// Text, or a boolean as a word.
    Text(String),
    /// A number.
    Number(f64),
}

/// One group of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRows {
    /// What its documents have in common; `None`: they lack the field.
    pub by: Option<String>,
    /// By what it stands where it stands.
    pub order: Vec<SortValue>,
    /// Matches in it.
    pub total: u64,
    /// The first of them.
    pub rows: Vec<Row>,
}

/// Counts of values by field.
pub type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// What a shard, or all of them, answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Matches.
    pub total: u64,
    /// The first of them.
    pub rows: Vec<Row>,
    /// As asked; `None`: not asked for, or no document has a facet.
    pub counts: Option<Counts>,
    /// As asked.
    pub ranges: Option<Counts>,
    /// As asked.
    pub groups: Option<Vec<GroupRows>>,
}

/// Why a search failed.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchError {
    /// The query was not understood.
    Query(QueryError),
    /// 400 `bad_request` with this reason.
    Refused(String),
    /// It costs more than a search may: 400 with this reason.
    TooCostly(String),
    /// It needs more memory than it may hold: 400, or it may be tried with more.
    TooLarge,
    /// The caller wants it no more.
    Stopped,
    /// A segment cannot be read.
    Segment(SegmentError),
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SearchError::Query(error) => error.fmt(f),
            SearchError::Refused(reason) | SearchError::TooCostly(reason) => f.write_str(reason),
            SearchError::TooLarge => f.write_str("the query is too costly: its clauses match too many documents"),
            SearchError::Stopped => f.write_str("the search was given up"),
            SearchError::Segment(error) => error.fmt(f),
        }
    }
}

/// Bounds of one search, as the node sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Terms that one wildcard, regular expression, fuzzy term or range may stand for.
    pub terms: usize,
    /// Clauses of a query, and words of its phrases.
    pub clauses: usize,
    /// Brackets within brackets.
    pub depth: usize,
    /// Bytes of postings, norms and sets that the clauses of a query may hold of one segment.
    pub held: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { terms: 100_000, clauses: 4_096, depth: 64, held: 256 << 20 }
    }
}

/// The matches in one shard. `go_on` is asked every few thousand steps; where it says no, the search ends.
///
/// Scores count the words of all parts; a deleted document counts in them until a merge leaves it out, as in Lucene.
/// Values of a repeated stored field come last indexed first. In a first round of groups these have no rows.
pub fn search(
    parts: &[Part],
    analyzer: &Analyzer,
    request: &Request,
    limits: &Limits,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Answer, SearchError> {
    run::search(parts, analyzer, request, limits, go_on)
}

/// The answer of all shards, each named by its place in the list: rows in one order, sums of totals and counts. Of rows
/// that stand alike those of earlier shards come first. Each row is told with the place of its shard; of rows in groups
/// it is not told.
pub fn unite(request: &Request, answers: Vec<Answer>) -> (Answer, Vec<usize>) {
    let sort = order::or_by_score(&request.sort);
    let mut united = Answer::default();
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let mut groups = Vec::new();
    for (shard, answer) in answers.into_iter().enumerate() {
        united.total += answer.total;
        rows.extend(answer.rows.into_iter().map(|row| (shard, row)));
        add_counts(&mut united.counts, answer.counts);
        add_counts(&mut united.ranges, answer.ranges);
        groups.extend(answer.groups);
    }
    rows.sort_by(|(_, a), (_, b)| order::compare(sort, &a.order, &b.order));
    rows.truncate(request.limit);
    if let Some(group) = &request.group {
        united.groups = Some(groups::unite(group, sort, request.limit, groups));
    }
    let (shards, rows) = rows.into_iter().unzip();
    united.rows = rows;
    (united, shards)
}

fn add_counts(sums: &mut Option<Counts>, counts: Option<Counts>) {
    let Some(counts) = counts else { return };
    let sums = sums.get_or_insert_default();
    for (field, values) in counts {
        let of_field = sums.entry(field).or_default();
        for (value, count) in values {
            *of_field.entry(value).or_default() += count;
        }
    }
}

/// The error of a part of a query that stands for more than a search may look at.
fn too_costly(query: &Query) -> SearchError {
    SearchError::TooCostly(format!("the query is too costly: {query} stands for too many words"))
}

impl From<SegmentError> for SearchError {
    fn from(error: SegmentError) -> SearchError {
        SearchError::Segment(error)
    }
}
