//! Tests of the JSON reader and writer: tables of what the reference accepts, and round trips.

use super::*;
use proptest::prelude::*;

fn text(input: &str) -> Option<String> {
    parse(input.as_bytes()).ok().map(|v| String::from_utf8(v.to_vec()).expect("UTF-8 out"))
}

#[test]
fn canonical_texts() {
    let table = [
        (" { \"x\" : 1 ,\r\n\t\"y\" : [ ] , \"z\":{ } } ", r#"{"x":1,"y":[],"z":{}}"#),
        (
            r#"["\u0041\/\ud83d\ude00\u0000\u001f\"\\\b\f\n\r\t\u2028\uffff"]"#,
            "[\"A/😀\\u0000\\u001F\\\"\\\\\\b\\f\\n\\r\\t\u{2028}\u{ffff}\"]",
        ),
        ("\"\u{7f}é日\"", "\"\u{7f}é日\""),
        ("null", "null"),
        ("[true,false]", "[true,false]"),
        (r#"{"":{"":""}}"#, r#"{"":{"":""}}"#),
    ];
    for (input, expected) in table {
        assert_eq!(text(input).as_deref(), Some(expected), "{input}");
    }
}

#[test]
fn numbers_as_the_reference_reads_and_writes_them() {
    let table = [
        ("0", "0"),
        ("-0", "0"),
        ("-5", "-5"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1.0", "1.0"),
        ("2.50", "2.5"),
        ("0.1", "0.1"),
        ("-0.0", "0.0"),
        ("1e3", "1000.0"),
        ("1E-7", "1e-7"),
        ("0.00001", "0.00001"),
        ("1e17", "100000000000000000.0"),
        ("100000000000000000000.0", "100000000000000000000.0"),
        ("1e21", "1e+21"),
        ("1.5e300", "1.5e+300"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1e-400", "0.0"),
        ("5e-324", "0.0"),
        ("4.9e-324", "5e-324"),
        ("2e-323", "2e-323"),
        ("0e5", "0.0"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("2.2250738585072014e-308", "2.2250738585072014e-308"),
        ("100000000000000000000000000000000e-5", "1.0000000000000002e+27"),
    ];
    for (input, expected) in table {
        assert_eq!(text(input).as_deref(), Some(expected), "{input}");
    }
}

#[test]
fn refused_texts() {
    let table = [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "1 2",
        "{}x",
        "[}",
        "{]",
        "[1}",
        "{\"a\":1]",
        "nul",
        "nulll",
        "True",
        "NaN",
        "Infinity",
        "-",
        "-a",
        "00",
        "01",
        "-01",
        "1.",
        ".5",
        "+1",
        "1e",
        "1e+",
        "1.e5",
        "0x1",
        "1e400",
        "1E400",
        "1.5e400",
        "-1e400",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800x\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800\\ud800\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\x\"",
        "\"\\",
        "\"abc",
        "\"a\nb\"",
        "\"\u{1f}\"",
        "/* c */1",
        "[1,//x\n2]",
        "\u{feff}{}",
        "\u{a0}1",
    ];
    for input in table {
        assert_eq!(parse(input.as_bytes()), Err(JsonError), "{input:?}");
    }
    for input in [&b"{\"s\":\"\xff\xfe\"}"[..], b"\"\xed\xa0\x80\"", b"\xef\xbb\xbf{}", b"\"\xc3\""] {
        assert_eq!(parse(input), Err(JsonError), "{input:?}");
    }
}

#[test]
fn integers_beyond_a_double_are_refused() {
    let digits = |count: usize| "9".repeat(count);
    assert!(parse(digits(308).as_bytes()).is_ok());
    assert_eq!(parse(digits(309).as_bytes()), Err(JsonError));
    assert_eq!(parse(digits(620).as_bytes()), Err(JsonError));
    assert!(parse(format!("1{}", "0".repeat(308)).as_bytes()).is_ok());
}

#[test]
fn of_equal_names_the_last_stays_at_its_place() {
    assert_eq!(text(r#"{"x":1,"y":3,"x":2}"#).as_deref(), Some(r#"{"y":3,"x":2}"#));
    assert_eq!(text(r#"[{"o":{"k":1,"k":2,"k":3}}]"#).as_deref(), Some(r#"[{"o":{"k":3}}]"#));
    assert_eq!(text(r#"{"a":1,"\u0061":2}"#).as_deref(), Some(r#"{"a":2}"#));
    let many: Vec<String> = (0..40).map(|n| format!("\"k{}\":{n}", n % 30)).collect();
    let kept: Vec<String> = (10..40).map(|n| format!("\"k{}\":{n}", n % 30)).collect();
    assert_eq!(text(&format!("{{{}}}", many.join(","))), Some(format!("{{{}}}", kept.join(","))));
}

#[test]
fn nesting_has_a_limit() {
    let arrays = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    for build in [arrays as fn(usize) -> String, objects] {
        let deepest = build(crate::limits::JSON_DEPTH_MAX);
        assert_eq!(text(&deepest), Some(deepest.clone()));
        assert_eq!(parse(build(crate::limits::JSON_DEPTH_MAX + 1).as_bytes()), Err(JsonError));
    }
    assert_eq!(parse("[".repeat(10_000_000).as_bytes()), Err(JsonError));
}

#[test]
fn object_members() {
    let mut object = Object::new();
    assert_eq!(object.insert("a", 1i64), None);
    assert_eq!(object.insert("b", "x"), None);
    assert_eq!(object.insert("a", 2i64), Some(Value::Int(1)));
    assert_eq!(object.to_vec(), br#"{"a":2,"b":"x"}"#);
    assert_eq!(object.remove("a"), Some(Value::Int(2)));
    assert_eq!(object.remove("a"), None);
    object.push("c", u64::MAX);
    assert_eq!(object.get("c").and_then(Value::as_u64), Some(u64::MAX));
    assert_eq!(object.get("c").and_then(Value::as_i64), None);
    assert_eq!(object.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "c"]);
    assert!(object.contains("b") && !object.contains("a") && object.len() == 2);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-300i64..300).prop_map(Value::Int),
        any::<f64>().prop_filter("kept exactly", |f| f.is_normal()).prop_map(Value::Float),
        Just(Value::Float(0.0)),
        "-?[1-9][0-9]{19,60}".prop_map(|t| Value::Big(t.parse().expect("digits"))),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::vec((any::<String>(), inner), 0..20)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

#[test]
fn room_for_a_text_is_made_at_once() {
    let texts =
        [r#"{"a":[1,-20,null,true,{"b":{}},[]],"c":"é","d":9223372036854775807,"":-9223372036854775808}"#, "{}"];
    for text in texts {
        let Ok(Value::Object(object)) = parse(text.as_bytes()) else { panic!("an object") };
        let (length, room) = (object.to_vec().len(), object.text_bytes());
        assert!((length..=length + text.len() / 4).contains(&room), "{text}: {length} bytes, room for {room}");
    }
    let long = Value::String("x".repeat(100_000));
    let object: Object =
        [("a".to_owned(), long.clone()), ("b".to_owned(), Value::Array(vec![long]))].into_iter().collect();
    let written = object.to_vec();
    assert_eq!((written.len(), written.capacity()), (200_017, object.text_bytes()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn values_round_trip(value in any_value()) {
        let written = value.to_vec();
        if let Value::Object(object) = &value {
            prop_assert_eq!(object.to_vec(), written.clone());
        }
        let read = parse(&written).expect("canonical text is accepted");
        prop_assert_eq!(read.to_vec(), written);
        prop_assert_eq!(read, value);
    }

    #[test]
    fn serde_json_agrees_on_canonical_text(value in any_value()) {
        let other: Result<serde_json::Value, _> = serde_json::from_slice(&value.to_vec());
        prop_assert!(other.is_ok());
    }

    #[test]
    fn arbitrary_text_never_panics_and_is_stricter_than_serde(input in "[\\[\\]{}:,\"\\\\a-fu0-9eE+.\\- \n]{0,40}") {
        if parse(input.as_bytes()).is_ok() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&input).is_ok(), "{}", input);
        }
    }
}

#[test]
fn a_text_that_is_only_checked_is_taken_or_refused_as_one_that_is_read() {
    let texts = [
        "{}",
        "[]",
        " [1, 2.5e3,\"a\\u00e9\\n\",null,true,{\"a\":[{}]}] ",
        "\"\\ud83d\\ude00\"",
        "{\"a\":1,\"a\":2}",
        "1e999",
        "",
        "[1,]",
        "{\"a\" 1}",
        "\"\\ud83d\"",
        "\"a",
        "{\"a\":}",
        "[1]x",
        "nul",
        "-",
        "01",
        "\"\u{1}\"",
        "[[[[]]]",
        "{\"a\":\"b\\q\"}",
    ];
    for text in texts {
        assert_eq!(check(text.as_bytes()).is_ok(), parse(text.as_bytes()).is_ok(), "{text}");
    }
    assert!(check(b"\"\xff\"").is_err());
}
