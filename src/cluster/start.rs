//! Start of a node in its cluster: its name, its secret, its port, and the members that it knows at first.
//!
//! A node takes part in a cluster once it has a secret (`[cluster] secret`, made or handed over by the set-up) or a
//! configured port; until then nothing listens. The name under which a node first joined is permanent, because shard
//! maps name its replicas by it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::handshake::Identity;
use super::members::{Contact, Record, prefix};
use super::secure::Secure;
use super::{Cluster, MemberError, NodeName, Port, Table, peer};
use crate::config::{Config, ConfigError};
use crate::limits;
use crate::storage::{Storage, WriteView};
use crate::wire::{address, hex};
use crate::world::Env;

/// What keeps a node from taking its place.
#[derive(Debug)]
pub enum StartError {
    /// The cluster port cannot be listened on.
    Listen(SocketAddr, std::io::Error),
    /// A setting makes no sense.
    Setting(String),
    /// The node is known under another name in its cluster: the stored one and the one given.
    Renamed(String, String),
    /// The cluster did not take the node in.
    Join(String),
    /// The store failed.
    Storage(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(at, error) => write!(f, "cannot listen on {at} for other nodes: {error}"),
            StartError::Setting(why) | StartError::Storage(why) => f.write_str(why),
            StartError::Renamed(stored, given) => {
                write!(f, "this node is {stored} in its cluster and cannot be started as {given}")
            }
            StartError::Join(why) => write!(f, "cannot join: {why}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<MemberError> for StartError {
    fn from(error: MemberError) -> Self {
        StartError::Storage(error.to_string())
    }
}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        StartError::Storage(error.to_string())
    }
}

