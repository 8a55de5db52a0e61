//! Stored revisions as answers: JSON with attachments as stubs or data, and the pieces of multipart bodies.
//!
//! This module gathers what is shown beside the body, `document::render` prints it. Attachment bytes are never held
//! whole for multipart answers: they are pieces that [`Pieces`] reads while the client takes them.

use std::ops::Range;
use std::sync::Arc;

use crate::coordinator::read::documents::{known_generation, revs_info};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::read_options::ReadOptions;
use crate::coordinator::{AttachmentReader, Database, Fetched, ReadOperations, RowDoc};
use crate::document::id::DocId;
use crate::document::render::{
    AttContent, AttView, Attachment, DATA_GAP, Encoding, RenderOptions, StoredRevision, render, render_around,
};
use crate::http::{ChunkSink, Result};
use crate::limits;

/// Which attachments come with their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// None: all are stubs.
    None,
    /// Those whose `revpos` is above this generation.
    NewerThan(u64),
    /// All.
    All,
}

impl Data {
    /// What `attachments` and `atts_since` ask for. A reader who knows no ancestor gets everything, unless
    /// `empty_is_none`, as in `_bulk_get`, says that an empty list asks for nothing.
    pub fn wanted(options: &ReadOptions, fetched: &Fetched, shown: &StoredRevision, empty_is_none: bool) -> Data {
        match &options.atts_since {
            None if options.attachments => Data::All,
            None => Data::None,
            Some(since) if since.is_empty() && empty_is_none => Data::None,
            Some(since) => match known_generation(fetched, &shown.rev, since) {
                0 => Data::All,
                generation => Data::NewerThan(generation),
            },
        }
    }

    fn covers(self, attachment: &Attachment) -> bool {
        match self {
            Data::None => false,
            Data::NewerThan(generation) => attachment.revpos > generation,
            Data::All => true,
        }
    }

    /// Whether any attachment of `stored` comes with its bytes.
    pub fn any(self, stored: &StoredRevision) -> bool {
        stored.attachments.iter().any(|attachment| self.covers(attachment))
    }
}

/// A document's revision with all that an answer may say about it.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// The document's id.
    pub id: &'a DocId,
    /// Its tree.
    pub fetched: &'a Fetched,
    /// The revision.
    pub stored: &'a StoredRevision,
    /// What is asked.
    pub options: &'a ReadOptions,
    /// Which attachments come with their bytes.
    pub data: Data,
    /// Whether `_conflicts`, `_revs_info` and the like are shown: only where no revision was named.
    pub meta: bool,
}

/// A revision as it is sent.
pub struct Text {
    /// The document, and what goes with it.
    pub pieces: Vec<Piece>,
    /// Whether it holds what changes without the revision: such an answer has no ETag (`docs/compatibility.md`).
    pub has_meta: bool,
}

