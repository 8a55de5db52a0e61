//! Tests of the flexible query syntax.

use std::collections::BTreeMap;

use super::*;

fn read_in(text: &str, locale: &str) -> Result<String, String> {
    let fields: BTreeMap<String, String> = [("kw".to_owned(), "keyword".to_owned())].into();
    let analyzer = Analyzer::lucene9("standard", &fields).unwrap();
    let types = [("n", FieldType::Double), ("s", FieldType::String), ("t", FieldType::Text)];
    let schema: Schema = types.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect();
    let limits = Limits { terms: 100, clauses: 20, depth: 5, ..Limits::default() };
    let syntax = Syntax { analyzer: &analyzer, schema: &schema, locale: Locale::named(locale), limits: &limits };
    parse(text, &syntax).map(|query| query.to_string()).map_err(|error| error.to_string())
}

fn read(text: &str) -> String {
    read_in(text, "us").unwrap_or_else(|error| error)
}

#[test]
fn operators_have_no_precedence() {
    for (text, expected) in [
        ("a b", "default:a default:b"),
        ("a OR b AND c", "default:a +default:b +default:c"),
        ("a AND b OR c", "+default:a +default:b default:c"),
        ("a AND b c", "+default:a +default:b default:c"),
        ("a AND NOT b", "+default:a -default:b"),
        ("a && b || !c", "+default:a +default:b -default:c"),
        ("NOT a", "-default:a"),
        ("+a", "default:a"),
        ("a AND (NOT b)", "+default:a +(-default:b)"),
        ("(a b) c", "(default:a default:b) default:c"),
        ("t:(a b)^2", "(t:a t:b)^2.0"),
        ("(a b c)@2", "(default:a default:b default:c)~2"),
        ("*:*", "*:*"),
        ("and or", "default:and default:or"),
        ("\"\"", ""),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn words_are_of_their_field() {
    for (text, expected) in [
        ("t:The", "t:the"),
        ("t=x", "t:x"),
        ("kw:The", "kw:The"),
        ("x-ray", "default:x default:ray"),
        ("t:\"The fox\"~3^2", "t:\"the fox\"~3^2.0"),
        ("t:\"fox\"", "t:fox"),
        ("7", "default:7"),
        ("n:7", "n:[7.0 TO 7.0]"),
        ("n:1*", "n:[1.0 TO 1.0]"),
        ("n:\"7\"", "n:[7.0 TO 7.0]"),
        ("n:\\-7", "n:[-7.0 TO -7.0]"),
        ("n:[-5 TO 10.5}", "n:[-5.0 TO 10.5}"),
        ("n:[* TO 5]", "n:[-Infinity TO 5.0]"),
        ("n<5", "n:[-Infinity TO 5.0}"),
        ("n>=5", "n:[5.0 TO Infinity]"),
        ("t:[B TO \"C d\"]", "t:[b TO c d]"),
        ("t:[b TO *]", "t:[b TO *]"),
        ("t:{b TO *}", "t:{b TO *]"),
        ("t:[* TO c}", "t:[ TO c}"),
        ("t:[TO TO TO]", "t:[to TO to]"),
        ("s>a", "s:{a TO *]"),
        ("Wor*", "default:wor*"),
        ("W?r*", "default:w?r*"),
        ("kw:W?R*", "kw:W?R*"),
        ("wo\\*r", "default:wo default:r"),
        ("wo\\*r*", "default:wo*r*"),
        ("Planet~", "default:planet~2"),
        ("planet~1", "default:planet~1"),
        ("planet~0.8", "default:planet~1"),
        ("/[A-C]at/", "default:/[a-c]at/"),
        ("a@b", "Syntax Error, cannot parse a@b:  "),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
    assert_eq!(read_in("n:[10.0 TO 20.0]", "de").unwrap(), "n:[100.0 TO 200.0]");
}

#[test]
fn what_is_no_query_is_told() {
    for text in ["", "a AND", "(a", "a^b", "t:", "[1 2]", "[a TO", "planet~1.5", "\"a\"~x", "a)", "a\\u12"] {
        assert_eq!(read(text), format!("Syntax Error, cannot parse {text}:  "));
    }
    assert_eq!(read("t:*x"), "Leading wildcard is not allowed: t:*x");
    assert_eq!(read("t:*"), "Leading wildcard is not allowed: t:*");
    assert_eq!(read("n:x"), "Could not parse text \"x\" using java.text.DecimalFormat");
    assert_eq!(
        read("s:\"a b\""),
        "field \"s\" was indexed without position data; cannot run PhraseQuery (phrase=s:\"a b\")"
    );
    assert_eq!(read("fn:ordered(a b)"), "Interval functions (fn:) are not supported.");
    assert!(read("\"a").starts_with("Syntax Error, cannot parse \"a: Lexical error at line 1, column 3."));
    assert_eq!(read("((((((a))))))"), "too many brackets within brackets");
    assert_eq!(read(&"a ".repeat(21)), "too many boolean clauses");
}
