//! The handlers of documents over real sockets, each scenario against a node of its own.

use std::io::{Read, Write};

use crate::document::json::{self, Value};
use crate::http::tests::{Served, header, status};

pub(super) const JSON: &str = "Content-Type: application/json\r\nAccept: application/json\r\n";
const PNG: &str = "Content-Type: image/png\r\n";

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// The JSON of an answer, chunked or not.
pub(super) fn object(answer: &str) -> Value {
    let text =
        if header(answer, "transfer-encoding").is_some() { unchunked(body(answer)) } else { body(answer).into() };
    json::parse(text.trim().as_bytes()).unwrap_or_else(|_| panic!("no JSON: {answer}"))
}

fn unchunked(mut rest: &str) -> String {
    let mut out = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        if size == 0 {
            break;
        }
        out.push_str(&tail[..size]);
        rest = &tail[size + 2..];
    }
    out
}

fn text(value: &Value, path: &[&str]) -> String {
    let mut at = value;
    for name in path {
        at = match at {
            Value::Array(items) => &items[name.parse::<usize>().unwrap()],
            other => other.as_object().and_then(|o| o.get(name)).unwrap_or_else(|| panic!("no {name} in {value:?}")),
        };
    }
    at.as_str().map_or_else(|| String::from_utf8(at.to_vec()).unwrap(), str::to_owned)
}

pub(super) fn with_database() -> Served {
    let served = Served::start(&[]);
    assert_eq!(status(&served.ask("PUT", "/db?q=2", "", "")), 201);
    served
}

fn rev(answer: &str) -> String {
    text(&object(answer), &["rev"])
}

#[test]
fn a_declared_selector_is_a_filter_by_its_name() {
    let served = with_database();
    let design = r#"{"language":"query","filters":{"mine":{"v":1}}}"#;
    assert_eq!(status(&served.ask("PUT", "/db/_design/d", JSON, design)), 201);
    for (name, v) in [("a", 1), ("b", 2)] {
        assert_eq!(status(&served.ask("PUT", &format!("/db/{name}"), JSON, &format!("{{\"v\":{v}}}"))), 201);
    }
    let answer = served.ask("GET", "/db/_changes?filter=d/mine", JSON, "");
    assert!(answer.contains("\"id\":\"a\"") && !answer.contains("\"id\":\"b\""), "{answer}");
    assert_eq!(status(&served.ask("GET", "/db/_changes?filter=d/other", JSON, "")), 404);
    let wrong = r#"{"language":"query","filters":{"mine":{"v":{"$no":1}}}}"#;
    assert_eq!(status(&served.ask("PUT", "/db/_design/e", JSON, wrong)), 400);
}

#[test]
fn a_document_lives_through_updates_conflicts_and_deletion() {
    let served = with_database();
    let first = served.ask("PUT", "/db/a", JSON, "{\"v\":1}");
    assert_eq!(status(&first), 201);
    assert_eq!(header(&first, "etag"), Some("\"1-7a7e4b29f3af401e69b6f86e4c26b727\""));
    assert_eq!(header(&first, "location"), Some("http://here/db/a"));
    assert_eq!(status(&served.ask("PUT", "/db/a", JSON, "{\"v\":2}")), 409);
    let second = served.ask("PUT", &format!("/db/a?rev={}", rev(&first)), JSON, "{\"v\":2}");
    assert_eq!(status(&second), 201);
    let current = format!("{JSON}If-None-Match: \"{}\"\r\n", rev(&second));
    assert_eq!(status(&served.ask("GET", "/db/a", &current, "")), 304);
    let gone = served.ask("DELETE", "/db/a", &format!("{JSON}If-Match: \"{}\"\r\n", rev(&second)), "");
    assert_eq!(status(&gone), 200);
    let missing = served.ask("GET", "/db/a", JSON, "");
    assert_eq!((status(&missing), text(&object(&missing), &["reason"])), (404, "deleted".to_owned()));
    assert_eq!(status(&served.ask("GET", &format!("/db/a?rev={}", rev(&gone)), JSON, "")), 200);
    assert_eq!(status(&served.ask("GET", "/db/a?deleted=true", JSON, "")), 200);
}

