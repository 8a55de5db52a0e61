//! Replication between two running nodes, over real sockets, in one process; with servers that fail, and by way of
//! proxies.

#[path = "replication/documents.rs"]
mod documents;
#[path = "replication/faults.rs"]
mod faults;
#[path = "replication/proxies.rs"]
mod proxies;
#[path = "replication/scripted.rs"]
mod scripted;
mod served;
#[path = "replication/stretches.rs"]
mod stretches;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use settee::config::{Config, Setting};
use settee::document::json::{self, Value};
use settee::node::Node;
use settee::wire::client::{Call, Client, Patience};
use settee::wire::url::Url;
use settee::world::{Env, tokio_host};

/// How long a continuous replication may take to bring a document: generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    node: Node,
    client: Client,
    _data: tempfile::TempDir,
}

impl Place {
    async fn start(env: &Env) -> Place {
        let data = tempfile::tempdir().expect("a temporary directory");
        let settings = ["chttpd/port=0", "admins/adm=pass", "chttpd_auth/iterations=1"];
        let settings = settings.iter().map(|s| Setting::parse(s).expect("a setting")).collect();
        let config = Config::in_memory(env, settings);
        assert!(settee::auth::admins::hash_plain_passwords(env, &config).await.is_empty());
        let node = Node::start(env, &config, data.path()).await.expect("the node starts");
        let client = Client::new(env, Patience { silence: PATIENCE, retries: 0 });
        Place { node, client, _data: data }
    }

    /// The address of a database, credentials included.
    fn url(&self, db: &str) -> String {
        format!("http://adm:pass@{}/{db}", self.node.address())
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> (u16, Value) {
        let (url, _) = Url::parse(&format!("http://{}{path}", self.node.address())).expect("a URL");
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Basic YWRtOnBhc3M="));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let call = Call { method, url, headers, body: Bytes::copy_from_slice(body.as_bytes()) };
        let answer = self.client.call(&call).await.expect("an answer");
        let status = answer.status.as_u16();
        let bytes = answer.bytes(1 << 20).await.expect("the whole answer");
        (status, json::parse(&bytes).unwrap_or(Value::Null))
    }

    async fn put(&self, path: &str, body: &str) -> Value {
        let (status, answer) = self.ask(Method::PUT, path, body).await;
        assert!(status < 300, "{path}: {status} {answer:?}");
        answer
    }

    async fn replicate(&self, body: &str) -> (u16, Value) {
        self.ask(Method::POST, "/_replicate", body).await
    }
}

fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.as_object().and_then(|object| object.get(name)).unwrap_or(&Value::Null)
}

fn text(value: &Value) -> String {
    String::from_utf8(value.to_vec()).expect("UTF-8")
}

fn with_two_nodes<F, Fut>(test: F)
where
    F: FnOnce(Env, Place, Place) -> Fut,
    Fut: Future<Output = ()>,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let env = tokio_host::env(runtime.handle().clone());
    runtime.block_on(async {
        let (a, b) = (Place::start(&env).await, Place::start(&env).await);
        test(env, a, b).await;
    });
}

