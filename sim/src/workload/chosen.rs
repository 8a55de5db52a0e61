//! A follower of a client's own documents by a selector, resumed from where it was: after each answer it has told of
//! every document as it is. A design document declares the selectors of some clients; for the others all changes are
//! checked.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::own::OWN;
use super::{Worker, broken};
use crate::model::Violation;
use crate::private::State;

/// The clients whose selectors are declared.
const DECLARED: [&str; 4] = ["c1", "c2", "c3", "c5"];

/// Where a follower is, and the last that it was told of each document: revision, deleted.
pub(super) struct Chosen {
    pub since: String,
    pub told: BTreeMap<String, (String, bool)>,
}

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen { since: "0".into(), told: BTreeMap::new() }
    }
}

impl Chosen {
    /// Takes in what a feed answered, all of which is to belong to `follower`.
    pub(super) fn take(
        &mut self,
        follower: &str,
        body: &Value,
        belongs: impl Fn(&str) -> bool,
    ) -> Result<(), Violation> {
        for row in body["results"].as_array().into_iter().flatten() {
            let (Some(id), Some(rev)) = (row["id"].as_str(), row["changes"][0]["rev"].as_str()) else { continue };
            if !belongs(id) {
                return broken("I13", format!("{follower} was told of {id}"));
            }
            self.told.insert(id.to_owned(), (rev.to_owned(), row["deleted"] == json!(true)));
        }
        let Some(since) = body["last_seq"].as_str() else { return broken("I13", format!("no last_seq: {body}")) };
        since.clone_into(&mut self.since);
        Ok(())
    }
}

/// Takes the documents of one client, and tombstones of theirs.
fn selector(name: &str) -> Value {
    json!({ "_id": { "$gt": format!("{name}-"), "$lt": format!("{name}.") } })
}

/// The design document that declares selectors.
pub(super) fn declarations() -> Value {
    let filters: serde_json::Map<_, _> = DECLARED.iter().map(|name| ((*name).to_owned(), selector(name))).collect();
    json!({ "language": "query", "filters": filters })
}

impl Worker {
    /// What a feed by a selector answers, where an answer came.
    pub(super) async fn changes_by(&mut self, db: &str, since: &str, selector: Value) -> Option<Value> {
        let path = format!("/{db}/_changes?filter=_selector&since={since}");
        let answer = self.call("POST", &path, &json!({ "selector": selector })).await;
        answer.ok().filter(|a| a.status == 200).map(|a| a.json())
    }

    /// Reads on; whether an answer came.
    pub(super) async fn own_changes(&mut self) -> Result<bool, Violation> {
        let (since, wanted) = (self.chosen.since.clone(), selector(&self.name));
        let Some(body) = self.changes_by(OWN, &since, wanted).await else { return Ok(false) };
        let prefix = format!("{}-", self.name);
        self.chosen.take(&self.name, &body, |id| id.starts_with(&prefix))?;
        let docs: Vec<u32> = self.own.keys().copied().collect();
        for doc in docs {
            // What was lost altogether is not the feed's fault: the read says so.
            if !self.was_told(doc) {
                if !self.own_read(doc).await? {
                    return Ok(false);
                }
                if !self.was_told(doc) {
                    let (id, state) = (self.own_id(doc), self.own.get(&doc));
                    let told = self.chosen.told.get(&id);
                    return broken("I13", format!("a feed by selector told {told:?} of {id}, which is {state:?}"));
                }
            }
        }
        Ok(true)
    }

    /// Whether the last that was told of a document is what is there for certain.
    fn was_told(&self, doc: u32) -> bool {
        let told = self.chosen.told.get(&self.own_id(doc));
        match self.own.get(&doc).and_then(|own| own.certain()) {
            Some(State::Live(_, Some(rev))) => told == Some(&(rev, false)),
            Some(State::Dead) => told.is_some_and(|(_, deleted)| *deleted),
            Some(State::Live(_, None) | State::Absent) | None => true,
        }
    }
}
