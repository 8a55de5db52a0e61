//! Log lines as JSON, one object a line, for programs that collect them (`log/format = json`).
//!
//! `time` (ISO 8601, UTC, milliseconds), `level`, `target` (the module), `message`, then the fields of the line. A
//! field that has one of these names gets an underscore in front.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::WallClock;

/// Writes lines to standard error, with the time of the world's clock.
pub(super) struct JsonLines(pub WallClock);

impl<S: tracing::Subscriber> Layer<S> for JsonLines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut text = line(event, self.0());
        text.push('\n');
        // Nobody is left to be told.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Fields that every line has.
const OWN: [&str; 4] = ["time", "level", "target", "message"];

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let name = if OWN.contains(&name) { format!("_{name}") } else { name.to_owned() };
        self.others.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}").into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            _ => self.add(field, value.into()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

fn line(event: &tracing::Event<'_>, wall: Duration) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let seconds = crate::wire::iso_time::iso_time(wall);
    let mut out = Map::new();
    out.insert("time".to_owned(), format!("{}.{:03}Z", seconds.trim_end_matches('Z'), wall.subsec_millis()).into());
    out.insert("level".to_owned(), event.metadata().level().as_str().to_lowercase().into());
    out.insert("target".to_owned(), event.metadata().target().into());
    out.insert("message".to_owned(), fields.message.into());
    out.extend(fields.others);
    Value::Object(out).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(line(event, Duration::from_millis(1_764_104_400_042)));
        }
    }

    #[test]
    fn a_line_is_an_object_with_its_fields() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Kept(Arc::clone(&kept)));
        tracing::subscriber::with_default(subscriber, || {
            let name = "a\"b\nc";
            tracing::warn!(target: "request", name, count = 7_u64, level = "x", share = 0.5, ok = true, "one {}", 1);
        });
        let line: Value = serde_json::from_str(&kept.lock().unwrap()[0]).unwrap();
        let expected = serde_json::json!({"time": "2025-11-25T21:00:00.042Z", "level": "warn", "target": "request",
            "message": "one 1", "name": "a\"b\nc", "count": 7, "_level": "x", "share": 0.5, "ok": true});
        assert_eq!(line, expected);
    }
}
