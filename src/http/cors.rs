//! Cross-origin requests: `chttpd/enable_cors` and the section `cors`, as CouchDB 3.5 was measured.
//!
//! Off by default. A preflight that is not allowed falls through to the ordinary answer. Each setting is looked for in
//! the section `cors:HOST` of the host that the request names, then in `cors`; one that is set replaces the list that
//! counts without it.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN,
};
use http::{HeaderMap, Method, StatusCode};

use super::request::host;
use super::response::Reply;
use crate::config::{Config, words};

const METHODS: &str = "CONNECT, COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT, TRACE";
const HEADERS: &str = "accept, accept-language, authorization, content-length, content-range, content-type, destination, \
     expires, if-match, last-modified, origin, pragma, x-couch-full-commit, x-couch-id, x-couch-persist, \
     x-couchdb-www-authenticate, x-http-method-override, x-requested-with, x-couchdb-vhost-path, x-settee-token";
/// Exposed by every answer that has them; the content type by all others, too.
const SIMPLE: [&str; 5] = ["cache-control", "content-language", "expires", "last-modified", "pragma"];
/// Exposed, too, by answers that have it to requests that have it: other clients get the list that CouchDB sends.
const TOKEN: &str = "x-settee-token";
const EXPOSED: &str = "accept-ranges, etag, server, x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time";

/// The settings that count for a request.
struct Settings<'a> {
    config: &'a Config,
    /// The section of the host.
    own: String,
}

impl Settings<'_> {
    /// `None` while such requests are not allowed at all.
    fn of<'a>(config: &'a Config, request: &HeaderMap) -> Option<Settings<'a>> {
        if !config.http_bool("enable_cors", false) {
            return None;
        }
        let host = host(request);
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        Some(Settings { config, own: format!("cors:{}", name.map_or(host, |(name, _)| name)) })
    }

    fn text(&self, key: &str, default: &str) -> String {
        let own = self.config.get(&self.own, key);
        own.or_else(|| self.config.get("cors", key)).unwrap_or_else(|| default.to_owned())
    }

    fn list(&self, key: &str, default: &str) -> Vec<String> {
        words(&self.text(key, default)).map(str::to_owned).collect()
    }

    /// A list of names of headers, in lower case.
    fn names(&self, key: &str, default: &str) -> Vec<String> {
        self.list(key, default).into_iter().map(|name| name.to_ascii_lowercase()).collect()
    }

    /// The request's origin when it is allowed.
    fn origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let origin = request.get(ORIGIN)?;
        let matches = |listed: &String| listed == "*" || listed.as_bytes() == origin.as_bytes();
        self.list("origins", "").iter().any(matches).then(|| origin.clone())
    }
}

/// The answer to an allowed preflight.
pub fn preflight(config: &Config, method: &Method, request: &HeaderMap) -> Option<Reply> {
    if method != Method::OPTIONS {
        return None;
    }
    let settings = Settings::of(config, request)?;
    settings.origin(request)?;
    let wanted = request.get(ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()?;
    let methods = settings.list("methods", METHODS);
    if !methods.iter().any(|m| m == wanted) {
        return None;
    }
    let asked = request.get(ACCESS_CONTROL_REQUEST_HEADERS).map_or(Some(""), |value| value.to_str().ok())?;
    let allowed = settings.names("headers", HEADERS);
    let known = |name: &str| allowed.contains(&name.to_ascii_lowercase());
    if !words(asked).all(known) {
        return None;
    }
    let mut reply = Reply::empty(StatusCode::NO_CONTENT)
        .header(ACCESS_CONTROL_ALLOW_METHODS, &methods.join(", "))
        .header(ACCESS_CONTROL_MAX_AGE, &settings.text("max_age", "600"));
    reply.headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_str(asked).ok()?);
    Some(reply)
}

