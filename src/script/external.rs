//! Functions of other languages, run by a program that speaks CouchDB's query server protocol: one JSON text a line in
//! each direction (`[query_servers] python = /usr/bin/python3 server.py`).
//!
//! The program is started for a design document on a worker, kept while the worker keeps the document's functions, and
//! killed when it does not answer in time. Answers are those of `driver.js`, so that callers see no difference. Lists
//! and rewrites are not supported in such programs.

use std::io;
use std::time::Duration;

use super::{Program, ScriptError};
use crate::document::json::{self, Object, Value, write_string};
use crate::world::{Env, Process};

/// A program that holds a design document.
pub(super) struct External {
    process: Box<dyn Process>,
    env: Env,
    design: Object,
    /// The design document as `["ddoc","new",id,document]`, until it was sent.
    introduction: Option<Vec<u8>>,
    id: String,
    /// The map functions that it has, as JSON text.
    maps: String,
    /// Whether it must not be used again: a call was cut off.
    pub broken: bool,
}

/// Words of a command; quotes keep spaces within one.
pub(super) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in command.chars() {
        match (character, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn engine(reason: impl Into<String>) -> ScriptError {
    ScriptError::Engine { reason: reason.into() }
}

/// `["a","b",..]` of a command's name and texts that are JSON already.
fn line(name: &str, texts: &[&str]) -> Vec<u8> {
    let mut out = b"[".to_vec();
    write_string(name, &mut out);
    for text in texts {
        out.push(b',');
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b']');
    out
}

fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&Value::from(text).to_vec()).into_owned()
}

fn answer(name: &str, value: Value) -> Value {
    Value::Object([(name.to_owned(), value)].into_iter().collect())
}

impl External {
    /// Starts the program.
    pub fn start(env: &Env, command: &[String], program: &Program) -> Result<External, ScriptError> {
        let process = env.host().process(command).map_err(|error| engine(format!("{}: {error}", command.join(" "))))?;
        let id = program.id().as_str().to_owned();
        let introduction = Some(line("ddoc", &["\"new\"", &quoted(&id), program.text()]));
        let (env, design) = (env.clone(), program.body().clone());
        Ok(External { process, env, design, introduction, id, maps: String::new(), broken: false })
    }

    /// As the call of a sandbox.
    pub fn call(&mut self, what: &str, texts: [&str; 3], limit: Duration) -> Result<Value, ScriptError> {
        let done = self.asked(what, texts, limit);
        self.broken |= matches!(&done, Err(ScriptError::Timeout | ScriptError::Engine { .. }));
        done
    }

    fn asked(&mut self, what: &str, [a, b, c]: [&str; 3], limit: Duration) -> Result<Value, ScriptError> {
        match what {
            "map" => self.map(a, b, limit),
            "reduce" => {
                let name = if c.is_empty() { "reduce" } else { "rereduce" };
                let answered = self.ask(line(name, &[&format!("[{}]", quoted(a)), b]), limit)?;
                Ok(answer("value", second(answered)?.first().cloned().unwrap_or(Value::Null)))
            }
            "validate" => match self.function(&["validate_doc_update"], b, limit)? {
                Value::Object(outcome) => Ok(Value::Object(outcome)),
                _ => Ok(Value::Object(Object::new())),
            },
            "filter" => {
                let path = self.path("filters", a)?;
                let answered = self.function(&["filters", &path], &format!("[[{b}],{c}]"), limit)?;
                let passes = second(answered)?.first().and_then(Value::as_bool) == Some(true);
                Ok(answer("pass", passes.into()))
            }
            "emits" => {
                let lists = self.map(&format!("[{}]", quoted(a)), b, limit)?;
                let lists = lists.as_object().and_then(|answer| answer.get("rows")).and_then(Value::as_array);
                let emitted = |rows: &Value| rows.as_array().is_some_and(|rows| !rows.is_empty());
                Ok(answer("pass", lists.unwrap_or_default().iter().any(emitted).into()))
            }
            "show" => {
                let path = self.path("shows", a)?;
                let answered = self.function(&["shows", &path], &format!("[{b},{c}]"), limit)?;
                Ok(answer("resp", tagged("resp", answered)?.remove(0)))
            }
            "update" => {
                let path = self.path("updates", a)?;
                let answered = self.function(&["updates", &path], &format!("[{b},{c}]"), limit)?;
                let mut parts = tagged("up", answered)?.into_iter();
                let mut out = Object::new();
                out.push("doc", parts.next().unwrap_or(Value::Null));
                out.push("resp", parts.next().unwrap_or(Value::Null));
                Ok(Value::Object(out))
            }
            other => Err(engine(format!("the query server of this language is not asked for a {other} function"))),
        }
    }

