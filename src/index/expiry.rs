//! Index of when documents end: a database names the member of its documents that says so (`expires_at` of
//! `_auto_purge`).
//!
//! It is built as a view is, of the winners of documents that live, without design documents. A row's key is the time,
//! in seconds since 1970, its value the revision that says it. What is no such time gives a row with the key null:
//! those are counted, and never end.

use std::sync::Arc;

use crate::document::collate::Collation;
use crate::document::json::{self, Object, Value};
use crate::document::revision::Revision;
use crate::index::mango::catalogue::LANGUAGE;
use crate::index::{
    Definition, IndexError, Indexes, KeyBound, KeySpan, Mapped, Mapper, Row, Sees, Signature, StateOf, ViewIndex,
    count_of,
};
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::shard::{ShardError, ShardReplica};
use crate::storage::{Direction, StorageError};
use crate::world::{BoxFuture, Env, Pool};

/// When a document ends, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It says nothing, or null.
    Never,
    /// In seconds since 1970.
    At(u64),
    /// What it says is no time: it does not end.
    Unreadable,
}

impl End {
    /// Of a document with that member.
    pub fn of(body: &Object, member: &str) -> End {
        match body.get(member) {
            None | Some(Value::Null) => End::Never,
            // 0 is what a number is that nobody set, and a document that is gone cannot be asked for the reason.
            Some(value) => match value.as_u64().filter(|at| (1..=limits::EXPIRY_LATEST_S).contains(at)) {
                Some(at) => End::At(at),
                None => End::Unreadable,
            },
        }
    }
}

/// A document that has ended: the revision that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its id.
    pub id: crate::document::id::DocId,
    /// Its winner when the index was built.
    pub rev: Revision,
    /// When it ended, in seconds since 1970.
    pub at: u64,
}

impl Definition {
    /// The index of when documents end that say so in `member`.
    pub fn expiry(member: &str) -> Definition {
        Definition {
            signature: Signature::of(&[b"documents by their end", member.as_bytes()]),
            sees: Sees::Winner,
            map: member.to_owned(),
            reduce: None,
            language: LANGUAGE.to_owned(),
            local_seq: false,
            include_design: false,
            collation: Collation::Raw,
            partitioned: false,
        }
    }
}

struct ExpiryMapper {
    env: Env,
    member: Arc<str>,
}

impl Mapper for ExpiryMapper {
    fn map<'a>(&'a self, _: Vec<&'a str>, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Vec<Mapped>>, IndexError>> {
        let member = Arc::clone(&self.member);
        Box::pin(async move {
            let rows = move || docs.iter().map(|text| vec![rows(text, &member)]).collect();
            Ok(self.env.blocking(Pool::Build, rows).await)
        })
    }
}

fn rows(text: &str, member: &str) -> Mapped {
    let Ok(Value::Object(document)) = json::parse(text.as_bytes()) else { return Mapped::new() };
    let key = match End::of(&document, member) {
        End::Never => return Mapped::new(),
        End::At(at) => Value::from(at),
        End::Unreadable => Value::Null,
    };
    vec![(key, document.get("_rev").cloned().unwrap_or(Value::Null))]
}

/// [`Definition::expiry`] on one replica of a range.
#[derive(Debug)]
pub struct ExpiryIndex {
    view: ViewIndex,
}

impl Indexes {
    /// Touches memory only. `database` and `range`: see [`Subject`].
    pub fn expiry(&self, replica: &ShardReplica, member: &Arc<str>, database: &str, range: String) -> ExpiryIndex {
        let definition = Arc::new(Definition::expiry(member));
        let mapper: Arc<dyn Mapper> = Arc::new(ExpiryMapper { env: self.env.clone(), member: Arc::clone(member) });
        let subject = Subject::new(TaskKind::Indexer, database).range(range).design("_auto_purge");
        ExpiryIndex { view: self.view(replica, &definition, &mapper, subject) }
    }
}

fn of_index(error: IndexError) -> ShardError {
    match error {
        IndexError::Shard(error) => error,
        other => ShardError::NotExecuted(other.to_string()),
    }
}

impl ExpiryIndex {
    /// Brings it up to what is committed now, and leaves the node to others half of the time.
    ///
    /// # Errors
    /// That it cannot be read or written.
    pub async fn update(&self) -> Result<(), ShardError> {
        self.view.update_gently().await.map_err(of_index)
    }

