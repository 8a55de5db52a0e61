//! What simulated clients do and how their answers are judged: every answer is checked against the model at once, and
//! after the faults a last client reads everything back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use md5::{Digest, Md5};
use serde_json::{Value, json};
use settee::world::{Env, Instant};

use crate::client::{Answer, Ask, Client, NoAnswer};
use crate::history::{Event, History};
use crate::model::{self, Blob, Edit, Leaf, Model, Outcome, Violation};
use crate::plan::{Op, Sift, TimedOp};
use crate::private::Own;
use crate::world::SimWorld;

mod admin;
mod feed;
mod hostile;
mod keep;
mod own;
mod pair;
mod session;

pub(crate) use hostile::WAYS as HOSTILE_WAYS;
pub use own::set_up as set_up_own;
pub(crate) use pair::order;
pub(crate) use session::TOKEN_KEY;

/// The database that all clients use.
pub const DB: &str = "sim";

/// What clients share: the model, the first broken promise, the counters.
#[derive(Default)]
pub struct Shared {
    /// The oracle.
    pub model: Model,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Answers by kind, for the report: `2xx`, `4xx`, `5xx`, `none`.
    pub answers: BTreeMap<&'static str, u64>,
    /// What happened.
    pub history: History,
    /// Tells the time.
    pub world: Option<SimWorld>,
    /// Tells the time where there is no such world: its begin, and a clock.
    pub outside: Option<(Instant, Env)>,
    /// Several copies answer: a read may be older than what was acknowledged, until the faults are over.
    pub several: bool,
    /// How many nodes one cluster has; 0 without one.
    pub nodes: u32,
}

impl Shared {
    /// Simulated milliseconds since the world began.
    pub fn now_ms(&self) -> u64 {
        let since = |(began, env): &(Instant, Env)| env.now().since(*began);
        let passed = self.world.as_ref().map(SimWorld::now).or_else(|| self.outside.as_ref().map(since));
        passed.map_or(0, |time| time.as_millis() as u64)
    }
}

/// A handle on [`Shared`]; locks are never held across an await.
pub type SharedHandle = Arc<Mutex<Shared>>;

/// Locks, also after a panic: the run is over then, and its record is wanted.
pub fn lock(shared: &SharedHandle) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that a client knows of a document: its newest and first revision, with their paths.
#[derive(Clone, Default)]
struct Known {
    newest: Option<Vec<String>>,
    first: Option<Vec<String>>,
    blobs: Vec<Blob>,
}

/// A client's own local document: what was acknowledged last, and what was sent without an answer
/// (it may take effect late).
#[derive(Default)]
struct Local {
    id: String,
    acknowledged: Option<u64>,
    unsure: Vec<u64>,
}

/// One client at work.
pub struct Worker {
    client: Client,
    shared: SharedHandle,
    known: BTreeMap<u32, Known>,
    local: Local,
    feed: feed::Position,
    name: String,
    own: BTreeMap<u32, Own>,
    admin: admin::Known,
    /// The session's cookie.
    cookie: Option<String>,
    jobs: BTreeMap<Sift, keep::Job>,
    /// What the last answer of the operation under way was.
    outcome: String,
}

/// A promise was broken.
fn broken<T>(invariant: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { invariant, what })
}

fn id(doc: u32) -> String {
    format!("doc-{doc:02}")
}

impl Worker {
    /// A worker called `name` that talks through `client`.
    pub fn new(name: &str, client: Client, shared: SharedHandle) -> Worker {
        let local = Local { id: format!("_local/{name}"), ..Local::default() };
        Worker {
            client,
            shared,
            known: BTreeMap::new(),
            local,
            feed: feed::Position::default(),
            name: name.to_owned(),
            own: BTreeMap::new(),
            admin: admin::Known::default(),
            cookie: None,
            jobs: BTreeMap::new(),
            outcome: String::new(),
        }
    }

