//! Interval functions of the flexible syntax: `fn:name(…)`.

use super::lexer::Kind;
use super::{FieldType, Parser, Query, Stop, TOO_MANY, wrong};
use crate::query::intervals::{Relation, Source, TooMany, Word};

/// Words that a wildcard or fuzzy word stands for at most, where it does not say.
const EXPANSIONS: usize = 128;
/// Edits of a fuzzy word that does not say how many.
const EDITS: i64 = 2;

type Intervals = Source<Word>;

impl From<TooMany> for Stop {
    fn from(_: TooMany) -> Stop {
        Stop::Refused("Too many disjunctions to expand".into())
    }
}

impl Parser<'_> {
    /// An interval function of a field.
    pub(super) fn intervals(&mut self, field: &str) -> Result<Query, Stop> {
        let source = self.function(field)?;
        if self.syntax.is_numeric(field) {
            return Ok(Query::Intervals { field: field.to_owned(), source: Source::Nothing });
        }
        if self.syntax.schema.get(field) == Some(FieldType::String) {
            return Err(Stop::Refused(format!(
                "Cannot create an IntervalIterator over field {field} because it has no indexed positions"
            )));
        }
        Ok(Query::Intervals { field: field.to_owned(), source })
    }

    /// A function behind its `fn:`, and that.
    fn function(&mut self, field: &str) -> Result<Intervals, Stop> {
        self.depth += 1;
        if self.depth > self.syntax.limits.depth {
            return Err(Stop::Refused("too many brackets within brackets".into()));
        }
        self.take_kind(Kind::Function)?;
        let name = self.take_kind(Kind::Term)?;
        let name = self.image(name);
        self.take_kind(Kind::Open)?;
        let source = self.body(&name, field)?;
        self.take_kind(Kind::Close)?;
        self.depth -= 1;
        Ok(source.bounded()?)
    }

    /// What stands within the brackets of a function.
    fn body(&mut self, name: &str, field: &str) -> Result<Intervals, Stop> {
        Ok(match name {
            "or" => Source::or(self.sources(field)?),
            "phrase" => Source::phrase(self.sources(field)?)?,
            "ordered" => Source::ordered(self.sources(field)?),
            "unordered" => Source::unordered(self.sources(field)?),
            "unorderedNoOverlaps" | "unorderednooverlaps" => {
                let (a, b) = (self.source(field)?, self.source(field)?);
                Source::or(vec![Source::ordered(vec![a.clone(), b.clone()]), Source::ordered(vec![b, a])])
            }
            "atLeast" | "atleast" => {
                let minimum = usize::try_from(self.integer()?).map_err(|_| wrong())?;
                Source::at_least(minimum, self.sources(field)?)
            }
            "maxGaps" | "maxgaps" => {
                let most = self.integer()?;
                Source::max_gaps(most, self.source(field)?)?
            }
            "maxWidth" | "maxwidth" => {
                let most = self.integer()?;
                Source::max_width(most, self.source(field)?)
            }
            "extend" => {
                let source = self.source(field)?;
                Source::extended(source, self.integer()?, self.integer()?)
            }
            "within" => {
                let (source, positions, reference) = self.near(field)?;
                Source::related(source, Relation::ContainedBy, Source::extended(reference, positions, positions))?
            }
            "notWithin" | "notwithin" => {
                let (source, positions, reference) = self.near(field)?;
                Source::related(source, Relation::NonOverlapping, Source::extended(reference, positions, positions))?
            }
            "wildcard" => self.wildcard(field)?,
            "fuzzyTerm" | "fuzzyterm" => self.fuzzy_term(field)?,
            name => {
                let relation = relation(name).ok_or_else(wrong)?;
                let (source, reference) = (self.source(field)?, self.source(field)?);
                Source::related(source, relation, reference)?
            }
        })
    }

    fn sources(&mut self, field: &str) -> Result<Vec<Intervals>, Stop> {
        let mut all = vec![self.source(field)?];
        while self.peek()? != Kind::Close {
            all.push(self.source(field)?);
        }
        Ok(all)
    }

    /// A source, a number of positions, and another source.
    fn near(&mut self, field: &str) -> Result<(Intervals, i64, Intervals), Stop> {
        Ok((self.source(field)?, self.integer()?, self.source(field)?))
    }

    /// A function or words. Words are cut as they are written: escapes stay.
    fn source(&mut self, field: &str) -> Result<Intervals, Stop> {
        if self.peek()? == Kind::Function {
            return self.function(field);
        }
        let text = self.words_of_function()?;
        let positions = self.syntax.positions(field, &text);
        let count = positions.iter().map(|(_, words)| words.len()).sum::<usize>();
        self.count(count.max(1))?;
        let (mut parts, mut next) = (Vec::with_capacity(positions.len()), 0);
        for (position, words) in positions {
            let word = Source::or(words.into_iter().map(|word| Source::Word(Word::Text(word))).collect());
            // What an analyzer left out before a single word counts for nothing.
            let left_out = if count == 1 { 0 } else { i64::from(position) - next };
            next = i64::from(position) + 1;
            parts.push(if left_out > 0 { Source::extended(word, left_out, 0) } else { word });
        }
        if parts.is_empty() { Ok(Source::Nothing) } else { Ok(Source::phrase(parts)?) }
    }

    fn wildcard(&mut self, field: &str) -> Result<Intervals, Stop> {
        self.count(1)?;
        let pattern = self.words_of_function()?;
        let most = self.expansions()?;
        let query = Query::Wildcard { field: field.to_owned(), pattern };
        Ok(Source::Word(Word::Pattern { query: Box::new(query), most }))
    }

    fn fuzzy_term(&mut self, field: &str) -> Result<Intervals, Stop> {
        self.count(1)?;
        let text = self.words_of_function()?;
        let edits = if self.peek()? == Kind::Number { self.integer()? } else { EDITS };
        let edits = u8::try_from(edits)
            .ok()
            .filter(|edits| i64::from(*edits) <= EDITS)
            .ok_or_else(|| Stop::Refused(format!("maxEdits must be 0..{EDITS}, inclusive; got: {edits}")))?;
        let most = self.expansions()?;
        let query = Query::Fuzzy { field: field.to_owned(), text, edits };
        Ok(Source::Word(Word::Pattern { query: Box::new(query), most }))
    }

    /// How many words a pattern may stand for, where that stands here.
    fn expansions(&mut self) -> Result<usize, Stop> {
        match self.peek()? {
            Kind::Number => Ok(usize::try_from(self.integer()?).ok().filter(|most| *most > 0).unwrap_or(EXPANSIONS)),
            _ => Ok(EXPANSIONS),
        }
    }

    /// A word, a number or a quoted text, as it is written.
    fn words_of_function(&mut self) -> Result<String, Stop> {
        let token = self.take()?;
        let image = self.image(token);
        match token.kind {
            Kind::Term | Kind::Number => Ok(image),
            Kind::Quoted => Ok(image[1..image.len() - 1].to_owned()),
            _ => Err(wrong()),
        }
    }

    fn integer(&mut self) -> Result<i64, Stop> {
        let token = self.take_kind(Kind::Number)?;
        let number: i32 = self.image(token).parse().map_err(|_| wrong())?;
        Ok(i64::from(number))
    }

    /// Counts words as clauses.
    fn count(&mut self, words: usize) -> Result<(), Stop> {
        self.clauses += words;
        if self.clauses > self.syntax.limits.clauses { Err(Stop::Refused(TOO_MANY.into())) } else { Ok(()) }
    }
}

fn relation(name: &str) -> Option<Relation> {
    Some(match name {
        "containing" => Relation::Containing,
        "notContaining" | "notcontaining" => Relation::NotContaining,
        "containedBy" | "containedby" => Relation::ContainedBy,
        "notContainedBy" | "notcontainedby" => Relation::NotContainedBy,
        "overlapping" => Relation::Overlapping,
        "nonOverlapping" | "nonoverlapping" => Relation::NonOverlapping,
        "before" => Relation::Before,
        "after" => Relation::After,
        _ => return None,
    })
}
