//! The rows of an index over fields.

use std::sync::Arc;

use crate::document::collate::Collator;
use crate::document::json::{self, Value};
use crate::document::selector::{FieldPath, Found, Selector};
use crate::index::{Definition, IndexError, Indexes, Mapped, Mapper};
use crate::world::{BoxFuture, Env, Pool};

/// Makes the rows: the key is the list of the fields' values, the value null.
pub struct FieldMapper {
    env: Env,
    fields: Arc<Fields>,
}

/// What rows are made of.
pub(super) struct Fields {
    /// None where the definition makes no sense: such an index has no rows.
    columns: Vec<FieldPath>,
    filter: Selector,
    collator: Collator,
}

impl FieldMapper {
    /// The mapper of a view whose map is `{"fields":{..},"partial_filter_selector":{..}}`.
    pub fn new(indexes: &Indexes, definition: &Definition) -> FieldMapper {
        let map = json::parse(definition.map.as_bytes()).unwrap_or(Value::Null);
        FieldMapper {
            env: indexes.env.clone(),
            fields: Arc::new(Fields::of(&map, indexes.collator(definition.collation))),
        }
    }
}

fn read(map: &Value) -> Option<(Vec<FieldPath>, Selector)> {
    let map = map.as_object()?;
    let names = map.get("fields")?.as_object()?.iter().map(|(name, _)| FieldPath::parse(name).ok());
    let filter = match map.get("partial_filter_selector") {
        Some(selector) => Selector::parse(selector).ok()?,
        None => Selector::Everything,
    };
    Some((names.collect::<Option<_>>()?, filter))
}

impl Mapper for FieldMapper {
    fn map<'a>(&'a self, _: Vec<&'a str>, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Vec<Mapped>>, IndexError>> {
        let fields = Arc::clone(&self.fields);
        Box::pin(async move {
            let rows = move || docs.iter().map(|text| vec![fields.rows(text)]).collect();
            Ok(self.env.blocking(Pool::Build, rows).await)
        })
    }
}

impl Fields {
    /// Those of the map member of a view.
    pub(super) fn of(map: &Value, collator: Collator) -> Fields {
        let (columns, filter) = read(map).unwrap_or((Vec::new(), Selector::Everything));
        Fields { columns, filter, collator }
    }

    /// The row of a document, given as JSON text, or none.
    pub(super) fn rows(&self, text: &str) -> Mapped {
        let Ok(document) = json::parse(text.as_bytes()) else { return Vec::new() };
        if self.columns.is_empty() || !self.filter.matches(&document, &self.collator) {
            return Vec::new();
        }
        let value = |path: &FieldPath| match path.find(&document) {
            Found::Value(value) => Some(value.clone()),
            Found::Absent | Found::NoPath => None,
        };
        let key: Option<Vec<Value>> = self.columns.iter().map(value).collect();
        key.map(|key| (Value::Array(key), Value::Null)).into_iter().collect()
    }
}
