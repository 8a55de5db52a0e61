//! A node alone; then nodes on loopback: calls, streams, unauthenticated connections, silence, members.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::config::Setting;
use crate::world::{BoxFuture, tokio_host};

mod secure;

fn env() -> Env {
    tokio_host::env(tokio::runtime::Handle::current())
}

/// A node whose memory goes with the test.
struct TestNode {
    cluster: Cluster,
    _dir: tempfile::TempDir,
}

impl std::ops::Deref for TestNode {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.cluster.stop();
    }
}

async fn start_in(dir: tempfile::TempDir, name: &str, settings: &[&str]) -> Result<TestNode, StartError> {
    let env = env();
    // A busy machine may keep a test from running for seconds; where a suspicion is waited for it comes sooner.
    let base =
        [&format!("settee/node={name}"), "cluster/port=0", "cluster/heartbeat_ms=20", "cluster/suspect_ms=15000"];
    let all = base.iter().chain(settings).map(|text| Setting::parse(text).unwrap()).collect();
    let options = crate::storage::StorageOptions { engine: crate::storage::Engine::Memory, ..Default::default() };
    let storage = crate::storage::Storage::open(env.clone(), dir.path(), options).await.unwrap();
    let cluster = Cluster::start(&env, &Config::in_memory(&env, all), &storage).await?;
    cluster.run();
    Ok(TestNode { cluster, _dir: dir })
}

const SECRET: &str = "cluster/secret=0123456789abcdef";

async fn start(name: &str, settings: &[&str]) -> TestNode {
    start_in(tempfile::tempdir().unwrap(), name, settings).await.unwrap()
}

/// Waits until `done`; a test's own time limit is what ends a wait in vain.
async fn until(cluster: &Cluster, what: &str, done: impl Fn(&Cluster) -> bool) {
    let mut changes = cluster.watch();
    let wait = async {
        while !done(cluster) {
            changes.changed().await.unwrap();
        }
    };
    assert!(cluster.0.env.timeout(LIMIT, wait).await.is_ok(), "{what}: {:?}", cluster.0.table.records());
}

async fn pair() -> (TestNode, TestNode) {
    pair_with(&[]).await
}

/// Two nodes with settings of their own.
async fn pair_with(settings: &[&str]) -> (TestNode, TestNode) {
    let a = start("a@127.0.0.1", &[&[SECRET], settings].concat()).await;
    let seed = format!("cluster/seeds=a@127.0.0.1={}", a.contact());
    let b = start("b@127.0.0.1", &[&[SECRET, seed.as_str()], settings].concat()).await;
    until(&b, "b reaches a", |b| b.is_up(&"a@127.0.0.1".into())).await;
    until(&a, "a reaches b", |a| a.is_up(&"b@127.0.0.1".into())).await;
    (a, b)
}

/// Echoes; `stream N` answers N messages, `refuse` refuses, `hang` never answers and counts when it is let go.
#[derive(Default)]
struct Echo {
    let_go: Arc<AtomicU64>,
}

impl Handler for Echo {
    fn handle(&self, from: NodeName, body: Bytes, mut reply: Reply) -> BoxFuture<'static, ()> {
        let let_go = Arc::clone(&self.let_go);
        Box::pin(async move {
            let text = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            if let Some(count) = text.strip_prefix("stream ") {
                for n in 0..count.parse::<u32>().unwrap() {
                    if reply.send(Bytes::from(format!("{n}").repeat(1000))).await.is_err() {
                        return;
                    }
                }
                return reply.finish();
            }
            match text.as_str() {
                "refuse" => reply.fail("not today"),
                "vanish" => drop(reply),
                "panic" => panic!("a planted panic"),
                "too much" => reply.answer(Bytes::from(vec![0; limits::CLUSTER_MESSAGE_BYTES + 1])).await,
                "who" => {
                    let left_s = reply.deadline().as_secs();
                    reply.answer(Bytes::from(format!("{from} {left_s}"))).await;
                }
                "hang" => {
                    reply.gone().await;
                    let_go.fetch_add(1, Ordering::SeqCst);
                }
                _ => reply.answer(body).await,
            }
        })
    }
}

