//! Databases of a few names that several clients make, delete and make again: what was acknowledged in one that nobody
//! deleted is there in the end, what was in one that was deleted is not, and all nodes tell the same.
//!
//! Two may have been made under one name on two sides of a split, or at the same time; a deletion ends those that the
//! node that was asked knows of (`docs/consistency.md`). So of a deletion it is checked only what was in a database
//! that was certainly the only one of its name.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Worker, broken};
use crate::model::Violation;

/// How often it is looked whether a deletion came to all nodes.
const LOOKS: u32 = 5;

/// One of the names.
#[derive(Default)]
pub(crate) struct Common {
    /// Deletions that were sent, and those after which every node knew, or that did nothing.
    deletions: u64,
    settled: u64,
    /// Deletions that came to some nodes and will to the others, in all, and those that are known to have done so.
    spreading: u64,
    spread: u64,
    /// Creations that were sent, and those without an answer.
    creations: u64,
    open: u64,
    /// How many databases of the name there may be.
    several: u64,
    /// Whether there must be one.
    made: bool,
    /// Documents that must be there.
    docs: BTreeSet<String>,
    /// Those that are in the only one.
    only: BTreeSet<String>,
    /// Those that must not be seen on any node any more, and those that will not be in the end.
    gone: BTreeSet<String>,
    ending: BTreeSet<String>,
    /// What the first node shows in the end.
    rows: Option<Option<BTreeSet<String>>>,
}

impl Common {
    /// The number of deletions, where all of them have done what they do.
    fn calm(&self) -> Option<u64> {
        (self.settled == self.deletions).then_some(self.deletions)
    }

    /// How many creations there were, where what is there is of one of them alone.
    fn single(&self) -> Option<u64> {
        (self.several == 1).then_some(self.creations)
    }

    fn creation_sent(&mut self) {
        if self.several == 0 {
            self.only.clear();
        }
        self.creations += 1;
        self.several += 1;
        self.open += 1;
    }

    /// `calm`: what that was before.
    fn creation_answered(&mut self, status: u16, calm: Option<u64>) {
        match status {
            // A deletion may have ended it before this came.
            201 | 202 => {
                self.open = self.open.saturating_sub(1);
                self.made |= calm.is_some_and(|deletions| deletions == self.deletions);
            }
            // It did nothing.
            400..500 => {
                self.open = self.open.saturating_sub(1);
                self.several = self.several.saturating_sub(1);
            }
            _ => {}
        }
    }

    fn deletion_sent(&mut self) {
        self.deletions += 1;
        self.made = false;
        self.docs.clear();
    }

    /// `single`: what that was before, with the documents that were there.
    fn deletion_answered(&mut self, status: u16, single: Option<u64>, there: BTreeSet<String>) {
        let was_alone = single.is_some() && single == self.single();
        match status {
            200 => {
                self.settled += 1;
                if was_alone {
                    self.gone.extend(there);
                    (self.several, self.open) = (0, 0);
                }
            }
            202 => {
                self.spreading += 1;
                if was_alone {
                    self.ending.extend(there);
                }
                // Other nodes may have it still.
                self.several = self.several.max(2);
            }
            // It did nothing.
            404 => self.settled += 1,
            // It may be carried out at any later time.
            _ => self.several = self.several.max(2),
        }
    }

    /// No node has any of the name, and none was made since there were so many creations; `spreading`: deletions that
    /// were answered so before that was seen.
    fn seen_nowhere(&mut self, creations: u64, spreading: u64) {
        if self.creations == creations && self.open == 0 {
            self.several = 0;
            // Another one may have seen the same.
            self.settled += spreading.saturating_sub(self.spread);
            self.spread = self.spread.max(spreading);
            self.gone.append(&mut self.ending);
        }
    }

    /// What is wrong with the rows of one node in the end.
    fn flaw(&self, rows: Option<&BTreeSet<String>>) -> Option<(&'static str, String)> {
        if self.made && rows.is_none() {
            return Some(("I1", "it was made, nobody deleted it, and it is gone".to_owned()));
        }
        let has = |doc: &&String| rows.is_some_and(|rows| rows.contains(*doc));
        if let Some(doc) = self.docs.iter().find(|doc| !has(doc)) {
            return Some(("I1", format!("{doc} is gone")));
        }
        let back = self.gone.iter().chain(&self.ending).find(has);
        back.map(|doc| ("I7", format!("{doc} is back, of a database that was deleted")))
    }
}

fn path(name: u32) -> String {
    format!("/common-{name}")
}

