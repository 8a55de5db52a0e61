//! Arguments of `_all_docs`, `_design_docs` and `_local_docs`, from query strings and from POST bodies.
//!
//! Pure. One parameter is read the same way from both, but for two things that CouchDB 3.5 was measured to do: numbers
//! in a body must be JSON numbers, and JSON parameters of a query string are decoded first. The last of repeated
//! parameters counts; unknown names are ignored.

use crate::document::json::{self, Object, Value};
use crate::http::problem::Problem;
use crate::http::query::Query;

/// The largest `limit` that CouchDB takes (2^59 - 1); a larger one is refused.
const LIMIT_MAX: u64 = 576_460_752_303_423_487;

/// Parameters of a list of rows; the defaults are those of a request without any.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewArgs {
    /// `keys`: the rows to list, in this order.
    pub keys: Option<Vec<Value>>,
    /// `key`: the only key to list.
    pub key: Option<Value>,
    /// `startkey`, first in the direction of reading.
    pub start_key: Option<Value>,
    /// `endkey`, last in the direction of reading.
    pub end_key: Option<Value>,
    /// `startkey_docid`; counts for id lists only without `startkey`.
    pub start_doc_id: Option<String>,
    /// `endkey_docid`; counts for id lists only without `endkey`.
    pub end_doc_id: Option<String>,
    /// Whether the end key itself is listed.
    pub inclusive_end: bool,
    /// Whether to read backwards.
    pub descending: bool,
    /// Whether rows carry `doc`.
    pub include_docs: bool,
    /// With `include_docs`: add `_conflicts`.
    pub conflicts: bool,
    /// With `include_docs`: attachments with data.
    pub attachments: bool,
    /// With `include_docs`: encodings in attachment stubs.
    pub att_encoding_info: bool,
    /// Whether the answer carries the sequence.
    pub update_seq: bool,
    /// Rows at most.
    pub limit: u64,
    /// Rows left out before the first.
    pub skip: u64,
    /// `reduce`, when given.
    pub reduce: Option<bool>,
    /// Whether `group` or `group_level` asks for grouping.
    pub grouped: bool,
    /// `partition`, when given.
    pub partition: Option<String>,
}

impl Default for ViewArgs {
    fn default() -> Self {
        ViewArgs {
            keys: None,
            key: None,
            start_key: None,
            end_key: None,
            start_doc_id: None,
            end_doc_id: None,
            inclusive_end: true,
            descending: false,
            include_docs: false,
            conflicts: false,
            attachments: false,
            att_encoding_info: false,
            update_seq: false,
            limit: LIMIT_MAX,
            skip: 0,
            reduce: None,
            grouped: false,
            partition: None,
        }
    }
}

/// Where `keys` stands: each place words its error differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Query,
    Body,
    Queries,
}

impl ViewArgs {
    /// Arguments of a GET.
    ///
    /// # Errors
    /// 400 `query_parse_error`, or `bad_request` for what is not JSON.
    pub fn from_query(query: &Query) -> Result<ViewArgs, Problem> {
        let mut args = ViewArgs::default();
        args.take_query(query)?;
        args.check()?;
        Ok(args)
    }

    /// Arguments of a POST: the body's members, then the query string's, which win.
    ///
    /// # Errors
    /// As [`ViewArgs::from_query`].
    pub fn from_body(body: &Object, query: &Query) -> Result<ViewArgs, Problem> {
        let mut args = ViewArgs::default();
        args.take_members(body, Place::Body)?;
        args.take_query(query)?;
        args.check()?;
        Ok(args)
    }

    /// Arguments of each item of a `queries` body; here the query string gives defaults. A list of one key is that key.
    ///
    /// # Errors
    /// As [`ViewArgs::from_query`]; one bad query refuses all.
    pub fn from_queries(body: &Object, query: &Query) -> Result<Vec<ViewArgs>, Problem> {
        let queries = match body.get("queries") {
            None => return Err(Problem::bad_request("POST body must include `queries` parameter.")),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(Problem::bad_request("`queries` member must be an array.")),
        };
        queries.iter().map(|item| ViewArgs::from_one_query(item, query)).collect()
    }

    fn from_one_query(item: &Value, query: &Query) -> Result<ViewArgs, Problem> {
        let Some(members) = item.as_object() else {
            return Err(Problem::bad_request("Request body must be a JSON object"));
        };
        let mut args = ViewArgs::default();
        args.take_query(query)?;
        args.take_members(members, Place::Queries)?;
        args.check()?;
        if let Some([_]) = args.keys.as_deref() {
            args.key = args.keys.take().and_then(|mut keys| keys.pop());
        }
        Ok(args)
    }

