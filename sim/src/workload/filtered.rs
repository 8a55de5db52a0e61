//! Followers of the shared database's feed by a filter, with documents or without, in every mode; and the feed read
//! backwards. After all faults each follower, who went on from where it was, was told of every winner that its filter
//! chooses; a row that was asked for with its document has it, of that revision or of one that builds on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::documents::is_whole;
use super::feed::lines_of;
use super::seen::is_design;
use super::{DB, Worker, broken};
use crate::client::{Ask, Client};
use crate::model::Violation;
use crate::plan::{FeedMode, Filter};

/// How long a feed that does not end by itself is listened to.
const LISTEN: Duration = Duration::from_secs(3);
/// The `timeout` of waiting feeds, in milliseconds.
const WAIT_MS: u64 = 1_500;
/// How often the end of a feed is asked for at the end.
const ENDS: u32 = 50;
/// What functions choose: every second value, and tombstones.
const CHOOSES: &str = "doc._deleted || (doc.v || 0) % 2 === 0";

/// Where a follower by one filter is, and what it was told last of each document: revision, deleted.
pub(super) struct Place {
    since: String,
    told: BTreeMap<String, (String, bool)>,
}

impl Default for Place {
    fn default() -> Place {
        Place { since: "0".into(), told: BTreeMap::new() }
    }
}

/// What one follower does.
#[derive(Default)]
pub(super) struct Places {
    by: BTreeMap<Filter, Place>,
    /// Whether it reads backwards, too.
    descends: bool,
}

/// The parameters of a filter.
fn parameters(by: Filter) -> &'static str {
    match by {
        Filter::None => "",
        Filter::Selector => "&filter=_selector",
        Filter::Function => "&filter=filters/few",
        Filter::View => "&filter=_view&view=filters/few",
    }
}

/// The body of a request by a filter.
fn body(by: Filter) -> Value {
    match by {
        Filter::Selector => json!({ "selector": { "$or": [{ "_deleted": true }, { "v": { "$mod": [2, 0] } }] } }),
        _ => json!({}),
    }
}

/// Makes the filter and the view, in peace.
///
/// # Errors
/// The request that was refused.
pub(crate) async fn set_up(client: &mut Client) -> Result<(), String> {
    let few = json!({
        "filters": { "few": format!("function (doc, req) {{ return !!({CHOOSES}); }}") },
        "views": { "few": { "map": format!("function (doc) {{ if ({CHOOSES}) {{ emit(null, null); }} }}") } },
    });
    super::own::carry_out(client, [("PUT", format!("/{DB}/_design/filters"), few)], &[409]).await
}

impl Worker {
    /// Reads the feed on by a filter.
    pub(super) async fn follow_filtered(
        &mut self,
        by: Filter,
        mode: FeedMode,
        docs: bool,
        limit: Option<u32>,
    ) -> Result<(), Violation> {
        let kind = match mode {
            FeedMode::Normal => "normal",
            FeedMode::Longpoll => "longpoll",
            FeedMode::Continuous => "continuous",
            FeedMode::EventSource => "eventsource",
        };
        let mut path = self.path_of(by, docs);
        path.push_str(&format!("&feed={kind}&timeout={WAIT_MS}"));
        if let Some(limit) = limit {
            path.push_str(&format!("&limit={limit}"));
        }
        if matches!(mode, FeedMode::Normal | FeedMode::Longpoll) {
            return self.matched_page(by, &path, limit).await.map(drop);
        }
        self.sends();
        let asked = body(by);
        let part = self.client.listen_to(Ask::json("POST", &path, &asked), LISTEN).await;
        self.count("POST", &path, part.as_ref().map_or(0, |p| p.status));
        let Some(part) = part.ok().filter(|p| p.status == 200) else { return Ok(()) };
        let (rows, since) = lines_of(&part.body, mode == FeedMode::EventSource);
        self.matched_rows(by, &rows, docs)?;
        if let Some(since) = since {
            self.filtered.by.entry(by).or_default().since = since;
        }
        Ok(())
    }

    fn path_of(&mut self, by: Filter, docs: bool) -> String {
        let since = &self.filtered.by.entry(by).or_default().since;
        let docs = if docs { "&include_docs=true" } else { "" };
        format!("/{DB}/_changes?since={since}{}{docs}", parameters(by))
    }

