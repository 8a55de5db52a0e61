//! Writes of documents: checks before anything is written, then the edits, split over the ranges.
//!
//! A request passes three stages. `check` and `check_stubs` refuse it as a whole and write nothing; `plan` stages the
//! attachments of its documents; `apply` sends the edits, which the primary of each range decides one by one, and
//! counts replies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::coordinator::read::ReadOperations;
use crate::coordinator::read::documents::local_rev;
use crate::coordinator::replica::token::RangeWrites;
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::WriteError;
use crate::coordinator::topology::quorum::Written;
use crate::coordinator::write::attachment::{Staged, StagedAll, known_bytes};
use crate::coordinator::write::{WriteOperations, Writer};
use crate::document::draft::{Draft, DraftAttachment, DraftData, DraftError, DraftErrorKind, PreparedBody};
use crate::document::id::DocId;
use crate::document::json::Object;
use crate::document::render::Attachment;
use crate::document::rev_tree::{RevPath, RevValue};
use crate::document::revision::{RevHash, Revision};
use crate::index::End;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::shard::{self, Edit, EditAttachment, EditOp, Fetched, LocalDocument, Want};
use crate::storage::{Hold, StorageError};
use crate::world::buggify::{Mutation, fewer, mutated};

/// How the documents of one request are to be written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// `false`: store the revisions as they are (`new_edits=false`).
    pub new_edits: bool,
    /// How many replicas must hold it for [`Written::Quorum`]; `None`: the majority.
    pub w: Option<u32>,
    /// Who writes, for validation functions.
    pub caller: Arc<Caller>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { new_edits: true, w: None, caller: Arc::default() }
    }
}

/// One document to be written.
#[derive(Debug)]
pub struct WriteRequest {
    /// Where to; the draft's own id is not looked at.
    pub id: DocId,
    /// What to write. Its `rev` is what body, query and `If-Match` agreed on.
    pub draft: Draft,
    /// The uploads for the draft's `follows` entries, in their order.
    pub follows: Vec<Staged>,
}

/// A document was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// The revision it has now; `0-N` for a local document.
    pub rev: Revision,
    /// Whether as many replicas hold it as were asked for.
    pub written: Written,
    /// How many replicas were known to hold it when that was certain.
    pub replicas: u32,
    /// Where it is, for a token; `None`: that is not known, or it is a local document.
    pub(in crate::coordinator) held: Option<Arc<RangeWrites>>,
}

impl WriteDone {
    /// Whether a token of the other one tells as much as one of both: they were written in one step.
    pub fn is_held_as(&self, other: &WriteDone) -> bool {
        match (&self.held, &other.held) {
            (Some(own), Some(its)) => Arc::ptr_eq(own, its),
            (own, _) => own.is_none(),
        }
    }

    /// A write of which it is not told where it is.
    pub fn new(rev: Revision, written: Written, replicas: u32) -> WriteDone {
        WriteDone { rev, written, replicas, held: None }
    }
}

/// A checked document whose attachments are staged.
pub(in crate::coordinator) struct Plan {
    pub id: DocId,
    pub change: Change,
    /// What keeps the bytes of its uploads until the edit was decided.
    pub holds: Vec<Hold>,
    /// The node that its uploads went to; `None` without any.
    pub source: Option<Arc<str>>,
}

impl Plan {
    /// For an edit whose uploads, if any, are on `source`.
    pub fn edit(edit: Edit, source: Option<Arc<str>>) -> Plan {
        Plan { id: edit.id.clone(), change: Change::Edit(edit), holds: Vec::new(), source }
    }
}

/// What is to be done with a document.
pub(in crate::coordinator) enum Change {
    Edit(Edit),
    LocalPut(LocalDocument),
    LocalDelete,
}

/// What became of one document.
pub(in crate::coordinator) type Outcome = Result<WriteDone, WriteError>;

