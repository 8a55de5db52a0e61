//! `chttpd_auth/password_regexp`: what a new password must look like. Pure.
//!
//! The option is a list in Erlang's syntax, `[{"regexp", "Reason."}, "regexp"]`; every expression must match somewhere.

use fancy_regex::Regex;

use super::users::UserError;

const REQUIREMENT: &str = "Password does not conform to requirements.";
const CANNOT: &str = "Server cannot hash passwords at this time.";

/// Checks a password against the option's text.
///
/// # Errors
/// [`UserError::BadPassword`] with the first reason; [`UserError::Forbidden`] when the option makes no sense: then no
/// password may be set.
pub fn check(option: &str, password: &str) -> Result<(), UserError> {
    let option = option.trim();
    if option.is_empty() {
        return Ok(());
    }
    let cannot = || UserError::Forbidden(CANNOT.to_owned());
    let rules = parse(option).ok_or_else(|| {
        tracing::error!("chttpd_auth/password_regexp is no list of regular expressions");
        cannot()
    })?;
    for (pattern, reason) in rules {
        let regex = Regex::new(&pattern).map_err(|error| {
            tracing::error!("chttpd_auth/password_regexp: {error}");
            cannot()
        })?;
        if !regex.is_match(password).unwrap_or(false) {
            let reason = reason.filter(|r| !r.is_empty());
            return Err(UserError::BadPassword(
                reason.map_or(REQUIREMENT.to_owned(), |r| format!("{REQUIREMENT} {r}")),
            ));
        }
    }
    Ok(())
}

/// Pairs of an expression and its reason.
fn parse(option: &str) -> Option<Vec<(String, Option<String>)>> {
    let mut rest = Terms(option.trim_end_matches('.').chars().collect(), 0);
    let mut rules = Vec::new();
    rest.take('[')?;
    if rest.take(']').is_some() {
        return rest.at_end().then_some(rules);
    }
    loop {
        if rest.take('{').is_some() {
            let pattern = rest.string()?;
            let reason = if rest.take(',').is_some() { Some(rest.string()?) } else { None };
            rest.take('}')?;
            rules.push((pattern, reason));
        } else {
            rules.push((rest.string()?, None));
        }
        if rest.take(',').is_none() {
            rest.take(']')?;
            return rest.at_end().then_some(rules);
        }
    }
}

/// The characters of the option and the place reached.
struct Terms(Vec<char>, usize);

impl Terms {
    fn skip_space(&mut self) {
        while self.0.get(self.1).is_some_and(|c| c.is_whitespace()) {
            self.1 += 1;
        }
    }

    fn at_end(&mut self) -> bool {
        self.skip_space();
        self.1 == self.0.len()
    }

    /// Steps over `wanted`, with the space before it.
    fn take(&mut self, wanted: char) -> Option<()> {
        self.skip_space();
        (self.0.get(self.1) == Some(&wanted)).then(|| self.1 += 1)
    }

    fn next(&mut self) -> Option<char> {
        let next = self.0.get(self.1).copied()?;
        self.1 += 1;
        Some(next)
    }

    /// A string in double quotes with Erlang's escapes.
    fn string(&mut self) -> Option<String> {
        self.take('"')?;
        let mut out = String::new();
        loop {
            match self.next()? {
                '"' => return Some(out),
                '\\' => out.push(match self.next()? {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    's' => ' ',
                    'b' => '\u{8}',
                    'd' => '\u{7f}',
                    'e' => '\u{1b}',
                    'f' => '\u{c}',
                    'v' => '\u{b}',
                    other => other,
                }),
                other => out.push(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(option: &str, password: &str) -> Option<String> {
        match check(option, password) {
            Ok(()) => None,
            Err(UserError::BadPassword(reason) | UserError::Forbidden(reason)) => Some(reason),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_expression_must_match_and_tells_its_reason() {
        let option = r#"[{".{10,}", "Ten characters."}, "[A-Z]+", {"\\d+", ""}]"#;
        assert_eq!(told(option, "LongEnough1"), None);
        assert_eq!(
            told(option, "Short1").as_deref(),
            Some("Password does not conform to requirements. Ten characters.")
        );
        assert_eq!(told(option, "longenough1").as_deref(), Some("Password does not conform to requirements."));
        assert_eq!(told(option, "LongEnough").as_deref(), Some("Password does not conform to requirements."));
        for none in ["", "[]", " [ ] "] {
            assert_eq!(told(none, "x"), None);
        }
        assert_eq!(told(r#"["(?=.*a)(?=.*b)"]"#, "ba"), None, "looking ahead works");
    }

    #[test]
    fn an_option_without_sense_forbids_new_passwords() {
        for option in ["abc", "{", "[", r#"["a""#, r#"["("]"#, r#"[5]"#, r#"[{"a","b","c"}]"#, r#"["a"] x"#] {
            assert_eq!(told(option, "a").as_deref(), Some(CANNOT), "{option}");
        }
    }
}
