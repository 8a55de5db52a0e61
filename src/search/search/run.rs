//! One search over the parts of a shard: matches are counted, the first of them kept, facets and groups counted.

use std::collections::{BTreeMap, BinaryHeap};

use super::bits::Bits;
use super::budget::Budget;
use super::facets::{Drilldown, Facets};
use super::groups::Groups;
use super::matcher::{END, Matcher};
use super::order::{self, Live, Order, compare, last_number, or_by_score};
use super::plan::Planner;
use super::{Answer, Highlight, Limits, Request, Row, SearchError, SortValue, Stored};
use crate::analysis::Analyzer;
use crate::document::ID;
use crate::highlight;
use crate::query::{self, Query};
use crate::segment::{Column, Field, Kind, Part};

/// A match, in its place of the order of its part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hit {
    pub(crate) keys: Vec<u64>,
    pub(crate) number: u64,
    pub(crate) doc: u32,
    /// The score's bits.
    pub(crate) score: u32,
}

/// The first matches of a part.
pub(crate) struct Top {
    limit: usize,
    hits: BinaryHeap<Hit>,
}

impl Top {
    pub(crate) fn new(limit: usize) -> Top {
        Top { limit, hits: BinaryHeap::new() }
    }

    /// Adds a match if it is one of the first.
    pub(crate) fn add(&mut self, keys: &[u64], number: u64, doc: u32, score: f32) {
        if self.hits.len() >= self.limit {
            let Some(mut last) = self.hits.peek_mut() else { return };
            if (keys, number) >= (last.keys.as_slice(), last.number) {
                return;
            }
            last.keys.clear();
            last.keys.extend_from_slice(keys);
            (last.number, last.doc, last.score) = (number, doc, score.to_bits());
            return;
        }
        self.hits.push(Hit { keys: keys.to_vec(), number, doc, score: score.to_bits() });
    }

    pub(crate) fn into_hits(self) -> Vec<Hit> {
        self.hits.into_sorted_vec()
    }
}

/// A match that is told apart from those of other parts.
pub(crate) struct Placed {
    pub(crate) order: Vec<SortValue>,
    pub(crate) part: usize,
    pub(crate) doc: u32,
}

/// Matches of all parts in their order, so many of them.
pub(crate) fn first(sort: &[super::Sort], mut all: Vec<Placed>, limit: usize) -> Vec<Placed> {
    all.sort_by(|a, b| {
        compare(sort, &a.order, &b.order).then_with(|| last_number(&a.order).cmp(&last_number(&b.order)))
    });
    all.truncate(limit);
    all
}

/// Documents of one partition: those whose ids begin so.
struct Partition {
    ids: Option<Column>,
    from: u64,
    to: u64,
}

impl Partition {
    fn new(part: &Part, name: &str) -> Result<Partition, SearchError> {
        let Some(field) = part.segment.field(Kind::Words, ID) else {
            return Ok(Partition { ids: None, from: 0, to: 0 });
        };
        let from = first_place(field, &format!("{name}:"));
        let to = first_place(field, &format!("{name};"));
        Ok(Partition { ids: Some(part.segment.column(&field.meta.greatest)?), from, to })
    }

    fn has(&self, doc: u32) -> bool {
        self.ids.as_ref().is_some_and(|ids| {
            let place = ids.get(doc);
            place > self.from && place <= self.to
        })
    }
}

/// The place of the first word from a text on.
fn first_place(field: &Field, text: &str) -> u64 {
    use fst::{IntoStreamer, Streamer};
    let mut stream = field.dictionary.range().ge(text).into_stream();
    stream.next().map_or(u64::MAX - 1, |(_, place)| place)
}

/// A search of the parts of a shard.
pub(crate) struct Run<'a> {
    pub(crate) parts: &'a [Part],
    pub(crate) analyzer: &'a Analyzer,
    pub(crate) request: &'a Request,
    pub(crate) query: &'a Query,
}

pub(super) fn search(
    parts: &[Part],
    analyzer: &Analyzer,
    request: &Request,
    limits: &Limits,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Answer, SearchError> {
    let query = query::parse_within(&request.query, analyzer, limits).map_err(SearchError::Query)?;
    let sort = or_by_score(&request.sort);
    let mut budget = Budget::new(limits, go_on);
    let drilldown = Drilldown::new(&request.drilldown)?;
    let mut facets = Facets::new(request, parts, analyzer)?;
    order::check(sort, parts)?;
    if let Some(group) = &request.group {
        order::check(&group.sort, parts)?;
    }
    let node = Planner::new(parts, &mut budget).plan(&query)?;
    let run = Run { parts, analyzer, request, query: &query };
    let mut groups = request.group.as_ref().map(|group| Groups::new(group, sort, request.limit));
    let mut total = 0;
    let mut all = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        budget.start_part();
        let drilldown = drilldown.documents(part, &mut budget)?;
        if let Some(groups) = &mut groups {
            groups.start(place, part)?;
        }
        let matched = facets.is_asked().then(|| Bits::new(part.segment.document_count()));
        let mut in_part = InPart::new(matched);
        let matcher = Matcher::new(&node, part, place, &mut budget)?;
        in_part.collect((place, part), matcher, drilldown, (request, groups.as_mut()), &mut budget)?;
        total += in_part.total;
        all.append(&mut in_part.hits);
        if let Some(matched) = in_part.matched {
            facets.count(part, &matched, &mut budget)?;
        }
        if let Some(groups) = &mut groups {
            groups.end()?;
        }
    }
    let rows = run.rows(first(sort, all, request.limit), &mut budget)?;
    let groups = groups.map(|groups| groups.finish(&run, &mut budget)).transpose()?;
    let (counts, ranges) = facets.finish();
    Ok(Answer { total, rows, counts, ranges, groups })
}

