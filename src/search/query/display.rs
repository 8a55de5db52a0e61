//! The text form of a query tree: that of Lucene's `toString`.

use std::fmt;

use super::java::{double_text, float_text};
use super::{Occur, Query};

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Query::All => f.write_str("*:*"),
            Query::Nothing => Ok(()),
            Query::Term { field, text } => write!(f, "{field}:{text}"),
            Query::Number { field, value } => write!(f, "{field}:#{}", double_text(*value)),
            Query::Phrase { field, words, slop } => phrase(f, field, words, *slop),
            Query::Range { field, lower, upper, has_lower, has_upper } => {
                range(f, field, lower, upper, (*has_lower, *has_upper))
            }
            Query::From { field, lower, has_lower } => range(f, field, lower, "*", (*has_lower, true)),
            Query::NumberRange { field, lower, upper, has_lower, has_upper } => {
                range(f, field, &double_text(*lower), &double_text(*upper), (*has_lower, *has_upper))
            }
            Query::Intervals { field, source } => write!(f, "{field}:{source}"),
            Query::Prefix { field, prefix } => write!(f, "{field}:{prefix}*"),
            Query::Wildcard { field, pattern } => write!(f, "{field}:{pattern}"),
            Query::Regexp { field, pattern } => write!(f, "{field}:/{pattern}/"),
            Query::Fuzzy { field, text, edits } => write!(f, "{field}:{text}~{edits}"),
            Query::Boolean { clauses, .. } => {
                for (place, clause) in clauses.iter().enumerate() {
                    if place > 0 {
                        f.write_str(" ")?;
                    }
                    f.write_str(match clause.occur {
                        Occur::Must => "+",
                        Occur::Should => "",
                        Occur::MustNot => "-",
                    })?;
                    if clause.query.is_boolean() {
                        write!(f, "({})", clause.query)?;
                    } else {
                        write!(f, "{}", clause.query)?;
                    }
                }
                Ok(())
            }
            Query::Minimum { query, minimum } => write!(f, "({query})~{minimum}"),
            Query::Boost { query, boost } if query.is_boolean() => write!(f, "({query})^{}", float_text(*boost)),
            Query::Boost { query, boost } => write!(f, "{query}^{}", float_text(*boost)),
        }
    }
}

impl Query {
    fn is_boolean(&self) -> bool {
        match self {
            Query::Boolean { .. } | Query::Nothing => true,
            Query::Boost { query, .. } => query.is_boolean(),
            _ => false,
        }
    }
}

fn range(
    f: &mut fmt::Formatter<'_>,
    field: &str,
    lower: &str,
    upper: &str,
    (has_lower, has_upper): (bool, bool),
) -> fmt::Result {
    let open = if has_lower { '[' } else { '{' };
    let close = if has_upper { ']' } else { '}' };
    write!(f, "{field}:{open}{lower} TO {upper}{close}")
}

fn phrase(f: &mut fmt::Formatter<'_>, field: &str, words: &[(u32, Vec<String>)], slop: u32) -> fmt::Result {
    write!(f, "{field}:\"")?;
    let mut next = 0;
    for (place, (position, choices)) in words.iter().enumerate() {
        if place > 0 {
            f.write_str(" ")?;
        }
        for _ in next..*position {
            f.write_str("? ")?;
        }
        match choices.as_slice() {
            [word] => f.write_str(word)?,
            words => write!(f, "({})", words.join(" "))?,
        }
        next = position + 1;
    }
    f.write_str("\"")?;
    if slop > 0 { write!(f, "~{slop}") } else { Ok(()) }
}
