//! Functions of design documents on the production host: JavaScript on threads of the node and in processes of its own,
//! another language in a query server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use settee::config::{Config, Setting};
use settee::document::id::DocId;
use settee::document::json::{self, Value};
use settee::document::render::StoredRevision;
use settee::document::revision::Revision;
use settee::script::{Arguments, DesignError, Program, Rendering, ScriptError, Scripts, Validation};
use settee::world::tokio_host;
use tokio::runtime::Runtime;

/// One test at a time: one of them ends processes of functions, and those of the others are children of this one, too.
static TURN: Mutex<()> = Mutex::new(());

fn runtime() -> (MutexGuard<'static, ()>, Runtime) {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
}

/// Does the work where functions run on threads, then where they run in processes.
fn with(work: impl AsyncFn(Scripts)) {
    // Nothing here takes long; a busy machine may.
    with_limit(60_000, work);
}

/// [`with`] a limit of milliseconds for each function.
fn with_limit(ms: u64, work: impl AsyncFn(Scripts)) {
    for isolation in ["thread", "process"] {
        let (_turn, runtime) = runtime();
        let env = tokio_host::env_of_program(runtime.handle().clone(), env!("CARGO_BIN_EXE_settee"));
        let isolation = format!("settee/script_isolation={isolation}");
        let limit = format!("couchdb/os_process_timeout={ms}");
        let settings = [&limit, &isolation].map(|text| Setting::parse(text).unwrap());
        let scripts = Scripts::new(&env, &Config::in_memory(&env, settings.into()));
        runtime.block_on(Box::pin(work(scripts)));
    }
}

fn program(body: &str) -> Program {
    let rev = Revision::parse("1-967a00dff5e02add41819138abb3284d").unwrap();
    let body = json::parse(body.as_bytes()).unwrap().to_vec().into();
    let stored = StoredRevision { rev, deleted: false, body, attachments: Vec::new() };
    Program::new("db", &DocId::new("_design/d"), &stored)
}

