//! One node: all layers put together over an [`Env`]. Used by `main` and by the simulator alike.

pub mod offline;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::auth::{self, Authenticator};
use crate::cluster::{self, Cluster, Service};
use crate::config::Config;
use crate::coordinator::topology::peers::{ClusterPeers, Peers};
use crate::coordinator::{Coordinator, CreateOptions, DatabaseError, Options};
use crate::document::collate::Collator;
use crate::document::security::ADMINS_ONLY;
use crate::http::admission::Admission;
use crate::http::assets::Forms;
use crate::http::forward::Forwarded;
use crate::http::handle::cluster::setup as cluster_setup;
use crate::http::secure;
use crate::http::server::Server;
use crate::http::slow::SlowRequests;
use crate::http::stats::Stats;
use crate::http::streams::Streams;
use crate::http::uuid::Uuids;
use crate::http::{self, Context, Problem};
use crate::limits;
use crate::replicate::Replicator;
use crate::storage::{MissingFiles, Storage, StorageOptions};
use crate::wire::tls::TlsError;
use crate::world::{Abort, Env};

/// A running node.
pub struct Node {
    address: SocketAddr,
    server: Server,
    context: Arc<Context>,
    peruser: Box<dyn Abort>,
    replications: Box<dyn Abort>,
}

/// What an operator can do about a data directory that is not whole.
const WAYS: &str = "Put back what is missing; or fill a member of a cluster anew from the others; or take over what is \
                    whole with `settee salvage`: docs/operations.md, 'When a node does not start'";

/// What kept a node from starting: one line for its operator.
#[derive(Debug)]
pub enum StartError {
    /// `chttpd/bind_address` or `chttpd/port` makes no sense.
    Address(String),
    /// The address cannot be listened on.
    Listen(SocketAddr, std::io::Error),
    /// `[ssl]` asks for what cannot be done.
    Tls(TlsError),
    /// The data directory cannot be used.
    Data(PathBuf, String),
    /// Something in the data directory is damaged or missing. Nothing was changed.
    Damaged(PathBuf, String),
    /// The node cannot take its place in the cluster.
    Cluster(cluster::StartError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Address(reason) => f.write_str(reason),
            StartError::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            StartError::Tls(error) => write!(f, "[ssl] {error}"),
            StartError::Cluster(error) => error.fmt(f),
            StartError::Damaged(dir, reason) => {
                write!(f, "data directory {}: not whole: {reason}. Nothing was changed. {WAYS}", dir.display())
            }
            StartError::Data(dir, reason) => write!(f, "data directory {}: {reason}", dir.display()),
        }
    }
}

impl std::error::Error for StartError {}

