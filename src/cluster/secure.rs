//! TLS between nodes (`[cluster] tls`), below the handshake over the secret, whose proofs cover the TLS connection.
//!
//! Without certificate files a node makes a self-signed certificate at each start, keeps its key in memory, and accepts
//! any certificate from the other side. The proof of the handshake alone authenticates the other node. An attacker that
//! terminates TLS cannot give that proof, because it covers the channel binding (RFC 9266) of the TLS connection. So
//! the switch is enough on all nodes, and the operator has no certificate to distribute, renew or keep.
//!
//! With `tls_cert_file` and `tls_key_file` a node shows that certificate. With `tls_ca_file` each side shows a
//! certificate of that authority, and the certificate of the called node names the host under which it is called. The
//! files are read at the start of the node. Either all nodes of a cluster use TLS, or none does; while it is turned on
//! node by node, nodes with `tls_optional` speak both.

use std::io::{self, Cursor, ErrorKind};
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, join, split};

use super::frame;
use super::handshake::{Channel, HandshakeError};
use crate::config::Config;
use crate::wire::tls::{self, Acceptor, ClientFiles, Connector, ServerMaterial, TlsError, Trust};
use crate::world::buggify::{Mutation, mutated};
use crate::world::{BoxStream, Env};

/// Both sides of TLS between nodes.
pub(super) struct Secure {
    acceptor: Acceptor,
    connector: Connector,
    /// The side that calls another node by https, for a set-up. No proof covers that connection, so it always verifies
    /// the certificate: by the authority of the nodes, else by those that the system trusts.
    https: Connector,
    /// Whether an authority signs the certificates of nodes (`tls_ca_file`).
    has_authority: bool,
    /// Whether this node made its certificate itself.
    self_made: bool,
    /// Whether others may speak no TLS (`tls_optional`).
    is_optional: bool,
}

impl Secure {
    /// What `[cluster]` asks for; `None`: plain connections.
    pub(super) async fn open(env: &Env, config: &Config) -> Result<Option<Secure>, TlsError> {
        if !config.bool("cluster", "tls", false) || mutated(Mutation::PlainBetweenNodes) {
            return Ok(None);
        }
        let path = |text: Option<String>| text.filter(|path| !path.is_empty()).map(PathBuf::from);
        let certificate = path(config.get("cluster", "tls_cert_file"));
        let key = path(config.get("cluster", "tls_key_file"));
        let authority = path(config.get("cluster", "tls_ca_file"));
        let is_optional = config.bool("cluster", "tls_optional", false);
        if is_optional {
            tracing::warn!("[cluster] tls_optional: what other nodes are told may be sent without TLS");
        }
        if certificate.is_none() && key.is_none() && authority.is_none() {
            return Secure::self_made(env, is_optional).map(Some);
        }
        let needed = |key: &str| TlsError(format!("cluster/tls needs cluster/{key} beside the other files"));
        let certificate = certificate.ok_or_else(|| needed("tls_cert_file"))?;
        let key = key.ok_or_else(|| needed("tls_key_file"))?;
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
        let acceptor = Acceptor::new(env, &material)?;
        let has_authority = authority.is_some();
        let https = authority.clone().map_or(Trust::System, Trust::File);
        let https = Connector::new(env, https, Some(own.clone()));
        let connector = Connector::new(env, authority.map_or(Trust::Anyone, Trust::File), Some(own));
        Ok(Some(Secure { acceptor, connector, https, has_authority, self_made: false, is_optional }))
    }

    fn self_made(env: &Env, is_optional: bool) -> Result<Secure, TlsError> {
        Ok(Secure {
            acceptor: Acceptor::new(env, &ServerMaterial::self_made(env)?)?,
            connector: Connector::new(env, Trust::Anyone, None),
            https: Connector::new(env, Trust::System, None),
            has_authority: false,
            self_made: true,
            is_optional,
        })
    }

    /// Shakes hands as the one that is called. A caller that speaks no TLS is taken as it is where TLS is optional.
    pub(super) async fn accept(&self, mut stream: BoxStream) -> Result<Channel, HandshakeError> {
        if self.is_optional {
            let first = stream.read_u8().await?;
            let (read, write) = split(stream);
            stream = Box::new(join(Cursor::new([first]).chain(read), write));
            if !frame::begins_tls(first) {
                return Ok(Channel::plain(stream));
            }
        }
        let (stream, binding) = self.acceptor.accept_bound(stream).await.map_err(|error| told(&error))?;
        Ok(Channel { stream, binding: Some(binding), must_bind: self.self_made })
    }

    /// Shakes hands as the one that calls `host`.
    pub(super) async fn connect(&self, host: &str, stream: BoxStream) -> Result<Channel, HandshakeError> {
        let (stream, binding) = self.connector.connect_bound(host, stream).await.map_err(|error| told(&error))?;
        Ok(Channel { stream, binding: Some(binding), must_bind: self.self_made })
    }

    /// Whether a node that refused TLS is to be called without it.
    pub(super) fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// The side that calls by https, for requests of a set-up to another node.
    pub(super) fn https(&self) -> Connector {
        self.https.clone()
    }

    /// Whether an authority signs the certificates of nodes.
    pub(super) fn has_authority(&self) -> bool {
        self.has_authority
    }
}

/// Why there is no TLS connection, in words for the operator.
fn told(error: &io::Error) -> HandshakeError {
    let same = "`[cluster] tls` is to be the same on all nodes";
    match error.kind() {
        _ if tls::is_no_tls(error) => {
            HandshakeError::NoTls(format!("this node speaks TLS and the other side does not: {same}"))
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => HandshakeError::NoTls(
            format!("the other side ended the connection at this node's first words ({error}): {same}"),
        ),
        _ => HandshakeError::Tls(error.to_string()),
    }
}
