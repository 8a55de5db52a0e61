//! `_bulk_get`: many documents and revisions in one request, as JSON or multipart.
//!
//! Items are read in bounded groups while the answer is sent, so the answer's size costs no memory.

use std::sync::Arc;

use super::open_revs::{ERROR_HEAD, part};
use super::read::boundary;
use super::read_options::{ReadOptions, revision};
use super::shown::{Data, Shown, in_header, write_pieces};
use super::{id_length_max, open};
use crate::coordinator::{Database, Fetched, ReadOperations, Want};
use crate::document::draft::DraftError;
use crate::document::id::DocId;
use crate::document::json::{Object, Value, write_string};
use crate::document::render::StoredRevision;
use crate::document::revision::Revision;
use crate::http::handle::accept::admits;
use crate::http::handle::rules;
use crate::http::{ChunkSink, Context, Problem, Query, Reply, Request, Result};
use crate::limits;

/// Parameters that belong to an item or to a write.
const NOT_ACCEPTABLE: [&str; 5] = ["rev", "open_revs", "atts_since", "w", "new_edits"];

/// One item of the request.
enum Item {
    /// A document, or one revision of it, is to be read.
    Read { id: DocId, rev: Option<Revision>, atts_since: Option<Vec<Revision>> },
    /// It cannot be; the JSON values of `id` and `rev` are echoed.
    Refused { id: Value, rev: Value, error: String, reason: String },
}

/// `POST /{db}/_bulk_get`
///
/// # Errors
/// 400 for a bad request as a whole; bad items are answered per item.
pub async fn bulk_get(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    request.require_json()?;
    let options = ReadOptions { revs_max: Some(db.revs_limit()), ..read_options(&request.query)? };
    let body = request.query_object().await?;
    let Some(Value::Array(docs)) = body.get("docs") else {
        return Err(Problem::bad_request("Missing JSON list of 'docs'."));
    };
    let id_max = id_length_max(ctx);
    let checked = |id: &str| -> std::result::Result<DocId, DraftError> {
        let id = DocId::check(id, id_max)?;
        db.check_place(&id)?;
        Ok(id)
    };
    let items: Vec<Item> = docs.iter().map(|doc| seen(ctx, &request, &db, item(doc, checked))).collect();
    let accept = request.header("accept");
    let kind = match accept {
        _ if admits(accept, "application/json") => None,
        _ if admits(accept, "multipart/mixed") => Some("multipart/mixed"),
        _ if admits(accept, "multipart/related") => Some("multipart/related"),
        _ => None,
    };
    let mut answer = Answer { db, options, outer: format!("--{}", boundary(ctx)), inner: boundary(ctx), count: 0 };
    let Some(kind) = kind else {
        return Reply::generate(move |mut sink| async move { answer.json(items, &mut sink).await }).begun().await;
    };
    let content_type = format!("{kind}; boundary=\"{}\"", answer.outer);
    let reply = Reply::generate(move |mut sink| async move { answer.multipart(items, &mut sink).await });
    reply.header(http::header::CONTENT_TYPE, &content_type).begun().await
}

fn read_options(query: &Query) -> Result<ReadOptions> {
    if let Some((name, _)) = query.iter().find(|(name, _)| NOT_ACCEPTABLE.contains(name)) {
        return Err(Problem::bad_request(format!("\"{name}\" query parameter is not acceptable")));
    }
    ReadOptions::from_query(query)
}

