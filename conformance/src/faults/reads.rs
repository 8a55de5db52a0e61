//! What the nodes answer to reads once all of them hold the same: documents just written, lists, views, queries,
//! attachments and databases.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::check::{Finding, States, told};
use super::cluster::{Answer, Cluster};
use super::text;
use super::writers::Databases;
use crate::json::Value;

/// The view that [`prepare`] makes: every document with a mark, by its id.
const VIEW: &str = "_design/marks";
const AT_ONCE: &str = "with all nodes up a write that was answered 201 is read from every node at once";
const LISTS: &str = "lists, views and queries of every node show the winner of every document";
const ATTACHMENTS: &str = "every node serves the attachment of every leaf";
const DATABASES: &str = "a database is there if it was made, and gone if it was deleted, on every node";

/// Stores the view that is asked later. A server without views refuses it, and is not asked.
pub async fn prepare(cluster: &Cluster, db: &str) {
    let map = "function (doc) { if (doc.mark) emit(doc._id, doc._rev); }";
    let views = format!(r#"{{"views":{{"all":{{"map":"{map}"}}}}}}"#);
    let view = Value::parse(views.as_bytes()).unwrap_or(Value::Null);
    let _ = cluster.ask(0, "PUT", &format!("/{db}/{VIEW}"), Some(&view)).await;
}

/// Reads everything from every node.
pub async fn check(cluster: &Cluster, db: &str, states: &States) -> Vec<Finding> {
    let winners: BTreeMap<&str, &str> = states
        .iter()
        .filter(|(id, _)| !id.starts_with('_'))
        .filter_map(|(id, state)| Some((id.as_str(), state.winner()?)))
        .collect();
    vec![lists(cluster, db, &winners).await, attachments(cluster, db, states).await, at_once(cluster, db).await]
}

/// `_all_docs`, a view and `_find`, each held against the winners. A kind of read that the first node does not know is
/// left out.
async fn lists(cluster: &Cluster, db: &str, winners: &BTreeMap<&str, &str>) -> Finding {
    let query = r#"{"selector":{"mark":{"$gt":null}},"fields":["_id","_rev"],"limit":1000000}"#;
    let query = Value::parse(query.as_bytes()).ok();
    let kinds = [
        ("_all_docs", "GET", format!("/{db}/_all_docs"), None, ["/rows", "/id", "/value/rev"]),
        ("the view", "GET", format!("/{db}/{VIEW}/_view/all"), None, ["/rows", "/id", "/value"]),
        ("_find", "POST", format!("/{db}/_find"), query.as_ref(), ["/docs", "/_id", "/_rev"]),
    ];
    let mut wrong = Vec::new();
    for (kind, method, target, body, pointers) in kinds {
        for at in 0..cluster.nodes.len() {
            let (status, answer) = cluster.ask(at, method, &target, body).await;
            if at == 0 && kind != "_all_docs" && (400..500).contains(&status) {
                break;
            }
            let name = &cluster.nodes[at].name;
            if status != 200 {
                wrong.push(format!("{kind} of node {name}: {status}"));
                continue;
            }
            wrong.extend(differences(&answer, pointers, winners).map(|what| format!("{kind} of node {name}: {what}")));
        }
    }
    told(LISTS, wrong)
}

/// In what the rows of an answer differ from the winners.
fn differences(
    answer: &Value,
    [rows, id, rev]: [&str; 3],
    winners: &BTreeMap<&str, &str>,
) -> impl Iterator<Item = String> {
    let rows = answer.pointer(rows).and_then(Value::as_array).unwrap_or_default();
    let rows: Vec<(String, String)> = rows.iter().map(|row| (text(row, id), text(row, rev))).collect();
    let shown: BTreeMap<&str, &str> =
        rows.iter().filter(|(id, _)| !id.starts_with('_')).map(|(id, rev)| (id.as_str(), rev.as_str())).collect();
    let mut wrong: Vec<String> = Vec::new();
    for (id, rev) in winners {
        match shown.get(id) {
            Some(other) if other == rev => {}
            Some(other) => wrong.push(format!("{id} is {other}, {rev} is the winner")),
            None => wrong.push(format!("{id} is missing, {rev} is the winner")),
        }
    }
    wrong.extend(shown.keys().filter(|id| !winners.contains_key(*id)).map(|id| format!("{id} is there, and deleted")));
    wrong.into_iter()
}

async fn attachments(cluster: &Cluster, db: &str, states: &States) -> Finding {
    let mut wrong = Vec::new();
    for (id, rev, mark) in states.iter().flat_map(|(id, state)| state.attached().iter().map(move |(r, m)| (id, r, m))) {
        for at in 0..cluster.nodes.len() {
            let (status, bytes) = cluster.ask(at, "GET", &format!("/{db}/{id}/a?rev={rev}"), None).await;
            if status != 200 || bytes.as_str() != Some(mark.as_str()) {
                let bytes = bytes.to_text(false);
                wrong.push(format!("{id} {rev} of node {}: {status} {bytes}, not {mark}", cluster.nodes[at].name));
            }
        }
    }
    told(ATTACHMENTS, wrong)
}

/// Writes through each node and reads through all.
async fn at_once(cluster: &Cluster, db: &str) -> Finding {
    let (mut wrong, mut stored) = (Vec::new(), 0);
    let empty = Value::Object(Vec::new());
    for n in 0..20 * cluster.nodes.len() {
        let (status, answer) = cluster.ask(n, "PUT", &format!("/{db}/once-{n}"), Some(&empty)).await;
        if status != 201 {
            continue;
        }
        stored += 1;
        for at in 0..cluster.nodes.len() {
            let read = cluster.ask(at, "GET", &format!("/{db}/once-{n}"), None).await;
            wrong.extend(unlike(&read, &text(&answer, "/rev")).map(|read| {
                let name = |at: usize| &cluster.nodes[at % cluster.nodes.len()].name;
                format!("once-{n}, stored through node {}, is {read} through node {}", name(n), name(at))
            }));
        }
    }
    if stored == 0 { Finding::Unknown(AT_ONCE, "no write was answered 201".to_owned()) } else { told(AT_ONCE, wrong) }
}

/// What was read, if it is another revision. Nothing where no answer was given.
fn unlike((status, body): &Answer, rev: &str) -> Option<String> {
    match status {
        200 if text(body, "/_rev") == rev => None,
        200 | 404 => Some(format!("{status} {}", text(body, "/_rev"))),
        _ => None,
    }
}

/// Asks every node for every database, until all answer as they should, at most for `limit`.
pub async fn databases(cluster: &Cluster, known: &Databases, limit: Duration) -> Finding {
    let begun = Instant::now();
    loop {
        let mut wrong = Vec::new();
        for (name, is_there) in known {
            for at in 0..cluster.nodes.len() {
                let (status, _) = cluster.ask(at, "GET", &format!("/{name}"), None).await;
                if status != if *is_there { 200 } else { 404 } {
                    let was = if *is_there { "made" } else { "deleted" };
                    wrong.push(format!("{name}, which was {was}, is {status} on node {}", cluster.nodes[at].name));
                }
            }
        }
        if wrong.is_empty() || begun.elapsed() > limit {
            return told(DATABASES, wrong);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{differences, unlike};
    use crate::json::Value;

    fn json(text: &str) -> Value {
        Value::parse(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn rows_that_are_old_missing_or_too_many_are_told() {
        let rows = r#"{"rows":[{"id":"a","value":"1-a"},{"id":"b","value":"1-b"},{"id":"_design/x","value":"1-x"},
            {"id":"gone","value":"1-g"}]}"#;
        let winners = [("a", "1-a"), ("b", "2-b"), ("c", "1-c")].into();
        let wrong: Vec<String> = differences(&json(rows), ["/rows", "/id", "/value"], &winners).collect();
        assert_eq!(
            wrong,
            ["b is 1-b, 2-b is the winner", "c is missing, 1-c is the winner", "gone is there, and deleted"]
        );
    }

    #[test]
    fn a_read_without_an_answer_breaks_no_promise() {
        assert_eq!(unlike(&(200, json(r#"{"_rev":"1-a"}"#)), "1-a"), None);
        assert_eq!(unlike(&(503, Value::Null), "1-a"), None);
        assert_eq!(unlike(&(404, Value::Null), "1-a"), Some("404 ".to_owned()));
        assert_eq!(unlike(&(200, json(r#"{"_rev":"1-b"}"#)), "1-a"), Some("200 1-b".to_owned()));
    }
}
