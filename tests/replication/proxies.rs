//! Replication by way of proxies.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::served::Served;

/// A proxy that speaks HTTP and SOCKS 5 and keeps what it was told before it passed bytes on.
struct Proxy {
    port: u16,
    told: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let told = Arc::<Mutex<Vec<String>>>::default();
        let shared = Arc::clone(&told);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // A connection that breaks is the end of it.
                std::thread::spawn(move || drop(pass_on(stream, &shared)));
            }
        });
        Proxy { port, told }
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn exactly<const N: usize>(stream: &mut TcpStream) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map(|()| bytes)
}

fn text(stream: &mut TcpStream) -> std::io::Result<String> {
    let [length] = exactly(stream)?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn pass_on(mut stream: TcpStream, told: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let tell = |what: String| told.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    let [first] = exactly(&mut stream)?;
    if first == 5 {
        let [_, method] = exactly(&mut stream)?;
        stream.write_all(&[5, method])?;
        if method == 2 {
            let [_] = exactly(&mut stream)?;
            tell(format!("{}:{}", text(&mut stream)?, text(&mut stream)?));
            stream.write_all(&[1, 0])?;
        }
        let [_, _, _, _] = exactly(&mut stream)?;
        let host = text(&mut stream)?;
        let to = format!("{host}:{}", u16::from_be_bytes(exactly(&mut stream)?));
        let server = TcpStream::connect(&to)?;
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
        tell(format!("SOCKS {to}"));
        return splice(stream, server);
    }
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(exactly::<1>(&mut stream)?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let login =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("proxy-authorization: ").map(str::to_owned));
    if head.starts_with("CONNECT ") {
        let server = TcpStream::connect(&target)?;
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        tell(format!("CONNECT {target} {}", login.is_some()));
        return splice(stream, server);
    }
    let to = target.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
    let mut server = TcpStream::connect(&to)?;
    tell(format!("http {to} {}", login.is_some()));
    server.write_all(head.as_bytes())?;
    splice(stream, server)
}

fn splice(a: TcpStream, b: TcpStream) -> std::io::Result<()> {
    let (mut from, mut to) = (a.try_clone()?, b.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (b, a);
    std::io::copy(&mut from, &mut to)?;
    to.shutdown(Shutdown::Write)
}

#[test]
fn each_side_is_reached_by_way_of_its_proxy() {
    let file = |name: &str| format!("{}/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let secure = [
        "ssl/enable=true".to_owned(),
        "ssl/port=0".to_owned(),
        format!("ssl/cert_file={}", file("one.pem")),
        format!("ssl/key_file={}", file("one.key")),
    ];
    let served = Served::start(&secure.iter().map(String::as_str).collect::<Vec<_>>());
    let proxy = Proxy::start();
    served.must("PUT", "/src", "");
    served.must("PUT", "/src/a", "{}");
    let plain = format!("127.0.0.1:{}", served.node.address().port());
    let tls = format!("localhost:{}", served.node.secure_address().expect("it speaks TLS").port());
    let copy = |target: &str, members: &str| {
        let order = format!(r#"{{"source":"src","target":"{target}","create_target":true,{members}}}"#);
        assert_eq!(served.must("POST", "/_replicate", &order).json()["history"][0]["docs_written"], 1);
        let mut told = proxy.told();
        told.sort();
        told.dedup();
        told
    };
    let port = proxy.port;
    let by_http = format!(r#""proxy":"http://u:p@127.0.0.1:{port}""#);
    assert_eq!(copy(&format!("http://adm:pass@{plain}/one"), &by_http), [format!("http {plain} true")]);
    assert_eq!(copy(&format!("https://adm:pass@{tls}/two"), &by_http), [format!("CONNECT {tls} true")]);
    let by_socks = format!(r#""target_proxy":"socks5://u:p@127.0.0.1:{port}","source_proxy":"http://127.0.0.1:1""#);
    assert_eq!(
        copy(&format!("http://adm:pass@{plain}/three"), &by_socks),
        [format!("SOCKS {plain}"), "u:p".to_owned()]
    );
    served.set("replicator", "valid_proxy_protocols", "https");
    let order = format!(r#"{{"source":"src","target":"http://adm:pass@{plain}/four",{by_http}}}"#);
    assert_eq!(served.ask("adm:pass", "POST", "/_replicate", &order).status, 400);
    served.runtime.block_on(served.node.stop());
}
