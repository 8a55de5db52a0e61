//! Documents that one client alone writes, with views and queries over them: what must be there is known exactly.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::chosen::declarations;
use super::{Worker, broken};
use crate::client::{Answer, Client, NoAnswer};
use crate::model::Violation;
use crate::plan::WorldPlan;
use crate::private::{State, VIEWS, body, matches, rows, selector};

/// The database of own documents.
pub(super) const OWN: &str = "own";

/// Makes the database, its views, indexes and validation function, in peace.
///
/// # Errors
/// The request that was refused.
pub async fn set_up(client: &mut Client, world: &WorldPlan) -> Result<(), String> {
    let index = |fields: Value| json!({ "index": { "fields": fields } });
    let requests = [
        ("PUT", format!("/{OWN}?q={}", world.q), Value::Null),
        ("PUT", format!("/{OWN}/_design/sim"), design_of(&VIEWS)),
        ("PUT", format!("/{OWN}/_design/chosen"), declarations()),
        ("POST", format!("/{OWN}/_index"), index(json!(["owner", "a"]))),
        ("POST", format!("/{OWN}/_index"), index(json!(["s"]))),
    ];
    carry_out(client, requests, &[409, 412]).await?;
    if world.searches {
        super::searched::set_up(client).await?;
    }
    keep_purges(client, OWN, world).await
}

/// A design document of views: names, map functions and reduce functions.
pub(super) fn design_of(views: &[(&str, &str, Option<&str>)]) -> Value {
    let view = |(name, map, reduce): &(&str, &str, Option<&str>)| {
        let mut view = json!({ "map": map });
        if let Some(reduce) = reduce {
            view["reduce"] = json!(reduce);
        }
        ((*name).to_owned(), view)
    };
    json!({ "views": views.iter().map(view).collect::<serde_json::Map<_, _>>() })
}

/// Sends requests (method, path, body) that make something; statuses that say that it is there.
///
/// # Errors
/// The request that was refused.
pub(crate) async fn carry_out(
    client: &mut Client,
    requests: impl IntoIterator<Item = (&str, String, Value)>,
    is_there: &[u16],
) -> Result<(), String> {
    for (method, path, body) in requests {
        match client.json(method, &path, &body).await {
            Ok(answer) if answer.status < 300 || is_there.contains(&answer.status) => {}
            other => return Err(format!("{method} {path}: {other:?}")),
        }
    }
    Ok(())
}

/// Sets how many purges a database keeps on record, where the run says so.
///
/// # Errors
/// The request that was refused.
pub(super) async fn keep_purges(client: &mut Client, database: &str, world: &WorldPlan) -> Result<(), String> {
    let Some(kept) = world.purges_kept else { return Ok(()) };
    let path = format!("/{database}/_purged_infos_limit");
    match client.json("PUT", &path, &json!(kept)).await {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("PUT {path}: {other:?}")),
    }
}

/// What an answer to a write says.
enum Outcome {
    Done(String),
    Refused,
    Unknown,
}

fn outcome(status: u16, rev: Option<&str>) -> Outcome {
    match (status, rev) {
        (200..300, Some(rev)) => Outcome::Done(rev.to_owned()),
        (400..500, _) => Outcome::Refused,
        _ => Outcome::Unknown,
    }
}

fn outcome_of(answer: &Result<Answer, NoAnswer>) -> Outcome {
    match answer {
        Ok(answer) => outcome(answer.status, answer.json()["rev"].as_str()),
        Err(NoAnswer) => Outcome::Unknown,
    }
}

impl Worker {
    pub(super) fn own_id(&self, doc: u32) -> String {
        format!("{}-{doc:02}", self.name)
    }

    /// Whether it is certain what is there, after a look if need be.
    async fn settled(&mut self, doc: u32) -> Result<bool, Violation> {
        let own = self.own.entry(doc).or_default();
        let known = match own.certain() {
            Some(State::Live(_, rev)) => rev.is_some(),
            Some(_) => true,
            None => false,
        };
        if known { Ok(true) } else { self.own_read(doc).await }
    }

    pub(super) async fn own_put(&mut self, doc: u32, v: u64) -> Result<(), Violation> {
        if !self.settled(doc).await? {
            return Ok(());
        }
        let rev = self.own.entry(doc).or_default().rev();
        let mut sent = body(&self.name, v);
        if let Some(rev) = &rev {
            sent["_rev"] = json!(rev);
        }
        let path = format!("/{OWN}/{}", self.own_id(doc));
        let room = self.locked(|s| s.scarce.get(&0).copied());
        let answer = self.call("PUT", &path, &sent).await;
        if let Ok(answer) = &answer {
            self.keeps_room(&self.own_id(doc), room, answer)?;
        }
        self.own_wrote(doc, rev, v, outcome_of(&answer)).await
    }

