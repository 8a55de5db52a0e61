//! Password hashes in the forms that CouchDB stores. Pure; computing one takes up to a second: use the blocking pool.

use hmac::Hmac;
use sha1::Sha1;
use sha2::digest::Digest;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use crate::limits;
use crate::wire::hex;

/// A stored password hash. Salts count as their text, not as decoded hex (as CouchDB 3.5 was measured).
#[derive(Clone, PartialEq, Eq)]
pub enum StoredHash {
    /// `-pbkdf2:sha256-<hex>,<salt>,<iterations>`; without a name SHA-1 is meant: `-pbkdf2-<hex>,<salt>,<iterations>`.
    Pbkdf2 {
        /// The hash function of the HMAC.
        prf: Prf,
        /// The derived key.
        derived: Vec<u8>,
        /// The salt.
        salt: String,
        /// The number of rounds.
        iterations: u32,
    },
    /// `-hashed-<hex>,<salt>`: SHA-1 over password and salt.
    Simple {
        /// The digest.
        digest: Vec<u8>,
        /// The salt.
        salt: String,
    },
}

impl std::fmt::Debug for StoredHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoredHash(..)")
    }
}

/// The hash function within PBKDF2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prf {
    /// SHA-1, 20 bytes.
    Sha1,
    /// SHA-224, 28 bytes.
    Sha224,
    /// SHA-256, 32 bytes: what new hashes use.
    Sha256,
    /// SHA-384, 48 bytes.
    Sha384,
    /// SHA-512, 64 bytes.
    Sha512,
}

impl Prf {
    /// Reads the name that CouchDB uses (`sha256`).
    pub fn from_name(name: &str) -> Option<Prf> {
        Some(match name {
            "sha" => Prf::Sha1,
            "sha224" => Prf::Sha224,
            "sha256" => Prf::Sha256,
            "sha384" => Prf::Sha384,
            "sha512" => Prf::Sha512,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Prf::Sha1 => "sha",
            Prf::Sha224 => "sha224",
            Prf::Sha256 => "sha256",
            Prf::Sha384 => "sha384",
            Prf::Sha512 => "sha512",
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Prf::Sha1 => 20,
            Prf::Sha224 => 28,
            Prf::Sha256 => 32,
            Prf::Sha384 => 48,
            Prf::Sha512 => 64,
        }
    }
}

/// How new hashes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The pseudo-random function of PBKDF2: `chttpd_auth/pbkdf2_prf`.
    pub prf: Prf,
    /// Its rounds: `chttpd_auth/iterations`.
    pub iterations: u32,
}

impl From<u32> for Cost {
    fn from(iterations: u32) -> Cost {
        Cost { prf: Prf::Sha256, iterations }
    }
}

/// Whether a value of `[admins]` is meant as a hash; anything else is a plain password.
pub fn looks_hashed(value: &str) -> bool {
    ["-pbkdf2-", "-pbkdf2:", "-hashed-"].iter().any(|start| value.starts_with(start))
}

impl StoredHash {
    /// Reads a value of `[admins]`; `None` when it has none of the forms.
    pub fn parse(text: &str) -> Option<StoredHash> {
        if let Some(rest) = text.strip_prefix("-hashed-") {
            let (digest, salt) = rest.split_once(',')?;
            return Some(StoredHash::Simple { digest: hex::decode(digest)?, salt: salt.to_owned() });
        }
        let rest = text.strip_prefix("-pbkdf2")?;
        let (prf, rest) = match rest.strip_prefix(':') {
            Some(named) => {
                let (name, rest) = named.split_once('-')?;
                (Prf::from_name(name)?, rest)
            }
            None => (Prf::Sha1, rest.strip_prefix('-')?),
        };
        let mut parts = rest.split(',');
        let (derived, salt, iterations) = (parts.next()?, parts.next()?, parts.next()?.trim());
        let derived = hex::decode(derived)?;
        let iterations = iterations.parse().ok()?;
        let sane = (1..=limits::PASSWORD_ITERATIONS_MAX).contains(&iterations) && derived.len() == prf.len();
        let known = sane && parts.next().is_none();
        known.then(|| StoredHash::Pbkdf2 { prf, derived, salt: salt.to_owned(), iterations })
    }

    /// Hashes a new password with PBKDF2; the salt is 32 hex digits of `salt`.
    pub fn create(password: &[u8], salt: [u8; 16], cost: impl Into<Cost>) -> StoredHash {
        let (Cost { prf, iterations }, salt) = (cost.into(), hex::encode(&salt));
        let derived = pbkdf2(prf, password, salt.as_bytes(), iterations);
        StoredHash::Pbkdf2 { prf, derived, salt, iterations }
    }

    /// Whether `password` is the one; takes the same time wherever it differs.
    pub fn matches(&self, password: &[u8]) -> bool {
        match self {
            StoredHash::Pbkdf2 { prf, derived, salt, iterations } => {
                equal(&pbkdf2(*prf, password, salt.as_bytes(), *iterations), derived)
            }
            StoredHash::Simple { digest, salt } => {
                equal(&Sha1::new().chain_update(password).chain_update(salt.as_bytes()).finalize(), digest)
            }
        }
    }

    /// The salt as it counts.
    pub fn salt(&self) -> &str {
        match self {
            StoredHash::Pbkdf2 { salt, .. } | StoredHash::Simple { salt, .. } => salt,
        }
    }

