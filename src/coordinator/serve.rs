//! Answers calls of other nodes to the copies that this one holds.
//!
//! A call names the database's instance: one that was deleted and made anew is another database. A call whose time is
//! over is dropped before anything is done; one that changes something and comes again is answered as the first time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::database::Database;
use crate::coordinator::judge::resolve_doubt;
use crate::coordinator::message::{
    CopyCall, CopyOp, EditText, JudgeCall, Refusal, Standing, ViewCall, ViewFailure, ViewOp, WireError, decode, encode,
};
use crate::coordinator::peers::Answer;
use crate::coordinator::range_copy::{OwnCopy, RangeCopy};
use crate::coordinator::remote::RemoteCopy;
use crate::coordinator::{compare, repair, sync_points};
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::document::revision::{RevHash, Revision};
use crate::index::{Definition, Signature};
use crate::limits;
use crate::script::Program;
use crate::shard::{Edit, Fetched, Judged, ShardError, Want};
use crate::storage::ReadAs;
use crate::world::buggify::{Mutation, mutated};
use crate::world::{BoxFuture, Instant};

/// See the module head.
pub(super) struct CopyService(pub Weak<Coordinator>);

impl Answer for CopyService {
    fn answer(&self, from: String, body: Bytes, left: Duration) -> BoxFuture<'static, Result<Bytes, String>> {
        let coordinator = self.0.upgrade();
        Box::pin(async move {
            let coordinator = coordinator.ok_or("this node stops")?;
            let call: CopyCall = decode(&body)?;
            if left.is_zero() {
                return Err("its time is over".to_owned());
            }
            let until = Instant(coordinator.env().now().0.saturating_add(left));
            coordinator.serve_copy(from, call, until).await
        })
    }
}

type Served<T> = Result<T, WireError>;

fn reply<T: Serialize>(result: Result<T, ShardError>) -> Bytes {
    encode(&result.map_err(WireError::from))
}

impl Coordinator {
    /// The error says that nothing was done. Nobody waits for the answer after `until`.
    async fn serve_copy(&self, from: String, call: CopyCall, until: Instant) -> Result<Bytes, String> {
        let CopyCall { db, instance, version, range, id, op } = call;
        let context = self.context();
        if context.is_in_maintenance() {
            return Err("the node is in maintenance".to_owned());
        }
        let database = self.database(&db).map_err(|_| format!("there is no database {db}"))?;
        if database.instance() != instance {
            return Err(format!("{db} is another database here"));
        }
        let layout = database.layout();
        let known = layout.placed.version;
        if version > known {
            context.note_stale(&db, &from);
        }
        let changes = matches!(op, CopyOp::Judge(_) | CopyOp::LocalSet { .. } | CopyOp::Purge(_));
        let is_late = changes && version < known || op.is_write() && version < layout.placed.moved;
        let leaves = op.is_write() && !layout.takes_writes(range as usize, &context.node);
        if (is_late || leaves) && !mutated(Mutation::StaleMapAccepted) {
            database.tell_map(&from);
            return Ok(encode(&Err::<(), _>(WireError::Moved)));
        }
        let op = match op {
            CopyOp::Judge(call) => {
                let judged = async { encode(&judge(&database, *call, until).await) };
                return Ok(context.answered.once(&from, id, judged).await);
            }
            op => op,
        };
        let op = match serve_documents(&database, op, until).await {
            Ok(answer) => return Ok(answer),
            Err(op) => op,
        };
        let range = usize::try_from(range).unwrap_or(usize::MAX);
        let range = match op.document() {
            Some(id) => layout.map.index_of(id),
            None if layout.map.is_live(range) || op.is_of_upload() && range < layout.map.numbers() => range,
            None if version > layout.placed.version => return Err(format!("the map of {db} is not known here yet")),
            None => return Ok(encode(&Err::<(), _>(op.moved()))),
        };
        let copy = database.own_copy(range).await.map_err(|error| error.to_string())?;
        let copy = copy.ok_or_else(|| format!("the range {range} of {db} is not held here"))?;
        let serving = Serving { database: &database, range, copy: &copy, until };
        Ok(match op {
            CopyOp::LocalSet { .. } | CopyOp::Purge(_) => context.answered.once(&from, id, serving.change(op)).await,
            CopyOp::View(call) => serving.view(*call).await,
            CopyOp::StageWrite { upload, data } => reply(context.uploads.write(&context.env, upload, data).await),
            CopyOp::StageFinish { upload } => reply(context.uploads.finish(upload).await),
            CopyOp::Stage(mode) => reply(context.uploads.begin(&context.env, copy.shard.stage(mode))),
            CopyOp::Status => reply(compare::status(&copy.in_background(), &from).await),
            CopyOp::SetSyncPoint(point) => reply(sync_points::note(&copy.shard, &from, point).await),
            op => serving.plain(op).await,
        })
    }
}

