//! Words of a query text: the token rules of Lucene's classic grammar, longest match first.
//!
//! The text is read as UTF-16 units, because columns in error reasons count those.

/// What a token is. The order is that in which error reasons list what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Eof,
    And,
    Or,
    Not,
    Plus,
    Minus,
    BareOperator,
    Open,
    Close,
    Star,
    Caret,
    Quoted,
    Term,
    Fuzzy,
    Prefix,
    Wildcard,
    Regexp,
    RangeIn,
    RangeEx,
    Number,
    RangeTo,
    RangeInEnd,
    RangeExEnd,
    RangeQuoted,
    RangeWord,
    Colon,
}

impl Kind {
    /// Its name in error reasons.
    pub(super) fn image(self) -> &'static str {
        match self {
            Kind::Eof => "<EOF>",
            Kind::And => "<AND>",
            Kind::Or => "<OR>",
            Kind::Not => "<NOT>",
            Kind::Plus => "\"+\"",
            Kind::Minus => "\"-\"",
            Kind::BareOperator => "<BAREOPER>",
            Kind::Open => "\"(\"",
            Kind::Close => "\")\"",
            Kind::Star => "\"*\"",
            Kind::Caret => "\"^\"",
            Kind::Quoted => "<QUOTED>",
            Kind::Term => "<TERM>",
            Kind::Fuzzy => "<FUZZY_SLOP>",
            Kind::Prefix => "<PREFIXTERM>",
            Kind::Wildcard => "<WILDTERM>",
            Kind::Regexp => "<REGEXPTERM>",
            Kind::RangeIn => "\"[\"",
            Kind::RangeEx => "\"{\"",
            Kind::Number => "<NUMBER>",
            Kind::RangeTo => "\"TO\"",
            Kind::RangeInEnd => "\"]\"",
            Kind::RangeExEnd => "\"}\"",
            Kind::RangeQuoted => "<RANGE_QUOTED>",
            Kind::RangeWord => "<RANGE_GOOP>",
            Kind::Colon => "\":\"",
        }
    }
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Clone, Copy)]
enum Mode {
    Default,
    Boost,
    Range,
}

/// Reads tokens as they are asked for: an error behind the place where parsing ends is never met.
pub(super) struct Lexer {
    pub(super) units: Vec<u16>,
    at: usize,
    mode: Mode,
}

const fn unit(byte: u8) -> u16 {
    byte as u16
}

pub(super) fn is_space(c: u16) -> bool {
    matches!(c, 0x20 | 0x09 | 0x0a | 0x0d | 0x3000)
}

/// A character that may begin a word, but for escapes.
fn is_start(c: u16) -> bool {
    let is_syntax = c < 128 && b"+-!():^[]\"{}~*?\\/".contains(&(c as u8));
    !is_space(c) && !is_syntax
}

fn is_digit(c: u16) -> bool {
    (0x30..=0x39).contains(&c)
}

impl Lexer {
    pub(super) fn new(text: &str) -> Lexer {
        Lexer { units: text.encode_utf16().collect(), at: 0, mode: Mode::Default }
    }

    fn get(&self, at: usize) -> Option<u16> {
        self.units.get(at).copied()
    }

    /// The next token; `Err`: the reason why there is none.
    pub(super) fn next(&mut self) -> Result<Token, String> {
        if !matches!(self.mode, Mode::Boost) {
            while self.get(self.at).is_some_and(is_space) {
                self.at += 1;
            }
        }
        let start = self.at;
        let Some(first) = self.get(start) else {
            // The place of the end is that of the last character that was read.
            return Ok(Token { kind: Kind::Eof, start, end: start });
        };
        let found = match self.mode {
            Mode::Default => self.default(start, first),
            Mode::Boost => self.boost(start),
            Mode::Range => self.range(start, first),
        };
        let Some((kind, end)) = found else {
            return Err(self.refuse(start, first));
        };
        self.at = end;
        self.mode = match kind {
            Kind::Caret => Mode::Boost,
            Kind::RangeIn | Kind::RangeEx => Mode::Range,
            Kind::Number | Kind::RangeInEnd | Kind::RangeExEnd => Mode::Default,
            _ => self.mode,
        };
        Ok(Token { kind, start, end })
    }

    fn default(&self, start: usize, first: u16) -> Option<(Kind, usize)> {
        let one = |kind| Some((kind, start + 1));
        let byte = if first < 128 { first as u8 } else { 0 };
        if matches!(byte, b'+' | b'-' | b'!') && self.get(start + 1).is_some_and(is_space) {
            return Some((Kind::BareOperator, start + 2));
        }
        match byte {
            b'+' => one(Kind::Plus),
            b'-' => one(Kind::Minus),
            b'!' => one(Kind::Not),
            b'(' => one(Kind::Open),
            b')' => one(Kind::Close),
            b':' => one(Kind::Colon),
            b'^' => one(Kind::Caret),
            b'[' => one(Kind::RangeIn),
            b'{' => one(Kind::RangeEx),
            b'"' => self.until(start, b'"').map(|end| (Kind::Quoted, end)),
            b'/' => self.regexp(start).map(|end| (Kind::Regexp, end)),
            b'~' => Some((Kind::Fuzzy, self.word(start + 1, false))),
            b']' | b'}' => None,
            _ => self.term(start, first),
        }
    }

