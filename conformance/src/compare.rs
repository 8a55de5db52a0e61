//! Whether an answer is the expected one: a pure function from a case and its answers to a list of differences.
//!
//! Every difference is a line `step N METHOD TARGET: what`, an empty list is a pass. Values that no two servers share
//! (sequences, sizes, times: [`OPAQUE_KEYS`]) count by their JSON type; revision hashes by their number, unless the
//! reference's own hashes are asked for.

use crate::json::Value;
use crate::transcript::{Case, Expect};

/// Members whose values a client must treat as opaque, wherever they stand.
#[rustfmt::skip]
pub const OPAQUE_KEYS: &[&str] = &[
    "seq", "last_seq", "update_seq", "purge_seq", "committed_seq", "pending_seq", "bookmark", "uuid", "version",
    "git_sha", "vendor", "sizes", "disk_format_version", "signature", "execution_time_ms", "session_id", "pid",
    "started_on", "updated_on", "start_time", "end_time", "source_last_seq", "start_last_seq", "end_last_seq",
    "recorded_seq", "ref", "process_status", "changes_pending", "last_updated", "disk_size", "features", "_local_seq",
    "through_seq", "checkpointed_source_seq", "source_seq", "instance_start_time", "replication_id", "docs_per_sec",
];
/// Headers compared in every answer of which the reference's was recorded.
#[rustfmt::skip]
pub const HEADERS: &[&str] = &[
    "content-type", "etag", "location", "cache-control", "accept-ranges", "content-encoding", "content-range",
    "content-disposition", "www-authenticate", "allow", "content-md5",
];
/// Headers that are lists in any order and case.
const LIST_HEADERS: &[&str] =
    &["allow", "access-control-allow-headers", "access-control-allow-methods", "access-control-expose-headers"];
/// The longest value shown in a report, characters.
const SHOWN_MAX: usize = 120;

/// What a step was answered, with this run's names written back as variables.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The status code; 0 when there was no answer.
    pub status: u16,
    /// The compared headers; `None` where a header was asked for and is absent.
    pub headers: Vec<(String, Option<String>)>,
    /// `json`, `lines`, `events`, `parts`, `text`, `base64` or `none`.
    pub kind: &'static str,
    /// The body; null for `none`.
    pub body: Value,
}

/// All differences between the expected answers of `case` and those received. `own_revs`: hashes must be equal.
pub fn compare<'o>(case: &Case, got: impl IntoIterator<Item = &'o Outcome>, own_revs: bool) -> Vec<String> {
    let mut differences = Vec::new();
    for (n, (step, outcome)) in case.steps.iter().zip(got).enumerate() {
        let path = step.target.split('?').next().unwrap_or_default();
        for found in compare_answer(&step.expect, outcome, own_revs) {
            differences.push(format!("step {n} {} {path}: {found}", step.method));
        }
    }
    differences
}

/// The differences of one answer.
pub fn compare_answer(expect: &Expect, got: &Outcome, own_revs: bool) -> Vec<String> {
    if expect.setup {
        return Vec::new();
    }
    if expect.refused {
        let is_error = got.status >= 400
            && got.body.get("error").is_some_and(|e| e.as_str().is_some())
            && got.body.get("reason").is_some();
        let told = format!("an error expected, got {} {}", got.status, short(&got.body));
        return if is_error { Vec::new() } else { vec![told] };
    }
    if got.status != expect.status {
        return vec![format!("status {} expected, got {} {}", expect.status, got.status, short(&got.body))];
    }
    let mut out = header_differences(expect, got, own_revs);
    for (pointer, parts) in &expect.contains {
        let lacking = parts.iter().filter(|p| !has_part(&got.body, pointer, p));
        out.extend(lacking.map(|p| format!("{pointer} lacks {}", short(p))));
    }
    if expect.kind == "none" || expect.no_body {
        return out;
    }
    if got.kind != expect.kind {
        out.push(format!("a {} body expected, got {} {}", expect.kind, got.kind, short(&got.body)));
        return out;
    }
    let mut differ = Differ { expect, own_revs, out };
    differ.values(expect.body.as_ref().unwrap_or(&Value::Null), &got.body, "", "");
    let mut out = differ.out;
    for (pointer, pattern) in &expect.matches {
        let value = got.body.pointer(pointer).unwrap_or(&Value::Null);
        if !value.as_str().is_some_and(|text| matches_whole(pattern, text)) {
            out.push(format!("{pointer}: {} does not match {pattern}", short(value)));
        }
    }
    out
}

fn matches_whole(pattern: &str, text: &str) -> bool {
    regex_lite::Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|r| r.is_match(text))
}

fn header_differences(expect: &Expect, got: &Outcome, own_revs: bool) -> Vec<String> {
    let mut out = Vec::new();
    for (name, want) in &expect.headers {
        let value = got.headers.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.clone());
        let there = value.as_deref().is_some_and(|v| !v.is_empty());
        if expect.ignore_headers.contains(name) || (there && expect.volatile_headers.contains(name)) {
            continue;
        }
        let same = match (want, &value) {
            (Some(want), Some(value)) if there => same_header(name, want, value, expect.volatile_etag, own_revs),
            (want, value) => want == value,
        };
        if !same {
            let shown = |v: &Option<String>| short(&v.as_deref().map_or(Value::Null, Value::from));
            out.push(format!("header {name}: {} expected, got {}", shown(want), shown(&value)));
        }
    }
    out
}

