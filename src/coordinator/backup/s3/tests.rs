//! Copies to a bucket and back, against a small store in this process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::coordinator::backup::list::{self, Layer, List, Manifest, NodeManifest, Object};
use crate::coordinator::backup::objects::object_path;
use crate::coordinator::backup::{frame, item};
use crate::observe::told::Told;
use crate::wire::tls::Trust;
use crate::world::tokio_host;

type Objects = BTreeMap<String, Vec<u8>>;

/// Names and bytes of a bucket, and requests by their first words.
#[derive(Clone, Default)]
struct Store {
    objects: Arc<Mutex<Objects>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// Whether a completion is answered with a failure although it was done.
    hides: Arc<Mutex<bool>>,
}

impl Store {
    /// Begins to listen; answers the address.
    fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let store = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, stream) = (store.clone(), stream.unwrap());
                std::thread::spawn(move || while store.answer(&stream).is_some() {});
            }
        });
        format!("http://{address}")
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap()
    }

    /// Requests of a kind since the last time.
    fn asked(&self, words: &str) -> usize {
        std::mem::take(&mut *self.asked.lock().unwrap()).iter().filter(|line| line.starts_with(words)).count()
    }

    /// Answers a request; `None` at the end of the connection.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut input = BufReader::new(stream);
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let mut length = 0;
        loop {
            let mut header = String::new();
            input.read_line(&mut header).ok()?;
            match header.to_ascii_lowercase().strip_prefix("content-length:") {
                Some(text) => length = text.trim().parse().unwrap(),
                None if header == "\r\n" => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body).ok()?;
        let (method, target) = line.split_once(' ')?;
        let (path, query) = target.split(' ').next()?.split_once('?')?;
        assert!(query.contains("X-Amz-Signature="), "{line}");
        let key = crate::wire::url::decode(path.strip_prefix("/buck/")?);
        let parameters: BTreeMap<&str, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name, crate::wire::url::decode(value)))
            .collect();
        self.asked.lock().unwrap().push(format!("{method} {key}"));
        let (status, head, body) = self.act((method, &key), &parameters, body);
        let head = format!("HTTP/1.1 {status} x\r\n{head}Content-Length: {}\r\n\r\n", body.len());
        (&*stream).write_all(&[head.as_bytes(), &body].concat()).ok()
    }

    fn act(
        &self,
        (method, key): (&str, &str),
        parameters: &BTreeMap<&str, String>,
        body: Vec<u8>,
    ) -> (u16, String, Vec<u8>) {
        let mut objects = self.objects();
        let upload = parameters.get("uploadId");
        match (method, upload) {
            ("GET", _) if parameters.contains_key("list-type") => (200, String::new(), listing(&objects, parameters)),
            ("GET", _) => match objects.get(key) {
                Some(bytes) => (200, String::new(), bytes.clone()),
                None => (404, String::new(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            },
            ("PUT", None) => {
                objects.insert(key.to_owned(), body);
                (200, String::new(), Vec::new())
            }
            ("PUT", Some(_)) => {
                let number: u32 = parameters["partNumber"].parse().unwrap();
                objects.insert(format!("!{key}!{number:05}"), body);
                (200, format!("ETag: \"{number}\"\r\n"), Vec::new())
            }
            ("POST", None) => {
                let answer = "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
                (200, String::new(), answer.into())
            }
            ("POST", Some(_)) => {
                let prefix = format!("!{key}!");
                let parts: Vec<String> = objects.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
                let told = String::from_utf8(body).unwrap();
                assert_eq!(told.matches("<PartNumber>").count(), parts.len(), "{told}");
                let whole = parts.iter().flat_map(|part| objects.remove(part).unwrap()).collect();
                objects.insert(key.to_owned(), whole);
                if *self.hides.lock().unwrap() {
                    return (404, String::new(), b"<Error><Code>NoSuchUpload</Code></Error>".to_vec());
                }
                let answer = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>";
                (200, String::new(), answer.into())
            }
            _ => {
                objects.retain(|name, _| !name.starts_with(&format!("!{key}!")));
                (204, String::new(), Vec::new())
            }
        }
    }
}

/// Two names a page: the token is the last one.
fn listing(objects: &Objects, parameters: &BTreeMap<&str, String>) -> Vec<u8> {
    let prefix = &parameters["prefix"];
    let after = parameters.get("continuation-token").cloned().unwrap_or_default();
    let found: Vec<_> = objects.iter().filter(|(name, _)| name.starts_with(prefix) && **name > after).collect();
    let shown = found.iter().take(2).map(|(name, bytes)| {
        let name = crate::wire::url::encode(name);
        format!("<Contents><Key>{name}</Key><Size>{}</Size></Contents>", bytes.len())
    });
    let is_truncated = found.len() > 2;
    let next = if is_truncated {
        format!("<NextContinuationToken>{}</NextContinuationToken>", found[1].0)
    } else {
        String::new()
    };
    let shown: String = shown.collect();
    format!(
        "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{is_truncated}</IsTruncated>{shown}{next}\
         </ListBucketResult>"
    )
    .into_bytes()
}

/// A folder with one snapshot of a node: a database of an object of documents, with a small and a large attachment.
struct Folder {
    dir: TempDir,
    documents: String,
    large: String,
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder { dir, documents: String::new(), large: String::new() };
        let large: Vec<u8> = (0..19_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        folder.large = folder.object(&large);
        let mut documents = Vec::new();
        let small = blake3::hash(b"small");
        let id = crate::document::id::DocId::new("d");
        frame::write(&mut documents, item::CONTENT, &item::encode_content(&id, small.as_bytes(), 5)).unwrap();
        frame::write(&mut documents, item::BYTES, b"small").unwrap();
        let attachment = |name: &str, hash: &str, length: usize| {
            let digest = "0".repeat(32);
            format!(r#"{{"name":"{name}","content_type":"t","revpos":1,"digest":"{digest}","length":{length},"#,)
                + &format!(r#""stored_length":{length},"gzip":false,"hash":"{hash}"}}"#)
        };
        let attachments = [attachment("s", &small.to_hex(), 5), attachment("l", &folder.large, large.len())].join(",");
        let rev = "a".repeat(32);
        let document = format!(
            r#"{{"id":"d","leaves":[{{"start":1,"ids":["{rev}"],"deleted":false,"attachments":[{attachments}],"body":{{}}}}]}}"#
        );
        frame::write(&mut documents, item::DOCUMENT, document.as_bytes()).unwrap();
        folder.documents = folder.object(&documents);
        folder.snapshot(1_700_000_000_001, &folder.documents);
        folder
    }

    fn path(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    fn object(&self, bytes: &[u8]) -> String {
        let name = blake3::hash(bytes).to_hex().to_string();
        write(&object_path(self.dir.path(), &name), bytes);
        name
    }

    /// Lists that name an object of documents.
    fn snapshot(&self, taken_ms: u64, documents: &str) {
        let object = Object { name: documents.to_owned(), bytes: 0 };
        let layers = vec![Layer { objects: vec![object], gone: Vec::new() }];
        let mut manifest = Manifest::of("{}".to_owned());
        (manifest.taken_ms, manifest.layers) = (taken_ms, layers);
        let file = list::of_database("a/b", taken_ms);
        write(&self.dir.path().join(&file), &list::sealed(&manifest));
        let node = NodeManifest { format: NodeManifest::FORMAT, taken_ms, databases: vec![file] };
        write(&self.dir.path().join(list::of_node(taken_ms)), &list::sealed(&node));
    }
}

/// The files of a folder.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut out, mut dirs) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(next) = dirs.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => drop(out.insert(path.strip_prefix(dir).unwrap().to_path_buf(), std::fs::read(&path).unwrap())),
            }
        }
    }
    out
}

