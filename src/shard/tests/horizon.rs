//! A model of copies that write, compare, stop, are put back and forget, over the rules of `horizon.rs`: what was
//! forgotten does not come back, and nothing that is live is lost. A revision is lost where it is known no more, or
//! only below a tombstone that nobody asked for.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::shard::horizon::{Horizon, Ledger, Proposal, Round};

/// Copies of the range.
const COPIES: usize = 3;

/// A rule that is left out, to see that the model needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A majority confirms, not all copies.
    ConfirmedByMajority,
    /// An old copy is read like any other.
    OldCopyIsRead,
    /// An old copy gives up all that the others lack, whenever it was acknowledged.
    GivesUpEverything,
    /// Reads bring to copies what they lack.
    ReadsRepair,
    /// A document is written anew where its tombstone was forgotten, and built upon the tombstone elsewhere.
    NoShadow,
}

/// Generation and hash: the same words make the same revision.
type Rev = (u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    parent: Option<Rev>,
    deleted: bool,
    /// When it was stored.
    seq: u64,
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

/// What is on a disk.
#[derive(Clone, Default)]
struct Disk {
    docs: BTreeMap<u8, Tree>,
    seq: u64,
    ledger: Ledger<(u8, Rev)>,
    /// Where it stood when it had read another copy last.
    synced: u64,
    /// Where its starts were.
    starts: Vec<u64>,
    /// What was forgotten here and maybe not everywhere: who writes the document again builds upon it.
    shadows: BTreeMap<u8, Shadow>,
}

#[derive(Clone)]
struct Shadow {
    /// The tombstone, then its ancestors.
    path: Vec<Rev>,
    /// The horizon with that round.
    horizon: Horizon,
    /// The copies that were taken in since they forgot it.
    taken: BTreeSet<usize>,
}

impl Disk {
    fn merge(&mut self, doc: u8, path: &[Rev], deleted: bool) {
        let tree = self.docs.entry(doc).or_default();
        if tree.contains_key(&path[0]) {
            return;
        }
        self.seq += 1;
        for (n, rev) in path.iter().enumerate() {
            let known = Known { parent: path.get(n + 1).copied(), deleted: deleted && n == 0, seq: self.seq };
            tree.entry(*rev).or_insert(known);
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

    fn knows(&self, doc: u8, rev: Rev) -> bool {
        self.docs.get(&doc).is_some_and(|tree| tree.contains_key(&rev))
    }

    fn put_back_at(&self) -> u64 {
        let opened = self.starts.last().copied().unwrap_or(0);
        self.starts.iter().copied().find(|start| *start > 0 && *start >= self.synced).unwrap_or(opened).min(opened)
    }
}

struct Copy {
    disk: Disk,
    backup: Option<Disk>,
    in_sync: bool,
    met: BTreeSet<usize>,
    /// Whether it found that it is an old one put back.
    is_old: bool,
    put_back: bool,
}

/// What a client was answered, and nobody built upon since.
#[derive(Clone, Copy, Debug)]
struct Acked {
    doc: u8,
    rev: Rev,
    at: u64,
    deleted: bool,
    by_majority: bool,
    /// Whether it is a revision that was forgotten, made again by the same words.
    again: bool,
}

struct World {
    broken: Broken,
    /// Whether copies go by what the coordinator knows of them, which is less: what an old copy stored since its last
    /// start it keeps, and one that has not written a missed round down is old.
    as_built: bool,
    copies: Vec<Copy>,
    /// Those that reach each other; the others are alone.
    group: BTreeSet<usize>,
    now: u64,
    acked: Vec<Acked>,
    /// When a client made a revision last.
    made: BTreeMap<(u8, Rev), u64>,
    /// When a revision was forgotten at last: when that was proposed.
    forgotten: BTreeMap<(u8, Rev), u64>,
    /// When each copy was put back last.
    put_backs: Vec<(usize, u64)>,
    rounds: u32,
}

impl World {
    fn new(broken: Broken) -> World {
        let copy = || Copy {
            disk: Disk { starts: vec![0], ..Disk::default() },
            backup: None,
            in_sync: true,
            met: BTreeSet::new(),
            is_old: false,
            put_back: false,
        };
        World {
            broken,
            as_built: false,
            copies: (0..COPIES).map(|_| copy()).collect(),
            group: (0..COPIES).collect(),
            now: 0,
            acked: Vec::new(),
            made: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            put_backs: Vec::new(),
            rounds: 0,
        }
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from != to && self.group.contains(&from) && self.group.contains(&to)
    }

    fn cut(&mut self, group: BTreeSet<usize>) {
        self.group = group;
        for at in 0..COPIES {
            let others = (0..COPIES).filter(|other| self.reaches(at, *other)).count();
            let copy = &mut self.copies[at];
            if (others + 1) * 2 <= COPIES {
                copy.in_sync = false;
            }
            copy.met.clear();
        }
    }

    fn start(&mut self, at: usize) {
        let copy = &mut self.copies[at];
        let seq = copy.disk.seq;
        copy.disk.starts.push(seq);
        (copy.in_sync, copy.is_old) = (false, false);
        copy.met.clear();
        for other in 0..COPIES {
            self.copies[other].met.remove(&at);
        }
    }

    fn put_back(&mut self, at: usize) {
        let Some(backup) = self.copies[at].backup.clone() else { return };
        self.copies[at].disk = backup;
        self.copies[at].put_back = true;
        self.put_backs.push((at, self.now));
        self.start(at);
    }

    /// A client asks a copy to write or to delete; those of `mask` that are reached hear of it.
    fn write(&mut self, asked: usize, doc: u8, word: u64, deletes: bool, mask: u8) {
        let there: Vec<usize> = (0..COPIES).filter(|at| *at == asked || self.reaches(asked, *at)).collect();
        let judge = there.iter().copied().find(|at| self.copies[*at].in_sync).unwrap_or(there[0]);
        let tree = self.copies[judge].disk.docs.get(&doc).cloned().unwrap_or_default();
        let shadow = self.copies[judge].disk.shadows.get(&doc).filter(|_| self.broken != Broken::NoShadow);
        let shadow = shadow.map_or(Vec::new(), |shadow| shadow.path.clone());
        let before = match winner(&tree) {
            Some(rev) => path(&tree, rev),
            None => shadow,
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
        for at in there.into_iter().filter(|at| *at == judge || mask & (1 << at) != 0) {
            self.copies[at].disk.merge(doc, &path, deletes);
            held += 1;
        }
        // The same words again are what was built upon, but where that is not known any more.
        let is_forgotten = |rev: &Rev| {
            let made = self.made.get(&(doc, *rev));
            self.forgotten.get(&(doc, *rev)).is_some_and(|gone| made.is_none_or(|made| made <= gone))
        };
        let is_news = |(child, known): (&Rev, &Known)| known.parent == Some(rev) && !is_forgotten(child);
        let is_old = |copy: &Copy| copy.disk.docs.get(&doc).is_some_and(|tree| tree.iter().any(is_news));
        if !self.copies.iter().any(is_old) {
            let by_majority = held * 2 > COPIES;
            let again = self.forgotten.contains_key(&(doc, rev));
            self.acked.push(Acked { doc, rev, at: self.now, deleted: deletes, by_majority, again });
            self.made.insert((doc, rev), self.now);
        }
    }

    /// A copy takes in another one; answers whether that could be done.
    fn pull(&mut self, at: usize, from: usize) -> bool {
        if !self.reaches(at, from) {
            return false;
        }
        let theirs = self.copies[from].disk.clone();
        self.forget(at, &theirs.ledger.horizon);
        if !self.copies[at].disk.ledger.horizon.covers(&theirs.ledger.horizon) && self.broken != Broken::OldCopyIsRead {
            if !self.refill(at, &theirs.ledger.horizon) {
                return false;
            }
            self.copies[at].disk.ledger.adopt(&theirs.ledger.horizon);
        }
        let own = &mut self.copies[at];
        if !theirs.ledger.horizon.covers(&own.disk.ledger.horizon) && self.broken != Broken::OldCopyIsRead {
            return false;
        }
        for (doc, tree) in &theirs.docs {
            for leaf in leaves(tree) {
                own.disk.merge(*doc, &path(tree, leaf), tree[&leaf].deleted);
            }
        }
        own.disk.shadows.retain(|_, shadow| {
            if theirs.ledger.horizon.covers(&shadow.horizon) {
                shadow.taken.insert(from);
            }
            shadow.taken.len() < COPIES
        });
        own.disk.synced = own.disk.seq;
        own.met.insert(from);
        if (0..COPIES).all(|other| !self.reaches(at, other) || self.copies[at].met.contains(&other)) {
            self.copies[at].in_sync = true;
        }
        true
    }

    fn forget(&mut self, at: usize, done: &Horizon) {
        let disk = &mut self.copies[at].disk;
        for proposal in disk.ledger.take_done(done) {
            for (doc, rev) in proposal.tombstones {
                let Some(tree) = disk.docs.get(&doc).filter(|tree| leaves(tree).contains(&rev)) else { continue };
                let shadow =
                    Shadow { path: path(tree, rev), horizon: disk.ledger.horizon.clone(), taken: BTreeSet::from([at]) };
                disk.drop_leaf(doc, rev);
                disk.shadows.insert(doc, shadow);
            }
        }
    }

    /// Gives up what all copies lack that know what was forgotten; answers whether all others could be asked.
    fn refill(&mut self, at: usize, missed: &Horizon) -> bool {
        self.copies[at].is_old = true;
        let opened = self.copies[at].disk.starts.last().copied().unwrap_or(0);
        if self.as_built && opened == 0 {
            return true;
        }
        let mut judges = Vec::new();
        for other in (0..COPIES).filter(|other| *other != at) {
            if !self.reaches(at, other) {
                return false;
            }
            match self.copies[other].disk.ledger.horizon.covers(missed) {
                true => judges.push(other),
                false if self.as_built && !self.copies[other].disk.ledger.promised().covers(missed) => {}
                // It may hold what was forgotten, too: it knows nothing better.
                false if !self.as_built && self.copies[other].is_old => {}
                false => return false,
            }
        }
        let since = match self.broken {
            Broken::GivesUpEverything => u64::MAX,
            _ if self.as_built => opened,
            _ => self.copies[at].disk.put_back_at(),
        };
        let mut lacked = Vec::new();
        for (doc, tree) in &self.copies[at].disk.docs {
            for leaf in leaves(tree).into_iter().filter(|leaf| tree[leaf].seq <= since) {
                if !judges.is_empty() && !judges.iter().any(|other| self.copies[*other].disk.knows(*doc, leaf)) {
                    lacked.push((*doc, leaf));
                }
            }
        }
        lacked.into_iter().for_each(|(doc, leaf)| self.copies[at].disk.drop_leaf(doc, leaf));
        self.copies[at].is_old = false;
        true
    }

    /// A copy proposes to forget all tombstones that stand alone; those of `mask` hear of what was decided.
    fn round(&mut self, by: usize, confirm: u8, mask: u8) {
        let needed = if self.broken == Broken::ConfirmedByMajority { COPIES / 2 + 1 } else { COPIES };
        let there = |at: usize| at == by || self.reaches(by, at);
        let all: Vec<usize> = (0..COPIES).filter(|at| there(*at) && self.copies[*at].in_sync).collect();
        if all.len() < needed || !all.contains(&by) {
            return;
        }
        let disk = &self.copies[by].disk;
        let alone = |tree: &Tree| match *leaves(tree) {
            [leaf] if tree[&leaf].deleted => Some(leaf),
            _ => None,
        };
        let tombstones: Vec<(u8, Rev)> =
            disk.docs.iter().filter_map(|(doc, tree)| Some((*doc, alone(tree)?))).collect();
        let gone: Vec<(u8, Rev)> = tombstones
            .iter()
            .flat_map(|(doc, leaf)| path(&disk.docs[doc], *leaf).into_iter().map(|rev| (*doc, rev)))
            .collect();
        let name = by.to_string();
        self.rounds += 1;
        let round = Round { number: disk.ledger.horizon.last(&name).number + 1, id: u64::from(self.rounds) };
        let mut confirmed = 0;
        for at in all {
            let disk = &mut self.copies[at].disk;
            let knows_all = tombstones.iter().all(|(doc, rev)| disk.knows(*doc, *rev));
            let proposal = Proposal { round, tombstones: tombstones.clone() };
            let asked = at == by || confirm & (1 << at) != 0;
            confirmed += usize::from(asked && knows_all && disk.ledger.propose(&name, proposal));
        }
        if confirmed < needed {
            return;
        }
        let horizon = self.copies[by].disk.ledger.horizon.with(&name, round);
        self.forgotten.extend(gone.into_iter().map(|key| (key, self.now)));
        self.forget(by, &horizon);
        for at in 0..COPIES {
            if self.reaches(by, at) && mask & (1 << at) != 0 {
                self.forget(at, &horizon);
            }
        }
    }

    fn read(&mut self, at: usize) {
        let there: Vec<usize> = (0..COPIES).filter(|other| *other == at || self.reaches(at, *other)).collect();
        for from in &there {
            let theirs = self.copies[*from].disk.clone();
            for to in &there {
                let disk = &mut self.copies[*to].disk;
                if !disk.ledger.horizon.is_empty() && self.broken != Broken::ReadsRepair {
                    continue;
                }
                for (doc, tree) in &theirs.docs {
                    for leaf in leaves(tree) {
                        disk.merge(*doc, &path(tree, leaf), tree[&leaf].deleted);
                    }
                }
            }
        }
    }

    fn act(&mut self, [what, at, doc, more]: [u8; 4]) {
        self.now += 1;
        let copy = usize::from(at) % COPIES;
        match what % 20 {
            0..=4 => self.write(copy, doc % 2, u64::from(more >> 4) % 2, false, more | 8),
            5..=8 => self.write(copy, doc % 2, 0, true, more),
            9..=11 => drop(self.pull(copy, usize::from(doc) % COPIES)),
            12 | 13 => self.settle(),
            14 | 15 => self.round(copy, doc | (more & 0xf0) >> 4, more),
            16 if more % 2 != 0 => self.put_back(copy),
            // What was never compared with others cannot be told from what was acknowledged since.
            16 if self.copies[copy].disk.synced > 0 => {
                self.copies[copy].backup = Some(self.copies[copy].disk.clone());
            }
            16 => {}
            17 => self.start(copy),
            18 if more % 3 == 0 => self.cut((0..COPIES).collect()),
            18 => self.cut((0..COPIES).filter(|other| *other != copy).collect()),
            _ => self.read(copy),
        }
    }

    /// All that are there read each other, a few times.
    fn settle(&mut self) {
        for _ in 0..2 {
            for at in 0..COPIES {
                for from in 0..COPIES {
                    self.pull(at, from);
                }
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.cut((0..COPIES).collect());
        (0..6).for_each(|_| self.settle());
        for at in 0..COPIES {
            for from in (0..COPIES).filter(|from| *from != at) {
                if !self.pull(at, from) {
                    return Err(format!("{at} waits for {from}"));
                }
            }
        }
        let docs: Vec<BTreeMap<u8, Vec<Rev>>> = self.copies.iter().map(|copy| live_and_dead(&copy.disk)).collect();
        if docs.iter().any(|other| *other != docs[0]) {
            return Err(format!("copies differ: {docs:?}"));
        }
        self.nothing_came_back()?;
        self.nothing_was_lost()
    }

    fn nothing_came_back(&self) -> Result<(), String> {
        if self.copies.iter().all(|copy| copy.put_back) {
            return Ok(());
        }
        for (doc, tree) in &self.copies[0].disk.docs {
            for leaf in leaves(tree).into_iter().filter(|leaf| !tree[leaf].deleted) {
                let made = self.made.get(&(*doc, leaf));
                let gone = self.forgotten.get(&(*doc, leaf));
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
                self.put_backs.iter().filter(|(_, at)| *at >= acked.at).map(|(copy, _)| *copy).collect();
            let put_back: BTreeSet<usize> = self.put_backs.iter().map(|(copy, _)| *copy).collect();
            let is_safe = match acked.by_majority {
                _ if self.as_built && put_back.len() > usize::from(acked.by_majority) => false,
                // A copy that was put back may have built upon the tombstone: the same words are what was deleted.
                _ if acked.again => self.put_backs.is_empty(),
                true => lost.len() <= COPIES / 2,
                false => lost.is_empty(),
            };
            let tree = self.copies[0].disk.docs.get(&acked.doc);
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

fn run_as_built(acts: &[[u8; 4]]) -> Result<(), String> {
    let mut world = World { as_built: true, ..World::new(Broken::Nothing) };
    acts.iter().for_each(|act| world.act(*act));
    world.end()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn what_was_forgotten_stays_so_as_it_is_built(acts in prop::collection::vec(any::<[u8; 4]>(), 5..45)) {
        prop_assert_eq!(run_as_built(&acts), Ok(()));
    }

    #[test]
    fn what_was_forgotten_does_not_come_back_and_nothing_live_is_lost(
        acts in prop::collection::vec(any::<[u8; 4]>(), 5..45),
    ) {
        prop_assert_eq!(run(Broken::Nothing, &acts), Ok(()));
    }
}

/// What a rule is there for.
#[test]
fn without_any_of_the_rules_something_comes_back_or_is_lost() {
    let write = [0, 0, 0, 255];
    let (settle, backup) = ([12, 0, 0, 0], |copy: u8| [16, copy, 0, 0]);
    let put_back = |copy: u8| [16, copy, 0, 1];
    let cases: [(Broken, Vec<[u8; 4]>); 5] = [
        (Broken::ConfirmedByMajority, vec![[3, 2, 248, 158], [8, 0, 214, 234], [15, 0, 33, 174]]),
        (Broken::OldCopyIsRead, vec![write, settle, backup(1), [5, 0, 0, 255], settle, [15, 2, 7, 255], put_back(1)]),
        (
            Broken::GivesUpEverything,
            vec![write, settle, backup(2), [15, 2, 7, 255], [18, 2, 0, 1], put_back(2), [4, 2, 1, 255]],
        ),
        (
            Broken::ReadsRepair,
            vec![write, settle, backup(1), [5, 0, 0, 255], settle, [15, 2, 7, 255], put_back(1), [19, 0, 0, 0]],
        ),
        (
            Broken::NoShadow,
            vec![
                [0, 0, 115, 65],
                [8, 0, 115, 246],
                [15, 2, 95, 218],
                [4, 0, 251, 144],
                [7, 2, 117, 105],
                [18, 2, 149, 250],
                [0, 2, 39, 170],
            ],
        ),
    ];
    for (broken, acts) in cases {
        assert_eq!(run(Broken::Nothing, &acts), Ok(()), "{broken:?}");
        assert!(run(broken, &acts).is_err(), "{broken:?}");
    }
}
