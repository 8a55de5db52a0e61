//! A certificate that a server makes for itself, with a fresh key: for connections on which something else than the
//! certificate authenticates the other side.
//!
//! The certificate is X.509 v3 over an Ed25519 key, valid for ever, without extensions: nobody is to believe it. Its
//! form is always the same, so that it is written here and no library for certificates is needed. Such keys and
//! signatures are functions of the seed and of what is signed, so that simulated runs repeat.

use ring::signature::{Ed25519KeyPair, KeyPair};

use super::{ServerMaterial, TlsError, error};
use crate::wire::der::{BITS, BYTES, GENERAL_TIME, INTEGER, SEQUENCE, SET, UTC_TIME, UTF8, der, pem};
use crate::world::Env;

/// The algorithm Ed25519, of keys and of signatures.
const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];
/// The attribute `commonName`.
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
const NAME: &[u8] = b"settee node";

/// The version of a certificate.
const EXPLICIT_0: u8 = 0xa0;

impl ServerMaterial {
    /// A new certificate with a new key. Clients are not asked for theirs.
    ///
    /// # Errors
    /// When no key can be made of the system's random numbers.
    pub fn self_made(env: &Env) -> Result<ServerMaterial, TlsError> {
        let seed = env.random_bytes::<32>();
        let certificate = certificate(&seed, env.random_bytes::<16>())?;
        Ok(ServerMaterial {
            certificates: pem("CERTIFICATE", &certificate).into_bytes(),
            key: pem("PRIVATE KEY", &private_key(&seed)).into_bytes(),
            client_roots: None,
            demand_client: false,
            tls12: false,
        })
    }
}

/// PKCS #8 of the key that a seed stands for.
fn private_key(seed: &[u8; 32]) -> Vec<u8> {
    der(SEQUENCE, &[&der(INTEGER, &[&[0]]), ED25519, &der(BYTES, &[&der(BYTES, &[seed])])])
}

/// The certificate that the key of `seed` gives itself.
fn certificate(seed: &[u8; 32], mut serial: [u8; 16]) -> Result<Vec<u8>, TlsError> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|e| error("a new key", e))?;
    // A positive number in its shortest form.
    serial[0] = serial[0] & 0x7f | 0x40;
    let name = der(SEQUENCE, &[&der(SET, &[&der(SEQUENCE, &[COMMON_NAME, &der(UTF8, &[NAME])])])]);
    let validity = der(SEQUENCE, &[&der(UTC_TIME, &[b"700101000000Z"]), &der(GENERAL_TIME, &[b"99991231235959Z"])]);
    let public = der(SEQUENCE, &[ED25519, &der(BITS, &[&[0], pair.public_key().as_ref()])]);
    let version = der(EXPLICIT_0, &[&der(INTEGER, &[&[2]])]);
    let serial = der(INTEGER, &[&serial]);
    let told = der(SEQUENCE, &[&version, &serial, ED25519, &name, &validity, &name, &public]);
    let signature = pair.sign(&told);
    Ok(der(SEQUENCE, &[&told, ED25519, &der(BITS, &[&[0], signature.as_ref()])]))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::wire::tls::{Acceptor, Connector, Trust};

    fn env() -> Env {
        crate::world::tokio_host::env(tokio::runtime::Handle::current())
    }

    #[test]
    fn a_seed_gives_one_certificate_and_its_signature_is_that_of_its_key() {
        let made = certificate(&[7; 32], [0; 16]).unwrap();
        assert_eq!(made, certificate(&[7; 32], [0; 16]).unwrap());
        assert_ne!(made, certificate(&[8; 32], [0; 16]).unwrap());
        let read = CertificateDer::from_pem_slice(pem("CERTIFICATE", &made).as_bytes()).unwrap();
        assert_eq!(read.as_ref(), made);
        let public = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, public.public_key());
        // What is signed stands between the head of the whole, of three bytes, and algorithm and signature.
        let (told, rest) = made[3..].split_at(made.len() - 3 - ED25519.len() - 67);
        assert_eq!(rest[..ED25519.len()], *ED25519);
        key.verify(told, &rest[ED25519.len() + 3..]).unwrap();
    }

    #[tokio::test]
    async fn both_sides_of_a_connection_have_its_number_and_those_of_another_do_not() {
        let env = env();
        let acceptor = Acceptor::new(&env, &ServerMaterial::self_made(&env).unwrap()).unwrap();
        let connector = Connector::new(&env, Trust::Anyone, None);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (here, there) = tokio::io::duplex(1 << 14);
            let (one, other) = tokio::join!(
                connector.connect_bound("127.0.0.1", Box::new(here)),
                acceptor.accept_bound(Box::new(there))
            );
            let ((_, one), (_, other)) = (one.unwrap(), other.unwrap());
            assert_eq!(one, other);
            seen.push(one);
        }
        assert_ne!(seen[0], seen[1], "nor does a session that is resumed");
    }
}
