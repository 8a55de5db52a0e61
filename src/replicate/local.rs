//! A database of this server as a peer, used with the rights of the user who asked for the replication.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::error::{ReplicateError, Result};
use super::peer::{
    Body, ChangedDoc, ChangesAsk, Doc, Fetched, Lack, Refusal, Sent, Source, SourcePage, Stored, Want, text_of,
};
use super::progress::Track;
use super::request::{DESIGN_FILTER, ReplicationFilter, VIEW_FILTER};
use crate::auth::UserCtx;
use crate::auth::access::{self, Class};
use crate::auth::security::SecurityObject;
use crate::config::Config;
use crate::coordinator::{
    Caller, ChangesFilter, ChangesQuery, Coordinator, CreateOptions, Database, DatabaseError, FeedOperations,
    ReadOperations, Since, Style, UploadOptions, Want as Wanted, WriteError, WriteOperations, WriteOptions,
    WriteRequest,
};
use crate::document::draft::{self, Draft, DraftError};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::{Encoding, StoredRevision};
use crate::document::rev_tree::RevPath;
use crate::document::revision::Revision;
use crate::document::selector::Selector;
use crate::limits;
use crate::world::Env;

/// A database of this server.
pub struct LocalPeer {
    /// The world.
    pub env: Env,
    /// The node's databases.
    pub coordinator: Arc<Coordinator>,
    /// The node's settings.
    pub config: Config,
    /// Whose rights count.
    pub user: UserCtx,
    /// The database's name.
    pub name: String,
    /// Its address as shown.
    pub shown: String,
    /// Where progress is noted.
    pub track: Arc<Track>,
}

impl LocalPeer {
    fn database(&self) -> Result<Arc<Database>> {
        let database = self.coordinator.database(&self.name).map_err(|error| match error {
            DatabaseError::Unavailable(error) => DatabaseError::Unavailable(error).into(),
            _ => ReplicateError::DatabaseMissing { url: self.shown.clone() },
        })?;
        // System databases have rules of their own above this layer: only callers above the rules are admitted.
        let class = if self.name.starts_with('_') { Class::ServerAdmin } else { Class::Member };
        self.allow(&database, class)?;
        Ok(database)
    }

    fn allow(&self, database: &Arc<Database>, class: Class) -> Result<()> {
        access::check(class, &self.user, Some(&SecurityObject::of(database))).map_err(|refusal| self.refused(refusal))
    }

    fn refused(&self, refusal: access::Refusal) -> ReplicateError {
        match refusal {
            access::Refusal::Unauthorized(_) => ReplicateError::Unauthorized { url: self.shown.clone() },
            access::Refusal::Forbidden(_) => ReplicateError::Forbidden { url: self.shown.clone() },
        }
    }

    fn write_options(&self) -> WriteOptions {
        let caller = Caller { name: self.user.name.clone(), roles: self.user.roles.clone(), ..Caller::default() };
        WriteOptions { new_edits: false, w: None, caller: Arc::new(caller) }
    }

    /// See [`Peer::open`].
    pub async fn open(&self, create: Option<&[(String, String)]>) -> Result<String> {
        if create.is_some() {
            access::check(Class::ServerAdmin, &self.user, None).map_err(|refusal| self.refused(refusal))?;
        }
        if let Some(parameters) = create
            && !self.coordinator.has_database(&self.name)
        {
            let options = self.create_options(parameters)?;
            match self.coordinator.create_database(&self.name, options).await {
                Ok(_) | Err(DatabaseError::Exists) => {}
                Err(error @ DatabaseError::Unavailable(_)) => return Err(error.into()),
                Err(_) => return Err(ReplicateError::DatabaseMissing { url: self.shown.clone() }),
            }
        }
        Ok(self.database()?.instance().to_owned())
    }

