//! What administrators do, each client with a database and a validation function of its own: making and
//! deleting databases, access by the security object, rules for documents.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Worker, broken};
use crate::client::{Ask, Who};
use crate::model::Violation;

/// The user who is no administrator.
const READER: &str = "reader";

/// What a client knows of its own things. `None` is: a request without an answer may still change it.
pub(super) struct Known {
    /// Grows when a request without an answer made the one before uncertain.
    generation: u32,
    /// Documents of its database; `None`: there is no database.
    database: Option<BTreeSet<String>>,
    /// Whether the reader may enter the second database; outside `None`: unknown.
    open: Option<bool>,
    has_second: bool,
    /// Whether marked documents are forbidden; outside `None`: unknown.
    strict: Option<bool>,
    strict_rev: Option<String>,
}

impl Default for Known {
    fn default() -> Self {
        Known { generation: 0, database: None, open: None, has_second: false, strict: Some(false), strict_rev: None }
    }
}

impl Worker {
    fn db_name(&self) -> String {
        format!("db-{}-{}", self.name, self.admin.generation)
    }

    /// A request without an answer: the name is not used again.
    fn db_forget(&mut self) {
        self.admin.generation += 1;
        self.admin.database = None;
    }

    pub(super) async fn db_create(&mut self) -> Result<(), Violation> {
        let path = format!("/{}?q=2", self.db_name());
        let answer = self.call("PUT", &path, &Value::Null).await;
        match (answer.map_or(0, |a| a.status), &self.admin.database) {
            (201 | 202, None) => self.admin.database = Some(BTreeSet::new()),
            (412, Some(_)) => {}
            (201 | 202, Some(_)) => return broken("I3", format!("{path}: made, though it is there")),
            (412, None) => return broken("I7", format!("{path}: it is there, though it was deleted or never made")),
            _ => self.db_forget(),
        }
        Ok(())
    }

    pub(super) async fn db_delete(&mut self) -> Result<(), Violation> {
        let path = format!("/{}", self.db_name());
        let answer = self.call("DELETE", &path, &Value::Null).await;
        match (answer.map_or(0, |a| a.status), &self.admin.database) {
            (200 | 202, Some(_)) => self.admin.database = None,
            (404, None) => {}
            (404, Some(docs)) => return broken("I1", format!("{path}: gone, with {docs:?}")),
            (200 | 202, None) => return broken("I7", format!("{path}: it was there, though deleted or never made")),
            _ => self.db_forget(),
        }
        Ok(())
    }

    pub(super) async fn db_write(&mut self, v: u64) -> Result<(), Violation> {
        if self.admin.database.is_none() {
            return self.db_create().await;
        }
        let (doc, path) = (format!("d{v}"), format!("/{}/d{v}", self.db_name()));
        let answer = self.call("PUT", &path, &json!({ "v": v })).await;
        match (answer.map_or(0, |a| a.status), &mut self.admin.database) {
            (201 | 202, Some(docs)) => drop(docs.insert(doc)),
            (404, Some(docs)) => return broken("I1", format!("{path}: no database, it held {docs:?}")),
            _ => self.db_forget(),
        }
        Ok(())
    }

    /// Reads all of the database; at the end it must answer.
    pub(super) async fn db_check(&mut self, at_the_end: bool) -> Result<(), Violation> {
        let path = format!("/{}/_all_docs", self.db_name());
        let answer = self.call("GET", &path, &Value::Null).await;
        let rows = |body: Value| -> BTreeSet<String> {
            let rows = body["rows"].as_array().cloned().unwrap_or_default();
            rows.iter().filter_map(|row| Some(row["id"].as_str()?.to_owned())).collect()
        };
        match (answer, &self.admin.database) {
            (Ok(a), Some(docs)) if a.status == 200 => {
                let shown = rows(a.json());
                if &shown != docs {
                    let invariant = if docs.is_subset(&shown) { "I7" } else { "I1" };
                    return broken(invariant, format!("{path}: {shown:?}, written {docs:?}"));
                }
            }
            (Ok(a), None) if a.status == 404 => {}
            (Ok(a), Some(docs)) if a.status == 404 => return broken("I1", format!("{path}: gone, with {docs:?}")),
            (Ok(a), None) if a.status == 200 => {
                return broken("I7", format!("{path}: there, though deleted or never made: {}", a.json()));
            }
            (other, _) if at_the_end => return broken("I28", format!("{path}: {other:?} after all faults")),
            _ => {}
        }
        Ok(())
    }

