//! Tokens whose keys are published at a URL: fetched when needed, exchanged when the provider exchanges them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};

use crate::served::Served;

/// For how long a provider is not asked again.
const PAUSE: Duration = Duration::from_secs(10);

/// An identity provider: the key set that it shows now, and how often it was asked.
struct Provider {
    url: String,
    shown: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
}

impl Provider {
    fn start() -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/keys", listener.local_addr().expect("an address"));
        let (shown, asked) = (Arc::new(Mutex::new(None::<String>)), Arc::new(AtomicUsize::new(0)));
        let (text, count) = (Arc::clone(&shown), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                    line.clear();
                }
                count.fetch_add(1, Ordering::SeqCst);
                let (status, body) = match text.lock().expect("a lock").clone() {
                    Some(body) => ("200 OK", body),
                    None => ("503 Busy", String::new()),
                };
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.get_mut().write_all(format!("{head}{body}").as_bytes());
            }
        });
        Provider { url, shown, asked }
    }

    fn show(&self, kid: &str, key: &SigningKey) {
        let x = URL_SAFE_NO_PAD.encode(key.verifying_key().as_bytes());
        let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"{kid}","x":"{x}"}}]}}"#);
        *self.shown.lock().expect("a lock") = Some(set);
    }
}

fn token(kid: &str, key: &SigningKey) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let header = part(&format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#));
    let signed = format!("{header}.{}", part(r#"{"sub":"jane","exp":4102444800,"_couchdb.roles":["r"]}"#));
    let signature = key.sign(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
}

#[test]
fn keys_come_from_the_provider_and_follow_it() {
    let provider = Provider::start();
    let (old, new) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
    let served = Served::start(&["chttpd/authentication_handlers={chttpd_auth, jwt_authentication_handler}"]);
    let ask = |token: &str| served.send("", "GET", "/_session", &[&format!("Authorization: Bearer {token}")], "");
    let (first, second) = (token("one", &old), token("two", &new));
    assert_eq!(ask(&first).json()["reason"], "Unknown kid", "without a provider");
    provider.show("one", &old);
    served.set("jwt_auth", "jwks_url", &provider.url);
    let begun = Instant::now();
    let session = ask(&first).json();
    assert_eq!((session["userCtx"]["name"].as_str(), &session["userCtx"]["roles"][0]), (Some("jane"), &"r".into()));
    assert_eq!(ask(&first).status, 200);
    assert_eq!(provider.asked.load(Ordering::SeqCst), 1, "a set in memory is used");
    // A name that nobody has does not make the node ask again and again.
    for _ in 0..5 {
        assert_eq!(ask(&second).json()["reason"], "Unknown kid");
    }
    let asked = provider.asked.load(Ordering::SeqCst);
    assert!(asked == 1 || begun.elapsed() >= PAUSE, "the provider is left in peace for a while: {asked}");
    // A new URL is a new provider: its set takes the place of the other at once.
    provider.show("two", &new);
    served.set("jwt_auth", "jwks_url", &format!("{}?2", provider.url));
    assert_eq!(ask(&second).status, 200);
    assert_eq!(ask(&first).json()["reason"], "Unknown kid", "a withdrawn key");
    // Forged with the wrong key under the right name.
    assert_eq!(ask(&token("two", &old)).json()["reason"], "Bad signature");
    // A provider that fails takes nothing away, even when the set is due to be fetched again.
    *provider.shown.lock().expect("a lock") = None;
    served.set("jwt_auth", "jwks_max_age", "0");
    assert_eq!(ask(&second).status, 200);
    served.runtime.block_on(served.node.stop());
}
