//! Interpreter of simple map functions, whose rows are known without the engine: `emit` of members and constants,
//! behind conditions that compare those.
//!
//! [`Plain`] gives the rows that the engine would give. Where that is in doubt for a document (a number that a double
//! does not hold, a member of a text, a comparison of two types) it gives none, and the engine runs. Assumes that all
//! maps of the design document only read (`reader.rs`), so that built-in objects are unchanged, and that documents are
//! canonical text.

use std::ops::ControlFlow;
use std::slice;

use super::reader::Token::{self, Mark, Number, Operator, Text, Word};
use super::reader::tokens;
use super::{Program, ScriptError, Scripts};
use crate::document::json::{self, Lazy, Value, parse_lazily};
use crate::limits;
use crate::world::Pool;

/// Keys and values in the order emitted.
pub type Rows = Vec<(Value, Value)>;

/// Up to here every integer is a double.
const EXACT: u64 = 1 << 53;

/// Words that are no name of a parameter, or mean something else than one.
const RESERVED: &str = "arguments async await break case catch class const continue debugger default delete do else \
    emit enum eval export extends false finally for function if implements import in instanceof interface let new \
    null package private protected public return static super switch this throw true try typeof var void while with \
    yield";
/// Members that every object has; others of the kind begin with `__`.
const OF_EVERY_OBJECT: &str =
    "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf";

/// What stands for a value.
#[derive(Debug)]
enum Term {
    Constant(Value),
    List(Vec<Term>),
    /// A member of the document, a member of that, and so on.
    Member(Vec<String>),
}

#[derive(Debug)]
enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// `===`, `==`, or the order of numbers.
    Compare(Term, &'static str, Term),
    Holds(Term),
    Not(Box<Condition>),
}

#[derive(Debug)]
enum Step {
    /// Without a value it is `undefined`, which is stored as `null`.
    Emit(Term, Option<Term>),
    If(Condition, Vec<Step>),
    Return,
}

/// A map function that was understood; see the module head.
#[derive(Debug)]
pub(super) struct Plain(Vec<Step>);

/// Why it did not come to its end.
enum Stop {
    /// It throws: the document has no rows of it.
    Throws,
    /// The engine knows.
    Unknown,
}

/// A value as far as conditions look at it.
#[derive(PartialEq)]
enum Scalar {
    Bool(bool),
    Null,
    Number(f64),
    /// An object or array.
    Object,
    Text(String),
    Undefined,
}

impl Scripts {
    /// As [`Scripts::map`], for documents in canonical text: those that plain functions tell enough of never reach the
    /// engine.
    pub async fn rows(
        &self,
        program: &Program,
        sources: &[&str],
        docs: Vec<String>,
    ) -> Result<Vec<Vec<Rows>>, ScriptError> {
        let is_understood = program.language().is_none() && program.maps_only_read();
        let understood = || sources.iter().map(|source| Plain::read(source)).collect::<Option<Vec<Plain>>>();
        let Some(plain) = is_understood.then(understood).flatten() else {
            return Ok(self.map(program, sources, docs).await?.into_iter().map(all_rows).collect());
        };
        let told = self.0.env.blocking(Pool::Build, move || {
            let of_all =
                |doc: &String| plain.iter().map(|each| each.rows(doc.as_bytes())).collect::<Option<Vec<Rows>>>();
            let told: Vec<Option<Vec<Rows>>> = docs.iter().map(of_all).collect();
            let unknown = docs.into_iter().zip(&told).filter(|(_, rows)| rows.is_none());
            let asked: Vec<String> = unknown.map(|(doc, _)| doc).collect();
            (told, asked)
        });
        let (told, asked) = told.await;
        let answers = if asked.is_empty() { Vec::new() } else { self.map(program, sources, asked).await? };
        let mut answers = answers.into_iter().map(all_rows);
        Ok(told.into_iter().map(|rows| rows.or_else(|| answers.next()).unwrap_or_default()).collect())
    }
}

/// The rows of all functions as the engine gives them: lists of `[key, value]`.
fn all_rows(lists: Vec<Vec<Value>>) -> Vec<Rows> {
    let row = |pair| match pair {
        Value::Array(pair) => <[Value; 2]>::try_from(pair).ok().map(|[key, value]| (key, value)),
        _ => None,
    };
    lists.into_iter().map(|list| list.into_iter().filter_map(row).collect()).collect()
}

