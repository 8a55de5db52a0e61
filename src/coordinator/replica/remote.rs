//! A replica on another node: sends the calls of `calls`, and does what takes several of them.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::coordinator::replica::call_text::encode_call;
use crate::coordinator::replica::calls::{
    Collect, CollectionQuestion, Decide, Fetch, FetchSome, List, LocalList, LocalSet, Merge, Purge, ReplicaCall,
    ReplicaOp, ReplicaRequest, Search, SearchCall, SearchQuestion, View, ViewCall, ViewFailure, ViewQuestion, Wait,
};
use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::message::{
    DecideCall, EditRefusal, EditText, ReplicaPosition, WireError, decode_shared, is_unknown_call,
};
use crate::coordinator::replica::told::{AcceptedAt, Merged};
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::peers::{Call, CallError, Service, Urgency};
use crate::coordinator::topology::record::Known;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::document::selector::StoredDocument;
use crate::index::IndexError;
use crate::limits;
use crate::shard::{
    Edit, EditOp, Fetched, FilterPage, FilterScan, Horizon, ListPage, ListRow, LocalDocument, ShardError, Stamp, Want,
    live_conflicts,
};
use crate::storage::{Direction, StorageError};
use crate::world::Pool;
use crate::world::buggify::{capped, fewer, sometimes};

/// A database as calls name it.
pub(in crate::coordinator) struct Target {
    pub context: Arc<Context>,
    pub name: String,
    pub known: Arc<Known>,
}

/// A replica on another node. Cheap to clone.
#[derive(Clone)]
pub(in crate::coordinator) struct RemoteReplica {
    target: Arc<Target>,
    range: u32,
    node: Arc<str>,
    urgency: Urgency,
    /// The version of the map by which its answers are counted; `None`: nobody counts them.
    by_map: Option<u64>,
    /// What the replica must have collected for its answers to be of use.
    horizon: Option<Arc<Horizon>>,
}

impl fmt::Debug for RemoteReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteReplica({} on {}, {})", self.range, self.node, self.target.name)
    }
}

impl RemoteReplica {
    pub fn new(target: &Arc<Target>, range: usize, node: &Arc<str>) -> RemoteReplica {
        // Invariant: there are at most `limits::Q_MAX` ranges.
        let range = u32::try_from(range).expect("a range's number");
        let (target, node, urgency) = (Arc::clone(target), Arc::clone(node), Urgency::Foreground);
        RemoteReplica { target, range, node, urgency, by_map: None, horizon: None }
    }

    /// The same for what is counted by the map of that version.
    pub fn by_map(self, version: u64) -> RemoteReplica {
        RemoteReplica { by_map: Some(version), ..self }
    }

    /// The same for work that nobody waits for.
    pub fn in_background(self) -> RemoteReplica {
        RemoteReplica { urgency: Urgency::Background, ..self }
    }

    /// The same, refused by a replica that has not collected all of that: it may be restored from an old backup.
    pub fn behind(self, horizon: &Horizon) -> RemoteReplica {
        RemoteReplica { horizon: Some(Arc::new(horizon.clone())), ..self }
    }

    /// The node that it is on.
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Whether that is this node: nothing is to be asked of it.
    pub fn is_here(&self) -> bool {
        self.node == self.target.context.node
    }

    /// Asks the replica; the operation says what type the answer has.
    pub async fn ask<C: ReplicaCall + Into<ReplicaOp>>(&self, call: C) -> Result<C::Answer, ShardError> {
        self.ask_for(call.into()).await
    }

    /// Asks the replica something about tombstone collection.
    pub async fn ask_collection<Q: CollectionQuestion>(&self, question: Q) -> Result<Q::Answer, ShardError> {
        self.ask_for(Collect(Box::new(question.into())).into()).await
    }

    async fn ask_for<T: DeserializeOwned>(&self, op: ReplicaOp) -> Result<T, ShardError> {
        let answer: Result<T, WireError> = self.send(self.next_call(), op, limits::REPLICA_CALL).await?;
        answer.map_err(|error| self.told(error))
    }

    /// Why the node did not do it, as it says; where the documents moved it knows a later map, which is learned.
    fn told(&self, error: WireError) -> ShardError {
        if error == WireError::Moved {
            self.target.context.note_stale(&self.target.name, &self.node);
        }
        error.into()
    }

