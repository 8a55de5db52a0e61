//! Feeds that are resumed on another node than the one that was read.

use super::*;

/// Was: each page began anew on the next node's replica, which knew no sync point within what was just written, so that
/// a client whose pages are asked of all nodes in turn was given the same rows for ever.
#[tokio::test]
async fn pages_that_are_asked_of_each_node_in_turn_come_to_an_end() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    let requests = (0..90).map(|n| request(&format!("d{n:02}"), "{}")).collect();
    let written = cluster.db(0).writer().write(requests, WriteOptions { w: Some(3), ..WriteOptions::default() }).await;
    assert!(written.unwrap().iter().all(Result::is_ok));
    let (mut since, mut seen, mut pages) = (Since::Beginning, BTreeSet::new(), 0);
    loop {
        let query = ChangesQuery { since, limit: Some(10), ..ChangesQuery::default() };
        let mut feed = cluster.db(pages % 3).feeds().changes(query).await.unwrap();
        let mut rows = Vec::new();
        while let Some(page) = feed.next().await.unwrap() {
            rows.extend(page);
        }
        if rows.is_empty() {
            break;
        }
        since = Since::parse(&feed.last_seq()).unwrap();
        seen.extend(rows.into_iter().map(|row| row.id));
        pages += 1;
        assert!(pages <= 12, "{} documents after {pages} pages", seen.len());
    }
    assert_eq!((seen.len(), pages), (90, 9));
}
