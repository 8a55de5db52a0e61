//! A model of replicas that write, compare, stop, are restored from a backup, lose their disks and collect, over the
//! rules of `collection_horizon.rs`: no collected tombstone comes back, no live document is lost, and no replica
//! collects a tombstone that it has not had for long enough. A revision counts as lost if no replica knows it any more,
//! or only below a tombstone that no client wrote.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::shard::collection_horizon::{CollectionLog, Horizon, Proposal, Round};

/// Replicas of the range.
const REPLICAS: usize = 3;
/// The age at which tombstones may be collected, in acts.
const AGE: i64 = 6;

/// A rule that is left out, to see that the model needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A majority confirms, not all replicas.
    ConfirmedByMajority,
    /// An old replica is read like any other.
    OldCopyIsRead,
    /// An old replica discards all that the others lack, whether it was read or not.
    GivesUpEverything,
    /// An old replica discards all that it had when it was restored from a backup.
    GivesUpUnread,
    /// An old replica keeps what it applied from others, as if that were its own.
    KeepsAppliedEarly,
    /// A replica collects although it has not read all others since.
    ForgetsUnread,
    /// Reads bring to replicas what they lack.
    ReadsRepair,
    /// A document is written anew where its tombstone was collected, and built upon the tombstone elsewhere.
    NoMarker,
    /// Only the proposer looks how old tombstones are.
    ProposerKnowsAge,
}

/// Generation and hash: the same words make the same revision.
type Rev = (u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    parent: Option<Rev>,
    deleted: bool,
    /// Where it was stored, and when.
    seq: u64,
    at: i64,
    /// Whether it was applied before all others were met.
    early: bool,
}

type Tree = BTreeMap<Rev, Known>;

fn leaves(tree: &Tree) -> Vec<Rev> {
    let parents: BTreeSet<Rev> = tree.values().filter_map(|known| known.parent).collect();
    tree.keys().filter(|rev| !parents.contains(*rev)).copied().collect()
}

fn path(tree: &Tree, rev: Rev) -> Vec<Rev> {
    let mut out = vec![rev];
    while let Some(parent) = tree.get(out.last().unwrap()).and_then(|known| known.parent) {
        out.push(parent);
    }
    out
}

/// Whether it was deleted, as far as the tree knows.
fn is_buried(tree: &Tree, rev: Rev) -> bool {
    let leaves = leaves(tree);
    tree.contains_key(&rev) && !leaves.contains(&rev) && leaves.iter().all(|leaf| tree[leaf].deleted)
}

fn winner(tree: &Tree) -> Option<Rev> {
    leaves(tree).into_iter().max_by_key(|rev| (!tree[rev].deleted, *rev))
}

/// Each with the position after which it began.
type Epochs = Vec<(u32, u64)>;

/// The position up to which a replica was read, that told these epochs then.
fn read_up_to(own: &Epochs, told: &Epochs, position: u64) -> u64 {
    let end = |list: &Epochs, at: usize| list.get(at + 1).map(|(_, first)| *first);
    let mut read = 0;
    for (at, (epoch, _)) in told.iter().enumerate() {
        if let Some(here) = own.iter().position(|(known, _)| known == epoch) {
            read = read.max(end(told, at).unwrap_or(position).min(end(own, here).unwrap_or(u64::MAX)));
        }
    }
    read
}

/// What is on a disk.
#[derive(Clone)]
struct Disk {
    docs: BTreeMap<u8, Tree>,
    seq: u64,
    collection_log: CollectionLog<(u8, Rev)>,
    epochs: Epochs,
    /// The epochs of replicas that were read, and up to where.
    pulled: BTreeMap<usize, (Epochs, u64)>,
    /// What was collected here and maybe not everywhere: who writes the document again builds upon it.
    markers: BTreeMap<u8, Marker>,
    /// A position and when it was reached, and the position up to which everything is old.
    mark: (u64, i64),
    aged: u64,
}

