//! What came of a run: outcomes, and their forms for people (terminal) and machines (JUnit XML, JSON).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::html::Shown;
use crate::json::{Value, object};
use crate::level::Levels;

/// Differences of one case shown on the terminal; the files have all.
const SHOWN_MAX: usize = 8;

/// What came of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum CaseOutcome {
    /// All answers are as expected.
    Passed,
    /// The differences.
    Failed(Vec<String>),
    /// Why it was not played.
    Skipped(String),
    /// It differs, and the profile says why; the differences.
    Expected(String, Vec<String>),
    /// It passes although the profile lists it with this reason.
    Unexpected(String),
}

/// One case's row.
#[derive(Clone, Debug)]
pub struct Row {
    /// `chapter/name`.
    pub id: String,
    /// The chapter.
    pub chapter: String,
    /// The behaviour, as a sentence.
    pub title: String,
    /// The section of the specification that it belongs to.
    pub spec: String,
    /// The level that it counts for.
    pub level: String,
    /// What came of it.
    pub outcome: CaseOutcome,
    /// How long it took.
    pub took: Duration,
    /// What was sent and received, when a page was asked for.
    pub steps: Vec<Shown>,
    /// Of a failed case: commands of a shell that show the first difference.
    pub commands: Vec<String>,
}

/// How many cases passed, failed and were skipped (expected failures are skips).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed, unexpected passes included unless told to be lenient.
    pub failed: usize,
    /// Cases not played and expected failures.
    pub skipped: usize,
    /// Of the skipped ones: expected failures.
    pub expected: usize,
}

impl CaseOutcome {
    /// What the outcome adds to the totals.
    pub fn counted(&self, lenient: bool) -> Totals {
        let mut totals = Totals::default();
        match self {
            CaseOutcome::Passed => totals.passed = 1,
            CaseOutcome::Unexpected(_) if lenient => totals.passed = 1,
            CaseOutcome::Failed(_) | CaseOutcome::Unexpected(_) => totals.failed = 1,
            CaseOutcome::Skipped(_) => totals.skipped = 1,
            CaseOutcome::Expected(..) => (totals.skipped, totals.expected) = (1, 1),
        }
        totals
    }

    fn name(&self) -> &'static str {
        match self {
            CaseOutcome::Passed => "passed",
            CaseOutcome::Failed(_) => "failed",
            CaseOutcome::Skipped(_) => "skipped",
            CaseOutcome::Expected(..) => "expected failure",
            CaseOutcome::Unexpected(_) => "unexpected pass",
        }
    }
}

impl Totals {
    /// Adds what another has.
    pub fn add(&mut self, other: Totals) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.expected += other.expected;
    }
}

/// The totals of all rows.
pub fn totals(rows: &[Row], lenient: bool) -> Totals {
    let mut sum = Totals::default();
    rows.iter().for_each(|row| sum.add(row.outcome.counted(lenient)));
    sum
}

/// What a failed case means, and how to see it.
fn meaning(out: &mut String, row: &Row) {
    if row.commands.is_empty() {
        return;
    }
    let (spec, level) = (&row.spec, &row.level);
    let _ =
        writeln!(out, "     It belongs to {spec:?} and counts for the level {level:?}. To see the first difference:");
    for command in &row.commands {
        let _ = writeln!(out, "       {command}");
    }
}

