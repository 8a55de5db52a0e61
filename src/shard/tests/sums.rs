//! Summaries: equal to recomputation after any history, equal on replicas that hold the same, built for old shards.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;

use super::*;
use crate::shard::{DocumentDigest, Summary};
use crate::storage::{Direction, Engine};
use crate::wire::codec::{put_bool, put_varint};

const ALL: (Bound<DocId>, Bound<DocId>) = (Bound::Unbounded, Bound::Unbounded);

/// An id that lies anywhere among the others; some are design documents.
fn id_of(n: u16) -> String {
    let mixed = (u32::from(n) * 7919) % 65_521;
    if n.is_multiple_of(97) { format!("_design/{mixed:05}") } else { format!("{mixed:05}") }
}

#[derive(Clone, Debug)]
enum Step {
    /// First document, how many, whether they are deleted, length of the body.
    Edit(u16, u16, bool, usize),
    /// First document, how many.
    Purge(u16, u16),
    Compact,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..1500u16, 1..300u16, prop::bool::weighted(0.25), 0..40usize)
            .prop_map(|(f, c, x, l)| Step::Edit(f, c, x, l)),
        2 => (0..1500u16, 1..200u16).prop_map(|(f, c)| Step::Purge(f, c)),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

async fn digests(w: &World) -> Vec<DocumentDigest> {
    w.shard.digests(ALL.0, ALL.1, usize::MAX).await.unwrap()
}

/// Edits those of the documents that allow it.
async fn edit(w: &World, first: u16, count: u16, deleted: bool, length: usize) {
    let known: BTreeMap<String, DocumentDigest> =
        digests(w).await.into_iter().map(|found| (found.id.to_string(), found)).collect();
    let text = format!("{{\"x\":\"{}\"}}", "y".repeat(length));
    let edit = |n| {
        let id = id_of(n);
        let parent = known.get(&id).filter(|found| !found.leaves[0].1).map(|found| found.leaves[0].0.clone());
        interactive(&id, parent.as_ref(), deleted, &text)
    };
    w.shard.edit((first..first + count).map(edit).collect()).await.unwrap();
}

async fn purge(w: &World, first: u16, count: u16) {
    let names: Vec<String> = (first..first + count).map(id_of).collect();
    let found = digests(w).await.into_iter().filter(|found| names.contains(&found.id.to_string()));
    let items = found.map(|found| (found.id, found.leaves.into_iter().map(|leaf| leaf.0).collect())).collect();
    w.shard.purge(items).await.unwrap();
}

fn sum<'d>(found: impl Iterator<Item = &'d (DocumentDigest, u64)>) -> Summary {
    found.fold(Summary::default(), |mut sum, (found, bytes)| {
        let live = u64::from(!found.leaves[0].1);
        sum.live += live;
        sum.deleted += 1 - live;
        sum.design += if found.id.is_design() { live } else { 0 };
        sum.external += bytes;
        sum.digest = sum.digest.wrapping_add(found.digest);
        sum
    })
}

/// What can be recomputed of it.
fn without_active(summary: Summary) -> Summary {
    Summary { active: 0, ..summary }
}

