//! The TLS listener and the client's side of TLS.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use settee::wire::client::{Call, Client, ClientError, Patience};
use settee::wire::tls::{Connector, Trust};
use settee::wire::url::Url;

use crate::served::Served;

/// Long-lived certificates for `localhost` and 127.0.0.1, of an authority that exists only for these tests.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// Settings of a node that speaks TLS with the certificate `name`.
fn settings(certificate: &str, key: &str) -> Vec<String> {
    vec![
        "ssl/enable=true".to_owned(),
        "ssl/port=0".to_owned(),
        format!("ssl/cert_file={certificate}"),
        format!("ssl/key_file={key}"),
    ]
}

fn start(settings: &[String]) -> Served {
    Served::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}

fn text(path: PathBuf) -> String {
    path.to_str().expect("a path of plain characters").to_owned()
}

/// Asks for `/` at `host` by https.
fn get(served: &Served, host: &str, trust: Trust) -> Result<HeaderMap, ClientError> {
    let patience = Patience { silence: Duration::from_secs(30), retries: 0 };
    let client = Client::with_tls(&served.env, patience, Connector::new(&served.env, trust, None));
    let port = served.node.secure_address().expect("it speaks TLS").port();
    let (url, _) = Url::parse(&format!("https://{host}:{port}/_utils")).expect("a URL");
    let call = Call { method: Method::HEAD, url, headers: HeaderMap::new(), body: Bytes::new() };
    let ask = async {
        let answer = client.send(&call.method, &call.url, &call.headers, settee::wire::client::full(call.body), None);
        answer.await.map(|answer| answer.headers)
    };
    served.runtime.block_on(ask)
}

#[test]
fn requests_come_by_tls_and_the_other_side_is_verified() {
    let served = start(&settings(&text(file("one.pem")), &text(file("one.key"))));
    served.set("ssl", "hsts_max_age", "600");
    let known = || Trust::File(file("one-authority.pem"));
    for host in ["localhost", "127.0.0.1"] {
        let headers = get(&served, host, known()).expect("an answer");
        let location = headers["location"].to_str().expect("text");
        assert!(location.starts_with(&format!("https://{host}:")), "URLs name the scheme in use: {location}");
        assert_eq!(headers["strict-transport-security"], "max-age=600");
    }
    assert!(get(&served, "127.0.0.1", Trust::Anyone).is_ok());
    // The test's certificates are signed by no authority that systems know, and are not made for themselves.
    for stranger in [Trust::System, Trust::File(file("two-authority.pem"))] {
        let refused = get(&served, "localhost", stranger.clone()).expect_err("an unknown authority");
        assert!(matches!(&refused, ClientError::Connect(_)), "{stranger:?}: {refused}");
    }
    let plain = served.ask("", "GET", "/_up", "");
    assert_eq!((plain.status, plain.header("strict-transport-security")), (200, None));
    served.runtime.block_on(served.node.stop());
}

#[test]
fn a_renewed_certificate_counts_without_a_restart() {
    let folder = tempfile::tempdir().expect("a directory");
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let install = |name: &str| {
        std::fs::copy(file(&format!("{name}.pem")), &certificate).expect("copied");
        std::fs::copy(file(&format!("{name}.key")), &key).expect("copied");
    };
    install("one");
    let served = start(&settings(&text(certificate.clone()), &text(key.clone())));
    let address = served.node.secure_address();
    let presented = |name: &str| get(&served, "localhost", Trust::File(file(&format!("{name}-authority.pem")))).is_ok();
    assert!(presented("one") && !presented("two"));
    install("two");
    std::fs::write(&key, "no key").expect("written");
    served.set("log", "level", "info");
    assert!(presented("one"), "what cannot be used changes nothing");
    install("two");
    served.set("log", "level", "warning");
    served.until("the new certificate", || presented("two"));
    assert!(!presented("one"));
    assert_eq!(served.node.secure_address(), address, "the listener stays");
    served.set("ssl", "enable", "false");
    served.until("the listener closes", || served.node.secure_address().is_none());
    served.set("ssl", "enable", "true");
    served.until("the listener opens", || served.node.secure_address().is_some());
    assert!(presented("two"));
    served.runtime.block_on(served.node.stop());
}

