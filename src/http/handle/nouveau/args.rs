//! Parameters of searches of indexes with types, from query strings and from POST bodies. Pure. Unknown names are
//! ignored; a value that is null counts as one that is given.

use std::collections::BTreeMap;

use settee_search::search::nouveau::{Range, Request};

use crate::document::json::{self, Object, Value};
use crate::document::selector::{erlang_string, erlang_term, erlang_text};
use crate::http::problem::{Problem, Result};
use crate::http::query::Query;
use crate::limits;

/// A search as a client asks it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NouveauArgs {
    /// What is asked of each range.
    pub request: Request,
    /// `bookmark`.
    pub bookmark: Option<String>,
    /// `update`: whether the index is to apply first what was written before.
    pub update: bool,
    /// `include_docs`.
    pub include_docs: bool,
}

/// A parameter of a query string as text, of a body as JSON.
#[derive(Clone, Copy)]
enum Given<'g> {
    Text(&'g str),
    Json(&'g Value),
}

impl Given<'_> {
    fn json(self) -> Result<Value> {
        match self {
            Given::Text(text) => json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json()),
            Given::Json(value) => Ok(value.clone()),
        }
    }

    fn text(self, name: &str) -> Result<String> {
        match self {
            Given::Text(text) => Ok(text.to_owned()),
            Given::Json(Value::String(text)) => Ok(text.clone()),
            given => Err(invalid(name, given)),
        }
    }

    fn boolean(self, name: &str) -> Result<bool> {
        match self {
            Given::Json(Value::Bool(flag)) => Ok(*flag),
            Given::Text("true") => Ok(true),
            Given::Text("false") => Ok(false),
            given => Err(invalid(name, given)),
        }
    }

    /// A number above zero and not above `most`, which the reference calls `inner`.
    fn above_zero(self, name: &str, (inner, most): (&str, u64)) -> Result<u64> {
        let number = match self {
            Given::Text(text) => {
                let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
                let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let refused = || Problem::query_parse(format!("{name} parameter must be an integer"));
                is_integer.then(|| text.parse::<i64>().unwrap_or(i64::MAX)).ok_or_else(refused)?
            }
            Given::Json(value) => value.as_i64().ok_or_else(|| invalid(name, self))?,
        };
        let too_small = || Problem::query_parse(format!("{name} parameter must be greater than zero"));
        let number = u64::try_from(number).ok().filter(|number| *number > 0).ok_or_else(too_small)?;
        match number > most {
            true => Err(Problem::bad_request(format!("{inner} must be less than or equal to {most}"))),
            false => Ok(number),
        }
    }
}

fn invalid(name: &str, given: Given<'_>) -> Problem {
    let shown = match given {
        Given::Text(text) => erlang_string(text),
        Given::Json(Value::String(text)) => erlang_text(text),
        Given::Json(value) => erlang_term(value),
    };
    Problem::query_parse(format!("Invalid value for {name}: {shown}"))
}

impl NouveauArgs {
    /// Of a GET.
    ///
    /// # Errors
    /// 400 for what is missing or has no form.
    pub fn of_query(query: &Query) -> Result<NouveauArgs> {
        NouveauArgs::new(|name| query.get(name).map(Given::Text))
    }

    /// Of a POST, and the partition of its query string.
    ///
    /// # Errors
    /// As [`NouveauArgs::of_query`].
    pub fn of_body(body: &Object, query: &Query) -> Result<NouveauArgs> {
        NouveauArgs::new(|name| match name {
            "partition" => query.get(name).map(Given::Text),
            name => body.get(name).map(Given::Json),
        })
    }

