//! The body of `_find` and `_explain` (CouchDB documentation, 'POST /{db}/_find'). What is wrong with it is looked for
//! in a fixed order: the selector first, unknown keys last (as CouchDB 3.5 was measured).

use num_bigint::Sign as NumberSign;

use super::MangoError;
use super::bookmark::Bookmark;
use super::groups::GroupBy;
use crate::document::json::{Object, Value};
use crate::document::selector::{Fields, Selector, erlang_pretty};

/// Results of a page when the request names no `limit`.
const DEFAULT_LIMIT: u64 = 25;

const KEYS: [&str; 19] = [
    "selector",
    "use_index",
    "bookmark",
    "limit",
    "skip",
    "sort",
    "fields",
    "partition",
    "r",
    "conflicts",
    "stale",
    "update",
    "stable",
    "execution_stats",
    "allow_fallback",
    // Extensions of settee.
    "count",
    "group_by",
    "aggregate",
    "index_hint",
];

/// Fields in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sort {
    /// The fields, with escapes as they were written.
    pub fields: Vec<String>,
    /// From the greatest to the least.
    pub descending: bool,
}

impl Sort {
    /// Reads `["a", {"b": "asc"}]`.
    ///
    /// # Errors
    /// `invalid_sort_json`, `invalid_sort_field`, `unsupported_mixed_sort`.
    pub fn parse(value: &Value) -> Result<Sort, MangoError> {
        let list = value.as_array().ok_or_else(|| {
            let shown = erlang_pretty(value);
            MangoError::new("invalid_sort_json", format!("Sort must be an array of sort specs, not: {shown}"))
        })?;
        let mut sort = Sort::default();
        let mut directions = Vec::new();
        for element in list {
            let (name, descending) = column(element).ok_or_else(|| {
                MangoError::new("invalid_sort_field", format!("Invalid sort field: {}", erlang_pretty(element)))
            })?;
            sort.fields.push(name);
            directions.push(descending);
        }
        sort.descending = directions.first() == Some(&true);
        if directions.iter().any(|one| *one != sort.descending) {
            let reason = "Sorts currently only support a single direction for all fields.";
            return Err(MangoError::new("unsupported_mixed_sort", reason));
        }
        Ok(sort)
    }

    /// The direction's name.
    pub fn direction(&self) -> &'static str {
        if self.descending { "desc" } else { "asc" }
    }
}

