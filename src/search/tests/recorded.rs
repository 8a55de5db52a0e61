//! Queries, orders, facets and groups as recorded from Lucene 4.10, over a fixed corpus: in one segment, in several,
//! and in what these are merged to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use settee_search::analysis::{Analyzer, Spec};
use settee_search::document::{Document, Field, Indexed, Options, Value};
use settee_search::query::{QueryError, parse};
use settee_search::search::{Answer, Group, Limits, Request, Row, SearchError, Sort, SortValue, search, unite};
use settee_search::segment::{Deleted, Part, Segment, build, merge};

/// Scores may differ so much.
const NEAR: f64 = 1e-5;

fn data(text: &str) -> Json {
    serde_json::from_str(text).expect("recorded data")
}

fn list<'a>(data: &'a Json, name: &str) -> &'a Vec<Json> {
    data[name].as_array().expect("a list")
}

fn named(name: &str) -> Spec {
    Spec::Named { name: name.into(), stopwords: None }
}

fn analyzer() -> Analyzer {
    let fields = [
        ("title", "english"),
        ("kw", "keyword"),
        ("cat", "keyword"),
        ("tags", "whitespace"),
        ("sim", "simple"),
        ("code", "keyword"),
        ("place", "keyword"),
    ];
    let fields = fields.into_iter().map(|(field, name)| (field.to_owned(), named(name))).collect();
    Analyzer::new(Spec::PerField { default: Box::new(named("standard")), fields }).expect("known analyzers")
}

/// What the corpus' index function does.
fn documents() -> Vec<Document> {
    let corpus = data(include_str!("data/corpus.json"));
    let plain = Options::default();
    let store = Options { store: true, ..plain };
    let facet = Options { facet: true, ..plain };
    let both = Options { store: true, facet: true, ..plain };
    let mut output = Vec::new();
    for (number, doc) in list(&corpus, "docs").iter().enumerate() {
        let mut fields: Vec<Field> = Vec::new();
        let mut index = |name: &str, value: &Json, options: Options| {
            let value = match value {
                Json::String(text) => Value::Text(text.clone()),
                Json::Number(number) => Value::Number(number.as_f64().expect("a number")),
                Json::Bool(value) => Value::Bool(*value),
                _ => return,
            };
            fields.push(Field { name: name.into(), value, options });
        };
        index("default", &doc["text"], plain);
        index("title", &doc["title"], store);
        index("body", &doc["body"], plain);
        for tag in list(doc, "tags") {
            index("tags", tag, both);
        }
        index("kw", &doc["kw"], plain);
        index("cat", &doc["cat"], both);
        index("place", &doc["place"], facet);
        index("raw", &doc["place"], Options { index: Indexed::NotAnalyzed, ..plain });
        index("sim", &doc["title"], plain);
        index("code", &doc["code"], plain);
        index("n", &doc["n"], store);
        index("price", &doc["price"], both);
        index("qty", &doc["qty"], facet);
        index("flag", &doc["flag"], plain);
        index("mixed", &doc["mixed"], plain);
        index("title", &doc["big"], Options { boost: 3.0, ..plain });
        let id = doc["_id"].as_str().expect("an id").to_owned();
        output.push(Document { number: number as u64, id, fields });
    }
    output
}

fn part(bytes: bytes::Bytes) -> Part {
    Part { segment: Segment::open(Arc::new(bytes)).expect("a segment"), deleted: Arc::new(Deleted::default()) }
}

/// The corpus as several sets of segments: one; several; several after merges.
fn shards() -> Vec<(&'static str, Vec<Part>)> {
    let (documents, analyzer) = (documents(), analyzer());
    let one = |from: usize, to: usize| part(build(&documents[from..to], &analyzer));
    let cut = |places: &[usize]| places.windows(2).map(|pair| one(pair[0], pair[1])).collect::<Vec<Part>>();
    let several = cut(&[0, 1, 17, 60, 61, 200, 399, 400]);
    let some = vec![
        part(merge(&several[..3]).expect("a merge")),
        part(merge(&several[3..5]).expect("a merge")),
        several[5].clone(),
        several[6].clone(),
    ];
    let all = vec![part(merge(&some).expect("a merge"))];
    vec![("one segment", cut(&[0, 400])), ("several", several), ("some merged", some), ("all merged", all)]
}