async fn compare(w: &World, probes: &[(u16, u16)]) {
    let found = digests(w).await;
    let wants = found.iter().map(|found| (found.id.clone(), Want::Leaves)).collect();
    let bodies = w.shard.fetch(wants).await.unwrap().into_iter().map(|fetched| {
        let leaves = fetched.unwrap().found;
        let bytes = |stored: &StoredRevision| {
            stored.body.len() as u64 + stored.attachments.iter().map(|a| a.length).sum::<u64>()
        };
        leaves.iter().map(|(_, stored)| bytes(stored.as_ref().unwrap())).sum()
    });
    let all: Vec<(DocumentDigest, u64)> = found.into_iter().zip(bodies).collect();
    let live: Vec<&DocId> = all.iter().filter(|d| !d.0.leaves[0].1).map(|d| &d.0.id).collect();
    assert_eq!(without_active(w.shard.summary(ALL.0, ALL.1).await.unwrap()), sum(all.iter()));
    let last = w.shard.info().await.unwrap().update_seq;
    for (a, b) in probes {
        let (low, high) = (DocId::new(&id_of(*a)), DocId::new(&id_of(*b)));
        let inside = |id: &DocId| *id >= low && *id < high;
        let (start, end) = (Bound::Included(low.clone()), Bound::Excluded(high.clone()));
        let expected = sum(all.iter().filter(|d| inside(&d.0.id)));
        let found = w.shard.summary(start.clone(), end.clone()).await.unwrap();
        assert_eq!(without_active(found), expected, "{low} {high}");
        let rows: Vec<&&DocId> = live.iter().filter(|id| inside(id)).collect();
        let place = u64::from(*a) % (rows.len() as u64 + 2);
        let at = w.shard.select(start.clone(), end.clone(), Direction::Forward, place).await.unwrap();
        assert_eq!(at.as_ref(), rows.get(place as usize).map(|id| **id));
        let at = w.shard.select(start.clone(), end.clone(), Direction::Reverse, place).await.unwrap();
        assert_eq!(at.as_ref(), rows.iter().rev().nth(place as usize).map(|id| **id));
        let parts = w.shard.split(start.clone(), end.clone(), 1 + usize::from(*b % 9)).await.unwrap();
        assert_eq!((&parts[0].start, &parts.last().unwrap().end), (&start, &end));
        for part in &parts {
            let own = w.shard.summary(part.start.clone(), part.end.clone()).await.unwrap();
            assert_eq!(part.summary, own, "{low} {high}");
        }
        let seq = u64::from(*a) * 7 % (last + 3);
        let behind = sum(all.iter().filter(|d| d.0.local_seq > seq));
        assert_eq!(without_active(w.shard.summary_since(seq).await.unwrap()), behind, "{seq}");
        assert_eq!(w.shard.count_since(seq).await.unwrap(), behind.documents());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn summaries_equal_recomputation(
        steps in prop::collection::vec(step(), 4..10),
        probes in prop::collection::vec((0..1800u16, 0..1800u16), 3..6),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut w = World::new().await;
            edit(&w, 0, 1300, false, 5).await;
            for step in steps {
                match step {
                    Step::Edit(first, count, deleted, length) => edit(&w, first, count, deleted, length).await,
                    Step::Purge(first, count) => purge(&w, first, count).await,
                    Step::Compact => w.compact(1000).await,
                    Step::Reopen => w = w.reopen().await,
                }
                compare(&w, &probes).await;
            }
        });
    }
}

/// A second replica beside that of `w`.
async fn second(w: &World) -> ShardReplica {
    ShardReplica::open(&w.storage, ShardId(21)).await.unwrap()
}

#[tokio::test]
async fn replicas_with_the_same_leaves_have_the_same_digest_whatever_the_order_of_writes() {
    let w = World::new().await;
    let other = second(&w).await;
    let names = |n: usize| [format!("2-b{n}"), format!("1-a{n}")];
    let edits = |n: usize| {
        let names = names(n);
        let id = format!("d{n}");
        let long = merge(&id, path(&[&names[0], &names[1]]), n.is_multiple_of(7), "{}");
        let conflict = merge(&id, path(&["1-c"]), false, "{}");
        [long, conflict]
    };
    w.shard.edit((0..200).flat_map(edits).collect()).await.unwrap();
    // Other sequences, other jobs, and the ancestor is not known.
    for n in (0..200).rev() {
        let [_, conflict] = edits(n);
        let short = merge(&format!("d{n}"), path(&[&names(n)[0]]), n.is_multiple_of(7), "{}");
        other.edit(vec![conflict, short]).await.unwrap();
    }
    let digest = async |replica: &ShardReplica| replica.summary(ALL.0, ALL.1).await.unwrap();
    assert_eq!(digest(&w.shard).await, digest(&other).await);
    assert_eq!(w.shard.split(ALL.0, ALL.1, 9).await.unwrap(), other.split(ALL.0, ALL.1, 9).await.unwrap());
    other.edit(vec![merge("d77", path(&["2-x", "1-c"]), true, "{}")]).await.unwrap();
    assert_ne!(digest(&w.shard).await.digest, digest(&other).await.digest);
}

#[tokio::test]
async fn a_difference_is_found_by_halving_and_is_the_only_one() {
    let w = World::new().await;
    let other = second(&w).await;
    let edit = |n: usize| merge(&format!("d{n:04}"), path(&["1-a"]), false, "{}");
    w.shard.edit((0..1500).map(edit).collect()).await.unwrap();
    other.edit((0..1500).filter(|n| *n != 777).map(edit).collect()).await.unwrap();
    other.edit(vec![merge("d0099", path(&["2-b", "1-a"]), true, "{}")]).await.unwrap();
    let (mut open, mut found, mut asked) = (vec![ALL], Vec::new(), 0);
    while let Some((start, end)) = open.pop() {
        for part in w.shard.split(start, end, 8).await.unwrap() {
            asked += 1;
            let theirs = other.summary(part.start.clone(), part.end.clone()).await.unwrap();
            if theirs.digest == part.summary.digest {
                continue;
            }
            match part.summary.documents() {
                0..8 => found.extend(w.shard.digests(part.start, part.end, 100).await.unwrap()),
                _ => open.push((part.start, part.end)),
            }
        }
    }
    let theirs = other.digests(ALL.0, ALL.1, usize::MAX).await.unwrap();
    found.retain(|mine| theirs.iter().all(|their| (&their.id, their.digest) != (&mine.id, mine.digest)));
    assert_eq!(found.iter().map(|d| d.id.as_str()).collect::<Vec<_>>(), ["d0777", "d0099"]);
    assert!(asked < 70, "{asked} of 1500");
}

