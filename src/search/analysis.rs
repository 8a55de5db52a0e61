//! Text to tokens, as the analyzers of Lucene 4 do it.
//!
//! ```text
//!   catalog   which tokenizer and filters an analyzer is made of
//!   lucene9   the analyzers of Lucene 9, where they are others
//!   standard, classic, email, plain, cjk   tokenizers
//!   filter    what happens to single tokens
//!   stem      stems of words
//!   words     words that are left out
//!   unicode   classes of characters
//! ```

mod case;
mod catalog;
mod cjk;
mod classic;
mod dictionary;
mod email;
mod filter;
mod lucene9;
mod plain;
mod segmenter;
mod standard;
mod stem;
mod unicode;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use catalog::Pipeline;
use lucene9::Normal;

use crate::document::Scoring;

/// Longest token, in UTF-16 units as Lucene counts. The standard tokenizer drops longer ones, others cut them.
pub const MAX_TOKEN: usize = 255;

/// An analyzer as a design document names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// By name.
    Named {
        /// `standard`, `keyword`, `english` …
        name: String,
        /// Words that are left out in place of the analyzer's own.
        stopwords: Option<Vec<String>>,
    },
    /// One for each field.
    PerField {
        /// For fields that are not named.
        default: Box<Spec>,
        /// By name of the field.
        fields: BTreeMap<String, Spec>,
    },
}

/// No analyzer has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAnalyzer(pub String);

impl fmt::Display for UnknownAnalyzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such analyzer: {}", self.0)
    }
}

/// A piece of text that is looked for as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The word as it is indexed.
    pub text: String,
    /// Its place among the words of the text, from 0; words that were left out count.
    pub position: u32,
    /// Where it begins in the text, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// A [`Token`] whose text is borrowed from the analyzer's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRef<'a> {
    /// The word as it is indexed.
    pub text: &'a str,
    /// Its place among the words of the text, from 0; words that were left out count.
    pub position: u32,
    /// Where it begins in the text, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl TokenRef<'_> {
    /// The token with a text of its own.
    pub fn to_token(&self) -> Token {
        Token { text: self.text.to_owned(), position: self.position, start: self.start, end: self.end }
    }
}

/// Cuts the text of fields into tokens. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Analyzer(Arc<Fields>);

/// The analyzers of an index.
#[derive(Debug)]
struct Fields {
    default: Arc<Pipeline>,
    named: BTreeMap<String, Arc<Pipeline>>,
    scoring: Scoring,
    /// How words that are not cut are written, of fields that are named and of others.
    normal: (BTreeMap<String, Normal>, Normal),
}

impl Analyzer {
    /// The analyzer of a specification. An unknown name inside `PerField` stands for the default, any other is an
    /// error.
    pub fn new(spec: Spec) -> Result<Analyzer, UnknownAnalyzer> {
        let (default, fields) = match &spec {
            Spec::Named { .. } => (named(&spec)?, BTreeMap::new()),
            Spec::PerField { default, fields } => (named(default).or_else(|_| standard())?, fields.clone()),
        };
        let named = fields
            .into_iter()
            .map(|(field, spec)| (field, named(&spec).unwrap_or_else(|_| Arc::clone(&default))))
            .collect();
        let normal = (BTreeMap::new(), Normal::Lower);
        Ok(Analyzer(Arc::new(Fields { default, named, scoring: Scoring::TfIdf, normal })))
    }

    /// How the matches of an index with this analyzer are scored.
    pub fn scoring(&self) -> Scoring {
        self.0.scoring
    }

    /// A word of a query that is not cut, as the words of `field` are written.
    pub fn normal(&self, field: &str, text: &str) -> String {
        let (named, default) = &self.0.normal;
        named.get(field).unwrap_or(default).apply(text)
    }

    fn pipeline(&self, field: &str) -> &Pipeline {
        self.0.named.get(field).unwrap_or(&self.0.default)
    }

    /// The tokens of a text of `field`, in the order of their positions.
    pub fn tokens(&self, field: &str, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.for_each_token(field, text, &mut |token| tokens.push(token.to_token()));
        tokens
    }

    /// Tells `each` the tokens of a text of `field`, in the order of their positions, without a copy of each.
    pub fn for_each_token(&self, field: &str, text: &str, each: &mut dyn FnMut(TokenRef<'_>)) {
        self.pipeline(field).run(text, each);
    }

    /// Whether a field's text is one token as it is: terms of wildcards and ranges are not lower-cased then.
    pub fn is_keyword(&self, field: &str) -> bool {
        self.pipeline(field).is_keyword()
    }
}

/// The analyzer of fields for which none is named.
fn standard() -> Result<Arc<Pipeline>, UnknownAnalyzer> {
    named(&Spec::Named { name: "standard".to_owned(), stopwords: None })
}

/// The analyzer that a specification names; one for each field has no place here.
fn named(spec: &Spec) -> Result<Arc<Pipeline>, UnknownAnalyzer> {
    match spec {
        Spec::Named { name, stopwords } => {
            catalog::pipeline(name, stopwords.as_deref()).map(Arc::new).ok_or_else(|| UnknownAnalyzer(name.clone()))
        }
        Spec::PerField { .. } => Err(UnknownAnalyzer("perfield".to_owned())),
    }
}