    /// As [`RemoteReplica::ask`], for what must not be done twice: a call that was cut off is sent again under its
    /// number, once, if the node is there again soon. `call` is told whether it is the second time.
    async fn ask_once<C: ReplicaCall + Into<ReplicaOp>>(
        &self,
        call: impl Fn(bool) -> C,
    ) -> Result<C::Answer, ShardError> {
        let (env, id) = (&self.target.context.env, self.next_call());
        let _awaited = self.target.context.awaited.until_dropped(id);
        let began = env.now();
        let mut answer: Result<Result<C::Answer, WireError>, ShardError> =
            self.send(id, call(false).into(), limits::REPLICA_CALL).await;
        if matches!(answer, Err(ShardError::Indeterminate(_))) && self.is_back().await {
            let left = limits::REPLICA_CALL.saturating_sub(env.now().since(began));
            if !left.is_zero() {
                sometimes("cluster: a call was sent again");
                answer = match self.send(id, call(true).into(), left).await {
                    // It says nothing about the first time.
                    Err(ShardError::NotExecuted(why)) => Err(ShardError::Indeterminate(why)),
                    Ok(Err(_)) => Ok(Err(WireError::Unknown)),
                    answer => answer,
                };
            }
        }
        answer?.map_err(|error| self.told(error))
    }

