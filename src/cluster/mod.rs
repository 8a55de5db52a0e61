//! The other nodes: which nodes are members, which can be reached, and calls to them.
//!
//! [`Cluster`] is the handle. Every pair of nodes has one connection in each direction. A node sends its calls over the
//! connection that it opened itself, many at a time, in three classes of urgency; a call to itself goes straight to the
//! handler. Assumes: nodes that know the cluster's secret are honest. Promises: [`CallError::Down`] only when a call
//! was surely not sent; a node that hangs costs its callers at most `[cluster] suspect_ms`; memory per connection and
//! call is bounded (`limits.rs`).
//!
//! `frame` cuts and seals bytes, `handshake` authenticates two nodes to each other, `packet` defines the content of a
//! frame, `line` runs a connection, `link` is its calling and `serving` its answering side, `stream` has the two ends
//! of a call. `peer` keeps the connections, `members` the documents of `_nodes`, `gossip` spreads them, `join` admits a
//! node, `uuid` agrees on the cluster's uuid.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::config::Config;
use crate::document::json::Object;
use crate::limits;
use crate::wire::message::Message;
use crate::wire::tls::Connector;
use crate::world::memory::Memory;
use crate::world::{Env, Instant, Listener, cost};

mod api;
mod counters;
mod frame;
#[cfg(test)]
mod fuzz_tests;
mod gossip;
mod handshake;
mod join;
mod line;
mod link;
mod members;
mod packet;
mod peer;
mod queue;
mod secure;
mod serving;
mod start;
mod strangers;
mod stream;
#[cfg(test)]
mod tests;
mod uuid;

pub use api::{CallError, Class, Handler, Member, NodeName, Service};
pub use counters::Counted;
pub use join::make_token;
pub use members::{MemberError, Record, Records};
pub use start::StartError;
pub use stream::{Gone, Incoming, Reply};

use counters::Counters;
use line::Timing;
use members::Table;
use secure::Secure;
use serving::Serving;

/// A node's view of its cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    env: Env,
    config: Config,
    name: NodeName,
    table: Table,
    handlers: Arc<Handlers>,
    counters: Arc<Counters>,
    /// What large bodies of calls share.
    bodies: Memory,
    peers: peer::Peers,
    /// TLS below the connections, if there is to be any.
    secure: Option<Secure>,
    port: Mutex<Port>,
    enabling: tokio::sync::Mutex<()>,
    running: AtomicBool,
    /// Whether the port is held.
    accepting: watch::Sender<bool>,
    version: watch::Sender<u64>,
    stopping: watch::Sender<bool>,
}

/// The port for other nodes.
#[derive(Default)]
struct Port {
    /// Where it is open.
    at: Option<SocketAddr>,
    /// Its listener, until it is in use.
    listener: Option<Box<dyn Listener>>,
}

/// Who answers which service.
#[derive(Default)]
struct Handlers(RwLock<BTreeMap<Service, Arc<dyn Handler>>>);

impl Handlers {
    fn get(&self, service: Service) -> Option<Arc<dyn Handler>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&service).cloned()
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.0.name)
    }
}

impl Cluster {
    /// A node without a cluster port and without a memory: itself is the only member.
    pub fn alone(env: &Env, name: impl Into<NodeName>) -> Cluster {
        let name = name.into();
        let own = Record { joined: true, ..Record::fresh() };
        let table = Table::in_memory(env, Records::from([(name.to_string(), own)]));
        Cluster::over(env, &Config::in_memory(env, Vec::new()), name, table, None)
    }

    fn over(env: &Env, config: &Config, name: NodeName, table: Table, secure: Option<Secure>) -> Cluster {
        Cluster(Arc::new(Inner {
            env: env.clone(),
            config: config.clone(),
            name,
            table,
            handlers: Arc::default(),
            counters: Arc::default(),
            bodies: Serving::memory(),
            peers: Mutex::default(),
            secure,
            port: Mutex::default(),
            enabling: tokio::sync::Mutex::default(),
            running: AtomicBool::new(false),
            accepting: watch::Sender::new(false),
            version: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
        }))
    }