struct Fixture {
    runtime: Runtime,
    env: Env,
    store: Store,
    order: Order,
    told: Mutex<Vec<String>>,
}

impl Fixture {
    fn new(key: Option<Key>) -> Fixture {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let store = Store::default();
        let access = Access {
            place: Place::parse("s3://buck/p").unwrap(),
            endpoint: store.serve(),
            region: "r".to_owned(),
            is_virtual_host: false,
            login: ("id".to_owned(), "secret".to_owned(), None),
            trust: Trust::System,
        };
        Fixture { runtime, env, store, order: Order { access, key, parallel: 3 }, told: Mutex::default() }
    }

    fn push(&self, folder: &Path, verify: bool) -> Result<Pushed, BackupError> {
        self.runtime.block_on(push(&self.env, folder, &self.order, verify, &|told| self.tell(told)))
    }

    fn pull(&self, folder: &Path, choice: &Choice) -> Result<Pulled, BackupError> {
        self.runtime.block_on(pull(&self.env, &self.order, folder, choice, &|told| self.tell(told)))
    }

    fn tell(&self, told: Told) {
        if let Told::Line(line) = told {
            self.told.lock().unwrap().push(line);
        }
    }

    fn told(&self) -> String {
        std::mem::take(&mut *self.told.lock().unwrap()).join("\n")
    }
}