/// What a part's matches come to.
pub(crate) struct InPart {
    /// The matches, where facets are counted.
    pub(crate) matched: Option<Bits>,
    pub(crate) total: u64,
    /// The first of them, where there are no groups.
    pub(crate) hits: Vec<Placed>,
}

impl InPart {
    pub(crate) fn new(matched: Option<Bits>) -> InPart {
        InPart { matched, total: 0, hits: Vec::new() }
    }

    pub(crate) fn collect(
        &mut self,
        (place, part): (usize, &Part),
        mut matcher: Matcher,
        drilldown: Option<Bits>,
        (request, mut groups): (&Request, Option<&mut Groups<'_>>),
        budget: &mut Budget<'_>,
    ) -> Result<(), SearchError> {
        let live = Live::new(part)?;
        let order = Order::new(or_by_score(&request.sort), part)?;
        let after = request.after.as_ref().map(|after| order.after(after)).transpose()?;
        let partition = request.partition.as_ref().map(|name| Partition::new(part, name)).transpose()?;
        let mut top = Top::new(request.limit);
        let mut keys = Vec::new();
        let mut doc = matcher.advance(0, budget)?;
        while doc != END {
            budget.step()?;
            let is_match = live.has(doc)
                && partition.as_ref().is_none_or(|partition| partition.has(doc))
                && drilldown.as_ref().is_none_or(|drilldown| drilldown.has(doc));
            if is_match {
                self.total += 1;
                if let Some(matched) = &mut self.matched {
                    matched.set(doc);
                }
                let number = live.numbers.get(doc);
                if let Some(groups) = &mut groups {
                    let score = matcher.score(doc, budget)?;
                    groups.add(doc, score, number, budget)?;
                } else if request.limit > 0 {
                    let score = matcher.score(doc, budget)?;
                    order.keys(doc, score, number, &mut keys);
                    let is_behind = |(after, last): &(Vec<u64>, u64)| (&keys, number) > (after, *last);
                    if after.as_ref().is_none_or(is_behind) {
                        top.add(&keys, number, doc, score);
                    }
                }
            }
            doc = matcher.advance(doc + 1, budget)?;
        }
        self.hits.extend(top.into_hits().into_iter().map(|hit| {
            let order = order.values(hit.doc, f32::from_bits(hit.score), hit.number);
            Placed { order, part: place, doc: hit.doc }
        }));
        Ok(())
    }
}

impl Run<'_> {
    /// The rows of matches.
    pub(crate) fn rows(&self, hits: Vec<Placed>, budget: &mut Budget<'_>) -> Result<Vec<Row>, SearchError> {
        let mut rows = Vec::with_capacity(hits.len());
        for hit in hits {
            budget.step()?;
            rows.push(self.row(hit)?);
        }
        Ok(rows)
    }

    fn row(&self, hit: Placed) -> Result<Row, SearchError> {
        let stored = self.parts[hit.part].segment.stored(hit.doc)?;
        let is_shown = |name: &str| match &self.request.include_fields {
            Some(names) => names.iter().any(|shown| shown == name),
            None => true,
        };
        let mut fields: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
        for (name, value) in stored.fields.into_iter().filter(|(name, _)| is_shown(name)) {
            fields.entry(name).or_default().push(value);
        }
        let highlights = self.request.highlight.as_ref().map(|how| self.highlights(&fields, how));
        for values in fields.values_mut() {
            values.reverse();
        }
        Ok(Row { id: stored.id, order: hit.order, fields, highlights })
    }

    fn highlights(&self, fields: &BTreeMap<String, Vec<Stored>>, how: &Highlight) -> BTreeMap<String, Vec<String>> {
        let mut output = BTreeMap::new();
        for name in &how.fields {
            let mut fragments = Vec::new();
            for value in fields.get(name).into_iter().flatten() {
                if let Stored::Text(text) = value {
                    fragments.extend(highlight::fragments(self.query, self.analyzer, name, text, how));
                }
            }
            output.insert(name.clone(), fragments);
        }
        output
    }
}