/// Answers a call that is about documents, wherever they are here: the caller may know them in a range that was split
/// since, or in a half of one that is not split here yet. Gives back other calls.
async fn serve_documents(database: &Arc<Database>, op: CopyOp, until: Instant) -> Result<Bytes, CopyOp> {
    match op {
        CopyOp::Fetch(wants) => Ok(encode(&fetch(database, wants).await)),
        CopyOp::Merge { edits, source, repair } => Ok(encode(&merge(database, (edits, source, repair), until).await)),
        op => Err(op),
    }
}

async fn fetch(database: &Arc<Database>, wants: Vec<(DocId, Want)>) -> Served<Vec<Option<Fetched>>> {
    let mut found = BTreeMap::new();
    for Group { range, places, items } in by_range(database, wants, |(id, _)| id) {
        let copy = own(database, range).await?;
        found.extend(places.into_iter().zip(copy.shard.fetch(items).await?));
    }
    Ok(found.into_values().collect())
}

async fn judge(database: &Arc<Database>, call: JudgeCall, until: Instant) -> Served<Vec<Result<Judged, Refusal>>> {
    let JudgeCall { edits, caller, source, doubtful } = call;
    let mut judged = BTreeMap::new();
    for Group { range, places, items: edits } in by_range(database, edits, |edit| &edit.id) {
        let copy = own(database, range).await?;
        let call = JudgeCall { edits, caller: caller.clone(), source: source.clone(), doubtful };
        judged.extend(places.into_iter().zip(Serving { database, range, copy: &copy, until }.judge(call).await?));
    }
    Ok(judged.into_values().collect())
}

async fn merge(
    database: &Arc<Database>,
    (edits, source, repair): (Vec<EditText>, String, bool),
    until: Instant,
) -> Served<Vec<bool>> {
    let mut merged = BTreeMap::new();
    for Group { range, places, items } in by_range(database, edits, |edit| &edit.id) {
        let copy = own(database, range).await?;
        let serving = Serving { database, range, copy: &copy, until };
        merged.extend(places.into_iter().zip(serving.merge(items, source.clone(), repair).await?));
    }
    Ok(merged.into_values().collect())
}

async fn own(database: &Database, range: usize) -> Served<OwnCopy> {
    let held = database.own_copy(range).await.map_err(WireError::from)?;
    held.ok_or_else(|| WireError::Away(format!("the range {range} of {} is not held here", database.name)))
}

/// What a call says of documents of one range.
struct Group<I> {
    range: usize,
    /// Where each item stood in the call.
    places: Vec<usize>,
    items: Vec<I>,
}

