//! Tokens of the flexible syntax, longest match first. Text is read as UTF-16 units, as the reference counts them.

use crate::query::lexer::{escaped, is_space};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Eof,
    And,
    Or,
    Not,
    Function,
    Plus,
    Minus,
    Open,
    Close,
    Colon,
    Equal,
    Less,
    LessEqual,
    More,
    MoreEqual,
    Caret,
    Tilde,
    At,
    Quoted,
    Number,
    Term,
    Regexp,
    RangeIn,
    RangeEx,
    RangeTo,
    RangeInEnd,
    RangeExEnd,
    RangeQuoted,
    RangeWord,
}

impl Kind {
    /// Whether a clause may begin with it, modifiers before.
    pub(super) fn begins_clause(self) -> bool {
        use Kind::{Function, Minus, Not, Number, Open, Plus, Quoted, RangeEx, RangeIn, Regexp, Term};
        matches!(self, Not | Plus | Minus | Open | Function | Quoted | Number | Term | Regexp | RangeIn | RangeEx)
    }
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Reads tokens as they are asked for.
pub(super) struct Lexer {
    pub(super) units: Vec<u16>,
    at: usize,
    is_range: bool,
}

const fn unit(byte: u8) -> u16 {
    byte as u16
}

/// A character that may begin a word, but for escapes.
fn is_start(c: u16) -> bool {
    !(is_space(c) || c < 128 && b"+-!():^@<>=[]\"{}~\\/".contains(&(c as u8)))
}

fn is_digit(c: u16) -> bool {
    (0x30..=0x39).contains(&c)
}

impl Lexer {
    pub(super) fn new(text: &str) -> Lexer {
        Lexer { units: text.encode_utf16().collect(), at: 0, is_range: false }
    }

    fn get(&self, at: usize) -> Option<u16> {
        self.units.get(at).copied()
    }

    /// The next token; `Err`: what is wrong where none begins.
    pub(super) fn next(&mut self) -> Result<Token, String> {
        while self.get(self.at).is_some_and(is_space) {
            self.at += 1;
        }
        let start = self.at;
        let Some(first) = self.get(start) else { return Ok(Token { kind: Kind::Eof, start, end: start }) };
        let found = if self.is_range { self.range(start, first) } else { self.default(start, first) };
        let Some((kind, end)) = found else { return Err(self.refuse(start, first)) };
        self.at = end;
        match kind {
            Kind::RangeIn | Kind::RangeEx => self.is_range = true,
            Kind::RangeInEnd | Kind::RangeExEnd => self.is_range = false,
            _ => {}
        }
        Ok(Token { kind, start, end })
    }

    fn default(&self, start: usize, first: u16) -> Option<(Kind, usize)> {
        let one = |kind| Some((kind, start + 1));
        let is_or_equal = self.get(start + 1) == Some(unit(b'='));
        match if first < 128 { first as u8 } else { 0 } {
            b'+' => one(Kind::Plus),
            b'-' => one(Kind::Minus),
            b'!' => one(Kind::Not),
            b'(' => one(Kind::Open),
            b')' => one(Kind::Close),
            b':' => one(Kind::Colon),
            b'=' => one(Kind::Equal),
            b'<' if is_or_equal => Some((Kind::LessEqual, start + 2)),
            b'<' => one(Kind::Less),
            b'>' if is_or_equal => Some((Kind::MoreEqual, start + 2)),
            b'>' => one(Kind::More),
            b'^' => one(Kind::Caret),
            b'~' => one(Kind::Tilde),
            b'@' => one(Kind::At),
            b'[' => one(Kind::RangeIn),
            b'{' => one(Kind::RangeEx),
            b'"' => self.quoted(start).map(|end| (Kind::Quoted, end)),
            b'/' => self.regexp(start).map(|end| (Kind::Regexp, end)),
            b']' | b'}' => None,
            _ => self.term(start),
        }
    }