/// The terminal's text: failures, skips by reason, a line per chapter, a badge per level, the totals as the last line.
pub fn terminal(rows: &[Row], levels: &Levels, lenient: bool) -> String {
    let mut out = String::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut chapters: BTreeMap<&str, Totals> = BTreeMap::new();
    // Writing to a String cannot fail.
    for row in rows {
        chapters.entry(&row.chapter).or_default().add(row.outcome.counted(lenient));
        match &row.outcome {
            CaseOutcome::Passed => {}
            CaseOutcome::Failed(differences) => {
                let _ = writeln!(out, "FAIL {}: {}", row.id, row.title);
                for difference in differences.iter().take(SHOWN_MAX) {
                    let _ = writeln!(out, "     {difference}");
                }
                if differences.len() > SHOWN_MAX {
                    let _ = writeln!(out, "     (+{} more)", differences.len() - SHOWN_MAX);
                }
                meaning(&mut out, row);
            }
            CaseOutcome::Unexpected(reason) => {
                let _ = writeln!(out, "PASS (unexpected) {}: the profile says: {reason}", row.id);
            }
            CaseOutcome::Skipped(reason) => *reasons.entry(reason.clone()).or_default() += 1,
            CaseOutcome::Expected(reason, _) => *reasons.entry(format!("expected failure: {reason}")).or_default() += 1,
        }
    }
    for (reason, count) in reasons {
        let _ = writeln!(out, "SKIP {count}: {reason}");
    }
    let _ = writeln!(out, "\n{:<12} {:>7} {:>7} {:>8} {:>9}", "chapter", "passed", "failed", "skipped", "expected");
    for (chapter, t) in chapters {
        let _ = writeln!(out, "{chapter:<12} {:>7} {:>7} {:>8} {:>9}", t.passed, t.failed, t.skipped, t.expected);
    }
    out.push('\n');
    for (level, rows) in levels.split(rows) {
        let _ = writeln!(out, "{}", badge(&level.name, &rows, lenient));
    }
    let sum = totals(rows, lenient);
    let _ = writeln!(out, "{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    out
}

/// `[core] 281 of 283, 4 not played`: how many of the level's cases pass, expected failures counted as failures.
fn badge(level: &str, rows: &[&Row], lenient: bool) -> String {
    let mut sum = Totals::default();
    rows.iter().for_each(|row| sum.add(row.outcome.counted(lenient)));
    let played = sum.passed + sum.failed + sum.expected;
    let skipped = sum.skipped - sum.expected;
    let mark = if sum.passed == played { "complete" } else { "incomplete" };
    let rest = if skipped > 0 { format!(", {skipped} not played") } else { String::new() };
    format!("[{level}] {mark}: {} of {played}{rest}", sum.passed)
}

/// One JSON object: the totals and a row per case.
pub fn json(rows: &[Row], lenient: bool) -> String {
    let texts = |list: &[String]| Value::Array(list.iter().map(|t| Value::from(t.as_str())).collect());
    let cases = rows.iter().map(|row| {
        let (reason, differences) = match &row.outcome {
            CaseOutcome::Passed => (Value::Null, texts(&[])),
            CaseOutcome::Failed(found) => (Value::Null, texts(found)),
            CaseOutcome::Skipped(reason) | CaseOutcome::Unexpected(reason) => {
                (Value::from(reason.as_str()), texts(&[]))
            }
            CaseOutcome::Expected(reason, found) => (Value::from(reason.as_str()), texts(found)),
        };
        object([
            ("case", Value::from(row.id.as_str())),
            ("chapter", Value::from(row.chapter.as_str())),
            ("title", Value::from(row.title.as_str())),
            ("level", Value::from(row.level.as_str())),
            ("result", Value::from(row.outcome.name())),
            ("reason", reason),
            ("differences", differences),
            ("took_s", Value::Number(format!("{:.3}", row.took.as_secs_f64()))),
        ])
    });
    let sum = totals(rows, lenient);
    let report = object([
        ("passed", Value::from(sum.passed)),
        ("failed", Value::from(sum.failed)),
        ("skipped", Value::from(sum.skipped)),
        ("expected", Value::from(sum.expected)),
        ("cases", Value::Array(cases.collect())),
    ]);
    report.to_text(false) + "\n"
}

/// JUnit XML: a suite per chapter, a case per row.
pub fn junit(rows: &[Row], lenient: bool) -> String {
    let sum = totals(rows, lenient);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "<testsuites tests=\"{}\" failures=\"{}\">", rows.len(), sum.failed);
    let mut chapters: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| chapters.entry(&row.chapter).or_default().push(row));
    for (chapter, rows) in chapters {
        let mut sum = Totals::default();
        rows.iter().for_each(|row| sum.add(row.outcome.counted(lenient)));
        let counts = format!("tests=\"{}\" failures=\"{}\" skipped=\"{}\"", rows.len(), sum.failed, sum.skipped);
        let _ = writeln!(out, "  <testsuite name=\"{}\" {counts}>", escaped(chapter));
        for row in rows {
            let (class, name, took) = (escaped(chapter), escaped(&row.id), row.took.as_secs_f64());
            let _ = writeln!(out, "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{took:.3}\">");
            match &row.outcome {
                CaseOutcome::Unexpected(_) if lenient => {}
                CaseOutcome::Passed => {}
                CaseOutcome::Failed(found) => {
                    let (title, text) = (escaped(&row.title), escaped(&found.join("\n")));
                    let _ = writeln!(out, "      <failure message=\"{title}\">{text}</failure>");
                }
                CaseOutcome::Unexpected(reason) => {
                    let _ = writeln!(out, "      <failure message=\"unexpected pass\">{}</failure>", escaped(reason));
                }
                CaseOutcome::Skipped(reason) | CaseOutcome::Expected(reason, _) => {
                    let _ = writeln!(out, "      <skipped message=\"{}\"/>", escaped(reason));
                }
            }
            out.push_str("    </testcase>\n");
        }
        out.push_str("  </testsuite>\n");
    }
    out + "</testsuites>\n"
}

