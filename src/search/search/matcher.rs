//! Documents of one part that a planned query matches, in their order, with their scores.

use super::SearchError;
use super::bits::Bits;
use super::budget::Budget;
use super::intervals::Intervals;
use super::phrase::Phrase;
use super::plan::{Node, Words, documents};
use super::similarity::Lengths;
use crate::query::Occur;
use crate::segment::{Column, Docs, Part, norm_value};

/// Behind the last document.
pub(crate) const END: u32 = u32::MAX;

/// Length norms of a field in one part, and what they do to scores by BM25.
pub(crate) struct Norms(Option<Column>, Option<Lengths>);

impl Norms {
    /// The score of a frequency under a weight.
    fn score(&self, doc: u32, frequency: f32, weight: f32) -> f32 {
        if let Some(lengths) = &self.1 {
            return lengths.score(frequency, self.0.as_ref().map(|norms| norms.get(doc) as u8), weight);
        }
        let raw = f64::from(frequency).sqrt() as f32 * weight;
        match &self.0 {
            Some(norms) => raw * norm_value(norms.get(doc) as u8),
            None => raw,
        }
    }
}

/// Matches of a node. Each stands before its first document until it is advanced.
pub(crate) enum Matcher {
    Nothing,
    Set { bits: Bits, doc: u32, score: f32 },
    Term { docs: Docs, doc: u32, frequency: u32, weight: f32, norms: Norms },
    Number { docs: Vec<u32>, at: usize, frequency: u32, weight: f32 },
    Phrase { phrase: Box<Phrase>, doc: u32, weight: f32, norms: Norms },
    Intervals { intervals: Box<Intervals>, doc: u32, weight: f32 },
    Boolean(Box<Boolean>),
}

/// Matches of a boolean query.
pub(crate) struct Boolean {
    must: Vec<Matcher>,
    should: Vec<Matcher>,
    not: Vec<Matcher>,
    coord: Vec<f32>,
    /// How many of `should` have to match.
    minimum: u32,
    doc: u32,
}

impl Matcher {
    /// The matcher of a node in the part of this place.
    pub(crate) fn new(node: &Node, part: &Part, place: usize, budget: &mut Budget<'_>) -> Result<Matcher, SearchError> {
        budget.step()?;
        Ok(match node {
            Node::Nothing => Matcher::Nothing,
            Node::Constant { query, score, .. } => {
                Matcher::Set { bits: documents(query, part, budget)?, doc: 0, score: *score }
            }
            Node::Words { words, weight, lengths, .. } => {
                Matcher::words(words, (*weight, lengths), (part, place), budget)?
            }
            Node::Boolean { clauses, coord, minimum, .. } => {
                let (coord, minimum) = (coord.clone(), *minimum);
                let (must, should, not) = (Vec::new(), Vec::new(), Vec::new());
                let mut boolean = Boolean { must, should, not, coord, minimum, doc: 0 };
                for (occur, node) in clauses {
                    let matcher = Matcher::new(node, part, place, budget)?;
                    match (occur, matcher) {
                        (Occur::Must, Matcher::Nothing) => return Ok(Matcher::Nothing),
                        (_, Matcher::Nothing) => {}
                        (Occur::Must, matcher) => boolean.must.push(matcher),
                        (Occur::Should, matcher) => boolean.should.push(matcher),
                        (Occur::MustNot, matcher) => boolean.not.push(matcher),
                    }
                }
                let is_short = boolean.should.len() < minimum as usize;
                if is_short || boolean.must.is_empty() && boolean.should.is_empty() {
                    return Ok(Matcher::Nothing);
                }
                Matcher::Boolean(Box::new(boolean))
            }
        })
    }

