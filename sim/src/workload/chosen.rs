//! A follower of a client's own documents by a selector, resumed from where it was: after each answer it has told of
//! every document as it is. A design document declares the selectors of some clients; for the others all changes are
//! judged.

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
    since: String,
    told: BTreeMap<String, (String, bool)>,
}

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen { since: "0".into(), told: BTreeMap::new() }
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
    /// Reads on; whether an answer came.
    pub(super) async fn own_changes(&mut self) -> Result<bool, Violation> {
        let path = format!("/{OWN}/_changes?filter=_selector&since={}", self.chosen.since);
        let answer = self.call("POST", &path, &json!({ "selector": selector(&self.name) })).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(false) };
        for row in body["results"].as_array().into_iter().flatten() {
            let (Some(id), Some(rev)) = (row["id"].as_str(), row["changes"][0]["rev"].as_str()) else { continue };
            if !id.starts_with(&format!("{}-", self.name)) {
                return broken("I13", format!("{} was told of {id}", self.name));
            }
            self.chosen.told.insert(id.to_owned(), (rev.to_owned(), row["deleted"] == json!(true)));
        }
        let Some(since) = body["last_seq"].as_str() else { return broken("I13", format!("no last_seq: {body}")) };
        since.clone_into(&mut self.chosen.since);
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
