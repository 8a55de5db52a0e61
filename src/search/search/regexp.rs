//! Regular expressions in Lucene's dialect, and wildcards, as languages that are derived character by character.
//!
//! Brzozowski derivatives of interned expressions: complement and intersection cost nothing extra, and only the states
//! that a dictionary reaches are made. Expressions are bounded in size and nesting, the derived states in number.

use std::collections::BTreeMap;

/// Characters of an expression.
const MAX_LENGTH: usize = 1_000;
/// Brackets and complements within each other.
const MAX_DEPTH: usize = 64;
/// States that one expression may have.
const MAX_NODES: usize = 20_000;
/// Steps of simplification that one expression may cost.
const MAX_WORK: usize = 4_000_000;
/// The number of times that a repeated part may stand.
const MAX_REPEAT: u32 = 1_000;

/// A language, by its place among the interned ones.
pub(crate) type Id = u32;

const NONE: Id = 0;
const EMPTY: Id = 1;
const ALL: Id = 2;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    /// No text.
    None,
    /// The empty text.
    Empty,
    /// Any text.
    All,
    /// One character out of ranges.
    Chars(Vec<(char, char)>),
    /// One text behind another.
    Concat(Id, Id),
    /// One of several, ascending.
    Or(Vec<Id>),
    /// All of several, ascending.
    And(Vec<Id>),
    /// What the other does not match.
    Not(Id),
    /// Any number of times.
    Star(Id),
    /// This many times, at most.
    Repeat(Id, u32, u32),
}

/// A language and its derivatives.
pub(crate) struct Languages {
    nodes: Vec<Node>,
    nullable: Vec<bool>,
    ids: BTreeMap<Node, Id>,
    derived: BTreeMap<(Id, char), Id>,
    work: usize,
}

/// Why an expression cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

type Made = Result<Id, TooLarge>;

impl Languages {
    pub(crate) fn new() -> Languages {
        let nodes = vec![Node::None, Node::Empty, Node::All];
        let ids = nodes.iter().cloned().zip(0..).collect();
        Languages { nodes, nullable: vec![false, true, true], ids, derived: BTreeMap::new(), work: 0 }
    }

    fn intern(&mut self, node: Node) -> Made {
        if let Some(id) = self.ids.get(&node) {
            return Ok(*id);
        }
        let weight = match &node {
            Node::Or(parts) | Node::And(parts) => parts.len(),
            Node::Chars(ranges) => ranges.len(),
            _ => 1,
        };
        self.work += weight;
        if self.nodes.len() >= MAX_NODES || self.work > MAX_WORK {
            return Err(TooLarge);
        }
        let nullable = match &node {
            Node::None | Node::Chars(_) => false,
            Node::Empty | Node::All | Node::Star(_) => true,
            Node::Concat(a, b) => self.is_match(*a) && self.is_match(*b),
            Node::Or(parts) => parts.iter().any(|part| self.is_match(*part)),
            Node::And(parts) => parts.iter().all(|part| self.is_match(*part)),
            Node::Not(a) => !self.is_match(*a),
            Node::Repeat(a, least, _) => *least == 0 || self.is_match(*a),
        };
        let id = self.nodes.len() as Id;
        self.nodes.push(node.clone());
        self.nullable.push(nullable);
        self.ids.insert(node, id);
        Ok(id)
    }

    /// Whether the language has the empty text.
    pub(crate) fn is_match(&self, id: Id) -> bool {
        self.nullable[id as usize]
    }

    fn chars(&mut self, ranges: Vec<(char, char)>) -> Made {
        if ranges.is_empty() { Ok(NONE) } else { self.intern(Node::Chars(ranges)) }
    }

    fn concat(&mut self, a: Id, b: Id) -> Made {
        if a == NONE || b == NONE {
            return Ok(NONE);
        }
        if a == EMPTY {
            return Ok(b);
        }
        if b == EMPTY {
            return Ok(a);
        }
        if a == ALL && b == ALL {
            return Ok(ALL);
        }
        self.intern(Node::Concat(a, b))
    }

    fn or(&mut self, parts: impl IntoIterator<Item = Id>) -> Made {
        let mut all: Vec<Id> = Vec::new();
        for part in parts {
            match &self.nodes[part as usize] {
                Node::None => {}
                Node::All => return Ok(ALL),
                Node::Or(inner) => all.extend(inner),
                _ => all.push(part),
            }
        }
        all.sort_unstable();
        all.dedup();
        match all.as_slice() {
            [] => Ok(NONE),
            [one] => Ok(*one),
            _ => self.intern(Node::Or(all)),
        }
    }

