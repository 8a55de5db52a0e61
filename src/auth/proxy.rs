//! A trusted proxy names the user in headers (CouchDB documentation, 'Proxy authentication'). Pure.

use http::HeaderMap;

use super::secrets::Secrets;
use super::{UserCtx, keyed_hash, options, password};
use crate::config::{Config, words};

/// What a header is called by the specification and by CouchDB, while its option is unset.
type Names = (&'static str, [&'static str; 2]);

const USER_NAME: Names = ("x_auth_username", ["X-Auth-CouchDB-UserName", "X-Auth-Svc-UserName"]);
const ROLES: Names = ("x_auth_roles", ["X-Auth-CouchDB-Roles", "X-Auth-Svc-Roles"]);
const TOKEN: Names = ("x_auth_token", ["X-Auth-CouchDB-Token", "X-Auth-Svc-Token"]);

/// The user whom the headers name; `None` without a name, and, with `proxy_use_secret`, without the right token.
pub(super) fn user(config: &Config, headers: &HeaderMap) -> Option<UserCtx> {
    let name = header(config, headers, USER_NAME)?;
    if options::bool(config, "proxy_use_secret", false) {
        // Without a secret nobody can have made a token with it.
        let secrets = Secrets::of(config)?;
        let token = header(config, headers, TOKEN)?;
        let algorithms = keyed_hash::algorithms(config);
        let is_of = |secret: &str| {
            algorithms.iter().any(|algorithm| {
                let expected = crate::wire::hex::encode(&algorithm.mac(secret.as_bytes(), name.as_bytes()));
                password::equal(expected.as_bytes(), token.as_bytes())
            })
        };
        if !secrets.all().any(is_of) {
            return None;
        }
    }
    let roles = header(config, headers, ROLES).unwrap_or_default();
    let roles = words(&roles).map(str::to_owned).collect();
    Some(UserCtx { name: Some(name), roles, handler: None })
}

fn header(config: &Config, headers: &HeaderMap, (option, defaults): Names) -> Option<String> {
    let value = match options::get(config, option) {
        Some(name) => headers.get(name),
        None => defaults.iter().find_map(|name| headers.get(*name)),
    };
    value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{in_memory, world};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.to_ascii_lowercase().parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn names_and_roles_are_read_from_either_family_of_headers() {
        let (_runtime, env) = world();
        let config = in_memory(&env, &[]);
        let read = |pairs: &[(&'static str, &str)]| user(&config, &headers(pairs)).map(|u| (u.name.unwrap(), u.roles));
        let some = |name: &str, roles: &[&str]| {
            Some((name.to_owned(), roles.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>()))
        };
        let both = [("X-Auth-CouchDB-UserName", "p"), ("X-Auth-CouchDB-Roles", "blogger,  team one,")];
        assert_eq!(read(&both), some("p", &["blogger", "team one"]));
        assert_eq!(read(&[("X-Auth-Svc-UserName", "q")]), some("q", &[]));
        assert_eq!(read(&[("X-Auth-CouchDB-Roles", "x")]), None);
        let named = in_memory(&env, &["chttpd_auth/x_auth_username=X-Me"]);
        assert_eq!(user(&named, &headers(&both)), None);
        assert_eq!(user(&named, &headers(&[("X-Me", "m")])).unwrap().name.as_deref(), Some("m"));
    }

    #[test]
    fn with_a_secret_only_its_token_opens() {
        let (_runtime, env) = world();
        let config = in_memory(&env, &["chttpd_auth/proxy_use_secret=true", "chttpd_auth/secret=s3"]);
        let ask = |config: &Config, token: &str| {
            user(config, &headers(&[("X-Auth-CouchDB-UserName", "p"), ("X-Auth-CouchDB-Token", token)])).is_some()
        };
        let token = |algorithm: keyed_hash::HashAlgorithm| crate::wire::hex::encode(&algorithm.mac(b"s3", b"p"));
        let (sha1, sha512) = (token(keyed_hash::HashAlgorithm::Sha1), token(keyed_hash::HashAlgorithm::Sha512));
        assert!(ask(&config, &sha1) && ask(&config, &token(keyed_hash::HashAlgorithm::Sha256)));
        assert!(!ask(&config, &sha512) && !ask(&config, "") && !ask(&config, "x"));
        assert_eq!(user(&config, &headers(&[("X-Auth-CouchDB-UserName", "p")])), None);
        // A former one, and one that is to come.
        for (accepted, holds) in [("s2, s3", true), ("s2,s4", false), ("", false)] {
            let accepted = format!("chttpd_auth/accepted_secrets={accepted}");
            let config = in_memory(&env, &["chttpd_auth/proxy_use_secret=true", "chttpd_auth/secret=new", &accepted]);
            assert_eq!(ask(&config, &sha1), holds, "{accepted}");
        }
        let without = in_memory(&env, &["chttpd_auth/proxy_use_secret=true"]);
        assert!(!ask(&without, &sha1));
    }
}
