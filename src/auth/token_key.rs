//! Algorithms that tokens are signed by, and the keys that verify them. Pure.
//!
//! `jsonwebtoken` verifies HMAC, RSA (PKCS #1 v1.5 and PSS), ECDSA on P-256 and P-384, and Ed25519 (RFC 7518, 8037).
//! ES512 is verified here, because that package does not have it. Keys are read here, too, because an answer tells a
//! key that cannot be read from a signature that does not fit.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm as Name, DecodingKey, crypto};
use p521::ecdsa::signature::Verifier;
use p521::pkcs8::der::asn1::UintRef;
use p521::pkcs8::der::{self, Decode, Reader, SliceReader};
use p521::pkcs8::{DecodePublicKey, Document, ObjectIdentifier, SubjectPublicKeyInfoRef};

/// Sizes of RSA moduli that are accepted, in bytes (RFC 7518, 3.3: 2,048 bits or larger).
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Bytes of an RSA public exponent at most: larger ones only cost time.
const RSA_EXPONENT_BYTES_MAX: usize = 4;
const RSA_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// Which of `[jwt_keys]` a token may be checked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// A shared key, in base64.
    Hmac,
    /// A public key as PEM.
    Rsa,
    /// A public key as PEM.
    Ec,
    /// A public key as PEM.
    Ed,
}

/// An algorithm that tokens may be signed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// One that `jsonwebtoken` verifies.
    Known(Name),
    /// ECDSA on P-521 with SHA-512.
    Es512,
}

impl Family {
    /// What keys of the family are called in `[jwt_keys]`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::Hmac => "hmac",
            Family::Rsa => "rsa",
            Family::Ec => "ec",
            Family::Ed => "eddsa",
        }
    }
}

impl Algorithm {
    /// Reads the `alg` of a header. `none` is no algorithm.
    pub(super) fn from_name(name: &str) -> Option<Algorithm> {
        match name {
            "ES512" => Some(Algorithm::Es512),
            name => name.parse().ok().map(Algorithm::Known),
        }
    }

    /// The family of its keys.
    pub(super) fn family(self) -> Family {
        match self {
            Algorithm::Known(Name::HS256 | Name::HS384 | Name::HS512) => Family::Hmac,
            Algorithm::Known(Name::EdDSA) => Family::Ed,
            Algorithm::Known(Name::ES256 | Name::ES384) | Algorithm::Es512 => Family::Ec,
            Algorithm::Known(_) => Family::Rsa,
        }
    }

    /// Whether `signature`, in base64url, is that of `message`; `None` when the key, as it stands in the
    /// configuration, is not a key of this algorithm.
    pub(super) fn verify(self, key: &str, message: &[u8], signature: &str) -> Option<bool> {
        let algorithm = match self {
            Algorithm::Known(algorithm) => algorithm,
            Algorithm::Es512 => {
                let key = p521::ecdsa::VerifyingKey::from_public_key_pem(&pem(key)).ok()?;
                let signature = URL_SAFE_NO_PAD.decode(signature).ok();
                let signature = signature.and_then(|bytes| p521::ecdsa::Signature::from_slice(&bytes).ok());
                return Some(signature.is_some_and(|s| key.verify(message, &s).is_ok()));
            }
        };
        let key = match self.family() {
            Family::Hmac => DecodingKey::from_secret(&STANDARD.decode(key.trim()).ok()?),
            Family::Rsa => rsa_key(&pem(key))?,
            Family::Ec => ec_key(&pem(key), if algorithm == Name::ES256 { P256 } else { P384 })?,
            Family::Ed => ed_key(&pem(key))?,
        };
        // An error is a signature that is not in base64url.
        Some(crypto::verify(signature, message, &key, algorithm).unwrap_or(false))
    }
}

/// A key of the configuration as PEM. Blank lines are no part of PEM; files and editors leave them behind it.
fn pem(key: &str) -> String {
    let text = key.replace("\\n", "\n");
    text.lines().map(str::trim).filter(|line| !line.is_empty()).fold(String::new(), |pem, line| pem + line + "\n")
}

