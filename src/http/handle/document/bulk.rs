//! `_bulk_docs`: many documents in one request (CouchDB documentation, 'Built-in views and bulk operations', bulk
//! rules).
//!
//! An item that is no document, or no valid one for a database with rules of its own, makes the server refuse the whole
//! request before anything is written; conflicts are answered per item. A long request is parsed and written in pieces,
//! so that memory beside the text is held for some documents only.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::write::options;
use super::{checked_id, id_length_max, may_write_by, open};
use crate::coordinator::{Database, WriteDone, WriteError, WriteOperations, WriteOptions, WriteRequest, Written};
use crate::document::draft::{self, Draft};
use crate::document::id::DocId;
use crate::document::json::pieces::{self, Piece, PieceSize, Scanned};
use crate::document::json::{Object, Value, write_string};
use crate::document::revision::Revision;
use crate::http::handle::rules::Rules;
use crate::http::json_meter::JsonMeter;
use crate::http::request::not_an_object;
use crate::http::{Context, Problem, Reply, Request, Result, request_log};
use crate::limits;
use crate::observe::metrics::{Counter, Histogram};

pub use super::bulk_get::bulk_get;

/// `POST /{db}/_bulk_docs`
///
/// # Errors
/// As a single write, for the first bad document.
pub async fn bulk_docs(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    request.require_json()?;
    let text = request.json_bytes_as(JsonMeter::in_pieces()).await?;
    let asked = read(ctx, &request, &text).await?;
    let Asked { members: body, mut first, pieces } = asked;
    let documents: usize = pieces.iter().map(|piece| piece.count).sum();
    let rules = Rules::of(ctx, &db.name);
    reserve(&mut request, text.len(), documents, rules != Rules::None).await?;
    ctx.env.metrics().count(Counter::BulkRequests);
    ctx.env.metrics().record(Histogram::BulkDocs, documents as f64);
    let new_edits = body.get("new_edits").and_then(Value::as_bool).unwrap_or(true);
    let is_atomic = body.get("all_or_nothing").and_then(Value::as_bool) == Some(true);
    let options = with_w(WriteOptions { new_edits, ..options(&request)? }, &body);
    let mut bulk = Bulk { ctx, request: &request, db: &db, rules, options, out: Answer::default() };
    if rules != Rules::None && first.is_none() && !is_atomic {
        // What such a database refuses refuses all: nothing may be written before all is looked at.
        let mut all = Vec::with_capacity(documents);
        for piece in &pieces {
            all.extend(drafts(&request, &text, *piece).await?);
        }
        first = Some(all);
    }
    match first {
        Some(first) => bulk.work(first, is_atomic).await?,
        None => {
            for piece in &pieces {
                bulk.work(drafts(&request, &text, *piece).await?, is_atomic).await?;
            }
        }
    }
    Ok(bulk.out.reply(is_atomic, &db))
}

/// A request that was read: the members beside `docs`, and the documents where they fit one piece.
struct Asked {
    members: Object,
    first: Option<Vec<Draft>>,
    pieces: Vec<Piece>,
}

/// Reads a request and looks at all documents, of which only those of the first piece are kept.
async fn read(ctx: &Context, request: &Request, text: &Bytes) -> Result<Asked> {
    let size = PieceSize { elements: limits::BULK_PIECE_DOCS, bytes: limits::BULK_PIECE_BYTES };
    let (shared, id_max) = (text.clone(), id_length_max(ctx));
    let scan = move || {
        let (mut first, mut wrong) = (Vec::new(), None);
        let scanned = pieces::scan(&shared, "docs", size, |piece, doc| match draft_of(doc, id_max) {
            Ok(draft) if piece == 0 => first.push(draft),
            // The first fault is told.
            Err(problem) if wrong.is_none() => wrong = Some(problem),
            _ => {}
        });
        (scanned.map_err(|_| Problem::unread_json(&shared)), first, wrong)
    };
    let (scanned, first, wrong) = request.body.lasting(text.len(), scan).await;
    let Some(Scanned { mut members, pieces }) = scanned? else { return Err(not_an_object()) };
    match members.remove("docs") {
        None => return Err(Problem::bad_request("POST body must include `docs` parameter.")),
        Some(Value::Array(_)) => {}
        Some(_) => return Err(Problem::bad_request("`docs` parameter must be an array.")),
    }
    if !matches!(members.get("new_edits"), None | Some(Value::Bool(_))) {
        return Err(Problem::bad_request("`new_edits` parameter must be a boolean."));
    }
    match wrong {
        Some(problem) => Err(problem),
        None => Ok(Asked { members, first: (pieces.len() <= 1).then_some(first), pieces }),
    }
}

