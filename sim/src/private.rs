//! The oracle of documents that one client alone writes: exactly what must be there, so that reads, views and queries
//! are checked to the letter. It shares no code with the node.
//!
//! A document is in one certain state, plus what requests without an answer may still make of it: such a request takes
//! effect as long as the revision that it names is the current one (or, for a creation, as long as there is none).

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// What a document is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Never written, or purged.
    Absent,
    /// A tombstone.
    Dead,
    /// Written with this value; the revision is unknown where no answer told it.
    Live(u64, Option<String>),
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Late {
    /// Writes a value over a revision, or anew.
    Put(Option<String>, u64),
    Delete(String),
    Purge(String),
}

/// What a client knows of one document of its own.
#[derive(Clone, Debug)]
pub struct Own {
    state: State,
    late: Vec<Late>,
    /// Whether a purge was ever asked: feeds may go on to show what was there.
    pub purged: bool,
}

impl Default for Own {
    fn default() -> Self {
        Own { state: State::Absent, late: Vec::new(), purged: false }
    }
}

impl Own {
    /// The revision to build on, when it is certain what is there.
    pub fn rev(&self) -> Option<String> {
        match &self.state {
            State::Live(_, rev) => rev.clone(),
            State::Absent | State::Dead => None,
        }
    }

    /// Everything that it may be now.
    pub fn possible(&self) -> BTreeSet<State> {
        let mut out = BTreeSet::from([self.state.clone()]);
        loop {
            let next: BTreeSet<State> = out.iter().flat_map(|s| self.late.iter().filter_map(|l| after(s, l))).collect();
            let before = out.len();
            out.extend(next);
            if out.len() == before {
                return out;
            }
        }
    }

    /// The state, when nothing else is possible.
    pub fn certain(&self) -> Option<State> {
        let possible = self.possible();
        if possible.len() == 1 { possible.into_iter().next() } else { None }
    }

    /// A write over [`Own::rev`] was acknowledged.
    pub fn wrote(&mut self, v: u64, rev: &str) {
        self.state = State::Live(v, Some(rev.to_owned()));
    }

    /// A deletion was acknowledged.
    pub fn deleted(&mut self) {
        self.state = State::Dead;
    }

    /// A purge was acknowledged.
    pub fn was_purged(&mut self) {
        self.state = State::Absent;
    }

    /// A write got no answer.
    pub fn maybe_wrote(&mut self, parent: Option<String>, v: u64) {
        self.late.push(Late::Put(parent, v));
    }

    /// A deletion got no answer.
    pub fn maybe_deleted(&mut self, rev: &str) {
        self.late.push(Late::Delete(rev.to_owned()));
    }

    /// A purge got no answer.
    pub fn maybe_purged(&mut self, rev: &str) {
        self.late.push(Late::Purge(rev.to_owned()));
    }

    /// A read showed this: whether that is possible. It is certain from then on.
    pub fn saw(&mut self, shown: &State) -> bool {
        let fits = |possible: &State| match (possible, shown) {
            (State::Live(v, Some(rev)), State::Live(shown, Some(seen))) => v == shown && rev == seen,
            (State::Live(v, None), State::Live(shown, _)) => v == shown,
            (possible, shown) => possible == shown,
        };
        let fine = self.possible().iter().any(fits);
        if let State::Live(v, _) = shown {
            self.late.retain(|late| !matches!(late, Late::Put(_, value) if value == v));
        }
        self.state = shown.clone();
        fine
    }
}

/// What a late request makes of a state; `None` when it has no effect.
fn after(state: &State, late: &Late) -> Option<State> {
    let current = match state {
        State::Live(_, rev) => rev.as_ref(),
        State::Absent | State::Dead => None,
    };
    match (state, late) {
        (State::Absent | State::Dead, Late::Put(None, v)) => Some(State::Live(*v, None)),
        (State::Live(..), Late::Put(Some(parent), v)) if current == Some(parent) => Some(State::Live(*v, None)),
        (State::Live(..), Late::Delete(rev)) if current == Some(rev) => Some(State::Dead),
        (State::Live(..), Late::Purge(rev)) if current == Some(rev) => Some(State::Absent),
        _ => None,
    }
}

/// The document that the value `v` of a client stands for.
pub fn body(owner: &str, v: u64) -> Value {
    let words = ["ape", "bee", "cat", "dog"];
    let kinds = [json!(null), json!(true), json!(v), json!("text"), json!([v])];
    let tags: Vec<String> = (0..v % 4).map(|n| format!("t{n}")).collect();
    let at = |n: u64| usize::try_from(n).unwrap_or(0);
    let mut body = json!({
        "owner": owner, "v": v, "a": v % 7, "s": words[at(v % 4)], "n": kinds[at(v % 5)], "tags": tags,
    });
    if v.is_multiple_of(3) {
        body["opt"] = json!(v % 5);
    }
    body
}

/// Names, map functions and reduce functions of the views that [`rows`] knows.
pub const VIEWS: [(&str, &str, Option<&str>); 3] = [
    ("a", "function (d) { if (d.owner) emit([d.owner, d.a], d.v); }", None),
    ("tags", "function (d) { (d.tags || []).forEach(function (t) { emit([d.owner, t], null); }); }", Some("_count")),
    ("s", "function (d) { if (d.owner) emit([d.owner, d.s], d.v); }", Some("_sum")),
];

