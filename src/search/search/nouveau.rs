//! Searches of an index whose fields have types: the flexible syntax, BM25, ties by the document's id, facets of all
//! text fields that are found as a whole and of all numbers.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fst::Streamer;
use serde::{Deserialize, Serialize};

use super::bits::Bits;
use super::budget::Budget;
use super::matcher::Matcher;
use super::plan::Planner;
use super::run::{InPart, Run, first};
use super::{Answer, Counts, Limits, Row, SearchError, Sort, SortValue, add_counts};
use crate::analysis::Analyzer;
use crate::document::ID;
use crate::query::flexible::{Locale, Syntax, parse};
use crate::schema::{FieldType, Schema};
use crate::segment::{Kind, Part, WINDOW, Window, bounds, sortable};

/// The order of relevance, by name.
const RELEVANCE: &str = "relevance";

/// What is asked of one index. Goes between nodes as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The query's text.
    pub query: String,
    /// How numbers are written in it, as Java names it.
    pub locale: Option<String>,
    /// Rows of the answer.
    pub limit: usize,
    /// Fields, `-` before those that descend, or `relevance`; empty: best first.
    pub sort: Vec<String>,
    /// Only what stands behind this in the order: `order` of the last row of this shard that was given out.
    pub after: Option<Vec<SortValue>>,
    /// Only documents whose id begins with this and a colon.
    pub partition: Option<String>,
    /// Fields whose values are counted.
    pub counts: Option<Vec<String>>,
    /// Ranges to count, by field.
    pub ranges: Option<BTreeMap<String, Vec<Range>>>,
    /// Counts of a field that are told: the largest.
    pub top: usize,
}

/// A range of numbers to count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// How it is called in the answer.
    pub label: String,
    /// The least number; `None`: all are greater.
    pub min: Option<f64>,
    /// Whether the least number itself counts.
    pub has_min: bool,
    /// The greatest number; `None`: all are less.
    pub max: Option<f64>,
    /// Whether the greatest number itself counts.
    pub has_max: bool,
}

/// One part of an order, as a request names it.
struct OrderPart<'a> {
    /// `None`: relevance.
    name: Option<&'a str>,
    reverse: bool,
}

/// The parts of an order; the id is the last of them.
fn order_parts(sort: &[String]) -> Result<Vec<OrderPart<'_>>, SearchError> {
    let mut parts = Vec::with_capacity(sort.len() + 1);
    for text in sort {
        let refused = || SearchError::Refused(format!("{text} is not a valid sort parameter"));
        parts.push(sort_part(text).ok_or_else(refused)?);
    }
    if parts.is_empty() {
        parts.push(OrderPart { name: None, reverse: false });
    }
    if parts.last().and_then(|last| last.name) != Some(ID) {
        parts.push(OrderPart { name: Some(ID), reverse: false });
    }
    Ok(parts)
}

fn sort_part(text: &str) -> Option<OrderPart<'_>> {
    if text == RELEVANCE {
        return Some(OrderPart { name: None, reverse: false });
    }
    let (reverse, name) = match text.split_at_checked(1) {
        Some(("-", rest)) => (true, rest),
        Some(("+", rest)) => (false, rest),
        _ => (false, text),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '$';
    (!name.is_empty() && name.chars().all(is_name)).then_some(OrderPart { name: Some(name), reverse })
}

/// The parts of an order as one shard sorts by them: a field that no document has is null everywhere.
fn sorts(parts: &[OrderPart<'_>], schema: &Schema) -> Result<Vec<Sort>, SearchError> {
    let sort = |part: &OrderPart<'_>| {
        let Some(name) = part.name else { return Ok(Sort::Score { reverse: false }) };
        let is_text = match schema.get(name) {
            None | Some(FieldType::String) => true,
            Some(FieldType::Double) => false,
            Some(_) => return Err(SearchError::Refused(format!("can't sort on field {name}"))),
        };
        Ok(Sort::Field { name: name.to_owned(), is_text, reverse: part.reverse })
    };
    parts.iter().map(sort).collect()
}

