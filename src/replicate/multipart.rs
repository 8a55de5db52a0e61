//! A document with its attachments as the body of one request: `multipart/related`, streamed.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use super::error::{ReplicateError, Result};
use super::peer::{AttachmentStream, Doc, Sent, Source};
use crate::wire::client::Body;

/// Where the bytes of a body come from.
pub enum Piece {
    /// They are here.
    Text(Bytes),
    /// They are an attachment of the source.
    Attachment(Sent),
}

/// The pieces of a `multipart/related` body, and how many bytes they are (CouchDB documentation, 'Documents').
pub fn pieces(doc: &Doc, sent: &[Sent], boundary: &str) -> Result<(VecDeque<Piece>, u64)> {
    let mut text = format!("--{boundary}\r\nContent-Type: application/json\r\n\r\n").into_bytes();
    doc.with_following(sent)?.write(&mut text);
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
    Ok((pieces, length))
}

/// Where a body that broke off says why, where that was the source's doing.
pub type Broken = Arc<Mutex<Option<ReplicateError>>>;

/// What a streamed body still has to send.
struct Sending {
    pieces: VecDeque<Piece>,
    open: Option<AttachmentStream>,
    source: Source,
    id: String,
    rev: String,
    broken: Broken,
}

impl Sending {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(bytes) = open.next().await? {
                    return Ok(Some(bytes));
                }
                self.open = None;
            }
            match self.pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Text(text)) => return Ok(Some(text)),
                Some(Piece::Attachment(sent)) => {
                    // Boxed: opening an attachment of a remote source is such a future, too.
                    let open = Box::pin(self.source.attachment(&self.id, &self.rev, &sent));
                    self.open = Some(open.await?);
                }
            }
        }
    }
}

/// The pieces as the body of a request; attachments are opened when their turn comes.
pub fn streamed(pieces: VecDeque<Piece>, source: Source, id: String, rev: String) -> (Body, Broken) {
    let broken = Broken::default();
    let sending = Sending { pieces, open: None, source, id, rev, broken: Arc::clone(&broken) };
    let frames = stream::try_unfold(sending, |mut sending| async move {
        match sending.next().await {
            Ok(Some(bytes)) => Ok(Some((Frame::data(bytes), sending))),
            Ok(None) => Ok(None),
            Err(error) => {
                let failure = io::Error::other(error.text());
                *sending.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Err(failure)
            }
        }
    });
    (StreamBody::new(frames).boxed_unsync(), broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn the_length_is_exact() {
        let text = r#"{"_id":"d","_rev":"1-c","_attachments":{"a\"b":{"content_type":"text/plain","revpos":1,
            "digest":"md5-y","length":9,"encoding":"gzip","encoded_length":4,"stub":true}}}"#;
        let doc = Doc::from_body(json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()).unwrap();
        let (pieces, length) = pieces(&doc, &Sent::of(&doc, 0), "b").unwrap();
        let size = |piece: &Piece| match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::Attachment(sent) => sent.length,
        };
        assert_eq!(pieces.iter().map(size).sum::<u64>(), length);
    }
}
