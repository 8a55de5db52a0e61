//! The shared database of a cluster as views, queries and a feed by a declared selector show it. While things go wrong
//! they may lack what is new, but what they show was written, in order, each document once. In the end they show on
//! every node the documents that are there, and nothing else.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::final_state::Trees;
use super::own::{carry_out, design_of};
use super::{DB, Worker, broken};
use crate::client::Client;
use crate::model::{self, Violation};

/// Names, map functions and reduce functions of the views.
const VIEWS: [(&str, &str, Option<&str>); 2] = [
    ("rest", "function (d) { emit((d.v || 0) % 7, [d._rev, d.v]); }", None),
    ("sum", "function (d) { emit((d.v || 0) % 3, d.v || 0); }", Some("_sum")),
];
const PLAIN: &str = "function (d) { index('v', d.v || 0, {store: true}); \
    index('rev', d._rev, {store: true, index: false}); }";
const TYPED: &str = "function (d) { index('double', 'v', d.v || 0, {store: true}); index('stored', 'rev', d._rev); }";
/// What a value has to divide by to be a view's key.
const DIVISORS: [u64; 2] = [7, 3];
/// Design documents that [`set_up`] makes.
pub(crate) const DESIGNS: u64 = 3;
/// Documents below this one are chosen by the declared selector.
const CHOSEN_BELOW: &str = "doc-04";
/// Queries at the end ask for values from here on.
const FROM_AT_THE_END: u64 = 3;

/// The documents that are there: revision and value of each winner.
type Live = BTreeMap<String, (String, Option<u64>)>;

/// Whether a document is one of the shared database's own making, and no client's.
pub(super) fn is_design(id: &str) -> bool {
    id.starts_with("_design/")
}

/// Makes the views, the index and the selector, in peace.
///
/// # Errors
/// The request that was refused.
pub(super) async fn set_up(client: &mut Client, searches: bool) -> Result<(), String> {
    let mut seen = design_of(&VIEWS);
    if searches {
        seen["indexes"] = json!({ "i": { "index": PLAIN } });
        seen["nouveau"] = json!({ "i": { "index": TYPED } });
    }
    let chosen = json!({ "language": "query", "filters": { "few": { "_id": { "$lt": CHOSEN_BELOW } } } });
    let requests = [
        ("PUT", format!("/{DB}/_design/seen"), seen),
        ("PUT", format!("/{DB}/_design/chosen"), chosen),
        ("POST", format!("/{DB}/_index"), json!({ "index": { "fields": ["v"] }, "ddoc": "by-v" })),
    ];
    carry_out(client, requests, &[409]).await
}

