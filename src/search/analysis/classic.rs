//! The classic tokenizer, Lucene's standard tokenizer before version 3.1: words, acronyms, companies, addresses and
//! numbers by patterns. The longest match counts.

use super::unicode::{is_digit, is_letter};

/// What a token looks like, where it matters afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word, a number, a name of a host …
    Other,
    /// Letters with apostrophes among them: a possessive `'s` goes.
    Apostrophe,
    /// Single letters with a full stop behind each: the stops go.
    Acronym,
    /// Words with a full stop behind each: the last stop goes.
    Stopped,
}

/// Chinese and Japanese characters, each a token.
fn is_cj(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{312f}' | '\u{31f0}'..='\u{31ff}' | '\u{3300}'..='\u{337f}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff65}'..='\u{ff9f}')
}

/// Letters of the basic plane that are no Chinese or Japanese characters.
fn is_plain_letter(c: char) -> bool {
    c <= '\u{ffff}' && is_letter(c) && !is_cj(c)
}

fn is_part(c: char) -> bool {
    is_plain_letter(c) || matches!(c, '\u{e00}'..='\u{e59}') || c <= '\u{ffff}' && is_digit(c)
}

/// Reads a text from the front.
pub struct Reader<'a> {
    text: &'a str,
    /// No address begins before this place.
    no_address: usize,
}

/// A run of letters and digits.
struct Run {
    end: usize,
    has_digit: bool,
    is_one_letter: bool,
}

impl<'a> Reader<'a> {
    /// A reader of a text.
    pub fn new(text: &'a str) -> Reader<'a> {
        Reader { text, no_address: 0 }
    }

    fn at(&self, place: usize) -> Option<char> {
        match self.text.as_bytes().get(place)? {
            byte @ 0..0x80 => Some(*byte as char),
            _ => self.text[place..].chars().next(),
        }
    }

    fn run_of(&self, from: usize, is_in: impl Fn(char) -> bool) -> usize {
        self.text[from..].char_indices().find(|(_, c)| !is_in(*c)).map_or(self.text.len(), |(at, _)| from + at)
    }

    /// The run of letters and digits at a place, if there is one.
    fn run(&self, from: usize) -> Option<Run> {
        let end = self.run_of(from, is_part);
        let run = &self.text[from..end];
        let first = run.chars().next()?;
        let is_one_letter = is_plain_letter(first) && run.len() == first.len_utf8();
        Some(Run { end, has_digit: run.chars().any(is_digit), is_one_letter })
    }

    /// Letters with apostrophes among them.
    fn apostrophes(&self, from: usize) -> Option<usize> {
        let mut end = self.run_of(from, is_plain_letter);
        let mut found = None;
        while end > from && self.at(end) == Some('\'') {
            let next = self.run_of(end + 1, is_plain_letter);
            if next == end + 1 {
                break;
            }
            end = next;
            found = Some(end);
        }
        found
    }

    /// `AT&T`, `Excite@Home`.
    fn company(&self, from: usize) -> Option<usize> {
        let mark = self.run_of(from, is_plain_letter);
        if mark == from || !matches!(self.at(mark), Some('&' | '@')) {
            return None;
        }
        let end = self.run_of(mark + 1, is_plain_letter);
        (end > mark + 1).then_some(end)
    }

    /// An address with a domain of two parts at least.
    fn address(&mut self, from: usize) -> Option<usize> {
        if from < self.no_address {
            return None;
        }
        let (mark, _) = self.chain(from, &['.', '-', '_'])?;
        let found = if self.at(mark) == Some('@') { self.chain(mark + 1, &['.', '-']) } else { None };
        match found {
            Some((end, parts)) if parts > 1 => Some(end),
            _ => {
                self.no_address = mark;
                None
            }
        }
    }

    /// The end of runs that the marks join, and how many they are.
    fn chain(&self, from: usize, marks: &[char]) -> Option<(usize, usize)> {
        let mut end = self.run(from)?.end;
        let mut parts = 1;
        while self.at(end).is_some_and(|c| marks.contains(&c)) {
            let Some(run) = self.run(end + 1) else { break };
            end = run.end;
            parts += 1;
        }
        Some((end, parts))
    }

    /// Runs of which each second one at least has a digit.
    fn number(&self, from: usize) -> Option<usize> {
        let first = self.run(from)?;
        let mut is_even = first.has_digit;
        let mut is_odd = true;
        let mut end = first.end;
        let mut found = None;
        let mut index = 1;
        while matches!(self.at(end), Some('_' | '-' | '/' | '.' | ',')) {
            let Some(run) = self.run(end + 1) else { break };
            let side = if index % 2 == 0 { &mut is_even } else { &mut is_odd };
            *side = *side && run.has_digit;
            if !is_even && !is_odd {
                break;
            }
            end = run.end;
            found = Some(end);
            index += 1;
        }
        found
    }

    /// Runs that full stops join; with a stop behind the last, what kind it makes them.
    fn stopped(&self, from: usize) -> Option<(usize, Kind)> {
        let first = self.run(from)?;
        let mut are_letters = first.is_one_letter;
        let mut end = first.end;
        let mut parts = 1;
        // The end and kind with a stop behind; single letters may be followed by longer runs.
        let mut acronym = None;
        while self.at(end) == Some('.') {
            if are_letters && parts > 1 {
                acronym = Some(end + 1);
            }
            let Some(run) = self.run(end + 1) else { break };
            are_letters = are_letters && run.is_one_letter;
            end = run.end;
            parts += 1;
        }
        if parts == 1 {
            return None;
        }
        match acronym {
            Some(end_of_acronym) if end_of_acronym > end => Some((end_of_acronym, Kind::Acronym)),
            _ if self.at(end) == Some('.') => Some((end + 1, Kind::Stopped)),
            _ => Some((end, Kind::Other)),
        }
    }

    /// The place behind the token at `from` and its kind; none: the next character.
    fn next(&mut self, from: usize) -> (usize, Option<Kind>) {
        let Some(c) = self.at(from) else { return (self.text.len(), None) };
        if is_cj(c) {
            return (from + c.len_utf8(), Some(Kind::Other));
        }
        let Some(run) = self.run(from) else { return (from + c.len_utf8(), None) };
        let mut best = (run.end, Kind::Other);
        let others = [
            self.apostrophes(from).map(|end| (end, Kind::Apostrophe)),
            self.company(from).map(|end| (end, Kind::Other)),
            self.address(from).map(|end| (end, Kind::Other)),
            self.stopped(from),
            self.number(from).map(|end| (end, Kind::Other)),
        ];
        for other in others.into_iter().flatten() {
            if other.0 > best.0 {
                best = other;
            }
        }
        (best.0, Some(best.1))
    }
}

/// Tells `each` the tokens of a text: their places in bytes, and their kinds.
pub fn tokens(text: &str, mut each: impl FnMut(usize, usize, Kind)) {
    let mut reader = Reader::new(text);
    let mut at = 0;
    while at < text.len() {
        let (end, kind) = reader.next(at);
        if let Some(kind) = kind {
            each(at, end, kind);
        }
        at = end;
    }
}

/// What stays of a token of a kind.
pub fn trim(text: &mut String, kind: Kind) {
    match kind {
        Kind::Other => {}
        Kind::Apostrophe => {
            if text.ends_with("'s") || text.ends_with("'S") {
                text.truncate(text.len() - 2);
            }
        }
        Kind::Acronym => text.retain(|c| c != '.'),
        Kind::Stopped => {
            text.pop();
        }
    }
}
