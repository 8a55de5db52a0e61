//! Random edits, merges, purges, compactions and restarts against a small model: per document the known revisions, each
//! with its parent and, where there is one, its content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use proptest::prelude::*;

use super::*;
use crate::shard::{ListPage, ShardInfo};
use crate::storage::{Direction, KeyRange};

#[derive(Clone, Debug)]
enum Step {
    /// Document, choice of the parent (0 = none, else among all revisions), deletes, content.
    Edit(u8, u8, bool, u8),
    /// Document, known revision to start from (0 = none), hashes of the new revisions, deletes, content.
    Merge(u8, u8, Vec<u8>, bool, u8),
    /// Document, which leaf.
    Purge(u8, u8),
    Compact,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3u8, 0..8u8, prop::bool::weighted(0.3), 0..4u8).prop_map(|(d, p, x, c)| Step::Edit(d, p, x, c)),
        4 => (0..3u8, 0..8u8, prop::collection::vec(0..3u8, 1..4), prop::bool::weighted(0.3), 0..4u8)
            .prop_map(|(d, f, h, x, c)| Step::Merge(d, f, h, x, c)),
        1 => (0..3u8, 0..8u8).prop_map(|(d, l)| Step::Purge(d, l)),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Clone, Debug, Default)]
struct Known {
    parents: BTreeSet<Revision>,
    /// Deleted, body; the body is gone after compaction.
    content: Option<(bool, Option<String>)>,
}

#[derive(Debug, Default)]
struct Document {
    revs: BTreeMap<Revision, Known>,
    changed: u64,
}

impl Document {
    fn leaves(&self) -> Vec<(Revision, bool)> {
        let parents: BTreeSet<&Revision> = self.revs.values().flat_map(|known| &known.parents).collect();
        let leaves = self.revs.iter().filter(|(rev, _)| !parents.contains(rev));
        let mut out: Vec<_> = leaves.map(|(rev, known)| (rev.clone(), known.content.as_ref().unwrap().0)).collect();
        out.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        out
    }

    /// Adds a path, newest first; true when that changed anything.
    fn add(&mut self, path: &[Revision], deleted: bool, body: &str) -> bool {
        let mut changed = false;
        for (n, rev) in path.iter().enumerate() {
            changed |= !self.revs.contains_key(rev);
            let known = self.revs.entry(rev.clone()).or_default();
            changed |= path.get(n + 1).is_some_and(|parent| known.parents.insert(parent.clone()));
        }
        let head = self.revs.get_mut(&path[0]).unwrap();
        if head.content.is_none() {
            head.content = Some((deleted, Some(body.to_owned())));
            changed = true;
        }
        changed
    }

    fn ancestors(&self, rev: &Revision) -> BTreeSet<Revision> {
        let (mut out, mut next) = (BTreeSet::new(), vec![rev.clone()]);
        while let Some(rev) = next.pop() {
            next.extend(self.revs[&rev].parents.iter().cloned());
            out.insert(rev);
        }
        out
    }

    fn purge(&mut self, leaf: &Revision) {
        let others = self.leaves().into_iter().filter(|other| other.0 != *leaf);
        let keep: BTreeSet<Revision> = others.flat_map(|other| self.ancestors(&other.0)).collect();
        self.revs.retain(|rev, _| keep.contains(rev));
    }

    fn compact(&mut self) {
        let leaves: BTreeSet<Revision> = self.leaves().into_iter().map(|leaf| leaf.0).collect();
        for (_, known) in self.revs.iter_mut().filter(|(rev, _)| !leaves.contains(rev)) {
            if let Some((_, body)) = &mut known.content {
                *body = None;
            }
        }
    }
}

#[derive(Debug, Default)]
struct Model {
    documents: BTreeMap<String, Document>,
    seq: u64,
    purges: u64,
}

impl Model {
    fn changed(&mut self, id: &str) {
        self.seq += 1;
        let document = self.documents.get_mut(id).unwrap();
        document.changed = self.seq;
        if document.revs.is_empty() {
            self.documents.remove(id);
        }
    }
}