impl Node {
    /// Opens what is in `data_dir`, listens, and serves from then on.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(env: &Env, config: &Config, data_dir: &Path) -> Result<Node, StartError> {
        let memory_mb = config.u64("settee", "memory_mb", limits::MEMORY_MB);
        let missing_files = match config.text("settee", "missing_files", "refuse").as_str() {
            "rebuild" | "refill" => MissingFiles::Rebuild,
            _ => MissingFiles::Refuse,
        };
        let options = StorageOptions { missing_files, ..StorageOptions::default().with_memory(memory_mb) };
        Node::start_with(env, config, data_dir, options).await
    }

    /// [`Node::start`] with another engine, cache or planted bugs: for the simulator.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn start_with(
        env: &Env,
        config: &Config,
        data_dir: &Path,
        options: StorageOptions,
    ) -> Result<Node, StartError> {
        let at = listen_address(config)?;
        for key in ["database_dir", "view_index_dir"] {
            config.tell_default("couchdb", key, &data_dir.display().to_string());
        }
        let data = |reason: &dyn fmt::Display| StartError::Data(data_dir.to_path_buf(), reason.to_string());
        let opened = Storage::open(env.clone(), data_dir, options).await;
        let storage = opened.map_err(|error| match error.is_damage() {
            true => StartError::Damaged(data_dir.to_path_buf(), error.to_string()),
            false => data(&error),
        })?;
        let listener = env.host().listen(at).await.map_err(|e| StartError::Listen(at, e))?;
        let secured = secure::open(env, config).await.map_err(StartError::Tls)?;
        let address = listener.local_addr().map_err(|e| StartError::Listen(at, e))?;
        let cluster = Cluster::start(env, config, &storage).await.map_err(StartError::Cluster)?;
        auth::ensure_secret(env, config).await.map_err(|e| data(&e))?;
        let peers: Arc<dyn Peers> = Arc::new(ClusterPeers(cluster.clone()));
        let settings = Options { node: name(config), peers: Some(peers), system_databases: false };
        let opened = Coordinator::open(env.clone(), config.clone(), storage, settings).await;
        let coordinator = opened.map_err(|e| data(&Problem::from(e)))?;
        if cluster.members().len() <= 1 && !cluster_setup::is_under_way(config) {
            make_system_databases(&coordinator).await.map_err(|e| data(&Problem::from(e)))?;
        }
        auth::users_design::keep(env, config, &coordinator).await;
        auth::users_design::watch(env, config, &coordinator);
        let replicator = Replicator::new(env, config, &coordinator);
        let context = Arc::new(Context {
            env: env.clone(),
            config: config.clone(),
            authenticator: Authenticator::new(env, config, Some(Arc::clone(&coordinator))),
            coordinator,
            collator: Collator::new(),
            replicator,
            uuids: Uuids::new(env, config),
            admission: Admission::new(env, config),
            bodies: crate::http::bodies::Bodies::new(),
            answers: Arc::default(),
            streams: Streams::new(env.clone()),
            stats: Stats::new(env),
            slow: SlowRequests::default(),
            assets: Forms::default(),
            restart: tokio::sync::Notify::new(),
            stopping: tokio::sync::watch::Sender::new(false),
            node_name: name(config),
            cluster: cluster.clone(),
        });
        cluster.serve(Service::Http, Arc::new(Forwarded::new(&context)));
        cluster.run();
        let peruser = auth::peruser::start(env, config, &cluster, &context.coordinator);
        let replications = context.replicator.follow_documents(&cluster, format!("http://{address}"));
        let server = Server::start(Arc::clone(&context), listener, secured);
        Ok(Node { address, server, context, peruser, replications })
    }

    /// Where it listens, with the real port when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it speaks https, if it does.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.server.secure_address()
    }

    /// What its requests see, for tools that live in the same process.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns once an administrator has asked for a restart.
    pub async fn restart_wanted(&self) {
        self.context.restart.notified().await;
    }

    /// Takes no more requests, finishes those in progress, and returns; false when some had to be cut off after
    /// `limits::STOP_DRAIN`.
    pub async fn stop(&self) -> bool {
        self.peruser.abort();
        self.replications.abort();
        self.context.replicator.stop();
        let finished = self.server.stop().await;
        self.context.coordinator.note_updates().await;
        self.context.cluster.close().await;
        finished
    }
}

/// `_users` and `_replicator` exist from the first start of a node alone, open to server administrators only.
async fn make_system_databases(coordinator: &Coordinator) -> Result<(), DatabaseError> {
    for name in ["_replicator", "_users"] {
        if !coordinator.has_database(name) {
            let security = Some(ADMINS_ONLY.into());
            coordinator.create_database(name, CreateOptions { security, ..CreateOptions::default() }).await?;
        }
    }
    Ok(())
}

/// This node's name: `settee/node`.
pub fn name(config: &Config) -> String {
    config.text("settee", "node", limits::NODE_NAME)
}

/// `chttpd/bind_address` and `chttpd/port`.
fn listen_address(config: &Config) -> Result<SocketAddr, StartError> {
    let port = config.text("chttpd", "port", limits::PORT);
    http::server::listen_address(config, "chttpd", &port).map_err(StartError::Address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use crate::world::tokio_host;

    #[test]
    fn the_address_comes_from_the_configuration() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let address = |settings: &[&str]| {
            let overrides = settings.iter().map(|s| Setting::parse(s).unwrap()).collect();
            listen_address(&Config::in_memory(&env, overrides)).map(|a| a.to_string()).map_err(|e| e.to_string())
        };
        assert_eq!(address(&[]), Ok("127.0.0.1:5984".to_owned()));
        assert_eq!(address(&["chttpd/bind_address=any", "chttpd/port=0"]), Ok("0.0.0.0:0".to_owned()));
        assert_eq!(address(&["chttpd/bind_address=::1"]), Ok("[::1]:5984".to_owned()));
        assert_eq!(address(&["chttpd/port=x"]), Err("chttpd/port `x` is no port number".to_owned()));
        assert_eq!(
            address(&["chttpd/bind_address=here"]),
            Err("chttpd/bind_address `here` is no IP address".to_owned())
        );
    }
}
