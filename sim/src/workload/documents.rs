//! Documents that all clients write: edits that may be in conflict, replicated edits, bulk requests, attachments, reads
//! of them. Every answer is held against the model at once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use md5::{Digest, Md5};
use serde_json::{Value, json};

use super::seen::is_design;
use super::{DB, Worker, broken};
use crate::client::{Answer, Ask, NoAnswer};
use crate::model::{self, Blob, Edit, Leaf, Outcome, Violation};

/// Something that a client knows of a document: its newest and first revision, with their paths.
#[derive(Clone, Default)]
pub(super) struct Known {
    newest: Option<Vec<String>>,
    pub(super) first: Option<Vec<String>>,
    blobs: Vec<Blob>,
}

/// One edit in so many whose outcome stays open is sent again, to some node of the cluster.
const RETRIED_ONE_IN: u64 = 2;

/// Bytes of a document beside its text, or of a request beside what is sent, at most.
const SMALL: usize = 400;

/// The id of the document with this number.
pub(super) fn id(doc: u32) -> String {
    format!("doc-{doc:02}")
}

impl Worker {
    pub(super) fn newest(&self, doc: u32) -> Option<Vec<String>> {
        self.known.get(&doc).and_then(|k| k.newest.clone())
    }

    fn edit(&self, doc: u32, parent: Option<&Vec<String>>) -> Edit {
        let parent = parent.map(|p| p[0].clone());
        Edit { doc: id(doc), parent, deleted: false, v: None, blobs: vec![], given: None, outcome: Outcome::Unknown }
    }

    pub(super) async fn put(&mut self, doc: u32, parent: Option<Vec<String>>, v: u64) -> Result<(), Violation> {
        let edit = Edit { v: Some(v), ..self.edit(doc, parent.as_ref()) };
        let mut body = body_of(v);
        if let Some(parent) = &parent {
            body["_rev"] = json!(parent[0]);
        }
        let (at, path) = (self.locked(|s| s.model.invoke(edit.clone())), self.written_at(format!("/{DB}/{}", id(doc))));
        let (sent_ms, room) = self.locked(|s| (s.now_ms(), s.scarce.get(&0).copied()));
        let answer = self.call("PUT", &path, &body).await;
        if let Ok(answer) = &answer {
            self.written_beside_maintenance(&id(doc), sent_ms, answer);
            self.keeps_room(&id(doc), room, answer)?;
        }
        self.keeps_caps(&id(doc), model::padding(v), &answer)?;
        let is_open = outcome(&answer) == Outcome::Unknown;
        self.after_edit(doc, at, parent.clone(), vec![], answer).await?;
        let is_retried = is_open && v.is_multiple_of(RETRIED_ONE_IN);
        let elsewhere = is_retried.then(|| self.one_of_cluster(v / RETRIED_ONE_IN)).flatten();
        let Some(mut elsewhere) = elsewhere else { return Ok(()) };
        // F20: whatever became of it, the client asks another node for the same.
        let at = self.locked(|s| s.model.invoke(edit));
        let answer = self.call_by(&mut elsewhere, "PUT", &path, &body).await;
        self.after_edit(doc, at, parent, vec![], answer).await
    }

    pub(super) async fn delete(&mut self, doc: u32) -> Result<(), Violation> {
        let Some(parent) = self.newest(doc) else { return self.read(doc).await };
        let edit = Edit { deleted: true, ..self.edit(doc, Some(&parent)) };
        let at = self.locked(|s| s.model.invoke(edit));
        let path = self.written_at(format!("/{DB}/{}?rev={}", id(doc), parent[0]));
        let answer = self.call("DELETE", &path, &Value::Null).await;
        let refresh = answer.is_ok();
        self.after_edit(doc, at, Some(parent), vec![], answer).await?;
        if refresh { self.read(doc).await } else { Ok(()) }
    }

