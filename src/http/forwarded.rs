//! Headers of a proxy in front of the server: the host of the original request, and whether it came by TLS.
//!
//! `chttpd/x_forwarded_host`, `x_forwarded_proto` and `x_forwarded_ssl` name the headers. A header of another name is
//! copied to the usual one, which then counts for nothing else, because a client could send it past such a proxy. Pure.

use http::{HeaderMap, HeaderName};

use crate::config::Config;

/// Keys of `[chttpd]`, and the headers that they name where they are unset.
const HEADERS: [(&str, HeaderName); 3] = [
    ("x_forwarded_host", HeaderName::from_static("x-forwarded-host")),
    ("x_forwarded_proto", HeaderName::from_static("x-forwarded-proto")),
    ("x_forwarded_ssl", HeaderName::from_static("x-forwarded-ssl")),
];

/// Puts what the configured headers say under their usual names.
pub fn apply(config: &Config, headers: &mut HeaderMap) {
    for (key, usual) in &HEADERS {
        let name = config.text("chttpd", key, usual.as_str());
        if name.eq_ignore_ascii_case(usual.as_str()) {
            continue;
        }
        headers.remove(usual);
        if let Some(value) = headers.get(name.as_str()).cloned() {
            headers.insert(usual, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::apply;
    use crate::config::{Config, Setting};
    use crate::world::tokio_host;

    #[test]
    fn the_configured_header_counts_and_the_usual_one_no_longer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let config = |settings: &[&str]| {
            Config::in_memory(&env, settings.iter().filter_map(|setting| Setting::parse(setting)).collect())
        };
        let host = |config: &Config, sent: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let mut headers: HeaderMap = sent.iter().map(pair).collect();
            apply(config, &mut headers);
            headers.get("x-forwarded-host").map(|value| value.to_str().unwrap().to_owned())
        };
        let sent = [("x-forwarded-host", "usual"), ("x-host", "own")];
        assert_eq!(host(&config(&[]), &sent).as_deref(), Some("usual"));
        let named = config(&["chttpd/x_forwarded_host=X-Host"]);
        assert_eq!(host(&named, &sent).as_deref(), Some("own"));
        assert_eq!(host(&named, &sent[..1]), None);
    }
}
