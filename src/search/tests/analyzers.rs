//! Tokens of the analyzers against what was recorded from Lucene 4.10, and what holds for any text.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use settee_search::analysis::{Analyzer, Spec};

/// Samples that are known to differ: analyzer, text, why.
const DIFFER: &[(&str, &str, &str)] = &[];

/// The specification that a design document's value names; a name that is missing is none that exists.
fn spec(value: &Value) -> Spec {
    if let Some(name) = value.as_str() {
        return Spec::Named { name: name.to_owned(), stopwords: None };
    }
    let name = value["name"].as_str().unwrap_or("").to_owned();
    if name != "perfield" {
        let words = |list: &Vec<Value>| list.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect();
        return Spec::Named { name, stopwords: value["stopwords"].as_array().map(words) };
    }
    let default = value.get("default").map_or_else(|| spec(&Value::from("standard")), spec);
    let fields = value["fields"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), spec(v))).collect();
    Spec::PerField { default: Box::new(default), fields }
}

#[test]
fn tokens_are_those_that_were_recorded() {
    let data: Value = serde_json::from_str(include_str!("data/analyzers.json")).expect("data");
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for sample in data["samples"].as_array().expect("samples") {
        let name = sample[0].as_str().map_or_else(|| sample[0].to_string(), str::to_owned);
        let text = sample[1].as_str().expect("text");
        let expected: Vec<&str> = sample[2].as_array().expect("tokens").iter().filter_map(Value::as_str).collect();
        let positions: Vec<u64> = match sample[3].as_array() {
            Some(list) => list.iter().filter_map(Value::as_u64).collect(),
            None => (0..expected.len() as u64).collect(),
        };
        let found = Analyzer::new(spec(&sample[0])).map(|a| a.tokens("default", text)).unwrap_or_default();
        let texts: Vec<&str> = found.iter().map(|t| t.text.as_str()).collect();
        let places: Vec<u64> = found.iter().map(|t| u64::from(t.position)).collect();
        let is_same = texts == expected && places == positions;
        let is_known = DIFFER.iter().any(|(a, t, _)| *a == name && *t == text);
        let count = counts.entry(name.clone()).or_default();
        count.0 += usize::from(is_same);
        count.1 += 1;
        if is_same == is_known {
            wrong.push(format!("{name}: {text:?}\n  was {expected:?} {positions:?}\n  is  {texts:?} {places:?}"));
        }
    }
    let summary: Vec<String> = counts.iter().map(|(name, (same, all))| format!("{name} {same}/{all}")).collect();
    println!("{}", summary.join("\n"));
    assert!(wrong.is_empty(), "{} samples:\n{}", wrong.len(), wrong.join("\n"));
}
