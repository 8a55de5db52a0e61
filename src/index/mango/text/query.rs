//! A selector as a query of a text index, in the words that `_explain` shows.
//!
//! The query finds all that the selector matches and sometimes more: the selector is applied to documents, too.

use std::collections::BTreeSet;

use super::{DEFAULT, NAMES, TextError, TextKind, escaped, escaped_path, steps, type_of};
use crate::document::json::Value;
use crate::document::selector::{Comparison, Condition, Quantifier, Selector};
use crate::index::mango::request::Sort;

/// A query of a text index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextQuery {
    /// In the syntax of searches.
    pub text: String,
    /// The fields that an index must have for it, as `name:type`; `None`: no index will do.
    pub fields: Option<BTreeSet<String>>,
}

/// What a selector asks of a text index of a kind.
///
/// # Errors
/// `invalid_operator` for a `$text` that is no text.
pub fn text_query(selector: &Selector, kind: TextKind) -> Result<TextQuery, TextError> {
    let mut writer = Writer { fields: Some(BTreeSet::new()), kind };
    let text = writer.selector(selector, &[])?;
    Ok(TextQuery { text, fields: writer.fields })
}

struct Writer {
    fields: Option<BTreeSet<String>>,
    kind: TextKind,
}

/// A path's steps, unescaped.
type Steps<'s> = &'s [String];

/// Of nothing, everything: as selectors have it.
fn joined(parts: &[String], word: &str) -> String {
    if parts.is_empty() { "(*:*)".to_owned() } else { format!("({})", parts.join(word)) }
}

impl Writer {
    fn selector(&mut self, selector: &Selector, path: Steps<'_>) -> Result<String, TextError> {
        Ok(match selector {
            Selector::Everything => "(*:*)".to_owned(),
            Selector::And(all) => joined(&self.each(all, path)?, " AND "),
            Selector::Or(all) => joined(&self.each(all, path)?, " OR "),
            Selector::Nor(all) => {
                let exact: Vec<Selector> = all.iter().filter(|one| is_exact_selector(one)).cloned().collect();
                let parts = self.each(&exact, path)?;
                but_not(path, &parts)
            }
            Selector::Not(inner) if is_exact_selector(inner) => {
                let inner = self.selector(inner, path)?;
                but_not(path, &[format!("({inner})")])
            }
            Selector::Not(_) => but_not(path, &[]),
            Selector::Text(Value::String(text)) => {
                self.needs(DEFAULT.to_owned());
                format!("({DEFAULT}:{})", quoted(text))
            }
            Selector::Text(_) => {
                return Err(TextError::Refused("invalid_operator", "Invalid text operator: $text".to_owned()));
            }
            Selector::Field(at, condition) => {
                let more = if at.as_str().is_empty() { Vec::new() } else { steps(at.as_str()) };
                let all: Vec<String> = path.iter().cloned().chain(more).collect();
                let plain = self.condition(condition, &all)?;
                // An element by its number is indexed as one of its array's.
                match all.iter().any(|step| is_number(step)) {
                    false => plain,
                    true => {
                        let element = |step: &String| if is_number(step) { "[]".to_owned() } else { step.clone() };
                        let of_array: Vec<String> = all.iter().map(element).collect();
                        joined(&[plain, self.condition(condition, &of_array)?], " OR ")
                    }
                }
            }
        })
    }

    fn each(&mut self, all: &[Selector], path: Steps<'_>) -> Result<Vec<String>, TextError> {
        all.iter().map(|one| self.selector(one, path)).collect()
    }

