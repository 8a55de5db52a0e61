//! Searches of indexes with types: one replica of each range is asked, and their answers are made one.
//!
//! Rows that stand alike otherwise stand by their documents' ids, so that all replicas of a range answer in one order
//! and a bookmark holds on whichever replica answers next, and when ranges are split.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::try_join_all;
use settee_search::search::nouveau::{OrderType, Request, order_types, unite};
use settee_search::search::{Answer, Row, SortValue};

use crate::coordinator::read::search::{DatabaseSearch, SearchFailure};
use crate::coordinator::replica::calls::{SearchRefusal, TypedAnswer, TypedFor};
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica, is_away};
use crate::coordinator::replica::replicas::no_answer;
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::index::IndexError;
use crate::limits;
use crate::shard::ShardError;

/// A search of an index with types.
#[derive(Clone, Debug, Default)]
pub struct TypedQuery {
    /// What is asked of each range.
    pub request: Request,
    /// Where the page before ended, as the client said it.
    pub bookmark: Option<String>,
    /// Whether the index is to apply first what was written before.
    pub update: bool,
}

/// The answer of all ranges.
#[derive(Clone, Debug)]
pub struct TypedPage {
    /// Rows and counts.
    pub answer: Answer,
    /// Where the next page begins.
    pub bookmark: String,
    /// Milliseconds that the slowest range took to apply what was written.
    pub latency: u64,
}

/// The order of a row as answers and bookmarks have it: each value with its type.
pub fn order_value(types: &[OrderType], order: &[SortValue]) -> Value {
    let one = |(kind, value): (&OrderType, &SortValue)| {
        let (name, value) = match value {
            // A score is of single precision: its digits are the fewest that tell it.
            SortValue::Number(score) if *kind == OrderType::Score => {
                let digits = (*score as f32).to_string();
                ("float", Value::Float(digits.parse().unwrap_or(*score)))
            }
            SortValue::Number(number) if number.is_finite() => ("double", Value::Float(*number)),
            SortValue::Text(Some(text)) => ("string", text.as_str().into()),
            _ => ("null", Value::Null),
        };
        let mut typed = Object::new();
        typed.push("@type", name);
        typed.push("value", value);
        Value::Object(typed)
    };
    Value::Array(types.iter().zip(order).map(one).collect())
}

fn sort_value(value: &Value) -> Option<SortValue> {
    let typed = value.as_object()?;
    let value = typed.get("value")?;
    let number = || match value {
        Value::Float(number) => Some(*number),
        other => other.as_i64().map(|number| number as f64),
    };
    Some(match typed.get("@type")?.as_str()? {
        "float" => SortValue::Number(f64::from(number()? as f32)),
        "double" | "int" | "long" => SortValue::Number(number()?),
        "string" => SortValue::Text(Some(value.as_str()?.to_owned())),
        "null" => SortValue::Text(None),
        _ => return None,
    })
}

/// Orders of the last rows of ranges; that of the last row of all stands last.
#[derive(Default)]
struct Places(Vec<Vec<SortValue>>);

impl Places {
    /// Reads a bookmark: the orders of rows, each with its document's id last. `parts`: how many values each has.
    fn parse(text: &str, parts: usize) -> Option<Places> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        let value = json::parse(&bytes).ok()?;
        let order = |value: &Value| -> Option<Vec<SortValue>> {
            let order: Vec<SortValue> = value.as_array()?.iter().map(sort_value).collect::<Option<_>>()?;
            let is_whole = order.len() == parts && matches!(order.last(), Some(SortValue::Text(Some(_))));
            is_whole.then_some(order)
        };
        value.as_array()?.iter().map(order).collect::<Option<_>>().map(Places)
    }

    fn encode(&self, types: &[OrderType]) -> String {
        let all = Value::Array(self.0.iter().map(|order| order_value(types, order)).collect());
        URL_SAFE_NO_PAD.encode(all.to_vec())
    }
}

/// The id of the document whose row stands so.
fn id_of(order: &[SortValue]) -> Option<DocId> {
    match order.last() {
        Some(SortValue::Text(Some(id))) => Some(DocId::new(id)),
        _ => None,
    }
}

impl DatabaseSearch {
    /// What the index on a replica of this node answers.
    pub(in crate::coordinator) async fn typed_own(
        &self,
        range: usize,
        replica: &OwnReplica,
        request: Request,
        update: bool,
    ) -> Result<Result<TypedAnswer, SearchRefusal>, IndexError> {
        let index = self.on(range, replica);
        let env = &self.database.context.env;
        let begun = env.now();
        if update && !index.is_current() {
            match index.update().await {
                Err(IndexError::Misfit(reason)) => return Ok(Err(SearchRefusal::Refused(reason))),
                updated => updated?,
            }
        }
        let spent = env.now().since(begun).as_micros().div_ceil(1000);
        match index.search_typed(request).await? {
            Ok(answer) => Ok(Ok(TypedAnswer { answer, latency: u64::try_from(spent).unwrap_or(u64::MAX) })),
            Err(error) => Ok(Err(SearchRefusal::try_from(error)?)),
        }
    }

