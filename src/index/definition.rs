//! Definition of one view, or of one declared selector, read from a design document. Pure.

use std::sync::Arc;

use md5::{Digest, Md5};

use crate::document::collate::Collation;
use crate::document::json::{Object, Value};
use crate::document::selector::Selector;
use crate::index::mango::catalogue::LANGUAGE;
use crate::index::reduce::Reduce;

/// Names the rows that a view has: views with equal signatures share them, and a change of anything that rows depend
/// on gives another one. A view's reduce function is no such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub [u8; 16]);

/// Which revisions of a document its rows are made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Sees {
    /// The winner, while the document lives.
    Winner,
    /// Those that the selector matches of all leaves, tombstones too, with the sequence of the document's last change.
    Leaves(Arc<Selector>),
}

/// One view of a design document, or the changes that a selector takes which it declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What rows are made of.
    pub sees: Sees,
    /// The source of its map function; for other languages, the definition as JSON text. A selector has none.
    pub map: String,
    /// Its reduce function.
    pub reduce: Option<Reduce>,
    /// The language of its functions.
    pub language: String,
    /// Whether map functions see `_local_seq`.
    pub local_seq: bool,
    /// Whether map functions see design documents.
    pub include_design: bool,
    /// The order of its keys.
    pub collation: Collation,
    /// Whether rows are kept by partition.
    pub partitioned: bool,
    /// Names its rows.
    pub signature: Signature,
}

/// The language of functions when the design document names none.
pub const JAVASCRIPT: &str = "javascript";

impl Definition {
    /// The view `name` of a design document; `None` when it has no such view. `partitioned`: whether the database is,
    /// which views then are, too, unless `options.partitioned` is false.
    pub fn find(design: &Object, name: &str, partitioned: bool) -> Option<Definition> {
        let views = design.get("views")?.as_object()?;
        // `lib` holds modules, and a view must have a map.
        let view = views.get(name).and_then(Value::as_object)?;
        let map = match view.get("map")? {
            Value::String(source) => source.clone(),
            other => String::from_utf8_lossy(&other.to_vec()).into_owned(),
        };
        let reduce = view.get("reduce").and_then(Value::as_str).map(Reduce::parse);
        let options = design.get("options").and_then(Value::as_object);
        let option = |name| options.and_then(|options| options.get(name)).and_then(Value::as_bool);
        let own_option = |name| view.get("options").and_then(Value::as_object).and_then(|own| own.get(name));
        // As CouchDB 3.5 was measured, and against the specification: the option stands at the view.
        let collation = match own_option("collation").and_then(Value::as_str) {
            Some("raw") => Collation::Raw,
            _ => Collation::Unicode,
        };
        let language = design.get("language").and_then(Value::as_str).unwrap_or(JAVASCRIPT).to_owned();
        let mut definition = Definition {
            sees: Sees::Winner,
            map,
            reduce,
            language,
            local_seq: option("local_seq") == Some(true),
            include_design: option("include_design") == Some(true),
            collation,
            partitioned: partitioned && option("partitioned") != Some(false),
            signature: Signature([0; 16]),
        };
        definition.signature = definition.sign(views.get("lib"));
        Some(definition)
    }

    /// All views of a design document by name, then the selectors that it declares, each read when it is asked for.
    pub fn all(design: &Object, partitioned: bool) -> impl Iterator<Item = (String, Definition)> {
        let views = design.get("views").and_then(Value::as_object);
        let names = views.into_iter().flat_map(Object::iter).map(|(name, _)| name);
        let one = move |name: &str| Definition::find(design, name, partitioned).map(|found| (name.to_owned(), found));
        let declared =
            declared(design).map(|(name, selector)| (name.to_owned(), Definition::selected(selector.into())));
        names.filter_map(one).chain(declared)
    }

    /// Those of its views that one document can make fail as a whole: by a value that their reduce function refuses, or
    /// by an error that a map function calls fatal, which JavaScript does by that word.
    pub fn fallible(design: &Object, partitioned: bool) -> Vec<Definition> {
        let language = design.get("language").and_then(Value::as_str).unwrap_or(JAVASCRIPT);
        let is_foreign = language != JAVASCRIPT && language != LANGUAGE;
        let can_fail = |view: &Object| {
            let text = |name| view.get(name).and_then(Value::as_str);
            is_foreign
                || text("reduce").is_some_and(|reduce| Reduce::parse(reduce) == Reduce::Stats)
                || text("map").is_some_and(|map| map.contains("fatal"))
        };
        let views = design.get("views").and_then(Value::as_object);
        let named = views.into_iter().flat_map(Object::iter);
        let fallible = named.filter(|(_, view)| view.as_object().is_some_and(can_fail));
        fallible.filter_map(|(name, _)| Definition::find(design, name, partitioned)).collect()
    }

    /// The changes that a selector takes; the same for selectors of one digest.
    pub fn selected(selector: Arc<Selector>) -> Definition {
        Definition {
            signature: Signature::of(&[b"changes seen with conflicts", &selector.digest()]),
            sees: Sees::Leaves(selector),
            map: String::new(),
            reduce: None,
            language: LANGUAGE.to_owned(),
            local_seq: false,
            include_design: true,
            collation: Collation::Unicode,
            partitioned: false,
        }
    }

