//! Searches of documents that one client alone writes, by both kinds of full-text indexes: what must be found is known
//! exactly, as it is of queries (I18).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::own::{OWN, carry_out};
use super::{Worker, broken};
use crate::client::Client;
use crate::model::Violation;
use crate::private::matches;

/// Kinds of searches.
pub(super) const QUERIES: u32 = 5;

const PLAIN: &str = "function (d) { if (d.owner) { index('owner', d.owner); index('a', d.a); index('s', d.s); \
    index('v', d.v, {store: true}); (d.tags || []).forEach(function (t) { index('tag', t); }); } }";
const TYPED: &str = "function (d) { if (d.owner) { index('string', 'owner', d.owner); index('double', 'a', d.a); \
    index('string', 's', d.s); index('double', 'v', d.v, {store: true}); \
    (d.tags || []).forEach(function (t) { index('string', 'tag', t); }); } }";

/// Makes the indexes, in peace.
///
/// # Errors
/// The request that was refused.
pub(super) async fn set_up(client: &mut Client) -> Result<(), String> {
    let design = json!({
        "indexes": { "i": { "analyzer": "keyword", "index": PLAIN } },
        "nouveau": { "i": { "default_analyzer": "keyword", "index": TYPED } },
    });
    carry_out(client, [("PUT", format!("/{OWN}/_design/text"), design)], &[409]).await
}

/// A search of a client's own documents, and the selector that matches the same.
fn search(query: u32, owner: &str, k: u64) -> (String, Value) {
    let (more, selector) = match query % QUERIES {
        0 => (String::new(), json!({ "owner": owner })),
        1 => (format!(" AND a:{{{k} TO *]"), json!({ "owner": owner, "a": { "$gt": k } })),
        2 => (format!(" AND NOT a:{k}"), json!({ "owner": owner, "a": { "$ne": k } })),
        3 => (" AND s:[bee TO cat]".to_owned(), json!({ "owner": owner, "s": { "$gte": "bee", "$lte": "cat" } })),
        _ => (
            " AND tag:t1 AND s:d*".to_owned(),
            json!({ "owner": owner, "s": "dog", "tags": { "$elemMatch": { "$eq": "t1" } } }),
        ),
    };
    (format!("owner:{owner}{more}"), selector)
}

/// A query as a URL has it.
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => (byte as char).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

impl Worker {
    /// Searches by an index of the one kind or the other; whether an answer came.
    pub(super) async fn own_search(&mut self, query: u32, k: u64) -> Result<bool, Violation> {
        if !self.locked(|s| s.searches) {
            return Ok(true);
        }
        let (text, selector) = search(query, &self.name, k);
        let is_typed = (u64::from(query) + k).is_multiple_of(2);
        // Pages of an index without types are 200 rows long.
        let (function, rows, limit) = if is_typed { ("_nouveau", "hits", 1_000) } else { ("_search", "rows", 200) };
        let path = format!("/{OWN}/_design/text/{function}/i?limit={limit}&q={}", encoded(&text));
        let expected = self.expected();
        let answer = self.call("GET", &path, &Value::Null).await;
        let Some(found) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(false) };
        let found = found[rows].as_array().cloned().unwrap_or_default();
        let mut shown = BTreeSet::new();
        for row in &found {
            let id = row["id"].as_str().unwrap_or_default().to_owned();
            let v = row["fields"]["v"].as_f64();
            let states = expected.get(&id).map(Vec::as_slice).unwrap_or_default();
            let fits = |state: &&Value| state["v"].as_f64() == v && matches(&selector, state);
            if !states.iter().flatten().any(|state| fits(&state)) {
                return broken("I18", format!("{function} {text} finds {row}, possible {states:?}"));
            }
            if !shown.insert(id) {
                return broken("I18", format!("{function} {text} finds {row} twice"));
            }
        }
        let must = |states: &Vec<Option<Value>>| {
            states.iter().all(|state| state.as_ref().is_some_and(|doc| matches(&selector, doc)))
        };
        match expected.iter().find(|(id, states)| must(states) && !shown.contains(*id)) {
            Some((id, states)) if found.len() < limit => {
                broken("I18", format!("{function} {text} leaves out {id}, which is {states:?}"))
            }
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_go_with_selectors() {
        let (text, selector) = search(6, "c", 3);
        assert_eq!(
            (text.as_str(), encoded(&text).as_str()),
            ("owner:c AND a:{3 TO *]", "owner%3Ac%20AND%20a%3A%7B3%20TO%20%2A%5D")
        );
        assert!(
            matches(&selector, &json!({"owner": "c", "a": 4})) && !matches(&selector, &json!({"owner": "c", "a": 3}))
        );
    }
}