    fn take_query(&mut self, query: &Query) -> Result<(), Problem> {
        for (name, text) in query.iter() {
            match name {
                "key" | "keys" | "startkey" | "start_key" | "endkey" | "end_key" => {
                    let value = json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json())?;
                    self.take(name, &Given::Json(&value), Place::Query)?;
                }
                _ => self.take(name, &Given::Text(text), Place::Query)?,
            }
        }
        Ok(())
    }

    fn take_members(&mut self, members: &Object, place: Place) -> Result<(), Problem> {
        for (name, value) in members.iter() {
            self.take(name, &Given::Json(value), place)?;
        }
        Ok(())
    }

    fn take(&mut self, name: &str, given: &Given<'_>, place: Place) -> Result<(), Problem> {
        match name {
            "key" => self.key = given.json(),
            "keys" => self.keys = Some(keys(given, place)?),
            "startkey" | "start_key" => self.start_key = given.json(),
            "endkey" | "end_key" => self.end_key = given.json(),
            "startkey_docid" | "start_key_doc_id" => self.start_doc_id = given.string(),
            "endkey_docid" | "end_key_doc_id" => self.end_doc_id = given.string(),
            "limit" => self.limit = limit(given.integer()?)?,
            "skip" => self.skip = given.integer()?,
            "descending" => self.descending = given.boolean()?,
            "include_docs" => self.include_docs = given.boolean()?,
            "inclusive_end" => self.inclusive_end = given.boolean()?,
            "conflicts" => self.conflicts = given.boolean()?,
            "attachments" => self.attachments = given.boolean()?,
            "att_encoding_info" => self.att_encoding_info = given.boolean()?,
            "update_seq" => self.update_seq = given.boolean()?,
            "reduce" => self.reduce = Some(given.boolean()?),
            "group" => self.grouped = given.boolean()?,
            "group_level" => self.grouped = given.integer()? > 0,
            "partition" => self.partition = given.string(),
            "sorted" => drop(given.boolean()?),
            "stable" => drop(given.boolean().map_err(|_| Problem::query_parse("Invalid value for `stable`."))?),
            "stale" => given.one_of(name, &["ok", "update_after"])?,
            "update" => given.one_of(name, &["true", "false", "lazy"])?,
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Problem> {
        if self.keys.is_some() && (self.key.is_some() || self.start_key.is_some() || self.end_key.is_some()) {
            return Err(Problem::query_parse("`keys` is incompatible with `key`, `start_key` and `end_key`"));
        }
        if self.reduce == Some(true) {
            return Err(Problem::query_parse("Reduce is invalid for map-only views."));
        }
        if self.grouped {
            return Err(Problem::query_parse("Invalid use of grouping on a map view."));
        }
        Ok(())
    }
}

fn keys(given: &Given<'_>, place: Place) -> Result<Vec<Value>, Problem> {
    match given {
        Given::Json(Value::Array(keys)) => Ok(keys.clone()),
        _ => Err(match place {
            Place::Query => Problem::bad_request("`keys` parameter must be an array."),
            Place::Body => Problem::bad_request("`keys` body member must be an array."),
            Place::Queries => Problem::query_parse("`keys` must be an array of strings."),
        }),
    }
}

fn limit(limit: u64) -> Result<u64, Problem> {
    if limit > LIMIT_MAX {
        return Err(Problem::query_parse(format!("Limit is too large, must not exceed {LIMIT_MAX}")));
    }
    Ok(limit)
}

/// A parameter's value: the text of a query string, or JSON.
enum Given<'a> {
    Text(&'a str),
    Json(&'a Value),
}

impl Given<'_> {
    fn json(&self) -> Option<Value> {
        match self {
            Given::Json(value) => Some((*value).clone()),
            Given::Text(text) => Some(Value::String((*text).to_owned())),
        }
    }

    fn string(&self) -> Option<String> {
        match self {
            Given::Text(text) => Some((*text).to_owned()),
            Given::Json(value) => value.as_str().map(str::to_owned),
        }
    }

    /// How an error message shows the value.
    fn shown(&self) -> String {
        match self {
            Given::Text("") => "[]".to_owned(),
            Given::Text(text) => format!("\"{text}\""),
            Given::Json(value) => String::from_utf8_lossy(&value.to_vec()).into_owned(),
        }
    }

    fn boolean(&self) -> Result<bool, Problem> {
        let text = match self {
            Given::Json(Value::Bool(value)) => return Ok(*value),
            Given::Json(Value::String(text)) => text.as_str(),
            Given::Json(_) => "",
            Given::Text(text) => text,
        };
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Problem::query_parse(format!("Invalid boolean parameter: {}", self.shown()))),
        }
    }

    fn integer(&self) -> Result<u64, Problem> {
        let number = match self {
            Given::Text(text) => integer_text(text),
            Given::Json(Value::Int(number)) => Some(u64::try_from(*number).ok()),
            Given::Json(value @ Value::Big(_)) => Some((!value.to_vec().starts_with(b"-")).then_some(u64::MAX)),
            Given::Json(_) => None,
        };
        match number {
            Some(Some(number)) => Ok(number),
            Some(None) => Err(Problem::query_parse(format!("Invalid value for positive integer: {}", self.shown()))),
            None => Err(Problem::query_parse(format!("Invalid value for integer: {}", self.shown()))),
        }
    }

    fn one_of(&self, name: &str, values: &[&str]) -> Result<(), Problem> {
        let text = match self {
            Given::Text(text) => text,
            Given::Json(Value::String(text)) => text.as_str(),
            Given::Json(Value::Bool(true)) => "true",
            Given::Json(Value::Bool(false)) => "false",
            Given::Json(_) => "",
        };
        if values.contains(&text) { Ok(()) } else { Err(Problem::query_parse(format!("Invalid value for `{name}`."))) }
    }
}

/// An integer as query strings write it (`+5` and `007` count); `Some(None)` is a negative one. Large ones saturate.
fn integer_text(text: &str) -> Option<Option<u64>> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().unwrap_or(u64::MAX);
    Some(if text.starts_with('-') && number > 0 { None } else { Some(number) })
}

#[cfg(test)]
mod tests;
