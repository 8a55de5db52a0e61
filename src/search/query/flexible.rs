//! The query syntax of Lucene 9's StandardQueryParser, as the reference's second search service reads it, to a tree.
//!
//! A field is numeric where it was indexed as numbers, not where a word reads as one. Words that are not cut by the
//! analyzer (of wildcards, ranges, fuzzy words, regular expressions) are written as it writes words. `AND` and `OR`
//! have no precedence: `a OR b AND c` is `a +b +c`. Interval functions begin with `fn:` (`intervals.rs`).

mod intervals;
mod lexer;
mod number;
mod words;

use std::fmt;

use super::{Clause, Occur, Query, QueryError};
use crate::analysis::Analyzer;
use crate::schema::{FieldType, Schema};
use crate::search::Limits;
use lexer::{Kind, Lexer, Token};
pub use number::Locale;

/// The field of words that name none.
const DEFAULT_FIELD: &str = "default";
/// Edits of a fuzzy word that names no number.
const FUZZY_EDITS: f32 = 2.0;
const TOO_MANY: &str = "too many boolean clauses";

/// What a query is read with.
#[derive(Clone, Copy)]
pub struct Syntax<'a> {
    /// Cuts words.
    pub analyzer: &'a Analyzer,
    /// The types of fields.
    pub schema: &'a Schema,
    /// How numbers are written.
    pub locale: Locale,
    /// How large a query may be.
    pub limits: &'a Limits,
}

impl fmt::Debug for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Syntax({:?})", self.locale)
    }
}

/// Why parsing ends.
enum Stop {
    /// The text is no query; what the lexer says of it.
    Syntax(String),
    /// It is one that cannot be run, for this reason.
    Refused(String),
}

/// A part of a query before modifiers are put in their places.
enum Node {
    /// Parts side by side. Within `AND` parts are required.
    Side { is_and: bool, parts: Vec<Node> },
    /// A part with a modifier.
    Modified(Occur, Box<Node>),
    /// A clause; `None`: no word of it is kept.
    Clause(Option<Query>),
}

struct Parser<'a> {
    syntax: &'a Syntax<'a>,
    lexer: Lexer,
    ahead: Vec<Token>,
    clauses: usize,
    depth: usize,
}

/// Reads a query.
///
/// # Errors
/// [`QueryError::Syntax`] with the whole reason.
pub fn parse(text: &str, syntax: &Syntax<'_>) -> Result<Query, QueryError> {
    let mut parser = Parser { syntax, lexer: Lexer::new(text), ahead: Vec::new(), clauses: 0, depth: 0 };
    match parser.top() {
        Ok(query) => Ok(query.unwrap_or(Query::Nothing)),
        Err(Stop::Syntax(detail)) => Err(QueryError::Syntax(format!("Syntax Error, cannot parse {text}: {detail} "))),
        Err(Stop::Refused(reason)) => Err(QueryError::Syntax(reason)),
    }
}

fn wrong() -> Stop {
    Stop::Syntax(String::new())
}

