//! A node in this process and a client that opens a connection for each request: what several tests share.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use settee::config::{Config, Setting};
use settee::node::Node;
use settee::world::{Env, tokio_host};
use tokio::runtime::Runtime;

mod answer;
pub mod panics;
pub mod ports;

pub use answer::Answer;

/// Name and password of the administrator that every node has.
pub const ADMIN: &str = "adm:pass";

#[allow(dead_code, reason = "each test binary uses its own part")]
pub struct Served {
    pub runtime: Runtime,
    pub env: Env,
    pub config: Config,
    pub node: Node,
    _data: tempfile::TempDir,
    // The last: it is dropped when the node is gone.
    _panics: panics::NoPanics,
}

#[allow(dead_code, reason = "each test binary uses its own part")]
impl Served {
    /// A node with these settings, an administrator, cheap hashes and one range per database.
    pub fn start(settings: &[&str]) -> Served {
        let panics = panics::NoPanics::watch();
        let runtime = Runtime::new().expect("a runtime");
        let env = tokio_host::env(runtime.handle().clone());
        let common = ["admins/adm=pass", "chttpd_auth/iterations=1", "chttpd/port=0", "cluster/q=1"];
        let settings = common.iter().chain(settings).map(|text| Setting::parse(text).expect("a setting")).collect();
        let config = Config::in_memory(&env, settings);
        let data = tempfile::tempdir().expect("a directory");
        let node = runtime.block_on(async {
            assert_eq!(settee::auth::admins::hash_plain_passwords(&env, &config).await, []);
            Node::start(&env, &config, data.path()).await.expect("the node starts")
        });
        Served { runtime, env, config, node, _data: data, _panics: panics }
    }

    /// One request. `who`: a name and a password, or nothing.
    pub fn ask(&self, who: &str, method: &str, target: &str, body: &str) -> Answer {
        self.send(who, method, target, &[], body)
    }

    /// A request of the administrator that must succeed.
    pub fn must(&self, method: &str, target: &str, body: &str) -> Answer {
        let answer = self.ask(ADMIN, method, target, body);
        assert!(answer.status < 300, "{method} {target}: {answer:?}");
        answer
    }

    /// [`Served::ask`] with further headers.
    pub fn send(&self, who: &str, method: &str, target: &str, headers: &[&str], body: &str) -> Answer {
        exchange(self.node.address(), &request(who, method, target, headers, body))
    }

    /// Changes a setting of the running node.
    pub fn set(&self, section: &str, key: &str, value: &str) {
        self.runtime.block_on(self.config.set((section, key), value, false)).expect("a setting");
    }

    /// Asks again until `holds`, for at most three minutes: for what happens in the background, on a busy machine.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(180);
        while !holds() {
            assert!(Instant::now() < end, "{what}: not within three minutes");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The bytes of a request.
pub fn request(who: &str, method: &str, target: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n");
    if !who.is_empty() {
        text += &format!("Authorization: Basic {}\r\n", STANDARD.encode(who));
    }
    for (name, value) in [("accept", "application/json"), ("content-type", "application/json")] {
        if !headers.iter().any(|header| header.to_lowercase().starts_with(&format!("{name}:"))) {
            text += &format!("{name}: {value}\r\n");
        }
    }
    for header in headers {
        text += &format!("{header}\r\n");
    }
    text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    text.into_bytes()
}

/// Sends bytes on a connection of their own and reads the answer to its end.
pub fn exchange(to: SocketAddr, bytes: &[u8]) -> Answer {
    answer::parse(&exchange_raw(to, bytes))
}

/// Sends bytes on a connection of their own and reads the answer as it is.
#[allow(dead_code, reason = "each test binary uses its own part")]
pub fn exchange_raw(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).expect("the node listens");
    stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
    stream.write_all(bytes).expect("the node reads");
    let mut out = Vec::new();
    stream.read_to_end(&mut out).expect("the node answers");
    String::from_utf8_lossy(&out).into_owned()
}
