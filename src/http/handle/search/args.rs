//! Parameters of searches, from query strings and from POST bodies (`conformance/cases/search`).
//!
//! Pure. Parameters are read one after another; of repeated ones the last counts, except for `drilldown`, whose values
//! add up in a query string. Unknown names are ignored.

use std::collections::BTreeMap;

use settee_search::query::with_prefix;
use settee_search::search::{Group, Highlight, Request, Sort};

use crate::document::json::{self, Object, Value};
use crate::document::selector::{erlang_string, erlang_term, erlang_text};
use crate::http::problem::{Problem, Result};
use crate::http::query::Query;
use crate::limits;

/// Fragments of each stored value, and their characters.
const HIGHLIGHTS: (usize, usize) = (1, 100);

/// A search as a client asks it.
#[derive(Debug, Default)]
pub struct SearchArgs {
    /// `q` or `query`.
    pub query: Option<String>,
    /// `bookmark`.
    pub bookmark: Option<String>,
    /// `stale=ok`.
    pub is_stale: bool,
    /// `include_docs`.
    pub include_docs: bool,
    /// `partition`.
    pub partition: Option<String>,
    /// Whether groups come in the old form, `group_by`.
    pub old_groups: bool,
    indexes: Option<Vec<String>>,
    /// Whether the last word of the query is still being typed.
    is_typed: bool,
    limit: Option<u64>,
    sort: Vec<Sort>,
    group_field: Option<String>,
    group_sort: Option<Vec<Sort>>,
    group_limit: Option<u64>,
    include_fields: Option<Vec<String>>,
    counts: Option<Vec<String>>,
    ranges: Option<BTreeMap<String, BTreeMap<String, String>>>,
    drilldown: Vec<Vec<String>>,
    highlight_fields: Option<Vec<String>>,
    highlight_tags: (Option<String>, Option<String>),
    highlight_number: Option<u64>,
    highlight_size: Option<u64>,
    /// What is wrong with facets, told behind all that does not go together, as in CouchDB.
    refused: Option<Problem>,
}

/// A parameter of a query string as text, of a body as JSON.
#[derive(Clone, Copy)]
enum Given<'g> {
    Text(&'g str),
    Json(&'g Value),
}

impl Given<'_> {
    /// A parameter that is JSON in both.
    fn json(self) -> Result<Value> {
        match self {
            Given::Text(text) => json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json()),
            Given::Json(value) => Ok(value.clone()),
        }
    }

    /// One that is plain text in a query string; what is none is shown as JSON.
    fn text(self) -> String {
        match self {
            Given::Text(text) => text.to_owned(),
            Given::Json(value) => shown(value),
        }
    }

    fn as_erlang(self) -> String {
        match self {
            Given::Text(text) => erlang_string(text),
            Given::Json(Value::String(text)) => erlang_text(text),
            Given::Json(value) => erlang_term(value),
        }
    }

    fn integer(self) -> Option<i64> {
        match self {
            Given::Text(text) => text.parse().ok(),
            Given::Json(value) => value.as_i64(),
        }
    }

    fn above_zero(self, name: &str) -> Result<u64> {
        let number = self.integer().ok_or_else(|| invalid(name, self))?;
        let too_small = || Problem::query_parse(format!("{name} must be greater than zero"));
        u64::try_from(number).ok().filter(|number| *number > 0).ok_or_else(too_small)
    }

    fn boolean(self, name: &str) -> Result<bool> {
        match self {
            Given::Json(Value::Bool(flag)) => Ok(*flag),
            Given::Text(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Given::Text(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            given => Err(invalid(name, given)),
        }
    }
}

fn invalid(name: &str, given: Given<'_>) -> Problem {
    Problem::query_parse(format!("Invalid value for {name}: {}", given.as_erlang()))
}

/// A text as it is, other JSON as its text.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => String::from_utf8_lossy(&other.to_vec()).into_owned(),
    }
}

fn not_valid(name: &str, value: &Value) -> Problem {
    Problem::bad_request(format!("{} is not a valid {name} query", shown(value)))
}

impl SearchArgs {
    /// Of a GET.
    ///
    /// # Errors
    /// 400 as facts of search say.
    pub fn of_query(query: &Query) -> Result<SearchArgs> {
        let mut args = SearchArgs::default();
        query.iter().try_for_each(|(name, text)| args.take(name, Given::Text(text)))?;
        Ok(args)
    }

