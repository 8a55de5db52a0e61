//! Which tokenizer and filters each analyzer is made of.

use std::fmt;
use std::sync::Arc;

use super::cjk::{self, Pairs};
use super::dictionary::Piece;
use super::filter::{self, Scratch, TokenFilter, possessive};
use super::stem::{arabic, brazilian, galician, greek, indic, indonesian, light, porter, slavic};
use super::words::{self, Words};
use super::{MAX_TOKEN, TokenRef, case, classic, dictionary, email, plain, standard, unicode};

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
    /// The same, and at zero width non-joiners.
    StandardJoint,
    /// The same, with pairs of Chinese, Japanese and Korean characters.
    Pairs,
    /// By the patterns that came before.
    Classic,
    /// By the rules for words of Unicode, addresses as a whole.
    Email,
    /// Thai words by a dictionary.
    Thai,
    /// Chinese words by a dictionary.
    Chinese,
    /// Japanese words by a dictionary.
    Japanese,
}

/// An analyzer: one tokenizer, then filters in their order.
pub struct Pipeline {
    tokenizer: Tokenizer,
    filters: Vec<TokenFilter>,
    /// Behind the making of pairs.
    last: Vec<TokenFilter>,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} and {} filters", self.tokenizer, self.filters.len() + self.last.len())
    }
}

/// What tokens of the tokenizer become.
struct Sink<'a> {
    text: &'a str,
    pipeline: &'a Pipeline,
    scratch: Scratch,
    position: u32,
    each: &'a mut dyn FnMut(TokenRef<'_>),
}

impl Sink<'_> {
    /// Sends the text between two places through the filters.
    fn token(&mut self, start: usize, end: usize) {
        self.load(start, end);
        self.send(start, end);
    }

    fn load(&mut self, start: usize, end: usize) {
        self.scratch.text.clear();
        self.scratch.text.push_str(&self.text[start..end]);
    }

    /// Sends the token that is loaded through the filters.
    fn send(&mut self, start: usize, end: usize) {
        let position = self.skip();
        if filter::run(&self.pipeline.filters, &mut self.scratch) {
            (self.each)(TokenRef { text: &self.scratch.text, position, start, end });
        }
    }

    /// Whether the text between two places is too long for a token; a place is counted for it then.
    fn is_long(&mut self, start: usize, end: usize) -> bool {
        let is_long = end - start > MAX_TOKEN && self.text[start..end].encode_utf16().count() > MAX_TOKEN;
        if is_long {
            self.skip();
        }
        is_long
    }

    /// Counts one position.
    fn skip(&mut self) -> u32 {
        let position = self.position;
        self.position = position.saturating_add(1);
        position
    }

    fn classic(&mut self) {
        classic::tokens(self.text, |start, end, kind| {
            if !self.is_long(start, end) {
                self.load(start, end);
                classic::trim(&mut self.scratch.text, kind);
                self.send(start, end);
            }
        });
    }

    /// A piece of text that a dictionary cut out.
    fn piece(&mut self, start: usize, end: usize, piece: Piece) {
        match piece {
            Piece::Token => self.token(start, end),
            Piece::Hole => {
                self.skip();
            }
            Piece::Mark => {
                self.scratch.text.clear();
                self.scratch.text.push(',');
                self.send(start, end);
            }
        }
    }

    /// Tokens of the standard tokenizer, those of Chinese, Japanese and Korean cut into pairs.
    fn pairs(&mut self) {
        let mut pairs = Pairs::default();
        standard::tokens(self.text, false, |start, end, kind| {
            if self.is_long(start, end) {
                return;
            }
            self.load(start, end);
            filter::run(&self.pipeline.filters, &mut self.scratch);
            if cjk::is_cut(kind, &self.text[start..end]) {
                let token = std::mem::take(&mut self.scratch.text);
                pairs.push(&token, &self.text[start..end], start, |text, start, end| self.last(text, start, end));
            } else {
                let token = std::mem::take(&mut self.scratch.text);
                pairs.flush(|text, start, end| self.last(text, start, end));
                self.last(&token, start, end);
            }
        });
        pairs.flush(|text, start, end| self.last(text, start, end));
    }

    /// Sends a text through the last filters.
    fn last(&mut self, text: &str, start: usize, end: usize) {
        let position = self.skip();
        self.scratch.text.clear();
        self.scratch.text.push_str(text);
        if filter::run(&self.pipeline.last, &mut self.scratch) {
            (self.each)(TokenRef { text: &self.scratch.text, position, start, end });
        }
    }
}

