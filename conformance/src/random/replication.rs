//! One-time replications between two databases, with every option, and what the target holds afterwards.

use super::documents::strings;
use super::draft::{Draft, Table};
use super::sample::documents;

const OPTIONS: Table = &[
    ("create_target", &["true", "false"]),
    ("doc_ids", &["[\"a\",\"b\"]", "[\"none\"]", "[]", "[\"a\",\"a\"]", "[\"x y\"]"]),
    ("selector", &["{\"t\":\"x\"}", "{}", "{\"n\":{\"$gt\":2}}", "{\"$x\":1}"]),
    ("filter", &["\"d/t\"", "\"_view\"", "\"d/none\"", "\"_doc_ids\""]),
    ("view", &["\"d/v\""]),
    ("query_params", &["{\"t\":\"x\"}", "{}", "{\"t\":1}"]),
    ("since_seq", &["0", "\"0\"", "\"now\""]),
    ("cancel", &["true", "false"]),
    ("use_checkpoints", &["true", "false"]),
    ("winning_revs_only", &["true", "false"]),
    ("create_target_params", &["{\"q\":\"1\"}", "{\"partitioned\":\"true\"}"]),
    ("worker_processes", &["1", "2"]),
    ("worker_batch_size", &["1", "10"]),
    ("http_connections", &["1", "2"]),
    ("use_bulk_get", &["true", "false"]),
    ("unknown", &["1"]),
];

const BODIES: &[&str] = &[
    "",
    "{",
    "{}",
    "[]",
    "{\"source\":\"${authbase}/${db}\"}",
    "{\"target\":\"${authbase}/${db}\"}",
    "{\"replication_id\":\"x\",\"cancel\":true}",
    "{\"source\":\"\",\"target\":\"\"}",
];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    let functions = "{\"filters\":{\"t\":\"function(doc, req) { return doc.t == req.query.t; }\"},\"views\":{\"v\":{\"map\":\"function(doc) { if (doc.n > 2) emit(doc._id); }\"}}}";
    draft.ask("PUT /${db}/_design/d").json(functions);
    if draft.dice.chance(30) {
        draft
            .ask("PUT /${db}/att")
            .json("{\"_attachments\":{\"t\":{\"content_type\":\"text/plain\",\"data\":\"aGVsbG8gaGVsbG8=\"}}}");
    }
    if draft.dice.chance(70) {
        draft.ask("PUT /${db2}?q=1");
    }
}

pub fn ask(draft: &mut Draft) {
    match draft.dice.below(6) {
        0 | 1 => {
            let members = draft.members(OPTIONS, 3);
            let (source, target) = (
                draft.dice.pick(&[
                    "\"${authbase}/${db}\"",
                    "{\"url\":\"${authbase}/${db}\"}",
                    "\"${authbase}/${db4}\"",
                    "\"x\"",
                    "1",
                    "{}",
                ]),
                draft.dice.pick(&["\"${authbase}/${db2}\"", "\"${authbase}/${db2}\"", "\"${authbase}/${db3}\""]),
            );
            let source = if draft.dice.chance(80) { "\"${authbase}/${db}\"" } else { source };
            let more = &members[1..];
            let comma = if more == "}" { "" } else { "," };
            draft.ask("POST /_replicate").json(&format!("{{\"source\":{source},\"target\":{target}{comma}{more}"));
            draft.with("ignore", strings(&["/history", "/session_id", "/source_last_seq", "/replication_id_version"]));
        }
        2 => {
            let db = draft.dice.pick(&["db2", "db2", "db3"]);
            draft.ask(&format!("GET /${{{db}}}/_all_docs?include_docs=true&conflicts=true"));
        }
        3 => {
            let id = draft.dice.pick(&["a", "b", "n1"]);
            draft.ask(&format!("GET /${{db}}/{id}")).bind("was", "/_rev");
            draft.ask(&format!("PUT /${{db}}/{id}?rev=${{was}}")).json("{\"t\":\"x\",\"n\":9}");
        }
        4 => {
            _ = draft
                .ask("GET /${db2}")
                .with("ignore", strings(&["/sizes", "/instance_start_time", "/cluster", "/update_seq", "/purge_seq"]))
        }
        _ => {
            let body = draft.dice.pick(BODIES);
            draft.ask("POST /_replicate").text("application/json", body);
        }
    }
}
