//! Trusted authorities and client certificates of replications over https: options of the section `[replicator]`.

use std::path::PathBuf;

use crate::config::Config;
use crate::wire::tls::{ClientFiles, Connector, Trust};
use crate::world::Env;

const SECTION: &str = "replicator";

/// The TLS side of a job's client. As in CouchDB certificates are checked only with `verify_ssl_certificates`: against
/// `ssl_trusted_certificates_file`, else against the authorities of the operating system.
pub(super) fn connector(env: &Env, config: &Config) -> Connector {
    let file = |key: &str| config.get(SECTION, key).filter(|path| !path.is_empty()).map(PathBuf::from);
    let trust = match (config.bool(SECTION, "verify_ssl_certificates", false), file("ssl_trusted_certificates_file")) {
        (false, _) => Trust::Anyone,
        (true, Some(path)) => Trust::File(path),
        (true, None) => Trust::System,
    };
    let own = file("cert_file").zip(file("key_file")).map(|(certificate, key)| ClientFiles { certificate, key });
    Connector::new(env, trust, own)
}
