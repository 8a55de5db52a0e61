//! Facets: counts of values and of ranges over all matches, and matches narrowed to values.

use std::collections::{BTreeMap, BTreeSet};

use fst::Streamer;

use super::bits::Bits;
use super::budget::Budget;
use super::{Counts, Request, SearchError};
use crate::analysis::Analyzer;
use crate::query::{Query, number_range};
use crate::segment::{Kind, Part, WINDOW, Window, bounds};

/// A range of numbers with its names.
struct Range {
    field: String,
    label: String,
    bounds: Option<(u64, u64)>,
}

/// What is counted.
pub(crate) struct Facets {
    fields: Vec<String>,
    counts: Option<Counts>,
    ranges: Option<(Vec<Range>, Counts)>,
}

impl Facets {
    pub(crate) fn new(request: &Request, parts: &[Part], analyzer: &Analyzer) -> Result<Facets, SearchError> {
        let mut fields = Vec::new();
        let mut counts = None;
        if let Some(names) = request.counts.as_ref().filter(|_| parts.iter().any(|part| part.segment.has_facets())) {
            for name in names {
                if !parts.iter().any(|part| part.segment.field(Kind::Facets, name).is_some()) {
                    return Err(SearchError::Refused(format!("dim \"{name}\" does not exist")));
                }
            }
            fields = names.clone();
            counts = Some(names.iter().map(|name| (name.clone(), BTreeMap::new())).collect());
        }
        let ranges = request.ranges.as_ref().map(|ranges| read_ranges(ranges, analyzer)).transpose()?;
        Ok(Facets { fields, counts, ranges })
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.counts.is_some() || self.ranges.is_some()
    }

    /// Counts the matches of a part.
    pub(crate) fn count(&mut self, part: &Part, matched: &Bits, budget: &mut Budget<'_>) -> Result<(), SearchError> {
        for name in &self.fields {
            let Some(field) = part.segment.field(Kind::Facets, name) else { continue };
            let Some(values) = self.counts.as_mut().and_then(|counts| counts.get_mut(name)) else { continue };
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
        let Some((ranges, counts)) = &mut self.ranges else { return Ok(()) };
        for range in ranges {
            let Some((low, high)) = range.bounds else { continue };
            let Some(field) = part.segment.field(Kind::Words, &range.field) else { continue };
            let mut count = 0;
            for (doc, value) in part.segment.column(&field.meta.numbers)?.iter() {
                budget.step()?;
                count += u64::from((low..=high).contains(&(value - 1)) && matched.has(doc));
            }
            if let Some(sum) = counts.get_mut(&range.field).and_then(|counts| counts.get_mut(&range.label)) {
                *sum += count;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> (Option<Counts>, Option<Counts>) {
        (self.counts, self.ranges.map(|(_, counts)| counts))
    }
}

fn read_ranges(
    asked: &BTreeMap<String, BTreeMap<String, String>>,
    analyzer: &Analyzer,
) -> Result<(Vec<Range>, Counts), SearchError> {
    let mut ranges = Vec::new();
    let mut counts = Counts::new();
    for (field, labels) in asked {
        let sums = counts.entry(field.clone()).or_default();
        for (label, text) in labels {
            let query = number_range(text, analyzer).map_err(SearchError::Query)?;
            let Some(Query::NumberRange { lower, upper, has_lower, has_upper, .. }) = query else {
                return Err(SearchError::Refused(format!("{text} was not a well-formed range specification")));
            };
            let bounds = bounds(lower, upper, has_lower, has_upper);
            ranges.push(Range { field: field.clone(), label: label.clone(), bounds });
            sums.insert(label.clone(), 0);
        }
    }
    Ok((ranges, counts))
}

/// Matches narrowed to values of fields.
pub(crate) struct Drilldown<'a>(Vec<(&'a str, &'a [String])>);

impl<'a> Drilldown<'a> {
    pub(crate) fn new(asked: &'a [Vec<String>]) -> Result<Drilldown<'a>, SearchError> {
        let mut known = BTreeSet::new();
        let mut fields = Vec::new();
        for asked in asked {
            let Some((field, values)) = asked.split_first() else { continue };
            if !known.insert(field) {
                return Err(SearchError::Refused(format!("dimension '{field}' was already added")));
            }
            fields.push((field.as_str(), values));
        }
        Ok(Drilldown(fields))
    }

    /// Documents of a part with one of the values of each field; `None`: all.
    pub(crate) fn documents(&self, part: &Part, budget: &mut Budget<'_>) -> Result<Option<Bits>, SearchError> {
        let mut all: Option<Bits> = None;
        for (name, values) in &self.0 {
            let mut bits = Bits::new(part.segment.document_count());
            if let Some(field) = part.segment.field(Kind::Facets, name) {
                let mut window = Window::new(WINDOW);
                let mut add = |place: u64| -> Result<(), SearchError> {
                    let found = part.segment.found(field, place, &mut window)?;
                    let mut docs = part.segment.docs(&found, &mut window)?;
                    while let Some((doc, _)) = docs.next()? {
                        budget.step()?;
                        bits.set(doc);
                    }
                    Ok(())
                };
                if values.is_empty() {
                    let mut stream = field.dictionary.stream();
                    while let Some((_, place)) = stream.next() {
                        add(place)?;
                    }
                }
                for place in values.iter().filter_map(|value| field.dictionary.get(value)) {
                    add(place)?;
                }
            }
            match &mut all {
                Some(all) => all.intersect(&bits),
                None => all = Some(bits),
            }
        }
        Ok(all)
    }
}
