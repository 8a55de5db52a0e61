//! The rows of the specification's tables, and the cases that name each: the matrix.
//!
//! `rows.toml` lists every endpoint, parameter, field, status, rule and limit as a row. A row says what a step that
//! shows it looks like; the cases follow from the cases' own steps, so that the matrix cannot go stale. A row that no
//! client can observe says why. Patterns are words: a method or `*`, a path, and conditions:
//!
//! ```text
//!   GET /{db}/{doc} ?rev status:404 answer:/reason    {name} is one segment, {db} a database, {doc} no _-segment
//!   PUT /{db}/... header:if-match body:/_deleted       ... any rest; body: a member of the request
//!   GET / sends:etag as:none error:not_found           sends: a header of the answer
//! ```

use std::fmt::Write;

use serde::Deserialize;

use crate::json::Value;
use crate::level::is_named;
use crate::transcript::{Body, Case, Step};

/// All rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// The sections, in the order of the specification.
    pub section: Vec<Section>,
}

/// The rows of one section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The section's name.
    pub name: String,
    /// Its rows.
    pub rows: Vec<Rule>,
}

/// One row of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it is about.
    pub row: String,
    /// Patterns of steps that show it; one suffices.
    #[serde(default)]
    pub step: Vec<String>,
    /// Cases that show it although no pattern can tell (beginnings of `chapter/name`).
    #[serde(default)]
    pub cases: Vec<String>,
    /// Why no client can observe it.
    pub unobservable: Option<String>,
}

impl Rows {
    /// Reads `rows.toml`.
    pub fn read(text: &str) -> Result<Rows, String> {
        let rows: Rows = toml::from_str(text).map_err(|e| e.to_string())?;
        for rule in rows.section.iter().flat_map(|s| &s.rows) {
            for pattern in &rule.step {
                Pattern::parse(pattern).map_err(|e| format!("{:?}: {e}", rule.row))?;
            }
        }
        Ok(rows)
    }
}

impl Rule {
    /// The cases that name the row, in order. Accounts are never played and do not count.
    pub fn named_by<'c>(&self, cases: &'c [Case]) -> Vec<&'c str> {
        // Patterns were checked when they were read.
        let patterns: Vec<Pattern> = self.step.iter().filter_map(|p| Pattern::parse(p).ok()).collect();
        let named = |case: &&Case| {
            self.cases.iter().any(|c| is_named(c, &case.id))
                || case.steps.iter().any(|step| patterns.iter().any(|p| p.fits(step)))
        };
        cases.iter().filter(|c| !c.requires.account).filter(named).map(|c| c.id.as_str()).collect()
    }
}

/// The matrix as a page of Markdown.
pub fn matrix(rows: &Rows, cases: &[Case]) -> String {
    const SHOWN: usize = 4;
    let all: Vec<&Rule> = rows.section.iter().flat_map(|s| &s.rows).collect();
    let hidden = all.iter().filter(|r| r.unobservable.is_some()).count();
    let mut out = String::from("# Conformance matrix\n\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "Which cases hold a server to which row of the interface specification. Made by `settee-conformance matrix` from\n\
         `conformance/rows.toml` and the cases; a test fails when a row has no case or this page is stale.\n\n\
         {} rows: {} named by at least one of {} cases, {hidden} that no client can observe.",
        all.len(),
        all.len() - hidden,
        cases.len(),
    );
    for section in &rows.section {
        let _ = writeln!(out, "\n## {}\n\n| row | cases |\n|---|---|", section.name);
        for rule in &section.rows {
            let shown = match &rule.unobservable {
                Some(reason) => format!("not observable: {reason}"),
                None => {
                    let named = rule.named_by(cases);
                    let more = named.len().saturating_sub(SHOWN);
                    let first = named.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
                    if more > 0 { format!("{first} and {more} more") } else { first }
                }
            };
            let _ = writeln!(out, "| {} | {} |", rule.row.replace('|', "\\|"), shown.replace('|', "\\|"));
        }
    }
    out
}

/// What a step must look like.
#[derive(Clone, Debug, Default)]
struct Pattern {
    method: String,
    path: Vec<String>,
    open_end: bool,
    conditions: Vec<(Kind, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Query,
    Header,
    Body,
    Status,
    Answer,
    Sends,
    Who,
    Error,
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        let mut words = text.split_whitespace();
        let method = words.next().ok_or("an empty pattern")?.to_owned();
        let path = words.next().filter(|p| p.starts_with('/')).ok_or("no path")?;
        let (path, open_end) = path.strip_suffix("/...").map_or((path, false), |rest| (rest, true));
        let mut conditions = Vec::new();
        for word in words {
            conditions.push(match word.strip_prefix('?') {
                Some(query) => (Kind::Query, query.to_owned()),
                None => {
                    let (kind, rest) = word.split_once(':').ok_or_else(|| format!("{word}: no condition"))?;
                    let kind = match kind {
                        "header" => Kind::Header,
                        "body" => Kind::Body,
                        "status" => Kind::Status,
                        "answer" => Kind::Answer,
                        "sends" => Kind::Sends,
                        "as" => Kind::Who,
                        "error" => Kind::Error,
                        other => return Err(format!("{other}: no kind of condition")),
                    };
                    (kind, rest.to_owned())
                }
            });
        }
        let path = path.split('/').skip(1).map(str::to_owned).collect();
        Ok(Pattern { method, path, open_end, conditions })
    }