    fn and(&mut self, parts: impl IntoIterator<Item = Id>) -> Made {
        let mut all: Vec<Id> = Vec::new();
        for part in parts {
            match &self.nodes[part as usize] {
                Node::All => {}
                Node::None => return Ok(NONE),
                Node::And(inner) => all.extend(inner),
                _ => all.push(part),
            }
        }
        all.sort_unstable();
        all.dedup();
        match all.as_slice() {
            [] => Ok(ALL),
            [one] => Ok(*one),
            _ => self.intern(Node::And(all)),
        }
    }

    fn not(&mut self, a: Id) -> Made {
        match self.nodes[a as usize] {
            Node::None => Ok(ALL),
            Node::All => Ok(NONE),
            Node::Not(inner) => Ok(inner),
            _ => self.intern(Node::Not(a)),
        }
    }

    fn star(&mut self, a: Id) -> Made {
        match self.nodes[a as usize] {
            Node::None | Node::Empty => Ok(EMPTY),
            Node::All | Node::Star(_) => Ok(a),
            _ => self.intern(Node::Star(a)),
        }
    }

    fn repeat(&mut self, a: Id, least: u32, most: u32) -> Made {
        if least > most {
            return Ok(NONE);
        }
        match (least, most) {
            (_, 0) => Ok(EMPTY),
            (1, 1) => Ok(a),
            _ if a == EMPTY || (a == NONE && least == 0) => Ok(EMPTY),
            _ if a == NONE => Ok(NONE),
            _ => self.intern(Node::Repeat(a, least, most)),
        }
    }

