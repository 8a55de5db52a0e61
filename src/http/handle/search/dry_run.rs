//! `_search_dry_run`: what an index function and an analyzer make of documents, before there is an index.

use std::sync::Arc;

use http::StatusCode;
use settee_search::document::{Field, Indexed, Value as FieldValue};
use settee_search::schema::FieldType;

use crate::auth::access::Class;
use crate::coordinator::{Database, ReadOperations, Unfit};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::render::{RenderOptions, render};
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::search::{Analyzer, analyzer_of, typed_analyzer};
use crate::limits;
use crate::script::ScriptError;
use crate::shard::Want;
use crate::world::Pool;

/// A document to try: its id, and its text where it is there.
type Sample = (Value, Option<String>);

/// What is tried: an index as a design document has it.
struct Tried {
    /// Cuts its text.
    analyzer: Analyzer,
    /// Whether its fields have types.
    is_typed: bool,
}

impl Tried {
    /// The index of a body: with `"kind": "nouveau"` that of a member `nouveau`, else that of a member `indexes`.
    fn of(given: &Object) -> Result<Tried> {
        let is_typed = match given.get("kind").map(|kind| kind.as_str()) {
            None | Some(Some("search")) => false,
            Some(Some("nouveau")) => true,
            Some(_) => return Err(Problem::bad_request("`kind` must be `search` or `nouveau`")),
        };
        let analyzer = match is_typed {
            true => typed_analyzer(given),
            false => {
                Analyzer::new(given.get("analyzer").map_or_else(|| analyzer_of(&Value::from("standard")), analyzer_of))
            }
        };
        let unknown = |name: String| Problem::bad_request(format!("no such analyzer: {name}"));
        Ok(Tried { analyzer: analyzer.map_err(|error| unknown(error.0))?, is_typed })
    }
}

/// POST `/{db}/_search_dry_run`, for those who may write design documents: the fields, tokens and errors of each
/// document of `docs`, or of the stored ones that `ids` names.
///
/// # Errors
/// 400 for a body of another form, too many documents, and an analyzer that nobody knows.
pub async fn dry_run(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::DatabaseAdmin)?;
    request.require_json()?;
    let given = request.query_object().await?;
    let source = given.get("index").and_then(Value::as_str);
    let source = source.ok_or_else(|| Problem::bad_request("`index` must be the text of an index function"))?;
    let index = Tried::of(&given)?;
    let samples = match (given.get("docs"), given.get("ids")) {
        (Some(docs), None) => of_docs(few(docs, "docs")?)?,
        (None, Some(ids)) => of_ids(&db, few(ids, "ids")?).await?,
        _ => return Err(Problem::bad_request("either `docs` or `ids` must be given")),
    };
    let (asked, texts): (Vec<(Value, bool)>, Vec<Option<String>>) =
        samples.into_iter().map(|(id, text)| ((id, text.is_some()), text)).unzip();
    let mut tried =
        db.queries().try_index(source, index.is_typed, texts.into_iter().flatten().collect()).await?.into_iter();
    let make = move || {
        let one = |(id, is_there): (Value, bool)| match is_there.then(|| tried.next()).flatten() {
            None => told(id, Err("missing".to_owned()), &index),
            Some(fields) => told(id, fields.map_err(reason), &index),
        };
        asked.into_iter().map(one).collect::<Vec<Value>>()
    };
    let results = ctx.env.blocking(Pool::Foreground, make).await;
    let answer: Object = [("results".to_owned(), Value::Array(results))].into_iter().collect();
    Ok(Reply::json(StatusCode::OK, answer.to_vec()))
}

/// A list that is not too long.
fn few<'g>(value: &'g Value, name: &str) -> Result<&'g [Value]> {
    let list = value.as_array().ok_or_else(|| Problem::bad_request(format!("`{name}` must be an array")))?;
    let most = limits::SEARCH_DRY_RUN_DOCS;
    match list.len() > most {
        true => Err(Problem::bad_request(format!("`{name}` has more than {most} documents"))),
        false => Ok(list),
    }
}

