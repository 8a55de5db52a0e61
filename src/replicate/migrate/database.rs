//! The migration of one database: settings, then documents, then design documents, then local documents, then the
//! comparison of all leaves.
//!
//! Design documents come after all other documents, because their validation functions would refuse documents that are
//! older than they are. A checkpoint lies in a local document of the target only; it names the sequence up to which the
//! target has everything, and the design documents that were read and not yet written. A migration that is killed goes
//! on there. What was written behind the checkpoint is not written again: the target tells that it has it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, Stream, TryStreamExt as _};
use http::Method;
use md5::{Digest as _, Md5};

use super::super::copy::Pace;
use super::super::engine::Run;
use super::super::error::{ReplicateError, Result};
use super::super::peer::{ChangedDoc, ChangesAsk, Peer, Refusal, Source, SourcePage};
use super::super::progress::Track;
use super::super::remote::RemotePeer;
use super::super::request::{Endpoint, Replication, ReplicationFilter};
use super::super::tuning::Tuning;
use super::progress::Totals;
use super::server::{Info, Server};
use super::{Locals, Order, Verify};
use crate::config::Config;
use crate::document::json::{Object, Value};
use crate::limits;
use crate::wire::client::Moved;
use crate::wire::hex;
use crate::wire::tls::Connector;
use crate::wire::url::encode;
use crate::world::{BoxFuture, Env, Instant};

/// Where checkpoints of migrations stand among the local documents of a target.
pub(super) const CHECKPOINT: &str = "settee-migration-";

/// What became of one database.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Revisions that were written, those of earlier runs not counted.
    pub written: u64,
    /// Local documents that were written.
    pub locals: u64,
    /// What the comparison found; `None`: there was none.
    pub compared: Option<super::verify::Compared>,
    /// Documents that the target refused last.
    pub refused: Vec<Refusal>,
    /// What was left out or is different, for the operator.
    pub notes: Vec<String>,
}

/// One database on its way.
pub(super) struct Transfer<'m> {
    pub env: &'m Env,
    pub order: &'m Order,
    pub source: &'m Server,
    pub target: &'m Server,
    pub name: &'m str,
    pub info: Info,
    pub totals: &'m Totals,
    pub run: Run,
}

/// How far a transfer is.
struct Course {
    /// The identity of the source's database.
    instance: String,
    seq: Value,
    /// Design documents that wait for the end.
    designs: BTreeMap<String, Vec<String>>,
    rev: Option<String>,
    recorded: Value,
    recorded_at: Instant,
}

/// The replication that copies a database, without checkpoints of its own.
pub(super) fn run_of(env: &Env, order: &Order, name: &str) -> Result<Run> {
    let mut body = Object::new();
    body.push("source", order.source.endpoint(name));
    body.push("target", order.target.endpoint(name));
    let asked = Replication::parse(&body)?;
    let mut tuning = asked.wishes.settled(&Config::in_memory(env, Vec::new()));
    tuning.use_checkpoints = false;
    tuning.patience.retries = limits::MIGRATION_RETRIES;
    tuning.batch_rows = limits::MIGRATION_BATCH_ROWS;
    let track = Arc::new(Track::new(env));
    let source = peer(env, order, &tuning, &asked.source, &track)?;
    let target = peer(env, order, &tuning, &asked.target, &track)?;
    Ok(Run {
        env: env.clone(),
        source: Source { peer: Arc::new(source), track: Arc::clone(&track) },
        target: Arc::new(target),
        cluster_uuid: String::new(),
        pace: Pace::default(),
        asked,
        tuning,
        track,
    })
}

/// A database of a server as a peer of the replication protocol.
fn peer(env: &Env, order: &Order, tuning: &Tuning, endpoint: &Endpoint, track: &Arc<Track>) -> Result<Peer> {
    let Endpoint::Remote(remote) = endpoint else { return Err(ReplicateError::InvalidEndpoint) };
    let tls = Connector::new(env, order.trust.clone(), None);
    let moved: Moved = {
        let track = Arc::clone(track);
        Arc::new(move || track.moved())
    };
    let clients = tuning.clients(env, &tls, remote.proxy.as_ref(), &moved);
    Ok(Peer::Remote(RemotePeer::new(env, clients, remote, tuning.use_bulk_get)))
}

/// Whether an id is that of a design document.
fn is_design(id: &str) -> bool {
    id.starts_with("_design/")
}

