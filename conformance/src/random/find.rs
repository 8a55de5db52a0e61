//! Declarative queries: selectors of random shape, indexes of every kind, explanations.

use super::draft::{Draft, Table};
use super::sample::{PLAIN, VALUES, documents};

const FIELDS: &[&str] = &["n", "t", "v", "o.p", "l", "_id", "o.q\\\\.r", "missing", "o", "l.0", "_rev"];
const OPERATORS: &[&str] = &["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"];
const REQUEST: Table = &[
    ("limit", &["0", "1", "2", "3", "25"]),
    ("skip", &["0", "1", "2"]),
    (
        "sort",
        &[
            "[\"n\"]",
            "[{\"n\":\"desc\"}]",
            "[\"t\",\"n\"]",
            "[{\"t\":\"asc\"},{\"n\":\"asc\"}]",
            "[\"_id\"]",
            "[{\"_id\":\"desc\"}]",
            "[{\"t\":\"asc\"},{\"n\":\"desc\"}]",
            "[{\"n\":\"up\"}]",
            "[1]",
            "\"n\"",
            "[]",
            "[\"v\"]",
        ],
    ),
    (
        "fields",
        &[
            "[\"_id\"]",
            "[\"n\",\"t\"]",
            "[\"o.p\"]",
            "[\"_id\",\"missing\"]",
            "[]",
            "\"n\"",
            "[1]",
            "[\"_id\",\"n\"]",
            "[\"n\"]",
            "[\"l\"]",
        ],
    ),
    (
        "use_index",
        &[
            "\"_design/i\"",
            "\"i\"",
            "[\"i\",\"n\"]",
            "[\"_design/i\",\"tn\"]",
            "\"none\"",
            "[\"i\",\"none\"]",
            "[]",
            "[\"i\"]",
            "[\"i\",\"n\",\"x\"]",
            "\"\"",
        ],
    ),
    ("allow_fallback", &["true", "false", "1"]),
    ("execution_stats", &["true", "false"]),
    ("conflicts", &["true", "false"]),
    ("update", &["true", "false"]),
    ("stable", &["true", "false"]),
    ("stale", &["\"ok\""]),
    ("r", &["1"]),
    ("bookmark", &["\"nil\"", "\"x\"", "\"\""]),
    ("unknown", &["1"]),
];
const INDEX: Table = &[
    (
        "index",
        &[
            "{\"fields\":[\"n\"]}",
            "{\"fields\":[\"t\",\"n\"]}",
            "{\"fields\":[{\"v\":\"asc\"}]}",
            "{\"fields\":[{\"n\":\"desc\"}]}",
            "{\"fields\":[]}",
            "{\"fields\":[\"n\",\"n\"]}",
            "{}",
            "{\"fields\":[{\"n\":\"up\"}]}",
            "{\"fields\":\"n\"}",
            "{\"fields\":[1]}",
            "{\"fields\":[\"n\"],\"partial_filter_selector\":{\"t\":\"x\"}}",
            "{\"fields\":[\"\"]}",
            "{\"fields\":[\"n\"],\"partial_filter_selector\":1}",
            "{\"fields\":[{\"n\":\"asc\"},{\"t\":\"desc\"}]}",
            "{\"fields\":[\"n\"],\"x\":1}",
            "[]",
            "\"n\"",
        ],
    ),
    ("ddoc", &["\"j\"", "\"_design/j\"", "\"i\"", "\"\"", "\"_design/\""]),
    ("name", &["\"k\"", "\"n\"", "\"\"", "\"tn\""]),
    ("type", &["\"json\"", "\"text\"", "\"special\"", "\"x\""]),
    ("partial_filter_selector", &["{\"n\":{\"$gt\":1}}", "{}"]),
    ("partitioned", &["true", "false"]),
    ("w", &["1"]),
    ("unknown", &["1"]),
];

const BODIES: &[&str] =
    &["", "{", "[]", "1", "null", "{}", "{\"selector\":{}}", "{\"selector\":{\"a\":{}}}", "{\"selector\":{\"\":1}}"];