    fn new<'g>(get: impl Fn(&str) -> Option<Given<'g>>) -> Result<NouveauArgs> {
        let text = |name: &str| get(name).map(|given| given.text(name)).transpose();
        let flag = |name: &str| get(name).map(|given| given.boolean(name)).transpose();
        let number = |name: &str, inner: &str, default: u64, most: u64| {
            let number = get(name).map(|given| given.above_zero(name, (inner, most))).transpose()?;
            Ok::<_, Problem>(usize::try_from(number.unwrap_or(default)).unwrap_or(usize::MAX))
        };
        let query = text("q")?.ok_or_else(|| Problem::query_parse("q parameter is mandatory"))?;
        let request = Request {
            query,
            locale: text("locale")?,
            limit: number("limit", "limit", limits::SEARCH_LIMIT_DEFAULT, limits::NOUVEAU_LIMIT_MAX)?,
            sort: get("sort").map(sort).transpose()?.unwrap_or_default(),
            after: None,
            partition: text("partition")?,
            counts: get("counts").map(|given| counts(&given.json()?)).transpose()?,
            ranges: get("ranges").map(|given| ranges(&given.json()?)).transpose()?,
            top: number("top_n", "topN", limits::NOUVEAU_TOP, limits::NOUVEAU_TOP_MAX)?,
        };
        check(&request)?;
        Ok(NouveauArgs {
            request,
            bookmark: text("bookmark")?,
            update: flag("update")?.unwrap_or(true),
            include_docs: flag("include_docs")?.unwrap_or(false),
        })
    }

    /// The same within the partition of the path, where there is one.
    ///
    /// # Errors
    /// 400 for another partition.
    pub fn within(mut self, partition: Option<&str>) -> Result<NouveauArgs> {
        match (&self.request.partition, partition) {
            (Some(own), Some(other)) if own != other => {
                Err(Problem::bad_request("Conflicting value for `partition` in query string"))
            }
            (_, Some(other)) => {
                self.request.partition = Some(other.to_owned());
                Ok(self)
            }
            _ => Ok(self),
        }
    }
}

/// Refuses what is too large to be looked at.
fn check(request: &Request) -> Result<()> {
    if request.query.len() > limits::SEARCH_QUERY_BYTES {
        let most = limits::SEARCH_QUERY_BYTES;
        return Err(Problem::bad_request(format!("The query is longer than {most} bytes.")));
    }
    let ranges = request.ranges.iter().flatten().map(|(_, ranges)| 1 + ranges.len()).sum::<usize>();
    let names = request.sort.len() + request.counts.as_ref().map_or(0, Vec::len) + ranges;
    if names > limits::SEARCH_NAMES_MAX {
        let most = limits::SEARCH_NAMES_MAX;
        return Err(Problem::bad_request(format!("The search names more than {most} fields and values.")));
    }
    Ok(())
}

fn strings(name: &str, value: &Value) -> Result<Vec<String>> {
    let no_list = || Problem::query_parse(format!("{name} parameter must be a list of strings"));
    let no_text = || Problem::query_parse(format!("all items in {name} parameter must be strings"));
    let texts = value.as_array().ok_or_else(no_list)?.iter().map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(no_text)
}

/// What is wrong with a sort is said of `counts`, as in CouchDB.
fn sort(given: Given<'_>) -> Result<Vec<String>> {
    match given.json()? {
        Value::String(one) => Ok(vec![one]),
        list => strings("counts", &list),
    }
}

fn counts(value: &Value) -> Result<Vec<String>> {
    match value {
        Value::Array(_) => strings("counts", value),
        other => Err(invalid("counts", Given::Json(other))),
    }
}

fn ranges(value: &Value) -> Result<BTreeMap<String, Vec<Range>>> {
    let fields = value.as_object().ok_or_else(|| invalid("ranges", Given::Json(value)))?;
    let of_field = |(name, list): (&str, &Value)| {
        let no_list = || Problem::query_parse("range values must be lists of objects");
        let list = list.as_array().ok_or_else(no_list)?;
        Ok((name.to_owned(), list.iter().map(range).collect::<Result<Vec<_>>>()?))
    };
    fields.iter().map(of_field).collect()
}