/// Reads `PUBLIC KEY` (X.509) and `RSA PUBLIC KEY` (PKCS #1).
fn rsa_key(pem: &str) -> Option<DecodingKey> {
    let (label, document) = Document::from_pem(pem).ok()?;
    let key = match label {
        "RSA PUBLIC KEY" => document.as_bytes(),
        "PUBLIC KEY" => {
            let info = SubjectPublicKeyInfoRef::from_der(document.as_bytes()).ok()?;
            (info.algorithm.oid == RSA_KEY).then(|| info.subject_public_key.as_bytes())??
        }
        _ => return None,
    };
    let (modulus, exponent) = rsa_numbers(key).ok()?;
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
    let is_fit = RSA_BYTES.contains(&modulus.len()) && (1..=RSA_EXPONENT_BYTES_MAX).contains(&exponent.len());
    let is_key = is_fit && is_odd(modulus) && is_odd(exponent) && exponent != [1];
    is_key.then(|| DecodingKey::from_rsa_raw_components(modulus, exponent))
}

/// The modulus and the exponent of a PKCS #1 key.
fn rsa_numbers(key: &[u8]) -> der::Result<(&[u8], &[u8])> {
    let mut reader = SliceReader::new(key)?;
    let numbers =
        reader.sequence(|numbers| Ok::<_, der::Error>((UintRef::decode(numbers)?, UintRef::decode(numbers)?)))?;
    reader.finish()?;
    Ok((numbers.0.as_bytes(), numbers.1.as_bytes()))
}

fn ec_key(pem: &str, curve: ObjectIdentifier) -> Option<DecodingKey> {
    let (label, document) = Document::from_pem(pem).ok()?;
    let info = SubjectPublicKeyInfoRef::from_der(document.as_bytes()).ok()?;
    let is_key = label == "PUBLIC KEY" && info.algorithm.oids().ok()? == (EC_KEY, Some(curve));
    is_key.then(|| info.subject_public_key.as_bytes().map(DecodingKey::from_ec_der))?
}

