//! The oracle: what the database may hold, checked from the clients' side alone. It shares no code with the node.
//!
//! A document is a set of revisions; an edit is invoked and then acknowledged, refused or unknown. Revisions are
//! deterministic, so the model computes the revision that an edit makes on a given parent by itself and recognizes it
//! wherever it shows up. From that follow, without any search: nothing acknowledged is missing (I1), nothing refused is
//! there (I3), the winner is the pure function of the leaves (I5), what was seen once stays (I6), no revision comes
//! from nowhere (I9, I27), bodies and attachments are those that were sent (I11).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use md5::{Digest, Md5};

mod edit;

pub use edit::{Blob, Edit, Outcome, Violation, order};

use crate::linear::{self, Read, Sent, Tick};
use crate::plan::{PAD_BIT, PAD_UNIT};

/// One revision in a tree that a client was shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Leaf {
    /// The path from the leaf to its oldest known ancestor, as full revision ids.
    pub path: Vec<String>,
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// The body's `v`.
    pub v: Option<u64>,
}

/// Everything that clients sent and saw of one database.
#[derive(Default)]
pub struct Model {
    /// Several replicas take edits: two on one parent may both be taken while they do not hear each other.
    pub several: bool,
    /// Nothing goes wrong in the run: all nodes agree on who is there, so that one replica checks edits.
    pub in_peace: bool,
    /// A node's disk may be lost: what fewer than a majority of replicas held may go with it.
    pub loses_disks: bool,
    /// It is somebody else's server, which gives revisions names of its own: what an edit makes is known once it was
    /// acknowledged or shown.
    pub foreign: bool,
    edits: Vec<Edit>,
    /// What edits without an answer made, by their places, as a foreign server showed it.
    shown: BTreeMap<usize, String>,
    /// When each edit was sent and answered.
    times: Vec<(Tick, Option<Tick>)>,
    reads: BTreeMap<String, Vec<Read>>,
    ticks: Tick,
    seen: BTreeMap<String, BTreeSet<String>>,
    /// How many replicas were said to hold each acknowledged revision, at least.
    promised: BTreeMap<String, BTreeMap<String, u32>>,
    hashed: Hashed,
}

/// What was computed before: hashes take most of a run's time else.
#[derive(Default)]
struct Hashed {
    /// The revisions that edits, by their places, make on parents.
    made: RefCell<HashMap<(usize, Option<String>), String>>,
    /// An edit that makes the revision of a document. Those that make the same one say the same.
    makers: RefCell<HashMap<(String, String), usize>>,
}

/// A revision of a document, for people.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Written {
    /// The revision.
    pub rev: String,
    /// What it builds on.
    pub parent: Option<String>,
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// The body's `v`.
    pub v: Option<u64>,
    /// `acknowledged`, `refused` or `unknown`.
    pub outcome: &'static str,
}

fn violation(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, what }
}

impl Model {
    /// Records an edit at its invocation; its outcome is unknown until [`Model::settle`].
    pub fn invoke(&mut self, edit: Edit) -> usize {
        self.edits.push(edit);
        let now = self.tick();
        self.times.push((now, None));
        self.edits.len() - 1
    }

    /// The next moment in the order of requests and answers.
    pub fn tick(&mut self) -> Tick {
        self.ticks += 1;
        self.ticks
    }

    /// A read that was sent at `from` showed this winner (`None`: no document).
    pub fn read(&mut self, doc: &str, from: Tick, rev: Option<String>) {
        let to = self.tick();
        self.reads.entry(doc.to_owned()).or_default().push(Read { from, to, rev });
    }

    /// Whether reads and writes of each document can have taken place one after the other. `least`: how many replicas
    /// must hold what reads of a cluster in peace are to show; `None` on one node.
    ///
    /// # Errors
    /// I10.
    pub fn check_order(&self, least: Option<u32>) -> Result<(), Violation> {
        for doc in self.documents() {
            let held = least.map(|least| self.promised(&doc, least));
            let is_shown = |edit: &Edit| match (&held, &edit.outcome) {
                (Some(held), Outcome::Acknowledged(rev)) => held.contains(rev),
                _ => true,
            };
            let sent = self.edits.iter().zip(&self.times).filter(|(edit, _)| edit.doc == doc);
            let sent = sent.map(|(edit, (from, to))| Sent { edit, from: *from, to: *to, shown: is_shown(edit) });
            let reads = self.reads.get(&doc).map_or(&[][..], Vec::as_slice);
            linear::check(&doc, &sent.collect::<Vec<_>>(), reads, least.is_none())?;
        }
        Ok(())
    }

