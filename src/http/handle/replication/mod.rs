//! `_revs_diff` and `_missing_revs`: the revisions that a replicator must still send.

pub mod replicate;
pub mod scheduler;

use std::collections::BTreeMap;

use http::StatusCode;

use crate::coordinator::{RevsDiff, WriteOperations};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::revision::Revision;
use crate::http::handle::document::read_options::revisions;
use crate::http::handle::document::{open, placed_id};
use crate::http::handle::rules::Rules;
use crate::http::{Context, Reply, Request, Result};

/// `POST /{db}/_revs_diff`
///
/// # Errors
/// 400 for what is no map of ids to lists of revisions.
pub async fn revs_diff(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let diffs = diff(ctx, &mut request, db).await?;
    let entry = |(id, diff): (DocId, RevsDiff)| {
        let mut out = Object::new();
        out.push("missing", revs_json(&diff.missing));
        if !diff.possible_ancestors.is_empty() {
            out.push("possible_ancestors", revs_json(&diff.possible_ancestors));
        }
        (id.as_str().to_owned(), Value::Object(out))
    };
    Ok(Reply::json(StatusCode::OK, diffs.into_iter().map(entry).collect::<Object>().to_vec()))
}

/// `POST /{db}/_missing_revs`
///
/// # Errors
/// As [`revs_diff`].
pub async fn missing_revs(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let diffs = diff(ctx, &mut request, db).await?;
    let missing: Object = diffs.into_iter().map(|(id, d)| (id.as_str().to_owned(), revs_json(&d.missing))).collect();
    let mut out = Object::new();
    out.push("missing_revs", missing);
    Ok(Reply::json(StatusCode::OK, out.to_vec()))
}

async fn diff(ctx: &Context, request: &mut Request, db: &str) -> Result<BTreeMap<DocId, RevsDiff>> {
    let db = open(ctx, request, db)?;
    request.require_json()?;
    let body = request.query_object().await?;
    let rules = Rules::of(ctx, &db.name);
    let mut asked: BTreeMap<DocId, Vec<Revision>> = BTreeMap::new();
    let mut hidden = BTreeMap::new();
    for (id, list) in body.iter() {
        let (id, missing) = (placed_id(&db, id)?, revisions(list)?);
        match rules.may_touch(&request.user, &db, &id) {
            Ok(()) => drop(asked.insert(id, missing)),
            // As if there were no such document.
            Err(_) => drop(hidden.insert(id, RevsDiff { missing, possible_ancestors: Vec::new() })),
        }
    }
    let mut diffs = db.maintenance().revs_diff(asked).await?;
    diffs.extend(hidden);
    Ok(diffs)
}

/// Revisions as a JSON list.
pub fn revs_json(revs: &[Revision]) -> Value {
    Value::Array(revs.iter().map(|rev| Value::String(rev.to_string())).collect())
}