    /// Does all operations in order. `pause` waits between them.
    pub async fn run<F, P>(&mut self, ops: &[TimedOp], pause: F)
    where
        F: Fn(u64) -> P,
        P: Future<Output = ()>,
    {
        for timed in ops {
            pause(timed.after_ms).await;
            if self.locked(|s| s.violation.is_some()) {
                return;
            }
            let (from_ms, mut met) = self.locked(|s| (s.now_ms(), s.history.active()));
            self.outcome.clear();
            let done = self.step(&timed.op).await;
            let outcome = std::mem::take(&mut self.outcome);
            let (lane, name) = (self.name.clone(), timed.op.name());
            let outcome = if let Err(violation) = &done { violation.to_string() } else { outcome };
            self.locked(|s| {
                met.extend(s.history.active());
                s.history.operated(name, &met);
                let (to_ms, text, name) = (s.now_ms(), format!("{:?}", timed.op), name.to_owned());
                s.history.events.push(Event { lane, from_ms, to_ms, kind: "op", name, text, outcome });
            });
            if let Err(violation) = done {
                self.locked(|s| s.violation.get_or_insert(violation).clone());
                return;
            }
        }
    }

    /// Gives up the connection: after a crash of the node it may be half open.
    pub fn reconnect(&mut self) {
        self.client.hang_up();
    }

    fn locked<T>(&self, f: impl FnOnce(&mut Shared) -> T) -> T {
        f(&mut lock(&self.shared))
    }

    /// Sends a request with a JSON body (null: none) as the owner, and counts what came of it.
    async fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Answer, NoAnswer> {
        self.ask(Ask::json(method, path, body)).await
    }

    /// Sends a request and counts what came of it.
    async fn ask(&mut self, ask: Ask<'_>) -> Result<Answer, NoAnswer> {
        let (method, path) = (ask.method, ask.path);
        let answer = self.client.ask(ask).await;
        self.count(method, path, answer.as_ref().map_or(0, |a| a.status));
        answer
    }

    fn count(&mut self, method: &str, path: &str, status: u16) {
        let kind = match status {
            0 => "none",
            1..300 => "2xx",
            300..500 => "4xx",
            _ => "5xx",
        };
        self.outcome.push_str(&format!("{method} {path}: {status}\n"));
        self.locked(|s| {
            *s.answers.entry(kind).or_default() += 1;
            s.history.requested(method, path, status);
        });
    }

    async fn step(&mut self, op: &Op) -> Result<(), Violation> {
        match op {
            Op::Put { doc, v } => {
                let parent = self.newest(*doc);
                self.put(*doc, parent, *v).await
            }
            Op::PutStale { doc, v } => {
                let parent = self.known.get(doc).and_then(|k| k.first.clone());
                self.put(*doc, parent, *v).await
            }
            Op::Delete { doc } => self.delete(*doc).await,
            Op::Merge { doc, v, fork, twice } => self.merge(*doc, *v, *fork, *twice).await,
            Op::Bulk { edits } => self.bulk(edits).await,
            Op::Attach { doc, v, bytes } => self.attach(*doc, *v, *bytes).await,
            Op::Read { doc } => self.read(*doc).await,
            Op::ReadTree { doc } => self.read_tree(*doc).await,
            Op::List => self.list().await.map(|_| ()),
            Op::Changes => self.changes().await.map(|_| ()),
            Op::Local { v } => self.put_local(*v).await,
            Op::Compact => {
                let _ = self.call("POST", &format!("/{DB}/_compact"), &Value::Null).await;
                Ok(())
            }
            Op::Follow { mode, limit } => self.follow(*mode, *limit).await,
            Op::Tail { doc, v } => self.tail(*doc, *v).await,
            Op::Replicate => self.replicate().await,
            Op::Keep { sift } => self.keep(*sift).await,
            Op::EndKeep { sift } => self.end_keep(*sift).await,
            op => self.step_alone(op).await,
        }
    }

    /// Operations on what only this client writes.
    async fn step_alone(&mut self, op: &Op) -> Result<(), Violation> {
        match op {
            Op::OwnPut { doc, v } => self.own_put(*doc, *v).await,
            Op::OwnDelete { doc } => self.own_delete(*doc).await,
            Op::OwnPurge { doc } => self.own_purge(*doc).await,
            Op::OwnBulk { edits } => self.own_bulk(edits).await,
            Op::OwnRead { doc } => self.own_read(*doc).await.map(|_| ()),
            Op::OwnView { view } => self.own_view(*view as usize).await.map(|_| ()),
            Op::OwnFind { query, k, paged } => self.own_find(*query, *k, *paged).await.map(|_| ()),
            Op::OwnCompact { views } => self.own_compact(*views).await,
            Op::Strict { on } => self.strict(*on).await,
            Op::Marked { v } => self.marked(*v).await,
            Op::DbCreate => self.db_create().await,
            Op::DbDelete => self.db_delete().await,
            Op::DbWrite { v } => self.db_write(*v).await,
            Op::DbCheck => self.db_check(false).await,
            Op::Secure { open } => self.secure(*open).await,
            Op::Enter => self.enter().await,
            Op::Login => self.login().await,
            Op::Whoami { forged } => self.whoami(*forged).await,
            Op::Token { from_s, until_s, forged } => self.token(*from_s, *until_s, *forged).await,
            Op::Hostile { way } => self.hostile(*way).await,
            other => unreachable!("{other:?} is a shared operation"),
        }
    }

