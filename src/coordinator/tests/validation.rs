//! Validation functions and checks of design documents.

use super::*;
use crate::coordinator::{ReadOperations, WriteOperations};

const VALIDATOR: &str = r#"{"validate_doc_update":"function(n,o,u){ if (n.v === 'no') throw({forbidden: [o && o.v, u.name, u.db, n._rev || null]}); }"}"#;

async fn attempt(database: &Arc<Database>, name: &str, text: &str) -> Result<Revision, WriteError> {
    let caller = Arc::new(Caller { name: Some("joe".to_owned()), ..Caller::default() });
    let options = WriteOptions { caller, ..WriteOptions::default() };
    database.writer().write_one(request(name, text), options).await.map(|done| done.rev)
}

fn forbidden(result: Result<Revision, WriteError>) -> String {
    match result {
        Err(WriteError::Forbidden { reason }) => String::from_utf8(reason.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_validator_counts_as_soon_as_it_is_written_and_no_longer() {
    let (_world, _, database) = database(4).await;
    let first = put(&database, "a", r#"{"v":1}"#).await;
    for _ in 0..3 {
        let written = put(&database, "_design/v", VALIDATOR).await;
        assert_eq!(forbidden(attempt(&database, "b", r#"{"v":"no"}"#).await), r#"[null,"joe","db",null]"#);
        let edit = format!(r#"{{"_rev":"{first}","v":"no"}}"#);
        assert_eq!(forbidden(attempt(&database, "a", &edit).await), format!(r#"[1,"joe","db","{first}"]"#));
        let stale = attempt(&database, "a", r#"{"v":"no"}"#).await;
        assert!(matches!(stale, Err(WriteError::Conflict)), "conflicts come first: {stale:?}");
        assert!(attempt(&database, "_design/w", r#"{"v":"no"}"#).await.is_ok(), "design documents are exempt");
        assert!(attempt(&database, "_local/l", r#"{"v":"no"}"#).await.is_ok(), "local documents are exempt");
        let options = WriteOptions::default();
        database.writer().delete(&id("_design/v"), Some(written), options.clone()).await.unwrap();
        let done = attempt(&database, "c", r#"{"v":"no"}"#).await.unwrap();
        database.writer().delete(&id("c"), Some(done), options.clone()).await.unwrap();
        let winner =
            database.documents().fetch(&id("_design/w"), Want::Winner).await.unwrap().unwrap().found[0].0.clone();
        database.writer().delete(&id("_design/w"), Some(winner), options).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_made_elsewhere_are_compared_with_their_ancestor() {
    let (_world, _, database) = database(1).await;
    let options = WriteOptions { new_edits: false, ..WriteOptions::default() };
    let merge =
        async |text: &str| database.writer().write_one(request("a", text), options.clone()).await.map(|done| done.rev);
    merge(r#"{"_rev":"1-a","v":"old"}"#).await.unwrap();
    put(&database, "_design/v", VALIDATOR).await;
    let child = r#"{"_revisions":{"start":3,"ids":["c","b","a"]},"v":"no"}"#;
    assert_eq!(forbidden(merge(child).await), r#"["old",null,"db","3-c"]"#);
    assert_eq!(forbidden(merge(r#"{"_rev":"1-x","v":"no"}"#).await), r#"[null,null,"db","1-x"]"#);
    merge(r#"{"_rev":"1-a","v":"no"}"#).await.expect("a revision that is there already");
    assert_eq!(body(&database, "a").await, r#"{"v":"old"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn design_documents_are_checked_one_by_one() {
    let (_world, _, database) = database(2).await;
    let requests = vec![
        request("_design/a", r#"{"views":[]}"#),
        request("ok", "{}"),
        request("_design/b", r#"{"views":{"v":{"map":"function("}}}"#),
        request("_design/c", r#"{"views":{"v":{"map":"function(d){}"}}}"#),
    ];
    let results = database.writer().write(requests, WriteOptions::default()).await.unwrap();
    let shown: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(shown, [false, true, false, true], "{results:?}");
    put(&database, "_design/f", r#"{"validate_doc_update":"function(n){ n.a.b; }"}"#).await;
    let thrown = attempt(&database, "x", "{}").await;
    assert!(matches!(&thrown, Err(WriteError::Script(_))), "{thrown:?}");
}
