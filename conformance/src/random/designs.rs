//! Functions that go further than those of `functions`: lists over groups, types of answers, rewrites with variables,
//! updates of documents with attachments, modules.

use super::documents::strings;
use super::draft::Draft;
use super::lists::view_query;
use super::sample::documents;

const SHOWS: &[&str] = &[
    "function(doc, req) { registerType('odd', 'text/odd', 'x/odd'); provides('odd', function() { return 'odd'; }); provides('xml', function() { return '<a/>'; }); }",
    "function(doc, req) { return {body: typeof doc + ' ' + req.id + ' ' + JSON.stringify(req.query)}; }",
    "function(doc, req) { return {json: {path: req.path, raw: req.raw_path.length > 3, asked: req.requested_path.length}}; }",
    "function(doc, req) { return {code: 200, headers: {'Content-Type': 'text/html; charset=x', 'Vary': 'X', 'ETag': 'mine', 'Cache-Control': 'no'}, body: 'h'}; }",
    "function(doc, req) { return {json: {form: req.form, body: req.body, method: req.method}}; }",
    "function(doc, req) { return {json: require('lib/m').f(2)}; }",
    "function(doc, req) { return require('lib/none'); }",
    "function(doc, req) { start({headers: {'X-A': '1'}}); send('one'); return 'two'; }",
    "function(doc, req) { return {code: 404, json: {error: 'mine'}}; }",
    "function(doc, req) { return {code: 99, body: 'x'}; }",
    "function(doc, req) { return doc._attachments ? toJSON(Object.keys(doc._attachments)) : toJSON(doc && doc._conflicts); }",
    "function(doc, req) { throw(['error', 'name', 'why']); }",
    "function(doc, req) { throw(['fatal', 'name', 'why']); }",
    "function(doc, req) { throw({unauthorized: 'who'}); }",
    "function(doc, req) { throw({not_found: 'where'}); }",
    "function(doc, req) { return {base64: '!'}; }",
    "function(doc, req) { return {body: 1}; }",
    "function(doc, req) { return {body: null}; }",
    "function(doc, req) { return null; }",
    "function(doc, req) { return ''; }",
    "function(doc, req) { return {}; }",
    "function(doc, req) { return toJSON([isArray([]), sum([1, 2]), JSON.stringify({a: undefined})]); }",
];
const LISTS: &[&str] = &[
    "function(head, req) { var r, out = []; while (r = getRow()) out.push([r.key, r.value, r.id, r.doc && r.doc._id]); return toJSON(out); }",
    "function(head, req) { return toJSON([head.total_rows, head.offset, head.update_seq ? 1 : 0]); }",
    "function(head, req) { provides('html', function() { var r; send('<ul>'); while (r = getRow()) send('<li>' + toJSON(r.key)); return '</ul>'; }); provides('text', function() { return 'text'; }); }",
    "function(head, req) { registerType('odd', 'x/odd'); provides('odd', function() { while (getRow()) send('.'); }); }",
    "function(head, req) { start({code: 202, headers: {'Content-Type': 'text/x'}}); var r = getRow(); return r ? toJSON(r.key) : 'empty'; }",
    "function(head, req) { getRow(); getRow(); if (req.query.x) throw({forbidden: 'late'}); return 'ok'; }",
    "function(head, req) { send('a'); send('b'); while (getRow()) send('r'); }",
    "function(head, req) { return 'first row unread'; }",
    "function(head, req) { start({stop: true}); return 'x'; }",
    "function(head, req) { return 1; }",
    "function(head, req) { return {body: 'x'}; }",
    "function(head, req) { var r; while (r = getRow()) { if (r.key == 3) break; send(toJSON(r.key)); } return '|'; }",
    "syntax error",
];
const UPDATES: &[&str] = &[
    "function(doc, req) { if (!doc) doc = {_id: req.uuid.length ? 'fixed' : ''}; doc.seen = (doc.seen || 0) + 1; return [doc, toJSON({seen: doc.seen})]; }",
    "function(doc, req) { return [doc, {code: 409, body: 'mine'}]; }",
    "function(doc, req) { doc = doc || {_id: 'x'}; doc._deleted = true; return [doc, 'gone']; }",
    "function(doc, req) { return [{_id: 'w', _attachments: {t: {data: 'aGk=', content_type: 'text/plain'}}}, 'att']; }",
    "function(doc, req) { return [null, {json: {body: req.body, form: req.form, id: req.id, q: req.query, h: req.headers['Content-Type']}}]; }",
    "function(doc, req) { return [{_id: '_x'}, 'bad']; }",
    "function(doc, req) { return [{_id: 'w', _odd: 1}, 'bad']; }",
    "function(doc, req) { return [{_id: '_local/u', n: 1}, 'local']; }",
    "function(doc, req) { return [{_id: '_design/u', views: 1}, 'design']; }",
    "function(doc, req) { return [null, null]; }",
    "function(doc, req) { return [null]; }",
    "function(doc, req) { return []; }",
    "function(doc, req) { return null; }",
    "function(doc, req) { return ['x', 'y']; }",
    "function(doc, req) { throw(['not_found', 'a', 'b']); }",
    "function(doc, req) { return [{_id: 'w', n: 9}, 'refused']; }",
    "function(doc, req) { return [{_id: 'w'}, {base64: 'aGk=', headers: {'Content-Type': 'image/png', 'X-A': 1}}]; }",
];
const REWRITES: &[&str] = &[
    "[{\"from\":\"/k/:key\",\"to\":\"_view/v\",\"query\":{\"key\":\":key\"},\"formats\":{\"key\":\"int\"}},{\"from\":\"/l/*\",\"to\":\"_list/l/*\"},{\"from\":\"/s/:id\",\"to\":\"_show/s/:id\",\"query\":{\"x\":\":x\"}}]",
    "[{\"from\":\"/k/:a/:b\",\"to\":\"_view/v\",\"query\":{\"startkey\":\":a\",\"endkey\":\":b\",\"descending\":\":d\"},\"formats\":{\"a\":\"int\",\"b\":\"int\",\"d\":\"bool\"}},{\"from\":\"*\",\"to\":\"_show/s\"}]",
    "[{\"from\":\"/u/:id\",\"to\":\"_update/u/:id\",\"method\":\"PUT\"},{\"from\":\"/u/:id\",\"to\":\"../../:id\",\"method\":\"GET\"},{\"from\":\"\",\"to\":\"_view/v\"}]",
    "[{\"from\":\"/db/*\",\"to\":\"../../*\"},{\"from\":\"/up/*\",\"to\":\"../../../*\"},{\"from\":\"/self\",\"to\":\"_rewrite/self\"}]",
    "[{\"from\":\"/k\",\"to\":\"_view/v\",\"query\":{\"keys\":[1,2]}},{\"from\":\"/k2\",\"to\":\"_view/v\",\"query\":{\"key\":[\":a\",1]}}]",
    "\"function(req) { return {path: '/' + req.path.slice(5).join('/'), method: 'GET'}; }\"",
    "\"function(req) { return {path: '_show/s', headers: {'X-B': 'c'}, query: {z: 1}, body: 'made'}; }\"",
    "\"function(req) { return {path: '../../_all_docs', query: {limit: '1'}}; }\"",
    "\"function(req) { throw({forbidden: 'no'}); }\"",
    "\"function(req) { return {code: 200, body: toJSON([req.method, req.query, req.body])}; }\"",
    "\"function(req) { return 'x'; }\"",
    "\"function(req) { return {path: 1}; }\"",
];
const PATHS: &[&str] = &[
    "k/1",
    "k/1/3?d=true",
    "k/x",
    "l/v?limit=2",
    "s/a?x=1",
    "u/a",
    "u/none",
    "db/a",
    "db/_all_docs?limit=1",
    "up/${db}/a",
    "self",
    "k",
    "k2?a=5",
    "",
    "none",
    "k/1/2/3",
    "s/x%20y",
    "db/_design/d/_view/v",
];
const VIEWS: &[&str] = &["v", "v", "r", "r?group=true", "r?reduce=false", "none", "e/v", "f/v"];
const FORMS: &[(&str, &str)] = &[
    ("application/json", "{\"a\":1}"),
    ("application/x-www-form-urlencoded", "a=1&b=2&a=3"),
    ("application/x-www-form-urlencoded; charset=utf-8", "a=%C3%A4+b"),
    ("multipart/form-data; boundary=B", "--B--"),
    ("text/plain", "plain"),
];

