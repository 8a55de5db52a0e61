//! Arguments of `_all_docs`, `_design_docs`, `_local_docs` and of views, from query strings and from POST bodies.
//!
//! Pure. Parameters are read one after another, as CouchDB does: each sets its value whatever was set before it, so the
//! last of repeated ones counts, also between `key` and `startkey`. A parameter is read the same way from both, with
//! two exceptions that CouchDB 3.5 was measured to make: numbers in a body must be JSON numbers, and JSON parameters of
//! a query string are decoded first. Unknown names are ignored.

use crate::config::Config;
use crate::coordinator::{Grouping, Update};
use crate::document::id::check_partition;
use crate::document::json::{self, Object, Value};
use crate::document::selector::{erlang_pretty, erlang_string};
use crate::http::problem::Problem;
use crate::http::query::Query;

/// The largest `limit` that CouchDB takes (2^59 - 1); a larger one is refused.
const LIMIT_MAX: u64 = 576_460_752_303_423_487;

/// Parameters of a list of rows; the defaults are those of a request without any.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewArgs {
    /// `keys`: the rows to list, in this order.
    pub keys: Option<Vec<Value>>,
    /// `startkey`, first in the direction of reading. `key` is both this and the other bound.
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
    /// `conflicts`, when given; with `include_docs` it adds `_conflicts`.
    pub conflicts: Option<bool>,
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
    /// `group`, when given.
    pub group: Option<bool>,
    /// `group_level`, when given.
    pub group_level: Option<u64>,
    /// Whether totals are wanted (views only).
    pub sorted: bool,
    /// Whether a view is updated, by `update` or `stale`.
    pub update: Update,
    /// Whether repeated queries of a view ask the same replicas, by `stable`.
    pub stable: bool,
    /// `partition`, when given.
    pub partition: Option<String>,
}

