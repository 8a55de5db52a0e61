//! INI text as CouchDB reads it, and edits that leave every other line as it is. Pure.
//!
//! A line is a section in brackets, a comment (`;` or `#` first), `key = value`, or, when it begins with one blank and
//! holds no `=`, the continuation of the value before it. Where blanks surround an `=`, the first such one divides key
//! and value, so that keys may hold `=`; else the first `=` does (CouchDB documentation, 'JWT authentication'). ` ;` in
//! a value begins a comment. An empty value deletes what earlier files have set. The last of equal keys counts.

use super::{ConfigError, Sections};

/// A line and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line<'a> {
    Section(&'a str),
    Entry {
        key: &'a str,
        value: &'a str,
    },
    Continuation(&'a str),
    /// Comments, blank lines, and what CouchDB skips.
    Other,
}

/// What the text sets. Keys before any section belong to the section with the empty name.
pub fn settings(text: &str) -> Sections {
    let mut out = Sections::new();
    let mut section = String::new();
    let mut open: Option<String> = None;
    for line in text.split_inclusive('\n') {
        match read_line(line) {
            Line::Section(name) => {
                section = name.to_owned();
                open = None;
            }
            Line::Entry { key, value } => {
                out.entry(section.clone()).or_default().insert(key.to_owned(), value.to_owned());
                open = Some(key.to_owned());
            }
            Line::Continuation(more) => {
                let value = open.as_ref().and_then(|key| out.get_mut(&section)?.get_mut(key));
                if let Some(value) = value {
                    value.push(' ');
                    value.push_str(more);
                }
            }
            Line::Other => {}
        }
    }
    out
}

fn read_line(line: &str) -> Line<'_> {
    let text = line.trim();
    if let Some(rest) = text.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((name, "")) => Line::Section(name),
            _ => Line::Other,
        };
    }
    if text.is_empty() || text.starts_with([';', '#', '=']) {
        return Line::Other;
    }
    match divide(text) {
        Some((key, value)) => Line::Entry { key: key.trim_end(), value: without_comment(value) },
        None if line.starts_with(' ') && !line[1..].starts_with(char::is_whitespace) => {
            Line::Continuation(without_comment(text))
        }
        None => Line::Other,
    }
}

/// Key and value on both sides of the `=` that divides them.
fn divide(text: &str) -> Option<(&str, &str)> {
    let blank = |b: Option<&u8>| b.is_none_or(|b| b.is_ascii_whitespace());
    let bytes = text.as_bytes();
    let surrounded = |at: &usize| *at > 0 && blank(bytes.get(at - 1)) && blank(bytes.get(at + 1));
    let mut all = text.match_indices('=').map(|(at, _)| at);
    let at = all.clone().find(surrounded).or_else(|| all.next())?;
    Some((&text[..at], &text[at + 1..]))
}

fn without_comment(value: &str) -> &str {
    // The value may begin with the comment: `key = ; none`.
    let padded_end = [" ;", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
    value[..padded_end.unwrap_or(value.len())].trim()
}

/// The text with one setting changed: replaced where it stands (the last of equal keys, with its continuation lines),
/// else added at the end of its section, else in a new section at the end. `None` removes every line of the setting.
pub fn edit(text: &str, section: &str, key: &str, value: Option<&str>) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let found = locate(&lines, section, key);
    let entry = value.map(|v| format!("{key} = {v}"));
    let mut out = String::with_capacity(text.len() + 64);
    let replaced = found.entries.last().filter(|_| entry.is_some());
    for (n, line) in lines.iter().enumerate() {
        if let (true, Some(entry)) = (replaced.is_some_and(|own| own[0] == n), &entry) {
            out.push_str(&keep_shape(line, entry, key, value.unwrap_or_default(), newline));
            continue;
        }
        let dropped = match value {
            Some(_) => replaced.is_some_and(|own| own.contains(&n)),
            None => found.entries.iter().any(|own| own.contains(&n)),
        };
        if !dropped {
            out.push_str(line);
        }
        if let (Some(entry), None, true) = (&entry, replaced, found.section_end == Some(n + 1)) {
            push_line(&mut out, entry, newline);
        }
    }
    if let (Some(entry), None) = (&entry, found.section_end) {
        if !out.is_empty() {
            push_line(&mut out, "", newline);
        }
        push_line(&mut out, &format!("[{section}]"), newline);
        push_line(&mut out, entry, newline);
    }
    out
}

/// Where a setting stands.
struct Found {
    /// For each entry of this key in this section its line, then those of its continuation: comments may stand between.
    entries: Vec<Vec<usize>>,
    /// The line after the last entry (or the header) of the section's last occurrence.
    section_end: Option<usize>,
}

fn locate(lines: &[&str], section: &str, key: &str) -> Found {
    let mut found = Found { entries: Vec::new(), section_end: None };
    // Settings before any header belong to the section without a name.
    let mut inside = section.is_empty();
    let mut open = false;
    for (n, line) in lines.iter().enumerate() {
        match read_line(line) {
            Line::Section(name) => {
                inside = name == section;
                open = false;
                if inside {
                    found.section_end = Some(n + 1);
                }
            }
            Line::Entry { key: own, .. } if inside => {
                open = own == key;
                found.section_end = Some(n + 1);
                if open {
                    found.entries.push(vec![n]);
                }
            }
            Line::Continuation(_) if inside => {
                found.section_end = Some(n + 1);
                if let (true, Some(entry)) = (open, found.entries.last_mut()) {
                    entry.push(n);
                }
            }
            _ => {}
        }
    }
    found
}

/// The new line with the old one's indentation, spacing around `=` and trailing comment, where these read back right.
fn keep_shape(old: &str, plain: &str, key: &str, value: &str, newline: &str) -> String {
    let ending = &old[old.trim_end_matches(['\r', '\n']).len()..];
    let ending = if ending.is_empty() { newline } else { ending };
    let body = old.trim_end_matches(['\r', '\n']);
    let shaped = divide(body).and_then(|(left, right)| {
        let cut = [" ;", "\t;"].iter().filter_map(|mark| right.find(mark)).min().unwrap_or(right.len());
        let (held, comment) = right.split_at(cut);
        let lead = &held[..held.len() - held.trim_start().len()];
        let tail = if held.trim().is_empty() { "" } else { &held[held.trim_end().len()..] };
        let line = format!("{left}={lead}{value}{tail}{comment}");
        (read_line(&line) == Line::Entry { key, value }).then_some(line)
    });
    let mut line = shaped.unwrap_or_else(|| plain.to_owned());
    line.push_str(ending);
    line
}

fn push_line(out: &mut String, line: &str, newline: &str) {
    if !out.is_empty() && !out.ends_with('\n') {
        out.push_str(newline);
    }
    out.push_str(line);
    out.push_str(newline);
}

/// Whether a file can hold the setting and give it back.
///
/// # Errors
/// Which of the three parts cannot be held.
pub fn check(section: &str, key: &str, value: &str) -> Result<(), ConfigError> {
    if section.trim() != section || section.is_empty() || section.contains(']') || has_control(section) {
        return Err(ConfigError::InvalidSection);
    }
    let line = format!("{key} = x");
    if has_control(key) || read_line(&line) != (Line::Entry { key, value: "x" }) {
        return Err(ConfigError::InvalidKey);
    }
    let line = format!("{key} = {value}");
    if has_control(value) || read_line(&line) != (Line::Entry { key, value }) {
        return Err(ConfigError::InvalidValue);
    }
    Ok(())
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}
