//! `_index`: lists, creates and deletes indexes, which live in design documents (`conformance/cases/queries`).

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use sha1::{Digest, Sha1};

use super::find::indexes;
use crate::auth::access::Class;
use crate::coordinator::{Database, ReadOperations, Want, WriteDone, WriteOperations, WriteRequest};
use crate::document::draft::{self, Draft, DraftAttachment};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::render::Attachment;
use crate::document::revision::{Revision, TermOption, term_with_options};
use crate::document::selector::erlang_term;
use crate::http::handle::document::write::options;
use crate::http::handle::nouveau::is_enabled;
use crate::http::handle::token::with_token;
use crate::http::query::integer;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::mango::MangoError;
use crate::index::mango::catalogue::{LANGUAGE, all_docs_value, view_of};
use crate::index::mango::request::{check_keys, positive};
use crate::index::mango::text::text_index_of;

/// `/{db}/_index` and below; `path` begins with `_index`.
///
/// # Errors
/// 400 for what is wrong with a definition, 404 for what is not there, 503 for kinds that need a search service.
pub async fn handle(ctx: &Context, request: Request, db: &str, path: &[String]) -> Result<Reply> {
    match path {
        [_] if request.verb == Verb::Post => create(ctx, request, db).await,
        [_] => list(ctx, &request, db).await,
        [_, below] if below == "_bulk_delete" => bulk_delete(ctx, request, db).await,
        path => remove(ctx, &request, db, index_of(path).ok_or_else(Problem::missing)?).await,
    }
}

/// Whether something can be at `path`: indexes are named by design document, type and name; paths of queries end with
/// their first segment, whatever follows.
pub fn is_path(path: &[String]) -> bool {
    match path {
        [] | [_] => true,
        [first, ..] if first != "_index" => true,
        [_, below] => below == "_bulk_delete",
        path => index_of(path).is_some(),
    }
}

/// The design document, the type and the name of the index at `path`.
fn index_of(path: &[String]) -> Option<[&str; 3]> {
    match path {
        [_, ddoc, kind, name] => Some([ddoc.strip_prefix("_design/").unwrap_or(ddoc), kind, name]),
        [_, design, ddoc, kind, name] if design == "_design" => Some([ddoc, kind, name]),
        _ => None,
    }
}

/// The indexes of a database, by design document and name, as they are listed.
async fn listed(ctx: &Context, db: &Arc<Database>) -> Result<Vec<((String, String), Value)>> {
    let programs = db.design_docs().programs().await?;
    let (fields, texts) = indexes(ctx, db, &programs);
    let json = fields.into_iter().map(|index| ((index.ddoc.clone(), index.name.clone()), index.to_value()));
    let texts = texts.into_iter().map(|index| ((index.ddoc.clone(), index.name.clone()), index.to_value()));
    let mut all: Vec<((String, String), Value)> = json.chain(texts).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

async fn list(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    let db = ctx.open(db, request, Class::Member)?;
    let mut all = vec![all_docs_value()];
    all.extend(listed(ctx, &db).await?.into_iter().map(|(_, index)| index));
    let skip = page_end(request, "skip", 0)?.unwrap_or(0);
    let limit = page_end(request, "limit", 1)?.unwrap_or(usize::MAX);
    let mut answer = Object::new();
    answer.push("total_rows", all.len() as u64);
    answer.push("indexes", all.into_iter().skip(skip).take(limit).collect::<Vec<_>>());
    Ok(Reply::json(StatusCode::OK, answer.to_vec()))
}

/// A bound of the page of indexes asked for, of at least `least`.
fn page_end(request: &Request, name: &str, least: usize) -> Result<Option<usize>> {
    let Some(text) = request.query.get(name) else { return Ok(None) };
    let number = integer(text).ok().and_then(|number| usize::try_from(number).ok());
    let refused = || {
        let reason = "Index parameter ranges: limit > 1, skip > 0";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "invalid_list_index_params", reason)
    };
    number.filter(|number| *number >= least).map(Some).ok_or_else(refused)
}

