//! The shortest conversation that still shows a difference: steps, parameters, headers and members of bodies are left
//! out as long as it does.

use crate::json::Value;

/// What can be left out of a conversation, in the order of trying: ever smaller runs of steps, then parts of each step.
#[derive(Debug)]
pub struct Shrinker {
    steps: Vec<Value>,
    /// The length of the runs of steps that are left out; 0 when parts are.
    run: usize,
    at: usize,
}

impl Shrinker {
    /// For a conversation whose last step differs.
    pub fn new(steps: Vec<Value>) -> Shrinker {
        let run = (steps.len() / 2).max(1);
        Shrinker { steps, run, at: 0 }
    }

    /// The shortest conversation so far.
    pub fn steps(&self) -> &[Value] {
        &self.steps
    }

    /// The next shorter conversation to try; `None` when there is none.
    pub fn next(&mut self) -> Option<Vec<Value>> {
        while self.run > 0 {
            if self.at + self.run < self.steps.len() {
                let mut shorter = self.steps.clone();
                shorter.drain(self.at..self.at + self.run);
                return Some(shorter);
            }
            self.run /= 2;
            self.at = 0;
        }
        let mut left = self.at;
        for n in 0..self.steps.len() {
            for smaller in smaller_steps(&self.steps[n]) {
                if left == 0 {
                    let mut shorter = self.steps.clone();
                    shorter[n] = smaller;
                    return Some(shorter);
                }
                left -= 1;
            }
        }
        None
    }

    /// Tells whether the conversation that `next` gave still shows the difference.
    pub fn told(&mut self, tried: Vec<Value>, still: bool) {
        if still {
            self.steps = tried;
        } else {
            self.at += self.run.max(1);
        }
    }
}

/// A step with one part less, in every way.
fn smaller_steps(step: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    let action = step.get("do").and_then(Value::as_str).unwrap_or_default();
    if let Some((path, query)) = action.split_once('?') {
        let parts: Vec<&str> = query.split('&').collect();
        for n in 0..parts.len() {
            let kept: Vec<&str> = parts.iter().enumerate().filter(|(k, _)| *k != n).map(|(_, p)| *p).collect();
            let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
            out.push(with(step, "do", Value::String(format!("{path}{query}"))));
        }
    }
    for name in ["headers", "body"] {
        let Some(value) = step.get(name) else { continue };
        out.extend(smaller_values(value).into_iter().map(|smaller| with(step, name, smaller)));
    }
    out
}

/// A value with one member or item less, at any depth.
fn smaller_values(value: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    match value {
        Value::Object(members) => {
            for n in 0..members.len() {
                let mut fewer = members.clone();
                fewer.remove(n);
                out.push(Value::Object(fewer));
            }
            for (n, (_, inner)) in members.iter().enumerate() {
                for smaller in smaller_values(inner) {
                    let mut changed = members.clone();
                    changed[n].1 = smaller;
                    out.push(Value::Object(changed));
                }
            }
        }
        Value::Array(items) => {
            for n in 0..items.len() {
                let mut fewer = items.clone();
                fewer.remove(n);
                out.push(Value::Array(fewer));
            }
            for (n, inner) in items.iter().enumerate() {
                for smaller in smaller_values(inner) {
                    let mut changed = items.clone();
                    changed[n] = smaller;
                    out.push(Value::Array(changed));
                }
            }
        }
        _ => {}
    }
    out
}

fn with(step: &Value, name: &str, value: Value) -> Value {
    let members = step.as_object().unwrap_or_default().iter();
    Value::Object(members.map(|(k, v)| (k.clone(), if k == name { value.clone() } else { v.clone() })).collect())
}

#[cfg(test)]
mod tests {
    use super::Shrinker;
    use crate::json::Value;

    #[test]
    fn only_what_the_difference_needs_is_left() {
        let text = r#"[{"do":"PUT /a"},{"do":"PUT /b","body":{"x":[1,2,3],"y":1}},{"do":"GET /c"},{"do":"GET /d?p=1&q=2","headers":{"A":"1","B":"2"}}]"#;
        let Ok(Value::Array(steps)) = Value::parse(text.as_bytes()) else { panic!("a list") };
        let mut shrinker = Shrinker::new(steps);
        let mut plays = 0;
        while let Some(tried) = shrinker.next() {
            let all = Value::Array(tried.clone()).to_text(false);
            let still = all.contains("PUT /b") && all.contains('2') && all.contains("q=2") && all.contains("[");
            shrinker.told(tried, still);
            plays += 1;
        }
        assert_eq!(
            Value::Array(shrinker.steps().to_vec()).to_text(false),
            r#"[{"do": "PUT /b", "body": {}}, {"do": "GET /d?q=2", "headers": {}}]"#
        );
        assert!(plays < 60, "{plays}");
    }
}