impl Transfer<'_> {
    /// Carries the database over.
    ///
    /// # Errors
    /// When a side cannot be used. What was written stays; the next run goes on from the last checkpoint.
    pub async fn run(&self) -> Result<Done> {
        let mut done = Done::default();
        self.prepare(&mut done).await?;
        let mut course = self.begin().await?;
        let mut attempts = limits::MIGRATION_ATTEMPTS;
        loop {
            attempts -= 1;
            match self.documents(&mut course).await {
                // A revision that the feed told of was purged meanwhile: the feed does not tell of it again.
                Err(ReplicateError::Gone { .. }) if attempts > 0 => course = self.begin().await?,
                outcome => break outcome?,
            }
        }
        self.design_documents(&mut course).await?;
        self.local_documents(&mut done).await?;
        done.compared = match self.order.verify {
            Verify::None => None,
            Verify::Leaves | Verify::Full => Some(self.compare().await?),
        };
        let progress = self.run.track.read();
        done.written = progress.counters.docs_written;
        done.refused = progress.refused.into_iter().collect();
        Ok(done)
    }

    /// Makes the database and gives it its security object and limits, before it holds a document.
    async fn prepare(&self, done: &mut Done) -> Result<()> {
        let mut parameters = Vec::new();
        parameters.extend(self.order.q.map(|q| ("q", q.to_string())));
        parameters.extend(self.order.n.map(|n| ("n", n.to_string())));
        parameters.extend(self.info.partitioned.then(|| ("partitioned", "true".to_owned())));
        self.target.create(self.name, &parameters).await?;
        for setting in ["_security", "_revs_limit", "_purged_infos_limit"] {
            if setting == "_security" && self.name == "_users" {
                // Servers refuse to change that of the users' database.
                continue;
            }
            let wanted = self.source.setting(self.name, setting).await?;
            let Some(wanted) = wanted.filter(|wanted| wanted.as_object().is_none_or(|o| !o.is_empty())) else {
                continue;
            };
            match self.target.setting(self.name, setting).await? {
                None => done.notes.push(format!("{setting} is unknown to the target")),
                Some(there) if there != wanted => self.target.set(self.name, setting, &wanted).await?,
                Some(_) => {}
            }
        }
        self.auto_purge(done).await
    }

    /// Gives the database the period for which deleted documents are kept, and the member that says when documents end,
    /// where the source has them. CouchDB up to 3.5 takes the name for that of a document, and refuses it; later ones
    /// refuse the member, which is settee's.
    async fn auto_purge(&self, done: &mut Done) -> Result<()> {
        const SETTING: &str = "_auto_purge";
        let told = self.source.setting_of_some(self.name, SETTING).await?;
        let member = |told: &Option<Value>, name: &str| told.as_ref()?.as_object()?.get(name).cloned();
        let set = |told: &Option<Value>| -> Object {
            let names = ["deleted_document_ttl", "expires_at"];
            names.into_iter().filter_map(|name| Some((name.to_owned(), member(told, name)?))).collect()
        };
        let mut wanted = set(&told);
        if wanted.is_empty() {
            return Ok(());
        }
        let there = self.target.setting_of_some(self.name, SETTING).await?;
        if there.is_none() {
            done.notes.push(format!("{SETTING} is unknown to the target"));
            return Ok(());
        }
        if member(&there, "settee").is_none() && wanted.remove("expires_at").is_some() {
            done.notes.push(format!("expires_at of {SETTING} is unknown to the target"));
        }
        if !wanted.is_empty() && set(&there) != wanted {
            self.target.set(self.name, SETTING, &Value::Object(wanted)).await?;
        }
        Ok(())
    }

    /// The name of the checkpoint: of the source's address and database, whatever the credentials.
    fn checkpoint_id(&self) -> String {
        let source = format!("{}/{}", self.order.source.shown(), encode(self.name));
        format!("{CHECKPOINT}{}", hex::encode(&Md5::digest(source)))
    }

    /// Reads the checkpoint. That of a database that had this name before does not count.
    async fn begin(&self) -> Result<Course> {
        let instance = self.run.source.peer.open(None).await?;
        let found = self.run.target.local_get(&self.checkpoint_id()).await?;
        let rev = found.as_ref().and_then(|found| found.get("_rev")?.as_str().map(str::to_owned));
        let found = found.filter(|found| found.get("instance").and_then(Value::as_str) == Some(&instance));
        let mut course = Course {
            instance,
            seq: Value::Int(0),
            designs: BTreeMap::new(),
            rev,
            recorded: Value::Int(0),
            recorded_at: self.env.now(),
        };
        let Some(found) = found else { return Ok(course) };
        if let Some(seq) = found.get("seq") {
            (course.seq, course.recorded) = (seq.clone(), seq.clone());
        }
        for (id, revs) in found.get("designs").and_then(Value::as_object).into_iter().flat_map(Object::iter) {
            let revs = revs.as_array().unwrap_or_default().iter();
            course.designs.insert(id.to_owned(), revs.filter_map(|rev| rev.as_str().map(str::to_owned)).collect());
        }
        Ok(course)
    }

    /// Writes down how far the target has everything.
    async fn checkpoint(&self, course: &mut Course) -> Result<()> {
        course.recorded_at = self.env.now();
        self.run.target.ensure_full_commit().await?;
        let texts = |revs: &Vec<String>| Value::Array(revs.iter().map(|rev| Value::from(rev.as_str())).collect());
        let designs: Object = course.designs.iter().map(|(id, revs)| (id.clone(), texts(revs))).collect();
        let mut body = Object::new();
        body.push("source", format!("{}/{}", self.order.source.shown(), encode(self.name)));
        body.push("instance", course.instance.as_str());
        body.push("seq", course.seq.clone());
        body.push("designs", designs);
        let id = self.checkpoint_id();
        let rev = match self.run.target.local_put(&id, course.rev.as_deref(), &body).await {
            // The answer to an earlier write was lost, or another run is at work: what is there is older or as good.
            Err(ReplicateError::Conflict) => {
                let there = self.run.target.local_get(&id).await?;
                let rev = there.as_ref().and_then(|there| there.get("_rev")?.as_str().map(str::to_owned));
                self.run.target.local_put(&id, rev.as_deref(), &body).await?
            }
            outcome => outcome?,
        };
        course.rev = Some(rev);
        course.recorded = course.seq.clone();
        Ok(())
    }

    fn ask(&self, since: Value, rows: u64) -> ChangesAsk {
        ChangesAsk {
            since,
            limit: rows,
            filter: ReplicationFilter::None,
            winners: false,
            wait: false,
            time_limit: None,
        }
    }

    /// The pages of a feed after `since`, as far as it goes now. `rows`: of one page.
    pub(super) fn feed<'f>(
        &'f self,
        peer: &'f Peer,
        since: Value,
        rows: u64,
    ) -> Pin<Box<dyn Stream<Item = Result<SourcePage>> + Send + 'f>> {
        let read = move |state: Option<(Value, Option<u64>)>| async move {
            let Some((since, left)) = state else { return Ok(None) };
            let page = peer.changes(&self.ask(since, rows)).await?;
            // No more than twice what was there at first: a database that always changes has no end otherwise.
            let all = || Some(page.pending?.saturating_add(page.read).saturating_mul(2));
            let left = left.or_else(all).map(|left| left.saturating_sub(page.read));
            let ends = match page.pending {
                Some(pending) => pending == 0 || page.rows.is_empty() || left == Some(0),
                None => (page.rows.len() as u64) < rows,
            };
            let next = (!ends).then(|| (page.last_seq.clone(), left));
            Ok(Some((page, next)))
        };
        Box::pin(stream::try_unfold(Some((since, None)), read))
    }

    /// Copies all documents but design documents.
    async fn documents(&self, course: &mut Course) -> Result<()> {
        let source = Arc::clone(&self.run.source.peer);
        let pages = self.feed(&source, course.seq.clone(), self.run.tuning.batch_rows);
        let mut known = false;
        let pages = pages.map_ok(|page| self.copied(page)).try_buffered(self.run.tuning.workers);
        let mut pages = std::pin::pin!(pages);
        while let Some((page, designs)) = pages.try_next().await? {
            if !std::mem::replace(&mut known, true) {
                self.totals.estimate(self.name, page.pending.map(|pending| pending + page.read));
            }
            self.totals.done(self.name, page.read);
            for design in designs {
                course.designs.insert(design.id, design.revs);
            }
            course.seq = page.last_seq;
            let is_due = self.env.now().since(course.recorded_at) >= limits::MIGRATION_CHECKPOINT;
            if is_due && course.recorded != course.seq {
                self.checkpoint(course).await?;
            }
        }
        if course.recorded != course.seq {
            self.checkpoint(course).await?;
        }
        Ok(())
    }

    /// A page whose documents are on the target, and its design documents.
    fn copied(&self, mut page: SourcePage) -> BoxFuture<'_, Result<(SourcePage, Vec<ChangedDoc>)>> {
        Box::pin(async move {
            let rows = std::mem::take(&mut page.rows).into_iter();
            let (designs, rows): (Vec<ChangedDoc>, Vec<ChangedDoc>) = rows.partition(|row| is_design(&row.id));
            self.run.copy_page(&rows).await?;
            Ok((page, designs))
        })
    }

    /// Copies the design documents. That of `_users` is each server's own.
    async fn design_documents(&self, course: &mut Course) -> Result<()> {
        if course.designs.is_empty() {
            return Ok(());
        }
        let rows = course.designs.iter().filter(|(id, _)| !self.is_own(id));
        let rows: Vec<ChangedDoc> = rows.map(|(id, revs)| ChangedDoc { id: id.clone(), revs: revs.clone() }).collect();
        for rows in rows.chunks(limits::MIGRATION_DESIGNS) {
            self.run.copy_page(rows).await?;
        }
        course.designs.clear();
        self.checkpoint(course).await
    }

    /// Whether each server has a document of this id of its own.
    pub(super) fn is_own(&self, id: &str) -> bool {
        matches!((self.name, id), ("_users", "_design/_auth") | ("_replicator", "_design/_replicator"))
    }

    async fn local_documents(&self, done: &mut Done) -> Result<()> {
        if self.order.locals == Locals::None {
            return Ok(());
        }
        let mut after = String::new();
        loop {
            let page = self.source.local_documents(self.name, &after, limits::MIGRATION_LOCALS).await?;
            let Some(page) = page else {
                done.notes.push("the source does not list its local documents".to_owned());
                return Ok(());
            };
            let Some(last) = page.last().and_then(|doc| doc.get("_id")?.as_str().map(str::to_owned)) else {
                return Ok(());
            };
            for doc in page.iter().filter(|doc| wants_local(doc, self.order.locals)) {
                done.locals += u64::from(self.local_document(doc).await?);
            }
            after = last;
        }
    }

    /// Writes a local document where the target has none or another one; answers whether it did.
    async fn local_document(&self, doc: &Object) -> Result<bool> {
        let Some(id) = doc.get("_id").and_then(Value::as_str) else { return Ok(false) };
        let below = format!("/{}/_local/{}", encode(self.name), encode(id.trim_start_matches("_local/")));
        let (status, there) = self.target.ask(Method::GET, &below, None).await?;
        let there = there.as_object().filter(|_| status.is_success());
        let content = |doc: &Object| {
            let members = doc.iter().filter(|(name, _)| *name != "_rev");
            members.map(|(name, value)| (name.to_owned(), value.clone())).collect::<Object>()
        };
        let mut wanted = content(doc);
        if there.is_some_and(|there| content(there) == wanted) {
            return Ok(false);
        }
        if let Some(rev) = there.and_then(|there| there.get("_rev")) {
            wanted.push("_rev", rev.clone());
        }
        self.target.must(Method::PUT, &below, Some(&Value::Object(wanted))).await?;
        Ok(true)
    }
}