/// The body of a design document as it is, with its revision; empty where there is none.
async fn design(db: &Arc<Database>, id: &DocId) -> Result<Option<Design>> {
    let Some(stored) = db.documents().fetch_one(id, Want::Winner).await?.filter(|stored| !stored.deleted) else {
        return Ok(None);
    };
    match crate::document::json::parse(&stored.body)? {
        Value::Object(body) => {
            let stub = |attachment: &Attachment| DraftAttachment::stub(&attachment.name, attachment.revpos);
            let attachments = stored.attachments.iter().map(stub).collect();
            Ok(Some(Design { rev: stored.rev, body, attachments }))
        }
        _ => Err(Problem::internal("A stored document is damaged.")),
    }
}

/// A design document as it is; its attachments stay as they are when it is written.
struct Design {
    rev: Revision,
    body: Object,
    attachments: Vec<DraftAttachment>,
}

/// A member that is a name: text, but not an empty one.
fn name_of<'a>(body: &'a Object, key: &str) -> Result<Option<&'a str>> {
    let name = text(body, key)?;
    if name == Some("") {
        return Err(Problem::invalid("invalid_empty_string", "Index name or ddoc cannot be empty string"));
    }
    Ok(name)
}

struct Creation {
    /// The member of design documents that it goes to.
    member: &'static str,
    view: Value,
    id: DocId,
    name: String,
    partitioned: Option<bool>,
}

impl Creation {
    /// `with_types`: whether there are indexes with types.
    fn parse(body: &Object, with_types: bool) -> Result<Creation> {
        let index =
            body.get("index").ok_or_else(|| MangoError::new("missing_required_key", "Missing required key: index"))?;
        let kind = text(body, "type")?.unwrap_or("json");
        // Of two mistakes CouchDB tells that of the name.
        let (name, ddoc) = (name_of(body, "name")?, name_of(body, "ddoc")?);
        positive(body.get("w"), 2)?;
        let partitioned = match body.get("partitioned") {
            None => None,
            Some(Value::Bool(wanted)) => Some(*wanted),
            Some(_) => return Err(Problem::invalid("invalid_partitioned_value", "`partitioned` must be a boolean.")),
        };
        check_keys(body, &["index", "type", "name", "ddoc", "w", "partitioned"])?;
        let (member, view) = match kind {
            "json" => ("views", view_of(index)?),
            "text" => ("indexes", text_index_of(index)?),
            "nouveau" if with_types => {
                let typed = match index {
                    Value::Object(_) => text_index_of(index)?,
                    other => return Err(MangoError::about("invalid_index_text", "Invalid text index: ", other).into()),
                };
                ("nouveau", typed)
            }
            "nouveau" => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Err(Problem::new(status, "required index service unavailable", kind.to_owned()));
            }
            other => return Err(Problem::invalid("invalid_index", format!("Invalid type for index: {other}"))),
        };
        let hash = generated_name(index, body);
        let ddoc = ddoc.unwrap_or(&hash);
        let ddoc = ddoc.strip_prefix("_design/").unwrap_or(ddoc);
        if ddoc.is_empty() {
            return Err(Problem::invalid("illegal_docid", "Illegal document id `_design/`"));
        }
        let id = DocId::new(&format!("_design/{ddoc}"));
        Ok(Creation { member, view, id, name: name.unwrap_or(&hash).to_owned(), partitioned })
    }
}

/// The name of what has none: equal for equal indexes that were asked for with equal options, and equal to CouchDB's.
fn generated_name(index: &Value, body: &Object) -> String {
    let (json, two) = (Value::from("json"), Value::Int(2));
    let given = |name: &str, default| body.get(name).map_or(default, TermOption::Value);
    let options = [
        ("ddoc", given("ddoc", TermOption::Atom("auto_name"))),
        ("def", TermOption::Value(index)),
        ("name", given("name", TermOption::Atom("auto_name"))),
        ("partitioned", given("partitioned", TermOption::Atom("db_default"))),
        ("type", given("type", TermOption::Value(&json))),
        ("w", given("w", TermOption::Value(&two))),
    ];
    let hash = Sha1::digest(term_with_options(index, &options));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text<'a>(body: &'a Object, name: &str) -> Result<Option<&'a str>> {
    match body.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let shown = erlang_term(other);
            Err(Problem::invalid("invalid_string", format!("Invalid string: {shown}")))
        }
    }
}