    /// Takes in what came of a write over `rev`; value 0 deletes.
    async fn own_wrote(&mut self, doc: u32, rev: Option<String>, v: u64, came: Outcome) -> Result<(), Violation> {
        let own = self.own.entry(doc).or_default();
        let certain = own.certain().is_some();
        match (came, v, rev) {
            (Outcome::Done(_), 0, _) => own.deleted(),
            (Outcome::Done(new), v, _) => own.wrote(v, &new),
            (Outcome::Unknown, 0, Some(rev)) => own.maybe_deleted(&rev),
            (Outcome::Unknown, 0, None) => {}
            (Outcome::Unknown, v, rev) => own.maybe_wrote(rev, v),
            (Outcome::Refused, _, rev) if certain => {
                let what = format!("{}: a write over {rev:?} was refused, but nobody else writes it", self.own_id(doc));
                return broken("I8", what);
            }
            // Something that was sent before may have come first.
            (Outcome::Refused, ..) => drop(self.own_read(doc).await?),
        }
        Ok(())
    }

    pub(super) async fn own_delete(&mut self, doc: u32) -> Result<(), Violation> {
        if !self.settled(doc).await? {
            return Ok(());
        }
        let Some(rev) = self.own.entry(doc).or_default().rev() else { return Ok(()) };
        let path = format!("/{OWN}/{}?rev={rev}", self.own_id(doc));
        let answer = self.call("DELETE", &path, &Value::Null).await;
        self.own_wrote(doc, Some(rev), 0, outcome_of(&answer)).await
    }

    pub(super) async fn own_purge(&mut self, doc: u32) -> Result<(), Violation> {
        if !self.settled(doc).await? {
            return Ok(());
        }
        let id = self.own_id(doc);
        let own = self.own.entry(doc).or_default();
        let Some(rev) = own.rev() else { return Ok(()) };
        own.purged = true;
        let answer = self.call("POST", &format!("/{OWN}/_purge"), &json!({ id.as_str(): [rev] })).await;
        let own = self.own.entry(doc).or_default();
        match answer {
            Ok(a) if a.status == 201 && a.json()["purged"][&id] == json!([rev]) => own.was_purged(),
            Ok(a) if a.status < 400 && own.certain().is_some() => {
                return broken("I7", format!("{id}: purging {rev} answered {} {}", a.status, a.json()));
            }
            _ => own.maybe_purged(&rev),
        }
        Ok(())
    }

    pub(super) async fn own_bulk(&mut self, edits: &[(u32, u64)]) -> Result<(), Violation> {
        let (mut docs, mut sent) = (Vec::new(), Vec::new());
        for (doc, v) in edits {
            if !self.settled(*doc).await? {
                return Ok(());
            }
            let rev = self.own.entry(*doc).or_default().rev();
            let mut item = if *v == 0 { json!({ "_deleted": true }) } else { body(&self.name, *v) };
            item["_id"] = json!(self.own_id(*doc));
            match &rev {
                Some(rev) => item["_rev"] = json!(rev),
                None if *v == 0 => continue,
                None => {}
            }
            docs.push(item);
            sent.push((*doc, *v, rev));
        }
        let answer = self.call("POST", &format!("/{OWN}/_bulk_docs"), &json!({ "docs": docs })).await;
        let items = match &answer {
            Ok(a) if a.status < 300 => a.json().as_array().cloned().unwrap_or_default(),
            _ => vec![],
        };
        if !items.is_empty() && items.len() != sent.len() {
            return broken("I11", format!("{} items for {} documents", items.len(), sent.len()));
        }
        for (n, (doc, v, rev)) in sent.into_iter().enumerate() {
            let came = match items.get(n) {
                None => Outcome::Unknown,
                Some(item) if item["id"] != json!(self.own_id(doc)) => {
                    return broken("I11", format!("item {item} stands for {}", self.own_id(doc)));
                }
                Some(item) if item["error"] == "conflict" => Outcome::Refused,
                Some(item) => outcome(200, item["rev"].as_str()),
            };
            self.own_wrote(doc, rev, v, came).await?;
        }
        Ok(())
    }