    /// Behind the quotation mark that ends what begins at `start`.
    fn until(&self, start: usize, mark: u8) -> Option<usize> {
        let mut at = start + 1;
        loop {
            let c = self.get(at)?;
            at += 1;
            if c == unit(mark) {
                return Some(at);
            }
            if c == unit(b'\\') {
                self.get(at)?;
                at += 1;
            }
        }
    }

    /// Behind the last slash that may end the expression: a slash behind a backslash ends it only if no other does.
    fn regexp(&self, start: usize) -> Option<usize> {
        let mut end = None;
        for at in start + 1..self.units.len() {
            if self.units[at] == unit(b'/') {
                end = Some(at + 1);
                if at == start + 1 || self.units[at - 1] != unit(b'\\') {
                    break;
                }
            }
        }
        end
    }

    /// Behind the characters of a word from `at` on; with `wild` also `*` and `?`.
    fn word(&self, mut at: usize, wild: bool) -> usize {
        while let Some(c) = self.get(at) {
            if is_start(c) || c == unit(b'-') || c == unit(b'+') || (wild && (c == unit(b'*') || c == unit(b'?'))) {
                at += 1;
            } else if c == unit(b'\\') && self.get(at + 1).is_some() {
                at += 2;
            } else {
                break;
            }
        }
        at
    }

    fn term(&self, start: usize, first: u16) -> Option<(Kind, usize)> {
        if first == unit(b'\\') && self.get(start + 1).is_none() {
            return None;
        }
        let is_wild = first == unit(b'*') || first == unit(b'?');
        let plain = if is_wild { start } else { self.word(start, false) };
        let wild = self.word(start, true);
        if wild == start + 1 && first == unit(b'*') {
            return Some((Kind::Star, wild));
        }
        if wild > plain {
            let is_prefix = !is_wild && wild == plain + 1 && self.get(plain) == Some(unit(b'*'));
            return Some((if is_prefix { Kind::Prefix } else { Kind::Wildcard }, wild));
        }
        let kind = match String::from_utf16_lossy(&self.units[start..plain]).as_str() {
            "AND" | "&&" => Kind::And,
            "OR" | "||" => Kind::Or,
            "NOT" => Kind::Not,
            _ => Kind::Term,
        };
        Some((kind, plain))
    }

    fn boost(&self, start: usize) -> Option<(Kind, usize)> {
        let digits = |mut at: usize| {
            while self.get(at).is_some_and(is_digit) {
                at += 1;
            }
            at
        };
        let end = digits(start);
        if end == start {
            return None;
        }
        let part = digits(end + 1);
        let has_part = self.get(end) == Some(unit(b'.')) && part > end + 1;
        Some((Kind::Number, if has_part { part } else { end }))
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
        let mut end = None;
        for at in start + 1..self.units.len() {
            if self.units[at] == unit(b'"') {
                if at > start + 1 {
                    end = Some(at + 1);
                }
                if self.units[at - 1] != unit(b'\\') || at == start + 1 {
                    break;
                }
            }
        }
        end
    }

    /// Why no token begins here.
    fn refuse(&self, start: usize, first: u16) -> String {
        let is_string = matches!(self.mode, Mode::Default) && (first == unit(b'"') || first == unit(b'/'));
        let is_escape = first == unit(b'\\');
        let length = self.units.len();
        // Strings and escapes are read to the end of the text; any other character is refused by itself.
        let read = if is_string || is_escape { length } else { start + 1 };
        let after = if read - start > 1 { escaped(&self.units[start..read]) } else { String::new() };
        if read < length {
            let column = read;
            return format!(
                "Lexical error at line 1, column {column}.  Encountered: \"{}\" ({first}), after : \"{after}\"",
                escaped(&[first])
            );
        }
        let is_line_end = matches!(self.units.last(), Some(0x0a | 0x0d));
        let (line, column) = if is_line_end { (2, 0) } else { (1, length + 1) };
        format!("Lexical error at line {line}, column {column}.  Encountered: <EOF> after : \"{after}\"")
    }
}

/// Text as it stands in error reasons.
pub(super) fn escaped(units: &[u16]) -> String {
    let mut output = String::new();
    for c in units {
        match *c {
            0x00 => {}
            0x08 => output.push_str("\\b"),
            0x09 => output.push_str("\\t"),
            0x0a => output.push_str("\\n"),
            0x0c => output.push_str("\\f"),
            0x0d => output.push_str("\\r"),
            0x22 => output.push_str("\\\""),
            0x27 => output.push_str("\\'"),
            0x5c => output.push_str("\\\\"),
            c if (0x20..0x7f).contains(&c) => output.push(c as u8 as char),
            c => output.push_str(&format!("\\u{c:04x}")),
        }
    }
    output
}
