//! Queries that somebody is still typing.

/// What stands for something within a query, and ends a word.
const SIGNS: &str = "(){}[]^\"~*?:/\\!&|";
/// Words that are operators.
const OPERATORS: [&str; 3] = ["AND", "OR", "NOT"];

/// The query whose last word may go on: `red app` is `red (app app*)`, so that the word counts as it is, analyzed, or
/// as the beginning of another. A query that ends otherwise than by a word (a blank, a quote, a bracket, an operator, a
/// pattern) stays as it is.
pub fn with_prefix(query: &str) -> String {
    let is_word = |c: char| !c.is_whitespace() && !SIGNS.contains(c);
    let start = query.char_indices().rev().take_while(|(_, c)| is_word(*c)).last().map_or(query.len(), |(at, _)| at);
    let (before, word) = query.split_at(start);
    // Signs before a word are not of it.
    let bare = word.trim_start_matches(['+', '-']);
    let signs = &word[..word.len() - bare.len()];
    let mut ends = before.chars().rev();
    let is_begun = match (ends.next(), ends.next()) {
        (Some('(' | ':' | '!' | '&' | '|'), escape) => escape != Some('\\'),
        (Some(last), escape) => last.is_whitespace() && escape != Some('\\'),
        (None, _) => true,
    };
    if bare.is_empty() || OPERATORS.contains(&bare) || !is_begun || is_within_quotes(before) {
        return query.to_owned();
    }
    format!("{before}{signs}({bare} {bare}*)")
}

/// Whether a quote, a range or a regular expression is open at the end.
fn is_within_quotes(text: &str) -> bool {
    let (mut open, mut is_escaped) = (None, false);
    for c in text.chars() {
        match (c, open) {
            _ if is_escaped => is_escaped = false,
            ('\\', _) => is_escaped = true,
            ('"' | '/', None) => open = Some(c),
            ('[' | '{', None) => open = Some(c),
            ('"', Some('"')) | ('/', Some('/')) | (']' | '}', Some('[' | '{')) => open = None,
            _ => {}
        }
    }
    open.is_some()
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
