//! Simple maps beside the engine: the same rows, or none.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};

use super::*;
use crate::config::Config;
use crate::document::id::DocId;
use crate::document::json::Object;
use crate::document::render::StoredRevision;
use crate::document::revision::Revision;
use crate::script::sandbox::Sandbox;
use crate::world::{Env, tokio_host};

const DESIGN: &str = r#"{"_id":"_design/d"}"#;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn env(runtime: &tokio::runtime::Runtime) -> Env {
    tokio_host::env(runtime.handle().clone())
}

/// The text of rows as a list of `[key, value]`.
fn shown(rows: Rows) -> String {
    let rows = rows.into_iter().map(|(key, value)| Value::Array(vec![key, value]));
    String::from_utf8(Value::Array(rows.collect()).to_vec()).unwrap()
}

/// What the engine makes of a document.
fn by_engine(sandbox: &mut Sandbox, source: &str, doc: &str) -> String {
    let sources = Value::Array(vec![source.into()]).to_vec();
    let answer = sandbox.call("map", [std::str::from_utf8(&sources).unwrap(), doc, ""], Duration::from_secs(60));
    let answer = answer.unwrap();
    let rows = answer.as_object().unwrap().get("rows").unwrap().as_array().unwrap();
    String::from_utf8(rows[0].to_vec()).unwrap()
}

fn by_text(source: &str, doc: &str) -> Option<String> {
    Plain::read(source).unwrap_or_else(|| panic!("not understood: {source}")).rows(doc.as_bytes()).map(shown)
}

