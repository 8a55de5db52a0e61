//! Answers to calls of other nodes about the replicas of this node.
//!
//! A call names the database's instance, because a database that was deleted and created again is another one. A call
//! whose deadline is over is dropped before anything is done. A call that changes something and comes again is answered
//! as the first time, whatever has become of the map since. A call whose answer is counted by a map from before
//! replicas moved is refused: reads when they arrive, writes in the committer (`Placed::admits`), because they may wait
//! for long until they are stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::coordinator::anti_entropy::RepairOperations;
use crate::coordinator::anti_entropy::compare;
use crate::coordinator::read::ReadOperations;
use crate::coordinator::rebalance::RebalanceOperations;
use crate::coordinator::replica::awaited;
use crate::coordinator::replica::call_text::decode_call;
use crate::coordinator::replica::calls::{
    Awaits, Blob, ClearTimes, Collect, CollectableOf, CollectionCall, CollectionQuestion, Compact, Confirm, CountOf,
    Decide, DesignVersion, Digests, Epochs, Expects, ExpiryOf, Fetch, FetchSome, GroupsOf, HeaderOf, Holds, Info,
    KeepViews, List, LocalList, LocalRegisters, LocalSet, Markers, Merge, Open, PlainCall, Propose, PurgeInfos,
    ReleaseState, ReplicaCall, ReplicaOp, ReplicaRequest, RowsOf, Search, SearchCall, SearchFor, SearchOp,
    SearchQuestion, SelectedOf, SizeOf, Split, Stage, StageFinish, StageWrite, Status, Tell, TimesOf, TypedFor,
    UpdateView, View, ViewCall, ViewFailure, ViewOp, ViewQuestion, Wait,
};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::{
    DecideCall, EditRefusal, EditText, ReplicaPosition, WireError, encode, large_texts,
};
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica};
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::repair::{self, Origin};
use crate::coordinator::replica::token::Mark;
use crate::coordinator::replica::told::{AcceptedAt, Merged};
use crate::coordinator::topology::peers::Answer;
use crate::coordinator::write::WriteOperations;
use crate::coordinator::write::primary::resolve_in_doubt;
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::document::revision::{RevHash, Revision};
use crate::index::search::SearchDefinition;
use crate::index::{Definition, IndexError, Signature};
use crate::limits;
use crate::script::Program;
use crate::shard::{AcceptedEdit, Edit, Fetched, FetchedPart, ListRow, LocalRegister, ShardError, Want, Wants};
use crate::storage::ReadAs;
use crate::wire::message::Message;
use crate::world::buggify::{Mutation, capped, fewer, mutated};
use crate::world::{BoxFuture, Instant};

/// See the module head.
pub(in crate::coordinator) struct ReplicaService(pub Weak<Coordinator>);

impl Answer for ReplicaService {
    fn answer(&self, from: String, body: Bytes, left: Duration) -> BoxFuture<'static, Result<Message, String>> {
        let coordinator = self.0.upgrade();
        Box::pin(async move {
            let coordinator = coordinator.ok_or("this node stops")?;
            let call = decode_call(&body, &from, &coordinator.context().node)?;
            // All of it is in the call now, or a part of that.
            drop(body);
            if left.is_zero() {
                return Err("its time is over".to_owned());
            }
            let until = Instant(coordinator.env().now().0.saturating_add(left));
            coordinator.serve_replica(from, call, until).await
        })
    }
}

type Served<T> = Result<T, WireError>;

fn reply<T: Serialize>(result: Result<T, ShardError>) -> Bytes {
    encode(&result.map_err(WireError::from))
}

/// The answer of an operation: it has the type that the caller reads.
fn answer<C: ReplicaCall>(result: Result<C::Answer, ShardError>) -> Bytes {
    reply(result)
}

/// The answer of an operation that says by itself why it was not done.
fn served<C: ReplicaCall>(result: Served<C::Answer>) -> Bytes {
    encode(&result)
}