fn ed_key(pem: &str) -> Option<DecodingKey> {
    let (label, document) = Document::from_pem(pem).ok()?;
    let info = SubjectPublicKeyInfoRef::from_der(document.as_bytes()).ok()?;
    let is_key = label == "PUBLIC KEY" && info.algorithm.oid == ED25519_KEY;
    is_key.then(|| info.subject_public_key.as_bytes().map(DecodingKey::from_ed_der))?
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: &str = "-----BEGIN PUBLIC KEY-----\\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwSw0NdQiOVuhyCLBlMZ0\\n\
        i7qksN+1pXWG0SZRwdn4dMNhMy9yjBAHXsMbfaq81L2wEBtLHnbb59jJ4p3S8jRi\\n\
        gHrS8+yvwW4Jk2BdEDC/rB3tQqNqz+8H5rc7R+0XD4fSec8VxpQMO1W5DX6JSzsW\\n\
        VjRMQZaXSgo32DEGL0K4fSyV+ishJ9iBKy5yJfxJHCnkN7Bfn0lCyivlxvr5v+zP\\n\
        z4KtP9IVqezv6VgtJy1HGr63Jlp1xViHkJ5tC24PMH98wP5bJVTPBA5YZPZ3vOLd\\n\
        uF5H54Bfomax07fRHC6hFEHW0Y2M5dPRQqS3pjrF3pjVmqDUv/3NBQGcIfflCHNV\\nowIDAQAB\\n-----END PUBLIC KEY-----";
    const EC: &str = "-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEHoK/v4d5vLCoeUkWlahy7loXiNio\\n\
        M9m1VUpLz6J28Q/mWKb2j9fDU8gmwrs973pexF5igKb+dx+vkepmpy/rAQ==\\n-----END PUBLIC KEY-----";
    const RS256: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzI1NiIsICJraWQiOiAicjEifQ.eyJzdWIiOiAicnNhIiwgImV4cCI6IDQ\
        xMDI0NDQ4MDB9.B_a3C_8g2t8WC9ZHWIXuqEyHdrHFw0q2S5Vb9Na42s2gbBMrraFfc-XeVCSaiOpPoiNhL6HV1grq\
        QRSjQzVTH8zpEUi2ATyWPtLXhFO75MHyRKbIzZQ_QvfsDyA_m70uHOjjqA4Qvpwi_NcXQMB2ZIktVWnT0VoDVMrv58\
        VRHqe7enrBNMYGsm3po2_yFGEjUe4oebp5hOYotnXAUAxid7iU0iRMANG8RolpILwf6GHCxxjoN8-nWgw3TQXpNsbs\
        CK4Vww4RVwxxyDtxvOZOwnBOduBsWtZ9iHUXGtc3Gqqf0_W1NGirzUZusRPCJs-fW3dEkiZKhnZ1x8HIcqn0xA";
    const ES256: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJFUzI1NiIsICJraWQiOiAiZTEifQ.eyJzdWIiOiAiZWMiLCAiZXhwIjogNDE\
        wMjQ0NDgwMH0.RJlPYdz589zKpQkwU5VZht812TEsPzVx08AWhHTBz29wpICHHG3et_40mpu7VujjhHwWMO9JKYvQT\
        EYAyyYIhQ";

    fn check(name: &str, key: &str, token: &str, spoil: usize) -> Option<bool> {
        let (message, signature) = token.rsplit_once('.').unwrap();
        let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        if spoil > 0 {
            signature[spoil] ^= 1;
        }
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Algorithm::from_name(name).unwrap().verify(key, message.as_bytes(), &signature)
    }

    #[test]
    fn recorded_tokens_are_verified_and_spoilt_ones_are_not() {
        for (name, key, token) in [("RS256", RSA, RS256), ("ES256", EC, ES256)] {
            assert_eq!(check(name, key, token, 0), Some(true), "{name}");
            assert_eq!(check(name, key, token, 9), Some(false), "{name}");
        }
        assert_eq!(check("RS512", RSA, RS256, 0), Some(false));
        assert_eq!(check("RS256", EC, RS256, 0), None);
        assert_eq!(check("ES256", RSA, ES256, 0), None);
        assert_eq!(check("ES384", EC, ES256, 0), None);
        assert_eq!(check("RS256", "junk", RS256, 0), None);
    }

    #[test]
    fn a_key_with_blank_lines_around_it_is_a_key() {
        for (name, key, token) in [("RS256", RSA, RS256), ("ES256", EC, ES256)] {
            let spaced = format!("\\n{}\\n\\n \\n", key.replacen("\\n", "\\n\\n", 1));
            assert_eq!(check(name, &spaced, token, 0), Some(true), "{name}");
        }
    }

    #[test]
    fn algorithms_have_names_and_none_has_not() {
        for name in ["none", "HS1", "PS1", "", "H", "hs256", "éS256", "HS2567"] {
            assert_eq!(Algorithm::from_name(name), None, "{name}");
        }
        assert_eq!(Algorithm::from_name("EdDSA").map(|a| a.family().name()), Some("eddsa"));
        assert_eq!(Algorithm::from_name("ES512").map(|a| a.family().name()), Some("ec"));
    }

    #[test]
    fn ed25519_agrees_with_rfc_8032() {
        let der = [
            &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00][..],
            &crate::wire::hex::decode("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a").unwrap(),
        ]
        .concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", STANDARD.encode(der));
        let signature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd2\
                         5bf5f0595bbe24655141438e7a100b";
        let signature = URL_SAFE_NO_PAD.encode(crate::wire::hex::decode(signature).unwrap());
        let algorithm = Algorithm::from_name("EdDSA").unwrap();
        assert_eq!(algorithm.verify(&pem, b"", &signature), Some(true));
        assert_eq!(algorithm.verify(&pem, b"x", &signature), Some(false));
    }

    #[test]
    fn an_rsa_key_has_two_numbers_of_sensible_sizes() {
        let number = |bytes: &[u8]| {
            let [high, low] = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            [&[0x02, 0x82, high, low][..], bytes].concat()
        };
        let key = |content: &[u8]| {
            let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
            let der = [&[0x30, 0x82, high, low][..], content].concat();
            format!("-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----\n", lines(&STANDARD.encode(der)))
        };
        let of = |bytes: usize, exponent: &[u8]| {
            let modulus = [&[0, 0x80][..], &vec![1; bytes - 1]].concat();
            rsa_key(&key(&[number(&modulus), [&[0x02, exponent.len() as u8][..], exponent].concat()].concat()))
                .is_some()
        };
        assert!(of(256, &[1, 0, 1]) && of(512, &[3]));
        assert!(!of(128, &[1, 0, 1]), "1,024 bits");
        assert!(!of(2048, &[1, 0, 1]), "16,384 bits");
        assert!(!of(256, &[1]) && !of(256, &[4]) && !of(256, &[1, 0, 0, 0, 1]));
        assert!(rsa_key(&key(&[1, 2, 3])).is_none());
    }

    fn lines(text: &str) -> String {
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>().join("\n")
    }
}
