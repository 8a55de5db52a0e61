//! Fragments of stored text in which the words of a query are marked, as Lucene's first highlighter makes them.
//!
//! Lengths are those of the reference: UTF-16 units of the text.

mod terms;

use crate::analysis::{Analyzer, MAX_TOKEN, Token};
use crate::query::Query;
use crate::search::Highlight;
use terms::Terms;

/// Text behind this many units is not looked at.
const MAX_UNITS: usize = 50 * 1024;

/// Tokens that overlap and are marked as one.
const MAX_GROUP: usize = 50;

/// The best fragments of one stored value of `field`, in the order of their worth; none where no word of the query
/// occurs. Words of the query are marked in every field, whatever field the query named.
pub fn fragments(query: &Query, analyzer: &Analyzer, field: &str, text: &str, how: &Highlight) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut units = Units::new(text);
    let head = if analyzer.is_keyword(field) { text } else { head(text) };
    analyzer.for_each_token(field, head, &mut |token| {
        let start = units.at(token.start);
        if start < MAX_UNITS {
            let end = start + text[token.start..token.end].encode_utf16().count();
            tokens.push(Placed { token: token.to_token(), end });
        }
    });
    let mut terms = Terms::of(query, &tokens);
    if terms.is_empty() {
        return Vec::new();
    }
    let is_whole = units.at(text.len()) <= MAX_UNITS;
    let marked = Marker::new(text, how, &mut terms).run(&tokens, is_whole);
    marked.best(how.number.max(1))
}

/// The part of a long text in which all tokens that are looked at end.
fn head(text: &str) -> &str {
    let mut units = 0;
    let end = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > MAX_UNITS + 2 * MAX_TOKEN
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// A token with the unit at which it ends.
struct Placed {
    token: Token,
    end: usize,
}

/// Counts UTF-16 units up to places that mostly ascend.
struct Units<'a> {
    text: &'a str,
    place: usize,
    units: usize,
}

impl<'a> Units<'a> {
    fn new(text: &'a str) -> Units<'a> {
        Units { text, place: 0, units: 0 }
    }

    fn at(&mut self, place: usize) -> usize {
        if place >= self.place {
            self.units += self.text[self.place..place].encode_utf16().count();
        } else {
            self.units -= self.text[place..self.place].encode_utf16().count();
        }
        self.place = place;
        self.units
    }
}

/// A part of the marked text.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fragment {
    start: usize,
    end: usize,
    score: f32,
    number: usize,
}

/// The whole text with its marks, and where it may be cut.
struct Marked {
    text: String,
    fragments: Vec<Fragment>,
}

/// Tokens that overlap.
#[derive(Default)]
struct Group {
    count: usize,
    end: usize,
    mark_start: usize,
    mark_end: usize,
    score: f32,
}

impl Group {
    fn add(&mut self, token: &Token, score: f32) {
        if self.count >= MAX_GROUP {
            return;
        }
        if self.count == 0 {
            *self = Group { count: 0, end: token.end, mark_start: token.start, mark_end: token.end, score };
        } else {
            self.end = self.end.max(token.end);
            if score > 0.0 && self.score == 0.0 {
                (self.mark_start, self.mark_end) = (token.start, token.end);
            } else if score > 0.0 {
                self.mark_start = self.mark_start.min(token.start);
                self.mark_end = self.mark_end.max(token.end);
            }
            self.score += score.max(0.0);
        }
        self.count += 1;
    }
}

/// Writes the marked text.
struct Marker<'a> {
    text: &'a str,
    how: &'a Highlight,
    terms: &'a mut Terms,
    out: String,
    fragments: Vec<Fragment>,
    /// The place in the text up to which it was written.
    written: usize,
    group: Group,
}

impl<'a> Marker<'a> {
    fn new(text: &'a str, how: &'a Highlight, terms: &'a mut Terms) -> Marker<'a> {
        let first = Fragment { start: 0, end: 0, score: 0.0, number: 0 };
        Marker { text, how, terms, out: String::new(), fragments: vec![first], written: 0, group: Group::default() }
    }

    /// `is_whole`: what is behind the last token belongs to the last fragment.
    fn run(mut self, tokens: &[Placed], is_whole: bool) -> Marked {
        let mut cuts = 1usize;
        for Placed { token, end } in tokens {
            if self.group.count > 0 && token.start >= self.group.end {
                self.flush();
                if *end >= self.how.size.saturating_mul(cuts) {
                    cuts += 1;
                    self.cut();
                }
            }
            let score = self.terms.score(token);
            self.group.add(token, score);
        }
        if self.group.count > 0 {
            self.flush();
        }
        if is_whole && self.written < self.text.len() {
            self.out.push_str(&self.text[self.written..]);
        }
        self.end_fragment();
        Marked { text: self.out, fragments: self.fragments }
    }

    /// Writes the group, marked if a word of the query is in it, and what is before it.
    fn flush(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group.mark_start > self.written {
            self.out.push_str(&self.text[self.written..group.mark_start]);
        }
        let inner = &self.text[group.mark_start..group.mark_end];
        if group.score > 0.0 {
            self.out.push_str(&self.how.pre_tag);
            self.out.push_str(inner);
            self.out.push_str(&self.how.post_tag);
        } else {
            self.out.push_str(inner);
        }
        self.written = self.written.max(group.mark_end);
    }

    fn end_fragment(&mut self) {
        let score = self.terms.end_fragment();
        if let Some(last) = self.fragments.last_mut() {
            last.score = score;
            last.end = self.out.len();
        }
    }

    fn cut(&mut self) {
        self.end_fragment();
        let at = self.out.len();
        self.fragments.push(Fragment { start: at, end: at, score: 0.0, number: self.fragments.len() });
    }
}

impl Marked {
    /// The best fragments; those of them that follow each other are one.
    fn best(mut self, number: usize) -> Vec<String> {
        self.fragments.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.number.cmp(&b.number)));
        self.fragments.truncate(number);
        let merged = merge(self.fragments);
        merged.iter().filter(|f| f.score > 0.0).map(|f| self.text[f.start..f.end].to_owned()).collect()
    }
}

/// Makes one of fragments that follow each other, in the place of the better one.
fn merge(fragments: Vec<Fragment>) -> Vec<Fragment> {
    let mut order: Vec<usize> = (0..fragments.len()).collect();
    order.sort_by_key(|index| (fragments[*index].start, fragments[*index].end));
    let mut runs: Vec<(Fragment, usize)> = Vec::new();
    for index in order {
        let next = fragments[index];
        match runs.last_mut() {
            Some((run, place)) if run.end == next.start => {
                // Of equals the later one's place counts, as in the reference.
                if run.score <= next.score {
                    *place = index;
                }
                run.end = next.end;
                run.score = run.score.max(next.score);
            }
            _ => runs.push((next, index)),
        }
    }
    runs.sort_by_key(|(_, place)| *place);
    runs.into_iter().map(|(run, _)| run).collect()
}