impl Pipeline {
    /// Tells `each` the tokens of `text`.
    pub fn run(&self, text: &str, each: &mut dyn FnMut(TokenRef<'_>)) {
        let mut sink = Sink { text, pipeline: self, scratch: Scratch::default(), position: 0, each };
        match self.tokenizer {
            Tokenizer::Keyword => sink.token(0, text.len()),
            Tokenizer::Space => plain::tokens(text, |c| !unicode::is_space(c), |start, end| sink.token(start, end)),
            Tokenizer::Letter => plain::tokens(text, unicode::is_letter, |start, end| sink.token(start, end)),
            Tokenizer::Standard | Tokenizer::StandardJoint => {
                let is_joint_space = self.tokenizer == Tokenizer::StandardJoint;
                standard::tokens(text, is_joint_space, |start, end, _| {
                    if !sink.is_long(start, end) {
                        sink.token(start, end);
                    }
                });
            }
            Tokenizer::Pairs => sink.pairs(),
            Tokenizer::Classic => sink.classic(),
            Tokenizer::Thai => dictionary::thai(text, |start, end| {
                if !sink.is_long(start, end) {
                    sink.token(start, end);
                }
            }),
            Tokenizer::Chinese => dictionary::chinese(text, |start, end, piece| sink.piece(start, end, piece)),
            Tokenizer::Japanese => dictionary::japanese(text, |start, end, piece| sink.piece(start, end, piece)),
            Tokenizer::Email => email::tokens(text, |start, end| {
                if !sink.is_long(start, end) {
                    sink.token(start, end);
                }
            }),
        }
    }

    /// Whether text is one token as it is.
    pub fn is_keyword(&self) -> bool {
        self.tokenizer == Tokenizer::Keyword
    }
}

/// The words given, or else those of the analyzer.
fn stop_words(given: Option<&[String]>, own: &str) -> Words {
    match given {
        Some(given) => Arc::new(given.iter().map(|word| Box::from(word.as_str())).collect()),
        None => words::parse(own),
    }
}

/// Dutch words that the stemmer would cut too short.
const DUTCH: &[(&str, &str)] = &[("fiets", "fiets"), ("bromfiets", "bromfiets"), ("ei", "eier"), ("kind", "kinder")];

const CATALAN_ARTICLES: &[&str] = &["d", "l", "m", "n", "s", "t"];
const FRENCH_ARTICLES: &[&str] = &["l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu"];
const IRISH_ARTICLES: &[&str] = &["d", "m", "b"];
const ITALIAN_ARTICLES: &[&str] = &[
    "c", "l", "all", "dall", "dell", "nell", "sull", "coll", "pell", "gl", "agl", "dagl", "degl", "negl", "sugl", "un",
    "m", "t", "s", "v", "d",
];

fn snowball(algorithm: rust_stemmers::Algorithm) -> TokenFilter {
    TokenFilter::Snowball(Arc::new(rust_stemmers::Stemmer::create(algorithm)))
}

fn late_snowball(algorithm: frostem::Algorithm) -> TokenFilter {
    TokenFilter::LateSnowball(frostem::Stemmer::new(algorithm))
}

/// The analyzer of this name; `stopwords` stand in the place of its own.
pub fn pipeline(name: &str, stopwords: Option<&[String]>) -> Option<Pipeline> {
    let stop = |own: &str| -> TokenFilter { TokenFilter::Stop(stop_words(stopwords, own)) };
    let english = include_str!("words/english.txt");
    let (tokenizer, filters, last) = match name {
        "keyword" => (Tokenizer::Keyword, Vec::new(), Vec::new()),
        "whitespace" => (Tokenizer::Space, Vec::new(), Vec::new()),
        "simple" => (Tokenizer::Letter, vec![TokenFilter::Lower], Vec::new()),
        "simple_asciifolding" => {
            (Tokenizer::Letter, vec![TokenFilter::Lower, TokenFilter::Text(case::fold)], Vec::new())
        }
        "standard" => (Tokenizer::Standard, vec![TokenFilter::Lower, stop(english)], Vec::new()),
        "classic" => (Tokenizer::Classic, vec![TokenFilter::Lower, stop(english)], Vec::new()),
        "email" => (Tokenizer::Email, vec![TokenFilter::Lower, stop(english)], Vec::new()),
        "cjk" => (
            Tokenizer::Pairs,
            vec![TokenFilter::Chars(case::width), TokenFilter::Lower],
            vec![stop(include_str!("words/cjk.txt"))],
        ),
        "chinese" => (
            Tokenizer::Chinese,
            vec![
                TokenFilter::Text(dictionary::chinese_width),
                TokenFilter::Chars(porter::stem),
                stop(include_str!("words/chinese.txt")),
            ],
            Vec::new(),
        ),
        "japanese" => (
            Tokenizer::Japanese,
            vec![
                TokenFilter::Chars(case::width),
                stop(include_str!("words/japanese.txt")),
                TokenFilter::Text(dictionary::katakana_stem),
                TokenFilter::Lower,
            ],
            Vec::new(),
        ),
        "thai" => (Tokenizer::Thai, language(name, &stop)?, Vec::new()),
        "persian" => (Tokenizer::StandardJoint, language(name, &stop)?, Vec::new()),
        _ => (Tokenizer::Standard, language(name, &stop).or_else(|| light_language(name, &stop))?, Vec::new()),
    };
    Some(Pipeline { tokenizer, filters, last })
}

/// Filters of languages behind the standard tokenizer.
fn language(name: &str, stop: &dyn Fn(&str) -> TokenFilter) -> Option<Vec<TokenFilter>> {
    use TokenFilter::{Chars, Elision, Lower, Override, Text};
    use frostem::Algorithm as Late;
    use rust_stemmers::Algorithm;
    Some(match name {
        "arabic" => vec![Lower, stop(include_str!("words/arabic.txt")), Chars(arabic::normal), Chars(arabic::stem)],
        "armenian" => vec![Lower, stop(include_str!("words/armenian.txt")), late_snowball(Late::Armenian)],
        "basque" => vec![Lower, stop(include_str!("words/basque.txt")), late_snowball(Late::Basque)],
        "catalan" => vec![
            Elision(CATALAN_ARTICLES),
            Lower,
            stop(include_str!("words/catalan.txt")),
            late_snowball(Late::Catalan),
        ],
        "danish" => vec![Lower, stop(include_str!("words/danish.txt")), snowball(Algorithm::Danish)],
        "dutch" => {
            vec![Lower, stop(include_str!("words/dutch.txt")), Override(DUTCH), snowball(Algorithm::Dutch)]
        }
        "finnish" => vec![Lower, stop(include_str!("words/finnish.txt")), snowball(Algorithm::Finnish)],
        "hungarian" => vec![Lower, stop(include_str!("words/hungarian.txt")), snowball(Algorithm::Hungarian)],
        "irish" => vec![
            TokenFilter::Stop(words::parse("h n t H N T")),
            Elision(IRISH_ARTICLES),
            Text(case::irish),
            stop(include_str!("words/irish.txt")),
            late_snowball(Late::Irish),
        ],
        "norwegian" => vec![Lower, stop(include_str!("words/norwegian.txt")), snowball(Algorithm::Norwegian)],
        "persian" => {
            vec![Lower, Chars(arabic::normal), Chars(arabic::persian_normal), stop(include_str!("words/persian.txt"))]
        }
        "polish" => vec![Lower, stop(include_str!("words/polish.txt"))],
        "romanian" => vec![Lower, stop(include_str!("words/romanian.txt")), snowball(Algorithm::Romanian)],
        "russian" => vec![Lower, stop(include_str!("words/russian.txt")), snowball(Algorithm::Russian)],
        "swedish" => vec![Lower, stop(include_str!("words/swedish.txt")), snowball(Algorithm::Swedish)],
        "thai" => vec![Lower, stop(include_str!("words/thai.txt"))],
        "turkish" => vec![Text(case::turkish), stop(include_str!("words/turkish.txt")), snowball(Algorithm::Turkish)],
        _ => return None,
    })
}

/// Filters of languages whose stemmers are written here.
fn light_language(name: &str, stop: &dyn Fn(&str) -> TokenFilter) -> Option<Vec<TokenFilter>> {
    use TokenFilter::{Chars, Elision, Lower, Text};
    Some(match name {
        "english" => {
            vec![Text(possessive), Lower, stop(include_str!("words/english.txt")), Chars(porter::stem)]
        }
        "brazilian" => vec![Lower, stop(include_str!("words/brazilian.txt")), Chars(brazilian::stem)],
        "bulgarian" => vec![Lower, stop(include_str!("words/bulgarian.txt")), Chars(slavic::bulgarian)],
        "czech" => vec![Lower, stop(include_str!("words/czech.txt")), Chars(slavic::czech)],
        "french" => vec![Elision(FRENCH_ARTICLES), Lower, stop(include_str!("words/french.txt")), Chars(light::french)],
        "galician" => vec![Lower, stop(include_str!("words/galician.txt")), Chars(galician::stem)],
        "german" => {
            vec![Lower, stop(include_str!("words/german.txt")), Chars(light::german_normal), Chars(light::german)]
        }
        "greek" => vec![Text(case::greek), stop(include_str!("words/greek.txt")), Chars(greek::stem)],
        "hindi" => vec![
            Lower,
            Chars(indic::normal),
            Chars(indic::hindi_normal),
            stop(include_str!("words/hindi.txt")),
            Chars(indic::hindi),
        ],
        "indonesian" => vec![Lower, stop(include_str!("words/indonesian.txt")), Chars(indonesian::stem)],
        "italian" => {
            vec![Elision(ITALIAN_ARTICLES), Lower, stop(include_str!("words/italian.txt")), Chars(light::italian)]
        }
        "latvian" => vec![Lower, stop(include_str!("words/latvian.txt")), Chars(slavic::latvian)],
        "portuguese" => vec![Lower, stop(include_str!("words/portuguese.txt")), Chars(light::portuguese)],
        "spanish" => vec![Lower, stop(include_str!("words/spanish.txt")), Chars(light::spanish)],
        _ => return None,
    })
}
