//! Rules for documents, made and taken back by one client each, while others write what they are about. Once a rule is
//! on all replicas nothing that it forbids is stored any more; once all replicas know that it was taken back, nothing
//! is forbidden by it.
//!
//! An oracle asks the functions that its node reads of one replica of each range, which may lack what fewer than all
//! replicas hold (`docs/consistency.md`): before all have the rule nothing is sure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::common::ids;
use super::{Worker, broken};
use crate::client::{Answer, NoAnswer};
use crate::model::Violation;

/// The database of these documents.
pub(super) const RULED: &str = "ruled";
/// Replicas that have a rule before it is sure.
const ALL: u32 = 3;
/// How often it is asked how many have it, a second apart.
const LOOKS: u32 = 20;

/// What is known of all rules.
#[derive(Default)]
pub(crate) struct Rules {
    /// By what they are about.
    rules: BTreeMap<String, Rule>,
    /// Documents that must not be there.
    forbidden: BTreeSet<String>,
    /// Those of requests without an answer: only where their rule stayed as it was then.
    open: Vec<(String, Standing)>,
    /// Documents that must be there.
    stored: BTreeSet<String>,
    /// What the first node shows in the end.
    rows: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    /// Whether it forbids; `None`: not every replica knows.
    on: Option<bool>,
    /// How often it was changed.
    turns: u32,
}

/// A rule as it stood at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    mark: String,
    rule: Rule,
}

/// The rule of one client.
#[derive(Default)]
pub(super) struct Mine {
    /// How many it had before, of which it is not known what became of them.
    before: u32,
    rev: Option<String>,
}

/// What became of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Stored,
    Forbidden,
    /// Nothing is said of it.
    Open,
}

impl Rules {
    /// Before the rule of that mark is changed.
    fn turns(&mut self, mark: &str) -> u32 {
        let rule = self.rules.entry(mark.to_owned()).or_default();
        *rule = Rule { on: None, turns: rule.turns + 1 };
        rule.turns
    }

    /// All replicas have the rule as it was changed then.
    fn stands(&mut self, mark: &str, turns: u32, on: bool) {
        if let Some(rule) = self.rules.get_mut(mark).filter(|rule| rule.turns == turns) {
            rule.on = Some(on);
        }
    }

    fn is_as(&self, before: &Standing) -> bool {
        self.rules.get(&before.mark) == Some(&before.rule)
    }

    /// A document came to this that a rule is about which stood so when it was sent; what is wrong with it.
    fn came(&mut self, doc: &str, before: Standing, came: Came) -> Option<String> {
        let same = self.is_as(&before);
        if came == Came::Stored {
            self.stored.insert(doc.to_owned());
        }
        match (before.rule.on, came) {
            (Some(true), Came::Stored) if same => return Some("written, though it is forbidden".to_owned()),
            (Some(false), Came::Forbidden) if same => return Some("forbidden, though it is allowed".to_owned()),
            (Some(true), Came::Open) => self.open.push((doc.to_owned(), before)),
            (Some(true), Came::Forbidden) if same => drop(self.forbidden.insert(doc.to_owned())),
            _ => {}
        }
        None
    }

    /// What is wrong with the rows of one node in the end.
    fn flaw(&self, rows: &BTreeSet<String>) -> Option<(&'static str, String)> {
        let open = self.open.iter().filter(|(_, before)| self.is_as(before)).map(|(doc, _)| doc);
        if let Some(doc) = self.forbidden.iter().chain(open).find(|doc| rows.contains(*doc)) {
            return Some(("I30", format!("{doc} is there, though it is forbidden")));
        }
        let lost = self.stored.iter().find(|doc| !rows.contains(*doc));
        lost.map(|doc| ("I1", format!("{doc} is gone")))
    }
}

/// What an answer says of the one document that was sent.
fn came(answer: &Result<Answer, NoAnswer>, way: u32) -> Came {
    let Ok(answer) = answer else { return Came::Open };
    let told = answer.json();
    let item = if way == 0 { &told } else { &told[0] };
    match answer.status {
        201 | 202 if item["rev"].is_string() && item["error"].is_null() => Came::Stored,
        201 | 202 | 403 if item["error"] == "forbidden" => Came::Forbidden,
        _ => Came::Open,
    }
}

impl Worker {
    fn rules<T>(&self, f: impl FnOnce(&mut Rules) -> T) -> T {
        self.locked(|s| f(&mut s.together.rules))
    }

