//! Strings in the order that ICU gives them: `fixtures/collation.json`, made by `scripts/collation-order`.

use std::cmp::Ordering;

use settee::document::collate::Collator;
use settee::document::json::{self, Value};

/// Where data newer than the collator's order the other way (docs/compatibility.md): quotation marks are forms of the
/// plain ones.
const NEWER: [(&str, &str); 2] = [("'a", "\u{2018}"), ("\"a", "\u{201c}")];

fn key(collator: &Collator, text: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    collator.sort_key(text, &mut out);
    out
}

#[test]
fn three_thousand_nasty_strings_are_ordered_as_by_icu() {
    let fixture = json::parse(include_bytes!("fixtures/collation.json")).expect("JSON");
    let groups: Vec<&[Value]> =
        fixture.as_array().expect("a list").iter().map(|g| g.as_array().expect("equals")).collect();
    assert_eq!(groups.iter().map(|group| group.len()).sum::<usize>(), 3000);
    let collator = Collator::new();
    let mut wrong = Vec::new();
    let mut expect = |a: &Value, b: &Value, order: Ordering| {
        let (compared, keys) = (collator.compare(a, b), key(&collator, a).cmp(&key(&collator, b)));
        let newer = NEWER.map(|(a, b)| (Some(a), Some(b))).contains(&(a.as_str(), b.as_str()));
        let order = if newer { order.reverse() } else { order };
        if (compared, keys) != (order, order) {
            wrong.push(format!("{a:?} and {b:?}: {compared:?}, keys {keys:?}, not {order:?}"));
        }
    };
    for group in &groups {
        group.windows(2).for_each(|pair| expect(&pair[0], &pair[1], Ordering::Equal));
    }
    for pair in groups.windows(2) {
        expect(&pair[0][0], &pair[1][0], Ordering::Less);
    }
    assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong.join("\n"));
}
