//! The indexes that `_explain` lists beside the chosen one: why each was left, and which rank it had, as CouchDB 3.5
//! counts it (`conformance/cases/queries`).

use super::catalogue::{FieldIndex, all_docs_value, object};
use super::explain::{Choice, ExplainContext};
use super::planner::{field_mismatch, is_named, names_index, narrowing, taken};
use super::request::FindRequest;
use super::text::{TextIndex, text_query};
use crate::document::collate::Collator;
use crate::document::json::Value;
use crate::document::selector::Selector;

/// What a query may be answered by.
#[derive(Clone, Copy, PartialEq)]
enum Candidate<'a> {
    Fields(&'a FieldIndex),
    Text(&'a TextIndex),
    AllDocs,
}

/// The indexes of a database of which one is chosen.
#[derive(Clone, Copy)]
pub struct Indexes<'a> {
    /// Those over fields.
    pub fields: &'a [FieldIndex],
    /// Text indexes.
    pub texts: &'a [TextIndex],
    /// The text index that was chosen.
    pub chosen: Option<&'a TextIndex>,
}

/// What is told of a candidate; what several groups say is put together.
#[derive(Debug)]
struct Tags {
    usable: bool,
    reasons: Vec<&'static str>,
    ranking: usize,
}

impl Tags {
    fn add(&mut self, usable: bool, reason: Option<&'static str>, ranking: usize) {
        self.usable &= usable;
        self.reasons.extend(reason);
        self.ranking += ranking;
    }
}

/// The groups into which the choice of an index divides those that there are.
struct Groups<'a> {
    partial: Vec<Candidate<'a>>,
    out_of_scope: Vec<Candidate<'a>>,
    not_usable: Vec<(Candidate<'a>, &'static str)>,
    excluded: Vec<Candidate<'a>>,
    unfavored: Vec<Candidate<'a>>,
    /// Those that were compared, best first, with how many conditions they leave.
    compared: Vec<(&'a FieldIndex, usize)>,
}

/// The list of `index_candidates`.
pub fn candidates(
    request: &FindRequest,
    choice: &Choice,
    indexes: Indexes<'_>,
    asked: ExplainContext<'_>,
    collator: &Collator,
) -> Value {
    let groups = Groups::of(request, choice, indexes, asked, collator);
    let unfavored = groups.compared.len().max(1);
    let excluded = unfavored + usize::from(!groups.unfavored.is_empty());
    let not_usable = excluded + usize::from(!groups.excluded.is_empty());
    let out_of_scope = not_usable + usize::from(!groups.not_usable.is_empty());
    let partial = out_of_scope + usize::from(!groups.out_of_scope.is_empty());
    let width = choice.as_ref().ok().and_then(Option::as_ref).map_or(usize::MAX, |chosen| chosen.columns.len());
    let mut list = Vec::new();
    for candidate in ordered(indexes) {
        let is_chosen = match candidate {
            Candidate::Fields(index) => choice.as_ref().is_ok_and(|chosen| chosen.as_ref() == Some(index)),
            Candidate::Text(index) => indexes.chosen == Some(index),
            Candidate::AllDocs => choice.as_ref().is_ok_and(Option::is_none),
        };
        if is_chosen {
            continue;
        }
        let mut tags = Tags { usable: true, reasons: Vec::new(), ranking: 0 };
        if groups.partial.contains(&candidate) {
            tags.add(false, Some("is_partial"), partial);
        }
        if groups.out_of_scope.contains(&candidate) {
            tags.add(false, Some("scope_mismatch"), out_of_scope);
        }
        if let Some((_, reason)) = groups.not_usable.iter().find(|(of, _)| *of == candidate) {
            tags.add(false, Some(reason), not_usable);
        }
        if groups.excluded.contains(&candidate) {
            tags.add(true, Some("excluded_by_user"), excluded);
        }
        if groups.unfavored.contains(&candidate) {
            tags.add(true, Some("unfavored_type"), unfavored);
        }
        let compared = groups.compared.iter().enumerate().find(|(_, (index, _))| Candidate::Fields(index) == candidate);
        if let Some((rank, (index, left))) = compared {
            let reason = match (*left, index.columns.len() > width) {
                (1.., _) => "less_overlap",
                (0, true) => "too_many_fields",
                (0, false) => "alphabetically_comes_after",
            };
            tags.add(true, Some(reason), rank);
        }
        list.push(told(request, candidate, &tags));
    }
    Value::Array(list)
}

