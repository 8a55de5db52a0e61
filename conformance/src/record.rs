//! Writes down what a reference answers: the steps of a draft are played twice, and what differs between the two plays
//! is marked as volatile, so that no case asks for what no client may rely on.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::client::Target;
use crate::compare::{OPAQUE_KEYS, Outcome, sort_key};
use crate::json::{Value, object};
use crate::player::Player;
use crate::transcript::Case;

/// Plays the draft in `path` twice against `target` and writes answers and marks into it.
pub async fn record(target: &Target, patience: Duration, path: &Path) -> Result<(), String> {
    let told = |e: String| format!("{}: {e}", path.display());
    let text = std::fs::read(path).map_err(|e| told(e.to_string()))?;
    let mut draft = Value::parse(&text).map_err(told)?;
    let case = Case::read("draft", "draft", &with_blank_answers(&draft)).map_err(told)?;
    let first = Player::new(target, patience).play(&case).await.map_err(told)?;
    let second = Player::new(target, patience).play(&case).await.map_err(told)?;
    let Some(Value::Array(steps)) = member_mut(&mut draft, "steps") else { return Err(told("no steps".into())) };
    for ((step, one), two) in steps.iter_mut().zip(&first).zip(&second) {
        if one.outcome.status != two.outcome.status {
            let statuses = format!("{} and then {}", one.outcome.status, two.outcome.status);
            return Err(told(format!("not the same twice: {}: {statuses}", one.request.lines().next().unwrap_or(""))));
        }
        fill(step, &one.outcome, &two.outcome);
    }
    std::fs::write(path, pretty(&draft, 0) + "\n").map_err(|e| told(e.to_string()))
}

/// The draft with an answer in every step, as [`Case::read`] wants it.
fn with_blank_answers(draft: &Value) -> Value {
    let mut draft = draft.clone();
    if let Some(Value::Array(steps)) = member_mut(&mut draft, "steps") {
        for step in steps {
            // Nothing of an older recording stays: what it asked for would end the play early.
            set(step, "response", object([("status", Value::from(200))]));
            set(step, "setup", Value::Bool(true));
        }
    }
    draft
}

/// Writes what was received into a step.
fn fill(step: &mut Value, one: &Outcome, two: &Outcome) {
    let strings = |step: &Value, key: &str| -> Vec<String> {
        let items = step.get(key).and_then(Value::as_array).unwrap_or_default();
        items.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let headers = one.headers.iter().map(|(n, v)| (n.clone(), v.as_deref().map_or(Value::Null, Value::from)));
    let mut response = vec![
        ("status".to_owned(), Value::from(usize::from(one.status))),
        ("headers".to_owned(), Value::Object(headers.collect())),
        ("kind".to_owned(), Value::from(one.kind)),
    ];
    remove(step, "volatile");
    if one.kind != "none" && !step.get("no_body").is_some_and(Value::is_true) {
        response.push(("body".to_owned(), one.body.clone()));
        let unordered = strings(step, "unordered");
        let mut found = BTreeSet::new();
        differing(&ordered(&one.body, &unordered, ""), &ordered(&two.body, &unordered, ""), "", &mut found);
        strings(step, "ignore").iter().for_each(|ignored| _ = found.remove(ignored));
        if !found.is_empty() {
            let list = found.iter().map(|path| Value::from(path.as_str())).collect();
            set(step, "volatile", Value::Array(list));
        }
    }
    let of = |outcome: &Outcome, name: &str| outcome.headers.iter().find(|(n, _)| n == name).cloned();
    if of(one, "etag") != of(two, "etag") {
        set(step, "volatile_etag", Value::Bool(true));
    }
    // What the draft itself marks stays: two plays in one second have one date.
    let mut also: BTreeSet<String> = strings(step, "volatile_headers").into_iter().collect();
    also.extend(strings(step, "also_headers").into_iter().filter(|name| of(one, name) != of(two, name)));
    if !also.is_empty() {
        set(step, "volatile_headers", Value::Array(also.into_iter().map(Value::String).collect()));
    }
    set(step, "response", Value::Object(response));
}

/// The pointers at which two recordings differ; opaque members never count.
fn differing(a: &Value, b: &Value, path: &str, out: &mut BTreeSet<String>) {
    match (a, b) {
        (Value::Object(first), Value::Object(second)) => {
            for (name, value) in first {
                let inner = format!("{path}/{name}");
                match b.get(name) {
                    Some(_) if OPAQUE_KEYS.contains(&name.as_str()) => {}
                    Some(other) => differing(value, other, &inner, out),
                    None => _ = out.insert(inner),
                }
            }
            let only = second.iter().filter(|(name, _)| a.get(name).is_none());
            out.extend(only.map(|(name, _)| format!("{path}/{name}")));
        }
        (Value::Array(first), Value::Array(second)) if first.len() == second.len() => {
            for (n, (x, y)) in first.iter().zip(second).enumerate() {
                differing(x, y, &format!("{path}/{n}"), out);
            }
        }
        _ if a.type_name() == b.type_name() && a.same(b) => {}
        _ => _ = out.insert(path.to_owned()),
    }
}

/// The value with the lists that promise no order sorted.
fn ordered(value: &Value, unordered: &[String], path: &str) -> Value {
    match value {
        Value::Array(items) => {
            let mut items = items.clone();
            if unordered.iter().any(|p| p == path) {
                items.sort_by_cached_key(sort_key);
            }
            let inner = items.iter().enumerate().map(|(n, v)| ordered(v, unordered, &format!("{path}/{n}")));
            Value::Array(inner.collect())
        }
        Value::Object(members) => {
            let inner = members.iter().map(|(k, v)| (k.clone(), ordered(v, unordered, &format!("{path}/{k}"))));
            Value::Object(inner.collect())
        }
        other => other.clone(),
    }
}

fn member_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(members) => members.iter_mut().find(|(k, _)| k == name).map(|(_, v)| v),
        _ => None,
    }
}

