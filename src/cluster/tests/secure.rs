//! TLS by the switch alone: nodes, a node that joins, an attacker that terminates TLS between them, and nodes of which
//! one speaks no TLS.

use super::*;
use crate::wire::tls::{Acceptor, ServerMaterial, Trust};

const TLS: &str = "cluster/tls=true";

fn count(node: &Cluster, name: &str) -> u64 {
    node.counters().into_iter().find(|counted| counted.name == name).unwrap().value
}

/// Waits until a counter of `node` is above 0.
async fn counted(node: &Cluster, name: &str) {
    let wait = async {
        while count(node, name) == 0 {
            node.0.env.sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(node.0.env.timeout(LIMIT, wait).await.is_ok(), "{name} of {}", node.name());
}

/// Tries to join the node at `address`; the words of the failure.
async fn refused_at(address: &str, token: &str, settings: &[&str]) -> String {
    let join = [format!("cluster/join={address}"), format!("cluster/join_token={token}")];
    let all: Vec<&str> = join.iter().map(String::as_str).chain(settings.iter().copied()).collect();
    start_in(tempfile::tempdir().unwrap(), "c@127.0.0.1", &all).await.err().expect("it may not join").to_string()
}

#[tokio::test]
async fn the_switch_alone_is_enough_for_members_and_for_one_that_joins() {
    let (a, b) = pair_with(&[TLS]).await;
    a.serve(Service::Sync, Arc::new(Echo::default()));
    let large = Bytes::from(vec![b'x'; 3 * limits::CLUSTER_STREAM_BYTES]);
    assert!(ask(&b, &a, large.clone()).await.is_ok_and(|answer| answer == large));
    let join = [format!("cluster/join={}", b.contact()), format!("cluster/join_token={}", b.join_token().unwrap())];
    let c = start("c@127.0.0.1", &[TLS, &join[0], &join[1]]).await;
    assert_eq!(c.secret(), a.secret());
    until(&c, "c reaches a", |c| c.is_up(a.name())).await;
    assert_eq!(ask(&c, &a, "hi").await, Ok(Bytes::from_static(b"hi")));
}

#[tokio::test]
async fn a_node_with_files_of_no_authority_and_one_without_files_know_each_other() {
    let mut files = tls_settings("one", "one");
    files.retain(|setting| !setting.contains("tls_ca_file"));
    let a = start_with("a@127.0.0.1", &files, None).await;
    let b = start_with("b@127.0.0.1", &[SECRET.to_owned(), TLS.to_owned()], Some(&a)).await;
    until(&b, "b reaches a", |b| b.is_up(a.name())).await;
    until(&a, "a reaches b", |a| a.is_up(b.name())).await;
    // No proof covers the https request of a set-up: it verifies the certificate.
    assert!(a.lacks_authority() && b.lacks_authority());
    let at = man_in_the_middle(env(), a.address().unwrap().to_string()).await;
    for node in [&a, &b] {
        let stream = Box::new(tokio::net::TcpStream::connect(at).await.unwrap());
        assert!(node.connector().unwrap().connect("127.0.0.1", stream).await.is_err(), "{}", node.name());
    }
}

/// An attacker that terminates TLS: it presents a certificate of its own, speaks TLS with the node at `to`, and relays
/// everything.
async fn man_in_the_middle(env: Env, to: String) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let acceptor = Acceptor::new(&env, &ServerMaterial::self_made(&env).unwrap()).unwrap();
    let connector = Connector::new(&env, Trust::Anyone, None);
    tokio::spawn(async move {
        while let Ok((here, _)) = listener.accept().await {
            let (acceptor, connector, to) = (acceptor.clone(), connector.clone(), to.clone());
            tokio::spawn(async move {
                let there = tokio::net::TcpStream::connect(to).await.ok()?;
                let mut there = connector.connect("127.0.0.1", Box::new(there)).await.ok()?;
                let mut here = acceptor.accept(Box::new(here)).await.ok()?;
                tokio::io::copy_bidirectional(&mut here, &mut there).await.ok()
            });
        }
    });
    at
}

#[tokio::test]
async fn an_attacker_that_terminates_tls_gets_no_session_and_no_secret() {
    let a = start("a@127.0.0.1", &[SECRET, TLS]).await;
    let between = man_in_the_middle(env(), a.address().unwrap().to_string()).await.to_string();
    let seed = format!("cluster/seeds=a@127.0.0.1={between}");
    let b = start("b@127.0.0.1", &[SECRET, TLS, &seed]).await;
    counted(&a, "strangers").await;
    assert!(!a.is_up(b.name()) && !b.is_up(a.name()));
    assert!(b.members().iter().any(|member| member.name == *a.name() && !member.joined));
    let (first, second) = (a.join_token().unwrap(), a.join_token().unwrap());
    let why = refused_at(&between, &first, &[TLS]).await;
    assert!(why.contains("something between the nodes terminates TLS"), "{why}");
    assert_eq!(a.members().len(), 1);
    // The token was not used up; by a way that leaves TLS whole the same node joins.
    let ((_aim, to), (_tell, hang)) = (watch::channel(a.address().unwrap().to_string()), watch::channel(false));
    let through = relay(to, hang).await;
    for token in [first, second] {
        let join = [format!("cluster/join={through}"), format!("cluster/join_token={token}")];
        let name = if a.members().len() == 1 { "c@127.0.0.1" } else { "d@127.0.0.1" };
        let joined = start(name, &[TLS, &join[0], &join[1]]).await;
        assert_eq!(joined.secret(), a.secret());
    }
}

#[tokio::test]
async fn a_node_with_tls_and_one_without_say_so_on_both_sides() {
    let with = start("a@127.0.0.1", &[SECRET, TLS]).await;
    let without = start("b@127.0.0.1", &[SECRET]).await;
    let same = "`[cluster] tls` is to be the same on all nodes";
    let plain = refused_at(&with.contact(), &with.join_token().unwrap(), &[]).await;
    assert!(plain.contains("it speaks TLS and this node does not") && plain.contains(same), "{plain}");
    counted(&with, "strangers").await;
    let secure = refused_at(&without.contact(), &without.join_token().unwrap(), &[TLS]).await;
    assert!(secure.contains("no TLS") && secure.contains(same), "{secure}");
    counted(&without, "bad_frames").await;
}

/// Waits until two nodes reach each other and a call goes over.
async fn know_each_other(a: &TestNode, b: &TestNode) {
    a.serve(Service::Sync, Arc::new(Echo::default()));
    until(b, "b reaches a", |b| b.is_up(a.name())).await;
    until(a, "a reaches b", |a| a.is_up(b.name())).await;
    assert_eq!(ask(b, a, "hi").await, Ok(Bytes::from_static(b"hi")));
}

#[tokio::test]
async fn tls_is_turned_on_node_by_node_where_it_is_optional() {
    const OPTIONAL: &str = "cluster/tls_optional=true";
    let (plain, both, secure) = (vec![SECRET], vec![SECRET, TLS, OPTIONAL], vec![SECRET, TLS]);
    for (first, second) in [(&plain, &both), (&both, &plain), (&both, &both), (&both, &secure), (&secure, &both)] {
        let a = start("a@127.0.0.1", first).await;
        let seed = format!("cluster/seeds=a@127.0.0.1={}", a.contact());
        let b = start("b@127.0.0.1", &[second.as_slice(), &[seed.as_str()]].concat()).await;
        know_each_other(&a, &b).await;
    }
}

#[tokio::test]
async fn an_attacker_that_terminates_optional_tls_gets_no_session_by_tls() {
    let a = start("a@127.0.0.1", &[SECRET, TLS, "cluster/tls_optional=true"]).await;
    let between = man_in_the_middle(env(), a.address().unwrap().to_string()).await.to_string();
    let seed = format!("cluster/seeds=a@127.0.0.1={between}");
    let b = start("b@127.0.0.1", &[SECRET, TLS, &seed]).await;
    counted(&a, "strangers").await;
    assert!(!a.is_up(b.name()) && !b.is_up(a.name()));
}

#[tokio::test]
async fn some_of_the_files_are_not_enough() {
    let file = |name: &str| format!("{}/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let certificate = format!("cluster/tls_cert_file={}", file("one.pem"));
    let authority = format!("cluster/tls_ca_file={}", file("one-authority.pem"));
    for (given, missing) in [(certificate, "tls_key_file"), (authority, "tls_cert_file")] {
        let failed = start_in(tempfile::tempdir().unwrap(), "e@127.0.0.1", &[SECRET, TLS, &given]).await;
        assert!(matches!(failed.err(), Some(StartError::Setting(why)) if why.contains(missing)));
    }
}
