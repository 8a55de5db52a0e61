//! The changes feed over several ranges.

use std::collections::BTreeSet;

use super::*;
use crate::coordinator::{FeedOperations, ReadOperations, WriteOperations};
use crate::limits;
use crate::world::BoxFuture;

/// Reads a round to its end.
async fn drain(feed: &mut Changes) -> Vec<ChangeRow> {
    let mut rows = Vec::new();
    while let Some(page) = feed.next().await.unwrap() {
        rows.extend(page);
    }
    rows
}

async fn read(database: &Arc<Database>, query: ChangesQuery) -> (Vec<ChangeRow>, Changes) {
    let mut feed = database.feeds().changes(query).await.unwrap();
    (drain(&mut feed).await, feed)
}

fn ids(rows: &[ChangeRow]) -> String {
    rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>().join(" ")
}

async fn fill(database: &Arc<Database>, count: usize) {
    let requests = (0..count).map(|n| request(&format!("d{n}"), "{}")).collect();
    assert!(database.writer().write(requests, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
}

#[tokio::test]
async fn going_on_from_any_row_gives_exactly_the_rest() {
    let (_world, _coordinator, database) = database(3).await;
    fill(&database, 40).await;
    let (all, feed) = read(&database, ChangesQuery::default()).await;
    assert_eq!(all.len(), 40);
    assert_eq!((feed.pending().await, feed.last_seq()), (0, all[39].seq.clone().unwrap()));
    for (at, row) in all.iter().enumerate() {
        let since = Since::parse(row.seq.as_ref().unwrap()).unwrap();
        let (rest, _) = read(&database, ChangesQuery { since, ..ChangesQuery::default() }).await;
        assert_eq!(ids(&rest), ids(&all[at + 1..]), "after row {at}");
    }
}

#[tokio::test]
async fn a_feed_since_a_time_begins_before_it_and_what_is_noted_of_times_can_go() {
    let (world, _coordinator, database) = database(3).await;
    fill(&database, 20).await;
    let since = |time: u64| ChangesQuery { since: Since::Time(time), ..ChangesQuery::default() };
    let now = world.env.wall().as_secs();
    for (time, rows) in [(0, 20), (now - 100_000, 20), (now + 100_000, 0)] {
        assert_eq!(read(&database, since(time)).await.0.len(), rows, "{time} at {now}");
    }
    let told = database.feeds().time_seq().await.unwrap();
    assert_eq!(told.len(), database.map().live().len());
    let sum = |told: &[RangeTimes]| -> u64 { told.iter().flat_map(|(_, nodes)| &nodes[0].1).map(|(_, n)| n).sum() };
    assert_eq!(sum(&told), 20);
    database.feeds().clear_time_seq().await.unwrap();
    assert_eq!(sum(&database.feeds().time_seq().await.unwrap()), 0);
    let more = database.writer().write(vec![request("more", "{}")], WriteOptions::default()).await.unwrap();
    assert!(more.iter().all(Result::is_ok));
    let told = database.feeds().time_seq().await.unwrap();
    let bins = told.iter().map(|(_, nodes)| &nodes[0].1).find(|bins| !bins.is_empty()).unwrap();
    assert!(bins[0].0 == 0 && bins[0].1 > 0 && bins[1].0 >= now && bins[1].1 == 1, "{bins:?}");
    assert_eq!(read(&database, since(now)).await.0.len(), 21);
}

#[tokio::test]
async fn the_limit_ends_a_feed_and_the_rest_is_pending() {
    let (_world, _coordinator, database) = database(3).await;
    fill(&database, 1000).await;
    let mut since = Since::Beginning;
    let mut seen = BTreeSet::new();
    for left in [700, 400, 100, 0] {
        let query = ChangesQuery { since: since.clone(), limit: Some(300), ..ChangesQuery::default() };
        let (rows, feed) = read(&database, query).await;
        assert_eq!(
            (rows.len() as u64, feed.pending().await),
            (300.min(left + 300).min(1000 - seen.len() as u64), left)
        );
        assert_eq!(Some(feed.last_seq()), rows.last().unwrap().seq);
        seen.extend(rows.into_iter().map(|row| row.id));
        since = Since::parse(&feed.last_seq()).unwrap();
    }
    assert_eq!(seen.len(), 1000);
}

/// A page that ended with the last row of a range gave a sequence behind rows that the limit had sent back: the one
/// that went on from there never saw them.
#[tokio::test]
async fn a_small_limit_over_several_ranges_leaves_nothing_out() {
    let (_world, _coordinator, database) = database(3).await;
    fill(&database, 12).await;
    for limit in 1..=5 {
        let (mut since, mut seen) = (Since::Beginning, BTreeSet::new());
        for _page in 0..12_u64.div_ceil(limit) {
            let query = ChangesQuery { since: since.clone(), limit: Some(limit), ..ChangesQuery::default() };
            let (rows, feed) = read(&database, query).await;
            seen.extend(rows.into_iter().map(|row| row.id));
            since = Since::parse(&feed.last_seq()).unwrap();
        }
        assert_eq!(seen.len(), 12, "limit {limit}");
    }
}

/// The first page behind the end of the round was the last one: what had moved further was in neither.
#[tokio::test]
async fn a_document_that_moves_far_behind_the_end_while_it_is_read_is_in_the_answer() {
    let (_world, _coordinator, database) = database(1).await;
    let count = 3 * limits::PAGE_ROWS;
    fill(&database, count).await;
    let mut feed = database.feeds().changes(ChangesQuery::default()).await.unwrap();
    let mut rows = feed.next().await.unwrap().unwrap();
    let news = (0..2 * limits::PAGE_ROWS).map(|n| request(&format!("n{n}"), "{}")).collect();
    assert!(database.writer().write(news, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    let last = id(&format!("d{}", count - 1));
    let rev = database.documents().fetch_one(&last, Want::Winner).await.unwrap().unwrap().rev;
    database.writer().delete(&last, Some(rev), WriteOptions::default()).await.unwrap();
    rows.extend(drain(&mut feed).await);
    let seen: BTreeSet<DocId> = rows.into_iter().map(|row| row.id).collect();
    assert!((0..count).all(|n| seen.contains(&id(&format!("d{n}")))));
    assert_eq!(feed.pending().await, 0);
}

/// It moved behind the row that the feed had begun with, and no row of it was in the answer.
#[tokio::test]
async fn a_document_that_changes_while_a_feed_is_read_backwards_is_in_the_answer() {
    let (_world, _coordinator, database) = database(2).await;
    let count = 6 * limits::PAGE_ROWS;
    fill(&database, count).await;
    let mut feed =
        database.feeds().changes(ChangesQuery { descending: true, ..ChangesQuery::default() }).await.unwrap();
    let mut rows = feed.next().await.unwrap().unwrap();
    let news = (0..3 * limits::PAGE_ROWS).map(|n| request(&format!("n{n}"), "{}")).collect();
    assert!(database.writer().write(news, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    for n in 0..4 {
        let first = id(&format!("d{n}"));
        let rev = database.documents().fetch_one(&first, Want::Winner).await.unwrap().unwrap().rev;
        database.writer().delete(&first, Some(rev), WriteOptions::default()).await.unwrap();
    }
    rows.extend(drain(&mut feed).await);
    let deleted: BTreeSet<&str> = rows.iter().filter(|row| row.deleted).map(|row| row.id.as_str()).collect();
    assert_eq!(deleted, BTreeSet::from(["d0", "d1", "d2", "d3"]));
    let seen: BTreeSet<&DocId> = rows.iter().map(|row| &row.id).collect();
    assert!((0..count).all(|n| seen.contains(&id(&format!("d{n}")))));
    assert_eq!(seen.len(), rows.len(), "what was not written twice comes once");
    assert!(feed.is_over() && feed.next().await.unwrap().is_none_or(|rows| rows.is_empty()));
}

#[tokio::test]
async fn descending_begins_with_the_newest() {
    let (_world, _coordinator, database) = database(1).await;
    for name in ["a", "b", "c"] {
        put(&database, name, "{}").await;
    }
    let query = ChangesQuery { descending: true, since: Since::Now, ..ChangesQuery::default() };
    let (rows, feed) = read(&database, query.clone()).await;
    assert_eq!(ids(&rows), "c b a");
    assert_eq!(Some(feed.last_seq()), rows[2].seq);
    let (rows, feed) = read(&database, ChangesQuery { limit: Some(1), ..query }).await;
    assert_eq!((ids(&rows).as_str(), feed.pending().await), ("c", 2));
    assert!(feed.last_seq().starts_with("3-"));
}

#[tokio::test]
async fn rows_show_winners_or_all_leaves_and_documents() {
    let (_world, _coordinator, database) = database(2).await;
    let options = WriteOptions { new_edits: false, ..WriteOptions::default() };
    for text in [r#"{"_rev":"2-b","v":"b"}"#, r#"{"_rev":"1-a","v":"a"}"#, r#"{"_rev":"3-c","_deleted":true}"#] {
        database.writer().write_one(request("x", text), options.clone()).await.unwrap();
    }
    let shown = |rows: &[ChangeRow]| rows[0].revs.iter().map(Revision::to_string).collect::<Vec<_>>().join(" ");
    let (rows, _) = read(&database, ChangesQuery::default()).await;
    assert_eq!((shown(&rows).as_str(), rows[0].deleted), ("2-b", false));
    let query = ChangesQuery { style: Style::AllDocs, include_docs: true, conflicts: true, ..ChangesQuery::default() };
    let (rows, _) = read(&database, query).await;
    assert_eq!(shown(&rows), "2-b 1-a 3-c");
    let doc = rows[0].doc.as_ref().unwrap();
    assert_eq!((&doc.stored.body[..], doc.conflicts.clone()), (&br#"{"v":"b"}"#[..], vec![rev("1-a")]));
}

#[tokio::test]
async fn sequences_come_at_intervals() {
    let (_world, _coordinator, database) = database(2).await;
    fill(&database, 7).await;
    // The reference counts rows down from the limit, 10^15 without one.
    for (interval, limit, shown) in
        [(2, None, "s-s-s-s"), (3, None, "-s--s--"), (2, Some(3), "-s-"), (1, None, "sssssss")]
    {
        let query = ChangesQuery { seq_interval: Some(interval), limit, ..ChangesQuery::default() };
        let (rows, _) = read(&database, query).await;
        let text: String = rows.iter().map(|row| if row.seq.is_some() { 's' } else { '-' }).collect();
        assert_eq!(text, shown, "every {interval}th of {limit:?}");
    }
}

/// Passes every second document by the last digit of its id.
struct EvenIds;

impl RowFilter for EvenIds {
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, Result<Vec<Vec<bool>>, ChangesError>> {
        let passes = |c: &Candidate| c.id.as_str().ends_with(['0', '2', '4', '6', '8']);
        Box::pin(async move { Ok(page.iter().map(|c| c.leaves.iter().map(|_| passes(c)).collect()).collect()) })
    }
}

#[tokio::test]
async fn filters_leave_rows_out_and_the_feed_goes_past_them() {
    let (_world, _coordinator, database) = database(3).await;
    fill(&database, 120).await;
    put(&database, "_design/x", "{}").await;
    let end = read(&database, ChangesQuery::default()).await.1.last_seq();
    let with = |filter| ChangesQuery { filter, ..ChangesQuery::default() };
    let few: BTreeSet<DocId> = ["d5", "d99", "none"].map(DocId::new).into();
    let many: BTreeSet<DocId> = (100..300).map(|n| DocId::new(&format!("d{n}"))).collect();
    let cases: [(ChangesFilter, usize); 4] = [
        (ChangesFilter::Design, 1),
        (ChangesFilter::DocIds(few), 2),
        (ChangesFilter::DocIds(many), 20),
        (ChangesFilter::Rows(Arc::new(EvenIds)), 60),
    ];
    for (filter, count) in cases {
        let (rows, feed) = read(&database, with(filter)).await;
        assert_eq!((rows.len(), feed.last_seq()), (count, end.clone()));
    }
    let query = ChangesQuery { limit: Some(5), ..with(ChangesFilter::Rows(Arc::new(EvenIds))) };
    let (rows, feed) = read(&database, query).await;
    assert_eq!((rows.len(), rows[4].seq.clone()), (5, Some(feed.last_seq())));
}

/// One document more than is looked up in any case: looked up in a long feed, searched for in a short one.
#[tokio::test]
async fn many_documents_are_found_whether_they_are_looked_up_or_searched_for() {
    let (_world, _coordinator, database) = database(1).await;
    let many = crate::limits::CHANGES_DOC_IDS_LOOKED_UP + 1;
    fill(&database, many * 9).await;
    let wanted: BTreeSet<DocId> = (many * 8..many * 9).map(|n| id(&format!("d{n}"))).collect();
    let end = database.update_seq().await.unwrap().to_string();
    let (all, _) = read(&database, ChangesQuery::default()).await;
    let of = |rows: &[ChangeRow]| -> Vec<DocId> {
        rows.iter().filter(|row| wanted.contains(&row.id)).map(|row| row.id.clone()).collect()
    };
    for (skipped, descending) in [(0, false), (0, true), (many * 8 + 3, false)] {
        let since =
            if skipped == 0 { Since::Beginning } else { Since::parse(all[skipped - 1].seq.as_ref().unwrap()).unwrap() };
        let filter = ChangesFilter::DocIds(wanted.clone());
        let (rows, feed) = read(&database, ChangesQuery { since, descending, filter, ..ChangesQuery::default() }).await;
        let mut expected = of(&all[skipped..]);
        if descending {
            expected.reverse();
        } else {
            assert_eq!(feed.last_seq(), end);
        }
        assert_eq!(rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{skipped} {descending}");
    }
}

#[tokio::test]
async fn a_feed_waits_for_news_and_ends_with_the_database() {
    let (_world, coordinator, database) = database(4).await;
    fill(&database, 10).await;
    let mut feed =
        database.feeds().changes(ChangesQuery { since: Since::Now, ..ChangesQuery::default() }).await.unwrap();
    assert!(drain(&mut feed).await.is_empty());
    for name in ["x", "y", "z"] {
        let (_, rev) = tokio::join!(feed.wait(), put(&database, name, "{}"));
        let rows = drain(&mut feed).await;
        assert_eq!((ids(&rows).as_str(), rows[0].revs.clone()), (name, vec![rev]));
    }
    let (_, gone) = tokio::join!(feed.wait(), coordinator.delete_database("db"));
    assert!(gone.is_ok() && feed.is_gone());
    assert!(matches!(feed.next().await, Err(ChangesError::Read(ReadError::DatabaseGone))));
}

#[tokio::test]
async fn a_purge_moves_the_sequence_but_leaves_no_row() {
    let (_world, _coordinator, database) = database(1).await;
    let first = put(&database, "a", "{}").await;
    database.maintenance().purge(vec![(id("a"), vec![first])]).await.unwrap();
    let (rows, feed) = read(&database, ChangesQuery::default()).await;
    assert!(rows.is_empty() && feed.pending().await == 0);
    let query = ChangesQuery { since: Since::parse(&feed.last_seq()).unwrap(), ..ChangesQuery::default() };
    put(&database, "b", "{}").await;
    assert_eq!(ids(&read(&database, query).await.0), "b");
}

#[tokio::test]
async fn a_follower_gives_changes_until_they_are_done() {
    let (world, coordinator, database) = database(2).await;
    let mut follower = Follower::new(&world.env, Arc::downgrade(&coordinator), "db");
    let ids = |page: Option<Vec<ChangeRow>>| ids(&page.unwrap());
    put(&database, "a", "{}").await;
    assert_eq!(ids(follower.next().await), "a");
    assert_eq!(ids(follower.next().await), "a", "nobody said that it was done");
    follower.done();
    let (page, _) = tokio::join!(follower.next(), put(&database, "b", "{}"));
    assert_eq!(ids(page), "b");
    follower.done();
    follower.rewind();
    assert_eq!(ids(follower.next().await).split(' ').collect::<BTreeSet<_>>(), ["a", "b"].into());
    follower.done();
    let dropped = world.env.timeout(std::time::Duration::from_millis(1), follower.next()).await;
    assert!(dropped.is_err());
    put(&database, "c", "{}").await;
    assert_eq!(ids(follower.next().await), "c");
}
