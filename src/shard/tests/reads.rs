//! Lists, changes and counts over more rows than one step reads.

use std::ops::Bound;

use super::*;
use crate::limits;
use crate::shard::ListPage;
use crate::storage::Direction;

const DOCUMENTS: usize = limits::STEP_ROWS * 2 + 500;

/// `d0000`.., every fifth deleted, one design document.
async fn filled() -> World {
    let w = World::new().await;
    let id = |n: usize| format!("d{n:04}");
    let edits = (0..DOCUMENTS).map(|n| interactive(&id(n), None, n % 5 == 0, "{}")).collect();
    assert!(w.shard.edit(edits).await.unwrap().iter().all(Result::is_ok));
    w.put("_design/x", None, "{}").await.unwrap();
    w
}

fn page(start: Bound<&str>, end: Bound<&str>, descending: bool, limit: usize) -> ListPage {
    ListPage { start: start.map(DocId::new), end: end.map(DocId::new), descending, limit, bodies: true }
}

async fn ids(w: &World, page: ListPage) -> Vec<String> {
    let rows = w.shard.list(page).await.unwrap();
    assert!(rows.iter().all(|row| row.winner.as_ref().is_some_and(|stored| stored.rev == *row.rev())));
    rows.into_iter().map(|row| row.id.to_string()).collect()
}

#[tokio::test]
async fn lists_show_live_documents_in_order_from_either_end() {
    use Bound::{Excluded, Included, Unbounded};
    let w = filled().await;
    let live = DOCUMENTS - DOCUMENTS / 5;
    let all = ids(&w, page(Unbounded, Unbounded, false, usize::MAX)).await;
    assert_eq!(all.len(), live + 1);
    assert!(all.is_sorted() && all[0] == "_design/x");
    let mut reversed = ids(&w, page(Unbounded, Unbounded, true, usize::MAX)).await;
    reversed.reverse();
    assert_eq!(reversed, all);
    assert_eq!(ids(&w, page(Included("d0001"), Excluded("d0004"), false, 10)).await, ["d0001", "d0002", "d0003"]);
    assert_eq!(ids(&w, page(Excluded("d0001"), Included("d0004"), true, 2)).await, ["d0004", "d0003"]);
    assert_eq!(ids(&w, page(Included("d1000"), Unbounded, false, 1500)).await.len(), 1200);
    assert_eq!(w.shard.count(Unbounded, Unbounded).await.unwrap(), live as u64 + 1);
    assert_eq!(w.shard.count(Unbounded, Excluded(DocId::new("d2000"))).await.unwrap(), 1601);
    let info = w.shard.info().await.unwrap();
    assert_eq!((info.doc_count, info.doc_del_count, info.design_count), (live as u64 + 1, 500, 1));
}

#[tokio::test]
async fn lists_that_are_begun_together_are_read_to_their_ends() {
    use Bound::{Excluded, Included, Unbounded};
    let w = filled().await;
    let pages = [
        page(Unbounded, Unbounded, false, usize::MAX),
        page(Unbounded, Unbounded, true, 7),
        page(Included("d1000"), Excluded("d2400"), false, 1100),
        page(Excluded("d2400"), Unbounded, true, 0),
    ];
    let together = ShardReplica::lists(pages.iter().map(|page| (w.shard.clone(), page.clone())).collect()).await;
    assert_eq!(together.len(), pages.len());
    for (rows, page) in together.into_iter().zip(pages) {
        let rows: Vec<String> = rows.unwrap().into_iter().map(|row| row.id.to_string()).collect();
        assert_eq!(rows, ids(&w, page).await);
    }
    w.shard.close();
    let closed = ShardReplica::lists(vec![(w.shard.clone(), page(Unbounded, Unbounded, false, 1))]).await;
    assert!(matches!(&closed[..], [Err(crate::shard::ShardError::Dropped)]));
}