pub fn begin(draft: &mut Draft) {
    documents(draft);
    let (show, list, update, rewrite) =
        (draft.dice.pick(SHOWS), draft.dice.pick(LISTS), draft.dice.pick(UPDATES), draft.dice.pick(REWRITES));
    let text = |code: &str| code.replace('\\', "\\\\").replace('"', "\\\"");
    let check = "function(doc, old, user, sec) { if (doc.n === 9 && doc._id == 'w') throw({forbidden: 'nine'}); }";
    draft.ask("PUT /${db}/_design/d").json(&format!(
        "{{\"lib\":{{\"m\":\"exports.f = function(x) {{ return require('./n').g(x) + 1; }};\",\"n\":\"exports.g = function(x) {{ return x * 2; }};\"}},\"views\":{{\"v\":{{\"map\":\"function(doc) {{ emit(doc.n, doc.t); }}\"}},\"r\":{{\"map\":\"function(doc) {{ emit(doc.t, 1); }}\",\"reduce\":\"_count\"}}}},\"shows\":{{\"s\":\"{}\"}},\"lists\":{{\"l\":\"{}\"}},\"updates\":{{\"u\":\"{}\"}},\"rewrites\":{rewrite},\"validate_doc_update\":\"{check}\"}}",
        text(show), text(list), text(update)
    ));
    if draft.dice.chance(40) {
        draft.ask("PUT /${db}/_design/e").json("{\"views\":{\"v\":{\"map\":\"function(doc) { emit(doc._id); }\"}}}");
    }
    draft.ask("PUT /${db}/w").json("{\"n\":1,\"_attachments\":{\"f\":{\"data\":\"aGk=\"}}}");
}