    /// What one replica of a range answers.
    async fn typed_range(&self, range: usize, request: Request, update: bool) -> Result<TypedAnswer, SearchFailure> {
        let mut failed =
            IndexError::Shard(ShardError::NoReplica { replicas: self.database.replicas().replicas_of(range) });
        for replica in self.replicas(range).await? {
            let answered = match &replica {
                RangeReplica::Own(replica) => self.typed_own(range, replica, request.clone(), update).await,
                RangeReplica::Remote(replica) => {
                    let question = TypedFor { request: Box::new(request.clone()), update };
                    replica.search(self.design(), self.definition.signature.0, question).await
                }
            };
            match answered {
                Err(IndexError::Shard(error)) if is_away(&error) && !self.database.replicas().is_alone(range) => {
                    if let IndexError::Shard(before) = failed {
                        failed = IndexError::Shard(no_answer(before, error));
                    }
                }
                Err(error) => return Err(error.into()),
                Ok(answer) => return answer.map_err(SearchFailure::Refused),
            }
        }
        Err(failed.into())
    }

    /// What all ranges answer.
    ///
    /// # Errors
    /// [`SearchFailure`]; where one range refuses a search, all do.
    pub async fn ask_typed(&self, query: TypedQuery) -> Result<TypedPage, SearchFailure> {
        let TypedQuery { request, bookmark, update } = query;
        let refused = |error: settee_search::search::SearchError| {
            SearchFailure::Refused(SearchRefusal::Refused(error.to_string()))
        };
        // A request with a token sees what the token stands for.
        let update = update || self.database.floor.is_some();
        let types = order_types(&request.sort).map_err(refused)?;
        let mut places = match bookmark {
            None => Places::default(),
            Some(text) => Places::parse(&text, types.len()).ok_or(SearchFailure::Bookmark)?,
        };
        let map = self.database.map();
        let ranges = self.ranges(request.partition.as_deref());
        // The largest counts of all ranges are among the first of one range, but for chance.
        let top = request.top.saturating_mul(ranges.len()).min(limits::SEARCH_COUNTS_MAX);
        let one = |range: &usize| {
            let of_range = |order: &&Vec<SortValue>| id_of(order).is_some_and(|id| map.index_of(&id) == *range);
            // A range that gave no row yet, or is a part of one that did, goes on behind the last row of all: rows of
            // all ranges are in one total order.
            let after = places.0.iter().find(of_range).or(places.0.last()).cloned();
            self.typed_range(*range, Request { after, top, ..request.clone() }, update)
        };
        let answers = try_join_all(ranges.iter().map(one)).await?;
        let latency = answers.iter().map(|answer| answer.latency).max().unwrap_or(0);
        let answers = answers.into_iter().map(|answer| answer.answer).collect();
        let (answer, _) = unite(&request, answers).map_err(refused)?;
        for row in &answer.rows {
            let range = map.index_of(&DocId::new(&row.id));
            places.0.retain(|order| id_of(order).is_none_or(|id| map.index_of(&id) != range));
            places.0.push(row.order.clone());
        }
        let bookmark = places.encode(&types);
        Ok(TypedPage { answer, bookmark, latency })
    }

    /// The order of a row as answers have it.
    pub fn typed_order(sort: &[String], row: &Row) -> Value {
        order_value(&order_types(sort).unwrap_or_default(), &row.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_are_the_orders_of_rows_and_others_are_refused() {
        let types = [OrderType::Score, OrderType::Field, OrderType::Field];
        let order = |id: &str| {
            let score = SortValue::Number(f64::from(0.575_364_2_f32));
            vec![score, SortValue::Number(12.0), SortValue::Text(Some(id.to_owned()))]
        };
        let places = Places(vec![order("a"), order("b")]);
        let shown = String::from_utf8(order_value(&types, &order("a")).to_vec()).unwrap();
        let expected = concat!(
            r#"[{"@type":"float","value":0.5753642},{"@type":"double","value":12.0},"#,
            r#"{"@type":"string","value":"a"}]"#
        );
        assert_eq!(shown, expected);
        let text = places.encode(&types);
        assert_eq!(Places::parse(&text, 3).unwrap().0, places.0);
        assert!(Places::parse(&text, 2).is_none());
        for bad in ["", "xyz", "not a bookmark", "W10x"] {
            assert!(Places::parse(bad, 3).is_none(), "{bad}");
        }
        assert!(Places::parse("W10", 3).unwrap().0.is_empty());
    }
}
