//! Attachments: inline, by themselves, stubs, multipart both ways, ranges, conditions.

use super::documents::strings;
use super::draft::{Draft, Table};
use super::sample::database;

const NAMES: &[&str] = &["t", "u", "big", "none", "d/e", "d%2Fe", "%C3%A4", "_x", "a%20b"];
const READ: Table = &[
    ("attachments", &["true", "false"]),
    ("att_encoding_info", &["true", "false"]),
    ("atts_since", &["[\"${rev}\"]", "[]", "[\"1-a\"]", "[\"x\"]"]),
    ("revs", &["true"]),
    ("rev", &["${rev}", "1-a"]),
    ("open_revs", &["all", "[\"${rev}\"]"]),
];
const TYPES: &[&str] =
    &["text/plain", "image/png", "application/json", "text/html; charset=utf-8", "application/octet-stream", "x"];
const RANGES: &[&str] = &[
    "bytes=0-3",
    "bytes=2-",
    "bytes=-2",
    "bytes=0-0",
    "bytes=5-2",
    "bytes=100-",
    "bytes=0-1,3-4",
    "bytes=x",
    "bytes=0-100000",
    "lines=1-2",
    "bytes=-0",
    "bytes=1-1, 2-2",
    "bytes=",
];

const ACCEPTS: &[&str] = &["multipart/related", "multipart/mixed", "*/*", "multipart/*", "application/json"];
const QUERIES: &[&str] = &[
    "?rev=${rev}",
    "?rev=${rev}",
    "?rev=${rev}",
    "",
    "?rev=1-a",
    "?rev=x",
    "?new_edits=false",
    "?rev=${rev}&batch=ok",
];
const STUBS: &[&str] = &[
    "{\"stub\":true}",
    "{\"stub\":true,\"revpos\":1}",
    "{\"stub\":true,\"revpos\":9}",
    "{\"data\":\"bmV3\"}",
    "{\"data\":\"bmV3\",\"content_type\":\"text/plain\"}",
    "{\"stub\":true,\"content_type\":\"x/y\"}",
    "{\"stub\":false}",
    "{\"data\":1}",
    "{\"follows\":true}",
    "{\"data\":\"bmV3\",\"encoding\":\"gzip\"}",
    "{\"stub\":true,\"data\":\"bmV3\"}",
    "{\"data\":\"bm V3\\n\"}",
    "{\"data\":\"bmV\"}",
    "{\"data\":\"bmV3\",\"digest\":\"md5-x\"}",
    "{\"data\":\"bmV3\",\"revpos\":7}",
    "{\"stub\":true,\"digest\":\"md5-x\",\"length\":3}",
];
const FOLLOWING: &[&str] = &[
    "{\"follows\":true,\"length\":5,\"content_type\":\"text/plain\"}",
    "{\"follows\":true,\"length\":5,\"content_type\":\"text/plain\",\"revpos\":1}",
    "{\"follows\":true,\"content_type\":\"text/plain\",\"length\":5,\"digest\":\"md5-XUFAKrxLKna5cZ2REBfFkg==\"}",
    "{\"data\":\"aGk=\"}",
];
const SOME_VALUES: &[(&str, &str)] = &[
    ("Content-MD5", "XUFAKrxLKna5cZ2REBfFkg=="),
    ("Content-MD5", "x"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "identity"),
    ("If-Match", "${rev}"),
];
const SOME_VALUES_2: &[(&str, &str)] = &[
    ("Range", ""),
    ("Range", ""),
    ("Accept-Encoding", "gzip"),
    ("If-None-Match", "\"x\""),
    ("If-None-Match", "*"),
    ("Accept-Encoding", "identity"),
    ("Accept-Encoding", "gzip;q=0"),
    ("Accept-Encoding", "deflate, gzip;q=0.5"),
    ("Accept", "text/html"),
    ("If-Match", "x"),
];

pub fn begin(draft: &mut Draft) {
    database(draft);
    let long = "aGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8=";
    draft.ask("PUT /${db}/a").json(&format!("{{\"n\":1,\"_attachments\":{{\"t\":{{\"content_type\":\"text/plain\",\"data\":\"{long}\"}},\"u\":{{\"content_type\":\"image/png\",\"data\":\"AAECAwQFBgcICQ==\"}}}}}}")).bind("rev", "/rev");
    if draft.dice.chance(50) {
        draft.ask("PUT /${db}/a/d/e?rev=${rev}").text("text/plain", "nested name").bind("rev", "/rev");
    }
    if draft.dice.chance(30) {
        draft.ask("DELETE /${db}/a?rev=${rev}").bind("rev", "/rev");
    }
}

