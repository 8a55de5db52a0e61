//! Indexes that no design document names any more go by themselves.

use std::time::Duration;

use super::views::query;
use super::*;
use crate::coordinator::node::index_cleanup::IndexCleanup;
use crate::observe::metrics::Counter;
use crate::world::Instant;

/// Writes a design document with a view of that map function, and builds the view; answers the revision.
async fn ask(database: &Arc<Database>, rev: Option<&Revision>, map: &str) -> Revision {
    let rev = rev.map_or(String::new(), |rev| format!(r#""_rev":"{rev}","#));
    let views = format!(r#"{{"v":{{"map":"function(d){{{map}}}"}}}}"#);
    let rev = put(database, "_design/d", &format!(r#"{{{rev}"autoupdate":false,"views":{views}}}"#)).await;
    let view = database.queries().view(&id("_design/d"), "v").await.unwrap();
    assert_eq!(view.begin(query(None, false)).await.unwrap().total_rows, 20);
    rev
}

async fn filled() -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = database(2).await;
    for n in 0..20 {
        put(&database, &format!("d{n}"), "{}").await;
    }
    (world, coordinator, database)
}

fn removed(coordinator: &Coordinator) -> u64 {
    coordinator.env().metrics().counted(Counter::IndexesRemoved)
}

#[tokio::test]
async fn indexes_go_some_time_after_their_design_document_changed() {
    let (_world, coordinator, database) = filled().await;
    let (mut cleanup, mut minutes) = (IndexCleanup::default(), 0);
    let mut look = async || {
        minutes += 5;
        let now = Instant(Duration::from_secs(minutes * 60));
        assert_eq!(coordinator.clean_up_indexes(&mut cleanup, now).await, []);
        removed(&coordinator)
    };
    let first = ask(&database, None, "emit(1)").await;
    assert_eq!((look().await, look().await), (0, 0), "what is named stays");
    let second = ask(&database, Some(&first), "emit(2)").await;
    assert_eq!(look().await, 0, "it may change again");
    assert_eq!(look().await, 2, "of each range one");
    assert_eq!(look().await, 2);
    coordinator.config().set(("smoosh", "cleanup_channels"), "none", false).await.unwrap();
    let third = ask(&database, Some(&second), "emit(3)").await;
    assert_eq!((look().await, look().await), (2, 2), "it is off");
    coordinator.config().set(("smoosh", "cleanup_channels"), "index_cleanup", false).await.unwrap();
    assert_eq!(look().await, 4, "it is on again");
    database.writer().delete(&id("_design/d"), Some(third), WriteOptions::default()).await.unwrap();
    assert_eq!((look().await, look().await), (4, 6), "nothing names an index any more");
}

#[tokio::test]
async fn an_index_that_answers_in_the_place_of_a_new_one_stays() {
    let (_world, coordinator, database) = filled().await;
    coordinator.config().set(("settee", "index_swap"), "ready", false).await.unwrap();
    let first = ask(&database, None, "emit(1)").await;
    let views = r#""views":{"v":{"map":"function(d){emit(2)}"}}"#;
    put(&database, "_design/d", &format!(r#"{{"_rev":"{first}","autoupdate":false,{views}}}"#)).await;
    database.queries().clean_up_own_views().await.unwrap();
    assert_eq!(removed(&coordinator), 0, "the index of the definition before answers");
}
