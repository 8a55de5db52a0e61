//! The standard tokenizer: words as UAX #29 of Unicode 6.1 finds them, with the rules that Lucene adds: a Chinese or
//! Hiragana character is a token, so is a run of letters of a script without spaces (Thai); what is neither is none.

use super::unicode::{Class, basic_classes, class};

/// What a token is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Letters and digits.
    Word,
    /// One Chinese character.
    Han,
    /// One Hiragana character.
    Hiragana,
    /// Katakana only.
    Katakana,
    /// Letters of a script without spaces.
    Complex,
}

/// A cursor over the classes of a text's characters, marks that belong to a character counted with it.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    text: &'a str,
    basic: &'a [u8],
    at: usize,
    is_joint_space: bool,
}

impl Cursor<'_> {
    /// The class of the character at the cursor, and its length in bytes.
    #[inline]
    fn peek(&self) -> Option<(Class, usize)> {
        let byte = *self.text.as_bytes().get(self.at)?;
        if byte < 0x80 {
            return Some((class(self.basic, byte as char), 1));
        }
        let c = self.text[self.at..].chars().next()?;
        if c == '\u{200c}' && self.is_joint_space {
            return Some((Class::Other, 3));
        }
        Some((class(self.basic, c), c.len_utf8()))
    }

    /// Moves behind the character of `length` bytes and the marks on it; whether it did.
    #[inline]
    fn step(&mut self, length: usize) {
        self.at += length;
        while let Some((Class::Extend, length)) = self.peek() {
            self.at += length;
        }
    }

    /// The class at the cursor; none at the end.
    #[inline]
    fn class(&self) -> Option<Class> {
        self.peek().map(|(class, _)| class)
    }

    /// Moves behind characters of one class; whether there were any.
    fn run(&mut self, of: Class) -> bool {
        let from = self.at;
        while let Some((class, length)) = self.peek() {
            if class != of {
                break;
            }
            self.step(length);
        }
        self.at > from
    }

    /// Moves behind letters, digits and what joins them.
    fn word(&mut self) {
        let mut last = Class::Other;
        while let Some((class, length)) = self.peek() {
            let mut next = *self;
            next.step(length);
            let is_part = match class {
                Class::Letter | Class::Digit => last != Class::Katakana,
                Class::Katakana => !matches!(last, Class::Letter | Class::Digit),
                Class::Joiner => true,
                Class::MidLetter => last == Class::Letter && next.class() == Some(Class::Letter),
                Class::MidDigit => last == Class::Digit && next.class() == Some(Class::Digit),
                Class::MidBoth => matches!(last, Class::Letter | Class::Digit) && next.class() == Some(last),
                _ => false,
            };
            if !is_part {
                return;
            }
            last = class;
            self.at = next.at;
        }
    }
}

/// The place behind the token that begins at `at`, and its kind; no token begins there: the place of the next
/// character.
#[inline]
pub fn next(text: &str, at: usize, is_joint_space: bool) -> (usize, Option<Kind>) {
    let mut cursor = Cursor { text, basic: basic_classes(), at, is_joint_space };
    let Some((first, length)) = cursor.peek() else { return (text.len(), None) };
    let kind = match first {
        Class::Han | Class::Hiragana => {
            cursor.step(length);
            if first == Class::Han { Kind::Han } else { Kind::Hiragana }
        }
        Class::Complex => {
            cursor.run(Class::Complex);
            Kind::Complex
        }
        Class::Katakana => {
            let mut only = cursor;
            only.run(Class::Katakana);
            cursor.word();
            if only.at == cursor.at { Kind::Katakana } else { Kind::Word }
        }
        Class::Letter | Class::Digit => {
            cursor.word();
            Kind::Word
        }
        Class::Joiner => {
            let mut joiners = cursor;
            joiners.run(Class::Joiner);
            if !matches!(joiners.class(), Some(Class::Letter | Class::Digit | Class::Katakana)) {
                return (joiners.at, None);
            }
            cursor.word();
            Kind::Word
        }
        _ => return (at + length, None),
    };
    (cursor.at, Some(kind))
}

/// Tells `each` the tokens of a text: their places in bytes, and their kinds. `is_joint_space`: a zero width non-joiner
/// stands between words (as the Persian analyzer has it).
pub fn tokens(text: &str, is_joint_space: bool, mut each: impl FnMut(usize, usize, Kind)) {
    let mut at = 0;
    while at < text.len() {
        let (end, kind) = next(text, at, is_joint_space);
        if let Some(kind) = kind {
            each(at, end, kind);
        }
        at = end;
    }
}
