//! The voters about maps as far as this node knows, and the part that it takes in votes (`voters`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::coordinator::replica::message::decode;
use crate::coordinator::topology::ballot::{Ask, Promise, Vote};
use crate::coordinator::topology::quorum::shared_with_every_majority;
use crate::coordinator::topology::record;
use crate::storage::{StorageError, View};

/// A set of members who vote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Voters {
    /// How many changes there were; 0: nothing was agreed on yet.
    pub version: u64,
    pub names: BTreeSet<String>,
    /// Those who voted before, of whom a majority hands over.
    pub before: BTreeSet<String>,
}

impl Voters {
    /// Whether these count where the other ones are known. Two of one version there are after a decree only, or where
    /// two clusters became one: the same ones stay everywhere.
    pub(in crate::coordinator) fn succeed(&self, other: &Voters) -> bool {
        let rank = |voters: &Voters| (voters.version, voters.names.len(), voters.names.clone(), voters.before.clone());
        rank(self) > rank(other)
    }
}

/// How a node takes part in votes; as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::coordinator) struct Seat {
    pub(in crate::coordinator) voters: Voters,
    /// The version of the voters up to which this node has applied what was accepted.
    pub(in crate::coordinator) complete: u64,
    /// Whether it may have voted before it lost its disk.
    pub(in crate::coordinator) fresh: bool,
    /// What it promised about the next voters.
    pub(in crate::coordinator) promise: Promise<Voters>,
}

impl Seat {
    /// As it is stored.
    pub(in crate::coordinator) fn read(view: &dyn View) -> Result<Seat, StorageError> {
        let damaged = |why| StorageError::Corrupt(format!("who votes: {why}"));
        Ok(view.get(&record::VOTERS_KEY)?.map(|bytes| decode(&bytes).map_err(damaged)).transpose()?.unwrap_or_default())
    }

    /// Whether a proposer counts those whom this node counts, among whom this node may vote; `members`: those known.
    pub(in crate::coordinator) fn counts<V>(&self, ask: &Ask<V>, members: impl FnOnce() -> BTreeSet<String>) -> bool {
        let version = self.voters.version;
        let names = || if version == 0 { members() } else { self.voters.names.clone() };
        ask.voters == version && self.complete >= version && ask.names == names()
    }

    /// Goes over to voters, if these follow those known.
    pub(in crate::coordinator) fn follow(&mut self, voters: &Voters) {
        if !voters.succeed(&self.voters) {
            return;
        }
        // The first voters were all asked.
        self.fresh |= self.voters.version == 0 && self.promise.version < voters.version;
        self.complete = self.complete.min(voters.version - 1);
        self.voters = voters.clone();
    }

    /// Goes over to voters that an administrator named on this node, which others take over from. They come after any
    /// that may have been decided by those lost.
    pub(in crate::coordinator) fn decree(&mut self, names: BTreeSet<String>, own: String) {
        let version = self.voters.version.max(self.promise.version) + 1;
        self.voters = Voters { version, names, before: BTreeSet::from([own]) };
        (self.complete, self.fresh) = (version, false);
    }

    /// Answers a proposer of the next voters.
    pub(in crate::coordinator) fn vote(
        &mut self,
        ask: Ask<Voters>,
        members: impl FnOnce() -> BTreeSet<String>,
    ) -> Vote<Voters> {
        if ask.version <= self.voters.version {
            return Vote::Decided(self.voters.clone());
        }
        if !self.counts(&ask, members) {
            return Vote::Elsewhere;
        }
        let (vote, keep) = self.promise.clone().vote(ask, self.voters.version);
        self.promise = keep.unwrap_or_else(|| self.promise.clone());
        vote
    }

    /// From whom this node applies what was accepted before it votes; nobody: it may vote, or is not to.
    pub(in crate::coordinator) fn sources(&self, own: &str) -> BTreeSet<String> {
        let Voters { version, names, before } = &self.voters;
        if self.complete >= *version || !names.contains(own) {
            return BTreeSet::new();
        }
        before.union(names).filter(|name| **name != own).cloned().collect()
    }

    /// Whether it is enough to have taken that in from some nodes, each with what it was complete up to itself.
    pub(in crate::coordinator) fn is_enough(&self, own: &str, taken: &BTreeMap<String, u64>) -> bool {
        let Voters { version, names, before } = &self.voters;
        let knows = |complete: &u64| complete + 1 >= *version;
        let own_part = before.contains(own) && !self.fresh && knows(&self.complete);
        let old = taken.iter().filter(|(name, complete)| before.contains(*name) && knows(complete)).count();
        let new = taken.keys().filter(|name| names.contains(*name)).count();
        let of = |nodes: &BTreeSet<String>| shared_with_every_majority(nodes.len() as u32) as usize;
        old + usize::from(own_part) >= of(before) && (!self.fresh || new >= of(names))
    }
}

/// What is known here of who votes.
#[derive(Default)]
pub(in crate::coordinator) struct Voting {
    // A blocking lock: held for a look, never across an await.
    seat: Mutex<Seat>,
    /// Changes with it.
    pub(in crate::coordinator) changes: watch::Sender<u64>,
}

impl Voting {
    pub(in crate::coordinator) fn seat(&self) -> Seat {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::coordinator) fn set(&self, seat: Seat) {
        *self.seat.lock().unwrap_or_else(PoisonError::into_inner) = seat;
        self.changes.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests;