#[derive(Clone)]
struct Marker {
    /// The tombstone, then its ancestors.
    path: Vec<Rev>,
    /// The collection horizon with that round.
    horizon: Horizon,
    /// The replicas that were applied since they collected it.
    taken: BTreeSet<usize>,
}

impl Disk {
    fn new(epoch: u32) -> Disk {
        Disk {
            docs: BTreeMap::new(),
            seq: 0,
            collection_log: CollectionLog::default(),
            epochs: vec![(epoch, 0)],
            pulled: BTreeMap::new(),
            markers: BTreeMap::new(),
            mark: (0, 0),
            aged: 0,
        }
    }

    fn merge(&mut self, doc: u8, path: &[Rev], deleted: bool, (at, early): (i64, bool)) {
        let tree = self.docs.entry(doc).or_default();
        if tree.contains_key(&path[0]) {
            return;
        }
        self.seq += 1;
        for (n, rev) in path.iter().enumerate() {
            let (parent, deleted) = (path.get(n + 1).copied(), deleted && n == 0);
            tree.entry(*rev).or_insert(Known { parent, deleted, seq: self.seq, at, early });
        }
    }

    fn drop_leaf(&mut self, doc: u8, rev: Rev) {
        let Some(tree) = self.docs.get_mut(&doc) else { return };
        if !leaves(tree).contains(&rev) {
            return;
        }
        let kept: BTreeSet<Rev> =
            leaves(tree).into_iter().filter(|leaf| *leaf != rev).flat_map(|leaf| path(tree, leaf)).collect();
        tree.retain(|rev, _| kept.contains(rev));
        self.seq += 1;
    }

    fn known(&self, doc: u8, rev: Rev) -> Option<&Known> {
        self.docs.get(&doc).and_then(|tree| tree.get(&rev))
    }

    fn all_known(&mut self) -> impl Iterator<Item = &mut Known> {
        self.docs.values_mut().flat_map(|tree| tree.values_mut())
    }

    fn opened_at(&self) -> u64 {
        self.epochs.last().map_or(0, |(_, first)| *first)
    }

    /// As `Marks::at`.
    fn look(&mut self, now: i64) {
        let (position, at) = self.mark;
        self.aged = self.aged.min(self.seq);
        let is_void = at > now || position > self.seq;
        let is_old = !is_void && now - at >= AGE;
        if is_old {
            self.aged = position;
        }
        if is_void || is_old && self.seq > position {
            self.mark = (self.seq, now);
        }
    }
}

struct Replica {
    disk: Disk,
    backup: Option<Disk>,
    in_sync: bool,
    compared: BTreeSet<usize>,
    /// The others that it has told since its start what it collected.
    told: BTreeSet<usize>,
    restored: bool,
    /// By how much its clock is wrong.
    off: i64,
}

/// What a client was answered, and nobody built upon since.
#[derive(Clone, Copy, Debug)]
struct Acked {
    doc: u8,
    rev: Rev,
    at: i64,
    deleted: bool,
    by_majority: bool,
    /// Whether it is a revision that was collected, made again by the same words.
    again: bool,
}

struct World {
    broken: Broken,
    replicas: Vec<Replica>,
    /// Those that reach each other; the others are alone.
    group: BTreeSet<usize>,
    now: i64,
    acked: Vec<Acked>,
    /// When a client made a revision last.
    made: BTreeMap<(u8, Rev), i64>,
    /// When a revision was collected at last: when that was proposed.
    collected: BTreeMap<(u8, Rev), i64>,
    /// When each replica was restored from a backup last, or lost its disk.
    restores: Vec<(usize, i64)>,
    rounds: u32,
    epochs: u32,
    /// What a replica collected that it had not for long enough.
    too_soon: Vec<(usize, u8, Rev)>,
}

fn name(at: usize) -> String {
    at.to_string()
}