    fn create_options(&self, parameters: &[(String, String)]) -> Result<CreateOptions> {
        let get = |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let number = |name: &str| match get(name).map(str::parse::<u32>) {
            None => Ok(None),
            Some(Ok(number)) if number > 0 => Ok(Some(number)),
            Some(_) => Err(ReplicateError::BadRequest(format!("The `{name}` value should be a positive integer."))),
        };
        Ok(CreateOptions {
            q: number("q")?,
            n: number("n")?,
            partitioned: get("partitioned") == Some("true"),
            placement: get("placement").map(str::to_owned),
            engine: None,
            security: None,
        })
    }

    /// See [`Peer::changes`].
    pub async fn changes(&self, ask: &ChangesAsk) -> Result<SourcePage> {
        let since = match &ask.since {
            Value::String(text) => Since::parse(text)?,
            Value::Int(0) => Since::Beginning,
            other => Since::parse(&String::from_utf8_lossy(&other.to_vec()))?,
        };
        let database = self.database()?;
        let query = ChangesQuery {
            since,
            limit: Some(ask.limit),
            style: if ask.winners { Style::MainOnly } else { Style::AllDocs },
            filter: Box::pin(self.filter(&database, &ask.filter)).await?,
            ..ChangesQuery::default()
        };
        let mut changes = Box::pin(database.feeds().changes(query)).await?;
        let (begun, began) = (self.env.now(), changes.last_seq());
        let left = |time_limit: Duration| time_limit.saturating_sub(self.env.now().since(begun));
        let mut rows = Vec::new();
        'read: loop {
            // Boxed, so that a waiting future does not hold the memory of reading.
            while let Some(page) = Box::pin(changes.next()).await? {
                // A filter can leave out all rows of many pages.
                self.track.moved();
                let row = |row: crate::coordinator::ChangeRow| ChangedDoc {
                    id: row.id.as_str().to_owned(),
                    revs: row.revs.iter().map(ToString::to_string).collect(),
                };
                rows.extend(page.into_iter().map(row));
                if ask.time_limit.is_some_and(|time_limit| left(time_limit).is_zero()) {
                    break 'read;
                }
            }
            if changes.is_gone() {
                return Err(ReplicateError::DatabaseMissing { url: self.shown.clone() });
            }
            if !rows.is_empty() || !ask.wait {
                break;
            }
            match ask.time_limit.filter(|_| changes.last_seq() != began) {
                None => changes.wait().await,
                // What a filter left out is told while nothing else is.
                Some(time_limit) => {
                    if self.env.timeout(left(time_limit), changes.wait()).await.is_err() {
                        break;
                    }
                }
            }
        }
        let (read, pending) = (changes.read(), Some(changes.pending().await));
        Ok(SourcePage { rows, read, last_seq: Value::from(changes.last_seq()), pending })
    }

    /// See [`Peer::revs_diff`].
    pub async fn revs_diff(&self, asked: &[ChangedDoc]) -> Result<BTreeMap<String, Lack>> {
        let mut by_id: BTreeMap<DocId, Vec<Revision>> = BTreeMap::new();
        for doc in asked {
            let revs = by_id.entry(DocId::new(&doc.id)).or_default();
            for rev in &doc.revs {
                revs.push(revision(rev)?);
            }
        }
        let texts = |revs: &[Revision]| revs.iter().map(ToString::to_string).collect();
        let found = self.database()?.maintenance().revs_diff(by_id).await?;
        let lack = |(id, diff): (DocId, crate::coordinator::RevsDiff)| {
            let lack = Lack { missing: texts(&diff.missing), ancestors: texts(&diff.possible_ancestors) };
            (id.as_str().to_owned(), lack)
        };
        Ok(found.into_iter().map(lack).collect())
    }

    async fn filter(&self, database: &Arc<Database>, filter: &ReplicationFilter) -> Result<ChangesFilter> {
        Ok(match filter {
            ReplicationFilter::None => ChangesFilter::None,
            ReplicationFilter::DocIds(ids) => ChangesFilter::DocIds(ids.iter().map(|id| DocId::new(id)).collect()),
            ReplicationFilter::Selector(selector) => {
                let refused =
                    |error: crate::document::selector::SelectorError| ReplicateError::BadRequest(error.reason);
                let selector = Selector::parse(selector).map_err(refused)?;
                database.feeds().selector_filter(&Arc::new(selector)).await
            }
            ReplicationFilter::Function { name, query } if name == VIEW_FILTER => {
                database.feeds().view_filter(query.get("view").and_then(Value::as_str).unwrap_or_default()).await?
            }
            ReplicationFilter::Function { name, .. } if name == DESIGN_FILTER => ChangesFilter::Design,
            ReplicationFilter::Function { name, query } => {
                database.feeds().function_filter(name, self.request_of(database, query).into()).await?
            }
        })
    }

    /// What a filter function is told of the request: what it would be told of one by HTTP that there is none of.
    fn request_of(&self, database: &Arc<Database>, query: &Object) -> String {
        let texts = |(name, value): (&str, &Value)| (name.to_owned(), Value::from(text_of(value)));
        let mut user = Object::new();
        user.push("db", database.name.as_str());
        user.push("name", self.user.name.as_deref().map_or(Value::Null, Value::from));
        user.push("roles", self.user.roles.iter().map(|role| Value::from(role.as_str())).collect::<Vec<_>>());
        let mut out = Object::new();
        out.push("id", Value::Null);
        out.push("method", "GET");
        out.push("path", vec![Value::from(database.name.as_str()), Value::from("_changes")]);
        out.push("query", query.iter().map(texts).collect::<Object>());
        for empty in ["headers", "form", "cookie"] {
            out.push(empty, Object::new());
        }
        out.push("body", "undefined");
        out.push("userCtx", user);
        out.push("secObj", json::parse(&database.security()).unwrap_or(Value::Null));
        String::from_utf8_lossy(&out.to_vec()).into_owned()
    }

    /// See [`Peer::fetch`].
    pub async fn fetch(&self, wants: &[Want], limit_bytes: usize) -> Result<Fetched> {
        let mut by_id: BTreeMap<DocId, Vec<Revision>> = BTreeMap::new();
        for want in wants {
            by_id.entry(DocId::new(&want.id)).or_default().push(revision(&want.rev)?);
        }
        let database = self.database()?;
        let wanted: Vec<(DocId, Wanted)> =
            by_id.into_iter().map(|(id, revs)| (id, Wanted::Revisions { revs, latest: true })).collect();
        let mut wanted = wanted.as_slice();
        let mut out = Fetched::default();
        while !wanted.is_empty() {
            let found = database.documents().fetch_first(wanted, None, limits::FETCH_BYTES).await?;
            let group;
            (group, wanted) = wanted.split_at(found.len());
            for ((id, _), fetched) in group.iter().zip(found) {
                let Some(fetched) = fetched else {
                    out.missing = Some(id.as_str().to_owned());
                    continue;
                };
                if let Some((rev, _)) = fetched.found.iter().find(|(_, stored)| stored.is_none()) {
                    out.missing = Some(format!("{id} {rev}"));
                }
                for stored in distinct(fetched.found.iter().filter_map(|(_, stored)| stored.as_ref())) {
                    out.bytes += stored.body.len();
                    out.docs.push(document(id, stored, fetched.tree.path_to(&stored.rev))?);
                }
            }
            if out.bytes > limit_bytes {
                return Err(ReplicateError::TooLarge);
            }
        }
        out.in_bulk = out.docs.len();
        Ok(out)
    }

    /// See [`Peer::attachment`].
    pub async fn attachment(&self, id: &str, rev: &str, sent: &Sent) -> Result<Stored> {
        let (database, id) = (self.database()?, DocId::new(id));
        let stored = database.documents().fetch_one(&id, Wanted::Revision(revision(rev)?)).await?;
        let found = stored.and_then(|stored| stored.attachments.into_iter().find(|a| a.name == sent.name));
        let gone = || ReplicateError::failed("not_found", format!("Attachment {} is gone.", sent.name));
        let attachment = found.ok_or_else(gone)?;
        if (attachment.encoding == Encoding::Gzip) != sent.gzip {
            return Err(gone());
        }
        Ok(Stored::Local(Box::new(database.documents().read_attachment(&id, &attachment, None).await?)))
    }

    /// See [`Peer::held`].
    pub async fn held(&self, id: &str, rev: &str) -> Result<Vec<Sent>> {
        let id = DocId::new(id);
        Ok(match self.database()?.documents().fetch_one(&id, Wanted::Revision(revision(rev)?)).await? {
            Some(stored) => Sent::of(&document(&id, &stored, None)?, 0),
            None => Vec::new(),
        })
    }

    /// See [`Peer::write`].
    pub async fn write(&self, docs: &[Doc]) -> Result<Vec<Refusal>> {
        let database = self.database()?;
        let (mut refused, mut requests, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        for doc in docs {
            match self.request(&database, doc, draft_of(doc)?) {
                Ok(request) => {
                    sent.push(doc);
                    requests.push(request);
                }
                Err(refusal) => refused.push(refusal),
            }
        }
        match (database.writer().write(requests, self.write_options()).await, docs) {
            (Ok(results), _) => {
                for (doc, result) in sent.into_iter().zip(results) {
                    refused.extend(result.err().map(|error| refusal(&doc.id, error)).transpose()?);
                }
                Ok(refused)
            }
            (Err(error), [doc]) => refusal(&doc.id, error).map(|refusal| vec![refusal]),
            // One of them is at fault, or the database is.
            (Err(error), docs) => {
                refusal("", error)?;
                let (left, right) = docs.split_at(docs.len() / 2);
                let mut refused = Box::pin(self.write(left)).await?;
                refused.extend(Box::pin(self.write(right)).await?);
                Ok(refused)
            }
        }
    }

    /// See [`Peer::write_with`].
    pub async fn write_with(&self, doc: &Doc, sent: &[Sent], source: &Source) -> Result<Option<Refusal>> {
        let database = self.database()?;
        let draft = draft::parse(Value::Object(doc.with_following(sent)?));
        let mut request = match self.request(&database, doc, draft) {
            Ok(request) => request,
            Err(refusal) => return Ok(Some(refusal)),
        };
        for sent in sent {
            let mut bytes = source.attachment(&doc.id, &doc.rev, sent).await?;
            let options = UploadOptions {
                name: sent.name.clone(),
                content_type: sent.content_type.clone(),
                gzip: sent.gzip,
                md5: sent.digest.as_deref().and_then(draft::md5_of),
            };
            let upload = async {
                let mut upload =
                    database.attachments().upload(&request.id, options).await.map_err(Uploading::Target)?;
                while let Some(piece) = bytes.next().await.map_err(Uploading::Source)? {
                    upload.write(piece).await.map_err(Uploading::Target)?;
                }
                upload.finish().await.map_err(Uploading::Target)
            };
            match upload.await {
                Ok(staged) => request.follows.push(staged),
                Err(Uploading::Source(error)) => return Err(error),
                Err(Uploading::Target(error)) => return refusal(&doc.id, error).map(Some),
            }
        }
        let options = self.write_options();
        match database.writer().write_one(request, options).await {
            Ok(_) => Ok(None),
            Err(error) => refusal(&doc.id, error).map(Some),
        }
    }

    /// The write of a document, if it is one and the user may do it.
    fn request(
        &self,
        database: &Arc<Database>,
        doc: &Doc,
        draft: std::result::Result<Draft, DraftError>,
    ) -> std::result::Result<WriteRequest, Refusal> {
        let refused = |error: DraftError| Refusal::new(&doc.id, error.name(), error.reason);
        let max = self.config.text("couchdb", "max_document_id_length", "infinity").parse().ok();
        let id = DocId::check(&doc.id, max).map_err(refused)?;
        if id.is_local() || (id.is_design() && self.allow(database, Class::DatabaseAdmin).is_err()) {
            return Err(Refusal::new(&doc.id, "forbidden", "You are not a db or server admin."));
        }
        Ok(WriteRequest { id, draft: draft.map_err(refused)?, follows: Vec::new() })
    }

    /// See [`Peer::local_get`].
    pub async fn local_get(&self, id: &str) -> Result<Option<Object>> {
        let id = DocId::new(&format!("_local/{id}"));
        let stored = self.database()?.documents().fetch_one(&id, Wanted::Winner).await?;
        stored.map(|stored| document(&id, &stored, None)?.members()).transpose()
    }

    /// See [`Peer::local_put`].
    pub async fn local_put(&self, id: &str, rev: Option<&str>, body: &Object) -> Result<String> {
        let id = DocId::new(&format!("_local/{id}"));
        let rev = rev.map(revision).transpose()?;
        let draft =
            Draft { id: None, rev, revisions: None, deleted: false, body: body.clone(), attachments: Vec::new() };
        let request = WriteRequest { id, draft, follows: Vec::new() };
        Ok(self.database()?.writer().write_one(request, WriteOptions::default()).await?.rev.to_string())
    }

    /// See [`Peer::document`].
    pub async fn document(&self, id: &str) -> Result<Option<Object>> {
        let database = self.database()?;
        let live = super::notes::live(&database, &DocId::new(id)).await;
        let live = live.map_err(|reason| ReplicateError::failed("internal_server_error", reason))?;
        Ok(live.map(|(_, body)| body))
    }
}