impl<'a> Groups<'a> {
    fn of(
        request: &FindRequest,
        choice: &Choice,
        indexes: Indexes<'a>,
        asked: ExplainContext<'_>,
        collator: &Collator,
    ) -> Groups<'a> {
        let mut groups = Groups {
            partial: Vec::new(),
            out_of_scope: Vec::new(),
            not_usable: Vec::new(),
            excluded: Vec::new(),
            unfavored: Vec::new(),
            compared: Vec::new(),
        };
        let mut usable = Vec::new();
        for candidate in ordered(indexes) {
            let named = candidate.is_named(request);
            let in_scope = candidate.partitioned().is_none_or(|own| own == asked.partition.is_some());
            let is_partial = candidate.is_partial();
            if is_partial {
                groups.partial.push(candidate);
            }
            match (in_scope, candidate.mismatch(request)) {
                _ if is_partial && !named => {}
                (false, _) => groups.out_of_scope.extend((!is_partial).then_some(candidate)),
                (true, Some(reason)) => groups.not_usable.push((candidate, reason)),
                (true, None) => usable.push((candidate, named)),
            }
        }
        if choice.is_err() {
            // A text index answers: of the others none was compared.
            groups.unfavored = usable.into_iter().map(|(candidate, _)| candidate).collect();
            return groups;
        }
        let by_name = usable.iter().any(|(_, named)| *named);
        let (kept, left): (Vec<_>, Vec<_>) = usable.into_iter().partition(|(_, named)| *named || !by_name);
        groups.excluded = left.into_iter().map(|(candidate, _)| candidate).collect();
        let ranges = narrowing(request, collator);
        let compared = kept.iter().filter_map(|(candidate, _)| candidate.fields());
        groups.compared = compared.map(|index| (index, ranges.len() - taken(&ranges, index))).collect();
        groups.compared.sort_by(|(a, left_a), (b, left_b)| {
            let key =
                |index: &FieldIndex, left: usize| (left, index.columns.len(), index.ddoc.clone(), index.name.clone());
            key(a, *left_a).cmp(&key(b, *left_b))
        });
        if !groups.compared.is_empty() {
            groups.unfavored = kept.into_iter().map(|(one, _)| one).filter(|one| one.fields().is_none()).collect();
        }
        groups
    }
}

impl<'a> Candidate<'a> {
    fn fields(self) -> Option<&'a FieldIndex> {
        match self {
            Candidate::Fields(index) => Some(index),
            Candidate::Text(_) | Candidate::AllDocs => None,
        }
    }

    /// The design document and the name, by which candidates are in order.
    fn place(self) -> (&'a str, &'a str) {
        match self {
            Candidate::Fields(index) => (&index.ddoc, &index.name),
            Candidate::Text(index) => (&index.ddoc, &index.name),
            Candidate::AllDocs => ("", ""),
        }
    }

    fn is_named(self, request: &FindRequest) -> bool {
        match self {
            Candidate::Fields(index) => is_named(request, index),
            Candidate::Text(index) => names_index(request, &index.ddoc, &index.name),
            Candidate::AllDocs => false,
        }
    }

    fn partitioned(self) -> Option<bool> {
        match self {
            Candidate::Fields(index) => Some(index.partitioned),
            Candidate::Text(index) => Some(index.partitioned),
            Candidate::AllDocs => None,
        }
    }

    fn is_partial(self) -> bool {
        match self {
            Candidate::Fields(index) => index.is_partial(),
            Candidate::Text(index) => index.is_partial(),
            Candidate::AllDocs => false,
        }
    }

    /// Why it cannot answer the request; `None` where it can.
    fn mismatch(self, request: &FindRequest) -> Option<&'static str> {
        match self {
            Candidate::Fields(index) => field_mismatch(request, Some(index)),
            Candidate::AllDocs => field_mismatch(request, None),
            Candidate::Text(_) if request.selector == Selector::Everything => Some("empty_selector"),
            Candidate::Text(index) => {
                let query = text_query(&request.selector, index.kind);
                (!query.is_ok_and(|query| index.is_usable(&query))).then_some("field_mismatch")
            }
        }
    }

    fn to_value(self) -> Value {
        match self {
            Candidate::Fields(index) => index.to_value(),
            Candidate::Text(index) => index.to_value(),
            Candidate::AllDocs => all_docs_value(),
        }
    }
}

/// All candidates, those of later names first, the list of all documents last.
fn ordered(indexes: Indexes<'_>) -> Vec<Candidate<'_>> {
    let fields = indexes.fields.iter().map(Candidate::Fields);
    let mut list: Vec<Candidate<'_>> = fields.chain(indexes.texts.iter().map(Candidate::Text)).collect();
    list.sort_by(|a, b| b.place().cmp(&a.place()));
    list.push(Candidate::AllDocs);
    list
}

fn told(request: &FindRequest, candidate: Candidate<'_>, tags: &Tags) -> Value {
    let covering = candidate.fields().map_or(Value::Null, |index| {
        let names = index.names();
        let has = |name: &str| name == "_id" || names.contains(&name);
        let fields = &request.fields;
        (!fields.is_all() && fields.paths().iter().all(|path| has(path.as_str()))).into()
    });
    let reason = tags.reasons.first().copied().unwrap_or_default();
    let analysis = object([
        ("usable", tags.usable.into()),
        ("reasons", Value::Array(vec![object([("name", reason.into())])])),
        ("ranking", (tags.ranking as u64).into()),
        ("covering", covering),
    ]);
    object([("index", candidate.to_value()), ("analysis", analysis)])
}
