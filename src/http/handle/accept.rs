//! Evaluation of `Accept` and `Accept-Encoding` headers. Pure.

/// Whether `Accept` admits the media type `kind/sub`; without the header everything is admitted.
pub fn admits(accept: Option<&str>, media_type: &str) -> bool {
    let Some(accept) = accept else { return true };
    let family = media_type.split('/').next().unwrap_or_default();
    items(accept).any(|(name, quality)| {
        let fits = name == "*/*" || name == media_type || name.strip_suffix("/*") == Some(family);
        fits && quality
    })
}

/// Whether `Accept-Encoding` names gzip.
pub fn names_gzip(accept_encoding: Option<&str>) -> bool {
    accept_encoding.is_some_and(|list| items(list).any(|(name, quality)| name == "gzip" && quality))
}

/// Items in lower case, with whether their `q` is above zero.
fn items(list: &str) -> impl Iterator<Item = (String, bool)> + '_ {
    list.split(',').map(|item| {
        let mut parts = item.split(';');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let refused =
            parts.any(|p| p.trim().strip_prefix("q=").is_some_and(|q| q.trim().parse::<f32>().is_ok_and(|q| q <= 0.0)));
        (name, !refused)
    })
}

#[cfg(test)]
mod tests {
    use super::{admits, names_gzip};

    #[test]
    fn media_types_are_admitted_by_name_family_and_star() {
        for (accept, admitted) in [
            (None, true),
            (Some("*/*"), true),
            (Some("multipart/*"), true),
            (Some("application/json, Multipart/Mixed"), true),
            (Some("application/json"), false),
            (Some("multipart/related"), false),
            (Some("multipart/mixed;q=0"), false),
            (Some("multipart/mixed; q=0.5"), true),
            (Some(""), false),
        ] {
            assert_eq!(admits(accept, "multipart/mixed"), admitted, "{accept:?}");
        }
    }

    #[test]
    fn gzip_must_be_named() {
        assert!(names_gzip(Some("deflate, gzip;q=0.5")));
        assert!(!names_gzip(Some("gzip;q=0")));
        assert!(!names_gzip(Some("*")));
        assert!(!names_gzip(None));
    }
}