impl Worker {
    /// Reads a view; its rows' keys and values by their documents, when an answer came.
    async fn rows(&mut self, view: usize) -> Result<Option<BTreeMap<String, (Value, Value)>>, Violation> {
        let path = format!("/{DB}/_design/seen/_view/{}?reduce=false", VIEWS[view].0);
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(None) };
        let rows = body["rows"].as_array().cloned().unwrap_or_default();
        let place = |row: &Value| (row["key"].as_u64(), row["id"].as_str().map(str::to_owned));
        if rows.windows(2).any(|pair| place(&pair[0]) > place(&pair[1])) {
            return broken("I20", format!("{path}: out of order: {rows:?}"));
        }
        let mut by_doc = BTreeMap::new();
        for row in rows {
            let id = row["id"].as_str().unwrap_or_default().to_owned();
            if by_doc.insert(id.clone(), (row["key"].clone(), row["value"].clone())).is_some() {
                return broken("I17", format!("{path}: {id} has two rows"));
            }
        }
        Ok(Some(by_doc))
    }

    /// Reads a view; each row must be of a revision that was written.
    pub(super) async fn view(&mut self, view: usize) -> Result<(), Violation> {
        let Some(rows) = self.rows(view).await? else { return Ok(()) };
        for (id, (key, value)) in rows {
            let (rev, v) = if view == 0 { (value[0].as_str(), value[1].as_u64()) } else { (None, value.as_u64()) };
            if key.as_u64() != Some(v.unwrap_or(0) % DIVISORS[view]) {
                return broken("I17", format!("{id}: a row with the key {key} and the value {value}"));
            }
            if let Some(rev) = rev {
                self.locked(|s| s.model.saw(&id, rev, v))?;
            }
        }
        Ok(())
    }

    /// Asks for the values from `k` on; the documents' revisions, when an answer came.
    async fn found(&mut self, k: u64) -> Result<Option<BTreeMap<String, String>>, Violation> {
        let ask = json!({ "selector": { "v": { "$gte": k } }, "limit": 1_000 });
        let answer = self.call("POST", &format!("/{DB}/_find"), &ask).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(None) };
        let mut found = BTreeMap::new();
        for doc in body["docs"].as_array().into_iter().flatten() {
            let (id, rev) = (doc["_id"].as_str().unwrap_or_default(), doc["_rev"].as_str().unwrap_or_default());
            let v = doc["v"].as_u64();
            if v.is_none_or(|v| v < k) {
                return broken("I18", format!("values from {k} on give {doc}"));
            }
            self.locked(|s| s.model.saw(id, rev, v))?;
            if found.insert(id.to_owned(), rev.to_owned()).is_some() {
                return broken("I18", format!("values from {k} on give {id} twice"));
            }
        }
        Ok(Some(found))
    }

    pub(super) async fn find(&mut self, k: u64) -> Result<(), Violation> {
        if self.locked(|s| s.searches) {
            self.searched(k, k.is_multiple_of(2)).await?;
        }
        self.found(k).await.map(drop)
    }

    /// Searches for the values from `k` on by an index with types or without; the documents' revisions, when an answer
    /// came.
    async fn searched(&mut self, k: u64, is_typed: bool) -> Result<Option<BTreeMap<String, String>>, Violation> {
        let (function, rows) = if is_typed { ("_nouveau", "hits") } else { ("_search", "rows") };
        let path = format!("/{DB}/_design/seen/{function}/i?limit=200&q=v%3A%5B{k}%20TO%20%2A%5D");
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(None) };
        let mut found = BTreeMap::new();
        for row in body[rows].as_array().into_iter().flatten() {
            let id = row["id"].as_str().unwrap_or_default();
            let (rev, v) = (row["fields"]["rev"].as_str().unwrap_or_default(), row["fields"]["v"].as_f64());
            if is_design(id) {
                continue;
            }
            if v.is_none_or(|v| v < k as f64) {
                return broken("I18", format!("{function}: values from {k} on give {row}"));
            }
            if k > 0 {
                self.locked(|s| s.model.saw(id, rev, v.map(|v| v as u64)))?;
            }
            if found.insert(id.to_owned(), rev.to_owned()).is_some() {
                return broken("I18", format!("{function}: values from {k} on give {id} twice"));
            }
        }
        Ok(Some(found))
    }

    /// Reads the feed by the selector on; whether an answer came.
    pub(super) async fn follow_chosen(&mut self) -> Result<bool, Violation> {
        let since = self.seen.since.clone();
        let Some(body) = self.changes_by(DB, &since, json!({ "_id": { "$lt": CHOSEN_BELOW } })).await else {
            return Ok(false);
        };
        self.seen.take(&self.name, &body, |id| id < CHOSEN_BELOW)?;
        self.seen.told.retain(|id, _| !is_design(id));
        Ok(true)
    }

    /// At the end: the views and a query of this worker's node against the documents that are there.
    pub(crate) async fn check_seen(&mut self, trees: &Trees) -> Result<(), Violation> {
        let winners = trees.iter().filter_map(|(doc, leaves)| Some((doc, model::winner(leaves)?)));
        let live: Live =
            winners.filter(|(_, w)| !w.deleted).map(|(doc, w)| (doc.clone(), (w.path[0].clone(), w.v))).collect();
        for (view, divisor) in DIVISORS.into_iter().enumerate() {
            let rows = self.rows(view).await?;
            let Some(rows) = rows else {
                return broken("I28", format!("view {view} does not answer after all faults"));
            };
            let row = |(doc, (rev, v)): (&String, &(String, Option<u64>))| {
                let value = if view == 0 { json!([rev, v]) } else { json!(v.unwrap_or(0)) };
                (doc.clone(), (json!(v.unwrap_or(0) % divisor), value))
            };
            let expected: BTreeMap<String, (Value, Value)> = live.iter().map(row).collect();
            if rows != expected {
                return broken("I17", format!("{}: view {view} shows {rows:?}, there are {live:?}", self.name));
            }
        }
        self.check_sum(&live).await?;
        let expected: BTreeMap<String, String> = live
            .iter()
            .filter(|(_, (_, v))| v.is_some_and(|v| v >= FROM_AT_THE_END))
            .map(|(doc, (rev, _))| (doc.clone(), rev.clone()))
            .collect();
        if self.locked(|s| s.searches) {
            for is_typed in [false, true] {
                match self.searched(FROM_AT_THE_END, is_typed).await? {
                    Some(found) if found == expected => {}
                    Some(found) => {
                        let what = format!("{}: typed {is_typed}: {found:?} searched, there are {live:?}", self.name);
                        return broken("I18", what);
                    }
                    None => return broken("I28", "a search does not answer after all faults".into()),
                }
            }
        }
        match self.found(FROM_AT_THE_END).await? {
            Some(found) if found == expected => Ok(()),
            Some(found) => broken("I18", format!("{}: {found:?} found, there are {live:?}", self.name)),
            None => broken("I28", "_find does not answer after all faults".into()),
        }
    }

    /// The reduced view against the sums of what is there.
    async fn check_sum(&mut self, live: &Live) -> Result<(), Violation> {
        let path = format!("/{DB}/_design/seen/_view/{}?group=true", VIEWS[1].0);
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else {
            return broken("I28", format!("{path} does not answer after all faults"));
        };
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        live.values().for_each(|(_, v)| *expected.entry(v.unwrap_or(0) % DIVISORS[1]).or_default() += v.unwrap_or(0));
        let rows = body["rows"].as_array().cloned().unwrap_or_default();
        let sums: BTreeMap<u64, u64> =
            rows.iter().filter_map(|row| Some((row["key"].as_u64()?, row["value"].as_u64()?))).collect();
        match sums == expected {
            true => Ok(()),
            false => broken("I17", format!("{}: {path} shows {sums:?}, there are {live:?}", self.name)),
        }
    }

    /// At the end: the feed by the selector, followed all the time or begun now, has told all winners that it chooses.
    pub(crate) async fn check_chosen(&mut self, trees: &Trees) -> Result<(), Violation> {
        if !self.follow_chosen().await? {
            return broken("I28", "the feed by a selector does not answer after all faults".into());
        }
        let winner = |(doc, leaves): (&String, &Vec<model::Leaf>)| {
            let best = model::winner(leaves)?;
            Some((doc.clone(), (best.path[0].clone(), best.deleted)))
        };
        let expected: BTreeMap<String, (String, bool)> =
            trees.iter().filter(|(doc, _)| doc.as_str() < CHOSEN_BELOW).filter_map(winner).collect();
        let told = &self.seen.told;
        match *told == expected {
            true => Ok(()),
            false => {
                broken("I13", format!("{}: a feed by a selector told {told:?}, there are {expected:?}", self.name))
            }
        }
    }
}
