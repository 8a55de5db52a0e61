//! Measures a running server: GET, PUT, `_bulk_docs` of 100 and 1000, `_all_docs`, one after another.
//!
//! For each: operations a second, latency of a request (p50, p99), CPU of the server for one operation and its resident
//! memory (with `--pid`, from /proc). Of a cluster several nodes can be named: connections are shared out among them,
//! CPU and memory are those of all. Connections are threads with blocking sockets: a load that costs little beside the
//! server, since both share the machine. A wrong answer ends the run.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;

/// Measure the rates of a CouchDB-compatible server.
#[derive(Parser, Debug)]
struct Args {
    /// The server, with an administrator: http://NAME:PASSWORD@HOST:PORT; may be repeated for the nodes of a cluster
    #[arg(long = "url", required = true)]
    urls: Vec<String>,
    /// Process id of the server, to read its CPU time and memory; may be repeated
    #[arg(long = "pid")]
    pids: Vec<u32>,
    /// Concurrent connections
    #[arg(long, default_value_t = 32)]
    connections: u64,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

type Outcome<T> = Result<T, String>;

/// Where to connect and how to log in.
#[derive(Clone)]
struct Target {
    address: String,
    authorization: String,
}

impl Target {
    fn parse(url: &str) -> Outcome<Target> {
        let rest = url.strip_prefix("http://").ok_or("the URL must begin with http://")?.trim_end_matches('/');
        let (user, address) = rest.rsplit_once('@').ok_or("the URL must name an administrator")?;
        Ok(Target { address: address.to_owned(), authorization: format!("Basic {}", STANDARD.encode(user)) })
    }
}

/// One keep-alive connection.
struct Connection {
    target: Target,
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    fn open(target: &Target) -> Outcome<Connection> {
        let stream = TcpStream::connect(&target.address).map_err(|e| format!("{}: {e}", target.address))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let stream = BufReader::with_capacity(1 << 16, stream);
        Ok(Connection { target: target.clone(), stream, request: Vec::new(), answer: Vec::new() })
    }

    /// Sends a request and reads the answer's body into `self.answer`.
    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Outcome<u16> {
        self.request.clear();
        let (host, authorization) = (&self.target.address, &self.target.authorization);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {authorization}\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.stream.get_mut().write_all(&self.request).map_err(|e| e.to_string())?;
        self.read().map_err(|e| format!("{method} {path}: {e}"))
    }

    /// Sends a request that must be answered with one of `expected`.
    fn must(&mut self, method: &str, path: &str, body: &[u8], expected: &[u16]) -> Outcome<()> {
        let status = self.ask(method, path, body)?;
        if expected.contains(&status) {
            return Ok(());
        }
        Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&self.answer)))
    }

    fn read(&mut self) -> std::io::Result<u16> {
        let bad = || std::io::Error::other("an answer that is no HTTP");
        let status = self.line()?.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(bad)?;
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse().map_err(|_| bad())?);
            }
        }
        self.answer.clear();
        match length {
            Some(length) => self.take(length)?,
            None => loop {
                let size = usize::from_str_radix(self.line()?.trim(), 16).map_err(|_| bad())?;
                self.take(size)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            },
        }
        Ok(status)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        Ok(line)
    }

    fn take(&mut self, size: usize) -> std::io::Result<()> {
        let from = self.answer.len();
        self.answer.resize(from + size, 0);
        self.stream.read_exact(&mut self.answer[from..])
    }
}

/// What the server has used: CPU time so far and resident memory.
#[derive(Clone, Copy, Default)]
struct Usage {
    cpu: Duration,
    resident_mb: f64,
}

/// That of all processes together; `None` where there are none, or one cannot be read.
fn usage_of_all(pids: &[u32]) -> Option<Usage> {
    let each = pids.iter().map(|pid| usage(*pid)).collect::<Option<Vec<Usage>>>()?;
    let sum = |sum: Usage, one: Usage| Usage { cpu: sum.cpu + one.cpu, resident_mb: sum.resident_mb + one.resident_mb };
    each.into_iter().reduce(sum)
}