fn item(doc: &Value, checked: impl Fn(&str) -> std::result::Result<DocId, DraftError>) -> Item {
    let refused = |id: &Value, rev: &Value, error: &str, reason: &str| Item::Refused {
        id: id.clone(),
        rev: rev.clone(),
        error: error.to_owned(),
        reason: reason.to_owned(),
    };
    let bad = |id: &Value, rev: &Value, reason: &str| refused(id, rev, "bad_request", reason);
    let members = doc.as_object().filter(|members| !members.is_empty());
    let Some(members) = members else { return bad(&Value::Null, &Value::Null, "document must be a JSON object") };
    let Some(id_value) = members.get("id") else { return bad(&Value::Null, &Value::Null, "document id missed") };
    let id = match id_value.as_str().map(checked) {
        Some(Ok(id)) => id,
        Some(Err(DraftError { kind, reason })) => return refused(id_value, &Value::Null, kind.name(), &reason),
        None => return refused(id_value, &Value::Null, "illegal_docid", "Document id must be a string"),
    };
    let rev = match members.get("rev") {
        None => None,
        Some(value) => match value.as_str().map(revision) {
            Some(Ok(rev)) => Some(rev),
            _ => return bad(id_value, value, "Invalid rev format"),
        },
    };
    match atts_since(members) {
        Ok(atts_since) => Item::Read { id, rev, atts_since },
        Err((value, reason)) => bad(id_value, &value, reason),
    }
}

/// The item, or its refusal where the caller may not see the document.
fn seen(ctx: &Context, request: &Request, db: &Arc<Database>, item: Item) -> Item {
    let Item::Read { id, rev, .. } = &item else { return item };
    match rules::must_see_all(ctx, &request.user, db, id) {
        Ok(()) => item,
        Err(problem) => Item::Refused {
            id: id.as_str().into(),
            rev: rev.as_ref().map_or(Value::Null, |rev| rev.to_string().into()),
            error: problem.error.into_owned(),
            reason: problem.reason.into_owned(),
        },
    }
}

fn atts_since(members: &Object) -> std::result::Result<Option<Vec<Revision>>, (Value, &'static str)> {
    let Some(value) = members.get("atts_since") else { return Ok(None) };
    let Some(list) = value.as_array() else {
        return Err((value.clone(), "att_since value must be array of revs."));
    };
    let one = |rev: &Value| revision(rev.as_str().unwrap_or_default()).map_err(|_| (rev.clone(), "Invalid rev format"));
    list.iter().map(one).collect::<std::result::Result<_, _>>().map(Some)
}

/// Bytes of memory that the revisions of a document take.
fn weight(fetched: &Fetched) -> usize {
    fetched.found.iter().filter_map(|(_, stored)| stored.as_ref()).map(|stored| stored.body.len()).sum()
}

/// What was found for an item.
enum Found<'a> {
    Revision(&'a Fetched, &'a StoredRevision),
    Missing(String),
}

struct Answer {
    db: Arc<Database>,
    options: ReadOptions,
    outer: String,
    inner: String,
    count: u64,
}

impl Answer {
    /// Reads the documents of the first items, as many as are small enough to be in memory together; one at least.
    async fn fetch(&self, items: &[Item]) -> Result<Vec<Option<Fetched>>> {
        let group = &items[..items.len().min(limits::BULK_GET_GROUP)];
        let latest = self.options.latest;
        let wants: Vec<(DocId, Want)> = group
            .iter()
            .filter_map(|item| match item {
                Item::Refused { .. } => None,
                Item::Read { id, .. } if id.is_local() => None,
                Item::Read { id, rev: None, .. } => Some((id.clone(), Want::Leaves)),
                Item::Read { id, rev: Some(rev), .. } => {
                    Some((id.clone(), Want::Revisions { revs: vec![rev.clone()], latest }))
                }
            })
            .collect();
        let mut fetched =
            self.db.documents().fetch_first(&wants, self.options.r, limits::FETCH_BYTES).await?.into_iter();
        // Local documents are missing here, as in CouchDB.
        let next = |item: &Item| match item {
            Item::Read { id, .. } if !id.is_local() => fetched.next(),
            _ => Some(None),
        };
        Ok(group.iter().map_while(next).collect())
    }

    async fn json(&mut self, items: Vec<Item>, sink: &mut ChunkSink) -> Result<()> {
        sink.write(b"{\"results\":[").await?;
        let mut items = items.as_slice();
        while !items.is_empty() {
            sink.room(true).await?;
            let fetched = self.fetch(items).await?;
            sink.page(fetched.iter().flatten().map(weight).sum());
            let group;
            (group, items) = items.split_at(fetched.len());
            for (item, fetched) in group.iter().zip(&fetched) {
                if self.count > 0 {
                    sink.write(b",").await?;
                }
                self.count += 1;
                self.json_item(item, fetched.as_ref(), sink).await?;
            }
        }
        sink.write(b"]}\n").await?;
        sink.flush().await
    }