const QUERIES: &[&str] = &[
    "",
    "?limit=1",
    "?skip=1",
    "?limit=0",
    "?limit=x",
    "?skip=-1",
    "?limit=1&skip=1",
    "?limit=1;skip=2",
    "?unknown=1",
];
const BODIES_2: &[&str] = &[
    "{\"docids\":[\"_design/j\"]}",
    "{\"docids\":[\"j\",\"none\"]}",
    "{\"docids\":[]}",
    "{\"docids\":1}",
    "{}",
    "{\"docids\":[1]}",
    "{\"docids\":[\"_design/i\",\"_design/j\"],\"w\":1}",
    "[]",
    "",
];

pub fn begin_bare(draft: &mut Draft) {
    documents(draft);
}

pub fn begin(draft: &mut Draft) {
    documents(draft);
    let indexes = [
        "{\"fields\":[\"n\"]}",
        "{\"fields\":[\"t\",\"n\"]}",
        "{\"fields\":[\"o.p\"]}",
        "{\"fields\":[\"n\"],\"partial_filter_selector\":{\"t\":\"x\"}}",
        "{\"fields\":[\"v\"]}",
        "{\"fields\":[\"n\",\"t\"]}",
        "{\"fields\":[{\"n\":\"desc\"}]}",
    ];
    for name in ["n", "tn", "p"] {
        if draft.dice.chance(65) {
            let index = draft.dice.pick(&indexes);
            let ddoc = draft.dice.pick(&["i", "i", "j"]);
            draft
                .ask("POST /${db}/_index")
                .json(&format!("{{\"index\":{index},\"name\":\"{name}\",\"ddoc\":\"{ddoc}\",\"type\":\"json\"}}"));
        }
    }
}

pub fn ask(draft: &mut Draft) {
    let selector =
        if draft.dice.chance(95) { selector(draft, 3) } else { draft.dice.text(&["1", "[]", "\"x\"", "null"]) };
    let members = draft.members(REQUEST, 4);
    let more = members.trim_start_matches('{').trim_end_matches('}');
    let body = if more.is_empty() {
        format!("{{\"selector\":{selector}}}")
    } else {
        format!("{{\"selector\":{selector},{}}}", &members[1..members.len() - 1])
    };
    match draft.dice.below(10) {
        0..=5 => {
            draft.ask("POST /${db}/_find").json(&body);
            if body.contains("\"execution_stats\":true") {
                draft.with("volatile", super::documents::strings(&["/execution_stats/execution_time_ms"]));
            }
        }
        6..=8 => _ = draft.ask("POST /${db}/_explain").json(&body),
        _ => {
            let method = draft.dice.pick(&["POST", "POST", "GET", "PUT"]);
            let path = draft.dice.pick(&["_find", "_explain", "_find/x", "_explain/x"]);
            draft.ask(&format!("{method} /${{db}}/{path}"));
            if method != "GET" {
                let body = draft.dice.pick(BODIES);
                let kind = draft.dice.pick(&["application/json", "application/json", "text/plain"]);
                draft.text(kind, body);
            }
        }
    }
}

pub fn ask_index(draft: &mut Draft) {
    match draft.dice.below(10) {
        0..=4 => {
            let body = draft.members(INDEX, 4);
            draft.ask("POST /${db}/_index").json(&body);
        }
        5 => {
            let query = draft.dice.pick(QUERIES);
            draft.ask(&format!("GET /${{db}}/_index{query}"));
        }
        6 => {
            let (ddoc, name, kind) = (
                draft.dice.pick(&["i", "j", "_design/j", "none", "_design%2Fj"]),
                draft.dice.pick(&["n", "k", "tn", "none"]),
                draft.dice.pick(&["json", "json", "text", "special", "x"]),
            );
            draft.ask(&format!("DELETE /${{db}}/_index/{ddoc}/{kind}/{name}"));
        }
        7 => {
            let body = draft.dice.pick(BODIES_2);
            draft.ask("POST /${db}/_index/_bulk_delete").text("application/json", body);
        }
        8 => {
            let method = draft.dice.pick(&["PUT", "DELETE", "GET", "POST", "HEAD"]);
            let tail = draft.dice.pick(&["", "/j", "/j/json", "/j/json/k", "/_bulk_delete", "/j/json/k/x"]);
            draft.ask(&format!("{method} /${{db}}/_index{tail}"));
            if method == "POST" || method == "PUT" {
                draft.json("{\"index\":{\"fields\":[\"n\"]},\"ddoc\":\"m\",\"name\":\"m\"}");
            }
        }
        _ => ask(draft),
    }
}