    /// Writes the rule of this client, and looks until all replicas have it.
    pub(super) async fn rule(&mut self, on: bool) -> Result<(), Violation> {
        let mark = format!("{}-{}", self.name, self.rule.before);
        let path = format!("/{RULED}/_design/{mark}");
        let function = format!("function (d) {{ if ({on} && d.mark == '{mark}') throw({{forbidden: 'marked'}}); }}");
        let mut body = json!({ "validate_doc_update": function });
        if let Some(rev) = &self.rule.rev {
            body["_rev"] = json!(rev);
        }
        let turns = self.rules(|rules| rules.turns(&mark));
        let answer = self.call("PUT", &path, &body).await.ok().filter(|answer| matches!(answer.status, 201 | 202));
        let rev = answer.as_ref().and_then(|answer| Some(answer.json()["rev"].as_str()?.to_owned()));
        let (Some(answer), Some(rev)) = (answer, rev) else {
            // It may come at any later time: from now on this client has another one.
            self.rule = Mine { before: self.rule.before + 1, rev: None };
            return Ok(());
        };
        self.rule.rev = Some(rev.clone());
        let mut replicas = answer.replicas;
        for _ in 0..LOOKS {
            if replicas >= ALL {
                self.rules(|rules| rules.stands(&mark, turns, on));
                break;
            }
            self.client.env().sleep(Duration::from_secs(1)).await;
            let read = self.call("GET", &format!("{path}?r={ALL}"), &Value::Null).await;
            let read = read.ok().filter(|read| read.status == 200 && read.json()["_rev"] == json!(rev));
            replicas = read.map_or(0, |read| read.replicas);
        }
        Ok(())
    }

    /// Writes a document that one of the rules is about.
    pub(super) async fn ruled(&mut self, v: u64, way: u32) -> Result<(), Violation> {
        let doc = format!("r{v}");
        let before = self.rules(|rules| {
            let nth = (v as usize).checked_rem(rules.rules.len())?;
            rules.rules.iter().nth(nth).map(|(mark, rule)| Standing { mark: mark.clone(), rule: rule.clone() })
        });
        let Some(before) = before else { return Ok(()) };
        let answer = match way {
            0 => self.call("PUT", &format!("/{RULED}/{doc}"), &json!({ "mark": before.mark })).await,
            _ => {
                let mut item = json!({ "_id": doc, "mark": before.mark });
                let mut sent = json!({ "docs": [] });
                if way == 2 {
                    item["_rev"] = json!(format!("1-{v:032x}"));
                    sent["new_edits"] = json!(false);
                }
                sent["docs"] = json!([item]);
                self.call("POST", &format!("/{RULED}/_bulk_docs"), &sent).await
            }
        };
        let came = came(&answer, way);
        match self.rules(|rules| rules.came(&doc, before.clone(), came)) {
            Some(wrong) => broken("I30", format!("/{RULED}/{doc}: {wrong} by {before:?}")),
            None => Ok(()),
        }
    }

    /// At the end: what this node shows.
    pub(super) async fn check_rules(&mut self) -> Result<(), Violation> {
        if self.rules(|rules| rules.rules.is_empty()) {
            return Ok(());
        }
        let path = format!("/{RULED}/_all_docs?endkey=%22s%22&startkey=%22r%22");
        let rows = match self.call("GET", &path, &Value::Null).await {
            Ok(a) if a.status == 200 => ids(&a.json()),
            other => return broken("I28", format!("{path}: {other:?} after all faults")),
        };
        let lane = self.name.clone();
        let flaw = self.rules(|rules| {
            let first = rules.rows.get_or_insert_with(|| rows.clone());
            let differs = *first != rows;
            let differs = differs.then(|| ("I4", format!("{lane} sees {rows:?}, the first node {first:?}")));
            rules.flaw(&rows).or(differs)
        });
        flaw.map_or(Ok(()), |(invariant, what)| broken(invariant, format!("{path}: {what}, on {lane}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(rules: &Rules) -> Standing {
        Standing { mark: "m".to_owned(), rule: rules.rules["m"].clone() }
    }

    #[test]
    fn what_is_forbidden_is_sure_once_all_replicas_have_the_rule() {
        let mut rules = Rules::default();
        let turns = rules.turns("m");
        assert_eq!(rules.came("r1", standing(&rules), Came::Stored), None, "on its way");
        rules.stands("m", turns, true);
        assert!(rules.came("r2", standing(&rules), Came::Stored).is_some());
        assert_eq!(rules.came("r3", standing(&rules), Came::Forbidden), None);
        let rows = BTreeSet::from(["r1", "r2", "r3"].map(str::to_owned));
        assert_eq!(rules.flaw(&rows).map(|flaw| flaw.0), Some("I30"));
    }

    #[test]
    fn what_got_no_answer_may_come_when_the_rule_is_another() {
        let mut rules = Rules::default();
        let turns = rules.turns("m");
        rules.stands("m", turns, true);
        assert_eq!(rules.came("r1", standing(&rules), Came::Open), None);
        let rows = BTreeSet::from(["r1".to_owned()]);
        assert_eq!(rules.flaw(&rows).map(|flaw| flaw.0), Some("I30"));
        rules.turns("m");
        assert_eq!(rules.flaw(&rows), None);
    }
}