fn key(byte: &str) -> Option<Key> {
    Key::parse(&byte.repeat(32))
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, BackupError>, words: &str) {
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn what_was_pushed_comes_back_and_goes_over_once() {
    for key in [None, key("07")] {
        let (fixture, folder, back) = (Fixture::new(key), Folder::new(), tempfile::tempdir().unwrap());
        refused(fixture.pull(back.path(), &Choice::Node), "there is no backup");
        let pushed = fixture.push(&folder.path(), true).unwrap();
        assert_eq!((pushed.objects, pushed.lists, pushed.verified, pushed.failed), (2, 2, 2, 0), "{}", fixture.told());
        assert!(fixture.store.asked("POST") >= 2, "the large object goes in parts");
        let pushed = fixture.push(&folder.path(), false).unwrap();
        assert_eq!((pushed.objects, pushed.objects_there, pushed.lists, pushed.lists_there), (0, 2, 0, 2));
        assert_eq!(fixture.store.asked("PUT"), 0);
        folder.snapshot(1_700_000_000_002, &folder.documents);
        assert_eq!(fixture.push(&folder.path(), false).unwrap().lists, 2);
        let lists = fixture.runtime.block_on(lists(&fixture.env, &fixture.order)).unwrap();
        let times = vec![1_700_000_000_002, 1_700_000_000_001];
        assert_eq!(lists, [(None, times.clone()), (Some("a/b".to_owned()), times)]);

        let pulled = fixture.pull(back.path(), &Choice::Node).unwrap();
        assert_eq!((pulled.objects, pulled.lists, pulled.failed), (2, 2, 0), "{}", fixture.told());
        assert_eq!(files(back.path()).len(), 4);
        let pulled = fixture.pull(back.path(), &Choice::All).unwrap();
        assert_eq!((pulled.objects, pulled.objects_there, pulled.lists), (0, 2, 4));
        assert_eq!(files(back.path()), files(&folder.path()));
        let one = tempfile::tempdir().unwrap();
        assert_eq!(fixture.pull(one.path(), &Choice::Database("a/b".to_owned())).unwrap().lists, 1);
        refused(fixture.pull(one.path(), &Choice::Database("c".to_owned())), "no snapshot of c");
    }
}

#[test]
fn an_object_of_parts_is_there_though_the_answer_was_lost() {
    let (fixture, folder) = (Fixture::new(None), Folder::new());
    *fixture.store.hides.lock().unwrap() = true;
    let pushed = fixture.push(&folder.path(), true).unwrap();
    assert_eq!((pushed.objects, pushed.failed), (2, 0), "{}", fixture.told());
}

#[test]
fn a_sealed_bucket_tells_nothing_and_takes_its_key_only() {
    let (mut fixture, folder, back) = (Fixture::new(key("07")), Folder::new(), tempfile::tempdir().unwrap());
    fixture.push(&folder.path(), false).unwrap();
    let before = fixture.store.objects().clone();
    for (name, bytes) in &before {
        let hidden = [&folder.documents, &folder.large, "a%2Fb", "databases", "nodes"];
        assert!(hidden.iter().all(|word| !name.contains(*word)), "{name}");
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains("leaves") && !text.contains("taken_ms"), "{name}");
    }
    for (other, words) in [(key("08"), "wrong key"), (None, "encrypted: give its key")] {
        fixture.order.key = other;
        refused(fixture.push(&folder.path(), false), words);
        refused(fixture.pull(back.path(), &Choice::Node), words);
    }
    assert_eq!(*fixture.store.objects(), before);
    assert!(files(back.path()).is_empty());
}

