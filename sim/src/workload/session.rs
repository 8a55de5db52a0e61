//! Sessions by cookie and by token: who one is, and until when, on a node whose clock may be wrong.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::{Worker, broken};
use crate::client::{Ask, Who};
use crate::model::Violation;
use crate::tokens::{Outcome, Span, TOKEN_KEY, token};

/// The user whom tokens name.
const BEARER: &str = "bearer";
/// Another one.
const FORGED_KEY: &str = "open barley";

/// What the clock of a node showed, and how often it was moved until then.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) second: i64,
    jumps: u64,
}

impl Worker {
    /// That of this worker's node.
    fn clock(&self) -> Option<Shown> {
        self.clock_of(self.client.to().ip())
    }

    /// `None` where clocks cannot be looked at.
    pub(super) fn clock_of(&self, node: IpAddr) -> Option<Shown> {
        self.locked(|s| {
            let world = s.world.as_ref()?;
            let wall = world.nodes().iter().find(|n| n.ip() == node)?.wall();
            let jumps = world.counters().get("clock.jump").copied().unwrap_or(0);
            Some(Shown { second: i64::try_from(wall.as_secs()).unwrap_or(i64::MAX), jumps })
        })
    }

    /// The seconds that the clock of a node can have shown since `before`, unless it jumped.
    pub(super) fn seconds_since(&self, before: Option<Shown>, node: IpAddr) -> Option<RangeInclusive<i64>> {
        let (before, after) = (before?, self.clock_of(node)?);
        (before.jumps == after.jumps).then(|| before.second..=after.second.max(before.second))
    }

    pub(super) async fn login(&mut self) -> Result<(), Violation> {
        let body = json!({ "name": crate::place::USER, "password": crate::place::PASSWORD });
        let answer = self.call("POST", "/_session", &body).await;
        let Ok(answer) = answer else { return Ok(()) };
        if answer.status == 401 {
            return broken("I30", format!("the right password was refused: {}", answer.json()));
        }
        let cookie = answer.cookie.as_deref().and_then(|c| c.split(';').next()).map(str::to_owned);
        if answer.status == 200 && cookie.is_some() {
            self.cookie = cookie;
        }
        Ok(())
    }

    /// Asks who one is by the session's cookie, or by a forged one.
    pub(super) async fn whoami(&mut self, forged: bool) -> Result<(), Violation> {
        let Some(mut cookie) = self.cookie.clone() else { return self.login().await };
        let Some(span) = Span::of_cookie(&cookie) else { return broken("I30", format!("cookie {cookie} is none")) };
        if forged {
            // A sign in the middle of the signature.
            let at = cookie.len() - 10;
            let other = if cookie.as_bytes()[at] == b'A' { "B" } else { "A" };
            cookie.replace_range(at..=at, other);
        }
        let before = self.clock();
        let answer = self.ask(Ask::get("/_session").of(Who::Cookie(&cookie))).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(()) };
        let outcome =
            if forged { Outcome::Out } else { span.validity(self.seconds_since(before, self.client.to().ip())) };
        let name = &body["userCtx"]["name"];
        held(outcome, name, crate::place::USER, || format!("cookie {cookie} of {span:?} (forged: {forged})"))
    }

    /// Asks who one is by a token that counts from and until some seconds from now.
    pub(super) async fn token(&mut self, from_s: i64, until_s: i64, forged: bool) -> Result<(), Violation> {
        let before = self.clock();
        let now_s = before.map_or(0, |shown| shown.second);
        let span = Span { from_s: now_s + from_s, until_s: now_s + until_s };
        let bearer = token(if forged { FORGED_KEY } else { TOKEN_KEY }, BEARER, span);
        let answer = self.ask(Ask::get("/_session").of(Who::Bearer(&bearer))).await;
        let name = match answer {
            Ok(a) if a.status == 200 => a.json()["userCtx"]["name"].clone(),
            Ok(a) if a.status < 500 => Value::Null,
            _ => return Ok(()),
        };
        let outcome =
            if forged { Outcome::Out } else { span.validity(self.seconds_since(before, self.client.to().ip())) };
        held(outcome, &name, BEARER, || format!("a token of {span:?} (forged: {forged})"))
    }
}

/// Whether `name` is whom `outcome` lets the answer name.
pub(super) fn held(outcome: Outcome, name: &Value, owner: &str, what: impl Fn() -> String) -> Result<(), Violation> {
    match (outcome, name.as_str()) {
        (Outcome::Out, None) | (Outcome::Either, None) => Ok(()),
        (Outcome::In | Outcome::Either, Some(name)) if name == owner => Ok(()),
        _ => broken("I30", format!("{} is taken for {name}, must be {outcome:?}", what())),
    }
}
