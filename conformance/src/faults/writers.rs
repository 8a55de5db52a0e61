//! Clients of a round: writers that keep an account of what they were answered, one that makes and deletes databases,
//! and a reader that follows the feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::cluster::Cluster;
use super::text;
use crate::json::Value;
use crate::random::dice::Dice;

/// Documents that all writers change; besides each has its own.
const SHARED: usize = 8;
/// Writes of one writer at most: a round stays small enough to be read back.
const WRITES_MAX: usize = 3_000;
/// Databases that are made in a round at most.
pub const DATABASES_MAX: usize = 40;

/// What one write was, and what was answered.
#[derive(Clone, Debug)]
pub struct Written {
    /// The document.
    pub id: String,
    /// What it says in the document: the writer and its number.
    pub mark: String,
    /// The revision that it was built on; empty for a new document.
    pub parent: String,
    /// The revision that was answered; empty where none was.
    pub rev: String,
    /// The status; 0 without an answer.
    pub status: u16,
}

/// All that a writer did.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Its writes in order.
    pub writes: Vec<Written>,
    /// Answered 201.
    pub stored: usize,
    /// Answered 202.
    pub accepted: usize,
    /// Answered that nothing was written.
    pub refused: usize,
    /// Neither.
    pub unknown: usize,
}

/// Writes until `over`.
pub async fn write(cluster: Cluster, db: String, number: usize, seed: u64, over: Arc<AtomicBool>) -> Account {
    let mut dice = Dice::new(seed.wrapping_mul(31).wrapping_add(number as u64), "writer");
    let mut account = Account::default();
    let mut revs: BTreeMap<String, String> = BTreeMap::new();
    while !over.load(Ordering::Relaxed) && account.writes.len() < WRITES_MAX {
        let at = dice.below(cluster.nodes.len());
        let shared = dice.chance(30);
        let own = dice.below(account.writes.len() + 5).min(40);
        let id = if shared { format!("shared-{}", dice.below(SHARED)) } else { format!("own-{number}-{own}") };
        if shared || !revs.contains_key(&id) && own < account.writes.len() {
            // What others wrote, or an answer that did not come, is read before it is built upon.
            let (status, body) = cluster.ask(at, "GET", &format!("/{db}/{id}"), None).await;
            match status {
                200 => _ = revs.insert(id.clone(), text(&body, "/_rev")),
                404 => _ = revs.remove(&id),
                _ => continue,
            }
        }
        let parent = revs.get(&id).cloned().unwrap_or_default();
        let mark = format!("{number}-{}", account.writes.len());
        let edit = Written { id, mark, parent, rev: String::new(), status: 0 };
        let also = if dice.chance(3) {
            // Its own next documents, which nobody else writes, in the same request.
            (0..3).map(|n| new_document(format!("bulk-{number}-{}-{n}", account.writes.len()))).collect()
        } else {
            Vec::new()
        };
        let form =
            if dice.chance(10) { Form::Deletion } else { dice.pick(&[Form::Plain, Form::Plain, Form::Attached]) };
        for written in send(&cluster, at, &db, edit, also, form).await {
            match written.status {
                200 | 201 => account.stored += 1,
                202 => account.accepted += 1,
                400..=499 => account.refused += 1,
                _ => account.unknown += 1,
            }
            if written.rev.is_empty() {
                revs.remove(&written.id)
            } else {
                revs.insert(written.id.clone(), written.rev.clone())
            };
            account.writes.push(written);
        }
        tokio::time::sleep(Duration::from_millis(dice.below(12) as u64)).await;
    }
    account
}

/// What an edit makes of its document.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    /// With an attachment `a` that holds the mark as JSON.
    Attached,
    Deletion,
}

fn new_document(id: String) -> Written {
    Written { mark: id.clone(), id, parent: String::new(), rev: String::new(), status: 0 }
}