    /// Records what the client learned of an edit. An acknowledged revision must be one that the edit can make.
    pub fn settle(&mut self, edit: usize, outcome: Outcome) -> Result<(), Violation> {
        if let Outcome::Acknowledged(rev) = &outcome {
            let fact = &self.edits[edit];
            let possible = self.possible_revisions(edit);
            if self.foreign && !follows(fact, rev) {
                return Err(violation("I9", format!("{}: {rev} acknowledged to {fact:?}", fact.doc)));
            }
            if !self.foreign && !possible.contains(rev) {
                let what = format!("{}: {rev} acknowledged, but {fact:?} makes one of {possible:?}", fact.doc);
                return Err(violation("I9", what));
            }
            let rival = |e: &&Edit| {
                e.doc == fact.doc
                    && e.parent.is_some()
                    && e.parent == fact.parent
                    && e.given.is_none()
                    && matches!(&e.outcome, Outcome::Acknowledged(other) if other != rev)
            };
            if (!self.several || self.in_peace)
                && fact.given.is_none()
                && let Some(other) = self.edits.iter().find(rival)
            {
                let what = format!("{}: {rev} and {:?} were both acknowledged on one parent", fact.doc, other.outcome);
                return Err(violation("I8", what));
            }
            self.seen.entry(fact.doc.clone()).or_default().insert(rev.clone());
        }
        if outcome != Outcome::Unknown {
            self.times[edit].1 = Some(self.tick());
        }
        self.edits[edit].outcome = outcome;
        Ok(())
    }

    /// How many edits were acknowledged, refused and left unknown.
    pub fn outcomes(&self) -> (usize, usize, usize) {
        let count = |f: fn(&Outcome) -> bool| self.edits.iter().filter(|e| f(&e.outcome)).count();
        let acknowledged = count(|o| matches!(o, Outcome::Acknowledged(_)));
        (acknowledged, count(|o| *o == Outcome::Refused), count(|o| *o == Outcome::Unknown))
    }

    /// How many edits of each document were sent, and how many of them have an unknown outcome.
    pub fn edit_counts(&self) -> BTreeMap<String, (usize, usize)> {
        let mut out: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for edit in &self.edits {
            let (sent, open) = out.entry(edit.doc.clone()).or_default();
            *sent += 1;
            *open += usize::from(edit.outcome == Outcome::Unknown);
        }
        out
    }

    /// All edits of a document, with the revision that each made or would have made on the parent that it named.
    pub fn written(&self, doc: &str) -> Vec<Written> {
        let row = |(at, e): (usize, &Edit)| {
            let (rev, outcome) = match &e.outcome {
                Outcome::Acknowledged(rev) => (rev.clone(), "acknowledged"),
                other => {
                    let made = e.given.clone().unwrap_or_else(|| self.made(at, e.parent.as_deref()));
                    (made, if *other == Outcome::Refused { "refused" } else { "unknown" })
                }
            };
            Written { rev, parent: e.parent.clone(), deleted: e.deleted, v: e.v, outcome }
        };
        self.edits_of(doc).map(row).collect()
    }