fn set(value: &mut Value, name: &str, new: Value) {
    if let Some(old) = member_mut(value, name) {
        *old = new;
    } else if let Value::Object(members) = value {
        members.push((name.to_owned(), new));
    }
}

fn remove(value: &mut Value, name: &str) {
    if let Value::Object(members) = value {
        members.retain(|(k, _)| k != name);
    }
}

/// Text of a case file: a member a line, steps one below the other.
pub fn pretty(value: &Value, depth: usize) -> String {
    let pad = " ".repeat(depth + 1);
    let lines = |open: &str, items: Vec<String>, close: &str| {
        let end = " ".repeat(depth);
        format!("{open}\n{}\n{end}{close}", items.iter().map(|i| format!("{pad}{i}")).collect::<Vec<_>>().join(",\n"))
    };
    match value {
        Value::Object(members) if !members.is_empty() && depth < 4 => {
            let member = |(k, v): &(String, Value)| {
                format!("{}: {}", Value::from(k.as_str()).to_text(false), pretty(v, depth + 1))
            };
            lines("{", members.iter().map(member).collect(), "}")
        }
        Value::Array(items) if !items.is_empty() && depth < 4 => {
            lines("[", items.iter().map(|v| pretty(v, depth + 1)).collect(), "]")
        }
        other => other.to_text(false),
    }
}

#[cfg(test)]
mod tests {
    use super::{differing, fill, ordered, pretty, with_blank_answers};
    use crate::compare::Outcome;
    use crate::json::Value;
    use crate::transcript::Case;

    fn json(text: &str) -> Value {
        Value::parse(text.as_bytes()).expect("JSON")
    }

    fn outcome(body: &str, etag: &str) -> Outcome {
        let headers = vec![("etag".to_owned(), Some(etag.to_owned()))];
        Outcome { status: 200, headers, kind: "json", body: json(body) }
    }

    #[test]
    fn what_differs_between_two_plays_is_marked() {
        let mut step = json(r#"{"do":"GET /","unordered":["/l"],"ignore":["/i"],"volatile":["/old"]}"#);
        let one = outcome(r#"{"l":["a","b"],"t":1,"i":1,"seq":"1-x","only":0,"s":"x"}"#, "1");
        let two = outcome(r#"{"l":["b","a"],"t":2,"i":2,"seq":"2-y","s":"x"}"#, "2");
        fill(&mut step, &one, &two);
        assert_eq!(step.get("volatile"), Some(&json(r#"["/only","/t"]"#)));
        assert!(step.get("volatile_etag").is_some_and(Value::is_true));
        assert_eq!(step.pointer("/response/body"), Some(&one.body));
        assert_eq!(step.pointer("/response/headers/etag").and_then(Value::as_str), Some("1"));
    }

    #[test]
    fn lists_of_other_lengths_and_other_types_differ_as_a_whole() {
        let of = |a: &str, b: &str| {
            let mut out = Default::default();
            differing(&ordered(&json(a), &[], ""), &ordered(&json(b), &[], ""), "", &mut out);
            out.into_iter().collect::<Vec<String>>()
        };
        assert_eq!(of(r#"{"a":[1]}"#, r#"{"a":[1,2]}"#), ["/a"]);
        assert_eq!(of(r#"{"a":[{"b":1}]}"#, r#"{"a":[{"b":"1"}]}"#), ["/a/0/b"]);
        assert_eq!(of("1", "1.0"), [""; 0]);
    }

    #[test]
    fn a_draft_needs_no_answers_and_reads_back_as_written() {
        let draft = json(r#"{"title":"t","spec":"s","steps":[{"do":"GET /${db}","headers":{"A":"b"}}]}"#);
        let case = Case::read("c", "n", &with_blank_answers(&draft)).expect("a case");
        assert!(case.steps[0].expect.setup);
        assert_eq!(json(&pretty(&draft, 0)), draft);
    }
}
