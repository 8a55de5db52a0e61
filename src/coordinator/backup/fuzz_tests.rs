//! Fuzz targets of dumps and snapshots. See `world::fuzz`.

use std::path::Path;

use super::frame;
use super::item::{DocumentItem, EndItem, SettingsItem, decode_content, decode_local, decode_purge};
use super::list::{self, Manifest, NodeManifest};
use crate::world::fuzz::Fuzz;

const ITEMS: [&str; 6] = [
    r#"{"name":"db","q":8,"partitioned":false,"revs_limit":1000,"purged_infos_limit":1000,"security":{}}"#,
    r#"{"id":"a","leaves":[{"start":2,"ids":["b","a"],"deleted":false,"attachments":[],"body":{"n":1}}]}"#,
    r#"{"id":"_local/a","rev":1,"body":{}}"#,
    r#"{"id":"a","revs":["1-967a00dff5e02add41819138abb3284d"]}"#,
    r#"{"documents":1,"locals":0,"purges":0,"hash":"00"}"#,
    r#"{"id":"a","leaves":[{"start":1,"ids":["x"],"deleted":true,"attachments":[{"name":"f","content_type":"t","revpos":1,"digest":"00","length":1,"stored_length":1,"blob":"00","encoding":"identity"}],"body":{}}]}"#,
];

#[test]
fn fuzz_items_of_dumps() {
    let words =
        ["-1", "18446744073709551615", "null", "[]", "{}", "\"ids\":[]", "\"start\":0", "leaves", "attachments"];
    Fuzz::new("items of dumps", ITEMS).words(&words).run(|payload| {
        // Either answer is right.
        let _ = SettingsItem::decode(payload);
        let _ = EndItem::decode(payload);
        let _ = (decode_content(payload), decode_local(payload), decode_purge(payload));
        if let Ok(item) = DocumentItem::decode(payload) {
            let again = DocumentItem::decode(&item.encode()).expect("what is encoded is read");
            assert_eq!(again, item);
        }
    });
}

#[test]
fn fuzz_frames_of_dumps() {
    let mut dump = Vec::new();
    frame::write_head(&mut dump).expect("into memory");
    for (kind, item) in b"sdlpe".iter().zip(ITEMS) {
        frame::write(&mut dump, *kind, item.as_bytes()).expect("into memory");
    }
    Fuzz::new("frames of dumps", [dump]).run(|bytes| {
        let (mut input, mut at) = (bytes, 0);
        if frame::read_head(&mut input).is_ok() {
            while let Ok(Some(_)) = frame::read(&mut input, &mut at) {}
        }
    });
}

#[test]
fn fuzz_lists_of_snapshots() {
    let good = [list::sealed(&Manifest::of("{}".to_owned()))];
    let bare = [
        br#"{"format":1,"taken_ms":1,"settings":"{}","layers":[]}"#.to_vec(),
        br#"{"format":2,"databases":{}}"#.to_vec(),
    ];
    Fuzz::new("lists of snapshots", good.into_iter().chain(bare))
        .words(&["format", "1", "2", "3", "layers", "[]", "null"])
        .run(|bytes| {
            // Either answer is right.
            let _ = list::unsealed::<Manifest>(bytes.to_vec(), Path::new("list"));
            let _ = list::unsealed::<NodeManifest>(bytes.to_vec(), Path::new("list"));
        });
}
