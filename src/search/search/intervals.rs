//! Intervals: the documents in whose texts a function has some, and how many and how short these are.
//!
//! Of each document that may match, the positions of all words are read, and each function makes a list of intervals
//! of those of its parts, both ends ascending. No list is longer than the lists that it is made of.

use super::SearchError;
use super::budget::Budget;
use super::matcher::END;
use super::phrase::Place;
use super::words::places;
use crate::query::Query;
use crate::query::intervals::{Relation, Source};
use crate::segment::{Found, Kind, Part, WINDOW, Window};

/// What a word of a function stands for.
pub(crate) enum Leaf {
    /// The postings of one word in each part.
    Word(Vec<Option<Found>>),
    /// The words that a query matches, so many at most.
    Pattern(Box<Query>, usize),
}

/// A stretch of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Positions of the parts that it is made of.
    covered: i64,
    /// Positions between these parts.
    gaps: i64,
}

/// Intervals in one part.
pub(crate) struct Intervals {
    source: Source<usize>,
    /// By their places in `source`.
    words: Vec<Place>,
    extent: i64,
    /// How many and how short those of the current document are.
    frequency: f32,
}

impl Intervals {
    pub(crate) fn new(
        (field, source, leaves): (&str, &Source<usize>, &[Leaf]),
        (part, place): (&Part, usize),
        budget: &mut Budget<'_>,
    ) -> Result<Intervals, SearchError> {
        let mut words = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let found = match leaf {
                Leaf::Word(found) => found[place].clone().into_iter().collect(),
                Leaf::Pattern(query, most) => expanded(field, query, *most, part, budget)?,
            };
            words.push(Place::new(0, &found.iter().collect::<Vec<_>>(), part, budget)?);
        }
        Ok(Intervals { source: source.clone(), words, extent: source.extent(), frequency: 0.0 })
    }

    /// How many and how short the intervals of the current document are, from 0 to 1.
    pub(crate) fn share(&self) -> f32 {
        1.0 - 1.0 / (1.0 + self.frequency)
    }

    pub(crate) fn advance(&mut self, target: u32, budget: &mut Budget<'_>) -> Result<u32, SearchError> {
        let mut target = target;
        loop {
            budget.step()?;
            let next = may_match(&self.source, &mut self.words, target, budget)?;
            if next == END {
                return Ok(END);
            }
            if next > target {
                target = next;
                continue;
            }
            for word in &mut self.words {
                match word.advance(target, budget)? == target {
                    true => word.read(target)?,
                    false => word.positions.clear(),
                }
            }
            let found = of(&self.source, &|word| &self.words[word].positions[..], &mut || budget.step())?;
            if !found.is_empty() {
                let worth = |one: &Interval| 1.0 / (one.end - one.start + 1 - self.extent + 1).max(1) as f32;
                self.frequency = found.iter().map(worth).sum();
                return Ok(target);
            }
            target += 1;
        }
    }
}

/// The words of a part that a query of a function matches.
fn expanded(
    name: &str,
    query: &Query,
    most: usize,
    part: &Part,
    budget: &mut Budget<'_>,
) -> Result<Vec<Found>, SearchError> {
    let Some(field) = part.segment.field(Kind::Words, name) else { return Ok(Vec::new()) };
    let (mut found, mut window) = (Vec::new(), Window::new(WINDOW));
    places(field, query, &mut |place| {
        budget.word(query)?;
        if found.len() == most {
            let reason = format!("Automaton [{query}] expanded to too many terms (limit {most})");
            return Err(SearchError::TooCostly(reason));
        }
        found.push(part.segment.found(field, place, &mut window)?);
        Ok(())
    })?;
    Ok(found)
}