    /// Of a POST, and the partition of its query string.
    ///
    /// # Errors
    /// 400 as facts of search say.
    pub fn of_body(body: &Object, query: &Query) -> Result<SearchArgs> {
        let mut args = SearchArgs::default();
        body.iter().try_for_each(|(name, value)| args.take(name, Given::Json(value)))?;
        args.join_partition(query.get("partition"))?;
        Ok(args)
    }

    /// The partition that is named elsewhere, too.
    ///
    /// # Errors
    /// 400 where the two differ.
    pub fn join_partition(&mut self, other: Option<&str>) -> Result<()> {
        match (&self.partition, other) {
            (Some(own), Some(other)) if own != other => {
                Err(Problem::bad_request("Multiple conflicting values for `partition` provided"))
            }
            (_, Some(other)) => {
                self.partition = Some(other.to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, name: &str, given: Given<'_>) -> Result<()> {
        match name {
            "q" | "query" => self.query = Some(given.text()),
            "bookmark" => self.bookmark = Some(given.text()),
            "partition" => self.partition = Some(given.text()),
            "limit" => self.limit = Some(limit(given)?),
            "sort" => self.sort = sorts(&given.json()?)?,
            "stale" => self.is_stale = self.is_stale || is_stale(given)?,
            "stable" => _ = given.boolean(name)?,
            "indexes" => self.indexes = Some(names(name, &given.json()?)?),
            "prefix" => self.is_typed = given.boolean(name)?,
            "include_docs" => match given {
                Given::Json(value) => self.include_docs = value.as_bool().unwrap_or(self.include_docs),
                given => self.include_docs = given.boolean(name)?,
            },
            "group_by" | "group_field" => {
                self.group_field = Some(given.text());
                self.old_groups = name == "group_by";
            }
            "group_sort" => self.group_sort = Some(sorts(&given.json()?)?),
            "group_limit" => self.group_limit = Some(group_limit(given)?),
            "include_fields" => self.include_fields = Some(names(name, &given.json()?)?),
            "counts" => {
                let counts = names(name, &given.json()?);
                self.counts = Some(self.or_later(counts));
            }
            "ranges" => {
                let ranges = ranges(&given.json()?);
                self.ranges = Some(self.or_later(ranges));
            }
            "drilldown" => {
                let more = drilled(&given.json()?);
                if more.is_err() {
                    // It counts as given.
                    self.drilldown.push(Vec::new());
                }
                let more = self.or_later(more);
                self.drilldown.extend(more);
            }
            "highlight_fields" => self.highlight_fields = Some(names(name, &given.json()?)?),
            "highlight_pre_tag" => self.highlight_tags.0 = Some(shown(&given.json()?)),
            "highlight_post_tag" => self.highlight_tags.1 = Some(shown(&given.json()?)),
            "highlight_number" => self.highlight_number = Some(given.above_zero(name)?),
            "highlight_size" => self.highlight_size = Some(given.above_zero(name)?),
            _ => {}
        }
        Ok(())
    }

    /// A value, or none where it is wrong, which is told later.
    fn or_later<T: Default>(&mut self, value: Result<T>) -> T {
        value.unwrap_or_else(|problem| {
            self.refused.get_or_insert(problem);
            T::default()
        })
    }

    /// The names of the indexes that are asked together.
    ///
    /// # Errors
    /// 400 without any, with too many, with one named twice, and with groups.
    pub fn several(&self) -> Result<Vec<String>> {
        let names = self.indexes.clone().ok_or_else(|| Problem::bad_request("path not recognized"))?;
        let most = limits::SEARCH_INDEXES_MAX;
        if names.is_empty() || names.len() > most {
            return Err(Problem::query_parse(format!("`indexes` must name 1 to {most} indexes")));
        }
        if let Some(name) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            return Err(Problem::query_parse(format!("`indexes` names {} twice", names[name])));
        }
        match self.group_field {
            Some(_) => Err(Problem::query_parse("`indexes` and `group_field` are incompatible")),
            None => Ok(names),
        }
    }

    /// Whether it asks for what no partition answers.
    fn is_global(&self) -> bool {
        self.counts.is_some()
            || self.ranges.is_some()
            || !self.drilldown.is_empty()
            || self.group_field.is_some()
            || self.group_sort.is_some()
            || self.group_limit.is_some_and(|limit| limit != limits::SEARCH_GROUPS_DEFAULT)
    }

    /// What all parameters are together. `partitioned`: the database, and the index, are.
    ///
    /// # Errors
    /// 400 without a query, and for what does not go together.
    pub fn check(&mut self, partitioned: (bool, bool)) -> Result<()> {
        let missing = || Problem::query_parse("Query must include a 'q' or 'query' argument");
        let query = self.query.as_ref().ok_or_else(missing)?;
        match (partitioned.1, &self.partition) {
            (true, None) => {
                return Err(Problem::bad_request("`partition` parameter is mandatory for queries to this index."));
            }
            (false, Some(_)) => return Err(Problem::bad_request("`partition` not supported on this index")),
            _ => {}
        }
        let most = if partitioned.0 { limits::SEARCH_LIMIT_PARTITIONED } else { limits::SEARCH_LIMIT_MAX };
        if self.limit.is_some_and(|limit| limit > most) {
            return Err(Problem::query_parse(format!("Value for limit is too large, must not exceed {most}")));
        }
        if self.group_field.is_some() && self.limit == Some(0) {
            return Err(Problem::query_parse("limit must be greater than zero"));
        }
        if self.partition.is_some() && self.is_global() {
            return Err(Problem::bad_request(
                "`partition` and any of `drilldown`, `ranges`, `group_field`, `group_sort`, `group_limit` or `group_by` \
                 are incompatible",
            ));
        }
        if query.len() > limits::SEARCH_QUERY_BYTES {
            let most = limits::SEARCH_QUERY_BYTES;
            return Err(Problem::bad_request(format!("The query is longer than {most} bytes.")));
        }
        if self.names() > limits::SEARCH_NAMES_MAX {
            let most = limits::SEARCH_NAMES_MAX;
            return Err(Problem::bad_request(format!("The search names more than {most} fields and values.")));
        }
        self.refused.take().map_or(Ok(()), Err)
    }

    /// Fields, values and ranges that it names.
    fn names(&self) -> usize {
        let length = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
        let ranges = self.ranges.iter().flatten().map(|(_, ranges)| 1 + ranges.len()).sum::<usize>();
        let sorts = self.sort.len() + self.group_sort.as_ref().map_or(0, Vec::len);
        let drilled = self.drilldown.iter().map(Vec::len).sum::<usize>();
        ranges + sorts + drilled + length(&self.counts) + length(&self.include_fields) + length(&self.highlight_fields)
    }

    /// What is asked of each range of a database, which is partitioned or not.
    ///
    /// # Errors
    /// 400 for a group field that is none, and a field that is drilled twice.
    pub fn request(&self, partitioned: bool) -> Result<Request> {
        let default = if partitioned { limits::SEARCH_LIMIT_PARTITIONED } else { limits::SEARCH_LIMIT_DEFAULT };
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut drilled: Vec<&String> = Vec::new();
        for field in self.drilldown.iter().filter_map(|one| one.first()) {
            if drilled.contains(&field) {
                return Err(Problem::bad_request(format!("dimension '{field}' was already added")));
            }
            drilled.push(field);
        }
        let group = match &self.group_field {
            None => None,
            Some(field) => Some(Group {
                field: group_field(field)?,
                limit: number(self.group_limit.unwrap_or(limits::SEARCH_GROUPS_DEFAULT)),
                sort: self.group_sort.clone().unwrap_or_default(),
                only: None,
            }),
        };
        let highlight = self.highlight_fields.clone().map(|fields| Highlight {
            fields,
            pre_tag: self.highlight_tags.0.clone().unwrap_or_else(|| "<em>".to_owned()),
            post_tag: self.highlight_tags.1.clone().unwrap_or_else(|| "</em>".to_owned()),
            number: self.highlight_number.map_or(HIGHLIGHTS.0, number),
            size: self.highlight_size.map_or(HIGHLIGHTS.1, number),
        });
        // Groups have rows by their own default, whatever the database.
        let default = if group.is_some() { limits::SEARCH_LIMIT_DEFAULT } else { default };
        let query = self.query.as_deref().unwrap_or_default();
        Ok(Request {
            query: if self.is_typed { with_prefix(query) } else { query.to_owned() },
            limit: number(self.limit.unwrap_or(default)),
            sort: self.sort.clone(),
            after: None,
            partition: self.partition.clone(),
            counts: self.counts.clone(),
            ranges: self.ranges.clone(),
            drilldown: self.drilldown.clone(),
            group,
            include_fields: self.include_fields.clone(),
            highlight,
        })
    }
}

/// One list of a field and values, or several.
fn drilled(value: &Value) -> Result<Vec<Vec<String>>> {
    let refused = || not_valid("drilldown", value);
    let list = value.as_array().ok_or_else(refused)?;
    let texts = |list: &[Value]| -> Option<Vec<String>> {
        list.iter().map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let more: Vec<Vec<String>> = match list.first() {
        Some(Value::Array(_)) => {
            list.iter().map(|one| one.as_array().and_then(texts)).collect::<Option<_>>().ok_or_else(refused)?
        }
        _ => vec![texts(list).ok_or_else(refused)?],
    };
    Ok(more.into_iter().filter(|one| !one.is_empty()).collect())
}

fn is_stale(given: Given<'_>) -> Result<bool> {
    match given {
        Given::Text("ok") => Ok(true),
        Given::Text(_) => Err(Problem::query_parse("stale only available as stale=ok")),
        Given::Json(value) => Ok(value.as_str() == Some("ok")),
    }
}

fn limit(given: Given<'_>) -> Result<u64> {
    let value = given.json()?;
    let number = value.as_i64().ok_or_else(|| invalid("limit", Given::Json(&value)))?;
    u64::try_from(number).map_err(|_| Problem::query_parse("limit must be greater than or equal to zero"))
}

fn group_limit(given: Given<'_>) -> Result<u64> {
    let number = given.above_zero("group_limit")?;
    let most = limits::SEARCH_LIMIT_MAX;
    match number > most {
        true => Err(Problem::query_parse(format!("Value for group_limit is too large, must not exceed {most}"))),
        false => Ok(number),
    }
}

fn names(name: &str, value: &Value) -> Result<Vec<String>> {
    let texts = |list: &[Value]| list.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>();
    value.as_array().and_then(texts).ok_or_else(|| not_valid(name, value))
}

fn ranges(value: &Value) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let refused = || not_valid("ranges", value);
    let texts = |object: &Object| -> Option<BTreeMap<String, String>> {
        object.iter().map(|(label, range)| Some((label.to_owned(), range.as_str()?.to_owned()))).collect()
    };
    let field = |(name, ranges): (&str, &Value)| Some((name.to_owned(), texts(ranges.as_object()?)?));
    value.as_object().ok_or_else(refused)?.iter().map(field).collect::<Option<_>>().ok_or_else(refused)
}

/// An order: one of its parts, or a list of them.
///
/// # Errors
/// 400 `Unrecognized sort parameter`, `Unrecognized type`.
pub fn sorts(value: &Value) -> Result<Vec<Sort>> {
    let part = |value: &Value| value.as_str().map_or_else(|| Err(unrecognized(&shown(value))), sort);
    match value {
        Value::Array(parts) => parts.iter().map(part).collect(),
        one => Ok(vec![part(one)?]),
    }
}

fn unrecognized(text: &str) -> Problem {
    Problem::bad_request(format!("Unrecognized sort parameter: {text}"))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || "_.".contains(char))
}

fn sort(text: &str) -> Result<Sort> {
    let refused = || unrecognized(text);
    match text {
        // The best have the highest scores.
        "-<score>" => return Ok(Sort::Score { reverse: false }),
        "<score>" => return Ok(Sort::Score { reverse: true }),
        "<doc>" => return Ok(Sort::Number { reverse: false }),
        "-<doc>" => return Ok(Sort::Number { reverse: true }),
        _ => {}
    }
    let (reverse, rest) = match text.split_at_checked(1) {
        Some(("-", rest)) => (true, rest),
        Some(("+", rest)) => (false, rest),
        _ => (false, text),
    };
    if let Some(inner) = rest.strip_prefix("<distance,").and_then(|rest| rest.strip_suffix('>')) {
        return distance(inner, reverse).ok_or_else(refused);
    }
    let (name, kind) = match rest.split_once('<') {
        None => (rest, "number"),
        Some((name, kind)) => (name, kind.strip_suffix('>').filter(|kind| is_word(kind)).ok_or_else(refused)?),
    };
    if !is_name(name) {
        return Err(refused());
    }
    match kind {
        "number" | "string" => Ok(Sort::Field { name: name.to_owned(), is_text: kind == "string", reverse }),
        kind => Err(Problem::bad_request(format!("Unrecognized type: {kind}"))),
    }
}

fn is_word(text: &str) -> bool {
    is_name(text) && !text.contains('.')
}

/// `longitude field,latitude field,longitude,latitude,unit`
fn distance(text: &str, reverse: bool) -> Option<Sort> {
    let [longitude, latitude, x, y, unit] = text.split(',').collect::<Vec<_>>()[..] else { return None };
    let number = |text: &str| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (is_digits(whole) && is_digits(part)).then(|| text.parse::<f64>().ok()).flatten()
    };
    let is_miles = match unit {
        "mi" => true,
        "km" => false,
        _ => return None,
    };
    if !is_name(longitude) || !is_name(latitude) {
        return None;
    }
    let (longitude, latitude) = (longitude.to_owned(), latitude.to_owned());
    Some(Sort::Distance { longitude, latitude, from: (number(x)?, number(y)?), is_miles, reverse })
}

