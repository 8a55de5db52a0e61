//! `Authorization: Basic`: parsing of the header. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::AuthError;
use crate::limits;

/// A name and a password, which may be any bytes.
pub(super) type NameAndPassword = (String, Vec<u8>);

/// The name and password of the request; `None` when there are none to read: no header, another scheme, no value, no
/// colon, or the pair `_:_` by which browsers are logged out (as CouchDB 3.5 was measured).
pub(super) fn credentials(headers: &HeaderMap) -> Result<Option<NameAndPassword>, AuthError> {
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let header = header.as_bytes().trim_ascii();
    let Some((scheme, value)) = header.split_at_checked("Basic ".len()) else { return Ok(None) };
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return Ok(None);
    }
    let value = value.trim_ascii();
    if value.len() > limits::BASIC_CREDENTIAL_BYTES_MAX {
        return Err(AuthError::InvalidBase64);
    }
    let decoded = STANDARD.decode(value).map_err(|_| AuthError::InvalidBase64)?;
    let Some(colon) = decoded.iter().position(|b| *b == b':') else { return Ok(None) };
    let (name, password) = (&decoded[..colon], &decoded[colon + 1..]);
    if (name, password) == (b"_", b"_") {
        return Ok(None);
    }
    // A name that is no UTF-8 belongs to nobody.
    Ok(Some((String::from_utf8_lossy(name).into_owned(), password.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<Option<(String, String)>, AuthError> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        let text = |p: Vec<u8>| String::from_utf8(p).unwrap();
        credentials(&headers).map(|found| found.map(|(name, password)| (name, text(password))))
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    #[test]
    fn a_pair_is_read_up_to_the_first_colon() {
        let pair = |n: &str, p: &str| Ok(Some((n.to_owned(), p.to_owned())));
        assert_eq!(read(&basic("adm:pass")), pair("adm", "pass"));
        assert_eq!(read(&basic("é:pä:ss wörd")), pair("é", "pä:ss wörd"));
        assert_eq!(read(&basic("adm:")), pair("adm", ""));
        assert_eq!(read(&basic(":pass")), pair("", "pass"));
        assert_eq!(read(&basic("adm:pass").replace("Basic", "basic")), pair("adm", "pass"));
    }

    #[test]
    fn what_cannot_be_read_is_anonymous() {
        for value in ["Basic bm9jb2xvbg==", "Basic ", "Basic", "Digest abc", "Bearer x", "B", &basic("_:_")] {
            assert_eq!(read(value), Ok(None), "{value}");
        }
        assert_eq!(credentials(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn bad_base64_is_refused() {
        for value in ["Basic %%%", "Basic YWRtOnBhc3M", "Basic a"] {
            assert_eq!(read(value), Err(AuthError::InvalidBase64), "{value}");
        }
        let long = format!("Basic {}", "YWFh".repeat(limits::BASIC_CREDENTIAL_BYTES_MAX));
        assert_eq!(read(&long), Err(AuthError::InvalidBase64));
    }
}
