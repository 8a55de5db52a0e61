//! Handshakes between honest nodes, and attempts without the secret.

use std::sync::{Arc, Mutex};

use tokio::io::{DuplexStream, duplex};

use super::*;

fn env() -> Env {
    crate::world::tokio_host::env(tokio::runtime::Handle::current())
}

fn node(name: &str) -> Identity {
    Identity { name: name.into(), address: format!("{name}:9100") }
}

type Outcome = (Result<Session, HandshakeError>, Result<(Session, Hello), HandshakeError>);

async fn meet(secrets: (&str, &str), target: &str) -> Outcome {
    let (here, there) = duplex(1 << 16);
    let (env, second) = (env(), secrets.1.as_bytes().to_vec());
    let (a, b) = (node("a@x"), node("b@x"));
    tokio::join!(
        initiate(&env, Channel::plain(Box::new(here)), &a, ("", secrets.0.as_bytes()), target),
        respond(&env, Channel::plain(Box::new(there)), &b, |_| Ok(second.clone()))
    )
}

#[tokio::test]
async fn two_nodes_with_one_secret_know_each_other_and_share_keys() {
    let (Ok(mut a), Ok((mut b, hello))) = meet(("s", "s"), "b@x").await else { panic!("they meet") };
    assert_eq!((a.peer.as_str(), a.address.as_str()), ("b@x", "b@x:9100"));
    assert_eq!((b.peer.as_str(), b.address.as_str(), hello.key.as_str()), ("a@x", "a@x:9100", ""));
    a.wire.send(b"one").await.unwrap();
    assert_eq!(b.wire.receive().await.unwrap(), "one");
    b.wire.send(b"two").await.unwrap();
    assert_eq!(a.wire.receive().await.unwrap(), "two");
    let mut text = b"a text that is longer than one block of the stream, by some ten bytes..".to_vec();
    let plain = text.clone();
    veil(&a.vault, &mut text);
    assert_ne!(text, plain);
    veil(&b.vault, &mut text);
    assert_eq!(text, plain);
}

#[tokio::test]
async fn a_wrong_secret_gets_no_proof() {
    let (a, b) = meet(("s", "t"), "b@x").await;
    assert_eq!(b.err(), Some(HandshakeError::Stranger));
    assert_eq!(a.err(), Some(HandshakeError::Refused("the secrets differ".to_owned())));
}

#[tokio::test]
async fn a_node_at_the_wrong_address_is_told_apart() {
    let (a, b) = meet(("s", "s"), "c@x").await;
    assert_eq!(a.err(), Some(HandshakeError::Refused("this node is called b@x".to_owned())));
    assert_eq!(b.err(), Some(HandshakeError::OtherName("c@x".to_owned())));
    let (a, b) = meet(("s", "s"), "").await;
    assert!(a.is_ok() && b.is_ok());
}

/// Everything that an initiator sends in an honest handshake.
async fn recorded() -> Vec<u8> {
    let (mut tap, there) = duplex(1 << 16);
    let (here, mut wire) = duplex(1 << 16);
    let said = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&said);
    let relay = async move {
        let mut buffer = vec![0; 4096];
        let mut back = vec![0; 4096];
        loop {
            tokio::select! {
                biased;
                n = wire.read(&mut buffer) => {
                    let n = n.unwrap_or(0);
                    if n == 0 { return; }
                    copy.lock().unwrap().extend_from_slice(&buffer[..n]);
                    tap.write_all(&buffer[..n]).await.unwrap();
                }
                n = tap.read(&mut back) => {
                    let n = n.unwrap_or(0);
                    if n == 0 { return; }
                    if wire.write_all(&back[..n]).await.is_err() { return; }
                }
            }
        }
    };
    let (env, a, b) = (env(), node("a@x"), node("b@x"));
    let both = async {
        let (a, b) = tokio::join!(
            initiate(&env, Channel::plain(Box::new(here)), &a, ("", b"s"), "b@x"),
            respond(&env, Channel::plain(Box::new(there)), &b, |_| Ok(b"s".to_vec()))
        );
        assert!(a.is_ok() && b.is_ok());
    };
    tokio::join!(relay, both);
    std::mem::take(&mut *said.lock().unwrap())
}

async fn answered(mut stranger: DuplexStream, there: DuplexStream, says: &[u8]) -> Option<HandshakeError> {
    stranger.write_all(says).await.unwrap();
    let (env, b) = (env(), node("b@x"));
    // The stranger reads nothing and then goes.
    let respond = async { respond(&env, Channel::plain(Box::new(there)), &b, |_| Ok(b"s".to_vec())).await.err() };
    let (error, ()) = tokio::join!(respond, async move { drop(stranger.shutdown().await) });
    error
}

#[tokio::test]
async fn what_was_overheard_opens_no_second_session() {
    let said = recorded().await;
    let (stranger, there) = duplex(1 << 16);
    assert_eq!(answered(stranger, there, &said).await, Some(HandshakeError::Stranger));
}