    /// The rounds of PBKDF2; `None` for the simple scheme.
    pub fn iterations(&self) -> Option<u32> {
        match self {
            StoredHash::Pbkdf2 { iterations, .. } => Some(*iterations),
            StoredHash::Simple { .. } => None,
        }
    }

    /// Whether a hash is made otherwise now: another scheme or function, or this one has fewer rounds.
    pub fn is_outdated(&self, now: impl Into<Cost>) -> bool {
        let now = now.into();
        !matches!(self, StoredHash::Pbkdf2 { prf, iterations, .. } if *prf == now.prf && *iterations >= now.iterations)
    }

    /// The form in `[admins]`.
    pub fn to_text(&self) -> String {
        match self {
            StoredHash::Pbkdf2 { prf: Prf::Sha1, derived, salt, iterations } => {
                format!("-pbkdf2-{},{salt},{iterations}", hex::encode(derived))
            }
            StoredHash::Pbkdf2 { prf, derived, salt, iterations } => {
                format!("-pbkdf2:{}-{},{salt},{iterations}", prf.name(), hex::encode(derived))
            }
            StoredHash::Simple { digest, salt } => format!("-hashed-{},{salt}", hex::encode(digest)),
        }
    }
}

fn pbkdf2(prf: Prf, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
    let mut out = vec![0; prf.len()];
    let done = match prf {
        Prf::Sha1 => pbkdf2::pbkdf2::<Hmac<Sha1>>(password, salt, iterations, &mut out),
        Prf::Sha224 => pbkdf2::pbkdf2::<Hmac<Sha224>>(password, salt, iterations, &mut out),
        Prf::Sha256 => pbkdf2::pbkdf2::<Hmac<Sha256>>(password, salt, iterations, &mut out),
        Prf::Sha384 => pbkdf2::pbkdf2::<Hmac<Sha384>>(password, salt, iterations, &mut out),
        Prf::Sha512 => pbkdf2::pbkdf2::<Hmac<Sha512>>(password, salt, iterations, &mut out),
    };
    // Invariant: HMAC takes keys of any length, the only thing that could be refused.
    done.expect("HMAC takes any key");
    out
}

/// Whether two byte strings are equal, in a time that depends on their lengths alone.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |acc, (x, y)| std::hint::black_box(acc | (x ^ y)));
    a.len() == b.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_forms_of_couchdb_are_read_and_checked() {
        let sha1 = "-pbkdf2-d2da21bd9ceec7e0b87946d046a339fc54cb06bc,saltsaltsalt,10";
        let sha256 = "-pbkdf2:sha256-7e3efee0127fa698bbc53ff78f311c8d01c252bb441f831e7a4737b639721283,pepper,12";
        let simple = "-hashed-8ef45be353db515c2c0d6f36c564030f331be370,thesalt";
        for (text, password) in [(sha1, "mellon"), (sha256, "friend"), (simple, "oldie")] {
            assert!(looks_hashed(text));
            let stored = StoredHash::parse(text).unwrap();
            assert!(stored.matches(password.as_bytes()), "{text}");
            assert!(!stored.matches(b"Mellon"), "{text}");
            assert_eq!(stored.to_text(), text);
        }
    }

    #[test]
    fn pbkdf2_agrees_with_rfc_6070_and_rfc_7914() {
        let sha1 = pbkdf2(Prf::Sha1, b"password", b"salt", 4096);
        assert_eq!(hex::encode(&sha1), "4b007901b765489abead49d926f721d065a429c1");
        let sha256 = pbkdf2(Prf::Sha256, b"passwd", b"salt", 1);
        assert_eq!(hex::encode(&sha256), "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc");
    }

    #[test]
    fn a_new_hash_has_the_format_of_couchdb_and_knows_its_password() {
        let stored = StoredHash::create(b"secret", [0xab; 16], 3);
        let text = stored.to_text();
        let rest = text.strip_prefix("-pbkdf2:sha256-").unwrap();
        let parts: Vec<&str> = rest.split(',').collect();
        assert_eq!((parts[0].len(), parts[1], parts[2]), (64, "ab".repeat(16).as_str(), "3"));
        let read = StoredHash::parse(&text).unwrap();
        assert!(read.matches(b"secret") && !read.matches(b"secret "));
    }

    #[test]
    fn broken_forms_are_no_hashes() {
        for text in [
            "secret",
            "-pbkdf2-zz,salt,10",
            "-pbkdf2-d2da,salt,10",
            "-pbkdf2:md5-d2da,salt,10",
            "-pbkdf2-d2da21bd9ceec7e0b87946d046a339fc54cb06bc,salt",
            "-pbkdf2-d2da21bd9ceec7e0b87946d046a339fc54cb06bc,salt,0",
            "-pbkdf2-d2da21bd9ceec7e0b87946d046a339fc54cb06bc,salt,4000000000",
            "-hashed-abc",
        ] {
            assert_eq!(StoredHash::parse(text), None, "{text}");
        }
        assert!(!looks_hashed("secret"));
    }

    #[test]
    fn comparison_sees_every_byte_and_the_length() {
        assert!(equal(b"abc", b"abc"));
        assert!(!equal(b"abc", b"abd") && !equal(b"abc", b"ab") && !equal(b"", b"a"));
    }
}
