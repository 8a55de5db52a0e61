//! `_changes` filtered by a function of a design document: `filter=ddoc/name`, or `filter=_view` (what a map emits).

use std::sync::Arc;

use super::function_request::function_request;
use crate::coordinator::{Candidate, ChangesError, ChangesFilter, Database, RowFilter};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::render::{RenderOptions, render};
use crate::http::{Context, Request, Result};
use crate::script::{Program, Scripts};
use crate::world::BoxFuture;

/// `filters.{name}` of a design document; `place` is `ddoc/name`.
///
/// # Errors
/// 404 without the design document or the function.
pub async fn function(
    ctx: &Context,
    request: &Request,
    db: &Database,
    place: &str,
    body: Option<&Object>,
) -> Result<ChangesFilter> {
    let (program, name) = program(db, place).await?;
    program.filter(name)?;
    let req = function_request(ctx, request, db, None, body.cloned().map(Value::Object)).await?;
    let judge = Judge::Function { name: name.to_owned(), req };
    Ok(ChangesFilter::Rows(Arc::new(Filter { scripts: db.scripts().clone(), program, judge })))
}

/// `views.{name}.map` of a design document; `place` is `ddoc/name`.
///
/// # Errors
/// 404 without the design document or the view.
pub async fn view(db: &Database, place: &str) -> Result<ChangesFilter> {
    let (program, name) = program(db, place).await?;
    let judge = Judge::Map { source: program.map(name)?.to_owned() };
    Ok(ChangesFilter::Rows(Arc::new(Filter { scripts: db.scripts().clone(), program, judge })))
}

async fn program<'a>(db: &Database, place: &'a str) -> Result<(Program, &'a str)> {
    // The parameters were read: there is a slash.
    let (ddoc, name) = place.split_once('/').unwrap_or((place, ""));
    Ok((db.program(&DocId::new(&format!("_design/{ddoc}"))).await?, name))
}

struct Filter {
    scripts: Scripts,
    program: Program,
    judge: Judge,
}

enum Judge {
    Function { name: String, req: Arc<str> },
    Map { source: String },
}

impl Filter {
    async fn judge(&self, page: &[Candidate]) -> std::result::Result<Vec<Vec<bool>>, ChangesError> {
        let text = |candidate: &Candidate, at: usize| {
            let text = render(candidate.id.as_str(), &candidate.leaves[at], &RenderOptions::default());
            String::from_utf8_lossy(&text).into_owned()
        };
        let leaves = page.iter().flat_map(|c| (0..c.leaves.len()).map(move |at| text(c, at)));
        let docs: Vec<String> = leaves.collect();
        let passed = match &self.judge {
            Judge::Function { name, req } => self.scripts.filter(&self.program, name, req, docs).await,
            Judge::Map { source } => {
                let rows = self.scripts.map(&self.program, &[source], docs).await;
                rows.map(|docs| docs.iter().map(|lists| lists.iter().any(|rows| !rows.is_empty())).collect())
            }
        };
        let mut passed = passed.map_err(ChangesError::Script)?.into_iter();
        Ok(page.iter().map(|candidate| passed.by_ref().take(candidate.leaves.len()).collect()).collect())
    }
}

impl RowFilter for Filter {
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, std::result::Result<Vec<Vec<bool>>, ChangesError>> {
        Box::pin(self.judge(page))
    }
}