    fn condition(&mut self, condition: &Condition, path: Steps<'_>) -> Result<String, TextError> {
        let element = || [path, &["[]".to_owned()]].concat();
        Ok(match condition {
            Condition::Compare(Comparison::Ne, value) if type_of(value).is_none() => exists(path),
            Condition::Compare(Comparison::Ne, value) => {
                let equal = self.equal(value, path);
                format!("({} AND NOT ({equal}))", exists(path))
            }
            Condition::Compare(Comparison::Eq, value) => self.equal(value, path),
            Condition::Compare(comparison, value) => match type_of(value) {
                None | Some("null") => exists(path),
                Some(_) => self.field(path, value, &range(*comparison, value, self.kind)),
            },
            Condition::In(values) => self.among(values, path),
            Condition::Nin(values) => {
                // Of a list or an object an index knows only that something is there.
                let scalars: Vec<Value> = values.iter().filter(|value| type_of(value).is_some()).cloned().collect();
                match scalars.is_empty() {
                    true => exists(path),
                    false => format!("({} AND NOT ({}))", exists(path), self.among(&scalars, path)),
                }
            }
            Condition::Exists(true) => exists(path),
            Condition::Exists(false) => {
                self.fields = None;
                format!("({NAMES}:/.*/  AND NOT ({}))", exists(path))
            }
            Condition::Type(_) => exists(path),
            Condition::Size(size) => {
                // Lengths are indexed beside the fields that an index names.
                format!("({}_3alength:{})", escaped_steps(&element()), plain(size))
            }
            Condition::Mod(..) => exists_as(path, "number"),
            Condition::Regex(_) => {
                self.needs(format!("{}:string", path.join(".")));
                exists_as(path, "string")
            }
            Condition::BeginsWith(prefix) => {
                self.field(path, &Value::from(prefix.as_str()), &format!("{}*", escaped_text(prefix)))
            }
            Condition::All(values) => {
                let parts: Vec<String> = values.iter().map(|value| self.equal(value, &element())).collect();
                joined(&parts, " AND ")
            }
            Condition::Each(Quantifier::Elem | Quantifier::All, inner) => self.selector(inner, &element())?,
            Condition::Each(Quantifier::Key, _) => exists(path),
            Condition::Not(inner) if !is_exact(inner) => exists(path),
            Condition::Not(inner) => {
                let inner = self.condition(inner, path)?;
                format!("({} AND NOT ({inner}))", exists(path))
            }
        })
    }

    fn among(&mut self, values: &[Value], path: Steps<'_>) -> String {
        let element = [path, &["[]".to_owned()]].concat();
        // As in CouchDB an index needs no fields of elements for it.
        let mut of_elements = Writer { fields: None, kind: self.kind };
        let one = |value: &Value| joined(&[self.equal(value, path), of_elements.equal(value, &element)], " OR ");
        let parts: Vec<String> = values.iter().map(one).collect();
        joined(&parts, " OR ")
    }

    fn equal(&mut self, value: &Value, path: Steps<'_>) -> String {
        match type_of(value) {
            None => exists(path),
            Some(_) => self.field(path, value, &written(value)),
        }
    }

    fn field(&mut self, path: Steps<'_>, value: &Value, sought: &str) -> String {
        let kind = type_of(value).unwrap_or_default();
        if kind != "null" {
            self.needs(format!("{}:{kind}", path.join(".")));
        }
        format!("({}_3a{kind}:{sought})", escaped_steps(path))
    }

    fn needs(&mut self, field: String) {
        if let Some(fields) = &mut self.fields {
            fields.insert(field);
        }
    }
}

/// What is at the path, or anywhere, but for what matches one of some queries.
fn but_not(path: Steps<'_>, parts: &[String]) -> String {
    let all = if path.is_empty() { "(*:*)".to_owned() } else { exists(path) };
    match parts {
        [] => all,
        parts => format!("({all} AND NOT {})", joined(parts, " OR ")),
    }
}

/// Whether a query for a condition finds no document that does not match it: only then its negation is one of the
/// query.
fn is_exact(condition: &Condition) -> bool {
    match condition {
        Condition::Compare(Comparison::Ne, _) => false,
        Condition::Compare(_, value) => type_of(value).is_some_and(|kind| kind != "null"),
        Condition::In(values) => !values.is_empty() && values.iter().all(|value| type_of(value).is_some()),
        _ => false,
    }
}

/// The same of a selector.
fn is_exact_selector(selector: &Selector) -> bool {
    match selector {
        Selector::And(all) | Selector::Or(all) => !all.is_empty() && all.iter().all(is_exact_selector),
        Selector::Field(at, condition) => !steps(at.as_str()).iter().any(|step| is_number(step)) && is_exact(condition),
        _ => false,
    }
}

fn is_number(step: &str) -> bool {
    !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit())
}

fn escaped_steps(path: Steps<'_>) -> String {
    path.iter().map(|step| escaped(step)).collect::<Vec<_>>().join(".")
}

/// Documents that have something at the path: a value, or a field below it.
fn exists(path: Steps<'_>) -> String {
    let path = escaped_steps(path);
    format!("(({NAMES}:{path}_3a*) OR ({NAMES}:{path}.*))")
}

fn exists_as(path: Steps<'_>, kind: &str) -> String {
    format!("({NAMES}:{}_3a{kind})", escaped_steps(path))
}