    /// Reads a document; whether an answer came, so that it is certain what is there.
    pub(super) async fn own_read(&mut self, doc: u32) -> Result<bool, Violation> {
        let id = self.own_id(doc);
        let answer = self.call("GET", &format!("/{OWN}/{id}"), &Value::Null).await;
        let shown = match &answer {
            Ok(a) if a.status == 200 => {
                let found = a.json();
                let v = found["v"].as_u64().unwrap_or(0);
                let mut bare = found.clone();
                if let Some(members) = bare.as_object_mut() {
                    members.retain(|name, _| !name.starts_with('_'));
                }
                if bare != body(&self.name, v) {
                    return broken("I27", format!("{id}: {found} was never written"));
                }
                State::Live(v, found["_rev"].as_str().map(str::to_owned))
            }
            Ok(a) if a.status == 404 && a.json()["reason"] == "deleted" => State::Dead,
            Ok(a) if a.status == 404 => State::Absent,
            _ => return Ok(false),
        };
        let own = self.own.entry(doc).or_default();
        let possible = own.possible();
        if own.saw(&shown) {
            return Ok(true);
        }
        let written = possible.iter().any(|s| matches!(s, State::Live(..)));
        let invariant = if matches!(shown, State::Live(..)) && !written { "I7" } else { "I1" };
        broken(invariant, format!("{id}: {shown:?} shown, possible {possible:?}"))
    }

    /// For each document of this client that may be there: the documents that its states stand for.
    pub(super) fn expected(&self) -> BTreeMap<String, Vec<Option<Value>>> {
        let document = |state: &State| match state {
            State::Live(v, _) => Some(body(&self.name, *v)),
            State::Absent | State::Dead => None,
        };
        let of = |(doc, own): (&u32, &crate::private::Own)| {
            (self.own_id(*doc), own.possible().iter().map(document).collect())
        };
        self.own.iter().map(of).collect()
    }

