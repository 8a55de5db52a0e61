//! TLS between nodes (`[cluster] tls`), below the handshake over the secret, which does not change.
//!
//! With `tls_ca_file` each side shows a certificate of that authority, and the certificate of the called node names the
//! host under which it is called. Without that option connections are encrypted but not authenticated by certificates.
//! The files are read at the start of the node. Either all nodes of a cluster use TLS, or none does.

use std::io;
use std::path::PathBuf;

use crate::config::Config;
use crate::wire::tls::{self, Acceptor, ClientFiles, Connector, ServerMaterial, TlsError, Trust};
use crate::world::{BoxStream, Env};

/// Both sides of TLS between nodes.
pub(super) struct Secure {
    acceptor: Acceptor,
    connector: Connector,
}

impl Secure {
    /// What `[cluster]` asks for; `None`: plain connections.
    pub(super) async fn open(env: &Env, config: &Config) -> Result<Option<Secure>, TlsError> {
        if !config.bool("cluster", "tls", false) {
            return Ok(None);
        }
        let needed = |path: Option<String>, key: &str| {
            let path = path.filter(|path| !path.is_empty()).map(PathBuf::from);
            path.ok_or_else(|| TlsError(format!("cluster/tls needs cluster/{key}")))
        };
        let certificate = needed(config.get("cluster", "tls_cert_file"), "tls_cert_file")?;
        let key = needed(config.get("cluster", "tls_key_file"), "tls_key_file")?;
        let authority = authority(config);
        let client_roots = match &authority {
            Some(path) => Some(tls::read_file(env, path).await?),
            None => None,
        };
        let material = ServerMaterial {
            certificates: tls::read_file(env, &certificate).await?,
            key: tls::read_file(env, &key).await?,
            demand_client: client_roots.is_some(),
            client_roots,
            tls12: false,
        };
        let own = ClientFiles { certificate, key };
        let connector = Connector::new(env, authority.map_or(Trust::Anyone, Trust::File), Some(own));
        Ok(Some(Secure { acceptor: Acceptor::new(env, &material)?, connector }))
    }

    /// Shakes hands as the one that is called.
    pub(super) async fn accept(&self, stream: BoxStream) -> io::Result<BoxStream> {
        self.acceptor.accept(stream).await
    }

    /// Shakes hands as the one that calls `host`.
    pub(super) async fn connect(&self, host: &str, stream: BoxStream) -> io::Result<BoxStream> {
        self.connector.connect(host, stream).await
    }

    /// The side that calls, for requests of a set-up to another node.
    pub(super) fn connector(&self) -> Connector {
        self.connector.clone()
    }
}

fn authority(config: &Config) -> Option<PathBuf> {
    config.get("cluster", "tls_ca_file").filter(|path| !path.is_empty()).map(PathBuf::from)
}
