//! From Perl's dialect to the engine's: what both write alike with another meaning, and what only one of them knows.
//!
//! `$` also matches before a final line feed; `{`, `}`, `]` are literal where they close or repeat nothing; classes
//! have no set operations; unknown escapes mean the letter; `\h`, `\v`, `\R`, `\N`, `\Q..\E`, octal and control
//! escapes exist; `\d` and `\s` are ASCII.

/// The dialect's names for characters.
const DIGIT: &str = "0-9";
const SPACE: &str = r"\t-\r\x20";
const BLANK: &str = r"\t\x20\xA0";
const LINE_END: &str = r"\n-\r\x85";
/// The end of the text, or before a line feed that is its last character.
const NEAR_END: &str = r"(?=\n?\z)";
/// The same where nothing follows that would miss the line feed: the engine has a faster way for it.
const NEAR_END_LAST: &str = r"(?:\n?\z)";
/// Most repetitions that a quantifier may ask for, as in the original.
const REPETITIONS_MAX: u32 = 65_535;

/// The pattern in the engine's dialect; `None` when it is not a pattern.
pub fn translate(pattern: &str) -> Option<String> {
    let characters: Vec<char> = pattern.chars().collect();
    let mut translator = Translator { rest: &characters, out: String::new(), multi_line: vec![false], groups: 0 };
    while !translator.rest.is_empty() {
        translator.item()?;
    }
    Some(translator.out)
}

struct Translator<'a> {
    rest: &'a [char],
    out: String,
    /// Whether `$` is the end of a line, per open group.
    multi_line: Vec<bool>,
    /// Capturing groups opened so far.
    groups: u32,
}

