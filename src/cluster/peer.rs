//! Connections to the other nodes: opened, kept, opened again with growing pauses, and accepted.
//!
//! Every member has a keeper, a task that holds the connection over which this node calls the member. A node that was
//! removed, or that no record names yet, keeps its keeper too, because shard maps may still name the node; but it is
//! dialled only after it has connected by itself. A node that connects is dialled back at once, so that a node that
//! returns can be called within a round trip.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::api::NodeName;
use super::handshake::{self, Channel, HandshakeError, Session, Wire};
use super::line::{Line, Side, drive};
use super::link::Link;
use super::queue::{Outbox, queues};
use super::serving::Serving;
use super::strangers::Strangers;
use super::{Cluster, join};
use crate::limits;
use crate::world::{BoxStream, Listener};

/// Another node, as this one reaches it.
pub(super) struct Peer {
    name: NodeName,
    link: RwLock<Option<Link>>,
    /// How many connections to it there were.
    connections: AtomicU64,
    /// Whether it is to be dialled by ourselves.
    wanted: AtomicBool,
    /// It showed up.
    nudged: Notify,
    /// Where it said that it is, for one that is no member.
    hint: Mutex<String>,
}

/// All peers by name.
pub(super) type Peers = Mutex<BTreeMap<NodeName, Arc<Peer>>>;

impl Peer {
    /// The connection, while there is one.
    pub(super) fn link(&self) -> Option<Link> {
        self.link.read().unwrap_or_else(PoisonError::into_inner).clone().filter(|link| !link.has_ended())
    }

    /// The number of the connection, while there is one.
    pub(super) fn connection(&self) -> Option<u64> {
        // One that begins after the look at the number is seen by the next look.
        let number = self.connections.load(Ordering::SeqCst);
        self.link().map(|_| number)
    }

    fn set_link(&self, link: Option<Link>) {
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = link;
    }
}

impl Cluster {
    /// The names of all nodes that are connected, this one included, sorted (`all_nodes`).
    pub fn connected(&self) -> Vec<NodeName> {
        let peers = self.0.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let up = peers.values().filter(|peer| peer.link().is_some()).map(|peer| peer.name.clone());
        let mut names: Vec<NodeName> = up.chain([self.0.name.clone()]).collect();
        names.sort();
        names
    }

    pub(super) fn peer(&self, name: &NodeName) -> Option<Arc<Peer>> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The peer of that name, with its keeper; `None` when there are too many.
    fn ensure_peer(&self, name: &NodeName) -> Option<Arc<Peer>> {
        let mut peers = self.0.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(name) {
            return Some(Arc::clone(peer));
        }
        if peers.len() >= limits::CLUSTER_MEMBERS_MAX {
            return None;
        }
        let peer = Arc::new(Peer {
            name: name.clone(),
            link: RwLock::default(),
            connections: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            nudged: Notify::new(),
            hint: Mutex::default(),
        });
        peers.insert(name.clone(), Arc::clone(&peer));
        self.0.env.spawn(keep(self.clone(), Arc::clone(&peer)));
        Some(peer)
    }

    /// Sees to it that all members are dialled and nobody else; goes on for as long as the node runs.
    pub(super) async fn follow_members(self) {
        let (mut changes, mut stopping) = (self.0.table.watch(), self.0.stopping.subscribe());
        loop {
            changes.borrow_and_update();
            let members = self.0.table.members();
            for member in members.iter().filter(|member| member.name != self.0.name) {
                if let Some(peer) = self.ensure_peer(&member.name)
                    && !peer.wanted.swap(true, Ordering::SeqCst)
                {
                    peer.nudged.notify_one();
                }
            }
            let peers: Vec<Arc<Peer>> =
                self.0.peers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
            for peer in peers {
                match members.binary_search_by(|member| member.name.cmp(&peer.name)) {
                    // Put back after a removal while it was connected all the time.
                    Ok(at) if !members[at].joined && peer.link().is_some() => self.has_joined(&peer.name).await,
                    Ok(_) => {}
                    Err(_) => peer.wanted.store(false, Ordering::SeqCst),
                }
            }
            self.adopt_uuid().await;
            self.changed();
            // Another process under this name says so, too: not faster than it can be noticed and mended.
            let (mistaken, pause) = (self.is_mistaken_for(), Duration::from_millis(limits::CLUSTER_GOSSIP_RETRY_MS));
            let due = tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop) => return,
                () = self.0.env.sleep(pause), if mistaken => true,
                changed = changes.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return,
                },
            };
            if due {
                self.publish_contact().await;
            }
        }
    }

    /// Notes that a handshake with a member succeeded.
    async fn has_joined(&self, name: &NodeName) {
        if self.0.table.find(name).is_some_and(|(member, removed)| !member.joined && !removed)
            && let Err(error) = self.0.table.adjust(name, |record| record.joined = !record.deleted).await
        {
            tracing::warn!("cannot note that {name} has joined: {error}");
        }
    }

    /// Says at most every few seconds what went wrong with a connection.
    fn complain(&self, what: std::fmt::Arguments<'_>) {
        match self.0.counters.may_log(&self.0.env) {
            Some(0) => tracing::warn!("{what}"),
            Some(more) => tracing::warn!("{what} (and {more} more like it)"),
            None => {}
        }
    }
}