#[test]
fn a_node_that_cannot_speak_tls_as_asked_does_not_start() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let env = settee::world::tokio_host::env(runtime.handle().clone());
    let told = |settings: &[String]| {
        let common = ["admins/adm=-hashed-00,00".to_owned(), "chttpd/port=0".to_owned()];
        let settings = common.iter().chain(settings);
        let settings = settings.map(|text| settee::config::Setting::parse(text).expect("a setting")).collect();
        let config = settee::config::Config::in_memory(&env, settings);
        let data = tempfile::tempdir().expect("a directory");
        match runtime.block_on(settee::node::Node::start(&env, &config, data.path())) {
            Ok(_) => panic!("it started"),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(told(&["ssl/enable=true".to_owned()]), "[ssl] ssl/cert_file is not set");
    let wrong = told(&settings(&text(file("one.pem")), &text(file("two.key"))));
    assert!(wrong.starts_with("[ssl] certificate and key:"), "{wrong}");
    let none = told(&settings(&text(file("one.key")), &text(file("one.key"))));
    assert_eq!(none, "[ssl] no certificate in PEM form");
    let missing = told(&settings("/nowhere/cert.pem", "/nowhere/key.pem"));
    assert!(missing.contains("/nowhere/cert.pem"), "{missing}");
}

#[test]
fn clients_are_asked_for_their_certificates() {
    let mut all = settings(&text(file("one.pem")), &text(file("one.key")));
    all.push("ssl/verify_ssl_certificates=true".to_owned());
    all.push("ssl/fail_if_no_peer_cert=true".to_owned());
    all.push(format!("ssl/cacert_file={}", text(file("two-authority.pem"))));
    let served = start(&all);
    let known = || Trust::File(file("one-authority.pem"));
    assert!(get(&served, "localhost", known()).is_err(), "a client without a certificate");
    let own = settee::wire::tls::ClientFiles { certificate: file("two.pem"), key: file("two.key") };
    let connector = Connector::new(&served.env, known(), Some(own));
    let patience = Patience { silence: Duration::from_secs(30), retries: 0 };
    let client = Client::with_tls(&served.env, patience, connector);
    let port = served.node.secure_address().expect("it speaks TLS").port();
    let (url, _) = Url::parse(&format!("https://localhost:{port}/_up")).expect("a URL");
    let empty = settee::wire::client::full(Bytes::new());
    let headers = HeaderMap::new();
    let answer = served.runtime.block_on(client.send(&Method::GET, &url, &headers, empty, None));
    assert_eq!(answer.expect("an answer").status, 200);
    served.runtime.block_on(served.node.stop());
}

#[test]
fn replications_run_over_https() {
    let served = start(&settings(&text(file("one.pem")), &text(file("one.key"))));
    served.must("PUT", "/src", "");
    served.must("PUT", "/src/a", "{}");
    let port = served.node.secure_address().expect("it speaks TLS").port();
    let order = format!(r#"{{"source":"src","target":"https://adm:pass@localhost:{port}/dst","create_target":true}}"#);
    let answer = served.must("POST", "/_replicate", &order);
    assert_eq!(answer.json()["history"][0]["docs_written"], 1);
    served.set("replicator", "verify_ssl_certificates", "true");
    served.set("replicator", "retries_per_request", "0");
    served.set("replicator", "ssl_trusted_certificates_file", &text(file("two-authority.pem")));
    let refused = served.ask("adm:pass", "POST", "/_replicate", &order);
    assert!(refused.status >= 500 && refused.body.contains("error"), "{refused:?}");
    served.set("replicator", "ssl_trusted_certificates_file", &text(file("one-authority.pem")));
    assert_eq!(served.must("POST", "/_replicate", &order).json()["ok"], true);
    served.runtime.block_on(served.node.stop());
}
