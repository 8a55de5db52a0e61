//! Interval functions (`fn:`): stretches of a text that are made of words and of other stretches.
//!
//! A function has the minimal intervals of a text: of those that satisfy it, the ones within which no other does.
//! Where gaps count (phrases, `maxGaps`) or one interval is within another, alternatives of different lengths would
//! hide one another; so they are pulled out, as in Lucene: `phrase(or("a b", a), c)` is `or("a b c", "a c")`.

use std::fmt;

use super::Query;

/// Alternatives that one function may be pulled apart into: a bound of Lucene.
const ALTERNATIVES: usize = 1_024;

/// Functions and words that one function may stand for when its alternatives are pulled out.
const PARTS: usize = 20_000;

/// There are more alternatives than a function may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A word of an interval function.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// One word as it is indexed.
    Text(String),
    /// Each word that a wildcard or fuzzy query matches.
    Pattern {
        /// The query.
        query: Box<Query>,
        /// So many words at most; more are an error.
        most: usize,
    },
}

/// How an interval has to stand to one of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It contains one.
    Containing,
    /// It contains none.
    NotContaining,
    /// It is within one.
    ContainedBy,
    /// It is within none.
    NotContainedBy,
    /// It has a position in common with one.
    Overlapping,
    /// It has none in common with any.
    NonOverlapping,
    /// It ends before one begins.
    Before,
    /// It begins behind the end of one.
    After,
}

/// What has intervals in a text; words are of type `W`.
#[derive(Clone, Debug, PartialEq)]
pub enum Source<W> {
    /// No intervals.
    Nothing,
    /// Each position of a word.
    Word(W),
    /// Those of any.
    Or(Vec<Source<W>>),
    /// One of each, each begins where the one before ends.
    Phrase(Vec<Source<W>>),
    /// One of each in this order, none overlaps another.
    Ordered(Vec<Source<W>>),
    /// One of each of so many of these.
    AtLeast {
        /// How many.
        minimum: usize,
        /// Of what.
        sources: Vec<Source<W>>,
    },
    /// So many of one, one after the other.
    Repeated {
        /// What is repeated.
        source: Box<Source<W>>,
        /// At least 2.
        times: usize,
    },
    /// Those with no more positions than this between their parts.
    MaxGaps(i64, Box<Source<W>>),
    /// Those of no more positions than this.
    MaxWidth(i64, Box<Source<W>>),
    /// Longer ones.
    Extended {
        /// What is made longer.
        source: Box<Source<W>>,
        /// Positions before.
        before: i64,
        /// Positions behind.
        after: i64,
    },
    /// Those that stand so to one of a reference.
    Related {
        /// What is taken of.
        source: Box<Source<W>>,
        /// How it has to stand.
        relation: Relation,
        /// To what.
        reference: Box<Source<W>>,
    },
}

impl<W: Clone + PartialEq> Source<W> {
    pub(crate) fn or(sources: Vec<Source<W>>) -> Source<W> {
        let mut all: Vec<Source<W>> = Vec::with_capacity(sources.len());
        for source in sources {
            let some = if let Source::Or(some) = source { some } else { vec![source] };
            for one in some {
                if one != Source::Nothing && !all.contains(&one) {
                    all.push(one);
                }
            }
        }
        if all.is_empty() { Source::Nothing } else { Source::alone_or(all, Source::Or) }
    }

    pub(crate) fn phrase(sources: Vec<Source<W>>) -> Result<Source<W>, TooMany> {
        if sources.len() == 1 {
            return Ok(Source::alone_or(sources, Source::Phrase));
        }
        let joined = |sources: Vec<Source<W>>| {
            let parts = |source| if let Source::Phrase(parts) = source { parts } else { vec![source] };
            Source::Phrase(sources.into_iter().flat_map(parts).collect())
        };
        Ok(Source::or(combinations(&sources)?.into_iter().map(joined).collect()))
    }

    pub(crate) fn ordered(sources: Vec<Source<W>>) -> Source<W> {
        let mut counted: Vec<(Source<W>, usize)> = Vec::with_capacity(sources.len());
        let parts = |source| if let Source::Ordered(parts) = source { parts } else { vec![source] };
        for source in sources.into_iter().flat_map(parts) {
            match counted.last_mut() {
                Some((last, times)) if *last == source => *times += 1,
                _ => counted.push((source, 1)),
            }
        }
        let parts = counted.into_iter().map(Source::repeated).collect();
        Source::alone_or(parts, Source::Ordered)
    }

    pub(crate) fn unordered(sources: Vec<Source<W>>) -> Source<W> {
        let mut counted: Vec<(Source<W>, usize)> = Vec::with_capacity(sources.len());
        let parts = |source| match source {
            Source::AtLeast { minimum, sources } if minimum == sources.len() => sources,
            source => vec![source],
        };
        for source in sources.into_iter().flat_map(parts) {
            match counted.iter_mut().find(|(known, _)| *known == source) {
                Some((_, times)) => *times += 1,
                None => counted.push((source, 1)),
            }
        }
        let parts = counted.into_iter().map(Source::repeated).collect();
        Source::alone_or(parts, |sources| Source::AtLeast { minimum: sources.len(), sources })
    }

