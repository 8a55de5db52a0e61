//! Phrases: documents that have all words, and how often these stand in order there.
//!
//! With slop the count is Lucene's: the word that is farthest behind is moved on, each narrowest window counts
//! `1 / (1 + moves)`, and words that stand several times in the phrase never share a place of the text.

use super::SearchError;
use super::budget::Budget;
use super::matcher::END;
use super::plan::Slot;
use crate::segment::{Docs, Found, Part, Positions};

/// One word of a slot.
pub(super) struct Word {
    docs: Docs,
    positions: Positions,
    doc: u32,
    is_started: bool,
    /// Positions of the document that were not read yet.
    unread: u32,
}

/// One position of the phrase.
pub(super) struct Place {
    offset: i64,
    words: Vec<Word>,
    /// Positions in the current document, ascending.
    pub(super) positions: Vec<u32>,
    /// Where it stands among them, while windows are counted.
    at: usize,
    /// The group of places that have a word in common.
    group: Option<usize>,
}

/// A phrase in one part.
pub(crate) struct Phrase {
    places: Vec<Place>,
    slop: i64,
    groups: Vec<Vec<usize>>,
    frequency: f32,
}

impl Word {
    fn new(found: &Found, part: &Part, budget: &mut Budget<'_>) -> Result<Word, SearchError> {
        let (docs, positions) = (budget.docs(part, found)?, budget.positions(part, found)?);
        Ok(Word { docs, positions, doc: 0, is_started: false, unread: 0 })
    }

    fn advance(&mut self, target: u32, budget: &mut Budget<'_>) -> Result<u32, SearchError> {
        while !self.is_started || self.doc < target {
            budget.step()?;
            self.positions.skip(u64::from(self.unread))?;
            self.is_started = true;
            (self.doc, self.unread) = self.docs.next()?.unwrap_or((END, 0));
        }
        Ok(self.doc)
    }
}

impl Place {
    /// Where any of these words of a part stands, of a phrase at this offset.
    pub(super) fn new(
        offset: i64,
        found: &[&Found],
        part: &Part,
        budget: &mut Budget<'_>,
    ) -> Result<Place, SearchError> {
        let words = found.iter().map(|found| Word::new(found, part, budget)).collect::<Result<_, SearchError>>()?;
        Ok(Place { offset, words, positions: Vec::new(), at: 0, group: None })
    }

    /// The first document from `target` on that has one of the words, or [`END`].
    pub(super) fn advance(&mut self, target: u32, budget: &mut Budget<'_>) -> Result<u32, SearchError> {
        let mut found = END;
        for word in &mut self.words {
            found = found.min(word.advance(target, budget)?);
        }
        Ok(found)
    }

    /// Reads the positions in a document.
    pub(super) fn read(&mut self, doc: u32) -> Result<(), SearchError> {
        self.positions.clear();
        let mut some = Vec::new();
        for word in self.words.iter_mut().filter(|word| word.doc == doc) {
            word.positions.read(word.unread, &mut some)?;
            word.unread = 0;
            self.positions.extend_from_slice(&some);
        }
        if self.words.len() > 1 {
            self.positions.sort_unstable();
        }
        self.at = 0;
        Ok(())
    }

    /// Where the phrase would begin.
    fn start(&self) -> i64 {
        self.positions.get(self.at).map_or(i64::MAX, |position| i64::from(*position) - self.offset)
    }
}

impl Phrase {
    /// The phrase in a part; `None`: one of its positions has no word there.
    pub(crate) fn new(
        slots: &[Slot],
        slop: u32,
        (part, place): (&Part, usize),
        budget: &mut Budget<'_>,
    ) -> Result<Option<Phrase>, SearchError> {
        let mut places = Vec::with_capacity(slots.len());
        for slot in slots {
            let found: Vec<&Found> = slot.found.iter().filter_map(|found| found[place].as_ref()).collect();
            if found.is_empty() {
                return Ok(None);
            }
            places.push(Place::new(i64::from(slot.position), &found, part, budget)?);
        }
        let groups = group(slots);
        for (number, members) in groups.iter().enumerate() {
            for member in members {
                places[*member].group = Some(number);
            }
        }
        Ok(Some(Phrase { places, slop: i64::from(slop), groups, frequency: 0.0 }))
    }

    /// How much of the phrase the current document has.
    pub(crate) fn frequency(&self) -> f32 {
        self.frequency
    }

