//! TLS over any byte stream of the world: an [`Acceptor`] for a server's side, a [`Connector`] for a client's.
//!
//! rustls with ring; time comes from the [`Env`], since certificates have dates. Certificates and keys are PEM. Nothing
//! here knows the configuration: callers say what to present and whom to trust. Randomness of the handshake is the
//! operating system's, and in the simulator the world's (`tls/seeded.rs`).

#[cfg(feature = "sim")]
mod seeded;
mod self_made;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, ConnectionCommon, DigitallySignedStruct, ProtocolVersion, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
};
use tokio::sync::OnceCell;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::limits;
use crate::world::buggify::sometimes;
use crate::world::{self, BoxStream, Env, Pool};

/// Where systems keep the certificates of the authorities that they trust.
const SYSTEM_ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Certificates or keys that cannot be used; the text is for the operator and holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(pub String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

fn error(what: &str, why: impl fmt::Display) -> TlsError {
    TlsError(format!("{what}: {why}"))
}

/// The channel binding of a TLS connection (RFC 9266, `tls-exporter`): 32 bytes that only its two endpoints can derive.
/// An attacker that terminates TLS between two endpoints has two connections, whose channel bindings differ.
pub type Binding = [u8; 32];

fn binding<Side>(connection: &ConnectionCommon<Side>) -> io::Result<Binding> {
    // Before TLS 1.3 two connections can have the same channel binding (RFC 9266, section 4.2).
    if connection.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Err(io::Error::other("the other side does not speak TLS 1.3"));
    }
    connection.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(&[])).map_err(io::Error::other)
}

/// Whether a handshake failed because what came was not TLS at all.
pub fn is_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

/// What a server presents and demands.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerMaterial {
    /// The server's certificate and those between it and its authority, PEM.
    pub certificates: Vec<u8>,
    /// Its private key, PEM, not encrypted.
    pub key: Vec<u8>,
    /// Authorities whose clients are known, PEM; `None`: clients are not asked for certificates.
    pub client_roots: Option<Vec<u8>>,
    /// Whether a client without a certificate is turned away.
    pub demand_client: bool,
    /// Whether TLS 1.2 is spoken beside 1.3.
    pub tls12: bool,
}

impl fmt::Debug for ServerMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerMaterial(..)")
    }
}

/// The server's side of new connections. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor);