impl Parser<'_> {
    fn peek_at(&mut self, place: usize) -> Result<Token, Stop> {
        while self.ahead.len() <= place {
            let token = self.lexer.next().map_err(Stop::Syntax)?;
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
        Ok(token)
    }

    fn accept(&mut self, kind: Kind) -> Result<Option<Token>, Stop> {
        if self.peek()? == kind { self.take().map(Some) } else { Ok(None) }
    }

    fn take_kind(&mut self, kind: Kind) -> Result<Token, Stop> {
        self.accept(kind)?.ok_or_else(wrong)
    }

    fn image(&self, token: Token) -> String {
        String::from_utf16_lossy(&self.lexer.units[token.start..token.end])
    }

    /// The text of a token without its escapes; `trim` units at each end are left out.
    fn text(&self, token: Token, trim: usize) -> Result<String, Stop> {
        super::escape::unescape(&self.lexer.units[token.start + trim..token.end - trim]).map_err(|_| wrong())
    }

    fn top(&mut self) -> Result<Option<Query>, Stop> {
        let node = self.query(DEFAULT_FIELD)?;
        self.take_kind(Kind::Eof)?;
        Ok(node.into_query())
    }

    /// Parts up to a token that begins none.
    fn query(&mut self, field: &str) -> Result<Node, Stop> {
        self.depth += 1;
        if self.depth > self.syntax.limits.depth {
            return Err(Stop::Refused("too many brackets within brackets".into()));
        }
        let mut parts = vec![self.alternatives(field)?];
        while self.peek()?.begins_clause() {
            parts.push(self.alternatives(field)?);
        }
        self.depth -= 1;
        // A single prohibited part stays one: alone it matches nothing.
        if parts.len() == 1 && !matches!(parts[0], Node::Modified(Occur::MustNot, _)) {
            return Ok(parts.remove(0));
        }
        Ok(Node::Side { is_and: false, parts })
    }

    fn alternatives(&mut self, field: &str) -> Result<Node, Stop> {
        let mut parts = vec![self.conjunction(field)?];
        while self.accept(Kind::Or)?.is_some() {
            parts.push(self.conjunction(field)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::Side { is_and: false, parts } })
    }

    fn conjunction(&mut self, field: &str) -> Result<Node, Stop> {
        let mut parts = vec![self.modified(field)?];
        while self.accept(Kind::And)?.is_some() {
            parts.push(self.modified(field)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::Side { is_and: true, parts } })
    }

    fn modified(&mut self, field: &str) -> Result<Node, Stop> {
        let occur = match self.peek()? {
            Kind::Plus => Occur::Must,
            Kind::Minus | Kind::Not => Occur::MustNot,
            _ => return self.clause(field),
        };
        self.take()?;
        Ok(Node::Modified(occur, Box::new(self.clause(field)?)))
    }

    fn clause(&mut self, field: &str) -> Result<Node, Stop> {
        self.clauses += 1;
        if self.clauses > self.syntax.limits.clauses {
            return Err(Stop::Refused(TOO_MANY.into()));
        }
        let mut own = None;
        if self.peek()? == Kind::Term {
            match self.peek_at(1)?.kind {
                Kind::Less | Kind::LessEqual | Kind::More | Kind::MoreEqual => {
                    return self.comparison().map(|query| Node::Clause(Some(query)));
                }
                Kind::Colon | Kind::Equal => {
                    let token = self.take()?;
                    self.take()?;
                    own = Some(self.text(token, 0)?);
                }
                _ => {}
            }
        }
        let field = own.as_deref().unwrap_or(field);
        match self.peek()? {
            Kind::Open => self.group(field).map(Node::Clause),
            Kind::Function => self.intervals(field).map(|query| Node::Clause(Some(query))),
            _ => self.term(field).map(Node::Clause),
        }
    }

    fn group(&mut self, field: &str) -> Result<Option<Query>, Stop> {
        self.take()?;
        let node = self.query(field)?;
        self.take_kind(Kind::Close)?;
        let query = node.into_query();
        let query = self.boosted(query)?;
        if self.accept(Kind::At)?.is_none() {
            return Ok(query);
        }
        let token = self.take_kind(Kind::Number)?;
        let minimum: u32 = self.image(token).parse().map_err(|_| wrong())?;
        Ok(query.map(|query| match query {
            query @ Query::Boolean { .. } => Query::Minimum { query: Box::new(query), minimum },
            query => query,
        }))
    }

    /// The query with the weight that stands here.
    fn boosted(&mut self, query: Option<Query>) -> Result<Option<Query>, Stop> {
        if self.accept(Kind::Caret)?.is_none() {
            return Ok(query);
        }
        let token = self.take_kind(Kind::Number)?;
        let boost: f32 = self.image(token).parse().map_err(|_| wrong())?;
        Ok(query.map(|query| if boost == 1.0 { query } else { Query::Boost { query: Box::new(query), boost } }))
    }

    /// `field < value` and so on.
    fn comparison(&mut self) -> Result<Query, Stop> {
        let name = self.take()?;
        let field = self.text(name, 0)?;
        let operator = self.take()?.kind;
        let value = match self.peek()? {
            Kind::Term | Kind::Number => {
                let token = self.take()?;
                self.text(token, 0)?
            }
            Kind::Quoted => {
                let token = self.take()?;
                self.text(token, 1)?
            }
            _ => return Err(wrong()),
        };
        let open = String::new();
        match operator {
            Kind::Less => self.syntax.range(field, (open, value), (true, false)),
            Kind::LessEqual => self.syntax.range(field, (open, value), (true, true)),
            Kind::More => self.syntax.range(field, (value, open), (false, true)),
            _ => self.syntax.range(field, (value, open), (true, true)),
        }
    }

    fn term(&mut self, field: &str) -> Result<Option<Query>, Stop> {
        let token = self.peek_at(0)?;
        let query = match token.kind {
            Kind::Regexp => {
                self.take()?;
                let image = self.image(token);
                Some(self.syntax.regexp(field, &image[1..image.len() - 1])?)
            }
            Kind::Term | Kind::Number => {
                self.take()?;
                match self.fuzzy_edits()? {
                    Some(edits) => {
                        let text = self.text(token, 0)?;
                        self.syntax.fuzzy(field, &text, edits).map(Some)?
                    }
                    None => self.syntax.bare(field, &self.lexer.units[token.start..token.end])?,
                }
            }
            Kind::RangeIn | Kind::RangeEx => Some(self.range(field)?),
            Kind::Quoted => {
                self.take()?;
                let mut slop = 0;
                if self.accept(Kind::Tilde)?.is_some() {
                    let token = self.take_kind(Kind::Number)?;
                    slop = self.image(token).parse().map_err(|_| wrong())?;
                }
                let text = self.text(token, 1)?;
                self.syntax.quoted(field, &text, slop, &mut self.clauses)?
            }
            _ => return Err(wrong()),
        };
        self.boosted(query)
    }

    /// `~` and the number behind, where they stand here.
    fn fuzzy_edits(&mut self) -> Result<Option<f32>, Stop> {
        if self.accept(Kind::Tilde)?.is_none() {
            return Ok(None);
        }
        let Some(token) = self.accept(Kind::Number)? else { return Ok(Some(FUZZY_EDITS)) };
        let edits: f32 = self.image(token).parse().map_err(|_| wrong())?;
        if edits >= 1.0 && edits.fract() != 0.0 {
            return Err(wrong());
        }
        Ok(Some(edits))
    }

    fn range(&mut self, field: &str) -> Result<Query, Stop> {
        let has_lower = self.take()?.kind == Kind::RangeIn;
        let lower = self.range_end()?;
        self.take_kind(Kind::RangeTo)?;
        let upper = self.range_end()?;
        let has_upper = match self.take()?.kind {
            Kind::RangeInEnd => true,
            Kind::RangeExEnd => false,
            _ => return Err(wrong()),
        };
        self.syntax.range(field.to_owned(), (lower, upper), (has_lower, has_upper))
    }

    /// An end of a range; empty where it is open.
    fn range_end(&mut self) -> Result<String, Stop> {
        let token = self.take()?;
        let text = match token.kind {
            Kind::RangeWord | Kind::RangeTo => self.text(token, 0)?,
            Kind::RangeQuoted => self.text(token, 1)?,
            _ => return Err(wrong()),
        };
        let is_open = text == "*" && !self.image(token).contains('\\');
        Ok(if is_open { String::new() } else { text })
    }
}

