//! Stored revisions as answers: JSON with attachments as stubs or data, and the pieces of multipart bodies.
//!
//! What is shown beside the body is gathered here, `document::render` prints it. Attachment bytes are never held whole
//! for multipart answers: they are pieces that [`Pieces`] reads while the client takes them.

use std::ops::Range;
use std::sync::Arc;

use crate::coordinator::read::{conflicts, known_generation, revs_info};
use crate::coordinator::{AttachmentReader, Database, Fetched, RowDoc};
use crate::document::id::DocId;
use crate::document::render::{AttContent, AttView, Attachment, Encoding, RenderOptions, StoredRevision, render};
use crate::http::handle::read_options::ReadOptions;
use crate::http::{ChunkSink, Result};

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
    /// The database.
    pub db: &'a Arc<Database>,
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

/// A revision as JSON text.
pub struct Text {
    /// The document.
    pub json: Vec<u8>,
    /// Whether it holds what changes without the revision: such an answer has no ETag (DESIGN section 1).
    pub has_meta: bool,
}

impl Shown<'_> {
    /// The document as JSON, attachments as stubs or with base64 data.
    ///
    /// # Errors
    /// When an attachment cannot be read.
    pub async fn json(&self) -> Result<Text> {
        let contents = contents(self.db, self.id, self.stored, self.data).await?;
        Ok(self.text(&contents, self.options.att_encoding_info))
    }

    /// The document as the first part of a multipart body, followed by the bytes of its attachments.
    pub fn multipart(&self, boundary: &str) -> (Text, Vec<Piece>) {
        let content = |a: &Attachment| if self.data.covers(a) { AttContent::Follows } else { AttContent::Stub };
        let contents: Vec<_> = self.stored.attachments.iter().map(content).collect();
        let text = self.text(&contents, true);
        let mut head = format!("--{boundary}\r\nContent-Type: application/json\r\n\r\n").into_bytes();
        head.extend_from_slice(&text.json);
        let mut pieces = vec![Piece::Text(head)];
        for attachment in self.stored.attachments.iter().filter(|a| self.data.covers(a)) {
            pieces.push(Piece::Text(part_head(boundary, attachment).into_bytes()));
            pieces.push(Piece::Stored(attachment.clone(), None));
        }
        pieces.push(Piece::Text(format!("\r\n--{boundary}--").into_bytes()));
        (text, pieces)
    }

    fn text(&self, contents: &[AttContent], att_encoding_info: bool) -> Text {
        let (fetched, rev, options) = (self.fetched, &self.stored.rev, self.options);
        let path = if options.revs { fetched.tree.path_to(rev) } else { None };
        let infos = if self.meta && options.revs_info { Some(revs_info(fetched, rev)) } else { None };
        let (mut live, mut deleted) = (Vec::new(), Vec::new());
        if self.meta && (options.conflicts || options.deleted_conflicts) {
            (live, deleted) = conflicts(fetched, rev);
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
            attachments: AttView::Each(contents),
            att_encoding_info,
        };
        Text { json: render(self.id.as_str(), self.stored, &rendered), has_meta }
    }
}

/// The document that goes with a row of a list or feed.
///
/// # Errors
/// When an attachment cannot be read.
pub async fn row_doc(db: &Arc<Database>, doc: &RowDoc, data: Data, att_encoding_info: bool) -> Result<Vec<u8>> {
    let contents = contents(db, &doc.id, &doc.stored, data).await?;
    let options = RenderOptions {
        conflicts: &doc.conflicts,
        attachments: AttView::Each(&contents),
        att_encoding_info,
        ..RenderOptions::default()
    };
    Ok(render(doc.id.as_str(), &doc.stored, &options))
}

async fn contents(db: &Arc<Database>, id: &DocId, stored: &StoredRevision, data: Data) -> Result<Vec<AttContent>> {
    let mut out = Vec::with_capacity(stored.attachments.len());
    for attachment in &stored.attachments {
        out.push(if data.covers(attachment) {
            AttContent::Inline(db.attachment_bytes(id, attachment, true).await?.into())
        } else {
            AttContent::Stub
        });
    }
    Ok(out)
}

/// Boundary and headers before the bytes of an attachment in a `multipart/related` body (SPEC 'Documents' rule 3).
fn part_head(boundary: &str, attachment: &Attachment) -> String {
    let encoding = match attachment.encoding {
        Encoding::Gzip => "Content-Encoding: gzip\r\n",
        Encoding::Identity => "",
    };
    format!(
        "\r\n--{boundary}\r\nContent-Disposition: attachment; filename=\"{}\"\r\nContent-Type: {}\r\n\
         Content-Length: {}\r\n{encoding}\r\n",
        attachment.name.replace('"', "%22"),
        attachment.content_type,
        attachment.stored_length,
    )
}

/// A piece of a streamed body.
#[derive(Debug)]
pub enum Piece {
    /// Bytes that are here.
    Text(Vec<u8>),
    /// The stored bytes of an attachment, or a range of them.
    Stored(Attachment, Option<Range<u64>>),
}

impl Piece {
    fn length(&self) -> u64 {
        match self {
            Piece::Text(text) => text.len() as u64,
            Piece::Stored(_, Some(range)) => range.end - range.start,
            Piece::Stored(attachment, None) => attachment.stored_length,
        }
    }
}

/// Bytes in all pieces.
pub fn length(pieces: &[Piece]) -> u64 {
    pieces.iter().map(Piece::length).sum()
}

/// Writes pieces of document `id` at the pace of the client.
///
/// # Errors
/// When an attachment cannot be read or the client is gone.
pub async fn write_pieces(db: &Database, id: &DocId, pieces: Vec<Piece>, sink: &mut ChunkSink) -> Result<()> {
    for piece in pieces {
        match piece {
            Piece::Text(text) => sink.write(&text).await?,
            Piece::Stored(attachment, range) => {
                let mut reader: AttachmentReader = db.read_attachment(id, &attachment, range).await?;
                while let Some(chunk) = reader.next().await? {
                    sink.send(chunk).await?;
                }
            }
        }
    }
    Ok(())
}