impl Plain {
    /// Understands the text of a function; `None` where it is more than this.
    pub fn read(source: &str) -> Option<Plain> {
        let split = |token| match token {
            Operator("!!") => [Some(Operator("!")), Some(Operator("!"))],
            Operator("&&!") => [Some(Operator("&&")), Some(Operator("!"))],
            Operator("||!") => [Some(Operator("||")), Some(Operator("!"))],
            other => [Some(other), None],
        };
        let tokens: Vec<Token<'_>> = tokens(source)?.into_iter().flat_map(split).flatten().collect();
        let (depth, terms) = (limits::SCRIPT_PLAIN_DEPTH, limits::SCRIPT_PLAIN_TERMS);
        let mut reader = Reader { tokens: &tokens, param: "", depth, terms };
        // No line may end before an arrow; one within a comment is none.
        let head = source.split("=>").next().unwrap_or_default();
        let steps = if reader.takes(Word("function")) {
            reader.demands(Mark(b'('))?;
            reader.param()?;
            reader.demands(Mark(b')'))?;
            reader.demands(Mark(b'{'))?;
            reader.block()?
        } else if head.contains(['\n', '\r']) || head.contains("//") || super::reader::tokens(head).is_none() {
            return None;
        } else {
            if reader.takes(Mark(b'(')) {
                reader.param()?;
                reader.demands(Mark(b')'))?;
            } else {
                reader.param()?;
            }
            reader.demands(Operator("=>"))?;
            if reader.takes(Mark(b'{')) {
                reader.block()?
            } else {
                reader.demands(Word("emit"))?;
                vec![reader.emit()?]
            }
        };
        reader.tokens.is_empty().then_some(Plain(steps))
    }

    /// The rows of a document; `None`: ask the engine.
    pub fn rows(&self, doc: &[u8]) -> Option<Rows> {
        if doc.len() > limits::SCRIPT_PLAIN_DOC_BYTES {
            return None;
        }
        let mut rows = Vec::new();
        match run(&self.0, doc, &mut rows) {
            Ok(_) => Some(rows),
            Err(Stop::Throws) => Some(Vec::new()),
            Err(Stop::Unknown) => None,
        }
    }
}

/// What is left to understand.
struct Reader<'t> {
    tokens: &'t [Token<'t>],
    /// The name of the document.
    param: &'t str,
    /// How much deeper it may go.
    depth: usize,
    /// How many terms more there may be.
    terms: usize,
}

impl<'t> Reader<'t> {
    fn take(&mut self) -> Option<Token<'t>> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(*first)
    }

    fn takes(&mut self, wanted: Token<'_>) -> bool {
        let found = self.tokens.first() == Some(&wanted);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn demands(&mut self, wanted: Token<'_>) -> Option<()> {
        self.takes(wanted).then_some(())
    }

    /// What `read` makes of what is one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth = self.depth.checked_sub(1)?;
        let made = read(self)?;
        self.depth += 1;
        Some(made)
    }

    fn param(&mut self) -> Option<()> {
        match self.take()? {
            Word(name) if !is_among(RESERVED, name) => self.param = name,
            _ => return None,
        }
        Some(())
    }

    /// Statements and the brace that ends them.
    fn block(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        while !self.takes(Mark(b'}')) {
            if !self.takes(Mark(b';')) {
                steps.push(self.step()?);
            }
        }
        Some(steps)
    }

    fn step(&mut self) -> Option<Step> {
        let step = match self.take()? {
            Word("emit") => self.emit()?,
            Word("return") => Step::Return,
            Word("if") => {
                self.demands(Mark(b'('))?;
                let condition = self.any()?;
                self.demands(Mark(b')'))?;
                let is_block = self.takes(Mark(b'{'));
                let one = |reader: &mut Self| Some(vec![reader.step()?]);
                let steps = self.deeper(|reader| if is_block { reader.block() } else { one(reader) })?;
                return Some(Step::If(condition, steps));
            }
            _ => return None,
        };
        let ends = self.takes(Mark(b';')) || self.tokens.first() == Some(&Mark(b'}'));
        ends.then_some(step)
    }

    /// The arguments of a call.
    fn emit(&mut self) -> Option<Step> {
        self.demands(Mark(b'('))?;
        let key = self.term()?;
        let value = if self.takes(Mark(b',')) { Some(self.term()?) } else { None };
        self.demands(Mark(b')'))?;
        Some(Step::Emit(key, value))
    }

    fn term(&mut self) -> Option<Term> {
        self.terms = self.terms.checked_sub(1)?;
        Some(match self.take()? {
            Word("null") => Term::Constant(Value::Null),
            Word(word @ ("true" | "false")) => Term::Constant(Value::Bool(word == "true")),
            Number(digits) => Term::Constant(integer(digits)?),
            Text(text) if !text.bytes().any(|byte| byte == b'\\' || byte < b' ') => Term::Constant(Value::from(text)),
            Mark(b'[') => Term::List(self.deeper(Self::list)?),
            Word(word) if word == self.param => Term::Member(self.path()?),
            _ => return None,
        })
    }

    fn list(&mut self) -> Option<Vec<Term>> {
        let mut terms = Vec::new();
        if self.takes(Mark(b']')) {
            return Some(terms);
        }
        loop {
            terms.push(self.term()?);
            match self.take()? {
                Mark(b',') => {}
                Mark(b']') => return Some(terms),
                _ => return None,
            }
        }
    }

    fn path(&mut self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        while self.takes(Mark(b'.')) {
            match self.take()? {
                Word(name) if !name.starts_with("__") && !is_among(OF_EVERY_OBJECT, name) => {
                    names.push(name.to_owned())
                }
                _ => return None,
            }
        }
        let is_near = (1..=limits::SCRIPT_PLAIN_DEPTH).contains(&names.len());
        is_near.then_some(names)
    }

    fn any(&mut self) -> Option<Condition> {
        let mut list = vec![self.all()?];
        while self.takes(Operator("||")) {
            list.push(self.all()?);
        }
        Some(Condition::Any(list))
    }

    fn all(&mut self) -> Option<Condition> {
        let mut list = vec![self.one()?];
        while self.takes(Operator("&&")) {
            list.push(self.one()?);
        }
        Some(Condition::All(list))
    }

    fn one(&mut self) -> Option<Condition> {
        if matches!(self.tokens.first(), Some(Operator("!") | Mark(b'('))) {
            return self.unary();
        }
        let left = self.term()?;
        let operators = ["===", "!==", "==", "!=", "<", "<=", ">", ">="];
        match operators.into_iter().find(|name| self.takes(Operator(name))) {
            Some(operator) => Some(Condition::Compare(left, operator, self.term()?)),
            None => Some(Condition::Holds(left)),
        }
    }

    /// What `!` is of, which binds closer than comparisons.
    fn unary(&mut self) -> Option<Condition> {
        if self.takes(Operator("!")) {
            return Some(Condition::Not(Box::new(self.deeper(Self::unary)?)));
        }
        if self.takes(Mark(b'(')) {
            let inner = self.deeper(Self::any)?;
            self.demands(Mark(b')'))?;
            return Some(inner);
        }
        self.term().map(Condition::Holds)
    }
}