/// Takes the memory for the answer's rows, or for all documents where they are held `whole`.
async fn reserve(request: &mut Request, text: usize, documents: usize, whole: bool) -> Result<()> {
    let each = if whole { limits::BULK_WHOLE_DOC_BYTES } else { limits::BULK_ROW_BYTES };
    let taken = limits::BULK_PIECE_MEMORY.min(text as u64 * 8) + documents as u64 * each;
    if taken > limits::JSON_VALUES_BYTES_MAX {
        return Err(Problem::body_too_large());
    }
    request.body.reserve(text as u64 + taken).await
}

async fn drafts(request: &Request, text: &Bytes, piece: Piece) -> Result<Vec<Draft>> {
    let text = text.clone();
    let parse = move || {
        let values = pieces::elements(&text, piece).map_err(|_| Problem::invalid_json())?;
        values.into_iter().map(|value| draft::parse(value).map_err(Problem::from)).collect()
    };
    request.body.lasting(limits::BULK_PIECE_BYTES, parse).await
}

fn draft_of(doc: Value, id_max: Option<usize>) -> Result<Draft> {
    let draft = draft::parse(doc)?;
    if let Some(id) = &draft.id {
        DocId::check(id, id_max)?;
    }
    Ok(draft)
}

/// A request under way.
struct Bulk<'a> {
    ctx: &'a Context,
    request: &'a Request,
    db: &'a Arc<Database>,
    rules: Rules,
    options: WriteOptions,
    out: Answer,
}

impl Bulk<'_> {
    /// Writes documents and adds their rows to the answer.
    async fn work(&mut self, drafts: Vec<Draft>, is_atomic: bool) -> Result<()> {
        let write_request = |draft| write_request(self.ctx, draft);
        let mut requests: Vec<WriteRequest> = drafts.into_iter().map(write_request).collect::<Result<_>>()?;
        let names: Vec<_> = requests.iter().map(|r| (r.id.clone(), r.draft.rev.clone())).collect();
        if is_atomic {
            self.out.not_atomic(&names);
            return Ok(());
        }
        let (ctx, db, rules, new_edits) = (self.ctx, self.db, self.rules, self.options.new_edits);
        let mut refused: Vec<Option<Problem>> = Vec::with_capacity(requests.len());
        for write in &mut requests {
            let checked = match may_write_by(rules, ctx, self.request, db, &write.id) {
                Ok(()) => rules.prepare(ctx, &self.request.user, db, write, new_edits).await,
                refused => refused,
            };
            match checked {
                Err(problem) if rules.ends_request(&problem) => return Err(problem),
                checked => refused.push(checked.err()),
            }
        }
        let mut at = refused.iter();
        requests.retain(|_| at.next().is_some_and(Option::is_none));
        // Of what was written before, an answer that tells of failure alone would say nothing, or that nothing was.
        let goes_on = self.out.rows > 0;
        let fault = |fault: Problem| if goes_on { WriteError::Unknown.into() } else { fault };
        let written = match requests.is_empty() {
            true => Vec::new(),
            false => db.writer().write(requests, self.options.clone()).await.map_err(|error| fault(error.into()))?,
        };
        let nothing_refused = refused.iter().all(Option::is_none) && !goes_on;
        let mut written = told_by_item(written, nothing_refused, new_edits).map_err(fault)?.into_iter();
        let result = |refused: Option<Problem>| match refused {
            Some(problem) => Some(Err(problem)),
            None => written.next().map(|result| result.map_err(Problem::from)),
        };
        let results: Vec<Result<WriteDone>> = refused.into_iter().filter_map(result).collect();
        for ((id, _), _) in names.iter().zip(&results).filter(|((id, _), result)| id.is_design() && result.is_ok()) {
            request_log::audit_design(ctx, self.request, id);
        }
        self.out.add(&names, results, new_edits);
        Ok(())
    }
}

type Item = std::result::Result<WriteDone, WriteError>;

/// The results, where each is to be told by its item. A replicator takes what is told so for refused and passes over
/// it: of what it writes, which can be written again, none may be lost. Other requests fail where all are lost.
fn told_by_item(mut written: Vec<Item>, complete: bool, new_edits: bool) -> Result<Vec<Item>> {
    let is_lost = |result: &Item| result.as_ref().is_err_and(WriteError::is_lost);
    let fails = if new_edits { complete && written.iter().all(is_lost) } else { written.iter().any(is_lost) };
    let Some(at) = written.iter().position(is_lost).filter(|_| fails) else { return Ok(written) };
    let is_there = written.iter().any(|result| matches!(result, Ok(_) | Err(WriteError::Unknown)));
    match written.swap_remove(at) {
        // 404 says that nothing was written.
        Err(WriteError::DatabaseGone) if is_there => Err(WriteError::Unknown.into()),
        lost => Ok(lost.map(|_| written)?),
    }
}