    pub(super) async fn attach(&mut self, doc: u32, v: u64, bytes: u32) -> Result<(), Violation> {
        let parent = self.newest(doc);
        let content: Vec<u8> = (0..bytes).map(|n| (u64::from(n).wrapping_mul(v) >> 3) as u8).collect();
        let name = format!("f{}", v % 3);
        let blob = Blob { name: name.clone(), md5: Md5::digest(&content).into(), len: content.len() };
        let (inherited, value) = match &parent {
            Some(p) => self.locked(|s| (s.model.blobs_of(&id(doc), &p[0]), s.model.value_of(&id(doc), &p[0]))),
            None => (vec![], None),
        };
        let mut blobs = vec![blob];
        blobs.extend(inherited.into_iter().filter(|b| b.name != name));
        let edit = Edit { v: value, blobs: blobs.clone(), ..self.edit(doc, parent.as_ref()) };
        let at = self.locked(|s| s.model.invoke(edit));
        let rev = parent.as_ref().map(|p| format!("?rev={}", p[0])).unwrap_or_default();
        let path = self.written_at(format!("/{DB}/{}/{name}{rev}", id(doc)));
        let sent = Ask { kind: "application/octet-stream", body: Bytes::from(content), ..Ask::get(&path) };
        let answer = self.ask(Ask { method: "PUT", ..sent }).await;
        self.keeps_cap_of_attachments(&id(doc), bytes, &answer)?;
        self.after_edit(doc, at, parent, blobs, answer).await
    }

    /// On one server without room what adds data is refused. `room`: which change of that was felt when it was sent.
    pub(super) fn keeps_room(&self, what: &str, room: Option<u64>, answer: &Answer) -> Result<(), Violation> {
        let (several, now) = self.locked(|s| (s.several, s.scarce.get(&0).copied()));
        let knows = room.is_some() && room == now && !several;
        if knows {
            self.locked(|s| s.history.counts("no room: writes that must be refused"));
        }
        match knows && answer.status < 300 {
            true => broken("I16", format!("{what}: written on a disk that has had no room for long")),
            false => Ok(()),
        }
    }

    /// What is larger than a document may be is refused, what is smaller is not for its size.
    fn keeps_caps(&mut self, what: &str, padding: usize, answer: &Result<Answer, NoAnswer>) -> Result<(), Violation> {
        let Some((most, ..)) = self.locked(|s| s.caps) else { return Ok(()) };
        self.keeps_cap(what, (padding, most as usize), answer)
    }

    fn keeps_cap_of_attachments(
        &mut self,
        what: &str,
        bytes: u32,
        answer: &Result<Answer, NoAnswer>,
    ) -> Result<(), Violation> {
        let Some((_, most, request)) = self.locked(|s| s.caps) else { return Ok(()) };
        self.keeps_cap(what, (bytes as usize, most.min(request) as usize), answer)
    }

    fn keeps_cap(
        &mut self,
        what: &str,
        (bytes, most): (usize, usize),
        answer: &Result<Answer, NoAnswer>,
    ) -> Result<(), Violation> {
        let Ok(answer) = answer else { return Ok(()) };
        let counted = match (bytes > most, answer.status) {
            (true, 200..300) => return broken("I16", format!("{what}: {bytes} bytes were taken, {most} are the most")),
            (false, 413) if bytes + SMALL < most => {
                return broken("I16", format!("{what}: {bytes} bytes were refused, {most} are the most"));
            }
            (true, 413) => "sizes: refused for its size",
            (false, 200..300) if bytes * 2 > most => "sizes: more than half of the cap",
            _ => return Ok(()),
        };
        self.locked(|s| s.history.counts(counted));
        Ok(())
    }

