//! Bodies that are not one JSON value, as JSON values: multipart messages (RFC 2046, nested too), server-sent events.
//!
//! A part becomes `{type, content-disposition?, content-length?, content-encoding?, content-range?}` with its content
//! as `json`, `text` or `base64`; or, when it is multipart itself, `{type, parts}`. An event becomes an object of its
//! fields, each read as JSON where it is JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::json::Value;

/// Multipart messages nested deeper than this are read as plain bytes.
const DEPTH_MAX: usize = 8;
const PART_HEADERS: [&str; 4] = ["content-disposition", "content-length", "content-encoding", "content-range"];

/// The parts of a multipart body; empty when the body holds no boundary line.
pub fn parts(content_type: &str, body: &[u8]) -> Value {
    Value::Array(split(content_type, body).into_iter().map(|part| one(part, 0)).collect())
}

/// The `boundary` parameter of a content type.
fn boundary(content_type: &str) -> Option<String> {
    let at = content_type.to_ascii_lowercase().find("boundary=")? + "boundary=".len();
    let rest = &content_type[at..];
    Some(match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default().to_owned(),
        None => rest.split(';').next().unwrap_or_default().trim().to_owned(),
    })
}

/// The bytes of each part: from a boundary line to the line end before the next one.
fn split<'a>(content_type: &str, body: &'a [u8]) -> Vec<&'a [u8]> {
    let Some(boundary) = boundary(content_type) else { return Vec::new() };
    let mark = format!("--{boundary}").into_bytes();
    let mut parts = Vec::new();
    let mut open: Option<usize> = None;
    let mut at = 0;
    while at < body.len() {
        let end = body[at..].iter().position(|b| *b == b'\n').map_or(body.len(), |n| at + n + 1);
        let line = body[at..end].trim_ascii_end();
        let closing = line.strip_prefix(mark.as_slice()) == Some(b"--");
        if line == mark || closing {
            if let Some(from) = open {
                parts.push(without_line_end(&body[from..at.max(from)]));
            }
            open = (!closing).then_some(end);
            if closing {
                break;
            }
        }
        at = end;
    }
    if let Some(from) = open {
        parts.push(&body[from..]);
    }
    parts
}

fn without_line_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Headers (names in lower case) and content of a part.
fn open_part(part: &[u8]) -> (Vec<(String, String)>, &[u8]) {
    let mut headers: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    while at < part.len() {
        let end = part[at..].iter().position(|b| *b == b'\n').map_or(part.len(), |n| at + n + 1);
        let line = String::from_utf8_lossy(part[at..end].trim_ascii_end()).into_owned();
        if line.is_empty() {
            return (headers, &part[end..]);
        }
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned())),
            None => return (headers, &part[at..]),
        }
        at = end;
    }
    (headers, &[])
}

fn one(part: &[u8], depth: usize) -> Value {
    let (headers, content) = open_part(part);
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let content_type = header("content-type").unwrap_or_default();
    let bare_type = content_type.split(';').next().unwrap_or_default();
    let mut members = vec![("type".to_owned(), Value::from(bare_type))];
    if bare_type.trim().to_ascii_lowercase().starts_with("multipart/") && depth < DEPTH_MAX {
        members[0].1 = Value::from(bare_type.trim().to_ascii_lowercase().as_str());
        let inner = split(content_type, content).into_iter().map(|part| one(part, depth + 1)).collect();
        members.push(("parts".to_owned(), Value::Array(inner)));
        return Value::Object(members);
    }
    for name in PART_HEADERS {
        if let Some(value) = header(name).filter(|v| !v.is_empty()) {
            members.push((name.to_owned(), Value::from(value)));
        }
    }
    members.push(match (Value::parse(content), std::str::from_utf8(content)) {
        (Ok(json), _) => ("json".to_owned(), json),
        (Err(_), Ok(text)) => ("text".to_owned(), Value::from(text)),
        (Err(_), Err(_)) => ("base64".to_owned(), Value::String(STANDARD.encode(content))),
    });
    Value::Object(members)
}

/// The events of a `text/event-stream` body; comments and empty blocks are left out.
pub fn events(body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body).replace("\r\n", "\n");
    let mut events = Vec::new();
    for block in text.split("\n\n") {
        let mut event: Vec<(String, Value)> = Vec::new();
        for line in block.split('\n') {
            let Some((name, value)) = line.split_once(':').filter(|(name, _)| !name.is_empty()) else { continue };
            let value = value.strip_prefix(' ').unwrap_or(value);
            let value = Value::parse(value.as_bytes()).unwrap_or_else(|_| Value::from(value));
            match event.iter_mut().find(|(n, _)| n == name) {
                Some(member) => member.1 = value,
                None => event.push((name.to_owned(), value)),
            }
        }
        if !event.is_empty() {
            events.push(Value::Object(event));
        }
    }
    Value::Array(events)
}

#[cfg(test)]
mod tests {
    use super::{events, parts};
    use crate::json::Value;

    #[test]
    fn parts_are_read_with_headers_and_nesting() {
        let body =
            b"--x\r\nContent-Type: application/json\r\n\r\n{\"a\":1}\r\n--x\r\nContent-Disposition: attachment; \
filename=\"f\"\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\n\r\na\r\nb\r\n--x\r\n\r\n\xff\xfe\r\n\
--x\r\nContent-Type: Multipart/Related; boundary=\"y\"\r\n\r\n--y\r\n\r\n7\r\n--y--\r\n--x--\r\nafter";
        let want = br#"[{"type":"application/json","json":{"a":1}},
            {"type":"text/plain","content-disposition":"attachment; filename=\"f\"","content-length":"4","text":"a\r\nb"},
            {"type":"","base64":"//4="},
            {"type":"multipart/related","parts":[{"type":"","json":7}]}]"#;
        let got = parts("multipart/mixed; boundary=x", body);
        assert!(got.same(&Value::parse(want).expect("JSON")), "{}", got.to_text(false));
    }

    #[test]
    fn without_boundary_there_are_no_parts() {
        assert_eq!(parts("multipart/mixed; boundary=x", b"plain"), Value::Array(vec![]));
        assert_eq!(parts("multipart/mixed", b"--x\r\n\r\na"), Value::Array(vec![]));
    }

    #[test]
    fn events_keep_their_fields() {
        let got = events(b"data: {\"a\": 1}\nid: 5-x\n\n: comment\n\nevent: heartbeat\r\ndata: \r\n\r\n");
        let want = br#"[{"data":{"a":1},"id":"5-x"},{"event":"heartbeat","data":""}]"#;
        assert!(got.same(&Value::parse(want).expect("JSON")), "{}", got.to_text(false));
    }
}
