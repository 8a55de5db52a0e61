//! The last lines of the log, in memory, for administrators who have no way to the node's standard error.
//!
//! One tail for the process, like its log; in the simulator nothing is logged, and it stays empty. It has bounded
//! numbers of lines and bytes (`limits`), the oldest line goes first.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::WallClock;
use crate::limits;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number since the start of the process, from 1.
    pub number: u64,
    /// When it was written, since the Unix epoch.
    pub wall: Duration,
    /// Its level.
    pub level: tracing::Level,
    /// What it says, with its fields.
    pub text: String,
}

/// The lines that are kept.
#[derive(Debug)]
struct Lines {
    kept: VecDeque<Line>,
    last: u64,
}

// A blocking lock: held for the copy of a few lines.
static LINES: Mutex<Lines> = Mutex::new(Lines { kept: VecDeque::new(), last: 0 });

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    fn add(&mut self, wall: Duration, level: tracing::Level, text: String) {
        if self.kept.len() >= limits::LOG_TAIL_LINES {
            self.kept.pop_front();
        }
        self.last += 1;
        self.kept.push_back(Line { number: self.last, wall, level, text });
    }

    fn after(&self, since: u64, level: tracing::Level, limit: usize) -> (Vec<Line>, u64) {
        // `tracing` orders levels by how much they let pass: an error is the least.
        let wanted = self.kept.iter().rev().filter(|line| line.number > since && line.level <= level);
        let mut found: Vec<Line> = wanted.take(limit).cloned().collect();
        found.reverse();
        (found, self.last)
    }
}

/// The last `limit` lines behind number `since` of `level` or worse, oldest first; and the number of the last line of
/// all.
pub fn after(since: u64, level: tracing::Level, limit: usize) -> (Vec<Line>, u64) {
    lines().after(since, level, limit)
}

/// Keeps what is logged.
pub(super) struct Keeping(pub(super) WallClock);

impl<S: tracing::Subscriber> Layer<S> for Keeping {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        lines().add(self.0(), *event.metadata().level(), text.done());
    }
}

/// The text of a line: its message, then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn done(self) -> String {
        let mut line = self.message + &self.fields;
        if line.len() > limits::LOG_TAIL_LINE_BYTES {
            line.truncate(line.floor_char_boundary(limits::LOG_TAIL_LINE_BYTES));
            line.push('…');
        }
        line
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail; a value whose own text fails is left out.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn lines_of(count: u64) -> Lines {
        let mut lines = Lines { kept: VecDeque::new(), last: 0 };
        for n in 0..count {
            let level = if n % 2 == 0 { Level::INFO } else { Level::WARN };
            lines.add(Duration::from_secs(n), level, format!("line {n}"));
        }
        lines
    }

    #[test]
    fn the_newest_lines_are_kept_and_given_out_from_a_number_on() {
        let most = limits::LOG_TAIL_LINES as u64;
        let lines = lines_of(most + 7);
        assert_eq!(lines.kept.len(), limits::LOG_TAIL_LINES);
        let (found, last) = lines.after(0, Level::TRACE, usize::MAX);
        assert_eq!((found.len() as u64, found[0].number, last), (most, 8, most + 7));
        let (found, _) = lines.after(most + 5, Level::TRACE, usize::MAX);
        assert_eq!(found.iter().map(|line| line.number).collect::<Vec<_>>(), [most + 6, most + 7]);
        let (found, _) = lines.after(0, Level::TRACE, 2);
        assert_eq!(found.last().map(|line| line.number), Some(most + 7));
    }

    #[test]
    fn a_level_lets_itself_and_worse_ones_pass() {
        let (found, _) = lines_of(10).after(0, Level::WARN, usize::MAX);
        assert!(found.len() == 5 && found.iter().all(|line| line.level == Level::WARN));
        assert_eq!(lines_of(10).after(0, Level::INFO, usize::MAX).0.len(), 10);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = Text { message: "ü".repeat(limits::LOG_TAIL_LINE_BYTES), fields: String::new() };
        let line = text.done();
        assert!(line.len() <= limits::LOG_TAIL_LINE_BYTES + 3 && line.ends_with("ü…"));
    }
}
