//! Spread of the members' records: two connected nodes send each other all records whenever one of them has news.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::api::{CallError, Class, Handler, NodeName, Service};
use super::line::Line;
use super::members::{Records, Table};
use super::{Cluster, Reply};
use crate::limits;
use crate::world::BoxFuture;

fn encode(records: &Records) -> Bytes {
    // Invariant: records hold texts and numbers only, which always serialize.
    serde_json::to_vec(records).expect("records serialize").into()
}

impl Cluster {
    /// Tells a peer what this node knows and learns what the peer knows, now and at every change, while `line` lasts.
    pub(super) async fn exchange_members(self, peer: NodeName, line: Arc<Line>) {
        let mut changes = self.0.table.watch();
        loop {
            changes.borrow_and_update();
            let again = match self.exchange_once(&peer).await {
                Ok(()) => None,
                Err(error) => {
                    tracing::debug!("members were not exchanged with {peer}: {error}");
                    Some(self.0.env.sleep(Duration::from_millis(limits::CLUSTER_GOSSIP_RETRY_MS)))
                }
            };
            let retry = async {
                match again {
                    Some(pause) => pause.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = line.ended() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = retry => {}
            }
        }
    }

    async fn exchange_once(&self, peer: &NodeName) -> Result<(), CallError> {
        let mine = encode(&self.0.table.records());
        let patience = self.timing().suspect;
        let theirs = self.call(peer, Service::Members, Class::Control, mine, patience).await?;
        let theirs = serde_json::from_slice(&theirs).map_err(|e| CallError::Unknown(e.to_string()))?;
        self.0.table.merge(theirs).await.map_err(|e| CallError::Unknown(e.to_string()))
    }
}

/// Answers what other nodes tell of members.
pub(super) struct Gossip(pub Table);

impl Handler for Gossip {
    fn handle(&self, from: NodeName, body: Bytes, reply: Reply) -> BoxFuture<'static, ()> {
        let table = self.0.clone();
        Box::pin(async move {
            let told: Records = match serde_json::from_slice(&body) {
                Ok(told) => told,
                Err(error) => return reply.fail(format!("no list of members: {error}")),
            };
            match table.merge(told).await {
                Ok(()) => reply.answer(encode(&table.records())).await,
                Err(error) => {
                    tracing::warn!("what {from} tells of members could not be stored: {error}");
                    reply.fail(error.to_string());
                }
            }
        })
    }
}
