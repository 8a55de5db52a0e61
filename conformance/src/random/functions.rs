//! Functions of design documents over HTTP: shows, lists, updates, rewrites, validation.

use super::documents::strings;
use super::draft::Draft;
use super::lists::view_query;
use super::sample::documents;

const SHOWS: &[&str] = &[
    "function(doc, req) { return toJSON(doc); }",
    "function(doc, req) { return {code: 201, headers: {'X-A': 'b', 'Content-Type': 'text/x'}, body: 'hi'}; }",
    "function(doc, req) { return {json: {q: req.query, m: req.method, p: req.path.length, id: req.id, b: req.body}}; }",
    "function(doc, req) { provides('html', function() { return '<p>'; }); provides('json', function() { return {json: {a: 1}}; }); }",
    "function(doc, req) { throw(['not_found', 'gone', 'why']); }",
    "function(doc, req) { throw({forbidden: 'no'}); }",
    "function(doc, req) { throw 'x'; }",
    "function(doc, req) { return {base64: 'aGk='}; }",
    "function(doc, req) { return {stop: 1}; }",
    "function(doc, req) { return undefined; }",
    "function(doc, req) { return 1; }",
    "function(doc, req) { send('a'); send('b'); return 'c'; }",
    "function(doc, req) { return {code: 'x', body: 'y'}; }",
    "function(doc, req) { return {headers: {'Location': '/x'}, code: 302}; }",
    "function(doc, req) { undefined_function(); }",
    "syntax error",
];
const LISTS: &[&str] = &[
    "function(head, req) { start({headers: {'X-A': 'b'}}); var row; while (row = getRow()) { send(toJSON(row) + '\\n'); } return 'end'; }",
    "function(head, req) { return toJSON(head); }",
    "function(head, req) { send('a'); getRow(); start({code: 201}); return 'b'; }",
    "function(head, req) { provides('json', function() { var n = 0; while (getRow()) n++; send(toJSON({n: n})); }); }",
    "function(head, req) { throw({error: 'e', reason: 'r'}); }",
    "function(head, req) { var row = getRow(); throw 'late'; }",
    "function(head, req) { start({code: 404, headers: {'Content-Type': 'text/plain'}}); }",
    "function(head, req) { while (getRow()) {} return req.query.x || 'none'; }",
];
const UPDATES: &[&str] = &[
    "function(doc, req) { if (!doc) return [{_id: req.id || 'made', n: 1}, 'new']; doc.n = 2; return [doc, 'old']; }",
    "function(doc, req) { return [null, 'nothing']; }",
    "function(doc, req) { return [doc, {code: 202, headers: {'X-A': 'b'}, json: {a: 1}}]; }",
    "function(doc, req) { return [{n: 1}, 'no id']; }",
    "function(doc, req) { throw({forbidden: 'no'}); }",
    "function(doc, req) { return [{_id: 'made', _rev: '1-x'}, 'bad']; }",
    "function(doc, req) { return 1; }",
    "function(doc, req) { return [null, {body: req.body, headers: {'Content-Type': 'text/plain'}}]; }",
    "function(doc, req) { return [null, toJSON(req.form)]; }",
];
const REWRITES: &[&str] = &[
    "[{\"from\":\"/x/:id\",\"to\":\"../../:id\"},{\"from\":\"/v/*\",\"to\":\"_view/v\",\"query\":{\"limit\":\"1\"}},{\"from\":\"*\",\"to\":\"_info\",\"method\":\"POST\"}]",
    "[{\"from\":\"\",\"to\":\"_show/s\"},{\"from\":\"/a\",\"to\":\"_show/s/:id\",\"query\":{\"id\":\"b\"}}]",
    "\"function(req) { return {path: '_view/v', query: {limit: 1}}; }\"",
    "\"function(req) { return {code: 418, body: 'tea', headers: {'X-A': 'b'}}; }\"",
    "\"function(req) { return req.path.length > 5 ? '_show/s' : undefined; }\"",
    "[]",
    "1",
    "[{\"to\":\"_show/s\"}]",
    "[{\"from\":\"/x\"}]",
];
const VALIDATIONS: &[&str] = &[
    "",
    "",
    "",
    "function(doc, old, user, sec) { if (doc.n == 9) throw({forbidden: 'nine'}); }",
    "function(doc, old, user, sec) { if (doc.n == 9) throw({unauthorized: 'nine'}); }",
    "function(doc, old, user, sec) { if (doc.n == 9) throw('nine'); }",
    "function(doc, old, user, sec) { if (doc.n == 9) throw({other: 'nine'}); }",
    "function(doc, old, user, sec) { if (old && old.n > 1) throw({forbidden: toJSON(old._revisions ? 1 : 0)}); }",
    "function(doc, old, user, sec) { if (doc.n == 9) nine(); }",
];

const PATHS: &[&str] = &["x/a", "v/anything", "", "a", "a/b/c/d", "x/none", "unknown", "x/a?b=1", "v/", "/x/a"];
const ACCEPTS: &[&str] =
    &["text/html", "application/json", "*/*", "text/html;q=0.5, application/json", "image/png", "text/*"];