    /// Ends all connections and lets the handlers go. Calls from then on answer [`CallError::Down`].
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
        self.0.handlers.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// As [`Cluster::stop`], and waits until the port is free for the next start.
    pub async fn close(&self) {
        self.stop();
        self.0.port.lock().unwrap_or_else(PoisonError::into_inner).listener.take();
        // An error would mean that the flag's sender is gone; this node holds it.
        let _ = self.0.accepting.subscribe().wait_for(|accepting| !accepting).await;
    }

    /// This node's name.
    pub fn name(&self) -> &NodeName {
        &self.0.name
    }

    /// The members of the cluster (`cluster_nodes`), sorted by name.
    pub fn members(&self) -> Vec<Member> {
        self.0.table.members()
    }

    /// Whether calls reach that node: connected and not suspected. True for this node itself.
    pub fn is_up(&self, node: &NodeName) -> bool {
        *node == self.0.name || self.peer(node).is_some_and(|peer| peer.link().is_some())
    }

    /// The number of the connection over which calls reach that node, while one does. Each new connection has a higher
    /// one.
    pub fn connection(&self, node: &NodeName) -> Option<u64> {
        self.peer(node).and_then(|peer| peer.connection())
    }

    /// The members that are up, this node among them, in the order of members.
    pub fn up(&self) -> Vec<NodeName> {
        self.members().into_iter().map(|member| member.name).filter(|name| self.is_up(name)).collect()
    }

