//! Signatures of tokens and the keys that check them: HMAC, RSA (PKCS #1 v1.5), ECDSA, Ed25519. Pure.
//!
//! Only public data is handled in verifying with a public key, so its time may tell anything; the HMAC is compared in
//! constant time. RSA is plain arithmetic: `s^e mod n` must be the one padding of the digest that there is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::DecodePublicKey;
use num_bigint::BigUint;
use p256::ecdsa::signature::Verifier;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::keyed_hash::HashAlgorithm;
use super::password;

/// Sizes of RSA moduli that are believed, in bits.
const RSA_BITS: std::ops::RangeInclusive<u64> = 1024..=8192;
/// Public exponents have at most so many bits: larger ones only cost time.
const RSA_EXPONENT_BITS_MAX: u64 = 33;

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

/// The size of the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Bits256,
    Bits384,
    Bits512,
}

/// An algorithm that tokens may be signed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm(Family, Size);

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
        if name == "EdDSA" {
            return Some(Algorithm(Family::Ed, Size::Bits512));
        }
        let family = match name.get(..2)? {
            "HS" => Family::Hmac,
            "RS" => Family::Rsa,
            "ES" => Family::Ec,
            _ => return None,
        };
        let size = match &name[2..] {
            "256" => Size::Bits256,
            "384" => Size::Bits384,
            "512" => Size::Bits512,
            _ => return None,
        };
        Some(Algorithm(family, size))
    }

    /// The family of its keys.
    pub(super) fn family(self) -> Family {
        self.0
    }

    /// Whether `signature` is that of `message`; `None` when the key, as it stands in the configuration, is none.
    pub(super) fn verify(self, key: &str, message: &[u8], signature: &[u8]) -> Option<bool> {
        // Blank lines are no part of PEM; files and editors leave them behind it.
        let pem = || {
            let text = key.replace("\\n", "\n");
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .fold(String::new(), |pem, line| pem + line + "\n")
        };
        match self {
            Algorithm(Family::Hmac, size) => {
                let key = STANDARD.decode(key.trim()).ok()?;
                let algorithm = match size {
                    Size::Bits256 => HashAlgorithm::Sha256,
                    Size::Bits384 => HashAlgorithm::Sha384,
                    Size::Bits512 => HashAlgorithm::Sha512,
                };
                Some(password::equal(&algorithm.mac(&key, message), signature))
            }
            Algorithm(Family::Rsa, size) => Some(RsaKey::from_pem(&pem())?.verify(size, message, signature)),
            Algorithm(Family::Ec, Size::Bits256) => {
                let key = p256::ecdsa::VerifyingKey::from_public_key_pem(&pem()).ok()?;
                Some(p256::ecdsa::Signature::from_slice(signature).is_ok_and(|s| key.verify(message, &s).is_ok()))
            }
            Algorithm(Family::Ec, Size::Bits384) => {
                let key = p384::ecdsa::VerifyingKey::from_public_key_pem(&pem()).ok()?;
                Some(p384::ecdsa::Signature::from_slice(signature).is_ok_and(|s| key.verify(message, &s).is_ok()))
            }
            Algorithm(Family::Ec, Size::Bits512) => {
                let key = p521::ecdsa::VerifyingKey::from_public_key_pem(&pem()).ok()?;
                Some(p521::ecdsa::Signature::from_slice(signature).is_ok_and(|s| key.verify(message, &s).is_ok()))
            }
            Algorithm(Family::Ed, _) => {
                let key = ed25519_dalek::VerifyingKey::from_public_key_pem(&pem()).ok()?;
                let signature = ed25519_dalek::Signature::from_slice(signature);
                Some(signature.is_ok_and(|s| key.verify_strict(message, &s).is_ok()))
            }
        }
    }
}

/// An RSA public key.
struct RsaKey {
    modulus: BigUint,
    exponent: BigUint,
}