/// Documents that were found, each large text as it lies in memory.
fn found_in_parts(part: FetchedPart) -> Message {
    let revisions = part.found.iter().flatten().flat_map(|fetched| &fetched.found);
    let texts = large_texts(revisions.filter_map(|(_, stored)| stored.as_ref()).map(|stored| &stored.body));
    let told: Served<<FetchSome as ReplicaCall>::Answer> = Ok((part.found, part.needs as u64));
    Message::of(&told, &texts)
}

/// The answer of a question about tombstone collection.
fn collected<Q: CollectionQuestion>(result: Result<Q::Answer, ShardError>) -> Bytes {
    reply(result)
}

/// The answer of a question about a view.
fn of_view<Q: ViewQuestion>(result: Result<Q::Answer, IndexError>) -> Bytes {
    encode(&result.map_err(ViewFailure::from))
}

/// The answer of a question about a full-text index.
fn of_search<Q: SearchQuestion>(result: Result<Q::Answer, IndexError>) -> Bytes {
    encode(&result.map_err(ViewFailure::from))
}

impl Coordinator {
    /// The error says that nothing was done. Nobody waits for the answer after `until`.
    async fn serve_replica(&self, from: String, call: ReplicaRequest, until: Instant) -> Result<Message, String> {
        let ReplicaRequest { db, instance, version, counted, range, id, horizon, op } = call;
        let context = self.context();
        if context.is_in_maintenance() {
            return Err("the node is in maintenance".to_owned());
        }
        let database = self.database(&db).map_err(|_| format!("there is no database {db}"))?;
        if database.instance() != instance {
            return Err(format!("{db} is another database here"));
        }
        if version > database.layout().placed.version {
            context.note_stale(&db, &from);
        }
        let (range, counted) = (usize::try_from(range).unwrap_or(usize::MAX), counted && op.is_counted());
        let asked = Asked { from, version, counted, range, id, until };
        let (is_edit, is_done_once) = (op.is_edit(), op.is_done_once());
        // Boxed: what it is passed on through would hold it several times, for every call.
        let done = Box::pin(async {
            if let Some(horizon) = &horizon {
                database.collection().check_horizon(asked.range, horizon).await?;
            }
            let done = serve(&database, &asked, op).await;
            if is_edit {
                context.took_edit(&asked.from, &db);
            }
            done
        });
        if !is_done_once {
            return done.await;
        }
        let not_executed = |why| encode(&Err::<(), _>(WireError::NotExecuted(why)));
        let once = async { done.await.map_or_else(not_executed, Message::into_bytes) };
        Ok(context.answered.once(&asked.from, id, once).await.into())
    }
}

/// What a call says beside what is to be done.
struct Asked {
    from: String,
    /// The version of the map that the caller knows.
    version: u64,
    /// Whether it counts the answers by that map.
    counted: bool,
    /// The number of the range in that.
    range: usize,
    /// The number of the call.
    id: u64,
    /// When the caller gives up.
    until: Instant,
}

impl Asked {
    /// A replica to do it on.
    fn to_do_it_on(&self, replica: OwnReplica) -> OwnReplica {
        if self.counted { replica.by_map(self.version) } else { replica }
    }
}

/// The version of the oldest map by which a call may be made.
fn oldest_map(layout: &Layout, asked: &Asked, op: &ReplicaOp) -> u64 {
    match (op.is_done_once(), asked.counted) {
        // The caller takes it for one of a single range.
        (true, _) => layout.placed.version,
        (false, true) => layout.placed.moved,
        (false, false) => 0,
    }
}

