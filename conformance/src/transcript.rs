//! A case as it stands in its file: what is asked, and what is expected back. README.md describes the format.
//!
//! Reading is strict: a key that the runner does not know is an error, so that no check is silently left out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::json::Value;

/// Keys of a case file.
const CASE_KEYS: &[&str] = &["title", "spec", "needs", "requires", "steps", "cleanup", "level"];
/// Keys of a step.
#[rustfmt::skip]
const STEP_KEYS: &[&str] = &[
    "do", "body", "text", "base64", "headers", "no_accept", "as", "bind", "response", "volatile", "unordered", "ignore",
    "optional", "extra_ok", "ignore_headers", "no_body", "volatile_etag", "lines", "events", "number_text", "open",
    "background", "timeout_s", "sleep_s", "retry", "until", "also_headers", "volatile_headers", "match", "contains",
    "refused", "setup", "by_spec", "on", "raw", "raw_pause_s", "answers",
];
/// Server-level paths that neither show nor change what other cases do.
const HARMLESS_PATHS: &[&str] = &["", "_session", "_up", "_uuids", "_utils", "_membership", "favicon.ico"];

/// One case file.
#[derive(Clone, Debug)]
pub struct Case {
    /// `chapter/name`, the file's place without `.json`.
    pub id: String,
    /// The folder it lies in.
    pub chapter: String,
    /// The behaviour, as a sentence.
    pub title: String,
    /// The section of the specification that it belongs to.
    pub spec: String,
    /// The level that it counts for, where the section does not say.
    pub level: Option<String>,
    /// What the server must have, else the case is skipped.
    pub requires: Requires,
    /// The requests, in order; empty for an account.
    pub steps: Vec<Step>,
    /// Requests made at the end, whatever happened.
    pub cleanup: Vec<Step>,
    /// Whether a step changes the server's configuration or stops the server.
    pub changes_config: bool,
    /// Whether a step sees or changes what all cases share: then no other case may run beside it.
    pub alone: bool,
    /// Whether documents of `_users` may be left over.
    pub makes_users: bool,
    /// Whether the specification decides a step against what the reference was recorded to answer.
    pub by_spec: bool,
}

/// What a server must have for a case to mean anything.
#[derive(Clone, Debug, Default)]
pub struct Requires {
    /// Authentication handlers that `GET /_session` lists.
    pub handlers: Vec<String>,
    /// Features that `GET /` must list.
    pub with: Vec<String>,
    /// Features that `GET /` must not list.
    pub without: Vec<String>,
    /// Paths of which a GET must be answered with 200: parts that a server can be built without.
    pub answers: Vec<String>,
    /// How many nodes must be up.
    pub nodes: usize,
    /// Whether there must be one node only.
    pub alone: bool,
    /// An account of what happened once, told by request and answer; never played.
    pub account: bool,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Body {
    /// JSON, after variables are filled in.
    Json(Value),
    /// Text, after variables are filled in.
    Text(String),
    /// Bytes as they are.
    Bytes(Vec<u8>),
}

/// How the bytes of an answer are to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// As one JSON value, else text, else bytes.
    Plain,
    /// As one JSON value a line.
    Lines,
    /// As server-sent events.
    Events,
    /// As JSON of which the numbers' text counts.
    NumberText,
}

/// One request and the expected answer.
#[derive(Clone, Debug)]
pub struct Step {
    /// The method.
    pub method: String,
    /// The request target, with variables.
    pub target: String,
    /// The body, if any.
    pub body: Option<Body>,
    /// What goes over the connection instead of a request made of the above: text, with variables.
    pub raw: Vec<String>,
    /// The wait between two parts of `raw`.
    pub raw_pause: Duration,
    /// How many answers `raw` is given.
    pub answers: usize,
    /// Headers, with variables.
    pub headers: Vec<(String, String)>,
    /// Whether `Accept: application/json` is left out.
    pub no_accept: bool,
    /// `admin`, `none` or `name:password`, with variables.
    pub who: String,
    /// Variable name and where its value is found: a JSON pointer, `header:NAME` or `cookie:NAME`.
    pub bind: Vec<(String, String)>,
    /// How to read the answer.
    pub reading: Reading,
    /// Whether the answer is a feed that stays open.
    pub open: bool,
    /// Whether the next steps run while this one is answered.
    pub background: bool,
    /// Silence (or, for an open feed, time) after which reading stops.
    pub timeout: Option<Duration>,
    /// Wait after the step.
    pub sleep: Option<Duration>,
    /// How often to ask at most while `until` does not hold.
    pub tries: usize,
    /// What to wait for.
    pub until: Option<Until>,
    /// How the answer is compared.
    pub expect: Expect,
}