#[test]
fn a_plain_bucket_has_the_files_of_the_folder() {
    let (mut fixture, folder) = (Fixture::new(None), Folder::new());
    fixture.push(&folder.path(), false).unwrap();
    for (name, bytes) in files(&folder.path()) {
        assert_eq!(fixture.store.objects().get(&format!("p/{}", name.display())), Some(&bytes), "{name:?}");
    }
    fixture.order.key = key("07");
    refused(fixture.push(&folder.path(), false), "is not encrypted");
    fixture.order.access.place = Place::parse("s3://buck").unwrap();
    refused(fixture.push(&folder.path(), false), "choose an empty folder");
}

#[test]
fn what_is_damaged_or_missing_in_the_bucket_is_named() {
    for key in [None, key("07")] {
        let (fixture, folder) = (Fixture::new(key.clone()), Folder::new());
        fixture.push(&folder.path(), false).unwrap();
        let remote = Remote::new(&fixture.env, &fixture.order).unwrap();
        for object in [&folder.large, &folder.documents] {
            let (back, name) = (tempfile::tempdir().unwrap(), format!("p/{}", remote.object(object)));
            fixture.store.objects().get_mut(&name).unwrap()[100] ^= 1;
            assert!(fixture.push(&folder.path(), true).unwrap().failed >= 3, "the object and both lists");
            assert!(fixture.told().contains(object.as_str()));
            assert!(fixture.pull(back.path(), &Choice::Node).unwrap().failed >= 3);
            assert!(files(back.path()).keys().all(|file| file.extension().is_none()), "no list");
            fixture.store.objects().remove(&name);
            assert!(fixture.pull(back.path(), &Choice::Node).unwrap().failed >= 3);
            assert!(fixture.told().contains("is missing in s3://buck/p"));
            assert_eq!(fixture.push(&folder.path(), true).unwrap().objects, 1, "it is sent again");
            let pulled = fixture.pull(back.path(), &Choice::Node).unwrap();
            assert_eq!((pulled.failed, pulled.lists), (0, 2), "{}", fixture.told());
        }
    }
}

#[test]
fn what_is_damaged_or_missing_in_the_folder_is_not_sent() {
    let (fixture, folder) = (Fixture::new(None), Folder::new());
    let large = object_path(&folder.path(), &folder.large);
    let whole = std::fs::read(&large).unwrap();
    let mut changed = whole.clone();
    changed[18_000_000] ^= 1;
    std::fs::write(&large, changed).unwrap();
    folder.snapshot(1_700_000_000_002, &"ab".repeat(32));
    let pushed = fixture.push(&folder.path(), false).unwrap();
    assert_eq!((pushed.objects, pushed.lists, pushed.failed), (1, 0, 5), "the object, and what needs one");
    let told = fixture.told();
    assert!(told.contains(&folder.large) && told.contains(&"ab".repeat(32)), "{told}");
    assert!(fixture.store.objects().keys().all(|name| !name.contains(&folder.large)), "nor are parts of it left");
    std::fs::write(&large, whole).unwrap();
    let pushed = fixture.push(&folder.path(), false).unwrap();
    assert_eq!((pushed.objects, pushed.lists, pushed.failed), (1, 2, 2), "{}", fixture.told());
    let empty = tempfile::tempdir().unwrap();
    refused(fixture.push(empty.path(), false), "there is no snapshot");
}

#[test]
fn only_names_within_the_folder_are_names_of_lists() {
    let time = "000001700000000";
    for good in [format!("nodes/{time}.json"), format!("databases/a%2Fb/{time}.json")] {
        assert!(is_list(&good), "{good}");
    }
    let bad = [
        format!("nodes/../{time}.json"),
        format!("databases/../{time}.json"),
        format!("databases/a/b/{time}.json"),
        format!("databases//{time}.json"),
        format!("/nodes/{time}.json"),
        format!("objects/{time}.json"),
        format!("nodes/{time}"),
        "nodes/1.json".to_owned(),
        "nodes/00000170000000x.json".to_owned(),
    ];
    for bad in bad {
        assert!(!is_list(&bad), "{bad}");
    }
}

#[test]
fn names_of_objects_are_hashes() {
    let hash = blake3::hash(b"x");
    assert_eq!(id(hash.to_hex().as_str()), Some(*hash.as_bytes()));
    for bad in ["", "aa", &hash.to_hex().to_ascii_uppercase(), &"../../aa".repeat(8)] {
        assert_eq!(id(bad), None, "{bad}");
    }
}