fn ask(parts: &[Part], request: &Request) -> Result<Answer, SearchError> {
    search(parts, &analyzer(), request, &Limits::default(), &mut || true)
}

fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

fn texts(list: &Json) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Json::as_str).collect()
}

fn score(row: &Row) -> f64 {
    match row.order[0] {
        SortValue::Number(score) => score,
        _ => f64::NAN,
    }
}

/// What a query's answer lacks of the recorded one.
fn compare_query(parts: &[Part], query: &Json) -> Result<(), String> {
    let text = query["q"].as_str().expect("a query");
    let request = Request { query: text.into(), limit: 400, ..Request::default() };
    let answer = ask(parts, &request);
    if let Some(error) = query["error"].as_str() {
        let reason = query["reason"].as_str().unwrap_or_default();
        return match (answer, error) {
            (Err(SearchError::Query(QueryError::Syntax(found))), "bad_request") if found == reason => Ok(()),
            (Err(SearchError::Query(QueryError::Invalid(_))), "unknown_error") => Ok(()),
            (answer, _) => Err(format!("wanted {reason}, found {answer:?}")),
        };
    }
    let parsed = parse(text, &analyzer()).map_err(|error| error.to_string())?.to_string();
    if parsed != query["parsed"] {
        return Err(format!("parsed as {parsed}, not {}", query["parsed"]));
    }
    if query["accident"] == true {
        return Ok(());
    }
    let answer = answer.map_err(|error| error.to_string())?;
    let found: BTreeSet<&str> = ids(&answer.rows).into_iter().collect();
    let is_right = |id: &str| match query["ids"].as_array() {
        Some(_) => texts(&query["ids"]).contains(&id),
        None => !texts(&query["all_but"]).contains(&id),
    };
    if answer.total != query["total"] || !found.iter().all(|id| is_right(id)) {
        return Err(format!("{} matches, not {}", answer.total, query["total"]));
    }
    compare_ranking(&answer.rows, query)
}

fn compare_ranking(rows: &[Row], query: &Json) -> Result<(), String> {
    let mut at = 0;
    for level in list(query, "ranking") {
        let wanted = level[0].as_f64().expect("a score");
        let count = level[1].as_u64().map_or_else(|| texts(&level[1]).len(), |count| count as usize);
        let found = rows.get(at..at + count).ok_or("too few rows")?;
        if let Some(row) = found.iter().find(|row| (score(row) - wanted).abs() > NEAR * wanted.abs().max(1.0)) {
            return Err(format!("{} scores {}, not {wanted}", row.id, score(row)));
        }
        let mut found_ids = ids(found);
        found_ids.sort_unstable();
        let mut wanted_ids = texts(&level[1]);
        wanted_ids.sort_unstable();
        if level[1].is_array() && found_ids != wanted_ids {
            return Err(format!("{found_ids:?} score {wanted}, not {wanted_ids:?}"));
        }
        at += count;
    }
    Ok(())
}