    fn second(&self) -> String {
        format!("sec-{}", self.name)
    }

    /// Opens or closes the second database for everybody.
    pub(super) async fn secure(&mut self, open: bool) -> Result<(), Violation> {
        if !self.admin.has_second {
            let path = format!("/{}?q=1", self.second());
            let made = self.call("PUT", &path, &Value::Null).await.map_or(0, |a| a.status);
            self.admin.has_second = matches!(made, 201 | 202 | 412);
            if !self.admin.has_second {
                return Ok(());
            }
            // Databases begin closed.
            self.admin.open = Some(false);
        }
        let members = if open { json!({}) } else { json!({ "names": ["nobody"] }) };
        let body = json!({ "admins": { "names": ["nobody"] }, "members": members });
        let path = format!("/{}/_security", self.second());
        let status = self.call("PUT", &path, &body).await.map_or(0, |a| a.status);
        // Without an answer the request may come at any later time, over others.
        self.admin.open = if status == 200 && self.admin.open.is_some() { Some(open) } else { None };
        Ok(())
    }

    /// Reads the second database as a user who is no administrator.
    pub(super) async fn enter(&mut self) -> Result<(), Violation> {
        let Some(open) = self.admin.open else { return Ok(()) };
        let path = format!("/{}/_all_docs", self.second());
        let answer = self.ask(Ask::get(&path).of(Who::Proxied(READER))).await;
        entered(&path, answer.map_or(0, |a| a.status), open)
    }

    /// At the end: every node of the cluster has the security object that was set last.
    async fn enter_everywhere(&mut self) -> Result<(), Violation> {
        let Some(open) = self.admin.open else { return Ok(()) };
        let path = format!("/{}/_all_docs", self.second());
        for node in self.cluster() {
            let mut client = self.another_node(node);
            let answer = client.ask(Ask::get(&path).of(Who::Proxied(READER))).await;
            entered(&format!("node {node}: {path}"), answer.map_or(0, |a| a.status), open)?;
        }
        Ok(())
    }

    /// Turns this client's validation function on or off.
    pub(super) async fn strict(&mut self, on: bool) -> Result<(), Violation> {
        if self.admin.strict.is_none() {
            return Ok(());
        }
        let function =
            format!("function (d) {{ if ({on} && d.mark == '{}') throw({{forbidden: 'marked'}}); }}", self.name);
        let mut body = json!({ "validate_doc_update": function });
        if let Some(rev) = &self.admin.strict_rev {
            body["_rev"] = json!(rev);
        }
        let answer = self.call("PUT", &format!("/own/_design/strict-{}", self.name), &body).await;
        let rev = answer.ok().filter(|a| a.status < 300).and_then(|a| Some(a.json()["rev"].as_str()?.to_owned()));
        self.admin.strict = rev.as_ref().map(|_| on);
        self.admin.strict_rev = rev;
        Ok(())
    }

    /// Writes what that function forbids.
    pub(super) async fn marked(&mut self, v: u64) -> Result<(), Violation> {
        let path = format!("/own/marked-{v}");
        let answer = self.call("PUT", &path, &json!({ "mark": self.name })).await;
        match (answer.map_or(0, |a| a.status), self.admin.strict) {
            (201 | 202, Some(true)) => broken("I30", format!("{path}: written, though it is forbidden")),
            (403, Some(false)) => broken("I30", format!("{path}: forbidden, though it is allowed")),
            _ => Ok(()),
        }
    }

    /// At the end: the databases of this client, and who may enter.
    pub(super) async fn check_admin(&mut self) -> Result<(), Violation> {
        self.db_check(true).await?;
        self.enter().await?;
        self.enter_everywhere().await
    }
}

/// What the answer to [`READER`] says.
fn entered(path: &str, status: u16, open: bool) -> Result<(), Violation> {
    match (status, open) {
        (200, false) => broken("I30", format!("{path}: {READER} came in, though it is closed")),
        (401 | 403, true) => broken("I30", format!("{path}: {READER} was sent away, though it is open")),
        _ => Ok(()),
    }
}
