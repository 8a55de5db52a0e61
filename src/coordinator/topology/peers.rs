//! The other nodes of the cluster as the coordinator needs them: members, nodes in reach, and calls.
//!
//! A call either surely did nothing ([`CallError::NotExecuted`]) or may have done something
//! ([`CallError::Indeterminate`]); it ends at the latest when its deadline is over or the node is suspected. [`Alone`]
//! is a node without a cluster.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::cluster::{self, Class, Cluster, Handler, NodeName, Reply};
use crate::limits;
use crate::wire::message::Message;
use crate::world::BoxFuture;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name `name@host`.
    pub name: Arc<str>,
    /// The zone of its member document, for `placement`.
    pub zone: Option<String>,
}

/// Who answers a call of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The set of databases, see `gossip`.
    Catalogue,
    /// A replica of a range, see `serve`.
    Replica,
}

/// What goes first on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits for it.
    Foreground,
    /// Repair and convergence.
    Background,
}

/// What a node is asked.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who answers.
    pub service: Service,
    /// What may pass it on the way.
    pub urgency: Urgency,
    /// The message.
    pub body: Message,
    /// Bytes that the answer is expected to have, where that is known: room for it is made at once. Else 0.
    pub expected_bytes: usize,
    /// The call ends after that at the latest.
    pub limit: Duration,
}

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The node was not asked or would not: nothing was done. Carries why.
    NotExecuted(String),
    /// It was asked and did not answer. Carries why.
    Indeterminate(String),
}

/// Answers calls of other nodes. The error tells why it would not.
pub trait Answer: Send + Sync + 'static {
    /// Answers one call; `left` is the time that the caller waits.
    fn answer(&self, from: String, body: Bytes, left: Duration) -> BoxFuture<'static, Result<Message, String>>;
}

/// The cluster.
pub trait Peers: Send + Sync + 'static {
    /// All nodes that belong to it, this one too, in the order of their names.
    fn members(&self) -> Vec<Peer>;
    /// Whether a node belonged to it once and was removed; not so of one that is not known yet.
    fn is_removed(&self, node: &str) -> bool;
    /// Whether this node has yet to meet the cluster that it is to be part of.
    fn is_seeding(&self) -> bool {
        false
    }
    /// Whether a node is connected and not suspected; this one always is.
    fn is_up(&self, node: &str) -> bool;
    /// The number of the connection to another node, while it is up. One that broke and was made again has another one.
    fn connection(&self, node: &str) -> Option<u64> {
        self.is_up(node).then_some(0)
    }
    /// Silence after which a node counts as down.
    fn suspect(&self) -> Duration {
        Duration::from_millis(limits::CLUSTER_SUSPECT_MS)
    }
    /// Changes whenever members or connections do.
    fn watch(&self) -> watch::Receiver<u64>;
    /// Asks a node.
    fn call<'a>(&'a self, to: &'a str, call: Call) -> BoxFuture<'a, Result<Bytes, CallError>>;
    /// Says who answers calls of a service.
    fn serve(&self, service: Service, answer: Arc<dyn Answer>);
}

/// The cluster of the transport in `cluster`.
#[derive(Debug)]
pub struct ClusterPeers(pub Cluster);

/// An [`Answer`] as the transport's handler.
struct Answering(Arc<dyn Answer>);

impl Handler for Answering {
    fn handle(&self, from: NodeName, body: Bytes, reply: Reply) -> BoxFuture<'static, ()> {
        let answer = self.0.answer(from.as_str().to_owned(), body, reply.deadline());
        Box::pin(async move {
            match answer.await {
                Ok(message) => reply.answer(message).await,
                Err(why) => reply.fail(why),
            }
        })
    }
}

impl Peers for ClusterPeers {
    fn members(&self) -> Vec<Peer> {
        let own = self.0.name();
        let joined = self.0.members().into_iter().filter(|member| member.joined || member.name == *own);
        joined.map(|member| Peer { name: member.name.as_str().into(), zone: member.zone }).collect()
    }

    fn is_removed(&self, node: &str) -> bool {
        self.0.records().get(node).is_some_and(|record| record.deleted)
    }

    fn is_seeding(&self) -> bool {
        self.0.is_seeding()
    }

    fn is_up(&self, node: &str) -> bool {
        self.0.is_up(&NodeName::from(node))
    }

    fn connection(&self, node: &str) -> Option<u64> {
        self.0.connection(&NodeName::from(node))
    }

    fn suspect(&self) -> Duration {
        self.0.suspect()
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.0.watch()
    }

    fn call<'a>(&'a self, to: &'a str, call: Call) -> BoxFuture<'a, Result<Bytes, CallError>> {
        Box::pin(async move {
            let class = match call.urgency {
                Urgency::Foreground => Class::Foreground,
                Urgency::Background => Class::Background,
            };
            let Call { service, body, expected_bytes, limit, .. } = call;
            let answer =
                self.0.call_for(&NodeName::from(to), (service.into(), class), body, expected_bytes, limit).await;
            answer.map_err(|error| match error {
                cluster::CallError::Down | cluster::CallError::Refused(_) => CallError::NotExecuted(error.to_string()),
                cluster::CallError::Unknown(why) => CallError::Indeterminate(why),
            })
        })
    }

    fn serve(&self, service: Service, answer: Arc<dyn Answer>) {
        self.0.serve(service.into(), Arc::new(Answering(answer)));
    }
}

impl From<Service> for cluster::Service {
    fn from(service: Service) -> Self {
        match service {
            Service::Catalogue => cluster::Service::Catalogue,
            Service::Replica => cluster::Service::Shard,
        }
    }
}

/// A node that is no part of a cluster.
#[derive(Debug)]
pub struct Alone {
    name: Arc<str>,
    changes: watch::Sender<u64>,
}

impl Alone {
    /// The node of that name.
    pub fn new(name: &str) -> Alone {
        Alone { name: name.into(), changes: watch::Sender::new(0) }
    }
}

impl Peers for Alone {
    fn members(&self) -> Vec<Peer> {
        vec![Peer { name: Arc::clone(&self.name), zone: None }]
    }

    fn is_removed(&self, _: &str) -> bool {
        false
    }

    fn is_up(&self, node: &str) -> bool {
        node == &*self.name
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn call<'a>(&'a self, to: &'a str, _: Call) -> BoxFuture<'a, Result<Bytes, CallError>> {
        let error = CallError::NotExecuted(format!("{to} is no node of this cluster"));
        Box::pin(async move { Err(error) })
    }

    fn serve(&self, _: Service, _: Arc<dyn Answer>) {}
}