    fn fits(&self, step: &Step) -> bool {
        let (path, query) = step.target.split_once('?').unwrap_or((&step.target, ""));
        let given: Vec<&str> = path.split('/').skip(1).collect();
        let long = given.len() == self.path.len() || (self.open_end && given.len() >= self.path.len());
        (self.method == "*" || self.method == step.method)
            && long
            && self.path.iter().zip(&given).all(|(want, got)| segment_fits(want, got))
            && self.conditions.iter().all(|(kind, text)| holds(*kind, text, step, query))
    }
}

fn segment_fits(want: &str, got: &str) -> bool {
    match want {
        "{db}" => !got.starts_with('_') && !got.is_empty() || matches!(got, "_users" | "_replicator"),
        "{doc}" => !got.starts_with('_') && !got.is_empty(),
        want if want.starts_with('{') => !got.is_empty(),
        want => want == got,
    }
}

fn holds(kind: Kind, text: &str, step: &Step, query: &str) -> bool {
    let none = Value::Null;
    let answer = step.expect.body.as_ref().unwrap_or(&none);
    match kind {
        Kind::Query => {
            let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
            let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            pairs.any(|(n, v)| n == name && value.is_none_or(|want| v == want))
        }
        Kind::Header => step.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(text)),
        Kind::Body => match &step.body {
            Some(Body::Json(json)) => has(json, text),
            _ => false,
        },
        Kind::Status => step.expect.status.to_string() == text,
        Kind::Answer => has(answer, text),
        Kind::Sends => step.expect.headers.iter().any(|(n, v)| n.eq_ignore_ascii_case(text) && v.is_some()),
        Kind::Who => step.who == text,
        Kind::Error => answer.get("error").and_then(Value::as_str) == Some(text),
    }
}

/// Whether there is a value at `pointer`, in which `*` stands for any one member or item.
fn has(value: &Value, pointer: &str) -> bool {
    let Some(rest) = pointer.strip_prefix('/') else { return pointer.is_empty() };
    let (name, rest) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    match value {
        Value::Object(members) => members.iter().any(|(k, v)| (name == "*" || k == name) && has(v, rest)),
        Value::Array(items) => {
            items.iter().enumerate().any(|(n, v)| (name == "*" || n.to_string() == name) && has(v, rest))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Pattern, Rows, matrix};
    use crate::json::Value;
    use crate::transcript::{Case, load};

    #[test]
    fn every_row_is_named_by_a_case_and_the_page_is_true() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let cases = load(&root.join("cases")).expect("cases");
        let text = std::fs::read_to_string(root.join("rows.toml")).expect("a file");
        let rows = Rows::read(&text).expect("rows");
        let seen = rows.section.iter().flat_map(|s| &s.rows).filter(|r| r.unobservable.is_none());
        let empty: Vec<&str> = seen.filter(|r| r.named_by(&cases).is_empty()).map(|r| r.row.as_str()).collect();
        assert_eq!(empty, Vec::<&str>::new(), "rows without a case");
        let page = std::fs::read_to_string(root.join("../docs/conformance-matrix.md")).expect("the page");
        assert!(page == matrix(&rows, &cases), "docs/conformance-matrix.md is stale: settee-conformance matrix");
    }

    #[test]
    fn patterns_look_at_every_part_of_a_step() {
        let text = r#"{"title":"t","steps":[{"do":"PUT /${db}/a?rev=1&x","body":{"_a":{"b":[1]}},
            "headers":{"If-Match":"x"},"as":"none",
            "response":{"status":409,"headers":{"etag":"1"},"kind":"json","body":{"error":"e","rows":[{"id":1}]}}}]}"#;
        let case = Case::read("c", "n", &Value::parse(text.as_bytes()).expect("JSON")).expect("a case");
        let fits = |p: &str| Pattern::parse(p).expect("a pattern").fits(&case.steps[0]);
        for pattern in [
            "PUT /{db}/{doc}",
            "* /...",
            "PUT /{db}/... ?rev",
            "PUT /{db}/a ?rev=1 ?x",
            "PUT /{db}/a header:if-match",
            "PUT /{db}/a body:/_a/b/* status:409 as:none",
            "PUT /{db}/a answer:/rows/*/id sends:etag error:e",
        ] {
            assert!(fits(pattern), "{pattern}");
        }
        for pattern in [
            "GET /{db}/{doc}",
            "PUT /{db}",
            "PUT /{db}/a/...x",
            "PUT /{db}/a ?rev=2",
            "PUT /{db}/a ?y",
            "PUT /{db}/a body:/b",
            "PUT /{db}/a status:200",
            "PUT /{db}/a answer:/rows/*/x",
            "PUT /{db}/a sends:location",
            "PUT /{db}/a error:f",
        ] {
            assert!(!fits(pattern), "{pattern}");
        }
        assert!(Pattern::parse("GET").is_err() && Pattern::parse("GET / what").is_err());
        assert!(Pattern::parse("GET / colour:red").is_err());
    }
}
