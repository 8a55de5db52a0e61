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
fn interval_functions_are_read() {
    for (text, expected) in [
        ("t:fn:ordered(a b)", "t:ORDERED(a,b)"),
        ("fn:ordered(fn:ordered(a b) c c)", "default:ORDERED(a,b,c,c)"),
        ("fn:unordered(a b a)", "default:UNORDERED(a,a,b)"),
        ("fn:unorderednooverlaps(a b)", "default:or(ORDERED(a,b),ORDERED(b,a))"),
        ("fn:or(a fn:or(b a))", "default:or(a,b)"),
        ("fn:phrase(a fn:or(\"b c\" d e) f)", "default:or(BLOCK(a,or(d,e),f),BLOCK(a,b,c,f))"),
        ("fn:phrase(\"x-ray Z\")", "default:BLOCK(x,ray,z)"),
        ("fn:atLeast(2 a b c)", "default:AtLeast(a,b,c~2)"),
        ("fn:atLeast(3 a b c)", "default:UNORDERED(a,b,c)"),
        ("fn:atleast(4 a b c)", "default:no_match"),
        (
            "fn:maxgaps(2 fn:ordered(a fn:or(b \"c d\")))",
            "default:or(MAXGAPS/2(ORDERED(a,b)),MAXGAPS/2(ORDERED(a,BLOCK(c,d))))",
        ),
        ("fn:maxWidth(3 fn:unordered(a b))", "default:MAXWIDTH/3(UNORDERED(a,b))"),
        ("fn:extend(a 1 2)", "default:EXTEND(a,1,2)"),
        ("fn:within(a 3 \"b c\")", "default:CONTAINED_BY(a,EXTEND(BLOCK(b,c),3,3))"),
        ("fn:notWithin(a 3 b)", "default:NON_OVERLAPPING(a,EXTEND(b,3,3))"),
        ("fn:containing(fn:or(\"a b\" \"b c\") d)", "default:or(CONTAINING(BLOCK(a,b),d),CONTAINING(BLOCK(b,c),d))"),
        ("fn:notContainedBy(a b)", "default:NOT_CONTAINED_BY(a,b)"),
        ("fn:before(a b) AND fn:after(a b)", "+default:BEFORE(a,b) +default:AFTER(a,b)"),
        ("fn:overlapping(a b) NOT fn:nonOverlapping(a b)", "default:OVERLAPPING(a,b) -default:NON_OVERLAPPING(a,b)"),
        ("fn:wildcard(*X?)", "default:*X?"),
        ("fn:wildcard(\"a*\" 200)", "default:a*"),
        ("fn:fuzzyTerm(word)", "default:word~2"),
        ("fn:fuzzyTerm(word 1 50)", "default:word~1"),
        ("(t:fn:ordered(a 7))^2", "t:ORDERED(a,7)^2.0"),
        ("n:fn:ordered(a b)", "n:no_match"),
        ("fn:ordered(\"\" a)", "default:ORDERED(no_match,a)"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
    for text in [
        "fn:",
        "fn:nothing(a b)",
        "fn:ordered",
        "fn:ordered()",
        "fn:ordered(a",
        "fn:ordered(a AND b)",
        "fn:before(a)",
        "fn:before(a b c)",
        "fn:atLeast(a b)",
        "fn:atLeast(1.5 a b)",
        "fn:maxgaps(99999999999 a)",
        "fn:ordered(a b)^2",
    ] {
        assert_eq!(read(text), format!("Syntax Error, cannot parse {text}:  "));
    }
    let refused = "Cannot create an IntervalIterator over field s because it has no indexed positions";
    assert_eq!(read("s:fn:ordered(a b)"), refused);
    assert_eq!(read("fn:fuzzyTerm(word 3)"), "maxEdits must be 0..2, inclusive; got: 3");
}

#[test]
fn interval_functions_are_bounded() {
    assert_eq!(read(&format!("fn:or({})", "a ".repeat(21))), "too many boolean clauses");
    assert_eq!(read(&format!("{}a{}", "fn:or(".repeat(6), ")".repeat(6))), "too many brackets within brackets");
    let limits = Limits { clauses: 4_096, depth: 100, ..Limits::default() };
    let (analyzer, schema) = (Analyzer::lucene9("standard", &BTreeMap::new()).unwrap(), Schema::default());
    let syntax = Syntax { analyzer: &analyzer, schema: &schema, locale: Locale::named("us"), limits: &limits };
    let many = "fn:or(\"a b\" \"c d\" \"e f\" \"g h\")";
    let doubled = (0..90).fold("a".to_owned(), |inner, _| format!("fn:unorderedNoOverlaps({inner} b)"));
    let words = (0..1000).map(|n| format!("\"a{n} b\"")).collect::<Vec<_>>().join(" ");
    let copied = (0..3).fold("a".to_owned(), |inner, _| format!("fn:containedBy({inner} fn:or({words}))"));
    for text in [format!("fn:phrase({})", format!("{many} ").repeat(6)), doubled, copied] {
        let told = parse(&text, &syntax).map_err(|error| error.to_string()).map(|query| query.to_string().len());
        assert!(
            told.as_ref().is_err_and(|error| error.contains("Too many disjunctions") || error == TOO_MANY),
            "{told:?}"
        );
    }
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
    assert!(read("\"a").starts_with("Syntax Error, cannot parse \"a: Lexical error at line 1, column 3."));
    assert_eq!(read("((((((a))))))"), "too many brackets within brackets");
    assert_eq!(read(&"a ".repeat(21)), "too many boolean clauses");
}