    fn words(
        words: &Words,
        (weight, lengths): (f32, &Option<Lengths>),
        (part, place): (&Part, usize),
        budget: &mut Budget<'_>,
    ) -> Result<Matcher, SearchError> {
        let norms = |field: &str, budget: &mut Budget<'_>| -> Result<Norms, SearchError> {
            Ok(Norms(budget.norms(part, field)?, lengths.clone()))
        };
        Ok(match words {
            Words::Term { field, found } => match &found[place] {
                Some(found) => {
                    let docs = budget.docs(part, found)?;
                    Matcher::Term { docs, doc: 0, frequency: 0, weight, norms: norms(field, budget)? }
                }
                None => Matcher::Nothing,
            },
            Words::Number { docs } => Matcher::Number { docs: docs[place].clone(), at: 0, frequency: 0, weight },
            Words::Phrase { field, slots, slop } => match Phrase::new(slots, *slop, (part, place), budget)? {
                Some(phrase) => {
                    Matcher::Phrase { phrase: Box::new(phrase), doc: 0, weight, norms: norms(field, budget)? }
                }
                None => Matcher::Nothing,
            },
            Words::Intervals { field, source, words } => {
                let intervals = Box::new(Intervals::new((field, source, words), (part, place), budget)?);
                Matcher::Intervals { intervals, doc: 0, weight }
            }
        })
    }

    /// Whether it stands at a document: not before the first one.
    fn doc(&self) -> Option<u32> {
        match self {
            Matcher::Nothing => Some(END),
            Matcher::Set { doc, .. } | Matcher::Phrase { doc, .. } | Matcher::Intervals { doc, .. } => {
                doc.checked_sub(1)
            }
            Matcher::Term { doc, .. } => doc.checked_sub(1),
            Matcher::Number { docs, at, frequency, .. } => {
                (*frequency > 0).then(|| docs.get(*at).copied().unwrap_or(END))
            }
            Matcher::Boolean(boolean) => boolean.doc.checked_sub(1),
        }
        .map(|doc| if doc == END - 1 { END } else { doc })
    }

    /// The first match from `target` on, or [`END`]. Targets never go back.
    pub(crate) fn advance(&mut self, target: u32, budget: &mut Budget<'_>) -> Result<u32, SearchError> {
        if let Some(doc) = self.doc().filter(|doc| *doc >= target) {
            return Ok(doc);
        }
        let found = match self {
            Matcher::Nothing => END,
            Matcher::Set { bits, doc, .. } => {
                let next = bits.next(target).unwrap_or(END);
                *doc = next.saturating_add(1);
                next
            }
            Matcher::Term { docs, doc, frequency, .. } => loop {
                match docs.next()? {
                    Some((next, _)) if next < target => budget.step()?,
                    Some((next, times)) => {
                        (*doc, *frequency) = (next + 1, times);
                        break next;
                    }
                    None => {
                        *doc = END;
                        break END;
                    }
                }
            },
            Matcher::Number { docs, at, frequency, .. } => {
                *at += docs[*at..].partition_point(|doc| *doc < target);
                let found = docs.get(*at).copied().unwrap_or(END);
                *frequency = docs[*at..].iter().take_while(|doc| **doc == found).count().max(1) as u32;
                found
            }
            Matcher::Phrase { phrase, doc, .. } => {
                let found = phrase.advance(target, budget)?;
                *doc = found.saturating_add(1);
                found
            }
            Matcher::Intervals { intervals, doc, .. } => {
                let found = intervals.advance(target, budget)?;
                *doc = found.saturating_add(1);
                found
            }
            Matcher::Boolean(boolean) => {
                let found = boolean.advance(target, budget)?;
                boolean.doc = found.saturating_add(1);
                found
            }
        };
        Ok(found)
    }

    /// The score of the document at which it stands.
    pub(crate) fn score(&mut self, doc: u32, budget: &mut Budget<'_>) -> Result<f32, SearchError> {
        Ok(match self {
            Matcher::Nothing => 0.0,
            Matcher::Set { score, .. } => *score,
            Matcher::Term { frequency, weight, norms, .. } => norms.score(doc, *frequency as f32, *weight),
            Matcher::Number { frequency, weight, .. } => f64::from(*frequency).sqrt() as f32 * *weight,
            Matcher::Phrase { phrase, weight, norms, .. } => norms.score(doc, phrase.frequency(), *weight),
            Matcher::Intervals { intervals, weight, .. } => *weight * intervals.share(),
            Matcher::Boolean(boolean) => boolean.score(doc, budget)?,
        })
    }
}

impl Boolean {
    fn advance(&mut self, target: u32, budget: &mut Budget<'_>) -> Result<u32, SearchError> {
        let mut target = target;
        'next: loop {
            budget.step()?;
            let mut found = target;
            if self.must.is_empty() {
                found = END;
                for matcher in &mut self.should {
                    found = found.min(matcher.advance(target, budget)?);
                }
            }
            if found == END {
                return Ok(END);
            }
            for matcher in &mut self.must {
                let doc = matcher.advance(found, budget)?;
                if doc > found {
                    if doc == END {
                        return Ok(END);
                    }
                    target = doc;
                    continue 'next;
                }
            }
            for matcher in &mut self.not {
                if matcher.advance(found, budget)? == found {
                    target = found + 1;
                    continue 'next;
                }
            }
            if self.minimum > 0 && self.matching(found, budget)? < self.minimum {
                target = found + 1;
                continue 'next;
            }
            return Ok(found);
        }
    }

    /// How many optional clauses match a document.
    fn matching(&mut self, doc: u32, budget: &mut Budget<'_>) -> Result<u32, SearchError> {
        let mut count = 0;
        for matcher in &mut self.should {
            count += u32::from(matcher.advance(doc, budget)? == doc);
        }
        Ok(count)
    }

    fn score(&mut self, doc: u32, budget: &mut Budget<'_>) -> Result<f32, SearchError> {
        let mut sum = 0.0f64;
        let mut count = 0;
        for matcher in self.must.iter_mut().chain(&mut self.should) {
            if matcher.advance(doc, budget)? == doc {
                sum += f64::from(matcher.score(doc, budget)?);
                count += 1;
            }
        }
        Ok(sum as f32 * self.coord.get(count).copied().unwrap_or(1.0))
    }
}
