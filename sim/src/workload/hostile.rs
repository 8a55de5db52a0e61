//! F26, hostile user code: a view's function that never ends, throws, eats memory, is no code or is never the same. The
//! request is answered somehow, nothing is indexed by what failed, and nobody else is harmed.

use serde_json::{Value, json};

use super::{Worker, broken};
use crate::model::Violation;
use crate::plan::{HOSTILE, HOSTILE_WAYS};

/// Functions that misbehave.
const FUNCTIONS: [&str; HOSTILE_WAYS as usize] = [
    "function (d) { while (true) {} }",
    "function (d) { throw new Error('no'); }",
    "function (d) { var all = []; while (true) { all.push('a long text, '.repeat(50000)); } }",
    "function (d) { emit(",
    "function (d) { emit(Math.random(), Date.now()); }",
];
/// Those before this one never give a row.
const ROWS_FROM: u32 = 4;

impl Worker {
    /// Asks for a view of such a function over one document, in a database of its own.
    pub(super) async fn hostile(&mut self, way: u32) -> Result<(), Violation> {
        let before = self.locked(|s| {
            let quiet = s.history.is_quiet();
            s.history.begins(HOSTILE);
            quiet.then(|| s.history.disturbances())
        });
        let silent = self.ask_hostile(way).await;
        let quiet = self.locked(|s| {
            s.history.ends(HOSTILE);
            before == Some(s.history.disturbances()) && s.history.is_quiet()
        });
        match silent? && quiet {
            true => broken("I28", format!("a hostile view ({way}) was never answered")),
            false => Ok(()),
        }
    }

    /// Whether a node that took the function did not answer its view. One that does not even take the function is still
    /// on its way up, long after the fault that ended it.
    async fn ask_hostile(&mut self, way: u32) -> Result<bool, Violation> {
        let database = format!("/bad-{}-{way}", self.name);
        let design = json!({ "views": { "bad": { "map": FUNCTIONS[(way % HOSTILE_WAYS) as usize] } } });
        let mut there = false;
        for (path, body) in [("?q=1", Value::Null), ("/one", json!({})), ("/_design/bad", design)] {
            // Each may be there already: any answer will do.
            there = self.call("PUT", &format!("{database}{path}"), &body).await.is_ok();
        }
        let answer = self.call("GET", &format!("{database}/_design/bad/_view/bad"), &Value::Null).await;
        let Ok(answer) = answer else { return Ok(there) };
        let rows = answer.json()["rows"].as_array().map_or(0, Vec::len);
        if answer.status == 200 && way < ROWS_FROM && rows > 0 {
            return broken("I17", format!("{database}: {rows} rows of a function that gives none"));
        }
        Ok(false)
    }
}
