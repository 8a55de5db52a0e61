//! What built-in reduce functions answer, as CouchDB 3.5 was measured; and that the order of rows does not matter.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::document::id::DocId;
use crate::index::keys;

fn row(key: &str, value: &str) -> Row {
    nth_row(0, key, value)
}

fn nth_row(n: usize, key: &str, value: &str) -> Row {
    let mut sort = Vec::new();
    Collator::new().sort_key(&parsed(key.as_bytes()), &mut sort);
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Row {
        place: keys::place(&sort, "id", n as u32),
        sort_end: sort.len(),
        id: DocId::new("id"),
        key: bytes(key),
        value: bytes(value),
    }
}

fn reduced(reduce: &str, values: &[&str]) -> Result<String, InvalidValue> {
    // At once, and as two parts put together.
    let empty = Partial::empty(&Reduce::parse(reduce), &Collator::new()).unwrap();
    let (mut whole, mut parts) = (empty.clone(), [empty.clone(), empty]);
    for (n, value) in values.iter().enumerate() {
        whole.add(nth_row(n, "1", value).borrowed())?;
        parts[usize::from(n >= values.len() / 2)].add(nth_row(n, "1", value).borrowed())?;
    }
    let [mut first, second] = parts;
    first.merge(&second)?;
    let (whole, first) = (whole.finish(), first.finish());
    assert_eq!(whole, first, "{reduce} {values:?}");
    Ok(String::from_utf8(whole.to_vec()).unwrap())
}

#[test]
fn names_of_built_in_functions() {
    assert_eq!(Reduce::parse("_sum and more"), Reduce::Sum);
    assert_eq!(Reduce::parse("_top_3"), Reduce::Top(3));
    assert_eq!(Reduce::parse("_bottom_100"), Reduce::Bottom(100));
    assert_eq!(Reduce::parse("_top_101"), Reduce::Script("_top_101".to_owned()));
    assert_eq!(Reduce::parse("function(k, v) {}"), Reduce::Script("function(k, v) {}".to_owned()));
}