/// A condition on an answer.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// The status, when it matters.
    pub status: Option<u16>,
    /// Pointer and the value there.
    pub equals: Vec<(String, Value)>,
    /// Pointer and objects of which the array there has all.
    pub contains: Vec<(String, Vec<Value>)>,
}

/// What the reference answered, and which of it counts.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// The status code.
    pub status: u16,
    /// Headers; `None` must be absent.
    pub headers: Vec<(String, Option<String>)>,
    /// `json`, `lines`, `events`, `parts`, `text`, `base64` or `none`.
    pub kind: String,
    /// The body.
    pub body: Option<Value>,
    /// Pointers compared by JSON type alone.
    pub volatile: Vec<String>,
    /// Pointers to lists without a promised order.
    pub unordered: Vec<String>,
    /// Pointers not compared; `*` stands for a segment.
    pub ignore: Vec<String>,
    /// Pointers to members that may be absent.
    pub optional: Vec<String>,
    /// Whether unlisted members are fine.
    pub extra_ok: bool,
    /// Headers not compared.
    pub ignore_headers: Vec<String>,
    /// Headers that need only be there.
    pub volatile_headers: Vec<String>,
    /// Headers compared beyond the usual ones.
    pub also_headers: Vec<String>,
    /// Whether only the ETag's presence counts.
    pub volatile_etag: bool,
    /// Whether the body does not count.
    pub no_body: bool,
    /// Pointer and a regular expression that the whole string there matches.
    pub matches: Vec<(String, String)>,
    /// Pointer and objects of which the array there has all.
    pub contains: Vec<(String, Vec<Value>)>,
    /// Whether any error answer will do.
    pub refused: bool,
    /// Whether any answer at all will do.
    pub setup: bool,
}

/// Reads all cases below `dir`, in the order of their paths.
pub fn load(dir: &Path) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for chapter in sorted(dir)?.into_iter().filter(|p| p.is_dir()) {
        for file in sorted(&chapter)?.into_iter().filter(|p| p.extension().is_some_and(|e| e == "json")) {
            let text = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let name = |p: &Path| p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let value = Value::parse(&text).map_err(|e| format!("{}: {e}", file.display()))?;
            cases.push(
                Case::read(&name(&chapter), &name(&file), &value).map_err(|e| format!("{}: {e}", file.display()))?,
            );
        }
    }
    if cases.is_empty() { Err(format!("{}: no cases (FOLDER/*.json) there", dir.display())) } else { Ok(cases) }
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    Ok(paths)
}

impl Case {
    /// Reads one case; the error says which key is wrong.
    pub fn read(chapter: &str, name: &str, value: &Value) -> Result<Case, String> {
        let requires = read_requires(value)?;
        let mut steps = Vec::new();
        let mut cleanup = Vec::new();
        if !requires.account {
            known_keys(value, CASE_KEYS)?;
            for (key, into) in [("steps", &mut steps), ("cleanup", &mut cleanup)] {
                for (n, step) in value.get(key).and_then(Value::as_array).unwrap_or_default().iter().enumerate() {
                    into.push(Step::read(step, key == "steps").map_err(|e| format!("{key} {n}: {e}"))?);
                }
            }
            if steps.is_empty() {
                return Err("no steps".to_owned());
            }
        }
        let all = || steps.iter().chain(&cleanup);
        Ok(Case {
            id: format!("{chapter}/{name}"),
            chapter: chapter.to_owned(),
            title: value.get("title").and_then(Value::as_str).ok_or("no title")?.to_owned(),
            spec: value.get("spec").and_then(Value::as_str).unwrap_or_default().to_owned(),
            level: value.get("level").and_then(Value::as_str).map(str::to_owned),
            changes_config: all().any(Step::changes_config),
            alone: all().any(Step::is_shared),
            makes_users: value.to_text(false).contains("/_users/"),
            by_spec: value
                .get("steps")
                .and_then(Value::as_array)
                .unwrap_or_default()
                .iter()
                .any(|s| s.get("by_spec").is_some()),
            requires,
            steps,
            cleanup,
        })
    }
}

fn read_requires(value: &Value) -> Result<Requires, String> {
    let Some(requires) = value.get("requires") else { return Ok(Requires::default()) };
    known_keys(requires, &["handlers", "with", "without", "answers", "nodes", "alone", "record"])?;
    Ok(Requires {
        handlers: strings(requires, "handlers"),
        with: strings(requires, "with"),
        without: strings(requires, "without"),
        answers: strings(requires, "answers"),
        nodes: requires.get("nodes").and_then(Value::as_f64).unwrap_or(0.0) as usize,
        alone: requires.get("alone").is_some_and(Value::is_true),
        account: requires.get("record").is_some_and(Value::is_true),
    })
}

