//! Voters about maps: the members of the cluster as a majority of the voters before agreed on them.
//!
//! The documents of members (`cluster`) spread from node to node, so that two nodes may know different ones. Votes are
//! counted among the voters instead: sets of members, one version after the other, each decided by a majority of the
//! one before it in the same way as maps are (`ballots`). The voters follow the documents within a moment, wherever a
//! majority is in reach. While members were never agreed on (version 0) each node counts the members it knows, and
//! votes for a proposer that counts the same; the first set needs the votes of all its members.
//!
//! **The joint stage.** A map that was decided among voters must not be lost to the next voters, of whom most may never
//! have heard of it. So a node that goes over to voters of version `v`
//! - answers no ballot of earlier voters from then on, and
//! - votes by the new ones only once it has applied what so many of the old voters promised and accepted that every
//!   majority of the old voters includes one of these. Each of those had gone over before it told that, and had itself
//!   applied what was accepted before.
//!
//! What a majority of the old voters accepted is thus known to every new voter that votes, and no majority of the old
//! ones is left to accept anything else: a decision is one of a majority of the old and of the new voters. The version
//! after that is decided by nodes that have done so only: at most two sets of voters matter at any time. A node with an
//! empty disk may have voted before it lost its data: it applies what as many of the present voters hold, too.
//!
//! Where a majority is lost for good an administrator names the voters (`force_voters`): the asked node applies what
//! all other nodes in reach accepted, and what only the lost nodes accepted is lost with them. If they come back, the
//! larger of two sets of one version stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use futures_util::future::try_join_all;

use crate::coordinator::consensus::agreement::read_promise;
use crate::coordinator::consensus::ballots::{Register, Round};
use crate::coordinator::consensus::gossip::LearnError;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::message::{decode, encode};
use crate::coordinator::replica::node_calls::{CatalogueCall, HandedOver, VotersCall};
use crate::coordinator::replica::seat::{Seat, Voters};
use crate::coordinator::topology::ballot::{Ask, Ballot, Electorate, Promise, Vote};
use crate::coordinator::topology::peers::Urgency;
use crate::coordinator::topology::quorum::majority;
use crate::coordinator::topology::{record, rows};
use crate::limits;
use crate::observe::workers::Worker;
use crate::shard::ShardError;
use crate::storage::{StorageError, View, WriteView};
use crate::world::buggify::{Mutation, mutated};

/// The voters that follow.
struct Next;

impl Register for Next {
    type Value = Voters;

    fn call(&self, ask: Ask<Voters>) -> CatalogueCall {
        CatalogueCall::Voters(Box::new(VotersCall::Ballot(ask)))
    }

    async fn vote(&self, coordinator: &Coordinator, ask: Ask<Voters>) -> Result<Vote<Voters>, ShardError> {
        coordinator.vote_for_voters(ask).await
    }
}

impl Coordinator {
    /// Takes up what is stored, and sees to it that the voters follow the members; ends with the coordinator.
    pub(in crate::coordinator) async fn keep_voting(self: &Arc<Self>) -> Result<(), ShardError> {
        self.context().voting.set(self.storage().read(Seat::read).await?);
        self.spawn_worker("voters", "a change of members or voters", follow_members);
        Ok(())
    }

    /// Whose votes about maps are counted.
    pub(in crate::coordinator) fn electorate(&self) -> Electorate {
        let Voters { version, names, .. } = self.context().voting.seat().voters;
        let names = if version == 0 { self.context().member_names() } else { names };
        Electorate { voters: version, needed: majority(names.len() as u32), names }
    }

    /// Who votes about maps as far as this node knows, and how many changes of them there were; 0: nothing was agreed
    /// on yet, and the members that are known here count.
    pub fn voters(&self) -> (u64, BTreeSet<String>) {
        let Electorate { voters, names, .. } = self.electorate();
        (voters, names)
    }