impl Shown<'_> {
    /// The document as JSON, attachments as stubs or with base64 data.
    pub fn json(&self) -> Text {
        let (id, stored) = (self.id.as_str(), self.stored);
        let covered = covered(stored, self.data);
        let (pieces, has_meta) = self.rendered(AttContent::Gap, self.options.att_encoding_info, |options| {
            if stored.body.len() < limits::ANSWER_SHARED_FROM {
                return fill(render(id, stored, options), covered);
            }
            let (head, body, tail) = render_around(id, stored, options);
            [Piece::Text(head), Piece::Here(body)].into_iter().chain(fill(tail, covered)).collect()
        });
        Text { pieces, has_meta }
    }

    /// The document alone as it stands in a multipart body: no attachment comes with its bytes.
    pub fn stubs(&self) -> Piece {
        Piece::Text(self.text(AttContent::Stub, true).0)
    }

    /// The document as the first part of a multipart body, followed by the bytes of its attachments.
    pub fn multipart(&self, boundary: &str) -> Text {
        let (json, has_meta) = self.text(AttContent::Follows, true);
        let mut head = format!("--{boundary}\r\nContent-Type: application/json\r\n\r\n").into_bytes();
        head.extend(json);
        let mut pieces = vec![Piece::Text(head)];
        for attachment in covered(self.stored, self.data) {
            pieces.push(Piece::Text(part_head(boundary, attachment).into_bytes()));
            pieces.push(Piece::Stored(attachment.clone(), None));
        }
        pieces.push(Piece::Text(format!("\r\n--{boundary}--").into_bytes()));
        Text { pieces, has_meta }
    }

    fn text(&self, with_data: AttContent, att_encoding_info: bool) -> (Vec<u8>, bool) {
        self.rendered(with_data, att_encoding_info, |options| render(self.id.as_str(), self.stored, options))
    }

    /// What `render` makes of the document, and whether that shows what changes without the revision.
    fn rendered<T>(
        &self,
        with_data: AttContent,
        att_encoding_info: bool,
        render: impl FnOnce(&RenderOptions<'_>) -> T,
    ) -> (T, bool) {
        let contents = contents(self.stored, self.data, with_data);
        let (fetched, rev, options) = (self.fetched, &self.stored.rev, self.options);
        let mut path = if options.revs { fetched.tree.path_to(rev) } else { None };
        if let (Some(path), Some(max)) = (&mut path, options.revs_max) {
            path.ids.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        }
        let infos = if self.meta && options.revs_info { Some(revs_info(fetched, rev)) } else { None };
        let (mut live, mut deleted) = (Vec::new(), Vec::new());
        if self.meta && (options.conflicts || options.deleted_conflicts) {
            (live, deleted) = fetched.conflicts(rev);
            if !options.conflicts {
                live.clear();
            }
            if !options.deleted_conflicts {
                deleted.clear();
            }
        }
        let local_seq = (self.meta && options.local_seq).then_some(fetched.local_seq);
        let has_meta = infos.is_some() || local_seq.is_some() || !live.is_empty() || !deleted.is_empty();
        let rendered = RenderOptions {
            revisions: path.as_ref(),
            revs_info: infos.as_deref(),
            conflicts: &live,
            deleted_conflicts: &deleted,
            local_seq,
            attachments: AttView::Each(&contents),
            att_encoding_info,
        };
        (render(&rendered), has_meta)
    }
}

/// The document that goes with a row of a list or feed.
pub fn row_doc(doc: &RowDoc, data: Data, att_encoding_info: bool) -> Vec<Piece> {
    let contents = contents(&doc.stored, data, AttContent::Gap);
    let options = RenderOptions {
        conflicts: &doc.conflicts,
        attachments: AttView::Each(&contents),
        att_encoding_info,
        ..RenderOptions::default()
    };
    fill(render(doc.id.as_str(), &doc.stored, &options), covered(&doc.stored, data))
}

fn contents(stored: &StoredRevision, data: Data, with_data: AttContent) -> Vec<AttContent> {
    let content = |a: &Attachment| if data.covers(a) { with_data.clone() } else { AttContent::Stub };
    stored.attachments.iter().map(content).collect()
}

/// The attachments that come with their bytes, in order.
fn covered(stored: &StoredRevision, data: Data) -> impl Iterator<Item = &Attachment> {
    stored.attachments.iter().filter(move |attachment| data.covers(attachment))
}

/// Cuts JSON text at its gaps and puts the attachments between, in order.
fn fill<'a>(json: Vec<u8>, attachments: impl Iterator<Item = &'a Attachment>) -> Vec<Piece> {
    let (mut attachments, mut pieces) = (attachments.peekable(), Vec::new());
    if attachments.peek().is_none() {
        return vec![Piece::Text(json)];
    }
    for text in json.split(|byte| *byte == DATA_GAP) {
        if !pieces.is_empty() {
            // Invariant: `render` makes one gap for each attachment that is covered.
            pieces.push(Piece::Base64(attachments.next().expect("an attachment for each gap").clone()));
        }
        pieces.push(Piece::Text(text.to_vec()));
    }
    pieces
}