    async fn json_item(&self, item: &Item, fetched: Option<&Fetched>, sink: &mut ChunkSink) -> Result<()> {
        let mut out = b"{\"id\":".to_vec();
        match item {
            Item::Refused { id, .. } => id.write(&mut out),
            Item::Read { id, .. } => write_string(id.as_str(), &mut out),
        }
        out.extend_from_slice(b",\"docs\":[");
        sink.write(&out).await?;
        match item {
            Item::Refused { id, rev, error, reason } => {
                sink.write(b"{\"error\":").await?;
                sink.write(&error_object(Some(id), rev, error, reason)).await?;
                sink.write(b"}").await?;
            }
            Item::Read { id, rev, atts_since } => {
                let options = self.options_for(atts_since.as_ref());
                for (at, found) in found(rev.as_ref(), fetched).into_iter().enumerate() {
                    if at > 0 {
                        sink.write(b",").await?;
                    }
                    self.json_found(id, &options, found, sink).await?;
                }
            }
        }
        sink.write(b"]}").await
    }

    async fn json_found(
        &self,
        id: &DocId,
        options: &ReadOptions,
        found: Found<'_>,
        sink: &mut ChunkSink,
    ) -> Result<()> {
        match found {
            Found::Revision(fetched, stored) => {
                let data = Data::wanted(options, fetched, stored, true);
                let text = self.shown(id, options, fetched, stored, data).json();
                sink.write(b"{\"ok\":").await?;
                write_pieces(&self.db, id, text.pieces, sink).await?;
            }
            Found::Missing(rev) => {
                let id = Value::from(id.as_str());
                sink.write(b"{\"error\":").await?;
                sink.write(&error_object(Some(&id), &Value::from(rev), "not_found", "missing")).await?;
            }
        }
        sink.write(b"}").await
    }

    async fn multipart(&mut self, items: Vec<Item>, sink: &mut ChunkSink) -> Result<()> {
        // As in CouchDB: without a part there is not even an end of parts.
        if items.is_empty() {
            return sink.flush().await;
        }
        sink.write(format!("--{}", self.outer).as_bytes()).await?;
        let mut items = items.as_slice();
        while !items.is_empty() {
            sink.room(true).await?;
            let fetched = self.fetch(items).await?;
            sink.page(fetched.iter().flatten().map(weight).sum());
            let group;
            (group, items) = items.split_at(fetched.len());
            for (item, fetched) in group.iter().zip(&fetched) {
                self.multipart_item(item, fetched.as_ref(), sink).await?;
            }
        }
        sink.write(b"--").await?;
        sink.flush().await
    }

    async fn multipart_item(&self, item: &Item, fetched: Option<&Fetched>, sink: &mut ChunkSink) -> Result<()> {
        let (id, rev, atts_since) = match item {
            Item::Read { id, rev, atts_since } => (id, rev, atts_since),
            Item::Refused { id, rev, error, reason } => {
                return self.error_part(&error_object(Some(id), rev, error, reason), sink).await;
            }
        };
        let options = self.options_for(atts_since.as_ref());
        for found in found(rev.as_ref(), fetched) {
            match found {
                Found::Revision(fetched, stored) => {
                    let data = match atts_since {
                        None => Data::All,
                        Some(_) => Data::wanted(&options, fetched, stored, true),
                    };
                    if data.any(stored) {
                        let (id, rev) = (in_header(id.as_str()), &stored.rev);
                        sink.write(format!("\r\nX-Doc-Id: {id}\r\nX-Rev-Id: {rev}").as_bytes()).await?;
                    }
                    let pieces = part(&self.shown(id, &options, fetched, stored, data), &self.inner);
                    write_pieces(&self.db, id, pieces, sink).await?;
                    sink.write(format!("\r\n--{}", self.outer).as_bytes()).await?;
                }
                Found::Missing(rev) => {
                    let id = Value::from(id.as_str());
                    // Only a document that was asked for without a revision is named, as CouchDB 3.5 was measured.
                    let id = (rev == UNDEFINED).then_some(&id);
                    let text = error_object(id, &Value::from(rev.as_str()), "not_found", "missing");
                    self.error_part(&text, sink).await?;
                }
            }
        }
        Ok(())
    }