/// A selector of nesting at most `depth`.
fn selector(draft: &mut Draft, depth: usize) -> String {
    let mut members = Vec::new();
    for _ in 0..1 + draft.dice.below(2) {
        let field = draft.dice.pick(FIELDS);
        members.push(match draft.dice.below(12) {
            0 | 1 if depth > 0 => {
                let combine = draft.dice.pick(&["$and", "$or", "$nor"]);
                let parts: Vec<String> = (0..draft.dice.below(4)).map(|_| selector(draft, depth - 1)).collect();
                format!("\"{combine}\":[{}]", parts.join(","))
            }
            2 if depth > 0 => format!("\"$not\":{}", selector(draft, depth - 1)),
            3 | 4 => format!("\"{field}\":{}", draft.dice.pick(VALUES)),
            5 if depth > 0 => format!("\"o\":{}", selector(draft, depth - 1)),
            _ => format!("\"{field}\":{}", condition(draft, depth)),
        });
    }
    if draft.dice.chance(4) {
        members.clear();
    }
    format!("{{{}}}", members.join(","))
}

/// A condition on a field, as an object of operators.
fn condition(draft: &mut Draft, depth: usize) -> String {
    let mut parts = Vec::new();
    for _ in 0..1 + draft.dice.below(2) {
        parts.push(match draft.dice.below(14) {
            0..=4 => {
                let values = if draft.dice.chance(60) { PLAIN } else { VALUES };
                format!("\"{}\":{}", draft.dice.pick(OPERATORS), draft.dice.pick(values))
            }
            5 => {
                let items: Vec<&str> = (0..draft.dice.below(4)).map(|_| draft.dice.pick(VALUES)).collect();
                format!("\"{}\":[{}]", draft.dice.pick(&["$in", "$nin", "$all"]), items.join(","))
            }
            6 => format!("\"$exists\":{}", draft.dice.pick(&["true", "false", "1", "null"])),
            7 => format!(
                "\"$type\":{}",
                draft.dice.pick(&[
                    "\"number\"",
                    "\"string\"",
                    "\"array\"",
                    "\"object\"",
                    "\"null\"",
                    "\"boolean\"",
                    "\"x\"",
                    "1"
                ])
            ),
            8 => format!("\"$regex\":{}", draft.dice.pick(&["\"^a\"", "\"a|b\"", "\"(\"", "\"\"", "1", "\"[0-9]+\""])),
            9 => format!(
                "\"$mod\":{}",
                draft.dice.pick(&["[2,0]", "[2,1]", "[3,1]", "[0,1]", "[2]", "[2.5,1]", "1", "[-2,0]", "[\"2\",0]"])
            ),
            10 => format!("\"$size\":{}", draft.dice.pick(&["0", "1", "2", "-1", "\"1\"", "1.5"])),
            11 if depth > 0 => {
                let inner = condition(draft, depth - 1);
                format!("\"{}\":{inner}", draft.dice.pick(&["$elemMatch", "$allMatch", "$not", "$keyMapMatch"]))
            }
            12 => format!("\"$beginsWith\":{}", draft.dice.pick(&["\"a\"", "\"\"", "1", "\"x\""])),
            _ => format!(
                "\"{}\":{}",
                draft.dice.pick(&["$near", "$eq", "$and", "$text", "$"]),
                draft.dice.pick(&["1", "[]", "[{\"$gt\":1}]", "{}", "\"a\""])
            ),
        });
    }
    format!("{{{}}}", parts.join(","))
}
