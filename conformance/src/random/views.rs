//! Views: map functions of many kinds, reductions built in and written, every parameter, errors in functions.

use super::draft::Draft;
use super::lists::view_query;
use super::sample::documents;

const MAPS: &[&str] = &[
    "function(doc) { emit(doc._id, null); }",
    "function(doc) { emit(doc.n, 1); }",
    "function(doc) { emit(doc.v, doc.n); }",
    "function(doc) { emit([doc.t, doc.n], doc.v); }",
    "function(doc) { if (doc.l) { doc.l.forEach(function(x) { emit(x, {n: 1}); }); } }",
    "function(doc) { emit(null, doc.v); emit(null, doc.n); }",
    "function(doc) { emit(doc.t, {_id: 'a'}); }",
    "function(doc) { emit(doc.o.p, 1); }",
    "function(doc) { emit([doc.t, doc.n, doc._id], [doc.n, 1]); }",
    "function(doc) { emit(undefined, undefined); }",
    "function(doc) { emit(doc.n); }",
    "function(doc) { throw 'x'; }",
    "function(doc) { emit({t: doc.t}, -doc.n); }",
    "function(doc) { emit(doc._id.length, doc._rev ? 1 : 0); }",
    "(doc) => { emit(doc.t, doc.n) }",
    "function(doc) { emit(doc.t, {a: doc.n, b: 2}); }",
];
const REDUCES: &[&str] = &[
    "",
    "",
    "\"_count\"",
    "\"_sum\"",
    "\"_stats\"",
    "\"_approx_count_distinct\"",
    "\"_first\"",
    "\"_last\"",
    "\"_top_2\"",
    "\"_bottom_2\"",
    "\"_sumx\"",
    "\"_top_x\"",
    "\"function(keys, values, rereduce) { return rereduce ? sum(values) : values.length; }\"",
    "\"function(keys, values, rereduce) { return keys; }\"",
    "\"function(keys, values) { throw({error: 'odd', reason: 'because'}); }\"",
    "\"function(keys, values) { return null; }\"",
];
const KEYS: &[&str] = &[
    "1",
    "2",
    "5",
    "10",
    "\"x\"",
    "\"y\"",
    "\"a\"",
    "null",
    "[\"x\"]",
    "[\"x\",1]",
    "[\"x\",{}]",
    "[\"y\"]",
    "{}",
    "[]",
    "true",
    "{\"t\":\"x\"}",
    "\"\\ufff0\"",
];

const VIEW_OPTIONS: &[&str] = &[
    "",
    "",
    "",
    ",\"options\":{\"local_seq\":true}",
    ",\"options\":{\"include_design\":true}",
    ",\"options\":{\"collation\":\"raw\"}",
];
const NAMES: &[&str] =
    &["startkey", "endkey", "key", "start_key", "end_key", "group", "group_level", "reduce", "descending"];
const MEMBERS: &[&str] = &[
    "",
    ",\"group\":true",
    ",\"reduce\":false",
    ",\"include_docs\":true",
    ",\"limit\":2",
    ",\"skip\":1",
    ",\"descending\":true",
    ",\"sorted\":false",
];
const MEMBERS_2: &[&str] = &[
    "",
    ",\"reduce\":false",
    ",\"group\":true",
    ",\"limit\":1",
    ",\"include_docs\":true",
    ",\"group_level\":1",
    ",\"update_seq\":true",
];
const PATHS: &[&str] = &[
    "_design/d/_info",
    "_design/none/_view/v",
    "_design/d/_view/none",
    "_design/d/_view",
    "_design/d/_view/v/x",
    "_design%2Fd/_view/v",
    "_design/d/_views/v",
    "_view/d/v",
];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    let mut views = Vec::new();
    for name in ["v", "w"] {
        let (map, reduce) = (draft.dice.pick(MAPS), draft.dice.pick(REDUCES));
        let reduce = if reduce.is_empty() { String::new() } else { format!(",\"reduce\":{reduce}") };
        views.push(format!("\"{name}\":{{\"map\":\"{map}\"{reduce}}}"));
    }
    let options = draft.dice.pick(VIEW_OPTIONS);
    draft.ask("PUT /${db}/_design/d").json(&format!("{{\"views\":{{{}}}{options}}}", views.join(",")));
}

pub fn ask(draft: &mut Draft) {
    let view = draft.dice.pick(&["v", "v", "w"]);
    let ranges = draft.dice.below(3);
    match draft.dice.below(12) {
        0..=5 => {
            let mut query = view_query(draft, 3);
            for _ in 0..ranges {
                let name = draft.dice.pick(NAMES);
                let value = match name {
                    "group" | "reduce" | "descending" => draft.dice.pick(&["true", "false"]),
                    "group_level" => draft.dice.pick(&["0", "1", "2", "exact"]),
                    _ => draft.dice.pick(KEYS),
                };
                query.push(if query.is_empty() { '?' } else { '&' });
                query.push_str(&format!("{name}={}", super::draft::escaped(value)));
            }
            draft.ask(&format!("GET /${{db}}/_design/d/_view/{view}{query}"));
        }
        6 | 7 => {
            let keys: Vec<&str> = (0..draft.dice.below(4)).map(|_| draft.dice.pick(KEYS)).collect();
            let query = view_query(draft, 2);
            let more = draft.dice.pick(MEMBERS);
            draft
                .ask(&format!("POST /${{db}}/_design/d/_view/{view}{query}"))
                .json(&format!("{{\"keys\":[{}]{more}}}", keys.join(",")));
        }
        8 => {
            let mut queries = Vec::new();
            for _ in 0..draft.dice.below(4) {
                let (key, value) =
                    (draft.dice.pick(&["key", "start_key", "end_key", "startkey"]), draft.dice.pick(KEYS));
                let more = draft.dice.pick(MEMBERS_2);
                queries.push(format!("{{\"{key}\":{value}{more}}}"));
            }
            let query = view_query(draft, 1);
            draft
                .ask(&format!("POST /${{db}}/_design/d/_view/{view}/queries{query}"))
                .json(&format!("{{\"queries\":[{}]}}", queries.join(",")));
        }
        9 => {
            let path = draft.dice.pick(PATHS);
            draft.ask(&format!("GET /${{db}}/{path}"));
            if path.ends_with("_info") {
                draft.with(
                    "volatile",
                    super::documents::strings(&[
                        "/view_index/updater_running",
                        "/view_index/waiting_clients",
                        "/view_index/waiting_commit",
                    ]),
                );
            }
        }
        10 => {
            let (id, n) = (draft.dice.pick(&["n1", "n2"]), draft.dice.pick(super::sample::PLAIN));
            draft.ask(&format!("PUT /${{db}}/{id}")).json(&format!("{{\"n\":{n},\"t\":\"x\",\"v\":[{n}]}}"));
        }
        _ => other(draft, view),
    }
}

/// Methods and bodies that make no sense, and paths below.
fn other(draft: &mut Draft, view: &str) {
    let method = draft.dice.pick(&["PUT", "DELETE", "HEAD", "PATCH", "POST"]);
    let body = draft.dice.pick(&["", "{", "[]", "1", "{\"keys\":1}", "{\"queries\":1}", "null", "{\"keys\":null}"]);
    draft.ask(&format!("{method} /${{db}}/_design/d/_view/{view}"));
    if method == "POST" {
        draft.text("application/json", body);
    }
}