    pub(crate) fn at_least(minimum: usize, sources: Vec<Source<W>>) -> Source<W> {
        match minimum {
            0 => Source::Nothing,
            some if some > sources.len() => Source::Nothing,
            all if all == sources.len() => Source::unordered(sources),
            minimum => Source::AtLeast { minimum, sources },
        }
    }

    pub(crate) fn max_gaps(most: i64, source: Source<W>) -> Result<Source<W>, TooMany> {
        let limited = |source| Source::MaxGaps(most, Box::new(source));
        Ok(Source::or(source.pull_up()?.into_iter().map(limited).collect()))
    }

    pub(crate) fn max_width(most: i64, source: Source<W>) -> Source<W> {
        Source::MaxWidth(most, Box::new(source))
    }

    pub(crate) fn extended(source: Source<W>, before: i64, after: i64) -> Source<W> {
        Source::Extended { source: Box::new(source), before, after }
    }

    pub(crate) fn related(source: Source<W>, relation: Relation, reference: Source<W>) -> Result<Source<W>, TooMany> {
        let one = Source::Related { source: Box::new(source), relation, reference: Box::new(reference) };
        Ok(match relation {
            Relation::Containing | Relation::NotContaining | Relation::ContainedBy => Source::or(one.pull_up()?),
            _ => one,
        })
    }

    /// It, where it does not stand for too many functions and words.
    pub(crate) fn bounded(self) -> Result<Source<W>, TooMany> {
        if self.size() > PARTS { Err(TooMany) } else { Ok(self) }
    }

    fn repeated((source, times): (Source<W>, usize)) -> Source<W> {
        if times == 1 { source } else { Source::Repeated { source: Box::new(source), times } }
    }

    fn alone_or(mut sources: Vec<Source<W>>, make: impl FnOnce(Vec<Source<W>>) -> Source<W>) -> Source<W> {
        match sources.len() {
            1 => sources.remove(0),
            _ => make(sources),
        }
    }

    /// Its alternatives, where it has some that may be told apart.
    fn pull_up(&self) -> Result<Vec<Source<W>>, TooMany> {
        let each = |sources: Vec<Source<W>>, make: &dyn Fn(Source<W>) -> Source<W>| {
            Ok(sources.into_iter().map(make).collect())
        };
        match self {
            Source::Nothing => Ok(Vec::new()),
            Source::Or(sources) => Ok(sources.clone()),
            Source::Ordered(sources) => Ok(combinations(sources)?.into_iter().map(Source::Ordered).collect()),
            Source::AtLeast { minimum, sources } if *minimum == sources.len() => {
                let whole = |sources| Source::AtLeast { minimum: *minimum, sources };
                Ok(combinations(sources)?.into_iter().map(whole).collect())
            }
            Source::MaxWidth(most, source) => each(source.alternatives()?, &|one| Source::max_width(*most, one)),
            Source::Extended { source, before, after } => {
                each(source.pull_up()?, &|one| Source::extended(one, *before, *after))
            }
            Source::Related { source, relation, reference } => {
                let related = |source: Source<W>, reference: Source<W>| Source::Related {
                    source: Box::new(source),
                    relation: *relation,
                    reference: Box::new(reference),
                };
                match relation {
                    Relation::Containing | Relation::NotContaining => {
                        let all = beside(source.alternatives()?, reference)?;
                        each(all, &|one| related(one, (**reference).clone()))
                    }
                    Relation::ContainedBy => {
                        let all = beside(reference.alternatives()?, source)?;
                        each(all, &|one| related((**source).clone(), one))
                    }
                    _ => Ok(vec![self.clone()]),
                }
            }
            other => Ok(vec![other.clone()]),
        }
    }

    /// Its alternatives, those of one position as one.
    fn alternatives(&self) -> Result<Vec<Source<W>>, TooMany> {
        let (short, mut long): (Vec<_>, Vec<_>) = self.pull_up()?.into_iter().partition(|one| one.extent() == 1);
        if !short.is_empty() {
            long.insert(0, Source::or(short));
        }
        Ok(long)
    }
}

/// Alternatives, if there are not too many for each to have a copy of another source beside it.
fn beside<W>(all: Vec<Source<W>>, other: &Source<W>) -> Result<Vec<Source<W>>, TooMany> {
    if all.len() > 1 && all.len() * other.size() > PARTS { Err(TooMany) } else { Ok(all) }
}

/// Every choice of one alternative of each.
fn combinations<W: Clone + PartialEq>(sources: &[Source<W>]) -> Result<Vec<Vec<Source<W>>>, TooMany> {
    let (mut all, mut size) = (vec![Vec::new()], 0);
    for source in sources {
        let alternatives = source.alternatives()?;
        let count = all.len() * alternatives.len();
        size = size * alternatives.len() + all.len() * alternatives.iter().map(Source::size).sum::<usize>();
        if count > ALTERNATIVES || count > 1 && size > PARTS {
            return Err(TooMany);
        }
        let with = |one: &Source<W>| {
            all.iter()
                .map(|before: &Vec<Source<W>>| [&before[..], std::slice::from_ref(one)].concat())
                .collect::<Vec<_>>()
        };
        all = alternatives.iter().flat_map(with).collect();
    }
    Ok(all)
}