/// Holds the connection to one peer for as long as the node runs.
async fn keep(cluster: Cluster, peer: Arc<Peer>) {
    let env = &cluster.0.env;
    let mut stopping = cluster.0.stopping.subscribe();
    let first = Duration::from_millis(limits::CLUSTER_REDIAL_MS);
    let mut pause = first;
    let mut nudged = false;
    loop {
        if peer.wanted.load(Ordering::SeqCst) || nudged {
            let began = env.now();
            let outcome = tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop) => return,
                outcome = dial(&cluster, &peer) => outcome,
            };
            match outcome {
                Ok(session) => call_over(&cluster, &peer, session).await,
                Err(why) => tracing::debug!("no connection to {}: {why}", peer.name),
            }
            if *stopping.borrow() {
                return;
            }
            // A connection that held is no reason to hesitate.
            if env.now().since(began) >= Duration::from_secs(1) && peer.wanted.load(Ordering::SeqCst) {
                pause = first;
            }
        }
        // A random share keeps the nodes of a cluster from dialling in step.
        let jitter = 500 + u32::try_from(env.random_u64() % 1000).unwrap_or(0);
        let wanted = peer.wanted.load(Ordering::SeqCst);
        nudged = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            () = peer.nudged.notified() => true,
            () = env.sleep(pause * jitter / 1000), if wanted => false,
        };
        pause = if nudged { first } else { (pause * 2).min(Duration::from_millis(limits::CLUSTER_REDIAL_MAX_MS)) };
    }
}

/// Connects to a peer and greets it.
async fn dial(cluster: &Cluster, peer: &Peer) -> Result<Session, String> {
    let env = &cluster.0.env;
    let secret = cluster.secret().ok_or("this node has no cluster secret")?;
    let known = cluster.0.table.find(&peer.name).and_then(|(member, _)| member.address);
    let hint = Some(peer.hint.lock().unwrap_or_else(PoisonError::into_inner).clone()).filter(|hint| !hint.is_empty());
    let fallback = || {
        Some(peer.name.host()).filter(|host| !host.is_empty()).map(|host| format!("{host}:{}", limits::CLUSTER_PORT))
    };
    let address = known.or(hint).or_else(fallback).ok_or("its address is not known")?;
    let patience = cluster.timing().suspect;
    let channel = env.timeout(patience, connect(cluster, &address)).await.map_err(|_| "no answer".to_owned())??;
    let me = cluster.identity();
    let greeting = handshake::initiate(env, channel, &me, ("", secret.as_bytes()), peer.name.as_str());
    match env.timeout(patience, greeting).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => {
            cluster.0.counters.bad_handshake(&error);
            if !matches!(error, HandshakeError::Io(_)) {
                cluster.complain(format_args!("{} at {address}: {error}", peer.name));
            }
            Err(error.to_string())
        }
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// A connection to `host:port`; the port may be left out.
pub(super) async fn connect(cluster: &Cluster, address: &str) -> Result<Channel, String> {
    let after_host = address.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match address[after_host..].rfind(':') {
        Some(at) => (&address[..after_host + at], address[after_host + at + 1..].parse().map_err(|_| "a bad port")?),
        None => (address, limits::CLUSTER_PORT),
    };
    let host = host.trim_matches(['[', ']']);
    let found = cluster.0.env.host().resolve(host, port).await.map_err(|e| format!("{host}: {e}"))?;
    let mut failure = format!("{host} has no address");
    for at in found {
        match cluster.0.env.host().connect(at).await {
            Ok(stream) => return secured(cluster, (host, at), stream).await,
            Err(error) => failure = format!("{at}: {error}"),
        }
    }
    Err(failure)
}

/// The connection to `host` as it is to be used: by TLS, if that is spoken here.
async fn secured(cluster: &Cluster, (host, at): (&str, SocketAddr), stream: BoxStream) -> Result<Channel, String> {
    let Some(secure) = &cluster.0.secure else { return Ok(Channel::plain(stream)) };
    let error = match secure.connect(host, stream).await {
        Ok(channel) => return Ok(channel),
        Err(error) => error,
    };
    if secure.is_optional() && matches!(error, HandshakeError::NoTls(_)) {
        let again = cluster.0.env.host().connect(at).await.map_err(|error| format!("{at}: {error}"))?;
        return Ok(Channel::plain(again));
    }
    cluster.0.counters.bad_handshake(&error);
    cluster.complain(format_args!("{host}: {error}"));
    Err(format!("{host}: {error}"))
}

/// Runs the calling side of a session until it ends.
async fn call_over(cluster: &Cluster, peer: &Arc<Peer>, session: Session) {
    let counters = &cluster.0.counters;
    counters.links.fetch_add(1, Ordering::Relaxed);
    cluster.has_joined(&peer.name).await;
    let (queues, outbox) = queues();
    let line = Arc::new(Line::new(&cluster.0.env, queues));
    let link = Link::new(&line, session.largest);
    peer.connections.fetch_add(1, Ordering::SeqCst);
    peer.set_link(Some(link.clone()));
    cluster.changed();
    tracing::info!("connected to {}", peer.name);
    cluster.0.env.spawn(cluster.clone().exchange_members(peer.name.clone(), Arc::clone(&line)));
    drive_until_stop(cluster, &line, session.wire, outbox, (&link, true)).await;
    peer.set_link(None);
    cluster.changed();
    tracing::info!("connection to {} ended: {}", peer.name, line.ended().await);
}

/// Accepts connections for as long as the node runs.
pub(super) async fn accept(cluster: Cluster, listener: Box<dyn Listener>) {
    let mut stopping = cluster.0.stopping.subscribe();
    cluster.0.accepting.send_replace(true);
    // Dropped after the listener.
    let _end = Closed(cluster.clone());
    let mut listener = listener;
    let strangers = Strangers::default();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                let (place, pushed_out) = strangers.enter(from.ip());
                let (cluster, from) = (cluster.clone(), from.to_string());
                cluster.0.env.clone().spawn(async move {
                    let greeted = tokio::select! {
                        biased;
                        greeted = greet(&cluster, stream, &from) => greeted,
                        _ = pushed_out => return,
                    };
                    let Some((session, hello)) = greeted else { return };
                    place.note_proven();
                    welcome(&cluster, session, &hello.key).await;
                });
            }
            Err(error) => {
                cluster.complain(format_args!("cannot accept a connection of another node: {error}"));
                cluster.0.env.sleep(Duration::from_millis(limits::HTTP_ACCEPT_PAUSE_MS)).await;
            }
        }
    }
}