#[test]
fn sums_go_from_the_last_row_to_the_first() {
    for (values, caused_by) in [
        (&[r#""x""#, r#""y""#, r#""z""#][..], r#""z""#),
        (&[r#"{"x":"p"}"#, r#"{"x":1}"#], r#""p""#),
        (&[r#"{"x":1}"#, r#"{"x":"p"}"#], "1"),
        (&[r#"["x"]"#], "[0]"),
        (&[r#"[1,"x"]"#, "[1,2]"], "[2]"),
        (&[r#"[1,{"x":1}]"#, r#"[1,{"x":1}]"#], r#"[{"x":1}]"#),
        (&[r#""x""#, "1", "2"], r#""x""#),
    ] {
        let sum = reduced("_sum", values).unwrap();
        assert!(sum.ends_with(&format!(r#""caused_by":{caused_by}}}"#)), "{values:?}: {sum}");
    }
    let mut floats = Reduce::Sum.begin(&Collator::new()).unwrap();
    ["0.1", "0.2", "0.3"].iter().for_each(|value| floats.add(row("1", value).borrowed()).unwrap());
    assert_eq!(floats.finish(), Value::Float(0.6));
}

#[test]
fn sums_that_outgrow_what_they_are_made_of_are_errors() {
    let sum_of = |values: usize| {
        let mut sum = Partial::empty(&Reduce::Sum, &Collator::new()).unwrap();
        sum.add(row("1", &format!("[{}1000]", "1000,".repeat(values - 1))).borrowed()).unwrap();
        sum.settle();
        sum
    };
    // Five bytes each.
    for (values, times, refused) in [(900, 1, false), (1100, 1, true), (1100, 2, false)] {
        let mut sum = sum_of(values);
        sum.bound(sum.bytes() * times);
        let shown = String::from_utf8(sum.finish().to_vec()).unwrap();
        assert_eq!(shown.contains("must shrink more rapidly"), refused, "{values} {times}");
    }
    let mut count = Partial::empty(&Reduce::Count, &Collator::new()).unwrap();
    count.add(row("1", "1").borrowed()).unwrap();
    count.bound(0);
    assert_eq!((count.bytes(), count.finish()), (0, Value::Int(1)));
}

#[test]
fn sums() {
    let sum = |values: &[&str]| reduced("_sum", values).unwrap();
    assert_eq!(sum(&["1", "2.5"]), "3.5");
    assert_eq!(sum(&["9223372036854775807", "1"]), "9223372036854775808");
    assert_eq!(sum(&["[1,2]", "[10]", "5"]), "[16,2]");
    assert_eq!(sum(&["[]"]), "[0]");
    assert_eq!(
        sum(&[r#"{"x":1,"y":{"z":2},"l":[1]}"#, r#"{"x":10,"y":{"z":20,"w":5},"l":[1,2],"q":3}"#]),
        r#"{"l":[2,2],"q":3,"x":11,"y":{"w":5,"z":22}}"#
    );
    assert_eq!(sum(&[r#"{"b":1,"a":"no number"}"#]), r#"{"b":1,"a":"no number"}"#);
    let failed = sum(&["1", "\"x\"", "2"]);
    assert!(failed.starts_with(r#"{"error":"builtin_reduce_error","reason":"The _sum function requires"#), "{failed}");
    assert!(failed.ends_with(r#""caused_by":"x"}"#), "{failed}");
    // An error that is a value already spreads.
    assert_eq!(sum(&["1", &failed]), failed);
}

#[test]
fn statistics() {
    let stats = |values: &[&str]| reduced("_stats", values);
    assert_eq!(
        stats(&["1", "2.5", "-3", "0", "10"]).unwrap(),
        r#"{"sum":10.5,"count":5,"min":-3,"max":10,"sumsqr":116.25}"#
    );
    assert_eq!(
        stats(&["[1,10]", "[2,20]"]).unwrap(),
        r#"[{"sum":3,"count":2,"min":1,"max":2,"sumsqr":5},{"sum":30,"count":2,"min":10,"max":20,"sumsqr":500}]"#
    );
    let made = r#"{"x":1,"sum":4,"count":2,"min":1,"max":3,"sumsqr":10}"#;
    assert_eq!(stats(&[made, "5"]).unwrap(), r#"{"sum":9,"count":3,"min":1,"max":5,"sumsqr":35}"#);
    for bad in [&["\"x\""][..], &["null"], &["{\"sum\":1}"], &["[1,2]", "[1]"], &["1", "[1]"]] {
        assert!(stats(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn ranks_and_ends() {
    let values = ["5", "9", "\"str\"", "null", "9", "[1]", "2.5"];
    assert_eq!(reduced("_top_3", &values).unwrap(), r#"[[1],"str",9]"#);
    assert_eq!(reduced("_bottom_3", &values).unwrap(), "[null,2.5,5]");
    assert_eq!(reduced("_first", &values).unwrap(), "5");
    assert_eq!(reduced("_last", &values).unwrap(), "2.5");
    assert_eq!(reduced("_count", &values).unwrap(), "7");
    assert_eq!(reduced("_approx_count_distinct", &values).unwrap(), "1");
    let mut backwards = Reduce::Last.begin(&Collator::new()).unwrap();
    values.iter().enumerate().rev().for_each(|(n, value)| backwards.add(nth_row(n, "1", value).borrowed()).unwrap());
    assert_eq!(backwards.finish(), Value::Float(2.5));
}

#[test]
fn groups() {
    let collator = Collator::new();
    let group = |grouping: Grouping, key: &str| {
        let (_, shown) = grouping.group_of(&row(key, "1"), &collator, 0);
        String::from_utf8(shown.to_vec()).unwrap()
    };
    assert_eq!(group(Grouping::All, "[1,2]"), "null");
    assert_eq!(group(Grouping::Exact, "[1,2]"), "[1,2]");
    assert_eq!(group(Grouping::Level(1), "[1,2]"), "[1]");
    assert_eq!(group(Grouping::Level(2), "[1]"), "[1]");
    assert_eq!(group(Grouping::Level(1), "\"text\""), "\"text\"");
    let same = |a: &str, b: &str| {
        let of = |key| Grouping::Level(1).group_of(&row(key, "1"), &collator, 0).0;
        of(a) == of(b)
    };
    assert!(same("[1,2]", "[1.0,3]") && same("[1]", "[1,2]") && !same("1", "[1]"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_order_of_rows_does_not_matter(numbers in prop::collection::vec(-1_000_i64..1_000, 1..30)) {
        for reduce in ["_sum", "_stats", "_count", "_top_3", "_bottom_2"] {
            let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
            let forward: Vec<&str> = texts.iter().map(String::as_str).collect();
            let backward: Vec<&str> = forward.iter().rev().copied().collect();
            prop_assert_eq!(reduced(reduce, &forward), reduced(reduce, &backward));
        }
    }
}
