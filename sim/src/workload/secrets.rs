//! Sessions while the secret of cookies changes, on one node after the other: a cookie counts on a node that has the
//! secret that it is signed with, and on no other; it is never anybody else's.
//!
//! Assumes that nobody but these clients changes the secret, one at a time. What got no answer may come at any time
//! later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::session::held;
use super::{Worker, broken};
use crate::client::{Ask, Client, Who};
use crate::model::Violation;
use crate::place::{USER, address_of};
use crate::tokens::{self, Outcome, Span};

/// Where a node has the secret.
const PATH: &str = "/_node/_local/_config/chttpd_auth/secret";
/// How often a node is told that does not answer.
const TRIES: u32 = 3;

/// The secrets that each node may have, by their numbers.
#[derive(Default)]
pub(crate) struct Secrets {
    newest: u32,
    /// Somebody is about a change.
    changing: bool,
    of: BTreeMap<u32, Had>,
}

/// What one node had.
struct Had {
    /// Those that it may have had, from one moment to the next.
    sets: Vec<BTreeSet<u32>>,
    /// Those that may come yet.
    late: BTreeSet<u32>,
}

impl Default for Had {
    fn default() -> Self {
        Had { sets: vec![BTreeSet::from([0])], late: BTreeSet::new() }
    }
}

impl Had {
    fn moment(&self) -> usize {
        self.sets.len() - 1
    }

    /// Those of all moments from `moment` on.
    fn since(&self, moment: usize) -> BTreeSet<u32> {
        self.sets[moment..].iter().flatten().copied().collect()
    }

    /// It is being told of one.
    fn sent(&mut self, number: u32) {
        let mut next = self.sets.last().cloned().unwrap_or_default();
        next.insert(number);
        self.sets.push(next);
    }

    /// It answered, or did not.
    fn told(&mut self, number: u32, answered: bool) {
        match answered {
            true => self.sets.push(self.late.iter().copied().chain([number]).collect()),
            false => drop(self.late.insert(number)),
        }
    }
}

/// What an answer must be to a cookie of that secret, which is `outcome` by its time, from a node that had these.
fn outcome(signed: u32, had: &BTreeSet<u32>, outcome: Outcome) -> Outcome {
    match had.contains(&signed) {
        false => Outcome::Out,
        true if had.len() == 1 || outcome == Outcome::Out => outcome,
        true => Outcome::Either,
    }
}

fn secret(number: u32) -> String {
    format!("hidden-{number}")
}

/// Gives a node the first secret, in peace.
///
/// # Errors
/// What it answers instead.
pub(crate) async fn give_first(client: &mut Client) -> Result<(), String> {
    match client.json("PUT", PATH, &json!(secret(0))).await {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("PUT {PATH}: {other:?}")),
    }
}

/// The name and value of a cookie, without its attributes.
fn pair(cookie: Option<&String>) -> Option<String> {
    cookie.and_then(|cookie| cookie.split(';').next()).map(str::to_owned)
}

impl Worker {
    /// What is known of a node.
    fn node_had<T>(&self, node: u32, f: impl FnOnce(&mut Had) -> T) -> T {
        self.locked(|s| f(s.together.secrets.of.entry(node).or_default()))
    }

    pub(super) async fn new_secret(&mut self) -> Result<(), Violation> {
        let begun = self.locked(|s| {
            let secrets = &mut s.together.secrets;
            let is_free = !std::mem::replace(&mut secrets.changing, true);
            secrets.newest += u32::from(is_free);
            is_free.then_some(secrets.newest)
        });
        let Some(number) = begun else { return Ok(()) };
        for node in self.cluster() {
            self.tell_secret(node, number).await;
        }
        self.locked(|s| s.together.secrets.changing = false);
        Ok(())
    }

    async fn tell_secret(&mut self, node: u32, number: u32) {
        let mut client = self.another_node(node);
        for _ in 0..TRIES {
            self.node_had(node, |had| had.sent(number));
            let answer = self.call_by(&mut client, "PUT", PATH, &json!(secret(number))).await;
            let answered = answer.is_ok_and(|answer| answer.status == 200);
            self.node_had(node, |had| had.told(number, answered));
            if answered {
                return;
            }
            self.client.env().sleep(Duration::from_secs(1)).await;
        }
    }