/// On which side an upload failed.
enum Uploading {
    Source(ReplicateError),
    Target(WriteError),
}

/// What a failed write of one document is: its own fault, or that of the replication.
fn refusal(id: &str, error: WriteError) -> Result<Refusal> {
    Ok(match error {
        WriteError::Draft(error) => Refusal::new(id, error.name(), error.reason),
        WriteError::DocumentTooLarge { .. } => Refusal::new(id, "document_too_large", id),
        WriteError::AttachmentTooLarge { name } => Refusal::new(id, "attachment_too_large", name),
        WriteError::DigestMismatch { name } => Refusal::new(id, "md5_mismatch", name),
        WriteError::Forbidden { reason } => Refusal::new(id, "forbidden", text_of(&reason)),
        WriteError::Unauthorized { reason } => Refusal::new(id, "unauthorized", text_of(&reason)),
        WriteError::RevisionRequired | WriteError::Conflict => Refusal::new(id, "conflict", format!("{error:?}")),
        // To be sent in full.
        WriteError::MissingStub { .. } => return Err(error.into()),
        error if error.is_lost() => return Err(error.into()),
        // What else refuses a document (a validation function) is the document's own.
        other => Refusal::new(id, "forbidden", format!("{other:?}")),
    })
}

fn revision(text: &str) -> Result<Revision> {
    Revision::parse(text).map_err(|_| ReplicateError::failed("bad_request", format!("Invalid rev format: {text}")))
}