#[tokio::test]
async fn a_node_does_not_prove_itself_by_its_own_echo() {
    let (here, mut mirror) = duplex(1 << 16);
    let (env, a) = (env(), node("a@x"));
    let echo = async move {
        let mut buffer = vec![0; 4096];
        while let Ok(n @ 1..) = mirror.read(&mut buffer).await {
            if mirror.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    let (session, ()) = tokio::join!(initiate(&env, Channel::plain(Box::new(here)), &a, ("", b"s"), ""), echo);
    assert!(matches!(session.err(), Some(HandshakeError::Malformed(_))));
}

#[tokio::test]
async fn other_protocols_and_large_greetings_are_refused_at_once() {
    let (stranger, there) = duplex(1 << 16);
    let http = answered(stranger, there, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(http, Some(HandshakeError::Frame(FrameError::Version(b'G'))));
    let (stranger, there) = duplex(1 << 16);
    let large = answered(stranger, there, &[1, 0, 1, 0, 0]).await;
    assert_eq!(large, Some(HandshakeError::Frame(FrameError::TooLarge(65536))));
    let (stranger, there) = duplex(1 << 16);
    let mut garbage = Vec::new();
    Sealer::new(public_key()).seal(b"", &[HELLO; 60], &mut garbage);
    assert!(matches!(answered(stranger, there, &garbage).await, Some(HandshakeError::Malformed(_))));
}

#[tokio::test]
async fn a_build_whose_messages_have_another_form_is_refused_in_words() {
    let (here, there) = duplex(1 << 16);
    let (env, a, b) = (env(), node("a@x"), node("b@x"));
    let old = VERSIONS.0 - 1;
    assert!(old >= 3, "those up to 3 ask for votes about maps in another form");
    let older = async {
        let mut wire = Wire::greeting(Box::new(here));
        let mut hello = Hello::encode(&env, &a, "", "b@x");
        hello[1 + MAGIC.len()..][..2].fill(old);
        wire.send(&hello).await.unwrap();
        wire.take(WELCOME).await.err()
    };
    let (older, newer) = tokio::join!(older, respond(&env, Channel::plain(Box::new(there)), &b, |_| Ok(b"s".to_vec())));
    let told = format!("this node speaks versions {} to {}", VERSIONS.0, VERSIONS.1);
    assert_eq!(older, Some(HandshakeError::Refused(told)));
    assert_eq!(newer.err(), Some(HandshakeError::Versions(old, old)));
}

/// Two nodes at the ends of TLS connections with these numbers; both ask for proofs that cover them.
async fn meet_over_tls(bindings: (Binding, Binding), most: u8) -> Outcome {
    let (here, there) = duplex(1 << 16);
    let (env, a, b) = (env(), node("a@x"), node("b@x"));
    let channel = |stream, binding| Channel { stream, binding: Some(binding), must_bind: most == VERSIONS.1 };
    let initiator = async {
        if most == VERSIONS.1 {
            return initiate(&env, channel(Box::new(here), bindings.0), &a, ("", b"s"), "").await;
        }
        let mut wire = Wire::greeting(Box::new(here));
        let mut hello = Hello::encode(&env, &a, "", "");
        hello[1 + MAGIC.len() + 1] = most;
        wire.send(&hello).await.unwrap();
        Err(wire.take(WELCOME).await.expect_err("it is refused"))
    };
    let responder = Channel { must_bind: true, ..channel(Box::new(there), bindings.1) };
    tokio::join!(initiator, respond(&env, responder, &b, |_| Ok(b"s".to_vec())))
}

#[tokio::test]
async fn proofs_and_keys_cover_the_tls_connection() {
    let (Ok(mut a), Ok((mut b, _))) = meet_over_tls(([1; 32], [1; 32]), VERSIONS.1).await else { panic!("they meet") };
    a.wire.send(b"one").await.unwrap();
    assert_eq!(b.wire.receive().await.unwrap(), "one");
    let (a, b) = meet_over_tls(([1; 32], [2; 32]), VERSIONS.1).await;
    assert_eq!(a.err(), Some(HandshakeError::Refused(BETWEEN.to_owned())));
    assert_eq!(b.err(), Some(HandshakeError::Between));
    let keys = |binding| derive(b"s", "vault", &transcript(b"hello", b"welcome", binding));
    assert!(keys(None) != keys(Some([1; 32])) && keys(Some([1; 32])) != keys(Some([2; 32])));
}

#[tokio::test]
async fn a_build_whose_proofs_do_not_cover_tls_is_refused_in_words_where_certificates_tell_nothing() {
    let (older, newer) = meet_over_tls(([1; 32], [1; 32]), BOUND - 1).await;
    assert_eq!(older.err(), Some(HandshakeError::Refused(UNBOUND.to_owned())));
    assert_eq!(newer.err(), Some(HandshakeError::Unbound(BOUND - 1)));
    // With certificates that tell who is there it goes on as before.
    assert_eq!(bound(Some([1; 32]), false, BOUND - 1), Ok(None));
    assert_eq!(bound(Some([1; 32]), false, BOUND), Ok(Some([1; 32])));
}
