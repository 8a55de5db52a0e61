//! The server over real sockets: keep-alive, pipelining, limits, headers, stopping.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::config::{Config, Setting};
use crate::node::Node;
use crate::world::{Env, tokio_host};

pub(super) struct Served {
    runtime: Runtime,
    node: Node,
    config: Config,
    _dir: tempfile::TempDir,
    // The last: it is dropped when the node is gone.
    _panics: NoPanics,
}

/// How many runtimes have begun: each names its threads by its number.
static RUNTIMES: AtomicU64 = AtomicU64::new(0);
/// The threads that panicked, by their names: those of one node tell of its requests and tasks. Its pools are left out:
/// they have the same names in all tests, some of which make them panic.
static PANICKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A panic of a thread of that name fails the test that holds this.
struct NoPanics(String);

impl NoPanics {
    fn watch() -> NoPanics {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // Its hook is in place then: two that are set at once would lose one.
            crate::observe::panics::count();
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                let name = thread::current().name().unwrap_or_default().to_owned();
                PANICKED.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                report(panic);
            }));
        });
        NoPanics(format!("node-{}", RUNTIMES.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for NoPanics {
    fn drop(&mut self) {
        if !thread::panicking() {
            let panicked = PANICKED.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.0);
            assert!(!panicked, "a panic in the node, see above");
        }
    }
}

impl Served {
    /// A node with an administrator `adm` of the password `pass` and cheap hashes.
    pub(super) fn start(settings: &[&str]) -> Served {
        let panics = NoPanics::watch();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).thread_name(&panics.0).enable_all().build().unwrap();
        let env: Env = tokio_host::env(runtime.handle().clone());
        let common = ["chttpd/port=0", "chttpd_auth/iterations=1", "admins/adm=pass"];
        let overrides = common.iter().chain(settings).map(|s| Setting::parse(s).unwrap()).collect();
        let config = Config::in_memory(&env, overrides);
        let dir = tempfile::tempdir().unwrap();
        let node = runtime.block_on(async {
            crate::auth::admins::hash_plain_passwords(&env, &config).await;
            Node::start(&env, &config, dir.path()).await.unwrap()
        });
        Served { runtime, node, config, _dir: dir, _panics: panics }
    }

    pub(super) fn connect(&self) -> TcpStream {
        connect(self.node.address())
    }

    /// Sends bytes on a connection of their own and reads to its end.
    pub(super) fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut out = Vec::new();
        stream.read_to_end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// One request of the administrator.
    pub(super) fn ask(&self, method: &str, target: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        self.exchange(
            format!(
                "{method} {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nAuthorization: Basic YWRtOnBhc3M=\r\n\
                 Content-Length: {length}\r\n{headers}\r\n{body}"
            )
            .as_bytes(),
        )
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

pub(super) fn status(answer: &str) -> u16 {
    let code = answer.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {answer:?}"));
    code.parse().unwrap()
}

pub(super) fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next().unwrap();
    let line = |l: &'a str| l.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name));
    head.lines().find_map(line).map(|(_, value)| value)
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let served = Served::start(&[]);
    let one = |path: &str, extra: &str| format!("GET {path} HTTP/1.1\r\nHost: here\r\n{extra}\r\n");
    let all = one("/_up", "") + &one("/nothing", "") + &one("/_uuids", "Connection: close\r\n");
    let answer = served.exchange(all.as_bytes());
    let statuses: Vec<u16> = answer.match_indices("HTTP/1.1 ").map(|(at, _)| status(&answer[at..])).collect();
    assert_eq!(statuses, [200, 404, 200]);
    assert!(answer.contains("\"status\":\"ok\"") && answer.contains("uuids"));
}

#[test]
fn every_answer_has_the_common_headers() {
    let served = Served::start(&[]);
    let answer = served.ask("GET", "/_up", "X-Couch-Request-ID: mine-1\r\n", "");
    assert_eq!(header(&answer, "x-couch-request-id"), Some("mine-1"));
    assert_eq!(header(&answer, "cache-control"), Some("must-revalidate"));
    assert_eq!(header(&answer, "content-type"), Some("text/plain;charset=utf-8"));
    assert!(header(&answer, "server").unwrap().starts_with("settee/"));
    assert!(httpdate::parse_http_date(header(&answer, "date").unwrap()).is_ok());
    let other = served.ask("GET", "/_up", "X-Couch-Request-ID: not mine\r\nAccept: */*\r\n", "");
    assert_eq!(header(&other, "x-couch-request-id").unwrap().len(), 10);
    assert_eq!(header(&other, "content-type"), Some("application/json"));
    let minimal = served.ask("PUT", "/db", "Prefer: return=minimal\r\n", "");
    assert_eq!(status(&minimal), 201);
    assert_eq!(header(&minimal, "location"), None);
    assert_eq!(header(&minimal, "x-couch-request-id"), None);
    assert!(header(&minimal, "date").is_some());
}

#[test]
fn a_stranger_who_never_ends_a_large_order_of_a_replication_is_refused_at_once() {
    let served = Served::start(&[]);
    for path in ["/_replicate", "/_node/_local/_replicate"] {
        let mut stream = served.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n");
        stream.write_all(format!("{head}Content-Length: 60000000\r\n\r\n {{").as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413");
    }
}

#[test]
fn quotes_need_no_escapes_in_a_query() {
    let served = Served::start(&[]);
    let answer = served.ask("GET", "/_all_dbs?key=\"_users\"", "", "");
    assert!(answer.ends_with("\r\n\r\n[\"_users\"]\n"), "{answer}");
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let served = Served::start(&[]);
    let get = served.ask("GET", "/_all_dbs", "", "");
    let head = served.ask("HEAD", "/_all_dbs", "", "");
    assert_eq!(status(&head), 200);
    assert_eq!(header(&head, "etag"), header(&get, "etag"));
    assert_eq!(header(&head, "content-length"), header(&get, "content-length"));
    assert!(head.ends_with("\r\n\r\n"));
}

#[test]
fn too_large_requests_are_refused_and_still_answered() {
    let served = Served::start(&["chttpd/max_http_request_size=1000", "chttpd/max_uri_length=100"]);
    let body = "x".repeat(200_000);
    assert_eq!(status(&served.ask("PUT", "/db", "", &body)), 201, "nobody reads it");
    let large = served.ask("PUT", "/db/_security", "", &body);
    assert_eq!(status(&large), 413);
    assert!(large.contains("{\"error\":\"too_large\",\"reason\":\"the request entity is too large\"}"));
    let long = served.ask("GET", &format!("/_up?x={}", "y".repeat(100)), "", "");
    assert_eq!(status(&long), 414);
    let many: String = (0..300).map(|n| format!("X-H{n}: v\r\n")).collect();
    assert_eq!(status(&served.ask("GET", "/_up", &many, "")), 431);
    let huge = format!("X-Huge: {}\r\n", "z".repeat(200_000));
    assert_eq!(status(&served.ask("GET", "/_up", &huge, "")), 431);
    assert_eq!(status(&served.ask("GET", "/_up", "", "")), 200);
}

#[test]
fn chunked_bodies_are_read_and_counted_against_the_limit() {
    let served = Served::start(&["chttpd/max_http_request_size=1000"]);
    assert_eq!(status(&served.ask("PUT", "/db", "", "")), 201);
    let head = "PUT /db/_revs_limit HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\
                Authorization: Basic YWRtOnBhc3M=\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(status(&served.exchange(format!("{head}1\r\n1\r\n1\r\n7\r\n0\r\n\r\n").as_bytes())), 200);
    assert!(served.ask("GET", "/db/_revs_limit", "", "").ends_with("\r\n\r\n17\n"));
    let large = format!("{head}7d0\r\n{}\r\n0\r\n\r\n", "1".repeat(2000));
    assert_eq!(status(&served.exchange(large.as_bytes())), 413);
}

#[test]
fn settings_change_what_the_running_server_does() {
    let served = Served::start(&[]);
    assert_eq!(header(&served.ask("GET", "/_up", "", ""), "x-frame-options"), None);
    let at = ("chttpd", "enable_xframe_options");
    served.runtime.block_on(served.config.set(at, "true", false)).unwrap();
    assert_eq!(header(&served.ask("GET", "/_up", "", ""), "x-frame-options"), Some("DENY"));
}

/// Also where only the instance changed, as when two databases of one name become one: 404 said that the name was free.
#[test]
fn a_write_to_a_database_whose_name_another_one_took_is_not_answered_404() {
    let served = Served::start(&[]);
    for (anew, expected) in [(false, 404), (true, 503)] {
        assert_eq!(status(&served.ask("PUT", "/db", "", "")), 201);
        let mut begun = served.connect();
        begun
            .write_all(
                b"POST /db/_bulk_docs HTTP/1.1\r\nHost: here\r\nAuthorization: Basic YWRtOnBhc3M=\r\n\
                  Connection: close\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\
                  Expect: 100-continue\r\n\r\n",
            )
            .unwrap();
        // The body is asked for when the database is open.
        let mut go_on = [0; 25];
        begun.read_exact(&mut go_on).unwrap();
        assert_eq!(status(&served.ask("DELETE", "/db", "", "")), 200);
        if anew {
            assert_eq!(status(&served.ask("PUT", "/db", "", "")), 201);
        }
        begun.write_all(br#"{"docs":[{"_id":"a"}   ]}"#).unwrap();
        let mut answer = String::new();
        begun.read_to_string(&mut answer).unwrap();
        assert_eq!(status(&answer), expected, "{answer}");
    }
}

#[test]
fn a_stopping_server_finishes_what_it_began_and_takes_no_more() {
    let served = Served::start(&[]);
    assert_eq!(status(&served.ask("PUT", "/db", "", "")), 201);
    // An idle connection must not hold the stop up; one with half a request is finished.
    let _idle = served.connect();
    let mut half = served.connect();
    half.write_all(
        b"PUT /db/_revs_limit HTTP/1.1\r\nHost: here\r\nAuthorization: Basic YWRtOnBhc3M=\r\nContent-Length: 2\r\n\
          Expect: 100-continue\r\n\r\n",
    )
    .unwrap();
    let mut go_on = [0; 25];
    half.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    let address = served.node.address();
    served.runtime.block_on(async {
        let stop = served.node.stop();
        let finish = async {
            half.write_all(b"50").unwrap();
            let mut out = String::new();
            half.read_to_string(&mut out).unwrap();
            out
        };
        // The stop is asked for first: the other future blocks its thread.
        let (finished, answer) = futures_util::future::join(stop, finish).await;
        assert!(finished, "nothing was cut off");
        assert_eq!(status(&answer), 200, "{answer}");
    });
    assert!(TcpStream::connect(address).is_err());
}
