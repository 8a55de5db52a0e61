//! Tokens of a query to a tree: Lucene's classic grammar, one token ahead, two at the beginning of a clause.

use super::escape::unescape;
use super::java::{parse_double, parse_float};
use super::lexer::{Kind, Lexer, Token, escaped};
use super::{Clause, Occur, Query, QueryError, keeps_case};
use crate::analysis::Analyzer;
use crate::search::Limits;

/// Clauses of one boolean query, a bound of Lucene.
const MAX_CLAUSES: usize = 1024;
/// The field of words that name none.
const DEFAULT_FIELD: &str = "default";
/// Edits of a fuzzy word that names no number.
const FUZZY_EDITS: f32 = 2.0;

/// Words that may begin a clause, modifiers before.
const CLAUSE: [Kind; 14] = [
    Kind::Not,
    Kind::Plus,
    Kind::Minus,
    Kind::BareOperator,
    Kind::Open,
    Kind::Star,
    Kind::Quoted,
    Kind::Term,
    Kind::Prefix,
    Kind::Wildcard,
    Kind::Regexp,
    Kind::RangeIn,
    Kind::RangeEx,
    Kind::Number,
];
const LEADING_WILDCARD: &str = "'*' or '?' not allowed as first character in WildcardQuery";
const TOO_MANY: &str = "too many boolean clauses";
const MODIFIERS: usize = 3;

/// Why parsing ends.
enum Stop {
    /// The text is no query, for this reason.
    Reason(String),
    /// The query is one that cannot be run.
    Invalid(String),
}

impl From<String> for Stop {
    fn from(reason: String) -> Stop {
        Stop::Reason(reason)
    }
}

type Parsed = Result<Option<Query>, Stop>;

struct Parser<'a> {
    lexer: Lexer,
    ahead: Vec<Token>,
    analyzer: &'a Analyzer,
    limits: &'a Limits,
    clauses: usize,
    depth: usize,
    /// What an optional part before the next token could have been.
    optional: Vec<Kind>,
    /// Whether a colon behind the word before would have made it a field.
    may_colon: bool,
}

pub(super) fn parse(text: &str, analyzer: &Analyzer, limits: &Limits) -> Result<Query, QueryError> {
    let lexer = Lexer::new(text);
    let mut parser = Parser {
        lexer,
        ahead: Vec::new(),
        analyzer,
        limits,
        clauses: 0,
        depth: 0,
        optional: Vec::new(),
        may_colon: false,
    };
    match parser.top() {
        Ok(query) => Ok(query.unwrap_or(Query::Nothing)),
        Err(Stop::Reason(reason)) => Err(QueryError::Syntax(format!("Cannot parse '{text}': {reason}"))),
        Err(Stop::Invalid(reason)) => Err(QueryError::Invalid(reason)),
    }
}

/// The range of numbers that a text like `[0 TO 10}` names; `None`: it is another query.
pub(crate) fn number_range(text: &str, analyzer: &Analyzer) -> Result<Option<Query>, QueryError> {
    let query = parse(text, analyzer, &Limits::default())?;
    Ok(matches!(query, Query::NumberRange { .. }).then_some(query))
}