/// Sends an edit by PUT, or with others by `_bulk_docs`: all of them, with what was answered.
async fn send(
    cluster: &Cluster,
    at: usize,
    db: &str,
    mut edit: Written,
    also: Vec<Written>,
    form: Form,
) -> Vec<Written> {
    if also.is_empty() {
        let body = document(&edit, form);
        let (status, answer) = cluster.ask(at, "PUT", &format!("/{db}/{}", edit.id), Some(&body)).await;
        (edit.status, edit.rev) = (status, text(&answer, "/rev"));
        return vec![edit];
    }
    let docs = std::iter::once(document(&edit, form)).chain(also.iter().map(|other| document(other, Form::Plain)));
    let body = Value::Object(vec![("docs".to_owned(), Value::Array(docs.collect()))]);
    let (status, answers) = cluster.ask(at, "POST", &format!("/{db}/_bulk_docs"), Some(&body)).await;
    let mut all: Vec<Written> = std::iter::once(edit).chain(also).collect();
    for (n, one) in all.iter_mut().enumerate() {
        let answer = answers.as_array().and_then(|answers| answers.get(n));
        one.rev = answer.map(|answer| text(answer, "/rev")).unwrap_or_default();
        one.status = match answer.map(|answer| text(answer, "/error")).as_deref() {
            Some("") => status,
            Some("conflict") => 409,
            // What became of it is not said, or was not heard.
            _ if (400..500).contains(&status) => status,
            _ => 0,
        };
    }
    all
}

/// The body of an edit.
fn document(edit: &Written, form: Form) -> Value {
    let mut members = vec![("_id", edit.id.as_str().into()), ("mark", edit.mark.as_str().into())];
    if !edit.parent.is_empty() {
        members.push(("_rev", edit.parent.as_str().into()));
    }
    match form {
        Form::Deletion if !edit.parent.is_empty() => members.push(("_deleted", Value::Bool(true))),
        Form::Attached => {
            let data = STANDARD.encode(format!("\"{}\"", edit.mark));
            let stored = object(vec![("content_type", "application/json".into()), ("data", data.as_str().into())]);
            members.push(("_attachments", object(vec![("a", stored)])));
        }
        _ => {}
    }
    object(members)
}

fn object(members: Vec<(&str, Value)>) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// What the database `number` beside `db` is called.
pub fn made_name(db: &str, number: usize) -> String {
    format!("{db}-{number}")
}

/// The databases whose last change was answered, and whether they are to be there.
pub type Databases = BTreeMap<String, bool>;

/// Makes databases until `over`, and deletes every second one. A database with an unanswered change is left out.
pub async fn make(cluster: Cluster, db: String, over: Arc<AtomicBool>) -> Databases {
    let mut known = Databases::new();
    for number in 0..DATABASES_MAX {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let name = made_name(&db, number);
        if matches!(cluster.ask(number, "PUT", &format!("/{name}?q=1"), None).await.0, 201 | 202) {
            known.insert(name.clone(), true);
            if number % 2 == 1 {
                match cluster.ask(number + 1, "DELETE", &format!("/{name}"), None).await.0 {
                    200 | 202 => _ = known.insert(name, false),
                    _ => _ = known.remove(&name),
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    known
}

/// Follows the feed by pages, each from the sequence of the one before and from any node, until `over` and then to its
/// end: the ids that it was told of.
pub async fn follow(cluster: Cluster, db: String, over: Arc<AtomicBool>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let (mut since, mut at, mut failures) = ("0".to_owned(), 0, 0);
    loop {
        let was_over = over.load(Ordering::Relaxed);
        let target = format!("/{db}/_changes?limit=100&since={}", crate::random::draft::escaped(&since));
        let (status, page) = cluster.ask(at, "GET", &target, None).await;
        at += 1;
        let rows = page.get("results").and_then(Value::as_array).unwrap_or_default();
        let last = text(&page, "/last_seq");
        if status != 200 || last.is_empty() {
            failures += 1;
            // Nodes that are back soon are waited for; those that never are make the round fail elsewhere.
            if was_over && failures > 300 {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        seen.extend(rows.iter().map(|row| text(row, "/id")));
        since = last;
        if rows.is_empty() {
            if was_over {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