    /// The edits of a document, with their places.
    fn edits_of<'m>(&'m self, doc: &'m str) -> impl Iterator<Item = (usize, &'m Edit)> {
        self.edits.iter().enumerate().filter(move |(_, edit)| edit.doc == doc)
    }

    /// The revision that the edit at a place makes on a parent; of a foreign server's what was shown of it.
    fn made(&self, at: usize, parent: Option<&str>) -> String {
        if self.foreign {
            return self.shown.get(&at).cloned().unwrap_or_default();
        }
        let mut made = self.hashed.made.borrow_mut();
        made.entry((at, parent.map(str::to_owned))).or_insert_with(|| revision(&self.edits[at], parent)).clone()
    }

    /// Every revision of a document that must stay: all that some client was shown or promised until now; where a disk
    /// may be lost, what more replicas than that one were said to hold.
    pub fn lasting(&self, doc: &str) -> BTreeSet<String> {
        if self.loses_disks { self.promised(doc, 2) } else { self.seen.get(doc).cloned().unwrap_or_default() }
    }

    /// Notes that so many replicas hold a revision.
    pub fn promise(&mut self, doc: &str, rev: &str, replicas: u32) {
        let held = self.promised.entry(doc.to_owned()).or_default().entry(rev.to_owned()).or_default();
        *held = replicas.max(*held);
    }

    /// Every revision of a document that so many replicas were said to hold.
    pub fn promised(&self, doc: &str, least: u32) -> BTreeSet<String> {
        self.promises(doc).into_iter().filter(|(_, replicas)| *replicas >= least).map(|(rev, _)| rev).collect()
    }

    /// What was acknowledged of a document, and how many replicas were said to hold it.
    pub fn promises(&self, doc: &str) -> Vec<(String, u32)> {
        self.promised.get(doc).into_iter().flatten().map(|(rev, replicas)| (rev.clone(), *replicas)).collect()
    }

    /// Whether a revision is known to build on another one, over any number of edits.
    pub fn builds_on(&self, doc: &str, rev: &str, earlier: &str) -> bool {
        let mut parent = self.maker(doc, rev).and_then(|edit| edit.parent.clone());
        while let Some(rev) = parent {
            if rev == earlier {
                return true;
            }
            parent = self.maker(doc, &rev).and_then(|edit| edit.parent.clone());
        }
        false
    }

    /// Documents that any edit named.
    pub fn documents(&self) -> BTreeSet<String> {
        self.edits.iter().map(|e| e.doc.clone()).collect()
    }

    /// Attachments of a revision, found by the edit that made it; of a foreign server's only where it said so.
    pub fn blobs_of(&self, doc: &str, rev: &str) -> Vec<Blob> {
        let is_sure = |e: &&Edit| !self.foreign || e.outcome == Outcome::Acknowledged(rev.to_owned());
        self.maker(doc, rev).filter(is_sure).map(|e| e.blobs.clone()).unwrap_or_default()
    }

    /// The body's `v` of a revision, found by the edit that made it.
    pub fn value_of(&self, doc: &str, rev: &str) -> Option<u64> {
        self.maker(doc, rev).and_then(|e| e.v)
    }

    /// A single revision that an answer showed: it must be one that was sent, with the body that was sent.
    pub fn saw(&mut self, doc: &str, rev: &str, v: Option<u64>) -> Result<(), Violation> {
        if self.foreign && self.maker(doc, rev).is_none() {
            self.recognize(doc, rev, v)?;
        }
        match self.maker(doc, rev) {
            None => return Err(violation("I9", format!("{doc}: {rev} was never written"))),
            Some(edit) if edit.v != v => {
                return Err(violation("I27", format!("{doc}: {rev} has v={v:?}, {:?} was written", edit.v)));
            }
            Some(_) => {}
        }
        self.seen.entry(doc.to_owned()).or_default().insert(rev.to_owned());
        Ok(())
    }

    /// Finds the edit that made what a foreign server shows, by its value and its place: one without an answer.
    fn recognize(&mut self, doc: &str, rev: &str, v: Option<u64>) -> Result<(), Violation> {
        let fits = |(_, e): &(usize, &Edit)| e.given.is_none() && e.v == v && follows(e, rev);
        let open = |(at, e): &(usize, &Edit)| e.outcome == Outcome::Unknown && !self.shown.contains_key(at);
        let found = self.edits_of(doc).filter(fits).find(open).map(|(at, _)| at);
        if found.is_none() && self.edits_of(doc).filter(fits).any(|(_, e)| e.outcome == Outcome::Refused) {
            return Err(violation("I3", format!("{doc}: {rev} was refused, and is there")));
        }
        self.shown.extend(found.map(|at| (at, rev.to_owned())));
        Ok(())
    }

    /// A whole tree that an answer showed. `before` is what was known when the request was sent: it must all be there.
    pub fn saw_tree(&mut self, doc: &str, leaves: &[Leaf], before: &BTreeSet<String>) -> Result<(), Violation> {
        let shown: BTreeSet<&String> = leaves.iter().flat_map(|l| &l.path).collect();
        if let Some(lost) = before.iter().find(|r| !shown.contains(r)) {
            let acknowledged = self.edits.iter().any(|e| e.outcome == Outcome::Acknowledged((*lost).clone()));
            let number = if acknowledged { "I1" } else { "I6" };
            return Err(violation(number, format!("{doc}: {lost} is gone; the tree holds {shown:?}")));
        }
        // Known before they are explained: an edit that names no parent is found by the tombstones that are known.
        let all: BTreeSet<String> = leaves.iter().flat_map(|l| l.path.iter().cloned()).collect();
        self.seen.entry(doc.to_owned()).or_default().extend(all);
        for leaf in leaves {
            self.saw(doc, &leaf.path[0], leaf.v)?;
            for step in leaf.path.windows(2) {
                self.explain(doc, &step[0], Some(&step[1]))?;
            }
            let root = &leaf.path[leaf.path.len() - 1];
            self.explain(doc, root, None)?;
        }
        Ok(())
    }

    /// A revision on a parent must be the work of an edit that was not refused.
    fn explain(&self, doc: &str, rev: &str, parent: Option<&str>) -> Result<(), Violation> {
        let fits = |(at, e): &(usize, &Edit)| match &e.given {
            Some(given) => given == rev && e.parent.as_deref() == parent,
            None => self.made(*at, parent) == rev && self.may_build_on(e, parent),
        };
        let makers: Vec<&Edit> = self.edits_of(doc).filter(fits).map(|(_, e)| e).collect();
        if makers.is_empty() && self.foreign {
            return self.explain_foreign(doc, rev, parent);
        }
        if makers.is_empty() {
            return Err(violation("I9", format!("{doc}: nobody wrote {rev} on {parent:?}")));
        }
        if makers.iter().all(|e| e.outcome == Outcome::Refused) {
            return Err(violation("I3", format!("{doc}: {rev} was refused, and is there")));
        }
        Ok(())
    }

    /// What a foreign server names was acknowledged on this parent, or is the work of an edit without an answer.
    fn explain_foreign(&self, doc: &str, rev: &str, parent: Option<&str>) -> Result<(), Violation> {
        let told = Outcome::Acknowledged(rev.to_owned());
        let fits = |e: &Edit| e.outcome == told || e.outcome == Outcome::Unknown && e.given.is_none();
        let mut makers = self.edits_of(doc).map(|(_, e)| e).filter(|e| fits(e));
        match makers.any(|e| self.may_build_on(e, parent)) {
            true => Ok(()),
            false => Err(violation("I9", format!("{doc}: nobody wrote {rev} on {parent:?}"))),
        }
    }

    /// An edit that names no revision creates, or writes again over a tombstone.
    fn may_build_on(&self, edit: &Edit, parent: Option<&str>) -> bool {
        match (&edit.parent, parent) {
            (Some(named), actual) => Some(named.as_str()) == actual,
            (None, None) => true,
            (None, Some(actual)) => self.maker(&edit.doc, actual).is_some_and(|e| e.deleted),
        }
    }

    fn possible_revisions(&self, at: usize) -> BTreeSet<String> {
        let edit = &self.edits[at];
        if let Some(given) = &edit.given {
            return BTreeSet::from([given.clone()]);
        }
        if let Some(parent) = &edit.parent {
            return BTreeSet::from([self.made(at, Some(parent))]);
        }
        let tombstones = self.all_revisions(&edit.doc, true);
        let again = tombstones.iter().map(|tombstone| self.made(at, Some(tombstone)));
        again.chain([self.made(at, None)]).collect()
    }

    /// Revisions of a document that edits made or may have made; only tombstones if asked.
    fn all_revisions(&self, doc: &str, tombstones: bool) -> BTreeSet<String> {
        let mut out: BTreeSet<String> = self.seen.get(doc).cloned().unwrap_or_default();
        out.extend(self.edits_of(doc).map(|(at, edit)| match &edit.given {
            Some(given) => given.clone(),
            None => self.made(at, edit.parent.as_deref()),
        }));
        // An edit without a parent on top of a tombstone that itself came so: one more round covers two unknowns.
        let bare: Vec<usize> =
            self.edits_of(doc).filter(|(_, e)| e.parent.is_none() && e.given.is_none()).map(|(at, _)| at).collect();
        let known: Vec<String> = out.iter().cloned().collect();
        for rev in &known {
            out.extend(bare.iter().map(|at| self.made(*at, Some(rev))));
        }
        if tombstones {
            out.retain(|rev| self.maker(doc, rev).is_some_and(|e| e.deleted));
        }
        out
    }

    /// The edit that makes `rev`, whatever its parent: values are unique, so the content tells.
    fn maker(&self, doc: &str, rev: &str) -> Option<&Edit> {
        let name = (doc.to_owned(), rev.to_owned());
        let known = self.hashed.makers.borrow().get(&name).copied();
        let at = known.or_else(|| self.find_maker(doc, rev))?;
        self.hashed.makers.borrow_mut().insert(name, at);
        Some(&self.edits[at])
    }

    fn find_maker(&self, doc: &str, rev: &str) -> Option<usize> {
        let chosen = |(_, e): &(usize, &Edit)| e.given.as_deref() == Some(rev);
        let told = |(_, e): &(usize, &Edit)| matches!(&e.outcome, Outcome::Acknowledged(told) if told == rev);
        let named = |(at, e): &(usize, &Edit)| e.given.is_none() && self.made(*at, e.parent.as_deref()) == rev;
        let first = self.edits_of(doc).find(chosen).or_else(|| self.edits_of(doc).find(told));
        if let Some((at, _)) = first.or_else(|| self.edits_of(doc).find(named)) {
            return Some(at);
        }
        // What names no parent builds on a tombstone, and nobody may have been shown that one.
        let deletions = self.edits_of(doc).filter(|(_, e)| e.deleted && e.given.is_none());
        let tombstones = deletions.map(|(at, e)| self.made(at, e.parent.as_deref()));
        let parents: BTreeSet<String> = self.seen.get(doc).into_iter().flatten().cloned().chain(tombstones).collect();
        let mut bare = self.edits_of(doc).filter(|(_, e)| e.given.is_none() && e.parent.is_none());
        bare.find(|(at, _)| parents.iter().any(|parent| self.made(*at, Some(parent)) == rev)).map(|(at, _)| at)
    }
}

