//! One self-contained page of a run: chapters, cases, each step's request, expected and received answer side by side.
//!
//! Where a value differs it is marked on both sides. Nothing is fetched: style and script stand in the page, so that it
//! can be mailed. All text of servers is escaped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::json::Value;
use crate::level::Levels;
use crate::report::{CaseOutcome, Row, Totals, totals};
use crate::transcript::Expect;

/// Characters of one shown value; the rest is cut.
const SHOWN_MAX: usize = 6_000;

/// One step as the page shows it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The request's text.
    pub request: String,
    /// What was expected.
    pub expect: Expect,
    /// The received status.
    pub status: u16,
    /// The received headers that count.
    pub headers: Vec<(String, Option<String>)>,
    /// The received body.
    pub body: Value,
    /// The differences, each beginning with the pointer of the value where it is about one.
    pub differences: Vec<String>,
}

const STYLE: &str = include_str!("page/style.css");

const SCRIPT: &str = include_str!("page/script.js");

/// The page. `server` names what was tested.
pub fn page(rows: &[Row], levels: &Levels, server: &str, lenient: bool) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Conformance of {0}</title>\
         <style>{STYLE}</style><h1>Conformance of {0}</h1>",
        escaped(server)
    );
    let sum = totals(rows, lenient);
    // Writing to a String cannot fail.
    let _ = write!(out, "<p>{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    let _ = write!(out, " (of these {} are expected failures).</p>", sum.expected);
    let counted = |rows: &[&Row]| {
        let mut sum = Totals::default();
        rows.iter().for_each(|row| sum.add(row.outcome.counted(lenient)));
        sum
    };
    out.push_str("<table><tr><th>level<th>passed<th>failed<th>skipped<th>expected</tr>");
    for (level, rows) in levels.split(rows) {
        table_row(&mut out, &format!("{}: {}", level.name, level.about), counted(&rows));
    }
    out.push_str("</table><p></p><table><tr><th>chapter<th>passed<th>failed<th>skipped<th>expected</tr>");
    let mut chapters: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| chapters.entry(&row.chapter).or_default().push(row));
    for (chapter, rows) in &chapters {
        table_row(&mut out, chapter, counted(rows));
    }
    out.push_str("</table><p><input type=\"search\" placeholder=\"name or title\"> ");
    for (name, checked) in
        [("failed", true), ("unexpected", true), ("expected", true), ("passed", false), ("skipped", false)]
    {
        let checked = if checked { " checked" } else { "" };
        let _ = write!(out, "<label><input type=\"checkbox\" value=\"{name}\"{checked}> {name}</label>");
    }
    out.push_str("</p>");
    for (chapter, rows) in chapters {
        let _ = write!(out, "<h2>{}</h2>", escaped(chapter));
        rows.into_iter().for_each(|row| case(&mut out, row));
    }
    let _ = write!(out, "<script>{SCRIPT}</script></html>");
    out + "\n"
}

fn table_row(out: &mut String, name: &str, t: Totals) {
    let _ = write!(out, "<tr><td>{}<td>{}<td>{}", escaped(name), t.passed, t.failed);
    let _ = write!(out, "<td>{}<td>{}</tr>", t.skipped, t.expected);
}

fn case(out: &mut String, row: &Row) {
    let (class, note) = match &row.outcome {
        CaseOutcome::Passed => ("passed", ""),
        CaseOutcome::Failed(_) => ("failed", ""),
        CaseOutcome::Skipped(reason) => ("skipped", reason.as_str()),
        CaseOutcome::Expected(reason, _) => ("expected", reason.as_str()),
        CaseOutcome::Unexpected(reason) => ("unexpected", reason.as_str()),
    };
    let found = format!("{} {}", row.id, row.title).to_lowercase();
    let (id, title) = (escaped(&row.id), escaped(&row.title));
    let _ = write!(out, "<details class=\"case\" data-r=\"{class}\" data-t=\"{}\">", escaped(&found));
    let _ = write!(out, "<summary><span class=\"s {class}\">{class}</span>{id}: {title}</summary>");
    if !note.is_empty() {
        let _ = write!(out, "<p>{}</p>", escaped(note));
    }
    if let CaseOutcome::Failed(told) = &row.outcome
        && row.steps.is_empty()
    {
        told.iter().for_each(|line| why(out, line));
    }
    row.steps.iter().for_each(|shown| step(out, shown));
    out.push_str("</details>");
}

fn why(out: &mut String, line: &str) {
    let _ = write!(out, "<p class=\"why\">{}</p>", escaped(line));
}