    /// Settles an edit, remembers its revision, and looks again after a refusal.
    async fn after_edit(
        &mut self,
        doc: u32,
        edit: usize,
        parent: Option<Vec<String>>,
        blobs: Vec<Blob>,
        answer: Result<Answer, NoAnswer>,
    ) -> Result<(), Violation> {
        let outcome = outcome(&answer);
        self.feed.owed |= matches!(outcome, Outcome::Acknowledged(_));
        self.locked(|s| s.model.settle(edit, outcome.clone()))?;
        match outcome {
            Outcome::Acknowledged(rev) => {
                self.promised(doc, &rev, &answer)?;
                let mut path = vec![rev];
                path.extend(parent.unwrap_or_default());
                self.learn(doc, path, blobs);
                Ok(())
            }
            Outcome::Refused => self.read(doc).await,
            Outcome::Unknown => Ok(()),
        }
    }

    /// Takes in what an answer promises of the revision that it acknowledges.
    fn promised(&mut self, doc: u32, rev: &str, answer: &Result<Answer, NoAnswer>) -> Result<(), Violation> {
        if let Ok(answer) = answer {
            let held = self.held(&id(doc), answer)?;
            self.locked(|s| s.model.promise(&id(doc), rev, held));
        }
        Ok(())
    }

    fn learn(&mut self, doc: u32, path: Vec<String>, blobs: Vec<Blob>) {
        let known = self.known.entry(doc).or_default();
        known.first.get_or_insert_with(|| path.clone());
        known.newest = Some(path);
        known.blobs = blobs;
    }

    pub(super) async fn merge(&mut self, doc: u32, v: u64, fork: bool, twice: bool) -> Result<(), Violation> {
        let known = self.known.get(&doc).cloned().unwrap_or_default();
        // Of an edit over a tombstone its writer knows the revision alone: no history to tell others (seed c975).
        let is_whole = |path: &Vec<String>| model::order(&path[0]).0 == path.len() as u64;
        let base = if fork { known.first } else { known.newest }.filter(is_whole).unwrap_or_default();
        let generation = base.first().map_or(0, |rev| model::order(rev).0) + 1;
        let hash: String = Md5::digest(format!("merge {v}")).iter().map(|b| format!("{b:02x}")).collect();
        let rev = format!("{generation}-{hash}");
        let mut path = vec![rev.clone()];
        path.extend(base.iter().cloned());
        let ids: Vec<String> = path.iter().map(|r| model::order(r).1).collect();
        let body = json!({ "v": v, "_rev": rev, "_revisions": { "start": generation, "ids": ids } });
        let parent = if base.is_empty() { None } else { Some(&base) };
        let edit = Edit { v: Some(v), given: Some(rev.clone()), ..self.edit(doc, parent) };
        for _ in 0..=u8::from(twice) {
            let at = self.locked(|s| s.model.invoke(edit.clone()));
            let path = self.written_at(format!("/{DB}/{}?new_edits=false", id(doc)));
            let answer = self.call("PUT", &path, &body).await;
            let settled = outcome(&answer);
            if settled == Outcome::Refused {
                return Err(Violation { invariant: "I9", what: format!("a replicated edit was refused: {answer:?}") });
            }
            if matches!(settled, Outcome::Acknowledged(_)) {
                self.promised(doc, &rev, &answer)?;
            }
            self.locked(|s| s.model.settle(at, settled))?;
        }
        self.read(doc).await
    }