impl World {
    fn new(broken: Broken) -> World {
        let replica = |at: usize| Replica {
            disk: Disk::new(at as u32),
            backup: None,
            in_sync: true,
            compared: BTreeSet::new(),
            told: (0..REPLICAS).collect(),
            restored: false,
            off: 0,
        };
        World {
            broken,
            replicas: (0..REPLICAS).map(replica).collect(),
            group: (0..REPLICAS).collect(),
            now: 0,
            acked: Vec::new(),
            made: BTreeMap::new(),
            collected: BTreeMap::new(),
            restores: Vec::new(),
            rounds: 0,
            epochs: REPLICAS as u32,
            too_soon: Vec::new(),
        }
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from != to && self.group.contains(&from) && self.group.contains(&to)
    }

    fn cut(&mut self, group: BTreeSet<usize>) {
        self.group = group;
        for at in 0..REPLICAS {
            let others = (0..REPLICAS).filter(|other| self.reaches(at, *other)).count();
            let replica = &mut self.replicas[at];
            if (others + 1) * 2 <= REPLICAS {
                replica.in_sync = false;
            }
            replica.compared.clear();
        }
    }

    fn start(&mut self, at: usize) {
        self.epochs += 1;
        let (epoch, replica) = (self.epochs, &mut self.replicas[at]);
        let seq = replica.disk.seq;
        replica.disk.epochs.push((epoch, seq));
        replica.in_sync = false;
        replica.compared.clear();
        replica.told.clear();
        for other in 0..REPLICAS {
            self.replicas[other].compared.remove(&at);
        }
    }

    fn restored(&mut self, at: usize) {
        let Some(backup) = self.replicas[at].backup.clone() else { return };
        self.replace(at, backup);
        self.start(at);
    }

    fn lose_disk(&mut self, at: usize) {
        self.epochs += 1;
        self.replace(at, Disk::new(self.epochs));
        self.replicas[at].backup = None;
        self.start(at);
    }

    fn replace(&mut self, at: usize, disk: Disk) {
        self.replicas[at].disk = disk;
        self.replicas[at].restored = true;
        self.restores.push((at, self.now));
    }

    /// A client asks a replica to write or to delete; those of `mask` that are reached hear of it.
    fn write(&mut self, asked: usize, doc: u8, word: u64, deletes: bool, mask: u8) {
        let there: Vec<usize> = (0..REPLICAS).filter(|at| *at == asked || self.reaches(asked, *at)).collect();
        let witness = there.iter().copied().find(|at| self.replicas[*at].in_sync).unwrap_or(there[0]);
        let tree = self.replicas[witness].disk.docs.get(&doc).cloned().unwrap_or_default();
        let marker = self.replicas[witness].disk.markers.get(&doc).filter(|_| self.broken != Broken::NoMarker);
        let marker = marker.map_or(Vec::new(), |marker| marker.path.clone());
        let before = match winner(&tree) {
            Some(rev) => path(&tree, rev),
            None => marker,
        };
        let parent = before.first().copied();
        if deletes && winner(&tree).is_none_or(|rev| tree[&rev].deleted) {
            return;
        }
        let words = word * 2 + u64::from(deletes);
        let hash = parent.map_or(1, |rev| rev.1).wrapping_mul(31).wrapping_add(words) % 1_000_003;
        let rev = (parent.map_or(0, |rev| rev.0) + 1, hash);
        let path: Vec<Rev> = std::iter::once(rev).chain(before).collect();
        self.acked.retain(|acked| acked.doc != doc || Some(acked.rev) != parent);
        let mut held = 0;
        for at in there.into_iter().filter(|at| *at == witness || mask & (1 << at) != 0) {
            self.replicas[at].disk.merge(doc, &path, deletes, (self.now, false));
            held += 1;
        }
        // The same words again are what was built upon, but where that is not known any more.
        let is_collected = |rev: &Rev| {
            let made = self.made.get(&(doc, *rev));
            self.collected.get(&(doc, *rev)).is_some_and(|gone| made.is_none_or(|made| made <= gone))
        };
        let is_news = |(child, known): (&Rev, &Known)| known.parent == Some(rev) && !is_collected(child);
        let is_old = |replica: &Replica| replica.disk.docs.get(&doc).is_some_and(|tree| tree.iter().any(is_news));
        if !self.replicas.iter().any(is_old) {
            let by_majority = held * 2 > REPLICAS;
            let again = self.collected.contains_key(&(doc, rev));
            self.acked.push(Acked { doc, rev, at: self.now, deleted: deletes, by_majority, again });
            self.made.insert((doc, rev), self.now);
        }
    }

