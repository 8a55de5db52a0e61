//! A database as the engine sees it, whether it is here or on another server.
//!
//! Documents travel as JSON with `_id`, `_rev`, `_revisions` and attachments as stubs; attachment bytes are streams
//! beside them, in the stored form (gzipped where the source holds them so), so that digests stay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error::{ReplicateError, Result};
use super::local::LocalPeer;
use super::progress::Track;
use super::remote::RemotePeer;
use super::request::ReplicationFilter;
use crate::coordinator::AttachmentReader;
use crate::document::json::{self, Object, Value};
use crate::document::render::{RenderOptions, StoredRevision, render};
use crate::document::rev_tree::RevPath;
use crate::wire::client::Answer;

/// What is asked of a changes feed.
#[derive(Clone, Debug)]
pub struct ChangesAsk {
    /// After this sequence.
    pub since: Value,
    /// At most so many rows.
    pub limit: u64,
    /// Which ones.
    pub filter: ReplicationFilter,
    /// Only winners, not all leaves.
    pub winners: bool,
    /// Wait for the first one.
    pub wait: bool,
    /// Of a feed that is filtered: how long to read for one page. What passed until then is answered, and how far the
    /// filter was applied.
    pub time_limit: Option<Duration>,
}

/// A changed document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedDoc {
    /// Its id.
    pub id: String,
    /// Its leaves.
    pub revs: Vec<String>,
}

/// A page of the changes feed of a source.
#[derive(Clone, Debug)]
pub struct SourcePage {
    /// Changed documents, oldest first.
    pub rows: Vec<ChangedDoc>,
    /// Changes that were read for it, as far as is known: those that a filter left out count, too.
    pub read: u64,
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
    pub body: Body,
}

/// The members of a document, in the form in which its source has them.
#[derive(Clone, Debug)]
pub enum Body {
    /// One without attachments as it is stored here, and its history where it is wanted.
    Stored(StoredRevision, Option<RevPath>),
    /// Read.
    Members(Object),
}

impl Doc {
    /// Reads a document as a peer sends it.
    pub fn from_body(body: Object) -> Option<Doc> {
        let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Doc { id: text("_id")?, rev: text("_rev")?, body: Body::Members(body) })
    }

    /// Its members, read.
    pub fn members(&self) -> Result<Object> {
        match &self.body {
            Body::Members(members) => Ok(members.clone()),
            Body::Stored(stored, history) => match json::parse(&text(&self.id, stored, history.as_ref())) {
                Ok(Value::Object(members)) => Ok(members),
                _ => Err(self.damaged()),
            },
        }
    }

    /// Its content is no JSON.
    pub fn damaged(&self) -> ReplicateError {
        ReplicateError::failed("replication_failed", format!("Document {} is damaged.", self.id))
    }

    /// Writes it as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.body {
            Body::Members(members) => members.write(out),
            Body::Stored(stored, history) => out.extend(text(&self.id, stored, history.as_ref())),
        }
    }

    fn member(&self, name: &str) -> Option<&Object> {
        match &self.body {
            Body::Members(members) => members.get(name).and_then(Value::as_object),
            Body::Stored(..) => None,
        }
    }

    /// The entry of the attachment whose name is empty: no URL names it, so that it travels within its document.
    pub fn nameless(&mut self) -> Option<&mut Value> {
        match &mut self.body {
            Body::Members(members) => match members.get_mut("_attachments")? {
                Value::Object(entries) => entries.get_mut(""),
                _ => None,
            },
            Body::Stored(..) => None,
        }
    }

    /// The entries of its attachments.
    pub fn attachments(&self) -> impl Iterator<Item = (&str, &Object)> {
        let entries = self.member("_attachments");
        entries.into_iter().flat_map(Object::iter).filter_map(|(name, entry)| Some((name, entry.as_object()?)))
    }

    /// The newest of `revs` in the history of a document with attachments, and its generation: attachments of that age
    /// are with who has that revision.
    pub fn known_ancestor<'r>(&self, revs: &'r [String]) -> Option<(u64, &'r str)> {
        let history = self.member("_revisions")?;
        let start = history.get("start").and_then(Value::as_u64).unwrap_or(0);
        let ids = history.get("ids").and_then(Value::as_array).unwrap_or_default();
        let in_history = |rev: &'r String| {
            let (generation, hash) = rev.split_once('-')?;
            let generation: u64 = generation.parse().ok()?;
            let at = usize::try_from(start.checked_sub(generation)?).ok()?;
            (ids.get(at)?.as_str()? == hash).then_some((generation, rev.as_str()))
        };
        revs.iter().filter_map(in_history).max()
    }

    /// The document with the entries of `sent` attachments saying that their bytes follow.
    pub fn with_following(&self, sent: &[Sent]) -> Result<Object> {
        let mut body = self.members()?;
        if let Some(Value::Object(entries)) = body.get_mut("_attachments") {
            for sent in sent {
                if let Some(Value::Object(entry)) = entries.get_mut(&sent.name) {
                    entry.remove("stub");
                    entry.insert("follows", true);
                }
            }
        }
        Ok(body)
    }
}

