//! A database of this server as a peer, used with the rights of the user who asked for the replication.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::{ReplicateError, Result};
use super::peer::{
    AttachmentStream, ChangedDoc, ChangesAsk, ChangesPage, Doc, Fetched, Lack, Peer, Refusal, Sent, Want,
};
use super::request::Filter;
use crate::auth::UserCtx;
use crate::auth::access::{self, Class};
use crate::auth::security::SecurityObject;
use crate::config::Config;
use crate::coordinator::{
    Caller, Candidate, ChangesError, ChangesFilter, ChangesQuery, Coordinator, CreateOptions, Database, DatabaseError,
    RowFilter, Since, Style, UploadOptions, Want as Wanted, WriteError, WriteOptions, WriteRequest,
};
use crate::document::collate::Collator;
use crate::document::draft::{self, Draft};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::{Encoding, RenderOptions, StoredRevision, render};
use crate::document::rev_tree::RevValue as _;
use crate::document::revision::Revision;
use crate::document::selector::{Selector, document_value};
use crate::world::BoxFuture;

/// A database of this server.
pub struct LocalPeer {
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
}

impl LocalPeer {
    fn database(&self) -> Result<Arc<Database>> {
        let database = self.coordinator.database(&self.name).map_err(|error| match error {
            DatabaseError::Unavailable(error) => DatabaseError::Unavailable(error).into(),
            _ => ReplicateError::DatabaseMissing { url: self.shown.clone() },
        })?;
        // System databases have rules of their own above this layer: only those who stand above the rules get in.
        let class = if self.name.starts_with('_') { Class::ServerAdmin } else { Class::Member };
        if self.may(&database, class) {
            Ok(database)
        } else {
            Err(ReplicateError::Unauthorized { url: self.shown.clone() })
        }
    }

    fn may(&self, database: &Database, class: Class) -> bool {
        // What was stored was checked; were it broken, only server administrators get in.
        let security = SecurityObject::parse(&database.security()).unwrap_or_else(|_| SecurityObject::admin_only());
        access::check(class, &self.user, Some(&security)).is_ok()
    }

    fn write_options(&self) -> WriteOptions {
        let caller = Caller { name: self.user.name.clone(), roles: self.user.roles.clone() };
        WriteOptions { new_edits: false, w: None, caller: Arc::new(caller) }
    }