fn known_keys(value: &Value, known: &[&str]) -> Result<(), String> {
    let members = value.as_object().ok_or("not an object")?;
    match members.iter().find(|(k, _)| !known.contains(&k.as_str())) {
        Some((key, _)) => Err(format!("unknown key {key:?}")),
        None => Ok(()),
    }
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    let items = value.get(key).and_then(Value::as_array).unwrap_or_default();
    items.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

fn pairs(value: &Value, key: &str) -> Result<Vec<(String, String)>, String> {
    let members = value.get(key).map_or(Some(&[][..]), Value::as_object);
    let members = members.ok_or_else(|| format!("{key} is no object"))?;
    let text = |k: &String, v: &Value| Some((k.clone(), v.as_str()?.to_owned()));
    members.iter().map(|(k, v)| text(k, v).ok_or_else(|| format!("{key}: {k} is no string"))).collect()
}

fn lists(value: &Value, key: &str) -> Vec<(String, Vec<Value>)> {
    let members = value.get(key).and_then(Value::as_object).unwrap_or_default();
    members.iter().map(|(k, v)| (k.clone(), v.as_array().unwrap_or_default().to_vec())).collect()
}

fn seconds(value: &Value, key: &str) -> Result<Option<Duration>, String> {
    let Some(given) = value.get(key) else { return Ok(None) };
    let duration = given.as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.map(Some).ok_or_else(|| format!("{key} is no number of seconds"))
}

impl Step {
    /// Reads one step; one that is compared has an expected answer.
    fn read(value: &Value, count: bool) -> Result<Step, String> {
        known_keys(value, STEP_KEYS)?;
        let action = value.get("do").and_then(Value::as_str).ok_or("no `do`")?;
        let (method, target) = action.split_once(' ').ok_or("`do` is no method and target")?;
        let has = |key: &str| value.get(key).is_some_and(Value::is_true);
        let body = match (value.get("body"), value.get("text"), value.get("base64")) {
            (Some(json), _, _) => Some(Body::Json(json.clone())),
            (None, Some(text), _) => Some(Body::Text(text.as_str().ok_or("text is no string")?.to_owned())),
            (None, None, Some(coded)) => {
                let bytes = coded.as_str().and_then(|c| STANDARD.decode(c).ok());
                Some(Body::Bytes(bytes.ok_or("base64 cannot be read")?))
            }
            (None, None, None) => None,
        };
        let reading = match (has("lines"), has("events"), has("number_text")) {
            (true, _, _) => Reading::Lines,
            (_, true, _) => Reading::Events,
            (_, _, true) => Reading::NumberText,
            _ => Reading::Plain,
        };
        Ok(Step {
            method: method.to_owned(),
            target: target.to_owned(),
            body,
            raw: strings(value, "raw"),
            raw_pause: seconds(value, "raw_pause_s")?.unwrap_or_default(),
            answers: value.get("answers").and_then(Value::as_f64).map_or(1, |n| n as usize),
            headers: pairs(value, "headers")?,
            no_accept: has("no_accept"),
            who: value.get("as").and_then(Value::as_str).unwrap_or("admin").to_owned(),
            bind: pairs(value, "bind")?,
            reading,
            open: has("open"),
            background: has("background"),
            timeout: seconds(value, "timeout_s")?,
            sleep: seconds(value, "sleep_s")?,
            tries: value.get("retry").and_then(Value::as_f64).map_or(1, |n| n as usize),
            until: value.get("until").map(read_until).transpose()?,
            expect: if count { Expect::read(value)? } else { Expect::default() },
        })
    }

    fn changes_config(&self) -> bool {
        let configures = self.target.starts_with("/_node/")
            && (self.target.contains("/_config/") || self.target.ends_with("/_restart"))
            && self.method != "GET";
        configures || (self.target.starts_with("/_cluster_setup") && self.method == "POST")
    }

    fn is_shared(&self) -> bool {
        let first = self.target.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
        !(first.starts_with("${db") || HARMLESS_PATHS.contains(&first))
    }
}

fn read_until(value: &Value) -> Result<Until, String> {
    known_keys(value, &["status", "equals", "contains"])?;
    Ok(Until {
        status: value.get("status").and_then(Value::as_f64).map(|s| s as u16),
        equals: value.get("equals").and_then(Value::as_object).unwrap_or_default().to_vec(),
        contains: lists(value, "contains"),
    })
}

impl Expect {
    fn read(step: &Value) -> Result<Expect, String> {
        let response = step.get("response").ok_or("no response")?;
        known_keys(response, &["status", "headers", "kind", "body"])?;
        let has = |key: &str| step.get(key).is_some_and(Value::is_true);
        let mut headers = Vec::new();
        for (name, value) in response.get("headers").and_then(Value::as_object).unwrap_or_default() {
            let text = value.as_str().map(str::to_owned);
            if text.is_none() && *value != Value::Null {
                return Err(format!("header {name} is neither a string nor null"));
            }
            headers.push((name.clone(), text));
        }
        let matches = pairs(step, "match")?;
        for (_, pattern) in &matches {
            regex_lite::Regex::new(pattern).map_err(|e| format!("match: {e}"))?;
        }
        Ok(Expect {
            status: response.get("status").and_then(Value::as_f64).ok_or("no status")? as u16,
            headers,
            kind: response.get("kind").and_then(Value::as_str).unwrap_or("none").to_owned(),
            body: response.get("body").cloned(),
            volatile: strings(step, "volatile"),
            unordered: strings(step, "unordered"),
            ignore: strings(step, "ignore"),
            optional: strings(step, "optional"),
            extra_ok: has("extra_ok"),
            ignore_headers: strings(step, "ignore_headers"),
            volatile_headers: strings(step, "volatile_headers"),
            also_headers: strings(step, "also_headers"),
            volatile_etag: has("volatile_etag"),
            no_body: has("no_body"),
            matches,
            contains: lists(step, "contains"),
            refused: has("refused"),
            setup: has("setup"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Case, Reading, load};
    use crate::json::Value;

    fn case(text: &str) -> Result<Case, String> {
        Case::read("chapter", "name", &Value::parse(text.as_bytes()).expect("JSON"))
    }

    #[test]
    fn every_case_of_the_suite_can_be_read() {
        let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).expect("readable cases");
        let chapters: std::collections::BTreeSet<&str> = cases.iter().map(|c| c.chapter.as_str()).collect();
        assert!(["cluster", "documents", "queries", "server", "views"].iter().all(|c| chapters.contains(c)));
        assert!(cases.len() >= 527, "{} cases", cases.len());
        let lists = |c: &&Case| c.steps.iter().any(|s| s.reading == Reading::Lines);
        assert!(cases.iter().filter(lists).count() > 0);
    }

    #[test]
    fn unknown_keys_and_missing_parts_are_refused() {
        let step = r#"{"do":"GET /","response":{"status":200,"kind":"json","body":{}}}"#;
        assert!(case(&format!(r#"{{"title":"t","spec":"s","steps":[{step}]}}"#)).is_ok());
        for bad in [
            r#"{"title":"t","steps":[]}"#.to_owned(),
            format!(r#"{{"steps":[{step}]}}"#),
            format!(r#"{{"title":"t","colour":1,"steps":[{step}]}}"#),
            r#"{"title":"t","steps":[{"do":"GET /"}]}"#.to_owned(),
            r#"{"title":"t","steps":[{"do":"GET","response":{"status":200}}]}"#.to_owned(),
            r#"{"title":"t","steps":[{"do":"GET /","volatil":[],"response":{"status":200}}]}"#.to_owned(),
            r#"{"title":"t","steps":[{"do":"GET /","match":{"/a":"("},"response":{"status":200}}]}"#.to_owned(),
            r#"{"title":"t","steps":[{"do":"GET /","base64":"?","response":{"status":200}}]}"#.to_owned(),
        ] {
            assert!(case(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cases_that_touch_what_is_shared_are_known() {
        let of = |action: &str| {
            let text = format!(r#"{{"title":"t","steps":[{{"do":"{action}","response":{{"status":200}}}}]}}"#);
            let case = case(&text).expect("a case");
            (case.alone, case.changes_config)
        };
        assert_eq!(of("PUT /${db}/_users/a"), (false, false));
        assert_eq!(of("GET /_session?basic=true"), (false, false));
        assert_eq!(of("GET /_all_dbs"), (true, false));
        assert_eq!(of("PUT /_users/org.couchdb.user:x"), (true, false));
        assert_eq!(of("GET /_node/_local/_config/a"), (true, false));
        assert_eq!(of("PUT /_node/${node}/_config/a/b"), (true, true));
        assert_eq!(of("DELETE /_node/_local/_config/a/b"), (true, true));
    }
}