    pub(crate) fn advance(&mut self, target: u32, budget: &mut Budget<'_>) -> Result<u32, SearchError> {
        let mut target = target;
        'next: loop {
            for place in &mut self.places {
                let doc = place.advance(target, budget)?;
                if doc == END {
                    return Ok(END);
                }
                if doc > target {
                    target = doc;
                    continue 'next;
                }
            }
            for place in &mut self.places {
                place.read(target)?;
            }
            self.frequency = if self.slop == 0 { self.exact(budget)? } else { self.windows(budget)? };
            if self.frequency > 0.0 {
                return Ok(target);
            }
            target += 1;
        }
    }

    fn exact(&self, budget: &mut Budget<'_>) -> Result<f32, SearchError> {
        let Some((first, rest)) = self.places.split_first() else { return Ok(0.0) };
        let mut count = 0;
        for position in &first.positions {
            budget.step()?;
            let is_whole = rest.iter().all(|place| {
                let wanted = i64::from(*position) - first.offset + place.offset;
                u32::try_from(wanted).is_ok_and(|wanted| place.positions.binary_search(&wanted).is_ok())
            });
            count += u32::from(is_whole);
        }
        Ok(count as f32)
    }

    /// Moves a place to its next position; `None`: there is none.
    fn step(&mut self, place: usize, end: &mut i64) -> Option<()> {
        let place = &mut self.places[place];
        place.at += 1;
        if place.at >= place.positions.len() {
            return None;
        }
        *end = place.start().max(*end);
        Some(())
    }

    /// Another place of the group that stands at the same position of the text.
    fn collision(&self, place: usize) -> Option<usize> {
        let at = |place: usize| self.places[place].positions.get(self.places[place].at);
        let members = &self.groups[self.places[place].group?];
        members.iter().copied().find(|other| *other != place && at(*other) == at(place))
    }

    /// Moves places of a group on until no two stand at the same position. False: there are no more positions.
    fn part_ways(&mut self, place: usize, end: &mut i64, budget: &mut Budget<'_>) -> Result<bool, SearchError> {
        let mut place = place;
        while let Some(other) = self.collision(place) {
            budget.step()?;
            let key = |place: usize| (self.places[place].start(), self.places[place].offset);
            if key(other) <= key(place) {
                place = other;
            }
            if self.step(place, end).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Places every word first, those of a group one behind the other. False: there are too few positions.
    fn place_first(&mut self, end: &mut i64, budget: &mut Budget<'_>) -> Result<bool, SearchError> {
        for group in 0..self.groups.len() {
            let members = self.groups[group].clone();
            if members.iter().all(|member| self.places[*member].words.len() == 1) {
                for (rank, member) in members.into_iter().enumerate() {
                    let place = &mut self.places[member];
                    place.at = rank;
                    if rank >= place.positions.len() {
                        return Ok(false);
                    }
                }
                continue;
            }
            for member in members {
                while let Some(other) = self.collision(member) {
                    budget.step()?;
                    let later = if self.places[other].offset > self.places[member].offset { other } else { member };
                    if self.step(later, end).is_none() {
                        return Ok(false);
                    }
                }
            }
        }
        *end = self.places.iter().map(Place::start).max().unwrap_or(i64::MIN);
        Ok(true)
    }

    /// The place that is farthest behind, but for one.
    fn least(&self, but: Option<usize>) -> Option<usize> {
        let places = (0..self.places.len()).filter(|place| Some(*place) != but);
        places.min_by_key(|place| (self.places[*place].start(), self.places[*place].offset))
    }

    fn windows(&mut self, budget: &mut Budget<'_>) -> Result<f32, SearchError> {
        let mut end = i64::MIN;
        if !self.place_first(&mut end, budget)? {
            return Ok(0.0);
        }
        let worth = |length: i64, slop: i64| if length <= slop { 1.0 / (length + 1) as f32 } else { 0.0 };
        let mut sum = 0.0;
        let Some(mut place) = self.least(None) else { return Ok(0.0) };
        let next =
            |phrase: &Phrase, place| phrase.least(Some(place)).map_or(i64::MAX, |least| phrase.places[least].start());
        let mut limit = next(self, place);
        let mut length = end - self.places[place].start();
        while self.step(place, &mut end).is_some() && self.part_ways(place, &mut end, budget)? {
            budget.step()?;
            let start = self.places[place].start();
            if start > limit {
                sum += worth(length, self.slop);
                let Some(least) = self.least(None) else { break };
                place = least;
                limit = next(self, place);
                length = end - self.places[place].start();
            } else {
                length = length.min(end - start);
            }
        }
        Ok(sum + worth(length, self.slop))
    }
}

/// Groups of slots that have a word in common, each in the order of the phrase.
fn group(slots: &[Slot]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (place, slot) in slots.iter().enumerate() {
        let shares = |member: &usize| slots[*member].words.iter().any(|word| slot.words.contains(word));
        let (mut own, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(|members| members.iter().any(shares));
        let mut joined: Vec<usize> = own.drain(..).flatten().collect();
        joined.push(place);
        joined.sort_unstable();
        groups = rest;
        groups.push(joined);
    }
    groups.retain(|members| members.len() > 1);
    groups.sort_unstable();
    groups
}