    fn map(&mut self, sources: &str, doc: &str, limit: Duration) -> Result<Value, ScriptError> {
        if self.maps != sources {
            self.maps.clear();
            self.ask(line("reset", &[r#"{"reduce_limit":true}"#]), limit)?;
            let views = self.design.get("views").and_then(Value::as_object);
            if let Some(lib) = views.and_then(|views| views.get("lib")) {
                let lib = String::from_utf8_lossy(&lib.to_vec()).into_owned();
                self.ask(line("add_lib", &[&lib]), limit)?;
            }
            let list = json::parse(sources.as_bytes()).map_err(|_| engine("functions are no JSON"))?;
            for source in list.as_array().unwrap_or_default() {
                let text = String::from_utf8_lossy(&source.to_vec()).into_owned();
                self.ask(line("add_fun", &[&text]), limit)?;
            }
            self.maps = sources.to_owned();
        }
        Ok(answer("rows", self.ask(line("map_doc", &[doc]), limit)?))
    }

    /// Calls a function of the design document with a list of arguments (JSON text).
    fn function(&mut self, path: &[&str], arguments: &str, limit: Duration) -> Result<Value, ScriptError> {
        if let Some(introduction) = self.introduction.take() {
            self.ask(introduction, limit)?;
        }
        let path = Value::Array(path.iter().map(|name| Value::from(*name)).collect());
        let path = String::from_utf8_lossy(&path.to_vec()).into_owned();
        let id = quoted(&self.id);
        self.ask(line("ddoc", &[&id, &path, arguments]), limit)
    }

    /// The name of a function, which callers know by its source.
    fn path(&self, section: &str, source: &str) -> Result<String, ScriptError> {
        let members = self.design.get(section).and_then(Value::as_object);
        let found = members.and_then(|members| members.iter().find(|(_, text)| text.as_str() == Some(source)));
        let missing = || ScriptError::MissingKey { name: section.to_owned() };
        found.map(|(name, _)| name.to_owned()).ok_or_else(missing)
    }

    /// Sends a line and reads its answer; lines to be logged come before it.
    fn ask(&mut self, line: Vec<u8>, limit: Duration) -> Result<Value, ScriptError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => ScriptError::Timeout,
            _ => engine(format!("the query server: {error}")),
        };
        let begun = self.env.now();
        self.process.send(&line).map_err(failed)?;
        loop {
            let left = limit.saturating_sub(self.env.now().since(begun));
            let text = self.process.receive(left).map_err(failed)?;
            let value = json::parse(&text).map_err(|_| engine("the query server's answer is no JSON"))?;
            match value.as_array() {
                Some([name, text]) if name.as_str() == Some("log") => {
                    super::log(text.as_str().unwrap_or_default());
                }
                Some([name, error, reason, ..]) if matches!(name.as_str(), Some("error" | "fatal")) => {
                    return Err(refused(error, reason));
                }
                _ => {
                    let member = |name| value.as_object().and_then(|members| members.get(name));
                    return match (member("error"), member("reason")) {
                        (Some(error), Some(reason)) => Err(refused(error, reason)),
                        _ => Ok(value),
                    };
                }
            }
        }
    }
}

fn refused(error: &Value, reason: &Value) -> ScriptError {
    let text = |value: &Value| value.as_str().map_or_else(|| quoted_value(value), str::to_owned);
    match text(error) {
        name if name == "compilation_error" => ScriptError::Compilation { reason: text(reason) },
        error => ScriptError::Thrown { error, reason: reason.clone() },
    }
}

fn quoted_value(value: &Value) -> String {
    String::from_utf8_lossy(&value.to_vec()).into_owned()
}

/// The list in `[true, [..]]`.
fn second(value: Value) -> Result<Vec<Value>, ScriptError> {
    match value {
        Value::Array(mut pair) if pair.len() == 2 => match pair.pop() {
            Some(Value::Array(list)) => Ok(list),
            _ => Err(engine("the query server's answer has no list")),
        },
        _ => Err(engine("the query server's answer has no list")),
    }
}

/// What follows a tag, at least one value.
fn tagged(tag: &str, value: Value) -> Result<Vec<Value>, ScriptError> {
    match value {
        Value::Array(mut parts) if parts.len() >= 2 && parts[0].as_str() == Some(tag) => Ok(parts.split_off(1)),
        _ => Err(engine(format!("the query server did not answer with `{tag}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn commands_are_cut_into_words() {
        assert_eq!(
            words("/usr/bin/python3  -u 'my server.py' \"\" a'b c'"),
            ["/usr/bin/python3", "-u", "my server.py", "", "ab c"]
        );
        assert!(words("  ").is_empty());
    }
}