    /// Whether it is being built.
    pub fn is_building(&self) -> bool {
        self.view.is_building()
    }

    /// Whether it has all documents, or is at most a little behind.
    ///
    /// # Errors
    /// That it cannot be read.
    pub async fn is_ready(&self) -> Result<bool, ShardError> {
        self.view.is_ready().await
    }

    /// The first documents to end of those that end up to a time, at most `limit` and `limits::STEP_ROWS`.
    ///
    /// # Errors
    /// That it cannot be read.
    pub async fn first(&self, upto: u64, limit: usize) -> Result<Vec<Ended>, ShardError> {
        let Some(span) = until(upto) else { return Ok(Vec::new()) };
        let (places, _) = span.places(&self.view.collator, false, b"");
        let page = self.view.rows([places].into(), Direction::Forward, limit.min(limits::STEP_ROWS), StateOf::Now);
        let page = page.await.map_err(of_index)?;
        page.rows.iter().map(|row| Ok(read(row)?)).collect()
    }

    /// How many documents end up to a time.
    ///
    /// # Errors
    /// That it cannot be read.
    pub async fn count(&self, upto: u64) -> Result<u64, ShardError> {
        match until(upto) {
            Some(span) => self.count_in(span).await,
            None => Ok(0),
        }
    }

    /// How many documents say something that is no time.
    ///
    /// # Errors
    /// That it cannot be read.
    pub async fn unreadable(&self) -> Result<u64, ShardError> {
        let null = || KeyBound { key: Some(Value::Null), id: None };
        self.count_in(KeySpan { start: null(), end: null(), inclusive_end: true }).await
    }

    async fn count_in(&self, span: KeySpan) -> Result<u64, ShardError> {
        let (places, _) = span.places(&self.view.collator, false, b"");
        // Invariant: one answer for each index.
        count_of(&[&self.view], &places).await.pop().expect("an answer")
    }
}

/// The times up to one; `None`: there are none.
fn until(upto: u64) -> Option<KeySpan> {
    let bound = |at: u64| KeyBound { key: Some(Value::from(at.min(limits::EXPIRY_LATEST_S))), id: None };
    (upto > 0).then(|| KeySpan { start: bound(1), end: bound(upto), inclusive_end: true })
}

fn read(row: &Row) -> Result<Ended, StorageError> {
    let damaged = || StorageError::Corrupt("a row of an index of ends".to_owned());
    let at = std::str::from_utf8(&row.key).ok().and_then(|key| key.parse().ok()).ok_or_else(damaged)?;
    let value = json::parse(&row.value).map_err(|_| damaged())?;
    let rev = value.as_str().and_then(|text| Revision::parse(text).ok()).ok_or_else(damaged)?;
    Ok(Ended { id: row.id.clone(), rev, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_ends_at_a_whole_number_of_seconds() {
        let of = |text: &str| match json::parse(text.as_bytes()).unwrap() {
            Value::Object(body) => End::of(&body, "ends"),
            _ => panic!("an object"),
        };
        assert_eq!(of(r#"{"ends":1}"#), End::At(1));
        assert_eq!(of(r#"{"ends":253402300799}"#), End::At(253_402_300_799));
        assert_eq!((of("{}"), of(r#"{"ends":null}"#), of(r#"{"a":{"ends":1}}"#)), (End::Never, End::Never, End::Never));
        for value in ["0", "-1", "1.5", "1.0", "1e9", "1700000000000", "99999999999999999999", "\"1\"", "true", "{}"] {
            assert_eq!(of(&format!(r#"{{"ends":{value}}}"#)), End::Unreadable, "{value}");
        }
    }

    #[test]
    fn each_member_has_an_index_of_its_own() {
        assert_ne!(Definition::expiry("a").signature, Definition::expiry("b").signature);
        assert_eq!(rows(r#"{"_id":"x","_rev":"1-a","b":7}"#, "b"), [(Value::Int(7), Value::from("1-a"))]);
        assert_eq!(rows(r#"{"_id":"x","_rev":"1-a","b":"7"}"#, "b"), [(Value::Null, Value::from("1-a"))]);
        assert_eq!(rows(r#"{"_id":"x","_rev":"1-a"}"#, "b"), []);
        assert!(until(0).is_none() && until(u64::MAX).is_some());
    }
}