    /// The number of the secret that a cookie is signed with.
    fn signed(&self, cookie: &str) -> Result<u32, Violation> {
        let newest = self.locked(|s| s.together.secrets.newest);
        let found = (0..=newest).find(|number| tokens::signs(&secret(*number), cookie));
        found.map_or_else(|| broken("I30", format!("cookie {cookie} is signed with no secret that there was")), Ok)
    }

    /// A cookie of a node must be signed with a secret that it had, and name who asked for it.
    fn takes_cookie(&self, cookie: &str, node: u32, moment: usize) -> Result<(), Violation> {
        let (signed, had) = (self.signed(cookie)?, self.node_had(node, |had| had.since(moment)));
        match had.contains(&signed) && tokens::names(cookie, USER) {
            true => Ok(()),
            false => broken("I30", format!("node {node} made cookie {cookie} with secret {signed}, and had {had:?}")),
        }
    }

    /// Opens a session at this worker's own node.
    async fn open_session(&mut self) -> Result<(), Violation> {
        let Some(node) = self.cluster().into_iter().find(|node| self.is_at(&[*node])) else { return Ok(()) };
        let moment = self.node_had(node, |had| had.moment());
        self.cookie = None;
        self.login().await?;
        self.cookie.clone().map_or(Ok(()), |cookie| self.takes_cookie(&cookie, node, moment))
    }

    pub(super) async fn session_at(&mut self, node: u32, back: Option<u32>) -> Result<(), Violation> {
        let ip = address_of(node).ip();
        let cookie = match back {
            None => {
                let Some(cookie) = self.cookie.clone() else { return self.open_session().await };
                cookie
            }
            Some(back) => {
                let now_s = self.clock_of(ip).map_or(0, |shown| shown.second);
                let number = self.locked(|s| s.together.secrets.newest.saturating_sub(back));
                tokens::session(&secret(number), USER, now_s)
            }
        };
        let Some(span) = Span::of_cookie(&cookie) else { return broken("I30", format!("cookie {cookie} is none")) };
        let signed = self.signed(&cookie)?;
        let (before, moment) = (self.clock_of(ip), self.node_had(node, |had| had.moment()));
        let mut client = self.another_node(node);
        let answer = self.ask_by(&mut client, Ask::get("/_session").of(Who::Cookie(&cookie))).await;
        let Some(answer) = answer.ok().filter(|answer| answer.status == 200) else { return Ok(()) };
        let had = self.node_had(node, |had| had.since(moment));
        let outcome = outcome(signed, &had, span.validity(self.seconds_since(before, ip)));
        let user = &answer.json()["userCtx"];
        let what = || format!("cookie {cookie} of {span:?} and secret {signed} on node {node}, which had {had:?},");
        held(outcome, &user["name"], USER, what)?;
        if user["name"].is_null() && user["roles"] != json!([]) {
            return broken("I30", format!("{} is nobody, with rights: {user}", what()));
        }
        if let Some(renewed) = pair(answer.cookie.as_ref()).filter(|renewed| !renewed.ends_with('=')) {
            self.takes_cookie(&renewed, node, moment)?;
            if back.is_none() {
                self.cookie = Some(renewed);
            }
        } else if back.is_none() && user["name"] == Value::Null {
            return self.open_session().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_what_it_was_told_last_unless_something_may_come_yet() {
        let mut had = Had::default();
        assert_eq!(had.since(had.moment()), BTreeSet::from([0]));
        had.sent(1);
        let moment = had.moment();
        assert_eq!(had.since(moment), BTreeSet::from([0, 1]), "until it answers");
        had.told(1, true);
        assert_eq!(had.since(had.moment()), BTreeSet::from([1]));
        had.sent(2);
        had.told(2, false);
        had.sent(3);
        had.told(3, true);
        assert_eq!(had.since(had.moment()), BTreeSet::from([2, 3]), "the second one may come late");
        assert_eq!(had.since(moment), BTreeSet::from([0, 1, 2, 3]));
    }

    #[test]
    fn a_cookie_of_a_secret_that_a_node_has_not_is_refused_by_it() {
        let one = BTreeSet::from([1]);
        assert_eq!([0, 1].map(|signed| outcome(signed, &one, Outcome::In)), [Outcome::Out, Outcome::In]);
        let two = BTreeSet::from([0, 1]);
        assert_eq!(outcome(0, &two, Outcome::In), Outcome::Either);
        assert_eq!(outcome(0, &two, Outcome::Out), Outcome::Out);
    }
}