async fn create(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::Member)?;
    request.require_json()?;
    let body = request.query_object().await?;
    let wanted = Creation::parse(&body, is_enabled(&ctx.config))?;
    let existing = design(&db, &wanted.id).await?;
    let mut done = None;
    let result = match with_view(existing.as_ref().map(|design| &design.body), &wanted)? {
        None => "exists",
        Some(body) => {
            let refused = |why: &str| saving_failed(&format!("Unknown error while saving the design document: {why}"));
            ctx.allow(&db, &request.user, Class::DatabaseAdmin).map_err(|_| refused("forbidden"))?;
            if wanted.partitioned == Some(true) && !db.map().partitioned {
                return Err(refused("invalid_design_doc"));
            }
            let (rev, attachments) = existing.map(|design| (design.rev, design.attachments)).unzip();
            let draft = Draft { rev, attachments: attachments.unwrap_or_default(), ..draft::parse(body.into())? };
            done = Some(save(&db, &wanted.id, draft, &request).await?);
            "created"
        }
    };
    let mut answer = Object::new();
    answer.push("result", result);
    answer.push("id", wanted.id.as_str());
    answer.push("name", wanted.name.as_str());
    Ok(with_token(&db, Reply::json(StatusCode::OK, answer.to_vec()), &done))
}

fn saving_failed(reason: &str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "error_saving_ddoc", reason.to_owned())
}

/// The design document with the index; `None` when it has it already.
fn with_view(existing: Option<&Object>, wanted: &Creation) -> Result<Option<Object>> {
    let mut body = match existing {
        None => Object::from_iter([("language".to_owned(), LANGUAGE.into())]),
        Some(body) if body.get("language").and_then(Value::as_str) != Some(LANGUAGE) => {
            // As Erlang prints what it found: the member, or that there is none.
            let name = Value::from("language");
            let found = body
                .get("language")
                .map_or("false".to_owned(), |language| format!("{{{},{}}}", erlang_term(&name), erlang_term(language)));
            let reason = format!("Existing design doc has an invalid language: {found}");
            return Err(Problem::invalid("invalid_ddoc_lang", reason));
        }
        Some(body) => {
            let own = body.get("options").and_then(Value::as_object).and_then(|options| options.get("partitioned"));
            // Word for word: what is left to the database on one side only is another option, too.
            if wanted.partitioned != own.and_then(Value::as_bool) {
                let id = wanted.id.as_str();
                let reason =
                    format!("Requested partitioned option does not match existing value on design document {id}");
                return Err(Problem::invalid("invalid_partitioned_option", reason));
            }
            body.clone()
        }
    };
    if !body.contains(wanted.member) {
        body.push(wanted.member, Object::new());
    }
    let Some(Value::Object(views)) = body.get_mut(wanted.member) else {
        let reason = format!("The {} of the design document are no object", wanted.member);
        return Err(Problem::invalid("invalid_ddoc_views", reason));
    };
    if views.get(&wanted.name) == Some(&wanted.view) {
        return Ok(None);
    }
    views.insert(wanted.name.as_str(), wanted.view.clone());
    if let (Some(partitioned), None) = (wanted.partitioned, existing) {
        body.push("options", Object::from_iter([("partitioned".to_owned(), partitioned.into())]));
    }
    Ok(Some(body))
}

async fn save(db: &Arc<Database>, id: &DocId, draft: Draft, request: &Request) -> Result<WriteDone> {
    let write = WriteRequest { id: id.clone(), draft, follows: Vec::new() };
    Ok(db.writer().write_one(write, options(request)?).await?)
}

async fn remove(ctx: &Context, request: &Request, db: &str, index: [&str; 3]) -> Result<Reply> {
    let db = ctx.open(db, request, Class::Member)?;
    let [ddoc, kind, name] = index;
    let member = match kind {
        "json" => "views",
        "text" => "indexes",
        "nouveau" if is_enabled(&ctx.config) => "nouveau",
        _ => return Err(Problem::missing()),
    };
    let id = DocId::new(&format!("_design/{ddoc}"));
    let mut design = design(&db, &id).await?.ok_or_else(Problem::missing)?;
    let body = &mut design.body;
    if body.get("language").and_then(Value::as_str) != Some(LANGUAGE) {
        return Err(Problem::missing());
    }
    let Some(Value::Object(views)) = body.get_mut(member) else { return Err(Problem::missing()) };
    views.remove(name).ok_or_else(Problem::missing)?;
    if views.is_empty() {
        body.remove(member);
    }
    ctx.allow(&db, &request.user, Class::DatabaseAdmin)?;
    let done = save_rest(&db, &id, design, request).await?;
    Ok(with_token(&db, Reply::ok(StatusCode::OK), [&done]))
}