pub fn ask(draft: &mut Draft) {
    match draft.dice.below(10) {
        0 | 1 => {
            let (method, id) = (
                draft.dice.pick(&["GET", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"]),
                draft.dice.pick(&["", "/a", "/w", "/none", "/_design/e", "/a/b", "/_local/l", "/_x", "/x%2Fy"]),
            );
            let query = draft.dice.pick(&["", "?a=1", "?format=odd", "?format=xml", "?key=1&startkey=[2]", "?key=x"]);
            draft.ask(&format!("{method} /${{db}}/_design/d/_show/s{id}{query}"));
            body(draft, method);
            accept(draft);
        }
        2..=4 => {
            let view = draft.dice.pick(VIEWS);
            let query = view_query(draft, 2);
            let query = if view.contains('?') { query.replacen('?', "&", 1) } else { query };
            let method = draft.dice.pick(&["GET", "GET", "GET", "POST", "HEAD", "OPTIONS", "PUT"]);
            draft.ask(&format!("{method} /${{db}}/_design/d/_list/l/{view}{query}"));
            if method == "POST" {
                let body = draft.dice.pick(&["{\"keys\":[1,2]}", "{\"keys\":[\"x\"]}", "{}"]);
                draft.text("application/json", body);
            }
            accept(draft);
        }
        5..=7 => {
            let (method, id) = (
                draft.dice.pick(&["PUT", "POST", "POST", "DELETE", "PATCH", "COPY", "HEAD"]),
                draft.dice.pick(&["", "/a", "/w", "/none", "/_design/e", "/a/b", "/_local/l", "/_x"]),
            );
            let query = draft.dice.pick(&["", "?a=1", "?w=1", "?batch=ok", "?new_edits=false", "?rev=1-x", "?x=1&x=2"]);
            draft.ask(&format!("{method} /${{db}}/_design/d/_update/u{id}{query}"));
            body(draft, method);
            draft.with("also_headers", strings(&["x-couch-update-newrev", "x-couch-id", "x-a"]));
        }
        _ => {
            let (method, path) = (draft.dice.pick(&["GET", "GET", "POST", "PUT", "HEAD"]), draft.dice.pick(PATHS));
            draft.ask(&format!("{method} /${{db}}/_design/d/_rewrite/{path}"));
            body(draft, method);
            draft.with("volatile", strings(&["/uuid"]));
        }
    }
}

fn body(draft: &mut Draft, method: &str) {
    if ["POST", "PUT", "DELETE", "PATCH"].contains(&method) && draft.dice.chance(80) {
        let (kind, body) = draft.dice.pick(FORMS);
        draft.text(kind, body);
    }
}

fn accept(draft: &mut Draft) {
    if draft.dice.chance(40) {
        let accept = draft.dice.pick(&[
            "text/html",
            "x/odd",
            "text/odd;q=0.9, application/xml",
            "application/json",
            "text/plain;q=0",
            "image/*, text/*;q=0.1",
            "",
        ]);
        draft.header("Accept", accept);
    }
    draft.with("also_headers", strings(&["x-a", "vary"]));
}