    /// Changes when members or connections change; the value is a counter without meaning.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    fn changed(&self) {
        self.0.version.send_modify(|version| *version += 1);
    }

    /// How this node calls others by https; `None`: it does not.
    pub fn connector(&self) -> Option<Connector> {
        self.0.secure.as_ref().map(Secure::https)
    }

    /// Whether nodes speak TLS and no authority signs their certificates (`tls_ca_file`), so that a certificate does
    /// not authenticate a node.
    pub fn lacks_authority(&self) -> bool {
        self.0.secure.as_ref().is_some_and(|secure| !secure.has_authority())
    }

    /// What happened on the connections since the start.
    pub fn counters(&self) -> Vec<Counted> {
        self.0.counters.all()
    }

    /// Silence after which a node counts as down.
    pub fn suspect(&self) -> Duration {
        self.timing().suspect
    }

    fn timing(&self) -> Timing {
        let ms = |key, default, most| Duration::from_millis(self.0.config.u64("cluster", key, default).clamp(10, most));
        let suspect = ms("suspect_ms", limits::CLUSTER_SUSPECT_MS, limits::CLUSTER_SUSPECT_MAX_MS);
        // At least three signs of life fall into the time after which silence counts.
        let heartbeat = ms("heartbeat_ms", limits::CLUSTER_HEARTBEAT_MS, limits::CLUSTER_SUSPECT_MAX_MS);
        Timing { heartbeat: heartbeat.min(suspect / 3), suspect }
    }

    /// Sends `body` and waits for the one message of the answer, at most until `deadline`.
    ///
    /// # Errors
    /// [`CallError`]. [`CallError::Down`] also when the time was over before the body was sent: the other side does not
    /// begin a call whose body is not whole.
    pub async fn call(
        &self,
        to: &NodeName,
        service: Service,
        class: Class,
        body: impl Into<Message>,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        self.call_for(to, (service, class), body, 0, deadline).await
    }

    /// As [`Cluster::call`], where so many bytes of answer are expected; 0 where nobody knows.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_for(
        &self,
        to: &NodeName,
        (service, class): (Service, Class),
        body: impl Into<Message>,
        expected_bytes: usize,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let body = body.into();
        let env = &self.0.env;
        let until = Instant(env.now().0.saturating_add(deadline));
        let is_sent = AtomicBool::new(false);
        let called = async {
            let mut incoming = self.open_until(to, service, class, body, Some(until)).await?;
            is_sent.store(true, Ordering::Relaxed);
            incoming.make_room_for(expected_bytes);
            incoming.next().await
        };
        let begun = env.now();
        let answered = env.timeout(deadline, called).await;
        cost::call(env.now().since(begun));
        match answered {
            Ok(Ok(Some(message))) => Ok(message),
            Ok(Ok(None)) => Err(CallError::Unknown("the answer is empty".to_owned())),
            Ok(Err(error)) => Err(error),
            Err(_) if is_sent.load(Ordering::Relaxed) => Err(CallError::Unknown("no answer in time".to_owned())),
            Err(_) => Err(CallError::Down),
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
        self.open_until(to, service, class, body.into(), None).await
    }

    async fn open_until(
        &self,
        to: &NodeName,
        service: Service,
        class: Class,
        body: Message,
        deadline: Option<Instant>,
    ) -> Result<Incoming, CallError> {
        if *to == self.0.name {
            return self.open_here(service, body.into_bytes(), deadline);
        }
        let link = self.peer(to).and_then(|peer| peer.link()).ok_or(CallError::Down)?;
        self.0.counters.calls.fetch_add(1, Ordering::Relaxed);
        link.open(service, class, body, deadline).await
    }

    fn open_here(&self, service: Service, body: Bytes, deadline: Option<Instant>) -> Result<Incoming, CallError> {
        let Some(handler) = self.0.handlers.get(service) else {
            return Err(CallError::Refused(format!("this node has no service {}", service as u8)));
        };
        let (reply, incoming) = stream::local(&self.0.env, deadline);
        self.0.env.spawn(handler.handle(self.0.name.clone(), body, reply));
        Ok(incoming)
    }

    /// Answers calls of `service` with `handler` from now on, in place of an earlier one.
    pub fn serve(&self, service: Service, handler: Arc<dyn Handler>) {
        self.0.handlers.0.write().unwrap_or_else(PoisonError::into_inner).insert(service, handler);
    }

    fn serve_members(&self) {
        self.serve(Service::Members, Arc::new(gossip::Gossip(self.0.table.clone())));
    }

    /// The documents of `_nodes` by name, tombstones included.
    pub fn records(&self) -> Arc<Records> {
        self.0.table.records()
    }

    /// Adds or changes a member's document. `rev`: the one that it replaces; none for a new or a removed one.
    ///
    /// # Errors
    /// [`MemberError`]
    pub async fn put_member(&self, name: &str, body: Object, rev: Option<String>) -> Result<Record, MemberError> {
        self.0.table.put(name, body, rev).await
    }

    /// Removes a member. A `rev` that is given must be the current one.
    ///
    /// # Errors
    /// [`MemberError`]
    pub async fn delete_member(&self, name: &str, rev: Option<String>) -> Result<Record, MemberError> {
        self.0.table.delete(name, rev).await
    }

    /// Tells where a member is now.
    ///
    /// # Errors
    /// When that cannot be stored.
    pub async fn move_member(&self, name: &NodeName, address: &str) -> Result<(), MemberError> {
        let address = address.to_owned();
        let tell = |record: &mut Record| record.contact = members::Contact { address, count: record.contact.count + 1 };
        self.0.table.adjust(name, tell).await
    }

    /// Adds a member whose address is known.
    ///
    /// # Errors
    /// [`MemberError::Conflict`] when it is one already.
    pub async fn add_member(&self, name: &str, address: &str) -> Result<(), MemberError> {
        self.0.table.put(name, Object::new(), None).await?;
        let address = address.to_owned();
        let tell = move |record: &mut Record| record.contact.address = address;
        self.0.table.adjust(&name.into(), tell).await
    }
}