fn group_field(text: &str) -> Result<String> {
    let refused = |what: &str| Problem::bad_request(format!("Unrecognized group_field {what}: {text}"));
    let (name, kind) = match text.split_once('<') {
        None => (text, "string"),
        Some((name, kind)) => {
            (name, kind.strip_suffix('>').filter(|kind| is_word(kind)).ok_or_else(|| refused("parameter"))?)
        }
    };
    match kind {
        _ if !is_name(name) => Err(refused("parameter")),
        "string" => Ok(name.to_owned()),
        "number" => Err(Problem::bad_request("Group by number not supported. Group by string terms only.")),
        _ => Err(refused("value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(result: Result<impl std::fmt::Debug>) -> String {
        result.unwrap_err().reason.into_owned()
    }

    #[test]
    fn sorts_are_read_or_named_as_they_are() {
        let field = |name: &str, is_text, reverse| Sort::Field { name: name.to_owned(), is_text, reverse };
        for (text, expected) in [
            ("n", field("n", false, false)),
            ("+n", field("n", false, false)),
            ("-a.b_c<string>", field("a.b_c", true, true)),
            ("n<number>", field("n", false, false)),
            ("-<score>", Sort::Score { reverse: false }),
            ("<doc>", Sort::Number { reverse: false }),
        ] {
            assert_eq!(sort(text).unwrap(), expected, "{text}");
        }
        let near = sort("-<distance,lo,la,-0.5,50,mi>").unwrap();
        let (longitude, latitude) = ("lo".to_owned(), "la".to_owned());
        assert_eq!(near, Sort::Distance { longitude, latitude, from: (-0.5, 50.0), is_miles: true, reverse: true });
        for bad in ["", "-", "le-gs", "x y", "legs>", "legs<string", "<legs>", "<distance,lo,la,x,y,km>", "n<>"] {
            assert_eq!(reason(sort(bad)), format!("Unrecognized sort parameter: {bad}"));
        }
        assert_eq!(reason(sort("legs<float>")), "Unrecognized type: float");
    }

    #[test]
    fn parameters_of_a_query_string_are_json_or_text() {
        let args = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            SearchArgs::of_query(&Query::from_pairs(pairs.collect()))
        };
        let given = args(&[("q", "a"), ("query", "b"), ("sort", "\"n\""), ("drilldown", r#"["a","b"]"#), ("x", "y")]);
        let request = given.unwrap().request(false).unwrap();
        assert_eq!((request.query.as_str(), request.limit, request.drilldown.len()), ("b", 25, 1));
        for (name, text, expected) in [
            ("sort", "n", "invalid UTF-8 JSON"),
            ("limit", "\"5\"", "Invalid value for limit: <<\"5\">>"),
            ("limit", "-1", "limit must be greater than or equal to zero"),
            ("group_limit", "x", "Invalid value for group_limit: \"x\""),
            ("group_limit", "201", "Value for group_limit is too large, must not exceed 200"),
            ("stale", "x", "stale only available as stale=ok"),
            ("include_docs", "1", "Invalid value for include_docs: \"1\""),
            ("include_fields", "[1]", "[1] is not a valid include_fields query"),
            ("highlight_size", "-5", "highlight_size must be greater than zero"),
        ] {
            assert_eq!(reason(args(&[(name, text)])), expected, "{name}={text}");
        }
        assert_eq!(reason(args(&[]).unwrap().check((false, false))), "Query must include a 'q' or 'query' argument");
    }

    #[test]
    fn a_body_ignores_what_a_query_string_refuses() {
        let args = |text: &str, query: &str| {
            let body = json::parse(text.as_bytes()).unwrap();
            SearchArgs::of_body(body.as_object().unwrap(), &Query::parse(query))
        };
        let given = args(r#"{"q":"a","include_docs":"yes","stale":"no","partition":"p"}"#, "partition=p&q=b").unwrap();
        assert_eq!((given.query.as_deref(), given.include_docs, given.is_stale), (Some("a"), false, false));
        assert!(reason(args(r#"{"partition":"a"}"#, "partition=b")).starts_with("Multiple conflicting"));
        assert_eq!(reason(args(r#"{"highlight_size":"x"}"#, "")), "Invalid value for highlight_size: <<\"x\">>");
    }
}