impl Writer<'_> {
    /// The token of writes that were done; `None`: there is none to give.
    pub fn token<'d>(self, done: impl IntoIterator<Item = &'d WriteDone>) -> Option<String> {
        let held = done.into_iter().filter_map(|done| done.held.as_ref());
        // Those of one step have it in common.
        let writes: BTreeSet<&RangeWrites> = held.map(Arc::as_ref).collect();
        self.token_of(writes.into_iter().cloned())
    }

    /// Writes documents in request order; ranges are written concurrently.
    ///
    /// The outer error refuses the whole request and nothing was written: sizes, stubs, partitions, digests, missing
    /// revisions with `new_edits=false`. The inner ones are per document. The same id several times: the first is
    /// written, the others are decided after it. Local documents are written beside the others.
    pub async fn write(
        self,
        mut requests: Vec<WriteRequest>,
        options: WriteOptions,
    ) -> Result<Vec<Result<WriteDone, WriteError>>, WriteError> {
        let mut bodies = Vec::with_capacity(requests.len());
        for request in &mut requests {
            self.check(request, &options)?;
            bodies.push(Arc::new(self.prepared(&request.draft)?));
            // The values take as much memory as the texts made of them.
            request.draft.body = Object::new();
        }
        self.check_stubs(&requests, &options).await?;
        let stages = requests.iter().any(|request| !request.draft.attachments.is_empty());
        let plans = requests.into_iter().zip(bodies).map(|(request, body)| self.plan(request, body, options.new_edits));
        let plans: Vec<Plan> = match stages {
            true => stream::iter(plans).buffered(limits::STAGE_CONCURRENCY).try_collect().await?,
            // Nothing to wait for: done one after the other it takes a fraction of the time.
            false => stream::iter(plans).then(|plan| plan).try_collect().await?,
        };
        Ok(self.apply(plans, &options).await)
    }

    /// [`Writer::write`] for one document.
    pub async fn write_one(self, request: WriteRequest, options: WriteOptions) -> Result<WriteDone, WriteError> {
        let mut results = self.write(vec![request], options).await?;
        // Invariant: `write` answers once per request.
        results.pop().expect("one result")
    }

    /// Checks the document and queues it (`batch=ok`): conflicts and later failures are not reported. With the queue
    /// full it is written before this returns.
    pub async fn write_later(self, request: WriteRequest, options: WriteOptions) -> Result<(), WriteError> {
        self.check(&request, &options)?;
        self.prepared(&request.draft)?;
        let database = Arc::clone(self.database);
        let write = async move {
            if let Err(error) = database.writer().write_one(request, options).await {
                tracing::debug!(database = database.name, ?error, "a document sent with batch=ok was not written");
            }
        };
        match Arc::clone(&self.context.batch).try_acquire_owned() {
            Ok(permit) => {
                self.context.env.spawn(async move {
                    write.await;
                    drop(permit);
                });
            }
            Err(_) => write.await,
        }
        Ok(())
    }

    /// The document as it is stored.
    fn prepared(self, draft: &Draft) -> Result<PreparedBody, WriteError> {
        let body = PreparedBody::new(&draft.body);
        let size_max = self.context.config.u64("couchdb", "max_document_size", limits::DOCUMENT_BYTES);
        match body.text.len() as u64 > size_max && !mutated(Mutation::CapIgnored) {
            true => Err(WriteError::DocumentTooLarge { id: draft.id.clone().unwrap_or_default() }),
            false => Ok(body),
        }
    }

    /// What can be refused by looking at the request alone.
    fn check(self, request: &WriteRequest, options: &WriteOptions) -> Result<(), WriteError> {
        let WriteRequest { id, draft, follows } = request;
        self.check_place(id)?;
        if !options.new_edits && draft.rev.is_none() && draft.revisions.is_none() {
            return Err(WriteError::RevisionRequired);
        }
        if id.is_local() {
            return local_number(draft.rev.as_ref()).map(|_| ());
        }
        self.check_end(request, options)?;
        let expected = draft.attachments.iter().filter(|a| matches!(a.data, DraftData::Follows { .. })).count();
        if expected != follows.len() {
            let reason = format!("{expected} attachments should follow, {} did", follows.len());
            return Err(DraftError::new(DraftErrorKind::BadRequest, reason).into());
        }
        for attachment in &draft.attachments {
            let limit = self.attachments().attachment_limit();
            let too_large = matches!(&attachment.data, DraftData::Inline(bytes) if bytes.len() as u64 > limit);
            if too_large {
                return Err(WriteError::AttachmentTooLarge { name: attachment.name.clone() });
            }
        }
        Ok(())
    }

    /// Refuses a document that is to end at what is no time: it would never end. Revisions made elsewhere are taken as
    /// they are, or a replication would lose them.
    fn check_end(
        self,
        WriteRequest { id, draft, .. }: &WriteRequest,
        options: &WriteOptions,
    ) -> Result<(), WriteError> {
        if !options.new_edits || draft.deleted || id.is_design() {
            return Ok(());
        }
        let Some(member) = self.known.expires_at() else { return Ok(()) };
        if End::of(&draft.body, &member) != End::Unreadable {
            return Ok(());
        }
        let reason = format!("Document member '{member}' isn't a time in whole seconds since 1970");
        Err(DraftError::new(DraftErrorKind::DocValidation, reason).into())
    }

    /// Refuses the request when a stub names what its parent does not have. The shard checks again when it decides;
    /// this look ahead makes one bad stub fail the whole request, as CouchDB 3.5 was measured.
    async fn check_stubs(self, requests: &[WriteRequest], options: &WriteOptions) -> Result<(), WriteError> {
        let has_stub = |r: &&WriteRequest| r.draft.attachments.iter().any(|a| a.data == DraftData::Stub);
        let with_stubs: Vec<&WriteRequest> = requests.iter().filter(|r| !r.id.is_local()).filter(has_stub).collect();
        let want = |r: &&WriteRequest| (r.id.clone(), stub_source(&r.draft, options));
        let sources = self.documents().fetch_many(with_stubs.iter().map(want).collect(), None).await?;
        for (request, source) in with_stubs.into_iter().zip(sources) {
            if let Some(name) = missing_stub(&request.draft, options, source.as_ref()) {
                return Err(WriteError::MissingStub { id: request.id.clone(), name });
            }
        }
        Ok(())
    }

    /// Stages the inline attachments and turns the request into what the shard takes.
    async fn plan(self, request: WriteRequest, body: Arc<PreparedBody>, new_edits: bool) -> Result<Plan, WriteError> {
        let WriteRequest { id, draft, follows } = request;
        if id.is_local() {
            let change = match draft.deleted {
                true => Change::LocalDelete,
                false => {
                    let rev = local_number(draft.rev.as_ref())?.saturating_add(1);
                    Change::LocalPut(LocalDocument { rev, body: body.text.clone() })
                }
            };
            return Ok(Plan { id, change, holds: Vec::new(), source: None });
        }
        let Draft { rev, revisions, deleted, attachments, .. } = draft;
        let op = match (new_edits, revisions, rev) {
            (true, revisions, rev) => EditOp::Interactive { parent: revisions.map(|p| p.head()).or(rev) },
            (false, Some(path), _) => EditOp::Merge { path },
            (false, None, Some(rev)) => EditOp::Merge { path: RevPath::single(rev) },
            (false, None, None) => return Err(WriteError::RevisionRequired),
        };
        let StagedAll { attachments, holds, source } =
            self.attachments().stage_all(&id, attachments, follows, new_edits).await?;
        let edit = Edit { id: id.clone(), op, deleted, body, attachments, revs_limit: self.revs_limit() };
        Ok(Plan { id, change: Change::Edit(edit), holds, source })
    }

    /// Sends the changes to their ranges and answers in the order of the plans.
    pub(in crate::coordinator) async fn apply(self, plans: Vec<Plan>, options: &WriteOptions) -> Vec<Outcome> {
        let mut edits: BTreeMap<usize, Vec<(usize, Edit)>> = BTreeMap::new();
        let mut local = Vec::new();
        let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
        let (mut until_decided, mut fresh) = (Vec::new(), Vec::new());
        let mut sources: BTreeMap<usize, Arc<str>> = BTreeMap::new();
        for (at, Plan { id, change, holds, source }) in plans.into_iter().enumerate() {
            until_decided.extend(holds);
            if let Some(source) = source {
                sources.insert(self.map().index_of(&id), source);
            }
            match change {
                Change::Edit(edit) if matches!(&edit.op, EditOp::Interactive { parent: None }) => {
                    fresh.push(at);
                    edits.entry(self.map().index_of(&id)).or_default().push((at, edit));
                }
                Change::Edit(edit) => edits.entry(self.map().index_of(&id)).or_default().push((at, edit)),
                change => local.push((at, id, change)),
            }
        }
        // As in CouchDB the sequences of one request follow the ids; edits of one document stay in their order.
        edits.values_mut().for_each(|of_range| of_range.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id)));
        let (sources, own) = (&sources, &self.context.node);
        let to_range = |(range, edits)| self.apply_to_range(range, edits, options, sources.get(&range).unwrap_or(own));
        let ranges = edits.into_iter().map(to_range);
        outcomes.extend(join_all(ranges).await.into_iter().flatten());
        drop(until_decided);
        let locals = local.len() as u64;
        for (at, id, change) in local {
            outcomes.insert(at, self.apply_local(&id, change, options.w).await);
        }
        self.count(&outcomes, &fresh, locals);
        if mutated(Mutation::BulkOutOfOrder) {
            return outcomes.into_values().rev().collect();
        }
        outcomes.into_values().collect()
    }

    /// Counts a batch: `fresh` are the places of edits without a parent, `locals` is the number of local documents.
    fn count(self, outcomes: &BTreeMap<usize, Outcome>, fresh: &[usize], locals: u64) {
        let metrics = self.context.env.metrics();
        metrics.add(Counter::LocalDocumentWrites, locals);
        metrics.add(Counter::DocumentWrites, outcomes.len() as u64 - locals);
        let written = |at: &&usize| outcomes.get(at).is_some_and(Result::is_ok);
        metrics.add(Counter::DocumentInserts, fresh.iter().filter(written).count() as u64);
        if outcomes.values().any(Result::is_ok) {
            metrics.count(Counter::DatabaseWrites);
        }
    }

    /// The edits of one range, in steps.
    async fn apply_to_range(
        self,
        range: usize,
        edits: Vec<(usize, Edit)>,
        options: &WriteOptions,
        source: &Arc<str>,
    ) -> Vec<(usize, Outcome)> {
        let mut outcomes = Vec::with_capacity(edits.len());
        let mut edits = edits.into_iter().peekable();
        while edits.peek().is_some() {
            let most = fewer("write: one edit in a step", limits::EDITS_PER_STEP);
            let (mut places, mut step, mut bytes) = (Vec::new(), Vec::new(), 0);
            while step.len() < most && bytes < limits::EDIT_BYTES_PER_STEP {
                let Some((at, edit)) = edits.next() else { break };
                bytes += edit.body.text.len();
                places.push(at);
                step.push(edit);
            }
            outcomes.extend(places.into_iter().zip(self.settle(range, step, options, source).await));
        }
        outcomes
    }

    async fn apply_local(self, id: &DocId, change: Change, w: Option<u32>) -> Outcome {
        let document = match change {
            Change::LocalPut(document) => Some(document),
            Change::LocalDelete | Change::Edit(_) => None,
        };
        let number = document.as_ref().map_or(0, |document| document.rev);
        let (written, replicas) = self.locals().set_local(id, document, w).await?;
        Ok(WriteDone::new(local_rev(number), written, replicas))
    }

    /// [`Writer::apply`] for one edit.
    pub(in crate::coordinator) async fn apply_edit(
        self,
        edit: Edit,
        source: Option<Arc<str>>,
        options: WriteOptions,
    ) -> Outcome {
        let mut outcomes = self.apply(vec![Plan::edit(edit, source)], &options).await;
        // Invariant: `apply` answers once per plan.
        outcomes.pop().expect("one outcome")
    }

    /// Deletes a document. [`WriteError::NotFound`] when it is not there or deleted already, then the revision counts.
    pub async fn delete(
        self,
        id: &DocId,
        rev: Option<Revision>,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        let Some(fetched) = self.documents().fetch(id, Want::Tree).await? else {
            return Err(WriteError::NotFound { deleted: false });
        };
        if id.is_local() {
            return self.apply_local(id, Change::LocalDelete, options.w).await;
        }
        if fetched.tree.winner().is_none_or(|leaf| leaf.value.is_deleted()) {
            return Err(WriteError::NotFound { deleted: true });
        }
        let body = Arc::new(PreparedBody::new(&Default::default()));
        let op = EditOp::Interactive { parent: rev };
        let revs_limit = self.revs_limit();
        let edit = Edit { id: id.clone(), op, deleted: true, body, attachments: Vec::new(), revs_limit };
        self.apply_edit(edit, None, options).await
    }

    /// Copies a document with its attachments, also from and to local documents.
    ///
    /// `source_rev` picks a revision (a tombstone is copied as one), `target_rev` is the revision that is replaced.
    pub async fn copy(
        self,
        source: &DocId,
        source_rev: Option<Revision>,
        target: &DocId,
        target_rev: Option<Revision>,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        self.check_place(target)?;
        let named = source_rev.is_some();
        let want = source_rev.map_or(Want::Winner, Want::Revision);
        let stored = self.documents().fetch_one(source, want).await?.ok_or(WriteError::NotFound { deleted: false })?;
        if stored.deleted && !named {
            return Err(WriteError::NotFound { deleted: true });
        }
        if target.is_local() {
            let rev = local_number(target_rev.as_ref())?.saturating_add(1);
            let change = Change::LocalPut(LocalDocument { rev, body: stored.body });
            return self.apply_local(target, change, options.w).await;
        }
        let (mut attachments, mut _holds, mut at) = (Vec::new(), Vec::new(), None);
        for attachment in &stored.attachments {
            let (hold, node) = self.attachments().copy_bytes(source, target, attachment).await?;
            _holds.push(hold);
            at = Some(node);
            attachments.push(EditAttachment::New(attachment.clone()));
        }
        let op = EditOp::Interactive { parent: target_rev };
        let body = Arc::new(prepare_stored(stored.body)?);
        let revs_limit = self.revs_limit();
        let edit = Edit { id: target.clone(), op, deleted: stored.deleted, body, attachments, revs_limit };
        self.apply_edit(edit, at, options).await
    }
}

