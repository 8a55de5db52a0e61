//! Checkpoints: what both sides remember of earlier sessions, and how a session goes on from them. Pure.
//!
//! A checkpoint is a local document of the same content on both sides. Where the two agree on a session, everything up
//! to that session's sequence is on the target.

use crate::document::json::{Object, Value};
use crate::limits;

/// The version of the way in which replication ids are made, as CouchDB 3.5 numbers it.
const ID_VERSION: i64 = 4;

/// What was done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Revisions asked about.
    pub missing_checked: u64,
    /// Revisions that the target lacked.
    pub missing_found: u64,
    /// Revisions read from the source.
    pub docs_read: u64,
    /// Revisions written to the target.
    pub docs_written: u64,
    /// Revisions that the target refused.
    pub doc_write_failures: u64,
    /// Revisions that came in answers to `_bulk_get`.
    pub bulk_get_docs: u64,
    /// Revisions asked for by `_bulk_get`.
    pub bulk_get_attempts: u64,
}

impl Counters {
    /// Those of an entry of a history.
    pub fn of_entry(entry: &Value) -> Counters {
        let mut out = Counters::default();
        for (name, count) in out.members_mut() {
            *count = entry.as_object().and_then(|entry| entry.get(name)?.as_u64()).unwrap_or(0);
        }
        out
    }

    /// The larger number of each.
    pub fn most(mut self, mut other: Counters) -> Counters {
        for ((_, count), (_, other)) in self.members_mut().into_iter().zip(other.members_mut()) {
            *count = (*count).max(*other);
        }
        self
    }

    /// As an entry of a history names them.
    fn members_mut(&mut self) -> [(&'static str, &mut u64); 7] {
        [
            ("missing_checked", &mut self.missing_checked),
            ("missing_found", &mut self.missing_found),
            ("docs_read", &mut self.docs_read),
            ("docs_written", &mut self.docs_written),
            ("doc_write_failures", &mut self.doc_write_failures),
            ("bulk_get_docs", &mut self.bulk_get_docs),
            ("bulk_get_attempts", &mut self.bulk_get_attempts),
        ]
    }
}

/// Where a session begins, and the history before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ancestor {
    /// The sequence of the source up to which the target has everything; 0: nothing is known.
    pub seq: Value,
    /// The entries of earlier sessions, newest first.
    pub history: Vec<Value>,
}

impl Ancestor {
    /// Nothing is known.
    pub fn none() -> Ancestor {
        Ancestor { seq: Value::Int(0), history: Vec::new() }
    }
}

fn entries(log: &Object) -> &[Value] {
    log.get("history").and_then(Value::as_array).unwrap_or_default()
}

fn session(entry: &Object) -> Option<&str> {
    entry.get("session_id").and_then(Value::as_str)
}

/// The newest session that both logs know. A session may appear with different sequences on the two sides when one
/// write of a checkpoint failed: the target's entry is what it is known to have.
pub fn common_ancestor(source: Option<&Object>, target: Option<&Object>) -> Ancestor {
    let (Some(source), Some(target)) = (source, target) else { return Ancestor::none() };
    if session(source).is_some() && session(source) == session(target) {
        let (ours, theirs) = (source.get("source_last_seq"), target.get("source_last_seq"));
        if ours == theirs {
            let seq = ours.cloned().unwrap_or(Value::Int(0));
            return Ancestor { seq, history: entries(source).to_vec() };
        }
    }
    let known = entries(target);
    for (at, entry) in entries(source).iter().enumerate() {
        let Some(id) = entry.as_object().and_then(session) else { continue };
        let same = |other: &&Value| other.as_object().and_then(session) == Some(id);
        let Some(other) = known.iter().find(same).and_then(Value::as_object) else { continue };
        let seq = |name: &str| other.get(name).cloned();
        let seq = seq("recorded_seq").or_else(|| seq("end_last_seq"));
        let Some(seq) = seq else { continue };
        return Ancestor { seq, history: entries(source)[at..].to_vec() };
    }
    Ancestor::none()
}

/// A session as it is written down.
#[derive(Clone, Debug)]
pub struct Session {
    /// 32 hexadecimal digits.
    pub id: String,
    /// When it began, as an HTTP date.
    pub start_time: String,
    /// Where it began.
    pub start_seq: Value,
    /// What was there before.
    pub history: Vec<Value>,
    /// Whether the numbers are repeated at the top, as for `doc_ids`.
    pub with_summary: bool,
}