    /// See [`Peer::open`].
    pub async fn open(&self, create: Option<&[(String, String)]>) -> Result<()> {
        if let Some(parameters) = create
            && !self.coordinator.has_database(&self.name)
        {
            if access::check(Class::ServerAdmin, &self.user, None).is_err() {
                return Err(ReplicateError::Unauthorized { url: self.shown.clone() });
            }
            let options = self.create_options(parameters)?;
            match self.coordinator.create_database(&self.name, options).await {
                Ok(_) | Err(DatabaseError::Exists) => {}
                Err(error @ DatabaseError::Unavailable(_)) => return Err(error.into()),
                Err(_) => return Err(ReplicateError::DatabaseMissing { url: self.shown.clone() }),
            }
        }
        self.database().map(drop)
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
    pub async fn changes(&self, ask: &ChangesAsk) -> Result<ChangesPage> {
        let since = match &ask.since {
            Value::String(text) => Since::parse(text)?,
            Value::Int(0) => Since::Beginning,
            other => Since::parse(&String::from_utf8_lossy(&other.to_vec()))?,
        };
        let query = ChangesQuery {
            since,
            limit: Some(ask.limit),
            style: if ask.winners { Style::MainOnly } else { Style::AllDocs },
            filter: changes_filter(&ask.filter)?,
            ..ChangesQuery::default()
        };
        let mut changes = self.database()?.changes(query).await?;
        let mut rows = Vec::new();
        loop {
            while let Some(page) = changes.next().await? {
                let row = |row: crate::coordinator::ChangeRow| ChangedDoc {
                    id: row.id.as_str().to_owned(),
                    revs: row.revs.iter().map(ToString::to_string).collect(),
                };
                rows.extend(page.into_iter().map(row));
            }
            if changes.is_gone() {
                return Err(ReplicateError::DatabaseMissing { url: self.shown.clone() });
            }
            if !rows.is_empty() || !ask.wait {
                break;
            }
            changes.wait().await;
        }
        Ok(ChangesPage { rows, last_seq: Value::from(changes.last_seq()), pending: Some(changes.pending()) })
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
        let found = self.database()?.revs_diff(by_id).await?;
        let lack = |(id, diff): (DocId, crate::coordinator::RevsDiff)| {
            let lack = Lack { missing: texts(&diff.missing), ancestors: texts(&diff.possible_ancestors) };
            (id.as_str().to_owned(), lack)
        };
        Ok(found.into_iter().map(lack).collect())
    }

    /// See [`Peer::fetch`].
    pub async fn fetch(&self, wants: &[Want]) -> Result<Fetched> {
        let mut by_id: BTreeMap<DocId, Vec<Revision>> = BTreeMap::new();
        for want in wants {
            by_id.entry(DocId::new(&want.id)).or_default().push(revision(&want.rev)?);
        }
        let ids: Vec<DocId> = by_id.keys().cloned().collect();
        let wanted = by_id.into_iter().map(|(id, revs)| (id, Wanted::Revisions { revs, latest: true })).collect();
        let mut docs: Vec<Doc> = Vec::new();
        for (id, fetched) in ids.iter().zip(self.database()?.fetch_many(wanted, None).await?) {
            let Some(fetched) = fetched else { continue };
            let mut seen = Vec::new();
            for stored in fetched.found.iter().filter_map(|(_, stored)| stored.as_ref()) {
                // Two of those asked for may have grown into the same leaf.
                if seen.contains(&&stored.rev) {
                    continue;
                }
                seen.push(&stored.rev);
                let path = fetched.tree.path_to(&stored.rev);
                docs.extend(document(id, stored, path.as_ref()));
            }
        }
        Ok(Fetched { docs, in_bulk: true })
    }

    /// See [`Peer::attachment`].
    pub async fn attachment(&self, id: &str, rev: &str, sent: &Sent) -> Result<AttachmentStream> {
        let (database, id) = (self.database()?, DocId::new(id));
        let fetched = database.fetch(&id, Wanted::Revision(revision(rev)?)).await?;
        let stored = fetched.and_then(|f| f.found.into_iter().next()).and_then(|(_, stored)| stored);
        let found = stored.and_then(|stored| stored.attachments.into_iter().find(|a| a.name == sent.name));
        let gone = || ReplicateError::failed("not_found", format!("Attachment {} is gone.", sent.name));
        let attachment = found.ok_or_else(gone)?;
        if (attachment.encoding == Encoding::Gzip) != sent.gzip {
            return Err(gone());
        }
        Ok(AttachmentStream::Local(Box::new(database.read_attachment(&id, &attachment, None).await?)))
    }

    /// See [`Peer::write`].
    pub async fn write(&self, docs: &[Doc]) -> Result<Vec<Refusal>> {
        let database = self.database()?;
        let mut refused = Vec::new();
        let mut requests = Vec::new();
        let mut ids = Vec::new();
        for doc in docs {
            match self.request(&database, doc, doc.body.clone()) {
                Ok(request) => {
                    ids.push(doc);
                    requests.push(request);
                }
                Err(refusal) => refused.push(refusal),
            }
        }
        let options = self.write_options();
        match database.write(requests, options).await {
            Ok(results) => {
                for (doc, result) in ids.into_iter().zip(results) {
                    refused.extend(result.err().map(|error| refusal(&doc.id, error)).transpose()?);
                }
            }
            Err(error) if docs.len() > 1 => {
                tracing::debug!(?error, "a batch was refused as a whole, its documents are written one by one");
                for doc in docs {
                    refused.extend(Box::pin(self.write(std::slice::from_ref(doc))).await?);
                }
                let ids: Vec<&Doc> = docs.iter().collect();
                refused.sort_by_key(|r| ids.iter().position(|doc| doc.id == r.id));
                refused.dedup();
            }
            Err(error) => refused.push(refusal(&docs[0].id, error)?),
        }
        Ok(refused)
    }

    /// See [`Peer::write_with`].
    pub async fn write_with(&self, doc: &Doc, sent: &[Sent], source: &Arc<Peer>) -> Result<Option<Refusal>> {
        let database = self.database()?;
        let mut request = match self.request(&database, doc, doc.with_following(sent)) {
            Ok(request) => request,
            Err(refusal) => return Ok(Some(refusal)),
        };
        for sent in sent {
            let mut bytes = source.attachment(&doc.id, &doc.rev, sent).await?;
            let options = UploadOptions {
                name: sent.name.clone(),
                content_type: sent.content_type.clone(),
                gzip: sent.gzip,
                md5: sent.digest.as_deref().and_then(md5),
            };
            let upload = async {
                let mut upload = database.upload(&request.id, options).await.map_err(Uploading::Target)?;
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
        match database.write_one(request, options).await {
            Ok(_) => Ok(None),
            Err(error) => refusal(&doc.id, error).map(Some),
        }
    }

    /// The write of a document, if the user may do it.
    fn request(&self, database: &Database, doc: &Doc, body: Object) -> std::result::Result<WriteRequest, Refusal> {
        let refused = |error: draft::DraftError| Refusal::new(&doc.id, error.name(), error.reason);
        let max = self.config.text("couchdb", "max_document_id_length", "infinity").parse().ok();
        let id = DocId::check(&doc.id, max).map_err(refused)?;
        if id.is_local() || (id.is_design() && !self.may(database, Class::DatabaseAdmin)) {
            return Err(Refusal::new(&doc.id, "forbidden", "You are not a db or server admin."));
        }
        let draft = draft::parse(Value::Object(body)).map_err(refused)?;
        Ok(WriteRequest { id, draft, follows: Vec::new() })
    }

    /// See [`Peer::local_get`].
    pub async fn local_get(&self, id: &str) -> Result<Option<Object>> {
        let id = DocId::new(&format!("_local/{id}"));
        let Some(fetched) = self.database()?.fetch(&id, Wanted::Winner).await? else { return Ok(None) };
        let stored = fetched.found.into_iter().next().and_then(|(_, stored)| stored);
        Ok(stored.and_then(|stored| document(&id, &stored, None)).map(|doc| doc.body))
    }

    /// See [`Peer::local_put`].
    pub async fn local_put(&self, id: &str, rev: Option<&str>, body: &Object) -> Result<String> {
        let id = DocId::new(&format!("_local/{id}"));
        let rev = rev.map(revision).transpose()?;
        let draft =
            Draft { id: None, rev, revisions: None, deleted: false, body: body.clone(), attachments: Vec::new() };
        let request = WriteRequest { id, draft, follows: Vec::new() };
        Ok(self.database()?.write_one(request, WriteOptions::default()).await?.rev.to_string())
    }

    /// See [`Peer::has_document`].
    pub async fn has_document(&self, id: &str) -> Result<bool> {
        let found = self.database()?.fetch(&DocId::new(id), Wanted::Tree).await?;
        Ok(found.is_some_and(|f| f.tree.winner().is_some_and(|leaf| !leaf.value.is_deleted())))
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
        WriteError::Forbidden { reason } => Refusal::new(id, "forbidden", thrown(&reason)),
        WriteError::Unauthorized { reason } => Refusal::new(id, "unauthorized", thrown(&reason)),
        WriteError::RevisionRequired | WriteError::Conflict => Refusal::new(id, "conflict", format!("{error:?}")),
        WriteError::DatabaseGone
        | WriteError::MissingStub { .. }
        | WriteError::Unknown
        | WriteError::UploadGone { .. }
        | WriteError::Unavailable(_) => return Err(error.into()),
        // What else refuses a document (a validation function) is the document's own.
        other => Refusal::new(id, "forbidden", format!("{other:?}")),
    })
}

/// What a validation function threw, as text.
fn thrown(reason: &Value) -> String {
    reason.as_str().map_or_else(|| String::from_utf8_lossy(&reason.to_vec()).into_owned(), str::to_owned)
}

fn revision(text: &str) -> Result<Revision> {
    Revision::parse(text).map_err(|_| ReplicateError::failed("bad_request", format!("Invalid rev format: {text}")))
}

fn md5(digest: &str) -> Option<[u8; 16]> {
    STANDARD.decode(digest.strip_prefix("md5-")?).ok()?.try_into().ok()
}

fn document(id: &DocId, stored: &StoredRevision, path: Option<&crate::document::rev_tree::RevPath>) -> Option<Doc> {
    let options = RenderOptions { revisions: path, att_encoding_info: true, ..RenderOptions::default() };
    match json::parse(&render(id.as_str(), stored, &options)) {
        Ok(Value::Object(body)) => Doc::from_body(body),
        _ => None,
    }
}

fn changes_filter(filter: &Filter) -> Result<ChangesFilter> {
    Ok(match filter {
        Filter::None => ChangesFilter::None,
        Filter::DocIds(ids) => ChangesFilter::DocIds(ids.iter().map(|id| DocId::new(id)).collect()),
        Filter::Selector(selector) => {
            let refused = |error: crate::document::selector::SelectorError| ReplicateError::BadRequest(error.reason);
            let selector = Selector::parse(selector).map_err(refused)?;
            ChangesFilter::Rows(Arc::new(BySelector { selector, collator: Collator::new() }))
        }
        Filter::Function { .. } => {
            let reason = "Filter functions of a local source are not available in this version.";
            return Err(ReplicateError::NotAvailable(reason.to_owned()));
        }
    })
}

/// Passes the leaves that a selector matches.
struct BySelector {
    selector: Selector,
    collator: Collator,
}

impl RowFilter for BySelector {
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, std::result::Result<Vec<Vec<bool>>, ChangesError>> {
        let matches = |id: &DocId, leaf: &StoredRevision| {
            document_value(id.as_str(), leaf).is_ok_and(|value| self.selector.matches(&value, &self.collator))
        };
        let judged = page.iter().map(|c| c.leaves.iter().map(|leaf| matches(&c.id, leaf)).collect()).collect();
        Box::pin(async move { Ok(judged) })
    }
}
