//! A database as the engine sees it, whether it is here or on another server.
//!
//! Documents travel as JSON objects with `_id`, `_rev`, `_revisions` and attachments as stubs; attachment bytes are
//! streams beside them, in the stored form (gzipped where the source holds them so), so that digests stay.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::error::Result;
use super::local::LocalPeer;
use super::remote::RemotePeer;
use super::request::Filter;
use crate::coordinator::AttachmentReader;
use crate::document::json::{Object, Value};
use crate::wire::client::Answer;

/// What is asked of a changes feed.
#[derive(Clone, Debug)]
pub struct ChangesAsk {
    /// After this sequence.
    pub since: Value,
    /// At most so many rows.
    pub limit: u64,
    /// Which ones.
    pub filter: Filter,
    /// Only winners, not all leaves.
    pub winners: bool,
    /// Wait for the first one.
    pub wait: bool,
}

/// A changed document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedDoc {
    /// Its id.
    pub id: String,
    /// Its leaves.
    pub revs: Vec<String>,
}

/// A piece of a changes feed.
#[derive(Clone, Debug)]
pub struct ChangesPage {
    /// Changed documents, oldest first.
    pub rows: Vec<ChangedDoc>,
    /// How far it was read.
    pub last_seq: Value,
    /// Changes behind it, where the peer tells.
    pub pending: Option<u64>,
}

/// What the target lacks of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// Revisions that it lacks.
    pub missing: Vec<String>,
    /// Leaves that it has and that the missing ones may grow from.
    pub ancestors: Vec<String>,
}

/// A revision to be copied.
#[derive(Clone, Debug)]
pub struct Want {
    /// The document.
    pub id: String,
    /// The revision; a newer leaf that grew from it is as good.
    pub rev: String,
    /// See [`Lack::ancestors`].
    pub ancestors: Arc<[String]>,
}

/// A revision with its body.
#[derive(Clone, Debug)]
pub struct Doc {
    /// The document.
    pub id: String,
    /// The revision.
    pub rev: String,
    /// All members.
    pub body: Object,
}

impl Doc {
    /// Reads a document as a peer sends it.
    pub fn from_body(body: Object) -> Option<Doc> {
        let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Doc { id: text("_id")?, rev: text("_rev")?, body })
    }

    /// The entries of its attachments.
    pub fn attachments(&self) -> impl Iterator<Item = (&str, &Object)> {
        let entries = self.body.get("_attachments").and_then(Value::as_object);
        entries.into_iter().flat_map(Object::iter).filter_map(|(name, entry)| Some((name, entry.as_object()?)))
    }

    /// The generation of the newest of `revs` in its history: attachments of that age are with who has that revision.
    pub fn known_generation(&self, revs: &[String]) -> u64 {
        let Some(history) = self.body.get("_revisions").and_then(Value::as_object) else { return 0 };
        let start = history.get("start").and_then(Value::as_u64).unwrap_or(0);
        let ids = history.get("ids").and_then(Value::as_array).unwrap_or_default();
        let in_history = |rev: &String| {
            let (generation, hash) = rev.split_once('-')?;
            let generation: u64 = generation.parse().ok()?;
            let at = usize::try_from(start.checked_sub(generation)?).ok()?;
            (ids.get(at)?.as_str()? == hash).then_some(generation)
        };
        revs.iter().filter_map(in_history).max().unwrap_or(0)
    }

    /// The document with the entries of `sent` attachments saying that their bytes follow.
    pub fn with_following(&self, sent: &[Sent]) -> Object {
        let mut body = self.body.clone();
        if let Some(Value::Object(entries)) = body.get_mut("_attachments") {
            for sent in sent {
                if let Some(Value::Object(entry)) = entries.get_mut(&sent.name) {
                    entry.remove("stub");
                    entry.insert("follows", true);
                }
            }
        }
        body
    }
}

/// An attachment whose bytes go with its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its name.
    pub name: String,
    /// Its type.
    pub content_type: String,
    /// Bytes as stored.
    pub length: u64,
    /// Whether they are gzipped.
    pub gzip: bool,
    /// `md5-..` of the bytes as stored.
    pub digest: Option<String>,
}

