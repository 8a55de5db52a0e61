//! Documents with several branches: what reads, compares, limits and purges revisions.

use super::documents::strings;
use super::draft::{Draft, Table};
use super::sample::database;

/// Leaves and inner revisions of the trees that [`begin`] makes, and some that are none.
const REVS: &[&str] =
    &["1-a", "2-b", "3-c", "3-d", "2-e", "4-f", "1-z", "5-0", "x", "2-", "-1-a", "1-A", "3-c,3-d", "0-a", ""];
/// Branches: generation of the leaf and ids from it to the root.
const BRANCHES: &[(u64, &str)] = &[
    (3, "\"c\",\"b\",\"a\""),
    (3, "\"d\",\"b\",\"a\""),
    (2, "\"e\",\"a\""),
    (4, "\"f\",\"c\",\"b\",\"a\""),
    (1, "\"z\""),
    (3, "\"c\""),
    (5, "\"y\",\"x\",\"c\""),
    (2, "\"b\",\"a\""),
];
const READ: Table = &[
    ("rev", REVS),
    ("revs", &["true"]),
    ("revs_info", &["true"]),
    ("conflicts", &["true"]),
    ("deleted_conflicts", &["true"]),
    ("meta", &["true"]),
    ("latest", &["true"]),
    ("local_seq", &["true"]),
    ("open_revs", &["all", "[\"3-c\",\"2-e\"]", "[\"2-b\"]", "[\"1-a\",\"9-q\"]", "[\"3-c\",\"3-c\"]", "[\"x\"]"]),
    ("attachments", &["true"]),
    ("atts_since", &["[\"2-b\"]", "[\"1-a\"]"]),
];
const LISTS: &[&str] = &[
    "_changes?style=all_docs",
    "_changes?style=all_docs&include_docs=true&conflicts=true",
    "_all_docs?include_docs=true&conflicts=true",
    "_all_docs?keys=[%22t%22,%22u%22,%22none%22]&include_docs=true",
    "_changes?include_docs=true&attachments=true",
    "_changes?descending=true&style=all_docs&limit=2",
];

pub fn begin(draft: &mut Draft) {
    database(draft);
    for id in ["t", "u"] {
        for _ in 0..1 + draft.dice.below(4) {
            branch(draft, id);
        }
    }
}

/// Writes one branch as a replicator does.
fn branch(draft: &mut Draft, id: &str) {
    let (start, ids) = draft.dice.pick(BRANCHES);
    let leaf = ids.split(',').next().unwrap_or_default().trim_matches('"');
    let more = draft.dice.pick(&["", "", "", ",\"_deleted\":true", ",\"_attachments\":{\"t\":{\"data\":\"aGk=\"}}"]);
    let n = draft.dice.below(3);
    draft.ask("POST /${db}/_bulk_docs").json(&format!(
        "{{\"new_edits\":false,\"docs\":[{{\"_id\":\"{id}\",\"_rev\":\"{start}-{leaf}\",\"_revisions\":{{\"start\":{start},\"ids\":[{ids}]}},\"n\":{n}{more}}}]}}"
    ));
}

pub fn ask(draft: &mut Draft) {
    let id = draft.dice.pick(&["t", "t", "u", "none"]);
    match draft.dice.below(15) {
        0..=3 => {
            let query = draft.query(READ, 3);
            draft.ask(&format!("GET /${{db}}/{id}{query}"));
            if draft.dice.chance(20) {
                let accept = draft.dice.pick(&["multipart/mixed", "multipart/related", "application/json"]);
                draft.header("Accept", accept);
            }
        }
        4 => branch(draft, id),
        5 | 6 => {
            let path = draft.dice.pick(&["_revs_diff", "_missing_revs"]);
            let revs = revisions(draft);
            let other = revisions(draft);
            draft.ask(&format!("POST /${{db}}/{path}")).json(&format!("{{\"{id}\":{revs},\"u\":{other}}}"));
        }
        7 | 8 => {
            let asked: Vec<String> = (0..1 + draft.dice.below(3))
                .map(|_| {
                    let since = draft.dice.pick(&["", "", ",\"atts_since\":[\"1-a\"]"]);
                    format!("{{\"id\":\"{id}\",\"rev\":\"{}\"{since}}}", draft.dice.pick(REVS))
                })
                .collect();
            let query = draft.dice.pick(&["", "?revs=true", "?latest=true", "?revs=true&latest=true&attachments=true"]);
            draft.ask(&format!("POST /${{db}}/_bulk_get{query}")).json(&format!("{{\"docs\":[{}]}}", asked.join(",")));
        }
        9 => {
            let revs = revisions(draft);
            draft.ask("POST /${db}/_purge").json(&format!("{{\"{id}\":{revs}}}"));
            draft.ask(&format!("GET /${{db}}/{id}?open_revs=all&revs=true"));
        }
        10 => {
            let list = draft.dice.pick(LISTS);
            draft.ask(&format!("GET /${{db}}/{list}"));
        }
        11 => edit(draft, id),
        12 => {
            let rev = draft.dice.pick(REVS);
            let to = draft.dice.pick(&["new", "u?rev=3-c", "t", "new?rev=1-a"]);
            draft.ask(&format!("COPY /${{db}}/{id}?rev={rev}")).header("Destination", to);
        }
        13 => shorter_history(draft),
        _ => {
            draft.ask("GET /${db}").with("ignore", strings(&["/sizes", "/instance_start_time"]));
        }
    }
}

/// A document of its own under a low limit of revisions: a refused edit of another one would be shortened by the
/// reference, too.
fn shorter_history(draft: &mut Draft) {
    let limit = draft.dice.pick(&["1", "2", "3"]);
    draft.ask("PUT /${db}/_revs_limit").text("application/json", limit);
    draft.ask("GET /${db}/short").bind("short", "/_rev");
    for n in 0..1 + draft.dice.below(4) {
        let edit = format!("{{\"_rev\":\"${{short}}\",\"n\":{n}}}");
        draft.ask("PUT /${db}/short").json(if n == 0 { "{}" } else { &edit }).bind("short", "/rev");
    }
    draft.ask("GET /${db}/short?revs=true&revs_info=true");
    draft.ask("PUT /${db}/_revs_limit").text("application/json", "1000");
}

/// Extends a leaf, deletes one, or forks an inner revision.
fn edit(draft: &mut Draft, id: &str) {
    let rev = draft.dice.pick(REVS);
    match draft.dice.below(4) {
        0 => _ = draft.ask(&format!("DELETE /${{db}}/{id}?rev={rev}")),
        1 => _ = draft.ask(&format!("PUT /${{db}}/{id}")).json(&format!("{{\"_rev\":\"{rev}\",\"n\":5}}")),
        2 => {
            let stub = "{\"t\":{\"stub\":true}}";
            draft.ask(&format!("PUT /${{db}}/{id}?rev={rev}")).json(&format!("{{\"n\":6,\"_attachments\":{stub}}}"));
        }
        _ => _ = draft.ask(&format!("PUT /${{db}}/{id}/t?rev={rev}")).text("text/plain", "hello"),
    }
}

fn revisions(draft: &mut Draft) -> String {
    let mut revs: Vec<String> = (0..draft.dice.below(4)).map(|_| format!("\"{}\"", draft.dice.pick(REVS))).collect();
    // Of a revision that is named twice the reference tells once too often.
    revs.sort();
    revs.dedup();
    format!("[{}]", revs.join(","))
}