    /// Reads a whole answer; how many rows it had and how many are pending, if one came.
    async fn matched_page(
        &mut self,
        by: Filter,
        path: &str,
        limit: Option<u32>,
    ) -> Result<Option<(usize, u64)>, Violation> {
        let answer = self.call("POST", path, &body(by)).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(None) };
        let rows = body["results"].as_array().cloned().unwrap_or_default();
        if limit.is_some_and(|limit| rows.len() > limit as usize) {
            return broken("I16", format!("{path}: {} rows", rows.len()));
        }
        self.matched_rows(by, &rows, path.contains("include_docs"))?;
        match (body["last_seq"].as_str(), body["pending"].as_u64()) {
            (Some(since), Some(pending)) => {
                self.filtered.by.entry(by).or_default().since = since.to_owned();
                Ok(Some((rows.len(), pending)))
            }
            _ => broken("I13", format!("{path}: no last_seq or pending: {body}")),
        }
    }

    /// Takes in rows of a follower.
    fn matched_rows(&mut self, by: Filter, rows: &[Value], docs: bool) -> Result<(), Violation> {
        for row in rows {
            let (Some(id), Some(rev)) = (row["id"].as_str(), row["changes"][0]["rev"].as_str()) else { continue };
            if is_design(id) {
                continue;
            }
            let deleted = row["deleted"] == json!(true);
            let value = self.locked(|s| s.model.value_of(id, rev));
            if by != Filter::None && !deleted && value.is_some_and(|v| v % 2 == 1) {
                return broken(
                    "I13",
                    format!("{} was told of {id} {rev}, whose value is {value:?}, by {by:?}", self.name),
                );
            }
            if docs {
                self.has_its_document(row, (id, rev), by)?;
            }
            self.filtered.by.entry(by).or_default().told.insert(id.to_owned(), (rev.to_owned(), deleted));
        }
        Ok(())
    }

    /// The document of a row is of the row's revision, or of one that came after it.
    fn has_its_document(&self, row: &Value, (id, rev): (&str, &str), by: Filter) -> Result<(), Violation> {
        let doc = &row["doc"];
        let Some(shown) = doc["_rev"].as_str().filter(|_| doc["_id"] == json!(id)) else {
            return match self.locked(|s| s.damaged) {
                true => Ok(()),
                false => {
                    broken("I32", format!("{id}: {}: the row of {rev} by {by:?} has no document: {row}", self.name))
                }
            };
        };
        if !is_whole(doc) {
            return broken("I27", format!("{id}: {shown} does not have the text that goes with its value"));
        }
        self.locked(|s| s.model.saw(id, shown, doc["v"].as_u64()))?;
        match shown != rev && self.locked(|s| s.model.builds_on(id, rev, shown)) {
            true => broken(
                "I32",
                format!("{id}: {}: the row of {rev} by {by:?} has the document of before, {shown}", self.name),
            ),
            false => Ok(()),
        }
    }

    /// Reads the feed backwards.
    pub(super) async fn descend(&mut self, limit: Option<u32>) -> Result<(), Violation> {
        self.filtered.descends = true;
        // What others have been told of is there, on one server; on several the replica that answers may lag.
        let least: BTreeSet<String> = self.locked(|s| match s.several {
            true => BTreeSet::new(),
            false => s.model.documents().into_iter().filter(|doc| !s.model.lasting(doc).is_empty()).collect(),
        });
        let limits = limit.map(|n| format!("&limit={n}")).unwrap_or_default();
        let path = format!("/{DB}/_changes?descending=true{limits}");
        let Some(rows) = self.backwards(&path).await? else { return Ok(()) };
        if limit.is_some_and(|limit| rows.len() > limit as usize) {
            return broken("I16", format!("{path}: {} rows", rows.len()));
        }
        let told: BTreeSet<&String> = rows.iter().map(|(id, _)| id).collect();
        match least.iter().find(|doc| !told.contains(doc)).filter(|_| limit.is_none()) {
            Some(doc) => broken("I13", format!("{doc}: a feed read backwards does not tell of it: {rows:?}")),
            None => Ok(()),
        }
    }

    /// The rows of a feed read backwards: documents, revisions and whether they are deleted.
    async fn backwards(&mut self, path: &str) -> Result<Option<Vec<(String, (String, bool))>>, Violation> {
        let answer = self.call("GET", path, &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(None) };
        let row = |row: &Value| {
            let (id, rev) = (row["id"].as_str()?.to_owned(), row["changes"][0]["rev"].as_str()?.to_owned());
            Some((id, (rev, row["deleted"] == json!(true))))
        };
        let all = body["results"].as_array().into_iter().flatten().filter_map(row);
        let rows: Vec<(String, (String, bool))> = all.filter(|(id, _)| !is_design(id)).collect();
        Ok(Some(rows))
    }

    /// At the end: each follower was told of every winner that its filter chooses.
    pub(super) async fn check_filtered(&mut self, winners: &BTreeMap<String, (String, bool)>) -> Result<(), Violation> {
        let filters: Vec<Filter> = self.filtered.by.keys().copied().collect();
        for by in filters {
            let mut left = ENDS;
            loop {
                let path = self.path_of(by, left.is_multiple_of(2));
                match self.matched_page(by, &path, None).await? {
                    None => return broken("I28", format!("{path} does not answer after all faults")),
                    Some((0, 0)) => break,
                    Some(_) if left == 0 => return broken("I15", format!("{path}: no end")),
                    Some(_) => left -= 1,
                }
            }
            let chosen = |doc: &str, (rev, deleted): &(String, bool)| match (by, deleted) {
                (Filter::None, _) | (Filter::Function, true) => true,
                // Whether a tombstone has rows in a view is a view's own matter.
                (_, true) => false,
                (_, false) => self.locked(|s| s.model.value_of(doc, rev)).is_some_and(|v| v % 2 == 0),
            };
            let told = &self.filtered.by[&by].told;
            if let Some((doc, winner)) = winners.iter().find(|(doc, w)| chosen(doc, w) && told.get(*doc) != Some(*w)) {
                let last = told.get(doc);
                return broken(
                    "I13",
                    format!("{doc}: {}: a feed by {by:?} ends with {last:?}, the tree with {winner:?}", self.name),
                );
            }
        }
        if !self.filtered.descends {
            return Ok(());
        }
        let path = format!("/{DB}/_changes?descending=true");
        match self.backwards(&path).await? {
            None => broken("I28", format!("{path} does not answer after all faults")),
            Some(rows) => match rows.iter().cloned().collect::<BTreeMap<_, _>>() == *winners
                && rows.len() == winners.len()
            {
                true => Ok(()),
                false => {
                    broken("I13", format!("{}: read backwards the feed has {rows:?}, there are {winners:?}", self.name))
                }
            },
        }
    }
}
