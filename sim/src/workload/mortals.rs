//! Documents that say when they end: none is gone before, and in the end each that has ended is gone on every node.
//!
//! Each is written by one client, and looked at by all. The times are those of the world; the clock of one node may be
//! wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{PASSING, Worker, broken};
use crate::client::{Answer, NoAnswer};
use crate::model::Violation;

/// The member that says when a document ends.
const MEMBER: &str = "ends";
/// Seconds within which a document is gone once its time has come and all nodes are well: a node begins to look within
/// 30, and looks every 10; the rest is for the clock of a node that is late, and for nodes that come into sync.
const BOUND_S: u64 = 90;

/// What may be in force of a document, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mortal {
    /// Before it the document is there; `None`: it may never have been.
    least: Option<u64>,
    /// It has ended after it.
    most: u64,
}

/// All of them, by what makes their ids.
pub(super) type Mortals = BTreeMap<u64, Mortal>;

impl Mortal {
    /// While an edit is under way after which it ends at a time.
    fn edited(before: Option<Mortal>, ends: u64) -> Mortal {
        match before {
            Some(Mortal { least, most }) => Mortal { least: least.map(|least| least.min(ends)), most: most.max(ends) },
            None => Mortal { least: None, most: ends },
        }
    }

    /// After its answer.
    fn answered(self, before: Option<Mortal>, ends: u64, answer: &Result<Answer, NoAnswer>) -> Option<Mortal> {
        match answer {
            Ok(answer) if answer.status == 201 => Some(Mortal { least: Some(ends), most: ends }),
            // Refused: nothing of it was stored.
            Ok(answer) if (400..500).contains(&answer.status) => before,
            _ => Some(self),
        }
    }
}

fn path(v: u64) -> String {
    format!("/{PASSING}/m{v}")
}

/// The request that has documents of a database end.
pub(super) fn set_up() -> (&'static str, String, Value) {
    ("PUT", format!("/{PASSING}/_auto_purge"), json!({ "expires_at": MEMBER }))
}

impl Worker {
    /// What a right clock shows, in seconds since 1970.
    fn true_s(&mut self) -> u64 {
        self.locked(|s| s.world.as_ref().map_or(0, |world| (world.epoch() + world.now()).as_secs()))
    }

    /// Writes a document that ends in so many seconds, for the first time or anew.
    pub(super) async fn live(&mut self, v: u64, for_s: u64) -> Result<(), Violation> {
        let mut body = json!({ "v": v });
        let before = self.locked(|s| s.together.mortals.get(&v).copied());
        if before.is_some() {
            let Ok(shown) = self.call("GET", &path(v), &Value::Null).await else { return Ok(()) };
            let Some(rev) = shown.json()["_rev"].as_str().map(str::to_owned) else { return Ok(()) };
            body["_rev"] = json!(rev);
        }
        let ends = self.true_s() + for_s;
        body[MEMBER] = json!(ends);
        let under_way = Mortal::edited(before, ends);
        self.locked(|s| s.together.mortals.insert(v, under_way));
        let answer = self.call("PUT", &path(v), &body).await;
        let after = under_way.answered(before, ends, &answer);
        self.locked(|s| match after {
            Some(after) => drop(s.together.mortals.insert(v, after)),
            None => drop(s.together.mortals.remove(&v)),
        });
        Ok(())
    }

    /// Looks for one of those that are known.
    pub(super) async fn look_for(&mut self, nth: u64) -> Result<(), Violation> {
        let all = self.locked(|s| s.together.mortals.clone());
        let Some((v, mortal)) = all.into_iter().nth(nth as usize) else { return Ok(()) };
        let Ok(answer) = self.call("GET", &path(v), &Value::Null).await else { return Ok(()) };
        self.is_not_gone_early(v, mortal, &answer)
    }

    fn is_not_gone_early(&mut self, v: u64, mortal: Mortal, answer: &Answer) -> Result<(), Violation> {
        let now = self.true_s();
        match mortal.least {
            Some(least) if answer.status == 404 && now < least => {
                let what =
                    format!("{}: gone at {now} for {}, it ends at {least}: {}", path(v), self.name, answer.json());
                broken("I37", what)
            }
            _ => Ok(()),
        }
    }

    /// At the end: what this node's own replicas hold of them, once each that is to end has had time for it.
    pub(super) async fn check_mortals(&mut self) -> Result<(), Violation> {
        let mortals = self.locked(|s| s.together.mortals.clone());
        let begun = self.true_s();
        // Those that end long after all this are to be there.
        let soon = |mortal: &&Mortal| mortal.most < begun + BOUND_S;
        let last = mortals.values().filter(soon).map(|mortal| mortal.most).max();
        if let Some(last) = last {
            let wait = Duration::from_secs((last + BOUND_S).saturating_sub(begun));
            self.client.env().sleep(wait).await;
        }
        for (v, mortal) in mortals {
            let asked = format!("{}?r=1", path(v));
            let answer = match self.call("GET", &asked, &Value::Null).await {
                Ok(answer) if matches!(answer.status, 200 | 404) => answer,
                other => return broken("I28", format!("{asked}: {other:?} after all faults")),
            };
            self.is_not_gone_early(v, mortal, &answer)?;
            if answer.status == 200 && mortal.most + BOUND_S <= self.true_s() {
                let what = format!("{asked}: ended at {}, and there on {}: {}", mortal.most, self.name, answer.json());
                return broken("I37", what);
            }
            self.locked(|s| {
                s.history.counts(if answer.status == 200 { "mortals that live" } else { "mortals that ended" })
            });
        }
        Ok(())
    }
}
