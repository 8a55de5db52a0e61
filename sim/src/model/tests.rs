//! The oracle checked by hand-made histories: it must accept the right ones and name each kind of breach.

use super::*;

fn put(parent: Option<&str>, v: u64) -> Edit {
    Edit {
        doc: "d".into(),
        parent: parent.map(str::to_owned),
        deleted: false,
        v: Some(v),
        blobs: vec![],
        given: None,
        outcome: Outcome::Unknown,
    }
}

fn leaf(path: &[&str], v: u64) -> Leaf {
    Leaf { path: path.iter().map(|r| (*r).to_owned()).collect(), deleted: false, v: Some(v) }
}

#[test]
fn revisions_are_those_of_the_reference() {
    assert_eq!(revision(&put(None, 1), None), "1-7a7e4b29f3af401e69b6f86e4c26b727");
    let second =
        revision(&put(Some("1-7a7e4b29f3af401e69b6f86e4c26b727"), 2), Some("1-7a7e4b29f3af401e69b6f86e4c26b727"));
    assert_eq!(second, "2-d0df861eb528e79690cd2ff3c4d394f3");
    let empty = Edit { v: None, ..put(None, 0) };
    assert_eq!(revision(&empty, None), "1-967a00dff5e02add41819138abb3284d");
}

#[test]
fn an_acknowledged_revision_that_is_gone_breaks_i1() {
    let mut model = Model::default();
    let first = revision(&put(None, 1), None);
    let edit = model.invoke(put(None, 1));
    model.settle(edit, Outcome::Acknowledged(first.clone())).expect("it makes that revision");
    let before = model.lasting("d");
    assert_eq!(model.saw_tree("d", &[leaf(&[&first], 1)], &before), Ok(()));
    assert_eq!(model.saw_tree("d", &[], &before).expect_err("lost").invariant, "I1");
}

#[test]
fn a_refused_edit_that_shows_up_breaks_i3() {
    let mut model = Model::default();
    let first = revision(&put(None, 1), None);
    let edit = model.invoke(put(None, 1));
    model.settle(edit, Outcome::Refused).expect("fine");
    assert_eq!(model.saw_tree("d", &[leaf(&[&first], 1)], &BTreeSet::new()).expect_err("refused").invariant, "I3");
}

#[test]
fn an_unknown_edit_may_be_there_or_not_but_stays_once_it_was_seen() {
    let mut model = Model::default();
    let first = revision(&put(None, 1), None);
    model.invoke(put(None, 1));
    assert_eq!(model.saw_tree("d", &[], &BTreeSet::new()), Ok(()));
    assert_eq!(model.saw_tree("d", &[leaf(&[&first], 1)], &BTreeSet::new()), Ok(()));
    let before = model.lasting("d");
    assert_eq!(model.saw_tree("d", &[], &before).expect_err("vanished").invariant, "I6");
}

#[test]
fn a_revision_from_nowhere_and_a_wrong_body_are_found() {
    let mut model = Model::default();
    let first = revision(&put(None, 1), None);
    model.invoke(put(None, 1));
    assert_eq!(model.saw("d", "1-00000000000000000000000000000000", Some(1)).expect_err("phantom").invariant, "I9");
    assert_eq!(model.saw("d", &first, Some(2)).expect_err("wrong body").invariant, "I27");
}

/// A document was written, deleted and written again, and the first of it was acknowledged: the revisions, and the edit
/// that made the last one.
fn over_a_tombstone(model: &mut Model) -> ([String; 3], usize) {
    let first = revision(&put(None, 1), None);
    let edit = model.invoke(put(None, 1));
    model.settle(edit, Outcome::Acknowledged(first.clone())).expect("fine");
    let delete = Edit { deleted: true, v: None, ..put(Some(&first), 0) };
    let tombstone = revision(&delete, Some(&first));
    model.invoke(delete);
    let again = put(None, 3);
    let third = revision(&again, Some(&tombstone));
    let edit = model.invoke(again);
    ([first, tombstone, third], edit)
}

#[test]
fn writing_again_over_a_tombstone_is_explained() {
    let mut model = Model::default();
    let ([first, tombstone, third], edit) = over_a_tombstone(&mut model);
    assert_eq!(model.settle(edit, Outcome::Acknowledged(third.clone())), Ok(()));
    let before = model.lasting("d");
    assert_eq!(model.saw_tree("d", &[leaf(&[&third, &tombstone, &first], 3)], &before), Ok(()));
}

#[test]
fn what_was_written_over_a_tombstone_that_nobody_saw_is_recognized() {
    let mut model = Model::default();
    // Neither the deletion nor what came after it was answered, and both were done.
    let ([_, _, third], _) = over_a_tombstone(&mut model);
    assert_eq!(model.saw("d", &third, Some(3)), Ok(()));
}

#[test]
fn the_winner_is_live_then_long_then_high() {
    let dead = Leaf { deleted: true, ..leaf(&["9-ff"], 1) };
    let leaves = [leaf(&["2-aa"], 1), leaf(&["2-ab"], 1), dead, leaf(&["1-ff"], 1)];
    assert_eq!(winner(&leaves).map(|l| l.path[0].as_str()), Some("2-ab"));
}

#[test]
fn a_foreign_server_names_revisions_and_is_held_to_them() {
    let mut model = Model { foreign: true, ..Model::default() };
    let first = model.invoke(put(None, 1));
    model.settle(first, Outcome::Acknowledged("1-a".into())).expect("any name will do");
    let open = model.invoke(put(Some("1-a"), 2));
    let refused = model.invoke(put(Some("1-a"), 3));
    model.settle(refused, Outcome::Refused).expect("fine");
    let before = model.lasting("d");
    assert_eq!(model.saw_tree("d", &[leaf(&["2-b", "1-a"], 2)], &before), Ok(()), "the open one came");
    assert_eq!(model.saw_tree("d", &[leaf(&["2-c", "1-a"], 3)], &before).expect_err("refused").invariant, "I3");
    assert_eq!(model.saw_tree("d", &[leaf(&["2-d", "1-a"], 4)], &before).expect_err("a stranger").invariant, "I9");
    assert_eq!(model.saw_tree("d", &[], &before).expect_err("gone").invariant, "I1");
    assert_eq!(model.settle(open, Outcome::Acknowledged("7-b".into())).expect_err("a jump").invariant, "I9");
}