/// Whether a revision can be what an edit makes on the parent that it names, as its generation goes.
fn follows(edit: &Edit, rev: &str) -> bool {
    edit.given.as_deref() == Some(rev)
        || edit.parent.as_deref().is_none_or(|parent| order(parent).0 + 1 == order(rev).0) && edit.given.is_none()
}

/// The winner among leaves: live before deleted, then generation, then hash (I5).
pub fn winner(leaves: &[Leaf]) -> Option<&Leaf> {
    leaves.iter().max_by_key(|l| (!l.deleted, order(&l.path[0])))
}

/// The revision id that an edit makes on a parent: MD5 over the external term format of
/// `[Deleted, OldPos, OldHash, Body, Atts]`, written for the few shapes that clients send here.
pub fn revision(edit: &Edit, parent: Option<&str>) -> String {
    let (generation, hash) = parent.map_or((0, String::new()), order);
    let mut term = vec![131, 108, 0, 0, 0, 5];
    atom(&mut term, if edit.deleted { "true" } else { "false" });
    integer(&mut term, generation);
    if parent.is_some() {
        binary(&mut term, &hex(&hash));
    } else {
        integer(&mut term, 0);
    }
    term.extend([104, 1]);
    if let Some(v) = edit.v {
        let text = padded(v);
        term.extend([108, 0, 0, 0, 1 + u8::from(!text.is_empty()), 104, 2]);
        binary(&mut term, b"v");
        integer(&mut term, v);
        if !text.is_empty() {
            term.extend([104, 2]);
            binary(&mut term, b"w");
            binary(&mut term, text.as_bytes());
        }
    }
    term.push(106);
    if !edit.blobs.is_empty() {
        term.push(108);
        term.extend((edit.blobs.len() as u32).to_be_bytes());
        for blob in edit.blobs.iter().rev() {
            term.extend([104, 3]);
            binary(&mut term, blob.name.as_bytes());
            binary(&mut term, b"application/octet-stream");
            binary(&mut term, &blob.md5);
        }
    }
    term.extend([106, 106]);
    let digest = Md5::digest(&term);
    format!("{}-{}", generation + 1, digest.iter().map(|b| format!("{b:02x}")).collect::<String>())
}

/// Bytes of the text that goes with a value.
pub fn padding(v: u64) -> usize {
    ((v >> PAD_BIT) * PAD_UNIT) as usize
}

/// That text: nothing that is short when it is compressed.
pub fn padded(v: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = v | 1;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(LETTERS[(state >> 58) as usize])
    };
    (0..padding(v)).map(letter).collect()
}

fn atom(out: &mut Vec<u8>, name: &str) {
    out.extend([100, 0, name.len() as u8]);
    out.extend(name.as_bytes());
}

fn integer(out: &mut Vec<u8>, n: u64) {
    match u8::try_from(n) {
        Ok(small) => out.extend([97, small]),
        Err(_) => {
            out.push(98);
            out.extend(i32::try_from(n).expect("plans use small numbers").to_be_bytes());
        }
    }
}

fn binary(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(109);
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests;