    /// A replica applies another one; answers whether that could be done.
    fn pull(&mut self, at: usize, from: usize) -> bool {
        if !self.reaches(at, from) {
            return false;
        }
        let theirs = self.replicas[from].disk.clone();
        let done = &theirs.collection_log.horizon;
        let goes_by_rules = self.broken != Broken::OldCopyIsRead;
        self.replicas[at].disk.collection_log.confirm_done(done);
        let confirmed = self.replicas[at].disk.collection_log.confirmed();
        self.collect(at, done);
        if !self.replicas[at].disk.collection_log.promised().covers(done) && goes_by_rules {
            if !self.discard(at, done) {
                return false;
            }
            self.replicas[at].disk.collection_log.adopt(done);
        }
        let (replica, now) = (&mut self.replicas[at], self.now);
        let own = &mut replica.disk;
        if !theirs.collection_log.promised().covers(&own.collection_log.horizon) && goes_by_rules {
            // An old one: this replica misses nothing for that.
            own.collection_log.note_read(&name(from), &confirmed);
            self.note_met(at, from);
            return false;
        }
        let lags_behind = !done.covers(&own.collection_log.horizon);
        replica.told.insert(from);
        let early = (0..REPLICAS).any(|other| other != at && !replica.told.contains(&other));
        if !early {
            own.all_known().for_each(|known| known.early = false);
        }
        for (doc, tree) in &theirs.docs {
            for leaf in leaves(tree) {
                let deleted = tree[&leaf].deleted;
                let is_marker = own.markers.get(doc).is_some_and(|marker| marker.path[0] == leaf);
                if !(lags_behind && deleted && is_marker) {
                    own.merge(*doc, &path(tree, leaf), deleted, (now, early));
                }
            }
        }
        own.pulled.insert(from, (theirs.epochs.clone(), theirs.seq));
        for (by, proposal) in theirs.collection_log.open() {
            if proposal.tombstones.iter().all(|(doc, rev)| own.known(*doc, *rev).is_some()) {
                own.collection_log.take_over(
                    by,
                    Proposal { body: own.seq, ..Proposal::new(proposal.round, proposal.tombstones.clone()) },
                );
            }
        }
        own.collection_log.note_read(&name(from), &confirmed);
        self.collect(at, done);
        self.replicas[at].disk.markers.retain(|_, marker| {
            if done.covers(&marker.horizon) {
                marker.taken.insert(from);
            }
            marker.taken.len() < REPLICAS
        });
        self.note_met(at, from);
        true
    }

    fn note_met(&mut self, at: usize, from: usize) {
        self.replicas[at].compared.insert(from);
        if (0..REPLICAS).all(|other| !self.reaches(at, other) || self.replicas[at].compared.contains(&other)) {
            self.replicas[at].in_sync = true;
        }
    }

    fn collect(&mut self, at: usize, done: &Horizon) {
        let (now, is_checked) = (self.now, !self.replicas[at].restored && self.replicas[at].off == 0);
        let is_asked = |other: &usize| match self.broken {
            Broken::ForgetsUnread => false,
            Broken::ConfirmedByMajority => self.reaches(at, *other),
            _ => *other != at,
        };
        let asked: Vec<String> = (0..REPLICAS).filter(is_asked).map(name).collect();
        let disk = &mut self.replicas[at].disk;
        loop {
            let Some((by, proposal)) = disk.collection_log.ready(done, &asked) else { return };
            let Proposal { round, tombstones, body, .. } = proposal.clone();
            let horizon = disk.collection_log.horizon.with(&by, round);
            for (doc, rev) in tombstones {
                let Some(tree) = disk.docs.get(&doc).filter(|tree| leaves(tree).contains(&rev)) else { continue };
                let known = tree[&rev];
                if !known.deleted || known.seq > body {
                    continue;
                }
                if now - known.at < AGE && is_checked {
                    self.too_soon.push((at, doc, rev));
                }
                let (path, taken) = (path(tree, rev), BTreeSet::from([at]));
                disk.drop_leaf(doc, rev);
                disk.markers.insert(doc, Marker { path, horizon: horizon.clone(), taken });
            }
            disk.collection_log.finish(&by);
        }
    }

