//! The answer of `_explain` (`conformance/cases/queries`).

use std::collections::BTreeSet;

use super::bookmark::NIL;
use super::candidates::{Indexes, candidates};
use super::catalogue::{FieldIndex, all_docs_value, object};
use super::planner::is_covering;
use super::request::FindRequest;
use super::text::{TextIndex, TextKind, TextQuery};
use crate::document::collate::Collator;
use crate::document::json::{Object, Value};
use crate::document::selector::{FieldRange, IndexRange};

/// What stands for a key greater than any.
const MAX: &str = "<MAX>";

/// What the answer is about.
#[derive(Clone, Copy, Debug)]
pub struct ExplainContext<'a> {
    /// The database's name.
    pub database: &'a str,
    /// Whether the database goes by partitions.
    pub partitioned: bool,
    /// The partition asked.
    pub partition: Option<&'a str>,
    /// Whether to tell `range`.
    pub with_range: bool,
}

/// How a query would be answered: `Ok` by an index or (`None`) by all documents, `Err` not at all.
pub type Choice = Result<Option<FieldIndex>, ()>;

/// The answer.
pub fn explain(
    request: &FindRequest,
    choice: &Choice,
    indexes: Indexes<'_>,
    asked: ExplainContext<'_>,
    collator: &Collator,
) -> Value {
    let chosen = match choice {
        Ok(Some(index)) => index.to_value(),
        Ok(None) => all_docs_value(),
        Err(()) => Value::Null,
    };
    let mut answer = Object::new();
    answer.push("dbname", asked.database);
    answer.push("index", chosen);
    answer.push("partitioned", asked.partitioned);
    answer.push("selector", request.selector.to_value());
    answer.push("opts", options(request, asked.partition));
    answer.push("limit", request.limit);
    answer.push("skip", request.skip);
    answer.push("fields", fields(request));
    answer.push("index_candidates", candidates(request, choice, indexes, asked, collator));
    answer.push("selector_hints", Value::Array(vec![hints(request)]));
    if choice.is_ok() {
        answer.push("mrargs", arguments(request, choice, asked.partition, collator));
        if asked.with_range {
            let (start, end) = ends(request, choice, collator);
            answer.push("range", object([("start_key", start), ("end_key", end)]));
        }
        answer.push("covering", covers(request, choice));
    }
    Value::Object(answer)
}

/// The answer for a query that a text index answers.
pub fn explain_text(
    request: &FindRequest,
    (index, query, sort): (&TextIndex, &TextQuery, &[String]),
    indexes: Indexes<'_>,
    asked: ExplainContext<'_>,
    collator: &Collator,
) -> Value {
    let mut answer = Object::new();
    answer.push("dbname", asked.database);
    answer.push("index", index.to_value());
    answer.push("partitioned", asked.partitioned);
    answer.push("selector", request.selector.to_value());
    let mut opts = options(request, asked.partition);
    if let (Value::Object(opts), None) = (&mut opts, &request.bookmark) {
        opts.insert("bookmark", Vec::new());
    }
    answer.push("opts", opts);
    answer.push("limit", request.limit);
    answer.push("skip", request.skip);
    answer.push("fields", fields(request));
    answer.push("index_candidates", candidates(request, &Err(()), indexes, asked, collator));
    answer.push("selector_hints", Value::Array(vec![hints(request), text_hints(request, query, index.kind)]));
    answer.push("query", query.text.as_str());
    answer.push("partition", asked.partition.map_or(Value::Null, Value::from));
    let parts = sort.iter().map(|part| part.as_str().into()).collect::<Vec<Value>>();
    let by_relevance = if index.kind == TextKind::Plain { "relevance".into() } else { Value::Null };
    answer.push("sort", if parts.is_empty() { by_relevance } else { Value::Array(parts) });
    Value::Object(answer)
}

/// Whether the index alone answers the query.
fn covers(request: &FindRequest, choice: &Choice) -> bool {
    matches!(choice, Ok(Some(index)) if is_covering(request, index))
}

fn fields(request: &FindRequest) -> Value {
    Value::Array(request.fields.paths().iter().map(|path| path.as_str().into()).collect())
}