    async fn put_local(&mut self, v: u64) -> Result<(), Violation> {
        let answer = self.call("PUT", &format!("/{DB}/{}", self.local.id), &json!({ "v": v })).await;
        match outcome(&answer) {
            Outcome::Acknowledged(_) => self.local.acknowledged = Some(v),
            Outcome::Unknown => self.local.unsure.push(v),
            Outcome::Refused => {
                return Err(Violation { invariant: "I1", what: format!("a local document was refused: {answer:?}") });
            }
        }
        Ok(())
    }

    /// The local document holds what was acknowledged last, or something that was never answered.
    async fn judge_local(&mut self) -> Result<(), Violation> {
        let answer = self.call("GET", &format!("/{DB}/{}", self.local.id), &Value::Null).await;
        let stored = match &answer {
            Ok(a) if a.status == 200 => a.json()["v"].as_u64(),
            Ok(a) if a.status == 404 => None,
            other => return Err(Violation { invariant: "I28", what: format!("{}: {other:?}", self.local.id) }),
        };
        let unsure = stored.is_some_and(|v| self.local.unsure.contains(&v));
        if stored == self.local.acknowledged || unsure {
            return Ok(());
        }
        let (id, acknowledged) = (&self.local.id, self.local.acknowledged);
        Err(Violation { invariant: "I1", what: format!("{id}: {stored:?} stored, {acknowledged:?} acknowledged") })
    }

    fn newest(&self, doc: u32) -> Option<Vec<String>> {
        self.known.get(&doc).and_then(|k| k.newest.clone())
    }

    fn edit(&self, doc: u32, parent: Option<&Vec<String>>) -> Edit {
        let parent = parent.map(|p| p[0].clone());
        Edit { doc: id(doc), parent, deleted: false, v: None, blobs: vec![], given: None, outcome: Outcome::Unknown }
    }

    async fn put(&mut self, doc: u32, parent: Option<Vec<String>>, v: u64) -> Result<(), Violation> {
        let edit = Edit { v: Some(v), ..self.edit(doc, parent.as_ref()) };
        let mut body = json!({ "v": v });
        if let Some(parent) = &parent {
            body["_rev"] = json!(parent[0]);
        }
        let at = self.locked(|s| s.model.invoke(edit));
        let answer = self.call("PUT", &format!("/{DB}/{}", id(doc)), &body).await;
        self.after_edit(doc, at, parent, vec![], answer).await
    }

    async fn delete(&mut self, doc: u32) -> Result<(), Violation> {
        let Some(parent) = self.newest(doc) else { return self.read(doc).await };
        let edit = Edit { deleted: true, ..self.edit(doc, Some(&parent)) };
        let at = self.locked(|s| s.model.invoke(edit));
        let answer = self.call("DELETE", &format!("/{DB}/{}?rev={}", id(doc), parent[0]), &Value::Null).await;
        let refresh = answer.is_ok();
        self.after_edit(doc, at, Some(parent), vec![], answer).await?;
        if refresh { self.read(doc).await } else { Ok(()) }
    }