    /// Makes the members that are known here the voters, where a majority of the voters is lost for good. To be
    /// asked for by an administrator only. What others who are there accepted may have been decided with those lost:
    /// it is applied before.
    ///
    /// # Errors
    /// When one of these does not hand that over, and when it could not be stored: nothing is changed.
    pub async fn force_voters(&self) -> Result<(), ShardError> {
        // Others may know of voters that were decided since.
        self.exchange_voters().await;
        self.take_over_from_all().await?;
        let (names, own) = (self.context().member_names(), self.node().to_owned());
        let voters = self.change_seat(move |seat| {
            // Where members were never agreed on, those known count anyway.
            if seat.voters.version > 0 {
                seat.decree(names, own);
            }
            seat.voters.clone()
        });
        let voters = voters.await?;
        tracing::warn!(?voters, "an administrator named the voters");
        self.tell_voters(&voters);
        Ok(())
    }

    /// Answers what other nodes ask about who votes.
    pub(in crate::coordinator) async fn serve_voters(&self, call: VotersCall) -> Result<bytes::Bytes, ShardError> {
        Ok(match call {
            VotersCall::Exchange(theirs) => encode(&self.adopt_voters(theirs).await?),
            VotersCall::Ballot(ask) => encode(&self.vote_for_voters(ask).await?),
            VotersCall::HandOver { voters, after } => encode(&self.hand_over(voters, after).await?),
        })
    }

    /// Applies voters that were decided; answers those known then.
    async fn adopt_voters(&self, theirs: Voters) -> Result<Voters, ShardError> {
        let own = self.context().voting.seat().voters;
        if !theirs.succeed(&own) {
            return Ok(own);
        }
        if theirs.version == own.version {
            tracing::error!(?own, ?theirs, "two sets of voters of one version meet: the larger one stays");
        }
        let follow = move |seat: &mut Seat| {
            seat.follow(&theirs);
            seat.voters.clone()
        };
        self.change_seat(follow).await
    }

    async fn vote_for_voters(&self, ask: Ask<Voters>) -> Result<Vote<Voters>, ShardError> {
        let context = Arc::clone(self.context());
        self.change_seat(move |seat| seat.vote(ask, || context.member_names())).await
    }