fn same_header(name: &str, want: &str, got: &str, any_etag: bool, own_revs: bool) -> bool {
    let media = |text: &str| {
        let bare = text.replace(' ', "");
        bare.split(';').filter(|p| !p.starts_with("boundary=")).collect::<Vec<_>>().join(";")
    };
    let listed = |text: &str| {
        let mut items: Vec<String> = text.split(',').map(|i| i.trim().to_lowercase()).collect();
        items.sort();
        items
    };
    let bare = |text: &str| is_revision(text.trim_matches('"'));
    match name {
        "content-type" => media(want) == media(got),
        "etag" if any_etag || is_state_etag(want) || (!own_revs && bare(want) && bare(got)) => true,
        _ if LIST_HEADERS.contains(&name) => listed(want) == listed(got),
        _ => want == got,
    }
}

/// An ETag that stands for a server's state (of a view, a feed, a list): its value means nothing to others.
fn is_state_etag(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or_default();
    (20..=26).contains(&inner.len()) && inner.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
}

fn is_revision(text: &str) -> bool {
    let Some((number, hash)) = text.split_once('-') else { return false };
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && hash.len() == 32 && hash.bytes().all(is_hex)
}

/// Whether the array at `pointer` has an object with all members of `part`.
pub fn has_part(body: &Value, pointer: &str, part: &Value) -> bool {
    let items = body.pointer(pointer).and_then(Value::as_array).unwrap_or_default();
    let members = part.as_object().unwrap_or_default();
    let fits = |item: &Value| members.iter().all(|(k, v)| item.get(k).is_some_and(|got| got.same(v)));
    items.iter().any(|item| item.as_object().is_some() && fits(item))
}

/// A value for a report, cut where it is long.
pub fn short(value: &Value) -> String {
    let text = value.to_text(false);
    if text.len() <= SHOWN_MAX { text } else { format!("{}...", &text[..SHOWN_MAX - 3]) }
}

/// Whether a pointer is one of `patterns`, in which `*` stands for any text without `/`.
fn is_covered(path: &str, patterns: &[String]) -> bool {
    let fits = |pattern: &str| {
        let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return true,
                (Some(w), Some(g)) if segment_fits(w, g) => {}
                _ => return false,
            }
        }
    };
    patterns.iter().any(|p| p == path || (p.contains('*') && fits(p)))
}

fn segment_fits(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(before) else { return false };
    let mut pieces: Vec<&str> = after.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// What a list without order is sorted by: a name where the item has one, else its text without opaque members.
pub fn sort_key(value: &Value) -> String {
    let Some(members) = value.as_object() else { return value.to_text(true) };
    if let Some(name) = ["id", "key", "name", "_id", "doc_id"].iter().find_map(|k| value.get(k)) {
        return Value::Array(vec![name.clone()]).to_text(true);
    }
    let kept = members.iter().filter(|(k, _)| !OPAQUE_KEYS.contains(&k.as_str()));
    Value::Object(kept.cloned().collect()).to_text(true)
}

/// Walks an expected value and a received one side by side.
struct Differ<'a> {
    expect: &'a Expect,
    own_revs: bool,
    out: Vec<String>,
}

impl Differ<'_> {
    /// `key` is the name of the nearest member, `path` the pointer of the values.
    fn values(&mut self, want: &Value, got: &Value, path: &str, key: &str) {
        if is_covered(path, &self.expect.ignore) {
            return;
        }
        let by_type = OPAQUE_KEYS.contains(&key)
            || self.expect.volatile.iter().any(|p| p == path)
            || self.expect.matches.iter().any(|(p, _)| p == path);
        if want.type_name() != got.type_name() {
            let wanted = if by_type { want.type_name().to_owned() } else { short(want) };
            self.out.push(format!("{path}: {wanted} expected, got {}", short(got)));
            return;
        }
        if by_type {
            return;
        }
        match (want, got) {
            (Value::Object(want), Value::Object(_)) => self.objects(want, got, path),
            (Value::Array(want), Value::Array(got)) => self.arrays(want, got, path, key),
            (Value::String(a), Value::String(b)) if !self.own_revs && is_revision(a) && is_revision(b) => {
                if a.split('-').next() != b.split('-').next() {
                    self.out.push(format!("{path}: {} expected, got {}", short(want), short(got)));
                }
            }
            _ if want.same(got) => {}
            _ => self.out.push(format!("{path}: {} expected, got {}", short(want), short(got))),
        }
    }

    fn objects(&mut self, want: &[(String, Value)], got: &Value, path: &str) {
        for (name, value) in want {
            let inner = format!("{path}/{name}");
            match got.get(name) {
                Some(received) => self.values(value, received, &inner, name),
                None if self.expect.ignore.contains(&inner) || self.expect.optional.contains(&inner) => {}
                None => self.out.push(format!("{inner}: missing")),
            }
        }
        for (name, value) in got.as_object().unwrap_or_default() {
            let inner = format!("{path}/{name}");
            let listed = want.iter().any(|(k, _)| k == name) || self.expect.ignore.contains(&inner);
            if !listed && !self.expect.extra_ok {
                self.out.push(format!("{inner}: not expected ({})", short(value)));
            }
        }
    }

    fn arrays(&mut self, want: &[Value], got: &[Value], path: &str, key: &str) {
        let (mut want, mut got) = (want.to_vec(), got.to_vec());
        if self.expect.unordered.iter().any(|p| p == path) {
            want.sort_by_cached_key(sort_key);
            got.sort_by_cached_key(sort_key);
        }
        if want.len() != got.len() {
            self.out.push(format!("{path}: {} items expected, got {}", want.len(), got.len()));
        }
        for (n, (a, b)) in want.iter().zip(&got).enumerate() {
            self.values(a, b, &format!("{path}/{n}"), key);
        }
    }
}

#[cfg(test)]
mod tests;
