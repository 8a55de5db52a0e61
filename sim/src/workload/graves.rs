//! Documents that one client writes, deletes and writes again while the nodes forget their tombstones: what was deleted
//! stays away, and what was written again is there.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{PASSING, Worker, broken};
use crate::client::{Answer, NoAnswer};
use crate::model::Violation;

/// What must be true of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grave {
    /// It is there.
    Laid,
    /// It is deleted.
    Buried,
    /// It is not known what became of it, for good: an edit without an answer may come late.
    Unknown,
}

/// All documents of the kind, by what makes their ids.
pub(super) type Graves = BTreeMap<u64, Grave>;

/// What is known after an edit that was to make it `wanted`.
fn outcome(before: Option<Grave>, wanted: Grave, answer: &Result<Answer, NoAnswer>) -> Option<Grave> {
    match answer {
        _ if before == Some(Grave::Unknown) => before,
        Ok(answer) if matches!(answer.status, 200 | 201) => Some(wanted),
        // Refused: nothing of it was stored.
        Ok(answer) if (400..500).contains(&answer.status) => before,
        _ => Some(Grave::Unknown),
    }
}

fn path(v: u64) -> String {
    format!("/{PASSING}/l{v}")
}

impl Worker {
    fn grave(&mut self, v: u64) -> Option<Grave> {
        self.locked(|s| s.together.graves.get(&v).copied())
    }

    fn note_grave(&mut self, v: u64, grave: Option<Grave>) {
        self.locked(|s| match grave {
            Some(grave) => drop(s.together.graves.insert(v, grave)),
            None => drop(s.together.graves.remove(&v)),
        });
    }

    /// Writes a document that is not there, with the same words each time.
    pub(super) async fn lay(&mut self, v: u64) -> Result<(), Violation> {
        let before = self.grave(v);
        self.note_grave(v, Some(Grave::Unknown));
        let answer = self.call("PUT", &path(v), &json!({ "v": v })).await;
        self.note_grave(v, outcome(before, Grave::Laid, &answer));
        Ok(())
    }

    /// Deletes it.
    pub(super) async fn bury(&mut self, v: u64) -> Result<(), Violation> {
        let before = self.grave(v);
        let Ok(shown) = self.call("GET", &path(v), &Value::Null).await else { return Ok(()) };
        let Some(rev) = shown.json()["_rev"].as_str().map(str::to_owned) else { return Ok(()) };
        self.note_grave(v, Some(Grave::Unknown));
        let answer = self.call("DELETE", &format!("{}?rev={rev}", path(v)), &Value::Null).await;
        self.note_grave(v, outcome(before, Grave::Buried, &answer));
        Ok(())
    }

    /// At the end: what this node's own replicas hold of them.
    pub(super) async fn check_graves(&mut self) -> Result<(), Violation> {
        for (v, grave) in self.locked(|s| s.together.graves.clone()) {
            let asked = format!("{}?r=1", path(v));
            let answer = self.call("GET", &asked, &Value::Null).await;
            match (grave, &answer) {
                (Grave::Unknown, Ok(a)) if matches!(a.status, 200 | 404) => {}
                (Grave::Laid, Ok(a)) if a.status == 200 => {}
                (Grave::Buried, Ok(a)) if a.status == 404 => {}
                (Grave::Laid, Ok(a)) if a.status == 404 => {
                    return broken("I1", format!("{asked}: written, and gone on {}: {}", self.name, a.json()));
                }
                (Grave::Buried, Ok(a)) if a.status == 200 => {
                    return broken("I7", format!("{asked}: deleted, and there on {}: {}", self.name, a.json()));
                }
                (_, other) => return broken("I28", format!("{asked}: {other:?} after all faults")),
            }
        }
        Ok(())
    }
}
