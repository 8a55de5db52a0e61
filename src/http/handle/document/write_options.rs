//! The revision that a write builds on, from header, query or body, and the target of a COPY. Pure.

use percent_encoding::percent_decode_str;

use super::read_options::revision;

use crate::document::revision::Revision;
use crate::http::problem::Problem;

/// The revision that a request names by `rev` in its query string and by `If-Match` (quoted or bare).
///
/// # Errors
/// 400 when one is malformed or when both differ.
pub fn request_revision(query: Option<&str>, if_match: Option<&str>) -> Result<Option<Revision>, Problem> {
    let query = query.map(revision).transpose()?;
    let header = if_match.map(|text| revision(text.trim().trim_matches('"'))).transpose()?;
    match (query, header) {
        (Some(a), Some(b)) if a != b => Err(Problem::bad_request("Document rev and etag have different values")),
        (query, header) => Ok(query.or(header)),
    }
}

/// The revision that a write with a document body builds upon: the body's own, which neither `rev` in the query string
/// nor `If-Match` may contradict, else that of the request.
///
/// # Errors
/// 400 when one is malformed or when they differ.
pub fn parent_revision(
    body: Option<&Revision>,
    query: Option<&str>,
    if_match: Option<&str>,
) -> Result<Option<Revision>, Problem> {
    let request = request_revision(query, if_match)?;
    match (body, request) {
        (Some(body), Some(request)) if *body != request => Err(Problem::bad_request(if query.is_some() {
            "Document rev from request body and query string have different values"
        } else {
            "Document rev and etag have different values"
        })),
        (Some(body), _) => Ok(Some(body.clone())),
        (None, request) => Ok(request),
    }
}

/// Target of a COPY: the id, still unchecked, and the revision that it replaces.
///
/// # Errors
/// 400 when the header is absent, an absolute URL, or names a malformed revision.
pub fn destination(header: Option<&str>) -> Result<(String, Option<Revision>), Problem> {
    let Some(text) = header else { return Err(Problem::bad_request("Destination header is mandatory for COPY.")) };
    if text.starts_with("http://") || text.starts_with("https://") {
        return Err(Problem::bad_request("Destination URL must be relative."));
    }
    let (id, query) = text.split_once('?').unwrap_or((text, ""));
    let spaced = id.replace('+', " ");
    let id = percent_decode_str(&spaced)
        .decode_utf8()
        .map_err(|_| Problem::bad_request("Destination must be valid UTF-8."))?;
    let rev = match query.split_once('=') {
        Some((_, rev)) => Some(revision(rev)?),
        None if query.is_empty() => None,
        None => return Err(Problem::bad_request("Invalid rev format")),
    };
    Ok((id.into_owned(), rev))
}

#[cfg(test)]
mod tests {
    use super::{destination, parent_revision, request_revision};
    use crate::document::revision::Revision;

    fn rev(text: &str) -> Revision {
        Revision::parse(text).unwrap()
    }

    #[test]
    fn a_revision_may_stand_in_query_or_header_but_not_differ() {
        assert_eq!(request_revision(None, None).unwrap(), None);
        assert_eq!(request_revision(Some("1-a"), None).unwrap(), Some(rev("1-a")));
        assert_eq!(request_revision(None, Some("\"1-a\"")).unwrap(), Some(rev("1-a")));
        assert_eq!(request_revision(Some("1-a"), Some("1-a")).unwrap(), Some(rev("1-a")));
        for (query, header, reason) in [
            (Some("1-a"), Some("1-b"), "Document rev and etag have different values"),
            (None, Some("bad"), "Invalid rev format"),
            (Some(""), None, "Invalid rev format"),
        ] {
            assert_eq!(request_revision(query, header).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn the_body_must_agree_with_query_and_header() {
        let body = rev("2-b");
        assert_eq!(parent_revision(Some(&body), None, Some("\"2-b\"")).unwrap(), Some(body.clone()));
        assert_eq!(
            parent_revision(Some(&body), None, Some("1-a")).unwrap_err().reason,
            "Document rev and etag have different values"
        );
        assert_eq!(parent_revision(Some(&body), Some("2-b"), None).unwrap(), Some(body.clone()));
        assert_eq!(
            parent_revision(Some(&body), Some("1-a"), None).unwrap_err().reason,
            "Document rev from request body and query string have different values"
        );
        assert_eq!(parent_revision(None, None, Some("1-a")).unwrap(), Some(rev("1-a")));
    }

    #[test]
    fn destinations_are_decoded() {
        assert_eq!(destination(Some("b")).unwrap(), ("b".to_owned(), None));
        assert_eq!(destination(Some("a%2Fb+c?rev=1-a")).unwrap(), ("a/b c".to_owned(), Some(rev("1-a"))));
        assert_eq!(destination(Some("_design/x")).unwrap().0, "_design/x");
        for (header, reason) in [
            (None, "Destination header is mandatory for COPY."),
            (Some("http://127.0.0.1:1/x/y"), "Destination URL must be relative."),
            (Some("b?rev=junk"), "Invalid rev format"),
        ] {
            assert_eq!(destination(header).unwrap_err().reason, reason);
        }
    }
}