    async fn attach(&mut self, doc: u32, v: u64, bytes: u32) -> Result<(), Violation> {
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
        let path = format!("/{DB}/{}/{name}{rev}", id(doc));
        let sent = Ask { kind: "application/octet-stream", body: Bytes::from(content), ..Ask::get(&path) };
        let answer = self.ask(Ask { method: "PUT", ..sent }).await;
        self.after_edit(doc, at, parent, blobs, answer).await
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
                let mut path = vec![rev];
                path.extend(parent.unwrap_or_default());
                self.learn(doc, path, blobs);
                Ok(())
            }
            Outcome::Refused => self.read(doc).await,
            Outcome::Unknown => Ok(()),
        }
    }

    fn learn(&mut self, doc: u32, path: Vec<String>, blobs: Vec<Blob>) {
        let known = self.known.entry(doc).or_default();
        known.first.get_or_insert_with(|| path.clone());
        known.newest = Some(path);
        known.blobs = blobs;
    }

    async fn merge(&mut self, doc: u32, v: u64, fork: bool, twice: bool) -> Result<(), Violation> {
        let known = self.known.get(&doc).cloned().unwrap_or_default();
        let base = if fork { known.first } else { known.newest }.unwrap_or_default();
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
            let answer = self.call("PUT", &format!("/{DB}/{}?new_edits=false", id(doc)), &body).await;
            let settled = outcome(&answer);
            if settled == Outcome::Refused {
                return Err(Violation { invariant: "I9", what: format!("a replicated edit was refused: {answer:?}") });
            }
            self.locked(|s| s.model.settle(at, settled))?;
        }
        self.read(doc).await
    }

    async fn bulk(&mut self, edits: &[(u32, u64)]) -> Result<(), Violation> {
        let mut docs = Vec::new();
        let mut sent = Vec::new();
        for (doc, v) in edits {
            let parent = self.newest(*doc);
            let mut body = json!({ "_id": id(*doc), "v": v });
            if let Some(parent) = &parent {
                body["_rev"] = json!(parent[0]);
            }
            docs.push(body);
            let edit = Edit { v: Some(*v), ..self.edit(*doc, parent.as_ref()) };
            sent.push((*doc, self.locked(|s| s.model.invoke(edit)), parent));
        }
        let answer = self.call("POST", &format!("/{DB}/_bulk_docs"), &json!({ "docs": docs })).await;
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
                let mut path = vec![rev];
                path.extend(parent.unwrap_or_default());
                self.learn(doc, path, vec![]);
            }
        }
        Ok(())
    }

    async fn read(&mut self, doc: u32) -> Result<(), Violation> {
        let path = format!("/{DB}/{}?conflicts=true&revs=true", id(doc));
        let from = self.locked(|s| s.model.tick());
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
        let rev = body["_rev"].as_str().unwrap_or_default().to_owned();
        self.locked(|s| s.model.read(&id(doc), from, Some(rev.clone())));
        self.locked(|s| s.model.saw(&id(doc), &rev, body["v"].as_u64()))?;
        let losers = body["_conflicts"].as_array().cloned().unwrap_or_default();
        if let Some(better) = losers.iter().filter_map(Value::as_str).find(|l| model::order(l) > model::order(&rev)) {
            return Err(Violation { invariant: "I5", what: format!("{}: {rev} wins over {better}", id(doc)) });
        }
        let blobs = self.locked(|s| s.model.blobs_of(&id(doc), &rev));
        self.learn(doc, path_of(&body), blobs);
        Ok(())
    }

    async fn read_tree(&mut self, doc: u32) -> Result<(), Violation> {
        let before = self.locked(|s| if s.several { BTreeSet::new() } else { s.model.seen(&id(doc)) });
        let path = format!("/{DB}/{}?open_revs=all&revs=true", id(doc));
        let answer = self.call("GET", &path, &Value::Null).await;
        let Ok(answer) = answer else { return Ok(()) };
        let leaves = match answer.status {
            200 => leaves(&answer.json()),
            404 => vec![],
            _ => return Ok(()),
        };
        self.locked(|s| s.model.saw_tree(&id(doc), &leaves, &before))
    }

    /// Reads `_all_docs`; the rows' ids and revisions when it answered.
    async fn list(&mut self) -> Result<Option<BTreeMap<String, String>>, Violation> {
        let answer = self.call("GET", &format!("/{DB}/_all_docs"), &Value::Null).await;
        let Some(body) = answer.ok().filter(|a| a.status == 200).map(|a| a.json()) else { return Ok(None) };
        let rows = body["rows"].as_array().cloned().unwrap_or_default();
        let ids: Vec<&str> = rows.iter().filter_map(|r| r["id"].as_str()).collect();
        if ids.windows(2).any(|w| w[0] >= w[1]) {
            return Err(Violation { invariant: "I20", what: format!("rows out of order: {ids:?}") });
        }
        let pair = |r: &Value| Some((r["id"].as_str()?.to_owned(), r["value"]["rev"].as_str()?.to_owned()));
        Ok(Some(rows.iter().filter_map(pair).collect()))
    }

    /// After all faults: reads everything, and holds it against the model.
    pub async fn judge_at_the_end(&mut self, others: &mut [Worker]) -> Result<(), Violation> {
        let documents = self.locked(|s| s.model.documents());
        if !self.locked(|s| s.several) {
            self.locked(|s| s.model.check_order())?;
        }
        let mut winners: BTreeMap<String, (String, bool)> = BTreeMap::new();
        for doc in &documents {
            if let Some(winner) = self.judge_document(doc).await? {
                winners.insert(doc.clone(), winner);
            }
        }
        let live: BTreeMap<String, String> =
            winners.iter().filter(|(_, w)| !w.1).map(|(d, w)| (d.clone(), w.0.clone())).collect();
        match self.list().await? {
            Some(rows) if rows == live => {}
            Some(rows) => return broken("I4", format!("_all_docs {rows:?}, trees {live:?}")),
            None => return broken("I28", "_all_docs does not answer after all faults".into()),
        }
        let info = self.must("GET", &format!("/{DB}")).await?.json();
        let counts = (info["doc_count"].as_u64(), info["doc_del_count"].as_u64());
        if counts != (Some(live.len() as u64), Some((winners.len() - live.len()) as u64)) {
            return Err(Violation { invariant: "I4", what: format!("counts {counts:?}, trees {winners:?}") });
        }
        for worker in others {
            worker.judge_local().await?;
            worker.judge_feed(&winners).await?;
            worker.judge_own().await?;
            worker.judge_admin().await?;
        }
        Ok(())
    }

    /// One document: its tree against the model, its winner, its attachments. The winner and whether it is deleted.
    async fn judge_document(&mut self, doc: &str) -> Result<Option<(String, bool)>, Violation> {
        let before: BTreeSet<String> = self.locked(|s| s.model.seen(doc));
        let answer = self.call("GET", &format!("/{DB}/{doc}?open_revs=all&revs=true"), &Value::Null).await;
        let leaves = match answer {
            Ok(a) if a.status == 200 => leaves(&a.json()),
            Ok(a) if a.status == 404 => vec![],
            other => return Err(Violation { invariant: "I28", what: format!("{doc}: {other:?} after all faults") }),
        };
        self.locked(|s| s.model.saw_tree(doc, &leaves, &before))?;
        let Some(best) = model::winner(&leaves).cloned() else { return Ok(None) };
        if !best.deleted {
            let shown = self.must("GET", &format!("/{DB}/{doc}")).await?.json();
            if shown["_rev"] != json!(best.path[0]) {
                return Err(Violation { invariant: "I5", what: format!("{doc}: {shown} shown, {best:?} wins") });
            }
        }
        for leaf in leaves.iter().filter(|l| !l.deleted) {
            for blob in self.locked(|s| s.model.blobs_of(doc, &leaf.path[0])) {
                let path = format!("/{DB}/{doc}/{}?rev={}", blob.name, leaf.path[0]);
                let content = self.must("GET", &path).await?.body;
                if content.len() != blob.len || <[u8; 16]>::from(Md5::digest(&content)) != blob.md5 {
                    return Err(Violation { invariant: "I11", what: format!("{path}: {} bytes", content.len()) });
                }
            }
        }
        Ok(Some((best.path[0].clone(), best.deleted)))
    }

    async fn must(&mut self, method: &str, path: &str) -> Result<Answer, Violation> {
        let answer = self.call(method, path, &Value::Null).await;
        match answer {
            Ok(a) if a.status == 200 => Ok(a),
            other => Err(Violation { invariant: "I28", what: format!("{path}: {other:?} after all faults") }),
        }
    }
}

fn outcome(answer: &Result<Answer, NoAnswer>) -> Outcome {
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

fn leaves(body: &Value) -> Vec<Leaf> {
    let docs = body.as_array().cloned().unwrap_or_default();
    let docs = docs.iter().filter_map(|item| item.get("ok"));
    docs.map(|d| Leaf { path: path_of(d), deleted: d["_deleted"] == json!(true), v: d["v"].as_u64() }).collect()
}

/// The leaves of a tree that was read: revision, deleted, value.
fn leaf_set(body: &Value) -> BTreeSet<(String, bool, Option<u64>)> {
    leaves(body).into_iter().map(|leaf| (leaf.path[0].clone(), leaf.deleted, leaf.v)).collect()
}