fn usage(pid: u32) -> Option<Usage> {
    // Linux counts CPU time for /proc in hundredths of a second and memory in pages of 4 kB.
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let stat = read("stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let pages: f64 = read("statm")?.split(' ').nth(1)?.parse().ok()?;
    Some(Usage { cpu: Duration::from_millis(ticks * 10), resident_mb: pages * 4096.0 / 1e6 })
}

/// One kind of request: makes request `n` and answers how many operations it was.
type Step = dyn Fn(&mut Connection, u64) -> Outcome<u64> + Send + Sync;

/// Runs `step` on many connections for the given time and prints one line of the table.
fn measure(args: &Args, targets: &[Target], name: &str, connections: u64, step: Arc<Step>) -> Outcome<()> {
    let (numbers, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let (before, until) = (usage_of_all(&args.pids), begun + Duration::from_secs(args.seconds));
    let connected = targets.iter().cycle().take(connections as usize);
    let threads: Vec<_> = connected
        .map(|target| {
            let (numbers, step, target) = (numbers.clone(), step.clone(), target.clone());
            std::thread::spawn(move || -> Outcome<(u64, Vec<Duration>)> {
                let (mut connection, mut operations, mut times) = (Connection::open(&target)?, 0, Vec::new());
                while Instant::now() < until {
                    let start = Instant::now();
                    operations += step(&mut connection, numbers.fetch_add(1, Ordering::Relaxed))?;
                    times.push(start.elapsed());
                }
                Ok((operations, times))
            })
        })
        .collect();
    let (mut operations, mut times) = (0, Vec::new());
    for thread in threads {
        let (own, own_times) = thread.join().map_err(|_| "a connection's thread panicked")??;
        operations += own;
        times.extend(own_times);
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let server = match (before, usage_of_all(&args.pids)) {
        (Some(before), Some(after)) => {
            let cpu_us = (after.cpu - before.cpu).as_secs_f64() * 1e6 / operations as f64;
            format!("{cpu_us:.1} | {:.0}", after.resident_mb)
        }
        _ => "- | -".to_owned(),
    };
    let rate = operations as f64 / seconds;
    println!("| {name} | {connections} | {rate:.0} | {:.2} | {:.2} | {server} |", at(0.5), at(0.99));
    Ok(())
}

fn document(n: u64) -> String {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        r#""number":{n},"name":"document {n}","tags":["one","two"],"nested":{{"a":{mixed},"b":null,"c":1.5}},"text":"{:0>120}""#,
        mixed
    )
}

/// The id of document `n`: spread, not ascending.
fn id(n: u64) -> String {
    format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn bulk(db: &str, size: u64) -> Arc<Step> {
    let path = format!("/{db}/_bulk_docs");
    Arc::new(move |connection, n| {
        let docs: Vec<String> =
            (n * size..(n + 1) * size).map(|n| format!(r#"{{"_id":"{}",{}}}"#, id(n), document(n))).collect();
        connection.must("POST", &path, format!(r#"{{"docs":[{}]}}"#, docs.join(",")).as_bytes(), &[201])?;
        let stored = connection.answer.windows(9).filter(|w| w == br#""ok":true"#).count() as u64;
        if stored == size { Ok(size) } else { Err(format!("{stored} of {size} documents stored")) }
    })
}

fn run(args: &Args) -> Outcome<()> {
    let targets = args.urls.iter().map(|url| Target::parse(url)).collect::<Outcome<Vec<Target>>>()?;
    let targets = &*targets;
    let mut control = Connection::open(&targets[0])?;
    let stamp = std::process::id();
    let names = ["single", "hundred", "thousand"].map(|kind| format!("bench-{kind}-{stamp}"));
    for name in &names {
        control.must("PUT", &format!("/{name}"), b"", &[201])?;
    }
    let single = names[0].clone();
    println!("| operation | connections | per second | p50 ms | p99 ms | CPU µs each | memory MB |");
    println!("|---|---|---|---|---|---|---|");

    let (db, written) = (single.clone(), Arc::new(AtomicU64::new(0)));
    let count = written.clone();
    let put: Arc<Step> = Arc::new(move |connection, n| {
        let body = format!("{{{}}}", document(n));
        connection.must("PUT", &format!("/{db}/{}", id(n)), body.as_bytes(), &[201])?;
        count.fetch_add(1, Ordering::Relaxed);
        Ok(1)
    });
    measure(args, targets, "PUT, one connection", 1, put.clone())?;
    control.must("DELETE", &format!("/{single}"), b"", &[200])?;
    control.must("PUT", &format!("/{single}"), b"", &[201])?;
    written.store(0, Ordering::Relaxed);
    measure(args, targets, "PUT", args.connections, put)?;

    let (db, there) = (single, written.load(Ordering::Relaxed));
    let get: Arc<Step> = Arc::new(move |connection, n| {
        let path = format!("/{db}/{}", id(n.wrapping_mul(7919) % there));
        connection.must("GET", &path, b"", &[200]).map(|()| 1)
    });
    measure(args, targets, "GET", args.connections, get)?;
    measure(args, targets, "bulk 100, each document", args.connections.min(8), bulk(&names[1], 100))?;
    measure(args, targets, "bulk 1000, each document", args.connections.min(4), bulk(&names[2], 1000))?;
    for (name, query) in [("_all_docs, each row", ""), ("_all_docs with documents, each row", "&include_docs=true")] {
        let db = names[2].clone();
        let list: Arc<Step> = Arc::new(move |connection, n| {
            let path = format!("/{db}/_all_docs?limit=10000&startkey=%22{:x}%22{query}", n % 16);
            connection.must("GET", &path, b"", &[200])?;
            Ok(connection.answer.windows(7).filter(|w| w == br#"{"id":""#).count() as u64)
        });
        measure(args, targets, name, 2, list)?;
    }
    for name in &names {
        control.must("DELETE", &format!("/{name}"), b"", &[200])?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("settee-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