fn of_docs(docs: &[Value]) -> Result<Vec<Sample>> {
    let one = |doc: &Value| {
        let object = doc.as_object().ok_or_else(|| Problem::bad_request("`docs` must be objects"))?;
        let id = object.get("_id").cloned().unwrap_or(Value::Null);
        Ok((id, Some(String::from_utf8_lossy(&doc.to_vec()).into_owned())))
    };
    docs.iter().map(one).collect()
}

/// Stored documents as they are now; without a text where there is none.
async fn of_ids(db: &Arc<Database>, ids: &[Value]) -> Result<Vec<Sample>> {
    let name = |id: &Value| id.as_str().map(DocId::new).ok_or_else(|| Problem::bad_request("`ids` must be strings"));
    let wants = ids.iter().map(|id| Ok((name(id)?, Want::Winner))).collect::<Result<Vec<(DocId, Want)>>>()?;
    let (mut left, mut samples, mut bytes) = (&wants[..], Vec::with_capacity(wants.len()), 0);
    while !left.is_empty() {
        let found = db.documents().fetch_first(left, Some(1), limits::FETCH_BYTES).await?;
        let (some, rest) = left.split_at(found.len().clamp(1, left.len()));
        left = rest;
        for ((id, _), fetched) in some.iter().zip(found) {
            let stored = fetched.and_then(|mut fetched| fetched.take_one()).filter(|stored| !stored.deleted);
            let text = stored.map(|stored| render(id.as_str(), &stored, &RenderOptions::default()));
            let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
            bytes += text.as_ref().map_or(0, String::len);
            samples.push((Value::from(id.as_str()), text));
        }
        if bytes > limits::SEARCH_DRY_RUN_BYTES {
            let most = limits::SEARCH_DRY_RUN_BYTES >> 20;
            return Err(Problem::bad_request(format!("the documents have more than {most} MB")));
        }
    }
    Ok(samples)
}

fn reason(unfit: Unfit) -> String {
    match unfit {
        Unfit::Misfit(reason) => reason,
        Unfit::Script(ScriptError::Thrown { error, reason }) => match reason.as_str() {
            Some(text) => format!("{error}: {text}"),
            None => format!("{error}: {}", String::from_utf8_lossy(&reason.to_vec())),
        },
        Unfit::Script(other) => other.to_string(),
    }
}

fn told(id: Value, fields: std::result::Result<Vec<Field>, String>, index: &Tried) -> Value {
    let mut out = Object::new();
    out.push("id", id);
    match fields {
        Ok(fields) => out.push("fields", fields.iter().map(|one| field(one, index)).collect::<Vec<Value>>()),
        Err(reason) => out.push("error", reason),
    }
    out.into()
}

/// A field, and of text the tokens by which it is found.
fn field(field: &Field, index: &Tried) -> Value {
    let mut out = Object::new();
    if index.is_typed {
        out.push("type", FieldType::of(field).name().to_ascii_lowercase());
    }
    out.push("name", field.name.as_str());
    out.push(
        "value",
        match &field.value {
            FieldValue::Text(text) => text.as_str().into(),
            FieldValue::Number(number) => Value::Float(*number),
            FieldValue::Bool(flag) => Value::Bool(*flag),
        },
    );
    out.push("store", field.options.store);
    if !index.is_typed {
        out.push("facet", field.options.facet);
    }
    if let FieldValue::Text(text) = &field.value {
        let tokens: Vec<Value> = match field.options.index {
            Indexed::Analyzed | Indexed::AnalyzedNoNorms => {
                let tokens = index.analyzer.tokens(&field.name, text).into_iter().take(limits::SEARCH_DRY_RUN_TOKENS);
                tokens.map(|token| token.text.into()).collect()
            }
            Indexed::NotAnalyzed | Indexed::NotAnalyzedNoNorms => vec![text.as_str().into()],
            Indexed::No | Indexed::Stored => Vec::new(),
        };
        out.push("tokens", tokens);
    }
    out.into()
}
