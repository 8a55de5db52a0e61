//! Planner: the choice of the index that answers a query, and the warnings of a query (`conformance/cases/queries`).

use std::collections::BTreeSet;

use super::MangoError;
use super::catalogue::FieldIndex;
use super::request::FindRequest;
use crate::document::collate::Collator;
use crate::document::json::Value;
use crate::document::selector::FieldRange;

/// How a query is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The index; `None`: all documents are read in the order of their ids.
    pub index: Option<FieldIndex>,
    /// Warnings known before any row is read.
    pub warnings: Vec<String>,
}

const NO_INDEX: &str = "No matching index found, create an index to optimize query time.";
const MANY_EXAMINED: &str = "The number of documents examined is high in proportion to the number of results \
    returned. Consider adding a more specific index to improve this.";

/// Documents examined per result that need no warning.
const EXAMINED_PER_RESULT: u64 = 10;

/// Whether a database, and a query of it, go by partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitioning {
    /// The database is partitioned.
    pub database: bool,
    /// The query names a partition.
    pub query: bool,
}

/// Chooses the index.
///
/// # Errors
/// `no_usable_index` for a sort that no index has, `invalid_index` when the fallback is refused.
pub fn plan(
    request: &FindRequest,
    indexes: &[FieldIndex],
    partitioning: Partitioning,
    collator: &Collator,
) -> Result<Plan, MangoError> {
    let ranges = narrowing(request, collator);
    let fits = |index: &&FieldIndex| index.partitioned == partitioning.query && is_usable(request, index);
    let named: Vec<&FieldIndex> = indexes.iter().filter(fits).filter(|index| is_named(request, index)).collect();
    if let Some(best) = best(&ranges, named) {
        return Ok(Plan { index: Some(best.clone()), warnings: Vec::new() });
    }
    if request.allow_fallback == Some(false) && !request.use_index.is_empty() {
        let reason = format!("{} specified by `use_index` could not be found or it is not suitable.", asked(request));
        return Err(MangoError::new("invalid_index", reason));
    }
    let others = indexes.iter().filter(fits).filter(|index| !index.is_partial()).collect();
    let index = best(&ranges, others).cloned();
    if index.is_none() {
        check_scan(request, partitioning)?;
    }
    let mut warnings = Vec::new();
    match request.use_index.len() {
        0 => {}
        1 => warnings
            .push(format!("{} was not used because it does not contain a valid index for this query.", asked(request))),
        _ => warnings.push(format!("{} was not used because it is not a valid index for this query.", asked(request))),
    }
    if index.is_none() {
        warnings.push(NO_INDEX.to_owned());
    }
    Ok(Plan { index, warnings })
}

/// Whether an index over fields is found for the request: those come before text indexes. With the names of a text
/// index, none is.
pub fn has_usable(request: &FindRequest, indexes: &[FieldIndex], partitioning: Partitioning) -> bool {
    let fits = |index: &&FieldIndex| index.partitioned == partitioning.query && is_usable(request, index);
    indexes.iter().filter(fits).any(|index| is_named(request, index) || !index.is_partial())
}

/// Whether the request names an index of a design document so.
pub fn names_index(request: &FindRequest, ddoc: &str, name: &str) -> bool {
    let plain = |text: &str| text.strip_prefix("_design/").unwrap_or(text).to_owned();
    match request.use_index.as_slice() {
        [] => false,
        [wanted] => plain(wanted) == plain(ddoc),
        [wanted, own, ..] => plain(wanted) == plain(ddoc) && *own == name,
    }
}

/// Whether the list of all documents will do.
fn check_scan(request: &FindRequest, partitioning: Partitioning) -> Result<(), MangoError> {
    if !can_scan(request) {
        let kind = match (partitioning.database, partitioning.query) {
            (false, _) => "",
            (true, true) => "partitioned ",
            (true, false) => "global ",
        };
        let reason = format!("No {kind}index exists for this sort, try indexing by the sort fields.");
        return Err(MangoError::new("no_usable_index", reason));
    }
    match request.allow_fallback {
        Some(false) => {
            Err(MangoError::new("invalid_index", "You must specify an index with the `use_index` parameter."))
        }
        _ => Ok(()),
    }
}

/// The list of all documents has one order only, and CouchDB 3.5 was measured to want a condition on `_id` for it.
pub fn can_scan(request: &FindRequest) -> bool {
    match request.sort.fields.as_slice() {
        [] => true,
        [id] => id == "_id" && request.selector.indexable_fields().contains("_id"),
        _ => false,
    }
}

fn asked(request: &FindRequest) -> String {
    let named = request.use_index.join(", ");
    if named.starts_with("_design/") { named } else { format!("_design/{named}") }
}

/// Whether the request names this index.
pub fn is_named(request: &FindRequest, index: &FieldIndex) -> bool {
    names_index(request, &index.ddoc, &index.name)
}

