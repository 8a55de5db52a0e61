//! The rules of `rewrites`: the rule that fits a request, and the path that it leads to, as CouchDB 3.5 resolves them.
//!
//! Pure. Values that a path binds to the variables of `from` come before the request's parameters, and both before the
//! rule's own query, which may use them; a variable of `to` may come from any of the three.

use http::StatusCode;

use crate::document::json::{self, Object, Value};
use crate::http::route::segments;
use crate::http::{Problem, Query, Result};

/// Parameters that are JSON in query strings.
const JSON: [&str; 6] = ["key", "keys", "startkey", "start_key", "endkey", "end_key"];

/// Names with their values; of equal names the first counts.
type Bound = Vec<(String, Value)>;

/// A segment of `from` or `to`.
#[derive(Debug, PartialEq)]
enum Part {
    /// `*`: all the rest.
    Rest,
    /// `:name`
    Variable(String),
    Text(String),
}

struct Rule<'a> {
    method: &'a str,
    from: Vec<Part>,
    to: Vec<Part>,
    query: Option<&'a Object>,
    formats: Option<&'a Object>,
}

/// The target, relative to the design document, and the query of the first rule that fits a request for `path` below
/// `_rewrite`; `None` where none does.
///
/// # Errors
/// 500 for a rule without a target or, where rules are `secure`, with one that is too far up, whichever rule fits; 400
/// for parameters that are to be JSON and are not.
pub fn resolve(
    rules: &[Value],
    secure: bool,
    method: &str,
    path: &[String],
    query: &Query,
) -> Result<Option<(Vec<String>, Query)>> {
    let rules = rules.iter().filter_map(Value::as_object).map(|rule| Rule::parse(rule, secure));
    let rules = rules.collect::<Result<Vec<_>>>()?;
    let given =
        query.iter().map(|(name, text)| Ok((name.to_owned(), decoded(name, text)?))).collect::<Result<Bound>>()?;
    for rule in &rules {
        if (rule.method == "*" || rule.method == method)
            && let Some((mut bound, rest)) = bind(&rule.from, path)
        {
            bound.extend(given.iter().cloned());
            let own = rule.own_query(&bound);
            bound.retain(|(name, _)| value_of(&own, name).is_none());
            bound.extend(own);
            // The rule's own stand first, then those of the request, then those of the path.
            let pairs = bound.iter().rev().map(|(name, value)| (name.clone(), encoded(name, value)));
            return Ok(Some((target(&rule.to, &bound, rest), Query::from_pairs(pairs.collect()))));
        }
    }
    Ok(None)
}

impl Rule<'_> {
    fn parse(rule: &Object, secure: bool) -> Result<Rule<'_>> {
        let text = |name| rule.get(name).and_then(Value::as_str);
        let target = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "error", "invalid_rewrite_target");
        Ok(Rule {
            method: text("method").unwrap_or("*"),
            from: parts(text("from").unwrap_or("*"), secure)?,
            to: parts(text("to").ok_or_else(target)?, secure)?,
            query: rule.get("query").and_then(Value::as_object),
            formats: rule.get("formats").and_then(Value::as_object),
        })
    }

    /// The rule's query with its variables replaced, the last one first.
    fn own_query(&self, bound: &Bound) -> Bound {
        let pairs = self.query.into_iter().flat_map(Object::iter);
        let mut own: Bound = pairs.map(|(name, value)| (name.to_owned(), self.filled(value, bound))).collect();
        own.reverse();
        own
    }

    fn filled(&self, value: &Value, bound: &Bound) -> Value {
        match value {
            Value::String(text) => match text.strip_prefix(':') {
                Some(name) => value_of(bound, name).map_or_else(|| value.clone(), |value| self.formatted(name, value)),
                None => value.clone(),
            },
            Value::Array(items) => Value::Array(items.iter().map(|item| self.filled(item, bound)).collect()),
            other => other.clone(),
        }
    }

    /// Texts of the formats `int` and `bool` become such values.
    fn formatted(&self, name: &str, value: &Value) -> Value {
        let format = self.formats.and_then(|formats| formats.get(name)).and_then(Value::as_str);
        let read = match (format, value.as_str()) {
            (Some("int"), Some(text)) => text.parse().ok().map(Value::Int),
            (Some("bool"), Some(text)) => text.to_ascii_lowercase().parse().ok().map(Value::Bool),
            _ => None,
        };
        read.unwrap_or_else(|| value.clone())
    }
}

/// The segments of a rule's path.
fn parts(path: &str, secure: bool) -> Result<Vec<Part>> {
    if secure && segments(path).iter().filter(|segment| **segment == "..").count() > 2 {
        return Err(insecure());
    }
    let part = |segment: &str| match segment.strip_prefix(':') {
        _ if segment == "*" => Part::Rest,
        Some(name) => Part::Variable(name.to_owned()),
        None => Part::Text(segment.to_owned()),
    };
    Ok(segments(path).into_iter().map(part).collect())
}

/// 500 for a target that is too far up.
pub fn insecure() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "insecure_rewrite_rule", "too many ../.. segments")
}

