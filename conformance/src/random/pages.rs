//! Lists that are read page by page: bookmarks of declarative queries, rows of views and lists from which the next page
//! goes on.

use super::documents::strings;
use super::draft::{Draft, escaped};
use super::find;
use super::sample::IDS;

const SELECTORS: &[&str] = &[
    "{}",
    "{\"n\":{\"$gt\":0}}",
    "{\"t\":\"x\"}",
    "{\"t\":{\"$in\":[\"x\",\"y\"]}}",
    "{\"_id\":{\"$gt\":null}}",
    "{\"_id\":{\"$gte\":\"b\",\"$lte\":\"f\"}}",
    "{\"n\":{\"$exists\":true},\"t\":{\"$ne\":\"z\"}}",
    "{\"$or\":[{\"n\":1},{\"n\":{\"$gt\":3}}]}",
    "{\"o.p\":{\"$gt\":null}}",
    "{\"v\":{\"$gte\":\"a\"}}",
    "{\"n\":{\"$lt\":\"b\"},\"$not\":{\"t\":\"y\"}}",
];
const SORTS: &[&str] = &[
    "",
    "",
    ",\"sort\":[\"n\"]",
    ",\"sort\":[{\"n\":\"desc\"}]",
    ",\"sort\":[\"t\",\"n\"]",
    ",\"sort\":[{\"t\":\"desc\"},{\"n\":\"desc\"}]",
    ",\"sort\":[\"_id\"]",
    ",\"sort\":[{\"_id\":\"desc\"}]",
    ",\"sort\":[\"o.p\"]",
];
const MORE: &[&str] = &[
    "",
    "",
    ",\"fields\":[\"_id\",\"n\"]",
    ",\"fields\":[\"o.p\",\"l.0\",\"o.q\\\\.r\"]",
    ",\"fields\":[\"n\"]",
    ",\"execution_stats\":true",
    ",\"skip\":1",
    ",\"use_index\":\"i\"",
    ",\"use_index\":[\"i\",\"n\"]",
    ",\"conflicts\":true",
    ",\"r\":2",
    ",\"allow_fallback\":false",
];
const ORDERS: &[&str] = &["", "&descending=true", "&include_docs=true", "&inclusive_end=false", "&skip=1", "&limit=3"];

/// Documents, indexes and a view over them.
pub fn begin(draft: &mut Draft) {
    find::begin(draft);
    draft.ask("PUT /${db}/_design/d").json(
        "{\"views\":{\"v\":{\"map\":\"function(doc) { emit(doc.t, doc.n); emit([doc.n], null); }\"},\"r\":{\"map\":\"function(doc) { emit(doc.t, 1); }\",\"reduce\":\"_count\"}}}",
    );
}

pub fn ask(draft: &mut Draft) {
    match draft.dice.below(10) {
        0..=4 => bookmarks(draft),
        5 | 6 => rows(draft, "_design/d/_view/v"),
        7 => rows(draft, "_design/d/_view/r?reduce=false"),
        8 => rows(draft, "_all_docs"),
        _ => changed(draft),
    }
}

/// A query, and up to three pages more.
fn bookmarks(draft: &mut Draft) {
    let (selector, sort, more) = (draft.dice.pick(SELECTORS), draft.dice.pick(SORTS), draft.dice.pick(MORE));
    let limit = 1 + draft.dice.below(3);
    let body = |bookmark: &str| format!("{{\"selector\":{selector},\"limit\":{limit}{sort}{more}{bookmark}}}");
    draft.ask("POST /${db}/_find").json(&body("")).bind("mark", "/bookmark");
    draft.with("volatile", strings(&["/execution_stats/execution_time_ms"]));
    for _ in 0..draft.dice.below(4) {
        if draft.dice.chance(15) {
            added(draft);
        }
        draft.ask("POST /${db}/_find").json(&body(",\"bookmark\":\"${mark}\"")).bind("mark", "/bookmark");
        draft.with("volatile", strings(&["/execution_stats/execution_time_ms"]));
    }
    if draft.dice.chance(15) {
        draft
            .ask("POST /${db}/_explain")
            .json(&body(",\"bookmark\":\"${mark}\""))
            .with("volatile", strings(&["/opts"]));
    }
}

/// A page of rows, and the page that begins with its last one.
fn rows(draft: &mut Draft, list: &str) {
    let mark = if list.contains('?') { '&' } else { '?' };
    let (order, at) = (draft.dice.pick(ORDERS), draft.dice.below(2));
    let order = if order.contains("limit") { "" } else { order };
    draft.ask(&format!("GET /${{db}}/{list}{mark}limit=2{order}")).bind("id", &format!("/rows/{at}/id"));
    draft.ask(&format!("GET /${{db}}/{list}{mark}limit=2{order}")).bind("key", &format!("/rows/{at}/key"));
    let bounds = draft.dice.pick(&[
        "startkey=\"${key}\"&startkey_docid=${id}",
        "startkey=\"${key}\"",
        "endkey=\"${key}\"&endkey_docid=${id}",
        "startkey_docid=${id}",
        "key=\"${key}\"&startkey_docid=${id}",
        "key=\"${key}\"&endkey_docid=${id}",
        "startkey=\"x\"&startkey_docid=c&endkey=\"y\"&endkey_docid=d",
        "startkey=[1]&endkey=[3]&startkey_docid=b",
        "keys=[\"x\",\"y\",[1]]",
    ]);
    let bounds: Vec<String> = bounds
        .split('&')
        .map(|part| part.split_once('=').map_or_else(|| part.to_owned(), |(n, v)| format!("{n}={}", escaped(v))))
        .collect();
    draft.ask(&format!("GET /${{db}}/{list}{mark}{}{order}", bounds.join("&")));
}

/// One document more, or less.
fn changed(draft: &mut Draft) {
    if draft.dice.chance(50) {
        return added(draft);
    }
    let id = escaped(draft.dice.pick(IDS));
    draft.ask(&format!("GET /${{db}}/{id}")).bind("was", "/_rev");
    draft.ask(&format!("DELETE /${{db}}/{id}?rev=${{was}}"));
}

/// One document more. Where that of a bookmark is deleted, the reference leaves out the next one.
fn added(draft: &mut Draft) {
    let n = draft.dice.below(6);
    draft.ask("PUT /${db}/n1").json(&format!("{{\"n\":{n},\"t\":\"x\",\"o\":{{\"p\":{n}}}}}"));
}
