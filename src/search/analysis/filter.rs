//! What happens to a token behind the tokenizer.

use std::sync::Arc;

use super::stem::Word;
use super::unicode::lower;
use super::words::Words;

/// One step of an analyzer. Tokens go through it one at a time.
#[derive(Clone)]
pub enum TokenFilter {
    /// Lower case.
    Lower,
    /// Another way to change the text of a token as it is written.
    Text(fn(&mut String)),
    /// Changes characters: normal forms, stems.
    Chars(fn(&mut Word)),
    /// Leaves words out.
    Stop(Words),
    /// Takes articles off that end in an apostrophe.
    Elision(&'static [&'static str]),
    /// A stemmer of the Snowball family.
    Snowball(Arc<rust_stemmers::Stemmer>),
    /// A stemmer of the Snowball family, of languages that came to it later.
    LateSnowball(frostem::Stemmer),
    /// Words with stems of their own, which no other stemmer sees.
    Override(&'static [(&'static str, &'static str)]),
}

/// What becomes of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// On to the next filter.
    Go,
    /// It is as it should be.
    Done,
    /// It is left out.
    Drop,
}

/// Buffers of one run of an analyzer.
#[derive(Default)]
pub struct Scratch {
    /// The token.
    pub text: String,
    word: Word,
}

impl TokenFilter {
    /// Changes the token in `scratch`.
    pub fn apply(&self, scratch: &mut Scratch) -> Outcome {
        let text = &mut scratch.text;
        match self {
            TokenFilter::Lower => to_lower(text),
            TokenFilter::Text(change) => change(text),
            TokenFilter::Chars(change) => {
                scratch.word.set(text);
                change(&mut scratch.word);
                scratch.word.write(text);
            }
            TokenFilter::Stop(words) => {
                if words.contains(text.as_str()) {
                    return Outcome::Drop;
                }
            }
            TokenFilter::Elision(articles) => elide(text, articles),
            TokenFilter::Snowball(stemmer) => {
                let stem = stemmer.stem(text);
                if stem != text.as_str() {
                    let stem = stem.into_owned();
                    *text = stem;
                }
            }
            TokenFilter::LateSnowball(stemmer) => {
                let stem = stemmer.stem(text);
                if stem != text.as_str() {
                    let stem = stem.into_owned();
                    *text = stem;
                }
            }
            TokenFilter::Override(words) => {
                if let Some((_, stem)) = words.iter().find(|(word, _)| word == text) {
                    text.clear();
                    text.push_str(stem);
                    return Outcome::Done;
                }
            }
        }
        Outcome::Go
    }
}

/// Sends the token in `scratch` through filters; whether it stays.
pub fn run(filters: &[TokenFilter], scratch: &mut Scratch) -> bool {
    for filter in filters {
        match filter.apply(scratch) {
            Outcome::Go => {}
            Outcome::Done => return true,
            Outcome::Drop => return false,
        }
    }
    true
}

/// Lower case, character by character.
pub fn to_lower(text: &mut String) {
    if text.is_ascii() {
        text.make_ascii_lowercase();
    } else if text.chars().any(|c| lower(c) != c) {
        *text = text.chars().map(lower).collect();
    }
}

/// Takes an article off that stands before the first apostrophe.
fn elide(text: &mut String, articles: &[&str]) {
    let Some(at) = text.find(['\'', '\u{2019}']) else { return };
    let mut article = text[..at].to_owned();
    to_lower(&mut article);
    if articles.contains(&article.as_str()) {
        let mark = if text.as_bytes()[at] == b'\'' { 1 } else { '\u{2019}'.len_utf8() };
        text.drain(..at + mark);
    }
}

/// Takes the `'s` of English possessives off.
pub fn possessive(text: &mut String) {
    let Some(rest) = text.strip_suffix(['s', 'S']) else { return };
    if let Some(rest) = rest.strip_suffix(['\'', '\u{2019}', '\u{ff07}']) {
        let length = rest.len();
        text.truncate(length);
    }
}