/// What a path gives for the variables of a rule, the last one first, and for its `*`; `None` when it does not fit.
fn bind<'a>(from: &[Part], path: &'a [String]) -> Option<(Bound, &'a [String])> {
    let mut bound = Bound::new();
    for (at, part) in from.iter().enumerate() {
        if *part == Part::Rest && at + 1 == from.len() {
            return Some((bound, &path[at..]));
        }
        let given = path.get(at)?;
        match part {
            Part::Variable(name) => bound.insert(0, (name.clone(), Value::from(given.as_str()))),
            Part::Text(text) if text == given => {}
            _ => return None,
        }
    }
    (path.len() == from.len()).then_some((bound, &[]))
}

fn target(to: &[Part], bound: &Bound, rest: &[String]) -> Vec<String> {
    let mut target = Vec::new();
    for part in to {
        match part {
            Part::Text(text) => target.push(text.clone()),
            Part::Variable(name) => target.push(value_of(bound, name).map_or_else(|| "undefined".to_owned(), plain)),
            Part::Rest => {
                target.extend_from_slice(rest);
                break;
            }
        }
    }
    target
}

fn value_of<'a>(bound: &'a Bound, name: &str) -> Option<&'a Value> {
    bound.iter().find(|(own, _)| own == name).map(|(_, value)| value)
}

fn decoded(name: &str, text: &str) -> Result<Value> {
    match JSON.contains(&name) {
        true => json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json()),
        false => Ok(Value::from(text)),
    }
}

fn encoded(name: &str, value: &Value) -> String {
    if JSON.contains(&name) { json_text(value) } else { plain(value) }
}

/// A text as it is, anything else as JSON.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| json_text(value), str::to_owned)
}

fn json_text(value: &Value) -> String {
    String::from_utf8_lossy(&value.to_vec()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `path?query` that a request is led to.
    fn led(rules: &str, request: &str) -> Result<Option<String>> {
        let (method, rest) = request.split_once(' ').unwrap();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path: Vec<String> = segments(path).into_iter().map(str::to_owned).collect();
        let Ok(Value::Array(rules)) = json::parse(rules.as_bytes()) else { panic!("{rules}") };
        let found = resolve(&rules, true, method, &path, &Query::parse(query))?;
        let shown = |query: &Query| query.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        Ok(found.map(|(path, query)| format!("{}?{}", path.join("/"), shown(&query).join("&"))))
    }

    #[test]
    fn the_rest_of_a_path_may_be_empty() {
        let to = |rules: &str, request: &str| led(rules, request).unwrap();
        assert_eq!(to(r#"[{"from":"*","to":"_show/s"}]"#, "GET ").unwrap(), "_show/s?");
        assert_eq!(to(r#"[{"to":"_show/s/*"}]"#, "GET ").unwrap(), "_show/s?");
        assert_eq!(to(r#"[{"from":"/a/*","to":"x/*"}]"#, "GET a").unwrap(), "x?");
        assert_eq!(to(r#"[{"from":"/a/*","to":"x/*/y"}]"#, "GET a/b/c").unwrap(), "x/b/c?");
        assert_eq!(to(r#"[{"from":"/a","to":"x"}]"#, "GET a/b"), None);
        assert_eq!(to(r#"[{"from":"","to":"x"}]"#, "GET ").unwrap(), "x?");
        assert_eq!(to(r#"[{"from":"a","method":"PUT","to":"x"}]"#, "GET a"), None);
    }

    #[test]
    fn variables_come_from_path_request_and_rule() {
        let to = |rules: &str, request: &str| led(rules, request).unwrap().unwrap();
        assert_eq!(to(r#"[{"from":"by/:key","to":"_view/v"}]"#, "GET by/x"), r#"_view/v?key="x""#);
        assert_eq!(to(r#"[{"from":"a","to":":undef/:n"}]"#, "GET a?n=5"), "undefined/5?n=5");
        assert_eq!(to(r#"[{"from":"a","to":":t","query":{"t":"own","q":"*"}}]"#, "GET a?t=x"), "own?t=own&q=*");
        let rules =
            r#"[{"from":"a/:id","to":"v","query":{"startkey":[":id",":n",1],"limit":":n"},"formats":{"n":"int"}}]"#;
        assert_eq!(to(rules, "GET a/x?n=2"), r#"v?startkey=["x",2,1]&limit=2&n=2&id=x"#);
        assert_eq!(to(r#"[{"from":"a","to":"v"}]"#, "GET a?key=%22x%22"), r#"v?key="x""#);
    }

    #[test]
    fn one_rule_that_cannot_be_fails_all() {
        let error = |rules: &str| led(rules, "GET a").unwrap_err().error.into_owned();
        assert_eq!(error(r#"[{"from":"a","to":"x"},{"from":"b","to":"../../.."}]"#), "insecure_rewrite_rule");
        assert_eq!(error(r#"[{"from":"a","to":"x"},{"from":"b"}]"#), "error");
        assert_eq!(led(r#"[{"from":"a","to":"x"}]"#, "GET a?key=x").unwrap_err().reason, "invalid UTF-8 JSON");
    }
}
