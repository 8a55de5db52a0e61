//! Fuzz targets of requests: targets and their parameters, multipart bodies, ranges, the reader of request heads. See
//! `world::fuzz`.

use futures_util::FutureExt;

use super::body::RequestBody;
use super::lenient::Lenient;
use super::multipart::Multipart;
use super::query::{Query, decode_text, escapes_hold, json_is_text};
use super::route::route;
use crate::world::fuzz::Fuzz;

#[test]
fn fuzz_targets() {
    let targets = [
        "/db/_design/d/_view/v",
        "/db/a%2Fb/c/d",
        "/_node/_local/_config/a/b",
        "/db/_partition/p/_all_docs",
        "/%FF/%00",
        "//",
        "/db/_local/x",
        "/db/_design%2Fx",
        "/_utils/..%2f",
        "/db/_index/_design/a/json/n",
    ];
    Fuzz::new("targets", targets).words(&["%", "%2F", "%FF", "/", "_design", "_local/", "..", "+", "?", "#"]).run(
        |target| {
            let Ok(target) = std::str::from_utf8(target) else { return };
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            if escapes_hold(path) {
                route(path);
                decode_text(path);
            }
            json_is_text(query);
        },
    );
}

#[test]
fn fuzz_parameters() {
    let queries = [
        "key=%22a%22&limit=10&skip=1&descending=true&include_docs=true",
        "startkey=[1,%7B%7D]&endkey=%5B2%5D&group_level=2&reduce=false&inclusive_end=false&update=lazy",
        "keys=[%22a%22,1]&startkey_docid=x&stable=true&update_seq=true&sorted=false&group=true",
        "since=now&feed=longpoll&filter=_doc_ids&doc_ids=[%22a%22]&heartbeat=true&timeout=10&style=all_docs&seq_interval=2",
        "rev=1-a&open_revs=[%221-a%22]&atts_since=[]&revs=true&revs_info=true&latest=true&local_seq=true&meta=true",
    ];
    let words = ["%22", "[", "null", "true", "99999999999999999999", "-1", "%FF", "&", "=", "+", "%5B", "1e400", "nan"];
    Fuzz::new("parameters", queries).words(&words).run(|query| {
        let Ok(query) = std::str::from_utf8(query) else { return };
        super::handle::fuzz_parameters(&Query::parse(query));
    });
}

/// The parts of a body that comes in chunks of a size, as far as they can be read.
fn parts(body: &[u8], chunk: usize) -> (Vec<(String, Vec<u8>)>, bool) {
    let read = async {
        let mut body = RequestBody::in_chunks(body, chunk);
        let Ok(mut multipart) = Multipart::new(&mut body, "multipart/related; boundary=\"abc\"") else {
            panic!("a boundary")
        };
        let mut out = Vec::new();
        loop {
            match multipart.next_part().await {
                Ok(Some(head)) => out.push((head.get("content-type").unwrap_or_default().to_owned(), Vec::new())),
                Ok(None) => return (out, true),
                Err(_) => return (out, false),
            }
            loop {
                match multipart.next_chunk().await {
                    Ok(Some(bytes)) => out.last_mut().expect("a part").1.extend_from_slice(&bytes),
                    Ok(None) => break,
                    Err(_) => return (out, false),
                }
            }
        }
    };
    read.now_or_never().expect("nothing to wait for")
}

#[test]
fn fuzz_multipart_bodies_are_read_the_same_however_they_are_cut() {
    let bodies = [
        "--abc\r\nContent-Type: application/json\r\n\r\n{}\r\n--abc\r\n\r\nbytes\r\n--abc--",
        "\r\n--abc\r\ncontent-disposition: form-data; name=\"a\"; filename=\"b\\\"c\"\r\n\r\n\r\n--abc--\r\nepilogue",
        "preamble\r\n--abc\r\n\r\n--ab\r\n--abc\r\n\r\n\r\n\r\n--abc--",
    ];
    Fuzz::new("multipart", bodies).words(&["\r\n--abc", "--abc--", "\r\n\r\n", "--", "\r", "\n", ": ", "\""]).run(
        |body| {
            let (whole, was_whole) = parts(body, usize::MAX);
            for chunk in [1, 3, 7] {
                let (cut, was_cut) = parts(body, chunk);
                assert_eq!(was_whole, was_cut, "in chunks of {chunk}");
                if was_whole {
                    assert_eq!(whole, cut, "in chunks of {chunk}");
                }
            }
        },
    );
}

#[test]
fn fuzz_ranges_stay_within_the_body() {
    let headers = ["bytes=0-1", "bytes=-5", "bytes=5-", "bytes=0-0,2-3,9-", "bytes=18446744073709551615-", "bytes=1-0"];
    Fuzz::new("ranges", headers).words(&[",", "-", "bytes=", "18446744073709551615", " "]).run(|header| {
        let Ok(header) = std::str::from_utf8(header) else { return };
        for total in [0, 1, 10, u64::MAX] {
            super::handle::fuzz_range(header, total);
        }
    });
}

#[test]
fn fuzz_request_heads_are_changed_the_same_however_they_are_cut() {
    let heads = [
        "GET /a?startkey=\"a b\" HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n{\"a\"}GET /\"x\" HTTP/1.1\r\n\r\n",
        "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: a\r\n\r\nGET /{} HTTP/1.1\r\n\r\n",
    ];
    let words =
        ["\r\n", "\n", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n", " ", "HTTP/1.1", "\""];
    Fuzz::new("request heads", heads).words(&words).run(|head| {
        let pass = |size: usize| {
            let (mut lenient, mut out) = (Lenient::default(), Vec::new());
            for piece in head.chunks(size) {
                out.extend_from_slice(lenient.pass(piece).as_deref().unwrap_or(piece));
            }
            out
        };
        let whole = pass(usize::MAX);
        for size in [1, 5] {
            assert_eq!(pass(size).escape_ascii().to_string(), whole.escape_ascii().to_string(), "in pieces of {size}");
        }
    });
}