impl RsaKey {
    /// Reads `PUBLIC KEY` (X.509) and `RSA PUBLIC KEY` (PKCS #1).
    fn from_pem(pem: &str) -> Option<RsaKey> {
        let (label, body) = pem.trim().strip_prefix("-----BEGIN ")?.split_once("-----")?;
        let body = body.strip_suffix("-----")?.strip_suffix(label)?.strip_suffix("-----END ")?;
        let text: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        let der = STANDARD.decode(text).ok()?;
        let key = match label {
            "RSA PUBLIC KEY" => der.as_slice(),
            "PUBLIC KEY" => inner_key(&der)?,
            _ => return None,
        };
        let (numbers, []) = field(key, 0x30)? else { return None };
        let (modulus, rest) = field(numbers, 0x02)?;
        let (exponent, []) = field(rest, 0x02)? else { return None };
        let (modulus, exponent) = (BigUint::from_bytes_be(modulus), BigUint::from_bytes_be(exponent));
        let sane = RSA_BITS.contains(&modulus.bits()) && (2..=RSA_EXPONENT_BITS_MAX).contains(&exponent.bits());
        (sane && modulus.bit(0) && exponent.bit(0)).then_some(RsaKey { modulus, exponent })
    }

    fn verify(&self, size: Size, message: &[u8], signature: &[u8]) -> bool {
        let length = usize::try_from(self.modulus.bits().div_ceil(8)).unwrap_or(0);
        let number = BigUint::from_bytes_be(signature);
        if signature.len() != length || number >= self.modulus {
            return false;
        }
        let opened = number.modpow(&self.exponent, &self.modulus).to_bytes_be();
        let Some(expected) = padded(size, message, length) else { return false };
        // The first byte is zero and not in the number.
        opened == expected[1..]
    }
}

/// The digest of `message` as PKCS #1 v1.5 pads it to `length` bytes.
fn padded(size: Size, message: &[u8], length: usize) -> Option<Vec<u8>> {
    let (number, digest) = match size {
        Size::Bits256 => (1, Sha256::digest(message).to_vec()),
        Size::Bits384 => (2, Sha384::digest(message).to_vec()),
        Size::Bits512 => (3, Sha512::digest(message).to_vec()),
    };
    let len = u8::try_from(digest.len()).ok()?;
    // DigestInfo: the algorithm 2.16.840.1.101.3.4.2.`number` without parameters, then the digest.
    let mut info = vec![0x30, 17 + len, 0x30, 13, 0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, number];
    info.extend_from_slice(&[0x05, 0, 0x04, len]);
    info.extend_from_slice(&digest);
    let fill = length.checked_sub(info.len() + 3).filter(|fill| *fill >= 8)?;
    let mut out = vec![0, 1];
    out.resize(2 + fill, 0xff);
    out.push(0);
    out.extend_from_slice(&info);
    Some(out)
}

/// The PKCS #1 key within an X.509 one that says it is RSA.
fn inner_key(der: &[u8]) -> Option<&[u8]> {
    const RSA: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    let (outer, []) = field(der, 0x30)? else { return None };
    let (algorithm, rest) = field(outer, 0x30)?;
    let (name, _) = field(algorithm, 0x06)?;
    let (bits, []) = field(rest, 0x03)? else { return None };
    let (unused, key) = bits.split_first()?;
    (name == RSA && *unused == 0).then_some(key)
}

/// The content of a DER field with this tag, and what follows it.
fn field(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    (*first == tag).then_some(())?;
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

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
        for name in ["none", "HS1", "PS256", "", "H", "hs256", "éS256", "HS2567"] {
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
        let signature = crate::wire::hex::decode(signature).unwrap();
        let algorithm = Algorithm::from_name("EdDSA").unwrap();
        assert_eq!(algorithm.verify(&pem, b"", &signature), Some(true));
        assert_eq!(algorithm.verify(&pem, b"x", &signature), Some(false));
    }

    #[test]
    fn der_is_read_within_its_bounds() {
        assert_eq!(field(&[0x30, 2, 1, 2, 3], 0x30), Some((&[1, 2][..], &[3][..])));
        for bad in [&[][..], &[0x30], &[0x30, 5, 1], &[0x30, 0x82, 1], &[0x30, 0x84, 0, 0, 0, 1, 1], &[2, 1, 1]] {
            assert_eq!(field(bad, 0x30), None, "{bad:?}");
        }
    }
}