fn range(value: &Value) -> Result<Range> {
    let no_object = || Problem::query_parse("all values in ranges parameter must be objects");
    let range = value.as_object().ok_or_else(no_object)?;
    let unreadable = || Problem::bad_request("Unable to process JSON");
    let number = |name: &str| match range.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Float(number)) => Ok(Some(*number)),
        Some(value) => value.as_i64().map(|number| Some(number as f64)).ok_or_else(unreadable),
    };
    let flag = |name: &str| match range.get(name) {
        None => Ok(true),
        Some(value) => value.as_bool().ok_or_else(unreadable),
    };
    let label = range.get("label").and_then(Value::as_str).filter(|label| !label.is_empty());
    let label = label.ok_or_else(|| Problem::bad_request("label must not be empty"))?;
    Ok(Range {
        label: label.to_owned(),
        min: number("min")?,
        has_min: flag("min_inclusive")?,
        max: number("max")?,
        has_max: flag("max_inclusive")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(result: Result<impl std::fmt::Debug>) -> String {
        result.unwrap_err().reason.into_owned()
    }

    fn of_query(pairs: &[(&str, &str)]) -> Result<NouveauArgs> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        NouveauArgs::of_query(&Query::from_pairs(pairs.collect()))
    }

    fn of_body(text: &str) -> Result<NouveauArgs> {
        let body = json::parse(text.as_bytes()).unwrap();
        NouveauArgs::of_body(body.as_object().unwrap(), &Query::parse("partition=p"))
    }

    #[test]
    fn parameters_have_the_defaults_of_the_reference() {
        let args = of_query(&[("q", "a"), ("x", "y")]).unwrap();
        let request = &args.request;
        assert_eq!((request.limit, request.top, args.update, args.include_docs), (25, 10, true, false));
        let args = of_query(&[("q", "a"), ("sort", "\"-n\""), ("update", "false"), ("limit", "3")]).unwrap();
        assert_eq!((args.request.sort, args.update, args.request.limit), (vec!["-n".to_owned()], false, 3));
        let args = of_body(r#"{"q":"a","sort":["n","relevance"],"partition":"x","include_docs":true}"#).unwrap();
        assert_eq!((args.request.partition.as_deref(), args.include_docs), (Some("p"), true));
        assert_eq!(args.request.sort, ["n", "relevance"]);
        let text = r#"{"q":"a","ranges":{"n":[{"label":"l","min":1,"max_inclusive":false}]}}"#;
        let ranges = of_body(text).unwrap().request.ranges.unwrap();
        let expected = Range { label: "l".to_owned(), min: Some(1.0), has_min: true, max: None, has_max: false };
        assert_eq!(ranges["n"], [expected]);
    }

    #[test]
    fn what_is_wrong_is_told_as_the_reference_tells_it() {
        assert_eq!(reason(of_query(&[])), "q parameter is mandatory");
        for (name, text, expected) in [
            ("limit", "0", "limit parameter must be greater than zero"),
            ("limit", "x", "limit parameter must be an integer"),
            ("limit", "10001", "limit must be less than or equal to 10000"),
            ("top_n", "-1", "top_n parameter must be greater than zero"),
            ("top_n", "1001", "topN must be less than or equal to 1000"),
            ("include_docs", "yes", "Invalid value for include_docs: \"yes\""),
            ("update", "1", "Invalid value for update: \"1\""),
            ("counts", "{}", "Invalid value for counts: {[]}"),
            ("counts", "[1]", "all items in counts parameter must be strings"),
            ("sort", "5", "counts parameter must be a list of strings"),
            ("sort", "n", "invalid UTF-8 JSON"),
            ("ranges", "{\"n\":5}", "range values must be lists of objects"),
            ("ranges", "{\"n\":[5]}", "all values in ranges parameter must be objects"),
            ("ranges", "{\"n\":[{}]}", "label must not be empty"),
        ] {
            assert_eq!(reason(of_query(&[("q", "a"), (name, text)])), expected, "{name}={text}");
        }
        assert_eq!(reason(of_body(r#"{"q":5}"#)), "Invalid value for q: 5");
        assert_eq!(reason(of_body(r#"{"q":"a","limit":"5"}"#)), "Invalid value for limit: <<\"5\">>");
        let other = of_query(&[("q", "a"), ("partition", "p")]).unwrap().within(Some("o"));
        assert_eq!(reason(other), "Conflicting value for `partition` in query string");
    }
}
