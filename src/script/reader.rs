//! Analysis of a function's text: whether the function only reads its arguments, which then need not be frozen.
//!
//! The analysis accepts few words in few places; anything else counts as a change. Assumes that all code that ran
//! before in the same context was found harmless, too, so that built-in functions are unchanged.

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'s> {
    /// One of `( ) [ ] { } , ; : .`
    Mark(u8),
    /// What begins with a digit, up to its point if it has one.
    Number(&'s str),
    /// A run of characters of operators.
    Operator(&'s str),
    /// What stands between quotes.
    Text(&'s str),
    /// A name or keyword.
    Word(&'s str),
}

use Token::{Mark, Operator, Text, Word};

const MARKS: &[u8] = b"()[]{},;:.";
const OPERATOR_CHARS: &[u8] = b"=!<>+-*%&|^~?";
/// Operators that change nothing; runs that are not listed may.
const OPERATORS: &[&str] = &[
    "!", "!!", "!=", "!==", "%", "&", "&&", "&&!", "*", "+", "-", "<", "<=", "==", "===", "=>", ">", ">=", "?", "?!",
    "??", "|", "||", "||!",
];
/// Operators that change what stands before them.
const ASSIGNMENTS: &[&str] = &["+=", "-=", "=", "=!", "=-"];
/// Functions that may be called, and stand for nothing else.
const FUNCTIONS: &[&str] =
    &["Boolean", "Number", "String", "emit", "isArray", "isFinite", "isNaN", "parseFloat", "parseInt"];
/// Built-in functions that may be called as members: they change neither what they belong to nor their arguments.
const METHODS: &[&str] = &[
    "abs",
    "ceil",
    "charAt",
    "charCodeAt",
    "concat",
    "endsWith",
    "floor",
    "getDate",
    "getDay",
    "getFullYear",
    "getHours",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "getTime",
    "getUTCDate",
    "getUTCDay",
    "getUTCFullYear",
    "getUTCHours",
    "getUTCMinutes",
    "getUTCMonth",
    "getUTCSeconds",
    "hasOwnProperty",
    "includes",
    "indexOf",
    "isArray",
    "join",
    "keys",
    "lastIndexOf",
    "max",
    "min",
    "parse",
    "round",
    "slice",
    "split",
    "startsWith",
    "substr",
    "substring",
    "toFixed",
    "toISOString",
    "toJSON",
    "toLowerCase",
    "toString",
    "toUpperCase",
    "trim",
    "valueOf",
];
/// The same, with a function that is written out as their argument.
const CALLERS: &[&str] = &["every", "filter", "forEach", "map", "reduce", "some"];
/// Keywords before a parenthesis that is no call.
const KEYWORDS: &[&str] = &[
    "case", "catch", "do", "else", "for", "function", "if", "in", "return", "switch", "throw", "typeof", "void",
    "while",
];
/// Ways to change anything, or to what does.
const FORBIDDEN: &[&str] = &[
    "Function",
    "Reflect",
    "__proto__",
    "arguments",
    "class",
    "constructor",
    "delete",
    "eval",
    "globalThis",
    "import",
    "prototype",
    "super",
    "this",
    "with",
];

/// See the module head.
pub(super) fn only_reads(source: &str) -> bool {
    let Some(tokens) = tokens(source) else { return false };
    let tokens = Tokens(&tokens);
    (0..tokens.0.len()).all(|at| tokens.is_harmless(at))
}

/// The tokens of a text; `None` where it has anything that is not known here: patterns, templates, escapes.
pub(super) fn tokens(source: &str) -> Option<Vec<Token<'_>>> {
    // These end lines, and comments with them.
    if source.contains(['\u{2028}', '\u{2029}']) {
        return None;
    }
    let bytes = source.as_bytes();
    let run = |from: usize, is_in: &dyn Fn(u8) -> bool| {
        from + bytes[from..].iter().position(|byte| !is_in(*byte)).unwrap_or(bytes.len() - from)
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at).copied() {
        let end = match byte {
            b' ' | b'\t' | b'\n' | b'\r' => at + 1,
            b'/' => match bytes.get(at + 1)? {
                b'/' => run(at, &|byte| !matches!(byte, b'\n' | b'\r')),
                b'*' => at + 2 + source[at + 2..].find("*/")? + 2,
                _ => return None,
            },
            b'"' | b'\'' => {
                let mut end = at + 1;
                while *bytes.get(end)? != byte {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                out.push(Text(&source[at + 1..end]));
                end + 1
            }
            b'0'..=b'9' => {
                let end = run(at, &|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                out.push(Token::Number(&source[at..end]));
                end
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$' => {
                let end = run(at, &|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'));
                out.push(Word(&source[at..end]));
                end
            }
            mark if MARKS.contains(&mark) => {
                out.push(Mark(mark));
                at + 1
            }
            operator if OPERATOR_CHARS.contains(&operator) => {
                let end = run(at, &|byte| OPERATOR_CHARS.contains(&byte));
                out.push(Operator(&source[at..end]));
                end
            }
            _ => return None,
        };
        at = end;
    }
    Some(out)
}

struct Tokens<'t>(&'t [Token<'t>]);

impl Tokens<'_> {
    /// The n-th token before one.
    fn before(&self, at: usize, n: usize) -> Option<Token<'_>> {
        at.checked_sub(n).map(|at| self.0[at])
    }

    /// The n-th token behind one.
    fn behind(&self, at: usize, n: usize) -> Option<Token<'_>> {
        self.0.get(at + n).copied()
    }

    fn is_harmless(&self, at: usize) -> bool {
        let next = self.behind(at, 1);
        match self.0[at] {
            Mark(b'(') => self.is_harmless_call(at),
            // A computed name in an object.
            Mark(b']') => next != Some(Mark(b':')),
            Mark(_) | Token::Number(_) => true,
            Operator("++") => {
                let ends = matches!(next, Some(Mark(b')' | b']' | b'}' | b',' | b';')));
                ends && self.is_binding(at)
            }
            Operator(run) if ASSIGNMENTS.contains(&run) => self.is_binding(at),
            Operator(run) => OPERATORS.contains(&run),
            Text(text) => {
                let is_name = next == Some(Mark(b':')) && (is_method(text) || text.contains('\\'));
                !is_name && !FORBIDDEN.contains(&text)
            }
            Word(word) => self.is_harmless_word(at, word),
        }
    }

    /// Whether a variable stands before, and no member.
    fn is_binding(&self, at: usize) -> bool {
        matches!(self.before(at, 1), Some(Word(_))) && self.before(at, 2) != Some(Mark(b'.'))
    }

    fn is_harmless_call(&self, at: usize) -> bool {
        match self.before(at, 1) {
            None | Some(Operator(_) | Mark(b'(' | b'[' | b'{' | b',' | b';' | b':')) => true,
            Some(Word(word)) => match self.before(at, 2) {
                Some(Mark(b'.')) => is_method(word),
                Some(Word("new")) => word == "Date",
                _ => KEYWORDS.contains(&word) || FUNCTIONS.contains(&word),
            },
            _ => false,
        }
    }

    fn is_harmless_word(&self, at: usize, word: &str) -> bool {
        let (before, next) = (self.before(at, 1), self.behind(at, 1));
        let is_called = next == Some(Mark(b'('));
        let static_of = |name| [next, self.behind(at, 2), self.behind(at, 3)] == called_member(name);
        match word {
            _ if FORBIDDEN.contains(&word) => false,
            _ if before == Some(Mark(b'.')) => match CALLERS.contains(&word) {
                true => is_called && self.is_written_function(at + 2),
                false => is_called || !is_method(word),
            },
            "Array" => static_of("isArray"),
            "Date" => before == Some(Word("new")) || next == Some(Mark(b'.')),
            "Object" => static_of("keys"),
            "new" => next == Some(Word("Date")) && self.behind(at, 2) == Some(Mark(b'(')),
            // What a loop assigns to.
            "in" | "of" => self.is_binding(at) || matches!(before, Some(Text(_))),
            _ if FUNCTIONS.contains(&word) => is_called && before != Some(Word("function")),
            // A member of an object that would be called in place of the method.
            _ => !is_method(word) || !matches!(next, Some(Mark(b':' | b',' | b'}'))),
        }
    }

    /// Whether an argument is a function that is written out, and nothing behind it.
    fn is_written_function(&self, at: usize) -> bool {
        if self.0.get(at) != Some(&Word("function")) {
            return false;
        }
        let mut depth = 0_usize;
        for (n, token) in self.0.iter().enumerate().skip(at + 1) {
            match token {
                Mark(b'(' | b'[' | b'{') => depth += 1,
                Mark(b')' | b']' | b'}') if depth == 0 => return false,
                Mark(close @ (b')' | b']' | b'}')) => {
                    depth -= 1;
                    if depth == 0 && *close == b'}' {
                        return matches!(self.behind(n, 1), Some(Mark(b',' | b')')));
                    }
                }
                _ => {}
            }
        }
        false
    }
}

/// What follows the name of an object of which one function is called.
fn called_member(name: &str) -> [Option<Token<'_>>; 3] {
    [Some(Mark(b'.')), Some(Word(name)), Some(Mark(b'('))]
}

fn is_method(word: &str) -> bool {
    METHODS.contains(&word) || CALLERS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::only_reads;

    #[test]
    fn usual_maps_only_read() {
        for body in [
            "emit([doc.city, doc.n], doc.price);",
            "if (doc.type === 'order' && !doc.closed) { emit(doc._id, null) }",
            "for (var i = 0; i < doc.tags.length; i++) emit(doc.tags[i], 1);",
            "for (var name in doc) { emit(name, doc[name]) } // all members",
            "(doc.tags || []).forEach(function (tag) { emit(tag.toLowerCase().trim()); });",
            "var d = new Date(doc.at), total = 0; total += doc.n; emit([d.getFullYear(), d.getMonth()], total);",
            "if (Array.isArray(doc.a)) emit(Object.keys(doc).length, {n: doc.a.slice(1), 'x y': 1.5});",
            "/* a 'comment' */ const price = doc.price ?? -1; emit(price > 0 ? price : 0, doc?.owner?.name)",
        ] {
            assert!(only_reads(&format!("function (doc) {{ {body} }}")), "{body}");
        }
        assert!(only_reads("doc => emit(doc.a)") && only_reads("(doc) => { emit(doc.a, doc); }"));
    }

    #[test]
    fn whatever_could_change_a_document_counts() {
        for body in [
            "doc.a = 1",
            "[undefined].forEach(function () {} && [].sort, doc.l)",
            "[doc.l].forEach(function () {}.call, [].push)",
            "var of = ({})['con' + 'structor'].assign; return of(doc, {n: 1})",
            "var Date = (function () {})['con' + 'structor']; emit(null, {d: doc, toJSON: new Date('this.d.n = 1')})",
            "emit(null, {d: doc, toJSON: doc.f})",
            "doc['a'] = 1",
            "doc.a += 1",
            "doc.a <<= 1",
            "doc.a ??= 1",
            "doc.a++;",
            "n\n++doc.a;",
            "--doc.a",
            "delete doc.a",
            "[doc.a] = [1]",
            "({a: doc.a} = {a: 1})",
            "for (doc.a in {x: 1});",
            "for (doc.a of [1]);",
            "doc.l.sort()",
            "doc.l.push(1)",
            "doc.l['sort']()",
            "var f = doc.l.sort; f.call(doc.l)",
            "Object.assign(doc, {a: 1})",
            "var o = {slice: doc.f}; o.slice(doc)",
            "var o = {'slice': doc.f}; o.slice(doc)",
            "var o = {['sl' + 'ice']: doc.f}; o.slice(doc)",
            "[1].forEach([].sort, doc.l)",
            "change(doc)",
            "new Change(doc)",
            "require('views/lib/x').change(doc)",
            "emit = change; emit(doc)",
            "function emit(doc) { }",
            "with (doc) { a = 1 }",
            "eval('doc.a = 1')",
            "`${doc.a}`",
            "doc.a.replace(/x/, 'y')",
            "d\\u006fc.a",
            "// \u{2028} doc.a = 1",
            "(function () {})()",
            "Object.isFrozen(doc)",
        ] {
            assert!(!only_reads(&format!("function (doc) {{ {body} }}")), "{body}");
        }
        assert!(!only_reads("function (doc) { emit('open") && !only_reads("function (doc) { /* open"));
    }
}
