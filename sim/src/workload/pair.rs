//! The shared database copied to a second server by the real replicator: in the end both hold the same.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{DB, Worker, broken, leaves};
use crate::client::Client;
use crate::model::Violation;
use crate::run::{PASSWORD, USER, url_of};

/// The copy's name on the second node.
const COPY: &str = "copy";

impl Worker {
    /// Copies once, asked of the second node. What comes of it is judged at the end.
    pub(super) async fn replicate(&mut self) -> Result<(), Violation> {
        let order = order();
        let mut second = Client::new(self.client.env().clone(), crate::run::address_of(1), USER, PASSWORD);
        let answer = second.json("POST", "/_replicate", &order).await;
        self.count("POST", "/_replicate", answer.as_ref().map_or(0, |a| a.status));
        Ok(())
    }

    /// At the end: one more replication brings everything over.
    pub async fn judge_copy(&mut self, second: &mut Client) -> Result<(), Violation> {
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
        for doc in self.locked(|s| s.model.documents()) {
            let (path, there) = (format!("{doc}?open_revs=all&revs=true"), format!("/{COPY}/"));
            let here = self.call("GET", &format!("/{DB}/{path}"), &Value::Null).await;
            let copied = second.get(&format!("{there}{path}")).await;
            let set = |answer: &Value| -> BTreeSet<(String, bool, Option<u64>)> {
                leaves(answer).into_iter().map(|leaf| (leaf.path[0].clone(), leaf.deleted, leaf.v)).collect()
            };
            match (here, copied) {
                (Ok(here), Ok(copied)) if here.status == 200 && copied.status < 500 => {
                    let (here, copied) = (set(&here.json()), set(&copied.json()));
                    if here != copied {
                        return broken(
                            "I22",
                            format!("{doc}: the source has {here:?}, the copy {copied:?}; told {told}"),
                        );
                    }
                }
                (Ok(here), _) if here.status == 404 => {}
                other => return broken("I28", format!("{doc}: {other:?} after all faults")),
            }
        }
        Ok(())
    }
}

/// What is asked of `_replicate`.
pub(crate) fn order() -> Value {
    json!({
        "source": format!("{}/{DB}", url_of(0)), "target": format!("{}/{COPY}", url_of(1)),
        "create_target": true, "worker_batch_size": 2, "checkpoint_interval": 1, "retries_per_request": 1,
    })
}