pub fn ask(draft: &mut Draft) {
    let name = draft.dice.pick(NAMES);
    match draft.dice.below(12) {
        0..=2 => read_bytes(draft, name),
        3 | 4 => {
            let query = draft.query(READ, 3);
            draft.ask(&format!("GET /${{db}}/a{query}"));
            if draft.dice.chance(50) {
                let accept = draft.dice.pick(ACCEPTS);
                draft.header("Accept", accept);
            }
        }
        5 | 6 => {
            let query = draft.dice.pick(QUERIES);
            let kind = draft.dice.pick(TYPES);
            let id = draft.dice.pick(&["a", "a", "a", "new", "_design/d", "_local/l"]);
            let body = draft.dice.pick(&["hello", "", "hello hello hello hello hello hello hello hello", "{\"a\":1}"]);
            draft.ask(&format!("PUT /${{db}}/{id}/{name}{query}")).text(kind, body);
            if draft.dice.chance(20) {
                let (header, value) = draft.dice.pick(SOME_VALUES);
                draft.header(header, value);
            }
            follow(draft);
        }
        7 => {
            let query = draft.dice.pick(&["?rev=${rev}", "?rev=${rev}", "", "?rev=1-a", "?rev=x"]);
            draft.ask(&format!("DELETE /${{db}}/a/{name}{query}"));
            follow(draft);
        }
        8 | 9 => {
            let stub = draft.dice.pick(STUBS);
            let deleted = draft.dice.pick(&["", "", "", ",\"_deleted\":true"]);
            let name = draft.dice.pick(&["t", "u", "w", "none", ""]);
            draft
                .ask("PUT /${db}/a")
                .json(&format!("{{\"_rev\":\"${{rev}}\",\"n\":2,\"_attachments\":{{\"{name}\":{stub}}}{deleted}}}"));
            follow(draft);
        }
        10 => multipart(draft),
        _ => {
            let method = draft.dice.pick(&["POST", "COPY", "HEAD", "PATCH", "OPTIONS"]);
            draft.ask(&format!("{method} /${{db}}/a/{name}"));
        }
    }
}

fn read_bytes(draft: &mut Draft, name: &str) {
    let method = draft.dice.pick(&["GET", "GET", "GET", "HEAD"]);
    let query = draft.dice.pick(&["", "", "", "?rev=${rev}", "?rev=1-a", "?rev=x", "?unknown=1"]);
    let id = draft.dice.pick(&["a", "a", "a", "a", "none", "_design/d"]);
    draft.ask(&format!("{method} /${{db}}/{id}/{name}{query}"));
    for _ in 0..draft.dice.below(3) {
        let (header, value) = draft.dice.pick(SOME_VALUES_2);
        let value = if header == "Range" { draft.dice.pick(RANGES) } else { value };
        draft.header(header, value);
    }
}

/// A document and its attachments in one multipart body; some are not well formed.
fn multipart(draft: &mut Draft) {
    let part = draft.dice.pick(&["hello", "hell", "hello!", ""]);
    let follows = draft.dice.pick(FOLLOWING);
    let head = draft.dice.pick(&["Content-Type: application/json", "", "Content-Type: text/plain"]);
    let body = format!(
        "--B\r\n{head}\r\n\r\n{{\"_rev\":\"${{rev}}\",\"m\":1,\"_attachments\":{{\"m\":{follows}}}}}\r\n--B\r\nContent-Disposition: attachment; filename=\"m\"\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n{part}\r\n--B--"
    );
    // What does not fit its length is an accident of the reference that takes its silence; only what fits is asked for
    // often.
    let body = if part == "hello" || draft.dice.chance(4) {
        body
    } else {
        body.replace(&format!("\r\n\r\n{part}\r\n--B--"), "\r\n\r\nhello\r\n--B--")
    };
    draft.ask("PUT /${db}/a").text("multipart/related; boundary=\"B\"", &body).with("volatile", strings(&[]));
    follow(draft);
}

/// Reads the revision that the document has now.
fn follow(draft: &mut Draft) {
    draft.ask("GET /${db}/a").bind("rev", "/_rev");
}
