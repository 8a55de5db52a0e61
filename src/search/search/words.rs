//! Words of a dictionary that a pattern, a range or a few edits select.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;

use fst::{Automaton, IntoStreamer, Streamer};

use super::regexp::{Id, Languages};
use super::{SearchError, too_costly};
use crate::query::Query;
use crate::segment::Field;

/// Words that a fuzzy word may stand for, the nearest first: a bound of Lucene.
pub(crate) const FUZZY_WORDS: usize = 50;
/// The greatest number of edits, and the places that a row of distances reaches to either side.
const EDITS: usize = 2;
const BAND: usize = 2 * EDITS + 1;

/// A machine that reads characters.
trait Machine {
    type State: Clone;
    fn start(&self) -> Self::State;
    fn step(&self, state: &Self::State, c: char) -> Option<Self::State>;
    fn is_match(&self, state: &Self::State) -> bool;
}

/// A machine of characters as one of bytes: a state and the bytes of a character that is not whole yet.
struct Utf8<M>(M);

#[derive(Clone)]
struct Utf8State<S> {
    inner: S,
    bytes: [u8; 4],
    length: usize,
}

impl<M: Machine> Automaton for Utf8<M> {
    type State = Option<Utf8State<M::State>>;

    fn start(&self) -> Self::State {
        Some(Utf8State { inner: self.0.start(), bytes: [0; 4], length: 0 })
    }

    fn is_match(&self, state: &Self::State) -> bool {
        state.as_ref().is_some_and(|state| state.length == 0 && self.0.is_match(&state.inner))
    }

    fn can_match(&self, state: &Self::State) -> bool {
        state.is_some()
    }

    fn accept(&self, state: &Self::State, byte: u8) -> Self::State {
        let mut next = state.clone()?;
        *next.bytes.get_mut(next.length)? = byte;
        next.length += 1;
        if let Ok(text) = std::str::from_utf8(&next.bytes[..next.length]) {
            next.inner = self.0.step(&next.inner, text.chars().next()?)?;
            next.length = 0;
        }
        Some(next)
    }
}

/// A regular expression or wildcard. Remembers that it became too large.
struct Pattern {
    languages: RefCell<Languages>,
    start: Id,
    is_too_large: RefCell<bool>,
}

impl Machine for &Pattern {
    type State = Id;

    fn start(&self) -> Id {
        self.start
    }

    fn step(&self, state: &Id, c: char) -> Option<Id> {
        match self.languages.borrow_mut().step(*state, c) {
            Ok(0) => None,
            Ok(next) => Some(next),
            Err(_) => {
                *self.is_too_large.borrow_mut() = true;
                None
            }
        }
    }

    fn is_match(&self, state: &Id) -> bool {
        self.languages.borrow().is_match(*state)
    }
}

/// Words within a few edits of one: insertion, deletion, substitution, transposition of neighbours.
struct Edits {
    word: Vec<char>,
    edits: u8,
}

/// A row of the table of distances around its diagonal, and the row before.
#[derive(Clone, Copy)]
struct Row {
    read: usize,
    last: char,
    row: [u8; BAND],
    before: [u8; BAND],
}

/// A distance that is too far.
const FAR: u8 = EDITS as u8 + 1;

impl Edits {
    /// The distance to the text that was read.
    fn distance(&self, state: &Row) -> Option<u8> {
        let place = (self.word.len() + EDITS).checked_sub(state.read)?;
        state.row.get(place).copied().filter(|distance| *distance <= self.edits)
    }
}

impl Machine for &Edits {
    type State = Row;

    fn start(&self) -> Row {
        let mut row = [FAR; BAND];
        for (place, distance) in row.iter_mut().skip(EDITS).enumerate() {
            if place <= self.word.len() {
                *distance = place as u8;
            }
        }
        Row { read: 0, last: '\0', row, before: [FAR; BAND] }
    }

    fn step(&self, state: &Row, c: char) -> Option<Row> {
        let read = state.read + 1;
        let mut row = [FAR; BAND];
        for place in 0..BAND {
            // The place stands for the first `at` characters of the word.
            let Some(at) = (read + place).checked_sub(EDITS) else { continue };
            if at > self.word.len() {
                continue;
            }
            let mut best = state.row.get(place + 1).map_or(FAR, |distance| distance + 1);
            if at >= 1 {
                if place >= 1 {
                    best = best.min(row[place - 1] + 1);
                }
                best = best.min(state.row[place] + u8::from(self.word[at - 1] != c));
            }
            if at >= 2 && read >= 2 && self.word[at - 1] == state.last && self.word[at - 2] == c {
                best = best.min(state.before[place] + 1);
            }
            row[place] = best.min(FAR);
        }
        let next = Row { read, last: c, row, before: state.row };
        row.iter().any(|distance| *distance <= self.edits).then_some(next)
    }

    fn is_match(&self, state: &Row) -> bool {
        self.distance(state).is_some()
    }
}

