//! Chinese, Japanese and Korean text in pairs of characters, as Lucene's bigram filter makes them; a character that
//! stands alone is a token.

use super::standard::Kind;
use super::unicode::is_hangul;

/// One character of a run, with its place in the text.
#[derive(Clone, Copy)]
struct Character {
    c: char,
    start: usize,
    end: usize,
}

/// The run of characters that is being read.
#[derive(Default)]
pub struct Pairs {
    last: Option<Character>,
    has_pair: bool,
    end: usize,
}

/// Whether a token of the standard tokenizer is cut into pairs.
pub fn is_cut(kind: Kind, source: &str) -> bool {
    match kind {
        Kind::Han | Kind::Hiragana | Kind::Katakana => true,
        Kind::Complex => false,
        Kind::Word => {
            source.chars().next().is_some_and(is_hangul)
                && source.chars().all(|c| is_hangul(c) || super::unicode::is_mark(c))
        }
    }
}

impl Pairs {
    /// Takes a token that [`is_cut`]: `token` is its text behind the filters, `source` as it is written, from `start`
    /// on.
    pub fn push(&mut self, token: &str, source: &str, start: usize, mut emit: impl FnMut(&str, usize, usize)) {
        if start != self.end {
            self.flush(&mut emit);
        }
        let end = start + source.len();
        self.end = end;
        let is_same = token.chars().count() == source.chars().count();
        let mut places = source.char_indices();
        for c in token.chars() {
            let place = if is_same { places.next() } else { None };
            let character = match place {
                Some((at, was)) => Character { c, start: start + at, end: start + at + was.len_utf8() },
                None => Character { c, start, end },
            };
            if let Some(last) = self.last.replace(character) {
                let mut pair = String::with_capacity(8);
                pair.push(last.c);
                pair.push(c);
                emit(&pair, last.start, character.end);
                self.has_pair = true;
            }
        }
    }

    /// Ends the run.
    pub fn flush(&mut self, mut emit: impl FnMut(&str, usize, usize)) {
        if let Some(last) = self.last.take()
            && !self.has_pair
        {
            emit(last.c.encode_utf8(&mut [0; 4]), last.start, last.end);
        }
        self.has_pair = false;
    }
}
