//! Partitioned databases: documents, lists, views and queries of a partition and across.

use super::documents::strings;
use super::draft::Draft;
use super::lists::view_query;

const VIEW_OPTIONS: &[&str] = &[
    "",
    ",\"options\":{\"partitioned\":true}",
    ",\"options\":{\"partitioned\":false}",
    ",\"options\":{\"partitioned\":1}",
];
const BODIES: &[&str] = &["{\"keys\":[\"p:a\",\"r:a\"]}", "{\"limit\":1}", "{}", "{\"queries\":[{\"limit\":1}]}"];
const VIEWS: &[&str] = &["d/_view/v", "d/_view/v", "d/_view/none", "i/_view/n", "d/_info", "d/_list/l/v", "d/_show/s"];
const SELECTORS: &[&str] = &[
    "{\"n\":{\"$gt\":1}}",
    "{\"t\":\"x\"}",
    "{}",
    "{\"_id\":{\"$gt\":\"p:a\"}}",
    "{\"n\":1,\"_id\":\"p:a\"}",
    "{\"n\":{\"$in\":[1,2]}}",
];
const MEMBERS: &[&str] = &[
    "",
    ",\"limit\":1",
    ",\"sort\":[\"n\"]",
    ",\"use_index\":\"i\"",
    ",\"execution_stats\":true",
    ",\"fields\":[\"_id\"]",
    ",\"partition\":\"p\"",
    ",\"partition\":\"r\"",
    ",\"sort\":[{\"n\":\"desc\"}]",
];
const BODIES_2: &[&str] =
    &["{\"docs\":[{\"_id\":\"p:q\"},{\"_id\":\"q\"}]}", "{\"docs\":[{\"_id\":\"p:r\"}]}", "{\"docs\":[{\"n\":1}]}"];

pub fn begin(draft: &mut Draft) {
    draft.ask("PUT /${db}?q=1&partitioned=true");
    let mut docs = Vec::new();
    for id in ["p:a", "p:b", "p:c", "r:a", "r:b", "s:x y"] {
        docs.push(format!(
            "{{\"_id\":\"{id}\",\"n\":{},\"t\":\"{}\"}}",
            draft.dice.below(5),
            draft.dice.pick(&["x", "y"])
        ));
    }
    draft.ask("POST /${db}/_bulk_docs").json(&format!("{{\"docs\":[{}]}}", docs.join(",")));
    let reduce = draft.dice.pick(&["", ",\"reduce\":\"_count\"", ",\"reduce\":\"_sum\"", ",\"reduce\":\"_stats\""]);
    let options = draft.dice.pick(VIEW_OPTIONS);
    draft
        .ask("PUT /${db}/_design/d")
        .json(&format!("{{\"views\":{{\"v\":{{\"map\":\"function(doc) {{ emit(doc.n, 1); }}\"{reduce}}}}}{options}}}"));
    let partitioned = draft.dice.pick(&["", ",\"partitioned\":true", ",\"partitioned\":false"]);
    draft
        .ask("POST /${db}/_index")
        .json(&format!("{{\"index\":{{\"fields\":[\"n\"]}},\"ddoc\":\"i\",\"name\":\"n\"{partitioned}}}"));
}

pub fn ask(draft: &mut Draft) {
    let part = draft.dice.pick(&["p", "p", "r", "none", "_x", "", "p:a", "%C3%A4", "p%3Aa"]);
    match draft.dice.below(11) {
        0 => {
            let path = if draft.dice.chance(70) {
                format!("_partition/{part}")
            } else {
                draft.dice.text(&["_partition", "_partition/", "_partition/p/", "_partition/p/x"])
            };
            draft.ask(&format!("GET /${{db}}/{path}")).with("ignore", strings(&["/sizes"]));
        }
        1 | 2 => {
            let query = view_query(draft, 3);
            let method = draft.dice.pick(&["GET", "GET", "POST"]);
            draft.ask(&format!("{method} /${{db}}/_partition/{part}/_all_docs{query}"));
            if method == "POST" {
                let body = draft.dice.pick(BODIES);
                draft.json(body);
            }
        }
        3 | 4 => {
            let query = view_query(draft, 3);
            let view = draft.dice.pick(VIEWS);
            draft.ask(&format!("GET /${{db}}/_partition/{part}/_design/{view}{query}"));
        }
        5 => {
            let query = view_query(draft, 3);
            draft.ask(&format!("GET /${{db}}/_design/d/_view/v{query}"));
        }
        6 | 7 => {
            let selector = draft.dice.pick(SELECTORS);
            let more = draft.dice.pick(MEMBERS);
            let what = draft.dice.pick(&["_find", "_find", "_explain"]);
            let place = if draft.dice.chance(70) { format!("_partition/{part}/") } else { String::new() };
            draft.ask(&format!("POST /${{db}}/{place}{what}")).json(&format!("{{\"selector\":{selector}{more}}}"));
        }
        8 => {
            let id = draft.dice.pick(&["p:z", "z", ":z", "p:", "p:z:y", "_x:a", "_design/e", "_local/l", "%C3%A4:a"]);
            draft.ask(&format!("PUT /${{db}}/{id}")).json("{\"n\":1}");
        }
        9 => {
            let body = draft.dice.pick(BODIES_2);
            draft.ask("POST /${db}/_bulk_docs").json(body);
            draft.ask("POST /${db}").json(draft_body());
        }
        _ => other(draft),
    }
}

/// Methods and bodies that make no sense, and paths below.
fn other(draft: &mut Draft) {
    let (method, path) = (
        draft.dice.pick(&["GET", "POST", "PUT", "DELETE", "HEAD"]),
        draft.dice.pick(&[
            "_partition/p/_changes",
            "_partition/p/_index",
            "_partition/p/_find",
            "_partition/p",
            "_partition/p/p:a",
            "_partition/p/_design/d/_view/v/queries",
            "_partition/p/_all_docs/queries",
            "_partition/p/_design_docs",
            "_partition/p/_local_docs",
        ]),
    );
    draft.ask(&format!("{method} /${{db}}/{path}")).with("ignore", strings(&["/sizes"]));
    if method == "POST" {
        draft.json("{\"queries\":[{\"limit\":1}],\"selector\":{}}");
    }
}

fn draft_body() -> &'static str {
    "{\"n\":1,\"_id\":\"nopart\"}"
}