/// What an escape stands for.
enum Escape {
    Literal(char),
    /// What goes into a class to mean it, and whether everything else is meant.
    Set(&'static str, bool),
    /// Text in the engine's dialect.
    Text(String),
}

impl Translator<'_> {
    fn take(&mut self) -> Option<char> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take_if(&mut self, wanted: char) -> bool {
        let found = self.rest.first() == Some(&wanted);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn take_while(&mut self, max: usize, wanted: impl Fn(char) -> bool) -> String {
        let length = self.rest.iter().take(max).take_while(|c| wanted(**c)).count();
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken.iter().collect()
    }

    /// What is before a closing character, which is taken too.
    fn take_until(&mut self, end: char) -> Option<String> {
        let length = self.rest.iter().position(|c| *c == end)?;
        let taken = self.rest[..length].iter().collect();
        self.rest = &self.rest[length + 1..];
        Some(taken)
    }

    fn literal(&mut self, character: char) {
        push_literal(character, &mut self.out);
    }

    fn item(&mut self) -> Option<()> {
        match self.take()? {
            '\\' if self.take_if('Q') => self.quoted(),
            '\\' if self.take_if('E') => {}
            '\\' => match self.escape(false)? {
                Escape::Literal(character) => self.literal(character),
                Escape::Set(set, false) => self.out.push_str(&format!("[{set}]")),
                Escape::Set(set, true) => self.out.push_str(&format!("[^{set}]")),
                Escape::Text(text) => self.out.push_str(&text),
            },
            '[' => self.class()?,
            '(' => self.open()?,
            ')' => {
                if self.multi_line.len() < 2 {
                    return None;
                }
                self.multi_line.pop();
                self.out.push(')');
            }
            '$' if self.multi_line.last() == Some(&true) => self.out.push('$'),
            '$' => {
                let last = self.rest.iter().all(|c| *c == ')')
                    || (self.multi_line.len() == 1 && self.rest.first() == Some(&'|'));
                self.out.push_str(if last { NEAR_END_LAST } else { NEAR_END });
            }
            '{' => self.repetition()?,
            character @ ('}' | ']') => self.literal(character),
            character => self.out.push(character),
        }
        Some(())
    }

    fn quoted(&mut self) {
        while let Some(character) = self.take() {
            if character == '\\' && self.take_if('E') {
                return;
            }
            self.literal(character);
        }
    }

    /// After `{`: a quantifier or a brace.
    fn repetition(&mut self) -> Option<()> {
        let inner: String = self.rest.iter().take_while(|c| c.is_ascii_digit() || **c == ',').collect();
        let (low, high) = inner.split_once(',').unwrap_or((&inner, ""));
        let closed = self.rest.get(inner.len()) == Some(&'}');
        if !closed || low.is_empty() || high.contains(',') {
            self.literal('{');
            return Some(());
        }
        let least: u32 = low.parse().ok().filter(|n| *n <= REPETITIONS_MAX)?;
        if !high.is_empty() {
            high.parse().ok().filter(|n| (least..=REPETITIONS_MAX).contains(n))?;
        }
        self.rest = &self.rest[inner.len() + 1..];
        self.out.push_str(&format!("{{{inner}}}"));
        Some(())
    }

    /// After `(`: a group with what follows the question mark, flags, a comment.
    fn open(&mut self) -> Option<()> {
        let multi_line = self.multi_line.last().copied().unwrap_or(false);
        if !self.take_if('?') {
            self.groups += u32::from(self.rest.first() != Some(&'*'));
            self.out.push('(');
        } else if self.take_if('#') {
            self.take_until(')')?;
            return Some(());
        } else if self.rest.first().is_some_and(|c| matches!(c, 'i' | 'm' | 's' | 'x' | 'U' | 'J' | 'X' | '-')) {
            return self.flags(multi_line);
        } else {
            let named = match self.rest {
                ['P', '<', ..] | ['\'', ..] => true,
                ['<', next, ..] => !matches!(next, '=' | '!'),
                _ => false,
            };
            self.groups += u32::from(named);
            self.out.push_str("(?");
            if self.take_if('\'') {
                let name = self.take_until('\'')?;
                self.out.push_str(&format!("<{name}>"));
            }
        }
        self.multi_line.push(multi_line);
        Some(())
    }

    /// After `(?`: flags for the rest of the group or for a group of their own.
    fn flags(&mut self, mut multi_line: bool) -> Option<()> {
        let mut on = true;
        let mut flags = [String::new(), String::new()];
        loop {
            match self.take()? {
                '-' => on = false,
                'J' | 'X' => {}
                flag @ ('i' | 'm' | 's' | 'x' | 'U') => {
                    if flag == 'm' {
                        multi_line = on;
                    }
                    flags[usize::from(!on)].push(flag);
                }
                end @ (':' | ')') => {
                    let minus = if flags[1].is_empty() { "" } else { "-" };
                    let flags = format!("{}{minus}{}", flags[0], flags[1]);
                    if end == ':' {
                        self.multi_line.push(multi_line);
                        self.out.push_str(&format!("(?{flags}:"));
                    } else {
                        *self.multi_line.last_mut()? = multi_line;
                        if !flags.is_empty() {
                            self.out.push_str(&format!("(?{flags})"));
                        }
                    }
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// After `[`: everything up to the closing bracket.
    fn class(&mut self) -> Option<()> {
        self.out.push('[');
        if self.take_if('^') {
            self.out.push('^');
        }
        let mut first = true;
        while first || !self.take_if(']') {
            first = false;
            let Some(low) = self.class_item()? else { continue };
            match self.rest {
                ['-', next, ..] if *next != ']' => {
                    self.rest = &self.rest[1..];
                    self.range(low)?;
                }
                _ => self.literal(low),
            }
        }
        self.out.push(']');
        Some(())
    }

    /// A range that begins with a character, after its hyphen; a hyphen before a class is itself.
    fn range(&mut self, low: char) -> Option<()> {
        let start = self.out.len();
        let high = self.class_item()?;
        let set = self.out.split_off(start);
        self.literal(low);
        match high {
            Some(high) if low <= high => {
                self.out.push('-');
                self.literal(high);
            }
            Some(_) => return None,
            None => {
                self.literal('-');
                self.out.push_str(&set);
            }
        }
        Some(())
    }

    /// A character within a class; what is more than one is written down at once.
    fn class_item(&mut self) -> Option<Option<char>> {
        match self.take()? {
            '[' if self.rest.first() == Some(&':') => {
                let length = self.rest.windows(2).position(|pair| pair == [':', ']']).filter(|at| *at > 0);
                let Some(length) = length else { return Some(Some('[')) };
                let name: String = self.rest[..length].iter().collect();
                self.rest = &self.rest[length + 2..];
                self.out.push_str(&format!("[{name}:]"));
                Some(None)
            }
            '\\' => match self.escape(true)? {
                Escape::Literal(character) => Some(Some(character)),
                Escape::Set(set, negated) => {
                    self.out.push_str(&if negated { format!("[^{set}]") } else { set.to_owned() });
                    Some(None)
                }
                Escape::Text(text) => {
                    self.out.push_str(&text);
                    Some(None)
                }
            },
            character => Some(Some(character)),
        }
    }

    /// After a backslash.
    fn escape(&mut self, in_class: bool) -> Option<Escape> {
        let letter = self.take()?;
        let text = |text: &str| Escape::Text(text.to_owned());
        Some(match letter {
            'd' | 'D' => Escape::Set(DIGIT, letter == 'D'),
            's' | 'S' => Escape::Set(SPACE, letter == 'S'),
            'h' | 'H' => Escape::Set(BLANK, letter == 'H'),
            'v' | 'V' => Escape::Set(LINE_END, letter == 'V'),
            'N' if !in_class => Escape::Set(r"\n", true),
            'w' | 'W' => Escape::Text(format!("\\{letter}")),
            'p' | 'P' => Escape::Text(format!("\\{letter}{}", self.property()?)),
            'b' if in_class => Escape::Literal('\u{8}'),
            'b' | 'B' | 'A' | 'z' | 'G' | 'K' if !in_class => Escape::Text(format!("\\{letter}")),
            'Z' if !in_class => text(NEAR_END),
            'R' if !in_class => text(r"(?>\r\n|[\n-\r\x85])"),
            'C' | 'X' if !in_class => text("(?s:.)"),
            'a' => Escape::Literal('\u{7}'),
            'e' => Escape::Literal('\u{1b}'),
            'f' => Escape::Literal('\u{c}'),
            'n' => Escape::Literal('\n'),
            'r' => Escape::Literal('\r'),
            't' => Escape::Literal('\t'),
            'c' => Escape::Literal(char::from(u8::try_from(self.take()?).ok()?.to_ascii_uppercase() ^ 64)),
            'x' => Escape::Literal(self.hexadecimal()?),
            'o' if self.take_if('{') => Escape::Literal(byte_of(&self.take_until('}')?, 8)?),
            '0' => {
                let digits = self.take_while(2, |c| c.is_digit(8));
                Escape::Literal(if digits.is_empty() { '\0' } else { byte_of(&digits, 8)? })
            }
            '1'..='9' => self.number(letter, in_class)?,
            'g' if !in_class => self.reference()?,
            'k' if !in_class => {
                let end = match self.take()? {
                    '{' => '}',
                    '<' => '>',
                    '\'' => '\'',
                    _ => return None,
                };
                Escape::Text(format!("\\k<{}>", self.take_until(end)?))
            }
            other => Escape::Literal(other),
        })
    }

    fn property(&mut self) -> Option<String> {
        let first = self.take()?;
        if first == '{' { Some(format!("{{{}}}", self.take_until('}')?)) } else { Some(first.to_string()) }
    }

    fn hexadecimal(&mut self) -> Option<char> {
        if self.take_if('{') {
            return byte_of(&self.take_until('}')?, 16);
        }
        let digits = self.take_while(2, |c| c.is_ascii_hexdigit());
        if digits.is_empty() { Some('\0') } else { byte_of(&digits, 16) }
    }

    /// A back reference, or the octal number of a byte where there is no such group.
    fn number(&mut self, first: char, in_class: bool) -> Option<Escape> {
        let more = self.rest.iter().take(2).take_while(|c| c.is_ascii_digit()).count();
        let whole: String = std::iter::once(first).chain(self.rest[..more].iter().copied()).collect();
        let group: u32 = whole.parse().ok()?;
        if !in_class && (group < 10 || group <= self.groups) {
            self.rest = &self.rest[more..];
            return Some(Escape::Text(format!("(?:\\{group})")));
        }
        let octal: String = whole.chars().take_while(|c| c.is_digit(8)).collect();
        if octal.is_empty() {
            return Some(Escape::Literal(first));
        }
        self.rest = &self.rest[octal.len() - 1..];
        byte_of(&octal, 8).map(Escape::Literal)
    }

    /// After `\g`: a group by its number, by its distance, or by its name.
    fn reference(&mut self) -> Option<Escape> {
        let name = match self.take_if('{') {
            true => self.take_until('}')?,
            false => self.take_while(4, |c| c.is_ascii_digit() || c == '-'),
        };
        let group = match name.parse::<i64>() {
            Ok(back) if back < 0 => i64::from(self.groups) + 1 + back,
            Ok(group) => group,
            Err(_) if name.is_empty() => return None,
            Err(_) => return Some(Escape::Text(format!("\\k<{name}>"))),
        };
        if group > 0 { Some(Escape::Text(format!("(?:\\{group})"))) } else { None }
    }
}

/// The byte of a number.
fn byte_of(digits: &str, radix: u32) -> Option<char> {
    u8::from_str_radix(digits, radix).ok().map(char::from)
}

/// Writes a character that means itself, within and without classes.
fn push_literal(character: char, out: &mut String) {
    if character.is_ascii_alphanumeric() || character == '_' {
        out.push(character);
    } else {
        out.push_str(&format!("\\x{{{:X}}}", u32::from(character)));
    }
}
