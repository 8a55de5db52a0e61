//! Reductions over keys of several parts: every built-in, groups of every level, bounds within a group.

use super::draft::{Draft, Table, escaped};
use super::sample::database;

const MAPS: &[&str] = &[
    "emit([doc.a, doc.b, doc.n], doc.n);",
    "emit([doc.a, doc.b], [doc.n, 1]);",
    "emit(doc.a, {x: doc.n, y: {z: 1}});",
    "emit([doc.a], doc.s);",
    "emit({a: doc.a, b: doc.b}, 1);",
    "emit([doc.a, doc.b, doc.n], null);",
    "emit(doc.n, doc.n); emit(doc.a, -doc.n);",
    "emit([[doc.a, doc.b], doc.n], doc.n / 4);",
    "if (doc.n > 2) emit([doc.a, doc.b, doc.n], [doc.n]);",
    "emit([doc.b, {k: doc.a}], {sum: doc.n, count: 1, min: doc.n, max: doc.n, sumsqr: doc.n * doc.n});",
    "emit('', doc.n); emit([], doc.n);",
    "emit([doc.a, null, doc.b], '12');",
    "emit([doc.a, doc.b], [doc.n, [1]]);",
    "emit(doc.a, true);",
];
const REDUCES: &[&str] = &[
    "\"_sum\"",
    "\"_count\"",
    "\"_stats\"",
    "\"_approx_count_distinct\"",
    "\"_sum\"",
    "\"_stats\"",
    "\"_first\"",
    "\"_last\"",
    "\"_top_1\"",
    "\"_top_3\"",
    "\"_bottom_2\"",
    "\"_top_0\"",
    "\"_top_101\"",
    "\"_none\"",
    "\"function(k, v, r) { return r ? sum(v) : v.length; }\"",
    "\"function(k, v, r) { log('x'); return Math.max.apply(null, v); }\"",
];
const KEYS: &[&str] = &[
    "[\"a\"]",
    "[\"a\",{}]",
    "[\"a\",\"x\"]",
    "[\"a\",\"x\",{}]",
    "[\"b\"]",
    "[\"b\",\"y\",2]",
    "\"a\"",
    "\"b\"",
    "3",
    "[]",
    "{}",
    "[[\"a\",\"x\"]]",
    "[[\"b\"],null]",
    "{\"a\":\"a\",\"b\":\"x\"}",
    "[\"x\",{\"k\":\"a\"}]",
    "null",
];
const QUERY: Table = &[
    ("group", &["true", "true", "false"]),
    ("group_level", &["0", "1", "2", "3", "4", "exact", "-1"]),
    ("reduce", &["true", "false"]),
    ("startkey", KEYS),
    ("endkey", KEYS),
    ("key", KEYS),
    ("descending", &["true", "false"]),
    ("inclusive_end", &["true", "false"]),
    ("limit", &["0", "1", "2", "3"]),
    ("skip", &["0", "1", "2"]),
    ("keys", &["[[\"a\",\"x\",1],[\"b\",\"y\",2]]", "[\"a\",\"b\"]", "[\"b\",\"b\"]", "[[\"a\",\"x\"]]", "[]"]),
    ("startkey_docid", &["c", "h"]),
    ("endkey_docid", &["c", "h"]),
    ("update_seq", &["true"]),
    ("include_docs", &["true", "false"]),
    ("stable", &["true"]),
    ("update", &["true"]),
];
const MEMBERS: Table = &[
    ("keys", &["[[\"a\",\"x\",1],[\"b\",\"y\",2]]", "[\"a\",\"b\"]", "[\"b\",\"b\"]", "[[\"a\",\"x\"]]"]),
    ("group", &["true", "false"]),
    ("group_level", &["1", "2", "0"]),
    ("reduce", &["true", "false"]),
    ("start_key", KEYS),
    ("end_key", KEYS),
    ("key", KEYS),
    ("limit", &["1", "2"]),
    ("skip", &["1"]),
    ("descending", &["true"]),
    ("inclusive_end", &["false"]),
];

pub fn begin(draft: &mut Draft) {
    database(draft);
    let mut docs = Vec::new();
    for id in ["c", "d", "e", "f", "g", "h", "i", "j", "k", "l"].iter().take(3 + draft.dice.below(8)) {
        docs.push(format!(
            "{{\"_id\":\"{id}\",\"a\":\"{}\",\"b\":\"{}\",\"n\":{},\"s\":\"{}\"}}",
            draft.dice.pick(&["a", "b", "b"]),
            draft.dice.pick(&["x", "y", "z"]),
            draft.dice.pick(&["1", "2", "3", "2.5", "-4", "1e10"]),
            draft.dice.pick(&["p", "q"])
        ));
    }
    draft.ask("POST /${db}/_bulk_docs").json(&format!("{{\"docs\":[{}]}}", docs.join(",")));
    let mut views = Vec::new();
    for name in ["v", "w"] {
        let (map, reduce) = (draft.dice.pick(MAPS), draft.dice.pick(REDUCES));
        views.push(format!("\"{name}\":{{\"map\":\"function(doc) {{ {map} }}\",\"reduce\":{reduce}}}"));
    }
    let options = draft.dice.pick(&["", "", "", ",\"options\":{\"collation\":\"raw\"}"]);
    draft.ask("PUT /${db}/_design/d").json(&format!("{{\"views\":{{{}}}{options}}}", views.join(",")));
}

pub fn ask(draft: &mut Draft) {
    let view = draft.dice.pick(&["v", "w"]);
    match draft.dice.below(10) {
        0..=5 => {
            let query = draft.query(QUERY, 5);
            draft.ask(&format!("GET /${{db}}/_design/d/_view/{view}{query}"));
        }
        6 => {
            let (query, body) = (draft.query(QUERY, 2), draft.members(MEMBERS, 4));
            draft.ask(&format!("POST /${{db}}/_design/d/_view/{view}{query}")).json(&body);
        }
        7 => {
            let queries: Vec<String> = (0..1 + draft.dice.below(3)).map(|_| draft.members(MEMBERS, 4)).collect();
            draft
                .ask(&format!("POST /${{db}}/_design/d/_view/{view}/queries"))
                .json(&format!("{{\"queries\":[{}]}}", queries.join(",")));
        }
        8 => {
            // Both ends in one group.
            let (from, to) = (draft.dice.pick(KEYS), draft.dice.pick(KEYS));
            let level = draft.dice.pick(&["group=true", "group_level=1", "group_level=2", "reduce=true"]);
            let (from, to) = (escaped(from), escaped(to));
            draft.ask(&format!("GET /${{db}}/_design/d/_view/{view}?startkey={from}&endkey={to}&{level}"));
            draft.ask(&format!(
                "GET /${{db}}/_design/d/_view/{view}?startkey={to}&endkey={from}&{level}&descending=true&limit=2"
            ));
        }
        _ => {
            let n = draft.dice.below(9);
            draft.ask("PUT /${db}/m").json(&format!("{{\"a\":\"a\",\"b\":\"x\",\"n\":{n},\"s\":\"p\"}}"));
            draft.ask(&format!("GET /${{db}}/_design/d/_view/{view}?group=true"));
        }
    }
}