    /// What may follow `c` in the language.
    pub(crate) fn step(&mut self, id: Id, c: char) -> Made {
        if id <= EMPTY {
            return Ok(NONE);
        }
        if id == ALL {
            return Ok(ALL);
        }
        if let Some(known) = self.derived.get(&(id, c)) {
            return Ok(*known);
        }
        self.work += 1;
        if self.work > MAX_WORK {
            return Err(TooLarge);
        }
        let made = match self.nodes[id as usize].clone() {
            Node::None | Node::Empty => NONE,
            Node::All => ALL,
            Node::Chars(ranges) if ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) => EMPTY,
            Node::Chars(_) => NONE,
            Node::Concat(a, b) => {
                let rest = self.step(a, c)?;
                let first = self.concat(rest, b)?;
                if self.is_match(a) {
                    let second = self.step(b, c)?;
                    self.or([first, second])?
                } else {
                    first
                }
            }
            Node::Or(parts) => {
                let parts = self.each(&parts, c)?;
                self.or(parts)?
            }
            Node::And(parts) => {
                let parts = self.each(&parts, c)?;
                self.and(parts)?
            }
            Node::Not(a) => {
                let rest = self.step(a, c)?;
                self.not(rest)?
            }
            Node::Star(a) => {
                let rest = self.step(a, c)?;
                self.concat(rest, id)?
            }
            Node::Repeat(a, least, most) => {
                let rest = self.step(a, c)?;
                let others = self.repeat(a, least.saturating_sub(1), most - 1)?;
                self.concat(rest, others)?
            }
        };
        self.derived.insert((id, c), made);
        Ok(made)
    }

    fn each(&mut self, parts: &[Id], c: char) -> Result<Vec<Id>, TooLarge> {
        self.work += parts.len();
        parts.iter().map(|part| self.step(*part, c)).collect()
    }

    fn text(&mut self, text: &str) -> Made {
        let mut id = EMPTY;
        for c in text.chars().rev() {
            let first = self.chars(vec![(c, c)])?;
            id = self.concat(first, id)?;
        }
        Ok(id)
    }

    fn any(&mut self) -> Made {
        self.chars(vec![('\0', char::MAX)])
    }

    /// The language of a pattern of `*`, `?` and escapes.
    pub(crate) fn wildcard(&mut self, pattern: &str) -> Made {
        let mut parts: Vec<Id> = Vec::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            let part = match c {
                '*' if parts.last() == Some(&ALL) => continue,
                '*' => ALL,
                '?' => self.any()?,
                '\\' => {
                    let c = rest.next().unwrap_or('\\');
                    self.chars(vec![(c, c)])?
                }
                c => self.chars(vec![(c, c)])?,
            };
            parts.push(part);
        }
        let mut id = EMPTY;
        for part in parts.into_iter().rev() {
            id = self.concat(part, id)?;
        }
        Ok(id)
    }

    /// The language of a regular expression; the inner error is the reason why it is none.
    pub(crate) fn regexp(&mut self, pattern: &str) -> Result<Result<Id, String>, TooLarge> {
        if pattern.len() > MAX_LENGTH {
            return Err(TooLarge);
        }
        let mut reader = Reader { text: pattern.chars().collect(), at: 0, depth: 0, made: self };
        match reader.whole() {
            Ok(id) => Ok(Ok(id)),
            Err(Refused::Reason(reason)) => Ok(Err(reason)),
            Err(Refused::TooLarge) => Err(TooLarge),
        }
    }

    /// Numbers from `from` to `to` in so many digits; 0 digits: any number of zeros may stand before.
    fn numbers(&mut self, from: u64, to: u64, digits: usize) -> Made {
        let width = if digits > 0 { digits } else { to.to_string().len() };
        let low: Vec<u8> = format!("{from:0width$}").into_bytes();
        let high: Vec<u8> = format!("{to:0width$}").into_bytes();
        let fixed = self.between(&low, &high)?;
        if digits > 0 {
            return Ok(fixed);
        }
        // Leading zeros are free: a number in fewer digits is the fixed form without some of its zeros.
        let mut all = vec![fixed];
        for shorter in 1..width {
            let most = 10u64.pow(shorter as u32) - 1;
            if from <= most {
                let low: Vec<u8> = format!("{from:0shorter$}").into_bytes();
                let high: Vec<u8> = format!("{:0shorter$}", to.min(most)).into_bytes();
                all.push(self.between(&low, &high)?);
            }
        }
        let any = self.or(all)?;
        let zero = self.chars(vec![('0', '0')])?;
        let zeros = self.star(zero)?;
        self.concat(zeros, any)
    }

    /// Digit strings of one length between two.
    fn between(&mut self, low: &[u8], high: &[u8]) -> Made {
        let (Some((first_low, rest_low)), Some((first_high, rest_high))) = (low.split_first(), high.split_first())
        else {
            return Ok(EMPTY);
        };
        if first_low > first_high {
            return Ok(NONE);
        }
        let nines = vec![b'9'; rest_low.len()];
        let zeros = vec![b'0'; rest_low.len()];
        let digit = |c: &u8| (char::from(*c), char::from(*c));
        if first_low == first_high {
            let first = self.chars(vec![digit(first_low)])?;
            let rest = self.between(rest_low, rest_high)?;
            return self.concat(first, rest);
        }
        let first = self.chars(vec![digit(first_low)])?;
        let rest = self.between(rest_low, &nines)?;
        let low_part = self.concat(first, rest)?;
        let last = self.chars(vec![digit(first_high)])?;
        let rest = self.between(&zeros, rest_high)?;
        let high_part = self.concat(last, rest)?;
        let mut parts = vec![low_part, high_part];
        if first_high - first_low > 1 {
            let middle = self.chars(vec![(char::from(first_low + 1), char::from(first_high - 1))])?;
            let any = self.chars(vec![('0', '9')])?;
            let length = rest_low.len() as u32;
            let rest = self.repeat(any, length, length)?;
            parts.push(self.concat(middle, rest)?);
        }
        self.or(parts)
    }
}

/// Whether a text is a regular expression; the inner error says why it is none.
pub(crate) fn check(pattern: &str) -> Result<Result<(), String>, TooLarge> {
    Ok(Languages::new().regexp(pattern)?.map(|_| ()))
}

enum Refused {
    Reason(String),
    TooLarge,
}

impl From<TooLarge> for Refused {
    fn from(_: TooLarge) -> Refused {
        Refused::TooLarge
    }
}

type Read = Result<Id, Refused>;

fn refuse<T>(reason: String) -> Result<T, Refused> {
    Err(Refused::Reason(reason))
}

/// Reads an expression.
struct Reader<'a> {
    text: Vec<char>,
    at: usize,
    depth: usize,
    made: &'a mut Languages,
}