/// Text for XML: markup escaped, characters that XML forbids shown as U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{CaseOutcome, Row, json, junit, terminal};
    use crate::json::Value;
    use crate::level::{Level, Levels};
    use std::time::Duration;

    fn rows() -> Vec<Row> {
        let row = |id: &str, outcome: CaseOutcome| Row {
            id: id.to_owned(),
            chapter: id.split('/').next().unwrap_or_default().to_owned(),
            title: "a <title>".to_owned(),
            spec: "Documents".to_owned(),
            level: "core".to_owned(),
            outcome,
            took: Duration::from_millis(1_500),
            steps: Vec::new(),
            commands: vec!["curl".to_owned()],
        };
        vec![
            row("a/1", CaseOutcome::Passed),
            row("a/2", CaseOutcome::Failed((0..10).map(|n| format!("difference {n} \"<&\u{1}")).collect())),
            row("b/3", CaseOutcome::Skipped("needs more".into())),
            row("b/4", CaseOutcome::Expected("not yet".into(), vec!["x".into()])),
            row("b/5", CaseOutcome::Unexpected("not yet".into())),
        ]
    }

    fn core() -> Level {
        Level { name: "core".into(), about: "a".into(), cases: vec![], specs: vec![], chapters: vec![] }
    }

    #[test]
    fn the_last_line_has_the_totals() {
        let levels = Levels { level: vec![core()] };
        let text = terminal(&rows(), &levels, false);
        assert!(text.ends_with("\n1 passed, 2 failed, 2 skipped\n"), "{text}");
        assert!(
            text.contains("(+2 more)") && text.contains("\n       curl\n") && text.contains("SKIP 1: needs more"),
            "{text}"
        );
        assert!(text.contains("[core] incomplete: 1 of 4, 1 not played"), "{text}");
        assert!(terminal(&rows(), &levels, true).ends_with("\n2 passed, 1 failed, 2 skipped\n"));
    }

    #[test]
    fn machines_get_every_row() {
        let report = Value::parse(json(&rows(), false).as_bytes()).expect("JSON");
        assert_eq!(report.pointer("/cases/1/differences").and_then(Value::as_array).map(<[_]>::len), Some(10));
        assert_eq!(report.pointer("/cases/3/result").and_then(Value::as_str), Some("expected failure"));
        let xml = junit(&rows(), false);
        assert!(xml.contains("<testsuites tests=\"5\" failures=\"2\">"), "{xml}");
        assert!(xml.contains("difference 0 &quot;&lt;&amp;\u{fffd}"), "{xml}");
        assert_eq!(xml.matches("<testcase ").count(), xml.matches("</testcase>").count());
    }
}
