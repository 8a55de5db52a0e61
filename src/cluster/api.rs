//! Types that users of the cluster's links name: nodes, services, classes of urgency, handlers, errors.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::stream::Reply;
use crate::world::BoxFuture;

/// A node's name, `name@host`. Cheap to clone; ordered as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part behind the `@`: the host under which other nodes reach it; empty when there is none.
    pub fn host(&self) -> &str {
        self.0.split_once('@').map_or("", |(_, host)| host)
    }
}

impl From<&str> for NodeName {
    fn from(text: &str) -> NodeName {
        NodeName(text.into())
    }
}

impl From<String> for NodeName {
    fn from(text: String) -> NodeName {
        NodeName(text.into())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node that belongs to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: NodeName,
    /// Its zone, for placement; none was given without one.
    pub zone: Option<String>,
    /// `host:port` of its cluster port; `None` while nobody told.
    pub address: Option<String>,
    /// Whether it ever answered a handshake. One that did not is given no replicas: the name may be a slip.
    pub joined: bool,
}

/// What a call is for. One byte on the wire; a node that does not know one refuses the call by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Service {
    /// Operations on replicas.
    Shard = 1,
    /// Databases: their making, settings and removal.
    Catalogue = 2,
    /// Digests and repair between replicas.
    Sync = 3,
    /// Requests of `/_node/{name}`, answered by that node.
    Http = 4,
    /// The members themselves.
    Members = 5,
}

impl Service {
    /// The service of a byte on the wire.
    pub(super) fn of(byte: u8) -> Option<Service> {
        let all = [Service::Shard, Service::Catalogue, Service::Sync, Service::Http, Service::Members];
        all.into_iter().find(|service| *service as u8 == byte)
    }
}

/// How urgent a call is, its answer included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Small and before all else: membership, quorum decisions.
    Control = 0,
    /// A client waits.
    Foreground = 1,
    /// Nobody waits: repair, moves.
    Background = 2,
}

impl Class {
    /// The class of a byte on the wire.
    pub(super) fn of(byte: u8) -> Option<Class> {
        [Class::Control, Class::Foreground, Class::Background].into_iter().find(|class| *class as u8 == byte)
    }
}

/// Answers the calls of one service.
pub trait Handler: Send + Sync + 'static {
    /// Answers one call, in a task of its own that runs to its end also when the caller goes away (then
    /// [`Reply::send`] fails, and [`Reply::gone`] completes).
    fn handle(&self, from: NodeName, body: Bytes, reply: Reply) -> BoxFuture<'static, ()>;
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// There is no connection: surely not sent.
    Down,
    /// The other side said no: its handler, or it does not know the service.
    Refused(String),
    /// It was sent and nobody knows what became of it: the connection was lost or the time is over.
    Unknown(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Down => f.write_str("the node is not connected"),
            CallError::Refused(why) => write!(f, "refused: {why}"),
            CallError::Unknown(why) => write!(f, "outcome unknown: {why}"),
        }
    }
}

impl std::error::Error for CallError {}
