//! The tree's rules by example, and its laws by random histories.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A value that tells which revision it belongs to.
#[derive(Clone, PartialEq, Debug)]
struct Content {
    deleted: bool,
    of: String,
}

impl RevValue for Content {
    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

fn rev(text: &str) -> Revision {
    Revision::parse(text).expect("a revision")
}

fn path(start: u64, ids: &[&str]) -> RevPath {
    RevPath { start, ids: ids.iter().map(|id| RevHash::parse(id).expect("a hash")).collect() }
}

fn content(deleted: bool, rev: &Revision) -> Content {
    Content { deleted, of: rev.to_string() }
}

fn add(tree: &mut RevTree<Content>, start: u64, ids: &[&str], deleted: bool) -> Merged {
    let path = path(start, ids);
    tree.merge(&path, content(deleted, &path.head()))
}

fn tree(live: &[(u64, &[&str])]) -> RevTree<Content> {
    let mut tree = RevTree::new();
    for (start, ids) in live {
        add(&mut tree, *start, ids, false);
    }
    tree
}

fn leaves(tree: &RevTree<Content>) -> Vec<String> {
    tree.leaves().iter().map(|leaf| leaf.rev.to_string()).collect()
}

fn texts(revs: &[Revision]) -> Vec<String> {
    revs.iter().map(Revision::to_string).collect()
}

#[test]
fn merges_tell_what_they_did() {
    let mut t = RevTree::new();
    assert!(t.is_empty() && t.winner().is_none());
    assert_eq!(add(&mut t, 1, &["a"], false), Merged::NewLeaf);
    assert_eq!(add(&mut t, 1, &["a"], false), Merged::Known);
    assert_eq!(add(&mut t, 2, &["b", "a"], false), Merged::NewLeaf);
    assert_eq!(add(&mut t, 2, &["c", "a"], false), Merged::NewBranch);
    assert_eq!(add(&mut t, 4, &["e", "d", "c"], false), Merged::NewLeaf);
    assert_eq!(t.get(&rev("3-d")), Some(None));
    assert_eq!(add(&mut t, 3, &["d", "c"], true), Merged::Filled);
    assert_eq!(t.get(&rev("3-d")).flatten().map(|c| c.deleted), Some(true));
    assert_eq!(leaves(&t), ["4-e", "2-b"]);
    assert_eq!(add(&mut t, 9, &["z"], false), Merged::NewBranch);
    assert_eq!(add(&mut t, 9, &["z", "y"], false), Merged::Joined);
    assert_eq!(t.get(&rev("7-q")), None);
}

#[test]
fn winners_are_live_then_long_then_high() {
    let mut t = tree(&[(1, &["a"]), (2, &["b", "a"]), (2, &["c", "a"])]);
    add(&mut t, 3, &["d", "a2", "a"], true);
    add(&mut t, 2, &["ff000000000000000000000000000000", "a"], false);
    assert_eq!(leaves(&t), ["2-ff000000000000000000000000000000", "2-c", "2-b", "3-d"]);
    let mut dead = RevTree::new();
    add(&mut dead, 1, &["b"], true);
    add(&mut dead, 1, &["c"], true);
    assert_eq!(dead.winner().map(|l| l.rev.to_string()), Some("1-c".to_owned()));
}

#[test]
fn a_gap_is_joined_when_it_is_filled() {
    let mut t = tree(&[(1, &["a"]), (4, &["d", "c"])]);
    assert_eq!(leaves(&t), ["4-d", "1-a"]);
    assert_eq!(add(&mut t, 3, &["c", "b", "a"], false), Merged::Filled);
    assert_eq!(leaves(&t), ["4-d"]);
    assert_eq!(t.path_to(&rev("4-d")), Some(path(4, &["d", "c", "b", "a"])));
    let infos: Vec<(String, bool)> =
        t.revs_info(&rev("4-d")).iter().map(|(r, v)| (r.to_string(), v.is_some())).collect();
    let expected = [("4-d", true), ("3-c", true), ("2-b", false), ("1-a", true)];
    assert_eq!(infos, expected.map(|(r, v)| (r.to_owned(), v)));
    assert!(t.is_leaf(&rev("4-d")) && !t.is_leaf(&rev("3-c")) && !t.is_leaf(&rev("9-x")));
}

#[test]
fn a_tree_united_with_another_has_the_contents_of_both() {
    // One knows the first revision by name only.
    let mut one = tree(&[(2, &["b", "a"])]);
    let other = tree(&[(1, &["a"]), (2, &["c", "a"])]);
    one.unite(&other);
    assert_eq!(leaves(&one), ["2-c", "2-b"]);
    assert_eq!(one.get(&rev("1-a")), Some(Some(&content(false, &rev("1-a")))));
}

#[test]
fn leaves_below_a_fork() {
    let t = tree(&[(1, &["a"]), (3, &["c", "b", "a"]), (3, &["d", "b", "a"]), (2, &["x", "a"])]);
    let below = |r: &str| t.leaves_below(&rev(r)).iter().map(|l| l.rev.to_string()).collect::<Vec<_>>();
    assert_eq!(below("2-b"), ["3-d", "3-c"]);
    assert_eq!(below("1-a"), ["3-d", "3-c", "2-x"]);
    assert_eq!(below("2-x"), ["2-x"]);
    assert!(below("5-q").is_empty());
}

#[test]
fn stemming_keeps_the_newest_of_each_branch() {
    let mut t =
        tree(&[(1, &["a"]), (2, &["b", "a"]), (3, &["c", "b", "a"]), (4, &["d", "c", "b", "a"]), (2, &["x", "a"])]);
    let dropped: Vec<String> = t.stem(2).into_iter().map(|c| c.of).collect();
    assert_eq!(dropped, ["2-b"]);
    assert_eq!(t.path_to(&rev("4-d")), Some(path(4, &["d", "c"])));
    assert_eq!(t.path_to(&rev("2-x")), Some(path(2, &["x", "a"])));
    assert_eq!(t.stem(1).len(), 2);
    assert_eq!(leaves(&t), ["4-d", "2-x"]);
    assert!(t.stem(0).is_empty());
}

#[test]
fn purging_takes_a_leaf_with_its_own_ancestors() {
    let mut t = tree(&[(1, &["a"]), (2, &["b", "a"]), (3, &["c", "b", "a"]), (2, &["x", "a"])]);
    assert_eq!(t.purge(&[rev("2-b"), rev("9-q")]), (vec![], vec![]));
    let (purged, dropped) = t.purge(&[rev("3-c"), rev("2-b"), rev("3-c")]);
    assert_eq!(texts(&purged), ["3-c"]);
    assert_eq!(dropped.iter().map(|c| c.of.as_str()).collect::<Vec<_>>(), ["2-b", "3-c"]);
    assert_eq!(leaves(&t), ["2-x"]);
    assert_eq!(texts(&t.purge(&[rev("2-x")]).0), ["2-x"]);
    assert!(t.is_empty());
}

#[test]
fn missing_revisions_and_possible_ancestors() {
    let t = tree(&[(1, &["a"]), (3, &["c", "b", "a"]), (2, &["x", "a"])]);
    let found = t.missing(&[rev("3-c"), rev("2-b"), rev("3-q"), rev("1-z")]);
    assert_eq!(texts(&found.missing), ["1-z", "3-q"]);
    assert_eq!(texts(&found.possible_ancestors), ["2-x"]);
    assert_eq!(t.missing(&[rev("1-a")]), Missing::default());
    assert_eq!(texts(&t.missing(&[rev("4-q")]).possible_ancestors), ["2-x", "3-c"]);
    assert_eq!(texts(&RevTree::<Content>::new().missing(&[rev("4-q")]).missing), ["4-q"]);
}

#[test]
fn one_name_under_two_parents_keeps_both() {
    let orders = [[1usize, 2, 0], [2, 1, 0], [0, 1, 2]];
    let paths: [&[&str]; 3] = [&["x", "b"], &["x", "a"], &["x", "c"]];
    let mut seen = BTreeSet::new();
    for order in orders {
        let mut t = RevTree::new();
        for at in order {
            add(&mut t, 2, paths[at], false);
        }
        assert_eq!(t.path_to(&rev("2-x")), Some(path(2, &["x", "c"])));
        assert_eq!(leaves(&t), ["2-x"]);
        assert_eq!(decoded(&encoded(&t)).as_ref(), Ok(&t));
        seen.insert(encoded(&t));
    }
    assert_eq!(seen.len(), 1);
}

#[test]
fn long_and_wide_trees_are_quick() {
    let names: Vec<String> = (0..1000).rev().map(|n| format!("{n:032x}")).collect();
    let ids: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut t = RevTree::new();
    for length in 1..=1000 {
        assert_eq!(add(&mut t, length as u64, &ids[1000 - length..], false), Merged::NewLeaf);
    }
    for n in 0..1000 {
        add(&mut t, 2, &[&format!("w{n}"), ids[999]], n % 2 == 0);
    }
    assert_eq!(t.leaves().len(), 1001);
    assert_eq!(t.path_to(&rev(&format!("1000-{}", ids[0]))).map(|p| p.ids.len()), Some(1000));
    assert_eq!(decoded(&encoded(&t)).as_ref(), Ok(&t));
    assert_eq!(t.stem(10).len(), 989);
}

fn encoded(tree: &RevTree<Content>) -> Vec<u8> {
    let mut out = Vec::new();
    tree.encode(&mut out, |content, out| {
        out.push(u8::from(content.deleted));
        put_bytes(out, content.of.as_bytes());
    });
    out
}

fn decoded(bytes: &[u8]) -> Result<RevTree<Content>, CodecError> {
    let mut reader = Reader::new(bytes);
    let tree = RevTree::decode(&mut reader, |r| Ok(Content { deleted: r.bool()?, of: r.str()?.to_owned() }))?;
    reader.finish()?;
    Ok(tree)
}

/// A history out of a small world of names, so that histories meet, fork, contradict and leave gaps. Whether a
/// revision is a tombstone follows from its name, as content follows from a hash.
fn any_path() -> impl Strategy<Value = RevPath> {
    (1u64..7, prop::collection::vec(0u8..3, 1..7)).prop_map(|(start, names)| {
        let length = names.len().min(start as usize);
        RevPath { start, ids: names[..length].iter().map(|n| RevHash::Text(format!("h{n}").into())).collect() }
    })
}

fn merged(paths: &[RevPath]) -> RevTree<Content> {
    let mut tree = RevTree::new();
    for path in paths {
        let head = path.head();
        let deleted = head.to_string().ends_with('2');
        tree.merge(path, content(deleted, &head));
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_order_of_merges_does_not_matter(paths in prop::collection::vec(any_path(), 0..12), seed: u64) {
        let once = merged(&paths);
        let mut other = paths.clone();
        let mut state = seed;
        for at in (1..other.len()).rev() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            other.swap(at, (state >> 33) as usize % (at + 1));
        }
        prop_assert_eq!(&merged(&other), &once);
        // Again, all of them: nothing changes.
        other.extend(paths.iter().cloned());
        prop_assert_eq!(&merged(&other), &once);
        let mut again = once.clone();
        for path in &paths {
            let head = path.head();
            prop_assert_eq!(again.merge(path, content(false, &head)), Merged::Known);
        }
        prop_assert_eq!(&again, &once);
    }

    #[test]
    fn every_merged_revision_is_there_and_every_leaf_has_a_value(paths in prop::collection::vec(any_path(), 1..12)) {
        let tree = merged(&paths);
        for path in &paths {
            let head = path.head();
            let found = tree.get(&head).flatten().map(|c| c.of.clone());
            prop_assert_eq!(found, Some(head.to_string()));
            prop_assert!(!tree.leaves_below(&head).is_empty());
        }
        let leaves = tree.leaves();
        prop_assert!(!leaves.is_empty());
        prop_assert_eq!(tree.winner().map(|l| l.rev), leaves.first().map(|l| l.rev.clone()));
        for pair in leaves.windows(2) {
            let key = |l: &Leaf<'_, Content>| (!l.value.deleted, l.rev.clone());
            prop_assert!(key(&pair[0]) > key(&pair[1]));
        }
    }

    #[test]
    fn trees_round_trip(paths in prop::collection::vec(any_path(), 0..12)) {
        let tree = merged(&paths);
        prop_assert_eq!(decoded(&encoded(&tree)), Ok(tree));
    }

    #[test]
    fn damaged_records_never_panic(paths in prop::collection::vec(any_path(), 1..6), at: usize, byte: u8) {
        let mut bytes = encoded(&merged(&paths));
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(tree) = decoded(&bytes) {
            prop_assert_eq!(decoded(&encoded(&tree)), Ok(tree));
        }
        prop_assert!(decoded(&bytes[..at]).is_err());
    }

    #[test]
    fn stemming_keeps_leaves_and_bounds_paths(paths in prop::collection::vec(any_path(), 1..12), limit in 1u64..5) {
        let mut tree = merged(&paths);
        let before = tree.clone();
        let values = before.values().count();
        let dropped = tree.stem(limit).len();
        prop_assert_eq!(tree.values().count() + dropped, values);
        prop_assert_eq!(tree.leaves(), before.leaves());
        prop_assert_eq!(decoded(&encoded(&tree)), Ok(tree.clone()));
        prop_assert!(tree.clone().stem(limit).is_empty());
        for leaf in tree.leaves() {
            let kept = tree.path_to(&leaf.rev).map_or(0, |p| p.ids.len());
            let had = before.path_to(&leaf.rev).map_or(0, |p| p.ids.len());
            prop_assert!(kept >= had.min(limit as usize));
        }
    }

    #[test]
    fn purging_leaves_the_other_leaves(paths in prop::collection::vec(any_path(), 1..12), which: usize) {
        let mut tree = merged(&paths);
        let before: Vec<Revision> = tree.leaves().into_iter().map(|l| l.rev).collect();
        let gone = before[which % before.len()].clone();
        let (purged, _) = tree.purge(std::slice::from_ref(&gone));
        prop_assert_eq!(&purged[..], std::slice::from_ref(&gone));
        let after: BTreeSet<Revision> = tree.leaves().into_iter().map(|l| l.rev).collect();
        let expected: BTreeSet<Revision> = before.into_iter().filter(|r| *r != gone).collect();
        prop_assert_eq!(after, expected);
        prop_assert_eq!(tree.get(&gone), None);
    }
}