impl Sent {
    /// Those of a document's attachments that are newer than `generation`, in order.
    pub fn of(doc: &Doc, generation: u64) -> Vec<Sent> {
        let newer = |(_, entry): &(&str, &Object)| {
            entry.get("revpos").and_then(Value::as_u64).is_none_or(|revpos| revpos > generation)
        };
        let sent = |(name, entry): (&str, &Object)| {
            let text = |member: &str| entry.get(member).and_then(Value::as_str);
            let size = |member: &str| entry.get(member).and_then(Value::as_u64);
            let gzip = text("encoding") == Some("gzip");
            Sent {
                name: name.to_owned(),
                content_type: text("content_type").unwrap_or("application/octet-stream").to_owned(),
                length: size("encoded_length").filter(|_| gzip).or(size("length")).unwrap_or(0),
                gzip,
                digest: text("digest").map(str::to_owned),
            }
        };
        doc.attachments().filter(newer).map(sent).collect()
    }
}

/// The stored bytes of an attachment, in pieces.
pub enum AttachmentStream {
    /// From a database of this server.
    Local(Box<AttachmentReader>),
    /// From another server.
    Remote(Box<Answer>),
}

impl AttachmentStream {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(match self {
            AttachmentStream::Local(reader) => reader.next().await?,
            AttachmentStream::Remote(answer) => answer.next().await?,
        })
    }
}

/// What came of fetching.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The revisions found.
    pub docs: Vec<Doc>,
    /// Whether they came by `_bulk_get`.
    pub in_bulk: bool,
}

/// A revision that the target would not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The document.
    pub id: String,
    /// The error's name.
    pub error: String,
    /// Why.
    pub reason: String,
}

impl Refusal {
    /// Puts one together.
    pub fn new(id: &str, error: impl Into<String>, reason: impl Into<String>) -> Refusal {
        Refusal { id: id.to_owned(), error: error.into(), reason: reason.into() }
    }
}

/// Where the bytes of a body come from.
pub enum Piece {
    /// They are here.
    Text(Bytes),
    /// They are an attachment of the source.
    Attachment(Sent),
}

/// A database that is copied from or to.
pub enum Peer {
    /// Of this server.
    Local(LocalPeer),
    /// Of another one.
    Remote(RemotePeer),
}

impl Peer {
    /// Sees that the database is there and may be used; `create`: makes it where it is not.
    pub async fn open(&self, create: Option<&[(String, String)]>) -> Result<()> {
        match self {
            Peer::Local(peer) => peer.open(create).await,
            Peer::Remote(peer) => peer.open(create).await,
        }
    }

    /// Its address without credentials.
    pub fn shown(&self) -> &str {
        match self {
            Peer::Local(peer) => &peer.shown,
            Peer::Remote(peer) => &peer.shown,
        }
    }

    /// A page of its changes.
    pub async fn changes(&self, ask: &ChangesAsk) -> Result<ChangesPage> {
        match self {
            Peer::Local(peer) => peer.changes(ask).await,
            Peer::Remote(peer) => peer.changes(ask).await,
        }
    }

    /// What it lacks of these documents.
    pub async fn revs_diff(&self, asked: &[ChangedDoc]) -> Result<BTreeMap<String, Lack>> {
        match self {
            Peer::Local(peer) => peer.revs_diff(asked).await,
            Peer::Remote(peer) => peer.revs_diff(asked).await,
        }
    }

    /// Revisions with their histories; those that are gone are left out.
    pub async fn fetch(&self, wants: &[Want]) -> Result<Fetched> {
        match self {
            Peer::Local(peer) => peer.fetch(wants).await,
            Peer::Remote(peer) => peer.fetch(wants).await,
        }
    }

    /// Opens an attachment of a revision.
    pub async fn attachment(&self, id: &str, rev: &str, sent: &Sent) -> Result<AttachmentStream> {
        match self {
            Peer::Local(peer) => peer.attachment(id, rev, sent).await,
            Peer::Remote(peer) => peer.attachment(id, rev, sent).await,
        }
    }

    /// Writes revisions as they are, without attachment bytes. Those not named in the answer were written.
    pub async fn write(&self, docs: &[Doc]) -> Result<Vec<Refusal>> {
        match self {
            Peer::Local(peer) => peer.write(docs).await,
            Peer::Remote(peer) => peer.write(docs).await,
        }
    }

    /// Writes a revision with the bytes of `sent`, which come from `source`.
    pub async fn write_with(&self, doc: &Doc, sent: &[Sent], source: &Arc<Peer>) -> Result<Option<Refusal>> {
        match self {
            Peer::Local(peer) => peer.write_with(doc, sent, source).await,
            Peer::Remote(peer) => peer.write_with(doc, sent, source).await,
        }
    }

