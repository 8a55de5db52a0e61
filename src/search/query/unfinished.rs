//! Queries that somebody is still typing.

use super::lexer::{Kind, Lexer, Token};

/// The query whose last word may go on: `red app` is `red (app app*)`, so that the word counts as it is, analyzed, or
/// as the beginning of another. A query that ends otherwise than by a word without escapes (by a blank, a quote, a
/// bracket, an operator, a pattern), or is none, stays as it is.
pub fn with_prefix(query: &str) -> String {
    let (mut lexer, mut last) = (Lexer::new(query), None);
    loop {
        match lexer.next() {
            Ok(Token { kind: Kind::Eof, .. }) => break,
            Ok(token) => last = Some(token),
            // A quote, an expression or an escape that is open.
            Err(_) => return query.to_owned(),
        }
    }
    let Some(Token { kind: Kind::Term, start, end }) = last else { return query.to_owned() };
    let word = String::from_utf16_lossy(&lexer.units[start..end]);
    match query.strip_suffix(&word) {
        Some(before) if end == lexer.units.len() && !word.contains('\\') => format!("{before}({word} {word}*)"),
        _ => query.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_may_go_on() {
        for (query, expected) in [
            ("app", "(app app*)"),
            ("red app", "red (app app*)"),
            ("red +app", "red +(app app*)"),
            ("red AND -app", "red AND -(app app*)"),
            ("red !app", "red !(app app*)"),
            ("title:app", "title:(app app*)"),
            ("a (b title:x-ra", "a (b title:(x-ra x-ra*)"),
            ("\"red car\" gré", "\"red car\" (gré gré*)"),
            ("[a TO b] app", "[a TO b] (app app*)"),
            ("AT&T", "(AT&T AT&T*)"),
            ("red a|b", "red (a|b a|b*)"),
        ] {
            assert_eq!(with_prefix(query), expected);
        }
    }

    #[test]
    fn what_is_no_unfinished_word_stays() {
        for query in [
            "",
            " ",
            "app ",
            "red AND",
            "red OR",
            "NOT",
            "app*",
            "a?p",
            "a?",
            "app~",
            "app~1",
            "app^2",
            "(red app)",
            "\"red app\"",
            "\"red app",
            "[a TO b",
            "[a TO b]",
            "/re app",
            "/reg/",
            "a\\:b",
            "a\\ b",
            "a\\",
            "+",
            "red -",
            "t:",
        ] {
            assert_eq!(with_prefix(query), query);
        }
    }
}