/// The ends of a range of texts are those of the reference, but where fields have types: a range can be open there.
fn range(comparison: Comparison, value: &Value, kind: TextKind) -> String {
    let is_text = matches!(value, Value::String(_));
    let is_closed = is_text && kind == TextKind::Plain;
    let (least, greatest) = if is_closed { ("\"\"", "u0x10FFFF") } else { ("*", "*") };
    let value = if is_text { written(value) } else { plain(value) };
    match comparison {
        Comparison::Lt => format!("[{least} TO {value}}}"),
        Comparison::Lte => format!("[{least} TO {value}]"),
        Comparison::Gt => format!("{{{value} TO {greatest}]"),
        _ => format!("[{value} TO {greatest}]"),
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        // Else the sign would be an operator.
        other => plain(other).replacen("-", "\\-", usize::from(plain(other).starts_with('-'))),
    }
}

/// A value that is no text.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "true".to_owned(),
        other => String::from_utf8_lossy(&other.to_vec()).into_owned(),
    }
}

/// A text that reads as a number is left as it is.
fn quoted(text: &str) -> String {
    let is_number = text.parse::<f64>().is_ok() && !text.contains(['"', '\\']);
    if is_number { format!("\"{text}\"") } else { format!("\"{}\"", escaped_text(text)) }
}

/// A text of which no character is an operator; of `&&` and `||` the first is told to be none.
fn escaped_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let is_double = matches!(char, '&' | '|') && chars.peek() == Some(&char);
        if is_double || "+-!(){}[]^\"~*?:\\/".contains(char) || char.is_whitespace() {
            out.push('\\');
        }
        out.push(char);
        if is_double {
            out.extend(chars.next());
        }
    }
    out
}

/// The order asked for, as searches name it; none: best first.
///
/// # Errors
/// `text_sort_error` where neither the field nor the selector tells a type.
pub fn sort_of(sort: &Sort, selector: &Selector) -> Result<Vec<String>, TextError> {
    let mut out = Vec::with_capacity(sort.fields.len());
    for name in &sort.fields {
        let field = escaped_path(name);
        let typed = match () {
            () if field.ends_with("_3astring") => format!("{field}<string>"),
            () if field.ends_with("_3anumber") => format!("{field}<number>"),
            () => {
                let mut types = BTreeSet::new();
                types_of(name, selector, &mut types);
                match types.into_iter().collect::<Vec<_>>()[..] {
                    [kind] => format!("{field}_3a{kind}<{kind}>"),
                    _ => {
                        let reason = format!(
                            "Unspecified or ambiguous sort type. Try appending :number or :string to the sort \
                             field. {name}"
                        );
                        return Err(TextError::Refused("text_sort_error", reason));
                    }
                }
            }
        };
        out.push(if sort.descending { format!("-{typed}") } else { typed });
    }
    Ok(out)
}