/// Answers a call to the replicas that are here. The error says that nothing was done.
async fn serve(database: &Arc<Database>, asked: &Asked, op: ReplicaOp) -> Result<Message, String> {
    let layout = database.layout();
    let is_left = || layout.map.live().iter().any(|range| layout.placed.leaves(*range, &database.context.node));
    let is_planted =
        mutated(Mutation::StaleMapAccepted) || mutated(Mutation::OldOwnerWrites) && op.is_edit() && is_left();
    if asked.version < oldest_map(&layout, asked, &op) && !is_planted {
        database.settings().tell_map(&asked.from);
        return Ok(refuse(&op, WireError::Moved).into());
    }
    let groups = Groups { database, layout: &layout, asked };
    let op = match op {
        ReplicaOp::Awaits(Awaits(call)) => {
            return Ok(answer::<Awaits>(Ok(database.context.awaited.is_awaited(call))).into());
        }
        ReplicaOp::Fetch(Fetch(wants)) => return Ok(groups.fetch(wants).await.into()),
        ReplicaOp::FetchSome(FetchSome { wants, bytes }) => return Ok(groups.fetch_some(wants, bytes).await),
        ReplicaOp::Merge(Merge { edits, source, repair, anew, tell }) => {
            let origin = if anew { Origin::Anew } else { Origin::Anywhere };
            let merged = groups.merge(edits, source, repair.then_some(origin)).await;
            let told = if tell { served::<Merge>(merged) } else { encode(&merged.map(|merged| merged.stored)) };
            return Ok(told.into());
        }
        op => op,
    };
    let Some(range) = range_meant(&layout, asked, &op) else {
        return match asked.version > layout.placed.version {
            true => Err(format!("the map of {} is not known here yet", database.name)),
            false => Ok(refuse(&op, WireError::Moved).into()),
        };
    };
    if matches!(op, ReplicaOp::Status) {
        let status = database.replica_rebuild().told_status(&layout, range, &asked.from).await;
        return Ok(answer::<Status>(status).into());
    }
    let replica = match groups.own(range).await {
        Ok(replica) => asked.to_do_it_on(replica),
        Err(error) => return Ok(refuse(&op, error).into()),
    };
    let context = &database.context;
    let serving = Serving { database, range, replica: &replica, until: asked.until };
    let told = match op {
        ReplicaOp::Decide(Decide(call)) => served::<Decide>(serving.decide(*call, asked).await),
        ReplicaOp::View(View(call)) => serving.view(*call).await,
        ReplicaOp::Search(Search(call)) => serving.search(*call).await,
        ReplicaOp::StageWrite(StageWrite { upload, data }) => {
            answer::<StageWrite>(context.uploads.write(&context.env, upload, data).await)
        }
        ReplicaOp::StageFinish(StageFinish { upload }) => answer::<StageFinish>(context.uploads.finish(upload).await),
        ReplicaOp::Stage(Stage(mode)) => {
            answer::<Stage>(context.uploads.begin(&context.env, replica.shard.stage(mode)))
        }
        ReplicaOp::Holds(Holds(wanted)) => {
            answer::<Holds>(database.replicas().holds(&layout, range, &replica, &wanted).await)
        }
        ReplicaOp::Collect(Collect(call)) => serving.collect(*call, asked).await,
        op => serving.plain(op).await,
    };
    Ok(told.into())
}

/// The answer that a call was not done.
fn refuse(op: &ReplicaOp, error: WireError) -> Bytes {
    match op {
        ReplicaOp::View(_) | ReplicaOp::Search(_) => encode(&Err::<(), _>(ViewFailure::Replica(error))),
        _ => encode(&Err::<(), _>(error)),
    }
}

/// The range here that a call means: the one that has its documents, else the one that it names. `None` when there is
/// no such range any more, or not yet.
fn range_meant(layout: &Layout, asked: &Asked, op: &ReplicaOp) -> Option<usize> {
    let map = &layout.map;
    if let ReplicaOp::Decide(Decide(call)) = op {
        let mut ranges = call.edits.iter().map(|edit| map.index_of(&edit.id));
        let first = ranges.next()?;
        return ranges.all(|range| range == first).then_some(first);
    }
    let is_there = map.is_live(asked.range) || op.is_of_upload() && asked.range < map.numbers();
    op.document().map(|id| map.index_of(id)).or(is_there.then_some(asked.range))
}