const LIMIT: Duration = Duration::from_secs(60);

async fn ask(from: &Cluster, to: &Cluster, body: impl Into<Bytes>) -> Result<Bytes, CallError> {
    from.call(to.name(), Service::Sync, Class::Foreground, body.into(), LIMIT).await
}

/// The caller's name, and what is left of [`LIMIT`].
fn assert_who(answer: Result<Bytes, CallError>, name: &str) {
    let text = String::from_utf8(answer.expect("an answer").to_vec()).expect("text");
    let (who, left_s) = text.split_once(' ').expect("two words");
    assert_eq!(who, name);
    assert!((1..LIMIT.as_secs()).contains(&left_s.parse().expect("seconds")), "{text}");
}

#[tokio::test]
async fn a_node_alone_calls_itself_and_nobody_else() {
    let cluster = Cluster::alone(&env(), "a@h");
    let other = NodeName::from("b@h");
    cluster.serve(Service::Sync, Arc::new(Echo::default()));
    assert_who(ask(&cluster, &cluster, "who").await, "a@h");
    let refused = cluster.call(cluster.name(), Service::Shard, Class::Control, Bytes::new(), LIMIT).await;
    assert!(matches!(refused, Err(CallError::Refused(_))));
    assert_eq!(cluster.call(&other, Service::Sync, Class::Control, Bytes::new(), LIMIT).await, Err(CallError::Down));
    assert!(cluster.is_up(cluster.name()) && !cluster.is_up(&other));
    assert_eq!(cluster.members().into_iter().map(|m| m.name).collect::<Vec<_>>(), [cluster.name().clone()]);
    assert_eq!(cluster.connected(), [cluster.name().clone()]);
}

#[tokio::test]
async fn nodes_call_each_other_with_bodies_of_any_size() {
    let (a, b) = pair().await;
    a.serve(Service::Sync, Arc::new(Echo::default()));
    assert_who(ask(&b, &a, "who").await, "b@127.0.0.1");
    assert_eq!(ask(&b, &a, "refuse").await, Err(CallError::Refused("not today".to_owned())));
    assert!(matches!(ask(&b, &a, "vanish").await, Err(CallError::Unknown(_))));
    assert_eq!(ask(&b, &a, "panic").await, Err(CallError::Unknown("the handler panicked".to_owned())));
    let too_much = ask(&b, &a, "too much").await;
    assert!(matches!(&too_much, Err(CallError::Unknown(why)) if why.contains("largest message")), "{too_much:?}");
    // More than older nodes take, and than all bodies have together.
    let large = Bytes::from(vec![b'x'; limits::CLUSTER_BODIES_BYTES.max(limits::CLUSTER_OLD_BODY_BYTES) + 1]);
    assert!(ask(&b, &a, large.clone()).await.is_ok_and(|answer| answer == large));
    for size in [0, 1, limits::CLUSTER_CHUNK_BYTES, limits::CLUSTER_BODY_BYTES + 1, 3 * limits::CLUSTER_STREAM_BYTES] {
        let body = Bytes::from(vec![b'x'; size]);
        assert!(ask(&b, &a, body.clone()).await.is_ok_and(|answer| answer == body), "{size} bytes");
    }
    let many = (0..200u32).map(|n| ask(&b, &a, Bytes::from(vec![n as u8; 5000])));
    for (n, answer) in futures_util::future::join_all(many).await.into_iter().enumerate() {
        assert_eq!(answer.unwrap(), vec![n as u8; 5000]);
    }
    let unknown = b.call(a.name(), Service::Shard, Class::Control, Bytes::new(), LIMIT).await;
    assert_eq!(unknown, Err(CallError::Refused("this node has no service 1".to_owned())));
}