impl Cluster {
    /// Takes this node's place: reads whom it knows, opens its port if it is part of a cluster, joins one if it is told
    /// to. Connections begin with [`Cluster::run`].
    ///
    /// Settings: `settee/node`; `couchdb/uuid`; `cluster/port bind_address address secret seeds join join_token
    /// heartbeat_ms suspect_ms tls tls_optional tls_cert_file tls_key_file tls_ca_file`.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(env: &Env, config: &Config, storage: &Storage) -> Result<Cluster, StartError> {
        let storage_error = |error: crate::storage::StorageError| StartError::Storage(error.to_string());
        let name = config.text("settee", "node", limits::NODE_NAME);
        let table = Table::load(env, storage).await.map_err(storage_error)?;
        let stored = storage.read(|view| view.get(&prefix(b'n'))).await.map_err(storage_error)?;
        settle_name(&table, storage, stored, &name).await?;
        let secure = Secure::open(env, config).await.map_err(|error| StartError::Setting(error.to_string()))?;
        let cluster = Cluster::over(env, config, name.into(), table, secure);
        let join = config.get("cluster", "join").filter(|at| !at.is_empty());
        if join.is_some() && cluster.secret().is_some() && cluster.members().len() <= 1 {
            tracing::warn!("`join` does not count: this node has a cluster of its own already");
        }
        let join = join.filter(|_| cluster.secret().is_none());
        if join.is_some() || config.get("cluster", "port").is_some() || cluster.secret().is_some() {
            cluster.open_port().await?;
        }
        if let Some(at) = join {
            let token = config.text("cluster", "join_token", "");
            cluster.join(&at, &token).await.map_err(StartError::Join)?;
        }
        cluster.own_record().await?;
        for (name, address) in seeds(&config.list("cluster", "seeds", "")) {
            cluster.seed(name, address).await?;
        }
        if cluster.address().is_some() {
            cluster.ensure_secret().await?;
        }
        Ok(cluster)
    }

    /// Opens and accepts connections from now on. To be called once, when the services that this node answers have
    /// their handlers: the others take it for ready then.
    pub fn run(&self) {
        self.serve_members();
        self.0.running.store(true, Ordering::SeqCst);
        self.0.env.spawn(self.clone().follow_members());
        self.begin_accepting();
    }

    /// Makes this node ready for others: a secret, an open port.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn enable(&self) -> Result<(), StartError> {
        let _one = self.0.enabling.lock().await;
        self.ensure_secret().await?;
        if self.address().is_none() {
            self.open_port().await?;
        }
        self.begin_accepting();
        self.publish_contact().await;
        Ok(())
    }

    /// Takes over the secret of the cluster that this node is to join, and becomes ready for it.
    ///
    /// # Errors
    /// [`StartError::Join`] when the node belongs to another cluster already.
    pub async fn adopt(&self, secret: &str) -> Result<(), StartError> {
        self.check_adopts(secret)?;
        self.0.config.set(("cluster", "secret"), secret, true).await?;
        self.enable().await
    }

    /// Whether [`Cluster::ask_to_join`] would ask at all.
    ///
    /// # Errors
    /// As there.
    pub fn check_joins(&self) -> Result<(), StartError> {
        match self.members().len() {
            0 | 1 => Ok(()),
            _ => Err(StartError::Join("this node belongs to another cluster already".to_owned())),
        }
    }

    /// Whether [`Cluster::adopt`] would take the secret over.
    ///
    /// # Errors
    /// As there.
    pub fn check_adopts(&self, secret: &str) -> Result<(), StartError> {
        let others = self.members().len() > 1;
        if others && self.secret().as_deref() != Some(secret) {
            return Err(StartError::Join("this node belongs to another cluster already".to_owned()));
        }
        if secret.len() < limits::CLUSTER_SECRET_BYTES_MIN {
            return Err(StartError::Setting("the cluster's secret is too short".to_owned()));
        }
        Ok(())
    }

    /// The cluster's secret: the one that knows it is a member. Never to be shown.
    pub fn secret(&self) -> Option<String> {
        self.0.config.get("cluster", "secret").filter(|secret| !secret.is_empty())
    }

    pub(super) async fn ensure_secret(&self) -> Result<(), StartError> {
        if self.secret().is_none() {
            let secret = hex::encode(&self.0.env.random_bytes::<32>());
            self.0.config.set(("cluster", "secret"), &secret, true).await?;
        }
        // The next start is the same node, whatever its flags; `settee token` reads it, too.
        if self.0.config.written("settee", "node").as_deref() != Some(self.0.name.as_str()) {
            self.0.config.set(("settee", "node"), self.0.name.as_str(), true).await?;
        }
        Ok(())
    }

    /// The address of the open cluster port; `None` while it is closed.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.port.lock().unwrap_or_else(PoisonError::into_inner).at
    }

    /// `host:port` at which other nodes reach this one; empty while the port is closed.
    pub fn contact(&self) -> String {
        self.contact_at(self.address())
    }

    /// The same for a port that is open at `at`.
    pub(super) fn contact_at(&self, at: Option<SocketAddr>) -> String {
        let Some(at) = at else { return String::new() };
        match self.0.config.get("cluster", "address").filter(|address| !address.is_empty()) {
            Some(told) => told,
            None if self.0.name.host().is_empty() => at.to_string(),
            None => format!("{}:{}", self.0.name.host(), at.port()),
        }
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { name: self.0.name.clone(), address: self.contact() }
    }

    async fn open_port(&self) -> Result<(), StartError> {
        let port = self.listen().await?;
        *self.0.port.lock().unwrap_or_else(PoisonError::into_inner) = port;
        Ok(())
    }

    /// Opens the cluster port; it closes when the answer is dropped.
    pub(super) async fn listen(&self) -> Result<Port, StartError> {
        let at = listen_address(&self.0.config)?;
        let listener = self.0.env.host().listen(at).await.map_err(|e| StartError::Listen(at, e))?;
        let open = listener.local_addr().map_err(|e| StartError::Listen(at, e))?;
        Ok(Port { at: Some(open), listener: Some(listener) })
    }

    /// Accepts from the open port, once the node runs.
    pub(super) fn begin_accepting(&self) {
        if !self.0.running.load(Ordering::SeqCst) {
            return;
        }
        let listener = self.0.port.lock().unwrap_or_else(PoisonError::into_inner).listener.take();
        if let Some(listener) = listener {
            self.0.env.spawn(peer::accept(self.clone(), listener));
        }
    }

    /// This node's own record: made once, not again after it was removed.
    async fn own_record(&self) -> Result<(), StartError> {
        let (name, origin) = (&self.0.name, self.settle_uuid().await?);
        if self.0.table.find(name).is_none() {
            self.0.table.put(name.as_str(), Default::default(), None).await?;
        }
        let settle = move |record: &mut Record| {
            record.joined = !record.deleted;
            record.origin.get_or_insert(origin);
        };
        self.0.table.adjust(name, settle).await?;
        self.publish_contact().await;
        Ok(())
    }

    /// Whether this node is not where the others think.
    pub(super) fn is_mistaken_for(&self) -> bool {
        let address = self.contact();
        let records = self.0.table.records();
        let known = records.get(self.0.name.as_str()).map(|record| &record.contact.address);
        !address.is_empty() && known.is_some_and(|known| *known != address)
    }

    /// Tells where this node is, when that is not what the others think.
    pub(super) async fn publish_contact(&self) {
        if !self.is_mistaken_for() {
            return;
        }
        let address = self.contact();
        let tell = move |record: &mut Record| {
            record.contact = Contact { address, count: record.contact.count + 1 };
        };
        if let Err(error) = self.0.table.adjust(&self.0.name, tell).await {
            tracing::warn!("the address of this node could not be stored: {error}");
        }
    }

    /// Whether the configuration names nodes of a cluster none of which this node has met yet, as at its first start or
    /// after the loss of its disk.
    pub fn is_seeding(&self) -> bool {
        let is_other = |name: &NodeName| *name != self.0.name;
        let is_named = seeds(&self.0.config.list("cluster", "seeds", "")).iter().any(|(name, _)| is_other(name));
        // One that was removed had been met, by the one that told so.
        let is_met =
            |(name, record): (&String, &Record)| *name != *self.0.name.as_str() && (record.joined || record.deleted);
        is_named && !self.records().iter().any(is_met)
    }

    /// A member that the configuration names.
    async fn seed(&self, name: NodeName, address: String) -> Result<(), StartError> {
        if self.0.table.find(&name).is_none() {
            self.0.table.put(name.as_str(), Default::default(), None).await?;
        }
        let tell = move |record: &mut Record| {
            if record.contact.count == 0 {
                record.contact.address = address;
            }
        };
        Ok(self.0.table.adjust(&name, tell).await?)
    }
}

