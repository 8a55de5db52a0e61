//! JSON Web Keys (RFC 7517): public keys as identity providers publish them, turned into PEM. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::token_key::Family;
use crate::document::json::{self, Object, Value};
use crate::limits;
use crate::wire::der::{BITS, INTEGER, OBJECT, SEQUENCE, der, pem};

/// The object identifiers of elliptic curves that keys may be on, by their names: DER content.
const CURVES: [(&str, &[u8], usize); 3] = [
    ("P-256", &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], 32),
    ("P-384", &[0x2b, 0x81, 0x04, 0x00, 0x22], 48),
    ("P-521", &[0x2b, 0x81, 0x04, 0x00, 0x23], 66),
];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Reads a key set: PEM by `family:kid`, as in the section `[jwt_keys]`; a key without `kid` is `_default`. Keys of
/// other kinds, for other uses, and shared secrets, which nobody should publish, are left out. `None`: no key set.
pub(super) fn read_set(text: &[u8]) -> Option<BTreeMap<String, String>> {
    let set = json::parse(text).ok()?;
    let keys = set.as_object()?.get("keys")?.as_array()?;
    let read = |key: &Value| {
        let key = key.as_object()?;
        let (family, pem) = read_key(key)?;
        let kid = key.get("kid").and_then(Value::as_str).unwrap_or("_default");
        Some((format!("{}:{kid}", family.name()), pem))
    };
    Some(keys.iter().take(limits::JWKS_KEYS_MAX).filter_map(read).collect())
}

fn read_key(key: &Object) -> Option<(Family, String)> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    if text("use").is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
    match text("kty")? {
        "RSA" => {
            let (n, e) = (integer(&bytes("n")?), integer(&bytes("e")?));
            Some((Family::Rsa, pem("RSA PUBLIC KEY", &der(SEQUENCE, &[&n, &e]))))
        }
        "EC" => {
            let (_, curve, size) = CURVES.iter().find(|(name, ..)| Some(*name) == text("crv"))?;
            let point = [&[4][..], &padded(&bytes("x")?, *size)?, &padded(&bytes("y")?, *size)?].concat();
            Some((Family::Ec, public_key(&[&der(OBJECT, &[EC_PUBLIC_KEY]), &der(OBJECT, &[curve])], &point)))
        }
        "OKP" if text("crv") == Some("Ed25519") => {
            Some((Family::Ed, public_key(&[&der(OBJECT, &[ED25519])], &padded(&bytes("x")?, 32)?)))
        }
        _ => None,
    }
}

/// A number of just `size` bytes: leading zeros may be missing.
fn padded(number: &[u8], size: usize) -> Option<Vec<u8>> {
    let missing = size.checked_sub(number.len())?;
    Some([&vec![0; missing][..], number].concat())
}

/// An X.509 `PUBLIC KEY`.
fn public_key(algorithm: &[&[u8]], key: &[u8]) -> String {
    pem("PUBLIC KEY", &der(SEQUENCE, &[&der(SEQUENCE, algorithm), &der(BITS, &[&[0], key])]))
}

/// A number without sign: a leading zero keeps it positive.
fn integer(number: &[u8]) -> Vec<u8> {
    let start = number.iter().position(|b| *b != 0).unwrap_or(number.len());
    let zero: &[u8] = if number.get(start).is_none_or(|b| *b >= 0x80) { &[0] } else { &[] };
    der(INTEGER, &[zero, &number[start..]])
}

#[cfg(test)]
mod tests {
    use super::super::token_key::Algorithm;
    use super::*;

    fn verified(set: &str, name: &str, algorithm: &str, token: &str) -> Option<bool> {
        let keys = read_set(set.as_bytes()).unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        Algorithm::from_name(algorithm).unwrap().verify(keys.get(name)?, message.as_bytes(), signature)
    }

    #[test]
    fn keys_of_the_standards_verify_their_tokens() {
        // RFC 7515, appendix A.2 and A.3; RFC 8037, appendix A.4.
        let rsa = concat!(
            r#"{"keys":[{"kty":"RSA","kid":"r","use":"sig","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9"#,
            "k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGz",
            "jb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4",
            r#"LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}]}"#
        );
        let token = concat!(
            "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0c",
            "nVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJd",
            "bF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcO",
            "Ln6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrB",
            "p0igcN_IoypGlUPQGe77Rw"
        );
        assert_eq!(verified(rsa, "rsa:r", "RS256", token), Some(true));
        let ec = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
        let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc1\
                     9yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
        assert_eq!(verified(ec, "ec:_default", "ES256", token), Some(true));
        let ed =
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"d","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6d\
                     WbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert_eq!(verified(ed, "eddsa:d", "EdDSA", token), Some(true));
        assert_eq!(verified(ed, "eddsa:d", "EdDSA", &token.replacen("RXh", "RXi", 1)), Some(false));
    }

    #[test]
    fn what_is_no_public_key_for_signatures_is_left_out() {
        for none in ["", "[]", "{}", r#"{"keys":{}}"#] {
            assert_eq!(read_set(none.as_bytes()), None, "{none}");
        }
        for empty in [
            r#"{"kty":"oct","k":"c2VjcmV0","kid":"a"}"#,
            r#"{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}"#,
            r#"{"kty":"RSA","n":"%%","e":"AQAB"}"#,
            r#"{"kty":"EC","crv":"P-256","x":"AA"}"#,
            r#"{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}"#,
            r#"{"kid":"x"}"#,
            "7",
        ] {
            let set = format!(r#"{{"keys":[{empty}]}}"#);
            assert_eq!(read_set(set.as_bytes()), Some(BTreeMap::new()), "{empty}");
        }
    }
}
