//! Documents and values that several chapters work on.

use super::draft::Draft;

/// Ids of the documents of a sample.
pub const IDS: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h", "x y", "Ä", "10", "2"];
/// JSON values of every type, also those whose order matters.
pub const VALUES: &[&str] = &[
    "null",
    "false",
    "true",
    "0",
    "1",
    "2",
    "-1",
    "1.0",
    "1.5",
    "10",
    "1e2",
    "\"\"",
    "\"a\"",
    "\"b\"",
    "\"B\"",
    "\"aa\"",
    "\"ä\"",
    "\"1\"",
    "[]",
    "[1]",
    "[1,2]",
    "[\"a\"]",
    "[\"a\",1]",
    "[null]",
    "[[]]",
    "{}",
    "{\"a\":1}",
    "{\"a\":2}",
    "{\"b\":1}",
    "{\"a\":{\"b\":1}}",
    "[{\"a\":1}]",
    "12345678901234567890",
    "\"a b\"",
];
/// Numbers and short strings: what sums and indexes are made of.
pub const PLAIN: &[&str] = &["1", "2", "3", "4", "5", "\"a\"", "\"b\"", "\"c\"", "10", "0"];

/// Makes the database of the conversation.
pub fn database(draft: &mut Draft) {
    draft.ask("PUT /${db}?q=1");
}

/// Makes the database and some documents with the fields `n` (mostly plain), `v` (anything), `t` (a word), `o`
/// (nested), `l` (a list); some are deleted again, and one has a conflict.
pub fn documents(draft: &mut Draft) {
    database(draft);
    let mut docs = Vec::new();
    for id in IDS.iter().take(6 + draft.dice.below(IDS.len() - 5)) {
        let mut members = vec![format!("\"_id\":\"{id}\"")];
        for (name, values) in [("n", PLAIN), ("v", VALUES), ("t", &["\"x\"", "\"y\"", "\"z\""][..])] {
            if draft.dice.chance(85) {
                members.push(format!("\"{name}\":{}", draft.dice.pick(values)));
            }
        }
        if draft.dice.chance(50) {
            members.push(format!("\"o\":{{\"p\":{},\"q.r\":{}}}", draft.dice.pick(PLAIN), draft.dice.pick(PLAIN)));
        }
        if draft.dice.chance(50) {
            let items: Vec<&str> = (0..draft.dice.below(4)).map(|_| draft.dice.pick(PLAIN)).collect();
            members.push(format!("\"l\":[{}]", items.join(",")));
        }
        docs.push(format!("{{{}}}", members.join(",")));
    }
    draft.ask("POST /${db}/_bulk_docs").json(&format!("{{\"docs\":[{}]}}", docs.join(",")));
    if draft.dice.chance(60) {
        let id = draft.dice.pick(IDS);
        draft.ask("POST /${db}/_bulk_docs").json(&format!(
            "{{\"new_edits\":false,\"docs\":[{{\"_id\":\"{id}\",\"_rev\":\"1-0000000000000000000000000000000a\",\"n\":7,\"t\":\"y\"}}]}}"
        ));
    }
    if draft.dice.chance(60) {
        let id = draft.dice.pick(&["a", "b", "c", "d", "e", "f"]);
        draft.ask(&format!("GET /${{db}}/{id}")).bind("gone", "/_rev");
        draft.ask(&format!("DELETE /${{db}}/{id}?rev=${{gone}}"));
    }
}