/// A document from `target` on such that none before it has intervals, or [`END`]. If it is `target` itself, it has the
/// words that intervals need.
fn may_match(
    source: &Source<usize>,
    words: &mut [Place],
    target: u32,
    budget: &mut Budget<'_>,
) -> Result<u32, SearchError> {
    budget.step()?;
    let mut all = |sources: &[Source<usize>], minimum: usize| -> Result<u32, SearchError> {
        let mut docs = Vec::with_capacity(sources.len());
        for source in sources {
            docs.push(may_match(source, words, target, budget)?);
            // The last of all of them decides.
            if minimum == sources.len() && docs.last() == Some(&END) {
                return Ok(END);
            }
        }
        docs.sort_unstable();
        Ok(minimum.checked_sub(1).and_then(|place| docs.get(place)).copied().unwrap_or(END))
    };
    match source {
        Source::Nothing => Ok(END),
        Source::Word(word) => words[*word].advance(target, budget),
        Source::Or(sources) => all(sources, 1),
        Source::Phrase(sources) | Source::Ordered(sources) => all(sources, sources.len()),
        Source::AtLeast { minimum, sources } => all(sources, *minimum),
        Source::Repeated { source, .. }
        | Source::MaxGaps(_, source)
        | Source::MaxWidth(_, source)
        | Source::Extended { source, .. } => may_match(source, words, target, budget),
        Source::Related { source, relation, reference } => {
            let doc = may_match(source, words, target, budget)?;
            match relation {
                Relation::NotContaining | Relation::NotContainedBy | Relation::NonOverlapping => Ok(doc),
                _ => Ok(doc.max(may_match(reference, words, target, budget)?)),
            }
        }
    }
}

/// What is told of each step of the work.
type Step<'a> = dyn FnMut() -> Result<(), SearchError> + 'a;

/// The intervals of a source in a text in which a word stands at the positions that `at` says, ascending.
pub(super) fn of<'p>(
    source: &Source<usize>,
    at: &dyn Fn(usize) -> &'p [u32],
    step: &mut Step<'_>,
) -> Result<Vec<Interval>, SearchError> {
    step()?;
    let list = match source {
        Source::Nothing => Vec::new(),
        Source::Word(word) => {
            let one = |position: &u32| {
                let position = i64::from(*position);
                Interval { start: position, end: position, covered: 1, gaps: 0 }
            };
            let mut list: Vec<Interval> = at(*word).iter().map(one).collect();
            // Two words of a pattern may stand at one position.
            list.dedup();
            list
        }
        Source::Or(sources) => {
            let mut all = Vec::new();
            for source in sources {
                all.extend(of(source, at, step)?);
            }
            minimal(all)
        }
        Source::Phrase(sources) => in_order(sources, true, at, step)?,
        Source::Ordered(sources) => in_order(sources, false, at, step)?,
        Source::AtLeast { minimum, sources } => at_least(*minimum, sources, at, step)?,
        Source::Repeated { source, times } => repeated(&of(source, at, step)?, *times),
        Source::MaxGaps(most, source) => {
            let mut list = of(source, at, step)?;
            list.retain(|one| one.gaps <= *most);
            list
        }
        Source::MaxWidth(most, source) => {
            let mut list = of(source, at, step)?;
            list.retain(|one| one.end - one.start < *most);
            list
        }
        Source::Extended { source, before, after } => {
            let longer = |one: Interval| {
                let (start, end) = ((one.start - before).max(0), one.end + after);
                Interval { start, end, covered: end - start + 1, gaps: one.gaps }
            };
            of(source, at, step)?.into_iter().map(longer).collect()
        }
        Source::Related { source, relation, reference } => {
            let mut list = of(source, at, step)?;
            let reference = if list.is_empty() { Vec::new() } else { of(reference, at, step)? };
            list.retain(|one| stands(one, *relation, &reference));
            list
        }
    };
    for _ in &list {
        step()?;
    }
    Ok(list)
}

/// So many intervals that follow one another, as one.
fn repeated(list: &[Interval], times: usize) -> Vec<Interval> {
    let width = |one: &Interval| one.end - one.start + 1;
    let mut covered: i64 = list.iter().take(times - 1).map(width).sum();
    let join = |(last, first): (&Interval, &Interval)| {
        covered += width(last);
        let of_these = covered;
        covered -= width(first);
        let gaps = last.end - first.start + 1 - of_these;
        Interval { start: first.start, end: last.end, covered: of_these, gaps }
    };
    list.iter().skip(times - 1).zip(list).map(join).collect()
}