#[test]
fn documents_conflicts_deletions_and_attachments_reach_the_other_node() {
    with_two_nodes(|_, a, b| async move {
        a.put("/one", "").await;
        let conflicts = r#"{"new_edits":false,"docs":[
            {"_id":"c","_rev":"2-bb","v":"b","_revisions":{"start":2,"ids":["bb","aa"]}},
            {"_id":"c","_rev":"2-cc","v":"c","_revisions":{"start":2,"ids":["cc","aa"]}},
            {"_id":"gone","_deleted":true,"_revisions":{"start":2,"ids":["dd","ee"]}}]}"#;
        assert_eq!(a.ask(Method::POST, "/one/_bulk_docs", conflicts).await.0, 201);
        let zeros = "aGVsbG8gaGVsbG8gaGVsbG8=";
        let attached = format!(
            r#"{{"_attachments":{{"t.txt":{{"content_type":"text/plain","data":"{zeros}"}},
                "b.bin":{{"content_type":"application/octet-stream","data":"AAEC/w=="}}}}}}"#
        );
        a.put("/one/att%2Fä", &attached).await;
        // Driven by the target: a remote source and a local target.
        let order = format!(r#"{{"source":"{}","target":"two","create_target":true}}"#, a.url("one"));
        let (status, answer) = b.replicate(&order).await;
        assert_eq!(status, 200, "{answer:?}");
        let entry = member(&answer, "history").as_array().expect("a history")[0].clone();
        for (name, count) in [("missing_checked", 4), ("docs_read", 4), ("docs_written", 4), ("doc_write_failures", 0)]
        {
            assert_eq!(member(&entry, name).as_u64(), Some(count), "{name}");
        }
        for path in ["c?open_revs=all&revs=true", "gone?open_revs=all&revs=true", "att%2Fä?att_encoding_info=true"] {
            let (here, there) = (
                a.ask(Method::GET, &format!("/one/{path}"), "").await,
                b.ask(Method::GET, &format!("/two/{path}"), "").await,
            );
            assert_eq!((here.0, text(&here.1)), (there.0, text(&there.1)), "{path}");
            assert_eq!(here.0, 200, "{path}");
        }
        let (_, again) = b.replicate(&order).await;
        assert_eq!(member(&again, "no_changes").as_bool(), Some(true));
        assert_eq!(member(&again, "session_id"), member(&answer, "session_id"));
        // Driven by the source: a local source and a remote target, attachments streamed in one body.
        let order = format!(r#"{{"source":"one","target":"{}","create_target":true}}"#, b.url("three"));
        assert_eq!(a.replicate(&order).await.0, 200);
        let (_, bytes) = b.ask(Method::GET, "/three/att%2Fä?attachments=true", "").await;
        assert!(text(&bytes).contains(zeros), "{}", text(&bytes));
        // Written again as it was it has a new generation, and the same bytes: `held` of a settee.
        let large = "AAAA".repeat(40_000);
        let put = async |rev: &str| {
            let body = format!(r#"{{{rev}"_attachments":{{"l":{{"content_type":"a/b","data":"{large}"}}}}}}"#);
            text(member(&a.put("/one/large", &body).await, "rev"))
        };
        let rev = put("").await;
        assert_eq!(a.replicate(&order).await.0, 200);
        put(&format!(r#""_rev":{rev},"#)).await;
        let (_, answer) = a.replicate(&order).await;
        let entry = &member(&answer, "history").as_array().expect("a history")[0];
        assert_eq!(member(entry, "doc_write_failures").as_u64(), Some(0), "{answer:?}");
        let shown = async |at: &Place, path: &str| text(&at.ask(Method::GET, path, "").await.1);
        let full = "large?attachments=true";
        assert_eq!(shown(&a, &format!("/one/{full}")).await, shown(&b, &format!("/three/{full}")).await);
        let digests = |value: &Value| text(member(value, "_attachments"));
        let (here, there) =
            (a.ask(Method::GET, "/one/att%2Fä", "").await.1, b.ask(Method::GET, "/three/att%2Fä", "").await.1);
        assert_eq!(digests(&here), digests(&there));
        a.node.stop().await;
        b.node.stop().await;
    });
}

#[test]
fn a_continuous_replication_follows_until_it_is_cancelled() {
    with_two_nodes(|env, a, b| async move {
        a.put("/live", "").await;
        b.put("/copy", "").await;
        let order = |more: &str| {
            format!(r#"{{"source":"{}","target":"{}","continuous":true{more}}}"#, a.url("live"), b.url("copy"))
        };
        let (status, started) = a.replicate(&order("")).await;
        assert_eq!(status, 202, "{started:?}");
        assert_eq!(a.replicate(&order("")).await.1, started);
        for id in ["first", "second"] {
            a.put(&format!("/live/{id}"), r#"{"v":1}"#).await;
            let arrived = async {
                while b.ask(Method::GET, &format!("/copy/{id}"), "").await.0 != 200 {
                    env.sleep(Duration::from_millis(20)).await;
                }
            };
            assert!(env.timeout(PATIENCE, arrived).await.is_ok(), "{id} did not arrive");
        }
        let id = member(&started, "_local_id").as_str().expect("an id").to_owned();
        assert_eq!(a.ask(Method::GET, &format!("/_scheduler/jobs/{id}"), "").await.0, 200);
        let tasks = a.ask(Method::GET, "/_active_tasks", "").await.1;
        assert_eq!(tasks.as_array().map(<[Value]>::len), Some(1));
        assert_eq!(a.replicate(&order(r#","cancel":true"#)).await.0, 200);
        assert_eq!(a.replicate(&order(r#","cancel":true"#)).await.0, 404);
        assert_eq!(a.ask(Method::GET, &format!("/_scheduler/jobs/{id}"), "").await.0, 404);
        a.node.stop().await;
        b.node.stop().await;
    });
}

#[test]
fn only_what_is_asked_for_is_copied_and_more_than_a_batch_is() {
    with_two_nodes(|_, a, b| async move {
        a.put("/many", "").await;
        let docs: Vec<String> = (0..700).map(|n| format!(r#"{{"_id":"d{n:03}","n":{n}}}"#)).collect();
        let body = format!(r#"{{"docs":[{}]}}"#, docs.join(","));
        assert_eq!(a.ask(Method::POST, "/many/_bulk_docs", &body).await.0, 201);
        let count = async |db: &str| member(&b.ask(Method::GET, &format!("/{db}"), "").await.1, "doc_count").as_u64();
        let design = r#"{"filters":{"low":"function (doc, req) { return doc.n < Number(req.query.below); }"}}"#;
        a.put("/many/_design/f", design).await;
        let declared = r#"{"language":"query","filters":{"high":{"n":{"$gte":690}}}}"#;
        a.put("/many/_design/q", declared).await;
        for (db, more, expected) in [
            ("all", "", 702),
            ("named", r#","filter":"q/high""#, 10),
            ("low", r#","filter":"f/low","query_params":{"below":3}"#, 3),
            ("some", r#","doc_ids":["d001","d002","nope"]"#, 2),
            ("picked", r#","selector":{"n":{"$gte":690}}"#, 10),
        ] {
            let order = format!(r#"{{"source":"many","target":"{}","create_target":true{more}}}"#, b.url(db));
            let (status, answer) = a.replicate(&order).await;
            assert_eq!(status, 200, "{db}: {answer:?}");
            assert_eq!(count(db).await, Some(expected), "{db}");
        }
        let (status, answer) = a.replicate(&format!(r#"{{"source":"many","target":"{}"}}"#, b.url("none"))).await;
        assert_eq!((status, member(&answer, "error").as_str()), (500, Some("db_not_found")));
        a.node.stop().await;
        b.node.stop().await;
    });
}
