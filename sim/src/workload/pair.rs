//! The shared database copied to a second server by the real replicator: in the end both hold the same.

use serde_json::{Value, json};

use super::{DB, Worker, broken};
use crate::client::Client;
use crate::model::Violation;
use crate::place::{source_url, url_of};
use crate::plan::FeedFilter;

/// The copy's name on the second node.
const COPY: &str = "copy";

impl Worker {
    /// Copies once, asked of the second node, with a look at the checkpoints meanwhile. What comes of it is checked at
    /// the end.
    pub(super) async fn replicate(&mut self) -> Result<(), Violation> {
        let (mut second, order) = (self.second_server(), order());
        self.sends();
        let asked = second.json("POST", "/_replicate", &order);
        let (answer, looked) = tokio::join!(asked, self.watch_checkpoints(COPY, FeedFilter::All));
        self.count("POST", "/_replicate", answer.as_ref().map_or(0, |a| a.status));
        looked
    }

    /// At the end: one more replication brings everything over.
    pub async fn check_copy(&mut self, second: &mut Client) -> Result<(), Violation> {
        self.check_checkpoints(second, COPY, FeedFilter::All).await?;
        let mut done = second.json("POST", "/_replicate", &order()).await;
        for _ in 0..3 {
            if matches!(&done, Ok(a) if a.status == 200) {
                break;
            }
            done = second.json("POST", "/_replicate", &order()).await;
        }
        match &done {
            Ok(a) if a.status == 200 => {}
            other => return broken("I28", format!("the replication does not end after all faults: {other:?}")),
        }
        let told = done.map(|a| a.json()).unwrap_or_default();
        match self.difference(second, COPY, |_| true).await? {
            Some(found) => broken(found.invariant, format!("{}; told {told}", found.what)),
            None => Ok(()),
        }
    }
}

/// What is asked of `_replicate`.
pub(crate) fn order() -> Value {
    order_of(&format!("{}/{DB}", source_url()), &format!("{}/{COPY}", url_of(1)), true)
}

/// A replication of many small pages, which writes down at each how far it is, and soon gives up. `makes`: the target,
/// where it is not there.
pub(super) fn order_of(source: &str, target: &str, makes: bool) -> Value {
    json!({
        "source": source, "target": target,
        "create_target": makes, "worker_batch_size": 2, "checkpoint_interval": 1, "retries_per_request": 1,
    })
}