    /// Reads a view; whether an answer came.
    pub(super) async fn own_view(&mut self, view: usize) -> Result<bool, Violation> {
        let (name, _, reduce) = VIEWS[view];
        let expected = self.expected();
        let range = format!("startkey=[%22{0}%22]&endkey=[%22{0}%22,%7B%7D]", self.name);
        let path = format!("/{OWN}/_design/sim/_view/{name}?{range}&reduce=false");
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(found) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(false) };
        let found = found["rows"].as_array().cloned().unwrap_or_default();
        let place =
            |row: &Value| (row["key"][1].as_u64(), row["key"][1].as_str().map(str::to_owned), row["id"].to_string());
        if found.windows(2).any(|pair| place(&pair[0]) > place(&pair[1])) {
            return broken("I20", format!("{path}: out of order: {found:?}"));
        }
        let mut by_doc: BTreeMap<String, Vec<(Value, Value)>> = BTreeMap::new();
        for row in &found {
            let id = row["id"].as_str().unwrap_or_default().to_owned();
            by_doc.entry(id).or_default().push((row["key"].clone(), row["value"].clone()));
        }
        if let Some(stranger) = by_doc.keys().find(|id| !expected.contains_key(*id)) {
            return broken("I17", format!("{path}: rows of {stranger}, which was never written"));
        }
        for (id, states) in &expected {
            let shown = by_doc.get(id).cloned().unwrap_or_default();
            let fits = |state: &Option<Value>| state.as_ref().map_or(vec![], |doc| rows(view, doc)) == shown;
            if !states.iter().any(fits) {
                return broken("I17", format!("{path}: {id} has the rows {shown:?}, possible {states:?}"));
            }
        }
        match reduce {
            Some(reduce) if expected.values().all(|states| states.len() == 1) => {
                self.own_reduce(view, reduce, &range, &expected).await
            }
            _ => Ok(true),
        }
    }

    /// Reads the reduced view and holds it against the rows that must be there.
    async fn own_reduce(
        &mut self,
        view: usize,
        reduce: &str,
        range: &str,
        expected: &BTreeMap<String, Vec<Option<Value>>>,
    ) -> Result<bool, Violation> {
        let path = format!("/{OWN}/_design/sim/_view/{}?{range}&group=true", VIEWS[view].0);
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(found) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(false) };
        let mut groups: BTreeMap<String, u64> = BTreeMap::new();
        for (key, value) in expected.values().flatten().flatten().flat_map(|doc| rows(view, doc)) {
            let add = if reduce == "_count" { 1 } else { value.as_u64().unwrap_or(0) };
            *groups.entry(key[1].as_str().unwrap_or_default().to_owned()).or_default() += add;
        }
        let shown = found["rows"].as_array().cloned().unwrap_or_default();
        let group = |row: &Value| Some((row["key"][1].as_str()?.to_owned(), row["value"].as_u64()?));
        let shown: BTreeMap<String, u64> = shown.iter().filter_map(group).collect();
        if shown != groups {
            return broken("I17", format!("{path}: {shown:?}, expected {groups:?}"));
        }
        // Others write meanwhile: what is kept for this answer is checked at the end.
        Ok(self.own_whole(view).await.is_some())
    }

    /// What a view of all clients' documents is reduced to, when an answer came.
    async fn own_whole(&mut self, view: usize) -> Option<u64> {
        let answer = self.call("GET", &format!("/{OWN}/_design/sim/_view/{}", VIEWS[view].0), &Value::Null).await;
        let found = answer.ok().filter(|a| a.status == 200)?.json();
        let rows = found["rows"].as_array()?;
        rows.first().map_or(Some(0), |row| row["value"].as_u64())
    }

    /// At the end: a view reduced as a whole is what its rows add up to; whether answers came.
    async fn check_whole(&mut self, view: usize, reduce: &str) -> Result<bool, Violation> {
        let path = format!("/{OWN}/_design/sim/_view/{}?reduce=false", VIEWS[view].0);
        let Some(whole) = self.own_whole(view).await else { return Ok(false) };
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(found) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(false) };
        let values = found["rows"].as_array().into_iter().flatten().map(|row| row["value"].as_u64().unwrap_or(0));
        let sum: u64 = if reduce == "_count" { values.count() as u64 } else { values.sum() };
        match whole == sum {
            true => Ok(true),
            false => broken("I17", format!("{path}: reduced to {whole}, and its rows to {sum}")),
        }
    }

    /// Asks a query, and reads on in the feed by selector after a paged one; whether answers came.
    pub(super) async fn own_find(&mut self, query: u32, k: u64, paged: bool) -> Result<bool, Violation> {
        let (selector, expected) = (selector(query, &self.name, k), self.expected());
        let mut ask = json!({ "selector": selector, "limit": if paged { 2 } else { 1_000 } });
        let mut found = Vec::new();
        for _page in 0..40 {
            let answer = self.call("POST", &format!("/{OWN}/_find"), &ask).await;
            let Some(page) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(false) };
            let docs = page["docs"].as_array().cloned().unwrap_or_default();
            let last = docs.is_empty() || !paged;
            found.extend(docs);
            if last {
                break;
            }
            ask["bookmark"] = page["bookmark"].clone();
        }
        let mut shown = BTreeSet::new();
        for doc in &found {
            let id = doc["_id"].as_str().unwrap_or_default().to_owned();
            if !matches(&selector, doc) {
                return broken("I18", format!("{selector} gives {doc}"));
            }
            let states = expected.get(&id).map(Vec::as_slice).unwrap_or_default();
            if !states.iter().flatten().any(|state| state["v"] == doc["v"]) {
                return broken("I18", format!("{selector} gives {doc}, possible {states:?}"));
            }
            if !shown.insert(id) {
                return broken("I18", format!("{selector} gives {doc} twice"));
            }
        }
        let must =
            |states: &Vec<Option<Value>>| states.iter().all(|s| s.as_ref().is_some_and(|d| matches(&selector, d)));
        if let Some((id, states)) = expected.iter().find(|(id, states)| must(states) && !shown.contains(*id)) {
            return broken("I18", format!("{selector} leaves out {id}, which is {states:?}"));
        }
        if paged { self.own_changes().await } else { Ok(true) }
    }

    pub(super) async fn own_compact(&mut self, views: bool) -> Result<(), Violation> {
        let paths = if views { ["_compact/sim", "_view_cleanup"].as_slice() } else { ["_compact"].as_slice() };
        for path in paths {
            let _ = self.call("POST", &format!("/{OWN}/{path}"), &Value::Null).await;
        }
        Ok(())
    }

    /// At the end: every document, view and query.
    pub(super) async fn check_own(&mut self) -> Result<(), Violation> {
        let docs: Vec<u32> = self.own.keys().copied().collect();
        let mut answered = true;
        for doc in docs {
            answered &= self.own_read(doc).await?;
        }
        if self.own.is_empty() {
            return Ok(());
        }
        for (view, (_, _, reduce)) in VIEWS.iter().enumerate() {
            answered &= self.own_view(view).await?;
            if let Some(reduce) = reduce {
                answered &= self.check_whole(view, reduce).await?;
            }
        }
        for query in 0..10 {
            answered &= self.own_find(query, 2, query % 2 == 0).await?;
        }
        for query in 0..super::searched::QUERIES {
            answered &= self.own_search(query, 2).await?;
        }
        if answered { Ok(()) } else { broken("I28", "own documents do not answer after all faults".into()) }
    }
}