/// The ids of a list.
pub(super) fn ids(list: &Value) -> BTreeSet<String> {
    let rows = list["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| Some(row["id"].as_str()?.to_owned())).collect()
}

impl Worker {
    fn common<T>(&self, name: u32, f: impl FnOnce(&mut Common) -> T) -> T {
        self.locked(|s| f(s.together.common.entry(name).or_default()))
    }

    pub(super) async fn common_create(&mut self, name: u32) -> Result<(), Violation> {
        let made_with = self.locked(|s| s.together.made_with.clone());
        let calm = self.common(name, |common| {
            common.creation_sent();
            common.calm()
        });
        let answer = self.call("PUT", &format!("{}{made_with}", path(name)), &Value::Null).await;
        let status = answer.map_or(0, |answer| answer.status);
        self.common(name, |common| common.creation_answered(status, calm));
        Ok(())
    }

    pub(super) async fn common_delete(&mut self, name: u32) -> Result<(), Violation> {
        let (single, there) = self.common(name, |common| {
            common.deletion_sent();
            (common.single(), common.only.clone())
        });
        let answer = self.call("DELETE", &path(name), &Value::Null).await;
        let status = answer.map_or(0, |answer| answer.status);
        self.common(name, |common| common.deletion_answered(status, single, there));
        if matches!(status, 200 | 202) { self.look_everywhere(name).await } else { Ok(()) }
    }

    /// Looks whether no node has a database of the name, twice: one may have had it from another in between.
    async fn look_everywhere(&mut self, name: u32) -> Result<(), Violation> {
        let mut looks = 0;
        let (creations, spreading, open) = self.common(name, |c| (c.creations, c.spreading, c.open));
        for _ in 0..LOOKS {
            if open > 0 || self.common(name, |common| common.creations != creations) {
                break;
            }
            let mut nowhere = true;
            for node in self.cluster() {
                let mut client = self.another_node(node);
                let answer = self.call_by(&mut client, "GET", &path(name), &Value::Null).await;
                nowhere &= answer.is_ok_and(|answer| answer.status == 404);
            }
            looks = if nowhere { looks + 1 } else { 0 };
            if looks == 2 {
                self.common(name, |common| common.seen_nowhere(creations, spreading));
                break;
            }
            self.client.env().sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    pub(super) async fn common_write(&mut self, name: u32, v: u64) -> Result<(), Violation> {
        let (document, doc) = (format!("{}/m{v}", path(name)), format!("m{v}"));
        let (calm, single) = self.common(name, |common| (common.calm(), common.single()));
        let Ok(answer) = self.call("PUT", &document, &json!({ "v": v })).await else { return Ok(()) };
        if self.stays(&document, &answer)? {
            self.common(name, |common| {
                if calm.is_some_and(|deletions| deletions == common.deletions) {
                    common.docs.insert(doc.clone());
                    if single.is_some() && single == common.single() {
                        common.only.insert(doc);
                    }
                }
            });
        }
        Ok(())
    }

    pub(super) async fn common_check(&mut self, name: u32) -> Result<(), Violation> {
        let gone = self.common(name, |common| common.gone.clone());
        let path = format!("{}/_all_docs", path(name));
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(answer) = answer.ok().filter(|answer| answer.status == 200) else { return Ok(()) };
        match ids(&answer.json()).intersection(&gone).next() {
            Some(doc) => broken("I7", format!("{path}: {doc} is back, of a database that was deleted")),
            None => Ok(()),
        }
    }

    /// At the end: what this node shows under each of the names.
    pub(super) async fn check_common(&mut self) -> Result<(), Violation> {
        let names: Vec<u32> = self.locked(|s| s.together.common.keys().copied().collect());
        for name in names {
            let path = format!("{}/_all_docs", path(name));
            let rows = match self.call("GET", &path, &Value::Null).await {
                Ok(a) if a.status == 200 => Some(ids(&a.json())),
                Ok(a) if a.status == 404 => None,
                other => return broken("I28", format!("{path}: {other:?} after all faults")),
            };
            let lane = self.name.clone();
            let flaw = self.common(name, |common| {
                let first = common.rows.get_or_insert_with(|| rows.clone());
                let differs = *first != rows;
                let differs = differs.then(|| ("I4", format!("{lane} sees {rows:?}, the first node {first:?}")));
                common.flaw(rows.as_ref()).or(differs)
            });
            if let Some((invariant, what)) = flaw {
                return broken(invariant, format!("{path}: {what}, on {lane}; it holds {rows:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docs(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// A database that was made, with a document.
    fn made() -> Common {
        let mut common = Common::default();
        common.creation_sent();
        common.creation_answered(201, common.calm());
        common.only = docs(&["m1"]);
        common
    }

    fn delete(common: &mut Common, status: u16) {
        common.deletion_sent();
        let (single, there) = (common.single(), common.only.clone());
        common.deletion_answered(status, single, there);
    }

    #[test]
    fn what_was_made_and_not_deleted_is_there() {
        let common = made();
        assert_eq!(common.flaw(None).map(|flaw| flaw.0), Some("I1"));
        assert_eq!(common.flaw(Some(&docs(&[]))), None);
        let mut common = made();
        common.deletion_sent();
        assert_eq!(common.flaw(None), None, "a deletion is on its way");
        common.creation_sent();
        common.creation_answered(201, common.calm());
        assert_eq!(common.flaw(None), None, "it may do to this one what it does");
    }

    #[test]
    fn what_was_in_the_only_one_that_was_deleted_does_not_come_back() {
        let mut common = made();
        delete(&mut common, 200);
        common.creation_sent();
        common.creation_answered(201, common.calm());
        assert_eq!(common.flaw(Some(&docs(&["m1"]))).map(|flaw| flaw.0), Some("I7"));
        let mut common = made();
        common.creation_sent();
        common.creation_answered(202, None);
        delete(&mut common, 200);
        assert_eq!(common.flaw(Some(&docs(&["m1"]))), None, "it may be in the other one");
    }

    #[test]
    fn a_deletion_is_settled_when_no_node_has_it() {
        let mut common = made();
        delete(&mut common, 202);
        assert_eq!((common.calm(), common.single()), (None, None));
        common.seen_nowhere(1, 1);
        assert_eq!((common.calm(), common.several), (Some(1), 0));
        assert_eq!(common.gone, docs(&["m1"]));
        let mut common = made();
        delete(&mut common, 202);
        common.creation_sent();
        common.seen_nowhere(1, 1);
        assert_eq!(common.calm(), None, "somebody makes another one");
    }
}