    /// Behind the quotation mark that ends what begins at `start`.
    fn quoted(&self, start: usize) -> Option<usize> {
        let mut at = start + 1;
        loop {
            match self.get(at)? {
                c if c == unit(b'"') => return Some(at + 1),
                c if c == unit(b'\\') => at += 2,
                _ => at += 1,
            }
        }
    }

    /// Behind the last slash that may end the expression: a slash behind a backslash ends it only if no other does.
    fn regexp(&self, start: usize) -> Option<usize> {
        let mut end = None;
        for at in start + 1..self.units.len() {
            if self.units[at] == unit(b'/') {
                end = Some(at + 1);
                if self.units[at - 1] != unit(b'\\') {
                    break;
                }
            }
        }
        end
    }

    fn term(&self, start: usize) -> Option<(Kind, usize)> {
        let mut end = start;
        while let Some(c) = self.get(end) {
            if c == unit(b'\\') && self.get(end + 1).is_some() {
                end += 2;
            } else if is_start(c) || (end > start && (c == unit(b'-') || c == unit(b'+'))) {
                end += 1;
            } else {
                break;
            }
        }
        if end == start {
            return None;
        }
        let is_function = self.units[start..end] == [unit(b'f'), unit(b'n')] && self.get(end) == Some(unit(b':'));
        if is_function {
            return Some((Kind::Function, end + 1));
        }
        let kind = match String::from_utf16_lossy(&self.units[start..end]).as_str() {
            "AND" | "&&" => Kind::And,
            "OR" | "||" => Kind::Or,
            "NOT" => Kind::Not,
            _ if self.is_number(start, end) => Kind::Number,
            _ => Kind::Term,
        };
        Some((kind, end))
    }

    /// Digits, with a point and digits behind or not.
    fn is_number(&self, start: usize, end: usize) -> bool {
        let parts: Vec<&[u16]> = self.units[start..end].split(|c| *c == unit(b'.')).collect();
        parts.len() <= 2 && parts.iter().all(|part| !part.is_empty() && part.iter().all(|c| is_digit(*c)))
    }

    fn range(&self, start: usize, first: u16) -> Option<(Kind, usize)> {
        if first == unit(b']') {
            return Some((Kind::RangeInEnd, start + 1));
        }
        if first == unit(b'}') {
            return Some((Kind::RangeExEnd, start + 1));
        }
        let mut end = start;
        while self.get(end).is_some_and(|c| c != 0x20 && c != unit(b']') && c != unit(b'}')) {
            end += 1;
        }
        if let Some(quoted) = self.range_quoted(start, first).filter(|quoted| *quoted >= end) {
            return Some((Kind::RangeQuoted, quoted));
        }
        let is_to = self.units[start..end] == [unit(b'T'), unit(b'O')];
        Some((if is_to { Kind::RangeTo } else { Kind::RangeWord }, end))
    }

    /// Behind the quotation mark that ends a quoted end of a range, which is not empty.
    fn range_quoted(&self, start: usize, first: u16) -> Option<usize> {
        if first != unit(b'"') {
            return None;
        }
        let end = self.quoted(start)?;
        (end > start + 2).then_some(end)
    }

    /// Why no token begins here.
    fn refuse(&self, start: usize, first: u16) -> String {
        let is_open = first == unit(b'"') || first == unit(b'/') || first == unit(b'\\');
        let (length, read) = (self.units.len(), if is_open { self.units.len() } else { start + 1 });
        let after = if read - start > 1 { escaped(&self.units[start..read]) } else { String::new() };
        if read < length {
            let seen = escaped(&[first]);
            return format!(
                "Lexical error at line 1, column {read}.  Encountered: \"{seen}\" ({first}), after : \"{after}\""
            );
        }
        format!("Lexical error at line 1, column {}.  Encountered: <EOF> after : \"{after}\"", length + 1)
    }
}