#[test]
fn usual_maps_are_understood_and_agree_with_the_engine() {
    let runtime = runtime();
    let mut sandbox = Sandbox::new(&env(&runtime), DESIGN, |_| {}).unwrap();
    let doc =
        r#"{"_id":"x","n":1.0,"type":"order","city":"Łódź","price":0.5,"at":{"y":[2025,1e3],"m":null},"closed":false}"#;
    for (body, rows) in [
        ("emit([doc.city, doc.n], doc.price);", r#"[[["Łódź",1],0.5]]"#),
        ("emit(doc.n, null)", "[[1,null]]"),
        ("emit(doc._id)", r#"[["x",null]]"#),
        ("emit(doc.missing, [doc.missing, 'it', 7, true, []]);", r#"[[null,[null,"it",7,true,[]]]]"#),
        ("emit(doc.at, doc.at.y);", r#"[[{"y":[2025,1000],"m":null},[2025,1000]]]"#),
        ("emit(1); emit(doc.at.m.d);", "[]"),
        ("emit(doc.missing.d);", "[]"),
        ("if (doc.type === 'order' && !doc.closed) { emit(doc._id, null) }", r#"[["x",null]]"#),
        ("if (doc.type !== \"order\") return; emit(1, 1);", "[[1,1]]"),
        ("if (doc.type == 'user' || doc.missing != null || !!doc.closed) emit(0, 1);", "[]"),
        ("if (!(doc.price > 0.0)) return;", ""),
        ("if (doc.n >= 1) if (!(doc.n < 1)) { ; emit(2, 0); }; // the end\n", "[[2,0]]"),
        ("", "[]"),
    ] {
        let source = format!("function (doc) {{ {body} }}");
        if rows.is_empty() {
            assert!(Plain::read(&source).is_none(), "{body}");
            continue;
        }
        assert_eq!(by_text(&source, doc).as_deref(), Some(rows), "{body}");
        assert_eq!(by_engine(&mut sandbox, &source, doc), rows, "{body}");
    }
    for source in ["d => emit(d.n)", "(d) => { emit(d.n); }", "/* a */ (d) => emit(d.n, null)"] {
        assert_eq!(by_text(source, doc).as_deref(), Some("[[1,null]]"), "{source}");
        assert_eq!(by_engine(&mut sandbox, source, doc), "[[1,null]]", "{source}");
    }
}

#[test]
fn whatever_is_more_is_for_the_engine() {
    for body in [
        "emit(doc, null)",
        "emit()",
        "emit(doc.a, 1, 2)",
        "emit(doc.a,)",
        "emit([doc.a,])",
        "emit(doc['a'])",
        "emit(doc.a[0])",
        "emit(doc?.a)",
        "emit(doc.a())",
        "emit(doc.toString, doc.__proto__)",
        "emit(doc.a + 1)",
        "emit(-1)",
        "emit(010)",
        "emit(0x10)",
        "emit(1.5)",
        "emit(99999999999999999999)",
        "emit('\\u0061')",
        "emit('a\nb')",
        "emit(undefined)",
        "emit(other.a)",
        "emit(doc.a) emit(doc.b)",
        "emit(doc.a)\nemit(doc.b)",
        "emit (doc.a",
        "if (doc.a) ;",
        "if (doc.a) emit(1); else emit(2);",
        "if ((doc.a) === 1) emit(1);",
        "if (doc.a === doc.b === doc.c) emit(1);",
        "if (doc.a = 1) emit(1);",
        "return emit(1);",
        "var a = 1; emit(a)",
        "doc.a = 1; emit(doc.a)",
        "log(doc.a)",
    ] {
        assert!(Plain::read(&format!("function (doc) {{ {body} }}")).is_none(), "{body}");
    }
    for source in [
        "function named(doc) { emit(1); }",
        "function (doc, req) { emit(1); }",
        "function (emit) { emit(1); }",
        "function (null) { emit(null); }",
        "function ({a}) { emit(1); }",
        "function () { emit(1); }",
        "function (doc) { emit(1); };",
        "function (doc) { emit(1); } emit(2)",
        "async (doc) => emit(1)",
        "doc\n=> emit(doc.a)",
        "/* => */ doc\n=> emit(doc.a)",
        "doc // =>\n=> emit(doc.a)",
        "async => emit(async.a)",
        "doc => doc.a",
        "",
    ] {
        assert!(Plain::read(source).is_none(), "{source}");
    }
    let deep = |n: usize| format!("function (doc) {{ emit({}1{}); }}", "[".repeat(n), "]".repeat(n));
    assert!(Plain::read(&deep(8)).is_some() && Plain::read(&deep(100_000)).is_none());
    let long = |n: usize| format!("function (doc) {{ {} }}", "emit(doc.a);".repeat(n));
    assert!(Plain::read(&long(32)).is_some() && Plain::read(&long(33)).is_none());
}

#[test]
fn documents_in_doubt_are_for_the_engine() {
    let rows = |doc: &str| by_text("function (doc) { if (doc.c != 'x') emit(doc.a.b) }", doc);
    for doc in [
        r#"{"a":{"b":9007199254740993}}"#,
        r#"{"a":{"b":123456789012345678901234567890}}"#,
        r#"{"a":{"b":1e22}}"#,
        r#"{"a":{"b":1.0e-310}}"#,
        r#"{"a":{"b":{"2":1,"1":1}}}"#,
        r#"{"a":{"b":{"__proto__":1}}}"#,
        r#"{"a":"text"}"#,
        r#"{"a":[]}"#,
        r#"{"a":{"b":1},"c":1}"#,
        r#"{"a":{"b":1},"c":[]}"#,
        r#"{"a":{"b":1"#,
    ] {
        assert_eq!(rows(doc), None, "{doc}");
    }
    let nested = |n: usize| format!(r#"{{"a":{{"b":{}1{}}}}}"#, "[".repeat(n), "]".repeat(n));
    assert!(rows(&nested(16)).is_some() && rows(&nested(17)).is_none());
    let large = format!(r#"{{"a":{{"b":1}},"z":"{}"}}"#, "z".repeat(limits::SCRIPT_PLAIN_DOC_BYTES));
    assert_eq!(rows(&large), None);
}

fn path() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(vec!["a", "b", "n", "_id"]);
    let one = name().prop_map(|name| format!("doc.{name}"));
    prop_oneof![3 => one, 1 => (name(), name()).prop_map(|(name, inner)| format!("doc.{name}.{inner}"))]
}

fn operand() -> impl Strategy<Value = String> {
    let constants = vec!["null", "true", "false", "0", "1", "70", "'x'", "\"\"", "'é'"];
    prop_oneof![3 => path(), 2 => prop::sample::select(constants).prop_map(str::to_owned)]
}

fn term() -> impl Strategy<Value = String> {
    operand().prop_recursive(2, 6, 3, |inner| {
        prop::collection::vec(inner, 0..3).prop_map(|terms| format!("[{}]", terms.join(", ")))
    })
}

fn condition() -> impl Strategy<Value = String> {
    let operators = prop::sample::select(vec!["===", "!==", "==", "!=", "<", "<=", ">", ">="]);
    let compared = (operand(), operators, operand()).prop_map(|(a, operator, b)| format!("{a} {operator} {b}"));
    let leaf = prop_oneof![3 => compared, 1 => path(), 1 => path().prop_map(|path| format!("!{path}"))];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let pair = (inner.clone(), prop::sample::select(vec!["&&", "||"]), inner.clone());
        prop_oneof![
            pair.prop_map(|(a, operator, b)| format!("{a} {operator} {b}")),
            inner.clone().prop_map(|inner| format!("({inner})")),
            inner.prop_map(|inner| format!("!({inner})")),
        ]
    })
}

fn source() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        (term(), term()).prop_map(|(key, value)| format!("emit({key}, {value});")),
        term().prop_map(|key| format!("emit({key});")),
        (condition(), term()).prop_map(|(condition, key)| format!("if ({condition}) emit({key});")),
        (condition(), term()).prop_map(|(condition, key)| format!("if ({condition}) {{ emit(1, {key}) }}")),
        condition().prop_map(|condition| format!("if ({condition}) return;")),
    ];
    prop::collection::vec(step, 1..4).prop_map(|steps| format!("function (doc) {{ {} }}", steps.join(" ")))
}

fn value() -> impl Strategy<Value = Value> {
    use prop::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    let fraction = (-4_000_i64..4_000).prop_map(|n| Value::Float(n as f64 / 8.0));
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-2_i64..3).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        (POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO).prop_map(Value::Float),
        fraction,
        prop::sample::select(vec!["", "x", "é", "1", "\u{0}\n\"\\\u{2028}", "😀"]).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let names = prop::sample::select(vec!["a", "b", "n", "1", "0", "__proto__", "length", "é"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((names.prop_map(str::to_owned), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn document() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec!["_id", "a", "b", "n", "other"]).prop_map(str::to_owned);
    prop::collection::vec((names, value()), 0..6).prop_map(|members| {
        let members: Object = members.into_iter().collect();
        String::from_utf8(members.to_vec()).unwrap()
    })
}

#[test]
fn rows_are_those_of_the_engine() {
    let runtime = runtime();
    let sandbox = std::cell::RefCell::new(Sandbox::new(&env(&runtime), DESIGN, |_| {}).unwrap());
    let (told, asked) = (Cell::new(0_usize), Cell::new(0_usize));
    let mut runner = TestRunner::new(Runs { cases: 1500, failure_persistence: None, ..Runs::default() });
    let strategy = (source(), prop::collection::vec(document(), 4));
    let done = runner.run(&strategy, |(source, docs)| {
        let plain = Plain::read(&source);
        prop_assert!(plain.is_some(), "not understood: {}", source);
        for doc in docs {
            let Some(rows) = plain.as_ref().and_then(|plain| plain.rows(doc.as_bytes())) else {
                asked.set(asked.get() + 1);
                continue;
            };
            told.set(told.get() + 1);
            prop_assert_eq!(shown(rows), by_engine(&mut sandbox.borrow_mut(), &source, &doc), "{} of {}", source, doc);
        }
        Ok(())
    });
    done.unwrap();
    assert!(told.get() * 4 > asked.get(), "{} told, {} asked", told.get(), asked.get());
}

fn program(views: &str) -> Program {
    let rev = Revision::parse("1-967a00dff5e02add41819138abb3284d").unwrap();
    let body = format!(r#"{{"views":{views}}}"#).into_bytes().into();
    let stored = StoredRevision { rev, deleted: false, body, attachments: Vec::new() };
    Program::new("db", &DocId::new("_design/d"), &stored)
}

#[test]
fn rows_of_one_document_may_come_from_the_engine_and_those_of_its_neighbours_not() {
    let runtime = runtime();
    let env = env(&runtime);
    let scripts = Scripts::new(&env, &Config::in_memory(&env, Vec::new()));
    let (a, b) = ("function (doc) { emit(doc.a, doc.b.c); }", "function (doc) { emit(doc.a); }");
    let views = format!(r#"{{"a":{{"map":"{a}"}},"b":{{"map":"{b}"}}}}"#);
    let docs = [r#"{"a":1,"b":{"c":2.0}}"#, r#"{"a":2,"b":"text"}"#, r#"{"a":3}"#, r#"{"a":9007199254740993,"b":[]}"#];
    let docs: Vec<String> = docs.map(str::to_owned).into();
    let program = program(&views);
    let told = runtime.block_on(scripts.rows(&program, &[a, b], docs.clone())).unwrap();
    let shown: Vec<Vec<String>> = told.iter().map(|lists| lists.iter().cloned().map(shown).collect()).collect();
    let wanted = [
        ["[[1,2]]", "[[1,null]]"],
        ["[[2,null]]", "[[2,null]]"],
        ["[]", "[[3,null]]"],
        ["[[9007199254740992,null]]", "[[9007199254740992,null]]"],
    ];
    assert_eq!(shown, wanted);
    let engine = runtime.block_on(scripts.map(&program, &[a, b], docs)).unwrap();
    assert_eq!(told, engine.into_iter().map(all_rows).collect::<Vec<_>>());
}

#[test]
fn a_neighbour_that_could_change_built_in_objects_leaves_all_to_the_engine() {
    let plain = r#""a":{"map":"function (doc) { emit(doc.a); }"}"#;
    assert!(program(&format!("{{{plain}}}")).maps_only_read());
    for other in ["Object.prototype.a = 1;", "require('views/lib/x');"] {
        assert!(!program(&format!(r#"{{{plain},"b":{{"map":"function (doc) {{ {other} }}"}}}}"#)).maps_only_read());
    }
}
