//! The other nodes: who belongs to the cluster, who is there, and calls to them.
//!
//! [`Cluster`] is the handle. Every pair of nodes has one connection in each direction; the calls of a node go over
//! the one that it opened itself, many at a time, in three classes of urgency. A call of a node to itself goes straight
//! to the handler. Assumes: nodes that know the cluster's secret are honest. Promises: [`CallError::Down`] only when a
//! call was surely not sent; a node that hangs costs its callers at most `[cluster] suspect_ms`; memory per connection
//! and call is bounded (`limits.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::world::Env;

pub mod api;
pub mod stream;

pub use api::{CallError, Class, Handler, Member, NodeName, Service};
pub use stream::{Gone, Incoming, Reply};

/// A node's view of its cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    env: Env,
    name: NodeName,
    handlers: RwLock<BTreeMap<Service, Arc<dyn Handler>>>,
    version: watch::Sender<u64>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.0.name)
    }
}

impl Cluster {
    /// A node without a cluster port: itself is the only member.
    pub fn alone(env: &Env, name: impl Into<NodeName>) -> Cluster {
        Cluster(Arc::new(Inner {
            env: env.clone(),
            name: name.into(),
            handlers: RwLock::default(),
            version: watch::Sender::new(0),
        }))
    }

    /// This node's name.
    pub fn name(&self) -> &NodeName {
        &self.0.name
    }

    /// The members of the cluster (`cluster_nodes`), sorted by name.
    pub fn members(&self) -> Vec<Member> {
        vec![Member { name: self.0.name.clone(), zone: None, address: None, joined: true }]
    }

    /// Whether calls reach that node: connected and not suspected. True for this node itself.
    pub fn is_up(&self, node: &NodeName) -> bool {
        *node == self.0.name
    }

    /// Changes when members or connections change; the value is a counter without meaning.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Sends `body` and waits for the one message of the answer, at most until `deadline`.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn call(
        &self,
        to: &NodeName,
        service: Service,
        class: Class,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let answer = async {
            let mut incoming = self.open_until(to, service, class, body, Some(deadline)).await?;
            match incoming.next().await? {
                Some(message) => Ok(message),
                None => Err(CallError::Unknown("the answer is empty".to_owned())),
            }
        };
        match self.0.env.timeout(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Unknown("no answer in time".to_owned())),
        }
    }

    /// Sends `body` and answers the stream of messages that come back. Dropping it cancels the other side.
    ///
    /// # Errors
    /// [`CallError`]; what the other side refuses is told by the stream.
    pub async fn open(
        &self,
        to: &NodeName,
        service: Service,
        class: Class,
        body: Bytes,
    ) -> Result<Incoming, CallError> {
        self.open_until(to, service, class, body, None).await
    }

    async fn open_until(
        &self,
        to: &NodeName,
        service: Service,
        _class: Class,
        body: Bytes,
        deadline: Option<Duration>,
    ) -> Result<Incoming, CallError> {
        if *to != self.0.name {
            return Err(CallError::Down);
        }
        let handlers = self.0.handlers.read().unwrap_or_else(PoisonError::into_inner);
        let Some(handler) = handlers.get(&service) else {
            return Err(CallError::Refused(format!("no handler for the service {service:?}")));
        };
        let until = deadline.map(|left| crate::world::Instant(self.0.env.now().0.saturating_add(left)));
        let (reply, incoming) = stream::local(&self.0.env, until);
        self.0.env.spawn(handler.handle(self.0.name.clone(), body, reply));
        Ok(incoming)
    }

    /// Answers calls of `service` with `handler` from now on, in place of an earlier one.
    pub fn serve(&self, service: Service, handler: Arc<dyn Handler>) {
        self.0.handlers.write().unwrap_or_else(PoisonError::into_inner).insert(service, handler);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::BoxFuture;

    struct Echo;

    impl Handler for Echo {
        fn handle(&self, from: NodeName, body: Bytes, reply: Reply) -> BoxFuture<'static, ()> {
            let left = reply.deadline();
            Box::pin(async move { reply.answer(Bytes::from(format!("{from} {body:?} {}", left.as_secs()))).await })
        }
    }

    #[tokio::test]
    async fn a_node_alone_calls_itself_and_nobody_else() {
        let cluster = Cluster::alone(&crate::world::tokio_host::env(tokio::runtime::Handle::current()), "a@h");
        let (me, other) = (cluster.name().clone(), NodeName::from("b@h"));
        let call = |to: NodeName, service| {
            let cluster = cluster.clone();
            let body = Bytes::from_static(b"x");
            async move { cluster.call(&to, service, Class::Control, body, Duration::from_secs(100)).await }
        };
        cluster.serve(Service::Sync, Arc::new(Echo));
        assert_eq!(call(me.clone(), Service::Sync).await, Ok(Bytes::from_static(b"a@h b\"x\" 99")));
        assert!(matches!(call(me.clone(), Service::Shard).await, Err(CallError::Refused(_))));
        assert_eq!(call(other.clone(), Service::Sync).await, Err(CallError::Down));
        assert!(cluster.is_up(&me) && !cluster.is_up(&other));
        assert_eq!(cluster.members().into_iter().map(|m| m.name).collect::<Vec<_>>(), [me]);
    }
}