/// The JSON text of a document as it is stored here, with its history where it is given.
pub fn text(id: &str, stored: &StoredRevision, history: Option<&RevPath>) -> Vec<u8> {
    let options = RenderOptions { revisions: history, att_encoding_info: true, ..RenderOptions::default() };
    render(id, stored, &options)
}

/// An attachment whose bytes go beside its document.
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
    /// Those of a document's attachments that are newer than `generation` and not within it, in order.
    pub fn of(doc: &Doc, generation: u64) -> Vec<Sent> {
        let newer = |(_, entry): &(&str, &Object)| {
            !entry.contains("data")
                && entry.get("revpos").and_then(Value::as_u64).is_none_or(|revpos| revpos > generation)
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

    /// Whether `held` is of the same name, type and bytes.
    pub fn is(&self, held: &Sent) -> bool {
        self.digest.is_some()
            && (&self.name, &self.content_type, &self.digest) == (&held.name, &held.content_type, &held.digest)
    }
}

/// Where the bytes of an attachment come from.
pub enum Stored {
    /// A database of this server.
    Local(Box<AttachmentReader>),
    /// Another server.
    Remote(Box<Answer>),
}

/// The stored bytes of an attachment, in pieces.
pub struct AttachmentStream {
    stored: Stored,
    track: Arc<Track>,
    name: String,
    /// Bytes still to come, as the document says.
    left: u64,
}

impl AttachmentStream {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`ReplicateError::WrongLength`] where there are more or fewer bytes than the document says.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        self.track.moved();
        let piece = match &mut self.stored {
            Stored::Local(reader) => reader.next().await?,
            Stored::Remote(answer) => answer.next().await?,
        };
        let left = self.left.checked_sub(piece.as_ref().map_or(0, Bytes::len) as u64);
        match left.filter(|left| piece.is_some() || *left == 0) {
            Some(left) => {
                self.left = left;
                Ok(piece)
            }
            None => Err(ReplicateError::WrongLength { name: self.name.clone() }),
        }
    }
}

/// What is copied from, as a target sees it: attachments to be read, each piece a sign of progress.
#[derive(Clone)]
pub struct Source {
    /// The database.
    pub peer: Arc<Peer>,
    /// Where progress is noted.
    pub track: Arc<Track>,
}

impl Source {
    /// Opens an attachment of a revision.
    pub async fn attachment(&self, id: &str, rev: &str, sent: &Sent) -> Result<AttachmentStream> {
        let stored = match &*self.peer {
            Peer::Local(peer) => peer.attachment(id, rev, sent).await?,
            Peer::Remote(peer) => peer.attachment(id, rev, sent).await?,
        };
        let (track, name) = (Arc::clone(&self.track), sent.name.clone());
        Ok(AttachmentStream { stored, track, name, left: sent.length })
    }
}

/// What came of fetching.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The revisions found.
    pub docs: Vec<Doc>,
    /// Those that came by `_bulk_get`.
    pub in_bulk: usize,
    /// Those that the source keeps back.
    pub refused: Vec<Refusal>,
    /// Document and revision of one that the source has not, if there are any: it told of it before.
    pub missing: Option<String>,
    /// Bytes of all, as JSON.
    pub bytes: usize,
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

    /// As lists of jobs tell it.
    pub fn told(&self) -> Value {
        let members = [("id", &self.id), ("error", &self.error), ("reason", &self.reason)];
        Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), Value::from(v.as_str()))).collect())
    }
}

/// A text as it is, anything else as JSON.
pub fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| String::from_utf8_lossy(&value.to_vec()).into_owned(), str::to_owned)
}

/// A database that is copied from or to.
///
/// What an idle replication asks now and then is boxed: it holds the memory of what it waits for, not of the largest of
/// all that it may ever ask a peer of either kind.
pub enum Peer {
    /// Of this server.
    Local(LocalPeer),
    /// Of another one.
    Remote(RemotePeer),
}

