//! Documents of members, and the result when nodes with different documents meet.

use proptest::prelude::*;

use super::*;

fn env() -> Env {
    crate::world::tokio_host::env(tokio::runtime::Handle::current())
}

fn object(text: &str) -> Object {
    match json::parse(text.as_bytes()) {
        Ok(Value::Object(object)) => object,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn revisions_are_those_of_the_reference() {
    let table = Table::in_memory(&env(), Records::new());
    let (first, second) = ("1-967a00dff5e02add41819138abb3284d", "2-eec205a9d413992850a6e32678485900");
    assert_eq!(table.put("n3@h", Object::new(), None).await.unwrap().rev, first);
    assert_eq!(table.put("n3@h", Object::new(), None).await, Err(MemberError::Conflict));
    assert_eq!(table.delete("n3@h", Some("1-x".to_owned())).await, Err(MemberError::Conflict));
    assert_eq!(table.delete("n3@h", Some(first.to_owned())).await.unwrap().rev, second);
    assert!(table.members().is_empty());
    assert_eq!(table.delete("n3@h", None).await, Err(MemberError::NotFound { deleted: true }));
    assert_eq!(table.delete("n4@h", None).await, Err(MemberError::NotFound { deleted: false }));
    let again = table.put("n3@h", Object::new(), None).await.unwrap();
    assert_eq!(again.rev, "3-5570e8bbb34412db757c2df4bfa1099b");
}

#[tokio::test]
async fn fields_of_the_document_count_and_survive_an_update() {
    let table = Table::in_memory(&env(), Records::new());
    table.put("a@h", Object::new(), None).await.unwrap();
    let told = Contact { address: "h:1".to_owned(), count: 1 };
    let contact = told.clone();
    table.adjust(&"a@h".into(), move |record| (record.joined, record.contact) = (true, contact)).await.unwrap();
    assert_eq!(table.members()[0].address.as_deref(), Some("h:1"));
    let rev = table.records()["a@h"].rev.clone();
    table.put("a@h", object(r#"{"zone":"east","address":"h:2"}"#), Some(rev)).await.unwrap();
    let member = table.members().remove(0);
    assert_eq!((member.zone.as_deref(), member.address.as_deref(), member.joined), (Some("east"), Some("h:2"), true));
    assert_eq!(table.records()["a@h"].contact, told);
    assert_eq!(table.put(&"x".repeat(256), Object::new(), None).await, Err(MemberError::TooMany));
}

#[tokio::test]
async fn a_removed_member_is_not_brought_back_by_one_who_had_not_heard() {
    let (here, there) = (Table::in_memory(&env(), Records::new()), Table::in_memory(&env(), Records::new()));
    here.put("a@h", Object::new(), None).await.unwrap();
    there.merge(Records::clone(&here.records())).await.unwrap();
    here.delete("a@h", None).await.unwrap();
    here.merge(Records::clone(&there.records())).await.unwrap();
    there.merge(Records::clone(&here.records())).await.unwrap();
    assert!(here.members().is_empty() && there.members().is_empty());
    assert_eq!(here.records(), there.records());
}

#[tokio::test]
async fn nonsense_is_left_out() {
    let table = Table::in_memory(&env(), Records::new());
    let bad = Record { rev: "x".to_owned(), ..Record::fresh() };
    let theirs = Records::from([("a@h".to_owned(), bad), (String::new(), Record::fresh())]);
    table.merge(theirs).await.unwrap();
    assert!(table.records().is_empty());
}

#[tokio::test]
async fn members_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = crate::storage::StorageOptions::default();
    let storage = Storage::open(env(), dir.path(), options).await.unwrap();
    let table = Table::load(&env(), &storage).await.unwrap();
    table.put("a@h", Object::new(), None).await.unwrap();
    let again = Table::load(&env(), &storage).await.unwrap();
    assert_eq!(again.records(), table.records());
}

fn records() -> impl Strategy<Value = Record> {
    let origin = (0..2u64, "[ab]").prop_map(|(made_ms, uuid)| Origin { made_ms, uuid });
    let all = (0..3u64, any::<bool>(), any::<bool>(), 0..3u64, "[ab]", proptest::option::of(origin));
    all.prop_map(|(pos, deleted, joined, count, address, origin)| Record {
        rev: format!("{}-{:032x}", pos + 1, pos * 7 % 3),
        deleted,
        body: "{}".to_owned(),
        joined,
        contact: Contact { address, count },
        origin,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn all_who_heard_the_same_agree(a in records(), b in records(), c in records()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&a, &a), a);
    }
}