fn by_range<I>(database: &Database, items: Vec<I>, id: impl Fn(&I) -> &DocId) -> Vec<Group<I>> {
    let map = database.map();
    let mut groups: BTreeMap<usize, Group<I>> = BTreeMap::new();
    for (at, item) in items.into_iter().enumerate() {
        let range = map.index_of(id(&item));
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
    copy: &'a OwnCopy,
    /// When the caller gives up.
    until: Instant,
}

impl Serving<'_> {
    /// What must not be done twice.
    async fn change(&self, op: CopyOp) -> Bytes {
        let shard = &self.copy.shard;
        match op {
            CopyOp::LocalSet { id, document, by } => {
                reply(shard.local_set(&id, document, by, self.database.copies_of(self.range) > 1).await)
            }
            CopyOp::Purge(items) => reply(shard.purge(items).await),
            _ => reply(Err::<(), _>(ShardError::Away("this call changes nothing".to_owned()))),
        }
    }

    /// What a copy answers by itself.
    async fn plain(&self, op: CopyOp) -> Bytes {
        let (shard, size) = (&self.copy.shard, |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX));
        match op {
            CopyOp::List(page) => reply(shard.list(page).await),
            CopyOp::Summary(start, end) => reply(shard.summary(start, end).await),
            CopyOp::Select { start, end, direction, place } => reply(shard.select(start, end, direction, place).await),
            CopyOp::Changes(call) => reply(self.copy.changes(call).await),
            CopyOp::Info => reply(RangeCopy::Own(self.copy.clone()).info().await),
            CopyOp::Wait { beyond } => reply(Ok(self.wait(beyond).await)),
            CopyOp::Resume(entries) => reply(self.copy.resume(&entries).await),
            CopyOp::DesignVersion => reply(Ok(self.database.context.boot.wrapping_add(shard.design_version()))),
            CopyOp::Local(id) => reply(shard.local_register(&id).await),
            CopyOp::LocalList { start, end, direction, limit } => {
                reply(shard.local_list(start, end, direction, size(limit)).await)
            }
            CopyOp::LocalMerge(registers) => reply(shard.local_merge(registers).await),
            CopyOp::LocalRegisters { after, limit } => reply(shard.local_registers(after, size(limit)).await),
            CopyOp::Split(ranges) => reply(compare::split(&shard.in_background(), ranges).await),
            CopyOp::Digests((start, end), limit) => {
                reply(shard.in_background().digests(start, end, size(limit).min(limits::STEP_ROWS)).await)
            }
            CopyOp::PurgeInfos { since, limit } => reply(shard.purge_infos(since, size(limit)).await),
            CopyOp::Compact => reply(self.compact().await),
            CopyOp::Blob { attachment, at } => {
                let end = at.saturating_add(limits::BLOB_STEP_BYTES as u64);
                let piece = shard.blob_reader(&attachment, ReadAs::Stored, Some((at, end))).next().await;
                reply(piece.map(Option::unwrap_or_default).map_err(ShardError::from))
            }
            CopyOp::KeepViews(views) => {
                let keep = views.into_iter().map(Signature).collect();
                reply(self.database.context.indexes.clean_up(shard, &keep).await)
            }
            _ => reply(Err::<(), _>(ShardError::Away("this call is answered elsewhere".to_owned()))),
        }
    }

    /// Where the copy stands, once that is beyond a position or after a while.
    async fn wait(&self, beyond: u64) -> Standing {
        let mut news = self.copy.shard.watch();
        let moved = async { drop(news.wait_for(|position| *position > beyond).await) };
        // After that time the caller asks again: so it notices when this node is gone.
        let _ = self.database.context.env.timeout(limits::COPY_WAIT, moved).await;
        self.copy.standing()
    }

    async fn compact(&self) -> Result<(), ShardError> {
        let shard = self.copy.shard.clone();
        let limit = self.database.purges_to_keep(self.range, &shard).await?;
        let pace = self.database.compaction_pace();
        self.database.context.env.spawn(async move {
            if let Err(error) = shard.compact(limit, pace).await {
                tracing::warn!(%error, "a compaction ended early");
            }
        });
        Ok(())
    }

    fn read(edits: Vec<EditText>) -> Served<Vec<Edit>> {
        edits.into_iter().map(EditText::read).collect()
    }

    async fn judge(&self, call: JudgeCall) -> Served<Vec<Result<Judged, Refusal>>> {
        let JudgeCall { edits, caller, source, doubtful } = call;
        let edits = Serving::read(edits)?;
        let shard = &self.copy.shard;
        let _holds = self.database.pull_uploads(self.range, shard, &edits, &source.as_str().into()).await?;
        if self.database.context.env.now() >= self.until {
            return Err(WireError::Away("its time is over".to_owned()));
        }
        let verdicts = self.database.judge_own(shard, edits.clone(), &caller).await;
        let mut out = Vec::with_capacity(verdicts.len());
        for (edit, mut verdict) in edits.iter().zip(verdicts) {
            if doubtful {
                verdict = resolve_doubt(shard, edit, verdict).await;
            }
            out.push(verdict.map_err(Refusal::from));
        }
        Ok(out)
    }

    async fn merge(&self, edits: Vec<EditText>, source: String, repair: bool) -> Served<Vec<bool>> {
        let edits = Serving::read(edits)?;
        let copy = RangeCopy::Own(self.copy.clone());
        let source = RemoteCopy::new(&self.database.target, self.range, &source.as_str().into());
        Ok(match repair {
            true => {
                let count = edits.len();
                repair::merge_missing(&copy, edits, &source, 0).await?;
                vec![true; count]
            }
            false => crate::coordinator::spread::merge_into(&copy, &edits, &source).await?,
        })
    }

    async fn view(&self, call: ViewCall) -> Bytes {
        let ViewCall { design: (id, body), signature, op } = call;
        let program = Program::new(self.database.instance(), &id, &design(body));
        let found = Definition::all(program.body(), self.database.map().partitioned);
        let found = found.into_iter().map(|(_, definition)| definition).find(|found| found.signature.0 == signature);
        let Some(definition) = found else {
            let why = "the design document has no such view".to_owned();
            return encode(&Err::<(), _>(ViewFailure::Copy(WireError::Away(why))));
        };
        let view =
            self.database.view_of(&program, Arc::new(definition)).on(self.range, RangeCopy::Own(self.copy.clone()));
        match op {
            ViewOp::Update { wait: true } => encode(&view.update().await.map_err(ViewFailure::from)),
            ViewOp::Update { wait: false } => encode(&view.update_later().await.map_err(ViewFailure::from)),
            ViewOp::Header => encode(&view.header().await.map_err(ViewFailure::from)),
            ViewOp::Rows { places, direction, limit } => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                encode(&view.rows(places, direction, limit).await.map_err(ViewFailure::from))
            }
            ViewOp::Count(places) => encode(&view.count(places).await.map_err(ViewFailure::from)),
        }
    }
}

/// A design document as its functions' source; which revision it is does not matter to its views.
fn design(body: Bytes) -> StoredRevision {
    let rev = Revision::new(1, RevHash::Md5(Default::default()));
    StoredRevision { rev, deleted: false, body, attachments: Vec::new() }
}
