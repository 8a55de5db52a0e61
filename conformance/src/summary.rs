//! One page about a server, for its maintainers to show: what it may claim, what each chapter says, what it does
//! otherwise.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::html::escaped;
use crate::level::Levels;
use crate::report::{CaseOutcome, Row, Totals, totals};

/// Names of cases shown of one reason; the rest is counted.
const NAMED_MAX: usize = 6;
/// Failed cases shown; the rest is counted.
const FAILED_MAX: usize = 40;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:52em;margin:2em auto;padding:0 1em;color:#222}\
    h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.6em}table{border-collapse:collapse;width:100%}\
    td,th{text-align:left;padding:.25em .6em;border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right}\
    .yes{color:#0a6}.no{color:#b30}code{font-size:.92em}@media print{body{margin:0}}";

/// What was tested, and how.
#[derive(Clone, Debug)]
pub struct About {
    /// `host:port`.
    pub server: String,
    /// Name and version as `GET /` tells them.
    pub product: String,
    /// The profile, empty without one.
    pub profile: String,
    /// The version of the suite.
    pub suite: String,
    /// The command that repeats the run.
    pub command: String,
}

/// The page.
pub fn page(rows: &[Row], levels: &Levels, about: &About, lenient: bool) -> String {
    let product = escaped(&about.product);
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Conformance of {product}</title>\
         <style>{STYLE}</style><h1>Conformance of {product}</h1>"
    );
    let sum = totals(rows, lenient);
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<p>{} cases passed, {} failed, {} were not played or are known to differ ({}). Suite {}{}.</p>",
        sum.passed,
        sum.failed,
        sum.skipped,
        sum.expected,
        escaped(&about.suite),
        if about.profile.is_empty() { String::new() } else { format!(", profile {}", escaped(&about.profile)) },
    );
    out.push_str("<h2>What it may claim</h2><table><tr><th>level<th>what for<th>passed<th>");
    for (level, rows) in levels.split(rows) {
        let t = counted(&rows, lenient);
        let whole = t.failed == 0 && t.expected == 0 && t.passed > 0;
        let (class, word) = if whole { ("yes", "complete") } else { ("no", "incomplete") };
        let (name, what) = (escaped(&level.name), escaped(&level.about));
        let _ = write!(out, "<tr><td><b>{name}</b><td>{what}<td class=\"n\">{} of {}", t.passed, rows.len());
        let _ = write!(out, "<td class=\"{class}\">{word}");
    }
    out.push_str(
        "</table><h2>Chapters</h2><table><tr><th>chapter<th>passed<th>failed<th>known to differ<th>not played",
    );
    let mut chapters: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| chapters.entry(&row.chapter).or_default().push(row));
    for (chapter, rows) in &chapters {
        let t = counted(rows, lenient);
        let _ = write!(out, "<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}", escaped(chapter), t.passed, t.failed);
        let _ = write!(out, "<td class=\"n\">{}<td class=\"n\">{}", t.expected, t.skipped - t.expected);
    }
    out.push_str("</table>");
    failed(&mut out, rows);
    known(&mut out, rows);
    let _ = write!(out, "<h2>To repeat it</h2><p><code>{}</code></p></html>", escaped(&about.command));
    out + "\n"
}

fn counted(rows: &[&Row], lenient: bool) -> Totals {
    let mut sum = Totals::default();
    rows.iter().for_each(|row| sum.add(row.outcome.counted(lenient)));
    sum
}

fn failed(out: &mut String, rows: &[Row]) {
    let failures: Vec<(&Row, &String)> = rows
        .iter()
        .filter_map(|row| match &row.outcome {
            CaseOutcome::Failed(found) => Some((row, found.first()?)),
            CaseOutcome::Unexpected(reason) => Some((row, reason)),
            _ => None,
        })
        .collect();
    if failures.is_empty() {
        return;
    }
    out.push_str("<h2>Failed</h2><table><tr><th>case<th>what should hold<th>first difference");
    for (row, found) in failures.iter().take(FAILED_MAX) {
        let (id, title, found) = (escaped(&row.id), escaped(&row.title), escaped(found));
        let _ = write!(out, "<tr><td><code>{id}</code><td>{title}<td>{found}");
    }
    out.push_str("</table>");
    if failures.len() > FAILED_MAX {
        let _ = write!(out, "<p>And {} more.</p>", failures.len() - FAILED_MAX);
    }
}

fn known(out: &mut String, rows: &[Row]) {
    let mut reasons: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
    for row in rows {
        match &row.outcome {
            CaseOutcome::Expected(reason, _) => reasons.entry((false, reason)).or_default().push(&row.id),
            CaseOutcome::Skipped(reason) => reasons.entry((true, reason)).or_default().push(&row.id),
            _ => {}
        }
    }
    for (skipped, head) in [(false, "Known to differ"), (true, "Not played")] {
        if !reasons.keys().any(|(of, _)| *of == skipped) {
            continue;
        }
        let _ = write!(out, "<h2>{head}</h2><table><tr><th>reason<th>cases");
        for ((_, reason), ids) in reasons.iter().filter(|((of, _), _)| *of == skipped) {
            let named: Vec<String> =
                ids.iter().take(NAMED_MAX).map(|id| format!("<code>{}</code>", escaped(id))).collect();
            let more = ids.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let _ = write!(out, "<tr><td>{}<td>{}{more}", escaped(reason), named.join(", "));
        }
        out.push_str("</table>");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{About, page};
    use crate::level::Levels;
    use crate::report::{CaseOutcome, Row};

    #[test]
    fn the_page_tells_what_failed_and_what_is_known() {
        let row = |id: &str, outcome: CaseOutcome| Row {
            id: id.to_owned(),
            chapter: id.split('/').next().unwrap_or_default().to_owned(),
            title: "a <title>".to_owned(),
            spec: String::new(),
            level: "core".to_owned(),
            outcome,
            took: Duration::ZERO,
            steps: Vec::new(),
            commands: Vec::new(),
        };
        let rows = vec![
            row("a/1", CaseOutcome::Passed),
            row("a/2", CaseOutcome::Failed(vec!["step 0: <odd>".to_owned()])),
            row("b/3", CaseOutcome::Expected("it cannot".to_owned(), vec![])),
        ];
        let about = About {
            server: "h:1".to_owned(),
            product: "x 1".to_owned(),
            profile: String::new(),
            suite: "0.1".to_owned(),
            command: "settee-conformance".to_owned(),
        };
        let text = page(&rows, &Levels::default(), &about, false);
        for part in
            ["1 cases passed, 1 failed", "a &lt;title&gt;", "step 0: &lt;odd&gt;", "Known to differ", "it cannot"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