/// The matches in one shard, as [`super::search`]. Rows have no number of a document at the end of their order.
pub fn search(
    parts: &[Part],
    (analyzer, schema): (&Analyzer, &Schema),
    request: &Request,
    limits: &Limits,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Answer, SearchError> {
    let locale = request.locale.as_deref().map_or_else(Locale::default, Locale::named);
    let syntax = Syntax { analyzer, schema, locale, limits };
    let query = parse(&request.query, &syntax).map_err(SearchError::Query)?;
    let sort = sorts(&order_parts(&request.sort)?, schema)?;
    check_facets(request, schema)?;
    // A page goes on behind the document itself, of which its id is the last sort value.
    let after = request.after.clone().map(|mut order| {
        order.push(SortValue::Document(u64::MAX));
        order
    });
    let asked = super::Request {
        limit: request.limit,
        after,
        partition: request.partition.clone(),
        sort,
        ..super::Request::default()
    };
    let mut budget = Budget::new(limits, go_on);
    let node = Planner::new(parts, &mut budget).plan(&query)?;
    let has_facets = request.counts.is_some() || request.ranges.is_some();
    let mut facets = Facets::new(request);
    let (mut total, mut all) = (0, Vec::new());
    for (place, part) in parts.iter().enumerate() {
        budget.start_part();
        let matched = has_facets.then(|| Bits::new(part.segment.document_count()));
        let mut in_part = InPart::new(matched);
        let matcher = Matcher::new(&node, part, place, &mut budget)?;
        in_part.collect((place, part), matcher, None, (&asked, None), &mut budget)?;
        total += in_part.total;
        all.append(&mut in_part.hits);
        if let Some(matched) = in_part.matched {
            facets.count(part, &matched, &mut budget)?;
        }
    }
    let run = Run { parts, analyzer, request: &asked, query: &query };
    let mut rows = run.rows(first(&asked.sort, all, request.limit), &mut budget)?;
    for row in &mut rows {
        row.order.pop();
        // Values of a repeated field stand in the order in which they were indexed.
        row.fields.values_mut().for_each(|values| values.reverse());
    }
    let (counts, ranges) = facets.finish(request.top);
    Ok(Answer { total, rows, counts, ranges, groups: None })
}

/// Counts need text that is found as a whole, ranges numbers; a field that no document has counts nothing.
fn check_facets(request: &Request, schema: &Schema) -> Result<(), SearchError> {
    let refused = |name: &str, found: &str, expected: &str| {
        Err(SearchError::Refused(format!(
            "unexpected docvalues type {found} for field '{name}' (expected one of {expected}). Re-index with correct \
             docvalues type."
        )))
    };
    let is_right = |name: &str, wanted: FieldType| schema.get(name).is_none_or(|kind| kind == wanted);
    let found = |name: &str| match schema.get(name) {
        Some(FieldType::Double) => "SORTED_NUMERIC",
        Some(FieldType::String) => "SORTED_SET",
        _ => "NONE",
    };
    for name in request.counts.iter().flatten() {
        if !is_right(name, FieldType::String) {
            return refused(name, found(name), "[SORTED, SORTED_SET]");
        }
    }
    for name in request.ranges.iter().flat_map(BTreeMap::keys) {
        if !is_right(name, FieldType::Double) {
            return refused(name, found(name), "[NUMERIC, SORTED_NUMERIC]");
        }
    }
    Ok(())
}

/// Facets of matches.
struct Facets<'a> {
    request: &'a Request,
    counts: Option<Counts>,
    ranges: Option<Counts>,
}