impl Session {
    /// The content of both checkpoints after everything up to `seq` is on the target.
    pub fn log(&self, seq: &Value, mut counters: Counters, end_time: &str) -> Object {
        let mut entry = Object::new();
        entry.push("session_id", self.id.as_str());
        entry.push("start_time", self.start_time.as_str());
        entry.push("end_time", end_time);
        entry.push("start_last_seq", self.start_seq.clone());
        entry.push("end_last_seq", seq.clone());
        entry.push("recorded_seq", seq.clone());
        for (name, count) in counters.members_mut() {
            entry.push(name, *count);
        }
        let mut log = Object::new();
        log.push("session_id", self.id.as_str());
        log.push("source_last_seq", seq.clone());
        log.push("replication_id_version", ID_VERSION);
        if self.with_summary {
            log.push("start_time", self.start_time.as_str());
            log.push("end_time", end_time);
            log.push("docs_read", counters.docs_read);
            log.push("docs_written", counters.docs_written);
            log.push("doc_write_failures", counters.doc_write_failures);
        }
        let older = self.history.iter().take(limits::REPLICATION_HISTORY - 1).cloned();
        log.push("history", Value::Array(std::iter::once(Value::Object(entry)).chain(older).collect()));
        log
    }
}

/// The answer to a session: `ok` before the members of its log, and `no_changes` between when nothing was new.
pub fn answer(log: Option<&Object>, no_changes: bool) -> Object {
    let mut out = Object::new();
    out.push("ok", true);
    if no_changes {
        out.push("no_changes", true);
    }
    let shown = |name: &&str| !matches!(*name, "_id" | "_rev" | "ok" | "no_changes");
    for (name, value) in log.into_iter().flat_map(Object::iter).filter(|(name, _)| shown(name)) {
        out.push(name, value.clone());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn object(text: &str) -> Object {
        json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    fn log(sessions: &[(&str, i64)]) -> Object {
        let entry = |(id, seq): &(&str, i64)| format!(r#"{{"session_id":"{id}","recorded_seq":{seq}}}"#);
        let history: Vec<String> = sessions.iter().map(entry).collect();
        let (id, seq) = sessions[0];
        object(&format!(r#"{{"session_id":"{id}","source_last_seq":{seq},"history":[{}]}}"#, history.join(",")))
    }

    #[test]
    fn the_newest_common_session_is_the_start() {
        let seq = |source: &[(&str, i64)], target: &[(&str, i64)]| {
            common_ancestor(Some(&log(source)), Some(&log(target))).seq
        };
        assert_eq!(seq(&[("b", 9), ("a", 5)], &[("b", 9), ("a", 5)]), Value::Int(9));
        assert_eq!(seq(&[("c", 12), ("b", 9), ("a", 5)], &[("d", 11), ("a", 5)]), Value::Int(5));
        assert_eq!(seq(&[("b", 9)], &[("c", 9)]), Value::Int(0));
        // The target missed the last write of the session: what it recorded counts.
        assert_eq!(seq(&[("b", 9), ("a", 5)], &[("b", 7), ("a", 5)]), Value::Int(7));
    }

    #[test]
    fn one_side_without_a_log_starts_anew() {
        assert_eq!(common_ancestor(Some(&log(&[("a", 5)])), None), Ancestor::none());
        assert_eq!(common_ancestor(None, Some(&log(&[("a", 5)]))), Ancestor::none());
        let broken = object(r#"{"session_id":7,"history":{}}"#);
        assert_eq!(common_ancestor(Some(&broken), Some(&broken)), Ancestor::none());
    }

    #[test]
    fn a_log_has_the_recorded_members_and_a_bounded_history() {
        let history = vec![Value::Null; 80];
        let (id, start_time) = ("s".to_owned(), "then".to_owned());
        let mut session = Session { id, start_time, start_seq: Value::Int(0), history, with_summary: false };
        let text = |session: &Session| {
            let log = session.log(&Value::from("3-x"), Counters { docs_read: 2, ..Counters::default() }, "now");
            let names: Vec<String> = log.iter().map(|(name, _)| name.to_owned()).collect();
            (names.join(" "), log.get("history").unwrap().as_array().unwrap().len())
        };
        assert_eq!(text(&session), ("session_id source_last_seq replication_id_version history".to_owned(), 50));
        session.with_summary = true;
        assert!(text(&session).0.contains("start_time end_time docs_read docs_written doc_write_failures history"));
    }

    #[test]
    fn answers_leave_out_what_belongs_to_the_document() {
        let log = object(r#"{"_id":"_local/x","_rev":"0-1","session_id":"s","history":[]}"#);
        let text = |log, no_changes| String::from_utf8(answer(log, no_changes).to_vec()).unwrap();
        assert_eq!(text(Some(&log), true), r#"{"ok":true,"no_changes":true,"session_id":"s","history":[]}"#);
        assert_eq!(text(None, true), r#"{"ok":true,"no_changes":true}"#);
        assert_eq!(text(Some(&log), false), r#"{"ok":true,"session_id":"s","history":[]}"#);
    }
}
