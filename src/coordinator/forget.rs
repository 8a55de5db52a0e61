//! Forgetting tombstones in rounds, where `[settee] tombstone_days` asks for it; 0 keeps them for ever.
//!
//! The node that is the first to judge a range proposes. It goes by marks: where its copy stood at some time; once the
//! mark is old enough, so is every tombstone before it. Some of these make a round. All copies must be there and in
//! step and write the round down, then it waits, for what was sent to a copy before it wrote that down is to have come
//! in, then it forgets them itself, which decides the round; the others forget them when they read this copy next,
//! which they are told to (`horizon`). Tombstones that stand beside other leaves stay, those of design documents, too.
//!
//! Nothing here runs, is read or is sent while the setting is 0. What was forgotten before stays so.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::database::Database;
use crate::coordinator::layout::Layout;
use crate::coordinator::message::{decode, encode};
use crate::coordinator::range_copy::OwnCopy;
use crate::coordinator::remote::RemoteCopy;
use crate::limits;
use crate::shard::{ChangeRow, Horizon, Proposal, Round, ShardError, Tombstone};
use crate::storage::{Direction, StorageError};
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};

/// How old a tombstone is when it may be forgotten; `None`: it never may.
pub(super) fn age(config: &Config) -> Option<Duration> {
    let days: f64 = config.get("settee", "tombstone_days")?.trim().parse().ok()?;
    Duration::try_from_secs_f64(days * 86_400.0).ok().filter(|age| !age.is_zero())
}

/// How far a copy was looked through for what to forget, kept with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    /// A position, and the time at which the copy stood there, in milliseconds by the wall clock.
    position: u64,
    at_ms: u64,
    /// Tombstones up to this position were forgotten, or are not to be.
    scanned: u64,
}

/// The value of the copy that holds it.
const NAME: &str = "forgetting";

impl Coordinator {
    /// Starts the task that forgets what is old enough; it ends with the coordinator.
    pub(super) fn keep_forgetting(self: &Arc<Self>) {
        self.env().spawn(keep_forgetting(Arc::downgrade(self)));
    }

    /// Looks through all databases for what is to be forgotten.
    pub(super) async fn forget_old(&self, age: Duration) {
        let known = self.all_known().into_iter();
        let databases = stream::iter(known.filter_map(|(name, _)| self.database(&name).ok()));
        let ranges = databases
            .flat_map(|database| stream::iter(database.ranges()).map(move |range| (Arc::clone(&database), range)));
        let look = |(database, range): (Arc<Database>, usize)| async move {
            match database.forget_in(range, age).await {
                Ok(()) | Err(ShardError::Dropped | ShardError::Moved) => {}
                Err(error) => tracing::info!(database = database.name, range, %error, "nothing is forgotten for now"),
            }
        };
        ranges.for_each_concurrent(limits::FORGET_AT_ONCE, look).await;
    }
}

async fn keep_forgetting(weak: Weak<Coordinator>) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    let (env, config, mut news) = (context.env.clone(), context.config.clone(), context.config.watch());
    drop(context);
    loop {
        news.borrow_and_update();
        let Some(age) = age(&config) else {
            match news.changed().await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        drop(env.timeout(limits::FORGET_PAUSE.min(age), news.changed()).await);
        let Some(coordinator) = weak.upgrade() else { return };
        coordinator.forget_old(age).await;
    }
}

impl Database {
    /// Forgets what is old enough in a range, if that is this node's to propose.
    async fn forget_in(&self, range: usize, age: Duration) -> Result<(), ShardError> {
        let layout = self.layout();
        let Some(own) = self.own_copy_by(&layout, range).await? else { return Ok(()) };
        let own = own.in_background();
        if own.shard.state().await?.shadows > 0 {
            match layout.is_alone(range) {
                true => own.shard.note_taken(&self.context.node, &Horizon::default(), Vec::new()).await?,
                // They go when the others were read again.
                false => self.context.pull_soon(&self.name),
            }
        }
        for _ in 0..limits::FORGET_ROUNDS {
            if !self.may_propose(&layout, range).await? {
                return Ok(());
            }
            let marks = self.marks(&own, age).await?;
            if marks.scanned >= marks.position {
                return Ok(());
            }
            let (tombstones, scanned) = aged(&own, marks).await?;
            if !tombstones.is_empty() && !self.round((&layout, range), &own, tombstones, age).await? {
                return Ok(());
            }
            store(&own, Marks { scanned, ..marks }).await?;
        }
        Ok(())
    }