/// Adds what an allowed origin may see. A preflight's answer has no exposed headers.
pub fn add(config: &Config, request: &HeaderMap, answer: &mut HeaderMap) {
    let Some(settings) = Settings::of(config, request) else { return };
    let Some(origin) = settings.origin(request) else { return };
    let mut set = |name: HeaderName, value: HeaderValue| {
        answer.insert(name, value);
    };
    set(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if settings.text("credentials", "false") == "true" {
        set(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
    if !answer.contains_key(ACCESS_CONTROL_ALLOW_METHODS) {
        let simple = SIMPLE.into_iter().filter(|name| answer.contains_key(*name)).map(str::to_owned);
        let token = (request.contains_key(TOKEN) && answer.contains_key(TOKEN)).then(|| TOKEN.to_owned());
        let simple = std::iter::once("content-type".to_owned()).chain(simple).chain(token);
        let exposed: Vec<String> = simple.chain(settings.names("exposed_headers", EXPOSED)).collect();
        if let Ok(exposed) = HeaderValue::from_str(&exposed.join(", ")) {
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }
    answer.append(http::header::VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use crate::world::tokio_host;

    /// Settings with which requests of other origins are answered.
    fn config(settings: &[&str]) -> Config {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let on = ["chttpd/enable_cors=true", "cors/origins=*"];
        let settings = on.iter().chain(settings).map(|setting| Setting::parse(setting).unwrap()).collect();
        Config::in_memory(&tokio_host::env(runtime.handle().clone()), settings)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(header).collect()
    }

    #[test]
    fn settings_replace_lists_and_those_of_the_host_come_first() {
        let allowed = |settings: &[&str], method: &'static str, asked: &'static str| {
            let request = headers(&[
                ("host", "db.example:5984"),
                ("origin", "http://o"),
                ("access-control-request-method", method),
                ("access-control-request-headers", asked),
            ]);
            preflight(&config(settings), &Method::OPTIONS, &request).is_some()
        };
        assert!(allowed(&[], "PUT", "Authorization, content-type"));
        let own = ["cors/headers=X-One, content-type"];
        assert!(allowed(&own, "PUT", "x-one") && !allowed(&own, "PUT", "authorization"));
        assert!(!allowed(&["cors/headers=*"], "PUT", "x-one"), "an asterisk is no pattern");
        let by_host = ["cors/methods=GET", "cors:db.example/methods=PUT", "cors:other/methods=POST"];
        assert!(allowed(&by_host, "PUT", "") && !allowed(&by_host, "GET", "") && !allowed(&by_host, "POST", ""));
    }

    #[test]
    fn what_an_answer_lacks_is_not_exposed() {
        let exposed = |settings: &[&str], answer: &[(&'static str, &'static str)]| {
            let mut answer = headers(answer);
            add(&config(settings), &headers(&[("origin", "http://o")]), &mut answer);
            answer[ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap().to_owned()
        };
        assert_eq!(exposed(&[], &[]), format!("content-type, {EXPOSED}"));
        let simple = [("pragma", "no-cache"), ("content-type", "a/b"), ("x-other", "y")];
        assert_eq!(exposed(&[], &simple), format!("content-type, pragma, {EXPOSED}"));
        assert_eq!(exposed(&["cors/exposed_headers=ETag, X-Foo"], &simple), "content-type, pragma, etag, x-foo");
    }

    #[test]
    fn a_token_is_exposed_to_who_uses_tokens() {
        let exposed = |request: &[(&'static str, &'static str)]| {
            let mut answer = headers(&[(TOKEN, "t")]);
            add(&config(&[]), &headers(request), &mut answer);
            answer[ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap().to_owned()
        };
        assert_eq!(exposed(&[("origin", "http://o")]), format!("content-type, {EXPOSED}"));
        assert_eq!(exposed(&[("origin", "http://o"), (TOKEN, "")]), format!("content-type, {TOKEN}, {EXPOSED}"));
    }
}