fn text(content: u8) -> String {
    format!("{{\"v\":{content}}}")
}

fn choose<T: Clone>(from: &[T], choice: u8) -> Option<T> {
    if choice == 0 || from.is_empty() { None } else { Some(from[(choice as usize - 1) % from.len()].clone()) }
}

async fn edit(w: &World, model: &mut Model, id: &str, choice: u8, deleted: bool, content: u8) {
    let document = model.documents.entry(id.to_owned()).or_default();
    let all: Vec<Revision> = document.revs.keys().rev().cloned().collect();
    let named = choose(&all, choice);
    let leaves = document.leaves();
    let expected: Result<Option<Revision>, EditError> = match (leaves.first(), &named) {
        (None, _) => Ok(None),
        (Some((tombstone, true)), None) if !deleted => Ok(Some(tombstone.clone())),
        (Some((_, false)), Some(parent)) if leaves.iter().any(|leaf| leaf.0 == *parent) => Ok(Some(parent.clone())),
        _ => Err(EditError::Conflict),
    };
    let done = w.edit(interactive(id, named.as_ref(), deleted, &text(content))).await;
    assert_eq!(done.as_ref().err(), expected.as_ref().err(), "{id} {named:?} {leaves:?}");
    if let (Ok(rev), Ok(parent)) = (done, expected) {
        assert_eq!(rev.pos, parent.as_ref().map_or(1, |parent| parent.pos + 1));
        let path: Vec<Revision> = [rev].into_iter().chain(parent).collect();
        if document.add(&path, deleted, &text(content)) {
            return model.changed(id);
        }
    }
    model.documents.retain(|_, document| !document.revs.is_empty());
}

async fn merge_path(w: &World, model: &mut Model, id: &str, from: u8, hashes: &[u8], deleted: bool, content: u8) {
    let document = model.documents.entry(id.to_owned()).or_default();
    let all: Vec<Revision> = document.revs.keys().cloned().collect();
    let mut revs: Vec<Revision> = choose(&all, from).into_iter().collect();
    for hash in hashes {
        let pos = revs.first().map_or(1 + u64::from(from % 2), |last| last.pos + 1);
        revs.insert(0, rev(&format!("{pos}-h{hash}")));
    }
    let names = RevPath { start: revs[0].pos, ids: revs.iter().map(|rev| rev.hash.clone()).collect() };
    assert_eq!(w.edit(merge(id, names, deleted, &text(content))).await.as_ref(), Ok(&revs[0]));
    if document.add(&revs, deleted, &text(content)) {
        model.changed(id);
    }
}

async fn purge(w: &World, model: &mut Model, id: &str, choice: u8) {
    let Some(document) = model.documents.get_mut(id) else { return };
    let leaves = document.leaves();
    let leaf = leaves[choice as usize % leaves.len()].0.clone();
    let purged = w.shard.purge(vec![(DocId::new(id), vec![leaf.clone()])]).await.unwrap();
    assert_eq!(purged, [vec![leaf.clone()]]);
    document.purge(&leaf);
    model.purges += 1;
    model.changed(id);
}