impl Node {
    fn into_query(self) -> Option<Query> {
        match self {
            Node::Clause(query) => query,
            Node::Modified(Occur::MustNot, _) => Node::Side { is_and: false, parts: vec![self] }.into_query(),
            Node::Modified(_, node) => node.into_query(),
            Node::Side { is_and, parts } => {
                let mut clauses = Vec::new();
                parts.into_iter().for_each(|part| part.add_to(&mut clauses, is_and));
                match &clauses[..] {
                    [] => None,
                    [Clause { occur: Occur::Must | Occur::Should, .. }] => clauses.pop().map(|clause| clause.query),
                    _ => Some(Query::Boolean { clauses, has_coord: false }),
                }
            }
        }
    }

    /// Adds the clauses of a part of `AND`, or of another part.
    fn add_to(self, clauses: &mut Vec<Clause>, is_and: bool) {
        let default = if is_and { Occur::Must } else { Occur::Should };
        match self {
            Node::Side { is_and, parts } => parts.into_iter().for_each(|part| part.add_to(clauses, is_and)),
            Node::Modified(occur, node) => clauses.extend(node.into_query().map(|query| Clause { occur, query })),
            Node::Clause(query) => clauses.extend(query.map(|query| Clause { occur: default, query })),
        }
    }
}

impl Syntax<'_> {
    fn is_numeric(&self, field: &str) -> bool {
        self.schema.get(field) == Some(FieldType::Double)
    }
}

#[cfg(test)]
mod tests;