fn options(request: &FindRequest, partition: Option<&str>) -> Value {
    let use_index = request.use_index.iter().map(|part| part.as_str().into()).collect();
    let sort = request.sort.fields.iter().map(|name| (name.as_str(), request.sort.direction().into()));
    object([
        ("use_index", Value::Array(use_index)),
        ("bookmark", request.bookmark.as_deref().unwrap_or(NIL).into()),
        ("limit", request.limit.into()),
        ("skip", request.skip.into()),
        ("sort", object(sort)),
        ("fields", fields(request)),
        ("partition", partition.unwrap_or_default().into()),
        ("r", request.r.into()),
        ("conflicts", request.conflicts.into()),
        ("stale", if request.stale { "ok".into() } else { false.into() }),
        ("update", request.update.into()),
        ("stable", request.stable.into()),
        ("execution_stats", request.execution_stats.into()),
        ("allow_fallback", request.allow_fallback.unwrap_or(true).into()),
    ])
}

fn hints(request: &FindRequest) -> Value {
    let list = |names: Vec<&str>| Value::Array(names.into_iter().map(Value::from).collect());
    let indexable = request.selector.indexable_fields();
    let others = request.selector.fields().into_iter().filter(|name| !indexable.contains(name)).collect();
    object([
        ("type", "json".into()),
        ("indexable_fields", list(indexable.iter().copied().collect())),
        ("unindexable_fields", list(others)),
    ])
}

/// Which fields a text index would be asked for.
fn text_hints(request: &FindRequest, query: &TextQuery, kind: TextKind) -> Value {
    let name = |field: &String| field.rsplit_once(':').map_or(field.clone(), |(name, _)| name.to_owned());
    let indexable: BTreeSet<String> = query.fields.iter().flatten().map(name).collect();
    let others: Vec<Value> =
        request.selector.fields().into_iter().filter(|name| !indexable.contains(*name)).map(Value::from).collect();
    object([
        ("type", kind.name().into()),
        ("indexable_fields", indexable.into_iter().map(Value::from).collect::<Vec<_>>().into()),
        ("unindexable_fields", others.into()),
    ])
}

/// The first and the last key in the direction of reading.
fn ends(request: &FindRequest, choice: &Choice, collator: &Collator) -> (Value, Value) {
    if request.selector.is_empty_combination() {
        return (Value::Null, Value::Null);
    }
    let (low, high) = match choice {
        Ok(Some(index)) => match request.selector.index_range(&index.names(), collator) {
            IndexRange::Empty => (Value::Null, Value::Null),
            IndexRange::Keys { start, mut end } => {
                end.iter_mut().for_each(show_prefix_end);
                end.push(MAX.into());
                (Value::Array(start), Value::Array(end))
            }
        },
        _ => match request.selector.field_range("_id", collator) {
            FieldRange::Empty => (Value::Null, Value::Null),
            FieldRange::Between(low, high) => {
                let mut high = high.map_or(MAX.into(), |high| high.value);
                show_prefix_end(&mut high);
                (low.map_or(Value::Null, |low| low.value), high)
            }
        },
    };
    if request.sort.descending { (high, low) } else { (low, high) }
}

/// CouchDB shows U+FFFF behind a prefix. What is read ends behind every other character, too.
fn show_prefix_end(key: &mut Value) {
    if let Value::String(text) = key
        && text.ends_with(char::MAX)
    {
        text.pop();
        text.push('\u{ffff}');
    }
}

fn arguments(request: &FindRequest, choice: &Choice, partition: Option<&str>, collator: &Collator) -> Value {
    let (start, end) = ends(request, choice, collator);
    object([
        // Documents of several replicas are read behind the index.
        ("include_docs", (!covers(request, choice) && request.r <= 1).into()),
        ("view_type", "map".into()),
        ("reduce", false.into()),
        ("partition", partition.map_or(Value::Null, Value::from)),
        ("start_key", start),
        ("end_key", end),
        ("direction", if request.sort.descending { "rev".into() } else { "fwd".into() }),
        // `stale` is the old word for both.
        ("stable", (request.stable || request.stale).into()),
        ("update", (request.update && !request.stale).into()),
        ("conflicts", if request.conflicts { true.into() } else { "undefined".into() }),
    ])
}