    /// Discards what all replicas lack that know what was collected; answers whether that could be done.
    fn discard(&mut self, at: usize, missed: &Horizon) -> bool {
        let broken = self.broken;
        let takes_back = |known: &Known| known.early && broken != Broken::KeepsAppliedEarly;
        let opened = self.replicas[at].disk.opened_at();
        if opened == 0 && !self.replicas[at].disk.all_known().any(|known| takes_back(known)) {
            return true;
        }
        let mut witnesses = Vec::new();
        for other in (0..REPLICAS).filter(|other| *other != at) {
            if !self.reaches(at, other) {
                return false;
            }
            let collection_log = &self.replicas[other].disk.collection_log;
            match collection_log.horizon.covers(missed) {
                true => witnesses.push(other),
                false if collection_log.promised().covers(missed) => return false,
                // It may hold what was collected, too: it knows nothing better.
                false => {}
            }
        }
        if witnesses.is_empty() {
            return false;
        }
        let disk = &self.replicas[at].disk;
        let points = witnesses.iter().filter_map(|witness| self.replicas[*witness].disk.pulled.get(&at));
        let read = points.map(|(told, position)| read_up_to(&disk.epochs, told, *position)).max().unwrap_or(0);
        let until = match broken {
            Broken::GivesUpEverything => u64::MAX,
            Broken::GivesUpUnread => opened,
            _ => read.min(opened),
        };
        let mut lacked = Vec::new();
        for (doc, tree) in &disk.docs {
            for leaf in leaves(tree) {
                let is_old = tree[&leaf].seq <= until || takes_back(&tree[&leaf]);
                if is_old && witnesses.iter().all(|other| self.replicas[*other].disk.known(*doc, leaf).is_none()) {
                    lacked.push((*doc, leaf));
                }
            }
        }
        lacked.into_iter().for_each(|(doc, leaf)| self.replicas[at].disk.drop_leaf(doc, leaf));
        true
    }

    fn look(&mut self) {
        let now = self.now;
        self.replicas.iter_mut().for_each(|replica| replica.disk.look(now + replica.off));
    }

    /// A replica proposes to collect all tombstones that stand alone and are old enough; those of `mask` hear of what
    /// was decided.
    fn round(&mut self, by: usize, confirm: u8, mask: u8) {
        let needed = if self.broken == Broken::ConfirmedByMajority { REPLICAS / 2 + 1 } else { REPLICAS };
        let there = |at: usize| at == by || self.reaches(by, at);
        let all: Vec<usize> = (0..REPLICAS).filter(|at| there(*at) && self.replicas[*at].in_sync).collect();
        if all.len() < needed || !all.contains(&by) {
            return;
        }
        self.look();
        let disk = &self.replicas[by].disk;
        let alone = |tree: &Tree| match *leaves(tree) {
            [leaf] if tree[&leaf].deleted && tree[&leaf].seq <= disk.aged => Some(leaf),
            _ => None,
        };
        let tombstones: Vec<(u8, Rev)> =
            disk.docs.iter().filter_map(|(doc, tree)| Some((*doc, alone(tree)?))).collect();
        let gone: Vec<(u8, Rev)> = tombstones
            .iter()
            .flat_map(|(doc, leaf)| path(&disk.docs[doc], *leaf).into_iter().map(|rev| (*doc, rev)))
            .collect();
        if tombstones.is_empty() {
            return;
        }
        self.rounds += 1;
        let number = disk.collection_log.horizon.last(&name(by)).number + 1;
        let round = Round { number, id: u64::from(self.rounds) };
        let mut confirmed = Vec::new();
        for at in all {
            let is_lax = self.broken == Broken::ProposerKnowsAge;
            let disk = &mut self.replicas[at].disk;
            let is_known =
                |(doc, rev): &(u8, Rev)| disk.known(*doc, *rev).is_some_and(|known| known.seq <= disk.aged || is_lax);
            let knows_all = tombstones.iter().all(is_known);
            let proposal = Proposal { body: disk.seq, ..Proposal::new(round, tombstones.clone()) };
            if (at == by || confirm & (1 << at) != 0) && knows_all && disk.collection_log.propose(&name(by), proposal) {
                confirmed.push(at);
            }
        }
        if confirmed.len() < needed || !self.read_all(by, round, &confirmed) {
            return;
        }
        let horizon = self.replicas[by].disk.collection_log.horizon.with(&name(by), round);
        self.collect(by, &horizon);
        if !self.replicas[by].disk.collection_log.horizon.covers(&horizon) {
            return;
        }
        self.collected.extend(gone.into_iter().map(|key| (key, self.now)));
        for at in (0..REPLICAS).filter(|at| mask & (1 << at) != 0) {
            self.pull(at, by);
        }
    }