/// The rows that a view has of a document: keys and values.
pub fn rows(view: usize, doc: &Value) -> Vec<(Value, Value)> {
    let key = |second: &Value| json!([doc["owner"], second]);
    match view {
        0 => vec![(key(&doc["a"]), doc["v"].clone())],
        1 => doc["tags"].as_array().into_iter().flatten().map(|tag| (key(tag), Value::Null)).collect(),
        _ => vec![(key(&doc["s"]), doc["v"].clone())],
    }
}

/// The selectors of a client's queries, made of a value `k`.
pub fn selector(query: u32, owner: &str, k: u64) -> Value {
    match query {
        0 => json!({"owner": owner}),
        1 => json!({"owner": owner, "a": {"$gt": k}}),
        2 => json!({"owner": owner, "a": {"$ne": k}}),
        3 => json!({"owner": owner, "a": {"$in": [k, k + 2]}}),
        4 => json!({"owner": owner, "s": {"$gte": "bee", "$lt": "dog"}}),
        5 => json!({"owner": owner, "opt": {"$exists": k.is_multiple_of(2)}}),
        6 => json!({"$and": [{"owner": owner}, {"$or": [{"a": k}, {"s": "cat"}]}]}),
        7 => json!({"owner": owner, "$not": {"a": k}}),
        8 => json!({"owner": owner, "tags": {"$elemMatch": {"$eq": "t1"}}}),
        _ => json!({"owner": owner, "n": {"$type": "number"}, "a": {"$lte": k}}),
    }
}

/// Whether a document matches one of [`selector`]'s.
pub fn matches(selector: &Value, doc: &Value) -> bool {
    let Some(parts) = selector.as_object() else { return false };
    parts.iter().all(|(name, wanted)| match name.as_str() {
        "$and" => wanted.as_array().is_some_and(|all| all.iter().all(|one| matches(one, doc))),
        "$or" => wanted.as_array().is_some_and(|all| all.iter().any(|one| matches(one, doc))),
        "$not" => !matches(wanted, doc),
        field => condition(wanted, doc.get(field)),
    })
}

fn condition(wanted: &Value, found: Option<&Value>) -> bool {
    let Some(tests) = wanted.as_object() else { return found == Some(wanted) };
    tests.iter().all(|(test, argument)| match (test.as_str(), found) {
        ("$exists", found) => Some(found.is_some()) == argument.as_bool(),
        (_, None) => false,
        ("$eq", Some(found)) => found == argument,
        ("$ne", Some(found)) => found != argument,
        ("$in", Some(found)) => argument.as_array().is_some_and(|all| all.contains(found)),
        ("$type", Some(found)) => argument == kind_of(found),
        ("$elemMatch", Some(found)) => {
            found.as_array().is_some_and(|all| all.iter().any(|e| condition(argument, Some(e))))
        }
        (order, Some(found)) => ordered(order, found, argument),
    })
}

/// Comparisons within one type: the generator makes no others.
fn ordered(test: &str, found: &Value, argument: &Value) -> bool {
    let order = match (found, argument) {
        (Value::Number(a), Value::Number(b)) => a.as_u64().cmp(&b.as_u64()),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => return false,
    };
    match test {
        "$gt" => order.is_gt(),
        "$gte" => order.is_ge(),
        "$lt" => order.is_lt(),
        "$lte" => order.is_le(),
        _ => false,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_without_an_answer_may_come_until_another_took_its_place() {
        let mut own = Own::default();
        own.wrote(1, "1-a");
        own.maybe_wrote(Some("1-a".into()), 2);
        assert_eq!(own.possible().len(), 2);
        assert!(own.saw(&State::Live(1, Some("1-a".into()))), "not yet there");
        assert_eq!(own.certain(), None, "it may still come");
        own.wrote(3, "2-c");
        assert_eq!(own.certain(), Some(State::Live(3, Some("2-c".into()))), "too late");
        assert!(!own.saw(&State::Live(2, Some("2-b".into()))));
    }

    #[test]
    fn a_creation_without_an_answer_may_come_over_a_tombstone() {
        let mut own = Own::default();
        own.maybe_wrote(None, 5);
        own.wrote(6, "1-a");
        assert!(own.certain().is_some());
        own.deleted();
        assert_eq!(own.possible(), BTreeSet::from([State::Dead, State::Live(5, None)]));
        assert!(own.saw(&State::Live(5, Some("3-x".into()))));
    }

    #[test]
    fn selectors_match_as_they_read() {
        let doc = body("c", 9);
        let matching: Vec<u32> = (0..10).filter(|q| matches(&selector(*q, "c", 2), &doc)).collect();
        // a=2, s=bee, opt=4, tags=[t0], n=[9]
        assert_eq!(matching, [0, 3, 4, 5, 6]);
        assert!(!matches(&selector(0, "d", 2), &doc));
        assert_eq!(rows(1, &doc), [(json!(["c", "t0"]), Value::Null)]);
    }
}