#[test]
fn an_attachment_comes_back_whole_by_range_and_inside_the_document() {
    let served = with_database();
    let put = served.ask("PUT", "/db/t/dir/f.txt", "Content-Type: text/plain\r\n", "text text text text");
    assert_eq!((status(&put), header(&put, "location")), (201, Some("http://here/db/t/dir%2Ff.txt")));
    let zipped = served.ask("GET", "/db/t/dir/f.txt", "Range: bytes=0-1\r\n", "");
    assert_eq!((status(&zipped), header(&zipped, "accept-ranges")), (200, Some("none")));
    assert_eq!(body(&zipped), "text text text text");
    let put = served.ask("PUT", "/db/a/g", PNG, "0123456789");
    assert_eq!(status(&put), 201);
    let part = served.ask("GET", "/db/a/g", "Range: bytes=2-5\r\n", "");
    assert_eq!((status(&part), header(&part, "content-range"), body(&part)), (206, Some("bytes 2-5/10"), "2345"));
    let outside = served.ask("GET", "/db/a/g", "Range: bytes=10-20\r\n", "");
    assert_eq!(status(&outside), 416);
    let several = served.ask("GET", "/db/a/g", "Range: bytes=0-1,-2\r\n", "");
    assert_eq!(status(&several), 206);
    assert!(header(&several, "content-type").unwrap().starts_with("multipart/byteranges; boundary="));
    let inside = object(&served.ask("GET", "/db/a?attachments=true", JSON, ""));
    assert_eq!(text(&inside, &["_attachments", "g", "data"]), "MDEyMzQ1Njc4OQ==");
    let related = served.ask("GET", "/db/a?attachments=true", "Accept: */*\r\n", "");
    assert!(header(&related, "content-type").unwrap().starts_with("multipart/related; boundary="));
    assert!(related.contains("filename=\"g\"\r\nContent-Type: image/png\r\nContent-Length: 10\r\n\r\n0123456789\r\n"));
    let length: usize = header(&related, "content-length").unwrap().parse().unwrap();
    assert_eq!(length, body(&related).len());
    let in_parts = "Content-Type: application/json\r\nAccept: multipart/mixed\r\n";
    let bulk = served.ask("POST", "/db/_bulk_get", in_parts, r#"{"docs":[{"id":"a"},{"id":"none"}]}"#);
    let named = format!("\r\nX-Doc-Id: a\r\nX-Rev-Id: {}\r\nContent-Type: multipart/related;", rev(&put));
    let parts = unchunked(body(&bulk));
    assert!(
        parts.contains(&named) && parts.contains("\r\nContent-Type: application/json; error=\"true\"\r\n"),
        "{parts}"
    );
}

#[test]
fn a_large_document_is_answered_as_a_small_one_is() {
    let served = with_database();
    let long = "x".repeat(10_000);
    let sent = format!(r#"{{"v":"{long}","_attachments":{{"a":{{"data":"aGVsbG8="}}}}}}"#);
    let rev = rev(&served.ask("PUT", "/db/a", JSON, &sent));
    let whole = served.ask("GET", "/db/a", JSON, "");
    let told = format!("{{\"_id\":\"a\",\"_rev\":\"{rev}\",\"v\":\"{long}\",\"_attachments\":{{\"a\":{{");
    assert!(body(&whole).starts_with(&told) && whole.ends_with("\"stub\":true}}}\n"), "{whole}");
    assert_eq!(header(&whole, "content-length"), Some(body(&whole).len().to_string().as_str()));
    assert_eq!(header(&whole, "etag"), Some(format!("\"{rev}\"").as_str()));
    let head = served.ask("HEAD", "/db/a", JSON, "");
    assert_eq!((header(&head, "content-length"), body(&head)), (header(&whole, "content-length"), ""));
    let with_data = object(&served.ask("GET", "/db/a?attachments=true", JSON, ""));
    assert_eq!(text(&with_data, &["_attachments", "a", "data"]), "aGVsbG8=");
    assert_eq!(text(&with_data, &["v"]), long);
}

#[test]
fn a_multipart_put_gives_parts_to_entries_in_their_order_whatever_their_names() {
    let served = with_database();
    let entries = "{\"_attachments\":{\"one\":{\"follows\":true,\"content_type\":\"image/a\",\"length\":3},\
                   \"two\":{\"follows\":true,\"content_type\":\"image/b\",\"length\":3}}}";
    let named = "--b\r\nContent-Disposition: attachment; filename=\"two\"\r\n\r\n222\r\n--b\r\n\r\n111\r\n--b--";
    let whole = format!("--b\r\nContent-Type: application/json\r\n\r\n{entries}\r\n{named}");
    let put = served.ask("PUT", "/db/a", "Content-Type: multipart/related; boundary=b\r\n", &whole);
    assert_eq!(status(&put), 201);
    assert_eq!(body(&served.ask("GET", "/db/a/one", "", "")), "222");
    assert_eq!(body(&served.ask("GET", "/db/a/two", "", "")), "111");
    let cut = whole.replace("--b\r\n\r\n111\r\n", "");
    assert_eq!(status(&served.ask("PUT", "/db/b", "Content-Type: multipart/related; boundary=b\r\n", &cut)), 400);
}

#[test]
fn a_form_adds_attachments_to_a_revision() {
    let served = with_database();
    let first = rev(&served.ask("PUT", "/db/a", JSON, "{\"v\":1}"));
    let form = format!(
        "--f\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n{first}\r\n--f\r\nContent-Disposition: form-data; \
         name=\"_attachments\"; filename=\"p.png\"\r\nContent-Type: image/png\r\n\r\npixels\r\n--f--\r\n"
    );
    let kind = "Content-Type: multipart/form-data; boundary=f\r\n";
    assert_eq!(status(&served.ask("POST", "/db/a", kind, &form)), 400, "no Referer");
    let foreign = format!("{kind}Referer: http://elsewhere/page\r\n");
    assert_eq!(status(&served.ask("POST", "/db/a", &foreign, &form)), 400);
    assert_eq!(status(&served.ask("POST", "/db/a", &format!("{kind}Referer: http://here/page\r\n"), &form)), 201);
    let doc = object(&served.ask("GET", "/db/a", JSON, ""));
    assert_eq!(text(&doc, &["_attachments", "p.png", "content_type"]), "image/png");
    assert_eq!(text(&doc, &["v"]), "1");
}

#[test]
fn bulk_writes_answer_per_item_and_bulk_reads_all_leaves() {
    let served = with_database();
    let docs = "{\"docs\":[{\"_id\":\"a\"},{\"_id\":\"a\",\"v\":2},{\"_id\":\"b\"}]}";
    let written = served.ask("POST", "/db/_bulk_docs", JSON, docs);
    assert_eq!(status(&written), 201);
    assert_eq!(text(&object(&written), &["1", "error"]), "conflict");
    assert_eq!(text(&object(&written), &["2", "ok"]), "true");
    let bad = served.ask("POST", "/db/_bulk_docs", JSON, "{\"docs\":[{\"_id\":\"c\"},{\"_id\":\"_x\"}]}");
    assert_eq!(status(&bad), 400);
    assert_eq!(status(&served.ask("GET", "/db/c", JSON, "")), 404, "nothing was written");
    let merged = "{\"new_edits\":false,\"docs\":[{\"_id\":\"a\",\"_rev\":\"1-ab\"},{\"_id\":\"a\",\"_rev\":\"1-cd\"}]}";
    assert_eq!(body(&served.ask("POST", "/db/_bulk_docs", JSON, merged)).trim(), "[]");
    let read = object(&served.ask("POST", "/db/_bulk_get", JSON, "{\"docs\":[{\"id\":\"a\"},{\"id\":\"none\"}]}"));
    let leaves = read.as_object().unwrap().get("results").unwrap().as_array().unwrap();
    assert_eq!(leaves[0].as_object().unwrap().get("docs").unwrap().as_array().unwrap().len(), 3);
    assert_eq!(text(&leaves[1], &["docs", "0", "error", "reason"]), "missing");
}

#[test]
fn lists_tell_totals_and_an_etag_that_follows_the_database() {
    let served = with_database();
    for id in ["b", "a", "_design/d", "c"] {
        assert_eq!(status(&served.ask("PUT", &format!("/db/{id}"), JSON, "{}")), 201);
    }
    let page = served.ask("GET", "/db/_all_docs?startkey=\"a\"&skip=1&limit=1", JSON, "");
    let rows = object(&page);
    assert_eq!((text(&rows, &["total_rows"]), text(&rows, &["offset"])), ("4".to_owned(), "2".to_owned()));
    assert_eq!(text(&rows, &["rows", "0", "id"]), "b");
    let current = format!("{JSON}If-None-Match: {}\r\n", header(&page, "etag").unwrap());
    let again = || status(&served.ask("GET", "/db/_all_docs?startkey=\"a\"&skip=1&limit=1", &current, ""));
    assert_eq!(again(), 304);
    assert_eq!(status(&served.ask("PUT", "/db/aa", JSON, "{}")), 201);
    assert_eq!(again(), 200);
    let two = "{\"queries\":[{\"keys\":[\"c\",\"none\"]},{\"limit\":0}]}";
    let both = object(&served.ask("POST", "/db/_all_docs/queries", JSON, two));
    assert_eq!(text(&both, &["results", "0", "rows", "1", "error"]), "not_found");
    assert_eq!(text(&both, &["results", "1", "rows"]), "[]");
}

#[test]
fn a_waiting_feed_wakes_and_a_quiet_one_ends() {
    let served = with_database();
    let quiet = served.ask("GET", "/db/_changes?feed=continuous&timeout=1", JSON, "");
    assert!(unchunked(body(&quiet)).starts_with("{\"last_seq\":"));
    let mut feed = served.connect();
    let asked = "GET /db/_changes?feed=longpoll&timeout=30000 HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\
                 Authorization: Basic YWRtOnBhc3M=\r\nAccept: application/json\r\n\r\n";
    feed.write_all(asked.as_bytes()).unwrap();
    assert_eq!(status(&served.ask("PUT", "/db/a", JSON, "{}")), 201);
    let mut answer = String::new();
    feed.read_to_string(&mut answer).unwrap();
    assert_eq!(text(&object(&answer), &["results", "0", "id"]), "a");
}

#[test]
fn every_answer_to_a_write_has_a_token_that_reads_take() {
    let served = with_database();
    let put = served.ask("PUT", "/db/a", JSON, r#"{"v":1}"#);
    let first = rev(&put);
    let bulk = r#"{"docs":[{"_id":"b"},{"_id":"c"}]}"#;
    let purge = format!(r#"{{"e":["{}"]}}"#, rev(&served.ask("PUT", "/db/e", JSON, "{}")));
    let writes = [
        served.ask("POST", "/db", JSON, r#"{"_id":"d"}"#),
        served.ask("POST", "/db/_bulk_docs", JSON, bulk),
        served.ask("COPY", "/db/a", "Destination: f\r\n", ""),
        served.ask("PUT", &format!("/db/a/p?rev={first}"), PNG, "x"),
        served.ask("POST", "/db/_index", JSON, r#"{"index":{"fields":["v"]},"ddoc":"x","name":"x"}"#),
        served.ask("POST", "/db/_purge", JSON, &purge),
        put,
    ];
    let mut all = Vec::new();
    for answer in &writes {
        let token = header(answer, "x-settee-token").unwrap_or_else(|| panic!("no token: {answer}")).to_owned();
        assert!(token.len() < 200, "{token}");
        for path in ["a", "_all_docs", "_changes", "_design_docs", "_index", "_local_docs", ""] {
            assert_eq!(status(&served.ask("GET", &format!("/db/{path}?at_least={token}"), "", "")), 200, "{path}");
        }
        let find = served.ask("POST", &format!("/db/_find?at_least={token}"), JSON, r#"{"selector":{"v":1}}"#);
        assert_eq!(status(&find), 200, "{find}");
        all.push(token);
    }
    let lines = format!("X-Settee-Token: {}\r\n", all.join(", "));
    assert_eq!(status(&served.ask("GET", "/db/_all_docs", &lines, "")), 200);
    // Other databases are none of its business.
    assert_eq!(status(&served.ask("PUT", "/other", "", "")), 201);
    assert_eq!(status(&served.ask("GET", "/other/_all_docs", &lines, "")), 200);
    for answer in [served.ask("PUT", "/db/_local/l", JSON, "{}"), served.ask("PUT", "/db/z?batch=ok", JSON, "{}")] {
        assert_eq!(header(&answer, "x-settee-token"), None);
    }
}

#[test]
fn what_is_no_token_is_refused_and_so_are_tokens_where_none_is_heeded() {
    let served = with_database();
    let token = header(&served.ask("PUT", "/db/a", JSON, "{}"), "x-settee-token").unwrap().to_owned();
    for (target, line) in [
        ("/db/_all_docs?at_least=junk".to_owned(), String::new()),
        ("/db/_changes".to_owned(), "X-Settee-Token: junk\r\n".to_owned()),
        (format!("/db/a?at_least={}", &token[1..]), String::new()),
        (format!("/_dbs_info?at_least={token}"), String::new()),
        (format!("/_all_dbs?at_least={token}"), String::new()),
    ] {
        let answer = served.ask("GET", &target, &line, "");
        assert_eq!((status(&answer), text(&object(&answer), &["error"]).as_str()), (400, "bad_request"), "{target}");
    }
    // A database that was deleted has nothing to show.
    assert_eq!(status(&served.ask("DELETE", "/db", "", "")), 200);
    assert_eq!(status(&served.ask("GET", &format!("/db/_all_docs?at_least={token}"), "", "")), 404);
}

#[test]
fn a_session_has_its_tokens_in_a_cookie_where_that_is_asked_for() {
    for wanted in [false, true] {
        let setting = format!("cluster/session_reads={wanted}");
        let served = Served::start(&[&setting]);
        assert_eq!(status(&served.ask("PUT", "/db?q=2", "", "")), 201);
        let login = served.ask("POST", "/_session", JSON, r#"{"name":"adm","password":"pass"}"#);
        let session = header(&login, "set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let ask = |method: &str, target: &str, cookies: &str, body: &str| {
            let length = body.len();
            served.exchange(
                format!(
                    "{method} {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nCookie: {cookies}\r\n\
                     Content-Length: {length}\r\n{JSON}\r\n{body}"
                )
                .as_bytes(),
            )
        };
        let first = ask("PUT", "/db/a", &session, "{}");
        let reads = header(&first, "set-cookie").filter(|line| line.starts_with("SetteeReads="));
        assert_eq!((status(&first), reads.is_some()), (201, wanted), "{first}");
        let Some(line) = reads else { continue };
        assert!(line.contains("; Path=/; HttpOnly"), "{line}");
        let both = format!("{session}; {}", line.split(';').next().unwrap());
        let second = ask("PUT", "/db/b", &both, "{}");
        let line = header(&second, "set-cookie").unwrap();
        let token = crate::coordinator::WriteToken::parse(line.split(['=', ';']).nth(1).unwrap()).unwrap();
        let mut expected = crate::coordinator::WriteToken::default();
        for answer in [&second, &first] {
            expected.add(crate::coordinator::WriteToken::parse(header(answer, "x-settee-token").unwrap()).unwrap());
        }
        assert_eq!(token, expected, "what was written before stays in it");
        let both = format!("{session}; {}", line.split(';').next().unwrap());
        assert_eq!(status(&ask("GET", "/db/_all_docs", &both, "")), 200);
        // One that cannot be read is as none.
        assert_eq!(status(&ask("GET", "/db/_all_docs", &format!("{session}; SetteeReads=junk"), "")), 200);
    }
}
