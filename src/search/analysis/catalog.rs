//! Which tokenizer and filters each analyzer is made of.

use std::fmt;
use std::sync::Arc;

use super::filter::{Filter, Scratch, possessive};
use super::stem::porter;
use super::words::{self, Words};
use super::{MAX_TOKEN, TokenRef, plain, standard, unicode};

/// How text is cut before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// Not at all.
    Keyword,
    /// At spaces.
    Space,
    /// At whatever is no letter.
    Letter,
    /// By the rules for words of Unicode.
    Standard,
}

/// An analyzer: one tokenizer, then filters in their order.
pub struct Pipeline {
    tokenizer: Tokenizer,
    filters: Vec<Filter>,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} and {} filters", self.tokenizer, self.filters.len())
    }
}

/// What tokens of the tokenizer become.
struct Sink<'a> {
    text: &'a str,
    filters: &'a [Filter],
    scratch: Scratch,
    position: u32,
    each: &'a mut dyn FnMut(TokenRef<'_>),
}

impl Sink<'_> {
    /// Sends the text between two places through the filters.
    fn token(&mut self, start: usize, end: usize) {
        let position = self.skip();
        self.scratch.text.clear();
        self.scratch.text.push_str(&self.text[start..end]);
        if self.filters.iter().all(|filter| filter.apply(&mut self.scratch)) {
            (self.each)(TokenRef { text: &self.scratch.text, position, start, end });
        }
    }

    /// The same, of tokens that are dropped when they are too long.
    fn bounded(&mut self, start: usize, end: usize) {
        let is_long = end - start > MAX_TOKEN && self.text[start..end].encode_utf16().count() > MAX_TOKEN;
        if is_long {
            self.skip();
        } else {
            self.token(start, end);
        }
    }

    /// Counts one position.
    fn skip(&mut self) -> u32 {
        let position = self.position;
        self.position = position.saturating_add(1);
        position
    }
}

impl Pipeline {
    /// Tells `each` the tokens of `text`.
    pub fn run(&self, text: &str, each: &mut dyn FnMut(TokenRef<'_>)) {
        let mut sink = Sink { text, filters: &self.filters, scratch: Scratch::default(), position: 0, each };
        match self.tokenizer {
            Tokenizer::Keyword => sink.token(0, text.len()),
            Tokenizer::Space => plain::tokens(text, |c| !unicode::is_space(c), |start, end| sink.token(start, end)),
            Tokenizer::Letter => plain::tokens(text, unicode::is_letter, |start, end| sink.token(start, end)),
            Tokenizer::Standard => standard::tokens(text, false, |start, end, _| sink.bounded(start, end)),
        }
    }

    /// Whether text is one token as it is.
    pub fn is_keyword(&self) -> bool {
        self.tokenizer == Tokenizer::Keyword
    }
}

/// The analyzer of this name; `stopwords` stand in the place of its own.
pub fn pipeline(name: &str, stopwords: Option<&[String]>) -> Option<Pipeline> {
    let stop = |own: &str| -> Filter { Filter::Stop(stop_words(stopwords, own)) };
    let (tokenizer, filters) = match name {
        "keyword" => (Tokenizer::Keyword, Vec::new()),
        "whitespace" => (Tokenizer::Space, Vec::new()),
        "simple" => (Tokenizer::Letter, vec![Filter::Lower]),
        "standard" => (Tokenizer::Standard, vec![Filter::Lower, stop(ENGLISH)]),
        "english" => (
            Tokenizer::Standard,
            vec![Filter::Text(possessive), Filter::Lower, stop(ENGLISH), Filter::Chars(porter::stem)],
        ),
        _ => return None,
    };
    Some(Pipeline { tokenizer, filters })
}

const ENGLISH: &str = include_str!("words/english.txt");

/// The words given, or else those of the analyzer.
fn stop_words(given: Option<&[String]>, own: &str) -> Words {
    match given {
        Some(given) => Arc::new(given.iter().map(|word| Box::from(word.as_str())).collect()),
        None => words::parse(own),
    }
}