    /// Whether the node can be reached, now or soon.
    async fn is_back(&self) -> bool {
        let context = &self.target.context;
        let mut news = context.peers.watch();
        let back = async {
            while !context.peers.is_up(&self.node) {
                if news.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        context.env.timeout(limits::REASK_WAIT, back).await.unwrap_or(false)
    }

    fn next_call(&self) -> u64 {
        self.target.context.calls.fetch_add(1, Ordering::Relaxed)
    }

    async fn send<T: DeserializeOwned>(&self, id: u64, op: ReplicaOp, limit: Duration) -> Result<T, ShardError> {
        let Target { context, name, known } = &*self.target;
        let (instance, version) = (known.instance.clone(), self.by_map.unwrap_or_else(|| known.placed().version));
        let (db, counted, range) = (name.clone(), self.by_map.is_some(), self.range);
        let (horizon, expected_bytes) = (self.horizon.as_deref().cloned(), op.expected_bytes());
        let call = ReplicaRequest { db, instance, version, counted, range, id, horizon, op };
        let (service, urgency, body) = (Service::Replica, self.urgency, encode_call(&call, &context.node));
        let sent = context.peers.call(&self.node, Call { service, urgency, body, expected_bytes, limit });
        // The cluster ends a call that hangs; this is for one that collects to.
        let answer = context.env.timeout(limit + limits::REPLICA_CALL_GRACE, sent).await;
        let bytes = match answer {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(CallError::NotExecuted(why))) => {
                return Err(ShardError::NotExecuted(format!("{}: {why}", self.node)));
            }
            Ok(Err(CallError::Indeterminate(why))) => {
                return Err(ShardError::Indeterminate(format!("{}: {why}", self.node)));
            }
            Err(_) => return Err(ShardError::Indeterminate(format!("{} did not answer in time", self.node))),
        };
        decode_shared(&bytes).map_err(ShardError::Indeterminate)
    }

    /// Reads documents, in several calls where they are large; the caller has room for all of them.
    pub async fn fetch(&self, wants: Vec<(DocId, Want)>) -> Result<Vec<Option<Fetched>>, ShardError> {
        let (mut found, mut wants) = (Vec::with_capacity(wants.len()), wants);
        let mut bytes = limits::FETCH_BYTES;
        while !wants.is_empty() {
            let part = self.fetch_some(&wants, bytes).await?;
            // The next document is larger than that: it comes alone.
            bytes = if part.found.is_empty() { part.needs } else { limits::FETCH_BYTES };
            wants.drain(..part.found.len());
            found.extend(part.found);
        }
        Ok(found)
    }

    /// Reads of the first documents as many as have so many bytes, or tells how many the first one has. An answer tells
    /// something: some documents, or more bytes than were asked for.
    pub async fn fetch_some(&self, wants: &[(DocId, Want)], bytes: usize) -> Result<FetchedPart, ShardError> {
        let ask = FetchSome { wants: wants.to_vec(), bytes: bytes as u64 };
        let (found, needs) = match self.ask(ask).await {
            Err(error) if is_unknown_call(&error) => return self.fetch_of_older(wants).await,
            part => part?,
        };
        let (needs, told) = (usize::try_from(needs).unwrap_or(usize::MAX), found.len());
        match told <= wants.len() && (told > 0 || wants.is_empty() || needs > bytes) {
            true => Ok(FetchedPart { found, needs }),
            false => Err(ShardError::Indeterminate(format!("{} answered {told} of {}", self.node, wants.len()))),
        }
    }

    /// Reads the first documents of a node that answers all that it is asked for at once, or nothing.
    async fn fetch_of_older(&self, wants: &[(DocId, Want)]) -> Result<FetchedPart, ShardError> {
        for most in [limits::DOCS_PER_FETCH, 1] {
            let asked = &wants[..wants.len().min(most)];
            let found = match self.ask(Fetch(asked.to_vec())).await {
                // Together they may be too large for it.
                Err(ShardError::Indeterminate(_)) if asked.len() > 1 => continue,
                found => found?,
            };
            return match found.len() == asked.len() {
                true => Ok(FetchedPart { found, needs: 0 }),
                false => Err(ShardError::Indeterminate(format!("{} answered {} documents", self.node, found.len()))),
            };
        }
        Err(ShardError::Indeterminate(format!("{} did not answer", self.node)))
    }

    /// The next documents that a selector takes, of one page of them.
    pub async fn filter_scan(&self, filter_scan: FilterScan) -> Result<FilterPage, ShardError> {
        let (start, end) = (filter_scan.start.clone(), filter_scan.end.clone());
        let limit = limits::PAGE_DOCS;
        let page = ListPage { start, end, descending: filter_scan.descending, limit, bodies: true };
        let rows = self.ask(List(page)).await?;
        let rest = rows.last().map(|row| row.id.clone());
        let matching = move || {
            let mut page = FilterPage { rest, ..FilterPage::default() };
            for row in rows {
                let (ListRow { id, leaves, .. }, Some(stored)) = (row.clone(), row.winner) else { continue };
                let conflicts = live_conflicts(&leaves, filter_scan.conflicts);
                let document = StoredDocument::of(id.as_str(), &stored).with_conflicts(&conflicts);
                let damaged = |_| StorageError::Corrupt(format!("the text of document {id}"));
                let matches =
                    filter_scan.selector.matches_subject(&document, &filter_scan.collator).map_err(damaged)?;
                page.take(id, leaves, matches.then_some(stored));
            }
            Ok(page)
        };
        self.target.context.env.blocking(Pool::Foreground, matching).await
    }

    /// Has it decide edits; see [`crate::coordinator::write::primary`].
    pub async fn decide(
        &self,
        edits: &[Edit],
        caller: &Caller,
        source: &str,
        in_doubt: bool,
    ) -> Result<Vec<Result<AcceptedAt, EditRefusal>>, ShardError> {
        let call = |again: bool| {
            let texts = edits.iter().map(EditText::from).collect();
            let (caller, source, in_doubt) = (caller.clone(), source.to_owned(), in_doubt || again);
            Decide(Box::new(DecideCall { edits: texts, caller, source, in_doubt }))
        };
        let accepted = self.ask_once(call).await?;
        if accepted.iter().any(|decision| matches!(decision, Err(EditRefusal::Unavailable(WireError::Moved)))) {
            self.target.context.note_stale(&self.target.name, &self.node);
        }
        match accepted.len() == edits.len() {
            true => Ok(accepted),
            false => Err(ShardError::Indeterminate(format!("{} decided {} edits", self.node, accepted.len()))),
        }
    }

    /// Has it apply what another replica decided; answers for each whether it is stored, and where it stands then.
    pub async fn merge(&self, edits: &[Edit], source: &str) -> Result<Merged, ShardError> {
        let (repair, anew, tell) = (false, false, true);
        self.merge_as(edits, |edits| Merge { edits, source: source.to_owned(), repair, anew, tell }).await
    }

    /// Has it apply what was stored elsewhere: in another replica of the range, or, `anew`, in none.
    pub async fn merge_stored(&self, edits: &[Edit], source: &str, anew: bool) -> Result<Vec<bool>, ShardError> {
        let (repair, tell) = (true, false);
        let op = |edits| Merge { edits, source: source.to_owned(), repair, anew, tell };
        Ok(self.merge_as(edits, op).await?.stored)
    }

    async fn merge_as(&self, mut edits: &[Edit], op: impl Fn(Vec<EditText>) -> Merge) -> Result<Merged, ShardError> {
        let mut merged = Merged::default();
        while !edits.is_empty() {
            let step;
            (step, edits) = edits.split_at(first_that_fit(edits));
            let told = self.ask(op(step.iter().map(EditText::from).collect())).await?;
            if told.stored.len() != step.len() {
                return Err(ShardError::Indeterminate(format!("{} merged {} edits", self.node, told.stored.len())));
            }
            merged.stored.extend(told.stored);
            // Where the replica stood at the end covers all steps.
            merged.at = told.at;
        }
        Ok(merged)
    }

    pub async fn local_list(
        &self,
        (start, end): (Bound<DocId>, Bound<DocId>),
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<(DocId, LocalDocument)>, ShardError> {
        let bytes = Some(limits::STEP_BYTES as u64);
        self.ask(LocalList { start, end, direction, limit: limit as u64, bytes }).await
    }

    pub async fn local_set(&self, id: &DocId, document: Option<LocalDocument>, by: u64) -> Result<Stamp, ShardError> {
        self.ask_once(|_| LocalSet { id: id.clone(), document: document.clone(), by }).await
    }

    pub async fn purge(&self, items: Vec<(DocId, Vec<Revision>)>) -> Result<Vec<Vec<Revision>>, ShardError> {
        self.ask_once(|_| Purge(items.clone())).await
    }

    /// Asks a view of the replica, which is named by its design document and signature. The answer may take as long as
    /// building the view does.
    pub async fn view<Q: ViewQuestion>(
        &self,
        design: (DocId, Bytes),
        signature: [u8; 16],
        question: Q,
    ) -> Result<Q::Answer, IndexError> {
        let op = View(Box::new(ViewCall { design, signature, op: question.into() })).into();
        let answer: Result<Q::Answer, ViewFailure> = self.send(self.next_call(), op, limits::VIEW_CALL).await?;
        answer.map_err(IndexError::from)
    }

    /// Asks a full-text index of the replica. The answer may take as long as building the index does.
    pub async fn search<Q: SearchQuestion>(
        &self,
        design: (DocId, Bytes),
        signature: [u8; 16],
        question: Q,
    ) -> Result<Q::Answer, IndexError> {
        let op = Search(Box::new(SearchCall { design, signature, op: question.into() })).into();
        let answer: Result<Q::Answer, ViewFailure> = self.send(self.next_call(), op, limits::VIEW_CALL).await?;
        answer.map_err(IndexError::from)
    }

    /// Tells its last sequence from now on, as long as somebody listens and it can be asked.
    pub fn follow(&self, from: ReplicaPosition) -> watch::Receiver<u64> {
        let (tell, news) = watch::channel(from.position);
        let replica = self.clone();
        self.target.context.env.spawn(async move {
            let mut position = from.position;
            loop {
                let replica_position = tokio::select! {
                    biased;
                    () = tell.closed() => return,
                    replica_position = replica.ask(Wait { beyond: position }) => replica_position,
                };
                match replica_position {
                    Ok(replica_position) if replica_position.epoch == from.epoch => {
                        position = replica_position.position
                    }
                    _ => return,
                }
                tell.send_if_modified(|last| {
                    let is_news = position > *last;
                    *last = position.max(*last);
                    is_news
                });
            }
        });
        news
    }
}

/// Documents of a replica on another node.
#[derive(Debug)]
pub(in crate::coordinator) struct FetchedPart {
    /// The first that were wanted.
    pub found: Vec<Option<Fetched>>,
    /// Bytes that the first one takes, where none came.
    pub needs: usize,
}

/// How many of the first edits go together; one at least.
fn first_that_fit(edits: &[Edit]) -> usize {
    let message = capped("cluster: bytes of a message", limits::CLUSTER_MESSAGE_BYTES);
    let most = fewer("remote: a message for each edit", limits::MERGE_BYTES.min(message / 2));
    let mut bytes = 0;
    let fits = |edit: &&Edit| {
        bytes += bytes_of(edit);
        bytes <= most
    };
    edits.iter().take_while(fits).count().max(1)
}

/// The bytes that an edit takes on its way, about.
fn bytes_of(edit: &Edit) -> usize {
    let path = if let EditOp::Merge { path } = &edit.op { path.ids.len() } else { 0 };
    edit.id.as_str().len() + edit.body.text.len() + (path + edit.attachments.len()) * limits::TREE_NODE_BYTES
}
