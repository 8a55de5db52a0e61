//! Keyed hashes of cookies and proxy tokens: `chttpd_auth/hash_algorithms`. Pure.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::{options, password};
use crate::config::Config;

/// What counts while `hash_algorithms` is unset, as CouchDB 3.5 was measured.
const DEFAULT: &str = "sha256, sha";

/// The hash function of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashAlgorithm {
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl HashAlgorithm {
    fn from_name(name: &str) -> Option<HashAlgorithm> {
        Some(match name {
            "md5" => HashAlgorithm::Md5,
            "sha" => HashAlgorithm::Sha1,
            "sha224" => HashAlgorithm::Sha224,
            "sha256" => HashAlgorithm::Sha256,
            "sha384" => HashAlgorithm::Sha384,
            "sha512" => HashAlgorithm::Sha512,
            _ => return None,
        })
    }

    /// The HMAC of `message`.
    pub(super) fn mac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            HashAlgorithm::Md5 => mac::<Hmac<Md5>>(key, message),
            HashAlgorithm::Sha1 => mac::<Hmac<Sha1>>(key, message),
            HashAlgorithm::Sha224 => mac::<Hmac<Sha224>>(key, message),
            HashAlgorithm::Sha256 => mac::<Hmac<Sha256>>(key, message),
            HashAlgorithm::Sha384 => mac::<Hmac<Sha384>>(key, message),
            HashAlgorithm::Sha512 => mac::<Hmac<Sha512>>(key, message),
        }
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    // Invariant: HMAC takes keys of any length.
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes any key");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// The algorithms in force: the first is used for what is new. Names that nobody knows are left out; none left means
/// the default.
pub(super) fn algorithms(config: &Config) -> Vec<HashAlgorithm> {
    let named = |list: Vec<String>| list.iter().filter_map(|name| HashAlgorithm::from_name(name)).collect::<Vec<_>>();
    let configured = named(options::list(config, "hash_algorithms", DEFAULT));
    if configured.is_empty() { vec![HashAlgorithm::Sha256, HashAlgorithm::Sha1] } else { configured }
}

/// Whether `mac` is that of `message` by any of `algorithms`; takes the same time wherever it differs.
pub(super) fn verify(algorithms: &[HashAlgorithm], key: &[u8], message: &[u8], mac: &[u8]) -> bool {
    algorithms.iter().any(|algorithm| password::equal(&algorithm.mac(key, message), mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_agree_with_rfc_2202_and_rfc_4231() {
        let hex = |algorithm: HashAlgorithm| {
            crate::wire::hex::encode(&algorithm.mac(b"Jefe", b"what do ya want for nothing?"))
        };
        assert_eq!(hex(HashAlgorithm::Md5), "750c783e6ab0b503eaa86e310a5db738");
        assert_eq!(hex(HashAlgorithm::Sha1), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(hex(HashAlgorithm::Sha256), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn any_listed_algorithm_verifies() {
        let listed = [HashAlgorithm::Sha256, HashAlgorithm::Sha1];
        let sha1 = HashAlgorithm::Sha1.mac(b"k", b"m");
        assert!(verify(&listed, b"k", b"m", &sha1));
        assert!(!verify(&listed[..1], b"k", b"m", &sha1));
        assert!(!verify(&listed, b"k", b"n", &sha1) && !verify(&listed, b"k", b"m", &[]));
    }
}