    /// Whether a design document declares this selector.
    pub fn is_declared(&self, design: &Object) -> bool {
        declared(design).any(|(_, selector)| Definition::selected(selector.into()).signature == self.signature)
    }

    /// Modules below `views.lib` are part of what a map function is.
    fn sign(&self, lib: Option<&Value>) -> Signature {
        let flags = [self.local_seq, self.include_design, self.collation == Collation::Raw, self.partitioned];
        let lib = lib.map(Value::to_vec).unwrap_or_default();
        Signature::of(&[self.map.as_bytes(), self.language.as_bytes(), &flags.map(u8::from), &lib])
    }
}

impl Signature {
    pub(super) fn of(parts: &[&[u8]]) -> Signature {
        let mut hash = Md5::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Signature(hash.finalize().into())
    }
}

/// The selectors that a design document of the language `query` declares: the objects among its `filters`, by name.
pub fn declared(design: &Object) -> impl Iterator<Item = (&str, Selector)> {
    declarations(design).filter_map(|(name, filter)| Some((name, Selector::parse(filter).ok()?)))
}

/// Whether a design document may declare a selector; reads none.
pub fn declares(design: &Object) -> bool {
    declarations(design).next().is_some()
}

fn declarations(design: &Object) -> impl Iterator<Item = (&str, &Value)> {
    let is_query = design.get("language").and_then(Value::as_str) == Some(LANGUAGE);
    let filters = design.get("filters").and_then(Value::as_object).filter(|_| is_query);
    filters.into_iter().flat_map(Object::iter).filter(|(_, filter)| matches!(filter, Value::Object(_)))
}

/// What `_info` shows as the signature of a design document's views.
pub fn design_signature(design: &Object) -> String {
    let part = |name| design.get(name).map(Value::to_vec).unwrap_or_default();
    let Signature(hash) = Signature::of(&[&part("views"), &part("options"), &part("language")]);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn definition(text: &str) -> Option<Definition> {
        let value = json::parse(text.as_bytes()).unwrap();
        Definition::find(value.as_object().unwrap(), "v", false)
    }

    #[test]
    fn signatures_change_with_what_rows_depend_on() {
        let sign = |text: &str| definition(text).unwrap().signature;
        let plain = sign(r#"{"views":{"v":{"map":"a"}}}"#);
        assert_eq!(plain, sign(r#"{"language":"javascript","other":1,"views":{"w":{"map":"b"},"v":{"map":"a"}}}"#));
        assert_eq!(plain, sign(r#"{"views":{"v":{"map":"a","reduce":"_sum"}}}"#));
        for other in [
            r#"{"views":{"v":{"map":"b"}}}"#,
            r#"{"views":{"v":{"map":"a","options":{"collation":"raw"}}}}"#,
            r#"{"views":{"v":{"map":"a"},"lib":{"x":"y"}}}"#,
            r#"{"options":{"local_seq":true},"views":{"v":{"map":"a"}}}"#,
        ] {
            assert_ne!(plain, sign(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_view_is_not_found() {
        for text in ["{}", r#"{"views":{}}"#, r#"{"views":{"v":{"reduce":"_sum"}}}"#, r#"{"views":{"v":"x"}}"#] {
            assert_eq!(definition(text), None, "{text}");
        }
    }

    #[test]
    fn declared_selectors_are_known_by_what_they_match() {
        let signatures = |filters: &str, language: &str| {
            let text = format!(r#"{{"language":"{language}","views":{{}},"filters":{filters}}}"#);
            let design = json::parse(text.as_bytes()).unwrap();
            let all = Definition::all(design.as_object().unwrap(), true);
            all.map(|(_, definition)| definition.signature).collect::<Vec<_>>()
        };
        let both = r#"{"a":{"x":1,"y":{"$gt":2}},"b":{"$and":[{"y":{"$gt":2}},{"x":{"$eq":1}},{"x":1}]}}"#;
        let [a, b] = signatures(both, "query")[..] else { panic!("two") };
        assert_eq!(a, b);
        assert_ne!(signatures(r#"{"a":{"x":2,"y":{"$gt":2}}}"#, "query"), [a]);
        assert_eq!(signatures(both, "javascript"), []);
        assert_eq!(signatures(r#"{"a":"function () {}","b":{"x":{"$no":1}}}"#, "query"), []);
    }

    #[test]
    fn views_that_can_fail_are_told_by_their_text() {
        let fallible = |language: &str| {
            let views =
                r#"{"a":{"map":"x"},"b":{"map":"y","reduce":"_stats"},"c":{"map":"throw 'fatal_error'"},"d":1}"#;
            let text = format!(r#"{{"language":"{language}","views":{views}}}"#);
            let design = json::parse(text.as_bytes()).unwrap();
            let all = Definition::fallible(design.as_object().unwrap(), false);
            all.into_iter().map(|definition| definition.map).collect::<Vec<_>>()
        };
        assert_eq!(fallible("javascript"), ["y", "throw 'fatal_error'"]);
        assert_eq!(fallible("python").len(), 3, "who knows what errors mean there");
    }

    #[test]
    fn raw_collation_is_an_option_of_the_view() {
        let raw = definition(r#"{"options":{"collation":"raw"},"views":{"v":{"map":"a"}}}"#).unwrap();
        assert_eq!(raw.collation, Collation::Unicode);
    }
}