/// Answers calls about documents, wherever they are here: the caller may know them in a range that was split since, or
/// in a half of one that is not split here yet.
struct Groups<'a> {
    database: &'a Arc<Database>,
    layout: &'a Layout,
    asked: &'a Asked,
}

impl Groups<'_> {
    /// All documents, for a node that asks for no less.
    async fn fetch(&self, wants: Vec<(DocId, Want)>) -> Bytes {
        let held = self.database.context.budgets.answer(wants.len() * limits::FETCH_DOC_BYTES).await;
        held.with(served::<Fetch>(self.fetch_all(wants).await))
    }

    async fn fetch_all(&self, wants: Vec<(DocId, Want)>) -> Served<Vec<Option<Fetched>>> {
        let (mut found, mut left) = (BTreeMap::new(), limits::CLUSTER_OLD_BODY_BYTES);
        for Group { range, mut places, items } in by_range(self.layout, wants, |(id, _)| id) {
            let (replica, mut wants) = (self.own(range).await?, Wants::from(items));
            while !wants.is_empty() {
                let FetchedPart { found: some, rest, .. } = replica.shard.fetch_within(wants, left).await?;
                if some.is_empty() {
                    tracing::warn!(database = self.database.name, "an older node asked for more than a message holds");
                    return Err(WireError::NotExecuted("the documents are larger than a message together".to_owned()));
                }
                left -= some.iter().flatten().map(Fetched::bytes).sum::<usize>().min(left);
                found.extend(places.drain(..some.len()).zip(some));
                wants = rest;
            }
        }
        Ok(found.into_values().collect())
    }

    /// The first documents, within the bytes that the caller has room for, and those that all answers share.
    async fn fetch_some(&self, mut wants: Vec<(DocId, Want)>, bytes: u64) -> Message {
        let range = wants.first().map(|(id, _)| self.layout.map.index_of(id));
        let others = wants.iter().position(|(id, _)| Some(self.layout.map.index_of(id)) != range);
        wants.truncate(fewer("serve: an answer of one document", others.unwrap_or(wants.len())));
        let most = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(capped("cluster: bytes of a message", limits::CLUSTER_MESSAGE_BYTES) / 2);
        let mut room = most.min(wants_bytes(&wants));
        let mut wants = Wants::from(wants);
        loop {
            // Before they are read: who waits has none of them in memory.
            let held = self.database.context.budgets.answer(room).await;
            let part = match self.fetch_within(range, wants, room).await {
                Ok(part) => part,
                Err(error) => return served::<FetchSome>(Err(error)).into(),
            };
            if !part.found.is_empty() || part.rest.is_empty() || part.needs > most {
                return found_in_parts(part).with_last(|last| held.with(last));
            }
            (wants, room) = (part.rest, part.needs);
        }
    }

    async fn fetch_within(&self, range: Option<usize>, wants: Wants, room: usize) -> Served<FetchedPart> {
        let Some(range) = range else { return Ok(FetchedPart { found: Vec::new(), rest: wants, needs: 0 }) };
        Ok(self.own(range).await?.shard.fetch_within(wants, room).await?)
    }

    async fn merge(&self, edits: Vec<EditText>, source: String, stored: Option<Origin>) -> Served<Merged> {
        let (mut merged, mut at) = (BTreeMap::new(), Vec::new());
        for Group { range, places, items } in by_range(self.layout, edits, |edit| &edit.id) {
            let replica = self.asked.to_do_it_on(self.own(range).await?);
            let serving = Serving { database: self.database, range, replica: &replica, until: self.asked.until };
            merged.extend(places.into_iter().zip(serving.merge(items, source.clone(), stored).await?));
            at.push(Mark::of(replica.replica_position()));
        }
        // Two halves of a range stand at two positions.
        let at = at.pop().filter(|_| at.is_empty());
        Ok(Merged { stored: merged.into_values().collect(), at })
    }

    async fn own(&self, range: usize) -> Served<OwnReplica> {
        let held = self.database.replicas().own_replica_by(self.layout, range).await.map_err(WireError::from)?;
        held.ok_or_else(|| {
            WireError::NotExecuted(format!("the range {range} of {} is not held here", self.database.name))
        })
    }
}