    pub(super) async fn bulk(&mut self, edits: &[(u32, u64)]) -> Result<(), Violation> {
        let mut docs = Vec::new();
        let mut sent = Vec::new();
        for (doc, v) in edits {
            let parent = self.newest(*doc);
            let mut body = body_of(*v);
            body["_id"] = json!(id(*doc));
            if let Some(parent) = &parent {
                body["_rev"] = json!(parent[0]);
            }
            docs.push(body);
            let edit = Edit { v: Some(*v), ..self.edit(*doc, parent.as_ref()) };
            sent.push((*doc, self.locked(|s| s.model.invoke(edit)), parent));
        }
        let path = self.written_at(format!("/{DB}/_bulk_docs"));
        let answer = self.call("POST", &path, &json!({ "docs": docs })).await;
        if matches!(&answer, Ok(a) if a.status == 413) {
            // Refused as a whole: nothing of it was written.
            return self.locked(|s| sent.iter().try_for_each(|(_, edit, _)| s.model.settle(*edit, Outcome::Refused)));
        }
        let rows = match &answer {
            Ok(a) if a.status == 201 || a.status == 202 => a.json().as_array().cloned().unwrap_or_default(),
            _ => return Ok(()),
        };
        if rows.len() != sent.len() {
            return Err(Violation {
                invariant: "I11",
                what: format!("{} items for {} documents", rows.len(), sent.len()),
            });
        }
        for (row, (doc, edit, parent)) in rows.iter().zip(sent) {
            if row["id"] != json!(id(doc)) {
                return Err(Violation { invariant: "I11", what: format!("item {row} stands for {}", id(doc)) });
            }
            let settled = match row["rev"].as_str() {
                Some(rev) => Outcome::Acknowledged(rev.to_owned()),
                None if row["error"] == "conflict" => Outcome::Refused,
                None => Outcome::Unknown,
            };
            self.locked(|s| s.model.settle(edit, settled.clone()))?;
            if let Outcome::Acknowledged(rev) = settled {
                let held = self.held_of_item(row["accepted"] == json!(true));
                self.locked(|s| s.model.promise(&id(doc), &rev, held));
                let mut path = vec![rev];
                path.extend(parent.unwrap_or_default());
                self.learn(doc, path, vec![]);
            }
        }
        Ok(())
    }

    pub(super) async fn read(&mut self, doc: u32) -> Result<(), Violation> {
        let path = self.read_at(format!("/{DB}/{}?conflicts=true&deleted_conflicts=true&revs=true", id(doc)));
        let (from, promised) = self.locked(|s| (s.model.tick(), s.model.promises(&id(doc))));
        let answer = self.call("GET", &path, &Value::Null).await;
        let Ok(answer) = answer else { return Ok(()) };
        let body = answer.json();
        if answer.status == 404 {
            self.locked(|s| s.model.read(&id(doc), from, None));
            self.known.entry(doc).or_default().newest = None;
            return Ok(());
        }
        if answer.status != 200 {
            return Ok(());
        }
        if !is_whole(&body) {
            return broken("I27", format!("{}: not all of its text: {} bytes", id(doc), answer.body.len()));
        }
        let rev = body["_rev"].as_str().unwrap_or_default().to_owned();
        self.locked(|s| s.model.read(&id(doc), from, Some(rev.clone())));
        self.shown_alone(doc, &body);
        self.locked(|s| s.model.saw(&id(doc), &rev, body["v"].as_u64()))?;
        let losers = body["_conflicts"].as_array().cloned().unwrap_or_default();
        if let Some(better) = losers.iter().filter_map(Value::as_str).find(|l| model::order(l) > model::order(&rev)) {
            return Err(Violation { invariant: "I5", what: format!("{}: {rev} wins over {better}", id(doc)) });
        }
        let (blobs, path) = (self.locked(|s| s.model.blobs_of(&id(doc), &rev)), path_of(&body));
        if losers.is_empty() && body["_deleted_conflicts"].is_null() {
            self.shows_all(&id(doc), &promised, &path, answer.replicas)?;
        }
        self.learn(doc, path, blobs);
        Ok(())
    }

    /// Notes the tree of a document that was read without conflicts, for people.
    fn shown_alone(&self, doc: u32, body: &Value) {
        if body["_conflicts"].is_null() && body["_deleted_conflicts"].is_null() {
            let leaf = Leaf { path: path_of(body), deleted: false, v: body["v"].as_u64() };
            self.locked(|s| s.shows_tree(&id(doc), &self.name, &[leaf]));
        }
    }

