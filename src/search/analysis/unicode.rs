//! What the tokenizers ask of characters.
//!
//! Word break classes are those of Unicode 6.1 (UAX #29), which Lucene 4.6 uses, taken from newer tables: where later
//! versions moved a character to another class it is moved back. Characters that came later keep their new class.

use std::sync::LazyLock;

use icu_properties::props::{Alphabetic, GeneralCategory, GeneralCategoryGroup, LineBreak, Script, WordBreak};
use icu_properties::{CodePointMapData, CodePointSetData};

/// How the standard tokenizer sees a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Part of no token.
    Other,
    /// A letter of a script that writes spaces between words.
    Letter,
    /// A digit.
    Digit,
    /// Katakana, which stays together.
    Katakana,
    /// A Chinese character: a token of its own.
    Han,
    /// A token of its own.
    Hiragana,
    /// A letter of a script without spaces, as Thai: its runs stay together.
    Complex,
    /// Joins letters: a colon.
    MidLetter,
    /// Joins digits: a comma.
    MidDigit,
    /// Joins letters, and joins digits: a full stop, an apostrophe.
    MidBoth,
    /// Joins all words: a low line.
    Joiner,
    /// Belongs to the character before it: accents, marks of direction.
    Extend,
}

const CLASSES: [Class; 12] = [
    Class::Other,
    Class::Letter,
    Class::Digit,
    Class::Katakana,
    Class::Han,
    Class::Hiragana,
    Class::Complex,
    Class::MidLetter,
    Class::MidDigit,
    Class::MidBoth,
    Class::Joiner,
    Class::Extend,
];

/// Classes of the characters of the basic plane, which nearly all text is made of.
static BASIC: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    (0..0x1_0000u32).map(|c| char::from_u32(c).map_or(Class::Other, look_up) as u8).collect::<Vec<u8>>().into()
});

/// The classes of the basic plane, to be held by a loop that asks for many.
pub fn basic_classes() -> &'static [u8] {
    &BASIC
}

/// The class of `c`; `basic` is [`basic_classes`].
#[inline]
pub fn class(basic: &[u8], c: char) -> Class {
    match basic.get(c as usize) {
        Some(class) => CLASSES[*class as usize % CLASSES.len()],
        None => look_up(c),
    }
}

fn look_up(c: char) -> Class {
    match c {
        // Moved by later versions of Unicode.
        ':' | '\u{2d7}' => return if c == ':' { Class::MidLetter } else { Class::Other },
        '\u{202f}' | '"' => return Class::Other,
        // Full-width digits, a rule of Lucene's own.
        '\u{ff10}'..='\u{ff19}' => return Class::Digit,
        _ => {}
    }
    if CodePointMapData::<LineBreak>::new().get(c) == LineBreak::ComplexContext {
        return Class::Complex;
    }
    match CodePointMapData::<WordBreak>::new().get(c) {
        WordBreak::ALetter | WordBreak::HebrewLetter => {
            let alphabetic = CodePointSetData::new::<Alphabetic>().contains(c) || c == '\u{5f3}';
            return if alphabetic { Class::Letter } else { Class::Other };
        }
        WordBreak::Katakana => return Class::Katakana,
        WordBreak::Numeric => return Class::Digit,
        WordBreak::MidLetter => return Class::MidLetter,
        WordBreak::MidNum => return Class::MidDigit,
        WordBreak::MidNumLet | WordBreak::SingleQuote => return Class::MidBoth,
        WordBreak::ExtendNumLet => return Class::Joiner,
        WordBreak::Extend | WordBreak::Format | WordBreak::ZWJ => return Class::Extend,
        _ => {}
    }
    match CodePointMapData::<Script>::new().get(c) {
        Script::Han => Class::Han,
        Script::Hiragana => Class::Hiragana,
        _ => Class::Other,
    }
}

/// The general category of a character.
pub fn category(c: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(c)
}

/// Whether it is a letter (L*), as `Character.isLetter` of Java has it.
#[inline]
pub fn is_letter(c: char) -> bool {
    match c {
        '\0'..='\x7f' => c.is_ascii_alphabetic(),
        _ => GeneralCategoryGroup::Letter.contains(category(c)),
    }
}

/// Whether it is a decimal digit (Nd).
#[inline]
pub fn is_digit(c: char) -> bool {
    match c {
        '\0'..='\x7f' => c.is_ascii_digit(),
        _ => category(c) == GeneralCategory::DecimalNumber,
    }
}

/// Whether it is space between words, as `Character.isWhitespace` of Java has it: not where no line may break.
#[inline]
pub fn is_space(c: char) -> bool {
    match c {
        '\t'..='\r' | '\x1c'..=' ' => true,
        '\0'..='\u{9f}' | '\u{a0}' | '\u{2007}' | '\u{202f}' => false,
        _ => GeneralCategoryGroup::Separator.contains(category(c)),
    }
}

/// Whether it is written in Hangul.
pub fn is_hangul(c: char) -> bool {
    c >= '\u{1100}' && CodePointMapData::<Script>::new().get(c) == Script::Hangul
}

/// The lower-case form of one character, which is one character.
#[inline]
pub fn lower(c: char) -> char {
    match c {
        '\0'..='\x7f' => c.to_ascii_lowercase(),
        'İ' => 'i',
        _ => c.to_lowercase().next().unwrap_or(c),
    }
}

/// Whether it belongs to the character before it: an accent, a mark of direction.
pub fn is_mark(c: char) -> bool {
    look_up(c) == Class::Extend
}