impl Default for ViewArgs {
    fn default() -> Self {
        ViewArgs {
            keys: None,
            start_key: None,
            end_key: None,
            start_doc_id: None,
            end_doc_id: None,
            inclusive_end: true,
            descending: false,
            include_docs: false,
            conflicts: None,
            attachments: false,
            att_encoding_info: false,
            update_seq: false,
            limit: LIMIT_MAX,
            skip: 0,
            reduce: None,
            group: None,
            group_level: None,
            sorted: true,
            update: Update::Before,
            stable: false,
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
    ViewQuery,
    ViewBody,
}

impl ViewArgs {
    /// Arguments of a GET.
    ///
    /// # Errors
    /// 400 `query_parse_error`, or `bad_request` for what is not JSON.
    pub fn from_query(query: &Query) -> Result<ViewArgs, Problem> {
        let mut args = ViewArgs::default();
        args.take_query(query, Place::Query)?;
        args.check_list()?;
        Ok(args)
    }

    /// Arguments of a list of databases, which says of bad keys what a view says.
    ///
    /// # Errors
    /// As [`ViewArgs::from_query`].
    pub fn of_databases(query: &Query) -> Result<ViewArgs, Problem> {
        let mut args = ViewArgs::default();
        args.take_query(query, Place::ViewQuery)?;
        args.check_list()?;
        Ok(args)
    }

    /// Arguments of a GET of a view. A list of one key is that key.
    ///
    /// # Errors
    /// As [`ViewArgs::from_query`].
    pub fn of_view(query: &Query) -> Result<ViewArgs, Problem> {
        let mut args = ViewArgs::default();
        args.take_query(query, Place::ViewQuery)?;
        args.check()?;
        args.unfold_one_key();
        Ok(args)
    }

    /// Arguments of a POST to a view.
    ///
    /// # Errors
    /// As [`ViewArgs::from_query`].
    pub fn of_view_body(body: &Object, query: &Query) -> Result<ViewArgs, Problem> {
        if body.contains("queries") {
            return Err(Problem::bad_request("The `queries` parameter is no longer supported at this endpoint"));
        }
        let mut args = ViewArgs::default();
        args.take_members(body, Place::ViewBody)?;
        args.take_query(query, Place::ViewQuery)?;
        args.check()?;
        args.unfold_one_key();
        Ok(args)
    }

    /// Arguments of each item of a view's `queries` body.
    ///
    /// # Errors
    /// As [`ViewArgs::from_queries`].
    pub fn of_view_queries(body: &Object, query: &Query) -> Result<Vec<ViewArgs>, Problem> {
        let (defaults, items) = queries_of(body, query)?;
        items.iter().map(|item| defaults.clone().with_item(item)).collect()
    }

    /// Arguments of a POST: the body's members, then the query string's, which win.
    ///
    /// # Errors
    /// As [`ViewArgs::from_query`].
    pub fn from_body(body: &Object, query: &Query) -> Result<ViewArgs, Problem> {
        let mut args = ViewArgs::default();
        args.take_members(body, Place::Body)?;
        args.take_query(query, Place::Query)?;
        args.check_list()?;
        Ok(args)
    }

    /// Arguments of each item of a `queries` body; here the query string gives defaults. A list of one key is that key.
    ///
    /// # Errors
    /// As [`ViewArgs::from_query`]; one bad query refuses all.
    pub fn from_queries(body: &Object, query: &Query) -> Result<Vec<ViewArgs>, Problem> {
        let (defaults, items) = queries_of(body, query)?;
        let one = |item| {
            let args = defaults.clone().with_item(item)?;
            args.check_list()?;
            Ok(args)
        };
        items.iter().map(one).collect()
    }

    /// With the members of an item of a `queries` body.
    fn with_item(mut self, item: &Value) -> Result<ViewArgs, Problem> {
        let Some(members) = item.as_object() else {
            return Err(Problem::bad_request("Request body must be a JSON object"));
        };
        self.take_members(members, Place::Queries)?;
        self.check()?;
        self.unfold_one_key();
        Ok(self)
    }

    fn unfold_one_key(&mut self) {
        if let Some([_]) = self.keys.as_deref() {
            let key = self.keys.take().and_then(|mut keys| keys.pop());
            self.set_key(key);
        }
    }

    fn set_key(&mut self, key: Option<Value>) {
        (self.start_key, self.end_key) = (key.clone(), key);
    }

    fn take_query(&mut self, query: &Query, place: Place) -> Result<(), Problem> {
        for (name, text) in query.iter() {
            match name {
                "key" | "keys" | "startkey" | "start_key" | "endkey" | "end_key" => {
                    let value = json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json())?;
                    self.take(name, &Given::Json(&value), place)?;
                }
                _ => self.take(name, &Given::Text(text), place)?,
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
            "key" => self.set_key(given.json()),
            "keys" => self.keys = Some(keys(given, place)?),
            "startkey" | "start_key" => self.start_key = given.json(),
            "endkey" | "end_key" => self.end_key = given.json(),
            "startkey_docid" | "start_key_doc_id" => self.start_doc_id = Some(given.string()),
            "endkey_docid" | "end_key_doc_id" => self.end_doc_id = Some(given.string()),
            "limit" => self.limit = limit(given.integer()?, LIMIT_MAX)?,
            "skip" => self.skip = given.integer()?,
            "descending" => self.descending = given.boolean()?,
            "include_docs" => self.include_docs = given.boolean()?,
            "inclusive_end" => self.inclusive_end = given.boolean()?,
            "conflicts" => self.conflicts = Some(given.boolean()?),
            "attachments" => self.attachments = given.boolean()?,
            "att_encoding_info" => self.att_encoding_info = given.boolean()?,
            "update_seq" => self.update_seq = given.boolean()?,
            "reduce" => self.reduce = Some(given.boolean()?),
            "group" => self.group = Some(given.boolean()?),
            "group_level" => self.group_level = Some(given.integer()?),
            "partition" => self.partition = Some(given.partition()?),
            "sorted" => self.sorted = given.boolean()?,
            "stable" => self.stable = given.one_of(name, &[("true", true), ("false", false)])?,
            "stale" => {
                let stale = [("ok", Update::Never), ("update_after", Update::After)];
                self.update = given.one_of(name, &stale)?;
            }
            "update" => {
                let update = [("true", Update::Before), ("false", Update::Never), ("lazy", Update::After)];
                self.update = given.one_of(name, &update)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Bounds `limit` by the most rows that one query may ask for, of a view or list `partitioned` or not.
    ///
    /// # Errors
    /// 400 `query_parse_error` for a higher one.
    pub fn bound(&mut self, config: &Config, partitioned: bool) -> Result<(), Problem> {
        let most = match partitioned {
            true => config.u64("query_server_config", "partition_query_limit", LIMIT_MAX),
            false => config.u64("query_server_config", "query_limit", LIMIT_MAX),
        };
        self.limit = if self.limit == LIMIT_MAX { most } else { limit(self.limit, most)? };
        Ok(())
    }

    fn check(&self) -> Result<(), Problem> {
        let has_keys = self.keys.as_ref().is_some_and(|keys| !keys.is_empty());
        if has_keys && (self.start_key.is_some() || self.end_key.is_some()) {
            return Err(Problem::query_parse("`keys` is incompatible with `key`, `start_key` and `end_key`"));
        }
        if self.group == Some(false) && self.group_level > Some(0) {
            let reason = "Can't specify group=false and group_level>0 at the same time";
            return Err(Problem::query_parse(reason));
        }
        Ok(())
    }

    /// What holds for lists of documents, too.
    fn check_list(&self) -> Result<(), Problem> {
        self.check()?;
        self.check_map(false)
    }

    /// Whether the arguments fit rows that are not reduced; `can_reduce`: whether the view could.
    ///
    /// # Errors
    /// 400 `query_parse_error`.
    pub fn check_map(&self, can_reduce: bool) -> Result<(), Problem> {
        if self.reduce == Some(true) && !can_reduce {
            return Err(Problem::query_parse("Reduce is invalid for map-only views."));
        }
        if self.level() != Grouping::All {
            return Err(Problem::query_parse("Invalid use of grouping on a map view."));
        }
        Ok(())
    }

    /// How a reduced query groups its rows, if the arguments fit one.
    ///
    /// # Errors
    /// 400 `query_parse_error`.
    pub fn grouping(&self) -> Result<Grouping, Problem> {
        let grouping = self.level();
        if self.keys.is_some() && grouping != Grouping::Exact {
            return Err(Problem::query_parse("Multi-key fetches for reduce views must use `group=true`"));
        }
        if self.include_docs {
            return Err(Problem::query_parse("`include_docs` is invalid for reduce"));
        }
        if self.conflicts.is_some() {
            return Err(Problem::query_parse("`conflicts` is invalid for reduce views."));
        }
        Ok(grouping)
    }

    /// A level that is given counts, `group` only without.
    fn level(&self) -> Grouping {
        match (self.group_level, self.group) {
            (None, Some(true)) => Grouping::Exact,
            (None | Some(0), _) => Grouping::All,
            (Some(level), _) => Grouping::Level(usize::try_from(level).unwrap_or(usize::MAX)),
        }
    }
}

/// The arguments that the query string gives all items of a `queries` body, and the items. The query string may be
/// wrong where there is no item.
fn queries_of<'a>(body: &'a Object, query: &Query) -> Result<(ViewArgs, &'a [Value]), Problem> {
    let mut defaults = ViewArgs::default();
    defaults.take_query(query, Place::Queries)?;
    match body.get("queries") {
        None => Err(Problem::bad_request("POST body must include `queries` parameter.")),
        Some(Value::Array(items)) => Ok((defaults, items)),
        Some(_) => Err(Problem::bad_request("`queries` member must be an array.")),
    }
}

fn keys(given: &Given<'_>, place: Place) -> Result<Vec<Value>, Problem> {
    match given {
        Given::Json(Value::Array(keys)) => Ok(keys.clone()),
        _ => Err(match place {
            Place::Query => Problem::bad_request("`keys` parameter must be an array."),
            Place::Body => Problem::bad_request("`keys` body member must be an array."),
            Place::Queries | Place::ViewQuery => Problem::query_parse("`keys` must be an array of strings."),
            Place::ViewBody => Problem::bad_request("`keys` member must be an array."),
        }),
    }
}

fn limit(limit: u64, most: u64) -> Result<u64, Problem> {
    if limit > most {
        return Err(Problem::query_parse(format!("Limit is too large, must not exceed {most}")));
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

    /// What is no text counts as its JSON.
    fn string(&self) -> String {
        match self {
            Given::Text(text) => (*text).to_owned(),
            Given::Json(Value::String(text)) => text.clone(),
            Given::Json(value) => String::from_utf8_lossy(&value.to_vec()).into_owned(),
        }
    }

    /// The name of a partition.
    fn partition(&self) -> Result<String, Problem> {
        let name = self.string();
        check_partition(&name)?;
        Ok(name)
    }

    /// How an error message shows the value.
    fn shown(&self) -> String {
        match self {
            Given::Json(Value::String(text)) if text.is_empty() => "[]".to_owned(),
            Given::Text(text) => erlang_string(text),
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
            None => {
                let shown = match self {
                    Given::Json(value) => erlang_pretty(value),
                    other => other.shown(),
                };
                Err(Problem::query_parse(format!("Invalid value for integer: {shown}")))
            }
        }
    }

    fn one_of<T: Copy>(&self, name: &str, values: &[(&str, T)]) -> Result<T, Problem> {
        let text = match self {
            Given::Text(text) => text,
            Given::Json(Value::String(text)) => text.as_str(),
            Given::Json(Value::Bool(true)) => "true",
            Given::Json(Value::Bool(false)) => "false",
            Given::Json(_) => "",
        };
        let found = values.iter().find(|(value, _)| *value == text).map(|(_, meaning)| *meaning);
        found.ok_or_else(|| Problem::query_parse(format!("Invalid value for `{name}`.")))
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
