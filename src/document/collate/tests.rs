//! The recorded orders, and that keys and comparison agree on random values.

use proptest::prelude::*;

use super::{Collation, Collator, HIGHEST, LOWEST};
use crate::json::{Value, parse};

fn value(text: &str) -> Value {
    parse(text.as_bytes()).unwrap()
}

fn key(collator: &Collator, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    collator.sort_key(value, &mut out);
    out
}

fn assert_ascending(collator: &Collator, texts: &[&str]) {
    let values: Vec<Value> = texts.iter().map(|text| value(text)).collect();
    for (at, a) in values.iter().enumerate() {
        for (bt, b) in values.iter().enumerate() {
            assert_eq!(collator.compare(a, b), at.cmp(&bt), "{} and {}", texts[at], texts[bt]);
            assert_eq!(key(collator, a).cmp(&key(collator, b)), at.cmp(&bt), "keys of {} and {}", texts[at], texts[bt]);
        }
    }
}

#[test]
fn values_in_the_order_of_views() {
    assert_ascending(
        &Collator::new(),
        &[
            "null",
            "false",
            "true",
            "-1e300",
            "-2",
            "-1.5",
            "-1",
            "-1e-300",
            "0",
            "2e-310",
            "0.5",
            "1",
            "1.5",
            "2",
            "10",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551616",
            "18446744073709551617",
            "1e20",
            "100000000000000000001",
            "1e300",
            "\"\"",
            "\"10\"",
            "\"2\"",
            "\"a\"",
            "\"aa\"",
            "\"b\"",
            "\"B\"",
            "\"ba\"",
            "[]",
            "[null]",
            "[1]",
            "[1,[]]",
            "[\"\"]",
            "[[]]",
            "[{}]",
            "{}",
            "{\"\":1}",
            "{\"a\":1}",
            "{\"a\":2}",
            "{\"a\":2,\"b\":0}",
            "{\"b\":0,\"a\":2}",
        ],
    );
}

#[test]
fn strings_as_they_were_measured() {
    let order = ["ab", "aB", "Ab", "AB", "áb", "ab ", "ab1", "abc"].map(|text| format!("\"{text}\""));
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    assert_ascending(&Collator::new(), &order);
    let signs = " _-,;:!?.'()[]{}@*/&#%`^+<=>|~$09aAbB".chars().map(|c| format!("\"{c}\"")).collect::<Vec<_>>();
    assert_ascending(&Collator::new(), &signs.iter().map(String::as_str).collect::<Vec<_>>());
    assert_ascending(&Collator::new(), &["\"Z\"", "\"\u{fff0}\"", "\"\u{10ffff}\"", "\"\u{ffff}\""]);
}

#[test]
fn values_that_are_one_key() {
    let collator = Collator::new();
    for (a, b) in [
        ("1", "1.0"),
        ("100000000000000000000", "1e20"),
        ("0", "-0.0"),
        ("\"é\"", "\"e\u{301}\""),
        ("\"a\"", "\"a\\u0001\""),
        ("\"a\"", "\"a\u{200b}\""),
        ("\"\"", "\"\u{ad}\""),
        ("[1,\"é\"]", "[1.0,\"e\u{301}\"]"),
    ] {
        assert!(collator.compare(&value(a), &value(b)).is_eq(), "{a} {b}");
        assert_eq!(key(&collator, &value(a)), key(&collator, &value(b)), "{a} {b}");
    }
}

#[test]
fn the_raw_order() {
    let raw = Collator::new().with(Collation::Raw);
    assert_ascending(
        &raw,
        &[
            "-5",
            "1",
            "2.5",
            "false",
            "null",
            "true",
            "{}",
            "{\"B\":1}",
            "{\"a\":1}",
            "[]",
            "[1]",
            "[1,null]",
            "[null]",
            "[\"a\"]",
            "\"\"",
            "\"A\"",
            "\"A\\u0000\"",
            "\"A\\u0000b\"",
            "\"A\\u0001\"",
            "\"AB\"",
            "\"a\"",
            "\"é\"",
        ],
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-4_i64..4).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_filter("JSON has finite numbers only", |f| f.is_finite()).prop_map(Value::Float),
        (any::<i32>(), -60_i32..200).prop_map(|(m, e)| Value::Float(f64::from(m) * f64::powi(2.0, e))),
        (any::<i64>(), 0_usize..200).prop_map(|(m, e)| Value::Big(num_bigint::BigInt::from(m) << e)),
        "[a-cA-C é\u{301}\u{0}\u{1}\u{ffff}]{0,4}".prop_map(Value::String),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec(("[ab\u{1}]{0,2}", inner), 0..3).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn keys_order_as_values_do(a in any_value(), b in any_value(), raw in any::<bool>()) {
        let collator = Collator::new().with(if raw { Collation::Raw } else { Collation::Unicode });
        let (a_key, b_key) = (key(&collator, &a), key(&collator, &b));
        prop_assert_eq!(collator.compare(&a, &b), a_key.cmp(&b_key));
        prop_assert_eq!(collator.compare(&b, &a), b_key.cmp(&a_key));
        prop_assert_eq!(collator.equal_by(collator.collation(), &a, &b), a_key == b_key);
        prop_assert!(a_key == b_key || !a_key.starts_with(&b_key), "no key begins another");
        prop_assert!(a_key.as_slice() < HIGHEST && a_key.as_slice() > LOWEST);
    }

    #[test]
    fn a_prefix_bounds_its_arrays(elements in prop::collection::vec(any_value(), 0..4), cut in 0_usize..4) {
        let collator = Collator::new();
        let mut low = Vec::new();
        collator.array_prefix(&elements[..cut.min(elements.len())], &mut low);
        let high = [&low[..], HIGHEST].concat();
        let whole = key(&collator, &Value::Array(elements));
        prop_assert!(low < whole && whole < high);
    }
}