impl Acceptor {
    /// Reads certificates and key.
    ///
    /// # Errors
    /// What cannot be read or does not fit together.
    pub fn new(env: &Env, material: &ServerMaterial) -> Result<Acceptor, TlsError> {
        let provider = provider(env);
        let versions: &[&SupportedProtocolVersion] = if material.tls12 {
            &[&rustls::version::TLS13, &rustls::version::TLS12]
        } else {
            &[&rustls::version::TLS13]
        };
        let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(WorldTime(env.clone())))
            .with_protocol_versions(versions)
            .map_err(|e| error("TLS versions", e))?;
        let builder = match &material.client_roots {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(roots(pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = if material.demand_client { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(|e| error("client authorities", e))?)
            }
        };
        let (certificates, key) = (certificates(&material.certificates)?, private_key(&material.key)?);
        let mut config = builder.with_single_cert(certificates, key).map_err(|e| error("certificate and key", e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Acceptor(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands on a fresh connection. The caller brings the timeout.
    ///
    /// # Errors
    /// What the other side did wrong.
    pub async fn accept(&self, stream: BoxStream) -> io::Result<BoxStream> {
        let stream = self.0.accept(stream).await?;
        sometimes("tls: a server's side shook hands");
        Ok(Box::new(stream))
    }

    /// The same, with the channel binding of the connection.
    ///
    /// # Errors
    /// As there.
    pub async fn accept_bound(&self, stream: BoxStream) -> io::Result<(BoxStream, Binding)> {
        let stream = self.0.accept(stream).await?;
        sometimes("tls: a server's side shook hands");
        let binding = binding(stream.get_ref().1)?;
        Ok((Box::new(stream), binding))
    }
}

/// The cryptography of a new acceptor or connector.
fn provider(env: &Env) -> Arc<CryptoProvider> {
    #[cfg(feature = "sim")]
    if env.host().is_seeded() {
        return seeded::provider(env);
    }
    let _ = env;
    Arc::new(ring::default_provider())
}

/// Whose certificates a client takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Any: TLS then protects against passive eavesdroppers only.
    Anyone,
    /// Those of the authorities in this PEM file.
    File(PathBuf),
    /// Those of the authorities that the operating system trusts.
    System,
}

/// What a client presents: the PEM files of its certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// The client's side of connections. Cheap to clone; files are read at the first connection.
#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    env: Env,
    trust: Trust,
    own: Option<ClientFiles>,
    config: OnceCell<Arc<ClientConfig>>,
}

impl Connector {
    /// A connector; nothing is read yet.
    pub fn new(env: &Env, trust: Trust, own: Option<ClientFiles>) -> Connector {
        Connector(Arc::new(Inner { env: env.clone(), trust, own, config: OnceCell::new() }))
    }

    /// Shakes hands with the server that is to be `host` (a name or an address). The caller brings the timeout.
    ///
    /// # Errors
    /// A certificate that is not believed, files that cannot be read, a broken connection.
    pub async fn connect(&self, host: &str, stream: BoxStream) -> io::Result<BoxStream> {
        Ok(Box::new(self.shake_hands(host, stream).await?))
    }

    /// The same by TLS 1.3, with the channel binding of the connection.
    ///
    /// # Errors
    /// As there.
    pub async fn connect_bound(&self, host: &str, stream: BoxStream) -> io::Result<(BoxStream, Binding)> {
        let stream = self.shake_hands(host, stream).await?;
        let binding = binding(stream.get_ref().1)?;
        Ok((Box::new(stream), binding))
    }

    async fn shake_hands(&self, host: &str, stream: BoxStream) -> io::Result<TlsStream<BoxStream>> {
        let config = self.0.config.get_or_try_init(|| self.0.read()).await.map_err(io::Error::other)?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        sometimes("tls: a client's side shook hands");
        Ok(stream)
    }
}

impl Inner {
    async fn read(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = provider(&self.env);
        let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(WorldTime(self.env.clone())))
            .with_safe_default_protocol_versions()
            .map_err(|e| error("TLS versions", e))?;
        let builder = match &self.trust {
            Trust::Anyone => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))),
            Trust::File(path) => builder.with_root_certificates(roots(&read_file(&self.env, path).await?)?),
            Trust::System => builder.with_root_certificates(self.system_roots().await?),
        };
        let config = match &self.own {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let certificate = certificates(&read_file(&self.env, &files.certificate).await?)?;
                let key = private_key(&read_file(&self.env, &files.key).await?)?;
                builder.with_client_auth_cert(certificate, key).map_err(|e| error("certificate and key", e))?
            }
        };
        Ok(Arc::new(config))
    }

    async fn system_roots(&self) -> Result<RootCertStore, TlsError> {
        for path in SYSTEM_ROOTS.map(Path::new) {
            if let Ok(pem) = read_file(&self.env, path).await {
                return roots(&pem);
            }
        }
        Err(TlsError("the system has no file of trusted authorities; name one in the configuration".to_owned()))
    }
}

/// Reads a file of certificates or keys.
///
/// # Errors
/// What the system says, with the path.
pub async fn read_file(env: &Env, path: &Path) -> Result<Vec<u8>, TlsError> {
    let (disk, at) = (env.disk(), path.to_path_buf());
    let read = move || world::read_whole(&*disk, &at, limits::TLS_FILE_BYTES_MAX);
    env.blocking(Pool::Foreground, read).await.map_err(|e| error(&path.display().to_string(), e))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(TlsError("no certificate in PEM form".to_owned())),
        Err(e) => Err(error("certificate", e)),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    if pem.windows(9).any(|word| word == b"ENCRYPTED") {
        return Err(TlsError(
            "the private key is encrypted: store it decrypted, readable by the node alone".to_owned(),
        ));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|e| error("private key", e))
}

/// The authorities of a bundle. Single ones that rustls does not understand are left out: bundles of systems hold some.
fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates(pem)?);
    if added == 0 { Err(TlsError("no certificate of an authority".to_owned())) } else { Ok(store) }
}

#[derive(Debug)]
struct WorldTime(Env);

impl TimeProvider for WorldTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.wall()))
    }
}

/// Takes every certificate; that the other side has its key is still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