fn step(out: &mut String, shown: &Shown) {
    let bad = if shown.differences.is_empty() { "" } else { " bad" };
    let _ = write!(out, "<div class=\"step{bad}\"><pre>{}</pre>", escaped(&cut(&shown.request)));
    shown.differences.iter().for_each(|line| why(out, line));
    let marks: BTreeSet<&str> = shown.differences.iter().filter_map(|line| place(line)).collect();
    let expect = &shown.expect;
    let none = Value::Null;
    let wanted = match (expect.setup, expect.refused) {
        (true, _) => "anything".to_owned(),
        (_, true) => "any error".to_owned(),
        _ => side(expect.status, &expect.headers, expect.body.as_ref().unwrap_or(&none), &marks),
    };
    let got = side(shown.status, &shown.headers, &shown.body, &marks);
    let _ =
        write!(out, "<div class=\"side\"><div>expected<pre>{wanted}</pre></div><div>received<pre>{got}</pre></div>");
    out.push_str("</div></div>");
}

/// The place that a difference is about: `status`, `header NAME`, or a JSON pointer.
fn place(difference: &str) -> Option<&str> {
    if difference.starts_with("status ") {
        return Some("status");
    }
    let before = difference.split(": ").next()?;
    Some(before).filter(|text| text.starts_with('/') || text.starts_with("header "))
}

fn side(status: u16, headers: &[(String, Option<String>)], body: &Value, marks: &BTreeSet<&str>) -> String {
    let marked = |place: &str, text: String| if marks.contains(place) { format!("<mark>{text}</mark>") } else { text };
    let mut out = marked("status", status.to_string()) + "\n";
    for (name, value) in headers {
        let line = format!("{}: {}", escaped(name), escaped(value.as_deref().unwrap_or("(absent)")));
        out += &(marked(&format!("header {name}"), line) + "\n");
    }
    out.push('\n');
    let mut printer = Printer { out, marks, left: SHOWN_MAX };
    printer.value(body, "", 0);
    printer.out
}

/// Writes JSON on several lines, marking the values at some pointers.
struct Printer<'a> {
    out: String,
    marks: &'a BTreeSet<&'a str>,
    left: usize,
}

impl Printer<'_> {
    fn value(&mut self, value: &Value, path: &str, depth: usize) {
        let marked = !path.is_empty() && self.marks.contains(path);
        self.out.push_str(if marked { "<mark>" } else { "" });
        match value {
            _ if self.left == 0 => self.out.push_str("..."),
            Value::Array(items) if !items.is_empty() => {
                self.out.push('[');
                for (n, item) in items.iter().enumerate() {
                    self.line(n > 0, depth + 1);
                    self.value(item, &format!("{path}/{n}"), depth + 1);
                }
                self.line(false, depth);
                self.out.push(']');
            }
            Value::Object(members) if !members.is_empty() => {
                self.out.push('{');
                for (n, (name, value)) in members.iter().enumerate() {
                    self.line(n > 0, depth + 1);
                    self.text(&Value::from(name.as_str()).to_text(false));
                    self.out.push_str(": ");
                    self.value(value, &format!("{path}/{name}"), depth + 1);
                }
                self.line(false, depth);
                self.out.push('}');
            }
            other => self.text(&other.to_text(false)),
        }
        self.out.push_str(if marked { "</mark>" } else { "" });
    }

    fn line(&mut self, comma: bool, depth: usize) {
        self.out.push_str(if comma { ",\n" } else { "\n" });
        (0..depth).for_each(|_| self.out.push_str("  "));
    }

    fn text(&mut self, text: &str) {
        let text = cut(text);
        self.left = self.left.saturating_sub(text.len());
        self.out.push_str(&escaped(&text));
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Shown, page};
    use crate::json::Value;
    use crate::level::Levels;
    use crate::report::{CaseOutcome, Row};
    use crate::transcript::Expect;

    fn json(text: &str) -> Value {
        Value::parse(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn a_value_that_differs_is_marked_on_both_sides_and_nothing_runs_that_a_server_sent() {
        let expect = Expect {
            status: 200,
            kind: "json".into(),
            body: Some(json(r#"{"a":{"b":1},"c":2}"#)),
            ..Expect::default()
        };
        let shown = Shown {
            request: "GET /<script>".into(),
            expect,
            status: 200,
            headers: vec![("etag".into(), None)],
            body: json(r#"{"a":{"b":"<script>x</script>"},"c":2}"#),
            differences: vec!["/a/b: 1 expected, got \"<script>\"".into()],
        };
        let row = Row {
            id: "c/n".into(),
            chapter: "c".into(),
            spec: String::new(),
            commands: Vec::new(),
            title: "t".into(),
            level: "core".into(),
            outcome: CaseOutcome::Failed(vec!["x".into()]),
            took: Duration::ZERO,
            steps: vec![shown],
        };
        let page = page(&[row], &Levels::default(), "it", false);
        assert!(page.contains("&quot;b&quot;: <mark>1</mark>"), "{page}");
        assert!(page.contains("&quot;b&quot;: <mark>&quot;&lt;script&gt;x&lt;/script&gt;&quot;</mark>"), "{page}");
        assert_eq!(page.matches("<script>").count(), 1, "the page's own");
        assert_eq!(page.matches("<mark>").count(), 2);
        assert!(page.contains("0 passed, 1 failed, 0 skipped"));
    }
}