/// The types that a selector compares a field with.
fn types_of(name: &str, selector: &Selector, out: &mut BTreeSet<&'static str>) {
    match selector {
        Selector::And(all) | Selector::Or(all) | Selector::Nor(all) => {
            all.iter().for_each(|one| types_of(name, one, out));
        }
        Selector::Not(inner) => types_of(name, inner, out),
        Selector::Field(path, condition) if path.as_str() == name => {
            let values = match condition {
                Condition::Compare(_, value) => std::slice::from_ref(value),
                Condition::In(values) | Condition::Nin(values) | Condition::All(values) => values,
                _ => &[],
            };
            let sortable = values.iter().filter_map(type_of).filter(|kind| ["string", "number"].contains(kind));
            out.extend(sortable);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn query(selector: &str) -> String {
        let selector = Selector::parse(&json::parse(selector.as_bytes()).unwrap()).unwrap();
        text_query(&selector, TextKind::Plain).unwrap().text
    }

    #[test]
    fn selectors_become_queries_as_the_reference_writes_them() {
        for (selector, expected) in [
            (r#"{"$text":"ann","age":{"$lt":35}}"#, r#"(($default:"ann") AND (age_3anumber:[* TO 35}))"#),
            (r#"{"name":"Ann Lee"}"#, r#"(name_3astring:"Ann\ Lee")"#),
            (r#"{"age":{"$gte":5},"ok":true}"#, "((age_3anumber:[5 TO *]) AND (ok_3aboolean:true))"),
            (
                r#"{"addr.city":{"$in":["A b","C"]}}"#,
                "(((addr.city_3astring:\"A\\ b\") OR (addr.city._5b_5d_3astring:\"A\\ b\")) OR \
                 ((addr.city_3astring:\"C\") OR (addr.city._5b_5d_3astring:\"C\")))",
            ),
            (r#"{"age":{"$exists":true}}"#, "(($fieldnames:age_3a*) OR ($fieldnames:age.*))"),
            (r#"{"tags":{"$all":["x"]}}"#, r#"((tags._5b_5d_3astring:"x"))"#),
            (r#"{"age":{"$ne":3}}"#, "((($fieldnames:age_3a*) OR ($fieldnames:age.*)) AND NOT ((age_3anumber:3)))"),
            (r#"{"n":-7}"#, r"(n_3anumber:\-7)"),
            (r#"{"n":{"$ne":[1]}}"#, "(($fieldnames:n_3a*) OR ($fieldnames:n.*))"),
            (r#"{"n":{"$nin":[]}}"#, "(($fieldnames:n_3a*) OR ($fieldnames:n.*))"),
            (
                r#"{"n":{"$nin":[5,{"a":1}]}}"#,
                "((($fieldnames:n_3a*) OR ($fieldnames:n.*)) AND NOT ((((n_3anumber:5) OR (n._5b_5d_3anumber:5)))))",
            ),
            (r#"{"n":{"$mod":[3,1]}}"#, "($fieldnames:n_3anumber)"),
            (r#"{"n":{"$type":"string"}}"#, "(($fieldnames:n_3a*) OR ($fieldnames:n.*))"),
            (r#"{"n":{"$regex":"^a"}}"#, "($fieldnames:n_3astring)"),
            (r#"{"n":{"$beginsWith":"a b*"}}"#, r"(n_3astring:a\ b\**)"),
            (r#"{"n":"a&b && c"}"#, r#"(n_3astring:"a&b\ \&&\ c")"#),
            (r#"{"n":{"$size":2}}"#, "(n._5b_5d_3alength:2)"),
            (r#"{"n":"-7"}"#, r#"(n_3astring:"-7")"#),
            (r#"{"n":{"$gt":"b"}}"#, r#"(n_3astring:{"b" TO u0x10FFFF])"#),
        ] {
            assert_eq!(query(selector), expected, "{selector}");
        }
    }

    #[test]
    fn fields_that_an_index_must_have_are_those_of_the_reference() {
        let fields = |selector: &str| {
            let selector = Selector::parse(&json::parse(selector.as_bytes()).unwrap()).unwrap();
            let fields = text_query(&selector, TextKind::Plain).unwrap().fields;
            fields.map(|fields| fields.into_iter().collect::<Vec<_>>().join(" "))
        };
        for (selector, expected) in [
            (r#"{"n":{"$regex":"^a"}}"#, "n:string"),
            (r#"{"n":{"$beginsWith":"a"}}"#, "n:string"),
            (r#"{"n":{"$mod":[3,1]}}"#, ""),
            (r#"{"n":{"$type":"string"},"m":{"$size":2}}"#, ""),
            (r#"{"n":{"$in":[1,"x"]},"$text":"y"}"#, "$default n:number n:string"),
        ] {
            assert_eq!(fields(selector).as_deref(), Some(expected), "{selector}");
        }
        assert_eq!(fields(r#"{"n":{"$exists":false}}"#), None);
    }

    #[test]
    fn a_range_of_texts_is_open_where_fields_have_types() {
        let selector = Selector::parse(&json::parse(br#"{"n":{"$gt":"b"},"m":{"$lte":"c"}}"#).unwrap()).unwrap();
        let text = text_query(&selector, TextKind::Typed).unwrap().text;
        assert_eq!(text, r#"((n_3astring:{"b" TO *]) AND (m_3astring:[* TO "c"]))"#);
    }

    #[test]
    fn a_sort_has_a_type_or_the_selector_tells_it() {
        let sort = |field: &str, selector: &str| {
            let sort = Sort { fields: vec![field.to_owned()], descending: true };
            sort_of(&sort, &Selector::parse(&json::parse(selector.as_bytes()).unwrap()).unwrap())
        };
        assert_eq!(sort("age:number", "{}"), Ok(vec!["-age_3anumber<number>".to_owned()]));
        assert_eq!(sort("n", r#"{"n":{"$gt":0}}"#), Ok(vec!["-n_3anumber<number>".to_owned()]));
        assert!(matches!(sort("n", r#"{"m":0}"#), Err(TextError::Refused("text_sort_error", _))));
        assert!(sort("n", r#"{"$or":[{"n":0},{"n":"x"}]}"#).is_err());
    }
}