/// Bytes of live records, and of all: counted record by record. No document has attachments.
async fn stored_sizes(w: &World) -> (u64, u64) {
    let count = |view: &dyn crate::storage::View| {
        let (mut records, mut bodies) = (0, BTreeMap::new());
        view.scan(&KeyRange::prefix(&SHARD.0.to_be_bytes()), Direction::Forward, &mut |key, value| {
            match key[8] {
                b'd' | b's' => records += value.len() as u64,
                b'b' => drop(bodies.insert(key[9..].to_vec(), value.len() as u64)),
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        Ok((records, bodies))
    };
    let (records, bodies): (u64, BTreeMap<Vec<u8>, u64>) = w.storage.read(count).await.unwrap();
    let ids = w.shard.digests(Bound::Unbounded, Bound::Unbounded, 100).await.unwrap();
    let wants = ids.into_iter().map(|found| (found.id, Want::Tree)).collect();
    let trees = w.shard.fetch(wants).await.unwrap().into_iter().map(|fetched| fetched.unwrap().tree);
    let leaves = trees.flat_map(|tree| tree.leaves().into_iter().map(|leaf| leaf.value.body).collect::<Vec<_>>());
    let live: u64 = leaves.map(|number| bodies[&number.to_be_bytes().to_vec()]).sum();
    (records + live, records + bodies.values().sum::<u64>())
}

async fn compare(w: &World, model: &Model) {
    let mut info = ShardInfo { update_seq: model.seq, purge_seq: model.purges, ..ShardInfo::default() };
    let mut live = Vec::new();
    for (id, document) in &model.documents {
        let leaves = document.leaves();
        match leaves[0].1 {
            true => info.doc_del_count += 1,
            false => live.push((id.clone(), leaves.clone())),
        }
        let revs: Vec<Revision> = document.revs.keys().cloned().collect();
        let want = Want::Revisions { revs: revs.clone(), latest: false };
        let fetched = w.shard.fetch(vec![(DocId::new(id), want)]).await.unwrap().remove(0).unwrap();
        assert_eq!(fetched.local_seq, document.changed);
        let names: Vec<_> = fetched.tree.leaves().into_iter().map(|l| (l.rev, l.value.deleted)).collect();
        assert_eq!(names, leaves);
        for (rev, stored) in &fetched.found {
            let expected = document.revs[rev].content.clone().and_then(|(deleted, body)| Some((deleted, body?)));
            let stored = stored.as_ref().map(|s| (s.deleted, String::from_utf8(s.body.to_vec()).unwrap()));
            assert_eq!(stored, expected, "{id} {rev}");
        }
        info.sizes.external += leaves.len() as u64 * text(0).len() as u64;
    }
    info.doc_count = live.len() as u64;
    let found = w.shard.info().await.unwrap();
    (info.sizes.active, info.sizes.file) = stored_sizes(w).await;
    assert_eq!(found, info);
    let mut by_seq: Vec<_> = model.documents.iter().map(|(id, d)| (d.changed, id, d.leaves())).collect();
    by_seq.sort();
    let rows = w.shard.changes(0, Direction::Forward, 100).await.unwrap().rows;
    let rows: Vec<_> = rows.into_iter().map(|row| (row.seq, row.id.to_string(), row.leaves)).collect();
    assert_eq!(rows, by_seq.iter().map(|(seq, id, leaves)| (*seq, (*id).clone(), leaves.clone())).collect::<Vec<_>>());
    let since = model.seq / 2;
    let behind = by_seq.iter().filter(|row| row.0 > since).count() as u64;
    assert_eq!(w.shard.count_since(since).await.unwrap(), behind);
    let (start, end) = (Bound::Unbounded, Bound::Unbounded);
    let page = ListPage { start, end, descending: false, limit: 100, bodies: false };
    let rows = w.shard.list(page).await.unwrap();
    assert_eq!(rows.into_iter().map(|row| (row.id.to_string(), row.leaves)).collect::<Vec<_>>(), live);
}

async fn run(steps: Vec<Step>) {
    let mut w = World::new().await;
    let mut model = Model::default();
    let id = |document: u8| format!("doc{document}");
    for step in steps {
        match step {
            Step::Edit(d, parent, deleted, content) => edit(&w, &mut model, &id(d), parent, deleted, content).await,
            Step::Merge(d, from, hashes, deleted, content) => {
                merge_path(&w, &mut model, &id(d), from, &hashes, deleted, content).await;
            }
            Step::Purge(d, leaf) => purge(&w, &mut model, &id(d), leaf).await,
            Step::Compact => {
                w.compact(1000).await;
                model.documents.values_mut().for_each(Document::compact);
            }
            Step::Reopen => w = w.reopen().await,
        }
        compare(&w, &model).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_shard_equals_its_model(steps in prop::collection::vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