impl Parser<'_> {
    fn peek_at(&mut self, place: usize) -> Result<Token, Stop> {
        while self.ahead.len() <= place {
            let token = self.lexer.next()?;
            self.ahead.push(token);
        }
        Ok(self.ahead[place])
    }

    fn peek(&mut self) -> Result<Kind, Stop> {
        Ok(self.peek_at(0)?.kind)
    }

    fn take(&mut self) -> Result<Token, Stop> {
        let token = self.peek_at(0)?;
        self.ahead.remove(0);
        self.optional.clear();
        self.may_colon = false;
        Ok(token)
    }

    /// Takes the next token if it is of this kind.
    fn accept(&mut self, kind: Kind) -> Result<Option<Token>, Stop> {
        if self.peek()? == kind {
            return self.take().map(Some);
        }
        self.optional.push(kind);
        Ok(None)
    }

    fn image(&self, token: Token) -> &[u16] {
        &self.lexer.units[token.start..token.end]
    }

    /// The reason why the next token is not what has to stand here.
    fn unexpected(&mut self, expected: &[Kind]) -> Stop {
        let token = match self.peek_at(0) {
            Ok(token) => token,
            Err(stop) => return stop,
        };
        let mut kinds: Vec<Kind> = expected.iter().chain(&self.optional).copied().collect();
        if self.may_colon {
            kinds.push(Kind::Colon);
        }
        kinds.sort_unstable();
        kinds.dedup();
        let found = match token.kind {
            Kind::Eof => "<EOF>".to_owned(),
            kind => format!(" {} \"{} \"", kind.image(), escaped(self.image(token))),
        };
        let column = token.start;
        let title = if kinds.len() == 1 { "Was expecting:" } else { "Was expecting one of:" };
        let mut reason = format!("Encountered \"{found}\" at line 1, column {column}.\n{title}\n    ");
        for kind in kinds {
            reason.push_str(kind.image());
            reason.push_str(if kind == Kind::Eof { " \n    " } else { " ...\n    " });
        }
        Stop::Reason(reason)
    }

    fn top(&mut self) -> Parsed {
        let query = self.query(DEFAULT_FIELD)?;
        if self.peek()? != Kind::Eof {
            return Err(self.unexpected(&[Kind::Eof]));
        }
        Ok(query)
    }

    /// Clauses up to a token that begins none.
    fn query(&mut self, field: &str) -> Parsed {
        let mut clauses: Vec<Clause> = Vec::new();
        let occur = self.modifier()?;
        let first = self.clause(field)?;
        // A query of one clause without a modifier is that clause.
        let is_plain_first = occur.is_none() && first.is_some();
        self.add(&mut clauses, false, occur, first)?;
        loop {
            let kind = self.peek()?;
            let is_and = kind == Kind::And;
            if is_and || kind == Kind::Or {
                self.take()?;
            } else if !CLAUSE.contains(&kind) {
                self.optional.extend([Kind::And, Kind::Or]);
                self.optional.extend(CLAUSE);
                break;
            }
            let occur = self.modifier()?;
            let query = self.clause(field)?;
            self.add(&mut clauses, is_and, occur, query)?;
        }
        if clauses.len() == 1 && is_plain_first {
            self.clauses -= 1;
            return Ok(clauses.pop().map(|clause| clause.query));
        }
        Ok((!clauses.is_empty()).then_some(Query::Boolean { clauses, has_coord: true }))
    }

    fn modifier(&mut self) -> Result<Option<Occur>, Stop> {
        let occur = match self.peek()? {
            Kind::Plus => Occur::Must,
            Kind::Minus | Kind::Not => Occur::MustNot,
            _ => {
                self.optional.extend([Kind::Not, Kind::Plus, Kind::Minus]);
                return Ok(None);
            }
        };
        self.take()?;
        Ok(Some(occur))
    }

    /// Adds a clause. `AND` makes the clause before it required too, also where this one has no words.
    fn add(
        &mut self,
        clauses: &mut Vec<Clause>,
        is_and: bool,
        occur: Option<Occur>,
        query: Option<Query>,
    ) -> Result<(), Stop> {
        if is_and && let Some(last) = clauses.last_mut().filter(|last| last.occur != Occur::MustNot) {
            last.occur = Occur::Must;
        }
        let Some(query) = query else { return Ok(()) };
        self.clauses += 1;
        if clauses.len() >= MAX_CLAUSES || self.clauses > self.limits.clauses {
            return Err(Stop::Reason(TOO_MANY.into()));
        }
        let occur = occur.unwrap_or(if is_and { Occur::Must } else { Occur::Should });
        clauses.push(Clause { occur, query });
        Ok(())
    }

    fn clause(&mut self, field: &str) -> Parsed {
        let kind = self.peek()?;
        let is_named = matches!(kind, Kind::Term | Kind::Star) && self.peek_at(1)?.kind == Kind::Colon;
        let name;
        let mut field = field;
        if is_named {
            let token = self.take()?;
            self.take()?;
            name = if kind == Kind::Star { "*".to_owned() } else { unescape(self.image(token))? };
            field = &name;
        }
        if self.accept(Kind::Open)?.is_none() {
            let may_colon = !is_named && matches!(kind, Kind::Term | Kind::Star);
            return self.term(field, may_colon);
        }
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(Stop::Reason("too many brackets within brackets".into()));
        }
        let query = self.query(field)?;
        if self.peek()? != Kind::Close {
            return Err(self.unexpected(&[Kind::Close]));
        }
        self.take()?;
        self.depth -= 1;
        let boost = self.boost()?;
        Ok(boosted(query, boost))
    }

    /// `^2`, if it stands here.
    fn boost(&mut self) -> Result<Option<f32>, Stop> {
        if self.accept(Kind::Caret)?.is_none() {
            return Ok(None);
        }
        if self.peek()? != Kind::Number {
            return Err(self.unexpected(&[Kind::Number]));
        }
        let token = self.take()?;
        Ok(Some(parse_float(&String::from_utf16_lossy(self.image(token))).unwrap_or(1.0)))
    }

    fn term(&mut self, field: &str, may_colon: bool) -> Parsed {
        match self.peek()? {
            Kind::Term
            | Kind::Star
            | Kind::Prefix
            | Kind::Wildcard
            | Kind::Regexp
            | Kind::Number
            | Kind::BareOperator => self.bare(field, may_colon),
            Kind::RangeIn | Kind::RangeEx => self.range(field),
            Kind::Quoted => self.quoted(field),
            _ => {
                // What the modifiers could have been stays expected.
                let expected = CLAUSE[MODIFIERS..].to_vec();
                Err(self.unexpected(&expected))
            }
        }
    }

    fn bare(&mut self, field: &str, may_colon: bool) -> Parsed {
        let token = self.take()?;
        self.may_colon = may_colon;
        let mut fuzzy = self.accept(Kind::Fuzzy)?;
        let boost = self.boost()?;
        if boost.is_some()
            && let Some(token) = self.accept(Kind::Fuzzy)?
        {
            fuzzy = Some(token);
        }
        let query = self.bare_query(field, token, fuzzy)?;
        Ok(boosted(query, boost))
    }

    fn bare_query(&mut self, field: &str, token: Token, fuzzy: Option<Token>) -> Parsed {
        let image = self.image(token);
        let text = unescape(if token.kind == Kind::BareOperator { &image[..1] } else { image })?;
        let field = field.to_owned();
        let keeps_case = keeps_case(&field, self.analyzer);
        let folded = |text: String| if keeps_case { text } else { text.to_lowercase() };
        match token.kind {
            Kind::Star | Kind::Wildcard => {
                let pattern = String::from_utf16_lossy(image);
                if field == "*" && pattern == "*" {
                    return Ok(Some(Query::All));
                }
                if pattern.starts_with(['*', '?']) {
                    return Err(Stop::Reason(LEADING_WILDCARD.into()));
                }
                Ok(Some(Query::Wildcard { field, pattern: folded(pattern) }))
            }
            Kind::Prefix => {
                let prefix = unescape(&image[..image.len() - 1])?;
                if prefix.starts_with('*') {
                    return Err(Stop::Reason("'*' not allowed as first character in PrefixQuery".into()));
                }
                Ok(Some(Query::Prefix { field, prefix: folded(prefix) }))
            }
            Kind::Regexp => {
                let pattern = folded(String::from_utf16_lossy(&image[1..image.len() - 1]));
                let checked = crate::search::regexp::check(&pattern);
                let checked = checked.map_err(|_| Stop::Reason("the regular expression is too large".into()))?;
                checked.map_err(Stop::Invalid)?;
                Ok(Some(Query::Regexp { field, pattern }))
            }
            _ => match fuzzy {
                Some(token) => self.fuzzy(field, text, token, folded).map(Some),
                None => Ok(self.words(&field, &text)),
            },
        }
    }

    fn fuzzy(
        &self,
        field: String,
        text: String,
        token: Token,
        folded: impl Fn(String) -> String,
    ) -> Result<Query, Stop> {
        let image = String::from_utf16_lossy(&self.image(token)[1..]);
        let value = parse_float(&image).unwrap_or(FUZZY_EDITS);
        if value < 0.0 {
            let reason = "Minimum similarity for a FuzzyQuery has to be between 0.0f and 1.0f !";
            return Err(Stop::Reason(reason.into()));
        }
        if value >= 1.0 && value.fract() != 0.0 {
            return Err(Stop::Reason("Fractional edit distances are not allowed!".into()));
        }
        let text = folded(text);
        let length = text.chars().count() as f64;
        let edits = if value >= 1.0 {
            value.min(2.0) as u8
        } else if value == 0.0 {
            0
        } else {
            ((1.0 - f64::from(value)) * length).min(2.0) as u8
        };
        Ok(Query::Fuzzy { field, text, edits })
    }

    /// Words that are not quoted: a number, or one of the pieces into which the analyzer cuts them.
    fn words(&self, field: &str, text: &str) -> Option<Query> {
        if let Some(value) = parse_double(text) {
            return Some(Query::Number { field: field.to_owned(), value });
        }
        let positions = self.positions(field, text);
        let mut queries: Vec<Query> = positions.into_iter().map(|(_, words)| one_of(field, words)).collect();
        if queries.len() == 1 {
            return queries.pop();
        }
        let clauses: Vec<Clause> = queries.into_iter().map(|query| Clause { occur: Occur::Should, query }).collect();
        (!clauses.is_empty()).then_some(Query::Boolean { clauses, has_coord: true })
    }

    /// The tokens of a text by their positions.
    fn positions(&self, field: &str, text: &str) -> Vec<(u32, Vec<String>)> {
        let mut positions: Vec<(u32, Vec<String>)> = Vec::new();
        for token in crate::segment::tokens(self.analyzer, field, text) {
            match positions.last_mut() {
                Some((position, words)) if *position == token.position => words.push(token.text),
                _ => positions.push((token.position, vec![token.text])),
            }
        }
        positions
    }

    fn quoted(&mut self, field: &str) -> Parsed {
        let token = self.take()?;
        let slop = self.accept(Kind::Fuzzy)?;
        let boost = self.boost()?;
        let image = self.image(token);
        let text = unescape(&image[1..image.len() - 1])?;
        let slop = match slop {
            Some(token) => parse_float(&String::from_utf16_lossy(&self.image(token)[1..])).unwrap_or(0.0) as i32,
            None => 0,
        };
        let mut words = self.positions(field, &text);
        self.clauses += words.len();
        if self.clauses > self.limits.clauses {
            return Err(Stop::Reason(TOO_MANY.into()));
        }
        let query = match words.len() {
            0 => None,
            1 => words.pop().map(|(_, words)| one_of(field, words)),
            _ if slop < 0 => return Err(Stop::Invalid("slop value cannot be negative".into())),
            _ => Some(Query::Phrase { field: field.to_owned(), words, slop: slop.unsigned_abs() }),
        };
        Ok(boosted(query, boost))
    }

    fn range(&mut self, field: &str) -> Parsed {
        let has_lower = self.take()?.kind == Kind::RangeIn;
        let lower = self.range_end()?;
        self.accept(Kind::RangeTo)?;
        let upper = self.range_end()?;
        let has_upper = match self.peek()? {
            Kind::RangeInEnd => true,
            Kind::RangeExEnd => false,
            _ => return Err(self.unexpected(&[Kind::RangeInEnd, Kind::RangeExEnd])),
        };
        self.take()?;
        let boost = self.boost()?;
        let lower = self.range_text(lower, "-Infinity")?;
        let upper = self.range_text(upper, "Infinity")?;
        let field = field.to_owned();
        let query = match (parse_double(&lower), parse_double(&upper)) {
            (Some(lower), Some(upper)) => Query::NumberRange { field, lower, upper, has_lower, has_upper },
            _ if keeps_case(&field, self.analyzer) => Query::Range { field, lower, upper, has_lower, has_upper },
            _ => {
                // An open end is the name of infinity as a word, folded like any other.
                let (lower, upper) = (lower.to_lowercase(), upper.to_lowercase());
                Query::Range { field, lower, upper, has_lower, has_upper }
            }
        };
        Ok(boosted(Some(query), boost))
    }

    fn range_end(&mut self) -> Result<Token, Stop> {
        if !matches!(self.peek()?, Kind::RangeQuoted | Kind::RangeWord) {
            return Err(self.unexpected(&[Kind::RangeQuoted, Kind::RangeWord]));
        }
        self.take()
    }

    fn range_text(&self, token: Token, open: &str) -> Result<String, Stop> {
        let image = self.image(token);
        if token.kind == Kind::RangeQuoted {
            return Ok(unescape(&image[1..image.len() - 1])?);
        }
        if image == [u16::from(b'*')] {
            return Ok(open.to_owned());
        }
        Ok(unescape(image)?)
    }
}

/// One of several words at one position.
fn one_of(field: &str, mut words: Vec<String>) -> Query {
    let term = |text: String| Query::Term { field: field.to_owned(), text };
    if words.len() == 1 {
        return term(words.pop().unwrap_or_default());
    }
    let clauses = words.into_iter().map(|word| Clause { occur: Occur::Should, query: term(word) }).collect();
    Query::Boolean { clauses, has_coord: false }
}

/// The query with a weight in place of the one it has.
fn boosted(query: Option<Query>, boost: Option<f32>) -> Option<Query> {
    let (query, boost) = match (query?, boost) {
        (query, None) => return Some(query),
        (Query::Boost { query, .. }, Some(boost)) => (query, boost),
        (query, Some(boost)) => (Box::new(query), boost),
    };
    Some(if boost == 1.0 { *query } else { Query::Boost { query, boost } })
}
