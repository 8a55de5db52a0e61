//! Fuzz target of functions that are read without the engine. See `world::fuzz`.

use super::plain::Plain;
use crate::world::fuzz::Fuzz;

#[test]
fn fuzz_functions_that_are_read_without_the_engine() {
    let sources = [
        "function (doc) { emit(doc._id, 1); }",
        "function(doc){if(doc.type==='a'&&doc.n>1){emit([doc.a,doc.b.c],null);}}",
        "(doc) => { if (doc.x) emit(doc.x, {a: 1}); else { emit('b', [doc.y]); } }",
        "function (d) { // x\n if (!d.a || d.b != null) return; emit(d.a, d['b']); }",
    ];
    let words = [
        "emit(", ")", "doc.", "===", "!", "&&", "||", "'", "\\u0041", "/*", "//", "{", "}", "return", "1e9", "0x", ";",
    ];
    Fuzz::new("plain functions", sources).words(&words).run(|source| {
        let Ok(source) = std::str::from_utf8(source) else { return };
        Plain::read(source);
    });
}