impl Reader<'_> {
    fn peek(&self, set: &str) -> bool {
        self.text.get(self.at).is_some_and(|c| set.contains(*c))
    }

    fn accept(&mut self, c: char) -> bool {
        let is_next = self.text.get(self.at) == Some(&c);
        self.at += usize::from(is_next);
        is_next
    }

    fn has_more(&self) -> bool {
        self.at < self.text.len()
    }

    fn next(&mut self) -> Result<char, Refused> {
        let Some(c) = self.text.get(self.at) else {
            return refuse("unexpected end-of-string".into());
        };
        self.at += 1;
        Ok(*c)
    }

    fn require(&mut self, c: char) -> Result<(), Refused> {
        if self.accept(c) { Ok(()) } else { refuse(format!("expected '{c}' at position {}", self.at)) }
    }

    fn whole(&mut self) -> Read {
        if self.text.is_empty() {
            return Ok(EMPTY);
        }
        let id = self.union()?;
        if self.has_more() {
            return refuse(format!("end-of-string expected at position {}", self.at));
        }
        Ok(id)
    }

    fn union(&mut self) -> Read {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Refused::TooLarge);
        }
        let mut parts = vec![self.intersection()?];
        while self.accept('|') {
            parts.push(self.intersection()?);
        }
        self.depth -= 1;
        Ok(self.made.or(parts)?)
    }

    fn intersection(&mut self) -> Read {
        let mut parts = vec![self.concat()?];
        while self.accept('&') {
            parts.push(self.concat()?);
        }
        Ok(self.made.and(parts)?)
    }

    fn concat(&mut self) -> Read {
        let mut parts = vec![self.repeat()?];
        while self.has_more() && !self.peek(")|&") {
            parts.push(self.repeat()?);
        }
        let mut id = EMPTY;
        for part in parts.into_iter().rev() {
            id = self.made.concat(part, id)?;
        }
        Ok(id)
    }

    fn repeat(&mut self) -> Read {
        let mut id = self.complement()?;
        while self.peek("?*+{") {
            id = match self.next()? {
                '?' => self.made.or([id, EMPTY])?,
                '*' => self.made.star(id)?,
                '+' => {
                    let rest = self.made.star(id)?;
                    self.made.concat(id, rest)?
                }
                _ => self.counted(id)?,
            };
        }
        Ok(id)
    }

    /// `{n}`, `{n,}`, `{n,m}`, behind the opening brace.
    fn counted(&mut self, id: Id) -> Read {
        let Some(least) = self.number()? else {
            return refuse(format!("integer expected at position {}", self.at));
        };
        let mut most = Some(least);
        if self.accept(',') {
            most = self.number()?;
        }
        self.require('}')?;
        match most {
            Some(most) => Ok(self.made.repeat(id, least, most)?),
            None => {
                let first = self.made.repeat(id, least, least)?;
                let rest = self.made.star(id)?;
                Ok(self.made.concat(first, rest)?)
            }
        }
    }

    fn number(&mut self) -> Result<Option<u32>, Refused> {
        let start = self.at;
        while self.peek("0123456789") {
            self.at += 1;
        }
        if start == self.at {
            return Ok(None);
        }
        let digits: String = self.text[start..self.at].iter().collect();
        match digits.parse::<u32>() {
            Ok(number) if number <= MAX_REPEAT => Ok(Some(number)),
            _ => Err(Refused::TooLarge),
        }
    }

    fn complement(&mut self) -> Read {
        let mut count = 0usize;
        while self.accept('~') {
            count += 1;
        }
        let mut id = self.class()?;
        for _ in 0..count % 2 {
            id = self.made.not(id)?;
        }
        Ok(id)
    }

    fn class(&mut self) -> Read {
        if !self.accept('[') {
            return self.simple();
        }
        let is_negative = self.accept('^');
        let mut ranges = Vec::new();
        loop {
            self.class_part(&mut ranges)?;
            if !self.has_more() || self.peek("]") {
                break;
            }
        }
        self.require(']')?;
        let ranges = normal(ranges);
        let ranges = if is_negative { others(&ranges) } else { ranges };
        Ok(self.made.chars(ranges)?)
    }

    fn class_part(&mut self, ranges: &mut Vec<(char, char)>) -> Result<(), Refused> {
        let from = self.character()?;
        if !self.accept('-') {
            ranges.push((from, from));
        } else if self.peek("]") {
            ranges.extend([(from, from), ('-', '-')]);
        } else {
            let to = self.character()?;
            if from > to {
                return refuse(format!("invalid range: from ({}) cannot be > to ({})", from as u32, to as u32));
            }
            ranges.push((from, to));
        }
        Ok(())
    }

    fn character(&mut self) -> Result<char, Refused> {
        self.accept('\\');
        self.next()
    }

    fn simple(&mut self) -> Read {
        if self.accept('.') {
            return Ok(self.made.any()?);
        }
        if self.accept('#') {
            return Ok(NONE);
        }
        if self.accept('@') {
            return Ok(ALL);
        }
        if self.accept('"') {
            let start = self.at;
            while self.has_more() && !self.peek("\"") {
                self.at += 1;
            }
            let text: String = self.text[start..self.at].iter().collect();
            self.require('"')?;
            return Ok(self.made.text(&text)?);
        }
        if self.accept('(') {
            if self.accept(')') {
                return Ok(EMPTY);
            }
            let id = self.union()?;
            self.require(')')?;
            return Ok(id);
        }
        if self.accept('<') {
            return self.interval();
        }
        let c = self.character()?;
        Ok(self.made.chars(vec![(c, c)])?)
    }

    /// `<10-20>`, behind the opening bracket.
    fn interval(&mut self) -> Read {
        let start = self.at;
        while self.has_more() && !self.peek(">") {
            self.at += 1;
        }
        let text: String = self.text[start..self.at].iter().collect();
        self.require('>')?;
        let Some((from, to)) = text.split_once('-') else {
            return refuse(format!("'{text}' not found"));
        };
        let digits = if from.len() == to.len() { from.len() } else { 0 };
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u64>().ok().filter(|number| is_number && *number <= i32::MAX as u64)
        };
        match (number(from), number(to)) {
            (Some(from), Some(to)) if digits <= MAX_DEPTH => {
                Ok(self.made.numbers(from.min(to), from.max(to), digits)?)
            }
            _ => refuse(format!("interval syntax error at position {}", self.at - 1)),
        }
    }
}