    /// A local document, with `_rev`.
    pub async fn local_get(&self, id: &str) -> Result<Option<Object>> {
        match self {
            Peer::Local(peer) => peer.local_get(id).await,
            Peer::Remote(peer) => peer.local_get(id).await,
        }
    }

    /// Writes a local document over the revision `rev`; answers its new one.
    pub async fn local_put(&self, id: &str, rev: Option<&str>, body: &Object) -> Result<String> {
        match self {
            Peer::Local(peer) => peer.local_put(id, rev, body).await,
            Peer::Remote(peer) => peer.local_put(id, rev, body).await,
        }
    }

    /// Sees that all it acknowledged is on its disk.
    pub async fn ensure_full_commit(&self) -> Result<()> {
        match self {
            Peer::Local(_) => Ok(()),
            Peer::Remote(peer) => peer.ensure_full_commit().await,
        }
    }

    /// Whether it has this document.
    pub async fn has_document(&self, id: &str) -> Result<bool> {
        match self {
            Peer::Local(peer) => peer.has_document(id).await,
            Peer::Remote(peer) => peer.has_document(id).await,
        }
    }
}

/// The pieces of a `multipart/related` body, and how many bytes they are (SPEC 'Documents' rule 4).
pub fn multipart(doc: &Doc, sent: &[Sent], boundary: &str) -> (VecDeque<Piece>, u64) {
    let mut text = format!("--{boundary}\r\nContent-Type: application/json\r\n\r\n").into_bytes();
    text.extend(doc.with_following(sent).to_vec());
    let mut pieces = VecDeque::new();
    let mut length = 0;
    for sent in sent {
        let encoding = if sent.gzip { "Content-Encoding: gzip\r\n" } else { "" };
        let head = format!(
            "\r\n--{boundary}\r\nContent-Disposition: attachment; filename=\"{}\"\r\nContent-Type: {}\r\n\
             Content-Length: {}\r\n{encoding}\r\n",
            sent.name.replace('"', "%22").replace(['\r', '\n'], " "),
            sent.content_type.replace(['\r', '\n'], " "),
            sent.length,
        );
        text.extend_from_slice(head.as_bytes());
        length += text.len() as u64 + sent.length;
        pieces.push_back(Piece::Text(std::mem::take(&mut text).into()));
        pieces.push_back(Piece::Attachment(sent.clone()));
    }
    text.extend_from_slice(format!("\r\n--{boundary}--").as_bytes());
    length += text.len() as u64;
    pieces.push_back(Piece::Text(text.into()));
    (pieces, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn doc(text: &str) -> Doc {
        Doc::from_body(json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()).unwrap()
    }

    const ATTACHED: &str = r#"{"_id":"d","_rev":"3-c","_revisions":{"start":3,"ids":["c","b","a"]},"_attachments":{
        "old":{"content_type":"a/b","revpos":1,"digest":"md5-x","length":5,"stub":true},
        "new":{"content_type":"text/plain","revpos":3,"digest":"md5-y","length":9,"encoding":"gzip",
            "encoded_length":4,"stub":true}}}"#;

    #[test]
    fn ancestors_on_the_path_say_what_is_known() {
        let doc = doc(ATTACHED);
        let known = |revs: &[&str]| doc.known_generation(&revs.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>());
        assert_eq!(known(&["1-a", "2-b"]), 2);
        assert_eq!(known(&["2-other", "9-z", "junk"]), 0);
    }

    #[test]
    fn newer_attachments_are_sent_and_the_length_is_exact() {
        let doc = doc(ATTACHED);
        assert_eq!(Sent::of(&doc, 0).len(), 2);
        let sent = Sent::of(&doc, 2);
        assert_eq!((sent[0].name.as_str(), sent[0].length, sent[0].gzip), ("new", 4, true));
        let (pieces, length) = multipart(&doc, &sent, "b");
        let size = |piece: &Piece| match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::Attachment(sent) => sent.length,
        };
        assert_eq!(pieces.iter().map(size).sum::<u64>(), length);
        let body = doc.with_following(&sent);
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(r#""length":5,"stub":true"#) && text.contains(r#""encoded_length":4,"follows":true"#));
    }
}
