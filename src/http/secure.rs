//! The TLS listener: `[ssl]`. It can be opened, moved, closed and given new certificates while the node runs.
//!
//! The configuration is followed at every change, and the files are read again every `limits::TLS_RELOAD_MS`, so that a
//! renewed certificate counts without a restart. Unusable settings are logged and change nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::server::{Shared, accept, listen_address};
use crate::config::Config;
use crate::limits;
use crate::wire::tls::{self, Acceptor, ServerMaterial, TlsError};
use crate::world::{Abort, Env, Listener};

const SECTION: &str = "ssl";

/// What `[ssl]` asks for, with its files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    at: SocketAddr,
    material: ServerMaterial,
}

/// A TLS listener that is ready to accept.
pub struct Secured {
    wanted: Wanted,
    listener: Box<dyn Listener>,
    address: SocketAddr,
    acceptor: Acceptor,
}

/// The certificate in use; connections take the one of their time.
pub(super) type Current = Arc<RwLock<Acceptor>>;

/// Opens the listener that the configuration asks for; `None` unless `ssl/enable` is `true`.
///
/// # Errors
/// One line for the operator.
pub async fn open(env: &Env, config: &Config) -> Result<Option<Secured>, TlsError> {
    match wanted(env, config).await? {
        None => Ok(None),
        Some(wanted) => Secured::new(env, wanted).await.map(Some),
    }
}

impl Secured {
    /// Where it listens, with the real port when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    async fn new(env: &Env, wanted: Wanted) -> Result<Secured, TlsError> {
        let acceptor = Acceptor::new(env, &wanted.material)?;
        let told = |e: std::io::Error| TlsError(format!("cannot listen on {} for https: {e}", wanted.at));
        let listener = env.host().listen(wanted.at).await.map_err(told)?;
        let address = listener.local_addr().map_err(told)?;
        Ok(Secured { wanted, listener, address, acceptor })
    }
}

/// Reads `[ssl]` and the files that it names.
async fn wanted(env: &Env, config: &Config) -> Result<Option<Wanted>, TlsError> {
    if !config.bool(SECTION, "enable", false) {
        return Ok(None);
    }
    let path = |key: &str| config.get(SECTION, key).filter(|path| !path.is_empty()).map(PathBuf::from);
    let needed = |key: &str| path(key).ok_or_else(|| TlsError(format!("ssl/{key} is not set")));
    let port = config.text(SECTION, "port", limits::TLS_PORT);
    let at = listen_address(config, SECTION, &port).map_err(TlsError)?;
    let certificates = tls::read_file(env, &needed("cert_file")?).await?;
    let key = tls::read_file(env, &needed("key_file")?).await?;
    let client_roots = match (config.bool(SECTION, "verify_ssl_certificates", false), path("cacert_file")) {
        (true, Some(path)) => Some(tls::read_file(env, &path).await?),
        (true, None) => return Err(TlsError("ssl/verify_ssl_certificates needs ssl/cacert_file".to_owned())),
        (false, _) => None,
    };
    let versions = config.text(SECTION, "tls_versions", "tlsv1.2, tlsv1.3");
    let material = ServerMaterial {
        certificates,
        key,
        client_roots,
        demand_client: config.bool(SECTION, "fail_if_no_peer_cert", false),
        tls12: versions.contains("tlsv1.2"),
    };
    Ok(Some(Wanted { at, material }))
}

/// A listener at work.
struct Running {
    wanted: Wanted,
    current: Current,
    accepting: Box<dyn Abort>,
}

impl Running {
    fn start(shared: &Arc<Shared>, secured: Secured) -> Running {
        let Secured { wanted, listener, address, acceptor } = secured;
        let current = Arc::new(RwLock::new(acceptor));
        shared.set_secure_address(Some(address));
        tracing::info!("listening on https://{address}/");
        let task = accept(Arc::clone(shared), listener, Some(Arc::clone(&current)));
        Running { wanted, current, accepting: shared.env().spawn(task) }
    }
}

/// Keeps the listener as the configuration wants it, until the server stops.
pub(super) async fn keep(shared: Arc<Shared>, at_start: Option<Secured>) {
    let env = shared.env().clone();
    let (mut changes, mut stopping) = (shared.config().watch(), shared.stopping());
    let mut running = at_start.map(|secured| Running::start(&shared, secured));
    let mut told = None;
    loop {
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            changed = changes.changed() => if changed.is_err() { return },
            () = env.sleep(Duration::from_millis(limits::TLS_RELOAD_MS)) => {}
        }
        let outcome = adjust(&shared, &mut running).await.err();
        if let (Some(error), true) = (&outcome, outcome != told) {
            tracing::error!("https: {error}");
        }
        told = outcome;
    }
}

async fn adjust(shared: &Arc<Shared>, running: &mut Option<Running>) -> Result<(), TlsError> {
    let wanted = wanted(shared.env(), shared.config()).await?;
    if running.as_ref().map(|running| &running.wanted) == wanted.as_ref() {
        return Ok(());
    }
    match (running.as_mut(), wanted) {
        (Some(running), Some(wanted)) if running.wanted.at == wanted.at => {
            let acceptor = Acceptor::new(shared.env(), &wanted.material)?;
            *running.current.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
            running.wanted = wanted;
            tracing::info!("https: new certificates are in use");
        }
        (_, Some(wanted)) => {
            let secured = Secured::new(shared.env(), wanted).await?;
            if let Some(old) = running.take() {
                old.accepting.abort();
            }
            *running = Some(Running::start(shared, secured));
        }
        (_, None) => {
            if let Some(old) = running.take() {
                old.accepting.abort();
                shared.set_secure_address(None);
                tracing::info!("https: no longer listening");
            }
        }
    }
    Ok(())
}