    /// Has all confirm a round once more, then reads them.
    fn read_all(&mut self, by: usize, round: Round, asked: &[usize]) -> bool {
        let stands = asked.iter().all(|at| self.replicas[*at].disk.collection_log.confirm(&name(by), round));
        if !stands || !asked.iter().all(|at| *at == by || self.pull(by, *at)) {
            return false;
        }
        self.replicas[by].disk.collection_log.open().get(&name(by)).is_some_and(|proposal| proposal.round == round)
    }

    fn read(&mut self, at: usize) {
        let there: Vec<usize> = (0..REPLICAS).filter(|other| *other == at || self.reaches(at, *other)).collect();
        for from in &there {
            let theirs = self.replicas[*from].disk.clone();
            for to in &there {
                let Replica { disk, told, .. } = &mut self.replicas[*to];
                let early = (0..REPLICAS).any(|other| other != *to && !told.contains(&other));
                let has_begun = !disk.collection_log.horizon.is_empty() || !disk.collection_log.open().is_empty();
                if has_begun && self.broken != Broken::ReadsRepair {
                    continue;
                }
                for (doc, tree) in &theirs.docs {
                    for leaf in leaves(tree) {
                        disk.merge(*doc, &path(tree, leaf), tree[&leaf].deleted, (self.now, early));
                    }
                }
            }
        }
    }

    fn act(&mut self, [what, at, doc, more]: [u8; 4]) {
        self.now += 1;
        let replica = usize::from(at) % REPLICAS;
        match what {
            0..=4 => self.write(replica, doc % 2, u64::from(more >> 4) % 2, false, more | 8),
            5..=8 => self.write(replica, doc % 2, 0, true, more),
            9..=11 => drop(self.pull(replica, usize::from(doc) % REPLICAS)),
            12 | 13 => self.settle(),
            14 | 15 => self.round(replica, doc | (more & 0xf0) >> 4, more),
            16 if more % 2 != 0 => self.restored(replica),
            16 => self.replicas[replica].backup = Some(self.replicas[replica].disk.clone()),
            17 => self.start(replica),
            18 if more % 3 == 0 => self.cut((0..REPLICAS).collect()),
            18 => self.cut((0..REPLICAS).filter(|other| *other != replica).collect()),
            19 => self.read(replica),
            20 if more % 4 == 0 => self.lose_disk(replica),
            20 => {}
            // One clock goes wrong, of all.
            21 if self.replicas.iter().any(|replica| replica.off != 0) => {}
            21 => self.replicas[replica].off = if more % 2 == 0 { AGE } else { -AGE },
            // Time goes by, and every replica looks where it stands.
            _ => {
                self.now += if what == 22 { i64::from(more % 4) } else { AGE };
                self.look();
            }
        }
    }