/// A design document with one map function.
fn mapper(source: &str) -> Program {
    program(&format!(r#"{{"views":{{"v":{{"map":{}}}}}}}"#, text(source)))
}

fn text(source: &str) -> String {
    String::from_utf8(Value::from(source).to_vec()).unwrap()
}

async fn map(scripts: &Scripts, source: &str, doc: &str) -> Result<String, ScriptError> {
    let program = mapper(source);
    let source = program.map("v").unwrap().to_owned();
    let mut out = scripts.map(&program, &[&source], vec![doc.to_owned()]).await?;
    let rows = Value::Array(out.remove(0).remove(0));
    Ok(String::from_utf8(rows.to_vec()).unwrap())
}

#[test]
fn sources_are_functions_in_sloppy_mode() {
    with(async |scripts| {
        for source in [
            "function(doc){ emit(1) }",
            "doc => { emit(1); }",
            "// a comment\nfunction(doc){ emit(1); }",
            "/* c */ function(doc) { emit(1); } // end",
            "(function(doc){ emit(1); })",
            "function(doc){ emit(1); }; // end",
            "var f = function(doc){ emit(1) }; f",
            "(function(){ var c = 1; return function(doc){ emit(c); }; })()",
            "function(doc){ undeclared = 1; with ({a: 01}) { emit(a); } doc.x = 5; }",
        ] {
            assert_eq!(map(&scripts, source, "{}").await.as_deref(), Ok("[[1,null]]"), "{source}");
        }
        for source in ["function f(doc){}", "({map: function(doc){}})", "'function(doc){}'", "null"] {
            let reason = format!("Expression does not eval to a function. ({source})");
            assert_eq!(map(&scripts, source, "{}").await, Err(ScriptError::Compilation { reason }));
        }
        for source in ["function(", "not js (", "return function(doc){}"] {
            let Err(ScriptError::Compilation { reason }) = map(&scripts, source, "{}").await else {
                panic!("{source}")
            };
            assert!(reason.starts_with("SyntaxError: ") && reason.ends_with(&format!(" ({source})")), "{reason}");
        }
    });
}

#[test]
fn what_is_emitted_becomes_json() {
    with(async |scripts| {
        for (given, out) in [
            ("undefined", "null"),
            ("NaN", "null"),
            ("emit", "null"),
            ("/x/", "{}"),
            ("new Date(0)", "\"1970-01-01T00:00:00.000Z\""),
            ("new Date(2020, 0, 2, 3).toISOString()", "\"2020-01-02T03:00:00.000Z\""),
            ("new TypeError('no')", r#"{"error":"TypeError","message":"no"}"#),
            ("'a\\ud800'", "\"a\u{FFFD}\""),
            ("{a: undefined, b: [undefined]}", r#"{"b":[null]}"#),
            (
                "typeof Promise + typeof Uint8Array + typeof print + typeof performance",
                "\"undefinedundefinedundefinedundefined\"",
            ),
            ("new Date().getTimezoneOffset() + Math.floor(Math.random())", "0"),
            ("Date.now() > 1600000000000 && new Date().constructor.now() > 1600000000000", "true"),
            ("(async function () {})() && 1", "1"),
        ] {
            let source = format!("function(doc){{ emit({given}); }}");
            assert_eq!(map(&scripts, &source, "{}").await, Ok(format!("[[{out},null]]")), "{given}");
        }
        let frozen = "function(doc){ doc.a = 1; emit(doc.a); doc.l.sort(); emit(2); }";
        assert_eq!(map(&scripts, frozen, r#"{"l":[2,1]}"#).await.as_deref(), Ok("[]"), "a throw drops all rows");
        let frozen = "function(doc){ doc.a = 1; doc.o.x = 1; emit(doc.a, doc.o.x); }";
        assert_eq!(map(&scripts, frozen, r#"{"o":{}}"#).await.as_deref(), Ok("[[null,null]]"), "nothing changes");
        // Beside one that changes documents, and after it, one that only reads them sees them as they are.
        let reads = "function(doc){ emit(doc.a, doc.l); }";
        let program =
            program(&format!(r#"{{"views":{{"a":{{"map":{}}},"b":{{"map":{}}}}}}}"#, text(frozen), text(reads)));
        for sources in [&[reads][..], &[reads, frozen, reads], &[reads]] {
            let rows = scripts.map(&program, sources, vec![r#"{"l":[2,1],"o":{}}"#.to_owned()]).await.unwrap();
            let last = Value::Array(rows[0].last().unwrap().clone()).to_vec();
            assert_eq!(String::from_utf8(last).unwrap(), "[[null,[2,1]]]");
        }
        let fatal = map(&scripts, "function(doc){ throw('fatal_error'); }", "{}").await;
        assert!(matches!(fatal, Err(ScriptError::Thrown { error, .. }) if error == "map_runtime_error"));
    });
}

#[test]
fn modules_come_from_the_design_document() {
    with(async |scripts| {
        let design = r#"{"secret":"exports.a = 0","views":{"lib":{"x":{"a":"exports.a = require('./b').b + 1","b":"exports.b = 1"}},
            "v":{"map":"function(doc){ emit(require('views/lib/x/a').a); }"},
            "w":{"map":"function(doc){ emit(require('secret').a); }"}}}"#;
        let program = program(design);
        let sources = [program.map("v").unwrap(), program.map("w").unwrap()];
        let rows = scripts.map(&program, &sources, vec!["{}".to_owned()]).await.unwrap();
        let shown: Vec<Vec<u8>> = rows[0].iter().map(|rows| Value::Array(rows.clone()).to_vec()).collect();
        assert_eq!(shown, [b"[[2,null]]".to_vec(), b"[]".to_vec()]);
        assert_eq!(program.map("no"), Err(ScriptError::MissingKey { name: "no".to_owned() }));
        assert_eq!(program.filter("f"), Err(ScriptError::MissingKey { name: "filters".to_owned() }));
    });
}

#[test]
fn runaways_are_stopped_and_others_go_on() {
    with_limit(300, async |scripts| {
        let endless = ["while (true) {}", "for (;;) { try { throw 1 } catch (e) {} finally { continue } }"];
        for body in endless {
            let source = format!("function(doc){{ {body} }}");
            assert_eq!(map(&scripts, &source, "{}").await, Err(ScriptError::Timeout), "{body}");
        }
        let greedy = "function(doc){ var a = []; for (;;) a.push(new Array(1000).join('x' + a.length)); }";
        assert!(matches!(map(&scripts, greedy, "{}").await, Err(ScriptError::Engine { .. } | ScriptError::Timeout)));
        let begun = Instant::now();
        // Nothing interrupts this within the engine.
        let source = "function(doc){ Array.prototype.indexOf.call({length: 9007199254740991}, 1) }";
        let stubborn = map(&scripts, source, "{}").await;
        assert_eq!(stubborn, Err(ScriptError::Timeout));
        // It runs on, so that each further try waits no longer than the first one did.
        let (one, begun) = (begun.elapsed(), Instant::now());
        for _ in 0..20 {
            assert_eq!(map(&scripts, source, "{}").await, Err(ScriptError::Timeout));
        }
        assert!(begun.elapsed() < 200 * one, "{:?} of {one:?} each", begun.elapsed());
        let deep = map(&scripts, "function(doc){ function f() { f() } f() }", "{}").await;
        assert!(
            matches!(deep.as_deref(), Ok("[]") | Err(ScriptError::Engine { .. } | ScriptError::Timeout)),
            "{deep:?}"
        );
        // A busy machine may take longer over it, now and then.
        let mut other = Err(ScriptError::Timeout);
        for _ in 0..100 {
            if other == Err(ScriptError::Timeout) {
                other = map(&scripts, "function(doc){ emit(doc.a) }", r#"{"a":1}"#).await;
            }
        }
        assert_eq!(other.as_deref(), Ok("[[1,null]]"));
    });
}

#[test]
fn validators_and_filters_answer() {
    with(async |scripts| {
        let design = r#"{"validate_doc_update":"function(n,o,u,s){ if(n.f) throw({forbidden:n.f}); if(n.u) throw({unauthorized:n.u}); if(n.e) n.a.b; if(n.t) throw(n.t); if(n.dump) throw({forbidden:[o,u,s]}); }",
            "filters":{"big":"function(doc, req){ return doc.v > req.query.min; }"}}"#;
        let program = program(design);
        let edit = |doc: &str| Arc::new(Arguments::new(doc.as_bytes(), b"null", br#"{"name":"x"}"#, b"{}"));
        let docs = [
            r#"{"f":"no"}"#,
            r#"{"u":{"c":1}}"#,
            "{}",
            r#"{"e":1}"#,
            r#"{"t":"text"}"#,
            r#"{"t":{"other":"x"}}"#,
            r#"{"dump":1}"#,
        ];
        let results = scripts.validate(&program, docs.map(edit).into()).await.unwrap();
        let json = |text: &str| json::parse(text.as_bytes()).unwrap();
        assert_eq!(results[0], Ok(Validation::Forbidden(json("\"no\""))));
        assert_eq!(results[1], Ok(Validation::Unauthorized(json(r#"{"c":1}"#))));
        assert_eq!(results[2], Ok(Validation::Accepted));
        assert!(matches!(&results[3], Err(ScriptError::Thrown { error, .. }) if error == "TypeError"));
        let thrown = |reason| Err(ScriptError::Thrown { error: "unknown_error".to_owned(), reason: json(reason) });
        assert_eq!(results[4], thrown("\"text\""));
        assert_eq!(results[5], thrown("\"x\""));
        assert_eq!(results[6], Ok(Validation::Forbidden(json(r#"[null,{"name":"x"},{}]"#))));
        let req: Arc<str> = r#"{"query":{"min":"1"}}"#.into();
        let passed =
            scripts.filter(&program, "big", &req, vec![r#"{"v":1}"#.to_owned(), r#"{"v":2}"#.to_owned()]).await;
        assert_eq!(passed, Ok(vec![false, true]));
        let docs = || vec![r#"{"v":[2,1]}"#.to_owned(), r#"{"v":[]}"#.to_owned()];
        let emits = async |source| scripts.emits(&program, source, docs()).await;
        // Unlike a view's, the documents are not frozen: nothing throws that is none of the function's doing.
        assert_eq!(emits("function(doc){ if (doc.v.sort().length) emit(1); }").await, Ok(vec![true, false]));
        let thrown = emits("function(doc){ emit(doc.v[0].a.b); }").await;
        assert!(matches!(thrown, Err(ScriptError::Thrown { error, .. }) if error == "TypeError"));
    });
}

#[test]
fn design_documents_are_compiled_before_they_are_stored() {
    with(async |scripts| {
        let body = json::parse(br#"{"views":{"v":{"map":"function("}}}"#).unwrap();
        let refused = scripts.check_design("db", body.as_object().unwrap(), false).await;
        let Err(DesignError::Compilation { reason }) = refused else { panic!("{refused:?}") };
        assert!(
            reason.starts_with("Compilation of the map function in the 'v' view failed: SyntaxError: "),
            "{reason}"
        );
        assert!(reason.ends_with(" (function()"), "{reason}");
        let body = json::parse(br#"{"views":{"v":{"map":"function(d){}","reduce":"function(k,v,r){}"}}}"#).unwrap();
        assert_eq!(scripts.check_design("db", body.as_object().unwrap(), false).await, Ok(()));
    });
}

/// The processes that this one started and that run functions.
fn processes() -> Vec<String> {
    let is_host = |pid: &String| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let parent = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = parent.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).map(str::to_owned);
        String::from_utf8_lossy(&command).contains("script-host") && parent == Some(std::process::id().to_string())
    };
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).filter(is_host).collect()
}

#[test]
fn a_process_that_dies_costs_the_call_that_it_ran() {
    let (_turn, runtime) = runtime();
    let env = tokio_host::env_of_program(runtime.handle().clone(), env!("CARGO_BIN_EXE_settee"));
    let settings = ["settee/script_isolation=process", "couchdb/os_process_timeout=120000"];
    let settings = settings.map(|setting| Setting::parse(setting).unwrap()).into();
    let scripts = Scripts::new(&env, &Config::in_memory(&env, settings));
    runtime.block_on(Box::pin(async {
        let others = processes();
        let answer = map(&scripts, "function(doc){ log('two\\nlines'); emit(doc.a) }", r#"{"a":1}"#).await;
        assert_eq!(answer.as_deref(), Ok("[[1,null]]"));
        let endless = "function(doc){ if (doc.a) { while (true) {} } emit(2) }";
        let kill = async {
            // Both of the two: that of the first function, which is idle, and that of the endless one.
            let mut own: Vec<String> = Vec::new();
            while own.len() < 2 {
                own = processes().into_iter().filter(|pid| !others.contains(pid)).collect();
                tokio::task::yield_now().await;
            }
            assert!(std::process::Command::new("kill").arg("-9").args(own).status().unwrap().success());
        };
        let (answer, ()) = tokio::join!(map(&scripts, endless, r#"{"a":1}"#), kill);
        let reason = "the process of the function ended".to_owned();
        assert_eq!(answer, Err(ScriptError::Engine { reason }));
        assert_eq!(map(&scripts, endless, "{}").await.as_deref(), Ok("[[2,null]]"));
    }));
}

/// A query server with functions in Python.
const PYTHON: &str = r#"
import json, sys
maps, designs = [], {}
def function(source):
    scope = {}
    exec(source, scope)
    return scope["f"]
def answer(command):
    name, rest = command[0], command[1:]
    if name == "reset":
        maps.clear()
        return True
    if name == "add_fun":
        maps.append(function(rest[0]))
        return True
    if name == "map_doc":
        print(json.dumps(["log", "a document"]))
        return [[list(row) for row in made(rest[0])] for made in maps]
    if name == "reduce":
        return [True, [function(source)([row[1] for row in rest[1]]) for source in rest[0]]]
    if name == "rereduce":
        return [True, [function(source)(rest[1]) for source in rest[0]]]
    if name == "ddoc" and rest[0] == "new":
        designs[rest[1]] = rest[2]
        return True
    design, path, args = designs[rest[0]], rest[1], rest[2]
    if path[0] == "validate_doc_update":
        return function(design["validate_doc_update"])(*args)
    source = design[path[0]][path[1]]
    if path[0] == "filters":
        return [True, [function(source)(doc, args[1]) for doc in args[0]]]
    return ["resp", function(source)(*args)]
for line in sys.stdin:
    try:
        out = answer(json.loads(line))
    except Exception as error:
        out = ["error", type(error).__name__, str(error)]
    print(json.dumps(out), flush=True)
"#;

#[test]
fn functions_of_another_language_run_in_their_query_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = dir.path().join("server.py");
    std::fs::write(&server, PYTHON).unwrap();
    let (_turn, runtime) = runtime();
    let env = tokio_host::env(runtime.handle().clone());
    let command = format!("query_servers/python=python3 '{}'", server.display());
    let settings = [
        &command,
        "query_servers/gone=/no/such/program",
        "query_servers/mute=sleep 60",
        "couchdb/os_process_timeout=120000",
    ];
    let settings = settings.into_iter().map(|setting| Setting::parse(setting).unwrap()).collect();
    let config = Config::in_memory(&env, settings);
    let scripts = Scripts::new(&env, &config);
    let map = "def f(doc):\n  yield doc['_id'], doc['n'] + 1";
    let sum = "def f(values): return sum(values)";
    let design = |language: &str| {
        program(&format!(
            r#"{{"language":"{language}","filters":{{"odd":{}}},"validate_doc_update":{},"shows":{{"s":{}}}}}"#,
            text("def f(doc, req): return doc['n'] % 2 == 1"),
            text("def f(new, old, user, sec): return 1 if 'n' in new else {'forbidden': 'no n'}"),
            text("def f(doc, req): return {'body': doc['_id'] + req['x']}"),
        ))
    };
    runtime.block_on(Box::pin(async {
        let python = design("python");
        let docs = vec![r#"{"_id":"a","n":1}"#.to_owned(), r#"{"_id":"b","n":2}"#.to_owned()];
        let rows = scripts.map(&python, &[map], docs.clone()).await.unwrap();
        let shown = Value::Array(rows.into_iter().flatten().map(Value::Array).collect()).to_vec();
        assert_eq!(String::from_utf8(shown).unwrap(), r#"[[["a",2]],[["b",3]]]"#);
        assert_eq!(scripts.emits(&python, map, docs.clone()).await.unwrap(), [true, true]);
        let rows = vec![r#"[[["k","a"],1],[["k","b"],5]]"#.to_owned()];
        assert_eq!(scripts.reduce(&python, sum, rows, false).await.unwrap(), [Value::Int(6)]);
        assert_eq!(scripts.reduce(&python, sum, vec!["[6,1]".to_owned()], true).await.unwrap(), [Value::Int(7)]);
        let req: Arc<str> = r#"{"x":"!"}"#.into();
        assert_eq!(scripts.filter(&python, "odd", &req, docs.clone()).await.unwrap(), [true, false]);
        let edit = |new: &str| Arc::new(Arguments::new(new.as_bytes(), b"null", b"{}", b"{}"));
        let outcomes = scripts.validate(&python, vec![edit(r#"{"n":1}"#), edit("{}")]).await.unwrap();
        assert_eq!(outcomes, [Ok(Validation::Accepted), Ok(Validation::Forbidden("no n".into()))]);
        let source = python.function("shows", "s").unwrap();
        let shown = scripts.render(&python, (Rendering::Show, source), docs[0].clone(), &req).await.unwrap();
        assert_eq!(shown.get("resp").unwrap().to_vec(), br#"{"body":"a!"}"#);
        let failed = scripts.filter(&python, "odd", &req, vec!["{}".to_owned()]).await;
        assert!(matches!(failed, Err(ScriptError::Thrown { error, .. }) if error == "KeyError"));
        let unknown = scripts.map(&design("cobol"), &[map], docs.clone()).await;
        assert_eq!(unknown, Err(ScriptError::UnknownLanguage { language: "cobol".to_owned() }));
        assert!(matches!(scripts.map(&design("gone"), &[map], docs.clone()).await, Err(ScriptError::Engine { .. })));
        config.set(("couchdb", "os_process_timeout"), "100", false).await.unwrap();
        assert_eq!(scripts.map(&design("mute"), &[map], docs).await, Err(ScriptError::Timeout));
    }));
}

#[test]
fn an_index_function_tells_fields_and_one_that_goes_wrong_tells_none() {
    with(async |scripts| {
        let told = async |source: &str, doc: &str| {
            let program = program(&format!(r#"{{"indexes":{{"i":{{"index":{}}}}}}}"#, text(source)));
            let calls = scripts.index(&program, source, vec![doc.to_owned()]).await?.remove(0);
            Ok::<_, ScriptError>(String::from_utf8(Value::Array(calls).to_vec()).unwrap())
        };
        let doc = r#"{"_id":"a","t":"x","n":1}"#;
        let both = "function(doc){ index('t', doc.t, {store: true}); index('n', doc.n); index('b', true, null); }";
        assert_eq!(told(both, doc).await.unwrap(), r#"[["t","x",{"store":true}],["n",1,{}],["b",true,{}]]"#);
        assert_eq!(told("function(doc){ index('n', NaN); }", doc).await.unwrap(), r#"[["n",null,{}]]"#);
        for wrong in
            ["index(1, 'x')", "index('_id', 'x')", "index('t', null)", "index('t', doc.none)", "index('t', 'x', 5)"]
        {
            let source = format!("function(doc){{ index('before', 1); {wrong}; }}");
            assert_eq!(told(&source, doc).await.unwrap(), "[]", "{wrong}");
        }
        assert_eq!(told("function(doc){ doc.t = 'y'; index('t', doc.t); }", doc).await.unwrap(), r#"[["t","x",{}]]"#);
        assert!(matches!(told("function(doc){ index(", doc).await, Err(ScriptError::Compilation { .. })));
    });
}