/// Ranges in order, none touching another.
fn normal(mut ranges: Vec<(char, char)>) -> Vec<(char, char)> {
    ranges.sort_unstable();
    let mut output: Vec<(char, char)> = Vec::with_capacity(ranges.len());
    for (from, to) in ranges {
        match output.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => output.push((from, to)),
        }
    }
    output
}

/// The characters that are in none of the ranges.
fn others(ranges: &[(char, char)]) -> Vec<(char, char)> {
    let mut output = Vec::new();
    let mut next = Some('\0');
    for (from, to) in ranges {
        if let Some(start) = next
            && let Some(end) = before(*from)
            && start <= end
        {
            output.push((start, end));
        }
        next = behind(*to);
    }
    if let Some(start) = next {
        output.push((start, char::MAX));
    }
    output
}

fn before(c: char) -> Option<char> {
    ('\0'..c).next_back()
}

fn behind(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        let mut languages = Languages::new();
        let mut id = languages.regexp(pattern).expect("small").expect("an expression");
        for c in text.chars() {
            id = languages.step(id, c).expect("small");
        }
        languages.is_match(id)
    }

    #[test]
    fn the_dialect_of_lucene_is_read() {
        let yes = [
            ("river", "river"),
            ("ri.*", "river"),
            ("rive@", "rivet"),
            ("~river", "driver"),
            ("[^a-m].*", "zebra"),
            ("[AB]<10-20>", "A15"),
            ("<1-100>", "007"),
            ("<1-100>", "100"),
            ("A[0-9]{2}", "A12"),
            ("(ab){2,}", "ababab"),
            (".*a.*&.*b.*", "xbxax"),
            ("\"a.b\"", "a.b"),
            ("()", ""),
            ("a?b+", "abb"),
            ("[a-]", "-"),
            ("~(ab)", "a"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        let no = [
            ("ri", "river"),
            ("~(river)", "river"),
            ("[^a-m].*", "abc"),
            ("<10-20>", "9"),
            ("<10-20>", "21"),
            ("<1-100>", "101"),
            ("#", ""),
            ("a{2}", "a"),
            (".*a.*&.*b.*", "xax"),
            ("\\d", "5"),
        ];
        for (pattern, text) in no {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for pattern in ["[", "(", "a{", "a{1", "<1-x>", "\"a", "a)", "[z-a]", "<x>", "[]"] {
            assert!(matches!(check(pattern), Ok(Err(_))), "{pattern}");
        }
    }

    #[test]
    fn a_huge_expression_is_refused_and_ends() {
        assert!(check(&"(".repeat(3_000)).is_err());
        assert!(check("a{100000}").is_err());
        let mut languages = Languages::new();
        let id = languages.regexp("((((.*a){9}){9}){9}){9}&~(.*b.{900}c.*)").expect("small").expect("an expression");
        let mut at = Ok(id);
        for c in "ab".repeat(20_000).chars() {
            at = at.and_then(|id| languages.step(id, c));
        }
        assert!(at.is_err() || languages.nodes.len() <= MAX_NODES);
    }
}
