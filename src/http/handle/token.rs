//! Write tokens in requests and answers: a read that carries the token of a write shows at least that write.
//!
//! Answers to writes carry a token in a header. Requests carry it in the same header or in their query (`at_least`),
//! several of them separated by commas; with `[cluster] session_reads` clients with a session cookie have it in a
//! cookie of its own. A write ignores it, because the revision that it names is checked.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{COOKIE, HeaderName, HeaderValue, SET_COOKIE};

use crate::auth::access::Class;
use crate::auth::{Handler, cookie};
use crate::coordinator::{Database, Floor, MalformedToken, WriteDone, WriteOperations, WriteToken};
use crate::http::request::Verb;
use crate::http::route::{Endpoint, InDatabase};
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::limits;

/// The header of answers to writes, and of requests.
pub const HEADER: HeaderName = HeaderName::from_static("x-settee-token");
/// The parameter of requests.
const PARAMETER: &str = "at_least";
/// The cookie of a session's writes.
const COOKIE_NAME: &str = "SetteeReads";

/// What the tokens of a request ask of its reads, once that can be had.
///
/// # Errors
/// 400 for what is no token, and where none is heeded; 503 where nothing so new can be read in time.
pub async fn floor(ctx: &Context, endpoint: &Endpoint, request: &Request) -> Result<Option<Arc<Floor>>> {
    let named = named(request)?;
    let (name, at) = match endpoint {
        Endpoint::In(name, at) => (name, at),
        Endpoint::AllDbs | Endpoint::DbsInfo | Endpoint::DbUpdates if named.is_some() => {
            return Err(Problem::bad_request("What tells of databases takes no token of a write."));
        }
        _ => return Ok(None),
    };
    let is_named = named.is_some();
    let Some(token) = named.or_else(|| of_session(ctx, request)) else { return Ok(None) };
    // Who may not read it waits for nothing.
    let is_refused =
        ctx.coordinator.database(name).is_ok_and(|db| ctx.allow(&db, &request.user, Class::Member).is_err());
    if is_refused || !reads(at, request.verb) {
        return Ok(None);
    }
    let floor = ctx.coordinator.floor(name, &token).await.map_err(Problem::from);
    floor.map_err(|problem| if is_named { problem } else { forgetting(ctx, request, problem) })
}

/// The tokens that a request names itself.
fn named(request: &Request) -> Result<Option<WriteToken>> {
    let malformed = |MalformedToken| Problem::bad_request("Malformed token of a write.");
    let mut all: Option<WriteToken> = None;
    let headers = request.headers.get_all(HEADER).into_iter().map(|value| value.to_str().unwrap_or_default());
    // An empty header asks a page's first write to show its token (`cors`).
    for text in headers.filter(|text| !text.is_empty()).chain(request.query.get(PARAMETER)) {
        let token = WriteToken::parse(text).map_err(malformed)?;
        match &mut all {
            Some(all) => all.add(token),
            None => all = Some(token),
        }
    }
    Ok(all)
}

/// Whether a request reads documents.
fn reads(at: &InDatabase, verb: Verb) -> bool {
    match (at, verb) {
        (InDatabase::DesignFunction(..), _) => true,
        (_, Verb::Put | Verb::Delete | Verb::Copy) => false,
        (
            InDatabase::Database
            | InDatabase::BulkDocs
            | InDatabase::Compact(_)
            | InDatabase::Document(_)
            | InDatabase::EnsureFullCommit
            | InDatabase::Purge
            | InDatabase::Restore
            | InDatabase::Snapshot
            | InDatabase::SyncShards
            | InDatabase::ViewCleanup
            | InDatabase::SearchCleanup
            | InDatabase::NouveauCleanup,
            Verb::Post,
        ) => false,
        _ => true,
    }
}

/// The reply with the token of what was written.
pub fn with_token<'d>(db: &Arc<Database>, reply: Reply, done: impl IntoIterator<Item = &'d WriteDone>) -> Reply {
    match db.writer().token(done) {
        Some(token) => reply.header(HEADER, &token),
        None => reply,
    }
}

fn is_on(ctx: &Context) -> bool {
    ctx.config.bool("cluster", "session_reads", false)
}

/// What the client of a session wrote, as its cookie tells; one that cannot be read tells nothing.
fn of_session(ctx: &Context, request: &Request) -> Option<WriteToken> {
    let is_session = request.user.handler == Some(Handler::Cookie) && is_on(ctx);
    let text = if is_session { cookie_of(&request.headers, COOKIE_NAME)? } else { return None };
    WriteToken::parse(text).ok()
}

fn cookie_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(given, _)| *given == name).map(|(_, value)| value)
}

/// Has the client of a session know what the answer tells that it wrote, with what it knew before. Where that is too
/// much for a cookie it is what was written last.
pub fn keep(ctx: &Context, headers: &HeaderMap, secure: bool, reply: &mut Reply) {
    let Some(new) = reply.headers.get(HEADER).filter(|_| is_on(ctx) && cookie_of(headers, cookie::NAME).is_some())
    else {
        return;
    };
    let Some(value) = new.to_str().ok().and_then(|new| joined(new, cookie_of(headers, COOKIE_NAME))) else { return };
    if let Ok(header) = HeaderValue::from_str(&set_cookie(ctx, &value, secure)) {
        reply.headers.append(SET_COOKIE, header);
    }
}

fn joined(new: &str, before: Option<&str>) -> Option<String> {
    let fits = |text: &String| text.len() <= limits::TOKEN_COOKIE_BYTES;
    let mut all = WriteToken::parse(new).ok()?;
    all.add(before.and_then(|text| WriteToken::parse(text).ok()).unwrap_or_default());
    all.text().filter(fits).or_else(|| Some(new.to_owned()).filter(fits))
}

fn set_cookie(ctx: &Context, value: &str, secure: bool) -> String {
    cookie::set_named(&ctx.config, COOKIE_NAME, value, secure, ctx.env.wall())
}

/// The refusal of a read that cannot be as new as the cookie of its session asks: the next one is not held to it.
fn forgetting(ctx: &Context, request: &Request, problem: Problem) -> Problem {
    let secure = request.base_url().starts_with("https:");
    match HeaderValue::from_str(&set_cookie(ctx, "", secure)) {
        Ok(header) => problem.with_header(SET_COOKIE, header),
        Err(_) => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("AuthSession=abc; SetteeReads=x-y_z; other=1"));
        assert_eq!(cookie_of(&headers, COOKIE_NAME), Some("x-y_z"));
        assert_eq!(cookie_of(&headers, "Reads"), None);
    }

    #[test]
    fn what_writes_needs_no_token() {
        assert!(reads(&InDatabase::Changes, Verb::Post) && reads(&InDatabase::Document("d".to_owned()), Verb::Get));
        assert!(!reads(&InDatabase::BulkDocs, Verb::Post) && !reads(&InDatabase::Document("d".to_owned()), Verb::Put));
    }
}