fn is_among(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

/// A whole number of few digits.
fn integer(digits: &str) -> Option<Value> {
    let is_plain = digits == "0" || !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = digits.parse().ok().filter(|_| is_plain)?;
    (number.unsigned_abs() <= EXACT).then_some(Value::Int(number))
}

/// Does what a function does for a document; breaks where it returns.
fn run(steps: &[Step], doc: &[u8], rows: &mut Rows) -> Result<ControlFlow<()>, Stop> {
    for step in steps {
        match step {
            Step::Emit(key, value) => {
                let key = key.value(doc)?;
                let value = value.as_ref().map_or(Ok(Value::Null), |value| value.value(doc))?;
                rows.push((key, value));
            }
            Step::If(condition, steps) => {
                if condition.holds(doc)? && run(steps, doc, rows)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Step::Return => return Ok(ControlFlow::Break(())),
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The text of a member; `None` is `undefined`.
fn member<'d>(doc: &'d [u8], path: &[String]) -> Result<Option<&'d [u8]>, Stop> {
    let mut found = Some(doc);
    for name in path {
        let text = match found {
            Some(text) if text.starts_with(b"{") => text,
            None | Some(b"null") => return Err(Stop::Throws),
            Some(_) => return Err(Stop::Unknown),
        };
        found = match parse_lazily(text, slice::from_ref(name)) {
            Ok(Lazy::Text(value)) => Some(value),
            Ok(Lazy::Absent) => None,
            Ok(Lazy::NoPath) | Err(_) => return Err(Stop::Unknown),
        };
    }
    Ok(found)
}

impl Term {
    /// As it is emitted: `undefined` is `null` there.
    fn value(&self, doc: &[u8]) -> Result<Value, Stop> {
        match self {
            Term::Constant(value) => Ok(value.clone()),
            Term::List(terms) => terms.iter().map(|term| term.value(doc)).collect::<Result<_, _>>().map(Value::Array),
            Term::Member(path) => match member(doc, path)? {
                Some(text) => {
                    let value = json::parse(text).map_err(|_| Stop::Unknown)?;
                    as_written(value, limits::SCRIPT_PLAIN_DEPTH).ok_or(Stop::Unknown)
                }
                None => Ok(Value::Null),
            },
        }
    }

    fn scalar(&self, doc: &[u8]) -> Result<Scalar, Stop> {
        let of_value = |value: Value| match as_written(value, 0) {
            Some(Value::Null) => Ok(Scalar::Null),
            Some(Value::Bool(value)) => Ok(Scalar::Bool(value)),
            Some(Value::Int(value)) => Ok(Scalar::Number(value as f64)),
            Some(Value::Float(value)) => Ok(Scalar::Number(value)),
            Some(Value::String(text)) => Ok(Scalar::Text(text)),
            _ => Err(Stop::Unknown),
        };
        match self {
            Term::Constant(value) => of_value(value.clone()),
            Term::List(_) => Err(Stop::Unknown),
            Term::Member(path) => match member(doc, path)? {
                Some(text) if text.starts_with(b"{") || text.starts_with(b"[") => Ok(Scalar::Object),
                Some(text) => of_value(json::parse(text).map_err(|_| Stop::Unknown)?),
                None => Ok(Scalar::Undefined),
            },
        }
    }
}

/// A value after the engine has read and written it: numbers are doubles, and whole ones have no fraction. `None` where
/// that is not certain, as for objects whose members the engine may put in another order.
fn as_written(value: Value, depth: usize) -> Option<Value> {
    Some(match value {
        Value::Null | Value::Bool(_) | Value::String(_) => value,
        Value::Int(number) if number.unsigned_abs() <= EXACT => value,
        Value::Float(number) if number.fract() != 0.0 && number.is_normal() => value,
        Value::Float(number) if number.fract() == 0.0 && number.abs() <= EXACT as f64 => Value::Int(number as i64),
        Value::Int(_) | Value::Float(_) | Value::Big(_) => return None,
        Value::Array(list) => {
            let depth = depth.checked_sub(1)?;
            Value::Array(list.into_iter().map(|value| as_written(value, depth)).collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let depth = depth.checked_sub(1)?;
            let member = |(name, value): (String, Value)| {
                let keeps_its_place = name != "__proto__" && !name.starts_with(|first: char| first.is_ascii_digit());
                keeps_its_place.then(|| as_written(value, depth)).flatten().map(|value| (name, value))
            };
            Value::Object(members.into_iter().map(member).collect::<Option<_>>()?)
        }
    })
}

impl Condition {
    fn holds(&self, doc: &[u8]) -> Result<bool, Stop> {
        match self {
            Condition::All(list) => {
                for each in list {
                    if !each.holds(doc)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Condition::Any(list) => {
                for each in list {
                    if each.holds(doc)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Condition::Compare(left, operator, right) => {
                let (left, right) = (left.scalar(doc)?, right.scalar(doc)?);
                left.compare(operator, &right).ok_or(Stop::Unknown)
            }
            Condition::Holds(term) => Ok(term.scalar(doc)?.is_truthy()),
            Condition::Not(condition) => condition.holds(doc).map(|holds| !holds),
        }
    }
}

impl Scalar {
    fn is_truthy(&self) -> bool {
        match self {
            Scalar::Bool(value) => *value,
            Scalar::Null | Scalar::Undefined => false,
            Scalar::Number(number) => *number != 0.0,
            Scalar::Object => true,
            Scalar::Text(text) => !text.is_empty(),
        }
    }

    /// Whether a comparison of the two holds; `None` where values would be converted, or objects compared.
    fn compare(&self, operator: &str, other: &Scalar) -> Option<bool> {
        match operator {
            "===" => self.is_same(other),
            "!==" => self.is_same(other).map(|same| !same),
            "==" => self.is_equal(other),
            "!=" => self.is_equal(other).map(|equal| !equal),
            _ => match (self, other) {
                (Scalar::Number(left), Scalar::Number(right)) => match operator {
                    "<" => Some(left < right),
                    "<=" => Some(left <= right),
                    ">" => Some(left > right),
                    ">=" => Some(left >= right),
                    _ => None,
                },
                // `undefined` becomes what is no number.
                (Scalar::Undefined, Scalar::Number(_)) | (Scalar::Number(_), Scalar::Undefined) => Some(false),
                _ => None,
            },
        }
    }

    fn is_same(&self, other: &Scalar) -> Option<bool> {
        // Two objects may be one.
        (*self != Scalar::Object || *other != Scalar::Object).then(|| self == other)
    }

    fn is_equal(&self, other: &Scalar) -> Option<bool> {
        let is_nothing = |scalar: &Scalar| matches!(scalar, Scalar::Null | Scalar::Undefined);
        match (is_nothing(self), is_nothing(other)) {
            (false, false) if std::mem::discriminant(self) == std::mem::discriminant(other) => self.is_same(other),
            (false, false) => None,
            (one, another) => Some(one && another),
        }
    }
}

#[cfg(test)]
mod tests;