const SHAPES: &[(&str, &str)] = &[
    ("function(doc) { return doc.t == 'x'; }", "f"),
    ("function(doc, req) { return req.query.a == 'b'; }", "f"),
    ("1", "f"),
];
const BODIES: &[(&str, &str)] = &[
    ("application/json", "{\"a\":1}"),
    ("application/x-www-form-urlencoded", "a=1&b=%20x"),
    ("text/plain", "hi"),
    ("application/json", ""),
];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    let (show, list, update, rewrite, check) = (
        draft.dice.pick(SHOWS),
        draft.dice.pick(LISTS),
        draft.dice.pick(UPDATES),
        draft.dice.pick(REWRITES),
        draft.dice.pick(VALIDATIONS),
    );
    let reduce = draft.dice.pick(&["", ",\"reduce\":\"_count\""]);
    let check = if check.is_empty() { String::new() } else { format!(",\"validate_doc_update\":\"{check}\"") };
    let text = |code: &str| code.replace('\\', "\\\\").replace('"', "\\\"");
    draft.ask("PUT /${db}/_design/d").json(&format!(
        "{{\"views\":{{\"v\":{{\"map\":\"function(doc) {{ emit(doc.n, 1); }}\"{reduce}}}}},\"shows\":{{\"s\":\"{}\"}},\"lists\":{{\"l\":\"{}\"}},\"updates\":{{\"u\":\"{}\"}},\"rewrites\":{rewrite}{check}}}",
        text(show), text(list), text(update)
    ));
    if draft.dice.chance(60) {
        let (map, shape) = draft.dice.pick(SHAPES);
        draft.ask("PUT /${db}/_design/f").json(&format!("{{\"filters\":{{\"{shape}\":\"{map}\"}}}}"));
    }
}

pub fn ask(draft: &mut Draft) {
    let query =
        draft.dice.pick(&["", "", "?a=b", "?x=1&y=[1]", "?format=html", "?a=b&a=c", "?format=x", "?include_docs=true"]);
    let id = draft.dice.pick(&["a", "a", "b", "none", "", "x%20y", "_design/d", "a/b"]);
    match draft.dice.below(12) {
        0..=2 => {
            let method = draft.dice.pick(&["GET", "GET", "GET", "POST", "HEAD", "PUT", "DELETE"]);
            let slash = if id.is_empty() { "" } else { "/" };
            let show = draft.dice.pick(&["s", "s", "s", "none"]);
            draft.ask(&format!("{method} /${{db}}/_design/d/_show/{show}{slash}{id}{query}"));
            if method == "POST" {
                draft.text("application/json", "{\"k\":1}");
            }
            accept(draft);
        }
        3..=5 => {
            let view = draft.dice.pick(&["v", "v", "v", "none", "d/v", "f/v"]);
            let query = if draft.dice.chance(60) { view_query(draft, 3) } else { query.to_owned() };
            let list = draft.dice.pick(&["l", "l", "l", "none"]);
            let method = draft.dice.pick(&["GET", "GET", "POST", "HEAD"]);
            draft.ask(&format!("{method} /${{db}}/_design/d/_list/{list}/{view}{query}"));
            if method == "POST" {
                let body = draft.dice.pick(&["{\"keys\":[1,2]}", "{}", "{\"keys\":1}", ""]);
                draft.text("application/json", body);
            }
            accept(draft);
        }
        6 | 7 => {
            let (method, slash) =
                (draft.dice.pick(&["PUT", "POST", "POST", "GET", "DELETE"]), if id.is_empty() { "" } else { "/" });
            let update = draft.dice.pick(&["u", "u", "u", "none"]);
            draft.ask(&format!("{method} /${{db}}/_design/d/_update/{update}{slash}{id}{query}"));
            if method != "GET" {
                let (kind, body) = draft.dice.pick(BODIES);
                draft.text(kind, body);
            }
            draft
                .with("also_headers", strings(&["x-couch-update-newrev", "x-couch-id", "x-a"]))
                .with("volatile", strings(&["/id"]));
        }
        8 | 9 => {
            let path = draft.dice.pick(PATHS);
            let method = draft.dice.pick(&["GET", "GET", "GET", "POST", "PUT"]);
            draft.ask(&format!("{method} /${{db}}/_design/d/_rewrite/{path}"));
            if method != "GET" {
                draft.json("{\"n\":1}");
            }
        }
        10 => {
            let n = draft.dice.pick(&["9", "1"]);
            let id = draft.dice.pick(&["n1", "n2"]);
            draft.ask(&format!("PUT /${{db}}/{id}")).json(&format!("{{\"n\":{n}}}"));
            draft
                .ask("POST /${db}/_bulk_docs")
                .json(&format!("{{\"docs\":[{{\"_id\":\"m\",\"n\":{n}}},{{\"_id\":\"k\",\"n\":1}}]}}"));
        }
        _ => _ = draft.ask(&format!("GET /${{db}}/_changes?filter=f/f&{}", query.trim_start_matches('?'))),
    }
}

fn accept(draft: &mut Draft) {
    if draft.dice.chance(35) {
        let accept = draft.dice.pick(ACCEPTS);
        draft.header("Accept", accept);
    }
    draft.with("also_headers", strings(&["x-a", "vary"]));
}