/// Whether every matching document is in the index, in the order asked for.
pub fn is_usable(request: &FindRequest, index: &FieldIndex) -> bool {
    !index.columns.is_empty() && field_mismatch(request, Some(index)).is_none()
}

/// Why an index, or (`None`) the list of all documents, cannot answer the request; `None` where it can.
pub fn field_mismatch(request: &FindRequest, index: Option<&FieldIndex>) -> Option<&'static str> {
    let selector = &request.selector;
    let sort = &request.sort.fields;
    let Some(index) = index else {
        let by_id = sort.is_empty() || selector.indexable_fields().contains("_id");
        return match (by_id, can_scan(request)) {
            (false, _) => Some("field_mismatch"),
            (true, false) => Some("sort_order_mismatch"),
            (true, true) => None,
        };
    };
    let has = |name: &&str| {
        matches!(*name, "_id" | "_rev") || selector.requires(name) || sort.iter().any(|field| field == name)
    };
    let columns = index.names();
    if selector.has_text() {
        Some("needs_text_search")
    } else if !columns.iter().all(has) {
        Some("field_mismatch")
    } else if !is_sorted(request, &columns) {
        Some("sort_order_mismatch")
    } else {
        None
    }
}

/// The fields whose conditions narrow what an index is read for. Where the conditions of one contradict each other,
/// that one alone counts, as in CouchDB.
pub fn narrowing<'r>(request: &'r FindRequest, collator: &Collator) -> BTreeSet<&'r str> {
    let fields = request.selector.indexable_fields();
    let empty = fields.iter().find(|name| request.selector.field_range(name, collator) == FieldRange::Empty).copied();
    empty.map_or(fields, |name| BTreeSet::from([name]))
}

/// How many leading columns of an index are among `ranges`.
pub fn taken(ranges: &BTreeSet<&str>, index: &FieldIndex) -> usize {
    index.names().iter().take_while(|name| ranges.contains(**name)).count()
}

fn is_sorted(request: &FindRequest, columns: &[&str]) -> bool {
    let sort: Vec<&str> = request.sort.fields.iter().map(String::as_str).collect();
    let mut rest = columns;
    loop {
        if rest.starts_with(&sort) {
            return true;
        }
        match rest {
            [first, behind @ ..] if request.selector.is_constant(first) => rest = behind,
            _ => return false,
        }
    }
}

fn best<'a>(ranges: &BTreeSet<&str>, usable: Vec<&'a FieldIndex>) -> Option<&'a FieldIndex> {
    let rank = |index: &&FieldIndex| {
        (usize::MAX - taken(ranges, index), index.columns.len(), index.ddoc.clone(), index.name.clone())
    };
    usable.into_iter().min_by_key(rank)
}

/// Whether the index alone holds all that the query needs.
pub fn is_covering(request: &FindRequest, index: &FieldIndex) -> bool {
    let names = index.names();
    let has = |name: &str| name == "_id" || names.contains(&name);
    let holds_wanted = match &request.groups {
        Some(groups) => groups.paths().all(|path| has(path.as_str())),
        None if request.limit == 0 && request.count => true,
        None => {
            let fields = &request.fields;
            !fields.is_all() && !request.conflicts && fields.paths().iter().all(|path| has(path.as_str()))
        }
    };
    holds_wanted && request.selector.fields().into_iter().all(has)
}

/// The text of `warning`, when there is something to say. `database` is named where an index is proposed.
pub fn warning(plan: &Plan, request: &FindRequest, database: &str, examined: u64, results: u64) -> Option<String> {
    let mut lines = plan.warnings.clone();
    let many = examined > results.max(1).saturating_mul(EXAMINED_PER_RESULT);
    if many {
        lines.push(MANY_EXAMINED.to_owned());
    }
    if request.index_hint && (many || plan.index.is_none()) {
        lines.extend(hint(request, database));
    }
    if lines.is_empty() { None } else { Some(lines.join("\n")) }
}

/// An index that would serve the query: the fields fixed by `$eq`, those of the sort, then one that is bounded, since
/// columns behind a range do not narrow it.
fn hint(request: &FindRequest, database: &str) -> Option<String> {
    let selector = &request.selector;
    let mut names: Vec<&str> =
        selector.indexable_fields().into_iter().filter(|name| selector.is_constant(name)).collect();
    for name in request.sort.fields.iter().map(String::as_str) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if request.sort.fields.is_empty() {
        names.extend(selector.indexable_fields().into_iter().find(|name| !selector.is_constant(name)));
    }
    if names.is_empty() {
        names.extend(selector.required_fields().into_iter().next());
    }
    names.retain(|name| *name != "_id");
    let fields = Value::Array(names.into_iter().map(Value::from).collect());
    let text = String::from_utf8_lossy(&fields.to_vec()).into_owned();
    let is_empty = fields.as_array().is_none_or(<[Value]>::is_empty);
    (!is_empty).then(|| format!("This index would help: POST /{database}/_index {{\"index\":{{\"fields\":{text}}}}}"))
}