#[tokio::test]
async fn a_slow_taker_holds_up_its_own_stream_only_and_dropping_it_lets_the_other_side_go() {
    let (a, b) = pair().await;
    let echo = Echo::default();
    let let_go = Arc::clone(&echo.let_go);
    a.serve(Service::Sync, Arc::new(echo));
    let open = |body: &'static str| b.open(a.name(), Service::Sync, Class::Background, Bytes::from(body));
    let mut slow = open("stream 5000").await.unwrap();
    assert_eq!(slow.next().await.unwrap().unwrap().len(), 1000);
    assert_eq!(ask(&b, &a, "other").await, Ok(Bytes::from_static(b"other")));
    for n in 1..5000u32 {
        assert_eq!(slow.next().await.unwrap().unwrap(), format!("{n}").repeat(1000));
    }
    assert_eq!(slow.next().await, Ok(None));
    drop(open("stream 100000").await.unwrap());
    drop(open("hang").await.unwrap());
    while let_go.load(Ordering::SeqCst) == 0 {
        assert_eq!(ask(&b, &a, "again").await, Ok(Bytes::from_static(b"again")));
    }
}

#[tokio::test]
async fn a_deadline_leaves_the_outcome_unknown_and_a_lost_node_at_once() {
    let (a, b) = pair().await;
    a.serve(Service::Sync, Arc::new(Echo::default()));
    let short = Duration::from_millis(50);
    let late = b.call(a.name(), Service::Sync, Class::Control, Bytes::from_static(b"hang"), short).await;
    assert_eq!(late, Err(CallError::Unknown("no answer in time".to_owned())));
    let (lost, ()) = tokio::join!(ask(&b, &a, "hang"), async { a.stop() });
    assert!(matches!(lost, Err(CallError::Unknown(_) | CallError::Down)), "{lost:?}");
    until(&b, "a is gone", |b| b.connected().len() == 1).await;
    assert_eq!(ask(&b, &a, "x").await, Err(CallError::Down));
    assert_eq!(b.members().len(), 2, "it stays a member");
}

/// Relays connections to `to` until told to hang: then they stay open and say nothing.
async fn relay(to: watch::Receiver<String>, hang: watch::Receiver<bool>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let (to, mut hang) = (to.borrow().clone(), hang.clone());
            tokio::spawn(async move {
                let copy = async {
                    let mut there = tokio::net::TcpStream::connect(to).await.unwrap();
                    tokio::io::copy_bidirectional(&mut here, &mut there).await.ok()
                };
                tokio::select! {
                    biased;
                    () = async { hang.wait_for(|hang| *hang).await.map(|_| ()).unwrap_or(()) } => {
                        std::future::pending::<()>().await;
                    }
                    _ = copy => {}
                }
            });
        }
    });
    at
}

#[tokio::test]
async fn a_node_that_hangs_is_suspected_and_its_calls_end_then() {
    let ((tell, hang), (aim, to)) = (watch::channel(false), watch::channel(String::new()));
    let through = relay(to, hang).await;
    let soon = "cluster/suspect_ms=3000";
    let a = start("a@127.0.0.1", &[SECRET, soon, &format!("cluster/address={through}")]).await;
    aim.send(a.address().unwrap().to_string()).unwrap();
    a.serve(Service::Sync, Arc::new(Echo::default()));
    let seed = format!("cluster/seeds=a@127.0.0.1={through}");
    let b = start("b@127.0.0.1", &[SECRET, soon, &seed]).await;
    until(&b, "b reaches a", |b| b.is_up(&"a@127.0.0.1".into())).await;
    let began = b.0.env.now();
    let (lost, _) = tokio::join!(ask(&b, &a, "hang"), async { tell.send(true) });
    let took = b.0.env.now().since(began);
    assert!(matches!(&lost, Err(CallError::Unknown(why)) if why.contains("no sign of life")), "{lost:?}");
    assert!(took >= Duration::from_secs(1) && took < LIMIT, "{took:?}");
    assert!(!b.is_up(a.name()));
    let suspected = b.counters().into_iter().find(|c| c.name == "suspected").unwrap();
    assert!(suspected.value >= 1);
}