/// A stored body, to be written again.
pub(in crate::coordinator) fn prepare_stored(body: bytes::Bytes) -> Result<PreparedBody, WriteError> {
    let damaged = || StorageError::Corrupt("a stored body is no JSON object".to_owned());
    PreparedBody::from_text(body).map_err(|_| damaged().into())
}

/// The number N of a local document's revision `0-N`; 0 without one.
fn local_number(rev: Option<&Revision>) -> Result<u64, WriteError> {
    let Some(rev) = rev else { return Ok(0) };
    let number = match &rev.hash {
        RevHash::Text(text) if rev.pos == 0 => text.parse().ok(),
        _ => None,
    };
    let illegal = || DraftError::new(DraftErrorKind::BadRequest, "Invalid rev format");
    number.ok_or_else(|| illegal().into())
}

/// Which revisions a draft's stubs may mean.
fn stub_source(draft: &Draft, options: &WriteOptions) -> Want {
    let history = |path: &RevPath| {
        let revs = path.ids.iter().zip((0..=path.start).rev());
        revs.map(|(hash, pos)| Revision::new(pos, hash.clone())).collect()
    };
    match (&draft.revisions, &draft.rev) {
        (Some(path), _) if !options.new_edits => Want::Revisions { revs: history(path), latest: false },
        (Some(path), _) => Want::Revision(path.head()),
        (None, Some(rev)) => Want::Revision(rev.clone()),
        (None, None) => Want::Winner,
    }
}

