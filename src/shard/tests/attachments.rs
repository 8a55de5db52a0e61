//! Attachments of edits: stubs, `revpos`, deduplication, removal (`conformance/cases/documents`).

use super::*;
use crate::document::render::Attachment;
use crate::shard::{KnownBytes, ShardError};
use crate::storage::{ReadAs, StageMode};
use bytes::Bytes;

async fn upload(w: &World, name: &str, revpos: u64, content: &[u8]) -> EditAttachment {
    let mut writer = w.shard.stage(StageMode::Plain);
    writer.write(Bytes::copy_from_slice(content)).await.unwrap();
    EditAttachment::New(writer.finish().await.unwrap().attachment(name, "x/y", revpos))
}

fn with(edit: Edit, attachments: Vec<EditAttachment>) -> Edit {
    Edit { attachments, ..edit }
}

async fn attachments(w: &World, id: &str) -> Vec<Attachment> {
    w.winner(id).await.unwrap().attachments
}

async fn read(w: &World, attachment: &Attachment) -> Result<Vec<u8>, ShardError> {
    let mut reader = w.shard.blob_reader(attachment, ReadAs::Plain, None);
    let mut out = Vec::new();
    while let Some(bytes) = reader.next().await? {
        out.extend_from_slice(&bytes);
    }
    Ok(out)
}

fn missing(id: &str, name: &str) -> Result<Revision, EditError> {
    Err(EditError::MissingStub { id: DocId::new(id), name: name.to_owned() })
}

#[tokio::test]
async fn stubs_mean_the_parents_attachments_and_their_revpos_is_checked() {
    let w = World::new().await;
    assert_eq!(w.edit(with(interactive("a", None, false, "{}"), vec![stub("f", None)])).await, missing("a", "f"));
    let new = upload(&w, "f", 9, b"1").await;
    let first = w.edit(with(interactive("a", None, false, "{}"), vec![new])).await.unwrap();
    let next = |stubs| with(interactive("a", Some(&first), false, "{}"), stubs);
    assert_eq!(w.edit(next(vec![stub("g", None)])).await, missing("a", "g"));
    assert_eq!(w.edit(next(vec![stub("f", Some(2))])).await, missing("a", "f"));
    let more = upload(&w, "g", 0, &[7; 10_000]).await;
    let second = w.edit(next(vec![stub("f", Some(1)), more])).await.unwrap();
    let stored = attachments(&w, "a").await;
    assert_eq!(stored.iter().map(|a| (a.name.as_str(), a.revpos)).collect::<Vec<_>>(), [("f", 1), ("g", 2)]);
    assert_eq!(read(&w, &stored[0]).await.unwrap(), b"1");
    assert_eq!(read(&w, &stored[1]).await.unwrap(), [7; 10_000]);
    // An outdated parent is told before a missing stub.
    assert_eq!(w.edit(next(vec![stub("x", None)])).await, Err(EditError::Conflict));
    let gone = w.edit(with(interactive("a", Some(&second), true, "{}"), vec![stub("f", None)])).await.unwrap();
    assert_eq!(gone.pos, 3);
    assert_eq!(w.edit(with(interactive("a", None, false, "{}"), vec![stub("f", None)])).await, missing("a", "f"));
}

#[tokio::test]
async fn merges_keep_the_given_revpos_and_take_stubs_from_the_nearest_ancestor() {
    let w = World::new().await;
    let new = upload(&w, "f", 4, b"content").await;
    w.edit(with(merge("a", path(&["5-e", "4-d"]), false, "{}"), vec![new])).await.unwrap();
    assert_eq!(attachments(&w, "a").await[0].revpos, 4);
    let far = |stubs| with(merge("a", path(&["7-g", "6-f", "5-e"]), false, "{}"), stubs);
    assert_eq!(w.edit(far(vec![stub("f", Some(5))])).await, missing("a", "f"));
    w.edit(far(vec![stub("f", Some(4))])).await.unwrap();
    assert_eq!(read(&w, &attachments(&w, "a").await[0]).await.unwrap(), b"content");
    let strange = with(merge("a", path(&["9-z"]), false, "{}"), vec![stub("f", None)]);
    assert_eq!(w.edit(strange).await, missing("a", "f"));
    // Known: no effect, its stubs are not looked at.
    assert!(w.edit(far(vec![stub("nothing", None)])).await.is_ok());
}

#[tokio::test]
async fn a_stub_of_a_merge_means_the_same_bytes_whatever_generation_wrote_them() {
    let w = World::new().await;
    let new = upload(&w, "f", 4, b"content").await;
    let EditAttachment::New(stored) = new.clone() else { panic!("new") };
    w.edit(with(merge("a", path(&["5-e", "4-d"]), false, "{}"), vec![new])).await.unwrap();
    let known = |digest| Some(KnownBytes { content_type: stored.content_type.clone(), digest });
    let stub = |bytes| vec![EditAttachment::Stub { name: "f".to_owned(), revpos: Some(7), bytes }];
    let next = |stubs| with(merge("a", path(&["7-g", "6-f", "5-e"]), false, "{}"), stubs);
    assert_eq!(w.edit(next(stub(known([0; 16])))).await, missing("a", "f"));
    let other = Some(KnownBytes { content_type: "other/type".to_owned(), digest: stored.digest });
    assert_eq!(w.edit(next(stub(other))).await, missing("a", "f"));
    w.edit(next(stub(known(stored.digest)))).await.unwrap();
    let found = attachments(&w, "a").await;
    assert_eq!((found[0].revpos, read(&w, &found[0]).await.unwrap()), (7, b"content".to_vec()));
}

#[tokio::test]
async fn content_lives_as_long_as_a_stored_revision_names_it() {
    for size in [10, 10_000] {
        let w = World::new().await;
        let content = vec![5; size];
        let new = upload(&w, "f", 0, &content).await;
        let EditAttachment::New(attachment) = new.clone() else { panic!("new") };
        let first = w.edit(with(interactive("a", None, false, "{}"), vec![new])).await.unwrap();
        let kept = w.edit(with(interactive("a", Some(&first), false, "{}"), vec![stub("f", None)])).await.unwrap();
        assert_eq!(w.shard.info().await.unwrap().sizes.external, 2 + size as u64);
        w.compact(0).await;
        let w = w.reopen().await;
        assert_eq!(read(&w, &attachment).await.unwrap(), content);
        w.put("a", Some(&kept), "{}").await.unwrap();
        assert_eq!(read(&w, &attachment).await.unwrap(), content);
        w.compact(0).await;
        while read(&w, &attachment).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let late = with(interactive("b", None, false, "{}"), vec![EditAttachment::New(attachment)]);
        assert_eq!(w.edit(late).await, Err(EditError::UploadGone { name: "f".into() }));
        assert_eq!(w.shard.info().await.unwrap().doc_count, 1);
    }
}

#[tokio::test]
async fn a_gone_upload_refuses_its_edit_and_leaves_nothing() {
    let w = World::new().await;
    let good = upload(&w, "good", 0, b"good").await;
    let bad = EditAttachment::New(Attachment {
        blob: [9; 32],
        name: "bad".into(),
        ..match &good {
            EditAttachment::New(new) => new.clone(),
            EditAttachment::Stub { .. } => panic!("new"),
        }
    });
    let refused = w.edit(with(interactive("a", None, false, "{}"), vec![good, bad])).await;
    assert_eq!(refused, Err(EditError::UploadGone { name: "bad".into() }));
    assert_eq!(w.shard.info().await.unwrap(), crate::shard::ShardInfo::default());
    assert!(w.winner("a").await.is_none());
}