    /// Changes what is stored of who votes; durable on return.
    async fn change_seat<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Seat) -> T + Send + 'static,
    ) -> Result<T, ShardError> {
        let context = Arc::clone(self.context());
        let job = move |view: &mut WriteView<'_>| {
            let before = Seat::read(view)?;
            let mut seat = before.clone();
            let done = change(&mut seat);
            if seat != before {
                view.put(record::VOTERS_KEY.to_vec(), encode(&seat).to_vec());
                view.after_commit(move || context.voting.set(seat));
            }
            Ok(Ok::<T, ShardError>(done))
        };
        self.storage().committer().submit(job).await?
    }

    /// Tells nodes that are there who votes, and learns from those that answer soon.
    pub(in crate::coordinator) async fn exchange_voters(&self) {
        let _ = self.env().timeout(limits::VOTERS_PAUSE, self.exchange_with_all()).await;
    }

    async fn exchange_with_all(&self) {
        let context = self.context();
        let up: Vec<Arc<str>> = context.others().into_iter().filter(|node| context.peers.is_up(node)).collect();
        let call = CatalogueCall::Voters(Box::new(VotersCall::Exchange(context.voting.seat().voters)));
        let mut answers = context.tell_all(&up, &call, Urgency::Foreground);
        while let Some((node, answer)) = answers.recv().await {
            let Ok(Ok(theirs)) = answer.map(|bytes| decode::<Voters>(&bytes)) else { continue };
            if let Err(error) = self.adopt_voters(theirs).await {
                tracing::warn!(%node, %error, "who votes could not be stored");
            }
        }
    }

    fn tell_voters(&self, voters: &Voters) {
        let call = CatalogueCall::Voters(Box::new(VotersCall::Exchange(voters.clone())));
        drop(self.context().tell_all(&self.context().others(), &call, Urgency::Foreground));
    }

    /// A page of what this node promised and accepted, once it has gone over to these voters.
    async fn hand_over(&self, voters: Voters, after: Option<Vec<u8>>) -> Result<Option<HandedOver>, ShardError> {
        self.adopt_voters(voters.clone()).await?;
        let seat = self.context().voting.seat();
        if seat.voters != voters {
            return Ok(None);
        }
        let (maps, last) = self.storage().read(move |view: &dyn View| read_promises(view, after)).await?;
        Ok(Some(HandedOver { complete: seat.complete, voters: seat.promise, maps, last }))
    }

    /// Applies what those before promised and accepted, as far as this node has not; whether it may vote then.
    async fn take_over(&self) -> Result<bool, ShardError> {
        let (context, seat) = (self.context(), self.context().voting.seat());
        let (sources, mut taken) = (seat.sources(&context.node), BTreeMap::new());
        if sources.is_empty() {
            return Ok(true);
        }
        for node in sources.into_iter().filter(|node| context.peers.is_up(node)) {
            if seat.is_enough(&context.node, &taken) {
                break;
            }
            match self.take_over_from(&node, &seat.voters).await {
                Ok(Some(complete)) => {
                    taken.insert(node, complete);
                }
                Ok(None) => {}
                Err(error) => tracing::info!(node, %error, "what a node accepted was not applied yet"),
            }
        }
        if !seat.is_enough(&context.node, &taken) {
            return Ok(false);
        }
        let complete = move |now: &mut Seat| {
            let stays = now.voters == seat.voters;
            if stays {
                (now.complete, now.fresh) = (now.voters.version, false);
            }
            stays
        };
        self.change_seat(complete).await
    }

    /// Applies what the voters, and those before them, promised and accepted, as far as they are there; fails
    /// where one that stays there does not hand it over.
    async fn take_over_from_all(&self) -> Result<(), ShardError> {
        let (context, Seat { voters, .. }) = (self.context(), self.context().voting.seat());
        // Before the first ones were agreed on nobody's votes are taken over.
        if voters.version == 0 {
            return Ok(());
        }
        let is_there = |name: &&String| ***name != *context.node && context.peers.is_up(name);
        let others: Vec<String> = voters.names.union(&voters.before).filter(is_there).cloned().collect();
        let (this, voters) = (self, &voters);
        let take = |node: String| async move {
            let why = match this.take_over_from(&node, voters).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => "it goes by other voters".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(node, why, "what a node accepted was not applied");
            match this.context().peers.is_up(&node) {
                true => Err(ShardError::Indeterminate(format!("what {node} accepted was not applied: {why}"))),
                // It is lost with the others.
                false => Ok(()),
            }
        };
        try_join_all(others.into_iter().map(take)).await.map(drop)
    }

    /// First what the node accepted, then what it knows to be decided: what is decided meanwhile is in the latter.
    /// Answers what it was complete up to; `None` while it goes by other voters.
    async fn take_over_from(&self, node: &str, voters: &Voters) -> Result<Option<u64>, LearnError> {
        let (mut after, mut least) = (None, u64::MAX);
        loop {
            let call = CatalogueCall::Voters(Box::new(VotersCall::HandOver { voters: voters.clone(), after }));
            let handed: Option<HandedOver> = self.ask_catalogue(node, &call).await?;
            let Some(HandedOver { complete, voters: promise, maps, last }) = handed else { return Ok(None) };
            if !maps.is_empty() {
                self.take_promises(maps).await.map_err(|error| LearnError::Own(error.into()))?;
            }
            let take = move |seat: &mut Seat| seat.promise = seat.promise.clone().with(promise);
            self.change_seat(take).await.map_err(|error| LearnError::Own(error.into()))?;
            (after, least) = (last, least.min(complete));
            if after.is_none() {
                break;
            }
        }
        self.learn_from(node).await?;
        Ok(Some(least))
    }

    /// Does what is due that the voters follow the members; whether nothing is left to do.
    pub(in crate::coordinator) async fn mind_voters(&self) -> Result<bool, ShardError> {
        let context = self.context();
        let members = context.member_names();
        let is_alone = members.len() == 1 && self.electorate().voters == 0;
        // A node alone needs no votes but its own, and one that has yet to meet its cluster has none.
        if is_alone || context.peers.is_seeding() {
            return Ok(true);
        }
        if !self.take_over().await? {
            self.exchange_voters().await;
            return Ok(false);
        }
        let mut electorate = self.electorate();
        match electorate.voters {
            // The first ones are those who all know of each other.
            0 => electorate.needed = members.len() as u32,
            _ if electorate.names == members => return Ok(true),
            _ if mutated(Mutation::SeatByMinority) => electorate.needed = 1,
            _ => {}
        }
        let here = |name: &&String| context.is_there(name);
        let there: Vec<&String> = electorate.names.iter().filter(here).collect();
        // One proposes, of those who stay; others do when it is not there.
        let proposer = there.iter().find(|name| members.contains(**name));
        if proposer.is_none_or(|name| ***name != *context.node) || (there.len() as u32) < electorate.needed {
            self.exchange_voters().await;
            return Ok(false);
        }
        let next = Voters { version: electorate.voters + 1, names: members, before: electorate.names.clone() };
        let ballot = Ballot { counter: 1, by: self.env().random_u64() };
        self.change_voters(electorate, ballot, next).await
    }

    /// Has the next voters decided; whether they are.
    async fn change_voters(
        &self,
        electorate: Electorate,
        mut ballot: Ballot,
        next: Voters,
    ) -> Result<bool, ShardError> {
        for _ in 0..limits::MAP_ATTEMPTS {
            // Who counts the same votes knows the voters before.
            match self.propose(&Next, electorate.clone(), ballot, (next.version, None, &next)).await? {
                Round::Decided(voters) => {
                    tracing::info!(?voters, "who votes was agreed on");
                    let voters = self.adopt_voters(voters).await?;
                    self.tell_voters(&voters);
                    // This node has yet to take over, as all others.
                    return Ok(false);
                }
                Round::Outbid(higher) => {
                    ballot.counter = higher.counter + 1;
                    let pause = 1 + self.env().random_u64() % limits::BALLOT_PAUSE_MS;
                    self.env().sleep(std::time::Duration::from_millis(pause)).await;
                }
                Round::Elsewhere(_) | Round::TooFew(_) => break,
            }
        }
        self.exchange_voters().await;
        Ok(false)
    }
}

