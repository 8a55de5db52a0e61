//! Tests of the player against a server with canned answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Player, without_secrets};
use crate::client::Target;
use crate::compare::compare;
use crate::json::Value;
use crate::transcript::Case;

type Log = Arc<Mutex<Vec<String>>>;

/// Reads requests and answers each with what `answer` makes of its first line; the log has head and body of each.
async fn server(answer: fn(&str) -> String) -> (Target, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let port = listener.local_addr().expect("an address").port();
    let log = Log::default();
    let seen = Arc::clone(&log);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut text = Vec::new();
                while !complete(&text) {
                    if stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let text = String::from_utf8_lossy(&text).into_owned();
                let reply = answer(text.lines().next().unwrap_or_default());
                seen.lock().expect("the log").push(text);
                // A client that has gone needs no answer.
                let _ = stream.write_all(reply.as_bytes()).await;
            });
        }
    });
    let url = format!("http://adm:pass@127.0.0.1:{port}");
    (Target::parse(&url).expect("a URL"), log)
}

fn complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap_or("0");
    body.len() >= length.parse::<usize>().unwrap_or(0)
}

fn reply(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn case(steps: &str, cleanup: &str) -> Case {
    let text = format!(r#"{{"title":"t","steps":[{steps}],"cleanup":[{cleanup}]}}"#);
    Case::read("c", "n", &Value::parse(text.as_bytes()).expect("JSON")).expect("a case")
}

fn first_lines(log: &Log) -> Vec<String> {
    log.lock().expect("the log").iter().map(|t| t.lines().next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn variables_are_filled_bound_and_written_back() {
    let (target, log) = server(|line| match line.split(' ').nth(1) {
        Some("/_membership") => reply(200, "", r#"{"all_nodes":["b@x","a@x"]}"#),
        Some(path) if path.ends_with("/one") => {
            reply(201, "Set-Cookie: AuthSession=abc; Path=/\r\nETag: 5\r\n", r#"{"rev":"1-a","n":7}"#)
        }
        Some(path) => reply(200, "Content-Type: text/plain\r\n", &format!("\"{path} a@x\"")),
        None => String::new(),
    })
    .await;
    let steps = r#"
        {"do":"PUT /${db}/one","body":{"${user}":"${nothing} $"},
         "bind":{"r":"/rev","n":"/n","e":"header:etag","c":"cookie:AuthSession","u":"/x"},
         "response":{"status":201,"kind":"json","body":{"rev":"1-a","n":7}}},
        {"do":"GET /${db2}/${r}/${n}/${e}/${c}/${u}","as":"none",
         "response":{"status":200,"headers":{"content-type":"text/plain"},"kind":"json",
         "body":"/${db2}/1-a/7/5/abc/unbound-u ${node}"}}"#;
    let case = case(steps, "");
    let player = Player::new(&target, Duration::from_secs(5));
    let user = player.variables["user"].clone();
    let got = player.play(&case).await.expect("answers");
    assert_eq!(compare(&case, got.iter().map(|e| &e.outcome), true), Vec::<String>::new());
    let log = log.lock().expect("the log");
    assert!(log[1].ends_with(&format!("{{\"{user}\": \"${{nothing}} $\"}}")), "{}", log[1]);
    assert!(log[1].contains("Content-Type: application/json\r\n") && log[1].contains("Authorization: Basic YWRt"));
    assert!(!log[2].contains("Authorization") && log[2].contains("Accept: application/json"));
}

#[tokio::test]
async fn tidies_up_after_a_failure() {
    let (target, log) =
        server(|line| if line.contains("/broken") { "no HTTP at all".to_owned() } else { reply(200, "", "{}") }).await;
    let step = r#"{"do":"GET /${db}/broken","response":{"status":200}}"#;
    let case = case(&format!("{step},{step}"), r#"{"do":"DELETE /_users/me"}"#);
    let told = Player::new(&target, Duration::from_secs(5)).play(&case).await.expect_err("no answer to be had");
    assert!(told.starts_with("step 0 GET /${db}/broken: "), "{told}");
    let lines = first_lines(&log);
    assert_eq!(lines.iter().filter(|l| l.contains("/broken")).count(), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|l| l.starts_with("DELETE /g")).count(), 4, "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("DELETE /_users/me HTTP/1.1"));
    assert!(lines.iter().any(|l| l.starts_with("GET /_users/org.couchdb.user:u")), "{lines:?}");
}

#[tokio::test]
async fn open_feeds_are_read_until_their_time_and_closed_ones_must_end() {
    let (target, _log) =
        server(|_| "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n3\r\n1}\n\r\n".into()).await;
    let open = case(
        r#"{"do":"GET /f","lines":true,"open":true,"timeout_s":3,
            "response":{"status":200,"kind":"lines","body":[{"a":1}]}}"#,
        "",
    );
    // The probe for node names gets no end either: it is cut off, so the play is told to wait for little.
    let told = Player::new(&target, Duration::from_millis(200)).play(&open).await.expect_err("no end");
    assert!(told.contains("closed the connection") || told.contains("silent"), "{told}");
    let step = &open.steps[0];
    let (_, kind, body) = Player::new(&target, Duration::from_secs(5)).once(step).await.expect("a feed");
    assert_eq!((kind, body.to_text(false).as_str()), ("lines", "[{\"a\": 1}]"));
}

#[tokio::test]
async fn polls_until_the_condition_holds() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let (target, _log) = server(|line| {
        let n = if line.contains("/poll") { ASKED.fetch_add(1, Ordering::SeqCst) } else { 0 };
        reply(200, "", &format!("{{\"n\":{n}}}"))
    })
    .await;
    let case = case(
        r#"{"do":"GET /poll","retry":5,"until":{"equals":{"/n":1}},
            "response":{"status":200,"kind":"json","body":{"n":1}}}"#,
        "",
    );
    let got = Player::new(&target, Duration::from_secs(5)).play(&case).await.expect("answers");
    assert_eq!(compare(&case, got.iter().map(|e| &e.outcome), false), Vec::<String>::new());
    assert_eq!(ASKED.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn polls_no_longer_once_the_case_has_failed() {
    let (target, log) = server(|_| reply(200, "", "{}")).await;
    let case = case(
        r#"{"do":"POST /start","response":{"status":202}},
           {"do":"GET /poll","retry":50,"until":{"equals":{"/n":1}},"response":{"status":200}}"#,
        "",
    );
    let got = Player::new(&target, Duration::from_secs(5)).play(&case).await.expect("answers");
    assert_eq!(compare(&case, got.iter().map(|e| &e.outcome), false).len(), 1);
    assert_eq!(first_lines(&log).iter().filter(|l| l.starts_with("GET /poll")).count(), 1);
}

#[tokio::test]
async fn what_a_case_requires_is_probed() {
    let (target, _log) = server(|line| match line.split(' ').nth(1) {
        Some("/_session") => reply(200, "", r#"{"info":{"authentication_handlers":["cookie","default"]}}"#),
        Some("/_membership") => reply(200, "", r#"{"all_nodes":["a@x"]}"#),
        _ => reply(200, "", r#"{"features":["search"]}"#),
    })
    .await;
    let player = Player::new(&target, Duration::from_secs(5));
    for (requires, want) in [
        (r#"{"handlers":["cookie"]}"#, None),
        (r#"{"handlers":["cookie","jwt"]}"#, Some("the server lacks the authentication handlers jwt")),
        (r#"{"nodes":1}"#, None),
        (r#"{"nodes":3}"#, Some("the server has fewer than 3 nodes")),
        (r#"{"alone":true}"#, None),
        (r#"{"with":["search"]}"#, None),
        (r#"{"with":["nouveau"]}"#, Some("the server lacks the feature nouveau")),
        (r#"{"without":["search"]}"#, Some("the server has the feature search")),
        (r#"{"without":["nouveau"]}"#, None),
        (r#"{"record":true}"#, Some("an account of what happened once, not to be played")),
    ] {
        let text =
            format!(r#"{{"title":"t","requires":{requires},"steps":[{{"do":"GET /","response":{{"status":200}}}}]}}"#);
        let case = Case::read("c", "n", &Value::parse(text.as_bytes()).expect("JSON")).expect("a case");
        assert_eq!(player.missing(&case.requires).await.expect("a probe").as_deref(), want, "{requires}");
    }
}

#[test]
fn cookies_lose_what_differs() {
    let value = "AuthSession=abc; Version=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT; HttpOnly";
    assert_eq!(without_secrets("set-cookie", value), "AuthSession=*; Version=1; Expires=*; HttpOnly");
    assert_eq!(without_secrets("etag", value), value);
}

#[tokio::test]
async fn a_server_that_cannot_be_held_against_the_suite_says_why() {
    let refuses: fn(&str) -> String = |_| reply(401, "", r#"{"error":"unauthorized","reason":"Wrong."}"#);
    let (target, _) = server(refuses).await;
    let player = Player::new(&target, Duration::from_secs(5));
    let found = player.ready().await.expect_err("no credentials");
    assert!(found.ends_with("does not take this name and password: 401, Wrong."), "{found}");

    let nobody: fn(&str) -> String = |_| reply(200, "", r#"{"ok":true,"userCtx":{"name":"a","roles":[]}}"#);
    let (target, _) = server(nobody).await;
    let found = Player::new(&target, Duration::from_secs(5)).ready().await.expect_err("no administrator");
    assert!(found.contains("not an administrator's name"), "{found}");

    let admin: fn(&str) -> String = |_| reply(200, "", r#"{"ok":true,"userCtx":{"name":"a","roles":["_admin"]}}"#);
    let (target, _) = server(admin).await;
    Player::new(&target, Duration::from_secs(5)).ready().await.expect("an administrator");

    let none: fn(&str) -> String = |_| reply(404, "", "{}");
    let (target, _) = server(none).await;
    Player::new(&target, Duration::from_secs(5)).ready().await.expect("a server without sessions");

    let target = Target::parse("http://adm:pass@127.0.0.1:1").expect("a URL");
    assert!(Player::new(&target, Duration::from_secs(5)).ready().await.is_err(), "nobody listens");
}
