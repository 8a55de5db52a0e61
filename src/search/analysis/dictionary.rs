//! Tokenizers of languages that write no spaces between words, by the dictionaries of ICU.
//!
//! The reference has dictionaries of its own for Chinese (a hidden Markov model) and Japanese (with parts of speech
//! and base forms) and that of Java for Thai. Text in other scripts is cut as there; words of these languages may be
//! cut elsewhere, and Japanese verbs keep their endings.

use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};

use super::segmenter::segmenter;
use super::standard::{self, Kind};
use super::unicode::category;

/// A piece of text that was cut out.
pub enum Piece {
    /// A token.
    Token,
    /// Punctuation that takes a place among the words.
    Mark,
    /// What takes a place among the words and is no token.
    Hole,
}

/// Tells `each` the words of a run of letters that begins at `start`.
fn words(text: &str, start: usize, end: usize, mut each: impl FnMut(usize, usize)) {
    let mut from = start;
    for at in segmenter().segment_str(&text[start..end]) {
        let to = start + at;
        if to > from {
            each(from, to);
            from = to;
        }
    }
}

/// Thai: words of the standard tokenizer, runs of Thai letters by the dictionary.
pub fn thai(text: &str, mut each: impl FnMut(usize, usize)) {
    standard::tokens(text, false, |start, end, kind| {
        let is_thai = text[start..].starts_with(|c| ('\u{e00}'..='\u{e7f}').contains(&c));
        if kind == Kind::Complex && is_thai {
            words(text, start, end, &mut each);
        } else {
            each(start, end);
        }
    });
}

/// What Chinese text is made of.
#[derive(Clone, Copy, PartialEq)]
enum Chinese {
    Han,
    Letter,
    Digit,
    Space,
    Mark,
    Other,
}

fn chinese_class(c: char) -> Chinese {
    match c {
        '\u{4e00}'..='\u{9fa5}' => Chinese::Han,
        'A'..='Z' | 'a'..='z' | '\u{ff21}'..='\u{ff3a}' | '\u{ff41}'..='\u{ff5a}' => Chinese::Letter,
        '0'..='9' | '\u{ff10}'..='\u{ff19}' => Chinese::Digit,
        ' ' | '\t' | '\r' | '\n' | '\u{3000}' => Chinese::Space,
        '!'..='\u{bb}' | '\u{2010}'..='\u{2642}' | '\u{3001}'..='\u{301e}' | '\u{fe30}'..='\u{ff63}' => Chinese::Mark,
        _ => Chinese::Other,
    }
}

/// Chinese: words by the dictionary, runs of Latin letters and of digits, any other character alone.
pub fn chinese(text: &str, mut each: impl FnMut(usize, usize, Piece)) {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let class = chinese_class(c);
        let mut end = at + c.len_utf8();
        if matches!(class, Chinese::Han | Chinese::Letter | Chinese::Digit) {
            end = text[at..].find(|c| chinese_class(c) != class).map_or(text.len(), |length| at + length);
        }
        match class {
            Chinese::Space => {}
            Chinese::Mark => each(at, end, Piece::Mark),
            Chinese::Han => words(text, at, end, |start, end| each(start, end, Piece::Token)),
            _ => {
                each(at, end, Piece::Token);
                // The reference sees two halves.
                if c > '\u{ffff}' {
                    each(at, end, Piece::Hole);
                }
            }
        }
        at = end;
    }
}

/// Full-width letters of a Chinese token as ASCII ones.
pub fn chinese_width(text: &mut String) {
    if text.chars().any(|c| ('\u{ff10}'..='\u{ff5a}').contains(&c)) {
        let half = |c: char| match c {
            '\u{ff10}'..='\u{ff5a}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
            _ => c,
        };
        *text = text.chars().map(half).collect();
    }
    text.make_ascii_lowercase();
}

/// What Japanese text is made of.
#[derive(Clone, Copy, PartialEq)]
enum Japanese {
    Latin,
    Digit,
    Greek,
    Cyrillic,
    Katakana,
    /// Kanji and Hiragana.
    Native,
    /// Space and punctuation.
    Mark,
    /// Other scripts.
    Other,
}

fn japanese_class(c: char) -> Japanese {
    match c {
        '0'..='9' | '\u{ff10}'..='\u{ff19}' => Japanese::Digit,
        'A'..='Z'
        | 'a'..='z'
        | '\u{c0}'..='\u{d6}'
        | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{236}'
        | '\u{1e00}'..='\u{1ef9}'
        | '\u{ff21}'..='\u{ff3a}'
        | '\u{ff41}'..='\u{ff5a}' => Japanese::Latin,
        '\u{374}'..='\u{3fb}' => Japanese::Greek,
        '\u{400}'..='\u{50f}' => Japanese::Cyrillic,
        '\u{30a1}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}' => Japanese::Katakana,
        '\u{3005}'
        | '\u{3007}'
        | '\u{3041}'..='\u{309f}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{fa2d}' => Japanese::Native,
        _ if is_mark(c) => Japanese::Mark,
        _ => Japanese::Other,
    }
}

fn is_mark(c: char) -> bool {
    let category = category(c);
    c <= '\u{ffff}'
        && (GeneralCategoryGroup::Punctuation.contains(category)
            || GeneralCategoryGroup::Separator.contains(category)
            || GeneralCategoryGroup::Symbol.contains(category)
            || matches!(category, GeneralCategory::Control | GeneralCategory::Format))
}

/// Japanese: words by the dictionary, runs of letters of one kind; other scripts leave holes.
pub fn japanese(text: &str, mut each: impl FnMut(usize, usize, Piece)) {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let class = japanese_class(c);
        let end = text[at..].find(|c| japanese_class(c) != class).map_or(text.len(), |length| at + length);
        match class {
            Japanese::Mark => {}
            Japanese::Other => each(at, end, Piece::Hole),
            Japanese::Native => words(text, at, end, |start, end| each(start, end, Piece::Token)),
            _ => each(at, end, Piece::Token),
        }
        at = end;
    }
}

/// Takes the long vowel off the end of a Katakana word of four letters or more.
pub fn katakana_stem(text: &mut String) {
    if text.ends_with('ー') && text.chars().count() >= 4 && text.chars().all(|c| ('\u{30a0}'..='\u{30ff}').contains(&c))
    {
        text.pop();
    }
}
