//! Clauses of the flexible syntax: words, phrases, patterns, ranges, as the type of their field asks for.

use super::{FieldType, Query, Stop, Syntax, wrong};
use crate::query::{Clause, Occur};

/// Whether a unit of UTF-16 is this character.
fn is(unit: u16, c: u8) -> bool {
    unit == u16::from(c)
}

impl Syntax<'_> {
    /// A word that is not quoted.
    pub(super) fn bare(&self, field: &str, units: &[u16]) -> Result<Option<Query>, Stop> {
        let text = crate::query::escape::unescape(units).map_err(|_| wrong())?;
        let has_pattern = wildcards(units) > 0;
        if has_pattern && field == "*" && text == "*" {
            return Ok(Some(Query::All));
        }
        if self.is_numeric(field) {
            return self.number(field, &text).map(Some);
        }
        if has_pattern {
            return self.pattern(field, units).map(Some);
        }
        let mut queries: Vec<Query> =
            self.positions(field, &text).into_iter().map(|(_, words)| one_of(field, words)).collect();
        if queries.len() == 1 {
            return Ok(queries.pop());
        }
        let clauses: Vec<Clause> = queries.into_iter().map(|query| Clause { occur: Occur::Should, query }).collect();
        Ok((!clauses.is_empty()).then_some(Query::Boolean { clauses, has_coord: false }))
    }

    /// A word with wildcards.
    fn pattern(&self, field: &str, units: &[u16]) -> Result<Query, Stop> {
        if units.first().is_some_and(|first| is(*first, b'*') || is(*first, b'?')) {
            let image = String::from_utf16_lossy(units);
            return Err(Stop::Refused(format!("Leading wildcard is not allowed: {field}:{image}")));
        }
        let (mut pattern, mut at) = (String::new(), 0);
        let mut literal = Vec::new();
        let mut plain = String::new();
        let end_literal = |literal: &mut Vec<u16>, pattern: &mut String, plain: &mut String| -> Result<(), Stop> {
            let text = crate::query::escape::unescape(literal).map_err(|_| wrong())?;
            literal.clear();
            let text = self.analyzer.normal(field, &text);
            plain.push_str(&text);
            for c in text.chars() {
                if matches!(c, '*' | '?' | '\\') {
                    pattern.push('\\');
                }
                pattern.push(c);
            }
            Ok(())
        };
        while at < units.len() {
            let unit = units[at];
            if is(unit, b'*') || is(unit, b'?') {
                end_literal(&mut literal, &mut pattern, &mut plain)?;
                pattern.push(if is(unit, b'*') { '*' } else { '?' });
                at += 1;
                continue;
            }
            let end = (at + if is(unit, b'\\') { 2 } else { 1 }).min(units.len());
            literal.extend_from_slice(&units[at..end]);
            at = end;
        }
        end_literal(&mut literal, &mut pattern, &mut plain)?;
        let field = field.to_owned();
        let is_prefix = wildcards(units) == 1 && units.last().is_some_and(|last| is(*last, b'*'));
        Ok(if is_prefix { Query::Prefix { field, prefix: plain } } else { Query::Wildcard { field, pattern } })
    }

    /// A word with a number of edits, or a similarity below 1.
    pub(super) fn fuzzy(&self, field: &str, text: &str, edits: f32) -> Result<Query, Stop> {
        if self.is_numeric(field) {
            return self.number(field, text);
        }
        let text = self.analyzer.normal(field, text);
        let length = text.chars().count() as f64;
        let edits = if edits >= 1.0 {
            edits.min(2.0) as u8
        } else if edits == 0.0 {
            0
        } else {
            ((1.0 - f64::from(edits)) * length).min(2.0) as u8
        };
        Ok(Query::Fuzzy { field: field.to_owned(), text, edits })
    }

    pub(super) fn regexp(&self, field: &str, pattern: &str) -> Result<Query, Stop> {
        let pattern = self.analyzer.normal(field, pattern);
        let checked = crate::search::regexp::check(&pattern);
        let checked = checked.map_err(|_| Stop::Refused("the regular expression is too large".into()))?;
        checked.map_err(Stop::Refused)?;
        Ok(Query::Regexp { field: field.to_owned(), pattern })
    }

    /// Words in quotes.
    pub(super) fn quoted(
        &self,
        field: &str,
        text: &str,
        slop: u32,
        clauses: &mut usize,
    ) -> Result<Option<Query>, Stop> {
        if self.is_numeric(field) {
            return self.number(field, text).map(Some);
        }
        let mut words = self.positions(field, text);
        *clauses += words.len();
        if *clauses > self.limits.clauses {
            return Err(Stop::Refused(super::TOO_MANY.into()));
        }
        let query = match words.len() {
            0 => return Ok(None),
            1 => return Ok(words.pop().map(|(_, words)| one_of(field, words))),
            _ => Query::Phrase { field: field.to_owned(), words, slop },
        };
        if self.schema.get(field) == Some(FieldType::String) {
            return Err(Stop::Refused(format!(
                "field \"{field}\" was indexed without position data; cannot run PhraseQuery (phrase={query})"
            )));
        }
        Ok(Some(query))
    }

    /// A range; an end that is empty is open.
    pub(super) fn range(
        &self,
        field: String,
        (lower, upper): (String, String),
        (has_lower, has_upper): (bool, bool),
    ) -> Result<Query, Stop> {
        if self.is_numeric(&field) {
            let end = |text: &str, open: f64| if text.is_empty() { Ok(open) } else { self.parse_number(text) };
            let (lower, upper) = (end(&lower, f64::NEG_INFINITY)?, end(&upper, f64::INFINITY)?);
            return Ok(Query::NumberRange { field, lower, upper, has_lower, has_upper });
        }
        let normal = |text: String| self.analyzer.normal(&field, &text);
        let (lower, upper) = (normal(lower), normal(upper));
        match upper.is_empty() {
            true => Ok(Query::From { field, lower, has_lower }),
            false => {
                let has_lower = has_lower || lower.is_empty();
                Ok(Query::Range { field, lower, upper, has_lower, has_upper })
            }
        }
    }

    fn number(&self, field: &str, text: &str) -> Result<Query, Stop> {
        if text.is_empty() {
            return Err(Stop::Refused(format!("Field \"{field}\" is numeric and cannot have an empty value.")));
        }
        let value = self.parse_number(text)?;
        let (lower, upper) = (value, value);
        Ok(Query::NumberRange { field: field.to_owned(), lower, upper, has_lower: true, has_upper: true })
    }

    fn parse_number(&self, text: &str) -> Result<f64, Stop> {
        let refused = || Stop::Refused(format!("Could not parse text \"{text}\" using java.text.DecimalFormat"));
        self.locale.parse(text).ok_or_else(refused)
    }

    /// The tokens of a text by their positions.
    pub(super) fn positions(&self, field: &str, text: &str) -> Vec<(u32, Vec<String>)> {
        let mut positions: Vec<(u32, Vec<String>)> = Vec::new();
        for token in crate::segment::tokens(self.analyzer, field, text) {
            match positions.last_mut() {
                Some((position, words)) if *position == token.position => words.push(token.text),
                _ => positions.push((token.position, vec![token.text])),
            }
        }
        positions
    }
}

/// How many wildcards a word has that are not escaped.
fn wildcards(units: &[u16]) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < units.len() {
        found += usize::from(is(units[at], b'*') || is(units[at], b'?'));
        at += if is(units[at], b'\\') { 2 } else { 1 };
    }
    found
}

/// One of several words at one position.
fn one_of(field: &str, mut words: Vec<String>) -> Query {
    let term = |text: String| Query::Term { field: field.to_owned(), text };
    if words.len() == 1 {
        return term(words.pop().unwrap_or_default());
    }
    let clauses = words.into_iter().map(|word| Clause { occur: Occur::Should, query: term(word) }).collect();
    Query::Boolean { clauses, has_coord: false }
}
