//! Reductions of one moment: documents that are always there and go from one group of a view to another. However many
//! edits come meanwhile, the groups of an answer hold each document once.

use serde_json::{Value, json};

use super::own::carry_out;
use super::{Worker, broken};
use crate::client::Client;
use crate::model::Violation;

/// Their database.
const COUNTED: &str = "counted";
/// How many documents there are.
const DOCUMENTS: u64 = 30;
/// The view: groups by two levels, and one row for each document.
const MAP: &str = "function (d) { emit([d.v % 3, d.v % 7], 1); }";
/// The same by a function of the design document.
const REDUCE: &str = "function (keys, values) { return sum(values); }";
/// Ways to ask for it.
const ASKED: [&str; 4] = ["group=true", "group_level=1", "reduce=true", "group=true&descending=true"];

/// Makes the database, the view and the documents, in peace. `made_with`: the query with which the database is made;
/// `replicas`: how many there are of a range, all of which are to have the documents before anything goes wrong.
///
/// # Errors
/// The request that was refused.
pub(crate) async fn set_up(client: &mut Client, made_with: &str, replicas: u32) -> Result<(), String> {
    let docs: Vec<Value> = (0..DOCUMENTS).map(|n| json!({ "_id": id(n), "v": n })).collect();
    let reduced = |reduce: &str| json!({ "map": MAP, "reduce": reduce });
    let view = json!({ "views": { "of": reduced("_sum"), "all": reduced("_count"), "by": reduced(REDUCE) } });
    let requests = [
        ("PUT", format!("/{COUNTED}{made_with}"), Value::Null),
        ("PUT", format!("/{COUNTED}/_design/groups?w={replicas}"), view),
        ("POST", format!("/{COUNTED}/_bulk_docs?w={replicas}"), json!({ "docs": docs })),
    ];
    carry_out(client, requests, &[409, 412]).await
}

fn id(n: u64) -> String {
    format!("n-{n:02}")
}

/// A view and how it is asked for: built-in functions, then that of the design document, then by all keys there are.
fn asked(way: u32) -> String {
    let builtin = if way.is_multiple_of(2) { "of" } else { "all" };
    match way {
        0..8 => format!("{builtin}?{}", ASKED[way as usize / 2 % ASKED.len()]),
        8..12 => format!("by?{}", ASKED[way as usize % ASKED.len()]),
        _ => {
            let view = if way < 14 { builtin } else { "by" };
            let keys: Vec<String> = (0..21).map(|n| format!("%5B{},{}%5D", n % 3, n % 7)).collect();
            format!("{view}?group=true&keys=%5B{}%5D", keys.join(","))
        }
    }
}

impl Worker {
    /// Some documents go to other groups, in one request. Whatever comes of that, all of them stay.
    pub(super) async fn shift(&mut self, v: u64) -> Result<(), Violation> {
        let path = format!("/{COUNTED}/_all_docs?startkey=%22n%22&endkey=%22o%22");
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(()) };
        let rows = body["rows"].as_array().cloned().unwrap_or_default();
        let chosen = rows.iter().enumerate().filter(|(n, _)| !(*n as u64 + v).is_multiple_of(4));
        let doc =
            |(n, row): (usize, &Value)| json!({ "_id": row["id"], "_rev": row["value"]["rev"], "v": v + n as u64 });
        let docs: Vec<Value> = chosen.map(doc).collect();
        let _ = self.call("POST", &format!("/{COUNTED}/_bulk_docs"), &json!({ "docs": docs })).await;
        Ok(())
    }

    /// Asks for the groups: each document is in one.
    pub(super) async fn groups(&mut self, way: u32) -> Result<(), Violation> {
        let path = format!("/{COUNTED}/_design/groups/_view/{}", asked(way));
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(()) };
        let rows = body["rows"].as_array().cloned().unwrap_or_default();
        let sum: u64 = rows.iter().filter_map(|row| row["value"].as_u64()).sum();
        match sum == DOCUMENTS || self.locked(|s| s.damaged) {
            true => Ok(()),
            false => broken("I34", format!("{path}: {sum} documents in groups, {DOCUMENTS} are there: {rows:?}")),
        }
    }
}