/// Serves a node that has proven who it is; one that brings a join token is admitted and then goes.
async fn welcome(cluster: &Cluster, session: Session, key: &str) {
    match key {
        "" => answer_over(cluster, session).await,
        key => join::admit(cluster, session, key).await,
    }
}

/// Notes that the port is closed, however its task ends.
struct Closed(Cluster);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.0.accepting.send_replace(false);
    }
}

/// Finds out who connected.
async fn greet(cluster: &Cluster, stream: BoxStream, from: &str) -> Option<(Session, handshake::Hello)> {
    let (env, me) = (&cluster.0.env, cluster.identity());
    let secret = |hello: &handshake::Hello| match hello.key.as_str() {
        "" => cluster.secret().map(String::into_bytes).ok_or_else(|| "this node has no cluster secret".to_owned()),
        key => join::secret_of_key(cluster, key),
    };
    let greeting = async {
        let channel = match &cluster.0.secure {
            Some(secure) => secure.accept(stream).await?,
            None => Channel::plain(stream),
        };
        handshake::respond(env, channel, &me, secret).await
    };
    let greeted = env.timeout(cluster.timing().suspect, greeting).await;
    match greeted {
        Ok(Ok(proven)) => Some(proven),
        Ok(Err(error)) => {
            cluster.0.counters.bad_handshake(&error);
            if !matches!(error, HandshakeError::Io(_)) {
                cluster.complain(format_args!("a connection from {from} was refused: {error}"));
            }
            None
        }
        Err(_) => {
            cluster.complain(format_args!("a connection from {from} did not greet in time"));
            None
        }
    }
}

/// Runs the answering side of a session until it ends.
async fn answer_over(cluster: &Cluster, session: Session) {
    let Session { peer: name, address, wire, .. } = session;
    let inner = &cluster.0;
    cluster.has_joined(&name).await;
    if let Some(peer) = cluster.ensure_peer(&name) {
        *peer.hint.lock().unwrap_or_else(PoisonError::into_inner) = address;
        peer.nudged.notify_one();
    }
    let (queues, outbox) = queues();
    let line = Arc::new(Line::new(&inner.env, queues));
    let serving = Serving::new(&line, &name, &inner.handlers, &inner.counters, &inner.bodies);
    drive_until_stop(cluster, &line, wire, outbox, (&serving, false)).await;
}

/// Runs a line to its end, which the node's stop is too; `pings`: whether this side sends signs of life.
async fn drive_until_stop(
    cluster: &Cluster,
    line: &Arc<Line>,
    wire: Wire,
    outbox: Outbox,
    (side, pings): (&dyn Side, bool),
) {
    let mut stopping = cluster.0.stopping.subscribe();
    let stop = async {
        let _ = stopping.wait_for(|stop| *stop).await;
        line.end("the node is stopping");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = drive(line, wire, outbox, side, (cluster.timing(), pings), &cluster.0.counters) => {}
        () = stop => {}
    }
}
