//! Lucene's classic query syntax, as the reference's search reads it, to a tree.
//!
//! The grammar is that of Lucene 4 with two changes: a bare word that reads as a number looks for a number, and a range
//! between two numbers is a range of numbers. `Display` writes a tree in the form of Lucene's `toString`.

mod display;
mod escape;
pub mod flexible;
pub mod intervals;
mod java;
mod lexer;
mod parser;
mod unfinished;

use std::fmt;

use crate::analysis::Analyzer;
use crate::search::Limits;

pub(crate) use parser::number_range;
pub use unfinished::with_prefix;

/// A query that was understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Everything.
    All,
    /// Nothing: the text had no word that an analyzer kept.
    Nothing,
    /// Documents with this word.
    Term {
        /// The field.
        field: String,
        /// The word as it is indexed.
        text: String,
    },
    /// Documents with this number.
    Number {
        /// The field.
        field: String,
        /// The number.
        value: f64,
    },
    /// Documents with these words in this order.
    Phrase {
        /// The field.
        field: String,
        /// Position within the phrase, ascending, and the words of which one stands there.
        words: Vec<(u32, Vec<String>)>,
        /// Moves that the words may be away from their places.
        slop: u32,
    },
    /// Documents that have an interval.
    Intervals {
        /// The field.
        field: String,
        /// What has intervals.
        source: intervals::Source<intervals::Word>,
    },
    /// Documents with a word between two, by bytes.
    Range {
        /// The field.
        field: String,
        /// The first word.
        lower: String,
        /// The last word.
        upper: String,
        /// Whether the first word itself counts.
        has_lower: bool,
        /// Whether the last word itself counts.
        has_upper: bool,
    },
    /// Documents with a word from one on, by bytes.
    From {
        /// The field.
        field: String,
        /// The first word.
        lower: String,
        /// Whether the first word itself counts.
        has_lower: bool,
    },
    /// Documents with a number between two.
    NumberRange {
        /// The field.
        field: String,
        /// The least number.
        lower: f64,
        /// The greatest number.
        upper: f64,
        /// Whether the least number itself counts.
        has_lower: bool,
        /// Whether the greatest number itself counts.
        has_upper: bool,
    },
    /// Documents with a word that begins so.
    Prefix {
        /// The field.
        field: String,
        /// How the word begins.
        prefix: String,
    },
    /// Documents with a word that matches a pattern of `*`, `?` and `\` escapes.
    Wildcard {
        /// The field.
        field: String,
        /// The pattern.
        pattern: String,
    },
    /// Documents with a word that a regular expression matches as a whole.
    Regexp {
        /// The field.
        field: String,
        /// The expression, in the dialect of Lucene.
        pattern: String,
    },
    /// Documents with a word a few edits away.
    Fuzzy {
        /// The field.
        field: String,
        /// The word.
        text: String,
        /// Insertions, deletions, substitutions and transpositions that may be between: 0 to 2.
        edits: u8,
    },
    /// Several queries at once.
    Boolean {
        /// They, in the order of the text.
        clauses: Vec<Clause>,
        /// Whether the share of clauses that match counts. It does not for words at one position.
        has_coord: bool,
    },
    /// Several queries at once, of which some have to match.
    Minimum {
        /// The queries, a `Boolean`.
        query: Box<Query>,
        /// How many of those that are optional have to match.
        minimum: u32,
    },
    /// A query with another weight than 1.
    Boost {
        /// The query.
        query: Box<Query>,
        /// Its weight.
        boost: f32,
    },
}

/// A part of a boolean query.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// What it is for.
    pub occur: Occur,
    /// What it looks for.
    pub query: Query,
}

/// What a clause is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occur {
    /// Every match has it.
    Must,
    /// It adds to the score, and without a `Must` one of these has to match.
    Should,
    /// No match has it.
    MustNot,
}

/// Why a query was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// 400 `bad_request` with this reason, which begins with ``Cannot parse '…': ``.
    Syntax(String),
    /// 500 `unknown_error`: an accident of the reference (a regular expression that is none).
    Invalid(String),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Syntax(reason) | QueryError::Invalid(reason) => f.write_str(reason),
        }
    }
}

/// Reads a query under the default limits. Words without a field are looked for in `default`.
pub fn parse(text: &str, analyzer: &Analyzer) -> Result<Query, QueryError> {
    parse_within(text, analyzer, &Limits::default())
}

/// Reads a query with no more brackets in brackets and no more clauses than `limits` allow.
pub fn parse_within(text: &str, analyzer: &Analyzer, limits: &Limits) -> Result<Query, QueryError> {
    parser::parse(text, analyzer, limits)
}

/// Whether words of expanded terms of a field are left as they are.
pub(crate) fn keeps_case(field: &str, analyzer: &Analyzer) -> bool {
    field == crate::document::ID || analyzer.is_keyword(field)
}
