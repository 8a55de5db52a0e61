//! What patterns find, which are refused, and that the hostile ones end.

use proptest::prelude::*;

use super::Pattern;

fn found(pattern: &str, text: &str) -> bool {
    Pattern::new(pattern).unwrap_or_else(|| panic!("{pattern} is a pattern")).search(text) == Some(true)
}

#[test]
fn patterns_find_what_they_mean() {
    for (pattern, text) in [
        ("ello", "Hello"),
        ("(?i)^h", "Hello"),
        ("(?m)^line2$", "line1\nline2\nx"),
        ("a\\.b", "a.b"),
        ("^h..llo$", "héllo"),
        ("", ""),
        ("(?<=hello )world", "hello world"),
        ("(l)\\1", "hello"),
        ("é", "né"),
        ("^[é]+$", "é"),
        ("b$", "ab\n"),
        ("a$\\n", "a\n"),
        ("a$|c", "a\n"),
        ("(a$)", "a\n"),
        ("\\Qa.b\\E$", "a.b"),
        ("^a{,3}$", "a{,3}"),
        ("a{", "a{"),
        ("x]}", "x]}"),
        ("[]a]+z", "]az"),
        ("[^]a]", "b"),
        ("[a&&b]{4}", "a&&b"),
        ("[[a]", "["),
        ("[a-]", "-"),
        ("[\\d-x]", "-"),
        ("[a\\]]", "]"),
        ("[[:alpha:]]+1", "ab1"),
        ("\\h\\x41\\101\\cA", "\tAA\u{1}"),
        ("\\y", "y"),
        ("^\\R$", "\r\n"),
        ("(?x) a b # no", "ab"),
        ("(?#note)a", "a"),
        ("(?'n'a)\\k{n}", "aa"),
        ("(?P<n>a)(?P=n)", "aa"),
        ("(a)(b)\\g{-1}\\g1", "abba"),
        ("a++b", "aab"),
        ("(?>a+)b", "aab"),
        ("(a)?(?(1)b|c)", "ab"),
        ("(?s)a.b", "a\nb"),
        ("^\\w{2}$", "12"),
        ("[\\b]", "\u{8}"),
        ("a\\Z", "a\n"),
        ("(a)\\10", "a\u{8}"),
        ("a{2}", "aa"),
        ("(?i:A)b", "ab"),
        ("^.{4}$", "\u{1f600}"),
        ("[-a]", "-"),
        ("[+--]", ","),
        ("\\N", "x"),
        ("[\\n]", "\n"),
    ] {
        assert!(found(pattern, text), "{pattern:?} is in {text:?}");
    }
}

#[test]
fn patterns_do_not_find_more() {
    for (pattern, text) in [
        ("^line2$", "line1\nline2"),
        ("^h.llo$", "héllo"),
        ("^h", "Hello"),
        ("\\d", "٣"),
        ("a.b", "a\nb"),
        ("b$", "b\n\n"),
        ("[a&&b]", "c"),
        ("\\bx", "ax"),
        ("(?i:A)b", "aB"),
        ("\\z", ""),
        ("(?<!a)b", "ab"),
        ("a(?!b)", "ab"),
        ("\\s", "Å"),
    ] {
        assert_eq!(found(pattern, text), pattern == "\\z", "{pattern:?} is not in {text:?}");
    }
}

#[test]
fn wrong_patterns_are_refused() {
    for pattern in
        ["(", ")", "[", "[b-a]", "*", "a{2,1}", "\\", "(?<n", "(?z)", "a{70000}", "(?P=x)", "\\1", "\\x{100}"]
    {
        assert!(Pattern::new(pattern).is_none(), "{pattern:?}");
    }
    assert!(Pattern::new(&"a".repeat(crate::limits::REGEX_PATTERN_BYTES + 1)).is_none());
}

#[test]
fn hostile_patterns_come_to_an_end() {
    let text = "a".repeat(10_000) + "b";
    assert!(!found("^(a+)+\\1$", &text));
    assert!(!found("^(?=(a|aa)+$)c", &text));
    // Either refused or compiled: not endless.
    let _ = Pattern::new("((a{100}){100}){100}");
    let _ = Pattern::new(&"(".repeat(10_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_is_a_pattern_or_not(pattern in "[\\\\\\[\\]{}()?*+^$|.,:<>=!#'a-e0-3QEgkxmPR-]{0,12}", text in "[a-e0-3\n{}é]{0,12}") {
        // What counts is that neither compiling nor searching panics, and that a search by a literal is right.
        if let Some(pattern) = Pattern::new(&pattern) {
            prop_assert!(pattern.search(&text).is_some());
        }
        let literal = Pattern::new(&format!("^\\Q{text}\\E$"));
        prop_assert_eq!(literal.and_then(|pattern| pattern.search(&text)), Some(true));
    }
}