/// `w` may stand in the body, too; what is no number there does not count, as in CouchDB.
fn with_w(options: WriteOptions, body: &Object) -> WriteOptions {
    let given = body.get("w").and_then(|w| w.as_u64().or_else(|| w.as_str()?.parse().ok()));
    WriteOptions { w: given.and_then(|w| u32::try_from(w).ok()).or(options.w), ..options }
}

fn write_request(ctx: &Context, draft: Draft) -> Result<WriteRequest> {
    let id = match &draft.id {
        Some(id) => checked_id(ctx, id)?,
        None => DocId::new(&ctx.uuids.next()),
    };
    Ok(WriteRequest { id, draft, follows: Vec::new() })
}

/// The answer so far: one item per document, in order; with `new_edits=false` the failures alone.
#[derive(Default)]
struct Answer {
    items: Vec<u8>,
    /// Documents that were worked through.
    rows: usize,
    is_accepted: bool,
    done: Vec<WriteDone>,
}

impl Answer {
    fn add(&mut self, names: &[(DocId, Option<Revision>)], results: Vec<Result<WriteDone>>, new_edits: bool) {
        self.rows += names.len();
        for ((id, rev), result) in names.iter().zip(results) {
            match result {
                Ok(done) => {
                    let mut item = super::ok_json(id.as_str(), Some(&done.rev.to_string()));
                    if done.written == Written::Accepted {
                        self.is_accepted = true;
                        item.pop();
                        item.extend_from_slice(b",\"accepted\":true}");
                    }
                    if new_edits {
                        self.item(&item);
                    }
                    if !self.done.last().is_some_and(|last| done.is_held_as(last)) {
                        self.done.push(done);
                    }
                }
                Err(problem) => {
                    let rev = if new_edits { None } else { rev.as_ref().map(ToString::to_string) };
                    self.item(&failed(id, rev.as_deref(), &problem));
                }
            }
        }
    }

    /// 417 for `all_or_nothing`, which no cluster can promise.
    fn not_atomic(&mut self, names: &[(DocId, Option<Revision>)]) {
        let problem = Problem::not_implemented("all_or_nothing is not supported");
        for (id, rev) in names {
            let rev = rev.as_ref().map_or_else(|| "0-".to_owned(), ToString::to_string);
            self.item(&failed(id, Some(&rev), &problem));
        }
    }

    fn item(&mut self, item: &[u8]) {
        self.items.push(if self.items.is_empty() { b'[' } else { b',' });
        self.items.extend_from_slice(item);
    }

    fn reply(mut self, is_atomic: bool, db: &Arc<Database>) -> Reply {
        let is_empty = self.items.is_empty();
        if is_empty {
            self.items.push(b'[');
        }
        self.items.push(b']');
        let status = match (is_atomic && !is_empty, self.is_accepted) {
            (true, _) => StatusCode::EXPECTATION_FAILED,
            (false, true) => StatusCode::ACCEPTED,
            (false, false) => StatusCode::CREATED,
        };
        let reply = Reply::json(status, self.items);
        match db.writer().token(self.done.iter()) {
            Some(token) => reply.header(crate::http::handle::token::HEADER, &token),
            None => reply,
        }
    }
}

fn failed(id: &DocId, rev: Option<&str>, problem: &Problem) -> Vec<u8> {
    let mut out = b"{".to_vec();
    for (name, value) in [("id", Some(id.as_str())), ("rev", rev), ("error", Some(&*problem.error))] {
        let Some(value) = value else { continue };
        if out.len() > 1 {
            out.push(b',');
        }
        write_string(name, &mut out);
        out.push(b':');
        write_string(value, &mut out);
    }
    out.extend_from_slice(b",\"reason\":");
    out.extend_from_slice(problem.reason_text().as_bytes());
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The database went while some of it was written: the answer was 404, which says that nothing was.
    #[test]
    fn a_request_of_which_something_may_be_there_is_not_answered_as_if_nothing_was_written() {
        let done = || Ok(WriteDone::new(Revision::parse("1-a").unwrap(), Written::Quorum, 1));
        let gone = || Err(WriteError::DatabaseGone);
        let told = |written: Vec<Item>, new_edits| match told_by_item(written, true, new_edits) {
            Ok(_) => 201,
            Err(problem) => problem.status.as_u16(),
        };
        assert_eq!(told(vec![gone(), gone()], true), 404);
        assert_eq!(told(vec![gone(), Err(WriteError::Unknown)], true), 503);
        assert_eq!(told(vec![gone(), done()], true), 201);
        assert_eq!(told(vec![gone(), done()], false), 503);
    }
}
