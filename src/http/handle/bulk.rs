//! `_bulk_docs`: many documents in one request (SPEC 'Built-in views and bulk operations', bulk rules).
//!
//! What is no document, or none for a database with rules of its own, refuses the whole request before anything is
//! written; conflicts are answered per item.

use http::StatusCode;

use super::document::{checked_id, may_write_by, open};
use super::rules::Rules;
use super::write::options;
use crate::coordinator::{WriteDone, WriteError, WriteOptions, WriteRequest, Written};
use crate::document::draft;
use crate::document::id::DocId;
use crate::document::json::{Object, Value, write_string};
use crate::document::revision::Revision;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::observe::metrics::{Counter, Histogram};

pub use super::bulk_get::bulk_get;

/// `POST /{db}/_bulk_docs`
///
/// # Errors
/// As a single write, for the first bad document.
pub async fn bulk_docs(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    request.require_json()?;
    let mut body = request.json_object().await?;
    let docs = match body.remove("docs") {
        None => return Err(Problem::bad_request("POST body must include `docs` parameter.")),
        Some(Value::Array(docs)) => docs,
        Some(_) => return Err(Problem::bad_request("`docs` parameter must be an array.")),
    };
    ctx.env.metrics().count(Counter::BulkRequests);
    ctx.env.metrics().record(Histogram::BulkDocs, docs.len() as f64);
    let new_edits = match body.get("new_edits") {
        None => true,
        Some(Value::Bool(given)) => *given,
        Some(_) => return Err(Problem::bad_request("`new_edits` parameter must be a boolean.")),
    };
    let mut requests: Vec<WriteRequest> = docs.into_iter().map(|doc| write_request(ctx, doc)).collect::<Result<_>>()?;
    let names: Vec<_> = requests.iter().map(|r| (r.id.clone(), r.draft.rev.clone())).collect();
    if body.get("all_or_nothing").and_then(Value::as_bool) == Some(true) {
        return Ok(not_atomic(&names));
    }
    let options = WriteOptions { new_edits, ..options(&request)? };
    let mut refused: Vec<Option<Problem>> = Vec::with_capacity(requests.len());
    let rules = Rules::of(ctx, &db.name);
    for write in &mut requests {
        let checked = match may_write_by(rules, ctx, &request, &db, &write.id) {
            Ok(()) => rules.prepare(ctx, &request.user, &db, write, new_edits).await,
            refused => refused,
        };
        match checked {
            Err(problem) if rules.ends_request(&problem) => return Err(problem),
            checked => refused.push(checked.err()),
        }
    }
    let mut at = refused.iter();
    requests.retain(|_| at.next().is_some_and(Option::is_none));
    let written = if requests.is_empty() { Vec::new() } else { db.write(requests, with_w(options, &body)).await? };
    let nothing_refused = refused.iter().all(Option::is_none);
    let mut written = told_by_item(written, nothing_refused, new_edits)?.into_iter();
    let result = |refused: Option<Problem>| match refused {
        Some(problem) => Some(Err(problem)),
        None => written.next().map(|result| result.map_err(Problem::from)),
    };
    let results: Vec<Result<WriteDone>> = refused.into_iter().filter_map(result).collect();
    let token = db.token(results.iter().filter_map(|result| result.as_ref().ok()));
    let reply = answer(&names, results, new_edits);
    Ok(match token {
        Some(token) => reply.header(super::token::HEADER, &token),
        None => reply,
    })
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

fn write_request(ctx: &Context, doc: Value) -> Result<WriteRequest> {
    let draft = draft::parse(doc)?;
    let id = match &draft.id {
        Some(id) => checked_id(ctx, id)?,
        None => DocId::new(&ctx.uuids.next()),
    };
    Ok(WriteRequest { id, draft, follows: Vec::new() })
}

/// One item per document, in order; with `new_edits=false` the failures alone.
fn answer(names: &[(DocId, Option<Revision>)], results: Vec<Result<WriteDone>>, new_edits: bool) -> Reply {
    let mut items = Vec::new();
    let mut status = StatusCode::CREATED;
    for ((id, rev), result) in names.iter().zip(results) {
        match result {
            Ok(done) => {
                let mut item = super::document::ok_json(id.as_str(), Some(&done.rev.to_string()));
                if done.written == Written::Accepted {
                    status = StatusCode::ACCEPTED;
                    item.pop();
                    item.extend_from_slice(b",\"accepted\":true}");
                }
                if new_edits {
                    items.push(item);
                }
            }
            Err(problem) => {
                let rev = if new_edits { None } else { rev.as_ref().map(ToString::to_string) };
                items.push(failed(id, rev.as_deref(), &problem));
            }
        }
    }
    Reply::json(status, list(&items))
}

/// 417 for `all_or_nothing`, which no cluster can promise.
fn not_atomic(names: &[(DocId, Option<Revision>)]) -> Reply {
    let problem = Problem::not_implemented("all_or_nothing is not supported");
    let item = |(id, rev): &(DocId, Option<Revision>)| {
        let rev = rev.as_ref().map_or_else(|| "0-".to_owned(), ToString::to_string);
        failed(id, Some(&rev), &problem)
    };
    Reply::json(StatusCode::EXPECTATION_FAILED, list(&names.iter().map(item).collect::<Vec<_>>()))
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

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"[".to_vec();
    out.extend_from_slice(&items.join(&b","[..]));
    out.push(b']');
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