/// Fails with all that differs.
fn report(count: usize, failed: Vec<String>) {
    assert!(failed.is_empty(), "{} of {count} differ:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn queries_match_and_score_as_recorded() {
    let data = data(include_str!("data/queries.json"));
    for (name, parts) in shards() {
        let mut failed = Vec::new();
        for query in list(&data, "queries") {
            if let Err(reason) = compare_query(&parts, query) {
                failed.push(format!("{name}: {}: {reason}", query["q"]));
            }
        }
        report(list(&data, "queries").len(), failed);
    }
}

/// An order as the node reads it; `None`: one that it refuses before it searches.
fn sort(text: &str) -> Option<Sort> {
    let (reverse, name) = match text.strip_prefix('-') {
        Some(name) => (true, name),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    match name {
        "<score>" => return Some(Sort::Score { reverse: !reverse }),
        "<doc>" => return Some(Sort::Number { reverse }),
        _ => {}
    }
    let (name, is_text) = match name.split_once('<') {
        None => (name, false),
        Some((name, "string>")) => (name, true),
        Some((name, "number>")) => (name, false),
        Some(_) => return None,
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    is_name.then(|| Sort::Field { name: name.into(), is_text, reverse })
}

fn sorts(value: &Json) -> Option<Vec<Sort>> {
    match value {
        Json::String(text) => Some(vec![sort(text)?]),
        Json::Array(all) => all.iter().map(|one| sort(one.as_str()?)).collect(),
        _ => Some(Vec::new()),
    }
}

fn is_near(found: &SortValue, wanted: &Json) -> bool {
    match found {
        SortValue::Text(text) => json!(text) == *wanted,
        SortValue::Number(number) => wanted.as_f64().is_some_and(|wanted| (wanted - number).abs() <= NEAR),
        SortValue::Document(number) => wanted.as_f64() == Some(*number as f64),
    }
}

fn compare_sort(parts: &[Part], asked: &Json) -> Result<(), String> {
    let Some(sort) = sorts(&asked["sort"]) else {
        return if asked["error"].is_string() { Ok(()) } else { Err("refused".into()) };
    };
    let request =
        Request { query: asked["q"].as_str().unwrap_or_default().into(), limit: 25, sort, ..Request::default() };
    let answer = ask(parts, &request);
    if let Some(reason) = asked["reason"].as_str() {
        return match answer {
            Err(SearchError::Refused(found)) if found == reason => Ok(()),
            answer => Err(format!("wanted {reason}, found {answer:?}")),
        };
    }
    let answer = answer.map_err(|error| error.to_string())?;
    if asked["accident"] == true {
        return Ok(());
    }
    if ids(&answer.rows) != texts(&asked["ids"]) {
        return Err(format!("{:?}, not {:?}", ids(&answer.rows), texts(&asked["ids"])));
    }
    for (row, order) in answer.rows.iter().zip(list(asked, "order")) {
        let order = order.as_array().expect("an order");
        if row.order.len() != order.len() || !row.order.iter().zip(order).all(|(a, b)| is_near(a, b)) {
            return Err(format!("{}: {:?}, not {order:?}", row.id, row.order));
        }
    }
    compare_pages(parts, &request, &answer)
}

/// Pages of seven rows are the same rows.
fn compare_pages(parts: &[Part], request: &Request, whole: &Answer) -> Result<(), String> {
    let mut paged: Vec<Row> = Vec::new();
    while paged.len() < whole.rows.len() {
        let after = paged.last().map(|row| row.order.clone());
        let request = Request { limit: 7, after, ..request.clone() };
        let answer = ask(parts, &request).map_err(|error| error.to_string())?;
        if answer.rows.is_empty() || answer.total != whole.total {
            return Err(format!("a page of {} rows, {} in all", answer.rows.len(), answer.total));
        }
        paged.extend(answer.rows);
    }
    paged.truncate(whole.rows.len());
    if paged == whole.rows { Ok(()) } else { Err("pages differ".into()) }
}

#[test]
fn orders_are_as_recorded() {
    let data = data(include_str!("data/queries.json"));
    for (name, parts) in shards() {
        let mut failed = Vec::new();
        for asked in list(&data, "sorts") {
            if let Err(reason) = compare_sort(&parts, asked) {
                failed.push(format!("{name}: {} by {}: {reason}", asked["q"], asked["sort"]));
            }
        }
        report(list(&data, "sorts").len(), failed);
    }
}

fn request(params: &Json) -> Request {
    let map = |value: &Json| serde_json::from_value(value.clone()).expect("params");
    Request {
        query: params["q"].as_str().unwrap_or_default().into(),
        limit: params["limit"].as_u64().unwrap_or(25) as usize,
        sort: sorts(&params["sort"]).unwrap_or_default(),
        counts: serde_json::from_value(params["counts"].clone()).expect("params"),
        ranges: map(&params["ranges"]),
        drilldown: serde_json::from_value(params["drilldown"].clone()).unwrap_or_default(),
        ..Request::default()
    }
}

fn counts(value: &Json) -> Option<BTreeMap<String, BTreeMap<String, u64>>> {
    let fields = value.as_object()?;
    let of_field = |counts: &Json| {
        let counts = counts.as_object().expect("counts").iter();
        counts.map(|(value, count)| (value.clone(), count.as_u64().unwrap_or(0))).collect()
    };
    Some(fields.iter().map(|(field, values)| (field.clone(), of_field(values))).collect())
}

#[test]
fn facets_are_counted_as_recorded() {
    let data = data(include_str!("data/facets.json"));
    for (name, parts) in shards() {
        let mut failed = Vec::new();
        for asked in list(&data, "facets") {
            let request = Request { limit: 400, ..request(&asked["params"]) };
            let answer = ask(&parts, &request).expect("an answer");
            let mut found = ids(&answer.rows);
            found.sort_unstable();
            let is_same = answer.total == asked["total_rows"]
                && answer.counts == counts(&asked["counts"])
                && answer.ranges == counts(&asked["ranges"])
                && (asked["ids"].is_null() || found == texts(&asked["ids"]));
            if !is_same {
                failed.push(format!("{name}: {asked}: {} {:?} {:?}", answer.total, answer.counts, answer.ranges));
            }
        }
        report(list(&data, "facets").len(), failed);
    }
}

/// Both rounds of a search in groups, as the node makes them.
fn grouped(parts: &[Part], params: &Json) -> Result<Answer, String> {
    let field = params["group_field"].as_str().unwrap_or_default();
    let Some(Sort::Field { name, .. }) = sort(field).filter(|_| !field.ends_with("<number>")) else {
        return Err("refused".into());
    };
    let limit = params["group_limit"].as_u64().unwrap_or(10) as usize;
    let sort = sorts(&params["group_sort"]).unwrap_or_default();
    let group = Group { field: name, limit, sort, only: None };
    let mut request = Request { group: Some(group.clone()), ..request(params) };
    let round = |request: &Request| {
        let answer = ask(parts, request).map_err(|error| error.to_string())?;
        Ok::<Answer, String>(unite(request, vec![answer]).0)
    };
    let first = round(&request)?;
    let only = first.groups.into_iter().flatten().map(|group| group.by).collect();
    request.group = Some(Group { only: Some(only), ..group });
    round(&request)
}

#[test]
fn groups_are_as_recorded() {
    let data = data(include_str!("data/facets.json"));
    for (name, parts) in shards() {
        let mut failed = Vec::new();
        for asked in list(&data, "groups") {
            let answer = grouped(&parts, &asked["params"]);
            if asked["error"].is_string() {
                if answer.is_ok() {
                    failed.push(format!("{name}: {asked} is not refused"));
                }
                continue;
            }
            let answer = answer.expect("an answer");
            let groups: Vec<Json> = answer
                .groups
                .iter()
                .flatten()
                .map(|group| json!({"by": group.by, "total_rows": group.total, "ids": ids(&group.rows)}))
                .collect();
            if answer.total != asked["total_rows"] || json!(groups) != asked["groups"] {
                failed.push(format!("{name}: {}: {} {}", asked["params"], answer.total, json!(groups)));
            }
        }
        report(list(&data, "groups").len(), failed);
    }
}

#[test]
fn a_merge_has_the_bytes_of_a_build() {
    let (documents, analyzer) = (documents(), analyzer());
    let whole = build(&documents, &analyzer);
    let several = [0..150, 150..151, 151..400].map(|range| part(build(&documents[range], &analyzer)));
    assert_eq!(merge(&several).expect("a merge"), whole);
    let mut deleted = Deleted::default();
    let kept: Vec<Document> = documents.iter().filter(|document| document.number % 7 != 3).cloned().collect();
    for document in documents.iter().filter(|document| document.number % 7 == 3) {
        deleted.insert(document.number);
    }
    let deleted = Arc::new(deleted);
    let parts = several.map(|part| Part { segment: part.segment, deleted: deleted.clone() });
    assert_eq!(merge(&parts).expect("a merge"), build(&kept, &analyzer));
}
