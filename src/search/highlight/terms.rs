//! The words that a query looks for, with their weights and, of phrases, the places where they count.

use std::collections::{BTreeMap, BTreeSet};

use super::Placed;
use crate::analysis::Token;
use crate::query::{Occur, Query};
use crate::search::regexp::Languages;

/// A word of the query.
#[derive(Clone, Debug, Default, PartialEq)]
struct Term {
    weight: f32,
    /// First and last positions of the places of phrases; none: it counts everywhere.
    places: Option<Vec<(u32, u32)>>,
}

/// The words that are marked in one text.
#[derive(Debug, Default)]
pub(super) struct Terms {
    terms: BTreeMap<String, Term>,
    /// Words that were found in the present fragment.
    found: BTreeSet<String>,
    score: f32,
}

/// Queries within queries that are followed.
const MAX_DEPTH: usize = 1_000;

impl Terms {
    /// The words of a query in a text.
    pub(super) fn of(query: &Query, tokens: &[Placed]) -> Terms {
        let mut terms = Terms::default();
        terms.extract(query, 1.0, tokens, 0);
        for term in terms.terms.values_mut() {
            if let Some(places) = &mut term.places {
                *places = union(std::mem::take(places));
            }
        }
        terms
    }

    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The weight of a token, which counts for the fragment once.
    pub(super) fn score(&mut self, token: &Token) -> f32 {
        let Some(term) = self.terms.get(&token.text) else { return 0.0 };
        if let Some(places) = &term.places {
            let behind = places.partition_point(|(start, _)| *start <= token.position);
            let is_within = behind.checked_sub(1).is_some_and(|at| places[at].1 >= token.position);
            if !is_within {
                return 0.0;
            }
        }
        if self.found.insert(token.text.clone()) {
            self.score += term.weight;
        }
        term.weight
    }

    /// The sum of the weights of the fragment that ends here.
    pub(super) fn end_fragment(&mut self) -> f32 {
        self.found.clear();
        std::mem::take(&mut self.score)
    }

    /// The weight of a query of several is not that of its parts.
    fn extract(&mut self, query: &Query, boost: f32, tokens: &[Placed], depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match query {
            // Intervals are of indexes with types, which mark nothing.
            Query::Intervals { .. } => {}
            Query::All | Query::Nothing | Query::Number { .. } | Query::NumberRange { .. } => {}
            Query::Term { text, .. } => self.add(text, boost),
            Query::Boost { query, boost } => self.extract(query, *boost, tokens, depth + 1),
            Query::Boolean { clauses, .. } => {
                for clause in clauses.iter().filter(|clause| clause.occur != Occur::MustNot) {
                    self.extract(&clause.query, 1.0, tokens, depth + 1);
                }
            }
            Query::Minimum { query, .. } => self.extract(query, boost, tokens, depth + 1),
            Query::From { lower, has_lower, .. } => {
                self.matching(tokens, boost, |text| text > lower.as_str() || *has_lower && text == lower);
            }
            Query::Phrase { words, slop, .. } => self.phrase(words, *slop, boost, tokens),
            Query::Prefix { prefix, .. } => self.matching(tokens, boost, |text| text.starts_with(prefix)),
            Query::Range { lower, upper, has_lower, has_upper, .. } => self.matching(tokens, boost, |text| {
                (text > lower.as_str() || *has_lower && text == lower)
                    && (text < upper.as_str() || *has_upper && text == upper)
            }),
            Query::Wildcard { pattern, .. } => {
                let mut languages = Languages::new();
                if let Ok(id) = languages.wildcard(pattern) {
                    self.matching(tokens, boost, |text| matches(&mut languages, id, text));
                }
            }
            Query::Regexp { pattern, .. } => {
                let mut languages = Languages::new();
                if let Ok(Ok(id)) = languages.regexp(pattern) {
                    self.matching(tokens, boost, |text| matches(&mut languages, id, text));
                }
            }
            Query::Fuzzy { text, edits, .. } => self.fuzzy(text, *edits, boost, tokens),
        }
    }

    fn add(&mut self, text: &str, weight: f32) {
        self.terms.insert(text.to_owned(), Term { weight, places: None });
    }

    /// Adds the words of the text that `is_meant`.
    fn matching(&mut self, tokens: &[Placed], boost: f32, mut is_meant: impl FnMut(&str) -> bool) {
        let distinct: BTreeSet<&str> = tokens.iter().map(|placed| placed.token.text.as_str()).collect();
        for text in distinct {
            if is_meant(text) {
                self.add(text, boost);
            }
        }
    }