/// Writes what is left of a design document without some or all of its indexes; one of which nothing is left but its
/// language goes.
async fn save_rest(db: &Arc<Database>, id: &DocId, left: Design, request: &Request) -> Result<WriteDone> {
    let Design { rev, body, attachments } = left;
    if attachments.is_empty() && body.iter().all(|(name, _)| name == "language") {
        return Ok(db.writer().delete(id, Some(rev), options(request)?).await?);
    }
    save(db, id, Draft { rev: Some(rev), attachments, ..draft::parse(body.into())? }, request).await
}

async fn bulk_delete(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::Member)?;
    request.require_json()?;
    let body = request.query_object().await?;
    let ids = doc_ids(&body)?;
    positive(body.get("w"), 2)?;
    check_keys(&body, &["docids", "w"])?;
    ctx.allow(&db, &request.user, Class::DatabaseAdmin)?;
    // Design documents without an index are none of this request's.
    let with_index: BTreeSet<String> = listed(ctx, &db).await?.into_iter().map(|(place, _)| place.0).collect();
    let (mut success, mut fail, mut all_done) = (Vec::new(), Vec::new(), Vec::new());
    for id in ids.iter().rev() {
        let mut row = Object::new();
        row.push("id", id.as_str());
        let found = if with_index.contains(id.as_str()) { design(&db, id).await? } else { None };
        let removed = match found {
            Some(mut design) => {
                design.body.remove("views");
                design.body.remove("indexes");
                design.body.remove("nouveau");
                save_rest(&db, id, design, &request).await
            }
            None => Err(Problem::missing()),
        };
        match removed {
            Ok(done) => {
                all_done.push(done);
                row.push("ok", true);
                success.push(Value::Object(row));
            }
            Err(error) => {
                row.push("error", error.error.as_ref());
                fail.push(Value::Object(row));
            }
        }
    }
    let mut answer = Object::new();
    answer.push("success", success);
    answer.push("fail", fail);
    Ok(with_token(&db, Reply::json(StatusCode::OK, answer.to_vec()), &all_done))
}

fn doc_ids(body: &Object) -> Result<Vec<DocId>> {
    let list =
        body.get("docids").ok_or_else(|| MangoError::new("missing_required_key", "Missing required key: docids"))?;
    let list = list.as_array().ok_or_else(|| {
        MangoError::about("invalid_bulk_docs", "Bulk Delete requires an array of non-null docids. Docids: ", list)
    })?;
    let id = |value: &Value| match value.as_str() {
        Some(name) => Ok(DocId::new(&format!("_design/{}", name.strip_prefix("_design/").unwrap_or(name)))),
        None => {
            let shown = erlang_term(value);
            Err(Problem::invalid("invalid_index_name", format!("Invalid index name: {shown}")))
        }
    };
    list.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::{Object, Value, generated_name};
    use crate::document::json;

    #[test]
    fn names_are_those_that_couchdb_gives() {
        let name = |text: &str| {
            let Ok(Value::Object(body)) = json::parse(text.as_bytes()) else { panic!("an object") };
            let body: Object = body;
            generated_name(body.get("index").expect("an index"), &body)
        };
        assert_eq!(name(r#"{"index":{"fields":[{"n":"desc"}]}}"#), "3bcbdb398790c895fc969878e279a443e2913eed");
        assert_eq!(name(r#"{"index":{"fields":["n"]},"name":"k"}"#), "3019f2bdcdd4cbbeca81a77c1a46c5c891cd519a");
        assert_eq!(
            name(r#"{"index":{"fields":["n"]},"partitioned":false}"#),
            "9e57cb96212b0205ce6913559f620b64c99c3aab"
        );
        assert_eq!(
            name(r#"{"index":{"fields":["n"]},"type":"json","w":1}"#),
            "dad433fe5666f808103d5aa4603b296fa89ee0bb"
        );
    }
}