#[tokio::test]
async fn strangers_are_refused_and_counted() {
    let a = start("a@127.0.0.1", &[SECRET]).await;
    let seed = format!("cluster/seeds=a@127.0.0.1={}", a.contact());
    let b = start("b@127.0.0.1", &["cluster/secret=another secret altogether", &seed]).await;
    let mut http = tokio::net::TcpStream::connect(a.address().unwrap()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut http, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut http, &mut answer).await.unwrap();
    assert!(answer.is_empty(), "nothing is told");
    let count = |name: &str| a.counters().into_iter().find(|c| c.name == name).unwrap().value;
    while count("strangers") == 0 {
        b.0.env.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(count("bad_frames"), 1);
    assert!(!a.is_up(b.name()) && !b.is_up(a.name()));
    assert!(b.members().iter().any(|m| m.name == *a.name() && !m.joined), "it never answered a handshake");
    assert_eq!(a.members().len(), 1);
    assert!(b.is_seeding() && !a.is_seeding(), "only what the configuration names is waited for");
}

#[tokio::test]
async fn members_spread_to_all_and_a_removal_too() {
    let (a, b) = pair().await;
    let seed = format!("cluster/seeds=b@127.0.0.1={}", b.contact());
    let c = start("c@127.0.0.1", &[SECRET, &seed]).await;
    for node in [&a, &b, &c] {
        until(node, "all are connected", |node| node.connected().len() == 3).await;
        until(node, "all have joined", |node| node.members().iter().filter(|m| m.joined).count() == 3).await;
        assert!(!node.is_seeding());
    }
    a.put_member("ghost@h", Object::new(), None).await.unwrap();
    until(&c, "the ghost is known", |c| c.members().iter().any(|m| m.name.as_str() == "ghost@h" && !m.joined)).await;
    c.delete_member("ghost@h", None).await.unwrap();
    until(&a, "the ghost is gone", |a| a.members().len() == 3).await;
    b.delete_member("c@127.0.0.1", None).await.unwrap();
    until(&c, "it hears of its removal", |c| c.members().len() == 2).await;
    assert!(a.is_up(c.name()), "shard maps may still name it");
}

#[tokio::test]
async fn a_node_joins_by_a_token_once() {
    let a = start("a@127.0.0.1", &[SECRET, "admins/adm=x", "couchdb/uuid=u", "chttpd_auth/secret=s"]).await;
    let token = a.join_token().unwrap();
    let join = [format!("cluster/join={}", a.contact()), format!("cluster/join_token={token}")];
    let join: Vec<&str> = join.iter().map(String::as_str).collect();
    let b = start("b@127.0.0.1", &join).await;
    until(&a, "a reaches b", |a| a.is_up(b.name())).await;
    let config = &b.0.config;
    assert_eq!(b.secret(), a.secret());
    assert_eq!(config.get("admins", "adm").as_deref(), Some("x"));
    assert_eq!(
        (config.text("couchdb", "uuid", ""), config.text("chttpd_auth", "secret", "")),
        ("u".into(), "s".into())
    );
    let again = start_in(tempfile::tempdir().unwrap(), "c@127.0.0.1", &join).await.err().unwrap();
    assert!(again.to_string().contains("used before"), "{again}");
    let mut other = a.join_token().unwrap();
    let last = if other.ends_with('0') { '1' } else { '0' };
    other.replace_range(other.len() - 1.., &last.to_string());
    let forged = [join[0], &format!("cluster/join_token={other}")];
    let refused = start_in(tempfile::tempdir().unwrap(), "c@127.0.0.1", &forged).await.err().unwrap();
    assert!(refused.to_string().contains("cannot join"), "{refused}");
    assert_eq!(a.members().len(), 2);
}

/// Nodes that knew each other from seeds kept uuids of their own, and with them checkpoints of replications.
#[tokio::test]
async fn nodes_that_meet_share_the_oldest_uuid_and_one_that_was_given_stays() {
    let uuid = |node: &Cluster| node.0.config.text("couchdb", "uuid", "");
    let (a, b) = pair().await;
    let first = uuid(&a);
    let seed = format!("cluster/seeds=b@127.0.0.1={}", b.contact());
    let c = start("c@127.0.0.1", &[SECRET, &seed]).await;
    for node in [&a, &b, &c] {
        until(node, "one uuid", |node| uuid(node) == uuid(&a)).await;
    }
    assert!(first.len() == 32 && c.records().values().all(|record| record.origin.is_some()));
    let given = start("d@127.0.0.1", &[SECRET, &seed, "couchdb/uuid=given"]).await;
    for node in [&a, &b, &c] {
        until(node, "the one that was given", |node| uuid(node) == "given").await;
    }
    let other = start("e@127.0.0.1", &[SECRET, &seed, "couchdb/uuid=another"]).await;
    until(&other, "it has met all", |other| other.connected().len() == 5).await;
    assert_eq!((uuid(&given), uuid(&other)), ("given".to_owned(), "another".to_owned()));
}

#[tokio::test]
async fn a_member_keeps_its_name() {
    let env = env();
    let dir = tempfile::tempdir().unwrap();
    let storage = crate::storage::Storage::open(env.clone(), dir.path(), Default::default()).await.unwrap();
    let start = |name: &str| {
        let settings = vec![Setting::parse(&format!("settee/node={name}")).unwrap()];
        let (config, env, storage) = (Config::in_memory(&env, settings), env.clone(), storage.clone());
        async move { Cluster::start(&env, &config, &storage).await }
    };
    start("a@h").await.unwrap().stop();
    let alone = start("b@h").await.unwrap();
    assert_eq!(alone.members().iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["b@h"]);
    assert!(alone.address().is_none(), "a node alone listens to nobody");
    alone.put_member("c@h", Object::new(), None).await.unwrap();
    alone.stop();
    assert!(matches!(start("a@h").await, Err(StartError::Renamed(..))));
}

/// Settings of a node that speaks TLS with a certificate of the tests.
fn tls_settings(name: &str, authority: &str) -> Vec<String> {
    let file = |file: String| format!("{}/tests/tls/{file}", env!("CARGO_MANIFEST_DIR"));
    vec![
        SECRET.to_owned(),
        "cluster/tls=true".to_owned(),
        format!("cluster/tls_cert_file={}", file(format!("{name}.pem"))),
        format!("cluster/tls_key_file={}", file(format!("{name}.key"))),
        format!("cluster/tls_ca_file={}", file(format!("{authority}-authority.pem"))),
    ]
}

async fn start_with(name: &str, settings: &[String], seed: Option<&Cluster>) -> TestNode {
    let seed = seed.map(|seed| format!("cluster/seeds={}={}", seed.name(), seed.contact()));
    let all: Vec<&str> = settings.iter().chain(&seed).map(String::as_str).collect();
    start(name, &all).await
}

#[tokio::test]
async fn nodes_talk_by_tls_and_others_are_refused() {
    let a = start_with("a@127.0.0.1", &tls_settings("one", "one"), None).await;
    let b = start_with("b@127.0.0.1", &tls_settings("one", "one"), Some(&a)).await;
    until(&b, "b reaches a", |b| b.is_up(&"a@127.0.0.1".into())).await;
    until(&a, "a reaches b", |a| a.is_up(&"b@127.0.0.1".into())).await;
    a.serve(Service::Shard, Arc::new(Echo::default()));
    let call = b.call(a.name(), Service::Shard, Class::Foreground, Bytes::from_static(b"hi"), LIMIT);
    assert_eq!(call.await.unwrap(), "hi");
    let strangers = |node: &Cluster| node.0.counters.strangers.load(Ordering::Relaxed);
    let before = strangers(&a);
    // The secret is right, the certificate is not; then there is none.
    let other = start_with("c@127.0.0.1", &tls_settings("two", "one"), Some(&a)).await;
    let plain = start_with("d@127.0.0.1", &[SECRET.to_owned()], Some(&a)).await;
    let env = &a.0.env;
    while strangers(&a) < before + 2 {
        env.sleep(Duration::from_millis(10)).await;
    }
    assert!(!other.is_up(a.name()) && !plain.is_up(a.name()));
    assert!(!a.lacks_authority() && !plain.lacks_authority());
}
