//! `GET /{db}/{docid}?open_revs=..`: several revisions, as a JSON list or as `multipart/mixed`.

use std::sync::Arc;

use super::read::boundary;
use super::read_options::{OpenRevs, ReadOptions};
use super::shown::{Data, Piece, Shown, write_pieces};
use crate::coordinator::{Database, Fetched, ReadOperations, Want};
use crate::document::id::DocId;
use crate::document::json::write_string;
use crate::document::render::StoredRevision;
use crate::document::revision::Revision;
use crate::http::handle::accept::admits;
use crate::http::{ChunkSink, Context, Problem, Reply, Request, Result};

/// What stands before a part that tells what is not there.
pub const ERROR_HEAD: &[u8] = b"\r\nContent-Type: application/json; error=\"true\"\r\n\r\n";

/// Revisions found, and those that are not there.
struct Answers {
    db: Arc<Database>,
    id: DocId,
    options: ReadOptions,
    fetched: Option<Fetched>,
    found: Vec<(Revision, Option<StoredRevision>)>,
}

/// Answers `open_revs`: `multipart/mixed` wherever `Accept` permits it.
///
/// # Errors
/// 404 for all leaves of an unknown document.
pub async fn get(
    ctx: &Context,
    request: &Request,
    db: Arc<Database>,
    id: DocId,
    options: &ReadOptions,
    open_revs: &OpenRevs,
) -> Result<Reply> {
    let want = match open_revs {
        OpenRevs::All => Want::Leaves,
        OpenRevs::These(revs) => Want::Revisions { revs: revs.clone(), latest: options.latest },
    };
    // A local document has no tree of revisions in which one could be looked up.
    let mut fetched = if id.is_local() { None } else { db.documents().fetch_from(&id, want, options.r).await? };
    let mut found = match (&mut fetched, open_revs) {
        (Some(fetched), _) => std::mem::take(&mut fetched.found),
        (None, OpenRevs::All) => return Err(Problem::missing()),
        (None, OpenRevs::These(revs)) => revs.iter().map(|rev| (rev.clone(), None)).collect(),
    };
    // CouchDB's order: what there is, then what is missing, each by revision, however it was asked for.
    found.sort_by(|(a, has_a), (b, has_b)| (has_a.is_none(), a).cmp(&(has_b.is_none(), b)));
    // One that is named twice is told once.
    if !options.latest {
        found.dedup_by(|(a, _), (b, _)| a == b);
    }
    let answers = Answers { db, id, options: options.clone(), fetched, found };
    if !admits(request.header("accept"), "multipart/mixed") {
        return Ok(Reply::generate(move |mut sink| async move { answers.json(&mut sink).await }));
    }
    let (outer, inner) = (boundary(ctx), boundary(ctx));
    let content_type = format!("multipart/mixed; boundary=\"{outer}\"");
    let reply = Reply::generate(move |mut sink| async move { answers.multipart(&outer, &inner, &mut sink).await });
    Ok(reply.header(http::header::CONTENT_TYPE, &content_type))
}

impl Answers {
    fn shown<'a>(&'a self, fetched: &'a Fetched, stored: &'a StoredRevision, data: Data) -> Shown<'a> {
        Shown { id: &self.id, fetched, stored, options: &self.options, data, meta: false }
    }

    /// Bytes of memory that the revisions take.
    fn weight(&self) -> usize {
        self.found.iter().filter_map(|(_, stored)| stored.as_ref()).map(|stored| stored.body.len()).sum()
    }

    async fn json(&self, sink: &mut ChunkSink) -> Result<()> {
        sink.page(self.weight());
        sink.write(b"[").await?;
        for (at, (rev, stored)) in self.found.iter().enumerate() {
            if at > 0 {
                sink.write(b",").await?;
            }
            match (&self.fetched, stored) {
                (Some(fetched), Some(stored)) => {
                    let data = Data::wanted(&self.options, fetched, stored, false);
                    let text = self.shown(fetched, stored, data).json();
                    sink.write(b"{\"ok\":").await?;
                    write_pieces(&self.db, &self.id, text.pieces, sink).await?;
                    sink.write(b"}").await?;
                }
                _ => sink.write(&missing(rev)).await?,
            }
        }
        sink.write(b"]\n").await?;
        sink.flush().await
    }

    async fn multipart(&self, outer: &str, inner: &str, sink: &mut ChunkSink) -> Result<()> {
        sink.page(self.weight());
        sink.write(format!("--{outer}").as_bytes()).await?;
        for (rev, stored) in &self.found {
            match (&self.fetched, stored) {
                (Some(fetched), Some(stored)) => {
                    let data = match &self.options.atts_since {
                        None => Data::All,
                        Some(_) => Data::wanted(&self.options, fetched, stored, false),
                    };
                    let pieces = part(&self.shown(fetched, stored, data), inner);
                    write_pieces(&self.db, &self.id, pieces, sink).await?;
                }
                _ => {
                    sink.write(ERROR_HEAD).await?;
                    sink.write(&missing(rev)).await?;
                }
            }
            sink.write(format!("\r\n--{outer}").as_bytes()).await?;
        }
        sink.write(b"--").await?;
        sink.flush().await
    }
}

/// A revision as a part of a multipart body, from its headers on: JSON, or a nested `multipart/related` when
/// attachments come with their bytes.
pub fn part(shown: &Shown<'_>, boundary: &str) -> Vec<Piece> {
    if !shown.data.any(shown.stored) {
        let head = b"\r\nContent-Type: application/json\r\n\r\n".to_vec();
        return vec![Piece::Text(head), shown.stubs()];
    }
    let head = format!("\r\nContent-Type: multipart/related; boundary=\"{boundary}\"\r\n\r\n");
    let mut out = vec![Piece::Text(head.into_bytes())];
    out.extend(shown.multipart(boundary).pieces);
    out
}

fn missing(rev: &Revision) -> Vec<u8> {
    let mut out = b"{\"missing\":".to_vec();
    write_string(&rev.to_string(), &mut out);
    out.push(b'}');
    out
}
