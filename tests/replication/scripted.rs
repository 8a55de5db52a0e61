//! A small server that answers a replicator as CouchDB was recorded to, with faults where a test wants them.
//!
//! It holds one database, whatever the name in the path. Faults are rules: the first one that fits a request is used up
//! by it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// What goes wrong with an answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status with `error` and `reason`.
    Status(u16, &'static str),
    /// This status with a header.
    With(u16, &'static str, String),
    /// The connection ends before an answer.
    Close,
    /// The body ends before the length that its head tells.
    Cut,
    /// The whole body is half of what it should be, and its head says so.
    Garbled,
    /// The body pauses in its middle.
    Slow(Duration),
    /// The body is this one.
    Body(Value),
    /// The body comes gzipped.
    Gzip,
    /// So many empty lines come before the body, a tenth of a second apart.
    Beats(u32),
    /// The server stops in the middle of the body, and with it all others, until [`Peer::go_on`].
    Stop,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// When all of it was there.
    pub at: Instant,
}

impl Asked {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The path below the database, without the query.
    fn below(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        path.trim_start_matches('/').split_once('/').map_or("", |(_, below)| below).replace("%2F", "/")
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

#[derive(Default)]
pub struct State {
    /// Documents by id, each with `_rev`; in the order of their changes.
    pub docs: Vec<Value>,
    /// Bytes of attachments by `id/name`.
    pub attachments: BTreeMap<String, Vec<u8>>,
    locals: BTreeMap<String, Value>,
    instance: u64,
    rules: Vec<(&'static str, Fault)>,
    stopped: bool,
    /// Everything that was asked.
    pub log: Vec<Asked>,
}

impl State {
    fn doc(&self, id: &str) -> Option<&Value> {
        self.docs.iter().find(|doc| doc["_id"] == id)
    }

    fn put(&mut self, doc: Value) {
        self.docs.retain(|known| known["_id"] != doc["_id"]);
        self.docs.push(doc);
    }
}

/// A server of one database.
pub struct Peer {
    /// Its address with the path of the database.
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl Peer {
    pub fn start() -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/db", listener.local_addr().expect("an address"));
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // A connection that breaks is what some tests are about.
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Peer { url, state }
    }

    /// One with so many documents `d0`, `d1`, ..
    pub fn with_docs(count: usize) -> Peer {
        let peer = Peer::start();
        peer.state().docs = (0..count).map(|n| json!({"_id": format!("d{n}"), "_rev": "1-a", "n": n})).collect();
        peer
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request whose method and path below the database begin with `on` meets this.
    pub fn fail(&self, on: &'static str, fault: Fault) {
        self.state().rules.push((on, fault));
    }

    /// Takes all rules back.
    pub fn fail_no_more(&self) {
        self.state().rules.clear();
    }

    /// Ends [`Fault::Stop`]; what was under way is lost.
    pub fn go_on(&self) {
        self.state().stopped = false;
    }

    /// Rules that nothing met.
    pub fn unused(&self) -> usize {
        self.state().rules.len()
    }

    /// Requests whose method and path begin so.
    pub fn asked(&self, on: &str) -> usize {
        self.state().log.iter().filter(|asked| format!("{} {}", asked.method, asked.below()).starts_with(on)).count()
    }

    /// The database is deleted and made anew.
    pub fn make_anew(&self) {
        let mut state = self.state();
        *state = State { instance: state.instance + 1, ..State::default() };
    }
}

/// Reads the head and the body of a request; `None` at the end of the connection.
fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Asked { method, target, headers, body, at: Instant::now() }))
}

/// Waits as long as the server is stopped.
fn while_stopped(state: &Mutex<State>) {
    while state.lock().unwrap_or_else(PoisonError::into_inner).stopped {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some(asked) = read(&mut reader)? {
        while_stopped(state);
        let (fault, (status, body)) = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let line = format!("{} {}", asked.method, asked.below());
            state.log.push(asked.clone());
            let at = state.rules.iter().position(|(on, _)| line.starts_with(on));
            let fault = at.map(|at| state.rules.remove(at).1);
            let takes_effect = !matches!(fault, Some(Fault::Status(..) | Fault::With(..)));
            (fault, if takes_effect { answer(&mut state, &asked) } else { (500, Vec::new()) })
        };
        let head = |status: u16, length: usize, more: &str| {
            let kind = "Content-Type: application/json";
            format!("HTTP/1.1 {status} Status\r\n{kind}\r\n{more}Content-Length: {length}\r\n\r\n")
        };
        match fault {
            None => stream.write_all(&[head(status, body.len(), "").as_bytes(), &body].concat())?,
            Some(Fault::Status(status, error)) => {
                let body = json!({"error": error, "reason": "scripted"}).to_string();
                stream.write_all(format!("{}{body}", head(status, body.len(), "")).as_bytes())?;
            }
            Some(Fault::With(status, name, value)) => {
                stream.write_all(head(status, 0, &format!("{name}: {value}\r\n")).as_bytes())?;
            }
            Some(Fault::Body(body)) => {
                let body = body.to_string();
                stream.write_all(format!("{}{body}", head(200, body.len(), "")).as_bytes())?;
            }
            Some(Fault::Gzip) => {
                let mut packed = GzEncoder::new(Vec::new(), Compression::default());
                packed.write_all(&body)?;
                let body = packed.finish()?;
                stream
                    .write_all(&[head(status, body.len(), "Content-Encoding: gzip\r\n").as_bytes(), &body].concat())?;
            }
            Some(Fault::Close) => return Ok(()),
            Some(Fault::Cut) => {
                stream.write_all(&[head(status, body.len(), "").as_bytes(), &body[..body.len() / 2]].concat())?;
                return Ok(());
            }
            Some(Fault::Garbled) => {
                let half = &body[..body.len() / 2];
                stream.write_all(&[head(status, half.len(), "").as_bytes(), half].concat())?;
            }
            Some(Fault::Beats(count)) => {
                stream.write_all(head(status, body.len() + count as usize, "").as_bytes())?;
                for _ in 0..count {
                    stream.write_all(b"\n")?;
                    std::thread::sleep(Duration::from_millis(100));
                }
                stream.write_all(&body)?;
            }
            Some(Fault::Stop) => {
                stream.write_all(&[head(status, body.len(), "").as_bytes(), &body[..body.len() / 2]].concat())?;
                state.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
                while_stopped(state);
                return Ok(());
            }
            Some(Fault::Slow(pause)) => {
                let (first, second) = body.split_at(body.len() / 2);
                stream.write_all(&[head(status, body.len(), "").as_bytes(), first].concat())?;
                std::thread::sleep(pause);
                stream.write_all(second)?;
            }
        }
    }
    Ok(())
}

/// What a healthy server answers.
fn answer(state: &mut State, asked: &Asked) -> (u16, Vec<u8>) {
    let below = asked.below();
    let missing = || (404, json!({"error": "not_found", "reason": "missing"}));
    let (status, body) = match (asked.method.as_str(), below.as_str()) {
        ("GET", "") => (200, json!({"db_name": "db", "instance_start_time": state.instance.to_string()})),
        ("PUT", "") => (412, json!({"error": "file_exists", "reason": "there"})),
        ("POST", "_ensure_full_commit") => (201, json!({"ok": true})),
        ("GET", "_changes") => (200, changes(state, asked)),
        ("POST", "_revs_diff") => (200, revs_diff(state, &asked.json())),
        ("POST", "_bulk_get") => (200, bulk_get(state, &asked.json())),
        ("POST", "_bulk_docs") => {
            asked.json()["docs"].as_array().into_iter().flatten().for_each(|doc| state.put(doc.clone()));
            (201, json!([]))
        }
        ("GET", local) if local.starts_with("_local/") => match state.locals.get(local) {
            Some(log) => (200, log.clone()),
            None => missing(),
        },
        ("PUT", local) if local.starts_with("_local/") => put_local(state, local, asked.json()),
        ("PUT", id) => {
            let text = String::from_utf8_lossy(&asked.body);
            let doc = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_default();
            state.put(doc);
            state.attachments.insert(id.to_owned(), asked.body.clone());
            (201, json!({"ok": true}))
        }
        (_, path) => match (state.attachments.get(path), state.doc(path)) {
            (Some(bytes), _) => return (200, bytes.clone()),
            (None, Some(doc)) => (200, json!([{"ok": with_history(doc)}])),
            (None, None) => missing(),
        },
    };
    (status, body.to_string().into_bytes())
}

fn changes(state: &State, asked: &Asked) -> Value {
    let number = |name: &str| asked.parameter(name).and_then(|text| text.parse::<usize>().ok());
    let (since, limit) = (number("since").unwrap_or(0), number("limit").unwrap_or(usize::MAX));
    let row = |(at, doc): (usize, &Value)| json!({"seq": at + 1, "id": doc["_id"], "changes": [{"rev": doc["_rev"]}]});
    let rows: Vec<Value> = state.docs.iter().enumerate().skip(since).take(limit).map(row).collect();
    let last = since + rows.len();
    json!({"results": rows, "last_seq": last, "pending": state.docs.len().saturating_sub(last)})
}

fn revs_diff(state: &State, asked: &Value) -> Value {
    let lacks = asked.as_object().into_iter().flatten().filter_map(|(id, revs)| {
        let has = |rev: &&Value| state.doc(id).is_some_and(|doc| doc["_rev"] == **rev);
        let missing: Vec<&Value> = revs.as_array()?.iter().filter(|rev| !has(rev)).collect();
        (!missing.is_empty()).then(|| (id.clone(), json!({"missing": missing})))
    });
    Value::Object(lacks.collect())
}

fn with_history(doc: &Value) -> Value {
    let mut doc = doc.clone();
    doc["_revisions"] = json!({"start": 1, "ids": [doc["_rev"].as_str().unwrap_or_default().trim_start_matches("1-")]});
    doc
}

fn bulk_get(state: &State, asked: &Value) -> Value {
    let result = |item: &Value| {
        let found = state.doc(item["id"].as_str().unwrap_or_default());
        let gone = json!({"error": {"id": item["id"], "rev": item["rev"], "error": "not_found", "reason": "missing"}});
        json!({"id": item["id"], "docs": [found.map_or(gone, |doc| json!({"ok": with_history(doc)}))]})
    };
    json!({"results": asked["docs"].as_array().into_iter().flatten().map(result).collect::<Vec<_>>()})
}

fn put_local(state: &mut State, id: &str, mut body: Value) -> (u16, Value) {
    let known = state.locals.get(id).map(|log| log["_rev"].clone());
    if known.as_ref().unwrap_or(&Value::Null) != &body["_rev"] {
        return (409, json!({"error": "conflict", "reason": "Document update conflict."}));
    }
    let generation: u64 = known.and_then(|rev| rev.as_str()?.strip_prefix("0-")?.parse().ok()).unwrap_or(0);
    let rev = format!("0-{}", generation + 1);
    body["_rev"] = json!(rev);
    state.locals.insert(id.to_owned(), body);
    (201, json!({"ok": true, "id": id, "rev": rev}))
}