impl<'a> Facets<'a> {
    fn new(request: &'a Request) -> Facets<'a> {
        let empty = |names: Vec<&String>| names.into_iter().map(|name| (name.clone(), BTreeMap::new())).collect();
        Facets {
            request,
            counts: request.counts.as_ref().map(|names| empty(names.iter().collect())),
            ranges: request.ranges.as_ref().map(|ranges| empty(ranges.keys().collect())),
        }
    }

    fn count(&mut self, part: &Part, matched: &Bits, budget: &mut Budget<'_>) -> Result<(), SearchError> {
        for (name, values) in self.counts.iter_mut().flatten() {
            let Some(field) = part.segment.field(Kind::Words, name) else { continue };
            let mut stream = field.dictionary.stream();
            let mut window = Window::new(WINDOW);
            while let Some((value, place)) = stream.next() {
                let found = part.segment.found(field, place, &mut window)?;
                let mut docs = part.segment.docs(&found, &mut window)?;
                let mut count = 0;
                while let Some((doc, _)) = docs.next()? {
                    budget.step()?;
                    count += u64::from(matched.has(doc));
                }
                if count > 0 {
                    *values.entry(String::from_utf8_lossy(value).into_owned()).or_default() += count;
                }
            }
        }
        for (name, values) in self.ranges.iter_mut().flatten() {
            let Some(field) = part.segment.field(Kind::Words, name) else { continue };
            for range in self.request.ranges.iter().flat_map(|ranges| ranges.get(name)).flatten() {
                let (min, max) = (range.min.unwrap_or(f64::NEG_INFINITY), range.max.unwrap_or(f64::INFINITY));
                let Some((low, high)) = bounds(min, max, range.has_min, range.has_max) else { continue };
                let mut docs = part.segment.points(field, low, high)?;
                // A document with several numbers of the range counts once.
                docs.sort_unstable();
                docs.dedup();
                budget.step()?;
                let count = docs.into_iter().filter(|doc| matched.has(*doc)).count() as u64;
                if count > 0 {
                    *values.entry(range.label.clone()).or_default() += count;
                }
            }
        }
        Ok(())
    }

    fn finish(self, top: usize) -> (Option<Counts>, Option<Counts>) {
        (self.counts.map(|counts| largest(counts, top)), self.ranges.map(|ranges| largest(ranges, top)))
    }
}

/// The largest counts of each field, of equal ones those of the first names.
fn largest(counts: Counts, top: usize) -> Counts {
    let of_field = |values: BTreeMap<String, u64>| {
        let mut values: Vec<(String, u64)> = values.into_iter().collect();
        values.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        values.truncate(top);
        values.into_iter().collect()
    };
    counts.into_iter().map(|(name, values)| (name, of_field(values))).collect()
}

/// The answer of all shards, each named by its place in the list, as [`super::unite`] does.
///
/// # Errors
/// When the order of the request is none.
pub fn unite(request: &Request, answers: Vec<Answer>) -> Result<(Answer, Vec<usize>), SearchError> {
    let parts = order_parts(&request.sort)?;
    let mut united = Answer::default();
    let mut rows: Vec<(usize, Row)> = Vec::new();
    for (shard, answer) in answers.into_iter().enumerate() {
        united.total += answer.total;
        rows.extend(answer.rows.into_iter().map(|row| (shard, row)));
        add_counts(&mut united.counts, answer.counts);
        add_counts(&mut united.ranges, answer.ranges);
    }
    rows.sort_by(|(_, one), (_, other)| compare(&parts, &one.order, &other.order));
    rows.truncate(request.limit);
    united.counts = united.counts.map(|counts| largest(counts, request.top));
    united.ranges = united.ranges.map(|ranges| largest(ranges, request.top));
    let (shards, rows) = rows.into_iter().unzip();
    united.rows = rows;
    Ok((united, shards))
}

/// The order of two rows. A shard that does not know a field has null for it, which is before all else.
fn compare(parts: &[OrderPart<'_>], one: &[SortValue], other: &[SortValue]) -> Ordering {
    for (part, (one, other)) in parts.iter().zip(one.iter().zip(other)) {
        let order = match (one, other) {
            (SortValue::Text(one), SortValue::Text(other)) => one.cmp(other),
            (SortValue::Number(one), SortValue::Number(other)) => sortable(*one).cmp(&sortable(*other)),
            (SortValue::Text(None), _) => Ordering::Less,
            (_, SortValue::Text(None)) => Ordering::Greater,
            (SortValue::Number(_), _) => Ordering::Less,
            _ => Ordering::Greater,
        };
        let is_descending = part.name.is_none() || part.reverse;
        let order = if is_descending { order.reverse() } else { order };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// What a value of an order is, as answers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderType {
    /// A score.
    Score,
    /// A value of a field.
    Field,
}

/// What the values of the orders of rows are.
///
/// # Errors
/// When the order of the request is none.
pub fn order_types(sort: &[String]) -> Result<Vec<OrderType>, SearchError> {
    let parts = order_parts(sort)?;
    Ok(parts.iter().map(|part| if part.name.is_none() { OrderType::Score } else { OrderType::Field }).collect())
}