/// Each revision once: two of those asked for may have grown into the same leaf.
fn distinct<'a>(found: impl Iterator<Item = &'a StoredRevision>) -> Vec<&'a StoredRevision> {
    let mut out: Vec<&StoredRevision> = Vec::new();
    for stored in found {
        if out.iter().all(|known| known.rev != stored.rev) {
            out.push(stored);
        }
    }
    out
}

/// A stored revision as a document; `history`: shown with it.
fn document(id: &DocId, stored: &StoredRevision, history: Option<RevPath>) -> Result<Doc> {
    let body = Body::Stored(stored.clone(), history);
    let mut doc = Doc { id: id.as_str().to_owned(), rev: stored.rev.to_string(), body };
    if !stored.attachments.is_empty() {
        doc.body = Body::Members(doc.members()?);
    }
    Ok(doc)
}

/// What is to be written. What comes from a database of this server was checked when it came there.
fn draft_of(doc: &Doc) -> Result<std::result::Result<Draft, DraftError>> {
    let Body::Stored(stored, history) = &doc.body else { return Ok(draft::parse(Value::Object(doc.members()?))) };
    let Ok(Value::Object(body)) = json::parse(&stored.body) else { return Err(doc.damaged()) };
    Ok(Ok(Draft {
        id: Some(doc.id.clone()),
        rev: Some(stored.rev.clone()),
        revisions: history.clone(),
        deleted: stored.deleted,
        body,
        attachments: Vec::new(),
    }))
}