    /// Whether this node is the first to judge the range, all copies of it are there and in step, and none moves.
    async fn may_propose(&self, layout: &Layout, range: usize) -> Result<bool, ShardError> {
        let nodes = layout.judges(range, &self.context.node);
        let is_quiet = layout.placed.version == self.layout().placed.version
            && layout.map.is_live(range)
            && layout.placed.move_of(range).is_none();
        let is_mine = nodes.first() == Some(&self.context.node);
        let is_there = |node: &Arc<str>| self.context.rank(node) == Some(0);
        let are_there = || mutated(Mutation::ForgetEarly) || nodes.iter().all(is_there);
        Ok(is_mine && is_quiet && are_there() && !self.has_heirs(range).await?)
    }

    /// The marks of a copy, with a new one where there was none or what lies before it is done with. What is not old
    /// enough counts as none.
    async fn marks(&self, own: &OwnCopy, age: Duration) -> Result<Marks, ShardError> {
        let stored = own.shard.meta_get(NAME).await?;
        let read = |bytes: Vec<u8>| decode(&bytes).map_err(|why| StorageError::Corrupt(format!("marks: {why}")));
        let mut marks: Marks = stored.map(read).transpose()?.unwrap_or_default();
        let now_ms = u64::try_from(self.context.env.wall().as_millis()).unwrap_or(u64::MAX);
        let here = own.standing().position;
        // A clock that went back, or a position that this disk never reached, say nothing.
        let is_void = marks.at_ms > now_ms || marks.position > here;
        if is_void || marks.scanned >= marks.position && here > marks.position {
            marks = Marks { position: here, at_ms: now_ms, scanned: marks.scanned.min(here) };
            store(own, marks).await?;
        }
        let is_old = u128::from(now_ms - marks.at_ms) >= age.as_millis();
        Ok(if is_old { marks } else { Marks { scanned: marks.position, ..marks } })
    }

    /// Has all copies forget some tombstones; answers whether that was decided.
    async fn round(
        &self,
        (layout, range): (&Layout, usize),
        own: &OwnCopy,
        tombstones: Vec<Tombstone>,
        age: Duration,
    ) -> Result<bool, ShardError> {
        let (context, me) = (&self.context, &*self.context.node);
        let number = own.shard.told().await?.done.last(me).number + 1;
        let proposal = Proposal { round: Round { number, id: context.env.random_u64() }, tombstones };
        if !own.shard.propose(me, proposal.clone()).await? {
            return Ok(false);
        }
        let asked = |node: &Arc<str>| !mutated(Mutation::ForgetEarly) || context.rank(node) == Some(0);
        for node in self.others_of(layout, range).iter().filter(|node| asked(node)) {
            let remote = RemoteCopy::new(&self.target, range, node).in_background();
            if !remote.propose(me, &proposal).await? {
                // It may have missed the round before.
                context.missed(&self.name);
                return Ok(false);
            }
        }
        context.env.sleep(limits::FORGET_SETTLE.min(age)).await;
        if layout.placed.version != self.layout().placed.version {
            return Ok(false);
        }
        let done = own.shard.told().await?.done.with(me, proposal.round);
        own.shard.forget(&done).await?;
        sometimes("cluster: tombstones were forgotten");
        context.missed(&self.name);
        Ok(true)
    }
}

async fn store(own: &OwnCopy, marks: Marks) -> Result<(), ShardError> {
    own.shard.meta_put(NAME, Some(encode(&marks).to_vec())).await
}

/// The next tombstones before the mark that stand alone, as many as make a round; and up to where those are all.
async fn aged(own: &OwnCopy, marks: Marks) -> Result<(Vec<Tombstone>, u64), ShardError> {
    let most = fewer("forget: one tombstone at a time", limits::FORGET_ROUND);
    let (mut out, mut scanned) = (Vec::new(), marks.scanned);
    while scanned < marks.position {
        let page = own.shard.changes(scanned, Direction::Forward, limits::PAGE_ROWS).await?;
        let is_end = page.rows.is_empty();
        for row in page.rows {
            if row.seq > marks.position || out.len() >= most {
                let end = if row.seq > marks.position { marks.position } else { scanned };
                return Ok((out, end));
            }
            scanned = row.seq;
            out.extend(alone(row));
        }
        if is_end {
            break;
        }
    }
    Ok((out, marks.position))
}

/// The tombstone that is the only leaf of a document.
fn alone(row: ChangeRow) -> Option<Tombstone> {
    let ChangeRow { id, mut leaves, .. } = row;
    match leaves.pop() {
        Some((rev, true)) if leaves.is_empty() && !id.is_design() => Some((id, rev)),
        _ => None,
    }
}
