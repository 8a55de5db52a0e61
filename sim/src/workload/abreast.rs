//! Reads that bring the token of a write through another node than it was written through: a list, a view, a query, a
//! feed or a search shows at least that write, or the node says that it cannot. Each document here is written once, by
//! one client.
//!
//! One read is let off: a replica that serves it goes back in time while the read is under way, so that what it had
//! when the read began is gone in the midst of it. The same read is then sent again.

use serde_json::{Value, json};

use super::own::{carry_out, design_of};
use super::{Worker, broken};
use crate::client::Client;
use crate::model::Violation;
use crate::place::node_name;

/// The database of these documents.
const ABREAST: &str = "abreast";
/// What is read, in turn: the last two where there are full-text indexes.
const READS: usize = 6;
const SEARCHES: usize = 2;
const PLAIN: &str = "function (d) { index('k', d.k); index('rev', d._rev, {store: true, index: false}); }";
const TYPED: &str = "function (d) { index('string', 'k', d.k); index('stored', 'rev', d._rev); }";

/// Makes the database with its view and its indexes, in peace.
///
/// # Errors
/// The request that was refused.
pub(super) async fn set_up(client: &mut Client, made_with: &str, searches: bool) -> Result<(), String> {
    let mut design = design_of(&[("v", "function (d) { emit(d.k, null); }", None)]);
    if searches {
        design["indexes"] = json!({ "i": { "analyzer": "keyword", "index": PLAIN } });
        design["nouveau"] = json!({ "i": { "default_analyzer": "keyword", "index": TYPED } });
    }
    let requests = [
        ("PUT", format!("/{ABREAST}{made_with}"), Value::Null),
        ("PUT", format!("/{ABREAST}/_design/d"), design),
        ("POST", format!("/{ABREAST}/_index"), json!({ "index": { "fields": ["k"] }, "ddoc": "by-k" })),
    ];
    carry_out(client, requests, &[409, 412]).await
}

impl Worker {
    /// Writes a document and reads it at once through another node, with the token that the answer brought.
    pub(super) async fn write_and_read(&mut self) -> Result<(), Violation> {
        let others: Vec<u32> = self.cluster().into_iter().filter(|node| !self.is_at(&[*node])).collect();
        if others.is_empty() {
            return Ok(());
        }
        self.abreast += 1;
        let (nth, id) = (self.abreast, format!("{}-{}", self.name, self.abreast));
        let Ok(answer) = self.call("PUT", &format!("/{ABREAST}/{id}"), &json!({ "k": id })).await else {
            return Ok(());
        };
        if !matches!(answer.status, 201 | 202) {
            return Ok(());
        }
        let rev = answer.json()["rev"].as_str().unwrap_or_default().to_owned();
        let Some(token) = answer.token else {
            return broken("I36", format!("the write of {id} was answered {} without a token", answer.status));
        };
        let mut other = self.another_node(others[nth % others.len()]);
        let reads = if self.locked(|s| s.searches) { READS } else { READS - SEARCHES };
        self.reads_at_least(&mut other, nth % reads, (&id, &rev), &token).await
    }

    async fn reads_at_least(
        &mut self,
        other: &mut Client,
        kind: usize,
        (id, rev): (&str, &str),
        token: &str,
    ) -> Result<(), Violation> {
        let (method, path, body) = match kind {
            0 => ("GET", format!("_all_docs?key=\"{id}\"&at_least={token}"), Value::Null),
            1 => ("GET", format!("_design/d/_view/v?key=\"{id}\"&include_docs=true&at_least={token}"), Value::Null),
            2 => ("POST", format!("_find?at_least={token}"), json!({ "selector": { "k": id } })),
            3 => ("GET", format!("_changes?at_least={token}"), Value::Null),
            4 => ("GET", format!("_design/d/_search/i?q=k:%22{id}%22&at_least={token}"), Value::Null),
            _ => ("GET", format!("_design/d/_nouveau/i?q=k:%22{id}%22&at_least={token}"), Value::Null),
        };
        let path = format!("/{ABREAST}/{path}");
        loop {
            let before = self.locked(|s| s.went_back.len());
            let Ok(answer) = self.call_by(other, method, &path, &body).await else { return Ok(()) };
            let told = answer.json();
            match answer.status {
                200 if shows(&told, id, rev) => break,
                200 if self.lost_its_replica(other, id, before).await => {}
                200 => return broken("I36", format!("{method} {path} lacks {id} {rev}: {told}")),
                400 => return broken("I36", format!("{method} {path}: {told}")),
                _ => return Ok(()),
            }
        }
        self.locked(|s| {
            *s.history.coverage.counters.entry("a read as new as a write".to_owned()).or_default() += 1;
        });
        Ok(())
    }

    /// Whether a node that holds a replica of a document's range went back in time since so many had done so.
    async fn lost_its_replica(&mut self, other: &mut Client, id: &str, before: usize) -> bool {
        let went_back: Vec<String> =
            self.locked(|s| s.went_back[before..].iter().map(|node| node_name(*node)).collect());
        if went_back.is_empty() {
            return false;
        }
        let Ok(answer) = self.call_by(other, "GET", &format!("/{ABREAST}/_shards/{id}"), &Value::Null).await else {
            // It cannot be told which; the read is sent again.
            return true;
        };
        let nodes = answer.json()["nodes"].as_array().cloned().unwrap_or_default();
        answer.status != 200 || nodes.iter().filter_map(Value::as_str).any(|node| went_back.iter().any(|n| n == node))
    }
}

/// Whether an answer has a document in a revision.
fn shows(told: &Value, id: &str, rev: &str) -> bool {
    let rows = ["rows", "docs", "results", "hits"].into_iter().filter_map(|name| told[name].as_array()).flatten();
    let mut own = rows.filter(|row| row["id"] == id || row["_id"] == id);
    own.any(|row| {
        let shown = [&row["value"]["rev"], &row["doc"]["_rev"], &row["_rev"], &row["changes"][0]["rev"]];
        shown.into_iter().chain([&row["fields"]["rev"]]).any(|shown| shown == rev)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_answer_is_looked_into() {
        for told in [
            json!({ "rows": [{ "id": "a", "key": "a", "value": { "rev": "1-x" } }] }),
            json!({ "rows": [{ "id": "a", "key": "a", "value": null, "doc": { "_rev": "1-x" } }] }),
            json!({ "docs": [{ "_id": "a", "_rev": "1-x" }] }),
            json!({ "results": [{ "id": "a", "changes": [{ "rev": "1-x" }] }] }),
            json!({ "rows": [{ "id": "a", "fields": { "rev": "1-x" } }] }),
            json!({ "hits": [{ "id": "a", "fields": { "rev": "1-x" } }] }),
        ] {
            assert!(shows(&told, "a", "1-x") && !shows(&told, "b", "1-x") && !shows(&told, "a", "1-y"), "{told}");
        }
        assert!(!shows(&json!({ "rows": [] }), "a", "1-x"));
    }
}