/// Gives the places of the words of a dictionary that a query of several words stands for, in the order of the words.
pub(crate) fn places(
    field: &Field,
    query: &Query,
    each: &mut dyn FnMut(u64) -> Result<(), SearchError>,
) -> Result<(), SearchError> {
    let dictionary = &field.dictionary;
    match query {
        Query::Prefix { prefix, .. } => {
            let mut stream = dictionary.range().ge(prefix).into_stream();
            while let Some((word, place)) = stream.next() {
                if !word.starts_with(prefix.as_bytes()) {
                    break;
                }
                each(place)?;
            }
        }
        Query::Range { lower, upper, has_lower, has_upper, .. } => {
            let range = dictionary.range();
            let range = if *has_lower { range.ge(lower) } else { range.gt(lower) };
            let range = if *has_upper { range.le(upper) } else { range.lt(upper) };
            let mut stream = range.into_stream();
            while let Some((_, place)) = stream.next() {
                each(place)?;
            }
        }
        Query::From { lower, has_lower, .. } => {
            let range = dictionary.range();
            let mut stream = if *has_lower { range.ge(lower) } else { range.gt(lower) }.into_stream();
            while let Some((_, place)) = stream.next() {
                each(place)?;
            }
        }
        Query::Fuzzy { text, edits, .. } => {
            let word = Edits { word: text.chars().collect(), edits: (*edits).min(EDITS as u8) };
            let mut stream = dictionary.search(Utf8(&word)).into_stream();
            while let Some((_, place)) = stream.next() {
                each(place)?;
            }
        }
        Query::Wildcard { pattern, .. } => {
            let mut languages = Languages::new();
            let start = languages.wildcard(pattern).map_err(|_| too_costly(query))?;
            matching(field, query, languages, start, each)?;
        }
        Query::Regexp { pattern, .. } => {
            let mut languages = Languages::new();
            if let Ok(start) = languages.regexp(pattern).map_err(|_| too_costly(query))? {
                matching(field, query, languages, start, each)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn matching(
    field: &Field,
    query: &Query,
    languages: Languages,
    start: Id,
    each: &mut dyn FnMut(u64) -> Result<(), SearchError>,
) -> Result<(), SearchError> {
    let pattern = Pattern { languages: RefCell::new(languages), start, is_too_large: RefCell::new(false) };
    let mut stream = field.dictionary.search(Utf8(&pattern)).into_stream();
    while let Some((_, place)) = stream.next() {
        each(place)?;
    }
    drop(stream);
    if *pattern.is_too_large.borrow() { Err(too_costly(query)) } else { Ok(()) }
}

/// The words that a fuzzy word stands for, nearest first where there are too many.
pub(crate) struct Nearest {
    word: Edits,
    /// Similarity as bits, which have its order, and the word: of equals the greater goes first.
    best: BTreeSet<(u32, Reverse<String>)>,
}

impl Nearest {
    pub(crate) fn new(text: &str, edits: u8) -> Nearest {
        let word = Edits { word: text.chars().collect(), edits: edits.min(EDITS as u8) };
        Nearest { word, best: BTreeSet::new() }
    }

    /// Looks through one dictionary. `each` is told of every word.
    pub(crate) fn look(
        &mut self,
        field: &Field,
        each: &mut dyn FnMut(u64) -> Result<(), SearchError>,
    ) -> Result<(), SearchError> {
        let mut stream = field.dictionary.search_with_state(Utf8(&self.word)).into_stream();
        while let Some((word, place, state)) = stream.next() {
            let (Ok(word), Some(state)) = (std::str::from_utf8(word), state) else { continue };
            let Some(edits) = self.word.distance(&state.inner) else { continue };
            each(place)?;
            let length = self.word.word.len().min(state.inner.read);
            let similarity = if edits == 0 { 1.0 } else { 1.0 - f32::from(edits) / length as f32 };
            if similarity > 0.0 {
                self.best.insert((similarity.to_bits(), Reverse(word.to_owned())));
                if self.best.len() > FUZZY_WORDS {
                    self.best.pop_first();
                }
            }
        }
        Ok(())
    }

    /// The words in their order, each with its weight.
    pub(crate) fn words(self) -> Vec<(String, f32)> {
        let mut words: Vec<(String, f32)> =
            self.best.into_iter().map(|(bits, word)| (word.0, f32::from_bits(bits))).collect();
        words.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(word: &str, text: &str) -> Option<u8> {
        let edits = Edits { word: word.chars().collect(), edits: 2 };
        let machine = &edits;
        let mut state = machine.start();
        for c in text.chars() {
            state = machine.step(&state, c)?;
        }
        edits.distance(&state)
    }

    #[test]
    fn edits_are_counted() {
        let cases = [
            ("planet", "planet", Some(0)),
            ("planet", "planer", Some(1)),
            ("planet", "plant", Some(1)),
            ("planet", "planets", Some(1)),
            ("irver", "river", Some(1)),
            ("rixer", "river", Some(1)),
            ("planet", "lpante", Some(2)),
            ("planet", "tenalp", None),
            ("abcdef", "bacdfe", Some(2)),
            ("ab", "cd", Some(2)),
            ("", "ab", Some(2)),
            ("ab", "", Some(2)),
            ("abc", "", None),
            ("été", "ete", Some(2)),
        ];
        for (word, text, edits) in cases {
            assert_eq!(distance(word, text), edits, "{word} {text}");
        }
    }
}