#[tokio::test]
async fn a_page_of_large_documents_ends_early_and_an_empty_one_ends_the_list() {
    use Bound::{Excluded, Included, Unbounded};
    let w = filled().await;
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(limits::STEP_BYTES / 2));
    for id in ["l1", "l2", "l3"] {
        w.put(id, None, &large).await.unwrap();
    }
    assert_eq!(ids(&w, page(Included("l1"), Unbounded, false, 10)).await, ["l1", "l2"]);
    assert_eq!(ids(&w, page(Excluded("l2"), Unbounded, false, 10)).await, ["l3"]);
    assert!(ids(&w, page(Excluded("l3"), Unbounded, false, 10)).await.is_empty());
}

#[tokio::test]
async fn changes_come_in_order_with_what_is_pending() {
    let w = filled().await;
    let total = DOCUMENTS as u64 + 1;
    let all = w.shard.changes(0, Direction::Forward, usize::MAX).await.unwrap();
    assert_eq!((all.rows.len() as u64, all.pending_after, all.last_seq), (total, 0, total));
    assert!(all.rows.iter().map(|row| row.seq).eq(1..=total));
    let some = w.shard.changes(100, Direction::Forward, 1200).await.unwrap();
    assert_eq!((some.rows[0].seq, some.last_seq, some.pending_after), (101, 1300, total - 1300));
    let none = w.shard.changes(total, Direction::Forward, 10).await.unwrap();
    assert_eq!((none.rows.len(), none.pending_after, none.last_seq), (0, 0, total));
    let peek = w.shard.changes(0, Direction::Forward, 0).await.unwrap();
    assert_eq!((peek.rows.len(), peek.pending_after, peek.last_seq), (0, total, 0));
    let back = w.shard.changes(u64::MAX, Direction::Reverse, 2000).await.unwrap();
    assert!(back.rows.iter().map(|row| row.seq).eq((total - 1999..=total).rev()));
    assert_eq!(back.pending_after, total - 2000);
    assert_eq!(w.shard.count_since(1300).await.unwrap(), total - 1300);
    // A changed document moves to the end and stays one row.
    let row = &all.rows[1];
    w.put(row.id.as_str(), Some(&row.leaves[0].0), "{}").await.unwrap();
    let after = w.shard.changes(0, Direction::Forward, usize::MAX).await.unwrap();
    assert_eq!(after.rows.len() as u64, total);
    assert_eq!(after.rows.last().unwrap().id, row.id);
}

#[tokio::test]
async fn many_and_large_documents_are_fetched_in_request_order() {
    let w = filled().await;
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(limits::STEP_BYTES / 2));
    for id in ["l1", "l2", "l3"] {
        w.put(id, None, &large).await.unwrap();
    }
    let mut names: Vec<String> = (0..limits::STEP_ROWS + 5).map(|n| format!("d{n:04}")).rev().collect();
    names.extend(["l2", "none", "l1", "l3"].map(str::to_owned));
    let wants = names.iter().map(|id| (DocId::new(id), Want::Winner)).collect();
    let found = w.shard.fetch(wants).await.unwrap();
    assert_eq!(found.len(), names.len());
    for (name, fetched) in names.iter().zip(&found) {
        let stored = fetched.as_ref().map(|f| f.found[0].1.as_ref().unwrap());
        assert_eq!(stored.map(|s| s.body.len() > 2), (name != "none").then_some(name.starts_with('l')), "{name}");
    }
}

#[tokio::test]
async fn latest_means_the_leaves_below() {
    let w = World::new().await;
    for leaf in ["2-bb", "2-cc"] {
        w.edit(merge("a", path(&[leaf, "1-aa"]), false, "{}")).await.unwrap();
    }
    let read = async |revs: &[&str], latest| {
        let want = Want::Revisions { revs: revs.iter().map(|r| rev(r)).collect(), latest };
        let found = w.shard.fetch(vec![(DocId::new("a"), want)]).await.unwrap().remove(0).unwrap().found;
        found.into_iter().map(|(rev, stored)| (rev.to_string(), stored.is_some())).collect::<Vec<_>>()
    };
    let pair = |name: &str, there| (name.to_owned(), there);
    assert_eq!(
        read(&["1-aa", "2-bb", "9-x"], true).await,
        [pair("2-cc", true), pair("2-bb", true), pair("9-x", false)]
    );
    assert_eq!(read(&["1-aa", "2-bb"], false).await, [pair("1-aa", false), pair("2-bb", true)]);
}