impl Peer {
    /// Sees that the database is there and may be used; `create`: makes it where it is not. Answers what tells it from
    /// one that had its name before: the same text as long as it is the same database.
    pub async fn open(&self, create: Option<&[(String, String)]>) -> Result<String> {
        match self {
            Peer::Local(peer) => Box::pin(peer.open(create)).await,
            Peer::Remote(peer) => Box::pin(peer.open(create)).await,
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
    pub async fn changes(&self, ask: &ChangesAsk) -> Result<SourcePage> {
        match self {
            Peer::Local(peer) => Box::pin(peer.changes(ask)).await,
            Peer::Remote(peer) => Box::pin(peer.changes(ask)).await,
        }
    }

    /// What it lacks of these documents.
    pub async fn revs_diff(&self, asked: &[ChangedDoc]) -> Result<BTreeMap<String, Lack>> {
        match self {
            Peer::Local(peer) => peer.revs_diff(asked).await,
            Peer::Remote(peer) => peer.revs_diff(asked).await,
        }
    }

    /// Revisions with their histories, of at most `limit_bytes` together.
    ///
    /// # Errors
    /// [`TooLarge`](super::ReplicateError::TooLarge) where there are more bytes.
    pub async fn fetch(&self, wants: &[Want], limit_bytes: usize) -> Result<Fetched> {
        match self {
            Peer::Local(peer) => peer.fetch(wants, limit_bytes).await,
            Peer::Remote(peer) => peer.fetch(wants, limit_bytes).await,
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
    pub async fn write_with(&self, doc: &Doc, sent: &[Sent], source: &Source) -> Result<Option<Refusal>> {
        match self {
            Peer::Local(peer) => peer.write_with(doc, sent, source).await,
            Peer::Remote(peer) => peer.write_with(doc, sent, source).await,
        }
    }

    /// The attachments of a revision that it has; none where it is gone.
    pub async fn held(&self, id: &str, rev: &str) -> Result<Vec<Sent>> {
        match self {
            Peer::Local(peer) => peer.held(id, rev).await,
            Peer::Remote(peer) => peer.held(id, rev).await,
        }
    }

    /// Whether it knows attachments by their bytes, as far as is known: otherwise by the generation that brought them.
    pub fn knows_bytes(&self) -> bool {
        match self {
            Peer::Local(_) => true,
            Peer::Remote(peer) => peer.knows_bytes(),
        }
    }

    /// It does not.
    pub fn knows_no_bytes(&self) {
        if let Peer::Remote(peer) = self {
            peer.knows_no_bytes();
        }
    }

    /// A local document, with `_rev`.
    pub async fn local_get(&self, id: &str) -> Result<Option<Object>> {
        match self {
            Peer::Local(peer) => Box::pin(peer.local_get(id)).await,
            Peer::Remote(peer) => Box::pin(peer.local_get(id)).await,
        }
    }

    /// Writes a local document over the revision `rev`; answers its new one.
    pub async fn local_put(&self, id: &str, rev: Option<&str>, body: &Object) -> Result<String> {
        match self {
            Peer::Local(peer) => Box::pin(peer.local_put(id, rev, body)).await,
            Peer::Remote(peer) => Box::pin(peer.local_put(id, rev, body)).await,
        }
    }

    /// Sees that all it acknowledged is on its disk.
    pub async fn ensure_full_commit(&self) -> Result<()> {
        match self {
            Peer::Local(_) => Ok(()),
            Peer::Remote(peer) => Box::pin(peer.ensure_full_commit()).await,
        }
    }

    /// The body of a document, if it is there.
    pub async fn document(&self, id: &str) -> Result<Option<Object>> {
        match self {
            Peer::Local(peer) => Box::pin(peer.document(id)).await,
            Peer::Remote(peer) => Box::pin(peer.document(id)).await,
        }
    }
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
        let known = |revs: &[&str]| {
            let revs: Vec<String> = revs.iter().map(|r| (*r).to_owned()).collect();
            doc.known_ancestor(&revs).map(|(generation, rev)| (generation, rev.to_owned()))
        };
        assert_eq!(known(&["1-a", "2-b"]), Some((2, "2-b".to_owned())));
        assert_eq!(known(&["2-other", "9-z", "junk"]), None);
    }

    #[test]
    fn newer_attachments_are_sent() {
        let doc = doc(ATTACHED);
        assert_eq!(Sent::of(&doc, 0).len(), 2);
        let sent = Sent::of(&doc, 2);
        assert_eq!((sent[0].name.as_str(), sent[0].length, sent[0].gzip), ("new", 4, true));
        let body = doc.with_following(&sent).unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(r#""length":5,"stub":true"#) && text.contains(r#""encoded_length":4,"follows":true"#));
    }
}