/// The bytes that documents are expected to take.
fn wants_bytes(wants: &[(DocId, Want)]) -> usize {
    wants.len().saturating_mul(limits::FETCH_DOC_BYTES)
}

/// What a call says of documents of one range.
struct Group<I> {
    range: usize,
    /// Where each item stood in the call.
    places: Vec<usize>,
    items: Vec<I>,
}

fn by_range<I>(layout: &Layout, items: Vec<I>, id: impl Fn(&I) -> &DocId) -> Vec<Group<I>> {
    let mut groups: BTreeMap<usize, Group<I>> = BTreeMap::new();
    for (at, item) in items.into_iter().enumerate() {
        let range = layout.map.index_of(id(&item));
        let group = groups.entry(range).or_insert_with(|| Group { range, places: Vec::new(), items: Vec::new() });
        group.places.push(at);
        group.items.push(item);
    }
    groups.into_values().collect()
}

/// A call being answered.
struct Serving<'a> {
    database: &'a Arc<Database>,
    range: usize,
    replica: &'a OwnReplica,
    /// When the caller gives up.
    until: Instant,
}

impl Serving<'_> {
    /// Operations on one replica that need nothing else of the call.
    async fn plain(&self, op: ReplicaOp) -> Bytes {
        let (shard, size) = (&self.replica.shard, |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX));
        match op {
            ReplicaOp::Changes(call) => self.here(call).await,
            ReplicaOp::ClearTimes => self.here(ClearTimes).await,
            ReplicaOp::Epochs => self.here(Epochs).await,
            ReplicaOp::Info => self.here(Info).await,
            ReplicaOp::Local(call) => self.here(call).await,
            ReplicaOp::LocalMerge(call) => self.here(call).await,
            ReplicaOp::Purge(call) => self.here(call).await,
            ReplicaOp::PurgesShared(call) => self.here(call).await,
            ReplicaOp::Resume(call) => self.here(call).await,
            ReplicaOp::Select(call) => self.here(call).await,
            ReplicaOp::SetSyncPoint(call) => self.here(call).await,
            ReplicaOp::Summary(call) => self.here(call).await,
            ReplicaOp::AppliedOf(call) => self.here(call).await,
            ReplicaOp::TimesOf => self.here(TimesOf).await,
            ReplicaOp::Wait(Wait { beyond }) => answer::<Wait>(Ok(self.wait(beyond).await)),
            ReplicaOp::DesignVersion => {
                answer::<DesignVersion>(Ok(self.database.context.boot.wrapping_add(shard.design_version())))
            }
            ReplicaOp::LocalSet(LocalSet { id, document, by }) => {
                let mark = self.database.replicas().replicas_of(self.range) > 1;
                answer::<LocalSet>(shard.local_set(&id, document, by, mark).await)
            }
            ReplicaOp::Split(Split(ranges)) => answer::<Split>(compare::split(&shard.in_background(), ranges).await),
            ReplicaOp::Digests(Digests((start, end), limit)) => {
                let limit = size(limit).min(limits::STEP_ROWS);
                answer::<Digests>(shard.in_background().digests(start, end, limit).await)
            }
            ReplicaOp::PurgeInfos(PurgeInfos { since, limit }) => {
                let infos = shard.purges_to_tell(since, size(limit)).await;
                answer::<PurgeInfos>(infos.map(|infos| cut(infos, |info| info.gone().count())))
            }
            ReplicaOp::Compact => answer::<Compact>(self.compact().await),
            ReplicaOp::KeepViews(KeepViews(views)) => {
                let keep = views.into_iter().map(Signature).collect();
                answer::<KeepViews>(self.database.context.indexes.clean_up(shard, &keep).await)
            }
            ReplicaOp::Expiry(call) => {
                answer::<ExpiryOf>(self.database.expiry().tell(self.range, self.replica, call).await)
            }
            op => self.bytes(op).await,
        }
    }

    /// Operations that answer with much: documents and pieces of attachments.
    async fn bytes(&self, op: ReplicaOp) -> Bytes {
        let (shard, size) = (&self.replica.shard, |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX));
        match op {
            ReplicaOp::List(List(page)) if page.bodies => {
                self.large::<List, _>(|| shard.list(page.clone()), |rows| rows_bytes(rows)).await
            }
            ReplicaOp::List(List(page)) => answer::<List>(shard.list(page).await),
            ReplicaOp::LocalList(LocalList { start, end, direction, limit, bytes }) => {
                let most = (size(limit), bytes.map_or(limits::CLUSTER_OLD_BODY_BYTES, size));
                let list = || shard.local_page((start.clone(), end.clone()), direction, most);
                self.large::<LocalList, _>(list, |rows| rows.iter().map(|(_, local)| local.body.len()).sum()).await
            }
            ReplicaOp::LocalRegisters(LocalRegisters { after, limit }) => {
                let list = || shard.local_registers(after.clone(), size(limit));
                let bytes = |rows: &Vec<(DocId, LocalRegister)>| {
                    rows.iter().flat_map(|(_, of)| &of.document).map(|document| document.body.len()).sum()
                };
                self.large::<LocalRegisters, _>(list, bytes).await
            }
            ReplicaOp::Blob(Blob { attachment, at }) => {
                let end = at.saturating_add(limits::BLOB_STEP_BYTES as u64);
                let piece = shard.blob_reader(&attachment, ReadAs::Stored, Some((at, end))).next().await;
                answer::<Blob>(piece.map(Option::unwrap_or_default).map_err(ShardError::from))
            }
            _ => reply(Err::<(), _>(ShardError::NotExecuted("this call is answered elsewhere".to_owned()))),
        }
    }

    /// An operation that the replica answers by itself.
    async fn here<C: PlainCall>(&self, call: C) -> Bytes {
        answer::<C>(call.on(self.replica).await)
    }

    /// Answers rows with documents, as many as have `limits::STEP_BYTES` or one that is larger: within the bytes that
    /// all answers share.
    async fn large<C: ReplicaCall, F: Future<Output = Result<C::Answer, ShardError>>>(
        &self,
        read: impl Fn() -> F,
        bytes_of: impl Fn(&C::Answer) -> usize,
    ) -> Bytes {
        let mut room = 2 * limits::STEP_BYTES;
        loop {
            let held = self.database.context.budgets.answer(room).await;
            let rows = read().await;
            match rows.as_ref().map_or(0, &bytes_of) {
                // One that is larger than expected waits for its room without what was read.
                bytes if bytes > room && room < limits::ANSWERS_BYTES => room = bytes,
                _ => return held.with(answer::<C>(rows)),
            }
        }
    }

    /// Where the replica stands, once that is beyond a position or after a while.
    async fn wait(&self, beyond: u64) -> ReplicaPosition {
        let mut news = self.replica.shard.watch();
        let moved = async { drop(news.wait_for(|position| *position > beyond).await) };
        // After that time the caller asks again: so it notices when this node is gone.
        let _ = self.database.context.env.timeout(limits::REPLICA_WAIT, moved).await;
        self.replica.replica_position()
    }

    async fn compact(&self) -> Result<(), ShardError> {
        let (database, range, shard) = (Arc::clone(self.database), self.range, self.replica.shard.clone());
        let info = shard.info().await?;
        let last_purge = database.compaction().last_dispensable_purge((range, &shard), &info).await?;
        self.database.context.env.spawn(async move {
            if let Err(error) = database.compaction().compact_replica((range, &shard), &info, last_purge, None).await {
                tracing::warn!(%error, "a compaction ended early");
            }
        });
        Ok(())
    }

    fn read(edits: Vec<EditText>) -> Served<Vec<Edit>> {
        edits.into_iter().map(EditText::read).collect()
    }

    async fn decide(&self, call: DecideCall, asked: &Asked) -> Served<Vec<Result<AcceptedAt, EditRefusal>>> {
        let DecideCall { edits, caller, source, in_doubt } = call;
        let edits = Serving::read(edits)?;
        let shard = &self.replica.shard;
        let _holds = self.database.writer().pull_uploads(self.range, shard, &edits, &source.as_str().into()).await?;
        if self.database.context.env.now() >= self.until {
            return Err(WireError::NotExecuted("its time is over".to_owned()));
        }
        let sent_by = RemoteReplica::new(&self.database.target, self.range, &asked.from.as_str().into());
        let sent_by = awaited::RemoteCaller { node: sent_by, call: asked.id };
        let decisions = self.database.primary().decide_own(shard, &edits, &caller, Some(&sent_by)).await;
        let at = Some(Mark::of(self.replica.replica_position()));
        let mut out = Vec::with_capacity(decisions.len());
        for (edit, mut decision) in edits.iter().zip(decisions) {
            if in_doubt {
                decision = resolve_in_doubt(shard, edit, decision).await;
            }
            let told = |AcceptedEdit { path, attachments }| AcceptedAt { path, attachments, at };
            out.push(decision.map(told).map_err(EditRefusal::from));
        }
        Ok(out)
    }

    /// Applies what a primary stored, or, where `stored` says of what origin it is, what another replica holds.
    async fn merge(&self, edits: Vec<EditText>, source: String, stored: Option<Origin>) -> Served<Vec<bool>> {
        let edits = Serving::read(edits)?;
        let replica = RangeReplica::Own(self.replica.clone());
        let source = RemoteReplica::new(&self.database.target, self.range, &source.as_str().into());
        Ok(match stored {
            Some(origin) => {
                let count = edits.len();
                repair::merge_missing(&replica, edits, &source, origin).await?;
                vec![true; count]
            }
            None => crate::coordinator::write::spread::merge_into(&replica, &edits, &source).await?.stored,
        })
    }

    async fn collect(&self, call: CollectionCall, asked: &Asked) -> Bytes {
        let (replica, version) = (self.replica, asked.version);
        match call {
            CollectionCall::Tell => collected::<Tell>(replica.shard.told().await),
            CollectionCall::Propose(Propose(proposal)) => collected::<Propose>(
                self.database.collection().write_down((self.range, version), replica, &asked.from, proposal).await,
            ),
            CollectionCall::Confirm(Confirm(round)) => collected::<Confirm>(
                self.database.collection().stands((self.range, version), replica, &asked.from, round).await,
            ),
            CollectionCall::CollectableOf(CollectableOf(list)) => {
                collected::<CollectableOf>(self.database.collection().collectable(replica, list).await)
            }
            CollectionCall::Expects(Expects(tombstones)) => collected::<Expects>(
                self.database.collection().expects((self.range, version), replica, &tombstones).await,
            ),
            CollectionCall::Open => collected::<Open>(replica.shard.open_proposals().await),
            CollectionCall::Markers(Markers(after)) => {
                let markers = replica.shard.markers(after, limits::STEP_ROWS).await;
                collected::<Markers>(markers.map(|markers| cut(markers, |(_, path)| path.ids.len())))
            }
        }
    }

    async fn search(&self, call: SearchCall) -> Bytes {
        let SearchCall { design: (id, body), signature, op } = call;
        let program = Program::new(self.database.instance(), &id, &design(body));
        let mut all = SearchDefinition::all(program.body(), self.database.map().partitioned);
        let found = all.find_map(|(_, definition)| (definition.signature.0 == signature).then_some(definition));
        let search = found.and_then(|definition| self.database.queries().search_of(&program, Arc::new(definition)));
        let Some(search) = search else {
            let why = "the design document has no such index".to_owned();
            return encode(&Err::<(), _>(ViewFailure::Replica(WireError::NotExecuted(why))));
        };
        match op {
            SearchOp::Search(SearchFor { request, update }) => {
                of_search::<SearchFor>(search.search_own(self.range, self.replica, *request, update).await)
            }
            SearchOp::Typed(TypedFor { request, update }) => {
                of_search::<TypedFor>(search.typed_own(self.range, self.replica, *request, update).await)
            }
            SearchOp::Size => of_search::<SizeOf>(search.size_of_own(self.range, self.replica).await),
        }
    }

    async fn view(&self, call: ViewCall) -> Bytes {
        let ViewCall { design: (id, body), signature, op } = call;
        let program = Program::new(self.database.instance(), &id, &design(body));
        let mut all = Definition::all(program.body(), self.database.map().partitioned);
        let found = all.find_map(|(_, definition)| (definition.signature.0 == signature).then_some(definition));
        let Some(definition) = found else {
            let why = "the design document has no such view".to_owned();
            return encode(&Err::<(), _>(ViewFailure::Replica(WireError::NotExecuted(why))));
        };
        let replica = RangeReplica::Own(self.replica.clone());
        let whole = self.database.queries().view_of(&program, Arc::new(definition));
        let view = whole.on(self.range, replica.clone());
        let size = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        match op {
            ViewOp::Update(UpdateView { wait: true }) => {
                of_view::<UpdateView>(whole.update(&view, self.range, &replica).await)
            }
            ViewOp::Update(UpdateView { wait: false }) => of_view::<UpdateView>(view.update_later().await),
            ViewOp::Header => of_view::<HeaderOf>(view.header().await),
            ViewOp::Rows(RowsOf { places, direction, limit, of }) => {
                of_view::<RowsOf>(view.rows(places, direction, size(limit), of).await)
            }
            ViewOp::Groups(GroupsOf { by, places, limit, of }) => {
                of_view::<GroupsOf>(view.groups(&by, places, size(limit), of).await)
            }
            ViewOp::Release(ReleaseState(number)) => of_view::<ReleaseState>(view.release(number).await),
            ViewOp::Count(CountOf(places)) => of_view::<CountOf>(view.count(places).await),
            ViewOp::Selected(SelectedOf(call)) => {
                let checked = self.replica.check_epoch(call.epoch).map_err(IndexError::from);
                let found = async { checked.map(|()| view.selected(call))?.await };
                of_view::<SelectedOf>(found.await)
            }
        }
    }
}

fn rows_bytes(rows: &[ListRow]) -> usize {
    rows.iter().flat_map(|row| &row.winner).map(|winner| winner.body.len()).sum()
}

/// The first entries of a list, as many as one answer takes, one at least: who reads on asks behind the last. `revs`:
/// how many revisions an entry names.
fn cut<T>(mut list: Vec<T>, revs: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = |entry: &&T| {
        bytes += (1 + revs(entry)) * limits::TREE_NODE_BYTES;
        bytes <= limits::LISTED_BYTES
    };
    let most = list.iter().take_while(fits).count().max(1);
    list.truncate(most);
    list
}

/// A design document as its functions' source; which revision it is does not matter to its views.
fn design(body: Bytes) -> StoredRevision {
    let rev = Revision::new(1, RevHash::Md5(Default::default()));
    StoredRevision { rev, deleted: false, body, attachments: Vec::new() }
}