/// Notes the node's name at its first start; a node alone may change it.
async fn settle_name(table: &Table, storage: &Storage, stored: Option<Vec<u8>>, name: &str) -> Result<(), StartError> {
    let stored = stored.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if stored.as_deref() == Some(name) {
        return Ok(());
    }
    if let Some(before) = stored {
        if table.members().iter().any(|member| member.name.as_str() != before) {
            return Err(StartError::Renamed(before, name.to_owned()));
        }
        match table.delete(&before, None).await {
            Ok(_) | Err(MemberError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let value = name.as_bytes().to_vec();
    let job = move |view: &mut WriteView<'_>| {
        view.put(prefix(b'n'), value);
        Ok(Ok::<(), std::convert::Infallible>(()))
    };
    let Ok(()) = storage.committer().submit(job).await.map_err(|e| StartError::Storage(e.to_string()))?;
    Ok(())
}

/// `name@host=address` of each seed; an address without a name is left out.
fn seeds(list: &[String]) -> Vec<(NodeName, String)> {
    let pair = |seed: &String| {
        let (name, address) = seed.split_once('=')?;
        Some((NodeName::from(name.trim()), address.trim().to_owned()))
    };
    list.iter().filter_map(pair).collect()
}

/// `cluster/bind_address`, else that of HTTP, and `cluster/port`.
fn listen_address(config: &Config) -> Result<SocketAddr, StartError> {
    let http = config.text("chttpd", "bind_address", limits::BIND_ADDRESS);
    let text = config.text("cluster", "bind_address", &http);
    let ip: IpAddr = address::bind_ip(&text)
        .ok_or_else(|| StartError::Setting(format!("cluster/bind_address `{text}` is no IP address")))?;
    let port = config.text("cluster", "port", &limits::CLUSTER_PORT.to_string());
    let port = port.parse().map_err(|_| StartError::Setting(format!("cluster/port `{port}` is no port number")))?;
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_have_a_name_and_an_address() {
        let list = ["a@h=h:1".to_owned(), "h:2".to_owned(), " b@h = h:3 ".to_owned()];
        let expected = [("a@h".into(), "h:1".to_owned()), ("b@h".into(), "h:3".to_owned())];
        assert_eq!(seeds(&list), expected);
    }
}