impl<W> Source<W> {
    /// Functions and words in it.
    fn size(&self) -> usize {
        let sum = |sources: &[Source<W>]| sources.iter().map(Source::size).sum::<usize>();
        1 + match self {
            Source::Nothing | Source::Word(_) => 0,
            Source::Or(sources)
            | Source::Phrase(sources)
            | Source::Ordered(sources)
            | Source::AtLeast { sources, .. } => sum(sources),
            Source::Repeated { source, .. }
            | Source::MaxGaps(_, source)
            | Source::MaxWidth(_, source)
            | Source::Extended { source, .. } => source.size(),
            Source::Related { source, reference, .. } => source.size() + reference.size(),
        }
    }

    /// How many positions its intervals have at least, as scores take it.
    pub(crate) fn extent(&self) -> i64 {
        let sum = |sources: &[Source<W>]| sources.iter().map(Source::extent).sum();
        match self {
            Source::Nothing => 0,
            Source::Word(_) => 1,
            Source::Or(sources) => sources.iter().map(Source::extent).min().unwrap_or(0),
            Source::Phrase(sources) | Source::Ordered(sources) => sum(sources),
            Source::AtLeast { minimum, sources } => {
                let mut extents: Vec<i64> = sources.iter().map(Source::extent).collect();
                extents.sort_unstable();
                extents.iter().take(*minimum).sum()
            }
            Source::Extended { source, before, after } => before + source.extent() + after,
            Source::Repeated { source, .. }
            | Source::MaxGaps(_, source)
            | Source::MaxWidth(_, source)
            | Source::Related { source, .. } => source.extent(),
        }
    }

    /// The same of other words.
    pub(crate) fn map<V>(&self, word: &mut dyn FnMut(&W) -> V) -> Source<V> {
        let mut all = |sources: &[Source<W>]| sources.iter().map(|one| one.map(word)).collect();
        match self {
            Source::Nothing => Source::Nothing,
            Source::Or(sources) => Source::Or(all(sources)),
            Source::Phrase(sources) => Source::Phrase(all(sources)),
            Source::Ordered(sources) => Source::Ordered(all(sources)),
            Source::AtLeast { minimum, sources } => Source::AtLeast { minimum: *minimum, sources: all(sources) },
            Source::Word(one) => Source::Word(word(one)),
            Source::Repeated { source, times } => {
                Source::Repeated { source: Box::new(source.map(word)), times: *times }
            }
            Source::MaxGaps(most, source) => Source::MaxGaps(*most, Box::new(source.map(word))),
            Source::MaxWidth(most, source) => Source::MaxWidth(*most, Box::new(source.map(word))),
            Source::Extended { source, before, after } => {
                Source::Extended { source: Box::new(source.map(word)), before: *before, after: *after }
            }
            Source::Related { source, relation, reference } => Source::Related {
                source: Box::new(source.map(word)),
                relation: *relation,
                reference: Box::new(reference.map(word)),
            },
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Text(text) => f.write_str(text),
            Word::Pattern { query, .. } => match &**query {
                Query::Wildcard { pattern, .. } => f.write_str(pattern),
                Query::Fuzzy { text, edits, .. } => write!(f, "{text}~{edits}"),
                other => other.fmt(f),
            },
        }
    }
}

impl<W: fmt::Display> fmt::Display for Source<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |sources: &[Source<W>]| sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Source::Nothing => f.write_str("no_match"),
            Source::Word(word) => word.fmt(f),
            Source::Or(sources) => write!(f, "or({})", list(sources)),
            Source::Phrase(sources) => write!(f, "BLOCK({})", list(sources)),
            Source::Ordered(sources) => write!(f, "ORDERED({})", list(sources)),
            Source::AtLeast { minimum, sources } if *minimum == sources.len() => {
                write!(f, "UNORDERED({})", list(sources))
            }
            Source::AtLeast { minimum, sources } => write!(f, "AtLeast({}~{minimum})", list(sources)),
            Source::Repeated { source, times } => f.write_str(&vec![source.to_string(); *times].join(",")),
            Source::MaxGaps(most, source) => write!(f, "MAXGAPS/{most}({source})"),
            Source::MaxWidth(most, source) => write!(f, "MAXWIDTH/{most}({source})"),
            Source::Extended { source, before, after } => write!(f, "EXTEND({source},{before},{after})"),
            Source::Related { source, relation, reference } => {
                let name = match relation {
                    Relation::Containing => "CONTAINING",
                    Relation::NotContaining => "NOT_CONTAINING",
                    Relation::ContainedBy => "CONTAINED_BY",
                    Relation::NotContainedBy => "NOT_CONTAINED_BY",
                    Relation::Overlapping => "OVERLAPPING",
                    Relation::NonOverlapping => "NON_OVERLAPPING",
                    Relation::Before => "BEFORE",
                    Relation::After => "AFTER",
                };
                write!(f, "{name}({source},{reference})")
            }
        }
    }
}