/// The first stub that names nothing. `None` also when the edit is going to be a conflict, which is told first, or is
/// of a revision that is there already.
fn missing_stub(draft: &Draft, options: &WriteOptions, source: Option<&Fetched>) -> Option<String> {
    let parent = source.and_then(|s| s.found.iter().find_map(|(rev, stored)| Some((rev, stored.as_ref()?))));
    let is_conflict = match (source, parent) {
        _ if !options.new_edits => false,
        (None, _) => draft.rev.is_some() || draft.revisions.is_some(),
        (Some(_), None) => true,
        (Some(source), Some((rev, stored))) => {
            let is_named = draft.rev.is_some() || draft.revisions.is_some();
            stored.deleted == is_named || !source.tree.is_leaf(rev)
        }
    };
    if is_conflict {
        return None;
    }
    let known: &[Attachment] = parent.map_or(&[], |(_, stored)| &stored.attachments);
    let fits = |stub: &DraftAttachment| {
        let bytes = known_bytes(stub, options.new_edits);
        shard::attachment_of_stub(known, &stub.name, stub.revpos, bytes.as_ref()).is_some()
    };
    let mut stubs = draft.attachments.iter().filter(|a| a.data == DraftData::Stub);
    stubs.find(|stub| !fits(stub)).map(|stub| stub.name.clone())
}