    async fn error_part(&self, text: &[u8], sink: &mut ChunkSink) -> Result<()> {
        sink.write(ERROR_HEAD).await?;
        sink.write(text).await?;
        sink.write(format!("\r\n--{}", self.outer).as_bytes()).await
    }

    fn options_for(&self, atts_since: Option<&Vec<Revision>>) -> ReadOptions {
        ReadOptions { atts_since: atts_since.cloned(), ..self.options.clone() }
    }

    fn shown<'a>(
        &'a self,
        id: &'a DocId,
        options: &'a ReadOptions,
        fetched: &'a Fetched,
        stored: &'a StoredRevision,
        data: Data,
    ) -> Shown<'a> {
        Shown { id, fetched, stored, options, data, meta: false }
    }
}

/// What stands for the revision of a missing document when none was asked for.
const UNDEFINED: &str = "undefined";

fn found<'a>(rev: Option<&Revision>, fetched: Option<&'a Fetched>) -> Vec<Found<'a>> {
    let asked = || rev.map_or_else(|| UNDEFINED.to_owned(), ToString::to_string);
    let Some(fetched) = fetched else { return vec![Found::Missing(asked())] };
    let one = |(rev, stored): &'a (Revision, Option<StoredRevision>)| match stored {
        Some(stored) => Found::Revision(fetched, stored),
        None => Found::Missing(rev.to_string()),
    };
    match fetched.found.as_slice() {
        [] => vec![Found::Missing(asked())],
        list => list.iter().map(one).collect(),
    }
}

fn error_object(id: Option<&Value>, rev: &Value, error: &str, reason: &str) -> Vec<u8> {
    let mut object = Object::new();
    if let Some(id) = id {
        object.push("id", id.clone());
    }
    object.push("rev", rev.clone());
    object.push("error", error);
    object.push("reason", reason);
    object.to_vec()
}

#[cfg(test)]
mod tests {
    use super::{DocId, Item, item, read_options};
    use crate::document::json;
    use crate::http::Query;

    #[test]
    fn bad_items_echo_what_was_sent() {
        for (text, id, rev, error, reason) in [
            (r#"{"id":"a","rev":"junk"}"#, "\"a\"", "\"junk\"", "bad_request", "Invalid rev format"),
            (r#"{"id":"a","rev":7}"#, "\"a\"", "7", "bad_request", "Invalid rev format"),
            (
                r#"{"id":"_bad"}"#,
                "\"_bad\"",
                "null",
                "illegal_docid",
                "Only reserved document ids may start with underscore.",
            ),
            (r#"{"rev":"1-a"}"#, "null", "null", "bad_request", "document id missed"),
            ("{}", "null", "null", "bad_request", "document must be a JSON object"),
            (
                r#"{"id":"a","atts_since":"x"}"#,
                "\"a\"",
                "\"x\"",
                "bad_request",
                "att_since value must be array of revs.",
            ),
        ] {
            let Item::Refused { id: i, rev: r, error: e, reason: why } =
                item(&json::parse(text.as_bytes()).unwrap(), |id| DocId::check(id, None))
            else {
                panic!("{text} was taken")
            };
            let shown = (i.to_vec(), r.to_vec(), e.as_str(), why.as_str());
            assert_eq!(shown, (id.as_bytes().to_vec(), rev.as_bytes().to_vec(), error, reason), "{text}");
        }
    }

    #[test]
    fn parameters_of_items_are_refused_in_the_query() {
        let reason = read_options(&Query::parse("revs=true&w=1")).unwrap_err().reason;
        assert_eq!(reason, "\"w\" query parameter is not acceptable");
        assert!(read_options(&Query::parse("revs=true&latest=true")).unwrap().latest);
    }
}