/// Whether a local document is carried over. What a server keeps of its own shards, indexes and migrations never is.
/// Checkpoints of replications name sequences of the source, which mean nothing on the target.
fn wants_local(doc: &Object, locals: Locals) -> bool {
    let id = doc.get("_id").and_then(Value::as_str).unwrap_or_default().trim_start_matches("_local/");
    let is_internal = ["purge-", "shard-sync-", CHECKPOINT].iter().any(|prefix| id.starts_with(prefix));
    let is_checkpoint = doc.contains("session_id") && (doc.contains("history") || doc.contains("last_seq"));
    !is_internal && (locals == Locals::All || !is_checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn wanted(text: &str, locals: Locals) -> bool {
        wants_local(json::parse(text.as_bytes()).unwrap().as_object().unwrap(), locals)
    }

    #[test]
    fn local_documents_of_applications_are_carried_over_and_checkpoints_only_on_request() {
        let own = r#"{"_id":"_local/settings","_rev":"0-1","a":1}"#;
        let checkpoint = r#"{"_id":"_local/abc","session_id":"x","history":[]}"#;
        let of_pouchdb = r#"{"_id":"_local/abc","session_id":"x","last_seq":5}"#;
        assert!(wanted(own, Locals::Documents) && wanted(own, Locals::All));
        for text in [checkpoint, of_pouchdb] {
            assert!(!wanted(text, Locals::Documents) && wanted(text, Locals::All), "{text}");
        }
        for id in ["purge-mrview-x", "shard-sync-a-b", "settee-migration-1"] {
            assert!(!wanted(&format!(r#"{{"_id":"_local/{id}"}}"#), Locals::All), "{id}");
        }
    }
}