    pub(super) async fn read_tree(&mut self, doc: u32) -> Result<(), Violation> {
        let before = self.locked(|s| match (s.several, s.asked.sure_from()) {
            (false, _) => s.model.lasting(&id(doc)),
            (true, Some(least)) => s.model.promised(&id(doc), least),
            (true, None) => BTreeSet::new(),
        });
        let path = self.read_at(format!("/{DB}/{}?open_revs=all&revs=true", id(doc)));
        let answer = self.call("GET", &path, &Value::Null).await;
        let Ok(answer) = answer else { return Ok(()) };
        let leaves = match answer.status {
            200 => leaves(&answer.json()),
            404 => vec![],
            _ => return Ok(()),
        };
        self.locked(|s| {
            s.shows_tree(&id(doc), &self.name, &leaves);
            s.model.saw_tree(&id(doc), &leaves, &before)
        })
    }

    /// Reads `_all_docs`; the rows' ids and revisions when it answered.
    pub(super) async fn list(&mut self) -> Result<Option<BTreeMap<String, String>>, Violation> {
        let due = self.due_after_maintenance();
        let answer = self.call("GET", &format!("/{DB}/_all_docs"), &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(None) };
        let rows = body["rows"].as_array().cloned().unwrap_or_default();
        let ids: Vec<&str> = rows.iter().filter_map(|r| r["id"].as_str()).collect();
        if ids.windows(2).any(|w| w[0] >= w[1]) {
            return Err(Violation { invariant: "I20", what: format!("rows out of order: {ids:?}") });
        }
        self.shows_due(&due, &rows)?;
        let rows = rows.iter().filter(|row| !row["id"].as_str().is_some_and(is_design));
        let pair = |r: &Value| Some((r["id"].as_str()?.to_owned(), r["value"]["rev"].as_str()?.to_owned()));
        Ok(Some(rows.filter_map(pair).collect()))
    }
}

/// The body of a document: its value, and the text that goes with it.
fn body_of(v: u64) -> Value {
    match model::padding(v) {
        0 => json!({ "v": v }),
        _ => json!({ "v": v, "w": model::padded(v) }),
    }
}

/// Whether a document has the text that goes with its value.
pub(super) fn is_whole(doc: &Value) -> bool {
    let padding = doc["v"].as_u64().map_or(0, model::padding);
    doc["w"].as_str().map_or(0, str::len) == padding
}

/// What an answer tells of the edit that was asked for.
pub(crate) fn outcome(answer: &Result<Answer, NoAnswer>) -> Outcome {
    match answer {
        Ok(a) if (200..300).contains(&a.status) => match a.json()["rev"].as_str() {
            Some(rev) => Outcome::Acknowledged(rev.to_owned()),
            None => Outcome::Unknown,
        },
        Ok(a) if (400..500).contains(&a.status) => Outcome::Refused,
        _ => Outcome::Unknown,
    }
}

/// The path of a document that was read with `revs=true`.
fn path_of(body: &Value) -> Vec<String> {
    let start = body["_revisions"]["start"].as_u64().unwrap_or(0);
    let ids = body["_revisions"]["ids"].as_array().cloned().unwrap_or_default();
    let ids = ids.iter().filter_map(Value::as_str).enumerate();
    ids.map(|(n, hash)| format!("{}-{hash}", start - n as u64)).collect()
}

/// The leaves of a tree that was read.
pub(crate) fn leaves(body: &Value) -> Vec<Leaf> {
    let docs = body.as_array().cloned().unwrap_or_default();
    let docs = docs.iter().filter_map(|item| item.get("ok"));
    docs.map(|d| Leaf { path: path_of(d), deleted: d["_deleted"] == json!(true), v: d["v"].as_u64() }).collect()
}

/// The leaves of a tree: revision, deleted, value.
pub(super) fn leaf_set(leaves: &[Leaf]) -> BTreeSet<(String, bool, Option<u64>)> {
    leaves.iter().map(|leaf| (leaf.path[0].clone(), leaf.deleted, leaf.v)).collect()
}