/// A text of a document's as a header can hold it: on one line.
pub fn in_header(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// Boundary and headers before the bytes of an attachment in a `multipart/related` body (CouchDB documentation,
/// 'Documents').
fn part_head(boundary: &str, attachment: &Attachment) -> String {
    let encoding = match attachment.encoding {
        Encoding::Gzip => "Content-Encoding: gzip\r\n",
        Encoding::Identity => "",
    };
    format!(
        "\r\n--{boundary}\r\nContent-Disposition: attachment; filename=\"{}\"\r\nContent-Type: {}\r\n\
         Content-Length: {}\r\n{encoding}\r\n",
        in_header(&attachment.name).replace('"', "%22"),
        in_header(&attachment.content_type),
        attachment.stored_length,
    )
}

/// A piece of a streamed body.
#[derive(Debug)]
pub enum Piece {
    /// Bytes that are here.
    Text(Vec<u8>),
    /// Many bytes that are here, and are sent from there.
    Here(Bytes),
    /// The stored bytes of an attachment, or a range of them.
    Stored(Attachment, Option<Range<u64>>),
    /// The plain bytes of an attachment in base64.
    Base64(Attachment),
}

impl Piece {
    /// Bytes of memory that it takes.
    pub fn held(&self) -> usize {
        match self {
            Piece::Text(text) => text.len(),
            Piece::Here(text) => text.len(),
            Piece::Stored(..) | Piece::Base64(_) => 0,
        }
    }

    /// Bytes in it; `None` where that depends on what is unzipped.
    fn length(&self) -> Option<u64> {
        match self {
            Piece::Text(text) => Some(text.len() as u64),
            Piece::Here(text) => Some(text.len() as u64),
            Piece::Stored(_, Some(range)) => Some(range.end - range.start),
            Piece::Stored(attachment, None) => Some(attachment.stored_length),
            Piece::Base64(_) => None,
        }
    }
}

/// Bytes in all pieces, where that is known beforehand.
pub fn length(pieces: &[Piece]) -> Option<u64> {
    pieces.iter().map(Piece::length).sum()
}

/// Writes pieces of document `id` at the pace of the client.
///
/// # Errors
/// When an attachment cannot be read or the client is gone.
pub async fn write_pieces(db: &Arc<Database>, id: &DocId, pieces: Vec<Piece>, sink: &mut ChunkSink) -> Result<()> {
    for piece in pieces {
        match piece {
            Piece::Text(text) => sink.write(&text).await?,
            // In parts: it is counted with the page until it is written, and again what waits for the client.
            Piece::Here(mut text) => {
                while !text.is_empty() {
                    sink.send(text.split_to(text.len().min(limits::HTTP_CHUNK_BYTES))).await?;
                }
            }
            Piece::Stored(attachment, range) => {
                let mut reader: AttachmentReader = db.documents().read_attachment(id, &attachment, range).await?;
                while let Some(chunk) = reader.next().await? {
                    sink.send(chunk).await?;
                }
            }
            Piece::Base64(attachment) => write_base64(db, id, &attachment, sink).await?,
        }
    }
    Ok(())
}

async fn write_base64(db: &Arc<Database>, id: &DocId, attachment: &Attachment, sink: &mut ChunkSink) -> Result<()> {
    let mut reader = db.documents().read_attachment_plain(id, attachment).await?;
    // Bytes that make no whole group of three wait for the next chunk.
    let mut rest: Vec<u8> = Vec::new();
    while let Some(chunk) = reader.next().await? {
        rest.extend_from_slice(&chunk);
        let whole = rest.len() - rest.len() % 3;
        sink.write(STANDARD.encode(&rest[..whole]).as_bytes()).await?;
        rest.drain(..whole);
    }
    sink.write(STANDARD.encode(&rest).as_bytes()).await
}