    /// Adds words of the text that are a few edits away, weighted by how near they are.
    fn fuzzy(&mut self, text: &str, edits: u8, boost: f32, tokens: &[Placed]) {
        let wanted: Vec<char> = text.chars().collect();
        let distinct: BTreeSet<&str> = tokens.iter().map(|placed| placed.token.text.as_str()).collect();
        for word in distinct {
            let letters: Vec<char> = word.chars().collect();
            let Some(distance) = distance(&wanted, &letters, usize::from(edits)) else { continue };
            let shorter = wanted.len().min(letters.len());
            if distance == 0 {
                self.add(word, boost);
            } else if distance < shorter {
                self.add(word, boost * (1.0 - distance as f32 / shorter as f32));
            }
        }
    }

    /// Adds the words of a phrase with the places where it occurs.
    fn phrase(&mut self, words: &[(u32, Vec<String>)], slop: u32, boost: f32, tokens: &[Placed]) {
        let gaps = words.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0));
        let (slop, is_ordered) = if words.iter().any(|(_, words)| words.len() > 1) {
            let first = words.first().map_or(0, |(position, _)| *position);
            let missing = first.saturating_add(gaps.map(|gap| gap.saturating_sub(1)).sum());
            (slop.saturating_add(missing), slop == 0)
        } else {
            let widest = gaps.max().unwrap_or(0);
            let slop = slop.saturating_add(if widest > 1 { widest } else { 0 });
            (slop, slop == 0)
        };
        let lists: Vec<Vec<u32>> = words
            .iter()
            .map(|(_, words)| {
                let own = tokens.iter().filter(|placed| words.contains(&placed.token.text));
                own.map(|placed| placed.token.position).collect()
            })
            .collect();
        let places = if is_ordered { ordered(&lists, slop) } else { unordered(&lists, slop) };
        if places.is_empty() {
            return;
        }
        for text in words.iter().flat_map(|(_, words)| words) {
            let new = Term { weight: boost, places: Some(Vec::new()) };
            if let Some(own) = &mut self.terms.entry(text.clone()).or_insert(new).places {
                own.extend(&places);
            }
        }
    }
}

/// Whether a text is in a language.
fn matches(languages: &mut Languages, id: u32, text: &str) -> bool {
    let mut state = id;
    for c in text.chars() {
        match languages.step(state, c) {
            Ok(next) => state = next,
            Err(_) => return false,
        }
    }
    languages.is_match(state)
}

/// Places in ascending order, those that touch as one.
fn union(mut places: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    places.sort_unstable();
    let mut out: Vec<(u32, u32)> = Vec::new();
    for (start, end) in places {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// Places where one position of each list stands in the order of the lists, with no more than `slop` others between.
fn ordered(lists: &[Vec<u32>], slop: u32) -> Vec<(u32, u32)> {
    let mut places = Vec::new();
    let Some((first, rest)) = lists.split_first() else { return places };
    let mut cursors = vec![0; rest.len()];
    for start in first {
        let mut chosen = vec![*start];
        for (list, cursor) in rest.iter().zip(&mut cursors) {
            let last = chosen.last().copied().unwrap_or(0);
            while list.get(*cursor).is_some_and(|position| *position <= last) {
                *cursor += 1;
            }
            let Some(position) = list.get(*cursor) else { return places };
            chosen.push(*position);
        }
        let (from, to) = (chosen[0], chosen[chosen.len() - 1]);
        // Words before the last are moved as near to it as they can be: only the nearest first word counts.
        let is_nearest = chosen.get(1).is_none_or(|second| {
            let behind = first.partition_point(|position| position < second);
            behind == 0 || first[behind - 1] == *start
        });
        let between = (to - from + 1).saturating_sub(u32::try_from(chosen.len()).unwrap_or(u32::MAX));
        if is_nearest && between <= slop {
            places.push((from, to));
        }
    }
    places
}

/// Places where one position of each list stands in any order, with no more than `slop` others between.
fn unordered(lists: &[Vec<u32>], slop: u32) -> Vec<(u32, u32)> {
    let mut places = Vec::new();
    if lists.is_empty() || lists.iter().any(Vec::is_empty) {
        return places;
    }
    let mut queue: BTreeSet<(u32, usize, usize)> =
        lists.iter().enumerate().map(|(list, positions)| (positions[0], list, 0)).collect();
    let mut last = lists.iter().map(|positions| positions[0]).max().unwrap_or(0);
    let count = u32::try_from(lists.len()).unwrap_or(u32::MAX);
    while let Some((position, list, at)) = queue.pop_first() {
        if (last - position + 1).saturating_sub(count) <= slop {
            places.push((position, last));
        }
        let Some(next) = lists[list].get(at + 1) else { break };
        last = last.max(*next);
        queue.insert((*next, list, at + 1));
    }
    places
}

/// Insertions, deletions, substitutions and transpositions between two words, if they are no more than `most`.
fn distance(a: &[char], b: &[char], most: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let substituted = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    Some(row[b.len()]).filter(|distance| *distance <= most)
}
