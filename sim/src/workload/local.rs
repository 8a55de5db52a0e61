//! A client's own local document, which is not replicated: it holds what was acknowledged last.

use serde_json::{Value, json};

use super::documents::outcome;
use super::{DB, Worker};
use crate::model::{Outcome, Violation};

/// A client's own local document: what was acknowledged last, and what was sent without an answer
/// (it may take effect late).
pub(super) struct Local {
    id: String,
    acknowledged: Option<u64>,
    unsure: Vec<u64>,
}

impl Local {
    /// The document of the client `name`.
    pub(super) fn of(name: &str) -> Local {
        Local { id: format!("_local/{name}"), acknowledged: None, unsure: Vec::new() }
    }
}

impl Worker {
    pub(super) async fn put_local(&mut self, v: u64) -> Result<(), Violation> {
        let answer = self.call("PUT", &format!("/{DB}/{}", self.local.id), &json!({ "v": v })).await;
        match outcome(&answer) {
            Outcome::Acknowledged(_) => self.local.acknowledged = Some(v),
            Outcome::Unknown => self.local.unsure.push(v),
            Outcome::Refused => {
                return Err(Violation { invariant: "I1", what: format!("a local document was refused: {answer:?}") });
            }
        }
        Ok(())
    }

    /// The local document holds what was acknowledged last, or something that was never answered.
    pub(super) async fn check_local(&mut self) -> Result<(), Violation> {
        let answer = self.call("GET", &format!("/{DB}/{}", self.local.id), &Value::Null).await;
        let stored = match &answer {
            Ok(a) if a.status == 200 => a.json()["v"].as_u64(),
            Ok(a) if a.status == 404 => None,
            other => return Err(Violation { invariant: "I28", what: format!("{}: {other:?}", self.local.id) }),
        };
        let unsure = stored.is_some_and(|v| self.local.unsure.contains(&v));
        if stored == self.local.acknowledged || unsure {
            return Ok(());
        }
        let (id, acknowledged) = (&self.local.id, self.local.acknowledged);
        Err(Violation { invariant: "I1", what: format!("{id}: {stored:?} stored, {acknowledged:?} acknowledged") })
    }
}