fn column(value: &Value) -> Option<(String, bool)> {
    match value {
        Value::String(name) if !name.is_empty() => Some((name.clone(), false)),
        Value::Object(object) if object.len() == 1 => {
            let (name, direction) = object.iter().next()?;
            match direction.as_str()? {
                "asc" => Some((name.to_owned(), false)),
                "desc" => Some((name.to_owned(), true)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A query.
#[derive(Clone, Debug)]
pub struct FindRequest {
    /// Which documents.
    pub selector: Selector,
    /// A design document, in a list with or without its `_design/`, perhaps with the name of one of its indexes.
    pub use_index: Vec<String>,
    /// Where the page before ended, as the client said it; see [`FindRequest::after`].
    pub bookmark: Option<String>,
    /// Documents at most.
    pub limit: u64,
    /// Matching documents to leave out.
    pub skip: u64,
    /// The order.
    pub sort: Sort,
    /// What is given of each document.
    pub fields: Fields,
    /// `partition` as it stands in the body.
    pub partition: Option<Value>,
    /// Replicas to read from.
    pub r: u64,
    /// Show `_conflicts`.
    pub conflicts: bool,
    /// Accept an index that is behind (`stale=ok`).
    pub stale: bool,
    /// Bring the index up to date first.
    pub update: bool,
    /// Always ask the same replicas.
    pub stable: bool,
    /// Tell what the query cost.
    pub execution_stats: bool,
    /// Whether another index than the one named may be used; `None`: not said, which allows it.
    pub allow_fallback: Option<bool>,
    /// Extension: tell how many documents match in all.
    pub count: bool,
    /// Extension: groups of documents instead of documents.
    pub groups: Option<GroupBy>,
    /// Extension: name the index that would help.
    pub index_hint: bool,
}

impl FindRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// The first of those in `conformance/cases/queries`.
    pub fn parse(body: &Object) -> Result<FindRequest, MangoError> {
        let selector = body
            .get("selector")
            .ok_or_else(|| MangoError::new("missing_required_key", "Missing required key: selector"))?;
        let request = FindRequest {
            selector: Selector::parse(selector)?,
            use_index: body.get("use_index").map_or(Ok(Vec::new()), use_index)?,
            bookmark: body.get("bookmark").map_or(Ok(None), bookmark)?,
            limit: not_negative(body.get("limit"), DEFAULT_LIMIT)?,
            skip: not_negative(body.get("skip"), 0)?,
            sort: body.get("sort").map_or(Ok(Sort::default()), Sort::parse)?,
            fields: body.get("fields").map_or(Ok(Fields::default()), Fields::parse)?,
            partition: body.get("partition").cloned(),
            r: positive(body.get("r"), 1)?,
            conflicts: boolean(body.get("conflicts"), false)?,
            stale: body.get("stale").map_or(Ok(false), stale)?,
            update: boolean(body.get("update"), true)?,
            stable: boolean(body.get("stable"), false)?,
            execution_stats: boolean(body.get("execution_stats"), false)?,
            allow_fallback: body.get("allow_fallback").map(|value| boolean(Some(value), true)).transpose()?,
            count: boolean(body.get("count"), false)?,
            groups: GroupBy::parse(body)?,
            index_hint: boolean(body.get("index_hint"), false)?,
        };
        check_keys(body, &KEYS)?;
        Ok(request)
    }

    /// Where the page before ended. Asked for when all else is settled: whether a bookmark can be read counts last, and
    /// not for `_explain`.
    ///
    /// # Errors
    /// `invalid_bookmark`.
    pub fn after(&self) -> Result<Option<Bookmark>, MangoError> {
        self.bookmark.as_deref().map(Bookmark::decode).transpose()
    }
}

/// Refuses keys that are not among `known`.
///
/// # Errors
/// `invalid_key`.
pub fn check_keys(body: &Object, known: &[&str]) -> Result<(), MangoError> {
    match body.iter().find(|(name, _)| !known.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(MangoError::new("invalid_key", format!("Invalid key {name} for this request."))),
    }
}

fn use_index(value: &Value) -> Result<Vec<String>, MangoError> {
    let refused = || MangoError::about("invalid_index_name", "Invalid index name: ", value);
    let parts: Vec<String> = match value {
        Value::String(text) => {
            let name = text.strip_prefix("_design/").unwrap_or(text);
            name.split('/').map(str::to_owned).collect()
        }
        Value::Null => Vec::new(),
        Value::Array(list) => {
            let text = |part: &Value| part.as_str().map(str::to_owned);
            list.iter().map(text).collect::<Option<_>>().ok_or_else(refused)?
        }
        _ => return Err(refused()),
    };
    if parts.len() > 2 { Err(refused()) } else { Ok(parts) }
}

fn bookmark(value: &Value) -> Result<Option<String>, MangoError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(MangoError::about("invalid_bookmark", "Invalid bookmark value: ", other)),
    }
}

fn stale(value: &Value) -> Result<bool, MangoError> {
    match value {
        Value::Bool(false) => Ok(false),
        Value::String(text) if text == "ok" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(MangoError::about("invalid_ok_or_false_value", "Invalid value of stale: ", other)),
    }
}

fn not_negative(value: Option<&Value>, default: u64) -> Result<u64, MangoError> {
    let Some(value) = value else { return Ok(default) };
    // A number that 64 bits do not hold is as good as the greatest.
    let is_huge = matches!(value, Value::Big(number) if number.sign() == NumberSign::Plus);
    let number = value.as_u64().or(is_huge.then_some(u64::MAX));
    number.ok_or_else(|| {
        let reason = format!(
            "{} is not an integer greater than or equal to zero",
            crate::document::selector::erlang_term(value)
        );
        MangoError::new("invalid_non_neg_integer", reason)
    })
}

/// A whole number above 0.
///
/// # Errors
/// `invalid_pos_integer`.
pub fn positive(value: Option<&Value>, default: u64) -> Result<u64, MangoError> {
    let Some(value) = value else { return Ok(default) };
    value.as_u64().filter(|number| *number > 0).ok_or_else(|| {
        let reason = format!("{} is not an integer greater than zero", crate::document::selector::erlang_term(value));
        MangoError::new("invalid_pos_integer", reason)
    })
}

fn boolean(value: Option<&Value>, default: bool) -> Result<bool, MangoError> {
    let Some(value) = value else { return Ok(default) };
    value.as_bool().ok_or_else(|| MangoError::about("invalid_boolean", "Invalid boolean value: ", value))
}