/// Promises about maps behind a key, and the last key where there are others.
type Promises = (Vec<(String, String, Promise<record::MapRecord>)>, Option<Vec<u8>>);

fn read_promises(view: &dyn View, after: Option<Vec<u8>>) -> Result<Promises, StorageError> {
    let (rows, last) = rows::step(view, &record::ballot_prefix(), after)?;
    let mut out = Vec::with_capacity(rows.len());
    for (key, value) in rows {
        if let Some((name, instance)) = record::instance_in(&key, &record::ballot_prefix()) {
            out.push((name, instance, read_promise(&value)?));
        }
    }
    Ok((out, last))
}

/// Until the coordinator goes: the voters follow the members.
async fn follow_members(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    let (mut members, mut seats) = (context.peers.watch(), context.voting.changes.subscribe());
    let env = context.env.clone();
    drop(context);
    loop {
        members.borrow_and_update();
        seats.borrow_and_update();
        let run = worker.begin();
        let is_settled = match weak.upgrade() {
            Some(coordinator) => coordinator.mind_voters().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "who votes is not settled yet");
                worker.failed(&error);
                false
            }),
            None => return,
        };
        drop(run);
        tokio::select! {
            biased;
            changed = members.changed() => if changed.is_err() { return },
            changed = seats.changed() => if changed.is_err() { return },
            () = env.sleep(limits::VOTERS_PAUSE), if !is_settled => {}
        }
        // Several changes at once are one step.
        env.sleep(limits::VOTERS_LOOK).await;
    }
}
