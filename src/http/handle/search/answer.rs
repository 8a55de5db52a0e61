//! Answers of searches as JSON. Documents are read while the answer is written.

use settee_search::search::{Answer, Counts, GroupRows, Row, SortValue, Stored};

use crate::coordinator::DatabaseSearch;
use crate::document::json::{Object, Value, write_string};
use crate::document::render::{RenderOptions, render};
use crate::http::{ChunkSink, Result};

/// How rows are named and what goes with them.
pub struct Form {
    /// The index, where documents go along.
    pub docs: Option<DatabaseSearch>,
    /// The names of `group_by`.
    pub old_groups: bool,
    /// The name of each row's index, where several were asked; else none.
    pub indexes: Vec<String>,
}

impl Form {
    /// Writes the answer of a search without groups.
    ///
    /// # Errors
    /// When a document cannot be read or the client is gone.
    pub async fn write(&self, answer: Answer, bookmark: String, sink: &mut ChunkSink) -> Result<()> {
        let mut head = format!("{{\"total_rows\":{},\"bookmark\":", answer.total).into_bytes();
        write_string(&bookmark, &mut head);
        head.extend_from_slice(b",\"rows\":[");
        sink.write(&head).await?;
        self.rows(&answer.rows, &self.indexes, sink).await?;
        let mut tail = b"]".to_vec();
        if let Some(counts) = &answer.counts {
            tail.extend_from_slice(b",\"counts\":");
            facets(counts, false).write(&mut tail);
        }
        if let Some(ranges) = &answer.ranges {
            tail.extend_from_slice(b",\"ranges\":");
            facets(ranges, true).write(&mut tail);
        }
        tail.extend_from_slice(b"}\n");
        sink.write(&tail).await?;
        sink.flush().await
    }

    /// Writes the answer of a search with groups.
    ///
    /// # Errors
    /// As [`Form::write`].
    pub async fn write_groups(&self, answer: Answer, sink: &mut ChunkSink) -> Result<()> {
        let groups: Vec<GroupRows> = answer.groups.unwrap_or_default();
        let head = match self.old_groups {
            true => {
                let grouped: u64 = groups.iter().map(|group| group.rows.len() as u64).sum();
                format!("{{\"total_hits\":{},\"total_grouped_hits\":{grouped},\"groups\":[", answer.total)
            }
            false => format!("{{\"total_rows\":{},\"groups\":[", answer.total),
        };
        sink.write(head.as_bytes()).await?;
        let (total, rows) = if self.old_groups { ("total_hits", "hits") } else { ("total_rows", "rows") };
        for (n, group) in groups.iter().enumerate() {
            let mut head = if n > 0 { b",".to_vec() } else { Vec::new() };
            head.extend_from_slice(b"{\"by\":");
            group.by.as_deref().map_or(Value::Null, Value::from).write(&mut head);
            head.extend_from_slice(format!(",\"{total}\":{},\"{rows}\":[", group.total).as_bytes());
            sink.write(&head).await?;
            self.rows(&group.rows, &[], sink).await?;
            sink.write(b"]}").await?;
        }
        sink.write(b"]}\n").await?;
        sink.flush().await
    }

    async fn rows(&self, rows: &[Row], indexes: &[String], sink: &mut ChunkSink) -> Result<()> {
        let mut left = rows;
        let mut indexes = indexes.iter();
        let mut separator: &[u8] = b"";
        while !left.is_empty() {
            let (some, docs) = match &self.docs {
                None => (left.len(), Vec::new()),
                Some(index) => {
                    let docs = index.documents(left).await?;
                    (docs.len().max(1), docs)
                }
            };
            let mut docs = docs.into_iter();
            for row in &left[..some] {
                let mut text = separator.to_vec();
                separator = b",\n";
                head(row, indexes.next()).write(&mut text);
                if self.docs.is_some() {
                    text.pop();
                    text.extend_from_slice(b",\"doc\":");
                    let stored = docs.next().flatten().and_then(|mut fetched| fetched.take_one());
                    match stored.filter(|stored| !stored.deleted) {
                        Some(stored) => text.extend(render(&row.id, &stored, &RenderOptions::default())),
                        None => text.extend_from_slice(b"null"),
                    }
                    text.push(b'}');
                }
                sink.write(&text).await?;
            }
            left = &left[some..];
        }
        Ok(())
    }
}

/// A row without its document.
fn head(row: &Row, index: Option<&String>) -> Object {
    let mut out = Object::new();
    out.push("id", row.id.as_str());
    if let Some(index) = index {
        out.push("index", index.as_str());
    }
    out.push("order", row.order.iter().map(order_value).collect::<Vec<_>>());
    let mut fields = Object::new();
    for (name, values) in &row.fields {
        match &values[..] {
            [one] => fields.push(name.as_str(), stored(one)),
            several => fields.push(name.as_str(), several.iter().map(stored).collect::<Vec<_>>()),
        }
    }
    out.push("fields", fields);
    if let Some(highlights) = &row.highlights {
        let texts = |texts: &Vec<String>| texts.iter().map(|text| text.as_str().into()).collect::<Vec<Value>>();
        let all: Object = highlights.iter().map(|(name, list)| (name.clone(), texts(list).into())).collect();
        out.push("highlights", all);
    }
    out
}

fn order_value(value: &SortValue) -> Value {
    match value {
        SortValue::Text(text) => text.as_deref().map_or(Value::Null, Value::from),
        SortValue::Number(number) if number.is_finite() => Value::Float(*number),
        SortValue::Number(_) => Value::Null,
        SortValue::Document(number) => Value::from(*number),
    }
}

fn stored(value: &Stored) -> Value {
    match value {
        Stored::Text(text) => text.as_str().into(),
        Stored::Number(number) => Value::Float(*number),
    }
}

/// Counts are written as numbers with a fraction; `no_zero`: nothing is an empty object, as in Clouseau.
fn facets(counts: &Counts, no_zero: bool) -> Value {
    let count = |count: u64| match count {
        0 if no_zero => Value::Object(Object::new()),
        count => Value::Float(count as f64),
    };
    let all = counts.iter().map(|(field, values)| {
        let values: Object = values.iter().map(|(value, number)| (value.clone(), count(*number))).collect();
        (field.clone(), Value::Object(values))
    });
    Value::Object(all.collect())
}
