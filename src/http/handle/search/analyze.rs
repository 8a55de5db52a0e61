//! `/_search_analyze`: the tokens that an analyzer makes of a text.

use http::StatusCode;

use super::no_analyzer;
use crate::document::json::{Object, Value};
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::search::{Analyzer, analyzer_of};
use crate::world::Pool;

/// GET or POST `/_search_analyze`, for server admins.
///
/// # Errors
/// 400 for what is missing, 500 for an analyzer that nobody knows.
pub async fn analyze(ctx: &Context, mut request: Request) -> Result<Reply> {
    let mut given = Object::new();
    match request.verb {
        Verb::Get => {
            for name in ["analyzer", "text"] {
                if let Some(text) = request.query.get(name) {
                    given.push(name, text);
                }
            }
        }
        Verb::Post => {
            request.require_json()?;
            given = request.query_object().await?;
        }
        _ => return Err(Problem::method_not_allowed("GET,POST")),
    }
    let mandatory =
        |name: &str| given.get(name).ok_or_else(|| Problem::bad_request(format!("{name} parameter is mandatory")));
    let (analyzer, text) = (mandatory("analyzer")?, mandatory("text")?);
    let name = match analyzer {
        Value::String(_) => analyzer,
        // As in CouchDB, an accident.
        Value::Object(_) => return Err(no_analyzer()),
        _ => return Err(Problem::bad_request("analyzer parameter must be a string or an object")),
    };
    let text = text.as_str().ok_or_else(|| Problem::bad_request("text parameter must be a string"))?.to_owned();
    let analyzer = Analyzer::new(analyzer_of(name)).map_err(|_| no_analyzer())?;
    let cut = move || analyzer.tokens("default", &text).into_iter().map(|token| token.text.into()).collect();
    let tokens: Vec<Value> = ctx.env.blocking(Pool::Foreground, cut).await;
    let answer: Object = [("tokens".to_owned(), Value::Array(tokens))].into_iter().collect();
    Ok(Reply::json(StatusCode::OK, answer.to_vec()))
}