fn joined(start: i64, end: i64, covered: i64) -> Interval {
    Interval { start, end, covered: end - start + 1, gaps: end - start + 1 - covered }
}

/// Those within which no other is, in their order.
fn minimal(mut list: Vec<Interval>) -> Vec<Interval> {
    list.sort_unstable_by_key(|one| (one.end, -one.start, one.gaps));
    let mut last = i64::MIN;
    list.retain(|one| {
        let is_minimal = one.start > last;
        last = last.max(one.start);
        is_minimal
    });
    list
}

/// Intervals of one of each source in their order; `close`: each begins right behind the one before.
fn in_order<'p>(
    sources: &[Source<usize>],
    close: bool,
    at: &dyn Fn(usize) -> &'p [u32],
    step: &mut Step<'_>,
) -> Result<Vec<Interval>, SearchError> {
    // Here `covered` counts what the parts cover so far.
    let mut before: Option<Vec<Interval>> = None;
    for source in sources {
        let list = of(source, at, step)?;
        let Some(left) = before else {
            before = Some(list);
            continue;
        };
        let follow = |one: Interval| {
            let last = left[..left.partition_point(|left| left.end < one.start)].last()?;
            let fits = !close || last.end + 1 == one.start;
            fits.then_some(Interval { start: last.start, covered: last.covered + one.covered, ..one })
        };
        let list = list.into_iter().filter_map(follow).collect();
        before = Some(minimal(list));
        if before.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
    }
    let whole = |one: Interval| {
        let whole = joined(one.start, one.end, one.covered);
        if close { Interval { gaps: 0, ..whole } } else { whole }
    };
    Ok(before.unwrap_or_default().into_iter().map(whole).collect())
}

/// Intervals of one of each of so many sources. At each end of one the narrowest begins where the last ones before it
/// do, of as many sources as are needed.
fn at_least<'p>(
    minimum: usize,
    sources: &[Source<usize>],
    at: &dyn Fn(usize) -> &'p [u32],
    step: &mut Step<'_>,
) -> Result<Vec<Interval>, SearchError> {
    let mut ends: Vec<(i64, usize, Interval)> = Vec::new();
    for (place, source) in sources.iter().enumerate() {
        ends.extend(of(source, at, step)?.into_iter().map(|one| (one.end, place, one)));
    }
    ends.sort_by_key(|(end, place, _)| (*end, *place));
    let mut last: Vec<Option<Interval>> = vec![None; sources.len()];
    let mut list = Vec::new();
    for some in ends.chunk_by(|a, b| a.0 == b.0) {
        for (_, place, one) in some {
            last[*place] = Some(*one);
        }
        let mut known: Vec<Interval> = last.iter().flatten().copied().collect();
        if known.len() < minimum {
            continue;
        }
        for _ in &known {
            step()?;
        }
        known.sort_unstable_by_key(|one| -one.start);
        known.truncate(minimum);
        let start = known.last().map_or(0, |one| one.start);
        list.push(joined(start, some[0].0, known.iter().map(|one| one.covered).sum()));
    }
    Ok(minimal(list))
}

/// Whether an interval stands so to one of a reference, both ends of which ascend.
fn stands(one: &Interval, relation: Relation, reference: &[Interval]) -> bool {
    let from_start = reference.get(reference.partition_point(|other| other.start < one.start));
    let contains = from_start.is_some_and(|other| other.end <= one.end);
    let to_end = reference.get(reference.partition_point(|other| other.end < one.end));
    let is_within = to_end.is_some_and(|other| other.start <= one.start);
    let reaching = reference.get(reference.partition_point(|other| other.end < one.start));
    let overlaps = reaching.is_some_and(|other| other.start <= one.end);
    match relation {
        Relation::Containing => contains,
        Relation::NotContaining => !contains,
        Relation::ContainedBy => is_within,
        Relation::NotContainedBy => !is_within,
        Relation::Overlapping => overlaps,
        Relation::NonOverlapping => !overlaps,
        Relation::Before => reference.last().is_some_and(|other| other.start > one.end),
        Relation::After => reference.first().is_some_and(|other| other.end < one.start),
    }
}

#[cfg(test)]
mod tests;
