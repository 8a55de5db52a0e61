//! A conversation under construction: steps in the form of a case file, so that a found difference can be kept as a
//! case.

use crate::json::{Value, object};
use crate::random::dice::Dice;
use crate::transcript::Case;

/// Values that no parameter takes, or that few do.
const ODD: &[&str] = &[
    "",
    "x",
    "-1",
    "0",
    "1",
    "1.5",
    "true",
    "false",
    "null",
    "[]",
    "{}",
    "\"",
    "\"x\"",
    "99999999999999999999",
    "[1,",
    "TRUE",
    "undefined",
    "[\"a\"]",
    "{\"a\":1}",
    "1e3",
    "é",
    "%00",
];
/// In how many of 100 cases a parameter has an odd value.
const ODD_PERCENT: usize = 8;

/// Names of parameters or members, each with values to pick from.
pub type Table = &'static [(&'static str, &'static [&'static str])];

/// A conversation under construction.
#[derive(Debug)]
pub struct Draft {
    /// Chance; the generators draw from it.
    pub dice: Dice,
    steps: Vec<Value>,
}

impl Draft {
    /// An empty conversation.
    pub fn new(dice: Dice) -> Draft {
        Draft { dice, steps: Vec::new() }
    }

    /// Adds a request without a body: a method, a blank and a target.
    pub fn ask(&mut self, action: &str) -> &mut Draft {
        self.steps.push(object([("do", Value::from(action))]));
        self
    }

    /// Gives the last request a JSON body. Text that is no JSON is sent as text of that content type.
    pub fn json(&mut self, text: &str) -> &mut Draft {
        match Value::parse(text.as_bytes()) {
            Ok(value) => self.with("body", value),
            Err(_) => self.text("application/json", text),
        }
    }

    /// Gives the last request a body of text.
    pub fn text(&mut self, content_type: &str, text: &str) -> &mut Draft {
        self.with("text", Value::from(text)).header("Content-Type", content_type)
    }

    /// Gives the last request a header.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Draft {
        let Some(Value::Object(step)) = self.steps.last_mut() else { return self };
        match step.iter_mut().find(|(k, _)| k == "headers") {
            Some((_, Value::Object(headers))) => headers.push((name.to_owned(), Value::from(value))),
            _ => step.push(("headers".to_owned(), object([(name, Value::from(value))]))),
        }
        self
    }

    /// Binds a variable to a part of the answer of the last request.
    pub fn bind(&mut self, name: &str, place: &str) -> &mut Draft {
        self.with("bind", object([(name, Value::from(place))]))
    }

    /// Gives the step of the last request any other member.
    pub fn with(&mut self, name: &str, value: Value) -> &mut Draft {
        if let Some(Value::Object(step)) = self.steps.last_mut() {
            step.push((name.to_owned(), value));
        }
        self
    }

    /// Up to `most` of the parameters of `table`, as a query with its `?`; some values are odd.
    pub fn query(&mut self, table: Table, most: usize) -> String {
        let mut out = String::new();
        for n in 0..self.dice.below(most + 1) {
            let (name, values) = self.dice.pick(table);
            let value = if self.dice.chance(ODD_PERCENT) { self.dice.pick(ODD) } else { self.dice.pick(values) };
            out.push(if n == 0 { '?' } else { '&' });
            out.push_str(name);
            out.push('=');
            out.push_str(&escaped(value));
        }
        out
    }

    /// Up to `most` members of `table`, as a JSON object; some values are odd.
    pub fn members(&mut self, table: Table, most: usize) -> String {
        let mut out = Vec::new();
        for _ in 0..self.dice.below(most + 1) {
            let (name, values) = self.dice.pick(table);
            let odd = ["null", "[]", "{}", "\"x\"", "-1", "1.5", "true", "0", "[1]", "{\"a\":1}", "\"\"", "1e3"];
            let value = if self.dice.chance(ODD_PERCENT) { self.dice.pick(&odd) } else { self.dice.pick(values) };
            if !out.iter().any(|(n, _): &(&str, &str)| *n == name) {
                out.push((name, value));
            }
        }
        let members: Vec<String> = out.into_iter().map(|(n, v)| format!("\"{n}\":{v}")).collect();
        format!("{{{}}}", members.join(","))
    }

    /// The steps.
    pub fn steps(self) -> Vec<Value> {
        self.steps
    }
}

/// Text for a query: what has a meaning there is escaped, variables stay.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("${") || rest.starts_with("%00") {
            let end = if c == '%' { 3 } else { rest.find('}').map_or(rest.len(), |at| at + 1) };
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        if c.is_ascii_alphanumeric() || "-_.~,:*()!/".contains(c) {
            out.push(c);
        } else {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|b| out.push_str(&format!("%{b:02X}")));
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// The case of some steps, ready to be played; its answers are the other server's.
///
/// # Errors
/// When a step is not one of a case.
pub fn case(id: &str, steps: &[Value]) -> Result<Case, String> {
    let blank = |step: &Value| {
        let mut members = step.as_object().unwrap_or_default().to_vec();
        members.push(("response".to_owned(), object([("status", Value::from(200))])));
        // Nothing is expected while it is played: a difference would end what polls.
        members.push(("setup".to_owned(), Value::Bool(true)));
        Value::Object(members)
    };
    let value = draft(id, &steps.iter().map(blank).collect::<Vec<_>>());
    Case::read("random", id, &value)
}

/// A draft of a case file of some steps: `settee-conformance record` fills its answers in.
pub fn draft(title: &str, steps: &[Value]) -> Value {
    object([("title", Value::from(title)), ("spec", Value::from("random")), ("steps", Value::Array(steps.to_vec()))])
}

#[cfg(test)]
mod tests {
    use super::{Draft, case, escaped};
    use crate::random::dice::Dice;

    #[test]
    fn queries_are_escaped_and_keep_variables() {
        assert_eq!(escaped("[\"a b\"]"), "%5B%22a%20b%22%5D");
        assert_eq!(escaped("${rev}&é"), "${rev}%26%C3%A9");
        assert_eq!(escaped("%00"), "%00");
    }

    #[test]
    fn steps_are_those_of_a_case() {
        let mut draft = Draft::new(Dice::new(1, "t"));
        draft
            .ask("PUT /${db}")
            .ask("POST /${db}")
            .json("{\"a\":1}")
            .header("A", "b")
            .header("C", "d")
            .bind("rev", "/rev");
        draft.ask("POST /${db}").json("{");
        let steps = draft.steps();
        let case = case("t", &steps).expect("a case");
        assert_eq!(case.steps.len(), 3);
        assert_eq!(case.steps[1].headers.len(), 2);
        assert_eq!(case.steps[2].headers, [("Content-Type".to_owned(), "application/json".to_owned())]);
    }
}