    /// All that are there read each other, a few times.
    fn settle(&mut self) {
        for _ in 0..2 {
            for at in 0..REPLICAS {
                for from in 0..REPLICAS {
                    self.pull(at, from);
                }
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.cut((0..REPLICAS).collect());
        (0..6).for_each(|_| self.settle());
        for at in 0..REPLICAS {
            for from in (0..REPLICAS).filter(|from| *from != at) {
                if !self.pull(at, from) {
                    return Err(format!("{at} waits for {from}"));
                }
            }
        }
        let docs: Vec<BTreeMap<u8, Vec<Rev>>> =
            self.replicas.iter().map(|replica| live_and_dead(&replica.disk)).collect();
        if docs.iter().any(|other| *other != docs[0]) {
            return Err(format!("replicas differ: {docs:?}"));
        }
        if !self.too_soon.is_empty() {
            return Err(format!("forgotten too soon: {:?}", self.too_soon));
        }
        self.nothing_came_back()?;
        self.nothing_was_lost()
    }

    fn nothing_came_back(&self) -> Result<(), String> {
        if self.replicas.iter().all(|replica| replica.restored) {
            return Ok(());
        }
        for (doc, tree) in &self.replicas[0].disk.docs {
            for leaf in leaves(tree).into_iter().filter(|leaf| !tree[leaf].deleted) {
                let made = self.made.get(&(*doc, leaf));
                let gone = self.collected.get(&(*doc, leaf));
                if gone.is_some_and(|gone| made.is_none_or(|made| made < gone)) {
                    return Err(format!("{leaf:?} of {doc} is back: made at {made:?}, forgotten at {gone:?}"));
                }
            }
        }
        Ok(())
    }

    fn nothing_was_lost(&self) -> Result<(), String> {
        for acked in self.acked.iter().filter(|acked| !acked.deleted) {
            let lost: BTreeSet<usize> =
                self.restores.iter().filter(|(_, at)| *at >= acked.at).map(|(replica, _)| *replica).collect();
            let is_safe = match acked.by_majority {
                // A replica that was restored from a backup may have built upon the tombstone: the same words are what
                // was deleted.
                _ if acked.again => self.restores.is_empty(),
                true => lost.len() <= REPLICAS / 2,
                false => lost.is_empty(),
            };
            let tree = self.replicas[0].disk.docs.get(&acked.doc);
            let is_there = tree.is_some_and(|tree| tree.contains_key(&acked.rev) && !is_buried(tree, acked.rev));
            if is_safe && !is_there {
                return Err(format!("{acked:?} is lost"));
            }
        }
        Ok(())
    }
}

fn live_and_dead(disk: &Disk) -> BTreeMap<u8, Vec<Rev>> {
    let docs = disk.docs.iter().map(|(doc, tree)| (*doc, leaves(tree)));
    docs.filter(|(_, leaves)| !leaves.is_empty()).collect()
}

fn run(broken: Broken, acts: &[[u8; 4]]) -> Result<(), String> {
    let mut world = World::new(broken);
    acts.iter().for_each(|act| world.act(*act));
    world.end()
}

/// An act; those that collect, and what is needed for that, more often than others.
fn any_act() -> impl Strategy<Value = [u8; 4]> {
    const WEIGHTS: [(u32, u8); 13] = [
        (4, 0),
        (5, 5),
        (3, 9),
        (3, 12),
        (6, 14),
        (6, 16),
        (1, 17),
        (2, 18),
        (1, 19),
        (1, 20),
        (1, 21),
        (1, 22),
        (6, 23),
    ];
    let kinds = WEIGHTS.map(|(weight, kind)| (weight, Just(kind)));
    let masks = prop_oneof![Just(7_u8), any::<u8>()];
    let kind = proptest::strategy::Union::new_weighted(kinds.to_vec());
    (kind, any::<u8>(), masks, any::<u8>(), any::<bool>()).prop_map(|(kind, at, doc, more, reaches_all)| {
        let doc = if kind < 9 { doc ^ (at >> 1) } else { doc };
        [kind, at, doc, if kind < 9 && reaches_all { more | 7 } else { more }]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn what_was_collected_does_not_come_back_and_nothing_live_is_lost(
        acts in prop::collection::vec(any_act(), 5..60),
    ) {
        prop_assert_eq!(run(Broken::Nothing, &acts), Ok(()));
    }
}

/// What a rule is there for.
#[test]
fn without_any_of_the_rules_something_comes_back_or_is_lost() {
    let (write, bury, settle, age) = ([0, 0, 0, 255], [5, 0, 0, 255], [12, 0, 0, 0], [23, 0, 0, 0]);
    let (backup, restored) = (|replica: u8| [16, replica, 0, 0], |replica: u8| [16, replica, 0, 1]);
    let cut = |replica: u8| [18, replica, 0, 1];
    let round = |replica: u8| [15, replica, 7, 255];
    // A document is there, a replica is kept, the document is deleted and collected.
    let old_replica = |replica: u8| vec![write, settle, backup(replica), bury, settle, age, age, round(0), settle];
    let with = |before: Vec<[u8; 4]>, acts: &[[u8; 4]]| before.into_iter().chain(acts.iter().copied()).collect();
    let (alone, idle) = ([0, 2, 1, 255], [20, 0, 0, 1]);
    let cases: [(Broken, Vec<[u8; 4]>); 11] = [
        (Broken::ConfirmedByMajority, vec![write, settle, cut(2), bury, settle, age, age, round(0)]),
        (Broken::OldCopyIsRead, with(old_replica(1), &[restored(1)])),
        (Broken::GivesUpEverything, with(old_replica(2), &[cut(2), restored(2), alone])),
        // It starts once more: what it acknowledged alone was there then.
        (Broken::GivesUpUnread, with(old_replica(2), &[cut(2), restored(2), alone, [17, 2, 0, 0]])),
        // One replica of the time before the document, or empty, meets one of when it was there.
        (
            Broken::KeepsAppliedEarly,
            vec![
                write,
                settle,
                backup(1),
                [0, 0, 1, 255],
                settle,
                backup(2),
                [5, 0, 1, 255],
                settle,
                age,
                age,
                round(0),
                settle,
                restored(1),
                restored(2),
                [9, 1, 2, 0],
            ],
        ),
        (Broken::KeepsAppliedEarly, with(old_replica(2), &[restored(2), [20, 1, 0, 0], [9, 1, 2, 0]])),
        (Broken::ReadsRepair, with(old_replica(1), &[restored(1), [19, 0, 0, 0]])),
        // The only one that had read the old replica since loses its disk.
        (
            Broken::ForgetsUnread,
            vec![
                cut(2),
                [0, 2, 0, 255],
                backup(2),
                [5, 2, 0, 255],
                [18, 0, 0, 0],
                [9, 0, 2, 0],
                [9, 1, 0, 0],
                [9, 2, 0, 0],
                [9, 2, 1, 0],
                age,
                age,
                round(0),
                [20, 0, 0, 0],
                restored(2),
            ],
        ),
        (
            Broken::NoMarker,
            vec![write, bury, age, age, [15, 2, 7, 0], cut(2), [0, 1, 0, 100], [5, 0, 0, 29], [0, 2, 0, 22]],
        ),
        // A replica missed the deletion until just now.
        (Broken::ProposerKnowsAge, vec![write, [5, 0, 0, 157], age, age, settle, [14, 2, 7, 255]]),
        // The proposer's clock jumps ahead.
        (
            Broken::ProposerKnowsAge,
            vec![write, age, idle, idle, idle, idle, idle, bury, [22, 0, 0, 0], [21, 0, 0, 0], round(0)],
        ),
    ];
    for (broken, acts) in cases {
        assert_eq!(run(Broken::Nothing, &acts), Ok(()), "{broken:?}");
        assert!(run(broken, &acts).is_err(), "{broken:?}");
    }
}