/// Writes a shard as version 1 did it: header and documents, without anything above them.
async fn as_version_1(w: &World) {
    let plain = digests(w).await;
    let info = w.shard.info().await.unwrap();
    let wants = plain.iter().map(|d| (d.id.clone(), Want::Tree)).collect();
    let trees = w.shard.fetch(wants).await.unwrap();
    let key = |kind: u8, rest: &[u8]| [&SHARD.0.to_be_bytes()[..], &[kind], rest].concat();
    let mut records = Vec::new();
    for (d, fetched) in plain.iter().zip(trees) {
        let tree = fetched.unwrap().tree;
        let mut out = vec![1];
        put_varint(&mut out, d.local_seq);
        put_varint(&mut out, tree.winner().unwrap().value.body);
        put_varint(&mut out, d.leaves.len() as u64);
        for (rev, deleted) in &d.leaves {
            put_bool(&mut out, *deleted);
            crate::shard::record::put_rev(&mut out, rev);
        }
        tree.encode(&mut out, |data, out| {
            put_bool(out, data.deleted);
            [data.body, data.active, data.external].into_iter().for_each(|n| put_varint(out, n));
        });
        records.push((key(b'd', d.id.as_str().as_bytes()), out));
    }
    let mut header = vec![1];
    let bodies = 1_000_000;
    for number in [info.update_seq, info.purge_seq, bodies, info.doc_count, info.doc_del_count, info.design_count] {
        put_varint(&mut header, number);
    }
    [info.sizes.active, info.sizes.external, info.sizes.file, 0].into_iter().for_each(|n| put_varint(&mut header, n));
    records.push((key(b'h', b""), header));
    records.push((key(b'c', &0u64.to_be_bytes()), 9u64.to_be_bytes().to_vec()));
    w.shard.close();
    for kind in [b'k', b'q'] {
        let range = crate::storage::KeyRange::prefix(&key(kind, b""));
        crate::shard::sweep::round(&w.storage, range).await.unwrap();
    }
    let write = move |view: &mut crate::storage::WriteView<'_>| {
        records.into_iter().for_each(|(key, value)| view.put(key, value));
        Ok(Ok::<_, ()>(()))
    };
    w.storage.committer().submit(write).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_shard_of_the_first_version_gets_its_summaries_when_it_is_opened() {
    let w = World::new().await;
    edit(&w, 0, 1200, false, 5).await;
    edit(&w, 100, 300, true, 2).await;
    let mut writer = w.shard.stage(crate::storage::StageMode::Plain);
    writer.write(bytes::Bytes::from_static(b"content")).await.unwrap();
    let new = EditAttachment::New(writer.finish().await.unwrap().attachment("f", "x/y", 1));
    w.edit(Edit { attachments: vec![new], ..interactive("with", None, false, "{}") }).await.unwrap();
    let (before, all) = (digests(&w).await, w.shard.summary(ALL.0, ALL.1).await.unwrap());
    as_version_1(&w).await;
    let w = w.reopen().await;
    assert_eq!(digests(&w).await, before);
    assert_eq!(w.shard.summary(ALL.0, ALL.1).await.unwrap(), all);
    compare(&w, &[(3, 900), (700, 20), (1, 1100), (1000, 55)]).await;
    edit(&w, 50, 200, true, 3).await;
    purge(&w, 10, 100).await;
    compare(&w, &[(3, 900), (700, 20), (1, 1100), (1000, 55)]).await;
}

#[tokio::test]
async fn attachments_are_part_of_a_documents_digest() {
    let dir = tempfile::tempdir().unwrap();
    let env = crate::world::tokio_host::env(tokio::runtime::Handle::current());
    let options = StorageOptions { engine: Engine::Memory, ..StorageOptions::default() };
    let storage = Storage::open(env, dir.path(), options).await.unwrap();
    let mut digests = Vec::new();
    for (shard, content) in [(30, "one"), (31, "one"), (32, "two")] {
        let replica = ShardReplica::open(&storage, ShardId(shard)).await.unwrap();
        let mut writer = replica.stage(crate::storage::StageMode::Plain);
        writer.write(bytes::Bytes::from(content)).await.unwrap();
        let new = EditAttachment::New(writer.finish().await.unwrap().attachment("f", "x/y", 1));
        let edit = Edit { attachments: vec![new], ..merge("a", path(&["1-a"]), false, "{}") };
        replica.edit(vec![edit]).await.unwrap().remove(0).unwrap();
        digests.push(replica.summary(ALL.0, ALL.1).await.unwrap().digest);
    }
    assert!(digests[0] == digests[1] && digests[1] != digests[2]);
}
